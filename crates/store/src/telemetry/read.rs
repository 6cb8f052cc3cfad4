//! Answers: rows of many blocks, in order of time, while few of the blocks are unpacked at once.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{LogRecord, RecordAsk, Span, SpanAsk};

use super::block::Summary;
use super::head::{HeadBlock, KnownKeys};
use super::{Telemetry, records, spans};
use crate::store::Inner;

/// A block, wherever it lies.
#[derive(Debug, Clone)]
pub(super) enum Unit {
    Memory(Arc<HeadBlock>),
}

impl Unit {
    fn summary(&self) -> &Summary {
        match self {
            Self::Memory(block) => &block.summary,
        }
    }

    /// Where it is, for a message.
    fn place(&self) -> String {
        match self {
            Self::Memory(block) => format!("block {} in memory", block.number),
        }
    }

    fn bytes(&self) -> Arc<[u8]> {
        match self {
            Self::Memory(block) => block.bytes.clone(),
        }
    }
}

/// What an answer is made of, taken while the state was locked.
pub(super) struct Sources {
    /// In order of age.
    units: Vec<Unit>,
    keys: Vec<KnownKeys>,
}

impl Sources {
    pub(super) fn of(telemetry: &Telemetry, is_wanted: impl Fn(&Summary) -> bool) -> Self {
        let generations = || telemetry.frozen.iter().chain([&telemetry.current]);
        let blocks = generations().flat_map(|generation| &generation.blocks);
        let units = blocks.filter(|block| is_wanted(&block.summary)).cloned().map(Unit::Memory).collect();
        Self { units, keys: generations().map(super::head::Generation::known).collect() }
    }

    fn decode_spans(&self, unit: &Unit, ask: &SpanAsk) -> Result<Vec<Span>, String> {
        let bytes = unit.bytes();
        let keys: Vec<_> = self.keys.iter().map(KnownKeys::read).collect();
        let after = match unit {
            Unit::Memory(block) => block.number,
        };
        let mut is_shown = |key| !keys.iter().any(|keys| keys.has_later(key, after));
        let spans = spans::decode(&bytes, ask, &mut is_shown).ok_or("it can't be unpacked")?;
        Ok(spans.into_iter().map(|(_, span)| span).collect())
    }
}

/// What is handed out in order.
trait Row {
    fn start_ns(&self) -> i64;
    /// Among those of one start.
    fn tie(&self, other: &Self) -> Ordering;
}

impl Row for Span {
    fn start_ns(&self) -> i64 {
        self.start_ns
    }

    fn tie(&self, other: &Self) -> Ordering {
        let key = |span: &Self| (span.run, span.trace, span.id);
        let instance = || self.instance.cmp(&other.instance);
        self.run.cmp(&other.run).then_with(instance).then_with(|| key(self).cmp(&key(other)))
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

/// Rows of a unpacked block, or one that starts no earlier than the rest.
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
fn sweep<R: Row>(
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
                    damage(format!("{}: {why}", units[place].place()));
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
        sweep(&sources.units, &decode, &|why| self.report_damage(why), visit);
    }

    /// See [`crate::Store::records`].
    pub(crate) fn records(&self, ask: &RecordAsk, visit: &mut dyn FnMut(LogRecord) -> ControlFlow<()>) {
        let sources = {
            let state = self.read_state();
            let is_wanted = |summary: &Summary| summary.may_have_records(ask) && state.shows_run(summary.run);
            Sources::of(&state.telemetry, is_wanted)
        };
        let decode = |unit: &Unit| {
            records::decode(&unit.bytes(), ask).ok_or_else(|| "it can't be unpacked".to_owned())
        };
        sweep(&sources.units, &decode, &|why| self.report_damage(why), visit);
    }
}
