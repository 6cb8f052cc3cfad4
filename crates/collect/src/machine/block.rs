//! The disks of a machine. Parts of disks, and what is put together of disks, would count the same again.

use std::collections::BTreeMap;

use super::{MachineSink, MachineValue, sampler::Tick};
use crate::{host::Host, parse, pseudo_file::PseudoFile};

/// A sector, whatever the disk's own size of one.
const SECTOR_BYTES: u64 = 512;
/// Most disks that are told.
const DISKS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Disks {
    stats: PseudoFile,
    /// Whether a name is that of a disk, as far as it was looked up.
    known: BTreeMap<String, bool>,
}

impl Disks {
    pub(super) fn new(host: &Host) -> Self {
        Self { stats: host.file("/proc/diskstats"), known: BTreeMap::new() }
    }

    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        let host = tick.host;
        let Some(text) = tick.text(&mut self.stats) else { return };
        let mut told = 0;
        for disk in parse::disk_stats(text) {
            let is_disk = *self.known.entry(disk.name.to_owned()).or_insert_with(|| {
                // The name of a controller's disk has slashes, which sysfs cannot have.
                let name = disk.name.replace('/', "!");
                host.path(format!("/sys/block/{name}/device").as_bytes()).exists()
            });
            if is_disk && told < DISKS_MAX {
                told += 1;
                sink(MachineValue::Disk {
                    device: disk.name,
                    read: disk.sectors_read * SECTOR_BYTES,
                    written: disk.sectors_written * SECTOR_BYTES,
                    busy_seconds: disk.busy_ms as f64 / 1e3,
                });
            }
        }
        if self.known.len() > 4 * DISKS_MAX {
            // Names that came and went.
            self.known.clear();
        }
    }
}
