//! Quantiles and fractions of classic histograms.

use std::collections::HashMap;
use std::sync::Arc;

use model::Labels;

use super::element::missing;
use super::table::{Grid, Row, Table};
use super::{Evaluator, parallel, text};
use crate::error::{QueryError, Span};
use crate::functions::Function;
use crate::labels::{METRIC_NAME, with, without};
use crate::notes::{Note, Repair};
use crate::number::general;
use crate::plan::Node;

/// The label that holds a bucket's upper bound.
const BUCKET: &str = "le";
/// Counts that differ by less, relatively, are taken as equal.
const TOLERANCE: f64 = 1e-12;

/// The buckets of one histogram, by bound.
struct Group {
    labels: Arc<Labels>,
    metric: String,
    buckets: Vec<(f64, Row)>,
}

/// Upper bound and cumulative count.
type Bucket = (f64, f64);

impl Evaluator<'_> {
    pub(super) fn histogram(
        &self,
        function: Function,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Table, QueryError> {
        match (function, arguments) {
            (Function::HistogramQuantile, [q, vector]) => {
                let q_values = self.quantiles(q, grid)?;
                let groups = self.groups(vector, grid)?;
                self.rows(groups, grid, |buckets, step, metric| {
                    self.quantile(q_values[step], buckets, (grid.at(step), metric, vector.span))
                })
            }
            (Function::HistogramFraction, [lower, upper, vector]) => {
                let (lower, upper) = (self.scalar(lower, grid)?, self.scalar(upper, grid)?);
                let groups = self.groups(vector, grid)?;
                self.rows(groups, grid, |buckets, step, _| fraction(lower[step], upper[step], buckets))
            }
            (Function::HistogramQuantiles, [vector, label, qs @ ..]) => {
                let label = text(label)?;
                let mut rows = Vec::new();
                for q in qs {
                    let q_values = self.quantiles(q, grid)?;
                    let groups = self.groups(vector, grid)?;
                    let table = self.rows(groups, grid, |buckets, step, metric| {
                        self.quantile(q_values[step], buckets, (grid.at(step), metric, vector.span))
                    })?;
                    let q_text = quantile_text(q_values.first().copied().unwrap_or(f64::NAN));
                    for mut row in table.into_parts().0 {
                        row.labels = Arc::new(with(&row.labels, label, &q_text));
                        rows.push(row);
                    }
                }
                self.table(rows)
            }
            _ => Err(missing()),
        }
    }

    fn quantiles(&self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        let values = self.scalar(node, grid)?;
        for q in &values {
            if !(0.0..=1.0).contains(q) {
                self.note(Note::InvalidQuantile(*q), node.span);
            }
        }
        Ok(values)
    }

    /// Gathers the buckets of each histogram.
    fn groups(&self, node: &Node, grid: Grid) -> Result<Vec<Group>, QueryError> {
        let (rows, _charge) = self.vector(node, grid)?.into_parts();
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for row in rows {
            let le = row.labels.get(BUCKET).unwrap_or_default();
            let Ok(bound) = le.parse::<f64>() else {
                if !row.present.is_empty() {
                    let metric = row.labels.metric().to_owned();
                    self.note(Note::BadBucket { metric, le: le.to_owned() }, node.span);
                }
                continue;
            };
            let key = without(&row.labels, &[BUCKET]);
            let metric = row.labels.metric().to_owned();
            let place = *places.entry(key.clone()).or_insert_with(|| {
                let labels = Arc::new(without(&key, &[METRIC_NAME]));
                groups.push(Group { labels, metric, buckets: Vec::new() });
                groups.len() - 1
            });
            groups[place].buckets.push((bound, row));
        }
        for group in &mut groups {
            group.buckets.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        }
        Ok(groups)
    }

    fn rows(
        &self,
        groups: Vec<Group>,
        grid: Grid,
        value: impl Fn(&mut Vec<Bucket>, usize, &str) -> f64 + Sync,
    ) -> Result<Table, QueryError> {
        let rows = parallel(&self.budget, groups, |group| {
            self.budget.check()?;
            let mut out = Row::empty(group.labels, true, grid.steps);
            let mut buckets = Vec::with_capacity(group.buckets.len());
            for step in 0..grid.steps {
                buckets.clear();
                buckets
                    .extend(group.buckets.iter().filter_map(|(bound, row)| Some((*bound, row.get(step)?))));
                if !buckets.is_empty() {
                    out.put(step, value(&mut buckets, step, &group.metric));
                }
            }
            Ok((!out.present.is_empty()).then_some(out))
        })?;
        self.table(rows.into_iter().flatten().collect())
    }

    fn quantile(&self, q: f64, buckets: &mut Vec<Bucket>, at: (i64, &str, Span)) -> f64 {
        let (value, repair) = quantile(q, buckets);
        if let Some((bounds, largest)) = repair {
            let repair = Repair { times_ns: (at.0, at.0), buckets: bounds, largest, samples: 1 };
            self.note(Note::ForcedMonotonic { metric: at.1.to_owned(), repair }, at.2);
        }
        value
    }
}

/// `0.5`, `1.0`, `+Inf`: a float that is always seen to be one.
fn quantile_text(q: f64) -> String {
    let text = general(q);
    if text.contains(['.', 'e', 'I', 'N']) { text } else { format!("{text}.0") }
}

/// Adds up buckets of one bound; they are sorted by bound.
fn coalesce(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
}

fn almost_equal(a: f64, b: f64) -> bool {
    let sum = a.abs() + b.abs();
    let apart = (a - b).abs();
    if a == b || (a.is_nan() && b.is_nan()) {
        true
    } else if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        apart < TOLERANCE * f64::MIN_POSITIVE
    } else {
        apart / sum.min(f64::MAX) < TOLERANCE
    }
}

/// Bounds between which counts fell, and by how much at most.
type Repaired = ((f64, f64), f64);

/// Makes counts rise; small differences are levelled silently.
fn make_monotonic(buckets: &mut [Bucket]) -> Option<Repaired> {
    let mut repaired: Option<Repaired> = None;
    let mut before = buckets.first()?.1;
    for (bound, count) in buckets.iter_mut().skip(1) {
        if *count == before {
            continue;
        }
        if almost_equal(before, *count) {
            *count = before;
        } else if *count < before {
            let ((low, high), largest) = repaired.unwrap_or(((f64::INFINITY, f64::NEG_INFINITY), 0.0));
            repaired = Some(((low.min(*bound), high.max(*bound)), largest.max(before - *count)));
            *count = before;
        } else {
            before = *count;
        }
    }
    repaired
}

fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Repaired>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
        return (f64::NAN, None);
    }
    coalesce(buckets);
    let repaired = make_monotonic(buckets);
    let last = buckets.len() - 1;
    let observations = buckets[last].1;
    if buckets.len() < 2 || observations == 0.0 {
        return (f64::NAN, repaired);
    }
    let mut rank = q * observations;
    let at = buckets[..last].partition_point(|(_, count)| *count < rank || count.is_nan());
    if at == last {
        return (buckets[last - 1].0, repaired);
    }
    if at == 0 && buckets[0].0 <= 0.0 {
        return (buckets[0].0, repaired);
    }
    let (end, mut count) = buckets[at];
    let mut start = 0.0;
    if at > 0 {
        start = buckets[at - 1].0;
        count -= buckets[at - 1].1;
        rank -= buckets[at - 1].1;
    }
    (start + (end - start) * (rank / count), repaired)
}

/// The share of observations between `lower` and `upper`.
fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
        return f64::NAN;
    }
    coalesce(buckets);
    let count = buckets.last().map_or(0.0, |(_, count)| *count);
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let rank_of = |value: f64| {
        let mut before = 0.0;
        let mut start = if buckets[0].0 <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
        for (end, total) in buckets.iter() {
            if start >= value {
                return before;
            }
            if start < value && *end > value {
                return if start == f64::NEG_INFINITY {
                    *total
                } else {
                    before + (total - before) * (value - start) / (end - start)
                };
            }
            before = *total;
            start = *end;
        }
        count
    };
    (rank_of(upper).min(count) - rank_of(lower).min(count)) / count
}
