//! Reads files of rules: the settings' ones, and those that come with the program.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use promql::rules::{Group, RuleText};

use super::saved_rules::SavedFile;
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

/// Files of rules that can be evaluated, as they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    /// Name and text.
    files: Vec<(String, String)>,
    interval_ms: i64,
}

/// Reads and checks all files of rules.
pub(crate) fn groups(config: &Config) -> Result<Groups, RulesError> {
    let interval_ms = i64::try_from(config.rule_interval.as_millis()).unwrap_or(i64::MAX);
    let mut files: Vec<(String, String)> = Vec::new();
    if config.starter_rules {
        files.extend(starters::rules().into_iter().map(|(name, text)| (format!("starter/{name}"), text)));
    }
    for pattern in &config.rule_files {
        for path in matching(Path::new(pattern))? {
            let (name, text) = (path.display().to_string(), read(&path)?);
            if files.iter().all(|(known, _)| *known != name) {
                files.push((name, text));
            }
        }
    }
    let groups = Groups { files, interval_ms };
    groups.with(&[])?;
    Ok(groups)
}

impl Groups {
    /// Ready to be evaluated, with the `saved` ones behind them.
    pub(super) fn with(&self, saved: &[SavedFile]) -> Result<Vec<Ruled>, RulesError> {
        let replaced: Vec<&str> = saved.iter().flat_map(|file| &file.replaces).map(String::as_str).collect();
        let mut all = Vec::new();
        for (file, text) in &self.files {
            self.add(&mut all, file, text, &replaced)?;
        }
        for file in saved {
            let name = file.file();
            // It could be used when it was saved; a newer program may see it differently, and starts.
            if let Err(error) = self.add(&mut all, &name, &file.text, &[]) {
                tracing::error!(%error, file = name, "saved rules are not in force");
            }
        }
        Ok(all)
    }

    /// That a saved file can be put in force.
    pub(super) fn usable(&self, file: &SavedFile) -> Result<(), RulesError> {
        self.add(&mut Vec::new(), &file.file(), &file.text, &[])
    }

    /// Every rule, with its file.
    pub(super) fn rules(&self) -> Vec<(String, RuleText)> {
        let of_file = |(file, text): &(String, String)| {
            let groups = promql::rules::parse(text).map(|file| file.groups).unwrap_or_default();
            let rules: Vec<(String, RuleText)> =
                groups.into_iter().flat_map(|group| group.rules).map(|rule| (file.clone(), rule)).collect();
            rules
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// Adds the groups of a file, without rules that are `replaced`.
    fn add(&self, all: &mut Vec<Ruled>, file: &str, text: &str, replaced: &[&str]) -> Result<(), RulesError> {
        let wrong = |findings: Vec<String>| RulesError::Wrong {
            path: file.to_owned(),
            findings: findings.join("; "),
        };
        let parsed = promql::rules::parse(text)
            .map_err(|findings| wrong(findings.iter().map(ToString::to_string).collect()))?;
        let mut made = Vec::new();
        for mut written in parsed.groups {
            let count = written.rules.len();
            written.rules.retain(|rule| !replaced.contains(&rule.name.as_str()));
            if written.rules.is_empty() && count > 0 {
                continue;
            }
            let group =
                Group::new(&written, self.interval_ms).map_err(|error| wrong(vec![error.to_string()]))?;
            let (fared, limit) = (vec![Fared::default(); group.len()], written.limit);
            let (file, took) = (file.to_owned(), Duration::ZERO);
            made.push(Ruled { file, group, limit, fared, last_ms: None, took });
        }
        all.append(&mut made);
        Ok(())
    }
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
