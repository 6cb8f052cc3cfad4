//! `query`, `query_range`, `query_exemplars`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::extract::State;
use axum::response::Response;
use model::{Exemplar, Labels};
use promql::json::{Written, push_labels, push_text, write_answer};
use promql::{Answer, Matcher, Query, QueryError};

use super::asked::{Asked, CUT};
use super::forwarded::{self, From};
use super::{Failure, success, written};
use crate::app::{App, Shared, blocking, read};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::query::{Times, ask};
use crate::source::select;

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

/// Most exemplars of one answer.
const EXEMPLARS_MAX: usize = 10_000;

/// The exemplars of every series that a query reads, by series, then time.
pub(super) async fn exemplars(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let span_ns = asked.span_ns()?;
    let mut warnings = match forwarded::ask(&app, &asked, "/api/v1/query_exemplars").await? {
        From::Far(response) => return Ok(response),
        From::Here(warnings) => warnings,
    };
    let (text, caller) = (asked.get("query").to_owned(), asked.caller().clone());
    let (data, is_cut) = read(&app, move |shared| {
        Ok(Query::parse(&text).map(|query| {
            let selectors: Vec<_> = query.selectors().into_iter().map(<[Matcher]>::to_vec).collect();
            let selectors = if selectors.is_empty() { selectors } else { caller.confine(selectors) };
            exemplars_of(shared, &selectors, span_ns)
        }))
    })
    .await??;
    if is_cut {
        warnings.push(CUT.to_owned());
    }
    Ok(success(&data, &warnings))
}

/// Exemplars as JSON, and whether there are more.
fn exemplars_of(shared: &Shared, selectors: &[Vec<Matcher>], span_ns: (i64, i64)) -> (String, bool) {
    let (mut data, mut room) = (String::from("["), EXEMPLARS_MAX);
    let mut seen = BTreeSet::new();
    for found in selectors.iter().flat_map(|one| select(&shared.store, &shared.streams, one, span_ns)) {
        let exemplars = shared.store.exemplars(found.id, span_ns.0, span_ns.1);
        if exemplars.is_empty() || !seen.insert(found.id) {
            continue;
        }
        data.push_str(if data.len() > 1 { ",{\"seriesLabels\":" } else { "{\"seriesLabels\":" });
        push_labels(&mut data, &found.labels);
        data.push_str(",\"exemplars\":[");
        for (at, exemplar) in exemplars.iter().take(room).enumerate() {
            if at > 0 {
                data.push(',');
            }
            push_exemplar(&mut data, exemplar);
        }
        data.push_str("]}");
        if exemplars.len() > room {
            data.push(']');
            return (data, true);
        }
        room -= exemplars.len();
    }
    data.push(']');
    (data, false)
}

fn push_exemplar(out: &mut String, exemplar: &Exemplar) {
    out.push_str("{\"labels\":");
    let labels = exemplar.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    push_labels(out, &Labels::from_pairs(labels));
    let value = match exemplar.value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    };
    let seconds = exemplar.time_ns.div_euclid(model::NANOS_PER_MILLI) as f64 / 1e3;
    // Writing to a String can't fail.
    let _infallible = write!(out, ",\"value\":\"{value}\",\"timestamp\":{seconds}}}");
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
