//! What series of the fleet say: last values, and values over time by the server's own PromQL.

use std::sync::Arc;

use model::{Labels, NANOS_PER_MILLI, is_stale_marker};
use promql::{Data, Options, Query, QueryError, Run};
use store::{Matcher, Store};

use crate::app::Shared;
use crate::error::ApiError;
use crate::source::StoreSource;

/// The latest sample of a series.
#[derive(Debug, Clone)]
pub(super) struct Last {
    pub(super) labels: Arc<Labels>,
    pub(super) time_ns: i64,
    pub(super) value: f64,
}

impl Last {
    /// Whether the series was ended by who sent it.
    pub(super) fn is_end(&self) -> bool {
        is_stale_marker(self.value)
    }

    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).unwrap_or_default()
    }
}

/// The latest samples of the series that fit, of those that have any since a time.
pub(super) fn lasts(store: &Store, matchers: &[Matcher<'_>], since_ns: i64) -> Vec<Last> {
    let found = store.select(matchers, since_ns, i64::MAX);
    let last = |found: store::Found| {
        let info = store.series(found.id)?;
        (info.time_ns.1 >= since_ns).then_some(Last {
            labels: found.labels,
            time_ns: info.time_ns.1,
            value: info.last,
        })
    };
    found.into_iter().filter_map(last).collect()
}

/// The same of all series of a metric.
pub(super) fn lasts_of(store: &Store, metric: &str, since_ns: i64) -> Vec<Last> {
    lasts(store, &[Matcher::equal("__name__", metric)], since_ns)
}

fn options(shared: &Shared) -> Options {
    Options {
        limits: crate::query::limits(&shared.config),
        memory: shared.turns.query_memory.clone(),
        ..Options::default()
    }
}

/// The values of a query at the ends of equal parts of a time.
pub(super) fn over_time(
    shared: &Shared,
    query: &str,
    (from_ms, to_ms, step_ms): (i64, i64, i64),
) -> Result<Vec<Run>, ApiError> {
    let parsed = Query::parse(query).map_err(|error| failed(query, &error))?;
    let range = (from_ms.saturating_add(step_ms), to_ms, step_ms);
    let answer = parsed
        .range(&StoreSource::of(shared), range, &options(shared))
        .map_err(|error| failed(query, &error))?;
    match answer.data {
        Data::Matrix(runs) => Ok(runs),
        _ => Ok(Vec::new()),
    }
}

/// The values of a query at one time.
pub(super) fn at(shared: &Shared, query: &str, time_ms: i64) -> Result<Vec<(Arc<Labels>, f64)>, ApiError> {
    let parsed = Query::parse(query).map_err(|error| failed(query, &error))?;
    let answer = parsed
        .instant(&StoreSource::of(shared), time_ms, &options(shared))
        .map_err(|error| failed(query, &error))?;
    match answer.data {
        Data::Vector { samples, .. } => Ok(samples),
        _ => Ok(Vec::new()),
    }
}

fn failed(query: &str, error: &QueryError) -> ApiError {
    tracing::warn!(%error, query, "a question about the fleet has no answer");
    ApiError::unavailable(format!("the fleet's series can't be read: {error}"), 5)
}

/// A text as PromQL writes it in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Milliseconds of nanoseconds.
pub(super) fn ms(time_ns: i64) -> i64 {
    time_ns.div_euclid(NANOS_PER_MILLI)
}
