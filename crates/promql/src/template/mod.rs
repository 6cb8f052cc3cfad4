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

/// A template of what people are told of alerts: the same language over any data, without queries.
#[derive(Debug)]
pub struct Message(Template);

impl Message {
    /// Parses `text`; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Template::parse(text).map(Self)
    }

    /// The text for `data`, which the template has as its dot; a name that is not there is an empty text.
    pub fn expand(
        &self,
        data: &serde_json::Value,
        external_url: &str,
        time_ms: i64,
    ) -> Result<String, String> {
        let none = Labels::default();
        let ask = |_: &str| Err("a message can't ask queries".to_owned());
        let scene = Scene {
            labels: &none,
            value: f64::NAN,
            external_labels: &none,
            external_url,
            time_ms,
            ask: &ask,
        };
        run::run_over(&self.0.0, &scene, of_json(data))
    }
}

fn of_json(data: &serde_json::Value) -> Value {
    match data {
        serde_json::Value::Null => Value::Nothing,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => Value::List(items.iter().map(of_json).collect()),
        serde_json::Value::Object(entries) => {
            Value::Map(entries.iter().map(|(name, value)| (name.clone(), of_json(value))).collect(), true)
        }
    }
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
