//! A machine room as numbers: what its GPUs, inference engines and training runs would have reported.
//!
//! The same seed gives the same data to the bit. GPUs sit eight to a host; a host is scraped each
//! interval with a phase of its own, 15 % of the times late by up to 4 ms. Counters, decimals and idle
//! spells are those of the real things: power with three decimals, energy in whole millijoules, a
//! clock that falls in steps of 15 MHz, f32 losses, a step about each second.

use std::f64::consts::PI;

/// Midnight of 2026-11-28, UTC, in milliseconds.
pub(crate) const START_MS: i64 = 1_795_824_000_000;
pub(crate) const GPU_METRICS: [&str; 14] = [
    "gpu_utilization",
    "gpu_mem_copy_utilization",
    "gpu_fb_used_bytes",
    "gpu_fb_free_bytes",
    "gpu_power_watts",
    "gpu_energy_millijoules_total",
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_sm_clock_mhz",
    "gpu_mem_clock_mhz",
    "gpu_pcie_tx_bytes_total",
    "gpu_pcie_rx_bytes_total",
    "gpu_nvlink_bytes_total",
    "gpu_tensor_active_ratio",
];
pub(crate) const TRAINING_METRICS: [&str; 10] = [
    "train_loss",
    "train_grad_norm",
    "train_lr",
    "train_tokens_per_second",
    "train_mfu",
    "train_step_seconds",
    "train_epoch",
    "train_tokens_total",
    "train_mem_allocated_gib",
    "train_step",
];
pub(crate) const LATENCY_METRIC: &str = "inference_latency_seconds_bucket";
pub(crate) const LATENCY_BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
/// Which part of the requests falls between a bound and the one before.
const LATENCY_SHARES: [f64; 12] = [0.01, 0.02, 0.08, 0.15, 0.22, 0.25, 0.15, 0.07, 0.03, 0.01, 0.005, 0.005];
const GPUS_PER_HOST: usize = 8;
const TOKENS_PER_STEP: f64 = 4_194_304.0;
const MIB: f64 = 1_048_576.0;

/// What a series is, in Prometheus' words.
pub(crate) struct Described {
    pub(crate) metric: &'static str,
    /// All labels but the metric's name, in order of name.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// The run it belongs to, if it is one of training.
    pub(crate) run: Option<usize>,
}

/// One sample: place of its series in [`Room::series`], time, value, and the step in a run.
pub(crate) struct Told {
    pub(crate) series: usize,
    pub(crate) time_ms: i64,
    pub(crate) value: f64,
    pub(crate) step: Option<i64>,
}

pub(crate) struct Room {
    pub(crate) series: Vec<Described>,
    interval_s: i64,
    /// Of the jitter of scrapes.
    noise: Noise,
    /// When in the interval each host is scraped.
    phases_ms: Vec<i64>,
    gpus: Vec<Gpu>,
    engines: Vec<Engine>,
    runs: Vec<Run>,
}

impl Room {
    pub(crate) fn new(gpus: usize, runs: usize, interval_s: i64) -> Self {
        let hosts = gpus.div_ceil(GPUS_PER_HOST);
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
        let gpus: Vec<Gpu> = (0..gpus).map(|n| Gpu::new(n, noise.fork())).collect();
        let engines = (0..hosts).map(|_| Engine { noise: noise.fork(), counts: [0.0; 12] }).collect();
        let runs: Vec<Run> = (0..runs).map(|_| Run::new(noise.fork())).collect();
        let phase = |_| noise.below(interval_s as u64 * 1_000) as i64;
        let phases_ms = (0..hosts.max(1)).map(phase).collect();
        let series = describe(gpus.len(), hosts, runs.len());
        Self { series, interval_s, noise, phases_ms, gpus, engines, runs }
    }

    /// What one interval brings, in order of series; of a run several steps, all metrics of each.
    pub(crate) fn tick(&mut self, tick: i64, tell: &mut dyn FnMut(Told)) {
        let start_ms = START_MS + tick * self.interval_s * 1_000;
        let mut series = 0;
        let mut time_ms = 0;
        for (n, gpu) in self.gpus.iter_mut().enumerate() {
            if n % GPUS_PER_HOST == 0 {
                let late_ms = if self.noise.below(100) < 15 { self.noise.below(5) as i64 } else { 0 };
                time_ms = start_ms + self.phases_ms[n / GPUS_PER_HOST] + late_ms;
            }
            for value in gpu.next(self.interval_s) {
                tell(Told { series, time_ms, value, step: None });
                series += 1;
            }
        }
        for (engine, phase_ms) in self.engines.iter_mut().zip(&self.phases_ms) {
            for value in engine.next() {
                tell(Told { series, time_ms: start_ms + phase_ms, value, step: None });
                series += 1;
            }
        }
        let end_s = ((tick + 1) * self.interval_s) as f64;
        for run in &mut self.runs {
            while run.seconds < end_s {
                let (values, step) = run.next();
                let time_ms = START_MS + (run.seconds * 1_000.0) as i64;
                for (n, value) in values.into_iter().enumerate() {
                    tell(Told { series: series + n, time_ms, value, step: Some(step) });
                }
            }
            series += TRAINING_METRICS.len();
        }
    }
}

fn describe(gpus: usize, hosts: usize, runs: usize) -> Vec<Described> {
    let mut series = Vec::new();
    for gpu in 0..gpus {
        let host = gpu / GPUS_PER_HOST;
        for metric in GPU_METRICS {
            let labels = vec![
                ("cluster", "lab-a".to_owned()),
                ("gpu", (gpu % GPUS_PER_HOST).to_string()),
                ("host", format!("node-{host:04}")),
                ("instance", format!("10.0.{}.{}:9400", host / 250, host % 250)),
                ("job", "dcgm".to_owned()),
                ("model", "NVIDIA H200".to_owned()),
                ("uuid", format!("GPU-{:08x}-1c2d-4e5f", (gpu as u32).wrapping_mul(2_654_435_761))),
            ];
            series.push(Described { metric, labels, run: None });
        }
    }
    for host in 0..hosts {
        for bound in LATENCY_BOUNDS {
            let labels = vec![
                ("cluster", "lab-a".to_owned()),
                ("host", format!("node-{host:04}")),
                ("job", "vllm".to_owned()),
                ("le", bound.to_owned()),
            ];
            series.push(Described { metric: LATENCY_METRIC, labels, run: None });
        }
    }
    for run in 0..runs {
        for metric in TRAINING_METRICS {
            let labels = vec![
                ("experiment", format!("exp-{}", run / 5)),
                ("job", "train".to_owned()),
                ("project", "llm".to_owned()),
                ("run", format!("run-{:06x}", run * 7_919 + 4_242)),
            ];
            series.push(Described { metric, labels, run: Some(run) });
        }
    }
    series
}

/// A cheap source of noise (xorshift64*).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn fork(&mut self) -> Self {
        Self(self.next() | 1)
    }

    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with a deviation of 1.
    fn normal(&mut self) -> f64 {
        (self.unit() + self.unit() + self.unit() + self.unit() - 2.0) * 1.732
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

struct Gpu {
    noise: Noise,
    busy: bool,
    /// Until it may change between busy and idle.
    left_s: i64,
    used_mib: f64,
    celsius: f64,
    memory_celsius: f64,
    energy_mj: f64,
    pcie_tx: f64,
    pcie_rx: f64,
    nvlink: f64,
}

impl Gpu {
    fn new(n: usize, noise: Noise) -> Self {
        Self {
            noise,
            busy: !n.is_multiple_of(10),
            left_s: 3_600 + n as i64 * 37 % 7_200,
            used_mib: 70_000.0,
            celsius: 55.0,
            memory_celsius: 65.0,
            energy_mj: 1e12 + n as f64 * 1e9,
            pcie_tx: 1e13,
            pcie_rx: 2e13,
            nvlink: 1e15,
        }
    }

    fn next(&mut self, interval_s: i64) -> [f64; 14] {
        self.change_job(interval_s);
        let (noise, busy, seconds) = (&mut self.noise, self.busy, interval_s as f64);
        let dips = noise.below(60) == 0;
        let utilization = match (busy, dips) {
            (false, _) => 0.0,
            (true, true) => noise.below(60) as f64,
            (true, false) => (99.0 + noise.normal() * 1.2).round().clamp(0.0, 100.0),
        };
        if busy && noise.below(40) == 0 {
            self.used_mib += noise.below(64) as f64 - 32.0;
        }
        let active = utilization / 100.0;
        let watts = if busy {
            610.0 * (0.35 + 0.65 * utilization / 100.0) + noise.normal() * 18.0
        } else {
            74.0 + noise.normal() * 0.6
        };
        let watts = (watts * 1_000.0).round() / 1_000.0;
        let target = if busy { 62.0 } else { 31.0 };
        self.celsius += (target - self.celsius) * 0.1 + noise.normal() * 0.5;
        self.memory_celsius += (target + 9.0 - self.memory_celsius) * 0.1 + noise.normal() * 0.5;
        let sm_mhz = match busy {
            false => 345.0,
            true if noise.below(5) == 0 => 1_980.0 - 15.0 * noise.below(12) as f64,
            true => 1_980.0,
        };
        self.energy_mj += (watts * seconds * 1_000.0).round();
        let mut moved =
            |mean: f64, spread: f64| (active * seconds * (mean + noise.normal() * spread)).max(0.0).round();
        self.pcie_tx += moved(2.1e9, 2e8);
        self.pcie_rx += moved(3.4e9, 3e8);
        self.nvlink += moved(1.9e11, 9e9);
        let tensor = if busy { (0.47 * active + noise.normal() * 0.02).max(0.0) } else { 0.0 };
        let copying = if busy { (38.0 * active + noise.normal() * 3.0).round().max(0.0) } else { 0.0 };
        [
            utilization,
            copying,
            self.used_mib * MIB,
            (143_771.0 - self.used_mib) * MIB,
            watts,
            self.energy_mj,
            self.celsius.round(),
            self.memory_celsius.round(),
            sm_mhz,
            2_619.0,
            self.pcie_tx,
            self.pcie_rx,
            self.nvlink,
            (tensor * 1e6).round() / 1e6,
        ]
    }

    fn change_job(&mut self, interval_s: i64) {
        self.left_s -= interval_s;
        if self.left_s > 0 {
            return;
        }
        self.busy = !self.busy || self.noise.below(4) != 0;
        self.left_s = 1_800 + self.noise.below(10_800) as i64;
        self.used_mib = if self.busy { 60_000.0 + self.noise.below(75_000) as f64 } else { 2.0 };
    }
}

/// An inference engine and its latencies, cumulative over bounds and over time.
struct Engine {
    noise: Noise,
    counts: [f64; 12],
}

impl Engine {
    fn next(&mut self) -> [f64; 12] {
        let requests = (200 + self.noise.below(300)) as f64;
        let mut below = 0.0;
        for (count, share) in self.counts.iter_mut().zip(LATENCY_SHARES) {
            below += share * requests * (1.0 + 0.1 * self.noise.normal());
            *count += below.trunc();
        }
        self.counts
    }
}

struct Run {
    noise: Noise,
    seconds: f64,
    step: i64,
    gradient_norm: f64,
    tokens: f64,
}

impl Run {
    fn new(noise: Noise) -> Self {
        Self { noise, seconds: 0.0, step: 0, gradient_norm: 1.0, tokens: 0.0 }
    }

    fn next(&mut self) -> ([f64; 10], i64) {
        let noise = &mut self.noise;
        let spread = noise.normal() * 0.02;
        let stall = if noise.below(500) == 0 { 3.0 } else { 0.0 };
        let seconds = (1.0 + spread + stall).max(0.5);
        self.seconds += seconds;
        self.step += 1;
        let step = self.step as f64;
        let target = 1.8 + 8.7 * (-(step / 4_000.0)).exp() + 3.0 / (1.0 + step / 2_000.0);
        let loss = target + noise.normal() * 0.05;
        let calm = self.gradient_norm * 0.9 + 0.1 * (0.4 + noise.unit() * 0.3);
        self.gradient_norm = calm + if noise.below(800) == 0 { 2.0 } else { 0.0 };
        let rate = if step < 2_000.0 {
            3e-4 * step / 2_000.0
        } else {
            3e-5 + 0.5 * (3e-4 - 3e-5) * (1.0 + (PI * (step - 2_000.0) / 100_000.0).cos())
        };
        self.tokens += TOKENS_PER_STEP;
        let single = |value: f64| f64::from(value as f32);
        let values = [
            single(loss),
            single(self.gradient_norm),
            rate,
            single(TOKENS_PER_STEP / seconds),
            single(0.42 / seconds),
            (seconds * 1e6).round() / 1e6,
            step * TOKENS_PER_STEP / 1.5e13,
            self.tokens,
            71.25 + noise.below(8) as f64 * 0.015_625,
            step,
        ];
        (values, self.step)
    }
}
