//! `query`, `query_range`, `query_exemplars`.

use axum::extract::State;
use axum::response::Response;
use promql::json::{Written, push_text, write_answer};
use promql::{Answer, Query, QueryError};

use super::asked::{Asked, CUT};
use super::forwarded::{self, From};
use super::{Failure, success, written};
use crate::app::{App, blocking};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::query::{Times, ask};

/// Most steps of one range.
const STEPS_MAX: i64 = 11_000;

/// How the answer is written.
#[derive(Debug, Clone, Default)]
struct Shape {
    limit: usize,
    stats: bool,
    /// Said beside what the evaluation warns of.
    warnings: Vec<String>,
}

impl Shape {
    fn of(asked: &Asked) -> Result<Self, Failure> {
        let stats = !asked.get("stats").is_empty();
        Ok(Self { limit: asked.limit("limit")?, stats, warnings: Vec::new() })
    }
}

/// A query at one time.
pub(super) async fn instant(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let mut shape = Shape::of(&asked)?;
    let time_ms = asked.time_if_given("time")?.unwrap_or_else(now_ms);
    let wishes = asked.wishes()?;
    match forwarded::ask(&app, &asked, "/api/v1/query").await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => shape.warnings = warnings,
    }
    let text = asked.get("query").to_owned();
    let body = ask(
        &app,
        asked.caller(),
        wishes,
        move |source, options| Query::parse(&text)?.instant(source, time_ms, options),
        move |answer, times| write(answer, times, shape),
    );
    Ok(written(body.await?))
}

/// A query over a range.
pub(super) async fn range(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let mut shape = Shape::of(&asked)?;
    let (start_ms, end_ms) = (asked.time("start")?, asked.time("end")?);
    if end_ms < start_ms {
        return Err(Failure::parameter("end", "end timestamp must not be before start time"));
    }
    let step = asked.duration("step")?;
    let step_ms = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
    if (end_ms - start_ms) / step_ms > STEPS_MAX {
        return Err(Failure::bad(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ));
    }
    let wishes = asked.wishes()?;
    match forwarded::ask(&app, &asked, "/api/v1/query_range").await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => shape.warnings = warnings,
    }
    let text = asked.get("query").to_owned();
    let body = ask(
        &app,
        asked.caller(),
        wishes,
        move |source, options| Query::parse(&text)?.range(source, (start_ms, end_ms, step_ms), options),
        move |answer, times| write(answer, times, shape),
    );
    Ok(written(body.await?))
}

/// Exemplars are taken in and not kept: there are none, for any query that can be read.
pub(super) async fn exemplars(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    asked.span_ns()?;
    let warnings = match forwarded::ask(&app, &asked, "/api/v1/query_exemplars").await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => warnings,
    };
    let text = asked.get("query").to_owned();
    let parsed = blocking(move || Ok::<_, ApiError>(Query::parse(&text).map(drop))).await?;
    parsed?;
    Ok(success("[]", &warnings))
}

/// The query's tree.
pub(super) async fn tree(asked: Asked) -> Result<Response, Failure> {
    let text = asked.get("query").to_owned();
    let tree = blocking(move || Ok::<_, ApiError>(promql::query_tree(&text)));
    Ok(success(&tree.await??, &[]))
}

/// The query, laid out for people.
pub(super) async fn format(asked: Asked) -> Result<Response, Failure> {
    let text = asked.get("query").to_owned();
    let formatted = blocking(move || Ok::<_, ApiError>(promql::format_query(&text)));
    let mut data = String::new();
    push_text(&mut data, &formatted.await??);
    Ok(success(&data, &[]))
}

/// The whole body. An answer that was cut says of how many series it has the first.
fn write(mut answer: Answer, times: Times, shape: Shape) -> Result<Written, QueryError> {
    let total = answer.data.len();
    answer.warnings.splice(0..0, shape.warnings);
    let cut = answer.data.truncate(shape.limit);
    if cut {
        answer.warnings.push(CUT.to_owned());
    }
    let mut written = write_answer(&answer)?;
    if shape.stats {
        add_stats(&mut written.text, &answer, times);
    }
    if cut {
        super::add_total(&mut written.text, total);
    }
    Ok(written)
}

/// Puts the statistics where Prometheus has them: last in `data`.
fn add_stats(body: &mut String, answer: &Answer, times: Times) {
    let (queued, evaluated) = (times.queued.as_secs_f64(), times.evaluated.as_secs_f64());
    let total = queued + evaluated;
    let stats = serde_json::json!({
        "timings": {
            "evalTotalTime": evaluated,
            "resultSortTime": 0.0,
            "queryPreparationTime": 0.0,
            "innerEvalTime": evaluated,
            "execQueueTime": queued,
            "execTotalTime": total,
        },
        "samples": {
            "totalQueryableSamples": answer.stats.samples_read,
            "peakSamples": answer.stats.bytes_peak.div_ceil(size_of::<f64>() as u64),
        },
    });
    let mut tail = String::new();
    super::push_list(&mut tail, "warnings", &answer.warnings);
    super::push_list(&mut tail, "infos", &answer.infos);
    // The body ends in `}` of data, the lists, and `}` of the whole.
    let data_end = body.len().saturating_sub(tail.len() + 2);
    if body.is_char_boundary(data_end) {
        body.insert_str(data_end, &format!(",\"stats\":{stats}"));
    }
}

#[cfg(test)]
mod tests {
    use promql::{MemorySource, Options};

    use super::*;

    fn answer(query: &str) -> Answer {
        let query = Query::parse(query).unwrap();
        query.instant(&MemorySource::new(), 1_000, &Options::default()).unwrap()
    }

    #[test]
    fn statistics_stand_last_in_the_data_whatever_comes_behind_it() {
        let times = Times { queued: std::time::Duration::ZERO, evaluated: std::time::Duration::ZERO };
        for query in ["1", "vector(1)", "quantile(2, vector(1))"] {
            let body = write(answer(query), times, Shape { limit: 10, stats: true, ..Shape::default() });
            let body: serde_json::Value = serde_json::from_str(&body.unwrap().text).unwrap();
            assert!(body["data"]["stats"]["samples"]["totalQueryableSamples"].is_u64(), "{body}");
            assert_eq!(body["warnings"].is_array(), query.starts_with("quantile"), "{body}");
        }
    }
}
