//! The face of this crate where there is no Linux: everything is there and yields nothing.

use std::path::Path;

use crate::{CgroupFacts, CgroupMode, Failure, Sink};

/// Block counts of a filesystem, as `statvfs` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskBlocks {
    /// Size of one block in bytes.
    pub block_bytes: u64,
    /// Blocks in all.
    pub total: u64,
    /// Blocks nobody uses, the reserved ones included.
    pub free: u64,
    /// Blocks an ordinary user can still take.
    pub available: u64,
}

/// A machine that is not read.
#[derive(Debug, Clone, Default)]
pub struct Host;

impl Host {
    /// The machine this process runs on.
    pub fn real() -> Self {
        Self
    }

    /// A folder as a machine.
    pub fn at(_root: &Path) -> Self {
        Self
    }

    /// The same machine with these block counts.
    #[must_use]
    pub fn with_disk(self, _disk: DiskBlocks) -> Self {
        self
    }

    /// Unknown here: empty.
    pub fn kernel(&self) -> String {
        String::new()
    }

    /// Unknown here: empty.
    pub fn boot_id(&self) -> String {
        String::new()
    }

    /// Unknown here.
    pub fn uptime_ns(&self) -> Option<u64> {
        None
    }
}

/// Yields nothing.
#[derive(Debug, Default)]
pub struct NodeSampler;

impl NodeSampler {
    /// A sampler that yields nothing.
    pub fn new(_host: Host) -> Self {
        Self
    }

    /// Yields nothing.
    pub fn sample(&mut self, _monotonic_ns: u64, _sink: &mut Sink<'_>) {}

    /// Yields nothing.
    pub fn sample_extras(&mut self, _monotonic_ns: u64, _sink: &mut Sink<'_>) {}

    /// Always empty.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        Vec::new()
    }
}

/// Yields nothing.
#[derive(Debug, Default)]
pub struct ProcessSampler;

impl ProcessSampler {
    /// A sampler that yields nothing.
    pub fn new(_host: Host) -> Self {
        Self
    }

    /// A sampler that yields nothing.
    pub fn of(_host: Host, _pid: u32) -> Self {
        Self
    }

    /// Yields nothing.
    pub fn sample(&mut self, _monotonic_ns: u64, _sink: &mut Sink<'_>) {}

    /// Yields nothing.
    pub fn sample_extras(&mut self, _monotonic_ns: u64, _sink: &mut Sink<'_>) {}

    /// Always empty.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        Vec::new()
    }
}

/// No cgroups, nothing known.
pub fn facts(_host: &Host) -> CgroupFacts {
    CgroupFacts { mode: CgroupMode::None, memory: None, cpu: None, problems: Vec::new() }
}

/// Name of this machine as the environment gives it, at most 64 bytes; `unknown` without one.
pub fn hostname() -> String {
    let name = ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|key| std::env::var(key).ok());
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned());
    let mut end = name.len().min(64);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Unknown here: empty.
pub fn boot_id() -> String {
    Host::real().boot_id()
}

/// Operating system and architecture, such as `macos aarch64`.
pub fn platform() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Unknown here.
pub fn thread_cpu_seconds() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_yield_nothing_and_fail_at_nothing() {
        const { assert!(!crate::SUPPORTED) };
        let mut values = 0;
        for host in [Host::real(), Host::at(Path::new("/"))] {
            let mut node = NodeSampler::new(host.clone());
            let mut process = ProcessSampler::new(host);
            for at_ns in [0, 1_000_000_000] {
                node.sample(at_ns, &mut |_, _| values += 1);
                node.sample_extras(at_ns, &mut |_, _| values += 1);
                process.sample(at_ns, &mut |_, _| values += 1);
                process.sample_extras(at_ns, &mut |_, _| values += 1);
            }
            assert!(node.take_failures().is_empty() && process.take_failures().is_empty());
        }
        assert_eq!(values, 0);
    }

    #[test]
    fn the_machine_still_has_a_name() {
        assert!(!hostname().is_empty() && !platform().is_empty());
        assert_eq!(facts(&Host::real()).mode, CgroupMode::None);
        assert_eq!(thread_cpu_seconds(), None);
    }
}

/// Yields nothing.
#[derive(Debug, Default)]
pub struct MachineSampler;

impl MachineSampler {
    /// A sampler that yields nothing.
    pub fn new(_host: Host) -> Self {
        Self
    }

    /// Emits nothing.
    pub fn sample(&mut self, _sink: &mut crate::machine::MachineSink<'_>) {}

    /// Nothing.
    pub fn take_problems(&mut self) -> Vec<String> {
        Vec::new()
    }
}
