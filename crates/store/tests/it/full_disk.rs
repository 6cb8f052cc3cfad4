//! A full disk: writes are refused, reads go on, and it ends by itself.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use model::{Labels, RollupAsk, RollupBucket, RollupParts, Sample, SeriesIdentity, SpanAsk};
use store::{AppendError, Batch, Options, SeriesBatch, Store};

use crate::support::*;
use crate::telemetry::{span_batch, spans, step_span};

/// Free bytes of the disk that holds `dir`, as `df` counts them.
fn free_bytes(store: &Store) -> u64 {
    store.status().free_bytes
}

#[test]
fn below_the_reserve_writes_are_refused_and_reads_and_deletes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "loss", line(0, 10))).unwrap();
    store.append(batch("b", "loss", line(0, 10))).unwrap();
    drop(store);
    let store = Store::open(dir.path(), Options { reserve_bytes: u64::MAX / 2, ..options() }).unwrap();
    let error = store.append(batch("a", "loss", line(10, 1))).unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    assert!(store.status().refusing.unwrap().contains("reserve"));
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 10);
    assert_eq!(store.runs().len(), 2);
    assert!(store.delete_run(path("b").id(), T0).unwrap());
    assert_eq!(store.purge_deleted(i64::MAX).unwrap(), 1);
}

const DIRECTORY: &str = "STORE_TEST_SMALL_DISK";

/// Run again by the test below inside a small file system of its own; alone it does nothing.
#[test]
fn child_fills_a_small_disk_and_recovers() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let dir = Path::new(&dir);
    // No reserve: the database itself meets the full disk.
    let store = open(&dir.join("store"));
    store.append(sent(batch("a", "loss", line(0, 1_000)), writer(1), 0)).unwrap();
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![7; free_bytes(&store) as usize / 4 * 3]).unwrap();
    let noise = |number: i64| {
        (0..2_000).map(move |n| (T0 + (number * 2_000 + n) * 1_234_567, (n * n) as f64 * 0.1, None))
    };
    let mut stored = 0;
    let error = loop {
        match store.append(sent(batch("a", "noise", noise(stored)), writer(1), stored as u64 + 1)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 10_000, "the disk never fills");
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    // The guard lets this one through, and the database meets the full disk itself: it rounds the
    // long text up to a power of two.
    let left = free_bytes(&store);
    let file = std::fs::File::options().write(true).open(&ballast).unwrap();
    file.set_len(file.metadata().unwrap().len() - (52 << 10) + left.min(52 << 10)).unwrap();
    drop(file);
    let mut long = sent(batch("a", "small", line(0, 1)), writer(2), 1);
    let text = model::AttributeValue::Text("x".repeat(40 << 10));
    long.change.as_mut().unwrap().attributes.push(("config/long".into(), text));
    for _ in 0..3 {
        store.append(sent(batch("a", "noise", noise(stored)), writer(1), stored as u64 + 1)).unwrap_err();
        assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 1_000);
        assert_eq!(store.runs().len(), 1);
        // A seal may fail as well; it must leave nothing behind and lose nothing.
        _ = store.maintain(T0 + i64::from(u32::MAX) * 1_000);
        let error = store.append(long.clone()).unwrap_err();
        assert!(matches!(error, AppendError::Full { .. }), "{error}");
    }
    assert!(store.status().refusing.is_some());
    let files = std::fs::read_dir(dir.join("store/segments")).unwrap().count() as u64;
    assert_eq!(files, store.status().segments, "a failed seal left files");
    drop(store);
    let store = open(&dir.join("store"));
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 1_000);
    store.append(long.clone()).unwrap_err();
    std::fs::remove_file(&ballast).unwrap();
    let again = store.append(sent(batch("a", "noise", noise(stored)), writer(1), stored as u64 + 1)).unwrap();
    assert!(!again.duplicate, "a refused batch was taken for stored");
    assert_eq!(store.status().refusing, None);
    assert!(!store.append(long).unwrap().duplicate);
    let check = |store: &Store| {
        assert_eq!(read(store, series(store, "a", "noise").id).len() as i64, (stored + 1) * 2_000);
        assert_eq!(read(store, series(store, "a", "loss").id).len(), 1_000);
        assert_eq!(read(store, series(store, "a", "small").id).len(), 1);
        assert_eq!(store.status().damage, Vec::<String>::new());
    };
    check(&store);
    drop(store);
    let store = open(&dir.join("store"));
    check(&store);
    store.close();
    check(&store);
}

/// Run again by a test below, as the one above.
#[test]
fn child_seals_spans_when_the_disk_has_room_again() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let dir = Path::new(&dir);
    let store = Store::open(&dir.join("store"), Options { seal_spans: 1, ..options() }).unwrap();
    let path = dir.join("ballast");
    let mut ballast = std::fs::File::create(&path).unwrap();
    let step = |iteration| (0..64).map(|rank| step_span("a", rank, iteration, 0)).collect();
    let mut stored = 0;
    while stored < 40 {
        store.append(span_batch("a", step(stored))).unwrap();
        stored += 1;
    }
    let mut size = 0;
    while ballast.write_all(&[7; 4_096]).is_ok() {
        size += 4_096;
    }
    let count = |store: &Store| spans(store, &SpanAsk::default()).len() as i64;
    let mut failures = 0;
    while let Err(error) = store.maintain(T0) {
        assert!(error.to_string().contains("store"), "{error}");
        assert_eq!(count(&store), stored * 64);
        match store.append(span_batch("a", step(stored))) {
            Ok(_) => stored += 1,
            Err(error) => assert!(matches!(error, AppendError::Full { .. }), "{error}"),
        }
        failures += 1;
        size -= 8 << 10;
        ballast.set_len(size).unwrap();
    }
    assert!(failures > 3, "the disk had room after {failures} failures");
    // What came meanwhile becomes files of its own.
    ballast.set_len(size / 2).unwrap();
    store.maintain(T0).unwrap();
    let check = |store: &Store| {
        assert_eq!(count(store), stored * 64);
        assert_eq!(store.status().damage, Vec::<String>::new());
        let files = std::fs::read_dir(dir.join("store/telemetry")).unwrap();
        let on_disk: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        let known = store.status().class_bytes.iter().find(|(class, _)| *class == "spans").unwrap().1;
        assert_eq!(on_disk, known, "files were left");
    };
    check(&store);
    assert_eq!(store.status().head_rows, 0);
    drop(store);
    let store = open(&dir.join("store"));
    check(&store);
    assert!(store.append(span_batch("a", step(stored))).is_ok());
}

/// A few hours of series of no run, two days back, in one file.
fn seal_a_past_day(dir: &Path) -> Store {
    let store = open(dir);
    let samples = |series: i64| {
        let sample = |n: i64| Sample {
            time_ns: T0 - 2 * 86_400_000 * MS + n * 10_000 * MS,
            value: ((n * n + series) as f64).sqrt(),
            step: None,
        };
        (0..2_000).map(sample).collect()
    };
    let series = |series: i64| {
        let labels = Labels::from_pairs([("__name__", "power"), ("gpu", &series.to_string())]);
        let identity = SeriesIdentity { labels, display: "power".into() };
        SeriesBatch { identity, samples: samples(series) }
    };
    store.append(Batch { series: (0..40).map(series).collect(), ..Batch::default() }).unwrap();
    store.close();
    drop(store);
    open(dir)
}

/// Every series with its samples and roll-ups.
fn everything(store: &Store) -> (Vec<Vec<Sample>>, Vec<Vec<RollupBucket>>) {
    let found = || store.select(&[], i64::MIN, i64::MAX).into_iter();
    let rolled = |id| {
        let ask = RollupAsk {
            from_ns: T0 - 3 * 86_400_000 * MS,
            to_ns: T0,
            align_ns: Some(15 * 60_000 * MS),
            parts: RollupParts::ALL,
        };
        let mut buckets = Vec::new();
        store.rollups(id, &ask, &mut buckets);
        buckets
    };
    (
        found().map(|series| read(store, series.id)).collect(),
        found().map(|series| rolled(series.id)).collect(),
    )
}

/// Run again by the test below, as the one above. The disk fails each step of it: the first file, the
/// second, what names them.
#[test]
fn child_rolls_up_when_the_disk_has_room_again() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let dir = Path::new(&dir);
    let elsewhere = tempfile::tempdir().unwrap();
    let wanted = seal_a_past_day(elsewhere.path());
    wanted.maintain(T0).unwrap();
    let wanted = everything(&wanted);
    assert!(wanted.1.iter().all(|buckets| buckets.len() > 20));
    let store = seal_a_past_day(&dir.join("store"));
    let (samples, none) = everything(&store);
    assert!(samples == wanted.0 && none.iter().all(Vec::is_empty));
    let path = dir.join("ballast");
    let mut ballast = std::fs::File::create(&path).unwrap();
    let mut size = 0;
    while ballast.write_all(&[7; 4_096]).is_ok() {
        size += 4_096;
    }
    let mut failures = 0;
    while let Err(error) = store.maintain(T0) {
        assert!(error.to_string().contains("store"), "{error}");
        assert_eq!(everything(&store).0, wanted.0);
        assert_eq!(everything(&store).1, none, "roll-ups in part");
        failures += 1;
        size -= 16 << 10;
        ballast.set_len(size).unwrap();
    }
    assert!(failures > 5, "the disk had room after {failures} failures");
    assert_eq!(everything(&store), wanted);
    let check = |store: &Store| {
        assert_eq!(everything(store), wanted);
        assert_eq!(store.status().damage, Vec::<String>::new());
        let files = std::fs::read_dir(dir.join("store/segments")).unwrap().count() as u64;
        assert_eq!(files, store.status().segments, "files were left");
    };
    check(&store);
    drop(store);
    check(&open(&dir.join("store")));
}

/// Runs a test of this program in a namespace with a file system of 24 MB; where the system allows no
/// namespaces the reserve is tested all the same, above.
#[expect(clippy::print_stderr, reason = "said where a test does nothing")]
fn on_a_small_disk(test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=24m store-test \"$STORE_TEST_SMALL_DISK\" || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, dir.path())
        .output();
    let Ok(output) = output else {
        eprintln!("no `unshare` here: the full disk is not tested");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && (output.status.code() == Some(77) || said.contains("unshare")) {
        eprintln!("no namespaces here: the full disk is not tested: {said}");
        return;
    }
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn a_store_on_a_full_disk_serves_reads_and_recovers_by_itself() {
    on_a_small_disk("full_disk::child_fills_a_small_disk_and_recovers");
}

#[test]
fn what_a_full_disk_kept_from_being_rolled_up_is_rolled_up_later() {
    on_a_small_disk("full_disk::child_rolls_up_when_the_disk_has_room_again");
}

#[test]
fn spans_that_a_full_disk_kept_from_being_sealed_are_sealed_later() {
    on_a_small_disk("full_disk::child_seals_spans_when_the_disk_has_room_again");
}
