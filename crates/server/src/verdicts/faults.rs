//! What happened around a verdict: faults of the hosts of a run, and what its collectives said.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use insight::change;
use insight::hang::{Collective, Fault, HangInput};
use model::{Event, EventAsk, NANOS_PER_SECOND, RunPath};
use semconv::xid::xid;
use serde_json::Value;
use store::Store;

use super::keeper::SOURCE;
use super::row::NearRow;
use crate::clock::to_ms;

/// How near to a verdict's beginning an event has to be, nanoseconds.
pub(super) const NEAR_NS: i64 = 120 * NANOS_PER_SECOND;
/// Most events that are looked at for one verdict, and most that are listed.
const LOOKED_AT_MAX: usize = 5_000;
const NEAR_MAX: usize = 12;
/// Kinds of events that are faults.
const FAULTS: [&str; 6] = ["ecc", "gpu_fault", "inventory", "recovery", "sxid", "xid"];

/// The events of a run and of its hosts in a time, oldest first; verdicts are left out.
pub(super) fn events(
    store: &Store,
    run: &RunPath,
    hosts: &BTreeSet<String>,
    (from_ns, to_ns): (i64, i64),
) -> Vec<Event> {
    let ask = EventAsk { time_ns: from_ns..=to_ns, ..EventAsk::default() };
    let id = run.id().to_string();
    let mut events = Vec::new();
    let mut looked_at = 0;
    let read = store.events(&ask, &mut |event| {
        looked_at += 1;
        let is_of_run = match event.label("run_id").filter(|of| !of.is_empty()) {
            Some(of) => of == id,
            None => {
                event.label("host").is_some_and(|host| hosts.contains(host)) && !is_of_others(&event, run)
            }
        };
        if is_of_run && event.label("source") != Some(SOURCE) {
            events.push(event);
        }
        if looked_at < LOOKED_AT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if let Err(error) = read {
        tracing::warn!(%error, "events around a verdict can't be read");
    }
    events.reverse();
    events
}

/// Whether an event, such as one of an alert, names a project that is not the run's: who sees the run may not know of it.
fn is_of_others(event: &Event, run: &RunPath) -> bool {
    let own = [("organization", &run.organization), ("workspace", &run.workspace), ("project", &run.project)];
    own.iter().any(|(label, name)| event.label(label).is_some_and(|of| of != name.as_str()))
}

/// Those near a time, as a verdict lists them.
pub(super) fn near(events: &[Event], time_ns: i64) -> Vec<NearRow> {
    let told: Vec<change::Event> = events
        .iter()
        .map(|event| change::Event {
            time_ns: event.time_ns,
            kind: event.kind.clone(),
            text: event.text.clone(),
        })
        .collect();
    let row = |event: &change::Event| NearRow {
        time: to_ms(event.time_ns),
        kind: event.kind.clone(),
        text: event.text.chars().take(300).collect(),
    };
    change::around(time_ns, &told).into_iter().take(NEAR_MAX).map(row).collect()
}

fn body(event: &Event) -> Value {
    serde_json::from_str(&event.body).unwrap_or_default()
}

/// The faults among events. Lines that a process wrote into the kernel's log are none.
pub(super) fn faults(events: &[Event]) -> Vec<Fault> {
    let is_fault = |event: &&Event| {
        (FAULTS.contains(&event.kind.as_str()) && event.label("source") != Some("userspace"))
            || body(event).get("what").and_then(Value::as_str) == Some("oom_kill")
    };
    events.iter().filter(is_fault).map(fault).collect()
}

fn fault(event: &Event) -> Fault {
    let body = body(event);
    let code = body.get("xid").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    let (text, action) = match code {
        Some(code) => {
            let known = xid(code);
            (format!("Xid {code}, {}", known.name), known.action.name())
        }
        None => (event.text.chars().take(200).collect(), ""),
    };
    Fault {
        time_ns: event.time_ns,
        host: event.label("host").unwrap_or_default().to_owned(),
        rank: event.label("rank").and_then(|rank| rank.parse().ok()),
        text,
        is_hardware: FAULTS.contains(&event.kind.as_str()),
        action: if action == "none" { String::new() } else { action.to_owned() },
    }
}

/// Adds what NCCL's watchdog and the flight recorder told of the ranks' collectives.
pub(super) fn add_collectives(events: &[Event], ranks: &mut [HangInput]) {
    for event in events.iter().filter(|event| {
        event.kind == "run" && matches!(event.label("source"), Some("nccl" | "flight_recorder"))
    }) {
        let body = body(event);
        let rank: Option<u32> = event.label("rank").and_then(|rank| rank.parse().ok());
        let Some(of) = rank.and_then(|rank| ranks.iter_mut().find(|of| of.rank == rank)) else { continue };
        let Some(seq) = body.get("seq").and_then(Value::as_i64) else { continue };
        let text = |name: &str| match body.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let group = text("group");
        // What is told of is the first operation that does not end: those before it have.
        let before = seq.saturating_sub(1);
        let place = of.collectives.iter().position(|known| known.group == group).unwrap_or_else(|| {
            of.collectives.push(Collective { group, completed: before, ..Collective::default() });
            of.collectives.len() - 1
        });
        let collective = &mut of.collectives[place];
        if seq < collective.entered {
            continue;
        }
        collective.entered = seq;
        collective.completed =
            if text("state") == "completed" { seq } else { collective.completed.min(before) };
        (collective.op, collective.sizes) = (text("op"), text("sizes"));
    }
}

#[cfg(test)]
mod tests {
    use model::Severity;
    use store::{Batch, Options};

    use super::*;

    #[test]
    fn what_befell_others_is_not_told_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options { reserve_bytes: 0, ..Options::default() }).unwrap();
        let path =
            RunPath { organization: "a".into(), project: "p".into(), run: "r".into(), ..RunPath::default() };
        let id = path.id().to_string();
        let event = |key: &str, labels: &[(&str, &str)]| Event {
            time_ns: 5,
            kind: "alert".into(),
            severity: Severity::Info,
            key: key.into(),
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            text: key.into(),
            body: String::new(),
        };
        let events = vec![
            event("its own", &[("run_id", &id), ("host", "elsewhere")]),
            event("of its host", &[("host", "h"), ("run_id", "")]),
            event("of its host and project", &[("host", "h"), ("organization", "a"), ("project", "p")]),
            event(
                "of another project on its host",
                &[("host", "h"), ("organization", "a"), ("project", "q")],
            ),
            event("of a model of others", &[("model", "secret"), ("project", "q")]),
            event("of nobody", &[]),
            event("of another run on its host", &[("run_id", "0123456789abcdef"), ("host", "h")]),
            event("a verdict", &[("run_id", &id), ("source", SOURCE)]),
        ];
        store.append(Batch { events, ..Batch::default() }).unwrap();
        let found = super::events(&store, &path, &BTreeSet::from(["h".to_owned()]), (0, 10));
        let mut found: Vec<&str> = found.iter().map(|event| event.key.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, ["its own", "of its host", "of its host and project"]);
    }
}
