//! Python values as attributes of points, spans and records: scalars only.

use model::AttributeValue;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyMapping, PyString};

/// Attributes with their keys.
pub(crate) type Pairs = Vec<(String, AttributeValue)>;

/// A scalar; None for what is not one. Runs no Python code.
pub(crate) fn scalar(value: &Bound<'_, PyAny>) -> Option<AttributeValue> {
    if let Ok(text) = value.cast::<PyString>() {
        return Some(AttributeValue::Text(text.to_string_lossy().into_owned()));
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Some(AttributeValue::Bool(flag.is_true()));
    }
    if let Ok(int) = value.cast::<PyInt>() {
        return int.extract().ok().map(AttributeValue::Int);
    }
    value.cast::<PyFloat>().ok().map(|float| AttributeValue::Float(float.value()))
}

/// The scalars of a mapping whose keys are text; the rest is left out, and all of what is no mapping.
pub(crate) fn of(mapping: Option<&Bound<'_, PyAny>>) -> Pairs {
    let Some(mapping) = mapping else { return Vec::new() };
    if let Ok(dict) = mapping.cast::<PyDict>() {
        return pairs(Some(dict));
    }
    let items = mapping.cast::<PyMapping>().ok().and_then(|mapping| mapping.items().ok());
    pairs(items.and_then(|items| PyDict::from_sequence(items.as_any()).ok()).as_ref())
}

/// The scalars of a dict whose keys are text; the rest is left out.
pub(crate) fn pairs(dict: Option<&Bound<'_, PyDict>>) -> Pairs {
    let Some(dict) = dict else { return Vec::new() };
    let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let key = key.cast::<PyString>().ok()?.to_string_lossy().into_owned();
        Some((key, scalar(&value)?))
    };
    dict.iter().filter_map(pair).collect()
}

/// As the client takes them.
pub(crate) fn borrowed(pairs: &[(String, AttributeValue)]) -> Vec<(&str, AttributeValue)> {
    pairs.iter().map(|(key, value)| (&**key, value.clone())).collect()
}
