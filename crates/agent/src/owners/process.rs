//! What is known of a process: to whom it belongs, and which run it is part of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::files::{read_bytes, read_text};
use super::membership::{Environment, Membership};

/// Longest environment that is read.
const ENVIRONMENT_BYTES_MAX: u64 = 256 << 10;
/// Longest membership that is read.
const CGROUP_BYTES_MAX: u64 = 64 << 10;
/// Generations above a process that are looked at.
const PARENTS_MAX: usize = 16;
/// Most processes that are kept in mind.
const KNOWN_MAX: usize = 8_192;

/// A process that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) start_ticks: u64,
    pub(super) membership: Membership,
    pub(super) environment: Environment,
    /// Itself first, then its parents.
    pub(super) line: Vec<u32>,
}

/// Reads processes, and remembers what a process can't change.
#[derive(Debug)]
pub(super) struct Processes {
    proc: PathBuf,
    environments: HashMap<(u32, u64), Environment>,
}

/// What `/proc/<pid>/stat` says.
struct Stat {
    name: String,
    parent: u32,
    start_ticks: u64,
}

impl Processes {
    pub(super) fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), environments: HashMap::new() }
    }

    /// A process as it is now; `None` when it has gone.
    pub(super) fn look(&mut self, pid: u32) -> Option<Process> {
        let folder = self.proc.join(pid.to_string());
        let stat = self.stat(pid)?;
        let membership = Membership::read(&read_bytes(&folder.join("cgroup"), CGROUP_BYTES_MAX)?);
        let environment = self.environment(&folder, (pid, stat.start_ticks));
        let mut line = vec![pid];
        let mut parent = stat.parent;
        while parent > 1 && line.len() < PARENTS_MAX && !line.contains(&parent) {
            line.push(parent);
            parent = self.stat(parent).map_or(0, |stat| stat.parent);
        }
        // Somebody else may have the number by now.
        let is_same = self.stat(pid).is_some_and(|again| again.start_ticks == stat.start_ticks);
        let (name, start_ticks) = (stat.name, stat.start_ticks);
        is_same.then_some(Process { name, start_ticks, membership, environment, line })
    }

    fn environment(&mut self, folder: &Path, key: (u32, u64)) -> Environment {
        if let Some(known) = self.environments.get(&key) {
            return known.clone();
        }
        // Only its own user and root may read it: then it is nothing, and not asked for again.
        let read = read_bytes(&folder.join("environ"), ENVIRONMENT_BYTES_MAX).unwrap_or_default();
        let environment = Environment::read(&read);
        if self.environments.len() >= KNOWN_MAX {
            self.environments.clear();
        }
        self.environments.insert(key, environment.clone());
        environment
    }

    fn stat(&self, pid: u32) -> Option<Stat> {
        let text = read_text(&self.proc.join(pid.to_string()).join("stat"))?;
        // The name may hold anything, brackets and line ends too.
        let (from, to) = (text.find('(')?, text.rfind(')')?);
        let fields: Vec<&str> = text.get(to + 1..)?.split_ascii_whitespace().collect();
        let name = text.get(from + 1..to)?.chars().filter(|c| !c.is_control()).take(64).collect();
        Some(Stat { name, parent: fields.get(1)?.parse().ok()?, start_ticks: fields.get(19)?.parse().ok()? })
    }
}
