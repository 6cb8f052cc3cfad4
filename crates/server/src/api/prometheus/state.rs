//! What Prometheus says of itself, said of this server: status and targets.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use model::Labels;
use promql::Matcher;
use scrape::{Scraper, TargetStatus};
use serde_json::{Value, json};

use super::asked::Asked;
use super::{Failure, success};
use crate::access::census;
use crate::app::{App, read};
use crate::clock::{rfc3339, to_ms};
use crate::config::FIELDS;
use crate::duration;
use crate::source::conditions;

/// The Prometheus whose API is answered; Grafana decides by it what to ask.
const PROMETHEUS_VERSION: &str = "3.8.0";
/// Rows of each list of `status/tsdb`.
const ROWS_DEFAULT: usize = 10;
/// Most rows.
const ROWS_MAX: usize = 10_000;

fn answer(data: &Value) -> Response {
    success(&data.to_string(), &[])
}

/// What is scraped. What in the files of targets can't be used stands among the warnings.
pub(super) async fn targets(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let everything = !asked.caller().is_bounded();
    let targets = app.scraper().as_ref().filter(|_| everything).map(Scraper::targets).unwrap_or_default();
    let (state, pool) = (asked.get("state").to_ascii_lowercase(), asked.get("scrapePool"));
    if !matches!(&*state, "" | "any" | "active" | "dropped") {
        return Err(Failure::parameter("state", "`active`, `dropped` or `any` is wanted"));
    }
    let is_wanted = |job: &str| pool.is_empty() || pool == job;
    let mut active = Vec::new();
    if state != "dropped" {
        active.extend(targets.active.iter().filter(|target| is_wanted(&target.job)).map(target));
    }
    let mut dropped = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for target in targets.dropped.iter().filter(|target| is_wanted(&target.job)) {
        *counts.entry(&target.job).or_default() += 1;
        if state != "active" {
            dropped.push(json!({"discoveredLabels": object(&target.discovered), "scrapePool": target.job}));
        }
    }
    let data = json!({"activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts});
    Ok(success(&data.to_string(), &targets.problems))
}

fn target(target: &TargetStatus) -> Value {
    let never = "0001-01-01T00:00:00Z".to_owned();
    json!({
        "discoveredLabels": object(&target.discovered),
        "labels": object(&target.labels),
        "scrapePool": target.job,
        "scrapeUrl": target.url,
        "globalUrl": target.url,
        "lastError": target.last_error,
        "lastScrape": target.last_scrape_ms.map_or(never, rfc3339),
        "lastScrapeDuration": target.last_duration_seconds,
        "health": target.health.as_str(),
        "scrapeInterval": duration::format(target.interval),
        "scrapeTimeout": duration::format(target.timeout),
    })
}

fn object(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// What targets say of their metrics.
pub(super) async fn targets_metadata() -> Response {
    answer(&json!([]))
}

/// Versions.
pub(super) async fn buildinfo() -> Response {
    answer(&json!({
        "version": PROMETHEUS_VERSION,
        "revision": "",
        "branch": "",
        "buildUser": concat!("truegauge ", env!("CARGO_PKG_VERSION")),
        "buildDate": "",
        "goVersion": "",
    }))
}

/// How the process runs.
pub(super) async fn runtimeinfo(State(app): State<App>) -> Response {
    let directory = std::env::current_dir().unwrap_or_default();
    answer(&json!({
        "startTime": app.metrics.started_rfc3339(),
        "CWD": directory.display().to_string(),
        "reloadConfigSuccess": app.reloads.last().is_good,
        "lastConfigTime": app.reloads.good_rfc3339(),
        "corruptionCount": 0,
        "goroutineCount": 0,
        "GOMAXPROCS": std::thread::available_parallelism().map_or(1, usize::from),
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": "",
    }))
}

/// The configuration: none in Prometheus' YAML.
pub(super) async fn config() -> Response {
    answer(&json!({"yaml": ""}))
}

/// Settings and their defaults, without what was given: some of it is nobody's business.
pub(super) async fn flags() -> Response {
    let flags: BTreeMap<&str, &str> = FIELDS.iter().map(|field| (field.flag, field.default)).collect();
    answer(&json!(flags))
}

/// Which metrics and labels cost how many series.
pub(super) async fn tsdb(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let rows = match asked.limit("limit")? {
        usize::MAX => ROWS_DEFAULT,
        limit if limit > ROWS_MAX => {
            return Err(Failure::parameter("limit", format_args!("limit must not exceed {ROWS_MAX}")));
        }
        limit => limit,
    };
    let selectors = asked.selectors(false)?;
    if selectors.len() > 1 {
        return Err(Failure::parameter("match[]", "one selector is taken, without `or`"));
    }
    let everything = !asked.caller().is_bounded();
    let (census, segments, labels, populations) = read(&app, move |shared| {
        let store = &shared.store;
        let matchers = selectors.first().map(Vec::as_slice).unwrap_or_default();
        let labels = series_of_labels(store, matchers, rows);
        if !matchers.is_empty() {
            return Ok((census(store, matchers, rows), 0, labels, Vec::new()));
        }
        Ok((store.cardinality(rows), store.status().segments, labels, store.populations(rows)))
    })
    .await?;
    let (first_ns, last_ns) = census.time_ns.unwrap_or((i64::MAX, i64::MIN));
    Ok(answer(&json!({
        "headStats": {
            "numSeries": census.series,
            "numLabelPairs": census.label_pairs,
            "chunkCount": segments,
            "minTime": to_ms(first_ns),
            "maxTime": to_ms(last_ns),
        },
        "seriesCountByMetricName": counted(&census.metrics),
        "labelValueCountByLabelName": counted(&census.labels),
        "memoryInBytesByLabelName": counted(&census.bytes),
        "seriesCountByLabelValuePair": counted(&census.pairs),
        "seriesCountByLabelName": counted(&labels),
        "seriesCountByPopulation": populations.iter().map(population).collect::<Vec<_>>(),
        "refusedLabels": if everything { refused_labels(&app) } else { Vec::new() },
    })))
}

/// Labels by the series that have them, largest first.
fn series_of_labels(store: &store::Store, matchers: &[Matcher], rows: usize) -> Vec<store::Counted> {
    let mut counts = store.label_counts(&conditions(matchers));
    counts.sort_by_key(|label| std::cmp::Reverse(label.series));
    counts.truncate(rows);
    counts.into_iter().map(|label| store::Counted { name: label.name, count: label.series }).collect()
}

/// A group of series that has a bound of its own: those of one project, or of no run.
fn population(of: &store::PopulationCount) -> Value {
    json!({"organization": of.organization, "workspace": of.workspace, "project": of.project,
        "runs": of.runs, "value": of.series, "limit": of.limit})
}

/// Labels whose points were refused since the start, by door and job or project.
fn refused_labels(app: &App) -> Vec<Value> {
    let rows = app.metrics.refused_labels.rows();
    let row = |(values, count): (Vec<String>, u64)| json!({"door": values[0], "name": values[1], "job": values[2], "value": count});
    rows.into_iter().map(row).collect()
}

fn counted(rows: &[store::Counted]) -> Vec<Value> {
    rows.iter().map(|row| json!({"name": row.name, "value": row.count})).collect()
}
