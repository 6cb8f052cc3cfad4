//! A client's attributes as facts, tags and description of a run.

use std::collections::BTreeSet;

use model::{AttributeValue, RunChange, RunRecord, TagChange};
use wire::metrana::{AttributeUpdate, AttributeValue as Sent, EnvAttrUpdates, StringSetDelta, Timestamp};

use crate::clock::rfc3339;

/// Where a client keeps the tags.
const TAGS: &str = "sys/tags";
/// Where it keeps the description.
const DESCRIPTION: &str = "sys/description";
/// In front of the facts of environments.
const ENVIRONMENTS: &str = "env";

/// Adds what `attributes` say to `change`; `run` is what is known.
pub(super) fn apply(change: &mut RunChange, run: Option<&RunRecord>, attributes: Vec<AttributeUpdate>) {
    for AttributeUpdate { path, value } in attributes {
        apply_one(change, run, path, value);
    }
}

/// The same for the facts of environments.
pub(super) fn apply_of_environments(
    change: &mut RunChange,
    run: Option<&RunRecord>,
    updates: Vec<EnvAttrUpdates>,
) {
    for EnvAttrUpdates { environment_id, attributes } in updates {
        for AttributeUpdate { path, value } in attributes {
            apply_one(change, run, format!("{ENVIRONMENTS}/{environment_id}/{path}"), value);
        }
    }
}

fn apply_one(change: &mut RunChange, run: Option<&RunRecord>, path: String, value: Option<Sent>) {
    match (path.as_str(), value) {
        (TAGS, Some(Sent::Set(set))) => {
            change.tags.push(TagChange::Clear);
            change.tags.extend(set.values.into_iter().map(TagChange::Add));
        }
        (TAGS, Some(Sent::SetDelta(StringSetDelta { added, removed }))) => {
            change.tags.extend(added.into_iter().map(TagChange::Add));
            change.tags.extend(removed.into_iter().map(TagChange::Remove));
        }
        (DESCRIPTION, Some(Sent::Text(text))) => change.description = Some(text),
        (_, value) => {
            let before = || known(change, run, &path);
            let value = plain(value, before);
            change.attributes.push((path, value));
        }
    }
}

/// The value of a fact, as it will be when `change` is made.
fn known<'a>(change: &'a RunChange, run: Option<&'a RunRecord>, path: &str) -> Option<&'a AttributeValue> {
    let changed = change.attributes.iter().rev().find(|(key, _)| key == path).map(|(_, value)| value);
    changed.or_else(|| run?.attributes.get(path))
}

fn plain<'a>(value: Option<Sent>, before: impl Fn() -> Option<&'a AttributeValue>) -> AttributeValue {
    match value {
        None => AttributeValue::Null,
        Some(Sent::Bool(value)) => AttributeValue::Bool(value),
        Some(Sent::Text(value)) => AttributeValue::Text(value),
        Some(Sent::Float(value)) => AttributeValue::Float(value),
        Some(Sent::Int(value)) => AttributeValue::Int(value),
        Some(Sent::Time(time)) => AttributeValue::Text(time_text(time)),
        Some(Sent::Set(set)) => set_text(set.values.into_iter().collect()),
        Some(Sent::SetDelta(StringSetDelta { added, removed })) => {
            let mut set: BTreeSet<String> = match before() {
                Some(AttributeValue::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
                _ => BTreeSet::new(),
            };
            set.extend(added);
            set.retain(|text| !removed.contains(text));
            set_text(set)
        }
    }
}

/// A fact is one value, so a set is written as a list in JSON.
fn set_text(set: BTreeSet<String>) -> AttributeValue {
    AttributeValue::Text(serde_json::Value::from_iter(set).to_string())
}

fn time_text(time: Timestamp) -> String {
    rfc3339(time.seconds.saturating_mul(1_000).saturating_add(i64::from(time.nanos) / 1_000_000))
}

#[cfg(test)]
mod tests {
    use model::RunPath;
    use wire::metrana::StringSet;

    use super::*;

    fn update(path: &str, value: Option<Sent>) -> AttributeUpdate {
        AttributeUpdate { path: path.into(), value }
    }

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn every_kind_of_value_is_a_fact() {
        let check = |value: Option<Sent>, want: AttributeValue| {
            let mut change = RunChange::default();
            apply(&mut change, None, vec![update("a/b", value)]);
            assert_eq!(change.attributes, [("a/b".to_owned(), want)]);
        };
        let text = |text: &str| AttributeValue::Text(text.into());
        check(None, AttributeValue::Null);
        check(Some(Sent::Bool(true)), AttributeValue::Bool(true));
        check(Some(Sent::Int(-3)), AttributeValue::Int(-3));
        check(Some(Sent::Float(0.5)), AttributeValue::Float(0.5));
        check(Some(Sent::Text("x".into())), text("x"));
        let time = Timestamp { seconds: 1_700_000_000, nanos: 0 };
        check(Some(Sent::Time(time)), text(&time_text(time)));
        check(Some(Sent::Set(StringSet { values: texts(&["b", "a"]) })), text(r#"["a","b"]"#));
    }

    #[test]
    fn sets_change_by_what_joins_and_leaves() {
        let mut run = RunRecord::new(RunPath::default(), 0);
        run.attributes.insert("seen".into(), AttributeValue::Text(r#"["a","b"]"#.into()));
        let delta = |added: &[&str], removed: &[&str]| {
            Some(Sent::SetDelta(StringSetDelta { added: texts(added), removed: texts(removed) }))
        };
        let mut change = RunChange::default();
        let updates = vec![update("seen", delta(&["c"], &["a"])), update("seen", delta(&["d"], &[]))];
        apply(&mut change, Some(&run), updates);
        let last = change.attributes.last().map(|(_, value)| value.clone());
        assert_eq!(last, Some(AttributeValue::Text(r#"["b","c","d"]"#.into())));
    }

    #[test]
    fn tags_and_description_have_their_own_places() {
        let mut change = RunChange::default();
        let tags = Some(Sent::Set(StringSet { values: texts(&["a"]) }));
        let delta = Some(Sent::SetDelta(StringSetDelta { added: texts(&["b"]), removed: texts(&["a"]) }));
        let updates =
            vec![update(TAGS, tags), update(TAGS, delta), update(DESCRIPTION, Some(Sent::Text("d".into())))];
        apply(&mut change, None, updates);
        assert!(change.attributes.is_empty());
        assert_eq!(change.description.as_deref(), Some("d"));
        let mut run = RunRecord::new(RunPath::default(), 0);
        run.tags.insert("old".into());
        run.apply(&change, 0);
        assert_eq!(run.tags.iter().collect::<Vec<_>>(), ["b"]);
    }
}
