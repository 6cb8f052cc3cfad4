//! An OTLP backend over HTTP that can misbehave. What it takes is read by the messages of
//! OpenTelemetry's own project.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::{AsDouble, AsInt};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric};
use prost::Message;

use crate::peer::read_request;

/// What it does with a request.
#[derive(Debug, Clone, Default)]
pub(crate) enum Manner {
    /// Takes it.
    #[default]
    Take,
    /// Takes it and answers with these bytes.
    TakeAndSay(Vec<u8>),
    /// Answers with this status, header lines and body, and takes nothing.
    Status(u16, &'static str, Vec<u8>),
    /// Reads and does not answer, until the manner changes.
    Hang,
    /// Takes it and hangs up without a word.
    TakeAndHangUp,
}

#[derive(Default)]
pub(crate) struct Seen {
    manner: Manner,
    pub(crate) metrics: Vec<ExportMetricsServiceRequest>,
    pub(crate) traces: Vec<ExportTraceServiceRequest>,
    pub(crate) logs: Vec<ExportLogsServiceRequest>,
    /// Requests that came, whatever became of them.
    pub(crate) requests: u64,
    /// Headers of the latest.
    pub(crate) headers: std::collections::HashMap<String, String>,
    pub(crate) connections: u64,
    open: Vec<TcpStream>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut receiver = Self { address, seen: Arc::default(), stop: Arc::default(), accepting: None };
        receiver.accept(listener);
        receiver
    }

    fn accept(&mut self, listener: TcpListener) {
        let (seen, stop) = (Arc::clone(&self.seen), Arc::clone(&self.stop));
        self.accepting = Some(std::thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let mut lock = seen.lock().unwrap();
                lock.connections += 1;
                lock.open.push(connection.try_clone().unwrap());
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || converse(connection, &seen));
            }
        }));
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn set(&self, manner: Manner) {
        self.seen().manner = manner;
    }

    /// Goes away; what was taken stays.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            thread.join().unwrap();
        }
        let mut seen = self.seen();
        seen.manner = Manner::Take;
        for connection in seen.open.drain(..) {
            drop(connection.shutdown(std::net::Shutdown::Both));
        }
    }

    /// Comes back at the same address.
    pub(crate) fn start_again(&mut self) {
        self.stop.store(false, Ordering::SeqCst);
        let listener = TcpListener::bind(self.address).unwrap();
        self.accept(listener);
    }

    /// Every metric of that name, in order of arrival.
    pub(crate) fn metrics(&self, name: &str) -> Vec<Metric> {
        self.seen().metrics.iter().flat_map(metrics_of).filter(|metric| metric.name == name).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.accepting.is_some() {
            self.stop();
        }
    }
}

/// The metrics of a request.
pub(crate) fn metrics_of(request: &ExportMetricsServiceRequest) -> Vec<Metric> {
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| scope.metrics.clone()).collect()
}

/// The float of a gauge's points, with their times.
pub(crate) fn gauge(metric: &Metric) -> Vec<(f64, u64)> {
    let gauge = if let Some(metric::Data::Gauge(gauge)) = &metric.data { Some(gauge) } else { None }.unwrap();
    let value = |value| if let Some(AsDouble(value)) = value { Some(value) } else { None }.unwrap();
    gauge.data_points.iter().map(|point| (value(point.value), point.time_unix_nano)).collect()
}

/// The whole number of a sum's only point, with the time it counts from and its own.
pub(crate) fn sum(metric: &Metric) -> (i64, u64, u64) {
    let sum = if let Some(metric::Data::Sum(sum)) = &metric.data { Some(sum) } else { None }.unwrap();
    assert_eq!(sum.data_points.len(), 1);
    let point = &sum.data_points[0];
    let value = if let Some(AsInt(value)) = point.value { Some(value) } else { None }.unwrap();
    (value, point.start_time_unix_nano, point.time_unix_nano)
}

/// An attribute.
pub(crate) fn attribute(of: &[KeyValue], key: &str) -> Option<any_value::Value> {
    of.iter().find(|kv| kv.key == key).and_then(|kv| kv.value.clone()?.value)
}

/// Text as an attribute has it.
#[expect(clippy::unnecessary_wraps, reason = "as `attribute` returns it")]
pub(crate) fn text(text: &str) -> Option<any_value::Value> {
    Some(any_value::Value::StringValue(text.to_owned()))
}

/// A body that was packed with gzip.
pub(crate) fn unpacked(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap();
    plain
}

fn converse(connection: TcpStream, seen: &Mutex<Seen>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    while let Some((line, headers, body)) = read_request(&mut reader) {
        let manner = {
            let mut lock = seen.lock().unwrap();
            lock.requests += 1;
            lock.headers.clone_from(&headers);
            lock.manner.clone()
        };
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let body = match headers.get("content-encoding").map(String::as_str) {
            Some("gzip") => unpacked(&body),
            _ => body,
        };
        let (status, more, answer) = match manner {
            Manner::Take => (200, "", Vec::new()),
            Manner::TakeAndSay(bytes) => (200, "", bytes),
            Manner::Status(status, more, bytes) => (status, more, bytes),
            Manner::TakeAndHangUp => {
                take(&line, &body, &mut seen.lock().unwrap());
                return drop(writer.shutdown(std::net::Shutdown::Both));
            }
            Manner::Hang => {
                while matches!(seen.lock().unwrap().manner, Manner::Hang) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                return drop(writer.shutdown(std::net::Shutdown::Both));
            }
        };
        if status == 200 {
            take(&line, &body, &mut seen.lock().unwrap());
        }
        let head = format!("HTTP/1.1 {status} X\r\n{more}content-length: {}\r\n\r\n", answer.len());
        if writer.write_all(&[head.as_bytes(), &answer].concat()).is_err() {
            return;
        }
    }
}

fn take(line: &str, body: &[u8], seen: &mut Seen) {
    if line.contains(" /v1/metrics ") {
        seen.metrics.push(Message::decode(body).unwrap());
    } else if line.contains(" /v1/traces ") {
        seen.traces.push(Message::decode(body).unwrap());
    } else {
        assert!(line.contains(" /v1/logs "), "{line}");
        seen.logs.push(Message::decode(body).unwrap());
    }
}
