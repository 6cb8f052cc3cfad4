//! The thread that exports: sends what waits, and has it collected in time.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::grpc::Grpc;
use super::http::Http;
use super::lane::{Batch, Signal, Verdict};
use super::live::{Core, Queue, Stage, pause};
use super::settings::{Exporter, Protocol, Settings, Target};
use super::span::BATCH;
use crate::shared::lock;
use crate::transport::shown_url;

/// Starts the thread.
pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    std::thread::Builder::new().name("truegauge-otlp".into()).spawn(move || Sender::new(core).run()).map(drop)
}

/// How batches of a signal leave.
#[derive(Debug)]
enum Way {
    Console,
    Grpc(Box<Grpc>),
    Http(Http),
    /// It can't be used: a file of certificates is missing, for one.
    None(String),
}

struct Sender {
    core: Arc<Core>,
    ways: Vec<(Signal, Way)>,
    metrics_at: Instant,
    rest_at: Instant,
    /// The lane that was served last, so that each has its turn.
    last: usize,
}

/// What is to be done now.
enum Work {
    Collect { metrics: bool, rest: bool },
    Send(Sending),
    End,
}

/// A batch on its way.
struct Sending {
    lane: usize,
    batch: Arc<Batch>,
    timeout: Duration,
    /// The latest flush when it left.
    flush: u64,
    /// Whether the end had come when it left.
    is_closing: bool,
}

impl Sender {
    fn new(core: Arc<Core>) -> Self {
        let now = Instant::now();
        let (metrics_at, rest_at) = (now + core.settings.export_interval, now + core.settings.batch_delay);
        Self { core, ways: Vec::new(), metrics_at, rest_at, last: 0 }
    }

    fn run(mut self) {
        let signals: Vec<Signal> = lock(&self.core.queue).lanes.iter().map(|lane| lane.signal).collect();
        self.ways = signals.into_iter().map(|signal| (signal, way(&self.core.settings, signal))).collect();
        loop {
            match self.wait() {
                Work::Collect { metrics, rest } => self.core.collect(metrics, rest),
                Work::Send(sending) => self.send(&sending),
                Work::End => return self.core.settled.notify_all(),
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> Work {
        let core = Arc::clone(&self.core);
        let mut queue = lock(&core.queue);
        loop {
            let now = Instant::now();
            if queue.stage == Stage::Closed {
                return Work::End;
            }
            if queue.stage == Stage::Running
                && let Some(work) = self.due(now)
            {
                return work;
            }
            if let Some(work) = self.sendable(&queue, now) {
                return work;
            }
            if matches!(queue.stage, Stage::Closing(deadline) if nothing_left(&queue, deadline, now)) {
                queue.stage = Stage::Closed;
                return Work::End;
            }
            let until = self.next_time(&queue, now);
            queue = pause(&core.wake, queue, until.saturating_duration_since(now));
        }
    }

    /// What is to be collected.
    fn due(&mut self, now: Instant) -> Option<Work> {
        let is_full = || lock(&self.core.tracer).waiting() >= BATCH.min(self.core.settings.queue_capacity);
        let metrics = now >= self.metrics_at;
        let rest = now >= self.rest_at || is_full();
        if metrics {
            self.metrics_at = (self.metrics_at + self.core.settings.export_interval).max(now);
        }
        if rest {
            self.rest_at = now + self.core.settings.batch_delay;
        }
        (metrics || rest).then_some(Work::Collect { metrics, rest })
    }

    /// The next batch that may go, the lanes taking turns.
    fn sendable(&mut self, queue: &Queue, now: Instant) -> Option<Work> {
        let count = queue.lanes.len();
        let mut turns = (1..=count).map(|n| (self.last + n) % count);
        let (lane, batch) = turns.find_map(|at| Some((at, queue.lanes[at].next(now)?)))?;
        let bound = target(&self.core.settings, queue.lanes[lane].signal).timeout;
        let (timeout, is_closing) = match queue.stage {
            Stage::Closing(deadline) => (deadline.saturating_duration_since(now).min(bound), true),
            _ => (bound, false),
        };
        if timeout.is_zero() {
            return None;
        }
        self.last = lane;
        Some(Work::Send(Sending { lane, batch, timeout, flush: queue.flush, is_closing }))
    }

    fn next_time(&self, queue: &Queue, now: Instant) -> Instant {
        let waiting = queue.lanes.iter().filter(|lane| !lane.is_empty() && !lane.is_given_up);
        let retries = waiting.filter_map(|lane| lane.retry_at);
        let until = match queue.stage {
            Stage::Running => retries.chain([self.metrics_at, self.rest_at]).min(),
            // Whoever makes the last batches wakes this thread.
            Stage::Ending | Stage::Closed => None,
            Stage::Closing(deadline) => retries.chain([deadline]).min(),
        };
        until.unwrap_or(now + self.core.settings.batch_delay)
    }

    fn send(&mut self, sending: &Sending) {
        let core = Arc::clone(&self.core);
        let Some((signal, way)) = self.ways.get_mut(sending.lane) else { return };
        let (signal, batch) = (*signal, &sending.batch);
        let verdict = way.send(&batch.body, sending.timeout);
        let warning = warning(&verdict, batch, &shown_url(&target(&core.settings, signal).endpoint), signal);
        let mut queue = lock(&core.queue);
        let (stage, flush) = (queue.stage, queue.flush);
        let Some(lane) = queue.lanes.get_mut(sending.lane) else { return };
        match verdict {
            Verdict::Taken { rejected, .. } => lane.taken(batch, rejected),
            Verdict::Never(_) => lane.refused(batch),
            Verdict::Later { after, is_unreachable, .. } => {
                lane.later(after, jitter(), Instant::now());
                lane.failed_flush = sending.flush;
                if let Stage::Closing(deadline) = stage
                    && sending.is_closing
                {
                    lane.is_given_up = is_unreachable || lane.retry_at.is_none_or(|at| at >= deadline);
                }
                // Somebody began to wait meanwhile, for whom it is tried at once.
                if sending.flush < flush || (!sending.is_closing && stage != Stage::Running) {
                    lane.retry_at = None;
                }
            }
        }
        core.settled.notify_all();
        drop(queue);
        if let Some((cause, message)) = warning {
            core.warned.once(&format!("{cause} {}", signal.noun()), crate::Warning { cause, message });
        }
    }
}

/// What a person should know of a verdict.
fn warning(verdict: &Verdict, batch: &Batch, shown: &str, signal: Signal) -> Option<(&'static str, String)> {
    let (noun, items) = (signal.noun(), batch.items);
    match verdict {
        Verdict::Taken { rejected: 0, .. } => None,
        Verdict::Taken { rejected, message } => {
            Some(("training_rejected", format!("{shown} refuses {rejected} of {items} {noun}: {message}")))
        }
        Verdict::Never(why) => {
            Some(("training_refused", format!("{shown} refuses {noun}, which are lost: {why}")))
        }
        Verdict::Later { why, .. } => Some((
            "training_away",
            format!(
                "{shown} takes no {noun} now ({why}): they are kept, within a bound, and sent when it does"
            ),
        )),
    }
}

impl Way {
    fn send(&mut self, body: &[u8], timeout: Duration) -> Verdict {
        match self {
            Self::Grpc(grpc) => grpc.send(body, timeout),
            Self::Http(http) => http.send(body, timeout),
            Self::None(why) => Verdict::Never(why.clone()),
            Self::Console => {
                let mut out = std::io::stdout().lock();
                match out.write_all(body).and_then(|()| out.flush()) {
                    Ok(()) => Verdict::Taken { rejected: 0, message: String::new() },
                    Err(error) => Verdict::Never(error.to_string()),
                }
            }
        }
    }
}

/// Whether the end has come: no lane has anything that may still be tried.
fn nothing_left(queue: &Queue, deadline: Instant, now: Instant) -> bool {
    now >= deadline || queue.lanes.iter().all(|lane| lane.is_empty() || lane.is_given_up)
}

fn target(settings: &Settings, signal: Signal) -> &Target {
    match signal {
        Signal::Metrics => &settings.metrics_target,
        Signal::Spans => &settings.traces_target,
        Signal::Records => &settings.logs_target,
    }
}

fn way(settings: &Settings, signal: Signal) -> Way {
    if settings.exporter == Exporter::Console {
        return Way::Console;
    }
    let target = target(settings, signal);
    let made = match target.protocol {
        Protocol::Grpc => Grpc::new(target, signal).map(|grpc| Way::Grpc(Box::new(grpc))),
        Protocol::Http => Http::new(target).map(Way::Http),
    };
    made.unwrap_or_else(Way::None)
}

/// A number from 0 to 1 that differs between processes.
fn jitter() -> f64 {
    let mut byte = [128];
    // Without random bytes all come in the middle.
    _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
