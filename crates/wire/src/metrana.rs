//! The messages of the `metrana` client's ingestion service, as far as a server needs them.
//!
//! They travel over gRPC, under [`SERVICE`]. A stream names its series once, by declarations, and refers
//! to them by number afterwards. Fields that are not listed here are passed over. What the client expects
//! in which order is in `docs/format/metrana.md`.

use std::collections::HashMap;

use prost::Message;

use crate::fields::{FieldError, walk};

/// Name of the service.
pub const SERVICE: &str = "metrana_protobuf.ingestion.v1.svc.IngestService";
/// Largest message, decompressed, bytes. The client packs 1 MiB unless it is told otherwise.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Most messages within one message: series, batches of points, attributes, labels and so on.
pub const ELEMENTS_MAX: usize = 250_000;

/// Why a message can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// More than [`ELEMENTS_MAX`].
    #[error(
        "the message holds more than {ELEMENTS_MAX} series, batches, labels and attributes: send it in parts"
    )]
    TooMany,
    /// A field is cut off, or of a kind that is not in use.
    #[error("the message is not protobuf: {0}")]
    Field(#[from] FieldError),
    /// Not the message it should be.
    #[error("the message can't be read: {0}")]
    Malformed(#[from] prost::DecodeError),
}

/// Asks for a run: it is made, or gone on with.
#[derive(Clone, PartialEq, Message)]
pub struct InitializeRunLoggingRequest {
    /// Which run.
    #[prost(message, optional, tag = "1")]
    pub run: Option<Run>,
    /// The writer.
    #[prost(uint64, tag = "4")]
    pub logger_id: u64,
    /// See [`ResumePolicy`].
    #[prost(enumeration = "ResumePolicy", tag = "5")]
    pub resume_policy: i32,
}

/// Whether a run that is there may be gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ResumePolicy {
    /// Nothing said.
    Unspecified = 0,
    /// Only by the job that made it.
    Never = 1,
    /// By anybody.
    Allow = 2,
}

/// A run's names.
#[derive(Clone, PartialEq, Message)]
pub struct Run {
    /// The team's space.
    #[prost(string, tag = "1")]
    pub workspace: String,
    /// What the run belongs to.
    #[prost(string, tag = "2")]
    pub project: String,
    /// Its own name.
    #[prost(string, tag = "3")]
    pub run_name: String,
    /// The experiment that it belongs to.
    #[prost(string, optional, tag = "4")]
    pub experiment: Option<String>,
    /// The run that it goes on from.
    #[prost(message, optional, tag = "6")]
    pub fork_point: Option<ForkPoint>,
    /// The launcher's name for the job.
    #[prost(string, optional, tag = "9")]
    pub orchestration_identifier: Option<String>,
    /// Who owns it.
    #[prost(string, optional, tag = "10")]
    pub organization: Option<String>,
}

/// Where a run left another.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ForkPoint {
    /// The other's name.
    #[prost(string, tag = "1")]
    pub parent_run_name: String,
    /// The last step that both have.
    #[prost(uint64, tag = "2")]
    pub fork_step: u64,
}

/// One part of the answer to [`InitializeRunLoggingRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct InitializeRunLoggingResponse {
    /// Which part.
    #[prost(oneof = "Initialized", tags = "1, 2, 3")]
    pub part: Option<Initialized>,
}

/// The parts of the answer, in the order in which they are sent.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Initialized {
    /// The run.
    #[prost(message, tag = "1")]
    Run(InitializedRun),
    /// How far its series are.
    #[prost(message, tag = "2")]
    LastLoggedSteps(LastLoggedSteps),
    /// How far its environments are; we keep none.
    #[prost(message, tag = "3")]
    EnvStatuses(EnvStatuses),
}

/// The run, made or found.
#[derive(Clone, PartialEq, Message)]
pub struct InitializedRun {
    /// Whether it was made for this logger, which then sends its facts.
    #[prost(bool, tag = "1")]
    pub created: bool,
    /// What the stream calls it.
    #[prost(bytes = "vec", tag = "2")]
    pub run_id: Vec<u8>,
    /// The job that made it.
    #[prost(string, optional, tag = "3")]
    pub orchestration_identifier: Option<String>,
    /// When it was made.
    #[prost(message, optional, tag = "4")]
    pub creation_time: Option<Timestamp>,
}

/// A time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since the epoch.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds within the second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// How far series are.
#[derive(Clone, PartialEq, Message)]
pub struct LastLoggedSteps {
    /// Some of them.
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<SeriesInfo>,
    /// Whether no more follow.
    #[prost(bool, tag = "2")]
    pub is_last: bool,
}

/// How far a series is.
#[derive(Clone, PartialEq, Message)]
pub struct SeriesInfo {
    /// Name as logged.
    #[prost(string, tag = "1")]
    pub metric_name: String,
    /// Scale of its steps.
    #[prost(string, tag = "2")]
    pub scale: String,
    /// `k=v&k=v`, as they are.
    #[prost(string, tag = "3")]
    pub flat_labels: String,
    /// See [`Ordering`].
    #[prost(enumeration = "Ordering", tag = "4")]
    pub ordering: i32,
    /// Greatest step.
    #[prost(uint64, tag = "5")]
    pub last_step: u64,
    /// See [`ValueKind`].
    #[prost(enumeration = "ValueKind", tag = "6")]
    pub value_kind: i32,
}

/// What a series' points are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ValueKind {
    /// Nothing said.
    Undefined = 0,
    /// Numbers.
    Float = 1,
    /// Histograms of counts.
    Histogram = 2,
}

/// How a series' steps come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Ordering {
    /// Nothing said.
    Undefined = 0,
    /// One after another, counted by the server.
    RelativeOrdered = 1,
    /// In any order, from many writers.
    AbsoluteUnordered = 2,
    /// In order, from one writer.
    AbsoluteOrdered = 3,
}

/// How far environments are: nothing is said of any.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EnvStatuses {
    /// Whether no more follow.
    #[prost(bool, tag = "2")]
    pub is_last: bool,
}

/// One message of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateRunRequest {
    /// The run, by the answer's id.
    #[prost(bytes = "vec", tag = "1")]
    pub run_id: Vec<u8>,
    /// The writer.
    #[prost(uint64, tag = "2")]
    pub logger_id: u64,
    /// Facts.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<AttributeUpdate>,
    /// Series that are referred to from here on.
    #[prost(message, repeated, tag = "4")]
    pub series_declarations: Vec<SeriesDeclaration>,
    /// Points.
    #[prost(message, repeated, tag = "5")]
    pub series: Vec<SeriesUpdate>,
    /// Points of reinforcement learning, of which only the number is read.
    #[prost(message, repeated, tag = "6")]
    pub rl_series: Vec<RlSeriesUpdate>,
    /// The logger ends.
    #[prost(message, optional, tag = "7")]
    pub close_run: Option<CloseRun>,
    /// Facts of environments.
    #[prost(message, repeated, tag = "8")]
    pub env_attr_updates: Vec<EnvAttrUpdates>,
    /// Histograms.
    #[prost(message, repeated, tag = "9")]
    pub histogram_series: Vec<HistogramSeriesUpdate>,
    /// Clouds of points, of which only the number is read.
    #[prost(message, repeated, tag = "10")]
    pub scatter_series: Vec<ScatterSeriesUpdate>,
    /// Tells a logger's processes apart; 0 in the first message of a stream.
    #[prost(uint64, tag = "11")]
    pub logger_session_id: u64,
    /// With logger and session, what a message is known by when it comes again; 0 for those that bring
    /// no points.
    #[prost(uint64, tag = "12")]
    pub sequence_number: u64,
}

/// The answer to one message: it is durable.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpdateRunResponse {
    /// How long to wait before the next message, milliseconds.
    #[prost(uint32, tag = "3")]
    pub pacing_delay_ms: u32,
}

/// Gives a series a number within the stream.
#[derive(Clone, PartialEq, Message)]
pub struct SeriesDeclaration {
    /// Name as logged.
    #[prost(string, tag = "1")]
    pub metric_name: String,
    /// Scale of its steps.
    #[prost(string, tag = "2")]
    pub scale: String,
    /// Labels.
    #[prost(map = "string, string", tag = "3")]
    pub labels: HashMap<String, String>,
    /// See [`Ordering`].
    #[prost(enumeration = "Ordering", tag = "4")]
    pub ordering: i32,
    /// The number.
    #[prost(uint64, tag = "5")]
    pub declaration_id: u64,
}

/// Points of a series.
#[derive(Clone, PartialEq, Message)]
pub struct SeriesUpdate {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub series_id: u64,
    /// The points.
    #[prost(message, repeated, tag = "2")]
    pub point_batches: Vec<PointBatch>,
}

/// Points as columns; values are of one width, steps and times come one of two ways each.
#[derive(Clone, PartialEq, Message)]
pub struct PointBatch {
    /// Values.
    #[prost(double, repeated, tag = "1")]
    pub values: Vec<f64>,
    /// The first point's step; the others follow.
    #[prost(uint64, optional, tag = "2")]
    pub first_step: Option<u64>,
    /// Every point's step.
    #[prost(uint64, repeated, tag = "3")]
    pub steps: Vec<u64>,
    /// All points' time.
    #[prost(int64, optional, tag = "4")]
    pub timestamp_millis: Option<i64>,
    /// Every point's time.
    #[prost(int64, repeated, tag = "5")]
    pub timestamps_millis: Vec<i64>,
    /// Values, half as wide.
    #[prost(float, repeated, tag = "6")]
    pub values_f32: Vec<f32>,
}

impl PointBatch {
    /// How many points it has.
    pub fn len(&self) -> usize {
        self.values.len() + self.values_f32.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Points of reinforcement learning.
#[derive(Clone, PartialEq, Message)]
pub struct RlSeriesUpdate {
    /// The points.
    #[prost(message, repeated, tag = "3")]
    pub rl_step_batches: Vec<RlStepBatch>,
}

/// Values of one step.
#[derive(Clone, PartialEq, Message)]
pub struct RlStepBatch {
    /// Values.
    #[prost(double, repeated, tag = "3")]
    pub values: Vec<f64>,
    /// Values, half as wide.
    #[prost(float, repeated, tag = "10")]
    pub values_f32: Vec<f32>,
}

/// Histograms of a series.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramSeriesUpdate {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub series_id: u64,
    /// One a step.
    #[prost(message, repeated, tag = "2")]
    pub points: Vec<HistogramPoint>,
}

/// A histogram.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramPoint {
    /// Step.
    #[prost(uint64, tag = "1")]
    pub step: u64,
    /// Time.
    #[prost(int64, optional, tag = "2")]
    pub timestamp_millis: Option<i64>,
    /// Bounds of the bins, one more than there are bins, growing.
    #[prost(double, repeated, tag = "3")]
    pub bin_edges: Vec<f64>,
    /// How many lie in each bin.
    #[prost(uint64, repeated, tag = "4")]
    pub counts: Vec<u64>,
    /// How densely they lie, where no counts are known.
    #[prost(double, repeated, tag = "5")]
    pub densities: Vec<f64>,
    /// What the values were before they were sorted into bins.
    #[prost(message, optional, tag = "6")]
    pub stats: Option<HistogramStats>,
}

/// Of the values that a histogram was made of.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct HistogramStats {
    /// Their sum.
    #[prost(double, tag = "3")]
    pub sum: f64,
}

/// Clouds of points.
#[derive(Clone, PartialEq, Message)]
pub struct ScatterSeriesUpdate {
    /// One a step.
    #[prost(message, repeated, tag = "2")]
    pub points: Vec<ScatterPoint>,
}

/// A cloud of points; nothing of it is read.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ScatterPoint {}

/// Sets a fact. With no value set it is known to be nothing.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeUpdate {
    /// Path-like key.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The value.
    #[prost(oneof = "AttributeValue", tags = "2, 3, 4, 5, 6, 7, 8")]
    pub value: Option<AttributeValue>,
}

/// A fact's value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AttributeValue {
    /// True or false.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// Text.
    #[prost(string, tag = "3")]
    Text(String),
    /// Number.
    #[prost(double, tag = "4")]
    Float(f64),
    /// Whole number.
    #[prost(int64, tag = "5")]
    Int(i64),
    /// A set of texts.
    #[prost(message, tag = "6")]
    Set(StringSet),
    /// A change to a set of texts.
    #[prost(message, tag = "7")]
    SetDelta(StringSetDelta),
    /// A time.
    #[prost(message, tag = "8")]
    Time(Timestamp),
}

/// A set of texts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringSet {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// A change to a set of texts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringSetDelta {
    /// Texts that join it.
    #[prost(string, repeated, tag = "1")]
    pub added: Vec<String>,
    /// Texts that leave it.
    #[prost(string, repeated, tag = "2")]
    pub removed: Vec<String>,
}

/// Facts of an environment.
#[derive(Clone, PartialEq, Message)]
pub struct EnvAttrUpdates {
    /// Which environment.
    #[prost(string, tag = "1")]
    pub environment_id: String,
    /// The facts.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<AttributeUpdate>,
}

/// The logger ends.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CloseRun {
    /// Why.
    #[prost(string, optional, tag = "1")]
    pub close_message: Option<String>,
}

/// Reads a message of a stream.
pub fn decode_update(bytes: &[u8]) -> Result<UpdateRunRequest, Unreadable> {
    let mut left = ELEMENTS_MAX;
    count(bytes, UPDATE, &mut left)?;
    Ok(UpdateRunRequest::decode(bytes)?)
}

/// Reads the message that asks for a run.
pub fn decode_initialize(bytes: &[u8]) -> Result<InitializeRunLoggingRequest, Unreadable> {
    Ok(InitializeRunLoggingRequest::decode(bytes)?)
}

/// The fields of a message that hold messages or texts of which there may be many, with theirs.
struct Nested(&'static [(u32, &'static Nested)]);

const LEAF: &Nested = &Nested(&[]);
const SET: &Nested = &Nested(&[(1, LEAF), (2, LEAF)]);
const ATTRIBUTE: &Nested = &Nested(&[(6, SET), (7, SET)]);
const ENVIRONMENT: &Nested = &Nested(&[(3, ATTRIBUTE)]);
const DECLARATION: &Nested = &Nested(&[(3, LEAF)]);
const POINTS: &Nested = &Nested(&[(2, LEAF)]);
const RL_POINTS: &Nested = &Nested(&[(3, LEAF)]);
const UPDATE: &Nested = &Nested(&[
    (3, ATTRIBUTE),
    (4, DECLARATION),
    (5, POINTS),
    (6, RL_POINTS),
    (8, ENVIRONMENT),
    (9, POINTS),
    (10, POINTS),
]);

/// Counts what `bytes` hold down from what may be `left`, without allocating: an empty message is two
/// bytes here and a hundred in memory.
fn count(bytes: &[u8], of: &Nested, left: &mut usize) -> Result<(), Unreadable> {
    walk::<Unreadable>(bytes, &mut |field, inner| {
        let Some((_, nested)) = of.0.iter().find(|(known, _)| *known == field) else { return Ok(()) };
        *left = left.checked_sub(1).ok_or(Unreadable::TooMany)?;
        if nested.0.is_empty() { Ok(()) } else { count(inner, nested, left) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_small_on_the_wire_and_large_in_memory_is_refused() {
        let series = SeriesUpdate { series_id: 1, point_batches: vec![PointBatch::default(); ELEMENTS_MAX] };
        let update = UpdateRunRequest { series: vec![series], ..UpdateRunRequest::default() };
        assert!(matches!(decode_update(&update.encode_to_vec()), Err(Unreadable::TooMany)));
        let tags = StringSet { values: vec![String::new(); ELEMENTS_MAX] };
        let value = Some(AttributeValue::Set(tags));
        let attributes = vec![AttributeUpdate { path: "sys/tags".into(), value }];
        let update = UpdateRunRequest { attributes, ..UpdateRunRequest::default() };
        assert!(matches!(decode_update(&update.encode_to_vec()), Err(Unreadable::TooMany)));
    }

    #[test]
    fn points_come_packed_or_one_by_one() {
        // As protobuf allows both: field 6 packed, then the same unpacked.
        let packed = [&[0x32, 8][..], &1f32.to_le_bytes(), &2f32.to_le_bytes()].concat();
        let single = [&[0x35][..], &3f32.to_le_bytes()].concat();
        let batch = PointBatch::decode(&*[packed, single].concat()).unwrap();
        assert_eq!(batch.values_f32, [1.0, 2.0, 3.0]);
    }

    proptest! {
        #[test]
        fn rubbish_is_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = decode_update(&bytes);
            let _ = decode_initialize(&bytes);
        }
    }
}
