//! What becomes of data points: samples of series, in one commit with what is known of their senders.

mod exemplars;
mod families;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::{Labels, NANOS_PER_SECOND, Sample, SeriesIdentity};
use store::{AppendError, Batch, Collision, MetricMetadata, Receipt, SeriesBatch};
use wire::otlp::answer::Signal;
use wire::otlp::metrics as points;
use wire::otlp::{
    Instrument, LabelFault, Note, OtlpError, Outcome, PartSample, Point, PointValue, RESOURCES_MAX, Refusal,
    Resource, Told,
};

pub(super) use families::Families;

use super::state::{Held, Origin, family_key, name_row, total_row};
use super::{Arrival, Seen, TakeError};
use crate::app::Shared;
use crate::{canonical, intake};
use families::{Family, Said, write_key};

/// What a sender's other attributes are is told as often as this while it sends: a question at any time
/// finds it, looking back five minutes.
const INFO_EVERY_NS: i64 = 60 * NANOS_PER_SECOND;
/// There is room at once for the samples of a body whose every sample takes so many bytes of it, but for
/// no more than the second.
const POINT_BYTES: usize = 40;
const POINTS_AT_ONCE: usize = 4_096;
/// No points yet: nothing is earlier than the first, nothing later than the last.
const NEVER: (i64, i64) = (i64::MAX, i64::MIN);

/// Stores the data points of a request; see [`super::take`].
pub(super) fn take(shared: &Shared, arrival: &Arrival<'_>) -> Result<Outcome, TakeError> {
    let mut gathered = Gathered::of(shared, arrival)?;
    let read = points::read(arrival.body, arrival.now_ns, &mut |point| gathered.take(point));
    let read = read.and_then(|outcome| gathered.fault.take().map_or(Ok(outcome), Err));
    let mut outcome = match read {
        Ok(outcome) => outcome,
        Err(error) => {
            undo(&mut gathered.held);
            return Err(error.into());
        }
    };
    arrival.is_read();
    gathered.keep(arrival, &mut outcome)?;
    Ok(outcome)
}

/// A resource of the request.
struct Sender<'a> {
    resource: Resource<'a>,
    origin: Result<Arc<Origin>, Refusal>,
    /// First and last time of its points.
    times_ns: (i64, i64),
}

/// A request that is being read.
struct Gathered<'s, 'a> {
    shared: &'s Shared,
    seen: Seen<'s>,
    senders: Vec<Sender<'a>>,
    /// The place of the sender of each part.
    parts: Vec<u32>,
    held: Held<'s>,
    made: Made<'s>,
    key: KeyBuffer,
    samples: Vec<PartSample>,
    /// The body can't be read after all.
    fault: Option<OtlpError>,
}

impl<'s, 'a> Gathered<'s, 'a> {
    fn of(shared: &'s Shared, arrival: &Arrival<'a>) -> Result<Self, TakeError>
    where
        'a: 's,
    {
        let mut seen = Seen::new(shared, arrival.caller);
        let mut senders: Vec<Sender<'a>> = Vec::new();
        let mut by_resource: HashMap<&[u8], u32, RandomState> = HashMap::default();
        let (mut parts, mut fault) = (Vec::new(), None);
        wire::otlp::each_resource(arrival.body, &mut |resource| {
            let place = senders.len();
            match by_resource.entry(resource.bytes) {
                _ if fault.is_some() => return,
                Entry::Occupied(known) => return parts.push(*known.get()),
                Entry::Vacant(_) if place >= RESOURCES_MAX => {
                    fault = Some(OtlpError::TooMuch { what: "resources", limit: RESOURCES_MAX });
                    return;
                }
                Entry::Vacant(new) => parts.push(*new.insert(place as u32)),
            }
            match sender(shared, &mut seen, resource) {
                Ok(sender) => senders.push(sender),
                Err(error) => fault = Some(error),
            }
        })?;
        if let Some(error) = fault {
            return Err(error.into());
        }
        let mut wanted = [false; 256];
        for origin in senders.iter().filter_map(|sender| sender.origin.as_ref().ok()) {
            wanted[origin.shard()] = true;
        }
        let mut held = shared.streams.hold(|shard| wanted[shard]);
        for shard in held.iter_mut().flatten() {
            shard.families.begin();
        }
        Ok(Self {
            shared,
            seen,
            senders,
            parts,
            held,
            made: Made::new(shared, arrival.body.len()),
            key: KeyBuffer::default(),
            samples: Vec::new(),
            fault: None,
        })
    }

    fn take(&mut self, point: &Point<'_, '_>) -> Result<(), Refusal> {
        let sender = self.parts.get(point.part).and_then(|place| self.senders.get_mut(*place as usize));
        let Some(sender) = sender else { return Err(NOBODY) };
        let origin = sender.origin.as_ref().map_err(Refusal::clone)?;
        let Some(shard) = self.held[origin.shard()].as_deref_mut() else { return Err(NOBODY) };
        let key = self.key.of(origin.number, point);
        let place = match shard.families.find(key) {
            Some(place) => place,
            None => match self.made.family(origin, point) {
                Ok(family) => shard.families.insert(key, family),
                Err(LabelFault::Refused(refusal)) => return Err(refusal),
                Err(LabelFault::Body(error)) => {
                    self.fault = Some(error);
                    return Err(NOBODY);
                }
            },
        };
        match shard.families.say(place, point.time_ns, fingerprint(&point.value)) {
            Said::First => {}
            Said::Again => return Ok(()),
            Said::Other => return Err(DUPLICATE),
        }
        let request = shard.families.request();
        let family = shard.families.at(place);
        self.samples.clear();
        let note = shard.cumulator.take(family.key, &Told::of(point), &mut self.samples)?;
        sender.times_ns = (sender.times_ns.0.min(point.time_ns), sender.times_ns.1.max(point.time_ns));
        self.made.samples(family, request, point, &self.samples);
        self.made.note(note, family, point);
        Ok(())
    }

    /// Makes it durable. What the store refused is added to the outcome.
    fn keep(mut self, arrival: &Arrival<'_>, outcome: &mut Outcome) -> Result<(), TakeError> {
        for sender in self.senders.iter().filter(|sender| sender.times_ns != NEVER) {
            let noted = self.seen.note(&sender.resource, sender.times_ns, Signal::Metrics);
            debug_assert!(noted.is_ok(), "its points were taken");
            if let Ok(origin) = &sender.origin {
                self.made.info(origin, sender.times_ns);
            }
        }
        for shard in self.held.iter_mut().flatten() {
            let rows = &mut self.made.batch.state;
            shard.cumulator.changes(|key, bytes| rows.push(total_row(key, bytes)));
        }
        self.made.batch.changes = self.seen.changes(arrival.now_ns);
        let Made { batch, named, infos, metrics, sayings, advice, notes, .. } = self.made;
        for text in advice {
            outcome.advise(text);
        }
        for (note, count) in notes.iter().filter(|(_, count)| *count > 0) {
            self.shared.metrics.odd_points.add(&[arrival.door, note], *count);
        }
        if batch.series.is_empty() && batch.points.is_empty() && batch.changes.is_empty() {
            self.held.iter_mut().flatten().for_each(|shard| shard.cumulator.settle());
            return Ok(());
        }
        let kept = intake::keep_canonical(self.shared, canonical::Origin::Telemetry, batch);
        let receipt = kept.and_then(complete).inspect_err(|_| {
            undo(&mut self.held);
            let origins = self.senders.iter().filter_map(|sender| sender.origin.as_ref().ok());
            origins.for_each(|origin| origin.forget_info_number());
        })?;
        self.held.iter_mut().flatten().for_each(|shard| shard.cumulator.settle());
        self.shared.metrics.samples.add(&[arrival.door], receipt.stored);
        self.shared.streams.learn(&metrics);
        self.shared.streams.said(sayings.into_iter());
        for (origin, times_ns) in &infos {
            self.shared.streams.told(origin, *times_ns);
        }
        self.seen.stored();
        take_back(&named, &receipt, outcome);
        Ok(())
    }
}

/// What the family of a point is known by. Points of one metric follow on each other.
#[derive(Default)]
struct KeyBuffer {
    bytes: Vec<u8>,
    /// The sender and the metric that it begins with, and how long that is. A metric's canonical name is
    /// one place in memory for all metrics of a request that are the same.
    start: Option<(u64, Rc<str>, usize)>,
}

impl KeyBuffer {
    fn of(&mut self, origin: u64, point: &Point<'_, '_>) -> &[u8] {
        match &self.start {
            Some((known, name, length)) if *known == origin && Rc::ptr_eq(name, &point.metric.canonical) => {
                self.bytes.truncate(*length);
            }
            _ => {
                write_key(&mut self.bytes, origin, point);
                self.start = Some((origin, Rc::clone(&point.metric.canonical), self.bytes.len()));
            }
        }
        self.bytes.extend_from_slice(point.attribute_bytes);
        &self.bytes
    }
}

const NOBODY: Refusal = Refusal::new("unreadable", "nothing of the request is kept");
const DUPLICATE: Refusal =
    Refusal::new("duplicate", "the request has two values of one series at one time: the first is kept");

/// Looks a resource up.
fn sender<'a>(shared: &Shared, seen: &mut Seen<'_>, resource: Resource<'a>) -> Result<Sender<'a>, OtlpError> {
    let origin = match seen.note(&resource, NEVER, Signal::Metrics) {
        Err(refusal) => Err(refusal),
        Ok(run) => Ok(shared.streams.origin(resource.bytes, run.as_ref(), || {
            let labels = resource.labels(&shared.config.otlp.promotion, run.as_deref())?;
            let info = resource.target_info(&labels)?.map(|(info, _)| info);
            Ok::<_, OtlpError>((labels, info))
        })?),
    };
    Ok(Sender { resource, origin, times_ns: NEVER })
}

/// What was read is as if it had not come.
fn undo(held: &mut Held<'_>) {
    for shard in held.iter_mut().flatten() {
        shard.cumulator.undo();
        // Families are described where they are made, and what was said of these is not kept.
        shard.families.forget();
    }
}

/// A receipt of all series; those that were removed meanwhile have to be named again.
fn complete(receipt: Receipt) -> Result<Receipt, AppendError> {
    if receipt.gone.is_empty() {
        return Ok(receipt);
    }
    let reason = format!("{} series were removed meanwhile: send it again", receipt.gone.len());
    Err(AppendError::Failed { reason })
}

/// Counts the points whose series the store refused.
fn take_back(named: &[Named], receipt: &Receipt, outcome: &mut Outcome) {
    let mut counted = std::collections::HashSet::new();
    for (place, reason, _) in &receipt.refused_series {
        let Some(of) = named.get(*place) else { continue };
        let count = of.points.iter().filter(|point| counted.insert(**point)).count() as u64;
        let example = receipt.refused.iter().find(|(known, ..)| known == reason);
        let text = example.map_or_else(String::new, |(.., example)| example.clone());
        outcome.take_back(&of.metric, count, Refusal::told(reason, text));
    }
}

/// A series that the batch names.
struct Named {
    metric: String,
    /// The points that are of it, by their place in the request.
    points: Vec<u64>,
}

/// What is to be stored.
struct Made<'s> {
    shared: &'s Shared,
    batch: Batch,
    /// As [`Batch::series`].
    named: Vec<Named>,
    /// Points so far.
    points: u64,
    /// Senders whose attributes are told, from when to when.
    infos: Vec<(Arc<Origin>, (i64, i64))>,
    /// Metrics that are new, with unit and kind.
    metrics: Vec<(String, String, Instrument)>,
    /// What is said about metrics, as numbers.
    sayings: Vec<u64>,
    advice: Vec<String>,
    notes: [(&'static str, u64); 4],
}

impl<'s> Made<'s> {
    fn new(shared: &'s Shared, body_bytes: usize) -> Self {
        let points = Vec::with_capacity((body_bytes / POINT_BYTES).min(POINTS_AT_ONCE));
        Self {
            shared,
            batch: Batch { collision: Collision::LastWriteWins, points, ..Batch::default() },
            named: Vec::new(),
            points: 0,
            infos: Vec::new(),
            metrics: Vec::new(),
            sayings: Vec::new(),
            advice: Vec::new(),
            notes: [("repeated", 0), ("late", 0), ("reset", 0), ("overlap", 0)],
        }
    }

    /// The family of a point that is not known.
    fn family(&mut self, origin: &Origin, point: &Point<'_, '_>) -> Result<Family, LabelFault> {
        let own = match point.metric.instrument {
            Instrument::Histogram | Instrument::Summary => 1,
            _ => 0,
        };
        let labels = origin.labels.series(&point.metric.canonical, &point.attributes()?, own)?;
        let key = family_key(origin.place(), &labels);
        self.describe(point);
        Ok(Family::new(labels, key))
    }

    /// Keeps what a metric is, where that is new.
    fn describe(&mut self, point: &Point<'_, '_>) {
        let metric = point.metric;
        let said = MetricMetadata {
            metric: metric.canonical.to_string(),
            kind: metric.instrument.kind(),
            help: metric.help.to_owned(),
            unit: metric.unit.to_owned(),
        };
        let streams = &self.shared.streams;
        let saying = streams.saying(&said);
        if !streams.was_said(saying) && !self.sayings.contains(&saying) {
            self.sayings.push(saying);
            self.batch.metadata.push(said);
        }
        let is_made = |(name, unit, kind): &(String, String, Instrument)| {
            name == metric.name && unit == metric.unit && *kind == metric.instrument
        };
        let new = streams.new_metric(metric.name, metric.unit, metric.instrument);
        let Some(others) = new.filter(|_| !self.metrics.iter().any(is_made)) else { return };
        if let Some(other) = others.first() {
            let text = format!(
                "`{}` comes with the unit {:?}, and came with another: they are two metrics, `{}` and `{other}`",
                metric.name, metric.unit, metric.canonical
            );
            tracing::warn!(metric = metric.name, unit = metric.unit, other, "a metric comes with two units");
            self.advice.push(text);
        }
        // A name can hold any character; one with a zero byte has no other spelling that can be asked for.
        if !metric.name.contains('\0') {
            self.batch.state.push(name_row(metric.name, metric.unit, metric.instrument));
            self.metrics.push((metric.name.to_owned(), metric.unit.to_owned(), metric.instrument));
        }
    }

    /// Adds the samples of a point.
    fn samples(&mut self, family: &mut Family, request: u64, point: &Point<'_, '_>, parts: &[PartSample]) {
        for (at, part) in parts.iter().enumerate() {
            let sample = Sample { time_ns: part.time_ns, value: part.value, step: None };
            if let Some(number) = family.number(at, part.part) {
                self.batch.points.push((number, sample));
                continue;
            }
            if let Some(place) = family.place(request, part.part) {
                self.batch.series[place].samples.push(sample);
                self.named[place].points.push(self.points);
                continue;
            }
            let display = [point.metric.name, part.part.suffix()].concat();
            let identity = SeriesIdentity { labels: part.part.series(&family.labels), display };
            if let Some(number) = self.shared.store.series_number(&identity) {
                family.learn(part.part, number);
                self.batch.points.push((number, sample));
                continue;
            }
            family.put(request, part.part, self.batch.series.len());
            self.named.push(Named { metric: point.metric.name.to_owned(), points: vec![self.points] });
            self.batch.series.push(SeriesBatch { identity, samples: vec![sample] });
        }
        self.points += 1;
    }

    /// Notes what was odd about a point, and keeps its exemplars unless they came before.
    fn note(&mut self, note: Note, family: &Family, point: &Point<'_, '_>) {
        let odd = match note {
            Note::Regular => None,
            Note::Repeated => Some(0),
            Note::Late => Some(1),
            Note::Reset => Some(2),
            Note::Overlap => Some(3),
        };
        if let Some(odd) = odd {
            self.notes[odd].1 += 1;
        }
        if note != Note::Repeated && !point.exemplars.is_empty() {
            self.batch.exemplars.extend(exemplars::of(family, point));
        }
    }

    /// Tells a sender's other attributes, where that is due.
    fn info(&mut self, origin: &Arc<Origin>, (first_ns, last_ns): (i64, i64)) {
        let Some(labels) = &origin.info else { return };
        let mut times = Vec::new();
        let (from_ns, to_ns) = origin.told_ns().unwrap_or((i64::MAX, i64::MIN));
        if first_ns.saturating_add(INFO_EVERY_NS) <= from_ns {
            times.push(first_ns);
        }
        let to_ns = to_ns.max(times.last().copied().unwrap_or(i64::MIN));
        if to_ns.saturating_add(INFO_EVERY_NS) <= last_ns {
            times.push(last_ns);
        }
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
        self.infos.push((Arc::clone(origin), (*first, *last)));
        // Two at once could not be joined to.
        if let Some(before) = self.shared.streams.before(origin)
            && let (Some(labels), Some((_, ended_ns))) = (&before.info, before.told_ns())
            && ended_ns < *first
        {
            let ended = Sample { time_ns: *first, value: model::stale_marker(), step: None };
            self.tell(info_identity(labels), vec![ended]);
        }
        let samples = times.iter().map(|time_ns| Sample { time_ns: *time_ns, value: 1.0, step: None });
        let number = origin.info_number(|| self.shared.store.series_number(&info_identity(labels)));
        match number {
            Some(number) => self.batch.points.extend(samples.map(|sample| (number, sample))),
            None => self.tell(info_identity(labels), samples.collect()),
        }
    }

    /// Adds samples of a series that is of no point.
    fn tell(&mut self, identity: SeriesIdentity, samples: Vec<Sample>) {
        self.named.push(Named { metric: identity.display.clone(), points: Vec::new() });
        self.batch.series.push(SeriesBatch { identity, samples });
    }
}

/// The series of a sender's other attributes.
fn info_identity(labels: &Labels) -> SeriesIdentity {
    SeriesIdentity { labels: labels.clone(), display: labels.metric().to_owned() }
}

/// A number for what a point says; equal points have equal ones.
fn fingerprint(value: &PointValue) -> u64 {
    let mix = |hash: u64, more: u64| (hash ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    match value {
        PointValue::Number(number) => number.to_bits(),
        PointValue::Ended => model::stale_marker().to_bits(),
        PointValue::Histogram(histogram) => {
            let sum = histogram.sum.map_or(1, f64::to_bits);
            let counts = histogram.buckets.iter().flat_map(|(bound, count)| [bound.to_bits(), *count]);
            counts.fold(mix(histogram.count, sum), mix)
        }
        PointValue::Summary { count, sum, quantiles } => {
            let pairs = quantiles.iter().flat_map(|(q, value)| [q.to_bits(), value.to_bits()]);
            pairs.fold(mix(*count, sum.to_bits()), mix)
        }
    }
}
