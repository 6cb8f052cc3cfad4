//! Why charts of a run are missing, and what capture of its processes found.

use std::fmt::Write as _;

use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use insight::missing::{Evidence, Explanation, Metric, Place, Row, Seen, explain};
use model::{CaptureReport, DeviceRole, NANOS_PER_MILLI, RunRecord};
use serde::Serialize;
use store::SeriesInfo;
use utoipa::ToSchema;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::claims;
use crate::clock::{now_ns, to_ms};
use crate::error::ApiError;
use crate::ingest::REFUSED_PREFIX;

/// Start of the names of capture's series.
const SYSTEM_PREFIX: &str = "system/";

/// What a run lacks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingAnswer {
    run_id: String,
    /// How many metrics every run should have.
    expected: usize,
    /// How many of them this run has somewhere.
    present: usize,
    /// Rows that tell of a fault.
    alarms: usize,
    /// Whether there is more than an answer holds.
    cut: bool,
    /// One row a reason, faults first.
    missing: Vec<MissingRow>,
    /// What capture found, one report for each process; left out with `capture=false`.
    #[serde(skip)]
    #[schema(value_type = Vec<Object>)]
    #[expect(dead_code, reason = "reports are written as they are, behind the rest")]
    capture: (),
}

/// One reason, and all that is missing for it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingRow {
    /// Bounded word, such as `unsupported`; docs/guides/missing.md lists them.
    reason: &'static str,
    /// The reason in one or two sentences.
    text: String,
    /// What to do about it.
    hint: Option<String>,
    /// A command that helps.
    command: Option<String>,
    /// When it was there last; null where it never was.
    since: Option<i64>,
    /// Whether it is a fault.
    alarm: bool,
    /// What is missing, at each of the places.
    metrics: Vec<MissingMetric>,
    places: Vec<MissingPlace>,
}

/// A metric by its names.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingMetric {
    /// PromQL name.
    name: String,
    /// Name as logged.
    display: String,
    /// Symbol of its unit, empty when it has none or it is not known.
    unit: &'static str,
}

/// Where something is missing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingPlace {
    host: String,
    /// Index of the device, as the label `gpu` has it.
    gpu: Option<String>,
    /// The process that would report it.
    pid: Option<String>,
    rank: Option<String>,
}

/// Rows as the API gives them.
fn rows(found: Vec<Row>) -> Vec<MissingRow> {
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    let metric =
        |metric: Metric| MissingMetric { name: metric.name, display: metric.display, unit: metric.unit };
    let place = |place: Place| MissingPlace {
        host: place.host,
        gpu: text(place.gpu),
        pid: text(place.pid),
        rank: text(place.rank),
    };
    let row = |row: Row| MissingRow {
        reason: row.reason,
        text: row.text,
        hint: row.hint,
        command: row.command,
        since: row.since_ns.map(to_ms),
        alarm: row.is_alarm,
        metrics: row.metrics.into_iter().map(metric).collect(),
        places: row.places.into_iter().map(place).collect(),
    };
    found.into_iter().map(row).collect()
}

/// What is missing as the API says it, for others that say it too.
pub(crate) fn rows_json(found: Vec<Row>) -> serde_json::Value {
    serde_json::to_value(rows(found)).unwrap_or_default()
}

impl MissingAnswer {
    fn of(run: &RunRecord, found: Explanation) -> Self {
        let missing = rows(found.rows);
        Self {
            run_id: run.id().to_string(),
            expected: found.expected,
            present: found.present,
            alarms: missing.iter().filter(|row| row.alarm).count(),
            cut: found.is_cut,
            missing,
            capture: (),
        }
    }
}

/// Why charts of a run are missing.
#[utoipa::path(get, operation_id = "explainMissing", path = "/api/tg/v1/runs/{run_id}/missing",
    params(
        ("run_id" = String, Path, description = "16 hex digits"),
        ("capture" = Option<bool>, Query, description = "`false` leaves out what each process's capture found")
    ),
    responses(
        (status = 200, body = MissingAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = super::run_id(&id)?;
    let params = Params::of(&uri)?;
    let with_capture = match params.get("capture") {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            let message = format!("`capture` is `{}`, `true` or `false` is wanted", super::shown(other));
            return Err(ApiError::bad(message));
        }
    };
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        let body = body(shared, &run, with_capture)?;
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    })
    .await
}

fn body(shared: &Shared, run: &RunRecord, with_capture: bool) -> Result<String, ApiError> {
    let id = run.id();
    let mut reports: Vec<CaptureReport> = claims::reports(run).collect();
    let elsewhere = shared.claims.elsewhere(id);
    for report in &mut reports {
        let (host, pid) = (report.host.clone(), report.pid);
        for device in report.devices.iter_mut().filter(|device| device.role == DeviceRole::Owned) {
            if let Some(owner) = elsewhere.get(&(host.clone(), pid, device.gpu)) {
                device.role = DeviceRole::ReportedElsewhere(owner.clone());
            }
        }
    }
    let series = shared.store.run_series(id);
    let series: Vec<Seen<'_>> = series.iter().filter_map(seen).collect();
    let counted = shared.board.refused_of(id);
    let mut refused: Vec<(&str, u64)> = counted.iter().map(|(reason, count)| (*reason, *count)).collect();
    let dropped =
        run.dropped.iter().filter_map(|(reason, n)| Some((reason.strip_prefix(REFUSED_PREFIX)?, *n)));
    refused.extend(dropped);
    let found = explain(&Evidence {
        expected: &shared.config.promised,
        catalog: &shared.config.catalog,
        run,
        reports: &reports,
        series: &series,
        refused: &refused,
        now_ns: now_ns(),
    });
    let answer = serde_json::to_string(&MissingAnswer::of(run, found))
        .map_err(|error| ApiError::internal(format!("the answer can't be written: {error}")))?;
    Ok(if with_capture { with_reports(answer, &reports) } else { answer })
}

/// The answer with the reports behind it: they are JSON texts already.
fn with_reports(mut answer: String, reports: &[CaptureReport]) -> String {
    answer.pop();
    answer.push_str(",\"capture\":[");
    for (at, report) in reports.iter().enumerate() {
        if at > 0 {
            answer.push(',');
        }
        let mut text = wire::capture::to_json(report);
        text.pop();
        answer.push_str(&text);
        let _ = write!(answer, ",\"updated\":{}}}", report.time_ns.div_euclid(NANOS_PER_MILLI));
    }
    answer.push_str("]}");
    answer
}

/// A series of capture as evidence.
fn seen(series: &SeriesInfo) -> Option<Seen<'_>> {
    if !series.display.starts_with(SYSTEM_PREFIX) || series.labels.get("scale").is_some() {
        return None;
    }
    let number = |label| series.labels.get(label).and_then(|text| text.parse().ok());
    Some(Seen {
        metric: &series.display,
        host: series.labels.get("host")?,
        gpu: number("gpu"),
        pid: number("pid"),
        first_ns: series.time_ns.0,
        last_ns: series.time_ns.1,
        points: series.points,
    })
}
