//! Reads one machine: CPU, memory and disk as the process's cgroups limit them, the process itself,
//! its descendants, and pressure stall information; all of the machine, in [`machine`]; its GPUs, in [`gpu`];
//! and what the kernel's log says of them, in [`kernel_log`].
//!
//! A sampler keeps its files open and reads each with one positioned read. It holds no clock: the
//! caller passes the monotonic time of the tick, and rates are taken between two such times. Nothing
//! here raises: a number that cannot be had is left out of the tick, and why is told through
//! [`Failure`].
//!
//! Off Linux every function is there and yields nothing; see [`SUPPORTED`]. [`gpu`] would ask a driver
//! there too, but nobody has tried.

mod descs;
mod failure;
pub mod gpu;
pub mod kernel_log;
pub mod machine;
mod promised;

pub use descs::{
    CPU_THROTTLED, CPU_UTILIZATION, DESCS, DISK_FREE, DISK_TOTAL, DISK_UTILIZATION, MEMORY_USED,
    MEMORY_UTILIZATION, PRESSURE_CPU, PRESSURE_IO, PRESSURE_MEMORY, PROCESS_CPU, PROCESS_RSS, SELF_CPU,
    TREE_CPU, TREE_RSS,
};
pub use failure::Failure;
pub use promised::PROMISED;

/// Whether this build reads the machine: true on Linux.
pub const SUPPORTED: bool = cfg!(tg_linux);

/// Every metric that this crate can give, those of GPUs included, on every platform.
pub fn all_descs() -> Vec<model::Desc> {
    [DESCS, gpu::GPU_DESCS].concat()
}

/// Where the values of one tick go: the metric and its value, in the metric's unit.
pub type Sink<'a> = dyn FnMut(&'static model::Desc, f64) + 'a;

#[cfg(tg_linux)]
mod cgroup;
#[cfg(tg_linux)]
mod cpu;
#[cfg(tg_linux)]
mod disk;
mod facts;
#[cfg(tg_linux)]
mod host;
#[cfg(tg_linux)]
mod memory;
#[cfg(tg_linux)]
mod node;
#[cfg(tg_linux)]
mod parse;
#[cfg(tg_linux)]
mod pressure;
#[cfg(tg_linux)]
mod process;
#[cfg(tg_linux)]
mod processes;
#[cfg(tg_linux)]
mod pseudo_file;
#[cfg(tg_linux)]
mod quota;
#[cfg(tg_linux)]
mod rate;
#[cfg(tg_linux)]
mod throttling;
#[cfg(tg_linux)]
mod tree;

pub use facts::{CgroupFacts, CgroupMode, CpuBound, CpuFacts, MemoryFacts};
#[cfg(tg_linux)]
pub use {
    facts::facts,
    host::{DiskBlocks, Host, boot_id, hostname, platform, thread_cpu_seconds},
    node::NodeSampler,
    process::ProcessSampler,
    processes::{ProcessRow, ProcessTable},
};

#[cfg(not(tg_linux))]
mod elsewhere;
#[cfg(not(tg_linux))]
pub use elsewhere::{
    DiskBlocks, Host, NodeSampler, ProcessSampler, boot_id, facts, hostname, platform, thread_cpu_seconds,
};
