//! Incidents as the API lists them.

use std::collections::BTreeMap;

use insight::incidents::{Common, Incident, Part, common_causes};
use model::RunId;
use serde::Serialize;
use utoipa::ToSchema;

use super::keeper::Keeper;
use super::{rules, words};
use crate::app::Shared;
use crate::clock::to_ms;

/// Incidents in one answer; of more the oldest are left out.
const LISTED_MAX: usize = 2_000;
/// Source of what a process wrote.
const USERSPACE: &str = "userspace";

/// Which incidents are asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct IncidentAsk {
    /// Those that are over too.
    pub(crate) all: bool,
    /// Of this host.
    pub(crate) host: Option<String>,
    /// Of this card.
    pub(crate) uuid: Option<String>,
    /// Of cards that this run had.
    pub(crate) run: Option<RunId>,
    /// Not over before this, nanoseconds.
    pub(crate) from_ns: Option<i64>,
    /// Begun until this, nanoseconds.
    pub(crate) to_ns: Option<i64>,
}

/// Incidents, and what several of them have in common.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IncidentsAnswer {
    /// Open ones first, the latest first.
    incidents: Vec<IncidentRow>,
    /// Incidents with, most likely, one cause.
    common: Vec<CommonRow>,
    /// Incidents beyond the bound of an answer.
    left_out: usize,
    /// Open ones that were forgotten since there were too many, since the start.
    dropped: u64,
}

/// Faults of a device with one cause, and what is to be done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IncidentRow {
    id: String,
    host: String,
    /// The driver's index; empty where it is not known.
    gpu: String,
    uuid: Option<String>,
    pci_bus_id: Option<String>,
    /// `open` or `cleared`.
    state: &'static str,
    /// Milliseconds since the epoch.
    first: i64,
    /// Milliseconds since the epoch.
    last: i64,
    /// `info`, `warning` or `critical`.
    severity: &'static str,
    /// What is to be done.
    action: &'static str,
    /// What is to be done when that did not help.
    then: Option<&'static str>,
    /// Who says so: `driver-154`, `nvml-recovery`, `nvidia-catalog` or `local-policy`.
    provenance: &'static str,
    /// `low`, `medium` or `high`.
    confidence: &'static str,
    /// Until when the driver's own verdict is waited for, milliseconds since the epoch.
    waits_until: Option<i64>,
    title: String,
    effect: String,
    codes: Vec<CodeRow>,
    /// Who disagrees, in sentences.
    conflicts: Vec<String>,
    evidence: Vec<EvidenceRow>,
    /// Lines beyond the bound.
    evidence_left_out: u64,
    processes: Vec<ProcessRow>,
    /// Jobs that had the card.
    jobs: Vec<String>,
    /// Runs that had the card.
    runs: Vec<RunRow>,
    /// Slices of the card.
    slices: Vec<String>,
    /// Memory waits for a reset to be replaced.
    remap_pending: bool,
    cleared: Option<ClearedRow>,
    /// The common cause that it is listed under.
    common: Option<String>,
}

/// A fault, how often, and its part.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CodeRow {
    /// Such as `Xid 79`.
    code: String,
    number: Option<u32>,
    count: u64,
    /// `cause`, `symptom` or `detail`.
    part: &'static str,
    title: &'static str,
    first: i64,
    last: i64,
}

/// A line that an incident rests on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EvidenceRow {
    time: i64,
    text: String,
    /// The fault that it tells.
    code: Option<String>,
    /// Where it was read: `log`, `driver`, `inventory`, `series`; `userspace` for a process, whose lines change
    /// nothing.
    source: &'static str,
    userspace: bool,
}

/// A process on the card.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessRow {
    pid: u32,
    name: Option<String>,
}

/// A run by id and name.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RunRow {
    run_id: String,
    /// Null where this server does not know the run.
    run: Option<String>,
}

impl RunRow {
    /// Its name.
    pub(super) fn into_name(self) -> Option<String> {
        self.run
    }
}

/// How an incident ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClearedRow {
    time: i64,
    by: String,
}

/// Incidents with, most likely, one cause.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommonRow {
    id: String,
    sentence: String,
    hosts: Vec<String>,
    incidents: Vec<String>,
}

/// A run's id with its name.
pub(super) fn run_row(shared: &Shared, id: &str) -> RunRow {
    let run = RunId::parse(id).and_then(|id| shared.store.run(id));
    RunRow { run_id: id.to_owned(), run: run.map(|run| run.path.run.clone()) }
}

/// The incidents that are asked for. `sees` says of a list of run ids whether the caller may know of what
/// befell them.
pub(crate) fn incidents(
    shared: &Shared,
    ask: &IncidentAsk,
    sees: &dyn Fn(&[String]) -> bool,
) -> IncidentsAnswer {
    let keeper = shared.fleet.keeper();
    let mut found: Vec<&Incident> = keeper
        .all()
        .iter()
        .filter(|incident| fits(&keeper, incident, ask) && sees(&runs(&keeper, incident)))
        .collect();
    found.sort_by_key(|incident| {
        (incident.cleared.is_some(), std::cmp::Reverse((incident.verdict.action, incident.last_ns)))
    });
    let left_out = found.len().saturating_sub(LISTED_MAX);
    found.truncate(LISTED_MAX);
    let commons = common_causes(found.iter().copied());
    let mut listed_under: BTreeMap<&str, String> = BTreeMap::new();
    for common in &commons {
        let members = common.incidents.iter().map(|id| (id.as_str(), common_id(common)));
        listed_under.extend(members);
    }
    let named: BTreeMap<&str, &str> =
        found.iter().map(|incident| (incident.id.as_str(), keeper.id_of(incident))).collect();
    let rows = found.iter().map(|incident| {
        let common = listed_under.get(incident.id.as_str()).cloned();
        row(shared, &keeper, incident, common)
    });
    let common_row = |common: &Common| CommonRow {
        id: common_id(common),
        sentence: sentence(common),
        hosts: common.hosts.iter().cloned().collect(),
        incidents: common
            .incidents
            .iter()
            .filter_map(|id| named.get(id.as_str()))
            .map(|id| (*id).to_owned())
            .collect(),
    };
    IncidentsAnswer {
        incidents: rows.collect(),
        common: commons.iter().map(common_row).collect(),
        left_out,
        dropped: keeper.dropped(),
    }
}

fn fits(keeper: &Keeper, incident: &Incident, ask: &IncidentAsk) -> bool {
    let run = ask.run.map(|run| run.to_string());
    let end_ns = incident.cleared.as_ref().map(|cleared| cleared.at_ns);
    (ask.all || end_ns.is_none())
        && ask.host.as_ref().is_none_or(|host| incident.device.host == *host)
        && ask.uuid.as_ref().is_none_or(|uuid| incident.device.uuid.as_ref() == Some(uuid))
        && run.is_none_or(|run| runs(keeper, incident).contains(&run))
        && ask.from_ns.is_none_or(|from| end_ns.is_none_or(|end| end >= from))
        && ask.to_ns.is_none_or(|to| incident.first_ns <= to)
}

/// Runs that had the card, by id.
pub(super) fn runs(keeper: &Keeper, incident: &Incident) -> Vec<String> {
    let mut runs = keeper.runs_of(incident);
    let jobs = incident.jobs.iter().filter(|job| RunId::parse(job).is_some());
    runs.extend(jobs.cloned());
    runs.sort();
    runs.dedup();
    runs
}

fn common_id(common: &Common) -> String {
    format!("{}/{}", common.code, to_ms(common.first_ns))
}

/// What incidents with one cause have in common, in a sentence.
pub(super) fn sentence(common: &Common) -> String {
    let minutes = common.last_ns.saturating_sub(common.first_ns) as f64 / 6e10;
    let (cards, hosts) = (common.incidents.len(), common.hosts.len());
    let within =
        if minutes < 1.0 { "within a minute".to_owned() } else { format!("within {minutes:.0} min") };
    let on = if hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") };
    match &common.job {
        Some(job) => format!(
            "{} on {cards} GPUs of {on} {within}, all of job {job}: suspect the job before power, network or driver.",
            common.code
        ),
        None => format!(
            "{} on {cards} GPUs of {on} {within}: suspect what they share (power, network, driver) before each GPU.",
            common.code
        ),
    }
}

fn part(part: Part) -> &'static str {
    match part {
        Part::Cause => "cause",
        Part::Symptom => "symptom",
        Part::Detail => "detail",
    }
}

fn confidence(of: insight::incidents::Confidence) -> &'static str {
    use insight::incidents::Confidence;

    match of {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

fn row(shared: &Shared, keeper: &Keeper, incident: &Incident, common: Option<String>) -> IncidentRow {
    let verdict = &incident.verdict;
    let runs: Vec<RunRow> = runs(keeper, incident).iter().map(|id| run_row(shared, id)).collect();
    let jobs = keeper.jobs_of(incident);
    let processes = incident.processes.iter();
    let cleared = incident.cleared.as_ref();
    IncidentRow {
        id: keeper.id_of(incident).to_owned(),
        host: incident.device.host.clone(),
        gpu: keeper.index_of(incident),
        uuid: incident.device.uuid.clone(),
        pci_bus_id: incident.device.place.clone(),
        state: if cleared.is_some() { "cleared" } else { "open" },
        first: to_ms(incident.first_ns),
        last: to_ms(incident.last_ns),
        severity: words::severity(verdict.action).name(),
        action: verdict.action.name(),
        then: verdict.then.map(model::Action::name),
        provenance: verdict.provenance.name(),
        confidence: confidence(verdict.confidence),
        waits_until: verdict.waits_until_ns.map(to_ms),
        title: words::headline(incident),
        effect: words::effect(
            incident,
            &runs.iter().map(|run| run.run.as_deref()).collect::<Vec<_>>(),
            &jobs.iter().map(String::as_str).collect::<Vec<_>>(),
        ),
        codes: codes(incident),
        conflicts: verdict.conflict.into_iter().map(words::conflict).collect(),
        evidence: evidence(keeper, incident),
        evidence_left_out: incident.evidence_left_out,
        processes: processes.map(|p| ProcessRow { pid: p.pid, name: p.name.clone() }).collect(),
        jobs: jobs.into_iter().collect(),
        runs,
        slices: incident.slices.iter().map(ToString::to_string).collect(),
        remap_pending: incident.remap_pending,
        cleared: cleared.map(|cleared| ClearedRow { time: to_ms(cleared.at_ns), by: cleared.by.clone() }),
        common,
    }
}

fn codes(incident: &Incident) -> Vec<CodeRow> {
    let row = |(code, seen): (&insight::incidents::Code, &insight::incidents::Seen)| CodeRow {
        code: code.to_string(),
        number: rules::number(code),
        count: seen.count,
        part: part(seen.part()),
        title: rules::title(code),
        first: to_ms(seen.first_ns),
        last: to_ms(seen.last_ns),
    };
    incident.codes.iter().map(row).collect()
}

/// Where a line was read, by its key.
fn source_of(key: Option<&str>) -> &'static str {
    let key = key.and_then(|key| key.split_once('\0')).map_or("", |(_, key)| key);
    let known = [("nvml:", "driver"), ("inventory:", "inventory"), ("series:", "series")];
    known.iter().find(|(start, _)| key.starts_with(start)).map_or("log", |(_, source)| source)
}

fn evidence(keeper: &Keeper, incident: &Incident) -> Vec<EvidenceRow> {
    let row = |(at_ns, text): (i64, &str), code: Option<String>, source: &'static str| {
        let (time, text, userspace) = (to_ms(at_ns), text.to_owned(), source == USERSPACE);
        (at_ns, EvidenceRow { time, text, code, source, userspace })
    };
    let lines = incident.evidence.iter().map(|line| {
        let code = line.code.as_ref().map(ToString::to_string);
        row((line.at_ns, &line.text), code, source_of(line.key.as_deref()))
    });
    let of_processes = keeper.userspace_of(incident);
    let of_processes = of_processes.map(|line| row((line.at_ns, &line.text), None, USERSPACE));
    let mut rows: Vec<(i64, EvidenceRow)> = lines.chain(of_processes).collect();
    rows.sort_by_key(|(at_ns, _)| *at_ns);
    rows.into_iter().map(|(_, row)| row).collect()
}
