//! `info`: series get the labels of the info series of the same target.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::Labels;

use super::Evaluator;
use super::element::missing;
use super::finish::merge;
use super::table::{Bits, Grid, Row, Table};
use crate::error::QueryError;
use crate::labels::METRIC_NAME;
use crate::limits::Charge;
use crate::plan::{Kind, Node, Selector};
use crate::source::{MatchOp, Matcher};

/// Labels that say which target a series is of.
const IDENTIFYING: [&str; 2] = ["instance", "job"];
/// Longest pattern by which info series are looked up; beyond it more are read and left aside.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// The values of the identifying labels, empty where a series lacks one.
type Target<'r> = [&'r str; 2];
/// The info series of every target, by their metric's name.
type Infos<'r> = HashMap<Target<'r>, BTreeMap<&'r str, Alike<'r>>>;

fn target(labels: &Labels) -> Target<'_> {
    IDENTIFYING.map(|name| labels.get(name).unwrap_or_default())
}

/// Info series of one metric and target: at each step the one with the latest sample counts.
#[derive(Default)]
struct Alike<'r> {
    rows: Vec<&'r Row>,
    /// Which one counts at each step; empty when there is only one.
    latest: Vec<Option<usize>>,
}

impl Alike<'_> {
    fn at(&self, step: usize) -> Option<usize> {
        match self.rows[..] {
            [one] => one.present.has(step).then_some(0),
            _ => self.latest.get(step).copied().flatten(),
        }
    }

    /// Chooses for each step of `asked`; the rows' values are the times of their samples.
    fn choose(&mut self, asked: &Bits, steps: usize) -> Result<(), QueryError> {
        if self.rows.len() < 2 {
            return Ok(());
        }
        self.latest = vec![None; steps];
        for step in asked.steps() {
            for (at, row) in self.rows.iter().enumerate() {
                let Some(time) = row.get(step) else { continue };
                let had = self.latest[step].map(|had| self.rows[had]);
                match had.map(|had| (had, had.values[step])) {
                    Some((had, had_time)) if had_time.total_cmp(&time).is_eq() => {
                        return Err(QueryError::Execution(format!(
                            "found duplicate series for info metric: existing {} @ {}, new {} @ {}",
                            had.labels,
                            (had_time * 1e3).round(),
                            row.labels,
                            (time * 1e3).round(),
                        )));
                    }
                    Some((_, had_time)) if had_time > time => {}
                    _ => self.latest[step] = Some(at),
                }
            }
        }
        Ok(())
    }
}

impl Evaluator<'_> {
    /// The second argument is the selector of the info series.
    pub(super) fn info(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let [vector, Node { kind: Kind::Selector(selector), span, .. }] = arguments else {
            return Err(missing());
        };
        let (rows, mut charge) = self.vector(vector, grid)?.into_parts();
        let matchers = || selector.any_of.iter().flatten();
        let names: Vec<&Matcher> = matchers().filter(|matcher| &*matcher.name == METRIC_NAME).collect();
        let data: Vec<&Matcher> = matchers().filter(|matcher| &*matcher.name != METRIC_NAME).collect();
        let (kept, rows): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| names.iter().all(|name| name.fits_series(&row.labels)));

        let known = IDENTIFYING.map(|name| rows.iter().filter_map(|row| row.labels.get(name)).collect());
        let table = match narrowed(selector, &known)? {
            Some(selector) => Some(self.instants(&selector, *span, grid, true)?),
            None => None,
        };
        let mut asked = Bits::none(grid.steps);
        kept.iter().chain(&rows).for_each(|row| asked.join(&row.present));
        let found = table.iter().flat_map(|table| &table.rows);
        let mut infos = Infos::new();
        for row in found.filter(|row| is_known(target(&row.labels), &known)) {
            let name = row.labels.get(METRIC_NAME).unwrap_or_default();
            infos.entry(target(&row.labels)).or_default().entry(name).or_default().rows.push(row);
        }
        for alike in infos.values_mut().flat_map(BTreeMap::values_mut) {
            alike.choose(&asked, grid.steps)?;
        }

        let mut out = kept;
        for row in &rows {
            self.budget.check()?;
            self.joined(row, infos.get(&target(&row.labels)), &data, (&mut out, &mut charge))?;
            self.budget.plan(out.len() as u64, grid.steps as u64)?;
        }
        drop(charge);
        self.table(merge(out)?)
    }

    /// Puts `row` with the labels of its info series into `out`: one row for each set of series that it
    /// has at some step.
    fn joined(
        &self,
        row: &Row,
        infos: Option<&BTreeMap<&str, Alike<'_>>>,
        data: &[&Matcher],
        (out, charge): (&mut Vec<Row>, &mut Charge),
    ) -> Result<(), QueryError> {
        let steps = row.values.len();
        let optional = data.iter().all(|matcher| matcher.fits(""));
        let mut places: HashMap<Vec<Option<usize>>, Option<usize>> = HashMap::new();
        for (step, value) in row.points() {
            let sets: Vec<Option<usize>> =
                infos.into_iter().flat_map(BTreeMap::values).map(|alike| alike.at(step)).collect();
            let place = if let Some(place) = places.get(&sets) {
                *place
            } else {
                let place = if optional || sets.iter().any(Option::is_some) {
                    let alike = infos.into_iter().flat_map(BTreeMap::values);
                    let chosen = alike.zip(&sets).filter_map(|(alike, at)| alike.rows.get((*at)?).copied());
                    let labels = with_labels(&row.labels, chosen, data)?;
                    charge.grow(steps as u64 * 8)?;
                    self.budget.plan(out.len() as u64 + 1, steps as u64)?;
                    out.push(Row::empty(Arc::new(labels), row.drop_name, steps));
                    Some(out.len() - 1)
                } else {
                    None
                };
                places.insert(sets, place);
                place
            };
            if let Some(row) = place.and_then(|place| out.get_mut(place)) {
                row.put(step, value);
            }
        }
        Ok(())
    }
}

/// Whether an info series could be of one of the targets.
fn is_known(target: Target<'_>, known: &[BTreeSet<&str>; 2]) -> bool {
    target.iter().zip(known).all(|(value, known)| known.is_empty() || known.contains(value))
}

/// `selector` for no more than the targets; `None` when there are none.
fn narrowed(selector: &Selector, known: &[BTreeSet<&str>; 2]) -> Result<Option<Selector>, QueryError> {
    let mut matchers: Vec<Matcher> = selector.any_of.iter().flatten().cloned().collect();
    for (name, values) in IDENTIFYING.iter().zip(known).filter(|(_, values)| !values.is_empty()) {
        let (op, value) = match values.iter().copied().collect::<Vec<_>>()[..] {
            [one] => (MatchOp::Equal, one.to_owned()),
            ref several => {
                let escaped: Vec<String> = several.iter().map(|value| regex::escape(value)).collect();
                (MatchOp::Matches, escaped.join("|"))
            }
        };
        if value.len() <= PATTERN_BYTES_MAX {
            let matcher = Matcher::new(name, op, &value);
            matchers.push(matcher.map_err(|error| QueryError::Internal(error.to_string()))?);
        }
    }
    let narrowed = Selector { any_of: vec![matchers], ..*selector };
    Ok(known.iter().any(|values| !values.is_empty()).then_some(narrowed))
}

/// `labels` with those of `infos`: all that are new, or of these the ones that `data` names.
fn with_labels<'r>(
    labels: &Labels,
    infos: impl Iterator<Item = &'r Row>,
    data: &[&Matcher],
) -> Result<Labels, QueryError> {
    let mut all: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in infos.flat_map(|row| row.labels.iter()) {
        let named = data.is_empty() || data.iter().any(|matcher| &*matcher.name == name);
        if name == METRIC_NAME || !named || labels.get(name).is_some() {
            continue;
        }
        if all.insert(name, value).is_some_and(|had| had != value) {
            return Err(QueryError::Execution(format!("conflicting label: {name}")));
        }
    }
    all.extend(labels.iter());
    Ok(Labels::from_pairs(all))
}
