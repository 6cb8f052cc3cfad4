//! Reading a series: its chunks from segments and memory, in order of time and never overlapping.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::Sample;

use crate::SeriesId;
use crate::chunk::{Chunk, Summary};
use crate::head::MemoryChunk;
use crate::segment::{Encoded, Entry, SEALED_POINTS_MAX, Segment};
use crate::series::State;

/// Why something can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}: {reason}")]
pub struct ReadError {
    /// What was to be read.
    pub what: String,
    /// What was found, and where.
    pub reason: String,
}

/// A chunk, wherever it rests.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Memory(Arc<MemoryChunk>),
    Stored(SeriesId, Arc<Segment>, Entry),
}

impl Piece {
    pub(crate) fn summary(&self) -> &Summary {
        match self {
            Self::Memory(chunk) => &chunk.summary,
            Self::Stored(_, _, entry) => &entry.summary,
        }
    }

    /// The points; an error says in words what and where the damage is.
    pub(crate) fn samples(&self) -> Result<Vec<Sample>, String> {
        match self {
            Self::Memory(chunk) => chunk.samples().ok_or_else(|| "a chunk in memory is damaged".to_owned()),
            Self::Stored(series, segment, entry) => segment.samples(*series, entry),
        }
    }
}

/// What a series is read from, taken while the state is locked and used after it was let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    memory: Vec<Arc<MemoryChunk>>,
    segments: Vec<Arc<Segment>>,
}

impl Sources {
    pub(crate) fn of(state: &State, series: SeriesId, from_ns: i64, to_ns: i64) -> Self {
        let Some(known) = state.series.get(series) else { return Self::default() };
        let holds = |segment: &&Arc<Segment>| {
            segment.class.is_raw()
                && segment.time_ns.0 <= to_ns
                && from_ns <= segment.time_ns.1
                && segment.find(series).is_some_and(|listed| listed.overlaps(from_ns, to_ns))
        };
        Self {
            memory: known.head.chunks(from_ns, to_ns).collect(),
            segments: state.segments.iter().filter(holds).cloned().collect(),
        }
    }

    /// Without what is in memory.
    pub(crate) fn sealed(self) -> Self {
        Self { memory: Vec::new(), ..self }
    }

    /// Without what is in roll-ups.
    pub(crate) fn not_rolled(mut self) -> Self {
        self.segments.retain(|segment| !segment.is_rolled());
        self
    }

    /// The chunks that overlap the range, in order of age.
    pub(crate) fn pieces(
        self,
        series: SeriesId,
        (from_ns, to_ns): (i64, i64),
        damage: &mut dyn FnMut(String),
    ) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.memory.len());
        for segment in self.segments {
            for entry in segment.entries(series, damage) {
                if entry.summary.overlaps(from_ns, to_ns) {
                    pieces.push(Piece::Stored(series, segment.clone(), entry));
                }
            }
        }
        pieces.extend(self.memory.into_iter().map(Piece::Memory));
        pieces
    }
}

/// A part of a series as [`sweep`] hands it out.
#[derive(Debug)]
pub(crate) enum Part {
    /// A chunk that overlaps no other.
    Whole(Piece),
    /// Points of chunks that overlap, in order of time.
    Merged(Vec<Sample>),
}

/// Hands the points of `pieces`, which come in order of age, to `emit` in order of time. Where two
/// have a point at one time, the later piece's counts. Chunks that overlap no other stay
/// undecoded; of the others only those that overlap each other are in memory at once.
pub(crate) fn sweep(
    pieces: Vec<Piece>,
    damage: &mut dyn FnMut(String),
    emit: &mut dyn FnMut(Part) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut pieces: Vec<(usize, Piece)> = pieces.into_iter().enumerate().collect();
    pieces.sort_by_key(|(_, piece)| piece.summary().time_ns);
    let mut pending: Vec<(usize, Sample)> = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    while let Some((age, piece)) = pieces.next() {
        let (first_ns, last_ns) = piece.summary().time_ns;
        let ready = pending.partition_point(|(_, s)| s.time_ns < first_ns);
        emit_merged(&mut pending, ready, emit)?;
        let alone = pieces.peek().is_none_or(|(_, next)| next.summary().time_ns.0 > last_ns);
        if pending.is_empty() && alone {
            emit(Part::Whole(piece))?;
            continue;
        }
        match piece.samples() {
            Ok(samples) => {
                pending.extend(samples.into_iter().map(|sample| (age, sample)));
                pending.sort_by_key(|(age, s)| (s.time_ns, std::cmp::Reverse(*age)));
                pending.dedup_by_key(|(_, s)| s.time_ns);
            }
            Err(why) => damage(why),
        }
    }
    let ready = pending.len();
    emit_merged(&mut pending, ready, emit)
}

fn emit_merged(
    pending: &mut Vec<(usize, Sample)>,
    ready: usize,
    emit: &mut dyn FnMut(Part) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for samples in pending[..ready].chunks(SEALED_POINTS_MAX) {
        emit(Part::Merged(samples.iter().map(|(_, sample)| *sample).collect()))?;
    }
    pending.drain(..ready);
    ControlFlow::Continue(())
}

/// A [`Part::Whole`] as a reader sees it: its bytes are read and sound, and not decoded yet.
pub(crate) struct WholeChunk {
    series: SeriesId,
    summary: Summary,
    points: WholePoints,
}

enum WholePoints {
    Memory(Arc<MemoryChunk>),
    Encoded(Encoded),
}

impl WholeChunk {
    /// Reads the bytes; an error says in words what and where the damage is.
    pub(crate) fn load(series: SeriesId, piece: Piece) -> Result<Self, String> {
        let summary = *piece.summary();
        let points = match piece {
            Piece::Memory(chunk) => WholePoints::Memory(chunk),
            Piece::Stored(series, segment, entry) => WholePoints::Encoded(segment.chunk(series, &entry)?),
        };
        Ok(Self { series, summary, points })
    }
}

impl Chunk for WholeChunk {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn samples(&self) -> Result<Vec<Sample>, ReadError> {
        let samples = match &self.points {
            WholePoints::Memory(chunk) => chunk.samples(),
            WholePoints::Encoded(chunk) => chunk.samples(),
        };
        let broken = || "a sound chunk can't be decoded by this version".to_owned();
        samples.ok_or_else(|| ReadError { what: format!("series {}", self.series), reason: broken() })
    }
}

/// A piece of a series in order of time, as [`crate::Store::scan`] hands it out. Its points are read
/// and decoded when they are asked for.
pub struct Block<'s> {
    pub(crate) series: SeriesId,
    pub(crate) summary: Summary,
    pub(crate) part: Part,
    pub(crate) damage: &'s dyn Fn(String),
}

impl std::fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("series", &self.series).field("summary", &self.summary).finish()
    }
}

impl Block<'_> {
    /// What is known without reading the points.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Appends times, strictly rising, and values of all points. A damaged block appends nothing and
    /// is reported in [`crate::Status::damage`]; an error is one written by something newer.
    pub fn columns(&self, times_ns: &mut Vec<i64>, values: &mut Vec<f64>) -> Result<(), ReadError> {
        let append = |samples: &[Sample], times_ns: &mut Vec<i64>, values: &mut Vec<f64>| {
            times_ns.extend(samples.iter().map(|s| s.time_ns));
            values.extend(samples.iter().map(|s| s.value));
        };
        let decoded = match &self.part {
            Part::Merged(samples) => {
                append(samples, times_ns, values);
                Some(())
            }
            Part::Whole(Piece::Memory(chunk)) => chunk.columns(times_ns, values),
            Part::Whole(Piece::Stored(series, segment, entry)) => match segment.chunk(*series, entry) {
                Ok(chunk) => chunk.columns(times_ns, values),
                Err(why) => {
                    (self.damage)(why);
                    Some(())
                }
            },
        };
        let broken = || "a sound chunk can't be decoded by this version".to_owned();
        decoded.ok_or_else(|| ReadError { what: format!("series {}", self.series), reason: broken() })
    }
}

/// A [`Part::Merged`] as a reader sees it.
pub(crate) struct MergedChunk {
    pub(crate) summary: Summary,
    pub(crate) samples: Vec<Sample>,
}

impl Chunk for MergedChunk {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn samples(&self) -> Result<Vec<Sample>, ReadError> {
        Ok(self.samples.clone())
    }
}
