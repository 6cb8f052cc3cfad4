//! What a part keeps between two starts of the agent: a small file in the state folder.

use std::{fs, io, path::Path};

use serde::{Serialize, de::DeserializeOwned};

/// What was kept; nothing where there is nothing that can be read.
pub(crate) fn load<T: DeserializeOwned + Default>(folder: &Path, file: &str) -> T {
    let text = fs::read(folder.join(file)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Keeps it, at once and whole.
pub(crate) fn store(folder: &Path, file: &str, value: &impl Serialize) -> io::Result<()> {
    let new = folder.join(format!("{file}.new"));
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, folder.join(file))
}
