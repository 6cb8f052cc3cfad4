//! `truegauge up`: the server in the foreground.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use server::config::{Config, FIELDS, Given, Shape};
use server::{Reread, Running};

use crate::args::Done;
use crate::output::{Failure, print_line};

/// Where a client looks when it is told nothing.
const DEFAULT_PORT: u16 = 9494;

/// The verb, with a flag for each of the server's settings.
pub(crate) fn command() -> Command {
    let command =
        Command::new("up").about("Start the server: takes points in, shows runs in a browser").after_help(
            "Examples:\n  truegauge up\n  truegauge up --data-dir /data/truegauge --listen 127.0.0.1:8080",
        );
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("TRUEGAUGE_CONFIG")
        .hide_env_values(true)
        .value_parser(clap::value_parser!(PathBuf))
        .help("TOML file with any of these settings; flag beats variable beats file");
    FIELDS.iter().fold(command.arg(config), |command, field| {
        let variable = field.variable();
        let mut help = format!("{} [env: {variable}]", field.help);
        if !field.default.is_empty() {
            help = format!("{} [env: {variable}] [default: {}]", field.help, field.default);
        }
        let arg = Arg::new(field.name).long(field.flag).help(help);
        command.arg(match field.shape {
            Shape::Switch => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_name("BOOL")
                .action(ArgAction::Set),
            Shape::List => arg.action(ArgAction::Append).value_name("VALUE"),
            Shape::Path => arg.value_name("PATH"),
            Shape::Address => arg.value_name("ADDR"),
            Shape::Text => arg.value_name("TEXT"),
            Shape::Bytes => arg.value_name("BYTES"),
            Shape::Number => arg.value_name("N"),
            Shape::Duration => arg.value_name("DURATION"),
        })
    })
}

/// Serves until it is told to stop.
pub(crate) fn run(matches: &ArgMatches) -> Done {
    let given: Given = FIELDS
        .iter()
        .filter_map(|field| {
            let values: Vec<String> = matches.get_many::<String>(field.name)?.cloned().collect();
            Some((field.name, values))
        })
        .collect();
    let file = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let resolve = move |file: Option<&Path>| {
        Config::resolve(defaults(), &given, &|name| std::env::var(name).ok(), file)
    };
    let mut config = resolve(file).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let again = file.map(Path::to_owned);
    config.reread = Reread::new(move || resolve(again.as_deref()).map_err(|error| error.to_string()));
    crate::output::start_log(&config.log_format);
    let data_dir = config.data_dir.clone();
    let running =
        server::start(config).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    running.wait(|running| greet(running, &data_dir));
    Ok(ExitCode::SUCCESS)
}

/// The server's defaults, with what this machine's clients and collectors know.
pub(crate) fn defaults() -> Config {
    Config {
        spool_dir: client::default_spool_dir(),
        catalog: [&collect::all_descs()[..], agent::own::DESCS].concat(),
        promised: collect::PROMISED.to_vec(),
        ..Config::default()
    }
}

/// Where to look and how to send the first point, on stdout: a script reads the address there.
fn greet(running: &Running, data_dir: &Path) {
    let url = &running.url;
    let mut lines = vec![
        format!("truegauge {} serves {url}", crate::args::version()),
        format!("data in {}", data_dir.display()),
    ];
    if let Some(address) = running.grpc_addr {
        lines.push(format!("gRPC on {address}, for OpenTelemetry and clients of metrana"));
    }
    if let Some(address) = running.otlp_http_addr {
        lines.push(format!("OTLP over HTTP on {address}, and where the UI is"));
    }
    if let Some(link) = running.login_url() {
        lines.push(format!("log a browser in, once, within ten minutes: {link}"));
    }
    lines.extend([String::new(), "log from Python:".to_owned()]);
    if running.addr.port() != DEFAULT_PORT {
        lines.push(format!("    # where it runs: export TRUEGAUGE_URL={url}"));
    }
    if running.is_guarded() {
        lines.push("    # where it runs: export TRUEGAUGE_TOKEN=<the token>".to_owned());
    }
    lines.extend(
        [
            "    import truegauge as tg",
            "    tg.init(project_name=\"first\")",
            "    tg.log({\"loss\": 0.5})",
            "",
        ]
        .map(str::to_owned),
    );
    // A stdout that is gone does not stop a server.
    let _ = print_line(&lines.join("\n"));
}
