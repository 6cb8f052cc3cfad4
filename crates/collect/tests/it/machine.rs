//! A folder that stands for a machine, and a clock that a test turns.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use collect::{Failure, Host, NodeSampler, ProcessSampler};
use tempfile::TempDir;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Values of one tick by metric name.
pub(crate) type Tick = BTreeMap<&'static str, f64>;

/// A made-up machine. Counters move only when a test moves them.
pub(crate) struct Machine {
    folder: TempDir,
    mountinfo: Vec<u8>,
    mounts: u32,
}

impl Machine {
    /// 64 CPUs online, 64 GiB of memory, half of it free, no cgroups.
    pub(crate) fn new() -> Self {
        let machine = Self::bare();
        machine.write("sys/devices/system/cpu/online", "0-63\n");
        machine.write("proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n");
        machine
    }

    /// An empty folder.
    pub(crate) fn bare() -> Self {
        Self { folder: TempDir::new().unwrap(), mountinfo: Vec::new(), mounts: 0 }
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(self.root())
    }

    pub(crate) fn node(&self) -> NodeSampler {
        NodeSampler::new(self.host())
    }

    pub(crate) fn process(&self) -> ProcessSampler {
        ProcessSampler::new(self.host())
    }

    pub(crate) fn path(&self, path: impl AsRef<[u8]>) -> PathBuf {
        self.root().join(OsStr::from_bytes(path.as_ref()))
    }

    pub(crate) fn write(&self, path: impl AsRef<[u8]>, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn write_all(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            self.write(format!("{folder}/{name}"), text);
        }
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Sets `/proc/self/cgroup`.
    pub(crate) fn cgroup(&self, text: impl AsRef<[u8]>) {
        self.write("proc/self/cgroup", text);
    }

    /// Adds a mounted hierarchy; `kind` is `cgroup` or `cgroup2`, `options` those of its superblock.
    pub(crate) fn mount(
        &mut self,
        kind: &str,
        root: impl AsRef<[u8]>,
        point: impl AsRef<[u8]>,
        options: &str,
    ) {
        self.mounts += 1;
        let id = 30 + self.mounts;
        self.mountinfo.extend_from_slice(format!("{id} 25 0:{id} ").as_bytes());
        self.mountinfo.extend_from_slice(root.as_ref());
        self.mountinfo.push(b' ');
        self.mountinfo.extend_from_slice(point.as_ref());
        self.mountinfo.extend_from_slice(
            format!(" rw,nosuid,relatime shared:9 master:3 - {kind} {kind} rw,{options}\n").as_bytes(),
        );
        self.write("proc/self/mountinfo", &self.mountinfo);
    }

    /// The unified hierarchy at its usual place.
    pub(crate) fn mount_unified(&mut self) {
        self.mount("cgroup2", "/", "/sys/fs/cgroup", "nsdelegate");
    }
}

/// One tick of the eight node series.
pub(crate) fn node_tick(sampler: &mut NodeSampler, at_ns: u64) -> Tick {
    let mut tick = Tick::new();
    sampler
        .sample(at_ns, &mut |desc, value| assert!(tick.insert(desc.name, value).is_none(), "{}", desc.name));
    tick
}

/// One tick of the process series.
pub(crate) fn process_tick(sampler: &mut ProcessSampler, at_ns: u64) -> Tick {
    let mut tick = Tick::new();
    sampler
        .sample(at_ns, &mut |desc, value| assert!(tick.insert(desc.name, value).is_none(), "{}", desc.name));
    tick
}

/// CPU, used bytes and memory utilisation of a tick; `None` for each that is absent.
pub(crate) fn node_values(tick: &Tick) -> (Option<f64>, Option<f64>, Option<f64>) {
    let value = |name| tick.get(name).copied();
    (value("system/cpu/utilization"), value("system/memory/used_bytes"), value("system/memory/utilization"))
}

/// Causes of failures, one a line.
pub(crate) fn causes(failures: &[Failure]) -> String {
    failures.iter().map(|failure| failure.cause.as_str()).collect::<Vec<_>>().join("\n")
}

#[track_caller]
pub(crate) fn assert_near(value: Option<f64>, wanted: f64) {
    let value = value.expect("the series is absent");
    assert!((value - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{value} is not {wanted}");
}
