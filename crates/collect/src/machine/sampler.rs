//! Reads a machine, part by part.

use super::{
    MachineSink, MachineValue, block::Disks, jobs::Jobs, mounts::FileSystems, network::Network, pci::PciGpus,
    rdma::Rdma,
};
use crate::{
    host::{Host, ticks_per_second},
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
};

/// The columns of the line `cpu` of `/proc/stat`. What guests used is inside the first two already.
const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];
/// Most causes that wait to be told.
const PROBLEMS_MAX: usize = 64;

/// Samples all of a machine.
///
/// Its files stay open where that is right. Not to be carried over a fork.
#[derive(Debug)]
pub struct MachineSampler {
    host: Host,
    buffer: Buffer,
    stat: PseudoFile,
    load: PseudoFile,
    memory: PseudoFile,
    pressures: [PseudoFile; 3],
    file_systems: FileSystems,
    disks: Disks,
    network: Network,
    rdma: Rdma,
    jobs: Jobs,
    pci: PciGpus,
    problems: Vec<String>,
}

/// What the parts have in common in a tick.
pub(super) struct Tick<'a> {
    pub(super) host: &'a Host,
    pub(super) buffer: &'a mut Buffer,
    pub(super) problems: &'a mut Vec<String>,
}

impl Tick<'_> {
    /// The text of a file; nothing when it is not there, and a problem when it cannot be read.
    pub(super) fn text<'b>(&'b mut self, file: &mut PseudoFile) -> Option<&'b [u8]> {
        match file.read(self.buffer) {
            Ok(text) => Some(text),
            Err(ReadError::Absent) => None,
            Err(ReadError::Failed(cause)) => {
                if self.problems.len() < PROBLEMS_MAX {
                    self.problems.push(cause);
                }
                None
            }
        }
    }

    /// The number that a file holds.
    pub(super) fn number(&mut self, file: &mut PseudoFile) -> Option<u64> {
        self.text(file).and_then(parse::number)
    }
}

impl MachineSampler {
    /// A sampler of `host`; nothing is read before the first tick.
    pub fn new(host: Host) -> Self {
        Self {
            buffer: Buffer::new(),
            stat: host.file("/proc/stat"),
            load: host.file("/proc/loadavg"),
            memory: host.file("/proc/meminfo"),
            pressures: PRESSURES.map(|resource| host.file(&format!("/proc/pressure/{resource}"))),
            file_systems: FileSystems::new(&host),
            disks: Disks::new(&host),
            network: Network::new(&host),
            rdma: Rdma::default(),
            jobs: Jobs::default(),
            pci: PciGpus::default(),
            problems: Vec::new(),
            host,
        }
    }

    /// Emits everything that the machine has.
    pub fn sample(&mut self, sink: &mut MachineSink<'_>) {
        let mut tick = Tick { host: &self.host, buffer: &mut self.buffer, problems: &mut self.problems };
        cpu(&mut self.stat, &mut tick, sink);
        if let Some(load) = tick.text(&mut self.load).and_then(parse::load) {
            sink(MachineValue::Load(load));
        }
        memory(&mut self.memory, &mut tick, sink);
        for (resource, file) in PRESSURES.into_iter().zip(&mut self.pressures) {
            if let Some(waited) = tick.text(file).and_then(parse::pressure_some_us) {
                sink(MachineValue::Waiting { resource, seconds: waited as f64 / 1e6 });
            }
        }
        self.file_systems.sample(&mut tick, sink);
        self.disks.sample(&mut tick, sink);
        self.network.sample(&mut tick, sink);
        self.rdma.sample(&mut tick, sink);
        self.jobs.sample(&mut tick, sink);
        self.pci.sample(&mut tick, sink);
    }

    /// What could not be read since the last call, though it is there: equal causes have equal texts.
    pub fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }
}

fn cpu(file: &mut PseudoFile, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
    let Some(text) = tick.text(file) else { return };
    let per_second = ticks_per_second() as f64;
    for (mode, ticks) in MODES.into_iter().zip(parse::stat_ticks(text)) {
        sink(MachineValue::CpuSeconds { mode, seconds: ticks as f64 / per_second });
    }
    if let Some(cpus) = parse::stat_cpus(text) {
        sink(MachineValue::Cpus(cpus));
    }
}

fn memory(file: &mut PseudoFile, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
    let Some(text) = tick.text(file) else { return };
    let (total, available) = (parse::meminfo(text, b"MemTotal"), parse::meminfo(text, b"MemAvailable"));
    if let (Some(total), Some(available)) = (total, available) {
        sink(MachineValue::Memory { used: total.saturating_sub(available), total });
    }
}
