//! `truegauge run`: any command, with what the machine did meanwhile.

mod dumps;
mod program;
pub(crate) mod signals;
mod spawn;
mod tee;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use client::command::{CommandEnd, CommandRecord, CommandStatus};
use client::{Config, Run, StartError};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::args::Done;
use crate::output::{Failure, note, stderr_is_terminal};
use dumps::Dumps;
use signals::Signals;
use spawn::Child;

/// The hidden verb that becomes the command; see [`spawn`].
pub(crate) use spawn::{become_command, become_run};

pub(crate) fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("run")
        .about("Run any command and record what it and the machine did")
        .arg(text("organization", "NAME", "Organization of the run [env: TRUEGAUGE_ORGANIZATION]"))
        .arg(text("workspace", "NAME", "Workspace of the run [env: TRUEGAUGE_WORKSPACE]"))
        .arg(text("project", "NAME", "Project of the run [env: TRUEGAUGE_PROJECT]"))
        .arg(text("run", "NAME", "Name of the run [env: TRUEGAUGE_RUN] [default: the job's id, else program, time and process id]"))
        .arg(text("tag", "TAG", "Tag of a new run; may be repeated").action(ArgAction::Append))
        .arg(
            text("interval", "SECONDS", "Seconds between two samples, at least 1 [default: 30]")
                .value_parser(clap::value_parser!(f64)),
        )
        .arg(text("url", "URL", "The server [env: TRUEGAUGE_URL]"))
        .arg(text("token", "TOKEN", "The server's token [env: TRUEGAUGE_TOKEN]"))
        .arg(
            Arg::new("quiet")
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("Do not say on a terminal where the run is shown"),
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(1..)
                .required(true)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(clap::value_parser!(OsString))
                .help("The command and its arguments"),
        )
        .after_help(
            "Examples:\n  truegauge run -- python train.py --lr 1e-4\n  truegauge run --project llm --run pretrain-7b -- torchrun --nproc-per-node 8 train.py\n\n\
             Exit code: the command's own; 128 + n when signal n ended it, 127 when it was not found, 126 when it can't be executed, 2 when the run could not be started.",
        )
}

/// Runs the command to its end and passes its exit status on.
pub(crate) fn run(matches: &ArgMatches) -> Done {
    let argv: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let Some(name) = argv.first() else { return Err(Failure::new("no command given")) };
    let program = program::find(name)?;
    // Before any thread is made: each inherits what is blocked, and then only the descriptor tells.
    let signals = Signals::take().map_err(|error| Failure::new(format!("cannot take signals: {error}")))?;
    let run = Run::start(named(config(matches)?, name)).map_err(start_failure)?;
    if stderr_is_terminal() && !matches.get_flag("quiet") {
        let place = run.url().unwrap_or_else(|| "the spool, until a server answers".into());
        note(format_args!("truegauge: recording `{}`: {place}", crate::output::printable(&run.path().run)));
    }
    let mut record = CommandRecord::begin(&run, &argv);
    let (status, failure) = match Child::spawn(&program, &argv, &run) {
        Ok(child) => {
            record.watch(child.pid());
            (finish(&run, record, child, &signals), None)
        }
        Err(error) => {
            let failure = Failure::new(format!("cannot run `{}`: {error}", name.to_string_lossy()));
            let status = CommandStatus::NotStarted(126);
            close(&run, record.end(CommandEnd::of(status)), &signals);
            (status, Some(failure.code(126)))
        }
    };
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::from(u8::try_from(status.code()).unwrap_or(u8::MAX))),
    }
}

/// Waits for the command and closes the run.
fn finish(run: &Run, record: CommandRecord, child: Child, signals: &Signals) -> CommandStatus {
    record.output(child.output());
    let dumps = Dumps::start(run);
    let (status, tails) = child.wait(signals);
    if let Some(dumps) = dumps {
        dumps.end();
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    // The kernel counts a process from its fork on, when it was this very program. A peak that this
    // program reaches itself says nothing of the command.
    let wrapper_peak = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |used| used.max_rss());
    let kernel_peak = usage.map(|used| used.max_rss()).filter(|peak| *peak > wrapper_peak);
    let cpu_us = usage.map(|used| (used.user_time() + used.system_time()).num_microseconds());
    let (stdout_tail, stderr_tail) = tails;
    let end = CommandEnd {
        status,
        cpu_seconds: cpu_us.map(|us| us as f64 / 1e6),
        largest_process_bytes: kernel_peak.and_then(|kib| u64::try_from(kib).ok()).map(|kib| kib << 10),
        stdout_tail,
        stderr_tail,
    };
    close(run, record.end(end), signals);
    status
}

/// Closes the run; a second signal ends the wait for the server, and the spool takes the rest.
fn close(run: &Run, (end, reason): (model::SessionEnd, String), signals: &Signals) {
    // A server that was away was warned of already, with where the run is.
    let was_up = run.counters().is_server_up;
    let outcome = run.close(end, &reason, run.config().close_timeout, &mut || signals.wants_out());
    if let Some(hint) = outcome.hint.filter(|_| was_up) {
        note(format_args!("truegauge: {hint}"));
    }
}

/// The environment's settings, then the flags.
fn config(matches: &ArgMatches) -> Result<Config, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let mut config = Config { samples_process: false, ..Config::from_env() };
    let path = &mut config.path;
    let parts = [
        ("organization", &mut path.organization),
        ("workspace", &mut path.workspace),
        ("project", &mut path.project),
        ("run", &mut path.run),
    ];
    for (flag, part) in parts {
        if let Some(given) = text(flag) {
            *part = given;
        }
    }
    config.url = text("url").or(config.url);
    config.token = text("token").or(config.token);
    config.tags = matches.get_many("tag").into_iter().flatten().cloned().collect();
    if let Some(seconds) = matches.get_one::<f64>("interval").copied() {
        config.system_metrics_interval = client::sampling_interval(seconds).map_err(|wanted| {
            Failure::new(format!("`--interval {seconds}` can't be used: {wanted} is wanted"))
        })?;
    }
    // What a wrapper around this one said is meant for this process, not for the command.
    config.wrapper = String::new();
    Ok(config)
}

/// The config with a name for a run that has none, after the program: in a loop two commands may
/// start within a second. Ranks of a job must agree on a name, so theirs is left to the client.
fn named(mut config: Config, program: &OsStr) -> Config {
    let is_alone = config.launch.world_size.is_none_or(|size| size <= 1);
    let has_name =
        !config.path.run.is_empty() || !config.launch.run_name.is_empty() || config.job_token.is_some();
    if is_alone && !has_name {
        config.path.run = client::command::default_name(program);
    }
    config
}

fn start_failure(error: StartError) -> Failure {
    let hint = error.hint().unwrap_or_default();
    Failure::new(format!("cannot start the run: {error}")).hint(hint)
}
