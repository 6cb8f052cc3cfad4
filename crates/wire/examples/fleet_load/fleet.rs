//! A made-up GPU fleet, the same at every run: what its exporters say at each scrape.

use wire::remote_write::Point;

/// Time of the first scrape, milliseconds: a Saturday's midnight.
pub(crate) const START_MS: i64 = 1_795_824_000_000;
/// GPUs of one host.
const GPUS_PER_HOST: usize = 8;
/// Series of one GPU.
pub(crate) const SERIES_PER_GPU: usize = GPU_METRICS.len();

const GPU_METRICS: [&str; 14] = [
    "gpu_utilization",
    "gpu_memory_copy_utilization",
    "gpu_memory_used_bytes",
    "gpu_memory_free_bytes",
    "gpu_power_watts",
    "gpu_energy_millijoules_total",
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_sm_clock_mhz",
    "gpu_memory_clock_mhz",
    "gpu_pcie_tx_bytes_total",
    "gpu_pcie_rx_bytes_total",
    "gpu_nvlink_bytes_total",
    "gpu_tensor_active_ratio",
];

const TRAINING_METRICS: [&str; 10] = [
    "train_loss",
    "train_grad_norm",
    "train_learning_rate",
    "train_tokens_per_second",
    "train_mfu_ratio",
    "train_step_seconds",
    "train_epoch",
    "train_tokens_total",
    "train_memory_gib",
    "train_step",
];

/// Bounds of the latency histogram, and the part of the requests that ends between each and the last.
const BUCKETS: [(&str, f64); 12] = [
    ("0.005", 0.01),
    ("0.01", 0.02),
    ("0.025", 0.08),
    ("0.05", 0.15),
    ("0.1", 0.22),
    ("0.25", 0.25),
    ("0.5", 0.15),
    ("1", 0.07),
    ("2.5", 0.03),
    ("5", 0.01),
    ("10", 0.005),
    ("+Inf", 0.005),
];

/// Bytes of a GPU's memory.
const MEMORY_MIB: f64 = 143_771.0;
const MIB: f64 = 1_048_576.0;
const TOKENS_PER_STEP: f64 = 4_194_304.0;

/// Numbers that look random (xorshift).
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn of(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From 0 up to 1.
    fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with a deviation of 1.
    fn normal(&mut self) -> f64 {
        (0..4).map(|_| self.part()).sum::<f64>().mul_add(1.732, -3.464)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.bits() >> 20) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

fn rounded(value: f64, decimals: i32) -> f64 {
    let unit = 10_f64.powi(decimals);
    (value * unit).round() / unit
}

/// A GPU that jobs come to and leave.
struct Gpu {
    chance: Chance,
    busy: bool,
    /// Until its job changes.
    left_seconds: i64,
    used_mib: f64,
    celsius: [f64; 2],
    energy_mj: f64,
    /// PCIe out, PCIe in, NVLink.
    bytes: [f64; 3],
}

impl Gpu {
    fn new(number: usize) -> Self {
        Self {
            chance: Chance::of(number),
            busy: number % 10 != 3,
            left_seconds: 3_600 + number as i64 * 37 % 7_200,
            used_mib: 70_000.0,
            celsius: [55.0, 65.0],
            energy_mj: 1e12 + number as f64 * 1e9,
            bytes: [1e13, 2e13, 1e15],
        }
    }

    fn next(&mut self, interval: i64) -> [f64; SERIES_PER_GPU] {
        let chance = &mut self.chance;
        self.left_seconds -= interval;
        if self.left_seconds <= 0 {
            self.busy = !self.busy || !chance.one_in(4);
            self.left_seconds = 1_800 + chance.below(10_800) as i64;
            self.used_mib = if self.busy { 60_000.0 + chance.below(75_000) as f64 } else { 2.0 };
        }
        let (busy, seconds) = (self.busy, interval as f64);
        let utilization = match (busy, chance.one_in(60)) {
            (false, _) => 0.0,
            (true, true) => chance.below(60) as f64,
            (true, false) => chance.normal().mul_add(1.2, 99.0).round().clamp(0.0, 100.0),
        };
        if busy && chance.one_in(40) {
            self.used_mib += chance.below(64) as f64 - 32.0;
        }
        let load = utilization / 100.0;
        let watts = if busy {
            chance.normal().mul_add(18.0, 610.0 * (0.35 + 0.65 * load))
        } else {
            chance.normal().mul_add(0.6, 74.0)
        };
        let watts = rounded(watts, 3);
        self.energy_mj += (watts * seconds * 1e3).round();
        for (celsius, idle) in self.celsius.iter_mut().zip([31.0, 40.0]) {
            let toward = if busy { idle + 31.0 } else { idle };
            *celsius += (toward - *celsius) * 0.1 + chance.normal() * 0.5;
        }
        for (bytes, (rate, spread)) in self.bytes.iter_mut().zip([(2.1e9, 2e8), (3.4e9, 3e8), (1.9e11, 9e9)])
        {
            *bytes += (load * seconds * chance.normal().mul_add(spread, rate)).max(0.0).round();
        }
        let throttled = busy && chance.one_in(5);
        let clock = if throttled { 1_980.0 - 15.0 * chance.below(12) as f64 } else { 1_980.0 };
        let copying = chance.normal().mul_add(3.0, 38.0 * load).round().max(0.0);
        let tensor = rounded(chance.normal().mul_add(0.02, 0.47 * load).max(0.0), 6);
        [
            utilization,
            if busy { copying } else { 0.0 },
            self.used_mib * MIB,
            (MEMORY_MIB - self.used_mib) * MIB,
            watts,
            self.energy_mj,
            self.celsius[0].round(),
            self.celsius[1].round(),
            if busy { clock } else { 345.0 },
            2_619.0,
            self.bytes[0],
            self.bytes[1],
            self.bytes[2],
            if busy { tensor } else { 0.0 },
        ]
    }
}

/// An inference engine: a histogram of latencies.
struct Engine {
    chance: Chance,
    counts: [f64; BUCKETS.len()],
}

impl Engine {
    fn next(&mut self) -> [f64; BUCKETS.len()] {
        let requests = (200 + self.chance.below(300)) as f64;
        let mut sum = 0.0;
        for (count, (_, part)) in self.counts.iter_mut().zip(BUCKETS) {
            sum += part * requests * self.chance.normal().mul_add(0.1, 1.0);
            *count += sum.floor();
        }
        self.counts
    }
}

/// A training run that logs about once a second.
struct Training {
    chance: Chance,
    at_seconds: f64,
    step: f64,
    gradient: f64,
}

impl Training {
    fn next(&mut self) -> [f64; TRAINING_METRICS.len()] {
        let chance = &mut self.chance;
        let stall = if chance.one_in(500) { 3.0 } else { 0.0 };
        let took = (chance.normal().mul_add(0.02, 1.0) + stall).max(0.5);
        self.at_seconds += took;
        self.step += 1.0;
        let step = self.step;
        let trend = 1.8 + 8.7 * (-step / 4_000.0).exp() + 3.0 / (1.0 + step / 2_000.0);
        let spike = if chance.one_in(800) { 2.0 } else { 0.0 };
        self.gradient = self.gradient * 0.9 + 0.1 * chance.part().mul_add(0.3, 0.4) + spike;
        let rate = if step < 2_000.0 {
            3e-4 * step / 2_000.0
        } else {
            3e-5 + 1.35e-4 * (1.0 + (std::f64::consts::PI * (step - 2_000.0) / 100_000.0).cos())
        };
        let single = |value: f64| f64::from(value as f32);
        [
            single(trend + chance.normal() * 0.05),
            single(self.gradient),
            rate,
            single(TOKENS_PER_STEP / took),
            single(0.42 / took),
            rounded(took, 6),
            step * TOKENS_PER_STEP / 1.5e13,
            step * TOKENS_PER_STEP,
            71.25 + chance.below(8) as f64 / 64.0,
            step,
        ]
    }
}

/// Labels in order of name, `__name__` first.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// All of it.
pub(crate) struct Fleet {
    /// By number.
    pub(crate) series: Vec<Labels>,
    interval: i64,
    gpus: Vec<Gpu>,
    engines: Vec<Engine>,
    trainings: Vec<Training>,
    chance: Chance,
    /// When in the interval a host is scraped, milliseconds.
    phases_ms: Vec<i64>,
}

impl Fleet {
    /// A fleet that is scraped every `interval` seconds.
    pub(crate) fn new(gpus: usize, trainings: usize, interval: i64) -> Self {
        let hosts = gpus.div_ceil(GPUS_PER_HOST);
        let mut series = Vec::new();
        let host = |number: usize| ("host", format!("node-{number:04}"));
        for gpu in 0..gpus {
            let node = gpu / GPUS_PER_HOST;
            for metric in GPU_METRICS {
                series.push(vec![
                    ("__name__", metric.to_owned()),
                    ("cluster", "lab-a".to_owned()),
                    ("gpu", (gpu % GPUS_PER_HOST).to_string()),
                    host(node),
                    ("instance", format!("10.0.{}.{}:9400", node / 250, node % 250)),
                    ("job", "dcgm".to_owned()),
                    ("model", "NVIDIA H200".to_owned()),
                    ("uuid", format!("GPU-{:08x}-1c2d-4e5f", (gpu as u32).wrapping_mul(2_654_435_761))),
                ]);
            }
        }
        for node in 0..hosts {
            for (bound, _) in BUCKETS {
                series.push(vec![
                    ("__name__", "inference_latency_seconds_bucket".to_owned()),
                    ("cluster", "lab-a".to_owned()),
                    host(node),
                    ("job", "vllm".to_owned()),
                    ("le", bound.to_owned()),
                ]);
            }
        }
        for training in 0..trainings {
            for metric in TRAINING_METRICS {
                series.push(vec![
                    ("__name__", metric.to_owned()),
                    ("experiment", format!("exp-{}", training / 5)),
                    ("job", "train".to_owned()),
                    ("team", "llm".to_owned()),
                    ("trial", format!("trial-{:06x}", training * 7_919 + 4_242)),
                ]);
            }
        }
        let mut chance = Chance::of(gpus);
        Self {
            series,
            interval,
            gpus: (0..gpus).map(Gpu::new).collect(),
            engines: (0..hosts)
                .map(|host| Engine { chance: Chance::of(host + 1_000_003), counts: [0.0; BUCKETS.len()] })
                .collect(),
            trainings: (0..trainings)
                .map(|number| Training {
                    chance: Chance::of(number + 2_000_003),
                    at_seconds: 0.0,
                    step: 0.0,
                    gradient: 1.0,
                })
                .collect(),
            phases_ms: (0..hosts).map(|_| chance.below(interval as u64 * 1_000) as i64).collect(),
            chance,
        }
    }

    /// Hands out what interval `tick` brings, by number of the series; each series' in order of time.
    pub(crate) fn tick(&mut self, tick: i64, mut give: impl FnMut(usize, Point)) {
        let begin_ms = START_MS + tick * self.interval * 1_000;
        let mut series = 0;
        let mut time_ms = 0;
        for (number, gpu) in self.gpus.iter_mut().enumerate() {
            if number % GPUS_PER_HOST == 0 {
                // Few scrapes are a little late.
                let late = if self.chance.below(100) < 15 { self.chance.below(5) as i64 } else { 0 };
                time_ms = begin_ms + self.phases_ms[number / GPUS_PER_HOST] + late;
            }
            for value in gpu.next(self.interval) {
                give(series, Point { time_ms, value });
                series += 1;
            }
        }
        for (engine, phase_ms) in self.engines.iter_mut().zip(&self.phases_ms) {
            for value in engine.next() {
                give(series, Point { time_ms: begin_ms + phase_ms, value });
                series += 1;
            }
        }
        let end_seconds = ((tick + 1) * self.interval) as f64;
        for training in &mut self.trainings {
            while training.at_seconds < end_seconds {
                let values = training.next();
                let time_ms = START_MS + (training.at_seconds * 1e3) as i64;
                for (at, value) in values.into_iter().enumerate() {
                    give(series + at, Point { time_ms, value });
                }
            }
            series += TRAINING_METRICS.len();
        }
    }
}
