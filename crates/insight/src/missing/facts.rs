//! The evidence, ordered: hosts with their processes, and what has points where.

use std::collections::{BTreeMap, HashMap};

use model::{CaptureReport, Desc, NANOS_PER_SECOND, NodeRole, RunState, STALE_AFTER_SECONDS, Session};

use super::{Evidence, Seen};

/// The seconds between two samples where nobody says.
const INTERVAL_SECONDS: f64 = 30.0;
/// Intervals without a point after which a series counts as ended.
const INTERVALS_MISSED: f64 = 3.0;
/// The least such time, nanoseconds.
const MISSED_NS_MIN: i64 = 90 * NANOS_PER_SECOND;
/// A report that is older than its attempt by more is of an earlier one: clocks differ by less.
const SLACK_NS: i64 = 30 * NANOS_PER_SECOND;

/// Who reports a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Process,
    Gpu,
}

impl Kind {
    pub(super) fn of(desc: &Desc) -> Self {
        if desc.labels.contains(&"gpu") {
            Self::Gpu
        } else if desc.labels.contains(&"pid") {
            Self::Process
        } else {
            Self::Node
        }
    }
}

/// One process of the latest attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process<'a> {
    pub(super) host: &'a str,
    pub(super) pid: u32,
    pub(super) rank: Option<u32>,
    pub(super) session: Option<&'a Session>,
    pub(super) report: Option<&'a CaptureReport>,
    /// Whether another process took its place.
    is_replaced: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) evidence: &'a Evidence<'a>,
    /// Until when the run is judged, nanoseconds: now, or its end.
    pub(super) end_ns: i64,
    pub(super) hosts: BTreeMap<&'a str, Vec<Process<'a>>>,
    seen: HashMap<(&'a str, &'a str, Option<u32>), &'a Seen<'a>>,
    /// Most points of a series of a process: how often it sampled.
    samples: HashMap<(&'a str, u32), u64>,
    /// The same of a node.
    node_samples: HashMap<&'a str, u64>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(evidence: &'a Evidence<'a>) -> Self {
        let run = evidence.run;
        let (state, since_ns) = run.state(evidence.now_ns);
        let has_sessions = !run.sessions.is_empty();
        let end_ns = if state == RunState::Running || !has_sessions { evidence.now_ns } else { since_ns };
        let mut facts = Self {
            evidence,
            end_ns,
            hosts: processes(evidence),
            seen: HashMap::with_capacity(evidence.series.len()),
            samples: HashMap::new(),
            node_samples: HashMap::new(),
        };
        for seen in evidence.series {
            let latest = facts.seen.entry((seen.metric, seen.host, seen.gpu.or(seen.pid))).or_insert(seen);
            if seen.last_ns > latest.last_ns {
                *latest = seen;
            }
            if let Some(pid) = seen.pid {
                let samples = facts.samples.entry((seen.host, pid)).or_default();
                *samples = (*samples).max(seen.points);
            } else if seen.gpu.is_none() {
                let samples = facts.node_samples.entry(seen.host).or_default();
                *samples = (*samples).max(seen.points);
            }
        }
        facts
    }

    /// How many of the expected metrics have points.
    pub(super) fn present(&self) -> usize {
        let is_there = |desc: &&Desc| self.evidence.series.iter().any(|seen| seen.metric == desc.name);
        self.evidence.expected.iter().filter(is_there).count()
    }

    /// Whether a metric has a point anywhere in the run.
    pub(super) fn is_anywhere(&self, metric: &str) -> bool {
        self.evidence.series.iter().any(|seen| seen.metric == metric)
    }

    /// The names of expected metrics of a kind.
    pub(super) fn expected(&self, kind: Kind) -> impl Iterator<Item = &'a str> {
        self.evidence.expected.iter().filter(move |desc| Kind::of(desc) == kind).map(|desc| desc.name)
    }

    /// A process by what another said of it.
    pub(super) fn process(&self, host: &str, pid: u32) -> Option<&Process<'a>> {
        self.hosts.get(host)?.iter().rev().find(|process| process.pid == pid)
    }

    /// How often a process sampled: its own series tell, or those of the node where it has none of its
    /// own.
    pub(super) fn samples(&self, process: &Process<'_>) -> u64 {
        let own = self.samples.get(&(process.host, process.pid)).copied();
        let wraps = |report: &CaptureReport| report.wraps_command && report.node == NodeRole::Reports;
        let node = process.report.filter(|report| wraps(report));
        own.or_else(|| node.and(self.node_samples.get(process.host).copied())).unwrap_or_default()
    }

    /// The series at a place, if there is one.
    pub(super) fn seen(&self, metric: &str, host: &str, part: Option<u32>) -> Option<&'a Seen<'a>> {
        self.seen.get(&(metric, host, part)).copied()
    }
}

impl Process<'_> {
    /// Seconds between two of its samples.
    pub(super) fn interval_seconds(&self) -> f64 {
        let said = self.report.map_or(0.0, |report| report.interval_seconds);
        if said.is_finite() && said > 0.0 { said.min(86_400.0) } else { INTERVAL_SECONDS }
    }

    /// Whether it fell silent a while before `end_ns` and nobody took its place.
    pub(super) fn is_silent(&self, end_ns: i64) -> bool {
        let silent = |session: &Session| session.end.is_none() && !session.is_live(end_ns);
        !self.is_replaced && self.session.is_some_and(silent)
    }

    /// Whether nothing is to be asked of it: another goes on in its place.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Until when it is judged: its end, its last sign of life, or that of the run.
    pub(super) fn until_ns(&self, end_ns: i64) -> i64 {
        match self.session {
            Some(Session { ended_ns: Some(ended_ns), .. }) => (*ended_ns).min(end_ns),
            Some(session) if !session.is_live(end_ns) => session.heartbeat_ns,
            _ => end_ns,
        }
    }

    /// When it began, nanoseconds.
    pub(super) fn started_ns(&self) -> Option<i64> {
        let said = self.report.map(|report| report.started_ns).filter(|started_ns| *started_ns > 0);
        said.or(self.session.map(|session| session.started_ns))
    }

    /// Whether it ended in order.
    pub(super) fn has_ended(&self) -> bool {
        self.session.is_some_and(|session| session.end.is_some())
    }
}

/// The processes of the latest attempt by host, those of sessions first.
fn processes<'a>(evidence: &'a Evidence<'a>) -> BTreeMap<&'a str, Vec<Process<'a>>> {
    let run = evidence.run;
    let attempt = run.attempts.last();
    let number = attempt.map_or(0, |attempt| attempt.number);
    // Those that are seen through their telemetry only have nothing that could capture.
    let captures = |session: &&Session| session.facts.silent_after_seconds == 0;
    let sessions = || run.sessions.iter().filter(|session| session.attempt == number).filter(captures);
    let mut latest: HashMap<(&str, Option<u32>), i64> = HashMap::new();
    for session in sessions() {
        let started_ns = latest.entry((&session.facts.host, session.facts.rank)).or_insert(i64::MIN);
        *started_ns = (*started_ns).max(session.started_ns);
    }
    let mut by_name: HashMap<(&str, u32), Process<'a>> = HashMap::new();
    for session in sessions() {
        let facts = &session.facts;
        let newest_ns = latest.get(&(facts.host.as_str(), facts.rank)).copied().unwrap_or(i64::MIN);
        let process = Process {
            host: &facts.host,
            pid: facts.pid,
            rank: facts.rank,
            session: Some(session),
            report: None,
            is_replaced: session.end.is_none() && newest_ns > session.heartbeat_ns,
        };
        // Sessions come in order of their start, so a later one by the same name stays.
        by_name.insert((&facts.host, facts.pid), process);
    }
    for report in evidence.reports {
        let name = (report.host.as_str(), report.pid);
        if let Some(process) = by_name.get_mut(&name) {
            if process.report.is_none_or(|other| other.time_ns < report.time_ns) {
                process.report = Some(report);
            }
        } else if attempt.is_none_or(|attempt| report.time_ns >= attempt.started_ns - SLACK_NS) {
            let process = Process {
                host: &report.host,
                pid: report.pid,
                rank: report.rank,
                session: None,
                report: Some(report),
                is_replaced: false,
            };
            by_name.insert(name, process);
        }
    }
    let mut hosts: BTreeMap<&str, Vec<Process<'a>>> = BTreeMap::new();
    for process in by_name.into_values() {
        hosts.entry(process.host).or_default().push(process);
    }
    for processes in hosts.values_mut() {
        processes.sort_by_key(|process| (process.rank, process.pid));
    }
    hosts
}

/// Machines that go by the same name in the latest attempt: the name and how many at least.
pub(super) fn shared_names<'a>(evidence: &'a Evidence<'a>) -> BTreeMap<&'a str, usize> {
    let number = evidence.run.attempts.last().map_or(0, |attempt| attempt.number);
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_name: HashMap<(&str, u32), Vec<&Session>> = HashMap::new();
    for session in evidence.run.sessions.iter().filter(|session| session.attempt == number) {
        by_name.entry((&session.facts.host, session.facts.pid)).or_default().push(session);
    }
    for ((host, _), sessions) in &by_name {
        // One that speaks after another by the same name began is not its predecessor.
        let is_beside = |pair: &[&Session]| {
            let until_ns = pair[0].ended_ns.unwrap_or(pair[0].heartbeat_ns);
            until_ns > pair[1].started_ns && pair[1].heartbeat_ns > pair[1].started_ns
        };
        if sessions.windows(2).any(is_beside) {
            shared.insert(host, 2);
        }
    }
    let mut boots: BTreeMap<&str, BTreeMap<&str, (i64, i64)>> = BTreeMap::new();
    for report in evidence.reports.iter().filter(|report| !report.boot_id.is_empty()) {
        let Some(sessions) = by_name.get(&(report.host.as_str(), report.pid)) else { continue };
        let from_ns = sessions.iter().map(|session| session.started_ns).min().unwrap_or(i64::MAX);
        let to_ns = sessions.iter().map(|s| s.ended_ns.unwrap_or(s.heartbeat_ns)).max().unwrap_or(i64::MIN);
        let span = boots.entry(&report.host).or_default().entry(&report.boot_id).or_insert((from_ns, to_ns));
        *span = (span.0.min(from_ns), span.1.max(to_ns));
    }
    for (host, spans) in boots.iter().filter(|(_, spans)| spans.len() > 1) {
        let spans: Vec<(i64, i64)> = spans.values().copied().collect();
        let is_beside = |a: &(i64, i64)| spans.iter().filter(|b| a.0 < b.1 && b.0 < a.1).count();
        let machines = spans.iter().map(is_beside).max().unwrap_or(1);
        if machines > 1 {
            shared.insert(host, machines);
        }
    }
    shared
}

/// How long a process may be silent, nanoseconds.
pub(super) const SILENT_NS: i64 = STALE_AFTER_SECONDS as i64 * NANOS_PER_SECOND;

/// Whether a series reaches until `until_ns`, give or take a few samples.
pub(super) fn reaches(seen: &Seen<'_>, until_ns: i64, interval_seconds: f64) -> bool {
    let spacing_ns = match seen.points {
        0 | 1 => 0,
        points => seen.last_ns.saturating_sub(seen.first_ns) / i64::try_from(points - 1).unwrap_or(i64::MAX),
    };
    let missed = |interval_ns: f64| (interval_ns * INTERVALS_MISSED) as i64;
    let patience_ns =
        missed(spacing_ns as f64).max(missed(interval_seconds * NANOS_PER_SECOND as f64)).max(MISSED_NS_MIN);
    until_ns.saturating_sub(seen.last_ns) <= patience_ns
}
