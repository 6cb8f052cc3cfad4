//! Random projects whose marks stand wherever a project can name something.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{AttributeValue, MetricKind, RunPath, Sample};
use serde_json::{Value, json};
use wire::push::{Attribute, Count, Event, Label, Node, PushRequest, Run, Series, Tag};
use wire::remote_write::{Metadata, Point, RequestWriter};

use crate::access_questions::TRACE;
use crate::process::{T0, session};

/// A generator of numbers that look random: the same seed, the same world.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.next(of.len())]
    }
}

/// A project and the text that stands wherever it may name something.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    pub(crate) path: RunPath,
    pub(crate) mark: String,
    pub(crate) runs: usize,
}

impl Project {
    pub(crate) fn run(&self, at: usize) -> RunPath {
        RunPath { run: format!("run {at} {}", self.mark), ..self.path.clone() }
    }

    pub(crate) fn bounds(&self) -> Value {
        json!({
            "organization": self.path.organization,
            "workspace": self.path.workspace,
            "project": self.path.project,
        })
    }
}

/// Names that are like each other, or like a pattern, a quote or an escape.
pub(crate) const NAMES: [(&str, &str, &str); 12] = [
    ("", "", "p"),
    ("", "", "p2"),
    ("acme", "", "p"),
    ("acme", "w", "p"),
    ("acme", "w", "q"),
    ("acm", "e", "p"),
    ("a.*", "", ".*"),
    ("acme|.+", "", "p|.*"),
    ("quo\"te", "", "back\\slash"),
    ("", "acme", "p"),
    ("p", "", "acme"),
    ("} or vector(1) #", "", "\",project=~\".*"),
];

pub(crate) fn world(random: &mut Random) -> Vec<Project> {
    let mut names = NAMES.to_vec();
    let count = 4 + random.next(4);
    (0..count)
        .map(|at| {
            let (organization, workspace, project) = names.swap_remove(random.next(names.len()));
            let path = RunPath {
                organization: organization.into(),
                workspace: workspace.into(),
                project: project.into(),
                run: String::new(),
            };
            let mark = format!("zq{at}{:06x}", random.next(1 << 24));
            Project { path, mark, runs: 1 + random.next(2) }
        })
        .collect()
}

pub(crate) fn samples(random: &mut Random) -> Vec<Sample> {
    let count = 1 + random.next(6);
    (0..count as i64)
        .map(|at| Sample { time_ns: T0 + at * 1_000_000_000, value: random.next(100) as f64, step: Some(at) })
        .collect()
}

/// What a run of a project sends: its mark is in every kind of name that there is.
pub(crate) fn pushed(random: &mut Random, project: &Project, at: usize, writer: u8) -> PushRequest {
    let mark = &project.mark;
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut series = vec![Series::new("loss", &[label("shard", mark)], "", &samples(random))];
    series.push(Series::new(
        &format!("{mark}/loss"),
        &[label(&format!("l_{mark}"), "x")],
        "",
        &samples(random),
    ));
    for shard in 0..random.next(4) {
        let name = *random.pick(&["acc", "train/lr", "gpu.power"]);
        series.push(Series::new(name, &[label("shard", &shard.to_string())], "", &samples(random)));
    }
    let mut opened = session(i64::from(writer), 1);
    opened.host = format!("host-{mark}");
    PushRequest {
        client_id: vec![writer; 16],
        sequence: 1,
        run: Some(Run::from(&project.run(at))),
        session: Some(opened),
        series,
        attributes: vec![
            Attribute::new("config/lr", &AttributeValue::Text(mark.clone()), false),
            Attribute::new(&format!("config/{mark}"), &AttributeValue::Int(1), false),
        ],
        tags: vec![Tag { action: 1, tag: format!("tag-{mark}") }, Tag { action: 1, tag: "common".into() }],
        description: Some(format!("about {mark}")),
        dropped: vec![Count { reason: mark.clone(), count: 3, example: String::new() }],
        ..PushRequest::default()
    }
}

/// What the agent of a node tells of a fault of the card that a run has.
pub(crate) fn faulted(project: &Project, at: usize, writer: u8) -> PushRequest {
    // Events of long ago are not kept; the same moment for every server of this process.
    static NOW_NS: LazyLock<i64> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        (since as i64 - 60) * 1_000_000_000
    });
    let host = format!("node-{}-{at}", project.mark);
    let label = |key: &str, value: &str| Label { key: key.into(), value: value.into() };
    let event = Event {
        time_ns: *NOW_NS,
        kind: "xid".into(),
        severity: "critical".into(),
        key: "boot:1".into(),
        labels: vec![
            label("host", &host),
            label("source", "kernel"),
            label("pci_bus_id", "0000:1b:00.0"),
            label("run_id", &project.run(at).id().to_string()),
        ],
        text: format!("Xid of {}", project.mark),
        body: json!({"xid": 79, "pid": 7, "name": project.mark}).to_string(),
    };
    PushRequest {
        client_id: vec![writer | 0x80; 16],
        sequence: 1,
        node: Some(Node { host, agent_id: vec![writer; 16], interval_ms: 10_000, ..Node::default() }),
        events: vec![event],
        ..PushRequest::default()
    }
}

/// Samples of no run, as Prometheus sends them, with what is said of the metric.
pub(crate) fn written(metric: &str, labels: &[(&str, &str)], help: &str) -> Vec<u8> {
    let mut writer = RequestWriter::new();
    let labels = [&[("__name__", metric)], labels].concat();
    writer.series(labels, &[Point { time_ms: T0 / 1_000_000, value: 7.0 }]);
    writer.metadata(&Metadata { metric, kind: MetricKind::Gauge, help, unit: "" });
    writer.finish().unwrap()
}

/// What a process of a run sends by OTLP: a path and a body each. `mark` stands wherever it may.
pub(crate) fn telemetry(run: &RunPath, mark: &str) -> [(&'static str, Value); 3] {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let resource = json!({"attributes": [
        text("truegauge.run_id", &run.id().to_string()),
        text("service.instance.id", mark),
        text("host.name", &format!("host-{mark}")),
        text("dl.rank", "0"),
        text(&format!("told.{mark}"), mark),
    ]});
    let time = T0.to_string();
    let attributes = json!([text("megatron.iteration", "1"), text("said", mark)]);
    let span = |id: &str, name: &str| {
        json!({
            "traceId": TRACE, "spanId": id, "name": name, "attributes": attributes,
            "startTimeUnixNano": time, "endTimeUnixNano": (T0 + 1_000_000_000).to_string(),
        })
    };
    let spans = json!([span("0000000000000001", "megatron.train.iteration"), span("0000000000000002", mark)]);
    let record = json!({
        "timeUnixNano": time, "severityNumber": 13, "traceId": TRACE, "attributes": attributes,
        "body": {"stringValue": mark},
    });
    let point = json!({"timeUnixNano": time, "asDouble": 1.0, "attributes": [text("shard", mark)]});
    let gauge = |name: &str| json!({"name": name, "gauge": {"dataPoints": [point]}});
    let metrics = json!([gauge("telemetry.loss"), gauge(&format!("telemetry.{mark}"))]);
    [
        ("/v1/traces", json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})),
        (
            "/v1/logs",
            json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}),
        ),
        (
            "/v1/metrics",
            json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}),
        ),
    ]
}
