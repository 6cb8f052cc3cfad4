//! What is done about incidents, by a policy: which machine is taken out, when, by which commands, and who
//! has to agree.
//!
//! [`Book`] holds the state of every machine and card that something is wrong with, and the [`Plan`] made
//! for each incident. [`Book::look`] decides from what is known now; it is called again and again, and the
//! same facts change nothing a second time. Nothing is executed here: whoever executes says so step by step
//! ([`Book::begin`], [`Book::ended`]), and after a crash what was under way is never simply run again
//! ([`Book::recover`]).

mod book;
mod command;
mod guards;
mod look;
mod policy;
mod propose;
mod steps;
mod validate;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use book::{Book, By, Changes, Deed, Edge, Kept, Plan, PoolNow, Proof, Refusal, Status, Unit};
pub use command::{Command, Hook, Kind, Named, Step, Word, is_plain};
pub use guards::{Guard, Guarded};
pub use look::Replay;
pub use policy::{ActionRule, Contradiction, Guards, Policy, Pool, Quiet, Validation};
pub use steps::{Next, Outcome};
pub use validate::{Check, judge};

use crate::incidents::Action;

/// A day, nanoseconds.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;
pub(crate) const MINUTE_NS: i64 = 60_000_000_000;

/// Where a machine or a card stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is known against it.
    #[default]
    Healthy,
    /// An incident is open.
    Suspect,
    /// It gets no new work.
    Cordoned,
    /// Its work is being moved away.
    Draining,
    /// A card is being reset.
    Resetting,
    /// The machine is being booted.
    Rebooting,
    /// It is checked before it gets work again.
    Validating,
    /// Somebody has to look: nothing more happens by itself.
    NeedsHuman,
}

impl State {
    /// Every state, in order.
    pub const ALL: [Self; 8] = [
        Self::Healthy,
        Self::Suspect,
        Self::Cordoned,
        Self::Draining,
        Self::Resetting,
        Self::Rebooting,
        Self::Validating,
        Self::NeedsHuman,
    ];

    /// As labels and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Resetting => "resetting",
            Self::Rebooting => "rebooting",
            Self::Validating => "validating",
            Self::NeedsHuman => "needs_human",
        }
    }

    /// Whether a machine in it is out of service since something was done to it.
    pub fn is_active(self) -> bool {
        !matches!(self, Self::Healthy | Self::Suspect | Self::NeedsHuman)
    }

    /// Whether one follows the other. Forward, never back: what went wrong on the way needs a human, and
    /// from there a human alone leads back.
    pub fn leads_to(self, to: Self) -> bool {
        match to {
            Self::Healthy => matches!(self, Self::Suspect | Self::Validating | Self::NeedsHuman),
            Self::NeedsHuman => self != Self::NeedsHuman,
            Self::Rebooting => self.is_active() && self < Self::Resetting || self == Self::Suspect,
            // A person agrees to what comes next after a validation that failed.
            Self::Suspect => matches!(self, Self::Healthy | Self::NeedsHuman),
            _ => self < to && self != Self::Healthy && self != Self::NeedsHuman,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who has to agree before commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing runs; what would is written down.
    DryRun,
    /// A person agrees first.
    Approve,
    /// They run as soon as the guards let them.
    Auto,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::DryRun, Self::Approve, Self::Auto];

    /// As policies and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DryRun => "dry_run",
            Self::Approve => "approve",
            Self::Auto => "auto",
        }
    }
}

/// How far the whole server goes, whatever a policy says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ceiling {
    /// There is no policy.
    Off,
    /// Everything is rehearsed and nothing runs.
    #[default]
    DryRun,
    /// Commands run as the policy says.
    Real,
}

impl Ceiling {
    /// As settings and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dry_run",
            Self::Real => "real",
        }
    }
}

/// What asks for something to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// A rank was found slow: a recommendation, never more.
    Straggler,
    /// An incident with this verdict.
    Incident(Action),
}

impl Trigger {
    /// Every trigger that a policy can have a rule for.
    pub fn all() -> impl Iterator<Item = Self> {
        let actions = Action::ALL.into_iter().filter(|action| *action != Action::None);
        std::iter::once(Self::Straggler).chain(actions.map(Self::Incident))
    }

    /// As policies and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Straggler => "straggler",
            Self::Incident(action) => action.name(),
        }
    }

    /// Reads [`Trigger::name`].
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|trigger| trigger.name() == name)
    }
}

impl Serialize for Trigger {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Trigger {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| serde::de::Error::custom(format!("`{name}` is no trigger")))
    }
}

/// How sure a verdict is, as policies write it; the order is that of certainty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// A fault decided that nobody knows.
    Low,
    /// Driver and catalogue disagree.
    Medium,
    /// Nothing speaks against it.
    #[default]
    High,
}

impl Sure {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    /// As policies and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl From<crate::incidents::Confidence> for Sure {
    fn from(of: crate::incidents::Confidence) -> Self {
        use crate::incidents::Confidence;

        match of {
            Confidence::Low => Self::Low,
            Confidence::Medium => Self::Medium,
            Confidence::High => Self::High,
        }
    }
}

/// A checkpoint from which a job can go on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its step.
    pub step: i64,
    /// The hash by which it was verified; nothing where only its step is known.
    pub hash: Option<String>,
    /// When it was written, nanoseconds.
    pub time_ns: Option<i64>,
    /// Steps since then, which are repeated.
    pub steps_lost: Option<i64>,
}

/// A job that has a card of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// By what two machines are known to work for the same job: a run's id, else the scheduler's number.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whether it is a run that is known here.
    pub is_run: bool,
    /// Cards that it has altogether.
    pub gpus: Option<u32>,
    /// Which attempt of the run.
    pub attempt: Option<u32>,
    /// It has ended, or nothing is heard of it any more.
    pub is_dead: bool,
    /// Where it could go on.
    pub checkpoint: Option<Checkpoint>,
    /// Median of its latest steps, seconds.
    #[serde(default)]
    pub step_seconds: Option<f64>,
    /// From the end of an attempt to the start of the next, as it was seen of this run, seconds.
    #[serde(default)]
    pub restart_seconds: Option<f64>,
    /// What its GPUs cost, dollars per hour.
    #[serde(default)]
    pub usd_per_hour: Option<f64>,
}

/// Something that asks for an action: an open incident, or a recommendation.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The incident's name.
    pub incident: String,
    /// The machine.
    pub host: String,
    /// The card's index; empty where it is not known.
    pub gpu: String,
    /// The card's id, or its place where that is all that is known; empty for the whole machine.
    pub uuid: String,
    /// The boot during which it happened; empty where it is not known.
    pub boot_id: String,
    /// What is asked for.
    pub trigger: Trigger,
    /// How sure that is.
    pub sure: Sure,
    /// The driver's own verdict is not waited for any more.
    pub is_ready: bool,
    /// When it began, nanoseconds.
    pub first_ns: i64,
    /// The last word of it, nanoseconds.
    pub last_ns: i64,
    /// Others have the same fault at this time: most likely one cause, that is none of theirs.
    pub common: Option<String>,
    /// What failed, in few words.
    pub title: String,
    /// What it means.
    pub text: String,
    /// The lines that it rests on.
    pub evidence: Vec<String>,
    /// Jobs that have or had the card.
    pub jobs: Vec<Job>,
    /// Share of step time to be won, where that is known.
    pub gain_ratio: Option<f64>,
    /// What is asked for next where this does not help.
    pub then: Option<Trigger>,
    /// Why nothing but a run's own word puts it on this machine. A run names its machines itself, so that its word
    /// alone moves none.
    pub unconfirmed: Option<String>,
}

/// A number with its time, nanoseconds.
pub type At = (i64, f64);

/// What a card says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CardFacts {
    /// What the driver asks for: 0 for nothing.
    pub recovery_action: Option<At>,
    /// Whether rows of memory wait for a reset.
    pub remap_pending: Option<At>,
}

/// What a machine says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// The machine.
    pub host: String,
    /// When it was heard last, nanoseconds.
    pub heard_ns: i64,
    /// The boot that it is in; empty where it is not known.
    pub boot_id: String,
    /// Since when it is heard in this boot, nanoseconds.
    pub since_ns: Option<i64>,
    /// Jobs on it.
    pub jobs: std::collections::BTreeSet<String>,
    /// Cards on the bus.
    pub pci: Option<At>,
    /// Cards that the driver knows.
    pub driver: Option<At>,
    /// By id.
    pub cards: std::collections::BTreeMap<String, CardFacts>,
    /// Latest fault of a card or of the machine: when, whose, and what. Only those that ask for something.
    pub faults: Vec<(i64, String, String)>,
}

/// What is known now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// What asks for an action.
    pub asks: Vec<Ask>,
    /// Every machine.
    pub nodes: Vec<Node>,
}

impl Facts {
    /// A machine.
    pub fn node(&self, host: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.host == host)
    }
}

/// Nanoseconds as people write a time.
pub fn spoken(ns: i64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
