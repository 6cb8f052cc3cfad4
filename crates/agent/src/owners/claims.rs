//! Which run reports which card, as the locks of our own clients tell
//! (`docs/decisions/0008-process-locks.md`).
//!
//! Only the folders of users whose files may be read: root sees all, an agent of its own user none but
//! its own. A container's locks are in a `/dev/shm` of its own and not seen; the server knows those runs
//! from what their processes report.
//!
//! Folders of runs stay for days. A look reads the kernel's list of locks once and opens only files that are
//! in it; the files of a folder are listed again when it was changed.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::files::{entries, read_bytes};

/// Start of the name of a user's folder; the user's number is the rest.
const USER_FOLDER: &str = "truegauge-claims-";
/// Most entries of a folder that are looked at: the places are open to everybody.
const ENTRIES_MAX: usize = 4_096;

/// A process that holds a lock of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) run_id: String,
    /// The card; `None` for the node's lock.
    pub(super) uuid: Option<String>,
}

/// Longest list of locks that is read.
const LOCKS_BYTES_MAX: u64 = 1 << 20;
/// A folder that was changed as recently as this may change again and keep its time.
const SETTLED: Duration = Duration::from_secs(2);

/// Finds who holds locks, and remembers which files there are.
#[derive(Debug)]
pub(super) struct Claims {
    places: Vec<PathBuf>,
    /// The kernel's list of locks.
    held: PathBuf,
    /// The first digits of the boot's id, as folders end on them.
    boot: String,
    folders: HashMap<PathBuf, Folder>,
}

/// The locks of a run.
#[derive(Debug)]
struct Folder {
    run_id: String,
    /// When it was changed, where that is known to say whether it changes.
    changed: Option<SystemTime>,
    locks: Vec<Lock>,
}

/// The file of a lock.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    inode: u64,
    uuid: Option<String>,
}

impl Claims {
    /// For locks in these places, on this boot of the machine.
    pub(super) fn new(places: &[PathBuf], proc: &Path, boot_id: &str) -> Self {
        let boot = boot_id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        Self { places: places.to_vec(), held: proc.join("locks"), boot, folders: HashMap::new() }
    }

    /// Everybody who holds a lock on this boot of the machine.
    pub(super) fn holders(&mut self) -> Vec<Holder> {
        let held = held(&self.held);
        let is_held = |lock: &&Lock| held.as_ref().is_none_or(|held| held.contains(&lock.inode));
        let mut before = std::mem::take(&mut self.folders);
        let mut found = Vec::new();
        let users = self.places.iter().flat_map(|place| entries(place, ENTRIES_MAX));
        for path in users.filter(|path| is_users_own(path)).flat_map(|user| entries(&user, ENTRIES_MAX)) {
            let Some(folder) = folder(&path, before.remove(&path), &self.boot) else { continue };
            for lock in folder.locks.iter().filter(is_held) {
                if let Some(pid) = holder(&lock.path) {
                    let (run_id, uuid) = (folder.run_id.clone(), lock.uuid.clone());
                    found.push(Holder { pid, run_id, uuid });
                }
            }
            self.folders.insert(path, folder);
        }
        found
    }
}

/// The numbers of the files that the kernel knows locks of; `None` when it doesn't say. File systems may name
/// their device otherwise here than to who asks for a file, so that the numbers are of any.
fn held(path: &Path) -> Option<HashSet<u64>> {
    let bytes = read_bytes(path, LOCKS_BYTES_MAX).filter(|bytes| (bytes.len() as u64) < LOCKS_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes).ok()?;
    // `1: POSIX  ADVISORY  WRITE 29060 fe:00:10109494 0 EOF`; who waits has `->` before the kind.
    let inode =
        |line: &str| line.split_ascii_whitespace().find_map(|word| word.splitn(3, ':').nth(2)?.parse().ok());
    Some(text.lines().filter_map(inode).collect())
}

/// The locks in a folder of a run, as they are known where it has not changed.
fn folder(path: &Path, known: Option<Folder>, boot: &str) -> Option<Folder> {
    let run_id = run_of(path, boot)?;
    let about = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_dir)?;
    let changed = about.modified().ok();
    if let Some(known) = known.filter(|known| known.changed.is_some() && known.changed == changed) {
        return Some(known);
    }
    let is_settled = |time: &SystemTime| time.elapsed().is_ok_and(|age| age > SETTLED);
    let locks = entries(path, ENTRIES_MAX).into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".lock")?;
        let uuid = name.strip_prefix("device-").map(str::to_owned);
        let inode = std::fs::symlink_metadata(&path).ok()?.ino();
        Some(Lock { path, inode, uuid })
    });
    Some(Folder { run_id, changed: changed.filter(is_settled), locks: locks.collect() })
}

/// Whether a path is the folder that its name says, of the user that its name says.
fn is_users_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let user = name.and_then(|name| name.strip_prefix(USER_FOLDER)?.parse::<u32>().ok());
    user.is_some()
        && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && Some(found.uid()) == user)
}

/// The run of a folder `<name>-<run id>-<boot>`, as its name says.
fn run_of(folder: &Path, boot: &str) -> Option<String> {
    let mut parts = folder.file_name()?.to_str()?.rsplitn(3, '-');
    let (theirs, run_id) = (parts.next()?, parts.next()?);
    (theirs == boot).then(|| model::RunId::parse(run_id).map(|id| id.to_string()))?
}

/// Who holds a lock; a pipe or a link in its place is not waited for or followed.
fn holder(path: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let lock = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    u32::try_from(lock.pid?.as_raw_nonzero().get()).ok()
}
