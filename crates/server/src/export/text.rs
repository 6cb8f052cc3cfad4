//! Points as lines: CSV and NDJSON.

use std::fmt::Write as _;

use super::columns::{Columns, FIXED};
use super::{Head, Rows};
use crate::clock::rfc3339;

const DAY_NS: i64 = 86_400 * model::NANOS_PER_SECOND;

/// Writes lines.
pub(super) struct Text {
    is_csv: bool,
    /// What stands above the first line, until it is written.
    head: String,
    dates: Dates,
}

impl Text {
    /// Comma-separated values with a head.
    pub(super) fn csv(columns: &Columns) -> Self {
        let labels = columns.labels.iter().map(|one| cell(&one.column));
        let all: Vec<String> = FIXED.map(str::to_owned).into_iter().chain(labels).collect();
        Self { is_csv: true, head: all.join(",") + "\n", dates: Dates::default() }
    }

    /// One JSON object a line.
    pub(super) fn ndjson(_columns: &Columns) -> Self {
        Self { is_csv: false, head: String::new(), dates: Dates::default() }
    }

    /// The next lines.
    pub(super) fn write(&mut self, columns: &Columns, rows: &Rows) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.head);
        let mut at = 0;
        for head in &rows.heads {
            let (start, end) = if self.is_csv { csv_ends(columns, head) } else { json_ends(columns, head) };
            for row in at..at + head.points {
                out.push_str(&start);
                self.dates.push(&mut out, rows.times_ns[row]);
                let (step, attempt, value) = (rows.steps[row], rows.attempts[row], rows.values[row]);
                let _ = if self.is_csv {
                    let step = step.map(|step| step.to_string()).unwrap_or_default();
                    let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
                    write!(out, ",{step},{attempt},{}", number(value))
                } else {
                    let step = step.map_or_else(|| "null".to_owned(), |step| step.to_string());
                    let attempt = attempt.map_or_else(|| "null".to_owned(), |attempt| attempt.to_string());
                    let value = crate::api::json_number(value);
                    write!(out, "\",\"step\":{step},\"attempt\":{attempt},\"value\":{value}")
                };
                out.push_str(&end);
            }
            at += head.points;
        }
        out.into_bytes()
    }
}

/// What stands before the time and after the value on every line of a series.
fn csv_ends(columns: &Columns, head: &Head) -> (String, String) {
    let mut end = String::new();
    for one in &columns.labels {
        end.push(',');
        end.push_str(&cell(head.labels.get(&one.label).unwrap_or_default()));
    }
    end.push('\n');
    (cell(&head.metric) + ",", end)
}

fn json_ends(columns: &Columns, head: &Head) -> (String, String) {
    let json = |text: &str| serde_json::Value::from(text).to_string();
    let mut end = String::new();
    for one in &columns.labels {
        if let Some(value) = head.labels.get(&one.label) {
            let _ = write!(end, ",{}:{}", json(&one.column), json(value));
        }
    }
    end.push_str("}\n");
    (format!("{{\"metric\":{},\"time\":\"", json(&head.metric)), end)
}

/// Writes times; the date of the last one is kept.
#[derive(Default)]
struct Dates {
    day: Option<i64>,
    date: String,
}

impl Dates {
    /// RFC 3339 to the nanosecond, UTC.
    fn push(&mut self, out: &mut String, time_ns: i64) {
        let (day, rest) = (time_ns.div_euclid(DAY_NS), time_ns.rem_euclid(DAY_NS));
        if self.day != Some(day) {
            let date = rfc3339(day * 86_400_000);
            date.split_inclusive('T').next().unwrap_or_default().clone_into(&mut self.date);
            self.day = Some(day);
        }
        let (seconds, nanos) = (rest / model::NANOS_PER_SECOND, rest % model::NANOS_PER_SECOND);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let _ = write!(out, "{}{hour:02}:{minute:02}:{second:02}.{nanos:09}Z", self.date);
    }
}

/// The shortest text that reads back as the same number.
pub(crate) fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        format!("{value:?}")
    }
}

/// A text cell. A leading `=`, `+`, `-` or `@` gets a quote mark in front, so that no spreadsheet
/// takes a metric's name for a formula.
pub(crate) fn cell(text: &str) -> String {
    let text =
        if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        assert_eq!(cell("loss"), "loss");
        assert_eq!(cell("rank=\"1\""), "\"rank=\"\"1\"\"\"");
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("@a,b"), "\"'@a,b\"");
    }

    #[test]
    fn numbers_read_back_the_same() {
        for value in [0.1, -1e-300, 1e308, 5.0, f64::MIN_POSITIVE] {
            assert_eq!(number(value).parse::<f64>(), Ok(value));
        }
        assert_eq!(number(f64::NEG_INFINITY), "-Inf");
    }

    #[test]
    fn times_are_exact_on_both_sides_of_a_day() {
        let mut dates = Dates::default();
        let mut shown = |time_ns| {
            let mut out = String::new();
            dates.push(&mut out, time_ns);
            out
        };
        assert_eq!(shown(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(shown(951_825_600_123_000_001), "2000-02-29T12:00:00.123000001Z");
    }
}
