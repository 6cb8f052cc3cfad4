//! The sampler's series: their handles, and which ones are left out because they are refused.

use model::Desc;

use crate::capture::Refusal;
use crate::series::{SeriesHandle, TOO_MANY_LABELS};
use crate::shared::Shared;

/// Refusals in a row after which a series is left out, and the ticks between tries from then on.
const REFUSALS_MAX: u32 = 5;
const RETRY_TICKS: (u64, u64) = (10, 640);
/// A series that was not refused for this many ticks is taken again.
const QUIET_TICKS: u64 = 2;

/// Labels of a value beside host, GPU and process.
pub(super) type Labels = &'static [(&'static str, &'static str)];

/// What a value is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) metric: &'static Desc,
    pub(super) gpu: Option<u32>,
    pub(super) labels: Labels,
}

/// How a series stands with those who keep it.
#[derive(Debug, Default)]
struct Standing {
    refusals: u32,
    last_tick: u64,
    /// Ticks between two tries; 0 while it is tried at every tick.
    wait: u64,
    reason: String,
}

impl Standing {
    /// Whether to try at this tick.
    fn is_due(&mut self, tick: u64) -> bool {
        if self.wait == 0 {
            return true;
        }
        if tick > self.last_tick + self.wait + QUIET_TICKS {
            // It was tried, and nobody minded.
            *self = Self::default();
        }
        self.wait == 0 || tick >= self.last_tick + self.wait
    }

    /// Notes a refusal; whether the series is left out from now on, and was not before.
    fn refused(&mut self, tick: u64, reason: &str) -> bool {
        if self.wait == 0 && tick > self.last_tick + QUIET_TICKS {
            self.refusals = 0;
        }
        self.refusals += 1;
        self.last_tick = tick;
        reason.clone_into(&mut self.reason);
        if self.refusals < REFUSALS_MAX {
            return false;
        }
        let was_taken = self.wait == 0;
        self.wait = if was_taken { RETRY_TICKS.0 } else { (self.wait * 2).min(RETRY_TICKS.1) };
        was_taken
    }
}

struct Entry {
    subject: Subject,
    handle: SeriesHandle,
    standing: Standing,
}

/// A series that is left out, for the report.
pub(super) struct LeftOut<'a> {
    pub(super) metric: &'static Desc,
    pub(super) gpu: Option<u32>,
    pub(super) reason: &'a str,
}

/// Every series that this process has reported, and the points of the tick.
pub(super) struct SeriesTable {
    host: String,
    pid: String,
    entries: Vec<Entry>,
    /// Where the next value is looked for first: they come in the same order at every tick.
    next: usize,
    tick: u64,
    points: Vec<(SeriesHandle, f64)>,
    left_out: usize,
}

impl SeriesTable {
    pub(super) fn new(host: String) -> Self {
        let pid = std::process::id().to_string();
        Self { host, pid, entries: Vec::new(), next: 0, tick: 0, points: Vec::new(), left_out: 0 }
    }

    /// Begins a tick.
    pub(super) fn begin(&mut self, tick: u64) {
        (self.tick, self.next) = (tick, 0);
        self.points.clear();
    }

    /// Takes a value of this tick.
    pub(super) fn put(&mut self, shared: &Shared, subject: Subject, value: f64) {
        let at = self.find(&subject).unwrap_or_else(|| self.add(shared, subject));
        self.next = at + 1;
        let Some(entry) = self.entries.get_mut(at) else { return };
        let was_left_out = entry.standing.wait > 0;
        if !entry.standing.is_due(self.tick) {
            return;
        }
        self.left_out -= usize::from(was_left_out && entry.standing.wait == 0);
        self.points.push((entry.handle, value));
        if entry.handle.index >= TOO_MANY_LABELS {
            // No room among the series of this process: it is counted, and is as good as refused.
            self.left_out += usize::from(entry.standing.refused(self.tick, "series_limit"));
        }
    }

    fn find(&self, subject: &Subject) -> Option<usize> {
        let is_it = |entry: &Entry| {
            entry.subject.gpu == subject.gpu
                && std::ptr::eq(entry.subject.metric.name, subject.metric.name)
                && entry.subject.labels == subject.labels
        };
        if self.entries.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        self.entries.iter().position(is_it)
    }

    fn add(&mut self, shared: &Shared, subject: Subject) -> usize {
        let gpu = subject.gpu.map(|gpu| gpu.to_string());
        let mut labels: Vec<(&str, &str)> = vec![("host", &self.host)];
        labels.extend(gpu.as_deref().map(|gpu| ("gpu", gpu)));
        if subject.metric.labels.contains(&"pid") {
            labels.push(("pid", &self.pid));
        }
        labels.extend(subject.labels);
        let handle = shared.own_series(subject.metric.name, &labels);
        self.entries.push(Entry { subject, handle, standing: Standing::default() });
        self.entries.len() - 1
    }

    /// The points of this tick.
    pub(super) fn points(&self) -> &[(SeriesHandle, f64)] {
        &self.points
    }

    /// Notes that the server refused a series.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let label =
            |key: &str| refusal.labels.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
        if label("host") != Some(&self.host) {
            return;
        }
        let gpu = label("gpu").and_then(|gpu| gpu.parse().ok());
        let is_it = |entry: &&mut Entry| {
            entry.subject.metric.name == refusal.name
                && entry.subject.gpu == gpu
                && entry.subject.labels.iter().all(|(key, value)| label(key) == Some(value))
        };
        if let Some(entry) = self.entries.iter_mut().find(is_it) {
            self.left_out += usize::from(entry.standing.refused(self.tick, &refusal.reason));
        }
    }

    /// How many series are left out.
    pub(super) fn left_out_count(&self) -> usize {
        self.left_out
    }

    /// The series that are left out.
    pub(super) fn left_out(&self) -> impl Iterator<Item = LeftOut<'_>> {
        self.entries.iter().filter(|entry| entry.standing.wait > 0).map(|entry| LeftOut {
            metric: entry.subject.metric,
            gpu: entry.subject.gpu,
            reason: &entry.standing.reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifth_refusal_leaves_a_series_out_and_tries_become_rare() {
        let mut standing = Standing::default();
        let mut tried = Vec::new();
        for tick in 1..=100 {
            if standing.is_due(tick) {
                tried.push(tick);
                assert_eq!(standing.refused(tick, "series_limit"), tick == 5);
            }
        }
        assert_eq!(tried, [1, 2, 3, 4, 5, 15, 35, 75]);
        // Taken at 155: from then on it is there at every tick.
        assert_eq!((150..=160).filter(|tick| standing.is_due(*tick)).min(), Some(155));
        assert!(standing.wait == 0 && standing.is_due(161));
    }

    #[test]
    fn refusals_that_are_far_apart_do_not_add_up() {
        let mut standing = Standing::default();
        for tick in (1..=100).step_by(4) {
            assert!(!standing.refused(tick, "series_limit"));
        }
        assert!(standing.is_due(101));
    }
}
