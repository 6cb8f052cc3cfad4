//! Python values as attributes of a run: nested mappings and sequences become path-like keys.

use model::AttributeValue;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// How deep a nested value is followed; what lies deeper is kept as text.
const DEPTH_MAX: usize = 16;
/// Attributes that one call may set.
pub(crate) const ATTRIBUTES_MAX: usize = 10_000;
/// Longest text of an attribute, in bytes.
const TEXT_BYTES_MAX: usize = 65_536;

/// Attributes of one call.
#[derive(Default)]
pub(crate) struct Flat {
    /// Keys and values in the order given.
    pub(crate) pairs: Vec<(String, AttributeValue)>,
    /// Attributes beyond [`ATTRIBUTES_MAX`], not kept.
    pub(crate) dropped: u64,
}

impl Flat {
    /// Adds `value` under `prefix`: a mapping's keys and a sequence's indices follow after `/`.
    ///
    /// Dataclasses and namespaces go by their fields, array scalars by their `item()`, anything else
    /// by its `str()`. The only error is an interrupt raised while the value's own code ran.
    pub(crate) fn add(&mut self, prefix: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.walk(prefix, value, 0)
    }

    fn walk(&mut self, key: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth < DEPTH_MAX
            && let Some(children) = children(value)?
        {
            for (name, child) in children {
                if self.pairs.len() >= ATTRIBUTES_MAX {
                    self.dropped += 1;
                    continue;
                }
                self.walk(&join(key, &name), &child, depth + 1)?;
            }
            return Ok(());
        }
        self.pairs.push((if key.is_empty() { "value" } else { key }.to_owned(), leaf(value)?));
        Ok(())
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") }
}

/// Values by the last part of their key.
type Children<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// What a container holds; `None` for a leaf and for an empty container.
fn children<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Children<'py>>> {
    let named =
        |dict: &Bound<'py, PyDict>| dict.iter().map(|(name, child)| (text(&name), child)).collect::<Vec<_>>();
    let indexed = |items: Vec<Bound<'py, PyAny>>| {
        items.into_iter().enumerate().map(|(at, child)| (at.to_string(), child)).collect::<Vec<_>>()
    };
    let found = if let Ok(dict) = value.cast::<PyDict>() {
        named(dict)
    } else if let Ok(list) = value.cast::<PyList>() {
        indexed(list.iter().collect())
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        indexed(tuple.iter().collect())
    } else if let Ok(mapping) = value.cast::<PyMapping>() {
        match tamed(value.py(), mapping.items())? {
            Some(items) => items
                .iter()
                .filter_map(|item| item.extract::<(Bound<'_, PyAny>, _)>().ok())
                .map(|(name, child)| (text(&name), child))
                .collect(),
            None => return Ok(None),
        }
    } else if has_fields(value) {
        match tamed(value.py(), value.getattr("__dict__").and_then(|d| Ok(d.cast_into::<PyDict>()?)))? {
            Some(dict) => named(&dict),
            None => return Ok(None),
        }
    } else {
        return Ok(None);
    };
    Ok(Some(found).filter(|found| !found.is_empty()))
}

/// Whether an object is a record of its fields: a dataclass or an `argparse.Namespace`.
fn has_fields(value: &Bound<'_, PyAny>) -> bool {
    let class = value.get_type();
    class.hasattr("__dataclass_fields__").unwrap_or(false)
        || class.name().is_ok_and(|name| name == "Namespace" || name == "SimpleNamespace")
}

/// An ordinary exception of the value's own code becomes `None`; an interrupt goes on.
fn tamed<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

fn text(value: &Bound<'_, PyAny>) -> String {
    value.str().map_or_else(|_| crate::number::kind(value), |text| text.to_string_lossy().into_owned())
}

fn leaf(value: &Bound<'_, PyAny>) -> PyResult<AttributeValue> {
    let py = value.py();
    if value.is_none() {
        return Ok(AttributeValue::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(AttributeValue::Bool(flag.is_true()));
    }
    if let Some(int) = value.cast::<PyInt>().ok().and_then(|int| int.extract().ok()) {
        return Ok(AttributeValue::Int(int));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(AttributeValue::Float(float.value()));
    }
    if !value.is_instance_of::<PyString>()
        && value.getattr("ndim").is_ok_and(|n| n.extract().is_ok_and(|n: usize| n == 0))
        && let Some(item) = tamed(py, value.call_method0("item"))?
        && item.getattr("ndim").is_err()
    {
        return leaf(&item);
    }
    let mut text = match tamed(py, value.str())? {
        Some(text) => text.to_string_lossy().into_owned(),
        None => crate::number::kind(value),
    };
    if text.len() > TEXT_BYTES_MAX {
        let cut = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
    }
    Ok(AttributeValue::Text(text))
}
