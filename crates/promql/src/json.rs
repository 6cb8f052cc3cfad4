//! Answers as Prometheus' HTTP API writes them, byte for byte.

use std::fmt::Write as _;

use model::Labels;

use crate::answer::{Answer, Data, Run};
use crate::error::QueryError;
use crate::eval::Grid;
use crate::limits::Charge;
use crate::number::{millis, push_json};

/// Bytes that a sample takes as text, near enough.
const SAMPLE_BYTES: u64 = 28;
/// Samples that are written between two looks at the bounds.
const UNWATCHED: usize = 4_096;

/// An answer as text, and the memory that it holds: what is kept of the text keeps the charge.
#[derive(Debug)]
pub struct Written {
    /// The whole body.
    pub text: String,
    /// Given back when dropped.
    pub charge: Charge,
}

/// Looks at the bounds now and then while text is written; an error stops it.
type Watch<'w> = dyn FnMut(usize) -> Result<(), QueryError> + 'w;

/// Appends the value of `data` in an API answer: `{"resultType":"vector","result":[...]}`.
pub fn write_data(data: &Data, out: &mut String) {
    let done = write_watched(data, out, &mut |_| Ok(()));
    debug_assert!(done.is_ok());
}

fn write_watched(data: &Data, out: &mut String, watch: &mut Watch<'_>) -> Result<(), QueryError> {
    let kind = match data {
        Data::Scalar { .. } => "scalar",
        Data::String { .. } => "string",
        Data::Vector { .. } => "vector",
        Data::Matrix(_) => "matrix",
    };
    out.push_str("{\"resultType\":\"");
    out.push_str(kind);
    out.push_str("\",\"result\":");
    match data {
        Data::Scalar { time_ms, value } => push_point(out, *time_ms, *value),
        Data::String { time_ms, value } => {
            out.push('[');
            push_time(out, *time_ms);
            out.push(',');
            push_text(out, value);
            out.push(']');
        }
        Data::Vector { time_ms, samples } => {
            out.push('[');
            for (at, (labels, value)) in samples.iter().enumerate() {
                if at % UNWATCHED == UNWATCHED - 1 {
                    watch(out.len())?;
                }
                out.push_str(if at == 0 { "{\"metric\":" } else { ",{\"metric\":" });
                push_labels(out, labels);
                out.push_str(",\"value\":");
                push_point(out, *time_ms, *value);
                out.push('}');
            }
            out.push(']');
        }
        Data::Matrix(runs) => push_runs(out, runs, watch)?,
    }
    out.push('}');
    Ok(())
}

fn push_runs(out: &mut String, runs: &[Run], watch: &mut Watch<'_>) -> Result<(), QueryError> {
    let mut unwatched = 0;
    // Series of a range query share their times, so these are written once.
    let mut shared: Option<(Grid, Vec<String>)> = None;
    out.push('[');
    for (at, run) in runs.iter().enumerate() {
        out.push_str(if at == 0 { "{\"metric\":" } else { ",{\"metric\":" });
        push_labels(out, &run.labels);
        out.push_str(",\"values\":[");
        let start = out.len();
        let mut count = |out: &String| {
            unwatched += 1;
            if unwatched < UNWATCHED {
                return Ok(());
            }
            unwatched = 0;
            watch(out.len())
        };
        if let Some((grid, row)) = run.steps() {
            let (_, times) = match &mut shared {
                Some(known) if known.0 == grid => known,
                other => other.insert((grid, grid_times(grid))),
            };
            for (step, value) in row.points() {
                out.push_str(&times[step]);
                push_json(out, value);
                out.push_str("\"],");
                count(out)?;
            }
        } else {
            for (time_ms, value) in run.points() {
                push_point(out, time_ms, value);
                out.push(',');
                count(out)?;
            }
        }
        if out.len() > start {
            out.pop();
        }
        out.push_str("]}");
    }
    out.push(']');
    Ok(())
}

/// The start of a point at each step: `[1435781451.781,"`.
fn grid_times(grid: Grid) -> Vec<String> {
    let text = |step| {
        let mut text = String::from("[");
        push_time(&mut text, millis(grid.at(step)));
        text.push_str(",\"");
        text
    };
    (0..grid.steps).map(text).collect()
}

/// The whole body of an answer to `/api/v1/query` or `/api/v1/query_range`. The bounds of the query hold
/// for it as well: its time goes on, and the text is memory that the query holds.
pub fn write_answer(answer: &Answer) -> Result<Written, QueryError> {
    let budget = &answer.budget;
    budget.check()?;
    let expected = answer.data.count().saturating_mul(SAMPLE_BYTES);
    let mut charge = budget.hold(expected)?;
    let mut watch = |written: usize| {
        budget.check()?;
        charge.grow((written as u64).saturating_sub(charge.bytes()))
    };
    // Growing by doubling would copy a large answer several times.
    let mut text = String::with_capacity(usize::try_from(expected).unwrap_or(0) + 256);
    text.push_str("{\"status\":\"success\",\"data\":");
    write_watched(&answer.data, &mut text, &mut watch)?;
    push_list(&mut text, "warnings", &answer.warnings);
    push_list(&mut text, "infos", &answer.infos);
    text.push('}');
    watch(text.capacity())?;
    Ok(Written { text, charge })
}

fn push_list(out: &mut String, name: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":[");
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_text(out, text);
    }
    out.push(']');
}

/// Appends labels as a JSON object.
pub fn push_labels(out: &mut String, labels: &Labels) {
    out.push('{');
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_text(out, name);
        out.push(':');
        push_text(out, value);
    }
    out.push('}');
}

fn push_point(out: &mut String, time_ms: i64, value: f64) {
    out.push('[');
    push_time(out, time_ms);
    out.push_str(",\"");
    push_json(out, value);
    out.push_str("\"]");
}

/// Appends a time in seconds, with three decimals where there are milliseconds.
fn push_time(out: &mut String, time_ms: i64) {
    let size = time_ms.unsigned_abs();
    let sign = if time_ms < 0 { "-" } else { "" };
    let (seconds, fraction) = (size / 1000, size % 1000);
    let done = if fraction == 0 {
        write!(out, "{sign}{seconds}")
    } else {
        write!(out, "{sign}{seconds}.{fraction:03}")
    };
    debug_assert!(done.is_ok());
}

/// Appends a JSON string.
pub fn push_text(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let c = after.chars().next().unwrap_or_default();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => {
                let done = write!(out, "\\u{:04x}", c as u32);
                debug_assert!(done.is_ok());
            }
        }
        rest = &after[c.len_utf8()..];
    }
    out.push_str(rest);
    out.push('"');
}
