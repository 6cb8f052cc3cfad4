//! Looks at the machine: node, GPUs, processes and the runs they belong to.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collect::gpu::{self as gpus, GpuAbsence, GpuOptions, GpuSampler};
use collect::{Host, NodeSampler, ProcessRow, ProcessTable};
use rustix::time::{ClockId, clock_gettime};

use super::snapshot::{Driver, Gpu, Process, RunName, Snapshot, Sort, sort};

/// How long the driver may take to start, and one call of it.
const START_DEADLINE: Duration = Duration::from_secs(10);
const CALL_DEADLINE: Duration = Duration::from_millis(300);
/// Looks between two readings of what changes rarely: limits and locks.
const SLOW_LOOKS: u64 = 5;
/// Processes whose command line and environment are read, in the order they are shown.
const DETAILED_MAX: usize = 100;
/// Most bytes of a command line or an environment that are read.
const READ_BYTES_MAX: u64 = 64 << 10;

/// What is read once of a process.
#[derive(Debug, Clone, Default)]
struct Detail {
    start_ticks: u64,
    command: String,
    run: Option<RunName>,
}

/// Everything that is kept between two looks.
pub(super) struct Collector {
    started: Instant,
    looks: u64,
    node: NodeSampler,
    table: ProcessTable,
    opening: Option<Receiver<Result<GpuSampler, GpuAbsence>>>,
    sampler: Option<GpuSampler>,
    driver: Driver,
    limits: Snapshot,
    runs: HashMap<u32, RunName>,
    details: HashMap<u32, Detail>,
    own: Option<(Instant, f64)>,
}

impl Collector {
    /// Begins to ask the driver, in a thread: a sick one takes its time.
    pub(super) fn new() -> Self {
        let (send, opening) = channel();
        let options = GpuOptions {
            start_deadline: START_DEADLINE,
            call_deadline: CALL_DEADLINE,
            ..GpuOptions::default()
        };
        let started = std::thread::Builder::new().name("truegauge-driver".into()).spawn(move || {
            // Whoever asked may be gone.
            let _ = send.send(GpuSampler::open(&options));
        });
        let cause = started.err().map(|error| GpuAbsence::NoThread { cause: error.to_string() });
        Self {
            started: Instant::now(),
            looks: 0,
            node: NodeSampler::new(Host::real()),
            table: ProcessTable::new(&Host::real()),
            opening: Some(opening),
            sampler: None,
            driver: cause.as_ref().map_or(Driver::Asked, absent),
            limits: Snapshot::default(),
            runs: HashMap::new(),
            details: HashMap::new(),
            own: None,
        }
    }

    /// Waits until the driver has answered or its time is up.
    pub(super) fn wait_for_driver(&mut self) {
        let answer = self.opening.take().and_then(|opening| opening.recv_timeout(2 * START_DEADLINE).ok());
        self.admit(answer);
    }

    fn admit(&mut self, answer: Option<Result<GpuSampler, GpuAbsence>>) {
        match answer {
            Some(Ok(sampler)) => {
                self.driver = Driver::Loaded(sampler.driver_version().unwrap_or_default().to_owned());
                self.sampler = Some(sampler);
            }
            Some(Err(absence)) => self.driver = absent(&absence),
            None => return,
        }
        self.opening = None;
    }

    /// One look.
    pub(super) fn look(&mut self, by: Sort) -> Snapshot {
        let answer = self.opening.as_ref().and_then(|opening| opening.try_recv().ok());
        self.admit(answer);
        if self.looks.is_multiple_of(SLOW_LOOKS) {
            self.limits = limits();
            let present = client::claims::present().into_iter();
            self.runs = present.map(|p| (p.pid, RunName { name: p.run, id: p.run_id })).collect();
        }
        self.looks += 1;
        let at_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut snapshot = self.limits.clone();
        snapshot.time_ms = now_ms();
        snapshot.own_cpu_ratio = self.own_cpu();
        self.look_at_node(at_ns, &mut snapshot);
        let of_gpus = self.look_at_gpus(&mut snapshot);
        snapshot.driver = self.driver.clone();
        let rows = self.table.sample(at_ns);
        snapshot.processes_total = rows.len();
        snapshot.processes = self.processes(&rows, &of_gpus, by);
        snapshot
    }

    fn look_at_node(&mut self, at_ns: u64, snapshot: &mut Snapshot) {
        let Snapshot { cpu, memory, disk_total_bytes, disk_free_bytes, pressure, .. } = snapshot;
        let mut sink = |desc: &'static model::Desc, value: f64| {
            let place = match desc.name {
                name if name == collect::CPU_UTILIZATION.name => &mut cpu.busy_ratio,
                name if name == collect::MEMORY_USED.name => &mut memory.used_bytes,
                name if name == collect::MEMORY_UTILIZATION.name => &mut memory.used_ratio,
                name if name == collect::DISK_TOTAL.name => disk_total_bytes,
                name if name == collect::DISK_FREE.name => disk_free_bytes,
                name if name == collect::PRESSURE_CPU.name => &mut pressure[0],
                name if name == collect::PRESSURE_MEMORY.name => &mut pressure[1],
                name if name == collect::PRESSURE_IO.name => &mut pressure[2],
                _ => return,
            };
            *place = Some(base(desc, value));
        };
        self.node.sample(at_ns, &mut sink);
        self.node.sample_extras(at_ns, &mut sink);
        drop(self.node.take_failures());
    }

    /// The GPUs; and which process has how much memory of which.
    fn look_at_gpus(&mut self, snapshot: &mut Snapshot) -> HashMap<u32, (Vec<u32>, Option<u64>)> {
        let mut of_processes: HashMap<u32, (Vec<u32>, Option<u64>)> = HashMap::new();
        let Some(sampler) = &mut self.sampler else { return of_processes };
        let mut found: Vec<Gpu> = sampler.devices().iter().map(device).collect();
        let asked: Vec<u32> = found.iter().filter(|gpu| !gpu.mig).map(|gpu| gpu.index).collect();
        sampler.sample(&asked, &mut |index, value| {
            if let Some(gpu) = found.iter_mut().find(|gpu| gpu.index == index) {
                take(gpu, value);
            }
        });
        for failure in sampler.take_failures() {
            if let Some(gpu) = found.iter_mut().find(|gpu| gpu.index == failure.gpu)
                && matches!(failure.reason, "no_answer" | "gpu_lost")
            {
                gpu.trouble = failure.cause;
            }
        }
        for gpu in &mut found {
            let mask = sampler.throttle_mask(gpu.index).unwrap_or(0);
            gpu.held_back_by = gpus::throttle_reasons(mask).filter(|word| *word != "idle").collect();
            for process in sampler.processes(gpu.index).unwrap_or_default() {
                let (cards, memory) = of_processes.entry(process.pid).or_default();
                cards.push(gpu.index);
                *memory = process.memory_bytes.map(|bytes| memory.unwrap_or(0) + bytes).or(*memory);
            }
        }
        let unreadable = sampler.unreadable().iter();
        found.extend(unreadable.map(|(index, cause)| Gpu {
            index: *index,
            trouble: cause.clone(),
            ..Gpu::default()
        }));
        found.sort_by_key(|gpu| gpu.index);
        snapshot.gpus = found;
        of_processes
    }

    /// The processes in order, the first of them with what they run and for which run.
    fn processes(
        &mut self,
        rows: &[ProcessRow],
        of_gpus: &HashMap<u32, (Vec<u32>, Option<u64>)>,
        by: Sort,
    ) -> Vec<Process> {
        let mut processes: Vec<Process> = rows.iter().map(|row| plain(row, of_gpus.get(&row.pid))).collect();
        sort(&mut processes, by);
        let by_pid: HashMap<u32, &ProcessRow> = rows.iter().map(|row| (row.pid, row)).collect();
        self.details
            .retain(|pid, detail| by_pid.get(pid).is_some_and(|row| row.start_ticks == detail.start_ticks));
        for process in processes.iter_mut().take(DETAILED_MAX) {
            process.run = self.run_of(process.pid, &by_pid);
            if let Some(row) = by_pid.get(&process.pid) {
                process.command.clone_from(&self.detail(row).command);
            }
        }
        processes
    }

    /// The run of a process: what a lock says of it, else what its environment does, else that of its
    /// parent, and so on.
    fn run_of(&mut self, pid: u32, by_pid: &HashMap<u32, &ProcessRow>) -> Option<RunName> {
        let mut seen = HashSet::new();
        let mut at = pid;
        while seen.insert(at) {
            if let Some(run) = self.runs.get(&at) {
                return Some(run.clone());
            }
            let row = by_pid.get(&at)?;
            if let Some(run) = &self.detail(row).run {
                return Some(run.clone());
            }
            at = row.parent;
        }
        None
    }

    fn detail(&mut self, row: &ProcessRow) -> &Detail {
        self.details.entry(row.pid).or_insert_with(|| Detail {
            start_ticks: row.start_ticks,
            command: command_line(row),
            run: run_in_environment(row.pid),
        })
    }

    /// CPU of this program since the last look.
    fn own_cpu(&mut self) -> Option<f64> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let (now, used) = (Instant::now(), time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        let (before, used_before) = self.own.replace((now, used))?;
        let elapsed = now.duration_since(before).as_secs_f64();
        (elapsed > 0.0).then(|| (used - used_before) / elapsed)
    }
}

fn absent(absence: &GpuAbsence) -> Driver {
    Driver::Absent { reason: absence.reason(), text: absence.to_string(), hint: absence.hint() }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A value in base units: percent becomes a ratio, megahertz hertz.
fn base(desc: &model::Desc, value: f64) -> f64 {
    match desc.unit {
        model::Unit::Percent => value / 100.0,
        model::Unit::Megahertz => value * 1e6,
        _ => value,
    }
}

/// What numbers are measured against.
fn limits() -> Snapshot {
    let facts = collect::facts(&Host::real());
    let mut snapshot = Snapshot { host: collect::hostname(), ..Snapshot::default() };
    facts.mode.as_str().clone_into(&mut snapshot.cgroup_mode);
    if let Some(cpu) = facts.cpu {
        snapshot.cpu.capacity_cpus = Some(cpu.capacity_cpus);
        cpu.source.as_str().clone_into(&mut snapshot.cpu.bounded_by);
        snapshot.cpu.measured_at = cpu.path;
    }
    if let Some(memory) = facts.memory {
        snapshot.memory.ceiling_bytes = Some(memory.ceiling_bytes as f64);
        snapshot.memory.is_limited = memory.limit_bytes.is_some();
        snapshot.memory.measured_at = memory.path;
    }
    snapshot
}

fn device(device: &gpus::GpuDevice) -> Gpu {
    Gpu {
        index: device.index,
        uuid: device.uuid.clone(),
        model: device.name.clone(),
        mig: device.mig,
        sm_clock_max_hertz: device.sm_clock_max_mhz.map(|mhz| f64::from(mhz) * 1e6),
        ..Gpu::default()
    }
}

/// Puts a value where it belongs.
fn take(gpu: &mut Gpu, value: &gpus::GpuValue) {
    let place = match value.metric.name {
        name if name == gpus::GPU_SM_ACTIVE.name => &mut gpu.sm_active_ratio,
        name if name == gpus::GPU_TENSOR_ACTIVE.name => &mut gpu.tensor_active_ratio,
        name if name == gpus::GPU_DRAM_ACTIVE.name => &mut gpu.dram_active_ratio,
        name if name == gpus::GPU_POWER.name => &mut gpu.power_watts,
        name if name == gpus::GPU_POWER_LIMIT.name => &mut gpu.power_limit_watts,
        name if name == gpus::GPU_SM_CLOCK.name => &mut gpu.sm_clock_hertz,
        name if name == gpus::GPU_SM_CLOCK_MAX.name => &mut gpu.sm_clock_max_hertz,
        name if name == gpus::GPU_MEMORY_USED.name => &mut gpu.memory_used_bytes,
        name if name == gpus::GPU_MEMORY_TOTAL.name => &mut gpu.memory_total_bytes,
        name if name == gpus::GPU_TEMPERATURE.name => &mut gpu.temperature_celsius,
        name if name == gpus::GPU_UTILIZATION.name => &mut gpu.busy_ratio,
        _ => return,
    };
    *place = Some(base(value.metric, value.value));
}

fn plain(row: &ProcessRow, of_gpus: Option<&(Vec<u32>, Option<u64>)>) -> Process {
    let (gpus, gpu_memory_bytes) = of_gpus.cloned().unwrap_or_default();
    Process {
        pid: row.pid,
        parent: row.parent,
        name: row.name.clone(),
        cpu_ratio: row.cpu_percent.map(|percent| percent / 100.0),
        rss_bytes: row.rss_bytes,
        gpus,
        gpu_memory_bytes,
        ..Process::default()
    }
}

/// A file of `/proc`, to a bound; empty where it may not be read or has gone.
fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A process that ends meanwhile leaves half a file or none.
        let _ = file.take(READ_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

/// What a process runs, without secrets; its name in brackets where it has no arguments, as a kernel
/// thread.
fn command_line(row: &ProcessRow) -> String {
    let bytes = read(&format!("/proc/{}/cmdline", row.pid));
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    let argv: Vec<OsString> = parts.map(|part| OsString::from_vec(part.to_vec())).collect();
    if argv.is_empty() { format!("[{}]", row.name) } else { client::command::shown(&argv) }
}

/// The run that a process was told to join.
fn run_in_environment(pid: u32) -> Option<RunName> {
    let bytes = read(&format!("/proc/{pid}/environ"));
    let value = |name: &[u8]| {
        let of = |part: &[u8]| part.strip_prefix(name)?.strip_prefix(b"=").map(<[u8]>::to_vec);
        bytes.split(|byte| *byte == 0).find_map(of).filter(|value| !value.is_empty())
    };
    let name = String::from_utf8_lossy(&value(b"TRUEGAUGE_RUN")?).into_owned();
    let wrapper = value(client::command::WRAPPER_VARIABLE.as_bytes()).unwrap_or_default();
    let id = String::from_utf8_lossy(&wrapper).split_once(':').map_or(String::new(), |(_, id)| id.to_owned());
    Some(RunName { name, id })
}
