//! What a calculator takes, written once: flags of the command line and fields of the HTTP body are the same
//! table, and so are the bounds that both keep to.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::CalcError;

/// Most numbers of a list.
const NUMBERS_MAX: usize = 1_000;
/// Most rows of a file.
pub(crate) const ROWS_MAX: usize = 1_000_000;
/// Most series of one question.
const SERIES_MAX: usize = 10_000;
/// The largest number that is taken for one that somebody meant.
const HUGE: f64 = 1e30;
/// Longest text.
const TEXT_BYTES_MAX: usize = 256;

/// What a number can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    min: f64,
    is_min_in: bool,
    max: f64,
    /// What it can be, in words.
    pub words: &'static str,
}

/// Above 0.
pub(crate) const POSITIVE: Range = Range { min: 0.0, is_min_in: false, max: HUGE, words: "above 0" };
/// 0 or more.
pub(crate) const NOT_NEGATIVE: Range = Range { min: 0.0, is_min_in: true, max: HUGE, words: "0 or more" };
/// 1 or more.
pub(crate) const FROM_ONE: Range = Range { min: 1.0, is_min_in: true, max: HUGE, words: "1 or more" };
/// A share that is not nothing.
pub(crate) const SHARE: Range =
    Range { min: 0.0, is_min_in: false, max: 1.0, words: "above 0 and at most 1" };
/// A share.
pub(crate) const RATIO: Range = Range { min: 0.0, is_min_in: true, max: 1.0, words: "from 0 to 1" };
/// A share that leaves something.
pub(crate) const PART: Range = Range { min: 0.0, is_min_in: true, max: 0.99, words: "from 0 to 0.99" };

impl Range {
    fn has(self, number: f64) -> bool {
        number <= self.max && if self.is_min_in { number >= self.min } else { number > self.min }
    }
}

/// A column of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub name: &'static str,
    /// Whether every row has it.
    pub is_needed: bool,
    /// Whether `+Inf` is a value, as of the last bucket of a histogram.
    pub may_be_infinite: bool,
}

/// A column that every row has.
pub(crate) const fn needed(name: &'static str) -> Column {
    Column { name, is_needed: true, may_be_infinite: false }
}

/// A column that may be missing, and may have empty cells.
pub(crate) const fn optional(name: &'static str) -> Column {
    Column { name, is_needed: false, may_be_infinite: false }
}

/// The bounds and counts of a histogram.
pub(crate) const BUCKETS: &[Column] =
    &[Column { name: "le", is_needed: true, may_be_infinite: true }, needed("count")];

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// One number.
    Number(Range),
    /// Some numbers.
    Numbers(Range),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A name.
    Text,
    /// Yes or no.
    Switch,
    /// Rows of a file, by their columns.
    Table(&'static [Column]),
    /// Counters with their readings, as a question to Prometheus gives them.
    Series,
}

/// An input of a calculator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Input {
    /// Its name, as the HTTP body has it; a flag has `-` for `_`.
    pub name: &'static str,
    /// What stands for its value in a description.
    pub value: &'static str,
    /// What it is, with its unit.
    pub help: &'static str,
    /// What it can be.
    pub kind: Kind,
    /// Whether it has no flag on the command line, but is the file that is named.
    pub is_file: bool,
}

/// A number.
pub(crate) const fn number(
    name: &'static str,
    range: Range,
    value: &'static str,
    help: &'static str,
) -> Input {
    Input { name, value, help, kind: Kind::Number(range), is_file: false }
}

/// An input of any kind.
pub(crate) const fn input(name: &'static str, kind: Kind, value: &'static str, help: &'static str) -> Input {
    Input { name, value, help, kind, is_file: false }
}

/// The file that a calculator reads.
pub(crate) const fn file(name: &'static str, columns: &'static [Column], help: &'static str) -> Input {
    Input { name, value: "FILE", help, kind: Kind::Table(columns), is_file: true }
}

/// Rows of a file: equally long columns. A cell may be empty where its column need not be there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    columns: BTreeMap<&'static str, Vec<Option<f64>>>,
    rows: usize,
}

impl Table {
    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// A column that every row has.
    pub(crate) fn all(&self, name: &str) -> Vec<f64> {
        self.columns.get(name).into_iter().flatten().filter_map(|cell| *cell).collect()
    }

    /// A column, with its empty cells; none where it is not there.
    pub(crate) fn column(&self, name: &str) -> Option<&[Option<f64>]> {
        self.columns.get(name).map(Vec::as_slice)
    }
}

/// A counter's readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counted {
    /// Seconds.
    pub(crate) times: Vec<f64>,
    /// What it read.
    pub(crate) values: Vec<f64>,
    /// The window that was asked for: after the first of these, up to the second.
    pub(crate) window: Option<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Datum {
    Number(f64),
    Numbers(Vec<f64>),
    Text(String),
    Switch(bool),
    Table(Table),
    Series(Vec<Counted>),
}

/// What was given, checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Given(BTreeMap<&'static str, Datum>);

impl Given {
    /// Checks a body against a calculator's inputs.
    pub(crate) fn of(body: &Value, inputs: &'static [Input]) -> Result<Self, CalcError> {
        let Value::Object(fields) = body else {
            return Err(CalcError::new("the body is no JSON object").hint("send `{\"name\": value, ...}`"));
        };
        let mut given = Self::default();
        for (name, value) in fields {
            let Some(input) = inputs.iter().find(|input| input.name == name) else {
                return Err(unknown(name, inputs));
            };
            if !value.is_null() {
                given.0.insert(input.name, datum(input, value)?);
            }
        }
        Ok(given)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(Datum::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number without which there is no answer.
    pub(crate) fn needed(&self, name: &'static str) -> Result<f64, CalcError> {
        self.number(name).ok_or_else(|| missing(name))
    }

    pub(crate) fn numbers(&self, name: &str) -> Option<&[f64]> {
        match self.0.get(name) {
            Some(Datum::Numbers(numbers)) => Some(numbers),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Datum::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Datum::Switch(true)))
    }

    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        match self.0.get(name) {
            Some(Datum::Table(table)) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn series(&self, name: &str) -> Option<&[Counted]> {
        match self.0.get(name) {
            Some(Datum::Series(series)) => Some(series),
            _ => None,
        }
    }

    /// What was given, to be shown beside the answer: of files how many rows they have.
    pub(crate) fn shown(&self) -> Map<String, Value> {
        let shown = |datum: &Datum| match datum {
            Datum::Number(number) => Value::from(*number),
            Datum::Numbers(numbers) => Value::from(numbers.clone()),
            Datum::Text(text) => Value::from(text.as_str()),
            Datum::Switch(on) => Value::from(*on),
            Datum::Table(table) => serde_json::json!({ "rows": table.rows }),
            Datum::Series(series) => serde_json::json!({ "series": series.len() }),
        };
        self.0.iter().map(|(name, datum)| ((*name).to_owned(), shown(datum))).collect()
    }

    /// The same as a command line.
    pub(crate) fn command(&self, tool: &str, inputs: &'static [Input]) -> String {
        let mut line = format!("truegauge calc {tool}");
        for input in inputs {
            let Some(datum) = self.0.get(input.name) else { continue };
            let flag = input.name.replace('_', "-");
            let part = match datum {
                Datum::Number(number) => format!(" --{flag} {number}"),
                Datum::Numbers(numbers) => {
                    let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
                    format!(" --{flag} {}", numbers.join(","))
                }
                Datum::Text(text) => format!(" --{flag} {}", shell(text)),
                Datum::Switch(true) => format!(" --{flag}"),
                Datum::Switch(false) => continue,
                Datum::Table(_) if input.is_file => " FILE".to_owned(),
                Datum::Table(_) => format!(" --{flag} FILE"),
                Datum::Series(_) => format!(" --query {}=PROMQL", input.name),
            };
            line.push_str(&part);
        }
        line
    }
}

fn shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+:/".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Inputs that are likely meant in another unit: what they are below, and how it is written.
const UNITS: [(&str, f64, &str); 5] = [
    ("params", 1e5, "70 billion parameters are 70e9"),
    ("active_params", 1e5, "37 billion parameters are 37e9"),
    ("peak", 1e10, "989 TFLOP/s are 989e12"),
    ("bandwidth", 1e9, "3.35 TB/s are 3.35e12"),
    ("memory_bytes", 1e8, "80 GB are 80e9"),
];

/// What to look at twice.
pub(super) fn unlikely(given: &Given) -> Vec<String> {
    let said = UNITS.iter().filter_map(|(name, least, example)| {
        let found = given.number(name).filter(|found| found < least)?;
        Some(format!("`{name}` is {found}, which is very little: {example}"))
    });
    said.collect()
}

/// That an input is not there.
pub(crate) fn missing(name: &'static str) -> CalcError {
    CalcError::new(format!("`{name}` is missing")).of(name)
}

fn unknown(name: &str, inputs: &[Input]) -> CalcError {
    let nearest = model::nearest(name, inputs.iter().map(|input| input.name));
    let hint = nearest.map_or_else(
        || format!("known are {}", inputs.iter().map(|input| input.name).collect::<Vec<_>>().join(", ")),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    CalcError::new(format!("`{}` is not known here", shortened(name))).of(&shortened(name)).hint(hint)
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn datum(input: &Input, value: &Value) -> Result<Datum, CalcError> {
    let wrong = |want: &str| {
        let found = shortened(&value.to_string());
        CalcError::new(format!("`{}` is {found}, and has to be {want}", input.name)).of(input.name)
    };
    Ok(match input.kind {
        Kind::Number(range) => Datum::Number(in_range(input, value, range)?),
        Kind::Numbers(range) => {
            let list = match value {
                Value::Array(list) => list.as_slice(),
                one => std::slice::from_ref(one),
            };
            if list.is_empty() || list.len() > NUMBERS_MAX {
                return Err(wrong(&format!("a list of 1 to {NUMBERS_MAX} numbers")));
            }
            let numbers = list.iter().map(|value| in_range(input, value, range));
            Datum::Numbers(numbers.collect::<Result<_, _>>()?)
        }
        Kind::Word(words) => {
            let word = value.as_str().filter(|word| words.contains(word));
            Datum::Text(word.ok_or_else(|| wrong(&format!("one of {}", words.join(", "))))?.to_owned())
        }
        Kind::Text => {
            let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
            let text = text.filter(|text| text.len() <= TEXT_BYTES_MAX).ok_or_else(|| wrong("a name"))?;
            Datum::Text(text.to_owned())
        }
        Kind::Switch => Datum::Switch(value.as_bool().ok_or_else(|| wrong("true or false"))?),
        Kind::Table(columns) => Datum::Table(table(input.name, value, columns)?),
        Kind::Series => Datum::Series(counters(input.name, value)?),
    })
}

fn in_range(input: &Input, value: &Value, range: Range) -> Result<f64, CalcError> {
    let Input { name, help, .. } = input;
    let found = value.as_f64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
    let Some(found) = found.filter(|number| number.is_finite()) else {
        let text = shortened(&value.to_string());
        return Err(CalcError::new(format!("`{name}` is {text}, which is no number"))
            .of(name)
            .hint(format!("{help}; a number as `70e9`, without a unit")));
    };
    if range.has(found) {
        return Ok(found);
    }
    let words = if found > HUGE {
        format!("`{name}` is {found:e}, and has to be {} and at most {HUGE:e}", range.words)
    } else {
        format!("`{name}` is {found}, and has to be {}", range.words)
    };
    Err(CalcError::new(words).of(name).hint(*help))
}

/// Columns of an object of lists, of a list of objects, or, where there is one column, of a list of numbers.
fn table(name: &'static str, value: &Value, columns: &'static [Column]) -> Result<Table, CalcError> {
    let wrong = |text: String| CalcError::new(format!("`{name}`: {text}")).of(name);
    let rows = match value {
        Value::Array(rows) => rows.len(),
        Value::Object(lists) => lists.values().filter_map(Value::as_array).map(Vec::len).max().unwrap_or(0),
        _ => return Err(wrong("it is neither a list of rows nor an object of columns".to_owned())),
    };
    if rows == 0 || rows > ROWS_MAX {
        return Err(wrong(format!("it has {rows} rows, and has to have 1 to {ROWS_MAX}")));
    }
    let mut table = Table { rows, ..Table::default() };
    let null = Value::Null;
    for column in columns {
        let cell = |at: usize| match value {
            Value::Array(rows) if columns.len() == 1 && !rows[at].is_object() => &rows[at],
            Value::Array(rows) => rows[at].get(column.name).unwrap_or(&null),
            lists => lists.get(column.name).and_then(|list| list.get(at)).unwrap_or(&null),
        };
        let mut cells = Vec::with_capacity(rows);
        for at in 0..rows {
            cells.push(
                cell_number(cell(at), column)
                    .map_err(|text| wrong(format!("`{}` of row {} {text}", column.name, at + 1)))?,
            );
        }
        if let Some(at) = cells.iter().position(|cell| is_in_milliseconds(column, *cell)) {
            let text = format!(
                "`t` of row {} is {:e}, which is no time in seconds",
                at + 1,
                cells[at].unwrap_or(0.0)
            );
            return Err(wrong(text).hint("times are seconds: divide milliseconds by 1,000"));
        }
        if column.is_needed || cells.iter().any(Option::is_some) {
            table.columns.insert(column.name, cells);
        }
    }
    Ok(table)
}

/// Whether a time is one of this age in another unit: in seconds it would be after the year 5000.
fn is_in_milliseconds(column: &Column, cell: Option<f64>) -> bool {
    column.name == "t" && cell.is_some_and(|time| time >= 1e11)
}

/// A cell, or what is wrong with it.
fn cell_number(value: &Value, column: &Column) -> Result<Option<f64>, String> {
    let found = match value {
        Value::Null if column.is_needed => return Err("is missing".to_owned()),
        Value::Null => return Ok(None),
        Value::String(text) if column.may_be_infinite && matches!(text.as_str(), "+Inf" | "Inf") => {
            return Ok(Some(f64::INFINITY));
        }
        value => value.as_f64(),
    };
    match found {
        Some(number) if number.is_finite() && number.abs() <= HUGE => Ok(Some(number)),
        _ => Err(format!("is {}, which is no number", shortened(&value.to_string()))),
    }
}

/// The window that a counter's readings were asked for, where that is said.
fn window(series: &Value, times: &[f64]) -> Result<Option<(f64, f64)>, &'static str> {
    let edge = |key: &str| series.get(key).filter(|value| !value.is_null());
    let (from, to) = match (edge("from"), edge("to")) {
        (None, None) => return Ok(None),
        (from, to) => (from.and_then(Value::as_f64), to.and_then(Value::as_f64)),
    };
    let (Some(from), Some(to)) = (from, to) else {
        return Err("`from` and `to` have to be seconds, and both of them given");
    };
    let holds_all = times.iter().all(|time| (from..=to).contains(time));
    if holds_all && from < to && (to - from).is_finite() {
        return Ok(Some((from, to)));
    }
    Err("a reading is not within its window, `from` to `to`")
}

fn counters(name: &'static str, value: &Value) -> Result<Vec<Counted>, CalcError> {
    let wrong = |text: &str| CalcError::new(format!("`{name}`: {text}")).of(name);
    let shape = "it has to be a list of `{\"t\": [seconds, ...], \"value\": [...]}`, and may have `from` and `to`, the window that was asked for";
    let list = value.as_array().ok_or_else(|| wrong(shape))?;
    if list.is_empty() || list.len() > SERIES_MAX {
        return Err(wrong(&format!("it has {} series, and has to have 1 to {SERIES_MAX}", list.len())));
    }
    let mut series = Vec::with_capacity(list.len());
    let mut rows = 0;
    for one in list {
        let numbers = |key: &str| -> Option<Vec<f64>> {
            one.get(key)?.as_array()?.iter().map(|value| value.as_f64().filter(|n| n.is_finite())).collect()
        };
        let (times, values) = numbers("t").zip(numbers("value")).ok_or_else(|| wrong(shape))?;
        rows += times.len();
        if times.len() != values.len() || rows > ROWS_MAX {
            return Err(wrong("as many times as values, and not more than a million of all series"));
        }
        series.push(Counted { window: window(one, &times).map_err(wrong)?, times, values });
    }
    Ok(series)
}
