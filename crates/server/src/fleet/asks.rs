//! Open incidents as remediation asks for them.

use std::collections::{BTreeMap, BTreeSet};

use insight::incidents::{Incident, common_causes};
use insight::remediation::{Ask, Job, Sure, Trigger};
use model::{Event, RunId};

use super::keeper::Keeper;
use super::{listed, words};
use crate::app::Shared;

/// Lines of evidence that go along.
const EVIDENCE_MAX: usize = 12;

/// A fault that asks for something: when it was told last, the card's id or nothing, and what it is.
pub(crate) type Fault = (i64, String, String);

/// Open incidents that ask for something, and their faults by host. Jobs are those that had the card.
pub(crate) fn asks(shared: &Shared, now_ns: i64) -> (Vec<Ask>, BTreeMap<String, Vec<Fault>>) {
    of(&shared.fleet.keeper(), now_ns)
}

fn of(keeper: &Keeper, now_ns: i64) -> (Vec<Ask>, BTreeMap<String, Vec<Fault>>) {
    let open: Vec<&Incident> = keeper
        .all()
        .iter()
        .filter(|incident| incident.cleared.is_none() && incident.is_actionable())
        .collect();
    let mut common: BTreeMap<&str, String> = BTreeMap::new();
    let causes = common_causes(open.iter().copied());
    for cause in &causes {
        let sentence = listed::sentence(cause);
        common.extend(cause.incidents.iter().map(|id| (id.as_str(), sentence.clone())));
    }
    let mut faults: BTreeMap<String, Vec<Fault>> = BTreeMap::new();
    for incident in &open {
        let uuid = incident.device.uuid.clone().unwrap_or_default();
        let fault = (incident.last_ns, uuid, words::headline(incident));
        faults.entry(incident.device.host.clone()).or_default().push(fault);
    }
    let asks = open.iter().map(|incident| ask(keeper, incident, &common, now_ns)).collect();
    (asks, faults)
}

fn ask(keeper: &Keeper, incident: &Incident, common: &BTreeMap<&str, String>, now_ns: i64) -> Ask {
    let verdict = &incident.verdict;
    let device = &incident.device;
    let runs = listed::runs(keeper, incident);
    let jobs = keeper.jobs_of(incident);
    let job = |id: String, is_run: bool| Job { name: id.clone(), id, is_run, ..Job::default() };
    let of_runs = runs.iter().cloned().map(|id| job(id, true));
    let names: Vec<Option<&str>> = runs.iter().map(|id| Some(id.as_str())).collect();
    let job_names: Vec<&str> = jobs.iter().map(String::as_str).collect();
    let uuid = device.uuid.clone().or_else(|| device.place.clone()).unwrap_or_default();
    Ask {
        incident: keeper.id_of(incident).to_owned(),
        host: device.host.clone(),
        gpu: keeper.index_of(incident),
        uuid,
        boot_id: String::new(),
        trigger: Trigger::Incident(verdict.action),
        sure: Sure::from(verdict.confidence),
        is_ready: verdict.is_ready(now_ns),
        first_ns: incident.first_ns,
        last_ns: incident.last_ns,
        common: common.get(incident.id.as_str()).cloned(),
        title: words::headline(incident),
        text: words::effect(incident, &names, &job_names),
        evidence: incident.evidence.iter().take(EVIDENCE_MAX).map(|line| line.text.clone()).collect(),
        jobs: of_runs.chain(jobs.iter().cloned().map(|id| job(id, false))).collect(),
        gain_ratio: None,
        then: verdict.then.map(Trigger::Incident),
        unconfirmed: None,
    }
}

/// Folds stored events anew, oldest first, and hands over what was open after each part of them. Gives how
/// many events there were.
pub(crate) fn replay(
    events: &[Event],
    part_ns: i64,
    each: &mut dyn FnMut(i64, Vec<Ask>, BTreeMap<String, Vec<Fault>>),
) -> usize {
    let mut keeper = Keeper::default();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for part in events.chunk_by(|a, b| a.time_ns / part_ns == b.time_ns / part_ns) {
        for event in part {
            keeper.take(event);
            known.extend(event.label("host"));
        }
        let Some(last) = part.last() else { continue };
        // The driver's own verdict is waited for as it would have been.
        let now_ns = last.time_ns.saturating_add(insight::incidents::VERDICT_WAIT_NS);
        keeper.settle(now_ns);
        keeper.take_waiting();
        let (asks, faults) = of(&keeper, now_ns);
        each(now_ns, asks, faults);
    }
    events.len()
}

/// Ends what is open on the card of an incident by its name, since remediation has seen that it is well.
pub(crate) fn end(shared: &Shared, incident: &str, by: &str) {
    if !super::close(shared, incident, by) {
        tracing::debug!(incident, "it was over already");
    }
}

/// A run by its id, where this server knows it.
pub(crate) fn run_of(shared: &Shared, id: &str) -> Option<std::sync::Arc<model::RunRecord>> {
    RunId::parse(id).and_then(|id| shared.store.run(id))
}
