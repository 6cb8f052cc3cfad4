//! What could not be read, for the report, and the one warning that each is worth.

use model::{CaptureFailure, Desc};

use super::series::SeriesTable;
use crate::shared::Shared;

/// Ticks after which a value that is still missing is worth a warning.
const WARN_TICKS: u64 = 5;
/// Most failures that are kept.
const FAILURES_MAX: usize = 200;
/// The reason of what the kernel does not let be read.
pub(super) const UNREADABLE: &str = "unreadable";

/// A value that is there and could not be read.
pub(super) struct Trouble {
    pub(super) metric: &'static Desc,
    pub(super) gpu: Option<u32>,
    /// Bounded word.
    pub(super) reason: &'static str,
    pub(super) cause: String,
    pub(super) backs_off: bool,
    /// The tick in which it began.
    pub(super) since_tick: u64,
}

/// Values that are there and cannot be read at the moment.
#[derive(Default)]
pub(super) struct Troubles {
    open: Vec<Trouble>,
    has_changed: bool,
}

impl Troubles {
    /// Notes a failure of this tick.
    pub(super) fn add(&mut self, new: Trouble) {
        let is_it = |old: &&mut Trouble| old.metric.name == new.metric.name && old.gpu == new.gpu;
        if let Some(old) = self.open.iter_mut().find(is_it) {
            self.has_changed |= old.cause != new.cause || old.backs_off != new.backs_off;
            *old = Trouble { since_tick: old.since_tick, ..new };
        } else if self.open.len() < FAILURES_MAX {
            self.has_changed = true;
            self.open.push(new);
        }
    }

    /// A value has come: whatever was wrong with it is over.
    pub(super) fn settle(&mut self, metric: &'static Desc, gpu: Option<u32>) {
        if self.open.is_empty() {
            return;
        }
        let before = self.open.len();
        self.open.retain(|t| t.metric.name != metric.name || t.gpu != gpu);
        self.has_changed |= self.open.len() != before;
    }

    /// Forgets what this process does not read any more.
    pub(super) fn keep(&mut self, is_read: impl Fn(&Trouble) -> bool) {
        let before = self.open.len();
        self.open.retain(|trouble| is_read(trouble));
        self.has_changed |= self.open.len() != before;
    }

    /// Warns of what has been missing for some ticks, once a metric: a single failure is a gap that
    /// closes by itself.
    pub(super) fn warn(&self, shared: &Shared, tick: u64) {
        for trouble in self.open.iter().filter(|t| t.backs_off || tick >= t.since_tick + WARN_TICKS) {
            let name = trouble.metric.name;
            let message = format!("`{name}` has a gap: {}; it is tried again now and then", trouble.cause);
            let key = format!("capture_failed/{name}");
            shared.warned.once(&key, crate::Warning { cause: "capture_failed", message });
        }
    }

    /// Whether anything changed since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The latest cause, for a tick that gave nothing.
    pub(super) fn latest(&self) -> Option<&str> {
        self.open.last().map(|trouble| trouble.cause.as_str())
    }

    /// As the report says it, series that were refused included.
    pub(super) fn report(&self, table: &SeriesTable, gpus: &[u32]) -> Vec<CaptureFailure> {
        let unread = self.open.iter().map(|trouble| CaptureFailure {
            metric: trouble.metric.name.to_owned(),
            gpu: trouble.gpu,
            reason: trouble.reason.to_owned(),
            cause: trouble.cause.clone(),
            backing_off: trouble.backs_off,
        });
        let is_read = |gpu: Option<u32>| gpu.is_none_or(|gpu| gpus.contains(&gpu));
        let refused = table.left_out().filter(|series| is_read(series.gpu)).map(|series| CaptureFailure {
            metric: series.metric.name.to_owned(),
            gpu: series.gpu,
            reason: series.reason.to_owned(),
            cause: format!("points of `{}` are refused ({})", series.metric.name, series.reason),
            backing_off: true,
        });
        unread.chain(refused).take(FAILURES_MAX).collect()
    }
}
