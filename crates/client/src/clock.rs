//! The clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use model::NANOS_PER_MILLI;

/// When points were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// As they are taken.
    Now,
    /// As [`When::stamp`] was called.
    Stamped(i64),
    /// At this time, nanoseconds since the epoch.
    At(i64),
}

impl When {
    /// This moment, for points that are taken one after another and were logged together.
    pub fn stamp() -> Self {
        Self::Stamped(now_on_grid())
    }

    /// The stamp, and the time that counts in its place.
    pub(crate) fn read(self) -> (i64, Option<i64>) {
        match self {
            Self::Now => (now_on_grid(), None),
            Self::Stamped(time_ns) => (time_ns, None),
            Self::At(time_ns) => (time_ns, Some(time_ns)),
        }
    }
}

impl From<Option<i64>> for When {
    /// Without a time, now.
    fn from(time_ns: Option<i64>) -> Self {
        time_ns.map_or(Self::Now, Self::At)
    }
}

/// Nanoseconds since the epoch on the millisecond grid, as points are stamped.
pub(crate) fn now_on_grid() -> i64 {
    // Spelt out so that a log call divides 32 bits only; a clock before 1970 stands still at 0.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() as i64 * model::NANOS_PER_SECOND + i64::from(now.subsec_millis()) * NANOS_PER_MILLI
}

/// Nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
    }
}

/// `20261130-014502`, UTC, of a time in nanoseconds since the epoch.
pub(crate) fn compact_utc(time_ns: i64) -> String {
    let seconds = time_ns.div_euclid(model::NANOS_PER_SECOND);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted in eras of 400 years that begin on a 1st of March, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_utc() {
        // date -u -d @1796003102 +%Y%m%d-%H%M%S
        let check = |seconds: i64, want: &str| {
            assert_eq!(compact_utc(seconds * model::NANOS_PER_SECOND), want);
        };
        check(0, "19700101-000000");
        check(951_782_400, "20000229-000000");
        check(1_796_003_102, "20261130-014502");
        check(4_107_542_399, "21000228-235959");
        check(4_107_542_400, "21000301-000000");
    }

    #[test]
    fn stamps_stand_on_the_millisecond() {
        assert_eq!(now_on_grid() % NANOS_PER_MILLI, 0);
    }
}
