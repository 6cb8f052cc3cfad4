//! What the page parser and the sink of a scraper look like. The parser itself comes from outside.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, MetricKind, Sample};

/// The format of a page, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics text.
    OpenMetrics,
}

/// One thing that a page says.
pub enum PageEntry<'a> {
    /// A sample.
    Sample(PageSample<'a>),
    /// A metric's type.
    Kind {
        /// The metric.
        metric: &'a str,
        /// The type.
        kind: MetricKind,
    },
    /// A metric's help text.
    Help {
        /// The metric.
        metric: &'a str,
        /// The text.
        text: &'a str,
    },
    /// A metric's unit.
    Unit {
        /// The metric.
        metric: &'a str,
        /// The unit.
        unit: &'a str,
    },
}

/// A sample of a page.
pub struct PageSample<'a> {
    /// The series as the page spells it: the same text is the same series.
    pub series: &'a str,
    /// The metric's name.
    pub name: &'a str,
    /// Labels, names unique; read only for a series that the page before did not have.
    pub labels: &'a mut dyn Iterator<Item = (&'a str, &'a str)>,
    /// The value.
    pub value: f64,
    /// The page's own time, milliseconds since the epoch.
    pub time_ms: Option<i64>,
    /// An example of what was observed.
    pub exemplar: Option<PageExemplar<'a>>,
}

/// An example of what a sample counts.
#[derive(Debug, Clone, PartialEq)]
pub struct PageExemplar<'a> {
    /// Its labels.
    pub labels: Vec<(&'a str, &'a str)>,
    /// The observed value.
    pub value: f64,
    /// When, milliseconds since the epoch.
    pub time_ms: Option<i64>,
}

/// Takes one entry; `Break` ends the page early.
pub type TakeEntry<'t> = dyn FnMut(PageEntry<'_>) -> ControlFlow<()> + 't;

/// Reads a page and hands its entries out in order; an error is one line that says where and what.
///
/// It must bound what it does by the page's length: the page is hostile. It must not panic.
pub type PageParser = dyn Fn(PageFormat, &[u8], &mut TakeEntry<'_>) -> Result<(), String> + Send + Sync;

/// What one scrape yields, to be stored as one.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapeBatch {
    /// The job's name.
    pub job: String,
    /// The target's labels.
    pub target: Labels,
    /// When the scrape began, milliseconds since the epoch.
    pub time_ms: i64,
    /// Samples of the page, markers of series that ended, `up` and the `scrape_*` series. The `Arc` of
    /// a series' labels stays the same from scrape to scrape.
    pub samples: Vec<ScrapedSample>,
    /// Exemplars of the page.
    pub exemplars: Vec<ScrapedExemplar>,
    /// What metrics are, where it is new or has changed.
    pub metadata: Vec<MetricMetadata>,
    /// Why there is no page, where there is none.
    pub error: Option<String>,
}

/// A sample and its series.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapedSample {
    /// The series, after relabelling.
    pub labels: Arc<Labels>,
    /// Time and value; the value may be the marker of staleness.
    pub sample: Sample,
}

/// An exemplar and its series.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapedExemplar {
    /// The series.
    pub series: Arc<Labels>,
    /// The exemplar's labels.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
}

/// What a metric is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricMetadata {
    /// The metric (its family's name).
    pub metric: String,
    /// Its type, as far as the page says.
    pub kind: MetricKind,
    /// Help text, cut at 1 KiB.
    pub help: String,
    /// Unit.
    pub unit: String,
}
