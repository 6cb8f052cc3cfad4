//! Which points are kept, and where.

use model::{DEFAULT_SCALE, series_identity};
use store::SeriesBatch;

use crate::support::*;

#[test]
fn stored_points_are_read_back_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let receipt = store.append(sent(batch("a", "loss", line(0, 3_000)), writer(1), 1)).unwrap();
    assert_eq!((receipt.stored, receipt.attempt, receipt.duplicate), (3_000, 1, false));
    let check = |store: &store::Store| {
        let info = series(store, "a", "loss");
        assert_eq!(
            (info.points, info.last, info.last_step, info.max_step),
            (3_000, 2_999.0, Some(2_999), Some(2_999))
        );
        let samples = read(store, info.id);
        assert_eq!(values(&samples), (0..3_000).map(f64::from).collect::<Vec<_>>());
        assert_eq!(samples[7].step, Some(7));
        assert_eq!(store.runs().len(), 1);
        assert_eq!(store.run(path("a").id()).unwrap().attempts.len(), 1);
    };
    check(&store);
    drop(store);
    let store = open(dir.path());
    check(&store);
    store.close();
    check(&store);
    assert_eq!((store.status().head_points, store.status().segments), (0, 1));
    drop(store);
    check(&open(dir.path()));
}

#[test]
fn a_repeated_delivery_is_acknowledged_and_not_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let delivery = |sequence| sent(batch("a", "loss", line(sequence, 1)), writer(1), sequence as u64);
    for sequence in [1, 3, 2, 3, 1] {
        store.append(delivery(sequence)).unwrap();
    }
    drop(store);
    let store = open(dir.path());
    let again = store.append(delivery(2)).unwrap();
    assert_eq!((again.duplicate, again.stored, again.attempt), (true, 0, 1));
    assert_eq!(values(&read(&store, series(&store, "a", "loss").id)), [1.0, 2.0, 3.0]);
}

#[test]
fn points_at_one_time_take_the_next_free_nanosecond() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let at = |times: &[i64], value: f64| {
        store.append(batch("a", "loss", times.iter().map(|t| (T0 + t, value, None)))).unwrap();
    };
    at(&[0, 0, 0, 1], 1.0);
    at(&[10], 2.0);
    at(&[0, 2], 3.0);
    let samples = read(&store, series(&store, "a", "loss").id);
    let got: Vec<_> = samples.iter().map(|s| (s.time_ns - T0, s.value)).collect();
    assert_eq!(got, [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 3.0), (5, 3.0), (10, 2.0)]);
    assert!(samples.iter().all(|s| s.step.is_none()));
}

#[test]
fn same_time_points_find_their_place_among_sealed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "loss", (0..5_000).map(|n| (T0 + n, 0.0, Some(n))))).unwrap();
    store.append(batch("a", "loss", [(T0 + 1_000_000, 9.0, None)])).unwrap();
    store.close();
    drop(store);
    let store = open(dir.path());
    store.append(batch("a", "loss", (0..5_000).map(|n| (T0 + n, 1.0, Some(n))))).unwrap();
    let samples = read(&store, series(&store, "a", "loss").id);
    assert_eq!(samples.len(), 10_001);
    assert_eq!(samples[9_999].time_ns, T0 + 9_999);
    assert!(samples[..5_000].iter().all(|s| s.value == 0.0));
    assert!(samples[5_000..10_000].iter().all(|s| s.value == 1.0));
}

#[test]
fn a_tight_loop_stays_inside_its_second() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let points = |value: f64| (0..100_000).map(move |n| (T0 + n / 1_000 * MS, value, Some(n)));
    store.append(batch("a", "loss", points(1.0))).unwrap();
    store.append(batch("a", "loss", points(2.0))).unwrap();
    let info = series(&store, "a", "loss");
    assert_eq!(info.points, 200_000);
    assert!(info.time_ns.0 == T0 && info.time_ns.1 < T0 + model::NANOS_PER_SECOND);
    assert_eq!(read(&store, info.id).len(), 200_000);
}

#[test]
fn late_points_are_merged_in_order_however_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut want = Vec::new();
    let mut put = |from: i64, count: i64, step: i64| {
        let points: Vec<_> =
            (0..count).map(|n| (T0 + (from + n * step) * MS, (from + n * step) as f64, None)).collect();
        want.extend(points.iter().map(|p| p.1));
        store.append(batch("a", "loss", points)).unwrap();
    };
    put(100_000, 3_000, 10);
    store.maintain(T0).unwrap();
    put(-900_000_000, 500, 7);
    put(100_005, 2_500, 10);
    put(3, 200, 1_000);
    put(300_000, 10, 1);
    want.sort_by(f64::total_cmp);
    let all = |store: &store::Store| values(&read(store, series(store, "a", "loss").id));
    assert_eq!(all(&store), want);
    store.close();
    assert_eq!(all(&store), want);
    drop(store);
    let store = open(dir.path());
    assert_eq!(all(&store), want);
    let info = series(&store, "a", "loss");
    let range = read_range(&store, info.id, T0, T0 + 50_000 * MS);
    let inside: Vec<f64> = values(&range).into_iter().filter(|v| (0.0..=50_000.0).contains(v)).collect();
    assert_eq!(inside, (0..50).map(|n| f64::from(n) * 1_000.0 + 3.0).collect::<Vec<_>>());
}

#[test]
fn refusals_are_counted_and_the_rest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let one = |metric: &str, labels: &[(String, String)]| SeriesBatch {
        identity: series_identity(&path("a"), metric, DEFAULT_SCALE, labels),
        samples: vec![model::Sample { time_ns: T0, value: 1.0, step: None }],
    };
    let many: Vec<_> = (0..29).map(|n| (format!("l{n}"), "v".to_owned())).collect();
    let mut all = batch("a", "train/loss", [(T0, 1.0, None), (i64::MAX, 2.0, None), (i64::MIN, 2.0, None)]);
    all.series.extend([one("train_loss", &[]), one("wide", &many), one("fine", &many[..25])]);
    let receipt = store.append(all).unwrap();
    let refused: Vec<_> = receipt.refused.iter().map(|(reason, count, _)| (*reason, *count)).collect();
    assert_eq!(refused, [("time_out_of_range", 2), ("display_name_taken", 1), ("label_count", 1)]);
    assert_eq!(receipt.stored, 2);
    let names: Vec<_> = store.run_series(path("a").id()).iter().map(|s| s.display.to_string()).collect();
    assert_eq!(names, ["fine", "train/loss"]);
    // Another run is free to spell the name its own way.
    assert_eq!(store.append(batch("b", "train_loss", line(0, 1))).unwrap().refused.len(), 0);
}

#[test]
fn series_of_a_metric_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut all = batch("a", "loss", line(0, 1));
    all.series = (0..20_005)
        .map(|n| SeriesBatch {
            identity: series_identity(&path("a"), "loss", DEFAULT_SCALE, &[("n".into(), n.to_string())]),
            samples: vec![model::Sample { time_ns: T0, value: 1.0, step: None }],
        })
        .collect();
    let receipt = store.append(all.clone()).unwrap();
    assert_eq!((receipt.stored, receipt.refused[0].0, receipt.refused[0].1), (20_000, "series_limit", 5));
    drop(store);
    let store = open(dir.path());
    let receipt = store.append(all).unwrap();
    assert_eq!((receipt.stored, receipt.refused[0].1), (20_000, 5));
}

#[test]
fn writer_that_lost_thousands_of_deliveries_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let every_other = |thread: u64| (0..1_000).map(move |n| 2 * (n * 8 + thread) + 1);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for sequence in every_other(thread) {
                    let one = line(sequence as i64, 1);
                    assert!(
                        !store.append(sent(batch("a", "loss", one), writer(1), sequence)).unwrap().duplicate
                    );
                }
            });
        }
    });
    drop(store);
    let store = open(dir.path());
    for sequence in [1, 7_999, 15_999] {
        let again = store.append(sent(batch("a", "loss", line(0, 1)), writer(1), sequence)).unwrap();
        assert!(again.duplicate, "{sequence}");
    }
    assert!(!store.append(sent(batch("a", "loss", line(2, 1)), writer(1), 2)).unwrap().duplicate);
    assert_eq!(series(&store, "a", "loss").points, 8_001);
}

#[test]
fn nothing_is_acknowledged_once_the_directory_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let (dir, elsewhere) = (home.path().join("data"), home.path().join("elsewhere"));
    let store = open(&dir);
    store.append(batch("a", "loss", line(0, 1))).unwrap();
    std::fs::rename(&dir, &elsewhere).unwrap();
    for _ in 0..2 {
        let refused = store.append(batch("a", "loss", line(1, 1))).unwrap_err().to_string();
        assert!(refused.contains("was moved or removed"), "{refused}");
        assert!(store.status().refusing.unwrap().contains("was moved or removed"));
        // Another directory at its place is not the one that was opened.
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("lock"), "").unwrap();
        std::fs::write(dir.join("catalogue.redb"), "").unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&elsewhere, &dir).unwrap();
    store.append(batch("a", "loss", line(2, 1))).unwrap();
    assert_eq!(store.status().refusing, None);
    std::fs::remove_file(dir.join("catalogue.redb")).unwrap();
    store.append(batch("a", "loss", line(3, 1))).unwrap_err();
}
