//! A request of spans as it is handed on to somebody else: all that the sender said, but for the texts
//! that people and models wrote. A field that the protocol does not have yet may hold some, and stays.

use prost::encoding::{WireType, encode_key, encode_varint};

use super::proto::{Field, Fields};
use super::resource::Resource;
use super::traces::{RawSpan, Span};
use super::value::read_pair;
use super::{OtlpError, Scope, text};

/// What becomes of a field.
enum Part {
    Same,
    Gone,
    /// Another message in its place.
    Instead(Vec<u8>),
}

/// Which spans are handed on.
pub type Admits<'s> = &'s mut dyn FnMut(&Span<'_, '_>) -> bool;

/// Appends to `out` the spans of a request of which `admits` says so; returns how many. Requests that
/// stand one behind the other are one request.
pub fn hand_on(body: &[u8], admits: Admits<'_>, out: &mut Vec<u8>) -> Result<u64, OtlpError> {
    let mut spans = 0;
    rewrite(body, out, &mut |number, field| match number {
        1 => of_resource(field.bytes()?, admits, &mut spans).map(Part::Instead),
        _ => Ok(Part::Gone),
    })?;
    Ok(spans)
}

fn of_resource(message: &[u8], admits: Admits<'_>, spans: &mut u64) -> Result<Vec<u8>, OtlpError> {
    let mut head: &[u8] = &[];
    super::each_bytes(message, 1, &mut |found| {
        head = found;
        Ok(())
    })?;
    let resource = Resource::read(head)?;
    let mut out = Vec::with_capacity(message.len());
    rewrite(message, &mut out, &mut |number, field| match number {
        1 => without_texts(field.bytes()?, (1, 3)).map(Part::Instead),
        2 => of_scope(field.bytes()?, &resource, admits, spans).map(Part::Instead),
        3 => Ok(Part::Same),
        _ => Ok(Part::Gone),
    })?;
    Ok(out)
}

fn of_scope(
    message: &[u8],
    resource: &Resource<'_>,
    admits: Admits<'_>,
    spans: &mut u64,
) -> Result<Vec<u8>, OtlpError> {
    let scope = Scope::of(message)?;
    let mut out = Vec::with_capacity(message.len());
    rewrite(message, &mut out, &mut |number, field| match number {
        1 => without_texts(field.bytes()?, (3, 4)).map(Part::Instead),
        2 => {
            let message = field.bytes()?;
            let span = RawSpan::read(message)?.span(resource, scope, true);
            if !span.is_ok_and(|span| admits(&span)) {
                return Ok(Part::Gone);
            }
            *spans += 1;
            of_span(message).map(Part::Instead)
        }
        3 => Ok(Part::Same),
        _ => Ok(Part::Gone),
    })?;
    Ok(out)
}

fn of_span(message: &[u8]) -> Result<Vec<u8>, OtlpError> {
    let mut out = Vec::with_capacity(message.len());
    rewrite(message, &mut out, &mut |number, field| match number {
        9 => attribute(field),
        11 => without_texts(field.bytes()?, (3, 4)).map(Part::Instead),
        13 => without_texts(field.bytes()?, (4, 6)).map(Part::Instead),
        1..=16 => Ok(Part::Same),
        _ => Ok(Part::Gone),
    })?;
    Ok(out)
}

/// A message with fields up to `last`, of which `attributes` are its attributes.
fn without_texts(message: &[u8], (attributes, last): (u64, u64)) -> Result<Vec<u8>, OtlpError> {
    let mut out = Vec::with_capacity(message.len());
    rewrite(message, &mut out, &mut |number, field| match number {
        _ if number == attributes => attribute(field),
        _ if number <= last => Ok(Part::Same),
        _ => Ok(Part::Gone),
    })?;
    Ok(out)
}

fn attribute(field: Field<'_>) -> Result<Part, OtlpError> {
    let (key, value) = read_pair(field.bytes()?)?;
    Ok(if text::is_text(key, &value) { Part::Gone } else { Part::Same })
}

/// Copies a message, with what `each` makes of its fields.
fn rewrite(
    message: &[u8],
    out: &mut Vec<u8>,
    each: &mut dyn FnMut(u64, Field<'_>) -> Result<Part, OtlpError>,
) -> Result<(), OtlpError> {
    let mut fields = Fields(message);
    loop {
        let from = fields.0;
        let Some((number, field)) = fields.next()? else { return Ok(()) };
        match each(number, field)? {
            Part::Same => out.extend_from_slice(&from[..from.len() - fields.0.len()]),
            Part::Gone => {}
            Part::Instead(bytes) => {
                // Only fields that are known are replaced, whose numbers are small.
                encode_key(number as u32, WireType::LengthDelimited, out);
                encode_varint(bytes.len() as u64, out);
                out.extend(bytes);
            }
        }
    }
}
