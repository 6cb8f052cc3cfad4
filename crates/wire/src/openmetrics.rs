//! OpenMetrics text, version 1.0.0 (and 0.0.1), read.
//!
//! Strict as its specification is: one space between tokens, no blank lines, no comments beside
//! `HELP`, `TYPE` and `UNIT`, and `# EOF` as the last line, so that a page cut short is noticed.
//! Times are seconds. What the specification asks of a metric as a whole (suffixes by type, grouped
//! families) is not asked here, as Prometheus does not ask it either.

use std::borrow::Cow;
use std::ops::ControlFlow;

use model::MetricKind;

use crate::page::{
    Cursor, Entry, Failure, Fault, Line, PageError, PageLimits, Sample, empty_row, unescape, walk,
};

/// Content type of version 1.0.0.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Most characters in the labels of an exemplar; a longer one is left out, its sample kept.
pub const EXEMPLAR_CHARS_MAX: usize = 128;

/// Reads `page` and hands its entries to `sink` in order; `Break` ends the walk, which is no error.
///
/// On an error the entries before it have been handed out already.
pub fn parse<'a>(
    page: &'a [u8],
    limits: PageLimits,
    mut sink: impl FnMut(Entry<'_, 'a>) -> ControlFlow<()>,
) -> Result<(), PageError> {
    let mut row = empty_row();
    walk(page, limits, true, |cursor| {
        Ok(match cursor.peek() {
            Some(b'#') if eof(cursor)? => Line::End,
            Some(b'#') => Line::Told(declaration(cursor, &mut sink)?),
            Some(b'\n') | None => return cursor.wanted("a sample, a `#` line or `# EOF`"),
            Some(_) => {
                sample(cursor, &mut row)?;
                Line::Told(sink(Entry::Sample(&row)))
            }
        })
    })
}

/// Whether the page ends here as it should.
fn eof(cursor: &mut Cursor<'_>) -> Result<bool, Failure> {
    if !cursor.text[cursor.at..].starts_with("# EOF") {
        return Ok(false);
    }
    cursor.at += "# EOF".len();
    cursor.eat(b'\n');
    if cursor.peek().is_some() { cursor.wanted("nothing behind `# EOF`") } else { Ok(true) }
}

fn sample<'a>(cursor: &mut Cursor<'a>, row: &mut Sample<'a>) -> Result<(), Failure> {
    cursor.sample(row)?;
    row.time_ms = cursor.seconds()?;
    row.exemplar = cursor.exemplar()?.filter(|exemplar| {
        let chars = |text: &str| text.chars().count();
        exemplar.labels.iter().map(|l| chars(&l.name) + chars(&l.value)).sum::<usize>() <= EXEMPLAR_CHARS_MAX
    });
    Ok(())
}

/// `# HELP`, `# TYPE` or `# UNIT`.
fn declaration<'a>(
    cursor: &mut Cursor<'a>,
    sink: &mut impl FnMut(Entry<'_, 'a>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Failure> {
    let rest = &cursor.text[cursor.at..];
    let keyword = ["# HELP ", "# TYPE ", "# UNIT "].into_iter().find(|keyword| rest.starts_with(keyword));
    let Some(keyword) = keyword else {
        return cursor.wanted("`# HELP`, `# TYPE`, `# UNIT` or `# EOF`");
    };
    cursor.at += keyword.len();
    let name_at = cursor.at;
    let metric = cursor.metric_name()?;
    if !cursor.eat(b' ') && cursor.peek() != Some(b'\n') {
        return cursor.wanted("a space behind the metric name");
    }
    let place = cursor.at;
    let text = cursor.rest_of_line()?;
    Ok(match keyword {
        "# HELP " => {
            let text =
                if text.contains('\\') { Cow::Owned(unescape(text, true)) } else { Cow::Borrowed(text) };
            sink(Entry::Help { metric, text })
        }
        "# UNIT " => {
            let fits = metric.strip_suffix(text).is_some_and(|stem| text.is_empty() || stem.ends_with('_'));
            if !fits {
                return Err((name_at, Fault::Unit(text.to_owned())));
            }
            sink(Entry::Unit { metric, unit: text })
        }
        _ => {
            let Some(kind) = MetricKind::named(text) else {
                cursor.at = place;
                return cursor.wanted("an OpenMetrics type");
            };
            sink(Entry::Kind { metric, kind })
        }
    })
}
