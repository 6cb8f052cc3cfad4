//! What a scenario file may say.

use serde::Deserialize;

use crate::profile::{PROFILES, Profile};

/// Most nodes of a scenario.
const NODES_MAX: usize = 4_096;
/// Most GPUs of a node.
const GPUS_MAX: u32 = 16;

/// A cluster and what happens to it.
///
/// ```toml
/// name = "two hosts"
///
/// [[nodes]]
/// host = "node-#"
/// count = 2
/// gpus = 2
///
/// [[jobs]]
/// name = "pretrain"
/// hosts = ["node-0..node-1"]
///
/// [[faults]]
/// at = 20.0
/// kind = "throttle"
/// host = "node-1"
/// gpu = 0
/// clock = 0.8
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// Another one makes other noise.
    #[serde(default)]
    pub seed: u64,
    /// After so many seconds it is over; runs until it is ended without.
    pub length: Option<f64>,
    /// The nodes.
    pub nodes: Vec<NodeGroup>,
    /// Training jobs.
    #[serde(default)]
    pub jobs: Vec<JobGroup>,
    /// Inference engines.
    #[serde(default)]
    pub engines: Vec<EngineGroup>,
    /// What goes wrong.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// Nodes of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// Their name; a row of `#` becomes the number, from 0.
    pub host: String,
    /// How many there are.
    #[serde(default = "one")]
    pub count: usize,
    /// GPUs of each.
    pub gpus: u32,
    /// Model of the GPUs, by [`Profile::key`].
    #[serde(default = "first_profile")]
    pub model: String,
    /// Version of the driver.
    #[serde(default = "driver_version")]
    pub driver: String,
}

/// Hosts of a job: one by name, or `first..last` in the order of the scenario, both included.
pub type HostRange = String;

/// A training job with one rank on each GPU of its hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobGroup {
    /// Name of the run.
    pub name: String,
    /// Who owns it.
    #[serde(default = "organization")]
    pub organization: String,
    /// The team's space.
    #[serde(default)]
    pub workspace: String,
    /// What it belongs to.
    #[serde(default = "project")]
    pub project: String,
    /// Its hosts.
    pub hosts: Vec<HostRange>,
    /// When it starts, seconds.
    #[serde(default)]
    pub start: f64,
    /// How long a rank computes in a step, seconds.
    #[serde(default = "one_second")]
    pub compute: f64,
    /// How long the ranks exchange what they computed, seconds.
    #[serde(default = "communication")]
    pub communication: f64,
    /// How long a rank reads its data, seconds; a part of `compute`.
    #[serde(default)]
    pub data: f64,
    /// Width of the noise of a rank's own time, as a share of it.
    #[serde(default = "jitter")]
    pub jitter: f64,
    /// Tokens of a step, of all ranks.
    #[serde(default = "tokens")]
    pub tokens: f64,
    /// Parameters of the model.
    pub parameters: Option<f64>,
    /// Number format of the computation, as trainers say it.
    #[serde(default = "dtype")]
    pub dtype: String,
    /// Pipeline stages; ranks are dealt out in order.
    #[serde(default = "one_stage")]
    pub stages: usize,
    /// Whether the ranks send OpenTelemetry beside their own protocol; each needs a process of its own.
    #[serde(default)]
    pub otlp: bool,
}

/// How an engine writes its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vocabulary {
    /// As vLLM does.
    Vllm,
    /// As SGLang does.
    Sglang,
    /// As llama.cpp's server does.
    Llamacpp,
}

/// Replicas of an inference engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineGroup {
    /// Their name; a row of `#` becomes the number, from 0.
    pub name: String,
    /// How many there are, each on the next host of `hosts`.
    #[serde(default = "one")]
    pub count: usize,
    /// What they run.
    pub engine: Vocabulary,
    /// The model that they serve.
    pub model: String,
    /// Where they are.
    pub hosts: Vec<HostRange>,
    /// GPUs of the host that a replica uses.
    pub gpus: Vec<u32>,
    /// Requests that arrive at each, a second.
    pub requests_per_second: f64,
    /// Tokens of a prompt, on average.
    #[serde(default = "prompt")]
    pub prompt: f64,
    /// Tokens of an answer, on average.
    #[serde(default = "output")]
    pub output: f64,
    /// Requests that run together at most.
    #[serde(default = "slots")]
    pub slots: usize,
    /// Tokens that the KV cache holds.
    #[serde(default = "kv_tokens")]
    pub kv_tokens: f64,
    /// Prompt tokens that it computes in a second.
    #[serde(default = "prefill")]
    pub prefill: f64,
    /// Time of a decoding step with one request, seconds.
    #[serde(default = "decode")]
    pub decode: f64,
    /// What each further request adds to it, seconds.
    #[serde(default = "decode_each")]
    pub decode_each: f64,
    /// Share of the prompt tokens that are found in the cache.
    #[serde(default = "cached")]
    pub cached: f64,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A card's clock is held at the share `clock`, for the `reason`.
    Throttle,
    /// The driver reports the Xid `code` with the rest of the line in `text`.
    Xid,
    /// A card falls off the bus: the driver has no answer for it. The kernel lists it as before, as it does
    /// with a card that nobody unplugged, until the node starts anew.
    FallOff,
    /// Rows of memory wait for a reset to be replaced.
    RowRemap,
    /// Errors of memory are corrected, `rate` a second.
    Ecc,
    /// Errors on the link `code`, `rate` a second.
    Nvlink,
    /// Ranks on the card wait `seconds` for their data in each step.
    SlowLoader,
    /// Ranks on the card, or on all of the node, need `rate` times as long, and no clock says why.
    Slow,
    /// The exchange between the ranks of a `job` takes `rate` times as long.
    SlowExchange,
    /// Ranks of a `stage` of a `job` need `rate` times as long.
    HeavyStage,
    /// In each step another rank of a `job` needs `rate` times as long.
    Turns,
    /// The card's rank takes part in no further step.
    Hang,
    /// The node starts anew and is away for `lasts`.
    Reboot,
    /// Any line in the kernel's log.
    Line,
    /// The node's agent is killed, and started again after `lasts`.
    AgentKilled,
    /// An engine starts anew: its counters are 0.
    EngineRestart,
    /// An engine gets `rate` times the requests.
    Queue,
    /// An engine does not answer for `lasts`.
    EngineDown,
}

impl FaultKind {
    /// As scenarios write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttle",
            Self::Xid => "xid",
            Self::FallOff => "fall_off",
            Self::RowRemap => "row_remap",
            Self::Ecc => "ecc",
            Self::Nvlink => "nvlink",
            Self::SlowLoader => "slow_loader",
            Self::Slow => "slow",
            Self::SlowExchange => "slow_exchange",
            Self::HeavyStage => "heavy_stage",
            Self::Turns => "turns",
            Self::Hang => "hang",
            Self::Reboot => "reboot",
            Self::Line => "line",
            Self::AgentKilled => "agent_killed",
            Self::EngineRestart => "engine_restart",
            Self::Queue => "queue",
            Self::EngineDown => "engine_down",
        }
    }
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When, seconds from the start.
    pub at: f64,
    /// For how long, seconds; for ever without.
    pub lasts: Option<f64>,
    /// What.
    pub kind: FaultKind,
    /// Of which node.
    pub host: Option<String>,
    /// Of which card.
    pub gpu: Option<u32>,
    /// Of which engine, by name.
    pub engine: Option<String>,
    /// Of which job, by name.
    pub job: Option<String>,
    /// Of which pipeline stage of the job, from 0.
    pub stage: Option<usize>,
    /// Which Xid or link.
    pub code: Option<u32>,
    /// What the line says.
    pub text: Option<String>,
    /// Why a card is throttled: `hw_thermal`, `sw_thermal`, `sw_power` or `hw_power_brake`.
    pub reason: Option<String>,
    /// The clock, as a share of the usual one.
    pub clock: Option<f64>,
    /// How many a second, or times as much.
    pub rate: Option<f64>,
    /// How long.
    pub seconds: Option<f64>,
}

fn one() -> usize {
    1
}
fn one_stage() -> usize {
    1
}
fn one_second() -> f64 {
    1.0
}
fn communication() -> f64 {
    0.15
}
fn jitter() -> f64 {
    0.02
}
fn tokens() -> f64 {
    1_048_576.0
}
fn dtype() -> String {
    "bf16".to_owned()
}
fn prompt() -> f64 {
    700.0
}
fn output() -> f64 {
    220.0
}
fn slots() -> usize {
    256
}
fn kv_tokens() -> f64 {
    400_000.0
}
fn prefill() -> f64 {
    24_000.0
}
fn decode() -> f64 {
    0.012
}
fn decode_each() -> f64 {
    0.000_08
}
fn cached() -> f64 {
    0.35
}
fn organization() -> String {
    "acme".to_owned()
}
fn project() -> String {
    "llm".to_owned()
}
fn first_profile() -> String {
    PROFILES[0].key.to_owned()
}
fn driver_version() -> String {
    "580.95.05".to_owned()
}

/// Why a scenario can't be played.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not what a scenario looks like.
    #[error("cannot read the scenario: {0}")]
    Toml(#[from] toml::de::Error),
    /// It names something that is not there, or asks for too much.
    #[error("cannot play the scenario: {0}")]
    Invalid(String),
}

fn invalid<T>(text: String) -> Result<T, ScenarioError> {
    Err(ScenarioError::Invalid(text))
}

impl Scenario {
    /// Reads a scenario and checks that what it names is there.
    pub fn read(text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        scenario.mend();
        Ok(scenario)
    }

    /// What a restart of its node mends is over when the node is back.
    fn mend(&mut self) {
        use FaultKind::{FallOff, Hang, Reboot, RowRemap};
        let reboots: Vec<Fault> = self.faults.iter().filter(|fault| fault.kind == Reboot).cloned().collect();
        for fault in &mut self.faults {
            if !matches!(fault.kind, FallOff | Hang | RowRemap) || fault.lasts.is_some() {
                continue;
            }
            let back = reboots.iter().filter(|reboot| reboot.host == fault.host && reboot.at >= fault.at);
            let back = back.filter_map(|reboot| Some(reboot.at + reboot.lasts?)).reduce(f64::min);
            fault.lasts = back.map(|back| back - fault.at);
        }
    }

    /// Every host in order, with its group.
    pub fn hosts(&self) -> impl Iterator<Item = (String, &NodeGroup)> {
        self.nodes.iter().flat_map(|group| {
            (0..group.count).map(move |number| (numbered(&group.host, number, group.count), group))
        })
    }

    /// Every engine in order: its name, its host, its group.
    pub fn engine_names(&self) -> Vec<(String, String, &EngineGroup)> {
        let mut named = Vec::new();
        for group in &self.engines {
            let hosts = self.range(&group.hosts).unwrap_or_default();
            let places = hosts.iter().cycle().take(if hosts.is_empty() { 0 } else { group.count });
            named.extend(
                places
                    .enumerate()
                    .map(|(number, host)| (numbered(&group.name, number, group.count), host.clone(), group)),
            );
        }
        named
    }

    /// The hosts of ranges, in order.
    pub fn range(&self, ranges: &[HostRange]) -> Result<Vec<String>, ScenarioError> {
        let all: Vec<String> = self.hosts().map(|(host, _)| host).collect();
        let place = |host: &str| {
            all.iter().position(|one| one == host).ok_or_else(|| {
                let some = all.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
                ScenarioError::Invalid(format!(
                    "there is no host `{host}`; there are {} of them: {some} and so on",
                    all.len()
                ))
            })
        };
        let mut found = Vec::new();
        for range in ranges {
            let (first, last) = range.split_once("..").unwrap_or((range, range));
            let (first, last) = (place(first)?, place(last)?);
            if first > last {
                return invalid(format!("the range `{range}` ends before it begins"));
            }
            found.extend_from_slice(&all[first..=last]);
        }
        Ok(found)
    }

    /// The model of a host's GPUs.
    pub fn profile(&self, host: &str) -> Option<Profile> {
        let (_, group) = self.hosts().find(|(name, _)| name == host)?;
        PROFILES.into_iter().find(|profile| profile.key == group.model)
    }

    /// Faults of a card that are there at a time.
    pub fn faults_of(&self, host: &str, gpu: u32, at: f64) -> impl Iterator<Item = &Fault> {
        self.faults
            .iter()
            .filter(move |fault| fault.is_on(at) && fault.host.as_deref() == Some(host))
            .filter(move |fault| fault.gpu.is_none_or(|one| one == gpu))
    }

    /// The share of its usual clock that a card runs at.
    pub fn clock_share(&self, host: &str, gpu: u32, at: f64) -> f64 {
        self.faults_of(host, gpu, at)
            .filter(|fault| fault.kind == FaultKind::Throttle)
            .map(|fault| fault.clock.unwrap_or(0.8))
            .fold(1.0, f64::min)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        if self.hosts().count() > NODES_MAX {
            return invalid(format!(
                "it has {} nodes, at most {NODES_MAX} can be played",
                self.hosts().count()
            ));
        }
        for group in &self.nodes {
            check_group(group)?;
        }
        for job in &self.jobs {
            self.range(&job.hosts)?;
            positive(&job.name, "compute", job.compute)?;
            if job.stages == 0 {
                return invalid(format!("`stages` of the job `{}` is 0", job.name));
            }
        }
        for engine in &self.engines {
            self.check_engine(engine)?;
        }
        let engines: Vec<String> = self.engine_names().into_iter().map(|(name, ..)| name).collect();
        for fault in &self.faults {
            self.check_fault(fault, &engines)?;
        }
        Ok(())
    }

    fn check_engine(&self, engine: &EngineGroup) -> Result<(), ScenarioError> {
        for host in self.range(&engine.hosts)? {
            let gpus = self.hosts().find(|(name, _)| *name == host).map_or(0, |(_, group)| group.gpus);
            if let Some(gpu) = engine.gpus.iter().find(|gpu| **gpu >= gpus) {
                return invalid(format!("`{}` uses GPU {gpu} of `{host}`, which has {gpus}", engine.name));
            }
        }
        positive(&engine.name, "requests_per_second", engine.requests_per_second)?;
        positive(&engine.name, "prompt", engine.prompt)?;
        positive(&engine.name, "output", engine.output)?;
        positive(&engine.name, "prefill", engine.prefill)?;
        positive(&engine.name, "decode", engine.decode)?;
        positive(&engine.name, "kv_tokens", engine.kv_tokens)
    }

    fn check_fault(&self, fault: &Fault, engines: &[String]) -> Result<(), ScenarioError> {
        use FaultKind::{EngineDown, EngineRestart, HeavyStage, Queue, SlowExchange, Turns};
        let at = fault.at;
        if let Some(rate) = fault.rate {
            positive(&format!("{} at {at} s", fault.kind.name()), "rate", rate)?;
        }
        if matches!(fault.kind, SlowExchange | HeavyStage | Turns) {
            return self.check_fault_of_job(fault);
        }
        if matches!(fault.kind, EngineRestart | Queue | EngineDown) {
            return match &fault.engine {
                Some(engine) if engines.contains(engine) => Ok(()),
                Some(engine) => invalid(format!(
                    "the fault at {at} s is of the engine `{engine}`; there are {}",
                    engines.join(", ")
                )),
                None => invalid(format!("the fault at {at} s names no `engine`")),
            };
        }
        let Some(host) = &fault.host else {
            return invalid(format!("the fault at {at} s names no `host`"));
        };
        self.range(std::slice::from_ref(host))?;
        if fault.kind == FaultKind::Xid && fault.code.is_none() {
            return invalid(format!("the Xid at {at} s has no `code`"));
        }
        if fault.kind == FaultKind::Line && fault.text.is_none() {
            return invalid(format!("the line at {at} s has no `text`"));
        }
        Ok(())
    }
}

impl Scenario {
    fn check_fault_of_job(&self, fault: &Fault) -> Result<(), ScenarioError> {
        let at = fault.at;
        let Some(name) = &fault.job else {
            return invalid(format!("the fault at {at} s names no `job`"));
        };
        let Some(job) = self.jobs.iter().find(|job| job.name == *name) else {
            let known: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
            return invalid(format!(
                "the fault at {at} s is of the job `{name}`; there are {}",
                known.join(", ")
            ));
        };
        if fault.kind != FaultKind::HeavyStage {
            return Ok(());
        }
        match fault.stage {
            Some(stage) if stage < job.stages => Ok(()),
            Some(stage) => invalid(format!(
                "the fault at {at} s is of stage {stage} of `{name}`, which has {}",
                job.stages
            )),
            None => invalid(format!("the fault at {at} s names no `stage` of `{name}`")),
        }
    }

    /// Faults of a job that are there at a time.
    pub(crate) fn faults_of_job(&self, name: &str, at: f64) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.is_on(at) && fault.job.as_deref() == Some(name))
    }
}

impl Fault {
    /// Whether it is there at a time.
    pub fn is_on(&self, at: f64) -> bool {
        at >= self.at && self.lasts.is_none_or(|lasts| at < self.at + lasts)
    }
}

fn check_group(group: &NodeGroup) -> Result<(), ScenarioError> {
    if group.count > 1 && !group.host.contains('#') {
        return invalid(format!("{} nodes have the name `{}`: put a `#` in it", group.count, group.host));
    }
    if group.gpus > GPUS_MAX {
        return invalid(format!("`{}` has {} GPUs, at most {GPUS_MAX} can be", group.host, group.gpus));
    }
    if PROFILES.iter().all(|profile| profile.key != group.model) {
        let known = PROFILES.map(|profile| profile.key).join(", ");
        return invalid(format!("there is no model `{}`; there are {known}", group.model));
    }
    Ok(())
}

fn positive(name: &str, what: &str, value: f64) -> Result<(), ScenarioError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    invalid(format!("`{what}` of `{name}` is {value}, it has to be above 0"))
}

/// The name with its row of `#` replaced by the number, wide enough for all.
fn numbered(name: &str, number: usize, count: usize) -> String {
    let Some(start) = name.find('#') else { return name.to_owned() };
    let end = start + name[start..].bytes().take_while(|byte| *byte == b'#').count();
    let width = (end - start).max(count.saturating_sub(1).to_string().len());
    format!("{}{number:0width$}{}", &name[..start], &name[end..])
}
