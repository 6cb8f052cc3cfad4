//! Places, and how a sentence names them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use model::CaptureOwner;

/// Most characters of a text that came from elsewhere.
const SHOWN_CHARS_MAX: usize = 300;
/// Most ranges of numbers in a sentence.
const RANGES_MAX: usize = 6;

/// Where something is missing; see [`super::Place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct At<'a> {
    pub(super) host: &'a str,
    pub(super) gpu: Option<u32>,
    pub(super) pid: Option<u32>,
    pub(super) rank: Option<u32>,
}

impl<'a> At<'a> {
    pub(super) fn host(host: &'a str) -> Self {
        Self { host, gpu: None, pid: None, rank: None }
    }
}

/// A text from elsewhere, printable and short enough for a sentence.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS_MAX).collect();
    if text.trim().chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// The same, as a part of a sentence that goes on behind it.
pub(super) fn clause(text: &str) -> String {
    let shown = shown(text);
    let shown = shown.trim_end_matches('.');
    if shown.is_empty() { "no cause was given".into() } else { shown.to_owned() }
}

/// A process by name: `rank 3 (pid 7 on `h`)`.
pub(super) fn owner(owner: &CaptureOwner) -> String {
    process(&shown(&owner.host), Some(owner.pid), owner.rank)
}

fn process(host: &str, pid: Option<u32>, rank: Option<u32>) -> String {
    match (pid.filter(|pid| *pid != 0), rank) {
        (Some(pid), Some(rank)) => format!("rank {rank} (pid {pid} on `{host}`)"),
        (None, Some(rank)) => format!("rank {rank} on `{host}`"),
        (Some(pid), None) => format!("process {pid} on `{host}`"),
        (None, None) => format!("a process on `{host}`"),
    }
}

/// Numbers as ranges: `0-3, 5`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let mut text = String::new();
    for (at, (first, last)) in ranges.iter().take(RANGES_MAX).enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    if ranges.len() > RANGES_MAX {
        text.push_str(", …");
    }
    text
}

/// The places of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'p, 'a>(pub(super) &'p [At<'a>]);

impl Places<'_, '_> {
    fn hosts(self) -> BTreeSet<String> {
        self.0.iter().map(|at| shown(at.host)).collect()
    }

    fn is_one(self) -> bool {
        self.0.len() == 1
    }

    pub(super) fn have_gpus(self) -> bool {
        self.0.iter().any(|at| at.gpu.is_some())
    }

    /// Devices, processes or hosts by name, or by number where there are many.
    pub(super) fn named(self) -> String {
        if self.have_gpus() {
            self.gpus()
        } else if self.0.iter().any(|at| at.pid.is_some() || at.rank.is_some()) {
            self.processes()
        } else {
            self.nodes()
        }
    }

    /// Hosts only.
    pub(super) fn nodes(self) -> String {
        let hosts = self.hosts();
        match (hosts.first(), hosts.len()) {
            (Some(host), 1) => format!("`{host}`"),
            (Some(host), 2) => format!("`{host}` and `{}`", hosts.last().unwrap_or(host)),
            (_, many) => format!("{many} hosts"),
        }
    }

    fn gpus(self) -> String {
        let numbers: BTreeSet<u32> = self.0.iter().filter_map(|at| at.gpu).collect();
        let hosts = self.hosts();
        let plural = if numbers.len() == 1 { "GPU" } else { "GPUs" };
        // Every host lacks the same ones, or they are counted.
        if numbers.len() * hosts.len() == self.0.len() {
            format!("{plural} {} of {}", ranges(&numbers), self.nodes())
        } else {
            format!("{} GPUs of {}", self.0.len(), self.nodes())
        }
    }

    /// Processes by rank, or by number.
    pub(super) fn processes(self) -> String {
        if let [at] = self.0 {
            return process(&shown(at.host), at.pid, at.rank);
        }
        let ranks: BTreeSet<u32> = self.0.iter().filter_map(|at| at.rank).collect();
        if ranks.len() == self.0.len() {
            format!("ranks {} on {}", ranges(&ranks), self.nodes())
        } else {
            format!("{} processes on {}", self.0.len(), self.nodes())
        }
    }

    /// `is` or `are`, and so on.
    pub(super) fn verb(self, one: &'static str, many: &'static str) -> &'static str {
        if self.is_one() { one } else { many }
    }
}
