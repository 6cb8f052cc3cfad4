//! How many series have which labels and values: for completion, which asks at every key.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, RwLockReadGuard};

use crate::SeriesId;
use crate::index::{METRIC_NAME, common};
use crate::matcher::Matcher;
use crate::record;
use crate::series::{Population, State};
use crate::store::Inner;

/// All of time.
const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);

/// A label and what it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelCount {
    /// The label's name.
    pub name: String,
    /// Series that have it.
    pub series: u64,
    /// Its different values.
    pub values: u64,
}

/// What takes values, each with how many series have it, until it has enough.
pub type TakeValue<'t> = dyn FnMut(&str, u64) -> ControlFlow<()> + 't;

impl State {
    /// How many of `ids` are to be seen. Exact only where runs are deleted and not yet purged, so that
    /// no list is walked for nothing.
    fn seen(&self, ids: &[SeriesId], hides: bool) -> u64 {
        if !hides {
            return ids.len() as u64;
        }
        ids.iter().filter(|id| self.shows(**id, ALWAYS)).count() as u64
    }

    fn hides(&self) -> bool {
        self.runs.values().any(|run| run.deleted_ns.is_some())
    }
}

impl Inner {
    /// See [`crate::Store::each_value`].
    pub(crate) fn each_value(
        &self,
        name: &str,
        matchers: &[Matcher<'_>],
        prefix: &str,
        take: &mut TakeValue<'_>,
    ) {
        if matchers.is_empty() {
            let state = self.read_state();
            let Some(values) = state.index.values(name) else { return };
            let hides = state.hides();
            let range = values.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
            for (value, ids) in range.take_while(|(value, _)| value.starts_with(prefix)) {
                let count = state.seen(ids, hides);
                if count > 0 && take(value, count).is_break() {
                    return;
                }
            }
            return;
        }
        let found = self.found(matchers);
        let identities = match found {
            Seen::Many(state, ids) => {
                let Some(values) = state.index.values(name) else { return };
                let range = values.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
                for (value, posting) in range.take_while(|(value, _)| value.starts_with(prefix)) {
                    let count = common(posting, &ids) as u64;
                    if count > 0 && take(value, count).is_break() {
                        return;
                    }
                }
                return;
            }
            Seen::Few(identities) => identities,
        };
        let mut values: BTreeMap<&str, u64> = BTreeMap::new();
        for identity in &identities {
            if let Some(value) = record::identity_label(identity, name).filter(|v| v.starts_with(prefix)) {
                *values.entry(value).or_default() += 1;
            }
        }
        for (value, count) in values {
            if take(value, count).is_break() {
                return;
            }
        }
    }

    /// See [`crate::Store::label_counts`].
    pub(crate) fn label_counts(&self, matchers: &[Matcher<'_>]) -> Vec<LabelCount> {
        if matchers.is_empty() {
            let state = self.read_state();
            let hides = state.hides();
            let labels = state.index.labels().filter(|(name, _)| *name != METRIC_NAME);
            let counted = labels.map(|(name, values)| {
                let seen = values.values().map(|ids| state.seen(ids, hides));
                let (series, values) = seen.fold((0, 0), |(sum, some), n| (sum + n, some + u64::from(n > 0)));
                LabelCount { name: name.to_owned(), series, values }
            });
            return counted.filter(|label| label.series > 0).collect();
        }
        let identities = match self.found(matchers) {
            Seen::Many(state, ids) => {
                let labels = state.index.labels().filter(|(name, _)| *name != METRIC_NAME);
                let counted = labels.map(|(name, values)| {
                    let seen = values.values().map(|posting| common(posting, &ids) as u64);
                    let (series, values) =
                        seen.fold((0, 0), |(sum, some), n| (sum + n, some + u64::from(n > 0)));
                    LabelCount { name: name.to_owned(), series, values }
                });
                return counted.filter(|label| label.series > 0).collect();
            }
            Seen::Few(identities) => identities,
        };
        let mut counts: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for identity in &identities {
            let (_, labels) = record::identity_parts(identity).unwrap_or_default();
            for (name, value) in labels.into_iter().filter(|(name, _)| *name != METRIC_NAME) {
                *counts.entry(name).or_default().entry(value).or_default() += 1;
            }
        }
        let counted = counts.into_iter().map(|(name, values)| LabelCount {
            name: name.to_owned(),
            series: values.values().sum(),
            values: values.len() as u64,
        });
        counted.collect()
    }

    /// The series that fit, in the form that is counted fastest.
    fn found(&self, matchers: &[Matcher<'_>]) -> Seen<'_> {
        let state = self.read_state();
        let label = |id, name: &str| record::identity_label(&state.series.get(id)?.identity, name);
        let mut ids = state.index.matching(matchers, &label);
        ids.retain(|id| state.shows(*id, ALWAYS));
        if ids.len() > FEW {
            return Seen::Many(state, ids);
        }
        let identity = |id: &SeriesId| Some(state.series.get(*id)?.identity.clone());
        Seen::Few(ids.iter().filter_map(identity).collect())
    }
}

/// Series of which each is looked at; of more, the lists of the index are compared.
const FEW: usize = 5_000;

/// Series that fit.
enum Seen<'s> {
    Few(Vec<Arc<[u8]>>),
    Many(RwLockReadGuard<'s, State>, Vec<SeriesId>),
}

/// Series that share one bound: those of a project's runs, or those of no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopulationCount {
    /// Empty for series of no run.
    pub organization: String,
    /// Empty for series of no run.
    pub workspace: String,
    /// Empty for series of no run.
    pub project: String,
    /// Whether they are those of runs.
    pub runs: bool,
    /// How many there are.
    pub series: u64,
    /// How many there may be.
    pub limit: u64,
}

impl Inner {
    /// See [`crate::Store::populations`].
    pub(crate) fn populations(&self, limit: usize) -> Vec<PopulationCount> {
        let options = &self.options;
        let one = |(of, series): (&Population, &usize)| {
            let (names, runs, limit) = match of {
                Population::Project(names) => (&**names, true, options.project_series_max),
                Population::Fleet => ("", false, options.fleet_series_max),
            };
            let mut names = names.split('\0').map(str::to_owned);
            let mut name = || names.next().unwrap_or_default();
            PopulationCount {
                organization: name(),
                workspace: name(),
                project: name(),
                runs,
                series: *series as u64,
                limit: limit as u64,
            }
        };
        let mut all: Vec<PopulationCount> = self.read_state().populations.iter().map(one).collect();
        all.sort_by(|a, b| b.series.cmp(&a.series).then_with(|| a.project.cmp(&b.project)));
        all.truncate(limit);
        all
    }
}
