//! Smoothing of raw points, before they are gathered into cells.
//!
//! Both kinds leave non-finite values out and give one smoothed value per finite point. They see the
//! whole series, so that zooming in does not change a curve.

use std::collections::VecDeque;

/// Widest window, points.
pub(crate) const WINDOW_MAX: usize = 10_001;

/// How to smooth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Smoothing {
    /// Exponential moving average: a point that lies `d` intervals back weighs `weight^d`, and the
    /// weights are divided by their sum, so that the start is not pulled towards zero. With points
    /// at equal distance this is the familiar debiased average; a gap forgets as it should.
    Ema {
        /// From 0, no smoothing, to below 1.
        weight: f64,
    },
    /// Mean of the points around: `size / 2` before and after, fewer at the ends.
    Window {
        /// Points, odd.
        size: usize,
    },
}

/// Smooths one series' points, handed over in order of time.
#[derive(Debug)]
pub(crate) struct Smoother {
    smoothing: Smoothing,
    /// Usual distance of two points, in keys.
    interval: f64,
    ema: Option<(i64, f64, f64)>,
    /// Decay of the distance seen last, since most distances are equal.
    decay: (i64, f64),
    window: Window,
}

/// Sum of the values in a sliding window.
///
/// Values enter at the back and leave at the front; no value is ever subtracted, so that one of 1e300
/// leaves no trace once it is gone. Two stacks: sums of the older values to their end, and the newer
/// values with their sum; the newer become the older when those are used up.
#[derive(Debug, Default)]
struct Window {
    older: Vec<f64>,
    newer: Vec<f64>,
    newer_sum: f64,
    /// Keys of the points that were not answered yet.
    keys: VecDeque<i64>,
    /// Points that left, that entered, and that were answered.
    left: usize,
    entered: usize,
    answered: usize,
}

/// Sums are kept divided by it, a power of two above [`WINDOW_MAX`]: values of 1e308 must not add up
/// to infinity.
const SCALE: f64 = 16_384.0;

impl Window {
    fn enter(&mut self, key: i64, value: f64) {
        self.keys.push_back(key);
        self.newer.push(value / SCALE);
        self.newer_sum += value / SCALE;
        self.entered += 1;
    }

    fn leave(&mut self) {
        if self.older.is_empty() {
            let mut sum = 0.0;
            while let Some(value) = self.newer.pop() {
                sum += value;
                self.older.push(sum);
            }
            self.newer_sum = 0.0;
        }
        self.older.pop();
        self.left += 1;
    }

    fn mean(&self) -> f64 {
        let sum = self.older.last().copied().unwrap_or_default() + self.newer_sum;
        sum / (self.entered - self.left) as f64 * SCALE
    }

    /// Answers the first point that was not answered yet, with what is around it.
    fn answer(&mut self, half: usize, out: &mut dyn FnMut(i64, f64)) {
        while self.left + half < self.answered {
            self.leave();
        }
        let mean = self.mean();
        if let Some(key) = self.keys.pop_front() {
            out(key, mean);
        }
        self.answered += 1;
    }
}

impl Smoother {
    /// Starts a series whose points usually lie `interval` keys apart.
    pub(crate) fn new(smoothing: Smoothing, interval: f64) -> Self {
        Self { smoothing, interval, ema: None, decay: (0, 1.0), window: Window::default() }
    }

    /// Takes a point and hands out what became final.
    pub(crate) fn push(&mut self, key: i64, value: f64, out: &mut dyn FnMut(i64, f64)) {
        if !value.is_finite() {
            return;
        }
        match self.smoothing {
            Smoothing::Ema { weight } => out(key, self.average(weight, key, value)),
            Smoothing::Window { size } => {
                let half = size / 2;
                self.window.enter(key, value);
                if self.window.entered > half + self.window.answered {
                    self.window.answer(half, out);
                }
            }
        }
    }

    /// Hands out the rest.
    pub(crate) fn finish(mut self, out: &mut dyn FnMut(i64, f64)) {
        if let Smoothing::Window { size } = self.smoothing {
            while self.window.answered < self.window.entered {
                self.window.answer(size / 2, out);
            }
        }
    }

    fn average(&mut self, weight: f64, key: i64, value: f64) -> f64 {
        let Some((before, sum, weights)) = self.ema else {
            self.ema = Some((key, value * (1.0 - weight), 1.0 - weight));
            return value;
        };
        let distance = key.saturating_sub(before).saturating_abs();
        if self.decay.0 != distance {
            let intervals = if self.interval > 0.0 { distance as f64 / self.interval } else { 1.0 };
            self.decay = (distance, weight.powf(intervals));
        }
        let decay = self.decay.1;
        let sum = sum * decay + value * (1.0 - weight);
        let weights = weights * decay + (1.0 - weight);
        self.ema = Some((key, sum, weights));
        sum / weights
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn smooth(smoothing: Smoothing, points: &[(i64, f64)]) -> Vec<(i64, f64)> {
        let mut smoother = Smoother::new(smoothing, 1.0);
        let mut got = Vec::new();
        for (key, value) in points {
            smoother.push(*key, *value, &mut |k, v| got.push((k, v)));
        }
        smoother.finish(&mut |k, v| got.push((k, v)));
        got
    }

    #[test]
    fn ema_of_equal_distances_is_the_debiased_one() {
        let got = smooth(Smoothing::Ema { weight: 0.5 }, &[(0, 4.0), (1, 0.0), (2, 8.0)]);
        // By hand: 4; (4·½ + 0)/(1½); (4·¼ + 0·½ + 8)/(1¾).
        let want = [4.0, 2.0 / 1.5, 9.0 / 1.75];
        for ((_, got), want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
    }

    #[test]
    fn ema_forgets_over_a_gap_and_starts_unbiased() {
        let got = smooth(Smoothing::Ema { weight: 0.9 }, &[(0, 100.0), (1_000, 1.0)]);
        assert_eq!(got[0].1, 100.0);
        assert!((got[1].1 - 1.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn non_finite_values_do_not_stain_the_curve() {
        let points = [(0, 1.0), (1, f64::NAN), (2, f64::INFINITY), (3, 1.0)];
        for smoothing in [Smoothing::Ema { weight: 0.9 }, Smoothing::Window { size: 3 }] {
            assert_eq!(smooth(smoothing, &points), [(0, 1.0), (3, 1.0)]);
        }
    }

    #[test]
    fn huge_values_do_not_overflow() {
        let points: Vec<(i64, f64)> = (0..10).map(|at| (at, 1e308)).collect();
        for (_, value) in smooth(Smoothing::Window { size: 5 }, &points) {
            assert!((value / 1e308 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_huge_value_leaves_no_trace_once_it_is_gone() {
        let mut points: Vec<(i64, f64)> = (0..20).map(|at| (at, 5.0)).collect();
        points[3].1 = 1e300;
        let got = smooth(Smoothing::Window { size: 3 }, &points);
        assert_eq!(got[5..], points[5..]);
    }

    proptest! {
        #[test]
        fn window_is_the_mean_of_what_is_around(
            values in prop::collection::vec(-1e3f64..1e3, 0..60), half in 0usize..12,
        ) {
            let points: Vec<(i64, f64)> = values.iter().enumerate().map(|(k, v)| (k as i64, *v)).collect();
            let got = smooth(Smoothing::Window { size: 2 * half + 1 }, &points);
            prop_assert_eq!(got.len(), points.len());
            for (at, (key, value)) in got.iter().enumerate() {
                let around = &values[at.saturating_sub(half)..(at + half + 1).min(values.len())];
                let mean = around.iter().sum::<f64>() / around.len() as f64;
                prop_assert_eq!(*key, at as i64);
                prop_assert!((value - mean).abs() < 1e-9);
            }
        }
    }
}
