//! What the rules of one round read: each series once, however many of them read it, and what they write
//! before it is durable.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::{Labels, NANOS_PER_MILLI, NANOS_PER_SECOND, RolledUp, RollupAsk, RollupBucket};
use promql::rules::Write;
use promql::{Columns, Held, MatchOp, Matcher, Memory, Select, Source, SourceError, Summary};
use store::{SeriesId, Store};

use super::names::{self, METRIC_NAME};
use super::{NUMBER_LABELS, StoreSource, failed, fits_number};
use crate::intake::keeps_as_is;

/// Longest stretch whose samples are kept; of a longer one most are known as summaries.
const KEPT_NS_MAX: i64 = 15 * 60 * NANOS_PER_SECOND;
/// Most bytes of samples that are kept for a round.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// Most series whose labels are kept from round to round.
const LABELS_MAX: usize = 100_000;
/// How long labels are kept that no rule reads.
const LABELS_UNREAD_MS: i64 = 10 * 60 * 1_000;
/// Bytes of a series beside its samples, and of a label beside its text.
const SERIES_BYTES: u64 = 256;
const LABEL_BYTES: u64 = 64;

/// What is kept for rules; of a round until it is over, labels for longer.
pub(crate) struct Kept {
    inner: Mutex<Inner>,
    bytes: Arc<AtomicU64>,
    memory: Memory,
}

/// Series of one metric, each with the first and last time that was asked for.
type Pieces = HashMap<(SeriesId, i64, i64), Arc<Once>>;
/// Samples of one metric, one of a series.
type Unstored = HashMap<Arc<Labels>, (i64, f64)>;

#[derive(Default)]
struct Inner {
    /// The time that rules are evaluated for.
    time_ms: i64,
    labels: HashMap<SeriesId, KeptLabels>,
    /// By the metric's name, then by series, first and last time.
    series: HashMap<Box<str>, Pieces>,
    selections: HashMap<(String, i64, i64), Selection>,
    /// What is written and not stored yet, by the metric's name.
    pending: HashMap<Box<str>, Unstored>,
    /// What the store would not take, by the metric's name.
    refused: HashMap<Box<str>, Unstored>,
    /// Whether the store may keep some of it under other labels, or not at all.
    is_odd: bool,
}

struct KeptLabels {
    labels: Arc<Labels>,
    read_ms: i64,
    _held: Held,
}

struct Selection {
    /// The one metric that it may find, where there is but one.
    metric: Option<Box<str>>,
    series: Vec<Arc<Once>>,
}

/// A series over a stretch of time, decoded when it is read first.
struct Once {
    id: Option<SeriesId>,
    labels: Arc<Labels>,
    range: (i64, i64),
    /// A sample that is not stored yet.
    pending: Option<(i64, f64)>,
    samples: OnceLock<KeptSamples>,
}

struct KeptSamples {
    samples: Samples,
    bytes: u64,
    all: Arc<AtomicU64>,
    _held: Held,
}

impl Drop for KeptSamples {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Samples {
    columns: Columns,
    /// Nothing where there are none.
    summary: Option<Summary>,
}

impl Kept {
    /// Nothing yet; what will be kept counts in `memory`.
    pub(crate) fn new(memory: Memory) -> Self {
        Self { inner: Mutex::default(), bytes: Arc::default(), memory }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is read from now on is for another time, perhaps.
    pub(crate) fn begin(&self, time_ms: i64) {
        let mut inner = self.lock();
        if inner.time_ms != time_ms {
            inner.time_ms = time_ms;
            inner.forget();
        }
    }

    /// The round is over: forgets its samples, and labels that were not read for long.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.forget();
        let oldest_ms = inner.time_ms - LABELS_UNREAD_MS;
        inner.labels.retain(|_, kept| kept.read_ms >= oldest_ms);
    }

    /// Takes what a rule writes; other rules see it from now on.
    pub(crate) fn write(&self, writes: Vec<Write>) {
        let mut inner = self.lock();
        let metrics: HashSet<&str> = writes.iter().map(|write| write.labels.metric()).collect();
        for metric in metrics {
            inner.series.remove(metric);
            inner.selections.retain(|_, selection| !selection.may_find(metric));
            if !inner.pending.contains_key(metric) {
                inner.pending.insert(metric.into(), HashMap::new());
            }
        }
        for Write { labels, time_ms, value } in writes {
            inner.is_odd |= !keeps_as_is(&labels);
            let time_ns = time_ms.saturating_mul(NANOS_PER_MILLI);
            if let Some(pending) = inner.pending.get_mut(labels.metric()) {
                pending.insert(Arc::new(labels), (time_ns, value));
            }
        }
    }

    /// Takes what the store has refused: rules see it, and it is not stored.
    pub(crate) fn show(&self, refused: Vec<Write>) {
        let mut inner = self.lock();
        if refused.is_empty() && inner.refused.is_empty() {
            return;
        }
        inner.forget();
        inner.refused.clear();
        for Write { labels, time_ms, value } in refused {
            let time_ns = time_ms.saturating_mul(NANOS_PER_MILLI);
            let of_metric = inner.refused.entry(labels.metric().into()).or_default();
            of_metric.insert(Arc::new(labels), (time_ns, value));
        }
    }

    /// Hands over what is to be stored.
    pub(crate) fn take_pending(&self) -> Vec<(Arc<Labels>, (i64, f64))> {
        let mut inner = self.lock();
        inner.is_odd = false;
        std::mem::take(&mut inner.pending).into_values().flatten().collect()
    }
}

impl Inner {
    fn forget(&mut self) {
        self.series.clear();
        self.selections.clear();
    }

    /// What is not in the store and fits, by labels.
    fn pending(&self, matchers: &[Matcher], metric: Option<&str>) -> HashMap<Arc<Labels>, (i64, f64)> {
        let of = self
            .refused
            .iter()
            .chain(&self.pending)
            .filter(|(name, _)| metric.is_none_or(|metric| metric == &***name));
        let fitting = of.flat_map(|(_, series)| series).filter(|(labels, _)| fits(matchers, labels));
        fitting.map(|(labels, sample)| (Arc::clone(labels), *sample)).collect()
    }
}

impl Selection {
    fn may_find(&self, metric: &str) -> bool {
        self.metric.as_deref().is_none_or(|only| only == metric)
    }
}

/// Whether labels fit as they would in the store.
fn fits(matchers: &[Matcher], labels: &Labels) -> bool {
    matchers.iter().all(|matcher| {
        let value = labels.get(&matcher.name).unwrap_or_default();
        if NUMBER_LABELS.contains(&&*matcher.name) {
            fits_number(matcher, value)
        } else {
            matcher.fits(value)
        }
    })
}

/// The store as the rules of a round see it.
pub(crate) struct Round<'s> {
    source: StoreSource<'s>,
    kept: &'s Kept,
    /// Stores what is pending.
    flush: &'s (dyn Fn() + Sync),
}

impl<'s> Round<'s> {
    /// Over `source`, with what is `kept`. `flush` stores what is pending, for what can't be answered
    /// from it.
    pub(crate) fn new(source: StoreSource<'s>, kept: &'s Kept, flush: &'s (dyn Fn() + Sync)) -> Self {
        Self { source, kept, flush }
    }

    /// Looks series up in the store, and what is pending.
    fn look(&self, inner: &mut Inner, select: &Select<'_>, metric: Option<&str>) -> Vec<Arc<Once>> {
        let range = (select.from_ns, select.to_ns);
        let StoreSource { store, streams } = self.source;
        let known = |id| inner.labels.get(&id).map(|kept| Arc::clone(&kept.labels));
        let found = names::select_known(store, streams, select.matchers, range, &known);
        let mut pending = inner.pending(select.matchers, metric);
        pending.retain(|_, (time_ns, _)| (range.0..=range.1).contains(time_ns));
        let mut all = Vec::with_capacity(found.len() + pending.len());
        for found in found {
            self.keep_labels(inner, found.id, &found.labels);
            let pending = pending.remove(&found.labels);
            let metric = found.labels.metric();
            if !inner.series.contains_key(metric) {
                inner.series.insert(metric.into(), HashMap::new());
            }
            let Some(series) = inner.series.get_mut(metric) else { continue };
            let once = series
                .entry((found.id, range.0, range.1))
                .or_insert_with(|| Arc::new(Once::new(Some(found.id), &found.labels, range, pending)));
            all.push(Arc::clone(once));
        }
        let new = pending.into_iter();
        all.extend(new.map(|(labels, sample)| Arc::new(Once::new(None, &labels, range, Some(sample)))));
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        all
    }

    fn keep_labels(&self, inner: &mut Inner, id: SeriesId, labels: &Arc<Labels>) {
        let read_ms = inner.time_ms;
        if let Some(kept) = inner.labels.get_mut(&id) {
            kept.read_ms = read_ms;
        } else if inner.labels.len() < LABELS_MAX {
            let text: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
            let bytes = SERIES_BYTES + text as u64 + labels.len() as u64 * LABEL_BYTES;
            let Some(held) = self.kept.memory.hold(bytes) else { return };
            inner.labels.insert(id, KeptLabels { labels: Arc::clone(labels), read_ms, _held: held });
        }
    }
}

impl Source for Round<'_> {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn promql::Series + 's>>, SourceError> {
        let metric = metric_of(select.matchers);
        let is_plain = !names::has_others(self.source.streams, select.matchers);
        let is_long = select.to_ns.saturating_sub(select.from_ns) > KEPT_NS_MAX;
        let needs_store = {
            let inner = self.kept.lock();
            let touches = || !inner.pending(select.matchers, metric).is_empty();
            inner.is_odd || (!is_plain && !inner.pending.is_empty()) || (is_long && touches())
        };
        if needs_store {
            (self.flush)();
        }
        if is_long {
            return self.source.select(select);
        }
        let of_series = |once: &Arc<Once>| {
            let once = Arc::clone(once);
            Box::new(Reading { store: self.source.store, kept: self.kept, once }) as Box<dyn promql::Series>
        };
        let text: Vec<String> = select.matchers.iter().map(ToString::to_string).collect();
        let key = (text.join(","), select.from_ns, select.to_ns);
        let mut inner = self.kept.lock();
        if let Some(selection) = inner.selections.get(&key) {
            return Ok(selection.series.iter().map(of_series).collect());
        }
        let series = self.look(&mut inner, select, metric);
        let answer = series.iter().map(of_series).collect();
        let metric = metric.filter(|_| is_plain).map(Into::into);
        inner.selections.insert(key, Selection { metric, series });
        Ok(answer)
    }
}

/// The metric that an equality names.
fn metric_of(matchers: &[Matcher]) -> Option<&str> {
    let named = matchers.iter().find(|matcher| &*matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal);
    named.map(|matcher| &*matcher.value).filter(|name| !name.is_empty())
}

/// A series of a round while a rule reads it.
struct Reading<'s> {
    store: &'s Store,
    kept: &'s Kept,
    once: Arc<Once>,
}

impl Once {
    fn new(
        id: Option<SeriesId>,
        labels: &Arc<Labels>,
        range: (i64, i64),
        pending: Option<(i64, f64)>,
    ) -> Self {
        Self { id, labels: Arc::clone(labels), range, pending, samples: OnceLock::new() }
    }

    /// Decodes the samples of the stretch.
    fn load(&self, store: &Store) -> Result<Samples, SourceError> {
        let mut columns = Columns::default();
        let mut failure = None;
        if let Some(id) = self.id {
            let read = store.scan(id, self.range.0, self.range.1, &mut |block| match block
                .columns(&mut columns.times_ns, &mut columns.values)
            {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(failed(error));
                    ControlFlow::Break(())
                }
            });
            read.map_err(failed)?;
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let to = columns.times_ns.partition_point(|time| *time <= self.range.1);
        let from = columns.times_ns.partition_point(|time| *time < self.range.0).min(to);
        let mut columns = Columns {
            times_ns: columns.times_ns[from..to].to_vec(),
            values: columns.values[from..to].to_vec(),
        };
        if let Some((time_ns, value)) = self.pending {
            match columns.times_ns.binary_search(&time_ns) {
                Ok(at) => columns.values[at] = value,
                Err(at) => {
                    columns.times_ns.insert(at, time_ns);
                    columns.values.insert(at, value);
                }
            }
        }
        let summary = Summary::of(&columns.times_ns, &columns.values);
        Ok(Samples { columns, summary })
    }
}

impl Reading<'_> {
    fn visit(samples: &Samples, visit: &mut dyn FnMut(&dyn promql::Chunk) -> ControlFlow<()>) {
        if let Some(summary) = samples.summary {
            _ = visit(&Whole { summary, columns: &samples.columns });
        }
    }

    /// Keeps samples if there is room for them; gives them back otherwise.
    fn keep(&self, samples: Samples) -> Result<KeptSamples, Samples> {
        let all = &self.kept.bytes;
        let bytes = SERIES_BYTES + samples.columns.values.len() as u64 * 16;
        if all.load(Ordering::Relaxed).saturating_add(bytes) > KEPT_BYTES_MAX {
            return Err(samples);
        }
        let Some(held) = self.kept.memory.hold(bytes) else { return Err(samples) };
        all.fetch_add(bytes, Ordering::Relaxed);
        Ok(KeptSamples { samples, bytes, all: Arc::clone(all), _held: held })
    }
}

impl promql::Series for Reading<'_> {
    fn labels(&self) -> Arc<Labels> {
        Arc::clone(&self.once.labels)
    }

    fn chunks(
        &self,
        _from_ns: i64,
        _to_ns: i64,
        visit: &mut dyn FnMut(&dyn promql::Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        if let Some(kept) = self.once.samples.get() {
            Self::visit(&kept.samples, visit);
            return Ok(());
        }
        match self.keep(self.once.load(self.store)?) {
            Ok(kept) => Self::visit(&self.once.samples.get_or_init(|| kept).samples, visit),
            Err(samples) => Self::visit(&samples, visit),
        }
        Ok(())
    }

    fn rollups(&self, ask: &RollupAsk, into: &mut Vec<RollupBucket>) -> Result<RolledUp, SourceError> {
        let none = RolledUp { raw_from_ns: ask.from_ns, gone_width_ns: None };
        Ok(self.once.id.map_or(none, |id| self.store.rollups(id, ask, into)))
    }
}

struct Whole<'c> {
    summary: Summary,
    columns: &'c Columns,
}

impl promql::Chunk for Whole<'_> {
    fn summary(&self) -> Summary {
        self.summary
    }

    fn decode(&self, into: &mut Columns) -> Result<(), SourceError> {
        into.times_ns.extend_from_slice(&self.columns.times_ns);
        into.values.extend_from_slice(&self.columns.values);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
