//! What a query reads and what it probably gets wrong, before it is run.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use promql::{MatchOp, Matcher, Query, Span, selectors_in};
use serde::Serialize;
use store::Store;
use utoipa::ToSchema;

use super::Params;
use super::stored::StoredMetric;
use crate::about::{Catalog, only_grows};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::error::ApiError;
use crate::source::{conditions, spelled_out};

/// Metrics of one query that are told of.
const METRICS_MAX: usize = 6;

/// What is known of a query before it is run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainAnswer {
    /// Why it is no query, with its place; `null` when it is one.
    error: Option<String>,
    /// What it probably gets wrong.
    advice: Vec<Advised>,
    /// The metrics it names that are stored, in its order, at most 6.
    metrics: Vec<ExplainedMetric>,
}

/// A likely mistake.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Advised {
    /// First character of the part that is meant, from 0.
    from: usize,
    /// One behind its last character.
    to: usize,
    /// What is wrong with it.
    message: String,
    /// What to write instead, where that is known.
    fix: Option<Mended>,
}

/// A query without the mistake.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Mended {
    /// What the change is.
    says: String,
    /// The whole query.
    query: String,
}

/// A metric of the query.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainedMetric {
    #[serde(flatten)]
    metric: StoredMetric,
    /// Its labels, the one with most values first.
    labels: Vec<ExplainedLabel>,
}

/// A label of a metric.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainedLabel {
    name: String,
    /// Series of the metric that have it.
    series: u64,
    /// Different values.
    values: u64,
}

/// What a query reads, with the type, unit and caveat of each metric, and what it probably gets wrong:
/// a rate of what is no counter, a counter without a rate, buckets without their bounds.
#[utoipa::path(get, operation_id = "explain", path = "/api/tg/v1/explain",
    params(("query" = String, Query, description = "PromQL; it may be unfinished")),
    responses((status = 200, body = ExplainAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn explain(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ExplainAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let text = params.get("query").unwrap_or_default().to_owned();
    read(&app, move |shared| {
        let catalog = Catalog::new(&shared.config.catalog);
        let within = caller.matchers();
        let known = metrics(&text, shared, &catalog, &within);
        let grows = |name: &str| {
            let names = shared.streams.canonical_names(name);
            let is_meant = |metric: &StoredMetric| metric.name == name || names.contains(&metric.name);
            let metric = known.iter().find(|known| is_meant(&known.metric))?;
            Some(only_grows(name, metric.metric.of))
        };
        let (error, advice) = match Query::parse(&text) {
            Ok(query) => (None, advise(&query, &grows)),
            Err(error) => (Some(error.to_string()), Vec::new()),
        };
        Ok(Json(ExplainAnswer { error: error.filter(|_| !text.trim().is_empty()), advice, metrics: known }))
    })
    .await
}

fn advise(query: &Query, grows: &(dyn Fn(&str) -> Option<bool> + Sync)) -> Vec<Advised> {
    let characters = |byte: u32| query.text().get(..byte as usize).map_or(0, |text| text.chars().count());
    let advised = query.advise(grows).into_iter().map(|advice| {
        let Span { start, end } = advice.span;
        Advised {
            from: characters(start),
            to: characters(end),
            message: advice.message,
            fix: advice.fix.map(|fix| Mended { says: fix.says, query: fix.query }),
        }
    });
    advised.collect()
}

/// The metrics that a query names and that are stored.
fn metrics(text: &str, shared: &Shared, catalog: &Catalog<'_>, within: &[Matcher]) -> Vec<ExplainedMetric> {
    let store = &shared.store;
    let mut found: Vec<ExplainedMetric> = Vec::new();
    for matchers in selectors_in(text) {
        let Some(name) = matchers.iter().find(|m| &*m.name == "__name__" && m.op == MatchOp::Equal) else {
            continue;
        };
        let selector: Vec<Matcher> = std::iter::once(name).chain(within).cloned().collect();
        for selector in spelled_out(store, &shared.streams, &selector, (i64::MIN, i64::MAX)) {
            let name = &*selector[0].value;
            if found.len() < METRICS_MAX && !found.iter().any(|known| known.metric.name == name) {
                found.extend(explained(store, catalog, &selector));
            }
        }
    }
    found
}

/// The metric that the first of the matchers asks for, if it is stored.
fn explained(store: &Store, catalog: &Catalog<'_>, matchers: &[Matcher]) -> Option<ExplainedMetric> {
    let name = &*matchers.first()?.value;
    let selector = conditions(matchers);
    let mut series = 0;
    store.each_value("__name__", &selector, "", &mut |_, count| {
        series += count;
        std::ops::ControlFlow::Continue(())
    });
    if series == 0 {
        return None;
    }
    let mut labels: Vec<ExplainedLabel> = store
        .label_counts(&selector)
        .into_iter()
        .map(|label| ExplainedLabel { name: label.name, series: label.series, values: label.values })
        .collect();
    labels.sort_by_key(|label| std::cmp::Reverse(label.values));
    let metric = StoredMetric::of(name, series, catalog.about(store, name));
    Some(ExplainedMetric { metric, labels })
}
