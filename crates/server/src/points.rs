//! Reads points for charts: which series, over which range, raw or in cells.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::{Labels, RunRecord, Sample};
use store::{Chunk, ReadError, SeriesInfo, Store};

use crate::app::Shared;
use crate::error::ApiError;
use crate::grid::{Axis, Cells, Lens};
use crate::m4::{Attempts, Bucket, Buckets, Fold};
use crate::smooth::{Smoother, Smoothing};

/// Labels that the run itself sets, or that are shown in a field of their own.
pub(crate) const OWN_LABELS: [&str; 8] =
    ["__name__", "organization", "workspace", "project", "run", "run_id", "scale", "display"];

/// Chunks of a series that are decoded to learn the usual distance of its points.
const SAMPLED_CHUNKS: usize = 8;

/// Which series of a run are meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pick {
    /// Display or PromQL name.
    pub(crate) metric: String,
    /// Labels that must be exactly so.
    pub(crate) labels: Vec<(String, String)>,
}

impl Pick {
    fn matches(&self, series: &SeriesInfo) -> bool {
        let named = *series.display == *self.metric || series.labels.metric() == self.metric;
        named && self.labels.iter().all(|(key, value)| label(&series.labels, key) == value)
    }

    /// The series that are meant, in natural order of their labels.
    pub(crate) fn of(&self, all: &[SeriesInfo]) -> Vec<SeriesInfo> {
        let mut series: Vec<SeriesInfo> = all.iter().filter(|s| self.matches(s)).cloned().collect();
        series.sort_by_cached_key(|s| natural_key(&s.labels));
        series
    }
}

fn label<'a>(labels: &'a Labels, key: &str) -> &'a str {
    let value = labels.get(key).unwrap_or_default();
    if key == "scale" && value.is_empty() { model::DEFAULT_SCALE } else { value }
}

/// Sorts `rank="10"` behind `rank="9"`.
fn natural_key(labels: &Labels) -> Vec<(String, u64, String)> {
    labels
        .iter()
        .map(|(key, value)| (key.to_owned(), value.parse().unwrap_or(u64::MAX), value.to_owned()))
        .collect()
}

/// A series' labels without the run's own.
pub(crate) fn shown_labels(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .filter(|(key, _)| !OWN_LABELS.contains(key))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The run's start, nanoseconds: its first session's, or, where none was ever opened, its first
/// point's.
pub(crate) fn run_start_ns(shared: &Shared, run: &RunRecord) -> i64 {
    run.attempts.first().map_or_else(
        || {
            let first_ns = shared.board.facts(&shared.store, run.id()).first_time_ns;
            first_ns.unwrap_or(i64::MAX).min(run.created_ns)
        },
        |first| first.started_ns,
    )
}

/// What a look over the summaries of a series' chunks tells.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Least and greatest key within the range.
    pub(crate) keys: Option<(i64, i64)>,
    /// Points that lie in the range for certain.
    pub(crate) inside: u64,
    /// Usual distance of two points, in keys; 0 when unknown.
    pub(crate) interval: f64,
}

/// One series, its place on the axis and its attempts.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Which series.
    pub(crate) series: SeriesInfo,
    /// Its place on the axis.
    pub(crate) lens: Lens,
    /// How its points split.
    pub(crate) attempts: Attempts,
    /// What is known of its points.
    pub(crate) survey: Survey,
}

/// A point on its way into a chart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    /// Attempt it belongs to.
    pub(crate) attempt: u32,
    /// Key on the axis.
    pub(crate) key: i64,
    /// The point.
    pub(crate) sample: Sample,
}

impl Reading {
    /// Looks over a series' summaries for the range `from..=to`.
    pub(crate) fn new(
        shared: &Shared,
        series: SeriesInfo,
        run: &RunRecord,
        axis: Axis,
        (from, to): (i64, i64),
    ) -> Result<Self, ApiError> {
        let steps =
            (axis == Axis::Step).then(|| shared.sources.step_lines.of(shared, run.id(), &series)).flatten();
        let lens = Lens { axis, start_ns: run_start_ns(shared, run), steps };
        let attempts = if axis == Axis::Step {
            Attempts::of(run)
        } else {
            Attempts::one(run.attempt_at(series.time_ns.1))
        };
        let mut reading = Self { series, lens, attempts, survey: Survey::default() };
        reading.survey = reading.look(&shared.store, from, to)?;
        Ok(reading)
    }

    fn look(&self, store: &Store, from: i64, to: i64) -> Result<Survey, ApiError> {
        let mut survey = Survey::default();
        let mut distances: Vec<(f64, u64)> = Vec::new();
        let mut sampled = 0;
        self.chunks(store, (i64::MIN, i64::MAX), &mut |chunk| {
            let summary = chunk.summary();
            let Some((least, greatest)) = self.lens.keys(summary) else { return Ok(()) };
            if sampled < SAMPLED_CHUNKS {
                sampled += 1;
                let keys: Vec<i64> = chunk.samples()?.iter().filter_map(|s| self.lens.key(s)).collect();
                distances.extend(
                    keys.windows(2).filter(|k| k[1] > k[0]).map(|k| (k[1].saturating_sub(k[0]) as f64, 1)),
                );
            } else if summary.count > 1 && greatest > least {
                let gaps = u64::from(summary.count - 1);
                distances.push((greatest.saturating_sub(least) as f64 / gaps as f64, gaps));
            }
            if greatest < from || least > to {
                return Ok(());
            }
            let (low, high) = survey.keys.unwrap_or((i64::MAX, i64::MIN));
            survey.keys = Some((low.min(least.max(from)), high.max(greatest.min(to))));
            if from <= least && greatest <= to {
                survey.inside += u64::from(summary.count);
            }
            Ok(())
        })?;
        survey.interval = weighted_median(&mut distances);
        Ok(survey)
    }

    /// Hands every chunk that may hold keys of the range to `visit`, in order of time.
    fn chunks(
        &self,
        store: &Store,
        (from, to): (i64, i64),
        visit: &mut dyn FnMut(&dyn Chunk) -> Result<(), ReadError>,
    ) -> Result<(), ApiError> {
        let (from_ns, to_ns) = self.lens.times(from, to);
        let mut failed = None;
        let read = store.read(self.series.id, from_ns, to_ns, &mut |chunk| match visit(chunk) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        match failed.or(read.err()) {
            None => Ok(()),
            Some(error) => {
                tracing::error!(%error, "cannot read points");
                Err(ApiError::internal(error.to_string())
                    .hint("`truegauge doctor` and the server's log say what is damaged"))
            }
        }
    }

    /// The points of the range themselves, in order of time.
    pub(crate) fn raw(&self, store: &Store, (from, to): (i64, i64)) -> Result<Vec<Placed>, ApiError> {
        let mut points = Vec::new();
        self.chunks(store, (from, to), &mut |chunk| {
            if self.lens.keys(chunk.summary()).is_none_or(|(least, greatest)| greatest < from || least > to) {
                return Ok(());
            }
            for sample in chunk.samples()? {
                if let Some(key) = self.lens.key(&sample).filter(|key| from <= *key && *key <= to) {
                    points.push(Placed { attempt: self.attempts.at(sample.time_ns), key, sample });
                }
            }
            Ok(())
        })?;
        Ok(points)
    }

    /// The points of the cells' range, gathered into them, by attempt; and how many were decoded.
    pub(crate) fn cells(
        &self,
        store: &Store,
        cells: Cells,
    ) -> Result<(BTreeMap<u32, Buckets>, u64), ApiError> {
        let mut fold = Fold::new(self.lens.clone(), cells, &self.attempts);
        self.chunks(store, cells.range(), &mut |chunk| fold.chunk(chunk))?;
        Ok(fold.finish())
    }

    /// The smoothed points of the whole series whose key `wanted` maps to a place, the last of each
    /// place, by attempt.
    pub(crate) fn smooth(
        &self,
        store: &Store,
        smoothing: Smoothing,
        place: &dyn Fn(i64) -> Option<usize>,
    ) -> Result<BTreeMap<u32, BTreeMap<usize, f64>>, ApiError> {
        let mut smoothers: BTreeMap<u32, Smoother> = BTreeMap::new();
        let mut out: BTreeMap<u32, BTreeMap<usize, f64>> = BTreeMap::new();
        let put = |out: &mut BTreeMap<u32, BTreeMap<usize, f64>>, attempt: u32, key: i64, value: f64| {
            if let Some(at) = place(key) {
                out.entry(attempt).or_default().insert(at, value);
            }
        };
        self.chunks(store, (i64::MIN, i64::MAX), &mut |chunk| {
            for sample in chunk.samples()? {
                let Some(key) = self.lens.key(&sample) else { continue };
                let attempt = self.attempts.at(sample.time_ns);
                smoothers
                    .entry(attempt)
                    .or_insert_with(|| Smoother::new(smoothing, self.survey.interval))
                    .push(key, sample.value, &mut |key, value| put(&mut out, attempt, key, value));
            }
            Ok(())
        })?;
        for (attempt, smoother) in smoothers {
            smoother.finish(&mut |key, value| put(&mut out, attempt, key, value));
        }
        Ok(out)
    }
}

/// The least distance such that half of the weight lies at or below it; 0 when there is none.
fn weighted_median(distances: &mut [(f64, u64)]) -> f64 {
    distances.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = distances.iter().map(|(_, weight)| weight).sum::<u64>().div_ceil(2);
    let mut below = 0;
    for (distance, weight) in distances {
        below += *weight;
        if below >= half {
            return *distance;
        }
    }
    0.0
}

/// Raw points of one attempt merged where they share a key, by key.
pub(crate) fn by_key(points: &[Placed]) -> BTreeMap<u32, BTreeMap<i64, Bucket>> {
    let mut out: BTreeMap<u32, BTreeMap<i64, Bucket>> = BTreeMap::new();
    for point in points {
        let bucket = Bucket::of(point.key, point.sample.value);
        out.entry(point.attempt)
            .or_default()
            .entry(point.key)
            .and_modify(|earlier| earlier.absorb(&bucket))
            .or_insert(bucket);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_a_gap() {
        assert_eq!(weighted_median(&mut [(1.0, 10), (5_000.0, 1)]), 1.0);
        assert_eq!(weighted_median(&mut []), 0.0);
        assert_eq!(weighted_median(&mut [(3.0, 1), (1.0, 1), (2.0, 1)]), 2.0);
    }

    #[test]
    fn ranks_sort_as_numbers() {
        let key = |rank: &str| natural_key(&Labels::from_pairs([("rank", rank)]));
        assert!(key("9") < key("10"));
        assert!(key("10") < key("ten"));
    }
}
