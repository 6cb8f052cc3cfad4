//! Where a backup may be written.
//!
//! The server writes with its own rights for somebody who asks over HTTP. So a backup is only ever a
//! new folder, at a place where none but its owner and the administrator could have laid a trap.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Why a place is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a backup can't be made in `{}`: {reason}", dir.display())]
pub(crate) struct PlaceError {
    dir: PathBuf,
    reason: String,
    /// The next step.
    pub(crate) hint: &'static str,
}

/// Bit of a folder in which only owners remove and rename.
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;

/// Checks the place and gives it without symbolic links.
pub(crate) fn check(dir: &Path, data_dir: &Path) -> Result<PathBuf, PlaceError> {
    let refuse = |reason: String, hint| PlaceError { dir: dir.to_owned(), reason, hint };
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !dir.is_absolute() || !dir.components().all(plain) {
        return Err(refuse("it is not written from the root on".into(), "name it as `/backup/monday`"));
    }
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name().and_then(|name| name.to_str())) else {
        return Err(refuse("it has no name".into(), "name it as `/backup/monday`"));
    };
    if name.starts_with('.') {
        return Err(refuse("its name begins with a dot".into(), "choose a name that does not"));
    }
    if name.chars().any(char::is_control) {
        return Err(refuse(
            "its name holds a control character".into(),
            "choose a name that is printable text",
        ));
    }
    let parent = parent.canonicalize().map_err(|error| {
        refuse(format!("`{}`: {error}", parent.display()), "make the folder that it is to lie in first")
    })?;
    let place = parent.join(name);
    if fs::symlink_metadata(&place).is_ok() {
        return Err(refuse("it exists already".into(), "name a folder that does not exist"));
    }
    let about = fs::metadata(&parent)
        .map_err(|error| refuse(format!("`{}`: {error}", parent.display()), "make it readable"))?;
    if !about.is_dir() {
        return Err(refuse(format!("`{}` is no folder", parent.display()), "name one in a folder"));
    }
    let own = rustix::process::geteuid().as_raw();
    let shared = about.mode() & OTHERS_WRITE != 0;
    if shared && about.mode() & STICKY == 0 {
        let reason = format!("everyone may write in `{}`", parent.display());
        return Err(refuse(reason, "use a folder of your own, or take the right from others (`chmod o-w`)"));
    }
    // In a shared folder with the sticky bit each has what is his; another's folder is his alone.
    if !shared && about.uid() != own && about.uid() != 0 {
        let reason = format!("`{}` belongs to another user than the server", parent.display());
        return Err(refuse(reason, "use a folder of the user that the server runs as"));
    }
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    if place.starts_with(&data_dir) {
        let reason = "it lies within the data directory".into();
        return Err(refuse(reason, "use a folder elsewhere, on another disk if you can"));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_new_folders_where_no_trap_can_lie_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let data = root.join("data");
        fs::create_dir_all(data.join("segments")).unwrap();
        fs::create_dir(root.join("shared")).unwrap();
        symlink(&data, root.join("link")).unwrap();
        let refused = |place: PathBuf, want: &str| {
            let error = check(&place, &data).unwrap_err();
            assert!(error.to_string().contains(want) && !error.hint.is_empty(), "{place:?}: {error}");
        };
        assert_eq!(check(&root.join("monday"), &data), Ok(root.join("monday")));
        refused(PathBuf::from("monday"), "from the root on");
        refused(root.join("x/../monday"), "from the root on");
        refused(PathBuf::from("/"), "no name");
        refused(root.join(".hidden"), "dot");
        refused(root.join("mon\u{1b}[2Jday"), "control character");
        refused(root.join("mon\0day"), "control character");
        refused(root.join("shared"), "exists already");
        refused(root.join("nowhere/monday"), "No such file");
        refused(data.join("monday"), "within the data directory");
        refused(root.join("link/segments/monday"), "within the data directory");
        symlink(root.join("absent"), root.join("dangling")).unwrap();
        refused(root.join("dangling"), "exists already");
        fs::set_permissions(root.join("shared"), fs::Permissions::from_mode(0o777)).unwrap();
        refused(root.join("shared/monday"), "everyone may write");
        fs::set_permissions(root.join("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(check(&root.join("shared/monday"), &data).is_ok());
    }
}
