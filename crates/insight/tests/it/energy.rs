//! The energy counter that never falls.

use insight::energy::{Meter, Oddity};
use model::NANOS_PER_SECOND;
use proptest::prelude::*;

const STEP_NS: i64 = 15 * NANOS_PER_SECOND;
/// What one count of AMD's counter is worth.
const AMD_JOULES: f64 = 15.3e-6;

#[test]
fn a_steady_counter_comes_out_as_it_went_in() {
    // 41 readings, 15 s apart, of a card at 597 W, in millijoules from 9.1e12.
    let mut meter = Meter::begin(0, 9.1e9).unwrap();
    for at in 1..=40 {
        let raw = 9.1e9 + f64::from(at) * 597.282_048_2 * 15.0;
        let read = meter.read(i64::from(at) * STEP_NS, raw, Some(700.0)).unwrap();
        assert_eq!(read.oddity, None);
        assert!((read.joules - raw).abs() < 1e-3, "{} against {raw}", read.joules);
    }
}

#[test]
fn a_small_step_back_adds_nothing_until_it_is_made_up_for() {
    let (before, after) = (4_750_896_266.0 * AMD_JOULES, 4_736_943_791.0 * AMD_JOULES);
    let mut meter = Meter::begin(0, before).unwrap();
    let read = meter.read(STEP_NS, after, Some(750.0)).unwrap();
    assert_eq!(read.oddity, Some(Oddity::Backward));
    assert_eq!(read.joules, before, "72,475 J more would be 4.83 kW for 15 s");
    let read = meter.read(2 * STEP_NS, before - 100.0, Some(750.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (before, None), "still behind, and told once");
    let read = meter.read(3 * STEP_NS, before + 5_000.0, Some(750.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (before + 5_000.0, None));
}

#[test]
fn a_new_beginning_counts_what_was_burnt_since() {
    let mut meter = Meter::begin(0, 9.1e9).unwrap();
    let read = meter.read(STEP_NS, 6_000.0, Some(700.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (9.1e9 + 6_000.0, Some(Oddity::Reset)));
    let read = meter.read(2 * STEP_NS, 12_000.0, Some(700.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (9.1e9 + 12_000.0, None));
}

#[test]
fn what_no_card_burns_is_left_out() {
    let mut meter = Meter::begin(0, 1_000.0).unwrap();
    let read = meter.read(STEP_NS, 1_000.0 + 1.6 * 700.0 * 15.0, Some(700.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (1_000.0, Some(Oddity::Implausible)));
    let read = meter.read(2 * STEP_NS, 1_000.0 + 2.6 * 700.0 * 15.0, Some(700.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (1_000.0 + 700.0 * 15.0, None));
    let mut unknown = Meter::begin(0, 0.0).unwrap();
    assert_eq!(unknown.read(NANOS_PER_SECOND, 1_999.0, None).unwrap().oddity, None);
    assert_eq!(unknown.read(2 * NANOS_PER_SECOND, 4_001.0, None).unwrap().oddity, Some(Oddity::Implausible));
}

#[test]
fn a_count_that_stays_behind_is_taken_as_it_is() {
    let mut meter = Meter::begin(0, 9.1e9).unwrap();
    for at in 1..=41 {
        let read = meter.read(at * STEP_NS, 5e9 + at as f64 * 6_000.0, Some(700.0)).unwrap();
        assert_eq!(read.joules, 9.1e9);
    }
    let read = meter.read(42 * STEP_NS, 5e9 + 42.0 * 6_000.0, Some(700.0)).unwrap();
    assert_eq!((read.joules, read.oddity), (9.1e9 + 6_000.0, None));
}

#[test]
fn what_is_late_or_no_energy_changes_nothing() {
    let mut meter = Meter::begin(STEP_NS, 100.0).unwrap();
    for (time, raw) in [(0, 200.0), (2 * STEP_NS, f64::NAN), (2 * STEP_NS, -1.0), (STEP_NS, 101.0)] {
        assert_eq!(meter.read(time, raw, None), None);
    }
    assert_eq!(meter.read(STEP_NS, 100.0, None).map(|read| read.joules), Some(100.0), "sent again");
    assert_eq!(Meter::from_bytes(&[0; 7]), None);
}

/// A counter that burns, steps back, begins anew and jumps; and seconds between the readings.
fn readings() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let step = prop_oneof![
        6 => (0.0..1.0).prop_map(|share: f64| (0, share)),
        1 => (0.0..300.0).prop_map(|joules: f64| (1, joules)),
        1 => (0.0..1.0).prop_map(|share: f64| (2, share)),
        1 => (0.0..1e9).prop_map(|joules: f64| (3, joules)),
    ];
    proptest::collection::vec((step, 0.1..120.0), 1..200).prop_map(|steps| {
        let mut raw = 7e8;
        let reading = |((what, size), seconds): ((u8, f64), f64)| {
            let burnt = 750.0 * seconds * size;
            raw = match what {
                0 => raw + burnt,
                1 => f64::max(raw - size, 0.0),
                2 => burnt,
                _ => raw + size,
            };
            (seconds, raw)
        };
        steps.into_iter().map(reading).collect()
    })
}

proptest! {
    #[test]
    fn it_never_falls_and_never_rises_faster_than_a_card_can_burn(readings in readings()) {
        let mut meter = Meter::begin(0, 7e8).unwrap();
        let (mut time_ns, mut sum) = (0, 7e8);
        for (seconds, raw) in readings {
            let before_ns = time_ns;
            time_ns += (seconds * NANOS_PER_SECOND as f64) as i64;
            // It is read from where it is kept each time, as after a restart.
            meter = Meter::from_bytes(&meter.to_bytes()).unwrap();
            let read = meter.read(time_ns, raw, Some(750.0)).unwrap();
            let bound = 1.5 * 750.0 * ((time_ns - before_ns) as f64 / NANOS_PER_SECOND as f64);
            prop_assert!(read.joules >= sum && read.joules - sum <= bound + 1e-3, "{sum} then {read:?}");
            sum = read.joules;
        }
    }
}
