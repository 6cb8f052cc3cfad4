//! The far storage: how it fares, what it refused, and trying that again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::far::{FarStatus, Finding};

/// Where samples go.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StorageAnswer {
    /// `embedded` or `prometheus`.
    kind: &'static str,
    /// Null where there is no far storage.
    far: Option<FarStatus>,
}

/// What became of refused samples.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedAnswer {
    /// Samples that wait to be sent again, or were forgotten.
    samples: u64,
}

/// How the far storage fares: what waits, what got through, what was refused and why.
#[utoipa::path(get, operation_id = "showStorage", path = "/api/tg/v1/storage",
    responses((status = 200, body = StorageAnswer)))]
pub(crate) async fn show(State(app): State<App>) -> Result<Json<StorageAnswer>, ApiError> {
    blocking(move || {
        let kind = if app.far.is_some() { "prometheus" } else { "embedded" };
        Ok(Json(StorageAnswer { kind, far: app.far.as_ref().map(|far| far.status()) }))
    })
    .await
}

/// What was found of the far storage.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckAnswer {
    checks: Vec<Finding>,
}

/// Writes a few samples to the far storage and reads them back: whether it can be reached, takes our
/// credentials, and how late samples may come.
#[utoipa::path(post, operation_id = "checkStorage", path = "/api/tg/v1/storage/check",
    responses((status = 200, body = CheckAnswer), (status = 409, body = crate::error::ErrorBody)))]
pub(crate) async fn check(State(app): State<App>) -> Result<Json<CheckAnswer>, ApiError> {
    let far = app.far.as_ref().ok_or_else(no_far)?;
    Ok(Json(CheckAnswer { checks: far.probe().await }))
}

/// Sends everything again that the far storage refused.
#[utoipa::path(post, operation_id = "retryRefused", path = "/api/tg/v1/storage/refused/retry",
    responses((status = 200, body = RefusedAnswer), (status = 409, body = crate::error::ErrorBody)))]
pub(crate) async fn retry(State(app): State<App>) -> Result<Json<RefusedAnswer>, ApiError> {
    blocking(move || {
        let far = app.far.as_ref().ok_or_else(no_far)?;
        Ok(Json(RefusedAnswer { samples: far.retry_refused().map_err(failed)? }))
    })
    .await
}

/// Forgets everything that the far storage refused; what is kept here stays.
#[utoipa::path(delete, operation_id = "forgetRefused", path = "/api/tg/v1/storage/refused",
    responses((status = 200, body = RefusedAnswer), (status = 409, body = crate::error::ErrorBody)))]
pub(crate) async fn forget(State(app): State<App>) -> Result<Json<RefusedAnswer>, ApiError> {
    blocking(move || {
        let far = app.far.as_ref().ok_or_else(no_far)?;
        Ok(Json(RefusedAnswer { samples: far.forget_refused().map_err(failed)? }))
    })
    .await
}

fn no_far() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "this server has no far storage")
        .hint("`[storage] kind = \"prometheus\"` names one")
}

fn failed(reason: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, reason).hint("the server's log has more")
}
