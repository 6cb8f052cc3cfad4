//! Families of series that senders named before: the bytes of a name and its attributes lead to them,
//! so that naming them again costs a look-up.
//!
//! Two generations bound the memory, as in [`crate::known`]. Forgetting costs time only.

use std::collections::HashMap;

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
    /// Its series that have numbers.
    numbers: Vec<(Part, SeriesId)>,
    /// The request that named series of it last, and their places in the batch.
    named: (u64, Vec<(Part, usize)>),
}

impl Default for Family {
    fn default() -> Self {
        Self::new(Labels::default(), SeriesKey([0; 16]))
    }
}

impl Family {
    pub(super) fn new(labels: Labels, key: SeriesKey) -> Self {
        Self { labels, key, numbers: Vec::new(), named: (0, Vec::new()) }
    }

    /// The number of a series; `at` is its place among those of a point, where it most likely is.
    pub(super) fn number(&self, at: usize, part: Part) -> Option<SeriesId> {
        let is_it = |(known, _): &&(Part, SeriesId)| *known == part;
        let found = self.numbers.get(at).filter(is_it).or_else(|| self.numbers.iter().find(is_it));
        found.map(|(_, number)| *number)
    }

    /// Remembers the number of a series.
    pub(super) fn learn(&mut self, part: Part, number: SeriesId) {
        self.numbers.push((part, number));
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Families {
    young: Generation,
    old: Generation,
    /// How many requests used them.
    pub(super) requests: u64,
}

#[derive(Debug, Default)]
struct Generation {
    places: HashMap<Box<[u8]>, usize, RandomState>,
    families: Vec<Family>,
    bytes: usize,
}

impl Families {
    /// The place of the family that `key` leads to.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<usize> {
        if let Some(place) = self.young.places.get(key) {
            return Some(*place);
        }
        let place = self.old.places.remove(key)?;
        let family = std::mem::take(&mut self.old.families[place]);
        Some(self.insert(key, family))
    }

    /// Adds a family and says its place.
    pub(super) fn insert(&mut self, key: &[u8], family: Family) -> usize {
        if self.young.bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let young = &mut self.young;
        let labels: usize = family.labels.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
        young.bytes += key.len() + labels + FAMILY_BYTES;
        young.places.insert(key.into(), young.families.len());
        young.families.push(family);
        young.families.len() - 1
    }

    /// The family at a place that was just told.
    pub(super) fn at(&mut self, place: usize) -> &mut Family {
        &mut self.young.families[place]
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        (self.young, self.old) = (Generation::default(), Generation::default());
    }
}

/// Writes what a point's family is known by: its sender, metric and attributes.
pub(super) fn write_key(key: &mut Vec<u8>, origin: u64, point: &Point<'_, '_>) {
    key.clear();
    key.extend_from_slice(&origin.to_le_bytes());
    key.push(point.metric.instrument as u8);
    for text in [point.metric.name, point.metric.unit] {
        key.extend_from_slice(&(text.len() as u32).to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend_from_slice(point.attribute_bytes);
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
    fn series_are_found_by_part() {
        let mut family = family(1);
        family.learn(Part::Bucket(1.0), 7);
        family.learn(Part::Count, 8);
        assert_eq!(family.number(0, Part::Bucket(1.0)), Some(7));
        assert_eq!(family.number(0, Part::Count), Some(8));
        assert_eq!(family.number(1, Part::Sum), None);
        family.put(3, Part::Sum, 5);
        assert_eq!((family.place(3, Part::Sum), family.place(4, Part::Sum)), (Some(5), None));
        family.put(4, Part::Count, 6);
        assert_eq!((family.place(4, Part::Sum), family.place(4, Part::Count)), (None, Some(6)));
    }
}
