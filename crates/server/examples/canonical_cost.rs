//! What canonical series cost where samples come in: rounds of dcgm-exporter's series by remote write, then the same
//! under names that nobody knows, then an agent's push of the same number, to servers in this process. CPU time of the
//! whole process, making the bodies left out.
//!
//! `cargo run --release -p server --example canonical_cost [cards] [rounds]`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails has nothing to tell")]

use std::time::{Duration, Instant};

use model::{NANOS_PER_MILLI, Sample};
use prost::Message;
use server::{Config, Running};
use wire::push::{Node, PushRequest, Series};
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

/// Rows of a card: name, and the canonical name that an agent sends it under.
const ROWS: [(&str, &str); 8] = [
    ("DCGM_FI_DEV_POWER_USAGE", "tg_gpu_power_watts"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "tg_gpu_energy_joules_total"),
    ("DCGM_FI_DEV_SM_CLOCK", "tg_gpu_sm_clock_hertz"),
    ("DCGM_FI_DEV_GPU_TEMP", "tg_gpu_temperature_celsius"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tg_gpu_tensor_active_ratio"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "tg_gpu_dram_active_ratio"),
    ("DCGM_FI_DEV_FB_USED", "tg_gpu_memory_used_bytes"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "tg_gpu_pcie_replays_total"),
];
/// Cards of one request.
const CARDS_A_BODY: usize = 500;
const STEP_MS: i64 = 10_000;

fn number(at: usize, default: usize) -> usize {
    std::env::args().nth(at).map_or(default, |text| text.parse().unwrap())
}

/// CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn value(row: usize, round: usize) -> f64 {
    if row == 1 { 9e12 + round as f64 * 4e6 } else { 0.5 + (round % 7) as f64 / 100.0 }
}

fn remote_write(known: bool, cards: std::ops::Range<usize>, round: usize, t0_ms: i64) -> Vec<u8> {
    let mut writer = RequestWriter::new();
    let points = |row| [Point { time_ms: t0_ms + round as i64 * STEP_MS, value: value(row, round) }];
    for card in cards {
        let (gpu, host, uuid) =
            ((card % 8).to_string(), format!("node-{}", card / 8), format!("GPU-{card:08}"));
        for (row, (name, _)) in ROWS.iter().enumerate() {
            let name = if known { (*name).to_owned() } else { format!("X{name}") };
            let labels = [
                ("__name__", name.as_str()),
                ("UUID", &uuid),
                ("device", "nvidia0"),
                ("gpu", &gpu),
                ("hostname", &host),
                ("instance", &host),
                ("job", "dcgm"),
                ("modelName", "NVIDIA H100 80GB HBM3"),
            ];
            writer.series(labels, &points(row));
        }
    }
    writer.finish().unwrap()
}

fn push(node: usize, cards: std::ops::Range<usize>, round: usize, t0_ms: i64) -> Vec<u8> {
    let host = format!("agent-{node}");
    let time_ns = (t0_ms + round as i64 * STEP_MS) * NANOS_PER_MILLI;
    let mut series = Vec::new();
    for card in cards {
        for (row, (_, name)) in ROWS.iter().enumerate() {
            let labels =
                [("gpu", card.to_string()), ("host", host.clone()), ("uuid", format!("GPU-a{card:08}"))];
            let labels = labels.map(|(name, value)| (name.to_owned(), value));
            series.push(Series::new(
                name,
                &labels,
                "",
                &[Sample { time_ns, value: value(row, round), step: None }],
            ));
        }
    }
    let id = (node as u128).to_be_bytes().to_vec();
    let about = Node { host, interval_ms: 10_000, agent_id: id.clone(), ..Node::default() };
    let sequence = round as u64 + 1;
    PushRequest { client_id: id, sequence, node: Some(about), series, ..PushRequest::default() }
        .encode_to_vec()
}

fn send(running: &Running, path: &str, kind: &str, body: &[u8]) {
    let url = format!("{}{path}", running.url);
    let request = ureq::post(&url).content_type(kind);
    let request =
        if path.ends_with("write") { request.header("content-encoding", "snappy") } else { request };
    assert!(request.send(body).unwrap().status().is_success());
}

/// Sends rounds; CPU seconds a sample from the third round on, when all series are known.
fn measure(
    what: &str,
    cards: usize,
    rounds: usize,
    body: &dyn Fn(usize, std::ops::Range<usize>, usize) -> Vec<u8>,
    door: (&str, &str),
) {
    let folder = std::env::temp_dir().join(format!("truegauge-canonical-{}-{what}", std::process::id()));
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let running = server::start(Config {
        data_dir: folder.clone(),
        listen: loopback,
        otlp_grpc_listen: loopback,
        otlp_http_listen: loopback,
        adopt_spools: false,
        own_metrics: false,
        starter_rules: false,
        ..Config::default()
    })
    .unwrap();
    let (mut spent, mut took, mut samples) = (Duration::ZERO, Duration::ZERO, 0);
    for round in 0..rounds {
        let starts = (0..cards).step_by(CARDS_A_BODY).enumerate();
        let bodies: Vec<Vec<u8>> =
            starts.map(|(at, from)| body(at, from..cards.min(from + CARDS_A_BODY), round)).collect();
        let (begun, before) = (Instant::now(), cpu());
        for body in &bodies {
            send(&running, door.0, door.1, body);
        }
        if round > 2 {
            spent += cpu().saturating_sub(before);
            took += begun.elapsed();
            samples += cards * ROWS.len();
        }
    }
    let of_a_core = samples as f64 / spent.as_secs_f64();
    println!("{what}: {samples} samples, {of_a_core:.0} a CPU second, {:.1} s wall", took.as_secs_f64());
    running.stop();
    std::fs::remove_dir_all(folder).unwrap();
}

fn main() {
    let (cards, rounds) = (number(1, 8_192), number(2, 12));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let t0_ms = i64::try_from(now.as_millis()).unwrap() - rounds as i64 * STEP_MS;
    let written = ("/api/v1/write", CONTENT_TYPE);
    measure(
        "unknown names",
        cards,
        rounds,
        &|_, cards, round| remote_write(false, cards, round, t0_ms),
        written,
    );
    measure(
        "with canonical series",
        cards,
        rounds,
        &|_, cards, round| remote_write(true, cards, round, t0_ms),
        written,
    );
    let pushed = ("/api/tg/v1/push", wire::push::CONTENT_TYPE);
    measure("agents", cards, rounds, &|node, cards, round| push(node, cards, round, t0_ms), pushed);
}
