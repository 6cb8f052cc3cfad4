//! Accepts connections, and stops in an orderly way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use tower::ServiceExt;

use crate::access::Certified;
use crate::app::{App, stopped};
use crate::tls::{HANDSHAKE_TIME_MAX, PLAIN_ANSWER, Speaks, Tls, speaks_tls};

/// Connections of UI and API at once.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;
/// Connections of a door for telemetry at once: each rank of a job keeps one for as long as it runs.
pub(crate) const RANKS_CONNECTIONS_MAX: usize = 4_096;
/// Time for a request's head, and how long a connection may idle between requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// Largest request head, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long open requests may take to finish when the server stops.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// HTTP/2 streams of one connection at once; a client of ours or metrana's has one or two.
const STREAMS_MAX: u32 = 64;
/// Bytes that one stream may send ahead, and one connection.
const WINDOW_BYTES: (u32, u32) = (1 << 20, 2 << 20);
/// How long an HTTP/2 connection may be silent before it is asked whether it lives, and how long it may
/// take to answer.
const PING_TIME: Duration = Duration::from_secs(20);
/// First bytes of every HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI";
/// Told to who speaks HTTP/1 to the gRPC port.
const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"error\":{\"code\":\"bad_request\",\"message\":\"this port speaks gRPC\",\"hint\":\"UI and API are on the port of `listen`\",\"request_id\":\"\"}}";

/// Where connections come in.
#[derive(Debug)]
pub(crate) struct Door {
    /// Takes them in.
    pub(crate) listener: TcpListener,
    /// What keys are agreed on with, if with any.
    pub(crate) tls: Option<Tls>,
    /// What is spoken.
    pub(crate) speaks: Speaks,
    /// Connections open at once; further ones wait in the system's queue.
    pub(crate) connections_max: usize,
}

/// Serves until `stopping` turns true and open requests are done, or their time is up.
pub(crate) async fn serve(door: Door, router: Router, app: App, stopping: watch::Receiver<bool>) {
    let Door { listener, tls, speaks, connections_max } = door;
    let slots = Arc::new(Semaphore::new(connections_max));
    let (open, mut all_closed) = tokio::sync::mpsc::channel::<()>(1);
    let mut stop = stopping.clone();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stopped(&mut stop) => break,
        };
        let Ok(slot) = slot else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or the peer was gone already: neither is fatal.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (router, app, stopping, open) =
            (router.clone(), Arc::clone(&app), stopping.clone(), open.clone());
        let tls = tls.clone();
        tokio::spawn(async move {
            app.metrics.connections.fetch_add(1, Ordering::Relaxed);
            match tls {
                None if speaks == Speaks::Http2 => http2(stream, router, stopping).await,
                None => connection(stream, None, router, stopping).await,
                Some(tls) => secure(stream, (&tls, speaks), router, stopping).await,
            }
            app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
            drop((slot, open));
        });
    }
    drop((listener, open));
    let _ = tokio::time::timeout(STOP_TIME_MAX, all_closed.recv()).await;
}

/// Answers plain HTTP, once its head was taken in: what is left unread would cut the answer off.
async fn answer_plainly(stream: &TcpStream, answer: &[u8]) {
    let mut head = [0; 4_096];
    while stream.try_read(&mut head).is_ok_and(|read| read == head.len()) {}
    if stream.writable().await.is_ok() {
        let _ = stream.try_write(answer);
    }
}

/// Whether who connects speaks HTTP/2, by the first bytes; `None` when too few came.
async fn speaks_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let peeked = stream.peek(&mut first).await.ok()?;
        if first[..peeked] != HTTP2_PREFACE[..peeked] {
            return Some(false);
        }
        match peeked {
            0 => return None,
            all if all == first.len() => return Some(true),
            // What is there already is readable, so waiting for more has no event to wait for.
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Serves HTTP/2 without TLS. Who speaks HTTP/1 is told so.
async fn http2(stream: TcpStream, router: Router, mut stopping: watch::Receiver<bool>) {
    let first = tokio::select! {
        first = tokio::time::timeout(HEAD_TIME_MAX, speaks_http2(&stream)) => first.ok().flatten(),
        () = stopped(&mut stopping) => None,
    };
    match first {
        Some(true) => connection2(stream, None, router, stopping).await,
        Some(false) => answer_plainly(&stream, HTTP1_ANSWER).await,
        None => {}
    }
}

/// Agrees on keys first. Who speaks plain HTTP is told so.
async fn secure(
    stream: TcpStream,
    (tls, speaks): (&Tls, Speaks),
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let agreed = async {
        if speaks_tls(&stream).await == Some(false) {
            answer_plainly(&stream, PLAIN_ANSWER).await;
            return None;
        }
        let agreed = tls.accept(stream, speaks).await;
        agreed.inspect_err(|error| tracing::debug!(%error, "no keys were agreed on")).ok()
    };
    let agreed = tokio::select! {
        agreed = tokio::time::timeout(HANDSHAKE_TIME_MAX, agreed) => agreed.ok().flatten(),
        () = stopped(&mut stopping) => None,
    };
    if let Some(stream) = agreed {
        let client = tls.client(&stream);
        match speaks {
            Speaks::Http1 => connection(stream, client, router, stopping).await,
            Speaks::Http2 => connection2(stream, client, router, stopping).await,
        }
    }
}

/// Serves HTTP/2. One that opens and asks nothing is closed after a while.
async fn connection2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: Option<Certified>,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let asked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&asked);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        noted.store(true, Ordering::Relaxed);
        if let Some(client) = &client {
            request.extensions_mut().insert(client.clone());
        }
        router.clone().oneshot(request)
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES.0)
        .initial_connection_window_size(WINDOW_BYTES.1)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let idle = tokio::time::sleep(HEAD_TIME_MAX);
    tokio::pin!(idle);
    loop {
        tokio::select! {
            result = served.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = stopped(&mut stopping) => break,
            () = idle.as_mut(), if !asked.load(Ordering::Relaxed) => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: Option<Certified>,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(client) = &client {
            request.extensions_mut().insert(client.clone());
        }
        router.clone().oneshot(request)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        result = served.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            }
            return;
        }
        () = stopped(&mut stopping) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}
