//! Measures the store with a machine room's data:
//! `cargo run --release -p store --example engine [GPUS] [HOURS] [DIR]`.
//!
//! The data are those of `room.rs`: GPUs with 14 metrics on hosts of eight and histograms of 12 buckets
//! a host, each 30 s, sent in requests of about 10,000 samples as remote write does; a run of 10 training
//! metrics with steps at about 1 Hz per 50 GPUs. Series go by number after the first tick, or are named
//! each time when `ENGINE_NAMES` is set. Prints CPU seconds per million samples on the way in, bytes per
//! sample as they lie after a day's end and by metric, peak memory, and what selecting, reading and
//! reopening cost. 1,000 GPUs and 24 hours are 61.8 million samples of 15,700 series; the default is a
//! tenth of the GPUs for six hours.
//!
//! With `ENGINE_PAST` the hours are over already and come as fast as they are taken, while a round of
//! upkeep is made each second, as a server makes it.
//!
//! With `ENGINE_CRASH` it measures instead how long a store opens that was left by a crash, and with
//! `ENGINE_UNSEALED` as well how long when nothing but the bound on memory made it seal.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

mod bytes;
mod room;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::{DEFAULT_SCALE, Labels, RunPath, Sample, SeriesIdentity, series_identity};
use room::{Described, Room};
use rustix::time::{ClockId, clock_gettime};
use store::{Batch, Collision, Found, MatchOp, Matcher, Options, SeriesBatch, SeriesId, Store};

const MS: i64 = model::NANOS_PER_MILLI;
const T0: i64 = room::START_MS * MS;
const HOUR: i64 = 3_600_000 * MS;
/// Now, for hours that are over.
const PAST_NOW: i64 = T0 + 72 * HOUR;
const TICK_S: i64 = 30;
const REQUEST_SAMPLES: usize = 10_000;

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let gpus: usize = argument(1).map_or(100, |text| text.parse().unwrap());
    let hours: i64 = argument(2).map_or(6, |text| text.parse().unwrap());
    let dir = argument(3).map_or_else(|| PathBuf::from("measure-engine"), PathBuf::from);
    let end = T0 + hours * HOUR;
    let store = open(&dir);
    if std::env::var_os("ENGINE_CRASH").is_some() {
        return crash(store, &dir, gpus, hours);
    }
    let mut senders = Senders::new(gpus);
    ingest(&store, &mut senders, hours);
    queries(&store, end);
    backup(&store, &dir);
    settle(&store, &dir, if is_past() { PAST_NOW } else { end });
    let cost = Cost::start();
    store.close();
    println!("close: {}", cost.text());
    sizes(&store, &dir);
    queries(&store, end);
    drop(store);
    let cost = Cost::start();
    let store = open(&dir);
    println!("reopen with {} series: {}", store.status().series, cost.text());
    println!("peak memory {} MB, damage {:?}", peak_mb(), store.status().damage);
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn open(dir: &Path) -> Store {
    let mut options = Options { reserve_bytes: 0, ..Options::default() };
    if std::env::var_os("ENGINE_UNSEALED").is_some() {
        (options.seal_points, options.seal_age_ns) = (u64::MAX, i64::MAX);
    }
    Store::open(dir, options).unwrap()
}

/// Runs itself as a process that ends as by `kill -9`, or is that process; then opens what it left.
fn crash(store: Store, dir: &Path, gpus: usize, hours: i64) {
    if std::env::var_os("ENGINE_CRASHES").is_some() {
        ingest(&store, &mut Senders::new(gpus), hours);
        std::process::abort();
    }
    drop(store);
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(std::env::args().skip(1)).env("ENGINE_CRASHES", "1").status().unwrap();
    let log = std::fs::metadata(dir.join("catalogue.redb")).unwrap().len() >> 20;
    let cost = Cost::start();
    let store = open(dir);
    let status = store.status();
    println!(
        "open after a crash: {}; {} points of {} series in a log of {log} MB, {} segments, peak memory {} MB",
        cost.text(),
        status.head_points,
        status.series,
        status.segments,
        peak_mb()
    );
    drop(store);
    std::fs::remove_dir_all(dir).unwrap();
}

fn is_past() -> bool {
    std::env::var_os("ENGINE_PAST").is_some()
}

/// CPU and wall time since it was started.
struct Cost(f64, Instant);

impl Cost {
    fn start() -> Self {
        Self(cpu_seconds(), Instant::now())
    }

    fn cpu(&self) -> f64 {
        cpu_seconds() - self.0
    }

    fn text(&self) -> String {
        format!("{:.3} s CPU, {:.3} s", self.cpu(), self.1.elapsed().as_secs_f64())
    }
}

fn cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1_024
}

/// The room with what its senders know of each series.
struct Senders {
    room: Room,
    identities: Vec<SeriesIdentity>,
    /// Known after the first tick, as a door that keeps what it has seen knows it.
    numbers: Option<Vec<SeriesId>>,
}

impl Senders {
    fn new(gpus: usize) -> Self {
        let room = Room::new(gpus, gpus.div_ceil(50), TICK_S);
        let identities = room.series.iter().map(identity).collect();
        Self { room, identities, numbers: None }
    }

    /// What one tick brings, in requests.
    fn tick(&mut self, tick: i64) -> Vec<Batch> {
        let Self { room, identities, numbers } = self;
        let scraped = room.series.iter().take_while(|series| series.run.is_none()).count();
        let mut told: Vec<(usize, Sample)> = Vec::new();
        room.tick(tick, &mut |one| {
            let sample = Sample { time_ns: one.time_ms * MS, value: one.value, step: one.step };
            told.push((one.series, sample));
        });
        let split = told.partition_point(|(series, _)| *series < scraped);
        let mut batches = Vec::new();
        let requests = told[..split].chunks(REQUEST_SAMPLES).map(|part| (part, Collision::LastWriteWins));
        let steps = told[split..].chunks(REQUEST_SAMPLES).map(|part| (part, Collision::NextFreeNanosecond));
        for (part, collision) in requests.chain(steps) {
            let mut batch = Batch { collision, ..Batch::default() };
            if let Some(numbers) = numbers {
                batch.points = part.iter().map(|(at, sample)| (numbers[*at], *sample)).collect();
            } else {
                let named = |(at, sample): &(usize, Sample)| SeriesBatch {
                    identity: identities[*at].clone(),
                    samples: vec![*sample],
                };
                batch.series = part.iter().map(named).collect();
            }
            batches.push(batch);
        }
        batches
    }
}

fn identity(series: &Described) -> SeriesIdentity {
    let labels = series.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let label =
        |wanted: &str| labels.clone().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value);
    if series.run.is_some() {
        let (project, run) = (label("project").to_owned(), label("run").to_owned());
        let path = RunPath { project, run, ..RunPath::default() };
        return series_identity(&path, series.metric, DEFAULT_SCALE, &[]);
    }
    let labels = Labels::from_pairs(labels.chain([("__name__", series.metric)]));
    SeriesIdentity { display: series.metric.to_owned(), labels }
}

fn ingest(store: &Store, senders: &mut Senders, hours: i64) {
    let by_number = std::env::var_os("ENGINE_NAMES").is_none();
    let past = is_past();
    let (all, mut making, mut samples) = (Cost::start(), 0.0, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if past {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_secs(1));
                    store.maintain(PAST_NOW).unwrap();
                }
            });
        }
        for tick in 0..hours * 3_600 / TICK_S {
            let before = thread_seconds();
            let batches = senders.tick(tick);
            making += thread_seconds() - before;
            for batch in batches {
                samples += store.append(batch).unwrap().stored;
            }
            if !past {
                store.maintain(T0 + (tick + 1) * TICK_S * 1_000 * MS).unwrap();
            }
            if by_number && tick == 0 {
                let known = senders.identities.iter().map(|identity| store.series_number(identity));
                senders.numbers = known.collect();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let millions = samples as f64 / 1e6;
    println!(
        "ingest: {} series, {millions:.2} M samples, {:.3} CPU-s/M with seals and merges, {:.0} samples/s, peak memory {} MB",
        senders.identities.len(),
        (all.cpu() - making) / millions,
        samples as f64 / all.1.elapsed().as_secs_f64(),
        peak_mb()
    );
}

/// Lets the night pass: what a server does by itself once the day is over.
fn settle(store: &Store, dir: &Path, end: i64) {
    let files = || std::fs::read_dir(dir.join("segments")).unwrap().count();
    println!("before the day's end: {} segments, {} points in memory", files(), store.status().head_points);
    let cost = Cost::start();
    for minute in 0..5 * 60 {
        store.maintain(end + minute * HOUR / 60).unwrap();
    }
    println!("five quiet hours: {} segments, {}", files(), cost.text());
}

fn sizes(store: &Store, dir: &Path) {
    let folder = dir.join("segments");
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap());
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    let mut samples = 0;
    let mut metrics = HashMap::new();
    for found in store.select(&[], i64::MIN, i64::MAX) {
        let Some(info) = store.series(found.id) else { continue };
        samples += info.points;
        metrics.insert(found.id, info.display.to_string());
    }
    let status = store.status();
    println!(
        "sealed: {} segments, {:.3} bytes/sample in them, {:.3} with the catalogue",
        status.segments,
        bytes as f64 / samples as f64,
        status.disk_bytes as f64 / samples as f64
    );
    bytes::print(&folder, &metrics);
}

fn queries(store: &Store, end: i64) {
    let select = |what: &str, matchers: &[Matcher<'_>]| -> Vec<Found> {
        let cost = Cost::start();
        let found = store.select(matchers, T0, end);
        println!("select {what}: {} series, {}", found.len(), cost.text());
        found
    };
    let name = Matcher::equal("__name__", "gpu_power_watts");
    let power = select("one metric", &[name]);
    let hosts = (0..50).map(|n| format!("node-{:04}", n * 2)).collect::<Vec<_>>().join("|");
    let name = Matcher::equal("__name__", "gpu_power_watts");
    let listed = Matcher::new("host", MatchOp::Regex, &hosts, |text| hosts.split('|').any(|h| h == text));
    select("one metric, 50 hosts listed", &[name, listed]);
    let ends = |text: &str| text.ends_with('7');
    select("a pattern on every host", &[Matcher::new("host", MatchOp::Regex, ".*7", ends)]);
    let all = select("everything", &[]);
    read(store, "one metric", &power, end);
    read(store, "everything", &all, end);
    let cost = Cost::start();
    let values = store.label_values("host", &[], T0, end).len();
    println!("label values: {values}, {}", cost.text());
    let cost = Cost::start();
    let found = store.cardinality(10);
    println!("cardinality: {} series, {} pairs, {}", found.series, found.label_pairs, cost.text());
}

/// Reads all points as a query does: two threads, buffers reused.
fn read(store: &Store, what: &str, found: &[Found], end: i64) {
    let (points, at) = (AtomicU64::new(0), AtomicU64::new(0));
    let cost = Cost::start();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut times, mut values) = (Vec::new(), Vec::new());
                while let Some(one) = found.get(at.fetch_add(1, Ordering::Relaxed) as usize) {
                    times.clear();
                    values.clear();
                    let mut take = |block: &store::Block<'_>| {
                        block.columns(&mut times, &mut values).unwrap();
                        ControlFlow::Continue(())
                    };
                    store.scan(one.id, T0, end, &mut take).unwrap();
                    points.fetch_add(times.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let points = points.into_inner();
    println!(
        "read {what}: {points} points, {}, {:.1} ns CPU a point",
        cost.text(),
        cost.cpu() * 1e9 / points as f64
    );
}

fn backup(store: &Store, dir: &Path) {
    let cost = Cost::start();
    let backup = store.backup(&dir.join("backup"));
    match backup {
        Ok(backup) => println!("backup: {backup:?}, {}", cost.text()),
        Err(error) => println!("backup: {error}"),
    }
}
