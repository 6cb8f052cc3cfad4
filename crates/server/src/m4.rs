//! Points to buckets that draw the same picture: first, last, least, greatest and how many.
//!
//! A chunk that lies in one bucket counts by its summary and is not decoded. First and last are meant
//! in order of time, x is the last point's, so both ways give the same bucket, and the result does not
//! depend on how the store cut its chunks. NaN and infinities are counted by kind
//! and never stretch the extremes.

use std::collections::BTreeMap;

use model::Sample;
use store::{Chunk, ReadError, Summary};

use crate::grid::{Cells, Lens};

/// The points of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    /// Key of the last point in time.
    pub(crate) key: i64,
    /// Points, finite or not.
    pub(crate) count: u64,
    /// NaN among them.
    pub(crate) nan: u64,
    /// +Inf among them.
    pub(crate) pos_inf: u64,
    /// -Inf among them.
    pub(crate) neg_inf: u64,
    /// Value of the first point in time.
    pub(crate) first: f64,
    /// Value of the last point in time.
    pub(crate) last: f64,
    /// First finite value in time, NaN when there is none.
    pub(crate) first_finite: f64,
    /// Last finite value in time, NaN when there is none.
    pub(crate) last_finite: f64,
    /// Least finite value, NaN when there is none.
    pub(crate) min: f64,
    /// Greatest finite value, NaN when there is none.
    pub(crate) max: f64,
}

impl Bucket {
    /// A bucket of one point.
    pub(crate) fn of(key: i64, value: f64) -> Self {
        let finite = if value.is_finite() { value } else { f64::NAN };
        Self {
            key,
            count: 1,
            nan: u64::from(value.is_nan()),
            pos_inf: u64::from(value == f64::INFINITY),
            neg_inf: u64::from(value == f64::NEG_INFINITY),
            first: value,
            last: value,
            first_finite: finite,
            last_finite: finite,
            min: finite,
            max: finite,
        }
    }

    /// A chunk of finite points as a bucket; `key` is its last point's.
    fn of_summary(key: i64, summary: &Summary) -> Self {
        Self {
            key,
            count: u64::from(summary.count),
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            first: summary.first,
            last: summary.last,
            first_finite: summary.first,
            last_finite: summary.last,
            min: summary.min,
            max: summary.max,
        }
    }

    /// Takes in what comes later in time.
    pub(crate) fn absorb(&mut self, later: &Self) {
        self.key = later.key;
        self.count += later.count;
        self.nan += later.nan;
        self.pos_inf += later.pos_inf;
        self.neg_inf += later.neg_inf;
        self.last = later.last;
        if self.first_finite.is_nan() {
            self.first_finite = later.first_finite;
        }
        if !later.last_finite.is_nan() {
            self.last_finite = later.last_finite;
        }
        // `min` and `max` of a number and NaN are the number.
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
    }
}

/// Says which attempt a time belongs to; one that never splits puts all points together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts {
    /// Starts in order, nanoseconds, and numbers; the first reaches back for ever.
    starts: Vec<(i64, u32)>,
}

impl Attempts {
    /// Everything is one attempt of this number.
    pub(crate) fn one(number: u32) -> Self {
        Self { starts: vec![(i64::MIN, number)] }
    }

    /// The attempts of a run.
    pub(crate) fn of(run: &model::RunRecord) -> Self {
        Self { starts: run.attempts.iter().map(|a| (a.started_ns, a.number)).collect() }
    }

    /// Number of the attempt that `time_ns` belongs to.
    pub(crate) fn at(&self, time_ns: i64) -> u32 {
        let after = self.starts.partition_point(|(start, _)| *start <= time_ns);
        self.starts.get(after.saturating_sub(1)).map_or(1, |(_, number)| if after == 0 { 1 } else { *number })
    }
}

/// The buckets of one attempt, by cell.
pub(crate) type Buckets = BTreeMap<u32, Bucket>;

/// Folds points, handed over in order of time, into buckets by attempt.
#[derive(Debug)]
pub(crate) struct Fold<'a> {
    lens: Lens,
    cells: Cells,
    attempts: &'a Attempts,
    done: BTreeMap<u32, Buckets>,
    /// The bucket at hand: attempt, cell, its keys' bounds, points.
    open: Option<Open>,
    /// Points that were decoded one by one.
    decoded: u64,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    attempt: u32,
    cell: u32,
    first_key: i64,
    last_key: i64,
    bucket: Bucket,
}

impl<'a> Fold<'a> {
    /// Folds onto `cells`.
    pub(crate) fn new(lens: Lens, cells: Cells, attempts: &'a Attempts) -> Self {
        Self { lens, cells, attempts, done: BTreeMap::new(), open: None, decoded: 0 }
    }

    /// Takes a chunk, by its summary where that is exact.
    pub(crate) fn chunk(&mut self, chunk: &dyn Chunk) -> Result<(), ReadError> {
        let summary = chunk.summary();
        let Some((least, greatest)) = self.lens.keys(summary) else { return Ok(()) };
        let (from, to) = self.cells.range();
        if summary.count == 0 || greatest < from || least > to {
            return Ok(());
        }
        let attempt = self.attempts.at(summary.time_ns.0);
        let one_cell = self.cells.index(least).is_some_and(|cell| self.cells.index(greatest) == Some(cell));
        if let Some(last) = self.lens.last_key(summary)
            && one_cell
            && summary.non_finite == 0
            && attempt == self.attempts.at(summary.time_ns.1)
        {
            self.put(attempt, last, &Bucket::of_summary(last, summary));
            return Ok(());
        }
        for sample in chunk.samples()? {
            self.sample(&sample);
        }
        Ok(())
    }

    /// Takes a point.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        self.decoded += 1;
        if let Some(key) = self.lens.key(sample) {
            self.put(self.attempts.at(sample.time_ns), key, &Bucket::of(key, sample.value));
        }
    }

    fn put(&mut self, attempt: u32, key: i64, bucket: &Bucket) {
        if let Some(open) = &mut self.open
            && open.attempt == attempt
            && open.first_key <= key
            && key <= open.last_key
        {
            open.bucket.absorb(bucket);
            return;
        }
        let Some(cell) = self.cells.index(key) else { return };
        self.close();
        let (first_key, last_key) = (self.cells.first_key(cell), self.cells.last_key(cell));
        self.open = Some(Open { attempt, cell, first_key, last_key, bucket: *bucket });
    }

    fn close(&mut self) {
        if let Some(Open { attempt, cell, bucket, .. }) = self.open.take() {
            self.done
                .entry(attempt)
                .or_default()
                .entry(cell)
                .and_modify(|earlier| earlier.absorb(&bucket))
                .or_insert(bucket);
        }
    }

    /// The buckets by attempt and cell, and how many points had to be decoded.
    pub(crate) fn finish(mut self) -> (BTreeMap<u32, Buckets>, u64) {
        self.close();
        (self.done, self.decoded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grid::Axis;

    struct Piece(Summary, Vec<Sample>);

    impl Chunk for Piece {
        fn summary(&self) -> &Summary {
            &self.0
        }
        fn samples(&self) -> Result<Vec<Sample>, ReadError> {
            Ok(self.1.clone())
        }
    }

    fn piece(samples: &[Sample]) -> Piece {
        let finite = || samples.iter().map(|s| s.value).filter(|v| v.is_finite());
        let steps = || samples.iter().filter_map(|s| s.step);
        let summary = Summary {
            count: samples.len() as u32,
            non_finite: samples.iter().filter(|s| !s.value.is_finite()).count() as u32,
            time_ns: (samples[0].time_ns, samples[samples.len() - 1].time_ns),
            first: samples[0].value,
            last: samples[samples.len() - 1].value,
            min: finite().fold(f64::INFINITY, f64::min),
            max: finite().fold(f64::NEG_INFINITY, f64::max),
            sum: finite().sum(),
            steps: steps().min().zip(steps().max()),
            last_step: samples[samples.len() - 1].step,
        };
        Piece(summary, samples.to_vec())
    }

    /// The same by the definition alone: sort every point into its cell, then look at each cell.
    fn naive(lens: Lens, cells: Cells, attempts: &Attempts, samples: &[Sample]) -> BTreeMap<u32, Buckets> {
        let mut sorted: BTreeMap<(u32, u32), Vec<(i64, f64)>> = BTreeMap::new();
        for sample in samples {
            let Some(key) = lens.key(sample) else { continue };
            let Some(cell) =
                (0..cells.count()).find(|c| cells.first_key(*c) <= key && key <= cells.last_key(*c))
            else {
                continue;
            };
            sorted.entry((attempts.at(sample.time_ns), cell)).or_default().push((key, sample.value));
        }
        let mut out: BTreeMap<u32, Buckets> = BTreeMap::new();
        for ((attempt, cell), points) in sorted {
            let values = || points.iter().map(|(_, v)| *v);
            let finite = || values().filter(|v| v.is_finite());
            let bucket = Bucket {
                key: points[points.len() - 1].0,
                count: points.len() as u64,
                nan: values().filter(|v| v.is_nan()).count() as u64,
                pos_inf: values().filter(|v| *v == f64::INFINITY).count() as u64,
                neg_inf: values().filter(|v| *v == f64::NEG_INFINITY).count() as u64,
                first: points[0].1,
                last: points[points.len() - 1].1,
                first_finite: finite().next().unwrap_or(f64::NAN),
                last_finite: finite().next_back().unwrap_or(f64::NAN),
                min: finite().reduce(f64::min).unwrap_or(f64::NAN),
                max: finite().reduce(f64::max).unwrap_or(f64::NAN),
            };
            out.entry(attempt).or_default().insert(cell, bucket);
        }
        out
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => -1e6f64..1e6,
            1 => Just(f64::NAN),
            1 => Just(f64::INFINITY),
            1 => Just(f64::NEG_INFINITY),
            1 => Just(1e308),
        ]
    }

    proptest! {
        #[test]
        fn buckets_are_those_of_the_definition_however_chunks_are_cut(
            points in prop::collection::vec((0i64..40, value(), -3i64..6), 1..200),
            axis in prop_oneof![Just(Axis::Step), Just(Axis::Time), Just(Axis::Relative)],
            from in -20i64..500,
            length in 0i64..4_000,
            count in 1u32..50,
            cut in 1usize..40,
            restart in 0i64..4_000,
        ) {
            let (mut time_ns, mut step) = (1_000i64, 0i64);
            let samples: Vec<Sample> = points
                .iter()
                .map(|(dt, value, ds)| {
                    time_ns += dt + 1;
                    step += ds;
                    Sample { time_ns, value: *value, step: Some(step) }
                })
                .collect();
            let lens = Lens { axis, start_ns: 1_000, steps: None };
            let cells = Cells::new(from, from + length, count);
            let attempts = Attempts { starts: vec![(0, 1), (1_000 + restart, 2)] };
            let mut fold = Fold::new(lens.clone(), cells, &attempts);
            for samples in samples.chunks(cut) {
                fold.chunk(&piece(samples)).unwrap();
            }
            let got = fold.finish().0;
            let want = naive(lens, cells, &attempts, &samples);
            prop_assert_eq!(format!("{:?}", got), format!("{:?}", want));
            if let (Axis::Relative, true) = (axis, from <= 0 && length > 4_000) {
                let highest = samples.iter().map(|s| s.value).filter(|v| v.is_finite()).fold(f64::MIN, f64::max);
                let kept = got.values().flat_map(Buckets::values).map(|b| b.max).fold(f64::MIN, f64::max);
                prop_assert_eq!(highest, kept);
            }
        }

        #[test]
        fn no_extreme_and_no_point_is_lost(
            values in prop::collection::vec(value(), 1..3_000),
            count in 1u32..300,
        ) {
            let samples: Vec<Sample> = values
                .iter()
                .enumerate()
                .map(|(at, value)| Sample { time_ns: at as i64, value: *value, step: Some(at as i64) })
                .collect();
            let cells = Cells::new(0, values.len() as i64 - 1, count);
            let attempts = Attempts::one(1);
            let mut fold = Fold::new(Lens { axis: Axis::Step, start_ns: 0, steps: None }, cells, &attempts);
            for samples in samples.chunks(100) {
                fold.chunk(&piece(samples)).unwrap();
            }
            let got = fold.finish().0;
            let all = || got.values().flat_map(Buckets::values);
            let finite = || values.iter().copied().filter(|v| v.is_finite());
            prop_assert_eq!(all().map(|b| b.count).sum::<u64>(), values.len() as u64);
            prop_assert_eq!(
                all().map(|b| b.nan + b.pos_inf + b.neg_inf).sum::<u64>(),
                (values.len() - finite().count()) as u64
            );
            prop_assert_eq!(all().map(|b| b.max).fold(f64::MIN, f64::max), finite().fold(f64::MIN, f64::max));
            prop_assert_eq!(all().map(|b| b.min).fold(f64::MAX, f64::min), finite().fold(f64::MAX, f64::min));
        }
    }

    #[test]
    fn a_chunk_in_one_cell_is_not_decoded() {
        let samples: Vec<Sample> =
            (0..1_000).map(|at| Sample { time_ns: at, value: at as f64, step: Some(at) }).collect();
        let attempts = Attempts::one(1);
        let mut fold =
            Fold::new(Lens { axis: Axis::Time, start_ns: 0, steps: None }, Cells::new(0, 999, 10), &attempts);
        for samples in samples.chunks(50) {
            fold.chunk(&piece(samples)).unwrap();
        }
        let (buckets, decoded) = fold.finish();
        assert_eq!(decoded, 0);
        assert_eq!(buckets[&1].values().map(|b| b.count).collect::<Vec<_>>(), [100; 10]);
    }

    #[test]
    fn attempts_split_by_time_and_the_first_reaches_back() {
        let attempts = Attempts { starts: vec![(10, 1), (20, 2)] };
        assert_eq!([5, 10, 19, 20, 99].map(|t| attempts.at(t)), [1, 1, 1, 2, 2]);
        assert_eq!(Attempts::default().at(5), 1);
        assert_eq!(Attempts::one(7).at(i64::MIN), 7);
    }
}
