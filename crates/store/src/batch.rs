//! What goes into a store, what comes back, and how it can fail.

use std::path::PathBuf;

use model::{
    AttributeValue, Event, Exemplar, LogRecord, RunChange, Sample, SeriesIdentity, Span, TagChange, WriterId,
};

use crate::metadata::MetricMetadata;
use crate::telemetry::Block;
use crate::{SeriesId, events, telemetry};

/// Settings of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Free bytes on the disk below which writes are refused.
    pub reserve_bytes: u64,
    /// Points in memory from which a seal is worth its while; they rest in the log until then.
    pub seal_points: u64,
    /// Age at which points in memory are sealed however few they are, nanoseconds.
    pub seal_age_ns: i64,
    /// How long series that belong to no run are kept, nanoseconds.
    pub fleet_retention_ns: i64,
    /// How long roll-ups of a minute of those series are kept, nanoseconds; 0 makes none.
    pub minute_retention_ns: i64,
    /// How long roll-ups of 15 minutes of those series are kept, nanoseconds; 0 makes none.
    pub quarter_retention_ns: i64,
    /// Bytes of segments of series that belong to no run, roll-ups left out, beyond which the oldest
    /// days go early.
    pub fleet_bytes_max: u64,
    /// Spans and log records in memory from which they are sealed.
    pub seal_spans: u64,
    /// How long spans are kept, by whole days, nanoseconds.
    pub span_retention_ns: i64,
    /// How long log records are kept, by whole days, nanoseconds.
    pub record_retention_ns: i64,
    /// How long events are kept, nanoseconds.
    pub event_retention_ns: i64,
    /// Batches that may wait for the disk.
    pub waiting_batches_max: usize,
    /// Bytes, in memory, of the batches that may wait for the disk.
    pub waiting_bytes_max: usize,
    /// Most series of all runs of one project.
    pub project_series_max: usize,
    /// Most series that belong to no run.
    pub fleet_series_max: usize,
    /// Tells the time in nanoseconds since the epoch; only a run's creation is stamped with it.
    pub clock: fn() -> i64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reserve_bytes: 64 << 20,
            seal_points: 1 << 19,
            seal_age_ns: 2 * 3_600 * model::NANOS_PER_SECOND,
            fleet_retention_ns: 30 * 86_400 * model::NANOS_PER_SECOND,
            minute_retention_ns: 90 * 86_400 * model::NANOS_PER_SECOND,
            quarter_retention_ns: 365 * 86_400 * model::NANOS_PER_SECOND,
            fleet_bytes_max: u64::MAX,
            seal_spans: 1 << 19,
            span_retention_ns: 14 * 86_400 * model::NANOS_PER_SECOND,
            record_retention_ns: 14 * 86_400 * model::NANOS_PER_SECOND,
            event_retention_ns: 90 * 86_400 * model::NANOS_PER_SECOND,
            waiting_batches_max: 4_096,
            waiting_bytes_max: 128 << 20,
            project_series_max: model::SERIES_PER_PROJECT_MAX,
            fleet_series_max: model::FLEET_SERIES_MAX,
            clock: system_clock_ns,
        }
    }
}

fn system_clock_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What arrives together and becomes durable together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Who sends and the number of the delivery; a repeated pair is acknowledged and not stored again.
    pub writer: Option<(WriterId, u64)>,
    /// What is said about a run.
    pub change: Option<RunChange>,
    /// What is said about runs beside that, in order.
    pub changes: Vec<RunChange>,
    /// Points.
    pub series: Vec<SeriesBatch>,
    /// Points of series whose numbers are known, in any order. Several times cheaper than naming the
    /// series again with each point; see [`crate::Store::series_number`].
    pub points: Vec<(SeriesId, Sample)>,
    /// What becomes of a point at a time that its series has a point at already.
    pub collision: Collision,
    /// What is said about metrics.
    pub metadata: Vec<MetricMetadata>,
    /// Rows of the caller's own, kept in the same commit: key and bytes, none to forget the row. The
    /// store does not read them; see [`crate::Store::state`].
    pub state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Spans.
    pub spans: Vec<Span>,
    /// Log records.
    pub records: Vec<LogRecord>,
    /// Exemplars, each with its series.
    pub exemplars: Vec<(SeriesIdentity, Exemplar)>,
    /// What happened; an event whose (host, key) is known adds nothing.
    pub events: Vec<Event>,
}

/// What becomes of a point at a time that its series has a point at already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Collision {
    /// It moves to the next nanosecond that has none. For those who say themselves what they sent
    /// before.
    #[default]
    NextFreeNanosecond,
    /// With the same value nothing, with another it takes the place of the one that is there. For
    /// scrapes and remote write, where sending again is how they make sure. The last of one batch
    /// counts.
    LastWriteWins,
}

impl Batch {
    /// About how many bytes the batch takes in memory.
    fn bytes(&self) -> usize {
        let points: usize =
            self.points.len() * 2 + self.series.iter().map(|s| s.samples.len()).sum::<usize>();
        let metadata: usize =
            self.metadata.iter().map(|m| m.metric.len() + m.help.len() + m.unit.len() + 128).sum();
        let change: usize = self.change.iter().chain(&self.changes).map(change_bytes).sum();
        let state: usize =
            self.state.iter().map(|(key, row)| key.len() + row.as_ref().map_or(0, Vec::len) + 128).sum();
        let exemplars: usize = self.exemplars.len() * 1_024;
        let events: usize = self.events.iter().map(|event| 256 + events::bytes_of(event)).sum();
        let rest = change + metadata + state + exemplars + events + 512;
        points * size_of::<Sample>() + self.series.len() * 1_024 + rest
    }
}

/// A batch on its way to the disk, its spans and log records packed.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub(crate) batch: Batch,
    pub(crate) blocks: Vec<Block>,
}

impl Packed {
    /// Done by the thread that brings the batch: it is most of the work of taking spans in.
    pub(crate) fn of(mut batch: Batch) -> Self {
        let blocks = telemetry::pack(&std::mem::take(&mut batch.spans), &std::mem::take(&mut batch.records));
        Self { batch, blocks }
    }

    /// About how many bytes it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let block = |block: &Block| block.bytes.len() + block.keys.len() * 24;
        self.batch.bytes() + self.blocks.iter().map(block).sum::<usize>()
    }
}

/// About how many bytes a change takes; its texts are what can be long.
fn change_bytes(change: &RunChange) -> usize {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => text.len(),
        _ => 8,
    };
    let attributes = change.attributes.iter().chain(&change.attributes_if_absent);
    let tags = change.tags.iter().map(|tag| match tag {
        TagChange::Clear => 8,
        TagChange::Add(tag) | TagChange::Remove(tag) => 32 + tag.len(),
    });
    attributes.map(|(key, v)| 64 + key.len() + value(v)).sum::<usize>()
        + tags.sum::<usize>()
        + change.description.as_ref().map_or(0, String::len)
        + change.dropped.len() * 64
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
    /// Events stored.
    pub events: u64,
    /// Events that were there already.
    pub events_known: u64,
    /// Points that were there already with the same value; only with [`Collision::LastWriteWins`].
    pub repeated: u64,
    /// Numbers in [`Batch::points`] that no series has any more, sorted. Their points are not stored
    /// and not counted here: send them again by name.
    pub gone: Vec<SeriesId>,
    /// Points refused: reason, count, one example in words. The reasons are `time_out_of_range`,
    /// `label_count`, `series_limit`, `project_series_limit`, `fleet_series_limit` and
    /// `display_name_taken`; of events `event_size` and `event_time`.
    pub refused: Vec<(&'static str, u64, String)>,
    /// Points refused by series: its place in [`Batch::series`], reason, count.
    pub refused_series: Vec<(usize, &'static str, u64)>,
    /// The attempt that the writer's session belongs to, 0 when it has none.
    pub attempt: u32,
}

impl Receipt {
    pub(crate) fn refuse(&mut self, reason: &'static str, count: u64, example: impl FnOnce() -> String) {
        match self.refused.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, total, _)) => *total += count,
            None => self.refused.push((reason, count, example())),
        }
    }
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

impl AppendError {
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}
