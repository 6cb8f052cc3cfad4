//! Measures the store with a machine room's data:
//! `cargo run --release -p store --example engine [GPUS] [HOURS] [DIR]`.
//!
//! GPUs with 14 metrics on hosts of eight, histograms of 12 buckets a host, each 30 s and 15 % of
//! them late by up to 4 ms, sent in requests of about 10,000 samples as remote write does; a run of
//! 10 training metrics at about 1 Hz per 50 GPUs. Series go by number after the first tick, or are
//! named each time when `ENGINE_NAMES` is set. Prints CPU seconds per million samples on the way
//! in, bytes per sample, peak memory, and what selecting, reading and reopening cost. 1,000 GPUs and
//! 24 hours are 61 million samples; the default is a tenth of the GPUs for six hours.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::{DEFAULT_SCALE, Labels, RunPath, Sample, SeriesIdentity, series_identity};
use rustix::time::{ClockId, clock_gettime};
use store::{Batch, Collision, Found, MatchOp, Matcher, Options, SeriesBatch, SeriesId, Store};

const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;
const MS: i64 = model::NANOS_PER_MILLI;
const TICK_MS: i64 = 30_000;
const REQUEST_SAMPLES: usize = 10_000;
const GPU_METRICS: [&str; 14] = [
    "gpu_power_watts",
    "gpu_utilization",
    "gpu_temperature_celsius",
    "gpu_memory_used_bytes",
    "gpu_energy_millijoules_total",
    "gpu_nvlink_bytes_total",
    "gpu_tensor_active_ratio",
    "gpu_sm_clock_mhz",
    "gpu_pcie_rx_bytes_total",
    "gpu_pcie_tx_bytes_total",
    "gpu_fan_percent",
    "gpu_memory_temperature_celsius",
    "gpu_xid_errors_total",
    "gpu_fp16_active_ratio",
];
const BUCKETS: usize = 12;

fn main() {
    let argument = |n: usize| std::env::args().nth(n);
    let gpus: usize = argument(1).map_or(100, |text| text.parse().unwrap());
    let hours: i64 = argument(2).map_or(6, |text| text.parse().unwrap());
    let dir = argument(3).map_or_else(|| PathBuf::from("measure-engine"), PathBuf::from);
    let store = open(&dir);
    let mut room = Room::new(gpus);
    ingest(&store, &mut room, hours);
    let end = T0 + hours * 3_600_000 * MS;
    queries(&store, end);
    backup(&store, &dir);
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
    Store::open(dir, Options { reserve_bytes: 0, ..Options::default() }).unwrap()
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
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1_024
}

/// A cheap source of noise between 0 and 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One series that is scraped, and its value.
struct Scraped {
    identity: SeriesIdentity,
    /// Known after the first tick, as a door that keeps what it has seen knows it.
    number: Option<SeriesId>,
    host: usize,
    metric: usize,
    value: f64,
}

struct Training {
    identity: SeriesIdentity,
    time_ms: i64,
    step: i64,
}

struct Room {
    noise: Noise,
    scraped: Vec<Scraped>,
    training: Vec<Training>,
}

impl Room {
    fn new(gpus: usize) -> Self {
        let mut scraped = Vec::new();
        let identity = |pairs: &[(&str, &str)]| {
            let labels = Labels::from_pairs(pairs.iter().copied());
            SeriesIdentity { display: labels.metric().to_owned(), labels }
        };
        for gpu in 0..gpus {
            let host = format!("node-{:04}", gpu / 8);
            let (index, uuid) = ((gpu % 8).to_string(), format!("GPU-{gpu:08x}-4a5b-9c8d"));
            let instance = format!("{host}:9400");
            for (metric, name) in GPU_METRICS.into_iter().enumerate() {
                let identity = identity(&[
                    ("__name__", name),
                    ("cluster", "main"),
                    ("gpu", &index),
                    ("host", &host),
                    ("instance", &instance),
                    ("job", "gpu"),
                    ("model", "H200"),
                    ("uuid", &uuid),
                ]);
                scraped.push(Scraped { identity, number: None, host: gpu / 8, metric, value: 0.0 });
            }
        }
        for host in 0..gpus.div_ceil(8) {
            for bucket in 0..BUCKETS {
                let le = if bucket + 1 == BUCKETS { "+Inf".to_owned() } else { format!("{}", 1 << bucket) };
                let name = format!("node-{host:04}");
                let identity = identity(&[
                    ("__name__", "request_seconds_bucket"),
                    ("host", &name),
                    ("job", "serve"),
                    ("le", &le),
                ]);
                scraped.push(Scraped {
                    identity,
                    number: None,
                    host,
                    metric: GPU_METRICS.len() + bucket,
                    value: 0.0,
                });
            }
        }
        scraped.sort_by_key(|series| series.host);
        let mut training = Vec::new();
        for run in 0..gpus.div_ceil(50) {
            let path = RunPath { project: "llm".into(), run: format!("run-{run}"), ..RunPath::default() };
            for metric in 0..10 {
                let identity = series_identity(&path, &format!("train/metric_{metric}"), DEFAULT_SCALE, &[]);
                training.push(Training { identity, time_ms: 0, step: 0 });
            }
        }
        Self { noise: Noise(0x1234_5678_9abc_def1), scraped, training }
    }

    fn series(&self) -> usize {
        self.scraped.len() + self.training.len()
    }

    /// What one tick brings, in requests.
    fn tick(&mut self, tick: i64) -> Vec<Batch> {
        let noise = &mut self.noise;
        let mut batches = Vec::new();
        let mut batch = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
        let (mut host, mut late) = (usize::MAX, 0);
        for one in &mut self.scraped {
            if one.host != host {
                host = one.host;
                late = if noise.next() < 0.15 { (noise.next() * 5.0) as i64 } else { 0 };
            }
            let time_ms = tick * TICK_MS + (host as i64 * 7_919) % TICK_MS + late;
            let sample = Sample { time_ns: T0 + time_ms * MS, value: one.next(noise), step: None };
            match one.number {
                Some(number) => batch.points.push((number, sample)),
                None => {
                    batch.series.push(SeriesBatch { identity: one.identity.clone(), samples: vec![sample] });
                }
            }
            if batch.series.len() + batch.points.len() == REQUEST_SAMPLES {
                let next = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
                batches.push(std::mem::replace(&mut batch, next));
            }
        }
        batches.push(batch);
        let mut series = Vec::new();
        for one in &mut self.training {
            let mut samples = Vec::new();
            while one.time_ms < (tick + 1) * TICK_MS {
                let decay = 2.0 + 8.0 / (1.0 + one.step as f64 * 0.001);
                let value = f64::from((decay + 0.1 * (noise.next() - 0.5)) as f32);
                samples.push(Sample { time_ns: T0 + one.time_ms * MS, value, step: Some(one.step) });
                one.time_ms += (1_000.0 + 60.0 * (noise.next() - 0.5)) as i64;
                one.step += 1;
            }
            series.push(SeriesBatch { identity: one.identity.clone(), samples });
        }
        batches.push(Batch { series, ..Batch::default() });
        batches
    }
}

impl Scraped {
    fn next(&mut self, noise: &mut Noise) -> f64 {
        let n = noise.next();
        self.value = match self.metric {
            0 => ((400.0 + 250.0 * n) * 1e3).round() / 1e3,
            1 | 10 => (100.0 * n).round(),
            2 | 11 => (60.0 + 20.0 * n).round(),
            3 => self.value + if n < 0.05 { (n * 1e9).round() * 4_096.0 } else { 0.0 },
            4 => self.value + (15_000_000.0 + 4_000_000.0 * n).round(),
            5 => self.value + (n * 3e12).round(),
            8 | 9 => self.value + (n * 1e6).round() * 128.0,
            6 | 13 => (n * 1e6).round() / 1e6,
            7 => 1_980.0 - 15.0 * (n * 4.0).floor(),
            12 => self.value + f64::from(u8::from(n < 1e-4)),
            bucket => self.value + (n * bucket as f64).floor(),
        };
        self.value
    }
}

fn ingest(store: &Store, room: &mut Room, hours: i64) {
    let by_number = std::env::var_os("ENGINE_NAMES").is_none();
    let (mut samples, mut cpu, mut wall) = (0, 0.0, 0.0);
    for tick in 0..hours * 3_600_000 / TICK_MS {
        let batches = room.tick(tick);
        let cost = Cost::start();
        for batch in batches {
            samples += store.append(batch).unwrap().stored;
        }
        store.maintain(T0 + (tick + 1) * TICK_MS * MS).unwrap();
        if by_number && tick == 0 {
            for one in &mut room.scraped {
                one.number = store.series_number(&one.identity);
            }
        }
        cpu += cost.cpu();
        wall += cost.1.elapsed().as_secs_f64();
    }
    let millions = samples as f64 / 1e6;
    println!(
        "ingest: {} series, {millions:.2} M samples, {:.3} CPU-s/M with seals and merges, {:.0} samples/s, peak memory {} MB",
        room.series(),
        cpu / millions,
        samples as f64 / wall,
        peak_mb()
    );
}

fn sizes(store: &Store, dir: &Path) {
    let segments = std::fs::read_dir(dir.join("segments")).unwrap().map(|file| file.unwrap());
    let bytes: u64 = segments.map(|file| file.metadata().unwrap().len()).sum();
    let mut samples = 0;
    for found in store.select(&[], i64::MIN, i64::MAX) {
        samples += store.series(found.id).map_or(0, |info| info.points);
    }
    let status = store.status();
    println!(
        "sealed: {} segments, {:.3} bytes/sample in them, {:.3} with the catalogue",
        status.segments,
        bytes as f64 / samples as f64,
        status.disk_bytes as f64 / samples as f64
    );
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
