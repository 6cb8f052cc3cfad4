//! One look at a machine, in base units; ratios from 0 to 1.

use serde_json::{Value, json};

/// Processes that JSON lists: the busiest by each of the three orders would be among them.
const PROCESSES_MAX: usize = 200;

/// What processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Cpu,
    Memory,
    GpuMemory,
}

/// A machine at one moment. `None` is not known, which is not 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) host: String,
    pub(super) time_ms: i64,
    pub(super) cgroup_mode: String,
    pub(super) cpu: Cpu,
    pub(super) memory: Memory,
    pub(super) disk_total_bytes: Option<f64>,
    pub(super) disk_free_bytes: Option<f64>,
    pub(super) pressure: [Option<f64>; 3],
    pub(super) driver: Driver,
    pub(super) gpus: Vec<Gpu>,
    pub(super) processes: Vec<Process>,
    pub(super) processes_total: usize,
    /// What looking costs: CPU of this program, 1 is one core.
    pub(super) own_cpu_ratio: Option<f64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cpu {
    pub(super) busy_ratio: Option<f64>,
    pub(super) capacity_cpus: Option<f64>,
    pub(super) bounded_by: String,
    pub(super) measured_at: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    pub(super) used_bytes: Option<f64>,
    pub(super) used_ratio: Option<f64>,
    pub(super) ceiling_bytes: Option<f64>,
    pub(super) is_limited: bool,
    pub(super) measured_at: String,
}

/// What became of the GPU driver.
#[derive(Debug, Clone, Default)]
pub(super) enum Driver {
    /// It was asked and has not answered yet.
    #[default]
    Asked,
    /// It answers; its version.
    Loaded(String),
    /// It can't be had: a word, why, and what to do.
    Absent { reason: &'static str, text: String, hint: &'static str },
}

/// A GPU. The driver's own `utilization` comes last: it says least.
#[derive(Debug, Clone, Default)]
pub(super) struct Gpu {
    pub(super) index: u32,
    pub(super) uuid: String,
    pub(super) model: String,
    pub(super) mig: bool,
    pub(super) sm_active_ratio: Option<f64>,
    pub(super) tensor_active_ratio: Option<f64>,
    pub(super) dram_active_ratio: Option<f64>,
    pub(super) power_watts: Option<f64>,
    pub(super) power_limit_watts: Option<f64>,
    pub(super) sm_clock_hertz: Option<f64>,
    pub(super) sm_clock_max_hertz: Option<f64>,
    pub(super) held_back_by: Vec<&'static str>,
    pub(super) memory_used_bytes: Option<f64>,
    pub(super) memory_total_bytes: Option<f64>,
    pub(super) temperature_celsius: Option<f64>,
    pub(super) busy_ratio: Option<f64>,
    /// Why nothing is known of it.
    pub(super) trouble: String,
}

impl Gpu {
    /// Power as a share of what the board may draw.
    pub(super) fn power_ratio(&self) -> Option<f64> {
        self.power_watts
            .zip(self.power_limit_watts)
            .filter(|(_, limit)| *limit > 0.0)
            .map(|(w, limit)| w / limit)
    }
}

/// A process.
#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) command: String,
    /// 1 is one core.
    pub(super) cpu_ratio: Option<f64>,
    pub(super) rss_bytes: u64,
    pub(super) gpus: Vec<u32>,
    pub(super) gpu_memory_bytes: Option<u64>,
    pub(super) run: Option<RunName>,
}

/// The run that a process belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunName {
    pub(super) name: String,
    /// Empty where only the name is known.
    pub(super) id: String,
}

/// Puts processes in order, the most first.
pub(super) fn sort(processes: &mut [Process], by: Sort) {
    let cpu = |process: &Process| process.cpu_ratio.unwrap_or(0.0);
    processes.sort_by(|a, b| {
        let by_cpu = cpu(b).total_cmp(&cpu(a));
        let by_memory = b.rss_bytes.cmp(&a.rss_bytes);
        match by {
            Sort::Cpu => by_cpu.then(by_memory),
            Sort::Memory => by_memory.then(by_cpu),
            Sort::GpuMemory => b.gpu_memory_bytes.cmp(&a.gpu_memory_bytes).then(by_cpu).then(by_memory),
        }
    });
}

impl Snapshot {
    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        let [cpu, memory, io] = self.pressure;
        let (driver, absence) = match &self.driver {
            Driver::Loaded(version) => (json!({"version": version}), Value::Null),
            Driver::Asked => (
                Value::Null,
                json!({"reason": "no_answer", "text": "the driver has not answered yet", "hint": ""}),
            ),
            Driver::Absent { reason, text, hint } => {
                (Value::Null, json!({"reason": reason, "text": text, "hint": hint}))
            }
        };
        json!({
            "host": self.host,
            "time_ms": self.time_ms,
            "cgroup_mode": self.cgroup_mode,
            "cpu": {
                "busy_ratio": self.cpu.busy_ratio,
                "capacity_cpus": self.cpu.capacity_cpus,
                "bounded_by": self.cpu.bounded_by,
                "measured_at": self.cpu.measured_at,
            },
            "memory": {
                "used_bytes": self.memory.used_bytes,
                "used_ratio": self.memory.used_ratio,
                "ceiling_bytes": self.memory.ceiling_bytes,
                "is_limited": self.memory.is_limited,
                "measured_at": self.memory.measured_at,
            },
            "disk": {"total_bytes": self.disk_total_bytes, "free_bytes": self.disk_free_bytes},
            "pressure": {"cpu_waiting_ratio": cpu, "memory_waiting_ratio": memory, "io_waiting_ratio": io},
            "driver": driver,
            "gpu_absence": absence,
            "gpus": self.gpus.iter().map(gpu).collect::<Vec<_>>(),
            "processes_total": self.processes_total,
            "processes": self.processes.iter().take(PROCESSES_MAX).map(process).collect::<Vec<_>>(),
            "self": {"cpu_ratio": self.own_cpu_ratio},
        })
    }
}

fn gpu(gpu: &Gpu) -> Value {
    json!({
        "gpu": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "mig": gpu.mig,
        "sm_active_ratio": gpu.sm_active_ratio,
        "tensor_active_ratio": gpu.tensor_active_ratio,
        "dram_active_ratio": gpu.dram_active_ratio,
        "power_watts": gpu.power_watts,
        "power_limit_watts": gpu.power_limit_watts,
        "power_limit_ratio": gpu.power_ratio(),
        "sm_clock_hertz": gpu.sm_clock_hertz,
        "sm_clock_max_hertz": gpu.sm_clock_max_hertz,
        "held_back_by": gpu.held_back_by,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_total_bytes": gpu.memory_total_bytes,
        "temperature_celsius": gpu.temperature_celsius,
        "busy_ratio": gpu.busy_ratio,
        "busy_caveat": collect::gpu::GPU_UTILIZATION.caveat,
        "trouble": (!gpu.trouble.is_empty()).then_some(&gpu.trouble),
    })
}

fn process(process: &Process) -> Value {
    json!({
        "pid": process.pid,
        "parent": process.parent,
        "name": process.name,
        "command": process.command,
        "cpu_ratio": process.cpu_ratio,
        "rss_bytes": process.rss_bytes,
        "gpus": process.gpus,
        "gpu_memory_bytes": process.gpu_memory_bytes,
        "run": process.run.as_ref().map(|run| {
            json!({"run": run.name, "run_id": (!run.id.is_empty()).then_some(&run.id)})
        }),
    })
}
