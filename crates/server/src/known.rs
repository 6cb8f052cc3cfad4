//! Series that senders named before: the bytes of their labels lead to their numbers, so that naming
//! them again costs a look-up.
//!
//! A sender names its series in the same order again and again, so the one after the last is looked at
//! first: its bytes lie next in memory, and nothing is hashed. Two generations bound the memory: what
//! is asked for moves to the young one, and when that is full the old one goes. Forgetting costs time
//! only, and a number is never given to another series.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};

use model::Labels;
use store::SeriesId;

/// Most bytes of one generation: about a quarter of a million series.
const GENERATION_BYTES_MAX: usize = 48 << 20;
/// Scraped series that are kept in mind before those that ended are looked for.
const SCRAPED_MIN: usize = 1 << 16;
/// Bytes of an entry beside its key.
const ENTRY_BYTES: usize = 48;

/// What a short key begins with: labels of remote write don't, nor do the names of what bounds a sender.
const SHORT: u8 = 0xff;
/// Bytes of a short key.
const SHORT_BYTES: usize = 17;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    all: RwLock<Generations>,
    /// What short keys are made with: secrets of this process.
    secrets: [RandomState; 2],
    /// How often everything was forgotten.
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Generations {
    young: Generation,
    old: Generation,
    hasher: foldhash::fast::RandomState,
}

#[derive(Debug, Default)]
struct Generation {
    /// All keys, one after another.
    keys: Vec<u8>,
    /// Where a key ends, and its number; in the order that they were learnt.
    entries: Vec<(usize, SeriesId)>,
    /// Places in `entries` by the hash of the key. Of two keys with one hash the first is known.
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
}

impl Generation {
    fn key(&self, place: usize) -> Option<&[u8]> {
        let (end, _) = *self.entries.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.entries[before].0);
        self.keys.get(start..end)
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.places.get(&hash).copied().filter(|place| self.key(*place) == Some(key))
    }

    fn insert(&mut self, hash: u64, key: &[u8], number: SeriesId) {
        if self.place(hash, key).is_none() {
            self.keys.extend_from_slice(key);
            self.places.entry(hash).or_insert(self.entries.len());
            self.entries.push((self.keys.len(), number));
        }
    }

    fn bytes(&self) -> usize {
        self.keys.len() + self.entries.len() * ENTRY_BYTES
    }
}

/// What is known, held as long as this lives.
#[derive(Debug)]
pub(crate) struct Lookup<'k> {
    all: RwLockReadGuard<'k, Generations>,
    /// The place after the last that was found.
    next: usize,
}

impl Lookup<'_> {
    /// The number that `key` leads to, and whether it is to be learnt anew.
    pub(crate) fn number(&mut self, key: &[u8]) -> Option<(SeriesId, bool)> {
        let young = &self.all.young;
        if young.key(self.next) != Some(key) {
            let hash = self.all.hasher.hash_one(key);
            let Some(place) = young.place(hash, key) else {
                let old = &self.all.old;
                return old.place(hash, key).map(|place| (old.entries[place].1, true));
            };
            self.next = place;
        }
        self.next += 1;
        Some((young.entries[self.next - 1].1, false))
    }
}

impl Known {
    /// Holds what is known, to look it up.
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup { all: self.all.read().unwrap_or_else(PoisonError::into_inner), next: 0 }
    }

    /// A key in the place of `bytes`, where these would take too much memory. Two hashes of 64 bits by secrets
    /// that nobody outside knows: no two of a fleet's series have the same, by chance or on purpose.
    pub(crate) fn short(&self, bytes: &[u8]) -> [u8; SHORT_BYTES] {
        let mut key = [SHORT; SHORT_BYTES];
        for (part, secret) in key[1..].chunks_exact_mut(8).zip(&self.secrets) {
            part.copy_from_slice(&secret.hash_one(bytes).to_le_bytes());
        }
        key
    }

    /// Remembers keys and their numbers.
    pub(crate) fn learn(&self, fresh: &[(Vec<u8>, SeriesId)]) {
        if fresh.is_empty() {
            return;
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        for (key, number) in fresh {
            if all.young.bytes() > GENERATION_BYTES_MAX {
                all.old = std::mem::take(&mut all.young);
            }
            let hash = all.hasher.hash_one(&key[..]);
            all.young.insert(hash, key, *number);
        }
    }

    /// Forgets everything: some numbers lead nowhere any more.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Generations::default();
    }
}

/// Series that scrapes named before. The `Arc` of a series' labels stays the same from scrape to scrape.
#[derive(Debug, Default)]
pub(crate) struct Scraped {
    /// By the address of the labels, which nobody else gets as long as the weak pointer is there.
    numbers: HashMap<usize, (Weak<Labels>, SeriesId), foldhash::fast::RandomState>,
    /// How many there may be before those that ended are looked for.
    full: usize,
    forgotten: u64,
}

impl Scraped {
    /// Drops what is not to be relied on any more. Done before a page is looked up.
    pub(crate) fn refresh(&mut self, known: &Known) {
        let forgotten = known.forgotten.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.forgotten, forgotten) != forgotten {
            self.numbers.clear();
        }
        if self.numbers.len() > self.full {
            self.numbers.retain(|_, (labels, _)| labels.strong_count() > 0);
            self.full = self.numbers.len().saturating_mul(2).max(SCRAPED_MIN);
        }
    }

    /// The number of a series.
    pub(crate) fn number(&self, labels: &Arc<Labels>) -> Option<SeriesId> {
        self.numbers.get(&Arc::as_ptr(labels).addr()).map(|(_, number)| *number)
    }

    /// Remembers the number of a series.
    pub(crate) fn learn(&mut self, labels: &Arc<Labels>, number: SeriesId) {
        self.numbers.insert(Arc::as_ptr(labels).addr(), (Arc::downgrade(labels), number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Vec<u8> {
        let mut key = vec![0; 4_096 + number as usize % 7];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn keys_are_found_in_any_order() {
        let known = Known::default();
        known.learn(&(0..100).map(|number| (key(number), number)).collect::<Vec<_>>());
        let order = (0..100).chain((0..100).rev()).chain((0..100).map(|number| number * 37 % 100));
        let mut lookup = known.lookup();
        for number in order {
            assert_eq!(lookup.number(&key(number)), Some((number, false)));
            assert_eq!(lookup.number(&key(number + 100)), None);
            assert_eq!(lookup.number(&key(number)[..4_000]), None);
        }
    }

    #[test]
    fn short_keys_are_told_apart() {
        let known = Known::default();
        let keys: std::collections::HashSet<_> = (0..1_000).map(|number| known.short(&key(number))).collect();
        assert_eq!(keys.len(), 1_000);
        assert!(keys.contains(&known.short(&key(7))) && keys.iter().all(|key| key[0] == SHORT));
        assert_ne!(Known::default().short(&key(7)), known.short(&key(7)));
    }

    #[test]
    fn scraped_series_are_known_as_long_as_they_are_scraped() {
        let (known, mut scraped) = (Known::default(), Scraped::default());
        let labels = |n: usize| Arc::new(Labels::from_pairs([("__name__", "up"), ("n", &n.to_string())]));
        let (here, there) = (labels(0), labels(0));
        scraped.learn(&here, 7);
        assert_eq!((scraped.number(&here), scraped.number(&there)), (Some(7), None));
        for n in 0..3 * SCRAPED_MIN {
            scraped.refresh(&known);
            scraped.learn(&labels(n), n as u64);
        }
        assert_eq!(scraped.number(&here), Some(7));
        assert!(scraped.numbers.len() <= SCRAPED_MIN + 1, "{} are kept", scraped.numbers.len());
        known.forget();
        scraped.refresh(&known);
        assert_eq!(scraped.number(&here), None);
    }

    #[test]
    fn what_is_asked_for_stays_and_memory_is_bounded() {
        let known = Known::default();
        let count = (4 * GENERATION_BYTES_MAX / 4_096) as u64;
        known.learn(&[(key(0), 0)]);
        for number in 1..count {
            known.learn(&[(key(number), number)]);
            let (found, is_old) = known.lookup().number(&key(0)).unwrap();
            assert_eq!(found, 0);
            if is_old {
                known.learn(&[(key(0), 0)]);
            }
        }
        assert_eq!(known.lookup().number(&key(1)), None);
        let held = known.all.read().unwrap().young.bytes() + known.all.read().unwrap().old.bytes();
        assert!(held < 3 * GENERATION_BYTES_MAX, "{held} bytes");
        known.forget();
        assert_eq!(known.lookup().number(&key(0)), None);
    }
}
