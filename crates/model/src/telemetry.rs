//! What telemetry brings beside samples: spans, log records, exemplars.

use std::ops::RangeInclusive;

use crate::{AttributeValue, RunId};

/// A trace's id.
pub type TraceId = [u8; 16];
/// A span's id within its trace.
pub type SpanId = [u8; 8];

/// What a process did, from when to when.
///
/// It is known by (run, instance, incarnation, trace, id): ranks that seed their generators alike make
/// equal ids, and so does a process that is started again. Of two with the same key the later to arrive
/// counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// Its run; none where the sender names none.
    pub run: Option<RunId>,
    /// The process, as `service.instance.id` has it; may be empty.
    pub instance: String,
    /// Which life of the instance it is of: a number that another start has not. 0 where nothing tells.
    pub incarnation: u32,
    /// Rank of the process, where it says so.
    pub rank: Option<u32>,
    /// Host of the process; may be empty.
    pub host: String,
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span it is in; none for a root.
    pub parent: Option<SpanId>,
    /// What was done.
    pub name: String,
    /// Name of the instrumentation; may be empty.
    pub scope: String,
    /// 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: u8,
    /// When it began, nanoseconds since the epoch.
    pub start_ns: i64,
    /// When it ended. Before its start where a clock was set back; kept as sent.
    pub end_ns: i64,
    /// 0 unset, 1 ok, 2 error.
    pub status: u8,
    /// What went wrong; may be empty.
    pub status_text: String,
    /// The training iteration, where it says so.
    pub iteration: Option<i64>,
    /// Whether the sender reckons goodput from it.
    pub is_goodput: bool,
    /// Its attributes; lists and maps as the text of their JSON.
    pub attributes: Vec<(String, AttributeValue)>,
    /// What happened within it.
    pub events: Vec<SpanEvent>,
    /// Spans that it points to.
    pub links: Vec<SpanLink>,
    /// How many events and links were beyond a bound.
    pub parts_left_out: u64,
}

/// Something that happened within a span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanEvent {
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// A pointer to another span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanLink {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// Attributes of the pointer.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// A line that a process logged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogRecord {
    /// Its run; none where the sender names none.
    pub run: Option<RunId>,
    /// The process, as `service.instance.id` has it; may be empty.
    pub instance: String,
    /// Rank of the process, where it says so.
    pub rank: Option<u32>,
    /// Host of the process; may be empty.
    pub host: String,
    /// When it happened, nanoseconds since the epoch.
    pub time_ns: i64,
    /// 1 to 4 trace, to 8 debug, to 12 info, to 16 warn, to 20 error, to 24 fatal; 0 not said.
    pub severity: u8,
    /// The severity in the sender's words; may be empty.
    pub severity_text: String,
    /// The logger; may be empty.
    pub scope: String,
    /// Name of its kind of event; may be empty.
    pub event: String,
    /// What it says.
    pub body: String,
    /// Its attributes.
    pub attributes: Vec<(String, AttributeValue)>,
    /// The trace it was written in.
    pub trace: Option<TraceId>,
    /// The span it was written in.
    pub span: Option<SpanId>,
}

/// A single measurement beside a sample that sums many up: it ties the sample to a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exemplar {
    /// When it was measured, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What was measured.
    pub value: f64,
    /// `trace_id`, `span_id` and attributes that the series does not have.
    pub labels: Vec<(String, String)>,
}

/// Which spans are asked for: those that fulfil every condition.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanAsk {
    /// Of this run.
    pub run: Option<RunId>,
    /// That touch this time, both ends included, nanoseconds.
    pub time_ns: RangeInclusive<i64>,
    /// Of these iterations.
    pub iterations: Option<RangeInclusive<i64>>,
    /// Of these ranks, sorted.
    pub ranks: Option<Vec<u32>>,
    /// With one of these names, sorted.
    pub names: Option<Vec<String>>,
    /// Of this trace.
    pub trace: Option<TraceId>,
}

impl Default for SpanAsk {
    fn default() -> Self {
        Self {
            run: None,
            time_ns: i64::MIN..=i64::MAX,
            iterations: None,
            ranks: None,
            names: None,
            trace: None,
        }
    }
}

/// Which log records are asked for: those that fulfil every condition.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordAsk {
    /// Of this run.
    pub run: Option<RunId>,
    /// Within this time, both ends included, nanoseconds.
    pub time_ns: RangeInclusive<i64>,
    /// Of these ranks, sorted.
    pub ranks: Option<Vec<u32>>,
    /// At least this severe.
    pub severity_min: u8,
    /// Written in this trace.
    pub trace: Option<TraceId>,
}

impl Default for RecordAsk {
    fn default() -> Self {
        Self { run: None, time_ns: i64::MIN..=i64::MAX, ranks: None, severity_min: 0, trace: None }
    }
}
