//! Rows of the runs list: what the catalogue and the series' latest points say, kept ready.
//!
//! What the series say costs a walk over a run's series, so it is remembered until the run changes:
//! a list of 10,000 runs sorted by a metric must not walk 300,000 series each time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use model::RunId;
use store::{SeriesInfo, Store};

use crate::own::is_logged;

/// Most runs remembered; beyond it the memory is emptied and filled again.
const REMEMBERED_MAX: usize = 50_000;
/// Most metrics remembered of one run.
const METRICS_MAX: usize = 500;

/// What the series of a run say together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    /// Points of all series.
    pub(crate) points: u64,
    /// Series.
    pub(crate) series: u64,
    /// Greatest step on the default scale.
    pub(crate) last_step: Option<i64>,
    /// Earliest point's time, nanoseconds.
    pub(crate) first_time_ns: Option<i64>,
    /// Latest point's time, nanoseconds.
    pub(crate) last_time_ns: Option<i64>,
    /// Latest value of each metric, by display name.
    pub(crate) last: Vec<(Arc<str>, f64)>,
}

impl Facts {
    /// Gathers what the series say. Of several series with one name the latest point counts; what the
    /// server itself states of the run does not.
    pub(crate) fn of(series: &[SeriesInfo]) -> Self {
        let series = series.iter().filter(|one| is_logged(one.labels.metric()));
        let mut facts = Self::default();
        let mut latest: Option<(&Arc<str>, i64, f64)> = None;
        for one in series {
            facts.series += 1;
            facts.points += one.points;
            if one.labels.get("scale").is_none() {
                facts.last_step = facts.last_step.max(one.max_step);
            }
            let first_ns = facts.first_time_ns.unwrap_or(i64::MAX);
            facts.first_time_ns = Some(first_ns.min(one.time_ns.0));
            facts.last_time_ns = facts.last_time_ns.max(Some(one.time_ns.1));
            match &mut latest {
                Some((name, time_ns, value)) if **name == one.display => {
                    if one.time_ns.1 > *time_ns {
                        (*time_ns, *value) = (one.time_ns.1, one.last);
                    }
                }
                _ => {
                    facts.keep(latest.take());
                    latest = Some((&one.display, one.time_ns.1, one.last));
                }
            }
        }
        facts.keep(latest);
        facts
    }

    fn keep(&mut self, latest: Option<(&Arc<str>, i64, f64)>) {
        if let Some((name, _, value)) = latest
            && self.last.len() < METRICS_MAX
        {
            self.last.push((Arc::clone(name), value));
        }
    }

    /// Latest value of a metric, by display or PromQL name.
    pub(crate) fn metric(&self, name: &str) -> Option<(&Arc<str>, f64)> {
        self.last
            .iter()
            .find(|(display, _)| **display == *name)
            .or_else(|| self.last.iter().find(|(display, _)| model::prometheus_name(display) == name))
            .map(|(display, value)| (display, *value))
    }

    /// The metric that a list shows when none is asked for: `loss`, else the shortest name with
    /// `loss` in it, else the first that is not the system's own.
    pub(crate) fn default_metric(&self) -> Option<(&Arc<str>, f64)> {
        self.metric("loss")
            .or_else(|| {
                let named = self.last.iter().filter(|(d, _)| d.to_lowercase().contains("loss"));
                named.min_by_key(|(d, _)| d.len()).map(|(d, v)| (d, *v))
            })
            .or_else(|| self.last.iter().find(|(d, _)| !d.starts_with("system/")).map(|(d, v)| (d, *v)))
    }
}

/// Facts and how often their run changed, so that facts gathered during a change are not kept.
#[derive(Debug, Default)]
struct Slot {
    changes: u64,
    facts: Option<Arc<Facts>>,
}

/// Facts by run, and what the store refused of each since the start.
#[derive(Debug, Default)]
pub(crate) struct Board {
    facts: RwLock<HashMap<RunId, Slot>>,
    refused: Mutex<HashMap<RunId, BTreeMap<&'static str, u64>>>,
}

impl Board {
    /// The facts of a run, remembered or gathered now.
    pub(crate) fn facts(&self, store: &Store, id: RunId) -> Arc<Facts> {
        let changes = match self.facts.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            Some(Slot { facts: Some(facts), .. }) => return Arc::clone(facts),
            Some(slot) => slot.changes,
            None => 0,
        };
        let facts = Arc::new(Facts::of(&store.run_series(id)));
        let mut all = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        let slot = all.entry(id).or_default();
        if slot.changes == changes {
            slot.facts = Some(Arc::clone(&facts));
        }
        facts
    }

    /// Forgets what changed.
    pub(crate) fn forget(&self, id: RunId) {
        let mut all = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let slot = all.entry(id).or_default();
        slot.changes += 1;
        slot.facts = None;
    }

    /// Adds up what the store refused of a run.
    pub(crate) fn refused(&self, id: RunId, refused: &[(&'static str, u64, String)]) {
        if refused.is_empty() {
            return;
        }
        let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        let counts = all.entry(id).or_default();
        for (reason, count, _) in refused {
            *counts.entry(reason).or_default() += count;
        }
    }

    /// What the store refused of a run since the start, by reason.
    pub(crate) fn refused_of(&self, id: RunId) -> BTreeMap<&'static str, u64> {
        let all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&id).cloned().unwrap_or_default()
    }
}
