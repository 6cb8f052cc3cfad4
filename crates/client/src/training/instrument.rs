//! Instruments, as callers describe and hold them.

use semconv::instruments::{DEFAULT_BOUNDS, STEP_BOUNDS};
use wire::otlp::names::{self, canonical};

use super::context::SpanContext;

/// Most sets of attributes of one instrument.
pub const STREAMS_MAX: usize = 2_000;

/// What an instrument does with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstrumentKind {
    /// Keeps the last one.
    Gauge,
    /// Adds up what is above zero.
    Counter,
    /// Adds up anything.
    UpDownCounter,
    /// Counts by size.
    Histogram,
}

/// Describes an instrument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstrumentSpec<'a> {
    /// Name of the instrumentation.
    pub scope: &'a str,
    /// Its name, dotted.
    pub name: &'a str,
    /// What it does.
    pub kind: InstrumentKind,
    /// Unit on the wire; mostly none.
    pub unit: &'a str,
    /// What it measures.
    pub description: &'a str,
    /// Upper bounds of a histogram's buckets; empty for the default.
    pub bounds: &'a [f64],
    /// Whether sums go out as whole numbers.
    pub is_int: bool,
}

impl<'a> InstrumentSpec<'a> {
    /// An instrument of the default scope without unit.
    pub fn new(name: &'a str, kind: InstrumentKind) -> Self {
        Self { scope: SCOPE, name, kind, unit: "", description: "", bounds: &[], is_int: false }
    }

    /// A gauge of the default scope without unit.
    pub fn gauge(name: &'a str) -> Self {
        Self::new(name, InstrumentKind::Gauge)
    }
}

impl InstrumentSpec<'static> {
    /// One of the trainer's eight, or of inference.
    pub fn known(instrument: &'static semconv::instruments::Instrument) -> Self {
        let kind = match instrument.kind {
            model::MetricKind::Counter => InstrumentKind::Counter,
            model::MetricKind::Histogram => InstrumentKind::Histogram,
            _ => InstrumentKind::Gauge,
        };
        Self {
            unit: instrument.unit,
            description: instrument.help,
            is_int: kind == InstrumentKind::Counter,
            ..Self::new(instrument.name, kind)
        }
    }
}

/// Scope of instruments and spans that name none, as the reference has it.
pub const SCOPE: &str = "nemo.lens";

/// Why an instrument can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstrumentError {
    /// Not a name.
    #[error(
        "{0:?} can't name an instrument: a letter, then letters, digits, `_`, `.`, `-` and `/`, at most 255"
    )]
    Name(String),
    /// The name is in use for something else.
    #[error("the instrument {name:?} is there already as {found}, not as {wanted}")]
    Conflict {
        /// Its name.
        name: String,
        /// Kind and unit that it has.
        found: String,
        /// Kind and unit that were asked for.
        wanted: String,
    },
    /// Bounds that don't increase.
    #[error("the bounds of the histogram {0:?} are not finite numbers that increase")]
    Bounds(String),
    /// A label whose every value would be a series of its own.
    #[error(
        "{0:?} can't tell points apart, since each of its values would be a series of its own: what says which \
         event it was, as an iteration does, belongs on a span"
    )]
    Label(String),
    /// There are too many.
    #[error("{0:?} is one instrument too many: a process makes at most {max}", max = INSTRUMENTS_MAX)]
    TooMany(String),
}

/// Most instruments of a process.
pub const INSTRUMENTS_MAX: usize = 10_000;
/// Longest name of an instrument, bytes.
const NAME_MAX: usize = 255;

/// An instrument with one set of attributes; cheap to copy. Another set-up does not know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Instrument {
    pub(crate) stream: u32,
    pub(crate) owner: u32,
}

/// When, at which step and within which span values are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// The training step; without it the run's own rule holds.
    pub step: Option<i64>,
    /// Nanoseconds since the epoch; without it, now.
    pub time_ns: Option<i64>,
    /// The span it happened in, for exemplars.
    pub span: Option<SpanContext>,
}

/// An instrument as it was described.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) scope: String,
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) description: String,
    pub(crate) kind: InstrumentKind,
    pub(crate) is_int: bool,
    pub(crate) bounds: Vec<f64>,
    /// What its series are called on the native way.
    pub(crate) canonical: String,
}

impl Described {
    pub(crate) fn new(spec: &InstrumentSpec<'_>) -> Result<Self, InstrumentError> {
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            name.len() <= NAME_MAX
                && bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
                && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/'))
        };
        let unusable = || InstrumentError::Name(spec.name.chars().take(80).collect());
        if !is_name(spec.name) {
            return Err(unusable());
        }
        let bounds = match spec.bounds {
            [] if spec.unit == "ms" => STEP_BOUNDS.to_vec(),
            [] => DEFAULT_BOUNDS.to_vec(),
            given => given.to_vec(),
        };
        let is_usable = bounds.iter().all(|b| b.is_finite()) && bounds.is_sorted_by(|a, b| a < b);
        if !is_usable || bounds.len() > wire::otlp::BOUNDS_MAX {
            return Err(InstrumentError::Bounds(spec.name.to_owned()));
        }
        let kind = match spec.kind {
            InstrumentKind::Gauge => names::Instrument::Gauge,
            InstrumentKind::Counter => names::Instrument::Counter,
            InstrumentKind::UpDownCounter => names::Instrument::UpDownCounter,
            InstrumentKind::Histogram => names::Instrument::Histogram,
        };
        Ok(Self {
            scope: spec.scope.to_owned(),
            name: spec.name.to_owned(),
            unit: spec.unit.to_owned(),
            description: spec.description.to_owned(),
            kind: spec.kind,
            is_int: spec.is_int,
            bounds,
            canonical: canonical(spec.name, spec.unit, kind).ok_or_else(unusable)?,
        })
    }

    pub(crate) fn shown(&self) -> String {
        format!("{:?} in {:?}", self.kind, self.unit)
    }
}
