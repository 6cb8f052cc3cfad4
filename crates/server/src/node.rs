//! Takes what agents say of their nodes: fleet series under canonical names, and events.
//!
//! A node is reported by one agent. The first one to send keeps it as long as it is alive; series of a
//! second one are refused, since two counters of one card under one name are neither's.
//!
//! An agent names the same series with each push. The second time they are learnt by the bytes of their labels
//! (`known`); from then on nothing is read of them but their points.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{Event, LABELS_PER_SERIES_MAX, Sample, Severity, WriterId};
use semconv::canonical::{GPU_INFO, GPU_OWNER_INFO};
use store::{AppendError, Batch, Collision, Receipt, SeriesBatch, SeriesId};
use wire::push::{Count, Node, NodeRequest, PushError, PushResponse, Series};

use crate::app::Shared;
use crate::canonical::Origin;
use crate::clock::now_ns;
use crate::fleet;
use crate::ingest::{Refused, outcome};
use crate::intake;
use crate::owners;
use crate::remediation;
use crate::verdicts;

/// Longest name of a host, bytes.
const HOST_BYTES_MAX: usize = 256;
/// Most nodes that are kept in mind; one beyond is taken all the same.
const NODES_MAX: usize = 1 << 17;
/// The least time without a word after which another agent may report a node.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same in intervals of the agent.
const PATIENCE_INTERVALS: u32 = 3;
/// Longest interval that is believed.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Series that go by name with each push: who owns a card is read from them as they come.
const BY_NAME: [&str; 2] = [GPU_INFO.name, GPU_OWNER_INFO.name];
/// How often, and how long after one another, it is tried to store what went while its points were on the way.
const AGAIN_TRIES: u32 = 50;
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Reason for which points are refused whose series went.
const REMOVED: &str = "series_removed";
/// Reason for which a second agent's series are refused.
const ELSEWHERE: &str = "node_reported_elsewhere";
/// Kinds of events that nobody else may send.
const OWN_KINDS: [&str; 2] = [fleet::INCIDENT_EVENT, remediation::REMEDIATION_EVENT];
/// Bounds of an event, bytes: kind, key, label, text, body.
const KIND_BYTES_MAX: usize = 40;
const KEY_BYTES_MAX: usize = 1 << 10;
const LABEL_BYTES_MAX: usize = 1 << 10;
const TEXT_BYTES_MAX: usize = 8 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;
/// Times of events lie within as many nanoseconds of the epoch, as those of points do.
const TIME_NS_MAX: u64 = 1 << 62;

/// How far the clock of a node may be ahead of the server's for its events' times to be taken, nanoseconds.
const AHEAD_NS_MAX: i64 = 600 * model::NANOS_PER_SECOND;

/// The agents that sent since the server was started.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<HashMap<String, Known>>);

#[derive(Debug)]
struct Known {
    agent: Agent,
    heard: Instant,
    /// Another agent of this node whose series were refused, and when last.
    second: Option<(Vec<u8>, Instant)>,
}

/// An agent, as it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agent {
    /// The node.
    pub(crate) host: String,
    /// The kernel's id of its boot.
    pub(crate) boot_id: String,
    /// Version of the agent.
    pub(crate) version: String,
    /// Its process id.
    pub(crate) pid: u32,
    /// Time between two of its looks.
    pub(crate) interval: Duration,
    /// When it was heard last, by this server's clock, nanoseconds.
    pub(crate) heard_ns: i64,
    /// Whether it said that it ends.
    pub(crate) has_left: bool,
    /// How many agents report the node: 1, or 2 where another one is refused.
    pub(crate) agents: u32,
    id: Vec<u8>,
}

impl Known {
    fn is_alive(&self, now: Instant) -> bool {
        !self.agent.has_left && now.duration_since(self.heard) < self.agent.patience()
    }
}

impl Agent {
    fn of(node: &Node) -> Self {
        let text = |text: &str| crate::ingest::shorten(text.to_owned());
        Self {
            host: node.host.clone(),
            boot_id: text(&node.boot_id),
            version: text(&node.agent_version),
            pid: node.pid,
            interval: Duration::from_millis(node.interval_ms).min(INTERVAL_MAX),
            heard_ns: now_ns(),
            has_left: node.leaves,
            agents: 1,
            id: node.agent_id.clone(),
        }
    }

    /// How long it may be silent before it counts as gone.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.max(self.interval * PATIENCE_INTERVALS)
    }
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agents by node.
    pub(crate) fn list(&self) -> Vec<Agent> {
        let now = Instant::now();
        let agent = |known: &Known| {
            let patience = known.agent.patience();
            let second = known.second.as_ref().filter(|(_, at)| now.duration_since(*at) < patience);
            Agent { agents: 1 + u32::from(second.is_some()), ..known.agent.clone() }
        };
        self.lock().values().map(agent).collect()
    }

    /// Whether an agent may report its node; else who does, and whether that was not known before.
    fn admit(&self, node: &Node) -> Result<(), Box<(Agent, bool)>> {
        let now = Instant::now();
        let mut nodes = self.lock();
        if let Some(known) = nodes.get_mut(&node.host)
            && known.agent.id != node.agent_id
            && known.is_alive(now)
        {
            let is_new = known.second.as_ref().is_none_or(|(id, _)| *id != node.agent_id);
            known.second = Some((node.agent_id.clone(), now));
            return Err(Box::new((known.agent.clone(), is_new)));
        }
        if nodes.len() >= NODES_MAX && !nodes.contains_key(&node.host) {
            nodes.retain(|_, known| known.is_alive(now));
        }
        if nodes.len() < NODES_MAX || nodes.contains_key(&node.host) {
            let second = nodes.get(&node.host).and_then(|known| known.second.clone());
            let second = second.filter(|(id, _)| *id != node.agent_id);
            nodes.insert(node.host.clone(), Known { agent: Agent::of(node), heard: now, second });
        }
        Ok(())
    }
}

/// A node's request, checked and ready for the store.
#[derive(Debug)]
pub(crate) struct Checked {
    host: String,
    /// As it came, for the series whose numbers turn out to lead nowhere.
    request: NodeRequest,
    batch: Batch,
    /// Series of `batch` that go by number, and their places in the request.
    numbered: Vec<(SeriesId, usize)>,
    refused: Refused,
    bytes: usize,
    owners: Option<owners::Pending>,
}

impl Checked {
    /// What it holds in memory, bytes, near enough.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Checks a node's request: unusable as a whole is an error, unusable parts are left out and counted.
pub(crate) fn check(shared: &Shared, mut request: NodeRequest) -> Result<Checked, PushError> {
    let invalid = |what: &str| PushError::Invalid(what.into());
    let writer = <WriterId>::try_from(request.rest.client_id.as_slice());
    let writer = writer.map_err(|_other| invalid("`client_id` is not 16 bytes"))?;
    let node = request.rest.node.take().ok_or_else(|| invalid("it has no `node`"))?;
    if node.host.len() > HOST_BYTES_MAX || node.host.chars().any(char::is_control) {
        let what = format!("the node's `host` is over {HOST_BYTES_MAX} bytes or holds a control character");
        return Err(PushError::Invalid(what));
    }
    let mut refused = Refused::default();
    let mut batch = Batch {
        writer: Some((writer, request.rest.sequence)),
        collision: Collision::LastWriteWins,
        ..Batch::default()
    };
    let taken = match shared.nodes.admit(&node) {
        Ok(()) => take(shared, &node.host, &request, &mut refused)?,
        Err(other) => {
            let (first, is_new) = &*other;
            let mut points = 0;
            for at in 0..request.len() {
                points += request.series(at)?.values.len() as u64;
            }
            if points > 0 {
                refused.add(ELSEWHERE, points, || two_agents(&node, first));
            }
            if *is_new {
                batch.events.push(second_agent(&node, first));
            }
            Taken::default()
        }
    };
    let mut bytes = 1_024 + request.bytes() + taken.bytes();
    (batch.series, batch.points) = (taken.series, taken.points);
    let look = taken.time_ns.map(|time_ns| (&node, time_ns));
    let owners = look.map(|look| shared.owners.complete(&shared.store, look, &mut batch.series));
    for event in std::mem::take(&mut request.rest.events) {
        bytes += event.text.len() + event.body.len() + 512;
        batch.events.extend(check_event(&node.host, event.to_model(), &mut refused));
    }
    fleet::name_owners(shared, &mut batch.events);
    Ok(Checked { host: node.host, request, batch, numbered: taken.numbered, refused, bytes, owners })
}

/// The series of a request that are taken.
#[derive(Debug, Default)]
struct Taken {
    series: Vec<SeriesBatch>,
    points: Vec<(SeriesId, Sample)>,
    /// Those that go by number, and their places in the request.
    numbered: Vec<(SeriesId, usize)>,
    /// Time of the first point.
    time_ns: Option<i64>,
}

impl Taken {
    /// What it holds in memory, bytes, near enough.
    fn bytes(&self) -> usize {
        let of = |series: &SeriesBatch| {
            let labels = series.identity.labels.iter();
            let labels: usize = labels.map(|(name, value)| name.len() + value.len() + 32).sum();
            labels + series.samples.len() * size_of::<Sample>() + 128
        };
        self.series.iter().map(of).sum::<usize>()
            + self.points.len() * size_of::<(SeriesId, Sample)>()
            + self.numbered.len() * size_of::<(SeriesId, usize)>()
    }
}

/// Takes the series of a request: by number where they are known, else by name.
fn take(
    shared: &Shared,
    host: &str,
    request: &NodeRequest,
    refused: &mut Refused,
) -> Result<Taken, PushError> {
    let mut taken = Taken::default();
    let mut fresh: Vec<(Vec<u8>, SeriesId)> = Vec::new();
    // What is accepted of a node depends on its host.
    let head = [&(host.len() as u64).to_le_bytes(), host.as_bytes()].concat();
    let (mut bytes, mut samples) = (Vec::new(), Vec::new());
    let mut known = shared.known.lookup();
    for at in 0..request.len() {
        bytes.clear();
        bytes.extend_from_slice(&head);
        let key = request.outline(at, &mut bytes, &mut samples).then(|| shared.known.short(&bytes));
        if let Some((key, (number, is_old))) = key.and_then(|key| Some((key, known.number(&key)?))) {
            if is_old {
                fresh.push((key.to_vec(), number));
            }
            taken.time_ns = taken.time_ns.or(samples.first().map(|sample| sample.time_ns));
            taken.numbered.push((number, at));
            taken.points.extend(samples.iter().map(|sample| (number, *sample)));
            continue;
        }
        let Some(series) = check_series(host, &request.series(at)?, refused)? else { continue };
        taken.time_ns = taken.time_ns.or(series.samples.first().map(|sample| sample.time_ns));
        let is_learnt = !BY_NAME.contains(&series.identity.display.as_str());
        if let Some(key) = key.filter(|_| is_learnt)
            && let Some(number) = shared.store.series_number(&series.identity)
        {
            fresh.push((key.to_vec(), number));
        }
        taken.series.push(series);
    }
    drop(known);
    shared.known.learn(&fresh);
    Ok(taken)
}

fn two_agents(node: &Node, first: &Agent) -> String {
    format!(
        "`{}` is reported by another agent (process {}): stop one of the two, or give one another `--host`",
        node.host, first.pid
    )
}

fn second_agent(node: &Node, first: &Agent) -> Event {
    let id: [u8; 16] = node.agent_id.as_slice().try_into().unwrap_or_default();
    let hex = format!("{:032x}", u128::from_be_bytes(id));
    let body = serde_json::json!({
        "what": "two_agents", "agent_id": hex, "pid": node.pid, "first_pid": first.pid,
        "version": node.agent_version, "boot_id": node.boot_id,
    });
    let time_ns = now_ns();
    Event {
        time_ns,
        kind: "node".into(),
        severity: Severity::Warning,
        // The same two that meet again later are told again.
        key: format!("two_agents:{hex}:{}", time_ns / model::NANOS_PER_SECOND),
        labels: vec![("host".into(), node.host.clone()), ("source".into(), "server".into())],
        text: two_agents(node, first),
        body: body.to_string(),
    }
}

fn check_series(
    host: &str,
    series: &Series,
    refused: &mut Refused,
) -> Result<Option<SeriesBatch>, PushError> {
    let samples = series.samples()?;
    let points = samples.len() as u64;
    if points == 0 {
        return Ok(None);
    }
    let of = series.labels.iter().find(|label| label.key == "host").map(|label| label.value.as_str());
    if of != Some(host) {
        let found = of.unwrap_or_default().to_owned();
        refused.add("other_host", points, || {
            format!("`{}` has the host `{found}`, its node is `{host}`", series.name)
        });
        return Ok(None);
    }
    let labels = series.labels.iter().map(|label| (label.key.as_str(), label.value.as_str()));
    match intake::own_identity(labels.chain([("__name__", series.name.as_str())])) {
        Ok(identity) => Ok(Some(SeriesBatch { identity, samples })),
        Err((reason, example)) => {
            refused.add(reason, points, || example);
            Ok(None)
        }
    }
}

fn check_event(host: &str, mut event: Event, refused: &mut Refused) -> Option<Event> {
    match event.label("host") {
        None => event.labels.push(("host".into(), host.to_owned())),
        Some(of) if of == host => {}
        Some(of) => {
            let example = format!("an event of `{host}` has the host `{of}`");
            refused.add("other_host", 1, || example);
            return None;
        }
    }
    bounded_event(event, refused)
}

/// An event within its bounds; one that has no usable kind, key, time, label or body is refused.
pub(crate) fn bounded_event(mut event: Event, refused: &mut Refused) -> Option<Event> {
    let kind = &event.kind;
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_kind = (1..=KIND_BYTES_MAX).contains(&kind.len())
        && is_word(kind)
        && !OWN_KINDS.contains(&kind.as_str())
        && event.label("source") != Some(verdicts::SOURCE);
    let is_known = (1..=KEY_BYTES_MAX).contains(&event.key.len());
    let is_timed = event.time_ns.unsigned_abs() < TIME_NS_MAX;
    let are_labels = event.labels.len() <= LABELS_PER_SERIES_MAX
        && event.labels.iter().all(|(name, value)| name.len().max(value.len()) <= LABEL_BYTES_MAX);
    let is_body = event.body.is_empty()
        || (event.body.len() <= BODY_BYTES_MAX
            && serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&event.body).is_ok());
    if !(is_kind && is_known && is_timed && are_labels && is_body) {
        let key: String = event.key.chars().take(60).collect();
        refused.add("event", 1, || {
            format!("an event of the kind {kind:?} with the key {key:?} has no usable kind, key, time, label or body")
        });
        return None;
    }
    // An incident of the future could not be ended by anything that happens before.
    let now_ns = now_ns();
    if event.time_ns > now_ns.saturating_add(AHEAD_NS_MAX) {
        event.labels.push(("told_ns".into(), event.time_ns.to_string()));
        event.time_ns = now_ns;
    }
    if event.text.len() > TEXT_BYTES_MAX {
        let cut = (0..=TEXT_BYTES_MAX).rev().find(|at| event.text.is_char_boundary(*at)).unwrap_or(0);
        event.text.truncate(cut);
    }
    Some(event)
}

/// Stores what was checked. Blocks until it is durable.
pub(crate) fn store(
    shared: &Shared,
    checked: Checked,
    door: &'static str,
) -> Result<PushResponse, AppendError> {
    let Checked { host, request, batch, numbered, mut refused, owners, .. } = checked;
    let events = batch.events.clone();
    let mut receipt = intake::keep_canonical(shared, Origin::Agent, batch).inspect_err(|error| {
        shared.metrics.requests.add(&[door, outcome(error)], 1);
    })?;
    if let Some(owners) = owners {
        shared.owners.settle(owners);
    }
    if !receipt.gone.is_empty() {
        // The request is known now, so nobody sends it again: what is left of it is stored before the answer.
        shared.known.forget();
        let is_gone = |(number, _): &&(SeriesId, usize)| receipt.gone.binary_search(number).is_ok();
        let places: Vec<usize> = numbered.iter().filter(is_gone).map(|(_, at)| *at).collect();
        store_again(shared, (&host, &request, &places), &mut receipt, &mut refused);
    }
    let word = if receipt.duplicate { "duplicate" } else { "stored" };
    shared.metrics.requests.add(&[door, word], 1);
    for (reason, count, example) in &receipt.refused {
        refused.add(reason, *count, || example.clone());
    }
    let refused: Vec<Count> = refused.into_counts();
    if !receipt.duplicate {
        shared.live.host_changed(&host);
        fleet::take_events(shared, &host, &events);
        shared.metrics.samples.add(&[door], receipt.stored);
        for count in &refused {
            shared.metrics.rejected.add(&[door, &count.reason], count.count);
        }
    }
    Ok(PushResponse {
        stored: receipt.stored,
        refused,
        duplicate: receipt.duplicate,
        ..PushResponse::default()
    })
}

/// Stores series of a request by name whose numbers led nowhere any more.
fn store_again(
    shared: &Shared,
    (host, request, places): (&str, &NodeRequest, &[usize]),
    receipt: &mut Receipt,
    refused: &mut Refused,
) {
    let mut batch = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
    for at in places {
        // They were read before, so there is nothing to refuse.
        let series = request.series(*at).and_then(|series| check_series(host, &series, refused));
        batch.series.extend(series.ok().flatten());
    }
    let points = batch.series.iter().map(|series| series.samples.len() as u64).sum();
    let mut kept = intake::keep_canonical(shared, Origin::Agent, batch.clone());
    for _ in 0..AGAIN_TRIES {
        if !matches!(kept, Err(AppendError::Busy { .. })) {
            break;
        }
        std::thread::sleep(AGAIN_AFTER);
        kept = intake::keep_canonical(shared, Origin::Agent, batch.clone());
    }
    match kept {
        Ok(again) => {
            receipt.stored += again.stored;
            for (reason, count, example) in again.refused {
                refused.add(reason, count, || example);
            }
        }
        Err(error) => refused.add(REMOVED, points, || error.to_string()),
    }
}
