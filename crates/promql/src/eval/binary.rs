//! Binary operators: scalars, vectors with scalars, and vectors matched by labels.

use std::collections::HashMap;
use std::sync::Arc;

use model::Labels;

use super::Evaluator;
use super::finish::merge;
use super::table::{Bits, Grid, Row, Table, Value};
use crate::error::QueryError;
use crate::labels::{METRIC_NAME, Numbers, describes, only, without, write_only, write_without};
use crate::plan::{Binary, Cardinality, Matching, Operator};

/// The operator's value, and whether a comparison holds.
fn apply(operator: Operator, left: f64, right: f64) -> (f64, bool) {
    match operator {
        Operator::Add => (left + right, true),
        Operator::Subtract => (left - right, true),
        Operator::Multiply => (left * right, true),
        Operator::Divide => (left / right, true),
        Operator::Modulo => (left % right, true),
        Operator::Power => (left.powf(right), true),
        Operator::Atan2 => (left.atan2(right), true),
        Operator::Equal => (left, left == right),
        Operator::NotEqual => (left, left != right),
        Operator::Greater => (left, left > right),
        Operator::Less => (left, left < right),
        Operator::GreaterEqual => (left, left >= right),
        Operator::LessEqual => (left, left <= right),
        Operator::And | Operator::Or | Operator::Unless => (f64::NAN, false),
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

impl Evaluator<'_> {
    pub(super) fn binary(&self, binary: &Binary, grid: Grid) -> Result<Value, QueryError> {
        let (left, right) = (self.node(&binary.left, grid)?, self.node(&binary.right, grid)?);
        match (left, right) {
            (Value::Scalar(left), Value::Scalar(right)) => {
                let value = |(left, right)| {
                    let (value, holds) = apply(binary.operator, left, right);
                    if binary.operator.compares() { truth(holds) } else { value }
                };
                Ok(Value::Scalar(left.into_iter().zip(right).map(value).collect()))
            }
            (Value::Vector(table), Value::Scalar(scalar)) => {
                Ok(Value::Vector(with_scalar(binary, table, &scalar, false)))
            }
            (Value::Scalar(scalar), Value::Vector(table)) => {
                Ok(Value::Vector(with_scalar(binary, table, &scalar, true)))
            }
            (Value::Vector(left), Value::Vector(right)) => {
                let ((left, _left_charge), (right, _right_charge)) = (left.into_parts(), right.into_parts());
                let rows = match binary.operator {
                    Operator::And | Operator::Or | Operator::Unless => {
                        set_operation(binary.operator, &binary.matching, left, right, grid)
                    }
                    _ => self.matched(binary, left, right, grid)?,
                };
                let rows = if grid.steps == 1 { rows } else { merge(rows)? };
                self.table(rows).map(Value::Vector)
            }
            _ => Err(QueryError::Internal("a binary operator on a string".to_owned())),
        }
    }

    /// Arithmetic and comparison between two vectors.
    fn matched(
        &self,
        binary: &Binary,
        left: Vec<Row>,
        right: Vec<Row>,
        grid: Grid,
    ) -> Result<Vec<Row>, QueryError> {
        let swapped = binary.matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let mut signatures = Signatures::new(&binary.matching);
        let many_of: Vec<usize> = many.iter().map(|row| signatures.of(&row.labels)).collect();
        let one_of: Vec<usize> = one.iter().map(|row| signatures.of(&row.labels)).collect();
        let join = Join { binary, swapped, grid };
        let active = join.active(&many, &one);
        let mut matches: Vec<Match<'_>> = (0..signatures.count()).map(|_| Match::default()).collect();
        for (row, signature) in one.iter().zip(&one_of) {
            matches[*signature].one.push(row);
        }
        for (row, signature) in many.iter().zip(&many_of) {
            matches[*signature].many.push(row);
        }
        let mut out = Vec::new();
        for found in &matches {
            self.budget.check()?;
            self.budget.plan(out.len() as u64 + 1, grid.steps as u64)?;
            join.check_one_side(found, &active)?;
            join.run(found, &active, &mut out)?;
        }
        Ok(out)
    }
}

fn with_scalar(binary: &Binary, table: Table, scalar: &[f64], scalar_first: bool) -> Table {
    let operator = binary.operator;
    table.with(|mut rows| {
        for row in &mut rows {
            for (step, scalar) in scalar.iter().enumerate() {
                let own = row.values[step];
                let (left, right) = if scalar_first { (*scalar, own) } else { (own, *scalar) };
                let (value, holds) = apply(operator, left, right);
                if !operator.compares() {
                    row.values[step] = value;
                } else if binary.returns_bool {
                    row.values[step] = truth(holds);
                } else if !holds {
                    row.present.unset(step);
                }
            }
            row.drop_name |= binary.returns_bool || !operator.compares();
        }
        rows.retain(|row| !row.present.is_empty());
        rows
    })
}

/// Numbers for the labels by which rows match.
struct Signatures<'m> {
    matching: &'m Matching,
    ignored: Vec<&'m str>,
    key: String,
    numbers: Numbers,
}

impl<'m> Signatures<'m> {
    fn new(matching: &'m Matching) -> Self {
        let mut ignored: Vec<&str> = matching.labels.iter().map(String::as_str).collect();
        ignored.push(METRIC_NAME);
        Self { matching, ignored, key: String::new(), numbers: Numbers::default() }
    }

    fn of(&mut self, labels: &Labels) -> usize {
        if self.matching.on {
            write_only(labels, &self.matching.labels, &mut self.key);
        } else {
            write_without(labels, &self.ignored, &mut self.key);
        }
        self.numbers.of(&self.key)
    }

    fn count(&self) -> usize {
        self.numbers.count()
    }
}

fn set_operation(
    operator: Operator,
    matching: &Matching,
    mut left: Vec<Row>,
    mut right: Vec<Row>,
    grid: Grid,
) -> Vec<Row> {
    let mut signatures = Signatures::new(matching);
    let left_of: Vec<usize> = left.iter().map(|row| signatures.of(&row.labels)).collect();
    let right_of: Vec<usize> = right.iter().map(|row| signatures.of(&row.labels)).collect();
    let mut steps: Vec<Bits> = (0..signatures.count()).map(|_| Bits::none(grid.steps)).collect();
    if operator == Operator::Or {
        for (row, signature) in left.iter().zip(&left_of) {
            steps[*signature].join(&row.present);
        }
        for (row, signature) in right.iter_mut().zip(&right_of) {
            row.present.remove(&steps[*signature]);
        }
        left.extend(right);
    } else {
        for (row, signature) in right.iter().zip(&right_of) {
            steps[*signature].join(&row.present);
        }
        for (row, signature) in left.iter_mut().zip(&left_of) {
            if operator == Operator::And {
                row.present.keep(&steps[*signature]);
            } else {
                row.present.remove(&steps[*signature]);
            }
        }
    }
    left.retain(|row| !row.present.is_empty());
    left
}

/// Rows of one signature.
#[derive(Default)]
struct Match<'r> {
    many: Vec<&'r Row>,
    one: Vec<&'r Row>,
}

/// How two vectors are joined.
struct Join<'b> {
    binary: &'b Binary,
    /// Whether the many side is the right one.
    swapped: bool,
    grid: Grid,
}

/// What has been computed for one signature.
struct Done {
    /// Steps with a result, or one that a comparison left out.
    tried: Bits,
    /// The same by labels, for many-to-one.
    by_labels: HashMap<Arc<Labels>, Bits>,
}

impl Join<'_> {
    /// Steps at which anything can match at all; elsewhere duplicates are no error.
    fn active(&self, many: &[Row], one: &[Row]) -> Bits {
        let any = |rows: &[Row]| {
            let mut bits = Bits::none(self.grid.steps);
            for row in rows {
                bits.join(&row.present);
            }
            bits
        };
        let (mut many, one) = (any(many), any(one));
        let fills = self.binary.matching.fill_left.is_some() || self.binary.matching.fill_right.is_some();
        if fills {
            many.join(&one);
        } else {
            many.keep(&one);
        }
        many
    }

    /// The one side must be unique at every step.
    fn check_one_side(&self, found: &Match<'_>, active: &Bits) -> Result<(), QueryError> {
        if found.one.len() < 2 {
            return Ok(());
        }
        let mut seen = Bits::none(self.grid.steps);
        for (at, row) in found.one.iter().enumerate() {
            let mut present = row.present.clone();
            present.keep(active);
            if seen.overlaps(&present) {
                let other = found.one[..at].iter().find(|other| other.present.overlaps(&present));
                return Err(self.duplicate(row, other.unwrap_or(row)));
            }
            seen.join(&present);
        }
        Ok(())
    }

    fn duplicate(&self, row: &Row, other: &Row) -> QueryError {
        let group = self.matched_labels(&row.labels);
        let side = if self.swapped { "left" } else { "right" };
        let mut pair = [braced(&row.labels), braced(&other.labels)];
        pair.sort_unstable();
        QueryError::Execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
            braced(&group),
            pair[0],
            pair[1]
        ))
    }

    /// The labels of `labels` that take part in matching.
    fn matched_labels(&self, labels: &Labels) -> Labels {
        let matching = &self.binary.matching;
        if matching.on {
            only(labels, &matching.labels)
        } else {
            let mut names: Vec<&str> = matching.labels.iter().map(String::as_str).collect();
            names.push(METRIC_NAME);
            without(labels, &names)
        }
    }

    fn run(&self, found: &Match<'_>, active: &Bits, out: &mut Vec<Row>) -> Result<(), QueryError> {
        let matching = &self.binary.matching;
        let mut done = Done { tried: Bits::none(self.grid.steps), by_labels: HashMap::new() };
        let mut one_present = Bits::none(self.grid.steps);
        found.one.iter().for_each(|row| one_present.join(&row.present));
        for many in &found.many {
            for one in &found.one {
                let mut steps = many.present.clone();
                steps.keep(&one.present);
                self.pair((many, Side::Row(many)), (one, Side::Row(one)), steps, &mut done, out)?;
            }
            if let Some(fill) = matching.fill_right {
                let mut steps = many.present.clone();
                steps.remove(&one_present);
                let stand_in = self.stand_in(many);
                self.pair((many, Side::Row(many)), (&stand_in, Side::Fill(fill)), steps, &mut done, out)?;
            }
        }
        if let Some(fill) = matching.fill_left {
            for one in &found.one {
                let mut steps = one.present.clone();
                steps.remove(&done.tried);
                steps.keep(active);
                let stand_in = self.stand_in(one);
                self.pair((&stand_in, Side::Fill(fill)), (one, Side::Row(one)), steps, &mut done, out)?;
            }
        }
        Ok(())
    }

    /// A row that stands for the missing partner of `row`.
    fn stand_in(&self, row: &Row) -> Row {
        Row {
            labels: Arc::new(self.matched_labels(&row.labels)),
            drop_name: false,
            values: Vec::new(),
            present: Bits::none(0),
        }
    }

    fn pair(
        &self,
        many: (&Row, Side<'_>),
        one: (&Row, Side<'_>),
        steps: Bits,
        done: &mut Done,
        out: &mut Vec<Row>,
    ) -> Result<(), QueryError> {
        if steps.is_empty() {
            return Ok(());
        }
        let labels = Arc::new(self.result_labels(&many.0.labels, &one.0.labels));
        if self.binary.matching.cardinality == Cardinality::OneToOne {
            if done.tried.overlaps(&steps) {
                return Err(QueryError::Execution(
                    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                        .to_owned(),
                ));
            }
        } else {
            let seen = done.by_labels.entry(labels.clone()).or_insert_with(|| Bits::none(self.grid.steps));
            if seen.overlaps(&steps) {
                return Err(QueryError::Execution(
                    "multiple matches for labels: grouping labels must ensure unique matches".to_owned(),
                ));
            }
            seen.join(&steps);
        }
        done.tried.join(&steps);
        let operator = self.binary.operator;
        let keeps_name = operator.compares() && !self.binary.returns_bool;
        let drop_name = self.binary.returns_bool || (keeps_name && many.0.drop_name);
        let mut row = Row::empty(labels, drop_name, self.grid.steps);
        for step in steps.steps() {
            let (many, one) = (many.1.at(step), one.1.at(step));
            let (left, right) = if self.swapped { (one, many) } else { (many, one) };
            let (value, holds) = apply(operator, left, right);
            if self.binary.returns_bool {
                row.put(step, truth(holds));
            } else if holds {
                row.put(step, value);
            }
        }
        if !row.present.is_empty() {
            out.push(row);
        }
        Ok(())
    }

    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let matching = &self.binary.matching;
        let named = |name: &str| self.binary.operator.compares() || !describes(name);
        let listed = |name: &str| matching.labels.iter().any(|label| label == name);
        let matched = |name: &str| match matching.cardinality {
            Cardinality::OneToOne => listed(name) == matching.on,
            _ => true,
        };
        let included = |name: &str| matching.include.iter().any(|label| label == name);
        let kept = many.iter().filter(|(name, _)| named(name) && matched(name) && !included(name));
        if matching.include.is_empty() {
            return Labels::from_pairs(kept);
        }
        let added = matching.include.iter().filter_map(|name| Some((name.as_str(), one.get(name)?)));
        let mut pairs: Vec<(&str, &str)> = kept.chain(added).collect();
        pairs.sort_unstable();
        Labels::from_pairs(pairs)
    }
}

/// The values of one side.
#[derive(Clone, Copy)]
enum Side<'r> {
    Row(&'r Row),
    Fill(f64),
}

impl Side<'_> {
    fn at(&self, step: usize) -> f64 {
        match self {
            Self::Row(row) => row.values[step],
            Self::Fill(value) => *value,
        }
    }
}

/// As Prometheus prints a label set: `{__name__="x", a="b"}`.
fn braced(labels: &Labels) -> String {
    let parts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", parts.join(", "))
}
