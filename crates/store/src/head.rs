//! The youngest points of a series, in memory until they are sealed into a segment.

use std::sync::Arc;

use model::Sample;

use crate::chunk::{self, Summary};

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
    Raw(Box<[Sample]>),
}

impl MemoryChunk {
    fn packed(samples: &[Sample]) -> Self {
        let points = Points::Packed(chunk::encode(samples).into_boxed_slice());
        Self { summary: Summary::of(samples), points }
    }

    fn raw(samples: &[Sample]) -> Self {
        Self { summary: Summary::of(samples), points: Points::Raw(samples.into()) }
    }

    pub(crate) fn samples(&self) -> Option<Vec<Sample>> {
        match &self.points {
            Points::Packed(bytes) => chunk::decode(bytes),
            Points::Raw(samples) => Some(samples.to_vec()),
        }
    }

    /// Appends times and values; `None` when they can't be decoded.
    pub(crate) fn columns(&self, times_ns: &mut Vec<i64>, values: &mut Vec<f64>) -> Option<()> {
        match &self.points {
            Points::Packed(bytes) => chunk::decode_columns(bytes, times_ns, values),
            Points::Raw(samples) => {
                times_ns.extend(samples.iter().map(|s| s.time_ns));
                values.extend(samples.iter().map(|s| s.value));
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

/// Packed chunks, which may overlap when points came late, and a short sorted tail.
#[derive(Debug, Default)]
pub(crate) struct Head {
    chunks: Vec<Arc<MemoryChunk>>,
    /// The first so many chunks are being sealed.
    frozen: usize,
    tail: Vec<Sample>,
}

impl Head {
    /// Whether there is nothing that a next seal would have to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.chunks.len() == self.frozen
    }

    /// Takes chunks and points, each in order of time. They count where the series has a point at
    /// their time already; returns how many points of the tail gave way.
    pub(crate) fn push(&mut self, packed: Vec<Arc<MemoryChunk>>, samples: &[Sample]) -> u64 {
        if let (Some(last), Some(first)) = (self.tail.last(), packed.first())
            && first.summary.time_ns.0 <= last.time_ns
        {
            // Chunks come in order of age, and the tail after all of them.
            self.chunks.push(Arc::new(MemoryChunk::raw(&self.tail)));
            self.tail.clear();
        }
        self.chunks.extend(packed);
        let in_order = match (self.tail.last(), samples.first()) {
            (Some(last), Some(first)) => last.time_ns < first.time_ns,
            _ => true,
        };
        self.tail.extend_from_slice(samples);
        let before = self.tail.len();
        if !in_order {
            chunk::settle(&mut self.tail);
        }
        let replaced = (before - self.tail.len()) as u64;
        let (packed, rest) = pack(&self.tail);
        if !packed.is_empty() {
            self.tail = rest.to_vec();
            self.chunks.extend(packed);
        }
        replaced
    }

    /// Marks everything as being sealed and returns it.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<MemoryChunk>> {
        if !self.tail.is_empty() {
            self.chunks.push(Arc::new(MemoryChunk::raw(&self.tail)));
            self.tail = Vec::new();
        }
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
        let tail = (!self.tail.is_empty()).then(|| Arc::new(MemoryChunk::raw(&self.tail)));
        self.chunks.iter().cloned().chain(tail).filter(move |c| c.summary.overlaps(from_ns, to_ns))
    }

    /// How many points there are.
    pub(crate) fn points(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.summary.count)).sum::<u64>() + self.tail.len() as u64
    }
}
