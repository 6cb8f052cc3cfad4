//! Files of rules that are saved in the server.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use promql::rules::RuleKind;
use serde::Serialize;
use utoipa::ToSchema;

use super::{backtest, shown};
use crate::access::Caller;
use crate::app::{App, blocking, read};
use crate::error::ApiError;
use crate::ruling::saved_rules::{self, NewFile, SaveError, SavedFile};

/// Saved files, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleFilesAnswer {
    files: Vec<RuleFileRow>,
}

/// A saved file, with the rules in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleFileRow {
    #[serde(flatten)]
    saved: SavedFile,
    /// As `GET /api/v1/rules` calls it.
    file: String,
    /// Its rules.
    rules: Vec<SavedRule>,
    /// Why it is not in force; null where it is.
    error: Option<String>,
}

/// A rule of a saved file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SavedRule {
    name: String,
    /// `alerting` or `recording`.
    r#type: &'static str,
}

fn row(saved: SavedFile) -> RuleFileRow {
    let rules = saved.rules().into_iter().map(|rule| SavedRule {
        r#type: if rule.kind == RuleKind::Recording { "recording" } else { "alerting" },
        name: rule.name,
    });
    let rules: Vec<SavedRule> = rules.collect();
    let error = rules.is_empty().then(|| {
        let findings = promql::rules::check(&saved.text);
        findings.first().map_or_else(|| "it has no rules".to_owned(), ToString::to_string)
    });
    RuleFileRow { file: saved.file(), rules, error, saved }
}

fn failed(error: SaveError) -> ApiError {
    match error {
        SaveError::Wrong(reason) => ApiError::bad(reason).hint("nothing has changed"),
        SaveError::Taken(reason) => ApiError::new(StatusCode::CONFLICT, reason)
            .hint("take another name, or say with `truegauge rules save --replaces`, or in `replaces`, that this one stands in for it"),
        SaveError::Unkept(reason) => ApiError::unavailable(format!("the rules can't be kept: {reason}"), 10)
            .hint("try again when the store takes writes"),
    }
}

fn missing(name: &str) -> ApiError {
    ApiError::missing(format!("no file of rules `{}` is saved", shown(name)))
        .hint("`truegauge rules ls`, or `GET /api/tg/v1/rules/files`, lists those that are")
}

/// Files of rules that are saved here.
#[utoipa::path(get, operation_id = "listRuleFiles", path = "/api/tg/v1/rules/files",
    responses((status = 200, body = RuleFilesAnswer)))]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<RuleFilesAnswer>, ApiError> {
    read(&app, |shared| {
        Ok(Json(RuleFilesAnswer { files: saved_rules::all(&shared.store).into_iter().map(row).collect() }))
    })
    .await
}

/// A file of rules that is saved here.
#[utoipa::path(get, operation_id = "showRuleFile", path = "/api/tg/v1/rules/files/{name}",
    params(("name" = String, Path, description = "the file, with or without `.yml`")),
    responses((status = 200, body = RuleFileRow), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RuleFileRow>, ApiError> {
    read(&app, move |shared| {
        let file = saved_rules::one(&shared.store, &name).ok_or_else(|| missing(&name))?;
        Ok(Json(row(file)))
    })
    .await
}

/// Saves a file of rules and puts it in force, in the place of the one of this name: durable when this
/// returns. Refused where it can't be evaluated, its tests fail, it rests on metrics that mislead, or it has
/// an alert or a series that another file has.
#[utoipa::path(put, operation_id = "saveRuleFile", path = "/api/tg/v1/rules/files/{name}", request_body = NewFile,
    params(("name" = String, Path, description = "the file, with or without `.yml`")),
    responses(
        (status = 200, body = RuleFileRow), (status = 400, body = crate::error::ErrorBody),
        (status = 409, body = crate::error::ErrorBody), (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn save(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<RuleFileRow>, ApiError> {
    let new: NewFile = super::json_body(&body)?;
    blocking(move || {
        for expr in new.expressions() {
            backtest::check_trust(&app, &expr)?;
        }
        let file = saved_rules::save(&app, &name, new, &caller.named()).map_err(failed)?;
        app.live.topic_changed("alerts");
        Ok(Json(row(file)))
    })
    .await
}

/// Takes a saved file of rules out of force for good. What it replaced is in force again.
#[utoipa::path(delete, operation_id = "removeRuleFile", path = "/api/tg/v1/rules/files/{name}",
    params(("name" = String, Path, description = "the file, with or without `.yml`")),
    responses(
        (status = 204), (status = 404, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    blocking(move || {
        if !saved_rules::remove(&app, &name, &caller.named()).map_err(failed)? {
            return Err(missing(&name));
        }
        app.live.topic_changed("alerts");
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
