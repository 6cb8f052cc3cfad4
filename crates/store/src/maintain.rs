//! Sealing memory into segments, merging small segments, dropping old ones.
//!
//! Each step writes its files first, without holding the writer, and then swaps them in with one
//! transaction. A crash in between leaves files that the manifest does not name; they go at open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{NANOS_PER_SECOND, RunId, Sample};

use crate::SeriesId;
use crate::batch::AppendError;
use crate::catalogue::Change;
use crate::chunk;
use crate::head::MemoryChunk;
use crate::read::{Part, Piece, sweep};
use crate::record;
use crate::segment::{Class, Names, SEALED_POINTS_MAX, Segment, SegmentWriter};
use crate::series::State;
use crate::store::{Inner, remove_files};

const DAY_NS: i64 = 86_400 * NANOS_PER_SECOND;
/// Points per series from which chunks are long enough to be worth sealing.
const POINTS_PER_SERIES: u64 = 256;
/// Points in memory at which it is sealed however short the chunks are.
const HEAD_POINTS_MAX: u64 = 32 << 20;
/// Days that one seal keeps apart; older points share the last of them.
const PARTITIONS_BACK: i64 = 31;
/// Numbers that a seal or a merge reserves: one per partition and class.
const SEGMENTS_RESERVED: u64 = 40;
/// So many segments of about one size are merged into one.
const MERGE_FAN_IN: usize = 8;
/// Points beyond which segments are merged no further.
const MERGED_POINTS_MAX: u64 = 64 << 20;
/// Points from which a chunk is copied as it is when segments are merged.
const COPIED_POINTS_MIN: u32 = 1_024;

impl Inner {
    /// Does what is due.
    pub(crate) fn maintain(&self, now_ns: i64) -> Result<(), AppendError> {
        let mut maintenance = self.lock_maintenance();
        let (points, series) = {
            let state = self.read_state();
            (state.head_points, state.head_series)
        };
        if points == 0 {
            maintenance.head_since_ns = None;
        } else {
            let since_ns = *maintenance.head_since_ns.get_or_insert(now_ns);
            let enough = points >= self.options.seal_points && points >= POINTS_PER_SERIES * series;
            let old = now_ns.saturating_sub(since_ns) >= self.options.seal_age_ns;
            if enough || old || points >= HEAD_POINTS_MAX {
                self.seal(now_ns)?;
                maintenance.head_since_ns = None;
            }
        }
        self.expire(now_ns)?;
        self.merge_small()
    }

    /// Writes everything in memory into segments and trims the log. The caller holds maintenance.
    pub(crate) fn seal(&self, now_ns: i64) -> Result<(), AppendError> {
        let (jobs, rows_before, epoch, first_id) = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer)?;
            let first_id = writer.counters.segment;
            writer.counters.segment += SEGMENTS_RESERVED;
            (freeze(&mut self.write_state()), writer.counters.row, writer.epoch, first_id)
        };
        if jobs.is_empty() {
            return Ok(());
        }
        let mut sealing = Sealing { inner: self, now_ns, next_id: first_id, writers: BTreeMap::new() };
        let segments = sealing.write(&jobs).map_err(|error| self.segment_error(&error))?;
        let change = Change { rows_before: Some(rows_before), ..naming(&segments) };
        self.swap_in(epoch, &change, &segments, |state| {
            for job in &jobs {
                if let Some(series) = state.series.get_mut(&job.series) {
                    let gone = series.head.forget(job.chunks.len());
                    state.head_points -= gone;
                }
            }
        })
    }

    /// What a segment of these series says of itself.
    fn names(&self, ids: &[SeriesId]) -> Names {
        let state = self.read_state();
        let known = || ids.iter().filter_map(|id| Some((*id, state.series.get(id)?)));
        let runs: BTreeSet<RunId> = known().filter_map(|(_, series)| series.run).collect();
        let runs = runs.iter().filter_map(|run| state.runs.get(run));
        Names {
            series: known().map(|(id, series)| (id, series.identity.clone())).collect(),
            runs: runs.map(|run| record::encode_run(run)).collect(),
        }
    }

    fn segment_error(&self, error: &io::Error) -> AppendError {
        AppendError::failed(format!(
            "writing a segment in `{}`: {error}",
            self.dir.join("segments").display()
        ))
    }

    /// Commits `change`, which names `segments`, and shows them. They are removed when it failed.
    fn swap_in(
        &self,
        epoch: u64,
        change: &Change,
        segments: &[Arc<Segment>],
        apply: impl FnOnce(&mut State),
    ) -> Result<(), AppendError> {
        let paths = || segments.iter().map(|segment| &segment.path);
        let mut writer = self.lock_writer();
        let ready = self.make_ready(&mut writer);
        if ready.is_err() || writer.epoch != epoch {
            remove_files(paths());
            return ready;
        }
        let counters = writer.counters;
        let committed = self.commit(&mut writer, change, counters, |state| {
            apply(state);
            state.segments.extend(segments.iter().cloned());
            state.segments.sort_by_key(|segment| segment.age);
        });
        if committed.is_err() {
            if Self::is_known(&writer) {
                remove_files(paths());
            } else {
                writer.orphans.extend(paths().cloned());
            }
        }
        committed
    }

    /// Drops segments of series that belong to no run, once all their points are too old or there
    /// are too many bytes of them, and series that are nowhere after that.
    fn expire(&self, now_ns: i64) -> Result<(), AppendError> {
        let old = self.expired(now_ns);
        if old.is_empty() {
            return Ok(());
        }
        let mut change = dropping(&old);
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let gone = self.read_state().only_in(&old);
        change.series.extend(gone.iter().map(|id| (*id, None)));
        let counters = writer.counters;
        self.commit(&mut writer, &change, counters, |state| {
            for listed in old.iter().flat_map(|segment| segment.listed()) {
                if let Some(series) = state.series.get_mut(&listed.series) {
                    let points = &mut series.totals.points;
                    *points = points.saturating_sub(u64::from(listed.points));
                }
            }
            state.forget_series(&gone);
            forget(state, &old);
        })?;
        remove_files(old.iter().map(|segment| &segment.path));
        Ok(())
    }

    /// The segments whose time has come, oldest first.
    fn expired(&self, now_ns: i64) -> Vec<Arc<Segment>> {
        let before_ns = now_ns.saturating_sub(self.options.fleet_retention_ns);
        let state = self.read_state();
        let mut fleet: Vec<_> = state.segments.iter().filter(|s| s.class == Class::Fleet).collect();
        fleet.sort_by_key(|segment| segment.time_ns.1);
        let mut bytes: u64 = fleet.iter().map(|segment| segment.bytes).sum();
        let mut is_due = |segment: &&&Arc<Segment>| {
            let due = segment.time_ns.1 < before_ns || bytes > self.options.fleet_bytes_max;
            bytes -= segment.bytes;
            due
        };
        fleet.iter().take_while(|segment| is_due(segment)).map(|segment| Arc::clone(segment)).collect()
    }

    /// Merges one group of small segments, or rewrites one that holds many points of purged runs.
    fn merge_small(&self) -> Result<(), AppendError> {
        let inputs = self.half_purged().unwrap_or_else(|| mergeable(&self.read_state()));
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
        let mut change = naming(&merged);
        change.segments.extend(dropping(&inputs).segments);
        self.swap_in(epoch, &change, &merged, |state| forget(state, &inputs))?;
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
            series.retain(|id| state.series.contains_key(id));
        }
        let mut writer = SegmentWriter::create(&self.dir, id, class)?;
        for series in series {
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
}

/// A series whose points in memory are being sealed.
struct Job {
    series: SeriesId,
    class: Class,
    chunks: Vec<Arc<MemoryChunk>>,
}

fn freeze(state: &mut State) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (id, series) in &mut state.series {
        let class = series.class();
        let chunks = series.head.freeze();
        if !chunks.is_empty() {
            jobs.push(Job { series: *id, class, chunks });
        }
    }
    state.head_series = 0;
    jobs.sort_by_key(|job| job.series);
    jobs
}

fn naming(segments: &[Arc<Segment>]) -> Change {
    let rows = segments.iter().map(|segment| (segment.id, Some(segment.manifest().encode())));
    Change { segments: rows.collect(), ..Change::default() }
}

fn dropping(segments: &[Arc<Segment>]) -> Change {
    Change { segments: segments.iter().map(|segment| (segment.id, None)).collect(), ..Change::default() }
}

fn forget(state: &mut State, gone: &[Arc<Segment>]) {
    state.segments.retain(|segment| gone.iter().all(|gone| gone.id != segment.id));
}

/// A seal in progress: one file per class, and per day for series that are dropped by age.
struct Sealing<'a> {
    inner: &'a Inner,
    now_ns: i64,
    next_id: u64,
    writers: BTreeMap<(Class, i64), SegmentWriter>,
}

impl Sealing<'_> {
    fn write(&mut self, jobs: &[Job]) -> io::Result<Vec<Arc<Segment>>> {
        for job in jobs {
            let mut samples = Vec::new();
            for chunk in &job.chunks {
                match chunk.samples() {
                    Some(some) => samples.extend(some),
                    None => return Err(io::Error::other("a chunk in memory is damaged")),
                }
            }
            chunk::settle(&mut samples);
            let now_ns = self.now_ns;
            let partition_of = |sample: &Sample| partition(job.class, sample.time_ns, now_ns);
            for part in samples.chunk_by(|a, b| partition_of(a) == partition_of(b)) {
                self.writer((job.class, partition_of(&part[0])))?.push(job.series, part)?;
            }
        }
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for writer in std::mem::take(&mut self.writers).into_values() {
            match writer.finish(&|ids| self.inner.names(ids)) {
                Ok(segment) => segments.push(Arc::new(segment)),
                Err(error) => {
                    remove_files(segments.iter().map(|segment| &segment.path));
                    return Err(error);
                }
            }
        }
        Ok(segments)
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

/// Which file a point belongs into. Points of runs go when their run goes, so a day would only
/// scatter an old spool over as many files as it has days.
fn partition(class: Class, time_ns: i64, now_ns: i64) -> i64 {
    let today = now_ns.div_euclid(DAY_NS);
    match class {
        Class::Run => 0,
        Class::Fleet => time_ns.div_euclid(DAY_NS).clamp(today - PARTITIONS_BACK, today + 1),
    }
}

/// Segments that should become one: several of about one size, and the smaller ones between them,
/// so that no point gets younger than one that replaced it. In order of age.
fn mergeable(state: &State) -> Vec<Arc<Segment>> {
    let mut groups: BTreeMap<(Class, i64), Vec<&Arc<Segment>>> = BTreeMap::new();
    for segment in &state.segments {
        let day = if segment.class == Class::Run { 0 } else { segment.time_ns.1.div_euclid(DAY_NS) };
        groups.entry((segment.class, day)).or_default().push(segment);
    }
    groups.values().find_map(|group| neighbours(group)).unwrap_or_default()
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
            let points = row.iter().map(|segment| segment.points).sum::<u64>();
            (points <= MERGED_POINTS_MAX).then(|| row.iter().map(|segment| Arc::clone(segment)).collect())
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
                    match segment.chunk(series, &entry) {
                        Ok(chunk) if self.result.is_ok() => {
                            self.result = self.writer.push_chunk(series, &entry.summary, &chunk);
                        }
                        Ok(_) => {}
                        Err(why) => *unreadable = Some(why),
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
