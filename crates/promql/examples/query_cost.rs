//! Times queries over made-up GPU series in memory: `measure [GPUS] [HOURS] [STEP_SECONDS]`. Build
//! with optimisation; the source copies its chunks, as a store decodes them.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]
#![expect(clippy::expect_used, reason = "a measurement that can't go on ends")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use model::Labels;
use promql::{Chunk, Columns, Matcher, Options, Query, Select, Series, Source, SourceError, Summary, json};

/// Samples per chunk.
const CHUNK: usize = 1024;

struct Held {
    labels: Arc<Labels>,
    chunks: Vec<(Summary, Columns)>,
}

struct Memory(Vec<Held>);

struct One<'a>(&'a Held);

struct Piece<'a>(&'a (Summary, Columns));

impl Source for Memory {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        let fits =
            |held: &&Held| select.matchers.iter().all(|matcher: &Matcher| matcher.fits_series(&held.labels));
        Ok(self.0.iter().filter(fits).map(|held| Box::new(One(held)) as Box<dyn Series>).collect())
    }
}

impl Series for One<'_> {
    fn labels(&self) -> Arc<Labels> {
        self.0.labels.clone()
    }

    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let overlaps =
            |chunk: &&(Summary, Columns)| chunk.0.time_ns.0 <= to_ns && from_ns <= chunk.0.time_ns.1;
        for chunk in self.0.chunks.iter().filter(overlaps) {
            if visit(&Piece(chunk)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Chunk for Piece<'_> {
    fn summary(&self) -> Summary {
        self.0.0
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        into.times_ns.extend_from_slice(&self.0.1.times_ns);
        into.values.extend_from_slice(&self.0.1.values);
        Ok(())
    }
}

/// `value(k)` every 30 s.
fn held(pairs: &[(&str, String)], phase: i64, count: i64, value: impl Fn(i64) -> f64) -> Held {
    let labels = Labels::from_pairs(pairs.iter().map(|(name, text)| (*name, text.as_str())));
    let times: Vec<i64> = (0..count).map(|k| (k * 30_000 + phase) * 1_000_000).collect();
    let values: Vec<f64> = (0..count).map(value).collect();
    let chunks = times.chunks(CHUNK).zip(values.chunks(CHUNK)).filter_map(|(times, values)| {
        let columns = Columns { times_ns: times.to_vec(), values: values.to_vec() };
        Some((Summary::of(times, values)?, columns))
    });
    Held { labels: Arc::new(labels), chunks: chunks.collect() }
}

/// A number in 0..1 that looks random.
fn noise(seed: i64) -> f64 {
    let mut x = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 31;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 40) as f64 / (1_u64 << 24) as f64
}

fn data(gpus: i64, hours: i64) -> Memory {
    let count = hours * 120;
    let mut all = Vec::new();
    for gpu in 0..gpus {
        let host = format!("host{:03}", gpu / 8);
        let phase = gpu / 8 % 30 * 997;
        let labels = |name: &str| {
            [
                ("__name__", name.to_owned()),
                ("host", host.clone()),
                ("gpu", (gpu % 8).to_string()),
                ("uuid", format!("GPU-{gpu:08x}")),
                ("cluster", "c1".to_owned()),
                ("model", "H100".to_owned()),
            ]
        };
        let power = |k| (300.0 + 400.0 * noise(gpu * 1_000_003 + k)).round();
        all.push(held(&labels("gpu_power_watts"), phase, count, power));
        let grown = |k| (k * 3_000_000 + gpu * 17) as f64;
        all.push(held(&labels("gpu_nvlink_bytes_total"), phase, count, grown));
        let celsius = |k| (40.0 + 40.0 * noise(gpu * 7919 + k)).round();
        all.push(held(&labels("gpu_temperature_celsius"), phase, count, celsius));
        let busy = |k| (100.0 * noise(gpu * 104_729 + k)).round();
        all.push(held(&labels("gpu_utilization"), phase, count, busy));
        let ratio = |k| (noise(gpu * 15_485_863 + k) * 1e6).round() / 1e6;
        all.push(held(&labels("gpu_tensor_active_ratio"), phase, count, ratio));
    }
    for host in 0..gpus / 8 {
        for (place, le) in
            ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100", "200", "+Inf"].iter().enumerate()
        {
            let labels = [
                ("__name__", "step_seconds_bucket".to_owned()),
                ("host", format!("host{host:03}")),
                ("le", (*le).to_owned()),
            ];
            all.push(held(&labels, host % 30 * 997, count, |k| (k * (place as i64 + 1)) as f64));
        }
    }
    Memory(all)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<i64>().ok());
    let gpus = arguments.next().unwrap_or(1000);
    let hours = arguments.next().unwrap_or(24);
    let step = arguments.next().unwrap_or(60);
    let source = data(gpus, hours);
    println!("{} series, {hours} h, step {step} s", source.0.len());
    let options = Options::default();
    for text in [
        "sum by (host) (gpu_power_watts)",
        "sum by (host) (rate(gpu_nvlink_bytes_total[5m]))",
        "histogram_quantile(0.99, sum by (le) (rate(step_seconds_bucket[5m])))",
        "topk(5, gpu_temperature_celsius)",
        "avg_over_time(gpu_utilization[10m])",
        "gpu_power_watts / on (host, gpu) group_left () gpu_tensor_active_ratio",
        "max_over_time(gpu_power_watts[1h])",
        "quantile_over_time(0.9, gpu_power_watts[1h])",
    ] {
        let query = Query::parse(text).expect("a query");
        let range = (3_600_000, hours * 3_600_000, step * 1000);
        let mut best = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..3 {
            let start = Instant::now();
            let answer = query.range(&source, range, &options).expect("an answer");
            let evaluated = start.elapsed().as_secs_f64();
            let bytes = json::write_answer(&answer).expect("it fits").text.len();
            let total = start.elapsed().as_secs_f64();
            if total < best.0 {
                best = (total, evaluated, bytes);
            }
        }
        let (total, evaluated, bytes) = best;
        println!(
            "{total:7.3} s, {evaluated:7.3} s of it evaluation, {:7.2} MB JSON  {text}",
            bytes as f64 / 1e6
        );
    }
}
