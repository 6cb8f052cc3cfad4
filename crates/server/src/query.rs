//! Evaluates queries: so many at once, so long, and no longer than somebody waits for the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use promql::{Answer, Cancel, Data, Limits, Matcher, Options, Query, QueryError, Source};

use crate::access::{Caller, Within};
use crate::app::{App, Shared, blocking};
use crate::config::Config;
use crate::error::ApiError;
use crate::source::StoreSource;

/// Bytes that a point of an answer takes as JSON, near enough.
const POINT_BYTES: u64 = 28;

/// Most patterns in one query: compiled, each may take megabytes.
const PATTERNS_MAX: usize = 100;

/// Reads a query.
pub(crate) fn parse(text: &str) -> Result<Query, QueryError> {
    check_patterns(text)?;
    Query::parse(text)
}

/// Reads the lists of matchers of one selector.
pub(crate) fn parse_selector(text: &str) -> Result<Vec<Vec<Matcher>>, QueryError> {
    check_patterns(text)?;
    promql::parse_selector(text)
}

fn check_patterns(text: &str) -> Result<(), QueryError> {
    let found = text.matches("=~").count() + text.matches("!~").count();
    if found > PATTERNS_MAX {
        let reason = format!("the query has {found} patterns, at most {PATTERNS_MAX} are taken");
        return Err(QueryError::Parse { place: "1:1".to_owned(), reason });
    }
    Ok(())
}

/// What a caller asks for beside the query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// Longest time, beneath the server's own bound.
    pub(crate) time_max: Option<Duration>,
    /// How old the last sample may be to count as current.
    pub(crate) lookback: Option<Duration>,
}

/// Times of one query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Waited for its turn.
    pub(crate) queued: Duration,
    /// Parsed and evaluated.
    pub(crate) evaluated: Duration,
}

/// Why a query has no answer.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The query's own doing.
    Query(QueryError),
    /// Too many others for too long.
    Queued(Duration),
    /// Our own fault.
    Server(ApiError),
}

impl From<QueryError> for AskError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

/// Stops a query when the one who waits for it goes away.
struct Waiting(Cancel);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The server's bounds of one query.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        samples_max: config.query.samples_max,
        series_max: config.query.series_max,
        time_max: config.query.time_max,
        memory_max_bytes: config.query.memory_max_bytes,
        ..Limits::default()
    }
}

/// Evaluates by `work`, of what the caller sees, and writes the answer by `write`, on a thread of its
/// own. Dropping the future stops the query.
pub(crate) async fn ask<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    wishes: Wishes,
    work: impl FnOnce(&dyn Source, &Options) -> Result<Answer, QueryError> + Send + 'static,
    write: impl FnOnce(Answer, Times) -> T + Send + 'static,
) -> Result<T, AskError> {
    let mut limits = limits(&app.config);
    limits.time_max = wishes.time_max.map_or(limits.time_max, |wish| wish.min(limits.time_max));
    let memory_max_bytes = limits.memory_max_bytes;
    let cancel = Cancel::new();
    let options = Options {
        lookback: wishes.lookback.unwrap_or(Options::default().lookback),
        limits,
        cancel: cancel.clone(),
        ..Options::default()
    };
    let waiting = Waiting(cancel);
    let started = Instant::now();
    let patience = options.limits.time_max;
    let Ok(turn) = tokio::time::timeout(patience, app.turns.querying.one()).await else {
        app.metrics.queries.add(&["queued_too_long"], 1);
        return Err(AskError::Queued(patience));
    };
    let queued = started.elapsed();
    let (shared, caller) = (Arc::clone(app), caller.clone());
    let answer = blocking(move || {
        let _turn = turn;
        let started = Instant::now();
        let answer = work(&Within::new(StoreSource(&shared.store), &caller), &options);
        let answer = answer.and_then(|answer| check_size(answer, memory_max_bytes));
        let evaluated = started.elapsed();
        count(&shared, &answer, evaluated);
        Ok(answer.map(|answer| write(answer, Times { queued, evaluated })))
    })
    .await;
    drop(waiting);
    answer.map_err(AskError::Server)?.map_err(AskError::Query)
}

/// Refuses an answer that would take too much memory as text.
fn check_size(answer: Answer, limit: u64) -> Result<Answer, QueryError> {
    let points = match &answer.data {
        Data::Scalar { .. } | Data::String { .. } => 1,
        Data::Vector { samples, .. } => samples.len() as u64,
        Data::Matrix(runs) => runs.iter().map(|run| run.points().count() as u64).sum(),
    };
    let found = points.saturating_mul(POINT_BYTES);
    if found > limit { Err(QueryError::TooMuchMemory { found, limit }) } else { Ok(answer) }
}

fn count(shared: &Shared, answer: &Result<Answer, QueryError>, took: Duration) {
    let metrics = &shared.metrics;
    let outcome = match answer {
        Ok(answer) => {
            metrics.query_samples.fetch_add(answer.stats.samples_read, Ordering::Relaxed);
            "answered"
        }
        Err(error) => error.kind(),
    };
    metrics.queries.add(&[outcome], 1);
    metrics.querying_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(0), Ordering::Relaxed);
}
