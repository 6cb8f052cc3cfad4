//! What makes up the number of series of a part: what a caller sees, or what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use store::{Cardinality, Counted, Store};

use promql::Matcher;

use crate::source::conditions;

/// [`Store::cardinality`] of the series that fit all `matchers`: they are walked, not the index.
pub(crate) fn census(store: &Store, matchers: &[Matcher], rows: usize) -> Cardinality {
    let found = store.select(&conditions(matchers), i64::MIN, i64::MAX);
    let mut census = Cardinality { series: found.len() as u64, ..Cardinality::default() };
    let mut metrics: BTreeMap<&str, u64> = BTreeMap::new();
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut labels: BTreeMap<&str, (BTreeSet<&str>, u64)> = BTreeMap::new();
    for one in &found {
        if let Some((first_ns, last_ns)) = store.series(one.id).map(|series| series.time_ns) {
            let (first, last) = census.time_ns.unwrap_or((first_ns, last_ns));
            census.time_ns = Some((first.min(first_ns), last.max(last_ns)));
        }
        *metrics.entry(one.labels.metric()).or_default() += 1;
        for (name, value) in one.labels.iter() {
            *pairs.entry((name, value)).or_default() += 1;
            let (values, bytes) = labels.entry(name).or_default();
            values.insert(value);
            *bytes += value.len() as u64;
        }
    }
    census.label_pairs = pairs.len() as u64;
    census.metrics = largest(metrics.into_iter().map(|(name, count)| (name.to_owned(), count)), rows);
    census.pairs = largest(pairs.into_iter().map(|((n, v), count)| (format!("{n}={v}"), count)), rows);
    let of_labels = || labels.iter().map(|(name, (values, bytes))| (*name, values.len() as u64, *bytes));
    census.labels = largest(of_labels().map(|(name, count, _)| (name.to_owned(), count)), rows);
    census.bytes = largest(of_labels().map(|(name, _, bytes)| (name.to_owned(), bytes)), rows);
    census
}

/// The first `rows`, largest first.
fn largest(counts: impl Iterator<Item = (String, u64)>, rows: usize) -> Vec<Counted> {
    let mut counts: Vec<Counted> = counts.map(|(name, count)| Counted { name, count }).collect();
    counts.sort_by_key(|counted| std::cmp::Reverse(counted.count));
    counts.truncate(rows);
    counts
}
