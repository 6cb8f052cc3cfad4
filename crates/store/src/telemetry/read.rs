//! Answers: rows of many blocks, in order of time, while few of the blocks are unpacked at once.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{LogRecord, RecordAsk, Span, SpanAsk};

use super::block::{Kind, Summary};
use super::file::SealedFile;
use super::head::{Generation, HeadBlock, KnownKeys};
use super::{Telemetry, records, spans};
use crate::store::Inner;

/// A block, wherever it lies.
#[derive(Debug, Clone)]
pub(super) enum Unit {
    Stored(Arc<SealedFile>, usize),
    Memory(Arc<HeadBlock>),
}

impl Unit {
    pub(super) fn summary(&self) -> &Summary {
        match self {
            Self::Stored(file, place) => &file.entries[*place].summary,
            Self::Memory(block) => &block.summary,
        }
    }

    /// Its bytes, unpacked by `decode`; an error says in words what and where the damage is.
    fn decoded<T>(&self, decode: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, String> {
        let broken = |place: String| move || format!("{place}: it can't be unpacked");
        match self {
            Self::Stored(file, place) => decode(&file.block(*place)?)
                .ok_or_else(broken(format!("`{}`: block {place}", file.path.display()))),
            Self::Memory(block) => {
                decode(&block.bytes).ok_or_else(broken(format!("block {} in memory", block.number)))
            }
        }
    }
}

/// What an answer is made of, taken while the state was locked.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// In order of age.
    pub(super) units: Vec<Unit>,
    keys: Vec<KnownKeys>,
    files: Vec<Arc<SealedFile>>,
}

impl Sources {
    pub(super) fn of(telemetry: &Telemetry, is_wanted: impl Fn(&Summary) -> bool) -> Self {
        let generations = || telemetry.frozen.iter().chain([&telemetry.current]);
        let blocks = generations().flat_map(|generation| &generation.blocks);
        let in_memory = blocks.filter(|block| is_wanted(&block.summary)).cloned().map(Unit::Memory);
        let mut units = Vec::new();
        for file in &telemetry.files {
            let wanted = file.living().filter(|(_, entry)| is_wanted(&entry.summary));
            units.extend(wanted.map(|(place, _)| Unit::Stored(file.clone(), place)));
        }
        units.extend(in_memory);
        let files =
            telemetry.files.iter().filter(|file| file.manifest.kind == Kind::Spans).cloned().collect();
        Self { units, keys: generations().map(Generation::known).collect(), files }
    }

    /// The rows of some files, as all that is there lets them count.
    pub(super) fn of_files(telemetry: &Telemetry, files: &[Arc<SealedFile>]) -> Self {
        let of_file = |file: &Arc<SealedFile>| {
            let units = file.living().map(|(place, _)| Unit::Stored(file.clone(), place));
            units.collect::<Vec<_>>()
        };
        Self { units: files.iter().flat_map(of_file).collect(), ..Self::of(telemetry, |_| false) }
    }

    /// One generation, as if there were nothing else.
    pub(super) fn of_generation(generation: &Generation) -> Self {
        let units = generation.blocks.iter().cloned().map(Unit::Memory).collect();
        Self { units, keys: vec![generation.known()], files: Vec::new() }
    }

    /// The spans of a block that are asked for and that nothing later replaces.
    pub(super) fn decode_spans(&self, unit: &Unit, ask: &SpanAsk) -> Result<Vec<(u64, Span)>, String> {
        let keys: Vec<_> = self.keys.iter().map(KnownKeys::read).collect();
        let (after, later) = match unit {
            Unit::Memory(block) => (block.number, &[][..]),
            Unit::Stored(file, _) => {
                let later = self.files.partition_point(|other| other.manifest.age <= file.manifest.age);
                (0, &self.files[later..])
            }
        };
        let mut is_shown = |key| {
            !keys.iter().any(|keys| keys.has_later(key, after))
                && !later.iter().any(|file| file.replaces(key))
        };
        unit.decoded(|bytes| spans::decode(bytes, ask, &mut is_shown))
    }
}

/// The records of a block that are asked for.
pub(super) fn decode_records(unit: &Unit, ask: &RecordAsk) -> Result<Vec<LogRecord>, String> {
    unit.decoded(|bytes| records::decode(bytes, ask))
}

/// What is handed out in order.
pub(super) trait Row {
    fn start_ns(&self) -> i64;
    /// Among those of one start.
    fn tie(&self, other: &Self) -> Ordering;
}

impl Row for (u64, Span) {
    fn start_ns(&self) -> i64 {
        self.1.start_ns
    }

    fn tie(&self, (_, b): &Self) -> Ordering {
        let a = &self.1;
        let process = || (&a.instance, a.incarnation).cmp(&(&b.instance, b.incarnation));
        a.run.cmp(&b.run).then_with(process).then_with(|| (a.trace, a.id).cmp(&(b.trace, b.id)))
    }
}

impl Row for LogRecord {
    fn start_ns(&self) -> i64 {
        self.time_ns
    }

    fn tie(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// The next row of an unpacked block, or a packed one by the start of its first row.
enum Waiting<R> {
    Packed(i64, usize),
    /// The next row, the place of the unit, and the rest.
    Open(R, usize, std::vec::IntoIter<R>),
}

impl<R: Row> Waiting<R> {
    fn start_ns(&self) -> i64 {
        match self {
            Self::Packed(first_ns, _) => *first_ns,
            Self::Open(row, ..) => row.start_ns(),
        }
    }
}

impl<R: Row> Ord for Waiting<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.start_ns().cmp(&other.start_ns()).then_with(|| match (self, other) {
            // What may hold the very next row is unpacked first.
            (Self::Packed(_, a), Self::Packed(_, b)) => a.cmp(b),
            (Self::Packed(..), Self::Open(..)) => Ordering::Less,
            (Self::Open(..), Self::Packed(..)) => Ordering::Greater,
            (Self::Open(a, of_a, _), Self::Open(b, of_b, _)) => a.tie(b).then(of_a.cmp(of_b)),
        })
    }
}

impl<R: Row> PartialOrd for Waiting<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Row> PartialEq for Waiting<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: Row> Eq for Waiting<R> {}

/// Hands out the rows of all units in order. What can't be read is reported and left out.
pub(super) fn sweep<R: Row>(
    units: &[Unit],
    decode: &dyn Fn(&Unit) -> Result<Vec<R>, String>,
    damage: &dyn Fn(String),
    visit: &mut dyn FnMut(R) -> ControlFlow<()>,
) {
    let packed = |(place, unit): (usize, &Unit)| Reverse(Waiting::Packed(unit.summary().first_ns, place));
    let mut heap: BinaryHeap<_> = units.iter().enumerate().map(packed).collect();
    while let Some(Reverse(next)) = heap.pop() {
        let (place, mut rows) = match next {
            Waiting::Packed(_, place) => match decode(&units[place]) {
                Ok(rows) => (place, rows.into_iter()),
                Err(why) => {
                    damage(why);
                    continue;
                }
            },
            Waiting::Open(row, place, rows) => {
                if visit(row).is_break() {
                    return;
                }
                (place, rows)
            }
        };
        if let Some(row) = rows.next() {
            heap.push(Reverse(Waiting::Open(row, place, rows)));
        }
    }
}

impl Inner {
    /// See [`crate::Store::spans`].
    pub(crate) fn spans(&self, ask: &SpanAsk, visit: &mut dyn FnMut(Span) -> ControlFlow<()>) {
        let sources = {
            let state = self.read_state();
            let is_wanted = |summary: &Summary| summary.may_have_spans(ask) && state.shows_run(summary.run);
            Sources::of(&state.telemetry, is_wanted)
        };
        let decode = |unit: &Unit| sources.decode_spans(unit, ask);
        sweep(&sources.units, &decode, &|why| self.report_damage(why), &mut |(_, span)| visit(span));
    }

    /// See [`crate::Store::records`].
    pub(crate) fn records(&self, ask: &RecordAsk, visit: &mut dyn FnMut(LogRecord) -> ControlFlow<()>) {
        let sources = {
            let state = self.read_state();
            let is_wanted = |summary: &Summary| summary.may_have_records(ask) && state.shows_run(summary.run);
            Sources::of(&state.telemetry, is_wanted)
        };
        let decode = |unit: &Unit| decode_records(unit, ask);
        let mut seen = SameTime::default();
        sweep(&sources.units, &decode, &|why| self.report_damage(why), &mut |record: LogRecord| {
            if seen.has(&record) { ControlFlow::Continue(()) } else { visit(record) }
        });
    }
}

/// Records of the time that is read, to tell one that was sent again: a record has no id, so one that is
/// equal in all is taken for the same.
#[derive(Default)]
struct SameTime(Vec<LogRecord>);

/// Most records of one nanosecond that are compared with.
const COMPARED_MAX: usize = 256;

impl SameTime {
    /// Whether an equal record was there before; remembers this one.
    fn has(&mut self, record: &LogRecord) -> bool {
        if self.0.first().is_some_and(|first| first.time_ns != record.time_ns) {
            self.0.clear();
        }
        let has = self.0.contains(record);
        if !has && self.0.len() < COMPARED_MAX {
            self.0.push(record.clone());
        }
        has
    }
}
