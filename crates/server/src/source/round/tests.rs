//! What rules of a round are answered against what the store answers once everything is stored.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use model::{Sample, SeriesIdentity, stale_marker};
use promql::{Options, Query};
use store::{Batch, Collision, SeriesBatch};

use super::*;
use crate::otlp::Streams;

const NOW_MS: i64 = 1_800_000_000_000;
const QUERIES: [&str; 16] = [
    "watts",
    "watts{host=\"n1\"}",
    "watts{host!=\"n1\",gpu=\"\"}",
    "rate(joules_total[5m])",
    "count_over_time(joules_total[5m]) - 1 - resets(joules_total[5m])",
    "sum by (host) (watts) * on (host) group_left (place) site",
    "max_over_time(watts[1h])",
    "watts offset 1m",
    "avg_over_time((watts > bool 5)[5m:15s])",
    "bucket{le=\"1\"}",
    "{__name__=~\"watts|site\"}",
    "last_over_time(recorded[5m])",
    "recorded",
    "absent(recorded{host=\"n1\"})",
    "timestamp(recorded)",
    "quantile_over_time(0.5, watts[10m])",
];

fn open(dir: &Path) -> Store {
    let store = Store::open(dir, store::Options { reserve_bytes: 0, ..store::Options::default() }).unwrap();
    for host in ["n0", "n1", "n2"] {
        let cards = if host == "n2" { vec![""] } else { vec!["0", "1"] };
        for gpu in cards {
            let labels = [("host", host), ("gpu", gpu)];
            append(&store, "watts", &labels, |at| if at == 7 { stale_marker() } else { at as f64 % 11.0 });
            append(&store, "joules_total", &labels, |at| at as f64 % 40.0 * 300.0);
        }
        append(&store, "recorded", &[("host", host)], |at| at as f64);
    }
    append(&store, "site", &[("host", "n1"), ("place", "hall")], |_| 1.0);
    append(&store, "bucket", &[("le", "1.0")], |at| at as f64);
    store
}

/// A sample every 5 seconds, the last one 5 seconds ago.
fn append(store: &Store, name: &str, labels: &[(&str, &str)], value: impl Fn(i64) -> f64) {
    let samples = (0..200).map(|at| {
        let time_ns = (NOW_MS - (200 - at) * 5_000) * NANOS_PER_MILLI;
        Sample { time_ns, value: value(at), step: None }
    });
    add(store, labels_of(name, labels), samples.collect());
}

fn labels_of(name: &str, labels: &[(&str, &str)]) -> Labels {
    let named = labels.iter().copied().chain([(METRIC_NAME, name)]);
    Labels::from_pairs(named)
}

fn add(store: &Store, labels: Labels, samples: Vec<Sample>) {
    let display = labels.metric().to_owned();
    let series = vec![SeriesBatch { identity: SeriesIdentity { labels, display }, samples }];
    store.append(Batch { series, collision: Collision::LastWriteWins, ..Batch::default() }).unwrap();
}

fn write(name: &str, labels: &[(&str, &str)], value: f64) -> Write {
    Write { labels: labels_of(name, labels), time_ms: NOW_MS, value }
}

fn settle(store: &Store, kept: &Kept) {
    for (labels, (time_ns, value)) in kept.take_pending() {
        add(store, (*labels).clone(), vec![Sample { time_ns, value, step: None }]);
    }
}

fn answers(source: &dyn Source) -> Vec<String> {
    let ask = |text: &&str| {
        let answer = Query::parse(text).unwrap().instant(source, NOW_MS, &Options::default()).unwrap();
        format!("{text}: {:?}", answer.data)
    };
    QUERIES.iter().map(ask).collect()
}

/// What a round answers, asked twice, and how often it had to store what was pending.
fn of_round(store: &Store, kept: &Kept) -> (Vec<String>, usize) {
    let flushed = AtomicUsize::new(0);
    let flush = || {
        flushed.fetch_add(1, Ordering::Relaxed);
        settle(store, kept);
    };
    let streams = Streams::default();
    kept.begin(NOW_MS);
    let round = Round::new(StoreSource { store, streams: &streams }, kept, &flush);
    let first = answers(&round);
    assert_eq!(first, answers(&round), "asked again");
    (first, flushed.load(Ordering::Relaxed))
}

fn of_store(store: &Store) -> Vec<String> {
    answers(&StoreSource { store, streams: &Streams::default() })
}

#[test]
fn a_round_answers_as_the_store_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for memory in [u64::MAX, 0] {
        let kept = Kept::new(Memory::new(memory));
        let (found, flushed) = of_round(&store, &kept);
        assert_eq!(found, of_store(&store));
        assert_eq!(flushed, 0);
    }
}

#[test]
fn what_rules_write_is_seen_as_if_it_were_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kept = Kept::new(Memory::default());
    // Everything is known before rules write.
    of_round(&store, &kept);
    kept.write(vec![
        write("recorded", &[("host", "n0")], 7.5),
        write("recorded", &[("host", "n1")], stale_marker()),
        write("recorded", &[("host", "new")], 1.0),
        write("bucket", &[("le", "1")], 3.0),
        write("other", &[], 3.0),
    ]);
    let (found, flushed) = of_round(&store, &kept);
    assert_eq!(flushed, 0, "nothing of that is asked for over long");
    assert_eq!(kept.lock().pending.values().map(HashMap::len).sum::<usize>(), 5);
    settle(&store, &kept);
    assert_eq!(found, of_store(&store));
    // A rule that is evaluated anew writes another value at the same time.
    kept.write(vec![write("recorded", &[("host", "n0")], 8.5)]);
    let (found, _) = of_round(&store, &kept);
    settle(&store, &kept);
    assert_eq!(found, of_store(&store));
}

#[test]
fn what_only_the_store_can_tell_is_stored_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kept = Kept::new(Memory::default());
    of_round(&store, &kept);
    kept.write(vec![write("watts", &[("host", "n0"), ("gpu", "0")], 900.0)]);
    let (found, flushed) = of_round(&store, &kept);
    assert_eq!(flushed, 1, "an hour of it is asked for");
    assert_eq!(found, of_store(&store));
    let long = "x".repeat(2_000);
    kept.write(vec![write("recorded", &[("host", &long)], 1.0)]);
    let (_, flushed) = of_round(&store, &kept);
    assert_eq!(flushed, 1, "whether that is kept is the store's to say");
}

#[test]
fn what_is_kept_is_counted_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let memory = Memory::default();
    let kept = Kept::new(memory.clone());
    of_round(&store, &kept);
    let all = memory.taken();
    assert!(all > 15 * 60 * 16, "{all} bytes");
    kept.end();
    let labels = memory.taken();
    assert!(labels > 0 && labels < all, "{labels} of {all} bytes");
    kept.begin(NOW_MS + LABELS_UNREAD_MS + 1);
    kept.end();
    assert_eq!(memory.taken(), 0);
}
