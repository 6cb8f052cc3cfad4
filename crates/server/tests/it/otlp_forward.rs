//! Spans that are handed on to another backend, which a test plays.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use server::Config;
use server::config::Given;

use crate::metrana::{World, block, config};
use crate::otlp_peer::{PROTOBUF, counted, pair, post, resource, spans, traces};

/// What a backend was asked.
struct Asked {
    head: String,
    request: ExportTraceServiceRequest,
}

impl Asked {
    fn span_ids(&self) -> Vec<u64> {
        let scopes = self.request.resource_spans.iter().flat_map(|of| &of.scope_spans);
        let spans = scopes.flat_map(|of| &of.spans);
        spans.map(|span| u64::from_be_bytes(span.span_id.clone().try_into().unwrap())).collect()
    }
}

/// Connections that are not answered until they are let go.
type Held = Arc<Mutex<Vec<TcpStream>>>;

/// A backend that answers with these, one after another, and from then on with 200; none is no answer.
fn backend(answers: &'static [Option<&'static str>]) -> (String, Receiver<Asked>) {
    let (url, asked, _) = holding(answers);
    (url, asked)
}

/// The same, with what is not answered.
fn holding(answers: &'static [Option<&'static str>]) -> (String, Receiver<Asked>, Held) {
    let held = Held::default();
    let holds = Arc::clone(&held);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for at in 0.. {
            let Ok((stream, _)) = listener.accept() else { return };
            let answer = answers.get(at).copied().unwrap_or(Some("200 OK"));
            let asked = read_asked(&stream);
            if let Some(answer) = answer {
                let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                (&stream).write_all(answer.as_bytes()).unwrap();
            } else {
                holds.lock().unwrap().push(stream);
            }
            if send.send(asked).is_err() {
                return;
            }
        }
    });
    (url, receive, held)
}

fn read_asked(stream: &TcpStream) -> Asked {
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
    Asked { head, request: ExportTraceServiceRequest::decode(&*plain).unwrap() }
}

fn forwarding(settings: &mut Config, given: &[(&str, &str)]) {
    let variable = |name: &str| {
        let found = given.iter().find(|(key, _)| format!("TRUEGAUGE_{key}") == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let before = settings.clone();
    *settings = Config::resolve(before, &Given::new(), &variable, None).unwrap();
}

fn world(given: &[(&str, &str)]) -> World {
    World::with(|settings| forwarding(settings, given))
}

fn next(asked: &Receiver<Asked>) -> Asked {
    asked.recv_timeout(Duration::from_secs(50)).unwrap()
}

fn post_spans(world: &World, ids: &[u64]) {
    let body = traces(resource("p", "run-a"), spans(ids)).encode_to_vec();
    assert_eq!(post(world.running.addr, "/v1/traces", PROTOBUF, &body).status, 200);
}

/// Waits until so many spans were handed on with this outcome.
async fn outcome(world: &World, outcome: &str, wanted: u64) {
    let series = format!("truegauge_otlp_forward_spans_total{{outcome=\"{outcome}\"}}");
    loop {
        let found = counted(world, &series).await;
        assert!(found <= wanted, "{outcome}: {found}");
        if found == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn what_was_taken_is_handed_on_whole_but_for_texts() {
    let (url, asked) = backend(&[]);
    let headers = ("OTLP_FORWARD_HEADERS", "X-Scope-OrgID: acme");
    let world = world(&[("OTLP_FORWARD_TRACES_URL", &url), headers, ("OTLP_KEEP_TEXT", "//p")]);
    let mut sent = traces(resource("p", "run-a"), spans(&[1, 0, 2]));
    sent.resource_spans[0].scope_spans[0].spans[0].trace_state = "vendor=1".into();
    let mut wanted = sent.clone();
    wanted.resource_spans[0].scope_spans[0].spans.remove(1);
    for span in &mut sent.resource_spans[0].scope_spans[0].spans {
        span.attributes = vec![pair("gen_ai.prompt", "a secret")];
    }
    let answer = post(world.running.addr, "/v1/traces", PROTOBUF, &sent.encode_to_vec());
    assert_eq!(answer.status, 200);
    let asked = next(&asked);
    assert!(asked.head.starts_with("post /v1/traces http/1.1\r\n"), "{}", asked.head);
    for line in ["content-type: application/x-protobuf", "content-encoding: gzip", "x-scope-orgid: acme"] {
        assert!(asked.head.lines().any(|header| header == line), "{line}: {}", asked.head);
    }
    assert_eq!(asked.request, wanted);
    block(async {
        outcome(&world, "sent", 2).await;
        let status = world.get("status").await;
        assert_eq!(status["forward"]["url"], format!("{url}/v1/traces"));
        assert_eq!((&status["forward"]["sent"], &status["forward"]["failed"]), (&2.into(), &().into()));
    });
}

#[test]
fn a_backend_that_is_busy_gets_it_later_and_once() {
    let (url, asked) = backend(&[
        Some("503 Service Unavailable"),
        Some("429 Too Many Requests\r\nretry-after: 0"),
        Some("500 Internal Server Error"),
    ]);
    let world = world(&[("OTLP_FORWARD_TRACES_URL", &url)]);
    post_spans(&world, &[1, 2]);
    for _ in 0..4 {
        assert_eq!(next(&asked).span_ids(), [1, 2]);
    }
    post_spans(&world, &[3]);
    assert_eq!(next(&asked).span_ids(), [3]);
    block(async {
        outcome(&world, "sent", 3).await;
        assert_eq!(world.get("status").await["forward"]["failed"], serde_json::Value::Null);
    });
}

#[test]
fn what_a_backend_will_never_take_is_counted_and_the_next_goes_on() {
    let (url, asked) = backend(&[Some("400 Bad Request")]);
    let world = world(&[("OTLP_FORWARD_TRACES_URL", &url)]);
    post_spans(&world, &[1, 2]);
    assert_eq!(next(&asked).span_ids(), [1, 2]);
    block(outcome(&world, "refused", 2));
    post_spans(&world, &[3]);
    assert_eq!(next(&asked).span_ids(), [3]);
    block(outcome(&world, "sent", 1));
}

#[test]
fn a_backend_that_is_away_costs_its_oldest_spans_and_delays_nobody() {
    // The first request is never answered, so that all others wait.
    let (url, asked, held) = holding(&[None]);
    let bytes = traces(resource("p", "run-a"), spans(&[1])).encode_to_vec().len() + 256;
    let room = (bytes * 3).to_string();
    let given = [("OTLP_FORWARD_TRACES_URL", url.as_str()), ("OTLP_FORWARD_QUEUE_BYTES_MAX", &room)];
    let world = world(&given);
    post_spans(&world, &[1]);
    assert_eq!(next(&asked).span_ids(), [1]);
    for id in 2..=10 {
        post_spans(&world, &[id]);
    }
    block(async {
        outcome(&world, "dropped", 6).await;
        let waiting = world.get("status").await["forward"]["waiting_bytes"].as_u64().unwrap();
        assert!(waiting <= room.parse().unwrap(), "{waiting}");
        let stored = counted(&world, "truegauge_ingest_spans_total{door=\"otlp_http\"}").await;
        assert_eq!(stored, 10, "here all are kept");
    });
    held.lock().unwrap().clear();
    assert_eq!(next(&asked).span_ids(), [1], "the first is tried again");
    assert_eq!(next(&asked).span_ids(), [8, 9, 10], "the newest go together");
}

#[test]
fn a_silent_backend_keeps_no_server_from_stopping_and_starting_again() {
    let (url, asked) = backend(&[None, None]);
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(folder.path());
    forwarding(&mut settings, &[("OTLP_FORWARD_TRACES_URL", &url)]);
    let running = server::start(settings.clone()).unwrap();
    let body = traces(resource("p", "run-a"), spans(&[1])).encode_to_vec();
    assert_eq!(post(running.addr, "/v1/traces", PROTOBUF, &body).status, 200);
    assert_eq!(next(&asked).span_ids(), [1]);
    running.stop();
    server::start(settings).unwrap().stop();
}
