//! What verdicts on runs recommend: a person agrees, or nothing happens.

use insight::remediation::{Ask, Job, Sure, Trigger};
use model::NANOS_PER_MILLI;

use crate::app::Shared;
use crate::verdicts::VerdictRow;

/// The word of a verdict that recommends to take a machine out.
const DRAIN: &str = "drain";
/// From here a verdict's own confidence counts as high, and as medium.
const HIGH: f64 = 0.9;
const MEDIUM: f64 = 0.6;

/// Machines that a verdict recommends to take out.
pub(super) fn asks(shared: &Shared) -> Vec<Ask> {
    // A verdict that holds is ended with its run, by whoever knows best whether that is still there.
    let runs = shared.store.runs();
    let told = runs.iter().map(|run| run.id()).filter(|id| shared.verdicts.worst(*id).is_some());
    told.flat_map(|id| {
        let rows = shared.verdicts.health(id).verdicts;
        rows.into_iter().filter_map(move |row| ask(&id.to_string(), row))
    })
    .collect()
}

fn ask(run_id: &str, row: VerdictRow) -> Option<Ask> {
    let is_drain = row.action.word.split(',').any(|word| word.trim() == DRAIN);
    (is_drain && row.cleared.is_none()).then(|| of_verdict(run_id, row)).flatten()
}

/// What a verdict of that name, or of that class, says about a machine, whether it recommends anything or not.
pub(super) fn named(shared: &Shared, host: &str, name: &str) -> Option<Ask> {
    let is_it = |row: &VerdictRow| (row.id == name || row.class == name) && row.host.as_deref() == Some(host);
    shared.store.runs().iter().find_map(|run| {
        let row = shared.verdicts.health(run.id()).verdicts.into_iter().find(is_it)?;
        let is_asked = ask(&run.id().to_string(), row.clone());
        let by_hand = || {
            let of = of_verdict(&run.id().to_string(), row)?;
            Some(Ask { incident: Ask::by_hand(host, &of.incident, 0).incident, ..of })
        };
        is_asked.or_else(by_hand)
    })
}

fn of_verdict(run_id: &str, row: VerdictRow) -> Option<Ask> {
    let host = row.host.filter(|host| !host.is_empty())?;
    let sure = match row.confidence {
        Some(confidence) if confidence >= HIGH => Sure::High,
        Some(confidence) if confidence >= MEDIUM => Sure::Medium,
        _ => Sure::Low,
    };
    let since_ns = row.since.saturating_mul(NANOS_PER_MILLI);
    Some(Ask {
        incident: format!("verdict:{run_id}:{}:{}", row.id, row.since),
        host,
        gpu: row.gpu.unwrap_or_default(),
        uuid: row.uuid.unwrap_or_default(),
        boot_id: String::new(),
        trigger: Trigger::Straggler,
        sure,
        is_ready: true,
        first_ns: since_ns,
        last_ns: since_ns,
        common: None,
        title: row.claim,
        text: row.sentence,
        evidence: row.evidence.into_iter().map(|line| line.text).collect(),
        jobs: vec![Job { id: run_id.to_owned(), name: run_id.to_owned(), is_run: true, ..Job::default() }],
        gain_ratio: row.gain_ratio,
        then: None,
        // A run names its machines itself.
        unconfirmed: Some("Only the run says that it is on this machine".to_owned()),
    })
}
