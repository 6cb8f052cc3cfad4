//! What holds a training up, judged while it runs: verdicts on its steps, hangs, silent ranks, and what that costs.
//!
//! Points of steps are taken aside where they are stored (`inbox`), put together step by step (`steps`), and handed
//! to the detector of `insight` (`watch`). A round every second tells what changed (`keeper`): as events, as series,
//! and by the API. Nothing else is stored: at start the events say what was told, and the latest steps are read from
//! the store, so that a restart raises nothing twice and warms nothing up anew.

mod alive;
mod cards;
mod faults;
mod figures;
mod inbox;
mod keeper;
mod kept;
mod means;
mod money;
mod places;
mod replay;
mod row;
mod series;
mod slow;
mod steps;
mod watch;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{Event, EventAsk, NANOS_PER_SECOND, RunId, RunRecord, RunState};
use store::{Batch, Collision, Store};

use crate::app::{App, Shared, stopped};
use crate::clock::{now_ms, now_ns};
use crate::fleet;
use crate::ingest::outcome;
use crate::intake;
use crate::metrics::head;
use crate::otlp::has_telemetry;
pub(crate) use figures::{Figure, Figures, FiguresRow};
pub(crate) use inbox::Told;
pub(crate) use keeper::SOURCE;
use keeper::{KIND, Keeper};
pub(crate) use money::MoneyRow;
use places::Seats;
pub(crate) use row::VerdictRow;
use series::SeriesKey;
pub(crate) use series::is_verdict;
use slow::Slow;
use watch::Watch;

/// Name of this door in the counters.
const DOOR: &str = "verdicts";
/// Time between two rounds.
const PERIOD: Duration = Duration::from_secs(1);
/// Rounds between two looks at what is told by the clock alone, and at the cards of ranks.
const CLOCK_ROUNDS: u64 = 2;
const CARD_ROUNDS: u64 = 10;
/// How far back events are read at start.
const REPLAYED_NS: i64 = 14 * 86_400 * NANOS_PER_SECOND;
const REPLAYED_MAX: usize = 100_000;
/// How long ago an agent may have told where a card is, nanoseconds.
const SEATED_NS: i64 = 86_400 * NANOS_PER_SECOND;
/// Most runs that are judged at once, and that verdicts are kept of.
pub(crate) const RUNS_MAX: usize = 5_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Verdicts {
    inbox: inbox::Inbox,
    known: Mutex<Known>,
    /// CPU time of all rounds, nanoseconds.
    spent_ns: AtomicU64,
    /// Points of runs beyond those that are judged at once.
    beyond: AtomicU64,
}

/// What is known of runs.
#[derive(Default)]
struct Known {
    /// Where cards are.
    seats: Arc<Seats>,
    watches: HashMap<RunId, Watch>,
    keepers: HashMap<RunId, Keeper>,
    /// Series that were written last, by run.
    written: HashMap<RunId, BTreeSet<SeriesKey>>,
    /// What histograms of step times said last, by run.
    means: HashMap<RunId, means::Means>,
    /// What is dear to reckon, by run.
    slow: HashMap<RunId, Arc<Slow>>,
    /// Whether runs that seem to have fallen silent keep pace by a clock that is behind.
    paces: HashMap<RunId, alive::Pace>,
    /// When this server started, nanoseconds.
    begun_ns: i64,
    /// What runs that were running when this server started may still be silent about.
    is_started: bool,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("watches", &self.watches.len()).finish_non_exhaustive()
    }
}

/// The worst of a run in the list of runs.
#[derive(Debug, Clone)]
pub(crate) struct Worst {
    pub(crate) claim: String,
    pub(crate) level: String,
}

/// What was looked at of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looked {
    pub(crate) ranks: usize,
    pub(crate) of: usize,
    pub(crate) window_steps: u32,
    pub(crate) last_step: Option<i64>,
    pub(crate) since: Option<i64>,
    pub(crate) windows: u64,
    pub(crate) missed_points: u64,
    pub(crate) reason: Option<String>,
}

/// All that is known of a run's health.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) verdicts: Vec<VerdictRow>,
    pub(crate) history: Vec<VerdictRow>,
    pub(crate) looked: Option<Looked>,
    /// Whether as many runs are judged as can be, and this is none of them.
    pub(crate) is_beyond: bool,
    /// Of the latest steps.
    pub(crate) step_seconds: Option<f64>,
    pub(crate) spread_ratio: Option<f64>,
    pub(crate) tokens_per_second: Option<f64>,
    kept: Option<kept::Kept>,
}

impl Verdicts {
    /// What the events of `store` tell of before.
    pub(crate) fn restore(store: &Store) -> Self {
        let mut known = Known { begun_ns: now_ns(), ..Known::default() };
        for event in told(store) {
            let Some(run) = event.label("run_id").and_then(RunId::parse) else { continue };
            if known.keepers.len() < RUNS_MAX || known.keepers.contains_key(&run) {
                known.keepers.entry(run).or_default().replay(&event);
            }
        }
        let (spent_ns, beyond) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inbox: inbox::Inbox::default(), known: Mutex::new(known), spent_ns, beyond }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is stored now.
    pub(crate) fn take(&self, told: Told) {
        self.inbox.put(told);
    }

    /// Adds what this costs to the page of own metrics.
    pub(crate) fn write(&self, page: &mut String) {
        let (ranks, runs) = {
            let known = self.known();
            let ranks: usize = known.watches.values().map(|watch| watch.steps.ranks.len()).sum();
            (ranks as f64, known.watches.len() as f64)
        };
        let seconds = self.spent_ns.load(Ordering::Relaxed) as f64 / 1e9;
        for (name, kind, value, help) in [
            (
                "truegauge_verdicts_cpu_seconds_total",
                "counter",
                seconds,
                "CPU time of judging the steps of runs.",
            ),
            ("truegauge_verdicts_runs", "gauge", runs, "Runs whose steps are judged."),
            ("truegauge_verdicts_ranks", "gauge", ranks, "Ranks of these runs."),
        ] {
            head(page, name, kind, help);
            let _ = writeln!(page, "{name} {value}");
        }
        let name = "truegauge_verdicts_missed_points_total";
        head(
            page,
            name,
            "counter",
            "Points of steps that were stored and not judged, since there were too many.",
        );
        let missed = self.inbox.missed();
        let beyond = self.beyond.load(Ordering::Relaxed);
        for (reason, count) in [("runs", beyond), ("of_run", missed.of_run), ("of_all", missed.of_all)] {
            let _ = writeln!(page, "{name}{{reason=\"{reason}\"}} {count}");
        }
    }

    /// All that is known of a run's health.
    pub(crate) fn health(&self, run: RunId) -> Health {
        let known = self.known();
        let is_beyond = known.watches.len() >= RUNS_MAX && !known.watches.contains_key(&run);
        let mut health = Health { is_beyond, ..Health::default() };
        if let Some(keeper) = known.keepers.get(&run) {
            (health.verdicts, health.history) = (keeper.worst_first(), keeper.history());
        }
        if let Some(watch) = known.watches.get(&run) {
            health.looked = watch.watched().map(|watched| Looked {
                ranks: watched.ranks,
                of: watched.of,
                window_steps: watched.window_steps,
                last_step: watched.last_step.or(watch.steps.done()),
                since: watched.since_step,
                windows: watched.windows,
                missed_points: watch.missed_points,
                reason: watched.reason,
            });
            health.step_seconds = watch.step_seconds();
            health.spread_ratio = watch.spread_ratio();
            health.tokens_per_second = watch.tokens_per_second();
            health.kept = Some(watch.kept.clone());
        }
        health
    }

    /// The worst that holds of a run.
    pub(crate) fn worst(&self, run: RunId) -> Option<Worst> {
        let known = self.known();
        let gain = |row: &VerdictRow| row.gain_ratio.unwrap_or(0.0);
        let worst = known
            .keepers
            .get(&run)?
            .rows()
            .max_by(|a, b| a.weight().cmp(&b.weight()).then(gain(a).total_cmp(&gain(b))))?;
        Some(Worst { claim: worst.claim.clone(), level: worst.level.clone() })
    }

    /// How far the slowest rank of a run is from the median.
    pub(crate) fn spread(&self, run: RunId) -> Option<f64> {
        self.known().watches.get(&run)?.spread_ratio()
    }
}

/// The events that told of verdicts, oldest first.
fn told(store: &Store) -> Vec<Event> {
    let ask = EventAsk {
        time_ns: now_ns().saturating_sub(REPLAYED_NS)..=i64::MAX,
        kinds: Some(vec![KIND.to_owned()]),
        ..EventAsk::default()
    };
    let mut events = Vec::new();
    let read = store.events(&ask, &mut |event| {
        if event.label("source") == Some(SOURCE) {
            events.push(event);
        }
        if events.len() < REPLAYED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if let Err(error) = read {
        tracing::error!(%error, "events can't be read: verdicts of before are not known");
    }
    events.reverse();
    // A verdict's beginning may lie before the end of an earlier one that was told first.
    events.sort_by_key(|event| event.time_ns);
    events
}

/// Starts the rounds; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    slow::spawn(app);
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let mut written_at: Option<Instant> = None;
        for number in 0_u64.. {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
            let is_due = written_at.is_none_or(|at| at.elapsed() >= app.config.own_metrics_interval);
            if is_due {
                written_at = Some(Instant::now());
            }
            let shared = Arc::clone(&app);
            let round = tokio::task::spawn_blocking(move || round(&shared, number, is_due));
            if let Err(error) = round.await {
                tracing::error!(%error, "a look at the steps of runs ended early");
            }
        }
    });
}

/// Where cards are by now: as agents tell, or told last. The same as before where nothing is new.
fn sat(known: &Arc<Seats>, store: &Store, now_ns: i64) -> Arc<Seats> {
    let told = fleet::seats(store, now_ns.saturating_sub(SEATED_NS));
    if told.iter().all(|(uuid, seat)| known.get(uuid) == Some(seat)) {
        return Arc::clone(known);
    }
    let mut all = Seats::clone(known);
    all.extend(told);
    Arc::new(all)
}

/// The CPU time that this thread has taken, nanoseconds.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec.saturating_mul(NANOS_PER_SECOND).saturating_add(time.tv_nsec)).unwrap_or(0)
}

fn round(shared: &Shared, number: u64, is_due: bool) {
    let before_ns = cpu_ns();
    look(shared, number, is_due);
    shared.verdicts.spent_ns.fetch_add(cpu_ns().saturating_sub(before_ns), Ordering::Relaxed);
}

fn look(shared: &Shared, number: u64, is_due: bool) {
    let now_ns = now_ns();
    let mail = shared.verdicts.inbox.empty();
    let mut known = shared.verdicts.known();
    let known = &mut *known;
    if !known.is_started {
        known.is_started = true;
        known.start(shared, &mail, now_ns);
    }
    let mut judged: HashSet<RunId> = HashSet::new();
    let mut has_seats = false;
    for (id, mail) in mail {
        let Some(record) = shared.store.run(id).filter(|run| known.is_under_way(run, Some(&mail), now_ns))
        else {
            continue;
        };
        if let Some(watch) = known.watches.get_mut(&id) {
            watch.meet(&record);
            if watch.take(mail, now_ns) {
                judged.insert(id);
            }
            continue;
        }
        // One that seemed silent may have told its steps before that was known better, and one that hangs tells none.
        let is_told_of = known.keepers.get(&id).is_some_and(Keeper::is_open);
        if mail.points.is_empty() && !is_told_of && record.state(now_ns).0 == RunState::Running {
            continue;
        }
        if known.watches.len() >= RUNS_MAX {
            shared.verdicts.beyond.fetch_add(mail.points.len() as u64, Ordering::Relaxed);
            continue;
        }
        if !std::mem::replace(&mut has_seats, true) {
            known.seats = sat(&known.seats, &shared.store, now_ns);
        }
        let watch = replay::watch(shared, &record, mail, &known.seats, now_ns);
        if watch.steps.has_steps() {
            known.watches.insert(id, watch);
            judged.insert(id);
        }
    }
    if number.is_multiple_of(CARD_ROUNDS) {
        known.look_at_means(shared, now_ns);
    }
    known.leave(shared, now_ns);
    if number.is_multiple_of(CARD_ROUNDS) {
        known.look_at_cards(&shared.store, now_ns);
    }
    let ids: Vec<RunId> = known.watches.keys().copied().collect();
    for id in ids {
        let is_clock = number.is_multiple_of(CLOCK_ROUNDS);
        known.judge(shared, (id, judged.contains(&id) || is_clock), now_ns);
    }
    tell(shared, known, is_due);
}

impl Known {
    /// Takes up the runs that were under way when this server started. One that has sent steps since is taken up
    /// with them: what its ranks kept while there was no server may be more than is read here.
    fn start(&mut self, shared: &Shared, mail: &HashMap<RunId, inbox::Mail>, now_ns: i64) {
        self.seats = sat(&self.seats, &shared.store, now_ns);
        let has_steps = |run: &RunRecord| mail.get(&run.id()).is_some_and(|mail| !mail.points.is_empty());
        for record in shared.store.runs() {
            if has_steps(&record)
                || !self.is_under_way(&record, None, now_ns)
                || self.watches.len() >= RUNS_MAX
            {
                continue;
            }
            let watch = replay::watch(shared, &record, inbox::Mail::default(), &self.seats, now_ns);
            if watch.kept.last().is_some() {
                self.watches.insert(record.id(), watch);
            }
        }
        for (run, keeper) in &self.keepers {
            let rows: Vec<&VerdictRow> = keeper.rows().collect();
            if !rows.is_empty() {
                self.written.insert(*run, rows.into_iter().flat_map(SeriesKey::of).collect());
            }
        }
    }

    /// Ends what is known of runs that are not under way any more.
    fn leave(&mut self, shared: &Shared, now_ns: i64) {
        let ids = self
            .watches
            .keys()
            .chain(self.keepers.iter().filter(|(_, keeper)| keeper.is_open()).map(|(id, _)| id));
        let ids: HashSet<RunId> = ids.copied().collect();
        let is_gone = |id: &RunId| shared.store.run(*id).is_none_or(|run| self.is_gone(&run, now_ns));
        let gone: HashSet<RunId> = ids.into_iter().filter(is_gone).collect();
        self.watches.retain(|id, _| !gone.contains(id));
        let open = self.keepers.iter_mut().filter(|(id, keeper)| keeper.is_open() && gone.contains(*id));
        for (id, keeper) in open {
            keeper.settle(*id, Vec::new(), &|_| true, now_ns);
            shared.live.changed(*id);
        }
        if self.keepers.len() > RUNS_MAX {
            let watches = &self.watches;
            self.keepers.retain(|id, keeper| keeper.is_open() || watches.contains_key(id));
        }
        self.paces.retain(|_, pace| !pace.is_old(now_ns));
        self.slow.retain(|_, slow| !slow.is_forgotten(now_ns));
    }

    /// Takes the means of steps of runs whose processes export no step by itself.
    fn look_at_means(&mut self, shared: &Shared, now_ns: i64) {
        for record in shared.store.runs().iter().filter(|run| has_telemetry(run)) {
            let id = record.id();
            if !self.is_under_way(record, None, now_ns) {
                self.means.remove(&id);
                continue;
            }
            let watch = self.watches.get(&id);
            if watch.is_some_and(|watch| !watch.is_of_means() && watch.steps.done().is_some()) {
                continue;
            }
            let points = self.means.entry(id).or_default().points(&shared.store, id, now_ns);
            if points.is_empty() || (self.watches.len() >= RUNS_MAX && !self.watches.contains_key(&id)) {
                continue;
            }
            let watch =
                self.watches.entry(id).or_insert_with(|| Watch::new(id, Arc::clone(&self.seats), now_ns));
            watch.meet(record);
            watch.take_means(points, now_ns);
        }
        self.means.retain(|id, _| shared.store.run(*id).is_some());
    }

    fn look_at_cards(&mut self, store: &Store, now_ns: i64) {
        for watch in self.watches.values_mut() {
            watch.quotas(&cards::held_back(store, watch.id, now_ns));
        }
        if !self.watches.values().any(Watch::has_cards) {
            return;
        }
        self.seats = sat(&self.seats, store, now_ns);
        self.watches.values_mut().for_each(|watch| watch.sit(&self.seats));
        let agents = cards::of_agents(store, now_ns);
        for watch in self.watches.values_mut().filter(|watch| watch.has_cards()) {
            let of_run = cards::of_run(store, watch.id, now_ns);
            watch.cards(&agents, &of_run);
        }
    }

    /// Judges what is known of a run by now.
    fn judge(&mut self, shared: &Shared, (id, is_asked): (RunId, bool), now_ns: i64) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        if let Some(record) = shared.store.run(id) {
            watch.meet(&record);
        }
        if !(watch.advance(now_ns) || is_asked) {
            return;
        }
        let mut rows = watch.of_steps();
        let hang = watch.hang(&shared.store, now_ns);
        if hang.is_none() {
            rows.extend(watch.silent(now_ns));
        }
        rows.extend(hang);
        let keeper = self.keepers.entry(id).or_default();
        for row in &mut rows {
            row.explain(id);
            if row.events.is_empty() && keeper.of_class(&row.class).is_none() {
                row.events = watch.events_near(&shared.store, row);
            }
        }
        if keeper.settle(id, rows, &|row| watch.is_over(row, now_ns), now_ns) {
            shared.live.changed(id);
        }
    }
}

/// Stores what verdicts came to: their events, and their series as of now or those that are new.
fn tell(shared: &Shared, known: &mut Known, is_due: bool) {
    let mut events = Vec::new();
    let mut of_run: Vec<(RunId, usize)> = Vec::new();
    for (id, keeper) in &mut known.keepers {
        let waiting = keeper.take_waiting();
        if !waiting.is_empty() {
            of_run.push((*id, waiting.len()));
            events.extend(waiting);
        }
    }
    let time_ns = now_ms().saturating_mul(model::NANOS_PER_MILLI);
    let mut batch = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
    let (series, written) = series::write(shared, known, is_due, time_ns);
    batch.series = series;
    batch.events.clone_from(&events);
    if batch.series.is_empty() && batch.events.is_empty() {
        return;
    }
    match intake::keep(shared, batch) {
        Ok(_) => {
            known.written = written;
            for (id, _) in of_run {
                shared.live.changed(id);
            }
        }
        Err(error) => {
            shared.metrics.rejected.add(&[DOOR, outcome(&error)], 1);
            tracing::warn!(%error, "verdicts are not stored yet");
            let mut events = events.into_iter();
            for (id, count) in of_run {
                let back = events.by_ref().take(count).collect();
                known.keepers.entry(id).or_default().give_back(back);
            }
        }
    }
}
