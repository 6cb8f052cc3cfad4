//! The file systems of a machine's own disks.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use super::{MachineSink, MachineValue, sampler::Tick};
use crate::{host::Host, parse, pseudo_file::PseudoFile};

/// Kinds that have room of their own on a disk of the machine. Those over a network are left out: asking one
/// whose server is away may wait for ever.
const KINDS: [&[u8]; 9] =
    [b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"zfs", b"f2fs", b"bcachefs", b"reiserfs"];
/// Below these the mounts are those of containers, as many as there are volumes.
const CONTAINERS: [&[u8]; 4] =
    [b"/var/lib/kubelet/", b"/var/lib/docker/", b"/var/lib/containers/", b"/run/containerd/"];
/// Most file systems that are asked.
const MOUNTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct FileSystems {
    tables: [PseudoFile; 2],
    /// The table as it was when the mounts were found.
    table: Vec<u8>,
    mounts: Vec<(String, PathBuf)>,
}

impl FileSystems {
    pub(super) fn new(host: &Host) -> Self {
        let tables = ["1", "self"].map(|process| host.file(&format!("/proc/{process}/mountinfo")));
        Self { tables, table: Vec::new(), mounts: Vec::new() }
    }

    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        let table = first_of(&mut self.tables, tick);
        if let Some(table) = table.filter(|table| *table != self.table) {
            self.mounts = mounts(&table, tick.host);
            self.table = table;
        }
        for (mountpoint, path) in &self.mounts {
            // One that was unmounted meanwhile leaves the table.
            let Ok(found) = rustix::fs::statvfs(path) else { continue };
            let block = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
            if found.f_blocks > 0 {
                let (free, total) = (found.f_bavail * block, found.f_blocks * block);
                sink(MachineValue::FileSystem { mountpoint, free, total });
            }
        }
    }
}

/// The first of two files that can be read: process 1 is hidden from some.
pub(super) fn first_of(files: &mut [PseudoFile; 2], tick: &mut Tick<'_>) -> Option<Vec<u8>> {
    files
        .iter_mut()
        .find_map(|file| file.read(tick.buffer).ok().filter(|text| !text.is_empty()).map(<[u8]>::to_vec))
}

/// One mount of each file system: of several places the shortest.
fn mounts(table: &[u8], host: &Host) -> Vec<(String, PathBuf)> {
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for mount in parse::mounts(table) {
        let is_root = mount.point == b"/" && mount.kind == b"overlay";
        let is_containers = CONTAINERS.iter().any(|folder| mount.point.starts_with(folder));
        if is_containers || !(is_root || KINDS.contains(&mount.kind)) {
            continue;
        }
        let point = found.entry(mount.device.to_vec()).or_insert_with(|| mount.point.clone());
        if mount.point.len() < point.len() {
            *point = mount.point;
        }
    }
    let path = |point: &[u8]| host.path(point);
    let name = |point: &[u8]| OsStr::from_bytes(point).to_string_lossy().into_owned();
    found.values().take(MOUNTS_MAX).map(|point| (name(point), path(point))).collect()
}
