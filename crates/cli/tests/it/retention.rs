//! Samples that go by age and the roll-ups that stay, over a real process.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

use crate::process::{Server, eventually};
use crate::prometheus::escape;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[test]
fn old_counters_are_answered_from_roll_ups_and_the_answer_says_so() {
    let mut server = Server::start(&["--retention-raw", "3d"]);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    // A whole hour 40 days back; the counter resets in the middle of it.
    let from_ms = (now_ms / DAY_MS - 40) * DAY_MS;
    let point = |n: i64| Point { time_ms: from_ms + n * 10_000, value: (n % 200) as f64 };
    let points: Vec<Point> = (0..=720).map(point).collect();
    let mut writer = RequestWriter::new();
    writer.series([("__name__", "old_total"), ("host", "n1")], &points);
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    let answer = server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap());
    assert_eq!(answer.status, 204);
    let ask = |server: &Server, query: &str, more: &str| -> Value {
        let time = (from_ms + 2 * HOUR_MS) / 1_000;
        server.get(&format!("/api/v1/query?query={}&time={time}{more}", escape(query)))
    };
    let queries =
        ["increase(old_total[1h])", "resets(old_total[1h])", "max_over_time(old_total[1h])", "old_total"];
    let results = |server: &Server| queries.map(|query| ask(server, query, "")["data"]["result"].clone());
    let before = results(&server);
    assert_eq!(before[1][0]["value"][1], json!("2"));
    // Stopping seals what is in memory; the next start finds it too old to be kept as samples.
    assert_eq!(server.terminate(), 0);
    server.restart();
    eventually("the samples to go", || {
        let bytes = |class| server.metric(&format!("truegauge_store_class_bytes{{class=\"{class}\"}}"));
        (bytes("fleet") == 0.0 && bytes("rollup_1m") > 0.0 && bytes("rollup_15m") > 0.0).then_some(())
    });
    assert_eq!(results(&server), before);
    let infos = ask(&server, queries[0], "")["infos"].to_string();
    assert!(infos.contains("only roll-ups of up to 15 minutes are left"), "{infos}");
    assert_eq!(ask(&server, queries[0], "&rollups=never")["data"]["result"], json!([]));
    let path = format!("/api/v1/query?query=1&rollups={}", "always");
    assert_eq!(server.ask("GET", &path, &[], b"").status, 400);
    let kept = server.get("/api/tg/v1/status")["store"]["class_bytes"].clone();
    assert_eq!((kept["fleet"].as_u64(), kept["run"].as_u64()), (Some(0), Some(0)));
    let (code, out, err) = server.cli(&["doctor", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let checks: Value = serde_json::from_str(&out).unwrap();
    let of_kept = checks["checks"].as_array().unwrap().iter().find(|check| check["id"] == "kept").unwrap();
    assert!(of_kept["evidence"].as_str().unwrap().contains("roll-ups of 1 minute"), "{of_kept}");
}

#[test]
fn a_sender_that_comes_back_after_its_series_went_is_heard() {
    let ends = ["--retention-raw", "1d", "--retention-rollup-1m", "0", "--retention-rollup-15m", "0"];
    let server = Server::start(&[&ends[..], &["--seal-age", "1s"]].concat());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let send = |old: i64, value: f64| {
        let mut writer = RequestWriter::new();
        writer.series([("__name__", "idle"), ("job", "a")], &[Point { time_ms: now_ms - old, value }]);
        writer.series([("__name__", "busy"), ("job", "a")], &[Point { time_ms: now_ms - 60_000, value }]);
        let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
        server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap()).status
    };
    let idle = || server.get("/api/v1/series?match[]=idle&start=0")["data"].as_array().unwrap().len();
    // Their numbers are learnt with the second time that they are named.
    for n in 0..3 {
        assert_eq!(send(10 * DAY_MS + n, 1.0), 204);
    }
    eventually("the idle series to go", || (idle() == 0).then_some(()));
    // The first try tells that a series went; a sender tries again, and it is there once more.
    assert_eq!([send(30_000, 2.0), send(30_000, 2.0)], [503, 204]);
    assert_eq!(idle(), 1);
    for (query, value) in [("idle", "2"), ("busy", "2"), ("count_over_time(idle[1m])", "1")] {
        let answer = server.get(&format!("/api/v1/query?query={}&time={}", escape(query), now_ms / 1_000));
        assert_eq!(answer["data"]["result"][0]["value"][1], json!(value), "{query}");
        assert_eq!(answer["data"]["result"].as_array().unwrap().len(), 1, "{query}");
    }
}
