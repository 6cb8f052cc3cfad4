//! The threads: which target is due, what its page comes to, what is told about it.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::{Labels, NANOS_PER_MILLI, stale_marker};

use crate::config::{Config, Job};
use crate::discovery::{Discovery, Files, discover};
use crate::fetch::{FetchError, Fetcher};
use crate::ledger::{Circumstances, Ledger, Taken, sample_at};
use crate::page::{PageParser, ScrapeBatch, ScrapedSample};
use crate::target::Target;

/// Takes what was scraped; called from the scraper's threads, one batch at a time per target. While
/// it blocks, its thread scrapes nothing.
pub type Sink = Box<dyn Fn(ScrapeBatch) + Send + Sync>;

/// Files with targets are looked at this often at the latest.
const FILES_PERIOD_MAX: Duration = Duration::from_secs(5);
/// A scrape this close to its planned time carries the planned time.
const TIME_TOLERANCE_MS: i64 = 2;
/// The first scrape of a new target comes within this time.
const FIRST_WITHIN_MS: i64 = 1_000;
/// Most dropped targets that are listed.
const DROPPED_MAX: usize = 1_000;
/// A page's memory beyond this is given back, bytes.
const PAGE_KEPT_BYTES: usize = 4 << 20;

/// The series that every scrape writes.
const REPORTS: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// How a scraper works.
#[derive(Clone)]
pub struct Options {
    /// How many threads scrape, at least 2.
    pub workers: usize,
    /// Lets link-local addresses and metadata services be scraped.
    pub allow_link_local: bool,
    /// The clock: nanoseconds since the epoch.
    pub now_ns: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Options {
    /// Four threads and the machine's clock.
    pub fn new() -> Self {
        let now_ns = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
        };
        Self { workers: 4, allow_link_local: false, now_ns: Arc::new(now_ns) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a configuration can't be put to work. What ran before runs on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A certificate or key that can't be used.
    #[error("job `{job}` can't be scraped: {why}")]
    Job {
        /// The job.
        job: String,
        /// What is wrong, with the file.
        why: String,
    },
    /// The system has no thread left.
    #[error("cannot start a scraping thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// How a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not asked yet.
    Unknown,
    /// Its last page was taken.
    Up,
    /// Its last page was not.
    Down,
}

impl Health {
    /// As Prometheus' API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A target and its last scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetStatus {
    /// The job's name.
    pub job: String,
    /// What is asked.
    pub url: String,
    /// What its series carry.
    pub labels: Labels,
    /// What was known before relabelling.
    pub discovered: Labels,
    /// How often it is asked.
    pub interval: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// How it stands.
    pub health: Health,
    /// Why it is down; empty when it is not.
    pub last_error: String,
    /// When it was asked last, milliseconds since the epoch.
    pub last_scrape_ms: Option<i64>,
    /// How long that took, seconds.
    pub last_duration_seconds: f64,
    /// Samples of the last page, before relabelling.
    pub samples: usize,
}

/// A target that relabelling dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedTarget {
    /// The job's name.
    pub job: String,
    /// What was known before relabelling.
    pub discovered: Labels,
}

/// All targets, for `/api/v1/targets`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Targets {
    /// Those that are scraped, by job and URL.
    pub active: Vec<TargetStatus>,
    /// Those that relabelling dropped, at most 1,000.
    pub dropped: Vec<DroppedTarget>,
    /// How many were dropped.
    pub dropped_count: usize,
    /// What in the configuration or its files could not be used, in words.
    pub problems: Vec<String>,
}

/// Scrapes until it is stopped.
pub struct Scraper {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

struct Shared {
    parser: Arc<PageParser>,
    sink: Sink,
    options: Options,
    state: Mutex<State>,
    /// Something is due earlier, or all is over.
    changed: Condvar,
    /// Held while targets are looked up and put in place, so that an old look never wins.
    files: Mutex<Files>,
}

/// A job and what asks its targets.
#[derive(Debug)]
struct Running {
    job: Job,
    fetcher: Fetcher,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    jobs: Vec<Arc<Running>>,
    entries: HashMap<u64, Entry>,
    /// What is due when. An item whose entry has another time is void.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Due targets that took all their time when last asked; they may hold half of the threads.
    slow_due: VecDeque<u64>,
    slow_running: usize,
    running: usize,
    /// When files are looked at again.
    look_again: Option<Instant>,
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
struct Errand {
    key: u64,
    target: Arc<Target>,
    running: Arc<Running>,
    ledger: Ledger,
    planned_ms: i64,
    is_slow: bool,
    reports: Arc<[Arc<Labels>; 5]>,
}

/// What a thread does next.
enum Next {
    Scrape(Box<Errand>),
    LookUp,
    Stop,
}

/// How a scrape went.
struct Verdict {
    time_ms: i64,
    seconds: f64,
    scraped: usize,
    error: Option<FetchError>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(config: Config, options: &Options) -> Result<Vec<Arc<Running>>, StartError> {
    let running = |job: Job| {
        let fetcher = Fetcher::new(&job.access, job.limits.body_bytes, options.allow_link_local)
            .map_err(|why| StartError::Job { job: job.name.clone(), why })?;
        Ok(Arc::new(Running { job, fetcher }))
    };
    config.jobs.into_iter().map(running).collect()
}

impl Scraper {
    /// Starts the threads; the first pages come within a second.
    pub fn start(
        config: Config,
        parser: Arc<PageParser>,
        sink: Sink,
        options: Options,
    ) -> Result<Self, StartError> {
        let jobs = run(config, &options)?;
        let workers = options.workers.max(2);
        let shared = Arc::new(Shared {
            parser,
            sink,
            options,
            state: Mutex::new(State { jobs, ..State::default() }),
            changed: Condvar::new(),
            files: Mutex::default(),
        });
        shared.look_up();
        let mut scraper = Self { shared, threads: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&scraper.shared);
            let thread = std::thread::Builder::new().name(format!("tg-scrape-{number}"));
            scraper.threads.push(thread.spawn(move || shared.work()).map_err(StartError::Thread)?);
        }
        Ok(scraper)
    }

    /// Takes another configuration. Targets that stay keep their rhythm, series of those that go are
    /// ended. On an error nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), StartError> {
        let jobs = run(config, &self.shared.options)?;
        locked(&self.shared.state).jobs = jobs;
        self.shared.look_up();
        Ok(())
    }

    /// All targets now.
    pub fn targets(&self) -> Targets {
        let state = locked(&self.shared.state);
        let mut active: Vec<TargetStatus> =
            state.entries.values().filter(|entry| !entry.is_gone).map(|entry| entry.status.clone()).collect();
        active.sort_by(|a, b| (&a.job, &a.url, &a.labels).cmp(&(&b.job, &b.url, &b.labels)));
        Targets {
            active,
            dropped: state.dropped.clone(),
            dropped_count: state.dropped_count,
            problems: state.problems.clone(),
        }
    }

    /// Ends the threads, waiting for scrapes under way at most `grace`; what is under way after that
    /// is dropped. No series is marked as ended: the next start goes on with them.
    pub fn stop(mut self, grace: Duration) {
        self.shared.stop(grace);
        for thread in self.threads.drain(..) {
            if thread.is_finished() || locked(&self.shared.state).running == 0 {
                // A thread that panicked has said so already.
                _ = thread.join();
            }
        }
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.shared.stop(Duration::ZERO);
    }
}

impl Shared {
    fn now_ms(&self) -> i64 {
        (self.options.now_ns)().div_euclid(NANOS_PER_MILLI)
    }

    fn stop(&self, grace: Duration) {
        let mut state = locked(&self.state);
        state.is_stopping = true;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, grace, |state| state.running > 0);
        drop(waited);
    }

    fn work(&self) {
        let mut page = Vec::new();
        loop {
            match self.next() {
                Next::Stop => return,
                Next::LookUp => self.look_up(),
                Next::Scrape(errand) => self.scrape(*errand, &mut page),
            }
            if page.capacity() > PAGE_KEPT_BYTES {
                page = Vec::new();
            }
        }
    }

    /// Waits for something to do.
    fn next(&self) -> Next {
        let mut state = locked(&self.state);
        loop {
            if state.is_stopping {
                return Next::Stop;
            }
            let now = Instant::now();
            if state.look_again.is_some_and(|at| at <= now) {
                state.look_again = None;
                return Next::LookUp;
            }
            if let Some(errand) = state.take_due(now, self.options.workers.max(2) / 2) {
                return Next::Scrape(Box::new(errand));
            }
            let first = state.due.peek().map(|Reverse((at, _))| *at);
            let until = [first, state.look_again].into_iter().flatten().min();
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let wait = at.saturating_duration_since(now);
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Looks up all targets and puts them in place.
    fn look_up(&self) {
        let mut files = locked(&self.files);
        let jobs = locked(&self.state).jobs.clone();
        let discovery = discover(jobs.iter().map(|running| &running.job), &mut files);
        let ended = locked(&self.state).put(&jobs, discovery, self.now_ms());
        self.changed.notify_all();
        for (target, mut ledger, reports) in ended {
            self.end(&target, &mut ledger, &reports);
        }
    }

    /// Ends all series of a target that is gone, its own reports included.
    fn end(&self, target: &Target, ledger: &mut Ledger, reports: &[Arc<Labels>; 5]) {
        let time_ms = self.now_ms();
        let mut samples = ledger.end(time_ms, true);
        samples.extend(reports.iter().map(|labels| ScrapedSample {
            labels: Arc::clone(labels),
            sample: sample_at(time_ms, stale_marker()),
        }));
        (self.sink)(ScrapeBatch {
            job: target.job.clone(),
            target: target.labels.clone(),
            time_ms,
            samples,
            exemplars: Vec::new(),
            metadata: Vec::new(),
        });
    }

    fn scrape(&self, mut errand: Errand, page: &mut Vec<u8>) {
        let started = Instant::now();
        let now_ms = self.now_ms();
        let is_on_time = (now_ms - errand.planned_ms).abs() <= TIME_TOLERANCE_MS;
        let time_ms = if is_on_time { errand.planned_ms } else { now_ms };
        let (target, running) = (&errand.target, &errand.running);
        let fetched = running.fetcher.fetch(&target.url, target.timeout, page);
        let seconds = started.elapsed().as_secs_f64();
        let mut taken = Taken::default();
        let error = match fetched {
            Err(error) => {
                taken.samples = errand.ledger.end(time_ms, false);
                Some(error)
            }
            Ok(format) => {
                let with = Circumstances {
                    job: &running.job,
                    target: &target.labels,
                    time_ms,
                    parser: &*self.parser,
                };
                errand.ledger.take(format, page, &with, &mut taken).err().map(|why| {
                    taken.samples = errand.ledger.end(time_ms, true);
                    taken.exemplars = Vec::new();
                    FetchError { why, is_slow: false }
                })
            }
        };
        let numbers = [
            f64::from(u8::from(error.is_none())),
            seconds,
            taken.scraped as f64,
            taken.kept as f64,
            taken.added as f64,
        ];
        let reports = errand.reports.iter().zip(numbers);
        taken.samples.extend(reports.map(|(labels, value)| ScrapedSample {
            labels: Arc::clone(labels),
            sample: sample_at(time_ms, value),
        }));
        if !locked(&self.state).is_over(errand.key) {
            (self.sink)(ScrapeBatch {
                job: target.job.clone(),
                target: target.labels.clone(),
                time_ms,
                samples: taken.samples,
                exemplars: taken.exemplars,
                metadata: taken.metadata,
            });
        }
        self.hand_back(errand, Verdict { time_ms, seconds, scraped: taken.scraped, error });
    }

    fn hand_back(&self, errand: Errand, verdict: Verdict) {
        let ended = locked(&self.state).hand_back(errand, verdict, self.now_ms());
        self.changed.notify_all();
        if let Some((target, mut ledger, reports)) = ended {
            self.end(&target, &mut ledger, &reports);
        }
    }
}

/// A target that is gone, with what has to be ended.
type Ended = (Arc<Target>, Ledger, Arc<[Arc<Labels>; 5]>);

impl State {
    /// The next target to be asked, if one is due and may have a thread.
    fn take_due(&mut self, now: Instant, slow_max: usize) -> Option<Errand> {
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
    fn is_over(&self, key: u64) -> bool {
        self.is_stopping || self.entries.get(&key).is_none_or(|entry| entry.is_gone)
    }

    /// Takes back what a thread had and plans the next scrape; a target that is gone is returned.
    fn hand_back(&mut self, errand: Errand, verdict: Verdict, now_ms: i64) -> Option<Ended> {
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
    fn put(&mut self, jobs: &[Arc<Running>], discovery: Discovery, now_ms: i64) -> Vec<Ended> {
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
