//! What hostile requests of OTLP cost a server: time within bounds, and no memory.

use std::io::Write;

use serde_json::json;

use crate::process::{Server, T0};

const PROTOBUF: &str = "application/x-protobuf";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn bombs_and_claims_cost_no_memory() {
    let server = Server::start(&[]);
    let zeros = vec![0_u8; 80 << 20];
    let zstd = zstd::bulk::compress(&zeros, 1).unwrap();
    // A message that says of itself that it has 4 GiB, and one whose list has a billion elements of none.
    let claim = [&[0x0a][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0; 100]].concat();
    let empties = gzip(&[0x0a, 0].repeat(30 << 20));
    let deep = format!("{}{}", r#"{"resourceSpans":["#.repeat(100_000), "1");
    let peak = server.memory_peak_kib();
    let check = |what: &str, kind: &str, packing: &str, body: &[u8], want: u16| {
        let headers = [("content-type", kind), ("content-encoding", packing)];
        let answer = server.ask("POST", "/v1/traces", &headers, body);
        assert_eq!(answer.status, want, "{what}: {}", String::from_utf8_lossy(&answer.body));
    };
    check("gzip bomb", PROTOBUF, "gzip", &gzip(&zeros), 413);
    check("deflate bomb", PROTOBUF, "deflate", &deflate(&zeros), 413);
    check("zstd bomb", PROTOBUF, "zstd", &zstd, 413);
    check("twenty bombs in one", PROTOBUF, "zstd", &zstd.repeat(20), 413);
    check("bomb as JSON", "application/json", "gzip", &gzip(&zeros), 413);
    check("a claim of 4 GiB", PROTOBUF, "identity", &claim, 400);
    check("JSON without end", "application/json", "identity", deep.as_bytes(), 400);
    let gained = server.memory_peak_kib() - peak;
    assert!(gained < 60 << 10, "memory grew by {gained} KiB");
    // 60 MiB of it, which are there once; nobody is to wait until so many are looked at.
    check("millions of nothing", PROTOBUF, "gzip", &empties, 413);
    let gained = server.memory_peak_kib() - peak;
    assert!(gained < 200 << 10, "memory grew by {gained} KiB");
}

#[test]
fn what_was_acknowledged_over_otlp_is_there_after_a_crash() {
    let mut server = Server::start(&[]);
    for n in 1..=20_u64 {
        let ids = [("service.name", "p"), ("nemo.run.id", "run-a"), ("service.instance.id", "run-a-rank0")];
        let attributes = ids.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
        let record =
            json!({"timeUnixNano": (T0 + n as i64).to_string(), "body": {"stringValue": n.to_string()}});
        let of_resource =
            json!({"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": [record]}]});
        let body = json!({"resourceLogs": [of_resource]}).to_string();
        let answer = server.ask("POST", "/v1/logs", &[("content-type", "application/json")], body.as_bytes());
        assert_eq!((answer.status, answer.json()), (200, json!({})));
        if n % 5 == 0 {
            server.kill();
            server.restart();
        }
    }
    let logs = server.get("/api/tg/v1/logs");
    let bodies: Vec<&str> =
        logs["records"].as_array().unwrap().iter().map(|row| row["body"].as_str().unwrap()).collect();
    let wanted: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    assert_eq!(bodies, wanted);
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 1);
}

#[test]
fn what_senders_say_of_themselves_is_remembered_within_bounds() {
    use wire::otlp::write::{SentMetric, SentPoint, SentValue, metrics};

    let server = Server::start(&[]);
    let send = |number: usize, length: usize| {
        let text = |value: String| model::AttributeValue::Text(value);
        let resource = [
            ("service.name".to_owned(), text("p".to_owned())),
            ("nemo.run.id".to_owned(), text("r".to_owned())),
            ("service.instance.id".to_owned(), text("r-rank0".to_owned())),
            ("long".to_owned(), text("x".repeat(length))),
            ("number".to_owned(), text(number.to_string())),
        ];
        let point = SentPoint {
            attributes: &[],
            start_ns: 0,
            time_ns: T0 + number as i64,
            value: SentValue::Gauge(1.0),
            exemplars: &[],
        };
        let metric = SentMetric { scope: "", name: "m", unit: "", description: "", points: vec![point] };
        let body = metrics(&resource, &[metric]);
        let answer = server.ask("POST", "/v1/metrics", &[("content-type", PROTOBUF)], &body);
        assert_eq!((answer.status, answer.body.len()), (200, 0));
    };
    send(0, 4 << 20);
    let peak = server.memory_peak_kib();
    (1..80).for_each(|number| send(number, 4 << 20));
    let gained = server.memory_peak_kib() - peak;
    assert!(gained < 200 << 10, "320 MiB of resources grew memory by {gained} KiB");
    // One that is too long to be remembered is taken all the same.
    (80..84).for_each(|number| send(number, 40 << 20));
}
