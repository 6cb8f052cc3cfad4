//! What judging many small runs at once costs a server, and whether it judges them right: pushes the steps of many
//! jobs as their processes do, each once in ten seconds. In every tenth job the second rank becomes slow.
//!
//! `cargo run --release -p server --example many_runs URL [runs] [ranks] [seconds]`, with a server that is under way.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails has nothing to tell")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{NANOS_PER_MILLI, NANOS_PER_SECOND, RunPath, Sample};
use prost::Message;
use serde_json::Value;
use wire::push::{PushRequest, Run, Series, Session};

/// Steps of a delivery, and between two of a process, seconds.
const STEPS: i64 = 10;
const PERIOD: Duration = Duration::from_secs(10);
const THREADS: u32 = 4;
const EXCHANGE: f64 = 0.15;
/// The step from which the second rank of every tenth job is slow.
const SLOW_FROM: i64 = 40;

fn number(at: usize, default: u32) -> u32 {
    std::env::args().nth(at).map_or(default, |text| text.parse().unwrap())
}

fn path(run: u32) -> RunPath {
    let [organization, project, run] = ["many".to_owned(), format!("p{}", run % 50), format!("run-{run}")];
    RunPath { organization, project, run, ..RunPath::default() }
}

fn is_slow(run: u32) -> bool {
    run.is_multiple_of(10)
}

fn own(run: u32, rank: u32, step: i64) -> f64 {
    let mixed = (7_919 * i64::from(rank) + 104_729 * step + 31 * i64::from(run)) % 2_003;
    let factor = if is_slow(run) && rank == 1 && step >= SLOW_FROM { 1.5 } else { 1.0 };
    0.6 * (1.0 + (mixed as f64 / 2_003.0 - 0.5) * 0.02) * factor
}

/// What a rank tells of ten steps that end now.
fn request(run: u32, (rank, ranks): (u32, u32), sequence: u64) -> PushRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let first = (sequence as i64 - 1) * STEPS;
    let column = |value: &dyn Fn(f64, i64) -> f64| -> Vec<Sample> {
        let sample = |step: i64| {
            let longest = (0..ranks).map(|rank| own(run, rank, step)).fold(0.0, f64::max) + EXCHANGE;
            let time_ns =
                (now - (first + STEPS - 1 - step) * NANOS_PER_SECOND) / NANOS_PER_MILLI * NANOS_PER_MILLI;
            Sample { time_ns, value: value(longest, step), step: Some(step) }
        };
        (first..first + STEPS).map(sample).collect()
    };
    let label = [("rank".to_owned(), rank.to_string())];
    let series = |name: &str, samples: Vec<Sample>| Series::new(name, &label, "", &samples);
    let RunPath { organization, workspace, project, run: name } = path(run);
    let mut client_id = u128::from(run).to_be_bytes().to_vec();
    client_id[0] = rank as u8 + 1;
    PushRequest {
        client_id,
        sequence,
        run: Some(Run { organization, workspace, project, run: name }),
        session: Some(Session {
            time_ms: now / NANOS_PER_MILLI,
            event: if sequence == 1 { 1 } else { 2 },
            host: format!("host-{run}"),
            pid: 100 + rank,
            rank: Some(rank),
            world_size: Some(ranks),
            job_token: "job".into(),
            ..Session::default()
        }),
        series: vec![
            series("train_step_seconds", column(&|longest, _| longest)),
            series("train_step_wait_seconds", column(&|longest, step| longest - own(run, rank, step))),
        ],
        ..PushRequest::default()
    }
}

/// The counters of the server's page that tell of verdicts.
fn page(url: &str) -> Vec<String> {
    let text = ureq::get(format!("{url}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    text.lines().filter(|line| line.starts_with("truegauge_verdicts")).map(str::to_owned).collect()
}

fn spent(url: &str) -> f64 {
    let name = "truegauge_verdicts_cpu_seconds_total ";
    page(url).iter().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap()
}

/// Whether what is said of a run is right: its slow rank and nobody else.
fn is_right(url: &str, run: u32) -> bool {
    let url = format!("{url}/api/tg/v1/runs/{}/health", path(run).id());
    let text = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
    let health: Value = serde_json::from_str(&text).unwrap();
    let rows = health["verdicts"].as_array().unwrap();
    let is_named = |row: &Value| row["class"] == "straggler" && row["ranks"] == serde_json::json!([1]);
    let is_right = if is_slow(run) { rows.len() == 1 && is_named(&rows[0]) } else { rows.is_empty() };
    if !is_right {
        println!("run {run}: {}", health["watched"]);
        for row in rows {
            println!("  {} {}", row["class"], row["claim"]);
        }
    }
    is_right
}

fn main() {
    let url = std::env::args().nth(1).unwrap();
    let (runs, ranks, seconds) = (number(2, 5_000), number(3, 2), number(4, 120));
    let (begun, failed, late) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = u64::from(seconds) / PERIOD.as_secs();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (url, failed, late) = (&url, &failed, &late);
            scope.spawn(move || {
                let agent = ureq::Agent::new_with_defaults();
                let push = format!("{url}/api/tg/v1/push");
                for round in 0..rounds {
                    for run in (thread..runs).step_by(THREADS as usize) {
                        let due = PERIOD.mul_f64(round as f64 + f64::from(run) / f64::from(runs));
                        let behind = begun.elapsed().saturating_sub(due);
                        late.fetch_max(behind.as_millis() as u64, Ordering::Relaxed);
                        thread::sleep(due.saturating_sub(begun.elapsed()));
                        for rank in 0..ranks {
                            let body = request(run, (rank, ranks), round + 1).encode_to_vec();
                            let sent = agent.post(&push).content_type(wire::push::CONTENT_TYPE).send(body);
                            failed.fetch_add(u64::from(sent.is_err()), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        thread::sleep(PERIOD * 2);
        let (before, at) = (spent(&url), Instant::now());
        thread::sleep(PERIOD.mul_f64(rounds.saturating_sub(3).max(1) as f64));
        let percent = (spent(&url) - before) / at.elapsed().as_secs_f64() * 100.0;
        println!("verdicts take {percent:.2} % of a core");
    });
    let (failed, late) = (failed.into_inner(), late.into_inner());
    println!(
        "{} steps of {runs} runs, {failed} deliveries failed, at most {late} ms late",
        rounds as i64 * STEPS
    );
    thread::sleep(Duration::from_secs(5));
    for line in page(&url) {
        println!("{line}");
    }
    let wrong = (0..runs).filter(|run| !is_right(&url, *run)).count();
    println!("{wrong} of {runs} are judged wrong");
}
