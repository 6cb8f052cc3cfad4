//! Which processes of which runs report something on this machine, as their locks tell.

use std::fs::DirEntry;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Start of the name of a user's folder; the user's number is the rest.
const USER_FOLDER: &str = "truegauge-claims-";
/// Most entries of a place that are looked at, and most of all that one user has there: a place open to
/// everybody may hold anything.
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
    present_in(&[Path::new("/dev/shm"), &std::env::temp_dir()])
}

/// [`present`], as these places tell. For tests.
#[doc(hidden)]
pub fn present_in(places: &[&Path]) -> Vec<Present> {
    let boot: String = collect::boot_id().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let mut found = Vec::new();
    for place in places {
        let mut left = LOOKED_AT_MAX;
        for user in entries(place, &mut left).iter().filter(|user| is_users_own(user)) {
            let mut left = LOOKED_AT_MAX;
            for run in entries(&user.path(), &mut left) {
                look(&run, &boot, (&mut left, &mut found));
            }
        }
    }
    found
}

/// The entries of a folder, as many as are left to be looked at.
fn entries(folder: &Path, left: &mut usize) -> Vec<DirEntry> {
    let entries: Vec<DirEntry> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().take(*left).collect();
    *left -= entries.len();
    entries
}

/// Whether it is the folder that its name says, of the user that its name says: so nobody has many.
fn is_users_own(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let user = name.to_str().and_then(|name| name.strip_prefix(USER_FOLDER)?.parse::<u32>().ok());
    entry.metadata().is_ok_and(|found| found.is_dir() && Some(found.uid()) == user)
}

/// Reads the locks of one run's folder; of a link in its place nothing.
fn look(folder: &DirEntry, boot: &str, (left, found): (&mut usize, &mut Vec<Present>)) {
    let name = folder.file_name();
    let Some(key) = name.to_str().filter(|_| folder.file_type().is_ok_and(|kind| kind.is_dir())) else {
        return;
    };
    let mut parts = key.rsplitn(3, '-');
    let (Some(theirs), Some(run_id), Some(run)) = (parts.next(), parts.next(), parts.next()) else { return };
    if theirs != boot || model::RunId::parse(run_id).is_none() {
        return;
    }
    let is_lock = |path: &Path| path.extension().is_some_and(|extension| extension == "lock");
    for path in entries(&folder.path(), left).iter().map(DirEntry::path).filter(|path| is_lock(path)) {
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
