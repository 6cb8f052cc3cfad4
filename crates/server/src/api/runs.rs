//! The list of runs.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::{AttributeValue, NANOS_PER_SECOND, RunRecord, RunState};
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::board::Facts;
use crate::clock::{now_ns, to_ms};
use crate::error::ApiError;
use crate::filter::{FILTER_BYTES_MAX, Filter, KEYS, Key, Value};
use crate::points::run_start_ns;

/// Rows of a page unless asked otherwise, and at most.
const PAGE_ROWS: usize = 200;
const PAGE_ROWS_MAX: usize = 1_000;
/// Most sort keys.
const SORT_KEYS_MAX: usize = 4;
/// Names gathered for the nearest to an unknown key.
const NEAREST_RUNS: usize = 50;

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunsAnswer {
    runs: Vec<RunRow>,
    /// Hand it back as `cursor` for the next page.
    next: Option<String>,
    /// Runs there are.
    total: usize,
    /// Runs that pass filter and state.
    matching: usize,
    /// Runs that pass the filter, by state.
    counts: Counts,
    /// What of the filter or the sort could not be understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Runs by state.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Counts {
    running: usize,
    stale: usize,
    failed: usize,
    finished: usize,
    paused: usize,
}

impl Counts {
    fn add(&mut self, state: RunState) {
        *match state {
            RunState::Running => &mut self.running,
            RunState::Stale => &mut self.stale,
            RunState::Failed => &mut self.failed,
            RunState::Finished => &mut self.finished,
            RunState::Paused => &mut self.paused,
        } += 1;
    }
}

/// A run in the list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunRow {
    run_id: String,
    organization: String,
    workspace: String,
    project: String,
    run: String,
    /// `running`, `stale`, `failed`, `finished` or `paused`.
    state: &'static str,
    state_since_ms: i64,
    /// Why it is in this state, in words; may be empty.
    state_reason: String,
    created_ms: i64,
    started_ms: i64,
    ended_ms: Option<i64>,
    elapsed_seconds: f64,
    attempts: usize,
    hosts: Vec<String>,
    sessions_live: usize,
    tags: Vec<String>,
    description: String,
    /// Greatest step on the default scale.
    last_step: Option<i64>,
    last_time_ms: Option<i64>,
    points: u64,
    series: u64,
    metric: Option<LastValue>,
    /// The worst that holds it up; null where nothing is known to.
    verdict: Option<WorstRow>,
    /// How far its slowest rank is from the median, over the median.
    spread: Option<f64>,
}

/// What holds a run up, in a few words.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorstRow {
    claim: String,
    /// `page`, `warn` or `info`.
    level: String,
}

/// A metric's latest value.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LastValue {
    /// Display name.
    name: String,
    /// `"NaN"`, `"+Inf"`, `"-Inf"` where it is that.
    #[schema(value_type = f64)]
    last: serde_json::Value,
}

/// A run while it is filtered and sorted; what its series say is looked up when asked for.
pub(crate) struct Entry<'a> {
    shared: &'a Shared,
    run: Arc<RunRecord>,
    now_ns: i64,
    state: RunState,
    since_ns: i64,
    facts: OnceCell<Arc<Facts>>,
}

impl<'a> Entry<'a> {
    /// A run as it stands at `now_ns`.
    pub(crate) fn new(shared: &'a Shared, run: Arc<RunRecord>, now_ns: i64) -> Self {
        let (state, since_ns) = run.state(now_ns);
        Self { shared, run, now_ns, state, since_ns, facts: OnceCell::new() }
    }

    fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| self.shared.board.facts(&self.shared.store, self.run.id()))
    }

    fn end_ns(&self) -> i64 {
        match self.state {
            RunState::Running => self.now_ns,
            _ if self.run.attempts.is_empty() => self.facts().last_time_ns.unwrap_or(self.since_ns),
            _ => self.since_ns,
        }
    }

    fn elapsed_seconds(&self) -> f64 {
        self.end_ns().saturating_sub(run_start_ns(self.shared, &self.run)).max(0) as f64
            / NANOS_PER_SECOND as f64
    }

    fn state_reason(&self) -> String {
        match self.state {
            RunState::Failed => self.run.failure.clone(),
            RunState::Stale if self.run.sessions.is_empty() => "no session was ever opened".into(),
            RunState::Stale => {
                let silent = self.now_ns.saturating_sub(self.since_ns).max(0) / NANOS_PER_SECOND;
                let text = match silent {
                    0..=119 => format!("{silent} s"),
                    120..=7_199 => format!("{} min", silent / 60),
                    7_200..=172_799 => format!("{} h", silent / 3_600),
                    _ => format!("{} d", silent / 86_400),
                };
                format!("no heartbeat for {text}")
            }
            RunState::Paused => "left to be resumed".into(),
            RunState::Running | RunState::Finished => String::new(),
        }
    }

    /// What the run has under a key of the filter.
    fn values(&self, key: &str) -> Vec<Value> {
        let text = |text: &str| {
            if text.is_empty() { Vec::new() } else { vec![Value::Text(text.to_owned())] }
        };
        let number = |number: f64| vec![Value::Number(number)];
        let run = &self.run;
        match key {
            "" | "run" => text(&run.path.run),
            "run_id" => text(&run.id().to_string()),
            "organization" => text(&run.path.organization),
            "workspace" => text(&run.path.workspace),
            "project" => text(&run.path.project),
            "description" => text(&run.description),
            "state" => text(self.state.as_str()),
            "tag" => run.tags.iter().map(|tag| Value::Text(tag.clone())).collect(),
            "host" => hosts(run).into_iter().map(Value::Text).collect(),
            "rank" => {
                let ranks: BTreeSet<u32> = run.sessions.iter().filter_map(|s| s.facts.rank).collect();
                ranks.into_iter().map(|rank| Value::Number(f64::from(rank))).collect()
            }
            "started" => number(to_ms(run_start_ns(self.shared, run)) as f64),
            "elapsed" => number(self.elapsed_seconds()),
            "attempts" => number(run.attempts.len() as f64),
            "step" => self.facts().last_step.map(|step| Value::Number(step as f64)).into_iter().collect(),
            "points" => number(self.facts().points as f64),
            other => self.foreign(other).into_iter().collect(),
        }
    }

    /// An attribute, else a metric's last value.
    fn foreign(&self, key: &str) -> Option<Value> {
        if let Some(value) = self.run.attributes.get(key) {
            return Some(match value {
                AttributeValue::Null => Value::Text("none".into()),
                AttributeValue::Bool(value) => Value::Text(value.to_string()),
                AttributeValue::Int(value) => Value::Number(*value as f64),
                AttributeValue::Float(value) => Value::Number(*value),
                AttributeValue::Text(value) => Value::Text(value.clone()),
            });
        }
        self.facts().metric(key).map(|(_, value)| Value::Number(value))
    }

    /// The row; `metric` is the one whose last value is wanted.
    pub(crate) fn row(&self, metric: Option<&str>) -> RunRow {
        let (run, facts) = (&self.run, self.facts());
        let last = match metric {
            Some(name) => facts.metric(name),
            None => facts.default_metric(),
        };
        let ended = matches!(self.state, RunState::Failed | RunState::Finished | RunState::Paused);
        RunRow {
            run_id: run.id().to_string(),
            organization: run.path.organization.clone(),
            workspace: run.path.workspace.clone(),
            project: run.path.project.clone(),
            run: run.path.run.clone(),
            state: self.state.as_str(),
            state_since_ms: to_ms(self.since_ns),
            state_reason: self.state_reason(),
            created_ms: to_ms(run.created_ns),
            started_ms: to_ms(run_start_ns(self.shared, run)),
            ended_ms: ended.then(|| to_ms(self.since_ns)),
            elapsed_seconds: self.elapsed_seconds(),
            attempts: run.attempts.len(),
            hosts: hosts(run),
            sessions_live: run.sessions.iter().filter(|s| s.is_live(self.now_ns)).count(),
            tags: run.tags.iter().cloned().collect(),
            description: run.description.clone(),
            last_step: facts.last_step,
            last_time_ms: facts.last_time_ns.map(to_ms),
            points: facts.points,
            series: facts.series,
            metric: last
                .map(|(name, value)| LastValue { name: name.to_string(), last: super::json_number(value) }),
            verdict: self
                .shared
                .verdicts
                .worst(run.id())
                .map(|worst| WorstRow { claim: worst.claim, level: worst.level }),
            spread: self.shared.verdicts.spread(run.id()),
        }
    }
}

fn hosts(run: &RunRecord) -> Vec<String> {
    let hosts: BTreeSet<&str> =
        run.sessions.iter().map(|s| s.facts.host.as_str()).filter(|host| !host.is_empty()).collect();
    hosts.into_iter().map(str::to_owned).collect()
}

/// The filter's keys beside metrics and attributes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilterKeys {
    keys: Vec<Key>,
}

/// What can be written before the colon of a filter's token.
#[utoipa::path(get, operation_id = "listFilterKeys", path = "/api/tg/v1/filter", responses((status = 200, body = FilterKeys)))]
pub(crate) async fn filter_keys() -> Json<FilterKeys> {
    Json(FilterKeys { keys: KEYS.to_vec() })
}

/// Runs, newest first unless sorted.
#[utoipa::path(get, operation_id = "listRuns", path = "/api/tg/v1/runs",
    params(
        ("filter" = Option<String>, Query, description = "tokens joined by space: `state:running -tag:debug loss:<0.5 word`"),
        ("sort" = Option<String>, Query, description = "name, state, started, elapsed, step, points, a metric or an attribute; `-` in front turns it round, commas add further keys"),
        ("limit" = Option<usize>, Query, description = "rows, 200 unless given, at most 1000"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("state" = Option<String>, Query, description = "one state, or several with commas"),
        ("metric" = Option<String>, Query, description = "whose last value each row brings; else one like loss"),
    ),
    responses((status = 200, body = RunsAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<RunsAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    if params.get("filter").is_some_and(|filter| filter.len() > FILTER_BYTES_MAX) {
        return Err(ApiError::bad(format!("the filter is over {FILTER_BYTES_MAX} bytes")));
    }
    read(&app, move |shared| page(shared, &caller, &params)).await
}

fn page(shared: &Shared, caller: &Caller, params: &Params) -> Result<Json<RunsAnswer>, ApiError> {
    let now_ns = now_ns();
    let limit = params.number("limit")?.unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS_MAX);
    let states = params.get("state").map(states).transpose()?;
    let (mut filter, mut warnings) = Filter::parse(params.get("filter").unwrap_or_default(), to_ms(now_ns));
    let runs = caller.seen(shared.store.runs());
    let total = runs.len();
    let mut entries: Vec<Entry<'_>> = runs.into_iter().map(|run| Entry::new(shared, run, now_ns)).collect();
    warnings.extend(drop_unknown(&mut filter, &entries));
    let mut counts = Counts::default();
    entries.retain(|entry| {
        let passes = filter.matches(&|key| entry.values(key));
        if passes {
            counts.add(entry.state);
        }
        passes && states.as_ref().is_none_or(|states| states.contains(&entry.state))
    });
    sort(&mut entries, params.get("sort"), &mut warnings);
    let start = params.get("cursor").map_or(Ok(0), |cursor| after(cursor, &entries))?.min(entries.len());
    let shown = &entries[start..];
    let shown = &shown[..limit.min(shown.len())];
    let end = start + shown.len();
    let next = shown.last().filter(|_| end < entries.len()).map(|entry| format!("{end}.{}", entry.run.id()));
    let metric = params.get("metric");
    Ok(Json(RunsAnswer {
        runs: shown.iter().map(|entry| entry.row(metric)).collect(),
        next,
        total,
        matching: entries.len(),
        counts,
        warnings,
    }))
}

fn states(text: &str) -> Result<Vec<RunState>, ApiError> {
    let known = [RunState::Running, RunState::Stale, RunState::Failed, RunState::Finished, RunState::Paused];
    text.split(',')
        .map(|word| {
            known.into_iter().find(|state| state.as_str() == word).ok_or_else(|| {
                ApiError::bad(format!("`{}` is not a state", super::shown(word)))
                    .hint("the states are running, stale, failed, finished and paused")
            })
        })
        .collect()
}

/// Leaves out the keys that no run has, with a warning each.
fn drop_unknown(filter: &mut Filter, entries: &[Entry<'_>]) -> Vec<String> {
    let keys: BTreeSet<String> = filter.foreign_keys().into_iter().map(str::to_owned).collect();
    let mut warnings = Vec::new();
    for key in keys {
        if entries.iter().any(|entry| entry.foreign(&key).is_some()) {
            continue;
        }
        let known: BTreeSet<String> = entries
            .iter()
            .take(NEAREST_RUNS)
            .flat_map(|entry| {
                let metrics = entry.facts().last.iter().map(|(name, _)| name.to_string());
                metrics.chain(entry.run.attributes.keys().cloned()).collect::<Vec<_>>()
            })
            .collect();
        warnings.push(filter.drop_unknown(&key, &known.into_iter().collect::<Vec<_>>()));
    }
    warnings
}

/// What a run is sorted by; one that has nothing comes last either way.
#[derive(Debug, Clone)]
enum SortValue {
    Number(f64),
    Text(String),
    Nothing,
}

impl SortValue {
    fn compare(&self, other: &Self, turned: bool) -> Ordering {
        let rank = |value: &Self| match value {
            Self::Number(n) if n.is_nan() => 2,
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::Nothing => 3,
        };
        let order = match (self, other) {
            (Self::Number(a), Self::Number(b)) if !a.is_nan() && !b.is_nan() => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => return rank(self).cmp(&rank(other)),
        };
        if turned { order.reverse() } else { order }
    }
}

fn sort(entries: &mut Vec<Entry<'_>>, keys: Option<&str>, warnings: &mut Vec<String>) {
    let Some(keys) = keys else { return };
    let keys: Vec<(bool, &str)> = keys
        .split(',')
        .filter(|key| !key.is_empty())
        .take(SORT_KEYS_MAX)
        .map(|key| key.strip_prefix('-').map_or((false, key), |key| (true, key)))
        .collect();
    let mut keyed: Vec<(Vec<SortValue>, Entry<'_>)> = std::mem::take(entries)
        .into_iter()
        .map(|entry| (keys.iter().map(|(_, key)| sort_value(&entry, key)).collect(), entry))
        .collect();
    for (at, (_, key)) in keys.iter().enumerate() {
        if !keyed.is_empty() && keyed.iter().all(|(values, _)| matches!(values[at], SortValue::Nothing)) {
            warnings.push(format!("no run has `{}` to sort by", super::shown(key)));
        }
    }
    keyed.sort_by(|(a, _), (b, _)| {
        let orders = keys.iter().zip(a.iter().zip(b)).map(|((turned, _), (a, b))| a.compare(b, *turned));
        orders.fold(Ordering::Equal, Ordering::then)
    });
    entries.extend(keyed.into_iter().map(|(_, entry)| entry));
}

fn sort_value(entry: &Entry<'_>, key: &str) -> SortValue {
    match key {
        "state" => SortValue::Number(f64::from(entry.state as u8)),
        "name" => SortValue::Text(entry.run.path.run.clone()),
        _ => match entry.values(key).into_iter().next() {
            Some(Value::Number(number)) => SortValue::Number(number),
            Some(Value::Text(text)) => SortValue::Text(text),
            None => SortValue::Nothing,
        },
    }
}

/// Where the next page starts: behind the run that the cursor names, or, when that is gone, at the
/// place it had.
fn after(cursor: &str, entries: &[Entry<'_>]) -> Result<usize, ApiError> {
    let wrong = || ApiError::bad("`cursor` is not one that this list gave");
    let (place, id) = cursor.split_once('.').ok_or_else(wrong)?;
    let place: usize = place.parse().map_err(|_source: std::num::ParseIntError| wrong())?;
    let id = model::RunId::parse(id).ok_or_else(wrong)?;
    Ok(entries.iter().position(|entry| entry.run.id() == id).map_or(place, |at| at + 1))
}
