//! How the server itself is.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Caller;
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::otlp::forward::ForwardStatus;
use crate::source::conditions;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    version: &'static str,
    uptime_seconds: f64,
    data_dir: String,
    /// Why writes are refused at the moment.
    readonly_reason: Option<String>,
    store: StoreStatus,
    /// Where telemetry comes in.
    doors: Doors,
    /// How handing spans on fares; null where nothing is handed on, and for a caller that sees some only.
    forward: Option<ForwardStatus>,
}

/// Addresses beside that of the API, by what is spoken there; null where the port was not free.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Doors {
    /// OTLP and others over gRPC.
    otlp_grpc: Option<String>,
    /// OTLP over HTTP, which the API's port takes too.
    otlp_http: Option<String>,
}

/// Sizes of the store. What concerns all projects is null for a caller that sees some only.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoreStatus {
    /// Runs that the caller sees.
    runs: u64,
    /// Series that the caller sees.
    series: u64,
    /// Points in memory, not yet in a segment.
    head_points: Option<u64>,
    segments: Option<u64>,
    disk_bytes: Option<u64>,
    /// Spans kept.
    spans: Option<u64>,
    /// Log records kept.
    records: Option<u64>,
    /// Bytes of files by what they hold: `run` and `fleet` samples of runs and of no run,
    /// `rollup_1m` and `rollup_15m` roll-ups of the latter, `spans` and `records`.
    class_bytes: Option<BTreeMap<&'static str, u64>>,
    free_bytes: Option<u64>,
    reserve_bytes: u64,
    commits_total: Option<u64>,
    /// Places of damage found, in words, at most 100.
    damage: Option<Vec<String>>,
}

/// Version, store and disk.
#[utoipa::path(get, operation_id = "status", path = "/api/tg/v1/status", responses((status = 200, body = Status)))]
pub(crate) async fn status(State(app): State<App>, caller: Caller) -> Result<Json<Status>, ApiError> {
    blocking(move || {
        let store = app.store.status();
        let everything = !caller.is_bounded();
        let series = if everything {
            store.series
        } else {
            let matchers = caller.matchers();
            app.store.select(&conditions(&matchers), i64::MIN, i64::MAX).len() as u64
        };
        let whole = |number: u64| everything.then_some(number);
        Ok(Json(Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: app.metrics.uptime_seconds(),
            data_dir: app.config.data_dir.display().to_string(),
            readonly_reason: store.refusing,
            store: StoreStatus {
                runs: caller.seen(app.store.runs()).len() as u64,
                series,
                head_points: whole(store.head_points),
                segments: whole(store.segments),
                disk_bytes: whole(store.disk_bytes),
                spans: whole(store.spans),
                records: whole(store.records),
                class_bytes: everything.then(|| store.class_bytes.into_iter().collect()),
                free_bytes: whole(store.free_bytes),
                reserve_bytes: app.config.reserve_bytes,
                commits_total: whole(store.commits_total),
                damage: everything.then_some(store.damage),
            },
            doors: Doors {
                otlp_grpc: app.doors.grpc.map(|address| address.to_string()),
                otlp_http: app.doors.otlp_http.map(|address| address.to_string()),
            },
            forward: app.forward.as_ref().filter(|_| everything).map(|forward| forward.status()),
        }))
    })
    .await
}
