//! Parts of a scenario as child processes, which end with this one.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::Play;
use crate::output::Failure;

/// A port of this machine that was free just now.
pub(super) fn free_port() -> Result<u16, Failure> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("cannot find a free port: {error}")))
}

/// A child process with a name; ended when it is dropped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    child: Child,
    log: PathBuf,
    is_told: bool,
}

impl Part {
    /// Starts this program with these arguments; what it says goes to a file in `dir`.
    pub(super) fn start(
        name: &str,
        dir: &Path,
        args: &[String],
        variables: &[(&str, String)],
    ) -> Result<Self, Failure> {
        let log = dir.join(format!("{}.log", name.replace('/', "-")));
        let failed = |error: std::io::Error| Failure::new(format!("cannot start `{name}`: {error}"));
        let out = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        // `become` asks the kernel to end the process with this one before it turns into the command.
        let child = Command::new(&program)
            .arg("become")
            .arg(std::process::id().to_string())
            .arg(&program)
            .arg("truegauge")
            .args(args)
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, log, is_told: false })
    }

    /// Starts a part of the scenario.
    pub(super) fn of(
        play: &Play,
        part: &str,
        dir: &Path,
        more: &[String],
        variables: &[(&str, String)],
    ) -> Result<Self, Failure> {
        let mut args = vec![
            "simulate".to_owned(),
            play.file.display().to_string(),
            "--part".to_owned(),
            part.to_owned(),
            "--epoch-ns".to_owned(),
            play.epoch_ns.to_string(),
            "--speed".to_owned(),
            play.speed.to_string(),
            "--dir".to_owned(),
            dir.display().to_string(),
        ];
        if let Some(server) = &play.server {
            args.extend(["--server".to_owned(), server.clone()]);
        }
        args.extend_from_slice(more);
        Self::start(&part.replace(':', "-"), dir, &args, variables)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what it said, once, when it has ended by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        if self.is_told {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        self.is_told = true;
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().rev().take(5).collect::<Vec<_>>();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Some(format!("`{}` ended with {status}: {}", self.name, last.join(" | ")))
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end in order.
    pub(super) fn ask_to_end(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    /// Waits until it has ended, at most so long; then ends it.
    pub(super) fn wait(&mut self, at_most: std::time::Duration) {
        let end = std::time::Instant::now() + at_most;
        while std::time::Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        self.kill();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}
