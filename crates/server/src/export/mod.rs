//! Raw points of any series as a file: CSV, NDJSON or Parquet.
//!
//! Made piece by piece, so that memory is bounded however much is asked for and nobody holds a thread
//! while a slow reader reads. The same from a server that runs and from a directory that none has open.

mod ask;
mod columns;
mod parquet;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, RunId, RunRecord, is_stale_marker};
use promql::Matcher;
use store::{SeriesId, Store};

pub use self::ask::{Ask, Unusable};
use self::columns::Columns;
use self::parquet::Parquet;
pub use self::parquet::points_of as parquet_points;
use self::text::Text;
pub(crate) use self::text::{cell, number};
use crate::own::is_logged;
use crate::source::conditions;

/// Most columns that labels may take: beyond, the selection is of too many kinds for one table.
const LABEL_COLUMNS_MAX: usize = 500;

/// How the points are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line a point, a head above.
    Csv,
    /// One JSON object a line.
    Ndjson,
    /// Columns, compressed; for pandas, DuckDB, Polars.
    Parquet,
}

impl Format {
    /// Every format, with the name that asks for it and ends its files.
    pub const ALL: [(&'static str, Self); 3] =
        [("csv", Self::Csv), ("ndjson", Self::Ndjson), ("parquet", Self::Parquet)];

    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// What HTTP calls it.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Ndjson => "application/x-ndjson",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }

    /// Points of one piece: for Parquet a row group, which is in memory whole.
    fn piece_points(self) -> usize {
        match self {
            Self::Csv | Self::Ndjson => 20_000,
            Self::Parquet => 1 << 18,
        }
    }
}

/// Which points.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    /// Series that fit one of these; each is a list of conditions that all hold.
    pub(crate) selectors: Vec<Vec<Matcher>>,
    /// First and last time, nanoseconds, both included.
    pub(crate) span_ns: (i64, i64),
    /// Whether what the server itself states of runs is among it, as where a selector asks for it.
    pub(crate) statements: bool,
}

/// Why an export ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// Too many different labels.
    #[error("the series have {found} different labels, and a table takes at most {LABEL_COLUMNS_MAX}")]
    TooWide {
        /// Different labels.
        found: usize,
    },
    /// Points can't be read.
    #[error(transparent)]
    Read(#[from] store::ReadError),
    /// The file can't be made.
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
}

/// An export under way.
pub(crate) struct Export {
    format: Format,
    /// In the order in which they are written.
    series: Vec<SeriesId>,
    span_ns: (i64, i64),
    /// Series that is next, and the time in it to go on at.
    at: usize,
    from_ns: i64,
    columns: Columns,
    writer: Option<Writer>,
    /// Points of the selected series over all of time: an upper bound, known beforehand.
    pub(crate) points_max: u64,
    /// Points written so far.
    pub(crate) points: u64,
}

enum Writer {
    Text(Text),
    Parquet(Box<Parquet>),
}

/// The next points, in order: how many of each series, then column by column.
#[derive(Debug, Default)]
struct Rows {
    heads: Vec<Head>,
    times_ns: Vec<i64>,
    steps: Vec<Option<i64>>,
    attempts: Vec<Option<u32>>,
    values: Vec<f64>,
}

/// What the points of a series have in common.
#[derive(Debug)]
struct Head {
    metric: Arc<str>,
    labels: Arc<Labels>,
    points: usize,
}

impl Export {
    /// Finds the series; nothing is read yet.
    pub(crate) fn new(store: &Store, selection: &Selection, format: Format) -> Result<Self, ExportError> {
        let (from_ns, to_ns) = selection.span_ns;
        let mut found: BTreeMap<(Arc<str>, Arc<Labels>), SeriesId> = BTreeMap::new();
        let (mut names, mut points_max) = (BTreeSet::new(), 0);
        for matchers in &selection.selectors {
            for one in store.select(&conditions(matchers), from_ns, to_ns) {
                if !selection.statements && !is_logged(one.labels.metric()) {
                    continue;
                }
                let Some(info) = store.series(one.id) else { continue };
                names.extend(one.labels.iter().map(|(name, _)| name.to_owned()));
                if found.insert((info.display, one.labels), one.id).is_none() {
                    points_max += info.points;
                }
            }
        }
        let columns = Columns::of(names);
        if columns.labels.len() > LABEL_COLUMNS_MAX {
            return Err(ExportError::TooWide { found: columns.labels.len() });
        }
        let writer = match format {
            Format::Csv => Writer::Text(Text::csv(&columns)),
            Format::Ndjson => Writer::Text(Text::ndjson(&columns)),
            Format::Parquet => Writer::Parquet(Box::new(Parquet::new(&columns)?)),
        };
        Ok(Self {
            format,
            series: found.into_values().collect(),
            span_ns: selection.span_ns,
            at: 0,
            from_ns,
            columns,
            writer: Some(writer),
            points_max,
            points: 0,
        })
    }

    /// Series that are written.
    pub(crate) fn series(&self) -> usize {
        self.series.len()
    }

    /// The next bytes of the file; none when it is complete.
    pub(crate) fn next(&mut self, store: &Store) -> Result<Option<Vec<u8>>, ExportError> {
        if self.writer.is_none() {
            return Ok(None);
        }
        let rows = self.read(store)?;
        self.points += rows.times_ns.len() as u64;
        let last = self.at >= self.series.len();
        match &mut self.writer {
            Some(Writer::Text(text)) => {
                let bytes = text.write(&self.columns, &rows);
                if last {
                    self.writer = None;
                }
                Ok(Some(bytes))
            }
            Some(Writer::Parquet(parquet)) => {
                let mut bytes = parquet.write(&self.columns, &rows)?;
                if last && let Some(Writer::Parquet(parquet)) = self.writer.take() {
                    bytes.extend(parquet.finish()?);
                }
                Ok(Some(bytes))
            }
            None => Ok(None),
        }
    }

    fn read(&mut self, store: &Store) -> Result<Rows, ExportError> {
        let limit = self.format.piece_points();
        let mut rows = Rows::default();
        while let Some(id) = self.series.get(self.at).copied() {
            if rows.times_ns.len() >= limit {
                break;
            }
            // A series whose run was deleted meanwhile has no points any more.
            let next_ns = match store.series(id) {
                None => None,
                Some(info) => {
                    let run = info.labels.get("run_id").and_then(RunId::parse).and_then(|id| store.run(id));
                    let before = rows.times_ns.len();
                    let span_ns = (self.from_ns, self.span_ns.1);
                    let next_ns = rows.take(store, id, span_ns, run.as_deref(), limit)?;
                    let points = rows.times_ns.len() - before;
                    rows.heads.push(Head { metric: info.display, labels: info.labels, points });
                    next_ns
                }
            };
            if let Some(next_ns) = next_ns {
                self.from_ns = next_ns;
            } else {
                (self.at, self.from_ns) = (self.at + 1, self.span_ns.0);
            }
        }
        Ok(rows)
    }
}

impl Rows {
    /// Takes points of a series until there are `limit`; gives the time to go on at.
    fn take(
        &mut self,
        store: &Store,
        series: SeriesId,
        (from_ns, to_ns): (i64, i64),
        run: Option<&RunRecord>,
        limit: usize,
    ) -> Result<Option<i64>, store::ReadError> {
        let (mut next_ns, mut failed) = (None, None);
        let read = store.read(series, from_ns, to_ns, &mut |chunk| {
            if self.times_ns.len() >= limit {
                next_ns = Some(chunk.summary().time_ns.0.max(from_ns));
                return ControlFlow::Break(());
            }
            let samples = match chunk.samples() {
                Ok(samples) => samples,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            };
            for sample in samples.iter().filter(|sample| (from_ns..=to_ns).contains(&sample.time_ns)) {
                // Says that a series ended; it is no measured value.
                if is_stale_marker(sample.value) {
                    continue;
                }
                self.times_ns.push(sample.time_ns);
                self.steps.push(sample.step);
                self.attempts.push(run.map(|run| run.attempt_at(sample.time_ns)));
                self.values.push(sample.value);
            }
            ControlFlow::Continue(())
        });
        match failed {
            Some(error) => Err(error),
            // Purged since it was looked up: no points.
            None if read.is_err() => Ok(None),
            None => Ok(next_ns),
        }
    }
}
