//! What waits for one Alertmanager: one entry an alert, the latest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How old the end of an alert may be to be told still.
const ENDED_MS_MAX: i64 = 15 * 60 * 1_000;

/// An alert as it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// What it is known by, from its labels.
    pub(super) fingerprint: u64,
    /// All labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Texts for people.
    pub(super) annotations: BTreeMap<String, String>,
    /// Since when it fires, milliseconds since the epoch.
    pub(super) starts_at_ms: i64,
    /// When it ended, or until when it holds.
    pub(super) ends_at_ms: i64,
    /// Whether it is over.
    pub(super) is_resolved: bool,
    /// Where people see its query.
    pub(super) generator_url: String,
}

#[cfg(test)]
impl Told {
    /// One that says nothing beyond its labels and times.
    pub(super) fn test(
        labels: BTreeMap<String, String>,
        (starts_at_ms, ends_at_ms): (i64, i64),
        is_resolved: bool,
    ) -> Self {
        let fingerprint = super::fingerprint(&labels);
        let (annotations, generator_url) = (BTreeMap::new(), String::new());
        Self { fingerprint, labels, annotations, starts_at_ms, ends_at_ms, is_resolved, generator_url }
    }
}

impl Told {
    /// Whether it says nothing of the present any more: it was over long ago, or was to be told again
    /// before now and was not.
    fn is_expired(&self, now_ms: i64) -> bool {
        let kept_ms = if self.is_resolved { ENDED_MS_MAX } else { 0 };
        now_ms.saturating_sub(self.ends_at_ms) > kept_ms
    }
}

/// What became of what was told, or was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Alerts taken by the Alertmanager.
    pub(super) sent: u64,
    /// Requests that failed.
    pub(super) failures: u64,
    /// Alerts dropped since too many waited.
    pub(super) queue_full: u64,
    /// Alerts dropped since they had become old.
    pub(super) expired: u64,
    /// Alerts that the Alertmanager refused for good.
    pub(super) refused: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By place in the queue.
    queue: BTreeMap<u64, Arc<Told>>,
    /// Labels to place.
    places: HashMap<BTreeMap<String, String>, u64>,
    next: u64,
    pub(super) max: usize,
    pub(super) counts: Counts,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes one in; a later word of the same alert takes the place of the earlier. When too many
    /// wait, the oldest goes.
    pub(super) fn push(&mut self, told: Arc<Told>) {
        if let Some(place) = self.places.get(&told.labels) {
            self.queue.insert(*place, told);
            return;
        }
        while self.queue.len() >= self.max.max(1) {
            let Some((_, oldest)) = self.queue.pop_first() else { break };
            self.places.remove(&oldest.labels);
            self.counts.queue_full += 1;
        }
        self.places.insert(told.labels.clone(), self.next);
        self.queue.insert(self.next, told);
        self.next += 1;
    }

    /// The oldest, at most `most`, without those that are too old to be told.
    pub(super) fn take(&mut self, most: usize, now_ms: i64) -> Vec<Arc<Told>> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some((_, told)) = self.queue.pop_first() else { break };
            self.places.remove(&told.labels);
            if told.is_expired(now_ms) {
                self.counts.expired += 1;
            } else {
                taken.push(told);
            }
        }
        taken
    }

    /// Puts back what could not be told, in front, unless something newer of the same alert waits.
    pub(super) fn put_back(&mut self, untold: Vec<Arc<Told>>) {
        let rest = std::mem::take(&mut self.queue);
        self.places.clear();
        let newer: HashMap<_, _> =
            rest.values().map(|told| (told.labels.clone(), Arc::clone(told))).collect();
        for told in untold {
            let latest = newer.get(&told.labels).map_or(told, Arc::clone);
            self.push(latest);
        }
        for told in rest.into_values() {
            self.push(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, ends_at_ms: i64, is_resolved: bool) -> Arc<Told> {
        Arc::new(Told {
            labels: [("alertname".to_owned(), name.to_owned())].into(),
            annotations: BTreeMap::new(),
            starts_at_ms: 0,
            ends_at_ms,
            is_resolved,
            generator_url: String::new(),
            fingerprint: 0,
        })
    }

    fn names(told: &[Arc<Told>]) -> Vec<String> {
        told.iter().map(|told| told.labels["alertname"].clone()).collect()
    }

    fn waiting(max: usize, names: &[&str]) -> Waiting {
        let mut waiting = Waiting { max, ..Waiting::default() };
        for name in names {
            waiting.push(told(name, 1_000, false));
        }
        waiting
    }

    #[test]
    fn the_latest_word_of_an_alert_takes_the_place_of_the_first() {
        let mut waiting = waiting(10, &["a", "b"]);
        waiting.push(told("a", 500, true));
        let taken = waiting.take(64, 0);
        assert_eq!(names(&taken), ["a", "b"]);
        assert!(taken[0].is_resolved);
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn beyond_the_bound_the_oldest_goes_and_is_counted() {
        let mut waiting = waiting(2, &["a", "b", "c"]);
        assert_eq!((waiting.len(), waiting.counts.queue_full), (2, 1));
        assert_eq!(names(&waiting.take(64, 0)), ["b", "c"]);
    }

    #[test]
    fn what_could_not_be_told_comes_first_again_unless_it_was_overtaken() {
        let mut waiting = waiting(10, &["a", "b", "c"]);
        let untold = waiting.take(2, 0);
        waiting.push(told("b", 700, true));
        waiting.put_back(untold);
        let taken = waiting.take(64, 0);
        assert_eq!(names(&taken), ["a", "b", "c"]);
        assert_eq!(taken.iter().map(|told| told.is_resolved).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn the_past_is_not_told() {
        let mut waiting = waiting(10, &["lapsed"]);
        waiting.push(told("over long ago", 0, true));
        waiting.push(told("just over", 900_000, true));
        assert_eq!(names(&waiting.take(64, 900_001)), ["just over"]);
        assert_eq!(waiting.counts.expired, 2);
    }
}
