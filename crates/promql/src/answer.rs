//! What a query answers.

use std::sync::Arc;

use model::Labels;

use crate::eval::{Grid, Row, Samples};
use crate::limits::{Budget, Charge};
use crate::number::millis;

/// An answer with what was remarkable on the way.
#[derive(Debug)]
pub struct Answer {
    /// The result.
    pub data: Data,
    /// Likely mistakes in the query or the data, in Prometheus' words with their place.
    pub warnings: Vec<String>,
    /// Possible mistakes.
    pub infos: Vec<String>,
    /// What it cost.
    pub stats: Stats,
    /// The bounds that hold while it is written.
    pub(crate) budget: Arc<Budget>,
    /// The memory of `data`.
    #[expect(dead_code, reason = "held until the answer is dropped")]
    pub(crate) charge: Charge,
}

/// What a query cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Samples read from the source.
    pub samples_read: u64,
    /// Most bytes of intermediate results at one time.
    pub bytes_peak: u64,
}

/// The result of a query.
#[derive(Debug)]
pub enum Data {
    /// A number at a time, milliseconds.
    Scalar {
        /// Milliseconds since the Unix epoch.
        time_ms: i64,
        /// The number.
        value: f64,
    },
    /// A text at a time.
    String {
        /// Milliseconds since the Unix epoch.
        time_ms: i64,
        /// The text.
        value: String,
    },
    /// One value per series, in the order that the query gave.
    Vector {
        /// Milliseconds since the Unix epoch, the same for all.
        time_ms: i64,
        /// Labels and value.
        samples: Vec<(Arc<Labels>, f64)>,
    },
    /// Samples over time, by labels.
    Matrix(Vec<Run>),
}

/// One series of a matrix.
#[derive(Debug)]
pub struct Run {
    /// Its labels.
    pub labels: Arc<Labels>,
    points: Points,
}

#[derive(Debug)]
enum Points {
    Steps { grid: Grid, row: Row },
    Raw { times_ns: Vec<i64>, values: Vec<f64> },
}

impl Run {
    /// Steps and values, where the series is on a grid.
    pub(crate) fn steps(&self) -> Option<(Grid, &Row)> {
        match &self.points {
            Points::Steps { grid, row } => Some((*grid, row)),
            Points::Raw { .. } => None,
        }
    }

    /// Times in milliseconds and values, in order of time.
    pub fn points(&self) -> Box<dyn Iterator<Item = (i64, f64)> + '_> {
        match &self.points {
            Points::Steps { grid, row } => {
                Box::new(row.points().map(|(step, value)| (millis(grid.at(step)), value)))
            }
            Points::Raw { times_ns, values } => {
                Box::new(times_ns.iter().zip(values).map(|(time, value)| (millis(*time), *value)))
            }
        }
    }
}

impl Data {
    pub(crate) fn scalar(value: f64, grid: Grid) -> Self {
        Self::Scalar { time_ms: millis(grid.start_ns), value }
    }

    pub(crate) fn text(value: String, grid: Grid) -> Self {
        Self::String { time_ms: millis(grid.start_ns), value }
    }

    pub(crate) fn scalars(values: Vec<f64>, grid: Grid) -> Self {
        let mut row = Row::empty(Arc::default(), false, grid.steps);
        values.into_iter().enumerate().for_each(|(step, value)| row.put(step, value));
        Self::rows(vec![row], grid)
    }

    pub(crate) fn vector(rows: Vec<Row>, grid: Grid) -> Self {
        let samples =
            rows.into_iter().filter_map(|row| row.get(0).map(|value| (row.labels, value))).collect();
        Self::Vector { time_ms: millis(grid.start_ns), samples }
    }

    pub(crate) fn rows(rows: Vec<Row>, grid: Grid) -> Self {
        Self::Matrix(
            rows.into_iter()
                .map(|row| Run { labels: row.labels.clone(), points: Points::Steps { grid, row } })
                .collect(),
        )
    }

    pub(crate) fn samples(all: Vec<Samples>) -> Self {
        Self::Matrix(
            all.into_iter()
                .map(|samples| Run {
                    labels: samples.labels,
                    points: Points::Raw {
                        times_ns: samples.columns.times_ns,
                        values: samples.columns.values,
                    },
                })
                .collect(),
        )
    }

    /// What it holds in memory, bytes, near enough.
    pub(crate) fn bytes(&self) -> u64 {
        const SERIES_BYTES: usize = 64;
        let bytes = match self {
            Self::Scalar { .. } | Self::String { .. } => SERIES_BYTES,
            Self::Vector { samples, .. } => samples.len() * SERIES_BYTES,
            Self::Matrix(runs) => runs
                .iter()
                .map(|run| match &run.points {
                    Points::Steps { grid, .. } => SERIES_BYTES + grid.steps * 8,
                    Points::Raw { times_ns, .. } => SERIES_BYTES + times_ns.len() * 16,
                })
                .sum(),
        };
        bytes as u64
    }

    /// How many samples there are.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Scalar { .. } | Self::String { .. } => 1,
            Self::Vector { samples, .. } => samples.len() as u64,
            Self::Matrix(runs) => runs.iter().map(|run| run.points().count() as u64).sum(),
        }
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Scalar { .. } | Self::String { .. } => 1,
            Self::Vector { samples, .. } => samples.len(),
            Self::Matrix(runs) => runs.len(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `series` series; says whether any were left out.
    pub fn truncate(&mut self, series: usize) -> bool {
        let cut = self.len() > series;
        match self {
            Self::Scalar { .. } | Self::String { .. } => return false,
            Self::Vector { samples, .. } => samples.truncate(series),
            Self::Matrix(runs) => runs.truncate(series),
        }
        cut
    }
}
