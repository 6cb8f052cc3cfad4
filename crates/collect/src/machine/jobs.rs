//! The cgroups of jobs: Slurm's and the pods of Kubernetes, under version 1 and 2 and both at a time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{JobValue, MachineSink, MachineValue, rdma::names, sampler::Tick};
use crate::{parse, pseudo_file::PseudoFile};

/// Most jobs that are read; more at a time are on no machine.
const JOBS_MAX: usize = 1024;
/// How deep below the root a job may stand.
const DEPTH_MAX: usize = 5;

/// Reads cgroups of jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    open: BTreeMap<PathBuf, Job>,
}

#[derive(Debug)]
struct Job {
    id: String,
    files: Vec<(PseudoFile, Kind)>,
    is_seen: bool,
}

/// What a file holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    CpuMicroseconds,
    CpuNanoseconds,
    Used,
    Limit,
    LimitOfVersion1,
}

const UNIFIED: [(&str, Kind); 3] =
    [("cpu.stat", Kind::CpuMicroseconds), ("memory.current", Kind::Used), ("memory.max", Kind::Limit)];
const MEMORY: [(&str, Kind); 2] =
    [("memory.usage_in_bytes", Kind::Used), ("memory.limit_in_bytes", Kind::LimitOfVersion1)];
const CPU: [(&str, Kind); 1] = [("cpuacct.usage", Kind::CpuNanoseconds)];

impl Jobs {
    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        self.open.values_mut().for_each(|job| job.is_seen = false);
        let root = tick.host.path(b"/sys/fs/cgroup");
        if root.join("cgroup.controllers").exists() {
            self.walk(&root, &UNIFIED, 0);
        } else {
            self.walk(&root.join("memory"), &MEMORY, 0);
            let cpu = ["cpuacct", "cpu,cpuacct"].map(|name| root.join(name));
            if let Some(cpu) = cpu.iter().find(|folder| folder.is_dir()) {
                self.walk(cpu, &CPU, 0);
            }
        }
        self.open.retain(|_, job| job.is_seen);
        for job in self.open.values_mut() {
            for (file, kind) in &mut job.files {
                if let Some(what) = tick.text(file).and_then(|text| kind.value(text)) {
                    sink(MachineValue::Job { job_id: &job.id, what });
                }
            }
        }
    }

    /// Looks for jobs below a folder: only into those that hold some.
    fn walk(&mut self, folder: &Path, files: &[(&str, Kind)], depth: usize) {
        for name in names(folder) {
            let path = folder.join(&name);
            if let Some(id) = job_of(&name) {
                self.see(path, id, files);
            } else if depth < DEPTH_MAX && holds_jobs(&name) {
                self.walk(&path, files, depth + 1);
            }
        }
    }

    fn see(&mut self, path: PathBuf, id: String, files: &[(&str, Kind)]) {
        if self.open.len() >= JOBS_MAX && !self.open.contains_key(&path) {
            return;
        }
        let file = |(name, kind): &(&str, Kind)| (PseudoFile::new(path.join(name)), *kind);
        let files = files.iter().map(file).collect();
        self.open.entry(path).or_insert(Job { id, files, is_seen: true }).is_seen = true;
    }
}

impl Kind {
    fn value(self, text: &[u8]) -> Option<JobValue> {
        let cpu = |count: u64, per_second: f64| JobValue::CpuSeconds(count as f64 / per_second);
        match self {
            Self::CpuMicroseconds => Some(cpu(parse::field(text, b"usage_usec")?, 1e6)),
            Self::CpuNanoseconds => Some(cpu(parse::number(text)?, 1e9)),
            Self::Used => parse::number(text).map(JobValue::MemoryUsed),
            Self::Limit => parse::memory_max(text).map(JobValue::MemoryLimit),
            Self::LimitOfVersion1 => parse::limit_in_bytes(text).map(JobValue::MemoryLimit),
        }
    }
}

/// Which job a cgroup of this name is of: `job_17` of Slurm; of Kubernetes `pod8f3c...` or
/// `kubepods-burstable-pod8f3c_....slice`.
fn job_of(name: &str) -> Option<String> {
    if let Some(id) = name.strip_prefix("job_") {
        return (!id.is_empty() && id.len() < 32 && id.bytes().all(|b| b.is_ascii_digit()))
            .then(|| id.to_owned());
    }
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let id = if name.starts_with("kubepods") || name.starts_with("kubelet-kubepods") {
        name.rsplit_once("-pod")?.1
    } else {
        name.strip_prefix("pod")?
    };
    let id = id.replace('_', "-");
    let is_id = (8..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_id.then(|| format!("pod-{id}"))
}

fn holds_jobs(name: &str) -> bool {
    let is_level = ["system.slice", "burstable", "besteffort", "kubelet.slice", "kubelet"].contains(&name);
    is_level || name.starts_with("uid_") || name.contains("slurm") || name.contains("kubepods")
}
