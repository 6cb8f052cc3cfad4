//! This process and all its descendants.
//!
//! Source: `/proc/<pid>/stat` of every process, because a kernel need not have the `children` files.
//! A process that is known to be none of ours is not read again for a while, so a tick costs one
//! listing of `/proc`, one read for each member and one for each process that is new.

use std::collections::{HashMap, HashSet};

use std::path::PathBuf;

use crate::{
    Sink, TREE_CPU, TREE_RSS,
    host::{Host, page_bytes},
    parse::{self, ProcessStat},
    process::{percent_of_one_core, read},
    pseudo_file::{Buffer, PseudoFile},
    rate::Advance,
};

/// Most processes read in one tick; with more than these new since the last one, the rest waits.
const READS_PER_TICK_MAX: usize = 4096;
/// Ticks after which everybody is read again: a process ID may have passed to one of ours.
const OUTSIDERS_KEPT_TICKS: u32 = 16;

/// The members of the tree and their counters at the last tick.
#[derive(Debug)]
pub(crate) struct Tree {
    proc: PathBuf,
    own: PseudoFile,
    uptime: PseudoFile,
    members: HashMap<u64, ProcessStat>,
    outsiders: HashSet<u64>,
    outsiders_age: u32,
    /// Time of the last tick, and the time since boot then, in nanoseconds.
    last: Option<(u64, Option<u64>)>,
}

impl Tree {
    pub(crate) fn new(host: &Host) -> Self {
        Self {
            proc: host.path(b"/proc"),
            own: host.file("/proc/self/stat"),
            uptime: host.file("/proc/uptime"),
            members: HashMap::new(),
            outsiders: HashSet::new(),
            outsiders_age: 0,
            last: None,
        }
    }

    /// Emits memory and CPU of the tree; nothing when this process is not shown.
    pub(crate) fn sample(
        &mut self,
        at_ns: u64,
        buffer: &mut Buffer,
        sink: &mut Sink<'_>,
    ) -> Result<(), String> {
        let Some(own) = read(&mut self.own, buffer, parse::process_stat, "the fields of a process")? else {
            return Ok(());
        };
        let boot_ns = read(&mut self.uptime, buffer, parse::uptime_ns, "a number of seconds").ok().flatten();
        let members = self.find_members(own, buffer)?;
        let pages = members.values().fold(0u64, |sum, member| sum.saturating_add(member.rss_pages));
        sink(&TREE_RSS, pages.saturating_mul(page_bytes()) as f64);
        if let Some((last_ns, last_boot_ns)) = self.last
            && let Some(elapsed_ns) = at_ns.checked_sub(last_ns).filter(|elapsed| *elapsed > 0)
        {
            let value = ticks_used(&self.members, &members, last_boot_ns);
            sink(&TREE_CPU, percent_of_one_core(Advance { value, elapsed_ns }));
        }
        self.members = members;
        self.last = Some((at_ns, boot_ns));
        Ok(())
    }

    /// Reads every process that may be ours and keeps those below `own`.
    fn find_members(
        &mut self,
        own: ProcessStat,
        buffer: &mut Buffer,
    ) -> Result<HashMap<u64, ProcessStat>, String> {
        self.outsiders_age += 1;
        if self.outsiders_age >= OUTSIDERS_KEPT_TICKS {
            self.outsiders.clear();
            self.outsiders_age = 0;
        }
        let present = self.list()?;
        self.outsiders.retain(|pid| present.contains(pid));
        let mut seen = HashMap::new();
        let unknown = present.iter().filter(|pid| **pid != own.pid && !self.outsiders.contains(pid));
        for pid in unknown.take(READS_PER_TICK_MAX) {
            let mut file = PseudoFile::new(self.proc.join(format!("{pid}/stat")));
            // It may have ended since the listing.
            if let Ok(Some(stat)) = read(&mut file, buffer, parse::process_stat, "the fields of a process") {
                seen.insert(*pid, stat);
            }
        }
        let mut members = HashMap::from([(own.pid, own)]);
        for pid in seen.keys() {
            if descends(*pid, own.pid, &seen) {
                members.insert(*pid, seen[pid]);
            } else {
                self.outsiders.insert(*pid);
            }
        }
        Ok(members)
    }

    /// The process IDs of `/proc`.
    fn list(&self) -> Result<HashSet<u64>, String> {
        let cause = |error: std::io::Error| format!("cannot list `{}`: {error}", self.proc.display());
        let mut pids = HashSet::new();
        for entry in std::fs::read_dir(&self.proc).map_err(cause)? {
            if let Some(pid) = parse::number(entry.map_err(cause)?.file_name().as_encoded_bytes()) {
                pids.insert(pid);
            }
        }
        Ok(pids)
    }
}

/// Whether `pid` has `ancestor` among its ancestors.
fn descends(pid: u64, ancestor: u64, seen: &HashMap<u64, ProcessStat>) -> bool {
    let mut pid = pid;
    // A chain is no longer than the table; a longer one would be a circle that a race made.
    for _ in 0..=seen.len() {
        match seen.get(&pid).map(|stat| stat.parent) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) => pid = parent,
            None => return false,
        }
    }
    false
}

/// Kernel ticks the tree used between two ticks.
///
/// A member that ended and was waited for left its whole time in its parent's waited time, of which
/// what it had at the last tick is taken off again. So the result is never negative and never holds
/// time from before the last tick.
fn ticks_used(
    before: &HashMap<u64, ProcessStat>,
    now: &HashMap<u64, ProcessStat>,
    last_boot_ns: Option<u64>,
) -> u64 {
    let same = |stat: &ProcessStat| {
        before.get(&stat.pid).filter(|earlier| earlier.start_ticks == stat.start_ticks)
    };
    let remains = |stat: &ProcessStat| {
        now.get(&stat.pid).is_some_and(|later| later.start_ticks == stat.start_ticks)
    };
    let mut inherited: HashMap<u64, u64> = HashMap::new();
    for ended in before.values().filter(|stat| !remains(stat)) {
        if let Some(heir) = surviving_ancestor(ended, before, &remains) {
            *inherited.entry(heir).or_default() += ended.own_ticks + ended.waited_ticks;
        }
    }
    let used = now.values().map(|stat| match same(stat) {
        Some(earlier) => {
            let waited = stat.waited_ticks.saturating_sub(earlier.waited_ticks);
            let known = inherited.get(&stat.pid).copied().unwrap_or(0);
            stat.own_ticks.saturating_sub(earlier.own_ticks) + waited.saturating_sub(known)
        }
        None if born_since(stat, last_boot_ns) => stat.own_ticks + stat.waited_ticks,
        None => 0,
    });
    used.fold(0, u64::saturating_add)
}

/// Whether a process started after the last tick; one that cannot be placed counts from now on only.
fn born_since(stat: &ProcessStat, last_boot_ns: Option<u64>) -> bool {
    let start_ns = u128::from(stat.start_ticks) * 1_000_000_000 / u128::from(crate::host::ticks_per_second());
    // A start is cut to whole kernel ticks, so one in the tick of the last sample counts as after it.
    last_boot_ns.is_some_and(|last| start_ns + 10_000_000 >= u128::from(last))
}

/// The nearest ancestor that is still there.
fn surviving_ancestor(
    ended: &ProcessStat,
    before: &HashMap<u64, ProcessStat>,
    remains: &dyn Fn(&ProcessStat) -> bool,
) -> Option<u64> {
    let mut parent = ended.parent;
    for _ in 0..=before.len() {
        let stat = before.get(&parent)?;
        if remains(stat) {
            return Some(stat.pid);
        }
        parent = stat.parent;
    }
    None
}
