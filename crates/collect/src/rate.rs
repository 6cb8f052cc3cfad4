//! A counter between two ticks.

use std::{path::Path, sync::Arc};

/// The last reading of a counter, with where and when it was taken.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    last: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    source: Arc<Path>,
    value: u64,
    at_ns: u64,
}

/// How far a counter went, and in how many nanoseconds (never 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) value: u64,
    pub(crate) elapsed_ns: u64,
}

impl Rate {
    /// Takes a reading and says how far the counter went since the one before.
    ///
    /// `None` at the first reading, when it comes from another file than the last one, when the
    /// counter went backwards and when no time has passed. The reading is the base of the next in
    /// every case.
    pub(crate) fn advance(&mut self, source: &Arc<Path>, value: u64, at_ns: u64) -> Option<Advance> {
        let last = self.last.replace(Reading { source: Arc::clone(source), value, at_ns })?;
        if last.source != *source {
            return None;
        }
        let value = value.checked_sub(last.value)?;
        let elapsed_ns = at_ns.checked_sub(last.at_ns).filter(|elapsed| *elapsed > 0)?;
        Some(Advance { value, elapsed_ns })
    }
}
