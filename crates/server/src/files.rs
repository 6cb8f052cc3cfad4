//! Files that a setting names, read up to a bound: what is named by mistake may have no end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Largest file of certificates, secrets or settings, bytes.
pub(crate) const SMALL_BYTES_MAX: u64 = 4 << 20;

/// A file's bytes, an error where it has more than `bytes_max`.
pub(crate) fn bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max {
        return Err(io::Error::other(format!("it is over {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// A file's text, an error where it has more than `bytes_max`.
pub(crate) fn text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, bytes_max)?)
        .map_err(|_not_utf8| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Puts `bytes` in the place of the file at `path`: whole and durable when this returns, or as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = Path::new(&next);
    let write = || {
        let mut file = File::create(next)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    if let Err(error) = write() {
        // Half a file takes space where there may be none left.
        let _ = std::fs::remove_file(next);
        return Err(error);
    }
    std::fs::rename(next, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
