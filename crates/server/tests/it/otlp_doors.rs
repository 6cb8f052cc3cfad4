//! The doors of OTLP: what they take, what they refuse and how they say so.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use server::config::Given;
use server::{Config, StartError};

use crate::metrana::{World, block, config};
use crate::otlp_peer::{
    JSON, PROTOBUF, call, counted, gzip, http_doors, one_span, open_call, post, raw, raw_deflate,
    read_answer, resource, send, spans, traces, zlib, zstd,
};

const TRACES: &str = "trace.v1.TraceService";

/// gRPC's numbers.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

fn with_token(token: &str) -> World {
    World::with(|config| {
        let variable = |name: &str| (name == "TRUEGAUGE_TOKEN").then(|| token.to_owned());
        let before = config.clone();
        *config = Config::resolve(before, &Given::new(), &variable, None).unwrap();
    })
}

#[test]
fn every_form_and_packing_is_taken_at_every_door_and_the_answer_mirrors_it() {
    type Pack = fn(&[u8]) -> Vec<u8>;
    let packings: [(&str, Pack); 8] = [
        ("", <[u8]>::to_vec),
        ("identity", <[u8]>::to_vec),
        ("gzip", gzip),
        ("x-gzip", gzip),
        ("GZIP", gzip),
        ("deflate", zlib),
        ("deflate", raw_deflate),
        ("zstd", zstd),
    ];
    let world = World::new();
    let (protobuf, json) = one_span();
    let forms = [
        (PROTOBUF, PROTOBUF, &protobuf, &b""[..]),
        ("application/json; charset=utf-8", JSON, &json, b"{}"),
        ("Application/JSON", JSON, &json, b"{}"),
    ];
    for door in http_doors(&world.running) {
        for (name, pack) in packings {
            for (kind, mirrored, body, wanted) in forms {
                let headers = [("content-type", kind), ("content-encoding", name)];
                let headers = if name.is_empty() { &headers[..1] } else { &headers[..] };
                let answer = send(door, "POST", "/v1/traces", headers, &pack(body));
                assert_eq!(answer.status, 200, "{kind} {name}: {answer:?}");
                assert_eq!(answer.header("content-type"), Some(mirrored), "{kind} {name}");
                assert_eq!(answer.body, wanted, "{kind} {name}");
            }
        }
    }
    block(async {
        let grpc = world.running.grpc_addr.unwrap();
        for (name, pack) in packings {
            let packing = match name {
                "" => None,
                "identity" | "x-gzip" | "GZIP" => continue,
                // gRPC knows deflate with its head only.
                "deflate" if pack(b"") == raw_deflate(b"") => continue,
                name => Some(name),
            };
            let ended = call(grpc, TRACES, &[], (&pack(&protobuf), packing)).await;
            assert_eq!((ended.code, ended.message.as_deref()), (0, Some(&b""[..])), "{name}: {ended:?}");
        }
        let http = counted(&world, "truegauge_ingest_spans_total{door=\"otlp_http\"}").await;
        let grpc = counted(&world, "truegauge_ingest_spans_total{door=\"otlp_grpc\"}").await;
        assert_eq!((http, grpc), (2 * 8 * 3, 4));
        assert_eq!(world.the_run().await["run"], "run-a");
    });
}

#[test]
fn what_cannot_be_taken_is_told_as_a_status_in_the_requests_form() {
    let world = World::new();
    let (good, _) = one_span();
    let zeros = vec![0_u8; 65 << 20];
    let own = world.running.otlp_http_addr.unwrap();
    for door in http_doors(&world.running) {
        let check = |what: &str, headers: &[(&str, &str)], body: &[u8], want: (u16, i32)| {
            for kind in [PROTOBUF, JSON] {
                let headers = [&[("content-type", kind)], headers].concat();
                let answer = send(door, "POST", "/v1/traces", &headers, body);
                assert_eq!(answer.header("content-type"), Some(kind), "{what}: {answer:?}");
                let failure = answer.failure();
                assert_eq!((answer.status, failure.code), want, "{what}: {failure:?}");
                assert!(
                    !failure.message.is_empty() && failure.retry_seconds().is_none(),
                    "{what}: {failure:?}"
                );
            }
        };
        let (bad, large) = ((400, INVALID_ARGUMENT), (413, RESOURCE_EXHAUSTED));
        let packed = |packing: &'static str| [("content-encoding", packing)];
        check("garbage", &[], &[0xff; 100], bad);
        check("cut off", &[], &good[..good.len() - 3], bad);
        check("garbage as gzip", &packed("gzip"), &[0x5a; 100], bad);
        check("cut off gzip", &packed("gzip"), &gzip(&good)[..20], bad);
        check("cut off deflate", &packed("deflate"), &zlib(&good)[..20], bad);
        check("cut off zstd", &packed("zstd"), &zstd(&good)[..20], bad);
        check("a claim of 4 GiB", &[("content-length", "4294967296")], &good, large);
        check("over the bound", &[], &zeros, large);
        check("gzip bomb", &packed("gzip"), &gzip(&zeros), large);
        check("deflate bomb", &packed("deflate"), &raw_deflate(&zeros), large);
        check("zstd bomb", &packed("zstd"), &zstd(&zeros), large);
        check("no packing of ours", &packed("br"), &good, (415, INVALID_ARGUMENT));
        check("two packings", &packed("gzip, gzip"), &gzip(&gzip(&good)), (415, INVALID_ARGUMENT));
        let twice = [("content-encoding", "gzip"), ("content-encoding", "zstd")];
        check("two packings in two lines", &twice, &good, (415, INVALID_ARGUMENT));
        let origin = [("origin", "http://evil.example")];
        check("a foreign page", &origin, &good, (403, PERMISSION_DENIED));

        for kind in ["text/plain", "application/protobuf", "json"] {
            let answer = post(door, "/v1/traces", kind, &good);
            assert_eq!((answer.status, answer.failure().code), (415, INVALID_ARGUMENT), "{kind}");
        }
        assert_eq!(send(door, "POST", "/v1/traces", &[], &good).status, 415, "no kind");
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let answer = send(door, method, "/v1/traces", &[("content-type", PROTOBUF)], b"");
            assert_eq!((answer.status, answer.failure().code), (405, UNIMPLEMENTED), "{method}");
            assert_eq!(answer.header("allow"), Some("post"), "{method}");
        }
        for path in ["/v1/profiles", "/v1/", "/v1/traces/"] {
            let answer = post(door, path, PROTOBUF, &good);
            assert_eq!((answer.status, answer.failure().code), (404, NOT_FOUND), "{path}");
        }
        let answer = post(door, "/v1/traces", PROTOBUF, &good);
        assert_eq!((answer.status, answer.body.len()), (200, 0), "and it still takes what is good");
    }
    let answer = send(own, "GET", "/", &[], b"");
    assert_eq!((answer.status, answer.failure().code), (404, NOT_FOUND), "there is no UI on this port");
    block(async {
        let spans = counted(&world, "truegauge_ingest_spans_total{door=\"otlp_http\"}").await;
        assert_eq!(spans, 2, "nothing of what was refused is kept");
        let outcome =
            |outcome| format!("truegauge_ingest_requests_total{{door=\"otlp_http\",outcome=\"{outcome}\"}}");
        assert_eq!(counted(&world, &outcome("too_large")).await, 2 * 2 * 5);
        assert_eq!(counted(&world, &outcome("unusable")).await, 2 * 2 * 6);
        assert_eq!(counted(&world, &outcome("unsupported")).await, 2 * (2 * 3 + 4));
        assert_eq!(counted(&world, &outcome("stored")).await, 2);
    });
}

#[test]
fn over_grpc_failures_have_their_numbers() {
    let world = World::new();
    let (good, _) = one_span();
    let zeros = vec![0_u8; 65 << 20];
    block(async {
        let grpc = world.running.grpc_addr.unwrap();
        let check = async |what: &str, service: &str, message: (&[u8], Option<&str>), want: i32| {
            let ended = call(grpc, service, &[], message).await;
            assert_eq!(ended.code, want as u32, "{what}: {ended:?}");
            assert_eq!(ended.retry_seconds(), (None, None), "{what}: to come again would not help");
            assert!(!ended.words.is_empty(), "{what}: {ended:?}");
        };
        check("garbage", TRACES, (&[0xff; 100], None), INVALID_ARGUMENT).await;
        check("cut off", TRACES, (&good[..good.len() - 3], None), INVALID_ARGUMENT).await;
        check("over the bound", TRACES, (&zeros, None), RESOURCE_EXHAUSTED).await;
        for (name, bomb) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros)), ("zstd", zstd(&zeros))] {
            check(name, TRACES, (&bomb, Some(name)), RESOURCE_EXHAUSTED).await;
        }
        check("unknown packing", TRACES, (&good, Some("snappy")), UNIMPLEMENTED).await;
        check("unknown service", "profiles.v1.ProfilesService", (&good, None), UNIMPLEMENTED).await;
        let ended = call(grpc, TRACES, &[("origin", "http://evil.example")], (&good, None)).await;
        assert_eq!(ended.code, PERMISSION_DENIED as u32, "{ended:?}");
        assert_eq!(call(grpc, TRACES, &[], (&good, None)).await.code, 0, "and it still takes what is good");
        assert_eq!(counted(&world, "truegauge_ingest_spans_total{door=\"otlp_grpc\"}").await, 1);
    });
}

#[test]
fn a_part_that_cannot_be_kept_is_counted_exactly_and_costs_nothing_else() {
    let world = World::new();
    let request = traces(resource("megatron-lm", "run-a"), spans(&[1, 0, 2, 0, 0])).encode_to_vec();
    for door in http_doors(&world.running) {
        let answer = post(door, "/v1/traces", PROTOBUF, &request);
        assert_eq!(answer.status, 200, "{answer:?}");
        let partial = ExportTraceServiceResponse::decode(&*answer.body).unwrap().partial_success.unwrap();
        assert_eq!(partial.rejected_spans, 3);
        assert!(partial.error_message.contains("megatron.train.iteration"), "{}", partial.error_message);
    }
    let json =
        serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}).to_string();
    let answer = post(world.running.addr, "/v1/traces", JSON, json.as_bytes());
    let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &told["partialSuccess"]["rejectedSpans"]), (200, &"1".into()), "{told}");
    block(async {
        let ended = call(world.running.grpc_addr.unwrap(), TRACES, &[], (&request, None)).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        let response = ExportTraceServiceResponse::decode(&*ended.message.unwrap()).unwrap();
        assert_eq!(response.partial_success.unwrap().rejected_spans, 3);
        let empty = ExportTraceServiceRequest::default().encode_to_vec();
        let ended = call(world.running.grpc_addr.unwrap(), TRACES, &[], (&empty, None)).await;
        assert_eq!((ended.code, ended.message), (0, Some(Vec::new())), "nothing is well too");
        assert_eq!(counted(&world, "truegauge_ingest_spans_total{door=\"otlp_http\"}").await, 4);
        assert_eq!(counted(&world, "truegauge_ingest_spans_total{door=\"otlp_grpc\"}").await, 2);
    });
}

#[test]
fn who_may_not_send_is_told_why() {
    let token = "a-token-for-this-test";
    let world = with_token(token);
    let (good, _) = one_span();
    let bearer = format!("Bearer {token}");
    for door in http_doors(&world.running) {
        for kind in [PROTOBUF, JSON] {
            let answer = post(door, "/v1/traces", kind, &good);
            assert_eq!((answer.status, answer.failure().code), (401, UNAUTHENTICATED), "{answer:?}");
            assert_eq!(answer.header("www-authenticate"), Some("bearer"));
            assert_eq!(answer.header("content-type"), Some(kind));
        }
        let headers = [("content-type", PROTOBUF), ("authorization", bearer.as_str())];
        assert_eq!(send(door, "POST", "/v1/traces", &headers, &good).status, 200);
    }
    let reads = token_of(&world, &bearer, &serde_json::json!({"name": "reads", "scopes": ["read"]}));
    let reads = format!("Bearer {reads}");
    for door in http_doors(&world.running) {
        let headers = [("content-type", PROTOBUF), ("authorization", reads.as_str())];
        let answer = send(door, "POST", "/v1/traces", &headers, &good);
        assert_eq!((answer.status, answer.failure().code), (403, PERMISSION_DENIED), "{answer:?}");
    }
    block(async {
        let grpc = world.running.grpc_addr.unwrap();
        let ended = call(grpc, TRACES, &[], (&good, None)).await;
        assert_eq!(ended.code, UNAUTHENTICATED as u32, "{ended:?}");
        let ended = call(grpc, TRACES, &[("authorization", &reads)], (&good, None)).await;
        assert_eq!(ended.code, PERMISSION_DENIED as u32, "{ended:?}");
        assert_eq!(call(grpc, TRACES, &[("authorization", &bearer)], (&good, None)).await.code, 0);
    });
}

/// Makes a token.
fn token_of(world: &World, bearer: &str, ask: &serde_json::Value) -> String {
    let headers = [("content-type", JSON), ("authorization", bearer)];
    let made = send(world.running.addr, "POST", "/api/tg/v1/tokens", &headers, ask.to_string().as_bytes());
    let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    made["token"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

#[test]
fn a_token_for_one_project_sends_runs_of_that_project_only() {
    let world = with_token("admins");
    let ask = serde_json::json!({"name": "llm", "scopes": ["ingest"], "project": "llm"});
    let token = token_of(&world, "Bearer admins", &ask);
    let bearer = format!("Bearer {token}");
    let mut request = traces(resource("llm", "mine"), spans(&[1, 2]));
    request.resource_spans.extend(traces(resource("other", "theirs"), spans(&[3, 4, 5])).resource_spans);
    let body = request.encode_to_vec();
    let headers = [("content-type", PROTOBUF), ("authorization", bearer.as_str())];
    let answer = send(world.running.addr, "POST", "/v1/traces", &headers, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let partial = ExportTraceServiceResponse::decode(&*answer.body).unwrap().partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 3, "{}", partial.error_message);
    assert!(partial.error_message.contains("project"), "{}", partial.error_message);
    let admin = [("authorization", "Bearer admins")];
    let runs = send(world.running.addr, "GET", "/api/tg/v1/runs", &admin, b"");
    let runs: serde_json::Value = serde_json::from_slice(&runs.body).unwrap();
    let names: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|r| r["run"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine"], "{runs}");
}

#[test]
fn a_full_disk_is_said_with_when_to_come_again() {
    let world = World::with(|config| config.reserve_bytes = u64::MAX / 2);
    let (protobuf, json) = one_span();
    for door in http_doors(&world.running) {
        for (kind, body) in [(PROTOBUF, &protobuf), (JSON, &json)] {
            let answer = post(door, "/v1/traces", kind, body);
            let failure = answer.failure();
            assert_eq!((answer.status, failure.code), (503, UNAVAILABLE), "{failure:?}");
            let after: i64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=5).contains(&after), "{after}: a client gives up what it has to wait longer for");
            assert_eq!(failure.retry_seconds(), Some(after), "{failure:?}");
            assert!(failure.message.contains("free"), "{failure:?}");
        }
    }
    block(async {
        let ended = call(world.running.grpc_addr.unwrap(), TRACES, &[], (&protobuf, None)).await;
        assert_eq!(ended.code, UNAVAILABLE as u32, "{ended:?}");
        let (details, trailer) = ended.retry_seconds();
        assert!(details.is_some_and(|seconds| (1..=5).contains(&seconds)), "{ended:?}");
        assert_eq!(details, trailer, "{ended:?}");
        let full = "truegauge_ingest_requests_total{door=\"otlp_http\",outcome=\"full\"}";
        assert_eq!(counted(&world, full).await, 4);
    });
}

#[test]
fn a_body_that_is_under_way_when_the_server_stops_is_to_come_again() {
    let World { running, _folder } = World::new();
    let mut http = TcpStream::connect(running.addr).unwrap();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 100\r\n\r\n"
    );
    http.write_all(head.as_bytes()).unwrap();
    // The server asks for the body once it waits for it.
    let mut asked = [0; 25];
    std::io::Read::read_exact(&mut http, &mut asked).unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&asked));
    let stopping = std::thread::spawn(move || running.stop());
    let answer = read_answer(&mut http);
    let failure = answer.failure();
    assert_eq!((answer.status, failure.code), (503, UNAVAILABLE), "{failure:?}");
    assert!(failure.retry_seconds().is_some(), "{failure:?}");
    stopping.join().unwrap();
}

#[test]
fn a_message_that_is_under_way_when_the_server_stops_is_to_come_again() {
    let World { running, _folder } = World::new();
    block(async {
        // Five bytes of head, and two of a hundred.
        let begin = [&[0][..], &100_u32.to_be_bytes(), &[0x0a, 98]].concat();
        let (frames, answer) = open_call(running.grpc_addr.unwrap(), TRACES, begin).await;
        let stopping = tokio::task::spawn_blocking(move || running.stop());
        let ended = answer.await;
        assert_eq!(ended.code, UNAVAILABLE as u32, "{ended:?}");
        let (details, trailer) = ended.retry_seconds();
        assert!(details.is_some() && details == trailer, "{ended:?}");
        drop(frames);
        stopping.await.unwrap();
    });
}

#[test]
fn who_reads_no_answers_and_who_sends_no_end_hold_nobody_up() {
    let world = World::new();
    let (good, _) = one_span();
    let mut held = Vec::new();
    for door in http_doors(&world.running) {
        for _ in 0..40 {
            let mut stream = TcpStream::connect(door).unwrap();
            let head = format!("POST /v1/traces HTTP/1.1\r\nhost: x.y\r\ncontent-type: {PROTOBUF}\r\n");
            // The body never ends.
            let endless = format!(
                "{}transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
                head.replace("x.y", "localhost")
            );
            stream.write_all(endless.as_bytes()).unwrap();
            held.push(stream);
            // Many requests, one after another, whose answers are never read.
            let mut stream = TcpStream::connect(door).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let one = format!("{}content-length: 0\r\n\r\n", head.replace("x.y", "localhost"));
            let _ = stream.write_all(one.repeat(50).as_bytes());
            held.push(stream);
        }
        let answer = post(door, "/v1/traces", PROTOBUF, &good);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    block(async {
        assert_eq!(counted(&world, "truegauge_ingest_spans_total{door=\"otlp_http\"}").await, 2);
    });
}

#[test]
fn many_at_once_are_all_taken_or_told_to_come_again() {
    const SENDERS: u64 = 16;
    const REQUESTS: u64 = 20;
    let world = World::new();
    let doors = http_doors(&world.running);
    let grpc = world.running.grpc_addr.unwrap();
    let threads: Vec<_> = (0..SENDERS)
        .map(|sender| {
            std::thread::spawn(move || {
                for n in 0..REQUESTS {
                    let ids: Vec<u64> = (1..=10).map(|at| (sender * REQUESTS + n) * 10 + at).collect();
                    let body = traces(resource("p", &format!("run-{sender}")), spans(&ids)).encode_to_vec();
                    if sender % 2 == 0 {
                        let answer = post(doors[n as usize % 2], "/v1/traces", PROTOBUF, &body);
                        assert_eq!(answer.status, 200, "{answer:?}");
                    } else {
                        block(async {
                            let ended = call(grpc, TRACES, &[], (&gzip(&body), Some("gzip"))).await;
                            assert_eq!(ended.code, 0, "{ended:?}");
                        });
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    block(async {
        let per_door = SENDERS / 2 * REQUESTS * 10;
        for door in ["otlp_http", "otlp_grpc"] {
            let spans = counted(&world, &format!("truegauge_ingest_spans_total{{door=\"{door}\"}}")).await;
            assert_eq!(spans, per_door, "{door}");
        }
        assert_eq!(world.get("runs").await["total"], SENDERS);
    });
}

#[test]
fn the_port_is_opened_when_it_is_free_and_guarded_as_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = config(folder.path());
    settings.otlp_http_listen = taken.local_addr().unwrap();
    let running = server::start(settings.clone()).unwrap();
    assert_eq!(running.otlp_http_addr, None, "the server does without");
    let (good, _) = one_span();
    assert_eq!(post(running.addr, "/v1/traces", PROTOBUF, &good).status, 200, "the main port takes it");
    let two = raw(running.addr, b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(two.status, 200, "and has the UI");
    running.stop();
    settings.otlp_http_listen = ([0, 0, 0, 0], 0).into();
    let open = server::start(settings);
    assert!(matches!(open, Err(StartError::Open { address }) if address.ip().is_unspecified()));
}
