//! Prometheus' text exposition format, versions 0.0.4 and 1.0.0, read and written.
//!
//! Lenient where Prometheus is: blanks between tokens, blank lines, any comment, no newline at the
//! end. Version 1.0.0 adds quoted UTF-8 names (`{"gpu.power",host="a"} 1`), which are read in both.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::ControlFlow;

use model::MetricKind;

use crate::page::{Cursor, Entry, Failure, Line, PageError, PageLimits, empty_row, unescape, walk};

/// Content type of version 0.0.4, which every scraper reads.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads `page` and hands its entries to `sink` in order; `Break` ends the walk, which is no error.
///
/// On an error the entries before it have been handed out already.
pub fn parse<'a>(
    page: &'a [u8],
    limits: PageLimits,
    mut sink: impl FnMut(Entry<'_, 'a>) -> ControlFlow<()>,
) -> Result<(), PageError> {
    let mut row = empty_row();
    walk(page, limits, false, |cursor| {
        cursor.skip_blanks();
        Ok(match cursor.peek() {
            None => Line::End,
            Some(b'\n') => Line::Empty,
            Some(b'#') => comment(cursor, &mut sink)?,
            Some(_) => {
                cursor.sample(&mut row)?;
                row.time_ms = cursor.milliseconds()?;
                Line::Told(sink(Entry::Sample(&row)))
            }
        })
    })
}

/// `# HELP`, `# TYPE` or a comment, which is skipped.
fn comment<'a>(
    cursor: &mut Cursor<'a>,
    sink: &mut impl FnMut(Entry<'_, 'a>) -> ControlFlow<()>,
) -> Result<Line, Failure> {
    cursor.at += 1;
    let rest = &cursor.text[cursor.at..];
    let word = rest.trim_start_matches([' ', '\t']);
    let blanks = rest.len() - word.len();
    let declares =
        |keyword: &str| word.strip_prefix(keyword).is_some_and(|rest| rest.starts_with([' ', '\t']));
    let (is_help, is_type) = (declares("HELP"), declares("TYPE"));
    if blanks == 0 || !(is_help || is_type) {
        cursor.rest_of_line()?;
        return Ok(Line::Empty);
    }
    cursor.at += blanks + 4;
    cursor.skip_blanks();
    let metric = cursor.metric_name()?;
    if !matches!(cursor.peek(), None | Some(b' ' | b'\t' | b'\n')) {
        return cursor.wanted("a blank behind the metric name");
    }
    cursor.skip_blanks();
    let place = cursor.at;
    let text = cursor.rest_of_line()?;
    if is_help {
        let text = if text.contains('\\') { Cow::Owned(unescape(text, false)) } else { Cow::Borrowed(text) };
        return Ok(Line::Told(sink(Entry::Help { metric, text })));
    }
    let kind = match text.trim_end_matches([' ', '\t']) {
        "counter" => MetricKind::Counter,
        "gauge" => MetricKind::Gauge,
        "histogram" => MetricKind::Histogram,
        "summary" => MetricKind::Summary,
        "untyped" | "unknown" => MetricKind::Unknown,
        _ => {
            cursor.at = place;
            return cursor.wanted("a type (counter, gauge, histogram, summary or untyped)");
        }
    };
    Ok(Line::Told(sink(Entry::Kind { metric, kind })))
}

/// Appends a `# HELP` line.
pub fn write_help(out: &mut String, metric: &str, text: &str) {
    out.push_str("# HELP ");
    write_name(out, metric, true);
    out.push(' ');
    write_escaped(out, text, false);
    out.push('\n');
}

/// Appends a `# TYPE` line; kinds that this format does not know become `untyped`.
pub fn write_type(out: &mut String, metric: &str, kind: MetricKind) {
    out.push_str("# TYPE ");
    write_name(out, metric, true);
    out.push_str(match kind {
        MetricKind::Counter => " counter\n",
        MetricKind::Gauge => " gauge\n",
        MetricKind::Histogram => " histogram\n",
        MetricKind::Summary => " summary\n",
        _ => " untyped\n",
    });
}

/// Appends a sample's line, its name and label names quoted where they must be.
pub fn write_sample<'l>(
    out: &mut String,
    name: &str,
    labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    value: f64,
    time_ms: Option<i64>,
) {
    let is_plain = is_plain(name, true);
    if is_plain {
        out.push_str(name);
    }
    let mut separator = '{';
    if !is_plain {
        out.push('{');
        write_name(out, name, true);
        separator = ',';
    }
    for (name, value) in labels {
        out.push(separator);
        separator = ',';
        write_name(out, name, false);
        out.push_str("=\"");
        write_escaped(out, value, true);
        out.push('"');
    }
    if separator == ',' {
        out.push('}');
    }
    out.push(' ');
    write_number(out, value);
    if let Some(time_ms) = time_ms {
        // Writing to a `String` can't fail.
        _ = write!(out, " {time_ms}");
    }
    out.push('\n');
}

/// Appends a number as Prometheus reads it back to the same bits (one NaN).
pub fn write_number(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a `String` can't fail.
        _ = write!(out, "{value:?}");
        if out.ends_with(".0") {
            out.truncate(out.len() - 2);
        }
    }
}

fn is_plain(name: &str, colons: bool) -> bool {
    let fits = |b: u8| b.is_ascii_alphabetic() || b == b'_' || (colons && b == b':');
    name.bytes().next().is_some_and(fits) && name.bytes().all(|b| fits(b) || b.is_ascii_digit())
}

fn write_name(out: &mut String, name: &str, colons: bool) {
    if is_plain(name, colons) {
        out.push_str(name);
    } else {
        out.push('"');
        write_escaped(out, name, true);
        out.push('"');
    }
}

fn write_escaped(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}
