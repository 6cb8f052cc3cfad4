//! Folders of runs that are long over go, a few at a time.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::folder::{Folder, open_user_folder, own_directory};
use super::{here, lock};

/// A run that wrote nothing for so long is over, or its locks are held.
const STALE: Duration = Duration::from_hours(7 * 24);
/// Most folders that are looked at, and removed, at a time.
const LOOKED_AT_MAX: usize = 4096;
const REMOVED_MAX: usize = 16;
/// Most files in a folder that is removed.
const FILES_MAX: usize = 64;

/// Removes what nobody holds and nobody has written to for a week. Never this run's own folder.
pub(super) fn tidy(folder: &Folder) {
    let Ok(user) = open_user_folder(folder.base(), false) else { return };
    let names = names(&user, LOOKED_AT_MAX);
    let stale = names.iter().filter(|name| name.as_str() != folder.key() && is_stale(&user, name));
    for name in stale.take(REMOVED_MAX) {
        let Ok(old) = own_directory(&user, name, &folder.base().join(name), false) else { continue };
        if empty(&old) {
            rustix::fs::unlinkat(&user, name.as_str(), AtFlags::REMOVEDIR).ok();
        }
    }
}

/// Removes a folder's files while it holds their locks; nothing when one of them is in use.
fn empty(folder: &OwnedFd) -> bool {
    let files = names(folder, FILES_MAX + 1);
    if files.len() > FILES_MAX || !files.iter().all(|file| is_stale(folder, file)) {
        return false;
    }
    let mut taken = Vec::new();
    for file in &files {
        let Some(descriptor) = take(folder, file) else { return false };
        taken.push(descriptor);
    }
    files.iter().all(|file| rustix::fs::unlinkat(folder, file.as_str(), AtFlags::empty()).is_ok())
}

fn take(folder: &OwnedFd, file: &str) -> Option<OwnedFd> {
    let found = rustix::fs::statat(folder, file, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || here::is_held(lock::identity(&found)).unwrap_or(true) {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let descriptor = rustix::fs::openat(folder, file, flags, Mode::empty()).ok()?;
    lock::take_over(&descriptor).then_some(descriptor)
}

fn is_stale(folder: &OwnedFd, name: &str) -> bool {
    let Ok(found) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let written = UNIX_EPOCH + Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or_default());
    SystemTime::now().duration_since(written).is_ok_and(|age| age > STALE)
}

/// The first `max` names in a folder.
fn names(folder: &OwnedFd, max: usize) -> Vec<String> {
    let Ok(entries) = Dir::read_from(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
    names.filter(|name| name != "." && name != "..").take(max).collect()
}
