//! The CPU quota of one cgroup.

use crate::{
    cgroup::Level,
    parse,
    pseudo_file::{Buffer, PseudoFile},
};

/// The files that hold a quota.
#[derive(Debug)]
pub(crate) enum Quota {
    /// `cpu.max`.
    Unified(PseudoFile),
    /// One file for each number.
    V1 {
        /// `cpu.cfs_quota_us`.
        quota: PseudoFile,
        /// `cpu.cfs_period_us`.
        period: PseudoFile,
    },
}

/// CPU time that may be used in each period, in microseconds; neither is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) quota_us: u64,
    pub(crate) period_us: u64,
}

impl Slice {
    pub(crate) fn new(quota_us: u64, period_us: u64) -> Option<Self> {
        (quota_us > 0 && period_us > 0).then_some(Self { quota_us, period_us })
    }

    /// How many CPUs it is worth.
    pub(crate) fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

impl Quota {
    pub(crate) fn of(level: &Level) -> Self {
        let file = |name: &str| PseudoFile::new(level.directory.join(name));
        if level.unified {
            return Self::Unified(file("cpu.max"));
        }
        Self::V1 { quota: file("cpu.cfs_quota_us"), period: file("cpu.cfs_period_us") }
    }

    /// What it leaves; `None` when there is no quota.
    pub(crate) fn slice(&mut self, buffer: &mut Buffer) -> Option<Slice> {
        match self {
            Self::Unified(file) => parse::cpu_max(file.read(buffer).ok()?),
            Self::V1 { quota, period } => {
                // `-1`, which is no number here, stands for none; the period is then not asked.
                let quota = parse::number(quota.read(buffer).ok()?)?;
                Slice::new(quota, parse::number(period.read(buffer).ok()?)?)
            }
        }
    }
}
