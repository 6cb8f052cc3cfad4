//! Log records of one run as a block, and back.

use model::{LogRecord, RecordAsk, RunId};

use super::block::{Block, Kind, Summary};
use super::filter::Filter;
use super::pack::{Packer, Source, Unpacker, take_body};
use crate::codec::{Reader, put_u64};
use crate::column::{Effort, append_column, put_column};

const SOURCE: usize = 0;
const SEVERITY: usize = 1;
const SEVERITY_TEXT: usize = 2;
const EVENT: usize = 3;
const BODY: usize = 4;
const SHAPE: usize = 5;
/// Which of trace and span follow, then these.
const IDS: usize = 6;
const STREAMS: usize = 7;

/// Packs records of one run that are in order of time.
pub(super) fn encode(run: Option<RunId>, records: &[&LogRecord], effort: Effort) -> Block {
    let mut summary = Summary::new(Kind::Records, run);
    for record in records {
        summary.reach((record.time_ns, record.time_ns), record.rank, None);
        summary.severity_max = summary.severity_max.max(record.severity);
    }
    summary.traces = Filter::of_traces(records.iter().filter_map(|record| record.trace.as_ref()));
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    let times: Vec<i64> = records.iter().map(|record| record.time_ns).collect();
    put_column(&mut bytes, &times, effort);
    let mut packer = Packer::default();
    let mut streams: [Vec<u8>; STREAMS] = Default::default();
    for record in records {
        let LogRecord { instance, rank, host, scope, .. } = record;
        let numbers = [
            (SOURCE, packer.source(Source { instance, incarnation: 0, rank: *rank, host, scope })),
            (SEVERITY, u64::from(record.severity)),
            (SEVERITY_TEXT, packer.text(&record.severity_text)),
            (EVENT, packer.text(&record.event)),
            (BODY, packer.text(&record.body)),
            (SHAPE, packer.attributes(&record.attributes)),
        ];
        for (stream, number) in numbers {
            put_u64(&mut streams[stream], number);
        }
        streams[IDS].push(u8::from(record.trace.is_some()) | u8::from(record.span.is_some()) << 1);
        streams[IDS].extend(record.trace.iter().flatten());
        streams[IDS].extend(record.span.iter().flatten());
    }
    packer.finish(&mut bytes, &streams, effort);
    Block { summary, bytes: bytes.into(), keys: Vec::new() }
}

/// The records of a block that are asked for, in order. `None` when the block is not what it should be.
pub(super) fn decode(bytes: &[u8], ask: &RecordAsk) -> Option<Vec<LogRecord>> {
    let mut reader = Reader::new(bytes);
    let summary = Summary::decode(&mut reader).filter(|summary| summary.kind == Kind::Records)?;
    let mut times = Vec::new();
    let count = usize::try_from(summary.count).ok().filter(|count| *count <= super::ROWS_MAX)?;
    append_column(&mut reader, count, &mut times)?;
    let body = take_body(&mut reader)?;
    let mut unpacker: Unpacker<'_, STREAMS> = Unpacker::new(&body)?;
    let mut records = Vec::new();
    for time_ns in times {
        records.extend(next(&mut unpacker, summary.run, time_ns, ask)?);
    }
    Some(records)
}

#[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
fn next(
    unpacker: &mut Unpacker<'_, STREAMS>,
    run: Option<RunId>,
    time_ns: i64,
    ask: &RecordAsk,
) -> Option<Option<LogRecord>> {
    let source = unpacker.streams[SOURCE].u64()?;
    let source = unpacker.source(source)?;
    let severity = u8::try_from(unpacker.streams[SEVERITY].u64()?).ok()?;
    let [severity_text, event, body] = [SEVERITY_TEXT, EVENT, BODY].map(|stream| unpacker.next_text(stream));
    let shape = unpacker.streams[SHAPE].u64()?;
    let ids = &mut unpacker.streams[IDS];
    let flags = ids.byte()?;
    let trace = if flags & 1 == 1 { Some(ids.array()?) } else { None };
    let span = if flags & 2 == 2 { Some(ids.array()?) } else { None };
    let wanted = ask.time_ns.contains(&time_ns)
        && severity >= ask.severity_min
        && ask.trace.is_none_or(|wanted| trace == Some(wanted))
        && ask
            .ranks
            .as_ref()
            .is_none_or(|ranks| source.rank.is_some_and(|r| ranks.binary_search(&r).is_ok()));
    let attributes = unpacker.attributes(shape, wanted)?;
    let record = || {
        Some(LogRecord {
            run,
            instance: source.instance.to_owned(),
            rank: source.rank,
            host: source.host.to_owned(),
            time_ns,
            severity,
            severity_text: severity_text?.to_owned(),
            scope: source.scope.to_owned(),
            event: event?.to_owned(),
            body: body?.to_owned(),
            attributes,
            trace,
            span,
        })
    };
    if wanted { record().map(Some) } else { Some(None) }
}
