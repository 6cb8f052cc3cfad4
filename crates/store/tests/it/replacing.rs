//! Batches of doors where sending again is how a sender makes sure: the last word counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Labels, MetricKind, Sample, SeriesIdentity};
use proptest::prelude::*;
use store::{Batch, Collision, MetricMetadata, Options, SeriesBatch, Store};

use crate::support::*;

fn identity(n: u8) -> SeriesIdentity {
    let labels = Labels::from_pairs([("__name__", "up"), ("instance", &n.to_string())]);
    SeriesIdentity { labels, display: "up".into() }
}

fn scraped(series: u8, points: impl IntoIterator<Item = (i64, f64)>) -> Batch {
    let samples = points.into_iter().map(|(time_ns, value)| Sample { time_ns, value, step: None }).collect();
    let series = vec![SeriesBatch { identity: identity(series), samples }];
    Batch { series, collision: Collision::LastWriteWins, ..Batch::default() }
}

fn stored(store: &Store, series: u8) -> Vec<(i64, u64)> {
    let instance = series.to_string();
    let found = store.select(&[store::Matcher::equal("instance", &instance)], i64::MIN, i64::MAX);
    let Some(found) = found.first() else { return Vec::new() };
    read(store, found.id).iter().map(|s| (s.time_ns, s.value.to_bits())).collect()
}

#[test]
fn the_same_again_is_nothing_and_another_value_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let points = |offset: f64| (0..5_000_i64).map(move |n| (T0 + n * 1_000 * MS, n as f64 + offset));
    let receipt = store.append(scraped(1, points(0.0))).unwrap();
    assert_eq!((receipt.stored, receipt.repeated), (5_000, 0));
    let receipt = store.append(scraped(1, points(0.0))).unwrap();
    assert_eq!((receipt.stored, receipt.repeated), (0, 5_000));
    let stale = model::stale_marker();
    let receipt = store.append(scraped(1, [(T0 + 10_000 * MS, stale), (T0 + 11_000 * MS, 11.0)])).unwrap();
    assert_eq!((receipt.stored, receipt.repeated), (1, 1));
    let receipt = store.append(scraped(1, [(T0 + 10_000 * MS, stale)])).unwrap();
    assert_eq!((receipt.stored, receipt.repeated), (0, 1));
    // The last of one batch counts.
    store.append(scraped(1, [(T0 + 12_000 * MS, 1.0), (T0 + 12_000 * MS, 2.0)])).unwrap();
    let mut want: Vec<(i64, u64)> = points(0.0).map(|(t, v)| (t, v.to_bits())).collect();
    want[10].1 = model::STALE_NAN_BITS;
    want[12].1 = 2.0_f64.to_bits();
    assert_eq!(stored(&store, 1), want);
    store.close();
    assert_eq!(stored(&store, 1), want);
    drop(store);
    let store = open(dir.path());
    store.append(scraped(1, points(0.5))).unwrap();
    let want: Vec<(i64, u64)> = points(0.5).map(|(t, v)| (t, v.to_bits())).collect();
    assert_eq!(stored(&store, 1), want);
    drop(store);
    assert_eq!(stored(&open(dir.path()), 1), want);
}

#[derive(Debug, Clone)]
enum Act {
    /// Series, its points (time and value), and whether it is named or numbered where it can be.
    Append(u8, Vec<(i64, u8)>, bool),
    Maintain,
    Reopen,
    CloseAndReopen,
}

fn any_act() -> impl Strategy<Value = Act> {
    let time = prop_oneof![4 => 0..400_i64, 1 => (-3..3_i64).prop_map(|day| day * 86_400_000)];
    let scattered = prop::collection::vec((time, 0..4_u8), 1..60);
    let line = (0..300_i64, 1..300_i64, 0..4_u8)
        .prop_map(|(from, count, value)| (from..from + count).map(|n| (n, value)).collect::<Vec<_>>());
    prop_oneof![
        8 => (0..2_u8, prop_oneof![scattered, line], any::<bool>())
            .prop_map(|(series, points, named)| Act::Append(series, points, named)),
        3 => Just(Act::Maintain),
        1 => Just(Act::Reopen),
        1 => Just(Act::CloseAndReopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32)))]

    #[test]
    fn whatever_happens_the_last_word_counts(acts in prop::collection::vec(any_act(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let reopen = || Store::open(dir.path(), Options { seal_points: 200, ..options() }).unwrap();
        let mut store = reopen();
        let mut expected: BTreeMap<u8, BTreeMap<i64, u64>> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Append(series, points, named) => {
                    let points: Vec<_> = points.iter().map(|(t, v)| (T0 + t * MS, f64::from(*v))).collect();
                    let known = expected.entry(series).or_default();
                    known.extend(points.iter().map(|(t, v)| (*t, v.to_bits())));
                    let mut batch = scraped(series, points.clone());
                    if let Some(number) = store.series_number(&identity(series)).filter(|_| !named) {
                        let samples = std::mem::take(&mut batch.series[0].samples);
                        batch.points = samples.into_iter().map(|sample| (number, sample)).collect();
                    }
                    let receipt = store.append(batch).unwrap();
                    prop_assert_eq!(receipt.stored + receipt.repeated, points.len() as u64);
                }
                Act::Maintain => store.maintain(T0).unwrap(),
                Act::Reopen => {
                    drop(store);
                    store = reopen();
                }
                Act::CloseAndReopen => {
                    store.close();
                    drop(store);
                    store = reopen();
                }
            }
            for (series, known) in &expected {
                let want: Vec<(i64, u64)> = known.iter().map(|(t, v)| (*t, *v)).collect();
                prop_assert_eq!(stored(&store, *series), want);
            }
        }
        store.close();
        prop_assert_eq!(store.status().head_points, 0);
        prop_assert_eq!(store.status().damage, Vec::<String>::new());
    }
}

/// Points by day, place in it and value, and the hours that pass then.
type Round = (Vec<(i64, i64, u8)>, i64);

fn any_rounds() -> impl Strategy<Value = Vec<Round>> {
    let day = prop_oneof![3 => -45..-28_i64, 1 => -400..4_i64, 2 => -3..1_i64];
    let points = prop::collection::vec((day, 0..6_i64, 0..4_u8), 1..12);
    prop::collection::vec((points, prop_oneof![3 => Just(0), 1 => 0..40_i64]), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn the_last_word_counts_however_long_ago(rounds in any_rounds(), rolls: bool, reopens in 2..20_usize) {
        const HOUR: i64 = 3_600_000 * MS;
        let dir = tempfile::tempdir().unwrap();
        let reopen = || {
            let kept = Options { seal_points: 1, fleet_retention_ns: 500 * 24 * HOUR, ..raw_only() };
            let day = if rolls { 24 * HOUR } else { 0 };
            let options = Options { minute_retention_ns: 500 * day, quarter_retention_ns: 500 * day, ..kept };
            Store::open(dir.path(), options).unwrap()
        };
        let mut store = reopen();
        let mut known = BTreeMap::new();
        let mut now = T0;
        for (round, (points, hours)) in rounds.into_iter().enumerate() {
            let points: Vec<_> =
                points.iter().map(|(day, at, v)| (T0 + day * 24 * HOUR + at * MS, f64::from(*v))).collect();
            known.extend(points.iter().map(|(time, value)| (*time, value.to_bits())));
            store.append(scraped(1, points)).unwrap();
            now += hours * HOUR;
            for _ in 0..=hours {
                store.maintain(now).unwrap();
            }
            if round % reopens == 1 {
                drop(store);
                store = reopen();
            }
            let want: Vec<(i64, u64)> = known.iter().map(|(time, value)| (*time, *value)).collect();
            prop_assert_eq!(stored(&store, 1), want);
        }
        prop_assert_eq!(store.status().damage, Vec::<String>::new());
    }
}

#[test]
fn readers_never_see_a_replaced_value_come_back_while_memory_is_sealed_and_merged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { seal_points: 200, ..options() }).unwrap();
    let round = |n: i64| {
        // Each round says less of the end again, so that old and new lie in files of many sizes.
        let points = (0..400 - n % 7 * 50).map(|at| (T0 + at * MS, n as f64));
        store.append(scraped(1, points)).unwrap();
    };
    round(0);
    let number = store.series_number(&identity(1)).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut before = vec![0.0; 400];
                while !ended.load(Ordering::Relaxed) {
                    let now = values(&read(&store, number));
                    assert_eq!(now.len(), 400);
                    assert!(now.iter().zip(&before).all(|(now, before)| now >= before));
                    before = now;
                }
            });
        }
        for n in 1..120 {
            round(n);
            if n % 3 == 0 {
                store.maintain(T0).unwrap();
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let latest = |at: i64| (0..120).filter(|n| at < 400 - n % 7 * 50).max().unwrap() as f64;
    assert_eq!(values(&read(&store, number)), (0..400).map(latest).collect::<Vec<_>>());
}

#[test]
fn points_by_number_are_those_of_the_series_and_of_none_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(scraped(1, [(T0, 1.0)])).unwrap();
    store.append(batch("a", "loss", line(0, 3))).unwrap();
    let number = store.series_number(&identity(1)).unwrap();
    let loss = series(&store, "a", "loss").id;
    let sample = |n: i64| Sample { time_ns: T0 + n, value: n as f64, step: Some(n) };
    let points = vec![(loss, sample(0)), (number, sample(5)), (77, sample(1)), (loss, sample(i64::MAX / 2))];
    let receipt = store.append(Batch { points, ..Batch::default() }).unwrap();
    assert_eq!((receipt.stored, receipt.gone), (2, vec![77]));
    assert_eq!(receipt.refused[0].0, "time_out_of_range");
    // Unless told otherwise a point moves on to the next free nanosecond.
    let times: Vec<i64> = read(&store, loss).iter().map(|s| s.time_ns - T0).collect();
    assert_eq!(times, [0, 1, model::NANOS_PER_SECOND, 2 * model::NANOS_PER_SECOND]);
    assert_eq!(read(&store, number).last().unwrap().step, Some(5));
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(T0 + 1).unwrap();
    let points = vec![(loss, sample(9))];
    assert_eq!(store.append(Batch { points, ..Batch::default() }).unwrap().gone, [loss]);
}

#[test]
fn what_many_append_at_once_by_number_is_all_there() {
    const SERIES: u8 = 20;
    const WRITERS: i64 = 6;
    const ROUNDS: i64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let numbers: Vec<u64> = (0..SERIES)
        .map(|series| {
            store.append(scraped(series, [(T0, 0.0)])).unwrap();
            store.series_number(&identity(series)).unwrap()
        })
        .collect();
    // All write to all series; some are ahead of others, so points come late within one commit too.
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, numbers) = (&store, &numbers);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let time_ns = T0 + (1 + round * WRITERS + writer) * MS;
                    let sample = Sample { time_ns, value: writer as f64, step: None };
                    let points = numbers.iter().map(|number| (*number, sample)).collect();
                    let collision = Collision::LastWriteWins;
                    let receipt = store.append(Batch { points, collision, ..Batch::default() }).unwrap();
                    assert_eq!(receipt.stored, u64::from(SERIES));
                }
            });
        }
    });
    let want: Vec<f64> = std::iter::once(0.0)
        .chain((0..ROUNDS).flat_map(|_| (0..WRITERS).map(|writer| writer as f64)))
        .collect();
    let holds = |store: &Store| numbers.iter().all(|number| values(&read(store, *number)) == want);
    assert!(holds(&store));
    drop(store);
    assert!(holds(&open(dir.path())));
}

#[test]
fn projects_and_the_fleet_have_their_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let reopen = || {
        let options = Options { project_series_max: 2, fleet_series_max: 3, ..options() };
        Store::open(dir.path(), options).unwrap()
    };
    let store = reopen();
    let mut fleet = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
    for n in 0..5 {
        fleet.series.extend(scraped(n, [(T0, 1.0)]).series);
    }
    let refused = |batch: &Batch, store: &Store| {
        let receipt = store.append(batch.clone()).unwrap();
        receipt.refused.iter().map(|(reason, count, _)| (*reason, *count)).collect::<Vec<_>>()
    };
    assert_eq!(refused(&fleet, &store), [("fleet_series_limit", 2)]);
    assert_eq!(refused(&batch("a", "loss", line(0, 1)), &store), []);
    assert_eq!(refused(&batch("b", "loss", line(0, 1)), &store), []);
    assert_eq!(refused(&batch("c", "loss", line(0, 7)), &store), [("project_series_limit", 7)]);
    drop(store);
    let store = reopen();
    assert_eq!(refused(&fleet, &store), [("fleet_series_limit", 2)]);
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(T0 + 1).unwrap();
    assert_eq!(refused(&batch("c", "loss", line(0, 1)), &store), []);
    assert_eq!(refused(&batch("d", "loss", line(0, 1)), &store), [("project_series_limit", 1)]);
}

#[test]
fn the_latest_word_about_a_metric_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let said = |metric: &str, help: &str| MetricMetadata {
        metric: metric.into(),
        kind: MetricKind::Counter,
        help: help.into(),
        unit: String::new(),
    };
    let say = |store: &Store, metadata: Vec<MetricMetadata>| {
        store.append(Batch { metadata, ..Batch::default() }).unwrap();
    };
    say(&store, vec![said("b", "old"), said("a", "first")]);
    say(&store, vec![said("b", "new"), said("", "no name")]);
    let commits = store.status().commits_total;
    say(&store, vec![said("b", "new")]);
    assert_eq!(store.status().commits_total, commits, "nothing new was written");
    let check = |store: &Store| {
        let all: Vec<MetricMetadata> = store.metadata(None).iter().map(|known| (**known).clone()).collect();
        assert_eq!(all, [said("a", "first"), said("b", "new")]);
        assert_eq!(store.metadata(Some("b")).len(), 1);
        assert!(store.metadata(Some("c")).is_empty());
    };
    check(&store);
    drop(store);
    check(&open(dir.path()));
}

#[test]
fn points_of_long_ago_keep_their_last_value_when_files_of_other_days_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let day = 86_400_000 * MS;
    let options = || Options { seal_points: 1, fleet_retention_ns: 365 * day, ..raw_only() };
    let store = Store::open(dir.path(), options()).unwrap();
    // What is older than a month lies in one file, whatever its day.
    let (before, after) = (T0 - 40 * day, T0 - 35 * day);
    let mut rounds = vec![vec![(before, 1.0), (after, 1.0)], vec![(before, 2.0)]];
    rounds.extend((1..20).map(|n| vec![(after + n * MS, 1.0)]));
    for (round, points) in (1..).zip(rounds) {
        store.append(scraped(1, points)).unwrap();
        // Memory is sealed when it is two hours old.
        store.maintain(T0 + round * 180_000 * MS).unwrap();
        store.maintain(T0 + (round * 180_000 + 7_200_000) * MS).unwrap();
    }
    assert_eq!(store.status().head_points, 0);
    let files = store.status().segments;
    assert!(files < 10, "{files} files: nothing was merged");
    assert_eq!(stored(&store, 1)[0], (before, 2.0_f64.to_bits()));
}
