//! Reading the source: the last sample before each step, and the samples of windows.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, RollupAsk, RollupParts, is_stale_marker};

use super::table::{Bits, Grid, Row, Table, Value};
use super::{Evaluator, Samples, parallel, rolled};
use crate::error::{QueryError, Span};
use crate::functions::Over;
use crate::limits::Charge;
use crate::number::seconds;
use crate::plan::{Kind, Node, Selector, Subquery};
use crate::source::{Columns, Select, Series, Summary};

/// The windows of a range vector: `(end - range, end]` for every `end` of the grid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    /// Ends of the windows; one only when the vector is pinned.
    pub(crate) ends: Grid,
    pub(crate) range_ns: i64,
    pub(crate) pinned: bool,
    /// Whether a value is a number of samples, for counting.
    pub(crate) weighted: bool,
}

/// A series that fits, with its labels.
type Found<'s> = (Arc<Labels>, Box<dyn Series + 's>);

impl Windows {
    /// The widest stretch at whose multiples all windows begin and end.
    pub(super) fn align_ns(&self) -> i64 {
        let step_ns = if self.ends.steps > 1 { self.ends.step_ns } else { 0 };
        gcd(gcd(self.ends.start_ns, step_ns), self.range_ns)
    }

    /// Whether a sample in `from_ns..=to_ns` could be in a window.
    fn want(&self, from_ns: i64, to_ns: i64) -> bool {
        // An end in `[from, to + range)` has the window `(end - range, end]` reach the samples.
        self.ends.touches(from_ns, to_ns.saturating_add(self.range_ns))
    }

    /// Whether every window holds all samples in `from_ns..=to_ns` or none.
    fn hold_whole(&self, from_ns: i64, to_ns: i64) -> bool {
        let later = |time: i64| time.saturating_add(self.range_ns);
        !self.ends.touches(from_ns, to_ns) && !self.ends.touches(later(from_ns), later(to_ns))
    }

    /// How much of a chunk `over` needs.
    fn need(&self, over: Option<Over>, summary: &Summary) -> Need {
        let (from_ns, to_ns) = summary.time_ns;
        if !self.want(from_ns, to_ns) {
            return Need::Nothing;
        }
        if summary.non_finite > 0 || !self.hold_whole(from_ns, to_ns) {
            return Need::All;
        }
        match over {
            Some(Over::Last | Over::Present | Over::Absent) => Need::Value(summary.last),
            Some(Over::Min) => Need::Value(summary.min),
            Some(Over::Max) => Need::Value(summary.max),
            Some(Over::Count) => Need::Value(f64::from(summary.count)),
            _ => Need::All,
        }
    }
}

impl Evaluator<'_> {
    /// The value of every series at every step: the last sample not older than the lookback.
    /// With `times` the sample's time in seconds instead of its value.
    pub(crate) fn instants(
        &self,
        selector: &Selector,
        span: Span,
        grid: Grid,
        times: bool,
    ) -> Result<Table, QueryError> {
        let refs = match selector.pin {
            Some(pin) => Grid { start_ns: self.pinned(pin), ..grid }.earlier(selector.offset_ns),
            None => grid.earlier(selector.offset_ns),
        };
        let refs = if selector.pin.is_some() { Grid { steps: grid.steps.min(1), ..refs } } else { refs };
        let from = refs.start_ns.saturating_sub(self.lookback_ns).saturating_add(1);
        let series = self.select(selector, from, refs.last())?;
        self.budget.plan(series.len() as u64, grid.steps as u64)?;
        let rows = parallel(&self.budget, series, |(labels, series)| {
            let parts = RollupParts::FIRST | RollupParts::LAST;
            let ask = RollupAsk { from_ns: from, to_ns: refs.last(), align_ns: None, parts };
            let (rolled, from) = self.rolled(&*series, ask, (span, true))?;
            let columns =
                self.read(&*series, (from, ask.to_ns), false, |summary| instant_need(summary, refs))?;
            let (columns, alive) = rolled::instants(&rolled, columns);
            let last = LastValues { columns: &columns, alive: &alive, lookback_ns: self.lookback_ns };
            let row = last.row(labels, refs, times);
            Ok(row.map(|row| if refs.steps == grid.steps { row } else { widen(row, grid.steps) }))
        })?;
        self.table(rows.into_iter().flatten().collect())
    }

    /// The series that fit, by labels.
    fn select<'s>(
        &'s self,
        selector: &Selector,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<Vec<Found<'s>>, QueryError> {
        let mut found = Vec::new();
        for matchers in &selector.any_of {
            let select = Select { matchers, from_ns, to_ns };
            found.extend(self.source.select(&select)?.into_iter().map(|series| (series.labels(), series)));
        }
        self.budget.series(found.len() as u64)?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        if selector.any_of.len() > 1 {
            found.dedup_by(|a, b| a.0 == b.0);
        }
        Ok(found)
    }

    /// Decodes the chunks of `series` that `need` asks for.
    fn read(
        &self,
        series: &dyn Series,
        range: (i64, i64),
        weighted: bool,
        need: impl Fn(&Summary) -> Need,
    ) -> Result<Columns, QueryError> {
        let mut columns = Columns::default();
        if range.0 > range.1 {
            return Ok(columns);
        }
        let mut failure = None;
        series.chunks(range.0, range.1, &mut |chunk| {
            let summary = chunk.summary();
            let mut take = || -> Result<(), QueryError> {
                let needed = match need(&summary) {
                    // Roll-ups told of a part of it already.
                    Need::Value(_) if summary.time_ns.0 < range.0 => Need::All,
                    needed => needed,
                };
                match needed {
                    Need::Nothing => {}
                    Need::Value(value) => {
                        self.budget.read(1)?;
                        columns.times_ns.push(summary.time_ns.1);
                        columns.values.push(value);
                    }
                    Need::All => {
                        self.budget.check()?;
                        let before = columns.values.len();
                        chunk.decode(&mut columns)?;
                        let decoded = &columns.times_ns[before..];
                        let earlier = decoded.partition_point(|time| *time < range.0);
                        let within = decoded.partition_point(|time| *time <= range.1).saturating_sub(earlier);
                        self.budget.read(within as u64)?;
                        if weighted {
                            let decoded = columns.values[before..].iter_mut();
                            decoded.filter(|value| !is_stale_marker(**value)).for_each(|value| *value = 1.0);
                        }
                    }
                }
                Ok(())
            };
            match take() {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        trim(&mut columns, range);
        failure.map_or(Ok(columns), Err)
    }

    /// Runs `work` on each series of a range vector with its windows; series without samples are
    /// left out. With `over` a series holds only what that function needs. One series a thread is
    /// in memory at a time, unless it comes from a subquery.
    pub(crate) fn each_series<R: Send>(
        &self,
        node: &Node,
        grid: Grid,
        over: Option<Over>,
        work: impl Fn(Samples, Windows) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        let (selector, range_ns) = match &node.kind {
            Kind::Range { selector, range_ns } => (selector, *range_ns),
            Kind::Subquery(subquery) => {
                let (samples, windows, _charge) = self.subquery(subquery, grid)?;
                self.budget.plan(samples.len() as u64, grid.steps as u64)?;
                return parallel(&self.budget, samples, |samples| work(samples, windows));
            }
            _ => return Err(QueryError::Internal("a range vector is needed".to_owned())),
        };
        let ends = match selector.pin {
            Some(pin) => Grid { start_ns: self.pinned(pin), steps: grid.steps.min(1), ..grid },
            None => grid,
        }
        .earlier(selector.offset_ns);
        let weighted = over == Some(Over::Count);
        let windows = Windows { ends, range_ns, pinned: selector.pin.is_some(), weighted };
        let from = ends.start_ns.saturating_sub(range_ns).saturating_add(1);
        let range = (from, ends.last());
        let series = self.select(selector, range.0, range.1)?;
        self.budget.plan(series.len() as u64, grid.steps as u64)?;
        let parts = over.and_then(rolled::parts);
        let takes = parts.is_some();
        let ask = RollupAsk {
            from_ns: range.0,
            to_ns: range.1,
            align_ns: parts.map(|_| windows.align_ns()),
            parts: parts.unwrap_or(RollupParts::LAST),
        };
        let results = parallel(&self.budget, series, |(labels, series)| {
            let (rolled, from) = self.rolled(&*series, ask, (node.span, !takes))?;
            let range = (from, range.1);
            let columns = self.read(&*series, range, weighted, |summary| windows.need(over, summary))?;
            let columns = without_markers(columns);
            let (rolled, columns) =
                if takes { (rolled, columns) } else { (Vec::new(), rolled::lasts(&rolled, columns)) };
            if columns.values.is_empty() && rolled.is_empty() {
                return Ok(None);
            }
            work(Samples { labels, drop_name: false, columns, rolled }, windows).map(Some)
        })?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The samples that a subquery makes, its windows, and the memory that they take.
    fn subquery(
        &self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Vec<Samples>, Windows, Option<Charge>), QueryError> {
        let ends = match subquery.pin {
            Some(pin) => Grid { start_ns: self.pinned(pin), steps: grid.steps.min(1), ..grid },
            None => grid,
        }
        .earlier(subquery.offset_ns);
        let pinned = subquery.pin.is_some();
        let windows = Windows { ends, range_ns: subquery.range_ns, pinned, weighted: false };
        let step = subquery.step_ns.unwrap_or(self.subquery_step_ns).max(1);
        let before = ends.start_ns.saturating_sub(subquery.range_ns);
        let mut start = step.saturating_mul(before / step);
        if start <= before {
            start = start.saturating_add(step);
        }
        let end = ends.last();
        if end < start {
            return Ok((Vec::new(), windows, None));
        }
        let steps = (i128::from(end) - i128::from(start)) / i128::from(step) + 1;
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.budget.plan(1, steps)?;
        let inner = Grid { start_ns: start, step_ns: step, steps: steps as usize };
        let (samples, charge) = match self.node(&subquery.inner, inner)? {
            Value::Vector(table) => {
                let (rows, charge) = table.into_parts();
                (rows.into_iter().map(|row| to_samples(row, inner)).collect(), Some(charge))
            }
            Value::Scalar(values) => {
                let columns =
                    Columns { times_ns: (0..inner.steps).map(|step| inner.at(step)).collect(), values };
                (
                    vec![Samples { labels: Arc::default(), drop_name: false, columns, rolled: Vec::new() }],
                    None,
                )
            }
            Value::Text(_) => (Vec::new(), None),
        };
        Ok((samples, windows, charge))
    }

    /// A range vector as an answer: all samples of its one window.
    pub(crate) fn matrix(&self, node: &Node, grid: Grid) -> Result<Vec<Samples>, QueryError> {
        let held = self.each_series(node, grid, None, |mut samples, windows| {
            let end = windows.ends.start_ns;
            trim(&mut samples.columns, (end.saturating_sub(windows.range_ns).saturating_add(1), end));
            let charge = self.budget.hold(samples.columns.values.len() as u64 * 16)?;
            Ok((samples, charge))
        })?;
        let samples = held.into_iter().map(|(samples, _)| samples);
        Ok(samples.filter(|samples| !samples.columns.values.is_empty()).collect())
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.saturating_abs(), b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Cuts samples outside of `from_ns..=to_ns`.
fn trim(columns: &mut Columns, (from_ns, to_ns): (i64, i64)) {
    let to = columns.times_ns.partition_point(|time| *time <= to_ns);
    columns.times_ns.truncate(to);
    columns.values.truncate(to);
    let from = columns.times_ns.partition_point(|time| *time < from_ns);
    columns.times_ns.drain(..from);
    columns.values.drain(..from);
}

/// How much of a chunk a reader wants.
enum Need {
    Nothing,
    /// One sample at its last time, with this value.
    Value(f64),
    All,
}

/// A chunk without a step inside matters by its last sample only.
fn instant_need(summary: &Summary, refs: Grid) -> Need {
    let (first, last) = summary.time_ns;
    if refs.touches(first, last) {
        Need::All
    } else if refs.last() >= last {
        Need::Value(summary.last)
    } else {
        Need::Nothing
    }
}

/// The samples that instants are looked up in.
struct LastValues<'a> {
    columns: &'a Columns,
    /// Of so many of the first samples: until when the series is known to have gone on.
    alive: &'a [i64],
    lookback_ns: i64,
}

impl LastValues<'_> {
    fn row(&self, labels: Arc<Labels>, refs: Grid, times: bool) -> Option<Row> {
        let Self { columns, alive, lookback_ns } = *self;
        let mut row = Row::empty(labels, false, refs.steps);
        let mut behind = 0;
        for step in 0..refs.steps {
            let at = refs.at(step);
            while columns.times_ns.get(behind).is_some_and(|time| *time <= at) {
                behind += 1;
            }
            let Some(last) = behind.checked_sub(1) else { continue };
            let (time, value) = (columns.times_ns[last], columns.values[last]);
            let current = time > at.saturating_sub(lookback_ns)
                || alive.get(last).is_some_and(|until_ns| at < *until_ns);
            if current && !is_stale_marker(value) {
                row.put(step, if times { seconds(time) } else { value });
            }
        }
        (!row.present.is_empty()).then_some(row)
    }
}

/// A row of one step repeated.
fn widen(row: Row, steps: usize) -> Row {
    Row { values: vec![row.values[0]; steps], present: Bits::all(steps), ..row }
}

fn without_markers(mut columns: Columns) -> Columns {
    if columns.values.iter().any(|value| is_stale_marker(*value)) {
        let kept: (Vec<i64>, Vec<f64>) = columns
            .times_ns
            .iter()
            .zip(&columns.values)
            .filter(|(_, value)| !is_stale_marker(**value))
            .map(|(time, value)| (*time, *value))
            .unzip();
        columns = Columns { times_ns: kept.0, values: kept.1 };
    }
    columns
}

fn to_samples(row: Row, grid: Grid) -> Samples {
    let columns = if row.present.count() == grid.steps {
        Columns { times_ns: (0..grid.steps).map(|step| grid.at(step)).collect(), values: row.values }
    } else {
        let (times_ns, values) = row.points().map(|(step, value)| (grid.at(step), value)).unzip();
        Columns { times_ns, values }
    };
    Samples { labels: row.labels, drop_name: row.drop_name, columns, rolled: Vec::new() }
}
