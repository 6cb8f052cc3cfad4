//! Silences: which alerts nobody is told of, until when, and why.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::shown;
use crate::app::{App, Shared, blocking};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::notify::{NewSilence, Silence, SilenceError};

/// Silences, the one that ends last first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SilencesAnswer {
    silences: Vec<SilenceRow>,
}

/// A silence, and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SilenceRow {
    #[serde(flatten)]
    silence: Silence,
    /// `active`, `pending` or `expired`.
    state: &'static str,
}

fn row(silence: Silence) -> SilenceRow {
    let state = silence.state(now_ms());
    SilenceRow { silence, state }
}

fn failed(error: SilenceError) -> ApiError {
    match error {
        SilenceError::Wrong(reason) => ApiError::bad(reason),
        SilenceError::Unkept(reason) => {
            ApiError::unavailable(format!("the silence can't be kept: {reason}"), 10)
                .hint("nothing has changed: try again when the store takes writes")
        }
    }
}

/// Silences, those that ended within five days among them.
#[utoipa::path(get, operation_id = "listSilences", path = "/api/tg/v1/silences",
    responses((status = 200, body = SilencesAnswer)))]
pub(crate) async fn list(State(app): State<App>) -> Json<SilencesAnswer> {
    Json(SilencesAnswer { silences: app.book.silences.all().into_iter().map(row).collect() })
}

/// Silences alerts: receivers of the file are not told of them meanwhile. Alertmanagers are: they have
/// silences of their own.
#[utoipa::path(post, operation_id = "addSilence", path = "/api/tg/v1/silences", request_body = NewSilence,
    responses(
        (status = 200, body = SilenceRow), (status = 400, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn add(State(app): State<App>, body: Bytes) -> Result<Json<SilenceRow>, ApiError> {
    let new: NewSilence = super::json_body(&body)?;
    blocking(move || {
        let added = app.book.silences.add(&app.store, new, now_ms()).map_err(failed)?;
        changed(&app);
        Ok(Json(row(added)))
    })
    .await
}

/// Ends a silence: what it kept back is told now.
#[utoipa::path(delete, operation_id = "endSilence", path = "/api/tg/v1/silences/{id}",
    params(("id" = String, Path, description = "the silence")),
    responses(
        (status = 204), (status = 404, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn end(State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    blocking(move || {
        if !app.book.silences.end(&app.store, &id, now_ms()).map_err(failed)? {
            return Err(ApiError::missing(format!("no silence `{}` is in force or to come", shown(&id)))
                .hint("`GET /api/tg/v1/silences` lists them"));
        }
        changed(&app);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn changed(shared: &Shared) {
    shared.notifier().look_again();
    shared.live.topic_changed("alerts");
}
