//! What is known of a card beside its series: who reports it, its power limit, its energy.

use std::collections::HashMap;

use insight::energy::{Meter, Oddity};
use model::{NANOS_PER_SECOND, Sample};
use store::StateRow;

/// How long a reporter counts as there after its last sample, nanoseconds.
pub(super) const SILENCE_NS: i64 = 5 * 60 * NANOS_PER_SECOND;
/// How far ahead of this server's clock a sample may be for anything to be concluded from it, nanoseconds: what
/// came later would be older than it.
const AHEAD_NS_MAX: i64 = 10 * 60 * NANOS_PER_SECOND;
/// What rows of meters begin with; the uuid follows.
pub(super) const METER_ROWS: &[u8] = b"canonical/energy/";
/// Most cards that are known; of further ones nothing is made.
const CARDS_MAX: CardAt = 1 << 18;
/// Longest name of a card that is kept a row for, bytes.
const UUID_BYTES_MAX: usize = 256;

/// Place of a card in the list.
pub(super) type CardAt = u32;

/// See the module.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) uuid: Box<str>,
    /// Time of the latest sample of the node's agent.
    agent_ns: i64,
    /// Host and index by which the agent names it.
    pub(super) named: Option<(Box<str>, Box<str>)>,
    /// The name by which exporters' series of it count.
    name: Option<Name>,
    limit_watts: Option<f64>,
    meter: Option<Meter>,
    /// The readings of the batch that read the meter last, and which it was: a batch that was refused comes
    /// again.
    recent: (u64, Vec<(Sample, f64)>),
}

/// A host and an index under which a card is told, as a hash, and by whom.
#[derive(Debug, Clone, Copy)]
struct Name {
    hash: u64,
    page: u64,
    seen_ns: i64,
    /// Something under it has ended: another name may follow at once.
    is_loose: bool,
}

impl Card {
    /// Whether what a page tells of the card under a name counts. Two pages may have two names for one card, as
    /// when one of them was started after another card fell off: only one name counts then, else the card
    /// would be there twice. The page whose name it is may change it.
    pub(super) fn goes_by(&mut self, name: u64, page: u64, time_ns: i64) -> bool {
        let known = self.name.get_or_insert(Name { hash: name, page, seen_ns: time_ns, is_loose: false });
        let is_silent = known.seen_ns.saturating_add(SILENCE_NS) < time_ns;
        if known.hash == name {
            if is_silent {
                known.page = page;
            }
        } else if known.page == page || known.is_loose || is_silent {
            *known = Name { hash: name, page, seen_ns: time_ns, is_loose: false };
        } else {
            return false;
        }
        known.seen_ns = known.seen_ns.max(time_ns);
        known.is_loose &= known.page != page;
        true
    }

    /// A page has ended something under a name.
    pub(super) fn ends_name(&mut self, name: u64, page: u64) {
        if let Some(known) = &mut self.name
            && (known.hash, known.page) == (name, page)
        {
            known.is_loose = true;
        }
    }

    /// Notes a sample of the agent's.
    pub(super) fn agent(&mut self, time_ns: i64) {
        self.agent_ns = self.agent_ns.max(time_ns);
    }

    /// Whether the node's agent reports it at this time.
    pub(super) fn is_of_agent(&self, time_ns: i64) -> bool {
        self.agent_ns.saturating_add(SILENCE_NS) > time_ns
    }

    /// Notes its power limit.
    pub(super) fn limit(&mut self, watts: f64) {
        if watts.is_finite() && watts > 0.0 {
            self.limit_watts = Some(watts);
        }
    }

    /// What a reading of its energy comes to; none of what can't be used.
    fn energy(&mut self, batch: u64, raw: Sample) -> Option<(f64, Option<Oddity>)> {
        let (in_batch, readings) = &mut self.recent;
        if let Some((_, joules)) = readings.iter().find(|(known, _)| *known == raw) {
            return Some((*joules, None));
        }
        let read = match &mut self.meter {
            Some(meter) => meter.read(raw.time_ns, raw.value, self.limit_watts)?,
            None => self.meter.insert(Meter::begin(raw.time_ns, raw.value)?).now(),
        };
        if *in_batch != batch {
            *in_batch = batch;
            readings.clear();
        }
        readings.push((raw, read.joules));
        Some((read.joules, read.oddity))
    }
}

/// All cards.
#[derive(Debug, Default)]
pub(super) struct Cards {
    list: Vec<Card>,
    places: HashMap<Box<str>, CardAt>,
    /// The batch that is being worked on, and the cards whose meters it read.
    batch: u64,
    read: Vec<CardAt>,
    /// When it was begun with, by this server's clock.
    now_ns: i64,
}

impl Cards {
    /// The cards whose meters were kept.
    pub(super) fn restore(rows: Vec<StateRow>) -> Self {
        let mut cards = Self::default();
        for (key, row) in rows {
            let uuid = key.strip_prefix(METER_ROWS).and_then(|uuid| std::str::from_utf8(uuid).ok());
            if let (Some(at), Some(meter)) =
                (uuid.and_then(|uuid| cards.place(uuid)), Meter::from_bytes(&row))
            {
                cards.list[at as usize].meter = Some(meter);
            }
        }
        cards
    }

    /// The place of the card with this uuid; a new one where it is not known, none beyond the bound.
    pub(super) fn place(&mut self, uuid: &str) -> Option<CardAt> {
        if let Some(at) = self.places.get(uuid) {
            return Some(*at);
        }
        let at = CardAt::try_from(self.list.len()).ok().filter(|at| *at < CARDS_MAX)?;
        self.list.push(Card {
            uuid: uuid.into(),
            agent_ns: i64::MIN,
            named: None,
            name: None,
            limit_watts: None,
            meter: None,
            recent: (0, Vec::new()),
        });
        self.places.insert(uuid.into(), at);
        Some(at)
    }

    pub(super) fn card(&mut self, at: CardAt) -> &mut Card {
        &mut self.list[at as usize]
    }

    /// Host and index by which the agent names a card.
    pub(super) fn named(&self, at: CardAt) -> (Option<&str>, Option<&str>) {
        let named = self.list[at as usize].named.as_ref();
        (named.map(|(host, _)| &**host), named.map(|(_, gpu)| &**gpu))
    }

    pub(super) fn uuid(&self, at: CardAt) -> &str {
        &self.list[at as usize].uuid
    }

    /// Begins with a batch.
    pub(super) fn begin(&mut self, now_ns: i64) {
        self.batch += 1;
        self.now_ns = now_ns;
    }

    /// Whether a time is too far ahead.
    pub(super) fn is_ahead(&self, time_ns: i64) -> bool {
        time_ns > self.now_ns.saturating_add(AHEAD_NS_MAX)
    }

    /// What a reading of a card's energy comes to; none of what can't be used.
    pub(super) fn energy(&mut self, at: CardAt, raw: Sample) -> Option<(f64, Option<Oddity>)> {
        let read = self.list[at as usize].energy(self.batch, raw);
        if read.is_some() && self.read.last() != Some(&at) {
            self.read.push(at);
        }
        read
    }

    /// Adds the rows of the meters that were read to `rows`.
    pub(super) fn save(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for at in self.read.drain(..) {
            let card = &self.list[at as usize];
            if let (Some(meter), true) = (&card.meter, card.uuid.len() <= UUID_BYTES_MAX) {
                rows.push(([METER_ROWS, card.uuid.as_bytes()].concat(), Some(meter.to_bytes().to_vec())));
            }
        }
    }
}
