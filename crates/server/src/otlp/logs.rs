//! What becomes of log records: they are kept with the run, rank and trace that they were written in.

use std::collections::HashMap;
use std::sync::Arc;

use model::{AttributeValue, LogRecord, RunId};
use store::Batch;
use wire::otlp::answer::Signal;
use wire::otlp::logs::{self, Record};
use wire::otlp::{AHEAD_NS_MAX, Outcome, Refusal, Resource, cut};

use super::{Arrival, Seen, TakeError, text};
use crate::app::Shared;
use crate::intake;

/// Longest name of an instance, host or logger, bytes.
const NAME_BYTES_MAX: usize = 1_024;
/// Marks a record whose body is what a person or a model wrote, so that it is shown to admins only.
pub(crate) const IS_TEXT: &str = "truegauge.text";

/// Stores the log records of a request; see [`super::take`].
pub(super) fn take(shared: &Shared, arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    let mut gathered = Gathered {
        shared,
        seen: Seen::new(shared, arrival.caller),
        ahead_ns: arrival.now_ns.saturating_add(AHEAD_NS_MAX),
        senders: HashMap::new(),
        records: Vec::new(),
    };
    let outcome = logs::read(arrival.body, arrival.now_ns, text::any_keeps(shared), &mut |record| {
        gathered.take(record)
    })?;
    arrival.is_read();
    let Gathered { mut seen, records, .. } = gathered;
    if records.is_empty() {
        return Ok(outcome);
    }
    let batch = Batch { changes: seen.changes(arrival.now_ns), records, ..Batch::default() };
    intake::keep(shared, batch)?;
    seen.stored();
    Ok(outcome)
}

/// What a resource says of all its records.
#[derive(Default)]
struct Sender {
    run: Option<RunId>,
    instance: String,
    host: String,
    rank: Option<u32>,
    keeps_text: bool,
}

struct Gathered<'s> {
    shared: &'s Shared,
    seen: Seen<'s>,
    ahead_ns: i64,
    /// By the resource's bytes.
    senders: HashMap<Vec<u8>, Arc<Sender>>,
    records: Vec<LogRecord>,
}

impl Gathered<'_> {
    fn take(&mut self, sent: &Record<'_, '_>) -> Result<(), Refusal> {
        if sent.time_ns > self.ahead_ns {
            let text = "its time is more than two hours ahead of the server's clock: set the sender's";
            return Err(Refusal::new("time_ahead", text));
        }
        let run = self.seen.note(sent.resource, (sent.time_ns, sent.time_ns), Signal::Logs)?;
        let sender = if let Some(sender) = self.senders.get(sent.resource.bytes) {
            Arc::clone(sender)
        } else {
            let keeps_text = run.as_ref().is_some_and(|path| text::keeps(self.shared, path));
            let run = run.map(|path| path.id());
            let sender = Arc::new(Sender { run, keeps_text, ..sender(sent.resource) });
            self.senders.insert(sent.resource.bytes.to_vec(), Arc::clone(&sender));
            sender
        };
        self.records.push(record(sent, &sender));
        Ok(())
    }
}

fn sender(resource: &Resource<'_>) -> Sender {
    let short = |text: Option<String>| cut(&text.unwrap_or_default(), NAME_BYTES_MAX).to_owned();
    Sender {
        instance: short(resource.instance()),
        host: short(resource.text(&["host.name", "k8s.node.name", "k8s.pod.name"])),
        rank: resource.dl_number("rank").and_then(|rank| u32::try_from(rank).ok()),
        ..Sender::default()
    }
}

fn record(sent: &Record<'_, '_>, sender: &Sender) -> LogRecord {
    let mut attributes = text::attributes(&sent.attributes, sender.keeps_text);
    attributes.retain(|(key, _)| key != IS_TEXT);
    let body = match (sent.is_text, sender.keeps_text) {
        (false, _) => sent.body.to_string(),
        (true, false) => String::new(),
        (true, true) => {
            attributes.push((IS_TEXT.to_owned(), AttributeValue::Bool(true)));
            text::redacted(&sent.body).into_owned()
        }
    };
    LogRecord {
        run: sender.run,
        instance: sender.instance.clone(),
        rank: sender.rank,
        host: sender.host.clone(),
        time_ns: sent.time_ns,
        severity: sent.severity,
        severity_text: sent.severity_text.to_owned(),
        scope: cut(sent.scope.name, NAME_BYTES_MAX).to_owned(),
        event: sent.event.to_owned(),
        body,
        attributes,
        trace: sent.trace,
        span: sent.span,
    }
}
