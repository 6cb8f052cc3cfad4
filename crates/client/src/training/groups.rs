//! Groups of spans: those of the trainer's and those that a program adds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock};

use semconv::spans::{GROUPS, PRESETS};

use crate::shared::lock;

/// Why a group can't be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// There is one of that name.
    #[error("the span group {0:?} is there already: choose another name, or allow overriding")]
    Exists(String),
    /// A preset or a blank.
    #[error("{0:?} can't be the name of a span group: presets are {presets}", presets = PRESETS.join(", "))]
    Name(String),
    /// A preset that is not there.
    #[error("there is no preset {0:?} of span groups: presets are {presets}", presets = PRESETS.join(", "))]
    Preset(String),
    /// One of the trainer's own.
    #[error("the span group {0:?} is built in and can't be changed")]
    BuiltIn(String),
}

/// Presets by group of the program's own.
fn own() -> &'static Mutex<BTreeMap<String, BTreeSet<String>>> {
    static OWN: OnceLock<Mutex<BTreeMap<String, BTreeSet<String>>>> = OnceLock::new();
    OWN.get_or_init(Mutex::default)
}

/// Adds a group to those that switches can name, in the presets given; `all` and `profiling` have it
/// anyhow. It counts from the next set-up on.
pub fn register_group(name: &str, presets: &[&str], allow_override: bool) -> Result<(), GroupError> {
    let name = name.trim().to_ascii_lowercase();
    if name.is_empty() || name.contains(',') || PRESETS.contains(&name.as_str()) {
        return Err(GroupError::Name(name));
    }
    if GROUPS.iter().any(|group| group.name == name) {
        return Err(GroupError::BuiltIn(name));
    }
    if let Some(unknown) = presets.iter().find(|preset| !PRESETS.contains(preset)) {
        return Err(GroupError::Preset((*unknown).to_owned()));
    }
    let mut own = lock(own());
    if own.contains_key(&name) && !allow_override {
        return Err(GroupError::Exists(name));
    }
    own.insert(name, presets.iter().map(|preset| (*preset).to_owned()).collect());
    Ok(())
}

/// Takes a group of the program's own out again; whether it was there.
pub fn unregister_group(name: &str) -> Result<bool, GroupError> {
    if GROUPS.iter().any(|group| group.name == name) {
        return Err(GroupError::BuiltIn(name.to_owned()));
    }
    Ok(lock(own()).remove(name).is_some())
}

/// Every group that a switch can name, sorted.
pub fn known_groups() -> Vec<String> {
    let mut names: Vec<String> = GROUPS.iter().map(|group| group.name.to_owned()).collect();
    names.extend(lock(own()).keys().cloned());
    names.sort_unstable();
    names
}

/// Whether there is a group of that name.
pub fn is_known_group(name: &str) -> bool {
    GROUPS.iter().any(|group| group.name == name) || lock(own()).contains_key(name)
}

/// The groups that the text of a switch names, sorted, and what in it is neither group nor preset.
pub(crate) fn resolve(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut wanted, mut unknown) = (BTreeSet::new(), Vec::new());
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        if PRESETS.contains(&word.as_str()) {
            wanted.extend(preset(&word));
        } else if is_known_group(&word) {
            wanted.insert(word);
        } else if !word.is_empty() {
            unknown.push(word);
        }
    }
    (wanted.into_iter().collect(), unknown)
}

/// The groups of a preset.
fn preset(name: &str) -> Vec<String> {
    let is_all = matches!(name, "all" | "profiling");
    let built_in = GROUPS.iter().filter(|group| {
        is_all || (name == "default" && group.in_default) || (name == "per_step" && group.in_per_step)
    });
    let mut groups: Vec<String> = built_in.map(|group| group.name.to_owned()).collect();
    let own = lock(own());
    groups.extend(own.iter().filter(|(_, of)| is_all || of.contains(name)).map(|(name, _)| name.clone()));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_names_add_up_in_any_case() {
        let (groups, unknown) = resolve(" Default, STEP ,, nope");
        assert_eq!(groups, ["checkpoint", "evaluate", "first_iteration", "inference", "job", "step"]);
        assert_eq!(unknown, ["nope"]);
        assert_eq!(resolve("").0, Vec::<String>::new());
        assert!(GROUPS.iter().all(|group| resolve("all").0.contains(&group.name.to_owned())));
    }

    #[test]
    fn own_groups_join_presets_and_built_in_ones_stay() {
        register_group("groups_test_own", &["per_step"], false).unwrap();
        assert!(resolve("per_step").0.contains(&"groups_test_own".to_owned()));
        assert!(resolve("profiling").0.contains(&"groups_test_own".to_owned()));
        assert!(!resolve("default").0.contains(&"groups_test_own".to_owned()));
        let again = |allow| register_group("groups_test_own", &[], allow);
        assert!(matches!(again(false), Err(GroupError::Exists(_))) && again(true).is_ok());
        assert!(matches!(register_group("job", &[], true), Err(GroupError::BuiltIn(_))));
        assert!(matches!(register_group("all", &[], true), Err(GroupError::Name(_))));
        assert!(matches!(register_group("x", &["most"], true), Err(GroupError::Preset(_))));
        assert!(matches!(unregister_group("job"), Err(GroupError::BuiltIn(_))));
        assert_eq!(unregister_group("groups_test_own"), Ok(true));
        assert_eq!(unregister_group("groups_test_own"), Ok(false));
    }
}
