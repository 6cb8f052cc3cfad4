//! The state of groups, kept in a file of the data directory.

use std::collections::BTreeMap;
use std::path::Path;

use promql::rules::GroupState;

use super::Ruled;
use super::work::State;

/// Where it is kept, in the data directory.
const STATE_FILE: &str = "rules.json";

/// By what a group is found again.
pub(super) fn key(ruled: &Ruled) -> String {
    format!("{}\n{}", ruled.file, ruled.group.name)
}

/// Takes up what was kept. Series of groups that are no more are to be ended.
pub(super) fn restore(data_dir: &Path, state: &mut State) {
    let path = data_dir.join(STATE_FILE);
    let Ok(text) = std::fs::read(&path) else { return };
    match serde_json::from_slice::<BTreeMap<String, GroupState>>(&text) {
        Ok(mut kept) => {
            for ruled in &mut state.groups {
                if let Some(kept) = kept.remove(&key(ruled)) {
                    ruled.group.restore(kept);
                }
            }
            state.gone.extend(kept.values().flat_map(GroupState::series));
        }
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the rules' state is damaged: they start anew");
        }
    }
}

/// Writes the state beside the old one and puts it in its place.
pub(super) fn keep(data_dir: &Path, groups: &[Ruled]) {
    let states: BTreeMap<String, GroupState> =
        groups.iter().map(|ruled| (key(ruled), ruled.group.state())).collect();
    let path = data_dir.join(STATE_FILE);
    let next = path.with_extension("json.next");
    let kept = serde_json::to_vec(&states)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(&next, text))
        .and_then(|()| std::fs::rename(&next, &path));
    if let Err(error) = kept {
        tracing::warn!(%error, path = %path.display(), "cannot keep the rules' state");
    }
}
