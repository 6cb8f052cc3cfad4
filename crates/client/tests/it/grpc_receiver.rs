//! An OTLP backend over gRPC that can misbehave, with or without TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use h2::server::SendResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use ureq::http::{HeaderMap, Request, Response};

use crate::receiver::unpacked;

/// What it does with a call.
#[derive(Debug, Clone, Default)]
pub(crate) enum Manner {
    /// Takes it, and answers with this message.
    #[default]
    Take,
    TakeAndSay(Vec<u8>),
    /// Answers with this code and metadata, and takes nothing.
    Code(u32, Vec<(&'static str, String)>),
    /// Takes it, answers, and closes the connection.
    TakeAndClose,
    /// Never answers.
    Hang,
}

#[derive(Default)]
pub(crate) struct Seen {
    manner: Manner,
    pub(crate) metrics: Vec<ExportMetricsServiceRequest>,
    pub(crate) traces: Vec<ExportTraceServiceRequest>,
    pub(crate) calls: u64,
    pub(crate) connections: u64,
    pub(crate) headers: HeaderMap,
}

pub(crate) struct GrpcReceiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl GrpcReceiver {
    pub(crate) fn start(tls: Option<TlsAcceptor>) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = accept(listener, tls, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, seen, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn set(&self, manner: Manner) {
        self.seen().manner = manner;
    }
}

impl Drop for GrpcReceiver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, seen: Arc<Mutex<Seen>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, tls) = (Arc::clone(&seen), tls.clone());
        seen.lock().unwrap().connections += 1;
        tokio::spawn(async move {
            match tls {
                None => serve(stream, seen).await,
                // A client that does not believe us hangs up.
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, seen).await,
                    Err(_) => Some(()),
                },
            }
        });
    }
}

/// None when the other side went.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Mutex<Seen>>) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    while let Some(call) = connection.accept().await {
        let (request, answer) = call.ok()?;
        let seen = Arc::clone(&seen);
        let is_last = matches!(seen.lock().unwrap().manner, Manner::TakeAndClose);
        tokio::spawn(async move { answer_call(request, answer, &seen).await });
        if is_last {
            connection.graceful_shutdown();
        }
    }
    Some(())
}

async fn answer_call(
    request: Request<h2::RecvStream>,
    mut answer: SendResponse<Bytes>,
    seen: &Mutex<Seen>,
) -> Option<()> {
    let (head, mut stream) = request.into_parts();
    let mut framed = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part.ok()?;
        stream.flow_control().release_capacity(part.len()).ok()?;
        framed.extend_from_slice(&part);
    }
    assert_eq!(head.headers["content-type"], "application/grpc");
    let length = u32::from_be_bytes(framed[1..5].try_into().unwrap()) as usize;
    assert_eq!(framed.len(), length + 5);
    let is_packed = framed[0] == 1;
    assert_eq!(is_packed, head.headers.get("grpc-encoding").is_some_and(|encoding| encoding == "gzip"));
    let body = if is_packed { unpacked(&framed[5..]) } else { framed[5..].to_vec() };
    let manner = {
        let mut seen = seen.lock().unwrap();
        seen.calls += 1;
        seen.headers = head.headers;
        seen.manner.clone()
    };
    if matches!(manner, Manner::Take | Manner::TakeAndSay(_) | Manner::TakeAndClose) {
        take(head.uri.path(), &body, &mut seen.lock().unwrap());
    }
    let ok = || Response::builder().header("content-type", "application/grpc");
    let mut trailers = HeaderMap::new();
    match manner {
        Manner::Hang => std::future::pending::<()>().await,
        Manner::Code(code, metadata) => {
            let mut head = ok().header("grpc-status", code);
            for (name, value) in metadata {
                head = head.header(name, value);
            }
            answer.send_response(head.body(()).unwrap(), true).ok()?;
            return Some(());
        }
        Manner::TakeAndSay(message) => reply(&mut answer, ok().body(()).unwrap(), &message, &mut trailers)?,
        _ => reply(&mut answer, ok().body(()).unwrap(), &[], &mut trailers)?,
    }
    Some(())
}

fn reply(
    answer: &mut SendResponse<Bytes>,
    head: Response<()>,
    message: &[u8],
    trailers: &mut HeaderMap,
) -> Option<()> {
    let mut stream = answer.send_response(head, false).ok()?;
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    stream.send_data(framed.into(), false).ok()?;
    trailers.insert("grpc-status", "0".parse().unwrap());
    stream.send_trailers(std::mem::take(trailers)).ok()
}

fn take(path: &str, body: &[u8], seen: &mut Seen) {
    match path {
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => {
            seen.metrics.push(Message::decode(body).unwrap());
        }
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
            seen.traces.push(Message::decode(body).unwrap());
        }
        other => assert_eq!(other, "/opentelemetry.proto.collector.logs.v1.LogsService/Export"),
    }
}
