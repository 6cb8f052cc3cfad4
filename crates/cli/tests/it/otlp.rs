//! Data points over OTLP to a real process: amounts count once while it is killed again and again, and what
//! it hands on to a far storage is whole.

use std::io::Write;
use std::net::TcpStream;

use model::AttributeValue;
use proptest::prelude::*;
use serde_json::json;
use wire::otlp::write::{SentMetric, SentPoint, SentValue, metrics};

use crate::far_cluster::{ANY_TIME, Cluster, drained};
use crate::process::{Server, T0};
use crate::prometheus::escape;

const SECOND: i64 = 1_000_000_000;
const PROTOBUF: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];
const BOUNDS: [f64; 3] = [100.0, 200.0, 400.0];

/// What one export adds: to a counter, and to the buckets of a histogram.
#[derive(Debug, Clone, Copy)]
struct Added {
    start: i64,
    length: i64,
    amount: u32,
    counts: [u64; 4],
    /// Whether the server is killed while it is sent.
    kills: bool,
    /// How often it is sent again.
    again: u8,
}

impl Added {
    fn request(&self) -> Vec<u8> {
        let start_ns = T0 + self.start * SECOND;
        let value = f64::from(self.amount);
        let sum = SentValue::Sum { value, is_int: true, is_monotonic: true, is_delta: true };
        let times = SentValue::Histogram {
            sum: 1.5 * value,
            range: None,
            bounds: &BOUNDS,
            counts: &self.counts,
            is_delta: true,
        };
        let metric = |name, value| SentMetric {
            scope: "test",
            name,
            unit: "",
            description: "",
            points: vec![SentPoint {
                attributes: &[],
                start_ns,
                time_ns: start_ns + self.length * SECOND,
                value,
                exemplars: &[],
            }],
        };
        let resource =
            [("service.name", "trainer"), ("service.instance.id", "r-rank0"), ("nemo.run.id", "r")];
        let resource = resource.map(|(key, value)| (key.to_owned(), AttributeValue::Text(value.to_owned())));
        metrics(&resource, &[metric("steps", sum), metric("step.time", times)])
    }
}

/// Sends a body and does not wait for the answer.
fn send_unheard(server: &Server, body: &[u8]) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
}

/// Increase of a series over all of its samples, without extrapolation, and its resets.
fn increase(server: &Server, selector: &str) -> (f64, usize) {
    let path =
        format!("/api/v1/query?query={}&time={}", escape(&format!("{selector}[2d]")), T0 / SECOND + 86_400);
    let answer = server.get(&path);
    let values =
        answer["data"]["result"][0]["values"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    let values: Vec<f64> = values.iter().map(|pair| pair[1].as_str().unwrap().parse().unwrap()).collect();
    let (mut sum, mut resets) = (0.0, 0);
    for pair in values.windows(2) {
        sum += if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] };
        resets += usize::from(pair[1] < pair[0]);
    }
    (sum, resets)
}

fn added() -> impl Strategy<Value = Added> {
    let counts = prop::array::uniform4(0_u64..5);
    (0_i64..40, 1_i64..20, 0_u32..50, counts, any::<bool>(), 0_u8..3).prop_map(
        |(start, length, amount, counts, kills, again)| Added { start, length, amount, counts, kills, again },
    )
}

#[test]
fn points_of_otlp_reach_a_far_storage_apart_and_are_found_there_by_any_spelling() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let point = |start_ns: i64, time_ns: i64, value: SentValue<'static>| SentPoint {
        attributes: &[],
        start_ns,
        time_ns,
        value,
        exemplars: &[],
    };
    let metric = |name, points| SentMetric { scope: "test", name, unit: "", description: "", points };
    let losses = (0..3).map(|n| point(0, T0 + n, SentValue::Gauge(n as f64))).collect();
    let skips = SentValue::Sum { value: 2.0, is_int: true, is_monotonic: true, is_delta: false };
    let body = [
        metric("megatron.training.loss", losses),
        metric("megatron.training.skipped_iters", vec![point(T0 - 10, T0, skips)]),
    ];
    let resource = [("service.name", "trainer"), ("service.instance.id", "r-rank0"), ("nemo.run.id", "r")];
    let resource = resource.map(|(key, value)| (key.to_owned(), AttributeValue::Text(value.to_owned())));
    let answer = server.ask("POST", "/v1/metrics", &PROTOBUF, &metrics(&resource, &body));
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    drained(&server);
    let asked = |query: &str| {
        let path = format!("/api/v1/query?query={}&time={}", escape(query), T0 / SECOND + 10);
        let rows = server.get(&path)["data"]["result"].clone();
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{query}: {rows}");
        (rows[0]["metric"]["__name__"].clone(), rows[0]["value"][1].clone())
    };
    assert_eq!(asked("count_over_time({\"megatron.training.loss\"}[1m])").1, "3");
    assert_eq!(asked("megatron_training_loss{nemo_run_id=\"r\"}").1, "2");
    let skipped = (json!("megatron_training_skipped_iters_total"), json!("2"));
    for spelling in ["megatron_training_skipped_iters", "{\"megatron.training.skipped_iters\"}"] {
        assert_eq!(asked(spelling), skipped, "{spelling}");
    }
    let samples = asked("count_over_time(megatron_training_skipped_iters_total[1m])").1;
    assert_eq!(samples, "2", "the zero where it began, and the value");
}

proptest! {
    // Each case starts a dozen processes.
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Amounts with gaps, overlaps and repetitions, between kills of the server, are their sum.
    #[test]
    fn amounts_count_once_however_often_the_server_is_killed(
        exports in prop::collection::vec(added(), 1..12),
    ) {
        let mut server = Server::start(&[]);
        let (mut amount, mut counts, mut known) = (0.0, [0_u64; 4], Vec::new());
        let mut now = 0;
        for export in exports {
            // Starts move on, now and then by less than the last one's length.
            let export = Added { start: now + export.start, ..export };
            now = export.start;
            let interval = (export.start, export.length);
            if known.contains(&interval) {
                continue;
            }
            known.push(interval);
            if export.kills {
                // Whether it was stored before the end is not known: the client sends it again.
                send_unheard(&server, &export.request());
                server.kill();
                server.restart();
            }
            for _ in 0..=export.again {
                let answer = server.ask("POST", "/v1/metrics", &PROTOBUF, &export.request());
                prop_assert_eq!((answer.status, answer.body.len()), (200, 0));
            }
            amount += f64::from(export.amount);
            for (sum, count) in counts.iter_mut().zip(export.counts) {
                *sum += count;
            }
        }
        server.kill();
        server.restart();
        prop_assert_eq!(increase(&server, "steps_total"), (amount, 0));
        prop_assert_eq!(increase(&server, "step_time_sum"), (1.5 * amount, 0));
        let mut below = 0.0;
        for (le, count) in ["100", "200", "400", "+Inf"].into_iter().zip(counts) {
            below += count as f64;
            prop_assert_eq!(increase(&server, &format!("step_time_bucket{{le=\"{le}\"}}")), (below, 0), "{}", le);
        }
    }
}
