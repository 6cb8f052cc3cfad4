//! A command that is watched from outside: what `truegauge run` records of it.
//!
//! The wrapper opens a session whose sampler leaves out the wrapper's own process; the command's
//! process and its descendants are sampled here. A client inside the command's own process finds
//! [`WRAPPER_VARIABLE`] and leaves that process to the wrapper, so nothing is reported twice.

mod argv;
mod tail;
mod watch;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use model::{AttributeValue, SessionEnd};

use crate::clock::{compact_utc, now_ns};
use crate::run::Run;
use watch::Watch;

pub use argv::shown;
pub use tail::{TAIL_BYTES_MAX, Tail};

/// Tells a command who wraps it: the wrapper's process ID, a colon, and the run's id.
pub const WRAPPER_VARIABLE: &str = "TRUEGAUGE_WRAPPER";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStatus {
    /// By itself, with this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It could not be started; the exit status that a shell would give.
    NotStarted(i32),
    /// It ended and the system did not tell how.
    Unknown,
}

impl CommandStatus {
    /// The exit status a shell shows: 128 + n for signal n; 2 when it is not known.
    pub fn code(self) -> i32 {
        match self {
            Self::Exited(code) | Self::NotStarted(code) => code,
            Self::Signaled(signal) => 128 + signal,
            Self::Unknown => 2,
        }
    }

    /// How the run ends, and why in words, empty for a command that ended well.
    fn verdict(self) -> (SessionEnd, String) {
        let failed = |reason: String| (SessionEnd::Failed, reason);
        match self {
            Self::Exited(0) => (SessionEnd::Finished, String::new()),
            Self::Exited(code) => failed(format!("the command ended with exit status {code}")),
            Self::Signaled(signal) => failed(format!("the command was ended by {}", signal_name(signal))),
            Self::NotStarted(_) => failed("the command could not be started".into()),
            Self::Unknown => failed("the command ended and the system did not tell how".into()),
        }
    }
}

/// `SIGKILL` of 9, where the number means the same on every Linux.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// What is known of a command when it has ended.
#[derive(Debug, Clone)]
pub struct CommandEnd {
    /// How it ended.
    pub status: CommandStatus,
    /// CPU time of it and those of its descendants that were waited for, seconds.
    pub cpu_seconds: Option<f64>,
    /// Most memory that a single one of those took, bytes (`ru_maxrss`); `None` where that is not known
    /// to be the command's.
    pub largest_process_bytes: Option<u64>,
    /// The end of its output; `None` when it was not kept.
    pub stdout_tail: Option<String>,
    /// The end of its error output; `None` when it was not kept.
    pub stderr_tail: Option<String>,
}

impl CommandEnd {
    /// An end of which only the status is known.
    pub fn of(status: CommandStatus) -> Self {
        Self { status, cpu_seconds: None, largest_process_bytes: None, stdout_tail: None, stderr_tail: None }
    }
}

/// The record of one command in a run.
#[derive(Debug)]
pub struct CommandRecord {
    run: Run,
    prefix: String,
    started: Instant,
    watch: Option<Watch>,
}

impl CommandRecord {
    /// Begins it: what is run, and where, as the attributes `command/argv` and `command/cwd`. In a
    /// job of several processes the keys begin with `command/rank-<n>/`.
    pub fn begin(run: &Run, argv: &[OsString]) -> Self {
        let launch = &run.config().launch;
        let prefix = match launch.rank.filter(|_| launch.is_distributed()) {
            Some(rank) => format!("command/rank-{rank}/"),
            None => "command/".to_owned(),
        };
        let record = Self { run: run.clone(), prefix, started: Instant::now(), watch: None };
        record.text("argv", shown(argv));
        if let Ok(folder) = std::env::current_dir() {
            record.text("cwd", folder.to_string_lossy().into_owned());
        }
        record
    }

    /// Watches the command's process from now on, where the run captures system metrics.
    pub fn watch(&mut self, pid: u32) {
        self.set("pid", AttributeValue::Int(i64::from(pid)));
        if collect::SUPPORTED && self.run.config().capture_system_metrics {
            self.watch = self.run.shared().and_then(|shared| Watch::start(Arc::clone(shared), pid));
        }
    }

    /// Says what becomes of its output, as the attribute `command/output`.
    pub fn output(&self, words: &str) {
        self.text("output", words.to_owned());
    }

    /// Ends it: the rest of the attributes, and how to close the run.
    ///
    /// `command/peak_memory_bytes` is the larger of two numbers that each miss something: the memory
    /// of all processes together, looked at once a second, and the kernel's exact peak of the largest
    /// single process; `command/peak_memory_of` says which it was.
    pub fn end(self, end: CommandEnd) -> (SessionEnd, String) {
        let wall = self.started.elapsed().as_secs_f64();
        let mut record = self;
        let tree = record.watch.take().and_then(Watch::end);
        record.set("exit_status", AttributeValue::Int(i64::from(end.status.code())));
        if let CommandStatus::Signaled(signal) = end.status {
            record.text("signal", signal_name(signal));
        }
        record.set("wall_seconds", AttributeValue::Float(wall));
        if let Some(seconds) = end.cpu_seconds {
            record.set("cpu_seconds", AttributeValue::Float(seconds));
        }
        if let Some((bytes, of)) = peak(tree, end.largest_process_bytes) {
            record.set("peak_memory_bytes", AttributeValue::Int(i64::try_from(bytes).unwrap_or(i64::MAX)));
            record.text("peak_memory_of", of.to_owned());
        }
        for (key, tail) in [("stdout_tail", end.stdout_tail), ("stderr_tail", end.stderr_tail)] {
            // One that is empty says that nothing was written; none says that nobody kept it.
            if let Some(tail) = tail {
                record.text(key, tail);
            }
        }
        end.status.verdict()
    }

    fn text(&self, key: &str, value: String) {
        self.set(key, AttributeValue::Text(value));
    }

    fn set(&self, key: &str, value: AttributeValue) {
        self.run.set_attribute(&format!("{}{key}", self.prefix), value);
    }
}

/// The larger of two peaks, and what it is of.
fn peak(tree: Option<u64>, largest: Option<u64>) -> Option<(u64, &'static str)> {
    let tree = tree.map(|bytes| (bytes, "all processes together, looked at once a second"));
    let largest = largest.map(|bytes| (bytes, "the largest process, as the kernel counted it"));
    [largest, tree].into_iter().flatten().max_by_key(|(bytes, _)| *bytes)
}

/// A name for the run of a command: the program's, the time (UTC) and this process's ID, such as
/// `python-20261130-014502-4711`.
pub fn default_name(program: &OsStr) -> String {
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let program: String = program.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{program}-{}-{}", compact_utc(now_ns()), std::process::id())
}

/// The variables that make a `tg.init()` without names, in the command, join the run.
pub fn environment(run: &Run) -> Vec<(&'static str, String)> {
    let path = run.path();
    let mut variables = vec![
        ("TRUEGAUGE_ORGANIZATION", path.organization.clone()),
        ("TRUEGAUGE_WORKSPACE", path.workspace.clone()),
        ("TRUEGAUGE_PROJECT", path.project.clone()),
        ("TRUEGAUGE_RUN", path.run.clone()),
        (WRAPPER_VARIABLE, format!("{}:{}", std::process::id(), run.run_id())),
    ];
    let config = run.config();
    let optional = [
        ("TRUEGAUGE_URL", config.url.clone()),
        ("TRUEGAUGE_TOKEN", config.token.clone()),
        (
            "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS",
            Some(config.system_metrics_interval.as_secs_f64().to_string()),
        ),
    ];
    variables.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    variables
}

/// Whether a wrapper that `wrapper` names reports this very process for the run.
#[cfg(tg_linux)]
pub(crate) fn is_reported_by(wrapper: &str, run_id: model::RunId) -> bool {
    let is_parent = |pid| std::os::unix::process::parent_id() == pid;
    let named = wrapper.split_once(':').filter(|(_, run)| *run == run_id.to_string());
    named.and_then(|(pid, _)| pid.parse::<u32>().ok()).is_some_and(is_parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(tg_linux)]
    #[test]
    fn a_process_is_left_to_its_own_wrapper_only() {
        let (run, other) =
            (model::RunPath::default().id(), model::RunPath { run: "x".into(), ..Default::default() }.id());
        let parent = std::os::unix::process::parent_id();
        assert!(is_reported_by(&format!("{parent}:{run}"), run));
        assert!(!is_reported_by(&format!("{parent}:{run}"), other));
        assert!(!is_reported_by(&format!("{}:{run}", std::process::id()), run));
        assert!(!is_reported_by("", run) && !is_reported_by("x", run));
    }

    #[test]
    fn the_peak_is_the_larger_one_and_says_what_it_is_of() {
        assert_eq!(peak(None, None), None);
        assert_eq!(peak(Some(5), Some(3)).map(|(bytes, of)| (bytes, of.starts_with("all"))), Some((5, true)));
        assert_eq!(
            peak(Some(2), Some(3)).map(|(bytes, of)| (bytes, of.starts_with("all"))),
            Some((3, false))
        );
    }

    #[test]
    fn shells_and_runs_are_told_the_same_story() {
        let check = |status: CommandStatus, code: i32, reason: &str| {
            let (end, words) = status.verdict();
            assert_eq!((status.code(), words.as_str()), (code, reason));
            assert_eq!(end == SessionEnd::Finished, code == 0);
        };
        check(CommandStatus::Exited(0), 0, "");
        check(CommandStatus::Exited(3), 3, "the command ended with exit status 3");
        check(CommandStatus::Signaled(9), 137, "the command was ended by SIGKILL");
        check(CommandStatus::Signaled(35), 163, "the command was ended by signal 35");
        check(CommandStatus::NotStarted(127), 127, "the command could not be started");
    }
}
