//! What is stored, as far as it has to do with the models of one answer: other models and other cards are not looked
//! at, and each series is read once, however many figures are computed from it.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use model::{Labels, NANOS_PER_SECOND, RolledUp, RollupAsk, RollupBucket};
use promql::notation::pattern_of;
use promql::{Chunk, Columns, Held, MatchOp, Matcher, Memory, Select, Series, Source, SourceError, Summary};

/// Longest stretch whose samples are kept; of a longer one most are known as summaries.
const KEPT_NS_MAX: i64 = 15 * 60 * NANOS_PER_SECOND;
/// Bytes of a series beside its samples, and of a sample.
const SERIES_BYTES: u64 = 512;
const SAMPLE_BYTES: u64 = 16;

/// See the module.
pub(super) struct Near<'s> {
    stored: &'s dyn Source,
    /// What selects the models, where there are others.
    models: Option<Matcher>,
    memory: Memory,
    kept: Mutex<HashMap<Key, Kept<'s>>>,
}

/// The part of what fits, matchers, first and last time.
type Key = (Part, String, i64, i64);

/// What of the series that fit a selector is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// Those of the models, of engines' series, and all others.
    Models,
    /// Those of models that may share a host or a pod.
    Units,
    /// Cards on the hosts.
    Cards,
    /// Owners of cards in the pods and on the hosts.
    Owners,
}

struct Kept<'s> {
    series: Vec<Arc<Once<'s>>>,
    /// Of the memory of queries.
    _held: Held,
}

impl<'s> Near<'s> {
    /// Of the models that `models` selects, where it is there; what is kept counts in `memory`.
    pub(super) fn new(stored: &'s dyn Source, models: Option<Matcher>, memory: Memory) -> Self {
        Self { stored, models, memory, kept: Mutex::default() }
    }

    /// The series that fit `select` and `more`, of those the ones that `is_near` says are of the `part`; it is asked
    /// with the labels of all.
    pub(super) fn select_part<'a>(
        &'a self,
        part: Part,
        select: &Select<'_>,
        more: Option<&Matcher>,
        is_near: &dyn Fn(&[Arc<Labels>]) -> Vec<bool>,
    ) -> Result<Vec<Box<dyn Series + 'a>>, SourceError> {
        let text: Vec<String> = select.matchers.iter().map(ToString::to_string).collect();
        let range = (select.from_ns, select.to_ns);
        let key = (part, text.join(","), range.0, range.1);
        let boxed = |once: &Arc<Once<'s>>| {
            Box::new(Reading { once: Arc::clone(once), memory: &self.memory }) as Box<dyn Series + 'a>
        };
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key) {
            return Ok(kept.series.iter().map(boxed).collect());
        }
        let matchers: Vec<Matcher> = select.matchers.iter().chain(more).cloned().collect();
        let found = self.stored.select(&Select { matchers: &matchers, ..select.clone() })?;
        let labels: Vec<Arc<Labels>> = found.iter().map(|series| series.labels()).collect();
        let near = is_near(&labels);
        let once = |(series, labels)| Arc::new(Once { labels, series, range, samples: OnceLock::new() });
        let all = found.into_iter().zip(labels).zip(near);
        let series: Vec<Arc<Once<'s>>> = all.filter(|(_, near)| *near).map(|(one, _)| once(one)).collect();
        let answer = series.iter().map(boxed).collect();
        if let Some(held) = self.memory.hold(SERIES_BYTES * series.len() as u64) {
            lock().insert(key, Kept { series, _held: held });
        }
        Ok(answer)
    }
}

impl Source for Near<'_> {
    fn select<'a>(&'a self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 'a>>, SourceError> {
        let is_engine =
            |matcher: &Matcher| &*matcher.name == "__name__" && matcher.value.starts_with("tg_engine_");
        let models = self.models.as_ref().filter(|_| select.matchers.iter().any(is_engine));
        self.select_part(Part::Models, select, models, &|all| vec![true; all.len()])
    }
}

/// What selects labels with one of these values.
pub(super) fn one_of(label: &str, values: &BTreeSet<&str>) -> Option<Matcher> {
    let listed: Vec<String> = values.iter().map(|value| pattern_of(value)).collect();
    Matcher::new(label, MatchOp::Matches, &listed.join("|")).ok()
}

/// A series over a stretch of time, decoded when it is read first.
struct Once<'s> {
    labels: Arc<Labels>,
    series: Box<dyn Series + 's>,
    range: (i64, i64),
    samples: OnceLock<Decoded>,
}

struct Decoded {
    columns: Columns,
    /// Nothing where there are no samples.
    summary: Option<Summary>,
    /// Of the memory of queries.
    _held: Held,
}

impl Once<'_> {
    /// Decodes the samples of the stretch; nothing where there is no room for them.
    fn decode(&self, memory: &Memory) -> Result<Option<Decoded>, SourceError> {
        let (mut columns, mut failure) = (Columns::default(), None);
        self.series.chunks(self.range.0, self.range.1, &mut |chunk| match chunk.decode(&mut columns) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let to = columns.times_ns.partition_point(|time| *time <= self.range.1);
        let from = columns.times_ns.partition_point(|time| *time < self.range.0).min(to);
        let columns = Columns {
            times_ns: columns.times_ns[from..to].to_vec(),
            values: columns.values[from..to].to_vec(),
        };
        let summary = Summary::of(&columns.times_ns, &columns.values);
        let held = memory.hold(SAMPLE_BYTES * columns.values.len() as u64);
        Ok(held.map(|held| Decoded { columns, summary, _held: held }))
    }
}

/// A series while a figure is computed from it.
struct Reading<'a, 's> {
    once: Arc<Once<'s>>,
    memory: &'a Memory,
}

impl Series for Reading<'_, '_> {
    fn labels(&self) -> Arc<Labels> {
        Arc::clone(&self.once.labels)
    }

    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let once = &*self.once;
        let is_short = once.range.1.saturating_sub(once.range.0) <= KEPT_NS_MAX;
        if is_short
            && once.samples.get().is_none()
            && let Some(decoded) = once.decode(self.memory)?
        {
            once.samples.get_or_init(|| decoded);
        }
        let Some(Decoded { columns, summary, .. }) = once.samples.get() else {
            return once.series.chunks(from_ns, to_ns, visit);
        };
        if let Some(summary) = *summary {
            _ = visit(&Whole { summary, columns });
        }
        Ok(())
    }

    fn rollups(&self, ask: &RollupAsk, into: &mut Vec<RollupBucket>) -> Result<RolledUp, SourceError> {
        self.once.series.rollups(ask, into)
    }
}

struct Whole<'c> {
    summary: Summary,
    columns: &'c Columns,
}

impl Chunk for Whole<'_> {
    fn summary(&self) -> Summary {
        self.summary
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        into.times_ns.extend_from_slice(&self.columns.times_ns);
        into.values.extend_from_slice(&self.columns.values);
        Ok(())
    }
}
