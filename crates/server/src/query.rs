//! Evaluates queries: so many at once, so long, and no longer than somebody waits for the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(crate) use promql::parse_selector;
use promql::{Answer, Cancel, Limits, Options, QueryError, Source};

use crate::access::{Caller, Within};
use crate::app::{App, Shared, blocking};
use crate::config::Config;
use crate::error::ApiError;
use crate::source::StoreSource;

/// What a caller asks for beside the query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// Longest time, beneath the server's own bound.
    pub(crate) time_max: Option<Duration>,
    /// How old the last sample may be to count as current.
    pub(crate) lookback: Option<Duration>,
    /// Whether roll-ups may answer, as they do when nothing is said.
    pub(crate) rollups: Option<bool>,
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
/// own. Time and memory of the query are bounded until that is done. Dropping the future stops the
/// query.
pub(crate) async fn ask<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    wishes: Wishes,
    work: impl FnOnce(&dyn Source, &Options) -> Result<Answer, QueryError> + Send + 'static,
    write: impl FnOnce(Answer, Times) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, AskError> {
    in_turn(app, caller, wishes, move |source, options, queued| {
        let started = Instant::now();
        let answer = work(source, options);
        let evaluated = started.elapsed();
        let samples_read = answer.as_ref().map_or(0, |answer| answer.stats.samples_read);
        let written = answer.and_then(|answer| write(answer, Times { queued, evaluated }));
        Done { written, samples_read, took: evaluated }
    })
    .await
}

/// The same for several queries that come to one answer; `work` says how many samples it read.
pub(crate) async fn ask_several<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    work: impl FnOnce(&dyn Source, &Options) -> Result<(T, u64), QueryError> + Send + 'static,
) -> Result<T, AskError> {
    in_turn(app, caller, Wishes::default(), move |source, options, _queued| {
        let started = Instant::now();
        let answer = work(source, options);
        let samples_read = answer.as_ref().map_or(0, |(_, samples)| *samples);
        Done { written: answer.map(|(answer, _)| answer), samples_read, took: started.elapsed() }
    })
    .await
}

/// What became of a query.
struct Done<T> {
    written: Result<T, QueryError>,
    samples_read: u64,
    took: Duration,
}

async fn in_turn<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    wishes: Wishes,
    work: impl FnOnce(&dyn Source, &Options, Duration) -> Done<T> + Send + 'static,
) -> Result<T, AskError> {
    let mut limits = limits(&app.config);
    limits.time_max = wishes.time_max.map_or(limits.time_max, |wish| wish.min(limits.time_max));
    let cancel = Cancel::new();
    let options = Options {
        lookback: wishes.lookback.unwrap_or(Options::default().lookback),
        rollups: wishes.rollups.unwrap_or(Options::default().rollups),
        limits,
        memory: app.turns.query_memory.clone(),
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
        let done = work(&Within::new(StoreSource::of(&shared), &caller), &options, queued);
        count(&shared, &done.written, done.samples_read, done.took);
        Ok(done.written)
    })
    .await;
    drop(waiting);
    answer.map_err(AskError::Server)?.map_err(AskError::Query)
}

fn count<T>(shared: &Shared, written: &Result<T, QueryError>, samples_read: u64, took: Duration) {
    let metrics = &shared.metrics;
    let outcome = written.as_ref().map_or_else(QueryError::kind, |_| "answered");
    metrics.query_samples.fetch_add(samples_read, Ordering::Relaxed);
    metrics.queries.add(&[outcome], 1);
    metrics.querying_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(0), Ordering::Relaxed);
}
