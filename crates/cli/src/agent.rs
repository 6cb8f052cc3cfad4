//! `truegauge agent`: reports one node, in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::{Config, FIELDS, Given, Shape};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use crate::args::{Done, json_flag};
use crate::output::{Failure, print_line};

/// The verb, with a flag for each of the agent's settings.
pub(crate) fn command() -> Command {
    let command = Command::new("agent")
        .about("Report this node: its GPUs, its machine, its kernel's log and who owns a GPU")
        .after_help(
            "Examples:\n  truegauge agent --server http://gauge:9494\n  truegauge agent --names dcgm --listen 127.0.0.1:9400",
        );
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("TRUEGAUGE_CONFIG")
        .hide_env_values(true)
        .value_parser(clap::value_parser!(PathBuf))
        .help("TOML file with any of these settings under `[agent]`; flag beats variable beats file");
    let command = FIELDS.iter().fold(command.arg(config), |command, field| {
        let mut help = format!("{} [env: {}]", field.help, field.variable);
        if !field.default.is_empty() {
            help = format!("{} [env: {}] [default: {}]", field.help, field.variable, field.default);
        }
        let arg = Arg::new(field.name).long(field.flag).help(help);
        command.arg(match field.shape {
            Shape::Switch => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_name("BOOL")
                .action(ArgAction::Set),
            Shape::Path => arg.value_name("PATH"),
            Shape::Address => arg.value_name("ADDR"),
            Shape::Text => arg.value_name("TEXT"),
            Shape::Bytes => arg.value_name("BYTES"),
            Shape::Duration => arg.value_name("DURATION"),
        })
    });
    command.arg(json_flag().help("Print where things are as one line of JSON"))
}

/// Reports until it is told to stop.
pub(crate) fn run(matches: &ArgMatches) -> Done {
    let given: Given = FIELDS
        .iter()
        .filter_map(|field| Some((field.name, matches.get_one::<String>(field.name)?.clone())))
        .collect();
    let file = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let config = Config::resolve(&given, &|name| std::env::var(name).ok(), file)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    crate::output::start_log(&config.log_format);
    let (host, server, state_dir) = (config.host.clone(), config.server.clone(), config.state_dir.clone());
    let running = agent::start(config).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let metrics = format!("http://{}/metrics", running.addr);
    let greeting = if matches.get_flag("json") {
        json!({ "host": host, "metrics": metrics, "server": server, "state_dir": state_dir }).to_string()
    } else {
        let to = if server.is_empty() {
            "to nobody, since no `--server` is named".to_owned()
        } else {
            format!("to {}", client::shown_url(&server))
        };
        format!("truegauge agent {} reports {host} {to}\nmetrics on {metrics}", crate::args::version())
    };
    // A stdout that is gone does not stop an agent.
    let _ = print_line(&greeting);
    running.wait().map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))?;
    Ok(ExitCode::SUCCESS)
}
