//! The series of a run, by number.

use std::collections::HashMap;

use model::{DEFAULT_SCALE, LABELS_PER_SERIES_MAX};

/// A series of one run in one process; cheap to copy. Another run, or the same one behind a fork,
/// does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeriesHandle {
    pub(crate) index: u32,
    pub(crate) run: u32,
}

/// Most series that one process makes of one run; points of any further one are counted as dropped.
pub(crate) const SERIES_MAX: u32 = 200_000;
/// Index of a series that is one too many.
pub(crate) const ONE_TOO_MANY: u32 = u32::MAX;
/// Index of a series with more labels than [`LABELS_PER_SERIES_MAX`].
pub(crate) const TOO_MANY_LABELS: u32 = u32::MAX - 1;

/// What a series is called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) name: String,
    /// Sorted by key, each once, none empty.
    pub(crate) labels: Vec<(String, String)>,
    /// Empty for the default.
    pub(crate) scale: String,
}

impl Meta {
    pub(crate) fn new(name: &str, labels: &[(&str, &str)], scale: &str) -> Self {
        let mut kept: Vec<(String, String)> = Vec::with_capacity(labels.len() + 1);
        for (key, value) in labels {
            kept.retain(|(k, _)| k != key);
            if !value.is_empty() {
                kept.push(((*key).to_owned(), (*value).to_owned()));
            }
        }
        kept.sort_unstable();
        let scale = if scale == DEFAULT_SCALE { "" } else { scale };
        Self { name: name.to_owned(), labels: kept, scale: scale.to_owned() }
    }

    /// One text for each different series.
    pub(crate) fn key(&self) -> String {
        let mut key = format!("{}\0{}", self.name, self.scale);
        for (label, value) in &self.labels {
            key.push('\0');
            key.push_str(label);
            key.push('\0');
            key.push_str(value);
        }
        key
    }

    /// About how many bytes it takes in a request, its points left out.
    pub(crate) fn plain_bytes(&self) -> usize {
        40 + self.name.len()
            + self.scale.len()
            + self.labels.iter().map(|(k, v)| 8 + k.len() + v.len()).sum::<usize>()
    }
}

/// All series so far.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    index: HashMap<String, u32>,
    metas: Vec<Meta>,
}

impl Catalog {
    /// The index of `meta`, and whether it is new.
    pub(crate) fn intern(&mut self, meta: Meta) -> (u32, bool) {
        let key = meta.key();
        if let Some(index) = self.index.get(&key) {
            return (*index, false);
        }
        if meta.labels.len() > LABELS_PER_SERIES_MAX {
            return (TOO_MANY_LABELS, false);
        }
        let index = self.metas.len() as u32;
        if index >= SERIES_MAX {
            return (ONE_TOO_MANY, false);
        }
        self.index.insert(key, index);
        self.metas.push(meta);
        (index, true)
    }

    /// The index of a series that is there.
    pub(crate) fn find(&self, key: &str) -> Option<u32> {
        self.index.get(key).copied()
    }

    /// What series `index` is called.
    pub(crate) fn meta(&self, index: u32) -> Option<&Meta> {
        self.metas.get(index as usize)
    }
}
