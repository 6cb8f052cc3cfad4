//! What is known of a card beside its series: who reports it, its power limit, its energy.

use std::collections::HashMap;

use insight::energy::{Meter, Oddity};
use model::{NANOS_PER_SECOND, Sample};
use store::StateRow;

/// How long a reporter counts as there after its last sample, nanoseconds.
pub(super) const SILENCE_NS: i64 = 5 * 60 * NANOS_PER_SECOND;
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
    limit_watts: Option<f64>,
    meter: Option<Meter>,
    /// The readings of the batch that read the meter last, and which it was: a batch that was refused comes
    /// again.
    recent: (u64, Vec<(Sample, f64)>),
}

impl Card {
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
    pub(super) fn begin(&mut self) {
        self.batch += 1;
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
