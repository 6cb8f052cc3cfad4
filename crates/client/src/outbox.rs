//! Requests between being made and being acknowledged: a few in memory, the rest in the spool.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use spool::{AppendError, Writer};

use crate::batch::{Author, Sealed};
use crate::log::Point;
use crate::transport::Away;
use crate::warning::Warning;

/// Bytes of requests that wait in memory before the spool takes them, or when it refuses them.
const READY_BYTES_MAX: usize = 1 << 20;
/// First and longest pause between two tries.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));
/// Pause between two looks for a server that nobody named.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Whether the server is to be had.
#[derive(Debug)]
pub(crate) enum Link {
    /// It answered last, or has not been asked.
    Up,
    /// It did not.
    Away { retry_at: Instant, backoff: Duration, away: Away },
    /// Nothing is ever sent.
    Offline,
}

impl Link {
    /// The state behind a failure.
    pub(crate) fn failed(&self, away: Away, is_known: bool, now: Instant) -> Self {
        let backoff = match self {
            Self::Away { backoff, .. } => (*backoff * 2).min(BACKOFF.1),
            _ => BACKOFF.0,
        };
        let backoff = if away.fix.is_some() { BACKOFF.1 } else { backoff };
        let pause = if is_known { backoff } else { LOOK_AGAIN };
        let retry_at = now + away.retry_after.map_or(pause, |wish| wish.clamp(pause, BACKOFF.1.max(pause)));
        Self::Away { retry_at, backoff, away }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }

    /// Whether something may be sent at `now`.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        match self {
            Self::Up => true,
            Self::Away { retry_at, .. } => now >= *retry_at,
            Self::Offline => false,
        }
    }

    /// Allows one try at once if the last one showed quickly that nobody is there; says whether.
    pub(crate) fn try_once_more(&mut self, now: Instant) -> bool {
        match self {
            Self::Away { retry_at, away, .. } if away.is_quick => {
                *retry_at = now;
                true
            }
            _ => false,
        }
    }
}

/// How to make the spool when it is needed.
#[derive(Debug)]
pub(crate) struct SpoolPlan {
    pub(crate) dir: PathBuf,
    pub(crate) header: Vec<u8>,
    pub(crate) options: spool::Options,
}

/// How far the run's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    Closed,
}

/// Behind the lock that delivery, flush and a full queue take, never the hot path.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) author: Author,
    pub(crate) ready: VecDeque<Sealed>,
    /// Sequence of the request that is on the wire, if it is one of `ready`.
    pub(crate) in_flight: Option<u64>,
    /// The other buffer of points, empty.
    pub(crate) spare: Vec<Point>,
    pub(crate) plan: SpoolPlan,
    pub(crate) spool: Option<Writer>,
    /// The oldest record of the spool, read and not acknowledged.
    pub(crate) held: Option<spool::Record>,
    /// Points of the records in the spool, oldest first.
    spooled_points: VecDeque<u64>,
    /// Records that went into the spool and out again.
    pub(crate) appended: u64,
    pub(crate) consumed: u64,
    pub(crate) link: Link,
    /// Somebody named the server, or it has answered: it is asked again soon when it goes.
    pub(crate) is_known: bool,
    /// Acknowledgements so far.
    pub(crate) acks: u64,
    pub(crate) delivered: u64,
    pub(crate) spooled: u64,
    pub(crate) sealed_at: Instant,
    pub(crate) heartbeat_at: Instant,
    pub(crate) stage: Stage,
    /// To be said when the lock is gone.
    pub(crate) warnings: Vec<Warning>,
    /// Points lost since the lock was taken: reason, count, example.
    pub(crate) lost: Vec<(&'static str, u64, String)>,
    /// Points that the server did not take, since the lock was taken: reason, count.
    pub(crate) refusals: Vec<(String, u64)>,
}

impl Outbox {
    pub(crate) fn new(author: Author, plan: SpoolPlan, link: Link, spare: Vec<Point>) -> Self {
        let now = Instant::now();
        Self {
            author,
            ready: VecDeque::new(),
            in_flight: None,
            spare,
            plan,
            spool: None,
            held: None,
            spooled_points: VecDeque::new(),
            appended: 0,
            consumed: 0,
            is_known: link.is_up(),
            link,
            acks: 0,
            delivered: 0,
            spooled: 0,
            sealed_at: now,
            heartbeat_at: now,
            stage: Stage::Open,
            warnings: Vec::new(),
            lost: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Notes that the server is not to be had.
    pub(crate) fn turn_away(&mut self, away: Away) {
        self.link = self.link.failed(away, self.is_known, Instant::now());
    }

    /// Notes that the server has answered.
    pub(crate) fn acknowledge(&mut self) {
        self.acks += 1;
        self.link = Link::Up;
        self.is_known = true;
    }

    /// Whether the spool holds records.
    pub(crate) fn has_backlog(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_drained())
    }

    /// Whether new requests have to go to the spool: the server is away, or older ones are there.
    pub(crate) fn goes_to_spool(&self) -> bool {
        !self.link.is_up() || self.has_backlog()
    }

    /// Whether more waits in memory than should.
    pub(crate) fn is_crowded(&self) -> bool {
        self.ready.iter().map(|sealed| sealed.bytes.len()).sum::<usize>() > READY_BYTES_MAX
    }

    /// Moves waiting requests into the spool; the one on the wire too if `all`. What the spool
    /// refuses stays in memory as long as there is room, and is then lost and counted.
    pub(crate) fn spill(&mut self, all: bool) {
        let mut kept = VecDeque::new();
        let mut refusal = None;
        while let Some(sealed) = self.ready.pop_front() {
            if refusal.is_some() || (!all && self.in_flight == Some(sealed.sequence)) {
                kept.push_back(sealed);
                continue;
            }
            match self.append(&sealed) {
                Ok(()) => {}
                Err(why) => {
                    refusal = Some(why);
                    kept.push_back(sealed);
                }
            }
        }
        self.ready = kept;
        let Some((reason, why)) = refusal else { return };
        self.warnings.push(Warning { cause: reason, message: why.clone() });
        while self.is_crowded() {
            // The newest points go; what was said of the run, and of points lost before, stays.
            let newest = self.ready.iter().rposition(|sealed| sealed.points > 0);
            let Some(sealed) = self.ready.remove(newest.unwrap_or(self.ready.len() - 1)) else { break };
            self.lost.push((reason, sealed.points, why.clone()));
        }
    }

    fn append(&mut self, sealed: &Sealed) -> Result<(), (&'static str, String)> {
        if self.spool.is_none() {
            let made = Writer::create(&self.plan.dir, &self.plan.header, self.plan.options);
            self.spool = Some(made.map_err(|e| ("spool_unavailable", format!("{e}: points may be lost")))?);
        }
        let Some(spool) = &mut self.spool else { return Ok(()) };
        spool.append(&sealed.bytes).map_err(|e| match e {
            AppendError::Full { .. } => ("spool_full", format!("{e}: points may be lost")),
            _ => ("spool_unavailable", format!("{e}: points may be lost")),
        })?;
        self.appended += 1;
        self.spooled += sealed.points;
        self.spooled_points.push_back(sealed.points);
        Ok(())
    }

    /// The oldest record of the spool.
    pub(crate) fn oldest_record(&mut self) -> Option<spool::Record> {
        if self.held.is_none() {
            let spool = self.spool.as_mut().filter(|spool| !spool.is_drained())?;
            let read = spool.next();
            let damage = spool.take_damage();
            for part in damage {
                self.lost.push(("spool_damage", 0, part.to_string()));
                self.warnings.push(Warning { cause: "spool_damage", message: part.to_string() });
            }
            match read {
                Ok(record) => self.held = record,
                Err(error) => {
                    self.warnings.push(Warning { cause: "spool_unavailable", message: error.to_string() });
                }
            }
        }
        self.held.clone()
    }

    /// The oldest record is done with; its points.
    pub(crate) fn consume_oldest(&mut self) -> u64 {
        let Some(record) = self.held.take() else { return 0 };
        self.consumed += 1;
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.consume(record.position)
        {
            self.warnings.push(Warning { cause: "spool_unavailable", message: error.to_string() });
        }
        if !self.has_backlog() {
            self.consumed = self.appended;
        }
        self.spooled_points.pop_front().unwrap_or_default()
    }

    /// Whether every request up to `sequence` has left memory.
    pub(crate) fn has_left_memory(&self, sequence: u64) -> bool {
        self.ready.iter().all(|sealed| sealed.sequence > sequence)
    }

    /// Bytes in the spool that are not acknowledged.
    pub(crate) fn spool_bytes(&self) -> u64 {
        self.spool.as_ref().and_then(|spool| spool.bytes_left().ok()).unwrap_or_default()
    }
}
