//! The sums that recorded values become.

use std::collections::HashMap;
use std::sync::Arc;

use model::{AttributeValue, REFUSED_LABELS};
use wire::otlp::write::{SentExemplar, SentMetric, SentPoint, SentValue};

use super::Attributes;
use super::instrument::{
    Described, INSTRUMENTS_MAX, Instrument, InstrumentError, InstrumentKind, InstrumentSpec, Moment,
    STREAMS_MAX,
};
use super::settings::{ExemplarFilter, Temporality};
use crate::{Run, SeriesHandle, When};

/// Most streams of a process: instruments with their sets of attributes.
const STREAMS_TOTAL_MAX: usize = 100_000;
/// The attribute of the stream that takes what is beyond [`STREAMS_MAX`].
const OVERFLOW: &str = "otel.metric.overflow";

/// What a stream's values have come to.
#[derive(Debug, Clone)]
enum State {
    /// The last value and its time, since the last export.
    Gauge(Option<(f64, i64)>),
    Sum(f64),
    Histogram(Counted),
}

impl State {
    fn empty(described: &Described) -> Self {
        match described.kind {
            InstrumentKind::Gauge => Self::Gauge(None),
            InstrumentKind::Counter | InstrumentKind::UpDownCounter => Self::Sum(0.0),
            InstrumentKind::Histogram => Self::Histogram(Counted::new(described.bounds.len())),
        }
    }
}

/// Values by size.
#[derive(Debug, Clone)]
struct Counted {
    sum: f64,
    range: Option<(f64, f64)>,
    counts: Vec<u64>,
}

impl Counted {
    fn new(bounds: usize) -> Self {
        Self { sum: 0.0, range: None, counts: vec![0; bounds + 1] }
    }

    /// Counts a value; its bucket.
    fn add(&mut self, value: f64, bounds: &[f64]) -> usize {
        let bucket = bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
        let (least, largest) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), largest.max(value)));
        bucket
    }
}

/// An instrument with one set of attributes.
#[derive(Debug)]
struct Stream {
    described: Arc<Described>,
    attributes: Arc<Vec<(String, AttributeValue)>>,
    native: Option<SeriesHandle>,
    state: State,
    start_ns: i64,
    exemplars: Vec<(usize, SentExemplar)>,
    /// Whether the native way has its zero yet, which only counters want.
    wants_zero: bool,
}

/// A stream at one moment.
#[derive(Debug)]
struct Seen {
    described: Arc<Described>,
    attributes: Arc<Vec<(String, AttributeValue)>>,
    state: State,
    start_ns: i64,
    time_ns: i64,
    exemplars: Vec<SentExemplar>,
}

/// Everything at one moment, to be written without holding anybody up.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    seen: Vec<Seen>,
    is_delta: bool,
}

/// All instruments of a set-up.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    owner: u32,
    exemplars: ExemplarFilter,
    temporality: Temporality,
    run: Option<Run>,
    instruments: Vec<Arc<Described>>,
    by_name: HashMap<(String, String), u32>,
    streams: Vec<Stream>,
    /// Streams by their instrument's first stream and the text of their attributes.
    by_attributes: HashMap<(u32, String), u32>,
    /// How many sets of attributes an instrument has, by its first stream.
    sets: HashMap<u32, usize>,
    /// Streams of counters whose zero the native way does not have yet.
    without_zero: Vec<u32>,
    /// Whether any value was taken.
    is_live: bool,
    native: Vec<(SeriesHandle, f64)>,
    pub(crate) is_closed: bool,
    pub(crate) recorded: u64,
    pub(crate) after_close: u64,
    /// The first instrument that was given a value it can't take.
    pub(crate) refused: Option<String>,
}

impl Meter {
    pub(crate) fn new(
        owner: u32,
        exemplars: ExemplarFilter,
        temporality: Temporality,
        run: Option<Run>,
    ) -> Self {
        Self { owner, exemplars, temporality, run, ..Self::default() }
    }

    /// The instrument of a description, made where it is not there.
    pub(crate) fn instrument(
        &mut self,
        spec: &InstrumentSpec<'_>,
        now_ns: i64,
    ) -> Result<Instrument, InstrumentError> {
        // Names of instruments are the same in any case.
        let key = (spec.scope.to_owned(), spec.name.to_ascii_lowercase());
        if let Some(stream) = self.by_name.get(&key) {
            let found = &self.streams[*stream as usize].described;
            if found.kind != spec.kind || found.unit != spec.unit {
                return Err(InstrumentError::Conflict {
                    name: spec.name.to_owned(),
                    found: found.shown(),
                    wanted: format!("{:?} in {:?}", spec.kind, spec.unit),
                });
            }
            return Ok(self.handle(*stream));
        }
        let is_full = self.instruments.len() >= INSTRUMENTS_MAX || self.streams.len() >= STREAMS_TOTAL_MAX;
        if is_full {
            return Err(InstrumentError::TooMany(spec.name.to_owned()));
        }
        let described = Arc::new(Described::new(spec)?);
        self.instruments.push(Arc::clone(&described));
        let stream = self.add(described, Vec::new(), now_ns);
        self.by_name.insert(key, stream);
        Ok(self.handle(stream))
    }

    /// The same instrument with attributes.
    pub(crate) fn with_attributes(
        &mut self,
        instrument: Instrument,
        attributes: Attributes<'_>,
        now_ns: i64,
    ) -> Result<Instrument, InstrumentError> {
        let Some(stream) = self.streams.get(instrument.stream as usize) else { return Ok(instrument) };
        if instrument.owner != self.owner {
            return Ok(instrument);
        }
        let described = Arc::clone(&stream.described);
        let mut own: Vec<(String, AttributeValue)> = Vec::with_capacity(attributes.len());
        for (key, value) in attributes.iter().filter(|(_, value)| *value != AttributeValue::Null) {
            if is_refused(key) {
                return Err(InstrumentError::Label((*key).to_owned()));
            }
            own.retain(|(k, _)| k != key);
            own.push(((*key).to_owned(), value.clone()));
        }
        own.sort_by(|a, b| a.0.cmp(&b.0));
        if own.is_empty() {
            return Ok(instrument);
        }
        let key = (instrument.stream, format!("{own:?}"));
        if let Some(stream) = self.by_attributes.get(&key) {
            return Ok(self.handle(*stream));
        }
        let sets = self.sets.entry(instrument.stream).or_default();
        if *sets >= STREAMS_MAX || self.streams.len() >= STREAMS_TOTAL_MAX {
            return Ok(self.overflow(instrument, described, now_ns));
        }
        *sets += 1;
        let stream = self.add(described, own, now_ns);
        self.by_attributes.insert(key, stream);
        Ok(self.handle(stream))
    }

    /// The one stream for all that are beyond the bound.
    fn overflow(&mut self, instrument: Instrument, described: Arc<Described>, now_ns: i64) -> Instrument {
        let key = (instrument.stream, OVERFLOW.to_owned());
        if let Some(stream) = self.by_attributes.get(&key) {
            return self.handle(*stream);
        }
        let stream = self.add(described, vec![(OVERFLOW.into(), AttributeValue::Bool(true))], now_ns);
        self.by_attributes.insert(key, stream);
        self.handle(stream)
    }

    fn handle(&self, stream: u32) -> Instrument {
        Instrument { stream, owner: self.owner }
    }

    fn add(
        &mut self,
        described: Arc<Described>,
        attributes: Vec<(String, AttributeValue)>,
        now_ns: i64,
    ) -> u32 {
        let index = self.streams.len() as u32;
        let native = self.run.as_ref().and_then(|run| native(run, &described.canonical, &attributes));
        let wants_zero = native.is_some() && described.kind == InstrumentKind::Counter;
        if wants_zero {
            self.without_zero.push(index);
        }
        let state = State::empty(&described);
        let attributes = Arc::new(attributes);
        let exemplars = Vec::new();
        self.streams.push(Stream {
            described,
            attributes,
            native,
            state,
            start_ns: now_ns,
            exemplars,
            wants_zero,
        });
        index
    }

    /// Takes values that share a moment; whether any was refused.
    pub(crate) fn record(&mut self, values: &[(Instrument, f64)], moment: &Moment, now_ns: i64) -> bool {
        if self.is_closed {
            self.after_close += values.len() as u64;
            return false;
        }
        let time_ns = moment.time_ns.unwrap_or(now_ns);
        let keeps = match self.exemplars {
            ExemplarFilter::AlwaysOn => true,
            ExemplarFilter::AlwaysOff => false,
            ExemplarFilter::TraceBased => moment.span.is_some_and(|span| span.is_sampled),
        };
        let span = moment.span.map(|span| (span.trace, span.id));
        self.native.clear();
        let mut is_refused = false;
        for &(instrument, value) in values {
            let Some(stream) = self.streams.get_mut(instrument.stream as usize) else { continue };
            if instrument.owner != self.owner {
                continue;
            }
            let Some(taken) = stream.take(value, time_ns) else {
                // A counter that is given nothing to count is used as it should be.
                if value != 0.0 && self.refused.is_none() {
                    self.refused = Some(stream.described.name.clone());
                    is_refused = true;
                }
                continue;
            };
            self.recorded += 1;
            if keeps {
                stream.keep(taken.bucket, SentExemplar { time_ns, value, span });
            }
            if let Some(handle) = stream.native {
                self.native.push((handle, taken.native));
            }
            self.is_live = true;
        }
        self.log(moment);
        is_refused
    }

    /// Hands the values to the run. The lock of the meter is held, so that totals come in order.
    fn log(&mut self, moment: &Moment) {
        let Some(run) = &self.run else { return };
        if self.native.is_empty() {
            return;
        }
        let when = moment.time_ns.map_or_else(When::stamp, When::At);
        for index in self.without_zero.drain(..) {
            if let Some(stream) = self.streams.get_mut(index as usize)
                && let Some(handle) = stream.native
                && std::mem::take(&mut stream.wants_zero)
            {
                run.log(handle, 0.0, moment.step, when);
            }
        }
        run.log_all(&self.native, moment.step, when);
    }

    /// Everything as it stands; what counts from export to export begins anew.
    pub(crate) fn collect(&mut self, now_ns: i64) -> Snapshot {
        let is_delta = self.temporality == Temporality::Delta;
        let mut snapshot = Snapshot { seen: Vec::new(), is_delta };
        if !self.is_live {
            return snapshot;
        }
        for stream in &mut self.streams {
            snapshot.seen.extend(stream.collect(now_ns, is_delta));
        }
        snapshot
    }
}

/// What a value did to a stream.
struct Taken {
    /// What the native way logs: the value, or the total of a sum.
    native: f64,
    /// The bucket it fell into; 0 where there are none.
    bucket: usize,
}

impl Stream {
    /// Takes a value; none where the instrument has no use for it.
    fn take(&mut self, value: f64, time_ns: i64) -> Option<Taken> {
        let described = &self.described;
        match &mut self.state {
            State::Gauge(last) => {
                *last = Some((value, time_ns));
                Some(Taken { native: value, bucket: 0 })
            }
            State::Sum(total) => {
                let only_grows = described.kind == InstrumentKind::Counter;
                if !value.is_finite() || (only_grows && value <= 0.0) {
                    return None;
                }
                *total += value;
                Some(Taken { native: *total, bucket: 0 })
            }
            State::Histogram(counted) => {
                if !value.is_finite() {
                    return None;
                }
                let bucket = counted.add(value, &described.bounds);
                Some(Taken { native: value, bucket })
            }
        }
    }

    /// Keeps the last measurement of each bucket.
    fn keep(&mut self, bucket: usize, exemplar: SentExemplar) {
        match self.exemplars.iter_mut().find(|(of, _)| *of == bucket) {
            Some((_, kept)) => *kept = exemplar,
            None => self.exemplars.push((bucket, exemplar)),
        }
    }

    fn collect(&mut self, now_ns: i64, is_delta: bool) -> Option<Seen> {
        let is_delta = is_delta && self.described.kind != InstrumentKind::UpDownCounter;
        let start_ns = self.start_ns;
        let (state, start_ns, time_ns) = match &mut self.state {
            // A gauge tells what was measured when it was, and nothing where nothing was.
            State::Gauge(last) => {
                let (value, time_ns) = last.take()?;
                (State::Gauge(Some((value, time_ns))), 0, time_ns)
            }
            // What was never measured is absent, which is not zero.
            State::Histogram(counted) if counted.range.is_none() => return None,
            State::Sum(_) | State::Histogram(_) => {
                let state = self.state.clone();
                if is_delta {
                    self.state = State::empty(&self.described);
                    self.start_ns = now_ns;
                }
                (state, start_ns, now_ns.max(start_ns))
            }
        };
        let exemplars = self.exemplars.drain(..).map(|(_, exemplar)| exemplar).collect();
        let (described, attributes) = (Arc::clone(&self.described), Arc::clone(&self.attributes));
        Some(Seen { described, attributes, state, start_ns, time_ns, exemplars })
    }
}

impl Snapshot {
    /// How many points it has.
    pub(crate) fn points(&self) -> u64 {
        self.seen.len() as u64
    }

    /// As metrics to be written, the points of an instrument together.
    pub(crate) fn metrics(&self) -> Vec<SentMetric<'_>> {
        let mut metrics: Vec<SentMetric<'_>> = Vec::new();
        let mut index: HashMap<*const Described, usize> = HashMap::new();
        for seen in &self.seen {
            let described = &*seen.described;
            let at = *index.entry(Arc::as_ptr(&seen.described)).or_insert_with(|| {
                metrics.push(SentMetric {
                    scope: &described.scope,
                    name: &described.name,
                    unit: &described.unit,
                    description: &described.description,
                    points: Vec::new(),
                });
                metrics.len() - 1
            });
            metrics[at].points.push(seen.point(self.is_delta));
        }
        metrics
    }
}

impl Seen {
    fn point(&self, is_delta: bool) -> SentPoint<'_> {
        let described = &*self.described;
        let value = match &self.state {
            State::Gauge(last) => SentValue::Gauge(last.map_or(f64::NAN, |(value, _)| value)),
            State::Sum(total) => {
                let is_monotonic = described.kind == InstrumentKind::Counter;
                SentValue::Sum {
                    value: *total,
                    is_int: described.is_int,
                    is_monotonic,
                    is_delta: is_delta && is_monotonic,
                }
            }
            State::Histogram(counted) => SentValue::Histogram {
                sum: counted.sum,
                range: counted.range,
                bounds: &described.bounds,
                counts: &counted.counts,
                is_delta,
            },
        };
        SentPoint {
            attributes: &self.attributes,
            start_ns: self.start_ns,
            time_ns: self.time_ns,
            value,
            exemplars: &self.exemplars,
        }
    }
}

/// Whether a key may not tell points apart, under whatever prefix.
fn is_refused(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    REFUSED_LABELS.contains(&key.replace('.', "_").as_str()) || REFUSED_LABELS.contains(&last)
}

/// The run's series of a stream; none where a label can't be one there.
fn native(run: &Run, canonical: &str, attributes: &[(String, AttributeValue)]) -> Option<SeriesHandle> {
    let labels: Vec<(String, String)> = attributes
        .iter()
        .map(|(key, value)| {
            let text = match value {
                AttributeValue::Null => String::new(),
                AttributeValue::Bool(bool) => bool.to_string(),
                AttributeValue::Int(int) => int.to_string(),
                AttributeValue::Float(float) => float.to_string(),
                AttributeValue::Text(text) => text.clone(),
            };
            (model::prometheus_name(key), text)
        })
        .collect();
    let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    match run.series(canonical, &labels, "") {
        Ok(handle) => Some(handle),
        Err(error) => {
            run.refuse(error.reason(), 1, &error.to_string());
            None
        }
    }
}
