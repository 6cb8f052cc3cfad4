//! Rule files: Prometheus' YAML, and everything that is wrong with one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::notation::parse_duration_ms;
use crate::query::Query;
use crate::template::Template;

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line in the file, from 1; 0 when unknown.
    pub line: u64,
    /// What is wrong, with the group and rule.
    pub message: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line == 0 { f.write_str(&self.message) } else { write!(f, "{}: {}", self.line, self.message) }
    }
}

/// A file of rules.
#[derive(Debug, Clone, Default)]
pub struct RuleFile {
    /// Its groups, in order.
    pub groups: Vec<GroupFile>,
}

/// Rules that are evaluated one after another.
#[derive(Debug, Clone)]
pub struct GroupFile {
    /// Unique within the file.
    pub name: String,
    /// Milliseconds between evaluations; `None` takes the server's.
    pub interval_ms: Option<i64>,
    /// Milliseconds by which queries look back.
    pub query_offset_ms: i64,
    /// Most series or alerts of one rule; 0 is no limit.
    pub limit: usize,
    /// The rules, in order.
    pub rules: Vec<RuleText>,
}

/// One rule as it was written, with its group's labels.
#[derive(Debug, Clone)]
pub struct RuleText {
    /// Recording or alerting.
    pub kind: RuleKind,
    /// Name of the metric or alert.
    pub name: String,
    /// PromQL.
    pub expr: String,
    /// Labels to set; templates for an alert.
    pub labels: BTreeMap<String, String>,
    /// Line in the file, from 1.
    pub line: u64,
}

/// What a rule makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleKind {
    /// A series.
    Recording,
    /// An alert.
    Alerting {
        /// Milliseconds for which the condition must hold.
        for_ms: i64,
        /// Milliseconds for which an alert goes on firing once the condition is gone.
        keep_firing_ms: i64,
        /// Texts, as templates.
        annotations: BTreeMap<String, String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileYaml {
    #[serde(default)]
    groups: Option<Vec<GroupYaml>>,
}

/// Names and texts; no text is an empty one.
type Texts = BTreeMap<String, Option<String>>;

fn filled(texts: Option<Texts>) -> BTreeMap<String, String> {
    let entries = texts.unwrap_or_default().into_iter();
    entries.map(|(name, text)| (name, text.unwrap_or_default())).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupYaml {
    #[serde(default)]
    name: Option<Spanned<String>>,
    #[serde(default)]
    interval: Option<Spanned<String>>,
    #[serde(default)]
    query_offset: Option<Spanned<String>>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(default)]
    labels: Option<Texts>,
    #[serde(default)]
    rules: Option<Vec<Spanned<RuleYaml>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleYaml {
    #[serde(default)]
    record: Option<Spanned<String>>,
    #[serde(default)]
    alert: Option<Spanned<String>>,
    #[serde(default)]
    expr: Option<Spanned<String>>,
    #[serde(default, rename = "for")]
    for_: Option<Spanned<String>>,
    #[serde(default)]
    keep_firing_for: Option<Spanned<String>>,
    #[serde(default)]
    labels: Option<Texts>,
    #[serde(default)]
    annotations: Option<Texts>,
}

/// Everything that is wrong with a rule file; nothing when Prometheus would load it.
pub fn check(text: &str) -> Vec<Finding> {
    parse(text).err().unwrap_or_default()
}

/// Reads a rule file, or says everything that is wrong with it.
pub fn parse(text: &str) -> Result<RuleFile, Vec<Finding>> {
    let yaml: FileYaml = yaml(text)?;
    let mut reader = Reader { findings: Vec::new() };
    let mut names = BTreeSet::new();
    let mut file = RuleFile::default();
    for group in yaml.groups.unwrap_or_default() {
        let line = group.name.as_ref().map_or(0, |name| name.referenced.line());
        let name = group.name.as_ref().map_or_else(String::new, |name| name.value.clone());
        if name.is_empty() {
            reader.find(line, "a group has no name: add `name:`");
        } else if !names.insert(name.clone()) {
            reader.find(line, format!("group `{name}` is repeated in the same file"));
        }
        file.groups.push(reader.group(group, name));
    }
    if reader.findings.is_empty() { Ok(file) } else { Err(reader.findings) }
}

/// Reads YAML; an error carries its line.
pub(super) fn yaml<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Vec<Finding>> {
    // An empty document is an empty file, as for Prometheus.
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    serde_saphyr::from_str(if blank { "{}" } else { text }).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        let first = first.trim_start_matches("error: ");
        vec![Finding { line, message: format!("the file is no YAML of the right shape: {first}") }]
    })
}

struct Reader {
    findings: Vec<Finding>,
}

impl Reader {
    fn find(&mut self, line: u64, message: impl Into<String>) {
        self.findings.push(Finding { line, message: message.into() });
    }

    fn duration(&mut self, text: Option<&Spanned<String>>, what: &str) -> Option<i64> {
        let text = text?;
        let parsed = parse_duration_ms(&text.value)
            .filter(|millis| *millis >= 0)
            .filter(|_| text.value == "0" || text.value.ends_with(|c: char| c.is_ascii_alphabetic()));
        if parsed.is_none() {
            let line = text.referenced.line();
            self.find(line, format!("`{}` of {what} is no duration: write one such as `5m`", text.value));
        }
        parsed
    }

    fn group(&mut self, group: GroupYaml, name: String) -> GroupFile {
        let interval_ms = self.duration(group.interval.as_ref(), &format!("the interval of group `{name}`"));
        let offset =
            self.duration(group.query_offset.as_ref(), &format!("the query offset of group `{name}`"));
        let shared = filled(group.labels);
        self.labels(0, &name, &shared);
        let rules = group.rules.unwrap_or_default();
        let rules = rules.into_iter().filter_map(|rule| self.rule(&name, &shared, rule)).collect();
        GroupFile {
            name,
            interval_ms: interval_ms.filter(|millis| *millis > 0),
            query_offset_ms: offset.unwrap_or(0),
            limit: usize::try_from(group.limit.unwrap_or(0)).unwrap_or(0),
            rules,
        }
    }

    fn rule(
        &mut self,
        group: &str,
        shared: &BTreeMap<String, String>,
        rule: Spanned<RuleYaml>,
    ) -> Option<RuleText> {
        let line = rule.referenced.line();
        let mut rule = rule.value;
        // An empty name is none.
        rule.record = rule.record.filter(|name| !name.value.is_empty());
        rule.alert = rule.alert.filter(|name| !name.value.is_empty());
        let (kind_is_alert, name) = match (&rule.record, &rule.alert) {
            (Some(record), None) => (false, record.value.clone()),
            (None, Some(alert)) => (true, alert.value.clone()),
            (Some(_), Some(_)) => {
                self.find(line, format!("a rule of group `{group}` has both `record` and `alert`: keep one"));
                return None;
            }
            _ => {
                let message = format!("a rule of group `{group}` has neither `record` nor `alert`: add one");
                self.find(line, message);
                return None;
            }
        };
        let place = format!("rule `{name}` of group `{group}`");
        let expr = rule.expr.as_ref().map_or("", |expr| expr.value.as_str());
        if expr.is_empty() {
            self.find(line, format!("{place} has no `expr`"));
        } else if let Err(error) = Query::parse(expr) {
            let line = rule.expr.as_ref().map_or(line, |expr| expr.referenced.line());
            self.find(line, format!("{place}: {error}"));
        }
        let labels = filled(rule.labels);
        self.labels(line, &place, &labels);
        let for_ms = self.duration(rule.for_.as_ref(), &format!("`for` of {place}"));
        let keep = self.duration(rule.keep_firing_for.as_ref(), &format!("`keep_firing_for` of {place}"));
        let annotations = filled(rule.annotations);
        if kind_is_alert {
            self.alert_texts(line, &place, &labels, &annotations);
        } else {
            self.recording(line, &place, &name, (for_ms, keep, !annotations.is_empty()));
        }
        let mut all = shared.clone();
        all.extend(labels);
        let kind = if kind_is_alert {
            RuleKind::Alerting { for_ms: for_ms.unwrap_or(0), keep_firing_ms: keep.unwrap_or(0), annotations }
        } else {
            RuleKind::Recording
        };
        Some(RuleText { kind, name, expr: expr.to_owned(), labels: all, line })
    }

    fn recording(&mut self, line: u64, place: &str, name: &str, wrong: (Option<i64>, Option<i64>, bool)) {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
        if !name.starts_with(starts) || !name.chars().all(|c| starts(c) || c.is_ascii_digit()) {
            let message =
                format!("{place}: `{name}` is no metric name: letters, digits, `_` and `:` are allowed");
            self.find(line, message);
        }
        let fields = [
            (wrong.0.is_some_and(|ms| ms != 0), "for"),
            (wrong.1.is_some_and(|ms| ms != 0), "keep_firing_for"),
            (wrong.2, "annotations"),
        ];
        for (_, field) in fields.into_iter().filter(|(is_wrong, _)| *is_wrong) {
            self.find(
                line,
                format!("{place} is a recording rule, where `{field}` has no meaning: remove it"),
            );
        }
    }

    fn labels(&mut self, line: u64, place: &str, labels: &BTreeMap<String, String>) {
        for name in labels.keys() {
            if !is_label_name(name) || name == "__name__" {
                self.find(line, format!("{place}: `{name}` is no label name"));
            }
        }
    }

    fn alert_texts(
        &mut self,
        line: u64,
        place: &str,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) {
        for name in annotations.keys().filter(|name| !is_label_name(name)) {
            self.find(line, format!("{place}: `{name}` is no annotation name"));
        }
        let labels = labels.iter().map(|entry| ("label", entry));
        let annotations = annotations.iter().map(|entry| ("annotation", entry));
        for (what, (name, text)) in labels.chain(annotations) {
            if let Err(reason) = Template::parse(text) {
                self.find(line, format!("{place}: {what} `{name}`: template: {reason}"));
            }
        }
    }
}

pub(super) fn is_label_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
