//! The youngest points of a series, in memory until they are sealed into a segment.

use std::sync::Arc;

use model::Sample;

use crate::SeriesId;
use crate::chunk::{self, Summary};
use crate::column::Effort;
use crate::tail::Tail;

/// Raw points from which a tail is packed.
const PACK_POINTS: usize = 128;
/// Most points of a packed chunk of the head.
const PACKED_POINTS_MAX: usize = 1_024;

/// A piece of a series that rests in memory, in order of time.
#[derive(Debug)]
pub(crate) struct MemoryChunk {
    pub(crate) summary: Summary,
    points: Points,
}

#[derive(Debug)]
enum Points {
    Packed(Box<[u8]>),
    /// A tail that has ended.
    Tail(Box<Tail>),
    /// A tail that goes on, as it was.
    Open(Vec<Sample>),
}

impl MemoryChunk {
    fn packed(samples: &[Sample]) -> Self {
        let points = Points::Packed(chunk::encode(samples, Effort::Quick).into_boxed_slice());
        Self { summary: Summary::of(samples), points }
    }

    fn ended(tail: Box<Tail>) -> Self {
        Self { summary: Summary::of(&tail.samples()), points: Points::Tail(tail) }
    }

    fn open(tail: &Tail) -> Self {
        let samples = tail.samples();
        Self { summary: Summary::of(&samples), points: Points::Open(samples) }
    }

    pub(crate) fn samples(&self) -> Option<Vec<Sample>> {
        match &self.points {
            Points::Packed(bytes) => chunk::decode(bytes, None),
            Points::Tail(tail) => Some(tail.samples()),
            Points::Open(samples) => Some(samples.clone()),
        }
    }

    /// Appends times and values; `None` when they can't be decoded.
    pub(crate) fn columns(&self, times_ns: &mut Vec<i64>, values: &mut Vec<f64>) -> Option<()> {
        let mut append = |samples: &[Sample]| {
            times_ns.extend(samples.iter().map(|s| s.time_ns));
            values.extend(samples.iter().map(|s| s.value));
            Some(())
        };
        match &self.points {
            Points::Tail(tail) => append(&tail.samples()),
            Points::Open(samples) => append(samples),
            Points::Packed(bytes) => chunk::decode_columns(bytes, None, times_ns, values),
        }
    }
}

/// Packs points in order of time, all but a rest too short for it. Done before anything is locked
/// where it can be: it is most of the work of taking points in.
pub(crate) fn pack(samples: &[Sample]) -> (Vec<Arc<MemoryChunk>>, &[Sample]) {
    let mut rest = samples;
    let mut packed = Vec::new();
    while rest.len() >= PACK_POINTS {
        let (chunk, after) = rest.split_at(rest.len().min(PACKED_POINTS_MAX));
        packed.push(Arc::new(MemoryChunk::packed(chunk)));
        rest = after;
    }
    (packed, rest)
}

/// Packed chunks, which may overlap when points came late, and a short sorted tail.
#[derive(Debug, Default)]
pub(crate) struct Head {
    chunks: Vec<Arc<MemoryChunk>>,
    /// The first so many chunks are being sealed.
    frozen: usize,
    tail: Option<Box<Tail>>,
}

impl Head {
    /// Whether there is nothing that a next seal would have to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_none() && self.chunks.len() == self.frozen
    }

    /// Takes chunks and points, each in order of time. They count where the series has a point at
    /// their time already; returns how many points of the tail gave way. `series` is who it is of.
    pub(crate) fn push(
        &mut self,
        series: SeriesId,
        packed: Vec<Arc<MemoryChunk>>,
        samples: &[Sample],
    ) -> u64 {
        // Series that are scraped together grow together; they must not all be packed at once.
        let limit = PACK_POINTS / 4 * 3 + series as usize % (PACK_POINTS / 2);
        if let (Some(tail), Some(first)) = (&self.tail, packed.first())
            && first.summary.time_ns.0 <= tail.time_ns().1
        {
            // Chunks come in order of age, and the tail after all of them.
            self.end_tail();
        }
        self.chunks.extend(packed);
        let replaced = self.add(samples);
        if let Some(full) = self.tail.take_if(|tail| tail.len() >= limit) {
            self.chunks.push(Arc::new(MemoryChunk::packed(&full.samples())));
        }
        replaced
    }

    /// Adds points to the tail; returns how many gave way.
    fn add(&mut self, samples: &[Sample]) -> u64 {
        let Some(first) = samples.first() else { return 0 };
        let Some(tail) = &mut self.tail else {
            self.tail = Tail::of(samples).map(Box::new);
            return 0;
        };
        if tail.time_ns().1 < first.time_ns {
            tail.extend(samples);
            return 0;
        }
        let mut all = tail.samples();
        all.extend_from_slice(samples);
        let count = all.len();
        chunk::settle(&mut all);
        self.tail = Tail::of(&all).map(Box::new);
        (count - all.len()) as u64
    }

    /// Makes the tail the latest chunk as it is.
    fn end_tail(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.chunks.push(Arc::new(MemoryChunk::ended(tail)));
        }
    }

    /// Marks everything as being sealed and returns it.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<MemoryChunk>> {
        self.end_tail();
        self.frozen = self.chunks.len();
        self.chunks.clone()
    }

    /// Forgets the first `count` chunks, which a segment holds now; returns how many points went.
    pub(crate) fn forget(&mut self, count: usize) -> u64 {
        let count = count.min(self.chunks.len());
        self.frozen = self.frozen.saturating_sub(count);
        self.chunks.drain(..count).map(|c| u64::from(c.summary.count)).sum()
    }

    /// Every chunk that overlaps the range, the tail as one of them.
    pub(crate) fn chunks(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = Arc<MemoryChunk>> + '_ {
        let tail = self.tail.as_ref().filter(|tail| reaches(tail.time_ns(), from_ns, to_ns));
        let tail = tail.map(|tail| Arc::new(MemoryChunk::open(tail)));
        self.chunks.iter().filter(move |c| c.summary.overlaps(from_ns, to_ns)).cloned().chain(tail)
    }

    /// First and last time of every chunk, the tail among them.
    fn times_ns(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.chunks.iter().map(|chunk| chunk.summary.time_ns).chain(self.tail.iter().map(|t| t.time_ns()))
    }

    /// The earliest time of the chunks that overlap the range.
    pub(crate) fn earliest_ns(&self, from_ns: i64, to_ns: i64) -> Option<i64> {
        self.times_ns().filter(|times| reaches(*times, from_ns, to_ns)).map(|(first_ns, _)| first_ns).min()
    }

    /// Whether it may hold a point of the range.
    pub(crate) fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        self.times_ns().any(|times| reaches(times, from_ns, to_ns))
    }

    /// How many points there are.
    pub(crate) fn points(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.summary.count)).sum::<u64>()
            + self.tail.as_ref().map_or(0, |tail| tail.len() as u64)
    }
}

/// Whether what lies between two times overlaps the range.
fn reaches((first_ns, last_ns): (i64, i64), from_ns: i64, to_ns: i64) -> bool {
    first_ns <= to_ns && from_ns <= last_ns
}
