//! Speaks OTLP by hand, over HTTP and gRPC, so that a test can send what no client would.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use server::Running;
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::ReceiverStream;

use crate::metrana::World;

/// 2026-01-01, nanoseconds since the epoch.
pub(crate) const T0_NS: u64 = 1_767_225_600_000_000_000;
/// Content types.
pub(crate) const PROTOBUF: &str = "application/x-protobuf";
pub(crate) const JSON: &str = "application/json";

/// `google.rpc.Status`, as far as it is looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.RetryInfo`, as far as it is looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetryInfo {
    #[prost(message, tag = "1")]
    pub(crate) delay: Option<Delay>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Delay {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
}

impl Status {
    /// After how many seconds to come again.
    pub(crate) fn retry_seconds(&self) -> Option<i64> {
        let info = self.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
        Some(RetryInfo::decode(&*info.value).unwrap().delay.unwrap().seconds)
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In small letters.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The failure that it tells, in whichever form it says that it is.
    pub(crate) fn failure(&self) -> Status {
        match self.header("content-type") {
            Some(PROTOBUF) => Status::decode(&*self.body).unwrap(),
            Some(JSON) => {
                let json: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
                let code = i32::try_from(json["code"].as_i64().unwrap()).unwrap();
                let details = json["details"].as_array().unwrap().iter().map(|detail| {
                    let delay = detail["retryDelay"].as_str().unwrap().trim_end_matches('s');
                    let delay = Some(Delay { seconds: delay.parse().unwrap() });
                    Any {
                        type_url: detail["@type"].as_str().unwrap().to_owned(),
                        value: RetryInfo { delay }.encode_to_vec(),
                    }
                });
                let details = details.collect();
                Status { code, message: json["message"].as_str().unwrap().to_owned(), details }
            }
            other => panic!("a failure in {other:?}: {}", self.head),
        }
    }
}

/// Sends bytes as they are and reads the answer to its end.
pub(crate) fn raw(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    read_answer(&mut stream)
}

/// Reads an answer after which the connection is closed.
pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    stream.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| {
        panic!("no answer in {:?}", String::from_utf8_lossy(&bytes));
    });
    let head = String::from_utf8_lossy(&bytes[..split]).to_ascii_lowercase();
    assert!(!head.contains("transfer-encoding"), "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes[split + 4..].to_vec() }
}

/// Sends a request with headers of its own.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\nhost: localhost\r\n");
    if !headers.iter().any(|(name, _)| *name == "content-length") {
        head.extend([format!("content-length: {}\r\n", body.len())]);
    }
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    raw(address, &[head.as_bytes(), b"\r\n", body].concat())
}

/// Posts a body in a form.
pub(crate) fn post(address: SocketAddr, path: &str, kind: &str, body: &[u8]) -> Answer {
    send(address, "POST", path, &[("content-type", kind)], body)
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: u32,
    pub(crate) words: String,
    pub(crate) message: Option<Vec<u8>>,
    pub(crate) trailers: HeaderMap,
}

impl Ended {
    async fn of(answer: hyper::Response<hyper::body::Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or(head.headers);
        let bytes = collected.to_bytes();
        let text = |name: &str| trailers.get(name).map(|value| value.to_str().unwrap().to_owned());
        Self {
            code: text("grpc-status").unwrap_or_else(|| panic!("no status: {trailers:?}")).parse().unwrap(),
            words: text("grpc-message").unwrap_or_default().replace("%20", " ").replace("%60", "`"),
            message: bytes.get(5..).map(<[u8]>::to_vec),
            trailers,
        }
    }

    fn binary(&self, name: &str) -> Option<Vec<u8>> {
        use base64::Engine;
        let value = self.trailers.get(name)?;
        let engine = base64::engine::GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            base64::engine::GeneralPurposeConfig::new()
                .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
        );
        Some(engine.decode(value.as_bytes()).unwrap())
    }

    /// After how many seconds to come again: by the details of the status, and by Python's trailer.
    pub(crate) fn retry_seconds(&self) -> (Option<i64>, Option<i64>) {
        let details = self.binary("grpc-status-details-bin");
        let trailer = self.binary("google.rpc.retryinfo-bin");
        (
            details.and_then(|bytes| Status::decode(&*bytes).unwrap().retry_seconds()),
            trailer.map(|bytes| RetryInfo::decode(&*bytes).unwrap().delay.unwrap().seconds),
        )
    }
}

/// The path of a service's call.
pub(crate) fn call_path(service: &str) -> String {
    format!("/opentelemetry.proto.collector.{service}/Export")
}

/// Starts a call whose message never ends, and waits until the server has it; its answer comes when the
/// server gives it up.
pub(crate) async fn open_call(
    address: SocketAddr,
    service: &str,
    begin: Vec<u8>,
) -> (Sender<Result<Frame<Bytes>, Infallible>>, impl Future<Output = Ended>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut call = |begin: Vec<u8>| {
        let (frames, body) = tokio::sync::mpsc::channel(1);
        frames.try_send(Ok(Frame::data(Bytes::from(begin)))).unwrap();
        let request = hyper::Request::post(format!("http://{address}{}", call_path(service)))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(ReceiverStream::new(body)))
            .unwrap();
        (frames, send.send_request(request))
    };
    let (frames, answer) = call(begin);
    // What comes behind it on the same connection is answered: the server has seen it too.
    let (whole, answered) = call(vec![0; 5]);
    drop(whole);
    assert_eq!(Ended::of(answered.await.unwrap()).await.code, 0);
    (frames, async { Ended::of(answer.await.unwrap()).await })
}

/// Calls a service with one message, of which `packing` says how it is packed.
pub(crate) async fn call(
    address: SocketAddr,
    service: &str,
    headers: &[(&str, &str)],
    (message, packing): (&[u8], Option<&str>),
) -> Ended {
    let framed =
        [&[u8::from(packing.is_some())][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = hyper::Request::post(format!("http://{address}{}", call_path(service)))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(packing) = packing {
        request = request.header("grpc-encoding", packing);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(framed))).unwrap();
    Ended::of(send.send_request(request).await.unwrap()).await
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(bytes, 1).unwrap()
}

pub(crate) fn pair(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

/// The process of a run.
pub(crate) fn resource(project: &str, run: &str) -> Resource {
    let attributes = vec![
        pair("service.name", project),
        pair("nemo.run.id", run),
        pair("service.instance.id", &format!("{run}-rank0")),
        pair("dl.rank", "0"),
    ];
    Resource { attributes, ..Resource::default() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "nemo.lens".into(), ..InstrumentationScope::default() }
}

/// Spans with ids from 1 on; an id of 0 is none.
pub(crate) fn spans(ids: &[u64]) -> Vec<Span> {
    let span = |id: &u64| Span {
        trace_id: vec![7; 16],
        span_id: id.to_be_bytes().to_vec(),
        name: "megatron.train.iteration".into(),
        start_time_unix_nano: T0_NS + id * 1_000_000,
        end_time_unix_nano: T0_NS + (id + 1) * 1_000_000,
        ..Span::default()
    };
    ids.iter().map(span).collect()
}

/// Spans of one process.
pub(crate) fn traces(resource: Resource, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let of_scope = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
    let of_resource =
        ResourceSpans { resource: Some(resource), scope_spans: vec![of_scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![of_resource] }
}

/// Log records of one process.
pub(crate) fn logs(resource: Resource, records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let of_scope = ScopeLogs { scope: Some(scope()), log_records: records, ..ScopeLogs::default() };
    let of_resource =
        ResourceLogs { resource: Some(resource), scope_logs: vec![of_scope], ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![of_resource] }
}

/// The same span as protobuf and as JSON.
pub(crate) fn one_span() -> (Vec<u8>, Vec<u8>) {
    let json = serde_json::json!({"resourceSpans": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "megatron-lm"}},
        {"key": "nemo.run.id", "value": {"stringValue": "run-a"}},
    ]}, "scopeSpans": [{"spans": [{
        "traceId": "07".repeat(16), "spanId": "0000000000000001", "name": "megatron.train.iteration",
        "startTimeUnixNano": T0_NS.to_string(), "endTimeUnixNano": (T0_NS + 1_000_000).to_string(),
    }]}]}]});
    (traces(resource("megatron-lm", "run-a"), spans(&[1])).encode_to_vec(), json.to_string().into_bytes())
}

/// Where HTTP is served.
pub(crate) fn http_doors(running: &Running) -> [SocketAddr; 2] {
    [running.addr, running.otlp_http_addr.unwrap()]
}

/// The value of one of the server's own counters.
pub(crate) async fn counted(world: &World, series: &str) -> u64 {
    let url = format!("{}/metrics", world.running.url);
    let asked = tokio::task::spawn_blocking(move || {
        ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap()
    });
    let page = asked.await.unwrap();
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
        .map_or(0, |value| value as u64)
}
