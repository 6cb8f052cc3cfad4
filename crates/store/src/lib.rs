//! Durable samples, spans, log records and the catalogue of runs, in one directory with one writer.
//!
//! Layer 1; knows no PromQL and no HTTP. What [`Store::append`] acknowledged is kept. A batch goes
//! through a queue to one thread, which writes all that wait as one transaction (`committer`,
//! `staging`, `log`, `catalogue`), then shows it in memory (`series`, `head`). Memory is sealed into
//! segment files now and then (`maintain`, `segment`, `chunk`). Reads never touch the database. Spans and
//! log records go the same way in a folder of their own (`telemetry`). Bytes on disk:
//! `docs/format/log.md`, `docs/format/segment.md` and `docs/format/spans.md`.

mod appended;
mod backup;
mod batch;
mod by_number;
mod catalogue;
mod chunk;
mod codec;
mod column;
mod committer;
mod counting;
mod events;
mod exemplars;
mod head;
mod index;
mod lock;
mod log;
mod maintain;
mod matcher;
mod merge;
mod metadata;
mod read;
mod record;
mod rescue;
mod retention;
mod rollup;
mod rollup_chunk;
mod rollup_make;
mod rollup_read;
mod segment;
mod select;
mod series;
mod staging;
mod store;
mod tail;
mod telemetry;
mod times;
mod tokens;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use model::{
    Event, EventAsk, Exemplar, LogRecord, RecordAsk, RolledUp, RollupAsk, RollupBucket, RunId, RunRecord,
    SeriesIdentity, Span, SpanAsk,
};

pub use backup::{Backup, BackupError};
pub use batch::{AppendError, Batch, Collision, OpenError, Options, Receipt, SeriesBatch};
pub use chunk::{Chunk, Summary};
pub use counting::{LabelCount, PopulationCount, TakeValue};
pub use events::{EVENT_BYTES_MAX, EVENTS_MAX};
pub use exemplars::{EXEMPLARS_MAX, EXEMPLARS_PER_SERIES_MAX};
pub use matcher::{MatchOp, Matcher};
pub use metadata::MetricMetadata;
pub use read::{Block, ReadError};
pub use select::{Cardinality, Counted, Found, Known};
pub use series::SeriesInfo;
pub use tokens::{Bounds, Scope, Scopes, TOKEN_NAME_BYTES_MAX, TokenRecord};

/// A row of the caller's own: key and bytes.
pub type StateRow = (Vec<u8>, Vec<u8>);

/// A series' number within one store; never given twice.
pub type SeriesId = u64;

/// Counters and sizes of a store, for `/metrics` and `doctor`.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Series known.
    pub series: u64,
    /// Points in memory, not yet in a segment.
    pub head_points: u64,
    /// Spans kept; one that was sent again counts twice.
    pub spans: u64,
    /// Log records kept.
    pub records: u64,
    /// Events kept.
    pub events: u64,
    /// Spans and log records in memory, not yet in a file.
    pub head_rows: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of files by what they hold: samples of runs (`run`) and of no run (`fleet`), roll-ups of
    /// these (`rollup_1m`, `rollup_15m`), spans (`spans`) and log records (`records`).
    pub class_bytes: Vec<(&'static str, u64)>,
    /// Free bytes on the disk.
    pub free_bytes: u64,
    /// Commits so far.
    pub commits_total: u64,
    /// Places of damage found, in words, at most 100.
    pub damage: Vec<String>,
    /// Why writes are refused at the moment.
    pub refusing: Option<String>,
}

/// The embedded store. Clones share it; the directory is unlocked when the last one is gone.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    inner: Arc<store::Inner>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    /// Writes what waits and ends the thread.
    fn stop(&self) {
        self.inner.queue.close();
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if committer.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes ended by a panic");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.0.inner.dir).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens or makes the store in `dir` and replays what was acknowledged. Damage that leaves the
    /// rest readable is no error; it is in [`Status::damage`].
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let inner = Arc::new(store::Inner::open(dir, options)?);
        let committer = committer::start(inner.clone()).map_err(|error| OpenError::Unusable {
            dir: dir.to_owned(),
            reason: format!("starting the thread that writes: {error}"),
        })?;
        Ok(Self(Arc::new(Shared { inner, committer: Mutex::new(Some(committer)) })))
    }

    /// Stores a batch; returns when it is durable. Blocks; batches of many threads share a commit.
    pub fn append(&self, batch: Batch) -> Result<Receipt, AppendError> {
        let inner = &self.0.inner;
        inner.queue.append(batch, inner.options.waiting_batches_max, inner.options.waiting_bytes_max)
    }

    /// A run, unless it is deleted.
    pub fn run(&self, id: RunId) -> Option<Arc<RunRecord>> {
        self.0.inner.run(id)
    }

    /// A run that is deleted and can still be restored.
    pub fn deleted_run(&self, id: RunId) -> Option<Arc<RunRecord>> {
        self.0.inner.read_state().runs.get(&id).filter(|run| run.deleted_ns.is_some()).cloned()
    }

    /// Every run that is not deleted, newest first.
    pub fn runs(&self) -> Vec<Arc<RunRecord>> {
        self.0.inner.read_state().runs()
    }

    /// The series of a run that have points, by display name, then labels.
    pub fn run_series(&self, id: RunId) -> Vec<SeriesInfo> {
        self.0.inner.read_state().run_series(id)
    }

    /// What is known of a series, unless it has no points or its run is deleted.
    pub fn series(&self, id: SeriesId) -> Option<SeriesInfo> {
        self.0.inner.read_state().visible_info(id)
    }

    /// The number of a series, once a point of it was stored. It stays while the series has points or
    /// its run exists, and is never given to another.
    pub fn series_number(&self, identity: &SeriesIdentity) -> Option<SeriesId> {
        self.0.inner.read_state().number(identity)
    }

    /// The series that fit all `matchers` and may have points with `from_ns <= time <= to_ns`, in
    /// order of number. Those of deleted runs are not among them.
    pub fn select(&self, matchers: &[Matcher<'_>], from_ns: i64, to_ns: i64) -> Vec<Found> {
        self.0.inner.select(matchers, (from_ns, to_ns), &|_| None)
    }

    /// As [`Store::select`], for who asks often and keeps labels: what `known` has is not made again.
    pub fn select_known(
        &self,
        matchers: &[Matcher<'_>],
        (from_ns, to_ns): (i64, i64),
        known: &Known<'_>,
    ) -> Vec<Found> {
        self.0.inner.select(matchers, (from_ns, to_ns), known)
    }

    /// The names of the labels of the series that [`Store::select`] would find, sorted.
    pub fn label_names(&self, matchers: &[Matcher<'_>], from_ns: i64, to_ns: i64) -> Vec<String> {
        self.0.inner.label_names(matchers, (from_ns, to_ns))
    }

    /// The values that the label `name` has on the series that [`Store::select`] would find, sorted.
    pub fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher<'_>],
        from_ns: i64,
        to_ns: i64,
    ) -> Vec<String> {
        self.0.inner.label_values(name, matchers, (from_ns, to_ns))
    }

    /// Every access token, by id.
    pub fn tokens(&self) -> Vec<Arc<TokenRecord>> {
        self.0.inner.read_state().tokens.values().cloned().collect()
    }

    /// Keeps tokens, in place of those with the same id; returns when that is durable.
    pub fn put_tokens(&self, tokens: &[TokenRecord]) -> Result<(), AppendError> {
        self.0.inner.put_tokens(tokens)
    }

    /// Forgets a token; returns when that is durable.
    pub fn forget_token(&self, id: [u8; 6]) -> Result<(), AppendError> {
        self.0.inner.forget_token(id)
    }

    /// What makes up the number of series: of each list the first `limit`, largest first.
    pub fn cardinality(&self, limit: usize) -> Cardinality {
        self.0.inner.read_state().cardinality(limit)
    }

    /// Hands the values of the label `name` that start with `prefix` to `take`, in order, each with the
    /// number of series that have it, among those that fit all `matchers`. Holds the index while it
    /// does: `take` must be quick.
    pub fn each_value(&self, name: &str, matchers: &[Matcher<'_>], prefix: &str, take: &mut TakeValue<'_>) {
        self.0.inner.each_value(name, matchers, prefix, take);
    }

    /// The labels of the series that fit all `matchers`, by name, but for the metric's name.
    pub fn label_counts(&self, matchers: &[Matcher<'_>]) -> Vec<LabelCount> {
        self.0.inner.label_counts(matchers)
    }

    /// How many series each project's runs have, and those of no run, of how many they may have; at most
    /// `limit`, largest first. Those of deleted runs count until they are purged.
    pub fn populations(&self, limit: usize) -> Vec<PopulationCount> {
        self.0.inner.populations(limit)
    }

    /// What was said about metrics, by name: of one, or of all.
    pub fn metadata(&self, metric: Option<&str>) -> Vec<Arc<MetricMetadata>> {
        let state = self.0.inner.read_state();
        match metric {
            Some(metric) => state.metadata.get(metric).cloned().into_iter().collect(),
            None => state.metadata.values().cloned().collect(),
        }
    }

    /// As [`Store::read`], for who wants columns: nothing of a block is read from disk before its
    /// columns are asked for, and steps are passed over. A series that is no more has none, which is no error. Many threads may scan at once; each holds
    /// one block in memory.
    pub fn scan(
        &self,
        series: SeriesId,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&Block<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.0.inner.scan(series, (from_ns, to_ns), visit);
        Ok(())
    }

    /// Appends the roll-ups of `series` that hold anything of what is asked for, in order of time: where
    /// single samples are gone, and, given `align_ns`, further on as far as buckets of a width that
    /// divides it hold all that there is. From [`RolledUp::raw_from_ns`] on the samples themselves are
    /// to be read. Where they are gone buckets of a width that divides `align_ns` are taken, the widest,
    /// and the finest there are otherwise; one may reach beyond the range.
    pub fn rollups(&self, series: SeriesId, ask: &RollupAsk, into: &mut Vec<RollupBucket>) -> RolledUp {
        self.0.inner.rollups(series, ask, into)
    }

    /// Hands the points of `series` with `from_ns <= time <= to_ns` to `visit`, as chunks that do
    /// not overlap, in order of time. A chunk at the edge may reach beyond the range, and is then
    /// not complete out there. Damaged chunks are left out and reported in [`Status::damage`].
    pub fn read(
        &self,
        series: SeriesId,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.0.inner.read(series, (from_ns, to_ns), visit)
    }

    /// The rows of [`Batch::state`] whose keys start with `prefix`, in order of key. Reads the disk: it is
    /// for the start.
    pub fn state(&self, prefix: &[u8]) -> Result<Vec<StateRow>, ReadError> {
        self.0.inner.state_rows(prefix)
    }

    /// Hands the spans that are asked for to `visit`, in order of start, ties by run, instance,
    /// incarnation, trace and id. Of those known by the same of these only the one that arrived last counts.
    /// Few blocks are in memory at once. A damaged block is left out and reported in
    /// [`Status::damage`]; spans of deleted runs are not among them.
    pub fn spans(
        &self,
        ask: &SpanAsk,
        visit: &mut dyn FnMut(Span) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.0.inner.spans(ask, visit);
        Ok(())
    }

    /// The same for log records, in order of time, ties as they arrived. A record has no id: of two that
    /// are equal in all, as when a request is sent again, one is visited.
    pub fn records(
        &self,
        ask: &RecordAsk,
        visit: &mut dyn FnMut(LogRecord) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.0.inner.records(ask, visit);
        Ok(())
    }

    /// Hands the events that are asked for to `visit`, newest first. Reads the disk. A damaged row is left
    /// out and reported in [`Status::damage`].
    pub fn events(
        &self,
        ask: &EventAsk,
        visit: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.0.inner.events(ask, visit)
    }

    /// The exemplars of a series with `from_ns <= time <= to_ns`, in order of time. Of each series the
    /// newest [`EXEMPLARS_PER_SERIES_MAX`] to arrive are kept, of all series together the newest
    /// [`EXEMPLARS_MAX`].
    pub fn exemplars(&self, series: SeriesId, from_ns: i64, to_ns: i64) -> Vec<Exemplar> {
        let state = self.0.inner.read_state();
        if state.visible_info(series).is_none() {
            return Vec::new();
        }
        state.exemplars.of(series, from_ns, to_ns)
    }

    /// Hides a run; its points stay until [`Store::restore_run`] or [`Store::purge_deleted`].
    /// `false` when there is no such run, or it is deleted already.
    pub fn delete_run(&self, id: RunId, now_ns: i64) -> Result<bool, AppendError> {
        self.0.inner.set_deleted(id, Some(now_ns))
    }

    /// Undoes [`Store::delete_run`]; `false` when there is nothing to undo.
    pub fn restore_run(&self, id: RunId) -> Result<bool, AppendError> {
        self.0.inner.set_deleted(id, None)
    }

    /// Removes for good what was deleted before `before_ns`; returns how many runs. The disk is
    /// freed at once where a file held nothing else, and by [`Store::maintain`] otherwise.
    pub fn purge_deleted(&self, before_ns: i64) -> Result<usize, AppendError> {
        self.0.inner.purge_deleted(before_ns)
    }

    /// Does what is due: seals memory into a segment, merges small segments, drops old ones. Call it
    /// about once a second; appends and reads go on meanwhile.
    pub fn maintain(&self, now_ns: i64) -> Result<(), AppendError> {
        self.0.inner.maintain(now_ns)
    }

    /// Makes a store of its own in `to_dir`, which must not exist: everything acknowledged when this
    /// was called. Blocks; appends and reads go on meanwhile, [`Store::maintain`] waits. Segments are
    /// hard links where the file system is the same.
    pub fn backup(&self, to_dir: &Path) -> Result<Backup, BackupError> {
        self.0.inner.backup(to_dir)
    }

    /// Sizes and counters.
    pub fn status(&self) -> Status {
        self.0.inner.status()
    }

    /// Writes what waits, seals memory into a segment and accepts no more writes. Reads go on.
    pub fn close(&self) {
        self.0.stop();
        let inner = &self.0.inner;
        {
            let _maintenance = inner.lock_maintenance();
            let now_ns = (inner.options.clock)();
            if let Err(error) = inner.seal(now_ns).and_then(|()| inner.seal_telemetry(now_ns)) {
                tracing::warn!(%error, "memory is not sealed; it is read from the log at the next start");
            }
        }
        inner.end_writing();
    }
}
