//! Spans and log records: packed where they arrive, in the log and in memory as blocks, later in files.
//!
//! What arrives together is packed by the thread that brings it (`spans`, `records`, `pack`, `block`);
//! the one commit of everything keeps the blocks and shows them (`head`). Now and then they become
//! files (`seal`, `file`, `filter`). `read` answers from blocks, wherever they lie.

mod block;
pub(crate) mod file;
mod filter;
mod head;
mod pack;
mod read;
mod records;
mod seal;
mod spans;

use std::sync::Arc;

use foldhash::{HashSet, HashSetExt};
use model::{LogRecord, RunId, Span};

use block::Summary;
pub(crate) use block::{Block, Kind};
use file::SealedFile;
use head::Generation;

use crate::codec::Reader;
use crate::column::Effort;
use crate::series::State;

/// Most rows of a block.
const ROWS_MAX: usize = 4_096;
/// Most rows of a block of the log.
const LOGGED_ROWS_MAX: usize = 1_024;
/// Most bytes, about and unpacked, of a block of more than one row.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// What memory knows of spans and log records.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    /// Blocks that are becoming files.
    pub(crate) frozen: Option<Generation>,
    /// Blocks since.
    pub(crate) current: Generation,
    /// In order of age: of two that have a span of one key the later one's counts.
    pub(crate) files: Vec<Arc<SealedFile>>,
}

impl Telemetry {
    /// Shows a block of the log.
    pub(crate) fn push(&mut self, number: u64, block: Block) {
        self.current.push(number, block);
    }

    /// Puts a file in the place of another.
    fn replace(&mut self, old: &SealedFile, new: Arc<SealedFile>) {
        for file in self.files.iter_mut().filter(|file| file.id == old.id) {
            *file = new.clone();
        }
    }

    /// Rows that are kept, repeated ones included.
    pub(crate) fn rows(&self, kind: Kind) -> u64 {
        let blocks = self.frozen.iter().chain([&self.current]).flat_map(|generation| &generation.blocks);
        let in_memory = blocks.map(|block| &block.summary).filter(|summary| summary.kind == kind);
        let files = self.files.iter().filter(|file| file.manifest.kind == kind);
        let sealed = files.flat_map(|file| file.living()).map(|(_, entry)| &entry.summary);
        in_memory.chain(sealed).map(|summary| u64::from(summary.count)).sum()
    }

    /// Rows that are in no file.
    pub(crate) fn head_rows(&self) -> u64 {
        self.current.rows + self.frozen.as_ref().map_or(0, |frozen| frozen.rows)
    }

    /// Files as they are once some runs are gone: those that held nothing else, and the others, with
    /// their manifests.
    pub(crate) fn without_runs(
        &self,
        is_gone: impl Fn(RunId) -> bool,
    ) -> (Vec<Arc<SealedFile>>, Vec<Arc<SealedFile>>) {
        let has =
            |file: &&Arc<SealedFile>| file.living().any(|(_, entry)| entry.summary.run.is_some_and(&is_gone));
        let left = |file: &Arc<SealedFile>| {
            let mut left = (**file).clone();
            let gone = file.living().filter_map(|(_, entry)| entry.summary.run.filter(|run| is_gone(*run)));
            left.manifest.gone.extend(gone);
            Arc::new(left)
        };
        self.files.iter().filter(has).map(left).partition(|file| file.living().next().is_none())
    }

    /// Shows what [`Telemetry::without_runs`] found.
    pub(crate) fn take_files(&mut self, dead: &[Arc<SealedFile>], left: &[Arc<SealedFile>]) {
        self.files.retain(|file| dead.iter().all(|dead| dead.id != file.id));
        for file in left {
            self.replace(&file.clone(), file.clone());
        }
    }

    /// The numbers of the rows of runs that are gone.
    pub(crate) fn rows_of(&self, is_gone: impl Fn(RunId) -> bool) -> Vec<u64> {
        let blocks = self.frozen.iter().chain([&self.current]).flat_map(|generation| &generation.blocks);
        blocks.filter(|block| block.summary.run.is_some_and(&is_gone)).map(|block| block.number).collect()
    }

    /// Forgets what is in memory of runs that are gone.
    pub(crate) fn forget_runs(&mut self, is_gone: impl Fn(RunId) -> bool) {
        for generation in self.frozen.iter_mut().chain([&mut self.current]) {
            generation.forget_runs(&is_gone);
        }
    }
}

impl State {
    /// Whether what is of a run may be seen; what is of none always may.
    pub(crate) fn shows_run(&self, run: Option<RunId>) -> bool {
        run.and_then(|run| self.runs.get(&run)).is_none_or(|run| run.deleted_ns.is_none())
    }
}

/// Packs what arrived together. Of spans with one key the last counts.
pub(crate) fn pack(spans: &[Span], records: &[LogRecord]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut seen = HashSet::with_capacity(spans.len());
    let keyed = spans.iter().rev().map(|span| (spans::key(span), span));
    let mut keyed: Vec<(u64, &Span)> = keyed.filter(|(key, _)| seen.insert(*key)).collect();
    sort_spans(&mut keyed);
    for of_run in keyed.chunk_by(|a, b| a.1.run == b.1.run) {
        each_part(of_run, LOGGED_ROWS_MAX, &|(_, span)| span_bytes(span), &mut |part| {
            blocks.push(spans::encode(part[0].1.run, part, Effort::Quick));
        });
    }
    let mut records: Vec<&LogRecord> = records.iter().collect();
    records.sort_by_key(|record| (record.run, record.time_ns));
    for of_run in records.chunk_by(|a, b| a.run == b.run) {
        each_part(of_run, LOGGED_ROWS_MAX, &|record| record_bytes(record), &mut |part| {
            blocks.push(records::encode(part[0].run, part, Effort::Quick));
        });
    }
    blocks
}

/// By run, then in the order in which they are handed out.
fn sort_spans<'s>(spans: &mut [(u64, &'s Span)]) {
    let place = |span: &Span| (span.run, span.start_ns);
    let of_process = |span: &'s Span| (&*span.instance, span.incarnation);
    spans.sort_by(|(_, a), (_, b)| {
        let of_trace = || (a.trace, a.id).cmp(&(b.trace, b.id));
        place(a).cmp(&place(b)).then_with(|| of_process(a).cmp(&of_process(b))).then_with(of_trace)
    });
}

/// Cuts rows into parts that are not too long, nor too large.
fn each_part<T>(rows: &[T], rows_max: usize, bytes: &dyn Fn(&T) -> usize, each: &mut dyn FnMut(&[T])) {
    let (mut start, mut size) = (0, 0);
    for (at, row) in rows.iter().enumerate() {
        let more = bytes(row);
        if at > start && (at - start >= rows_max || size + more > BLOCK_BYTES_MAX) {
            each(&rows[start..at]);
            (start, size) = (at, 0);
        }
        size += more;
    }
    if start < rows.len() {
        each(&rows[start..]);
    }
}

fn attribute_bytes(attributes: &[(String, model::AttributeValue)]) -> usize {
    let value = |value: &model::AttributeValue| match value {
        model::AttributeValue::Text(text) => text.len(),
        _ => 8,
    };
    attributes.iter().map(|(key, v)| 64 + key.len() + value(v)).sum()
}

fn span_bytes(span: &Span) -> usize {
    let events: usize = span.events.iter().map(|e| 64 + e.name.len() + attribute_bytes(&e.attributes)).sum();
    let links: usize = span.links.iter().map(|link| 64 + attribute_bytes(&link.attributes)).sum();
    let texts = [&span.instance, &span.host, &span.name, &span.scope, &span.status_text];
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    128 + texts + attribute_bytes(&span.attributes) + events + links
}

fn record_bytes(record: &LogRecord) -> usize {
    128 + record.body.len() + attribute_bytes(&record.attributes)
}

/// Reads a row of the log, the keys of its spans included.
pub(crate) fn decode_row(row: &[u8]) -> Result<Block, String> {
    let summary = Summary::decode(&mut Reader::new(row)).ok_or("it is no block, or of a newer version")?;
    let mut keys = Vec::new();
    let sound = match summary.kind {
        Kind::Spans => {
            let mut note = |key| {
                keys.push(key);
                false
            };
            spans::decode(row, &model::SpanAsk::default(), &mut note).is_some()
        }
        Kind::Records => {
            let nothing = model::RecordAsk { severity_min: u8::MAX, ..model::RecordAsk::default() };
            records::decode(row, &nothing).is_some()
        }
    };
    if !sound {
        return Err("it can't be unpacked".to_owned());
    }
    Ok(Block { summary, bytes: row.into(), keys })
}
