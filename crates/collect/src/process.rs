//! A process, this one as a rule, and its descendants as an extra.

use crate::{
    CPU_THROTTLED, Failure, PROCESS_CPU, PROCESS_RSS, Sink, TREE_RSS,
    failure::Health,
    host::{Host, page_bytes, ticks_per_second},
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
    rate::{Advance, Rate},
    throttling::Throttling,
    tree::Tree,
};

/// Samples the series of a process.
///
/// Not to be carried over a fork: its open files show the parent.
#[derive(Debug)]
pub struct ProcessSampler {
    buffer: Buffer,
    statm: PseudoFile,
    stat: PseudoFile,
    rate: Rate,
    tree: Tree,
    throttling: Throttling,
    rss_health: Health,
    cpu_health: Health,
    tree_health: Health,
    throttling_health: Health,
    failures: Vec<Failure>,
}

impl ProcessSampler {
    /// A sampler of the process that is `proc/self` of `host`; nothing is read before the first tick.
    pub fn new(host: Host) -> Self {
        Self::below(&host, "/proc/self")
    }

    /// A sampler of another process of `host`, by its ID, and of its descendants.
    pub fn of(host: Host, pid: u32) -> Self {
        Self::below(&host, &format!("/proc/{pid}"))
    }

    fn below(host: &Host, folder: &str) -> Self {
        Self {
            buffer: Buffer::new(),
            statm: host.file(&format!("{folder}/statm")),
            stat: host.file(&format!("{folder}/stat")),
            rate: Rate::default(),
            tree: Tree::new(host, folder),
            throttling: Throttling::new(host.clone(), folder),
            rss_health: Health::default(),
            cpu_health: Health::default(),
            tree_health: Health::default(),
            throttling_health: Health::default(),
            failures: Vec::new(),
        }
    }

    /// Emits `system/process/rss_bytes` and, from the second tick on, `system/process/cpu_utilization`.
    ///
    /// `monotonic_ns` is the time of the tick on a clock that is never set.
    pub fn sample(&mut self, monotonic_ns: u64, sink: &mut Sink<'_>) {
        if self.rss_health.is_due() {
            let outcome = read(&mut self.statm, &mut self.buffer, parse::statm_resident_pages, "two numbers");
            let pages = self.rss_health.note(&PROCESS_RSS, outcome, &mut self.failures).flatten();
            if let Some(pages) = pages {
                sink(&PROCESS_RSS, pages.saturating_mul(page_bytes()) as f64);
            }
        }
        if self.cpu_health.is_due() {
            let outcome =
                read(&mut self.stat, &mut self.buffer, parse::process_stat, "the fields of a process");
            let stat = self.cpu_health.note(&PROCESS_CPU, outcome, &mut self.failures).flatten();
            let advance =
                stat.and_then(|stat| self.rate.advance(self.stat.path(), stat.own_ticks, monotonic_ns));
            if let Some(step) = advance {
                sink(&PROCESS_CPU, percent_of_one_core(step));
            }
        }
    }

    /// Emits `system/process_tree/rss_bytes` and, from the second tick on,
    /// `system/process_tree/cpu_utilization`; where a CPU quota binds,
    /// `system/process/cpu_throttled_seconds_total`.
    pub fn sample_extras(&mut self, monotonic_ns: u64, sink: &mut Sink<'_>) {
        if self.tree_health.is_due() {
            let outcome = self.tree.sample(monotonic_ns, &mut self.buffer, sink);
            self.tree_health.note(&TREE_RSS, outcome, &mut self.failures);
        }
        if self.throttling_health.is_due() {
            let outcome = self.throttling.sample(&mut self.buffer, sink);
            self.throttling_health.note(&CPU_THROTTLED, outcome, &mut self.failures);
        }
    }

    /// What could not be read since the last call.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }
}

/// Reads and parses a file; `Ok(None)` when it is not there.
pub(crate) fn read<T>(
    file: &mut PseudoFile,
    buffer: &mut Buffer,
    parse: fn(&[u8]) -> Option<T>,
    wanted: &str,
) -> Result<Option<T>, String> {
    match file.read(buffer) {
        Ok(text) => parse(text).map(Some).ok_or_else(|| file.malformed(wanted)),
        Err(ReadError::Absent) => Ok(None),
        Err(ReadError::Failed(cause)) => Err(cause),
    }
}

/// Kernel ticks in an interval as a share of one core, in percent.
pub(crate) fn percent_of_one_core(step: Advance) -> f64 {
    let busy_ns = step.value as f64 * 1e9 / ticks_per_second() as f64;
    busy_ns / step.elapsed_ns as f64 * 100.0
}
