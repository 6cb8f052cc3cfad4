//! Signals as they arrive, with who sent them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getpid, kill_process};

/// What is passed on to the command.
const FORWARDED: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];
/// `si_code` of a signal that the kernel itself sent, as a terminal does for its keys.
const FROM_KERNEL: i32 = 0x80;

/// The signals of this process, read from a descriptor: no handler runs, nothing is interrupted.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

/// A signal that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    signal: Signal,
    /// Whether the terminal sent it, to the whole group at once.
    is_terminals: bool,
}

impl Signals {
    /// Blocks them in this thread and those it makes, and opens the descriptor.
    pub(crate) fn take() -> io::Result<Self> {
        let mut mask = SigSet::from_iter(FORWARDED);
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next one that has arrived.
    pub(crate) fn next(&self) -> Option<Arrived> {
        let read = self.0.read_signal().ok().flatten()?;
        let signal = Signal::try_from(read.ssi_signo as i32).ok()?;
        Some(Arrived { signal, is_terminals: read.ssi_code == FROM_KERNEL })
    }

    /// Waits until a signal arrives or `other` can be read or is closed; whether it was `other`.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let mut watched = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        watched.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        loop {
            match poll(&mut watched, None::<&Timespec>) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(watched.get(1).is_some_and(|other| !other.revents().is_empty())),
            }
        }
    }

    /// Whether a signal that asks to end has arrived.
    pub(crate) fn wants_out(&self) -> bool {
        std::iter::from_fn(|| self.next()).any(Arrived::asks_to_end)
    }
}

impl Arrived {
    /// Whether somebody wants this process to end.
    pub(crate) fn asks_to_end(self) -> bool {
        matches!(self.signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
    }

    /// Passes it on, unless the command has it already: a terminal sends to every process of its
    /// foreground group, and the command is in ours when there is a terminal.
    pub(crate) fn forward(self, command: Pid, shares_group: bool) {
        let is_ours = self.signal == Signal::SIGCHLD || (shares_group && self.is_terminals);
        if is_ours || command == getpid() {
            return;
        }
        if let Some(signal) = rustix::process::Signal::from_named_raw(self.signal as i32) {
            // One that has just ended needs no signal.
            let _ = kill_process(command, signal);
        }
    }
}
