//! What is known of one target, and what its samples come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Event, Labels, NANOS_PER_SECOND, Sample};
use serde::{Deserialize, Serialize};

use super::project_labels;
use super::words;

/// An hour, nanoseconds.
pub(super) const HOUR_NS: i64 = 3_600 * NANOS_PER_SECOND;
/// How long a second value of a fact is waited for before a third may take its place, nanoseconds.
const SILENCE_NS: i64 = 300 * NANOS_PER_SECOND;
/// Scrapes that have to fail in a row for a target to be down.
const FAILS_MIN: u32 = 2;
/// A start that moves by less did not move, seconds.
const START_STEP: f64 = 1.0;
/// Most events of one target within an hour: workers that share an address and count apart seem to begin anew
/// with every scrape.
pub(super) const HOURLY_MAX: usize = 30;
/// Restarts whose times are kept.
const RESTARTS_KEPT: usize = 32;
/// Facts that are kept.
const FACTS_MAX: usize = 64;
/// The facts of every engine.
const ENGINE: &str = "engine";
const MODEL: &str = "model";
/// What topics of names begin with.
const NAMES: &str = "name/";

/// Who a target is: project, job and instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Name(Box<str>);

impl Name {
    /// The target that labels name.
    pub(super) fn of(labels: &Labels) -> Self {
        let text = |name| labels.get(name).unwrap_or_default();
        let mut name = [text("job"), "\0", text("instance")].concat();
        if project_labels().any(|label| labels.get(label).is_some()) {
            for label in project_labels() {
                name.push('\0');
                name.push_str(text(label));
            }
        }
        Self(name.into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn part(&self, at: usize) -> &str {
        self.0.split('\0').nth(at).unwrap_or_default()
    }

    pub(super) fn job(&self) -> &str {
        self.part(0)
    }

    pub(super) fn instance(&self) -> &str {
        self.part(1)
    }

    /// Organization, workspace and project, where it is confined to one.
    pub(super) fn project(&self) -> impl Iterator<Item = (&'static str, &str)> {
        project_labels().zip(self.0.split('\0').skip(2)).filter(|(_, value)| !value.is_empty())
    }
}

/// How a series matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Whether the target answers.
    Up,
    /// When its process began.
    Start,
    /// When one of its series began.
    Created,
    /// A counter of an engine's.
    Counter,
    /// Anything else of an engine's.
    Other,
}

/// What a series of an engine says by its name and labels.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Said {
    pub(super) engine: Arc<str>,
    pub(super) model: Arc<str>,
    /// The name that the page has for it.
    pub(super) name: Arc<str>,
    /// What releases have other names for.
    pub(super) topic: Option<Arc<str>>,
}

/// Something that has one value at a time.
#[derive(Debug)]
struct Fact {
    topic: Arc<str>,
    value: Arc<str>,
    seen_ns: i64,
    other: Option<Other>,
}

/// Another value, which is the new one when the old one is not met any more.
#[derive(Debug)]
struct Other {
    value: Arc<str>,
    /// Since when it is met without the old one.
    alone_ns: i64,
    seen_ns: i64,
    /// Whether a scrape had both.
    is_beside: bool,
}

/// A fact that has another value.
#[derive(Debug)]
pub(super) struct Change {
    topic: Arc<str>,
    pub(super) from: Arc<str>,
    pub(super) to: Arc<str>,
    pub(super) time_ns: i64,
}

impl Fact {
    /// Notes that a value was met; the change where it is the new one. Two scrapes in a row have to be without
    /// the old value: a page that has both has not changed. One that had two models and lacks one may just not
    /// have been asked for it yet; of names that stood side by side the one that stays is the new one.
    fn note(&mut self, value: &Arc<str>, time_ns: i64) -> Option<Change> {
        if self.value == *value {
            self.seen_ns = self.seen_ns.max(time_ns);
            return None;
        }
        let new = Other { value: Arc::clone(value), alone_ns: time_ns, seen_ns: time_ns, is_beside: false };
        match &mut self.other {
            Some(other) if other.value == *value => {
                let is_later = time_ns > other.seen_ns;
                if is_later && self.seen_ns < other.seen_ns {
                    let alone_ns = other.alone_ns;
                    let is_told = !other.is_beside || self.topic.starts_with(NAMES);
                    let from = std::mem::replace(&mut self.value, Arc::clone(value));
                    (self.seen_ns, self.other) = (time_ns, None);
                    let (topic, to) = (Arc::clone(&self.topic), Arc::clone(value));
                    return is_told.then_some(Change { topic, from, to, time_ns: alone_ns });
                }
                if is_later {
                    other.is_beside = true;
                    (other.alone_ns, other.seen_ns) = (time_ns, time_ns);
                }
            }
            Some(other) if other.seen_ns.saturating_add(SILENCE_NS) > time_ns => {}
            _ => self.other = Some(new),
        }
        None
    }
}

/// A sign that a target began anew between two samples of a series.
#[derive(Debug)]
pub(super) struct Sign {
    from_ns: i64,
    pub(super) time_ns: i64,
    pub(super) evidence: Evidence,
}

#[derive(Debug)]
pub(super) enum Evidence {
    /// The start of its process moved, seconds.
    Start(f64, f64),
    /// The start of one of its series did.
    Created,
    /// A counter fell.
    Fall(Arc<str>, f64, f64),
}

/// That a target fell silent or answers again.
#[derive(Debug)]
pub(super) enum Turn {
    Down { first_ns: i64, error: Option<String> },
    Back { time_ns: i64, since_ns: i64 },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: Name,
    /// Where it runs, as far as its labels say.
    pub(super) places: BTreeMap<String, String>,
    facts: Vec<Fact>,
    /// When it began anew, the latest last.
    restarts: Vec<i64>,
    /// The first scrape that failed, when that was told.
    down_ns: Option<i64>,
    /// When events of it were told within the hour.
    told: Vec<i64>,
    /// Scrapes that failed in a row, and the first of them.
    fails: u32,
    first_failed_ns: i64,
    /// Why the last scrape failed.
    pub(super) error: Option<String>,
    /// When something was heard of it, by this server's clock.
    pub(super) heard_ns: i64,
    pub(super) is_touched: bool,
    has_changed: bool,
    signs: Vec<Sign>,
    turns: Vec<Turn>,
    changes: Vec<Change>,
}

/// What is kept of a target.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    name: Name,
    places: BTreeMap<String, String>,
    facts: Vec<(String, String)>,
    restarts: Vec<i64>,
    down_ns: Option<i64>,
    told: Vec<i64>,
}

impl Target {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            places: BTreeMap::new(),
            facts: Vec::new(),
            restarts: Vec::new(),
            down_ns: None,
            told: Vec::new(),
            fails: 0,
            first_failed_ns: 0,
            error: None,
            heard_ns: crate::clock::now_ns(),
            is_touched: false,
            has_changed: false,
            signs: Vec::new(),
            turns: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The target of a row.
    pub(super) fn from_row(row: &[u8]) -> Option<Self> {
        let row: Row = serde_json::from_slice(row).ok()?;
        let fact = |(topic, value): (String, String)| Fact {
            topic: topic.into(),
            value: value.into(),
            seen_ns: i64::MIN,
            other: None,
        };
        let facts = row.facts.into_iter().map(fact).collect();
        let (places, restarts, down_ns, told) = (row.places, row.restarts, row.down_ns, row.told);
        Some(Self { places, facts, restarts, down_ns, told, ..Self::new(row.name) })
    }

    /// What is to be kept of it, if that has changed.
    pub(super) fn changed_row(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.has_changed) || self.engine().is_none() {
            return None;
        }
        let facts = self.facts.iter().map(|fact| (fact.topic.to_string(), fact.value.to_string()));
        let row = Row {
            name: self.name.clone(),
            places: self.places.clone(),
            facts: facts.collect(),
            restarts: self.restarts.clone(),
            down_ns: self.down_ns,
            told: self.told.clone(),
        };
        serde_json::to_vec(&row).ok()
    }

    fn fact(&self, topic: &str) -> Option<&str> {
        self.facts.iter().find(|fact| &*fact.topic == topic).map(|fact| &*fact.value)
    }

    /// The engine that it is, if it is one.
    pub(super) fn engine(&self) -> Option<&str> {
        self.fact(ENGINE)
    }

    /// The model that it serves.
    pub(super) fn model(&self) -> Option<&str> {
        self.fact(MODEL)
    }

    /// Notes where it runs, by the labels of one of its series.
    pub(super) fn locate(&mut self, labels: &Labels) {
        for (label, names) in [
            ("host", &["host", "node", "hostname", "Hostname"][..]),
            ("namespace", &["namespace"]),
            ("pod", &["pod"]),
        ] {
            let Some(value) = names.iter().find_map(|name| labels.get(name)) else { continue };
            if self.places.get(label).is_none_or(|known| known != value) {
                self.places.insert(label.to_owned(), value.to_owned());
                self.has_changed = true;
            }
        }
    }

    /// It is scraped no more.
    pub(super) fn leave(&mut self) {
        self.fails = 0;
        self.has_changed |= self.down_ns.take().is_some();
    }

    /// Takes a sample that is later than the one `before` it.
    pub(super) fn take(
        &mut self,
        what: What,
        said: Option<&Said>,
        before: Option<(i64, f64)>,
        Sample { time_ns, value, .. }: Sample,
    ) {
        let evidence = match (what, before, said) {
            (What::Up, ..) => return self.answer(value > 0.0, time_ns),
            (What::Start, Some((_, before)), _) if value > before + START_STEP => {
                Some(Evidence::Start(before, value))
            }
            (What::Created, Some((_, before)), _) if value > before + START_STEP => Some(Evidence::Created),
            (What::Counter, Some((_, before)), Some(said)) if value < before => {
                Some(Evidence::Fall(Arc::clone(&said.name), before, value))
            }
            _ => None,
        };
        if let (Some(evidence), Some((from_ns, _))) = (evidence, before) {
            self.signs.push(Sign { from_ns, time_ns, evidence });
        }
        let Some(said) = said else { return };
        self.note(ENGINE, &said.engine, time_ns);
        if !said.model.is_empty() {
            self.note(MODEL, &said.model, time_ns);
        }
        if let Some(topic) = &said.topic {
            self.note(topic, &said.name, time_ns);
        }
    }

    fn note(&mut self, topic: &str, value: &Arc<str>, time_ns: i64) {
        if let Some(fact) = self.facts.iter_mut().find(|fact| &*fact.topic == topic) {
            let was = Arc::clone(&fact.value);
            self.changes.extend(fact.note(value, time_ns));
            self.has_changed |= fact.value != was;
        } else if self.facts.len() < FACTS_MAX {
            let value = Arc::clone(value);
            self.facts.push(Fact { topic: topic.into(), value, seen_ns: time_ns, other: None });
            self.has_changed = true;
        }
    }

    fn answer(&mut self, is_up: bool, time_ns: i64) {
        if is_up {
            self.fails = 0;
            if let Some(since_ns) = self.down_ns.take() {
                self.turns.push(Turn::Back { time_ns, since_ns });
                self.has_changed = true;
            }
            return;
        }
        if self.fails == 0 {
            self.first_failed_ns = time_ns;
        }
        self.fails = self.fails.saturating_add(1);
        if self.fails >= FAILS_MIN && self.down_ns.is_none() && self.engine().is_some() {
            self.down_ns = Some(self.first_failed_ns);
            self.turns.push(Turn::Down { first_ns: self.first_failed_ns, error: self.error.clone() });
            self.has_changed = true;
        }
    }

    /// What the samples since the last time come to.
    pub(super) fn judge(&mut self) -> Vec<Event> {
        self.is_touched = false;
        let mut signs = std::mem::take(&mut self.signs);
        let turns = std::mem::take(&mut self.turns);
        let mut changes = std::mem::take(&mut self.changes);
        if self.engine().is_none() {
            return Vec::new();
        }
        let mut events: Vec<Event> = turns.iter().map(|turn| words::turn(self, turn)).collect();
        signs.sort_by_key(|sign| sign.time_ns);
        for at_once in signs.chunk_by(|a, b| a.time_ns == b.time_ns) {
            events.extend(self.restart(at_once));
        }
        changes.sort_by_key(|change| change.time_ns);
        for at_once in changes.chunk_by(|a, b| a.time_ns == b.time_ns) {
            events.extend(self.change(at_once));
        }
        events.sort_by_key(|event| event.time_ns);
        events.retain_mut(|event| self.may_tell(event));
        events
    }

    /// One restart makes many series begin anew, some of them later: what a series has lost since before the
    /// last restart is that one's.
    fn restart(&mut self, signs: &[Sign]) -> Option<Event> {
        let last_ns = self.restarts.last().copied().unwrap_or(i64::MIN);
        let new: Vec<&Sign> = signs.iter().filter(|sign| sign.from_ns >= last_ns).collect();
        let time_ns = new.first()?.time_ns;
        self.restarts.push(time_ns);
        if self.restarts.len() > RESTARTS_KEPT {
            self.restarts.remove(0);
        }
        self.has_changed = true;
        let within = self.restarts.iter().filter(|at| **at > time_ns.saturating_sub(HOUR_NS)).count();
        Some(words::restart(self, &new, within))
    }

    fn change(&mut self, changes: &[Change]) -> Vec<Event> {
        let of = |topic: &str| changes.iter().find(|change| &*change.topic == topic);
        let mut events = Vec::new();
        if let Some(change) = of(ENGINE) {
            let stale = format!("{NAMES}{}/", change.from);
            self.facts.retain(|fact| !fact.topic.starts_with(&stale));
            events.push(words::engine(self, change));
        }
        events.extend(of(MODEL).map(|change| words::model(self, change)));
        let names: Vec<&Change> = changes.iter().filter(|change| change.topic.starts_with(NAMES)).collect();
        if !names.is_empty() {
            events.push(words::names(self, &names));
        }
        events
    }

    /// Whether another event of it may be told; the last one within the hour says so.
    fn may_tell(&mut self, event: &mut Event) -> bool {
        let since_ns = event.time_ns.saturating_sub(HOUR_NS);
        self.told.retain(|at| *at > since_ns);
        if self.told.len() >= HOURLY_MAX {
            return false;
        }
        self.told.push(event.time_ns);
        self.has_changed = true;
        if self.told.len() == HOURLY_MAX {
            words::end(event);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = NANOS_PER_SECOND;
    const T0: i64 = 1_800_000_000 * SECOND;

    fn said(name: &str, model: &str) -> Said {
        let topic = name.contains("cache").then(|| "name/vllm/tg_engine_kv_usage_ratio/".into());
        Said { engine: "vllm".into(), model: model.into(), name: name.into(), topic }
    }

    fn target() -> Target {
        let labels = Labels::from_pairs([("job", "j"), ("instance", "i:1")]);
        let mut target = Target::new(Name::of(&labels));
        give(&mut target, "total", "m", (0, 5.0), None);
        assert_eq!(target.judge(), []);
        target
    }

    fn give(
        target: &mut Target,
        name: &str,
        model: &str,
        (at, value): (i64, f64),
        before: Option<(i64, f64)>,
    ) {
        let before = before.map(|(at, value)| (T0 + at * SECOND, value));
        let what = if name == "total" { What::Counter } else { What::Other };
        let sample = Sample { time_ns: T0 + at * SECOND, value, step: None };
        target.take(what, Some(&said(name, model)), before, sample);
    }

    #[test]
    fn a_series_that_comes_back_late_is_of_the_restart_before() {
        let mut target = target();
        give(&mut target, "total", "m", (15, 1.0), Some((0, 5.0)));
        assert_eq!(target.judge().len(), 1);
        give(&mut target, "total", "m", (600, 2.0), Some((0, 9.0)));
        assert_eq!(target.judge(), []);
        give(&mut target, "total", "m", (615, 1.0), Some((600, 2.0)));
        assert_eq!(target.judge().len(), 1);
    }

    #[test]
    fn two_values_at_a_time_are_no_change_until_one_is_gone() {
        let mut target = target();
        for at in 1..9 {
            give(&mut target, "new_cache", "m", (at, 0.5), None);
            if at < 5 {
                give(&mut target, "old_cache", "m", (at, 0.5), None);
            }
        }
        assert_eq!(target.judge(), [], "the new name was there first");
        for at in 409..414 {
            if at < 411 {
                give(&mut target, "new_cache", "m", (at, 0.5), None);
            }
            give(&mut target, "newest_cache", "m", (at, 0.5), None);
        }
        let events = target.judge();
        assert_eq!((events.len(), events[0].time_ns), (1, T0 + 411 * SECOND), "{events:?}");
        assert!(events[0].text.contains("newest_cache in place of new_cache"), "{events:?}");
    }

    #[test]
    fn a_target_that_flaps_for_ever_is_told_within_bounds_and_the_last_event_says_so() {
        let mut target = target();
        let mut events = Vec::new();
        for at in 1..100 {
            let (before, now) = if at % 2 == 0 { (5.0, 1.0) } else { (1.0, 5.0) };
            give(&mut target, "total", "m", (at, now), Some((at - 1, before)));
            events.extend(target.judge());
        }
        assert_eq!(events.len(), HOURLY_MAX);
        assert!(events[HOURLY_MAX - 1].text.ends_with("further events of it within the hour are not told"));
        let kept = target.changed_row();
        let mut again = Target::from_row(&kept.unwrap()).unwrap();
        give(&mut again, "total", "m", (101, 1.0), Some((100, 5.0)));
        assert_eq!(again.judge(), []);
        give(&mut again, "total", "m", (9_000, 0.0), Some((8_999, 5.0)));
        assert_eq!(again.judge().len(), 1);
    }
}
