//! Functions over series rather than values: changed labels and order.

use std::cmp::Ordering;
use std::sync::Arc;

use model::Labels;

use super::element::missing;
use super::finish::merge;
use super::table::{Grid, Row, Table};
use super::{Evaluator, text};
use crate::error::QueryError;
use crate::functions::Function;
use crate::labels::{METRIC_NAME, with};
use crate::plan::Node;
use crate::source::whole_pattern;

impl Evaluator<'_> {
    pub(super) fn label_replace(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let [vector, target, replacement, source, pattern] = arguments else { return Err(missing()) };
        let (target, replacement) = (text(target)?, text(replacement)?);
        let (source, pattern) = (text(source)?, text(pattern)?);
        let Ok(compiled) = whole_pattern(pattern) else {
            return Err(QueryError::Execution(format!(
                "invalid regular expression in label_replace(): {pattern}"
            )));
        };
        if target.is_empty() {
            return Err(QueryError::Execution(format!(
                "invalid destination label name in label_replace(): {target}"
            )));
        }
        let rows = self.vector(vector, grid)?.into_parts().0.into_iter().map(|mut row| {
            let own = row.labels.get(source).unwrap_or_default();
            if let Some(found) = compiled.captures(own) {
                let mut value = String::new();
                found.expand(replacement, &mut value);
                set(&mut row, target, &value);
            }
            row
        });
        self.table(merge(rows.collect())?)
    }

    pub(super) fn label_join(&self, arguments: &[Node], grid: Grid) -> Result<Table, QueryError> {
        let [vector, target, separator, sources @ ..] = arguments else { return Err(missing()) };
        let (target, separator) = (text(target)?, text(separator)?);
        let sources = sources.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        for (name, kind) in sources.iter().map(|name| (*name, "source")).chain([(target, "destination")]) {
            if name.is_empty() {
                return Err(QueryError::Execution(format!(
                    "invalid {kind} label name in label_join(): {name}"
                )));
            }
        }
        let rows = self.vector(vector, grid)?.into_parts().0.into_iter().map(|mut row| {
            let texts: Vec<&str> =
                sources.iter().map(|name| row.labels.get(name).unwrap_or_default()).collect();
            let value = texts.join(separator);
            set(&mut row, target, &value);
            row
        });
        self.table(merge(rows.collect())?)
    }

    pub(super) fn sort(
        &self,
        function: Function,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Table, QueryError> {
        let (vector, names) = arguments.split_first().ok_or_else(missing)?;
        let names = names.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let table = self.vector(vector, grid)?;
        if grid.steps != 1 {
            return Ok(table);
        }
        Ok(table.with(|mut rows| {
            rows.retain(|row| row.present.has(0));
            match function {
                Function::Sort => rows.sort_by(|a, b| by_value(a.values[0], b.values[0])),
                Function::SortDesc => rows.sort_by(|a, b| by_value(-a.values[0], -b.values[0])),
                Function::SortByLabelDesc => rows.sort_by(|a, b| by_labels(&b.labels, &a.labels, &names)),
                _ => rows.sort_by(|a, b| by_labels(&a.labels, &b.labels, &names)),
            }
            rows
        }))
    }
}

fn set(row: &mut Row, name: &str, value: &str) {
    row.labels = Arc::new(with(&row.labels, name, value));
    if name == METRIC_NAME {
        row.drop_name = false;
    }
}

/// Rising, NaN last.
pub(super) fn by_value(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn by_labels(a: &Labels, b: &Labels, names: &[&str]) -> Ordering {
    names
        .iter()
        .map(|name| natural(a.get(name).unwrap_or_default(), b.get(name).unwrap_or_default()))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a.cmp(b))
}

/// Digits compare as numbers, the rest as text: `gpu2` before `gpu10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    while !a.is_empty() && !b.is_empty() {
        let (left, right) = (piece(a), piece(b));
        let order = match (left.parse::<i64>(), right.parse::<i64>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            _ => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (&a[left.len()..], &b[right.len()..]);
    }
    a.len().cmp(&b.len())
}

/// The longest start of `text` that is all digits or has none.
fn piece(text: &str) -> &str {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    &text[..text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len())]
}
