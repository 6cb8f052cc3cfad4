//! The journal, through `journalctl`.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::fd::AsFd,
    process::{Child, ChildStdout, Command, Stdio},
};

use collect::kernel_log::{Feed, Format};
use rustix::fs::OFlags;

use super::{Lines, Taking};

/// Most bytes of a look.
const LOOK_BYTES_MAX: usize = 8 << 20;
/// Most looks between two attempts to start it again.
const WAIT_LOOKS_MAX: u32 = 32;

#[derive(Debug)]
pub(super) struct Journal {
    program: OsString,
    running: Option<Box<Running>>,
    /// Looks until it is started again, and how many it will be after that.
    wait: u32,
    next_wait: u32,
}

#[derive(Debug)]
struct Running {
    child: Child,
    output: ChildStdout,
    feed: Feed,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Journal {
    pub(super) fn new(program: &OsStr) -> Self {
        Self { program: program.to_owned(), running: None, wait: 0, next_wait: 1 }
    }

    /// Gives the entries that are new.
    pub(super) fn read(&mut self, taking: &mut Taking<'_>, lines: &mut Lines<'_>) -> Result<(), String> {
        if self.running.is_none() {
            if self.wait > 0 {
                self.wait -= 1;
                return Ok(());
            }
            self.wait = self.next_wait;
            self.next_wait = (self.next_wait * 2).min(WAIT_LOOKS_MAX);
            self.running = Some(Box::new(self.start(taking.behind.cursor.as_deref())?));
        }
        let Some(running) = &mut self.running else { return Ok(()) };
        let cursor = &mut taking.behind.cursor;
        let outcome = running.read(&mut |record| {
            cursor.clone_from(&record.cursor);
            lines(record, None, None);
        });
        match outcome {
            Ok(true) => {
                self.next_wait = 1;
                Ok(())
            }
            Ok(false) => {
                let why = self.running.take().map(|running| running.end()).unwrap_or_default();
                Err(format!("cannot read the journal: `{}` ended{why}", self.program.display()))
            }
            Err(error) => {
                self.running = None;
                Err(format!("cannot read the journal from `{}`: {error}", self.program.display()))
            }
        }
    }

    fn start(&self, cursor: Option<&str>) -> Result<Running, String> {
        let cannot =
            |error| format!("cannot read the journal: `{}` does not start: {error}", self.program.display());
        let mut command = Command::new(&self.program);
        command.args(["--output=export", "--follow", "--no-tail", "_TRANSPORT=kernel"]);
        match cursor {
            // Behind it there may be entries of an earlier boot.
            Some(cursor) => command.arg(format!("--after-cursor={cursor}")),
            None => command.arg("--boot"),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let output = child.stdout.take().ok_or_else(|| cannot(io::Error::other("it has no output")))?;
        unblock(&output).map_err(cannot)?;
        Ok(Running { child, output, feed: Feed::new(Format::Journal) })
    }
}

impl Running {
    /// Takes what is there; whether more may come.
    fn read(&mut self, sink: &mut dyn FnMut(collect::kernel_log::Record)) -> io::Result<bool> {
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        while total < LOOK_BYTES_MAX {
            match self.output.read(&mut buffer) {
                Ok(0) => {
                    self.feed.finish(sink);
                    return Ok(false);
                }
                Ok(length) => {
                    self.feed.take(&buffer[..length], sink);
                    total += length;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// What it ended with, in words.
    fn end(mut self) -> String {
        let mut said = [0; 512];
        let length = match &mut self.child.stderr {
            Some(errors) if unblock(errors).is_ok() => errors.read(&mut said).unwrap_or(0),
            _ => 0,
        };
        let said = String::from_utf8_lossy(&said[..length]);
        let said = said.lines().next().unwrap_or_default();
        let status = self.child.try_wait().ok().flatten().map(|status| format!(" with {status}"));
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        format!("{}{said}", status.unwrap_or_default())
    }
}

fn unblock(pipe: &impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?)
}
