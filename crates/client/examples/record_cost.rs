//! What a record of the trainer's eight values costs the caller: nanoseconds a call, with the run and
//! the export apart and together, while the sender is busy; and what a span costs.
//!
//! Run it as `cargo run --release -p client --example record_cost`; figures of another profile say
//! nothing. Nobody listens where it exports to, and the run's points go to a temporary folder, which is
//! removed.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::{Duration, Instant};

use client::training::{Given, Instrument, InstrumentSpec, Moment, Settings, Training};
use client::{Config, Run};
use model::RunPath;
use semconv::instruments::MEGATRON;

/// Calls that are timed one by one, and those of a row.
const SINGLE: usize = 200_000;
const ROW: u32 = 100_000;

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    if cfg!(debug_assertions) {
        println!("not a release build: these figures say nothing");
    }
    let folder = std::env::temp_dir().join(format!("truegauge-record-cost-{}", std::process::id()));
    let config = Config {
        path: RunPath { project: "bench".into(), run: "record_cost".into(), ..RunPath::default() },
        offline: true,
        spool_dir: Some(folder.clone()),
        capture_system_metrics: false,
        ..Config::default()
    };
    let run = Run::start(config)?;
    let exporting = settings()?;
    report("eight values, export", &Training::setup(exporting.clone(), None))?;
    report("eight values, run", &Training::setup(Settings::default(), Some(run.clone())))?;
    let both = Training::setup(exporting, Some(run.clone()));
    report("eight values, both", &both)?;
    report("eight values, neither", &Training::setup(Settings::default(), None))?;
    let started = Instant::now();
    for _ in 0..ROW {
        both.start("s", "megatron.train.iteration", None, &[]).end(None);
    }
    println!("span, start to end: {:.0} ns", started.elapsed().as_nanos() as f64 / f64::from(ROW));
    both.shutdown(Duration::from_secs(1), &mut || false);
    run.finish();
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Exports every 50 ms to a port where nobody listens.
fn settings() -> Result<Settings, Fault> {
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50".into()),
    ];
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
    Ok(Settings::resolve(&Given { enabled: Some(true), ..Given::default() }, &lookup)?)
}

fn report(what: &str, training: &Training) -> Result<(), Fault> {
    let mut values: Vec<(Instrument, f64)> = Vec::with_capacity(MEGATRON.len());
    for known in &MEGATRON {
        values.push((training.instrument(&InstrumentSpec::known(known))?, 1.5));
    }
    let moment = |step: i64| Moment { step: Some(step), ..Moment::default() };
    let started = Instant::now();
    for step in 0..ROW {
        training.record(&values, moment(i64::from(step)));
    }
    let row = started.elapsed().as_nanos() as f64 / f64::from(ROW);
    let mut costs: Vec<u128> = Vec::with_capacity(SINGLE);
    for step in 0..SINGLE {
        let started = Instant::now();
        training.record(&values, moment(step as i64));
        costs.push(started.elapsed().as_nanos());
        if step % 1_000 == 0 {
            // As a training does between two records; the queue of the run empties meanwhile.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    costs.sort_unstable();
    let at = |share: f64| costs[((costs.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: {row:.0} ns in a row; one by one p50 {} p99 {} p99.9 {} ns",
        at(0.5),
        at(0.99),
        at(0.999)
    );
    Ok(())
}
