//! What the map of a fleet costs: pushes the series of many cards to a server in this process and asks for them.
//!
//! `cargo run --release -p server --example fleet_cost [nodes] [hours] [seconds between looks]`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails has nothing to tell")]

use std::time::{Duration, Instant};

use model::{NANOS_PER_SECOND, Sample};
use prost::Message;
use server::{Config, Running};
use wire::push::{Node, PushRequest, Series};

const GPUS: usize = 8;

fn number(at: usize, default: i64) -> i64 {
    std::env::args().nth(at).map_or(default, |text| text.parse().unwrap())
}

/// A series of a card with a value at each of `times`.
fn series(name: &str, labels: &[(&str, &str)], times: &[i64], value: impl Fn(usize) -> f64) -> Series {
    let labels: Vec<(String, String)> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sample = |(at, time_ns): (usize, &i64)| Sample { time_ns: *time_ns, value: value(at), step: None };
    let samples: Vec<Sample> = times.iter().enumerate().map(sample).collect();
    Series::new(name, &labels, "", &samples)
}

fn push(running: &Running, node: i64, times: &[i64]) {
    let host = format!("node-{node:04}");
    let mut all = Vec::new();
    for gpu in 0..GPUS {
        let (gpu, uuid) = (gpu.to_string(), format!("GPU-{node}-{gpu}"));
        let card = [("host", host.as_str()), ("gpu", &gpu), ("uuid", &uuid)];
        let facts =
            [&card[..], &[("gpu_model", "NVIDIA H100 80GB HBM3"), ("pci_bus_id", "0000:1b:00.0")]].concat();
        let wave = |at: usize| 600.0 + ((at * 7 + gpu.len() * 13) % 97) as f64;
        all.push(series("tg_gpu_info", &facts, times, |_| 1.0));
        all.push(series("tg_gpu_power_watts", &card, times, wave));
        all.push(series("tg_gpu_power_limit_watts", &card, times, |_| 700.0));
        all.push(series("tg_gpu_sm_clock_hertz", &card, times, |at| 1.5e9 + (at % 31) as f64 * 1e6));
        all.push(series("tg_gpu_temperature_margin_celsius", &card, times, |at| 20.0 + (at % 5) as f64));
    }
    let id = u128::from(node.unsigned_abs()).to_be_bytes().to_vec();
    let about = Node { host, interval_ms: 10_000, agent_id: id.clone(), ..Node::default() };
    let request =
        PushRequest { client_id: id, sequence: 1, node: Some(about), series: all, ..PushRequest::default() };
    let url = format!("{}/api/tg/v1/push", running.url);
    let answer =
        ureq::post(&url).content_type(wire::push::CONTENT_TYPE).send(request.encode_to_vec()).unwrap();
    assert_eq!(answer.status(), 200);
}

/// Asks a question three times; the shortest and the size of the answer.
fn ask(running: &Running, path: &str) -> (Duration, usize) {
    let once = || {
        let begun = Instant::now();
        let mut answer = ureq::get(format!("{}{path}", running.url)).call().unwrap();
        let body = answer.body_mut().with_config().limit(1 << 30).read_to_vec().unwrap();
        (begun.elapsed(), body.len())
    };
    (0..3).map(|_| once()).min().unwrap()
}

fn main() {
    let (nodes, hours, seconds) = (number(1, 128), number(2, 6), number(3, 10));
    let folder = tempfile::tempdir().unwrap();
    let free = ([127, 0, 0, 1], 0).into();
    let config = Config {
        data_dir: folder.path().join("data"),
        spool_dir: folder.path().join("spool"),
        listen: free,
        otlp_grpc_listen: free,
        otlp_http_listen: free,
        own_metrics: false,
        starter_rules: false,
        ..Config::default()
    };
    let running = server::start(config).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let end = now.as_secs() as i64 * NANOS_PER_SECOND;
    let looks = hours * 3_600 / seconds;
    let times: Vec<i64> = (0..looks).rev().map(|n| end - n * seconds * NANOS_PER_SECOND).collect();
    let begun = Instant::now();
    for node in 0..nodes {
        push(&running, node, &times);
    }
    println!("{} cards, {looks} looks each, pushed in {:.1?}", nodes * GPUS as i64, begun.elapsed());
    let range = format!("from={}&to={}", (end / 1_000_000) - hours * 3_600_000, end / 1_000_000);
    for query in [
        format!("fleet/gpus?{range}"),
        format!("fleet/gpus?signal=clock_vs_peers&{range}"),
        format!("fleet/gpus?signal=temperature_margin&agg=worst&{range}"),
        format!("fleet/gpus?uuid=GPU-0-0&{range}"),
        "fleet/nodes".to_owned(),
        "incidents".to_owned(),
    ] {
        let (took, bytes) = ask(&running, &format!("/api/tg/v1/{query}"));
        println!("{took:>10.1?} {:>8} KiB  {query}", bytes >> 10);
    }
    running.stop();
}
