//! Durable samples and the catalogue of runs, in one directory with one writer.
//!
//! Layer 1; knows no PromQL and no HTTP. What [`Store::append`] acknowledged is kept.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Labels, RunChange, RunId, RunRecord, Sample, SeriesIdentity, WriterId};

/// Settings of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Free bytes on the disk below which writes are refused.
    pub reserve_bytes: u64,
}

/// What arrives together and becomes durable together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Who sends and the number of the delivery; a repeated pair is acknowledged and not stored again.
    pub writer: Option<(WriterId, u64)>,
    /// What is said about a run.
    pub change: Option<RunChange>,
    /// Points.
    pub series: Vec<SeriesBatch>,
}

/// Points of one series.
#[derive(Debug, Clone)]
pub struct SeriesBatch {
    /// Which series.
    pub identity: SeriesIdentity,
    /// Its points, in any order of time.
    pub samples: Vec<Sample>,
}

/// What became of a batch, once it is durable.
#[derive(Debug, Clone, Default)]
pub struct Receipt {
    /// The batch had come before.
    pub duplicate: bool,
    /// Points stored.
    pub stored: u64,
    /// Points refused: reason, count, one example in words.
    pub refused: Vec<(&'static str, u64, String)>,
    /// The attempt that the writer's session belongs to, 0 when it has none.
    pub attempt: u32,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server has the directory.
    #[error("another truegauge server (pid {pid}) uses `{dir}`: stop it, or choose another `--data-dir`")]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The other's process id, as its lock file says.
        pid: String,
    },
    /// The directory can't be used.
    #[error("cannot open the store in `{dir}`: {reason}")]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// What was found.
        reason: String,
    },
}

/// Why a batch is not stored; it may be sent again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The disk has less than the reserve.
    #[error(
        "the disk of `{dir}` has {free} bytes free, {reserve} are kept in reserve: writes are refused until space is freed"
    )]
    Full {
        /// The directory.
        dir: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },
    /// Too many batches wait already.
    #[error("{waiting} batches wait to be written: send again later")]
    Busy {
        /// How many wait.
        waiting: usize,
    },
    /// The write failed.
    #[error("cannot write to the store: {reason}")]
    Failed {
        /// What the system said.
        reason: String,
    },
}

/// Why points can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read series {series}: {reason}")]
pub struct ReadError {
    /// The series.
    pub series: SeriesId,
    /// What was found, and where.
    pub reason: String,
}

/// A series' number within one store.
pub type SeriesId = u64;

/// What is known of a series without reading its points.
#[derive(Debug, Clone)]
pub struct SeriesInfo {
    /// Its number.
    pub id: SeriesId,
    /// Its labels, the run's included.
    pub labels: Arc<Labels>,
    /// Its name as logged.
    pub display: Arc<str>,
    /// How many points it has.
    pub points: u64,
    /// Earliest and latest time, nanoseconds.
    pub time_ns: (i64, i64),
    /// Step of the latest point.
    pub last_step: Option<i64>,
    /// Largest step.
    pub max_step: Option<i64>,
    /// Value of the latest point.
    pub last: f64,
}

/// Facts about a chunk, known without decoding it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Points.
    pub count: u32,
    /// Points whose value is NaN or infinite; `min`, `max` and `sum` leave them out.
    pub non_finite: u32,
    /// First and last time, nanoseconds.
    pub time_ns: (i64, i64),
    /// Value of the first and of the last point.
    pub first: f64,
    /// See `first`.
    pub last: f64,
    /// Least finite value, +inf when there is none.
    pub min: f64,
    /// Greatest finite value, -inf when there is none.
    pub max: f64,
    /// Sum of the finite values.
    pub sum: f64,
    /// Least and greatest step; absent when the points have none.
    pub steps: Option<(i64, i64)>,
}

/// A piece of a series, in order of time.
pub trait Chunk {
    /// What is known without decoding.
    fn summary(&self) -> &Summary;
    /// The points, in order of time.
    fn samples(&self) -> Result<Vec<Sample>, ReadError>;
}

/// Counters and sizes of a store, for `/metrics` and `doctor`.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Series known.
    pub series: u64,
    /// Points in memory, not yet in a segment.
    pub head_points: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
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
#[derive(Debug, Clone)]
pub struct Store {
    _todo: Arc<()>,
}

#[expect(unused_variables, clippy::todo, reason = "signatures first")]
impl Store {
    /// Opens or makes the store in `dir` and replays what was acknowledged.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        todo!()
    }
    /// Stores a batch; returns when it is durable. Blocks; batches of many threads share a commit.
    pub fn append(&self, batch: Batch) -> Result<Receipt, AppendError> {
        todo!()
    }
    /// A run, unless it is deleted.
    pub fn run(&self, id: RunId) -> Option<Arc<RunRecord>> {
        todo!()
    }
    /// Every run that is not deleted, newest first.
    pub fn runs(&self) -> Vec<Arc<RunRecord>> {
        todo!()
    }
    /// The series of a run, by display name, then labels.
    pub fn run_series(&self, id: RunId) -> Vec<SeriesInfo> {
        todo!()
    }
    /// Hands the points of `series` with `from_ns <= time <= to_ns` to `visit`, as chunks that do
    /// not overlap, in order of time. A chunk at the edge may reach beyond the range. Damaged chunks
    /// are left out and reported in [`Status::damage`].
    pub fn read(
        &self,
        series: SeriesId,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        todo!()
    }
    /// Hides a run; its points stay for `purge` until [`Store::restore_run`] or [`Store::purge_deleted`].
    pub fn delete_run(&self, id: RunId, now_ns: i64) -> Result<bool, AppendError> {
        todo!()
    }
    /// Undoes [`Store::delete_run`].
    pub fn restore_run(&self, id: RunId) -> Result<bool, AppendError> {
        todo!()
    }
    /// Removes for good what was deleted before `before_ns`; returns how many runs.
    pub fn purge_deleted(&self, before_ns: i64) -> Result<usize, AppendError> {
        todo!()
    }
    /// Seals the head's full chunks into a segment and drops what the log no longer needs; call now and then.
    pub fn maintain(&self, now_ns: i64) -> Result<(), AppendError> {
        todo!()
    }
    /// Sizes and counters.
    pub fn status(&self) -> Status {
        todo!()
    }
    /// Seals, syncs and stops accepting writes.
    pub fn close(&self) {
        todo!()
    }
}
