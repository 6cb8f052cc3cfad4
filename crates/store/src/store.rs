//! The store's inside: memory, the one who writes, and how the two stay in step.
//!
//! Locks are taken in this order: maintenance, writer, state. The state is read by everyone and
//! written only by the one who holds the writer, after a commit succeeded.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use model::{RunId, RunRecord, Sample};

use crate::batch::{AppendError, OpenError, Options, Packed, Receipt};
use crate::catalogue::{self, Catalogue, CatalogueError, Change, Contents, Counters, Snapshot};
use crate::chunk::{Chunk, Summary};
use crate::committer::Queue;
use crate::lock::DirectoryLock;
use crate::metadata::MetricMetadata;
use crate::read::{Block, MergedChunk, Part, Piece, ReadError, Sources, WholeChunk, sweep};
use crate::record::{self, Sequences};
use crate::segment::{Class, Manifest, Segment};
use crate::series::State;
use crate::staging::{Staging, put_run};
use crate::telemetry::Kind;
use crate::telemetry::file::SealedFile;
use crate::tokens::TokenRecord;
use crate::{SeriesId, StateRow, Status, head, log, rescue, telemetry};

/// Most places of damage that are remembered.
const DAMAGE_MAX: usize = 100;

/// Everything that clones of a store share.
pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) queue: Queue,
    state: RwLock<State>,
    writer: Mutex<Writer>,
    pub(crate) maintenance: Mutex<Maintenance>,
    damage: Mutex<Vec<String>>,
    refusing: Mutex<Option<String>>,
    commits: AtomicU64,
    lock: DirectoryLock,
}

/// The right to write.
pub(crate) struct Writer {
    /// Dropped when the database failed, and opened again before the next use: a database that saw
    /// a full disk once answers nothing any more.
    catalogue: Option<Catalogue>,
    /// As of the last transaction that memory knows; `segment` may be ahead.
    pub(crate) counters: Counters,
    /// Grows when memory was rebuilt from disk: what was taken from it before is void.
    pub(crate) epoch: u64,
    /// A transaction is durable and memory does not show it yet.
    unapplied: bool,
    /// Segments of a transaction that may or may not have been made.
    pub(crate) orphans: Vec<PathBuf>,
    closed: bool,
}

/// What sealing and compaction remember from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Since when the head has had points.
    pub(crate) head_since_ns: Option<i64>,
    /// Since when there have been spans or log records in memory.
    pub(crate) telemetry_since_ns: Option<i64>,
}

impl Writer {
    /// The catalogue as of the last transaction.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, CatalogueError> {
        let closed = || CatalogueError { reason: "it is not open".into(), full: false, damaged: false };
        self.catalogue.as_ref().ok_or_else(closed)?.snapshot()
    }
}

impl Inner {
    /// Opens or makes the store in `dir`.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let unusable = |reason: String| OpenError::Unusable { dir: dir.to_owned(), reason };
        for folder in [dir.join("segments"), telemetry::file::folder_of(dir)] {
            fs::create_dir_all(folder).map_err(|error| unusable(error.to_string()))?;
        }
        let lock = DirectoryLock::take(dir)?;
        let mut damage = Vec::new();
        let catalogue = rescue::open_catalogue(dir, &catalogue_path(dir), &mut damage).map_err(|error| {
            unusable(format!("{error}; its catalogue is `{}`", catalogue_path(dir).display()))
        })?;
        let (state, counters) = load(dir, &catalogue, &mut |why| damage.push(why))
            .map_err(|error| unusable(error.to_string()))?;
        // The names of the catalogue and of the folder must be as durable as what is in them.
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| unusable(error.to_string()))?;
        let writer = Writer {
            catalogue: Some(catalogue),
            counters,
            epoch: 0,
            unapplied: false,
            orphans: Vec::new(),
            closed: false,
        };
        let inner = Self {
            dir: dir.to_owned(),
            options,
            queue: Queue::default(),
            state: RwLock::new(state),
            writer: Mutex::new(writer),
            maintenance: Mutex::default(),
            damage: Mutex::default(),
            refusing: Mutex::default(),
            commits: AtomicU64::new(0),
            lock,
        };
        for why in damage {
            inner.report_damage(why);
        }
        Ok(inner)
    }

    pub(crate) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a place of damage, once.
    pub(crate) fn report_damage(&self, why: String) {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        if damage.len() < DAMAGE_MAX && !damage.contains(&why) {
            tracing::error!(error = %why, "the store is damaged; what is readable is served");
            damage.push(why);
        }
    }

    /// Makes sure that the catalogue is open and that memory shows what it holds.
    pub(crate) fn make_ready(&self, writer: &mut Writer) -> Result<(), AppendError> {
        if writer.closed {
            return Err(AppendError::failed("it is closed"));
        }
        if let (Some(_), false) = (&writer.catalogue, writer.unapplied) {
            return Ok(());
        }
        let failed = |error: CatalogueError| self.append_error(&error);
        let catalogue = match writer.catalogue.take() {
            Some(catalogue) => catalogue,
            None => Catalogue::open(&catalogue_path(&self.dir), false).map_err(failed)?,
        };
        let on_disk = catalogue.counters().map_err(failed)?;
        if on_disk.commit == writer.counters.commit && !writer.unapplied {
            remove_files(std::mem::take(&mut writer.orphans).iter());
        } else {
            let (state, counters) =
                load(&self.dir, &catalogue, &mut |why| self.report_damage(why)).map_err(failed)?;
            *self.write_state() = state;
            writer.counters = counters;
            writer.epoch += 1;
            writer.unapplied = false;
            writer.orphans.clear();
        }
        writer.catalogue = Some(catalogue);
        Ok(())
    }

    /// Makes `change` durable, then lets `apply` show it in memory. The writer must be ready.
    pub(crate) fn commit(
        &self,
        writer: &mut Writer,
        change: &Change,
        mut counters: Counters,
        apply: impl FnOnce(&mut State),
    ) -> Result<(), AppendError> {
        counters.commit = writer.counters.commit + 1;
        let Some(catalogue) = &writer.catalogue else { return Err(AppendError::failed("it is not open")) };
        if let Err(error) = catalogue.commit(change, counters) {
            tracing::warn!(%error, dir = %self.dir.display(), "cannot commit; the catalogue is opened again");
            writer.catalogue = None;
            let again = Catalogue::open(&catalogue_path(&self.dir), false);
            let landed = again.as_ref().is_ok_and(|c| c.counters().is_ok_and(|on_disk| on_disk == counters));
            writer.catalogue = again.ok();
            if !landed {
                return Err(self.append_error(&error));
            }
        }
        writer.counters = counters;
        writer.unapplied = true;
        apply(&mut self.write_state());
        writer.unapplied = false;
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a failed [`Inner::commit`] is known not to have been made.
    pub(crate) fn is_known(writer: &Writer) -> bool {
        writer.catalogue.is_some()
    }

    fn append_error(&self, error: &CatalogueError) -> AppendError {
        if error.full { self.full() } else { AppendError::failed(error.reason.clone()) }
    }

    fn full(&self) -> AppendError {
        let (dir, reserve) = (self.dir.clone(), self.options.reserve_bytes);
        AppendError::Full { dir, free: self.free_bytes(), reserve }
    }

    fn free_bytes(&self) -> u64 {
        match rustix::fs::statvfs(&self.dir) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
            // Unknown is not full: the write itself will tell.
            Err(_) => u64::MAX,
        }
    }

    /// An error once the directory was moved, removed or replaced: what is written to open files then
    /// is gone with them.
    fn check_place(&self) -> Result<(), AppendError> {
        if self.lock.is_of(&self.dir) && catalogue_path(&self.dir).exists() {
            return Ok(());
        }
        let dir = self.dir.display();
        let reason = format!("`{dir}` was moved or removed under it: put it back, or start the server again");
        Err(AppendError::Failed { reason })
    }

    /// Decides, commits and shows a group of batches; one answer each, in order.
    pub(crate) fn commit_group(&self, batches: Vec<Packed>) -> Vec<Result<Receipt, AppendError>> {
        let count = batches.len();
        let answers = self.try_commit_group(batches);
        let refusing = answers.as_ref().err().map(ToString::to_string);
        let mut remembered = self.refusing.lock().unwrap_or_else(PoisonError::into_inner);
        if refusing.is_some() != remembered.is_some() {
            if let Some(error) = &refusing {
                tracing::warn!(%error, "writes are refused");
            } else {
                tracing::info!("writes are accepted again");
            }
        }
        *remembered = refusing;
        answers.unwrap_or_else(|error| vec![Err(error); count])
    }

    fn try_commit_group(
        &self,
        batches: Vec<Packed>,
    ) -> Result<Vec<Result<Receipt, AppendError>>, AppendError> {
        let bytes: usize = batches.iter().map(Packed::bytes).sum();
        if self.free_bytes() < self.options.reserve_bytes.saturating_add(bytes as u64) {
            return Err(self.full());
        }
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        self.check_place()?;
        let damage = |why| self.report_damage(why);
        let (answers, (change, counters, decided)) = {
            let state = self.read_state();
            let mut staging = Staging::new(&state, &self.options, writer.counters, &damage);
            let answers = batches.into_iter().map(|batch| staging.take(batch)).collect();
            (answers, staging.finish())
        };
        if !change.is_empty() {
            self.commit(&mut writer, &change, counters, |state| decided.apply(state))?;
        }
        Ok(answers)
    }

    /// A run, unless it is deleted.
    pub(crate) fn run(&self, id: RunId) -> Option<Arc<RunRecord>> {
        self.read_state().runs.get(&id).filter(|run| run.deleted_ns.is_none()).cloned()
    }

    /// Sets or clears the time of a run's deletion; `false` when there is nothing to do.
    pub(crate) fn set_deleted(&self, id: RunId, deleted_ns: Option<i64>) -> Result<bool, AppendError> {
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let Some(was) = self.read_state().runs.get(&id).cloned() else { return Ok(false) };
        if was.deleted_ns.is_some() == deleted_ns.is_some() {
            return Ok(false);
        }
        let mut is = (*was).clone();
        is.deleted_ns = deleted_ns;
        let mut change = Change::default();
        put_run(&mut change, id, Some(&was), &is);
        let counters = writer.counters;
        self.commit(&mut writer, &change, counters, |state| _ = state.runs.insert(id, Arc::new(is)))?;
        Ok(true)
    }

    /// See [`crate::Store::put_tokens`].
    pub(crate) fn put_tokens(&self, tokens: &[TokenRecord]) -> Result<(), AppendError> {
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let rows = tokens.iter().map(|token| (token.id, Some(token.encode()))).collect();
        let (change, counters) = (Change { tokens: rows, ..Change::default() }, writer.counters);
        self.commit(&mut writer, &change, counters, |state| {
            state.tokens.extend(tokens.iter().map(|token| (token.id, Arc::new(token.clone()))));
        })
    }

    /// See [`crate::Store::forget_token`].
    pub(crate) fn forget_token(&self, id: [u8; 6]) -> Result<(), AppendError> {
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let (change, counters) = (Change { tokens: vec![(id, None)], ..Change::default() }, writer.counters);
        self.commit(&mut writer, &change, counters, |state| _ = state.tokens.remove(&id))
    }

    /// Removes for good the runs that were deleted before `before_ns`.
    pub(crate) fn purge_deleted(&self, before_ns: i64) -> Result<usize, AppendError> {
        // Keeps a seal or a compaction from bringing back what goes.
        let _maintenance = self.lock_maintenance();
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let mut change = Change::default();
        let mut ids = Vec::new();
        let mut dead = Vec::new();
        let (dead_files, left_files) = {
            let state = self.read_state();
            let mut gone = HashSet::new();
            for (id, run) in &state.runs {
                if run.deleted_ns.is_none_or(|deleted_ns| deleted_ns >= before_ns) {
                    continue;
                }
                ids.push(*id);
                change.runs.push((*id, None));
                change
                    .sessions
                    .extend((0..run.sessions.len()).map(|at| (record::session_key(*id, at), None)));
                change.writers.extend(record::writers_of(run).map(|writer| (writer, None)));
                gone.extend(state.by_run.get(id).into_iter().flatten().copied());
            }
            change.series.extend(gone.iter().map(|series| (*series, None)));
            let alive = |id: SeriesId| state.series.contains_key(id) && !gone.contains(&id);
            let is_dead = |segment: &&Arc<Segment>| !segment.listed().iter().any(|l| alive(l.series));
            dead.extend(state.segments.iter().filter(is_dead).cloned());
            let rows = state.telemetry.rows_of(|run| ids.contains(&run));
            change.telemetry.extend(rows.into_iter().map(|row| (row, None)));
            let exemplars = state.exemplars.numbers_of(|series| gone.contains(&series));
            change.exemplars.extend(exemplars.into_iter().map(|number| (number, None)));
            state.telemetry.without_runs(|run| ids.contains(&run))
        };
        if ids.is_empty() {
            return Ok(0);
        }
        change.segments.extend(dead.iter().map(|segment| (segment.id, None)));
        change.telemetry_files.extend(dead_files.iter().map(|file| (file.id, None)));
        change.telemetry_files.extend(left_files.iter().map(|file| (file.id, Some(file.manifest.encode()))));
        let counters = writer.counters;
        self.commit(&mut writer, &change, counters, |state| {
            for id in &ids {
                state.forget_run(*id);
            }
            state.telemetry.forget_runs(|run| ids.contains(&run));
            state.telemetry.take_files(&dead_files, &left_files);
            state.forget_segments(&dead);
        })?;
        remove_files(dead.iter().map(|segment| &segment.path));
        remove_files(dead_files.iter().map(|file| &file.path));
        Ok(ids.len())
    }

    /// See [`crate::Store::read`].
    pub(crate) fn read(
        &self,
        series: SeriesId,
        range: (i64, i64),
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let unknown =
            || ReadError { what: format!("series {series}"), reason: "there is no such series".to_owned() };
        let pieces = self.pieces(series, range).ok_or_else(unknown)?;
        let damage = |why| self.report_damage(why);
        _ = sweep(pieces, &mut |why| damage(why), &mut |part| match part {
            Part::Whole(piece) => match WholeChunk::load(series, piece) {
                Ok(chunk) => visit(&chunk),
                Err(why) => {
                    damage(why);
                    ControlFlow::Continue(())
                }
            },
            Part::Merged(samples) => visit(&MergedChunk { summary: Summary::of(&samples), samples }),
        });
        Ok(())
    }

    /// The chunks of a series in order of age, if there is such a series.
    fn pieces(&self, series: SeriesId, range: (i64, i64)) -> Option<Vec<Piece>> {
        let sources = {
            let state = self.read_state();
            state.series.get(series)?;
            Sources::of(&state, series, range.0, range.1)
        };
        Some(sources.pieces(series, range, &mut |why| self.report_damage(why)))
    }

    /// See [`crate::Store::scan`].
    pub(crate) fn scan(
        &self,
        series: SeriesId,
        range: (i64, i64),
        visit: &mut dyn FnMut(&Block<'_>) -> ControlFlow<()>,
    ) {
        // What was selected may have been purged meanwhile.
        let Some(pieces) = self.pieces(series, range) else { return };
        let damage = |why| self.report_damage(why);
        _ = sweep(pieces, &mut |why| damage(why), &mut |part| {
            let summary = match &part {
                Part::Whole(piece) => *piece.summary(),
                Part::Merged(samples) => Summary::of(samples),
            };
            visit(&Block { series, summary, part, damage: &damage })
        });
    }

    /// Sizes and counters.
    pub(crate) fn status(&self) -> Status {
        use std::os::unix::fs::MetadataExt;

        let free_bytes = self.free_bytes();
        let catalogue_bytes = fs::metadata(catalogue_path(&self.dir)).map_or(0, |m| m.blocks() * 512);
        let mut refusing = self.refusing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if free_bytes < self.options.reserve_bytes {
            refusing = Some(self.full().to_string());
        }
        if let Err(error) = self.check_place() {
            refusing = Some(error.to_string());
        }
        let state = self.read_state();
        let bytes_of = |class| state.segments.iter().filter(|s| s.class == class).map(|s| s.bytes).sum();
        let files = &state.telemetry.files;
        let file_bytes = |kind| files.iter().filter(|f| f.manifest.kind == kind).map(|f| f.bytes).sum();
        let classes = Class::ALL.map(|class| (class.name(), bytes_of(class)));
        let kinds = Kind::ALL.map(|kind| (kind.name(), file_bytes(kind)));
        let class_bytes: Vec<(&'static str, u64)> = classes.into_iter().chain(kinds).collect();
        Status {
            series: state.series.len() as u64,
            head_points: state.head_points,
            segments: state.segments.len() as u64,
            spans: state.telemetry.rows(Kind::Spans),
            records: state.telemetry.rows(Kind::Records),
            events: state.events.len() as u64,
            head_rows: state.telemetry.head_rows(),
            disk_bytes: catalogue_bytes + class_bytes.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            class_bytes,
            free_bytes,
            commits_total: self.commits.load(Ordering::Relaxed),
            damage: self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            refusing,
        }
    }

    /// See [`crate::Store::state`].
    pub(crate) fn state_rows(&self, prefix: &[u8]) -> Result<Vec<StateRow>, ReadError> {
        let failed = |reason: String| ReadError { what: "rows of state".to_owned(), reason };
        let snapshot = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer).map_err(|error| failed(error.to_string()))?;
            writer.snapshot().map_err(|error| failed(error.to_string()))?
        };
        let mut damage = Vec::new();
        let rows =
            catalogue::state(&snapshot, prefix, &mut damage).map_err(|error| failed(error.to_string()));
        for why in damage {
            self.report_damage(why);
        }
        rows
    }

    /// Lets go of the catalogue; nothing is written any more.
    pub(crate) fn end_writing(&self) {
        let mut writer = self.lock_writer();
        writer.closed = true;
        writer.catalogue = None;
    }
}

pub(crate) fn catalogue_path(dir: &Path) -> PathBuf {
    dir.join("catalogue.redb")
}

/// Removes files that nothing names any more; what is left is removed at the next open.
pub(crate) fn remove_files<'p>(paths: impl Iterator<Item = &'p PathBuf>) {
    for path in paths {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "cannot remove an unused file");
        }
    }
}

/// Builds memory from what is durable.
fn load(
    dir: &Path,
    catalogue: &Catalogue,
    damage: &mut dyn FnMut(String),
) -> Result<(State, Counters), CatalogueError> {
    let contents = catalogue.contents()?;
    let counters = contents.counters;
    for why in &contents.damage {
        damage(why.clone());
    }
    let mut state = State { purged: true, ..State::default() };
    state.by_identity.reserve(contents.series.len());
    for (id, identity) in &contents.series {
        if !state.insert_series(*id, identity.clone()) {
            damage(format!("the catalogue's row of series {id} is damaged"));
        }
    }
    for (metric, row) in &contents.metadata {
        match MetricMetadata::decode(metric, row) {
            Some(known) => _ = state.metadata.insert(metric.as_str().into(), Arc::new(known)),
            None => damage(format!("the catalogue's row of metric `{metric}` is damaged")),
        }
    }
    for (id, row) in &contents.tokens {
        match TokenRecord::decode(*id, row) {
            Some(token) => _ = state.tokens.insert(*id, Arc::new(token)),
            None => damage(format!("the catalogue's row of token {id:02x?} is damaged")),
        }
    }
    load_runs(&mut state, &contents, damage);
    let known = load_segments(dir, &mut state, &contents, damage);
    for (number, row) in &contents.exemplars {
        if !state.exemplars.insert_row(*number, row) {
            damage(format!("the catalogue's row of exemplar {number} is damaged"));
        }
    }
    state.raw_from_ns = contents.raw_from_ns.unwrap_or(i64::MIN);
    remove_unknown(&dir.join("segments"), &["seg", "tmp"], &known);
    let mut push = |series, samples: Vec<Sample>| {
        let (packed, rest) = head::pack(&samples);
        state.push(series, packed, rest);
    };
    catalogue.rows(&mut |number, row| {
        if let Err(why) = row.and_then(|row| log::decode_row(row, &mut push)) {
            damage(format!("row {number} of the log in `{}`: {why}", catalogue_path(dir).display()));
        }
    })?;
    load_telemetry_files(dir, &mut state, &contents, damage);
    catalogue.event_keys(&mut |key| state.events.insert(key))?;
    catalogue.telemetry_rows(&mut |number, row| match row.and_then(telemetry::decode_row) {
        Ok(block) => state.telemetry.push(number, block),
        Err(why) => damage(format!("row {number} of spans in `{}`: {why}", catalogue_path(dir).display())),
    })?;
    Ok((state, counters))
}

fn load_runs(state: &mut State, contents: &Contents, damage: &mut dyn FnMut(String)) {
    let mut runs: HashMap<RunId, RunRecord> = HashMap::with_capacity(contents.runs.len());
    for (id, row) in &contents.runs {
        match record::decode_run(row) {
            Some(run) => _ = runs.insert(*id, run),
            None => damage(format!("the catalogue's row of run {id} is damaged")),
        }
    }
    for (key, row) in &contents.sessions {
        let Some((id, _)) = key.split_first_chunk::<8>() else { continue };
        let id = RunId(*id);
        match (runs.get_mut(&id), record::decode_session(row)) {
            (Some(run), Some(session)) => run.sessions.push(session),
            (None, Some(_)) => {}
            (_, None) => damage(format!("the catalogue's row of a session of run {id} is damaged")),
        }
    }
    state.runs = runs.into_iter().map(|(id, run)| (id, Arc::new(run))).collect();
    for (writer, row) in &contents.writers {
        match Sequences::decode(row) {
            Some(sequences) => _ = state.writers.insert(*writer, sequences),
            None => damage(format!("the catalogue's row of writer {writer:02x?} is damaged")),
        }
    }
}

/// Opens what the manifest names; returns the paths.
fn load_segments(
    dir: &Path,
    state: &mut State,
    contents: &Contents,
    damage: &mut dyn FnMut(String),
) -> HashSet<PathBuf> {
    let mut known = HashSet::new();
    let mut all = Vec::new();
    for (id, row) in &contents.segments {
        let path = crate::segment::path_of(dir, *id);
        known.insert(path.clone());
        let Some(manifest) = Manifest::decode(*id, row) else {
            damage(format!("the manifest's row of `{}` is damaged", path.display()));
            state.incomplete = true;
            continue;
        };
        match Segment::open(dir, *id, manifest.class, damage) {
            Ok(mut opened) => {
                opened.segment.age = manifest.age;
                if manifest.rolled {
                    opened.segment.mark_rolled();
                }
                let readable = opened.segment.points;
                if readable < manifest.points {
                    let lost = manifest.points - readable;
                    damage(format!("`{}`: {lost} of {} points are lost", path.display(), manifest.points));
                }
                all.push(opened);
            }
            Err(error) => {
                damage(format!("`{}`: {error}", path.display()));
                state.incomplete = true;
            }
        }
    }
    all.sort_by_key(|opened| opened.segment.age);
    for opened in all {
        state.insert_segment_at_open(opened);
    }
    known
}

/// Opens files of spans and log records, and removes those that the manifest does not name.
fn load_telemetry_files(dir: &Path, state: &mut State, contents: &Contents, damage: &mut dyn FnMut(String)) {
    let mut known = HashSet::new();
    for (id, row) in &contents.telemetry_files {
        let path = telemetry::file::path_of(dir, *id);
        let manifest = telemetry::file::Manifest::decode(row);
        if manifest.is_none() {
            damage(format!("the manifest's row of `{}` is damaged", path.display()));
        }
        match SealedFile::open(dir, *id, manifest, damage) {
            Ok(file) => state.telemetry.files.push(Arc::new(file)),
            Err(error) => damage(format!("`{}`: {error}", path.display())),
        }
        known.insert(path);
    }
    state.telemetry.files.sort_by_key(|file| file.manifest.age);
    remove_unknown(&telemetry::file::folder_of(dir), &["tel", "tmp"], &known);
}

/// Removes what a crash left between writing a file and naming it.
fn remove_unknown(folder: &Path, endings: &[&str], known: &HashSet<PathBuf>) {
    let Ok(files) = fs::read_dir(folder) else { return };
    for path in files.flatten().map(|file| file.path()) {
        let ours = path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending));
        if ours && !known.contains(&path) {
            tracing::info!(path = %path.display(), "removed a file that was never finished");
            remove_files(std::iter::once(&path));
        }
    }
}
