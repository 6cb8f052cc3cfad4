//! Reasons, each with what tells one case of it from another: what is equal here becomes one row.

use model::CaptureOwner;

/// How a reading failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unread {
    /// In no way that is known by a word of its own.
    Somehow,
    /// The driver keeps it to administrators.
    NoPermission,
    /// The driver did not answer in time, and the device is left alone until it does.
    NoAnswer,
    /// The device is gone.
    GpuLost,
}

/// Why something is missing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// The driver's library can't be used.
    Driver { reason: &'static str, text: String, hint: String, is_alarm: bool },
    /// The driver answers and has no device.
    NoDevices { version: String },
    /// The driver was asked and has not answered.
    DriverSilent { is_late: bool },
    /// The device does not have it.
    Unsupported { model: String, is_extra: bool },
    /// The device is partitioned.
    Mig,
    /// The device was not given to the run.
    NotAllocated { given: usize, total: usize, found_by: String },
    /// Another process holds it and has not sent it.
    Owned { owner: CaptureOwner, is_known: bool },
    /// The server has it from another process, under another host perhaps.
    Elsewhere { owner: CaptureOwner },
    /// The driver can't name the device.
    UnreadableDevice { cause: String },
    /// A source can't be read.
    Unreadable { reason: Unread, cause: String, is_backing_off: bool },
    /// The server or the client refuses it.
    Refused { reason: String, cause: String },
    /// The sampler gave up.
    SamplerEnded { failed_ticks: u32, cause: String },
    /// The sampler could not start.
    NotStarted { cause: String },
    /// Capture is switched off.
    Off { by: String },
    /// The platform is not captured.
    NotLinux,
    /// It takes two readings, and there was one.
    Interval { seconds: u32, is_over: bool },
    /// The first sample is on its way.
    Starting,
    /// It ended before its first sample.
    TooShort,
    /// The grace for slower ranks is not over.
    Grace,
    /// It is over, and nobody took the device.
    Unclaimed,
    /// Nobody on the node reports it.
    NodeUnclaimed { is_late: bool },
    /// No locks can be had, and the process that speaks for the node without them is not there.
    NoLocks,
    /// The process that reported it fell silent.
    ProcessEnded,
    /// There is no report of capture.
    NoReport { client: String },
    /// No process of the run is known.
    NoSession { driver: String },
    /// Several machines go by one name.
    HostNameShared { machines: usize },
    /// None of the above.
    Unexplained,
}
