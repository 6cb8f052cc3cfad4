//! Blocks in memory become files, files that are too old go, and purged runs leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use model::{LogRecord, RecordAsk, RunId, Span, SpanAsk};

use super::block::Kind;
use super::file::{Ending, FileWriter, SealedFile};
use super::filter::Filter;
use super::read::{Row, Sources, Unit, sweep};
use super::{BLOCK_BYTES_MAX, ROWS_MAX, record_bytes, records, span_bytes, spans};
use crate::batch::{AppendError, Options};
use crate::catalogue::Change;
use crate::column::Effort;
use crate::record;
use crate::rollup::{day_end, day_of};
use crate::store::{Inner, remove_files};

/// Bytes of blocks in memory from which they are sealed, however few rows they are.
const SEAL_BYTES: u64 = 64 << 20;
/// Days that one seal keeps apart; older rows share the last of them.
const DAYS_BACK: i64 = 31;
/// Files of a day that are worth merging.
const MERGED_FILES_MIN: usize = 8;
/// Most rows of a merged file; one of half as many is not merged again.
const MERGED_ROWS_MAX: u64 = 4 << 20;
/// Numbers that a seal reserves: one for each day and kind.
const FILES_RESERVED: u64 = 2 * (DAYS_BACK as u64 + 2);

impl Options {
    fn telemetry_retention_ns(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Spans => self.span_retention_ns,
            Kind::Records => self.record_retention_ns,
        }
    }
}

impl Inner {
    /// Does what is due. The caller holds maintenance; `since_ns` is what it remembers from call to call.
    pub(crate) fn maintain_telemetry(
        &self,
        since_ns: &mut Option<i64>,
        now_ns: i64,
    ) -> Result<(), AppendError> {
        let (rows, bytes, is_frozen) = {
            let telemetry = &self.read_state().telemetry;
            (telemetry.current.rows, telemetry.current.bytes, telemetry.frozen.is_some())
        };
        if rows == 0 && !is_frozen {
            *since_ns = None;
        } else {
            let since = *since_ns.get_or_insert(now_ns);
            let old = now_ns.saturating_sub(since) >= self.options.seal_age_ns;
            if rows >= self.options.seal_spans || bytes >= SEAL_BYTES || old || is_frozen {
                self.seal_telemetry(now_ns)?;
                *since_ns = None;
            }
        }
        self.expire_telemetry(now_ns)?;
        self.leave_purged()?;
        self.merge_telemetry()
    }

    /// Writes what is in memory into files. The caller holds maintenance.
    pub(crate) fn seal_telemetry(&self, now_ns: i64) -> Result<(), AppendError> {
        let (sources, earlier, before, epoch, first_id) = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer)?;
            let mut state = self.write_state();
            let telemetry = &mut state.telemetry;
            if telemetry.frozen.is_none() {
                telemetry.frozen = Some(std::mem::take(&mut telemetry.current));
            }
            let Some(frozen) = &telemetry.frozen else { return Ok(()) };
            let Some(last) = frozen.blocks.last() else {
                telemetry.frozen = None;
                return Ok(());
            };
            let before = last.number + 1;
            let sources = Sources::of_generation(frozen);
            let first_id = writer.counters.segment;
            writer.counters.segment += FILES_RESERVED;
            (sources, telemetry.files.clone(), before, writer.epoch, first_id)
        };
        let day = Days::Around(day_of(now_ns));
        let sealing = Sealing { inner: self, sources, day, next_id: first_id, writers: BTreeMap::new() };
        let files = sealing.write(&earlier).map_err(|error| self.telemetry_error(&error))?;
        let rows = files.iter().map(|file| (file.id, Some(file.manifest.encode())));
        let change =
            Change { telemetry_files: rows.collect(), telemetry_before: Some(before), ..Change::default() };
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        self.swap_in_files(epoch, &change, &paths, |state| {
            state.telemetry.frozen = None;
            state.telemetry.files.extend(files.into_iter().map(Arc::new));
            state.telemetry.files.sort_by_key(|file| file.manifest.age);
        })
    }

    fn telemetry_error(&self, error: &io::Error) -> AppendError {
        let folder = super::file::folder_of(&self.dir);
        AppendError::failed(format!("writing spans in `{}`: {error}", folder.display()))
    }

    /// Makes one file of many small ones of a day. What something else replaces is left behind.
    fn merge_telemetry(&self) -> Result<(), AppendError> {
        let Some(group) = small_files(&self.read_state().telemetry.files) else { return Ok(()) };
        let (epoch, id) = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer)?;
            writer.counters.segment += 1;
            (writer.epoch, writer.counters.segment - 1)
        };
        let merged = match self.merged(&group, id) {
            Ok(merged) => merged.map(Arc::new),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.report_damage(error.to_string());
                let mut state = self.write_state();
                for file in &group {
                    let mut left = (**file).clone();
                    left.is_damaged = true;
                    state.telemetry.replace(file, Arc::new(left));
                }
                return Ok(());
            }
            Err(error) => return Err(self.telemetry_error(&error)),
        };
        let gone = group.iter().map(|file| (file.id, None));
        let new = merged.iter().map(|file| (file.id, Some(file.manifest.encode())));
        let change = Change { telemetry_files: gone.chain(new).collect(), ..Change::default() };
        let paths: Vec<PathBuf> = merged.iter().map(|file| file.path.clone()).collect();
        self.swap_in_files(epoch, &change, &paths, |state| {
            let files = &mut state.telemetry.files;
            files.retain(|file| group.iter().all(|old| old.id != file.id));
            files.extend(merged);
            files.sort_by_key(|file| file.manifest.age);
        })?;
        remove_files(group.iter().map(|file| &file.path));
        Ok(())
    }

    /// One file with the rows of `group` that count; none when there are no such rows.
    fn merged(&self, group: &[Arc<SealedFile>], id: u64) -> io::Result<Option<SealedFile>> {
        let sources = Sources::of_files(&self.read_state().telemetry, group);
        let day = Days::Only(group.first().map_or(0, |file| file.manifest.day));
        let mut sealing = Sealing { inner: self, sources, day, next_id: id, writers: BTreeMap::new() };
        sealing.fill()?;
        let Some((_, mut writer)) = sealing.writers.pop_first() else { return Ok(None) };
        // A key that was left behind would hide the one that replaced it.
        writer.keys.sort_unstable();
        let replaced = group.iter().flat_map(|file| file.replaced()).copied();
        let replaces = replaced.filter(|key| writer.keys.binary_search(key).is_ok()).collect();
        let age = group.iter().map(|file| file.manifest.age).max().unwrap_or(id);
        end(self, writer, replaces, age).map(Some)
    }

    /// Drops files whose day is too long ago.
    fn expire_telemetry(&self, now_ns: i64) -> Result<(), AppendError> {
        let is_old = |file: &&Arc<SealedFile>| {
            let kept_ns = self.options.telemetry_retention_ns(file.manifest.kind);
            day_end(file.manifest.day) < now_ns.saturating_sub(kept_ns)
        };
        let old: Vec<_> = self.read_state().telemetry.files.iter().filter(is_old).cloned().collect();
        if old.is_empty() {
            return Ok(());
        }
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let rows = old.iter().map(|file| (file.id, None));
        let (change, counters) =
            (Change { telemetry_files: rows.collect(), ..Change::default() }, writer.counters);
        self.commit(&mut writer, &change, counters, |state| {
            state.telemetry.files.retain(|file| old.iter().all(|old| old.id != file.id));
        })?;
        remove_files(old.iter().map(|file| &file.path));
        Ok(())
    }

    /// Writes files anew without what is of purged runs. A file that is damaged stays as it is.
    fn leave_purged(&self) -> Result<(), AppendError> {
        let is_due = |file: &&Arc<SealedFile>| !file.manifest.gone.is_empty() && !file.is_damaged;
        let due: Vec<_> = self.read_state().telemetry.files.iter().filter(is_due).cloned().collect();
        for old in due {
            let (epoch, id) = {
                let mut writer = self.lock_writer();
                self.make_ready(&mut writer)?;
                writer.counters.segment += 1;
                (writer.epoch, writer.counters.segment - 1)
            };
            let new = match old.copy_living(&self.dir, id) {
                Ok(new) => Arc::new(new),
                Err(why) => {
                    self.report_damage(why);
                    let mut left = (*old).clone();
                    left.is_damaged = true;
                    self.write_state().telemetry.replace(&old, Arc::new(left));
                    continue;
                }
            };
            let rows = vec![(old.id, None), (new.id, Some(new.manifest.encode()))];
            let change = Change { telemetry_files: rows, ..Change::default() };
            self.swap_in_files(epoch, &change, std::slice::from_ref(&new.path), |state| {
                state.telemetry.replace(&old, new.clone());
            })?;
            remove_files(std::iter::once(&old.path));
        }
        Ok(())
    }
}

/// Small files of one kind and day that are worth merging, if there are any.
fn small_files(files: &[Arc<SealedFile>]) -> Option<Vec<Arc<SealedFile>>> {
    let mut by_day: BTreeMap<(Kind, i64), Vec<Arc<SealedFile>>> = BTreeMap::new();
    let is_small = |file: &&Arc<SealedFile>| {
        let manifest = &file.manifest;
        manifest.rows <= MERGED_ROWS_MAX / 2 && manifest.gone.is_empty() && !file.is_damaged
    };
    for file in files.iter().filter(is_small) {
        by_day.entry((file.manifest.kind, file.manifest.day)).or_default().push(file.clone());
    }
    let mut group = by_day.into_values().find(|of_day| of_day.len() >= MERGED_FILES_MIN)?;
    group.sort_by_key(|file| file.manifest.rows);
    let mut rows = 0;
    group.retain(|file| {
        rows += file.manifest.rows;
        rows <= MERGED_ROWS_MAX
    });
    // Of records of one time the earlier come first.
    group.sort_by_key(|file| file.manifest.age);
    Some(group)
}

/// Which day's file a row goes into.
#[derive(Debug, Clone, Copy)]
enum Days {
    /// That of its start, not too far from today.
    Around(i64),
    /// This one.
    Only(i64),
}

impl Days {
    fn of(self, start_ns: i64) -> i64 {
        match self {
            Self::Around(today) => day_of(start_ns).clamp(today - DAYS_BACK, today + 1),
            Self::Only(day) => day,
        }
    }
}

/// A seal or merge in progress: a file for each kind and day.
struct Sealing<'a> {
    inner: &'a Inner,
    sources: Sources,
    day: Days,
    next_id: u64,
    writers: BTreeMap<(Kind, i64), FileWriter>,
}

/// Rows of one run that are not in a block yet, by day.
type Parts<R> = BTreeMap<i64, (Vec<R>, usize)>;

impl Sealing<'_> {
    /// Writes all rows into files that are not finished.
    fn fill(&mut self) -> io::Result<()> {
        let summaries = || self.sources.units.iter().map(Unit::summary);
        let runs: BTreeSet<(Kind, Option<RunId>)> = summaries().map(|s| (s.kind, s.run)).collect();
        for (kind, run) in runs {
            let is_of = |unit: &&Unit| (unit.summary().kind, unit.summary().run) == (kind, run);
            let units: Vec<Unit> = self.sources.units.iter().filter(is_of).cloned().collect();
            match kind {
                Kind::Spans => self.spans(run, &units)?,
                Kind::Records => self.records(run, &units)?,
            }
        }
        Ok(())
    }

    fn write(mut self, earlier: &[Arc<SealedFile>]) -> io::Result<Vec<SealedFile>> {
        self.fill()?;
        let mut files: Vec<SealedFile> = Vec::new();
        for writer in std::mem::take(&mut self.writers).into_values() {
            match finish(self.inner, writer, earlier) {
                Ok(file) => files.push(file),
                Err(error) => {
                    remove_files(files.iter().map(|file| &file.path));
                    return Err(error);
                }
            }
        }
        Ok(files)
    }

    fn spans(&mut self, run: Option<RunId>, units: &[Unit]) -> io::Result<()> {
        let keys = self.sources.clone();
        let everything = SpanAsk::default();
        let decode = |unit: &Unit| keys.decode_spans(unit, &everything);
        let encode = |rows: &[(u64, Span)]| {
            let rows: Vec<_> = rows.iter().map(|(key, span)| (*key, span)).collect();
            spans::encode(run, &rows, Effort::Usual)
        };
        self.rows(Kind::Spans, units, &decode, &|(_, span)| span_bytes(span), &encode)
    }

    fn records(&mut self, run: Option<RunId>, units: &[Unit]) -> io::Result<()> {
        let everything = RecordAsk::default();
        let decode = |unit: &Unit| super::read::decode_records(unit, &everything);
        let encode =
            |rows: &[LogRecord]| records::encode(run, &rows.iter().collect::<Vec<_>>(), Effort::Usual);
        self.rows(Kind::Records, units, &decode, &record_bytes, &encode)
    }

    fn rows<R: Row>(
        &mut self,
        kind: Kind,
        units: &[Unit],
        decode: &dyn Fn(&Unit) -> Result<Vec<R>, String>,
        bytes: &dyn Fn(&R) -> usize,
        encode: &dyn Fn(&[R]) -> super::Block,
    ) -> io::Result<()> {
        let mut parts: Parts<R> = BTreeMap::new();
        let mut outcome = Ok(());
        let days = self.day;
        let broken = std::cell::RefCell::new(None);
        let note = |why: String| {
            *broken.borrow_mut() = Some(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        sweep(units, decode, &note, &mut |row| {
            let day = days.of(row.start_ns());
            let (rows, size) = parts.entry(day).or_default();
            *size += bytes(&row);
            rows.push(row);
            if rows.len() < ROWS_MAX && *size < BLOCK_BYTES_MAX * 4 {
                return std::ops::ControlFlow::Continue(());
            }
            let block = encode(rows);
            rows.clear();
            *size = 0;
            outcome = push(&mut self.writers, &mut self.next_id, self.inner, (kind, day), block);
            if outcome.is_err() {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        });
        // What is not written must stay where it is.
        broken.into_inner().map_or(outcome, Err)?;
        for (day, (rows, _)) in parts.into_iter().filter(|(_, (rows, _))| !rows.is_empty()) {
            push(&mut self.writers, &mut self.next_id, self.inner, (kind, day), encode(&rows))?;
        }
        Ok(())
    }
}

fn push(
    writers: &mut BTreeMap<(Kind, i64), FileWriter>,
    next_id: &mut u64,
    inner: &Inner,
    key: (Kind, i64),
    block: super::Block,
) -> io::Result<()> {
    use std::collections::btree_map::Entry;

    let writer = match writers.entry(key) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let writer = FileWriter::create(&inner.dir, *next_id, key.0, key.1)?;
            *next_id += 1;
            entry.insert(writer)
        }
    };
    writer.push(block)
}

/// Ends a file, with what it replaces in `earlier` ones.
fn finish(inner: &Inner, writer: FileWriter, earlier: &[Arc<SealedFile>]) -> io::Result<SealedFile> {
    let runs = writer.runs();
    let mut replaces = Vec::new();
    for file in earlier.iter().filter(|file| file.manifest.kind == Kind::Spans && !writer.keys.is_empty()) {
        if !file.living().any(|(_, entry)| runs.contains(&entry.summary.run)) {
            continue;
        }
        match file.filter() {
            Ok(Some(filter)) => replaces.extend(writer.keys.iter().filter(|key| filter.may_have(**key))),
            Ok(None) => {}
            Err(why) => inner.report_damage(why),
        }
    }
    let age = writer.id();
    end(inner, writer, replaces, age)
}

fn end(inner: &Inner, writer: FileWriter, replaces: Vec<u64>, age: u64) -> io::Result<SealedFile> {
    let runs = {
        let state = inner.read_state();
        let runs = writer.runs();
        let known = runs.iter().flatten().filter_map(|run| state.runs.get(run));
        known.map(|run| record::encode_run(run)).collect()
    };
    let filter = Filter::of(&writer.keys);
    writer.finish(Ending { filter: filter.bytes(), replaces, runs, age })
}
