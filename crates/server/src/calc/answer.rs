//! What a calculator answers: figures in base units, what they stand on, and why some are not there.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A column of an answer's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct AnswerColumn {
    /// Its key in a row.
    pub key: &'static str,
    /// Its head.
    pub title: &'static str,
    /// Its unit; empty where it has none.
    pub unit: &'static str,
}

/// What a figure takes for granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Assumption {
    /// In a sentence.
    pub text: String,
    /// Where it is from.
    pub source: Option<&'static str>,
    /// Its address.
    pub url: Option<&'static str>,
}

/// How a figure is reckoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Formula {
    /// The figure.
    pub name: &'static str,
    /// The formula.
    pub text: &'static str,
}

/// A figure that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Absent {
    /// The figure.
    pub name: &'static str,
    /// Why, with what would help.
    pub reason: String,
}

/// What a calculator answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct Answer {
    /// The calculator.
    pub tool: &'static str,
    /// Figures by name, in base units and ratios from 0 to 1; null where one is not known.
    #[schema(value_type = Object)]
    pub result: Map<String, Value>,
    /// What `rows` has.
    pub columns: Vec<AnswerColumn>,
    /// Figures for several cases.
    #[schema(value_type = Vec<Object>)]
    pub rows: Vec<Map<String, Value>>,
    /// What the figures take for granted.
    pub assumptions: Vec<Assumption>,
    /// How they are reckoned.
    pub formula: Vec<Formula>,
    /// What was given, and what stands in for what was not.
    #[schema(value_type = Object)]
    pub inputs: Map<String, Value>,
    /// What to look at.
    pub warnings: Vec<String>,
    /// Which figures are not there, and why.
    pub absent: Vec<Absent>,
    /// The same as a command.
    pub command: String,
    /// The same for people, lines as a terminal shows them.
    #[serde(skip)]
    pub text: String,
}

impl Answer {
    /// Tells a figure.
    pub(crate) fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        self.result.insert(name.to_owned(), value.into());
    }

    /// Tells a figure, or why it is not known.
    pub(crate) fn put_or(&mut self, name: &'static str, value: Option<f64>, reason: &str) {
        match value {
            Some(value) => self.put(name, value),
            None => self.lacks(name, reason),
        }
    }

    /// Tells why a figure is not there.
    pub(crate) fn lacks(&mut self, name: &'static str, reason: impl Into<String>) {
        self.put(name, Value::Null);
        self.absent.push(Absent { name, reason: reason.into() });
    }

    /// A figure that was told.
    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        self.result.get(name).and_then(Value::as_f64)
    }

    /// Tells what figures take for granted.
    pub(crate) fn assume(&mut self, text: impl Into<String>) {
        self.assumptions.push(Assumption { text: text.into(), source: None, url: None });
    }

    /// The same, with where it is from.
    pub(crate) fn assume_by(&mut self, text: impl Into<String>, source: &'static str, url: &'static str) {
        self.assumptions.push(Assumption { text: text.into(), source: Some(source), url: Some(url) });
    }

    /// What stands in for an input that was not given.
    pub(crate) fn stand_in(&mut self, name: &'static str, value: impl Into<Value>) {
        self.inputs.entry(name).or_insert_with(|| value.into());
    }

    /// Adds a line for people.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref().trim_end());
        self.text.push('\n');
    }

    /// The answer as JSON.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// What to look at, and why figures are not there, a line each: of all figures, or of these.
    pub fn remarks(&self, of: Option<&[&str]>) -> Vec<String> {
        let warnings = self.warnings.iter().map(|text| format!("warning: {text}"));
        let absent = self.absent.iter().filter(|absent| of.is_none_or(|names| names.contains(&absent.name)));
        let absent = absent.map(|absent| format!("{} is not known: {}", absent.name, absent.reason));
        warnings.chain(absent).collect()
    }

    /// How the figures are reckoned and what they take for granted, a line each.
    pub fn explanation(&self) -> Vec<String> {
        let width = self.formula.iter().map(|formula| formula.name.len()).max().unwrap_or(0);
        let mut lines = vec!["formula".to_owned()];
        lines.extend(
            self.formula.iter().map(|formula| format!("  {:<width$}  {}", formula.name, formula.text)),
        );
        lines.push("taken for granted".to_owned());
        lines.extend(self.assumptions.iter().map(|assumption| {
            let source = assumption.source.map(|source| format!(" ({source})")).unwrap_or_default();
            format!("  - {}{source}", assumption.text)
        }));
        lines
    }
}

/// A row, by its keys.
pub(crate) fn row<const N: usize>(cells: [(&str, Value); N]) -> Map<String, Value> {
    cells.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A number with a comma every three digits and so many digits after the point.
pub(crate) fn grouped(number: f64, digits: usize) -> String {
    let plain = format!("{number:.digits$}");
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("-", rest));
    let (whole, rest) = plain.split_once('.').map_or((plain, ""), |(whole, rest)| (whole, rest));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && whole.chars().all(|c| c.is_ascii_digit()) {
            out.push(',');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out
}

/// A share in per cent.
pub(crate) fn percent(ratio: f64, digits: usize) -> String {
    format!("{:.digits$} %", ratio * 100.0)
}

/// Rows of cells under heads, all to the right but the first, two spaces before each line.
pub(crate) fn laid_out(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(heads[at].chars().count())
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let line = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("   "))
    };
    std::iter::once(&heads).chain(rows).map(line).collect()
}
