//! What one tick over GPUs costs: CPU time of all threads, and memory, with the fake driver.
//!
//! `cargo run --release -p collect --example gpu_tick_cost -- [GPUs] [ticks] [pause in ms]`. Every family is
//! on: 18 NVLinks, profiling, all fields. The driver's own part is in the numbers. The second run, in
//! which each device has one value, shows what waking a thread for each device costs.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use collect::gpu::{GpuOptions, GpuSampler};
use rustix::time::{ClockId, clock_gettime};

/// A device with all families.
const WHOLE: &str = include_str!("whole_gpu.toml");

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Memory of this process in KiB, by its name in `/proc/self/status`.
fn memory_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn scenario(gpus: usize, is_steady: bool, device: &str) -> String {
    let of = |index: usize| format!("[[gpu]]\nuuid = \"GPU-{index}\"\nname = \"Fake H100\"\n{device}\n");
    let head = format!("steady = {is_steady}\ndriver_version = \"580.95.05\"\n");
    std::iter::once(head).chain((0..gpus).map(of)).collect()
}

struct Cost {
    values: usize,
    us: Vec<f64>,
}

fn ticks(sampler: &mut GpuSampler, gpus: &[u32], ticks: usize, pause: Duration) -> Cost {
    let mut us = Vec::with_capacity(ticks);
    let mut values = 0;
    for _ in 0..ticks {
        std::thread::sleep(pause);
        values = 0;
        let before = cpu_us();
        sampler.sample(gpus, &mut |_, _| values += 1);
        us.push(cpu_us() - before);
    }
    us.sort_by(f64::total_cmp);
    Cost { values, us }
}

fn report(out: &mut impl Write, name: &str, cost: &Cost) -> std::io::Result<()> {
    let at = |share: f64| cost.us.get((cost.us.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    writeln!(
        out,
        "{name}: {} values, CPU of all threads min {:.0}  p50 {:.0}  p90 {:.0} us",
        cost.values,
        at(0.0),
        at(0.5),
        at(0.9)
    )
}

fn open(folder: &Path, scenario: &str) -> std::io::Result<GpuSampler> {
    let library = fake_nvml::install(folder, scenario)?;
    let options = GpuOptions { library: Some(library), ..GpuOptions::default() };
    GpuSampler::open(&options).map_err(|absence| std::io::Error::other(absence.to_string()))
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, many, pause) = (number(0, 8), number(1, 200), Duration::from_millis(number(2, 110) as u64));
    let gpus: Vec<u32> = (0..count as u32).collect();
    let mut out = std::io::stdout().lock();

    let folder = tempfile::tempdir()?;
    let before = memory_kib("VmRSS:");
    let mut sampler = open(folder.path(), &scenario(count, true, WHOLE))?;
    let opened = Instant::now();
    ticks(&mut sampler, &gpus, 5, pause);
    writeln!(out, "{count} GPUs, opened and warm after {:.1} s", opened.elapsed().as_secs_f64())?;
    let rss = memory_kib("VmRSS:");
    report(&mut out, "all families", &ticks(&mut sampler, &gpus, many, pause))?;
    writeln!(out, "memory: {} KiB more than before, driver included", rss.saturating_sub(before))?;
    drop(sampler);

    let folder = tempfile::tempdir()?;
    let mut sampler = open(folder.path(), &scenario(count, true, "values = { temperature = 30 }"))?;
    ticks(&mut sampler, &gpus, 5, pause);
    report(&mut out, "one value a device", &ticks(&mut sampler, &gpus, many, pause))?;
    drop(sampler);

    let folder = tempfile::tempdir()?;
    let mut sampler = open(folder.path(), &scenario(count, false, WHOLE))?;
    ticks(&mut sampler, &gpus, 5, pause);
    let calls = || std::fs::read_to_string(folder.path().join(fake_nvml::CALLS)).unwrap_or_default();
    let before = calls().lines().count();
    ticks(&mut sampler, &gpus, 6, pause);
    let per_tick = (calls().lines().count() - before) as f64 / 6.0;
    writeln!(out, "calls to the driver in a tick: {per_tick:.0}")
}
