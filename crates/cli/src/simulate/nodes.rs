//! The nodes of a scenario: for each a fake driver, a kernel log and a real agent that reads both.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use simulate::{FaultKind, LogLine, Node};

use super::Play;
use super::kubelet::{self, Kubelet, Pod};
use super::parts::Part;
use super::ranks::locks_folder;
use super::root::{Root, show_uptime};
use super::stage::Wanted;
use crate::output::Failure;

/// What the fake driver looks for beside itself.
const DRIVER_SCENARIO: &str = "scenario.toml";
/// Name of the driver's library, as programs ask for it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// A node that is played.
struct Played {
    node: Node,
    dir: PathBuf,
    root: Root,
    boots: u32,
    log: File,
    agent: Option<Part>,
    /// When its agent starts, so that not all of them look at the same moment.
    starts_after: Duration,
    kubelet: Option<PathBuf>,
}

/// All of them.
pub(super) struct Nodes {
    played: Vec<Played>,
    /// Processes by host and card.
    pids: BTreeMap<(String, u32), Vec<u32>>,
    interval: Duration,
    begun: Instant,
}

impl Nodes {
    /// Makes the folders of all nodes; no agent runs yet.
    pub(super) fn open(play: &Play, wanted: &Wanted) -> Result<Self, Failure> {
        let mut played = Vec::new();
        if wanted.plays_nodes_apart(play) {
            let library = driver(play.driver.as_deref())?;
            for (host, _) in play.scenario.hosts() {
                let node =
                    Node::new(&play.scenario, &host).map_err(|error| Failure::new(error.to_string()))?;
                played.push(Played::open(node, &wanted.dir.join(&host), &library)?);
            }
        }
        let count = u32::try_from(played.len()).unwrap_or(u32::MAX);
        for (number, played) in (0..).zip(&mut played) {
            played.starts_after = wanted.interval * number / count;
        }
        Ok(Self { played, pids: BTreeMap::new(), interval: wanted.interval, begun: Instant::now() })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.played.len()
    }

    /// The fake driver's library of a node.
    pub(super) fn library(&self, host: &str) -> Option<PathBuf> {
        let played = self.played.iter().find(|played| played.node.host() == host)?;
        Some(played.dir.join(LIBRARY))
    }

    /// Gives the engines of a node their pods, and the node a kubelet that tells of them.
    pub(super) fn give_pods(&mut self, pods: &[(String, Pod)]) -> Result<(), Failure> {
        let mut kubelets = Vec::new();
        for played in &mut self.played {
            let host = played.node.host();
            let here: Vec<Pod> =
                pods.iter().filter(|(one, _)| one == host).map(|(_, pod)| pod.clone()).collect();
            if here.is_empty() {
                continue;
            }
            for pod in &here {
                played
                    .root
                    .has_pod(pod)
                    .map_err(|error| Failure::new(format!("cannot show a pod of `{host}`: {error}")))?;
            }
            let cards = played.node.cards().iter().map(|card| card.uuid.clone()).collect();
            let kubelet = Kubelet::new(&played.dir, here, cards);
            played.kubelet = Some(kubelet.socket.clone());
            kubelets.push(kubelet);
        }
        kubelet::serve(kubelets)
    }

    /// Says which process uses a card, of which control group it is and which run started it, if that is not
    /// to be seen otherwise.
    pub(super) fn uses(
        &mut self,
        (host, gpu): (&str, u32),
        pid: u32,
        cgroup: &str,
        run_id: Option<&str>,
    ) -> Result<(), Failure> {
        self.pids.entry((host.to_owned(), gpu)).or_default().push(pid);
        let Some(played) = self.played.iter().find(|played| played.node.host() == host) else {
            return Ok(());
        };
        played
            .root
            .show(pid, cgroup, run_id)
            .map_err(|error| Failure::new(format!("cannot show process {pid} on `{host}`: {error}")))
    }

    /// UUIDs of cards of a node.
    pub(super) fn uuids(&self, host: &str, gpus: &[u32]) -> Vec<String> {
        let played = self.played.iter().find(|played| played.node.host() == host);
        let cards = played.map_or(&[][..], |played| played.node.cards());
        gpus.iter().filter_map(|gpu| cards.get(*gpu as usize)).map(|card| card.uuid.clone()).collect()
    }

    /// Goes on to now: drivers answer anew, kernels say what happened, agents are there or not.
    pub(super) fn go(&mut self, play: &Play) -> Result<(), Failure> {
        let now = play.now();
        for played in &mut self.played {
            played.node.advance(now);
            let host = played.node.host().to_owned();
            let pids = |gpu| self.pids.get(&(host.clone(), gpu)).cloned().unwrap_or_default();
            played.show(play, &pids)?;
            if self.begun.elapsed() >= played.starts_after {
                played.mind_agent(play, now, self.interval)?;
            }
        }
        Ok(())
    }

    /// Agents that ended by themselves, in words.
    pub(super) fn ended(&mut self) -> Vec<String> {
        let agents = self.played.iter_mut().filter_map(|played| played.agent.as_mut());
        agents.filter_map(Part::ended).collect()
    }

    /// Asks every agent to end, so that what is left is delivered.
    pub(super) fn into_agents(self) -> Vec<Part> {
        self.played.into_iter().filter_map(|played| played.agent).collect()
    }
}

impl Played {
    fn open(node: Node, dir: &Path, library: &Path) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("cannot prepare `{}`: {error}", dir.display()));
        let locks = locks_folder(dir);
        std::fs::create_dir_all(&locks).map_err(failed)?;
        std::fs::copy(library, dir.join(LIBRARY)).map_err(failed)?;
        // Ranks start before the first look: a driver that answers without a card is looked at again much later.
        let cards = node.driver_scenario(&|_| Vec::new());
        std::fs::write(dir.join(DRIVER_SCENARIO), cards).map_err(failed)?;
        let log = File::options().create(true).append(true).open(dir.join("kernel.log")).map_err(failed)?;
        let root = Root::make(dir.join("root"), &node, &locks).map_err(failed)?;
        Ok(Self {
            node,
            dir: dir.to_owned(),
            root,
            boots: 1,
            log,
            agent: None,
            starts_after: Duration::ZERO,
            kubelet: None,
        })
    }

    /// Writes what the driver answers and what the kernel says, as `dmesg` prints it.
    fn show(&mut self, play: &Play, pids: &dyn Fn(u32) -> Vec<u32>) -> Result<(), Failure> {
        let host = self.node.host().to_owned();
        let failed = |error: std::io::Error| Failure::new(format!("cannot play `{host}`: {error}"));
        if self.node.boots() != self.boots {
            self.boots = self.node.boots();
            self.root.boot(&self.node).map_err(failed)?;
        }
        let file = self.dir.join(DRIVER_SCENARIO);
        let fresh = self.dir.join("scenario.toml.new");
        std::fs::write(&fresh, self.node.driver_scenario(pids)).map_err(failed)?;
        std::fs::rename(&fresh, &file).map_err(failed)?;
        show_uptime(self.root.path(), play, &self.node).map_err(failed)?;
        let lines = dmesg(play, &mut self.node);
        self.log.write_all(lines.as_bytes()).map_err(failed)
    }

    fn mind_agent(&mut self, play: &Play, now: f64, interval: Duration) -> Result<(), Failure> {
        let host = self.node.host();
        if !self.node.is_up() || is_killed(play, host, now) {
            if let Some(mut agent) = self.agent.take() {
                agent.kill();
            }
            return Ok(());
        }
        if self.agent.is_none() {
            self.agent = Some(self.start_agent(play, interval)?);
        }
        Ok(())
    }

    fn start_agent(&self, play: &Play, interval: Duration) -> Result<Part, Failure> {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let mut args: Vec<String> = [
            "agent",
            "--host",
            self.node.host(),
            "--interval",
            &format!("{}ms", interval.as_millis()),
            "--listen",
            "127.0.0.1:0",
            "--kmsg",
            &path("kernel.log"),
            "--state-dir",
            &path("state"),
            "--gpu-library",
            &path(LIBRARY),
            "--root",
            &self.root.path().display().to_string(),
        ]
        .map(str::to_owned)
        .to_vec();
        if let Some(socket) = &self.kubelet {
            args.extend(["--kubelet-socket".to_owned(), socket.display().to_string()]);
        }
        if let Some(server) = &play.server {
            args.extend(["--server".to_owned(), server.clone()]);
        }
        Part::start(&format!("agent-{}", self.node.host()), &self.dir, &args, &[])
    }
}

/// Whether a fault keeps the agent of a node from running.
pub(super) fn is_killed(play: &Play, host: &str, now: f64) -> bool {
    play.scenario.faults.iter().any(|fault| {
        fault.kind == FaultKind::AgentKilled && fault.is_on(now) && fault.host.as_deref() == Some(host)
    })
}

/// What the kernel has said since it was asked before, as `dmesg` prints it.
pub(super) fn dmesg(play: &Play, node: &mut Node) -> String {
    let booted = node.booted();
    let print = |line: LogLine| {
        let boot = booted.filter(|booted| line.at >= *booted);
        let boot = boot.map_or_else(boot_seconds, |booted| play.wall_ns(booted) as f64 / 1e9);
        let since_boot = play.wall_ns(line.at) as f64 / 1e9 - boot;
        format!("[{since_boot:12.6}] {}\n", line.text)
    };
    node.take_lines().into_iter().map(print).collect()
}

/// When this machine was booted, seconds since 1970.
fn boot_seconds() -> f64 {
    let clock = |id| {
        let time = rustix::time::clock_gettime(id);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    clock(rustix::time::ClockId::Realtime) - clock(rustix::time::ClockId::Boottime)
}

/// The fake driver's library: a build of the whole leaves it beside the program, one of the tests in `deps`.
fn driver(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let name = format!("{}fake_nvml{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().unwrap_or_default();
    let places = given.map_or_else(
        || vec![program.with_file_name(&name), program.with_file_name("deps").join(&name)],
        |path| vec![path.to_owned()],
    );
    places.into_iter().find(|library| library.is_file()).ok_or_else(|| {
        let looked = given.map_or_else(|| format!("`{name}` beside this program and in `deps`"), |path| path.display().to_string());
        Failure::new(format!("cannot play GPUs: there is no fake driver, looked for {looked}"))
            .hint("build it with `cargo build --release -p fake-nvml`, name it with `--driver`, or leave the nodes out with `--no-nodes`")
    })
}
