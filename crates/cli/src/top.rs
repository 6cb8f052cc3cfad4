//! `truegauge top`: this machine at a glance, with the numbers that mean something.

mod cells;
mod collector;
mod screen;
mod snapshot;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::{Done, json_flag};
use crate::output::{Failure, print, print_json};
use collector::Collector;
use snapshot::Sort;

/// Shortest and longest time between two looks, seconds.
const INTERVAL_SECONDS: (f64, f64) = (0.2, 3_600.0);

pub(crate) fn command() -> Command {
    Command::new("top")
        .about("Show this machine live: GPUs with the signals that mean something, limits, processes and their runs")
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .value_parser(clap::value_parser!(f64))
                .help("Seconds between two looks, at least 0.2"),
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .value_parser(["cpu", "memory", "gpu"])
                .default_value("cpu")
                .help("What processes are sorted by"),
        )
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Print one look as a table and end"))
        .arg(json_flag().help("Print one look as JSON and end: base units, ratios from 0 to 1"))
        .after_help(
            "Examples:\n  truegauge top\n  truegauge top --once --sort gpu\n  truegauge top --json | jq '.gpus[].sm_active_ratio'\n\n\
             Keys: q quit, c m g sort by CPU, memory or GPU memory, space pause, ? help. Colours are left out where `NO_COLOR` is set.",
        )
}

/// Shows or prints this machine.
pub(crate) fn run(matches: &ArgMatches) -> Done {
    let seconds = matches.get_one::<f64>("interval").copied().unwrap_or(1.0);
    if !seconds.is_finite() {
        return Err(Failure::new(format!(
            "`--interval {seconds}` can't be used: a number of seconds is wanted"
        )));
    }
    let interval = Duration::from_secs_f64(seconds.clamp(INTERVAL_SECONDS.0, INTERVAL_SECONDS.1));
    let sort = match matches.get_one::<String>("sort").map(String::as_str) {
        Some("memory") => Sort::Memory,
        Some("gpu") => Sort::GpuMemory,
        _ => Sort::Cpu,
    };
    let (once, json) = (matches.get_flag("once"), matches.get_flag("json"));
    if !once && !json {
        return screen::run(interval, sort);
    }
    let mut collector = Collector::new();
    collector.wait_for_driver();
    // What is a rate needs two looks.
    collector.look(sort);
    std::thread::sleep(interval);
    let snapshot = collector.look(sort);
    if json {
        print_json(&snapshot.to_json())?;
    } else {
        print(cells::page(&snapshot).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
