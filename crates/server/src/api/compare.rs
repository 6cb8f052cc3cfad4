//! Several runs beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::RunRecord;
use serde::Serialize;
use store::SeriesInfo;
use utoipa::ToSchema;

use super::run::attribute;
use super::runs::{Entry, RunRow};
use super::{Params, json_number};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::now_ns;
use crate::compare::{At, Better, GroupBy, Groups, Outcome, Spread, differences, rank};
use crate::error::ApiError;
use crate::own::is_logged;

/// Most runs of one comparison.
const RUNS_MAX: usize = 50;
/// Metrics unless asked otherwise, and at most.
const METRICS: usize = 30;
const METRICS_MAX: usize = 500;
/// Most series that are read for one comparison.
const SERIES_MAX: usize = 20_000;

/// Runs beside each other; every list of a value a run has one entry for each of `runs`, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompareAnswer {
    runs: Vec<RunRow>,
    /// Attributes that are not the same in all runs, those of the configuration first.
    differences: Vec<Difference>,
    /// The metrics that at least two of the runs have, or those that were asked for.
    metrics: Vec<Compared>,
    /// Metrics that are left out because there are more than the limit.
    left_out: usize,
}

/// An attribute that is not the same in all runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Difference {
    key: String,
    /// What each run has; null where it has none.
    #[schema(value_type = Vec<Object>)]
    values: Vec<serde_json::Value>,
    /// Whether each run has it: an attribute may be null itself.
    has: Vec<bool>,
}

/// One metric.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Compared {
    /// PromQL name.
    name: String,
    /// Name as logged.
    display: String,
    /// Symbol of its unit, empty when it has none or it is not known.
    unit: &'static str,
    /// `min` or `max`, whichever is better as far as the name tells; null when it does not.
    best: Option<&'static str>,
    /// What it came to in each run; null where a run has no such points.
    runs: Vec<Option<Reading>>,
    /// What it came to in each group, by name; empty when none were asked for.
    groups: Vec<Group>,
}

/// What the series of one metric in one run came to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reading {
    series: u32,
    points: u64,
    /// Latest value; of several series the mean. NaN and infinities are `"NaN"`, `"+Inf"`, `"-Inf"`.
    #[schema(value_type = f64)]
    last: serde_json::Value,
    last_step: Option<i64>,
    /// Least and greatest finite value of all points, and the step at which they were first reached.
    min: Option<f64>,
    min_step: Option<i64>,
    max: Option<f64>,
    max_step: Option<i64>,
}

/// What the series of one metric in one group came to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Group {
    name: String,
    /// Runs and series in it.
    runs: usize,
    series: usize,
    /// Mean, least and greatest of the latest values of its series; null where none is finite.
    mean: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    /// The best of all points of its series; null where the name does not tell which is better.
    best: Option<f64>,
}

/// Several runs beside each other: what differs in their attributes, and what their metrics came to.
#[utoipa::path(get, operation_id = "compareRuns", path = "/api/tg/v1/compare",
    params(
        ("run_id" = Vec<String>, Query, description = "runs, at most 50"),
        ("metric" = Option<Vec<String>>, Query, description = "only these, by name as logged or PromQL name (default: those of at least two runs)"),
        ("step" = Option<i64>, Query, description = "only points up to this step"),
        ("group" = Option<String>, Query, description = "`tag`, `host`, `rank`, or the key of an attribute such as `config/lr`"),
        ("limit" = Option<usize>, Query, description = "most metrics (default 30, at most 500)"),
    ),
    responses((status = 200, body = CompareAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn compare(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<CompareAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    read(&app, move |shared| answer(shared, &caller, &params)).await
}

fn answer(shared: &Shared, caller: &Caller, params: &Params) -> Result<Json<CompareAnswer>, ApiError> {
    let all = |wanted: &'static str| params.iter().filter(move |(name, _)| *name == wanted).map(|(_, v)| v);
    let step_max = params.number::<i64>("step")?;
    let limit = params.number::<usize>("limit")?.unwrap_or(METRICS).clamp(1, METRICS_MAX);
    let group_by = params.get("group").map(GroupBy::parse);
    let mut runs: Vec<Arc<RunRecord>> = Vec::new();
    for id in all("run_id") {
        let run = super::find_run(shared, caller, super::run_id(id)?)?;
        if runs.iter().all(|known| known.id() != run.id()) {
            runs.push(run);
        }
    }
    if runs.is_empty() {
        return Err(ApiError::bad("no run is named").hint("give two or more as `run_id`"));
    }
    if runs.len() > RUNS_MAX {
        let message = format!("{} runs are asked for, at most {RUNS_MAX} are compared", runs.len());
        return Err(ApiError::bad(message).hint("leave some out"));
    }
    let wanted: Vec<&str> = all("metric").filter(|name| !name.is_empty()).collect();
    let (metrics, left_out) = choose(shared, &runs, &wanted, limit)?;
    let metrics: Result<Vec<Compared>, ApiError> =
        metrics.iter().map(|series| compared(shared, &runs, series, step_max, group_by.as_ref())).collect();
    let now_ns = now_ns();
    Ok(Json(CompareAnswer {
        differences: differences(runs.iter().map(|run| &**run))
            .into_iter()
            .map(|(key, values)| Difference {
                key: key.to_owned(),
                has: values.iter().map(Option::is_some).collect(),
                values: values
                    .into_iter()
                    .map(|value| value.map_or(serde_json::Value::Null, attribute))
                    .collect(),
            })
            .collect(),
        metrics: metrics?,
        left_out,
        runs: runs.iter().map(|run| Entry::new(shared, Arc::clone(run), now_ns).row(None)).collect(),
    }))
}

/// The series of one metric, run by run.
type ByRun = Vec<Vec<SeriesInfo>>;

/// The metrics that are compared, most telling first, and how many are left out.
fn choose(
    shared: &Shared,
    runs: &[Arc<RunRecord>],
    wanted: &[&str],
    limit: usize,
) -> Result<(Vec<ByRun>, usize), ApiError> {
    let mut metrics: BTreeMap<Arc<str>, ByRun> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        let series = shared.store.run_series(run.id());
        for series in series.into_iter().filter(|one| is_logged(one.labels.metric())) {
            let none = || vec![Vec::new(); runs.len()];
            metrics.entry(Arc::clone(&series.display)).or_insert_with(none)[at].push(series);
        }
    }
    if !wanted.is_empty() {
        let mut chosen = Vec::new();
        for name in wanted {
            let named = metrics.iter().find(|(display, by_run)| {
                ***display == **name || by_run.iter().flatten().any(|one| one.labels.metric() == *name)
            });
            let Some((_, by_run)) = named else {
                let message = format!("none of the runs has a metric `{}`", super::shown(name));
                return Err(ApiError::missing(message)
                    .hint("`GET /api/tg/v1/runs/{run_id}/metrics` lists what a run has"));
            };
            chosen.push(by_run.clone());
        }
        let series: usize = chosen.iter().map(count).sum();
        if chosen.len() > METRICS_MAX || series > SERIES_MAX {
            let message = format!(
                "{} metrics of {series} series are asked for, at most {METRICS_MAX} of {SERIES_MAX} are compared",
                chosen.len()
            );
            return Err(ApiError::bad(message).hint("name fewer metrics or runs"));
        }
        return Ok((chosen, 0));
    }
    let least = runs.len().min(2);
    let mut shared_by_some: Vec<(Arc<str>, ByRun)> = metrics
        .into_iter()
        .filter(|(_, by_run)| by_run.iter().filter(|series| !series.is_empty()).count() >= least)
        .collect();
    shared_by_some.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)));
    let there_are = shared_by_some.len();
    let mut series_left = SERIES_MAX;
    let mut chosen = Vec::new();
    for (_, by_run) in shared_by_some.into_iter().take(limit) {
        let Some(left) = series_left.checked_sub(count(&by_run)) else { break };
        series_left = left;
        chosen.push(by_run);
    }
    let left_out = there_are - chosen.len();
    Ok((chosen, left_out))
}

/// Series of one metric in all runs.
fn count(by_run: &ByRun) -> usize {
    by_run.iter().map(Vec::len).sum()
}

fn compared(
    shared: &Shared,
    runs: &[Arc<RunRecord>],
    by_run: &ByRun,
    step_max: Option<i64>,
    group_by: Option<&GroupBy>,
) -> Result<Compared, ApiError> {
    let mut groups = Groups::new();
    let mut readings = Vec::with_capacity(runs.len());
    for (at, (run, series)) in runs.iter().zip(by_run).enumerate() {
        let mut outcomes = Vec::with_capacity(series.len());
        for one in series {
            let outcome = Outcome::of(&shared.store, one, step_max).map_err(|error| {
                tracing::error!(%error, "cannot read points");
                ApiError::internal(error.to_string())
            })?;
            let Some(outcome) = outcome else { continue };
            for name in group_by.map(|by| by.groups_of(run, one)).unwrap_or_default() {
                let (of_runs, all) = groups.entry(name).or_default();
                of_runs.insert(at);
                all.push(outcome);
            }
            outcomes.push(outcome);
        }
        readings.push(Outcome::together(&outcomes).map(Reading::from));
    }
    let first = by_run.iter().flatten().next();
    let display = first.map_or_else(String::new, |one| one.display.to_string());
    let better = Better::of(&display);
    let desc = shared.config.catalog.iter().find(|desc| desc.name == display);
    let mut groups: Vec<Group> = groups.into_iter().map(|(name, of)| group(name, &of, better)).collect();
    groups.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
    Ok(Compared {
        name: first.map_or_else(String::new, |one| one.labels.metric().to_owned()),
        unit: desc.map_or("", |desc| desc.unit.symbol()),
        best: better.map(|better| if better == Better::Lower { "min" } else { "max" }),
        display,
        runs: readings,
        groups,
    })
}

/// Numbers sort as numbers, texts behind them.
fn natural(name: &str) -> (bool, i64, &str) {
    let number = name.parse::<f64>().ok().filter(|number| number.is_finite());
    // The order of the bits of floats of one sign is their own.
    let key = number.map_or(0, |number| {
        let bits = number.to_bits() as i64;
        if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
    });
    (number.is_none(), key, name)
}

fn group(
    name: String,
    (runs, outcomes): &(std::collections::BTreeSet<usize>, Vec<Outcome>),
    better: Option<Better>,
) -> Group {
    let spread = Spread::of(outcomes.iter().map(|one| one.last.value));
    let extremes = Outcome::together(outcomes);
    let best = better.zip(extremes).and_then(|(better, all)| match better {
        Better::Lower => all.min,
        Better::Higher => all.max,
    });
    Group {
        name,
        runs: runs.len(),
        series: outcomes.len(),
        mean: spread.map(|spread| spread.mean),
        min: spread.map(|spread| spread.min),
        max: spread.map(|spread| spread.max),
        best: best.map(|at| at.value),
    }
}

impl From<Outcome> for Reading {
    fn from(of: Outcome) -> Self {
        let value = |at: Option<At>| at.map(|at| at.value);
        let step = |at: Option<At>| at.and_then(|at| at.step);
        Self {
            series: of.series,
            points: of.points,
            last: json_number(of.last.value),
            last_step: of.last.step,
            min: value(of.min),
            min_step: step(of.min),
            max: value(of.max),
            max_step: step(of.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn groups_sort_as_numbers_where_they_are_some() {
        let mut names = ["b", "10", "-3", "9", "1e-4", "a"];
        names.sort_by(|a, b| natural(a).cmp(&natural(b)));
        assert_eq!(names, ["-3", "1e-4", "9", "10", "a", "b"]);
    }
}
