//! Segment files: their names and their order.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{ReadError, at};

/// Path of segment `number`.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.segment"))
}

/// Numbers and sizes in bytes of the segments in `dir`, in order.
pub(crate) fn all(dir: &Path) -> Result<Vec<(u64, u64)>, ReadError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".segment")).and_then(|n| n.parse().ok());
        if let Some(number) = number {
            found.push((number, entry.metadata().map_err(at(&entry.path()))?.len()));
        }
    }
    found.sort_unstable();
    Ok(found)
}
