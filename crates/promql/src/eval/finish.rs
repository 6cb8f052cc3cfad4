//! The last touch of a result: names go, equal series become one.

use std::collections::HashMap;
use std::sync::Arc;

use model::Labels;

use super::table::Row;
use crate::error::QueryError;
use crate::labels::without_name;

fn collision() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".to_owned())
}

/// Drops the names that have to go and merges what is then equal; two values at one step are an
/// error.
pub(crate) fn finish(mut rows: Vec<Row>) -> Result<Vec<Row>, QueryError> {
    for row in rows.iter_mut().filter(|row| row.drop_name) {
        if row.labels.iter().any(|(name, _)| name.starts_with("__")) {
            row.labels = Arc::new(without_name(&row.labels));
        }
        row.drop_name = false;
    }
    merge(rows)
}

/// Makes rows of equal labels one, unless one of them is to lose its name; two values at one step
/// are an error.
pub(crate) fn merge(rows: Vec<Row>) -> Result<Vec<Row>, QueryError> {
    let mut places: HashMap<(Arc<Labels>, bool), usize> = HashMap::with_capacity(rows.len());
    let mut merged: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        match places.entry((row.labels.clone(), row.drop_name)) {
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(merged.len());
                merged.push(row);
            }
            std::collections::hash_map::Entry::Occupied(taken) => {
                let into = &mut merged[*taken.get()];
                if into.present.overlaps(&row.present) {
                    return Err(collision());
                }
                for (step, value) in row.points() {
                    into.put(step, value);
                }
            }
        }
    }
    Ok(merged)
}
