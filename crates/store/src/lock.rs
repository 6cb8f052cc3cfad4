//! One server per directory.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::OpenError;

/// Holds the directory until it is dropped; the system lets go of it when the process dies.
#[derive(Debug)]
pub(crate) struct DirectoryLock(File);

impl DirectoryLock {
    /// Whether `dir` still is the directory that was taken.
    pub(crate) fn is_of(&self, dir: &Path) -> bool {
        let place = |found: std::io::Result<Metadata>| found.map(|f| (f.dev(), f.ino())).ok();
        let taken = place(self.0.metadata());
        taken.is_some() && taken == place(std::fs::metadata(dir.join("lock")))
    }

    /// Takes `dir/lock` and writes this process's id into it.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let unusable = |error: std::io::Error| OpenError::Unusable {
            dir: dir.to_owned(),
            reason: format!("its lock file `{}`: {error}", path.display()),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let read = file.take(32).read_to_string(&mut pid);
                let pid = pid.trim();
                let known = read.is_ok() && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
                let pid = if known { pid } else { "unknown" }.to_owned();
                return Err(OpenError::Locked { dir: dir.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        // A full disk must not keep a server from serving reads, so the id is a courtesy.
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "cannot write the process id into the lock file");
        }
        Ok(Self(file))
    }
}
