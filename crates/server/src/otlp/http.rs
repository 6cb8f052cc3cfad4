//! The HTTP door: `/v1/metrics`, `/v1/traces` and `/v1/logs`, on the main port and on one of its own.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use tower_http::catch_panic::CatchPanicLayer;
use wire::otlp::answer::{self, Encoding, Signal};

use super::body::{self, Sent};
use crate::access::Caller;
use crate::app::App;
use crate::error::ApiError;
use crate::guard;

/// Name of this door in the counters.
const DOOR: &str = "otlp_http";
/// After how many seconds one comes again whose request took too long.
const RETRY_SECONDS: u32 = 5;

/// Every path with what answers it.
pub(crate) fn table() -> [(&'static str, MethodRouter<App>); 3] {
    [("/v1/metrics", post(metrics)), ("/v1/traces", post(traces)), ("/v1/logs", post(logs))]
}

/// The port that has nothing else, guarded.
pub(crate) fn router(app: &App) -> Router {
    let panicked = Arc::clone(app);
    table()
        .into_iter()
        .fold(Router::new(), |router, (path, answer)| router.route(path, answer))
        .fallback(missing)
        .layer(CatchPanicLayer::custom(move |panic: Box<dyn std::any::Any + Send>| {
            guard::after_panic(&panicked, &*panic)
        }))
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard::guard_otlp))
        .with_state(Arc::clone(app))
}

async fn missing(request: Request) -> ApiError {
    no_such(request.uri().path())
}

/// There is nothing at this path.
pub(crate) fn no_such(path: &str) -> ApiError {
    ApiError::missing(format!("there is no `{}`", crate::api::shown(path))).hint(
        "OTLP goes to `/v1/metrics`, `/v1/traces` and `/v1/logs`; UI and API are on the port of `listen`",
    )
}

/// Takes data points of OpenTelemetry (`ExportMetricsServiceRequest`); the answer comes when they are durable.
///
/// What of it can't be kept is counted in `partialSuccess`. Failures are a `google.rpc.Status`.
#[utoipa::path(post, operation_id = "otlp_metrics", path = "/v1/metrics",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf"),
    responses(
        (status = 200, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 400, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 413, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 415, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 503, content_type = "application/x-protobuf", body = Vec<u8>, description = "disk full or busy; `Retry-After` says when to come again"),
    ))]
pub(crate) async fn metrics(app: State<App>, caller: Caller, request: Request) -> Result<Response, ApiError> {
    export(&app, Signal::Metrics, caller, request).await
}

/// Takes spans of OpenTelemetry (`ExportTraceServiceRequest`); the answer comes when they are durable.
///
/// What of it can't be kept is counted in `partialSuccess`. Failures are a `google.rpc.Status`.
#[utoipa::path(post, operation_id = "otlp_traces", path = "/v1/traces",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf"),
    responses(
        (status = 200, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 400, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 413, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 415, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 503, content_type = "application/x-protobuf", body = Vec<u8>, description = "disk full or busy; `Retry-After` says when to come again"),
    ))]
pub(crate) async fn traces(app: State<App>, caller: Caller, request: Request) -> Result<Response, ApiError> {
    export(&app, Signal::Traces, caller, request).await
}

/// Takes log records of OpenTelemetry (`ExportLogsServiceRequest`); the answer comes when they are durable.
///
/// What of it can't be kept is counted in `partialSuccess`. Failures are a `google.rpc.Status`.
#[utoipa::path(post, operation_id = "otlp_logs", path = "/v1/logs",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf"),
    responses(
        (status = 200, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 400, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 413, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 415, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 503, content_type = "application/x-protobuf", body = Vec<u8>, description = "disk full or busy; `Retry-After` says when to come again"),
    ))]
pub(crate) async fn logs(app: State<App>, caller: Caller, request: Request) -> Result<Response, ApiError> {
    export(&app, Signal::Logs, caller, request).await
}

async fn export(app: &App, signal: Signal, caller: Caller, request: Request) -> Result<Response, ApiError> {
    let refused = |error: &ApiError| body::refused(app, DOOR, error);
    let (encoding, packing) = body::form(request.headers()).inspect_err(refused)?;
    let body = body::receive(app, packing, request).await.inspect_err(refused)?;
    let outcome = body::accept(app, Sent { door: DOOR, signal, encoding, body, caller }).await?;
    let kind = HeaderValue::from_static(encoding.content_type());
    Ok(([(header::CONTENT_TYPE, kind)], answer::response(signal, &outcome, encoding)).into_response())
}

/// In which form a failure is told: as the request is written, and for people where it is no OTLP.
pub(crate) fn told_in(headers: &HeaderMap) -> Encoding {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.and_then(Encoding::of).unwrap_or(Encoding::Json)
}

/// Writes a failure as `google.rpc.Status`.
pub(crate) fn failure(mut response: Response, message: &str, encoding: Encoding) -> Response {
    if response.status() == StatusCode::REQUEST_TIMEOUT {
        // Clients give up what is answered with 408.
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    }
    let (mut parts, _) = response.into_parts();
    let retry = parts.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = answer::status(code(parts.status), message, retry, encoding);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
    Response::from_parts(parts, Body::from(Bytes::from(body)))
}

/// gRPC's number for a status of HTTP.
fn code(status: StatusCode) -> u32 {
    let code = match status.as_u16() {
        401 => tonic::Code::Unauthenticated,
        403 => tonic::Code::PermissionDenied,
        404 => tonic::Code::NotFound,
        405 => tonic::Code::Unimplemented,
        413 | 429 => tonic::Code::ResourceExhausted,
        502..=504 => tonic::Code::Unavailable,
        500..=599 => tonic::Code::Internal,
        _ => tonic::Code::InvalidArgument,
    };
    u32::try_from(i32::from(code)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_too_long_is_to_come_again() {
        let late = StatusCode::REQUEST_TIMEOUT.into_response();
        let told = failure(late, "not finished within 60 s", Encoding::Json);
        assert_eq!(told.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(told.headers()[header::RETRY_AFTER], "5");
        assert_eq!(code(told.status()), 14);
    }
}
