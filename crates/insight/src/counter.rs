//! What a counter rose by, and how much of the time it was seen for.
//!
//! Counters begin anew, and what one rose by before it began anew is lost: a rate over the whole window is too
//! low then. So a rate has its coverage beside it, and what it would be over the observed time alone is a number
//! of its own.

use crate::energy::{Meter, Oddity};

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// How many intervals a reading may be from an edge of a window and still count for all up to it.
const EDGE: f64 = 1.1;

/// A window that readings were asked for, seconds; open to its left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// After this.
    pub from_seconds: f64,
    /// Up to this.
    pub to_seconds: f64,
}

impl Window {
    /// How long it is.
    pub fn seconds(self) -> f64 {
        self.to_seconds - self.from_seconds
    }
}

/// A reading of a counter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// When, seconds since any moment that is the same for all readings of one counter.
    pub time_seconds: f64,
    /// What it read.
    pub value: f64,
    /// Since when it counts, in the same seconds, where its page says so: a later moment than before is a new
    /// beginning, even where the count is higher already.
    pub created_seconds: Option<f64>,
}

/// What a lower value than the one before means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// A program counts: it was started anew and has counted from zero since.
    Software,
    /// A device counts joules: what it can have burnt tells a new beginning from a step back.
    Energy {
        /// The power limit that it keeps to, where that is known.
        limit_watts: Option<f64>,
    },
    /// A register of so many bits ran over.
    Width(u32),
}

/// What a counter rose by in its window, the time from its first reading to its last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Increase {
    /// The rise, in the counter's unit.
    pub value: f64,
    /// The first reading's time, seconds.
    pub from_seconds: f64,
    /// The last reading's time, seconds.
    pub to_seconds: f64,
    /// For how much of the window it is known what the counter did, seconds.
    pub observed_seconds: f64,
    /// How often it began anew.
    pub resets: u32,
    /// How often it stepped back without that.
    pub backward: u32,
    /// How often it rose by more than can be.
    pub implausible: u32,
    /// How often its register ran over.
    pub wraps: u32,
    /// How many readings there were.
    pub readings: usize,
    /// What the first one was.
    pub first: f64,
    /// Last reading minus first: what it would have risen by if counters never began anew. To be shown as
    /// what goes wrong, never to be derived from.
    pub naive: f64,
}

impl Increase {
    /// The window, seconds.
    pub fn window_seconds(&self) -> f64 {
        self.to_seconds - self.from_seconds
    }

    /// The rise per second of the window, as Prometheus' `rate` has it for a range that is a little longer.
    pub fn rate(&self) -> f64 {
        self.value / self.window_seconds()
    }

    /// The rise per second of a window that readings were asked for, as Prometheus' `rate` has it: readings that reach
    /// to within an interval of an edge count for all up to it, else for half an interval more; and no counter was
    /// below zero.
    pub fn rate_in(&self, window: Window) -> f64 {
        let told = self.told_in(window);
        self.value * (told.seconds() / self.window_seconds()) / window.seconds()
    }

    /// The part of a window that [`Increase::rate_in`] takes the readings to tell of.
    pub fn told_in(&self, window: Window) -> Window {
        let sampled = self.window_seconds();
        let interval = sampled / self.readings.saturating_sub(1).max(1) as f64;
        let reach = |seconds: f64| {
            if seconds < interval * EDGE { seconds } else { interval / 2.0 }
        };
        let mut before = reach(self.from_seconds - window.from_seconds);
        if self.value > 0.0 {
            before = before.min(sampled * (self.first / self.value));
        }
        let after = reach(window.to_seconds - self.to_seconds);
        Window { from_seconds: self.from_seconds - before, to_seconds: self.to_seconds + after }
    }

    /// The observed share of the window.
    pub fn coverage(&self) -> f64 {
        self.observed_seconds / self.window_seconds()
    }

    /// The rise per second of observed time; none where nothing was observed. What was counted since a new
    /// beginning is in it, so it is up to a part of one interval too high.
    pub fn corrected_rate(&self) -> Option<f64> {
        (self.observed_seconds > 0.0).then(|| self.value / self.observed_seconds)
    }

    /// What the rate would be by last minus first.
    pub fn naive_rate(&self) -> f64 {
        self.naive / self.window_seconds()
    }
}

/// Why readings give no increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoIncrease {
    /// There are fewer than two.
    TooFew,
    /// This one, from 0, is not later than the one before.
    Unsorted(usize),
    /// This one is not a number, not finite or below zero.
    Unusable(usize),
}

/// What a counter rose by.
pub fn increase(readings: &[Reading], policy: Policy) -> Result<Increase, NoIncrease> {
    check(readings)?;
    let [first, .., last] = readings else { return Err(NoIncrease::TooFew) };
    let mut sum = Increase {
        from_seconds: first.time_seconds,
        to_seconds: last.time_seconds,
        readings: readings.len(),
        first: first.value,
        naive: last.value - first.value,
        ..Increase::default()
    };
    match policy {
        Policy::Software => {
            for pair in readings.windows(2) {
                software(&mut sum, pair[0], pair[1]);
            }
        }
        Policy::Width(bits) => {
            let modulus = 2.0_f64.powi(bits.min(64).cast_signed());
            for pair in readings.windows(2) {
                let more = pair[1].value - pair[0].value;
                sum.wraps += u32::from(more < 0.0);
                sum.value += if more < 0.0 { more + modulus } else { more };
                sum.observed_seconds += pair[1].time_seconds - pair[0].time_seconds;
            }
        }
        Policy::Energy { limit_watts } => energy(&mut sum, readings, limit_watts),
    }
    Ok(sum)
}

fn check(readings: &[Reading]) -> Result<(), NoIncrease> {
    let is_usable = |reading: &Reading| {
        reading.time_seconds.is_finite() && reading.value.is_finite() && reading.value >= 0.0
    };
    if let Some(at) = readings.iter().position(|reading| !is_usable(reading)) {
        return Err(NoIncrease::Unusable(at));
    }
    match readings.windows(2).position(|pair| pair[1].time_seconds <= pair[0].time_seconds) {
        Some(at) => Err(NoIncrease::Unsorted(at + 1)),
        None => Ok(()),
    }
}

fn software(sum: &mut Increase, before: Reading, now: Reading) {
    let seconds = now.time_seconds - before.time_seconds;
    let is_created_anew = match (before.created_seconds, now.created_seconds) {
        (Some(before), Some(now)) => now > before,
        _ => false,
    };
    if now.value >= before.value && !is_created_anew {
        sum.value += now.value - before.value;
        sum.observed_seconds += seconds;
        return;
    }
    sum.resets += 1;
    sum.value += now.value;
    // Where the new beginning is known, the time since is observed.
    let since = now.created_seconds.filter(|_| is_created_anew).map_or(0.0, |at| now.time_seconds - at);
    sum.observed_seconds += since.clamp(0.0, seconds);
}

fn energy(sum: &mut Increase, readings: &[Reading], limit_watts: Option<f64>) {
    let origin = readings[0].time_seconds;
    let nanos = |reading: &Reading| ((reading.time_seconds - origin) * NANOS) as i64;
    let Some(mut meter) = Meter::begin(0, readings[0].value) else { return };
    let mut joules = readings[0].value;
    // Since when what comes next is measured: after a step back, since before it.
    let mut since = origin;
    for reading in &readings[1..] {
        let was_behind = meter.is_behind();
        let Some(read) = meter.read(nanos(reading), reading.value, limit_watts) else { continue };
        match read.oddity {
            Some(Oddity::Reset) => sum.resets += 1,
            Some(Oddity::Backward) => sum.backward += 1,
            Some(Oddity::Implausible) => sum.implausible += 1,
            None => {}
        }
        sum.value += read.joules - joules;
        let is_given_up = was_behind && read.joules == joules;
        if meter.is_behind() {
            continue;
        }
        if read.oddity.is_none() && !is_given_up {
            sum.observed_seconds += reading.time_seconds - since;
        }
        (joules, since) = (read.joules, reading.time_seconds);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn readings(points: &[(f64, f64)]) -> Vec<Reading> {
        let reading = |(time_seconds, value): &(f64, f64)| Reading {
            time_seconds: *time_seconds,
            value: *value,
            created_seconds: None,
        };
        points.iter().map(reading).collect()
    }

    #[test]
    fn a_program_that_starts_anew_counts_from_zero_and_its_lost_interval_lowers_coverage() {
        let counted = readings(&[(0.0, 100.0), (10.0, 200.0), (20.0, 30.0), (30.0, 130.0), (40.0, 230.0)]);
        let rise = increase(&counted, Policy::Software).unwrap();
        assert_eq!((rise.value, rise.resets), (330.0, 1));
        assert_eq!((rise.rate(), rise.coverage()), (330.0 / 40.0, 0.75));
        assert_eq!(rise.corrected_rate(), Some(11.0));
        assert_eq!(rise.naive_rate(), 130.0 / 40.0);
    }

    #[test]
    fn a_rate_over_a_window_reaches_to_its_edges_as_prometheus_has_it() {
        let check = |points: &[(f64, f64)], window: (f64, f64), want: f64| {
            let rise = increase(&readings(points), Policy::Software).unwrap();
            let window = Window { from_seconds: window.0, to_seconds: window.1 };
            let found = rise.rate_in(window);
            assert!((found - want).abs() < 1e-12, "{points:?} in {window:?}: {found}");
        };
        let steady = [(10.0, 1e6), (20.0, 1e6 + 100.0), (30.0, 1e6 + 200.0), (40.0, 1e6 + 300.0)];
        // Readings near both edges: the rise goes on up to them.
        check(&steady, (1.0, 45.0), 10.0);
        check(&steady, (10.0, 40.0), 10.0);
        // It began within the window, or ended: half an interval more, over all of the window.
        check(&steady, (-60.0, 40.0), 350.0 / 100.0);
        check(&steady, (10.0, 70.0), 350.0 / 60.0);
        // From zero: it can't have been below before.
        check(&[(10.0, 0.0), (20.0, 100.0)], (5.0, 20.0), 100.0 / 15.0);
        check(&[(10.0, 20.0), (20.0, 120.0)], (5.0, 20.0), 120.0 / 15.0);
    }

    #[test]
    fn a_new_beginning_is_seen_by_its_time_even_where_the_count_is_higher() {
        let reading = |time_seconds: f64, value: f64, created: f64| Reading {
            time_seconds,
            value,
            created_seconds: Some(created),
        };
        let counted = [reading(0.0, 10.0, -5.0), reading(10.0, 20.0, -5.0), reading(20.0, 50.0, 16.0)];
        let rise = increase(&counted, Policy::Software).unwrap();
        assert_eq!((rise.value, rise.resets, rise.observed_seconds), (60.0, 1, 14.0));
        let blind: Vec<Reading> =
            counted.iter().map(|one| Reading { created_seconds: None, ..*one }).collect();
        assert_eq!(increase(&blind, Policy::Software).unwrap().value, 40.0, "nothing tells of it");
    }

    #[test]
    fn a_device_that_steps_back_has_not_begun_anew() {
        // 13,952,475 counts of 15.3 µJ: a fall of 213 J at 72 kJ.
        let unit = 15.3e-6;
        let counted = readings(&[
            (0.0, 4_750_896_266.0 * unit),
            (15.0, 4_736_943_791.0 * unit),
            (30.0, 4_800_000_000.0 * unit),
        ]);
        let energy = increase(&counted, Policy::Energy { limit_watts: Some(750.0) }).unwrap();
        assert_eq!((energy.backward, energy.resets), (1, 0));
        assert!((energy.value - (4_800_000_000.0 - 4_750_896_266.0) * unit).abs() < 1e-6, "{energy:?}");
        assert_eq!(energy.coverage(), 1.0, "what it made up for is measured from before");
        let naive = increase(&counted, Policy::Software).unwrap();
        assert!(naive.value > 72_475.0, "what taking it for a program's counter would say: {naive:?}");
    }

    #[test]
    fn a_device_begins_anew_where_it_can_have_burnt_that_much() {
        let counted = readings(&[(0.0, 9e9), (15.0, 9e9 + 9_000.0), (30.0, 6_000.0), (45.0, 15_000.0)]);
        let energy = increase(&counted, Policy::Energy { limit_watts: Some(700.0) }).unwrap();
        assert_eq!((energy.resets, energy.coverage()), (1, 30.0 / 45.0));
        assert!((energy.value - 24_000.0).abs() < 1e-3, "{energy:?}");
        let leap = readings(&[(0.0, 0.0), (15.0, 9_000.0), (30.0, 1e9), (45.0, 1e9 + 9_000.0)]);
        let energy = increase(&leap, Policy::Energy { limit_watts: None }).unwrap();
        assert_eq!((energy.implausible, energy.value), (1, 18_000.0));
        assert_eq!(energy.coverage(), 30.0 / 45.0);
    }

    #[test]
    fn a_register_of_declared_width_runs_over() {
        let counted = readings(&[(0.0, 4_294_967_000.0), (1.0, 704.0)]);
        let rise = increase(&counted, Policy::Width(32)).unwrap();
        assert_eq!((rise.value, rise.wraps, rise.coverage()), (1_000.0, 1, 1.0));
    }

    #[test]
    fn readings_that_can_not_be_are_named() {
        let check = |points: &[(f64, f64)], want: NoIncrease| {
            assert_eq!(increase(&readings(points), Policy::Software), Err(want), "{points:?}");
        };
        check(&[], NoIncrease::TooFew);
        check(&[(0.0, 1.0)], NoIncrease::TooFew);
        check(&[(0.0, 1.0), (2.0, 2.0), (1.0, 3.0)], NoIncrease::Unsorted(2));
        check(&[(0.0, 1.0), (0.0, 2.0)], NoIncrease::Unsorted(1));
        check(&[(0.0, 1.0), (1.0, f64::NAN)], NoIncrease::Unusable(1));
        check(&[(0.0, -1.0), (1.0, 2.0)], NoIncrease::Unusable(0));
    }

    proptest! {
        #[test]
        fn coverage_is_a_share_and_no_rise_is_below_zero(
            points in proptest::collection::vec((0.1_f64..100.0, 0.0_f64..1e12), 2..40),
            policy in 0..3_usize,
        ) {
            let mut time = 0.0;
            let counted: Vec<Reading> = points.iter().map(|(step, value)| {
                time += step;
                Reading { time_seconds: time, value: *value, created_seconds: None }
            }).collect();
            let policy = [Policy::Software, Policy::Energy { limit_watts: Some(700.0) }, Policy::Width(40)][policy];
            let rise = increase(&counted, policy).unwrap();
            prop_assert!(rise.value >= 0.0, "{rise:?}");
            prop_assert!((0.0..=1.0 + 1e-9).contains(&rise.coverage()), "{rise:?}");
        }
    }
}
