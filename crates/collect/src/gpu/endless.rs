//! What must not be handed to the loader: a pipe or a device in the place of a library.
//!
//! The loader opens whatever has the name, holding a lock of the whole process. At a pipe that nobody writes
//! to it stays there, and with it every other load, each `import` of an extension, and the end of the process.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const SEARCH_PATH: &[u8] = b"LD_LIBRARY_PATH=";

/// What the loader could wait for without end when it looks for this name or path.
pub(super) fn endless(library: &Path) -> Option<PathBuf> {
    if library.components().count() > 1 {
        return is_endless(library).then(|| library.to_owned());
    }
    // As it was when the process began, which is what the loader goes by.
    let environment = fs::read("/proc/self/environ").unwrap_or_default();
    let set = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(SEARCH_PATH))?;
    endless_in(set, library)
}

/// The same in the folders of a search path.
fn endless_in(search_path: &[u8], name: &Path) -> Option<PathBuf> {
    let folders = search_path.split(|byte| matches!(byte, b':' | b';'));
    folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join(name)).find(|path| is_endless(path))
}

fn is_endless(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_neither_file_nor_folder_is_endless() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe, link] = ["file", "pipe", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
        let search_path = [b"/nowhere:;".as_slice(), folder.path().as_os_str().as_bytes(), b":"].concat();
        let check = |name: &str, wanted: Option<&Path>| {
            assert_eq!(endless_in(&search_path, Path::new(name)).as_deref(), wanted, "{name}");
        };
        check("file", None);
        check("missing", None);
        check("pipe", Some(&pipe));
        check("link", Some(&link));
        assert_eq!(
            (endless(&file), endless(folder.path()), endless(&link).as_ref()),
            (None, None, Some(&link))
        );
    }
}
