//! What the sampler of a live run costs: CPU time a tick by thread, and memory.
//!
//! `cargo run --release -p client --example sampler_cost -- [seconds] [driver library]`. The run is kept
//! in a spool in a folder of its own, which is removed. A tick comes every second. With `--off` in place
//! of the seconds nothing is sampled, so that memory can be compared. Ranks of one run share the machine
//! out as anywhere: start several with `TRUEGAUGE_RUN` and `LOCAL_RANK` set.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use client::{Config, Run};

/// CPU time of this process's threads by name, in microseconds.
fn cpu_by_thread() -> BTreeMap<String, f64> {
    let mut costs = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
        *costs.entry(read("comm").trim().to_owned()).or_default() += ns.unwrap_or_default() / 1e3;
    }
    costs
}

/// What is resident in memory and belongs to no file, in kB.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_off = arguments.first().is_some_and(|first| first == "--off");
    let seconds = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(20);
    let folder = std::env::temp_dir().join(format!("sampler-cost-{}", std::process::id()));
    let run = Run::start(Config {
        offline: true,
        spool_dir: Some(folder.clone()),
        capture_system_metrics: !is_off,
        system_metrics_interval: Duration::ZERO,
        gpu_library: arguments.get(1).map(PathBuf::from),
        ..Config::from_env()
    })?;
    // Files are opened and series made in the first ticks.
    std::thread::sleep(Duration::from_millis(4_500));
    let before = cpu_by_thread();
    std::thread::sleep(Duration::from_secs(seconds));
    let after = cpu_by_thread();
    let mut out = std::io::stdout().lock();
    for (thread, cpu) in &after {
        let spent = (cpu - before.get(thread).copied().unwrap_or_default()) / seconds as f64;
        writeln!(out, "{thread:16} {spent:8.1} us CPU a tick")?;
    }
    writeln!(out, "{} kB resident, {} threads", resident_kb(), after.len())?;
    if let Some(report) = run.capture() {
        writeln!(out, "{} devices, {} series failed", report.devices.len(), report.failures.len())?;
    }
    run.finish();
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
