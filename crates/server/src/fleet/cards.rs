//! Which cards there are, how they are, and who has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use model::NANOS_PER_SECOND;
use semconv::canonical::{
    GPU_BUSY_RATIO, GPU_INFO, GPU_MEMORY_USED_BYTES, GPU_OWNER_INFO, GPU_POWER_WATTS, GPU_SM_CLOCK_HERTZ,
    GPU_TEMPERATURE_CELSIUS, GPU_TENSOR_ACTIVE_RATIO, GPU_UNSUPPORTED_INFO,
};
use store::{Matcher, Store};

use super::owner::OWNED_NS;
use super::reading::{Last, lasts_of};
use crate::app::Shared;
use crate::remediation;

/// How long a card that is gone is still listed, nanoseconds.
pub(super) const REMEMBERED_NS: i64 = 86_400 * NANOS_PER_SECOND;
/// The least silence of a node without an agent that is worth telling.
const SILENCE_MIN: Duration = Duration::from_mins(1);

/// A card: the host that it is in and its unique id.
pub(super) type CardKey = (String, String);

/// Metrics that say that a card is there; the first one describes it.
const PRESENCE: [&str; 7] = [
    GPU_INFO.name,
    GPU_POWER_WATTS.name,
    GPU_TEMPERATURE_CELSIUS.name,
    GPU_SM_CLOCK_HERTZ.name,
    GPU_BUSY_RATIO.name,
    GPU_MEMORY_USED_BYTES.name,
    GPU_TENSOR_ACTIVE_RATIO.name,
];

/// How a card is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CardState {
    Ok,
    /// An open incident asks for something to be done.
    Suspect,
    /// Its node is there and it is not.
    Missing,
    /// Its node says nothing.
    Silent,
}

impl CardState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Suspect => "suspect",
            Self::Missing => "missing",
            Self::Silent => "silent",
        }
    }
}

/// Who has a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) run_id: String,
    pub(super) job_id: String,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) shared: Option<u32>,
    pub(super) confidence: String,
}

impl Owner {
    pub(super) fn of(last: &Last) -> Self {
        let text = |name: &str| last.label(name).to_owned();
        Self {
            run_id: text("run_id"),
            job_id: text("job_id"),
            namespace: text("namespace"),
            pod: text("pod"),
            container: text("container"),
            shared: last.label("shared").parse().ok(),
            confidence: text("confidence"),
        }
    }

    /// What its cards have in common: the run, else the job.
    pub(super) fn group(&self) -> Option<&str> {
        [&self.run_id, &self.job_id].into_iter().map(String::as_str).find(|name| !name.is_empty())
    }

    /// The pod that has it, with its namespace.
    pub(super) fn pod(&self) -> Option<(&str, &str)> {
        (!self.pod.is_empty()).then_some((self.namespace.as_str(), self.pod.as_str()))
    }
}

/// A card as its series tell.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) gpu: String,
    pub(super) model: String,
    pub(super) driver: String,
    pub(super) place: String,
    pub(super) is_mig: bool,
    pub(super) slices: BTreeSet<String>,
    /// Latest sample, nanoseconds.
    pub(super) last_ns: i64,
    /// Latest end of one of its series, nanoseconds.
    ended_ns: i64,
    /// What describes it was said at, nanoseconds.
    described_ns: i64,
    pub(super) state: CardState,
    pub(super) unsupported: Vec<String>,
    pub(super) owners: Vec<Owner>,
}

impl Card {
    /// When it was seen last, nanoseconds: where all of its series have ended, their end tells.
    pub(super) fn seen_ns(&self) -> i64 {
        self.last_ns.max(self.ended_ns)
    }
}

/// The fleet's cards at a time.
#[derive(Debug)]
pub(super) struct Cards {
    pub(super) all: BTreeMap<CardKey, Card>,
    /// Latest sample of anything on a host, nanoseconds.
    pub(super) heard: HashMap<String, i64>,
    /// Latest end of a series of a host, nanoseconds.
    ended: HashMap<String, i64>,
    patience: HashMap<String, i64>,
    patience_else: i64,
}

impl Cards {
    /// Every card that was seen since a time.
    pub(super) fn of(shared: &Shared, since_ns: i64, now_ns: i64) -> Self {
        let mut cards = Self::new(shared);
        for metric in PRESENCE {
            for last in lasts_of(&shared.store, metric, since_ns) {
                cards.see(metric, &last);
            }
        }
        cards.hear_nodes(&shared.store, since_ns);
        cards.own(&shared.store, now_ns);
        for last in lasts_of(&shared.store, GPU_UNSUPPORTED_INFO.name, since_ns) {
            let key = (last.label("host").to_owned(), last.label("uuid").to_owned());
            if let Some(card) = cards.all.get_mut(&key).filter(|_| !last.is_end()) {
                card.unsupported.push(last.label("field").to_owned());
            }
        }
        cards.judge(now_ns);
        cards
    }

    fn new(shared: &Shared) -> Self {
        let nanos = |patience: Duration| i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
        let agents = shared.nodes.list();
        let else_ = shared.config.scrape_interval.saturating_mul(3).max(SILENCE_MIN);
        Self {
            all: BTreeMap::new(),
            heard: HashMap::new(),
            ended: HashMap::new(),
            patience: agents.into_iter().map(|agent| (agent.host.clone(), nanos(agent.patience()))).collect(),
            patience_else: nanos(else_),
        }
    }

    fn see(&mut self, metric: &str, last: &Last) {
        let (host, uuid) = (last.label("host"), last.label("uuid"));
        if host.is_empty() || uuid.is_empty() {
            return;
        }
        self.hear(host, last);
        let card = self.all.entry((host.to_owned(), uuid.to_owned())).or_insert_with(|| Card {
            gpu: last.label("gpu").to_owned(),
            model: String::new(),
            driver: String::new(),
            place: String::new(),
            is_mig: false,
            slices: BTreeSet::new(),
            last_ns: i64::MIN,
            ended_ns: i64::MIN,
            described_ns: i64::MIN,
            state: CardState::Ok,
            unsupported: Vec::new(),
            owners: Vec::new(),
        });
        let seen = if last.is_end() { &mut card.ended_ns } else { &mut card.last_ns };
        *seen = (*seen).max(last.time_ns);
        let slice = last.label("gi");
        if !slice.is_empty() {
            card.slices.insert(slice.to_owned());
        }
        if metric == GPU_INFO.name && last.time_ns >= card.described_ns {
            card.described_ns = last.time_ns;
            last.label("gpu").clone_into(&mut card.gpu);
            last.label("gpu_model").clone_into(&mut card.model);
            last.label("driver").clone_into(&mut card.driver);
            last.label("pci_bus_id").clone_into(&mut card.place);
            card.is_mig = last.label("mig") == "true";
        }
    }

    fn hear_nodes(&mut self, store: &Store, since_ns: i64) {
        for metric in [semconv::canonical::NODE_INFO.name, semconv::canonical::NODE_GPUS.name] {
            for last in lasts_of(store, metric, since_ns).iter().filter(|last| !last.is_end()) {
                self.hear(last.label("host"), last);
            }
        }
    }

    /// Notes that something was said of a host. An end is no sign of life, yet tells when there was one.
    fn hear(&mut self, host: &str, last: &Last) {
        let heard = self.heard.entry(host.to_owned()).or_insert(i64::MIN);
        let at = if last.is_end() { self.ended.entry(host.to_owned()).or_insert(i64::MIN) } else { heard };
        *at = (*at).max(last.time_ns);
    }

    /// When something was heard of a host last, its end included, nanoseconds.
    pub(super) fn heard_ns(&self, host: &str) -> Option<i64> {
        let known = [self.heard.get(host), self.ended.get(host)].into_iter().flatten().copied();
        known.max().filter(|at| *at > i64::MIN)
    }

    fn own(&mut self, store: &Store, now_ns: i64) {
        for last in lasts_of(store, GPU_OWNER_INFO.name, now_ns.saturating_sub(OWNED_NS)) {
            let key = (last.label("host").to_owned(), last.label("uuid").to_owned());
            if let Some(card) = self.all.get_mut(&key).filter(|_| !last.is_end()) {
                card.owners.push(Owner::of(&last));
            }
        }
        for card in self.all.values_mut() {
            card.owners.sort();
        }
    }

    /// Whether nothing was heard of a host for too long.
    pub(super) fn is_silent(&self, host: &str, now_ns: i64) -> bool {
        let patience = self.patience.get(host).copied().unwrap_or(self.patience_else);
        self.heard.get(host).is_none_or(|heard| now_ns.saturating_sub(*heard) > patience)
    }

    /// Whether a card of a host was there when the host was heard last.
    pub(super) fn was_there(&self, host: &str, card: &Card) -> bool {
        let patience = self.patience.get(host).copied().unwrap_or(self.patience_else);
        self.heard_ns(host).is_some_and(|heard| heard.saturating_sub(card.seen_ns()) <= patience)
    }

    fn judge(&mut self, now_ns: i64) {
        let silent: BTreeSet<String> =
            self.heard.keys().filter(|host| self.is_silent(host, now_ns)).cloned().collect();
        for ((host, _), card) in &mut self.all {
            let patience = self.patience.get(host).copied().unwrap_or(self.patience_else);
            card.state = if silent.contains(host) {
                CardState::Silent
            } else if now_ns.saturating_sub(card.last_ns) > patience {
                CardState::Missing
            } else {
                CardState::Ok
            };
            card.unsupported.sort();
            card.unsupported.dedup();
        }
    }
}

/// Where cards are, as agents tell: by id, the host and the driver's index on it. Of a card that moved, the latest.
pub(crate) fn seats(store: &Store, since_ns: i64) -> HashMap<String, (String, String)> {
    let mut seats: HashMap<String, (i64, (String, String))> = HashMap::new();
    let told = lasts_of(store, GPU_INFO.name, since_ns);
    for last in told.iter().filter(|last| !last.is_end() && remediation::is_of_machine(&last.labels)) {
        let (uuid, host) = (last.label("uuid"), last.label("host"));
        if uuid.is_empty() || host.is_empty() {
            continue;
        }
        let seat = (last.time_ns, (host.to_owned(), last.label("gpu").to_owned()));
        let known = seats.entry(uuid.to_owned()).or_insert_with(|| seat.clone());
        if known.0 < seat.0 {
            *known = seat;
        }
    }
    seats.into_iter().map(|(uuid, (_, seat))| (uuid, seat)).collect()
}

/// Who had a card, over time: from, to, owner.
pub(super) fn owners_of(
    store: &Store,
    (host, uuid): (&str, &str),
    (from_ns, to_ns): (i64, i64),
) -> Vec<(i64, i64, Owner)> {
    let matchers = [
        Matcher::equal("__name__", GPU_OWNER_INFO.name),
        Matcher::equal("host", host),
        Matcher::equal("uuid", uuid),
    ];
    let mut all = Vec::new();
    for found in store.select(&matchers, from_ns, to_ns) {
        let last = Last { labels: found.labels, time_ns: 0, value: 1.0 };
        let owner = Owner::of(&last);
        all.extend(spans(store, found.id, (from_ns, to_ns)).into_iter().map(|(a, b)| (a, b, owner.clone())));
    }
    all.sort();
    all
}

/// When a series had values: it ends with its marker, or where none came for too long.
fn spans(store: &Store, series: store::SeriesId, (from_ns, to_ns): (i64, i64)) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    let mut is_open = false;
    let read = store.scan(series, from_ns, to_ns, &mut |block| {
        let (mut times, mut values) = (Vec::new(), Vec::new());
        if block.columns(&mut times, &mut values).is_err() {
            return std::ops::ControlFlow::Continue(());
        }
        for (time_ns, value) in times.into_iter().zip(values) {
            if !(from_ns..=to_ns).contains(&time_ns) {
                continue;
            }
            let is_end = model::is_stale_marker(value);
            match spans.last_mut() {
                Some((_, end)) if is_open && time_ns.saturating_sub(*end) <= OWNED_NS => *end = time_ns,
                _ if is_end => {}
                _ => spans.push((time_ns, time_ns)),
            }
            is_open = !is_end;
        }
        std::ops::ControlFlow::Continue(())
    });
    if read.is_err() {
        return Vec::new();
    }
    spans
}
