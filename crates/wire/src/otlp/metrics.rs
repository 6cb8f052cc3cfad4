//! The message `ExportMetricsServiceRequest`, point by point.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::buckets::{self, Exponential, Histogram, SENT_BUCKETS_MAX, Side};
use super::names::{self, Instrument};
use super::proto::{Field, Fields};
use super::resource::Resource;
use super::value::Attributes;
use super::{
    AHEAD_NS_MAX, BODY_BYTES_MAX, EXEMPLARS_MAX, NAME_BYTES_MAX, OtlpError, Outcome, POINTS_MAX, Refusal,
    Scope,
};

/// Whether a sum or histogram tells all since its start, or what was added since the point before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Temporality {
    /// Since the point before.
    Delta,
    /// Since the start.
    Cumulative,
}

/// What a point is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric<'a> {
    /// The name as sent, mostly with dots.
    pub name: &'a str,
    /// The unit as sent.
    pub unit: &'a str,
    /// Its description.
    pub help: &'a str,
    /// What its data are.
    pub instrument: Instrument,
    /// How sums and histograms are told; gauges and summaries are as good as cumulative.
    pub temporality: Temporality,
    /// Its canonical name in Prometheus, see [`names::canonical`].
    pub canonical: Rc<str>,
}

/// What a point says.
#[derive(Debug, Clone, PartialEq)]
pub enum PointValue {
    /// A number; NaN and infinities are values.
    Number(f64),
    /// A histogram.
    Histogram(Histogram),
    /// Count, sum, and pairs of quantile and value.
    Summary {
        /// How many observations.
        count: u64,
        /// Their sum.
        sum: f64,
        /// Quantiles, 0 to 1, and their values.
        quantiles: Vec<(f64, f64)>,
    },
    /// "No recorded value": the series ended here.
    Ended,
}

/// A record that a point is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar<'a> {
    /// When it was recorded, nanoseconds since the epoch.
    pub time_ns: i64,
    /// Its value.
    pub value: f64,
    /// The trace it was recorded in.
    pub trace: Option<[u8; 16]>,
    /// The span it was recorded in.
    pub span: Option<[u8; 8]>,
    /// Attributes that the metric does not have.
    pub attributes: Attributes<'a>,
}

/// One data point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<'a, 'r> {
    /// In which part of the request it is, counted from 0: a part for each resource that
    /// [`super::each_resource`] hands over.
    pub part: usize,
    /// The bytes of its resource, which are not read here; see [`Point::resource`].
    pub resource_bytes: &'a [u8],
    /// By which instrumentation.
    pub scope: Scope<'a>,
    /// Of what.
    pub metric: &'r Metric<'a>,
    /// The bytes of its own attributes: with the same resource and metric, equal bytes are the same
    /// series. [`Point::attributes`] reads them.
    pub attribute_bytes: &'a [u8],
    /// The number of their field.
    attribute_field: u64,
    /// When the sum or histogram began, nanoseconds since the epoch; 0 where that is not known.
    pub start_ns: i64,
    /// When it was so, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What it says.
    pub value: PointValue,
    /// Records it is made of, at most [`EXEMPLARS_MAX`].
    pub exemplars: Vec<Exemplar<'a>>,
}

impl<'a> Point<'a, '_> {
    /// Its own attributes. Who knows their bytes need not read them again.
    pub fn attributes(&self) -> Result<Attributes<'a>, OtlpError> {
        attributes(self.attribute_bytes, self.attribute_field)
    }

    /// Who sent it.
    pub fn resource(&self) -> Result<Resource<'a>, OtlpError> {
        Resource::read(self.resource_bytes)
    }
}

fn attributes(bytes: &[u8], wanted: u64) -> Result<Attributes<'_>, OtlpError> {
    let (mut attributes, mut fields) = (Attributes::default(), Fields(bytes));
    while let Some((number, field)) = fields.next()? {
        if number == wanted {
            attributes.push(field.bytes()?)?;
        }
    }
    Ok(attributes)
}

/// Takes a point or says why not.
pub type PointSink<'s> = &'s mut dyn FnMut(&Point<'_, '_>) -> Result<(), Refusal>;

/// Reads a body and hands its points to `sink` in order; `now_ns` is the time of arrival.
///
/// Resources are not read, and attributes of points that `sink` takes only if it does so: most are the
/// same in every request. Read those that are not.
///
/// On an error nothing of the body counts: what was handed out before is to be dropped. A point that is
/// refused costs no other point. That one series has one value at one time is for `sink` to see: it knows
/// which points are of one series.
pub fn read(body: &[u8], now_ns: i64, sink: PointSink<'_>) -> Result<Outcome, OtlpError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(OtlpError::TooMuch { what: "bytes unpacked", limit: BODY_BYTES_MAX });
    }
    let mut reader = Reader {
        outcome: Outcome::default(),
        names: Names::default(),
        raw: Raw::default(),
        points: 0,
        latest_ns: now_ns.saturating_add(AHEAD_NS_MAX),
        sink,
    };
    let mut part = 0;
    super::each_part(body, &mut |resource, of_resource| {
        super::each_of_part(of_resource, &mut |scope, message| {
            reader.metric(Place { part, resource, scope }, message)
        })?;
        part += 1;
        Ok(())
    })?;
    Ok(reader.outcome)
}

/// So many names are remembered within a request.
const NAMED_MAX: usize = 4_096;

/// A metric by name, unit and kind.
type Identity<'a> = (&'a str, &'a str, Instrument);

type Named<'a> = (Identity<'a>, Result<Rc<str>, Refusal>);

/// Canonical names so far. Processes of one kind send the same metrics, in the same order, so the one
/// after the last is looked at first.
#[derive(Default)]
struct Names<'a> {
    list: Vec<Named<'a>>,
    places: HashMap<Identity<'a>, usize, RandomState>,
    next: usize,
}

impl<'a> Names<'a> {
    fn canonical(&mut self, identity: Identity<'a>) -> Result<Rc<str>, Refusal> {
        let is_next = self.list.get(self.next).is_some_and(|(known, _)| *known == identity);
        let at = if is_next { self.next } else { self.place(identity) };
        self.next = if at + 1 == self.list.len() { 0 } else { at + 1 };
        self.list[at].1.clone()
    }

    fn place(&mut self, identity: Identity<'a>) -> usize {
        if let Some(at) = self.places.get(&identity) {
            return *at;
        }
        if self.list.len() >= NAMED_MAX {
            self.list.clear();
            self.places.clear();
        }
        let (name, unit, instrument) = identity;
        self.places.insert(identity, self.list.len());
        self.list.push((identity, canonical_name(name, unit, instrument)));
        self.list.len() - 1
    }
}

/// Where a metric stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    part: usize,
    resource: &'a [u8],
    scope: Scope<'a>,
}

struct Reader<'a, 's> {
    outcome: Outcome,
    names: Names<'a>,
    /// The point that is being read.
    raw: Raw<'a>,
    points: usize,
    latest_ns: i64,
    sink: PointSink<'s>,
}

/// What the points of one metric share.
#[derive(Clone, Copy)]
struct Shared<'a, 'r> {
    place: Place<'a>,
    metric: &'r Metric<'a>,
    kind: DataKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DataKind {
    Number,
    Histogram,
    Exponential,
    Summary,
}

impl DataKind {
    /// The number of the field of a point's attributes.
    fn attribute_field(self) -> u64 {
        match self {
            Self::Number | Self::Summary => 7,
            Self::Histogram => 9,
            Self::Exponential => 1,
        }
    }
}

impl<'a> Reader<'a, '_> {
    fn metric(&mut self, place: Place<'a>, message: &'a [u8]) -> Result<(), OtlpError> {
        let (mut name, mut help, mut unit, mut data) = ("", "", "", None);
        let mut fields = Fields(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => name = field.text()?,
                2 => help = field.text()?,
                3 => unit = field.text()?,
                5 | 7 | 9 | 10 | 11 => data = Some((number, field.bytes()?)),
                _ => {}
            }
        }
        // A metric without data has no points that could be refused.
        let Some((number, data)) = data else { return Ok(()) };
        let kind = match number {
            5 | 7 => DataKind::Number,
            9 => DataKind::Histogram,
            10 => DataKind::Exponential,
            _ => DataKind::Summary,
        };
        let head = if number == GAUGE { Head::default() } else { Head::read(data, kind)? };
        let instrument = head.instrument(number);
        let canonical = self.names.canonical((name, unit, instrument));
        let told = canonical.and_then(|canonical| Ok((canonical, head.temporality(instrument)?)));
        let metric = match told {
            Ok((canonical, temporality)) => Metric { name, unit, help, instrument, temporality, canonical },
            Err(refusal) => {
                self.outcome.refuse(name, Head::read(data, kind)?.points, refusal);
                return Ok(());
            }
        };
        self.data(data, Shared { place, metric: &metric, kind })
    }

    fn data(&mut self, data: &'a [u8], shared: Shared<'a, '_>) -> Result<(), OtlpError> {
        let mut fields = Fields(data);
        while let Some((number, field)) = fields.next()? {
            if number != 1 {
                continue;
            }
            self.points += 1;
            if self.points > POINTS_MAX {
                return Err(OtlpError::TooMuch { what: "points", limit: POINTS_MAX });
            }
            self.raw.read(field.bytes()?, shared.kind)?;
            let point = self.raw.point(shared, self.latest_ns);
            match point.and_then(|point| (self.sink)(&point)) {
                Ok(()) => self.outcome.accepted += 1,
                Err(refusal) => {
                    // Nobody may have read them; a body that can't be read is refused whole.
                    attributes(self.raw.attribute_bytes, shared.kind.attribute_field())?;
                    self.outcome.refuse(shared.metric.name, 1, refusal);
                }
            }
        }
        Ok(())
    }
}

/// The number of the field of a gauge's data, which have nothing but points.
const GAUGE: u64 = 5;

/// What a metric's data say beside points.
#[derive(Default)]
struct Head {
    points: u64,
    temporality: u64,
    monotonic: bool,
}

impl Head {
    fn read(data: &[u8], kind: DataKind) -> Result<Self, OtlpError> {
        let mut head = Self::default();
        let mut fields = Fields(data);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => head.points += 1,
                2 if kind != DataKind::Summary => head.temporality = field.int()?,
                3 if kind == DataKind::Number => head.monotonic = field.int()? != 0,
                _ => {}
            }
        }
        Ok(head)
    }

    fn instrument(&self, number: u64) -> Instrument {
        match (number, self.monotonic) {
            (GAUGE, _) => Instrument::Gauge,
            (7, true) => Instrument::Counter,
            (7, false) => Instrument::UpDownCounter,
            (11, _) => Instrument::Summary,
            _ => Instrument::Histogram,
        }
    }

    fn temporality(&self, instrument: Instrument) -> Result<Temporality, Refusal> {
        match (instrument, self.temporality) {
            (Instrument::Gauge | Instrument::Summary, _) | (_, 2) => Ok(Temporality::Cumulative),
            (_, 1) => Ok(Temporality::Delta),
            (_, other) => {
                let text = format!(
                    "its aggregation temporality is {other}: sums and histograms are delta (1) or cumulative (2)"
                );
                Err(Refusal::told("temporality", text))
            }
        }
    }
}

fn canonical_name(name: &str, unit: &str, instrument: Instrument) -> Result<Rc<str>, Refusal> {
    if name.is_empty() {
        return Err(Refusal::new("metric_name", "the metric has no name"));
    }
    let canonical = names::canonical(name, unit, instrument)
        .ok_or(Refusal::new("metric_name", "nothing of the name can stand in a metric's name"))?;
    if canonical.len().max(name.len()) > NAME_BYTES_MAX {
        let found = canonical.len().max(name.len());
        let text = format!("the name has {found} bytes, at most {NAME_BYTES_MAX} are kept");
        return Err(Refusal::told("metric_name", text));
    }
    Ok(canonical.into())
}

/// A data point of any kind as it stands in the body.
#[derive(Default)]
struct Raw<'a> {
    attribute_bytes: &'a [u8],
    start_ns: u64,
    time_ns: u64,
    flags: u64,
    number: Option<f64>,
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    bounds: Vec<f64>,
    counts: Vec<u64>,
    exponential: Exponential,
    quantiles: Vec<(f64, f64)>,
    exemplars: Vec<Exemplar<'a>>,
}

/// Set when a series has no value any more.
const NO_RECORDED_VALUE: u64 = 1;

impl<'a> Raw<'a> {
    /// Reads a point in the place of the one before, whose room it takes.
    fn read(&mut self, message: &'a [u8], kind: DataKind) -> Result<(), OtlpError> {
        (self.start_ns, self.time_ns, self.flags, self.number) = (0, 0, 0, None);
        self.exemplars.clear();
        if kind != DataKind::Number {
            (self.count, self.sum, self.min, self.max) = (0, None, None, None);
            self.bounds.clear();
            self.counts.clear();
            self.exponential = Exponential::default();
            self.quantiles.clear();
        }
        let mut fields = Fields(message);
        // Where the attributes lie, so that their bytes can be compared.
        let (mut first, mut last) = (None, 0);
        loop {
            let before = message.len() - fields.0.len();
            let Some((number, field)) = fields.next()? else { break };
            let is_attribute = match (kind, number) {
                (DataKind::Exponential, 1) => true,
                (_, 2) => set(&mut self.start_ns, field.fixed()?),
                (_, 3) => set(&mut self.time_ns, field.fixed()?),
                (DataKind::Number, _) => self.number(number, field)?,
                (DataKind::Histogram, _) => self.histogram(number, field)?,
                (DataKind::Exponential, _) => self.exponential(number, field)?,
                (DataKind::Summary, _) => self.summary(number, field)?,
            };
            if is_attribute {
                field.bytes()?;
                first = first.or(Some(before));
                last = message.len() - fields.0.len();
            }
        }
        self.attribute_bytes = first.map_or(&[], |first| &message[first..last]);
        Ok(())
    }

    /// Takes a field of `NumberDataPoint`; says whether it is an attribute.
    fn number(&mut self, number: u64, field: Field<'a>) -> Result<bool, OtlpError> {
        match number {
            4 => self.number = Some(field.double()?),
            5 => self.exemplar(field)?,
            6 => self.number = Some(field.fixed()?.cast_signed() as f64),
            7 => return Ok(true),
            8 => self.flags = field.int()?,
            _ => {}
        }
        Ok(false)
    }

    /// Takes a field of `HistogramDataPoint`.
    fn histogram(&mut self, number: u64, field: Field<'a>) -> Result<bool, OtlpError> {
        match number {
            4 => self.count = field.fixed()?,
            5 => self.sum = Some(field.double()?),
            6 => field.push_fixed(&mut self.counts, |count| count)?,
            7 => field.push_fixed(&mut self.bounds, f64::from_bits)?,
            8 => self.exemplar(field)?,
            9 => return Ok(true),
            10 => self.flags = field.int()?,
            11 => self.min = Some(field.double()?),
            12 => self.max = Some(field.double()?),
            _ => {}
        }
        Ok(false)
    }

    /// Takes a field of `ExponentialHistogramDataPoint`.
    fn exponential(&mut self, number: u64, field: Field<'a>) -> Result<bool, OtlpError> {
        match number {
            4 => self.count = field.fixed()?,
            5 => self.sum = Some(field.double()?),
            6 => self.exponential.scale = field.zigzag()?,
            7 => self.exponential.zero_count = field.fixed()?,
            8 => self.exponential.positive = side(field.bytes()?)?,
            9 => self.exponential.negative = side(field.bytes()?)?,
            10 => self.flags = field.int()?,
            11 => self.exemplar(field)?,
            12 => self.min = Some(field.double()?),
            13 => self.max = Some(field.double()?),
            14 => self.exponential.zero_threshold = field.double()?,
            _ => {}
        }
        Ok(false)
    }

    /// Takes a field of `SummaryDataPoint`.
    fn summary(&mut self, number: u64, field: Field<'a>) -> Result<bool, OtlpError> {
        match number {
            4 => self.count = field.fixed()?,
            5 => self.sum = Some(field.double()?),
            6 => {
                let (mut pair, mut fields) = ((0.0, 0.0), Fields(field.bytes()?));
                while let Some((number, field)) = fields.next()? {
                    match number {
                        1 => pair.0 = field.double()?,
                        2 => pair.1 = field.double()?,
                        _ => {}
                    }
                }
                if self.quantiles.len() <= buckets::BOUNDS_MAX {
                    self.quantiles.push(pair);
                }
            }
            7 => return Ok(true),
            8 => self.flags = field.int()?,
            _ => {}
        }
        Ok(false)
    }

    fn exemplar(&mut self, field: Field<'a>) -> Result<(), OtlpError> {
        let exemplar = read_exemplar(field.bytes()?)?;
        if self.exemplars.len() < EXEMPLARS_MAX {
            self.exemplars.push(exemplar);
        }
        Ok(())
    }

    /// The point, checked.
    fn point<'r>(&mut self, shared: Shared<'a, 'r>, latest_ns: i64) -> Result<Point<'a, 'r>, Refusal> {
        let ended = self.flags & NO_RECORDED_VALUE != 0;
        let (start_ns, time_ns) = self.times(latest_ns)?;
        let value = if ended { PointValue::Ended } else { self.value(shared.kind)? };
        Ok(Point {
            part: shared.place.part,
            resource_bytes: shared.place.resource,
            scope: shared.place.scope,
            metric: shared.metric,
            attribute_bytes: self.attribute_bytes,
            attribute_field: shared.kind.attribute_field(),
            start_ns,
            time_ns,
            value,
            exemplars: std::mem::take(&mut self.exemplars),
        })
    }

    fn times(&self, latest_ns: i64) -> Result<(i64, i64), Refusal> {
        if self.time_ns == 0 {
            return Err(Refusal::new("time", "the point has no time"));
        }
        let time_ns = i64::try_from(self.time_ns).unwrap_or(i64::MAX);
        if time_ns > latest_ns {
            return Err(Refusal::new(
                "time_ahead",
                "its time is ahead of this server's by more than 2 h: set the sender's clock",
            ));
        }
        Ok((i64::try_from(self.start_ns).unwrap_or(i64::MAX), time_ns))
    }

    fn value(&mut self, kind: DataKind) -> Result<PointValue, Refusal> {
        let (count, sum, min, max) = (self.count, self.sum, self.min, self.max);
        Ok(match kind {
            DataKind::Number => {
                PointValue::Number(self.number.ok_or(Refusal::new("no_value", "the point has no value"))?)
            }
            DataKind::Histogram => {
                let buckets = buckets::explicit(&self.bounds, &self.counts, count)?;
                PointValue::Histogram(Histogram { count, sum, min, max, buckets, ladder: false })
            }
            DataKind::Exponential => {
                let buckets = self.exponential.on_ladder(count)?;
                PointValue::Histogram(Histogram { count, sum, min, max, buckets, ladder: true })
            }
            DataKind::Summary => {
                let quantiles = std::mem::take(&mut self.quantiles);
                if quantiles.len() > buckets::BOUNDS_MAX || quantiles.iter().any(|(q, _)| q.is_nan()) {
                    return Err(Refusal::new("quantiles", "its quantiles are too many, or one is no number"));
                }
                PointValue::Summary { count, sum: sum.unwrap_or(0.0), quantiles }
            }
        })
    }
}

/// Sets a field that is no attribute.
fn set<T>(place: &mut T, value: T) -> bool {
    *place = value;
    false
}

fn side(message: &[u8]) -> Result<Side, OtlpError> {
    let (mut side, mut fields) = (Side::default(), Fields(message));
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => side.offset = field.zigzag()?,
            2 => field.each_varint(|count| {
                if side.counts.len() <= SENT_BUCKETS_MAX {
                    side.counts.push(count);
                }
            })?,
            _ => {}
        }
    }
    Ok(side)
}

fn read_exemplar(message: &[u8]) -> Result<Exemplar<'_>, OtlpError> {
    let mut exemplar =
        Exemplar { time_ns: 0, value: 0.0, trace: None, span: None, attributes: Attributes::default() };
    let mut fields = Fields(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            2 => exemplar.time_ns = i64::try_from(field.fixed()?).unwrap_or(i64::MAX),
            3 => exemplar.value = field.double()?,
            4 => exemplar.span = super::id(field.bytes()?),
            5 => exemplar.trace = super::id(field.bytes()?),
            6 => exemplar.value = field.fixed()?.cast_signed() as f64,
            7 => exemplar.attributes.push(field.bytes()?)?,
            _ => {}
        }
    }
    Ok(exemplar)
}
