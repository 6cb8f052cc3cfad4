//! Remote write with Debian's Prometheus: it takes what is written, and what it sends is read.
//!
//! Without its program on this machine there is nobody to talk to, and the tests say nothing.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::MetricKind;
use wire::remote_write::{
    Item, Metadata, Point, RequestWriter, VERSION_1, Version, decompress, read, version,
};

/// Longest wait for something that should happen soon.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running Prometheus, ended with the test.
struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts it on a configuration in which `SELF` stands for its own address.
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let file = folder.path().join("p.yml");
        std::fs::write(&file, config.replace("SELF", &address)).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-remote-write-receiver")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
        Self { child: child.unwrap(), address, _folder: folder }
    }

    /// Sends a request and returns the whole answer; none while nobody listens.
    fn ask(&self, head: &str, body: &[u8]) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n", body.len()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

fn wait<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_written_arrives_in_a_prometheus() {
    let far = Prometheus::start("{}");
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut writer = RequestWriter::new();
    let samples = [Point { time_ms: now_ms - 1000, value: 1.5 }, Point { time_ms: now_ms, value: -0.0 }];
    writer.series([("__name__", "sent"), ("text", "a\"ü\n")], &samples);
    let stale = Point { time_ms: now_ms, value: model::stale_marker() };
    writer.series([("__name__", "ended")], &[Point { time_ms: now_ms - 1000, value: 7.0 }, stale]);
    writer.metadata(&Metadata { metric: "sent", kind: MetricKind::Gauge, help: "x", unit: "" });
    let body = writer.finish().unwrap();
    let head = format!(
        "POST /api/v1/write HTTP/1.0\r\ncontent-type: application/x-protobuf\r\ncontent-encoding: snappy\r\nx-prometheus-remote-write-version: {VERSION_1}"
    );
    let answer = wait("answer to the write", || far.ask(&head, &body).filter(|a| !a.contains(" 503 ")));
    assert!(answer.starts_with("HTTP/1.0 204 "), "{answer}");
    let query = |query: &str| far.ask(&format!("GET /api/v1/query?query={query} HTTP/1.0"), b"").unwrap();
    let sent = query("sent[1m]");
    assert!(sent.contains(r#""metric":{"__name__":"sent","text":"a\"ü\n"}"#), "{sent}");
    assert!(sent.contains(r#","1.5"],["#) && sent.contains(r#","-0"]]"#), "{sent}");
    assert!(query("ended").contains(r#""result":[]"#), "{}", query("ended"));
    assert!(query("ended[1m]").contains(r#","7"]]"#), "{}", query("ended[1m]"));
}

#[test]
fn what_a_prometheus_sends_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: own, static_configs: [{{targets: [SELF]}}]}}]\nremote_write: [{{url: 'http://{}/w', queue_config: {{batch_send_deadline: 200ms}}, metadata_config: {{send_interval: 1s}}}}]\n",
        listener.local_addr().unwrap()
    );
    let _near = Prometheus::start(&config);
    let (mut names, mut described) = (BTreeSet::new(), BTreeSet::new());
    let started = Instant::now();
    while !(names.contains("up") && names.len() > 100 && described.len() > 100) {
        assert!(started.elapsed() < PATIENCE, "{} names, {} described", names.len(), described.len());
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        // One request a connection: the answer closes it.
        let (mut length, mut content_type) = (0, String::new());
        for line in stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            match name.to_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "content-type" => value.clone_into(&mut content_type),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(version(&content_type).unwrap(), Version::V1);
        let plain = decompress(&body).unwrap();
        read(Version::V1, &plain, |item| match item {
            Item::Series(series) => {
                assert!(!series.samples.is_empty());
                let name = series.labels.iter().find(|(name, _)| *name == "__name__").unwrap().1;
                names.insert(name.to_owned());
            }
            Item::Metadata(metadata) => _ = described.insert(metadata.metric.to_owned()),
        })
        .unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
    }
}
