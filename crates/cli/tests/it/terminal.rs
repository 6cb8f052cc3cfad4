//! A program on a terminal of its own, as a person would sit at it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::process::DEADLINE;

/// The terminal and the program on it.
pub(crate) struct Terminal {
    master: Option<File>,
    /// Kept open, so that what was set on the terminal is there to look at when the program has ended.
    slave: Option<File>,
    /// How it was set before the program had it.
    before: Termios,
    child: Child,
    pieces: Receiver<Vec<u8>>,
    /// Ends the reading, and the pipe that tells it to.
    reading: Option<(JoinHandle<()>, OwnedFd)>,
    seen: Vec<u8>,
    /// How much of it was waited for already.
    read: usize,
}

impl Terminal {
    /// Starts `command` in a session of its own with this terminal as the controlling one.
    pub(crate) fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let open = || {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = rustix::fs::OFlags::NOCTTY.bits() as i32;
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(OsStr::from_bytes(name.to_bytes()))
                .unwrap()
        };
        let slave = open();
        let before = tcgetattr(&slave).unwrap();
        let mut on_terminal = Command::new("setsid");
        on_terminal.env("TERM", "xterm-256color");
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => on_terminal.env(variable, value),
                None => on_terminal.env_remove(variable),
            };
        }
        on_terminal.arg("--ctty").arg(command.get_program()).args(command.get_args());
        let child = on_terminal.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        let master = File::from(master);
        let reader = master.try_clone().unwrap();
        let (send, pieces) = channel();
        let (stop, stopper) = rustix::pipe::pipe().unwrap();
        let reading = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            let stops = || {
                let watched = [reader.as_fd(), stop.as_fd()];
                let mut watched = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                poll(&mut watched, None::<&Timespec>).is_err() || !watched[1].revents().is_empty()
            };
            while !stops() {
                let Ok(length) = (&reader).read(&mut piece) else { return };
                if length == 0 || send.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let reading = Some((reading, stopper));
        let (master, slave) = (Some(master), Some(slave));
        Self { master, slave, before, child, pieces, reading, seen: Vec::new(), read: 0 }
    }

    /// The program's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Presses keys.
    pub(crate) fn write(&mut self, keys: &[u8]) {
        self.master.as_mut().unwrap().write_all(keys).unwrap();
    }

    /// Makes the terminal another size, which the kernel tells the program.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_ref().unwrap(), size).unwrap();
    }

    /// Waits until `text` has come since what was waited for last. A program that draws writes only what
    /// changed, so wait for a word, and for one that nothing like it stood under.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let (wanted, until) = (text.as_bytes(), Instant::now() + DEADLINE);
        loop {
            if let Some(at) = self.seen[self.read..].windows(wanted.len()).position(|found| found == wanted) {
                self.read += at + wanted.len();
                return;
            }
            let Ok(piece) = self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                panic!(
                    "waited in vain for {text:?} behind {:?}",
                    String::from_utf8_lossy(&self.seen[self.read..])
                );
            };
            self.seen.extend(piece);
        }
    }

    /// Everything that was written so far.
    pub(crate) fn text(&mut self) -> String {
        self.seen.extend(self.pieces.try_iter().flatten());
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// How the terminal was set before the program had it.
    pub(crate) fn settings_before(&self) -> &Termios {
        &self.before
    }

    /// How the terminal is set.
    pub(crate) fn settings(&self) -> Termios {
        tcgetattr(self.slave.as_ref().unwrap()).unwrap()
    }

    /// Takes the terminal away, as when its window is closed.
    pub(crate) fn hang_up(&mut self) {
        let (reading, stopper) = self.reading.take().unwrap();
        drop(stopper);
        reading.join().unwrap();
        (self.slave, self.master) = (None, None);
    }

    /// Waits for the program's end; its exit code.
    pub(crate) fn end(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
