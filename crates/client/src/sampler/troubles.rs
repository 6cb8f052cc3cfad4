//! What could not be read, for the report, and the one warning that each is worth.

use model::{CaptureFailure, Desc};

use super::series::SeriesTable;
use crate::shared::Shared;

/// Ticks after which a value that is still missing is worth a warning.
const WARN_TICKS: u64 = 5;
/// Most failures that are kept.
const FAILURES_MAX: usize = 200;
/// The reason of what the machine does not let be read.
const UNREADABLE: &str = "unreadable";

struct Trouble {
    metric: &'static Desc,
    gpu: Option<u32>,
    cause: String,
    backs_off: bool,
    since_tick: u64,
}

/// Values that are there and cannot be read at the moment.
#[derive(Default)]
pub(super) struct Troubles {
    open: Vec<Trouble>,
    has_changed: bool,
}

impl Troubles {
    /// Notes a failure of this tick.
    pub(super) fn add(
        &mut self,
        tick: u64,
        (metric, gpu): (&'static Desc, Option<u32>),
        cause: String,
        backs_off: bool,
    ) {
        let known = self.open.iter_mut().find(|t| t.metric.name == metric.name && t.gpu == gpu);
        if let Some(trouble) = known {
            self.has_changed |= trouble.cause != cause || trouble.backs_off != backs_off;
            (trouble.cause, trouble.backs_off) = (cause, backs_off);
        } else if self.open.len() < FAILURES_MAX {
            self.has_changed = true;
            self.open.push(Trouble { metric, gpu, cause, backs_off, since_tick: tick });
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
    pub(super) fn report(&self, table: &SeriesTable) -> Vec<CaptureFailure> {
        let unread = self.open.iter().map(|trouble| CaptureFailure {
            metric: trouble.metric.name.to_owned(),
            gpu: trouble.gpu,
            reason: UNREADABLE.to_owned(),
            cause: trouble.cause.clone(),
            backing_off: trouble.backs_off,
        });
        let refused = table.left_out().map(|series| CaptureFailure {
            metric: series.metric.name.to_owned(),
            gpu: series.gpu,
            reason: series.reason.to_owned(),
            cause: format!("points of `{}` are refused ({})", series.metric.name, series.reason),
            backing_off: true,
        });
        unread.chain(refused).take(FAILURES_MAX).collect()
    }
}
