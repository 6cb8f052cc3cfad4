//! What the timeline of a run costs: sends the spans of many ranks to a server in this process and asks
//! for them.
//!
//! `cargo run --release -p server --example timeline_cost [ranks] [iterations] [spans-of-the-last]`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails has nothing to tell")]

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use server::{Config, Running};

const S: u64 = 1_000_000_000;
/// Time of an iteration.
const ITERATION: u64 = 4 * S;

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn span(rank: u64, name: &str, (id, parent): (u64, u64), (from, to): (u64, u64)) -> Span {
    Span {
        trace_id: [rank.to_be_bytes(), 7_u64.to_be_bytes()].concat(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() },
        name: name.into(),
        kind: 1,
        start_time_unix_nano: from,
        end_time_unix_nano: to,
        ..Span::default()
    }
}

/// The spans of an iteration that begins at a time, with `more` microbatches.
fn iteration(rank: u64, (number, at): (u64, u64), more: u64) -> Vec<Span> {
    let id = number * 10_000 + 1;
    let part = |tenths: u64| at + tenths * S / 10;
    let mut whole = span(rank, "megatron.train.iteration", (id, 0), (at, at + ITERATION));
    whole.attributes.push(pair("megatron.iteration", Value::IntValue(number as i64)));
    let mut spans = vec![
        whole,
        span(rank, "megatron.train.iteration.forward_backward", (id + 1, id), (part(2), part(25))),
        span(rank, "megatron.grad_sync.finish", (id + 2, id), (part(25), part(30))),
        span(rank, "megatron.train.iteration.optimizer", (id + 3, id), (part(30), part(35))),
    ];
    spans.extend((0..more).map(|n| {
        let from = part(2) + n * 1_000_000;
        span(rank, "megatron.microbatch.forward", (id + 10 + n, id + 1), (from, from + 900_000))
    }));
    spans
}

fn send(running: &Running, rank: u64, spans: Vec<Span>) {
    let attributes = vec![
        pair("service.name", Value::StringValue("megatron-lm".into())),
        pair("nemo.run.id", Value::StringValue("r1".into())),
        pair("service.instance.id", Value::StringValue(format!("r1-rank{rank}"))),
        pair("host.name", Value::StringValue(format!("host-{}", rank / 8))),
        pair("dl.rank", Value::IntValue(rank as i64)),
        pair("process.pid", Value::IntValue(1_000 + rank as i64)),
    ];
    let scope = Some(InstrumentationScope { name: "nemo.lens".into(), ..InstrumentationScope::default() });
    let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let answer = ureq::post(&format!("{}/v1/traces", running.url))
        .header("content-type", "application/x-protobuf")
        .send(&body[..])
        .unwrap();
    assert_eq!(answer.status(), 200);
}

/// Asks three times; the length of the answer and the least time.
fn ask(running: &Running, path: &str) -> (usize, Duration) {
    let url = format!("{}/api/tg/v1/{path}", running.url);
    let once = || {
        let started = Instant::now();
        let mut answer = ureq::get(&url).header("accept-encoding", "identity").call().unwrap();
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        (text.len(), started.elapsed())
    };
    (0..3).map(|_| once()).min_by_key(|(_, took)| *took).unwrap()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (ranks, iterations, last) = (number(0, 64), number(1, 5_000), number(2, 100_000));
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        data_dir: folder.path().join("data"),
        spool_dir: folder.path().join("spool"),
        listen: ([127, 0, 0, 1], 0).into(),
        otlp_grpc_listen: ([127, 0, 0, 1], 0).into(),
        otlp_http_listen: ([127, 0, 0, 1], 0).into(),
        own_metrics: false,
        starter_rules: false,
        ..Config::default()
    };
    let running = server::start(config).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let t0 = now - iterations * ITERATION;
    let started = Instant::now();
    let mut sent = 0;
    for from in (0..iterations).step_by(100) {
        for rank in 0..ranks {
            let more = |n| if n + 1 == iterations { (last / ranks).saturating_sub(4) } else { 0 };
            let spans: Vec<Span> = (from..(from + 100).min(iterations))
                .flat_map(|n| iteration(rank, (n, t0 + n * ITERATION), more(n)))
                .collect();
            sent += spans.len();
            send(&running, rank, spans);
        }
    }
    println!("sent {sent} spans in {:.1} s, in one connection each", started.elapsed().as_secs_f64());
    let mut runs = ureq::get(&format!("{}/api/tg/v1/runs", running.url)).call().unwrap();
    let runs = runs.body_mut().read_to_string().unwrap();
    let id = runs.split("\"run_id\":\"").nth(1).unwrap()[..16].to_owned();
    for query in [
        format!("part=spans&step={}", iterations - 1),
        format!("part=spans&step={}", iterations / 2),
        "part=breakdown".to_owned(),
        "part=breakdown&rank=3".to_owned(),
        format!("part=breakdown&from={}&to={}", iterations / 2, iterations / 2 + 50),
        format!(
            "part=span&instance=r1-rank3&trace={:016x}{:016x}&id={:016x}",
            3,
            7,
            (iterations / 2) * 10_000 + 2
        ),
    ] {
        let (bytes, took) = ask(&running, &format!("runs/{id}/timeline?{query}"));
        println!("{:>8.1} ms {bytes:>9} bytes  {query}", took.as_secs_f64() * 1e3);
    }
    let (bytes, took) = ask(&running, &format!("runs/{id}/training"));
    println!("{:>8.1} ms {bytes:>9} bytes  training", took.as_secs_f64() * 1e3);
}
