//! The machine's own series.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use client::{Config, Run};
use model::{AttributeValue, CaptureState, NodeRole, RunPath};

use crate::peer::Peer;
use crate::support::{close, until};

/// A config that samples the machine for a run of its own: processes of one run share it out.
pub(crate) fn sampling(peer: &Peer, dir: &Path) -> Config {
    let run = dir.file_name().unwrap().to_string_lossy().into_owned();
    Config {
        path: RunPath { project: "system".into(), run, ..RunPath::default() },
        capture_system_metrics: true,
        system_metrics_interval: Duration::ZERO,
        ..peer.config(dir)
    }
}

/// Metric names with their label keys, and the times and steps of their points.
pub(crate) fn system_series(peer: &Peer) -> BTreeMap<String, Vec<model::Sample>> {
    peer.points().into_iter().filter(|(key, _)| key.starts_with("system/")).collect()
}

#[test]
fn first_sample_is_taken_at_once_and_shares_step_and_time() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(sampling(&peer, dir.path())).unwrap();
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
    assert!(matches!(facts["system/arbitration_mode"], AttributeValue::Text(_)));
    assert!(facts.contains_key("system/cgroup/mode"));
}

#[test]
fn second_sample_has_the_rates_and_steps_go_on() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let host = collect::hostname();
    peer.seen().metrics = Some(serde_json::json!({"metrics": [
        {"name": "system_disk_free_bytes", "display": "system/disk/free_bytes", "labels": {"host": host}, "scale": "ML_STEP", "last_step": 100},
    ]}));
    let run = Run::start(sampling(&peer, dir.path())).unwrap();
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
fn forked_child_reports_only_itself() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let parent = Run::start(peer.config(dir.path())).unwrap();
    let child = Run::start(sampling(&peer, dir.path())).unwrap().forget_after_fork();
    child.set_description("used");
    until("a sample of the child", || system_series(&peer).keys().any(|k| k.starts_with("system/self/")));
    assert_eq!(child.capture(), None, "the report of its rank is its parent's");
    close(&child);
    close(&parent);
}

#[test]
fn capture_that_is_off_says_only_that() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    assert_eq!(run.capture().unwrap().state, CaptureState::Off);
    close(&run);
    assert!(system_series(&peer).is_empty());
    assert!(peer.changes().iter().all(|c| c.attributes_if_absent.is_empty()));
    let (key, report) = reports(&peer).pop().unwrap();
    let host = collect::hostname();
    assert_eq!(
        (key, report.state),
        (format!("capture/{host}/pid-{}", std::process::id()), CaptureState::Off)
    );
}

#[test]
fn report_says_what_is_measured_against_what() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(sampling(&peer, dir.path())).unwrap();
    until("a report", || run.capture().is_some());
    let report = run.capture().unwrap();
    close(&run);
    assert_eq!((report.state, report.node), (CaptureState::Sampling, NodeRole::Reports));
    assert_eq!(report.boot_id.len(), 36);
    assert_eq!(report.interval_seconds, 1.0);
    assert!(report.limits.unwrap().memory_ceiling_bytes.is_some_and(|bytes| bytes > 0));
    assert_eq!(reports(&peer).pop().unwrap().1.boot_id, report.boot_id);
}

/// The reports that came, oldest first, with their keys.
pub(crate) fn reports(peer: &Peer) -> Vec<(String, model::CaptureReport)> {
    let attributes = peer.changes().into_iter().flat_map(|change| change.attributes);
    let report = |(key, value): (String, AttributeValue)| match value {
        AttributeValue::Text(text) if key.starts_with(model::CAPTURE_PREFIX) => {
            Some((key, wire::capture::parse(&text).unwrap()))
        }
        _ => None,
    };
    attributes.filter_map(report).collect()
}
