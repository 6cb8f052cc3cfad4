//! Every process of the machine, with what each used since the last tick.
//!
//! Source: `/proc/<pid>/stat`. One open, read and close for each process and tick.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::{
    host::{Host, page_bytes},
    parse,
    process::percent_of_one_core,
    pseudo_file::{Buffer, PseudoFile},
    rate::Advance,
};

/// Longest name kept, bytes: the kernel cuts at 15, threads of its own at 63.
const NAME_BYTES_MAX: usize = 64;

/// A process at one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessRow {
    /// Its ID.
    pub pid: u32,
    /// The ID of its parent.
    pub parent: u32,
    /// Its name as the kernel has it, at most 15 characters of a program's.
    pub name: String,
    /// CPU time since the last tick as a percentage of one core; `None` at the first tick that shows it.
    pub cpu_percent: Option<f64>,
    /// Resident memory.
    pub rss_bytes: u64,
    /// When it started, in kernel ticks since boot: tells it from another process of the same ID.
    pub start_ticks: u64,
}

/// Samples all processes. Not to be carried over a fork.
#[derive(Debug)]
pub struct ProcessTable {
    proc: PathBuf,
    buffer: Buffer,
    last: HashMap<u32, (u64, u64)>,
    last_ns: Option<u64>,
}

impl ProcessTable {
    /// A table of `host`; nothing is read before the first tick.
    pub fn new(host: &Host) -> Self {
        Self { proc: host.path(b"/proc"), buffer: Buffer::new(), last: HashMap::new(), last_ns: None }
    }

    /// The processes there are now. One that ends meanwhile is left out; the list is empty where `/proc`
    /// cannot be listed.
    ///
    /// `monotonic_ns` is the time of the tick on a clock that is never set.
    pub fn sample(&mut self, monotonic_ns: u64) -> Vec<ProcessRow> {
        let elapsed_ns = self.last_ns.and_then(|last| monotonic_ns.checked_sub(last)).filter(|e| *e > 0);
        self.last_ns = Some(monotonic_ns);
        let mut rows = Vec::with_capacity(self.last.len() + 16);
        let mut used = HashMap::with_capacity(self.last.len() + 16);
        for entry in std::fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = parse::number(name.as_encoded_bytes()).and_then(|pid| u32::try_from(pid).ok())
            else {
                continue;
            };
            let path = entry.path().join("stat");
            let Ok(text) = PseudoFile::read_once(&path, &mut self.buffer) else { continue };
            let Some(stat) = parse::process_stat(text) else { continue };
            used.insert(pid, (stat.start_ticks, stat.own_ticks));
            let before = self.last.get(&pid).filter(|(start, _)| *start == stat.start_ticks);
            let cpu_percent = before.zip(elapsed_ns).map(|((_, ticks), elapsed_ns)| {
                percent_of_one_core(Advance { value: stat.own_ticks.saturating_sub(*ticks), elapsed_ns })
            });
            rows.push(ProcessRow {
                pid,
                parent: u32::try_from(stat.parent).unwrap_or_default(),
                name: name_of(text),
                cpu_percent,
                rss_bytes: stat.rss_pages.saturating_mul(page_bytes()),
                start_ticks: stat.start_ticks,
            });
        }
        self.last = used;
        rows
    }
}

/// The name between the first opening and the last closing bracket; it may hold brackets itself.
fn name_of(stat: &[u8]) -> String {
    let start = stat.iter().position(|byte| *byte == b'(').map_or(0, |at| at + 1);
    let end = stat.iter().rposition(|byte| *byte == b')').unwrap_or(start).max(start);
    String::from_utf8_lossy(&stat[start..end.min(start + NAME_BYTES_MAX)]).into_owned()
}
