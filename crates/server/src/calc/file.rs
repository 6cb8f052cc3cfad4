//! Files that people have: CSV with or without a head, or JSON, as the columns that a calculator reads.

use serde_json::{Map, Value};

use super::input::ROWS_MAX;
use super::{CalcError, Column};

/// Reads a file's text as columns, to be an input of [`super::answer`]. JSON is taken as it is; CSV has the columns by
/// the names in its first line, or, without such a line, in the order that the calculator has them.
pub fn columns_of(text: &str, columns: &[Column]) -> Result<Value, CalcError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['[', '{']) {
        return serde_json::from_str(text).map_err(|error| {
            CalcError::new(format!("the file is no JSON: {error}"))
                .hint("it begins with `[` or `{`, so it is read as JSON; CSV has a line for each row")
        });
    }
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let Some((_, first)) = lines.peek() else {
        return Err(CalcError::new("the file is empty").hint(heads(columns)));
    };
    let named = first.split(',').any(|cell| is_name(cell.trim()));
    let order: Vec<Option<&str>> = if named {
        let order = lines.next().map(|(_, line)| line.split(',').map(|head| known(head, columns)).collect());
        order.unwrap_or_default()
    } else {
        columns.iter().map(|column| Some(column.name)).collect()
    };
    if let Some(column) =
        columns.iter().find(|column| column.is_needed && !order.contains(&Some(column.name)))
    {
        return Err(CalcError::new(format!("the file has no column `{}`", column.name)).hint(heads(columns)));
    }
    let is_twice = |name: &&str| order.iter().flatten().filter(|other| other == &name).count() > 1;
    if let Some(name) = order.iter().flatten().find(|name| is_twice(name)) {
        return Err(CalcError::new(format!("the file has the column `{name}` twice"))
            .hint("keep the one that is meant"));
    }
    let mut lists: Vec<Vec<Value>> = vec![Vec::new(); order.len()];
    let mut rows = 0;
    for (at, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() > order.len() {
            let text =
                format!("line {} has {} cells, and there are {} columns", at + 1, cells.len(), order.len());
            return Err(CalcError::new(text).hint(heads(columns)));
        }
        rows += 1;
        if rows > ROWS_MAX {
            return Err(CalcError::new(format!("the file has more than {ROWS_MAX} rows")).hint("thin it out"));
        }
        // What a column is that nobody asks for need not be a number.
        let known = lists.iter_mut().zip(&order).zip(0..).filter(|((_, name), _)| name.is_some());
        for ((list, _), position) in known {
            list.push(cell(cells.get(position).copied().unwrap_or_default(), at + 1)?);
        }
    }
    let named = order.into_iter().zip(lists).filter_map(|(name, list)| Some((name?.to_owned(), list.into())));
    Ok(Value::Object(named.collect::<Map<String, Value>>()))
}

/// A head is a word that is no number.
fn is_name(cell: &str) -> bool {
    cell.trim_matches('"').starts_with(|c: char| c.is_ascii_alphabetic())
        && cell.parse::<f64>().is_err()
        && !matches!(cell, "+Inf" | "Inf")
}

/// The column that a head names; others are read over.
fn known<'a>(head: &str, columns: &'a [Column]) -> Option<&'a str> {
    let head = head.trim().trim_matches('"');
    columns.iter().map(|column| column.name).find(|name| name.eq_ignore_ascii_case(head))
}

fn heads(columns: &[Column]) -> String {
    let names = |is_needed: bool| {
        let some = columns.iter().filter(|column| column.is_needed == is_needed);
        some.map(|column| format!("`{}`", column.name)).collect::<Vec<_>>().join(", ")
    };
    let more = names(false);
    let more = if more.is_empty() { more } else { format!(", and may have {more}") };
    let needed = names(true);
    let needed = if needed.is_empty() { "names of columns".to_owned() } else { needed };
    format!("its first line has {needed}{more}, with commas between")
}

fn cell(text: &str, line: usize) -> Result<Value, CalcError> {
    let text = text.trim_matches('"');
    if text.is_empty() {
        return Ok(Value::Null);
    }
    if matches!(text, "+Inf" | "Inf") {
        return Ok(Value::from(text));
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(Value::from).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        CalcError::new(format!("line {line} has `{shown}`, which is no number"))
            .hint("leave a cell empty where nothing was read")
    })
}
