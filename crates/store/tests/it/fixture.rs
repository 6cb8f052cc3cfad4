//! Stores written by earlier versions stay readable for ever.

use std::path::{Path, PathBuf};

use store::Store;

use crate::support::*;

fn points() -> impl Iterator<Item = (i64, f64, Option<i64>)> {
    let values = [0.5, -0.0, f64::INFINITY, f64::from_bits(0x7ff8_0000_dead_beef), 1e-300, 7.0];
    (0..300_i64).map(move |n| {
        (T0 + n * n * MS + n % 3, values[n as usize % 6], (n % 7 != 0).then_some(n - n % 11 * 5))
    })
}

/// Writes the latest version's fixture anew when asked to; only for a new format version.
#[test]
fn fixture_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("fixture", "train/loss", points())).unwrap();
    store.append(batch("fixture", "loss (val)", line(0, 40))).unwrap();
    let shared = points().map(|(time_ns, value, step)| (time_ns, value * 0.001, step));
    store.append(batch("fixture", "train/lr", shared)).unwrap();
    store.close();
    let file = std::fs::read_dir(dir.path().join("segments")).unwrap().next().unwrap().unwrap().path();
    if std::env::var_os("STORE_WRITE_FIXTURE").is_some() {
        std::fs::copy(&file, fixture("v2.seg")).unwrap();
    }
    assert!(std::fs::metadata(file).unwrap().len() > 1_000);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn assert_has_points(store: &Store, metric: &str, want: impl Iterator<Item = (i64, f64, Option<i64>)>) {
    let samples = read(store, series(store, "fixture", metric).id);
    let bits = |s: &model::Sample| (s.time_ns, s.value.to_bits(), s.step);
    let want = want.map(|(time_ns, value, step)| (time_ns, value.to_bits(), step));
    assert_eq!(samples.iter().map(bits).collect::<Vec<_>>(), want.collect::<Vec<_>>(), "{metric}");
}

fn check(name: &str) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("segments")).unwrap();
    std::fs::copy(fixture(name), dir.path().join("segments/0000000000000001.seg")).unwrap();
    let store = open(dir.path());
    assert_has_points(&store, "train/loss", points());
    assert_eq!(values(&read(&store, series(&store, "fixture", "loss (val)").id)).len(), 40);
    assert_eq!(store.run(path("fixture").id()).unwrap().path, path("fixture"));
    (dir, store)
}

/// Every chunk has its times itself.
#[test]
fn version_1_segments_are_read() {
    check("v1.seg");
}

/// Series of the same times share them.
#[test]
fn version_2_segments_are_read() {
    let (_dir, store) = check("v2.seg");
    let shared = points().map(|(time_ns, value, step)| (time_ns, value * 0.001, step));
    assert_has_points(&store, "train/lr", shared);
}
