//! Waiting until what was logged is safe: flush and close.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use model::SessionEnd;

use crate::outbox::{Outbox, Stage};
use crate::shared::{Shared, lock};
use crate::transport::{Away, shown_url};

/// Without an acknowledgement for this long, what is left goes to the spool.
const STALL: Duration = Duration::from_secs(5);
/// Longest pause between two looks at the caller's wish to give up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where everything logged before a flush is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushOutcome {
    /// The server has acknowledged it.
    Server,
    /// Some of it is in the spool, synced to the disk.
    Spool {
        /// The spool.
        dir: PathBuf,
    },
    /// Some of it is only in memory: the server is away or slow and the spool refuses.
    Incomplete {
        /// Requests in memory.
        batches: u64,
        /// Points in them.
        points: u64,
    },
}

/// How a run ended in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloseOutcome {
    /// Requests that are not with the server.
    pub undelivered_batches: u64,
    /// Their bytes on disk.
    pub undelivered_bytes: u64,
    /// The spool that holds them.
    pub spool_dir: Option<PathBuf>,
    /// What is left, where, and the command that sends it; `None` when nothing is left.
    pub hint: Option<String>,
}

/// Asked every 50 ms whether to give up waiting.
pub(crate) type Poll<'a> = &'a mut dyn FnMut() -> bool;

impl Shared {
    /// Makes everything logged so far durable: with the server while it acknowledges, else in the
    /// spool.
    pub(crate) fn flush(&self, timeout: Duration, poll: Poll<'_>) -> FlushOutcome {
        self.tell_progress(true);
        self.settle(timeout, false, poll)
    }

    /// As [`Shared::flush`]; with `last_try` the server is asked once more although it was away.
    fn settle(&self, timeout: Duration, last_try: bool, poll: Poll<'_>) -> FlushOutcome {
        let mut outbox = lock(&self.outbox);
        if outbox.stage == Stage::Closed {
            return outbox.what_was_left();
        }
        self.seal(&mut outbox);
        let sequence = outbox.author.next_sequence - 1;
        self.release(outbox);
        self.wake.notify_one();
        let deadline = Instant::now().checked_add(timeout);
        let is_with_server = self.wait_for_server(sequence, (deadline, last_try), poll);
        let mut outbox = lock(&self.outbox);
        let outcome = match outbox.stage {
            Stage::Closed => outbox.what_was_left(),
            Stage::Open if is_with_server => FlushOutcome::Server,
            Stage::Open => outbox.keep(),
        };
        self.release(outbox);
        outcome
    }

    /// Waits until the server has everything up to `sequence`, as long as it acknowledges.
    fn wait_for_server(&self, sequence: u64, bounds: (Option<Instant>, bool), poll: Poll<'_>) -> bool {
        let (deadline, last_try) = bounds;
        // Two, since one may have been on its way before what is waited for was asked.
        let mut tries_left = if last_try { 2 } else { 0 };
        let mut is_trying = false;
        let mut stalled_at = Instant::now() + STALL;
        let (mut acks, mut last_record) = (None, None);
        loop {
            let mut outbox = lock(&self.outbox);
            if outbox.stage == Stage::Closed {
                return false;
            }
            if outbox.has_left_memory(sequence) {
                // Only from here on is it known how much of the spool has to be gone.
                let last_record = *last_record.get_or_insert(outbox.appended);
                if outbox.consumed >= last_record {
                    return true;
                }
            }
            let now = Instant::now();
            if acks != Some(outbox.acks) {
                (acks, stalled_at) = (Some(outbox.acks), now + STALL);
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return false;
            }
            let is_worth_it = outbox.link.is_up() || (is_trying && outbox.link.may_send(now));
            if !is_worth_it {
                if tries_left == 0 || !outbox.link.try_once_more(now) {
                    return false;
                }
                tries_left -= 1;
                is_trying = true;
                self.wake.notify_one();
            }
            if now >= stalled_at {
                // Nobody shall wait for it again until it answers.
                let why = format!("no answer for {} s", STALL.as_secs());
                let away = Away { why, is_quick: false, retry_after: None, fix: None };
                outbox.turn_away(away);
                return false;
            }
            let left = deadline.map_or(LOOK_EVERY, |deadline| deadline - now);
            drop(Self::pause(&self.settled, outbox, LOOK_EVERY.min(left)));
            if poll() {
                return false;
            }
        }
    }

    /// Ends the session and this process's part of the run.
    pub(crate) fn close(
        &self,
        end: SessionEnd,
        reason: &str,
        timeout: Duration,
        poll: Poll<'_>,
    ) -> CloseOutcome {
        let sampler = lock(&self.sampler).take();
        if let Some(sampler) = sampler {
            sampler.stop();
        }
        if !lock(&self.log).is_closed {
            self.tell_progress(true);
        }
        let event = self.session_event(false, Some(end), reason);
        {
            let mut log = lock(&self.log);
            if std::mem::replace(&mut log.is_closed, true) {
                return CloseOutcome::default();
            }
            log.pending.sessions.push(event);
        }
        self.settle(timeout, true, poll);
        let mut outbox = lock(&self.outbox);
        let outcome = self.leave(&mut outbox);
        outbox.stage = Stage::Closed;
        self.release(outbox);
        self.wake.notify_all();
        outcome
    }

    /// Lets go of the spool; removes it when nothing is in it.
    fn leave(&self, outbox: &mut Outbox) -> CloseOutcome {
        let in_memory = outbox.ready.len() as u64;
        let lost = (in_memory > 0).then(|| {
            let dir = outbox.plan.dir.display();
            format!("{in_memory} batches are lost: neither the server nor {dir} took them")
        });
        let Some(spool) = outbox.spool.take_if(|spool| !spool.is_drained()) else {
            // What can't be removed holds nothing, and whoever finds it next removes it.
            drop(outbox.spool.take().map(spool::Writer::remove));
            return CloseOutcome { undelivered_batches: in_memory, hint: lost, ..CloseOutcome::default() };
        };
        let bytes = spool.bytes_left().unwrap_or_default();
        let batches = spool.records_left();
        let dir = spool.dir().to_owned();
        let to = self.config.url.as_deref().map_or_else(|| "URL".to_owned(), shown_url);
        let here =
            if self.config.url.is_some() { "" } else { ", or `truegauge up` on this machine shows them" };
        let hint = format!(
            "{batches} batches ({bytes} bytes) of this run are not with a server yet: they are in {}; \
             `truegauge sync {} --url {to}` sends them{here}",
            dir.display(),
            dir.display()
        );
        let hint = [Some(hint), lost].into_iter().flatten().collect::<Vec<_>>().join("; ");
        CloseOutcome {
            undelivered_batches: batches + in_memory,
            undelivered_bytes: bytes,
            spool_dir: Some(dir),
            hint: Some(hint),
        }
    }
}

impl Outbox {
    /// Where a closed run's points are.
    fn what_was_left(&self) -> FlushOutcome {
        if self.consumed == self.appended && self.ready.is_empty() {
            return FlushOutcome::Server;
        }
        FlushOutcome::Spool { dir: self.plan.dir.clone() }
    }

    /// Puts all that is in memory into the spool, on the disk.
    fn keep(&mut self) -> FlushOutcome {
        if !self.ready.is_empty() {
            self.spill(true);
        }
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.sync()
        {
            let message = format!("could not sync the spool {}: {error}", self.plan.dir.display());
            self.warnings.push(crate::warning::Warning { cause: "spool_unavailable", message });
            return FlushOutcome::Incomplete { batches: self.ready.len() as u64, points: 0 };
        }
        if self.ready.is_empty() {
            return FlushOutcome::Spool { dir: self.plan.dir.clone() };
        }
        let points = self.ready.iter().map(|sealed| sealed.points).sum();
        FlushOutcome::Incomplete { batches: self.ready.len() as u64, points }
    }
}
