//! Single measurements beside a sample, which tie it to a trace.

use std::fmt::Write as _;

use model::{Exemplar, SeriesIdentity};
use wire::otlp::{Exemplar as Sent, Part, Point, PointValue, names};

use super::families::Family;

/// Most characters of the labels of an exemplar, those of its trace left out; beyond it they are not kept.
const LABEL_CHARS_MAX: usize = 128;

/// The exemplars of a point, each with its series.
pub(super) fn of(family: &Family, point: &Point<'_, '_>) -> Vec<(SeriesIdentity, Exemplar)> {
    let exemplar = |sent: &Sent<'_>| {
        let part = part_of(point, sent.value);
        let identity = SeriesIdentity {
            labels: part.series(&family.labels),
            display: [point.metric.name, part.suffix()].concat(),
        };
        let time_ns = if sent.time_ns > 0 { sent.time_ns } else { point.time_ns };
        (identity, Exemplar { time_ns, value: sent.value, labels: labels(sent) })
    };
    point.exemplars.iter().map(exemplar).collect()
}

/// The series that a measurement belongs to: of a histogram its bucket.
fn part_of(point: &Point<'_, '_>, value: f64) -> Part {
    match &point.value {
        PointValue::Histogram(histogram) => {
            let bounds = histogram.buckets.iter().map(|(bound, _)| *bound);
            Part::Bucket(bounds.into_iter().find(|bound| value <= *bound).unwrap_or(f64::INFINITY))
        }
        PointValue::Summary { .. } => Part::Count,
        PointValue::Number(_) | PointValue::Ended => Part::Value,
    }
}

fn labels(sent: &Sent<'_>) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::new();
    let mut id = |name: &str, bytes: Option<&[u8]>| {
        if let Some(bytes) = bytes {
            labels.push((name.to_owned(), hex(bytes)));
        }
    };
    id("trace_id", sent.trace.as_ref().map(|id| &id[..]));
    id("span_id", sent.span.as_ref().map(|id| &id[..]));
    let mut rest: Vec<(String, String)> = Vec::new();
    for (key, value) in &sent.attributes.list {
        if let (Some(name), Ok(value)) = (names::label(key), value.text()) {
            rest.push((name.into_owned(), value.into_owned()));
        }
    }
    let chars: usize = rest.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    if chars <= LABEL_CHARS_MAX {
        labels.append(&mut rest);
    }
    labels
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String can't fail.
        let _infallible = write!(out, "{byte:02x}");
    }
    out
}
