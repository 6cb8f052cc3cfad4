//! How long CPU quotas held a process back.
//!
//! Every cgroup level with a quota can do so, and each counts for itself; what counts here is the level that held
//! it back the longest since the last tick. The kernel adds up the time of every CPU's queue, so a process with
//! many threads is told more time than went by: a level never counts more than the periods in which it throttled.
//!
//! Sources: `cpu.max` and `cpu.stat` (version 2), `cpu.cfs_quota_us`, `cpu.cfs_period_us` and `cpu.stat`
//! (version 1; kernel: `scheduler/sched-bwc`).

use crate::{
    CPU_THROTTLED, Sink,
    cgroup::{Hierarchies, Level},
    host::Host,
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
    quota::{Quota, Slice},
};

/// Time held back, since the first tick.
#[derive(Debug)]
pub(crate) struct Throttling {
    host: Host,
    membership: PseudoFile,
    /// The membership as it was when the levels were found; `None` before that.
    resolved: Option<Vec<u8>>,
    levels: Vec<ThrottledLevel>,
    /// `None` before any level had a quota.
    total_ns: Option<u64>,
}

/// A cgroup that can have a quota.
#[derive(Debug)]
struct ThrottledLevel {
    quota: Quota,
    stat: PseudoFile,
    unified: bool,
    last: Option<Counted>,
}

/// What a level has counted so far.
#[derive(Debug, Clone, Copy)]
struct Counted {
    periods: u64,
    ns: u64,
}

impl Throttling {
    /// Of the process whose folder in `proc` is `folder`.
    pub(crate) fn new(host: Host, folder: &str) -> Self {
        Self {
            membership: host.file(&format!("{folder}/cgroup")),
            resolved: None,
            levels: Vec::new(),
            total_ns: None,
            host,
        }
    }

    /// Emits the time held back since the first tick, once a level has a quota.
    pub(crate) fn sample(&mut self, buffer: &mut Buffer, sink: &mut Sink<'_>) -> Result<(), String> {
        self.follow_membership(buffer);
        let (mut longest_ns, mut problem) = (None, None);
        for level in &mut self.levels {
            match level.advance(buffer) {
                Ok(ns) => longest_ns = longest_ns.max(ns),
                Err(cause) => problem = Some(cause),
            }
        }
        if let Some(ns) = longest_ns {
            self.total_ns = Some(self.total_ns.unwrap_or(0).saturating_add(ns));
        }
        // A quota that was lifted holds nothing back: the total stays what it was.
        match (self.total_ns, problem) {
            (_, Some(cause)) => Err(cause),
            (Some(total_ns), None) => {
                sink(&CPU_THROTTLED, total_ns as f64 / 1e9);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Finds the levels at the first tick and after each move to other cgroups.
    fn follow_membership(&mut self, buffer: &mut Buffer) {
        let Ok(now) = self.membership.read(buffer) else { return };
        if self.resolved.as_deref() == Some(now) {
            return;
        }
        let chain = Hierarchies::new(&self.host, now).chain(&self.host, b"cpu");
        self.resolved = Some(now.to_vec());
        self.levels = chain.iter().map(ThrottledLevel::of).collect();
    }
}

impl ThrottledLevel {
    fn of(level: &Level) -> Self {
        let stat = PseudoFile::new(level.directory.join("cpu.stat"));
        Self { quota: Quota::of(level), stat, unified: level.unified, last: None }
    }

    /// How long this level held back what is in it since the last call; `None` while it has no quota.
    fn advance(&mut self, buffer: &mut Buffer) -> Result<Option<u64>, String> {
        let Some(Slice { period_us, .. }) = self.quota.slice(buffer) else {
            self.last = None;
            return Ok(None);
        };
        let text = match self.stat.read(buffer) {
            Ok(text) => text,
            Err(ReadError::Absent) => return Ok(None),
            Err(ReadError::Failed(cause)) => return Err(cause),
        };
        let (name, unit_ns) = if self.unified { ("throttled_usec", 1_000) } else { ("throttled_time", 1) };
        let periods = parse::field(text, b"nr_throttled");
        let ns = parse::field(text, name.as_bytes()).and_then(|time| time.checked_mul(unit_ns));
        let (Some(periods), Some(ns)) = (periods, ns) else {
            return Err(self.stat.malformed(&format!("the lines `nr_throttled` and `{name}`")));
        };
        let Some(last) = self.last.replace(Counted { periods, ns }) else { return Ok(Some(0)) };
        // A counter that went back is another cgroup's of the same name.
        let (Some(periods), Some(ns)) = (periods.checked_sub(last.periods), ns.checked_sub(last.ns)) else {
            return Ok(Some(0));
        };
        Ok(Some(ns.min(periods.saturating_mul(period_us).saturating_mul(1_000))))
    }
}
