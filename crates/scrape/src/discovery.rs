//! The targets that a configuration names now: static ones and those in files.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::config::{Group, Job};
use crate::document::group;
use crate::section::list;
use crate::target::{Found, Target, settle};
use crate::yaml::{self, DOCUMENT_BYTES_MAX};

/// Most targets of all jobs.
pub(crate) const TARGETS_MAX: usize = 100_000;
/// Most files that one pattern may name.
const FILES_MAX: usize = 10_000;
/// Most problems that are told.
const PROBLEMS_MAX: usize = 100;

/// Files as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: HashMap<PathBuf, Known>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    /// The groups of the last version that could be read.
    groups: Vec<Group>,
    /// What is wrong with the version that is there.
    problem: Option<String>,
}

/// Tells one version of a file from another.
type Stamp = (Option<SystemTime>, u64);

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.modified().ok(), metadata.len())
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    /// By the job's place in the configuration.
    pub(crate) targets: Vec<(usize, Target)>,
    /// Targets that relabelling dropped.
    pub(crate) dropped: Vec<(usize, model::Labels)>,
    /// What could not be used, in words.
    pub(crate) problems: Vec<String>,
}

impl Discovery {
    fn problem(&mut self, what: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

/// Looks up the targets of `jobs`.
pub(crate) fn discover<'j>(jobs: impl Iterator<Item = &'j Job>, files: &mut Files) -> Discovery {
    let mut discovery = Discovery::default();
    let mut seen = HashSet::new();
    for (at, job) in jobs.enumerate() {
        let mut groups = job.groups.clone();
        for pattern in job.files.iter().flat_map(|discovery| &discovery.patterns) {
            for path in matching(pattern, &mut discovery) {
                groups.extend(files.groups(&path, &mut discovery));
                seen.insert(path);
            }
        }
        let targets = of_job(at, job, &groups, &mut discovery);
        let limit = job.limits.targets;
        if limit > 0 && targets.len() > limit {
            let found = targets.len();
            discovery.problem(format!(
                "job `{}` has {found} targets, `target_limit` is {limit}: none of them is scraped",
                job.name
            ));
        } else {
            discovery.targets.extend(targets);
        }
    }
    if discovery.targets.len() > TARGETS_MAX {
        let found = discovery.targets.len();
        discovery.targets.truncate(TARGETS_MAX);
        discovery.problem(format!("there are {found} targets, the first {TARGETS_MAX} are scraped"));
    }
    files.known.retain(|path, _| seen.contains(path));
    discovery
}

fn of_job(at: usize, job: &Job, groups: &[Group], discovery: &mut Discovery) -> Vec<(usize, Target)> {
    let mut targets = Vec::new();
    for group in groups {
        for address in &group.targets {
            match settle(job, group, address) {
                Ok(Found::Target(target)) => targets.push((at, target)),
                Ok(Found::Dropped(labels)) => discovery.dropped.push((at, labels)),
                Err(problem) => discovery.problem(format!("job `{}`: {problem}", job.name)),
            }
        }
    }
    targets
}

/// The files that a pattern with at most one `*` in its last part names, in order.
fn matching(pattern: &Path, discovery: &mut Discovery) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let folder = pattern.parent().unwrap_or_else(|| Path::new("."));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            discovery.problem(format!("cannot list `{}`: {error}", folder.display()));
            return Vec::new();
        }
    };
    let fits = |found: &str| {
        found.len() >= start.len() + end.len() && found.starts_with(start) && found.ends_with(end)
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(fits))
        .take(FILES_MAX)
        .collect();
    paths.sort();
    paths
}

impl Files {
    /// The groups of a file; those of its last good version while it can't be read.
    fn groups(&mut self, path: &Path, discovery: &mut Discovery) -> Vec<Group> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => {
                discovery.problem(format!("cannot read `{}`: {error}", path.display()));
                return self.known.get(path).map(|known| known.groups.clone()).unwrap_or_default();
            }
        };
        let stamp = stamp(&metadata);
        if self.known.get(path).is_none_or(|known| known.stamp != stamp) {
            let before = self.known.remove(path).map(|known| known.groups).unwrap_or_default();
            let known = match read(path) {
                Ok(groups) => Known { stamp, groups, problem: None },
                Err(problem) => Known { stamp, groups: before, problem: Some(problem) },
            };
            self.known.insert(path.to_owned(), known);
        }
        let Some(known) = self.known.get(path) else { return Vec::new() };
        if let Some(problem) = &known.problem {
            discovery.problem(problem.clone());
        }
        known.groups.clone()
    }
}

fn read(path: &Path) -> Result<Vec<Group>, String> {
    let shown = path.display().to_string();
    let cannot = |error: std::io::Error| format!("cannot read `{shown}`: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    // JSON is YAML.
    let wrong = |(place, what): yaml::Fault| format!("{shown}:{}:{}: {what}", place.line, place.column);
    let node = yaml::read(&text).map_err(wrong)?;
    list(&node).and_then(|nodes| nodes.iter().map(|node| group(node, &shown)).collect()).map_err(wrong)
}
