//! What was found, place by place, and how it becomes rows.

use std::collections::{BTreeMap, HashMap};

use model::prometheus_name;

use super::cause::Cause;
use super::places::{At, Places};
use super::words::{Words, words};
use super::{Evidence, METRICS_MAX, Metric, PLACES_MAX, Place, ROWS_MAX, Row};

/// Everything found so far.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    evidence: &'a Evidence<'a>,
    causes: Vec<Cause>,
    by_cause: HashMap<Cause, usize>,
    names: Vec<&'a str>,
    by_name: HashMap<&'a str, u32>,
    /// By cause and place: the metrics, by number, and since when.
    found: BTreeMap<(usize, At<'a>), Found>,
    is_cut: bool,
}

/// Places that lack the same metrics for one cause, and since when.
type Group<'a> = (Vec<At<'a>>, Option<i64>);

#[derive(Debug, Default)]
struct Found {
    metrics: Vec<u32>,
    since_ns: Option<i64>,
}

impl<'a> Findings<'a> {
    pub(super) fn of(evidence: &'a Evidence<'a>) -> Self {
        let mut findings = Self {
            evidence,
            causes: Vec::new(),
            by_cause: HashMap::new(),
            names: Vec::new(),
            by_name: HashMap::new(),
            found: BTreeMap::new(),
            is_cut: false,
        };
        for desc in evidence.expected {
            findings.number(desc.name);
        }
        findings
    }

    /// A metric's number; none where there are too many names.
    fn number(&mut self, name: &'a str) -> Option<u32> {
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        if self.names.len() >= METRICS_MAX {
            self.is_cut = true;
            return None;
        }
        let number = self.names.len() as u32;
        self.names.push(name);
        self.by_name.insert(name, number);
        Some(number)
    }

    /// Adds that a metric is missing somewhere; `since_ns` where it had points until then.
    pub(super) fn add(&mut self, cause: Cause, metric: &'a str, at: At<'a>, since_ns: Option<i64>) {
        let causes = &mut self.causes;
        let cause = *self.by_cause.entry(cause).or_insert_with_key(|cause| {
            causes.push(cause.clone());
            causes.len() - 1
        });
        let Some(metric) = self.number(metric) else { return };
        if self.found.len() >= PLACES_MAX && !self.found.contains_key(&(cause, at)) {
            self.is_cut = true;
            return;
        }
        let found = self.found.entry((cause, at)).or_default();
        found.metrics.push(metric);
        found.since_ns = match (found.since_ns, since_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// The rows, and whether there were too many.
    pub(super) fn rows(self) -> (Vec<Row>, bool) {
        let mut groups: BTreeMap<(usize, Vec<u32>), Group<'a>> = BTreeMap::new();
        for ((cause, at), mut found) in self.found {
            found.metrics.sort_unstable();
            found.metrics.dedup();
            let (places, since_ns) = groups.entry((cause, found.metrics)).or_default();
            places.push(at);
            *since_ns = match (*since_ns, found.since_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let expected = self.evidence.expected.len() as u32;
        let mut rows: Vec<(bool, Row)> = groups
            .into_iter()
            .map(|((cause, metrics), (places, since_ns))| {
                let is_extra = metrics.iter().all(|number| *number >= expected);
                let metrics: Vec<&str> = metrics.iter().map(|number| self.names[*number as usize]).collect();
                let words = words(&self.causes[cause], &metrics, Places(&places));
                (is_extra, row(self.evidence, words, &metrics, (&places, since_ns)))
            })
            .collect();
        // Alarms first, extras last, and what concerns most before the rest.
        rows.sort_by_key(|(is_extra, row)| {
            (!row.is_alarm, *is_extra, std::cmp::Reverse(row.places.len() * row.metrics.len()))
        });
        let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
        let is_cut = self.is_cut || rows.len() > ROWS_MAX;
        rows.truncate(ROWS_MAX);
        (rows, is_cut)
    }
}

fn row(
    evidence: &Evidence<'_>,
    words: Words,
    metrics: &[&str],
    (places, since_ns): (&[At<'_>], Option<i64>),
) -> Row {
    let unit = |name: &str| {
        let known = evidence.expected.iter().chain(evidence.catalog).find(|desc| desc.name == name);
        known.map_or("", |desc| desc.unit.symbol())
    };
    let metric =
        |name: &&str| Metric { name: prometheus_name(name), display: (*name).to_owned(), unit: unit(name) };
    let place = |at: &At<'_>| Place { host: at.host.to_owned(), gpu: at.gpu, pid: at.pid, rank: at.rank };
    Row {
        reason: words.reason,
        text: words.text,
        hint: words.hint,
        command: words.command.map(str::to_owned),
        since_ns,
        is_alarm: words.is_alarm,
        metrics: metrics.iter().map(metric).collect(),
        // A run of whose hosts nobody tells has a place without a name.
        places: places.iter().filter(|at| !at.host.is_empty() || at.pid.is_some()).map(place).collect(),
    }
}
