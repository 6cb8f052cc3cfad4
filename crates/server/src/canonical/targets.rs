//! The series under canonical names, and which originals each is made of.
//!
//! A series is given by one page, a target's: another one that tells the same is a duplicate until the first
//! has gone. Originals of one page that come to one series tell one fact several times, and the largest value
//! counts; the recording rules do the same by `max`.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Labels, NANOS_PER_MILLI, Sample, SeriesIdentity, stale_marker};
use store::{Batch, SeriesBatch, SeriesId, Store};

use super::cards::SILENCE_NS;

/// Place of a series in the list.
pub(super) type TargetAt = u32;
/// What an original is known by: a hash of its labels.
pub(super) type Original = u64;
/// What a page is known by: a hash of its target's labels.
pub(super) type Page = u64;

/// A canonical series.
#[derive(Debug)]
struct Target {
    labels: Arc<Labels>,
    /// Its number in the store, once it has one.
    number: Option<SeriesId>,
    /// The page that gives it.
    page: Page,
    /// Originals that go on, with their latest samples.
    members: Vec<(Original, Sample)>,
    /// Time of the latest sample.
    seen_ns: i64,
    /// The latest sample of another page's, which can go on with it.
    reserve: Option<(Page, Original, Sample)>,
    /// The batch that it was written to last, and where.
    written: (u64, usize),
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The canonical series has it, alone.
    Made,
    /// Another original tells the same.
    Duplicate,
}

/// All canonical series that are made here.
#[derive(Debug, Default)]
pub(super) struct Targets {
    list: Vec<Target>,
    places: HashMap<Arc<Labels>, TargetAt, foldhash::fast::RandomState>,
    /// The batch that is being worked on.
    batch: u64,
    out: Vec<(TargetAt, Sample)>,
}

impl Targets {
    /// The place of a series; a new one where it is not known.
    pub(super) fn place(&mut self, labels: Labels) -> TargetAt {
        if let Some(at) = self.places.get(&labels) {
            return *at;
        }
        let at = TargetAt::try_from(self.list.len()).unwrap_or(TargetAt::MAX);
        let labels = Arc::new(labels);
        self.list.push(Target {
            labels: Arc::clone(&labels),
            number: None,
            page: 0,
            members: Vec::new(),
            seen_ns: i64::MIN,
            reserve: None,
            written: (0, 0),
        });
        self.places.insert(labels, at);
        at
    }

    /// The place of a series that is known.
    pub(super) fn find(&self, labels: &Labels) -> Option<TargetAt> {
        self.places.get(labels).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The labels of a series.
    pub(super) fn labels(&self, at: TargetAt) -> &Labels {
        &self.list[at as usize].labels
    }

    /// Whether a series would take a sample of `original` as the only one that counts.
    pub(super) fn would_take(&self, at: TargetAt, (page, original): (Page, Original), time_ns: i64) -> bool {
        let target = &self.list[at as usize];
        let first = target.members.first().map(|(first, _)| *first);
        target.is_free(time_ns) || (target.page == page && first == Some(original))
    }

    /// Gives a sample of `original` to a series.
    pub(super) fn give(&mut self, at: TargetAt, (page, original): (Page, Original), sample: Sample) -> Fate {
        let target = &mut self.list[at as usize];
        if target.page != page {
            if !target.is_free(sample.time_ns) {
                target.reserve = Some((page, original, sample));
                return Fate::Duplicate;
            }
            target.page = page;
            target.members.clear();
        }
        target.seen_ns = target.seen_ns.max(sample.time_ns);
        if let [(only, last)] = &mut target.members[..]
            && *only == original
        {
            *last = sample;
            self.write(at, sample);
            return Fate::Made;
        }
        target.members.retain(|(_, last)| last.time_ns.saturating_add(SILENCE_NS) > sample.time_ns);
        match target.members.iter_mut().find(|(member, _)| *member == original) {
            Some((_, last)) => *last = sample,
            None => target.members.push((original, sample)),
        }
        let is_first = target.members[0].0 == original;
        self.write_largest(at, sample.time_ns);
        if is_first { Fate::Made } else { Fate::Duplicate }
    }

    /// Takes `original` out of a series. Without another one the series ends, unless another page tells the
    /// same at this time.
    pub(super) fn end(&mut self, at: TargetAt, original: Original, time_ns: i64) {
        let target = &mut self.list[at as usize];
        let before = target.members.len();
        target.members.retain(|(member, _)| *member != original);
        if target.members.len() == before {
            return;
        }
        if !target.members.is_empty() {
            self.write_largest(at, time_ns);
            return;
        }
        match target.reserve.take().filter(|(.., sample)| sample.time_ns >= time_ns) {
            Some((page, next, sample)) => {
                target.page = page;
                target.members.push((next, sample));
                self.write(at, sample);
            }
            None => self.write(at, Sample { time_ns, value: stale_marker(), step: None }),
        }
    }

    fn write_largest(&mut self, at: TargetAt, time_ns: i64) {
        let members = &self.list[at as usize].members;
        let largest = members.iter().map(|(_, last)| last.value).fold(f64::NEG_INFINITY, f64::max);
        self.write(at, Sample { time_ns, value: largest, step: None });
    }

    /// Of two samples for one time the later one counts.
    fn write(&mut self, at: TargetAt, sample: Sample) {
        let target = &mut self.list[at as usize];
        let (batch, place) = target.written;
        if batch == self.batch
            && let Some((_, last)) = self.out.get_mut(place)
            && last.time_ns / NANOS_PER_MILLI == sample.time_ns / NANOS_PER_MILLI
        {
            *last = sample;
            return;
        }
        target.written = (self.batch, self.out.len());
        self.out.push((at, sample));
    }

    /// Begins with a batch.
    pub(super) fn begin(&mut self) {
        self.batch += 1;
        self.out.clear();
    }

    /// Adds what was made since to the batch; returns how many samples.
    pub(super) fn finish(&mut self, store: &Store, batch: &mut Batch) -> usize {
        let count = self.out.len();
        for (at, sample) in self.out.drain(..) {
            let target = &mut self.list[at as usize];
            if let Some(number) = target.number {
                batch.points.push((number, sample));
                continue;
            }
            let identity = target.identity();
            let Some(number) = store.series_number(&identity) else {
                batch.series.push(SeriesBatch { identity, samples: vec![sample] });
                continue;
            };
            target.number = Some(number);
            batch.points.push((number, sample));
            // The store has the same labels: one copy is enough.
            if let Some(known) = store.series(number).filter(|known| *known.labels == *target.labels) {
                self.places.remove(&target.labels);
                target.labels = Arc::clone(&known.labels);
                self.places.insert(known.labels, at);
            }
        }
        count
    }

    /// Forgets the numbers of series: some lead nowhere any more.
    pub(super) fn forget_numbers(&mut self) {
        for target in &mut self.list {
            target.number = None;
        }
    }
}

impl Target {
    fn identity(&self) -> SeriesIdentity {
        SeriesIdentity { display: self.labels.metric().to_owned(), labels: (*self.labels).clone() }
    }

    /// Whether any page may give it.
    fn is_free(&self, time_ns: i64) -> bool {
        self.members.is_empty() || self.seen_ns.saturating_add(SILENCE_NS) < time_ns
    }
}
