//! Which series a call means, found again by the addresses of its name and labels.
//!
//! A training loop passes the same `str` objects each time, so their addresses are the cheapest key.
//! An entry owns a reference to every object of its key: a freed string's address would be reused
//! for another name. Only exact `str`, `int`, `bool` and `None` are keys: they cannot change, and
//! letting go of one runs no Python code.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use client::SeriesHandle;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyMapping, PyString};

use crate::number::{Problem, kind};

/// Entries held at most; a full cache starts anew.
const ENTRIES_MAX: usize = 4096;

/// Labels and scale of a call, shared by all its points.
pub(crate) struct Place<'py> {
    scale: Option<Bound<'py, PyString>>,
    labels: Pairs<'py>,
    evaluation: Option<bool>,
    /// Addresses of all of these; `None` when one of them can't be a key.
    addresses: Option<Vec<usize>>,
}

impl<'py> Place<'py> {
    /// Takes `labels`, `scale` and `evaluation` as the caller gave them.
    pub(crate) fn read(
        labels: Option<&Bound<'py, PyAny>>,
        scale: Option<&Bound<'py, PyAny>>,
        evaluation: Option<&Bound<'py, PyAny>>,
    ) -> Result<Self, Problem> {
        let given = |value: Option<&Bound<'py, PyAny>>| value.filter(|v| !v.is_none()).cloned();
        let scale = match given(scale) {
            None => None,
            Some(scale) => Some(scale.cast_into::<PyString>().map_err(|error| {
                let found = kind(&error.into_inner());
                Problem::refused("scale", format!("found scale {found}, wanted text such as `ML_STEP`"))
            })?),
        };
        let evaluation = match given(evaluation) {
            None => None,
            Some(evaluation) => {
                Some(evaluation.is_truthy().map_err(|e| Problem::raised(evaluation.py(), e, "label_value"))?)
            }
        };
        let labels = given(labels).map_or_else(|| Ok(Vec::new()), |labels| pairs(&labels))?;
        let mut place = Self { scale, labels, evaluation, addresses: None };
        place.addresses = place.key();
        Ok(place)
    }

    fn key(&self) -> Option<Vec<usize>> {
        // One slot more than needed: the name goes in front.
        let mut key = Vec::with_capacity(3 + 2 * self.labels.len());
        key.push(self.scale.as_ref().map_or(0, |scale| scale.as_ptr() as usize));
        key.push(self.evaluation.map_or(0, |evaluation| 1 + usize::from(evaluation)));
        for object in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            if !is_fixed(object) {
                return None;
            }
            key.push(object.as_ptr() as usize);
        }
        (self.scale.as_ref().is_none_or(|scale| is_fixed(scale.as_any()))).then_some(key)
    }

    fn held(&self) -> Box<[Py<PyAny>]> {
        let labels =
            self.labels.iter().flat_map(|(name, value)| [name.clone().unbind(), value.clone().unbind()]);
        labels.chain(self.scale.clone().map(|scale| scale.into_any().unbind())).collect()
    }

    /// Whether the call names nothing but the metric.
    fn is_bare(&self) -> bool {
        self.scale.is_none() && self.labels.is_empty() && self.evaluation.is_none()
    }

    /// Labels as text.
    pub(crate) fn texts(&self) -> Result<Vec<(String, String)>, Problem> {
        let mut texts = Vec::with_capacity(self.labels.len() + 1);
        for (name, value) in &self.labels {
            let Ok(name) = name.cast::<PyString>().map(|name| name.to_string_lossy().into_owned()) else {
                return Err(Problem::refused(
                    "label_key",
                    format!("found label key {}, wanted text", kind(name)),
                ));
            };
            let plain = value.is_instance_of::<PyString>()
                || value.is_instance_of::<PyInt>()
                || value.is_instance_of::<PyFloat>();
            let text = match value.str() {
                Ok(text) if plain => text.to_string_lossy().into_owned(),
                _ => {
                    return Err(Problem::refused(
                        "label_value",
                        format!(
                            "found {} as the value of label `{name}`, wanted text or a number",
                            kind(value)
                        ),
                    ));
                }
            };
            texts.push((name, text));
        }
        if let Some(evaluation) = self.evaluation {
            texts.retain(|(name, _)| name != "evaluation");
            texts.push(("evaluation".to_owned(), evaluation.to_string()));
        }
        Ok(texts)
    }

    /// The scale as text, empty for the default one.
    pub(crate) fn scale(&self) -> String {
        self.scale.as_ref().map_or_else(String::new, |scale| scale.to_string_lossy().into_owned())
    }
}

/// Label keys and values as they came.
type Pairs<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

fn pairs<'py>(labels: &Bound<'py, PyAny>) -> Result<Pairs<'py>, Problem> {
    if let Ok(dict) = labels.cast::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let refuse = || Problem::refused("label_key", format!("found labels {}, wanted a mapping", kind(labels)));
    let mapping = labels.cast::<PyMapping>().map_err(|_other| refuse())?;
    let items = mapping.items().map_err(|error| Problem::raised(labels.py(), error, "label_key"))?;
    items.iter().map(|item| item.extract().map_err(|_other| refuse())).collect()
}

/// Whether an object can neither change nor run code when it goes.
fn is_fixed(object: &Bound<'_, PyAny>) -> bool {
    object.cast_exact::<PyString>().is_ok()
        || object.cast_exact::<PyInt>().is_ok()
        || object.cast_exact::<PyBool>().is_ok()
        || object.is_none()
}

/// Handles by address.
#[derive(Default)]
pub(crate) struct Cache {
    bare: Table<usize>,
    placed: Table<Box<[usize]>>,
}

type Table<K> = HashMap<K, Entry, BuildHasherDefault<AddressHasher>>;

struct Entry {
    handle: SeriesHandle,
    /// Keeps the key's addresses taken.
    _held: (Py<PyAny>, Box<[Py<PyAny>]>),
}

impl Cache {
    /// The handle of a name without labels, by its address.
    #[inline]
    pub(crate) fn bare(&self, name: &Bound<'_, PyString>) -> Option<SeriesHandle> {
        self.bare.get(&(name.as_ptr() as usize)).map(|entry| entry.handle)
    }

    /// The handle of a name at a place.
    pub(crate) fn find(&self, name: &Bound<'_, PyString>, place: &mut Place<'_>) -> Option<SeriesHandle> {
        if place.is_bare() {
            return self.bare(name);
        }
        let addresses = place.addresses.as_mut()?;
        addresses.push(name.as_ptr() as usize);
        let found = self.placed.get(addresses.as_slice()).map(|entry| entry.handle);
        addresses.pop();
        found
    }

    /// Remembers a handle where its key can be one.
    pub(crate) fn keep(&mut self, name: &Bound<'_, PyString>, place: &Place<'_>, handle: SeriesHandle) {
        if !is_fixed(name.as_any()) {
            return;
        }
        let address = name.as_ptr() as usize;
        let name = name.clone().into_any().unbind();
        if place.is_bare() {
            insert(&mut self.bare, address, Entry { handle, _held: (name, Box::default()) });
        } else if let Some(addresses) = &place.addresses {
            let key = addresses.iter().copied().chain([address]).collect();
            insert(&mut self.placed, key, Entry { handle, _held: (name, place.held()) });
        }
    }
}

fn insert<K: std::hash::Hash + Eq>(table: &mut Table<K>, key: K, entry: Entry) {
    if table.len() >= ENTRIES_MAX {
        table.clear();
    }
    table.insert(key, entry);
}

/// Mixes addresses; nobody chooses those, so nothing stronger is needed.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
