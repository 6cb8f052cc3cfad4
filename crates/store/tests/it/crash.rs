//! `kill -9` at any moment, and two servers on one directory.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::{LogRecord, RecordAsk, SpanAsk};
use store::{OpenError, Store};

use crate::support::*;
use crate::telemetry::{records, spans, step_span};

const DIRECTORY: &str = "STORE_TEST_DIRECTORY";
const WRITERS: u8 = 3;
const POINTS_PER_BATCH: i64 = 20;
const SPANS_PER_BATCH: u8 = 12;

/// Run again by the tests below as a process of its own, and killed; alone it does nothing.
#[test]
fn child_appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let store =
        Store::open(Path::new(&dir), store::Options { seal_points: 2_000, seal_spans: 700, ..options() })
            .unwrap();
    std::thread::scope(|scope| {
        for n in 1..=WRITERS {
            let store = store.clone();
            scope.spawn(move || append_for_ever(&store, n));
        }
        loop {
            store.maintain(T0).unwrap();
        }
    });
}

/// Says `ack WRITER SEQUENCE` after each acknowledged batch. Goes on where the series ends.
fn append_for_ever(store: &Store, n: u8) {
    let metric = format!("loss{n}");
    let known = store.run_series(path("a").id());
    let stored = known.iter().find(|s| *s.display == *metric).map_or(0, |s| s.points as i64);
    for number in stored / POINTS_PER_BATCH.. {
        let mut batch = batch("a", &metric, line(number * POINTS_PER_BATCH, POINTS_PER_BATCH));
        batch.spans = (0..SPANS_PER_BATCH).map(|at| step_span("a", u32::from(n), number, at)).collect();
        let (rank, body) = (Some(u32::from(n)), number.to_string());
        batch.records = vec![LogRecord { time_ns: T0, rank, body, ..LogRecord::default() }];
        batch.state = vec![(vec![n], Some(number.to_be_bytes().to_vec()))];
        store.append(sent(batch, writer(n), number as u64)).unwrap();
        println!("ack {n} {number}");
    }
}

fn start_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_appends_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn acknowledged_batches_survive_kill_9_and_none_is_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = [-1_i64; WRITERS as usize + 1];
    for round in 0..8 {
        let mut child = start_child(dir.path());
        let mut acks = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            // The test harness writes its own lines in between.
            let Some((_, ack)) = line.rsplit_once("ack ") else { continue };
            let (n, number) = ack.split_once(' ').unwrap();
            let last = &mut acknowledged[n.parse::<usize>().unwrap()];
            *last = (*last).max(number.parse().unwrap());
            acks += 1;
            if acks == 20 + 37 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acks >= 20 + 37 * round, "the child ended by itself after {acks} batches");
        let store = open(dir.path());
        assert_eq!(store.status().damage, Vec::<String>::new());
        for n in 1..=WRITERS {
            let samples = read(&store, series(&store, "a", &format!("loss{n}")).id);
            let whole = (0..samples.len()).map(|at| at as f64).collect::<Vec<_>>();
            assert_eq!(values(&samples), whole, "writer {n}, round {round}");
            assert!(samples.len() as i64 >= (acknowledged[n as usize] + 1) * POINTS_PER_BATCH);
            assert_eq!(samples.len() as i64 % POINTS_PER_BATCH, 0, "half a batch is there");
            // What came with the points is as durable as they are.
            let batches = samples.len() as i64 / POINTS_PER_BATCH;
            assert_eq!(store.state(&[n]).unwrap(), [(vec![n], (batches - 1).to_be_bytes().to_vec())]);
            let ranks = Some(vec![u32::from(n)]);
            let of_rank = spans(&store, &SpanAsk { ranks: ranks.clone(), ..SpanAsk::default() });
            assert_eq!(of_rank.len() as i64, batches * i64::from(SPANS_PER_BATCH));
            let lines = records(&store, &RecordAsk { ranks, ..RecordAsk::default() });
            assert_eq!(lines.len() as i64, batches);
        }
    }
}

#[test]
fn a_second_server_is_refused_with_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start_child(dir.path());
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(ready.into_iter().any(|line| line.contains("ack ")));
    let error = Store::open(dir.path(), options()).unwrap_err();
    assert!(matches!(&error, OpenError::Locked { pid, .. } if *pid == child.id().to_string()), "{error}");
    assert!(error.to_string().contains("--data-dir"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(Store::open(dir.path(), options()).is_ok());
}

#[test]
fn the_directory_is_free_when_the_last_clone_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let clone = first.clone();
    drop(first);
    assert!(matches!(Store::open(dir.path(), options()), Err(OpenError::Locked { .. })));
    drop(clone);
    open(dir.path());
}

#[test]
fn writers_at_once_share_commits_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    std::thread::scope(|scope| {
        for n in 1..=8_u8 {
            let store = store.clone();
            scope.spawn(move || {
                for number in 0..40 {
                    // All at the same times of the same series.
                    store
                        .append(sent(batch("a", "loss", line(number, 1)), writer(n), number as u64))
                        .unwrap();
                }
            });
        }
        // Reads go on meanwhile and see whole batches in order.
        let store = store.clone();
        scope.spawn(move || {
            while store.run_series(path("a").id()).first().is_none_or(|s| s.points < 320) {
                if let Some(info) = store.run_series(path("a").id()).first() {
                    assert!(read(&store, info.id).len() as u64 >= info.points);
                }
            }
        });
    });
    let samples = read(&store, series(&store, "a", "loss").id);
    assert_eq!(samples.len(), 320);
    for number in 0..40_usize {
        assert!(samples[number * 8..][..8].iter().all(|s| s.value == number as f64));
    }
    let commits = store.status().commits_total;
    assert!(commits <= 320, "{commits} commits");
    assert_eq!(store.run(path("a").id()).unwrap().sessions.len(), 8);
}
