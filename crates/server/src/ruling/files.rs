//! Reads files of rules: the settings' ones, and those that come with the program.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use promql::rules::Group;

use super::{Fared, Ruled};
use crate::config::Config;
use crate::starters;

/// Largest rule file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why rules can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file can't be read.
    #[error("cannot read the rules `{path}`: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Something in it is wrong.
    #[error("the rules `{path}` can't be used: {findings}")]
    Wrong {
        /// The file.
        path: String,
        /// Lines and what is wrong there.
        findings: String,
    },
    /// No thread to be had.
    #[error("cannot start the rules' thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// Groups that can be evaluated.
pub(crate) struct Groups(pub(super) Vec<Ruled>);

/// Reads all files of rules.
pub(crate) fn groups(config: &Config) -> Result<Groups, RulesError> {
    let interval_ms = i64::try_from(config.rule_interval.as_millis()).unwrap_or(i64::MAX);
    let mut groups = Vec::new();
    if config.starter_rules {
        for (name, text) in starters::rules() {
            add(&mut groups, format!("starter/{name}"), &text, interval_ms)?;
        }
    }
    for pattern in &config.rule_files {
        for path in matching(Path::new(pattern))? {
            let text = read(&path)?;
            add(&mut groups, path.display().to_string(), &text, interval_ms)?;
        }
    }
    Ok(Groups(groups))
}

fn add(groups: &mut Vec<Ruled>, file: String, text: &str, interval_ms: i64) -> Result<(), RulesError> {
    if groups.iter().any(|known| known.file == file) {
        return Ok(());
    }
    let wrong =
        |findings: Vec<String>| RulesError::Wrong { path: file.clone(), findings: findings.join("; ") };
    let parsed = promql::rules::parse(text)
        .map_err(|findings| wrong(findings.iter().map(ToString::to_string).collect()))?;
    for written in &parsed.groups {
        let group = Group::new(written, interval_ms).map_err(|error| wrong(vec![error.to_string()]))?;
        let fared = vec![Fared::default(); group.len()];
        let limit = written.limit;
        groups.push(Ruled { file: file.clone(), group, limit, fared, last_ms: None, took: Duration::ZERO });
    }
    Ok(())
}

fn unreadable(path: &Path, reason: impl std::fmt::Display) -> RulesError {
    RulesError::Unreadable { path: path.display().to_string(), reason: reason.to_string() }
}

fn read(path: &Path) -> Result<String, RulesError> {
    // Rules are read again while the server runs, and a pipe gives what it has once: then it waits.
    let about = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if about.file_type().is_fifo() {
        return Err(unreadable(path, "it is a pipe, which can't be read a second time: write a file"));
    }
    crate::files::text(path, FILE_BYTES_MAX).map_err(|error| unreadable(path, error))
}

/// The files that a pattern means: one `*` in its last part stands for any part of a name. A folder
/// without such files has none; one that is not there is an error, as is a file.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, RulesError> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
    if end.contains('*') {
        return Err(unreadable(pattern, "at most one `*` is understood, in the file's name"));
    }
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_long_enough = name.len() >= start.len() + end.len();
        is_long_enough && name.starts_with(start) && name.ends_with(end) && path.is_file()
    };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(pattern, error))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).filter(fits).collect();
    files.sort();
    Ok(files)
}
