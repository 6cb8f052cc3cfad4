//! Measures roll-ups with a machine room's data:
//! `cargo run --release -p store --example rollups [GPUS] [DAYS] [SECONDS] [DIR]`.
//!
//! The data are those of `engine/room.rs` without its runs, a sample of each series every so many
//! seconds. Prints what making roll-ups costs, what they take on disk beside the samples, and what
//! reading all days takes in buckets of 15 minutes, in minutes, and sample by sample. The default is
//! 8 GPUs for 30 days at 10 s: 32 million samples.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

#[path = "engine/room.rs"]
#[expect(dead_code, reason = "the room has more than is asked for here")]
mod room;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use model::{Labels, RollupAsk, RollupParts, Sample, SeriesIdentity};
use room::{Described, Room};
use rustix::time::{ClockId, clock_gettime};
use store::{Batch, Collision, Found, Options, SeriesBatch, Store};

const MS: i64 = model::NANOS_PER_MILLI;
const T0: i64 = room::START_MS * MS;
const MINUTE: i64 = 60_000 * MS;
const DAY: i64 = 1_440 * MINUTE;
const BATCH_SAMPLES: usize = 10_000;

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let gpus: usize = argument(1).map_or(8, |text| text.parse().unwrap());
    let days: i64 = argument(2).map_or(30, |text| text.parse().unwrap());
    let seconds: i64 = argument(3).map_or(10, |text| text.parse().unwrap());
    let dir = argument(4).map_or_else(|| PathBuf::from("measure-rollups"), PathBuf::from);
    let options = || Options { reserve_bytes: 0, fleet_retention_ns: 400 * DAY, ..Options::default() };
    let store = Store::open(&dir, options()).unwrap();
    let samples = fill(&store, gpus, days, seconds);
    sizes(&store, samples);
    let end = T0 + days * DAY;
    let found = store.select(&[], T0, end);
    read(&store, &found, end);
    let growth = RollupParts::FIRST | RollupParts::LAST | RollupParts::FALLS;
    for (of, parts) in [("all", RollupParts::ALL), ("growth", growth), ("extremes", RollupParts::EXTREMES)] {
        roll_ups(&store, &found, end, (&format!("{of} of 15 minutes"), 15 * MINUTE), parts);
        roll_ups(&store, &found, end, (&format!("{of} of minutes"), MINUTE), parts);
    }
    drop(store);
    open_again(&dir, options());
    std::fs::remove_dir_all(&dir).unwrap();
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn identity(series: &Described) -> SeriesIdentity {
    let labels = series.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let labels = Labels::from_pairs(labels.chain([("__name__", series.metric)]));
    SeriesIdentity { display: series.metric.to_owned(), labels }
}

/// Feeds all days and lets each rest; says what rolling them up took.
fn fill(store: &Store, gpus: usize, days: i64, seconds: i64) -> u64 {
    let mut room = Room::new(gpus, 0, seconds);
    let first = room.series.iter().map(|one| SeriesBatch { identity: identity(one), samples: Vec::new() });
    let first: Vec<SeriesBatch> = first.collect();
    let mut numbers: Option<Vec<u64>> = None;
    let mut points = Vec::new();
    let (mut samples, mut taking, mut making) = (0, 0.0, 0.0);
    for tick in 0..days * 86_400 / seconds {
        let mut told = Vec::new();
        room.tick(tick, &mut |one| {
            told.push((one.series, Sample { time_ns: one.time_ms * MS, value: one.value, step: None }));
        });
        let before = cpu_seconds();
        if let Some(numbers) = &numbers {
            points.extend(told.iter().map(|(at, sample)| (numbers[*at], *sample)));
        } else {
            let mut series = first.clone();
            for (at, sample) in told {
                series[at].samples.push(sample);
            }
            let batch = Batch { series, collision: Collision::LastWriteWins, ..Batch::default() };
            samples += store.append(batch).unwrap().stored;
            numbers = first.iter().map(|one| store.series_number(&one.identity)).collect();
        }
        if points.len() >= BATCH_SAMPLES {
            let points = std::mem::take(&mut points);
            let batch = Batch { points, collision: Collision::LastWriteWins, ..Batch::default() };
            samples += store.append(batch).unwrap().stored;
        }
        let now = T0 + (tick + 1) * seconds * 1_000 * MS;
        if now % MINUTE == 0 {
            let before = (cpu_seconds(), rolled_bytes(store));
            store.maintain(now).unwrap();
            if rolled_bytes(store) != before.1 {
                making += cpu_seconds() - before.0;
            }
        }
        taking += cpu_seconds() - before;
    }
    let batch = Batch { points, collision: Collision::LastWriteWins, ..Batch::default() };
    samples += store.append(batch).unwrap().stored;
    for minute in 0..6 * 60 {
        let before = (cpu_seconds(), rolled_bytes(store));
        store.maintain(T0 + days * DAY + minute * MINUTE).unwrap();
        if rolled_bytes(store) != before.1 {
            making += cpu_seconds() - before.0;
        }
    }
    let millions = samples as f64 / 1e6;
    println!(
        "{} series, {millions:.2} M samples: {:.3} CPU-s/M in all, {:.3} CPU-s/M for making and merging roll-ups",
        first.len(),
        taking / millions,
        making / millions
    );
    samples
}

fn rolled_bytes(store: &Store) -> u64 {
    let bytes = store.status().class_bytes;
    bytes.iter().filter(|(class, _)| class.starts_with("rollup")).map(|(_, bytes)| bytes).sum()
}

fn sizes(store: &Store, samples: u64) {
    let status = store.status();
    for (class, bytes) in &status.class_bytes {
        println!("{class}: {bytes} bytes, {:.3} a sample", *bytes as f64 / samples as f64);
    }
    println!("{} segments, damage {:?}", status.segments, status.damage);
}

fn read(store: &Store, found: &[Found], end: i64) {
    let before = cpu_seconds();
    let (mut times, mut values, mut points) = (Vec::new(), Vec::new(), 0);
    for one in found {
        times.clear();
        values.clear();
        let mut take = |block: &store::Block<'_>| {
            block.columns(&mut times, &mut values).unwrap();
            ControlFlow::Continue(())
        };
        store.scan(one.id, T0, end, &mut take).unwrap();
        points += times.len();
    }
    println!("read samples: {points}, {:.3} s CPU", cpu_seconds() - before);
}

fn roll_ups(store: &Store, found: &[Found], end: i64, (what, width): (&str, i64), parts: RollupParts) {
    let before = cpu_seconds();
    let (mut buckets, mut count, mut behind) = (Vec::new(), 0, 0);
    for one in found {
        buckets.clear();
        let ask = RollupAsk { from_ns: T0, to_ns: end, align_ns: Some(width), parts };
        let rolled = store.rollups(one.id, &ask, &mut buckets);
        count += buckets.len();
        behind += usize::from(rolled.raw_from_ns <= T0);
    }
    println!("read {what}: {count}, {:.3} s CPU; {behind} series have none", cpu_seconds() - before);
}

fn open_again(dir: &Path, options: Options) {
    let before = cpu_seconds();
    let store = Store::open(dir, options).unwrap();
    println!("reopen: {:.3} s CPU, {} segments", cpu_seconds() - before, store.status().segments);
}
