//! Does what a policy says about incidents: decides, asks for approval, runs commands, writes all of it down.
//!
//! What is decided lies in the store before it is done: a row for every card and every plan, an event for every
//! step. A command is begun on paper first; after a crash one whose end nobody knows is not simply run again.
//! Without a policy nothing is looked at, and without `mode = "real"` nothing runs.

mod attempts;
mod execute;
mod facts;
mod policy;
mod propose;
mod recommended;
mod replay;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use insight::remediation::{
    Book, Ceiling, Changes, Edge, Facts, Next, Outcome, Plan, Policy, Refusal, State, Status, Step, Unit,
};
use model::{Event, NANOS_PER_MILLI, NANOS_PER_SECOND, Sample, Severity, stale_marker};
use semconv::canonical::REMEDIATION;
use serde_json::json;
use store::{Batch, Collision, SeriesBatch, Store};
use tokio::sync::Notify;

use crate::app::{App, Shared, stopped};
use crate::clock::{now_ms, now_ns};
use crate::config::RemediationConfig;
use crate::fleet;
use crate::intake;

pub(crate) use attempts::failed_key;
use facts::UnderWay;
pub(crate) use facts::is_of_machine;
pub use policy::PolicyError;
pub(crate) use policy::parse;
pub(crate) use propose::{NoPlan, Proposal, propose};
pub(crate) use replay::{ReplayAnswer, ReplayAsk, replay};
pub(crate) use show::{AuditAnswer, PlanRow, RemediationAnswer, audit, brief, show};

/// Kind of the events of the audit; nobody else may send it.
pub(crate) const REMEDIATION_EVENT: &str = "remediation";
/// Rows of the store.
const PLAN_ROWS: &[u8] = b"remediation/plan/";
const UNIT_ROWS: &[u8] = b"remediation/unit/";
/// Plans whose commands run at once.
const RUNNING_MAX: usize = 32;
/// How often the states are said as series although nothing changed, nanoseconds.
const SAID_NS: i64 = 60 * NANOS_PER_SECOND;
/// How often it is looked whether requests are still under way.
const IDLE_PAUSE: Duration = Duration::from_millis(500);

/// A policy in force.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) policy: Policy,
    pub(crate) file: String,
    pub(crate) mode: Ceiling,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Remedy {
    /// What is in force; nothing where nothing is decided.
    loaded: Mutex<Option<Arc<Loaded>>>,
    desk: Mutex<Desk>,
    /// Somebody has agreed to something, or the policy is another one.
    woken: Notify,
}

/// The book and what of it is not in the store yet.
#[derive(Debug, Default)]
struct Desk {
    book: Book,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    events: Vec<Event>,
    healed: Vec<String>,
    /// Plans that a thread has.
    running: BTreeSet<u64>,
    /// States that were said as series, and when.
    said: BTreeMap<String, State>,
    said_ns: i64,
    /// Time of the latest event: those of one moment keep their order by a nanosecond each.
    told_ns: i64,
}

/// The policy of the settings, checked; nothing where there is none or the mode is off.
pub(crate) fn load(config: &RemediationConfig) -> Result<Option<Loaded>, PolicyError> {
    match &config.policy_file {
        None if config.mode == Ceiling::Real => Err(PolicyError::Missing),
        Some(path) if config.mode != Ceiling::Off => {
            let policy = policy::read(path)?;
            Ok(Some(Loaded { policy, file: path.display().to_string(), mode: config.mode }))
        }
        _ => Ok(None),
    }
}

impl Remedy {
    /// What the store has, with a policy in force.
    pub(crate) fn restore(store: &Store, loaded: Option<Loaded>) -> Self {
        let mut book = Book::restore(rows::<Unit>(store, UNIT_ROWS), rows::<Plan>(store, PLAN_ROWS));
        book.recover(now_ns());
        let desk = Desk { book, ..Desk::default() };
        Self { loaded: Mutex::new(loaded.map(Arc::new)), desk: Mutex::new(desk), woken: Notify::new() }
    }

    /// Puts another policy in force.
    pub(crate) fn replace(&self, loaded: Option<Loaded>) {
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = loaded.map(Arc::new);
        self.woken.notify_one();
    }

    /// What is in force.
    pub(crate) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows of the store; one that can't be read is left out and said.
fn rows<T: serde::de::DeserializeOwned>(store: &Store, prefix: &[u8]) -> Vec<T> {
    let all = store.state(prefix).unwrap_or_else(|error| {
        tracing::error!(%error, "the state of remediation can't be read: nothing of before is known");
        Vec::new()
    });
    let read = |(key, row): (Vec<u8>, Vec<u8>)| {
        let read = serde_json::from_slice(&row);
        let key = String::from_utf8_lossy(&key).into_owned();
        read.map_err(|error| tracing::error!(%error, key, "a row of remediation can't be read")).ok()
    };
    all.into_iter().filter_map(read).collect()
}

impl Desk {
    /// Takes over what changed in the book.
    fn gather(&mut self) {
        let Changes { units, units_gone, plans, plans_gone, edges, healed } = self.book.take_changes();
        for unit in &units {
            self.rows.insert(unit_key(&unit.host, &unit.uuid), serde_json::to_vec(unit).ok());
        }
        for plan in &plans {
            self.rows.insert(plan_key(plan.id), serde_json::to_vec(plan).ok());
        }
        self.rows.extend(units_gone.iter().map(|(host, uuid)| (unit_key(host, uuid), None)));
        self.rows.extend(plans_gone.iter().map(|id| (plan_key(*id), None)));
        for edge in &edges {
            self.told_ns = edge.time_ns.max(self.told_ns.saturating_add(1));
            self.events.push(event(edge, self.told_ns));
        }
        self.healed.extend(healed);
    }

    /// Decides something about a machine and writes it down; what the store does not take was not decided. Nothing is
    /// decided while something from before waits for the store: so what waits has a bound, and no line of the audit
    /// is ever left out.
    fn decide<T, E>(
        &mut self,
        shared: &Shared,
        host: &str,
        decide: impl FnOnce(&mut Book) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if !self.flush(shared) {
            return Ok(None);
        }
        let (kept, healed) = (self.book.keep(host), self.healed.len());
        let decided = decide(&mut self.book)?;
        if self.flush(shared) {
            return Ok(Some(decided));
        }
        self.book.take_back(kept);
        self.rows.clear();
        self.events.clear();
        self.healed.truncate(healed);
        Ok(None)
    }

    /// Stores what changed. `false` when the store did not take it: then nothing may follow from it.
    fn flush(&mut self, shared: &Shared) -> bool {
        self.gather();
        if self.rows.is_empty() && self.events.is_empty() {
            return true;
        }
        let batch = Batch {
            state: self.rows.iter().map(|(key, row)| (key.clone(), row.clone())).collect(),
            events: self.events.clone(),
            ..Batch::default()
        };
        if let Err(error) = intake::keep(shared, batch) {
            tracing::warn!(%error, "what was decided about incidents is not stored yet, and waits");
            return false;
        }
        for event in self.events.drain(..) {
            shared.live.host_changed(event.label("host").unwrap_or_default());
        }
        self.rows.clear();
        shared.live.topic_changed(REMEDIATION_EVENT);
        true
    }
}

fn plan_key(id: u64) -> Vec<u8> {
    [PLAN_ROWS, format!("{id:020}").as_bytes()].concat()
}

fn unit_key(host: &str, uuid: &str) -> Vec<u8> {
    [UNIT_ROWS, host.as_bytes(), b"\0", uuid.as_bytes()].concat()
}

fn event(edge: &Edge, time_ns: i64) -> Event {
    let labels = [
        ("host", Some(edge.host.clone())),
        ("gpu", Some(edge.gpu.clone())),
        ("uuid", Some(edge.uuid.clone())),
        ("run_id", edge.run_id.clone()),
        ("source", Some("server".to_owned())),
    ];
    let labels = labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let severity = match edge.to {
        State::NeedsHuman => Severity::Critical,
        State::Healthy | State::Suspect => Severity::Info,
        _ => Severity::Warning,
    };
    let body = json!({
        "from": edge.from.name(), "to": edge.to.name(), "actor": edge.actor, "dry_run": edge.dry_run,
        "what": edge.deed.name(), "incident": edge.incident, "id": edge.plan.map(|id| format!("tg-{id}")), "commands": edge.commands,
    });
    Event {
        time_ns,
        kind: REMEDIATION_EVENT.to_owned(),
        severity,
        key: format!("remediation:{time_ns}:{}", edge.plan.unwrap_or(0)),
        labels: labels.filter(|(_, value)| !value.is_empty()).collect(),
        text: edge.text.clone(),
        body: body.to_string(),
    }
}

/// Looks at what is known now, and does what follows. Blocks.
fn look(app: &App) {
    let Some(loaded) = app.remedy.loaded() else { return };
    let needs_cards = app.remedy.desk().book.plans().any(|plan| plan.status == Status::Validating);
    let facts = facts::gather(app, needs_cards, now_ns());
    let healed = {
        let mut desk = app.remedy.desk();
        if !desk.flush(app) {
            return;
        }
        let probes = desk.book.look(&loaded.policy, loaded.mode, &facts, now_ns());
        if !desk.flush(app) {
            return;
        }
        say(app, &mut desk);
        for (id, step) in probes {
            let name = "truegauge-probe";
            start(app, &mut desk, id, name, move |app| probe(app, id, &step));
        }
        launch(app, &mut desk, &loaded);
        std::mem::take(&mut desk.healed)
    };
    attempts::catch_up(app);
    for incident in healed {
        fleet::end(app, &incident, "remediation");
    }
}

/// Gives every plan that has a step to run a thread.
fn launch(app: &App, desk: &mut Desk, loaded: &Loaded) {
    if loaded.mode != Ceiling::Real {
        return;
    }
    for id in desk.book.runnable() {
        start(app, desk, id, "truegauge-remedy", move |app| work(app, id));
    }
}

/// Starts a thread for a plan, unless it has one. The thread does not keep a server alive that has stopped.
fn start(app: &App, desk: &mut Desk, id: u64, name: &str, work: impl FnOnce(&Weak<Shared>) + Send + 'static) {
    if desk.running.len() >= RUNNING_MAX || !desk.running.insert(id) {
        return;
    }
    let weak = Arc::downgrade(app);
    let run = move || {
        work(&weak);
        if let Some(app) = weak.upgrade() {
            app.remedy.desk().running.remove(&id);
            app.remedy.woken.notify_one();
        }
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(%error, "no thread to run the commands of a plan: it is tried again");
        desk.running.remove(&id);
    }
}

/// Runs the steps of a plan, one after another, until it waits for something.
fn work(app: &Weak<Shared>, id: u64) {
    while let Some((plan, step)) = app.upgrade().and_then(|app| begin(&app, id)) {
        tracing::info!(id, host = plan.host, command = step.text, "runs a command of remediation");
        // What a server that stops did not wait for is waited for by the next.
        let waited =
            if step.is_wait() { wait_idle(app, &plan, &step) } else { Some(execute::run(&plan, &step)) };
        let Some(outcome) = waited else { return };
        tracing::info!(id, is_good = outcome.is_good, said = outcome.text, "the command has ended");
        let Some(app) = app.upgrade() else { return };
        let mut desk = app.remedy.desk();
        desk.book.ended(id, &outcome, now_ns());
        desk.flush(&app);
        drop(desk);
        if outcome.is_good {
            attempts::fail(&app, &plan, &step);
        }
    }
}

/// Waits until the engines of a machine have no request under way, for no longer than the limit. It is good either
/// way: a request that does not end keeps no fault in service. Nothing where the server stops.
fn wait_idle(app: &Weak<Shared>, plan: &Plan, step: &Step) -> Option<Outcome> {
    let began = Instant::now();
    let limit = Duration::from_nanos(u64::try_from(step.limit_ns).unwrap_or(1));
    let text = loop {
        let app = app.upgrade()?;
        let is_late = began.elapsed() >= limit;
        match facts::under_way(&app.store, &plan.host, now_ns()) {
            UnderWay::NoEngine => break "no engine tells of requests there".to_owned(),
            UnderWay::Told(0.0) => break "no request is under way".to_owned(),
            UnderWay::Told(count) if is_late => {
                break format!("{count} requests are still under way, and it goes on");
            }
            UnderWay::Unknown if is_late => {
                break "no engine there tells of its requests any more, and it goes on".to_owned();
            }
            _ if *app.stopping.borrow() => return None,
            _ => {}
        }
        drop(app);
        std::thread::sleep(IDLE_PAUSE);
    };
    let took_ns = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    Some(Outcome { is_good: true, text, took_ns })
}

/// Begins the next step, once that it was begun is in the store.
fn begin(app: &App, id: u64) -> Option<(Plan, Step)> {
    let is_real = app.remedy.loaded().is_some_and(|loaded| loaded.mode == Ceiling::Real);
    if !is_real || *app.stopping.borrow() {
        return None;
    }
    let plan = app.remedy.desk().book.plan(id).cloned()?;
    let jobs = facts::renewed(app, &plan.jobs, now_ns());
    let mut desk = app.remedy.desk();
    let next = desk.decide(app, &plan.host, |book| {
        book.renew(id, &jobs);
        Ok::<_, Infallible>(book.begin(id, now_ns()))
    });
    let Ok(Some(Next::Run(step))) = next else { return None };
    desk.book.plan(id).cloned().map(|plan| (plan, step))
}

/// Begins a probe, once that it was begun is in the store.
fn begin_probe(app: &App, id: u64, step: &Step) -> Option<Plan> {
    let mut desk = app.remedy.desk();
    let plan = desk.book.plan(id).cloned()?;
    let begun =
        desk.decide(app, &plan.host, |book| Ok::<_, Infallible>(book.begin_probe(id, step, now_ns())));
    matches!(begun, Ok(Some(true))).then_some(plan)
}

fn probe(app: &Weak<Shared>, id: u64, step: &Step) {
    let Some(plan) = app.upgrade().and_then(|app| begin_probe(&app, id, step)) else { return };
    let outcome = execute::run(&plan, step);
    let Some(app) = app.upgrade() else { return };
    let mut desk = app.remedy.desk();
    desk.book.probed(id, &outcome, now_ns());
    desk.flush(&app);
}

/// Says the states of machines as series: those that changed, and all of them now and then.
fn say(shared: &Shared, desk: &mut Desk) {
    let states: BTreeMap<String, State> =
        desk.book.hosts().into_iter().map(|(host, state)| (host.to_owned(), state)).collect();
    let now_ns = now_ns();
    let is_due = now_ns.saturating_sub(desk.said_ns) >= SAID_NS;
    if states == desk.said && (!is_due || states.is_empty()) {
        return;
    }
    let time_ns = now_ms().saturating_mul(NANOS_PER_MILLI);
    let ended = desk.said.iter().filter(|(host, state)| states.get(*host) != Some(state));
    let ended = ended.map(|(host, state)| (host, state, stale_marker()));
    let all = states.iter().map(|(host, state)| (host, state, 1.0)).chain(ended);
    let series = all.filter_map(|(host, state, value)| {
        let labels = [("__name__", REMEDIATION.name), ("host", host.as_str()), ("state", state.name())];
        let identity = intake::own_identity(labels.into_iter()).ok()?;
        Some(SeriesBatch { identity, samples: vec![Sample { time_ns, value, step: None }] })
    });
    let batch = Batch { collision: Collision::LastWriteWins, series: series.collect(), ..Batch::default() };
    match intake::keep(shared, batch) {
        Ok(_) => (desk.said, desk.said_ns) = (states, now_ns),
        Err(error) => tracing::warn!(%error, "the states of machines are not stored as series"),
    }
}

/// What somebody does by hand.
pub(crate) enum Hand {
    /// Agrees to a plan: for real, or to see what would run.
    Approve {
        id: u64,
        /// What is written to confirm it; nothing where only what would run is wanted.
        confirm: Option<String>,
    },
    /// Says no to one.
    Reject { id: u64, reason: String },
    /// Says that a machine is well.
    Heal { host: String, reason: String },
}

/// Why that can't be done.
pub(crate) enum NotDone {
    /// There is no policy in force.
    Off,
    /// See there.
    Refused(Refusal),
    /// The store does not take it.
    NotStored,
    /// Something else has to be written to confirm it.
    Unconfirmed {
        /// What was.
        found: String,
        /// What has to be.
        wanted: String,
    },
}

/// The machine that something is said about.
fn host_of(book: &Book, hand: &Hand) -> Result<String, NotDone> {
    match hand {
        Hand::Approve { id, .. } | Hand::Reject { id, .. } => {
            let plan = book.plan(*id).ok_or(NotDone::Refused(Refusal::Unknown))?;
            Ok(plan.host.clone())
        }
        Hand::Heal { host, .. } => Ok(host.clone()),
    }
}

fn decide(
    book: &mut Book,
    hand: &Hand,
    actor: &str,
    known: Option<(&Policy, Ceiling, &Facts)>,
) -> Result<(), NotDone> {
    let now_ns = now_ns();
    let done = match hand {
        Hand::Approve { id, confirm } => {
            let known = known.ok_or(NotDone::Off)?;
            let wanted = book.confirm(*id, known.2).unwrap_or_default();
            if let Some(found) = confirm.clone().filter(|found| *found != wanted) {
                return Err(NotDone::Unconfirmed { found, wanted });
            }
            book.approve(*id, actor, confirm.is_none(), known, now_ns)
        }
        Hand::Reject { id, reason } => book.reject(*id, actor, reason, now_ns),
        Hand::Heal { host, reason } => book.heal(host, actor, reason, now_ns),
    };
    done.map_err(NotDone::Refused)
}

/// Does what somebody says, and what follows from it. Blocks.
pub(crate) fn by_hand(app: &App, hand: &Hand, actor: &str) -> Result<(), NotDone> {
    let loaded = app.remedy.loaded();
    let facts = match hand {
        Hand::Approve { .. } => facts::gather(app, false, now_ns()),
        _ => Facts::default(),
    };
    {
        let mut desk = app.remedy.desk();
        let host = host_of(&desk.book, hand)?;
        let known = loaded.as_ref().map(|loaded| (&loaded.policy, loaded.mode, &facts));
        let done = desk.decide(app, &host, |book| decide(book, hand, actor, known))?;
        done.ok_or(NotDone::NotStored)?;
        if let Some(loaded) = &loaded {
            launch(app, &mut desk, loaded);
        }
    }
    app.remedy.woken.notify_one();
    let healed = std::mem::take(&mut app.remedy.desk().healed);
    for incident in healed {
        fleet::end(app, &incident, actor);
    }
    Ok(())
}

/// Starts the looks; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    let interval = app.config.remediation.interval;
    tokio::spawn(async move {
        loop {
            let shared = Arc::clone(&app);
            if let Err(error) = tokio::task::spawn_blocking(move || look(&shared)).await {
                tracing::error!(%error, "a look at what is to be done ended early");
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => (),
                () = app.remedy.woken.notified() => (),
                () = stopped(&mut stopping) => return,
            }
        }
    });
}
