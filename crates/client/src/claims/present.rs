//! Which processes of which runs report something on this machine, as their locks tell.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Most folders and files that are looked into: a place open to everybody may hold anything.
const LOOKED_AT_MAX: usize = 4096;

/// A process that reports something for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Its ID.
    pub pid: u32,
    /// The run's name, what is unusual in it as `_`, cut.
    pub run: String,
    /// The run's id.
    pub run_id: String,
}

/// The processes that hold a lock now, of every user whose folder can be read.
///
/// Not for a process that holds claims itself: the kernel lets go of them when it closes any descriptor
/// of their files.
pub fn present() -> Vec<Present> {
    let boot: String = collect::boot_id().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let mut found = Vec::new();
    for place in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        let is_ours = |name: &str| name.starts_with("truegauge-claims-");
        for (_, user) in folders(place).filter(|(name, _)| is_ours(name)) {
            for (key, run) in folders(&user) {
                look(&run, &key, &boot, &mut found);
            }
        }
    }
    found
}

/// The entries of a folder: name and path.
fn folders(folder: &Path) -> impl Iterator<Item = (String, std::path::PathBuf)> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKED_AT_MAX);
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.path())))
}

/// Reads the locks of one run's folder.
fn look(folder: &Path, key: &str, boot: &str, found: &mut Vec<Present>) {
    let mut parts = key.rsplitn(3, '-');
    let (Some(theirs), Some(run_id), Some(run)) = (parts.next(), parts.next(), parts.next()) else { return };
    if theirs != boot || model::RunId::parse(run_id).is_none() {
        return;
    }
    let is_lock = |path: &Path| path.extension().is_some_and(|extension| extension == "lock");
    for (_, path) in folders(folder).filter(|(_, path)| is_lock(path)) {
        let pid = holder(&path);
        if let Some(pid) = pid.filter(|pid| found.iter().all(|known| known.pid != *pid)) {
            found.push(Present { pid, run: run.to_owned(), run_id: run_id.to_owned() });
        }
    }
}

/// Who holds a lock, by the process ID that it has for us; a pipe or a link in its place is not waited for
/// or followed.
fn holder(path: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let lock = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    u32::try_from(lock.pid?.as_raw_nonzero().get()).ok()
}
