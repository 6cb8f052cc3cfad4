//! Every metric of this crate: name, unit, help and caveat, written once.

use model::{Desc, Unit};

const HOST: &[&str] = &["host"];
const PROCESS: &[&str] = &["host", "pid"];

/// CPU time used, of what the node or the container may use.
pub const CPU_UTILIZATION: Desc = Desc::gauge(
    "system/cpu/utilization",
    Unit::Percent,
    HOST,
    "CPU time used since the last tick, as a share of the CPUs this job may use.",
)
.caveat(
    "Measured at the cgroup level whose quota or CPU set is the tightest, so it counts everybody in that \
     level; without any such bound it is the outermost visible level, the whole host on bare metal.",
);

/// Memory in use, without what the kernel can drop at once.
pub const MEMORY_USED: Desc = Desc::gauge(
    "system/memory/used_bytes",
    Unit::Bytes,
    HOST,
    "Memory in use at the cgroup level with the tightest limit, inactive file pages left out.",
)
.caveat("Without a cgroup limit it is the host's MemTotal - MemAvailable, everybody's processes included.");

/// Memory in use as a share of the limit.
pub const MEMORY_UTILIZATION: Desc = Desc::gauge(
    "system/memory/utilization",
    Unit::Percent,
    HOST,
    "Memory in use as a share of the tightest cgroup limit, or of the host's memory.",
)
.caveat("Active file pages count as used although the kernel can drop them, so 100 is reached before an OOM kill.");

/// Size of the root filesystem.
pub const DISK_TOTAL: Desc = Desc::gauge(
    "system/disk/total_bytes",
    Unit::Bytes,
    HOST,
    "Size of the filesystem mounted at /, blocks reserved for root included.",
);

/// What an ordinary user can still write to the root filesystem.
pub const DISK_FREE: Desc = Desc::gauge(
    "system/disk/free_bytes",
    Unit::Bytes,
    HOST,
    "Bytes a user other than root can still write to the filesystem mounted at /.",
)
.caveat("Blocks reserved for root are neither free nor used, so used and free do not add up to the total.");

/// Used share of the root filesystem, as `df` computes it.
pub const DISK_UTILIZATION: Desc = Desc::gauge(
    "system/disk/utilization",
    Unit::Percent,
    HOST,
    "Used share of the filesystem mounted at /; `df` prints this number rounded up.",
)
.caveat("The root filesystem only: data sets and checkpoints usually lie on other ones.");

/// Resident memory of this process.
pub const PROCESS_RSS: Desc = Desc::gauge(
    "system/process/rss_bytes",
    Unit::Bytes,
    PROCESS,
    "Resident memory of this process, shared pages included.",
)
.caveat("Pages shared between ranks are counted in each of them.");

/// CPU time of this process.
pub const PROCESS_CPU: Desc = Desc::gauge(
    "system/process/cpu_utilization",
    Unit::Percent,
    PROCESS,
    "CPU time of this process and its threads since the last tick, as a share of one core.",
)
.caveat("Above 100 with several busy threads; counted in kernel ticks of 10 ms; children are left out.");

/// Resident memory of this process and its descendants.
pub const TREE_RSS: Desc = Desc::gauge(
    "system/process_tree/rss_bytes",
    Unit::Bytes,
    PROCESS,
    "Resident memory of this process and all its descendants, such as data loader workers, added up.",
)
.caveat("Pages shared between them (after a fork, in shared memory) are counted once for each process.");

/// CPU time of this process and its descendants.
pub const TREE_CPU: Desc = Desc::gauge(
    "system/process_tree/cpu_utilization",
    Unit::Percent,
    PROCESS,
    "CPU time of this process and all its descendants since the last tick, as a share of one core.",
)
.caveat(
    "A descendant that was born, or did its last work, and ended unwaited-for between two ticks is missed.",
);

/// Time in which CPU quotas held this process back.
pub const CPU_THROTTLED: Desc = Desc::counter(
    "system/process/cpu_throttled_seconds_total",
    Unit::Seconds,
    PROCESS,
    "Time in which the CPU quota of this process's cgroups held it back, since it was first sampled.",
)
.caveat(
    "Everybody in the level with the quota is counted, and one thread that may not go on is enough; absent \
     where no level has a quota.",
);

/// Share of the time in which a task waited for a CPU.
pub const PRESSURE_CPU: Desc = Desc::gauge(
    "system/pressure/cpu_waiting_ratio",
    Unit::Ratio,
    HOST,
    "Share of the time since the last tick in which at least one task waited for a CPU.",
)
.caveat("One waiting task is enough, so it says how often somebody waits, not how many.");

/// Share of the time in which a task waited for memory.
pub const PRESSURE_MEMORY: Desc = Desc::gauge(
    "system/pressure/memory_waiting_ratio",
    Unit::Ratio,
    HOST,
    "Share of the time since the last tick in which at least one task waited for memory to be reclaimed.",
)
.caveat("One waiting task is enough, so it says how often somebody waits, not how many.");

/// Share of the time in which a task waited for I/O.
pub const PRESSURE_IO: Desc = Desc::gauge(
    "system/pressure/io_waiting_ratio",
    Unit::Ratio,
    HOST,
    "Share of the time since the last tick in which at least one task waited for block I/O.",
)
.caveat("Reads from network filesystems are mostly not counted by the kernel.");

/// The sampler's own cost.
pub const SELF_CPU: Desc = Desc::counter(
    "system/self/cpu_seconds_total",
    Unit::Seconds,
    PROCESS,
    "CPU time of the thread that takes these samples, since it started.",
);

/// Every metric of this crate, in the order of a tick.
pub const DESCS: &[Desc] = &[
    CPU_UTILIZATION,
    MEMORY_USED,
    MEMORY_UTILIZATION,
    DISK_TOTAL,
    DISK_FREE,
    DISK_UTILIZATION,
    PROCESS_RSS,
    PROCESS_CPU,
    PRESSURE_CPU,
    PRESSURE_MEMORY,
    PRESSURE_IO,
    TREE_RSS,
    TREE_CPU,
    CPU_THROTTLED,
    SELF_CPU,
];
