//! What is known of senders of telemetry from one request to the next.
//!
//! Senders are spread over shards. A shard is held from the reading of a request to its commit: what
//! follows on the same series then follows on what is durable, and a request that can't be kept is
//! undone as if it had not come. Requests of different senders share a commit.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use foldhash::fast::RandomState;
use model::{Labels, RunPath};
use store::{SeriesId, Store};
use wire::otlp::{Aliases, Cumulator, Instrument, Meant, ResourceLabels, SeriesKey};

use super::metrics::Families;

/// How many shards there are; the first byte of a key says in which one a family is.
const SHARDS: usize = 16;
/// Families with running totals in one shard.
const STATES_MAX: usize = wire::otlp::STATES_MAX / 4;
/// Bytes of one generation of senders, near enough: what is kept of a sender is at most as long as its resource.
const ORIGINS_BYTES_MAX: usize = 32 << 20;
/// Bytes of a sender beside those of its resource.
const ORIGIN_BYTES: usize = 1_024;
/// Senders whose attributes were told that are remembered.
const LATEST_MAX: usize = 16_384;
/// In front of the keys of the store's rows that hold this.
const ROWS: &[u8] = b"otlp/";
/// In front of the key of a running total.
const TOTAL_ROWS: &[u8] = b"otlp/total/";
/// In front of name, unit and kind of a metric.
const NAME_ROWS: &[u8] = b"otlp/name/";
/// Kinds in rows, by place.
const INSTRUMENTS: [Instrument; 5] = [
    Instrument::Gauge,
    Instrument::Counter,
    Instrument::UpDownCounter,
    Instrument::Histogram,
    Instrument::Summary,
];

/// A row of the store, and its bytes; none to forget it.
pub(super) type Row = (Vec<u8>, Option<Vec<u8>>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    shards: [Mutex<Shard>; SHARDS],
    origins: Mutex<Origins>,
    /// By the labels of its series, the sender that told its attributes last.
    latest: Mutex<HashMap<SeriesKey, Arc<Origin>, RandomState>>,
    aliases: RwLock<Aliases>,
    /// Hashes of what was said about metrics.
    described: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// A part of all senders.
#[derive(Debug)]
pub(super) struct Shard {
    /// Running totals.
    pub(super) cumulator: Cumulator,
    /// Families by how they were named.
    pub(super) families: Families,
}

impl Default for Shard {
    fn default() -> Self {
        Self { cumulator: Cumulator::new(STATES_MAX), families: Families::default() }
    }
}

/// A sender: what its resource makes of every series.
#[derive(Debug)]
pub(super) struct Origin {
    /// Tells the families of one sender from those of another.
    pub(super) number: u64,
    /// The run that it belongs to.
    pub(super) run: Option<Arc<RunPath>>,
    /// Labels of all its series.
    pub(super) labels: ResourceLabels,
    /// The series that tells the rest of its attributes.
    pub(super) info: Option<Labels>,
    /// What it is known by to those who don't look at its other attributes.
    identity: SeriesKey,
    /// The number of that series, once it is known.
    info_number: Mutex<Option<SeriesId>>,
    /// From when to when that series was told.
    told_ns: Mutex<Option<(i64, i64)>>,
}

impl Origin {
    /// The first byte of its families' keys. Labels alone decide, so that it is the same after a restart.
    pub(super) fn place(&self) -> u8 {
        self.identity.0[0]
    }

    /// The shard of its families.
    pub(super) fn shard(&self) -> usize {
        usize::from(self.place()) % SHARDS
    }

    /// The number of the series of its attributes; `find` looks it up where it is not known.
    pub(super) fn info_number(&self, find: impl FnOnce() -> Option<SeriesId>) -> Option<SeriesId> {
        let mut number = self.info_number.lock().unwrap_or_else(PoisonError::into_inner);
        *number = number.or_else(find);
        *number
    }

    /// That number leads nowhere any more.
    pub(super) fn forget_info_number(&self) {
        *self.info_number.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// From when to when the series of its attributes was told.
    pub(super) fn told_ns(&self) -> Option<(i64, i64)> {
        *self.told_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, (first_ns, last_ns): (i64, i64)) {
        let mut told = self.told_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = told.unwrap_or((first_ns, last_ns));
        *told = Some((first.min(first_ns), last.max(last_ns)));
    }
}

/// Two generations: what is asked for moves to the young one, and when that is full the old one goes.
#[derive(Debug, Default)]
struct Origins {
    young: HashMap<Box<[u8]>, Arc<Origin>, RandomState>,
    old: HashMap<Box<[u8]>, Arc<Origin>, RandomState>,
    /// Of the young.
    bytes: usize,
    made: u64,
}

/// What becomes of a request: the shards of its senders, and nobody else's turn while it lasts.
pub(super) type Held<'s> = [Option<MutexGuard<'s, Shard>>; SHARDS];

impl Streams {
    /// What was known when the last commit was made. What can't be read is as good as lost, which costs
    /// a visible reset of amounts.
    pub(crate) fn restore(store: &Store) -> Self {
        let mut streams = Self::default();
        let rows = store.state(ROWS).unwrap_or_else(|error| {
            tracing::warn!(%error, "running totals of telemetry can't be read: they begin anew");
            Vec::new()
        });
        for (key, bytes) in rows {
            let total = key.strip_prefix(TOTAL_ROWS).and_then(|key| <[u8; 16]>::try_from(key).ok());
            if let Some(key) = total {
                let shard = &mut streams.shards[usize::from(key[0]) % SHARDS];
                let shard = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
                shard.cumulator.restore(SeriesKey(key), &bytes);
            } else if let Some((name, unit, instrument)) = key.strip_prefix(NAME_ROWS).and_then(named) {
                let aliases = streams.aliases.get_mut().unwrap_or_else(PoisonError::into_inner);
                aliases.insert(name, unit, instrument);
            }
        }
        streams
    }

    /// Waits until nobody else works on these shards, in an order that all keep.
    pub(super) fn hold(&self, wanted: impl Fn(usize) -> bool) -> Held<'_> {
        std::array::from_fn(|at| {
            let mut shard =
                wanted(at).then(|| self.shards[at].lock().unwrap_or_else(PoisonError::into_inner))?;
            // Whoever held it last may have ended by a panic.
            shard.cumulator.undo();
            Some(shard)
        })
    }

    /// The sender behind a resource of `run`, as it is remembered, or made by `make`: its labels and the
    /// series of its attributes.
    pub(super) fn origin<E>(
        &self,
        resource: &[u8],
        run: Option<&Arc<RunPath>>,
        make: impl FnOnce() -> Result<(ResourceLabels, Option<Labels>), E>,
    ) -> Result<Arc<Origin>, E> {
        let is_same = |origin: &Arc<Origin>| origin.run.as_ref() == run;
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = origins.young.get(resource).filter(|origin| is_same(origin)) {
            return Ok(Arc::clone(known));
        }
        let known = origins.old.remove(resource).filter(is_same);
        let origin = if let Some(known) = known {
            known
        } else {
            let (labels, info) = make()?;
            origins.made += 1;
            let (number, identity) = (origins.made, identity_of(&labels));
            let (run, info_number, told_ns) = (run.cloned(), Mutex::default(), Mutex::default());
            Arc::new(Origin { number, run, labels, info, identity, info_number, told_ns })
        };
        let bytes = 2 * resource.len() + ORIGIN_BYTES;
        // One that would fill a generation alone is looked at every time.
        if bytes > ORIGINS_BYTES_MAX {
            return Ok(origin);
        }
        if origins.bytes + bytes > ORIGINS_BYTES_MAX {
            origins.old = std::mem::take(&mut origins.young);
            origins.bytes = 0;
        }
        origins.bytes += bytes;
        origins.young.insert(resource.into(), Arc::clone(&origin));
        Ok(origin)
    }

    /// The sender whose place another takes: its series have the same labels, and its attributes are others,
    /// as after a restart under another process id.
    pub(super) fn before(&self, origin: &Origin) -> Option<Arc<Origin>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get(&origin.identity).filter(|known| known.info != origin.info).cloned()
    }

    /// Notes that a sender's attributes were told at these times.
    pub(super) fn told(&self, origin: &Arc<Origin>, times_ns: (i64, i64)) {
        origin.tell(times_ns);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() >= LATEST_MAX {
            latest.clear();
        }
        latest.insert(origin.identity, Arc::clone(origin));
    }

    /// What a name in an equality may mean beside the series of that name.
    pub(crate) fn meant(&self, name: &str) -> Vec<Meant> {
        self.read_aliases().meant(name).cloned().collect()
    }

    /// The canonical names that a name in an equality means.
    pub(crate) fn canonical_names(&self, name: &str) -> Vec<String> {
        self.read_aliases().canonical_names(name).into_iter().map(str::to_owned).collect()
    }

    /// Whether the other spellings of a metric are known, and else its names under other units.
    pub(super) fn new_metric(&self, name: &str, unit: &str, instrument: Instrument) -> Option<Vec<String>> {
        let aliases = self.read_aliases();
        let is_new = !aliases.contains(name, unit, instrument);
        is_new.then(|| aliases.other_units(name, unit).into_iter().map(str::to_owned).collect())
    }

    /// Learns metrics whose rows are durable.
    pub(super) fn learn(&self, metrics: &[(String, String, Instrument)]) {
        if metrics.is_empty() {
            return;
        }
        let mut aliases = self.aliases.write().unwrap_or_else(PoisonError::into_inner);
        for (name, unit, instrument) in metrics {
            aliases.insert(name, unit, *instrument);
        }
    }

    /// A number for what is said about a metric.
    pub(super) fn saying(&self, said: &store::MetricMetadata) -> u64 {
        self.hasher.hash_one((&said.metric, said.kind.name(), &said.help, &said.unit))
    }

    /// Whether that was said before.
    pub(super) fn was_said(&self, saying: u64) -> bool {
        self.described.lock().unwrap_or_else(PoisonError::into_inner).contains(&saying)
    }

    /// Notes what was said and is durable.
    pub(super) fn said(&self, sayings: impl Iterator<Item = u64>) {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        if described.len() >= wire::otlp::FAMILIES_MAX {
            described.clear();
        }
        described.extend(sayings);
    }

    fn read_aliases(&self) -> std::sync::RwLockReadGuard<'_, Aliases> {
        self.aliases.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a family: its shard, then a hash.
pub(super) fn family_key(place: u8, labels: &Labels) -> SeriesKey {
    let mut key = SeriesKey::of(labels);
    key.0[0] = place;
    key
}

/// The row of a running total.
pub(super) fn total_row(key: SeriesKey, bytes: Option<Vec<u8>>) -> Row {
    ([TOTAL_ROWS, &key.0].concat(), bytes)
}

/// The row that tells of a metric.
pub(super) fn name_row(name: &str, unit: &str, instrument: Instrument) -> Row {
    let kind = INSTRUMENTS.iter().position(|known| *known == instrument).unwrap_or_default();
    let key = [NAME_ROWS, &[kind as u8], name.as_bytes(), &[0], unit.as_bytes()].concat();
    (key, Some(Vec::new()))
}

/// Name, unit and kind as [`name_row`] wrote them.
fn named(key: &[u8]) -> Option<(&str, &str, Instrument)> {
    let (kind, texts) = key.split_first()?;
    let (name, unit) = std::str::from_utf8(texts).ok()?.split_once('\0')?;
    Some((name, unit, *INSTRUMENTS.get(usize::from(*kind))?))
}

fn identity_of(labels: &ResourceLabels) -> SeriesKey {
    SeriesKey::of(&Labels::from_pairs(labels.iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_comes_back_from_its_row() {
        for instrument in INSTRUMENTS {
            for (name, unit) in [("megatron.training.loss", ""), ("a", "TFLOP/s"), ("θ", "{token}/s")] {
                let (key, bytes) = name_row(name, unit, instrument);
                assert!(bytes.is_some());
                let key = key.strip_prefix(NAME_ROWS).unwrap();
                assert_eq!(named(key), Some((name, unit, instrument)));
            }
        }
        assert_eq!(named(b""), None);
        assert_eq!(named(b"\x09a\0"), None);
        assert_eq!(named(b"\x00no end"), None);
    }
}
