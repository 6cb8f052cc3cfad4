//! Making roll-ups: a day at a time, from all of its samples, once they are sealed and rest.
//!
//! A sealed file whose samples are in roll-ups says so in the manifest. One that came later, with
//! samples of a day that was rolled up before, has the series that it holds rolled up again for that
//! day; of two roll-ups of one stretch the later counts. When the day's samples are gone by then,
//! what came late is taken into the roll-ups that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use model::{RollupBucket, RollupParts};

use crate::SeriesId;
use crate::batch::AppendError;
use crate::read::{Piece, Sources};
use crate::retention::overdue;
use crate::rollup::{self, MINUTE_NS, QUARTER_NS, day_end, day_of, day_start};
use crate::rollup_chunk;
use crate::rollup_read::{columns_of, take_late, within};
use crate::segment::{Class, SEALED_POINTS_MAX, Segment, SegmentWriter};
use crate::store::Inner;

/// Samples per bucket, on average over a day, from which minutes are written.
const SAMPLES_PER_MINUTE: usize = 4;

impl Inner {
    /// Rolls up one day that is due; `false` when none is.
    pub(crate) fn roll(&self, now_ns: i64) -> Result<bool, AppendError> {
        let inputs = self.due(now_ns);
        if inputs.is_empty() {
            return Ok(false);
        }
        let reserved = |class: Class| {
            let days = self.options.retention_ns(class).div_euclid(day_start(1)) + 2;
            (days / class.partition_days() + 2) as u64
        };
        let (epoch, first_id) = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer)?;
            let first_id = writer.counters.segment;
            writer.counters.segment += reserved(Class::Minute) + reserved(Class::Quarter);
            (writer.epoch, first_id)
        };
        let raw_from_ns = self.read_state().raw_from_ns;
        let mut rolling =
            Rolling { inner: self, now_ns, raw_from_ns, next_id: first_id, writers: BTreeMap::new() };
        let segments = rolling.write(&inputs).map_err(|error| self.segment_error(&error))?;
        let mut change = Self::naming(&segments);
        change.segments.extend(inputs.iter().map(|segment| {
            let manifest = crate::segment::Manifest { rolled: true, ..segment.manifest() };
            (segment.id, Some(manifest.encode()))
        }));
        self.swap_in(epoch, &change, &segments, |state| {
            for segment in &inputs {
                segment.mark_rolled();
            }
            state.count_rolled(&segments);
        })?;
        Ok(true)
    }

    /// The files of the earliest day that is due to be rolled up.
    fn due(&self, now_ns: i64) -> Vec<Arc<Segment>> {
        if !self.options.makes_rollups() {
            return Vec::new();
        }
        // Two seals after its end a day has all that came in time.
        let rest_ns = self.options.seal_age_ns.saturating_mul(2);
        let state = self.read_state();
        let unrolled = || state.segments.iter().filter(|s| s.class == Class::Fleet && !s.is_rolled());
        if unrolled().next().is_none() {
            return Vec::new();
        }
        let leaving: BTreeSet<u64> = overdue(&state, &self.options, now_ns).iter().map(|s| s.id).collect();
        let day = |segment: &Segment| day_of(segment.time_ns.1);
        let is_due = |segment: &&Arc<Segment>| {
            day_end(day(segment)).saturating_add(rest_ns) <= now_ns || leaving.contains(&segment.id)
        };
        let Some(first) = unrolled().filter(is_due).map(|segment| day(segment)).min() else {
            return Vec::new();
        };
        let inputs: Vec<Arc<Segment>> = unrolled().filter(|s| day(s) == first).cloned().collect();
        // A past that is still being sent would be rolled up again with each seal.
        let leave = inputs.iter().any(|segment| leaving.contains(&segment.id));
        if !leave && state.has_day_in_memory(first) { Vec::new() } else { inputs }
    }
}

/// Days being rolled up: one file per class and stretch of days.
struct Rolling<'a> {
    inner: &'a Inner,
    now_ns: i64,
    raw_from_ns: i64,
    next_id: u64,
    writers: BTreeMap<(Class, i64), SegmentWriter>,
}

/// The roll-ups of one series.
#[derive(Default)]
struct Made {
    minute: Vec<RollupBucket>,
    quarter: Vec<RollupBucket>,
}

impl Rolling<'_> {
    fn write(&mut self, inputs: &[Arc<Segment>]) -> io::Result<Vec<Arc<Segment>>> {
        let mut ids: Vec<SeriesId> = inputs.iter().flat_map(|s| s.listed()).map(|l| l.series).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let made = self.make(id, inputs);
            self.put(Class::Minute, id, &made.minute)?;
            self.put(Class::Quarter, id, &made.quarter)?;
        }
        self.inner.finish_all(std::mem::take(&mut self.writers).into_values())
    }

    /// The roll-ups that the samples of `inputs` make or change.
    fn make(&self, series: SeriesId, inputs: &[Arc<Segment>]) -> Made {
        let damage = &mut |why| self.inner.report_damage(why);
        let mut new = Vec::new();
        for segment in inputs {
            let entries = segment.entries(series, damage);
            new.extend(entries.into_iter().map(|entry| Piece::Stored(series, Arc::clone(segment), entry)));
        }
        let days = self.days(&new);
        let (Some(first), Some(last)) = (days.first(), days.last()) else { return Made::default() };
        let span = (day_start(*first).saturating_add(1), day_end(*last));
        let (all, minute, quarter) = {
            let state = self.inner.read_state();
            if !state.series.contains_key(series) {
                return Made::default();
            }
            let of = |class| {
                let holds = |s: &&Arc<Segment>| {
                    s.class == class && s.find(series).is_some_and(|l| l.overlaps(span.0, span.1))
                };
                state.segments.iter().filter(holds).cloned().collect::<Vec<_>>()
            };
            let all = Sources::of(&state, series, span.0, span.1).sealed();
            (all, of(Class::Minute), of(Class::Quarter))
        };
        let all = all.pieces(series, span, damage);
        let mut made = Made::default();
        for day in days {
            let range = (day_start(day).saturating_add(1), day_end(day));
            let known = |segments| self.inner.read_buckets(segments, series, range, RollupParts::ALL);
            let (minute, quarter) = (known(&minute), known(&quarter));
            let gone = range.0 < self.raw_from_ns;
            let pieces = if gone { &new } else { &all };
            let holds = |piece: &&Piece| piece.summary().overlaps(range.0, range.1);
            let (times_ns, values) = columns_of(pieces.iter().filter(holds).cloned().collect(), damage);
            let (from, to) = within(&times_ns, range);
            let (times_ns, values) = (&times_ns[from..to], &values[from..to]);
            if gone {
                let late = take_late(&minute, &quarter, times_ns, values);
                made.minute.extend(late.0);
                made.quarter.extend(late.1);
                continue;
            }
            let fine = rollup::roll(times_ns, values, MINUTE_NS);
            made.quarter.extend(rollup::coarsen(&fine, QUARTER_NS));
            // Minutes that are there must not stay behind.
            if times_ns.len() >= SAMPLES_PER_MINUTE * fine.len() || !minute.is_empty() {
                made.minute.extend(fine);
            }
        }
        made
    }

    /// The days that `pieces` may have samples of, as far as roll-ups of them are kept.
    fn days(&self, pieces: &[Piece]) -> BTreeSet<i64> {
        let options = &self.inner.options;
        let kept_ns = options.retention_ns(Class::Minute).max(options.retention_ns(Class::Quarter));
        let (earliest, latest) = (day_of(self.now_ns.saturating_sub(kept_ns)), day_of(self.now_ns) + 1);
        let of = |piece: &Piece| {
            let (first_ns, last_ns) = piece.summary().time_ns;
            day_of(first_ns).max(earliest)..=day_of(last_ns).min(latest)
        };
        pieces.iter().flat_map(of).collect()
    }

    fn put(&mut self, class: Class, series: SeriesId, buckets: &[RollupBucket]) -> io::Result<()> {
        let Some(width_ns) = class.width_ns() else { return Ok(()) };
        let kept_ns = self.inner.options.retention_ns(class);
        let before_ns = self.now_ns.saturating_sub(kept_ns);
        let old = buckets.partition_point(|bucket| bucket.end_ns < before_ns);
        let buckets = if kept_ns == 0 { &[] } else { &buckets[old..] };
        let stretch = |bucket: &RollupBucket| class.stretch_of(bucket.end_ns);
        for part in buckets.chunk_by(|a, b| stretch(a) == stretch(b)) {
            let writer = self.writer((class, stretch(&part[0])))?;
            push_buckets(writer, series, part, width_ns)?;
        }
        Ok(())
    }

    fn writer(&mut self, key: (Class, i64)) -> io::Result<&mut SegmentWriter> {
        match self.writers.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let id = self.next_id;
                self.next_id += 1;
                Ok(entry.insert(SegmentWriter::create(&self.inner.dir, id, key.0)?))
            }
        }
    }
}

/// Adds roll-ups of a series, in order of time and after its earlier ones.
pub(crate) fn push_buckets(
    writer: &mut SegmentWriter,
    series: SeriesId,
    buckets: &[RollupBucket],
    width_ns: i64,
) -> io::Result<()> {
    let pieces = buckets.len().div_ceil(SEALED_POINTS_MAX).max(1);
    for piece in buckets.chunks(buckets.len().div_ceil(pieces).max(1)) {
        let summary = rollup_chunk::summary(piece);
        writer.push_chunk(series, &summary, &rollup_chunk::encode(piece, width_ns))?;
    }
    Ok(())
}
