//! Families of series that senders named before: the bytes of a name and its attributes lead to them,
//! so that naming them again costs a look-up.
//!
//! A sender names them in the same order again and again, so the one after the last is looked at first:
//! it lies next in memory, and nothing is hashed. Two generations bound the memory, as in
//! [`crate::known`]. Forgetting costs time only.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use model::Labels;
use store::SeriesId;
use wire::otlp::{Part, Point, SeriesKey};

/// Most bytes of one generation: about five thousand families.
const GENERATION_BYTES_MAX: usize = 8 << 20;
/// Bytes of a family beside its key and labels, near enough.
const FAMILY_BYTES: usize = 400;

/// What the points of one metric with the same attributes become.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its labels, the canonical name among them.
    pub(super) labels: Labels,
    /// What its running total is known by.
    pub(super) key: SeriesKey,
    /// The number of its only series, where it has one.
    only: Option<SeriesId>,
    /// Its series that have numbers, without that.
    numbers: Vec<(Part, SeriesId)>,
    /// The request that named series of it last, and their places in the batch.
    named: (u64, Vec<(Part, usize)>),
    /// The place of the first family with this key: attributes in another order are the same series.
    first: usize,
    /// Of the first: the last request that told of it, the time it told of last and what it said.
    said: (u64, i64, u64),
}

impl Default for Family {
    fn default() -> Self {
        Self::new(Labels::default(), SeriesKey([0; 16]))
    }
}

impl Family {
    pub(super) fn new(labels: Labels, key: SeriesKey) -> Self {
        let (numbers, named) = (Vec::new(), (0, Vec::new()));
        Self { labels, key, only: None, numbers, named, first: 0, said: (0, 0, 0) }
    }

    /// The number of a series; `at` is its place among those of a point, where it most likely is.
    pub(super) fn number(&self, at: usize, part: Part) -> Option<SeriesId> {
        if part == Part::Value {
            return self.only;
        }
        let is_it = |(known, _): &&(Part, SeriesId)| *known == part;
        let found = self.numbers.get(at).filter(is_it).or_else(|| self.numbers.iter().find(is_it));
        found.map(|(_, number)| *number)
    }

    /// Remembers the number of a series.
    pub(super) fn learn(&mut self, part: Part, number: SeriesId) {
        if part == Part::Value {
            self.only = Some(number);
        } else {
            self.numbers.push((part, number));
        }
    }

    /// Where in its batch a request named a series.
    pub(super) fn place(&self, request: u64, part: Part) -> Option<usize> {
        let named = (self.named.0 == request).then_some(&self.named.1)?;
        named.iter().find(|(known, _)| *known == part).map(|(_, place)| *place)
    }

    /// Remembers that, as long as the request lasts.
    pub(super) fn put(&mut self, request: u64, part: Part, place: usize) {
        if self.named.0 != request {
            self.named = (request, Vec::new());
        }
        self.named.1.push((part, place));
    }
}

/// What a request says of a series at a time, held against what it said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing before.
    First,
    /// The same.
    Again,
    /// Something else.
    Other,
}

impl Said {
    fn of(known: u64, said: u64) -> Self {
        if known == said { Self::Again } else { Self::Other }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Families {
    young: Generation,
    old: Generation,
    /// The place after the last that was found.
    next: usize,
    /// How many requests used them.
    requests: u64,
    /// What the request said of series at times, beside what their families remember.
    more: HashMap<(SeriesKey, i64), u64, RandomState>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Generation {
    /// All keys, one after another.
    keys: Vec<u8>,
    /// Where the key of each family ends.
    ends: Vec<usize>,
    families: Vec<Family>,
    /// Places of families by the hash of the key. Of two keys with one hash the first is known.
    places: HashMap<u64, usize, RandomState>,
    /// The first of each key.
    firsts: HashMap<SeriesKey, usize, RandomState>,
    bytes: usize,
}

impl Generation {
    fn key(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.keys.get(start..end)
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.places.get(&hash).copied().filter(|place| self.key(*place) == Some(key))
    }

    fn insert(&mut self, hash: u64, key: &[u8], mut family: Family) -> usize {
        let place = self.families.len();
        let labels: usize = family.labels.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
        self.bytes += key.len() + labels + FAMILY_BYTES;
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.places.entry(hash).or_insert(place);
        family.first = *self.firsts.entry(family.key).or_insert(place);
        self.families.push(family);
        place
    }
}

impl Families {
    /// Another request uses them.
    pub(super) fn begin(&mut self) {
        self.requests += 1;
        if !self.more.is_empty() {
            self.more = HashMap::default();
        }
    }

    /// The number of the request.
    pub(super) fn request(&self) -> u64 {
        self.requests
    }

    /// The place of the family that `key` leads to.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<usize> {
        let place = if self.young.key(self.next) == Some(key) {
            self.next
        } else {
            let hash = self.hasher.hash_one(key);
            match self.young.place(hash, key) {
                Some(place) => place,
                None => self.take_old(hash, key)?,
            }
        };
        self.next = place + 1;
        Some(place)
    }

    /// Moves a family to the young ones.
    fn take_old(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let place = self.old.place(hash, key)?;
        self.old.places.remove(&hash);
        let family = std::mem::take(&mut self.old.families[place]);
        Some(self.put(hash, key, family))
    }

    /// Adds a family and says its place.
    pub(super) fn insert(&mut self, key: &[u8], family: Family) -> usize {
        let hash = self.hasher.hash_one(key);
        self.next = self.put(hash, key, family) + 1;
        self.next - 1
    }

    fn put(&mut self, hash: u64, key: &[u8], family: Family) -> usize {
        if self.young.bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            // Where they go to, others are the first of their key.
            for Family { key, said: (request, time_ns, said), .. } in &self.old.families {
                if *request == self.requests {
                    self.more.insert((*key, *time_ns), *said);
                }
            }
        }
        self.young.insert(hash, key, family)
    }

    /// The family at a place that was just told.
    pub(super) fn at(&mut self, place: usize) -> &mut Family {
        &mut self.young.families[place]
    }

    /// Notes what the request says of a family at a time; `said` is a hash of it.
    pub(super) fn say(&mut self, place: usize, time_ns: i64, said: u64) -> Said {
        let first = self.young.families[place].first;
        let Family { key, said: last, .. } = &mut self.young.families[first];
        let (request, last_ns, known) = *last;
        let is_of_this = request == self.requests;
        if is_of_this && last_ns == time_ns {
            return Said::of(known, said);
        }
        if let Some(known) = self.more.get(&(*key, time_ns)) {
            return Said::of(*known, said);
        }
        if is_of_this {
            self.more.insert((*key, last_ns), known);
        }
        *last = (self.requests, time_ns, said);
        Said::First
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        (self.young, self.old) = (Generation::default(), Generation::default());
    }
}

/// Writes what a point's family is known by, without its attributes: its sender and metric.
pub(super) fn write_key(key: &mut Vec<u8>, origin: u64, point: &Point<'_, '_>) {
    key.clear();
    key.extend_from_slice(&origin.to_le_bytes());
    key.push(point.metric.instrument as u8);
    for text in [point.metric.name, point.metric.unit] {
        key.extend_from_slice(&(text.len() as u32).to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(number: u64) -> Family {
        let labels = Labels::from_pairs([("__name__", "m".to_owned()), ("n", format!("{number:0>4000}"))]);
        Family::new(labels, SeriesKey([0; 16]))
    }

    #[test]
    fn what_is_asked_for_stays_and_memory_is_bounded() {
        let mut families = Families::default();
        let count = (4 * GENERATION_BYTES_MAX / 4_096) as u64;
        families.insert(b"kept", family(0));
        for number in 1..count {
            families.insert(&number.to_le_bytes(), family(number));
            assert!(families.find(b"kept").is_some(), "after {number}");
        }
        assert_eq!(families.find(&1_u64.to_le_bytes()), None);
        let place = families.find(&(count - 1).to_le_bytes()).unwrap();
        assert!(families.at(place).labels.get("n").unwrap().ends_with(&(count - 1).to_string()));
        assert!(families.young.bytes + families.old.bytes < 3 * GENERATION_BYTES_MAX);
        families.forget();
        assert_eq!(families.find(b"kept"), None);
    }

    #[test]
    fn families_are_found_in_any_order() {
        let mut families = Families::default();
        for number in 0..100_u64 {
            families.insert(&number.to_le_bytes(), family(number));
        }
        let order = (0..100).chain((0..100).rev()).chain((0..100).map(|number: u64| number * 37 % 100));
        for number in order {
            assert_eq!(families.find(&number.to_le_bytes()), Some(number as usize));
            assert_eq!(families.find(&(number + 100).to_le_bytes()), None);
            assert_eq!(families.find(&number.to_le_bytes()[..7]), None);
        }
    }

    #[test]
    fn what_a_request_says_twice_is_seen_however_it_is_spelled() {
        let mut families = Families::default();
        families.begin();
        let of = |key: u8| Family { key: SeriesKey([key; 16]), ..family(u64::from(key)) };
        let (a, b) = (families.insert(b"a", of(1)), families.insert(b"b", of(2)));
        let spelled_otherwise = families.insert(b"A", of(1));
        assert_eq!(families.say(a, 10, 7), Said::First);
        assert_eq!(families.say(b, 10, 8), Said::First);
        assert_eq!(families.say(spelled_otherwise, 10, 7), Said::Again);
        assert_eq!(families.say(spelled_otherwise, 10, 8), Said::Other);
        assert_eq!(families.say(spelled_otherwise, 20, 9), Said::First);
        assert_eq!(families.say(a, 10, 7), Said::Again);
        assert_eq!(families.say(a, 20, 7), Said::Other);
        // What makes way within the request is not forgotten.
        for number in 100..(3 * GENERATION_BYTES_MAX / 4_096) as u64 {
            let other = Family { key: SeriesKey([9; 16]), ..family(number) };
            families.insert(&number.to_le_bytes(), other);
        }
        let spelled_otherwise = families.insert(b"A", of(1));
        assert_eq!(families.say(spelled_otherwise, 20, 9), Said::Again);
        assert_eq!(families.say(spelled_otherwise, 10, 6), Said::Other);
        families.begin();
        assert_eq!(families.say(spelled_otherwise, 10, 6), Said::First);
    }

    #[test]
    fn series_are_found_by_part() {
        let mut family = family(1);
        family.learn(Part::Bucket(1.0), 7);
        family.learn(Part::Count, 8);
        assert_eq!(family.number(0, Part::Bucket(1.0)), Some(7));
        assert_eq!(family.number(0, Part::Count), Some(8));
        assert_eq!(family.number(1, Part::Sum), None);
        assert_eq!(family.number(0, Part::Value), None);
        family.learn(Part::Value, 9);
        assert_eq!(family.number(0, Part::Value), Some(9));
        family.put(3, Part::Sum, 5);
        assert_eq!((family.place(3, Part::Sum), family.place(4, Part::Sum)), (Some(5), None));
        family.put(4, Part::Count, 6);
        assert_eq!((family.place(4, Part::Sum), family.place(4, Part::Count)), (None, Some(6)));
    }
}
