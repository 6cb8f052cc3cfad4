//! The gRPC door: `Export` of the services for metrics, traces and logs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use tokio::sync::watch;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use wire::otlp::BODY_BYTES_MAX;
use wire::otlp::answer::{self, Encoding, Signal};

use super::body::{self, Sent};
use crate::access::Caller;
use crate::app::{App, stopped};
use crate::error::ApiError;
use crate::grpc::{self, Incoming};
use crate::unpack::{Packed, Packing};

/// Name of this door in the counters.
const DOOR: &str = "otlp_grpc";
/// Trailer in which Python's client looks for when to come again; others look into the status' details.
const RETRY_INFO: &str = "google.rpc.retryinfo-bin";
/// After how many seconds to come again, where the failure does not say.
const RETRY_SECONDS: u32 = 1;

/// The services' calls.
pub(crate) fn routes(app: &App) -> Router {
    let path = |service: &str| format!("/opentelemetry.proto.collector.{service}/Export");
    let call = |signal| {
        post(move |State(app): State<App>, caller: Caller, request: Request| async move {
            retriable(export(&app, signal, caller, request).await)
        })
    };
    Router::new()
        .route(&path("metrics.v1.MetricsService"), call(Signal::Metrics))
        .route(&path("trace.v1.TraceService"), call(Signal::Traces))
        .route(&path("logs.v1.LogsService"), call(Signal::Logs))
        .with_state(Arc::clone(app))
}

async fn export(app: &App, signal: Signal, caller: Caller, request: Request) -> Response {
    let (incoming, request) = Incoming::of(app, request);
    let is_taken = Arc::new(AtomicBool::new(false));
    let (shared, taken) = (Arc::clone(app), Arc::clone(&is_taken));
    let call = tower::service_fn(move |request: tonic::Request<Bytes>| {
        incoming.taken();
        taken.store(true, Ordering::Relaxed);
        one(Arc::clone(&shared), signal, caller.clone(), request.into_inner())
    });
    let mut calls = grpc::calls(BODY_BYTES_MAX);
    let answered = tokio::time::timeout(grpc::MESSAGE_TIME_MAX, calls.unary(call, request));
    let mut stopping = app.stopping.clone();
    tokio::select! {
        answer = answered => match answer {
            Ok(answer) => answer.map(Body::new),
            Err(_late) => grpc::answer(grpc::late()),
        },
        () = cut_off(&mut stopping, &is_taken) => {
            grpc::answer(Status::unavailable("the server is stopping: come again"))
        }
    }
}

/// Returns when the server stops while a message is not whole. One that is gets its answer.
async fn cut_off(stopping: &mut watch::Receiver<bool>, is_taken: &AtomicBool) {
    stopped(stopping).await;
    if is_taken.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

async fn one(
    app: App,
    signal: Signal,
    caller: Caller,
    message: Bytes,
) -> Result<tonic::Response<Vec<u8>>, Status> {
    let body = Packed { packing: Packing::Plain, bytes: message, room: Vec::new() };
    let sent = Sent { door: DOOR, signal, encoding: Encoding::Protobuf, body, caller };
    let outcome = body::accept(&app, sent).await.map_err(|error| status(&error))?;
    Ok(tonic::Response::new(answer::response(signal, &outcome, Encoding::Protobuf)))
}

/// A failure with when to come again, where that helps.
fn status(error: &ApiError) -> Status {
    let status = grpc::status(error);
    match error.retry_after_seconds() {
        Some(seconds) if status.code() == Code::Unavailable => come_again(&status, seconds),
        _ => status,
    }
}

/// Says both ways when to come again.
fn come_again(status: &Status, seconds: u32) -> Status {
    let (code, seconds) = (Code::Unavailable, u64::from(seconds));
    let number = u32::try_from(i32::from(code)).unwrap_or_default();
    let details = answer::status(number, status.message(), Some(seconds), Encoding::Protobuf);
    let mut trailers = MetadataMap::new();
    trailers.insert_bin(RETRY_INFO, MetadataValue::from_bytes(&answer::retry_info(seconds)));
    Status::with_details_and_metadata(code, status.message(), Bytes::from(details), trailers)
}

/// Mends what did not come as far as a service: a client that is told `OUT_OF_RANGE` does not know that
/// it sends too much, and one that may come again wants to know when.
fn retriable(answer: Response) -> Response {
    let Some(status) = Status::from_header_map(answer.headers()) else { return answer };
    match status.code() {
        Code::OutOfRange => {
            let message = format!("the message is over {BODY_BYTES_MAX} bytes: send it in parts");
            grpc::answer(Status::resource_exhausted(message))
        }
        Code::Unavailable if status.details().is_empty() => grpc::answer(come_again(&status, RETRY_SECONDS)),
        _ => answer,
    }
}
