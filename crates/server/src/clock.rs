//! The wall clock, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use model::NANOS_PER_MILLI;

/// Now, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Now, in milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    to_ms(now_ns())
}

/// Nanoseconds to whole milliseconds, downwards.
pub(crate) fn to_ms(time_ns: i64) -> i64 {
    time_ns.div_euclid(NANOS_PER_MILLI)
}
