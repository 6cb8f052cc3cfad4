//! The metrics that are stored, with what is known of them and what they cost.

use std::ops::ControlFlow;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::MetricKind;
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::about::{About, Catalog};
use crate::access::Caller;
use crate::app::{App, read};
use crate::error::ApiError;
use crate::source::conditions;

const LIMIT_DEFAULT: usize = 500;
const LIMIT_MAX: usize = 10_000;

/// Metrics.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredAnswer {
    /// By name.
    metrics: Vec<StoredMetric>,
    /// How many there are, of which `metrics` are the first.
    total: usize,
}

/// A metric.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredMetric {
    /// PromQL name.
    pub(crate) name: String,
    /// `counter`, `gauge`, `histogram` and so on; `unknown` when nobody said.
    #[serde(rename = "type", serialize_with = "kind_name")]
    #[schema(value_type = String)]
    pub(crate) of: MetricKind,
    /// Empty when it has none or it is not known.
    unit: String,
    /// What it measures.
    help: String,
    /// How it misleads; empty when it does not, or it is not known.
    caveat: &'static str,
    /// How far it can be relied on by itself: `A` a fact, `B` with its caveat, `C` a hint, `D` misleads
    /// alone; empty where nobody graded it.
    trust: &'static str,
    /// Series that it has.
    series: u64,
}

impl StoredMetric {
    pub(crate) fn of(name: &str, series: u64, about: About) -> Self {
        let About { kind, unit, help, caveat, trust } = about;
        Self { name: name.to_owned(), of: kind, unit, help, caveat, trust, series }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn kind_name<S: serde::Serializer>(kind: &MetricKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

/// The metrics that are stored, by name.
#[utoipa::path(get, operation_id = "storedMetrics", path = "/api/tg/v1/metrics",
    params(
        ("search" = Option<String>, Query, description = "a part of the name or of what it measures"),
        ("limit" = Option<usize>, Query, description = "most metrics, 500 when it is left out, at most 10,000")
    ),
    responses((status = 200, body = StoredAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn metrics(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<StoredAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let search = params.get("search").unwrap_or_default().to_lowercase();
    let limit = params.number::<usize>("limit")?.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    read(&app, move |shared| {
        let catalog = Catalog::new(&shared.config.catalog);
        let mut names: Vec<(String, u64)> = Vec::new();
        shared.store.each_value("__name__", &conditions(&caller.matchers()), "", &mut |name, series| {
            names.push((name.to_owned(), series));
            ControlFlow::Continue(())
        });
        let mut answer = StoredAnswer { metrics: Vec::new(), total: 0 };
        for (name, series) in names {
            let in_name = name.to_lowercase().contains(&search);
            // What is not shown is described only to be searched.
            let shown = answer.metrics.len() < limit;
            let about = (shown || !in_name).then(|| catalog.about(&shared.store, &name));
            let in_help = || about.as_ref().is_some_and(|a| a.help.to_lowercase().contains(&search));
            if !in_name && !in_help() {
                continue;
            }
            answer.total += 1;
            if let Some(about) = about.filter(|_| shown) {
                answer.metrics.push(StoredMetric::of(&name, series, about));
            }
        }
        Ok(Json(answer))
    })
    .await
}
