//! What the numbers are measured against, for run attributes and `doctor`.

/// Which kind of cgroup hierarchies this process lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupMode {
    /// Version 1 hierarchies only.
    V1,
    /// The unified hierarchy only.
    V2,
    /// Both: controllers on version 1, a unified hierarchy beside them.
    Hybrid,
    /// No cgroup filesystem is visible.
    None,
}

impl CgroupMode {
    /// As a run attribute spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
            Self::None => "none",
        }
    }
}

/// What bounds the CPU capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuBound {
    /// A quota (`cpu.max`, `cpu.cfs_quota_us`).
    Quota,
    /// A set of CPUs (`cpuset.cpus.effective`).
    Cpuset,
    /// The affinity of the process, where no cgroup says anything.
    Affinity,
    /// The CPUs that are online.
    Online,
}

impl CpuBound {
    /// As a run attribute spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Cpuset => "cpuset",
            Self::Affinity => "affinity",
            Self::Online => "online",
        }
    }
}

/// What memory is measured against.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryFacts {
    /// Directory of the binding cgroup level; `/proc/meminfo` when nothing limits memory.
    pub path: String,
    /// The limit written at that level, in bytes; `None` when nothing limits memory.
    pub limit_bytes: Option<u64>,
    /// What utilisation is a share of: the limit, at most the host's memory. In bytes.
    pub ceiling_bytes: u64,
    /// How many levels of the hierarchy are visible.
    pub levels: usize,
}

/// What CPU is measured against.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuFacts {
    /// The file the CPU time is read from.
    pub path: String,
    /// What utilisation is a share of, in CPUs; may be a fraction.
    pub capacity_cpus: f64,
    /// What bounds it.
    pub source: CpuBound,
    /// How many levels of the hierarchy are visible.
    pub levels: usize,
}

/// What the numbers of a node sampler are measured against.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupFacts {
    /// Kind of hierarchies.
    pub mode: CgroupMode,
    /// Memory; `None` when neither a cgroup nor the host tells.
    pub memory: Option<MemoryFacts>,
    /// CPU; `None` when neither a cgroup nor the host tells.
    pub cpu: Option<CpuFacts>,
    /// What could not be read, as texts of [`crate::Failure::cause`].
    pub problems: Vec<String>,
}

/// Reads once what the numbers of `host` are measured against.
#[cfg(tg_linux)]
pub fn facts(host: &crate::Host) -> CgroupFacts {
    crate::node::NodeSampler::new(host.clone()).facts()
}
