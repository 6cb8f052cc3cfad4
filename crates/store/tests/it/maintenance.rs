//! Sealing, merging and dropping.

use std::path::Path;

use model::{Labels, SeriesIdentity};
use store::{Batch, Options, SeriesBatch, Store};

use crate::support::*;

const DAY: i64 = 86_400 * model::NANOS_PER_SECOND;

fn open_small(dir: &Path) -> Store {
    Store::open(dir, Options { seal_points: 300, ..options() }).unwrap()
}

#[test]
fn memory_is_sealed_when_it_is_full_or_old_and_the_log_is_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    store.append(batch("a", "loss", line(0, 299))).unwrap();
    store.maintain(T0).unwrap();
    assert_eq!((store.status().head_points, store.status().segments), (299, 0));
    store.append(batch("a", "loss", line(299, 1))).unwrap();
    store.maintain(T0).unwrap();
    assert_eq!((store.status().head_points, store.status().segments), (0, 1));
    store.append(batch("a", "loss", line(300, 1))).unwrap();
    store.maintain(T0).unwrap();
    assert_eq!(store.status().head_points, 1);
    store.maintain(T0 + 2 * 3_600 * model::NANOS_PER_SECOND).unwrap();
    assert_eq!((store.status().head_points, store.status().segments), (0, 2));
    drop(store);
    let store = open_small(dir.path());
    assert_eq!(store.status().head_points, 0, "rows of the log are left");
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 301);
}

#[test]
fn small_segments_are_merged_and_every_point_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let mut most = 0;
    for n in 0..40 {
        // Interleaved, so that neighbouring segments overlap.
        let points = (0..300).map(|at| (T0 + (n % 5) * 7 + (n / 5 * 300 + at) * 1_000, n as f64, Some(at)));
        store.append(batch("a", "loss", points)).unwrap();
        store.append(batch(if n % 2 == 0 { "b" } else { "c" }, "loss", line(n * 10, 10))).unwrap();
        store.maintain(T0).unwrap();
        most = most.max(store.status().segments);
    }
    assert!(most <= 16 && store.status().segments < 16, "{most} segments");
    let check = |store: &Store| {
        let samples = read(store, series(store, "a", "loss").id);
        assert_eq!(samples.len(), 40 * 300);
        for n in 0..40 {
            assert_eq!(samples.iter().filter(|s| s.value == f64::from(n)).count(), 300);
        }
        assert_eq!(read(store, series(store, "b", "loss").id).len(), 200);
        assert_eq!(series(store, "a", "loss").points, 12_000);
    };
    check(&store);
    drop(store);
    let store = open_small(dir.path());
    check(&store);
    let files = std::fs::read_dir(dir.path().join("segments")).unwrap().count() as u64;
    assert_eq!(files, store.status().segments, "merged files are left");
}

#[test]
fn a_past_day_is_merged_once_no_more_of_it_waits_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { seal_points: 300, ..raw_only() }).unwrap();
    let append = |from: i64, count: i64| {
        let identity = SeriesIdentity {
            labels: Labels::from_pairs([("__name__", "node_load"), ("host", "n1")]),
            display: "node_load".into(),
        };
        let sample = |(time_ns, value, step)| model::Sample { time_ns, value, step };
        let series = vec![SeriesBatch { identity, samples: line(from, count).map(sample).collect() }];
        store.append(Batch { series, ..Batch::default() }).unwrap();
    };
    for n in 0..5 {
        append(n * 300, 300);
        store.maintain(T0).unwrap();
    }
    append(1_500, 10);
    for _ in 0..3 {
        store.maintain(T0 + 3 * DAY).unwrap();
        assert_eq!((store.status().segments, store.status().head_points), (5, 10));
    }
    store.maintain(T0 + 4 * DAY).unwrap();
    assert_eq!((store.status().segments, store.status().head_points), (1, 0));
    assert_eq!(read(&store, store.select(&[], i64::MIN, i64::MAX)[0].id).len(), 1_510);
}

#[test]
fn reads_see_every_point_once_while_memory_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..60 {
                store.append(batch("a", "loss", line(n * 100, 100))).unwrap();
                store.maintain(T0).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let Some(info) = store.run_series(path("a").id()).first().cloned() else { continue };
            let got = values(&read(&store, info.id));
            assert_eq!(got, (0..got.len()).map(|n| n as f64).collect::<Vec<_>>());
            assert!(got.len() as u64 >= info.points);
        }
    });
}

#[test]
fn series_of_no_run_are_dropped_by_age_and_runs_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), raw_only()).unwrap();
    let identity = SeriesIdentity {
        labels: Labels::from_pairs([("__name__", "node_load"), ("host", "n1")]),
        display: "node_load".into(),
    };
    let samples = (0..40).map(|day| model::Sample { time_ns: T0 - day * DAY, value: day as f64, step: None });
    let fleet = SeriesBatch { identity, samples: samples.collect() };
    store.append(Batch { series: vec![fleet], ..Batch::default() }).unwrap();
    store.append(batch("a", "loss", (0..40).map(|day| (T0 - day * DAY, day as f64, None)))).unwrap();
    store.maintain(T0).unwrap();
    store.maintain(T0 + 3 * 3_600 * model::NANOS_PER_SECOND).unwrap();
    // One file for the run, one for each of the last days.
    assert_eq!(store.status().head_points, 0);
    let run = series(&store, "a", "loss");
    assert_eq!(read(&store, run.id).len(), 40);
    let fleet_id = run.id - 1;
    let left = read(&store, fleet_id);
    assert!((30..=31).contains(&left.len()), "{} days are left", left.len());
    store.maintain(T0 + 20 * DAY).unwrap();
    let left = read(&store, fleet_id);
    assert!((10..=11).contains(&left.len()), "{} days are left", left.len());
    store.maintain(T0 + 100 * DAY).unwrap();
    assert_eq!(read(&store, run.id).len(), 40);
    assert!(store.series(fleet_id).is_none(), "a series without points is forgotten");
    assert_eq!(store.status().segments, 1);
    drop(store);
    assert_eq!(read(&open(dir.path()), run.id).len(), 40);
}

#[test]
fn a_closed_store_refuses_writes_and_serves_reads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "loss", line(0, 10))).unwrap();
    store.close();
    store.close();
    let error = store.append(batch("a", "loss", line(10, 1))).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(store.maintain(T0).is_err() || store.status().head_points == 0);
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 10);
}

#[test]
fn waiting_batches_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { waiting_batches_max: 0, ..options() }).unwrap();
    let error = store.append(batch("a", "loss", line(0, 1))).unwrap_err();
    assert!(matches!(error, store::AppendError::Busy { waiting: 0 }), "{error}");
}

#[test]
fn series_of_no_run_go_by_size_oldest_first_and_are_forgotten_with_their_last_point() {
    let dir = tempfile::tempdir().unwrap();
    let reopen = |fleet_bytes_max| {
        let options = Options { seal_points: 1, fleet_bytes_max, ..raw_only() };
        Store::open(dir.path(), options).unwrap()
    };
    let store = reopen(u64::MAX);
    for day in 0..4 {
        let series = ["always".to_owned(), format!("day-{day}")].map(|host| {
            let labels = Labels::from_pairs([("__name__", "up"), ("host", &host)]);
            let samples =
                (0..300).map(|n| model::Sample { time_ns: T0 + day * DAY + n, value: 1.0, step: None });
            SeriesBatch {
                identity: SeriesIdentity { labels, display: "up".into() },
                samples: samples.collect(),
            }
        });
        store.append(Batch { series: series.into(), ..Batch::default() }).unwrap();
        store.maintain(T0 + day * DAY).unwrap();
    }
    let hosts = |store: &Store| store.label_values("host", &[], i64::MIN, i64::MAX);
    assert_eq!(hosts(&store), ["always", "day-0", "day-1", "day-2", "day-3"]);
    let bytes: u64 = std::fs::read_dir(dir.path().join("segments"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    drop(store);
    let store = reopen(bytes / 2);
    store.maintain(T0 + 4 * DAY).unwrap();
    assert_eq!(hosts(&store), ["always", "day-2", "day-3"]);
    assert_eq!((store.status().segments, store.status().series), (2, 3));
    drop(store);
    let store = reopen(0);
    assert_eq!(hosts(&store), ["always", "day-2", "day-3"]);
    store.maintain(T0 + 4 * DAY).unwrap();
    assert_eq!((hosts(&store), store.status().series), (Vec::new(), 0));
    store.append(batch("a", "loss", line(0, 5))).unwrap();
    assert_eq!(store.status().series, 1);
}

#[test]
fn a_series_stays_known_while_a_file_that_may_hold_it_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { seal_points: 1, ..raw_only() }).unwrap();
    let labels = Labels::from_pairs([("__name__", "up"), ("host", "n1")]);
    let identity = SeriesIdentity { labels, display: "up".into() };
    for day in [0, 20] {
        let samples = (0..300).map(|n| model::Sample { time_ns: T0 + day * DAY + n, value: 1.0, step: None });
        let series = vec![SeriesBatch { identity: identity.clone(), samples: samples.collect() }];
        store.append(Batch { series, ..Batch::default() }).unwrap();
        store.maintain(T0 + day * DAY).unwrap();
    }
    drop(store);
    let segments = dir.path().join("segments");
    let mut files: Vec<_> = std::fs::read_dir(&segments).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let away = dir.path().join("away");
    std::fs::rename(&files[1], &away).unwrap();
    let store = Store::open(dir.path(), raw_only()).unwrap();
    assert_eq!(store.status().damage.len(), 1);
    store.maintain(T0 + 35 * DAY).unwrap();
    assert_eq!(store.status().segments, 0, "the older file is due");
    drop(store);
    std::fs::rename(&away, &files[1]).unwrap();
    let store = Store::open(dir.path(), raw_only()).unwrap();
    let found = store.select(&[store::Matcher::equal("host", "n1")], i64::MIN, i64::MAX);
    assert_eq!(read(&store, found[0].id).len(), 300);
}
