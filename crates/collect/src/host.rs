//! The machine that is read: the real one, or a folder that stands for one.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::pseudo_file::{Buffer, PseudoFile};

/// Longest host name kept, in bytes.
const HOSTNAME_BYTES_MAX: usize = 64;

/// Block counts of a filesystem, as `statvfs` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskBlocks {
    /// Size of one block in bytes (`f_frsize`).
    pub block_bytes: u64,
    /// Blocks in all (`f_blocks`).
    pub total: u64,
    /// Blocks nobody uses, the ones reserved for root included (`f_bfree`).
    pub free: u64,
    /// Blocks an ordinary user can still take (`f_bavail`).
    pub available: u64,
}

/// The machine that is read.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    disk: Option<DiskBlocks>,
}

impl Host {
    /// The machine this process runs on.
    pub fn real() -> Self {
        Self::at(Path::new("/"))
    }

    /// A folder as a machine: `proc/`, `sys/` and so on lie in it, and every path that a file of it
    /// names, such as a mount point in `proc/self/mountinfo`, is looked up under it.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), disk: None }
    }

    /// The same machine with these block counts for its root filesystem, instead of asking the
    /// filesystem its root lies on.
    #[must_use]
    pub fn with_disk(mut self, disk: DiskBlocks) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Version of the kernel; empty where it can't be read.
    pub fn kernel(&self) -> String {
        let path = self.path(b"/proc/sys/kernel/osrelease");
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    }

    /// The kernel's boot id: another one after each start of the machine, the same in all of its
    /// containers. Empty when it cannot be read or is no UUID.
    pub fn boot_id(&self) -> String {
        let path = self.path(b"/proc/sys/kernel/random/boot_id");
        let mut buffer = Buffer::new();
        let read = PseudoFile::read_once(&path, &mut buffer).unwrap_or_default().trim_ascii();
        let is_uuid = read.len() == 36 && read.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
        if is_uuid { String::from_utf8_lossy(read).into_owned() } else { String::new() }
    }

    /// How long the machine has been up, nanoseconds; `None` when it does not tell.
    pub fn uptime_ns(&self) -> Option<u64> {
        let mut buffer = Buffer::new();
        crate::parse::uptime_ns(PseudoFile::read_once(&self.path(b"/proc/uptime"), &mut buffer).ok()?)
    }

    /// Where an absolute path of the machine lies.
    pub(crate) fn path(&self, absolute: &[u8]) -> PathBuf {
        let relative = absolute.iter().position(|byte| *byte != b'/').map_or(&[][..], |at| &absolute[at..]);
        if relative.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(relative)) }
    }

    /// A file of the machine, not opened yet.
    pub(crate) fn file(&self, absolute: &str) -> PseudoFile {
        PseudoFile::new(self.path(absolute.as_bytes()))
    }

    /// Block counts of the root filesystem; the cause in words when it does not tell.
    pub(crate) fn disk(&self) -> Result<DiskBlocks, String> {
        if let Some(disk) = self.disk {
            return Ok(disk);
        }
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|error| format!("cannot ask the filesystem of `{}`: {error}", self.root.display()))?;
        // A few filesystems leave the fragment size at 0; the block size then counts.
        let block_bytes = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
        Ok(DiskBlocks { block_bytes, total: stat.f_blocks, free: stat.f_bfree, available: stat.f_bavail })
    }
}

/// Kernel ticks a second: the unit of CPU time in `/proc/*/stat` and `/proc/stat`.
pub(crate) fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Bytes of a page: the unit of resident memory in `/proc/self/statm`.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Name of this machine (`uname` nodename), cut to 64 bytes between two characters.
pub fn hostname() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    let mut end = name.len().min(HOSTNAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Operating system, its release and the architecture, such as `Linux 6.1.0-13-amd64 x86_64`.
pub fn platform() -> String {
    let uname = rustix::system::uname();
    [uname.sysname(), uname.release(), uname.machine()].map(|part| part.to_string_lossy()).join(" ")
}

/// CPU time of the calling thread since it started, in seconds; `None` off Linux.
///
/// The value of `system/self/cpu_seconds_total` when the sampler's thread asks.
pub fn thread_cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// The kernel's boot id, as [`Host::boot_id`] of the machine this process runs on.
pub fn boot_id() -> String {
    Host::real().boot_id()
}
