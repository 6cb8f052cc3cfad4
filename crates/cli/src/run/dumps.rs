//! Files that PyTorch's flight recorder leaves while a command runs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use client::Run;

use crate::output::note;

/// What tells PyTorch where to leave them: a path that the rank's number is added to.
const VARIABLES: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// How often it is looked for them.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Most files that are read.
const FILES_MAX: usize = 1_024;

/// Looks for them in a thread of its own, where the environment says where they are.
#[derive(Debug)]
pub(super) struct Dumps {
    _stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Dumps {
    /// Begins; nothing where PyTorch is told no place.
    pub(super) fn start(run: &Run) -> Option<Self> {
        let place = VARIABLES.iter().find_map(std::env::var_os).filter(|place| !place.is_empty())?;
        let folder = Folder::of(place)?;
        let (stop, stopped) = channel();
        let run = run.clone();
        let look = move || folder.watch(&run, &stopped);
        let thread = std::thread::Builder::new().name("truegauge-dumps".into()).spawn(look).ok()?;
        Some(Self { _stop: stop, thread })
    }

    /// Reads those that are there now, and ends.
    pub(super) fn end(self) {
        let Self { _stop: stop, thread } = self;
        drop(stop);
        // One that panicked has told what it could.
        let _ = thread.join();
    }
}

/// Where the files are.
struct Folder {
    path: PathBuf,
    /// What their names begin with.
    prefix: OsString,
    since: SystemTime,
    /// Size and time of each as it was last seen, and whether it was read so.
    known: HashMap<PathBuf, ((u64, SystemTime), bool)>,
}

impl Folder {
    fn of(place: OsString) -> Option<Self> {
        let place = PathBuf::from(place);
        let prefix = place.file_name()?.to_owned();
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The time of a file has the kernel's ticks, which lag behind the clock.
        let since = SystemTime::now() - Duration::from_secs(1);
        Some(Self { path: folder.to_owned(), prefix, since, known: HashMap::new() })
    }

    fn watch(mut self, run: &Run, stopped: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_EVERY) {
            self.look(run, false);
        }
        self.look(run, true);
    }

    /// Reads the files that have not changed since the last look, or, at the end, all that are new.
    fn look(&mut self, run: &Run, is_last: bool) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().as_bytes().starts_with(self.prefix.as_bytes()) {
                continue;
            }
            let path = entry.path();
            let Some(now) = entry.metadata().ok().filter(std::fs::Metadata::is_file).and_then(|about| {
                Some((about.len(), about.modified().ok().filter(|time| *time >= self.since)?))
            }) else {
                continue;
            };
            let before = self.known.get(&path).copied();
            let is_read = before.is_some_and(|(was, is_read)| was == now && is_read);
            let is_whole = is_last || before.is_some_and(|(was, _)| was == now);
            if self.known.len() >= FILES_MAX && before.is_none() {
                continue;
            }
            if is_whole
                && !is_read
                && let Err(error) = run.report_flight_recorder(&path, None)
            {
                note(format_args!("truegauge: {error}"));
            }
            self.known.insert(path, (now, is_read || is_whole));
        }
    }
}
