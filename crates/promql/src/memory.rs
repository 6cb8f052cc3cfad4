//! Series in memory: for tests, for checking rules, and as the smallest example of a [`Source`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::Labels;

use crate::source::{Chunk, Columns, Select, Series, Source, SourceError, Summary};

/// Samples per chunk handed out: few, so that tests meet every way in which a window can lie over
/// chunks.
const CHUNK_SAMPLES: usize = 16;

/// A [`Source`] that keeps every sample in memory.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    series: BTreeMap<Arc<Labels>, Columns>,
}

impl MemorySource {
    /// Without series.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one sample; another one at the same time of the same series is replaced.
    pub fn push(&mut self, labels: Labels, time_ns: i64, value: f64) {
        let columns = self.series.entry(Arc::new(labels)).or_default();
        let at = columns.times_ns.partition_point(|time| *time < time_ns);
        if columns.times_ns.get(at) == Some(&time_ns) {
            columns.values[at] = value;
        } else {
            columns.times_ns.insert(at, time_ns);
            columns.values.insert(at, value);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Every series with its samples, by labels.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &Columns)> {
        self.series.iter().map(|(labels, columns)| (&**labels, columns))
    }
}

impl Source for MemorySource {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        let fits = |labels: &Labels| select.matchers.iter().all(|matcher| matcher.fits_series(labels));
        Ok(self
            .series
            .iter()
            .filter(|(labels, _)| fits(labels))
            .map(|(labels, columns)| {
                Box::new(MemorySeries { labels: labels.clone(), columns }) as Box<dyn Series>
            })
            .collect())
    }
}

struct MemorySeries<'a> {
    labels: Arc<Labels>,
    columns: &'a Columns,
}

impl Series for MemorySeries<'_> {
    fn labels(&self) -> Arc<Labels> {
        self.labels.clone()
    }

    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let times = &self.columns.times_ns;
        let from = times.partition_point(|time| *time < from_ns);
        let to = times.partition_point(|time| *time <= to_ns);
        if from == to {
            return Ok(());
        }
        for start in (from / CHUNK_SAMPLES * CHUNK_SAMPLES..to).step_by(CHUNK_SAMPLES) {
            let end = times.len().min(start + CHUNK_SAMPLES);
            let piece = Piece { times_ns: &times[start..end], values: &self.columns.values[start..end] };
            if visit(&piece).is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct Piece<'a> {
    times_ns: &'a [i64],
    values: &'a [f64],
}

impl Chunk for Piece<'_> {
    fn summary(&self) -> Summary {
        Summary::of(self.times_ns, self.values).unwrap_or(Summary {
            count: 0,
            non_finite: 0,
            time_ns: (i64::MAX, i64::MIN),
            first: f64::NAN,
            last: f64::NAN,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        })
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        into.times_ns.extend_from_slice(self.times_ns);
        into.values.extend_from_slice(self.values);
        Ok(())
    }
}
