//! What the threads of a set-up share: values, spans and records on their way, and the end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::LogRecord;

use super::lane::{Lane, Signal};
use super::meter::Meter;
use super::settings::Settings;
use super::span::Tracer;
use super::{Shutdown, Totals, sender};
use crate::Run;
use crate::clock::now_ns;
use crate::shared::lock;
use crate::warning::{Warned, Warning};

/// Longest pause between two looks at the caller's wish to give up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait that a caller can ask for.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);

/// The live state of a set-up in one process. Of its locks, `collecting` is taken before any other, the
/// tracer's within the queue's, and that of the run within the meter's.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Arc<Settings>,
    pub(crate) meter: Mutex<Meter>,
    pub(crate) tracer: Mutex<Tracer>,
    pub(crate) records: Mutex<Records>,
    /// Held by whoever makes batches.
    pub(crate) collecting: Mutex<()>,
    pub(crate) queue: Mutex<Queue>,
    /// Wakes the sender.
    pub(crate) wake: Condvar,
    /// Wakes those who wait for it.
    pub(crate) settled: Condvar,
    pub(crate) warned: Warned,
    /// The process that made it: another one must not touch what is inside.
    pid: u32,
}

/// Log records that wait.
#[derive(Debug, Default)]
pub(crate) struct Records {
    waiting: VecDeque<LogRecord>,
    is_closed: bool,
    after_close: u64,
    lost: u64,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    /// Nothing more is taken, and the last batches are made.
    Ending,
    /// What is left is sent until then.
    Closing(Instant),
    /// Nothing more is sent.
    Closed,
}

/// What the sender works through.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stage: Stage,
    /// The latest flush that was asked for.
    pub(crate) flush: u64,
}

impl Queue {
    /// What was lost of everything.
    fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.lost).sum()
    }

    /// No pause is kept: somebody waits.
    fn try_again(&mut self) {
        for lane in &mut self.lanes {
            lane.retry_at = None;
        }
    }
}

impl Core {
    /// Makes the state, and starts the sender where this rank exports.
    pub(crate) fn start(settings: &Arc<Settings>, run: Option<Run>) -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let owner = NEXT.fetch_add(1, Ordering::Relaxed);
        let signals = [
            (settings.metrics, Signal::Metrics),
            (settings.records_spans(), Signal::Spans),
            (settings.logs, Signal::Records),
        ];
        let wanted = signals.into_iter().filter(|(is_on, _)| settings.exports && *is_on);
        let lanes = wanted.map(|(_, signal)| Lane::new(signal)).collect();
        let queue = Queue { lanes, stage: Stage::Running, flush: 0 };
        let core = Arc::new(Self {
            settings: Arc::clone(settings),
            meter: Meter::new(owner, settings.exemplars, settings.temporality, run).into(),
            tracer: Tracer::new(settings.sampler, settings.queue_capacity).into(),
            records: Mutex::default(),
            collecting: Mutex::default(),
            queue: queue.into(),
            wake: Condvar::new(),
            settled: Condvar::new(),
            warned: Warned::default(),
            pid: std::process::id(),
        });
        if settings.exports
            && let Err(error) = sender::start(&core)
        {
            lock(&core.queue).stage = Stage::Closed;
            core.warn("training_thread", format!("could not start the thread that exports: {error}"));
        }
        core
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Warns once a cause. No lock may be held.
    pub(crate) fn warn(&self, cause: &'static str, message: String) {
        self.warned.once(cause, Warning { cause, message });
    }

    /// Takes an ended span.
    pub(crate) fn take_span(&self, span: model::Span) {
        let is_due = lock(&self.tracer).take(span);
        if is_due {
            self.wake.notify_one();
        }
    }

    /// Takes a log record.
    pub(crate) fn take_record(&self, record: LogRecord) {
        let mut records = lock(&self.records);
        if records.is_closed {
            records.after_close += 1;
            return;
        }
        if records.waiting.len() >= self.settings.queue_capacity {
            records.waiting.pop_front();
            records.lost += 1;
        }
        records.waiting.push_back(record);
    }

    /// All log records that wait.
    pub(crate) fn waiting_records(&self) -> Vec<LogRecord> {
        lock(&self.records).waiting.drain(..).collect()
    }

    /// Asks for everything to be sent, and waits.
    pub(crate) fn flush(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> bool {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        {
            let queue = lock(&self.queue);
            if queue.stage != Stage::Running || queue.lanes.is_empty() {
                return queue.lanes.is_empty();
            }
        }
        self.collect(true, true);
        let mut queue = lock(&self.queue);
        queue.flush += 1;
        let (flush, lost_before) = (queue.flush, queue.lost());
        queue.try_again();
        self.wake.notify_all();
        // One that failed since then is not waited for: the backend is away.
        let is_settled = |queue: &Queue| {
            let is_over = |lane: &Lane| lane.is_empty() || lane.failed_flush >= flush;
            queue.lanes.iter().all(is_over) || queue.stage == Stage::Closed
        };
        queue = self.wait(queue, deadline, poll, &is_settled);
        queue.lost() == lost_before && queue.lanes.iter().all(Lane::is_empty)
    }

    /// Waits for something to come true, until a time or as long as the caller likes.
    fn wait<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        deadline: Instant,
        poll: &mut dyn FnMut() -> bool,
        is_so: &dyn Fn(&Queue) -> bool,
    ) -> MutexGuard<'a, Queue> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_so(&queue) {
                return queue;
            }
            drop(pause(&self.settled, queue, left.min(LOOK_EVERY)));
            let wants_no_more = poll();
            queue = lock(&self.queue);
            if wants_no_more {
                return queue;
            }
        }
    }

    /// Ends everything within a bound.
    pub(crate) fn shutdown(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> Shutdown {
        let started = Instant::now();
        let deadline = started + timeout.min(TIMEOUT_MAX);
        let is_exporting = {
            let mut queue = lock(&self.queue);
            if queue.stage != Stage::Running {
                // A thread that could not be started leaves nothing to do.
                return Shutdown::default();
            }
            queue.stage = Stage::Ending;
            !queue.lanes.is_empty()
        };
        self.close_intake();
        if is_exporting {
            self.collect(true, true);
        }
        let mut queue = lock(&self.queue);
        if is_exporting {
            queue.stage = Stage::Closing(deadline);
            queue.try_again();
            self.wake.notify_all();
            queue = self.wait(queue, deadline, poll, &|queue| queue.stage == Stage::Closed);
        }
        queue.stage = Stage::Closed;
        for lane in &mut queue.lanes {
            lane.abandon();
        }
        drop(queue);
        self.wake.notify_all();
        let totals = self.totals();
        Shutdown {
            is_first: true,
            lost_points: totals.lost_points,
            lost_spans: totals.lost_spans,
            lost_records: totals.lost_records,
            took: started.elapsed(),
        }
    }

    /// Ends open spans and takes nothing more.
    fn close_intake(&self) {
        let open = lock(&self.tracer).still_open();
        for cell in open {
            cell.finish(None, true);
        }
        lock(&self.tracer).is_closed = true;
        lock(&self.meter).is_closed = true;
        lock(&self.records).is_closed = true;
    }

    /// What became of everything so far.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        {
            let meter = lock(&self.meter);
            totals.recorded = meter.recorded;
            totals.after_shutdown += meter.after_close;
        }
        {
            let tracer = lock(&self.tracer);
            totals.lost_spans += tracer.lost;
            totals.after_shutdown += tracer.after_close;
        }
        {
            let records = lock(&self.records);
            totals.lost_records += records.lost;
            totals.after_shutdown += records.after_close;
        }
        for lane in &lock(&self.queue).lanes {
            let (sent, lost) = match lane.signal {
                Signal::Metrics => (&mut totals.sent_points, &mut totals.lost_points),
                Signal::Spans => (&mut totals.sent_spans, &mut totals.lost_spans),
                Signal::Records => (&mut totals.sent_records, &mut totals.lost_records),
            };
            *sent += lane.sent;
            *lost += lane.lost;
        }
        totals
    }

    /// Says what an instrument can't take, once.
    pub(crate) fn say_refused(&self) {
        let first = lock(&self.meter).refused.clone();
        if let Some(name) = first {
            self.warn(
                "training_value",
                format!(
                    "{name} can't take every value that is recorded: counters take numbers above zero, sums and \
                     histograms finite ones; what they can't take is left out"
                ),
            );
        }
    }

    /// The time now, as points are stamped.
    pub(crate) fn now_ns() -> i64 {
        now_ns()
    }
}

/// Waits for `time` or until woken.
pub(crate) fn pause<'a>(
    condvar: &Condvar,
    queue: MutexGuard<'a, Queue>,
    time: Duration,
) -> MutexGuard<'a, Queue> {
    condvar.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0
}
