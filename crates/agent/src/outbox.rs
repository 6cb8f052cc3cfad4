//! What waits for the server: on disk, and in memory only while the disk takes nothing.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spool::{AppendError, Options, Position, Writer};

/// Most bytes that wait in memory.
const MEMORY_BYTES_MAX: usize = 8 << 20;
/// A spool's file is closed at this size, so that what was delivered goes from the disk in time.
const SEGMENT_BYTES: u64 = 4 << 20;
/// What a machine that dies may take along while the server is away.
const SYNC_EVERY: Duration = Duration::from_secs(30);

/// How well a request is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// On disk.
    Disk,
    /// In memory, as long as this process lives.
    Memory,
    /// Not at all.
    Lost,
}

/// A request on its way.
pub(crate) enum Job {
    /// The oldest record of the spool.
    Spooled(Vec<u8>, Position),
    /// The oldest in memory.
    Memory(Vec<u8>),
}

impl Job {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Spooled(bytes, _) | Self::Memory(bytes) => bytes,
        }
    }
}

/// What an outbox has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) spool_full: u64,
    pub(crate) spool_unavailable: u64,
    pub(crate) refused_batch: u64,
    pub(crate) refused: u64,
    pub(crate) spool_damage: u64,
}

#[derive(Debug)]
struct Inner {
    spool: Option<Writer>,
    /// Request and its points, in order; all are younger than those of the spool.
    waiting: VecDeque<(Vec<u8>, u64)>,
    waiting_bytes: usize,
    synced: Instant,
    is_full_said: bool,
    counts: Counts,
    /// Until when what waits may still go out; set when the agent ends.
    closing: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    dir: PathBuf,
    options: Options,
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl Outbox {
    /// An outbox whose spool is `dir`, made when it is needed.
    pub(crate) fn new(dir: &Path, bytes_max: u64) -> Self {
        let options = Options { segment_bytes: SEGMENT_BYTES.min(bytes_max), bytes_max };
        let inner = Inner {
            spool: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            synced: Instant::now(),
            is_full_said: false,
            counts: Counts::default(),
            closing: None,
        };
        Self { dir: dir.to_owned(), options, inner: Mutex::new(inner), wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in, `points` of it.
    pub(crate) fn put(&self, bytes: Vec<u8>, points: u64) -> Kept {
        let mut inner = self.lock();
        inner.waiting_bytes += bytes.len();
        inner.waiting.push_back((bytes, points));
        let outcome = self.spill(&mut inner);
        self.wake.notify_all();
        let Err(reason) = outcome else { return Kept::Disk };
        if inner.waiting_bytes <= MEMORY_BYTES_MAX {
            return Kept::Memory;
        }
        // The newest goes: what happened first explains more, and what is on its way stays in its place.
        if let Some((bytes, points)) = inner.waiting.pop_back() {
            inner.waiting_bytes -= bytes.len();
            let counts = &mut inner.counts;
            *(if reason { &mut counts.spool_full } else { &mut counts.spool_unavailable }) += points;
        }
        Kept::Lost
    }

    /// Moves what is in memory to the disk; an error says whether it is that the spool is full.
    fn spill(&self, inner: &mut Inner) -> Result<(), bool> {
        while let Some((bytes, _)) = inner.waiting.front() {
            if inner.spool.is_none() {
                match Writer::create(&self.dir, b"{\"writer\":\"truegauge agent\"}", self.options) {
                    Ok(writer) => inner.spool = Some(writer),
                    Err(error) => {
                        say_once(inner, &error.to_string());
                        return Err(false);
                    }
                }
            }
            let Some(spool) = &mut inner.spool else { return Err(false) };
            if let Err(error) = spool.append(bytes) {
                say_once(inner, &error.to_string());
                return Err(matches!(error, AppendError::Full { .. }));
            }
            let length = bytes.len();
            inner.waiting_bytes -= length;
            inner.waiting.pop_front();
        }
        inner.is_full_said = false;
        if let Some(spool) = &mut inner.spool
            && spool.records_left() > 1
            && inner.synced.elapsed() >= SYNC_EVERY
        {
            inner.synced = Instant::now();
            // Unsynced it still outlives the process.
            let _ = spool.sync();
        }
        Ok(())
    }

    /// The oldest request, waited for; `None` when the agent ends and nothing is left, or no time.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut inner = self.lock();
        loop {
            if inner.closing.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
            if let Some(job) = inner.oldest() {
                return Some(job);
            }
            if inner.closing.is_some() {
                return None;
            }
            inner = self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A request needs no further attempt.
    pub(crate) fn done(&self, job: &Job) {
        let mut inner = self.lock();
        match job {
            Job::Memory(sent) => {
                if let Some(at) = inner.waiting.iter().position(|(bytes, _)| bytes == sent) {
                    inner.waiting_bytes -= sent.len();
                    inner.waiting.remove(at);
                }
            }
            Job::Spooled(_, position) => {
                if let Some(spool) = &mut inner.spool
                    && let Err(error) = spool.consume(*position)
                {
                    // It comes again after a start, and the server knows it.
                    tracing::debug!("cannot tidy the spool: {error}");
                }
            }
        }
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.lock().counts);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Bytes on disk that wait.
    pub(crate) fn spool_bytes(&self) -> u64 {
        self.lock().spool.as_ref().and_then(|spool| spool.bytes_left().ok()).unwrap_or_default()
    }

    /// Waits, at most this long or until the agent ends; false when there is no time left.
    pub(crate) fn pause(&self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        let mut inner = self.lock();
        loop {
            let now = Instant::now();
            if inner.closing.is_some_and(|end| now >= end) {
                return false;
            }
            let until = inner.closing.map_or(end, |closing| closing.min(end));
            if now >= end {
                return true;
            }
            inner = self.wake.wait_timeout(inner, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What waits has so much time left.
    pub(crate) fn close(&self, within: Duration) {
        self.lock().closing = Some(Instant::now() + within);
        self.wake.notify_all();
    }

    /// Removes the spool when all of it was delivered.
    pub(crate) fn tidy(&self) {
        let mut inner = self.lock();
        let Some(spool) = inner.spool.take() else { return };
        if spool.is_drained() {
            // An empty directory that stays does no harm.
            let _ = spool.remove();
        }
    }
}

impl Inner {
    fn oldest(&mut self) -> Option<Job> {
        if let Some(spool) = &mut self.spool {
            let next = spool.next();
            self.counts.spool_damage += spool.take_damage().len() as u64;
            match next {
                Ok(Some(record)) => return Some(Job::Spooled(record.bytes, record.position)),
                Ok(None) => {}
                Err(error) => tracing::debug!("cannot read the spool: {error}"),
            }
        }
        self.waiting.front().map(|(bytes, _)| Job::Memory(bytes.clone()))
    }
}

fn say_once(inner: &mut Inner, words: &str) {
    if !inner.is_full_said {
        tracing::warn!("what the server has not taken waits in memory: {words}");
        inner.is_full_said = true;
    }
}
