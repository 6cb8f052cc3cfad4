//! Deliveries of alerts: whom what was told, and how it went.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::app::App;
use crate::error::ApiError;
use crate::notify::Delivery;

/// Deliveries in one answer, unless fewer are asked for.
const LIMIT_MAX: usize = 1_000;
const LIMIT: usize = 100;

/// Deliveries, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveriesAnswer {
    deliveries: Vec<Delivery>,
    /// Where to go on, as `cursor`; null when there are no more.
    next: Option<String>,
}

/// Deliveries of alerts, the latest first: the last 10,000 are kept.
#[utoipa::path(get, operation_id = "listDeliveries", path = "/api/tg/v1/deliveries",
    params(
        ("limit" = Option<usize>, Query, description = "100 unless given, at most 1000"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses((status = 200, body = DeliveriesAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn list(State(app): State<App>, uri: Uri) -> Result<Json<DeliveriesAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let limit = params.limit(LIMIT, LIMIT_MAX)?;
    let (deliveries, more) = app.book.deliveries.rows(params.number("cursor")?, limit);
    let next = deliveries.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Json(DeliveriesAnswer { deliveries, next }))
}
