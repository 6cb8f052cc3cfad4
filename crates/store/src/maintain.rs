//! What is done now and then, and the first of it: sealing memory into segments.
//!
//! Each step writes its files first, without holding the writer, and then swaps them in with one
//! transaction. A crash in between leaves files that the manifest does not name; they go at open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use model::{RunId, Sample};

use crate::SeriesId;
use crate::batch::AppendError;
use crate::catalogue::Change;
use crate::chunk;
use crate::head::MemoryChunk;

use crate::record;
use crate::rollup::day_of;
use crate::segment::{Class, Names, Segment, SegmentWriter};
use crate::series::State;
use crate::store::{Inner, remove_files};

/// Points per series from which chunks are long enough to be worth sealing.
const POINTS_PER_SERIES: u64 = 256;
/// Points in memory at which it is sealed however short the chunks are.
const HEAD_POINTS_MAX: u64 = 32 << 20;
/// Days that one seal keeps apart; older points share the last of them.
const PARTITIONS_BACK: i64 = 31;
/// Numbers that a seal or a merge reserves: one per partition and class.
const SEGMENTS_RESERVED: u64 = 40;

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
        self.maintain_telemetry(&mut maintenance.telemetry_since_ns, now_ns)?;
        self.expire(now_ns)?;
        self.expire_events(now_ns)?;
        if self.roll(now_ns)? {
            // Files are merged when what they hold is in roll-ups, so that it is rolled up once.
            return Ok(());
        }
        self.merge_small(now_ns)
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
        let change = Change { rows_before: Some(rows_before), ..Self::naming(&segments) };
        self.swap_in(epoch, &change, &segments, |state| {
            for job in &jobs {
                if let Some(series) = state.series.get_mut(job.series) {
                    let gone = series.head.forget(job.chunks.len());
                    state.head_points -= gone;
                }
            }
        })
    }

    /// What a segment of these series says of itself.
    pub(crate) fn names(&self, ids: &[SeriesId]) -> Names {
        let state = self.read_state();
        let known = || ids.iter().filter_map(|id| Some((*id, state.series.get(*id)?)));
        let runs: BTreeSet<RunId> = known().filter_map(|(_, series)| series.run).collect();
        let runs = runs.iter().filter_map(|run| state.runs.get(run));
        Names {
            series: known().map(|(id, series)| (id, series.identity.clone())).collect(),
            runs: runs.map(|run| record::encode_run(run)).collect(),
        }
    }

    /// The change of the manifest that names `segments`.
    pub(crate) fn naming(segments: &[Arc<Segment>]) -> Change {
        let rows = segments.iter().map(|segment| (segment.id, Some(segment.manifest().encode())));
        Change { segments: rows.collect(), ..Change::default() }
    }

    /// Finishes the files of `writers`: all of them, or none is left.
    pub(crate) fn finish_all(
        &self,
        writers: impl IntoIterator<Item = SegmentWriter>,
    ) -> io::Result<Vec<Arc<Segment>>> {
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for writer in writers {
            match writer.finish(&|ids| self.names(ids)) {
                Ok(segment) => segments.push(Arc::new(segment)),
                Err(error) => {
                    remove_files(segments.iter().map(|segment| &segment.path));
                    return Err(error);
                }
            }
        }
        Ok(segments)
    }

    pub(crate) fn segment_error(&self, error: &io::Error) -> AppendError {
        AppendError::failed(format!(
            "writing a segment in `{}`: {error}",
            self.dir.join("segments").display()
        ))
    }

    /// Commits `change`, which names `segments`, and shows them. They are removed when it failed.
    pub(crate) fn swap_in(
        &self,
        epoch: u64,
        change: &Change,
        segments: &[Arc<Segment>],
        apply: impl FnOnce(&mut State),
    ) -> Result<(), AppendError> {
        let paths: Vec<PathBuf> = segments.iter().map(|segment| segment.path.clone()).collect();
        self.swap_in_files(epoch, change, &paths, |state| {
            apply(state);
            state.segments.extend(segments.iter().cloned());
            state.segments.sort_by_key(|segment| segment.age);
        })
    }

    /// Commits `change`, which names the files at `paths`. They are removed when it failed.
    pub(crate) fn swap_in_files(
        &self,
        epoch: u64,
        change: &Change,
        paths: &[PathBuf],
        apply: impl FnOnce(&mut State),
    ) -> Result<(), AppendError> {
        let mut writer = self.lock_writer();
        let ready = self.make_ready(&mut writer);
        if ready.is_err() || writer.epoch != epoch {
            remove_files(paths.iter());
            return ready;
        }
        let counters = writer.counters;
        let committed = self.commit(&mut writer, change, counters, apply);
        if committed.is_err() {
            if Self::is_known(&writer) {
                remove_files(paths.iter());
            } else {
                writer.orphans.extend(paths.iter().cloned());
            }
        }
        committed
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
    for (id, series) in state.series.iter_mut() {
        let class = series.class();
        let chunks = series.head.freeze();
        if !chunks.is_empty() {
            jobs.push(Job { series: id, class, chunks });
        }
    }
    state.head_series = 0;
    jobs.sort_by_key(|job| job.series);
    jobs
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
        self.inner.finish_all(std::mem::take(&mut self.writers).into_values())
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
    let today = day_of(now_ns);
    match class {
        Class::Run => 0,
        _ => day_of(time_ns).clamp(today - PARTITIONS_BACK, today + 1),
    }
}
