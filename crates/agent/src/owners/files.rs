//! Small files of the kernel, read within bounds.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read; of a longer one the head.
const BYTES_MAX: u64 = 64 << 10;

/// The bytes of a file.
pub(super) fn read_bytes(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The text of a file.
pub(super) fn read_text(path: &Path) -> Option<String> {
    read_bytes(path, BYTES_MAX).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The number that a file holds.
pub(super) fn number(path: &Path) -> Option<u64> {
    read_text(path)?.trim().parse().ok()
}

/// The entries of a folder, in order of their names.
pub(super) fn entries(folder: &Path, max: usize) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = read.take(max).map(|entry| entry.path()).collect();
    found.sort_unstable();
    found
}
