//! Measures spans in the store: `cargo run --release -p store --example spans [DIR [STEPS]]`.
//!
//! 64 ranks send the spans of a training step each, as a tracer batches them: 512 a request. Prints
//! spans per CPU second from `append` to durable, sealing apart, bytes per span sealed, and the time
//! to open the store and to read one step of all ranks, a rank, and a rare name. DIR must be on a real
//! disk for the commits to mean anything; it defaults to a folder below the working directory.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use model::{AttributeValue, RunChange, RunPath, Span, SpanAsk};
use rustix::time::{ClockId, clock_gettime};
use store::{Batch, Options, Store};

const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;
const MS: i64 = model::NANOS_PER_MILLI;
const RANKS: u32 = 64;
/// Spans of a rank and step.
const SPANS: u64 = 26;
const REQUEST_SPANS: usize = 512;

fn main() {
    let root = std::env::args().nth(1).map_or_else(|| PathBuf::from("measure-spans"), PathBuf::from);
    let steps: i64 = std::env::args().nth(2).and_then(|steps| steps.parse().ok()).unwrap_or(600);
    let store = open(&root);
    fill(&store, steps);
    let status = store.status();
    let bytes = status.class_bytes.iter().find(|(class, _)| *class == "spans").unwrap().1;
    let spans = status.spans;
    println!("{spans} spans in files of {bytes} bytes: {:.1} bytes a span", bytes as f64 / spans as f64);
    drop(store);
    let began = Instant::now();
    let store = open(&root);
    println!("opened in {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let run = Some(path().id());
    let middle = steps / 2;
    let ask = |what: &str, ask: SpanAsk| {
        let (began, cpu, mut count) = (Instant::now(), cpu_seconds(), 0_u64);
        store
            .spans(&ask, &mut |_| {
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        let (wall, cpu) = (began.elapsed().as_secs_f64() * 1e3, (cpu_seconds() - cpu) * 1e3);
        println!("{what}: {count} spans in {wall:.1} ms ({cpu:.1} ms of CPU)");
    };
    for _ in 0..2 {
        ask("one step", SpanAsk { run, iterations: Some(middle..=middle), ..SpanAsk::default() });
    }
    let one = Some(vec![7]);
    ask("a rank's step", SpanAsk { run, iterations: Some(9..=9), ranks: one.clone(), ..SpanAsk::default() });
    let step = Some(7..=7);
    let mut trace = None;
    let of_step = SpanAsk { run, iterations: step, ranks: one.clone(), ..SpanAsk::default() };
    store
        .spans(&of_step, &mut |span| {
            trace = Some(span.trace);
            ControlFlow::Break(())
        })
        .unwrap();
    ask("a trace", SpanAsk { run, trace, ..SpanAsk::default() });
    let time_ns = T0 + middle * 1_000 * MS..=T0 + (middle + 2) * 1_000 * MS;
    ask("two seconds", SpanAsk { run, time_ns, ..SpanAsk::default() });
    ask("a rare name", SpanAsk { run, names: Some(vec!["save_checkpoint".into()]), ..SpanAsk::default() });
    ask("a rank, all of it", SpanAsk { run, ranks: one, ..SpanAsk::default() });
    ask("everything", SpanAsk { run, ..SpanAsk::default() });
    println!("peak memory {} MiB", peak_kib() / 1_024);
    std::fs::remove_dir_all(&root).unwrap();
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Options { reserve_bytes: 0, ..Options::default() }).unwrap()
}

fn path() -> RunPath {
    RunPath { project: "measure".into(), run: "spans".into(), ..RunPath::default() }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// A cheap source of noise.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn fill(store: &Store, steps: i64) {
    let mut noise = Noise(88_172_645_463_325_252);
    let mut waiting: Vec<Vec<Span>> = vec![Vec::new(); RANKS as usize];
    let (mut appending, mut sealing, mut count, mut requests) = (0.0, 0.0, 0_u64, 0_u64);
    for step in 1..=steps {
        for rank in 0..RANKS {
            let spans = &mut waiting[rank as usize];
            step_spans(&mut noise, rank, step, spans);
            if spans.len() >= REQUEST_SPANS || step == steps {
                let spans = std::mem::take(spans);
                count += spans.len() as u64;
                requests += 1;
                let changes = vec![RunChange { path: path(), ..RunChange::default() }];
                let batch = Batch { changes, spans, ..Batch::default() };
                let cpu = cpu_seconds();
                store.append(batch).unwrap();
                appending += cpu_seconds() - cpu;
            }
        }
        let cpu = cpu_seconds();
        store.maintain(T0 + step * 1_000 * MS).unwrap();
        sealing += cpu_seconds() - cpu;
    }
    let cpu = cpu_seconds();
    store.close();
    sealing += cpu_seconds() - cpu;
    println!(
        "{requests} requests, {:.0} spans per CPU second until durable; sealing {:.0}; together {:.0}",
        count as f64 / appending,
        count as f64 / sealing,
        count as f64 / (appending + sealing)
    );
}

/// What a rank does in one step: a root, passes with their parts, the optimizer, and now and then a
/// checkpoint.
fn step_spans(noise: &mut Noise, rank: u32, step: i64, into: &mut Vec<Span>) {
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&noise.next().to_le_bytes());
    trace[8..].copy_from_slice(&noise.next().to_le_bytes());
    let start_ns = T0 + step * 1_000 * MS + (noise.next() % 3_000_000) as i64;
    let names = ["forward_step", "backward_step", "all_reduce", "optimizer_step", "data_loading"];
    let mut root = [0; 8];
    let mut before = [0; 8];
    let last = if step % 500 == 0 { SPANS + 1 } else { SPANS };
    for n in 0..last {
        let id = noise.next().to_le_bytes();
        let (name, parent, offset, length) = match n {
            0 => ("train_step", None, 0, 950_000_000),
            SPANS => ("save_checkpoint", Some(root), 900_000_000, 40_000_000),
            n if n % 3 == 0 => {
                (names[n as usize % 5], Some(before), n as i64 * 35_000_000 + 2_000, 9_000_000)
            }
            n => (names[n as usize % 5], Some(root), n as i64 * 35_000_000, 30_000_000),
        };
        if n == 0 {
            root = id;
        }
        before = id;
        let start_ns = start_ns + offset + (noise.next() % 400_000) as i64;
        let mut attributes = vec![
            ("dl.iteration".to_owned(), AttributeValue::Int(step)),
            ("nv.dl.rank".to_owned(), AttributeValue::Int(i64::from(rank))),
        ];
        if n % 5 == 1 {
            attributes.push(("dl.microbatch_id".to_owned(), AttributeValue::Int(n as i64 / 5)));
        }
        into.push(Span {
            run: Some(path().id()),
            instance: format!("spans-rank{rank}"),
            incarnation: (rank + 1).wrapping_mul(0x9e37_79b9),
            rank: Some(rank),
            host: format!("node{:03}", rank / 8),
            trace,
            id,
            parent,
            name: name.to_owned(),
            scope: "nemo.lens".to_owned(),
            kind: 1,
            start_ns,
            end_ns: start_ns + length + (noise.next() % 2_000_000) as i64,
            iteration: Some(step),
            attributes,
            ..Span::default()
        });
    }
}
