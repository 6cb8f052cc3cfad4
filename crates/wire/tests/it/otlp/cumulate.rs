//! What was recorded is what `increase()` finds in the samples.

use std::collections::BTreeMap;

use model::{Labels, is_stale_marker};
use proptest::prelude::*;
use wire::otlp::{
    Cumulator, Histogram, Instrument, Note, Part, PartSample, PointValue, Refusal, SeriesKey, Temporality,
    Told,
};

const SECOND: i64 = 1_000_000_000;
const KEY: SeriesKey = SeriesKey([7; 16]);

/// A family under test and all samples it made.
struct Family {
    cumulator: Cumulator,
    instrument: Instrument,
    temporality: Temporality,
    samples: Vec<PartSample>,
}

impl Family {
    fn new(instrument: Instrument, temporality: Temporality) -> Self {
        Self { cumulator: Cumulator::default(), instrument, temporality, samples: Vec::new() }
    }

    fn counter(temporality: Temporality) -> Self {
        Self::new(Instrument::Counter, temporality)
    }

    /// Takes a value of a start and a time in seconds.
    fn take(&mut self, start: i64, time: i64, value: PointValue) -> Result<Note, Refusal> {
        let told = Told {
            instrument: self.instrument,
            temporality: self.temporality,
            start_ns: start * SECOND,
            time_ns: time * SECOND,
            value: &value,
        };
        self.cumulator.take(KEY, &told, &mut self.samples)
    }

    fn number(&mut self, start: i64, time: i64, value: f64) -> Note {
        self.take(start, time, PointValue::Number(value)).unwrap()
    }

    /// The stored samples of one series: in order of time, of equal times the later one.
    fn stored(&self, part: Part) -> Vec<(i64, f64)> {
        let own = self.samples.iter().filter(|s| s.part == part);
        let by_time: BTreeMap<i64, f64> = own.map(|s| (s.time_ns, s.value)).collect();
        by_time.into_iter().collect()
    }

    fn seconds(&self) -> Vec<(i64, f64)> {
        self.stored(Part::Value).into_iter().map(|(time, value)| (time / SECOND, value)).collect()
    }

    /// Prometheus' increase without extrapolation, and how many resets.
    fn increase(&self, part: Part) -> (f64, usize) {
        let stored = self.stored(part);
        let real: Vec<f64> = stored.into_iter().map(|(_, v)| v).filter(|v| !is_stale_marker(*v)).collect();
        let steps = real.windows(2).map(|w| if w[1] < w[0] { (w[1], 1) } else { (w[1] - w[0], 0) });
        steps.fold((0.0, 0), |sum, step| (sum.0 + step.0, sum.1 + step.1))
    }
}

fn histogram(buckets: &[(f64, u64)], count: u64, sum: f64, ladder: bool) -> PointValue {
    PointValue::Histogram(Histogram {
        count,
        sum: Some(sum),
        buckets: buckets.to_vec(),
        ladder,
        ..Histogram::default()
    })
}

#[test]
fn a_restart_counts_though_the_value_stayed() {
    let mut family = Family::counter(Temporality::Cumulative);
    assert_eq!(family.number(1, 60, 3.0), Note::Regular);
    assert_eq!(family.number(100, 130, 3.0), Note::Reset);
    assert_eq!(family.number(100, 160, 5.0), Note::Regular);
    assert_eq!(family.seconds(), [(1, 0.0), (60, 3.0), (100, 0.0), (130, 3.0), (160, 5.0)]);
    assert_eq!(family.increase(Part::Value), (8.0, 1));
}

#[test]
fn the_first_value_counts_where_its_start_is_known() {
    let mut family = Family::counter(Temporality::Cumulative);
    family.number(50, 60, 1.0);
    assert_eq!(family.increase(Part::Value), (1.0, 0));
    for unknown in [0, 60] {
        let mut family = Family::counter(Temporality::Cumulative);
        family.number(unknown, 60, 4.0);
        assert_eq!(family.seconds(), [(60, 4.0)], "a start of {unknown} says nothing");
    }
}

#[test]
fn a_fall_is_a_reset_whatever_the_start_says() {
    let mut family = Family::counter(Temporality::Cumulative);
    family.number(0, 10, 5.0);
    family.number(0, 20, 2.0);
    assert_eq!(family.increase(Part::Value), (2.0, 1));
}

#[test]
fn late_and_repeated_points_of_a_sum_change_nothing_that_is_known() {
    let mut family = Family::counter(Temporality::Cumulative);
    family.number(1, 10, 5.0);
    family.number(1, 30, 9.0);
    assert_eq!(family.number(1, 30, 9.0), Note::Repeated);
    assert_eq!(family.number(1, 20, 7.0), Note::Late);
    assert_eq!(family.increase(Part::Value), (9.0, 0));
}

#[test]
fn two_processes_under_one_instance_are_told_apart() {
    let mut family = Family::counter(Temporality::Cumulative);
    family.number(10, 20, 5.0);
    family.number(15, 25, 1.0);
    let refused = family.take(10, 30, PointValue::Number(6.0)).unwrap_err();
    assert_eq!(refused.reason, "two_writers");
    assert!(refused.text.contains("service.instance.id"), "{}", refused.text);
    family.number(15, 35, 2.0);
    assert_eq!(family.increase(Part::Value), (7.0, 1), "what was stored stays right");
}

#[test]
fn amounts_become_a_total_over_gaps_and_overlaps() {
    let mut family = Family::counter(Temporality::Delta);
    assert_eq!(family.number(1, 10, 2.0), Note::Regular);
    assert_eq!(family.number(10, 20, 3.0), Note::Regular);
    assert_eq!(family.number(40, 50, 4.0), Note::Regular);
    assert_eq!(family.number(45, 60, 1.0), Note::Overlap);
    let want = [(1, 0.0), (10, 2.0), (20, 5.0), (40, 5.0), (50, 9.0), (60, 10.0)];
    assert_eq!(family.seconds(), want);
}

#[test]
fn an_amount_that_comes_again_is_added_once_and_a_late_one_now() {
    let mut family = Family::counter(Temporality::Delta);
    family.number(1, 10, 2.0);
    family.number(20, 30, 3.0);
    assert_eq!(family.number(1, 10, 2.0), Note::Repeated);
    assert_eq!(family.number(20, 30, 3.0), Note::Repeated);
    assert_eq!(family.number(10, 20, 5.0), Note::Late);
    assert_eq!(family.increase(Part::Value), (10.0, 0));
    assert_eq!(family.number(30, 40, 1.0), Note::Regular);
    assert_eq!(family.increase(Part::Value), (11.0, 0));
}

#[test]
fn amounts_that_can_not_be_are_refused() {
    for odd in [-1.0, f64::NAN, f64::INFINITY] {
        let mut family = Family::counter(Temporality::Delta);
        let refused = family.take(1, 10, PointValue::Number(odd)).unwrap_err();
        assert_eq!(refused.reason, "delta_value", "{odd}");
    }
    let mut down = Family::new(Instrument::UpDownCounter, Temporality::Delta);
    down.number(1, 10, 5.0);
    down.number(10, 20, -2.0);
    assert_eq!(down.seconds(), [(1, 0.0), (10, 5.0), (20, 3.0)]);
}

#[test]
fn a_histogram_restarts_in_every_series() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Cumulative);
    family.take(1, 10, histogram(&[(250.0, 2), (500.0, 8)], 10, 4_000.0, false)).unwrap();
    family.take(20, 30, histogram(&[(250.0, 3), (500.0, 4)], 4, 900.0, false)).unwrap();
    for (part, want) in [
        (Part::Count, 14.0),
        (Part::Sum, 4_900.0),
        (Part::Bucket(250.0), 5.0),
        (Part::Bucket(500.0), 12.0),
        (Part::Bucket(f64::INFINITY), 14.0),
    ] {
        assert_eq!(family.increase(part).0, want, "{part:?}");
    }
}

#[test]
fn other_bounds_start_anew_and_end_the_old() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Delta);
    family.take(1, 10, histogram(&[(1.0, 2), (2.0, 3)], 3, 4.0, false)).unwrap();
    let note = family.take(10, 20, histogram(&[(1.0, 1), (5.0, 2)], 2, 4.0, false)).unwrap();
    assert_eq!(note, Note::Reset);
    assert!(is_stale_marker(family.stored(Part::Bucket(2.0)).last().unwrap().1));
    assert_eq!(family.increase(Part::Bucket(1.0)).0, 3.0);
    assert_eq!(family.increase(Part::Bucket(5.0)).0, 2.0);
    assert_eq!(family.increase(Part::Count).0, 5.0);
}

#[test]
fn another_kind_of_histogram_ends_the_bounds_of_the_first() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Cumulative);
    family.take(1, 10, histogram(&[(1.0, 2), (5.0, 3)], 3, 4.0, false)).unwrap();
    family.take(20, 30, histogram(&[(1.0, 1), (2.0, 2)], 2, 2.0, true)).unwrap();
    assert!(is_stale_marker(family.stored(Part::Bucket(5.0)).last().unwrap().1));
    assert_eq!(family.increase(Part::Bucket(1.0)).0, 3.0);
    assert_eq!(family.increase(Part::Count), (5.0, 1));
}

#[test]
fn no_recorded_value_ends_every_series_and_a_real_one_revives_it() {
    let mut gauge = Family::new(Instrument::Gauge, Temporality::Cumulative);
    gauge.number(0, 10, 2.5);
    gauge.take(0, 20, PointValue::Ended).unwrap();
    gauge.number(0, 40, 2.0);
    let stored = gauge.stored(Part::Value);
    let ended: Vec<bool> = stored.iter().map(|(_, v)| is_stale_marker(*v)).collect();
    assert_eq!(ended, [false, true, false]);
    let mut family = Family::new(Instrument::Histogram, Temporality::Cumulative);
    family.take(1, 10, histogram(&[(1.0, 2)], 3, 4.0, false)).unwrap();
    family.take(1, 20, PointValue::Ended).unwrap();
    for part in [Part::Bucket(1.0), Part::Bucket(f64::INFINITY), Part::Count, Part::Sum] {
        assert!(is_stale_marker(family.stored(part).last().unwrap().1), "{part:?}");
    }
    family.take(1, 30, histogram(&[(1.0, 3)], 4, 5.0, false)).unwrap();
    assert_eq!(family.increase(Part::Count), (4.0, 0));
}

#[test]
fn a_new_bound_brings_the_count_it_had() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Cumulative);
    family.take(1, 10, histogram(&[(1.0, 0), (2.0, 5)], 5, 7.0, true)).unwrap();
    family.take(1, 20, histogram(&[(1.0, 0), (2.0, 6), (4.0, 6), (8.0, 9)], 9, 30.0, true)).unwrap();
    assert_eq!(family.increase(Part::Bucket(8.0)), (9.0, 0));
    let want = [(SECOND, 0.0), (10 * SECOND, 5.0), (20 * SECOND, 9.0)];
    assert_eq!(family.stored(Part::Bucket(8.0)), want, "all five of before were below 8");
}

#[test]
fn a_bound_that_can_not_be_told_any_more_ends() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Cumulative);
    family.take(1, 10, histogram(&[(1.0, 0), (1.5, 2), (2.0, 5)], 5, 7.0, true)).unwrap();
    // The sender's buckets became wider.
    family.take(1, 20, histogram(&[(1.0, 0), (2.0, 6)], 6, 8.0, true)).unwrap();
    assert!(is_stale_marker(family.stored(Part::Bucket(1.5)).last().unwrap().1));
    assert_eq!(family.increase(Part::Bucket(2.0)), (6.0, 0));
}

#[test]
fn state_survives_a_restart_of_ours() {
    let mut family = Family::new(Instrument::Histogram, Temporality::Delta);
    family.take(1, 10, histogram(&[(1.0, 2)], 3, 4.0, true)).unwrap();
    let mut kept = Vec::new();
    family.cumulator.changes(|key, bytes| kept.push((key, bytes.unwrap())));
    assert_eq!(kept.len(), 1);
    let mut none = 0;
    family.cumulator.changes(|_, _| none += 1);
    assert_eq!(none, 0, "nothing changed since");
    family.cumulator = Cumulator::default();
    assert!(family.cumulator.restore(kept[0].0, &kept[0].1));
    assert_eq!(
        family.take(1, 10, histogram(&[(1.0, 2)], 3, 4.0, true)).unwrap(),
        Note::Repeated,
        "an interval sent again is known"
    );
    family.take(10, 20, histogram(&[(1.0, 1)], 1, 1.0, true)).unwrap();
    assert_eq!(family.increase(Part::Count), (4.0, 0));
    for cut in 0..kept[0].1.len() {
        assert!(!Cumulator::default().restore(KEY, &kept[0].1[..cut]), "cut at {cut}");
    }
}

#[test]
fn lost_state_costs_a_reset_and_no_amount() {
    let mut family = Family::counter(Temporality::Delta);
    family.number(1, 10, 5.0);
    family.cumulator = Cumulator::default();
    family.number(20, 30, 2.0);
    assert_eq!(family.increase(Part::Value), (7.0, 1));
}

#[test]
fn what_could_not_be_kept_is_as_if_it_had_not_come() {
    let mut family = Family::counter(Temporality::Delta);
    family.number(1, 10, 5.0);
    let mut kept = Vec::new();
    family.cumulator.changes(|key, bytes| kept.push((key, bytes)));
    family.cumulator.settle();
    let samples = family.samples.clone();
    // Two points of one request, which the store refuses.
    family.number(10, 20, 2.0);
    family.number(20, 30, 4.0);
    family.cumulator.changes(|_, _| {});
    family.cumulator.undo();
    family.samples = samples;
    family.cumulator.changes(|_, _| panic!("nothing changed"));
    assert_eq!(family.number(10, 20, 2.0), Note::Regular, "the same point is new again");
    assert_eq!(family.increase(Part::Value), (7.0, 0));
    // The first point of a series.
    let mut other = Family::counter(Temporality::Cumulative);
    other.number(1, 10, 5.0);
    other.cumulator.undo();
    assert!(other.cumulator.is_empty());
}

#[test]
fn forgotten_series_come_back_when_what_took_their_room_could_not_be_kept() {
    let mut cumulator = Cumulator::new(2);
    let take = |cumulator: &mut Cumulator, n: u8| {
        let value = PointValue::Number(1.0);
        let told = Told {
            instrument: Instrument::Counter,
            temporality: Temporality::Delta,
            start_ns: SECOND,
            time_ns: 10 * SECOND,
            value: &value,
        };
        cumulator.take(SeriesKey([n; 16]), &told, &mut Vec::new()).unwrap()
    };
    take(&mut cumulator, 1);
    take(&mut cumulator, 2);
    cumulator.changes(|_, _| {});
    cumulator.settle();
    take(&mut cumulator, 3);
    cumulator.undo();
    assert_eq!(take(&mut cumulator, 1), Note::Repeated);
    assert_eq!(take(&mut cumulator, 2), Note::Repeated);
}

#[test]
fn a_sum_that_only_grows_need_not_be_kept_again() {
    let mut family = Family::counter(Temporality::Cumulative);
    let mut kept: Option<Vec<u8>> = None;
    let mut changes = |family: &mut Family| {
        let mut count = 0;
        family.cumulator.changes(|_, bytes| {
            count += 1;
            kept = bytes;
        });
        count
    };
    family.number(1, 10, 5.0);
    assert_eq!(changes(&mut family), 1);
    family.number(1, 20, 6.0);
    family.number(1, 30, 9.0);
    assert_eq!(changes(&mut family), 0);
    // Our restart, with what was kept of the first point: a growing sum goes on, a new start is seen.
    family.cumulator = Cumulator::default();
    assert!(family.cumulator.restore(KEY, &kept.clone().unwrap()));
    family.number(1, 40, 10.0);
    assert_eq!(family.increase(Part::Value), (10.0, 0));
    family.number(45, 50, 10.0);
    assert_eq!(family.increase(Part::Value), (20.0, 1));
}

#[test]
fn the_series_silent_longest_are_forgotten_first() {
    let mut cumulator = Cumulator::new(16);
    let mut out = Vec::new();
    let mut take = |cumulator: &mut Cumulator, n: u8| {
        let told = Told {
            instrument: Instrument::Counter,
            temporality: Temporality::Delta,
            start_ns: SECOND,
            time_ns: i64::from(n) * 10 * SECOND,
            value: &PointValue::Number(1.0),
        };
        cumulator.take(SeriesKey([n; 16]), &told, &mut out).unwrap();
    };
    (1..=16).for_each(|n| take(&mut cumulator, n));
    let mut kept = 0;
    cumulator.changes(|_, bytes| kept += usize::from(bytes.is_some()));
    assert_eq!(kept, 16);
    (17..=20).for_each(|n| take(&mut cumulator, n));
    assert!(cumulator.len() <= 16);
    let mut gone = Vec::new();
    cumulator.changes(|key, bytes| {
        if bytes.is_none() {
            gone.push(key.0[0]);
        }
    });
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3, 4]);
    take(&mut cumulator, 1);
    let mut again = Vec::new();
    cumulator.changes(|key, bytes| again.push((key.0[0], bytes.is_some())));
    assert!(again.contains(&(1, true)), "{again:?}");
}

#[test]
fn parts_name_their_series() {
    let family = Labels::from_pairs([("__name__", "step_seconds"), ("rank", "3")]);
    let check = |part: Part, want: &str| assert_eq!(part.series(&family).to_string(), want);
    check(Part::Value, r#"step_seconds{rank="3"}"#);
    check(Part::Count, r#"step_seconds_count{rank="3"}"#);
    check(Part::Sum, r#"step_seconds_sum{rank="3"}"#);
    check(Part::Bucket(500.0), r#"step_seconds_bucket{le="500",rank="3"}"#);
    check(Part::Bucket(0.25), r#"step_seconds_bucket{le="0.25",rank="3"}"#);
    check(Part::Bucket(f64::INFINITY), r#"step_seconds_bucket{le="+Inf",rank="3"}"#);
    check(Part::Quantile(0.99), r#"step_seconds{quantile="0.99",rank="3"}"#);
    assert_ne!(SeriesKey::of(&family), SeriesKey::of(&Part::Count.series(&family)));
}

/// Cumulative counts of values at rungs of `steps` to a doubling, on both sides of what is filled.
fn at_rungs(values: &[u32], steps: i32) -> Vec<(f64, u64)> {
    let rung = |n: i32| 2_f64.powf(f64::from(n) / f64::from(steps));
    let mut marks: BTreeMap<i32, u64> = BTreeMap::new();
    for value in values {
        let above = (f64::from(*value).log2() * f64::from(steps)).floor() as i32 + 1;
        marks.entry(above - 1).or_default();
        *marks.entry(above).or_default() += 1;
    }
    let mut sum = 0;
    let counted = marks.into_iter().map(|(n, count)| {
        sum += count;
        (rung(n), sum)
    });
    counted.collect()
}

proptest! {
    /// Amounts in any order, with gaps, overlaps and repetitions, add up.
    #[test]
    fn amounts_add_up(points in prop::collection::vec((1_i64..500, 1_i64..50, 0_u32..100), 1..40)) {
        let mut family = Family::counter(Temporality::Delta);
        let mut sum = 0.0;
        for (start, length, amount) in points {
            let note = family.number(start, start + length, f64::from(amount));
            if note != Note::Repeated {
                sum += f64::from(amount);
            }
        }
        let (increase, resets) = family.increase(Part::Value);
        prop_assert_eq!((increase, resets), (sum, 0));
    }

    /// Sums of processes one after another add up, whether their values fall or not.
    #[test]
    fn restarts_add_up(lives in prop::collection::vec(prop::collection::vec(0_u32..5, 1..6), 1..8)) {
        let mut family = Family::counter(Temporality::Cumulative);
        let (mut now, mut want) = (1, 0.0);
        for life in lives {
            let (start, mut total) = (now, 0.0);
            for amount in life {
                now += 10;
                total += f64::from(amount);
                family.number(start, now, total);
            }
            want += total;
            now += 5;
        }
        prop_assert_eq!(family.increase(Part::Value).0, want);
    }

    /// Whatever the widths of the sender's buckets were, a bound that is there at the end has counted right.
    #[test]
    fn bounds_that_stay_count_right(
        intervals in prop::collection::vec((0_u32..3, prop::collection::vec(1_u32..5_000, 1..20)), 1..8),
    ) {
        let mut family = Family::new(Instrument::Histogram, Temporality::Delta);
        let mut all: Vec<u32> = Vec::new();
        for (n, (width, values)) in intervals.iter().enumerate() {
            let buckets = at_rungs(values, 8 >> width);
            let sum = values.iter().map(|v| f64::from(*v)).sum();
            let n = n as i64 + 1;
            family.take(n * 10, n * 10 + 10, histogram(&buckets, values.len() as u64, sum, true)).unwrap();
            all.extend(values);
        }
        prop_assert_eq!(family.increase(Part::Count), (all.len() as f64, 0));
        let bounds: Vec<f64> = family.samples.iter().filter_map(|s| match s.part {
            Part::Bucket(bound) if bound.is_finite() => Some(bound),
            _ => None,
        }).collect();
        for bound in bounds {
            let stored = family.stored(Part::Bucket(bound));
            if is_stale_marker(stored[stored.len() - 1].1) {
                continue;
            }
            // A power of two may lie on a rung, where the bucket below does not hold it in this model.
            let want = all.iter().filter(|v| f64::from(**v) < bound * (1.0 - 1e-9)).count() as f64;
            prop_assert_eq!(family.increase(Part::Bucket(bound)), (want, 0), "at {}", bound);
        }
    }

    #[test]
    fn kept_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut cumulator = Cumulator::default();
        let mut bytes = bytes;
        for version in [None, Some(1)] {
            if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
                *first = version;
            }
            let _readable = cumulator.restore(KEY, &bytes);
        }
    }
}
