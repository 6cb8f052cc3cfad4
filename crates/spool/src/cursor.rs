//! How far a spool was consumed, kept beside the segments.
//!
//! Written in place and not synced: a cursor that is lost or torn only makes records come again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::CURSOR_FILE;

/// Reads segment and offset; anything unusable is the beginning.
pub(crate) fn read(dir: &Path) -> (u64, u64) {
    let Ok(bytes) = fs::read(dir.join(CURSOR_FILE)) else { return (0, 0) };
    let number =
        |from: usize| bytes.get(from..from + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let whole = bytes.len() == 20 && bytes[16..] == crc32fast::hash(&bytes[..16]).to_le_bytes();
    if whole { (number(0), number(8)) } else { (0, 0) }
}

/// Writes segment and offset.
pub(crate) fn write(dir: &Path, segment: u64, offset: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(20);
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    // Not truncated first: on a full disk the block is there already.
    File::options().create(true).truncate(false).write(true).open(dir.join(CURSOR_FILE))?.write_all(&bytes)
}
