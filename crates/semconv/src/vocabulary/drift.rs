//! A page of metrics compared with what is known of its source.

use std::collections::{BTreeMap, BTreeSet};

use model::Desc;

use super::{Row, Source};

/// What a page has, lacks, and has beyond the table.
#[derive(Debug, Clone, Default)]
pub struct Drift<'s> {
    /// Which versions have what the page has; empty when that says nothing.
    pub version: String,
    /// What is known.
    pub matched: Vec<Matched<'s>>,
    /// Names that look like the source's and are not in its table.
    pub unknown: Vec<String>,
    /// Canonical metrics that the page gives nothing for.
    pub missing: Vec<Missing<'s>>,
}

/// A metric of a page that is known.
#[derive(Debug, Clone, Copy)]
pub struct Matched<'s> {
    /// Its name on the page; a histogram's is its family's.
    pub source: &'s str,
    /// The canonical metric, where it has one.
    pub canonical: Option<&'static Desc>,
    /// What to know about it.
    pub note: &'s str,
}

/// A canonical metric that a page gives nothing for.
#[derive(Debug, Clone)]
pub struct Missing<'s> {
    /// The metric.
    pub canonical: &'static Desc,
    /// Names that would give it, any one of them.
    pub expected: Vec<&'s str>,
    /// Why it may be missing, and what to do.
    pub text: String,
}

/// Names that every program has, whatever it serves.
const EVERYBODYS: [&str; 8] =
    ["python_", "process_", "go_", "promhttp_", "http_", "scrape_", "up", "target_info"];

/// Compares the names of the series of a page with a source's table.
pub fn drift<'s, 'n>(source: &'s Source, names: impl IntoIterator<Item = &'n str>) -> Drift<'s> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let has = |row: &Row, name: &str| {
        if row.is_histogram() {
            names.contains(format!("{name}_bucket").as_str())
        } else {
            names.contains(name)
        }
    };
    let mut drift = Drift::default();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut given: BTreeSet<&str> = BTreeSet::new();
    let mut met = Vec::new();
    for row in &source.rows {
        for name in &row.from {
            known.insert(name);
            if has(row, name) {
                drift.matched.push(Matched { source: name, canonical: row.to, note: &row.note });
                given.extend(row.to.map(|to| to.name));
                met.push(row);
            }
        }
    }
    drift.version = versions(&met);
    drift.unknown = unknown(source, &names, &known);
    drift.missing = missing(source, &given);
    drift
}

/// What the versions of the rows that were met have in common.
fn versions(met: &[&Row]) -> String {
    let key = |version: &&str| numbers(version);
    let since = met.iter().map(|row| row.since.as_str()).filter(|v| !v.is_empty()).max_by_key(key);
    let until = met.iter().map(|row| row.until.as_str()).filter(|v| !v.is_empty()).min_by_key(key);
    match (since, until) {
        (Some(since), None) => format!("{since} or newer"),
        (None, Some(until)) => format!("before {until}"),
        (Some(since), Some(until)) if numbers(since) < numbers(until) => {
            format!("{since} or newer, before {until}")
        }
        // Nothing is bounded, or names of versions that never were together: of more than one program.
        _ => String::new(),
    }
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

/// Names of the source that its table lacks, each family once.
fn unknown(source: &Source, names: &BTreeSet<&str>, known: &BTreeSet<&str>) -> Vec<String> {
    let is_known = |name: &str| known.contains(name);
    let found: BTreeSet<&str> = names
        .iter()
        .map(|name| family(name, names))
        .filter(|name| !is_known(name))
        .filter(|name| source.owns(name) && !EVERYBODYS.iter().any(|start| name.starts_with(start)))
        .collect();
    found.into_iter().map(str::to_owned).collect()
}

/// The family of a series: what stands before the ends of a histogram, a summary or a time of creation.
fn family<'n>(name: &'n str, names: &BTreeSet<&'n str>) -> &'n str {
    if let Some(family) = name.strip_suffix("_bucket") {
        return family;
    }
    if let Some(base) = name.strip_suffix("_created") {
        let counter = format!("{base}_total");
        // The time of a counter's creation is the counter's, which has `_total` behind the same base.
        return names.get(counter.as_str()).copied().unwrap_or(base);
    }
    ["_sum", "_count"]
        .iter()
        .find_map(|end| {
            let family = name.strip_suffix(end)?;
            (names.contains(format!("{family}_bucket").as_str()) || names.contains(family)).then_some(family)
        })
        .unwrap_or(name)
}

fn missing<'s>(source: &'s Source, given: &BTreeSet<&str>) -> Vec<Missing<'s>> {
    let mut found: BTreeMap<&str, Missing<'s>> = BTreeMap::new();
    for (name, rows) in source.by_canonical() {
        let Some(first) = rows.first().filter(|_| !given.contains(name)) else { continue };
        let Some(canonical) = first.to else { continue };
        let expected: Vec<&str> = rows.iter().flat_map(|row| row.from.iter().map(String::as_str)).collect();
        found.insert(name, Missing { canonical, text: why_missing(source, first), expected });
    }
    for absent in source.absent.iter().filter(|absent| !given.contains(absent.to.name)) {
        let missing = Missing { canonical: absent.to, expected: Vec::new(), text: absent.why.clone() };
        found.insert(absent.to.name, missing);
    }
    found.into_values().collect()
}

fn why_missing(source: &Source, row: &Row) -> String {
    let name = row.from.first().map_or("", String::as_str);
    let title = &source.title;
    let mut text = match row.versions() {
        versions if versions.is_empty() => format!("{title} has it as `{name}`"),
        versions => format!("{title} has it as `{name}` ({versions})"),
    };
    if !row.switch.is_empty() {
        text.push_str("; ");
        text.push_str(&row.switch);
    }
    if !row.note.is_empty() {
        text.push_str(". ");
        text.push_str(&row.note);
    }
    text
}
