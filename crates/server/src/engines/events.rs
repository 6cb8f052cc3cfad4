//! What happens to engines, told as events: one began anew, stopped to answer, serves another model, gives its
//! page other names.
//!
//! Every scrape and every remote write passes here before it is stored, and what it comes to is stored with it.
//! A series is looked up once; the samples that matter are compared with the ones before them. What is known of
//! a target is a row in the store, and the last sample of a series is the series' own, so that a start of this
//! server in between neither hides a change nor tells it again. A batch that is refused takes nothing with it:
//! its events wait for the next.

mod target;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Event, Labels, MetricKind, NANOS_PER_SECOND, RESERVED_LABELS, Sample, is_stale_marker};
use semconv::vocabulary::{Of, Part, Row, Source, Vocabulary};
use store::{Batch, ReadError, SeriesId, Store};

use crate::canonical::{Known, Numbers};
use crate::clock::now_ns;
use target::{Name, Said, Target, What};
pub(crate) use words::KIND;

/// What rows of targets begin with; the target's name follows.
const ROWS: &[u8] = b"engines/target/";
/// Longest name of a target that a row is kept for, bytes.
const ROW_NAME_BYTES_MAX: usize = 1 << 10;
/// Most targets that are kept in mind.
const TARGETS_MAX: usize = 50_000;
/// Most series that are. At the bound they are looked up anew.
const SERIES_MAX: usize = 1_000_000;
/// Most events that wait for the store.
const WAITING_MAX: usize = 10_000;
/// How long a target may be silent before it may be forgotten, and how far back the last value of a series that
/// ended is looked for, nanoseconds.
const REMEMBERED_NS: i64 = 86_400 * NANOS_PER_SECOND;
/// Time between two attempts to make room, nanoseconds.
const ROOM_PERIOD_NS: i64 = 3_600 * NANOS_PER_SECOND;
/// What says when the process that has a page began.
const PROCESS_START: &str = "process_start_time_seconds";

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    numbers: Numbers,
    watched: Vec<Watched>,
    /// What series say by their names and labels; many say the same.
    said: HashSet<Arc<Said>>,
    targets: Vec<Target>,
    places: HashMap<Name, u32>,
    /// Targets that have samples in the batch that is being looked at.
    touched: Vec<u32>,
    /// Events and rows that are not stored yet, each with the look that made it.
    waiting: Vec<(u64, Event)>,
    rows: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    look: u64,
    is_full: bool,
    /// When room was made last.
    cleared_ns: i64,
}

/// A series that matters, and its latest sample.
#[derive(Debug)]
struct Watched {
    target: u32,
    what: What,
    said: Option<Arc<Said>>,
    last: Option<(i64, f64)>,
}

impl Watch {
    /// Begins with what was kept of targets.
    pub(crate) fn restore(store: &Store) -> Result<Self, ReadError> {
        let mut inner = Inner::default();
        for (_, row) in store.state(ROWS)?.into_iter().take(TARGETS_MAX) {
            if let Some(target) = Target::from_row(&row) {
                inner.places.insert(target.name.clone(), inner.targets.len() as u32);
                inner.targets.push(target);
            }
        }
        Ok(Self(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the scrape of a target went, before what it gave is looked at.
    pub(crate) fn scraped(&self, target: &Labels, error: Option<&str>) {
        let mut inner = self.lock();
        let place = inner.places.get(&Name::of(target)).copied();
        if let Some(target) = place.and_then(|place| inner.targets.get_mut(place as usize)) {
            target.error = error.map(str::to_owned);
        }
    }

    /// Looks at a batch and adds what it comes to, and what waits of before; gives the number of the look if
    /// anything was added.
    pub(crate) fn look(&self, store: &Store, vocabulary: &Vocabulary, batch: &mut Batch) -> Option<u64> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.keep_bounded();
        for part in batch.points.chunk_by(|a, b| a.0 == b.0) {
            if let Some(at) = inner.watched_of(store, vocabulary, part[0].0) {
                for (_, sample) in part {
                    inner.take(at, *sample);
                }
            }
        }
        for series in &batch.series {
            let labels = &series.identity.labels;
            if !is_known(vocabulary, labels.metric()) {
                continue;
            }
            if let Some(number) = store.series_number(&series.identity) {
                if let Some(at) = inner.watched_of(store, vocabulary, number) {
                    for sample in &series.samples {
                        inner.take(at, *sample);
                    }
                }
            } else if let Some(mut watched) = inner.watch(vocabulary, labels, None) {
                for sample in &series.samples {
                    take(&mut inner.targets, &mut inner.touched, &mut watched, *sample);
                }
            }
        }
        inner.judge();
        if inner.waiting.is_empty() && inner.rows.is_empty() {
            return None;
        }
        batch.events.extend(inner.waiting.iter().map(|(_, event)| event.clone()));
        batch.state.extend(inner.rows.iter().map(|(key, (_, row))| (key.clone(), Some(row.clone()))));
        let look = inner.look;
        inner.look += 1;
        Some(look)
    }

    /// Learns that what was added in a look is stored; gives the hosts that events are of.
    pub(crate) fn settled(&self, look: u64) -> Vec<String> {
        let mut inner = self.lock();
        let mut hosts = Vec::new();
        inner.waiting.retain(|(of, event)| {
            let is_stored = *of <= look;
            if is_stored {
                hosts.extend(event.label("host").map(str::to_owned));
            }
            !is_stored
        });
        inner.rows.retain(|_, (of, _)| *of > look);
        hosts
    }

    /// Forgets the numbers of series: some lead nowhere any more.
    pub(crate) fn forget_numbers(&self) {
        self.lock().forget_series();
    }
}

/// Whether a series of this name may matter.
fn is_known(vocabulary: &Vocabulary, metric: &str) -> bool {
    matches!(metric, "up" | PROCESS_START)
        || !vocabulary.lookup(metric).is_empty()
        || created(vocabulary, metric).is_some()
}

/// The row of which a series tells when it began.
fn created<'v>(vocabulary: &'v Vocabulary, metric: &str) -> Option<&'v Source> {
    let base = metric.strip_suffix("_created")?;
    let hits = ["_total", "_count", ""].map(|suffix| vocabulary.lookup(&format!("{base}{suffix}")));
    let sources = hits.into_iter().flatten().filter_map(|hit| vocabulary.get(*hit));
    let mut sources = sources.map(|(source, _)| source);
    sources.find(|source| source.of == Of::Engine)
}

fn take(targets: &mut [Target], touched: &mut Vec<u32>, watched: &mut Watched, sample: Sample) {
    let Some(target) = targets.get_mut(watched.target as usize) else { return };
    if watched.last.is_some_and(|(last_ns, _)| sample.time_ns <= last_ns) {
        return;
    }
    if is_stale_marker(sample.value) {
        if watched.what == What::Up {
            target.leave();
        }
        return;
    }
    if !sample.value.is_finite() {
        return;
    }
    if !std::mem::replace(&mut target.is_touched, true) {
        touched.push(watched.target);
    }
    let before = watched.last.replace((sample.time_ns, sample.value));
    target.take(watched.what, watched.said.as_deref(), before, sample);
}

impl Inner {
    fn take(&mut self, at: u32, sample: Sample) {
        if let Some(watched) = self.watched.get_mut(at as usize) {
            take(&mut self.targets, &mut self.touched, watched, sample);
        }
    }

    /// What a series is, by its number; its place in the list where it matters.
    fn watched_of(&mut self, store: &Store, vocabulary: &Vocabulary, number: SeriesId) -> Option<u32> {
        match self.numbers.get(number) {
            Known::Nothing => return None,
            Known::Route(at) => return Some(at),
            Known::No => {}
        }
        let labels = store.series(number)?.labels;
        let watched = if is_known(vocabulary, labels.metric()) {
            self.watch(vocabulary, &labels, last(store, number))
        } else {
            None
        };
        let at = watched.map(|watched| {
            self.watched.push(watched);
            self.watched.len() as u32 - 1
        });
        self.numbers.set(number, at.map_or(Known::Nothing, Known::Route));
        at
    }

    /// Finds out what a series says of which target.
    fn watch(
        &mut self,
        vocabulary: &Vocabulary,
        labels: &Labels,
        last: Option<(i64, f64)>,
    ) -> Option<Watched> {
        let (what, said) = match labels.metric() {
            "up" => (What::Up, None),
            PROCESS_START => (What::Start, None),
            metric => match said(vocabulary, labels) {
                Some((what, said)) => (what, Some(self.shared(said))),
                None => created(vocabulary, metric).map(|_| (What::Created, None))?,
            },
        };
        let target = self.place(labels)?;
        if said.is_some() {
            self.targets[target as usize].locate(labels);
        }
        Some(Watched { target, what, said, last })
    }

    fn shared(&mut self, said: Said) -> Arc<Said> {
        if let Some(known) = self.said.get(&said) {
            return Arc::clone(known);
        }
        let said = Arc::new(said);
        self.said.insert(Arc::clone(&said));
        said
    }

    /// The place of the target that a series is of; a new one where it is not known, none beyond the bound.
    fn place(&mut self, labels: &Labels) -> Option<u32> {
        let name = Name::of(labels);
        if name.instance().is_empty() {
            return None;
        }
        if let Some(place) = self.places.get(&name) {
            return Some(*place);
        }
        if self.targets.len() >= TARGETS_MAX {
            self.is_full = true;
            return None;
        }
        let place = self.targets.len() as u32;
        self.targets.push(Target::new(name.clone()));
        self.places.insert(name, place);
        Some(place)
    }

    /// Tells what the samples of a batch come to.
    fn judge(&mut self) {
        let now_ns = now_ns();
        for place in std::mem::take(&mut self.touched) {
            let target = &mut self.targets[place as usize];
            target.heard_ns = now_ns;
            let events = target.judge();
            if let Some(row) = target.changed_row() {
                let key = [ROWS, target.name.as_bytes()].concat();
                if key.len() <= ROWS.len() + ROW_NAME_BYTES_MAX {
                    self.rows.insert(key, (self.look, row));
                }
            }
            for event in events {
                if self.waiting.len() < WAITING_MAX {
                    self.waiting.push((self.look, event));
                }
            }
        }
    }

    fn keep_bounded(&mut self) {
        if self.watched.len() > SERIES_MAX {
            self.forget_series();
        }
        let now_ns = now_ns();
        if !self.is_full || self.cleared_ns.saturating_add(ROOM_PERIOD_NS) > now_ns {
            return;
        }
        (self.is_full, self.cleared_ns) = (false, now_ns);
        self.forget_series();
        self.targets.retain(|target| {
            target.engine().is_some() && target.heard_ns.saturating_add(REMEMBERED_NS) > now_ns
        });
        self.places.clear();
        for (place, target) in (0..).zip(&self.targets) {
            self.places.insert(target.name.clone(), place);
        }
    }

    fn forget_series(&mut self) {
        self.numbers = Numbers::default();
        self.watched.clear();
        self.said.clear();
    }
}

/// The latest sample of a series that is a value: the end of a series is none.
fn last(store: &Store, number: SeriesId) -> Option<(i64, f64)> {
    let info = store.series(number)?;
    let to_ns = info.time_ns.1;
    if !is_stale_marker(info.last) {
        return Some((to_ns, info.last));
    }
    let mut found = None;
    let from_ns = to_ns.saturating_sub(REMEMBERED_NS);
    let read = store.read(number, from_ns, to_ns, &mut |chunk| {
        let samples = chunk.samples().unwrap_or_default();
        let value = samples.iter().rev().find(|sample| sample.value.is_finite() && sample.time_ns <= to_ns);
        found = value.map(|sample| (sample.time_ns, sample.value)).or(found);
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        tracing::debug!(%error, "the last value of a series is not known");
    }
    found
}

/// What a series of an engine says by its name and labels. Of a histogram the count is enough.
fn said(vocabulary: &Vocabulary, labels: &Labels) -> Option<(What, Said)> {
    let metric = labels.metric();
    let mut hits =
        vocabulary.lookup(metric).iter().filter(|hit| matches!(hit.part, Part::Whole | Part::Count));
    hits.find_map(|hit| {
        let (source, row) = vocabulary.get(*hit)?;
        if source.of != Of::Engine {
            return None;
        }
        let mapped = source.map(row, hit.part, labels)?;
        let is_counter = hit.part == Part::Count || row.kind == MetricKind::Counter;
        let name = metric.strip_suffix(hit.part.suffix()).unwrap_or(metric);
        let said = Said {
            engine: source.name.as_str().into(),
            model: mapped.get("model").unwrap_or_default().into(),
            name: name.into(),
            topic: has_others(source, row).then(|| topic(source, row)).flatten(),
        };
        Some((if is_counter { What::Counter } else { What::Other }, said))
    })
}

/// Whether a fact has names of several releases.
fn has_others(source: &Source, row: &Row) -> bool {
    source.rows.iter().any(|other| other.group() == row.group() && other.rank != row.rank)
}

/// What the names of a fact are kept under.
fn topic(source: &Source, row: &Row) -> Option<Arc<str>> {
    let (metric, set) = row.group()?;
    let set: Vec<String> = set.iter().map(|(label, value)| format!("{label}={value}")).collect();
    Some(format!("name/{}/{metric}/{}", source.name, set.join(",")).into())
}

/// The labels that tell one project's targets from another's.
fn project_labels() -> impl Iterator<Item = &'static str> {
    RESERVED_LABELS.into_iter().take(3)
}
