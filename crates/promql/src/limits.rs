//! What one query may cost, and how it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::QueryError;

/// Bounds of one query. Each has a name in the error that it causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most samples read, and most values computed by one node of the query.
    pub samples_max: u64,
    /// Most series that one selector may match.
    pub series_max: u64,
    /// Longest time a query may take.
    pub time_max: Duration,
    /// Most bytes that a query may hold at one time: intermediate results, the answer, and the text it
    /// is written as.
    pub memory_max_bytes: u64,
    /// Threads that one query may use.
    pub threads: usize,
}

impl Default for Limits {
    /// Prometheus' defaults for samples and time; 2 GiB, 1,000,000 series, two threads.
    fn default() -> Self {
        Self {
            samples_max: 50_000_000,
            series_max: 1_000_000,
            time_max: Duration::from_mins(2),
            memory_max_bytes: 2 << 30,
            threads: 2,
        }
    }
}

/// Memory that queries share. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    max_bytes: u64,
    taken: AtomicU64,
}

impl Memory {
    /// Memory for queries that together hold at most `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        Self(Arc::new(Pool { max_bytes, taken: AtomicU64::new(0) }))
    }

    /// Takes `bytes` for what a source keeps between queries, until it is dropped; nothing where there is
    /// not as much left.
    pub fn hold(&self, bytes: u64) -> Option<Held> {
        let held = Held { memory: self.clone(), bytes };
        let taken = self.0.taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        (taken <= self.0.max_bytes).then_some(held)
    }

    /// What is held at the moment, bytes.
    pub fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }
}

/// Memory that is held for no query of its own; given back when dropped.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Default for Memory {
    /// No bound of its own.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// Stops a query from outside, for instance when the client hangs up. Clones stop the same query.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that stops nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the query soon.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a query has used so far.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    cancel: Cancel,
    memory: Memory,
    until: Option<Instant>,
    samples: AtomicU64,
    bytes: AtomicU64,
    bytes_peak: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, cancel: &Cancel, memory: &Memory) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            cancel: cancel.clone(),
            memory: memory.clone(),
            until: Instant::now().checked_add(limits.time_max),
            samples: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_peak: AtomicU64::new(0),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.limits.threads.max(1)
    }

    /// An error when the query should stop.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.cancel.is_cancelled() {
            return Err(QueryError::Canceled);
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(QueryError::Timeout { limit: self.limits.time_max });
        }
        Ok(())
    }

    /// Counts samples that were read.
    pub(crate) fn read(&self, samples: u64) -> Result<(), QueryError> {
        let total = self.samples.fetch_add(samples, Ordering::Relaxed).saturating_add(samples);
        if total > self.limits.samples_max {
            return Err(QueryError::TooManySamples { found: total, limit: self.limits.samples_max });
        }
        Ok(())
    }

    pub(crate) fn series(&self, found: u64) -> Result<(), QueryError> {
        if found > self.limits.series_max {
            return Err(QueryError::TooManySeries { found, limit: self.limits.series_max });
        }
        Ok(())
    }

    /// Refuses a node of `series` times `steps` values before anything is allocated.
    pub(crate) fn plan(&self, series: u64, steps: u64) -> Result<(), QueryError> {
        let values = series.saturating_mul(steps);
        if values > self.limits.samples_max {
            return Err(QueryError::TooManySamples { found: values, limit: self.limits.samples_max });
        }
        Ok(())
    }

    /// Takes `bytes` until the charge is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Result<Charge, QueryError> {
        let mut charge = Charge { budget: self.clone(), bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }

    pub(crate) fn samples_read(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.bytes_peak.load(Ordering::Relaxed)
    }
}

/// Memory that is held for a query; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` more.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), QueryError> {
        let budget = &self.budget;
        let add = |to: &AtomicU64| to.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let (found, taken) = (add(&budget.bytes), add(&budget.memory.0.taken));
        self.bytes += bytes;
        budget.bytes_peak.fetch_max(found, Ordering::Relaxed);
        let (limit, limit_of_all) = (budget.limits.memory_max_bytes, budget.memory.0.max_bytes);
        if found > limit {
            return Err(QueryError::TooMuchMemory { found, limit });
        }
        if taken > limit_of_all {
            return Err(QueryError::MemoryTaken { found, others: taken - found, limit: limit_of_all });
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.memory.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
