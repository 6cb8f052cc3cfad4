//! Which run reports which card, as the locks of our own clients tell
//! (`docs/decisions/0008-process-locks.md`).
//!
//! Only the folders of users whose files may be read: root sees all, an agent of its own user none but
//! its own. A container's locks are in a `/dev/shm` of its own and not seen; the server knows those runs
//! from what their processes report.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::files::entries;

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

/// Everybody who holds a lock on this boot of the machine.
pub(super) fn holders(places: &[PathBuf], boot_id: &str) -> Vec<Holder> {
    let boot: String = boot_id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let mut found = Vec::new();
    let users = places.iter().flat_map(|place| entries(place, ENTRIES_MAX)).filter(|path| is_users_own(path));
    for folder in users.flat_map(|user| entries(&user, ENTRIES_MAX)) {
        let Some(run_id) = run_of(&folder, &boot) else { continue };
        for path in entries(&folder, ENTRIES_MAX) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(lock) = name.strip_suffix(".lock") else { continue };
            if let Some(pid) = holder(&path) {
                let uuid = lock.strip_prefix("device-").map(str::to_owned);
                found.push(Holder { pid, run_id: run_id.clone(), uuid });
            }
        }
    }
    found
}

/// Whether a path is the folder that its name says, of the user that its name says.
fn is_users_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let user = name.and_then(|name| name.strip_prefix(USER_FOLDER)?.parse::<u32>().ok());
    user.is_some()
        && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && Some(found.uid()) == user)
}

/// The run of a folder `<name>-<run id>-<boot>`.
fn run_of(folder: &Path, boot: &str) -> Option<String> {
    let is_folder = std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir());
    let mut parts = folder.file_name()?.to_str()?.rsplitn(3, '-');
    let (theirs, run_id) = (parts.next()?, parts.next()?);
    (is_folder && theirs == boot).then(|| model::RunId::parse(run_id).map(|id| id.to_string()))?
}

/// Who holds a lock; a pipe or a link in its place is not waited for or followed.
fn holder(path: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let lock = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    u32::try_from(lock.pid?.as_raw_nonzero().get()).ok()
}
