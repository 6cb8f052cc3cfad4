//! Runs of other servers, read back from the far storage and kept here as a copy.
//!
//! A copy has the labels, the times in milliseconds and the steps that its companion series tells.
//! It is refreshed when somebody looks at it, and is not sent on. A run that was pushed to this server
//! is never read back: here it is exact.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::{
    AttributeValue, Labels, NANOS_PER_MILLI, RunChange, RunId, RunPath, RunRecord, Sample, SeriesIdentity,
    SessionEnd, SessionEvent, SessionFacts, WriterId,
};
use serde::Deserialize;
use store::{Batch, Collision, SeriesBatch};

use super::outgoing::{NAME_METRIC, STEP_METRIC};
use super::{Far, Question};
use crate::access::Caller;
use crate::app::Shared;
use crate::clock::now_ms;
use crate::own::is_statement;

/// Marks a run as a copy; holds where it was read from.
const MARK: &str = "truegauge/read_back_from";
/// For how long a copy counts as fresh.
const FRESH: Duration = Duration::from_secs(5);
/// How far a refresh reaches back behind the latest point that is known.
const OVERLAP_MS: i64 = 120_000;
/// How long a run without a statement of its state may be silent before it counts as finished.
const SILENT_MS: i64 = 120_000;
/// Longest wait for one answer, and its most bytes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(40);
const ANSWER_BYTES_MAX: u64 = 512 << 20;
/// Points of one write.
const BATCH_POINTS: usize = 200_000;
/// Copies remembered as fresh.
const FRESH_MAX: usize = 10_000;
/// How far ahead of our clock points are looked for.
const AHEAD_MS: i64 = 600_000;

/// When which copy was read last.
pub(super) type Read = Mutex<HashMap<RunId, Instant>>;

/// Whether a run is a copy of another server's.
pub(crate) fn is_copy(run: &RunRecord) -> bool {
    run.attributes.contains_key(MARK) && run.sessions.iter().all(|session| session.writer == writer(run.id()))
}

/// The writer that a copy's one session has.
fn writer(id: RunId) -> WriterId {
    let mut writer = *b"read-back-------";
    writer[8..].copy_from_slice(&id.0);
    writer
}

/// One series of an instant answer.
#[derive(Deserialize)]
struct Row {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// A series and its points, on milliseconds.
struct Found {
    labels: Labels,
    points: Vec<(i64, f64)>,
}

/// How the run stood, as the server that has it says.
#[derive(Default)]
struct Statement {
    /// Time and word.
    state: Option<(i64, String)>,
    /// Latest sign of life, milliseconds.
    heartbeat_ms: Option<i64>,
}

impl Far {
    /// Makes sure that there is a copy of a run that this server does not have, and that it is fresh.
    /// What keeps it from being read is logged: the caller finds what is here.
    pub(crate) fn read_back(&self, shared: &Shared, caller: &Caller, id: RunId) {
        let known = shared.store.run(id);
        if known.as_ref().is_some_and(|run| !is_copy(run) || !caller.sees(&run.path)) {
            return;
        }
        if shared.store.deleted_run(id).is_some() {
            return;
        }
        // One at a time: several would read the same.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.get(&id).is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        match self.copy(shared, caller, id, known.as_deref()) {
            Ok(true) => shared.changed(id),
            Ok(false) => {}
            Err(words) => tracing::warn!(run = %id, words, "cannot read a run back from the far storage"),
        }
        if read.len() >= FRESH_MAX {
            read.clear();
        }
        read.insert(id, Instant::now());
    }

    /// Reads a run; says whether there is anything.
    fn copy(
        &self,
        shared: &Shared,
        caller: &Caller,
        id: RunId,
        known: Option<&RunRecord>,
    ) -> Result<bool, String> {
        let from_ms = known.map_or(0, |_| {
            let last_ns = shared.store.run_series(id).iter().map(|series| series.time_ns.1).max();
            last_ns.map_or(0, |ns| ns / NANOS_PER_MILLI - OVERLAP_MS)
        });
        let names = self.names(id, from_ms)?;
        let Some((path, metrics)) = names.filter(|(path, _)| caller.sees(path)) else { return Ok(false) };
        let now_ms = now_ms();
        let steps = steps(self.points(STEP_METRIC, id, (from_ms, now_ms))?);
        let mut statement = Statement::default();
        let (mut batch, mut points): (Vec<SeriesBatch>, usize) = (Vec::new(), 0);
        let (mut first_ms, mut last_ms) = (i64::MAX, i64::MIN);
        let names = displays(self.points(NAME_METRIC, id, (0, now_ms))?);
        for metric in metrics.iter().filter(|metric| ![STEP_METRIC, NAME_METRIC].contains(&metric.as_str())) {
            for found in self.points(metric, id, (from_ms, now_ms))? {
                if is_statement(metric) {
                    statement.hear(&found);
                    continue;
                }
                for (ms, _) in &found.points {
                    (first_ms, last_ms) = (first_ms.min(*ms), last_ms.max(*ms));
                }
                points += found.points.len();
                batch.push(placed(found, &steps, &names));
                if points > BATCH_POINTS {
                    self.keep(shared, &path, None, std::mem::take(&mut batch))?;
                    points = 0;
                }
            }
        }
        if first_ms > last_ms {
            return Ok(false);
        }
        let opens = known.is_none_or(|run| run.sessions.is_empty());
        if opens {
            self.keep(shared, &path, Some(event(first_ms, None, true)), Vec::new())?;
        }
        let end = statement.event(last_ms, now_ms);
        self.keep(shared, &path, Some(end), batch)?;
        Ok(true)
    }

    /// The run's names and metrics, if the far storage has it.
    fn names(&self, id: RunId, from_ms: i64) -> Result<Option<(RunPath, Vec<String>)>, String> {
        let answer = self.question(
            "/api/v1/series",
            vec![
                ("match[]", format!("{{run_id=\"{id}\"}}")),
                ("start", seconds(from_ms.max(1_000))),
                ("end", seconds(now_ms() + AHEAD_MS)),
            ],
        )?;
        let sets: Vec<BTreeMap<String, String>> =
            serde_json::from_value(answer["data"].clone()).map_err(|error| error.to_string())?;
        let path = sets.iter().map(path_of).find(|path| path.id() == id);
        let mut metrics: Vec<String> =
            sets.into_iter().filter_map(|mut labels| labels.remove("__name__")).collect();
        metrics.sort_unstable();
        metrics.dedup();
        Ok(path.map(|path| (path, metrics)))
    }

    /// The raw points of one metric of a run.
    fn points(&self, metric: &str, id: RunId, (from_ms, to_ms): (i64, i64)) -> Result<Vec<Found>, String> {
        let end_ms = to_ms + AHEAD_MS;
        let range_ms = (end_ms - from_ms).max(1);
        let answer = self.question(
            "/api/v1/query",
            vec![
                ("query", format!("{{__name__=\"{metric}\",run_id=\"{id}\"}}[{range_ms}ms]")),
                ("time", seconds(end_ms)),
                // VictoriaMetrics' own: without it the newest half minute is not shown.
                ("latency_offset", "1ms".to_owned()),
                ("nocache", "1".to_owned()),
            ],
        )?;
        let rows: Vec<Row> = serde_json::from_value(answer["data"]["result"].clone())
            .map_err(|error| format!("its answer is not usable: {error}"))?;
        Ok(rows.into_iter().map(found).collect())
    }

    fn question(&self, path: &str, parameters: Vec<(&str, String)>) -> Result<serde_json::Value, String> {
        self.runtime.block_on(self.ask(Question {
            path: path.to_owned(),
            parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            is_form: true,
            time_max: ANSWER_TIME_MAX,
            bytes_max: ANSWER_BYTES_MAX,
        }))
    }

    fn keep(
        &self,
        shared: &Shared,
        path: &RunPath,
        event: Option<SessionEvent>,
        series: Vec<SeriesBatch>,
    ) -> Result<(), String> {
        let mark = (MARK.to_owned(), AttributeValue::Text(self.query.to_string()));
        let change = RunChange {
            path: path.clone(),
            session: event.map(|event| (writer(path.id()), event)),
            attributes_if_absent: vec![mark],
            ..RunChange::default()
        };
        let batch =
            Batch { change: Some(change), series, collision: Collision::LastWriteWins, ..Batch::default() };
        let kept = shared.store.append(batch).map_err(|error| error.to_string())?;
        for (reason, count, example) in kept.refused {
            tracing::warn!(reason, count, example, run = %path, "a copy of a run is not whole");
        }
        Ok(())
    }
}

impl Statement {
    fn hear(&mut self, found: &Found) {
        let last = found.points.iter().rev().find(|(_, value)| !value.is_nan());
        let Some((ms, value)) = last else { return };
        match found.labels.get("state") {
            Some(state) if self.state.as_ref().is_none_or(|(known, _)| known < ms) => {
                self.state = Some((*ms, state.to_owned()));
            }
            None if found.labels.metric().contains("heartbeat") => {
                self.heartbeat_ms = self.heartbeat_ms.max(Some((value * 1e3) as i64));
            }
            _ => {}
        }
    }

    /// The session's latest word.
    fn event(&self, last_ms: i64, now_ms: i64) -> SessionEvent {
        let at_ms = self.heartbeat_ms.unwrap_or(last_ms).max(last_ms);
        let end = match self.state.as_ref().map(|(_, state)| state.as_str()) {
            Some("finished") => Some(SessionEnd::Finished),
            Some("failed") => Some(SessionEnd::Failed),
            Some("paused") => Some(SessionEnd::Left),
            Some(_) => None,
            None => (now_ms - at_ms > SILENT_MS).then_some(SessionEnd::Finished),
        };
        event(at_ms, end, false)
    }
}

fn event(at_ms: i64, end: Option<SessionEnd>, opens: bool) -> SessionEvent {
    SessionEvent {
        time_ns: at_ms.saturating_mul(NANOS_PER_MILLI),
        opens,
        end,
        reason: String::new(),
        facts: SessionFacts::default(),
    }
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1_000), ms.rem_euclid(1_000))
}

fn path_of(labels: &BTreeMap<String, String>) -> RunPath {
    let text = |name: &str| labels.get(name).cloned().unwrap_or_default();
    RunPath {
        organization: text("organization"),
        workspace: text("workspace"),
        project: text("project"),
        run: text("run"),
    }
}

fn found(row: Row) -> Found {
    let value = |text: &str| match text {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        other => other.parse().unwrap_or(f64::NAN),
    };
    let points = row.values.iter().map(|(time, text)| ((time * 1e3).round() as i64, value(text))).collect();
    Found { labels: Labels::from_pairs(row.metric), points }
}

/// Steps by scale and rank, then by millisecond.
type Steps = HashMap<(String, String), HashMap<i64, i64>>;

fn of_steps(labels: &Labels) -> (String, String) {
    let text = |name| labels.get(name).unwrap_or_default().to_owned();
    (text("scale"), text("rank"))
}

fn steps(all: Vec<Found>) -> Steps {
    let mut steps = Steps::new();
    for found in all {
        let of = steps.entry(of_steps(&found.labels)).or_default();
        of.extend(found.points.into_iter().map(|(ms, step)| (ms, step as i64)));
    }
    steps
}

/// What metrics were logged as, by their names in PromQL.
fn displays(all: Vec<Found>) -> HashMap<String, String> {
    let pair = |found: Found| {
        let text = |name| found.labels.get(name).map(str::to_owned);
        text("metric").zip(text("display"))
    };
    all.into_iter().filter_map(pair).collect()
}

fn placed(found: Found, steps: &Steps, names: &HashMap<String, String>) -> SeriesBatch {
    let steps = steps.get(&of_steps(&found.labels));
    let sample = |(ms, value): &(i64, f64)| Sample {
        time_ns: ms.saturating_mul(NANOS_PER_MILLI),
        value: *value,
        step: steps.and_then(|steps| steps.get(ms)).copied(),
    };
    let samples = found.points.iter().map(sample).collect();
    let metric = found.labels.metric();
    let known = found.labels.get("display").or_else(|| names.get(metric).map(String::as_str));
    let display = known.unwrap_or(metric).to_owned();
    SeriesBatch { identity: SeriesIdentity { labels: found.labels, display }, samples }
}
