//! Windows that keep what they know while they move: extremes and quantiles of long windows.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::over::quantile_of_sorted;

/// What is known of the samples in a window.
pub(super) trait Rolling {
    /// The sample at `at` comes in, later than all others.
    fn push(&mut self, at: usize, value: f64);
    /// The sample at `at`, the earliest, goes.
    fn pop(&mut self, at: usize, value: f64);
    /// The result; there is at least one sample.
    fn value(&self, parameter: f64) -> f64;
}

/// The greatest value, or the least; NaN only when there is nothing else.
pub(super) struct Extreme {
    least: bool,
    /// Places and values that may still become the extreme, best first.
    best: VecDeque<(usize, f64)>,
}

impl Extreme {
    pub(super) fn new(least: bool) -> Self {
        Self { least, best: VecDeque::new() }
    }
}

impl Rolling for Extreme {
    fn push(&mut self, at: usize, value: f64) {
        if value.is_nan() {
            return;
        }
        let beaten = |old: f64| if self.least { value < old } else { value > old };
        while self.best.back().is_some_and(|(_, old)| beaten(*old)) {
            self.best.pop_back();
        }
        self.best.push_back((at, value));
    }

    fn pop(&mut self, at: usize, _: f64) {
        if self.best.front().is_some_and(|(first, _)| *first == at) {
            self.best.pop_front();
        }
    }

    fn value(&self, _: f64) -> f64 {
        self.best.front().map_or(f64::NAN, |(_, value)| *value)
    }
}

/// The sum or mean of whole numbers so small that every sum of them is exact, in whatever order it is
/// made: most counts, percentages, degrees and bytes.
pub(super) struct Whole {
    sum: f64,
    count: f64,
    mean: bool,
}

impl Whole {
    /// Largest whole number up to which every one is a float.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

    pub(super) fn new(mean: bool) -> Self {
        Self { sum: 0.0, count: 0.0, mean }
    }

    /// Whether all `values` can be summed this way.
    pub(super) fn fits(values: &[f64]) -> bool {
        let largest = Self::EXACT_MAX / values.len().max(1) as f64;
        // A negative zero is one no more once it is added.
        values.iter().all(|value| {
            value.abs() <= largest && value.trunc() == *value && value.to_bits() != (-0.0_f64).to_bits()
        })
    }
}

impl Rolling for Whole {
    fn push(&mut self, _: usize, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn pop(&mut self, _: usize, value: f64) {
        self.sum -= value;
        self.count -= 1.0;
    }

    fn value(&self, _: f64) -> f64 {
        if self.mean { self.sum / self.count } else { self.sum }
    }
}

/// All values in order, NaN first.
#[derive(Default)]
pub(super) struct Sorted(Vec<f64>);

/// Rising, NaN first.
pub(super) fn nan_first(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.total_cmp(&b),
    }
}

impl Rolling for Sorted {
    fn push(&mut self, _: usize, value: f64) {
        let at = self.0.partition_point(|known| nan_first(*known, value).is_lt());
        self.0.insert(at, value);
    }

    fn pop(&mut self, _: usize, value: f64) {
        let at = self.0.partition_point(|known| nan_first(*known, value).is_lt());
        if at < self.0.len() {
            self.0.remove(at);
        }
    }

    fn value(&self, parameter: f64) -> f64 {
        quantile_of_sorted(parameter, &self.0)
    }
}
