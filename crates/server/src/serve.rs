//! Accepts connections, and stops in an orderly way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use tower::ServiceExt;

use crate::access::Certified;
use crate::app::{App, stopped};
use crate::tls::{HANDSHAKE_TIME_MAX, PLAIN_ANSWER, Tls, speaks_tls};

/// Connections open at once; further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 1_024;
/// Time for a request's head, and how long a connection may idle between requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// Largest request head, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long open requests may take to finish when the server stops.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves until `stopping` turns true and open requests are done, or their time is up.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<Tls>),
    router: Router,
    app: App,
    stopping: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
                None => connection(stream, None, router, stopping).await,
                Some(tls) => secure(stream, &tls, router, stopping).await,
            }
            app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
            drop((slot, open));
        });
    }
    drop((listener, open));
    let _ = tokio::time::timeout(STOP_TIME_MAX, all_closed.recv()).await;
}

/// Answers plain HTTP, once its head was taken in: what is left unread would cut the answer off.
async fn answer_plainly(stream: &TcpStream) {
    let mut head = [0; 4_096];
    while stream.try_read(&mut head).is_ok_and(|read| read == head.len()) {}
    if stream.writable().await.is_ok() {
        let _ = stream.try_write(PLAIN_ANSWER);
    }
}

/// Agrees on keys first. Who speaks plain HTTP is told so.
async fn secure(stream: TcpStream, tls: &Tls, router: Router, mut stopping: watch::Receiver<bool>) {
    let agreed = async {
        if speaks_tls(&stream).await == Some(false) {
            answer_plainly(&stream).await;
            return None;
        }
        let agreed = tls.accept(stream).await;
        agreed.inspect_err(|error| tracing::debug!(%error, "no keys were agreed on")).ok()
    };
    let agreed = tokio::select! {
        agreed = tokio::time::timeout(HANDSHAKE_TIME_MAX, agreed) => agreed.ok().flatten(),
        () = stopped(&mut stopping) => None,
    };
    if let Some(stream) = agreed {
        let client = tls.client(&stream);
        connection(stream, client, router, stopping).await;
    }
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
