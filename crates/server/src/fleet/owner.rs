//! Who has a card, read from `tg_gpu_owner_info`.

use model::{Event, Labels, NANOS_PER_SECOND, is_stale_marker};
use semconv::canonical::GPU_OWNER_INFO;
use store::{MatchOp, Matcher, Store};

use crate::app::Shared;

/// How old the last word about an owner may be, nanoseconds.
pub(super) const OWNED_NS: i64 = 300 * NANOS_PER_SECOND;
/// Kinds of events that are about a card and whoever has it.
const OF_CARDS: [&str; 7] = ["xid", "sxid", "gpu_fault", "ecc", "recovery", "inventory", "owner"];

/// Adds run and job of whoever has the card to events that do not say it.
pub(crate) fn name_owners(shared: &Shared, events: &mut [Event]) {
    let mut known: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for event in events.iter_mut().filter(|event| OF_CARDS.contains(&event.kind.as_str())) {
        if event.label("run_id").is_some() || event.label("source") == Some("userspace") {
            continue;
        }
        let Some(uuid) = event.label("uuid").map(str::to_owned) else { continue };
        let labels = if let Some((_, labels)) = known.iter().find(|(of, _)| *of == uuid) {
            labels.clone()
        } else {
            let host = event.label("host").unwrap_or_default();
            let labels = owner_at(&shared.store, (host, &uuid), event.time_ns);
            known.push((uuid, labels.clone()));
            labels
        };
        let lacks = |name: &str| event.labels.iter().all(|(known, _)| known != name);
        let new: Vec<_> = labels.into_iter().filter(|(name, _)| lacks(name)).collect();
        event.labels.extend(new);
    }
}

/// Run and job of the one that has a card at a time; nothing where several share it or nobody is known.
fn owner_at(store: &Store, (host, uuid): (&str, &str), time_ns: i64) -> Vec<(String, String)> {
    let is = |name, value| Matcher::new(name, MatchOp::Equal, value, |_: &str| true);
    let matchers = [is("__name__", GPU_OWNER_INFO.name), is("host", host), is("uuid", uuid)];
    let mut owners: Vec<std::sync::Arc<Labels>> = Vec::new();
    for found in store.select(&matchers, time_ns.saturating_sub(OWNED_NS), time_ns.saturating_add(OWNED_NS)) {
        if is_there(store, found.id, time_ns) {
            owners.push(found.labels);
        }
    }
    let [owner] = owners.as_slice() else { return Vec::new() };
    if owner.get("shared").is_some() {
        return Vec::new();
    }
    let label = |name: &str| Some((name.to_owned(), owner.get(name)?.to_owned()));
    ["run_id", "job_id"].into_iter().filter_map(label).collect()
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
