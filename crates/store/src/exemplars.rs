//! Exemplars: few of each series, all of them in memory, each a row of the catalogue.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use model::Exemplar;

use crate::SeriesId;
use crate::codec::{Reader, put_bytes, put_f64, put_i64, put_u64};

/// Most exemplars of a series; the oldest to arrive go first.
pub const EXEMPLARS_PER_SERIES_MAX: usize = 100;
/// Most exemplars of all series; the oldest to arrive go first.
pub const EXEMPLARS_MAX: usize = 100_000;

const VERSION: u8 = 1;

/// Those that are kept.
#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    /// In order of arrival.
    all: BTreeMap<u64, SeriesId>,
    of_series: HashMap<SeriesId, VecDeque<(u64, Exemplar)>>,
}

/// What a commit adds and removes.
#[derive(Debug, Default)]
pub(crate) struct ExemplarRows {
    added: Vec<(u64, SeriesId, Exemplar)>,
    removed: Vec<u64>,
}

impl ExemplarRows {
    pub(crate) fn encode(&self) -> Vec<(u64, Option<Vec<u8>>)> {
        let added =
            self.added.iter().map(|(number, series, exemplar)| (*number, Some(encode(*series, exemplar))));
        self.removed.iter().map(|number| (*number, None)).chain(added).collect()
    }
}

impl Exemplars {
    /// Decides what becomes of new ones. One that its series has already, as it is sent again with every
    /// export, is passed over.
    pub(crate) fn place(&self, new: Vec<(SeriesId, Exemplar)>) -> ExemplarRows {
        let mut number = self.all.last_key_value().map_or(1, |(last, _)| last + 1);
        let mut rows = ExemplarRows::default();
        let mut by_series: BTreeMap<SeriesId, Vec<Exemplar>> = BTreeMap::new();
        for (series, exemplar) in new {
            let of_batch = by_series.entry(series).or_default();
            let known = self.of_series.get(&series).into_iter().flatten().map(|(_, known)| known);
            if !known.chain(&*of_batch).any(|known| is_same(known, &exemplar)) {
                of_batch.push(exemplar);
            }
        }
        for (series, mut new) in by_series {
            new.drain(..new.len().saturating_sub(EXEMPLARS_PER_SERIES_MAX));
            let kept = self.of_series.get(&series);
            let beyond = (kept.map_or(0, VecDeque::len) + new.len()).saturating_sub(EXEMPLARS_PER_SERIES_MAX);
            rows.removed.extend(kept.into_iter().flatten().take(beyond).map(|(number, _)| *number));
            for exemplar in new {
                rows.added.push((number, series, exemplar));
                number += 1;
            }
        }
        self.bound(&mut rows);
        rows
    }

    /// Lets the oldest of all go.
    fn bound(&self, rows: &mut ExemplarRows) {
        let count = self.all.len() + rows.added.len() - rows.removed.len();
        let mut beyond = count.saturating_sub(EXEMPLARS_MAX);
        let gone: HashSet<u64> = rows.removed.iter().copied().collect();
        for number in self.all.keys().filter(|number| !gone.contains(number)).take(beyond) {
            rows.removed.push(*number);
            beyond -= 1;
        }
        rows.added.drain(..beyond.min(rows.added.len()));
    }

    pub(crate) fn apply(&mut self, rows: ExemplarRows) {
        for number in rows.removed {
            self.remove(number);
        }
        for (number, series, exemplar) in rows.added {
            self.insert(number, series, exemplar);
        }
    }

    fn insert(&mut self, number: u64, series: SeriesId, exemplar: Exemplar) {
        self.all.insert(number, series);
        self.of_series.entry(series).or_default().push_back((number, exemplar));
    }

    fn remove(&mut self, number: u64) {
        let Some(series) = self.all.remove(&number) else { return };
        if let Some(kept) = self.of_series.get_mut(&series) {
            kept.retain(|(known, _)| *known != number);
        }
    }

    /// Takes up a row of the catalogue; `false` when it is damaged.
    pub(crate) fn insert_row(&mut self, number: u64, row: &[u8]) -> bool {
        let Some((series, exemplar)) = decode(row) else { return false };
        self.insert(number, series, exemplar);
        true
    }

    /// The numbers of those of some series.
    pub(crate) fn numbers_of(&self, is_gone: impl Fn(SeriesId) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, series)| is_gone(**series)).map(|(number, _)| *number).collect()
    }

    /// The numbers of those of before a time, of some series.
    pub(crate) fn numbers_before(&self, time_ns: i64, is_of: impl Fn(SeriesId) -> bool) -> Vec<u64> {
        let of_series = |id: SeriesId| self.of_series.get(&id).into_iter().flatten();
        let series = self.of_series.keys().copied().filter(|id| is_of(*id));
        let old = series.flat_map(of_series).filter(|(_, exemplar)| exemplar.time_ns < time_ns);
        old.map(|(number, _)| *number).collect()
    }

    pub(crate) fn forget(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.remove(*number);
        }
    }

    pub(crate) fn forget_series(&mut self, ids: &[SeriesId]) {
        for id in ids {
            for (number, _) in self.of_series.remove(id).into_iter().flatten() {
                self.all.remove(&number);
            }
        }
    }

    pub(crate) fn of(&self, series: SeriesId, from_ns: i64, to_ns: i64) -> Vec<Exemplar> {
        let kept = self.of_series.get(&series).into_iter().flatten().map(|(_, exemplar)| exemplar);
        let mut found: Vec<_> = kept.filter(|e| (from_ns..=to_ns).contains(&e.time_ns)).cloned().collect();
        found.sort_by_key(|exemplar| exemplar.time_ns);
        found
    }
}

fn is_same(a: &Exemplar, b: &Exemplar) -> bool {
    a.time_ns == b.time_ns && a.value.to_bits() == b.value.to_bits() && a.labels == b.labels
}

fn encode(series: SeriesId, exemplar: &Exemplar) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_u64(&mut out, series);
    put_i64(&mut out, exemplar.time_ns);
    put_f64(&mut out, exemplar.value);
    put_u64(&mut out, exemplar.labels.len() as u64);
    for (name, value) in &exemplar.labels {
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    out
}

fn decode(row: &[u8]) -> Option<(SeriesId, Exemplar)> {
    let mut reader = Reader::new(row);
    if reader.byte()? != VERSION {
        return None;
    }
    let (series, time_ns, value) = (reader.u64()?, reader.i64()?, reader.f64()?);
    let count = reader.count(2)?;
    let labels = (0..count).map(|_| Some((reader.text()?, reader.text()?))).collect::<Option<_>>()?;
    Some((series, Exemplar { time_ns, value, labels }))
}
