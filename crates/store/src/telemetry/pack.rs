//! What blocks of spans and of log records have in common: texts written once, processes, attributes
//! as a column for each key, and streams of small numbers. All of it is packed together.

use foldhash::HashMap;
use model::AttributeValue;

use crate::codec::{Reader, put_bytes, put_f64, put_i64, put_u64};
use crate::column::Effort;

/// More than what a block may unpack to is damage.
const UNPACKED_BYTES_MAX: usize = 1 << 30;
/// Shorter bodies stay as they are.
const PACKED_MIN: usize = 256;
const BODY_PLAIN: u8 = 0;
const BODY_ZSTD: u8 = 1;

const NULL: u64 = 0;
const BOOL: u64 = 1;
const INT: u64 = 2;
const FLOAT: u64 = 3;
const TEXT: u64 = 4;

/// Who says it, as it repeats from row to row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source<'b> {
    pub(super) instance: &'b str,
    /// 0 for log records, which are known by nothing.
    pub(super) incarnation: u32,
    pub(super) rank: Option<u32>,
    pub(super) host: &'b str,
    pub(super) scope: &'b str,
}

/// The values of one key and type, in order of the rows that have them.
struct Column {
    /// Eight times the place of the key among the texts, plus the type.
    tag: u64,
    last: i64,
    bytes: Vec<u8>,
}

/// Collects what is packed.
#[derive(Default)]
pub(super) struct Packer<'a> {
    texts: Vec<&'a str>,
    text_places: HashMap<&'a str, u64>,
    sources: Vec<Source<'a>>,
    source_places: HashMap<Source<'a>, u64>,
    columns: Vec<Column>,
    column_places: HashMap<u64, u64>,
    shapes: Vec<Vec<u64>>,
    shape_places: HashMap<Vec<u64>, u64>,
    shape: Vec<u64>,
}

impl<'a> Packer<'a> {
    /// The place of a text, which is written once.
    pub(super) fn text(&mut self, text: &'a str) -> u64 {
        let texts = &mut self.texts;
        *self.text_places.entry(text).or_insert_with(|| {
            texts.push(text);
            texts.len() as u64 - 1
        })
    }

    /// The place of a source.
    pub(super) fn source(&mut self, source: Source<'a>) -> u64 {
        let sources = &mut self.sources;
        *self.source_places.entry(source).or_insert_with(|| {
            sources.push(source);
            sources.len() as u64 - 1
        })
    }

    /// Takes attributes; returns the place of their shape.
    pub(super) fn attributes(&mut self, attributes: &'a [(String, AttributeValue)]) -> u64 {
        self.shape.clear();
        for (key, value) in attributes {
            let kind = match value {
                AttributeValue::Null => NULL,
                AttributeValue::Bool(_) => BOOL,
                AttributeValue::Int(_) => INT,
                AttributeValue::Float(_) => FLOAT,
                AttributeValue::Text(_) => TEXT,
            };
            let tag = self.text(key) << 3 | kind;
            let columns = &mut self.columns;
            let place = *self.column_places.entry(tag).or_insert_with(|| {
                columns.push(Column { tag, last: 0, bytes: Vec::new() });
                columns.len() as u64 - 1
            });
            self.shape.push(place);
            self.value(place as usize, value);
        }
        if let Some(place) = self.shape_places.get(&self.shape) {
            return *place;
        }
        let place = self.shapes.len() as u64;
        self.shapes.push(self.shape.clone());
        self.shape_places.insert(self.shape.clone(), place);
        place
    }

    fn value(&mut self, place: usize, value: &'a AttributeValue) {
        let text = match value {
            AttributeValue::Text(text) => self.text(text),
            _ => 0,
        };
        let column = &mut self.columns[place];
        match value {
            AttributeValue::Null => {}
            AttributeValue::Bool(value) => column.bytes.push(u8::from(*value)),
            AttributeValue::Int(value) => {
                put_i64(&mut column.bytes, value.wrapping_sub(column.last));
                column.last = *value;
            }
            AttributeValue::Float(value) => put_f64(&mut column.bytes, *value),
            AttributeValue::Text(_) => put_u64(&mut column.bytes, text),
        }
    }

    /// Appends everything, and the streams.
    pub(super) fn finish(mut self, out: &mut Vec<u8>, streams: &[Vec<u8>], effort: Effort) {
        let sources = std::mem::take(&mut self.sources);
        let sources = sources.iter().map(|source| {
            let texts = [source.instance, source.host, source.scope].map(|text| self.text(text));
            let rank = source.rank.map_or(0, |rank| u64::from(rank) + 1);
            (texts, [rank, u64::from(source.incarnation)])
        });
        let sources: Vec<_> = sources.collect();
        let mut body = Vec::new();
        put_u64(&mut body, self.texts.len() as u64);
        self.texts.iter().for_each(|text| put_bytes(&mut body, text.as_bytes()));
        put_u64(&mut body, sources.len() as u64);
        for (texts, numbers) in sources {
            texts.iter().chain(&numbers).for_each(|number| put_u64(&mut body, *number));
        }
        put_u64(&mut body, self.columns.len() as u64);
        for column in &self.columns {
            put_u64(&mut body, column.tag);
            put_bytes(&mut body, &column.bytes);
        }
        put_u64(&mut body, self.shapes.len() as u64);
        for shape in &self.shapes {
            put_u64(&mut body, shape.len() as u64);
            for place in shape {
                put_u64(&mut body, *place);
            }
        }
        for stream in streams {
            put_bytes(&mut body, stream);
        }
        put_body(out, &body, effort);
    }
}

fn put_body(out: &mut Vec<u8>, body: &[u8], effort: Effort) {
    let level = if effort == Effort::Quick { 1 } else { 6 };
    let packed = (body.len() >= PACKED_MIN).then(|| zstd::bulk::compress(body, level).ok()).flatten();
    if let Some(packed) = packed.filter(|packed| packed.len() < body.len()) {
        out.push(BODY_ZSTD);
        put_u64(out, body.len() as u64);
        put_bytes(out, &packed);
    } else {
        out.push(BODY_PLAIN);
        put_bytes(out, body);
    }
}

/// The body that [`Packer::finish`] wrote, unpacked.
pub(super) fn take_body(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    match reader.byte()? {
        BODY_PLAIN => reader.bytes().map(<[u8]>::to_vec),
        BODY_ZSTD => {
            let len = usize::try_from(reader.u64()?).ok().filter(|len| *len <= UNPACKED_BYTES_MAX)?;
            let body = zstd::bulk::decompress(reader.bytes()?, len).ok()?;
            (body.len() == len).then_some(body)
        }
        _ => None,
    }
}

struct ColumnReader<'b> {
    key: &'b str,
    kind: u64,
    last: i64,
    reader: Reader<'b>,
}

/// Reads what a [`Packer`] wrote.
pub(super) struct Unpacker<'b, const STREAMS: usize> {
    texts: Vec<&'b str>,
    sources: Vec<Source<'b>>,
    columns: Vec<ColumnReader<'b>>,
    shapes: Vec<Vec<usize>>,
    pub(super) streams: [Reader<'b>; STREAMS],
}

impl<'b, const STREAMS: usize> Unpacker<'b, STREAMS> {
    pub(super) fn new(body: &'b [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let text = |bytes: &'b [u8]| std::str::from_utf8(bytes).ok();
        let count = reader.count(1)?;
        let texts: Vec<&'b str> = (0..count).map(|_| text(reader.bytes()?)).collect::<Option<_>>()?;
        let at = |place: u64| texts.get(usize::try_from(place).ok()?).copied();
        let count = reader.count(5)?;
        let mut sources = Vec::with_capacity(count);
        for _ in 0..count {
            let [instance, host, scope] = [at(reader.u64()?)?, at(reader.u64()?)?, at(reader.u64()?)?];
            let rank = reader.u64()?.checked_sub(1).map(u32::try_from).transpose().ok()?;
            sources.push(Source { instance, incarnation: reader.u32()?, rank, host, scope });
        }
        let count = reader.count(2)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let tag = reader.u64()?;
            let (key, reader) = (at(tag >> 3)?, Reader::new(reader.bytes()?));
            columns.push(ColumnReader { key, kind: tag & 7, last: 0, reader });
        }
        let count = reader.count(1)?;
        let mut shapes = Vec::with_capacity(count);
        for _ in 0..count {
            let len = reader.count(1)?;
            let places = (0..len).map(|_| usize::try_from(reader.u64()?).ok().filter(|p| *p < columns.len()));
            shapes.push(places.collect::<Option<_>>()?);
        }
        let mut streams = [Reader::new(&[]); STREAMS];
        for stream in &mut streams {
            *stream = Reader::new(reader.bytes()?);
        }
        reader.is_empty().then_some(Self { texts, sources, columns, shapes, streams })
    }

    pub(super) fn text(&self, place: u64) -> Option<&'b str> {
        self.texts.get(usize::try_from(place).ok()?).copied()
    }

    /// Reads the place of a text from a stream.
    pub(super) fn next_text(&mut self, stream: usize) -> Option<&'b str> {
        let place = self.streams[stream].u64()?;
        self.text(place)
    }

    pub(super) fn source(&self, place: u64) -> Option<Source<'b>> {
        self.sources.get(usize::try_from(place).ok()?).copied()
    }

    /// The next attributes of a shape; none are made up unless they are wanted.
    pub(super) fn attributes(&mut self, shape: u64, wanted: bool) -> Option<Vec<(String, AttributeValue)>> {
        let shape = self.shapes.get(usize::try_from(shape).ok()?)?;
        let mut attributes = Vec::with_capacity(if wanted { shape.len() } else { 0 });
        for place in shape {
            let column = self.columns.get_mut(*place)?;
            let reader = &mut column.reader;
            let value = match column.kind {
                NULL => AttributeValue::Null,
                BOOL => AttributeValue::Bool(reader.byte()? != 0),
                INT => {
                    column.last = column.last.wrapping_add(reader.i64()?);
                    AttributeValue::Int(column.last)
                }
                FLOAT => AttributeValue::Float(reader.f64()?),
                TEXT => {
                    let text = *self.texts.get(usize::try_from(reader.u64()?).ok()?)?;
                    AttributeValue::Text(if wanted { text.to_owned() } else { String::new() })
                }
                _ => return None,
            };
            if wanted {
                attributes.push((column.key.to_owned(), value));
            }
        }
        Some(attributes)
    }
}
