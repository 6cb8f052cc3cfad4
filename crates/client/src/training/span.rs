//! Spans: from their start until a batch takes them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use model::{AttributeValue, SpanEvent, SpanId, SpanLink, TraceId};
use wire::otlp::is_text_key;

use super::Attributes;
use super::context::SpanContext;
use super::live::Core;
use super::settings::Sampler;
use crate::clock::now_ns;
use crate::shared::lock;

/// Most attributes of a span, event or link; as many events and links.
const PARTS_MAX: usize = 128;
/// Longest text of an attribute, bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// What stands where a prompt or secret would.
const REDACTED: &str = "[REDACTED]";
/// Attribute and event of a span that something else than its code ended.
const TRUNCATED: &str = "nemo.span.truncated";
/// Finished spans that wake the sender before their time.
pub(crate) const BATCH: usize = 512;
/// `model::Span::kind` of spans within a process.
const INTERNAL: u8 = 1;

/// A span from its start to its end. Without export it does nothing; when the last handle goes, it
/// ends as one that was cut short.
#[derive(Debug, Clone, Default)]
pub struct Span {
    context: Option<SpanContext>,
    cell: Option<Arc<Cell>>,
}

/// What the handles of a span share.
#[derive(Debug)]
pub(crate) struct Cell {
    core: Arc<Core>,
    id: SpanId,
    started: Instant,
    /// Gone when it has ended.
    open: Mutex<Option<Box<model::Span>>>,
}

impl Span {
    /// How others refer to it; none for one that does nothing.
    pub fn context(&self) -> Option<SpanContext> {
        self.context
    }

    /// Whether anything that is said of it is kept: it is sampled and has not ended.
    pub fn is_recording(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| lock(&cell.open).is_some())
    }

    fn change(&self, change: impl FnOnce(&mut model::Span)) {
        if let Some(cell) = &self.cell
            && let Some(span) = lock(&cell.open).as_deref_mut()
        {
            change(span);
        }
    }

    /// Sets an attribute; text under one of the redacted keys becomes `[REDACTED]`.
    pub fn set_attribute(&self, key: &str, value: AttributeValue) {
        self.change(|span| put(&mut span.attributes, key, value));
    }

    /// Adds something that happened, now or at a time.
    pub fn add_event(&self, name: &str, attributes: Attributes<'_>, time_ns: Option<i64>) {
        self.change(|span| event(span, name, attributes, time_ns.unwrap_or_else(now_ns)));
    }

    /// Points to another span.
    pub fn add_link(&self, to: SpanContext, attributes: Attributes<'_>) {
        self.change(|span| {
            if span.links.len() >= PARTS_MAX {
                span.parts_left_out += 1;
            } else {
                span.links.push(SpanLink { trace: to.trace, id: to.id, attributes: kept(attributes) });
            }
        });
    }

    /// Records an exception as an event and sets the status to error.
    pub fn record_exception(&self, kind: &str, message: &str, stacktrace: &str) {
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let attributes = [
            ("exception.type", text(kind)),
            ("exception.message", text(message)),
            ("exception.stacktrace", text(stacktrace)),
        ];
        self.change(|span| {
            event(span, "exception", &attributes, now_ns());
            span.status = 2;
            span.status_text = cut(format!("{kind}: {message}"));
        });
    }

    /// Sets the status: ok, or what went wrong.
    pub fn set_status(&self, result: Result<(), &str>) {
        self.change(|span| {
            span.status = if result.is_ok() { 1 } else { 2 };
            span.status_text = cut(result.err().unwrap_or_default().to_owned());
        });
    }

    /// Gives it another name.
    pub fn set_name(&self, name: &str) {
        self.change(|span| name.clone_into(&mut span.name));
    }

    /// Ends it, now or at a time. Later calls are no-ops.
    pub fn end(&self, time_ns: Option<i64>) {
        if let Some(cell) = &self.cell {
            cell.finish(time_ns, false);
        }
    }
}

impl Cell {
    /// Ends the span unless it has ended. Its length is taken by a clock that nobody sets.
    pub(crate) fn finish(&self, time_ns: Option<i64>, is_cut_short: bool) {
        let Some(mut span) = lock(&self.open).take() else { return };
        let elapsed = i64::try_from(self.started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        span.end_ns = time_ns.unwrap_or_else(|| span.start_ns.saturating_add(elapsed));
        if is_cut_short {
            put(&mut span.attributes, TRUNCATED, AttributeValue::Bool(true));
            let end_ns = span.end_ns;
            event(&mut span, TRUNCATED, &[], end_ns);
        }
        self.core.take_span(*span);
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.core.is_of_this_process() {
            self.finish(None, true);
        }
    }
}

fn event(span: &mut model::Span, name: &str, attributes: Attributes<'_>, time_ns: i64) {
    if span.events.len() >= PARTS_MAX {
        span.parts_left_out += 1;
    } else {
        span.events.push(SpanEvent { time_ns, name: name.to_owned(), attributes: kept(attributes) });
    }
}

/// Sets one of the attributes, within bounds and without what nobody asked to keep.
fn put(attributes: &mut Vec<(String, AttributeValue)>, key: &str, value: AttributeValue) {
    let value = match value {
        AttributeValue::Null => return,
        AttributeValue::Text(_) if is_text_key(key) => AttributeValue::Text(REDACTED.to_owned()),
        AttributeValue::Text(text) => AttributeValue::Text(cut(text)),
        other => other,
    };
    let has_room = attributes.len() < PARTS_MAX && !key.is_empty();
    match attributes.iter_mut().find(|(k, _)| k == key) {
        Some((_, old)) => *old = value,
        None if !has_room => {}
        None => attributes.push((key.to_owned(), value)),
    }
}

/// Attributes as they are kept.
pub(crate) fn kept(attributes: Attributes<'_>) -> Vec<(String, AttributeValue)> {
    let mut out = Vec::with_capacity(attributes.len());
    for (key, value) in attributes {
        put(&mut out, key, value.clone());
    }
    out
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Ids by the system's generator: those of a training are seeded alike on every rank.
#[derive(Debug)]
struct Ids {
    drawn: [u8; 512],
    used: usize,
}

impl Ids {
    /// `N` bytes that are not all zeros.
    fn next<const N: usize>(&mut self) -> [u8; N] {
        loop {
            if self.used + N > self.drawn.len() {
                self.refill();
            }
            let mut id = [0; N];
            id.copy_from_slice(&self.drawn[self.used..self.used + N]);
            self.used += N;
            if id != [0; N] {
                return id;
            }
        }
    }

    fn refill(&mut self) {
        self.used = 0;
        if getrandom::fill(&mut self.drawn).is_err() {
            // Without random bytes, the hasher's own seeds and the time are the best there is.
            use std::hash::{BuildHasher, RandomState};
            for chunk in self.drawn.chunks_mut(8) {
                let bytes = RandomState::new().hash_one(now_ns()).to_le_bytes();
                chunk.copy_from_slice(&bytes[..chunk.len()]);
            }
        }
    }
}

/// Spans of a set-up.
#[derive(Debug)]
pub(crate) struct Tracer {
    ids: Ids,
    sampler: Sampler,
    capacity: usize,
    open: HashMap<SpanId, Weak<Cell>>,
    finished: VecDeque<model::Span>,
    pub(crate) is_closed: bool,
    pub(crate) after_close: u64,
    /// Finished spans that made way for later ones.
    pub(crate) lost: u64,
}

impl Tracer {
    pub(crate) fn new(sampler: Sampler, capacity: usize) -> Self {
        Self {
            ids: Ids { drawn: [0; 512], used: 512 },
            sampler,
            capacity: capacity.max(1),
            open: HashMap::new(),
            finished: VecDeque::new(),
            is_closed: false,
            after_close: 0,
            lost: 0,
        }
    }

    /// Draws the ids of a span and decides whether it is recorded.
    fn draw(&mut self, parent: Option<SpanContext>) -> SpanContext {
        let id = self.ids.next();
        let trace = parent.map_or_else(|| self.ids.next(), |parent| parent.trace);
        let is_sampled = match parent {
            Some(parent) if self.sampler.follows_parent => parent.is_sampled,
            _ => is_within(self.sampler.ratio, &trace),
        };
        SpanContext { trace, id, is_sampled }
    }

    /// Takes an ended span; whether the sender should look.
    pub(crate) fn take(&mut self, span: model::Span) -> bool {
        self.open.remove(&span.id);
        if self.is_closed {
            self.after_close += 1;
            return false;
        }
        if self.finished.len() >= self.capacity {
            self.finished.pop_front();
            self.lost += 1;
        }
        self.finished.push_back(span);
        self.finished.len() == BATCH.min(self.capacity)
    }

    /// The oldest ended spans, at most a batch.
    pub(crate) fn batch(&mut self) -> Vec<model::Span> {
        let count = self.finished.len().min(BATCH);
        self.finished.drain(..count).collect()
    }

    /// How many ended spans wait.
    pub(crate) fn waiting(&self) -> usize {
        self.finished.len()
    }

    /// The spans that are still open.
    pub(crate) fn still_open(&mut self) -> Vec<Arc<Cell>> {
        let open = std::mem::take(&mut self.open);
        open.into_values().filter_map(|cell| cell.upgrade()).collect()
    }
}

/// Whether a trace is in the share that a ratio means, as every client of OpenTelemetry decides it.
fn is_within(ratio: f64, trace: &TraceId) -> bool {
    let low = trace.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    // 2^64 times the ratio.
    ratio >= 1.0 || (low as f64) < ratio * 18_446_744_073_709_551_616.0
}

/// Starts a span.
pub(crate) fn start(
    core: &Arc<Core>,
    (scope, name): (&str, &str),
    parent: Option<SpanContext>,
    attributes: Attributes<'_>,
) -> Span {
    let mut tracer = lock(&core.tracer);
    if tracer.is_closed {
        tracer.after_close += 1;
        return Span::default();
    }
    let context = tracer.draw(parent);
    if !context.is_sampled {
        return Span { context: Some(context), cell: None };
    }
    let span = model::Span {
        trace: context.trace,
        id: context.id,
        parent: parent.map(|parent| parent.id),
        name: name.to_owned(),
        scope: scope.to_owned(),
        kind: INTERNAL,
        start_ns: now_ns(),
        attributes: kept(attributes),
        ..model::Span::default()
    };
    let open = Mutex::new(Some(Box::new(span)));
    let cell = Arc::new(Cell { core: Arc::clone(core), id: context.id, started: Instant::now(), open });
    tracer.open.insert(cell.id, Arc::downgrade(&cell));
    Span { context: Some(context), cell: Some(cell) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_all_different() {
        let mut tracer = Tracer::new(Sampler::default(), 10);
        let drawn: std::collections::HashSet<_> = (0..1_000).map(|_| tracer.draw(None)).collect();
        assert_eq!(drawn.len(), 1_000);
        assert!(drawn.iter().all(|context| context.is_sampled));
        let parent = drawn.iter().next().copied();
        assert_eq!(tracer.draw(parent).trace, parent.unwrap().trace);
    }

    #[test]
    fn samplers_follow_parent_or_ratio() {
        let with = |ratio, follows_parent| Tracer::new(Sampler { ratio, follows_parent }, 10);
        let parent = |is_sampled| Some(SpanContext { trace: [9; 16], id: [1; 8], is_sampled });
        assert!(with(0.0, true).draw(parent(true)).is_sampled);
        assert!(!with(1.0, true).draw(parent(false)).is_sampled);
        assert!(with(1.0, false).draw(parent(false)).is_sampled);
        assert!(!with(0.0, true).draw(None).is_sampled);
        assert!(is_within(1.0, &[0xff; 16]) && !is_within(0.5, &[0xff; 16]));
        let mut half = [0; 16];
        half[8] = 0x7f;
        assert!(is_within(0.5, &half));
    }

    #[test]
    fn texts_and_secrets_are_not_kept() {
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        for key in ["prompt", "input_text", "output_text", "text", "password", "token", "secret", "key"] {
            assert_eq!(kept(&[(key, text("x"))]), [(key.to_owned(), text(REDACTED))]);
        }
        let long = "é".repeat(TEXT_BYTES_MAX);
        let got = kept(&[("a", text(&long)), ("b", AttributeValue::Null), ("token", AttributeValue::Int(3))]);
        assert_eq!(got[0], ("a".into(), text(&"é".repeat(TEXT_BYTES_MAX / 2))));
        assert_eq!(got[1..], [("token".to_owned(), AttributeValue::Int(3))]);
    }
}
