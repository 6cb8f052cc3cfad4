//! The folder of a run's locks: `<place>/truegauge-claims-<uid>/<key>/`.
//!
//! The places are open to everybody, so a folder is used only if it is a real directory of this user
//! that nobody else may enter; what another user put there in advance is passed over, never followed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use model::{Arbitration, RunPath};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::lock;

/// Longest readable part of a name made of somebody's text.
const READABLE_MAX: usize = 48;
/// What stands for a folder that nobody has made yet, which is no reason to complain.
const NOT_THERE: &str = "";
/// Flags of every open: never through a symbolic link, never kept over `exec`.
const NEVER_FOLLOWED: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// An open folder of locks.
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: OwnedFd,
    place: Arbitration,
    /// The place itself, which holds the folder of this user.
    base: PathBuf,
    key: String,
    domain: String,
}

impl Folder {
    /// The first place that has this run's folder, else the first in which one can be made; and why
    /// others can't be used. A folder that is there goes before a better place, so that everybody
    /// meets in the one that was made first.
    pub(super) fn find(places: &[(Arbitration, PathBuf)], key: &str) -> (Option<Self>, Vec<String>) {
        let mut passed_over = Vec::new();
        for make in [false, true] {
            passed_over.clear();
            for (place, base) in places {
                match Self::open(*place, base, key, make) {
                    Ok(folder) => return (Some(folder), passed_over),
                    Err(cause) if cause == NOT_THERE => {}
                    Err(cause) => passed_over.push(cause),
                }
            }
        }
        (None, passed_over)
    }

    fn open(place: Arbitration, base: &Path, key: &str, make: bool) -> Result<Self, String> {
        let user = open_user_folder(base, make)?;
        let path = user_folder(base).join(key);
        let descriptor = own_directory(&user, key, &path, make)?;
        let found = rustix::fs::fstat(&descriptor).map_err(|error| cannot("look at", &path, error))?;
        let domain = format!("{}:{:x}:{:x}", place.as_str(), found.st_dev, found.st_ino);
        let folder = Self { descriptor, place, base: base.to_owned(), key: key.to_owned(), domain };
        lock::probe(&folder)?;
        Ok(folder)
    }

    /// Makes the folder anew after somebody removed it.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        *self = Self::open(self.place, &self.base, &self.key, true)?;
        Ok(())
    }

    pub(super) fn place(&self) -> Arbitration {
        self.place
    }

    pub(super) fn domain(&self) -> &str {
        &self.domain
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        user_folder(&self.base).join(&self.key).join(file)
    }

    /// What is at a name, not followed.
    pub(super) fn stat(&self, file: &str) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.descriptor, file, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a file of locks, made when `make` says so.
    pub(super) fn open_file(&self, file: &str, make: bool) -> Result<OwnedFd, Errno> {
        let made = if make { OFlags::CREATE } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | NEVER_FOLLOWED | made;
        rustix::fs::openat(&self.descriptor, file, flags, Mode::RUSR | Mode::WUSR)
    }
}

fn user_folder(base: &Path) -> PathBuf {
    base.join(user_name())
}

fn user_name() -> String {
    format!("truegauge-claims-{}", rustix::process::geteuid().as_raw())
}

/// This user's folder in a place.
pub(super) fn open_user_folder(base: &Path, make: bool) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::open(base, flags, Mode::empty()).map_err(|error| cannot("open", base, error))?;
    own_directory(&place, &user_name(), &user_folder(base), make)
}

/// Opens a directory that belongs to this user alone.
pub(super) fn own_directory(
    parent: impl AsFd,
    name: &str,
    path: &Path,
    make: bool,
) -> Result<OwnedFd, String> {
    if make {
        match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(cannot("make", path, error)),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | NEVER_FOLLOWED;
    let opened = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) if !make => return Err(NOT_THERE.to_owned()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(format!("cannot keep locks in `{}`: it is no directory", path.display()));
        }
        Err(error) => return Err(cannot("open", path, error)),
    };
    let found = rustix::fs::fstat(&opened).map_err(|error| cannot("look at", path, error))?;
    match flaw(&found, FileType::Directory) {
        Some(flaw) => Err(format!("cannot keep locks in `{}`: {flaw}", path.display())),
        None => Ok(opened),
    }
}

/// Why a file or directory is not this user's own, if it is not.
pub(super) fn flaw(found: &Stat, wanted: FileType) -> Option<String> {
    let me = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(found.st_mode) != wanted {
        return Some("it is not what it should be".to_owned());
    }
    if found.st_uid != me {
        return Some(format!("it belongs to user {}, and this process is user {me}", found.st_uid));
    }
    let open_to_others = found.st_mode & 0o077;
    if open_to_others != 0 {
        return Some(format!("others may use it (mode {:03o})", found.st_mode & 0o777));
    }
    if wanted == FileType::RegularFile && found.st_nlink > 1 {
        return Some("it has a second name".to_owned());
    }
    None
}

pub(super) fn cannot(what: &str, path: &Path, error: Errno) -> String {
    format!("cannot {what} `{}`: {}", path.display(), std::io::Error::from(error))
}

/// Name of a run's folder on this boot of this machine: a place may be shared by machines.
pub(super) fn key(path: &RunPath, boot_id: &str) -> String {
    let boot: String = boot_id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("{}-{}-{boot}", plain(&path.run), path.id())
}

/// Name of a device's lock.
pub(super) fn device_file(uuid: &str) -> String {
    let plain = plain(uuid);
    if plain == uuid && !uuid.is_empty() {
        return format!("device-{plain}.lock");
    }
    format!("device-{plain}-{:016x}.lock", fnv(uuid))
}

/// A text as a part of a file's name: what is unusual becomes `_`, what is long is cut.
fn plain(text: &str) -> String {
    let usual = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    text.chars().take(READABLE_MAX).map(usual).collect()
}

/// FNV-1a, so that two odd texts do not share a name; the same in every build.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_made_is_flawed() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = rustix::fs::stat(dir.path()).unwrap();
        found.st_mode &= !0o077;
        assert_eq!(flaw(&found, FileType::Directory), None);
        assert!(flaw(&found, FileType::RegularFile).is_some());
        found.st_uid += 1;
        let said = flaw(&found, FileType::Directory).unwrap();
        assert!(said.starts_with("it belongs to user "), "{said}");
    }

    #[test]
    fn key_is_readable_and_differs_by_every_name_and_boot() {
        let path = RunPath { project: "p".into(), run: "llm 7b/ü".into(), ..RunPath::default() };
        let first = key(&path, "8d1f6f0a-aaaa");
        assert!(first.starts_with("llm_7b__-") && first.ends_with("-8d1f6f0a"), "{first}");
        let other = RunPath { workspace: "w".into(), ..path.clone() };
        assert_ne!(key(&other, "8d1f6f0a-aaaa"), first);
        assert_ne!(key(&path, "8d1f6f0b-aaaa"), first);
        let long = RunPath { run: "\u{1f600}".repeat(300), ..path };
        assert!(key(&long, "").len() < 255);
    }
}
