//! A process and all its descendants.
//!
//! Source: `/proc/<pid>/stat` of every process, because a kernel need not have the `children` files.
//! A process that is known to be none of ours is read again only every 16th tick, so a tick costs one
//! listing of `/proc`, one read for each member, one for each process that is new and one for a
//! sixteenth of the others.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use crate::{
    Sink, TREE_CPU, TREE_RSS,
    host::{Host, page_bytes, ticks_per_second},
    parse::{self, ProcessStat},
    process::{percent_of_one_core, read},
    pseudo_file::{Buffer, PseudoFile},
    rate::Advance,
};

/// Most processes read in one tick; with more than these new since the last one, the rest waits.
const READS_PER_TICK_MAX: usize = 4096;
/// Ticks within which everybody is read again: a process ID may have passed to one of ours.
const OUTSIDERS_KEPT_TICKS: u64 = 16;

/// Processes by their ID.
type Processes = HashMap<u64, ProcessStat>;

/// The members of the tree and their counters at the last tick.
#[derive(Debug)]
pub(crate) struct Tree {
    proc: PathBuf,
    own: PseudoFile,
    uptime: PseudoFile,
    members: Processes,
    outsiders: HashSet<u64>,
    ticks: u64,
    /// Time that members which ended since the last tick had used and their heirs do not show yet.
    owed: HashMap<u64, u64>,
    last: Option<Moment>,
}

/// When a tick was.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at_ns: u64,
    /// Time since boot, where the machine tells.
    boot_ns: Option<u64>,
}

impl Tree {
    /// The tree below the process that `folder` shows, such as `/proc/self`.
    pub(crate) fn new(host: &Host, folder: &str) -> Self {
        Self {
            proc: host.path(b"/proc"),
            own: host.file(&format!("{folder}/stat")),
            uptime: host.file("/proc/uptime"),
            members: HashMap::new(),
            outsiders: HashSet::new(),
            ticks: 0,
            owed: HashMap::new(),
            last: None,
        }
    }

    /// Emits memory and CPU of the tree; nothing when the process is not shown.
    pub(crate) fn sample(
        &mut self,
        at_ns: u64,
        buffer: &mut Buffer,
        sink: &mut Sink<'_>,
    ) -> Result<(), String> {
        let boot_ns = read(&mut self.uptime, buffer, parse::uptime_ns, "a number of seconds").ok().flatten();
        let Some(own) = read(&mut self.own, buffer, parse::process_stat, "the fields of a process")? else {
            return Ok(());
        };
        let members = self.find_members(own, buffer)?;
        let pages = members.values().fold(0u64, |sum, member| sum.saturating_add(member.rss_pages));
        sink(&TREE_RSS, pages.saturating_mul(page_bytes()) as f64);
        let last = self.last.replace(Moment { at_ns, boot_ns });
        let value = self.ticks_used(&members, last.and_then(|last| last.boot_ns));
        self.members = members;
        let elapsed_ns = last.and_then(|last| at_ns.checked_sub(last.at_ns)).filter(|elapsed| *elapsed > 0);
        if let Some(elapsed_ns) = elapsed_ns {
            sink(&TREE_CPU, percent_of_one_core(Advance { value, elapsed_ns }));
        }
        Ok(())
    }

    /// Reads every process that may be ours and keeps those below `own`.
    fn find_members(&mut self, own: ProcessStat, buffer: &mut Buffer) -> Result<Processes, String> {
        let present = self.list()?;
        self.ticks += 1;
        let turn = self.ticks % OUTSIDERS_KEPT_TICKS;
        self.outsiders.retain(|pid| present.contains(pid) && pid % OUTSIDERS_KEPT_TICKS != turn);
        let mut asked: Vec<u64> =
            present.into_iter().filter(|pid| *pid != own.pid && !self.outsiders.contains(pid)).collect();
        // Parents before children: a child that is waited for between two reads is then missing, which
        // `owed` makes good, and never counted in both. New ones come last, the older first.
        asked.sort_by_cached_key(|pid| (self.depth(*pid).unwrap_or(usize::MAX), *pid));
        asked.truncate(READS_PER_TICK_MAX);
        let mut seen = Processes::new();
        for pid in asked {
            let path = self.proc.join(format!("{pid}/stat"));
            // It may have ended since the listing.
            let stat = PseudoFile::read_once(&path, buffer).ok().and_then(parse::process_stat);
            if let Some(stat) = stat {
                seen.insert(pid, stat);
            }
        }
        let (mut members, outsiders): (Processes, Processes) =
            seen.iter().partition(|(pid, _)| descends(**pid, own.pid, &seen));
        members.insert(own.pid, own);
        self.outsiders.extend(outsiders.keys());
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

    /// How many ancestors a member of the last tick had; `None` for a process that was none.
    fn depth(&self, pid: u64) -> Option<usize> {
        let mut stat = self.members.get(&pid)?;
        for depth in 0..self.members.len() {
            let Some(parent) = self.members.get(&stat.parent) else { return Some(depth) };
            stat = parent;
        }
        Some(self.members.len())
    }

    /// Kernel ticks the tree used since the last tick, when it was `self.members`.
    ///
    /// A member that ended and was waited for left its whole time in its parent's waited time, of which
    /// what it had at the last tick is taken off again. So the result is never negative and never holds
    /// time from before the last tick. What a parent does not show yet is taken off at the next tick,
    /// and then forgotten: a parent that ignores its children never shows it.
    fn ticks_used(&mut self, now: &Processes, last_boot_ns: Option<u64>) -> u64 {
        let old = std::mem::take(&mut self.owed);
        let mut fresh: HashMap<u64, u64> = HashMap::new();
        for ended in self.members.values().filter(|stat| !is_same(now.get(&stat.pid), stat)) {
            if let Some(heir) = surviving_ancestor(ended, &self.members, now) {
                let owed = fresh.entry(heir).or_default();
                *owed = owed.saturating_add(ended.own_ticks).saturating_add(ended.waited_ticks);
            }
        }
        let mut used = 0u64;
        for stat in now.values() {
            let ticks = match self.members.get(&stat.pid).filter(|earlier| is_same(Some(*earlier), stat)) {
                Some(earlier) => {
                    let waited = stat.waited_ticks.saturating_sub(earlier.waited_ticks);
                    let fresh = fresh.get(&stat.pid).copied().unwrap_or(0);
                    let known = fresh.saturating_add(old.get(&stat.pid).copied().unwrap_or(0));
                    let rest = known.saturating_sub(waited).min(fresh);
                    if rest > 0 {
                        self.owed.insert(stat.pid, rest);
                    }
                    stat.own_ticks.saturating_sub(earlier.own_ticks) + waited.saturating_sub(known)
                }
                None if born_since(stat, last_boot_ns) => stat.own_ticks.saturating_add(stat.waited_ticks),
                None => 0,
            };
            used = used.saturating_add(ticks);
        }
        used
    }
}

/// Whether `found` is the same process as `stat` and not another one with its ID.
fn is_same(found: Option<&ProcessStat>, stat: &ProcessStat) -> bool {
    found.is_some_and(|found| found.start_ticks == stat.start_ticks)
}

/// Whether `pid` has `ancestor` among its ancestors.
fn descends(pid: u64, ancestor: u64, seen: &Processes) -> bool {
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

/// Whether a process started after the last tick; one that cannot be placed counts from now on only.
fn born_since(stat: &ProcessStat, last_boot_ns: Option<u64>) -> bool {
    let tick_ns = 1_000_000_000 / u128::from(ticks_per_second());
    // A start is cut to whole kernel ticks, so one in the tick of the last sample counts as after it.
    last_boot_ns.is_some_and(|last| (u128::from(stat.start_ticks) + 1) * tick_ns >= u128::from(last))
}

/// The nearest ancestor of a member that ended which is still there.
fn surviving_ancestor(ended: &ProcessStat, before: &Processes, now: &Processes) -> Option<u64> {
    let mut parent = ended.parent;
    for _ in 0..=before.len() {
        let stat = before.get(&parent)?;
        if is_same(now.get(&stat.pid), stat) {
            return Some(stat.pid);
        }
        parent = stat.parent;
    }
    None
}
