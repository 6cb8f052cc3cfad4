//! Measures the store on this machine: `cargo run --release -p store --example measure [DIR]`.
//!
//! Prints CPU per million samples on the way in, bytes per sample sealed, the time to read a series
//! of a million points, and the time to open and list ten thousand runs. DIR must be on a real disk
//! for the commits to mean anything; it defaults to a folder below the working directory.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use model::{
    AttributeValue, DEFAULT_SCALE, RunChange, RunPath, Sample, SessionEvent, SessionFacts, series_identity,
};
use rustix::time::{ClockId, clock_gettime};
use store::{Batch, Options, SeriesBatch, Store};

const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;
const MS: i64 = model::NANOS_PER_MILLI;

fn main() {
    let root = std::env::args().nth(1).map_or_else(|| PathBuf::from("measure-store"), PathBuf::from);
    training(&root.join("training"));
    scrapes(&root.join("scrapes"));
    million(&root.join("million"));
    commits(&root.join("commits"));
    runs(&root.join("runs"));
    std::fs::remove_dir_all(&root).unwrap();
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Options { reserve_bytes: 0, ..Options::default() }).unwrap()
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn path(run: usize) -> RunPath {
    RunPath { project: "measure".into(), run: format!("run-{run}"), ..RunPath::default() }
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

/// Appends `samples` of `series` series in batches of `per_batch` points a series and says the cost.
fn ingest(
    dir: &Path,
    what: &str,
    series: usize,
    per_batch: usize,
    samples: &mut dyn FnMut(usize) -> Vec<Sample>,
) {
    let store = open(dir);
    let identities: Vec<_> = (0..series)
        .map(|n| series_identity(&path(n / 50), &format!("train/metric_{}", n % 50), DEFAULT_SCALE, &[]))
        .collect();
    let mut columns: Vec<Vec<Sample>> = (0..series).map(samples).collect();
    let total: usize = columns.iter().map(Vec::len).sum();
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    while columns.iter().any(|c| !c.is_empty()) {
        let mut batch = Batch::default();
        for (identity, column) in identities.iter().zip(&mut columns) {
            let rest = column.split_off(per_batch.min(column.len()));
            let samples = std::mem::replace(column, rest);
            batch.series.push(SeriesBatch { identity: identity.clone(), samples });
        }
        store.append(batch).unwrap();
        store.maintain(T0).unwrap();
    }
    let (cpu_in, wall_in) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
    store.close();
    let cpu_all = cpu_seconds() - cpu;
    let sealed: u64 =
        std::fs::read_dir(dir.join("segments")).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    let millions = total as f64 / 1e6;
    println!(
        "{what}: {millions} M samples, {:.3} CPU-s/M appended ({:.0} samples/s wall), {:.3} CPU-s/M sealed too, {:.3} bytes/sample sealed",
        cpu_in / millions,
        total as f64 / wall_in,
        cpu_all / millions,
        sealed as f64 / total as f64,
    );
}

/// Loss curves and learning rates at about 1 Hz, times on the millisecond, every point with a step.
fn training(dir: &Path) {
    let mut noise = Noise(0x1234_5678_9abc_def1);
    ingest(dir, "training", 200, 100, &mut |n| {
        let mut time = T0;
        let point = |step: i64| {
            time += (1_000.0 + 60.0 * (noise.next() - 0.5)) as i64 * MS;
            let decay = 2.0 + 8.0 / (1.0 + step as f64 * 0.001);
            let value = match n % 4 {
                0 => f64::from((decay + 0.1 * (noise.next() - 0.5)) as f32),
                1 => 3e-4 * (1.0 - step as f64 / 10_000.0),
                2 => (noise.next() * 1_000.0).round() / 100.0,
                _ => step as f64 * 4_096.0,
            };
            Sample { time_ns: time, value, step: Some(step) }
        };
        (0..10_000).map(point).collect()
    });
}

/// Gauges each 10 s on the millisecond grid, 15 % of them late by up to 4 ms, without steps.
fn scrapes(dir: &Path) {
    let mut noise = Noise(0xfeed_5678_9abc_def1);
    ingest(dir, "scrapes on the ms grid", 200, 100, &mut |_| {
        let point = |n: i64| {
            let late = if noise.next() < 0.15 { (noise.next() * 5.0) as i64 } else { 0 };
            let value = (300.0 + 100.0 * noise.next()).round();
            Sample { time_ns: T0 + (n * 10_000 + late) * MS, value, step: None }
        };
        (0..10_000).map(point).collect()
    });
}

fn million(dir: &Path) {
    let store = open(dir);
    let identity = series_identity(&path(0), "train/loss", DEFAULT_SCALE, &[]);
    let mut noise = Noise(7);
    for part in 0..20_i64 {
        let point = |n: i64| Sample {
            time_ns: T0 + (n * 1_000 + (noise.next() * 40.0) as i64) * MS,
            value: f64::from((10.0 / (1.0 + n as f64 * 1e-4) + noise.next() * 0.1) as f32),
            step: Some(n),
        };
        let samples = (part * 50_000..(part + 1) * 50_000).map(point).collect();
        let series = vec![SeriesBatch { identity: identity.clone(), samples }];
        store.append(Batch { series, ..Batch::default() }).unwrap();
    }
    let read = |what: &str| {
        let id = store.run_series(path(0).id())[0].id;
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let (mut points, mut chunks, mut sum) = (0, 0, 0.0);
        store
            .read(id, i64::MIN, i64::MAX, &mut |chunk| {
                let samples = chunk.samples().unwrap();
                points += samples.len();
                chunks += 1;
                sum += samples.iter().map(|s| s.value).sum::<f64>();
                ControlFlow::Continue(())
            })
            .unwrap();
        let (cpu, wall) = ((cpu_seconds() - cpu) * 1e3, wall.elapsed().as_secs_f64() * 1e3);
        println!(
            "read {points} points of one series {what}: {wall:.1} ms, {cpu:.1} ms CPU, {chunks} chunks, mean {:.3}",
            sum / points as f64
        );
    };
    read("from memory");
    store.close();
    read("sealed");
}

fn commits(dir: &Path) {
    for threads in [1, 8] {
        let store = open(&dir.join(threads.to_string()));
        let before = store.status().commits_total;
        let wall = Instant::now();
        let each = 2_000 / threads;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let store = &store;
                scope.spawn(move || {
                    let identity = series_identity(&path(thread), "loss", DEFAULT_SCALE, &[]);
                    for n in 0..each as i64 {
                        let samples = vec![Sample { time_ns: T0 + n * MS, value: 1.0, step: Some(n) }];
                        let series = vec![SeriesBatch { identity: identity.clone(), samples }];
                        store.append(Batch { series, ..Batch::default() }).unwrap();
                    }
                });
            }
        });
        let seconds = wall.elapsed().as_secs_f64();
        let commits = store.status().commits_total - before;
        println!(
            "{threads} threads of one-point batches: {:.0} batches/s, {:.0} commits (fsyncs) a second",
            (each * threads) as f64 / seconds,
            commits as f64 / seconds
        );
    }
}

fn runs(dir: &Path) {
    let store = open(dir);
    for run in 0..10_000 {
        let facts = SessionFacts { host: "node-17".into(), pid: 4_711, ..SessionFacts::default() };
        let event =
            SessionEvent { time_ns: T0 + run as i64, opens: true, end: None, reason: String::new(), facts };
        let mut writer = [0; 16];
        writer[..8].copy_from_slice(&(run as u64).to_le_bytes());
        let attributes = (0..30).map(|n| (format!("config/{n}"), AttributeValue::Float(n as f64))).collect();
        let change =
            RunChange { path: path(run), session: Some((writer, event)), attributes, ..RunChange::default() };
        let series = (0..20)
            .map(|n| SeriesBatch {
                identity: series_identity(&path(run), &format!("train/metric_{n}"), DEFAULT_SCALE, &[]),
                samples: (0..5)
                    .map(|at| Sample { time_ns: T0 + at * MS, value: 0.5, step: Some(at) })
                    .collect(),
            })
            .collect();
        // Ten runs share a commit's worth of time; the point here is the opening.
        store
            .append(Batch { writer: Some((writer, 1)), change: Some(change), series, ..Batch::default() })
            .unwrap();
    }
    for closed in [false, true] {
        if closed {
            store.close();
        }
        let how = if closed { "after a clean close" } else { "with everything in the log" };
        let copy = dir.with_extension("copy");
        std::fs::create_dir_all(copy.join("segments")).unwrap();
        std::fs::copy(dir.join("catalogue.redb"), copy.join("catalogue.redb")).unwrap();
        for file in std::fs::read_dir(dir.join("segments")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join("segments").join(file.file_name())).unwrap();
        }
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let opened = open(&copy);
        let open_ms = wall.elapsed().as_secs_f64() * 1e3;
        let open_cpu_ms = (cpu_seconds() - cpu) * 1e3;
        let wall = Instant::now();
        let listed = opened.runs().len();
        let list_ms = wall.elapsed().as_secs_f64() * 1e3;
        let wall = Instant::now();
        let series = opened.run_series(path(5_000).id()).len();
        let series_ms = wall.elapsed().as_secs_f64() * 1e3;
        let status = opened.status();
        println!(
            "{listed} runs, {} series, {how}: opened in {open_ms:.0} ms ({open_cpu_ms:.0} ms CPU), listed in {list_ms:.2} ms, {series} series of one in {series_ms:.3} ms, {:.1} MB on disk, damage {:?}",
            status.series,
            status.disk_bytes as f64 / 1e6,
            status.damage
        );
        drop(opened);
        std::fs::remove_dir_all(&copy).unwrap();
    }
}
