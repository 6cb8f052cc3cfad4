//! Alerts: what is wrong now, and what was.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::{Event, EventAsk, NANOS_PER_MILLI, RunId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Cursor, Params, json_number, next, unreadable};
use crate::access::Caller;
use crate::app::{App, Shared, blocking, read};
use crate::clock::{now_ms, to_ms};
use crate::error::ApiError;
use crate::notify::{LastTold, Outside, fingerprint, labels_of};
use crate::ruling::{GroupStood, Standing, severity};

/// Labels that name the cause of an alert, the most telling first.
const CAUSES: [&str; 4] = ["incident", "id", "run_id", "model"];
/// So many alerts of one rule with a cause each are a storm, shown as one.
const STORM: usize = 10;
/// Firings in one answer, unless fewer are asked for.
const LIMIT_MAX: usize = 1_000;
const LIMIT: usize = 200;
/// Longest time that is spent looking for those of one answer.
const TIME_MAX: Duration = Duration::from_secs(5);
const DAY_MS: i64 = 86_400_000;

/// What is wrong now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SummaryAnswer {
    /// Alerts that fire and are not silenced.
    firing: usize,
    /// Alerts whose condition does not hold for long enough yet.
    pending: usize,
    /// Alerts that a silence keeps back.
    silenced: usize,
    /// Alerts by what they have in common, the gravest first; none where counts were asked for only.
    groups: Vec<AlertGroup>,
    /// How many rules there are, recording ones among them.
    rules: usize,
    /// When rules were evaluated last; null where they were not.
    last_evaluation: Option<i64>,
    /// Rules that fail; none is named to who sees a part of all projects.
    errors: Vec<RuleError>,
    deliveries: Delivered,
}

/// A rule that fails.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleError {
    rule: String,
    error: String,
}

/// How telling goes; null for who sees a part of all projects.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Delivered {
    /// Deliveries since midnight, UTC.
    today: Option<usize>,
    /// Those of them that arrived.
    delivered: Option<usize>,
}

/// Alerts of one cause.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertGroup {
    /// What they have in common: a label with its value.
    key: String,
    /// All labels that they share.
    labels: BTreeMap<String, String>,
    count: usize,
    /// The gravest of them.
    severity: String,
    /// Since when, milliseconds since the epoch.
    since: i64,
    alerts: Vec<AlertRow>,
}

/// An alert.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertRow {
    rule: String,
    file: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// `firing` or `pending`.
    state: &'static str,
    /// Since when it fires, or its condition holds; milliseconds since the epoch.
    since: i64,
    #[schema(value_type = f64)]
    value: Value,
    severity: String,
    /// Silences that keep it back.
    silenced_by: Vec<String>,
    fingerprint: String,
    /// How it was told last; null where it was not.
    delivered: Option<LastTold>,
}

/// What rules say now, with how this server calls itself in alerts.
fn stood(app: &Shared) -> Option<(Vec<GroupStood>, Outside)> {
    let (stood, outside) = {
        let ruler = app.ruler();
        let ruler = ruler.as_ref()?;
        (Arc::clone(&ruler.stood), ruler.outside.clone())
    };
    let groups = stood.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Some((groups, outside))
}

/// Alerts that are pending or fire, by cause.
#[utoipa::path(get, operation_id = "alertsSummary", path = "/api/tg/v1/alerts/summary",
    params(("brief" = Option<bool>, Query, description = "`true`: counts only, `groups` stays empty")),
    responses((status = 200, body = SummaryAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn summary(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<SummaryAnswer>, ApiError> {
    let is_brief = Params::of(&uri)?.flag("brief")?;
    blocking(move || Ok(Json(summed(&app, &caller, is_brief, now_ms())))).await
}

fn summed(app: &Shared, caller: &Caller, is_brief: bool, now_ms: i64) -> SummaryAnswer {
    let (groups, outside) = stood(app).unwrap_or_default();
    let seen = |alert: &&Standing| caller.sees_labels(|label| alert.labels.get(label));
    let rows: Vec<AlertRow> = groups
        .iter()
        .flat_map(|group| &group.alerts)
        .filter(seen)
        .map(|alert| row(app, alert, &outside, now_ms))
        .collect();
    let count = |of: &dyn Fn(&AlertRow) -> bool| rows.iter().filter(|row| of(row)).count();
    let is_silenced = |row: &AlertRow| !row.silenced_by.is_empty();
    let all = !caller.is_bounded();
    let counted = all.then(|| app.book.deliveries.counted(now_ms - now_ms.rem_euclid(DAY_MS)));
    let errors = groups.iter().filter(|_| all).flat_map(|group| &group.errors);
    SummaryAnswer {
        firing: count(&|row| !is_silenced(row) && row.state == "firing"),
        pending: count(&|row| !is_silenced(row) && row.state == "pending"),
        silenced: count(&is_silenced),
        rules: groups.iter().map(|group| group.rules).sum(),
        last_evaluation: groups.iter().filter_map(|group| group.last_ms).max(),
        errors: errors.map(|(rule, error)| RuleError { rule: rule.clone(), error: error.clone() }).collect(),
        deliveries: Delivered { today: counted.map(|of| of.0), delivered: counted.map(|of| of.1) },
        groups: if is_brief { Vec::new() } else { grouped(rows) },
    }
}

fn row(app: &Shared, alert: &Standing, outside: &Outside, now_ms: i64) -> AlertRow {
    let labels = labels_of(&alert.labels, outside);
    let known_by = fingerprint(&labels);
    let silences = app.book.silences.of(&labels, now_ms);
    AlertRow {
        rule: alert.rule.clone(),
        file: alert.file.clone(),
        annotations: alert.annotations.clone(),
        state: if alert.fires { "firing" } else { "pending" },
        since: alert.fired_ms.filter(|_| alert.fires).unwrap_or(alert.active_ms),
        value: json_number(alert.value),
        severity: labels.get("severity").cloned().unwrap_or_default(),
        silenced_by: silences.into_iter().map(|silence| silence.id).collect(),
        fingerprint: format!("{known_by:016x}"),
        delivered: app.book.deliveries.of(known_by),
        labels,
    }
}

/// Puts alerts of one cause together; of a rule that fires for many causes at once the rule is the cause.
fn grouped(rows: Vec<AlertRow>) -> Vec<AlertGroup> {
    let mut groups: BTreeMap<String, Vec<AlertRow>> = BTreeMap::new();
    for row in rows {
        let cause = CAUSES.iter().find_map(|name| {
            Some(format!("{name}={}", row.labels.get(*name).filter(|value| !value.is_empty())?))
        });
        groups.entry(cause.unwrap_or_else(|| format!("alertname={}", row.rule))).or_default().push(row);
    }
    let mut alone: BTreeMap<String, usize> = BTreeMap::new();
    for rows in groups.values().filter(|rows| rows.len() == 1) {
        *alone.entry(rows[0].rule.clone()).or_default() += 1;
    }
    let of_storms: Vec<String> = groups
        .iter()
        .filter(|(_, rows)| rows.len() == 1 && alone.get(&rows[0].rule).is_some_and(|count| *count >= STORM))
        .map(|(key, _)| key.clone())
        .collect();
    for key in of_storms {
        let rows = groups.remove(&key).unwrap_or_default();
        let rule = rows.first().map(|row| row.rule.clone()).unwrap_or_default();
        groups.entry(format!("alertname={rule}")).or_default().extend(rows);
    }
    let mut groups: Vec<AlertGroup> = groups.into_iter().filter_map(|(key, rows)| group(key, rows)).collect();
    groups.sort_by_key(|group| {
        let fires = group.alerts.iter().any(|row| row.state == "firing");
        (!fires, std::cmp::Reverse(severity(&group.severity)), group.since)
    });
    groups
}

fn group(key: String, mut alerts: Vec<AlertRow>) -> Option<AlertGroup> {
    alerts.sort_by_key(|row| (row.state != "firing", std::cmp::Reverse(severity(&row.severity)), row.since));
    let mut labels = alerts.first()?.labels.clone();
    for row in &alerts {
        labels.retain(|name, value| row.labels.get(name) == Some(value));
    }
    let gravest = alerts.iter().max_by_key(|row| severity(&row.severity));
    Some(AlertGroup {
        key,
        labels,
        count: alerts.len(),
        severity: gravest.map(|row| row.severity.clone()).unwrap_or_default(),
        since: alerts.iter().map(|row| row.since).min()?,
        alerts,
    })
}

/// What fired, the latest end first, and before all what fires still.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryAnswer {
    firings: Vec<Firing>,
    /// Where to go on, as `cursor`; null when there are no more.
    next: Option<String>,
}

/// A time in which an alert fired.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Firing {
    rule: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    severity: String,
    /// Since when its condition held, milliseconds since the epoch; null where that is not known any more.
    pending_since: Option<i64>,
    /// Milliseconds since the epoch.
    start: i64,
    /// Milliseconds since the epoch; null where it fires still.
    end: Option<i64>,
    /// How long it fired, until now where it does still.
    seconds: f64,
    fingerprint: String,
}

/// Firings that ended in a time, and those that go on.
#[utoipa::path(get, operation_id = "alertsHistory", path = "/api/tg/v1/alerts/history",
    params(
        ("from" = Option<i64>, Query, description = "ended since, milliseconds since the epoch"),
        ("to" = Option<i64>, Query, description = "begun until, milliseconds since the epoch"),
        ("run_id" = Option<String>, Query, description = "of this run"),
        ("limit" = Option<usize>, Query, description = "200 unless given, at most 1000"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses(
        (status = 200, body = HistoryAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<HistoryAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let limit = params.limit(LIMIT, LIMIT_MAX)?;
    let cursor = params.cursor()?;
    let span = (params.number("from")?.unwrap_or(i64::MIN), params.number("to")?.unwrap_or(i64::MAX));
    let run = params.get("run_id").map(super::run_id).transpose()?;
    read(&app, move |shared| {
        if let Some(run) = run {
            super::find_run(shared, &caller, run)?;
        }
        let mut page = Page {
            caller: &caller,
            span,
            limit,
            cursor,
            at: (i64::MAX, 0),
            firings: Vec::new(),
            next: None,
            until: Instant::now() + TIME_MAX,
        };
        if cursor.is_none() {
            page.firings = going_on(shared, &caller, span, run);
        }
        let ns = |ms: i64| ms.saturating_mul(NANOS_PER_MILLI);
        let last_ns = cursor.map_or(i64::MAX, |(time_ns, _)| time_ns);
        let ask = EventAsk {
            time_ns: ns(span.0)..=last_ns,
            kinds: Some(vec!["alert".to_owned()]),
            run,
            ..EventAsk::default()
        };
        shared
            .store
            .events(&ask, &mut |event| page.take(event))
            .map_err(|error| unreadable("events", &error))?;
        Ok(Json(HistoryAnswer { firings: page.firings, next: page.next }))
    })
    .await
}

/// What fires now and began within the time; of one run where one is asked for.
fn going_on(shared: &Shared, caller: &Caller, (_, to): (i64, i64), run: Option<RunId>) -> Vec<Firing> {
    let run = run.map(|run| run.to_string());
    let (groups, outside) = stood(shared).unwrap_or_default();
    let now_ms = now_ms();
    let alerts = groups.iter().flat_map(|group| &group.alerts).filter(|alert| alert.fires);
    let mut firings: Vec<Firing> = alerts
        .filter(|alert| caller.sees_labels(|label| alert.labels.get(label)))
        .filter(|alert| run.is_none() || alert.labels.get("run_id") == run.as_deref())
        .filter_map(|alert| {
            let start = alert.fired_ms.filter(|start| *start <= to)?;
            let labels = labels_of(&alert.labels, &outside);
            Some(Firing {
                rule: alert.rule.clone(),
                annotations: alert.annotations.clone(),
                severity: labels.get("severity").cloned().unwrap_or_default(),
                pending_since: Some(alert.active_ms),
                start,
                end: None,
                seconds: (now_ms - start).max(0) as f64 / 1e3,
                fingerprint: format!("{:016x}", fingerprint(&labels)),
                labels,
            })
        })
        .collect();
    firings.sort_by_key(|firing| std::cmp::Reverse(firing.start));
    firings
}

/// An answer in the making.
struct Page<'c> {
    caller: &'c Caller,
    span: (i64, i64),
    limit: usize,
    /// The last time of the answer before, and how many ends of that time it had.
    cursor: Option<Cursor>,
    at: Cursor,
    firings: Vec<Firing>,
    next: Option<String>,
    until: Instant,
}

impl Page<'_> {
    fn take(&mut self, event: Event) -> ControlFlow<()> {
        if self.at.0 != event.time_ns {
            self.at = (event.time_ns, 0);
        }
        if Instant::now() >= self.until {
            self.next = Some(next(self.at));
            return ControlFlow::Break(());
        }
        let seen = self.caller.sees_labels(|label| event.label(label));
        let Some(firing) = firing(&event).filter(|firing| seen && firing.start <= self.span.1) else {
            return ControlFlow::Continue(());
        };
        let is_done = self.cursor.is_some_and(|(time, count)| time == self.at.0 && self.at.1 < count);
        if !is_done {
            if self.firings.len() >= self.limit {
                self.next = Some(next(self.at));
                return ControlFlow::Break(());
            }
            self.firings.push(firing);
        }
        self.at.1 += 1;
        ControlFlow::Continue(())
    }
}

/// The firing that an event tells the end of.
fn firing(event: &Event) -> Option<Firing> {
    let body: Value = serde_json::from_str(&event.body).ok()?;
    let start = body["start"].as_i64().filter(|_| body["what"] == "ended")?;
    let end = to_ms(event.time_ns);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let annotations = body["annotations"].as_object();
    let annotations =
        annotations.map(|all| all.iter().map(|(name, value)| (name.clone(), text(value))).collect());
    let labels: BTreeMap<String, String> = event.labels.iter().cloned().collect();
    Some(Firing {
        rule: text(&body["rule"]),
        annotations: annotations.unwrap_or_default(),
        severity: labels.get("severity").cloned().unwrap_or_default(),
        labels,
        pending_since: None,
        start,
        end: Some(end),
        seconds: (end - start).max(0) as f64 / 1e3,
        fingerprint: text(&body["fingerprint"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(rule: &str, severity: &str, since: i64, labels: &[(&str, &str)]) -> AlertRow {
        let mut labels: BTreeMap<String, String> =
            labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        labels.insert("alertname".to_owned(), rule.to_owned());
        AlertRow {
            rule: rule.to_owned(),
            file: String::new(),
            annotations: BTreeMap::new(),
            state: "firing",
            since,
            value: Value::Null,
            severity: severity.to_owned(),
            silenced_by: Vec::new(),
            fingerprint: String::new(),
            delivered: None,
            labels,
        }
    }

    fn shown(rows: Vec<AlertRow>) -> Vec<(String, usize, String, i64)> {
        grouped(rows).into_iter().map(|g| (g.key, g.count, g.severity, g.since)).collect()
    }

    #[test]
    fn alerts_of_one_cause_are_one_group_the_gravest_first() {
        let rows = vec![
            alert("Disk", "ticket", 5, &[("host", "a")]),
            alert("Slow", "ticket", 9, &[("run_id", "r"), ("rank", "1")]),
            alert("Stale", "page", 20, &[("run_id", "r")]),
        ];
        assert_eq!(
            shown(rows),
            [
                ("run_id=r".to_owned(), 2, "page".to_owned(), 9),
                ("alertname=Disk".to_owned(), 1, "ticket".to_owned(), 5)
            ]
        );
    }

    #[test]
    fn a_storm_of_one_rule_over_many_runs_is_one_group() {
        let runs: Vec<String> = (0..500).map(|at| format!("r{at}")).collect();
        let rows = runs.iter().map(|run| alert("Stale", "page", 1, &[("run_id", run)])).collect();
        assert_eq!(shown(rows), [("alertname=Stale".to_owned(), 500, "page".to_owned(), 1)]);
        let few = runs.iter().take(9).map(|run| alert("Stale", "page", 1, &[("run_id", run)])).collect();
        assert_eq!(shown(few).len(), 9);
    }
}
