//! `truegauge simulate`: a made-up cluster, each part of it a process with the real thing's doors.

mod engine;
mod jobs;
mod kubelet;
mod many;
mod nodes;
mod parts;
mod ranks;
mod root;
mod server;
mod stage;
mod telemetry;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command};
use simulate::Scenario;

use crate::args::{Done, json_flag};
use crate::output::Failure;

/// Slowest and fastest that a scenario may be played.
const SPEED: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Shortest and longest time between two looks.
const INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);

pub(crate) fn command() -> Command {
    let path = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(clap::value_parser!(PathBuf)).help(help)
    };
    let hidden = |name: &'static str| Arg::new(name).long(name).hide(true);
    Command::new("simulate")
        .about("Play a made-up cluster: nodes, GPUs, jobs, engines and what goes wrong with them")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The scenario, a TOML file"),
        )
        .arg(
            Arg::new("server")
                .long("server")
                .value_name("URL")
                .env("TRUEGAUGE_URL")
                .help("The server that gets it all; one is started for it when none is named"),
        )
        .arg(
            Arg::new("speed")
                .long("speed")
                .value_name("TIMES")
                .default_value("1")
                .value_parser(clap::value_parser!(f64))
                .help("How fast the scenario's time goes"),
        )
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(f64))
                .help("End after so many seconds [default: the scenario's length, else never]"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("DURATION")
                .default_value("5s")
                .value_parser(interval)
                .help("Time between two looks of each node's agent"),
        )
        .arg(path("dir", "DIR", "Folder for logs and state [default: a temporary one, removed at the end]"))
        .arg(path("driver", "FILE", "The fake driver library [default: `libfake_nvml.so` beside this program]"))
        .arg(json_flag())
        .arg(hidden("part"))
        .arg(hidden("epoch-ns"))
        .arg(hidden("port"))
        .arg(Arg::new("no-nodes").long("no-nodes").action(ArgAction::SetTrue).help("Leave the nodes and their GPUs out"))
        .after_help(
            "Examples:\n  truegauge simulate examples/scenarios/small.toml\n  truegauge simulate examples/scenarios/fleet.toml --server http://127.0.0.1:9494 --for 600",
        )
}

/// What every part of a scenario knows.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    pub(crate) scenario: Arc<Scenario>,
    /// Where it was read.
    pub(crate) file: PathBuf,
    /// The wall clock's time of the scenario's start, nanoseconds since the epoch.
    pub(crate) epoch_ns: i64,
    pub(crate) speed: f64,
    pub(crate) server: Option<String>,
    /// The fake driver's library: for all nodes, or for a rank that of its own.
    pub(crate) driver: Option<PathBuf>,
}

impl Play {
    fn of(matches: &ArgMatches) -> Result<Self, Failure> {
        let file = matches.get_one::<PathBuf>("file").cloned().unwrap_or_default();
        let scenario = Arc::new(read(&file)?);
        let speed = matches.get_one::<f64>("speed").copied().unwrap_or(1.0);
        if !SPEED.contains(&speed) {
            let range = format!("{} to {}", SPEED.start(), SPEED.end());
            return Err(Failure::new(format!("cannot play at {speed} times the speed: {range} is possible")));
        }
        let given = matches.get_one::<String>("epoch-ns").and_then(|text| text.parse().ok());
        let server = matches.get_one::<String>("server").cloned();
        let driver = matches.get_one::<PathBuf>("driver").cloned();
        Ok(Self { scenario, file, epoch_ns: given.unwrap_or_else(now_ns), speed, server, driver })
    }

    /// The scenario's time, seconds; below 0 before it starts.
    pub(crate) fn now(&self) -> f64 {
        (now_ns() - self.epoch_ns) as f64 / 1e9 * self.speed
    }

    /// The wall clock's time of a moment of the scenario, nanoseconds since the epoch.
    pub(crate) fn wall_ns(&self, at: f64) -> i64 {
        self.epoch_ns + (at / self.speed * 1e9) as i64
    }

    /// How long it is until a moment of the scenario.
    pub(crate) fn until(&self, at: f64) -> Duration {
        Duration::from_secs_f64(((at - self.now()) / self.speed).clamp(0.0, 3_600.0))
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn read(file: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read `{}`: {error}", file.display())))?;
    Scenario::read(&text).map_err(|error| {
        Failure::new(error.to_string())
            .hint(format!("look at `{}`; the guide is docs/guides/simulate.md", file.display()))
    })
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let play = Play::of(matches)?;
    let Some(part) = matches.get_one::<String>("part") else {
        return stage::run(&play, &stage::Wanted::of(matches)?);
    };
    let wanted = stage::Wanted::of(matches)?;
    match part.split_once(':') {
        Some(("engine", name)) => engine::run(&play, name, port(matches)?),
        Some(("rank", rest)) => {
            let (job, rank) = rest.split_once('/').unwrap_or((rest, ""));
            ranks::one(&play, index(job)?, index(rank)?, &wanted.dir)
        }
        Some(("ranks", job)) => ranks::all(&play, index(job)?, &wanted.dir),
        Some(("nodes", _)) => many::run(&play, &wanted),
        _ => Err(Failure::new(format!("there is no part `{part}` of a scenario"))),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Time between two looks, as agents take it.
fn interval(text: &str) -> Result<Duration, String> {
    let given = promql::notation::parse_duration_ms(text).and_then(|ms| u64::try_from(ms).ok());
    let given = given.map(Duration::from_millis).filter(|given| INTERVAL.contains(given));
    given.ok_or_else(|| "100ms to 1h is possible, such as `5s`".to_owned())
}

fn index(text: &str) -> Result<usize, Failure> {
    text.parse()
        .map_err(|_source: std::num::ParseIntError| Failure::new(format!("`{text}` is no number of a part")))
}

fn port(matches: &ArgMatches) -> Result<u16, Failure> {
    let given = matches.get_one::<String>("port").and_then(|text| text.parse().ok());
    given.ok_or_else(|| Failure::new("an engine needs a `--port`"))
}
