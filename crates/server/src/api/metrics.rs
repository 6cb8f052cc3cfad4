//! The series of a run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use model::{MetricKind, RunId};
use serde::Serialize;
use store::SeriesInfo;
use utoipa::ToSchema;

use crate::about::{About, Catalog, only_grows};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::to_ms;
use crate::error::ApiError;
use crate::own::is_logged;
use crate::points::shown_labels;

/// The series of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricsAnswer {
    /// One entry a series, by name, then labels.
    metrics: Vec<Metric>,
}

/// One series.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Metric {
    /// PromQL name.
    name: String,
    /// Name as logged.
    display: String,
    /// Labels beside the run's own.
    labels: BTreeMap<String, String>,
    /// Scale of its steps.
    scale: String,
    points: u64,
    /// Step of the latest point; where points have times only, the last iteration that had ended by then.
    last_step: Option<i64>,
    /// Value of the latest point; `"NaN"`, `"+Inf"`, `"-Inf"` where it is that.
    #[schema(value_type = f64)]
    last: serde_json::Value,
    first_time_ms: i64,
    last_time_ms: i64,
    /// Symbol of its unit, empty when it has none or it is not known.
    unit: String,
    /// `gauge` or `counter`; what a histogram is made of counts as well.
    kind: &'static str,
    /// What it measures; empty when not known.
    help: String,
    /// How it misleads; empty when it does not, or it is not known.
    caveat: &'static str,
}

impl Metric {
    fn of(series: &SeriesInfo, (shared, run): (&Shared, RunId), catalog: &Catalog<'_>) -> Self {
        let placed =
            || shared.sources.step_lines.of(shared, run, series).and_then(|line| line.at(series.time_ns.1));
        let About { kind, unit, help, caveat, .. } = catalog.about(&shared.store, series.labels.metric());
        let unit = if counts(series.labels.metric(), kind) { String::new() } else { unit };
        let grows = kind != MetricKind::Unknown && only_grows(series.labels.metric(), kind);
        let kind = if grows { MetricKind::Counter } else { MetricKind::Gauge };
        Self {
            name: series.labels.metric().to_owned(),
            display: series.display.to_string(),
            labels: shown_labels(&series.labels),
            scale: series.labels.get("scale").unwrap_or(model::DEFAULT_SCALE).to_owned(),
            points: series.points,
            last_step: series.last_step.or_else(placed),
            last: super::json_number(series.last),
            first_time_ms: to_ms(series.time_ns.0),
            last_time_ms: to_ms(series.time_ns.1),
            unit,
            kind: kind.name(),
            help,
            caveat,
        }
    }
}

/// Whether a series counts what a histogram or summary measures: the unit is that of what is counted.
fn counts(metric: &str, kind: MetricKind) -> bool {
    let of_parts = matches!(kind, MetricKind::Histogram | MetricKind::GaugeHistogram | MetricKind::Summary);
    of_parts && (metric.ends_with("_bucket") || metric.ends_with("_count"))
}

/// The series of a run, without their points.
#[utoipa::path(get, operation_id = "listMetrics", path = "/api/tg/v1/runs/{run_id}/metrics",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses((status = 200, body = MetricsAnswer), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<MetricsAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    read(&app, move |shared| {
        super::find_run(shared, &caller, id)?;
        let mut series = shared.store.run_series(id);
        series.retain(|one| is_logged(one.labels.metric()));
        let catalog = Catalog::new(&shared.config.catalog);
        let metrics = series.iter().map(|one| Metric::of(one, (shared, id), &catalog)).collect();
        Ok(Json(MetricsAnswer { metrics }))
    })
    .await
}
