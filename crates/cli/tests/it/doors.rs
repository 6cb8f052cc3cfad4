//! Who is let in, and what garbage is told.

use std::io::Write;

use wire::push::{Label, Series};

use crate::process::{Server, T0, request, run, series};

#[test]
fn foreign_hosts_origins_and_tokens_are_refused() {
    let server = Server::start(&["--token", "s3cret", "--allowed-hosts", "gauge.example.org"]);
    let check = |headers: &[(&str, &str)], path: &str, want: u16| {
        let answer = server.ask("GET", path, headers, b"");
        assert_eq!(answer.status, want, "{headers:?} {path}");
        if want >= 400 {
            answer.error_code();
        }
    };
    let runs = "/api/tg/v1/runs";
    let token = ("authorization", "Bearer s3cret");
    check(&[], runs, 401);
    check(&[("authorization", "Bearer s3cre")], runs, 401);
    check(&[("authorization", "Basic s3cret")], runs, 401);
    check(&[token], runs, 200);
    check(&[], "/metrics", 401);
    check(&[], "/healthz", 200);
    check(&[], "/readyz", 200);
    check(&[], "/", 200);
    check(&[token, ("host", "evil.example")], runs, 403);
    check(&[token, ("host", "127.0.0.1.evil.example:9494")], runs, 403);
    check(&[token, ("host", "gauge.example.org")], runs, 200);
    check(&[token, ("host", "localhost:1234")], runs, 200);
    check(&[token, ("host", "[::1]:80")], runs, 200);
    check(&[token, ("host", "")], runs, 403);
    check(&[token, ("origin", "http://evil.example")], runs, 403);
    check(&[token, ("origin", "null")], runs, 403);
    check(&[token, ("origin", server.url.as_str())], runs, 200);
    let answer = server.ask("GET", "/", &[], b"");
    for header in [
        "content-security-policy: default-src 'self'",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
    ] {
        assert!(answer.head.contains(header), "{header} is missing: {}", answer.head);
    }
}

#[test]
fn a_page_of_an_allowed_origin_may_read_and_a_preflight_needs_no_token() {
    let server = Server::start(&["--token", "s3cret", "--allowed-origins", "http://localhost:5173"]);
    let origin = ("origin", "http://localhost:5173");
    let asked = server.ask("OPTIONS", "/api/tg/v1/points", &[origin], b"");
    assert_eq!(asked.status, 204);
    assert!(asked.head.contains("access-control-allow-headers: authorization"), "{}", asked.head);
    let read = server.ask("GET", "/api/tg/v1/runs", &[origin, ("authorization", "Bearer s3cret")], b"");
    assert_eq!(read.status, 200);
    assert!(read.head.contains("access-control-allow-origin: http://localhost:5173"), "{}", read.head);
    let other = server.ask("OPTIONS", "/api/tg/v1/points", &[("origin", "http://evil.example")], b"");
    assert_eq!(other.status, 403);
}

#[test]
fn an_open_address_needs_a_token_or_the_word() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, err) = run(home.path(), &["up", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, 2);
    assert!(err.contains("error: refusing to listen on `0.0.0.0:0` without a token"), "{err}");
    assert!(err.contains("hint: ") && err.contains("--insecure-no-auth"), "{err}");
}

#[test]
fn bodies_that_are_no_requests_get_a_json_error_and_cost_no_memory() {
    let server = Server::start(&[]);
    let good = prost::Message::encode_to_vec(&request("good", 1, 1, vec![series("loss", &[1.0])]));
    let zeros = vec![0u8; 80 << 20];
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let peak = server.memory_peak_kib();
    let check = |what: &str, body: &[u8], headers: &[(&str, &str)], want: (u16, &str)| {
        let answer = server.push_bytes(body, headers);
        assert_eq!((answer.status, answer.error_code().as_str()), want, "{what}");
    };
    let (bad, large, media) = ((400, "bad_request"), (413, "too_large"), (415, "unsupported_media_type"));
    let packed = |packing: &'static str| [("content-encoding", packing)];
    check("garbage", &[0x5a; 1_000], &[], bad);
    check("garbage as zstd", &[0x5a; 1_000], &packed("zstd"), bad);
    check("garbage as gzip", &[0x5a; 1_000], &packed("gzip"), bad);
    check("nothing", b"", &[], bad);
    check("truncated", &good[..good.len() - 3], &[], bad);
    check("truncated zstd", &zstd(&good)[..20], &packed("zstd"), bad);
    check("truncated gzip", &gzip(&good)[..20], &packed("gzip"), bad);
    check("no writer", &[0x10, 1], &[], bad);
    check("over-long", &zeros[..33 << 20], &[], large);
    check("zstd bomb", &zstd(&zeros), &packed("zstd"), large);
    check("gzip bomb", &gzip(&zeros), &packed("gzip"), large);
    check("twenty bombs in one", &zstd(&zeros).repeat(20), &packed("zstd"), large);
    check("unknown packing", &good, &packed("br"), media);
    let other = server.ask("POST", "/api/tg/v1/push", &[("content-type", "text/plain")], &good);
    assert_eq!((other.status, other.error_code().as_str()), media);
    let gained = server.memory_peak_kib() - peak;
    assert!(gained < 40 << 10, "memory grew by {gained} KiB");
    assert_eq!(server.push_bytes(&gzip(&good), &packed("gzip")).status, 200, "and it still works");
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 1);
}

#[test]
fn a_body_of_chunks_is_bounded_as_well() {
    let server = Server::start(&[]);
    let mut body = b"POST /api/tg/v1/push HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..34 {
        body.extend(b"100000\r\n");
        body.extend(std::iter::repeat_n(0u8, 1 << 20));
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    let answer = server.raw(&body);
    assert_eq!((answer.status, answer.error_code().as_str()), (413, "too_large"));
}

#[test]
fn json_doors_say_what_they_want() {
    let server = Server::start(&[]);
    let get = |path: &str, want: (u16, &str)| {
        let answer = server.ask("GET", path, &[], b"");
        assert_eq!((answer.status, answer.error_code().as_str()), want, "{path}");
    };
    let (bad, missing) = ((400, "bad_request"), (404, "not_found"));
    get("/api/tg/v1/runs?limit=many", bad);
    get("/api/tg/v1/runs?cursor=x", bad);
    get("/api/tg/v1/runs?state=walking", bad);
    get("/api/tg/v1/runs/zz", missing);
    get("/api/tg/v1/runs/0000000000000000", missing);
    get("/api/tg/v1/runs/0000000000000000/points?metric=x", missing);
    get("/api/tg/v1/runs/0000000000000000/points", bad);
    get("/api/tg/v1/stream?topics=everything", bad);
    get("/api/tg/v1/nothing", missing);
    get("/api", missing);
    get("/assets/gone-123.js", missing);
    let post = |body: &str, want: (u16, &str)| {
        let answer =
            server.ask("POST", "/api/tg/v1/points", &[("content-type", "application/json")], body.as_bytes());
        assert_eq!((answer.status, answer.error_code().as_str()), want, "{body:.60}");
    };
    post("{", bad);
    post(r#"{"axis":"step","queries":[],"bucket":5}"#, bad);
    post(r#"{"axis":"depth","queries":[]}"#, bad);
    post(r#"{"axis":"step","queries":[],"buckets":100000}"#, bad);
    post(r#"{"axis":"step","queries":[],"smooth":{"kind":"ema","weight":1.5}}"#, bad);
    post(&"[".repeat(100_000), bad);
    post(&" ".repeat(2 << 20), (413, "too_large"));
    let wrong = server.ask("DELETE", "/api/tg/v1/runs", &[], b"");
    assert_eq!((wrong.status, wrong.error_code().as_str()), (405, "method_not_allowed"));
    assert!(wrong.head.contains("allow: get"), "{}", wrong.head);
}

#[test]
fn hostile_names_are_kept_as_text_or_refused_by_reason() {
    let server = Server::start(&[]);
    let labelled = |name: &str, key: &str, value: &str| Series {
        labels: vec![Label { key: key.into(), value: value.into() }],
        ..series(name, &[1.0, 2.0])
    };
    let hostile = "<img src=x onerror=alert(1)>";
    let many = Series {
        labels: (0..40).map(|n| Label { key: format!("k{n}"), value: "v".into() }).collect(),
        ..series("many", &[1.0])
    };
    let sent = request(
        hostile,
        1,
        1,
        vec![
            series(hostile, &[0.5]),
            series(&"n".repeat(300), &[1.0]),
            series("bell\u{7}", &[1.0]),
            labelled("a", "user_id", "7"),
            labelled("b", "run_id", "x"),
            labelled("c", "split", &"v".repeat(65)),
            labelled("d", "not a key", "v"),
            many,
            Series { time_deltas: vec![T0], values: vec![1.0], step_deltas: vec![], ..series("plain", &[]) },
        ],
    );
    let (status, response) = server.push(&sent);
    let response = response.unwrap();
    assert_eq!((status, response.stored), (200, 2));
    let refused: Vec<(&str, u64)> = response.refused.iter().map(|c| (c.reason.as_str(), c.count)).collect();
    let want = [
        ("label_count", 1),
        ("label_key", 4),
        ("label_refused", 2),
        ("label_too_long", 2),
        ("metric_name", 2),
    ];
    assert_eq!(refused, want);
    assert!(response.refused.iter().all(|c| !c.example.is_empty()));
    let named: Vec<(u32, &str)> =
        response.refused_series.iter().map(|s| (s.index, s.reason.as_str())).collect();
    let want = [
        (1, "metric_name"),
        (2, "metric_name"),
        (3, "label_refused"),
        (4, "label_key"),
        (5, "label_too_long"),
        (6, "label_key"),
        (7, "label_count"),
    ];
    assert_eq!(named, want, "each by its place in the request");
    let row = &server.get("/api/tg/v1/runs")["runs"][0];
    assert_eq!(row["run"], hostile);
    let run = server.get(&format!("/api/tg/v1/runs/{}", row["run_id"].as_str().unwrap()));
    assert_eq!(run["refused"]["label_key"], 4, "what was refused is known of the run");
    assert_eq!(server.metric("truegauge_ingest_rejected_total{door=\"push\",reason=\"label_key\"}"), 4.0);
    let late = Series { time_deltas: vec![i64::MAX / 2 + T0], ..series("late", &[1.0]) };
    let response = server.push(&request("r", 1, 2, vec![series("good", &[1.0]), late])).1.unwrap();
    assert_eq!(
        response.refused_series,
        [wire::push::RefusedSeries { index: 1, reason: "time_out_of_range".into(), count: 1 }]
    );
    let mut control = request("x", 1, 2, Vec::new());
    control.run = Some(wire::push::Run { run: "a\u{1b}[2J".into(), ..wire::push::Run::default() });
    assert_eq!(server.push(&control).0, 400);
}

#[test]
fn columns_of_unequal_length_and_wrong_events_are_400() {
    let server = Server::start(&[]);
    let uneven = Series { values: vec![1.0], ..series("loss", &[1.0, 2.0]) };
    assert_eq!(server.push(&request("r", 1, 1, vec![uneven])).0, 400);
    let mut event = request("r", 1, 2, Vec::new());
    event.session = Some(crate::process::session(0, 99));
    assert_eq!(server.push(&event).0, 400);
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 0, "nothing of a bad request is kept");
}

#[test]
fn senders_that_announce_a_body_and_never_send_it_hold_nobody_up() {
    let server = Server::start(&[]);
    let head = "POST /api/tg/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: 33000000\r\n\r\nab";
    let slow: Vec<std::net::TcpStream> = (0..10)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(server.push(&request("r", 1, 1, vec![series("loss", &[1.0])])).0, 200);
    drop(slow);
}

#[test]
fn a_session_beyond_all_time_is_refused_and_its_points_are_kept() {
    let server = Server::start(&[]);
    for (sequence, time_ms) in [(1, i64::MIN), (2, i64::MAX)] {
        let mut sent = request("r", 1, sequence, vec![series("loss", &[1.0])]);
        sent.session = Some(wire::push::Session { time_ms, ..crate::process::session(0, 1) });
        sent.dropped =
            vec![wire::push::Count { reason: "queue".into(), count: u64::MAX, ..Default::default() }];
        let response = server.push(&sent).1.unwrap();
        assert_eq!(response.refused[0].reason, "session_time");
    }
    let row = &server.get("/api/tg/v1/runs")["runs"][0];
    assert_eq!((&row["state"], &row["attempts"]), (&"stale".into(), &0.into()));
    assert_eq!(server.metric("truegauge_http_panics_total"), 0.0);
}
