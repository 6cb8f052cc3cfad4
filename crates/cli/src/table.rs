//! Text tables: columns as wide as their widest cell, numbers to the right.

use std::fmt::Write as _;

use crate::output::printable;

/// Longest cell, characters; the rest is cut in the middle.
const CELL_CHARS_MAX: usize = 48;

/// A column's head and whether it holds numbers.
pub(crate) type Column<'a> = (&'a str, bool);

/// Lays rows out under their heads, without trailing spaces.
pub(crate) fn layout(columns: &[Column<'_>], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| shorten(&printable(&cell.replace('\n', " ")))).collect())
        .collect();
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row.get(at).map_or(0, |cell| cell.chars().count()));
        cells.max().unwrap_or(0).max(columns[at].0.chars().count())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let head: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for ((cell, width), (_, right)) in row.iter().zip(&widths).zip(columns) {
            if *right {
                let _ = write!(line, "{cell:>width$}  ");
            } else {
                let _ = write!(line, "{cell:<width$}  ");
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn shorten(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= CELL_CHARS_MAX {
        return text.to_owned();
    }
    let half = (CELL_CHARS_MAX - 1) / 2;
    chars[..half].iter().chain(&['…']).chain(&chars[chars.len() - half..]).collect()
}

/// Seconds as people say them: `42 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// Bytes as people say them.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1_024.0 {
            return if unit == "B" { format!("{amount} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1_024.0;
    }
    format!("{amount:.1} TiB")
}

/// A count with a comma every three digits.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time as `2026-01-31 08:30:15`, UTC.
pub(crate) fn time(time_ms: i64) -> String {
    let seconds = time_ms.div_euclid(1_000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years from March, so that the leap day is the last; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3_600, rest % 3_600 / 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let rows = [vec!["a".into(), "10".into()], vec!["longer".into(), "9".into()]];
        assert_eq!(layout(&[("NAME", false), ("N", true)], &rows), "NAME     N\na       10\nlonger   9\n");
    }

    #[test]
    fn long_and_hostile_cells_stay_on_their_line() {
        let text = layout(&[("X", false)], &[vec!["y".repeat(100)], vec!["a\nb\u{1b}".into()]]);
        assert_eq!(text.lines().nth(1).map(|l| l.chars().count()), Some(47));
        assert_eq!(text.lines().nth(2), Some("a b\\u{1b}"));
    }

    #[test]
    fn amounts_read_as_people_say_them() {
        assert_eq!(duration(5.9), "5 s");
        assert_eq!(duration(3_665.0), "1 h 1 min");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(time(951_825_600_123), "2000-02-29 12:00:00");
        assert_eq!(time(0), "1970-01-01 00:00:00");
    }
}
