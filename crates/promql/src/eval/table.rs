//! Intermediate results: one row per series, one column per step.

use std::sync::Arc;

use model::Labels;

use crate::error::QueryError;
use crate::limits::{Budget, Charge};

/// The times of evaluation: `start_ns + i * step_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) start_ns: i64,
    pub(crate) step_ns: i64,
    pub(crate) steps: usize,
}

impl Grid {
    pub(crate) fn at(&self, step: usize) -> i64 {
        self.start_ns.saturating_add(self.step_ns.saturating_mul(step as i64))
    }

    pub(crate) fn last(&self) -> i64 {
        self.at(self.steps.saturating_sub(1))
    }

    /// The same times earlier by `offset_ns`.
    pub(crate) fn earlier(&self, offset_ns: i64) -> Self {
        Self { start_ns: self.start_ns.saturating_sub(offset_ns), ..*self }
    }

    /// Whether one of the times is in `from_ns..to_ns`.
    pub(crate) fn touches(&self, from_ns: i64, to_ns: i64) -> bool {
        if self.steps == 0 || from_ns >= to_ns {
            return false;
        }
        let first = if from_ns <= self.start_ns {
            0
        } else {
            let step = i128::from(self.step_ns.max(1));
            (i128::from(from_ns) - i128::from(self.start_ns) + step - 1) / step
        };
        first < self.steps as i128 && self.at(first as usize) < to_ns
    }
}

/// A set of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn none(steps: usize) -> Self {
        Self(vec![0; steps.div_ceil(64)])
    }

    pub(crate) fn all(steps: usize) -> Self {
        let mut words = vec![u64::MAX; steps.div_ceil(64)];
        if let Some(last) = words.last_mut()
            && !steps.is_multiple_of(64)
        {
            *last = (1 << (steps % 64)) - 1;
        }
        Self(words)
    }

    pub(crate) fn has(&self, step: usize) -> bool {
        self.0.get(step / 64).is_some_and(|word| word >> (step % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, step: usize) {
        if let Some(word) = self.0.get_mut(step / 64) {
            *word |= 1 << (step % 64);
        }
    }

    pub(crate) fn unset(&mut self, step: usize) {
        if let Some(word) = self.0.get_mut(step / 64) {
            *word &= !(1 << (step % 64));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(word, other)| word & other != 0)
    }

    /// The steps of the set, rising.
    pub(crate) fn steps(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let step = at * 64 + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    step
                })
            })
        })
    }
}

/// One series of a result. `values` has an entry per step; only those in `present` count.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) labels: Arc<Labels>,
    /// Whether the metric's name goes away in the answer.
    pub(crate) drop_name: bool,
    pub(crate) values: Vec<f64>,
    pub(crate) present: Bits,
}

impl Row {
    pub(crate) fn empty(labels: Arc<Labels>, drop_name: bool, steps: usize) -> Self {
        Self { labels, drop_name, values: vec![0.0; steps], present: Bits::none(steps) }
    }

    pub(crate) fn put(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        self.present.set(step);
    }

    pub(crate) fn get(&self, step: usize) -> Option<f64> {
        self.present.has(step).then(|| self.values[step])
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.present.steps().map(|step| (step, self.values[step]))
    }
}

/// Rows with the memory that they take.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    charge: Charge,
}

/// Bytes of a row beside its values.
const ROW_BYTES: u64 = 160;

impl Table {
    /// Takes `rows` as they are and charges their memory.
    pub(crate) fn of(rows: Vec<Row>, budget: &Arc<Budget>) -> Result<Self, QueryError> {
        let bytes = rows.iter().map(|row| ROW_BYTES + row.values.len() as u64 * 8 + 8).sum();
        Ok(Self { rows, charge: budget.hold(bytes)? })
    }

    /// The same memory with other rows, as many or fewer.
    pub(crate) fn with(self, change: impl FnOnce(Vec<Row>) -> Vec<Row>) -> Self {
        Self { rows: change(self.rows), charge: self.charge }
    }

    /// Rows and charge apart.
    pub(crate) fn into_parts(self) -> (Vec<Row>, Charge) {
        (self.rows, self.charge)
    }
}

/// What a node evaluates to.
#[derive(Debug)]
pub(crate) enum Value {
    /// One value per step.
    Scalar(Vec<f64>),
    Text(String),
    Vector(Table),
}
