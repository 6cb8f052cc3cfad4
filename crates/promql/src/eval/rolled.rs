//! Roll-ups in place of samples: functions whose answer is right from buckets are computed from
//! them, and of a bucket some of its samples stand for all where nothing else is left.

use super::Evaluator;
use model::{RollupAsk, RollupBucket, RollupParts};

use super::over::{Frame, Growth, VISITS_PER_CHECK, add};
use super::table::Row;
use crate::error::{QueryError, Span};
use crate::functions::Over;
use crate::notes::Note;
use crate::number::seconds;
use crate::source::{Columns, Series};

/// What of buckets a function needs that is answered by whole ones as by their samples; nothing of
/// one that is not.
pub(super) fn parts(over: Over) -> Option<RollupParts> {
    let edges = RollupParts::FIRST | RollupParts::LAST;
    Some(match over {
        Over::Absent | Over::Count | Over::Present | Over::TsOfLast => RollupParts::NONE,
        Over::First | Over::TsOfFirst => RollupParts::FIRST,
        Over::Last => RollupParts::LAST,
        Over::Max | Over::Min => RollupParts::EXTREMES,
        Over::Avg | Over::Sum => RollupParts::SUM,
        Over::Delta => edges,
        Over::Increase | Over::Rate => edges | RollupParts::FALLS,
        Over::Changes | Over::Resets => edges | RollupParts::STEPS,
        _ => return None,
    })
}

impl Evaluator<'_> {
    /// The roll-ups of a series, and from when on its samples are to be read. `told` is where the
    /// query asks for them and whether single samples are what it needs.
    pub(super) fn rolled(
        &self,
        series: &dyn Series,
        ask: RollupAsk,
        told: (Span, bool),
    ) -> Result<(Vec<RollupBucket>, i64), QueryError> {
        let mut buckets = Vec::new();
        if !self.rollups {
            return Ok((buckets, ask.from_ns));
        }
        let end = series.rollups(&ask, &mut buckets)?;
        self.budget.read(buckets.len() as u64)?;
        if let Some(width_ns) = end.gone_width_ns {
            self.note(Note::RolledUp { width_ns, sampled: told.1 }, told.0);
        }
        Ok((buckets, end.raw_from_ns))
    }
}

/// The samples of buckets that are known one by one, in front of `columns`. The second is, for each
/// of them, until when samples are known to have followed.
pub(super) fn instants(buckets: &[RollupBucket], columns: Columns) -> (Columns, Vec<i64>) {
    if buckets.is_empty() {
        return (columns, Vec::new());
    }
    let mut all = Columns::default();
    let mut alive = Vec::new();
    for bucket in buckets {
        let (first, last) = (bucket.first, bucket.last);
        if bucket.count > 0 {
            put(&mut all, first);
            alive.push(last.0);
        }
        if bucket.count > 1 {
            put(&mut all, last);
            alive.push(last.0);
        }
        if let Some(ended_ns) = bucket.ended_ns {
            put(&mut all, (ended_ns, model::stale_marker()));
            alive.push(ended_ns);
        }
    }
    all.times_ns.extend(columns.times_ns);
    all.values.extend(columns.values);
    (all, alive)
}

/// The last sample of each bucket, in front of `columns`.
pub(super) fn lasts(buckets: &[RollupBucket], columns: Columns) -> Columns {
    if buckets.is_empty() {
        return columns;
    }
    let mut all = Columns::default();
    for bucket in buckets.iter().filter(|bucket| bucket.count > 0) {
        put(&mut all, bucket.last);
    }
    all.times_ns.extend(columns.times_ns);
    all.values.extend(columns.values);
    all
}

fn put(columns: &mut Columns, (time_ns, value): (i64, f64)) {
    columns.times_ns.push(time_ns);
    columns.values.push(value);
}

impl Frame<'_> {
    /// Computes one series of which some is known as roll-ups. A bucket counts in the windows that
    /// hold its last sample; where windows end with buckets that is all of it.
    pub(super) fn over_rolled(&self, over: Over) -> Result<Row, QueryError> {
        let Self { samples, windows, grid, budget, .. } = *self;
        let columns = &samples.columns;
        let mut buckets: Vec<RollupBucket> = Vec::with_capacity(samples.rolled.len() + columns.values.len());
        buckets.extend(samples.rolled.iter().filter(|bucket| bucket.count > 0));
        buckets.extend(columns.times_ns.iter().zip(&columns.values).map(|(time_ns, value)| {
            let one = RollupBucket::one(*time_ns, (*time_ns, *value));
            // Reading for a count, a value is a number of samples.
            if windows.weighted { RollupBucket { count: *value as u64, ..one } } else { one }
        }));
        let mut row = Row::empty(samples.labels.clone(), samples.drop_name, grid.steps);
        let (mut from, mut to, mut visits) = (0, 0, 0);
        for step in 0..grid.steps {
            let end_ns = if windows.pinned { windows.ends.start_ns } else { windows.ends.at(step) };
            let start_ns = end_ns.saturating_sub(windows.range_ns);
            while buckets.get(to).is_some_and(|bucket| bucket.last.0 <= end_ns) {
                to += 1;
            }
            while buckets.get(from).is_some_and(|bucket| bucket.last.0 <= start_ns) {
                from += 1;
            }
            if from >= to {
                continue;
            }
            visits += to - from;
            if visits > VISITS_PER_CHECK {
                visits = 0;
                budget.check()?;
            }
            if let Some(value) = value(over, &buckets[from..to], (start_ns, end_ns)) {
                row.put(step, value);
            }
        }
        Ok(row)
    }
}

/// Of a function that takes buckets, with the [`parts`] it needs; there is at least one.
fn value(over: Over, buckets: &[RollupBucket], window: (i64, i64)) -> Option<f64> {
    let (first, last) = (buckets.first()?, buckets.last()?);
    let count = || buckets.iter().map(|bucket| bucket.count).sum::<u64>();
    let between = |counts: fn(f64, f64) -> bool| {
        let pairs = buckets.windows(2);
        pairs.filter(|pair| counts(pair[0].last.1, pair[1].first.1)).count() as f64
    };
    match over {
        Over::Absent | Over::Present => Some(1.0),
        Over::Count => Some(count() as f64),
        Over::First => Some(first.first.1),
        Over::Last => Some(last.last.1),
        Over::TsOfFirst => Some(seconds(first.first.0)),
        Over::TsOfLast => Some(seconds(last.last.0)),
        Over::Sum => Some(sum(buckets)),
        Over::Avg => Some(sum(buckets) / count() as f64),
        Over::Min => Some(extreme(buckets.iter().map(|bucket| bucket.min), |new, best| new < best)),
        Over::Max => Some(extreme(buckets.iter().map(|bucket| bucket.max), |new, best| new > best)),
        Over::Resets => {
            let within = buckets.iter().map(|bucket| bucket.resets).sum::<u64>() as f64;
            Some(within + between(|before, after| after < before))
        }
        Over::Changes => {
            let within = buckets.iter().map(|bucket| bucket.changes).sum::<u64>() as f64;
            let differ = |before: f64, after: f64| after != before && !(before.is_nan() && after.is_nan());
            Some(within + between(differ))
        }
        Over::Rate | Over::Increase | Over::Delta => {
            let counter = over != Over::Delta;
            let growth = Growth {
                first: first.first.1,
                grown: last.last.1 - first.first.1 + if counter { falls(buckets) } else { 0.0 },
                times_ns: (first.first.0, last.last.0),
                samples: count(),
            };
            growth.extrapolated(window, counter, over == Over::Rate)
        }
        _ => None,
    }
}

fn sum(buckets: &[RollupBucket]) -> f64 {
    let sums = buckets.iter().map(|bucket| bucket.sum);
    let (sum, rest) = sums.fold((0.0, 0.0), |(sum, rest), value| add(value, sum, rest));
    if sum.is_infinite() { sum } else { sum + rest }
}

/// The values right before each fall, within buckets and from one to the next.
fn falls(buckets: &[RollupBucket]) -> f64 {
    let between = buckets.windows(2).filter(|pair| pair[1].first.1 < pair[0].last.1);
    let within = buckets.iter().map(|bucket| bucket.falls).sum::<f64>();
    within + between.map(|pair| pair[0].last.1).sum::<f64>()
}

fn extreme(values: impl Iterator<Item = f64>, better: impl Fn(f64, f64) -> bool) -> f64 {
    values.fold(f64::NAN, |best, value| if better(value, best) || best.is_nan() { value } else { best })
}
