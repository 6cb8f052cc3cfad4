//! One run: what is known of it, changing it, deleting it and taking that back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use model::{AttributeValue, NANOS_PER_SECOND, RunChange, RunRecord, SessionEnd, TagChange};
use serde::{Deserialize, Serialize};
use store::Batch;
use utoipa::ToSchema;

use super::runs::{Entry, RunRow};
use crate::access::Caller;
use crate::app::{App, Shared, blocking, read};
use crate::clock::{now_ns, to_ms};
use crate::error::ApiError;
use crate::ingest::{DESCRIPTION_BYTES_MAX, REFUSED_PREFIX, TAG_BYTES_MAX, tag_usable};
use crate::otlp::has_telemetry;
use crate::remediation::failed_key;
use crate::upkeep::UNDO_SECONDS;

/// Sessions shown, newest first to be kept.
const SESSIONS_MAX: usize = 10_000;

/// Everything about a run but its points.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunAnswer {
    #[serde(flatten)]
    row: RunRow,
    /// Facts by key.
    #[schema(value_type = Object)]
    attributes: BTreeMap<String, serde_json::Value>,
    attempts_list: Vec<AttemptRow>,
    sessions: Vec<SessionRow>,
    /// Points that clients refused or lost, by reason.
    dropped: BTreeMap<String, u64>,
    /// Points and facts that the server refused, by reason.
    refused: BTreeMap<String, u64>,
    /// Whether processes of it are seen through their OpenTelemetry export.
    telemetry: bool,
}

/// One go at the run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptRow {
    number: u32,
    started_ms: i64,
    ended_ms: Option<i64>,
    job_token: String,
    restart_count: u32,
    /// Why it failed, where an action of remediation ended it.
    failed: Option<String>,
}

/// One process's time with the run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionRow {
    host: String,
    pid: u32,
    rank: Option<u32>,
    world_size: Option<u32>,
    attempt: u32,
    started_ms: i64,
    heartbeat_ms: i64,
    ended_ms: Option<i64>,
    /// `finished`, `failed` or `left`; null while it lives or fell silent.
    end: Option<&'static str>,
    client_version: String,
}

fn answer(shared: &Shared, run: Arc<RunRecord>) -> RunAnswer {
    let now_ns = now_ns();
    let row = Entry::new(shared, Arc::clone(&run), now_ns).row(None);
    let attributes = run.attributes.iter().map(|(key, value)| (key.clone(), attribute(value))).collect();
    let attempts_list = run.attempts.iter().map(|attempt| AttemptRow {
        number: attempt.number,
        started_ms: to_ms(attempt.started_ns),
        ended_ms: attempt_end_ns(&run, attempt.number, now_ns).map(to_ms),
        job_token: attempt.job_token.clone(),
        restart_count: attempt.restart_count,
        failed: match run.attributes.get(&failed_key(attempt.number)) {
            Some(AttributeValue::Text(why)) => Some(why.clone()),
            _ => None,
        },
    });
    let sessions =
        run.sessions.iter().skip(run.sessions.len().saturating_sub(SESSIONS_MAX)).map(|session| SessionRow {
            host: session.facts.host.clone(),
            pid: session.facts.pid,
            rank: session.facts.rank,
            world_size: session.facts.world_size,
            attempt: session.attempt,
            started_ms: to_ms(session.started_ns),
            heartbeat_ms: to_ms(session.heartbeat_ns),
            ended_ms: session.ended_ns.map(to_ms),
            end: session.end.map(|end| match end {
                SessionEnd::Finished => "finished",
                SessionEnd::Failed => "failed",
                SessionEnd::Left => "left",
            }),
            client_version: session.facts.client_version.clone(),
        });
    let mut refused: BTreeMap<String, u64> =
        shared.board.refused_of(run.id()).into_iter().map(|(reason, n)| (reason.to_owned(), n)).collect();
    let mut dropped = BTreeMap::new();
    for (reason, count) in &run.dropped {
        match reason.strip_prefix(REFUSED_PREFIX) {
            Some(reason) => *refused.entry(reason.to_owned()).or_default() += count,
            None => _ = dropped.insert(reason.clone(), *count),
        }
    }
    RunAnswer {
        row,
        attributes,
        attempts_list: attempts_list.collect(),
        sessions: sessions.collect(),
        dropped,
        refused,
        telemetry: has_telemetry(&run),
    }
}

/// When an attempt's last session ended or fell silent; none while one lives.
fn attempt_end_ns(run: &RunRecord, number: u32, now_ns: i64) -> Option<i64> {
    let sessions = || run.sessions.iter().filter(|session| session.attempt == number);
    if sessions().any(|session| session.is_live(now_ns)) {
        return None;
    }
    sessions().map(|session| session.ended_ns.unwrap_or(session.heartbeat_ns)).max()
}

/// An attribute as JSON.
pub(crate) fn attribute(value: &AttributeValue) -> serde_json::Value {
    match value {
        AttributeValue::Null => serde_json::Value::Null,
        AttributeValue::Bool(value) => (*value).into(),
        AttributeValue::Int(value) => (*value).into(),
        AttributeValue::Float(value) => super::json_number(*value),
        AttributeValue::Text(value) => value.clone().into(),
    }
}

/// Everything about a run but its points.
#[utoipa::path(get, operation_id = "showRun", path = "/api/tg/v1/runs/{run_id}",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses((status = 200, body = RunAnswer), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        Ok(Json(answer(shared, run)))
    })
    .await
}

/// What to change.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeBody {
    #[serde(default)]
    add_tags: Vec<String>,
    #[serde(default)]
    remove_tags: Vec<String>,
    #[serde(default)]
    description: Option<String>,
}

/// Changes tags and description.
#[utoipa::path(patch, operation_id = "changeRun", path = "/api/tg/v1/runs/{run_id}",
    params(("run_id" = String, Path, description = "16 hex digits")),
    request_body = ChangeBody,
    responses(
        (status = 200, body = RunAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn change(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<RunAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    let body: ChangeBody = super::json_body(&body)?;
    if let Some(tag) = body.add_tags.iter().find(|tag| !tag_usable(tag)) {
        let message = format!("tag `{}` is not usable", super::shown(tag));
        return Err(
            ApiError::bad(message).hint(format!("a tag is printable and has 1 to {TAG_BYTES_MAX} bytes"))
        );
    }
    if body.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
        return Err(ApiError::bad(format!("the description is over {DESCRIPTION_BYTES_MAX} bytes")));
    }
    blocking(move || {
        let run = super::find_run(&app, &caller, id)?;
        let add = body.add_tags.into_iter().map(TagChange::Add);
        let remove = body.remove_tags.into_iter().map(TagChange::Remove);
        let change = RunChange {
            path: run.path.clone(),
            tags: remove.chain(add).collect(),
            description: body.description,
            ..RunChange::default()
        };
        app.store.append(Batch { change: Some(change), ..Batch::default() })?;
        app.changed(id);
        let run = super::find_run(&app, &caller, id)?;
        Ok(Json(answer(&app, run)))
    })
    .await
}

/// A run is gone from view.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    deleted: bool,
    /// Until then `restore` brings it back; then its points are removed for good.
    undo_until_ms: i64,
}

/// Hides a run; within 30 seconds `restore` brings it back, then it is removed for good.
#[utoipa::path(delete, operation_id = "deleteRun", path = "/api/tg/v1/runs/{run_id}",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses(
        (status = 200, body = Deleted), (status = 404, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Deleted>, ApiError> {
    let id = super::run_id(&id)?;
    blocking(move || {
        let now_ns = now_ns();
        super::find_run(&app, &caller, id)?;
        app.store.delete_run(id, now_ns)?;
        app.changed(id);
        let undo_until_ms = to_ms(now_ns + UNDO_SECONDS * NANOS_PER_SECOND);
        Ok(Json(Deleted { deleted: true, undo_until_ms }))
    })
    .await
}

/// Brings a deleted run back.
#[utoipa::path(post, operation_id = "restoreRun", path = "/api/tg/v1/runs/{run_id}/restore",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses(
        (status = 200, body = RunAnswer), (status = 404, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn restore(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    blocking(move || {
        if app.store.deleted_run(id).is_some_and(|run| caller.sees(&run.path)) {
            app.store.restore_run(id)?;
            app.changed(id);
        }
        let run = super::find_run(&app, &caller, id)
            .map_err(|error| error.hint(format!("a deleted run can be brought back for {UNDO_SECONDS} s")))?;
        Ok(Json(answer(&app, run)))
    })
    .await
}
