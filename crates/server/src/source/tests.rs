//! Answers from roll-ups against answers from the samples that they were made of.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use model::{Labels, Sample, SeriesIdentity, stale_marker};
use promql::{Answer, Data, Options, Query};
use proptest::prelude::*;
use store::{Batch, Collision, SeriesBatch, Store};

use super::StoreSource;
use crate::otlp::Streams;

const SECOND: i64 = model::NANOS_PER_SECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// A midnight.
const D0: i64 = 20_833 * DAY;

type Points = BTreeMap<i64, f64>;

fn open(dir: &Path, fleet_retention_ns: i64) -> Store {
    let options =
        store::Options { reserve_bytes: 0, seal_points: 1, fleet_retention_ns, ..Default::default() };
    Store::open(dir, options).unwrap()
}

/// Seals, rolls up and drops all that is due.
fn settle(store: &Store, now: i64) {
    for _ in 0..30 {
        store.maintain(now).unwrap();
    }
}

fn append(store: &Store, host: &str, points: &Points) {
    let labels = Labels::from_pairs([("__name__", "x_total"), ("host", host)]);
    let identity = SeriesIdentity { labels, display: "x_total".into() };
    let samples =
        points.iter().map(|(time_ns, value)| Sample { time_ns: *time_ns, value: *value, step: None });
    let series = vec![SeriesBatch { identity, samples: samples.collect() }];
    store.append(Batch { series, collision: Collision::LastWriteWins, ..Batch::default() }).unwrap();
}

fn ask(store: &Store, text: &str, (start, end, step): (i64, i64, i64), rollups: bool) -> Answer {
    let millis = |ns: i64| ns / model::NANOS_PER_MILLI;
    let options = Options { rollups, ..Options::default() };
    let query = Query::parse(text).unwrap();
    let times = (millis(start), millis(end), millis(step));
    query.range(&StoreSource { store, streams: &Streams::default() }, times, &options).unwrap()
}

/// Values by series and time in milliseconds.
fn values(answer: &Answer) -> BTreeMap<(String, i64), f64> {
    let Data::Matrix(runs) = &answer.data else { panic!("no matrix: {answer:?}") };
    let of = |run: &promql::Run| {
        let labels = format!("{:?}", run.labels);
        run.points().map(move |(time, value)| ((labels.clone(), time), value)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of).collect()
}

/// Equal but for the order of additions: 1e-9 of the value.
fn check_equal(text: &str, rolled: &Answer, raw: &Answer) {
    let (rolled, raw) = (values(rolled), values(raw));
    assert_eq!(rolled.keys().collect::<Vec<_>>(), raw.keys().collect::<Vec<_>>(), "{text}");
    for (at, value) in &rolled {
        let near = (value - raw[at]).abs() <= 1e-9 * raw[at].abs() || value.to_bits() == raw[at].to_bits();
        assert!(
            near || value.is_nan() && raw[at].is_nan(),
            "{text} at {at:?}: {value} from roll-ups, {} from samples",
            raw[at]
        );
    }
}

const FUNCTIONS: [&str; 16] = [
    "rate",
    "increase",
    "resets",
    "changes",
    "delta",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "avg_over_time",
    "first_over_time",
    "last_over_time",
    "present_over_time",
    "absent_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
];

/// What one counter does: gaps between samples and what comes after each.
#[derive(Debug, Clone, Copy)]
enum Move {
    Grow(f64),
    Reset(f64),
    Gap(i64),
    End(i64),
}

fn any_counter() -> impl Strategy<Value = Points> {
    let interval = prop_oneof![Just(10 * SECOND), Just(15 * SECOND), Just(7 * SECOND), Just(40 * SECOND)];
    let change = prop_oneof![
        60 => (0..1_000_000).prop_map(|n| Move::Grow(f64::from(n) / 64.0)),
        10 => Just(Move::Grow(0.0)),
        2 => (0..1_000).prop_map(|n| Move::Reset(f64::from(n) / 8.0)),
        1 => (1..5_000 * SECOND).prop_map(Move::Gap),
        1 => (1..5_000 * SECOND).prop_map(Move::End),
    ];
    let moves = prop::collection::vec(change, 300..900);
    (interval, moves, 0..10_000_i64, any::<bool>()).prop_map(|(interval, moves, jitter, repeat)| {
        let (mut time, mut value) = (D0 + HOUR, 100.0);
        let mut points = Points::new();
        let rounds = if repeat { 5 } else { 2 };
        for (at, change) in moves.iter().cycle().take(moves.len() * rounds).enumerate() {
            time += interval + (at as i64 * jitter) % 5_000 * 1_000;
            match change {
                Move::Grow(by) => value += by,
                Move::Reset(to) => value = *to,
                Move::Gap(gap) => time += gap,
                Move::End(gap) => {
                    points.insert(time, stale_marker());
                    time += gap + SECOND;
                }
            }
            points.insert(time, value);
        }
        points
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 40))]

    /// Windows whose edges are multiples of a bucket's width hold whole buckets: the answers are equal.
    #[test]
    fn functions_over_roll_ups_equal_those_over_samples(counters in prop::collection::vec(any_counter(), 1..3)) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), 1_000 * DAY);
        for (host, points) in counters.iter().enumerate() {
            append(&store, &format!("n{host}"), points);
        }
        let last = counters.iter().filter_map(|points| points.keys().last()).max().unwrap();
        // The last day is not rolled up yet: answers go from roll-ups over into samples.
        let now = last.div_euclid(DAY) * DAY + 5 * HOUR;
        settle(&store, now);
        let span = (D0 + 30 * MINUTE, D0 + 30 * MINUTE + (last - D0) / (30 * MINUTE) * (30 * MINUTE) + HOUR);
        let shapes = [(15 * MINUTE, "1h"), (HOUR, "15m"), (HOUR, "1d"), (7 * MINUTE, "3m"), (MINUTE, "5m")];
        let mut answers = Vec::new();
        let (mut read, mut read_raw) = (0, 0);
        for (step, range) in shapes {
            let span = if step < 15 * MINUTE { (span.0, span.1.min(span.0 + DAY)) } else { span };
            for function in FUNCTIONS {
                for offset in ["", " offset 45m"] {
                    let text = format!("{function}(x_total[{range}]{offset})");
                    let grid = (span.0, span.1, step);
                    let raw = ask(&store, &text, grid, false);
                    let rolled = ask(&store, &text, grid, true);
                    prop_assert!(rolled.infos.iter().all(|info| !info.contains("roll-ups")));
                    check_equal(&text, &rolled, &raw);
                    read += rolled.stats.samples_read;
                    read_raw += raw.stats.samples_read;
                    answers.push((text, grid, raw));
                }
            }
        }
        // Roll-ups are read where ten samples and more stand in each.
        let midnight = last.div_euclid(DAY) * DAY;
        let quarters = (midnight - D0) / (15 * MINUTE);
        let is_dense = |points: &Points| points.range(..=midnight).count() as i64 > 10 * quarters + 10;
        let rolls_up = quarters > 0 && counters.iter().any(is_dense);
        prop_assert!(!rolls_up || read < read_raw, "{} of {} samples were read", read, read_raw);
        // The same once there is nothing else left.
        drop(store);
        let store = open(dir.path(), DAY);
        settle(&store, last + 3 * DAY);
        for (text, grid, raw) in answers {
            let rolled = ask(&store, &text, grid, true);
            // Minutes are not kept of counters with less than 4 samples in one.
            let coarse = rolled.infos.iter().any(|info| info.contains("of up to 15 minutes"));
            if coarse && grid.2 < 15 * MINUTE {
                continue;
            }
            prop_assert!(rolled.infos.iter().any(|info| info.contains("only roll-ups")), "{}", text);
            check_equal(&text, &rolled, &raw);
        }
    }

    /// Samples that came late lie in memory, and in the middle of chunks that roll-ups tell of in part:
    /// each counts once.
    #[test]
    fn samples_that_came_late_are_counted_once_beside_roll_ups(points in any_counter(), late in prop::collection::vec((0..DAY, 0..100_u8), 1..4)) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), 1_000 * DAY);
        // Three days, so that all but the last are rolled up.
        let all: Points = (0..3).flat_map(|day| points.range(..D0 + DAY).map(move |(t, v)| (t + day * DAY, *v))).collect();
        append(&store, "n", &all);
        settle(&store, D0 + 3 * DAY);
        let late: Points = late.iter().map(|(time, value)| (D0 + DAY + time, f64::from(*value))).collect();
        append(&store, "n", &late);
        for (step, range) in [(15 * MINUTE, "1h"), (HOUR, "3d"), (MINUTE, "5m")] {
            let start = if step < 15 * MINUTE { *late.keys().next().unwrap() / HOUR * HOUR } else { D0 };
            let grid = (start, (start + 200 * step).min(D0 + 3 * DAY), step);
            for function in FUNCTIONS {
                let text = format!("{function}(x_total[{range}])");
                check_equal(&text, &ask(&store, &text, grid, true), &ask(&store, &text, grid, false));
            }
        }
    }

    /// Windows with other edges hold a bucket or not: each edge is off by less than its width.
    #[test]
    fn windows_that_cut_buckets_are_off_by_less_than_a_bucket_at_each_edge(points in any_counter(), start in 0..7_200 * SECOND) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), DAY);
        append(&store, "n", &points);
        let last = points.keys().last().unwrap();
        settle(&store, last + 3 * DAY);
        let grid = (D0 + start / SECOND * SECOND, D0 + DAY, 37 * MINUTE + 11 * SECOND);
        let answer = ask(&store, "count_over_time(x_total[50m])", grid, true);
        let resets = values(&ask(&store, "resets(x_total[50m])", grid, true));
        let width = if answer.infos.iter().any(|info| info.contains("of up to 15 minutes")) { 15 * MINUTE } else { MINUTE };
        let samples: Vec<(i64, f64)> =
            points.iter().filter(|(_, v)| !model::is_stale_marker(**v)).map(|(t, v)| (*t, *v)).collect();
        let of = |from: i64, to: i64| {
            let inside: Vec<f64> =
                samples.iter().filter(|(time, _)| from < *time && *time <= to).map(|(_, v)| *v).collect();
            (inside.len() as f64, inside.windows(2).filter(|pair| pair[1] < pair[0]).count() as f64)
        };
        for (at, count) in values(&answer) {
            let end = at.1 * model::NANOS_PER_MILLI;
            let least = of(end - 50 * MINUTE + width, end - width);
            let most = of(end - 50 * MINUTE - width, end + width);
            prop_assert!(least.0 <= count && count <= most.0, "{} not in {}..={}", count, least.0, most.0);
            let resets = resets[&at];
            prop_assert!(least.1 <= resets && resets <= most.1, "{} not in {}..={}", resets, least.1, most.1);
        }
    }
}

#[test]
fn selectors_show_a_series_while_it_went_on_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), DAY);
    // One ends with a marker, one without; both at 05:07:30, in the middle of a bucket.
    let ends = D0 + 5 * HOUR + 7 * MINUTE + 30 * SECOND;
    let line = |interval: i64| -> Points {
        (1..=(ends - D0) / interval).map(|n| D0 + n * interval).map(|t| (t, (t - D0) as f64 / 1e9)).collect()
    };
    let mut marked = line(30 * SECOND);
    append(&store, "silent", &marked);
    marked.insert(ends + 10 * SECOND, stale_marker());
    append(&store, "marked", &marked);
    append(&store, "later", &BTreeMap::from([(D0 + 8 * HOUR, 1.0)]));
    settle(&store, D0 + 5 * DAY);
    let at = |host: &str, time: i64| {
        let answer = ask(&store, &format!("x_total{{host=\"{host}\"}}"), (time, time, MINUTE), true);
        (values(&answer).values().next().copied(), answer.infos)
    };
    for host in ["silent", "marked"] {
        let (value, infos) = at(host, D0 + HOUR + 8 * MINUTE);
        // The latest sample known at that time is the first of its bucket.
        assert_eq!(value, Some(3_630.0), "{host}");
        assert_eq!(infos.len(), 1);
        assert!(infos[0].contains("only roll-ups of up to 15 minutes are left"), "{infos:?}");
        assert_eq!(at(host, ends).0, Some(18_450.0));
        assert_eq!(at(host, D0 + 5 * HOUR + 15 * MINUTE).0, None, "{host}");
        assert_eq!(at(host, D0 + 6 * HOUR).0, None);
    }
    assert_eq!(at("silent", ends + 4 * MINUTE).0, Some(18_450.0));
    assert_eq!(at("marked", ends + 20 * SECOND).0, None, "the marker is heeded");
    assert_eq!(at("later", D0 + 7 * HOUR).0, None);
    let absent = ask(&store, "absent(x_total{host=\"marked\"})", (D0 + 6 * HOUR, D0 + 7 * HOUR, HOUR), true);
    assert_eq!(values(&absent).len(), 2);
    // Functions that need single samples take one of each bucket and say so.
    let slope =
        ask(&store, "deriv(x_total{host=\"silent\"}[2h])", (D0 + 4 * HOUR, D0 + 4 * HOUR, MINUTE), true);
    assert_eq!(values(&slope).values().map(|v| v.round()).collect::<Vec<_>>(), [1.0]);
    assert!(slope.infos[0].contains("a sample of each stands for it"), "{:?}", slope.infos);
    let without = ask(&store, "x_total", (D0 + HOUR, D0 + HOUR, MINUTE), false);
    assert!(values(&without).is_empty());
    assert_eq!(Options::default().lookback, Duration::from_mins(5));
}
