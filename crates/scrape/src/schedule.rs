//! Which target is due, who has it, and when it is due again. No clock and no thread of its own.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Labels;

use crate::config::Job;
use crate::discovery::Discovery;
use crate::fetch::{FetchError, Fetcher};
use crate::ledger::Ledger;
use crate::status::{DroppedTarget, Health, TargetStatus, Targets};
use crate::target::Target;

/// Files with targets are looked at this often at the latest.
const FILES_PERIOD_MAX: Duration = Duration::from_secs(5);
/// The first scrape of a new target comes within this time.
const FIRST_WITHIN_MS: i64 = 1_000;
/// Most dropped targets that are listed.
const DROPPED_MAX: usize = 1_000;

/// The series that every scrape writes.
const REPORTS: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// A job and what asks its targets.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) job: Job,
    pub(crate) fetcher: Fetcher,
}

/// All targets and what is due.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) is_stopping: bool,
    pub(crate) jobs: Vec<Arc<Running>>,
    entries: HashMap<u64, Entry>,
    /// What is due when. An item whose entry has another time is void.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Due targets that took all their time when last asked; they may hold half of the threads.
    slow_due: VecDeque<u64>,
    slow_running: usize,
    pub(crate) running: usize,
    /// When files are looked at again.
    pub(crate) look_again: Option<Instant>,
    dropped: Vec<DroppedTarget>,
    dropped_count: usize,
    problems: Vec<String>,
}

struct Entry {
    target: Arc<Target>,
    running: Arc<Running>,
    /// None while a thread has it.
    ledger: Option<Ledger>,
    /// The job's rules have changed meanwhile.
    is_reset: bool,
    is_gone: bool,
    is_slow: bool,
    next: Instant,
    planned_ms: i64,
    reports: Arc<[Arc<Labels>; 5]>,
    status: TargetStatus,
}

/// A scrape that a thread has taken on.
pub(crate) struct Errand {
    pub(crate) key: u64,
    pub(crate) target: Arc<Target>,
    pub(crate) running: Arc<Running>,
    pub(crate) ledger: Ledger,
    pub(crate) planned_ms: i64,
    pub(crate) is_slow: bool,
    pub(crate) reports: Arc<[Arc<Labels>; 5]>,
}

/// How a scrape went.
pub(crate) struct Verdict {
    pub(crate) time_ms: i64,
    pub(crate) seconds: f64,
    pub(crate) scraped: usize,
    pub(crate) error: Option<FetchError>,
}

/// A target that is gone, with what has to be ended.
pub(crate) type Ended = (Arc<Target>, Ledger, Arc<[Arc<Labels>; 5]>);

impl State {
    /// No targets yet.
    pub(crate) fn new(jobs: Vec<Arc<Running>>) -> Self {
        Self { jobs, ..Self::default() }
    }

    /// How all targets stand.
    pub(crate) fn targets(&self) -> Targets {
        let mut active: Vec<TargetStatus> =
            self.entries.values().filter(|entry| !entry.is_gone).map(|entry| entry.status.clone()).collect();
        active.sort_by(|a, b| (&a.job, &a.url, &a.labels).cmp(&(&b.job, &b.url, &b.labels)));
        Targets {
            active,
            dropped: self.dropped.clone(),
            dropped_count: self.dropped_count,
            problems: self.problems.clone(),
        }
    }

    /// When something is due or files are looked at again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let first = self.due.peek().map(|Reverse((at, _))| *at);
        [first, self.look_again].into_iter().flatten().min()
    }

    /// The next target to be asked, if one is due and may have a thread.
    pub(crate) fn take_due(&mut self, now: Instant, slow_max: usize) -> Option<Errand> {
        while let Some(Reverse((at, key))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            let Some(entry) = self.entries.get(&key).filter(|e| e.next == at && e.ledger.is_some()) else {
                continue;
            };
            if !entry.is_slow {
                return self.take(key);
            }
            self.slow_due.push_back(key);
        }
        while self.slow_running < slow_max {
            let key = self.slow_due.pop_front()?;
            if let Some(errand) = self.take(key) {
                return Some(errand);
            }
        }
        None
    }

    fn take(&mut self, key: u64) -> Option<Errand> {
        let entry = self.entries.get_mut(&key)?;
        let ledger = entry.ledger.take()?;
        self.running += 1;
        self.slow_running += usize::from(entry.is_slow);
        Some(Errand {
            key,
            target: Arc::clone(&entry.target),
            running: Arc::clone(&entry.running),
            ledger,
            planned_ms: entry.planned_ms,
            is_slow: entry.is_slow,
            reports: Arc::clone(&entry.reports),
        })
    }

    /// Whether what was scraped for `key` is not wanted any more.
    pub(crate) fn is_over(&self, key: u64) -> bool {
        self.is_stopping || self.entries.get(&key).is_none_or(|entry| entry.is_gone)
    }

    /// Takes back what a thread had and plans the next scrape; a target that is gone is returned.
    pub(crate) fn hand_back(&mut self, errand: Errand, verdict: Verdict, now_ms: i64) -> Option<Ended> {
        self.running -= 1;
        self.slow_running -= usize::from(errand.is_slow);
        let entry = self.entries.get_mut(&errand.key)?;
        let mut ledger = errand.ledger;
        if entry.is_gone {
            let reports = Arc::clone(&entry.reports);
            self.entries.remove(&errand.key);
            return (!self.is_stopping).then_some((errand.target, ledger, reports));
        }
        if std::mem::take(&mut entry.is_reset) {
            ledger.reset();
        }
        entry.ledger = Some(ledger);
        entry.is_slow = verdict.error.as_ref().is_some_and(|error| error.is_slow);
        entry.status.health = if verdict.error.is_none() { Health::Up } else { Health::Down };
        entry.status.last_error = verdict.error.map(|error| error.why).unwrap_or_default();
        entry.status.last_scrape_ms = Some(verdict.time_ms);
        entry.status.last_duration_seconds = verdict.seconds;
        entry.status.samples = verdict.scraped;
        let interval_ms = entry.target.interval.as_millis() as i64;
        let earliest = now_ms.max(verdict.time_ms + interval_ms / 2);
        entry.plan(next_phase(earliest, interval_ms, errand.key), now_ms);
        self.due.push(Reverse((entry.next, errand.key)));
        None
    }

    /// Puts the targets found in place; those that are gone and idle are returned.
    pub(crate) fn put(&mut self, jobs: &[Arc<Running>], discovery: Discovery, now_ms: i64) -> Vec<Ended> {
        let mut wanted = HashSet::new();
        for (at, target) in discovery.targets {
            let key = target.key();
            if wanted.insert(key) {
                self.put_one(key, target, &jobs[at], now_ms);
            }
        }
        let gone: Vec<u64> = self.entries.keys().filter(|key| !wanted.contains(key)).copied().collect();
        let mut ended = Vec::new();
        for key in gone {
            let MapEntry::Occupied(mut place) = self.entries.entry(key) else { continue };
            if let Some(ledger) = place.get_mut().ledger.take() {
                let entry = place.remove();
                ended.push((entry.target, ledger, entry.reports));
            } else {
                place.get_mut().is_gone = true;
            }
        }
        self.dropped_count = discovery.dropped.len();
        let name = |at: usize| jobs.get(at).map(|running| running.job.name.clone()).unwrap_or_default();
        self.dropped = discovery
            .dropped
            .into_iter()
            .take(DROPPED_MAX)
            .map(|(at, discovered)| DroppedTarget { job: name(at), discovered })
            .collect();
        self.problems = discovery.problems;
        let periods = jobs.iter().flat_map(|running| &running.job.files).map(|files| files.refresh);
        self.look_again = periods.min().map(|period| Instant::now() + period.min(FILES_PERIOD_MAX));
        ended
    }

    fn put_one(&mut self, key: u64, target: Target, running: &Arc<Running>, now_ms: i64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let (old, new) = (&entry.running.job, &running.job);
            let is_same =
                (old.honor, &old.metric_relabel, old.limits) == (new.honor, &new.metric_relabel, new.limits);
            match &mut entry.ledger {
                _ if is_same => {}
                Some(ledger) => ledger.reset(),
                None => entry.is_reset = true,
            }
            entry.is_gone = false;
            entry.running = Arc::clone(running);
            entry.status.timeout = target.timeout;
            entry.status.discovered.clone_from(&target.discovered);
            entry.target = Arc::new(target);
            return;
        }
        let report = |name: &str| {
            let own = target.labels.iter().chain([("__name__", name)]);
            Arc::new(Labels::from_pairs(own))
        };
        let interval_ms = target.interval.as_millis() as i64;
        let mut entry = Entry {
            reports: Arc::new(REPORTS.map(report)),
            status: TargetStatus {
                job: target.job.clone(),
                url: target.url.clone(),
                labels: target.labels.clone(),
                discovered: target.discovered.clone(),
                interval: target.interval,
                timeout: target.timeout,
                health: Health::Unknown,
                last_error: String::new(),
                last_scrape_ms: None,
                last_duration_seconds: 0.0,
                samples: 0,
            },
            target: Arc::new(target),
            running: Arc::clone(running),
            ledger: Some(Ledger::default()),
            is_reset: false,
            is_gone: false,
            is_slow: false,
            next: Instant::now(),
            planned_ms: now_ms,
        };
        let first = (key % interval_ms.clamp(1, FIRST_WITHIN_MS).unsigned_abs()) as i64;
        entry.plan(now_ms + first, now_ms);
        self.due.push(Reverse((entry.next, key)));
        self.entries.insert(key, entry);
    }
}

impl Entry {
    fn plan(&mut self, at_ms: i64, now_ms: i64) {
        self.planned_ms = at_ms;
        let wait = Duration::from_millis((at_ms - now_ms).max(0).unsigned_abs());
        // A clock that was set back must not stop a target.
        self.next = Instant::now() + wait.min(self.target.interval * 2);
    }
}

/// The first time after `after_ms` that is a target's own place in the interval: targets are spread by
/// a hash, and come at the same place after a restart.
fn next_phase(after_ms: i64, interval_ms: i64, key: u64) -> i64 {
    let interval_ms = interval_ms.max(1);
    let phase = (key % interval_ms.unsigned_abs()) as i64;
    let behind = (after_ms - phase).rem_euclid(interval_ms);
    after_ms - behind + interval_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_keep_their_place_in_the_interval() {
        let check = |after: i64, key: u64, want: i64| assert_eq!(next_phase(after, 1000, key), want);
        check(5_000, 0, 6_000);
        check(5_001, 0, 6_000);
        check(5_999, 0, 6_000);
        check(5_000, 250, 5_250);
        check(5_250, 250, 6_250);
        check(-1, 250, 250);
        check(0, 7_250, 250);
    }
}
