//! How the server itself is.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::{App, blocking};
use crate::error::ApiError;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    version: &'static str,
    uptime_seconds: f64,
    data_dir: String,
    /// Why writes are refused at the moment.
    readonly_reason: Option<String>,
    store: StoreStatus,
}

/// Sizes of the store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoreStatus {
    runs: u64,
    series: u64,
    /// Points in memory, not yet in a segment.
    head_points: u64,
    segments: u64,
    disk_bytes: u64,
    free_bytes: u64,
    reserve_bytes: u64,
    commits_total: u64,
    /// Places of damage found, in words, at most 100.
    damage: Vec<String>,
}

/// Version, store and disk.
#[utoipa::path(get, operation_id = "status", path = "/api/tg/v1/status", responses((status = 200, body = Status)))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<Status>, ApiError> {
    blocking(move || {
        let store = app.store.status();
        Ok(Json(Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: app.metrics.uptime_seconds(),
            data_dir: app.config.data_dir.display().to_string(),
            readonly_reason: store.refusing,
            store: StoreStatus {
                runs: app.store.runs().len() as u64,
                series: store.series,
                head_points: store.head_points,
                segments: store.segments,
                disk_bytes: store.disk_bytes,
                free_bytes: store.free_bytes,
                reserve_bytes: app.config.reserve_bytes,
                commits_total: store.commits_total,
                damage: store.damage,
            },
        }))
    })
    .await
}
