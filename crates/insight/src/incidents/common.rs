//! The same fault on several devices at a time: one cause, most likely, that is none of theirs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, Incident};

/// Incidents that begin within this of the one before may have one cause, nanoseconds.
const APART_NS: i64 = 300_000_000_000;
/// So many hosts with the same fault are no accident.
const HOSTS_MIN: usize = 3;
/// So many devices of one job with the same fault point at the job.
const DEVICES_OF_JOB_MIN: usize = 2;

/// Incidents with, most likely, one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// The fault that decided in each.
    pub code: Code,
    /// Hosts.
    pub hosts: BTreeSet<String>,
    /// Ids of the incidents, by time.
    pub incidents: Vec<String>,
    /// The job that had every device: then the job is suspected before power, network or driver.
    pub job: Option<String>,
    /// When the first began, nanoseconds.
    pub first_ns: i64,
    /// When the last began, nanoseconds.
    pub last_ns: i64,
}

/// Groups incidents by the fault that decided: on at least three hosts, or on two devices of one job, each
/// beginning within five minutes of the one before.
pub fn common_causes<'a>(incidents: impl IntoIterator<Item = &'a Incident>) -> Vec<Common> {
    let mut by_code: BTreeMap<&Code, Vec<&Incident>> = BTreeMap::new();
    for incident in incidents {
        if let Some(code) = incident.leading() {
            by_code.entry(code).or_default().push(incident);
        }
    }
    let mut groups = Vec::new();
    for (code, mut of_code) in by_code {
        of_code.sort_by(|a, b| (a.first_ns, &a.id).cmp(&(b.first_ns, &b.id)));
        let chains = of_code.chunk_by(|a, b| b.first_ns.saturating_sub(a.first_ns) <= APART_NS);
        groups.extend(chains.filter_map(|chain| group(code, chain)));
    }
    groups.sort_by(|a, b| (a.first_ns, &a.code).cmp(&(b.first_ns, &b.code)));
    groups
}

fn group(code: &Code, chain: &[&Incident]) -> Option<Common> {
    let hosts: BTreeSet<String> = chain.iter().map(|incident| incident.device.host.clone()).collect();
    let mut jobs = chain.iter().map(|incident| &incident.jobs);
    let first = jobs.next()?;
    let job = first.iter().find(|job| chain.iter().all(|incident| incident.jobs.contains(*job))).cloned();
    let is_common = hosts.len() >= HOSTS_MIN || (job.is_some() && chain.len() >= DEVICES_OF_JOB_MIN);
    is_common.then(|| Common {
        code: code.clone(),
        hosts,
        incidents: chain.iter().map(|incident| incident.id.clone()).collect(),
        job,
        first_ns: chain[0].first_ns,
        last_ns: chain[chain.len() - 1].first_ns,
    })
}
