//! What the store knows without reading: series, runs, writers, open segments.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::{Labels, RunId, RunRecord, Sample, SeriesIdentity, WriterId};

use crate::SeriesId;
use crate::by_number::ByNumber;
use crate::chunk::Summary;
use crate::events::Events;
use crate::exemplars::Exemplars;
use crate::head::{Head, MemoryChunk};
use crate::index::Index;
use crate::metadata::MetricMetadata;
use crate::record::{self, Sequences};
use crate::rollup::{day_end, day_start};
use crate::segment::{Class, Opened, Segment};
use crate::telemetry::Telemetry;
use crate::tokens::TokenRecord;

/// What is known of a series without reading its points.
#[derive(Debug, Clone)]
pub struct SeriesInfo {
    /// Its number.
    pub id: SeriesId,
    /// Its labels, the run's included.
    pub labels: Arc<Labels>,
    /// Its name as logged.
    pub display: Arc<str>,
    /// How many points it has, those left out that are kept as roll-ups only; one whose value was
    /// replaced may count twice until the next start.
    pub points: u64,
    /// Earliest and latest time, nanoseconds.
    pub time_ns: (i64, i64),
    /// Step of the latest point.
    pub last_step: Option<i64>,
    /// Largest step.
    pub max_step: Option<i64>,
    /// Value of the latest point.
    pub last: f64,
}

/// Sums over all points of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) points: u64,
    pub(crate) time_ns: (i64, i64),
    pub(crate) last: f64,
    pub(crate) last_step: Option<i64>,
    pub(crate) max_step: Option<i64>,
}

impl Totals {
    const NONE: Self =
        Self { points: 0, time_ns: (i64::MAX, i64::MIN), last: f64::NAN, last_step: None, max_step: None };

    fn add(&mut self, summary: &Summary) {
        self.points += u64::from(summary.count);
        self.reach(summary);
    }

    /// As far as roll-ups know.
    fn reach(&mut self, summary: &Summary) {
        self.time_ns.0 = self.time_ns.0.min(summary.time_ns.0);
        if summary.time_ns.1 >= self.time_ns.1 {
            self.time_ns.1 = summary.time_ns.1;
            (self.last, self.last_step) = (summary.last, summary.last_step);
        }
        self.max_step = self.max_step.max(summary.steps.map(|(_, greatest)| greatest));
    }
}

/// One series.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) identity: Arc<[u8]>,
    pub(crate) run: Option<RunId>,
    pub(crate) totals: Totals,
    pub(crate) head: Head,
    /// Files of roll-ups that hold it.
    pub(crate) rolled: u32,
}

impl Series {
    pub(crate) fn class(&self) -> Class {
        if self.run.is_some() { Class::Run } else { Class::Fleet }
    }

    /// Whether there is anything of it, be it roll-ups only.
    pub(crate) fn has_points(&self) -> bool {
        self.totals.points > 0 || self.rolled > 0
    }
}

/// The series of one metric in one run: their logged name and how many there are.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) display: Box<str>,
    pub(crate) series: usize,
}

/// What a number of series is bounded for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Population {
    /// Organization, workspace and project, joined by NUL.
    Project(Box<str>),
    Fleet,
}

impl Population {
    /// The one that a series of `run` counts into.
    pub(crate) fn of(run: Option<RunId>, identity: &[u8]) -> Self {
        let label = |name| record::identity_label(identity, name).unwrap_or_default();
        if run.is_none() {
            return Self::Fleet;
        }
        let names = [label("organization"), label("workspace"), label("project")];
        Self::Project(names.join("\0").into())
    }
}

/// A metric in a run.
pub(crate) type ScopeKey = (RunId, Box<str>);

/// Everything in memory. Changed only by the one who holds the writer, after a commit.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) series: ByNumber<Series>,
    pub(crate) by_identity: HashMap<Arc<[u8]>, SeriesId>,
    pub(crate) index: Index,
    pub(crate) by_run: HashMap<RunId, Vec<SeriesId>>,
    pub(crate) scopes: HashMap<ScopeKey, Scope>,
    pub(crate) runs: HashMap<RunId, Arc<RunRecord>>,
    pub(crate) writers: HashMap<WriterId, Sequences>,
    /// By the metric's name.
    pub(crate) metadata: BTreeMap<Box<str>, Arc<MetricMetadata>>,
    /// By id.
    pub(crate) tokens: BTreeMap<[u8; 6], Arc<TokenRecord>>,
    /// How many series each project's runs have, and those of no run.
    pub(crate) populations: HashMap<Population, usize>,
    /// In order of age: where two have a point at one time, the later one's counts.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Points of series of no run are complete from here on; before, roll-ups are all there is.
    pub(crate) raw_from_ns: i64,
    /// Points that are in no segment.
    pub(crate) head_points: u64,
    /// Series that have points to be sealed.
    pub(crate) head_series: u64,
    /// A segment that the manifest names could not be opened: nobody knows whose points it holds.
    pub(crate) incomplete: bool,
    /// Segments may hold points of series that are no more.
    pub(crate) purged: bool,
    /// Spans and log records.
    pub(crate) telemetry: Telemetry,
    pub(crate) exemplars: Exemplars,
    pub(crate) events: Events,
}

impl State {
    /// Adds a series; `false` when its identity can't be read.
    pub(crate) fn insert_series(&mut self, id: SeriesId, identity: Arc<[u8]>) -> bool {
        let Some((run, metric, display)) = record::identity_scope(&identity) else { return false };
        if let Some(run) = run {
            self.by_run.entry(run).or_default().push(id);
            self.scopes
                .entry((run, metric.into()))
                .or_insert_with(|| Scope { display: display.into(), series: 0 })
                .series += 1;
        }
        *self.populations.entry(Population::of(run, &identity)).or_default() += 1;
        self.by_identity.insert(identity.clone(), id);
        self.index.insert(id, &identity);
        let (totals, head) = (Totals::NONE, Head::default());
        self.series.insert(id, Series { identity, run, totals, head, rolled: 0 });
        true
    }

    /// The number of a series.
    pub(crate) fn number(&self, identity: &SeriesIdentity) -> Option<SeriesId> {
        self.by_identity.get(&record::encode_identity(identity)[..]).copied()
    }

    /// Adds points, each part in order of time, to the head of a series; a purged series' are dropped.
    pub(crate) fn push(&mut self, id: SeriesId, packed: Vec<Arc<MemoryChunk>>, samples: &[Sample]) {
        let Some(series) = self.series.get_mut(id) else { return };
        if packed.is_empty() && samples.is_empty() {
            return;
        }
        self.head_series += u64::from(series.head.is_empty());
        let rest = (!samples.is_empty()).then(|| Summary::of(samples));
        for summary in packed.iter().map(|chunk| &chunk.summary).chain(&rest) {
            self.head_points += u64::from(summary.count);
            series.totals.add(summary);
        }
        let replaced = series.head.push(id, packed, samples);
        self.head_points -= replaced;
        series.totals.points -= replaced;
    }

    /// Counts a segment's points into its series' totals and takes it up.
    pub(crate) fn insert_segment_at_open(&mut self, opened: Opened) {
        for (listed, summary) in opened.segment.listed().iter().zip(&opened.summaries) {
            if let Some(series) = self.series.get_mut(listed.series) {
                if opened.segment.class.is_raw() {
                    series.totals.add(summary);
                } else {
                    series.totals.reach(summary);
                    series.rolled += 1;
                }
            }
        }
        self.segments.push(Arc::new(opened.segment));
    }

    /// Points of a segment whose series still exist.
    pub(crate) fn live_points(&self, segment: &Segment) -> u64 {
        let alive = segment.listed().iter().filter(|l| self.series.contains_key(l.series));
        alive.map(|l| u64::from(l.points)).sum()
    }

    /// Whether points of that day, of series of no run, are in memory.
    pub(crate) fn has_day_in_memory(&self, day: i64) -> bool {
        let range = (day_start(day).saturating_add(1), day_end(day));
        let has = |series: &Series| series.run.is_none() && series.head.overlaps(range.0, range.1);
        self.head_points > 0 && self.series.values().any(has)
    }

    /// The series of a run, by display name, then labels.
    pub(crate) fn run_series(&self, run: RunId) -> Vec<SeriesInfo> {
        let ids = self.by_run.get(&run).map_or(&[][..], Vec::as_slice);
        let mut infos: Vec<SeriesInfo> = ids.iter().filter_map(|id| self.info(*id)).collect();
        infos.sort_by(|a, b| a.display.cmp(&b.display).then_with(|| a.labels.cmp(&b.labels)));
        infos
    }

    /// What is known of a series; nothing when it has no points.
    pub(crate) fn info(&self, id: SeriesId) -> Option<SeriesInfo> {
        let series = self.series.get(id)?;
        let identity = record::decode_identity(&series.identity)?;
        let totals = &series.totals;
        series.has_points().then(|| SeriesInfo {
            id,
            labels: Arc::new(identity.labels),
            display: identity.display.into(),
            points: totals.points,
            time_ns: totals.time_ns,
            last_step: totals.last_step,
            max_step: totals.max_step,
            last: totals.last,
        })
    }

    /// The runs that are not deleted, newest first.
    pub(crate) fn runs(&self) -> Vec<Arc<RunRecord>> {
        let mut runs: Vec<_> = self.runs.values().filter(|run| run.deleted_ns.is_none()).cloned().collect();
        runs.sort_by(|a, b| b.created_ns.cmp(&a.created_ns).then_with(|| a.path.cmp(&b.path)));
        runs
    }

    /// Forgets a run with its series and writers.
    pub(crate) fn forget_run(&mut self, id: RunId) {
        self.purged = true;
        if let Some(run) = self.runs.remove(&id) {
            for writer in record::writers_of(&run) {
                self.writers.remove(&writer);
            }
        }
        let series = self.by_run.remove(&id).unwrap_or_default();
        for series in series.iter().filter_map(|id| self.series.get(*id)) {
            if let Some((_, metric, _)) = record::identity_scope(&series.identity) {
                self.scopes.remove(&(id, metric.into()));
            }
        }
        self.forget_series(&series);
    }

    /// Forgets series that nothing else names.
    pub(crate) fn forget_series(&mut self, ids: &[SeriesId]) {
        let identities = ids.iter().filter_map(|id| Some((*id, &*self.series.get(*id)?.identity)));
        self.index.remove(identities);
        self.exemplars.forget_series(ids);
        for series in ids.iter().filter_map(|id| self.series.remove(*id)) {
            self.head_points -= series.head.points();
            self.head_series -= u64::from(!series.head.is_empty());
            self.by_identity.remove(&series.identity);
            let population = Population::of(series.run, &series.identity);
            if let Some(count) = self.populations.get_mut(&population) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// The series of no run that have points in `segments` and surely nowhere else.
    pub(crate) fn only_in(&self, segments: &[Arc<Segment>]) -> Vec<SeriesId> {
        if self.incomplete {
            return Vec::new();
        }
        let mut ids: Vec<SeriesId> = segments.iter().flat_map(|s| s.listed()).map(|l| l.series).collect();
        ids.sort_unstable();
        ids.dedup();
        let others = || self.segments.iter().filter(|s| segments.iter().all(|gone| gone.id != s.id));
        ids.retain(|id| {
            let series = self.series.get(*id).filter(|series| series.run.is_none());
            series.is_some_and(|series| series.head.points() == 0) && !others().any(|s| s.find(*id).is_some())
        });
        ids
    }
}
