//! Answers from the index: which series fit, which labels there are, what makes them so many.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Labels;

use crate::SeriesId;
use crate::index::METRIC_NAME;
use crate::matcher::Matcher;
use crate::record;
use crate::series::{Series, SeriesInfo, State};
use crate::store::Inner;

/// A series that fits.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its number, to read it by.
    pub id: SeriesId,
    /// Its labels, the metric's name among them.
    pub labels: Arc<Labels>,
}

/// The labels of a series where the caller has them from before.
pub type Known<'k> = dyn Fn(SeriesId) -> Option<Arc<Labels>> + 'k;

/// A name and how many of something it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// What makes up the number of series. Those of deleted runs are not counted.
#[derive(Debug, Clone, Default)]
pub struct Cardinality {
    /// Series.
    pub series: u64,
    /// Different pairs of label and value.
    pub label_pairs: u64,
    /// Points that are in no segment yet.
    pub head_points: u64,
    /// Earliest and latest time of all points, nanoseconds; absent when there are none.
    pub time_ns: Option<(i64, i64)>,
    /// Metrics by series.
    pub metrics: Vec<Counted>,
    /// Labels by different values.
    pub labels: Vec<Counted>,
    /// Labels by the bytes of their values, each counted once a series.
    pub bytes: Vec<Counted>,
    /// Pairs `label=value` by series.
    pub pairs: Vec<Counted>,
}

type Range = (i64, i64);

impl State {
    /// Whether a series has points and no deleted run.
    fn is_visible(&self, series: &Series) -> bool {
        let deleted = |run| self.runs.get(&run).is_some_and(|run| run.deleted_ns.is_some());
        series.has_points() && !series.run.is_some_and(deleted)
    }

    pub(crate) fn shows(&self, id: SeriesId, (from_ns, to_ns): Range) -> bool {
        self.series.get(id).is_some_and(|series| {
            let (first_ns, last_ns) = series.totals.time_ns;
            first_ns <= to_ns && from_ns <= last_ns && self.is_visible(series)
        })
    }

    /// See [`crate::Store::series`].
    pub(crate) fn visible_info(&self, id: SeriesId) -> Option<SeriesInfo> {
        self.series.get(id).filter(|series| self.is_visible(series))?;
        self.info(id)
    }

    /// The visible series that fit, with their identities.
    pub(crate) fn matching(&self, matchers: &[Matcher<'_>], range: Range) -> Vec<(SeriesId, Arc<[u8]>)> {
        let label = |id, name: &str| record::identity_label(&self.series.get(id)?.identity, name);
        let ids = self.index.matching(matchers, &label).into_iter().filter(|id| self.shows(*id, range));
        ids.filter_map(|id| Some((id, self.series.get(id)?.identity.clone()))).collect()
    }

    /// See [`crate::Store::cardinality`].
    pub(crate) fn cardinality(&self, limit: usize) -> Cardinality {
        let mut found = Cardinality { head_points: self.head_points, ..Cardinality::default() };
        let hides = self.runs.values().any(|run| run.deleted_ns.is_some());
        let visible = |ids: &[SeriesId]| -> u64 {
            if !hides {
                return ids.len() as u64;
            }
            ids.iter().filter(|id| self.series.get(**id).is_some_and(|s| self.is_visible(s))).count() as u64
        };
        for series in self.series.values().filter(|series| self.is_visible(series)) {
            found.series += 1;
            let (first_ns, last_ns) = series.totals.time_ns;
            let (first, last) = found.time_ns.unwrap_or((first_ns, last_ns));
            found.time_ns = Some((first.min(first_ns), last.max(last_ns)));
        }
        for (name, values) in self.index.labels() {
            let (mut different, mut bytes) = (0, 0);
            for (value, ids) in values {
                let count = visible(ids);
                if count == 0 {
                    continue;
                }
                different += 1;
                bytes += value.len() as u64 * count;
                if name == METRIC_NAME {
                    keep_largest(&mut found.metrics, limit, count, || value.to_string());
                }
                keep_largest(&mut found.pairs, limit, count, || format!("{name}={value}"));
            }
            if different > 0 {
                found.label_pairs += different;
                keep_largest(&mut found.labels, limit, different, || name.to_owned());
                keep_largest(&mut found.bytes, limit, bytes, || name.to_owned());
            }
        }
        found
    }
}

/// Keeps `list` sorted, largest first, and no longer than `limit`; the name is made only when kept.
fn keep_largest(list: &mut Vec<Counted>, limit: usize, count: u64, name: impl FnOnce() -> String) {
    let at = list.partition_point(|kept| kept.count >= count);
    if at < limit {
        list.insert(at, Counted { name: name(), count });
        list.truncate(limit);
    }
}

impl Inner {
    /// See [`crate::Store::select`]. Labels are built after memory was let go.
    pub(crate) fn select(&self, matchers: &[Matcher<'_>], range: Range, known: &Known<'_>) -> Vec<Found> {
        let found = self.read_state().matching(matchers, range);
        let labelled = |(id, identity): (SeriesId, Arc<[u8]>)| {
            if let Some(labels) = known(id) {
                return Some(Found { id, labels });
            }
            let (_, labels) = record::identity_parts(&identity)?;
            Some(Found { id, labels: Arc::new(Labels::from_pairs(labels)) })
        };
        found.into_iter().filter_map(labelled).collect()
    }

    /// See [`crate::Store::label_names`].
    pub(crate) fn label_names(&self, matchers: &[Matcher<'_>], range: Range) -> Vec<String> {
        if matchers.is_empty() {
            let state = self.read_state();
            let shown = |ids: &Vec<SeriesId>| ids.iter().any(|id| state.shows(*id, range));
            let names = state.index.labels().filter(|(_, values)| values.values().any(shown));
            return names.map(|(name, _)| name.to_owned()).collect();
        }
        let found = self.read_state().matching(matchers, range);
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (_, identity) in &found {
            let (_, labels) = record::identity_parts(identity).unwrap_or_default();
            names.extend(labels.iter().map(|(name, _)| *name));
        }
        names.into_iter().map(str::to_owned).collect()
    }

    /// See [`crate::Store::label_values`].
    pub(crate) fn label_values(&self, name: &str, matchers: &[Matcher<'_>], range: Range) -> Vec<String> {
        if matchers.is_empty() {
            let state = self.read_state();
            let Some(values) = state.index.values(name) else { return Vec::new() };
            let shown = |ids: &[SeriesId]| ids.iter().any(|id| state.shows(*id, range));
            return values.iter().filter(|(_, ids)| shown(ids)).map(|(value, _)| value.to_string()).collect();
        }
        let found = self.read_state().matching(matchers, range);
        let values: BTreeSet<&str> =
            found.iter().filter_map(|(_, identity)| record::identity_label(identity, name)).collect();
        values.into_iter().map(str::to_owned).collect()
    }
}
