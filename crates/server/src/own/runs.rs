//! What the server states of runs: how each stands, when it was heard last, when a point came last.

use std::collections::HashMap;

use model::{
    Labels, NANOS_PER_SECOND, RunId, RunRecord, RunState, SeriesIdentity, series_identity, stale_marker,
};

use semconv::canonical;

use crate::app::Shared;
use crate::clock::to_ms;
use crate::far::is_copy;
use crate::peak;

/// How a run stands: 1 with the label `state`.
const STATE: &str = canonical::RUN_STATE.name;
/// When a process of the run was heard last, seconds since the epoch.
const HEARTBEAT: &str = canonical::RUN_LAST_HEARTBEAT_TIMESTAMP_SECONDS.name;
/// The latest time of a point of the run, seconds since the epoch.
const POINT: &str = canonical::RUN_LAST_POINT_TIMESTAMP_SECONDS.name;

/// After how long a silence a run is taken for gone that is known by what it exports only, seconds. Such
/// a run never says that it ends.
const SILENT_AFTER: &str = canonical::RUN_SILENT_AFTER_SECONDS.name;
/// How many GPUs the run has, with their model and the format of its computation.
const GPUS: &str = canonical::RUN_GPUS.name;
/// Parameters of its model; `kind` is `total` or `active`.
const PARAMETERS: &str = canonical::RUN_MODEL_PARAMETERS.name;
/// Floating-point operations of training its model by one token.
const FLOPS_PER_TOKEN: &str = canonical::RUN_FLOPS_PER_TOKEN.name;
/// What recomputed activations add to these.
const RECOMPUTE_FACTOR: &str = canonical::RUN_RECOMPUTE_FACTOR.name;

/// Most runs that are stated; those heard latest come first.
const RUNS_MAX: usize = 2_000;
/// For how long after its end a run is stated.
const ENDED_NS: i64 = 3_600 * NANOS_PER_SECOND;
/// For how long a silent run is stated.
const SILENT_NS: i64 = 24 * 3_600 * NANOS_PER_SECOND;

const STATES: [RunState; 5] =
    [RunState::Running, RunState::Stale, RunState::Failed, RunState::Finished, RunState::Paused];

/// Whether a metric is the server's statement of a run rather than something the run logged.
pub(crate) fn is_statement(metric: &str) -> bool {
    let facts = [STATE, HEARTBEAT, POINT, SILENT_AFTER, GPUS, PARAMETERS, FLOPS_PER_TOKEN, RECOMPUTE_FACTOR];
    facts.contains(&metric)
        || ["ALERTS", "ALERTS_FOR_STATE"].contains(&metric)
        || crate::verdicts::is_verdict(metric)
}

/// Whether a metric is something that a run logged: no statement of the server's, no description of who
/// sends.
pub(crate) fn is_logged(metric: &str) -> bool {
    metric != "target_info" && !is_statement(metric)
}

/// The runs that were stated last, with their states.
#[derive(Default)]
pub(super) struct Known {
    states: HashMap<RunId, RunState>,
    left_out: usize,
}

/// A series and its value now.
pub(super) type Stated = (Labels, f64);

impl Known {
    /// What is to be stored at `time_ms`: statements, and markers for those that hold no longer.
    pub(super) fn round(&mut self, shared: &Shared, time_ms: i64) -> Vec<Stated> {
        let now_ns = time_ms.saturating_mul(model::NANOS_PER_MILLI);
        let mut runs: Vec<_> =
            shared.store.runs().into_iter().filter(|run| is_current(run, now_ns) && !is_copy(run)).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.heartbeat_ns()));
        let left_out = runs.len().saturating_sub(RUNS_MAX);
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                limit = RUNS_MAX,
                left_out,
                "more runs are under way than are stated as series: rules don't see those heard longest ago"
            );
        }
        self.left_out = left_out;
        runs.truncate(RUNS_MAX);
        let mut stated = Vec::with_capacity(runs.len() * 3);
        let mut before = std::mem::take(&mut self.states);
        for run in &runs {
            let state = run.state(now_ns).0;
            match before.remove(&run.id()) {
                Some(old) if old == state => (),
                Some(old) => stated.push((of_state(run, old).labels, stale_marker())),
                // Stated by a server before this one, perhaps otherwise.
                None => end_others(shared, run, state, &mut stated),
            }
            self.states.insert(run.id(), state);
            stated.push((of_state(run, state).labels, 1.0));
            let mut put = |name, time_ns: Option<i64>| {
                if let Some(time_ns) = time_ns {
                    stated.push((named(run, name, &[]).labels, to_ms(time_ns) as f64 / 1e3));
                }
            };
            put(HEARTBEAT, run.heartbeat_ns());
            put(POINT, shared.board.facts(&shared.store, run.id()).last_time_ns);
            if let Some(seconds) = silent_after(run) {
                stated.push((named(run, SILENT_AFTER, &[]).labels, f64::from(seconds)));
            }
            if state == RunState::Running {
                stated.extend(facts(run));
            }
        }
        for (id, old) in before {
            // One that is deleted takes its series with it.
            let Some(run) = shared.store.run(id) else { continue };
            let named = |name| named(&run, name, &[]);
            let ended = [of_state(&run, old), named(HEARTBEAT), named(POINT), named(SILENT_AFTER)];
            let there = ended.into_iter().filter(|series| shared.store.series_number(series).is_some());
            stated.extend(there.map(|series| (series.labels, stale_marker())));
        }
        stated
    }
}

/// Whether a run is under way, or was a while ago.
fn is_current(run: &RunRecord, now_ns: i64) -> bool {
    let (state, since_ns) = run.state(now_ns);
    let age_ns = now_ns.saturating_sub(since_ns);
    match state {
        RunState::Running => true,
        RunState::Stale | RunState::Paused => age_ns < SILENT_NS,
        RunState::Failed | RunState::Finished => age_ns < ENDED_NS,
    }
}

/// The longest silence that is normal for a run whose processes all do no more than export.
fn silent_after(run: &RunRecord) -> Option<u32> {
    let each = run.sessions.iter().map(|session| session.facts.silent_after_seconds);
    each.clone().all(|seconds| seconds > 0).then(|| each.max()).flatten()
}

/// What is known of a run's model and hardware, as far as it is: what utilization is reckoned from.
fn facts(run: &RunRecord) -> Vec<Stated> {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut facts = Vec::new();
    let model = peak::model(run);
    for (kind, number) in [
        ("total", peak::number(run, &["model/parameters"])),
        ("active", peak::number(run, &["model/active_parameters"])),
    ] {
        if let Some(number) = number {
            facts.push((named(run, PARAMETERS, &[label("kind", kind)]).labels, number));
        }
    }
    if let Some(model) = model {
        facts.push((named(run, FLOPS_PER_TOKEN, &[]).labels, model.flops_per_token()));
    }
    if let Some(factor) = peak::recompute_factor(run) {
        facts.push((named(run, RECOMPUTE_FACTOR, &[]).labels, factor));
    }
    if let (Ok(peak), Some(gpus)) = (peak::of_run(run), peak::gpus(run)) {
        let device = [label("gpu_model", &peak.name), label("dtype", peak.dtype.name())];
        facts.push((named(run, GPUS, &device).labels, f64::from(gpus)));
    }
    facts
}

fn end_others(shared: &Shared, run: &RunRecord, state: RunState, stated: &mut Vec<Stated>) {
    let others = STATES.into_iter().filter(|other| *other != state).map(|other| of_state(run, other));
    let there = others.filter(|series| shared.store.series_number(series).is_some());
    stated.extend(there.map(|series| (series.labels, stale_marker())));
}

fn of_state(run: &RunRecord, state: RunState) -> SeriesIdentity {
    named(run, STATE, &[("state".to_owned(), state.as_str().to_owned())])
}

fn named(run: &RunRecord, name: &str, labels: &[(String, String)]) -> SeriesIdentity {
    series_identity(&run.path, name, "", labels)
}
