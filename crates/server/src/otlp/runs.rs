//! Runs that are seen through their telemetry: whom a request came from, and what that says of a run.
//!
//! A run appears by itself from `nemo.run.id`; `truegauge.run_id`, which `tg.init` puts into the
//! environment, joins the run that it opened. Every process is a session: it is alive while it exports,
//! and silent after three of its own export intervals. Another incarnation is another attempt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{
    AttributeValue, NANOS_PER_SECOND, RunChange, RunId, RunPath, RunRecord, Session, SessionEvent,
    SessionFacts, WriterId,
};
use semconv::attributes::{self, Place};
use sha2::{Digest, Sha256};
use wire::otlp::answer::Signal;
use wire::otlp::{Refusal, Resource, is_text_key};

use super::steps::StepLines;
use crate::access::Caller;
use crate::app::Shared;
use crate::ingest;

/// In front of the keys of a run's attributes that came with its telemetry.
pub(crate) const ATTRIBUTE_PREFIX: &str = "otel/";

/// A sign of life is written down when the last is this old, nanoseconds: spans come more often, and each
/// would rewrite the session's row.
const HEARTBEAT_NS: i64 = 5 * NANOS_PER_SECOND;
/// Export intervals that a process may be silent.
const SILENT_INTERVALS: i64 = 3;
/// The least silence that counts, seconds.
const SILENT_SECONDS_MIN: i64 = 30;
/// The silence while the interval is not known: three of the longest that is usual.
const SILENT_SECONDS_UNKNOWN: u32 = 180;
/// The longest silence that counts, seconds.
const SILENT_SECONDS_MAX: i64 = 86_400;
/// Times between exports that the interval is the median of.
const INTERVALS_KEPT: usize = 5;
/// Processes remembered; what is forgotten is read from the store again.
const SOURCES_MAX: usize = 100_000;
/// Bytes of resources remembered, near enough; what is forgotten is read again. What a resource says is at
/// most as long as the resource is.
const DESCRIBED_BYTES_MAX: usize = 32 << 20;
/// Bytes of a remembered resource beside those that it was sent in.
const DESCRIBED_BYTES: usize = 1_024;
/// Longest text of an attribute that is kept, bytes.
const TEXT_BYTES_MAX: usize = 4_096;

/// Keys of a process rather than of its run.
const OF_PROCESS: [&str; 6] =
    ["host.name", "host.id", "service.instance.id", "truegauge.run_id", "container.id", "container.name"];
/// Starts of keys of a process rather than of its run.
const OF_PROCESS_PREFIXES: [&str; 4] = ["process.", "k8s.pod.", "k8s.node.", "nv.gpu."];
/// Fields of a process rather than of its run.
const FIELDS_OF_PROCESS: [&str; 6] = ["run_id", "rank", "local_rank", "gpu_uuid", "gpu_index", "incarnation"];

/// What is known of the processes that sent something since the server started.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    known: Mutex<HashMap<WriterId, Known>>,
    /// Iterations of runs, as their processes told them.
    pub(crate) step_lines: StepLines,
    described: Mutex<Resources>,
}

/// By the bytes of resources: the run and what the resource says of its process.
#[derive(Debug, Default)]
struct Resources {
    of: HashMap<Box<[u8]>, DescribedOf>,
    bytes: usize,
}

/// What is known of one process.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The sign of life that was last written down.
    written_ns: i64,
    silent_after_seconds: u32,
    /// Time of the latest data points.
    points_ns: Option<i64>,
    /// Times between the latest exports of metrics, in the order that they came.
    intervals_ns: Vec<i64>,
    /// Hash of the attributes that were kept last.
    attributes: u64,
}

impl Known {
    fn of(session: &Session) -> Self {
        let silent_after_seconds = session.facts.silent_after_seconds;
        Self { written_ns: session.heartbeat_ns, silent_after_seconds, ..Self::default() }
    }

    /// Learns the interval from the time of an export's points.
    fn exported(&mut self, time_ns: i64) {
        let before_ns = self.points_ns.unwrap_or(time_ns);
        self.points_ns = Some(before_ns.max(time_ns));
        let interval_ns = time_ns.saturating_sub(before_ns);
        // Parts of one export are moments apart.
        if interval_ns >= NANOS_PER_SECOND / 2 {
            if self.intervals_ns.len() == INTERVALS_KEPT {
                self.intervals_ns.remove(0);
            }
            self.intervals_ns.push(interval_ns);
        }
    }

    /// Time between two exports of metrics.
    fn interval_ns(&self) -> Option<i64> {
        let mut sorted = self.intervals_ns.clone();
        sorted.sort_unstable();
        // Of two the longer: to be told late is better than to be told wrongly.
        sorted.get(sorted.len() / 2).copied()
    }

    /// The silence after which it no longer counts as alive, seconds.
    fn silent_after_seconds(&self) -> u32 {
        let Some(interval_ns) = self.interval_ns() else {
            return if self.silent_after_seconds == 0 {
                SILENT_SECONDS_UNKNOWN
            } else {
                self.silent_after_seconds
            };
        };
        let seconds =
            (interval_ns.saturating_mul(SILENT_INTERVALS) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
        let seconds = seconds.clamp(SILENT_SECONDS_MIN, SILENT_SECONDS_MAX) as u32;
        // A timer's jitter is not worth a word.
        let old = self.silent_after_seconds;
        if old.abs_diff(seconds) * 20 <= old { old } else { seconds }
    }
}

impl Sources {
    fn lock(&self) -> MutexGuard<'_, HashMap<WriterId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The silence after which a process counts as gone, from which its interval follows.
    fn known(&self, shared: &Shared, run: RunId, writer: WriterId) -> Option<Known> {
        if let Some(known) = self.lock().get(&writer) {
            return Some(known.clone());
        }
        let run = shared.store.run(run)?;
        run.sessions.iter().rev().find(|session| session.writer == writer).map(Known::of)
    }

    /// How often a process exports its metrics, seconds; none where it is not known.
    pub(crate) fn interval_seconds(&self, session: &Session) -> Option<f64> {
        if let Some(interval_ns) = self.lock().get(&session.writer).and_then(Known::interval_ns) {
            return Some((interval_ns as f64 / 1e8).round() / 10.0);
        }
        let seconds = session.facts.silent_after_seconds;
        // The bounds of that silence tell no interval.
        let told = i64::from(seconds) > SILENT_SECONDS_MIN && seconds != SILENT_SECONDS_UNKNOWN;
        told.then(|| f64::from(seconds) / SILENT_INTERVALS as f64)
    }

    /// What a resource says of its process, looked up where it said so before.
    fn described(&self, resource: &Resource<'_>, path: &Arc<RunPath>) -> Arc<Described> {
        let mut all = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, of)) = all.of.get(resource.bytes).filter(|(run, _)| run == path) {
            return Arc::clone(of);
        }
        let of = Arc::new(described(resource, path));
        let bytes = 2 * resource.bytes.len() + DESCRIBED_BYTES;
        if all.bytes + bytes > DESCRIBED_BYTES_MAX {
            *all = Resources::default();
        }
        // One that would fill it alone is read every time.
        if bytes <= DESCRIBED_BYTES_MAX
            && all.of.insert(resource.bytes.into(), (Arc::clone(path), Arc::clone(&of))).is_none()
        {
            all.bytes += bytes;
        }
        of
    }

    fn keep(&self, writer: WriterId, known: Known) {
        let mut all = self.lock();
        if all.len() >= SOURCES_MAX {
            all.clear();
        }
        all.insert(writer, known);
    }
}

/// Whom the elements of one request came from.
///
/// Note every resource, put [`Seen::changes`] into the batch, and tell that it is durable with
/// [`Seen::stored`].
pub(crate) struct Seen<'s> {
    shared: &'s Shared,
    caller: &'s Caller,
    /// By the resource's bytes.
    places: HashMap<Vec<u8>, usize>,
    noted: Vec<Noted>,
    /// The one that was noted last: most requests have one resource.
    last: Option<(Vec<u8>, usize)>,
}

/// A resource of the request.
struct Noted {
    /// Its run, where it names one; a refusal where that can't be.
    run: Result<Option<Arc<RunPath>>, Refusal>,
    process: Option<Process>,
    first_ns: i64,
    last_ns: i64,
    /// Time of the latest data points.
    points_ns: Option<i64>,
}

/// A process that belongs to a run.
struct Process {
    of: Arc<Described>,
    /// As it will be once this is durable.
    known: Option<Known>,
}

/// What a resource says of its process, as one of a run.
type DescribedOf = (Arc<RunPath>, Arc<Described>);

/// What a resource says of its process.
#[derive(Debug)]
struct Described {
    writer: WriterId,
    facts: SessionFacts,
    attributes: Vec<(String, AttributeValue)>,
    /// Of the attributes.
    hash: u64,
    /// Whether it has joined a run that `tg.init` opened, whose own sessions tell of its life: of one that
    /// ended, nothing is to fall silent.
    is_joined: bool,
}

impl<'s> Seen<'s> {
    /// Nobody yet. `caller` may only speak of runs that it sees.
    pub(crate) fn new(shared: &'s Shared, caller: &'s Caller) -> Self {
        Self { shared, caller, places: HashMap::new(), noted: Vec::new(), last: None }
    }

    /// Notes that something came from a resource, at times between the two; returns its run, where it
    /// names one. Cheap when the resource was noted before.
    pub(crate) fn note(
        &mut self,
        resource: &Resource<'_>,
        (first_ns, last_ns): (i64, i64),
        signal: Signal,
    ) -> Result<Option<Arc<RunPath>>, Refusal> {
        let at = match &self.last {
            Some((bytes, at)) if *bytes == resource.bytes => *at,
            _ => self.place(resource),
        };
        let noted = &mut self.noted[at];
        noted.first_ns = noted.first_ns.min(first_ns);
        noted.last_ns = noted.last_ns.max(last_ns);
        if matches!(signal, Signal::Metrics) {
            noted.points_ns = noted.points_ns.max(Some(last_ns));
        }
        noted.run.clone()
    }

    /// A number of the process that was noted last, which it has not when it is started again; 0 where it
    /// is of no run.
    pub(crate) fn incarnation(&self) -> u32 {
        let noted = self.last.as_ref().and_then(|(_, at)| self.noted.get(*at));
        let writer = noted.and_then(|noted| noted.process.as_ref()).map(|process| process.of.writer);
        writer.map_or(0, |[a, b, c, d, ..]| u32::from_le_bytes([a, b, c, d]) | 1)
    }

    fn place(&mut self, resource: &Resource<'_>) -> usize {
        let at = self.places.get(resource.bytes).copied().unwrap_or_else(|| {
            self.noted.push(self.noted_of(resource));
            self.places.insert(resource.bytes.to_vec(), self.noted.len() - 1);
            self.noted.len() - 1
        });
        self.last = Some((resource.bytes.to_vec(), at));
        at
    }

    fn noted_of(&self, resource: &Resource<'_>) -> Noted {
        let run = self.run_of(resource);
        let process = run.as_ref().ok().and_then(Option::as_ref).map(|path| {
            let of = self.shared.sources.described(resource, path);
            Process { of, known: None }
        });
        Noted { run, process, first_ns: i64::MAX, last_ns: i64::MIN, points_ns: None }
    }

    fn run_of(&self, resource: &Resource<'_>) -> Result<Option<Arc<RunPath>>, Refusal> {
        let joined = resource.run_id().and_then(|id| self.shared.store.run(id)).map(|run| run.path.clone());
        let path = joined.or_else(|| resource.run());
        if let Some(path) = &path {
            ingest::check_path(path).map_err(|text| Refusal::told("run_name", text))?;
        }
        let nobodys = RunPath::default();
        if self.caller.check_path(path.as_ref().unwrap_or(&nobodys)).is_err() {
            let text = "the token is confined to other projects: `service.name` is the project, \
                        `slurm.cluster.name` the workspace";
            return Err(Refusal::new("not_allowed", text));
        }
        Ok(path.map(Arc::new))
    }

    /// What the request says of its runs beside its elements: signs of life and attributes. Empty where
    /// all of it was written down a moment ago.
    pub(crate) fn changes(&mut self, now_ns: i64) -> Vec<RunChange> {
        let shared = self.shared;
        self.noted.iter_mut().flat_map(|noted| noted.changes(shared, now_ns)).collect()
    }

    /// The changes are durable: remembers them, and tells those who watch the runs.
    pub(crate) fn stored(self) {
        let mut last = None;
        for noted in self.noted {
            let Ok(Some(run)) = noted.run else { continue };
            let id = run.id();
            if last != Some(id) {
                self.shared.changed(id);
                last = Some(id);
            }
            if let Some(Process { of, known: Some(known) }) = noted.process {
                self.shared.sources.keep(of.writer, known);
            }
        }
    }
}

impl Noted {
    fn changes(&mut self, shared: &Shared, now_ns: i64) -> Vec<RunChange> {
        let (Ok(Some(path)), Some(process)) = (&self.run, &mut self.process) else { return Vec::new() };
        if self.first_ns > self.last_ns {
            return Vec::new();
        }
        let known = shared.sources.known(shared, path.id(), process.of.writer);
        let opens = known.is_none();
        let mut is = known.unwrap_or_default();
        if let Some(points_ns) = self.points_ns {
            is.exported(points_ns);
        }
        // What a clock that is ahead says must not keep a run alive that is gone.
        let (first_ns, last_ns) = (self.first_ns.min(now_ns), self.last_ns.min(now_ns));
        let silent_after_seconds = is.silent_after_seconds();
        let has_new_attributes = is.attributes != process.of.hash;
        let says_nothing = !opens
            && !has_new_attributes
            && silent_after_seconds == is.silent_after_seconds
            && last_ns.saturating_sub(is.written_ns) < HEARTBEAT_NS;
        let mut changes = Vec::new();
        if process.of.is_joined {
            if has_new_attributes {
                is.attributes = process.of.hash;
                changes.extend(facts_only(shared, path, &process.of));
            }
        } else if !says_nothing {
            is.silent_after_seconds = silent_after_seconds;
            is.written_ns = is.written_ns.max(last_ns);
            let facts = SessionFacts { silent_after_seconds, ..process.of.facts.clone() };
            let signed = |time_ns, opens, facts| RunChange {
                path: (**path).clone(),
                session: Some((process.of.writer, event(time_ns, opens, facts))),
                ..RunChange::default()
            };
            // A session starts with the first that it sends of. It may bring much at once, as after the
            // network was away, and lives until the last of that.
            if opens {
                changes.push(signed(first_ns, true, facts.clone()));
            }
            let mut change = signed(last_ns, false, facts);
            if has_new_attributes {
                change.attributes = new_attributes(shared, path.id(), &process.of.attributes);
                is.attributes = process.of.hash;
                ingest::check_change(shared, &mut change, &mut ingest::Refused::default());
            }
            changes.push(change);
        }
        process.known = Some(is);
        changes
    }
}

/// What a process says of its run and not of itself, if that is anything new.
fn facts_only(shared: &Shared, path: &RunPath, of: &Described) -> Option<RunChange> {
    let attributes = new_attributes(shared, path.id(), &of.attributes);
    let mut change = RunChange { path: path.clone(), attributes, ..RunChange::default() };
    ingest::check_change(shared, &mut change, &mut ingest::Refused::default());
    (!change.attributes.is_empty()).then_some(change)
}

fn event(time_ns: i64, opens: bool, facts: SessionFacts) -> SessionEvent {
    SessionEvent { time_ns, opens, end: None, reason: String::new(), facts }
}

/// Those that the run does not have with the same value.
fn new_attributes(
    shared: &Shared,
    run: RunId,
    attributes: &[(String, AttributeValue)],
) -> Vec<(String, AttributeValue)> {
    let run = shared.store.run(run);
    let has = |key: &str, value: &AttributeValue| {
        run.as_ref().is_some_and(|run| run.attributes.get(key) == Some(value))
    };
    attributes.iter().filter(|(key, value)| !has(key, value)).cloned().collect()
}

/// Whether processes of a run export their telemetry.
pub(crate) fn has_telemetry(run: &RunRecord) -> bool {
    let sent = run.attributes.range(ATTRIBUTE_PREFIX.to_owned()..).next();
    run.sessions.iter().any(|session| session.facts.silent_after_seconds > 0)
        || sent.is_some_and(|(key, _)| key.starts_with(ATTRIBUTE_PREFIX))
}

/// The process behind a resource.
fn described(resource: &Resource<'_>, path: &RunPath) -> Described {
    let number = |key: &str| resource.dl_number(key).and_then(|number| u32::try_from(number).ok());
    let restarts = resource.text(&["slurm.restart_count", "nv.dl.restart_count"]);
    let restart_count = restarts.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let slurm_job = resource.text(&["slurm.job.id"]).map(|job| format!("slurm-{job}"));
    let job_token = resource.incarnation().or(slurm_job).unwrap_or_default();
    let pid = resource.attributes.get("process.pid").and_then(|pid| pid.number());
    let facts = SessionFacts {
        host: resource.text(&["host.name", "k8s.node.name", "k8s.pod.name"]).unwrap_or_default(),
        pid: pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        rank: number("rank"),
        world_size: number("world_size"),
        job_token,
        restart_count,
        client_version: client(resource),
        silent_after_seconds: 0,
    };
    let started = resource.text(&["process.creation.time"]).unwrap_or_default();
    let instance = resource.instance().unwrap_or_default();
    let id = path.id().to_string();
    let (pid, rank, restarts) =
        (facts.pid.to_string(), format!("{:?}", facts.rank), restart_count.to_string());
    let parts = ["otlp", &id, &instance, &facts.host, &rank, &facts.job_token, &restarts, &pid, &started];
    let (attributes, hash) = attributes(resource);
    let is_joined = resource.run_id() == Some(path.id());
    Described { writer: writer_of(&parts), facts, attributes, hash, is_joined }
}

/// A session's writer: the same process has the same one, whatever else it sends.
fn writer_of(parts: &[&str]) -> WriterId {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut writer = WriterId::default();
    writer.copy_from_slice(&hash.finalize()[..16]);
    writer
}

/// The client in words: `opentelemetry python 1.45.2`.
fn client(resource: &Resource<'_>) -> String {
    let keys = ["telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version"];
    let said: Vec<String> = keys.iter().filter_map(|key| resource.text(&[key])).collect();
    if said.is_empty() { "otlp".to_owned() } else { said.join(" ") }
}

/// What a resource says of its run, and a hash of it. A field that goes by several names is one.
fn attributes(resource: &Resource<'_>) -> (Vec<(String, AttributeValue)>, u64) {
    use std::hash::{Hash, Hasher};

    let mut out: Vec<(String, AttributeValue)> = Vec::new();
    let mut hasher = std::hash::DefaultHasher::new();
    for (key, value) in &resource.attributes.list {
        if is_text_key(key) || OF_PROCESS.contains(key) || key.is_empty() {
            continue;
        }
        let field = attributes::field(key).filter(|field| field.place == Place::Resource);
        let of_process = OF_PROCESS_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let (name, value) = match field {
            Some(field) if FIELDS_OF_PROCESS.contains(&field.field) => continue,
            Some(field) => (field.field, typed(value, field.kind)),
            None if of_process => continue,
            None => (*key, value.attribute().ok()),
        };
        let Some(value) = value.map(shortened) else { continue };
        let name = format!("{ATTRIBUTE_PREFIX}{name}");
        format!("{name}={value:?}").hash(&mut hasher);
        match out.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => out.push((name, value)),
        }
    }
    // None has 0, which stands for nothing that was kept yet.
    (out, hasher.finish() | 1)
}

/// A value as its field means it; what came through the environment is text.
fn typed(value: &wire::otlp::Value<'_>, kind: attributes::ValueKind) -> Option<AttributeValue> {
    use attributes::ValueKind;

    let text = || value.text().ok();
    Some(match kind {
        ValueKind::Int => {
            value.number().map_or_else(|| value.attribute().ok(), |n| Some(AttributeValue::Int(n)))?
        }
        ValueKind::Float => match text()?.trim().parse() {
            Ok(number) => AttributeValue::Float(number),
            Err(_) => value.attribute().ok()?,
        },
        ValueKind::Text => AttributeValue::Text(text()?.into_owned()),
        ValueKind::Bool => match &*text()?.to_ascii_lowercase() {
            "true" => AttributeValue::Bool(true),
            "false" => AttributeValue::Bool(false),
            _ => value.attribute().ok()?,
        },
    })
}

fn shortened(value: AttributeValue) -> AttributeValue {
    match value {
        AttributeValue::Text(mut text) if text.len() > TEXT_BYTES_MAX => {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            AttributeValue::Text(text)
        }
        value => value,
    }
}
