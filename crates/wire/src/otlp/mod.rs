//! OTLP: metrics, traces and logs of any OpenTelemetry client, read from protobuf or JSON.
//!
//! A body becomes points, spans or log records, one at a time and borrowed from the body. What can't
//! be taken is refused alone, counted and named in the answer; only a body that can't be read is
//! refused whole. Nothing is allocated by a length that the body claims. A test holds the reader
//! against the messages of `opentelemetry-proto`.

mod aliases;
pub mod answer;
mod buckets;
mod cumulator;
mod handed_on;
pub mod json;
pub mod logs;
pub mod metrics;
pub mod names;
mod outcome;
mod proto;
mod put;
pub mod reply;
mod resource;
mod text;
pub mod traces;
mod value;
pub mod write;

pub use aliases::{Aliases, FAMILIES_MAX, Meant, settled};
pub use buckets::{BOUNDS_MAX, Histogram, SENT_BUCKETS_MAX};
pub use cumulator::{Cumulator, Note, Part, PartSample, STATES_MAX, SeriesKey, Told};
pub use handed_on::{Admits, hand_on};
pub use metrics::{Exemplar, Metric, Point, PointSink, PointValue, Temporality};
pub use model::NAME_BYTES_MAX;
pub use names::Instrument;
pub use outcome::{MESSAGE_BYTES_MAX, Outcome, Refusal};
pub use resource::{LabelFault, PROMOTED, Promotion, Resource, ResourceLabels};
pub use text::{VALUE_BYTES_MAX, cut, is_kept_text, is_secret_key, is_text, is_text_key};
pub use value::{Attribute, Attributes, Value};

use proto::Fields;

/// Largest body when unpacked, bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Most points in one request.
pub const POINTS_MAX: usize = 1_000_000;
/// Most different resources in one request of data points.
pub const RESOURCES_MAX: usize = 65_536;
/// Most parts of one request, each with a resource, also where they have nothing else: each costs time, and
/// packed they cost their sender next to nothing.
pub const PARTS_MAX: usize = 1_000_000;
/// Most attributes that are read of one resource, point, span, event, link or record.
pub const ATTRIBUTES_MAX: usize = 128;
/// Most exemplars that are read of one point.
pub const EXEMPLARS_MAX: usize = 16;
/// Longest label, key or value, bytes.
pub const LABEL_BYTES_MAX: usize = 1_024;
/// A point may be ahead of the server's clock by two hours, nanoseconds.
pub const AHEAD_NS_MAX: i64 = 2 * 3_600 * 1_000_000_000;

/// Why a body can't be read. Nothing of it counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    /// Not the protobuf message (400).
    #[error("the body is not an OTLP message: {0}")]
    Malformed(&'static str),
    /// Not the message in JSON (400).
    #[error("the body is not an OTLP message in JSON: {0}")]
    Json(String),
    /// Over a bound of this module (413).
    #[error("the body has more than {limit} {what}: send it in parts")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
}

impl OtlpError {
    /// The HTTP status that says it.
    pub fn status(&self) -> u16 {
        if matches!(self, Self::TooMuch { .. }) { 413 } else { 400 }
    }
}

/// The instrumentation that made a point, span or record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scope<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

impl<'a> Scope<'a> {
    /// The scope of a message that has it in field 1, as those of all signals do.
    fn of(message: &'a [u8]) -> Result<Self, OtlpError> {
        let (mut scope, mut fields) = (Self::default(), Fields(message));
        while let Some((number, field)) = fields.next()? {
            if number != 1 {
                continue;
            }
            let mut inner = Fields(field.bytes()?);
            while let Some((number, field)) = inner.next()? {
                match number {
                    1 => scope.name = field.text()?,
                    2 => scope.version = field.text()?,
                    _ => {}
                }
            }
        }
        Ok(scope)
    }
}

/// The id of a trace or span; none where it has another length or is all zeros.
fn id<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    <[u8; N]>::try_from(bytes).ok().filter(|id| *id != [0; N])
}

/// Takes an element of a resource and scope, as its message.
type Element<'a, 's> = &'s mut dyn FnMut(&Resource<'a>, Scope<'a>, &'a [u8]) -> Result<(), OtlpError>;

/// Hands every element of a request over. All signals nest alike: in field 1 of the request resources,
/// in field 2 of those scopes, in field 2 of those elements; resource and scope are told in field 1.
fn each_element<'a>(body: &'a [u8], take: Element<'a, '_>) -> Result<(), OtlpError> {
    each_part(body, &mut |head, part| {
        let resource = Resource::read(head)?;
        each_of_part(part, &mut |scope, element| take(&resource, scope, element))
    })
}

/// Hands over the resource of every part of a request, in order; of any signal, and nothing else is read.
pub fn each_resource<'a>(body: &'a [u8], take: &mut dyn FnMut(Resource<'a>)) -> Result<(), OtlpError> {
    each_part(body, &mut |head, _| {
        take(Resource::read(head)?);
        Ok(())
    })
}

/// Hands over the parts of a request, one of each resource: the resource's message, then all of it.
fn each_part<'a>(
    body: &'a [u8],
    take: &mut dyn FnMut(&'a [u8], &'a [u8]) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    let mut parts = 0;
    each_bytes(body, 1, &mut |part| {
        parts += 1;
        if parts > PARTS_MAX {
            return Err(OtlpError::TooMuch { what: "parts", limit: PARTS_MAX });
        }
        let mut head: &[u8] = &[];
        each_bytes(part, 1, &mut |message| {
            head = message;
            Ok(())
        })?;
        take(head, part)
    })
}

/// Hands over the elements of a part, each with its scope.
fn each_of_part<'a>(
    part: &'a [u8],
    take: &mut dyn FnMut(Scope<'a>, &'a [u8]) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    each_bytes(part, 2, &mut |of_scope| {
        let scope = Scope::of(of_scope)?;
        each_bytes(of_scope, 2, &mut |element| take(scope, element))
    })
}

/// Hands over every field `wanted` of a message, which is one of bytes.
fn each_bytes<'a>(
    message: &'a [u8],
    wanted: u64,
    take: &mut dyn FnMut(&'a [u8]) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    let mut fields = Fields(message);
    while let Some((number, field)) = fields.next()? {
        if number == wanted {
            take(field.bytes()?)?;
        }
    }
    Ok(())
}
