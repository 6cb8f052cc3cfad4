//! Starts every part of a scenario, keeps them going and ends them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::json;

use super::Play;
use super::nodes::Nodes;
use super::parts::{Part, free_port};
use crate::args::Done;
use crate::output::{Failure, note, print_json, print_line};
use crate::run::signals::Signals;

/// Time between two looks at the scenario.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a server may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a part may take to end in order.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Slurm's number of the first job.
const JOB_ID: usize = 4_711;
/// Most ranks of a job that are a process each.
const RANK_PROCESSES_MAX: usize = 64;

/// What the command line asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) dir: PathBuf,
    is_temporary: bool,
    pub(super) interval: String,
    pub(super) has_nodes: bool,
    length: Option<f64>,
    as_json: bool,
}

impl Wanted {
    pub(super) fn of(matches: &ArgMatches) -> Result<Self, Failure> {
        let given = matches.get_one::<PathBuf>("dir").cloned();
        let is_temporary = given.is_none();
        let dir = given.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("truegauge-simulate-{}", std::process::id()))
        });
        std::fs::create_dir_all(&dir)
            .map_err(|error| Failure::new(format!("cannot make `{}`: {error}", dir.display())))?;
        let dir = dir
            .canonicalize()
            .map_err(|error| Failure::new(format!("cannot use `{}`: {error}", dir.display())))?;
        Ok(Self {
            dir,
            is_temporary,
            interval: matches.get_one::<String>("interval").cloned().unwrap_or_default(),
            has_nodes: !matches.get_flag("no-nodes"),
            length: matches.get_one::<f64>("for").copied(),
            as_json: matches.get_flag("json"),
        })
    }
}

/// An engine's part and where its page is.
struct Served {
    name: String,
    url: String,
    part: Part,
}

/// Plays the scenario until it is over or somebody ends it.
pub(super) fn run(play: &Play, wanted: &Wanted) -> Done {
    let signals = Signals::take().map_err(|error| Failure::new(format!("cannot take signals: {error}")))?;
    let done = whole(play, wanted, &signals);
    if wanted.is_temporary {
        let _ = std::fs::remove_dir_all(&wanted.dir);
    }
    done
}

fn whole(play: &Play, wanted: &Wanted, signals: &Signals) -> Done {
    let mut nodes = Nodes::open(play, wanted)?;
    let engines = engines(play, wanted)?;
    let mut play = play.clone();
    let server = match &play.server {
        Some(_) => None,
        None => Some(start_server(&mut play, wanted, &engines)?),
    };
    let ranks = ranks(&play, wanted, &mut nodes)?;
    for served in &engines {
        let group = play.scenario.engine_names().into_iter().find(|(name, ..)| *name == served.name);
        for gpu in group.iter().flat_map(|(_, _, group)| &group.gpus) {
            let host = group.as_ref().map_or("", |(_, host, _)| host);
            let cgroup = format!("/kubepods.slice/kubepods-burstable.slice/{}.scope", served.name);
            nodes.uses(host, *gpu, served.part.pid(), &cgroup)?;
        }
    }
    nodes.go(&play)?;
    tell(&play, wanted, &engines, nodes.len())?;
    let mut parts: Vec<Part> = ranks;
    parts.extend(engines.into_iter().map(|served| served.part));
    let ended = go_on(&play, wanted, signals, (&mut nodes, &mut parts))?;
    parts.extend(nodes.into_agents());
    for part in &parts {
        part.ask_to_end();
    }
    for part in parts.iter_mut().chain(&mut server.into_iter().collect::<Vec<_>>()) {
        part.ask_to_end();
        part.wait(END_TIME_MAX);
    }
    Ok(if ended { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Until the end; whether a part had ended by itself.
fn go_on(
    play: &Play,
    wanted: &Wanted,
    signals: &Signals,
    (nodes, parts): (&mut Nodes, &mut Vec<Part>),
) -> Result<bool, Failure> {
    let length = wanted.length.map(|seconds| seconds * play.speed).or(play.scenario.length);
    let mut has_ended = false;
    while !signals.wants_out() && length.is_none_or(|length| play.now() < length) {
        nodes.go(play)?;
        for said in parts.iter_mut().filter_map(Part::ended).chain(nodes.ended()) {
            if !has_ended {
                note(format_args!("warning: {said}"));
            }
            has_ended = true;
        }
        std::thread::sleep(PERIOD);
    }
    Ok(has_ended)
}

fn engines(play: &Play, wanted: &Wanted) -> Result<Vec<Served>, Failure> {
    let start = |name: String| {
        let port = free_port()?;
        let more = ["--port".to_owned(), port.to_string()];
        let part = Part::of(play, &format!("engine:{name}"), &wanted.dir, &more, &[])?;
        Ok(Served { name, url: format!("http://127.0.0.1:{port}/metrics"), part })
    };
    play.scenario.engine_names().into_iter().map(|(name, ..)| start(name)).collect()
}

fn ranks(play: &Play, wanted: &Wanted, nodes: &mut Nodes) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    for (index, group) in play.scenario.jobs.iter().enumerate() {
        let job = simulate::Job::new(play.scenario.clone(), index)
            .map_err(|error| Failure::new(error.to_string()))?;
        let spool = ("TRUEGAUGE_SPOOL_DIR", wanted.dir.join("spool").display().to_string());
        if job.ranks().len() > RANK_PROCESSES_MAX {
            parts.push(Part::of(play, &format!("ranks:{index}"), &wanted.dir, &[], &[spool])?);
            continue;
        }
        for (rank, (host, gpu)) in job.ranks().iter().enumerate() {
            let mut variables = vec![
                spool.clone(),
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", gpu.to_string()),
                ("WORLD_SIZE", job.ranks().len().to_string()),
                ("TRUEGAUGE_ORCHESTRATION_ID", format!("{}-{}", group.name, play.epoch_ns)),
            ];
            let mut more = Vec::new();
            match nodes.library(host) {
                Some(library) => more.extend(["--driver".to_owned(), library.display().to_string()]),
                None => variables.push(("TRUEGAUGE_CAPTURE_SYSTEM_METRICS", "false".to_owned())),
            }
            let part = Part::of(play, &format!("rank:{index}/{rank}"), &wanted.dir, &more, &variables)?;
            let cgroup =
                format!("/system.slice/slurmstepd.scope/job_{}/step_0/user/task_{gpu}", JOB_ID + index);
            nodes.uses(host, *gpu, part.pid(), &cgroup)?;
            parts.push(part);
        }
    }
    Ok(parts)
}

/// Starts a server for the scenario alone and waits until it answers.
fn start_server(play: &mut Play, wanted: &Wanted, engines: &[Served]) -> Result<Part, Failure> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let mut args: Vec<String> = [
        "up",
        "--data-dir",
        &wanted.dir.join("data").display().to_string(),
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--otlp-grpc-listen",
        "127.0.0.1:0",
        "--otlp-http-listen",
        "127.0.0.1:0",
        "--scrape-interval",
        &wanted.interval,
    ]
    .map(str::to_owned)
    .to_vec();
    for served in engines {
        args.extend(["--scrape".to_owned(), served.url.clone()]);
    }
    let mut part = Part::start("server", &wanted.dir, &args, &[])?;
    let end = Instant::now() + START_TIME_MAX;
    while ureq::get(format!("{url}/readyz")).call().is_err() {
        if let Some(said) = part.ended() {
            return Err(Failure::new(format!("cannot start a server: {said}")));
        }
        if Instant::now() > end {
            return Err(Failure::new(format!("the server at {url} does not answer")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    play.server = Some(url);
    Ok(part)
}

/// Says what is there and where.
fn tell(play: &Play, wanted: &Wanted, engines: &[Served], nodes: usize) -> Result<(), Failure> {
    let server = play.server.clone().unwrap_or_default();
    if wanted.as_json {
        let engines: Vec<_> =
            engines.iter().map(|served| json!({"name": served.name, "url": served.url})).collect();
        return Ok(print_json(&json!({
            "scenario": play.scenario.name,
            "server": server,
            "nodes": nodes,
            "engines": engines,
            "dir": wanted.dir,
        }))?);
    }
    print_line(&format!(
        "playing `{}`: {nodes} nodes, {} engines; {server}",
        play.scenario.name,
        engines.len()
    ))?;
    for served in engines {
        print_line(&format!("  {} at {}", served.name, served.url))?;
    }
    Ok(())
}
