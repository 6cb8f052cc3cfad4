//! Roll-ups: what is in them is what was written, wherever it rests and however late it came.

use std::collections::BTreeMap;
use std::path::Path;

use model::{Labels, RollupAsk, RollupBucket, RollupParts, Sample, SeriesIdentity};
use proptest::prelude::*;
use store::{Batch, Collision, Matcher, Options, SeriesBatch, SeriesId, Store};

use crate::support::*;

const SECOND: i64 = model::NANOS_PER_SECOND;
const MINUTE: i64 = 60 * SECOND;
const QUARTER: i64 = 15 * MINUTE;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// A midnight.
const D0: i64 = T0.div_euclid(DAY) * DAY;

type Points = BTreeMap<i64, f64>;

fn identity(host: &str) -> SeriesIdentity {
    let labels = Labels::from_pairs([("__name__", "requests_total"), ("host", host)]);
    SeriesIdentity { labels, display: "requests_total".into() }
}

fn append(store: &Store, host: &str, points: &Points) {
    let samples =
        points.iter().map(|(time_ns, value)| Sample { time_ns: *time_ns, value: *value, step: None });
    let series = vec![SeriesBatch { identity: identity(host), samples: samples.collect() }];
    let batch = Batch { series, collision: Collision::LastWriteWins, ..Batch::default() };
    store.append(batch).unwrap();
}

fn number(store: &Store, host: &str) -> SeriesId {
    let found = store.select(&[Matcher::equal("host", host)], i64::MIN, i64::MAX);
    assert_eq!(found.len(), 1, "series of {host}");
    found[0].id
}

/// The buckets by a rule as simple as can be.
fn expected(points: &Points, width: i64) -> Vec<RollupBucket> {
    let mut groups: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for (time_ns, value) in points {
        let end = time_ns.div_euclid(width) * width + if time_ns.rem_euclid(width) == 0 { 0 } else { width };
        groups.entry(end).or_default().push((*time_ns, *value));
    }
    let bucket = |(end_ns, all): (i64, Vec<(i64, f64)>)| {
        let samples: Vec<(i64, f64)> =
            all.iter().copied().filter(|(_, value)| !model::is_stale_marker(*value)).collect();
        let marker = all.last().filter(|(_, value)| model::is_stale_marker(*value)).map(|(time, _)| *time);
        let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        let falls = || values.windows(2).filter(|pair| pair[1] < pair[0]);
        let nothing = (marker.unwrap_or_default(), f64::NAN);
        RollupBucket {
            end_ns,
            count: values.len() as u64,
            first: samples.first().copied().unwrap_or(nothing),
            last: samples.last().copied().unwrap_or(nothing),
            min: values.iter().copied().fold(f64::NAN, f64::min),
            max: values.iter().copied().fold(f64::NAN, f64::max),
            sum: values.iter().sum(),
            falls: falls().map(|pair| pair[0]).sum(),
            resets: falls().count() as u64,
            changes: values.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64,
            ended_ns: marker,
        }
    };
    groups.into_iter().map(bucket).collect()
}

/// Text, since NaN is not itself; whole numbers here, so that sums are exact.
fn text(buckets: &[RollupBucket]) -> Vec<String> {
    let text = |b: &RollupBucket| format!("{b:?}").replace("-0.0", "0.0");
    buckets.iter().map(text).collect()
}

fn ask((from_ns, to_ns): (i64, i64), align_ns: Option<i64>) -> RollupAsk {
    RollupAsk { from_ns, to_ns, align_ns, parts: RollupParts::ALL }
}

/// Roll-ups as far as they go, and from there on the samples.
fn rolled(store: &Store, id: SeriesId, range: (i64, i64), align: i64) -> (Vec<RollupBucket>, Points) {
    let mut buckets = Vec::new();
    let end = store.rollups(id, &ask(range, Some(align)), &mut buckets);
    let samples = read_range(store, id, end.raw_from_ns, range.1);
    let inside = samples.iter().filter(|s| (end.raw_from_ns..=range.1).contains(&s.time_ns));
    (buckets, inside.map(|s| (s.time_ns, s.value)).collect())
}

fn open_with(dir: &Path, change: impl FnOnce(&mut Options)) -> Store {
    let mut options = Options { seal_points: 1, ..options() };
    change(&mut options);
    Store::open(dir, options).unwrap()
}

/// Seals, rolls up, drops and merges all that is due.
fn settle(store: &Store, now: i64) {
    for _ in 0..60 {
        store.maintain(now).unwrap();
    }
}

/// A counter every `interval` over `days` days that resets now and then.
fn counter(days: i64, interval: i64) -> Points {
    let point = |n: i64| (D0 + n * interval + 3 * MS, (n * 7 % 5_000) as f64);
    (1..days * DAY / interval).map(point).collect()
}

#[test]
fn days_are_rolled_up_when_they_rest_and_outlive_their_samples() {
    let dir = tempfile::tempdir().unwrap();
    let short = |options: &mut Options| options.fleet_retention_ns = 3 * DAY;
    let store = open_with(dir.path(), short);
    let (dense, sparse) = (counter(3, 10 * SECOND), counter(3, 30 * SECOND));
    append(&store, "dense", &dense);
    append(&store, "sparse", &sparse);
    let everything = (D0 - DAY, D0 + 10 * DAY);
    let ids = |store: &Store| (number(store, "dense"), number(store, "sparse"));
    settle(&store, D0 + 3 * DAY + 3 * HOUR);
    let (id, _) = ids(&store);
    let (buckets, samples) = rolled(&store, id, everything, QUARTER);
    assert_eq!(text(&buckets), text(&expected(&dense, QUARTER)[..2 * 96]), "the third day rests not yet");
    assert_eq!(samples, dense.range(D0 + 2 * DAY + 1..).map(|(t, v)| (*t, *v)).collect::<Points>());
    // All samples are there still.
    assert_eq!(read(&store, id).len(), dense.len());
    settle(&store, D0 + 8 * DAY);
    let check = |store: &Store| {
        let (dense_id, sparse_id) = ids(store);
        assert!(read(store, dense_id).is_empty() && read(store, sparse_id).is_empty());
        for (align, width) in [(QUARTER, QUARTER), (HOUR, QUARTER), (5 * MINUTE, MINUTE)] {
            let (buckets, samples) = rolled(store, dense_id, everything, align);
            assert_eq!(text(&buckets), text(&expected(&dense, width)), "{align}");
            assert!(samples.is_empty());
        }
        // Two samples a minute are not worth a minute of their own.
        for align in [QUARTER, MINUTE, 7 * SECOND] {
            let (buckets, _) = rolled(store, sparse_id, everything, align);
            assert_eq!(text(&buckets), text(&expected(&sparse, QUARTER)), "{align}");
        }
        let none = store.rollups(dense_id, &ask(everything, None), &mut Vec::new());
        assert_eq!(none.gone_width_ns, Some(MINUTE));
        assert_eq!(store.series(dense_id).map(|s| s.points), Some(0));
        assert_eq!(store.status().damage, Vec::<String>::new());
    };
    check(&store);
    drop(store);
    let store = open_with(dir.path(), short);
    check(&store);
    // Minutes go, quarters stay, then nothing is left of the series.
    settle(&store, D0 + 110 * DAY);
    let (id, _) = ids(&store);
    assert_eq!(text(&rolled(&store, id, everything, MINUTE).0), text(&expected(&dense, QUARTER)));
    settle(&store, D0 + 500 * DAY);
    assert_eq!((store.status().series, store.status().segments), (0, 0));
}

#[test]
fn samples_that_come_late_are_in_the_roll_ups_and_later_values_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(dir.path(), |_| ());
    // Minutes of fewer samples are not faster to read than these.
    let mut all = counter(2, 4 * SECOND);
    let (late, early): (Points, Points) = all.iter().partition(|(time, _)| (*time / HOUR) % 5 == 2);
    append(&store, "n1", &early);
    settle(&store, D0 + 3 * DAY);
    let id = number(&store, "n1");
    let range = (D0 + 1, D0 + 2 * DAY);
    assert_eq!(text(&rolled(&store, id, range, QUARTER).0), text(&expected(&early, QUARTER)));
    append(&store, "n1", &late);
    // Nothing is left out while what came late is in memory only.
    let (buckets, samples) = rolled(&store, id, range, MINUTE);
    let first_late = *late.keys().next().unwrap();
    assert!(buckets.iter().all(|b| b.end_ns < first_late));
    assert_eq!(samples, all.range(first_late / MINUTE * MINUTE + 1..).map(|(t, v)| (*t, *v)).collect());
    let replaced = D0 + 30 * HOUR + 3 * MS;
    all.insert(replaced, 1e6);
    append(&store, "n1", &BTreeMap::from([(replaced, 1e6)]));
    settle(&store, D0 + 3 * DAY + 3 * HOUR);
    for width in [MINUTE, QUARTER] {
        let (buckets, samples) = rolled(&store, id, range, width);
        assert_eq!(text(&buckets), text(&expected(&all, width)));
        assert!(samples.is_empty());
    }
}

#[test]
fn samples_that_come_when_their_like_are_gone_are_taken_in() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(dir.path(), |options| options.fleet_retention_ns = 2 * DAY);
    let mut all = counter(1, 10 * SECOND);
    let hour = all.split_off(&(D0 + 20 * HOUR));
    let mut gap = BTreeMap::new();
    for minute in 0..5 {
        let time = D0 + 10 * HOUR + minute * MINUTE + 3 * MS;
        gap.extend(all.remove(&time).map(|value| (time, value)));
    }
    append(&store, "n1", &all);
    settle(&store, D0 + 6 * DAY);
    let id = number(&store, "n1");
    assert!(read(&store, id).is_empty());
    let range = (D0 - DAY, D0 + 8 * DAY);
    let same = |store: &Store, all: &Points, text: fn(&[RollupBucket]) -> Vec<String>| {
        for width in [MINUTE, QUARTER] {
            let (buckets, samples) = rolled(store, id, range, width);
            assert!(samples.is_empty());
            assert_eq!(text(&buckets), text(&expected(all, width)));
        }
    };
    // Later than all that is there, and before all of it: as if they had come in time.
    let before = BTreeMap::from([(D0 - 3 * HOUR, 17.0)]);
    for part in [&hour, &before] {
        append(&store, "n1", part);
        all.extend(part);
        same(&store, &all, text);
    }
    settle(&store, D0 + 6 * DAY + 3 * HOUR);
    same(&store, &all, text);
    assert!(read(&store, id).is_empty(), "they go as soon as they are rolled up");
    // In between: what the counter did from sample to sample is not known any more.
    let but_falls = |buckets: &[RollupBucket]| {
        let buckets = buckets.iter().map(|b| RollupBucket { falls: 0.0, resets: 0, changes: 0, ..*b });
        text(&buckets.collect::<Vec<_>>())
    };
    append(&store, "n1", &gap);
    all.extend(&gap);
    same(&store, &all, but_falls);
    settle(&store, D0 + 6 * DAY + 6 * HOUR);
    same(&store, &all, but_falls);
    drop(store);
    let store = open_with(dir.path(), |options| options.fleet_retention_ns = 2 * DAY);
    same(&store, &all, but_falls);
    let resets = |buckets: &[RollupBucket]| buckets.iter().map(|b| b.resets).sum::<u64>();
    assert_eq!(resets(&rolled(&store, id, range, QUARTER).0), resets(&expected(&all, QUARTER)));
}

#[test]
fn a_bound_on_bytes_drops_samples_and_leaves_roll_ups() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(dir.path(), |options| options.fleet_bytes_max = 0);
    let points = counter(2, 10 * SECOND);
    append(&store, "n1", &points);
    settle(&store, D0 + 2 * DAY - HOUR);
    let id = number(&store, "n1");
    assert!(read(&store, id).is_empty());
    let (buckets, _) = rolled(&store, id, (D0 - DAY, D0 + 8 * DAY), MINUTE);
    assert_eq!(text(&buckets), text(&expected(&points, MINUTE)));
}

#[test]
fn roll_ups_of_many_days_end_up_in_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(dir.path(), |options| options.fleet_retention_ns = 2 * DAY);
    let mut all = Points::new();
    for day in 0..40 {
        let points: Points =
            (0..200).map(|n| (D0 + day * DAY + n * MINUTE, (day * 200 + n) as f64)).collect();
        append(&store, "n1", &points);
        all.extend(points);
        settle(&store, D0 + (day + 1) * DAY + 5 * HOUR);
    }
    assert!(store.status().segments <= 24, "{} files", store.status().segments);
    let id = number(&store, "n1");
    let (mut buckets, samples) = rolled(&store, id, (D0 - DAY, D0 + 41 * DAY), QUARTER);
    buckets.extend(expected(&samples, QUARTER));
    assert_eq!(text(&buckets), text(&expected(&all, QUARTER)));
    assert!(store.status().damage.is_empty());
}

#[test]
fn a_lost_catalogue_and_a_backup_keep_what_is_in_roll_ups_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(dir.path(), |options| options.fleet_retention_ns = 2 * DAY);
    let points = counter(2, 10 * SECOND);
    append(&store, "n1", &points);
    settle(&store, D0 + 9 * DAY);
    let check = |store: &Store| {
        let id = number(store, "n1");
        let (buckets, _) = rolled(store, id, (D0 - DAY, D0 + 8 * DAY), 7 * SECOND);
        assert_eq!(text(&buckets), text(&expected(&points, MINUTE)));
    };
    let copy = dir.path().join("copy");
    store.backup(&copy).unwrap();
    check(&open_with(&copy, |_| ()));
    store.close();
    drop(store);
    std::fs::remove_file(dir.path().join("catalogue.redb")).unwrap();
    check(&open_with(dir.path(), |options| options.fleet_retention_ns = 2 * DAY));
}

#[derive(Debug, Clone)]
enum Act {
    Append { series: u8, from: i64, gaps: Vec<(i64, u8)> },
    Pass(i64),
    Reopen,
}

fn any_act() -> impl Strategy<Value = Act> {
    let gap = prop_oneof![6 => Just(10 * SECOND), 2 => 1..90 * SECOND, 1 => 1..5 * HOUR, 1 => Just(MINUTE)];
    let gaps = prop::collection::vec((gap, any::<u8>()), 1..300);
    let from = prop_oneof![(0..4 * DAY), (0..96_i64).prop_map(|hour| hour * HOUR)];
    prop_oneof![
        6 => (0..2_u8, from, gaps).prop_map(|(series, from, gaps)| Act::Append { series, from, gaps }),
        3 => (1..30_i64).prop_map(|hours| Act::Pass(hours * HOUR)),
        1 => Just(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32)))]

    #[test]
    fn roll_ups_and_what_follows_them_are_all_that_was_written(acts in prop::collection::vec(any_act(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open_with(dir.path(), |_| ());
        let mut all: BTreeMap<u8, Points> = BTreeMap::new();
        let mut now = D0;
        for act in acts {
            match act {
                Act::Append { series, from, gaps } => {
                    let mut time = D0 + from;
                    let mut points = Points::new();
                    for (gap, value) in gaps {
                        time += gap;
                        let value = if value == 7 { model::stale_marker() } else { f64::from(value) };
                        points.insert(time, value);
                    }
                    append(&store, &format!("n{series}"), &points);
                    all.entry(series).or_default().extend(points);
                }
                Act::Pass(time) => {
                    now += time;
                    settle(&store, now);
                }
                Act::Reopen => {
                    drop(store);
                    store = open_with(dir.path(), |_| ());
                }
            }
            for (series, points) in &all {
                let id = number(&store, &format!("n{series}"));
                for (align, width) in [(QUARTER, QUARTER), (MINUTE, MINUTE)] {
                    // Beyond the longest that so many gaps may take.
                    let (mut buckets, samples) = rolled(&store, id, (D0 - DAY + 1, D0 + 90 * DAY), align);
                    buckets.extend(expected(&samples, width));
                    prop_assert_eq!(text(&buckets), text(&expected(points, width)));
                }
            }
        }
        prop_assert_eq!(store.status().damage, Vec::<String>::new());
    }
}

#[test]
fn samples_of_a_day_before_all_others_stay_when_the_store_was_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for day in [1, 3] {
        let store = open(dir.path());
        append(&store, "a", &Points::from([(D0 - day * DAY, day as f64)]));
        store.close();
        drop(store);
        let store = open(dir.path());
        for _ in 0..4 {
            store.maintain(D0 + HOUR).unwrap();
        }
    }
    let store = open(dir.path());
    assert_eq!(values(&read(&store, number(&store, "a"))), [3.0, 1.0]);
}
