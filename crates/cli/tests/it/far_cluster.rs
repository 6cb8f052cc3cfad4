//! A far storage for tests: Debian's Prometheus with its receiver of remote write.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

use crate::process::{DEADLINE, Server, eventually};
use crate::prometheus::escape;

/// Takes samples however late they come.
pub(crate) const ANY_TIME: &str = "10y";

/// A Prometheus that can be killed and started again on its data.
pub(crate) struct Cluster {
    pub(crate) url: String,
    home: TempDir,
    port: u16,
    child: Option<Child>,
    arguments: Vec<String>,
}

/// A port that stays free while the cluster is away: the system hands out those above 32,768.
fn free_port() -> u16 {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id().wrapping_mul(16).wrapping_add(TRIES.fetch_add(1, Ordering::Relaxed));
    std::iter::repeat_with(|| 20_000 + (next() % 12_000) as u16)
        .take(12_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Now, milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

impl Cluster {
    /// Starts one that takes samples as late as `window` says.
    pub(crate) fn start(window: &str) -> Self {
        let mut cluster = Self::prepared(window);
        cluster.again();
        eventually("the far storage is ready", || cluster.is_ready().then_some(()));
        cluster
    }

    /// One that is not started yet.
    pub(crate) fn prepared(window: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let cluster = Self { url, home, port, child: None, arguments: Vec::new() };
        cluster.set_window(window);
        cluster
    }

    /// Has it serve by a file of its settings for the web: TLS, passwords.
    pub(crate) fn set_web(&mut self, text: &str) {
        fs::write(self.path("web.yml"), text).unwrap();
        self.arguments.push(format!("--web.config.file={}", self.path("web.yml").display()));
        self.url = self.url.replace("http://", "https://");
    }

    /// Sets how late samples may come, from the next start on.
    pub(crate) fn set_window(&self, window: &str) {
        let text = format!("storage: {{tsdb: {{out_of_order_time_window: {window}}}}}\n");
        fs::write(self.path("p.yml"), text).unwrap();
    }

    /// Sets all of its configuration, from the next start on.
    pub(crate) fn set_config(&self, text: &str) {
        fs::write(self.path("p.yml"), text).unwrap();
    }

    /// The answer to a question of its API; null while it has none.
    pub(crate) fn ask(&self, path: &str) -> Value {
        let answer = self.raw("GET", path, &[], b"");
        answer.and_then(|(_, body)| serde_json::from_slice(&body).ok()).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts it on what it has.
    pub(crate) fn again(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", self.path("p.yml").display()))
            .arg(format!("--storage.tsdb.path={}", self.path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .args(["--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
        self.child = child.ok();
    }

    fn is_ready(&self) -> bool {
        self.raw("GET", "/-/ready", &[], b"").is_some_and(|(status, _)| status == 200)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        // HTTP/1.0: the answer ends with the connection, in one piece.
        let mut head = format!("{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let split = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let status = String::from_utf8_lossy(&bytes[..split]).split(' ').nth(1)?.parse().ok()?;
        Some((status, bytes[split + 4..].to_vec()))
    }

    /// The result of a query at a time in seconds.
    pub(crate) fn query(&self, query: &str, time: f64) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}&time={time}", escape(query));
        let Some((_, body)) = self.raw("GET", &path, &[], b"") else { return Vec::new() };
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// The one value of a query at a time in seconds, as text.
    pub(crate) fn value(&self, query: &str, time: f64) -> Option<String> {
        match self.query(query, time).as_slice() {
            [one] => Some(one["value"][1].as_str()?.to_owned()),
            _ => None,
        }
    }

    /// Writes samples to it past our server.
    pub(crate) fn write(&self, labels: &[(&str, &str)], points: &[(i64, f64)]) -> u16 {
        let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
        let answer = self.raw("POST", "/api/v1/write", &headers, &body(labels, points));
        answer.map_or(0, |(status, _)| status)
    }

    /// Settings of a server before it.
    pub(crate) fn settings(&self) -> Vec<String> {
        [
            ("--storage-kind", "prometheus".to_owned()),
            ("--storage-write-url", format!("{}/api/v1/write", self.url)),
            ("--storage-query-url", self.url.clone()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .chain(["--own-metrics=false".to_owned(), "--starter-rules=false".to_owned()])
        .collect()
    }

    /// A server before it.
    pub(crate) fn server(&self, further: &[&str]) -> Server {
        let settings = self.settings();
        let all: Vec<&str> = settings.iter().map(String::as_str).chain(further.iter().copied()).collect();
        Server::start(&all)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A version 1.0 body with one series.
pub(crate) fn body(labels: &[(&str, &str)], points: &[(i64, f64)]) -> Vec<u8> {
    let mut writer = RequestWriter::new();
    let points: Vec<Point> =
        points.iter().map(|(time_ms, value)| Point { time_ms: *time_ms, value: *value }).collect();
    writer.series(labels.iter().copied(), &points);
    writer.finish().unwrap()
}

/// Writes samples to our server; the status.
pub(crate) fn write(server: &Server, labels: &[(&str, &str)], points: &[(i64, f64)]) -> u16 {
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    server.ask("POST", "/api/v1/write", &headers, &body(labels, points)).status
}

/// Waits until nothing waits any more.
pub(crate) fn drained(server: &Server) {
    eventually("the queue is empty", || {
        let far = &server.get("/api/tg/v1/storage")["far"];
        (far["queue"]["samples"] == 0 && far["queue"]["bytes"] == 0 && far["failing"].is_null()).then_some(())
    });
}

/// A server on its own store alone, and one before a far storage: what holds for one holds for both.
pub(crate) fn both() -> [(Option<Cluster>, Server); 2] {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    [(None, Server::start(&[])), (Some(cluster), server)]
}
