//! From reports to incidents.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::verdict::judge;
use super::{
    Action, COMES_BACK_NS, Cleared, Code, Decided, Device, Evidence, IMPLIED_NS, Incident, QUIET_NS, Report,
    Rules, Seen, TOGETHER_NS, Verdict, What,
};

/// Keys that are remembered.
const KEYS_MAX: usize = 65_536;
/// Cards whose two names are remembered.
const CARDS_MAX: usize = 200_000;
/// Incidents that are remembered, open or not.
const INCIDENTS_MAX: usize = 10_000;
/// The same of one host, so that one that says much takes no other's.
const INCIDENTS_PER_HOST_MAX: usize = 512;
/// Lines kept of each fault, and of all others of an incident together.
const LINES_PER_CODE_MAX: usize = 4;
/// Lines kept of an incident.
const LINES_MAX: usize = 64;
/// Bytes kept of a line.
const LINE_BYTES_MAX: usize = 2048;
/// Faults, processes, jobs and slices kept of an incident, each.
const MEMBERS_MAX: usize = 64;

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It opened an incident.
    Opened(String),
    /// It changed one.
    Changed(String),
    /// It cleared so many.
    Cleared(usize),
    /// It was there before.
    Known,
    /// A process wrote it: it is shown, and changes nothing.
    Userspace,
    /// It concerns no incident.
    Nothing,
}

/// Incidents of a fleet.
#[derive(Debug, Default)]
pub struct Incidents {
    /// By serial.
    all: Vec<Incident>,
    /// Serials of a host's incidents, in order.
    hosts: HashMap<String, Vec<u64>>,
    serial: u64,
    keys: BTreeSet<String>,
    keys_by_age: VecDeque<String>,
    /// Ids of cards by host and place.
    cards: BTreeMap<(String, String), String>,
    /// Places of cards by host and id.
    places: BTreeMap<(String, String), String>,
    dropped: u64,
}

impl Incidents {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every incident that is remembered, in the order in which they were opened.
    pub fn all(&self) -> &[Incident] {
        &self.all
    }

    /// Those that nothing has cleared.
    pub fn open(&self) -> impl Iterator<Item = &Incident> {
        self.all.iter().filter(|incident| incident.cleared.is_none())
    }

    /// How many were forgotten while they were open, since there were too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes a report.
    pub fn take(&mut self, mut report: Report, rules: &Rules<'_>) -> Outcome {
        if report.is_userspace {
            return Outcome::Userspace;
        }
        if let Some(key) = &report.key
            && !self.is_new(key.clone())
        {
            return Outcome::Known;
        }
        self.join_names(&mut report.device);
        match report.what {
            What::Card => Outcome::Nothing,
            What::Recovered(up_to) => self.recovered(&report, up_to),
            _ => self.fold(report, rules),
        }
    }

    /// Clears what is over by now: incidents that ask for no more than a restart, after [`QUIET_NS`]; and
    /// forgets those that can no longer come back.
    pub fn settle(&mut self, now_ns: i64) -> usize {
        let mut cleared = 0;
        for incident in self.all.iter_mut().filter(|incident| incident.cleared.is_none()) {
            let is_quiet = now_ns.saturating_sub(incident.last_ns) >= QUIET_NS;
            if is_quiet && incident.verdict.action <= Action::RestartApp && !incident.remap_pending {
                incident.cleared = Some(Cleared {
                    at_ns: incident.last_ns.saturating_add(QUIET_NS),
                    by: "quiet since".to_owned(),
                });
                cleared += 1;
            }
        }
        let oldest = now_ns.saturating_sub(COMES_BACK_NS);
        let before = self.all.len();
        self.all.retain(|incident| incident.cleared.as_ref().is_none_or(|cleared| cleared.at_ns >= oldest));
        if self.all.len() < before {
            self.list_hosts();
        }
        cleared
    }

    fn list_hosts(&mut self) {
        self.hosts.clear();
        for incident in &self.all {
            self.hosts.entry(incident.device.host.clone()).or_default().push(incident.serial);
        }
    }

    /// Where the incidents of a host are, in order.
    fn of_host(&self, host: &str) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let serials = self.hosts.get(host).map(Vec::as_slice).unwrap_or_default();
        serials.iter().filter_map(|serial| self.at(*serial))
    }

    fn at(&self, serial: u64) -> Option<usize> {
        self.all.binary_search_by_key(&serial, |incident| incident.serial).ok()
    }

    /// Takes an incident out of the list.
    fn remove(&mut self, at: usize) -> Incident {
        let incident = self.all.remove(at);
        if let Some(serials) = self.hosts.get_mut(&incident.device.host) {
            serials.retain(|serial| *serial != incident.serial);
            if serials.is_empty() {
                self.hosts.remove(&incident.device.host);
            }
        }
        incident
    }

    /// Puts an incident where its serial belongs.
    fn insert(&mut self, incident: Incident) {
        let serial = incident.serial;
        let serials = self.hosts.entry(incident.device.host.clone()).or_default();
        serials.insert(serials.partition_point(|other| *other < serial), serial);
        let at = self.all.partition_point(|other| other.serial < serial);
        self.all.insert(at, incident);
    }

    /// Makes room for one more on a host: what is over goes first.
    fn make_room(&mut self, host: &str) {
        let is_over = |at: &usize| self.all[*at].cleared.is_some();
        let goes = if self.of_host(host).count() >= INCIDENTS_PER_HOST_MAX {
            self.of_host(host).find(is_over).or_else(|| self.of_host(host).next())
        } else if self.all.len() >= INCIDENTS_MAX {
            Some((0..self.all.len()).find(is_over).unwrap_or(0))
        } else {
            None
        };
        if let Some(at) = goes {
            let gone = self.remove(at);
            self.dropped += u64::from(gone.cleared.is_none());
        }
    }

    fn is_new(&mut self, key: String) -> bool {
        if !self.keys.insert(key.clone()) {
            return false;
        }
        self.keys_by_age.push_back(key);
        if self.keys_by_age.len() > KEYS_MAX
            && let Some(oldest) = self.keys_by_age.pop_front()
        {
            self.keys.remove(&oldest);
        }
        true
    }

    /// Adds the place or the id that is known beside the other, here and to incidents that lack it.
    fn join_names(&mut self, device: &mut Device) {
        match (&device.place, &device.uuid) {
            (Some(place), Some(uuid)) => {
                let at = (device.host.clone(), place.clone());
                if self.cards.len() >= CARDS_MAX && !self.cards.contains_key(&at) {
                    return;
                }
                self.places.insert((device.host.clone(), uuid.clone()), place.clone());
                if self.cards.insert(at, uuid.clone()).as_ref() != Some(uuid) {
                    self.bound_places();
                    self.name_incidents(device);
                }
            }
            (Some(place), None) => {
                device.uuid = self.cards.get(&(device.host.clone(), place.clone())).cloned();
            }
            (None, Some(uuid)) => {
                device.place = self.places.get(&(device.host.clone(), uuid.clone())).cloned();
            }
            (None, None) => {}
        }
    }

    /// A place has many cards in its time, each with an id of its own.
    fn bound_places(&mut self) {
        if self.places.len() > 2 * CARDS_MAX {
            self.places = self
                .cards
                .iter()
                .map(|((host, place), id)| ((host.clone(), id.clone()), place.clone()))
                .collect();
        }
    }

    /// A device has two names now: open incidents under either become one.
    fn name_incidents(&mut self, device: &Device) {
        let is_of = |incident: &Incident| {
            let lacks = incident.device.place.is_none() || incident.device.uuid.is_none();
            incident.cleared.is_none() && lacks && incident.device.is_same(device)
        };
        let serials: Vec<u64> = self
            .of_host(&device.host)
            .filter(|at| is_of(&self.all[*at]))
            .map(|at| self.all[at].serial)
            .collect();
        let mut named: Vec<Incident> = Vec::new();
        for serial in serials {
            let Some(at) = self.at(serial) else { continue };
            let mut incident = self.remove(at);
            incident.device = device.clone();
            match named.iter_mut().find(|one| is_near(one, incident.first_ns)) {
                Some(one) => absorb(one, incident),
                None => named.push(incident),
            }
        }
        for incident in named {
            self.insert(incident);
        }
    }

    fn recovered(&mut self, report: &Report, up_to: Action) -> Outcome {
        let mut cleared = 0;
        let of_host: Vec<usize> = self.of_host(&report.device.host).collect();
        for at in of_host {
            let incident = &mut self.all[at];
            let is_meant = if report.device.is_whole_host() {
                incident.device.host == report.device.host
            } else {
                incident.device.is_same(&report.device)
            };
            if incident.cleared.is_some() || !is_meant || incident.first_ns > report.at_ns {
                continue;
            }
            incident.remap_pending &= up_to < Action::ResetGpu;
            if incident.verdict.action <= up_to {
                incident.cleared = Some(Cleared { at_ns: report.at_ns, by: cut(&report.text) });
                cleared += 1;
            }
        }
        Outcome::Cleared(cleared)
    }

    fn fold(&mut self, report: Report, rules: &Rules<'_>) -> Outcome {
        let found = self.belongs_to(&report);
        let Some(at) = found else {
            // Only a fault, or a driver that asks for something, opens an incident.
            let opens = match &report.what {
                What::Fault { .. } | What::RemapPending(true) => true,
                What::Verdict { action, .. } => *action > Action::None,
                _ => false,
            };
            return if opens { self.opened(report, rules) } else { Outcome::Nothing };
        };
        let incident = &mut self.all[at];
        add(incident, report, rules);
        let id = incident.id.clone();
        self.judged(at);
        Outcome::Changed(id)
    }

    /// The incident that a report belongs to: one near in time, else an open one that has the same fault or
    /// that what is reported is about.
    fn belongs_to(&self, report: &Report) -> Option<usize> {
        let same = || {
            let of_host = self.of_host(&report.device.host).rev().map(|at| (at, &self.all[at]));
            of_host.filter(|(_, incident)| incident.device.is_same(&report.device))
        };
        // Behind its end an incident takes nothing in any more.
        let is_before_end = |incident: &Incident| {
            incident.cleared.as_ref().is_none_or(|cleared| report.at_ns <= cleared.at_ns)
        };
        let is_about = |incident: &Incident| match &report.what {
            What::Fault { code, .. } => incident.codes.contains_key(code),
            What::Verdict { .. } | What::RemapPending(_) => true,
            What::Counter { .. } | What::Card | What::Recovered(_) => false,
        };
        let near = same().find(|(_, incident)| is_before_end(incident) && is_near(incident, report.at_ns));
        let about = || same().find(|(_, incident)| incident.cleared.is_none() && is_about(incident));
        near.or_else(about).map(|(at, _)| at)
    }

    fn opened(&mut self, report: Report, rules: &Rules<'_>) -> Outcome {
        let device = report.device.clone();
        let name = device.place.as_deref().or(device.uuid.as_deref()).unwrap_or("host");
        let id = format!("{}/{name}/{}", device.host, report.at_ns);
        self.make_room(&device.host);
        self.serial += 1;
        let mut incident = Incident {
            id: id.clone(),
            first_ns: report.at_ns,
            last_ns: report.at_ns,
            device,
            codes: BTreeMap::new(),
            processes: BTreeSet::new(),
            jobs: BTreeSet::new(),
            slices: BTreeSet::new(),
            evidence: Vec::new(),
            evidence_left_out: 0,
            remap_pending: false,
            came_back: 0,
            verdict: Verdict::NOTHING,
            cleared: None,
            said: BTreeMap::new(),
            serial: self.serial,
        };
        add(&mut incident, report, rules);
        self.insert(incident);
        self.judged(self.all.len() - 1);
        Outcome::Opened(id)
    }

    /// Judges an incident again, with what came before it on its device.
    fn judged(&mut self, at: usize) {
        let incident = &self.all[at];
        let since = incident.first_ns.saturating_sub(COMES_BACK_NS);
        let of_host = self.of_host(&incident.device.host).map(|at| &self.all[at]);
        let before = of_host.filter(|other| {
            other.id != incident.id
                && other.device.is_same(&incident.device)
                && (since..=incident.first_ns).contains(&other.first_ns)
                && other.processes.is_disjoint(&incident.processes)
                && other.leading().is_some_and(|code| incident.codes.contains_key(code))
        });
        let came_back = before.count();
        let incident = &mut self.all[at];
        incident.came_back = came_back;
        incident.verdict = judge(incident);
    }
}

fn is_near(incident: &Incident, at_ns: i64) -> bool {
    let from = incident.first_ns.saturating_sub(TOGETHER_NS);
    (from..=incident.last_ns.saturating_add(TOGETHER_NS)).contains(&at_ns)
}

fn add(incident: &mut Incident, report: Report, rules: &Rules<'_>) {
    let code = match &report.what {
        What::Fault { code, decided, is_implied } => {
            fault(incident, (code, *decided, *is_implied), &report, rules);
            Some(code.clone())
        }
        What::Verdict { action, provenance } => {
            said(incident, &report, *action);
            incident.said.insert(report.at_ns, (*action, *provenance));
            while incident.said.len() > MEMBERS_MAX {
                incident.said.pop_first();
            }
            None
        }
        What::RemapPending(is_pending) => {
            incident.remap_pending = *is_pending;
            None
        }
        What::Counter { .. } | What::Card | What::Recovered(_) => None,
    };
    incident.first_ns = incident.first_ns.min(report.at_ns);
    incident.last_ns = incident.last_ns.max(report.at_ns);
    incident.device.place = incident.device.place.take().or(report.device.place);
    incident.device.uuid = incident.device.uuid.take().or(report.device.uuid);
    insert(&mut incident.processes, report.process);
    insert(&mut incident.jobs, report.job);
    insert(&mut incident.slices, report.slice);
    let line = Evidence { at_ns: report.at_ns, code, text: cut(&report.text), key: report.key };
    keep(incident, line);
}

/// A driver that asked for something and now asks for nothing says that it is over.
fn said(incident: &mut Incident, report: &Report, action: Action) {
    let asked =
        incident.said.range(..report.at_ns).next_back().is_some_and(|(_, (asked, _))| *asked > Action::None);
    if action == Action::None && asked && incident.verdict.action <= Action::RebootNode {
        incident.remap_pending = false;
        incident.cleared =
            Some(Cleared { at_ns: report.at_ns, by: "the driver asks for nothing more".to_owned() });
    }
}

fn fault(
    incident: &mut Incident,
    (code, decided, is_implied): (&Code, Option<Decided>, bool),
    report: &Report,
    rules: &Rules<'_>,
) {
    let at_ns = report.at_ns;
    if !incident.codes.contains_key(code) && incident.codes.len() >= MEMBERS_MAX {
        return;
    }
    let seen = incident.codes.entry(code.clone()).or_insert_with(|| Seen {
        count: 0,
        first_ns: at_ns,
        last_ns: at_ns,
        rule: rules(code),
        decided: None,
        implied_ns: None,
    });
    let is_close = |other: i64| at_ns.abs_diff(other) <= IMPLIED_NS as u64;
    if is_implied {
        if seen.count == 0 || !(is_close(seen.first_ns) || is_close(seen.last_ns)) {
            seen.count = seen.count.saturating_add(report.count);
            seen.implied_ns = Some(at_ns);
        }
    } else if !seen.implied_ns.take().is_some_and(is_close) {
        seen.count = seen.count.saturating_add(report.count);
    }
    seen.first_ns = seen.first_ns.min(at_ns);
    seen.last_ns = seen.last_ns.max(at_ns);
    seen.decided = seen.decided.max(decided);
    incident.remap_pending |= seen.rule.as_ref().is_some_and(|rule| rule.remap_pending);
}

fn insert<T: Ord>(set: &mut BTreeSet<T>, member: Option<T>) {
    if set.len() < MEMBERS_MAX {
        set.extend(member);
    }
}

fn keep(incident: &mut Incident, line: Evidence) {
    let of_code = incident.evidence.iter().filter(|kept| kept.code == line.code).count();
    if of_code >= LINES_PER_CODE_MAX || incident.evidence.len() >= LINES_MAX {
        incident.evidence_left_out += 1;
        return;
    }
    let at = incident.evidence.partition_point(|kept| (kept.at_ns, &kept.text) <= (line.at_ns, &line.text));
    incident.evidence.insert(at, line);
}

fn cut(text: &str) -> String {
    let end = (0..=text.len().min(LINE_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

/// Two incidents of one device under two names become one.
fn absorb(one: &mut Incident, other: Incident) {
    one.first_ns = one.first_ns.min(other.first_ns);
    one.last_ns = one.last_ns.max(other.last_ns);
    for (code, seen) in other.codes {
        let Some(mine) = one.codes.get_mut(&code) else {
            one.codes.insert(code, seen);
            continue;
        };
        mine.count = mine.count.saturating_add(seen.count);
        mine.first_ns = mine.first_ns.min(seen.first_ns);
        mine.last_ns = mine.last_ns.max(seen.last_ns);
        mine.decided = mine.decided.max(seen.decided);
    }
    one.processes.extend(other.processes);
    one.jobs.extend(other.jobs);
    one.slices.extend(other.slices);
    one.remap_pending |= other.remap_pending;
    one.said.extend(other.said);
    one.evidence_left_out += other.evidence_left_out;
    for line in other.evidence {
        keep(one, line);
    }
    one.verdict = judge(one);
}
