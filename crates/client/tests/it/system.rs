//! The machine's own series.

use std::collections::{BTreeMap, BTreeSet};

use client::{Config, Launch, Run};
use model::AttributeValue;

use crate::peer::Peer;
use crate::support::{close, until};

/// Metric names with their label keys, and the times and steps of their points.
fn system_series(peer: &Peer) -> BTreeMap<String, Vec<model::Sample>> {
    peer.points().into_iter().filter(|(key, _)| key.starts_with("system/")).collect()
}

#[test]
fn first_sample_is_taken_at_once_and_shares_step_and_time() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(Config { capture_system_metrics: true, ..peer.config(dir.path()) }).unwrap();
    until("a sample", || system_series(&peer).keys().any(|k| k.starts_with("system/self/")));
    close(&run);
    let series = system_series(&peer);
    let host = peer.changes()[0].session.clone().unwrap().1.facts.host;
    let pid = std::process::id();
    for (name, labels) in [
        ("system/memory/used_bytes", format!("host={host}")),
        ("system/memory/utilization", format!("host={host}")),
        ("system/disk/total_bytes", format!("host={host}")),
        ("system/disk/free_bytes", format!("host={host}")),
        ("system/disk/utilization", format!("host={host}")),
        ("system/process/rss_bytes", format!("host={host},pid={pid}")),
    ] {
        assert!(series.contains_key(&format!("{name}{{{labels}}}")), "{name} is not in {series:#?}");
    }
    let rates = |key: &&String| key.contains("cpu/utilization") || key.contains("process/cpu_utilization");
    assert_eq!(series.keys().filter(rates).count(), 0, "a rate needs two readings");
    let ticks: BTreeSet<_> = series.values().flatten().map(|p| (p.step, p.time_ns)).collect();
    assert_eq!(ticks.len(), 1, "{ticks:?}");
    assert_eq!(ticks.first().unwrap().0, Some(0));
    let facts: BTreeMap<_, _> = peer.changes().into_iter().flat_map(|c| c.attributes_if_absent).collect();
    assert!(matches!(facts["system/platform"], AttributeValue::Text(_)));
    assert_eq!(facts["system/arbitration_mode"], AttributeValue::Text("none".into()));
    assert!(facts.contains_key("system/cgroup/mode"));
}

#[test]
fn second_sample_has_the_rates_and_steps_go_on() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let host = collect::hostname();
    peer.seen().metrics = Some(serde_json::json!({"metrics": [
        {"name": "system_disk_free_bytes", "display": "system/disk/free_bytes", "labels": {"host": host}, "scale": "ML_STEP", "last_step": 100},
    ]}));
    let run = Run::start(Config {
        capture_system_metrics: true,
        system_metrics_interval: std::time::Duration::ZERO,
        ..peer.config(dir.path())
    })
    .unwrap();
    let key = format!("system/process/cpu_utilization{{host={host},pid={}}}", std::process::id());
    until("a rate", || system_series(&peer).contains_key(&key));
    close(&run);
    let series = system_series(&peer);
    assert_eq!(series[&key][0].step, Some(102));
    let disk = &series[&format!("system/disk/free_bytes{{host={host}}}")];
    assert_eq!((disk[0].step, disk[1].step), (Some(101), Some(102)));
    assert!(disk[1].time_ns - disk[0].time_ns >= 1_000_000_000, "an interval is a second at least");
}

#[test]
fn other_local_ranks_report_only_themselves() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let launch = Launch { local_rank: Some(2), rank: Some(2), world_size: Some(4), ..Launch::default() };
    let run = Run::start(Config { capture_system_metrics: true, launch, ..peer.config(dir.path()) }).unwrap();
    until("a sample", || system_series(&peer).keys().any(|k| k.starts_with("system/self/")));
    close(&run);
    let own = format!("pid={}}}", std::process::id());
    let series = system_series(&peer);
    assert!(series.keys().all(|key| key.ends_with(&own) && !key.contains("rank")), "{series:#?}");
}

#[test]
fn capture_that_is_off_says_nothing() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    close(&run);
    assert!(system_series(&peer).is_empty());
    assert!(peer.changes().iter().all(|c| c.attributes_if_absent.is_empty()));
}
