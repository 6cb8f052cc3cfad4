//! What autocapture of one process found, does and leaves to others: why a chart is there or is not.

/// Prefix of the run attributes that hold reports, one for each process: then the host, a slash, and
/// [`CaptureReport::who`].
pub const CAPTURE_PREFIX: &str = "capture/";

/// How processes of a run agree on who reports what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arbitration {
    /// Kernel locks under `/dev/shm`.
    Shm,
    /// Kernel locks in the folder for temporary files.
    Tmp,
    /// No usable folder: the local rank decides.
    Unavailable,
    /// Nothing was arbitrated: capture is off or cannot be had here.
    #[default]
    None,
}

impl Arbitration {
    /// As the attribute `system/arbitration_mode` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tmp => "tmp",
            Self::Unavailable => "unavailable",
            Self::None => "none",
        }
    }
}

/// Whether and how a process samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptureState {
    /// It samples.
    #[default]
    Sampling,
    /// It was switched off, by an argument or a variable.
    Off,
    /// This platform is not captured.
    NotLinux,
    /// It could not start; why.
    NotStarted(String),
    /// It ended after this many failed ticks in a row.
    Ended {
        /// Ticks that failed.
        failed_ticks: u32,
        /// What the last one failed of.
        cause: String,
    },
}

/// Another process of the run, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CaptureOwner {
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its rank in the job.
    pub rank: Option<u32>,
}

/// Who reports the node's own series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodeRole {
    /// This process.
    Reports,
    /// Another process of this node.
    Other(CaptureOwner),
    /// Nobody yet, as far as this process knows.
    #[default]
    Unknown,
}

/// What a process has to do with one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceRole {
    /// It reports the device.
    Owned,
    /// Another process does.
    Other(CaptureOwner),
    /// It is visible, nobody has claimed it, and the grace for slower ranks is not over.
    Waiting,
    /// It is not among the devices that this process was given.
    NotVisible,
    /// It is partitioned with MIG and never sampled.
    Mig,
    /// The driver counts it and cannot name it; why.
    Unreadable(String),
    /// The server has it from another process of this run, which shares the device and no lock.
    ReportedElsewhere(CaptureOwner),
}

/// A device of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureDevice {
    /// The driver's index: the label `gpu`.
    pub gpu: u32,
    /// UUID; empty when unreadable.
    pub uuid: String,
    /// Model name.
    pub model: String,
    /// Place on the bus as `dddd:bb:dd.f`; empty when unknown.
    pub pci_bus_id: String,
    /// CUDA compute capability, such as `9.0`; empty when unknown.
    pub compute_capability: String,
    /// What its used memory counts, in words.
    pub memory_account: String,
    /// What this process has to do with it.
    pub role: DeviceRole,
    /// Display names of series that the device does not have.
    pub unsupported: Vec<String>,
}

/// What became of the driver's library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DriverState {
    /// Not asked: it was not looked for yet.
    #[default]
    Unknown,
    /// It answers; its version, empty when it does not tell.
    Loaded(String),
    /// It cannot be used.
    Absent {
        /// Bounded word for the reason, such as `no_library` or `not_permitted`.
        reason: String,
        /// The reason in a sentence.
        text: String,
        /// What to do about it.
        hint: String,
    },
}

/// A series that this process would report and cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFailure {
    /// Display name of the series; the first one where a source feeds several.
    pub metric: String,
    /// The driver's index of the device, for a GPU series.
    pub gpu: Option<u32>,
    /// Bounded word for the reason: `unreadable`, or what the series was refused for, such as
    /// `series_limit`.
    pub reason: String,
    /// What could not be done, to what, and what was found.
    pub cause: String,
    /// Whether it is only asked now and then, after failing five times in a row.
    pub backing_off: bool,
}

/// What the node's own numbers are measured against; only from the process that reports them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CaptureLimits {
    /// Kind of cgroup hierarchies: `v1`, `v2`, `hybrid` or `none`.
    pub cgroup_mode: String,
    /// Directory of the level that memory is measured at.
    pub memory_measured_at: String,
    /// What memory utilisation is a share of, bytes.
    pub memory_ceiling_bytes: Option<u64>,
    /// The file that CPU time is read from.
    pub cpu_measured_at: String,
    /// What CPU utilisation is a share of, in CPUs.
    pub cpu_capacity_cpus: Option<f64>,
}

/// What autocapture of one process found and does. Sent again whenever it changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CaptureReport {
    /// Host name, as in the label `host`.
    pub host: String,
    /// The kernel's boot id, the same in all containers of a machine; empty when unreadable.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Rank on the node.
    pub local_rank: Option<u32>,
    /// When this was found, nanoseconds since the epoch.
    pub time_ns: i64,
    /// When this process began to sample, nanoseconds since the epoch.
    pub started_ns: i64,
    /// Whether it samples.
    pub state: CaptureState,
    /// What switched it off, as code: a variable's name or an argument; empty where it is on.
    pub switched_off_by: String,
    /// Whether it only wraps a command: it samples that command's processes and has no series of its own.
    pub wraps_command: bool,
    /// Seconds between two samples.
    pub interval_seconds: f64,
    /// How ownership was settled.
    pub arbitration: Arbitration,
    /// Which folder holds its locks: equal for two processes of a machine exactly when each sees the
    /// other's locks; empty where there is none.
    pub lock_domain: String,
    /// Who reports the node.
    pub node: NodeRole,
    /// The driver's library.
    pub driver: DriverState,
    /// How CUDA numbers the devices for this process: `FASTEST_FIRST`, `PCI_BUS_ID`, or what was used
    /// instead and why.
    pub cuda_device_order: String,
    /// How it was found which devices are this process's own, in words.
    pub ownership: String,
    /// Every device of the driver.
    pub devices: Vec<CaptureDevice>,
    /// What the node's numbers are measured against.
    pub limits: Option<CaptureLimits>,
    /// Series that could not be read or were refused.
    pub failures: Vec<CaptureFailure>,
}

impl CaptureReport {
    /// Who speaks, on its host: `rank-3`, else `pid-4711`.
    pub fn who(&self) -> String {
        self.rank.map_or_else(|| format!("pid-{}", self.pid), |rank| format!("rank-{rank}"))
    }

    /// Key of the run attribute that holds it.
    pub fn attribute(&self) -> String {
        format!("{CAPTURE_PREFIX}{}/{}", self.host, self.who())
    }
}
