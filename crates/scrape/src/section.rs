//! A mapping of a configuration, taken key by key, so that what nobody took is an error.

use std::time::Duration;

use crate::units;
use crate::yaml::{Fault, Node, Place, Value};

/// Shortest interval and timeout.
const DURATION_MIN: Duration = Duration::from_millis(1);
/// Longest interval and timeout.
const DURATION_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// A mapping and which of its keys were asked for.
pub(crate) struct Section<'a> {
    what: &'static str,
    place: Place,
    entries: &'a [(String, Place, Node)],
    known: Vec<String>,
}

impl<'a> Section<'a> {
    /// `what` names the mapping in errors. Nothing is an empty mapping.
    pub(crate) fn new(node: &'a Node, what: &'static str) -> Result<Self, Fault> {
        let entries: &[_] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            other => return Err((node.place, format!("{what} is {}, a mapping is wanted", other.kind()))),
        };
        Ok(Self { what, place: node.place, entries, known: Vec::new() })
    }

    /// The value under `key`, where it is set to something.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Node> {
        self.known.push(key.to_owned());
        let found = self.entries.iter().find(|(known, ..)| known == key);
        found.map(|(.., node)| node).filter(|node| !matches!(node.value, Value::Null))
    }

    /// Where the value under `key` stands, or the mapping without it.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        self.entries.iter().find(|(known, ..)| known == key).map_or(self.place, |(.., node)| node.place)
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, Fault> {
        self.take(key).map(text).transpose()
    }

    pub(crate) fn duration(&mut self, key: &str) -> Result<Option<Duration>, Fault> {
        let place = self.place_of(key);
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = duration(&text);
        found.map(Some).ok_or_else(|| {
            (place, format!("`{key}` is {text:?}, no duration above zero: write it as `15s` or `1m30s`"))
        })
    }

    pub(crate) fn number(&mut self, key: &str) -> Result<Option<usize>, Fault> {
        let place = self.place_of(key);
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_not_a_number| (place, format!("`{key}` is {text:?}, a whole number from 0 is wanted")))
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<Option<bool>, Fault> {
        let place = self.place_of(key);
        match self.text(key)?.as_deref() {
            None => Ok(None),
            Some("true" | "True" | "TRUE" | "yes" | "on") => Ok(Some(true)),
            Some("false" | "False" | "FALSE" | "no" | "off") => Ok(Some(false)),
            Some(other) => Err((place, format!("`{key}` is {other:?}, `true` or `false` is wanted"))),
        }
    }

    /// Refuses keys that exist elsewhere and have no meaning here.
    pub(crate) fn refuse(&mut self, keys: &[&str]) -> Result<(), Fault> {
        match self.entries.iter().find(|(known, ..)| keys.contains(&known.as_str())) {
            None => Ok(()),
            Some((key, place, _)) => {
                Err((*place, format!("`{key}` is a setting of Prometheus that is not supported here")))
            }
        }
    }

    /// Refuses keys that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        let Some((key, place, _)) =
            self.entries.iter().find(|(key, ..)| !self.known.iter().any(|known| known == key))
        else {
            return Ok(());
        };
        let nearest = nearest(key, &self.known).map(|n| format!(": did you mean `{n}`?")).unwrap_or_default();
        Err((*place, format!("`{key}` is not a setting of {}{nearest}", self.what)))
    }
}

/// The known key that `key` was probably meant to be.
fn nearest<'k>(key: &str, known: &'k [String]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| (distance(key, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate.as_str())
}

/// How many single characters have to change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Reads a value that must be a duration of some length.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    units::duration(text).filter(|d| (DURATION_MIN..=DURATION_MAX).contains(d))
}

pub(crate) fn list(node: &Node) -> Result<&[Node], Fault> {
    match &node.value {
        Value::List(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err((node.place, format!("{} is found, a list is wanted", other.kind()))),
    }
}

/// A single value as text; nothing is the empty text.
pub(crate) fn text(node: &Node) -> Result<String, Fault> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        other => Err((node.place, format!("{} is found, a single value is wanted", other.kind()))),
    }
}
