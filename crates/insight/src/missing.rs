//! Why a chart is missing: every series that a run should have and lacks, with the reason.
//!
//! Told from four things: which series have points, what the processes' capture reported, how their
//! sessions stand, and what was refused. What several places lack for one reason is one row.

mod cause;
mod facts;
mod findings;
mod foresight;
mod judge;
mod places;
mod words;

use model::{CaptureReport, Desc, RunRecord};

pub use foresight::foresee;

/// Most rows of an answer.
pub const ROWS_MAX: usize = 1_000;
/// Most metrics that are told apart.
pub const METRICS_MAX: usize = 512;
/// Most places of all rows together.
pub const PLACES_MAX: usize = 65_536;
/// How long the reporter of a node leaves devices to slower ranks, seconds.
pub const GRACE_SECONDS: i64 = 45;

/// All that an answer is drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What every run should have, such as the series that the documentation promises.
    pub expected: &'a [Desc],
    /// Every metric that is known by name, for units.
    pub catalog: &'a [Desc],
    /// The run, with its sessions.
    pub run: &'a RunRecord,
    /// What capture reported, one for each process.
    pub reports: &'a [CaptureReport],
    /// Series of capture that have points.
    pub series: &'a [Seen<'a>],
    /// Points that the server refused, by reason.
    pub refused: &'a [(&'a str, u64)],
    /// When the question is asked, nanoseconds since the epoch.
    pub now_ns: i64,
}

/// A series that has points.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Display name.
    pub metric: &'a str,
    /// Label `host`.
    pub host: &'a str,
    /// Label `gpu`.
    pub gpu: Option<u32>,
    /// Label `pid`.
    pub pid: Option<u32>,
    /// Time of the first point, nanoseconds.
    pub first_ns: i64,
    /// Time of the latest point, nanoseconds.
    pub last_ns: i64,
    /// How many there are.
    pub points: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// How many metrics were expected.
    pub expected: usize,
    /// How many of them have points somewhere in the run.
    pub present: usize,
    /// What is missing, alarming rows first, then as many places as it concerns.
    pub rows: Vec<Row>,
    /// Whether there is more than [`ROWS_MAX`], [`PLACES_MAX`] or [`METRICS_MAX`] let through.
    pub is_cut: bool,
}

/// One reason, with all that is missing for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Bounded word.
    pub reason: &'static str,
    /// The reason in one or two sentences, with names and numbers.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// A command that helps, to be copied.
    pub command: Option<String>,
    /// Since when, nanoseconds; none where there never was a point.
    pub since_ns: Option<i64>,
    /// Whether it is a fault; what is as it should be is told all the same.
    pub is_alarm: bool,
    /// What is missing, at each of the places.
    pub metrics: Vec<Metric>,
    /// Where.
    pub places: Vec<Place>,
}

/// A metric by its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// PromQL name.
    pub name: String,
    /// Display name.
    pub display: String,
    /// Symbol of the unit; empty where there is none or it is not known.
    pub unit: &'static str,
}

/// Where something is missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Label `host`.
    pub host: String,
    /// Label `gpu`.
    pub gpu: Option<u32>,
    /// The process that would report it.
    pub pid: Option<u32>,
    /// Its rank.
    pub rank: Option<u32>,
}

/// Says what is missing and why.
pub fn explain(evidence: &Evidence<'_>) -> Explanation {
    let facts = facts::Facts::of(evidence);
    let mut findings = findings::Findings::of(evidence);
    judge::judge(&facts, &mut findings);
    let (rows, is_cut) = findings.rows();
    Explanation { expected: evidence.expected.len(), present: facts.present(), rows, is_cut }
}
