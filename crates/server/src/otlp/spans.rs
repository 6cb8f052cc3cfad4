//! What becomes of spans: they are kept, and those of iterations become points of the step's time.

use std::collections::HashMap;
use std::sync::Arc;

use model::{RunId, RunPath, Sample, Span, SpanEvent, SpanLink, series_identity};
use semconv::spans::Phase;
use store::{Batch, Collision, SeriesBatch};
use wire::otlp::answer::Signal;
use wire::otlp::traces::{self, Span as Sent};
use wire::otlp::{AHEAD_NS_MAX, Outcome, Refusal, Resource, VALUE_BYTES_MAX, cut};

use super::{Arrival, Seen, TakeError, text};
use crate::app::Shared;
use crate::intake;
use crate::verdicts::Told;

/// The series of a step's time, as `tg.step` logs it.
pub(crate) const STEP_SERIES: &str = "train_step_seconds";
/// Names of the spans that are one iteration.
pub(crate) const ITERATION_SPANS: [&str; 2] = ["megatron.train.iteration", "megatron.train_step"];
/// Longest name of an instance or host, bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// Stores the spans of a request; see [`super::take`].
pub(super) fn take(shared: &Shared, arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    let mut gathered = Gathered {
        shared,
        seen: Seen::new(shared, arrival.caller),
        ahead_ns: arrival.now_ns.saturating_add(AHEAD_NS_MAX),
        senders: HashMap::new(),
        spans: Vec::new(),
        steps: HashMap::new(),
    };
    let outcome = traces::read(arrival.body, text::any_keeps(shared), &mut |span| gathered.take(span))?;
    arrival.is_read();
    let Gathered { mut seen, spans, steps, .. } = gathered;
    let batch = Batch {
        changes: seen.changes(arrival.now_ns),
        series: steps.into_values().collect(),
        collision: Collision::LastWriteWins,
        spans,
        ..Batch::default()
    };
    if batch.spans.is_empty() && batch.changes.is_empty() {
        return Ok(outcome);
    }
    let told = Told::of_spans(&batch.series, &batch.spans);
    let receipt = intake::keep_of_runs(shared, batch)?;
    shared.verdicts.take(told);
    shared.metrics.samples.add(&[arrival.door], receipt.stored);
    for (reason, count, _) in &receipt.refused {
        shared.metrics.rejected.add(&[arrival.door, reason], *count);
    }
    seen.stored();
    Ok(outcome)
}

/// What a resource says of all its spans.
#[derive(Clone)]
struct Sender {
    run: Option<Arc<RunPath>>,
    id: Option<RunId>,
    instance: String,
    host: String,
    rank: Option<u32>,
    incarnation: u32,
    keeps_text: bool,
    /// Whether the run's steps are told by nobody else.
    tells_steps: bool,
}

struct Gathered<'s> {
    shared: &'s Shared,
    seen: Seen<'s>,
    ahead_ns: i64,
    /// By the resource's bytes.
    senders: HashMap<Vec<u8>, Arc<Sender>>,
    spans: Vec<Span>,
    steps: HashMap<(RunId, Option<u32>), SeriesBatch>,
}

impl Gathered<'_> {
    fn take(&mut self, sent: &Sent<'_, '_>) -> Result<(), Refusal> {
        if sent.start_ns.max(sent.end_ns) > self.ahead_ns {
            let text = "its time is more than two hours ahead of the server's clock: set the sender's";
            return Err(Refusal::new("time_ahead", text));
        }
        let times = (sent.start_ns.min(sent.end_ns), sent.start_ns.max(sent.end_ns));
        let run = self.seen.note(sent.resource, times, Signal::Traces)?;
        let sender = match self.senders.get(sent.resource.bytes) {
            Some(sender) => Arc::clone(sender),
            None => self.sender(sent.resource, run),
        };
        let span = span_of(sent, &sender);
        self.step(&sender, &span);
        self.spans.push(span);
        Ok(())
    }

    fn sender(&mut self, resource: &Resource<'_>, run: Option<Arc<RunPath>>) -> Arc<Sender> {
        let id = run.as_ref().map(|path| path.id());
        let known = id.and_then(|id| self.shared.store.run(id));
        // A process that logs its steps itself tells them better than its spans do.
        let is_native = |run: &Arc<model::RunRecord>| {
            run.sessions.iter().any(|session| session.facts.silent_after_seconds == 0)
        };
        let short = |text: Option<String>| cut(&text.unwrap_or_default(), NAME_BYTES_MAX).to_owned();
        let sender = Arc::new(Sender {
            keeps_text: run.as_ref().is_some_and(|path| text::keeps(self.shared, path)),
            tells_steps: id.is_some() && known.as_ref().is_none_or(|run| !is_native(run)),
            instance: short(resource.instance()),
            incarnation: self.seen.incarnation(),
            host: short(resource.text(&["host.name", "k8s.node.name", "k8s.pod.name"])),
            rank: resource.dl_number("rank").and_then(|rank| u32::try_from(rank).ok()),
            run,
            id,
        });
        self.senders.insert(resource.bytes.to_vec(), Arc::clone(&sender));
        sender
    }

    /// The point of the step's time that an iteration's span is.
    fn step(&mut self, sender: &Sender, span: &Span) {
        let Some(path) = sender.run.as_ref().filter(|_| sender.tells_steps) else { return };
        let Some(iteration) = span.iteration.filter(|_| is_iteration(span)) else { return };
        let series = self.steps.entry((path.id(), sender.rank)).or_insert_with(|| {
            let labels: Vec<_> =
                sender.rank.map(|rank| ("rank".to_owned(), rank.to_string())).into_iter().collect();
            SeriesBatch { identity: series_identity(path, STEP_SERIES, "", &labels), samples: Vec::new() }
        });
        let value = span.end_ns.saturating_sub(span.start_ns) as f64 / 1e9;
        series.samples.push(Sample { time_ns: span.end_ns, value, step: Some(iteration) });
    }
}

/// Whether a span is one iteration, from its start to its end.
pub(crate) fn is_iteration(span: &Span) -> bool {
    span.end_ns >= span.start_ns
        && ITERATION_SPANS.contains(&span.name.as_str())
        && semconv::spans::span(&span.name).is_some_and(|(_, phase)| phase == Phase::Iteration)
}

fn span_of(sent: &Sent<'_, '_>, sender: &Sender) -> Span {
    let attributes = |of| text::attributes(of, sender.keeps_text);
    Span {
        run: sender.id,
        instance: sender.instance.clone(),
        incarnation: sender.incarnation,
        rank: sender.rank,
        host: sender.host.clone(),
        trace: sent.ids.0,
        id: sent.ids.1,
        parent: sent.parent,
        name: sent.name.to_owned(),
        scope: cut(sent.scope.name, NAME_BYTES_MAX).to_owned(),
        kind: sent.kind,
        start_ns: sent.start_ns,
        end_ns: sent.end_ns,
        status: sent.status,
        status_text: cut(sent.status_text, VALUE_BYTES_MAX).to_owned(),
        iteration: sent.iteration(),
        is_goodput: sent.is_goodput(),
        attributes: attributes(&sent.attributes),
        events: sent
            .events
            .iter()
            .map(|event| SpanEvent {
                time_ns: event.time_ns,
                name: event.name.to_owned(),
                attributes: attributes(&event.attributes),
            })
            .collect(),
        links: sent
            .links
            .iter()
            .map(|link| SpanLink {
                trace: link.ids.0,
                id: link.ids.1,
                attributes: attributes(&link.attributes),
            })
            .collect(),
        parts_left_out: sent.parts_left_out,
    }
}
