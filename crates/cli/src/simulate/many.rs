//! Many nodes in one process: for each a real agent's loop, spool and delivery, which looks at the scenario's
//! cards in the place of a driver. What the agents of a few nodes see of their machine is left out.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent::{
    Config, Given, KernelLog, LogInput, LogOptions, Reading, Running, SharedCards, SharedHeard, Snapshot,
    Source, Tick,
};
use collect::Host;
use collect::gpu::{GpuDevice, GpuMemoryAccount};
use model::Desc;
use semconv::canonical as tg;
use simulate::{Card, FaultKind, Node};

use super::kubelet::NAMESPACE;
use super::nodes::{dmesg, is_killed};
use super::ranks::run_file;
use super::root::show_uptime;
use super::stage::{Wanted, job_id};
use super::{Play, root};
use crate::output::{Failure, note};
use crate::run::signals::Signals;

/// Time between two looks at which nodes are there.
const PERIOD: Duration = Duration::from_millis(250);

/// What a card gives under a name that has no labels of its own.
type Gauge = (&'static Desc, fn(&Card) -> f64);

const VALUES: &[Gauge] = &[
    (&tg::GPU_BUSY_RATIO, |card| card.busy),
    (&tg::GPU_SM_ACTIVE_RATIO, |card| card.sm_active),
    (&tg::GPU_SM_OCCUPANCY_RATIO, |card| card.occupancy),
    (&tg::GPU_TENSOR_ACTIVE_RATIO, |card| card.tensor),
    (&tg::GPU_DRAM_ACTIVE_RATIO, |card| card.dram),
    (&tg::GPU_MEMORY_USED_BYTES, |card| card.memory_used_bytes),
    (&tg::GPU_MEMORY_FREE_BYTES, |card| card.profile.memory_bytes as f64 - card.memory_used_bytes),
    (&tg::GPU_MEMORY_TOTAL_BYTES, |card| card.profile.memory_bytes as f64),
    (&tg::GPU_POWER_WATTS, |card| card.power_watts),
    (&tg::GPU_POWER_LIMIT_WATTS, |card| card.profile.power_limit_watts),
    (&tg::GPU_ENERGY_JOULES_TOTAL, |card| card.energy_joules),
    (&tg::GPU_SM_CLOCK_HERTZ, |card| card.clock_mhz * 1e6),
    (&tg::GPU_SM_CLOCK_MAX_HERTZ, |card| card.profile.clock_max_mhz * 1e6),
    (&tg::GPU_MEMORY_CLOCK_HERTZ, |card| card.profile.memory_clock_mhz * 1e6),
    (&tg::GPU_TEMPERATURE_CELSIUS, |card| card.temperature),
    (&tg::GPU_MEMORY_TEMPERATURE_CELSIUS, |card| card.temperature + 8.0),
    (&tg::GPU_TEMPERATURE_MARGIN_CELSIUS, |card| 87.0 - card.temperature),
    (&tg::GPU_ROW_REMAP_PENDING, |card| f64::from(u8::from(card.remap_pending))),
    (&tg::GPU_ROW_REMAP_FAILED, |_| 0.0),
    (&tg::GPU_RECOVERY_ACTION, |_| 0.0),
];

/// Names of the times for which clocks were held back, in the card's order.
const REASONS: [&str; 4] = ["sw_power", "sw_thermal", "hw_thermal", "hw_power_brake"];

type Labels = Vec<(&'static str, String)>;

/// Who owns a card.
#[derive(Debug, Clone)]
enum Owner {
    /// The job of this number in the scenario, and where its run's id is left.
    Job(usize, PathBuf),
    /// The engine of this name.
    Engine(String),
}

impl Owner {
    fn labels(&self) -> Labels {
        let mut labels = match self {
            Self::Job(index, told) => {
                let run = std::fs::read_to_string(told).unwrap_or_default();
                vec![("run_id", run), ("job_id", job_id(*index).to_string())]
            }
            Self::Engine(name) => vec![("namespace", NAMESPACE.to_owned()), ("pod", name.clone())],
        };
        labels.push(("confidence", "certain".to_owned()));
        labels.retain(|(_, value)| !value.is_empty());
        labels
    }
}

/// Whose the cards of a host are, by index.
fn owners(play: &Play, dir: &Path, host: &str, cards: usize) -> Vec<Option<Owner>> {
    let mut owners = vec![None; cards];
    for (index, job) in play.scenario.jobs.iter().enumerate() {
        let hosts = play.scenario.range(&job.hosts).unwrap_or_default();
        if hosts.iter().any(|one| one == host) {
            owners.fill(Some(Owner::Job(index, run_file(dir, index))));
        }
    }
    for (name, _, group) in play.scenario.engine_names().into_iter().filter(|(_, one, _)| one == host) {
        for gpu in &group.gpus {
            if let Some(owner) = owners.get_mut(*gpu as usize) {
                *owner = Some(Owner::Engine(name.clone()));
            }
        }
    }
    owners
}

/// A node and where its files are.
struct Played {
    node: Mutex<Node>,
    /// Whose the cards of the node are, by index.
    owners: Vec<Option<Owner>>,
    dir: PathBuf,
    play: Play,
}

/// A node whose agent runs, ended or is to be started.
struct Reported {
    played: Arc<Played>,
    host: String,
    agent: Option<Running>,
}

/// Plays every node of the scenario until the process is told to end.
pub(super) fn run(play: &Play, wanted: &Wanted) -> Result<(), Failure> {
    let signals = Signals::take().map_err(|error| Failure::new(format!("cannot take signals: {error}")))?;
    let (dir, interval) = (&wanted.dir, wanted.interval);
    let mut all = Vec::new();
    for (host, _) in play.scenario.hosts() {
        let node = Node::new(&play.scenario, &host).map_err(|error| Failure::new(error.to_string()))?;
        let owners = owners(play, dir, &host, node.cards().len());
        let played = Played { node: Mutex::new(node), owners, dir: dir.join(&host), play: play.clone() };
        all.push(Reported { played: Arc::new(played), host, agent: None });
    }
    let begun = Instant::now();
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX).max(1);
    while !signals.wants_out() {
        for (number, reported) in (0..).zip(&mut all) {
            if begun.elapsed() >= interval * number / count {
                reported.mind(play, interval)?;
            }
        }
        std::thread::sleep(PERIOD.min(interval / count));
    }
    end(all);
    Ok(())
}

/// Ends all of them at the same time, since each may wait for the server.
fn end(all: Vec<Reported>) {
    std::thread::scope(|scope| {
        for agent in all.into_iter().filter_map(|reported| reported.agent) {
            scope.spawn(move || agent.end());
        }
    });
}

impl Reported {
    /// Starts and ends the agent as the node starts and ends.
    fn mind(&mut self, play: &Play, interval: Duration) -> Result<(), Failure> {
        let now = play.now();
        let reboots = play.scenario.faults.iter().any(|fault| {
            fault.kind == FaultKind::Reboot
                && fault.is_on(now)
                && fault.host.as_deref() == Some(self.host.as_str())
        });
        if reboots || is_killed(play, &self.host, now) {
            if let Some(agent) = self.agent.take() {
                std::thread::spawn(move || agent.end());
            }
            return Ok(());
        }
        if self.agent.is_none() {
            match self.played.start(&self.host, interval) {
                Ok(agent) => self.agent = Some(agent),
                // The agent before it may still be about to end.
                Err(error) if self.played.node().boots() > 1 => note(format_args!("warning: {error}")),
                Err(error) => return Err(Failure::new(error)),
            }
        }
        Ok(())
    }
}

impl Played {
    fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, host: &str, interval: Duration) -> Result<Running, String> {
        let failed = |error: std::io::Error| format!("cannot prepare `{}`: {error}", self.dir.display());
        self.write_boot().map_err(failed)?;
        let text = |path: PathBuf| path.display().to_string();
        let given: Given = [
            ("host", host.to_owned()),
            ("server", self.play.server.clone().unwrap_or_default()),
            ("interval", format!("{}ms", interval.as_millis())),
            ("listen", "127.0.0.1:0".to_owned()),
            ("state_dir", text(self.dir.join("state"))),
            ("root", text(self.dir.join("root"))),
        ]
        .into_iter()
        .collect();
        let config =
            Config::resolve(&given, &|name| std::env::var(name).ok(), None).map_err(|e| e.to_string())?;
        let parts = |config: &Config, state: &Path, _: &str| self.parts(config, state);
        agent::start_with(config, parts).map_err(|error| error.to_string())
    }

    fn parts(self: &Arc<Self>, config: &Config, state: &Path) -> Vec<Box<dyn Source>> {
        let cards = SharedCards::default();
        let input = LogInput::File(self.dir.join("kernel.log"));
        let log = LogOptions { input, state: Some(state.to_owned()), machine: Host::at(&config.root) };
        let log = KernelLog::new(log, cards.clone(), SharedHeard::default());
        vec![Box::new(Looked { played: self.clone(), cards }), Box::new(log)]
    }

    /// Gives the node the boot that it is in, and an empty log at its first one.
    fn write_boot(&self) -> std::io::Result<()> {
        let mut node = self.node();
        node.advance(self.play.now());
        let root = self.dir.join("root");
        root::light(&root, &node)?;
        show_uptime(&root, &self.play, &node)?;
        File::options().create(true).append(true).open(self.dir.join("kernel.log")).map(drop)
    }
}

/// The cards of a node as an agent's part.
struct Looked {
    played: Arc<Played>,
    cards: SharedCards,
}

impl Source for Looked {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let mut node = self.played.node();
        node.advance(self.played.play.now());
        let lines = dmesg(&self.played.play, &mut node);
        let log = File::options().append(true).open(self.played.dir.join("kernel.log"));
        let uptime = show_uptime(&self.played.dir.join("root"), &self.played.play, &node);
        if let Err(error) = uptime.and(log).and_then(|mut log| log.write_all(lines.as_bytes())) {
            note(format_args!("warning: the log of `{}` cannot be written: {error}", tick.host));
        }
        let mut all = Vec::new();
        for (index, card) in (0..).zip(node.cards()) {
            let is_here = card.is_present && node.is_up();
            all.push(agent::Card {
                device: device(index, card),
                processes: Ok(Vec::new()),
                answers: is_here,
            });
            if is_here {
                tell(index, card, node.driver(), out);
                let owner = self.played.owners.get(index as usize).into_iter().flatten();
                out.readings.extend(owner.map(|owner| {
                    let labels = of_card(index, card).into_iter().chain(owner.labels()).collect();
                    Reading { desc: &tg::GPU_OWNER_INFO, labels, value: 1.0 }
                }));
            }
        }
        let here = all.iter().filter(|card| card.answers).count();
        let owned = self.played.owners.iter().flatten().count();
        for (source, count) in [("pci", all.len()), ("driver", here), ("allocated", owned)] {
            let labels = vec![("source", source.to_owned())];
            out.readings.push(Reading { desc: &tg::NODE_GPUS, labels, value: count as f64 });
        }
        let mut cards = self.cards.lock();
        cards.driver = Some(node.driver().to_owned());
        cards.all = all;
    }
}

fn of_card(index: u32, card: &Card) -> Labels {
    vec![("gpu", index.to_string()), ("uuid", card.uuid.clone())]
}

fn device(index: u32, card: &Card) -> GpuDevice {
    let [major, minor] = card.profile.capability;
    GpuDevice {
        index,
        uuid: card.uuid.clone(),
        name: card.profile.name.to_owned(),
        pci_bus_id: card.bus_id.clone(),
        compute_capability: Some((major as u32, minor as u32)),
        architecture: "",
        sm_clock_max_mhz: Some(card.profile.clock_max_mhz as u32),
        memory: GpuMemoryAccount::Allocated,
        mig: false,
        instances: Vec::new(),
    }
}

/// What the driver of a card would tell.
fn tell(index: u32, card: &Card, driver: &str, out: &mut Snapshot) {
    let mut put = |desc: &'static Desc, more: &[(&'static str, &str)], value: f64| {
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let labels = of_card(index, card).into_iter().chain(more).collect();
        out.readings.push(Reading { desc, labels, value });
    };
    let facts = [
        ("vendor", "nvidia"),
        ("gpu_model", card.profile.name),
        ("driver", driver),
        ("pci_bus_id", &card.bus_id),
        ("mig", "false"),
    ];
    put(&tg::GPU_INFO, &facts, 1.0);
    for (desc, value) in VALUES {
        put(desc, &[], value(card));
    }
    for (reason, seconds) in REASONS.into_iter().zip(card.throttled) {
        put(&tg::GPU_THROTTLED_SECONDS_TOTAL, &[("reason", reason)], seconds);
    }
    for (bit, reason) in tg::THROTTLE_BITS {
        let is_on = card.throttle_mask & bit != 0;
        put(&tg::GPU_THROTTLE_ACTIVE, &[("reason", reason)], f64::from(u8::from(is_on)));
    }
    let ecc = [("corrected", card.corrected), ("uncorrected", 0.0)];
    for (kind, count) in ecc {
        put(&tg::GPU_ECC_ERRORS_TOTAL, &[("kind", kind), ("scope", "volatile")], count);
    }
    put(&tg::GPU_ROW_REMAPS_TOTAL, &[("kind", "uncorrected")], card.remapped as f64);
    for direction in ["receive", "transmit"].into_iter().filter(|_| card.profile.links > 0) {
        put(&tg::GPU_NVLINK_BYTES_TOTAL, &[("direction", direction)], card.link_bytes);
    }
    for (link, count) in card.link_errors.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        let labels = [("kind", "replay"), ("link", &*link.to_string())];
        put(&tg::GPU_NVLINK_ERRORS_TOTAL, &labels, *count);
    }
}
