//! The message `ExportTraceServiceRequest`, span by span.

use super::proto::Fields;
use super::resource::Resource;
use super::value::{Attributes, Value};
use super::{BODY_BYTES_MAX, OtlpError, Outcome, Refusal, Scope, id, text};

/// Most spans in one request.
pub const SPANS_MAX: usize = 500_000;
/// Most events and most links that are read of one span.
pub const PARTS_MAX: usize = 128;
/// Longest name of a span or event, bytes; longer ones are cut.
pub const SPAN_NAME_BYTES_MAX: usize = 1_024;

/// A trace's id and a span's within it. Ranks that seed their generators alike make equal ones, so
/// that they identify a span only together with its run and instance: see [`SpanKey`].
pub type Ids = ([u8; 16], [u8; 8]);

/// What identifies a span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanKey {
    /// `nemo.run.id`, or empty.
    pub run: String,
    /// `service.instance.id`, or empty.
    pub instance: String,
    /// Trace and span.
    pub ids: Ids,
}

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span<'a, 'r> {
    /// Who sent it.
    pub resource: &'r Resource<'a>,
    /// By which instrumentation.
    pub scope: Scope<'a>,
    /// Its trace and its own id.
    pub ids: Ids,
    /// The span it is in; none for a root.
    pub parent: Option<[u8; 8]>,
    /// What was done.
    pub name: &'a str,
    /// 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: u8,
    /// When it began, nanoseconds since the epoch.
    pub start_ns: i64,
    /// When it ended. Before its start where a clock was set back; kept as sent.
    pub end_ns: i64,
    /// 0 unset, 1 ok, 2 error.
    pub status: u8,
    /// What went wrong.
    pub status_text: &'a str,
    /// Its attributes, without texts of prompts and completions unless they are asked for.
    pub attributes: Attributes<'a>,
    /// What happened within it.
    pub events: Vec<SpanEvent<'a>>,
    /// Spans that it points to.
    pub links: Vec<SpanLink<'a>>,
    /// How many events and links were beyond [`PARTS_MAX`], or left out by the sender.
    pub parts_left_out: u64,
    /// How many texts were dropped from it, its events and links.
    pub texts_dropped: u64,
}

/// Something that happened within a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanEvent<'a> {
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What.
    pub name: &'a str,
    /// Its attributes.
    pub attributes: Attributes<'a>,
}

/// A pointer to another span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLink<'a> {
    /// Trace and span it points to.
    pub ids: Ids,
    /// Its attributes.
    pub attributes: Attributes<'a>,
}

impl Span<'_, '_> {
    /// What identifies it.
    pub fn key(&self) -> SpanKey {
        SpanKey {
            run: self.resource.text(&["nemo.run.id"]).unwrap_or_default(),
            instance: self.resource.instance().unwrap_or_default(),
            ids: self.ids,
        }
    }

    /// The training iteration it belongs to, where it says so.
    pub fn iteration(&self) -> Option<i64> {
        ["megatron.iteration", "nv.dl.iteration", "dl.iteration"]
            .iter()
            .find_map(|key| self.attributes.get(key)?.number())
    }

    /// Whether it ends before it starts.
    pub fn is_reversed(&self) -> bool {
        self.end_ns < self.start_ns
    }

    /// Whether goodput is reckoned from it. That says nothing about whether its time was productive:
    /// startup and checkpoints are marked as well.
    pub fn is_goodput(&self) -> bool {
        match self.attributes.get("is_goodput_span") {
            Some(Value::Bool(is)) => is,
            Some(Value::Text(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }
}

/// Takes a span or says why not.
pub type SpanSink<'s> = &'s mut dyn FnMut(&Span<'_, '_>) -> Result<(), Refusal>;

/// Reads a body and hands its spans to `sink` in order; without `keep_text`, texts of prompts and
/// completions are not among their attributes. On an error nothing of the body counts.
pub fn read(body: &[u8], keep_text: bool, sink: SpanSink<'_>) -> Result<Outcome, OtlpError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(OtlpError::TooMuch { what: "bytes unpacked", limit: BODY_BYTES_MAX });
    }
    let (mut outcome, mut spans) = (Outcome::default(), 0);
    super::each_element(body, &mut |resource, scope, message| {
        spans += 1;
        if spans > SPANS_MAX {
            return Err(OtlpError::TooMuch { what: "spans", limit: SPANS_MAX });
        }
        let raw = RawSpan::read(message)?;
        let name = raw.name;
        match raw.span(resource, scope, keep_text).and_then(|span| sink(&span)) {
            Ok(()) => outcome.accepted += 1,
            Err(refusal) => outcome.refuse(name, 1, refusal),
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// A span as it stands in the body.
#[derive(Default)]
pub(super) struct RawSpan<'a> {
    trace: &'a [u8],
    span: &'a [u8],
    parent: &'a [u8],
    name: &'a str,
    kind: u64,
    start_ns: u64,
    end_ns: u64,
    status: u64,
    status_text: &'a str,
    attributes: Attributes<'a>,
    events: Vec<SpanEvent<'a>>,
    links: Vec<SpanLink<'a>>,
    parts_left_out: u64,
}

impl<'a> RawSpan<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, OtlpError> {
        let (mut raw, mut fields) = (Self::default(), Fields(message));
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => raw.trace = field.bytes()?,
                2 => raw.span = field.bytes()?,
                4 => raw.parent = field.bytes()?,
                5 => raw.name = text::cut(field.text()?, SPAN_NAME_BYTES_MAX),
                6 => raw.kind = field.int()?,
                7 => raw.start_ns = field.fixed()?,
                8 => raw.end_ns = field.fixed()?,
                9 => raw.attributes.push(field.bytes()?)?,
                10 => raw.attributes.left_out += field.int()?,
                11 => raw.event(field.bytes()?)?,
                12 | 14 => raw.parts_left_out += field.int()?,
                13 => raw.link(field.bytes()?)?,
                15 => raw.status(field.bytes()?)?,
                _ => {}
            }
        }
        Ok(raw)
    }

    fn event(&mut self, message: &'a [u8]) -> Result<(), OtlpError> {
        let (mut event, mut fields) = (SpanEvent::default(), Fields(message));
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => event.time_ns = time(field.fixed()?),
                2 => event.name = text::cut(field.text()?, SPAN_NAME_BYTES_MAX),
                3 => event.attributes.push(field.bytes()?)?,
                4 => event.attributes.left_out += field.int()?,
                _ => {}
            }
        }
        if self.events.len() < PARTS_MAX {
            self.events.push(event);
        } else {
            self.parts_left_out += 1;
        }
        Ok(())
    }

    fn link(&mut self, message: &'a [u8]) -> Result<(), OtlpError> {
        let (mut ids, mut attributes, mut fields) = ((None, None), Attributes::default(), Fields(message));
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => ids.0 = id(field.bytes()?),
                2 => ids.1 = id(field.bytes()?),
                4 => attributes.push(field.bytes()?)?,
                5 => attributes.left_out += field.int()?,
                _ => {}
            }
        }
        match ids.0.zip(ids.1) {
            Some(ids) if self.links.len() < PARTS_MAX => self.links.push(SpanLink { ids, attributes }),
            _ => self.parts_left_out += 1,
        }
        Ok(())
    }

    fn status(&mut self, message: &'a [u8]) -> Result<(), OtlpError> {
        let mut fields = Fields(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                2 => self.status_text = text::cut(field.text()?, text::VALUE_BYTES_MAX),
                3 => self.status = field.int()?,
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn span<'r>(
        mut self,
        resource: &'r Resource<'a>,
        scope: Scope<'a>,
        keep_text: bool,
    ) -> Result<Span<'a, 'r>, Refusal> {
        let trace =
            id(self.trace).ok_or(Refusal::new("trace_id", "its trace id is not 16 bytes, or all zeros"))?;
        let span =
            id(self.span).ok_or(Refusal::new("span_id", "its span id is not 8 bytes, or all zeros"))?;
        if self.start_ns == 0 && self.end_ns == 0 {
            return Err(Refusal::new("time", "the span has no time"));
        }
        let mut texts_dropped = 0;
        if !keep_text {
            let events = self.events.iter_mut().map(|event| &mut event.attributes);
            let links = self.links.iter_mut().map(|link| &mut link.attributes);
            for attributes in events.chain(links).chain([&mut self.attributes]) {
                texts_dropped += text::drop_texts(&mut attributes.list);
            }
        }
        Ok(Span {
            resource,
            scope,
            ids: (trace, span),
            parent: id(self.parent),
            name: self.name,
            kind: u8::try_from(self.kind).unwrap_or(0),
            start_ns: time(self.start_ns),
            end_ns: time(self.end_ns),
            status: u8::try_from(self.status).unwrap_or(0),
            status_text: self.status_text,
            attributes: self.attributes,
            events: self.events,
            links: self.links,
            parts_left_out: self.parts_left_out,
            texts_dropped,
        })
    }
}

fn time(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}
