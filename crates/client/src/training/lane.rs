//! What waits for one endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes that wait for an endpoint.
const BYTES_MAX: usize = 16 << 20;
/// Most batches that wait for it.
const BATCHES_MAX: usize = 4_096;
/// First and longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Longest pause that a backend can ask for.
const ASKED_MAX: Duration = Duration::from_mins(5);

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Spans,
    Records,
}

impl Signal {
    /// In a message.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Metrics => "data points",
            Self::Spans => "spans",
            Self::Records => "log records",
        }
    }
}

/// A request that waits, or lines for the console.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) body: Vec<u8>,
    /// Points, spans or records in it.
    pub(crate) items: u64,
}

/// What came of sending a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was taken, but for what was rejected.
    Taken { rejected: u64, message: String },
    /// The same may come later.
    Later {
        why: String,
        /// The backend's wish.
        after: Option<Duration>,
        /// Nobody answered, so that trying again at once is no use.
        is_unreachable: bool,
    },
    /// It won't ever be taken.
    Never(String),
}

/// The way to one endpoint.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) signal: Signal,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    /// Until when nothing is tried.
    pub(crate) retry_at: Option<Instant>,
    failures: u32,
    /// The flush during which it failed last.
    pub(crate) failed_flush: u64,
    /// Nothing more is tried: the end is near.
    pub(crate) is_given_up: bool,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl Lane {
    pub(crate) fn new(signal: Signal) -> Self {
        Self {
            signal,
            batches: VecDeque::new(),
            bytes: 0,
            retry_at: None,
            failures: 0,
            failed_flush: 0,
            is_given_up: false,
            sent: 0,
            lost: 0,
        }
    }

    /// Adds a batch; the oldest make way where there is no room.
    pub(crate) fn push(&mut self, batch: Batch) {
        self.bytes += batch.body.len();
        self.batches.push_back(Arc::new(batch));
        while self.batches.len() > BATCHES_MAX || (self.bytes > BYTES_MAX && self.batches.len() > 1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= batch.body.len();
            self.lost += batch.items;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The oldest batch, if it may be sent now.
    pub(crate) fn next(&self, now: Instant) -> Option<Arc<Batch>> {
        let may_send = !self.is_given_up && self.retry_at.is_none_or(|at| at <= now);
        self.batches.front().filter(|_| may_send).map(Arc::clone)
    }

    /// Takes a batch off, unless it has made way meanwhile.
    fn done(&mut self, batch: &Arc<Batch>) -> bool {
        let is_here = self.batches.front().is_some_and(|front| Arc::ptr_eq(front, batch));
        if is_here && let Some(batch) = self.batches.pop_front() {
            self.bytes -= batch.body.len();
        }
        self.failures = 0;
        self.retry_at = None;
        is_here
    }

    /// The batch was taken.
    pub(crate) fn taken(&mut self, batch: &Arc<Batch>, rejected: u64) {
        let was_lost = !self.done(batch);
        let rejected = rejected.min(batch.items);
        if was_lost {
            // Counted as lost when it made way, and it has arrived after all.
            self.lost = self.lost.saturating_sub(batch.items);
        }
        self.sent += batch.items - rejected;
        self.lost += rejected;
    }

    /// The batch won't be taken.
    pub(crate) fn refused(&mut self, batch: &Arc<Batch>) {
        if self.done(batch) {
            self.lost += batch.items;
        }
    }

    /// The batch may come later: after the time asked for, else after a growing pause, which `jitter`
    /// (0 to 1) spreads so that ranks don't come all at once.
    pub(crate) fn later(&mut self, after: Option<Duration>, jitter: f64, now: Instant) {
        let doubled = BACKOFF.0.saturating_mul(1 << self.failures.min(10)).min(BACKOFF.1);
        self.failures += 1;
        let pause = after.map_or_else(|| doubled.mul_f64(0.8 + 0.4 * jitter), |asked| asked.min(ASKED_MAX));
        self.retry_at = Some(now + pause);
    }

    /// Gives everything that waits up.
    pub(crate) fn abandon(&mut self) {
        while !self.is_empty() {
            self.drop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(lane: &Lane) -> u64 {
        lane.batches.iter().map(|batch| batch.items).sum()
    }

    fn lane(batches: u64) -> Lane {
        let mut lane = Lane::new(Signal::Metrics);
        for items in 1..=batches {
            lane.push(Batch { body: vec![0; 10], items });
        }
        lane
    }

    #[test]
    fn batches_leave_in_order_and_are_counted() {
        let (mut lane, now) = (lane(3), Instant::now());
        let first = lane.next(now).unwrap();
        lane.taken(&first, 0);
        let second = lane.next(now).unwrap();
        lane.taken(&second, 1);
        let third = lane.next(now).unwrap();
        lane.refused(&third);
        assert_eq!((lane.sent, lane.lost, waiting(&lane), lane.bytes), (2, 4, 0, 0));
    }

    #[test]
    fn pauses_grow_and_the_backend_is_obeyed() {
        let (mut lane, now) = (lane(1), Instant::now());
        let mut pause = |after| {
            lane.later(after, 0.5, now);
            assert!(lane.next(now).is_none());
            lane.retry_at.unwrap() - now
        };
        assert_eq!([pause(None), pause(None), pause(None)].map(|p| p.as_secs()), [1, 2, 4]);
        assert_eq!(pause(Some(Duration::from_millis(50))), Duration::from_millis(50));
        assert_eq!(pause(Some(Duration::from_hours(2))), ASKED_MAX);
        (0..20).for_each(|_| _ = pause(None));
        assert_eq!(pause(None), BACKOFF.1);
    }

    #[test]
    fn oldest_make_way_and_one_that_arrives_after_all_is_not_lost() {
        let mut lane = Lane::new(Signal::Spans);
        lane.push(Batch { body: vec![0; BYTES_MAX - 1], items: 1 });
        let sending = lane.next(Instant::now()).unwrap();
        lane.push(Batch { body: vec![0; 2], items: 5 });
        assert_eq!((lane.lost, waiting(&lane)), (1, 5));
        lane.taken(&sending, 0);
        assert_eq!((lane.sent, lane.lost, waiting(&lane)), (1, 0, 5));
        lane.abandon();
        assert_eq!((lane.lost, waiting(&lane), lane.bytes), (5, 0, 0));
    }
}
