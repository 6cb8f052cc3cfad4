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

/// Days from 1970-01-01 to a date, counted in years that begin in March, so that the leap day is last.
pub(crate) fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A time as RFC 3339 writes it, to the millisecond, UTC.
pub(crate) fn rfc3339(time_ms: i64) -> String {
    let (days, rest) = (time_ms.div_euclid(86_400_000), time_ms.rem_euclid(86_400_000));
    // A year has 365.2425 days; the guess is at most one off.
    let guess = 1970 + days * 400 / 146_097;
    let year =
        (guess - 1..=guess + 1).rev().find(|year| days_since_epoch(*year, 1, 1) <= days).unwrap_or(guess);
    let month = (1..=12).rev().find(|month| days_since_epoch(year, *month, 1) <= days).unwrap_or(1);
    let day = days - days_since_epoch(year, month, 1) + 1;
    let (seconds, millis) = (rest / 1_000, rest % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendars() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_825_600_123), "2000-02-29T12:00:00.123Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(1_798_761_599_000), "2026-12-31T23:59:59.000Z");
        for days in (-200_000..200_000).step_by(97) {
            let text = rfc3339(days * 86_400_000);
            let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
            assert_eq!(days_since_epoch(part(0..4), part(5..7), part(8..10)), days, "{text}");
        }
    }
}
