//! Roll-ups, which stand for samples: what is kept, what is asked of them, and how far they go.

use std::ops::BitOr;

use crate::is_stale_marker;

/// A set of facts that a roll-up may hold of its samples. How many there were, the time of the last
/// and a stale marker after it are always told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupParts(u8);

impl RollupParts {
    /// Nothing more.
    pub const NONE: Self = Self(0);
    /// Time and value of the first sample.
    pub const FIRST: Self = Self(1);
    /// Value of the last sample.
    pub const LAST: Self = Self(2);
    /// Least and greatest value.
    pub const EXTREMES: Self = Self(4);
    /// Sum of the values.
    pub const SUM: Self = Self(8);
    /// What is needed for the growth of a counter beside first and last.
    pub const FALLS: Self = Self(16);
    /// How often the value fell and changed.
    pub const STEPS: Self = Self(32);
    /// Everything.
    pub const ALL: Self = Self(63);

    /// Whether all of `parts` are in it.
    pub fn has(self, parts: Self) -> bool {
        self.0 & parts.0 == parts.0
    }
}

impl BitOr for RollupParts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What of a series' roll-ups is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupAsk {
    /// Earliest time of interest, nanoseconds, included.
    pub from_ns: i64,
    /// Latest time of interest, nanoseconds, included.
    pub to_ns: i64,
    /// Where single samples are there as well, roll-ups may stand for them whose width divides this;
    /// none may without it.
    pub align_ns: Option<i64>,
    /// What is asked of each.
    pub parts: RollupParts,
}

/// How far the roll-ups of a series go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolledUp {
    /// From here on single samples are to be read.
    pub raw_from_ns: i64,
    /// Width of the widest of those that stand for samples which are no more, nanoseconds.
    pub gone_width_ns: Option<i64>,
}

/// What is kept of the samples with `end - width < time <= end`. Stale markers are no samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RollupBucket {
    /// End, nanoseconds, included; a multiple of the width.
    pub end_ns: i64,
    /// Samples; 0 when there was nothing but a stale marker.
    pub count: u64,
    /// Time and value of the earliest sample.
    pub first: (i64, f64),
    /// Time and value of the latest sample.
    pub last: (i64, f64),
    /// Least value; NaN only when there was nothing else.
    pub min: f64,
    /// Greatest value; NaN only when there was nothing else.
    pub max: f64,
    /// Sum of the values.
    pub sum: f64,
    /// Sum of the values right before each fall: a counter grew by `last - first + falls`.
    pub falls: f64,
    /// How often a value was less than the one before.
    pub resets: u64,
    /// How often a value differed from the one before.
    pub changes: u64,
    /// Time of a stale marker after the latest sample.
    pub ended_ns: Option<i64>,
}

impl RollupBucket {
    /// Of `values` at `times_ns`, in order of time and all in the bucket that ends at `end_ns`; at
    /// least one.
    pub fn of(end_ns: i64, times_ns: &[i64], values: &[f64]) -> Self {
        let samples = times_ns.iter().zip(values).filter(|(_, value)| !is_stale_marker(**value));
        let mut samples = samples.map(|(time_ns, value)| (*time_ns, *value));
        let marker = values.last().is_some_and(|value| is_stale_marker(*value));
        let ended_ns = times_ns.last().copied().filter(|_| marker);
        let Some(first) = samples.next() else {
            return Self::ended(end_ns, ended_ns.unwrap_or(end_ns));
        };
        let mut bucket = Self::one(end_ns, first);
        bucket.ended_ns = ended_ns;
        let mut rest = 0.0;
        for (time_ns, value) in samples {
            let before = bucket.last.1;
            bucket.note_step(before, value);
            bucket.widen(value, value);
            (bucket.sum, rest) = add(value, bucket.sum, rest);
            bucket.count += 1;
            bucket.last = (time_ns, value);
        }
        if bucket.sum.is_finite() {
            bucket.sum += rest;
        }
        bucket
    }

    /// One sample.
    pub fn one(end_ns: i64, first: (i64, f64)) -> Self {
        let (min, max, sum) = (first.1, first.1, first.1);
        let (falls, resets, changes) = (0.0, 0, 0);
        Self { end_ns, count: 1, first, last: first, min, max, sum, falls, resets, changes, ended_ns: None }
    }

    /// One of which nothing more is known.
    pub fn bare(end_ns: i64, count: u64, last_ns: i64, ended_ns: Option<i64>) -> Self {
        let none = Self::one(end_ns, (last_ns, 0.0));
        Self { count, ended_ns, ..none }
    }

    /// One that holds a stale marker only.
    fn ended(end_ns: i64, marker_ns: i64) -> Self {
        let none = Self::one(end_ns, (marker_ns, f64::NAN));
        Self { count: 0, sum: 0.0, ended_ns: Some(marker_ns), ..none }
    }

    /// From the one value to the next.
    fn note_step(&mut self, before: f64, after: f64) {
        if after < before {
            self.falls += before;
            self.resets += 1;
        }
        self.changes += u64::from(after != before && !(after.is_nan() && before.is_nan()));
    }

    fn widen(&mut self, min: f64, max: f64) {
        if min < self.min || self.min.is_nan() {
            self.min = min;
        }
        if max > self.max || self.max.is_nan() {
            self.max = max;
        }
    }

    /// First and last time of anything in it.
    pub fn time_ns(&self) -> (i64, i64) {
        (self.first.0, self.ended_ns.map_or(self.last.0, |ended_ns| ended_ns.max(self.last.0)))
    }

    /// Takes in a bucket whose samples are all later. The end becomes the other's.
    pub fn follow(&mut self, later: &Self) {
        if self.count == 0 {
            *self = *later;
        } else if later.count == 0 {
            self.ended_ns = later.ended_ns;
        } else {
            self.note_step(self.last.1, later.first.1);
            self.falls += later.falls;
            self.resets += later.resets;
            self.changes += later.changes;
            self.widen(later.min, later.max);
            self.sum += later.sum;
            self.count += later.count;
            self.last = later.last;
            self.ended_ns = later.ended_ns;
        }
        self.end_ns = later.end_ns;
    }

    /// Takes in samples of the same stretch that came when its single samples were gone already.
    ///
    /// Samples before or after all others are taken in as if they had come in time. Of samples in
    /// between nobody knows any more what they would have risen or fallen from: they count, add and
    /// stretch the extremes, and falls and changes stay those of the larger part.
    pub fn take_in(&mut self, other: &Self) {
        let (mut early, late) = if self.first.0 <= other.first.0 { (*self, other) } else { (*other, &*self) };
        if early.time_ns().1 < late.time_ns().0 {
            early.follow(late);
            *self = early;
            return;
        }
        let (larger, smaller) = if self.count >= other.count { (*self, other) } else { (*other, &*self) };
        let mut all = larger;
        if smaller.count > 0 {
            all.widen(smaller.min, smaller.max);
            all.sum += smaller.sum;
            all.count += smaller.count;
            if smaller.first.0 < all.first.0 {
                all.note_step(smaller.first.1, all.first.1);
                all.first = smaller.first;
            }
            if smaller.last.0 > all.last.0 {
                all.note_step(all.last.1, smaller.last.1);
                all.last = smaller.last;
            }
        }
        all.ended_ns = self.ended_ns.max(other.ended_ns).filter(|ended_ns| *ended_ns > all.last.0);
        *self = all;
    }
}

/// Adds `value` to `sum` with the error carried in `rest` (Kahan, Neumaier).
fn add(value: f64, sum: f64, rest: f64) -> (f64, f64) {
    let total = sum + value;
    if total.is_infinite() {
        (total, 0.0)
    } else if sum.abs() >= value.abs() {
        (total, rest + ((sum - total) + value))
    } else {
        (total, rest + ((value - total) + sum))
    }
}
