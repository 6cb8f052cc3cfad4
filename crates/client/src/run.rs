//! The face of a run.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use model::{AttributeValue, CaptureReport, NameError, RunId, RunPath, SessionEnd, TagChange, WriterId};

use crate::batch::Author;
use crate::clock::{When, compact_utc, now_ns};
use crate::config::{Config, DEFAULT_URL, default_spool_dir};
use crate::counters::Counters;
use crate::delivery;
use crate::header::{SpoolHeader, spool_path};
use crate::log::{Log, Steps};
use crate::outbox::{Link, Outbox, SpoolPlan};
use crate::ownership::Frameworks;
use crate::probe::{Probe, probe};
use crate::sampler::Sampler;
use crate::series::SeriesHandle;
use crate::shared::{Shared, lock, next_number};
use crate::transport::{Away, Transport, UrlError, shown_url};
use crate::wait::{CloseOutcome, FlushOutcome};
use crate::warning::emit;

/// Longest text of an attribute, and description, bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest attribute key and tag, bytes.
const KEY_BYTES_MAX: usize = 256;
/// Longest part of a run's path, bytes.
const PATH_BYTES_MAX: usize = 256;

/// A run, from this process. Cheap to clone; usable from any thread.
///
/// Nothing here but [`Run::start`], [`Run::flush`] and [`Run::close`] waits for anything. When the
/// last clone goes without a close, the run is closed as finished, or as failed during a panic.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    config: Arc<Config>,
    path: RunPath,
    run_id: RunId,
    /// Behind a fork the node's series stay with the parent.
    is_child: bool,
    /// The process that made it: another one must not touch what is inside.
    pid: u32,
    /// Empty until first used behind a fork; `None` when the run is disabled.
    live: OnceLock<Option<Arc<Shared>>>,
}

/// Why a run could not start. Nothing that the network or the disk does is among them.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The URL can't be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A part of the run's path can't be used.
    #[error(
        "the {part} {found:?} can't be part of a run's path: it is printable text of at most {PATH_BYTES_MAX} bytes"
    )]
    Path {
        /// Which part.
        part: &'static str,
        /// What it was, cut.
        found: String,
    },
    /// The run is there, of another job, and resuming was ruled out.
    #[error("the run {run_id} exists already and belongs to another job (token {job_token:?})")]
    RunExists {
        /// The run.
        run_id: RunId,
        /// The token of its latest attempt.
        job_token: String,
    },
    /// The system gave no thread.
    #[error("could not start the delivery thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The system gave no random bytes.
    #[error("could not draw a writer's id: {0}")]
    Random(getrandom::Error),
}

impl StartError {
    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::RunExists { .. } => {
                Some("choose another run name, or allow resuming with `resume_strategy=\"allow\"`")
            }
            _ => None,
        }
    }
}

impl Run {
    /// Opens a session of the run and starts its threads. Waits for the server for half a second on
    /// this machine and a second elsewhere at most; without it the run goes to the spool.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let mut config = config;
        if let Some(token) = &config.job_token {
            config.launch.job_token.clone_from(token);
            config.launch.run_name.clone_from(token);
        }
        for warning in std::mem::take(&mut config.warnings) {
            emit(warning);
        }
        let path = complete(&config)?;
        let run_id = path.id();
        let config = Arc::new(config);
        let pid = std::process::id();
        let inner = Inner { config, path, run_id, is_child: false, pid, live: OnceLock::new() };
        let live = if inner.config.disabled { None } else { Some(inner.open()?) };
        drop(inner.live.set(live));
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The run for a process that was forked from this one: fresh state, a session and writer of its
    /// own, made at the first use. Nothing inherited is locked, dropped or joined; handles of the
    /// parent's series are not known to it, and the node's series stay with the parent.
    #[must_use]
    pub fn forget_after_fork(&self) -> Self {
        // One more owner that never goes: what the parent's threads held is never dropped here.
        std::mem::forget(Arc::clone(&self.inner));
        let inner = Inner {
            config: Arc::clone(&self.inner.config),
            path: self.inner.path.clone(),
            run_id: self.inner.run_id,
            is_child: true,
            pid: std::process::id(),
            live: OnceLock::new(),
        };
        if inner.config.disabled {
            drop(inner.live.set(None));
        }
        Self { inner: Arc::new(inner) }
    }

    fn live(&self) -> Option<&Shared> {
        self.shared().map(|shared| &**shared)
    }

    /// The live state; `None` when the run is disabled.
    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        self.inner.live()
    }

    /// The handle of a series; the same names give the same handle. An empty `scale` is `ML_STEP`.
    /// The label `rank` is added when the job has several ranks and `labels` has none.
    pub fn series(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        scale: &str,
    ) -> Result<SeriesHandle, NameError> {
        match self.live() {
            Some(shared) => shared.series(name, labels, scale),
            None => Ok(SeriesHandle { index: 0, run: 0 }),
        }
    }

    /// Logs a point. Never fails, never waits for disk or network unless the queue is full.
    ///
    /// Without `step` it takes that of [`Run::begin_step`], else the series' last + 1, from 0.
    /// Without a time (nanoseconds since the epoch) it is stamped on the millisecond; points of a
    /// series with equal times are spread by a nanosecond. NaN and infinities are values.
    pub fn log(&self, handle: SeriesHandle, value: f64, step: Option<i64>, when: impl Into<When>) {
        if let Some(shared) = self.live() {
            shared.log(handle, value, step, when.into());
        }
    }

    /// Logs one point of each of several series with one time and one step, as [`Run::log`] does.
    pub fn log_all(&self, points: &[(SeriesHandle, f64)], step: Option<i64>, when: impl Into<When>) {
        if let Some(shared) = self.live() {
            shared.log_all(points, step, when.into());
        }
    }

    /// Logs an array of points with one time.
    pub fn log_many(&self, handle: SeriesHandle, values: &[f64], steps: Steps<'_>, when: impl Into<When>) {
        if let Some(shared) = self.live() {
            shared.log_many(handle, values, steps, when.into());
        }
    }

    /// Counts `count` points that were refused before they came here, and warns once a reason.
    pub fn refuse(&self, reason: &'static str, count: u64, example: &str) {
        if let Some(shared) = self.live() {
            shared.refuse(reason, count, example);
        }
    }

    /// Sets a fact of the run under a path-like key such as `config/lr`. A key over 256 bytes or a
    /// text over 1 MiB is refused and counted.
    pub fn set_attribute(&self, key: &str, value: AttributeValue) {
        self.attribute(key, value, false);
    }

    /// Sets a fact of the run unless it is there.
    pub fn set_attribute_if_absent(&self, key: &str, value: AttributeValue) {
        self.attribute(key, value, true);
    }

    fn attribute(&self, key: &str, value: AttributeValue, if_absent: bool) {
        let Some(shared) = self.live() else { return };
        let text = if let AttributeValue::Text(text) = &value { text.as_str() } else { "" };
        if shared.fits("attribute_too_long", "attribute key", key, KEY_BYTES_MAX)
            && shared.fits("attribute_too_long", key, text, TEXT_BYTES_MAX)
        {
            shared.say(|pending| pending.attributes.push((key.to_owned(), value, if_absent)));
        }
    }

    /// Adds and removes tags, in order; one over 256 bytes is refused and counted.
    pub fn change_tags(&self, changes: &[TagChange]) {
        let Some(shared) = self.live() else { return };
        for change in changes {
            let (TagChange::Add(tag) | TagChange::Remove(tag)) = change else {
                shared.say(|pending| pending.tags.push(change.clone()));
                continue;
            };
            if shared.fits("tag_too_long", "tag", tag, KEY_BYTES_MAX) {
                shared.say(|pending| pending.tags.push(change.clone()));
            }
        }
    }

    /// Sets the description; one over 1 MiB is refused and counted.
    pub fn set_description(&self, description: &str) {
        if let Some(shared) = self.live()
            && shared.fits("description_too_long", "description", description, TEXT_BYTES_MAX)
        {
            shared.say(|pending| pending.description = Some(description.to_owned()));
        }
    }

    /// The last step of a series: this process's, else what the server knew at the start.
    pub fn last_step(&self, name: &str, labels: &[(&str, &str)], scale: &str) -> Option<i64> {
        self.live().and_then(|shared| shared.last_step(name, labels, scale))
    }

    /// Notes that this process entered the collective operation `number` of a group of ranks, or that it completed
    /// it. The delivery thread tells the last of each once a second, also while this process hangs.
    pub fn collective(&self, group: &str, number: i64, is_completed: bool) {
        if let Some(shared) = self.live() {
            shared.collective(group, number, is_completed);
        }
    }

    /// From here on, points without a step take this one, in every thread of this process.
    pub fn begin_step(&self, step: i64) {
        if let Some(shared) = self.live() {
            lock(&shared.log).begin_step(step);
        }
    }

    /// Ends what [`Run::begin_step`] began.
    pub fn end_step(&self) {
        if let Some(shared) = self.live() {
            lock(&shared.log).end_step();
        }
    }

    /// Waits until everything logged so far is durable, and says where. A server that is away or has
    /// stopped acknowledging is not waited for: the spool takes what is left. `poll` is asked every
    /// 50 ms whether to give up waiting, which also leaves the rest to the spool.
    pub fn flush(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> FlushOutcome {
        self.live().map_or(FlushOutcome::Server, |shared| shared.flush(timeout, poll))
    }

    /// Ends this process's session, after everything logged was flushed. Waits up to `timeout` while
    /// the server acknowledges; a server that is away does not delay it. Every later call is a no-op.
    pub fn close(
        &self,
        end: SessionEnd,
        reason: &str,
        timeout: Duration,
        poll: &mut dyn FnMut() -> bool,
    ) -> CloseOutcome {
        // A forked child that never used the run has nothing to end.
        match self.inner.live.get() {
            Some(Some(shared)) => shared.close(end, reason, timeout, poll),
            _ => CloseOutcome::default(),
        }
    }

    /// Closes the run as finished within the configured bound, and warns of what is left.
    pub fn finish(&self) -> CloseOutcome {
        let outcome = self.close(SessionEnd::Finished, "", self.inner.config.close_timeout, &mut || false);
        self.inner.say_what_is_left(&outcome);
        outcome
    }

    /// The run's four names.
    pub fn path(&self) -> &RunPath {
        &self.inner.path
    }

    /// The run's id.
    pub fn run_id(&self) -> RunId {
        self.inner.run_id
    }

    /// The settings it started with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The run's page; `None` while no server was named or found.
    pub fn url(&self) -> Option<String> {
        let shared = self.live()?;
        let base = shared.transport.as_ref()?.shown();
        let is_known = shared.config.url.is_some() || lock(&shared.outbox).link.is_up();
        is_known.then(|| format!("{base}/r/{}", self.inner.run_id))
    }

    /// The spool's folder, if there is something in it or was.
    pub fn spool_dir(&self) -> Option<PathBuf> {
        let shared = self.live()?;
        lock(&shared.outbox).spool.as_ref().map(|spool| spool.dir().to_owned())
    }

    /// What autocapture of this process found, and what it does; `None` before its first sample, and
    /// in a forked child.
    pub fn capture(&self) -> Option<CaptureReport> {
        self.live().and_then(|shared| shared.capture.report())
    }

    /// Hands over what frameworks of this process say of their devices. They are asked where they run,
    /// since they come up later than the run and asking them from another thread is not safe; devices
    /// that turn out to be this process's own are reported from the next sample on.
    pub fn set_frameworks(&self, frameworks: Frameworks) {
        if let Some(shared) = self.live() {
            shared.capture.set_frameworks(frameworks);
        }
    }

    /// What became of the points so far.
    pub fn counters(&self) -> Counters {
        self.live().map(Shared::counters).unwrap_or_default()
    }
}

impl Inner {
    fn live(&self) -> Option<&Arc<Shared>> {
        self.live.get_or_init(|| self.open().ok()).as_ref()
    }

    /// Asks the server, then makes the live state and its threads.
    fn open(&self) -> Result<Arc<Shared>, StartError> {
        let config = &self.config;
        let transport = if config.offline {
            None
        } else {
            let url = config.url.as_deref().unwrap_or(DEFAULT_URL);
            Some(Transport::new(url, config.token.as_deref(), &config.trust)?)
        };
        let token = &config.launch.job_token;
        let answer = match &transport {
            Some(transport) if self.is_child => {
                let allow = Config { resume: crate::ResumeStrategy::Allow, ..Config::clone(config) };
                probe(transport, self.run_id, &allow, token)?
            }
            Some(transport) => probe(transport, self.run_id, config, token)?,
            None => Probe::default(),
        };
        let (link, is_known) = match (&transport, answer.away) {
            (None, _) => (Link::Offline, false),
            (_, None) => (Link::Up, true),
            (_, Some(away)) => (first_failure(away, config.url.is_some()), false),
        };
        let shared = Arc::new(self.shared(transport, link, answer.last_steps)?);
        introduce(&shared, is_known && answer.exists, self.is_child);
        let mut outbox = lock(&shared.outbox);
        delivery::say_where(&shared, &mut outbox);
        shared.release(outbox);
        delivery::start(&shared).map_err(StartError::Thread)?;
        *lock(&shared.sampler) = Sampler::start(&shared, self.is_child);
        Ok(shared)
    }

    fn shared(
        &self,
        transport: Option<Transport>,
        link: Link,
        last_steps: crate::probe::LastSteps,
    ) -> Result<Shared, StartError> {
        let config = &self.config;
        let mut writer: WriterId = [0; 16];
        getrandom::fill(&mut writer).map_err(StartError::Random)?;
        let facts = model::SessionFacts {
            host: config.host(),
            pid: std::process::id(),
            rank: config.launch.rank,
            world_size: config.launch.world_size,
            job_token: config.launch.job_token.clone(),
            restart_count: config.launch.restart_count,
            client_version: env!("CARGO_PKG_VERSION").into(),
            ..model::SessionFacts::default()
        };
        let header = SpoolHeader {
            target: config.url.as_deref().map(shown_url),
            path: self.path.clone(),
            host: facts.host.clone(),
            pid: facts.pid,
            created_ms: now_ns() / model::NANOS_PER_MILLI,
        };
        let folder = config.spool_dir.clone().unwrap_or_else(default_spool_dir);
        let plan = SpoolPlan {
            dir: spool_path(&folder, self.run_id, &writer),
            header: header.to_bytes(),
            options: spool::Options { bytes_max: config.spool_bytes_max, ..spool::Options::default() },
        };
        let is_named = config.url.is_some();
        let author = Author { writer, path: self.path.clone(), next_sequence: 1 };
        let capacity = config.queue_capacity.max(1);
        let buffer = || Vec::with_capacity(capacity + 64);
        let mut outbox = Outbox::new(author, plan, link, buffer());
        outbox.is_known |= is_named;
        Ok(Shared {
            number: next_number(),
            config: Arc::clone(config),
            run_id: self.run_id,
            path: self.path.clone(),
            facts,
            capacity,
            transport,
            last_steps,
            log: Log { points: buffer(), ..Log::default() }.into(),
            catalog: std::sync::Mutex::default(),
            outbox: outbox.into(),
            wake: std::sync::Condvar::new(),
            settled: std::sync::Condvar::new(),
            sampler: std::sync::Mutex::new(None),
            capture: crate::capture::Capture::default(),
            progress: std::sync::Mutex::default(),
            warned: crate::warning::Warned::default(),
        })
    }

    fn say_what_is_left(&self, outcome: &CloseOutcome) {
        if let (Some(hint), Some(Some(shared))) = (&outcome.hint, self.live.get()) {
            shared.warn("undelivered", hint.clone());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // Behind a fork nothing inherited may be locked or joined.
            std::mem::forget(self.live.take());
            return;
        }
        if let Some(Some(shared)) = self.live.get() {
            let end = if std::thread::panicking() { SessionEnd::Failed } else { SessionEnd::Finished };
            let outcome = shared.close(end, "", self.config.close_timeout, &mut || false);
            self.say_what_is_left(&outcome);
        }
    }
}

/// The link behind a start that found no server.
fn first_failure(away: Away, is_named: bool) -> Link {
    Link::Up.failed(away, is_named, Instant::now())
}

/// The run's names, derived where they are empty, and checked.
fn complete(config: &Config) -> Result<RunPath, StartError> {
    let mut path = config.path.clone();
    if path.project.is_empty() {
        path.project = "default".into();
    }
    if path.run.is_empty() {
        path.run.clone_from(&config.launch.run_name);
    }
    if path.run.is_empty() {
        path.run = format!("run-{}", compact_utc(now_ns()));
        if config.launch.is_distributed() {
            emit(crate::Warning {
                cause: "run_name",
                message: format!(
                    "the run has no name and the launcher gives no job id, so each rank may make a run of its \
                     own ({}): set `run_name`",
                    path.run
                ),
            });
        }
    }
    let parts = [
        ("organization", &path.organization),
        ("workspace", &path.workspace),
        ("project", &path.project),
        ("run name", &path.run),
    ];
    for (part, text) in parts {
        if text.len() > PATH_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(StartError::Path { part, found: text.chars().take(80).collect() });
        }
    }
    Ok(path)
}

/// Says with the first request who writes and what is known of the run.
fn introduce(shared: &Shared, exists: bool, is_child: bool) {
    let config = &shared.config;
    let open = shared.session_event(true, None, "");
    shared.say(|pending| {
        pending.sessions.push(open);
        if is_child {
            return;
        }
        let mut fact = |key: String, value: AttributeValue| pending.attributes.push((key, value, true));
        for (key, value) in &config.config {
            fact(format!("config/{key}"), value.clone());
        }
        if let Some(experiment) = &config.experiment {
            fact("experiment".into(), AttributeValue::Text(experiment.clone()));
        }
        if !exists {
            pending.tags = config.tags.iter().cloned().map(TagChange::Add).collect();
            pending.description.clone_from(&config.description);
        }
    });
}
