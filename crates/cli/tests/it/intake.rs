//! Prometheus' doors in: remote write and scraping, over real processes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use model::MetricKind;
use prost::Message;
use serde_json::{Value, json};
use wire::remote_write::{CONTENT_TYPE, Metadata, PROTO_2, Point, RequestWriter};

use crate::process::{Answer, Server, eventually, id, request, run, series};
use crate::prometheus::{T0_SECONDS, escape, names, value, vector};

const T0_MS: i64 = T0_SECONDS * 1_000;

/// A series' labels and values.
type Written<'a> = (&'a [(&'a str, &'a str)], &'a [f64]);

/// A version 1.0 body: series with one value a second from `T0`.
fn body(series: &[Written<'_>]) -> Vec<u8> {
    let mut writer = RequestWriter::new();
    for (labels, values) in series {
        let point = |(at, value): (usize, &f64)| Point { time_ms: T0_MS + at as i64 * 1_000, value: *value };
        let points: Vec<Point> = values.iter().enumerate().map(point).collect();
        writer.series(labels.iter().copied(), &points);
    }
    writer.finish().unwrap()
}

fn write(server: &Server, body: &[u8]) -> Answer {
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    server.ask("POST", "/api/v1/write", &headers, body)
}

/// Bytes as a snappy block that copies nothing.
fn snappy(plain: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    prost::encoding::encode_varint(plain.len() as u64, &mut block);
    for piece in plain.chunks(60) {
        block.push(((piece.len() - 1) << 2) as u8);
        block.extend_from_slice(piece);
    }
    block
}

#[test]
fn remote_written_samples_are_answered_and_sending_them_again_changes_nothing() {
    let mut server = Server::start(&[]);
    let up: &[(&str, &str)] = &[("__name__", "c_total"), ("job", "a")];
    let mut writer = RequestWriter::new();
    writer.metadata(&Metadata { metric: "c_total", kind: MetricKind::Counter, help: "Things.", unit: "" });
    assert_eq!(write(&server, &writer.finish().unwrap()).status, 204);
    for _ in 0..2 {
        assert_eq!(write(&server, &body(&[(up, &[1.0, 2.0, 3.0])])).status, 204);
    }
    assert_eq!(value(&server, "count_over_time(c_total[1m])", 2), "3");
    assert_eq!(vector(&server, "c_total", 2)[0].0, json!({"__name__": "c_total", "job": "a"}));
    assert_eq!(write(&server, &body(&[(up, &[1.0, 7.0])])).status, 204);
    assert_eq!(value(&server, "sum_over_time(c_total[1m])", 2), "11");
    assert_eq!(
        server.get("/api/v1/metadata?metric=c_total")["data"],
        json!({"c_total": [{"type": "counter", "help": "Things.", "unit": ""}]})
    );
    assert_eq!(
        server.metric("truegauge_ingest_requests_total{door=\"remote_write\",outcome=\"stored\"}"),
        4.0
    );
    server.kill();
    server.restart();
    assert_eq!(value(&server, "sum_over_time(c_total[1m])", 2), "11");
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    assert_eq!(write(&server, &body(&[(up, &[1.0, 7.0, 3.0, stale])])).status, 204);
    assert_eq!(vector(&server, "c_total", 3), []);
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 0);
}

#[test]
fn a_series_that_is_sent_again_and_again_stays_one_whatever_its_samples_do() {
    let server = Server::start(&[]);
    let labels: &[(&str, &str)] = &[("__name__", "power"), ("job", "a")];
    let send = |points: &[(i64, f64)]| {
        let mut writer = RequestWriter::new();
        let points: Vec<Point> =
            points.iter().map(|(s, value)| Point { time_ms: T0_MS + s * 1_000, value: *value }).collect();
        writer.series(labels.iter().copied(), &points);
        let answer = write(&server, &writer.finish().unwrap());
        assert_eq!(answer.status, 204);
        let count = format!("x-prometheus-remote-write-samples-written: {}", points.len());
        assert!(answer.head.contains(&count), "{}", answer.head);
    };
    // By name, by name with its number learnt, then by what was learnt.
    send(&[(0, 1.0)]);
    send(&[(10, 2.0)]);
    send(&[(20, 3.0)]);
    // Twice the same, one before all others, one in between, another value, all in one and unsorted.
    send(&[(20, 3.0), (-5, 0.5), (15, 2.5), (10, 2.25), (30, 4.0), (30, 4.5)]);
    send(&[(40, 5.0)]);
    assert_eq!(value(&server, "count(power)", 40), "1");
    assert_eq!(value(&server, "count_over_time(power[2m])", 60), "7");
    assert_eq!(value(&server, "sum_over_time(power[2m])", 60), "18.75");
}

#[test]
fn what_can_not_be_kept_is_a_400_that_says_so_and_the_rest_is_kept() {
    let server = Server::start(&[]);
    let labels: Vec<String> = (0..31).map(|n| format!("l{n:02}")).collect();
    let many: Vec<(&str, &str)> =
        [("__name__", "wide")].into_iter().chain(labels.iter().map(|l| (l.as_str(), "v"))).collect();
    let answer = write(
        &server,
        &body(&[
            (&[("__name__", "good"), ("run", "x")], &[1.0, 2.0]),
            (&[("__name__", "bad"), ("trace_id", "1")], &[1.0]),
            (&many, &[1.0, 2.0, 3.0]),
        ]),
    );
    assert_eq!((answer.status, answer.error_code()), (400, "bad_request".to_owned()));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("1 refused (label_refused)") && message.contains("3 refused (label_count)"),
        "{message}"
    );
    assert!(answer.head.contains("x-prometheus-remote-write-samples-written: 2"), "{}", answer.head);
    assert_eq!(names(&server, "/api/v1/label/__name__/values"), ["good"]);
    assert_eq!(names(&server, "/api/v1/labels"), ["__name__", "exported_run"]);
    assert_eq!(
        server.metric("truegauge_ingest_rejected_total{door=\"remote_write\",reason=\"label_count\"}"),
        3.0
    );
    let far = RequestWriter::new();
    let mut far = far;
    far.series(
        [("__name__", "far")],
        &[Point { time_ms: i64::MAX, value: 1.0 }, Point { time_ms: i64::MIN, value: 1.0 }],
    );
    let answer = write(&server, &far.finish().unwrap());
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("time_out_of_range"));
}

#[test]
fn bodies_that_lie_change_nothing() {
    let server = Server::start(&[]);
    let good: &[(&str, &str)] = &[("__name__", "good")];
    let check = |body: &[u8], want: u16| {
        let answer = write(&server, body);
        assert_eq!(answer.status, want, "{}", String::from_utf8_lossy(&answer.body));
        answer.error_code();
        assert!(answer.head.contains("x-prometheus-remote-write-samples-written: 0"), "{}", answer.head);
    };
    check(&body(&[(good, &[1.0]), (&[("__name__", "m"), ("a", "1"), ("a", "2")], &[1.0])]), 400);
    check(&body(&[(good, &[1.0]), (&[("a", "1")], &[1.0])]), 400);
    check(b"no snappy at all", 400);
    check(b"\xff\xff\xff\xff\x0f\x00", 413);
    check(b"\x80\x80\x80\x08\x00a", 400);
    check(&snappy(b"\x0a\xff\xff\xff\xff\x0f"), 400);
    let mut cut = body(&[(good, &[1.0, 2.0])]);
    cut.truncate(cut.len() - 3);
    check(&cut, 400);
    let other = |kind: &str, packing: &str| {
        let headers = [("content-type", kind), ("content-encoding", packing)];
        server.ask("POST", "/api/v1/write", &headers, &body(&[(good, &[1.0])])).status
    };
    assert_eq!(
        [
            other("application/json", "snappy"),
            other("application/x-protobuf;proto=x", "snappy"),
            other(CONTENT_TYPE, "gzip")
        ],
        [415; 3]
    );
    let long = format!(
        "POST /api/v1/write HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n",
        server.address()
    );
    assert_eq!(server.raw(long.as_bytes()).status, 413);
    assert_eq!(server.get("/api/v1/labels")["data"], json!([]));
    assert_eq!(server.metric("truegauge_ingest_samples_total{door=\"remote_write\"}"), 0.0);
}

#[test]
fn a_full_disk_and_a_missing_token_refuse_remote_write() {
    let series: &[(&str, &str)] = &[("__name__", "m")];
    let full = Server::start(&["--reserve-bytes", "1000TiB"]);
    let answer = write(&full, &body(&[(series, &[1.0])]));
    assert_eq!((answer.status, answer.error_code()), (503, "unavailable".to_owned()));
    assert!(answer.head.contains("retry-after: "), "{}", answer.head);
    assert_eq!(full.metric("truegauge_ingest_requests_total{door=\"remote_write\",outcome=\"full\"}"), 1.0);
    let guarded = Server::start(&["--token", "secret"]);
    assert_eq!(write(&guarded, &body(&[(series, &[1.0])])).status, 401);
}

#[derive(Clone, PartialEq, Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    series: Vec<Series2>,
}

#[derive(Clone, PartialEq, Message)]
struct Series2 {
    #[prost(uint32, repeated, tag = "1")]
    labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample2>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample2 {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    time_ms: i64,
}

#[test]
fn version_2_is_taken_and_told_what_was_written() {
    let server = Server::start(&[]);
    let samples =
        vec![Sample2 { value: 5.0, time_ms: T0_MS }, Sample2 { value: 6.0, time_ms: T0_MS + 1_000 }];
    let symbols = ["", "__name__", "m", "h"].map(str::to_owned).to_vec();
    let series = Series2 { labels: vec![1, 2], samples, histograms: Vec::new() };
    let headers = [
        ("content-type", &*format!("{CONTENT_TYPE};proto={PROTO_2}")),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "2.0.0"),
    ];
    let mut request = Request2 { symbols, series: vec![series] };
    let answer = server.ask("POST", "/api/v1/write", &headers, &snappy(&request.encode_to_vec()));
    assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    for word in ["samples-written: 2", "histograms-written: 0", "exemplars-written: 0"] {
        assert!(answer.head.contains(&format!("x-prometheus-remote-write-{word}")), "{}", answer.head);
    }
    assert_eq!(value(&server, "m", 1), "6");
    request.series.push(Series2 { labels: vec![1, 3], samples: Vec::new(), histograms: vec![Vec::new()] });
    let answer = server.ask("POST", "/api/v1/write", &headers, &snappy(&request.encode_to_vec()));
    assert_eq!(answer.status, 400);
    assert!(
        answer.json()["error"]["message"].as_str().unwrap().contains("native_histogram"),
        "{}",
        answer.json()
    );
    assert!(answer.head.contains("x-prometheus-remote-write-samples-written: 2"), "{}", answer.head);
}

/// A target whose page can be changed.
struct Target {
    url: String,
    page: Arc<Mutex<String>>,
}

impl Target {
    fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let page = Arc::new(Mutex::new(page.to_owned()));
        let shown = Arc::clone(&page);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut head = [0; 4_096];
                let _ = stream.read(&mut head);
                let page = shown.lock().unwrap().clone();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                    page.len()
                );
            }
        });
        Self { url, page }
    }

    fn set(&self, page: &str) {
        page.clone_into(&mut self.page.lock().unwrap());
    }
}

/// Asks a query now; the values.
fn now(server: &Server, query: &str) -> Vec<String> {
    let answer = server.get(&format!("/api/v1/query?query={}", escape(query)));
    let rows = answer["data"]["result"].as_array().unwrap();
    rows.iter().map(|row| row["value"][1].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pages_are_scraped_and_what_vanishes_from_them_ends() {
    let target =
        Target::start("# HELP g Things.\n# TYPE g gauge\ng{a=\"x\"} 1\ng{a=\"y\",project=\"mine\"} 2\n");
    let server = Server::start(&["--scrape", &target.url, "--scrape-interval", "100ms"]);
    eventually("it is scraped", || (now(&server, "count_over_time(up[1m]) >= 3").len() == 1).then_some(()));
    assert_eq!(now(&server, "up == 1").len(), 1);
    assert_eq!(now(&server, "scrape_samples_scraped"), ["2"]);
    assert_eq!(now(&server, "g{job=\"scrape\",exported_project=\"mine\"}"), ["2"]);
    assert_eq!(
        server.get("/api/v1/metadata?metric=g")["data"]["g"][0],
        json!({"type": "gauge", "help": "Things.", "unit": ""})
    );
    let targets = server.get("/api/v1/targets?state=active");
    let active = &targets["data"]["activeTargets"][0];
    assert_eq!(
        (&active["health"], &active["scrapeUrl"], &active["scrapePool"]),
        (&json!("up"), &json!(target.url), &json!("scrape"))
    );
    assert_eq!(active["scrapeInterval"], "100ms");
    target.set("g{a=\"x\"} 5\n");
    eventually("the vanished series ends", || (now(&server, "g") == ["5"]).then_some(()));
    target.set("g 1 2 3 4\n");
    eventually("the target is down", || (now(&server, "up") == ["0"]).then_some(()));
    assert_eq!(now(&server, "g"), [""; 0]);
    // The samples of a scrape are there a moment before its target's row is.
    eventually("the list says why", || {
        let targets = server.get("/api/v1/targets");
        targets["data"]["activeTargets"][0]["lastError"].as_str().unwrap().contains("line 1").then_some(())
    });
    assert!(server.metric("truegauge_ingest_samples_total{door=\"scrape\"}") >= 20.0);
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 0);
}

#[test]
fn targets_come_from_a_prometheus_configuration_too() {
    let target = Target::start("m{secret=\"s\"} 1\nnoise 1\n");
    let address = target.url.trim_start_matches("http://").trim_end_matches("/metrics");
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("prometheus.yml");
    std::fs::write(
        &file,
        format!(
            "global: {{scrape_interval: 200ms}}\nscrape_configs:\n- job_name: engines\n  static_configs: [{{targets: ['{address}'], labels: {{rack: r1}}}}]\n  metric_relabel_configs:\n  - {{source_labels: [__name__], regex: noise, action: drop}}\n  - {{regex: secret, action: labeldrop}}\n"
        ),
    )
    .unwrap();
    let server = Server::start(&["--scrape-config", file.to_str().unwrap(), "--scrape", &target.url]);
    eventually("both jobs are scraped", || (now(&server, "up == 1").len() == 2).then_some(()));
    assert_eq!(now(&server, "count by (rack) (m{job=\"engines\",rack=\"r1\",secret=\"\"})"), ["1"]);
    assert_eq!(now(&server, "noise{job=\"engines\"}"), [""; 0]);
    std::fs::write(&file, "scrape_configs: [{job_name: a, scrape_intervall: 1s}]").unwrap();
    let (code, _, err) =
        run(home.path(), &["up", "--listen", "127.0.0.1:0", "--scrape-config", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("prometheus.yml:1:") && err.contains("scrape_interval"), "{err}");
    let (code, _, err) = run(home.path(), &["up", "--listen", "127.0.0.1:0", "--scrape", "engine:8000"]);
    assert_eq!((code, err.contains("can't be scraped")), (2, true), "{err}");
}

#[test]
fn rules_record_and_alert_on_schedule_and_keep_their_state_over_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("rules.yml");
    let rules = "groups:\n- name: g\n  interval: 200ms\n  rules:\n  - {record: 'latest:loss', expr: 'last_over_time(loss[20y])'}\n  - {record: 'twice:loss', expr: '2 * sum(latest:loss)'}\n  - {alert: Low, expr: 'latest:loss < 1', for: 300ms, labels: {severity: page}, annotations: {summary: 'loss is {{ $value }}'}}\n  - {record: broken, expr: 'vector(1) + on() (vector(1) or label_replace(vector(2), \"a\", \"b\", \"\", \"\"))'}\n";
    std::fs::write(&file, rules).unwrap();
    let mut server = Server::start(&["--rule-files", file.to_str().unwrap()]);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[0.5, 0.25])])).0, 200);
    eventually("both are recorded", || (now(&server, "twice:loss") == ["0.5"]).then_some(()));
    assert_eq!(now(&server, "latest:loss{run=\"bar\",project=\"p\"}"), ["0.25"]);
    let alert = |server: &Server| server.get("/api/v1/alerts")["data"]["alerts"][0].clone();
    eventually("the alert fires", || (alert(&server)["state"] == "firing").then_some(()));
    let fired = alert(&server);
    assert_eq!(
        (&fired["labels"]["severity"], &fired["annotations"]["summary"], &fired["value"]),
        (&json!("page"), &json!("loss is 0.25"), &json!("2.5e-01"))
    );
    eventually("it is a series", || {
        (now(&server, "ALERTS{alertname=\"Low\",alertstate=\"firing\"}") == ["1"]).then_some(())
    });
    let groups = server.get("/api/v1/rules")["data"]["groups"].clone();
    let health: Vec<&Value> =
        groups[0]["rules"].as_array().unwrap().iter().map(|rule| &rule["health"]).collect();
    assert_eq!(health, ["ok", "ok", "ok", "err"], "{groups}");
    assert!(
        groups[0]["rules"][3]["lastError"].as_str().unwrap().contains("many-to-many")
            || groups[0]["rules"][3]["lastError"].as_str().unwrap().contains("duplicate"),
        "{groups}"
    );
    assert_eq!(
        server.get("/api/v1/rules?type=alert")["data"]["groups"][0]["rules"].as_array().unwrap().len(),
        1
    );
    let stopped = std::time::Instant::now();
    assert_eq!(server.terminate(), 0);
    eventually("some evaluations are missed", || (stopped.elapsed().as_millis() > 1_500).then_some(()));
    server.restart();
    eventually("the alert is there again", || (alert(&server)["state"] == "firing").then_some(()));
    assert_eq!(alert(&server)["activeAt"], fired["activeAt"]);
    eventually("what was missed is made up for", || {
        let window = stopped.elapsed().as_millis();
        let count = now(&server, &format!("count_over_time(twice:loss[{window}ms])"));
        let count: u128 = count.first()?.parse().ok()?;
        (count + 2 >= window / 200).then_some(())
    });
    assert_eq!(server.ask("DELETE", &format!("/api/tg/v1/runs/{}", id("bar")), &[], b"").status, 200);
    eventually("what came of a deleted run ends", || now(&server, "twice:loss").is_empty().then_some(()));
    server.terminate();
    std::fs::write(&file, "groups: [{name: g, rules: [{record: a, expr: 'sum('}]}]").unwrap();
    let (code, _, err) =
        run(home.path(), &["up", "--listen", "127.0.0.1:0", "--rule-files", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("rules.yml` can't be used: 1: ") && err.contains("rules check"), "{err}");
}

struct Prometheus(Child, String);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prometheus {
    /// Debian's Prometheus that scrapes itself and writes to `server`.
    fn start(home: &std::path::Path, server: &Server) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let file = home.join("p.yml");
        std::fs::write(&file, format!("global: {{scrape_interval: 250ms}}\nscrape_configs: [{{job_name: self, static_configs: [{{targets: ['{address}']}}]}}]\nremote_write: [{{url: '{}/api/v1/write', queue_config: {{batch_send_deadline: 200ms}}, metadata_config: {{send_interval: 1s}}}}]\n", server.url)).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", home.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
        Self(child.unwrap(), address)
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = std::net::TcpStream::connect(&self.1).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.1).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

/// The rows of an answer by their labels.
fn rows(answer: &Value) -> BTreeMap<String, Value> {
    let rows = answer["data"]["result"].as_array().unwrap();
    rows.iter()
        .map(|row| (row["metric"].to_string(), row.get("value").unwrap_or(&row["values"]).clone()))
        .collect()
}

#[test]
fn debians_prometheus_writes_here_and_both_answer_alike() {
    let server = Server::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(home.path(), &server);
    eventually("it scraped itself a while", || {
        (now(&server, "count_over_time(up[1m]) >= 12").len() == 1).then_some(())
    });
    let last = now(&server, "timestamp(up)")[0].parse::<f64>().unwrap();
    // Between two samples, so that no window's edge meets one: 2.42 has closed windows.
    let time = format!("{:.3}", last - 0.4);
    assert!(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() > last - 0.4);
    let mut compared = 0;
    for query in [
        "up",
        "sum by (handler) (prometheus_http_requests_total)",
        "{__name__=~\"go_.*\"}",
        "rate(prometheus_tsdb_head_samples_appended_total[2s])",
        "histogram_quantile(0.9, rate(prometheus_http_request_duration_seconds_bucket[2s]))",
        "topk(3, go_memstats_alloc_bytes) / on (instance) group_left go_goroutines",
        "avg_over_time(go_goroutines[1500ms])",
        "count({job=\"self\"})",
        "prometheus_build_info * on (instance) group_right process_open_fds",
    ] {
        let path = format!("/api/v1/query?query={}&time={time}", escape(query));
        let (theirs, ours) = (prometheus.get(&path).unwrap(), server.get(&path));
        let (theirs, ours) = (rows(&theirs), rows(&ours));
        assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>(), "{query}");
        for (labels, point) in &theirs {
            let number = |point: &Value| point[1].as_str().unwrap().parse::<f64>().unwrap();
            let (theirs, ours) = (number(point), number(&ours[labels]));
            let close = (theirs - ours).abs() <= 1e-9 * theirs.abs() || (theirs.is_nan() && ours.is_nan());
            assert!(close, "{query} {labels}: {theirs} there, {ours} here");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
    let kinds = |answer: Value| answer["data"]["go_goroutines"][0]["type"].clone();
    eventually("what metrics are has come", || {
        (kinds(server.get("/api/v1/metadata?metric=go_goroutines")) == "gauge").then_some(())
    });
}
