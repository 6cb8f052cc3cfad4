//! Which file a command's name means.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::output::Failure;

/// Exit codes as shells give them.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The file that `name` means: itself with a slash in it, else the first of that name in `PATH` that
/// can be executed.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let fails = |why: &str, code: u8, hint: String| {
        Failure::new(format!("cannot run `{shown}`: {why}")).hint(hint).code(code)
    };
    if name.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(name);
        if !path.exists() {
            return Err(fails(
                "there is no such file",
                NOT_FOUND,
                "check the path, and the folder you are in".into(),
            ));
        }
        return executable(path).then(|| path.to_owned()).ok_or_else(|| {
            fails(
                "it is no file that may be executed",
                NOT_EXECUTABLE,
                format!("`chmod +x {shown}`, or name its interpreter"),
            )
        });
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut found: Vec<PathBuf> = std::env::split_paths(&folders).map(|folder| folder.join(name)).collect();
    found.retain(|path| path.is_file());
    if let Some(path) = found.iter().find(|path| executable(path)) {
        return Ok(path.clone());
    }
    Err(match found.first() {
        Some(path) => {
            fails("it may not be executed", NOT_EXECUTABLE, format!("`chmod +x {}`", path.display()))
        }
        None if Path::new(name).exists() => fails(
            "no program of this name is in `PATH`",
            NOT_FOUND,
            format!("the one in this folder is `./{shown}`"),
        ),
        None => fails(
            "no program of this name is in `PATH`",
            NOT_FOUND,
            "what a shell understands (pipes, `cd`, aliases) goes as `truegauge run -- sh -c '...'`".into(),
        ),
    })
}

fn executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
