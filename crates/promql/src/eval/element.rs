//! Functions over one value at a time, dates, and the steps between scalar and vector.

use std::f64::consts::PI;
use std::sync::Arc;

use model::Labels;

use super::Evaluator;
use super::over::absent_labels;
use super::table::{Bits, Grid, Row, Table, Value};
use crate::error::QueryError;
use crate::functions::{Date, Element, Function};
use crate::number::{civil, is_leap, seconds};
use crate::plan::{Kind, Node};

/// The larger one as Go has it: NaN wins unless the other is +inf.
fn larger(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The smaller one as Go has it: NaN wins unless the other is -inf.
fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

impl Evaluator<'_> {
    /// Applies `change` to every value of the first argument; the name goes.
    fn map(&self, node: &Node, grid: Grid, change: impl Fn(usize, f64) -> f64) -> Result<Table, QueryError> {
        Ok(self.vector(node, grid)?.with(|mut rows| {
            for row in &mut rows {
                row.drop_name = true;
                row.values.iter_mut().enumerate().for_each(|(step, value)| *value = change(step, *value));
            }
            rows
        }))
    }

    pub(super) fn elementwise(
        &self,
        element: Element,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Table, QueryError> {
        let [argument] = arguments else { return Err(missing()) };
        let function = plain_function(element);
        self.map(argument, grid, |_, value| function(value))
    }

    pub(super) fn round(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let nearest = match arguments.get(1) {
            Some(node) => self.scalar(node, grid)?,
            None => vec![1.0; grid.steps],
        };
        let argument = arguments.first().ok_or_else(missing)?;
        self.map(argument, grid, |step, value| {
            let inverse = 1.0 / nearest[step];
            (value * inverse + 0.5).floor() / inverse
        })
    }

    pub(super) fn clamp(
        &self,
        function: Function,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Table, QueryError> {
        let bound =
            |at: usize| arguments.get(at).ok_or_else(missing).and_then(|node| self.scalar(node, grid));
        let (least, greatest) = match function {
            Function::ClampMin => (bound(1)?, vec![f64::INFINITY; grid.steps]),
            Function::ClampMax => (vec![f64::NEG_INFINITY; grid.steps], bound(1)?),
            _ => (bound(1)?, bound(2)?),
        };
        let argument = arguments.first().ok_or_else(missing)?;
        let table =
            self.map(argument, grid, |step, value| larger(least[step], smaller(greatest[step], value)))?;
        let mut empty = Bits::none(grid.steps);
        for step in (0..grid.steps).filter(|step| greatest[*step] < least[*step]) {
            empty.set(step);
        }
        Ok(table.with(|mut rows| {
            for row in &mut rows {
                row.present.remove(&empty);
            }
            rows.retain(|row| !row.present.is_empty());
            rows
        }))
    }

    pub(super) fn pairwise(
        &self,
        function: Function,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Value, QueryError> {
        let [left, right] = arguments else { return Err(missing()) };
        let (left, right) = (self.scalar(left, grid)?, self.scalar(right, grid)?);
        let choose = if function == Function::MaxOf { larger } else { smaller };
        Ok(Value::Scalar(left.into_iter().zip(right).map(|(a, b)| choose(a, b)).collect()))
    }

    /// The one value of a vector, NaN where there are none or several.
    pub(super) fn to_scalar(&self, arguments: &[Node], grid: Grid) -> Result<Value, QueryError> {
        let table = self.vector(arguments.first().ok_or_else(missing)?, grid)?;
        let mut values = vec![f64::NAN; grid.steps];
        let mut seen = Bits::none(grid.steps);
        for row in &table.rows {
            for (step, value) in row.points() {
                values[step] = if seen.has(step) { f64::NAN } else { value };
                seen.set(step);
            }
        }
        Ok(Value::Scalar(values))
    }

    pub(super) fn to_vector(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let values = self.scalar(arguments.first().ok_or_else(missing)?, grid)?;
        self.table(vec![nameless(values, grid.steps)])
    }

    pub(super) fn timestamp(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let argument = arguments.first().ok_or_else(missing)?;
        let table = match &argument.kind {
            Kind::Selector(selector) => self.instants(selector, argument.span, grid, true)?,
            _ => self.vector(argument, grid)?.with(|mut rows| {
                for row in &mut rows {
                    row.values = (0..grid.steps).map(|step| seconds(grid.at(step))).collect();
                }
                rows
            }),
        };
        Ok(table.with(|mut rows| {
            for row in &mut rows {
                row.drop_name = true;
            }
            rows
        }))
    }

    pub(super) fn date(&self, date: Date, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        if let Some(argument) = arguments.first() {
            return self.map(argument, grid, |_, value| part_of_date(date, whole_seconds(value)));
        }
        let part = |step| part_of_date(date, grid.at(step).div_euclid(1_000_000_000));
        self.table(vec![nameless((0..grid.steps).map(part).collect(), grid.steps)])
    }

    pub(super) fn absent(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let argument = arguments.first().ok_or_else(missing)?;
        let labels = match &argument.kind {
            Kind::Selector(selector) => absent_labels(selector),
            _ => Labels::default(),
        };
        let mut present = Bits::all(grid.steps);
        for row in &self.vector(argument, grid)?.rows {
            present.remove(&row.present);
        }
        let row = Row { labels: Arc::new(labels), drop_name: false, values: vec![1.0; grid.steps], present };
        self.table(if row.present.is_empty() { Vec::new() } else { vec![row] })
    }
}

pub(super) fn missing() -> QueryError {
    QueryError::Internal("an argument is missing".to_owned())
}

fn nameless(values: Vec<f64>, steps: usize) -> Row {
    Row { labels: Arc::default(), drop_name: false, values, present: Bits::all(steps) }
}

fn plain_function(element: Element) -> fn(f64) -> f64 {
    match element {
        Element::Abs => f64::abs,
        Element::Acos => f64::acos,
        Element::Acosh => f64::acosh,
        Element::Asin => f64::asin,
        Element::Asinh => f64::asinh,
        Element::Atan => f64::atan,
        Element::Atanh => f64::atanh,
        Element::Ceil => f64::ceil,
        Element::Cos => f64::cos,
        Element::Cosh => f64::cosh,
        Element::Deg => |value| value * 180.0 / PI,
        Element::Exp => f64::exp,
        Element::Floor => f64::floor,
        Element::Ln => f64::ln,
        Element::Log10 => f64::log10,
        Element::Log2 => f64::log2,
        Element::Rad => |value| value * PI / 180.0,
        Element::Sgn => |value| {
            if value < 0.0 {
                -1.0
            } else if value > 0.0 {
                1.0
            } else {
                value
            }
        },
        Element::Sin => f64::sin,
        Element::Sinh => f64::sinh,
        Element::Sqrt => f64::sqrt,
        Element::Tan => f64::tan,
        Element::Tanh => f64::tanh,
    }
}

/// Go converts a float that no integer holds to the least one.
fn whole_seconds(value: f64) -> i64 {
    if value.is_nan() || value >= 9.3e18 || value <= -9.3e18 { i64::MIN } else { value as i64 }
}

/// Seconds from the year in which Go's calendar begins to 1970. Go counts from there without a sign
/// and wraps, which shows for numbers that are no time.
const GO_EPOCH_SECONDS: u64 = 9_223_372_028_715_321_600;

fn part_of_date(date: Date, seconds: i64) -> f64 {
    let absolute = (seconds as u64).wrapping_add(GO_EPOCH_SECONDS);
    let days = (absolute / 86_400) as i64 - (GO_EPOCH_SECONDS / 86_400) as i64;
    let second = absolute % 86_400;
    let (year, month, day) = civil(days);
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    match date {
        Date::DayOfMonth => f64::from(day),
        Date::DayOfWeek => (days + 4).rem_euclid(7) as f64,
        Date::DayOfYear => (lengths[..month as usize - 1].iter().sum::<u32>() + day) as f64,
        Date::DaysInMonth => f64::from(lengths[month as usize - 1]),
        Date::Hour => (second / 3600) as f64,
        Date::Minute => (second / 60 % 60) as f64,
        Date::Month => f64::from(month),
        Date::Year => year as f64,
    }
}
