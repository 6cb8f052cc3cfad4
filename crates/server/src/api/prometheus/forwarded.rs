//! Questions that a far storage answers, where there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::Response;
use promql::{Matcher, QueryError};
use serde_json::Value;

use super::Failure;
use super::asked::Asked;
use crate::access::Caller;
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::far::{Forwarded, Question};

/// Longest time of a question that is no query, where `query_time_max` is longer.
const LIST_TIME_MAX: Duration = Duration::from_secs(50);
/// Longest wait for what is known of metrics, which is no reason to hold up a page.
const METADATA_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of what is known of metrics.
const METADATA_BYTES_MAX: u64 = 64 << 20;

/// Parameters that a caller who sees a part may hand on: what others mean to the far storage, such as
/// whose data it reads, is not known here.
const HANDED_ON: [&str; 10] =
    ["query", "match[]", "time", "start", "end", "step", "timeout", "limit", "lookback_delta", "stats"];

/// Where an answer comes from.
pub(super) enum From {
    /// The far storage; this is its answer.
    Far(Response),
    /// Here, with these warnings.
    Here(Vec<String>),
}

/// Asks the far storage, if there is one that answers: the whole question, with names as it knows
/// them and within what the caller may see.
pub(super) async fn ask(app: &App, asked: &Asked, path: &str) -> Result<From, Failure> {
    let Some(far) = &app.far else { return Ok(From::Here(Vec::new())) };
    let (parameters, caller) = (asked.parameters().to_vec(), asked.caller().clone());
    let shared = Arc::clone(app);
    let names = move |name: &str| shared.streams.canonical_names(name);
    let parameters = blocking(move || Ok::<_, ApiError>(translated(parameters, &caller, &names))).await??;
    let is_query = path.starts_with("/api/v1/query");
    let query_max = app.config.query.time_max;
    let bound = if is_query { query_max } else { LIST_TIME_MAX.min(query_max) };
    let time_max = asked.wishes()?.time_max.map_or(bound, |wish| wish.min(bound));
    let question = Question {
        path: path.to_owned(),
        parameters,
        is_form: !path.contains("/label/"),
        time_max,
        bytes_max: app.config.query.memory_max_bytes,
    };
    match far.forward(question).await {
        Forwarded::Answer(response) => Ok(From::Far(response)),
        Forwarded::Away(words) => Ok(From::Here(vec![away(&words)])),
        Forwarded::Slow(limit) => Err(Failure {
            kind: "timeout",
            message: format!("query timed out at the far storage after {limit:?}"),
        }),
        Forwarded::TooLarge(bytes) => Err(Failure {
            kind: "execution",
            message: format!(
                "the far storage's answer has {bytes} bytes, `query_memory_max_bytes` is {}",
                app.config.query.memory_max_bytes
            ),
        }),
    }
}

/// What the far storage knows of metrics, for a caller that sees everything: it has no idea which of
/// them are whose. And warnings.
pub(super) async fn metadata(app: &App, asked: &Asked) -> (Vec<(String, Value)>, Vec<String>) {
    let Some(far) = app.far.as_ref().filter(|_| !asked.caller().is_bounded()) else {
        return (Vec::new(), Vec::new());
    };
    let question = Question {
        path: "/api/v1/metadata".to_owned(),
        parameters: asked.parameters().to_vec(),
        is_form: false,
        time_max: METADATA_TIME_MAX.min(app.config.query.time_max),
        bytes_max: METADATA_BYTES_MAX,
    };
    match far.ask(question).await {
        Ok(mut answer) => {
            let metrics = answer["data"].as_object_mut().map(std::mem::take).unwrap_or_default();
            let first = |(name, mut all): (String, Value)| Some((name, all.get_mut(0)?.take()));
            (metrics.into_iter().filter_map(first).collect(), Vec::new())
        }
        Err(words) => (Vec::new(), vec![away(&words)]),
    }
}

fn away(words: &str) -> String {
    format!(
        "answered from this server alone, which may not hold everything: the far storage is away ({words})"
    )
}

/// The names of the metrics that are spelled so, none where none is.
type Spelled<'s> = &'s (dyn Fn(&str) -> Vec<String> + Sync);

/// Parameters as the far storage is to read them.
fn translated(
    parameters: Vec<(String, String)>,
    caller: &Caller,
    names: Spelled<'_>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut selectors = 0;
    let mut out = Vec::with_capacity(parameters.len());
    let is_handed_on = |name: &str| !caller.is_bounded() || HANDED_ON.contains(&name);
    for (name, value) in parameters.into_iter().filter(|(name, _)| is_handed_on(name)) {
        let value = match name.as_str() {
            "query" | "match[]" => {
                selectors += usize::from(name == "match[]");
                text(&value, caller, names).map_err(|error| match error {
                    error @ QueryError::Parse { .. } => Failure::parameter(&name, error),
                    error => error.into(),
                })?
            }
            _ => value,
        };
        out.push((name, value));
    }
    if caller.is_bounded() && selectors == 0 {
        let all: Vec<String> = caller.matchers().iter().map(Matcher::to_string).collect();
        out.push(("match[]".to_owned(), format!("{{{}}}", all.join(","))));
    }
    Ok(out)
}

/// A query with other names than the far storage knows put in its words. What can't be read here is
/// left to the far storage, which may know more, unless the caller sees a part only.
fn text(query: &str, caller: &Caller, names: Spelled<'_>) -> Result<String, QueryError> {
    let is_renamed = AtomicBool::new(false);
    let renamed = promql::rename_metrics(query, &|name| {
        let mut others = names(name);
        if others.is_empty() {
            others.push(model::prometheus_name(name));
        }
        if others == [name] {
            others.clear();
        }
        is_renamed.fetch_or(!others.is_empty(), Ordering::Relaxed);
        others
    });
    let query = match renamed {
        Ok(renamed) if is_renamed.into_inner() => renamed,
        _ => query.to_owned(),
    };
    caller.confined_text(&query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::How;

    #[test]
    fn a_caller_that_sees_a_part_hands_on_what_is_known_to_stay_within() {
        let bounds = store::Bounds { project: Some("p".into()), ..store::Bounds::default() };
        let caller = Caller::known([store::Scope::Read].into_iter().collect(), bounds, How::Open);
        let given = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            translated(pairs.collect(), &caller, &|_| Vec::new()).unwrap()
        };
        assert_eq!(
            given(&[("match[]", "up"), ("extra_label", "x=y"), ("match[]", "{a=\"b\"}"), ("limit", "3")]),
            [("match[]", "up{project=\"p\"}"), ("match[]", "{a=\"b\",project=\"p\"}"), ("limit", "3")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(given(&[]), [("match[]".to_owned(), "{project=\"p\"}".to_owned())]);
        assert!(translated(vec![("query".into(), "not promql (".into())], &caller, &|_| Vec::new()).is_err());
    }

    #[test]
    fn names_as_logged_are_translated_and_all_else_is_left_as_it_is() {
        let everything = Caller::everything();
        let names = |name: &str| match name {
            "megatron.training.skipped_iters" | "megatron_training_skipped_iters" => {
                vec!["megatron_training_skipped_iters_total".to_owned()]
            }
            "speed" => vec!["speed".to_owned(), "speed_meters_per_second".to_owned()],
            _ => Vec::new(),
        };
        let check = |query: &str, want: &str| assert_eq!(text(query, &everything, &names).unwrap(), want);
        check(
            "{\"megatron.training.skipped_iters\",run=\"a\"}",
            "{__name__=\"megatron_training_skipped_iters_total\",run=\"a\"}",
        );
        check("rate(megatron_training_skipped_iters[5m])", "rate(megatron_training_skipped_iters_total[5m])");
        check(
            "{__name__=~\"megatron_training_skipped_iters\"}",
            "{__name__=~\"megatron_training_skipped_iters\"}",
        );
        check("max(speed)", "max({__name__=~\"speed|speed_meters_per_second\"})");
        check("rate( loss [5m] )", "rate( loss [5m] )");
        check("{\"train/loss\",run=\"a\"}", "{__name__=\"train_loss\",run=\"a\"}");
        check("{__name__=\"train/loss\"}", "{__name__=\"train_loss\"}");
        check("{__name__=~\"train/.*\"}", "{__name__=~\"train/.*\"}");
        // MetricsQL, which is VictoriaMetrics' to read.
        check("loss keep_metric_names if up", "loss keep_metric_names if up");
    }
}
