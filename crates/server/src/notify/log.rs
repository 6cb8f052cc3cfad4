//! The log of deliveries: whom what was told, how it went, and what nobody was told of.
//!
//! Lines of JSON in a file of the data directory, each durable when it is taken; the oldest half goes when
//! there are too many.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::files;

/// Where it is kept, in the data directory; what came before it lies beside it.
const FILE: &str = "deliveries.jsonl";
const BEFORE: &str = "deliveries.before.jsonl";
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Deliveries that are kept at least.
const KEPT: usize = 10_000;
/// Alerts of which the last delivery is remembered.
const ALERTS_MAX: usize = 50_000;
/// Names of rules in one row.
const RULES_MAX: usize = 20;

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The receiver has taken it.
    Delivered,
    /// It failed and is tried again.
    Waiting,
    /// It was refused; what is true then is told at the group's next interval.
    Failed,
    /// A silence keeps it back, or a graver alert of the same cause.
    Silenced,
    /// It was too much.
    Dropped,
}

/// A delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Delivery {
    /// Grows from row to row.
    pub(crate) id: u64,
    /// Milliseconds since the epoch.
    pub(crate) time: i64,
    /// What the alerts have in common, as text.
    pub(crate) group: String,
    /// The receiver's name.
    pub(crate) receiver: String,
    /// `webhook`, `slack` or `alertmanager`.
    pub(crate) kind: String,
    /// `firing`, or `resolved` where all are over.
    pub(crate) state: String,
    /// How many alerts.
    pub(crate) alerts: usize,
    /// Their names.
    pub(crate) rules: Vec<String>,
    /// What became of it.
    pub(crate) result: Outcome,
    /// The answer's status; null without one.
    pub(crate) status: Option<u16>,
    /// How long it took; null where nothing was sent.
    pub(crate) took_ms: Option<u64>,
    /// How often it was tried, this time included.
    pub(crate) tries: u32,
    /// What went wrong, or why it is silenced; null where neither is.
    pub(crate) error: Option<String>,
}

/// How an alert was told last.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct LastTold {
    /// When, milliseconds since the epoch.
    time: i64,
    /// The receiver.
    to: String,
    /// What became of it.
    result: Outcome,
}

#[derive(Debug, Default)]
struct State {
    rows: VecDeque<Delivery>,
    /// Lines in the file.
    lines: usize,
    next_id: u64,
    by_alert: HashMap<u64, LastTold>,
    failing: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    state: Mutex<State>,
}

impl Log {
    /// The one that was kept in `data_dir`.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let mut state = State::default();
        for name in [BEFORE, FILE] {
            let text = files::bytes(&data_dir.join(name), FILE_BYTES_MAX).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            // A crash may have left half a line at the end.
            let rows: Vec<Delivery> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            state.lines = rows.len();
            state.rows.extend(rows);
        }
        while state.rows.len() > KEPT {
            state.rows.pop_front();
        }
        state.next_id = state.rows.back().map_or(1, |row| row.id + 1);
        Self { dir: data_dir.to_owned(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a row; `alerts` are the fingerprints of its alerts.
    pub(super) fn take(&self, mut row: Delivery, alerts: impl IntoIterator<Item = u64>) {
        let mut state = self.state();
        row.id = state.next_id;
        row.rules.truncate(RULES_MAX);
        state.next_id += 1;
        if state.by_alert.len() >= ALERTS_MAX {
            state.by_alert.clear();
        }
        let told = LastTold { time: row.time, to: row.receiver.clone(), result: row.result };
        state.by_alert.extend(alerts.into_iter().map(|alert| (alert, told.clone())));
        if state.rows.len() >= KEPT {
            state.rows.pop_front();
        }
        let kept = self.keep(&row, state.lines >= KEPT);
        state.lines = if state.lines >= KEPT { 1 } else { state.lines + 1 };
        state.rows.push_back(row);
        if let Err(error) = &kept
            && !state.failing
        {
            tracing::warn!(%error, "deliveries of alerts can't be logged durably");
        }
        state.failing = kept.is_err();
    }

    fn keep(&self, row: &Delivery, is_full: bool) -> std::io::Result<()> {
        let path = self.dir.join(FILE);
        if is_full {
            std::fs::rename(&path, self.dir.join(BEFORE))?;
        }
        let mut line = serde_json::to_vec(row)?;
        line.push(b'\n');
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all(&line)?;
        file.sync_data()
    }

    /// Notes that an alert was told before this process began.
    pub(super) fn known(&self, alert: u64, time: i64, to: &str) {
        let told = LastTold { time, to: to.to_owned(), result: Outcome::Delivered };
        self.state().by_alert.entry(alert).or_insert(told);
    }

    /// How an alert was told last.
    pub(crate) fn of(&self, alert: u64) -> Option<LastTold> {
        self.state().by_alert.get(&alert).cloned()
    }

    /// Rows, the latest first, those before `before` where that is given; and whether there are more.
    pub(crate) fn rows(&self, before: Option<u64>, limit: usize) -> (Vec<Delivery>, bool) {
        let state = self.state();
        let mut found = state.rows.iter().rev().filter(|row| before.is_none_or(|before| row.id < before));
        let rows: Vec<Delivery> = found.by_ref().take(limit).cloned().collect();
        (rows, found.next().is_some())
    }

    /// How many deliveries were tried since `since_ms`, and how many of them arrived.
    pub(crate) fn counted(&self, since_ms: i64) -> (usize, usize) {
        let state = self.state();
        let rows = || state.rows.iter().rev().take_while(|row| row.time >= since_ms);
        let tried = rows().filter(|row| matches!(row.result, Outcome::Delivered | Outcome::Failed)).count();
        (tried, rows().filter(|row| row.result == Outcome::Delivered).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time: i64, result: Outcome) -> Delivery {
        Delivery {
            id: 0,
            time,
            group: "{}".to_owned(),
            receiver: "ops".to_owned(),
            kind: "webhook".to_owned(),
            state: "firing".to_owned(),
            alerts: 1,
            rules: vec!["Down".to_owned()],
            result,
            status: Some(200),
            took_ms: Some(1),
            tries: 1,
            error: None,
        }
    }

    #[test]
    fn rows_outlive_the_process_and_come_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path());
        for time in 0..5 {
            log.take(row(time, Outcome::Delivered), [7]);
        }
        log.take(row(5, Outcome::Failed), [8]);
        // Half a line, as a crash leaves it.
        let mut file = File::options().append(true).open(dir.path().join(FILE)).unwrap();
        file.write_all(b"{\"id\":99,").unwrap();
        drop(file);
        let times = |rows: &[Delivery]| rows.iter().map(|row| row.time).collect::<Vec<_>>();
        for log in [log, Log::open(dir.path())] {
            let (rows, more) = log.rows(None, 4);
            assert_eq!((times(&rows), more), (vec![5, 4, 3, 2], true));
            let (rows, more) = log.rows(rows.last().map(|row| row.id), 4);
            assert_eq!((times(&rows), more), (vec![1, 0], false));
            assert_eq!(log.counted(3), (3, 2));
        }
    }

    #[test]
    fn the_log_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&row(1, Outcome::Delivered)).unwrap();
        let lines = |count: usize| format!("{line}\n").repeat(count);
        std::fs::write(dir.path().join(FILE), lines(KEPT)).unwrap();
        let log = Log::open(dir.path());
        log.take(row(2, Outcome::Silenced), [7]);
        assert_eq!(log.rows(None, usize::MAX).0.len(), KEPT);
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count(), 1);
        assert_eq!(Log::open(dir.path()).rows(None, 1).0[0].time, 2);
        assert_eq!(log.of(7).map(|told| told.result), Some(Outcome::Silenced));
    }
}
