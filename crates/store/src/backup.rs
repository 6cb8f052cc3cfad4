//! A copy of a store that is in use: what was acknowledged when it began is in it, whole.
//!
//! Segments never change, so a second name of the same file is a copy; the catalogue is read as of
//! one transaction while others go on. Sealing and merging wait meanwhile, appends do not.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::store::{Inner, catalogue_path};
use crate::{catalogue, telemetry};

/// What a backup holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backup {
    /// Segment files, and files of spans and log records.
    pub segments: u64,
    /// Of them second names of the store's own files, which take no space of their own.
    pub linked: u64,
    /// Bytes of all files, the linked ones included.
    pub bytes: u64,
}

/// Why there is no backup; nothing is left under the name it would have had.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a backup in `{dir}`: {reason}")]
pub struct BackupError {
    /// Where it should have been.
    pub dir: PathBuf,
    /// What was found.
    pub reason: String,
}

impl Inner {
    /// See [`crate::Store::backup`].
    pub(crate) fn backup(&self, to_dir: &Path) -> Result<Backup, BackupError> {
        let failed = |reason: String| BackupError { dir: to_dir.to_owned(), reason };
        if to_dir.exists() {
            return Err(failed("it exists already: name a folder that does not".to_owned()));
        }
        let Some(name) = to_dir.file_name().and_then(|name| name.to_str()) else {
            return Err(failed("it has no name".to_owned()));
        };
        let partial = to_dir.with_file_name(format!(".{name}.partial"));
        let copied = self.copy_to(&partial).and_then(|backup| {
            fs::rename(&partial, to_dir).map_err(|error| error.to_string())?;
            let parent = to_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync(parent.unwrap_or(Path::new("."))).map_err(|error| error.to_string())?;
            Ok(backup)
        });
        copied.map_err(|reason| {
            // What is left of a failed one is removed by the next of the same name otherwise.
            _ = fs::remove_dir_all(&partial);
            failed(reason)
        })
    }

    fn copy_to(&self, partial: &Path) -> Result<Backup, String> {
        let said = |what: &Path, error: &io::Error| format!("`{}`: {error}", what.display());
        match fs::remove_dir_all(partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(said(partial, &error)),
            _ => {}
        }
        let folder = partial.join("segments");
        let telemetry = telemetry::file::folder_of(partial);
        // The catalogue knows who may come in: nobody else reads along.
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        for folder in [&folder, &telemetry] {
            private.create(folder).map_err(|error| said(folder, &error))?;
        }
        // Holds still what the manifest names until all of it has a second name.
        let _maintenance = self.lock_maintenance();
        let snapshot = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer).map_err(|error| error.to_string())?;
            writer.snapshot().map_err(|error| error.to_string())?
        };
        let files: Vec<(PathBuf, &PathBuf, u64)> = {
            let state = self.read_state();
            let segments =
                state.segments.iter().map(|segment| (segment.path.clone(), &folder, segment.bytes));
            let others = &state.telemetry.files;
            segments.chain(others.iter().map(|file| (file.path.clone(), &telemetry, file.bytes))).collect()
        };
        let mut backup = Backup::default();
        for (path, folder, bytes) in files {
            let Some(name) = path.file_name() else { continue };
            let copy = folder.join(name);
            backup.linked += u64::from(link(&path, &copy).map_err(|error| said(&copy, &error))?);
            backup.segments += 1;
            backup.bytes += bytes;
        }
        let path = catalogue_path(partial);
        catalogue::write_copy(&snapshot, &path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        backup.bytes += fs::metadata(&path).map_or(0, |file| file.len());
        for folder in [&*folder, &*telemetry, partial] {
            sync(folder).map_err(|error| said(folder, &error))?;
        }
        Ok(backup)
    }
}

/// Gives the file a second name, or copies it where that can't be (another file system). `true` for
/// a second name.
fn link(file: &Path, copy: &Path) -> io::Result<bool> {
    if fs::hard_link(file, copy).is_ok() {
        return Ok(true);
    }
    fs::copy(file, copy)?;
    fs::File::open(copy)?.sync_all()?;
    Ok(false)
}

fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}
