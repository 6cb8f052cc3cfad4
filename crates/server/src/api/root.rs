//! What stands beside the API: health, readiness, own metrics, the description.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::{App, blocking};
use crate::error::ApiError;

/// Whether work can be taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Always true: a server that is not ready answers 503.
    ready: bool,
}

/// The process lives.
#[utoipa::path(get, operation_id = "healthz", path = "/healthz", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Points can be taken and read.
#[utoipa::path(get, operation_id = "readyz", path = "/readyz", responses(
    (status = 200, body = Readiness), (status = 503, body = crate::error::ErrorBody, description = "with the reasons")
))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    let stopping = *app.stopping.borrow();
    let shared = app.clone();
    let status = blocking(move || Ok(shared.store.status())).await?;
    let mut reasons: Vec<String> = status.refusing.into_iter().collect();
    if stopping {
        reasons.push("the server is stopping".into());
    }
    if reasons.is_empty() {
        return Ok(Json(Readiness { ready: true }).into_response());
    }
    Err(ApiError::unavailable(reasons.join("; "), 5).reasons(reasons))
}

/// The server's own metrics in Prometheus' text format.
#[utoipa::path(get, operation_id = "metrics", path = "/metrics", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let shared = app.clone();
    let page = blocking(move || Ok(crate::own::page(&shared))).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response())
}

/// This description.
#[utoipa::path(get, operation_id = "openapi", path = "/api/openapi.json", responses((status = 200, content_type = "application/json", body = Object)))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi_json()).into_response()
}
