//! Who has a card, read from `tg_gpu_owner_info`.

use std::collections::HashMap;

use model::{Event, Labels, NANOS_PER_SECOND, is_stale_marker};
use semconv::canonical::GPU_OWNER_INFO;
use store::{MatchOp, Matcher, Store};

use crate::app::Shared;

/// How old the last word about an owner may be, nanoseconds.
pub(super) const OWNED_NS: i64 = 300 * NANOS_PER_SECOND;
/// How soon the first word about the owner of a card comes after it has one, nanoseconds: a few looks.
const FIRST_WORD_NS: i64 = 30 * NANOS_PER_SECOND;
/// Kinds of events that are about a card and whoever has it.
const OF_CARDS: [&str; 7] = ["xid", "sxid", "gpu_fault", "ecc", "recovery", "inventory", "owner"];

/// Adds run and job of whoever has the card to events that do not say it.
pub(crate) fn name_owners(shared: &Shared, events: &mut [Event]) {
    let mut known: HashMap<String, Vec<(String, String)>> = HashMap::new();
    for event in events.iter_mut().filter(|event| OF_CARDS.contains(&event.kind.as_str())) {
        if event.label("run_id").is_some() || event.label("source") == Some("userspace") {
            continue;
        }
        let Some(uuid) = event.label("uuid").map(str::to_owned) else { continue };
        let labels = if let Some(labels) = known.get(&uuid) {
            labels.clone()
        } else {
            let host = event.label("host").unwrap_or_default();
            let labels = owner_at(&shared.store, (host, &uuid), event.time_ns);
            known.insert(uuid, labels.clone());
            labels
        };
        let lacks = |name: &str| event.labels.iter().all(|(known, _)| known != name);
        let new: Vec<_> = labels.into_iter().filter(|(name, _)| lacks(name)).collect();
        event.labels.extend(new);
    }
}

/// Run and job of the one that has a card at a time; nothing where several share it or nobody is known.
fn owner_at(store: &Store, card: (&str, &str), time_ns: i64) -> Vec<(String, String)> {
    match owners_at(store, card, time_ns).as_slice() {
        [owner] => names_of(owner),
        _ => Vec::new(),
    }
}

/// Run and job of the one that had a card at a time, where that became known a little later: the owner of then
/// has a run by now, or a process was on the card of which nobody had told yet.
pub(super) fn owner_since(
    store: &Store,
    card: (&str, &str),
    time_ns: i64,
    had_process: bool,
) -> Vec<(String, String)> {
    let then = owners_at(store, card, time_ns);
    let known = match then.as_slice() {
        [] => Vec::new(),
        [owner] if owner.get("shared").is_none() => names_of(owner),
        _ => return Vec::new(),
    };
    if known.iter().any(|(name, _)| name == "run_id") {
        return known;
    }
    let until = time_ns.saturating_add(if then.is_empty() { FIRST_WORD_NS } else { OWNED_NS });
    let is_same = |labels: &Labels| {
        let same = |name: &str| labels.get(name).is_some() && labels.get(name) == then[0].get(name);
        labels.get("shared").is_none()
            && if then.is_empty() { had_process } else { same("job_id") || same("pod") }
    };
    let matchers = matchers(card);
    let later = store.select(&matchers, time_ns, until).into_iter().filter(|found| is_same(&found.labels));
    let mut later: Vec<Vec<(String, String)>> = later
        .filter(|found| has_value_in(store, found.id, (time_ns, until)))
        .map(|found| names_of(&found.labels))
        .filter(|names| !names.is_empty())
        .collect();
    later.sort_by_key(|names| std::cmp::Reverse(names.len()));
    // Two runs after each other: nobody knows which of them it was.
    match later.as_slice() {
        [one] => one.clone(),
        [most, next, ..] if most.len() > next.len() => most.clone(),
        _ => known,
    }
}

fn matchers<'m>((host, uuid): (&'m str, &'m str)) -> [Matcher<'m>; 3] {
    let is = |name, value| Matcher::new(name, MatchOp::Equal, value, |_: &str| true);
    [is("__name__", GPU_OWNER_INFO.name), is("host", host), is("uuid", uuid)]
}

/// The owners of a card at a time.
fn owners_at(store: &Store, card: (&str, &str), time_ns: i64) -> Vec<std::sync::Arc<Labels>> {
    let range = (time_ns.saturating_sub(OWNED_NS), time_ns.saturating_add(OWNED_NS));
    let found = store.select(&matchers(card), range.0, range.1).into_iter();
    found.filter(|found| is_there(store, found.id, time_ns)).map(|found| found.labels).collect()
}

/// The labels that name a sole owner.
fn names_of(owner: &Labels) -> Vec<(String, String)> {
    if owner.get("shared").is_some() {
        return Vec::new();
    }
    let label = |name: &str| Some((name.to_owned(), owner.get(name)?.to_owned()));
    ["run_id", "job_id"].into_iter().filter_map(label).collect()
}

/// Whether a series has a value in a span of time.
fn has_value_in(store: &Store, series: store::SeriesId, (from_ns, to_ns): (i64, i64)) -> bool {
    let mut has_value = false;
    let read = store.scan(series, from_ns, to_ns, &mut |block| {
        let (mut times, mut values) = (Vec::new(), Vec::new());
        if block.columns(&mut times, &mut values).is_ok() {
            has_value |= times
                .iter()
                .zip(&values)
                .any(|(at, value)| (from_ns..=to_ns).contains(at) && !is_stale_marker(*value));
        }
        std::ops::ControlFlow::Continue(())
    });
    read.is_ok() && has_value
}

/// Whether a series has a value at a time: the last one before it is recent and no end.
fn is_there(store: &Store, series: store::SeriesId, time_ns: i64) -> bool {
    let mut last = None;
    let read = store.scan(series, time_ns.saturating_sub(OWNED_NS), time_ns, &mut |block| {
        let (mut times, mut values) = (Vec::new(), Vec::new());
        if block.columns(&mut times, &mut values).is_ok() {
            let at = times.partition_point(|at| *at <= time_ns);
            if at > 0 && times[at - 1] >= time_ns.saturating_sub(OWNED_NS) {
                last = Some(values[at - 1]);
            }
        }
        std::ops::ControlFlow::Continue(())
    });
    read.is_ok() && last.is_some_and(|value| !is_stale_marker(value))
}
