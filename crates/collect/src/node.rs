//! The node as this job sees it: CPU, memory, disk, and pressure as an extra.

use crate::{
    CPU_UTILIZATION, DISK_TOTAL, Failure, MEMORY_USED, MEMORY_UTILIZATION, Sink,
    cgroup::Hierarchies,
    cpu::{Cpu, CpuReading},
    disk,
    facts::{CgroupFacts, CgroupMode, CpuFacts, MemoryFacts},
    failure::Health,
    host::Host,
    memory::{self, Memory, MemoryReading},
    pressure::Pressure,
    pseudo_file::{Buffer, PseudoFile, ReadError},
    rate::Rate,
};

/// Samples the node series of one machine.
///
/// Cgroup levels are found at the first tick and again whenever `/proc/self/cgroup` changes; limits
/// are read at every tick. Not to be carried over a fork: its open files belong to the parent.
#[derive(Debug)]
pub struct NodeSampler {
    host: Host,
    buffer: Buffer,
    membership: PseudoFile,
    /// `/proc/self/cgroup` as it was when the levels were found; `None` before that.
    resolved: Option<Vec<u8>>,
    mode: CgroupMode,
    cpu: Cpu,
    memory: Memory,
    pressure: Pressure,
    /// Levels the last tick was measured at, for pressure.
    cpu_scope: Option<CpuReading>,
    memory_scope: Option<MemoryReading>,
    cpu_rate: Rate,
    cpu_health: Health,
    memory_health: Health,
    disk_health: Health,
    failures: Vec<Failure>,
}

impl NodeSampler {
    /// A sampler of `host`; nothing is read before the first tick.
    pub fn new(host: Host) -> Self {
        Self {
            buffer: Buffer::new(),
            membership: host.file("/proc/self/cgroup"),
            resolved: None,
            mode: CgroupMode::None,
            cpu: Cpu::new(&host),
            memory: Memory::new(&host),
            pressure: Pressure::new(&host),
            cpu_scope: None,
            memory_scope: None,
            cpu_rate: Rate::default(),
            cpu_health: Health::default(),
            memory_health: Health::default(),
            disk_health: Health::default(),
            failures: Vec::new(),
            host,
        }
    }

    /// Emits `system/cpu/utilization` (from the second tick on), `system/memory/used_bytes`,
    /// `system/memory/utilization`, `system/disk/total_bytes`, `system/disk/free_bytes` and
    /// `system/disk/utilization`, those that could be read.
    ///
    /// `monotonic_ns` is the time of the tick on a clock that is never set.
    pub fn sample(&mut self, monotonic_ns: u64, sink: &mut Sink<'_>) {
        self.follow_membership();
        self.sample_cpu(monotonic_ns, sink);
        self.sample_memory(sink);
        if self.disk_health.is_due()
            && let Some(blocks) = self.disk_health.note(&DISK_TOTAL, self.host.disk(), &mut self.failures)
        {
            disk::emit(blocks, sink);
        }
    }

    /// Emits `system/pressure/{cpu,memory,io}_waiting_ratio` from the second tick on, where the kernel
    /// has them; measured at the levels the last [`sample`](Self::sample) used.
    pub fn sample_extras(&mut self, monotonic_ns: u64, sink: &mut Sink<'_>) {
        let cpu = self.cpu_scope.as_ref().and_then(|reading| reading.unified.as_deref());
        let memory = self.memory_scope.and_then(|reading| self.memory.level(reading.binding?.0));
        let memory = memory.filter(|level| level.unified).map(|level| level.directory.as_path());
        self.pressure.measure_at(cpu, memory);
        self.pressure.sample(monotonic_ns, &mut self.buffer, &mut self.failures, sink);
    }

    /// What could not be read since the last call.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// Finds the levels at the first tick and after each move to other cgroups.
    fn follow_membership(&mut self) {
        let now = match self.membership.read(&mut self.buffer) {
            Ok(text) => text,
            // What was found before still holds as far as anybody knows.
            Err(ReadError::Failed(_)) if self.resolved.is_some() => return,
            Err(_) => &[],
        };
        if self.resolved.as_deref() == Some(now) {
            return;
        }
        let hierarchies = Hierarchies::new(&self.host, now);
        self.resolved = Some(now.to_vec());
        self.mode = hierarchies.mode(&self.host);
        self.cpu.resolve(&self.host, &hierarchies);
        self.memory.resolve(&self.host, &hierarchies);
    }

    fn sample_cpu(&mut self, monotonic_ns: u64, sink: &mut Sink<'_>) {
        if !self.cpu_health.is_due() {
            return;
        }
        let outcome = self.cpu.read(&mut self.buffer);
        // A tick that could not read keeps the base: the next one covers both intervals.
        let Some(reading) = self.cpu_health.note(&CPU_UTILIZATION, outcome, &mut self.failures) else {
            return;
        };
        self.cpu_scope = reading;
        let Some(reading) = &self.cpu_scope else { return };
        let advance = self.cpu_rate.advance(&reading.source, reading.used_ns, monotonic_ns);
        if let Some(step) = advance.filter(|_| reading.capacity_cpus > 0.0) {
            let busy_cpus = step.value as f64 / step.elapsed_ns as f64;
            sink(&CPU_UTILIZATION, busy_cpus / reading.capacity_cpus * 100.0);
        }
    }

    fn sample_memory(&mut self, sink: &mut Sink<'_>) {
        if !self.memory_health.is_due() {
            return;
        }
        let outcome = self.memory.read(&mut self.buffer);
        let Some(reading) = self.memory_health.note(&MEMORY_USED, outcome, &mut self.failures) else {
            return;
        };
        self.memory_scope = reading;
        let Some(reading) = reading else { return };
        sink(&MEMORY_USED, reading.used_bytes as f64);
        if reading.ceiling_bytes > 0 {
            sink(&MEMORY_UTILIZATION, reading.used_bytes as f64 / reading.ceiling_bytes as f64 * 100.0);
        }
    }

    /// What the numbers are measured against, as read now.
    pub(crate) fn facts(mut self) -> CgroupFacts {
        self.follow_membership();
        let mut problems = Vec::new();
        let memory = self.memory.read(&mut self.buffer).unwrap_or_else(|cause| {
            problems.push(cause);
            None
        });
        let cpu = self.cpu.read(&mut self.buffer).unwrap_or_else(|cause| {
            problems.push(cause);
            None
        });
        let memory = memory.map(|reading| {
            let level = reading.binding.and_then(|(index, _)| self.memory.level(index));
            MemoryFacts {
                path: memory::directory(level).to_string_lossy().into_owned(),
                limit_bytes: reading.binding.map(|(_, limit)| limit),
                ceiling_bytes: reading.ceiling_bytes,
                levels: self.memory.levels(),
            }
        });
        let cpu = cpu.map(|reading| CpuFacts {
            path: reading.source.to_string_lossy().into_owned(),
            capacity_cpus: reading.capacity_cpus,
            source: reading.bound,
            levels: self.cpu.levels(),
        });
        CgroupFacts { mode: self.mode, memory, cpu, problems }
    }
}
