//! Rules before and beside their being in force: what one would have done, what is wrong with one, how its
//! tests fare.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use model::Labels;
use promql::rules::{Episode, Moments, ReadFiles, RuleKind, RuleText, Verdict, replay};
use promql::{Bar, Data, Matcher, Options, Query, QueryError, Source, bars};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{json_number, shown};
use crate::about::Catalog;
use crate::access::Caller;
use crate::app::{App, Shared, blocking, read};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::query::ask_several;
use crate::ruling::{self, Known, saved_rules};
use crate::starters;

/// Most steps of a back-test, and most values that its condition may have.
const STEPS_MAX: i64 = 11_000;
const VALUES_MAX: usize = 2_000_000;
/// Longest back-test.
const SPAN_MS_MAX: i64 = 366 * 86_400_000;
/// Series that are shown, points of each, and firings.
const SERIES_MAX: usize = 20;
const POINTS_MAX: usize = 1_500;
const EPISODES_MAX: usize = 5_000;
/// A series that is there whenever the server runs and stores what it counts.
const OWN: &str = "truegauge_store_reserve_bytes{job=\"truegauge\"}";

/// What is tried: a rule in force, or a text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BacktestBody {
    /// An alerting rule in force.
    rule: Option<String>,
    /// Or a condition.
    expr: Option<String>,
    /// For how long it must hold; the rule's own unless given.
    for_seconds: Option<f64>,
    /// How long it goes on firing afterwards; the rule's own unless given.
    keep_firing_seconds: Option<f64>,
    /// Milliseconds since the epoch.
    from: i64,
    /// Milliseconds since the epoch.
    to: i64,
    /// How often it is evaluated, at most 11,000 times; the rule's interval, or a minute, unless given.
    step_seconds: Option<f64>,
}

/// What a rule would have done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacktestAnswer {
    /// What the condition holds against its threshold, the series that went furthest first.
    series: Vec<LineRow>,
    /// How many series there are.
    series_total: usize,
    /// What the shown series are held against.
    threshold: Vec<Threshold>,
    firings: Vec<SpanRow>,
    /// Times in which the condition held, but the alert did not fire yet.
    pending: Vec<SpanRow>,
    /// Times in which the server stored nothing of its own, so that nothing is known.
    gaps: Vec<Span>,
    /// Why gaps are not known; null where they are.
    gaps_reason: Option<String>,
    /// How long alerts fired, together.
    total_seconds: f64,
    step_seconds: f64,
}

/// A series: time and value of each point.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LineRow {
    labels: BTreeMap<String, String>,
    #[schema(value_type = Vec<(i64, f64)>)]
    points: Vec<(i64, Value)>,
}

/// A number that a condition compares with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Threshold {
    #[schema(value_type = f64)]
    value: Value,
    /// The comparison, such as `> 1.1`.
    text: String,
}

/// A time, milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Span {
    from: i64,
    to: i64,
}

/// A time of an alert.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpanRow {
    labels: BTreeMap<String, String>,
    from: i64,
    to: i64,
}

/// What is evaluated, when.
struct Trial {
    text: RuleText,
    from_ms: i64,
    to_ms: i64,
    step_ms: i64,
    /// How often the server stores what it counts.
    own_ms: Option<i64>,
}

/// Evaluates a condition over what is stored, by the alerts that rules have.
#[utoipa::path(post, operation_id = "backtestRule", path = "/api/tg/v1/rules/backtest", request_body = BacktestBody,
    responses(
        (status = 200, body = BacktestAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 422, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn backtest(
    State(app): State<App>,
    caller: Caller,
    body: Bytes,
) -> Result<Json<BacktestAnswer>, ApiError> {
    let body: BacktestBody = super::json_body(&body)?;
    let (shared, asker) = (Arc::clone(&app), caller.clone());
    let trial = blocking(move || trial(&shared, &asker, body)).await?;
    let answer = ask_several(&app, &caller, move |source, options| tried(&trial, source, options));
    answer.await.map(Json).map_err(super::engines::failed)
}

fn trial(shared: &Shared, caller: &Caller, body: BacktestBody) -> Result<Trial, ApiError> {
    let seconds = |name: &str, seconds: Option<f64>, or_ms: i64| match seconds {
        None => Ok(or_ms),
        Some(seconds) if (0.0..=1e9).contains(&seconds) => Ok((seconds * 1e3) as i64),
        Some(_) => Err(ApiError::bad(format!("`{name}` is a time, 0 or more"))),
    };
    let (mut text, interval_ms) = match (&body.rule, &body.expr) {
        (Some(name), None) => {
            // How rules are written may name anything.
            caller.check_unbounded()?;
            let known = find(shared, name)?;
            (known.text, known.interval_ms)
        }
        (None, Some(expr)) => {
            let findings = findings(shared, expr);
            if let Some(first) = findings.first() {
                let all = findings.iter().map(|finding| finding.text.clone()).collect();
                return Err(ApiError::bad(first.text.clone()).reasons(all));
            }
            (text_of(expr), 60_000)
        }
        _ => return Err(ApiError::bad("one of `rule` and `expr` is wanted: a rule's name, or a condition")),
    };
    let RuleKind::Alerting { for_ms, keep_firing_ms, .. } = &mut text.kind else {
        return Err(ApiError::bad(format!("`{}` is a recording rule: it does not fire", shown(&text.name))));
    };
    *for_ms = seconds("for_seconds", body.for_seconds, *for_ms)?;
    *keep_firing_ms = seconds("keep_firing_seconds", body.keep_firing_seconds, *keep_firing_ms)?;
    let span_ms = body.to.saturating_sub(body.from);
    if !(1..=SPAN_MS_MAX).contains(&span_ms) || body.from < 0 {
        return Err(ApiError::bad("`from` and `to` are a time of at most 366 days, `from` first"));
    }
    let step_ms = seconds("step_seconds", body.step_seconds, interval_ms)?.max(span_ms / STEPS_MAX + 1);
    let own = shared.config.own_metrics_interval.as_millis();
    let own_ms = shared.config.own_metrics.then(|| i64::try_from(own).unwrap_or(i64::MAX));
    let to_ms = body.to.min(now_ms()).max(body.from);
    Ok(Trial { text, from_ms: body.from, to_ms, step_ms, own_ms })
}

/// A rule that nobody wrote.
fn text_of(expr: &str) -> RuleText {
    RuleText {
        kind: RuleKind::Alerting { for_ms: 0, keep_firing_ms: 0, annotations: BTreeMap::new() },
        name: "Backtest".to_owned(),
        expr: expr.to_owned(),
        labels: BTreeMap::new(),
        line: 0,
    }
}

fn tried(trial: &Trial, source: &dyn Source, options: &Options) -> Result<(BacktestAnswer, u64), QueryError> {
    let mut samples = 0;
    let mut range = |text: &str| {
        let span = (trial.from_ms, trial.to_ms, trial.step_ms);
        let answer = Query::parse(text)?.range(source, span, options)?;
        samples += answer.stats.samples_read;
        Ok::<_, QueryError>(answer.data)
    };
    let (gaps, gaps_reason) = gaps(trial, &mut range)?;
    let held = runs(range(&trial.text.expr)?);
    let moments = moments(trial, &held, &gaps)?;
    let episodes = replay(&trial.text, moments, trial.step_ms)?;
    let bars = bars(&trial.text.expr)?;
    let mut lines = match bars.first() {
        Some(bar) => runs(range(&bar.expr)?),
        None => held,
    };
    let bars: Vec<&Bar> = bars.iter().filter(|bar| bar.expr == bars[0].expr).collect();
    let falls = bars.first().is_some_and(|bar| bar.op.starts_with('<'));
    let series_total = lines.len();
    lines.sort_by(|a, b| extreme(&b.1, falls).total_cmp(&extreme(&a.1, falls)));
    lines.truncate(SERIES_MAX);
    let total_ms: i64 =
        episodes.iter().filter_map(|e| Some(e.ended_ms.unwrap_or(trial.to_ms) - e.fired_ms?)).sum();
    let answer = BacktestAnswer {
        series: lines.into_iter().map(|(labels, points)| line(&labels, points, falls)).collect(),
        series_total,
        threshold: bars
            .iter()
            .map(|bar| Threshold { value: json_number(bar.value), text: format!("{} {}", bar.op, bar.value) })
            .collect(),
        firings: spans(&episodes, |e| Some((e.fired_ms?, e.ended_ms.unwrap_or(trial.to_ms)))),
        pending: spans(&episodes, |e| {
            let until = e.fired_ms.or(e.ended_ms).unwrap_or(trial.to_ms);
            (until > e.active_ms).then_some((e.active_ms, until))
        }),
        gaps,
        gaps_reason,
        total_seconds: total_ms as f64 / 1e3,
        step_seconds: trial.step_ms as f64 / 1e3,
    };
    Ok((answer, samples))
}

/// A series of a range, with its points.
type Line = (Labels, Vec<(i64, f64)>);

fn runs(data: Data) -> Vec<Line> {
    match data {
        Data::Matrix(runs) => {
            runs.iter().map(|run| ((*run.labels).clone(), run.points().collect())).collect()
        }
        _ => Vec::new(),
    }
}

/// When nothing of the server's own was stored, after it was for the first time.
fn gaps(
    trial: &Trial,
    range: &mut dyn FnMut(&str) -> Result<Data, QueryError>,
) -> Result<(Vec<Span>, Option<String>), QueryError> {
    let unknown = |reason: &str| Ok((Vec::new(), Some(reason.to_owned())));
    let Some(own_ms) = trial.own_ms else {
        return unknown("the server's own series are switched off, which would tell when it ran");
    };
    let window_ms = own_ms.saturating_mul(4).max(trial.step_ms);
    let found = runs(range(&format!("max(present_over_time({OWN}[{window_ms}ms]))"))?);
    let Some((_, points)) = found.first().filter(|(_, points)| !points.is_empty()) else {
        return unknown("no series of the server's own in this time tells when it ran");
    };
    let mut gaps = Vec::new();
    for pair in points.windows(2) {
        if pair[1].0 - pair[0].0 > trial.step_ms {
            gaps.push(Span { from: pair[0].0, to: pair[1].0 });
        }
    }
    let last = points.last().map_or(trial.to_ms, |(time, _)| *time);
    if trial.to_ms - last > trial.step_ms.max(window_ms) {
        gaps.push(Span { from: last, to: trial.to_ms });
    }
    Ok((gaps, None))
}

/// What the condition answers at each step at which the server ran.
fn moments(trial: &Trial, held: &[Line], gaps: &[Span]) -> Result<Moments, QueryError> {
    let values: usize = held.iter().map(|(_, points)| points.len()).sum();
    if values > VALUES_MAX {
        return Err(QueryError::Execution(format!(
            "the condition holds {values} times, at most {VALUES_MAX} are replayed"
        )));
    }
    let mut by_time: BTreeMap<i64, Vec<(Labels, f64)>> = BTreeMap::new();
    for (labels, points) in held {
        for (time, value) in points {
            by_time.entry(*time).or_default().push((labels.clone(), *value));
        }
    }
    let steps = (trial.to_ms - trial.from_ms) / trial.step_ms;
    let times = (0..=steps).map(|step| trial.from_ms + step * trial.step_ms);
    let runs = |time: &i64| !gaps.iter().any(|gap| gap.from < *time && *time < gap.to);
    Ok(times.filter(runs).map(|time| (time, by_time.remove(&time).unwrap_or_default())).collect())
}

fn extreme(points: &[(i64, f64)], falls: bool) -> f64 {
    let signed = points.iter().map(|(_, value)| if falls { -*value } else { *value });
    signed.filter(|value| !value.is_nan()).fold(f64::NEG_INFINITY, f64::max)
}

/// A series as it is shown: of many points those that went furthest.
fn line(labels: &Labels, points: Vec<(i64, f64)>, falls: bool) -> LineRow {
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    let furthest = |part: &[(i64, f64)]| {
        let mut all = part.iter().copied();
        let first = all.next()?;
        Some(all.fold(first, |best, one| {
            let is_further = if falls { one.1 < best.1 } else { one.1 > best.1 };
            if is_further { one } else { best }
        }))
    };
    let points = points.chunks(each).filter_map(furthest);
    LineRow { labels: map(labels), points: points.map(|(time, value)| (time, json_number(value))).collect() }
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn spans(episodes: &[Episode], of: impl Fn(&Episode) -> Option<(i64, i64)>) -> Vec<SpanRow> {
    let rows = episodes.iter().filter_map(|episode| {
        let (from, to) = of(episode)?;
        Some(SpanRow { labels: map(&episode.labels), from, to })
    });
    rows.take(EPISODES_MAX).collect()
}

/// A condition that is to be a rule's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckBody {
    expr: String,
}

/// What is wrong with a condition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckAnswer {
    /// Whether it may be a rule's.
    ok: bool,
    findings: Vec<RuleFinding>,
}

/// Something that is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleFinding {
    /// `syntax`, `shape` or `trust`.
    kind: &'static str,
    text: String,
    /// The metric that it is about, where it is about one.
    metric: Option<String>,
}

/// Says whether a condition may be a rule's: one that can be evaluated, and over nothing that misleads.
#[utoipa::path(post, operation_id = "checkRule", path = "/api/tg/v1/rules/check", request_body = CheckBody,
    responses((status = 200, body = CheckAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn check(State(app): State<App>, body: Bytes) -> Result<Json<CheckAnswer>, ApiError> {
    let body: CheckBody = super::json_body(&body)?;
    read(&app, move |shared| {
        let findings = findings(shared, &body.expr);
        Ok(Json(CheckAnswer { ok: findings.is_empty(), findings }))
    })
    .await
}

fn findings(shared: &Shared, expr: &str) -> Vec<RuleFinding> {
    let one = |kind, text: String| vec![RuleFinding { kind, text, metric: None }];
    let query = match Query::parse(expr) {
        Ok(query) => query,
        Err(error) => return one("syntax", format!("the condition can't be read: {error}")),
    };
    if !matches!(query.value_type(), promql::ValueType::Vector | promql::ValueType::Scalar) {
        return one("shape", "a rule needs a value for each series: this is a range or a text".to_owned());
    }
    let catalog = Catalog::new(&shared.config.catalog);
    let named = |matchers: &[Matcher]| {
        let name = matchers.iter().find(|m| &*m.name == "__name__" && m.op == promql::MatchOp::Equal);
        name.map(|matcher| matcher.value.to_string())
    };
    let mut names: Vec<String> = query.selectors().into_iter().filter_map(named).collect();
    names.sort();
    names.dedup();
    let untrusted = names.into_iter().filter_map(|name| {
        let about = catalog.about(&shared.store, &name);
        let text = format!(
            "`{name}` has trust D, which no rule may rest on: {}",
            if about.caveat.is_empty() { "alone it misleads" } else { about.caveat }
        );
        (about.trust == "D").then_some(RuleFinding { kind: "trust", text, metric: Some(name) })
    });
    untrusted.collect()
}

/// 400 where a condition rests on a metric that misleads.
pub(super) fn check_trust(shared: &Shared, expr: &str) -> Result<(), ApiError> {
    match findings(shared, expr).into_iter().find(|finding| finding.kind == "trust") {
        Some(finding) => Err(ApiError::bad(finding.text).hint("nothing has changed")),
        None => Ok(()),
    }
}

fn find(shared: &Shared, name: &str) -> Result<Known, ApiError> {
    ruling::find(shared, name).ok_or_else(|| {
        ApiError::missing(format!("no rule `{}` is in force", shown(name)))
            .hint("`GET /api/v1/rules` lists those that are")
    })
}

/// A rule in force.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleAnswer {
    name: String,
    file: String,
    group: String,
    /// How often it is evaluated.
    interval_seconds: f64,
    /// `alerting` or `recording`.
    r#type: &'static str,
    query: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    for_seconds: f64,
    keep_firing_seconds: f64,
    /// The page that says what to do; null without one.
    runbook: Option<String>,
    /// How the tests about it fare; null where none are known.
    tests: Option<Vec<RuleTest>>,
    /// Why no tests are known; null where they are.
    tests_reason: Option<String>,
}

/// How a test of a rule fares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleTest {
    name: String,
    passed: bool,
    /// What was wrong; null where it passed.
    error: Option<String>,
}

/// A rule in force, with how its tests fare now.
#[utoipa::path(get, operation_id = "showRule", path = "/api/tg/v1/rules/{name}",
    params(("name" = String, Path, description = "the rule")),
    responses((status = 200, body = RuleAnswer), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RuleAnswer>, ApiError> {
    read(&app, move |shared| {
        let Known { file, group, interval_ms, text } = find(shared, &name)?;
        let tests = tests(shared, &file).map(|all| of_rule(&all, &name));
        let tests = tests.and_then(|tests| {
            if tests.is_empty() { Err("no test of its file asks about it".to_owned()) } else { Ok(tests) }
        });
        let (r#type, for_ms, keep_firing_ms, annotations) = match text.kind {
            RuleKind::Recording => ("recording", 0, 0, BTreeMap::new()),
            RuleKind::Alerting { for_ms, keep_firing_ms, annotations } => {
                ("alerting", for_ms, keep_firing_ms, annotations)
            }
        };
        let (tests, tests_reason) = match tests {
            Ok(tests) => (Some(tests), None),
            Err(reason) => (None, Some(reason)),
        };
        Ok(Json(RuleAnswer {
            runbook: annotations.get("runbook_url").cloned(),
            interval_seconds: interval_ms as f64 / 1e3,
            for_seconds: for_ms as f64 / 1e3,
            keep_firing_seconds: keep_firing_ms as f64 / 1e3,
            name: text.name,
            query: text.expr,
            labels: text.labels,
            file,
            group,
            r#type,
            annotations,
            tests,
            tests_reason,
        }))
    })
    .await
}

/// How the tests of a file of rules fare: those that come with the program, or those beside the file.
fn tests(shared: &Shared, file: &str) -> Result<Arc<Vec<Verdict>>, String> {
    if let Some(name) = file.strip_prefix(saved_rules::FOLDER) {
        let saved = saved_rules::one(&shared.store, name).ok_or("its file is removed")?;
        return saved.verdicts(&shared.reloads.tested);
    }
    if let Some(name) = file.strip_prefix("starter/") {
        return starters::tests(name).ok_or_else(|| "its file has no tests".to_owned());
    }
    let path = FilePath::new(file);
    let folder = path.parent().unwrap_or(FilePath::new("."));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let places = [folder.join("tests").join(name), folder.join(format!("{stem}_test.yml"))];
    let bytes_max = crate::files::SMALL_BYTES_MAX;
    let found = places.iter().find_map(|place| Some((place, crate::files::text(place, bytes_max).ok()?)));
    let Some((place, text)) = found else {
        let names: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
        return Err(format!("there are no tests at {}", names.join(" or ")));
    };
    let beside = place.parent().unwrap_or(folder);
    let read = |pattern: &str| {
        let path = beside.join(pattern);
        let text = crate::files::text(&path, bytes_max);
        text.map(|text| vec![(pattern.to_owned(), text)]).map_err(|error| format!("`{pattern}`: {error}"))
    };
    let run = |read: &ReadFiles<'_>| promql::rules::test(&text, read);
    shared.reloads.tested.of(file, &text, &read, run).map_err(|findings| {
        let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
        format!("the tests in `{}` can't be run: {}", place.display(), all.join("; "))
    })
}

/// The tests that ask about a rule.
fn of_rule(all: &[Verdict], name: &str) -> Vec<RuleTest> {
    let asks = |verdict: &&Verdict| verdict.about.iter().any(|about| about == name || has_word(about, name));
    all.iter()
        .filter(asks)
        .map(|verdict| RuleTest {
            name: verdict.name.clone(),
            passed: verdict.failures.is_empty(),
            error: (!verdict.failures.is_empty()).then(|| verdict.failures.join("; ")),
        })
        .collect()
}

/// Whether a query has a name in it as a word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_word_alone() {
        assert!(has_word("sum(run:mfu_ratio) > 1", "run:mfu_ratio"));
        assert!(!has_word("run:mfu_ratio:coverage", "run:mfu_ratio"));
        assert!(!has_word("my_up", "up") && has_word("my_up + up", "up"));
    }

    #[test]
    fn many_points_become_those_that_went_furthest() {
        let points: Vec<(i64, f64)> = (0..6_000).map(|at| (at, f64::from(at % 7 == 3))).collect();
        let up = line(&Labels::default(), points.clone(), false);
        assert_eq!(up.points.len(), POINTS_MAX);
        let highs = up.points.iter().filter(|(_, value)| *value == 1.0).count();
        assert!(highs > POINTS_MAX / 2, "{highs}");
        let few = line(&Labels::default(), points[..5].to_vec(), true);
        assert_eq!(few.points.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
