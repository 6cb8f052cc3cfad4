//! Spans of one run as a block, and back.

use std::ops::RangeInclusive;

use foldhash::HashMap;
use model::{RunId, Span, SpanAsk, SpanEvent, SpanId, SpanLink, TraceId};

use super::block::{Block, Kind, Summary, key_of};
use super::filter::Filter;
use super::pack::{Packer, Source, Unpacker, take_body};
use crate::codec::{Reader, put_bytes, put_i64, put_u64};
use crate::column::{Effort, append_column, put_column};

const SOURCE: usize = 0;
const TRACE: usize = 1;
const PARENT: usize = 2;
const NAME: usize = 3;
const KIND: usize = 4;
const STATUS: usize = 5;
const STATUS_TEXT: usize = 6;
const ITERATION: usize = 7;
const SHAPE: usize = 8;
const PARTS: usize = 9;
const STREAMS: usize = 10;

const NO_PARENT: u64 = 0;
const FOREIGN_PARENT: u64 = 1;

/// Who a span is of.
fn source_of(span: &Span) -> Source<'_> {
    let Span { instance, incarnation, rank, host, scope, .. } = span;
    Source { instance, incarnation: *incarnation, rank: *rank, host, scope }
}

/// What a span is known by.
pub(super) fn key(span: &Span) -> u64 {
    key_of(span.run, &source_of(span), &span.trace, span.id)
}

/// Packs spans of one run that are in order and of different keys.
pub(super) fn encode(run: Option<RunId>, spans: &[(u64, &Span)], effort: Effort) -> Block {
    let mut summary = Summary::new(Kind::Spans, run);
    for (_, span) in spans {
        summary.reach((span.start_ns, span.end_ns), span.rank, span.iteration);
    }
    summary.traces = Filter::of_traces(spans.iter().map(|(_, span)| &span.trace));
    summary.name_all(spans.iter().map(|(_, span)| &*span.name).collect());
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    let starts: Vec<i64> = spans.iter().map(|(_, span)| span.start_ns).collect();
    let lengths: Vec<i64> = spans.iter().map(|(_, s)| s.end_ns.wrapping_sub(s.start_ns)).collect();
    put_column(&mut bytes, &starts, effort);
    put_column(&mut bytes, &lengths, effort);
    let mut encoder = Encoder::default();
    encoder.places.extend(spans.iter().zip(0_u64..).map(|((_, span), place)| (span.id, place)));
    for (place, (_, span)) in spans.iter().enumerate() {
        encoder.push(place as u64, span);
    }
    let Encoder { packer, streams, ids, traces, .. } = encoder;
    put_bytes(&mut bytes, &ids);
    put_u64(&mut bytes, traces.len() as u64);
    bytes.extend(traces.as_flattened());
    packer.finish(&mut bytes, &streams, effort);
    Block { summary, bytes: bytes.into(), keys: spans.iter().map(|(key, _)| *key).collect() }
}

#[derive(Default)]
struct Encoder<'a> {
    packer: Packer<'a>,
    streams: [Vec<u8>; STREAMS],
    /// What does not pack: ids of spans, of parents elsewhere, of linked spans.
    ids: Vec<u8>,
    traces: Vec<TraceId>,
    trace_places: HashMap<TraceId, u64>,
    /// Where in the block a span of that id is; any will do, since the id is all that is taken from it.
    places: HashMap<SpanId, u64>,
    iteration: i64,
}

impl<'a> Encoder<'a> {
    fn push(&mut self, place: u64, span: &'a Span) {
        let source = self.packer.source(source_of(span));
        let trace = self.trace(span.trace);
        let name = self.packer.text(&span.name);
        let status_text = self.packer.text(&span.status_text);
        let shape = self.packer.attributes(&span.attributes);
        self.ids.extend(span.id);
        self.parent(place, span.parent);
        let numbers = [
            (SOURCE, source),
            (TRACE, trace),
            (NAME, name),
            (KIND, u64::from(span.kind)),
            (STATUS, u64::from(span.status) << 1 | u64::from(span.is_goodput)),
            (STATUS_TEXT, status_text),
            (SHAPE, shape),
        ];
        for (stream, number) in numbers {
            put_u64(&mut self.streams[stream], number);
        }
        self.streams[ITERATION].push(u8::from(span.iteration.is_some()));
        if let Some(iteration) = span.iteration {
            put_i64(&mut self.streams[ITERATION], iteration.wrapping_sub(self.iteration));
            self.iteration = iteration;
        }
        self.parts(span);
    }

    fn trace(&mut self, trace: TraceId) -> u64 {
        let traces = &mut self.traces;
        *self.trace_places.entry(trace).or_insert_with(|| {
            traces.push(trace);
            traces.len() as u64 - 1
        })
    }

    fn parent(&mut self, place: u64, parent: Option<SpanId>) {
        let stream = &mut self.streams[PARENT];
        match parent.map(|parent| (parent, self.places.get(&parent))) {
            None => put_u64(stream, NO_PARENT),
            Some((parent, None)) => {
                put_u64(stream, FOREIGN_PARENT);
                self.ids.extend(parent);
            }
            Some((_, Some(at))) => {
                let back = place.wrapping_sub(*at) as i64;
                put_u64(stream, 2 + ((back << 1) ^ (back >> 63)) as u64);
            }
        }
    }

    /// Events, links, and how many are missing.
    fn parts(&mut self, span: &'a Span) {
        put_u64(&mut self.streams[PARTS], span.events.len() as u64);
        for event in &span.events {
            let (name, shape) = (self.packer.text(&event.name), self.packer.attributes(&event.attributes));
            let stream = &mut self.streams[PARTS];
            put_i64(stream, event.time_ns.wrapping_sub(span.start_ns));
            put_u64(stream, name);
            put_u64(stream, shape);
        }
        put_u64(&mut self.streams[PARTS], span.links.len() as u64);
        for link in &span.links {
            self.ids.extend(link.trace);
            self.ids.extend(link.id);
            let shape = self.packer.attributes(&link.attributes);
            put_u64(&mut self.streams[PARTS], shape);
        }
        put_u64(&mut self.streams[PARTS], span.parts_left_out);
    }
}

/// What decides whether a span is wanted.
struct Brief<'b> {
    source: Source<'b>,
    trace: &'b TraceId,
    name: &'b str,
    time_ns: (i64, i64),
    iteration: Option<i64>,
}

impl Brief<'_> {
    fn fulfils(&self, ask: &SpanAsk) -> bool {
        let (start_ns, end_ns) = self.time_ns;
        let touches = |time_ns: &RangeInclusive<i64>| {
            start_ns.min(end_ns) <= *time_ns.end() && *time_ns.start() <= start_ns.max(end_ns)
        };
        let among =
            |ranks: &Vec<u32>| self.source.rank.is_some_and(|rank| ranks.binary_search(&rank).is_ok());
        let named = |names: &Vec<String>| names.binary_search_by(|name| (**name).cmp(self.name)).is_ok();
        touches(&ask.time_ns)
            && ask.trace.is_none_or(|trace| trace == *self.trace)
            && ask
                .iterations
                .as_ref()
                .is_none_or(|wanted| self.iteration.is_some_and(|n| wanted.contains(&n)))
            && ask.ranks.as_ref().is_none_or(among)
            && ask.names.as_ref().is_none_or(named)
    }
}

/// The spans of a block that are asked for, in order, with what they are known by; those whose key
/// `is_shown` refuses are passed over. `None` when the block is not what it should be.
pub(super) fn decode(
    bytes: &[u8],
    ask: &SpanAsk,
    is_shown: &mut dyn FnMut(u64) -> bool,
) -> Option<Vec<(u64, Span)>> {
    let mut reader = Reader::new(bytes);
    let summary = Summary::decode(&mut reader).filter(|summary| summary.kind == Kind::Spans)?;
    // A span takes the eight bytes of its id.
    let count = usize::try_from(summary.count).ok().filter(|count| *count <= bytes.len() / 8)?;
    let (mut starts, mut lengths) = (Vec::with_capacity(count), Vec::with_capacity(count));
    append_column(&mut reader, count, &mut starts)?;
    append_column(&mut reader, count, &mut lengths)?;
    let ids = Reader::new(reader.bytes()?);
    let traces = reader.count(16)?;
    let (traces, _) = reader.take(traces * 16)?.as_chunks::<16>();
    let body = take_body(&mut reader)?;
    let unpacker = Unpacker::new(&body)?;
    let own_ids = own_ids(&unpacker, ids, count)?;
    let mut decoder = Decoder { run: summary.run, unpacker, ids, traces, own_ids, iteration: 0 };
    let mut spans = Vec::new();
    for (place, (start_ns, length_ns)) in starts.into_iter().zip(lengths).enumerate() {
        let time_ns = (start_ns, i64::wrapping_add(start_ns, length_ns));
        spans.extend(decoder.next(place, time_ns, ask, is_shown)?);
    }
    Some(spans)
}

/// The ids of all spans: between them stand those of parents elsewhere and of links.
fn own_ids<'b>(
    unpacker: &Unpacker<'_, STREAMS>,
    mut ids: Reader<'b>,
    count: usize,
) -> Option<Vec<&'b SpanId>> {
    let (mut parents, mut parts) = (unpacker.streams[PARENT], unpacker.streams[PARTS]);
    let mut own = Vec::with_capacity(count);
    for _ in 0..count {
        own.push(ids.take(8)?.first_chunk()?);
        if parents.u64()? == FOREIGN_PARENT {
            ids.take(8)?;
        }
        for _ in 0..parts.u64()? {
            for _ in 0..3 {
                parts.u64()?;
            }
        }
        for _ in 0..parts.u64()? {
            ids.take(24)?;
            parts.u64()?;
        }
        parts.u64()?;
    }
    Some(own)
}

struct Decoder<'b, 't> {
    run: Option<RunId>,
    unpacker: Unpacker<'b, STREAMS>,
    ids: Reader<'t>,
    traces: &'t [TraceId],
    own_ids: Vec<&'t SpanId>,
    iteration: i64,
}

impl Decoder<'_, '_> {
    /// Goes over the next span; `Some(None)` when it is not wanted.
    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    fn next(
        &mut self,
        place: usize,
        time_ns: (i64, i64),
        ask: &SpanAsk,
        is_shown: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Option<(u64, Span)>> {
        let source = self.unpacker.streams[SOURCE].u64()?;
        let source = self.unpacker.source(source)?;
        let trace = self.traces.get(usize::try_from(self.unpacker.streams[TRACE].u64()?).ok()?)?;
        let id: &SpanId = self.ids.take(8)?.first_chunk()?;
        let name = self.unpacker.next_text(NAME)?;
        let parent = self.parent(place)?;
        let iteration = self.iteration()?;
        let [kind, status, shape] = [KIND, STATUS, SHAPE].map(|stream| self.unpacker.streams[stream].u64());
        let status_text = self.unpacker.next_text(STATUS_TEXT)?;
        let brief = Brief { source, trace, name, time_ns, iteration };
        let key = key_of(self.run, &source, trace, *id);
        let wanted = brief.fulfils(ask) && is_shown(key);
        let attributes = self.unpacker.attributes(shape?, wanted)?;
        let (events, links) = (self.events(time_ns.0, wanted)?, self.links(wanted)?);
        let parts_left_out = self.unpacker.streams[PARTS].u64()?;
        if !wanted {
            return Some(None);
        }
        let span = Span {
            run: self.run,
            instance: source.instance.to_owned(),
            incarnation: source.incarnation,
            rank: source.rank,
            host: source.host.to_owned(),
            trace: *trace,
            id: *id,
            parent,
            name: name.to_owned(),
            scope: source.scope.to_owned(),
            kind: u8::try_from(kind?).ok()?,
            start_ns: time_ns.0,
            end_ns: time_ns.1,
            status: u8::try_from(status? >> 1).ok()?,
            status_text: status_text.to_owned(),
            iteration,
            is_goodput: status? & 1 == 1,
            attributes,
            events,
            links,
            parts_left_out,
        };
        Some(Some((key, span)))
    }

    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    fn parent(&mut self, place: usize) -> Option<Option<SpanId>> {
        match self.unpacker.streams[PARENT].u64()? {
            NO_PARENT => Some(None),
            FOREIGN_PARENT => self.ids.array().map(Some),
            back => {
                let zigzag = back - 2;
                let back = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                let at = usize::try_from((place as i64).checked_sub(back)?).ok()?;
                self.own_ids.get(at).map(|id| Some(**id))
            }
        }
    }

    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    fn iteration(&mut self) -> Option<Option<i64>> {
        let stream = &mut self.unpacker.streams[ITERATION];
        if stream.byte()? == 0 {
            return Some(None);
        }
        self.iteration = self.iteration.wrapping_add(stream.i64()?);
        Some(Some(self.iteration))
    }

    fn events(&mut self, start_ns: i64, wanted: bool) -> Option<Vec<SpanEvent>> {
        let count = self.unpacker.streams[PARTS].count(3)?;
        let mut events = Vec::new();
        for _ in 0..count {
            let time_ns = start_ns.wrapping_add(self.unpacker.streams[PARTS].i64()?);
            let name = self.unpacker.next_text(PARTS)?;
            let shape = self.unpacker.streams[PARTS].u64()?;
            let attributes = self.unpacker.attributes(shape, wanted)?;
            if wanted {
                events.push(SpanEvent { time_ns, name: name.to_owned(), attributes });
            }
        }
        Some(events)
    }

    fn links(&mut self, wanted: bool) -> Option<Vec<SpanLink>> {
        let count = self.unpacker.streams[PARTS].count(1)?;
        let mut links = Vec::new();
        for _ in 0..count {
            let (trace, id) = (self.ids.array()?, self.ids.array()?);
            let shape = self.unpacker.streams[PARTS].u64()?;
            let attributes = self.unpacker.attributes(shape, wanted)?;
            if wanted {
                links.push(SpanLink { trace, id, attributes });
            }
        }
        Some(links)
    }
}
