//! The youngest points of a series, in memory until they are sealed into a segment.

use std::sync::Arc;

use model::Sample;

use crate::SeriesId;
use crate::chunk::{self, Summary};
use crate::column::Effort;

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
    Raw(Tail),
}

impl MemoryChunk {
    fn packed(samples: &[Sample]) -> Self {
        let points = Points::Packed(chunk::encode(samples, Effort::Quick).into_boxed_slice());
        Self { summary: Summary::of(samples), points }
    }

    /// Of a tail that is not empty.
    fn raw(tail: Tail) -> Self {
        Self { summary: Summary::of(&tail.samples()), points: Points::Raw(tail) }
    }

    pub(crate) fn samples(&self) -> Option<Vec<Sample>> {
        match &self.points {
            Points::Packed(bytes) => chunk::decode(bytes, None),
            Points::Raw(tail) => Some(tail.samples()),
        }
    }

    /// Appends times and values; `None` when they can't be decoded.
    pub(crate) fn columns(&self, times_ns: &mut Vec<i64>, values: &mut Vec<f64>) -> Option<()> {
        match &self.points {
            Points::Packed(bytes) => chunk::decode_columns(bytes, None, times_ns, values),
            Points::Raw(tail) => {
                times_ns.extend(tail.points.iter().map(|(time_ns, _)| time_ns));
                values.extend(tail.points.iter().map(|(_, value)| value));
                Some(())
            }
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

/// The latest points of a series, in order of time: most of the memory that many series take, so
/// steps are there only when a point has one.
#[derive(Debug, Clone, Default)]
struct Tail {
    points: Vec<(i64, f64)>,
    /// Of every point, or empty.
    steps: Vec<Option<i64>>,
}

impl Tail {
    fn of(samples: &[Sample]) -> Self {
        let mut tail = Self::default();
        tail.extend(samples);
        tail
    }

    fn extend(&mut self, samples: &[Sample]) {
        if self.points.capacity() - self.points.len() < samples.len() {
            // Doubling would leave half of it unused.
            self.points.reserve_exact(samples.len().max(self.points.len() / 2).max(4));
        }
        if self.steps.is_empty() && samples.iter().any(|s| s.step.is_some()) {
            self.steps = vec![None; self.points.len()];
            self.steps.extend(samples.iter().map(|s| s.step));
        } else if !self.steps.is_empty() {
            self.steps.extend(samples.iter().map(|s| s.step));
        }
        self.points.extend(samples.iter().map(|s| (s.time_ns, s.value)));
    }

    fn samples(&self) -> Vec<Sample> {
        let step = |at: usize| self.steps.get(at).copied().flatten();
        let points = self.points.iter().enumerate();
        points
            .map(|(at, (time_ns, value))| Sample { time_ns: *time_ns, value: *value, step: step(at) })
            .collect()
    }

    fn last_ns(&self) -> Option<i64> {
        self.points.last().map(|(time_ns, _)| *time_ns)
    }
}

/// Packed chunks, which may overlap when points came late, and a short sorted tail.
#[derive(Debug, Default)]
pub(crate) struct Head {
    chunks: Vec<Arc<MemoryChunk>>,
    /// The first so many chunks are being sealed.
    frozen: usize,
    tail: Tail,
}

impl Head {
    /// Whether there is nothing that a next seal would have to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.points.is_empty() && self.chunks.len() == self.frozen
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
        if let (Some(last_ns), Some(first)) = (self.tail.last_ns(), packed.first())
            && first.summary.time_ns.0 <= last_ns
        {
            // Chunks come in order of age, and the tail after all of them.
            self.end_tail();
        }
        self.chunks.extend(packed);
        let in_order = match (self.tail.last_ns(), samples.first()) {
            (Some(last_ns), Some(first)) => last_ns < first.time_ns,
            _ => true,
        };
        self.tail.extend(samples);
        let mut replaced = 0;
        if !in_order {
            let mut all = self.tail.samples();
            chunk::settle(&mut all);
            replaced = (self.tail.points.len() - all.len()) as u64;
            self.tail = Tail::of(&all);
        }
        if self.tail.points.len() >= limit {
            self.chunks.push(Arc::new(MemoryChunk::packed(&self.tail.samples())));
            self.tail = Tail::default();
        }
        replaced
    }

    /// Makes the tail the latest chunk as it is.
    fn end_tail(&mut self) {
        let tail = std::mem::take(&mut self.tail);
        if !tail.points.is_empty() {
            self.chunks.push(Arc::new(MemoryChunk::raw(tail)));
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
        let is_wanted = self.tail.points.first().is_some_and(|(first_ns, _)| *first_ns <= to_ns)
            && self.tail.last_ns().is_some_and(|last_ns| from_ns <= last_ns);
        let tail = is_wanted.then(|| Arc::new(MemoryChunk::raw(self.tail.clone())));
        self.chunks.iter().cloned().chain(tail).filter(move |c| c.summary.overlaps(from_ns, to_ns))
    }

    /// The earliest time of the chunks that overlap the range.
    pub(crate) fn earliest_ns(&self, from_ns: i64, to_ns: i64) -> Option<i64> {
        let tail = self.tail.points.first().map(|(first_ns, _)| *first_ns).zip(self.tail.last_ns());
        let chunks = self.chunks.iter().map(|chunk| chunk.summary.time_ns).chain(tail);
        let times = chunks.filter(|(first_ns, last_ns)| *first_ns <= to_ns && from_ns <= *last_ns);
        times.map(|(first_ns, _)| first_ns).min()
    }

    /// Whether it may hold a point of the range.
    pub(crate) fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        let first_ns = self.tail.points.first().map(|(first_ns, _)| *first_ns);
        let tail = first_ns.zip(self.tail.last_ns()).is_some_and(|(f, l)| f <= to_ns && from_ns <= l);
        tail || self.chunks.iter().any(|chunk| chunk.summary.overlaps(from_ns, to_ns))
    }

    /// How many points there are.
    pub(crate) fn points(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.summary.count)).sum::<u64>() + self.tail.points.len() as u64
    }
}
