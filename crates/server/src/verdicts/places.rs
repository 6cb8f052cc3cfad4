//! Where the ranks of a run are: their machines, their cards, their places in the layout of the job.

use std::collections::{BTreeMap, HashMap};

use model::{AttributeValue, DeviceRole, RunRecord};

use crate::claims;

/// What keys of a rank's place begin with: `parallel/<rank>/<what>`.
const PARALLEL: &str = "parallel/";

/// A rank's place, as far as it is known; empty texts are not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: String,
    /// The driver's index of its card on that host.
    pub(super) gpu: String,
    pub(super) uuid: String,
    /// Host and index as its own process names them, where that is not as an agent does.
    pub(super) own: Option<(String, String)>,
    /// Its process, by the names that it gives its host and itself.
    pub(super) process: Option<(String, u32)>,
    pub(super) tp: Option<u32>,
    pub(super) pp: Option<u32>,
    pub(super) dp: Option<u32>,
    pub(super) ep: Option<u32>,
    pub(super) cp: Option<u32>,
}

/// The places of the ranks of a run's latest attempt.
pub(super) fn places(run: &RunRecord) -> BTreeMap<u32, Place> {
    let mut places: BTreeMap<u32, Place> = BTreeMap::new();
    let attempt = run.attempts.last().map_or(0, |attempt| attempt.number);
    let mut ranks: HashMap<(&str, u32), u32> = HashMap::new();
    for session in run.sessions.iter().filter(|session| session.attempt == attempt) {
        let (rank, host) = (session.facts.rank.unwrap_or(0), &session.facts.host);
        ranks.insert((host, session.facts.pid), rank);
        if !host.is_empty() {
            let place = places.entry(rank).or_default();
            place.host.clone_from(host);
            place.process = Some((host.clone(), session.facts.pid));
        }
    }
    for report in claims::reports(run) {
        let Some(rank) = ranks.get(&(report.host.as_str(), report.pid)) else { continue };
        let mut owned = report.devices.iter().filter(|device| device.role == DeviceRole::Owned);
        // A process with several cards has none that its steps are of.
        if let (Some(device), None) = (owned.next(), owned.next()) {
            let place = places.entry(*rank).or_default();
            place.uuid.clone_from(&device.uuid);
            place.gpu = device.gpu.to_string();
        }
    }
    let told = run.attributes.range(PARALLEL.to_owned()..);
    for (key, value) in told.take_while(|(key, _)| key.starts_with(PARALLEL)) {
        note(&mut places, &key[PARALLEL.len()..], value);
    }
    places
}

/// Where cards are, as agents tell: by id, host and index.
pub(super) type Seats = HashMap<String, (String, String)>;

/// Names the machines of ranks as agents do, where one tells of a rank's card: a process in a container knows another
/// name of its host, by which nobody finds the machine.
pub(super) fn sit(places: &mut BTreeMap<u32, Place>, seats: &Seats) {
    for place in places.values_mut().filter(|place| !place.uuid.is_empty()) {
        let Some((host, gpu)) = seats.get(&place.uuid) else { continue };
        // An agent that tells no index leaves it to the process.
        let gpu = if gpu.is_empty() { &place.gpu } else { gpu };
        if (&place.host, &place.gpu) != (host, gpu) {
            let gpu = gpu.clone();
            let own =
                (std::mem::replace(&mut place.host, host.clone()), std::mem::replace(&mut place.gpu, gpu));
            place.own = Some(own);
        }
    }
}

fn note(places: &mut BTreeMap<u32, Place>, key: &str, value: &AttributeValue) {
    let Some((rank, what)) = key.split_once('/') else { return };
    let Ok(rank) = rank.parse() else { return };
    let place = places.entry(rank).or_default();
    let number = match value {
        AttributeValue::Int(number) => u32::try_from(*number).ok(),
        AttributeValue::Float(number) if *number >= 0.0 => Some(*number as u32),
        AttributeValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    let text = || match value {
        AttributeValue::Text(text) => text.clone(),
        _ => number.map(|number| number.to_string()).unwrap_or_default(),
    };
    match what {
        "host" => place.host = text(),
        "gpu" => place.gpu = text(),
        "gpu_uuid" => place.uuid = text(),
        "tp" => place.tp = number,
        "pp" => place.pp = number,
        "dp" => place.dp = number,
        "ep" => place.ep = number,
        "cp" => place.cp = number,
        _ => {}
    }
}
