//! The command's process: started, waited for, and told of signals.
//!
//! It is started through this program once more, as the hidden verb `become`: that asks the kernel to
//! end the process when the wrapper dies, gives signals back their way, and then replaces itself by the
//! command. Whoever kills the wrapper thus kills the command, as if it were not wrapped, and no code of
//! ours runs between fork and exec.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::{Arg, ArgMatches};
use client::Run;
use client::command::CommandStatus;
use rustix::process::{Pid, Signal, WaitOptions, getppid, set_parent_process_death_signal};

use super::signals::Signals;
use super::tee::{Tee, pipe};
use crate::args::Done;
use crate::output::Failure;

/// The end of stdout and of stderr, where they are kept.
pub(super) type Tails = (Option<String>, Option<String>);

/// A command that runs.
pub(super) struct Child {
    pid: Pid,
    /// Whether it is in our process group: then a terminal tells both of us.
    shares_group: bool,
    stdout: Option<Tee>,
    stderr: Option<Tee>,
    output: &'static str,
    /// Closing it tells the threads that the command has ended.
    stop: OwnedFd,
    /// Closed when the last of them has ended.
    done: OwnedFd,
}

/// Where the command's output goes.
struct Streams {
    stdout: Option<(OwnedFd, OwnedFd)>,
    stderr: Option<(OwnedFd, OwnedFd)>,
    /// Both are one, so that their order stays.
    are_one: bool,
    words: &'static str,
}

impl Streams {
    /// A terminal is left to the command, which then can ask it for its size, draw and take its keys;
    /// anything else gets a pipe in front of it, one for both streams where both go to one place.
    fn open() -> io::Result<Self> {
        let (out, err) = (io::stdout(), io::stderr());
        let keeps = (!out.is_terminal(), !err.is_terminal());
        let are_one = keeps == (true, true) && is_one_place(out.as_fd(), err.as_fd());
        let stdout = if keeps.0 { Some(pipe()?) } else { None };
        let stderr = if keeps.1 && !are_one { Some(pipe()?) } else { None };
        let words = match (keeps, are_one) {
            (_, true) => "kept: stdout and stderr go to one place and are one tail",
            ((true, true), _) => "kept",
            ((true, false), _) => "stdout is kept; stderr is a terminal",
            ((false, true), _) => "stderr is kept; stdout is a terminal",
            ((false, false), _) => "not kept: it is a terminal",
        };
        Ok(Self { stdout, stderr, are_one, words })
    }
}

/// Whether two descriptors write to one file.
fn is_one_place(one: impl AsFd, other: impl AsFd) -> bool {
    let place = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).ok().map(|stat| (stat.st_dev, stat.st_ino));
    place(&one).is_some_and(|found| place(&other) == Some(found))
}

impl Child {
    /// Starts `program` as `argv`, with what joins it to `run` on top of this process's environment.
    pub(super) fn spawn(program: &Path, argv: &[OsString], run: &Run) -> io::Result<Self> {
        let streams = Streams::open()?;
        let shares_group = has_terminal();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("truegauge").arg("become").arg(std::process::id().to_string()).arg(program).args(argv);
        command.envs(client::command::environment(run));
        if !shares_group {
            // Who signals our group then reaches the command once, through us, and never twice.
            command.process_group(0);
        }
        let writer = |ends: &Option<(OwnedFd, OwnedFd)>| -> io::Result<Stdio> {
            ends.as_ref().map_or(Ok(Stdio::inherit()), |(_, writer)| writer.try_clone().map(Stdio::from))
        };
        command.stdout(writer(&streams.stdout)?);
        command.stderr(writer(if streams.are_one { &streams.stdout } else { &streams.stderr })?);
        let pid = Pid::from_child(&command.spawn()?);
        drop(command);
        let (stop_reader, stop) = pipe()?;
        let (done, done_writer) = pipe()?;
        let stop_reader = Arc::new(stop_reader);
        let tee = |ends: Option<(OwnedFd, OwnedFd)>, to: &dyn AsFd| -> io::Result<Option<Tee>> {
            let Some((from, writer)) = ends else { return Ok(None) };
            drop(writer);
            let to = to.as_fd().try_clone_to_owned()?;
            Tee::start((from, to), Arc::clone(&stop_reader), done_writer.try_clone()?, run).map(Some)
        };
        let stdout = tee(streams.stdout, &io::stdout())?;
        let stderr = tee(streams.stderr, &io::stderr())?;
        Ok(Self { pid, shares_group, stdout, stderr, output: streams.words, stop, done })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// What becomes of its output, in words.
    pub(super) fn output(&self) -> &'static str {
        self.output
    }

    /// Waits for its end and for the rest of its output. Passes signals on meanwhile, and waits for
    /// every process that was left to this one, which in a container may be the first.
    pub(super) fn wait(self, signals: &Signals) -> (CommandStatus, Tails) {
        let Self { pid, shares_group, stdout, stderr, stop, done, .. } = self;
        let status = loop {
            while let Some(arrived) = signals.next() {
                arrived.forward(pid, shares_group);
            }
            match reap(pid) {
                Ok(None) => {}
                Ok(Some(status)) => break status,
                Err(_) => break CommandStatus::Unknown,
            }
            if signals.wait(None).is_err() {
                break CommandStatus::Unknown;
            }
        };
        drop(stop);
        while let Ok(false) = signals.wait(Some(done.as_fd())) {
            if signals.wants_out() {
                break;
            }
        }
        let text = |tee: Option<Tee>| tee.map(|tee| tee.text());
        (status, (text(stdout), text(stderr)))
    }
}

/// Takes leave of every child that has ended; the command's status when it is among them.
fn reap(command: Pid) -> io::Result<Option<CommandStatus>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => {
                let exited = status.exit_status().map(CommandStatus::Exited);
                let signaled = status.terminating_signal().map(CommandStatus::Signaled);
                return Ok(exited.or(signaled).or(Some(CommandStatus::Unknown)));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether this process has a controlling terminal.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// The hidden verb that turns into the command.
pub(crate) fn become_command() -> clap::Command {
    let text = |name: &'static str| {
        Arg::new(name).required(true).allow_hyphen_values(true).value_parser(clap::value_parser!(OsString))
    };
    clap::Command::new("become")
        .about("Become a command that ends with its wrapper; for `run` itself")
        .hide(true)
        .arg(Arg::new("wrapper").required(true).value_parser(clap::value_parser!(i32)))
        .arg(text("program"))
        .arg(text("argv").num_args(1..).trailing_var_arg(true))
}

/// Turns into the command; comes back only when that failed.
pub(crate) fn become_run(matches: &ArgMatches) -> Done {
    let program = matches.get_one::<OsString>("program").map_or(OsStr::new(""), OsString::as_os_str);
    let argv: Vec<&OsString> = matches.get_many("argv").into_iter().flatten().collect();
    let wrapper = matches.get_one::<i32>("wrapper").copied();
    // A kernel that refuses costs the command its end with the wrapper and nothing else.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // What the wrapper blocks for itself was inherited; what came meanwhile arrives now.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    // Inside a wrapper that is gone already nobody would hear of the command.
    if wrapper.is_some() && parent != wrapper {
        return Err(Failure::new("the wrapper of the command has ended"));
    }
    let mut command = Command::new(program);
    if let Some((name, arguments)) = argv.split_first() {
        command.arg0(name).args(arguments);
    }
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure::new(format!("cannot run `{}`: {error}", program.to_string_lossy())).code(code))
}
