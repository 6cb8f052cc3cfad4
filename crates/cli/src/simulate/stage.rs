//! Starts every part of a scenario, keeps them going and ends them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use serde_json::json;
use simulate::Fault;

use super::kubelet::Pod;
use super::nodes::Nodes;
use super::parts::{Part, free_port};
use super::{Play, jobs, server};
use crate::args::Done;
use crate::output::{Failure, note, print_json, print_line};
use crate::run::signals::Signals;

/// Time between two looks at the scenario.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a part may take to end in order.
const END_TIME_MAX: Duration = Duration::from_secs(30);
/// Slurm's number of the first job.
const JOB_ID: usize = 4_711;
/// Most nodes that have an agent's process each.
const NODE_PROCESSES_MAX: usize = 64;
/// Seconds of the scenario between two lines that say how far it is.
const TOLD_EVERY: f64 = 60.0;

/// Slurm's number of a job.
pub(super) fn job_id(index: usize) -> usize {
    JOB_ID + index
}

/// What the command line asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) dir: PathBuf,
    is_temporary: bool,
    pub(super) interval: Duration,
    has_nodes: bool,
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
            interval: matches.get_one::<Duration>("interval").copied().unwrap_or(Duration::from_secs(5)),
            has_nodes: !matches.get_flag("no-nodes"),
            length: matches.get_one::<f64>("for").copied(),
            as_json: matches.get_flag("json"),
        })
    }

    /// Whether each node has a driver and an agent's process of its own.
    pub(super) fn plays_nodes_apart(&self, play: &Play) -> bool {
        self.has_nodes && play.scenario.hosts().count() <= NODE_PROCESSES_MAX
    }

    /// Whether one process plays all nodes.
    fn plays_nodes_together(&self, play: &Play) -> bool {
        self.has_nodes && !self.plays_nodes_apart(play)
    }
}

/// An engine's part and where its page is.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) name: String,
    /// The name of its group in the scenario.
    pub(super) group: String,
    pub(super) port: u16,
    part: Part,
}

impl Served {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.port)
    }
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
    let scrape = server::write_scrape_config(play, wanted, &engines)?;
    let mut play = play.clone();
    let mut server = match &play.server {
        Some(_) => None,
        None => Some(server::start(&mut play, wanted, &scrape)?),
    };
    let ranks = jobs::start(&play, wanted, &mut nodes)?;
    give_pods(&play, &engines, &mut nodes)?;
    let mut parts = ranks.parts;
    if wanted.plays_nodes_together(&play) {
        let more = ["--interval".to_owned(), format!("{}ms", wanted.interval.as_millis())];
        parts.push(Part::of(&play, "nodes:all", &wanted.dir, &more, &[])?);
    }
    nodes.go(&play)?;
    tell(&play, wanted, (&engines, &scrape), (ranks.count, parts.len()))?;
    parts.extend(engines.into_iter().map(|served| served.part));
    let ended = go_on(&play, wanted, signals, (&mut nodes, &mut parts))?;
    parts.extend(nodes.into_agents());
    for part in &parts {
        part.ask_to_end();
    }
    // The server is the last to go, so that what the others still have to say is heard.
    for part in parts.iter_mut().chain(&mut server) {
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
    let mut told = f64::NEG_INFINITY;
    while !signals.wants_out() && length.is_none_or(|length| play.now() < length) {
        nodes.go(play)?;
        for said in parts.iter_mut().filter_map(Part::ended).chain(nodes.ended()) {
            note(format_args!("warning: {said}"));
            has_ended = true;
        }
        if !wanted.as_json {
            told = tell_progress(play, told);
        }
        std::thread::sleep(PERIOD);
    }
    Ok(has_ended)
}

/// Says what has gone wrong since a moment, as the scenario wants it, and on a terminal how far it is. Who
/// does not read it any more misses nothing else.
fn tell_progress(play: &Play, since: f64) -> f64 {
    let now = play.now();
    for fault in play.scenario.faults.iter().filter(|fault| fault.at > since && fault.at <= now) {
        let _ = print_line(&format!("{:6.0} s  {}", fault.at, words(fault)));
    }
    let is_due = (now / TOLD_EVERY).floor() > (since / TOLD_EVERY).floor();
    if is_due && since > 0.0 && std::io::stdout().is_terminal() {
        let _ = print_line(&format!("{now:6.0} s"));
    }
    now
}

fn words(fault: &Fault) -> String {
    let kind = fault.kind.name();
    let code = fault.code.map(|code| format!(" {code}")).unwrap_or_default();
    let gpu = fault.gpu.map(|gpu| format!(" GPU {gpu}")).unwrap_or_default();
    let place =
        fault.engine.as_deref().or(fault.host.as_deref()).or(fault.job.as_deref()).unwrap_or_default();
    let gpu = fault.stage.map_or(gpu, |stage| format!(" stage {stage}"));
    let lasts = fault.lasts.map(|lasts| format!(" for {lasts:.0} s")).unwrap_or_default();
    format!("{kind}{code}: {place}{gpu}{lasts}")
}

fn engines(play: &Play, wanted: &Wanted) -> Result<Vec<Served>, Failure> {
    let start = |(name, group): (String, String)| {
        let port = free_port()?;
        let more = ["--port".to_owned(), port.to_string()];
        let part = Part::of(play, &format!("engine:{name}"), &wanted.dir, &more, &[])?;
        Ok(Served { name, group, port, part })
    };
    let named = play.scenario.engine_names().into_iter();
    named.map(|(name, _, group)| (name, group.name.clone())).map(start).collect()
}

/// Puts each engine into a pod that has its cards.
fn give_pods(play: &Play, engines: &[Served], nodes: &mut Nodes) -> Result<(), Failure> {
    let mut pods = Vec::new();
    for (name, host, group) in play.scenario.engine_names() {
        let pod = Pod::new(&name, nodes.uuids(&host, &group.gpus));
        let pid = engines.iter().find(|served| served.name == name).map(|served| served.part.pid());
        for gpu in &group.gpus {
            if let Some(pid) = pid {
                nodes.uses((&host, *gpu), pid, &pod.cgroup(), None)?;
            }
        }
        pods.push((host, pod));
    }
    nodes.give_pods(&pods)
}

/// Says what is there and where.
fn tell(
    play: &Play,
    wanted: &Wanted,
    (engines, scrape): (&[Served], &Path),
    (ranks, processes): (usize, usize),
) -> Result<(), Failure> {
    let server = play.server.clone().unwrap_or_default();
    let nodes = if wanted.has_nodes { play.scenario.hosts().count() } else { 0 };
    let is_multiplexed = wanted.plays_nodes_together(play);
    if wanted.as_json {
        let engines: Vec<_> =
            engines.iter().map(|served| json!({"name": served.name, "url": served.url()})).collect();
        return Ok(print_json(&json!({
            "scenario": play.scenario.name,
            "server": server,
            "nodes": nodes,
            "nodes_multiplexed": is_multiplexed,
            "ranks": ranks,
            "engines": engines,
            "scrape_config": scrape,
            "dir": wanted.dir,
        }))?);
    }
    let together = if is_multiplexed { " in one process" } else { "" };
    let of_ranks = match processes - usize::from(is_multiplexed) {
        1 => "one process".to_owned(),
        count => format!("{count} processes"),
    };
    print_line(&format!(
        "playing `{}`: {nodes} nodes{together}, {ranks} ranks in {of_ranks}, {} engines; {server}",
        play.scenario.name,
        engines.len()
    ))?;
    for served in engines {
        print_line(&format!("  {} at {}", served.name, served.url()))?;
    }
    if !engines.is_empty() {
        print_line(&format!("  scraped by {}", scrape.display()))?;
    }
    Ok(())
}
