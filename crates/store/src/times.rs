//! Times that series share: those of one scrape, or of one step of a run, are written once a file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Points from which a chunk's times are worth a place of their own.
pub(crate) const SHARED_POINTS_MIN: usize = 32;
/// Most points that a writer remembers the times of: 32 MiB.
const WRITTEN_POINTS_MAX: usize = 4 << 20;
/// Parts of the cache, so that readers seldom meet.
const SHARDS: usize = 16;
/// Most points of one half of a part of the cache: 32 MiB in all.
const SHARD_POINTS_MAX: usize = (4 << 20) / SHARDS / 2;

/// Byte of the file, and the times that are there.
type Place = (u64, Box<[i64]>);

/// Where a segment's writer has put times so far.
#[derive(Debug, Default)]
pub(crate) struct WrittenTimes {
    places: HashMap<u64, Vec<Place>>,
    points: usize,
}

impl WrittenTimes {
    /// Where these times are in the file.
    pub(crate) fn find(&self, times_ns: &[i64]) -> Option<u64> {
        let places = self.places.get(&fingerprint(times_ns))?;
        places.iter().find(|(_, known)| **known == *times_ns).map(|(at, _)| *at)
    }

    /// Remembers it; what was written long ago may be forgotten.
    pub(crate) fn insert(&mut self, times_ns: &[i64], at: u64) {
        if self.points + times_ns.len() > WRITTEN_POINTS_MAX {
            self.places.clear();
            self.points = 0;
        }
        self.points += times_ns.len();
        self.places.entry(fingerprint(times_ns)).or_default().push((at, times_ns.into()));
    }
}

/// Tells columns apart well enough to compare few.
fn fingerprint(times_ns: &[i64]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sums = [times_ns.len() as u64, 1, 2, 3];
    let (fours, rest) = times_ns.as_chunks::<4>();
    for four in fours {
        for (sum, time_ns) in sums.iter_mut().zip(four) {
            *sum = (sum.rotate_left(7) ^ *time_ns as u64).wrapping_mul(FACTOR);
        }
    }
    let all = sums.into_iter().chain(rest.iter().map(|time_ns| *time_ns as u64));
    all.fold(0, |sum, next| (sum.rotate_left(29) ^ next).wrapping_mul(FACTOR))
}

/// An open file; no two ever are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Times that were read lately; the older half goes when the younger is full.
#[derive(Default)]
struct Shard {
    young: HashMap<(Owner, u64), Arc<[i64]>>,
    old: HashMap<(Owner, u64), Arc<[i64]>>,
    points: usize,
}

/// Of all files of this process, so that its size is bounded once.
static CACHE: [Mutex<Option<Shard>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

fn shard(at: u64) -> MutexGuard<'static, Option<Shard>> {
    let place = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS;
    CACHE[place].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The times at a place of a file, from the cache or by `read`.
pub(crate) fn cached(
    owner: Owner,
    at: u64,
    read: impl FnOnce() -> Result<Vec<i64>, String>,
) -> Result<Arc<[i64]>, String> {
    let key = (owner, at);
    {
        let mut shard = shard(at);
        let shard = shard.get_or_insert_default();
        if let Some(times) = shard.young.get(&key) {
            return Ok(Arc::clone(times));
        }
        if let Some(times) = shard.old.remove(&key) {
            shard.put(key, &times);
            return Ok(times);
        }
    }
    let times: Arc<[i64]> = read()?.into();
    shard(at).get_or_insert_default().put(key, &times);
    Ok(times)
}

impl Shard {
    fn put(&mut self, key: (Owner, u64), times: &Arc<[i64]>) {
        if self.points + times.len() > SHARD_POINTS_MAX {
            self.old = std::mem::take(&mut self.young);
            self.points = 0;
        }
        self.points += times.len();
        self.young.insert(key, Arc::clone(times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_answers_and_stays_small() {
        let owner = Owner::new();
        let times = |at: u64| vec![at as i64; SHARD_POINTS_MAX / 4];
        for at in 0..400 {
            assert_eq!(*cached(owner, at, || Ok(times(at))).unwrap(), times(at));
            assert_eq!(*cached(owner, at, || Err("it is known".into())).unwrap(), times(at));
        }
        for shard in &CACHE {
            let shard = shard.lock().unwrap();
            let held = shard.iter().flat_map(|shard| shard.young.values().chain(shard.old.values()));
            assert!(held.map(|times| times.len()).sum::<usize>() <= 2 * SHARD_POINTS_MAX);
        }
        assert_eq!(cached(owner, 1_000, || Err("no".into())), Err("no".to_owned()));
        assert!(cached(Owner::new(), 399, || Err("another file".into())).is_err());
    }

    #[test]
    fn a_writer_finds_the_same_times_and_no_others() {
        let mut written = WrittenTimes::default();
        let times: Vec<i64> = (0..100).map(|n| n * 30).collect();
        assert_eq!(written.find(&times), None);
        written.insert(&times, 16);
        let mut others = times.clone();
        others[50] += 1;
        assert_eq!((written.find(&times), written.find(&others)), (Some(16), None));
        assert_eq!(written.find(&times[..99]), None);
    }
}
