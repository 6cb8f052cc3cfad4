//! What a command writes, passed on unchanged while its end is kept.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::command::Tail;
use client::{Run, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use wire::nccl::{Finding, LogReader};

use crate::output::note;

/// Bytes moved at once: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;
/// After the command has ended: longest silence, and longest time in all, that others which hold its
/// output open are listened to.
const QUIET_MAX: Duration = Duration::from_millis(500);
const AFTER_MAX: Duration = Duration::from_secs(2);

/// A stream on its way from a command to where this process would write.
pub(super) struct Tee {
    tail: Arc<Mutex<Tail>>,
    _thread: JoinHandle<()>,
}

/// A thread's ends of the pipes that it hears of.
struct Ends {
    from: OwnedFd,
    to: OwnedFd,
    /// Closed by the other side when the command has ended.
    stop: Arc<OwnedFd>,
    /// Closed by the last thread that ends.
    _done: OwnedFd,
}

impl Tee {
    /// Copies from `from` to `to` in a thread, until the end of `from`, or until `stop` is closed and
    /// the rest is copied; `done` is let go at the end.
    ///
    /// What NCCL's watchdog writes on the way becomes events of `run`.
    pub(super) fn start(
        (from, to): (OwnedFd, OwnedFd),
        stop: Arc<OwnedFd>,
        done: OwnedFd,
        run: &Run,
    ) -> io::Result<Self> {
        // Only this end of the pipe: the command's end blocks as it would without us.
        rustix::io::ioctl_fionbio(&from, true)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let theirs = Arc::clone(&tail);
        let ends = Ends { from, to, stop, _done: done };
        let run = run.clone();
        let work = move || {
            let mut watchdog = LogReader::default();
            let mut report = |finding: Finding| run.report(&finding, Source::Watchdog);
            copy(&ends, &mut |piece| {
                theirs.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
                watchdog.push(piece, &mut report);
            });
            watchdog.end(&mut report);
        };
        let thread = std::thread::Builder::new().name("truegauge-tee".into()).spawn(work)?;
        Ok(Self { tail, _thread: thread })
    }

    /// The end of what went through.
    pub(super) fn text(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// A pipe that no program started from here inherits.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Copies, and has each piece looked at first.
fn copy(ends: &Ends, look: &mut dyn FnMut(&[u8])) {
    let mut piece = vec![0; PIECE_BYTES];
    let mut after = None;
    let mut is_lost = false;
    while let Some(length) = read(ends, &mut piece, &mut after) {
        look(&piece[..length]);
        if is_lost {
            continue;
        }
        match write_all(ends.to.as_fd(), &piece[..length]) {
            Ok(()) => {}
            // Nobody reads any more: the command is told as if it wrote there itself.
            Err(Errno::PIPE) => return,
            Err(error) => {
                note(format_args!(
                    "truegauge: the command's output can't be written, it goes on without: {error}"
                ));
                is_lost = true;
            }
        }
    }
}

/// When the command was found to have ended, and when something was last read.
struct After {
    since: Instant,
    heard: Instant,
}

impl After {
    /// How long to go on listening.
    fn left(&self) -> Duration {
        let quiet = QUIET_MAX.saturating_sub(self.heard.elapsed());
        quiet.min(AFTER_MAX.saturating_sub(self.since.elapsed()))
    }
}

/// The next bytes; `None` at the end.
fn read(ends: &Ends, piece: &mut [u8], after: &mut Option<After>) -> Option<usize> {
    loop {
        match rustix::io::read(&ends.from, &mut *piece) {
            Ok(0) => return None,
            Ok(length) => {
                // A process that outlives the command and never stops writing is not waited for.
                if after.as_ref().is_some_and(|after| after.since.elapsed() > AFTER_MAX) {
                    return None;
                }
                if let Some(after) = after {
                    after.heard = Instant::now();
                }
                return Some(length);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = after.as_ref().map(After::left);
                if left.is_some_and(|left| left.is_zero()) {
                    return None;
                }
                let watched = [ends.from.as_fd(), ends.stop.as_fd()];
                let has_ended = wait(&watched[..if left.is_some() { 1 } else { 2 }], left);
                if has_ended && after.is_none() {
                    let now = Instant::now();
                    *after = Some(After { since: now, heard: now });
                }
            }
            Err(_) => return None,
        }
    }
}

/// Waits until one of them can be read; whether it was the second.
fn wait(watched: &[BorrowedFd<'_>], longest: Option<Duration>) -> bool {
    let mut polled: Vec<PollFd<'_>> =
        watched.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    // An interrupted wait is a short one: the caller reads and comes again.
    let _ = poll(&mut polled, longest.as_ref());
    polled.get(1).is_some_and(|stop| !stop.revents().is_empty())
}

/// Writes all of it, also where the other side was made non-blocking by somebody else.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None::<&Timespec>);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
