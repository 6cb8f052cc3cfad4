//! Functions over windows of samples: one pass per series with two pointers.

use super::rolling::{Extreme, Rolling, Sorted, Whole, nan_first};
use super::select::Windows;
use super::table::{Grid, Row, Table};
use super::{Evaluator, Samples};
use crate::error::QueryError;
use crate::functions::Over;
use crate::limits::Budget;
use crate::notes::Note;
use crate::number::seconds;
use crate::plan::{Kind, Node, Selector};
use crate::source::MatchOp;

/// What a function sees of a series at one step: at least one sample.
#[derive(Clone, Copy)]
struct Window<'a> {
    times_ns: &'a [i64],
    values: &'a [f64],
    /// The window is `(start_ns, end_ns]`.
    start_ns: i64,
    end_ns: i64,
    /// The time of evaluation, which offset and `@` leave alone.
    now_ns: i64,
    /// Whether a sample in the window is less than the one before it.
    falls: bool,
    parameters: [f64; 2],
}

impl Evaluator<'_> {
    pub(super) fn over(&self, over: Over, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let position = usize::from(over == Over::Quantile);
        let range = arguments.get(position).ok_or_else(|| QueryError::Internal("no range".to_owned()))?;
        let mut parameters: Vec<Vec<f64>> = Vec::new();
        for (at, argument) in arguments.iter().enumerate() {
            if at != position {
                parameters.push(self.scalar(argument, grid)?);
            }
        }
        check_smoothing(over, &parameters)?;
        let keeps_name = matches!(over, Over::First | Over::Last);
        let rows = self.each_series(range, grid, Some(over), |samples, windows| {
            self.budget.check()?;
            let frame =
                Frame { samples: &samples, windows, grid, parameters: &parameters, budget: &self.budget };
            Ok(Row { drop_name: !keeps_name || samples.drop_name, ..frame.compute(over)? })
        })?;
        let rows: Vec<Row> = rows.into_iter().filter(|row| !row.present.is_empty()).collect();
        if over == Over::Absent {
            return self.absent_over(range, &rows, grid);
        }
        if over == Over::Quantile && !rows.is_empty() {
            for q in parameters.first().into_iter().flatten().filter(|q| !(0.0..=1.0).contains(*q)) {
                self.note(Note::InvalidQuantile(*q), arguments[0].span);
            }
        }
        if matches!(over, Over::Rate | Over::Increase) {
            for row in &rows {
                let name = row.labels.metric();
                let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end));
                if !name.is_empty() && !counter {
                    self.note(Note::PossibleNonCounter(name.to_owned()), range.span);
                }
            }
        }
        self.table(rows)
    }

    /// One row where none of `rows` has a value.
    fn absent_over(&self, range: &Node, rows: &[Row], grid: Grid) -> Result<Table, QueryError> {
        let labels = match &range.kind {
            Kind::Range { selector, .. } => absent_labels(selector),
            _ => model::Labels::default(),
        };
        let mut row = Row {
            values: vec![1.0; grid.steps],
            present: super::table::Bits::all(grid.steps),
            labels: labels.into(),
            drop_name: true,
        };
        for found in rows {
            row.present.remove(&found.present);
        }
        self.table(if row.present.is_empty() { Vec::new() } else { vec![row] })
    }
}

/// The labels that a selector fixes, as far as it fixes them once.
pub(super) fn absent_labels(selector: &Selector) -> model::Labels {
    let mut labels = model::Labels::builder();
    let mut seen: Vec<&str> = Vec::new();
    let [matchers] = &selector.any_of[..] else { return model::Labels::default() };
    for matcher in matchers.iter().filter(|matcher| &*matcher.name != "__name__") {
        if matcher.op == MatchOp::Equal && !seen.contains(&&*matcher.name) {
            labels.set(&*matcher.name, &*matcher.value);
            seen.push(&matcher.name);
        } else {
            labels.set(&*matcher.name, "");
        }
    }
    labels.build()
}

fn check_smoothing(over: Over, parameters: &[Vec<f64>]) -> Result<(), QueryError> {
    if over != Over::DoubleExponentialSmoothing {
        return Ok(());
    }
    for (name, values) in ["smoothing", "trend"].iter().zip(parameters) {
        let short = if *name == "smoothing" { "sf" } else { "tf" };
        if let Some(bad) = values.iter().find(|value| **value <= 0.0 || **value >= 1.0) {
            return Err(QueryError::Execution(format!(
                "invalid {name} factor. Expected: 0 < {short} < 1, got: {bad:.6}"
            )));
        }
    }
    Ok(())
}

/// One series with the windows over it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) samples: &'a Samples,
    pub(super) windows: Windows,
    pub(super) grid: Grid,
    parameters: &'a [Vec<f64>],
    pub(super) budget: &'a Budget,
}

/// Samples visited between two looks at the clock.
pub(super) const VISITS_PER_CHECK: usize = 1 << 20;
/// Longest window, in samples, that is kept sorted while it moves.
const SORTED_MAX: f64 = 4096.0;

impl Frame<'_> {
    /// Computes one series; the function is chosen outside of the loop over steps.
    fn compute(&self, over: Over) -> Result<Row, QueryError> {
        if !self.samples.rolled.is_empty() {
            return self.over_rolled(over);
        }
        let counter = matches!(over, Over::Rate | Over::Increase);
        let run = |function: &dyn Fn(Window<'_>) -> Option<f64>| self.slide(counter, function);
        match over {
            Over::Absent | Over::Present => run(&|_| Some(1.0)),
            Over::Count if self.windows.weighted => run(&|window| Some(window.values.iter().sum())),
            Over::Count => run(&|window| Some(window.values.len() as f64)),
            Over::First => run(&|window| window.values.first().copied()),
            Over::Last => run(&|window| window.values.last().copied()),
            Over::Sum | Over::Avg if Whole::fits(&self.samples.columns.values) => {
                Ok(self.roll(Whole::new(over == Over::Avg)))
            }
            Over::Sum => run(&|window| Some(sum(window.values))),
            Over::Avg => run(&|window| Some(mean(window.values))),
            Over::Min => Ok(self.roll(Extreme::new(true))),
            Over::Max => Ok(self.roll(Extreme::new(false))),
            Over::TsOfMin => {
                run(&|window| extreme(window, |new, best| new <= best).map(|(time, _)| seconds(time)))
            }
            Over::TsOfMax => {
                run(&|window| extreme(window, |new, best| new >= best).map(|(time, _)| seconds(time)))
            }
            Over::TsOfFirst => run(&|window| window.times_ns.first().copied().map(seconds)),
            Over::TsOfLast => run(&|window| window.times_ns.last().copied().map(seconds)),
            Over::Stdvar => run(&|window| Some(variance(window.values))),
            Over::Stddev => run(&|window| Some(variance(window.values).sqrt())),
            Over::Quantile if self.is_rolling() => Ok(self.roll(Sorted::default())),
            Over::Quantile => {
                run(&|window| Some(quantile(window.parameters[0], &mut window.values.to_vec())))
            }
            Over::Mad => run(&|window| Some(deviation(window.values))),
            Over::Rate => run(&|window| extrapolated(window, true, true)),
            Over::Increase => run(&|window| extrapolated(window, true, false)),
            Over::Delta => run(&|window| extrapolated(window, false, false)),
            Over::Irate => run(&|window| last_two(window, true)),
            Over::Idelta => run(&|window| last_two(window, false)),
            Over::Resets => run(&|window| Some(pairs(window.values, |before, after| after < before))),
            Over::Changes => run(&|window| {
                Some(pairs(window.values, |before, after| {
                    after != before && !(after.is_nan() && before.is_nan())
                }))
            }),
            Over::Deriv => run(&|window| {
                let near = *window.times_ns.first()?;
                (window.values.len() > 1).then(|| regression(window, near).0)
            }),
            Over::PredictLinear => run(&|window| {
                (window.values.len() > 1).then(|| {
                    let (slope, intercept) = regression(window, window.now_ns);
                    slope * window.parameters[0] + intercept
                })
            }),
            Over::DoubleExponentialSmoothing => run(&smoothed),
        }
    }

    /// Whether a window is worth to be kept sorted.
    fn is_rolling(&self) -> bool {
        let times = &self.samples.columns.times_ns;
        let span = times.last().zip(times.first()).map_or(0, |(last, first)| last - first).max(1);
        let share = (self.windows.range_ns as f64 / span as f64).min(1.0);
        self.grid.steps > 1 && !self.windows.pinned && times.len() as f64 * share <= SORTED_MAX
    }

    fn slide(&self, counter: bool, function: &dyn Fn(Window<'_>) -> Option<f64>) -> Result<Row, QueryError> {
        let Self { samples, windows, grid, parameters, budget } = *self;
        let mut visits = 0;
        let (times, values) = (&samples.columns.times_ns[..], &samples.columns.values[..]);
        let mut row = Row::empty(samples.labels.clone(), samples.drop_name, grid.steps);
        // Places of samples that are less than the one before.
        let falls: Vec<usize> = if counter {
            (1..values.len()).filter(|at| values[*at] < values[*at - 1]).collect()
        } else {
            Vec::new()
        };
        let mut passed = 0;
        let (mut from, mut to) = (0, 0);
        for step in 0..grid.steps {
            let end_ns = if windows.pinned { windows.ends.start_ns } else { windows.ends.at(step) };
            let start_ns = end_ns.saturating_sub(windows.range_ns);
            while times.get(to).is_some_and(|time| *time <= end_ns) {
                to += 1;
            }
            while times.get(from).is_some_and(|time| *time <= start_ns) {
                from += 1;
            }
            if from >= to {
                continue;
            }
            visits += to - from;
            if visits > VISITS_PER_CHECK {
                visits = 0;
                budget.check()?;
            }
            while falls.get(passed).is_some_and(|at| *at <= from) {
                passed += 1;
            }
            let parameter = |at: usize| parameters.get(at).and_then(|values| values.get(step)).copied();
            let window = Window {
                times_ns: &times[from..to],
                values: &values[from..to],
                start_ns,
                end_ns,
                now_ns: grid.at(step),
                falls: falls.get(passed).is_some_and(|at| *at < to),
                parameters: [parameter(0).unwrap_or(f64::NAN), parameter(1).unwrap_or(f64::NAN)],
            };
            if let Some(value) = function(window) {
                row.put(step, value);
            }
        }
        Ok(row)
    }

    /// As [`Frame::slide`], for what is cheaper to keep than to compute anew.
    fn roll(&self, mut rolling: impl Rolling) -> Row {
        let Self { samples, windows, grid, parameters, .. } = *self;
        let (times, values) = (&samples.columns.times_ns[..], &samples.columns.values[..]);
        let mut row = Row::empty(samples.labels.clone(), samples.drop_name, grid.steps);
        let (mut from, mut to) = (0, 0);
        for step in 0..grid.steps {
            let end_ns = if windows.pinned { windows.ends.start_ns } else { windows.ends.at(step) };
            let start_ns = end_ns.saturating_sub(windows.range_ns);
            // Samples between two windows come in by none.
            while times.get(to).is_some_and(|time| *time <= start_ns) {
                while from < to {
                    rolling.pop(from, values[from]);
                    from += 1;
                }
                to += 1;
                from = to;
            }
            while times.get(to).is_some_and(|time| *time <= end_ns) {
                rolling.push(to, values[to]);
                to += 1;
            }
            while from < to && times[from] <= start_ns {
                rolling.pop(from, values[from]);
                from += 1;
            }
            if from < to {
                let parameter = parameters.first().and_then(|values| values.get(step));
                row.put(step, rolling.value(parameter.copied().unwrap_or(f64::NAN)));
            }
        }
        row
    }
}

/// Adds `value` to `sum` with the error carried in `rest` (Kahan, Neumaier).
pub(super) fn add(value: f64, sum: f64, rest: f64) -> (f64, f64) {
    let total = sum + value;
    if total.is_infinite() {
        (total, 0.0)
    } else if sum.abs() >= value.abs() {
        (total, rest + ((sum - total) + value))
    } else {
        (total, rest + ((value - total) + sum))
    }
}

fn sum(values: &[f64]) -> f64 {
    let (sum, rest) = values.iter().fold((0.0, 0.0), |(sum, rest), value| add(*value, sum, rest));
    if sum.is_infinite() { sum } else { sum + rest }
}

/// The mean; by increments once the plain sum would overflow.
fn mean(values: &[f64]) -> f64 {
    let mut mean = Mean::default();
    for value in values {
        mean.push(*value);
    }
    mean.value()
}

/// A running mean.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    count: f64,
    sum: f64,
    rest: f64,
    /// Set once the sum overflowed; then `sum` is the mean itself.
    incremental: bool,
}

impl Mean {
    pub(super) fn push(&mut self, value: f64) {
        self.count += 1.0;
        if self.count == 1.0 {
            self.sum = value;
            return;
        }
        if !self.incremental {
            let (sum, rest) = add(value, self.sum, self.rest);
            if !sum.is_infinite() {
                (self.sum, self.rest) = (sum, rest);
                return;
            }
            self.incremental = true;
            self.sum /= self.count - 1.0;
            self.rest /= self.count - 1.0;
        }
        let share = (self.count - 1.0) / self.count;
        (self.sum, self.rest) = add(value / self.count, share * self.sum, share * self.rest);
    }

    pub(super) fn value(&self) -> f64 {
        if self.incremental { self.sum + self.rest } else { self.sum / self.count + self.rest / self.count }
    }
}

fn extreme(window: Window<'_>, better: impl Fn(f64, f64) -> bool) -> Option<(i64, f64)> {
    let mut best = (*window.times_ns.first()?, *window.values.first()?);
    for (time, value) in window.times_ns.iter().zip(window.values) {
        if better(*value, best.1) || best.1.is_nan() {
            best = (*time, *value);
        }
    }
    Some(best)
}

fn variance(values: &[f64]) -> f64 {
    let (mut count, mut mean, mut mean_rest, mut square, mut square_rest) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        let delta = value - (mean + mean_rest);
        (mean, mean_rest) = add(delta / count, mean, mean_rest);
        (square, square_rest) = add(delta * (value - (mean + mean_rest)), square, square_rest);
    }
    (square + square_rest) / count
}

/// The `q`-quantile; sorts `values`, NaN first.
pub(super) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    values.sort_unstable_by(|a, b| nan_first(*a, *b));
    quantile_of_sorted(q, values)
}

/// The `q`-quantile of sorted values.
pub(super) fn quantile_of_sorted(q: f64, values: &[f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let last = values.len() - 1;
    let rank = q * last as f64;
    let lower = (rank.floor() as usize).min(last);
    let upper = (lower + 1).min(last);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

fn deviation(values: &[f64]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut values = values.to_vec();
    let median = quantile(0.5, &mut values);
    for value in &mut values {
        *value = (*value - median).abs();
    }
    quantile(0.5, &mut values)
}

fn pairs(values: &[f64], counts: impl Fn(f64, f64) -> bool) -> f64 {
    values.windows(2).filter(|pair| counts(pair[0], pair[1])).count() as f64
}

/// The growth over the window, extrapolated to its edges; per second once divided by the range.
fn extrapolated(window: Window<'_>, counter: bool, rate: bool) -> Option<f64> {
    let (first, last) = (*window.values.first()?, *window.values.last()?);
    let mut grown = last - first;
    if counter && window.falls {
        for pair in window.values.windows(2) {
            if pair[1] < pair[0] {
                grown += pair[0];
            }
        }
    }
    let growth = Growth {
        first,
        grown,
        times_ns: (*window.times_ns.first()?, *window.times_ns.last()?),
        samples: window.values.len() as u64,
    };
    growth.extrapolated((window.start_ns, window.end_ns), counter, rate)
}

/// What is known of the samples in a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) first: f64,
    /// From the first to the last, resets allowed for.
    pub(super) grown: f64,
    pub(super) times_ns: (i64, i64),
    pub(super) samples: u64,
}

impl Growth {
    /// The growth over the window `(start_ns, end_ns]`; nothing of a single sample.
    pub(super) fn extrapolated(
        self,
        (start_ns, end_ns): (i64, i64),
        counter: bool,
        rate: bool,
    ) -> Option<f64> {
        let Self { first, grown, times_ns: (first_ns, last_ns), samples } = self;
        let intervals = samples.checked_sub(1).filter(|intervals| *intervals > 0)?;
        let mut to_start = (first_ns - start_ns) as f64 / 1e9;
        let mut to_end = end_ns.saturating_sub(last_ns) as f64 / 1e9;
        let sampled = (last_ns - first_ns) as f64 / 1e9;
        let between = sampled / intervals as f64;
        let threshold = between * 1.1;
        if to_start >= threshold {
            to_start = between / 2.0;
        }
        if counter && grown > 0.0 && first >= 0.0 {
            // A counter was never below zero: do not extrapolate to before it was.
            to_start = to_start.min(sampled * (first / grown));
        }
        if to_end >= threshold {
            to_end = between / 2.0;
        }
        let mut factor = (sampled + to_start + to_end) / sampled;
        if rate {
            factor /= end_ns.saturating_sub(start_ns) as f64 / 1e9;
        }
        Some(grown * factor)
    }
}

fn last_two(window: Window<'_>, counter: bool) -> Option<f64> {
    let count = window.values.len();
    if count < 2 {
        return None;
    }
    let (before, after) = (window.values[count - 2], window.values[count - 1]);
    let elapsed = window.times_ns[count - 1] - window.times_ns[count - 2];
    if elapsed == 0 {
        return None;
    }
    let grown = if counter && after < before { after } else { after - before };
    Some(if counter { grown / (elapsed as f64 / 1e9) } else { grown })
}

/// Slope per second and the value at `at_ns` of the line nearest to the samples.
fn regression(window: Window<'_>, at_ns: i64) -> (f64, f64) {
    let first = window.values[0];
    if window.values.iter().all(|value| *value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let count = window.values.len() as f64;
    let [mut x, mut y, mut xy, mut xx] = [(0.0, 0.0); 4];
    for (time, value) in window.times_ns.iter().zip(window.values) {
        let at = time.saturating_sub(at_ns) as f64 / 1e9;
        x = add(at, x.0, x.1);
        y = add(*value, y.0, y.1);
        xy = add(at * value, xy.0, xy.1);
        xx = add(at * at, xx.0, xx.1);
    }
    let [x, y, xy, xx] = [x, y, xy, xx].map(|(sum, rest)| sum + rest);
    let slope = (xy - x * y / count) / (xx - x * x / count);
    (slope, y / count - slope * x / count)
}

fn smoothed(window: Window<'_>) -> Option<f64> {
    let [smoothing, trending] = window.parameters;
    let values = window.values;
    if values.len() < 2 {
        return None;
    }
    let (mut before, mut level, mut trend) = (0.0, values[0], values[1] - values[0]);
    for (at, value) in values.iter().enumerate().skip(1) {
        if at > 1 {
            trend = trending * (level - before) + (1.0 - trending) * trend;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + trend);
        (before, level) = (level, next);
    }
    Some(level)
}
