//! Log records of OTLP, from the door to the answer.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use serde_json::Value;
use server::config::Given;
use server::{Config, Running};

use crate::metrana::{World, block};
use crate::otlp_peer::{JSON, PROTOBUF, T0_NS, call, counted, gzip, logs, pair, post, resource, send};

const T0_MS: u64 = T0_NS / 1_000_000;

/// A record so many milliseconds after the start.
fn record(ms: u64, severity: i32, body: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: T0_NS + ms * 1_000_000,
        severity_number: severity,
        body: Some(AnyValue { value: Some(any_value::Value::StringValue(body.into())) }),
        ..LogRecord::default()
    }
}

fn post_logs(running: &Running, run: &str, records: Vec<LogRecord>) {
    let body = logs(resource("p", run), records).encode_to_vec();
    let answer = post(running.addr, "/v1/logs", PROTOBUF, &body);
    assert_eq!((answer.status, answer.body.len()), (200, 0), "{answer:?}");
}

/// The answer to a question, and the status.
fn ask(running: &Running, bearer: &str, question: &str) -> (u16, Value) {
    let headers = [("authorization", bearer)];
    let answer = send(running.addr, "GET", &format!("/api/tg/v1/logs?{question}"), &headers, b"");
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn bodies(running: &Running, question: &str) -> Vec<String> {
    let (status, answer) = ask(running, "", question);
    assert_eq!(status, 200, "{question}: {answer}");
    let rows = answer["records"].as_array().unwrap();
    rows.iter().map(|row| row["body"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_was_logged_is_found_by_run_time_rank_severity_and_trace() {
    let world = World::new();
    let running = &world.running;
    let mut traced = record(2, 17, "NCCL timeout");
    traced.trace_id = vec![0xab; 16];
    traced.span_id = vec![0xcd; 8];
    traced.severity_text = "ERROR".into();
    traced.attributes = vec![pair("code.function", "train_step")];
    let mut seen_only = record(3, 9, "observed");
    (seen_only.observed_time_unix_nano, seen_only.time_unix_nano) = (seen_only.time_unix_nano, 0);
    post_logs(running, "run-a", vec![record(1, 5, "debug"), traced, seen_only]);
    post_logs(running, "run-b", vec![record(4, 13, "other run")]);
    assert_eq!(bodies(running, ""), ["debug", "NCCL timeout", "observed", "other run"]);
    let runs = send(running.addr, "GET", "/api/tg/v1/runs", &[], b"");
    let runs: Value = serde_json::from_slice(&runs.body).unwrap();
    let run_a = runs["runs"].as_array().unwrap().iter().find(|run| run["run"] == "run-a").unwrap();
    let id = run_a["run_id"].as_str().unwrap();
    assert_eq!(bodies(running, &format!("run_id={id}")), ["debug", "NCCL timeout", "observed"]);
    assert_eq!(bodies(running, &format!("run_id={id}&severity=warn")), ["NCCL timeout"]);
    assert_eq!(bodies(running, "severity=9"), ["NCCL timeout", "observed", "other run"]);
    assert_eq!(bodies(running, &format!("trace={}", "ab".repeat(16))), ["NCCL timeout"]);
    assert_eq!(bodies(running, "rank=0").len(), 4);
    assert_eq!(bodies(running, "rank=1"), [""; 0]);
    let range = format!("from={}&to={}", T0_MS + 2, T0_MS + 3);
    assert_eq!(bodies(running, &range), ["NCCL timeout", "observed"]);

    let (_, answer) = ask(running, "", &format!("trace={}", "ab".repeat(16)));
    let row = &answer["records"][0];
    let wanted = serde_json::json!({
        "time": T0_MS + 2, "time_ns": (T0_NS + 2_000_000).to_string(), "severity": 17,
        "severity_text": "ERROR", "body": "NCCL timeout", "event": "", "scope": "nemo.lens",
        "run_id": id, "rank": 0, "instance": "run-a-rank0", "host": "", "trace": "ab".repeat(16),
        "span": "cd".repeat(8), "attributes": {"code.function": "train_step"},
    });
    assert_eq!(*row, wanted);
    for wrong in ["limit=0", "limit=10001", "severity=loud", "trace=abc", "rank=x", "cursor=1", "from=x"] {
        assert_eq!(ask(running, "", wrong).0, 400, "{wrong}");
    }
    assert_eq!(ask(running, "", "run_id=0123456789abcdef").0, 404);
}

#[test]
fn pages_hold_everything_once_however_often_it_was_sent() {
    let world = World::new();
    let running = &world.running;
    // Three of each time, so that pages end within one.
    let records: Vec<LogRecord> = (0..60).map(|n| record(n / 3, 9, &format!("line {n}"))).collect();
    post_logs(running, "run-a", records.clone());
    post_logs(running, "run-a", records);
    let wanted: Vec<String> = (0..60).map(|n| format!("line {n}")).collect();
    for limit in [1, 2, 7, 60, 1_000] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..1_000 {
            let (status, answer) = ask(running, "", &format!("limit={limit}&cursor={cursor}"));
            assert_eq!(status, 200, "{answer}");
            let rows = answer["records"].as_array().unwrap();
            assert!(rows.len() <= limit, "{}", rows.len());
            found.extend(rows.iter().map(|row| row["body"].as_str().unwrap().to_owned()));
            match answer["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(found, wanted, "pages of {limit}");
    }
}

#[test]
fn a_record_from_far_ahead_is_refused_alone() {
    let world = World::new();
    let mut ahead = record(0, 9, "from tomorrow");
    ahead.time_unix_nano = u64::MAX / 2;
    let body = logs(resource("p", "run-a"), vec![record(0, 9, "now"), ahead]).encode_to_vec();
    block(async {
        let sent = (&gzip(&body)[..], Some("gzip"));
        let ended = call(world.running.grpc_addr.unwrap(), "logs.v1.LogsService", &[], sent).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        let response = ExportLogsServiceResponse::decode(&*ended.message.unwrap()).unwrap();
        let partial = response.partial_success.unwrap();
        assert_eq!(partial.rejected_log_records, 1, "{}", partial.error_message);
        assert_eq!(counted(&world, "truegauge_ingest_records_total{door=\"otlp_grpc\"}").await, 1);
        let ahead = "truegauge_ingest_rejected_total{door=\"otlp_grpc\",reason=\"time_ahead\"}";
        assert_eq!(counted(&world, ahead).await, 1);
    });
    assert_eq!(bodies(&world.running, ""), ["now"]);
}

/// A server that asks for a token, and keeps texts of the project `chat`.
fn keeping() -> World {
    World::with(|config| {
        let variable = |name: &str| match name {
            "TRUEGAUGE_TOKEN" => Some("admins".to_owned()),
            "TRUEGAUGE_OTLP_KEEP_TEXT" => Some("//chat".to_owned()),
            _ => None,
        };
        let before = config.clone();
        *config = Config::resolve(before, &Given::new(), &variable, None).unwrap();
    })
}

fn send_as(running: &Running, bearer: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let headers = [("content-type", kind), ("authorization", bearer)];
    let answer = send(running.addr, "POST", path, &headers, body);
    assert!(answer.status < 300, "{answer:?}");
    answer.body
}

#[test]
fn texts_of_people_are_kept_where_asked_for_and_shown_to_admins_only() {
    let world = keeping();
    let running = &world.running;
    let mut chat = record(1, 9, "the prompt of ann@example.org");
    chat.event_name = "gen_ai.user.message".into();
    chat.attributes = vec![pair("gen_ai.prompt", "what is it?"), pair("gen_ai.request.model", "m")];
    for project in ["chat", "other"] {
        let body = logs(resource(project, "run-a"), vec![chat.clone()]).encode_to_vec();
        send_as(running, "Bearer admins", "/v1/logs", PROTOBUF, &body);
    }
    let (_, all) = ask(running, "Bearer admins", "");
    let [kept, dropped] = &all["records"].as_array().unwrap()[..] else { panic!("{all}") };
    let (kept, dropped) = if kept["body"] == "" { (dropped, kept) } else { (kept, dropped) };
    assert_eq!(kept["body"], "the prompt of [address]");
    assert_eq!(kept["attributes"]["gen_ai.prompt"], "what is it?");
    assert_eq!(dropped["body"], "");
    assert_eq!(dropped["attributes"], serde_json::json!({"gen_ai.request.model": "m"}));
    let ask_token = serde_json::json!({"name": "reads", "scopes": ["read"]}).to_string();
    let made = send_as(running, "Bearer admins", "/api/tg/v1/tokens", JSON, ask_token.as_bytes());
    let made: Value = serde_json::from_slice(&made).unwrap();
    let (_, seen) = ask(running, &format!("Bearer {}", made["token"].as_str().unwrap()), "");
    assert_eq!(seen["texts_hidden"], true, "{seen}");
    for row in seen["records"].as_array().unwrap() {
        assert_eq!(row["body"], "", "{row}");
        assert_eq!(row["attributes"], serde_json::json!({"gen_ai.request.model": "m"}));
    }
}

#[test]
fn who_is_confined_to_a_project_sees_its_lines_only() {
    let world = keeping();
    let running = &world.running;
    for project in ["one", "two"] {
        let body = logs(resource(project, "run"), vec![record(1, 9, project)]).encode_to_vec();
        send_as(running, "Bearer admins", "/v1/logs", PROTOBUF, &body);
    }
    let ask_token = serde_json::json!({"name": "one", "scopes": ["read"], "project": "one"}).to_string();
    let made = send_as(running, "Bearer admins", "/api/tg/v1/tokens", JSON, ask_token.as_bytes());
    let made: Value = serde_json::from_slice(&made).unwrap();
    let (_, seen) = ask(running, &format!("Bearer {}", made["token"].as_str().unwrap()), "");
    let rows: Vec<&str> =
        seen["records"].as_array().unwrap().iter().map(|row| row["body"].as_str().unwrap()).collect();
    assert_eq!(rows, ["one"], "{seen}");
}
