//! A logger's process as a session of its run.
//!
//! A logger says nothing of itself but two numbers, so the session's id is made of them, and what is known
//! of it survives a restart of the server. The first half is the logger's, so that its session is found
//! before a stream has named it.

use std::time::{Duration, Instant};

use model::{
    RunPath, RunRecord, SESSION_HEARTBEAT_SECONDS, SessionEnd, SessionEvent, SessionFacts, WriterId,
};

use super::mark;
use crate::clock::now_ns;

/// Written where a client of ours has its version.
const CLIENT: &str = "metrana";
/// Most ended sessions of one logger that are looked through for a free id.
const GENERATIONS_MAX: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    logger_id: u64,
    /// Its id, once known.
    writer: Option<WriterId>,
    /// Whether the store knows it.
    is_open: bool,
    is_closed: bool,
    /// When it showed life.
    shown: Option<Instant>,
    facts: SessionFacts,
}

/// What [`Session::event`] gave, to be told whether it was stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    opens: bool,
    ends: bool,
}

impl Session {
    /// The session of a logger whose stream starts. One that the run knows and that has not ended is gone on
    /// with, unless it was another job's.
    pub(super) fn of(run: &RunRecord, logger_id: u64, job: Option<String>) -> Self {
        let first = mark(&run.path, [logger_id, 0, 0]);
        let known = run.sessions.iter().rev().find(|known| {
            known.writer[..8] == first
                && known.end.is_none()
                && job.as_ref().is_none_or(|job| *job == known.facts.job_token)
        });
        let job_token = job.unwrap_or_default();
        Self {
            logger_id,
            writer: known.map(|known| known.writer),
            is_open: known.is_some(),
            is_closed: false,
            shown: None,
            facts: match known {
                Some(known) => known.facts.clone(),
                None => SessionFacts { client_version: CLIENT.into(), job_token, ..SessionFacts::default() },
            },
        }
    }

    /// Gives it an id if it has none.
    pub(super) fn name(&mut self, run: &RunRecord, process: u64) {
        if self.writer.is_some() {
            return;
        }
        let ended =
            |id: &WriterId| run.sessions.iter().any(|known| known.writer == *id && known.end.is_some());
        let ids = (0..GENERATIONS_MAX).map(|generation| id(&run.path, (self.logger_id, process), generation));
        self.writer = ids.into_iter().find(|id| !ended(id));
    }

    /// Notes where it runs.
    pub(super) fn place(&mut self, host: &str, pid: Option<u32>) {
        if self.facts.host.is_empty() {
            host.clone_into(&mut self.facts.host);
            self.facts.pid = pid.unwrap_or_default();
        }
    }

    /// A sign of life, if one is due; its end, if it ends.
    pub(super) fn event(
        &self,
        end: Option<SessionEnd>,
        reason: &str,
    ) -> Option<((WriterId, SessionEvent), Told)> {
        let writer = self.writer.filter(|_| !self.is_closed)?;
        if end.is_none() && self.shown.is_some_and(|shown| shown.elapsed() < Self::every() / 2) {
            return None;
        }
        let event = SessionEvent {
            time_ns: now_ns(),
            opens: !self.is_open,
            end,
            reason: reason.to_owned(),
            facts: self.facts.clone(),
        };
        Some(((writer, event), Told { opens: true, ends: end.is_some() }))
    }

    /// The last word of a stream that ended well; nothing when it said so itself, or was never known.
    pub(super) fn left(&self) -> Option<(WriterId, SessionEvent)> {
        let (event, _) = self.event(Some(SessionEnd::Left), "").filter(|_| self.is_open)?;
        Some(event)
    }

    /// Notes that the store has taken an event.
    pub(super) fn told(&mut self, told: Told) {
        self.is_open |= told.opens;
        self.is_closed |= told.ends;
        if told.opens {
            self.shown = Some(Instant::now());
        }
    }

    /// How often it is to show life.
    pub(super) const fn every() -> Duration {
        Duration::from_secs(SESSION_HEARTBEAT_SECONDS)
    }
}

fn id(run: &RunPath, (logger_id, process): (u64, u64), generation: u64) -> WriterId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&mark(run, [logger_id, 0, 0]));
    id[8..].copy_from_slice(&mark(run, [logger_id, process, generation]));
    id
}

/// By what a logger's messages are known when they come again: its session's id, and the number.
///
/// The numbers grow by 256. Turned round they grow by one, which is what a store keeps in a few bytes, and
/// no two become the same.
pub(super) fn delivery(run: &RunPath, logger_id: u64, process: u64, sequence: u64) -> (WriterId, u64) {
    (id(run, (logger_id, process), 0), sequence.rotate_right(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_grow_by_256_become_neighbours_and_stay_apart() {
        let run = RunPath::default();
        let number = |sequence| delivery(&run, 1, 2, sequence).1;
        assert_eq!([256, 512, 768].map(number), [1, 2, 3]);
        assert_ne!(number(257), number(256));
        assert_ne!(number(1), number(256));
    }

    #[test]
    fn loggers_processes_and_runs_have_ids_of_their_own() {
        let one = RunPath { run: "a".into(), ..RunPath::default() };
        let other = RunPath { run: "b".into(), ..RunPath::default() };
        let ids = [id(&one, (1, 2), 0), id(&one, (1, 3), 0), id(&one, (2, 2), 0), id(&other, (1, 2), 0)];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
        assert_eq!(ids[0][..8], ids[1][..8], "a logger's sessions are found by its half");
    }
}
