//! A copy of the store, made while it is in use.

use std::path::PathBuf;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::json_body;
use crate::app::{App, blocking};
use crate::backup_place;
use crate::error::ApiError;

/// Where to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupRequest {
    /// A folder on the server's machine that does not exist yet.
    dir: String,
}

/// What was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackupAnswer {
    /// The folder, without symbolic links.
    dir: String,
    /// Segment files.
    segments: u64,
    /// Of them second names of the server's own files, which take no space of their own.
    linked: u64,
    /// Bytes of all files, the linked ones included.
    bytes: u64,
    seconds: f64,
}

/// Makes a data directory of its own on the server's machine.
///
/// Everything that was acknowledged before the request is in it, whole; writes and reads go on
/// meanwhile. The folder must be new and lie in one that belongs to the server's user or to root, and
/// in which not everyone may write.
#[utoipa::path(post, operation_id = "makeBackup", path = "/api/tg/v1/backup",
    request_body = BackupRequest,
    responses((status = 200, body = BackupAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)))]
pub(crate) async fn make(State(app): State<App>, body: Bytes) -> Result<Json<BackupAnswer>, ApiError> {
    let asked: BackupRequest = json_body(&body)?;
    let Some(turn) = app.turns.backups.try_one() else {
        return Err(ApiError::unavailable("another backup is being made", 10));
    };
    blocking(move || {
        let _turn = turn;
        let started = Instant::now();
        let place = backup_place::check(&PathBuf::from(asked.dir), &app.config.data_dir)
            .map_err(|error| ApiError::bad(error.to_string()).hint(error.hint))?;
        let made = app.store.backup(&place).map_err(|error| {
            ApiError::unavailable(error.to_string(), 10)
                .hint("check that the folder is the server's to write in and its disk is not full")
        })?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(dir = %place.display(), segments = made.segments, bytes = made.bytes, seconds, "a backup was made");
        Ok(Json(BackupAnswer {
            dir: place.display().to_string(),
            segments: made.segments,
            linked: made.linked,
            bytes: made.bytes,
            seconds,
        }))
    })
    .await
}
