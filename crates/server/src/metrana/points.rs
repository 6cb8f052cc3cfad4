//! What a stream has declared, and the points that refer to it.
//!
//! A series or a point that can't be kept is refused and counted; the rest of its message is kept. A client
//! whose message is refused as a whole would stop for good.

use std::collections::HashMap;
use std::sync::Arc;

use model::{NANOS_PER_MILLI, REFUSED_LABELS, RunPath, Sample, SeriesIdentity};
use store::SeriesBatch;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use wire::metrana::{
    HistogramPoint, HistogramSeriesUpdate, PointBatch, RlSeriesUpdate, ScatterSeriesUpdate,
    SeriesDeclaration, SeriesUpdate,
};

use super::DOOR;
use super::histogram::{self, Bounds};
use crate::app::{App, Shared};
use crate::ingest::{self, Refused};

/// Most series that one stream may declare.
const DECLARED_MAX: usize = model::SERIES_PER_PROJECT_MAX;

/// A reason, and one example in words.
type Refusal = (&'static str, String);

/// The series of a stream, by the numbers that it gave them.
#[derive(Debug)]
pub(super) struct Table {
    app: App,
    series: HashMap<u64, Declared>,
    /// What they hold in memory, near enough, and the room for it.
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Declared {
    name: String,
    scale: String,
    labels: Vec<(String, String)>,
    /// What it is in the store, unless it can't be there.
    kept: Result<SeriesIdentity, Refusal>,
    /// The step behind the last, once points came without one.
    next_step: Option<i64>,
    /// What its histograms are in the store, once one came.
    buckets: Option<Buckets>,
}

/// The series of a histogram's parts.
#[derive(Debug)]
struct Buckets {
    bounds: Bounds,
    each: Vec<SeriesIdentity>,
    sum: SeriesIdentity,
    count: SeriesIdentity,
}

/// The points of one message, on their way into the store.
#[derive(Debug)]
pub(super) struct Taking<'a> {
    pub(super) shared: &'a Shared,
    pub(super) path: &'a RunPath,
    pub(super) now_ms: i64,
    pub(super) series: Vec<SeriesBatch>,
    pub(super) refused: Refused,
}

impl Table {
    pub(super) fn of(app: &App) -> Self {
        Self { app: Arc::clone(app), series: HashMap::new(), bytes: 0, room: None }
    }

    /// Adds what a stream declares. One number twice is the later series. Fails when all streams together
    /// have declared more than there is room for.
    pub(super) fn declare(
        &mut self,
        path: &RunPath,
        declarations: Vec<SeriesDeclaration>,
    ) -> Result<(), Status> {
        let mut bytes = 0;
        for SeriesDeclaration { metric_name, scale, labels, declaration_id, .. } in declarations {
            if self.series.len() >= DECLARED_MAX && !self.series.contains_key(&declaration_id) {
                continue;
            }
            let mut labels: Vec<(String, String)> = labels.into_iter().collect();
            labels.sort();
            let kept = ingest::check_identity(path, (&metric_name, &scale), &labels);
            let mut declared =
                Declared { name: metric_name, scale, labels, kept, next_step: None, buckets: None };
            if declared.kept.is_err() {
                declared.keep_little();
            }
            bytes += declared.bytes();
            let before = self.series.insert(declaration_id, declared);
            self.bytes = self.bytes.saturating_sub(before.map_or(0, |before| before.bytes()));
        }
        self.grow(bytes)
    }

    /// Takes room for what was added.
    fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes += bytes;
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = self.bytes.div_ceil(1024).saturating_sub(held);
        if more == 0 || self.app.turns.declared_kib.grow(&mut self.room, more) {
            return Ok(());
        }
        Err(Status::unavailable("the server is busy: all streams have declared too many series, come again"))
    }

    /// Takes points of series.
    pub(super) fn points(&mut self, taking: &mut Taking<'_>, updates: Vec<SeriesUpdate>) {
        for SeriesUpdate { series_id, point_batches } in updates {
            let count: usize = point_batches.iter().map(PointBatch::len).sum();
            if count == 0 {
                continue;
            }
            let Some(declared) = taking.known(self, series_id, count) else { continue };
            let mut samples = Vec::with_capacity(count);
            for batch in point_batches {
                let points = batch.len() as u64;
                if let Err((reason, example)) = declared.take(taking, batch, &mut samples) {
                    taking.refused.add(reason, points, || format!("{:?}: {example}", declared.name));
                }
            }
            if let (Ok(identity), false) = (&declared.kept, samples.is_empty()) {
                taking.series.push(SeriesBatch { identity: identity.clone(), samples });
            }
        }
    }

    /// Takes histograms of series.
    pub(super) fn histograms(
        &mut self,
        taking: &mut Taking<'_>,
        updates: Vec<HistogramSeriesUpdate>,
    ) -> Result<(), Status> {
        let mut bytes = 0;
        for HistogramSeriesUpdate { series_id, points } in updates {
            if points.is_empty() {
                continue;
            }
            let Some(declared) = taking.known(self, series_id, points.len()) else { continue };
            let before = declared.bytes();
            for point in points {
                let taken = declared.take_histogram(taking, &point);
                if let Err((reason, example)) = taken {
                    taking.refused.add(reason, 1, || format!("{:?}: {example}", declared.name));
                }
            }
            bytes += declared.bytes().saturating_sub(before);
        }
        self.grow(bytes)
    }
}

impl Taking<'_> {
    /// The series that a stream calls `series_id`, if its points can be kept.
    fn known<'t>(&mut self, table: &'t mut Table, series_id: u64, points: usize) -> Option<&'t mut Declared> {
        let points = points as u64;
        let Some(declared) = table.series.get_mut(&series_id) else {
            self.refused.add("unknown_series", points, || {
                format!("series {series_id} was not declared on this stream, or was one of too many")
            });
            return None;
        };
        let Err((reason, example)) = &declared.kept else { return Some(declared) };
        self.refused.add(reason, points, || example.clone());
        for (key, _) in declared.labels.iter().filter(|(key, _)| REFUSED_LABELS.contains(&key.as_str())) {
            self.shared.metrics.refused_labels.add(&[DOOR, key, &self.path.project], points);
        }
        None
    }

    /// Counts what there is no place for.
    pub(super) fn refuse_others(&mut self, rl: &[RlSeriesUpdate], scatter: &[ScatterSeriesUpdate]) {
        let rl_batches = rl.iter().flat_map(|series| &series.rl_step_batches);
        let points: usize = rl_batches.map(|batch| batch.values.len() + batch.values_f32.len()).sum();
        if points > 0 {
            let example = || "steps of episodes are not kept: log plain series with a label".to_owned();
            self.refused.add("reinforcement_learning", points as u64, example);
        }
        let points: usize = scatter.iter().map(|series| series.points.len()).sum();
        if points > 0 {
            self.refused.add("scatter", points as u64, || "clouds of points are not kept".to_owned());
        }
    }
}

impl Declared {
    /// Keeps of a series that is refused what is said of it later: its name, cut, and the labels at fault.
    fn keep_little(&mut self) {
        self.name = ingest::shorten(std::mem::take(&mut self.name));
        self.scale = String::new();
        self.labels.retain(|(key, _)| REFUSED_LABELS.contains(&key.as_str()));
        self.labels = self.labels.drain(..).map(|(key, _)| (key, String::new())).collect();
    }

    /// What it holds in memory, near enough.
    fn bytes(&self) -> usize {
        let pairs = |pairs: usize, text: usize| text + pairs * 2 * size_of::<String>();
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let own = size_of::<Self>() + self.name.len() + self.scale.len() + pairs(self.labels.len(), labels);
        let identity = |of: &SeriesIdentity| {
            let (count, text) =
                of.labels.iter().fold((0, 0), |(n, t), (k, v)| (n + 1, t + k.len() + v.len()));
            of.display.len() + pairs(count, text)
        };
        let kept = match &self.kept {
            Ok(kept) => identity(kept),
            Err((_, example)) => example.len(),
        };
        let buckets = self.buckets.as_ref().map_or(0, |buckets| {
            (buckets.each.len() + 2) * (size_of::<SeriesIdentity>() + identity(&buckets.sum))
        });
        own + kept + buckets
    }

    /// Unpacks a batch of points.
    fn take(
        &mut self,
        taking: &Taking<'_>,
        batch: PointBatch,
        into: &mut Vec<Sample>,
    ) -> Result<(), Refusal> {
        let points = batch.len();
        let column = |what: &str, found: usize| {
            let usable = found == 0 || found == points;
            let words = || ("columns", format!("{points} values have {found} {what}"));
            if usable { Ok(()) } else { Err(words()) }
        };
        if !batch.values.is_empty() && !batch.values_f32.is_empty() {
            return Err(("columns", "its values come twice".to_owned()));
        }
        column("steps", batch.steps.len())?;
        column("times", batch.timestamps_millis.len())?;
        let first = match (batch.first_step, batch.steps.is_empty()) {
            (Some(first), true) => Some(step(first)?),
            (None, true) => Some(self.next_step(taking)),
            (_, false) => None,
        };
        if first.is_some_and(|first| first.checked_add(points as i64).is_none()) {
            return Err(("step", "its steps are too large".to_owned()));
        }
        let steps: Vec<i64> = match first {
            Some(first) => (first..first + points as i64).collect(),
            None => batch.steps.iter().map(|one| step(*one)).collect::<Result<_, _>>()?,
        };
        let common_ms = batch.timestamp_millis.unwrap_or(taking.now_ms);
        let values = batch.values.into_iter().chain(batch.values_f32.into_iter().map(f64::from));
        for (at, (value, step)) in values.zip(&steps).enumerate() {
            let ms = batch.timestamps_millis.get(at).copied().unwrap_or(common_ms);
            into.push(Sample { time_ns: time_ns(ms), value, step: Some(*step) });
        }
        let behind = steps.iter().max().map(|last| last.saturating_add(1));
        self.next_step = self.next_step.max(behind);
        Ok(())
    }

    /// The step behind the last that the store or this stream knows.
    fn next_step(&self, taking: &Taking<'_>) -> i64 {
        let store = &taking.shared.store;
        let stored = || {
            let id = store.series_number(self.kept.as_ref().ok()?)?;
            store.series(id)?.max_step.map(|last| last.saturating_add(1))
        };
        self.next_step.or_else(stored).unwrap_or_default()
    }

    fn take_histogram(&mut self, taking: &mut Taking<'_>, point: &HistogramPoint) -> Result<(), Refusal> {
        histogram::check(point)?;
        if self.buckets.is_none() {
            self.buckets = Some(self.make_buckets(taking.path, Bounds::of(point))?);
        }
        let Some(known) = &self.buckets else { return Ok(()) };
        let parts = histogram::parts(point, &known.bounds, taking.now_ms);
        let mut put = |identity: &SeriesIdentity, sample| {
            taking.series.push(SeriesBatch { identity: identity.clone(), samples: vec![sample] });
        };
        for (identity, sample) in known.each.iter().zip(parts.buckets) {
            put(identity, sample);
        }
        put(&known.count, parts.count);
        if let Some(sum) = parts.sum {
            put(&known.sum, sum);
        }
        Ok(())
    }

    fn make_buckets(&self, path: &RunPath, bounds: Bounds) -> Result<Buckets, Refusal> {
        let part = |suffix: &str, bound: Option<String>| {
            let mut labels = self.labels.clone();
            labels.retain(|(key, _)| bound.is_none() || key != histogram::BOUND);
            labels.extend(bound.map(|bound| (histogram::BOUND.to_owned(), bound)));
            ingest::check_identity(path, (&format!("{}{suffix}", self.name), &self.scale), &labels)
        };
        let buckets =
            bounds.texts().map(|bound| part(histogram::BUCKET, Some(bound))).collect::<Result<_, _>>()?;
        let (sum, count) = (part(histogram::SUM, None)?, part(histogram::COUNT, None)?);
        Ok(Buckets { bounds, each: buckets, sum, count })
    }
}

fn step(step: u64) -> Result<i64, Refusal> {
    i64::try_from(step)
        .map_err(|_source: std::num::TryFromIntError| ("step", format!("step {step} is too large")))
}

/// Nanoseconds of milliseconds; what is beyond them is refused by the store.
pub(super) fn time_ns(time_ms: i64) -> i64 {
    time_ms.saturating_mul(NANOS_PER_MILLI)
}
