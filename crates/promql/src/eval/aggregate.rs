//! Aggregations: rows to groups, step by step within each row.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::Labels;

use super::Evaluator;
use super::over::{Mean, add, quantile};
use super::table::{Bits, Grid, Row, Table};
use crate::error::{QueryError, Span};
use crate::labels::{METRIC_NAME, Numbers, hash, only, with, without, write_only, write_without};
use crate::notes::Note;
use crate::number::{general, plain_text};
use crate::plan::{Aggregate, Aggregator, Kind};

/// Beyond these a count is no integer.
const INTEGER_MAX: f64 = 9_223_372_036_854_775_807.0;

/// Which group each row belongs to.
struct Groups {
    of_row: Vec<usize>,
    labels: Vec<Arc<Labels>>,
}

fn group(rows: &[Row], aggregate: &Aggregate) -> Groups {
    let gone = gone(aggregate);
    let mut key = String::new();
    let mut numbers = Numbers::default();
    let mut groups = Groups { of_row: Vec::with_capacity(rows.len()), labels: Vec::new() };
    for row in rows {
        if aggregate.without {
            write_without(&row.labels, &gone, &mut key);
        } else {
            write_only(&row.labels, &aggregate.labels, &mut key);
        }
        let place = numbers.of(&key);
        if place == groups.labels.len() {
            groups.labels.push(Arc::new(group_labels(&row.labels, aggregate)));
        }
        groups.of_row.push(place);
    }
    groups
}

/// The labels that `without` takes away.
fn gone(aggregate: &Aggregate) -> Vec<&str> {
    aggregate.labels.iter().map(String::as_str).chain([METRIC_NAME]).collect()
}

fn group_labels(labels: &Labels, aggregate: &Aggregate) -> Labels {
    if aggregate.without { without(labels, &gone(aggregate)) } else { only(labels, &aggregate.labels) }
}

impl Evaluator<'_> {
    pub(super) fn aggregate(
        &self,
        aggregate: &Aggregate,
        span: Span,
        grid: Grid,
    ) -> Result<Table, QueryError> {
        if aggregate.operator == Aggregator::CountValues {
            return self.count_values(aggregate, grid);
        }
        let parameter = match &aggregate.parameter {
            Some(node) => self.scalar(node, grid)?,
            None => Vec::new(),
        };
        let at = aggregate.parameter.as_ref().map_or(span, |node| node.span);
        let (rows, _charge) = self.vector(&aggregate.inner, grid)?.into_parts();
        let groups = group(&rows, aggregate);
        match aggregate.operator {
            Aggregator::Topk | Aggregator::Bottomk | Aggregator::Limitk => {
                if !check_counts(&parameter)? {
                    return self.table(Vec::new());
                }
                self.choose(aggregate.operator, &parameter, rows, &groups, grid)
            }
            Aggregator::LimitRatio => {
                if !self.check_ratios(&parameter, at)? {
                    return self.table(Vec::new());
                }
                self.sample(&parameter, rows)
            }
            Aggregator::Quantile => {
                let extremes = [
                    parameter.iter().copied().find(|q| q.is_nan()),
                    parameter.iter().copied().filter(|q| *q > 1.0).reduce(f64::max),
                    parameter.iter().copied().filter(|q| *q < 0.0).reduce(f64::min),
                ];
                extremes.into_iter().flatten().for_each(|q| self.note(Note::InvalidQuantile(q), at));
                self.quantiles_of(&parameter, &rows, &groups, grid)
            }
            operator => self.fold(operator, &rows, &groups, grid),
        }
    }

    /// Sums, means and the like: each row is added to the columns of its group.
    fn fold(
        &self,
        operator: Aggregator,
        rows: &[Row],
        groups: &Groups,
        grid: Grid,
    ) -> Result<Table, QueryError> {
        self.budget.plan(groups.labels.len() as u64, grid.steps as u64)?;
        let mut folds: Vec<Fold> = groups.labels.iter().map(|_| Fold::new(operator, grid.steps)).collect();
        for (row, place) in rows.iter().zip(&groups.of_row) {
            self.budget.check()?;
            folds[*place].push(operator, row);
        }
        let finished =
            folds.into_iter().zip(&groups.labels).map(|(fold, labels)| fold.finish(operator, labels));
        self.table(finished.filter(|row| !row.present.is_empty()).collect())
    }

    fn quantiles_of(
        &self,
        q: &[f64],
        rows: &[Row],
        groups: &Groups,
        grid: Grid,
    ) -> Result<Table, QueryError> {
        let mut members: Vec<Vec<&Row>> = vec![Vec::new(); groups.labels.len()];
        for (row, place) in rows.iter().zip(&groups.of_row) {
            members[*place].push(row);
        }
        let mut out = Vec::new();
        for (labels, members) in groups.labels.iter().zip(members) {
            self.budget.check()?;
            let drops = members.iter().any(|row| row.drop_name);
            let mut result = Row::empty(labels.clone(), drops, grid.steps);
            let mut values = Vec::with_capacity(members.len());
            for (step, q) in q.iter().enumerate() {
                values.clear();
                values.extend(members.iter().filter_map(|row| row.get(step)));
                if !values.is_empty() {
                    result.put(step, quantile(*q, &mut values));
                }
            }
            if !result.present.is_empty() {
                out.push(result);
            }
        }
        self.table(out)
    }

    /// `topk`, `bottomk`, `limitk`: keeps some rows at each step.
    fn choose(
        &self,
        operator: Aggregator,
        counts: &[f64],
        mut rows: Vec<Row>,
        groups: &Groups,
        grid: Grid,
    ) -> Result<Table, QueryError> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups.labels.len()];
        for (at, place) in groups.of_row.iter().enumerate() {
            members[*place].push(at);
        }
        let mut kept: Vec<Bits> = rows.iter().map(|_| Bits::none(grid.steps)).collect();
        let mut order = Vec::new();
        for (step, count) in counts.iter().enumerate() {
            self.budget.check()?;
            let count = count.min(rows.len() as f64) as i64;
            if count < 1 {
                continue;
            }
            for members in &members {
                let present = members.iter().filter_map(|at| Some((*at, rows[*at].get(step)?)));
                let chosen = match operator {
                    Aggregator::Limitk => present.take(count as usize).collect(),
                    _ => Heap::choose(present, count as usize, operator == Aggregator::Topk),
                };
                for (at, _) in &chosen {
                    kept[*at].set(step);
                }
                if grid.steps == 1 {
                    order.extend(chosen.iter().map(|(at, _)| *at));
                }
            }
        }
        for (row, kept) in rows.iter_mut().zip(kept) {
            row.present = kept;
        }
        if grid.steps == 1 {
            let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
            return self.table(order.into_iter().filter_map(|at| rows[at].take()).collect());
        }
        rows.retain(|row| !row.present.is_empty());
        self.table(rows)
    }

    /// `limit_ratio`: keeps rows by a hash of their labels.
    fn sample(&self, ratios: &[f64], mut rows: Vec<Row>) -> Result<Table, QueryError> {
        for row in &mut rows {
            let place = hash(&row.labels) as f64 / u64::MAX as f64;
            for (step, ratio) in ratios.iter().enumerate() {
                let ratio = ratio.clamp(-1.0, 1.0);
                let keep = (ratio > 0.0 && place < ratio) || (ratio < 0.0 && place >= 1.0 + ratio);
                if !keep {
                    row.present.unset(step);
                }
            }
        }
        rows.retain(|row| !row.present.is_empty());
        self.table(rows)
    }

    fn check_ratios(&self, ratios: &[f64], at: Span) -> Result<bool, QueryError> {
        let (least, greatest) = bounds(ratios);
        if least == 0.0 && greatest == 0.0 {
            return Ok(false);
        }
        if ratios.iter().any(|ratio| ratio.is_nan()) {
            return Err(QueryError::Execution("Ratio value is NaN".to_owned()));
        }
        if greatest > 1.0 {
            self.note(Note::InvalidRatio(greatest, 1.0), at);
        }
        if least < -1.0 {
            self.note(Note::InvalidRatio(least, -1.0), at);
        }
        Ok(true)
    }

    fn count_values(&self, aggregate: &Aggregate, grid: Grid) -> Result<Table, QueryError> {
        let label = match aggregate.parameter.as_ref().map(|node| &node.kind) {
            Some(Kind::Text(text)) => text.clone(),
            _ => return Err(QueryError::Internal("count_values needs a string".to_owned())),
        };
        if label.is_empty() {
            return Err(QueryError::Execution("invalid label name \"\"".to_owned()));
        }
        let (rows, _charge) = self.vector(&aggregate.inner, grid)?.into_parts();
        let mut out: BTreeMap<Labels, Row> = BTreeMap::new();
        for row in &rows {
            self.budget.check()?;
            let mut known: HashMap<u64, Labels> = HashMap::new();
            for (step, value) in row.points() {
                let key = known.entry(value.to_bits()).or_insert_with(|| {
                    let labels = with(&row.labels, &label, &plain_text(value));
                    if aggregate.without {
                        group_labels(&labels, aggregate)
                    } else {
                        let mut names = aggregate.labels.clone();
                        names.push(label.clone());
                        only(&labels, &names)
                    }
                });
                if !out.contains_key(key) {
                    self.budget.plan(out.len() as u64 + 1, grid.steps as u64)?;
                }
                let counted = out
                    .entry(key.clone())
                    .or_insert_with_key(|key| Row::empty(Arc::new(key.clone()), false, grid.steps));
                let before = counted.get(step).unwrap_or(0.0);
                counted.put(step, before + 1.0);
            }
        }
        self.table(out.into_values().collect())
    }
}

fn bounds(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, greatest), value| (least.min(*value), greatest.max(*value)))
}

/// Whether any row can be chosen; the errors are Prometheus'.
fn check_counts(counts: &[f64]) -> Result<bool, QueryError> {
    if counts.iter().all(|count| *count < 1.0) {
        return Ok(false);
    }
    if counts.iter().any(|count| count.is_nan()) {
        return Err(QueryError::Execution("Parameter value is NaN".to_owned()));
    }
    let (least, greatest) = bounds(counts);
    if least <= -INTEGER_MAX {
        return Err(QueryError::Execution(format!("Scalar value {} underflows int64", general(least))));
    }
    if greatest >= INTEGER_MAX {
        return Err(QueryError::Execution(format!("Scalar value {} overflows int64", general(greatest))));
    }
    Ok(true)
}

/// Columns of one group.
struct Fold {
    present: Bits,
    drop_name: bool,
    first: Vec<f64>,
    second: Vec<f64>,
    count: Vec<f64>,
    means: Vec<Mean>,
}

impl Fold {
    fn new(operator: Aggregator, steps: usize) -> Self {
        let columns = |wanted: bool| vec![0.0; if wanted { steps } else { 0 }];
        let deviates = matches!(operator, Aggregator::Stddev | Aggregator::Stdvar);
        Self {
            present: Bits::none(steps),
            drop_name: false,
            first: columns(operator != Aggregator::Avg),
            second: columns(deviates || operator == Aggregator::Sum),
            count: columns(deviates),
            means: if operator == Aggregator::Avg { vec![Mean::default(); steps] } else { Vec::new() },
        }
    }

    fn push(&mut self, operator: Aggregator, row: &Row) {
        self.drop_name |= row.drop_name;
        match operator {
            Aggregator::Sum => {
                for (step, value) in row.points() {
                    if self.present.has(step) {
                        (self.first[step], self.second[step]) =
                            add(value, self.first[step], self.second[step]);
                    } else {
                        self.first[step] = value;
                    }
                }
            }
            Aggregator::Avg => row.points().for_each(|(step, value)| self.means[step].push(value)),
            Aggregator::Count => row.present.steps().for_each(|step| self.first[step] += 1.0),
            Aggregator::Min => self.replace(row, |new, old| new < old || old.is_nan()),
            Aggregator::Max => self.replace(row, |new, old| new > old || old.is_nan()),
            Aggregator::Stddev | Aggregator::Stdvar => {
                for (step, value) in row.points() {
                    self.count[step] += 1.0;
                    if self.present.has(step) {
                        let delta = value - self.second[step];
                        self.second[step] += delta / self.count[step];
                        self.first[step] += delta * (value - self.second[step]);
                    } else {
                        self.second[step] = value;
                        self.first[step] = if value.is_finite() { 0.0 } else { f64::NAN };
                    }
                }
            }
            _ => row.present.steps().for_each(|step| self.first[step] = 1.0),
        }
        self.present.join(&row.present);
    }

    fn replace(&mut self, row: &Row, better: impl Fn(f64, f64) -> bool) {
        for (step, value) in row.points() {
            if !self.present.has(step) || better(value, self.first[step]) {
                self.first[step] = value;
            }
        }
    }

    fn finish(mut self, operator: Aggregator, labels: &Arc<Labels>) -> Row {
        match operator {
            Aggregator::Sum => {
                self.first.iter_mut().zip(&self.second).for_each(|(sum, rest)| *sum += rest);
            }
            Aggregator::Avg => self.first = self.means.iter().map(Mean::value).collect(),
            Aggregator::Stdvar => {
                self.first.iter_mut().zip(&self.count).for_each(|(sum, count)| *sum /= count);
            }
            Aggregator::Stddev => {
                self.first.iter_mut().zip(&self.count).for_each(|(sum, count)| *sum = (*sum / count).sqrt());
            }
            _ => {}
        }
        Row { labels: labels.clone(), drop_name: self.drop_name, values: self.first, present: self.present }
    }
}

/// The best `k` values in a binary heap with the worst on top, so that ties fall as they do in
/// Prometheus.
struct Heap {
    entries: Vec<(usize, f64)>,
    largest: bool,
}

impl Heap {
    fn choose(entries: impl Iterator<Item = (usize, f64)>, k: usize, largest: bool) -> Vec<(usize, f64)> {
        let mut heap = Self { entries: Vec::with_capacity(k.min(1024)), largest };
        for entry in entries {
            if heap.entries.len() < k {
                heap.entries.push(entry);
                heap.rise();
            } else {
                let top = heap.entries[0].1;
                let better = if largest { top < entry.1 } else { top > entry.1 };
                if better || (top.is_nan() && !entry.1.is_nan()) {
                    heap.entries[0] = entry;
                    heap.sink();
                }
            }
        }
        heap.entries.sort_by(|a, b| {
            let (a, b) = (a.1, b.1);
            let order = if largest { b.partial_cmp(&a) } else { a.partial_cmp(&b) };
            order.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        });
        heap.entries
    }

    /// Whether the entry at `a` is worse than the one at `b`.
    fn worse(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.entries[a].1, self.entries[b].1);
        a.is_nan() || if self.largest { a < b } else { a > b }
    }

    fn rise(&mut self) {
        let mut at = self.entries.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.worse(at, parent) {
                break;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.entries.len() {
                return;
            }
            let child = if right < self.entries.len() && self.worse(right, left) { right } else { left };
            if !self.worse(child, at) {
                return;
            }
            self.entries.swap(at, child);
            at = child;
        }
    }
}
