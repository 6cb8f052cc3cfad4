//! What both text formats share in tests: pages as owned rows.

use std::ops::ControlFlow;

use model::MetricKind;
use wire::page::{Entry, PageError, PageLimits};

/// An entry that owns itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Row {
    Sample { name: String, labels: Vec<(String, String)>, bits: u64, time_ms: Option<i64>, exemplar: String },
    Kind(String, MetricKind),
    Help(String, String),
    Unit(String, String),
}

impl Row {
    pub(crate) fn of(entry: &Entry<'_, '_>) -> Self {
        match entry {
            Entry::Sample(sample) => Self::Sample {
                name: sample.name.to_string(),
                labels: sample.labels.iter().map(|l| (l.name.to_string(), l.value.to_string())).collect(),
                bits: sample.value.to_bits(),
                time_ms: sample.time_ms,
                exemplar: sample.exemplar.as_ref().map(|e| format!("{e:?}")).unwrap_or_default(),
            },
            Entry::Kind { metric, kind } => Self::Kind(metric.to_string(), *kind),
            Entry::Help { metric, text } => Self::Help(metric.to_string(), text.to_string()),
            Entry::Unit { metric, unit } => Self::Unit(metric.to_string(), (*unit).to_owned()),
        }
    }
}

/// A plain sample without labels and time.
pub(crate) fn sample(name: &str, labels: &[(&str, &str)], value: f64, time_ms: Option<i64>) -> Row {
    Row::Sample {
        name: name.into(),
        labels: labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        bits: value.to_bits(),
        time_ms,
        exemplar: String::new(),
    }
}

pub(crate) fn text(page: &str) -> Result<Vec<Row>, PageError> {
    text_bytes(page.as_bytes(), PageLimits::default())
}

pub(crate) fn text_bytes(page: &[u8], limits: PageLimits) -> Result<Vec<Row>, PageError> {
    let mut rows = Vec::new();
    wire::exposition::parse(page, limits, |entry| {
        rows.push(Row::of(&entry));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

pub(crate) fn openmetrics(page: &str) -> Result<Vec<Row>, PageError> {
    let mut rows = Vec::new();
    wire::openmetrics::parse(page.as_bytes(), PageLimits::default(), |entry| {
        rows.push(Row::of(&entry));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}
