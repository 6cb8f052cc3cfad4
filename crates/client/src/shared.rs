//! What a run's threads share, and how what was logged becomes requests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{NameError, RunPath, SessionEnd, SessionEvent, SessionFacts};

use crate::batch::requests;
use crate::capture::Capture;
use crate::clock::{When, now_ns};
use crate::config::Config;
use crate::counters::Counters;
use crate::log::{Log, Pending, SeriesState, Steps};
use crate::outbox::Outbox;
use crate::probe::LastSteps;
use crate::progress::Progress;
use crate::sampler::Sampler;
use crate::series::{Catalog, Meta, ONE_TOO_MANY, SeriesHandle, TOO_MANY_LABELS};
use crate::transport::Transport;
use crate::warning::{Warned, Warning};

/// Locks, and goes on behind a thread that died holding it: what these locks guard is whole between
/// any two statements that can fail.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live state of a run in one process. Locks are taken in the order `outbox`, `catalog`, `log`.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Differs between runs of one process, to tell their handles apart.
    pub(crate) number: u32,
    pub(crate) config: Arc<Config>,
    #[cfg_attr(not(tg_linux), expect(dead_code, reason = "the sampler asks for it"))]
    pub(crate) run_id: model::RunId,
    #[cfg_attr(not(tg_linux), expect(dead_code, reason = "the sampler asks for it"))]
    pub(crate) path: RunPath,
    pub(crate) facts: SessionFacts,
    pub(crate) capacity: usize,
    pub(crate) transport: Option<Transport>,
    pub(crate) last_steps: LastSteps,
    pub(crate) log: Mutex<Log>,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) outbox: Mutex<Outbox>,
    /// Wakes the delivery thread.
    pub(crate) wake: Condvar,
    /// Wakes those who wait for deliveries.
    pub(crate) settled: Condvar,
    pub(crate) sampler: Mutex<Option<Sampler>>,
    pub(crate) capture: Capture,
    pub(crate) progress: Mutex<Progress>,
    pub(crate) warned: Warned,
}

/// The number of the next run of this process.
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// Warns once a cause. No lock of this run may be held.
    pub(crate) fn warn(&self, cause: &'static str, message: String) {
        self.warned.once(cause, Warning { cause, message });
    }

    /// Lets go of the outbox, then counts and says what came up meanwhile.
    pub(crate) fn release(&self, mut outbox: MutexGuard<'_, Outbox>) {
        let lost = std::mem::take(&mut outbox.lost);
        let refusals = std::mem::take(&mut outbox.refusals);
        let warnings = std::mem::take(&mut outbox.warnings);
        drop(outbox);
        if !lost.is_empty() || !refusals.is_empty() {
            let mut log = lock(&self.log);
            for (reason, count, example) in lost {
                log.drop_points(reason, count, &example);
            }
            for (reason, count) in refusals {
                *log.dropped.entry(reason).or_default() += count;
            }
        }
        for warning in warnings {
            self.warned.once(warning.cause, warning);
        }
    }

    /// The handle of a series; a new one starts behind the last step that the server knows.
    pub(crate) fn series(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        scale: &str,
    ) -> Result<SeriesHandle, NameError> {
        model::check_display_name(name)?;
        for (key, value) in labels {
            model::check_logged_label(key, value)?;
        }
        let meta = self.meta(name, labels, scale);
        let mut catalog = lock(&self.catalog);
        let key = meta.key();
        let (index, is_new) = catalog.intern(meta);
        if is_new {
            lock(&self.log).series.push(SeriesState::new(self.last_steps.get(&key)));
        }
        Ok(SeriesHandle { index, run: self.number })
    }

    /// Adds the label `rank` where the job has several and the caller set none.
    fn meta(&self, name: &str, labels: &[(&str, &str)], scale: &str) -> Meta {
        let rank = self.facts.rank.filter(|_| self.config.launch.is_distributed()).map(|r| r.to_string());
        match rank {
            Some(rank) if !labels.iter().any(|(key, _)| *key == "rank") => {
                let mut labels = labels.to_vec();
                labels.push(("rank", &rank));
                Meta::new(name, &labels, scale)
            }
            _ => Meta::new(name, labels, scale),
        }
    }

    /// A series without the label `rank`: the sampler's.
    pub(crate) fn own_series(&self, name: &str, labels: &[(&str, &str)]) -> SeriesHandle {
        let mut catalog = lock(&self.catalog);
        let (index, is_new) = catalog.intern(Meta::new(name, labels, ""));
        if is_new {
            lock(&self.log).series.push(SeriesState::new(None));
        }
        SeriesHandle { index, run: self.number }
    }

    pub(crate) fn last_step(&self, name: &str, labels: &[(&str, &str)], scale: &str) -> Option<i64> {
        let key = self.meta(name, labels, scale).key();
        let index = lock(&self.catalog).find(&key);
        let here = index.and_then(|i| lock(&self.log).series.get(i as usize).and_then(|s| s.last_step));
        here.or_else(|| self.last_steps.get(&key))
    }

    /// Takes one point.
    pub(crate) fn log(&self, handle: SeriesHandle, value: f64, step: Option<i64>, when: When) {
        let time = when.read();
        let mut log = lock(&self.log);
        if handle.run != self.number || handle.index as usize >= log.series.len() || log.is_closed {
            let closed = log.is_closed;
            drop(log);
            return self.refuse_handle(handle, closed, 1);
        }
        log.push(handle.index, value, step, time);
        self.watch(log);
    }

    /// Takes one point of each of several series, which share the time and the step.
    pub(crate) fn log_all(&self, points: &[(SeriesHandle, f64)], step: Option<i64>, when: When) {
        let time = when.read();
        let mut strays = Vec::new();
        let mut log = lock(&self.log);
        for &(handle, value) in points {
            if handle.run != self.number || handle.index as usize >= log.series.len() || log.is_closed {
                strays.push((handle, log.is_closed));
            } else {
                log.push(handle.index, value, step, time);
            }
        }
        self.watch(log);
        for (handle, is_closed) in strays {
            self.refuse_handle(handle, is_closed, 1);
        }
    }

    /// Takes an array of points, which share the time and are spread by a nanosecond each.
    pub(crate) fn log_many(&self, handle: SeriesHandle, values: &[f64], steps: Steps<'_>, when: When) {
        let time = when.read();
        if let Steps::Each(each) = steps
            && each.len() != values.len()
        {
            let what = format!("{} values with {} steps", values.len(), each.len());
            return self.refuse("steps_length", values.len() as u64, &what);
        }
        let mut done = 0;
        while done < values.len() {
            let mut log = lock(&self.log);
            if handle.run != self.number || handle.index as usize >= log.series.len() || log.is_closed {
                let closed = log.is_closed;
                drop(log);
                return self.refuse_handle(handle, closed, (values.len() - done) as u64);
            }
            let first = match steps {
                Steps::None => log.step_context,
                Steps::First(first) => Some(first),
                Steps::Each(_) => None,
            };
            let room = self.capacity.saturating_sub(log.points.len()).max(1).min(values.len() - done);
            for (at, value) in values.iter().enumerate().skip(done).take(room) {
                let step = match steps {
                    Steps::Each(each) => each.get(at).copied(),
                    _ => first.map(|first| first.wrapping_add(at as i64)),
                };
                log.push(handle.index, *value, step, time);
            }
            done += room;
            self.watch(log);
        }
    }

    /// Wakes the delivery thread in time, and takes its part when it can't keep up.
    fn watch(&self, mut log: MutexGuard<'_, Log>) {
        let queued = log.points.len();
        if queued >= self.capacity {
            drop(log);
            self.overflow();
        } else if queued >= self.capacity.div_ceil(4) && !log.is_woken {
            log.is_woken = true;
            drop(log);
            self.wake.notify_one();
        }
    }

    /// The queue is full: the caller makes the requests, and writes them to the spool if the ones
    /// before them are still waiting.
    fn overflow(&self) {
        let mut outbox = lock(&self.outbox);
        if lock(&self.log).points.len() >= self.capacity {
            self.seal(&mut outbox);
            if outbox.goes_to_spool() || outbox.is_crowded() {
                outbox.spill(false);
            }
        }
        self.release(outbox);
        self.wake.notify_one();
    }

    fn refuse_handle(&self, handle: SeriesHandle, is_closed: bool, count: u64) {
        let (reason, example) = match handle.index {
            _ if is_closed => ("closed", "the run is closed"),
            _ if handle.run != self.number => ("foreign_handle", "the series belongs to another run"),
            TOO_MANY_LABELS => ("label_count", "a series has more labels than are kept"),
            ONE_TOO_MANY => ("series_limit", "this process has made more series than are kept"),
            _ => ("foreign_handle", "the series is not known"),
        };
        self.refuse(reason, count, example);
    }

    /// Counts points that come to nothing and warns once a reason.
    pub(crate) fn refuse(&self, reason: &'static str, count: u64, example: &str) {
        lock(&self.log).drop_points(reason, count, example);
        self.warn(reason, format!("points are dropped ({reason}): {example}"));
    }

    /// Whether a text is within its bound; one that is not is counted.
    pub(crate) fn fits(&self, reason: &'static str, what: &str, text: &str, bytes_max: usize) -> bool {
        let fits = text.len() <= bytes_max;
        if !fits {
            let what: String = what.chars().take(80).collect();
            self.refuse(reason, 1, &format!("{what} has {} bytes, at most {bytes_max} are kept", text.len()));
        }
        fits
    }

    /// Adds something to be said of the run with the next request.
    pub(crate) fn say(&self, what: impl FnOnce(&mut Pending)) {
        let mut log = lock(&self.log);
        if !log.is_closed {
            what(&mut log.pending);
        }
    }

    /// A sign of life at this moment.
    pub(crate) fn session_event(&self, opens: bool, end: Option<SessionEnd>, reason: &str) -> SessionEvent {
        let facts = self.facts.clone();
        SessionEvent { time_ns: now_ns(), opens, end, reason: reason.to_owned(), facts }
    }

    /// Makes requests of everything logged so far.
    pub(crate) fn seal(&self, outbox: &mut Outbox) {
        outbox.sealed_at = Instant::now();
        let (mut points, pending) = {
            let mut log = lock(&self.log);
            log.is_woken = false;
            if log.points.is_empty() && log.pending.is_empty() {
                return;
            }
            let spare = std::mem::take(&mut outbox.spare);
            (std::mem::replace(&mut log.points, spare), std::mem::take(&mut log.pending))
        };
        let made = requests(&mut points, pending, &lock(&self.catalog));
        outbox.spare = points;
        for request in made {
            match outbox.author.seal(request) {
                Ok(sealed) => outbox.ready.push_back(sealed),
                Err((count, error)) => outbox.lost.push(("encoding", count, error.to_string())),
            }
        }
    }

    /// What became of the points so far.
    pub(crate) fn counters(&self) -> Counters {
        let outbox = lock(&self.outbox);
        let log = lock(&self.log);
        Counters {
            logged: log.logged,
            delivered: outbox.delivered,
            spooled: outbox.spooled,
            dropped: log.dropped.clone(),
            queued: log.points.len() as u64 + outbox.ready.iter().map(|sealed| sealed.points).sum::<u64>(),
            spool_bytes: outbox.spool_bytes(),
            is_server_up: outbox.link.is_up(),
        }
    }

    /// Waits on the outbox for `pause` or until woken.
    pub(crate) fn pause<'a>(
        condvar: &Condvar,
        outbox: MutexGuard<'a, Outbox>,
        pause: Duration,
    ) -> MutexGuard<'a, Outbox> {
        condvar.wait_timeout(outbox, pause).unwrap_or_else(PoisonError::into_inner).0
    }
}
