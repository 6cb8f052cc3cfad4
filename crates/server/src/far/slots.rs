//! One sample a millisecond: where the points of runs go in a storage that knows no nanoseconds.
//!
//! A point keeps its millisecond while its series has none there yet and no other step has it; else
//! it takes the next one that is free, up to [`SHIFT_MS_MAX`] away. Series with the same run, scale
//! and rank share the milliseconds of their steps, so that one companion series can tell the step of
//! each of their points.

use std::collections::{BTreeMap, HashMap};

/// How far a point may move; one that would go farther is not sent, and counted.
pub(super) const SHIFT_MS_MAX: i64 = 1_000;
/// Series remembered; beyond it the memory is emptied.
const SERIES_MAX: usize = 500_000;

/// What was given away lately.
#[derive(Debug, Default)]
struct Window {
    /// Milliseconds and their steps.
    taken: BTreeMap<i64, i64>,
    /// Millisecond of the latest point, and the one that it was given.
    last: Option<(i64, i64)>,
    /// Entries at which it is tidied.
    tidy_at: usize,
}

/// Entries that a window may have before it is tidied for the first time.
const TIDY_MIN: usize = 32;

impl Window {
    /// Where to start looking for a place from `floor_ms` on.
    fn start(&self, floor_ms: i64) -> i64 {
        match self.last {
            // Points come in order of time: what lies between was looked at for the latest one.
            Some((floor, given)) if floor <= floor_ms && floor_ms <= given => given + 1,
            _ => floor_ms,
        }
    }

    fn take(&mut self, floor_ms: i64, ms: i64, step: i64) {
        self.last = Some((floor_ms, ms));
        self.taken.insert(ms, step);
        // Nothing earlier can be in the way of a later point; one far in the past starts anew.
        if self.taken.len() > self.tidy_at.max(TIDY_MIN) {
            let ends = (floor_ms - SHIFT_MS_MAX, floor_ms + 2 * SHIFT_MS_MAX);
            self.taken.retain(|at, _| (ends.0..=ends.1).contains(at));
            self.tidy_at = 2 * self.taken.len();
        }
    }
}

/// Places given away, by series and by group.
#[derive(Debug, Default)]
pub(super) struct Slots {
    series: HashMap<u64, Window>,
    groups: HashMap<u64, Window>,
}

/// Whose places a point takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The series.
    pub(super) series: u64,
    /// Series that share their steps.
    pub(super) group: u64,
}

/// Where a point goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its millisecond.
    pub(super) ms: i64,
    /// No other point of the group told of this step there yet.
    pub(super) is_new_step: bool,
}

impl Slots {
    /// Whether nothing is remembered of a series.
    pub(super) fn is_unknown(&self, series: u64) -> bool {
        !self.series.contains_key(&series)
    }

    /// Notes a group; says whether nothing was remembered of it.
    pub(super) fn meet(&mut self, group: u64) -> bool {
        let is_new = !self.groups.contains_key(&group);
        self.groups.entry(group).or_default();
        is_new
    }

    /// Gives a point its place; none when all within reach are taken.
    pub(super) fn place(&mut self, of: Owner, time_ns: i64, step: Option<i64>) -> Option<Place> {
        if self.series.len() >= SERIES_MAX {
            self.series.clear();
            self.groups.clear();
        }
        let floor_ms = time_ns.div_euclid(model::NANOS_PER_MILLI);
        let series = self.series.entry(of.series).or_default();
        let mut group = step.map(|step| (step, self.groups.entry(of.group).or_default()));
        let is_free = |ms: &i64| {
            !series.taken.contains_key(ms)
                && group.as_ref().is_none_or(|(step, group)| group.taken.get(ms).is_none_or(|s| s == step))
        };
        let ms = (series.start(floor_ms)..=floor_ms + SHIFT_MS_MAX).find(is_free)?;
        series.take(floor_ms, ms, 0);
        let mut is_new_step = false;
        if let Some((step, group)) = &mut group {
            is_new_step = !group.taken.contains_key(&ms);
            group.take(floor_ms, ms, *step);
        }
        Some(Place { ms, is_new_step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner { series: 1, group: 9 };
    const B: Owner = Owner { series: 2, group: 9 };
    const T: i64 = 1_700_000_000_000;

    fn put(slots: &mut Slots, of: Owner, ns: i64, step: i64) -> Option<(i64, bool)> {
        let place = slots.place(of, T * 1_000_000 + ns, Some(step));
        place.map(|place| (place.ms - T, place.is_new_step))
    }

    #[test]
    fn points_of_one_call_share_a_millisecond_and_steps_stay_apart() {
        let mut slots = Slots::default();
        assert_eq!(put(&mut slots, A, 0, 5), Some((0, true)));
        assert_eq!(put(&mut slots, B, 0, 5), Some((0, false)));
        assert_eq!(put(&mut slots, B, 0, 6), Some((1, true)));
        assert_eq!(put(&mut slots, A, 1, 6), Some((1, false)));
        assert_eq!(put(&mut slots, A, 1_000_000, 7), Some((2, true)));
        assert_eq!(put(&mut slots, A, 5_000_000, 8), Some((5, true)));
    }

    #[test]
    fn a_burst_spreads_over_a_second_and_no_farther() {
        let mut slots = Slots::default();
        let places: Vec<_> = (0..3_000).map(|n| put(&mut slots, A, n, n)).collect();
        assert!(places[..1_001].iter().enumerate().all(|(n, place)| *place == Some((n as i64, true))));
        assert!(places[1_001..].iter().all(Option::is_none));
        assert_eq!(put(&mut slots, A, 2_000_000_000, 1), Some((2_000, true)));
    }

    #[test]
    fn a_series_without_steps_keeps_its_own_points_apart() {
        let mut slots = Slots::default();
        let put = |slots: &mut Slots, ns: i64| slots.place(A, ns, None).map(|place| place.ms);
        assert_eq!(put(&mut slots, 0), Some(0));
        assert_eq!(put(&mut slots, 1), Some(1));
        assert_eq!(put(&mut slots, -3_600_000_000_000), Some(-3_600_000));
    }
}
