//! The thread that exports: collects, writes, sends.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::otlp::write;

use super::console;
use super::grpc::Grpc;
use super::http::Http;
use super::lane::{Batch, Lane, Signal, Verdict};
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
    Collect { metrics: bool, rest: bool, flush: u64 },
    Send(usize, Arc<Batch>, Duration),
    End,
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
        let mut is_last_collected = false;
        loop {
            match self.wait(is_last_collected) {
                Work::Collect { metrics, rest, flush } => {
                    is_last_collected = self.collect(metrics, rest, flush);
                }
                Work::Send(lane, batch, timeout) => self.send(lane, &batch, timeout),
                Work::End => return self.core.settled.notify_all(),
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self, is_last_collected: bool) -> Work {
        let core = Arc::clone(&self.core);
        let mut queue = lock(&core.queue);
        loop {
            let now = Instant::now();
            let closing = match queue.stage {
                Stage::Running => None,
                Stage::Closing(deadline) => Some(deadline),
                Stage::Closed => return Work::End,
            };
            if let Some(work) = self.due(&queue, now, closing.is_some(), is_last_collected) {
                return work;
            }
            if let Some(work) = self.sendable(&mut queue, now, closing) {
                return work;
            }
            if closing.is_some_and(|deadline| nothing_left(&queue, deadline)) {
                queue.stage = Stage::Closed;
                return Work::End;
            }
            let until = self.next_time(&queue, closing);
            queue = pause(&core.wake, queue, until.saturating_duration_since(now));
        }
    }

    /// What is to be collected.
    fn due(&self, queue: &Queue, now: Instant, is_closing: bool, is_last_collected: bool) -> Option<Work> {
        let flush = queue.flush_wanted;
        let wants_all = flush > queue.flush_collected || (is_closing && !is_last_collected);
        let (metrics, rest) = (now >= self.metrics_at, now >= self.rest_at);
        let is_full = || lock(&self.core.tracer).waiting() >= BATCH.min(self.core.settings.queue_capacity);
        if is_closing && is_last_collected {
            return None;
        }
        let rest = rest || is_full();
        (wants_all || metrics || rest).then_some(Work::Collect {
            metrics: metrics || wants_all,
            rest: rest || wants_all,
            flush,
        })
    }

    /// The next batch that may go, the lanes taking turns.
    fn sendable(&mut self, queue: &mut Queue, now: Instant, closing: Option<Instant>) -> Option<Work> {
        let count = queue.lanes.len();
        let at =
            (1..=count).map(|n| (self.last + n) % count).find(|at| queue.lanes[*at].next(now).is_some())?;
        let batch = queue.lanes[at].next(now)?;
        let bound = target(&self.core.settings, queue.lanes[at].signal).timeout;
        let left = closing.map_or(bound, |deadline| deadline.saturating_duration_since(now).min(bound));
        if left.is_zero() {
            queue.lanes[at].is_given_up = true;
            return None;
        }
        self.last = at;
        Some(Work::Send(at, batch, left))
    }

    fn next_time(&self, queue: &Queue, closing: Option<Instant>) -> Instant {
        let retries = queue.lanes.iter().filter(|lane| !lane.is_empty()).filter_map(|lane| lane.retry_at);
        let until = retries.chain([self.metrics_at, self.rest_at]).min().unwrap_or(self.rest_at);
        match closing {
            // Nothing more is collected then, so that only retries count.
            Some(deadline) => {
                let retries = queue.lanes.iter().filter(|lane| !lane.is_empty() && !lane.is_given_up);
                retries.filter_map(|lane| lane.retry_at).min().unwrap_or(deadline).min(deadline)
            }
            None => until,
        }
    }

    /// Makes batches of what there is; whether that was the last time.
    fn collect(&mut self, metrics: bool, rest: bool, flush: u64) -> bool {
        let core = Arc::clone(&self.core);
        // Before anything is read: what comes later is not promised to be in it.
        let is_last = matches!(lock(&core.queue).stage, Stage::Closing(_));
        let now = Instant::now();
        if metrics {
            self.metrics_at = (self.metrics_at + core.settings.export_interval).max(now);
            let metrics = self.metrics();
            self.push(Signal::Metrics, metrics);
        }
        if rest {
            self.rest_at = now + core.settings.batch_delay;
            while let Some(batch) = self.spans() {
                self.push(Signal::Spans, Some(batch));
            }
            let records = self.records();
            self.push(Signal::Records, records);
        }
        let mut queue = lock(&core.queue);
        if metrics && rest && flush > queue.flush_collected {
            queue.flush_collected = flush;
            for lane in &mut queue.lanes {
                lane.retry_at = None;
            }
        }
        if is_last {
            for lane in &mut queue.lanes {
                lane.retry_at = None;
            }
        }
        core.settled.notify_all();
        is_last
    }

    fn push(&self, signal: Signal, batch: Option<Batch>) {
        let Some(batch) = batch else { return };
        let mut queue = lock(&self.core.queue);
        if let Some(lane) = queue.lanes.iter_mut().find(|lane| lane.signal == signal) {
            lane.push(batch);
        }
    }

    fn is_console(&self) -> bool {
        self.core.settings.exporter == Exporter::Console
    }

    fn metrics(&self) -> Option<Batch> {
        let snapshot = lock(&self.core.meter).collect(Core::now_ns());
        let items = snapshot.points();
        if items == 0 || !self.core.settings.metrics {
            return None;
        }
        let (resource, metrics) = (&self.core.settings.resource, snapshot.metrics());
        let body = if self.is_console() {
            console::metrics(resource, &metrics)
        } else {
            write::metrics(resource, &metrics)
        };
        Some(Batch { body, items })
    }

    fn spans(&self) -> Option<Batch> {
        let spans = lock(&self.core.tracer).batch();
        let resource = &self.core.settings.resource;
        let write = if self.is_console() { console::spans } else { write::spans };
        (!spans.is_empty()).then(|| Batch { items: spans.len() as u64, body: write(resource, &spans) })
    }

    fn records(&self) -> Option<Batch> {
        let records = self.core.waiting_records();
        let resource = &self.core.settings.resource;
        let write = if self.is_console() { console::records } else { write::records };
        (!records.is_empty()).then(|| Batch { items: records.len() as u64, body: write(resource, &records) })
    }

    fn send(&mut self, at: usize, batch: &Arc<Batch>, timeout: Duration) {
        let core = Arc::clone(&self.core);
        let Some((signal, way)) = self.ways.get_mut(at) else { return };
        let signal = *signal;
        let verdict = way.send(&batch.body, timeout);
        let shown = shown_url(&target(&core.settings, signal).endpoint);
        let noun = signal.noun();
        let mut queue = lock(&core.queue);
        let (stage, flush) = (queue.stage, queue.flush_collected);
        let Some(lane) = queue.lanes.get_mut(at) else { return };
        let warning = match verdict {
            Verdict::Taken { rejected, message } => {
                lane.taken(batch, rejected);
                let items = batch.items;
                (rejected > 0).then(|| {
                    ("training_rejected", format!("{shown} refuses {rejected} of {items} {noun}: {message}"))
                })
            }
            Verdict::Never(why) => {
                lane.refused(batch);
                Some(("training_refused", format!("{shown} refuses {noun}, which are lost: {why}")))
            }
            Verdict::Later { why, after, is_unreachable } => {
                let now = Instant::now();
                lane.later(after, jitter(), now);
                lane.failed_flush = flush;
                lane.is_given_up = match stage {
                    Stage::Running => false,
                    Stage::Closing(deadline) => {
                        is_unreachable || lane.retry_at.is_none_or(|at| at >= deadline)
                    }
                    Stage::Closed => true,
                };
                let kept = "they are kept, within a bound, and sent when it does";
                Some(("training_away", format!("{shown} takes no {noun} now ({why}): {kept}")))
            }
        };
        core.settled.notify_all();
        drop(queue);
        if let Some((cause, message)) = warning {
            core.warned.once(&format!("{cause} {noun}"), crate::Warning { cause, message });
        }
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

/// Whether the end has come: every lane is empty or given up, or no retry comes before the deadline.
fn nothing_left(queue: &Queue, deadline: Instant) -> bool {
    let is_over = Instant::now() >= deadline;
    is_over || queue.lanes.iter().all(|lane: &Lane| lane.is_empty() || lane.is_given_up)
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
