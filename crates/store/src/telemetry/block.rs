//! A block: up to a few thousand spans or log records of one run, packed, and what it holds in short.
//!
//! The same bytes are a row of the log, rest in memory, and lie in a file. The bytes are described in
//! `docs/format/spans.md`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use model::{RecordAsk, RunId, SpanAsk, SpanId, TraceId};

use super::filter::Filter;
use super::pack::Source;
use crate::codec::{Reader, put_bytes, put_i64, put_u64};

const VERSION: u8 = 1;
/// Of a block with more names than this they are not listed.
const NAMES_MAX: usize = 64;

/// What a block or a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Spans,
    Records,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Spans, Self::Records];

    /// What it is called, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Records => "records",
        }
    }

    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Spans => 1,
            Self::Records => 2,
        }
    }

    pub(crate) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte)
    }
}

/// What is known of a block without unpacking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) kind: Kind,
    pub(crate) run: Option<RunId>,
    pub(crate) count: u32,
    /// Start of the first row; rows are in order of start.
    pub(crate) first_ns: i64,
    /// The time that rows touch.
    pub(crate) time_ns: (i64, i64),
    pub(crate) iterations: Option<(i64, i64)>,
    pub(crate) ranks: Option<(u32, u32)>,
    pub(crate) severity_max: u8,
    /// Sorted; none when there are too many.
    pub(crate) names: Option<Vec<String>>,
    /// The traces that it may have.
    pub(crate) traces: Filter,
}

impl Summary {
    pub(super) fn new(kind: Kind, run: Option<RunId>) -> Self {
        Self {
            kind,
            run,
            count: 0,
            first_ns: i64::MAX,
            time_ns: (i64::MAX, i64::MIN),
            iterations: None,
            ranks: None,
            severity_max: 0,
            names: None,
            traces: Filter::default(),
        }
    }

    /// Counts a row in.
    pub(super) fn reach(&mut self, time_ns: (i64, i64), rank: Option<u32>, iteration: Option<i64>) {
        self.count += 1;
        self.first_ns = self.first_ns.min(time_ns.0);
        self.time_ns.0 = self.time_ns.0.min(time_ns.0).min(time_ns.1);
        self.time_ns.1 = self.time_ns.1.max(time_ns.0).max(time_ns.1);
        if let Some(rank) = rank {
            let (least, greatest) = self.ranks.unwrap_or((rank, rank));
            self.ranks = Some((least.min(rank), greatest.max(rank)));
        }
        if let Some(iteration) = iteration {
            let (least, greatest) = self.iterations.unwrap_or((iteration, iteration));
            self.iterations = Some((least.min(iteration), greatest.max(iteration)));
        }
    }

    pub(super) fn name_all(&mut self, mut names: Vec<&str>) {
        names.sort_unstable();
        names.dedup();
        self.names = (names.len() <= NAMES_MAX).then(|| names.into_iter().map(str::to_owned).collect());
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, self.kind.byte(), u8::from(self.run.is_some())]);
        out.extend(self.run.iter().flat_map(|run| run.0));
        put_u64(out, u64::from(self.count));
        put_i64(out, self.time_ns.0);
        put_u64(out, self.time_ns.1.wrapping_sub(self.time_ns.0) as u64);
        put_u64(out, self.first_ns.wrapping_sub(self.time_ns.0) as u64);
        out.push(u8::from(self.iterations.is_some()));
        if let Some((least, greatest)) = self.iterations {
            put_i64(out, least);
            put_u64(out, greatest.wrapping_sub(least) as u64);
        }
        out.push(u8::from(self.ranks.is_some()));
        if let Some((least, greatest)) = self.ranks {
            put_u64(out, u64::from(least));
            put_u64(out, u64::from(greatest - least));
        }
        out.push(self.severity_max);
        let names = self.names.as_deref();
        put_u64(out, names.map_or(0, |names| names.len() as u64 + 1));
        for name in names.into_iter().flatten() {
            put_bytes(out, name.as_bytes());
        }
        put_bytes(out, self.traces.bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.byte()? != VERSION {
            return None;
        }
        let mut summary = Self::new(Kind::of(reader.byte()?)?, None);
        if reader.byte()? != 0 {
            summary.run = Some(RunId(reader.array()?));
        }
        summary.count = reader.u32()?;
        let first_ns = reader.i64()?;
        summary.time_ns = (first_ns, first_ns.wrapping_add(reader.u64()? as i64));
        summary.first_ns = first_ns.wrapping_add(reader.u64()? as i64);
        if reader.byte()? != 0 {
            let least = reader.i64()?;
            summary.iterations = Some((least, least.wrapping_add(reader.u64()? as i64)));
        }
        if reader.byte()? != 0 {
            let least = reader.u32()?;
            summary.ranks = Some((least, least.checked_add(reader.u32()?)?));
        }
        summary.severity_max = reader.byte()?;
        if let Some(count) = reader.count(1)?.checked_sub(1) {
            summary.names = Some((0..count).map(|_| reader.text()).collect::<Option<_>>()?);
        }
        summary.traces = Filter::from_bytes(reader.bytes()?.to_vec())?;
        Some(summary)
    }

    /// Whether a row of it may touch the time.
    fn touches(&self, time_ns: &RangeInclusive<i64>) -> bool {
        self.time_ns.0 <= *time_ns.end() && *time_ns.start() <= self.time_ns.1
    }

    fn has_rank(&self, ranks: Option<&[u32]>) -> bool {
        let Some(ranks) = ranks else { return true };
        let Some((least, greatest)) = self.ranks else { return false };
        ranks.iter().any(|rank| (least..=greatest).contains(rank))
    }

    /// Whether it may hold spans that are asked for.
    pub(crate) fn may_have_spans(&self, ask: &SpanAsk) -> bool {
        let has_iteration = ask.iterations.as_ref().is_none_or(|wanted| {
            let known = self.iterations;
            known.is_some_and(|(least, greatest)| least <= *wanted.end() && *wanted.start() <= greatest)
        });
        let has_name = ask.names.as_ref().is_none_or(|wanted| {
            let known = self.names.as_ref();
            known.is_none_or(|known| wanted.iter().any(|name| known.binary_search(name).is_ok()))
        });
        self.kind == Kind::Spans
            && ask.run.is_none_or(|run| self.run == Some(run))
            && self.touches(&ask.time_ns)
            && has_iteration
            && has_name
            && ask.trace.is_none_or(|trace| self.traces.may_have_trace(&trace))
            && self.has_rank(ask.ranks.as_deref())
    }

    /// Whether it may hold log records that are asked for.
    pub(crate) fn may_have_records(&self, ask: &RecordAsk) -> bool {
        self.kind == Kind::Records
            && ask.run.is_none_or(|run| self.run == Some(run))
            && self.touches(&ask.time_ns)
            && self.severity_max >= ask.severity_min
            && ask.trace.is_none_or(|trace| self.traces.may_have_trace(&trace))
            && self.has_rank(ask.ranks.as_deref())
    }
}

/// A packed block that was not given a number yet.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) summary: Summary,
    /// Summary and rows.
    pub(crate) bytes: Arc<[u8]>,
    /// What each span is known by, hashed; empty for records.
    pub(crate) keys: Vec<u64>,
}

/// What a span is known by, as one number that is the same for ever.
pub(super) fn key_of(run: Option<RunId>, source: &Source<'_>, trace: &TraceId, id: SpanId) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut key = run.map_or(1, |run| u64::from_le_bytes(run.0));
    let instance = source.instance.as_bytes();
    for part in instance.chunks(8).chain(trace.chunks(8)).chain([&id[..]]) {
        key = mixed(key, word(part));
    }
    mixed(key, u64::from(source.incarnation) << 32 ^ instance.len() as u64)
}

pub(super) fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64) ^ (product >> 64) as u64
}
