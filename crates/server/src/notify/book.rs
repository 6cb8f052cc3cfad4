//! What is kept about telling: silences and the log of deliveries. It outlives a reload.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use store::Store;

use super::log::{Delivery, Log};
use super::silences::Silences;

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    /// Which alerts nobody is told of.
    pub(crate) silences: Silences,
    /// Whom what was told.
    pub(crate) deliveries: Log,
    changed: AtomicBool,
}

impl Book {
    /// The one that is kept in the store and its directory.
    pub(crate) fn open(data_dir: &Path, store: &Store) -> Self {
        Self {
            silences: Silences::open(store),
            deliveries: Log::open(data_dir),
            changed: AtomicBool::new(false),
        }
    }

    pub(super) fn log(&self, row: Delivery, alerts: impl IntoIterator<Item = u64>) {
        self.deliveries.take(row, alerts);
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether something was logged since this was asked last.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}
