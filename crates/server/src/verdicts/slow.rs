//! What is dear to reckon of a run, remembered for a while: it reads whole series.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use insight::energy::Meter;
use model::{NANOS_PER_SECOND, RunId, RunRecord, RunState};
use semconv::canonical::GPU_ENERGY_JOULES_TOTAL;
use store::{Matcher, SeriesInfo, Store};

use super::inbox::What;
use super::kept::Kept;
use super::places::places;
use super::replay;
use crate::app::{App, Shared, stopped};

/// After how long it is reckoned anew, and for how long it is remembered after it was asked for last, nanoseconds.
const OLD_NS: i64 = 30 * NANOS_PER_SECOND;
const REMEMBERED_NS: i64 = 4 * OLD_NS;
/// Time between two looks for what is old.
const PERIOD: Duration = Duration::from_secs(2);
/// Counters of energy as a run's samplers log them.
const ENERGY: &str = "system/gpu/energy_joules_total";
/// Most counters of energy that are read.
const COUNTERS_MAX: usize = 20_000;
/// The latest steps whose length is told of a run that is over.
const STEPS: usize = 50;

/// Energy that was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Energy {
    pub(super) joules: f64,
    /// For how long counters were seen, of all cards together, seconds.
    pub(super) seconds: f64,
    pub(super) cards: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slow {
    at_ns: i64,
    /// When it was asked for last, nanoseconds.
    asked_ns: AtomicI64,
    /// Points that the run had.
    points: u64,
    pub(super) kept: Kept,
    /// Median of the last steps, seconds.
    pub(super) step_seconds: Option<f64>,
    /// Of all ranks and steps, those done in vain too.
    pub(super) tokens: Option<f64>,
    pub(super) energy: Option<Energy>,
    pub(super) goodput: Option<f64>,
}

impl Slow {
    fn reckon(shared: &Shared, run: &RunRecord, now_ns: i64, asked_ns: i64) -> Self {
        let points = shared.board.facts(&shared.store, run.id()).points;
        let all = shared.store.run_series(run.id());
        let series: Vec<(What, u32, SeriesInfo)> = all.iter().filter_map(replay::of_step).collect();
        Self {
            at_ns: now_ns,
            asked_ns: AtomicI64::new(asked_ns),
            points,
            kept: replay::kept_of(&shared.store, &series),
            step_seconds: last_steps(&shared.store, &series),
            tokens: tokens(&shared.store, &series),
            energy: energy(shared, run, all),
            goodput: crate::api::goodput_ratio(shared, run),
        }
    }

    fn asked_ns(&self) -> i64 {
        self.asked_ns.load(Ordering::Relaxed)
    }

    /// Whether nobody has asked for it for so long that it is forgotten.
    pub(super) fn is_forgotten(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.asked_ns()) > REMEMBERED_NS
    }
}

/// What was reckoned a while ago; reckoned now when nobody has asked for it lately. It takes a second where a run has
/// thousands of ranks, so that whoever looks on is not made to wait for it again and again.
pub(super) fn of_run(shared: &Shared, run: &RunRecord, now_ns: i64) -> Arc<Slow> {
    let id = run.id();
    if let Some(slow) = shared.verdicts.known().slow.get(&id) {
        slow.asked_ns.store(now_ns, Ordering::Relaxed);
        return Arc::clone(slow);
    }
    let slow = Arc::new(Slow::reckon(shared, run, now_ns, now_ns));
    shared.verdicts.known().slow.insert(id, Arc::clone(&slow));
    slow
}

/// Reckons anew what is old.
fn renew(shared: &Shared, now_ns: i64) {
    let is_old = |slow: &Slow| now_ns.saturating_sub(slow.at_ns) > OLD_NS && !slow.is_forgotten(now_ns);
    let old: Vec<(RunId, u64, i64)> = {
        let known = shared.verdicts.known();
        let old = known.slow.iter().filter(|(_, slow)| is_old(slow));
        old.map(|(id, slow)| (*id, slow.points, slow.asked_ns())).collect()
    };
    for (id, points, asked_ns) in old {
        // What is over stays as it is, unless more comes of it.
        let grows = |run: &RunRecord| {
            run.state(now_ns).0 == RunState::Running || shared.board.facts(&shared.store, id).points != points
        };
        if let Some(run) = shared.store.run(id).filter(|run| grows(run)) {
            let slow = Slow::reckon(shared, &run, crate::clock::now_ns(), asked_ns);
            shared.verdicts.known().slow.insert(id, Arc::new(slow));
        }
    }
}

/// Starts to reckon anew what is old, until the server stops.
pub(super) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
            let shared = Arc::clone(&app);
            let renewal = tokio::task::spawn_blocking(move || renew(&shared, crate::clock::now_ns()));
            if let Err(error) = renewal.await {
                tracing::error!(%error, "the figures of runs could not be reckoned anew");
            }
        }
    });
}

fn last_steps(store: &Store, series: &[(What, u32, SeriesInfo)]) -> Option<f64> {
    let of_steps = series.iter().filter(|(what, _, _)| *what == What::Step);
    let (_, _, info) = of_steps.min_by_key(|(_, rank, _)| *rank)?;
    let span_ns = info.time_ns.1.saturating_sub(info.time_ns.0) as f64;
    let back_ns = (span_ns / info.points.max(1) as f64 * STEPS as f64) as i64;
    let mut all = Vec::new();
    replay::each(store, info, info.time_ns.1.saturating_sub(back_ns), &mut |sample| {
        if sample.value.is_finite() {
            all.push(sample.value);
        }
    });
    let half = all.len() / 2;
    (!all.is_empty()).then(|| *all.select_nth_unstable_by(half, f64::total_cmp).1)
}

fn tokens(store: &Store, series: &[(What, u32, SeriesInfo)]) -> Option<f64> {
    let mut sum = None;
    for (_, _, info) in series.iter().filter(|(what, _, _)| *what == What::Tokens) {
        let read = store.read(info.id, i64::MIN, i64::MAX, &mut |chunk| {
            *sum.get_or_insert(0.0) += chunk.summary().sum;
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            tracing::warn!(%error, "tokens of a run can't be read");
        }
    }
    sum
}

/// What the samplers of a run counted; where there are none, what agents counted of its cards meanwhile.
fn energy(shared: &Shared, run: &RunRecord, all: Vec<SeriesInfo>) -> Option<Energy> {
    let store = &shared.store;
    let own: Vec<SeriesInfo> = all.into_iter().filter(|info| *info.display == *ENERGY).collect();
    if !own.is_empty() {
        return Some(sum(store, &own, (i64::MIN, i64::MAX)));
    }
    let attempt = run.attempts.last()?;
    let ended_ns = run.sessions.iter().filter(|session| session.attempt == attempt.number);
    let to_ns = ended_ns.map(|session| session.ended_ns.unwrap_or(session.heartbeat_ns)).max()?;
    let range = (attempt.started_ns, to_ns);
    let uuids: Vec<String> =
        places(run).into_values().map(|place| place.uuid).filter(|uuid| !uuid.is_empty()).collect();
    let of_card = |uuid: &String| {
        let named = [Matcher::equal("__name__", GPU_ENERGY_JOULES_TOTAL.name), Matcher::equal("uuid", uuid)];
        store.select(&named, range.0, range.1).first().and_then(|found| store.series(found.id))
    };
    let cards: Vec<SeriesInfo> = uuids.iter().take(COUNTERS_MAX).filter_map(of_card).collect();
    (!cards.is_empty()).then(|| sum(store, &cards, range))
}

fn sum(store: &Store, counters: &[SeriesInfo], (from_ns, to_ns): (i64, i64)) -> Energy {
    let mut energy = Energy::default();
    // Several processes may have told of one card after another.
    let mut cards: HashSet<(String, String)> = HashSet::new();
    for info in counters.iter().take(COUNTERS_MAX) {
        let (mut meter, mut begun): (Option<Meter>, Option<(i64, f64)>) = (None, None);
        let mut last = (0_i64, 0.0_f64);
        replay::each(store, info, from_ns, &mut |sample| {
            if sample.time_ns > to_ns {
                return;
            }
            let told = if let Some(meter) = &mut meter {
                meter.read(sample.time_ns, sample.value, None).map(|read| read.joules)
            } else {
                meter = Meter::begin(sample.time_ns, sample.value);
                meter.as_ref().map(|meter| meter.now().joules)
            };
            if let Some(joules) = told {
                begun.get_or_insert((sample.time_ns, joules));
                last = (sample.time_ns, joules);
            }
        });
        if let Some((first_ns, first)) = begun {
            energy.joules += last.1 - first;
            energy.seconds += last.0.saturating_sub(first_ns) as f64 / NANOS_PER_SECOND as f64;
            let label = |name| info.labels.get(name).unwrap_or_default().to_owned();
            cards.insert((label("host"), label("gpu")));
        }
    }
    energy.cards = cards.len();
    energy
}
