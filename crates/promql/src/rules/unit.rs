//! Unit tests of rules in promtool's format.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use model::Labels;
use serde::Deserialize;

use super::alert::AlertState;
use super::file::{Finding, RuleFile, parse, yaml};
use super::group::{Group, Moment, Setting};
use super::order::order;
use crate::answer::Data;
use crate::limits::Limits;
use crate::memory::MemorySource;
use crate::notation::{Entry, parse_duration_ms, parse_labels, parse_values};
use crate::number::plain_text;
use crate::query::{Options, Query};

/// What became of one test of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The test's name, or its place in the file.
    pub name: String,
    /// What was wrong; empty when it passed.
    pub failures: Vec<String>,
    /// The alerts and queries that it asks about.
    pub about: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileYaml {
    #[serde(default)]
    rule_files: Vec<String>,
    #[serde(default)]
    evaluation_interval: Option<String>,
    #[serde(default)]
    group_eval_order: Vec<String>,
    #[serde(default)]
    fuzzy_compare: bool,
    #[serde(default)]
    tests: Vec<TestYaml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestYaml {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    interval: Option<String>,
    #[serde(default)]
    input_series: Vec<SeriesYaml>,
    #[serde(default)]
    alert_rule_test: Vec<AlertYaml>,
    #[serde(default)]
    promql_expr_test: Vec<ExprYaml>,
    #[serde(default)]
    external_labels: BTreeMap<String, String>,
    #[serde(default)]
    external_url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesYaml {
    series: String,
    values: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertYaml {
    #[serde(default)]
    eval_time: Option<String>,
    #[serde(default)]
    alertname: String,
    #[serde(default)]
    exp_alerts: Option<Vec<ExpectedYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedYaml {
    #[serde(default)]
    exp_labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    exp_annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExprYaml {
    expr: String,
    #[serde(default)]
    eval_time: Option<String>,
    #[serde(default)]
    exp_samples: Option<Vec<SampleYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleYaml {
    #[serde(default)]
    labels: String,
    value: f64,
}

/// Gives name and text of every file that a pattern means, or why there is none.
pub type ReadFiles<'a> = dyn Fn(&str) -> Result<Vec<(String, String)>, String> + 'a;

/// What the tests of one file may cost, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most values of all input series.
    pub values: usize,
    /// How long they may take.
    pub time: Duration,
}

/// Runs a file of tests. `read` gives name and text of the rule files that a pattern in the file
/// means. An error says what is wrong with the files themselves.
pub fn test(text: &str, read: &ReadFiles<'_>) -> Result<Vec<Verdict>, Vec<Finding>> {
    test_within(text, read, Bounds { values: usize::MAX, time: Duration::MAX })
}

/// Runs a file of tests as [`test()`] does, for somebody who is not to take all memory and time there is.
pub fn test_within(text: &str, read: &ReadFiles<'_>, bounds: Bounds) -> Result<Vec<Verdict>, Vec<Finding>> {
    let fail = |message: String| vec![Finding { line: 0, message }];
    let file: FileYaml = yaml(text)?;
    let interval_ms = millis(file.evaluation_interval.as_deref().unwrap_or("1m")).map_err(&fail)?;
    if interval_ms <= 0 {
        return Err(fail("`evaluation_interval` must be above 0".to_owned()));
    }
    let mut rules = Vec::new();
    for pattern in &file.rule_files {
        for (name, text) in read(pattern).map_err(&fail)? {
            let parsed = parse(&text).map_err(|findings| {
                let in_file =
                    |finding: Finding| Finding { message: format!("{name}: {}", finding.message), ..finding };
                findings.into_iter().map(in_file).collect::<Vec<_>>()
            })?;
            rules.push(parsed);
        }
    }
    let order = order_of(&file.group_eval_order, &rules).map_err(&fail)?;
    let cost = Cost { bounds, since: Instant::now(), values: Cell::new(0) };
    let run = Run { interval_ms, fuzzy: file.fuzzy_compare, rules: &rules, order: &order, cost };
    let judged = file.tests.iter().enumerate().map(|(at, test)| {
        let failures = run.test(test).unwrap_or_else(|failure| vec![failure]);
        let name = test.name.clone().unwrap_or_else(|| format!("test {}", at + 1));
        run.cost.check().map(|()| Verdict { name, failures, about: about(test) })
    });
    judged.collect::<Result<_, _>>().map_err(fail)
}

/// What the tests of a file have cost so far.
struct Cost {
    bounds: Bounds,
    since: Instant,
    values: Cell<usize>,
}

impl Cost {
    fn check(&self) -> Result<(), String> {
        let Bounds { values, time } = self.bounds;
        if self.values.get() > values {
            return Err(format!("the tests have more than {values} values: make them shorter"));
        }
        if self.since.elapsed() > time {
            let seconds = time.as_secs_f64();
            return Err(format!("the tests took more than {seconds} s: make them shorter, or fewer"));
        }
        Ok(())
    }
}

fn about(test: &TestYaml) -> Vec<String> {
    let alerts = test.alert_rule_test.iter().map(|case| case.alertname.clone());
    alerts.chain(test.promql_expr_test.iter().map(|case| case.expr.clone())).collect()
}

/// The place of each group in the order of evaluation.
fn order_of(names: &[String], rules: &[RuleFile]) -> Result<BTreeMap<String, usize>, String> {
    let mut order = BTreeMap::new();
    for (at, name) in names.iter().enumerate() {
        if order.insert(name.clone(), at).is_some() {
            return Err(format!("group `{name}` is repeated in `group_eval_order`"));
        }
    }
    let known: BTreeSet<&String> =
        rules.iter().flat_map(|file| &file.groups).map(|group| &group.name).collect();
    match order.keys().find(|name| !known.contains(name)) {
        Some(name) => Err(format!("`group_eval_order` names group `{name}`, which no rule file has")),
        None => Ok(order),
    }
}

fn millis(text: &str) -> Result<i64, String> {
    let plain_number = text != "0" && text.ends_with(|c: char| c.is_ascii_digit());
    parse_duration_ms(text)
        .filter(|_| !plain_number)
        .ok_or_else(|| format!("`{text}` is no duration: write one such as `5m`"))
}

struct Run<'f> {
    interval_ms: i64,
    fuzzy: bool,
    rules: &'f [RuleFile],
    order: &'f BTreeMap<String, usize>,
    cost: Cost,
}

/// Time and value of every sample, by series, not yet visible.
type Waiting = Vec<(Labels, Vec<(i64, f64)>)>;

/// Most evaluations of one test.
const EVALUATIONS_MAX: i64 = 1_000_000;

impl Run<'_> {
    fn test(&self, test: &TestYaml) -> Result<Vec<String>, String> {
        let interval = match &test.interval {
            Some(text) => millis(text)?,
            None => self.interval_ms,
        };
        if interval <= 0 {
            return Err("`interval` must be above 0".to_owned());
        }
        let mut waiting = samples(test, interval, &self.cost)?;
        let limits = Limits::default();
        let setting = Setting {
            external_labels: Labels::from_pairs(test.external_labels.clone()),
            external_url: test.external_url.clone(),
            options: Options {
                subquery_step: Duration::from_millis(self.interval_ms as u64),
                limits: Limits { time_max: limits.time_max.min(self.cost.bounds.time), ..limits },
                ..Options::default()
            },
        };
        let mut groups = self.groups(interval)?;
        let mut source = MemorySource::new();
        let mut failures = Vec::new();
        let mut alerts = alert_times(test)?;
        let end = end_of(test)?;
        if end / self.interval_ms > EVALUATIONS_MAX {
            return Err(format!("more than {EVALUATIONS_MAX} evaluations: raise `evaluation_interval`"));
        }
        let mut time = 0;
        while time <= end {
            self.cost.check()?;
            show(&mut waiting, &mut source, time);
            evaluate(&mut groups, &mut source, time, &setting)?;
            let until = time.saturating_add(self.interval_ms);
            while alerts.first().is_some_and(|(at, _)| *at < until) {
                let (_, case) = alerts.remove(0);
                failures.extend(check_alerts(case, &groups));
            }
            time = until;
        }
        for case in &test.promql_expr_test {
            self.cost.check()?;
            failures.extend(self.check_expr(case, &source, &setting)?);
        }
        Ok(failures)
    }

    fn groups(&self, interval_ms: i64) -> Result<Vec<Group>, String> {
        let mut groups = Vec::new();
        for file in self.rules.iter().flat_map(|file| &file.groups) {
            groups.push(Group::new(file, interval_ms).map_err(|error| error.to_string())?);
        }
        // As a server evaluates them, but for what the file says of the order, which goes first.
        let mut places = order(&groups.iter().collect::<Vec<_>>());
        places.sort_by_key(|at| self.order.get(&groups[*at].name).copied().unwrap_or(0));
        let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
        Ok(places.into_iter().filter_map(|at| groups[at].take()).collect())
    }

    fn check_expr(
        &self,
        case: &ExprYaml,
        source: &MemorySource,
        setting: &Setting,
    ) -> Result<Option<String>, String> {
        let eval_time = case.eval_time.as_deref().unwrap_or("0");
        let time = millis(eval_time)?;
        let place = format!("expr `{}` at {eval_time}", case.expr);
        let answer = Query::parse(&case.expr).and_then(|query| query.instant(source, time, &setting.options));
        let mut found = match answer.map(|answer| answer.data) {
            Ok(Data::Vector { samples, .. }) => {
                samples.into_iter().map(|(labels, value)| ((*labels).clone(), value)).collect::<Vec<_>>()
            }
            Ok(Data::Scalar { value, .. }) => vec![(Labels::default(), value)],
            Ok(_) => return Ok(Some(format!("{place}: the result is neither a vector nor a scalar"))),
            Err(error) => return Ok(Some(format!("{place}: {error}"))),
        };
        let mut wanted = Vec::new();
        for sample in case.exp_samples.iter().flatten() {
            let labels = if sample.labels.trim().is_empty() {
                Labels::default()
            } else {
                parse_labels(&sample.labels).map_err(|error| format!("{place}: {error}"))?.0
            };
            wanted.push((labels, sample.value));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        let same = found.len() == wanted.len()
            && found.iter().zip(&wanted).all(|(a, b)| a.0 == b.0 && self.equal(a.1, b.1));
        Ok((!same).then(|| format!("{place}: expected {}, got {}", list(&wanted), list(&found))))
    }

    fn equal(&self, a: f64, b: f64) -> bool {
        a == b || (self.fuzzy && (a.next_down() == b || a.next_up() == b))
    }
}

/// The latest time that a case asks for.
fn end_of(test: &TestYaml) -> Result<i64, String> {
    let alerts = test.alert_rule_test.iter().map(|case| case.eval_time.as_deref());
    let exprs = test.promql_expr_test.iter().map(|case| case.eval_time.as_deref());
    alerts.chain(exprs).try_fold(0, |end, time| Ok(end.max(millis(time.unwrap_or("0"))?)))
}

fn list(samples: &[(Labels, f64)]) -> String {
    if samples.is_empty() {
        return "nothing".to_owned();
    }
    let texts: Vec<String> = samples
        .iter()
        .map(|(labels, value)| {
            let series = labels.to_string();
            format!("{} {}", if series.is_empty() { "{}" } else { &series }, plain_text(*value))
        })
        .collect();
    texts.join(", ")
}

fn samples(test: &TestYaml, interval_ms: i64, cost: &Cost) -> Result<Waiting, String> {
    let mut waiting = Waiting::new();
    for series in &test.input_series {
        let (labels, rest) = parse_labels(&series.series).map_err(|error| error.to_string())?;
        if !rest.trim().is_empty() {
            return Err(format!("`{}` goes on behind its labels", series.series));
        }
        let mut samples = Vec::new();
        let entries = parse_values(&series.values).map_err(|error| error.to_string())?;
        cost.values.set(cost.values.get().saturating_add(entries.len()));
        cost.check()?;
        for (at, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Value(value) => samples.push(((at as i64).saturating_mul(interval_ms), *value)),
                Entry::Missing => {}
                Entry::Histogram => return Err("native histograms are not supported".to_owned()),
            }
        }
        samples.reverse();
        waiting.push((labels, samples));
    }
    Ok(waiting)
}

/// Makes the samples up to `time_ms` visible.
fn show(waiting: &mut Waiting, source: &mut MemorySource, time_ms: i64) {
    for (labels, samples) in waiting {
        while samples.last().is_some_and(|(time, _)| *time <= time_ms) {
            if let Some((time, value)) = samples.pop() {
                source.push(labels.clone(), time.saturating_mul(1_000_000), value);
            }
        }
    }
}

fn evaluate(
    groups: &mut [Group],
    source: &mut MemorySource,
    time_ms: i64,
    setting: &Setting,
) -> Result<(), String> {
    for group in groups {
        for index in 0..group.len() {
            let outcome = group.evaluate(index, source, (time_ms, Moment::Now), setting);
            if let Some(error) = outcome.error {
                let name = group.rules().nth(index).map_or("", |rule| rule.name.as_str());
                return Err(format!("rule `{name}` at {}s: {error}", time_ms / 1000));
            }
            for write in outcome.writes {
                source.push(write.labels, write.time_ms.saturating_mul(1_000_000), write.value);
            }
        }
        group.done(time_ms);
    }
    Ok(())
}

/// The alert cases by time.
fn alert_times(test: &TestYaml) -> Result<Vec<(i64, &AlertYaml)>, String> {
    let mut cases = Vec::new();
    for case in &test.alert_rule_test {
        if case.alertname.is_empty() {
            return Err("an item of `alert_rule_test` has no `alertname`".to_owned());
        }
        cases.push((millis(case.eval_time.as_deref().unwrap_or("0"))?, case));
    }
    cases.sort_by_key(|(time, _)| *time);
    Ok(cases)
}

fn check_alerts(case: &AlertYaml, groups: &[Group]) -> Option<String> {
    type Pair = (Labels, BTreeMap<String, String>);
    let mut found: Vec<Pair> = Vec::new();
    for group in groups {
        for (index, rule) in group.rules().enumerate() {
            if rule.name == case.alertname {
                let firing = group.alerts(index).filter(|alert| alert.state == AlertState::Firing);
                found.extend(firing.map(|alert| (alert.labels.clone(), alert.annotations.clone())));
            }
        }
    }
    let mut wanted: Vec<Pair> = case
        .exp_alerts
        .iter()
        .flatten()
        .map(|expected| {
            let mut labels = expected.exp_labels.clone().unwrap_or_default();
            labels.insert("alertname".to_owned(), case.alertname.clone());
            (Labels::from_pairs(labels), expected.exp_annotations.clone().unwrap_or_default())
        })
        .collect();
    // An empty annotation is the same as none.
    for (_, annotations) in found.iter_mut().chain(&mut wanted) {
        annotations.retain(|_, text| !text.is_empty());
    }
    found.sort();
    wanted.sort();
    if found == wanted {
        return None;
    }
    let show = |alerts: &[Pair]| {
        if alerts.is_empty() {
            return "nothing".to_owned();
        }
        let texts: Vec<String> = alerts.iter().map(|(labels, texts)| format!("{labels} {texts:?}")).collect();
        texts.join("; ")
    };
    let time = case.eval_time.as_deref().unwrap_or("0");
    Some(format!("alert `{}` at {time}: expected {}, got {}", case.alertname, show(&wanted), show(&found)))
}
