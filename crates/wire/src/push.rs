//! The push protocol: what a client sends to `POST /api/tg/v1/push` and keeps in its spool.
//!
//! A body is one protobuf [`PushRequest`], compressed with zstd (`content-encoding: zstd`). The same
//! bytes are a spool record, so a spool is delivered without being understood. A request is known by
//! `(client_id, sequence)`: sending it again is harmless. Described byte by byte in
//! `docs/format/push.md`.

use std::io::Read as _;
use std::ops::Range;

use model::{AttributeValue, RunChange, RunPath, Sample, SessionEnd, SessionEvent, SessionFacts, TagChange};
use prost::Message;

use crate::fields::{FieldError, Piece, take, walk};

/// Content type of a request and of its answer.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// Largest body after decompression, bytes.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
/// Most messages (series, labels, attributes and so on) in one request.
pub const ELEMENTS_MAX: usize = 500_000;
/// Most series that an answer names as refused.
pub const REFUSED_SERIES_MAX: usize = 1_000;

/// One delivery of one writer about one run, or about one node.
#[derive(Clone, PartialEq, Message)]
pub struct PushRequest {
    /// The writer: 16 random bytes, new for every session.
    #[prost(bytes = "vec", tag = "1")]
    pub client_id: Vec<u8>,
    /// Counts this writer's requests from 1.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// The run that everything below is about.
    #[prost(message, optional, tag = "3")]
    pub run: Option<Run>,
    /// A sign of life.
    #[prost(message, optional, tag = "4")]
    pub session: Option<Session>,
    /// Points by series.
    #[prost(message, repeated, tag = "5")]
    pub series: Vec<Series>,
    /// Facts to set.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<Attribute>,
    /// Tags to add or remove, in order.
    #[prost(message, repeated, tag = "7")]
    pub tags: Vec<Tag>,
    /// New description.
    #[prost(string, optional, tag = "8")]
    pub description: Option<String>,
    /// Points refused or lost before they came here, since the request before.
    #[prost(message, repeated, tag = "9")]
    pub dropped: Vec<Count>,
    /// In the place of a run: the node that everything is about. Then the series have all their labels and
    /// the names of PromQL.
    #[prost(message, optional, tag = "10")]
    pub node: Option<Node>,
    /// What happened on the node.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// A node and the agent that reports it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Node {
    /// Its name, the label `host` of all its series and events.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The kernel's id of this boot; empty when unknown.
    #[prost(string, tag = "2")]
    pub boot_id: String,
    /// Version of the agent.
    #[prost(string, tag = "3")]
    pub agent_version: String,
    /// Its process id.
    #[prost(uint32, tag = "4")]
    pub pid: u32,
    /// Time between two of its looks, milliseconds.
    #[prost(uint64, tag = "5")]
    pub interval_ms: u64,
    /// Which agent it is: 16 random bytes that it keeps in its state directory.
    #[prost(bytes = "vec", tag = "6")]
    pub agent_id: Vec<u8>,
    /// When the look was taken, by the node's clock, milliseconds since the epoch.
    #[prost(int64, tag = "7")]
    pub time_ms: i64,
    /// The agent's last word: it ends in order.
    #[prost(bool, tag = "8")]
    pub leaves: bool,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Event {
    /// When, nanoseconds since the epoch.
    #[prost(sfixed64, tag = "1")]
    pub time_ns: i64,
    /// What sort of thing.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// `info`, `warning` or `critical`.
    #[prost(string, tag = "3")]
    pub severity: String,
    /// What it is known by on its host.
    #[prost(string, tag = "4")]
    pub key: String,
    /// Where and to whom.
    #[prost(message, repeated, tag = "5")]
    pub labels: Vec<Label>,
    /// A sentence, or the line as it was read.
    #[prost(string, tag = "6")]
    pub text: String,
    /// A JSON object; empty without.
    #[prost(string, tag = "7")]
    pub body: String,
}

/// A run's four names.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Run {
    /// Who owns it.
    #[prost(string, tag = "1")]
    pub organization: String,
    /// The team's space.
    #[prost(string, tag = "2")]
    pub workspace: String,
    /// What the run belongs to.
    #[prost(string, tag = "3")]
    pub project: String,
    /// Its own name.
    #[prost(string, tag = "4")]
    pub run: String,
}

/// A sign of life of the writer, or of its end.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Session {
    /// By the writer's clock, milliseconds since the epoch.
    #[prost(int64, tag = "1")]
    pub time_ms: i64,
    /// 1 opens, 2 heartbeat, 3 finished, 4 failed, 5 left for later.
    #[prost(uint32, tag = "2")]
    pub event: u32,
    /// Why it ended.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Host name.
    #[prost(string, tag = "4")]
    pub host: String,
    /// Process id.
    #[prost(uint32, tag = "5")]
    pub pid: u32,
    /// Rank in the job.
    #[prost(uint32, optional, tag = "6")]
    pub rank: Option<u32>,
    /// Processes in the job.
    #[prost(uint32, optional, tag = "7")]
    pub world_size: Option<u32>,
    /// The launcher's name for the job.
    #[prost(string, tag = "8")]
    pub job_token: String,
    /// How often the launcher restarted it.
    #[prost(uint32, tag = "9")]
    pub restart_count: u32,
    /// Version of the client.
    #[prost(string, tag = "10")]
    pub client_version: String,
}

/// Points of one series, as columns of equal length.
#[derive(Clone, PartialEq, Message)]
pub struct Series {
    /// Display name, as logged.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Labels beside the run's.
    #[prost(message, repeated, tag = "2")]
    pub labels: Vec<Label>,
    /// Scale of the steps; empty for the default.
    #[prost(string, tag = "3")]
    pub scale: String,
    /// Nanoseconds since the epoch: the first time, then differences.
    #[prost(sfixed64, repeated, tag = "4")]
    pub time_deltas: Vec<i64>,
    /// Values.
    #[prost(double, repeated, tag = "5")]
    pub values: Vec<f64>,
    /// Steps: the first, then differences. Empty when the series has none.
    #[prost(sfixed64, repeated, tag = "6")]
    pub step_deltas: Vec<i64>,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Label {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A fact. With no value set it is known to be nothing.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Path-like key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Leave an existing fact alone.
    #[prost(bool, tag = "2")]
    pub if_absent: bool,
    /// The value.
    #[prost(oneof = "Value", tags = "3, 4, 5, 6")]
    pub value: Option<Value>,
}

/// A fact's value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// True or false.
    #[prost(bool, tag = "3")]
    Bool(bool),
    /// Whole number.
    #[prost(sint64, tag = "4")]
    Int(i64),
    /// Number.
    #[prost(double, tag = "5")]
    Float(f64),
    /// Text.
    #[prost(string, tag = "6")]
    Text(String),
}

/// A tag to add (1), to remove (2), or all to forget (3).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Tag {
    /// What to do.
    #[prost(uint32, tag = "1")]
    pub action: u32,
    /// The tag.
    #[prost(string, tag = "2")]
    pub tag: String,
}

/// So many for this reason.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Count {
    /// Bounded reason, such as `metric_name`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// How many.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// One example, in words, for the person who looks.
    #[prost(string, tag = "3")]
    pub example: String,
}

/// The answer: the request is durable.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushResponse {
    /// The run's id, 16 hex digits.
    #[prost(string, tag = "1")]
    pub run_id: String,
    /// The attempt that the writer's session belongs to, from 1; 0 when it has none.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// Points stored.
    #[prost(uint64, tag = "3")]
    pub stored: u64,
    /// Points refused, by reason; they won't be taken later either.
    #[prost(message, repeated, tag = "4")]
    pub refused: Vec<Count>,
    /// The request had come before and was not stored again.
    #[prost(bool, tag = "5")]
    pub duplicate: bool,
    /// Devices whose points were refused as `gpu_reported_elsewhere`, and who reports each.
    #[prost(message, repeated, tag = "6")]
    pub elsewhere: Vec<Elsewhere>,
    /// Which series the refused points are of; at most [`REFUSED_SERIES_MAX`] are named.
    #[prost(message, repeated, tag = "7")]
    pub refused_series: Vec<RefusedSeries>,
}

/// A series of the request that points were refused of.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RefusedSeries {
    /// Its place in [`PushRequest::series`], from 0.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Bounded reason, one of those in [`PushResponse::refused`].
    #[prost(string, tag = "2")]
    pub reason: String,
    /// How many points.
    #[prost(uint64, tag = "3")]
    pub count: u64,
}

/// A device that another process of the run reports, one that shares the machine and no lock.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Elsewhere {
    /// The refused series' label `gpu`.
    #[prost(uint32, tag = "1")]
    pub gpu: u32,
    /// Host of the process that reports the device.
    #[prost(string, tag = "2")]
    pub host: String,
    /// Its process id, as it sees it.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// Its rank in the job.
    #[prost(uint32, optional, tag = "4")]
    pub rank: Option<u32>,
}

/// Why a body is not a push request.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// Not zstd.
    #[error("the body is not whole zstd data: {0}")]
    Compression(#[source] std::io::Error),
    /// More than [`DECOMPRESSED_BYTES_MAX`].
    #[error("the body is over {limit} bytes when decompressed")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
    /// More than [`ELEMENTS_MAX`].
    #[error("the body holds more than {ELEMENTS_MAX} series, labels and attributes: send it in parts")]
    TooMany,
    /// Not the protobuf message.
    #[error("the body is not a push request: {0}")]
    Malformed(#[source] prost::DecodeError),
    /// A field that is missing or contradicts another.
    #[error("the push request is not usable: {0}")]
    Invalid(String),
}

/// Packs a request as it travels and as it rests in a spool.
pub fn encode(request: &PushRequest) -> Result<Vec<u8>, PushError> {
    zstd::bulk::compress(&request.encode_to_vec(), 1).map_err(PushError::Compression)
}

/// Unpacks a zstd body; memory stays within a small multiple of [`DECOMPRESSED_BYTES_MAX`].
pub fn decode(body: &[u8]) -> Result<PushRequest, PushError> {
    decode_plain(&decompress(body)?)
}

/// Unpacks what a zstd body holds, for [`decode_plain`] or [`read`].
pub fn decompress(body: &[u8]) -> Result<Vec<u8>, PushError> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(PushError::Compression)?;
    decoder.window_log_max(25).map_err(PushError::Compression)?;
    let mut plain = Vec::new();
    decoder
        .take(DECOMPRESSED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(PushError::Compression)?;
    Ok(plain)
}

/// Reads a server's answer; `None` when it is none.
pub fn read_response(answer: &[u8]) -> Option<PushResponse> {
    PushResponse::decode(answer).ok()
}

/// Unpacks a body that is not compressed.
pub fn decode_plain(plain: &[u8]) -> Result<PushRequest, PushError> {
    check_size(plain)?;
    let request = PushRequest::decode(plain).map_err(PushError::Malformed)?;
    check(&request)?;
    Ok(request)
}

/// A request by what it is about.
#[derive(Debug)]
pub enum Read {
    /// A run.
    Run(PushRequest),
    /// A node.
    Node(NodeRequest),
}

/// A request about a node. Its series are read one by one: their reader knows most of them by their bytes.
#[derive(Debug)]
pub struct NodeRequest {
    /// All but the series.
    pub rest: PushRequest,
    plain: Vec<u8>,
    series: Vec<Range<usize>>,
}

/// Does as [`decode_plain`], but leaves the series of a node as they lie.
pub fn read(plain: Vec<u8>) -> Result<Read, PushError> {
    check_size(&plain)?;
    let (mut series, mut others, mut is_of_node) = (Vec::new(), Vec::new(), false);
    let mut behind = &plain[..];
    while !behind.is_empty() {
        let piece = take(&mut behind)?;
        let end = plain.len() - behind.len();
        match (piece.number, piece.inner) {
            (5, Some(inner)) => series.push(end - inner.len()..end),
            _ => others.push(end - piece.whole.len()..end),
        }
        is_of_node |= piece.number == 10;
    }
    if !is_of_node {
        return decode_plain(&plain).map(Read::Run);
    }
    let others: Vec<u8> = others.into_iter().flat_map(|range| &plain[range]).copied().collect();
    let rest = PushRequest::decode(&others[..]).map_err(PushError::Malformed)?;
    check(&rest)?;
    Ok(Read::Node(NodeRequest { rest, plain, series }))
}

fn check_size(plain: &[u8]) -> Result<(), PushError> {
    if plain.len() > DECOMPRESSED_BYTES_MAX {
        return Err(PushError::TooLarge { limit: DECOMPRESSED_BYTES_MAX });
    }
    if count_elements(plain)? > ELEMENTS_MAX {
        return Err(PushError::TooMany);
    }
    Ok(())
}

fn check(request: &PushRequest) -> Result<(), PushError> {
    if request.client_id.len() != 16 {
        let found = request.client_id.len();
        return Err(PushError::Invalid(format!("`client_id` has {found} bytes, 16 are wanted")));
    }
    if request.sequence == 0 {
        return Err(PushError::Invalid("`sequence` is 0, it counts from 1".into()));
    }
    check_subject(request)
}

impl NodeRequest {
    /// How many series there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// What it holds in memory, bytes, near enough.
    pub fn bytes(&self) -> usize {
        self.plain.len() + self.series.len() * size_of::<Range<usize>>()
    }

    fn series_bytes(&self, at: usize) -> &[u8] {
        self.series.get(at).and_then(|range| self.plain.get(range.clone())).unwrap_or_default()
    }

    /// Reads the series at a place.
    pub fn series(&self, at: usize) -> Result<Series, PushError> {
        Series::decode(self.series_bytes(at)).map_err(PushError::Malformed)
    }

    /// Adds the bytes of the name and the labels of the series at a place to `key`, and its points to `samples`,
    /// which is emptied first. Equal bytes are an equal name and equal labels. False where it has to be read as
    /// a whole: it has steps, or is not written as usual.
    pub fn outline(&self, at: usize, key: &mut Vec<u8>, samples: &mut Vec<Sample>) -> bool {
        samples.clear();
        outline(self.series_bytes(at), key, samples).is_some()
    }
}

fn outline(mut rest: &[u8], key: &mut Vec<u8>, samples: &mut Vec<Sample>) -> Option<()> {
    let (mut times, mut values) = (None, None);
    while !rest.is_empty() {
        let Piece { number, inner, whole } = take(&mut rest).ok()?;
        let inner = inner?;
        match number {
            1 | 2 => key.extend_from_slice(whole),
            // A scale says what steps are.
            3 => {}
            4 if times.is_none() => times = Some(inner.as_chunks::<8>()),
            5 if values.is_none() => values = Some(inner.as_chunks::<8>()),
            _ => return None,
        }
    }
    let ((times, []), (values, [])) = (times?, values?) else { return None };
    if times.len() != values.len() {
        return None;
    }
    let mut time_ns = 0i64;
    samples.extend(times.iter().zip(values).map(|(delta, value)| {
        time_ns = time_ns.wrapping_add(i64::from_le_bytes(*delta));
        Sample { time_ns, value: f64::from_le_bytes(*value), step: None }
    }));
    Some(())
}

/// A request is about a run or about a node.
fn check_subject(request: &PushRequest) -> Result<(), PushError> {
    let invalid = |what: &str| Err(PushError::Invalid(what.into()));
    match (&request.node, &request.run) {
        (Some(_), Some(_)) => invalid("it is about a `run` and a `node`, one of them is wanted"),
        (Some(node), None) if node.host.is_empty() => invalid("`node` has no `host`"),
        (Some(node), None) if node.agent_id.len() != 16 => invalid("the node's `agent_id` is not 16 bytes"),
        (None, run) if run.as_ref().is_none_or(|run| run.run.is_empty()) => invalid("`run` has no name"),
        _ => Ok(()),
    }
}

/// Counts length-delimited fields at the top and one level below series and events, without allocating: an
/// empty message is two bytes here and a hundred in memory.
fn count_elements(plain: &[u8]) -> Result<usize, PushError> {
    let mut elements = 0;
    walk::<PushError>(plain, &mut |field, inner| {
        elements += 1;
        // Series and events.
        if field == 5 || field == 11 {
            walk::<PushError>(inner, &mut |_, _| {
                elements += 1;
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(elements)
}

impl From<FieldError> for PushError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Number(error) => Self::Malformed(error),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl Run {
    /// The model's form.
    pub fn to_path(&self) -> RunPath {
        RunPath {
            organization: self.organization.clone(),
            workspace: self.workspace.clone(),
            project: self.project.clone(),
            run: self.run.clone(),
        }
    }
}

impl From<&RunPath> for Run {
    fn from(path: &RunPath) -> Self {
        Self {
            organization: path.organization.clone(),
            workspace: path.workspace.clone(),
            project: path.project.clone(),
            run: path.run.clone(),
        }
    }
}

impl Series {
    /// Packs `samples`, which all have a step or all have none: the first one decides.
    pub fn new(name: &str, labels: &[(String, String)], scale: &str, samples: &[Sample]) -> Self {
        let has_steps = samples.first().is_some_and(|s| s.step.is_some());
        let deltas = |of: &dyn Fn(&Sample) -> i64| {
            let mut last = 0i64;
            samples
                .iter()
                .map(|sample| {
                    let this = of(sample);
                    let delta = this.wrapping_sub(last);
                    last = this;
                    delta
                })
                .collect()
        };
        Self {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|(key, value)| Label { key: key.clone(), value: value.clone() })
                .collect(),
            scale: scale.to_owned(),
            time_deltas: deltas(&|s| s.time_ns),
            values: samples.iter().map(|s| s.value).collect(),
            step_deltas: if has_steps { deltas(&|s| s.step.unwrap_or_default()) } else { Vec::new() },
        }
    }

    /// Unpacks the points; columns of unequal length are an error.
    pub fn samples(&self) -> Result<Vec<Sample>, PushError> {
        let (times, steps) = (self.time_deltas.len(), self.step_deltas.len());
        if times != self.values.len() || (steps != 0 && steps != times) {
            let values = self.values.len();
            return Err(PushError::Invalid(format!(
                "series {:?} has {times} times, {values} values and {steps} steps",
                self.name
            )));
        }
        let (mut time_ns, mut step) = (0i64, 0i64);
        Ok((0..times)
            .map(|at| {
                time_ns = time_ns.wrapping_add(self.time_deltas[at]);
                let step = (steps > 0).then(|| {
                    step = step.wrapping_add(self.step_deltas[at]);
                    step
                });
                Sample { time_ns, value: self.values[at], step }
            })
            .collect())
    }
}

impl From<&model::Event> for Event {
    fn from(event: &model::Event) -> Self {
        let label = |(key, value): &(String, String)| Label { key: key.clone(), value: value.clone() };
        Self {
            time_ns: event.time_ns,
            kind: event.kind.clone(),
            severity: event.severity.name().to_owned(),
            key: event.key.clone(),
            labels: event.labels.iter().map(label).collect(),
            text: event.text.clone(),
            body: event.body.clone(),
        }
    }
}

impl Event {
    /// The model's form; a severity that nobody knows is a warning: a newer agent means something by it.
    pub fn to_model(&self) -> model::Event {
        model::Event {
            time_ns: self.time_ns,
            kind: self.kind.clone(),
            severity: model::Severity::named(&self.severity).unwrap_or(model::Severity::Warning),
            key: self.key.clone(),
            labels: self.labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
            text: self.text.clone(),
            body: self.body.clone(),
        }
    }
}

impl From<&SessionEvent> for Session {
    fn from(event: &SessionEvent) -> Self {
        let facts = &event.facts;
        Self {
            time_ms: event.time_ns / model::NANOS_PER_MILLI,
            event: match event.end {
                Some(SessionEnd::Finished) => 3,
                Some(SessionEnd::Failed) => 4,
                Some(SessionEnd::Left) => 5,
                None if event.opens => 1,
                None => 2,
            },
            reason: event.reason.clone(),
            host: facts.host.clone(),
            pid: facts.pid,
            rank: facts.rank,
            world_size: facts.world_size,
            job_token: facts.job_token.clone(),
            restart_count: facts.restart_count,
            client_version: facts.client_version.clone(),
        }
    }
}

impl Session {
    fn to_event(&self) -> Result<SessionEvent, PushError> {
        Ok(SessionEvent {
            time_ns: self.time_ms.saturating_mul(model::NANOS_PER_MILLI),
            opens: self.event == 1,
            end: match self.event {
                1 | 2 => None,
                3 => Some(SessionEnd::Finished),
                4 => Some(SessionEnd::Failed),
                5 => Some(SessionEnd::Left),
                other => return Err(PushError::Invalid(format!("session event {other} is not known"))),
            },
            reason: self.reason.clone(),
            facts: SessionFacts {
                host: self.host.clone(),
                pid: self.pid,
                rank: self.rank,
                world_size: self.world_size,
                job_token: self.job_token.clone(),
                restart_count: self.restart_count,
                client_version: self.client_version.clone(),
                ..SessionFacts::default()
            },
        })
    }
}

impl Attribute {
    /// Packs a fact.
    pub fn new(key: &str, value: &AttributeValue, if_absent: bool) -> Self {
        let value = match value {
            AttributeValue::Null => None,
            AttributeValue::Bool(value) => Some(Value::Bool(*value)),
            AttributeValue::Int(value) => Some(Value::Int(*value)),
            AttributeValue::Float(value) => Some(Value::Float(*value)),
            AttributeValue::Text(value) => Some(Value::Text(value.clone())),
        };
        Self { key: key.to_owned(), if_absent, value }
    }
}

impl From<&TagChange> for Tag {
    fn from(change: &TagChange) -> Self {
        let (action, tag) = match change {
            TagChange::Add(tag) => (1, tag.clone()),
            TagChange::Remove(tag) => (2, tag.clone()),
            TagChange::Clear => (3, String::new()),
        };
        Self { action, tag }
    }
}

impl PushRequest {
    /// The change to the run that this request asks for.
    pub fn run_change(&self) -> Result<RunChange, PushError> {
        let mut change =
            RunChange { path: self.run.clone().unwrap_or_default().to_path(), ..RunChange::default() };
        if let Some(session) = &self.session {
            let writer = <[u8; 16]>::try_from(self.client_id.as_slice())
                .ok()
                .ok_or_else(|| PushError::Invalid("`client_id` is not 16 bytes".into()))?;
            change.session = Some((writer, session.to_event()?));
        }
        for attribute in &self.attributes {
            let value = match &attribute.value {
                None => AttributeValue::Null,
                Some(Value::Bool(value)) => AttributeValue::Bool(*value),
                Some(Value::Int(value)) => AttributeValue::Int(*value),
                Some(Value::Float(value)) => AttributeValue::Float(*value),
                Some(Value::Text(value)) => AttributeValue::Text(value.clone()),
            };
            let to =
                if attribute.if_absent { &mut change.attributes_if_absent } else { &mut change.attributes };
            to.push((attribute.key.clone(), value));
        }
        for tag in &self.tags {
            change.tags.push(match tag.action {
                1 => TagChange::Add(tag.tag.clone()),
                2 => TagChange::Remove(tag.tag.clone()),
                3 => TagChange::Clear,
                other => return Err(PushError::Invalid(format!("tag action {other} is not known"))),
            });
        }
        change.description.clone_from(&self.description);
        change.dropped = self.dropped.iter().map(|c| (c.reason.clone(), c.count)).collect();
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(series: Vec<Series>) -> PushRequest {
        let run = Run { run: "r".into(), ..Run::default() };
        PushRequest { client_id: vec![7; 16], sequence: 1, run: Some(run), series, ..PushRequest::default() }
    }

    proptest! {
        #[test]
        fn points_survive_the_journey(
            points in prop::collection::vec((any::<i64>(), any::<f64>(), any::<i64>()), 0..50),
            has_steps: bool,
        ) {
            let samples: Vec<Sample> = points
                .into_iter()
                .map(|(time_ns, value, step)| Sample { time_ns, value, step: has_steps.then_some(step) })
                .collect();
            let sent = request(vec![Series::new("loss", &[("a".into(), "b".into())], "", &samples)]);
            let got = decode(&encode(&sent).unwrap()).unwrap();
            let back = got.series[0].samples().unwrap();
            prop_assert_eq!(back.len(), samples.len());
            for (a, b) in back.iter().zip(&samples) {
                prop_assert_eq!((a.time_ns, a.step, a.value.to_bits()), (b.time_ns, b.step, b.value.to_bits()));
            }
        }

        #[test]
        fn rubbish_is_an_error_not_a_panic(body: Vec<u8>) {
            let _ = decode(&body);
            let _ = decode_plain(&body);
            // The same behind a node, where series are left as they lie.
            let mut of_node = of_node(Vec::new()).encode_to_vec();
            of_node.extend(&body);
            if let Ok(Read::Node(request)) = read(of_node) {
                (0..request.len()).for_each(|at| _ = request.outline(at, &mut Vec::new(), &mut Vec::new()));
            }
        }

        #[test]
        fn a_nodes_series_are_read_as_they_are_decoded(
            names in prop::collection::vec(("[ab]{0,2}", "[ab]{0,1}"), 1..6),
            points in prop::collection::vec((any::<i64>(), -1e9..1e9), 0..4),
        ) {
            let samples: Vec<Sample> =
                points.into_iter().map(|(time_ns, value)| Sample { time_ns, value, step: None }).collect();
            let series = |(name, label): &(String, String)| {
                Series::new(name, &[("host".into(), label.clone())], "", &samples)
            };
            let sent = of_node(names.iter().map(series).collect());
            let request = nodes(sent.encode_to_vec());
            prop_assert_eq!(request.len(), sent.series.len());
            let mut keys = Vec::new();
            for (at, series) in sent.series.iter().enumerate() {
                prop_assert_eq!(&request.series(at).unwrap(), series);
                let (mut key, mut found) = (Vec::new(), Vec::new());
                // A series without points has no columns.
                prop_assert_eq!(request.outline(at, &mut key, &mut found), !samples.is_empty());
                prop_assert!(samples.is_empty() || found == samples);
                keys.push(key);
            }
            for (a, b) in (0..names.len()).flat_map(|a| (0..names.len()).map(move |b| (a, b))) {
                prop_assert_eq!(keys[a] == keys[b], names[a] == names[b]);
            }
        }
    }

    fn of_node(series: Vec<Series>) -> PushRequest {
        let node = Some(Node { host: "n1".into(), agent_id: vec![1; 16], ..Node::default() });
        PushRequest { run: None, node, ..request(series) }
    }

    fn nodes(plain: Vec<u8>) -> NodeRequest {
        match read(plain).unwrap() {
            Read::Node(request) => request,
            Read::Run(run) => panic!("{run:?} is about a run"),
        }
    }

    #[test]
    fn what_is_not_written_as_usual_is_decoded() {
        let sample = |step| [Sample { time_ns: 5, value: 2.0, step }];
        let with_step = Series::new("a", &[], "", &sample(Some(3)));
        let mut sent = of_node(Vec::new()).encode_to_vec();
        // A column in two parts, as a sender may write it.
        let mut in_parts = Series::new("a", &[], "", &sample(None)).encode_to_vec();
        in_parts
            .extend(Series { values: vec![7.0], time_deltas: vec![1], ..Series::default() }.encode_to_vec());
        for series in [with_step.encode_to_vec(), in_parts, vec![0x0a, 1, 0xff]] {
            sent.extend([0x2a, u8::try_from(series.len()).unwrap()]);
            sent.extend(series);
        }
        let request = nodes(sent);
        let outline = |at| request.outline(at, &mut Vec::new(), &mut Vec::new());
        assert_eq!([outline(0), outline(1), outline(2)], [false; 3]);
        assert_eq!(request.series(0).unwrap(), with_step);
        assert_eq!(request.series(1).unwrap().samples().unwrap().len(), 2);
        assert!(matches!(request.series(2), Err(PushError::Malformed(_))));
        assert!(
            matches!(read(request_of_run().encode_to_vec()), Ok(Read::Run(run)) if run == request_of_run())
        );
    }

    fn request_of_run() -> PushRequest {
        request(vec![Series::new("loss", &[], "", &[Sample { time_ns: 1, value: 1.0, step: Some(1) }])])
    }

    #[test]
    fn bomb_is_refused_before_it_grows() {
        let body = zstd::bulk::compress(&vec![0u8; DECOMPRESSED_BYTES_MAX + 10], 1).unwrap();
        assert!(matches!(decode(&body), Err(PushError::TooLarge { .. })), "{:?}", decode(&body).err());
        let empties = [0x2a, 0].repeat(ELEMENTS_MAX + 1);
        assert!(matches!(decode_plain(&empties), Err(PushError::TooMany)));
    }

    #[test]
    fn columns_of_unequal_length_are_refused() {
        let series = Series { time_deltas: vec![1, 1], values: vec![0.0], ..Series::default() };
        assert!(series.samples().is_err());
    }

    #[test]
    fn a_request_says_who_writes_and_to_what() {
        let check = |change: &dyn Fn(&mut PushRequest)| {
            let mut sent = request(Vec::new());
            change(&mut sent);
            assert!(matches!(decode(&encode(&sent).unwrap()), Err(PushError::Invalid(_))));
        };
        check(&|r| r.client_id.truncate(3));
        check(&|r| r.sequence = 0);
        check(&|r| r.run = None);
        let node = || Some(Node { host: "n1".into(), agent_id: vec![1; 16], ..Node::default() });
        check(&|r| r.node = node());
        check(&|r| (r.run, r.node) = (None, Some(Node { host: String::new(), ..node().unwrap() })));
        check(&|r| (r.run, r.node) = (None, Some(Node { agent_id: Vec::new(), ..node().unwrap() })));
        let mut sent = request(Vec::new());
        sent.events.push(Event { kind: "run".into(), ..Event::default() });
        assert_eq!(decode(&encode(&sent).unwrap()).unwrap(), sent);
        (sent.run, sent.node) = (None, node());
        assert_eq!(decode(&encode(&sent).unwrap()).unwrap(), sent);
    }

    #[test]
    fn an_event_survives_the_journey() {
        let event = model::Event {
            time_ns: -5,
            kind: "xid".into(),
            severity: model::Severity::Critical,
            key: "boot/7".into(),
            labels: vec![("host".into(), "n1".into()), ("uuid".into(), "GPU-1".into())],
            text: "NVRM: Xid".into(),
            body: "{}".into(),
        };
        assert_eq!(Event::from(&event).to_model(), event);
        let odd = Event { severity: "fatal".into(), ..Event::default() };
        assert_eq!(odd.to_model().severity, model::Severity::Warning);
    }
}
