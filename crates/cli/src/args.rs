//! What can be typed: one row a verb.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::output::{Failure, is_broken_pipe};
use crate::{
    agent, alerts, backup, calc, doctor, export, query, reference, remediation, rules, runs, sync, token, up,
};
#[cfg(target_os = "linux")]
use crate::{run, simulate, top};

/// How a verb ends: its exit code, or why it could not.
pub(crate) type Done = Result<ExitCode, Failure>;

/// A verb: its arguments and what it does.
type Verb = (Command, fn(&ArgMatches) -> Done);

/// Version, and the commit where the build knew it.
pub(crate) fn version() -> &'static str {
    if env!("TRUEGAUGE_COMMIT").is_empty() {
        env!("CARGO_PKG_VERSION")
    } else {
        concat!(env!("CARGO_PKG_VERSION"), " (", env!("TRUEGAUGE_COMMIT"), ")")
    }
}

fn verbs() -> Vec<Verb> {
    let mut verbs: Vec<Verb> = vec![
        (up::command(), up::run),
        (agent::command(), agent::run),
        (runs::command(), runs::run),
        (query::command(), query::run),
        (export::command(), export::run),
        (backup::command(), backup::run),
        (rules::command(), rules::run),
        (alerts::command(), alerts::run),
        (remediation::command(), remediation::run),
        (calc::command(), calc::run),
        (token::command(), token::run),
        (sync::command(), sync::run),
        (doctor::command(), doctor::run),
        (completions_command(), completions),
        (reference::command(), reference::run),
    ];
    #[cfg(target_os = "linux")]
    {
        verbs.insert(2, (run::command(), run::run));
        verbs.insert(3, (top::command(), top::run));
        verbs.insert(3, (simulate::command(), simulate::run));
        verbs.push((run::become_command(), run::become_run));
    }
    verbs
}

/// The whole command line.
pub(crate) fn command() -> Command {
    Command::new("truegauge")
        .about("Shows what AI training and inference really do, and what it costs")
        .version(version())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge up\n  truegauge runs ls --filter 'state:running loss:<0.5'\n\nExit codes: 0 fine, 1 findings, 2 usage or tool error.")
        .subcommands(verbs().into_iter().map(|(command, _)| command))
}

/// `--json`, where something is printed.
pub(crate) fn json_flag() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")
}

fn completions_command() -> Command {
    Command::new("completions")
        .about("Print completions for a shell")
        .arg(
            Arg::new("shell")
                .required(true)
                .value_name("SHELL")
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .help("Shell to complete for"),
        )
        .after_help(
            "Examples:\n  truegauge completions bash > ~/.local/share/bash-completion/completions/truegauge\n  truegauge completions fish > ~/.config/fish/completions/truegauge.fish",
        )
}

fn completions(matches: &ArgMatches) -> Done {
    let Some(shell) = matches.get_one::<clap_complete::Shell>("shell").copied() else {
        return Err(Failure::new("no shell given"));
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "truegauge", &mut text);
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the command line, does what it says, reports what went wrong.
pub(crate) fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            return match error.print() {
                Err(error) if !is_broken_pipe(&error) => ExitCode::from(2),
                _ => code,
            };
        }
    };
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(2) };
    let verb = verbs().into_iter().find(|(command, _)| command.get_name() == name);
    let Some((_, run)) = verb else { return ExitCode::from(2) };
    run(matches).unwrap_or_else(|failure| failure.report())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
