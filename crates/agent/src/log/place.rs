//! Up to where the log has been read, kept over restarts.

use std::{collections::BTreeMap, path::PathBuf};

use collect::kernel_log::Position;
use serde::{Deserialize, Serialize};

/// The file in the state folder.
pub(super) const FILE: &str = "kernel-log.json";

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    /// The boot that was told last.
    pub(super) boot_id: String,
    pub(super) behind: Behind,
    pub(super) known: Known,
}

/// Up to where the inputs have read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Behind {
    /// The last record of `/dev/kmsg`.
    pub(super) record: Option<RecordPlace>,
    /// The files that are being read, the current one last.
    pub(super) files: Vec<FilePlace>,
    /// How many files have been read under the name of the current one.
    pub(super) generation: u64,
    /// The last entry of the journal.
    pub(super) cursor: Option<String>,
}

/// What the log and the driver have told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Known {
    /// Cards by their place: one that fell off the bus is still known by its id.
    pub(super) cards: BTreeMap<String, KnownCard>,
    /// Xids of a card by its place, counted.
    pub(super) xids: BTreeMap<String, BTreeMap<u32, u64>>,
}

/// The last record that was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordPlace {
    boot_id: String,
    sequence: u64,
    monotonic_us: u64,
}

impl RecordPlace {
    pub(super) fn of(position: &Position) -> Self {
        let Position { boot_id, sequence, monotonic_us } = position.clone();
        Self { boot_id, sequence, monotonic_us }
    }

    pub(super) fn position(&self) -> Position {
        let Self { boot_id, sequence, monotonic_us } = self.clone();
        Position { boot_id, sequence, monotonic_us }
    }
}

/// A file, and the start of the first line that was not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilePlace {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) generation: u64,
    pub(super) offset: u64,
    /// What the file starts with: another file under the same number starts otherwise.
    pub(super) head: String,
}

/// A card that was seen at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownCard {
    pub(super) uuid: String,
    pub(super) gpu: Option<u32>,
}
