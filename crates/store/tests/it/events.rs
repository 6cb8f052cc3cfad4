//! Events: known by host and key, durable with what came along, found newest first.

use std::ops::ControlFlow;

use model::{Event, EventAsk, Severity};
use store::{Batch, EVENT_BYTES_MAX, Options, Store};

use crate::support::*;

fn event(n: i64, host: &str, kind: &str, severity: Severity) -> Event {
    Event {
        time_ns: T0 + n * model::NANOS_PER_SECOND,
        kind: kind.into(),
        severity,
        key: format!("boot/{n}"),
        labels: vec![("host".into(), host.into()), ("uuid".into(), format!("GPU-{n}"))],
        text: format!("line {n}: \"a, b\"\n\u{1f4a5}"),
        body: "{\"xid\":79}".into(),
    }
}

fn of(events: impl IntoIterator<Item = Event>) -> Batch {
    Batch { events: events.into_iter().collect(), ..Batch::default() }
}

fn found(store: &Store, ask: &EventAsk) -> Vec<Event> {
    let mut all = Vec::new();
    let take = &mut |event| {
        all.push(event);
        ControlFlow::Continue(())
    };
    store.events(ask, take).unwrap();
    all
}

fn keys(store: &Store, ask: &EventAsk) -> Vec<String> {
    found(store, ask).into_iter().map(|event| event.key).collect()
}

#[test]
fn an_event_is_there_with_the_points_of_its_batch_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let all: Vec<Event> = (0..3).map(|n| event(n, "a", "xid", Severity::Critical)).collect();
    let mut delivery = sent(batch("a", "loss", line(0, 2)), writer(1), 1);
    delivery.events.clone_from(&all);
    let receipt = store.append(delivery.clone()).unwrap();
    assert_eq!((receipt.stored, receipt.events, receipt.events_known), (2, 3, 0));
    let receipt = store.append(delivery).unwrap();
    assert_eq!((receipt.duplicate, receipt.events, receipt.events_known), (true, 0, 0));
    // Dropped, not closed: what was acknowledged needs no orderly end.
    drop(store);
    let store = open(dir.path());
    let newest_first: Vec<Event> = all.iter().rev().cloned().collect();
    assert_eq!(found(&store, &EventAsk::default()), newest_first);
    assert_eq!(store.status().events, 3);
}

#[test]
fn the_same_host_and_key_arrive_once_whatever_else_differs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = event(1, "a", "xid", Severity::Info);
    let again = Event { time_ns: T0 + 99, text: "other".into(), ..first.clone() };
    let elsewhere = event(1, "b", "xid", Severity::Info);
    let receipt = store.append(of([first.clone(), again.clone(), elsewhere.clone()])).unwrap();
    assert_eq!((receipt.events, receipt.events_known), (2, 1));
    drop(store);
    let store = open(dir.path());
    let receipt = store.append(of([again, elsewhere])).unwrap();
    assert_eq!((receipt.events, receipt.events_known), (0, 2));
    let of_a = EventAsk { host: Some("a".into()), ..EventAsk::default() };
    assert_eq!(found(&store, &of_a), [first]);
}

#[test]
fn every_condition_counts_and_a_reader_may_stop() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut of_run = event(4, "b", "run", Severity::Info);
    let run = path("a").id();
    of_run.labels.push(("run_id".into(), run.to_string()));
    let all = [
        event(1, "a", "xid", Severity::Critical),
        event(2, "b", "xid", Severity::Warning),
        event(3, "b", "node", Severity::Info),
        of_run,
    ];
    store.append(of(all)).unwrap();
    let ask = EventAsk::default;
    let at = |n: i64| T0 + n * model::NANOS_PER_SECOND;
    assert_eq!(keys(&store, &EventAsk { time_ns: at(2)..=at(3), ..ask() }), ["boot/3", "boot/2"]);
    assert_eq!(keys(&store, &EventAsk { time_ns: at(2) + 1..=at(3) - 1, ..ask() }), [""; 0]);
    assert_eq!(keys(&store, &EventAsk { kinds: Some(vec!["xid".into()]), ..ask() }), ["boot/2", "boot/1"]);
    assert_eq!(keys(&store, &EventAsk { uuid: Some("GPU-3".into()), ..ask() }), ["boot/3"]);
    assert_eq!(keys(&store, &EventAsk { run: Some(run), ..ask() }), ["boot/4"]);
    let warnings = EventAsk { severity_min: Severity::Warning, host: Some("b".into()), ..ask() };
    assert_eq!(keys(&store, &warnings), ["boot/2"]);
    let mut seen = 0;
    let stop = &mut |_| {
        seen += 1;
        ControlFlow::Break(())
    };
    store.events(&ask(), stop).unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn the_old_go_by_age_and_what_cannot_be_kept_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { event_retention_ns: 100 * model::NANOS_PER_SECOND, ..options() };
    let store = Store::open(dir.path(), options).unwrap();
    let huge = Event { body: "x".repeat(EVENT_BYTES_MAX), ..event(2, "a", "xid", Severity::Info) };
    let never = Event { time_ns: i64::MAX, ..event(3, "a", "xid", Severity::Info) };
    let receipt = store
        .append(of([
            event(1, "a", "xid", Severity::Info),
            huge,
            never,
            event(50, "a", "xid", Severity::Info),
        ]))
        .unwrap();
    assert_eq!(receipt.events, 2);
    let refused: Vec<_> = receipt.refused.iter().map(|(reason, count, _)| (*reason, *count)).collect();
    assert_eq!(refused, [("event_size", 1), ("event_time", 1)]);
    store.maintain(T0 + 110 * model::NANOS_PER_SECOND).unwrap();
    assert_eq!(keys(&store, &EventAsk::default()), ["boot/50"]);
    drop(store);
    assert_eq!(keys(&open(dir.path()), &EventAsk::default()), ["boot/50"]);
}

#[test]
fn a_backup_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("data"));
    store.append(of([event(1, "a", "xid", Severity::Info)])).unwrap();
    store.backup(&dir.path().join("copy")).unwrap();
    store.append(of([event(2, "a", "xid", Severity::Info)])).unwrap();
    let copy = open(&dir.path().join("copy"));
    assert_eq!(keys(&copy, &EventAsk::default()), ["boot/1"]);
    assert_eq!(copy.append(of([event(1, "a", "xid", Severity::Info)])).unwrap().events_known, 1);
}

#[test]
fn of_a_damaged_catalogue_the_sound_events_are_carried_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(of((0..400).map(|n| event(n, "a", "xid", Severity::Info)))).unwrap();
    store.close();
    drop(store);
    let file = dir.path().join("catalogue.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(8).position(|w| w == b"line 200").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let store = open(dir.path());
    assert!(!store.status().damage.is_empty());
    let left = keys(&store, &EventAsk::default());
    assert!((300..400).contains(&left.len()), "{} are left", left.len());
    assert!(!left.contains(&"boot/200".to_owned()));
}
