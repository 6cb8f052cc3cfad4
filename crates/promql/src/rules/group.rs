//! Evaluating a group of rules, and the alerts that it keeps.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use model::{Labels, stale_marker};
use serde::{Deserialize, Serialize};

use super::alert::{Alert, AlertRecord, AlertState, Notice, to_map};
use super::file::{GroupFile, RuleKind, RuleText};
use crate::answer::Data;
use crate::error::QueryError;
use crate::labels::{METRIC_NAME, with};
use crate::query::{Options, Query};
use crate::source::{Matcher, Source};
use crate::template::{Scene, Template};

/// Evaluations that were missed are a stop when they are as many, and cover as much time, as this.
const STOP_INTERVALS_MIN: i64 = 10;
const STOP_MS_MIN: i64 = 60 * 1000;

/// What is the same for every rule of a server.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// Labels that this server adds towards the outside, `$externalLabels` in templates.
    pub external_labels: Labels,
    /// Where this server is reached from outside.
    pub external_url: String,
    /// How rules' queries are evaluated.
    pub options: Options,
}

/// Whether an evaluation is on time or makes up for a missed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// On time: recording and alerting rules.
    Now,
    /// Made up: recording rules only, since nobody is alerted of the past.
    Missed,
}

/// A sample that a rule writes; a stale marker where a series of its ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The series.
    pub labels: Labels,
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The value.
    pub value: f64,
}

/// What became of one rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Samples to store, before the next rule of the group is evaluated.
    pub writes: Vec<Write>,
    /// Why the rule failed, in Prometheus' words; nothing is written then.
    pub error: Option<String>,
    /// Warnings of its query.
    pub warnings: Vec<String>,
}

/// What one rule keeps over a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleState {
    /// The rule's name and query, by which it is found again.
    pub name: String,
    /// See `name`.
    pub expr: String,
    /// See `name`: labels that the rule sets.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Series that it wrote last, which get a marker when they end.
    pub series: Vec<BTreeMap<String, String>>,
    /// Its alerts.
    pub alerts: Vec<AlertRecord>,
    /// When alerts were looked for last.
    #[serde(default)]
    pub looked_ms: Option<i64>,
}

/// What a group keeps over a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupState {
    /// When it was evaluated last, milliseconds since the Unix epoch.
    pub last_ms: Option<i64>,
    /// Its rules.
    pub rules: Vec<RuleState>,
    /// Series of rules that it no longer has, which have yet to get a marker.
    #[serde(default)]
    pub leftover: Vec<BTreeMap<String, String>>,
}

/// What changes with every evaluation, kept apart from the rest, which is large.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupTimes {
    /// See [`GroupState::last_ms`].
    pub last_ms: Option<i64>,
    /// See [`RuleState::looked_ms`]; of the rules in their order.
    pub looked_ms: Vec<Option<i64>>,
}

impl GroupState {
    /// Takes up times that were kept later than the rest. Those of another list of rules do not count.
    pub fn with_times(&mut self, times: &GroupTimes) {
        if times.last_ms < self.last_ms || times.looked_ms.len() != self.rules.len() {
            return;
        }
        self.last_ms = times.last_ms;
        for (rule, looked_ms) in self.rules.iter_mut().zip(&times.looked_ms) {
            rule.looked_ms = *looked_ms;
        }
    }

    /// Every series that the group wrote and that has not ended.
    pub fn series(&self) -> impl Iterator<Item = Labels> {
        let of_rules = self.rules.iter().flat_map(|rule| &rule.series);
        of_rules.chain(&self.leftover).map(to_labels)
    }
}

/// A group of rules with its alerts.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Milliseconds between evaluations.
    pub interval_ms: i64,
    query_offset_ms: i64,
    limit: usize,
    rules: Vec<Rule>,
    last_ms: Option<i64>,
    leftover: BTreeSet<Labels>,
    has_changed: bool,
}

#[derive(Debug)]
pub(super) struct Rule {
    text: RuleText,
    query: Query,
    labels: Vec<(String, Option<Template>, String)>,
    annotations: Vec<(String, Template)>,
    alerts: BTreeMap<Labels, Alert>,
    written: BTreeSet<Labels>,
    looked_ms: Option<i64>,
    /// Whether an evaluation was missed since.
    has_missed: bool,
    /// Whether its alerts or its series are others than when it was asked last.
    has_changed: bool,
}

impl Group {
    /// Makes the group of a file ready; `interval_ms` counts where the file gives none.
    pub fn new(file: &GroupFile, interval_ms: i64) -> Result<Self, QueryError> {
        let rules = file.rules.iter().map(Rule::new).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: file.name.clone(),
            interval_ms: file.interval_ms.unwrap_or(interval_ms).max(1),
            query_offset_ms: file.query_offset_ms,
            limit: file.limit,
            rules,
            last_ms: None,
            leftover: BTreeSet::new(),
            has_changed: true,
        })
    }

    /// How many rules it has.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules as they were written.
    pub fn rules(&self) -> impl Iterator<Item = &RuleText> {
        self.rules.iter().map(|rule| &rule.text)
    }

    /// The matchers of every selector in its rules.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &[Matcher]> {
        self.rules.iter().flat_map(|rule| rule.query.selectors())
    }

    /// The alerts of the rule at `index`, resolved ones of the last 15 minutes among them.
    pub fn alerts(&self, index: usize) -> impl Iterator<Item = &Alert> {
        self.rules.get(index).into_iter().flat_map(|rule| rule.alerts.values())
    }

    /// The times up to `now_ms` at which the group should have been evaluated and was not, oldest
    /// first, at most `most`: all but the last are [`Moment::Missed`]. Times are multiples of the
    /// interval. A group that was never evaluated has missed nothing.
    pub fn due(&self, now_ms: i64, most: usize) -> Vec<i64> {
        let last = now_ms.div_euclid(self.interval_ms) * self.interval_ms;
        let Some(done) = self.last_ms else { return vec![last] };
        let first = (done.div_euclid(self.interval_ms) + 1) * self.interval_ms;
        let oldest = last.saturating_sub(self.interval_ms.saturating_mul(most.saturating_sub(1) as i64));
        let mut due = Vec::new();
        let mut time = first.max(oldest);
        while time <= last && due.len() < most {
            due.push(time);
            time += self.interval_ms;
        }
        due
    }

    /// When the group is due next, milliseconds since the Unix epoch; the past when it never was.
    pub fn next_ms(&self) -> i64 {
        self.last_ms.map_or(0, |done| (done.div_euclid(self.interval_ms) + 1) * self.interval_ms)
    }

    /// Says that the group was evaluated at `time_ms`, once all its rules were.
    pub fn done(&mut self, time_ms: i64) {
        self.last_ms = Some(time_ms);
    }

    /// Evaluates the rule at `index` for `time_ms`. Store what it writes before the next rule is
    /// evaluated: later rules may read it.
    pub fn evaluate(
        &mut self,
        index: usize,
        source: &dyn Source,
        (time_ms, moment): (i64, Moment),
        setting: &Setting,
    ) -> Outcome {
        let (offset, limit) = (self.query_offset_ms, self.limit);
        let Some(rule) = self.rules.get_mut(index) else { return Outcome::default() };
        let alerting = matches!(rule.text.kind, RuleKind::Alerting { .. });
        if alerting && moment == Moment::Missed {
            rule.has_missed = true;
            return Outcome::default();
        }
        if alerting {
            rule.pass_over_gap(time_ms, self.interval_ms);
        }
        let query_ms = time_ms.saturating_sub(offset);
        let answer = match rule.query.instant(source, query_ms, &setting.options) {
            Ok(answer) => answer,
            Err(error) => return Outcome { error: Some(error.to_string()), ..Outcome::default() },
        };
        let vector = match answer.data {
            Data::Vector { samples, .. } => samples,
            Data::Scalar { value, .. } => vec![(Arc::default(), value)],
            Data::String { .. } | Data::Matrix(_) => {
                let error = Some("rule result is not a vector or scalar".to_owned());
                return Outcome { error, ..Outcome::default() };
            }
        };
        let result = if alerting {
            rule.alert(vector, source, (time_ms, query_ms), limit, setting)
        } else {
            rule.record(vector, query_ms, limit)
        };
        match result {
            Ok(samples) => {
                let writes = rule.with_markers(samples, query_ms);
                Outcome { writes, error: None, warnings: answer.warnings }
            }
            Err(error) => Outcome { error: Some(error), warnings: answer.warnings, ..Outcome::default() },
        }
    }

    /// What is to be told of the alerts of the rule at `index`, once it was evaluated for `time_ms`.
    /// One that fires is told again after `resend_ms`.
    pub fn notices(&mut self, index: usize, time_ms: i64, resend_ms: i64) -> Vec<Notice> {
        let (interval_ms, rule) = (self.interval_ms, self.rules.get_mut(index));
        let alerts = rule.into_iter().flat_map(|rule| rule.alerts.values_mut());
        alerts.filter_map(|alert| alert.tell(time_ms, interval_ms, resend_ms)).collect()
    }

    /// Markers for the series of rules that the group had before a change of its file, unless one of
    /// its rules writes them still. Ask once all rules were evaluated for `time_ms`.
    pub fn leftovers(&mut self, time_ms: i64) -> Vec<Write> {
        let time_ms = time_ms.saturating_sub(self.query_offset_ms);
        let leftover = std::mem::take(&mut self.leftover);
        self.has_changed |= !leftover.is_empty();
        let ended = leftover.into_iter().filter(|labels| !self.writes(labels));
        ended.map(|labels| Write { labels, time_ms, value: stale_marker() }).collect()
    }

    /// Whether one of its rules wrote the series when it was evaluated last.
    pub fn writes(&self, labels: &Labels) -> bool {
        self.rules.iter().any(|rule| rule.written.contains(labels))
    }

    /// Whether the other is written alike, wherever in the file.
    pub fn is_like(&self, other: &Self) -> bool {
        let frame = |of: &Self| (of.interval_ms, of.query_offset_ms, of.limit, of.rules.len());
        let text = |of: &RuleText| (of.kind.clone(), of.name.clone(), of.expr.clone(), of.labels.clone());
        let mut pairs = self.rules().zip(other.rules());
        self.name == other.name && frame(self) == frame(other) && pairs.all(|(a, b)| text(a) == text(b))
    }

    /// Whether [`Group::state`] differs from when this was asked last, in more than times, values and the
    /// texts of alerts.
    pub fn take_changed(&mut self) -> bool {
        let of_rules = self.rules.iter_mut().map(|rule| std::mem::take(&mut rule.has_changed));
        let of_rules = of_rules.fold(false, |any, one| any | one);
        std::mem::take(&mut self.has_changed) | of_rules
    }

    /// What of it changes with every evaluation.
    pub fn times(&self) -> GroupTimes {
        GroupTimes {
            last_ms: self.last_ms,
            looked_ms: self.rules.iter().map(|rule| rule.looked_ms).collect(),
        }
    }

    /// What to keep over a restart.
    pub fn state(&self) -> GroupState {
        GroupState {
            last_ms: self.last_ms,
            rules: self.rules.iter().map(Rule::state).collect(),
            leftover: self.leftover.iter().map(to_map).collect(),
        }
    }

    /// Takes up what was kept. A rule is found by name and query, else by name and labels: a threshold
    /// that was changed keeps its alerts. What is not found leaves its series to [`Group::leftovers`].
    pub fn restore(&mut self, mut state: GroupState) {
        self.has_changed = true;
        self.last_ms = state.last_ms;
        let by_query = |kept: &RuleState, text: &RuleText| kept.name == text.name && kept.expr == text.expr;
        let by_labels =
            |kept: &RuleState, text: &RuleText| kept.name == text.name && kept.labels == text.labels;
        let mut unknown: Vec<&mut Rule> = self.rules.iter_mut().collect();
        for is_same in [&by_query as &dyn Fn(&RuleState, &RuleText) -> bool, &by_labels] {
            unknown.retain_mut(|rule| {
                let Some(at) = state.rules.iter().position(|kept| is_same(kept, &rule.text)) else {
                    return true;
                };
                rule.restore(state.rules.remove(at));
                false
            });
        }
        self.leftover = state.series().collect();
    }
}

fn same_labelset(what: &str) -> String {
    format!("vector contains metrics with the same labelset after applying {what} labels")
}

impl Rule {
    pub(super) fn new(text: &RuleText) -> Result<Self, QueryError> {
        let template = |text: &str| {
            Template::parse(text).map_err(|reason| QueryError::Execution(format!("template: {reason}")))
        };
        let mut labels = Vec::new();
        let mut annotations = Vec::new();
        if let RuleKind::Alerting { annotations: texts, .. } = &text.kind {
            for (name, value) in &text.labels {
                labels.push((name.clone(), Some(template(value)?), value.clone()));
            }
            for (name, value) in texts {
                annotations.push((name.clone(), template(value)?));
            }
        } else {
            labels.extend(text.labels.iter().map(|(name, value)| (name.clone(), None, value.clone())));
        }
        let query = Query::parse(&text.expr)?;
        let (alerts, written) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self {
            text: text.clone(),
            query,
            labels,
            annotations,
            alerts,
            written,
            looked_ms: None,
            has_missed: false,
            has_changed: false,
        })
    }

    pub(super) fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values()
    }

    /// Goes on at `time_ms`, after evaluations were missed where it is late.
    pub(super) fn resume(&mut self, time_ms: i64, interval_ms: i64, is_late: bool) {
        self.has_missed = is_late;
        self.pass_over_gap(time_ms, interval_ms);
    }

    /// A stop does not count towards `for`: a condition that held before it and holds after it may have
    /// been gone in between. Evaluations that a busy server misses now and then are no stop.
    fn pass_over_gap(&mut self, time_ms: i64, interval_ms: i64) {
        let gap_ms = self.looked_ms.map_or(0, |looked| time_ms - looked - interval_ms);
        if std::mem::take(&mut self.has_missed) && gap_ms > STOP_MS_MIN.max(STOP_INTERVALS_MIN * interval_ms)
        {
            let pending = self.alerts.values_mut().filter(|alert| alert.state == AlertState::Pending);
            pending.for_each(|alert| alert.active_at_ms += gap_ms);
        }
        self.looked_ms = Some(time_ms);
    }

    fn record(
        &self,
        vector: Vec<(Arc<Labels>, f64)>,
        time_ms: i64,
        limit: usize,
    ) -> Result<Vec<Write>, String> {
        let set = |name: &str| name == METRIC_NAME || self.labels.iter().any(|(label, _, _)| label == name);
        let own = self.labels.iter().map(|(name, _, value)| (name.as_str(), value.as_str()));
        let own: Vec<(&str, &str)> =
            [(METRIC_NAME, self.text.name.as_str())].into_iter().chain(own).collect();
        let labelled = |(labels, value): (Arc<Labels>, f64)| {
            let mut pairs: Vec<(&str, &str)> = labels.iter().filter(|(name, _)| !set(name)).collect();
            pairs.extend(&own);
            pairs.sort_by_key(|(name, _)| *name);
            Write { labels: Labels::from_pairs(pairs), time_ms, value }
        };
        let writes: Vec<Write> = vector.into_iter().map(labelled).collect();
        let mut seen = HashSet::with_capacity(writes.len());
        if !writes.iter().all(|write| seen.insert(&write.labels)) {
            return Err(same_labelset("rule"));
        }
        if limit > 0 && writes.len() > limit {
            return Err(format!("exceeded limit of {limit} with {} series", writes.len()));
        }
        Ok(writes)
    }

    /// The alerts of a vector, with labels and annotations expanded.
    fn found(
        &self,
        vector: Vec<(Arc<Labels>, f64)>,
        source: &dyn Source,
        time_ms: i64,
        setting: &Setting,
    ) -> Result<BTreeMap<Labels, Alert>, String> {
        let ask = |text: &str| ask(text, source, time_ms, setting);
        let mut found = BTreeMap::new();
        for (series, value) in vector {
            let scene = Scene {
                labels: &series,
                value,
                external_labels: &setting.external_labels,
                external_url: &setting.external_url,
                time_ms,
                ask: &ask,
            };
            let expand = |template: &Template| {
                template.expand(&scene).unwrap_or_else(|error| format!("<error expanding template: {error}>"))
            };
            let mut labels = with(&series, METRIC_NAME, "");
            for (name, template, _) in &self.labels {
                labels = with(&labels, name, &template.as_ref().map(expand).unwrap_or_default());
            }
            let labels = with(&labels, "alertname", &self.text.name);
            let annotations =
                self.annotations.iter().map(|(name, template)| (name.clone(), expand(template))).collect();
            let alert = Alert {
                labels: labels.clone(),
                annotations,
                state: AlertState::Pending,
                value,
                active_at_ms: time_ms,
                fired_at_ms: None,
                resolved_at_ms: None,
                keep_firing_since_ms: None,
                told_at_ms: None,
            };
            if found.insert(labels, alert).is_some() {
                return Err(same_labelset("alert"));
            }
        }
        Ok(found)
    }

    pub(super) fn alert(
        &mut self,
        vector: Vec<(Arc<Labels>, f64)>,
        source: &dyn Source,
        times: (i64, i64),
        limit: usize,
        setting: &Setting,
    ) -> Result<Vec<Write>, String> {
        let RuleKind::Alerting { for_ms, keep_firing_ms, .. } = self.text.kind else { return Ok(Vec::new()) };
        let time_ms = times.0;
        let found = self.found(vector, source, time_ms, setting)?;
        let holding: BTreeSet<Labels> = found.keys().cloned().collect();
        for (labels, alert) in found {
            let known = self.alerts.get_mut(&labels);
            if let Some(known) = known.filter(|known| known.state != AlertState::Inactive) {
                known.value = alert.value;
                known.annotations = alert.annotations;
            } else {
                self.has_changed = true;
                self.alerts.insert(labels, alert);
            }
        }
        let mut active = 0;
        let mut writes = Vec::new();
        let mut has_changed = false;
        self.alerts.retain(|labels, alert| {
            let before = alert.stand();
            let is_kept = alert.step(holding.contains(labels), time_ms, (for_ms, keep_firing_ms));
            has_changed |= !is_kept || alert.stand() != before;
            if !is_kept || alert.state == AlertState::Inactive {
                return is_kept;
            }
            active += 1;
            let labels = with(labels, "alertstate", alert.state.as_str());
            let mut write = |labels: &Labels, name: &str, value: f64| {
                writes.push(Write { labels: with(labels, METRIC_NAME, name), time_ms: times.1, value });
            };
            write(&labels, "ALERTS", 1.0);
            write(&alert.labels, "ALERTS_FOR_STATE", alert.active_at_ms.div_euclid(1000) as f64);
            true
        });
        self.has_changed |= has_changed;
        if limit > 0 && active > limit {
            self.has_changed = true;
            self.alerts.clear();
            return Err(format!("exceeded limit of {limit} with {active} alerts"));
        }
        Ok(writes)
    }

    /// Adds a marker for every series that was written last time and is not now.
    fn with_markers(&mut self, mut writes: Vec<Write>, time_ms: i64) -> Vec<Write> {
        // As always: no two writes are of one series.
        let is_known = |write: &Write| self.written.contains(&write.labels);
        if writes.len() == self.written.len() && writes.iter().all(is_known) {
            return writes;
        }
        let mut before = std::mem::take(&mut self.written);
        let mut has_new = false;
        let known = |write: &Write| {
            before.take(&write.labels).unwrap_or_else(|| {
                has_new = true;
                write.labels.clone()
            })
        };
        self.written = writes.iter().map(known).collect();
        self.has_changed |= has_new || !before.is_empty();
        // What is left was written last time.
        writes.extend(before.into_iter().map(|labels| Write { labels, time_ms, value: stale_marker() }));
        writes
    }

    fn state(&self) -> RuleState {
        RuleState {
            name: self.text.name.clone(),
            expr: self.text.expr.clone(),
            labels: self.text.labels.clone(),
            series: self.written.iter().map(to_map).collect(),
            alerts: self.alerts.values().map(AlertRecord::of).collect(),
            looked_ms: self.looked_ms,
        }
    }

    fn restore(&mut self, state: RuleState) {
        self.looked_ms = state.looked_ms;
        self.written = state.series.into_iter().map(Labels::from_pairs).collect();
        let alerts = state.alerts.into_iter().map(AlertRecord::into_alert);
        self.alerts = alerts.map(|alert| (alert.labels.clone(), alert)).collect();
    }
}

/// Answers a template's query.
fn ask(
    text: &str,
    source: &dyn Source,
    time_ms: i64,
    setting: &Setting,
) -> Result<Vec<(Labels, f64)>, String> {
    let query = Query::parse(text).map_err(|error| error.to_string())?;
    match query.instant(source, time_ms, &setting.options).map_err(|error| error.to_string())?.data {
        Data::Vector { samples, .. } => {
            Ok(samples.into_iter().map(|(labels, value)| ((*labels).clone(), value)).collect())
        }
        Data::Scalar { value, .. } => Ok(vec![(Labels::default(), value)]),
        Data::String { .. } | Data::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
    }
}

fn to_labels(map: &BTreeMap<String, String>) -> Labels {
    Labels::from_pairs(map.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}
