//! Accepts connections, and stops in an orderly way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::app::{App, stopped};

/// Connections open at once; further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 1_024;
/// Time for a request's head, and how long a connection may idle between requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// Largest request head, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long open requests may take to finish when the server stops.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves until `stopping` turns true and open requests are done, or their time is up.
pub(crate) async fn serve(listener: TcpListener, router: Router, app: App, stopping: watch::Receiver<bool>) {
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
        tokio::spawn(async move {
            app.metrics.connections.fetch_add(1, Ordering::Relaxed);
            connection(stream, router, stopping).await;
            app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
            drop((slot, open));
        });
    }
    drop((listener, open));
    let _ = tokio::time::timeout(STOP_TIME_MAX, all_closed.recv()).await;
}

async fn connection(stream: tokio::net::TcpStream, router: Router, mut stopping: watch::Receiver<bool>) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
