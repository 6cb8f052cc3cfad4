//! What the agent tells of itself.

use model::{Desc, Unit};

const HOST: &[&str] = &["host"];

/// The agent: its version.
pub const INFO: Desc = Desc::gauge(
    "truegauge_agent_info",
    Unit::None,
    &["host", "version"],
    "The agent that reports the node; its value is 1.",
);
/// Time between two looks.
pub const INTERVAL: Desc = Desc::gauge(
    "truegauge_agent_interval_seconds",
    Unit::Seconds,
    HOST,
    "Time between two looks at the node: what a rate over a window covers is told by it.",
);
/// Looks taken.
pub const LOOKS: Desc = Desc::counter(
    "truegauge_agent_looks_total",
    Unit::None,
    HOST,
    "Looks at the node since the agent began.",
);
/// Looks that came too late.
pub const SKIPPED: Desc = Desc::counter(
    "truegauge_agent_skipped_looks_total",
    Unit::None,
    HOST,
    "Looks that were left out, because the one before took longer than the interval.",
);
/// Time of looks.
pub const SECONDS: Desc = Desc::counter(
    "truegauge_agent_source_seconds_total",
    Unit::Seconds,
    &["host", "source"],
    "Time that looks took, waiting for the driver included, by part of the node.",
);
/// Looks at a part that ended in a panic.
pub const PANICS: Desc = Desc::counter(
    "truegauge_agent_source_panics_total",
    Unit::None,
    &["host", "source"],
    "Looks at a part of the node that failed by a fault of the agent's own.",
);
/// CPU time.
pub const CPU: Desc = Desc::counter(
    "truegauge_agent_cpu_seconds_total",
    Unit::Seconds,
    HOST,
    "CPU time of the agent's process.",
);
/// Memory.
pub const MEMORY: Desc = Desc::gauge(
    "truegauge_agent_resident_bytes",
    Unit::Bytes,
    HOST,
    "Resident memory of the agent's process, the driver's library included.",
);
/// What waits for the server.
pub const SPOOL: Desc =
    Desc::gauge("truegauge_agent_spool_bytes", Unit::Bytes, HOST, "Bytes on disk that wait for the server.");
/// Requests taken by the server.
pub const DELIVERED: Desc = Desc::counter(
    "truegauge_agent_delivered_requests_total",
    Unit::None,
    HOST,
    "Requests that the server has made durable.",
);
/// Attempts that failed.
pub const FAILED: Desc = Desc::counter(
    "truegauge_agent_push_failures_total",
    Unit::None,
    HOST,
    "Attempts to send a request that are made again, since the server was not to be had.",
);
/// What was lost.
pub const DROPPED: Desc = Desc::counter(
    "truegauge_agent_dropped_points_total",
    Unit::None,
    &["host", "reason"],
    "Points that are lost: refused by the disk, or by the server.",
);
/// Events that were lost.
pub const DROPPED_EVENTS: Desc = Desc::counter(
    "truegauge_agent_dropped_events_total",
    Unit::None,
    HOST,
    "Events that are lost, because too many waited for a disk that takes none.",
);
/// Driver calls that failed.
pub const GPU_FAILURES: Desc = Desc::counter(
    "truegauge_agent_gpu_failures_total",
    Unit::None,
    &["host", "reason"],
    "Values of cards that are there and could not be read.",
);
/// Whether the kernel's log is read.
pub const LOG_READABLE: Desc = Desc::gauge(
    "truegauge_agent_log_readable",
    Unit::None,
    HOST,
    "1 while the kernel's log is read, 0 while it cannot be; without a value when it is not asked for.",
);
/// Records that were never read.
pub const LOG_MISSED: Desc = Desc::counter(
    "truegauge_agent_log_missed_records_total",
    Unit::None,
    HOST,
    "Records of the kernel's log that were overwritten before they were read.",
);

/// Every metric of the agent's own.
pub const DESCS: &[Desc] = &[
    INFO,
    INTERVAL,
    LOOKS,
    SKIPPED,
    SECONDS,
    PANICS,
    CPU,
    MEMORY,
    SPOOL,
    DELIVERED,
    FAILED,
    DROPPED,
    DROPPED_EVENTS,
    GPU_FAILURES,
    LOG_READABLE,
    LOG_MISSED,
];

/// CPU seconds and resident bytes of this process.
#[cfg(target_os = "linux")]
pub(crate) fn usage() -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name stands in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user: f64 = fields.nth(11)?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    let pages: f64 = fields.nth(8)?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some(((user + system) / ticks, pages * rustix::param::page_size() as f64))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn usage() -> Option<(f64, f64)> {
    None
}
