//! Incidents as the server keeps them: folded from events, told as events and series.
//!
//! Nothing of it is stored but the events. At start those of the last days are folded again; an incident
//! then gets the name under which it was told before.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use insight::incidents::{Action, Device, Incident, Incidents, Outcome, Report, What};
use model::{Event, NANOS_PER_SECOND, RunId, Severity};
use serde_json::json;

use super::bridge;
use super::rules::rule;
use super::watch::{WatchKey, told_by};
use super::words;

/// Lines of processes that are kept beside incidents.
const USERSPACE_MAX: usize = 1_000;
/// Events of incidents that wait for the store.
const WAITING_MAX: usize = 10_000;
/// Cards whose index or last verdict is kept.
const CARDS_MAX: usize = 200_000;
/// Watched series that are kept in mind.
const WATCHED_MAX: usize = 1_000_000;
/// How long after a fault its owner is looked for, nanoseconds.
const OWNER_LATE_NS: i64 = 600 * NANOS_PER_SECOND;
/// Kind of the events that tell of incidents; nobody else may send it.
pub(crate) const INCIDENT_EVENT: &str = "incident";

/// What was told of an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// Its name to the outside.
    pub(super) id: String,
    /// The action that was told.
    pub(super) action: Action,
    /// Whether its end was told.
    pub(super) cleared: bool,
}

/// A line that a process wrote.
#[derive(Debug, Clone)]
pub(super) struct Userspace {
    pub(super) device: Device,
    pub(super) at_ns: i64,
    pub(super) text: String,
}

/// Labels of a series of an incident: id, host, gpu, action.
pub(super) type SeriesKey = [String; 4];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    incidents: Incidents,
    /// By the fold's own id.
    told: BTreeMap<String, Told>,
    /// Runs that had the device, by the fold's own id.
    runs: BTreeMap<String, BTreeSet<String>>,
    /// Jobs that were found to have had the device later than the fault was told, by the fold's own id.
    jobs: BTreeMap<String, BTreeSet<String>>,
    /// Incidents whose owner is not looked for any more.
    settled_owners: BTreeSet<String>,
    /// The driver's index of a card, by host and place or id.
    indices: BTreeMap<(String, String), String>,
    /// The driver's verdict on a card as it was last, by host and id.
    verdicts: BTreeMap<(String, String), Action>,
    userspace: VecDeque<Userspace>,
    /// What watched series said last.
    watched: HashMap<WatchKey, f64>,
    /// Events to be stored.
    waiting: Vec<Event>,
    /// Series that were written last.
    series: BTreeSet<SeriesKey>,
    /// Hosts of which something changed.
    changed: BTreeSet<String>,
}

impl Keeper {
    /// Takes an event that is stored.
    pub(super) fn take(&mut self, event: &Event) {
        let Some(report) = bridge::report(event) else { return };
        if report.is_userspace {
            self.keep_line(&report);
        }
        self.keep_index(event, &report.device);
        if event.kind == "recovery" && !self.is_news(&report) {
            return;
        }
        self.fold(report, event.label("run_id"));
    }

    /// Takes an event of the server's own, which is yet to be stored.
    pub(super) fn tell(&mut self, event: Event) {
        self.take(&event);
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(event);
        }
    }

    /// Ends all that is open on the card of an open incident, since somebody has looked at it; the event that
    /// says so waits for the store. `false` when there is no such incident.
    pub(super) fn close(&mut self, id: &str, by: &str, now_ns: i64) -> bool {
        let mut open = self.incidents.open();
        let Some(incident) = open.find(|incident| self.id_of(incident) == id) else { return false };
        let device = &incident.device;
        let mut labels = vec![("host".to_owned(), device.host.clone())];
        let known = [("uuid", device.uuid.clone()), ("pci_bus_id", device.place.clone())];
        labels.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        labels.push(("source".to_owned(), "person".to_owned()));
        let event = Event {
            time_ns: now_ns,
            kind: INCIDENT_EVENT.to_owned(),
            severity: Severity::Info,
            key: format!("incident:{id}:closed:{now_ns}"),
            labels,
            text: format!("closed by {by}"),
            body: json!({ "what": "closed", "id": id, "by": by }).to_string(),
        };
        drop(open);
        self.tell(event);
        true
    }

    /// What a watched series said last.
    pub(super) fn watched(&self, key: &WatchKey) -> Option<f64> {
        self.watched.get(key).copied()
    }

    /// Notes what a watched series says.
    pub(super) fn watch(&mut self, key: WatchKey, value: f64) {
        if self.watched.len() < WATCHED_MAX || self.watched.contains_key(&key) {
            self.watched.insert(key, value);
        }
    }

    fn fold(&mut self, report: Report, run: Option<&str>) {
        let host = report.device.host.clone();
        let outcome = self.incidents.take(report, &rule);
        if matches!(outcome, Outcome::Known | Outcome::Nothing) {
            return;
        }
        self.changed.insert(host);
        if let (Outcome::Opened(id) | Outcome::Changed(id), Some(run)) = (outcome, run)
            && !run.is_empty()
        {
            let runs = self.runs.entry(id).or_default();
            if runs.len() < 64 {
                runs.insert(run.to_owned());
            }
        }
    }

    /// Incidents of cards of which no run is known yet: id, host, the card's id, since when, whether a process
    /// had the card. Who had it may become known a little later than the fault; after a restart all are
    /// looked at once more.
    pub(super) fn without_run(&mut self, now_ns: i64) -> Vec<(String, String, String, i64, bool)> {
        let mut all = Vec::new();
        for incident in self.incidents.all() {
            let id = &incident.id;
            let Some(uuid) = incident.device.uuid.clone() else { continue };
            if self.settled_owners.contains(id) || self.runs.get(id).is_some_and(|runs| !runs.is_empty()) {
                continue;
            }
            if now_ns.saturating_sub(incident.first_ns) > OWNER_LATE_NS {
                self.settled_owners.insert(id.clone());
            }
            let host = incident.device.host.clone();
            all.push((id.clone(), host, uuid, incident.first_ns, !incident.processes.is_empty()));
        }
        all
    }

    /// Notes who had the card of an incident.
    pub(super) fn adopt(&mut self, id: &str, names: &[(String, String)]) {
        let Some(incident) = self.incidents.all().iter().find(|incident| incident.id == id) else { return };
        for (name, value) in names {
            let is_job = name == "job_id";
            if is_job && incident.jobs.contains(value) {
                continue;
            }
            let known = if is_job { &mut self.jobs } else { &mut self.runs };
            if known.entry(id.to_owned()).or_default().insert(value.clone()) {
                self.changed.insert(incident.device.host.clone());
            }
        }
    }

    /// Whether a verdict differs from the one before; other reports always do. A driver that was asking for
    /// nothing all along says nothing by saying it again.
    fn is_news(&mut self, report: &Report) -> bool {
        let What::Verdict { action, .. } = report.what else { return true };
        let name = report.device.uuid.as_ref().or(report.device.place.as_ref());
        let Some(name) = name.cloned() else { return true };
        let key = (report.device.host.clone(), name);
        if self.verdicts.len() >= CARDS_MAX && !self.verdicts.contains_key(&key) {
            return true;
        }
        self.verdicts.insert(key, action).unwrap_or(Action::None) != action
    }

    fn keep_line(&mut self, report: &Report) {
        if self.userspace.len() >= USERSPACE_MAX {
            self.userspace.pop_front();
        }
        let (device, at_ns, text) = (report.device.clone(), report.at_ns, report.text.clone());
        self.userspace.push_back(Userspace { device, at_ns, text });
    }

    fn keep_index(&mut self, event: &Event, device: &Device) {
        let Some(gpu) = event.label("gpu") else { return };
        for name in [&device.place, &device.uuid].into_iter().flatten() {
            if self.indices.len() < CARDS_MAX {
                self.indices.insert((device.host.clone(), name.clone()), gpu.to_owned());
            }
        }
    }

    /// The driver's index of the card of an incident; empty where nobody told it.
    pub(super) fn index_of(&self, incident: &Incident) -> String {
        let device = &incident.device;
        let known = |name: &Option<String>| self.indices.get(&(device.host.clone(), name.clone()?)).cloned();
        known(&device.uuid).or_else(|| known(&device.place)).unwrap_or_default()
    }

    /// Clears what is over by now, and writes down what changed.
    pub(super) fn settle(&mut self, now_ns: i64) {
        self.incidents.settle(now_ns);
        let mut telling = Vec::new();
        for incident in self.incidents.all() {
            let told = self.told.get(&incident.id);
            let is = Told {
                id: told.map_or_else(|| incident.id.clone(), |told| told.id.clone()),
                action: incident.verdict.action,
                cleared: incident.cleared.is_some(),
            };
            if told == Some(&is) || (told.is_none() && is.action == Action::None) {
                continue;
            }
            let events = self.words_of(incident, told, &is);
            telling.push((incident.id.clone(), incident.device.host.clone(), events, is));
        }
        for (id, host, events, is) in telling {
            self.changed.insert(host);
            if self.waiting.len() + events.len() <= WAITING_MAX {
                self.waiting.extend(events);
            }
            self.told.insert(id, is);
        }
        let kept = [self.told.len(), self.runs.len(), self.jobs.len(), self.settled_owners.len()];
        if kept.into_iter().any(|kept| kept > self.incidents.all().len()) {
            self.forget_gone();
        }
    }

    /// Forgets what was told of incidents that are forgotten.
    fn forget_gone(&mut self) {
        let all: BTreeSet<&str> = self.incidents.all().iter().map(|incident| incident.id.as_str()).collect();
        self.told.retain(|id, _| all.contains(id.as_str()));
        self.runs.retain(|id, _| all.contains(id.as_str()));
        self.jobs.retain(|id, _| all.contains(id.as_str()));
        self.settled_owners.retain(|id| all.contains(id.as_str()));
    }

    /// The events that tell how an incident became what it is.
    fn words_of(&self, incident: &Incident, was: Option<&Told>, is: &Told) -> Vec<Event> {
        let mut events = Vec::new();
        let changed_ns = incident.last_ns;
        match was {
            None => events.push(self.event(incident, is, "opened", incident.first_ns)),
            Some(was) if was.action != is.action => {
                events.push(self.event(incident, is, "changed", changed_ns));
            }
            Some(_) => {}
        }
        if let Some(cleared) = incident.cleared.as_ref().filter(|_| was.is_none_or(|was| !was.cleared)) {
            events.push(self.event(incident, is, "cleared", cleared.at_ns));
        }
        events
    }

    fn event(&self, incident: &Incident, told: &Told, what: &str, time_ns: i64) -> Event {
        let action = told.action.name();
        let headline = words::headline(incident);
        let text = match what {
            "cleared" => {
                let by = incident.cleared.as_ref().map_or("", |cleared| cleared.by.as_str());
                format!("Over: {headline} ({by})")
            }
            "changed" => format!("{headline}; now `{action}`"),
            _ => format!("{headline}; `{action}`"),
        };
        let device = &incident.device;
        let mut labels = vec![("host".to_owned(), device.host.clone())];
        let known = [("uuid", device.uuid.clone()), ("pci_bus_id", device.place.clone())];
        labels.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let gpu = Some(self.index_of(incident)).filter(|gpu| !gpu.is_empty());
        labels.extend(gpu.map(|gpu| ("gpu".to_owned(), gpu)));
        let run = self.runs.get(&incident.id).and_then(|runs| runs.first());
        labels.extend(run.map(|run| ("run_id".to_owned(), run.clone())));
        labels.push(("source".to_owned(), "server".to_owned()));
        let codes: Vec<String> = incident.codes.keys().map(ToString::to_string).collect();
        let body = json!({
            "what": what, "id": told.id, "action": action, "codes": codes,
            "provenance": incident.verdict.provenance.name(),
            "first_ns": incident.first_ns.to_string(), "last_ns": incident.last_ns.to_string(),
        });
        Event {
            time_ns,
            kind: INCIDENT_EVENT.to_owned(),
            severity: if what == "cleared" { Severity::Info } else { words::severity(told.action) },
            key: format!("incident:{}:{what}:{action}:{time_ns}", told.id),
            labels,
            text,
            body: body.to_string(),
        }
    }

    /// The events that wait for the store.
    pub(super) fn take_waiting(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.waiting)
    }

    /// Gives back events that the store did not take.
    pub(super) fn give_back(&mut self, mut events: Vec<Event>) {
        events.truncate(WAITING_MAX);
        events.append(&mut self.waiting);
        self.waiting = events;
    }

    /// The series of open incidents now, or those of them that are new, and those that ended.
    pub(super) fn take_series(&mut self, is_new: bool) -> (Vec<SeriesKey>, Vec<SeriesKey>) {
        let open = self.incidents.open().filter(|incident| incident.is_actionable());
        let series: BTreeSet<SeriesKey> = open
            .map(|incident| {
                let id = self.id_of(incident).to_owned();
                let (host, gpu) = (incident.device.host.clone(), self.index_of(incident));
                [id, host, gpu, incident.verdict.action.name().to_owned()]
            })
            .collect();
        let ended = self.series.difference(&series).cloned().collect();
        let said = series.iter().filter(|key| !is_new || !self.series.contains(*key)).cloned().collect();
        self.series = series;
        (said, ended)
    }

    /// The hosts of which something changed.
    pub(super) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Every incident that is remembered.
    pub(super) fn all(&self) -> &[Incident] {
        self.incidents.all()
    }

    /// How many were forgotten while they were open.
    pub(super) fn dropped(&self) -> u64 {
        self.incidents.dropped()
    }

    /// The name of an incident to the outside.
    pub(super) fn id_of<'k>(&'k self, incident: &'k Incident) -> &'k str {
        self.told.get(&incident.id).map_or(incident.id.as_str(), |told| told.id.as_str())
    }

    /// Runs that had the device.
    pub(super) fn runs_of(&self, incident: &Incident) -> Vec<String> {
        self.runs.get(&incident.id).into_iter().flatten().cloned().collect()
    }

    /// Jobs that had the device, as far as they are no runs.
    pub(super) fn jobs_of(&self, incident: &Incident) -> BTreeSet<String> {
        let told = incident.jobs.iter().filter(|job| RunId::parse(job).is_none());
        told.chain(self.jobs.get(&incident.id).into_iter().flatten()).cloned().collect()
    }

    /// Lines of processes that came while an incident went on.
    pub(super) fn userspace_of<'k>(&'k self, incident: &'k Incident) -> impl Iterator<Item = &'k Userspace> {
        let together = insight::incidents::TOGETHER_NS;
        let from = incident.first_ns.saturating_sub(together);
        let to = incident.last_ns.saturating_add(together);
        self.userspace.iter().filter(move |line| {
            let (a, b) = (&line.device, &incident.device);
            let is_same = (a.place.is_some() && a.place == b.place) || (a.uuid.is_some() && a.uuid == b.uuid);
            a.host == b.host && is_same && (from..=to).contains(&line.at_ns)
        })
    }

    /// Folds stored events, oldest first, and remembers what was told of them.
    pub(super) fn replay(&mut self, events: &[Event], now_ns: i64) {
        let mut told: BTreeMap<String, Named> = BTreeMap::new();
        for event in events {
            if let Some(one) = Named::of(event) {
                let first_ns = told.get(&one.told.id).map_or(one.first_ns, |known| known.first_ns);
                told.insert(one.told.id.clone(), Named { first_ns, ..one });
            }
            if let Some((key, value)) = told_by(event) {
                self.watch(key, value);
            }
            self.take(event);
        }
        self.incidents.settle(now_ns);
        for incident in self.incidents.all() {
            let fits = |named: &&Named| named.is_of(incident);
            let found =
                told.values().filter(fits).min_by_key(|named| named.first_ns.abs_diff(incident.first_ns));
            if let Some(id) = found.map(|named| named.told.id.clone())
                && let Some(named) = told.remove(&id)
            {
                self.told.insert(incident.id.clone(), named.told);
            }
        }
        self.changed.clear();
    }
}

/// An incident as an event told it.
struct Named {
    told: Told,
    device: Device,
    first_ns: i64,
    last_ns: i64,
}

impl Named {
    fn of(event: &Event) -> Option<Self> {
        if event.kind != INCIDENT_EVENT {
            return None;
        }
        let body = bridge::body(event);
        let text = |name: &str| body.get(name)?.as_str();
        let what = text("what")?;
        if what == "closed" {
            return None;
        }
        let told = Told {
            id: text("id")?.to_owned(),
            action: Action::named(text("action")?)?,
            cleared: what == "cleared",
        };
        let (first_ns, last_ns) = (text("first_ns")?.parse().ok()?, text("last_ns")?.parse().ok()?);
        Some(Self { told, device: bridge::device(event), first_ns, last_ns })
    }

    fn is_of(&self, incident: &Incident) -> bool {
        let (a, b) = (&self.device, &incident.device);
        let is_whole = |device: &Device| device.place.is_none() && device.uuid.is_none();
        let is_same = (is_whole(a) && is_whole(b))
            || (a.place.is_some() && a.place == b.place)
            || (a.uuid.is_some() && a.uuid == b.uuid);
        a.host == b.host && is_same && self.first_ns <= incident.last_ns && self.last_ns >= incident.first_ns
    }
}
