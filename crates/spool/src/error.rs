//! What can go wrong with a spool.

use std::io;
use std::path::{Path, PathBuf};

/// Why a spool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The directory is there already.
    #[error("the spool {} is there already: choose another name or remove it", dir.display())]
    Exists {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system refused.
    #[error("could not make the spool {}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

/// Why a record could not be appended. The spool stays usable and holds what it held.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The spool would outgrow its bound.
    #[error("the spool {} holds {bytes} bytes, its bound is {limit}: drain it or raise the bound", dir.display())]
    Full {
        /// The directory.
        dir: PathBuf,
        /// Bytes it holds.
        bytes: u64,
        /// Its bound.
        limit: u64,
    },
    /// Longer than [`crate::RECORD_BYTES_MAX`].
    #[error("a record has {found} bytes, at most {} fit into a spool", crate::RECORD_BYTES_MAX)]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// The file system refused, for instance because the disk is full.
    #[error("could not append to the spool {}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

/// Why a spool could not be read or tidied.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not a spool: it has no header.
    #[error("{} is not a spool: it has no `header`", dir.display())]
    NotASpool {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system refused.
    #[error("could not read the spool file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

/// Names the file in an error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    let path = path.to_owned();
    move |source| ReadError::Io { path, source }
}
