//! Who owns a spool, and where spools are.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{ReadError, at};
use crate::{HEADER_FILE, LOCK_FILE};

/// Ownership of a spool; ends when dropped or when the process dies.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Makes and takes the lock of a new directory.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let file = File::create_new(dir.join(LOCK_FILE))?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    /// Unlocks by word and not by closing: a forked child shares the open file and would go on
    /// holding it.
    fn drop(&mut self) {
        drop(self.0.unlock());
    }
}

/// Takes over the spool `dir`; `None` while its writer, or another reader, holds it.
pub fn try_own(dir: &Path) -> Result<Option<Lock>, ReadError> {
    let path = dir.join(LOCK_FILE);
    if !dir.join(HEADER_FILE).exists() {
        return Err(ReadError::NotASpool { dir: dir.to_owned() });
    }
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(source)) => return Err(ReadError::Io { path, source }),
    }
    // An owner that drained the spool may have removed it between the opening and the locking.
    let lock = Lock(file);
    Ok(is_same_file(&lock.0, &path).then_some(lock))
}

#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let key = |m: fs::Metadata| (m.dev(), m.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => key(held) == key(named),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same_file(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// The spools directly in `spool_dir`, in order of name; none when the folder is not there.
pub fn list(spool_dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(spool_dir) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .filter(|dir| dir.join(HEADER_FILE).is_file())
        .collect();
    found.sort_unstable();
    found
}
