//! What can be typed.

use std::process::ExitCode;

use clap::Command;

use crate::output::Failure;
use crate::up;

/// The whole command line.
pub(crate) fn command() -> Command {
    let up =
        Command::new("up").about("Start the server: takes points in, shows runs in a browser").after_help(
            "Examples:\n  truegauge up\n  truegauge up --data-dir /data/truegauge --listen 127.0.0.1:8080",
        );
    Command::new("truegauge")
        .about("Shows what AI training and inference really do, and what it costs")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(up::command(up))
}

/// Reads the command line, does what it says, reports what went wrong.
pub(crate) fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let done: Result<ExitCode, Failure> = match matches.subcommand() {
        Some(("up", matches)) => up::run(matches),
        _ => Ok(ExitCode::from(2)),
    };
    done.unwrap_or_else(|failure| {
        failure.report();
        ExitCode::from(2)
    })
}
