//! Faults of devices, folded into one incident per cause.
//!
//! A card that fails says so in many ways at once: an Xid for the fault, another for what it did to memory,
//! a third for each process that was thrown off, a counter that moves. [`Incidents`] puts what belongs
//! together into one incident and judges what is to be done. The driver's own verdict comes first, then the
//! catalogue, which comes in as an argument ([`Rules`]); what disagrees is kept beside the verdict.
//! Symptoms are listed and never acted on, and so is nothing that a process has written itself.
//!
//! Reports may come in any order and more than once: one whose key is known adds nothing. An incident stays
//! open until something clears it; the same fault again before that is a repeat of it, later a new one.

mod common;
mod fold;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use model::Action;

pub use common::{Common, common_causes};
pub use fold::{Incidents, Outcome};
pub use verdict::{Confidence, Conflict, Provenance, Verdict};

/// Reports of one device within this of each other have one cause, nanoseconds.
pub const TOGETHER_NS: i64 = 120_000_000_000;
/// How long the driver's verdict is waited for, nanoseconds.
pub const VERDICT_WAIT_NS: i64 = 5_000_000_000;
/// A card that is gone is told with and without a number within this, nanoseconds.
pub const IMPLIED_NS: i64 = 60_000_000_000;
/// An incident that asks for no more than a restart of the application is over after this, nanoseconds.
pub const QUIET_NS: i64 = 600_000_000_000;
/// How far back the same fault on the same device counts as coming back, nanoseconds.
pub const COMES_BACK_NS: i64 = 86_400_000_000_000;
/// So many times in that time, under different processes, are no accident.
pub const COMES_BACK_TIMES: usize = 3;

/// Which device. One of place and id is enough; a report that has both joins them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// The host.
    pub host: String,
    /// Where it is on the bus, `dddd:bb:dd.f`.
    pub place: Option<String>,
    /// Its unique id.
    pub uuid: Option<String>,
}

impl Device {
    fn is_same(&self, other: &Self) -> bool {
        let eq = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        let is_host = self.is_whole_host() && other.is_whole_host();
        self.host == other.host && (is_host || eq(&self.uuid, &other.uuid) || eq(&self.place, &other.place))
    }

    fn is_whole_host(&self) -> bool {
        self.place.is_none() && self.uuid.is_none()
    }
}

/// What a fault is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// An Xid.
    Xid(u32),
    /// An SXid.
    Sxid(u32),
    /// A fault without a number.
    Named(String),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(code) => write!(f, "Xid {code}"),
            Self::Sxid(code) => write!(f, "SXid {code}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// What part a fault plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Something failed.
    Cause,
    /// It comes with something that failed.
    Symptom,
    /// More about another fault; acted on only when that is missing.
    Detail,
}

/// What the catalogue says of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What is to be done.
    pub action: Action,
    /// What is to be done when that did not help.
    pub then: Option<Action>,
    /// What is to be done when it comes back.
    pub repeated: Option<Action>,
    /// With one of these faults beside it, what is to be done is another.
    pub together: Option<(Vec<Code>, Action)>,
    /// Its part.
    pub part: Part,
    /// The driver may tell its verdict within [`VERDICT_WAIT_NS`].
    pub awaits_verdict: bool,
    /// Memory waits for a reset to be replaced.
    pub remap_pending: bool,
    /// Who says so.
    pub provenance: Provenance,
}

/// The catalogue. A fault that it does not know is inspected.
pub type Rules<'a> = dyn Fn(&Code) -> Option<Rule> + 'a;

/// What is to be done as registers in a report say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decided {
    /// What.
    pub action: Action,
    /// How sure that is: low where no table has what the registers hold.
    pub confidence: Confidence,
}

/// What a report says.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A fault.
    Fault {
        /// Its name.
        code: Code,
        /// What is to be done, where the report says more than the number.
        decided: Option<Decided>,
        /// The report does not name the fault: one that does may stand beside it.
        is_implied: bool,
    },
    /// The driver says what is to be done.
    Verdict {
        /// What.
        action: Action,
        /// In which way.
        provenance: Provenance,
    },
    /// A counter moved: evidence for an incident that is there.
    Counter {
        /// Its name.
        name: String,
        /// Its value before.
        before: f64,
        /// And now.
        now: f64,
    },
    /// Memory waits for a reset to be replaced, or no longer.
    RemapPending(bool),
    /// Which card is where: nothing but the device.
    Card,
    /// Something was done that makes good what asks for no more than this: a reset, a boot.
    Recovered(Action),
}

/// A report about a device, or, where the device has neither place nor id, about all of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// Which device.
    pub device: Device,
    /// What it is known by; the same key adds nothing a second time.
    pub key: Option<String>,
    /// A process wrote it, not the kernel or the driver.
    pub is_userspace: bool,
    /// What it says.
    pub what: What,
    /// For how many of its kind it stands.
    pub count: u64,
    /// The process.
    pub process: Option<Process>,
    /// The job that has the device.
    pub job: Option<String>,
    /// The slice of the device.
    pub slice: Option<u32>,
    /// The line, or a sentence for a counter.
    pub text: String,
}

/// A process on a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: Option<String>,
}

/// How often a fault was seen in an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// How often.
    pub count: u64,
    /// When first, nanoseconds.
    pub first_ns: i64,
    /// When last, nanoseconds.
    pub last_ns: i64,
    /// Its part; nothing when the catalogue does not know it.
    pub rule: Option<Rule>,
    /// What a report decided beyond the number: the strongest.
    pub decided: Option<Decided>,
    implied_ns: Option<i64>,
}

impl Seen {
    /// Its part in the incident; what is not known may be a cause.
    pub fn part(&self) -> Part {
        self.rule.as_ref().map_or(Part::Cause, |rule| rule.part)
    }
}

/// A line that an incident rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// When, nanoseconds.
    pub at_ns: i64,
    /// Of which fault, where it is of one.
    pub code: Option<Code>,
    /// The line.
    pub text: String,
    /// What it is known by.
    pub key: Option<String>,
}

/// How an incident ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// When, nanoseconds.
    pub at_ns: i64,
    /// By what.
    pub by: String,
}

/// Faults of a device with one cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Its name: host, device and time of the report that opened it.
    pub id: String,
    /// The device.
    pub device: Device,
    /// First report, nanoseconds.
    pub first_ns: i64,
    /// Last report, nanoseconds.
    pub last_ns: i64,
    /// The faults.
    pub codes: BTreeMap<Code, Seen>,
    /// Processes that were named.
    pub processes: BTreeSet<Process>,
    /// Jobs that had the device.
    pub jobs: BTreeSet<String>,
    /// Slices of the device.
    pub slices: BTreeSet<u32>,
    /// What it rests on, by time.
    pub evidence: Vec<Evidence>,
    /// Lines beyond the bound, counted.
    pub evidence_left_out: u64,
    /// Memory waits for a reset to be replaced.
    pub remap_pending: bool,
    /// Incidents of the same fault on this device in the day before.
    pub came_back: usize,
    /// What is to be done.
    pub verdict: Verdict,
    /// How it ended.
    pub cleared: Option<Cleared>,
    /// What the driver said, by time.
    said: BTreeMap<i64, (Action, Provenance)>,
    /// The order in which incidents were opened.
    serial: u64,
}

impl Incident {
    /// Whether it asks for anything.
    pub fn is_actionable(&self) -> bool {
        self.verdict.action > Action::None
    }

    /// The faults with one part.
    pub fn codes_of(&self, part: Part) -> impl Iterator<Item = &Code> {
        self.codes.iter().filter(move |(_, seen)| seen.part() == part).map(|(code, _)| code)
    }

    /// The fault that decided; where the driver did, the strongest cause in the catalogue.
    pub fn leading(&self) -> Option<&Code> {
        let strength = |code: &&Code| self.codes[*code].rule.as_ref().map(|rule| rule.action);
        self.verdict.code.as_ref().or_else(|| self.codes_of(Part::Cause).max_by_key(strength))
    }
}
