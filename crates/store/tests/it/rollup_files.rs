//! Files of roll-ups: those of earlier versions are read, damaged ones cost what is damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Labels, RollupAsk, RollupBucket, RollupParts, Sample, SeriesIdentity};
use proptest::prelude::*;
use store::{Batch, Matcher, SeriesBatch, Store};

use crate::support::*;

const SECOND: i64 = model::NANOS_PER_SECOND;
const DAY: i64 = 86_400 * SECOND;
const D0: i64 = T0.div_euclid(DAY) * DAY;

/// A counter that resets, with a gap, a value that is none and an end.
fn points() -> BTreeMap<i64, f64> {
    let point = |n: i64| (D0 + (n + 1) * 10 * SECOND + n % 4 * MS, (n * 13 % 4_000) as f64 / 8.0);
    let mut points: BTreeMap<i64, f64> = (0..2_000).filter(|n| !(700..900).contains(n)).map(point).collect();
    points.insert(D0 + 95 * SECOND, f64::from_bits(0x7ff8_0000_dead_beef));
    points.insert(D0 + 20_500 * SECOND, model::stale_marker());
    points
}

/// The files of roll-ups of a store of [`points`], and what they hold.
fn make(dir: &Path) -> (Vec<PathBuf>, Vec<RollupBucket>) {
    let options = store::Options { fleet_retention_ns: DAY, ..options() };
    let store = Store::open(dir, options).unwrap();
    let labels = Labels::from_pairs([("__name__", "x_total"), ("host", "n1")]);
    let identity = SeriesIdentity { labels, display: "x_total".into() };
    let sample = |(time_ns, value): (&i64, &f64)| Sample { time_ns: *time_ns, value: *value, step: None };
    let series = vec![SeriesBatch { identity, samples: points().iter().map(sample).collect() }];
    store.append(Batch { series, ..Batch::default() }).unwrap();
    for hour in 0..4 {
        for _ in 0..4 {
            store.maintain(D0 + 3 * DAY + hour * 3_600 * SECOND).unwrap();
        }
    }
    let buckets = minutes(&store);
    store.close();
    let files = std::fs::read_dir(dir.join("segments")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    (files, buckets)
}

fn minutes(store: &Store) -> Vec<RollupBucket> {
    let mut buckets = Vec::new();
    for found in store.select(&[Matcher::equal("host", "n1")], i64::MIN, i64::MAX) {
        let ask = RollupAsk { from_ns: D0 - DAY, to_ns: D0 + DAY, align_ns: None, parts: RollupParts::ALL };
        store.rollups(found.id, &ask, &mut buckets);
    }
    buckets
}

/// Text, since NaN is not itself.
fn text(buckets: &[RollupBucket]) -> Vec<String> {
    buckets.iter().map(|bucket| format!("{bucket:?}")).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Writes the fixtures anew when asked to; only for a new format version.
#[test]
fn fixtures_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (files, buckets) = make(dir.path());
    let [minute, quarter] = &files[..] else { panic!("{files:?}") };
    assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1_801);
    if std::env::var_os("STORE_WRITE_ROLLUPS").is_some() {
        std::fs::copy(minute, fixture("rollup-1m-v2.seg")).unwrap();
        std::fs::copy(quarter, fixture("rollup-15m-v2.seg")).unwrap();
    }
}

#[test]
fn roll_ups_of_version_2_are_read() {
    let made = tempfile::tempdir().unwrap();
    let (_, buckets) = make(made.path());
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("segments")).unwrap();
    for (number, name) in [(1, "rollup-1m-v2.seg"), (2, "rollup-15m-v2.seg")] {
        std::fs::copy(fixture(name), dir.path().join(format!("segments/{number:016x}.seg"))).unwrap();
    }
    assert_eq!(text(&minutes(&open(dir.path()))), text(&buckets));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn what_is_read_of_damaged_files_is_what_was_written(
        file in 0..2_usize, at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<bool>()
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (files, whole) = make(dir.path());
        let mut bytes = std::fs::read(&files[file]).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        std::fs::write(&files[file], bytes).unwrap();
        let store = open(dir.path());
        let minute = 60 * SECOND;
        let left = minutes(&store);
        // Where minutes are lost quarters of an hour stand for them.
        let (fine, coarse): (Vec<RollupBucket>, Vec<RollupBucket>) =
            left.iter().partition(|bucket| whole.iter().any(|b| text(&[**bucket]) == text(&[*b])));
        let samples = |buckets: &[RollupBucket]| buckets.iter().map(|bucket| bucket.count).sum::<u64>();
        for bucket in &coarse {
            let inside: Vec<RollupBucket> = whole
                .iter()
                .filter(|b| bucket.end_ns - 15 * minute < b.end_ns && b.end_ns <= bucket.end_ns)
                .copied()
                .collect();
            prop_assert_eq!(bucket.count, samples(&inside));
        }
        prop_assert!(samples(&fine) + samples(&coarse) <= samples(&whole));
        if samples(&left) < samples(&whole) {
            prop_assert!(!store.status().damage.is_empty());
        }
        for _ in 0..4 {
            store.maintain(D0 + 3 * DAY).unwrap();
        }
        prop_assert_eq!(text(&minutes(&store)), text(&left));
    }
}
