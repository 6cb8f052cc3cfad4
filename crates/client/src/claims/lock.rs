//! One lock: taken without waiting, looked after at every tick, with a line for whoever comes next.

use std::os::fd::{AsFd, OwnedFd};

use model::CaptureOwner;
use rustix::fs::{FileType, FlockOperation, Stat, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::Me;
use super::folder::{Folder, cannot, flaw};
use super::here::{self, Identity};
use super::record::{self, Record};

/// Tries to take a lock whose file or folder is removed meanwhile.
const TRIES: u32 = 4;
/// A file that nobody keeps locked, to see whether locks can be had in a folder.
const PROBE: &str = "probe";

/// A lock that this process holds.
#[derive(Debug)]
pub(super) struct Lock {
    file: String,
    /// Empty once it turned out to be somebody else's by now.
    descriptor: Option<OwnedFd>,
    identity: Identity,
    last_step: Option<i64>,
}

/// An answer, the lock itself included.
pub(super) enum Asked {
    Ours(Lock),
    Taken(CaptureOwner),
}

/// How one try went.
enum Try {
    Done(Asked),
    /// The file was removed under our hands.
    Again,
    /// The folder was.
    Gone,
}

/// Asks the kernel for a lock, making its file when there is none.
pub(super) fn acquire(folder: &mut Folder, file: &str, me: &Me) -> Result<Asked, String> {
    for _ in 0..TRIES {
        match attempt(folder, file, me)? {
            Try::Done(asked) => return Ok(asked),
            Try::Again => {}
            Try::Gone => folder.renew()?,
        }
    }
    Err(format!("cannot lock `{}`: it is removed again and again", folder.path_of(file).display()))
}

fn attempt(folder: &Folder, file: &str, me: &Me) -> Result<Try, String> {
    let failed = |what: &str, error| cannot(what, &folder.path_of(file), error);
    // Before it is opened: closing it again would let go of a lock that another run here has.
    if let Ok(found) = folder.stat(file)
        && here::is_held(identity(&found))?
    {
        return Ok(Try::Done(Asked::Taken(myself(me))));
    }
    let descriptor = match folder.open_file(file, true) {
        Ok(descriptor) => descriptor,
        Err(Errno::NOENT) => return Ok(Try::Gone),
        Err(error) => return Err(failed("open", error)),
    };
    let found = rustix::fs::fstat(&descriptor).map_err(|error| failed("look at", error))?;
    if let Some(flaw) = flaw(&found, FileType::RegularFile) {
        return Err(format!("cannot lock `{}`: {flaw}", folder.path_of(file).display()));
    }
    let identity = identity(&found);
    if !here::enter(identity)? {
        std::mem::forget(descriptor);
        return Ok(Try::Done(Asked::Taken(myself(me))));
    }
    let mut lock = Lock { file: file.to_owned(), descriptor: Some(descriptor), identity, last_step: None };
    match lock.lock() {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let owner = lock.read().owner.unwrap_or_else(|| nobody_known(me));
            return Ok(Try::Done(Asked::Taken(owner)));
        }
        Err(error) => return Err(failed("lock", error)),
    }
    if !lock.is_still_held() {
        return Ok(Try::Again);
    }
    lock.last_step = lock.read().last_step;
    lock.write(&record::line(me, lock.last_step, None));
    Ok(Try::Done(Asked::Ours(lock)))
}

/// Who holds a lock, if another process does.
pub(super) fn holder(folder: &Folder, file: &str, me: &Me) -> Option<CaptureOwner> {
    let (is_locked, record) = look(folder, file)?;
    is_locked.then(|| record.owner.unwrap_or_else(|| nobody_known(me)))
}

/// When whoever held a lock last wrote to it, if it is free and was never let go of.
pub(super) fn left_behind_ns(folder: &Folder, file: &str) -> Option<i64> {
    let (is_locked, record) = look(folder, file)?;
    (!is_locked && record.owner.is_some()).then_some(record.time_ns)
}

/// Whether another process holds a lock, and what its file says; nothing of one that this process holds.
fn look(folder: &Folder, file: &str) -> Option<(bool, Record)> {
    let found = folder.stat(file).ok()?;
    if here::is_held(identity(&found)).unwrap_or(true) {
        return None;
    }
    let descriptor = folder.open_file(file, false).ok()?;
    let holder = fcntl_getlk(&descriptor, &Flock::from(FlockType::WriteLock)).ok()?;
    Some((holder.is_some(), read(&descriptor)))
}

/// Whether files can be made and locked in a folder.
pub(super) fn probe(folder: &Folder) -> Result<(), String> {
    let failed = |what: &str, error| cannot(what, &folder.path_of(PROBE), error);
    let descriptor = folder.open_file(PROBE, true).map_err(|error| failed("open", error))?;
    match fcntl_lock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
        // Somebody else is at it, so it works.
        Ok(()) | Err(Errno::AGAIN | Errno::ACCESS) => Ok(()),
        Err(error) => Err(failed("lock", error)),
    }
}

/// Takes a lock of a file that nobody uses any more, to remove it.
pub(super) fn take_over(descriptor: impl AsFd) -> bool {
    fcntl_lock(descriptor, FlockOperation::NonBlockingLockExclusive).is_ok()
}

pub(super) fn identity(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}

impl Lock {
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The last step that an earlier owner left.
    pub(super) fn last_step(&self) -> Option<i64> {
        self.last_step
    }

    fn lock(&self) -> Result<(), Errno> {
        let Some(descriptor) = &self.descriptor else { return Err(Errno::BADF) };
        fcntl_lock(descriptor, FlockOperation::NonBlockingLockExclusive)
    }

    /// Whether the lock is there, and under its name, and still this process's. What was let go of by
    /// accident (a program may close every descriptor it has) is taken again if it is still free.
    pub(super) fn is_still_held(&mut self) -> bool {
        self.is_in_place() && self.lock().is_ok()
    }

    fn is_in_place(&mut self) -> bool {
        let Some(descriptor) = &self.descriptor else { return false };
        match rustix::fs::fstat(descriptor) {
            Ok(found) if identity(&found) == self.identity => found.st_nlink > 0,
            // The number was closed behind our back, and may be another file's by now: not ours to close.
            _ => {
                std::mem::forget(self.descriptor.take());
                false
            }
        }
    }

    /// Writes how far the series are.
    pub(super) fn note(&mut self, me: &Me, last_step: i64, time_ns: i64) {
        if self.is_in_place() {
            self.write(&record::line(me, Some(last_step), Some(time_ns)));
        }
    }

    /// Lets go of it and leaves the step, but no name: nobody has died.
    pub(super) fn release(mut self) {
        if self.is_still_held() {
            let last_step = self.read().last_step;
            self.write(&record::let_go(last_step));
        }
    }

    /// A line that can't be written, on a full disk say, costs a successor its step and nothing else.
    fn write(&self, line: &[u8]) {
        if let Some(descriptor) = &self.descriptor {
            rustix::io::pwrite(descriptor, line, 0).ok();
        }
    }

    fn read(&self) -> Record {
        self.descriptor.as_ref().map(read).unwrap_or_default()
    }
}

impl Drop for Lock {
    /// Closing the file lets go of the lock: in the process that has it, and in no other. Only then may
    /// another run of this process open it.
    fn drop(&mut self) {
        drop(self.descriptor.take());
        here::leave(self.identity);
    }
}

fn read(descriptor: &OwnedFd) -> Record {
    let mut line = [0; record::BYTES];
    let length = rustix::io::pread(descriptor, &mut line, 0).unwrap_or_default();
    record::read(&line[..length])
}

fn myself(me: &Me) -> CaptureOwner {
    CaptureOwner { host: me.host.clone(), pid: std::process::id(), rank: me.rank }
}

fn nobody_known(me: &Me) -> CaptureOwner {
    CaptureOwner { host: me.host.clone(), ..CaptureOwner::default() }
}
