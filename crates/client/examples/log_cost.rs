//! What `Run::log` costs the caller: nanoseconds a call back to back, and the spread of single calls
//! while the server is unreachable.
//!
//! Run it as `cargo run --release -p client --example log_cost`; figures of another profile say
//! nothing. Points go to a spool in a temporary folder, which is removed.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::{Duration, Instant};

use client::{Config, Run};
use model::{RunPath, SessionEnd};

/// Calls of a burst, and bursts: short enough to fit between two looks of the delivery thread.
const CALLS: u32 = 10_000;
const BURSTS: usize = 50;
/// Pause between bursts, so that the queue is empty at the start of each.
const PAUSE: Duration = Duration::from_millis(150);
/// Single calls that are timed.
const SINGLE: usize = 500_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if cfg!(debug_assertions) {
        println!("not a release build: these figures say nothing");
    }
    let folder = std::env::temp_dir().join(format!("truegauge-log-cost-{}", std::process::id()));
    // Nobody listens at a port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let config = |disabled| Config {
        path: RunPath { project: "bench".into(), run: "log_cost".into(), ..RunPath::default() },
        url: Some(format!("http://127.0.0.1:{port}")),
        spool_dir: Some(folder.clone()),
        capture_system_metrics: false,
        disabled,
        ..Config::default()
    };
    let run = Run::start(config(false))?;
    let loss = run.series("loss", &[("split", "train")], "")?;
    report("log(value)", || run.log(loss, 0.5, None, None));
    let mut step = 0;
    report("log(value, step)", || {
        step += 1;
        run.log(loss, 0.5, Some(step), None);
    });
    report("log(value, step, time)", || {
        step += 1;
        run.log(loss, 0.5, Some(step), Some(step * 1_000_000));
    });
    single(|| run.log(loss, 0.5, None, None));
    let off = Run::start(config(true))?;
    report("log(value) of a disabled run", || off.log(loss, 0.5, None, None));
    run.close(SessionEnd::Finished, "", Duration::from_secs(10), &mut || false);
    let counters = run.counters();
    println!("{} logged, {} spooled, dropped: {:?}", counters.logged, counters.spooled, counters.dropped);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The best and the middle burst.
fn report(what: &str, mut call: impl FnMut()) {
    let mut costs: Vec<f64> = (0..BURSTS)
        .map(|_| {
            std::thread::sleep(PAUSE);
            let started = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            started.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("{what:32} {:7.1} ns best, {:7.1} ns median", costs[0], costs[BURSTS / 2]);
}

/// Percentiles of single calls in one tight loop, the clock's own cost included.
fn single(mut call: impl FnMut()) {
    let mut costs: Vec<u128> = (0..SINGLE)
        .map(|_| {
            let started = Instant::now();
            call();
            started.elapsed().as_nanos()
        })
        .collect();
    costs.sort_unstable();
    let at = |share: f64| costs[((SINGLE - 1) as f64 * share) as usize];
    println!(
        "single calls, server unreachable: p50 {} ns, p99 {} ns, p99.9 {} ns, max {} ns",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
