//! Alerts in groups: when a group is told to its receiver, and of what.
//!
//! Pure: time, silences and what became of a delivery come in as arguments. What a receiver was told is
//! remembered until an alert is over, and over restarts, so that nothing is told twice for nothing and an end
//! is told to whoever knows of the start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Severity;
use serde::{Deserialize, Serialize};

use super::matchers::AlertLabels;
use super::receivers::{Receivers, Route, Timing};
use super::waiting::Told;
use crate::ruling::severity;

/// A group: its receiver's name, and the labels that all of its alerts share.
pub(super) type Key = (String, AlertLabels);

/// An alert of a group.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    #[serde(serialize_with = "written", deserialize_with = "read")]
    told: Arc<Told>,
    /// For how long the last word of it holds.
    holds_ms: i64,
    /// The start that the receiver was told of, if it was.
    known_start_ms: Option<i64>,
    /// The start that the receiver is being told of.
    #[serde(skip)]
    under_way_ms: Option<i64>,
    /// Whether it was said in the log that it is silenced.
    #[serde(default)]
    muted: bool,
}

fn written<S: serde::Serializer>(told: &Arc<Told>, to: S) -> Result<S::Ok, S::Error> {
    told.as_ref().serialize(to)
}

fn read<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Arc<Told>, D::Error> {
    Told::deserialize(from).map(Arc::new)
}

impl Entry {
    fn fires(&self, now_ms: i64) -> bool {
        !self.told.is_resolved && now_ms < self.told.ends_at_ms
    }

    /// Whether the receiver knows this start of it.
    fn is_known(&self) -> bool {
        self.known_start_ms == Some(self.told.starts_at_ms)
    }

    /// Whether the receiver knows of it, or will if what is under way arrives.
    fn may_be_known(&self) -> bool {
        self.known_start_ms.is_some() || self.under_way_ms.is_some()
    }
}

#[derive(Debug)]
struct Group {
    entries: BTreeMap<u64, Entry>,
    timing: Timing,
    due_ms: i64,
    /// When it was told last, as a whole.
    sent_ms: Option<i64>,
    tries: u32,
}

/// What a receiver is to be told of a group.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) key: Key,
    /// The alerts, those that are over behind those that fire.
    pub(super) firing: Vec<Arc<Told>>,
    pub(super) resolved: Vec<Arc<Told>>,
    /// How often it was tried before.
    pub(super) tries: u32,
}

/// What is to be done now for a receiver.
#[derive(Debug)]
pub(super) enum Step {
    /// Tell it.
    Send(Parcel),
    /// Nothing is told, since these are silenced; each with the reason, said once.
    Muted(Key, Vec<(Arc<Told>, String)>),
    /// Nothing until then, milliseconds since the epoch.
    Wait(i64),
}

/// Why an alert is not to be told, if it is not.
pub(super) type Mute<'m> = dyn Fn(&Told) -> Option<String> + 'm;

/// A group as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    receiver: String,
    labels: AlertLabels,
    sent_ms: Option<i64>,
    entries: Vec<Entry>,
}

/// See the module.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "groups are what it has")]
pub(super) struct Groups {
    groups: BTreeMap<Key, Group>,
    alerts: usize,
    /// Alerts that did not fit.
    pub(super) dropped: u64,
}

impl Groups {
    /// Notes of every alert that its receiver was told of it.
    pub(super) fn note_known(&self, log: &super::log::Log) {
        for ((receiver, _), group) in &self.groups {
            let known = group.entries.iter().filter(|(_, entry)| entry.is_known());
            let time = group.sent_ms.unwrap_or_default();
            known.for_each(|(fingerprint, _)| log.known(*fingerprint, time, receiver));
        }
    }

    /// How many alerts there are, once for each receiver.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.alerts
    }

    /// Alerts of a receiver that it is yet to be told of.
    pub(super) fn untold(&self, receiver: &str) -> usize {
        let of = self.groups.iter().filter(|((name, _), _)| name == receiver);
        of.flat_map(|(_, group)| group.entries.values())
            .filter(|entry| !entry.is_known() || entry.told.is_resolved)
            .count()
    }

    /// Takes in the latest word of an alert.
    pub(super) fn take(&mut self, told: &Arc<Told>, routes: &[&Route], now_ms: i64, most: usize) {
        for route in routes {
            let key = (route.receiver.clone(), route.group_of(&told.labels));
            if told.is_resolved && !self.knows(&key, told.fingerprint) {
                // Nobody is told of the end of what they never heard of.
                self.forget(&key, told.fingerprint);
                continue;
            }
            let is_new = !self.groups.get(&key).is_some_and(|g| g.entries.contains_key(&told.fingerprint));
            if is_new && self.alerts >= most {
                self.dropped += 1;
                if !self.make_room(&key, urgency(told)) {
                    continue;
                }
            }
            let holds_ms = told.ends_at_ms.saturating_sub(now_ms).max(0);
            let group = self.groups.entry(key).or_insert_with(|| Group::new(route.timing, told, now_ms));
            group.timing = route.timing;
            if let Some(entry) = group.entries.get_mut(&told.fingerprint) {
                (entry.told, entry.holds_ms) = (Arc::clone(told), holds_ms);
            } else {
                let told = Arc::clone(told);
                let entry = Entry { holds_ms, known_start_ms: None, under_way_ms: None, muted: false, told };
                group.entries.insert(entry.told.fingerprint, entry);
                self.alerts += 1;
            }
        }
    }

    /// Leaves an alert out for one of the group `key`: one of a larger group, or for an urgent one any of a group as
    /// large that is less so. A storm takes no room from what begins beside it. `false` where there is none.
    fn make_room(&mut self, key: &Key, urgency: Severity) -> bool {
        let own = self.groups.get(key).map_or(0, |group| group.entries.len());
        let largest = self.groups.iter().max_by_key(|(_, group)| group.entries.len());
        let crowd = largest.filter(|(_, group)| group.entries.len() > own + 1).map(|(key, _)| key.clone());
        let may_lose = |(other, group): &(&Key, &Group)| match &crowd {
            Some(crowd) => *other == crowd,
            None => group.entries.len() >= own,
        };
        let of_crowd = self.groups.iter().filter(may_lose);
        let all = of_crowd.flat_map(|(key, group)| group.entries.iter().map(move |entry| (key, entry)));
        let is_less = |entry: &Entry| crowd.is_some() || urgency_of(entry) < urgency;
        // The end of one that its receiver does not know need not be told either.
        let weight = |entry: &Entry| (urgency_of(entry), entry.may_be_known());
        let least = all.filter(|(_, (_, entry))| is_less(entry)).min_by_key(|(_, (_, entry))| weight(entry));
        let Some((crowd, fingerprint)) = least.map(|(key, (fingerprint, _))| (key.clone(), *fingerprint))
        else {
            return false;
        };
        self.forget(&crowd, fingerprint);
        true
    }

    fn knows(&self, key: &Key, fingerprint: u64) -> bool {
        let entry = self.groups.get(key).and_then(|group| group.entries.get(&fingerprint));
        entry.is_some_and(Entry::may_be_known)
    }

    fn forget(&mut self, key: &Key, fingerprint: u64) {
        let Some(group) = self.groups.get_mut(key) else { return };
        self.alerts -= usize::from(group.entries.remove(&fingerprint).is_some());
        if group.entries.is_empty() {
            self.groups.remove(key);
        }
    }

    /// All alerts that fire, for what they make superfluous.
    pub(super) fn firing(&self, now_ms: i64) -> impl Iterator<Item = &Told> {
        let entries = self.groups.values().flat_map(|group| group.entries.values());
        entries.filter(move |entry| entry.fires(now_ms)).map(|entry| &*entry.told)
    }

    /// What is to be done for `receiver` at `now_ms`. A parcel is answered with [`Groups::sent`],
    /// [`Groups::refused`] or [`Groups::failed`].
    pub(super) fn next(&mut self, receiver: &str, now_ms: i64, mute: &Mute<'_>, with_ends: bool) -> Step {
        loop {
            let mut own: Vec<(&Key, &mut Group)> =
                self.groups.iter_mut().filter(|((name, _), _)| name == receiver).collect();
            for (_, group) in &mut own {
                group.heed_clock(now_ms);
            }
            let first = own.into_iter().min_by_key(|(_, group)| group.due_ms);
            let Some((key, group)) = first else { return Step::Wait(i64::MAX) };
            if group.due_ms > now_ms {
                return Step::Wait(group.due_ms);
            }
            let key = key.clone();
            let muted = group.mute(now_ms, mute);
            if !muted.is_empty() {
                return Step::Muted(key, muted);
            }
            if let Some(parcel) = group.parcel(&key, now_ms, mute, with_ends) {
                for told in &parcel.firing {
                    if let Some(entry) = group.entries.get_mut(&told.fingerprint) {
                        entry.under_way_ms = Some(told.starts_at_ms);
                    }
                }
                return Step::Send(parcel);
            }
            group.due_ms = now_ms.saturating_add(group.timing.interval_ms);
            self.sweep(&key, now_ms, with_ends);
        }
    }

    /// Forgets what is over and told, or need not be told.
    fn sweep(&mut self, key: &Key, now_ms: i64, with_ends: bool) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let before = group.entries.len();
        group.entries.retain(|_, entry| entry.fires(now_ms) || (with_ends && entry.may_be_known()));
        self.alerts -= before - group.entries.len();
        if group.entries.is_empty() {
            self.groups.remove(key);
        }
    }

    /// A parcel has arrived.
    pub(super) fn sent(&mut self, parcel: &Parcel, now_ms: i64) {
        let Some(group) = self.groups.get_mut(&parcel.key) else { return };
        for told in &parcel.firing {
            if let Some(entry) = group.entries.get_mut(&told.fingerprint) {
                (entry.known_start_ms, entry.under_way_ms) = (Some(told.starts_at_ms), None);
            }
        }
        for told in &parcel.resolved {
            let Some(entry) = group.entries.get_mut(&told.fingerprint) else { continue };
            entry.known_start_ms = None;
            // It may have begun anew meanwhile.
            if !entry.fires(now_ms) {
                group.entries.remove(&told.fingerprint);
                self.alerts -= 1;
            }
        }
        (group.sent_ms, group.tries) = (Some(now_ms), 0);
        group.due_ms = now_ms.saturating_add(group.timing.interval_ms);
        if group.entries.is_empty() {
            self.groups.remove(&parcel.key);
        }
    }

    /// A parcel was refused: its receiver does not know of it, and is told what is true at the next interval.
    pub(super) fn refused(&mut self, key: &Key, now_ms: i64) {
        if let Some(group) = self.groups.get_mut(key) {
            group.come_back();
            (group.tries, group.due_ms) = (0, now_ms.saturating_add(group.timing.interval_ms));
        }
    }

    /// A parcel has not arrived, and is tried again after `pause_ms` with what is true then.
    pub(super) fn failed(&mut self, key: &Key, now_ms: i64, pause_ms: i64) {
        if let Some(group) = self.groups.get_mut(key) {
            group.come_back();
            group.tries = group.tries.saturating_add(1);
            group.due_ms = now_ms.saturating_add(pause_ms);
        }
    }

    /// Looks at every group at once: silences have changed.
    pub(super) fn look_again(&mut self, now_ms: i64) {
        for group in self.groups.values_mut().filter(|group| group.sent_ms.is_some() || group.has_muted()) {
            group.due_ms = group.due_ms.min(now_ms);
        }
    }

    /// Keeps the groups that alerts belong to by other routes; the rest is told anew by those.
    fn reroute(&mut self, receivers: &Receivers) {
        let groups = std::mem::take(&mut self.groups);
        self.alerts = 0;
        for (key, mut group) in groups {
            group.entries.retain(|_, entry| {
                let routes = receivers.routes_of(&entry.told.labels);
                let is_its =
                    |route: &&&Route| route.receiver == key.0 && route.group_of(&entry.told.labels) == key.1;
                let route = routes.iter().find(is_its);
                if let Some(route) = route {
                    group.timing = route.timing;
                }
                route.is_some()
            });
            self.alerts += group.entries.len();
            if !group.entries.is_empty() {
                self.groups.insert(key, group);
            }
        }
    }

    /// Goes on by other routes: what fires is told to those who are new as well.
    pub(super) fn hand_over(&mut self, receivers: &Receivers, now_ms: i64, most: usize) {
        let firing: BTreeMap<u64, Arc<Told>> = self
            .groups
            .values()
            .flat_map(|group| group.entries.values())
            .filter(|entry| entry.fires(now_ms))
            .map(|entry| (entry.told.fingerprint, Arc::clone(&entry.told)))
            .collect();
        self.reroute(receivers);
        for told in firing.values() {
            self.take(told, &receivers.routes_of(&told.labels), now_ms, most);
        }
    }

    /// What receivers were told and is not over, to be kept.
    pub(super) fn kept(&self) -> Vec<impl Serialize + use<>> {
        let kept = self.groups.iter().filter_map(|((receiver, labels), group)| {
            let known = group.entries.values().filter(|entry| entry.known_start_ms.is_some());
            let entries: Vec<Entry> = known.cloned().collect();
            let (receiver, labels) = (receiver.clone(), labels.clone());
            (!entries.is_empty()).then_some(Kept { receiver, labels, sent_ms: group.sent_ms, entries })
        });
        kept.collect()
    }

    /// Takes up what was kept. What was said of alerts holds as long anew: rules say what is true now.
    pub(super) fn restore(bytes: &[u8], receivers: &Receivers, now_ms: i64) -> Result<Self, String> {
        let kept: Vec<Kept> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let mut groups = Self::default();
        for Kept { receiver, labels, sent_ms, entries } in kept {
            let timing = Timing { wait_ms: 0, interval_ms: 1_000, repeat_ms: i64::MAX };
            let mut group = Group { entries: BTreeMap::new(), timing, due_ms: now_ms, sent_ms, tries: 0 };
            for mut entry in entries {
                if !entry.told.is_resolved {
                    let ends_at_ms = now_ms.saturating_add(entry.holds_ms);
                    entry.told = Arc::new(Told { ends_at_ms, ..Told::clone(&entry.told) });
                }
                group.entries.insert(entry.told.fingerprint, entry);
            }
            groups.groups.insert((receiver, labels), group);
        }
        groups.reroute(receivers);
        Ok(groups)
    }
}

impl Group {
    /// One whose first alert began some time ago has waited already.
    fn new(timing: Timing, first: &Told, now_ms: i64) -> Self {
        let waited_ms = now_ms.saturating_sub(first.starts_at_ms).clamp(0, timing.wait_ms);
        let due_ms = now_ms.saturating_add(timing.wait_ms - waited_ms);
        Self { entries: BTreeMap::new(), timing, due_ms, sent_ms: None, tries: 0 }
    }

    /// A clock that was set back holds nothing up.
    fn heed_clock(&mut self, now_ms: i64) {
        let pause_ms = if self.tries > 0 { super::dispatch::PAUSE_MS_MAX } else { 0 };
        let longest = self.timing.wait_ms.max(self.timing.interval_ms).max(pause_ms);
        self.due_ms = self.due_ms.min(now_ms.saturating_add(longest));
        self.sent_ms = self.sent_ms.map(|sent| sent.min(now_ms));
    }

    /// Nothing of it is under way any more.
    fn come_back(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.under_way_ms = None);
    }

    fn has_muted(&self) -> bool {
        self.entries.values().any(|entry| entry.muted)
    }

    /// Alerts that would be told and are silenced, and of which the log does not say so yet.
    fn mute(&mut self, now_ms: i64, mute: &Mute<'_>) -> Vec<(Arc<Told>, String)> {
        let mut muted = Vec::new();
        for entry in self.entries.values_mut() {
            let why = if entry.fires(now_ms) { mute(&entry.told) } else { None };
            let was = std::mem::replace(&mut entry.muted, why.is_some());
            if let Some(why) = why.filter(|_| !was && !entry.is_known()) {
                muted.push((Arc::clone(&entry.told), why));
            }
        }
        muted
    }

    /// What is to be told, if anything is.
    fn parcel(&self, key: &Key, now_ms: i64, mute: &Mute<'_>, with_ends: bool) -> Option<Parcel> {
        let (mut firing, mut resolved, mut is_news) = (Vec::new(), Vec::new(), false);
        for entry in self.entries.values() {
            if !entry.fires(now_ms) {
                if with_ends && entry.known_start_ms.is_some() {
                    resolved.push(ended(&entry.told, now_ms));
                }
            } else if mute(&entry.told).is_none() {
                is_news |= !entry.is_known();
                firing.push(Arc::clone(&entry.told));
            }
        }
        let again = self.sent_ms.is_none_or(|sent| now_ms - sent >= self.timing.repeat_ms);
        let by_start = |told: &Arc<Told>| (told.starts_at_ms, told.labels.clone());
        firing.sort_by_cached_key(by_start);
        resolved.sort_by_cached_key(by_start);
        let is_due = is_news || !resolved.is_empty() || (again && !firing.is_empty());
        is_due.then(|| Parcel { key: key.clone(), firing, resolved, tries: self.tries })
    }
}

fn urgency(told: &Told) -> Severity {
    severity(told.labels.get("severity").map_or("", String::as_str))
}

fn urgency_of(entry: &Entry) -> Severity {
    urgency(&entry.told)
}

/// One that is over: said so, or nothing was heard of it any more.
fn ended(told: &Arc<Told>, now_ms: i64) -> Arc<Told> {
    if told.is_resolved {
        return Arc::clone(told);
    }
    let ends_at_ms = told.ends_at_ms.min(now_ms);
    Arc::new(Told { is_resolved: true, ends_at_ms, ..Told::clone(told) })
}

/// The labels, or annotations, that all have with the same value.
pub(super) fn common<'t>(
    of: impl IntoIterator<Item = &'t BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut all = of.into_iter();
    let mut common = all.next().cloned().unwrap_or_default();
    for one in all {
        common.retain(|name, value| one.get(name) == Some(value));
    }
    common
}

/// The names of the alerts, in order.
pub(super) fn names<'t>(of: impl IntoIterator<Item = &'t Arc<Told>>) -> Vec<String> {
    let names = of.into_iter().filter_map(|told| told.labels.get("alertname").cloned());
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::receivers::tests::receivers;

    const FILE: &str = "[route]\ngroup_by = [\"run\"]\ngroup_wait = \"10s\"\ngroup_interval = \"1m\"\nrepeat_interval = \"1h\"\n\n[[receivers]]\nname = \"ops\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:1\"\n";

    struct World {
        receivers: Receivers,
        groups: Groups,
        muted: Vec<String>,
    }

    impl World {
        fn new() -> Self {
            Self { receivers: receivers(FILE), groups: Groups::default(), muted: Vec::new() }
        }

        /// A word of the alert `name` at a second: it fires since `start`, or is over.
        fn word(&mut self, name: &str, second: i64, start: i64, is_resolved: bool) {
            let labels: AlertLabels =
                [("alertname", name), ("run", "r")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
            let ends_at_ms = if is_resolved { second * 1_000 } else { second * 1_000 + 240_000 };
            let told = Arc::new(Told::test(labels, (start * 1_000, ends_at_ms), is_resolved));
            let routes = self.receivers.routes_of(&told.labels);
            self.groups.take(&told, &routes, second * 1_000, 100);
        }

        /// Three alerts fire still.
        fn words(&mut self, second: i64) {
            for name in ["a", "b", "c"] {
                self.word(name, second, 100, false);
            }
        }

        /// What is told at a second: names, with `-` in front of those that are over.
        fn told(&mut self, second: i64) -> Option<Vec<String>> {
            match self.step(second) {
                Step::Send(parcel) => {
                    self.groups.sent(&parcel, second * 1_000);
                    Some(shown(&parcel))
                }
                _ => None,
            }
        }

        fn step(&mut self, second: i64) -> Step {
            let muted = self.muted.clone();
            let mute = |told: &Told| muted.contains(&told.labels["alertname"]).then(|| "rollout".to_owned());
            self.groups.next("ops", second * 1_000, &mute, true)
        }

        fn restart(&mut self, second: i64) {
            let bytes = serde_json::to_vec(&self.groups.kept()).unwrap();
            self.groups = Groups::restore(&bytes, &self.receivers, second * 1_000).unwrap();
        }
    }

    fn shown(parcel: &Parcel) -> Vec<String> {
        let names = |told: &Arc<Told>, sign: &str| format!("{sign}{}", told.labels["alertname"]);
        let firing = parcel.firing.iter().map(|told| names(told, ""));
        firing.chain(parcel.resolved.iter().map(|told| names(told, "-"))).collect()
    }

    fn said(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_group_waits_for_more_then_tells_news_at_its_interval_and_repeats_late() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        assert_eq!(world.told(109), None);
        world.word("b", 109, 100, false);
        assert_eq!(world.told(110), Some(said(&["a", "b"])));
        world.word("c", 120, 100, false);
        assert_eq!(world.told(169), None);
        let mut both = world.told(170).unwrap();
        both.sort();
        assert_eq!(both, ["a", "b", "c"]);
        for minute in 3..=61 {
            world.words(minute * 60);
            assert_eq!(world.told(minute * 60 + 50), None, "{minute}");
        }
        world.words(3_720);
        assert_eq!(world.told(3_770).map(|told| told.len()), Some(3));
    }

    #[test]
    fn an_end_is_told_once_and_only_to_who_knows_the_start() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        world.word("short", 101, 101, false);
        world.word("short", 105, 101, true);
        assert_eq!(world.told(110), Some(said(&["a"])));
        world.word("a", 130, 100, true);
        assert_eq!(world.told(169), None);
        assert_eq!(world.told(170), Some(said(&["-a"])));
        // Rules say for a while that it is over.
        world.word("a", 190, 100, true);
        assert_eq!((world.told(300), world.groups.len()), (None, 0));
    }

    #[test]
    fn an_end_that_comes_while_the_start_is_under_way_is_told() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        world.word("b", 100, 100, false);
        let Step::Send(parcel) = world.step(110) else { panic!("it is due") };
        world.word("a", 112, 100, true);
        world.groups.sent(&parcel, 115_000);
        assert_eq!(world.told(174), None);
        assert_eq!(world.told(175), Some(said(&["b", "-a"])));
        // One whose start did not arrive has no end to be told of.
        world.word("c", 200, 200, false);
        let Step::Send(parcel) = world.step(235) else { panic!("it is due") };
        assert_eq!(shown(&parcel), ["b", "c"]);
        world.word("c", 236, 200, true);
        world.groups.failed(&parcel.key, 237_000, 500);
        assert!(matches!(world.step(238), Step::Wait(_)));
        assert_eq!(world.groups.len(), 1);
    }

    #[test]
    fn what_is_refused_is_told_again_at_the_interval() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        let Step::Send(parcel) = world.step(110) else { panic!("it is due") };
        world.groups.refused(&parcel.key, 110_000);
        assert_eq!(world.told(169), None);
        assert_eq!(world.told(170), Some(said(&["a"])));
        world.word("a", 180, 100, true);
        let Step::Send(parcel) = world.step(230) else { panic!("it is due") };
        world.groups.refused(&parcel.key, 230_000);
        assert_eq!(world.told(290), Some(said(&["-a"])));
    }

    #[test]
    fn one_that_is_not_heard_of_any_more_is_over() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        assert_eq!(world.told(110), Some(said(&["a"])));
        assert_eq!(world.told(339), None);
        assert_eq!(world.told(400), Some(said(&["-a"])));
    }

    #[test]
    fn one_that_begins_anew_is_news() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        assert_eq!(world.told(110), Some(said(&["a"])));
        world.word("a", 120, 100, true);
        world.word("a", 140, 140, false);
        assert_eq!(world.told(170), Some(said(&["a"])));
    }

    #[test]
    fn what_was_told_is_known_after_a_restart_and_what_was_not_is_told() {
        let mut world = World::new();
        world.word("told", 100, 100, false);
        assert_eq!(world.told(110), Some(said(&["told"])));
        world.word("untold", 115, 115, false);
        world.restart(2_000);
        assert_eq!(world.told(2_000), None);
        // Rules tell all that fires anew after a start.
        world.word("told", 2_005, 100, false);
        world.word("untold", 2_005, 115, false);
        assert_eq!(world.told(2_061), Some(said(&["told", "untold"])));
        world.restart(3_000);
        world.word("told", 3_001, 100, true);
        world.word("untold", 3_001, 115, false);
        assert_eq!(world.told(3_061), Some(said(&["untold", "-told"])));
    }

    #[test]
    fn nothing_is_told_of_a_silenced_alert_until_the_silence_is_over() {
        let mut world = World::new();
        world.muted = vec!["a".to_owned()];
        world.word("a", 100, 100, false);
        let Step::Muted(_, muted) = world.step(110) else { panic!("it is silenced") };
        assert_eq!((muted.len(), muted[0].1.as_str()), (1, "rollout"));
        assert!(matches!(world.step(110), Step::Wait(170_000)));
        world.word("b", 120, 120, false);
        assert_eq!(world.told(170), Some(said(&["b"])));
        world.muted.clear();
        world.groups.look_again(180_000);
        assert_eq!(world.told(180), Some(said(&["a", "b"])));
        // An end is told also when its alert is silenced meanwhile.
        world.muted = vec!["a".to_owned()];
        world.word("a", 200, 100, true);
        assert_eq!(world.told(240), Some(said(&["b", "-a"])));
    }

    #[test]
    fn what_fails_is_tried_again_with_what_is_true_then() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        let Step::Send(parcel) = world.step(110) else { panic!("it is due") };
        world.groups.failed(&parcel.key, 110_000, 500);
        assert!(matches!(world.step(110), Step::Wait(110_500)));
        world.word("b", 110, 110, false);
        let Step::Send(parcel) = world.step(111) else { panic!("it is due again") };
        assert_eq!((shown(&parcel), parcel.tries), (vec!["a".to_owned(), "b".to_owned()], 1));
    }

    #[test]
    fn other_receivers_are_told_of_what_fires_and_those_that_stay_are_not() {
        let mut world = World::new();
        world.word("a", 100, 100, false);
        assert_eq!(world.told(110), Some(said(&["a"])));
        world.groups.hand_over(&world.receivers, 120_000, 100);
        assert_eq!(world.told(120), None);
        world.receivers = receivers(&FILE.replace("\"ops\"", "\"new\""));
        world.groups.hand_over(&world.receivers, 130_000, 100);
        assert!(matches!(world.step(200), Step::Wait(_)));
        let Step::Send(parcel) = world.groups.next("new", 140_000, &|_| None, true) else {
            panic!("it is told")
        };
        assert_eq!(shown(&parcel), ["a"]);
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up_for_long() {
        let mut world = World::new();
        world.word("a", 100_000, 100_000, false);
        assert_eq!(world.told(100_010), Some(said(&["a"])));
        world.word("b", 50_000, 50_000, false);
        assert!(matches!(world.step(50_000), Step::Wait(50_060_000)));
        assert!(matches!(world.step(50_060), Step::Send(_)));
    }

    #[test]
    fn beyond_the_bound_new_alerts_are_counted_and_known_ones_go_on() {
        let mut world = World::new();
        for at in 0..150 {
            world.word(&format!("a{at}"), 100, 100, false);
        }
        world.word("a0", 101, 100, false);
        assert_eq!((world.groups.len(), world.groups.dropped), (100, 50));
        assert_eq!(world.told(110).map(|told| told.len()), Some(100));
    }

    #[test]
    fn a_storm_keeps_nothing_from_being_told_that_begins_beside_it() {
        let mut world = World::new();
        let known = receivers(FILE);
        let routes = known.routes_of(&BTreeMap::new());
        let say = |groups: &mut Groups, name: &str, run: &str, severity: &str| {
            let labels = [("alertname", name), ("run", run), ("severity", severity)];
            let labels = labels.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
            let told = Arc::new(Told::test(labels, (100_000, 340_000), false));
            groups.take(&told, &routes, 100_000, 100);
        };
        (0..200).for_each(|at| say(&mut world.groups, &format!("storm{at}"), "r", "page"));
        say(&mut world.groups, "beside", "other", "ticket");
        (0..200).for_each(|at| say(&mut world.groups, &format!("storm{at}"), "r", "page"));
        let Step::Send(first) = world.step(110) else { panic!("it is due") };
        world.groups.sent(&first, 110_000);
        let Step::Send(second) = world.step(110) else { panic!("it is due") };
        let mut told = [first.firing.len(), second.firing.len()];
        told.sort_unstable();
        assert_eq!((told, world.groups.len()), ([1, 99], 100));
        // Where each is a group of its own, what is urgent goes before what is not.
        world.groups = Groups::default();
        (0..200).for_each(|at| say(&mut world.groups, "storm", &format!("run{at}"), "ticket"));
        say(&mut world.groups, "late", "mine", "ticket");
        say(&mut world.groups, "urgent", "mine", "page");
        let names: BTreeSet<&str> =
            world.groups.firing(110_000).map(|told| told.labels["alertname"].as_str()).collect();
        assert_eq!((names, world.groups.len()), (BTreeSet::from(["storm", "urgent"]), 100));
    }
}
