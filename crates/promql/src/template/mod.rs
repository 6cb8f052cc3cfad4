//! Templates in labels and annotations of alerts: the language of Go's `text/template` as far as
//! alerts use it, with Prometheus' functions.

mod functions;
mod parse;
mod run;

use std::collections::BTreeMap;

use model::Labels;

/// A parsed template.
#[derive(Debug)]
pub(crate) struct Template(parse::Block);

/// A value inside a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Nothing,
    Text(String),
    Number(f64),
    Integer(i64),
    Bool(bool),
    /// Entries; `true` when a missing one is an empty text rather than nothing.
    Map(BTreeMap<String, Value>, bool),
    List(Vec<Value>),
}

/// What a template may ask a query for: the vector, or why there is none.
pub(crate) type Ask<'a> = dyn Fn(&str) -> Result<Vec<(Labels, f64)>, String> + 'a;

/// What a template sees.
pub(crate) struct Scene<'a> {
    pub(crate) labels: &'a Labels,
    pub(crate) value: f64,
    pub(crate) external_labels: &'a Labels,
    pub(crate) external_url: &'a str,
    pub(crate) time_ms: i64,
    pub(crate) ask: &'a Ask<'a>,
}

impl Template {
    /// Parses `text`; an error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parse::parse(text).map(Self)
    }

    /// The text for `scene`.
    pub(crate) fn expand(&self, scene: &Scene<'_>) -> Result<String, String> {
        run::run(&self.0, scene)
    }
}

impl Value {
    pub(crate) fn of_labels(labels: &Labels) -> Self {
        let entries = labels.iter().map(|(name, value)| (name.to_owned(), Self::Text(value.to_owned())));
        Self::Map(entries.collect(), true)
    }

    fn is_true(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Text(text) => !text.is_empty(),
            Self::Number(number) => *number != 0.0,
            Self::Integer(number) => *number != 0,
            Self::Bool(value) => *value,
            Self::Map(entries, _) => !entries.is_empty(),
            Self::List(items) => !items.is_empty(),
        }
    }

    /// As `{{ ... }}` prints it.
    fn print(&self) -> String {
        match self {
            Self::Nothing => "<no value>".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Number(number) => crate::number::general(*number),
            Self::Integer(number) => number.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Map(entries, _) => {
                let pairs: Vec<String> =
                    entries.iter().map(|(name, value)| format!("{name}:{}", value.print())).collect();
                format!("map[{}]", pairs.join(" "))
            }
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::print).collect();
                format!("[{}]", items.join(" "))
            }
        }
    }

    /// As a number, the way Prometheus' functions convert.
    fn number(&self) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Integer(number) => Ok(*number as f64),
            Self::Text(text) => text.parse().ok().ok_or_else(|| format!("`{text}` is no number")),
            other => Err(format!("`{}` is no number", other.print())),
        }
    }
}
