//! Reading roll-ups: where single samples are gone, and where whole buckets do.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{RolledUp, RollupAsk, RollupBucket, RollupParts};

use crate::SeriesId;
use crate::read::{Part, Piece, Sources, sweep};
use crate::rollup::{self, MINUTE_NS, QUARTER_NS, day_of};
use crate::segment::{Class, Segment};
use crate::series::State;
use crate::store::Inner;

/// Samples in a bucket from which it is read faster than they are.
const SAMPLES_WORTH: i64 = 10;

type Range = (i64, i64);

/// What the roll-ups of a series are read from, taken while the state is locked.
struct RollupSources {
    /// Single samples are complete from here on.
    raw_from_ns: i64,
    minute: Vec<Arc<Segment>>,
    quarter: Vec<Arc<Segment>>,
    /// First time of samples, not before `raw_from_ns`, that no roll-up holds yet.
    unrolled_from_ns: Option<i64>,
    /// First and last time in each file of samples that roll-ups hold as well, and how many it has.
    rolled: Vec<(Range, u32)>,
    /// Samples that came after those of their time were gone, until they are in the roll-ups.
    late: Sources,
}

impl RollupSources {
    fn of(state: &State, series: SeriesId, range: Range) -> Option<Self> {
        let known = state.series.get(series).filter(|known| known.rolled > 0)?;
        let raw_from_ns = state.raw_from_ns.max(range.0);
        let mut found = Self {
            raw_from_ns,
            minute: Vec::new(),
            quarter: Vec::new(),
            unrolled_from_ns: known.head.earliest_ns(raw_from_ns, range.1),
            rolled: Vec::new(),
            late: Sources::default(),
        };
        for segment in &state.segments {
            if segment.time_ns.0 > range.1 || segment.time_ns.1 < range.0 {
                continue;
            }
            let Some(listed) = segment.find(series).filter(|l| l.overlaps(range.0, range.1)) else {
                continue;
            };
            match segment.class {
                Class::Run => {}
                Class::Minute => found.minute.push(Arc::clone(segment)),
                Class::Quarter => found.quarter.push(Arc::clone(segment)),
                Class::Fleet if listed.time_ns.1 < raw_from_ns => {}
                Class::Fleet if segment.is_rolled() => found.rolled.push((listed.time_ns, listed.points)),
                Class::Fleet => {
                    let earliest_ns = found.unrolled_from_ns.unwrap_or(i64::MAX);
                    found.unrolled_from_ns = Some(earliest_ns.min(listed.time_ns.0));
                }
            }
        }
        if range.0 < raw_from_ns {
            let late = Sources::of(state, series, range.0, range.1.min(raw_from_ns - 1));
            found.late = late.not_rolled();
        }
        Some(found)
    }
}

impl Inner {
    /// See [`crate::Store::rollups`].
    pub(crate) fn rollups(
        &self,
        series: SeriesId,
        ask: &RollupAsk,
        into: &mut Vec<RollupBucket>,
    ) -> RolledUp {
        let range = (ask.from_ns, ask.to_ns);
        let none = RolledUp { raw_from_ns: range.0, gone_width_ns: None };
        let Some(sources) = RollupSources::of(&self.read_state(), series, range) else { return none };
        let fits = |width_ns: &i64| ask.align_ns.is_some_and(|align_ns| align_ns % width_ns == 0);
        let width_ns = [QUARTER_NS, MINUTE_NS].into_iter().find(fits);
        let mut end = RolledUp { raw_from_ns: sources.raw_from_ns.max(range.0), gone_width_ns: None };
        if range.0 < sources.raw_from_ns {
            let before = (range.0, range.1.min(sources.raw_from_ns - 1));
            let buckets = self.gone(series, &sources, before, (width_ns, ask.parts));
            end.gone_width_ns = buckets.iter().map(|(width_ns, _)| *width_ns).max();
            into.extend(buckets.into_iter().map(|(_, bucket)| bucket));
        }
        let pays = |width_ns: &i64| sources.raw_from_ns <= range.1 && sources.pays(*width_ns);
        if let Some(width_ns) = width_ns.filter(pays) {
            let segments = if width_ns == QUARTER_NS { &sources.quarter } else { &sources.minute };
            let buckets = self.read_buckets(segments, series, (sources.raw_from_ns, range.1), ask.parts);
            end.raw_from_ns = sources.whole_until(&buckets, width_ns, range.1);
            into.extend(buckets.into_iter().filter(|bucket| bucket.end_ns < end.raw_from_ns));
        }
        end
    }

    /// Where single samples are gone: the widths that fit, else the finest there are.
    fn gone(
        &self,
        series: SeriesId,
        sources: &RollupSources,
        range: Range,
        (width_ns, parts): (Option<i64>, RollupParts),
    ) -> Vec<(i64, RollupBucket)> {
        let damage = &mut |why| self.report_damage(why);
        let (times_ns, values) = columns_of(sources.late.clone().pieces(series, range, damage), damage);
        // What came late is taken into whole buckets.
        let parts = if times_ns.is_empty() { parts } else { RollupParts::ALL };
        let mut quarter = self.read_buckets(&sources.quarter, series, range, parts);
        let minute = || self.read_buckets(&sources.minute, series, range, parts);
        let mut minute =
            if width_ns == Some(QUARTER_NS) && times_ns.is_empty() { Vec::new() } else { minute() };
        let (from, to) = within(&times_ns, range);
        let late = take_late(&minute, &quarter, &times_ns[from..to], &values[from..to]);
        minute.extend(late.0);
        quarter.extend(late.1);
        rollup::settle(&mut minute);
        rollup::settle(&mut quarter);
        if width_ns == Some(QUARTER_NS) {
            return quarter.into_iter().map(|bucket| (QUARTER_NS, bucket)).collect();
        }
        let lacking = |bucket: &RollupBucket| !has_minutes(&minute, bucket.end_ns);
        let coarse: Vec<_> = quarter.into_iter().filter(lacking).map(|b| (QUARTER_NS, b)).collect();
        let mut all: Vec<_> = minute.into_iter().map(|bucket| (MINUTE_NS, bucket)).collect();
        if !coarse.is_empty() {
            all.extend(coarse);
            all.sort_by_key(|(_, bucket)| bucket.end_ns);
        }
        all
    }

    /// The buckets of `segments`, which come in order of age, that hold anything of the range.
    pub(crate) fn read_buckets(
        &self,
        segments: &[Arc<Segment>],
        series: SeriesId,
        (from_ns, to_ns): Range,
        parts: RollupParts,
    ) -> Vec<RollupBucket> {
        let mut buckets = Vec::new();
        for segment in segments {
            for entry in segment.entries(series, &mut |why| self.report_damage(why)) {
                if !entry.summary.overlaps(from_ns, to_ns) {
                    continue;
                }
                match segment.buckets(series, &entry, parts) {
                    Ok(some) if entry.summary.time_ns.0 >= from_ns && entry.summary.time_ns.1 <= to_ns => {
                        buckets.extend(some);
                    }
                    Ok(some) => buckets.extend(some.into_iter().filter(|bucket| {
                        let (first_ns, last_ns) = bucket.time_ns();
                        first_ns <= to_ns && from_ns <= last_ns
                    })),
                    Err(why) => self.report_damage(why),
                }
            }
        }
        rollup::settle(&mut buckets);
        buckets
    }
}

impl RollupSources {
    /// Whether buckets are read faster than the samples that they stand for.
    fn pays(&self, width_ns: i64) -> bool {
        let stretches: i64 =
            self.rolled.iter().map(|((first_ns, last_ns), _)| (last_ns - first_ns) / width_ns + 1).sum();
        let samples: i64 = self.rolled.iter().map(|(_, points)| i64::from(*points)).sum();
        samples >= SAMPLES_WORTH * stretches
    }

    /// The time from which on `buckets`, all of `width_ns`, do not hold everything that there is.
    fn whole_until(&self, buckets: &[RollupBucket], width_ns: i64, to_ns: i64) -> i64 {
        let start =
            |time_ns: i64| rollup::end_of(time_ns, width_ns).saturating_sub(width_ns).saturating_add(1);
        let holds = |time_ns: i64| {
            buckets.binary_search_by_key(&rollup::end_of(time_ns, width_ns), |b| b.end_ns).is_ok()
        };
        let mut until_ns = to_ns.saturating_add(1);
        for ((first_ns, last_ns), _) in &self.rolled {
            // A day's samples are rolled up together, so the first of them speaks for all.
            let first_ns = *first_ns.max(&self.raw_from_ns);
            if first_ns <= to_ns && (day_of(first_ns) != day_of(*last_ns) || !holds(first_ns)) {
                until_ns = until_ns.min(start(first_ns));
            }
        }
        if let Some(first_ns) = self.unrolled_from_ns {
            until_ns = until_ns.min(start(first_ns));
        }
        until_ns.max(self.raw_from_ns)
    }
}

/// Whether there are minutes in the quarter of an hour that ends at `end_ns`.
fn has_minutes(minute: &[RollupBucket], end_ns: i64) -> bool {
    let at = minute.partition_point(|bucket| bucket.end_ns <= end_ns - QUARTER_NS);
    minute.get(at).is_some_and(|bucket| bucket.end_ns <= end_ns)
}

/// The buckets of both widths that change when samples are taken in whose like is gone. Minutes are
/// made where there are some, or where nothing was: a part of them must not stand for the whole.
pub(crate) fn take_late(
    minute: &[RollupBucket],
    quarter: &[RollupBucket],
    times_ns: &[i64],
    values: &[f64],
) -> (Vec<RollupBucket>, Vec<RollupBucket>) {
    let new = rollup::roll(times_ns, values, MINUTE_NS);
    let coarse = rollup::coarsen(&new, QUARTER_NS);
    let known = |end_ns: i64| quarter.binary_search_by_key(&end_ns, |b| b.end_ns).is_ok();
    let fits = |bucket: &RollupBucket| {
        let end_ns = rollup::end_of(bucket.end_ns, QUARTER_NS);
        !known(end_ns) || has_minutes(minute, end_ns)
    };
    let fine: Vec<RollupBucket> = new.into_iter().filter(fits).collect();
    (rollup::take_in(minute, &fine), rollup::take_in(quarter, &coarse))
}

/// Times and values of `pieces`, which come in order of age, in order of time.
pub(crate) fn columns_of(pieces: Vec<Piece>, damage: &mut dyn FnMut(String)) -> (Vec<i64>, Vec<f64>) {
    let (mut times_ns, mut values) = (Vec::new(), Vec::new());
    let mut unreadable = Vec::new();
    _ = sweep(pieces, damage, &mut |part| {
        let decoded = match &part {
            Part::Merged(samples) => {
                times_ns.extend(samples.iter().map(|s| s.time_ns));
                values.extend(samples.iter().map(|s| s.value));
                Ok(())
            }
            Part::Whole(Piece::Memory(chunk)) => chunk
                .columns(&mut times_ns, &mut values)
                .ok_or_else(|| "a chunk in memory is damaged".to_owned()),
            Part::Whole(Piece::Stored(series, segment, entry)) => {
                let path = segment.path.display();
                segment.chunk(*series, entry).and_then(|chunk| {
                    chunk
                        .columns(&mut times_ns, &mut values)
                        .ok_or_else(|| format!("`{path}`: a sound chunk of series {series} can't be decoded"))
                })
            }
        };
        unreadable.extend(decoded.err());
        ControlFlow::Continue(())
    });
    unreadable.into_iter().for_each(damage);
    (times_ns, values)
}

/// The places of times within the range.
pub(crate) fn within(times_ns: &[i64], (from_ns, to_ns): Range) -> (usize, usize) {
    let from = times_ns.partition_point(|time_ns| *time_ns < from_ns);
    (from, times_ns.partition_point(|time_ns| *time_ns <= to_ns).max(from))
}
