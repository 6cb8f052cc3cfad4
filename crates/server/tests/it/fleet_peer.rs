//! A node as its agent tells of it, and what the server answers about the fleet.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{NANOS_PER_SECOND, Sample, Severity};
use prost::Message;
use serde_json::{Value, json};
use server::{Config, Running};
use wire::push::{Node, PushRequest, PushResponse, Series};

use crate::metrana::config;
use crate::otlp_peer::{post, send};

/// A server with a directory of its own.
pub(crate) struct Site {
    running: Option<Running>,
    config: Config,
    _folder: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        change(&mut config);
        let running = Some(server::start(config.clone()).unwrap());
        Self { running, config, _folder: folder }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().addr
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.config.data_dir.clone()
    }

    /// Stops the server.
    pub(crate) fn stop(&mut self) {
        drop(self.running.take());
    }

    /// Stops the server and starts it again on the same directory.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.running = Some(server::start(self.config.clone()).unwrap());
    }

    /// An answer of the API.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = send(self.address(), "GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Status and answer to one that shows a token.
    pub(crate) fn get_as(&self, token: &str, path: &str) -> (u16, Value) {
        let bearer = format!("Bearer {token}");
        let answer = send(self.address(), "GET", path, &[("authorization", &bearer)], b"");
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    /// What PromQL answers now, as labels and value.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let answer = self.get(&format!("/api/v1/query?query={}", escaped(query)));
        let rows = answer["data"]["result"].as_array().unwrap().clone();
        let row = |row: &Value| (row["metric"].clone(), row["value"][1].as_str().unwrap().parse().unwrap());
        rows.iter().map(row).collect()
    }
}

static SENT: AtomicU64 = AtomicU64::new(1);

/// An agent of a node.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) host: String,
    pub(crate) id: u8,
    pub(crate) token: Option<String>,
}

impl Agent {
    pub(crate) fn of(host: &str) -> Self {
        let id = host.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        Self { host: host.to_owned(), id, token: None }
    }

    pub(crate) fn push(&self, site: &Site, series: Vec<Series>, events: &[model::Event]) -> PushResponse {
        let request = PushRequest {
            client_id: vec![self.id; 16],
            sequence: SENT.fetch_add(1, Ordering::Relaxed),
            node: Some(Node {
                host: self.host.clone(),
                boot_id: "0123456789abcdef0123456789abcdef".into(),
                agent_version: "0.1.0".into(),
                pid: 1,
                interval_ms: 10_000,
                agent_id: vec![self.id; 16],
                ..Node::default()
            }),
            series,
            events: events.iter().map(Into::into).collect(),
            ..PushRequest::default()
        };
        self.deliver(site, &request)
    }

    pub(crate) fn deliver(&self, site: &Site, request: &PushRequest) -> PushResponse {
        let body = request.encode_to_vec();
        let answer = match &self.token {
            None => post(site.address(), "/api/tg/v1/push", wire::push::CONTENT_TYPE, &body),
            Some(token) => {
                let bearer = format!("Bearer {token}");
                let headers = [("content-type", wire::push::CONTENT_TYPE), ("authorization", &bearer)];
                send(site.address(), "POST", "/api/tg/v1/push", &headers, &body)
            }
        };
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        PushResponse::decode(&answer.body[..]).unwrap()
    }

    /// A series of this node with one value at a time.
    pub(crate) fn series(&self, name: &str, labels: &[(&str, &str)], at: &[(i64, f64)]) -> Series {
        let host = [("host", self.host.as_str())];
        let labels: Vec<(String, String)> = host
            .iter()
            .chain(labels)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let samples: Vec<Sample> = at
            .iter()
            .map(|(time_ns, value)| Sample { time_ns: *time_ns, value: *value, step: None })
            .collect();
        Series::new(name, &labels, "", &samples)
    }

    /// An event of the kernel's log.
    pub(crate) fn event(&self, time_ns: i64, kind: &str, place: &str, body: &Value) -> model::Event {
        let key = format!("boot:{}:{}:{kind}", SENT.fetch_add(1, Ordering::Relaxed), time_ns);
        let mut labels = vec![("host".to_owned(), self.host.clone()), ("source".into(), "kernel".into())];
        if !place.is_empty() {
            labels.push(("pci_bus_id".into(), place.into()));
        }
        let text = format!("{kind} {place} {body}");
        let (kind, severity) = (kind.to_owned(), Severity::Warning);
        model::Event { time_ns, kind, severity, key, labels, text, body: body.to_string() }
    }

    pub(crate) fn xid(&self, time_ns: i64, place: &str, xid: u32) -> model::Event {
        self.event(time_ns, "xid", place, &json!({ "xid": xid, "count": 1 }))
    }
}

/// The same event under another label.
pub(crate) fn with(mut event: model::Event, name: &str, value: &str) -> model::Event {
    event.labels.retain(|(label, _)| label != name);
    event.labels.push((name.to_owned(), value.to_owned()));
    event
}

/// A text as a query string has it.
pub(crate) fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// A whole second not long ago.
pub(crate) fn lately() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    (now as i64 - 20) * NANOS_PER_SECOND
}
