//! The times of log lines.

use model::NANOS_PER_SECOND;

/// What is known of the machine's clock when its log is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// Now, nanoseconds since 1970.
    pub now_ns: i64,
    /// When the machine was booted, nanoseconds since 1970; unknown for lines of another boot.
    pub boot_ns: Option<i64>,
    /// How far local time is ahead of UTC, minutes.
    pub offset_minutes: i32,
}

/// A time by the calendar, as far as a line tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year, where it is told.
    pub year: Option<i64>,
    /// Month, from 1.
    pub month: u32,
    /// Day, from 1.
    pub day: u32,
    /// Seconds of the day.
    pub second: u32,
    /// Nanoseconds of the second.
    pub nanosecond: u32,
    /// How far it is ahead of UTC, minutes, where it is told.
    pub offset_minutes: Option<i32>,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// How far a line may be ahead of the clock before it is taken for one of last year.
const AHEAD_NS: i64 = 86_400 * NANOS_PER_SECOND;

impl Civil {
    /// Nanoseconds since 1970. Without a year it is the last one in which the time is not to come.
    pub fn unix_ns(&self, clock: &Clock) -> Option<i64> {
        let in_year = |year: i64| {
            let days = days_from_civil(year, i64::from(self.month), i64::from(self.day));
            let offset = i64::from(self.offset_minutes.unwrap_or(clock.offset_minutes)) * 60;
            let seconds =
                days.checked_mul(86_400)?.checked_add(i64::from(self.second))?.checked_sub(offset)?;
            seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(i64::from(self.nanosecond))
        };
        if let Some(year) = self.year {
            return in_year(year);
        }
        let this = year_of(clock.now_ns);
        (this - 1..=this + 1)
            .rev()
            .filter_map(in_year)
            .find(|at| *at <= clock.now_ns.saturating_add(AHEAD_NS))
    }

    /// Reads `Mon Nov  3 02:14:10 2026`, as `dmesg -T` writes it.
    pub(super) fn of_dmesg(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        words.next()?;
        let (month, day, second) = (words.next()?, words.next()?, words.next()?);
        let year = words.next()?.parse().ok()?;
        Self::of_parts(Some(year), month, day, second)
    }

    /// Reads `Nov 03 02:14:09` at the start of a line, as syslog writes it, and what follows.
    pub(super) fn of_syslog(text: &str) -> Option<(Self, &str)> {
        let (month, rest) = text.split_once(' ')?;
        let (day, rest) = rest.trim_start_matches(' ').split_once(' ')?;
        let (second, rest) = rest.split_once(' ')?;
        Some((Self::of_parts(None, month, day, second)?, rest))
    }

    fn of_parts(year: Option<i64>, month: &str, day: &str, second: &str) -> Option<Self> {
        let month = MONTHS.iter().position(|name| *name == month)? as u32 + 1;
        let day = day.parse().ok().filter(|day| (1..=31).contains(day))?;
        let (second, nanosecond) = second_of_day(second)?;
        Some(Self { year, month, day, second, nanosecond, offset_minutes: None })
    }

    /// Reads `2026-11-03T02:14:10,123456+00:00` at the start of a line and what follows.
    pub(super) fn of_iso(text: &str) -> Option<(Self, &str)> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (date, time) = word.split_once('T')?;
        let mut date = date.split('-');
        let year = date.next().filter(|year| year.len() == 4)?.parse().ok()?;
        let month = date.next()?.parse().ok().filter(|month| (1..=12).contains(month))?;
        let day = date.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
        let end = time.find(['+', '-', 'Z']).unwrap_or(time.len());
        let (second, nanosecond) = second_of_day(&time[..end])?;
        let offset_minutes = offset(&time[end..]);
        Some((Self { year: Some(year), month, day, second, nanosecond, offset_minutes }, rest))
    }
}

/// `02:14:10`, with a fraction or without.
fn second_of_day(text: &str) -> Option<(u32, u32)> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let mut part = |max: u32| parts.next()?.parse::<u32>().ok().filter(|value| *value <= max);
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?);
    let digits = |fraction: &str| fraction.bytes().all(|b| b.is_ascii_digit());
    let nanosecond: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    (parts.next().is_none() && digits(fraction))
        .then(|| Some((hour * 3600 + minute * 60 + second, nanosecond.parse().ok()?)))?
}

/// `Z`, `+00:00`, `-0500`; nothing when none is told.
fn offset(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text.get(1..)?.chars().filter(char::is_ascii_digit).collect();
    let value: i32 = (digits.len() == 4).then(|| digits.parse().ok())??;
    Some(sign * (value / 100 * 60 + value % 100))
}

/// Days since 1970 of a day of the Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn year_of(unix_ns: i64) -> i64 {
    let days = unix_ns.div_euclid(86_400 * NANOS_PER_SECOND);
    let guess = 1970 + days.div_euclid(366);
    (guess..=guess + 3 + days.abs() / 100_000)
        .rev()
        .find(|year| days_from_civil(*year, 1, 1) <= days)
        .unwrap_or(guess)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30 12:00 UTC.
    const NOW: Clock = Clock { now_ns: 1_796_040_000 * NANOS_PER_SECOND, boot_ns: None, offset_minutes: 60 };

    #[test]
    fn calendars_are_read_to_the_second() {
        let dmesg = Civil::of_dmesg("Mon Nov  3 02:14:10 2026").unwrap();
        assert_eq!(dmesg.unix_ns(&NOW), Some(1_793_668_450 * NANOS_PER_SECOND), "an hour ahead of UTC");
        let (iso, rest) = Civil::of_iso("2026-11-03T02:14:10,123456+00:00 NVRM: x").unwrap();
        assert_eq!((iso.unix_ns(&NOW), rest), (Some(1_793_672_050_123_456_000), "NVRM: x"));
        let (iso, _) = Civil::of_iso("2026-11-03T02:14:10-0530 h kernel: x").unwrap();
        assert_eq!(iso.offset_minutes, Some(-330));
    }

    #[test]
    fn a_time_without_a_year_is_not_to_come() {
        let (line, rest) = Civil::of_syslog("Nov 03 02:14:09 node-031 kernel: x").unwrap();
        assert_eq!(
            (line.unix_ns(&NOW), rest),
            (Some(1_793_668_449 * NANOS_PER_SECOND), "node-031 kernel: x")
        );
        let (line, _) = Civil::of_syslog("Dec  3 02:14:09 h x").unwrap();
        assert_eq!(line.unix_ns(&NOW), Some(1_764_724_449 * NANOS_PER_SECOND), "of last year");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in
            [((1970, 1, 1), 0), ((2000, 3, 1), 11_017), ((2024, 2, 29), 19_782), ((1969, 12, 31), -1)]
        {
            assert_eq!(days_from_civil(date.0, date.1, date.2), days);
        }
        for (seconds, year) in
            [(0, 1970), (-1, 1969), (1_796_040_000, 2026), (1_767_225_599, 2025), (1_767_225_600, 2026)]
        {
            assert_eq!(year_of(seconds * NANOS_PER_SECOND), year, "{seconds}");
        }
    }
}
