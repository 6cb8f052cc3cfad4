//! What is said of a straggler.

use super::words;

/// What holds a job up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// One rank.
    Straggler,
    /// All ranks of a host.
    Node,
    /// A rank that is too little behind to be called slow, and always the last.
    ConsistentlyLast,
    /// A pipeline stage that has more to do than the others.
    StageImbalance,
    /// Another rank in every step.
    Rotating,
    /// The exchange between them.
    Communication,
    /// All of them at once.
    Slowdown,
}

impl Class {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Straggler => "straggler",
            Self::Node => "node",
            Self::ConsistentlyLast => "consistently_last",
            Self::StageImbalance => "stage_imbalance",
            Self::Rotating => "rotating",
            Self::Communication => "communication",
            Self::Slowdown => "slowdown",
        }
    }
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Good to know.
    Info,
    /// For a ticket.
    Warn,
    /// Somebody is to be woken.
    Page,
}

impl Level {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Page => "page",
        }
    }
}

/// Why a rank is slow. In the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Heat holds its clock down.
    Thermal,
    /// A power limit holds its clock down.
    PowerCap,
    /// Its clock is low, and nothing says why.
    Clock,
    /// Its PCIe link is narrower or slower than those of its peers.
    Link,
    /// Its memory had faults lately.
    MemoryHealth,
    /// Its host or its data: the GPU has less to do than those of its peers.
    HostData,
    /// Nothing that is known says why.
    Unknown,
}

impl Cause {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Thermal => "thermal",
            Self::PowerCap => "power_cap",
            Self::Clock => "clock",
            Self::Link => "link",
            Self::MemoryHealth => "memory_health",
            Self::HostData => "host_data",
            Self::Unknown => "unknown",
        }
    }
}

/// What is recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Take the host out of service after the next checkpoint.
    Drain,
    /// Look at the host and its data; the GPU is not to blame.
    CheckHost,
    /// Look at the links between the hosts.
    CheckLinks,
    /// Deal out layers or data another way.
    Rebalance,
    /// Nothing.
    None,
}

impl Action {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::CheckHost => "check_host",
            Self::CheckLinks => "check_links",
            Self::Rebalance => "rebalance",
            Self::None => "none",
        }
    }
}

/// A number that speaks for a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The whole sentence.
    pub text: String,
    /// Which number: `wait`, `own`, `last`, `data`, `clock`, `power`, `thermal`, `power_cap`, `temperature`,
    /// `pcie_width`, `pcie_generation`, `memory_faults`, `cpu_throttled`, `communication`, `step`, `stage`.
    pub name: &'static str,
    /// Of the accused.
    pub value: f64,
    /// The same of its peers, or before; NaN if there is none.
    pub peers: f64,
    /// `seconds`, `ratio`, `hertz`, `watts`, `celsius` or empty.
    pub unit: &'static str,
}

/// What is wrong with a job, in numbers. What is not known, or makes no sense for the class, is NaN or empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What holds it up.
    pub class: Class,
    /// How much it matters.
    pub level: Level,
    /// The ranks that are accused.
    pub ranks: Vec<u32>,
    /// Their host, if it is one.
    pub host: String,
    /// Their GPU, if it is one.
    pub gpu: String,
    /// Its UUID.
    pub uuid: String,
    /// Their pipeline stage, if it is one.
    pub stage: Option<u32>,
    /// Their own time over that of their peers; of [`Class::Communication`] the time of the exchange over what
    /// it was, of [`Class::Rotating`] and [`Class::Slowdown`] the step over what it was.
    pub rho: f64,
    /// How far out that is, in standard deviations of the peers.
    pub z: f64,
    /// How long they wait for others in a step.
    pub wait_seconds: f64,
    /// How long their peers do.
    pub peers_wait_seconds: f64,
    /// The step at which it began.
    pub onset_step: Option<i64>,
    /// When that step was done, nanoseconds.
    pub onset_time_ns: Option<i64>,
    /// Why.
    pub cause: Cause,
    /// Share of a step that is won when it is mended.
    pub gain: f64,
    /// How long a step is.
    pub step_seconds: f64,
    /// How long it would be.
    pub counterfactual_seconds: f64,
    /// How sure this is, 0 to 1.
    pub confidence: f64,
    /// In how many of the latest windows it was found.
    pub held: u32,
    /// How many windows those are.
    pub of: u32,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// What is recommended.
    pub action: Action,
    /// The recommendation as a sentence.
    pub advice: String,
}

impl Verdict {
    /// What tells it from other verdicts of the run, whatever its numbers.
    pub fn key(&self) -> String {
        let who = match self.class {
            Class::Straggler | Class::ConsistentlyLast => {
                self.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
            }
            Class::Node => self.host.clone(),
            Class::StageImbalance => self.stage.map(|stage| stage.to_string()).unwrap_or_default(),
            Class::Rotating | Class::Communication | Class::Slowdown => String::new(),
        };
        format!("{}:{who}", self.class.word()).trim_end_matches(':').to_owned()
    }

    /// A few words, such as `Rank 17 is slow`.
    pub fn claim(&self) -> String {
        let who = || match self.ranks.as_slice() {
            [one] => format!("Rank {one} is"),
            many => format!("{} ranks are", many.len()),
        };
        match self.class {
            Class::Straggler => format!("{} slow", who()),
            Class::Node => format!("Host {} is slow", self.host),
            Class::ConsistentlyLast => format!("{} always last", who()),
            Class::StageImbalance => format!("Stage {} has too much to do", self.stage.unwrap_or_default()),
            Class::Rotating => "Another rank is late in every step".to_owned(),
            Class::Communication => "The exchange between ranks is slow".to_owned(),
            Class::Slowdown => "All ranks are slower".to_owned(),
        }
    }

    /// Where, why, and what it costs since when, such as `host-3, GPU 1: SM clock 80 % of peers, thermal. Costs
    /// 17.1 % of step time since step 4,120.`
    pub fn sentence(&self) -> String {
        let since = self.onset_step.map(|step| format!(" since step {}", words::count(step)));
        let since = since.unwrap_or_default();
        let costs = format!("Costs {} of step time{since}.", words::percent(self.gain));
        let first = self.evidence.first().map(|one| words::capital(&one.text)).unwrap_or_default();
        match self.class {
            Class::Straggler | Class::Node | Class::ConsistentlyLast => {
                format!("{}: {}. {costs}", self.place(), self.reason())
            }
            Class::StageImbalance => format!("{first}. {costs} No GPU is at fault."),
            Class::Rotating | Class::Communication => format!("{first}. {costs} No rank is at fault."),
            Class::Slowdown => format!("{first}{since}, and no rank is at fault."),
        }
    }

    fn place(&self) -> String {
        match (self.host.is_empty(), self.gpu.is_empty()) {
            (true, _) => words::capital(&words::ranks(&self.ranks)),
            (false, true) => format!("{}, {}", self.host, words::ranks(&self.ranks)),
            (false, false) => format!("{}, GPU {}", self.host, self.gpu),
        }
    }

    fn reason(&self) -> String {
        let told = |name: &str| self.evidence.iter().find(|one| one.name == name);
        let clock = told("clock").map_or_else(
            || "its clock is low".to_owned(),
            |one| format!("SM clock {:.0} % of peers", 100.0 * one.value / one.peers),
        );
        let over = match told("late") {
            Some(late) => late.text.clone(),
            None => format!("{} busier than its peers", words::percent(self.rho - 1.0)),
        };
        match self.cause {
            Cause::Thermal => format!("{clock}, thermal"),
            Cause::PowerCap => format!("{clock}, power limit"),
            Cause::Clock => format!("{clock}, for no reason known"),
            Cause::Link => match told("pcie_width").or_else(|| told("pcie_generation")) {
                Some(one) => one.text.clone(),
                None => "its PCIe link is slow".to_owned(),
            },
            Cause::MemoryHealth => format!("{over}, and its memory has new faults"),
            Cause::HostData => {
                let is_reason = |one: &&Evidence| match one.name {
                    "data" => one.value > one.peers,
                    name => name == "cpu_throttled",
                };
                let idles = || format!("{over}, while its GPU has less to do than theirs");
                self.evidence.iter().find(is_reason).map_or_else(idles, |one| one.text.clone())
            }
            Cause::Unknown => format!("{over}, for no reason known"),
        }
    }
}
