//! Merging small segments into larger ones, and rewriting those that hold much of purged runs.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{RollupParts, Sample};

use crate::SeriesId;
use crate::batch::AppendError;
use crate::read::{Part, Piece, sweep};
use crate::rollup::day_start;
use crate::rollup_make::push_buckets;
use crate::segment::{Class, SEALED_POINTS_MAX, Segment, SegmentWriter};
use crate::series::State;
use crate::store::{Inner, remove_files};

/// So many segments of about one size are merged into one.
const MERGE_FAN_IN: usize = 8;
/// Points beyond which segments are merged no further, unless their series have few each.
const MERGED_POINTS_MAX: u64 = 64 << 20;
/// Days after which few roll-ups are added to a stretch.
const CLOSED_AFTER_DAYS: i64 = 2;
/// Points from which a chunk is copied as it is when segments are merged.
const COPIED_POINTS_MIN: u32 = 2_048;

impl Inner {
    /// Merges one group of small segments, or rewrites one that holds many points of purged runs.
    pub(crate) fn merge_small(&self, now_ns: i64) -> Result<(), AppendError> {
        // Two seals after its end a day has all that came in time.
        let rest_ns = self.options.seal_age_ns.saturating_mul(2);
        let inputs = self.half_purged().unwrap_or_else(|| mergeable(&self.read_state(), rest_ns, now_ns));
        let Some(class) = inputs.first().map(|segment| segment.class) else { return Ok(()) };
        let (epoch, id) = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer)?;
            writer.counters.segment += 1;
            (writer.epoch, writer.counters.segment - 1)
        };
        let merged = match self.merge(&inputs, id, class) {
            Ok(Some(merged)) => merged,
            // Damage was met: the files stay as they are and are not tried again.
            Ok(None) => return Ok(()),
            Err(error) => return Err(self.segment_error(&error)),
        };
        let age = inputs.iter().map(|segment| segment.age).max();
        let merged = [Arc::new(merged.aged(age.unwrap_or(id)))];
        if inputs.iter().all(|segment| segment.is_rolled()) {
            merged[0].mark_rolled();
        }
        let mut change = Self::naming(&merged);
        change.segments.extend(Self::dropping(&inputs).segments);
        self.swap_in(epoch, &change, &merged, |state| {
            state.forget_segments(&inputs);
            state.count_rolled(&merged);
        })?;
        remove_files(inputs.iter().map(|segment| &segment.path));
        Ok(())
    }

    /// A segment that holds many points of purged runs. Looked for only while one may be there.
    fn half_purged(&self) -> Option<Vec<Arc<Segment>>> {
        let found = {
            let state = self.read_state();
            if !state.purged {
                return None;
            }
            let wasteful = |s: &&Arc<Segment>| !s.is_damaged() && state.live_points(s) < s.points / 4 * 3;
            state.segments.iter().find(wasteful).cloned()
        };
        if found.is_none() {
            self.write_state().purged = false;
        }
        found.map(|segment| vec![segment])
    }

    fn merge(&self, inputs: &[Arc<Segment>], id: u64, class: Class) -> io::Result<Option<Segment>> {
        let mut series: Vec<SeriesId> = inputs.iter().flat_map(|s| s.listed()).map(|l| l.series).collect();
        series.sort_unstable();
        series.dedup();
        {
            let state = self.read_state();
            series.retain(|id| state.series.contains_key(*id));
        }
        let mut writer = SegmentWriter::create(&self.dir, id, class)?;
        for series in series {
            if let Some(width_ns) = class.width_ns() {
                if !self.merge_buckets(inputs, series, width_ns, &mut writer)? {
                    return Ok(None);
                }
                continue;
            }
            let mut whole = true;
            let mut damage = |why| {
                whole = false;
                self.report_damage(why);
            };
            let mut pieces = Vec::new();
            for segment in inputs {
                let entries = segment.entries(series, &mut damage);
                pieces.extend(entries.into_iter().map(|e| Piece::Stored(series, segment.clone(), e)));
            }
            let mut joining = Joining { writer: &mut writer, series, buffer: Vec::new(), result: Ok(()) };
            let mut unreadable = None;
            _ = sweep(pieces, &mut damage, &mut |part| joining.take(part, &mut unreadable));
            joining.flush();
            joining.result?;
            if let Some(why) = unreadable {
                damage(why);
            }
            if !whole {
                return Ok(None);
            }
        }
        writer.finish(&|ids| self.names(ids)).map(Some)
    }

    /// Joins a series' roll-ups; `false` when damage was met.
    fn merge_buckets(
        &self,
        inputs: &[Arc<Segment>],
        series: SeriesId,
        width_ns: i64,
        writer: &mut SegmentWriter,
    ) -> io::Result<bool> {
        let buckets = self.read_buckets(inputs, series, (i64::MIN, i64::MAX), RollupParts::ALL);
        if inputs.iter().any(|segment| segment.is_damaged()) {
            return Ok(false);
        }
        push_buckets(writer, series, &buckets, width_ns)?;
        Ok(true)
    }
}

/// Segments that should become one: several of about one size, and the smaller ones between them,
/// so that no point gets younger than one that replaced it. In order of age.
fn mergeable(state: &State, rest_ns: i64, now_ns: i64) -> Vec<Arc<Segment>> {
    let mut groups: BTreeMap<(Class, i64), Vec<&Arc<Segment>>> = BTreeMap::new();
    for segment in &state.segments {
        let stretch = segment.class.stretch_of(segment.time_ns.1);
        groups.entry((segment.class, stretch)).or_default().push(segment);
    }
    let scattered: Vec<&Arc<Segment>> = state.segments.iter().filter(|s| is_scattered(s)).collect();
    let rows: Vec<(Class, i64, &[&Arc<Segment>])> = groups
        .iter()
        .flat_map(|((class, stretch), group)| {
            apart(group, state, &scattered).into_iter().map(|row| (*class, *stretch, row))
        })
        .collect();
    let fit = rows.iter().find_map(|(_, _, row)| neighbours(row));
    // A past that is still being sent would be merged again with each seal.
    let rests = |class: &Class, stretch: i64| *class != Class::Fleet || !state.has_day_in_memory(stretch);
    fit.or_else(|| {
        rows.iter().find_map(|(class, stretch, row)| {
            closed(*class, *stretch, row, rest_ns, now_ns).filter(|_| rests(class, *stretch))
        })
    })
    .unwrap_or_default()
}

/// Whether a file holds samples of several stretches, as one of long ago may.
fn is_scattered(segment: &Segment) -> bool {
    segment.class.stretch_of(segment.time_ns.0) != segment.class.stretch_of(segment.time_ns.1)
}

/// The parts of a group, which is in order of age, of which each may become one file.
fn apart<'g>(
    group: &'g [&'g Arc<Segment>],
    state: &State,
    scattered: &[&Arc<Segment>],
) -> Vec<&'g [&'g Arc<Segment>]> {
    let mut rows = Vec::new();
    let mut from = 0;
    for to in 1..=group.len() {
        let ends = group.get(to).is_none_or(|next| {
            // What is in roll-ups stays apart from what is not, or it would be rolled up again.
            next.is_rolled() != group[from].is_rolled()
                || group[from..to].iter().any(|older| is_replaced(older, next, state, scattered))
        });
        if ends {
            rows.push(&group[from..to]);
            from = to;
        }
    }
    rows
}

/// Whether a file of another stretch, younger than `older` and older than `next`, may have replaced
/// samples of the former: as one file with the latter they would count again.
fn is_replaced(older: &Segment, next: &Segment, state: &State, scattered: &[&Arc<Segment>]) -> bool {
    let replaces = |other: &&Arc<Segment>| {
        older.age < other.age
            && other.age < next.age
            && other.class == older.class
            && other.class.stretch_of(other.time_ns.1) != older.class.stretch_of(older.time_ns.1)
            && other.time_ns.0 <= older.time_ns.1
            && older.time_ns.0 <= other.time_ns.1
    };
    // Files of one stretch each overlap no file of another.
    if is_scattered(older) {
        state.segments.iter().any(|s| replaces(&s))
    } else {
        scattered.iter().any(replaces)
    }
}

/// All files of a stretch that is over, unless a few samples that came late would have many rewritten.
/// After that the chunks are as long as the stretch has points for.
fn closed(
    class: Class,
    stretch: i64,
    row: &[&Arc<Segment>],
    rest_ns: i64,
    now_ns: i64,
) -> Option<Vec<Arc<Segment>>> {
    let rest_ns = if class.is_raw() { rest_ns } else { day_start(CLOSED_AFTER_DAYS) };
    let over = class != Class::Run && class.stretch_of(now_ns.saturating_sub(rest_ns)) > stretch;
    let points = row.iter().map(|segment| segment.points);
    let (all, most) = (points.clone().sum::<u64>(), points.max().unwrap_or_default());
    let worth = over && all - most > most / MERGE_FAN_IN as u64;
    let sound = is_small(row) && !row.iter().any(|segment| segment.is_damaged());
    (worth && sound).then(|| row.iter().map(|segment| Arc::clone(segment)).collect())
}

/// Whether one file may hold all of it: there are not too many points, or each series has few.
fn is_small(row: &[&Arc<Segment>]) -> bool {
    let points = row.iter().map(|segment| segment.points).sum::<u64>();
    let series = row.iter().map(|segment| segment.listed().len()).max().unwrap_or_default();
    points <= MERGED_POINTS_MAX.max(series as u64 * SEALED_POINTS_MAX as u64)
}

/// The smallest such of one group, which is in order of age.
fn neighbours(group: &[&Arc<Segment>]) -> Option<Vec<Arc<Segment>>> {
    let size = |segment: &Segment| (segment.points >> 12).max(1).ilog(MERGE_FAN_IN as u64);
    let mut sizes: Vec<u32> = group.iter().map(|segment| size(segment)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let fits = |segment: &&Arc<Segment>, wanted: u32| size(segment) <= wanted && !segment.is_damaged();
    sizes.into_iter().find_map(|wanted| {
        let mut rows = group.split(|segment| !fits(segment, wanted));
        rows.find_map(|row| {
            let mut places = row.iter().enumerate().filter(|(_, segment)| size(segment) == wanted);
            let first = places.next()?.0;
            let last = places.nth(MERGE_FAN_IN - 2)?.0;
            let row = &row[first..=last];
            is_small(row).then(|| row.iter().map(|segment| Arc::clone(segment)).collect())
        })
    })
}

/// Collects a series' parts into chunks of good length.
struct Joining<'a> {
    writer: &'a mut SegmentWriter,
    series: SeriesId,
    buffer: Vec<Sample>,
    result: io::Result<()>,
}

impl Joining<'_> {
    fn take(&mut self, part: Part, unreadable: &mut Option<String>) -> ControlFlow<()> {
        let samples = match part {
            Part::Merged(samples) => Ok(samples),
            Part::Whole(Piece::Stored(series, segment, entry)) => {
                if entry.summary.count >= COPIED_POINTS_MIN {
                    self.flush();
                    if self.result.is_ok() {
                        match segment.chunk(series, &entry) {
                            Ok(chunk) => self.result = self.writer.copy(series, &entry.summary, &chunk),
                            Err(why) => *unreadable = Some(why),
                        }
                    }
                    Ok(Vec::new())
                } else {
                    segment.samples(series, &entry)
                }
            }
            Part::Whole(piece @ Piece::Memory(_)) => piece.samples(),
        };
        match samples {
            Ok(samples) => self.buffer.extend(samples),
            Err(why) => *unreadable = Some(why),
        }
        while self.buffer.len() >= SEALED_POINTS_MAX && self.result.is_ok() {
            self.result = self.writer.push(self.series, &self.buffer[..SEALED_POINTS_MAX]);
            self.buffer.drain(..SEALED_POINTS_MAX);
        }
        if self.result.is_ok() && unreadable.is_none() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    fn flush(&mut self) {
        if self.result.is_ok() && !self.buffer.is_empty() {
            self.result = self.writer.push(self.series, &self.buffer);
        }
        self.buffer.clear();
    }
}
