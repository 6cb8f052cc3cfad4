//! What is known now, gathered for a look.

use std::collections::{BTreeMap, BTreeSet};

use insight::remediation::{Ask, CardFacts, Checkpoint, Facts, Job, Node};
use model::{AttributeValue, NANOS_PER_SECOND, RunRecord, RunState, is_stale_marker};
use semconv::canonical::{
    ENGINE_REQUESTS_RUNNING, GPU_OWNER_INFO, GPU_RECOVERY_ACTION, GPU_ROW_REMAP_PENDING, NODE_GPUS, NODE_INFO,
};
use store::{Matcher, Store};

use crate::app::Shared;
use crate::fleet;
use crate::peak;

/// How far back a machine may have been heard for the last time and still count as one of its pool.
const KNOWN_NS: i64 = 86_400 * NANOS_PER_SECOND;
/// How old the last word of an agent may be that says who has cards.
const HEARD_NS: i64 = 120 * NANOS_PER_SECOND;
/// How old the last word about an owner may be.
const OWNED_NS: i64 = 300 * NANOS_PER_SECOND;
/// How old the last word of an engine may be.
const ENGINE_NS: i64 = 120 * NANOS_PER_SECOND;
/// How long ago an engine may have told last that is still taken to be there.
const ENGINE_SEEN_NS: i64 = 3_600 * NANOS_PER_SECOND;
/// Attributes in which a job says which checkpoint it has verified.
const CHECKPOINT_STEP: &str = "checkpoint/verified/step";
const CHECKPOINT_HASH: &str = "checkpoint/verified/hash";
const CHECKPOINT_TIME: &str = "checkpoint/verified/time";

/// The last sample of a series.
struct Last {
    labels: std::sync::Arc<model::Labels>,
    /// The time of the first.
    first_ns: i64,
    at: (i64, f64),
}

impl Last {
    fn label(&self, name: &str) -> &str {
        self.labels.get(name).unwrap_or_default()
    }
}

/// Labels of series that a run or a project's token sent, which nobody else's have.
const OF_PROJECTS: [&str; 4] = ["organization", "workspace", "project", "run"];

/// Whether a series is a machine's: whoever may send a run may send a series of any name, and what it says of a machine
/// is nothing that is acted on.
pub(crate) fn is_of_machine(labels: &model::Labels) -> bool {
    OF_PROJECTS.iter().all(|name| labels.get(name).is_none_or(str::is_empty))
}

/// The last samples of a metric's series of machines since a time, those that ended left out.
fn lasts(store: &Store, metric: &str, since_ns: i64) -> Vec<Last> {
    let mut lasts = every_last(store, metric, since_ns);
    lasts.retain(|last| !is_stale_marker(last.at.1));
    lasts
}

fn every_last(store: &Store, metric: &str, since_ns: i64) -> Vec<Last> {
    let found = store.select(&[Matcher::equal("__name__", metric)], since_ns, i64::MAX);
    let last = |found: store::Found| {
        let info = store.series(found.id)?;
        let at = (info.time_ns.1, info.last);
        (at.0 >= since_ns).then_some(Last { labels: found.labels, first_ns: info.time_ns.0, at })
    };
    found.into_iter().filter(|found| is_of_machine(&found.labels)).filter_map(last).collect()
}

/// Who has which card, as agents say.
#[derive(Default)]
struct Owners {
    /// Jobs of each host: id, and whether it is a run.
    of_host: BTreeMap<String, BTreeSet<(String, bool)>>,
    /// Cards of each job.
    cards: BTreeMap<String, u32>,
    /// Scheduler's numbers of runs.
    numbers: BTreeMap<String, String>,
}

impl Owners {
    /// Why nobody but runs themselves says that a run of these is on a machine; nothing where its agent does.
    fn doubt(&self, host: &str, jobs: &[Job]) -> Option<String> {
        let Some(here) = self.of_host.get(host) else {
            return Some(format!("Only the run says that it is on {host}: no agent tells who has its GPUs"));
        };
        let is_here = jobs.iter().any(|job| job.is_run && here.contains(&(job.id.clone(), true)));
        (!is_here).then(|| format!("Only the run says that it is on {host}: the agent there knows of others"))
    }

    fn of(store: &Store, now_ns: i64) -> Self {
        let mut owners = Self::default();
        for last in lasts(store, GPU_OWNER_INFO.name, now_ns.saturating_sub(OWNED_NS)) {
            let (run, job) = (last.label("run_id"), last.label("job_id"));
            let id = [run, job, last.label("pod")].into_iter().find(|id| !id.is_empty());
            let Some(id) = id.map(str::to_owned) else { continue };
            if !run.is_empty() && !job.is_empty() {
                owners.numbers.insert(job.to_owned(), run.to_owned());
            }
            let host = last.label("host").to_owned();
            owners.of_host.entry(host).or_default().insert((id.clone(), !run.is_empty()));
            *owners.cards.entry(id).or_default() += 1;
        }
        owners
    }
}

/// What is known now. What cards say of themselves is looked up only where somebody waits for it.
pub(super) fn gather(shared: &Shared, needs_cards: bool, now_ns: i64) -> Facts {
    let (mut asks, mut faults) = fleet::asks(shared, now_ns);
    asks.extend(super::recommended::asks(shared));
    let mut nodes = nodes(shared, now_ns);
    if !asks.is_empty() {
        complete(shared, &mut asks, &mut nodes, now_ns);
    }
    if needs_cards {
        cards(&shared.store, &mut nodes, now_ns);
        for (host, faults) in &mut faults {
            if let Some(node) = nodes.get_mut(host) {
                node.faults = std::mem::take(faults);
            }
        }
    }
    Facts { asks, nodes: nodes.into_values().collect() }
}

/// Adds the boots of machines, and the jobs on them.
fn complete(shared: &Shared, asks: &mut [Ask], nodes: &mut BTreeMap<String, Node>, now_ns: i64) {
    let owners = Owners::of(&shared.store, now_ns);
    for (host, node) in &mut *nodes {
        let jobs = owners.of_host.get(host).into_iter().flatten();
        node.jobs = jobs.map(|(id, _)| id.clone()).collect();
    }
    for ask in asks {
        ask.boot_id = nodes.get(&ask.host).map(|node| node.boot_id.clone()).unwrap_or_default();
        if ask.unconfirmed.is_some() {
            ask.unconfirmed = owners.doubt(&ask.host, &ask.jobs);
        }
        ask.jobs = jobs(shared, ask, &owners, now_ns);
    }
}

/// What is known now, with something more that a person asks for as the last.
pub(super) fn gather_with(shared: &Shared, ask: Ask, now_ns: i64) -> Facts {
    let mut facts = gather(shared, false, now_ns);
    let mut asks = vec![ask];
    let mut nodes: BTreeMap<String, Node> =
        std::mem::take(&mut facts.nodes).into_iter().map(|node| (node.host.clone(), node)).collect();
    complete(shared, &mut asks, &mut nodes, now_ns);
    facts.nodes = nodes.into_values().collect();
    facts.asks.append(&mut asks);
    facts
}

/// Every machine that was heard of within a day.
fn nodes(shared: &Shared, now_ns: i64) -> BTreeMap<String, Node> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for last in lasts(&shared.store, NODE_INFO.name, now_ns.saturating_sub(KNOWN_NS)) {
        let node = nodes.entry(last.label("host").to_owned()).or_default();
        if last.at.0 >= node.heard_ns {
            (node.heard_ns, node.boot_id) = (last.at.0, last.label("boot_id").to_owned());
            node.since_ns = Some(last.first_ns);
        }
    }
    for agent in shared.nodes.list() {
        let node = nodes.entry(agent.host.clone()).or_default();
        node.heard_ns = node.heard_ns.max(agent.heard_ns);
        node.boot_id = agent.boot_id;
    }
    for (host, node) in &mut nodes {
        node.host.clone_from(host);
    }
    nodes
}

fn cards(store: &Store, nodes: &mut BTreeMap<String, Node>, now_ns: i64) {
    let since = now_ns.saturating_sub(KNOWN_NS);
    for last in lasts(store, NODE_GPUS.name, since) {
        let Some(node) = nodes.get_mut(last.label("host")) else { continue };
        match last.label("source") {
            "pci" => node.pci = Some(last.at),
            "driver" => node.driver = Some(last.at),
            _ => {}
        }
    }
    let mut each = |metric: &str, put: fn(&mut CardFacts, (i64, f64))| {
        for last in lasts(store, metric, since) {
            let Some(node) = nodes.get_mut(last.label("host")) else { continue };
            put(node.cards.entry(last.label("uuid").to_owned()).or_default(), last.at);
        }
    };
    each(GPU_RECOVERY_ACTION.name, |card, at| card.recovery_action = Some(at));
    each(GPU_ROW_REMAP_PENDING.name, |card, at| card.remap_pending = Some(at));
}

/// Jobs that an action on a machine interrupts: those that had the card, and those that have others of it.
fn jobs(shared: &Shared, ask: &Ask, owners: &Owners, now_ns: i64) -> Vec<Job> {
    let mut ids: BTreeMap<String, bool> = BTreeMap::new();
    for job in &ask.jobs {
        match owners.numbers.get(&job.id) {
            Some(run) => ids.insert(run.clone(), true),
            None => ids.insert(job.id.clone(), job.is_run),
        };
    }
    for (id, is_run) in owners.of_host.get(&ask.host).into_iter().flatten() {
        ids.entry(id.clone()).or_insert(*is_run);
    }
    let one = |(id, is_run): (String, bool)| {
        let gpus = owners.cards.get(&id).copied();
        match is_run.then(|| fleet::run_of(shared, &id)).flatten() {
            Some(run) => of_run(shared, &run, (gpus, owners), now_ns),
            None => Job {
                name: id.clone(),
                is_run,
                gpus,
                is_dead: gpus.is_none() && !is_run,
                id,
                ..Job::default()
            },
        }
    };
    ids.into_iter().map(one).collect()
}

fn of_run(shared: &Shared, run: &RunRecord, (gpus, owners): (Option<u32>, &Owners), now_ns: i64) -> Job {
    let id = run.id();
    let last_step = shared.board.facts(&shared.store, id).last_step;
    Job {
        id: id.to_string(),
        name: run.path.run.clone(),
        is_run: true,
        gpus,
        attempt: run.attempts.last().map(|attempt| attempt.number),
        is_dead: is_dead(shared, run, owners, now_ns),
        checkpoint: checkpoint(run, last_step),
        step_seconds: shared.verdicts.health(id).step_seconds,
        restart_seconds: restart_seconds(run),
        usd_per_hour: usd_per_hour(shared, run),
    }
}

/// Whether a run is known to have ended: it says so, or nothing is heard of it and none of its machines' agents, of which
/// one at least is heard, says that it has a card. That it isn't heard alone may be its clock, or this server's start.
fn is_dead(shared: &Shared, run: &RunRecord, owners: &Owners, now_ns: i64) -> bool {
    match run.state(now_ns).0 {
        RunState::Finished | RunState::Failed => true,
        RunState::Running | RunState::Paused => false,
        RunState::Stale => {
            let Some(attempt) = run.attempts.last().map(|attempt| attempt.number) else { return false };
            let sessions = run.sessions.iter().filter(|session| session.attempt == attempt);
            let hosts: BTreeSet<&str> = sessions.map(|session| session.facts.host.as_str()).collect();
            let since_ns = now_ns.saturating_sub(HEARD_NS);
            let is_heard = shared
                .nodes
                .list()
                .iter()
                .any(|node| hosts.contains(&*node.host) && node.heard_ns >= since_ns);
            is_heard && !owners.cards.contains_key(&run.id().to_string())
        }
    }
}

/// What is known by now of the runs among some jobs.
pub(super) fn renewed(shared: &Shared, jobs: &[Job], now_ns: i64) -> Vec<Job> {
    let owners = Owners::of(&shared.store, now_ns);
    let run = |job: &Job| {
        let run = fleet::run_of(shared, &job.id)?;
        Some(of_run(shared, &run, (job.gpus, &owners), now_ns))
    };
    jobs.iter().filter(|job| job.is_run).filter_map(run).collect()
}

/// What the GPUs of a run cost by the site's prices, dollars per hour.
fn usd_per_hour(shared: &Shared, run: &RunRecord) -> Option<f64> {
    let usd_per_gpu_hour = peak::usd_per_gpu_hour(run, &shared.site.now()).ok()?;
    Some(usd_per_gpu_hour * f64::from(peak::gpus(run)?))
}

/// From the end of an attempt to the start of the next: the median of what was seen of a run, seconds.
fn restart_seconds(run: &RunRecord) -> Option<f64> {
    let between = |attempt: &model::Attempt| {
        let before = run.sessions.iter().filter(|session| session.attempt + 1 == attempt.number);
        let ended_ns = before.map(|session| session.ended_ns.unwrap_or(session.heartbeat_ns)).max()?;
        Some(attempt.started_ns.saturating_sub(ended_ns).max(0) as f64 / 1e9)
    };
    let mut all: Vec<f64> = run.attempts.iter().filter_map(between).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Requests that engines on a machine have under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UnderWay {
    /// So many, as they told last.
    Told(f64),
    /// An engine told of them within the hour, and none does now.
    Unknown,
    /// No engine is there.
    NoEngine,
}

/// Requests of the engines whose series name a machine, or a pod that has cards of it.
pub(super) fn under_way(store: &Store, host: &str, now_ns: i64) -> UnderWay {
    let owners = lasts(store, GPU_OWNER_INFO.name, now_ns.saturating_sub(OWNED_NS));
    let pods = owners.iter().filter(|last| last.label("host") == host).map(|last| last.label("pod"));
    let pods: BTreeSet<&str> = pods.filter(|pod| !pod.is_empty()).collect();
    let is_there = |last: &&Last| {
        let address = last.label("instance");
        let address = address.rsplit_once(':').map_or(address, |(name, _)| name);
        [last.label("host"), last.label("node"), address].contains(&host) || pods.contains(last.label("pod"))
    };
    let all = every_last(store, ENGINE_REQUESTS_RUNNING.name, now_ns.saturating_sub(ENGINE_SEEN_NS));
    let all: Vec<Last> = all.into_iter().filter(|last| is_there(&last)).collect();
    let since_ns = now_ns.saturating_sub(ENGINE_NS);
    let told = all.iter().filter(|last| last.at.0 >= since_ns && !is_stale_marker(last.at.1));
    let told: Vec<f64> = told.map(|last| last.at.1).collect();
    match (told.is_empty(), all.is_empty()) {
        (false, _) => UnderWay::Told(told.iter().sum()),
        (true, false) => UnderWay::Unknown,
        (true, true) => UnderWay::NoEngine,
    }
}

fn checkpoint(run: &RunRecord, last_step: Option<i64>) -> Option<Checkpoint> {
    let whole = |name: &str| match run.attributes.get(name)? {
        AttributeValue::Int(value) => Some(*value as f64),
        AttributeValue::Float(value) => Some(*value),
        _ => None,
    };
    let step = whole(CHECKPOINT_STEP).filter(|step| step.is_finite())? as i64;
    let hash = match run.attributes.get(CHECKPOINT_HASH) {
        Some(AttributeValue::Text(hash)) => Some(hash.clone()),
        _ => None,
    };
    let time_ns = whole(CHECKPOINT_TIME).map(|seconds| (seconds * 1e9) as i64);
    let steps_lost = last_step.map(|last| last.saturating_sub(step).max(0));
    Some(Checkpoint { step, hash, time_ns, steps_lost })
}
