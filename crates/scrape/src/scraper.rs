//! The threads: they fetch what is due, see what its page comes to and tell the sink.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::{Labels, NANOS_PER_MILLI, stale_marker};

use crate::config::{Config, Job};
use crate::discovery::{Files, discover};
use crate::fetch::{FetchError, Fetcher};
use crate::ledger::{Circumstances, Ledger, Taken, sample_at};
use crate::page::{PageParser, ScrapeBatch, ScrapedSample};
use crate::schedule::{Errand, Running, State, Verdict};
use crate::status::Targets;
use crate::target::Target;

/// Takes what was scraped; called from the scraper's threads, one batch at a time per target. While
/// it blocks, its thread scrapes nothing.
pub type Sink = Box<dyn Fn(ScrapeBatch) + Send + Sync>;

/// A scrape this close to its planned time carries the planned time.
const TIME_TOLERANCE_MS: i64 = 2;
/// A page's memory beyond this is given back, bytes.
const PAGE_KEPT_BYTES: usize = 4 << 20;

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

/// What a thread does next.
enum Next {
    Scrape(Box<Errand>),
    LookUp,
    Stop,
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
            state: Mutex::new(State::new(jobs)),
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
        locked(&self.shared.state).targets()
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
            state = match state.next_due() {
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
            error: None,
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
                error: error.as_ref().map(|error| error.why.clone()),
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
