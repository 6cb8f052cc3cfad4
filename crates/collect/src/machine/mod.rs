//! All of a machine, not only what one process may use of it: CPU, memory, disks, network, RDMA, the cgroups
//! of its jobs, and how many GPUs stand on its bus.
//!
//! Counters are as the kernel has them, in base units; rates are the reader's. What is not there is left out.
//! The machine's own mounts and interfaces are those of process 1, where that may be seen, so that a
//! container that has the host's `/proc` sees the host.

#[cfg(tg_linux)]
mod block;
#[cfg(tg_linux)]
mod jobs;
#[cfg(tg_linux)]
mod mounts;
#[cfg(tg_linux)]
mod network;
#[cfg(tg_linux)]
mod pci;
#[cfg(tg_linux)]
mod rdma;
#[cfg(tg_linux)]
mod sampler;

#[cfg(tg_linux)]
pub use sampler::MachineSampler;

#[cfg(not(tg_linux))]
pub use crate::elsewhere::MachineSampler;

/// What is read of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MachineValue<'a> {
    /// Time of all cores in a mode, seconds.
    CpuSeconds {
        /// `user`, `nice`, `system`, `idle`, `iowait`, `irq`, `softirq` or `steal`.
        mode: &'static str,
        /// Since boot.
        seconds: f64,
    },
    /// Cores that are online.
    Cpus(u64),
    /// Tasks that ran or waited, averaged over a minute.
    Load(f64),
    /// Time in which some task waited for a resource, seconds.
    Waiting {
        /// `cpu`, `memory` or `io`.
        resource: &'static str,
        /// Since boot.
        seconds: f64,
    },
    /// Memory, bytes.
    Memory {
        /// What could not be given out again at once.
        used: u64,
        /// In all.
        total: u64,
    },
    /// A file system, bytes.
    FileSystem {
        /// Where it is mounted.
        mountpoint: &'a str,
        /// Room for those who are not root.
        free: u64,
        /// Its size.
        total: u64,
    },
    /// A disk since boot.
    Disk {
        /// Its name.
        device: &'a str,
        /// Bytes read.
        read: u64,
        /// Bytes written.
        written: u64,
        /// Time with at least one request, seconds.
        busy_seconds: f64,
    },
    /// An interface since it was made, bytes.
    Network {
        /// Its name.
        device: &'a str,
        /// Came in.
        received: u64,
        /// Went out.
        transmitted: u64,
    },
    /// Packets that an interface lost or found damaged.
    NetworkErrors {
        /// Its name.
        device: &'a str,
        /// `receive_errors`, `receive_dropped`, `transmit_errors` or `transmit_dropped`.
        kind: &'static str,
        /// How many.
        count: u64,
    },
    /// A port for RDMA.
    Rdma {
        /// The device.
        device: &'a str,
        /// The port.
        port: &'a str,
        /// What of it.
        what: RdmaValue,
    },
    /// The cgroup of a job.
    Job {
        /// Slurm's number, or `pod-` and the pod's id.
        job_id: &'a str,
        /// What of it.
        what: JobValue,
    },
    /// How many GPUs stand on the bus.
    PciGpus {
        /// All of them.
        count: u64,
        /// Those of NVIDIA, which its driver should show.
        nvidia: u64,
    },
}

/// What is read of a port for RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaValue {
    /// Bytes that came in.
    Received(u64),
    /// Bytes that went out.
    Transmitted(u64),
    /// Errors of a kind, as the kernel names it.
    Errors(&'static str, u64),
    /// Whether the port is up.
    Active(bool),
}

/// What is read of a job's cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JobValue {
    /// Time on all cores, seconds.
    CpuSeconds(f64),
    /// Memory that it holds, page cache included, bytes.
    MemoryUsed(u64),
    /// Memory that it may hold, bytes.
    MemoryLimit(u64),
}

/// Where the values of a machine go.
pub type MachineSink<'a> = dyn FnMut(MachineValue<'_>) + 'a;
