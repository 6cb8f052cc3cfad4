//! Series that senders named before: the bytes of their labels lead to their numbers, so that naming
//! them again costs a look-up.
//!
//! Two generations bound the memory: what is asked for moves to the young one, and when that is full
//! the old one goes. Forgetting costs time only, and a number is never given to another series.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use store::SeriesId;

/// Most bytes of one generation: about a quarter of a million series.
const GENERATION_BYTES_MAX: usize = 48 << 20;
/// Bytes of an entry beside its key.
const ENTRY_BYTES: usize = 48;

type Numbers = HashMap<Box<[u8]>, SeriesId, foldhash::fast::RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known(RwLock<Generations>);

#[derive(Debug, Default)]
pub(crate) struct Generations {
    young: Numbers,
    old: Numbers,
    young_bytes: usize,
}

impl Generations {
    /// The number that `key` leads to, and whether it is to be learned anew.
    pub(crate) fn number(&self, key: &[u8]) -> Option<(SeriesId, bool)> {
        let young = self.young.get(key).map(|number| (*number, false));
        young.or_else(|| self.old.get(key).map(|number| (*number, true)))
    }
}

impl Known {
    /// What is known, held as long as the guard lives.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Generations> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers keys and their numbers.
    pub(crate) fn learn(&self, fresh: Vec<(Box<[u8]>, SeriesId)>) {
        if fresh.is_empty() {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (key, number) in fresh {
            if all.young_bytes > GENERATION_BYTES_MAX {
                all.old = std::mem::take(&mut all.young);
                all.young_bytes = 0;
            }
            let bytes = key.len() + ENTRY_BYTES;
            if all.young.insert(key, number).is_none() {
                all.young_bytes += bytes;
            }
        }
    }

    /// Forgets everything: some numbers lead nowhere any more.
    pub(crate) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Generations::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Box<[u8]> {
        let mut key = vec![0; 4_096];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key.into()
    }

    #[test]
    fn what_is_asked_for_stays_and_memory_is_bounded() {
        let known = Known::default();
        let count = (4 * GENERATION_BYTES_MAX / 4_096) as u64;
        known.learn(vec![(key(0), 0)]);
        for number in 1..count {
            known.learn(vec![(key(number), number)]);
            let (found, is_old) = known.read().number(&key(0)).unwrap();
            assert_eq!(found, 0);
            if is_old {
                known.learn(vec![(key(0), 0)]);
            }
        }
        assert_eq!(known.read().number(&key(1)), None);
        let held = known.read().young.len() + known.read().old.len();
        assert!(held * 4_096 < 3 * GENERATION_BYTES_MAX, "{held} entries");
        known.forget();
        assert_eq!(known.read().number(&key(0)), None);
    }
}
