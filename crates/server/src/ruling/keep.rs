//! The state of groups, kept in files of the data directory: durable when a round is over.
//!
//! What is large changes seldom: which alerts there are, how they stand, which series are written. It is
//! written whole when it did. When groups were evaluated changes with every round, and is a small file of
//! its own. A disk that is full changes nothing but that: it is tried again each round.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promql::rules::{GroupState, GroupTimes};
use serde::Serialize;

use super::Ruled;
use super::work::State;
use crate::files;
use crate::metrics::Metrics;

/// Where it is kept, in the data directory.
const STATE_FILE: &str = "rules.json";
/// When groups were evaluated, later than that file says.
const TIMES_FILE: &str = "rules-times.json";

/// By what a group is found again.
pub(super) fn key(ruled: &Ruled) -> String {
    format!("{}\n{}", ruled.file, ruled.group.name)
}

/// Keeps the state up to date on disk.
pub(super) struct Keeper {
    dir: PathBuf,
    /// Whether the large file is out of date.
    is_stale: bool,
    is_failing: bool,
}

impl Keeper {
    /// In a data directory; what lies there is of other groups, perhaps.
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.to_owned(), is_stale: true, is_failing: false }
    }

    /// Takes up what was kept. Series of groups that are no more are to be ended.
    pub(super) fn restore(&self, state: &mut State) {
        let mut kept: BTreeMap<String, GroupState> = self.read(STATE_FILE);
        let times: BTreeMap<String, GroupTimes> = self.read(TIMES_FILE);
        for ruled in &mut state.groups {
            let key = key(ruled);
            let Some(mut kept) = kept.remove(&key) else { continue };
            if let Some(times) = times.get(&key) {
                kept.with_times(times);
            }
            ruled.group.restore(kept);
        }
        state.gone.extend(kept.values().flat_map(GroupState::series));
    }

    fn read<T: Default + serde::de::DeserializeOwned>(&self, name: &str) -> T {
        let path = self.dir.join(name);
        let Ok(text) = std::fs::read(&path) else { return T::default() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the rules' state is damaged: they start anew");
            T::default()
        })
    }

    /// Brings what is on disk up to date.
    pub(super) fn keep(&mut self, groups: &mut [Ruled], metrics: &Metrics) {
        for ruled in &mut *groups {
            self.is_stale |= ruled.group.take_changed();
        }
        let (what, kept) = if self.is_stale {
            ("state", self.write(STATE_FILE, groups.iter().map(|ruled| (key(ruled), ruled.group.state()))))
        } else {
            ("times", self.write(TIMES_FILE, groups.iter().map(|ruled| (key(ruled), ruled.group.times()))))
        };
        self.is_stale &= kept.is_err();
        metrics.rules_kept.add(&[what, if kept.is_ok() { "kept" } else { "failed" }], 1);
        match &kept {
            Err(error) if !self.is_failing => {
                let dir = self.dir.display();
                tracing::error!(%error, %dir, "cannot keep the rules' state: a restart would forget what changes now");
            }
            Ok(()) if self.is_failing => tracing::info!("the rules' state is kept again"),
            _ => (),
        }
        self.is_failing = kept.is_err();
    }

    fn write<T: Serialize>(
        &self,
        name: &str,
        of_groups: impl Iterator<Item = (String, T)>,
    ) -> std::io::Result<()> {
        let all: BTreeMap<String, T> = of_groups.collect();
        files::replace(&self.dir.join(name), &serde_json::to_vec(&all)?)
    }
}
