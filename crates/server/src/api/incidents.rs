//! Incidents of devices: what failed, and what is to be done.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use model::{NANOS_PER_MILLI, RunId};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Params, shown};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::error::ApiError;
use crate::fleet::{IncidentAsk, IncidentsAnswer, incidents};

/// Incidents, open ones first, and what several of them have in common.
///
/// A caller that sees a part of all projects is told of cards that its own runs had, and of nothing else.
#[utoipa::path(get, operation_id = "listIncidents", path = "/api/tg/v1/incidents",
    params(
        ("state" = Option<String>, Query, description = "`open`, as unless given, or `all`"),
        ("host" = Option<String>, Query, description = "of this host"),
        ("uuid" = Option<String>, Query, description = "of this card"),
        ("run_id" = Option<String>, Query, description = "of cards that this run had"),
        ("from" = Option<i64>, Query, description = "not over before this, milliseconds since the epoch"),
        ("to" = Option<i64>, Query, description = "begun until this, milliseconds since the epoch"),
    ),
    responses((status = 200, body = IncidentsAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<IncidentsAnswer>, ApiError> {
    let ask = asked(&Params::of(&uri)?)?;
    read(&app, move |shared| {
        let sees = |runs: &[String]| !caller.is_bounded() || runs.iter().any(|id| sees(shared, &caller, id));
        Ok(Json(incidents(shared, &ask, &sees)))
    })
    .await
}

/// What is closed, and by whom.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseBody {
    /// The incident.
    id: String,
    /// Who says so, at most 64 characters are kept.
    by: Option<String>,
}

/// Says that somebody has looked at a card and that it is well: all that is open on it ends.
#[utoipa::path(post, operation_id = "closeIncident", path = "/api/tg/v1/incidents/close", request_body = CloseBody,
    responses(
        (status = 204), (status = 400, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn close(State(app): State<App>, body: Bytes) -> Result<StatusCode, ApiError> {
    let CloseBody { id, by } = super::json_body(&body)?;
    let by: String = by.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
    let by = if by.trim().is_empty() { "somebody".to_owned() } else { by };
    read(&app, move |shared| {
        if crate::fleet::close(shared, &id, &by) {
            return Ok(StatusCode::NO_CONTENT);
        }
        Err(ApiError::missing(format!("no incident `{}` is open", shown(&id)))
            .hint("`GET /api/tg/v1/incidents` lists those that are"))
    })
    .await
}

/// Whether a caller may know of what befell a run.
pub(super) fn sees(shared: &Shared, caller: &Caller, run_id: &str) -> bool {
    let run = RunId::parse(run_id).and_then(|id| shared.store.run(id));
    run.is_some_and(|run| caller.sees(&run.path))
}

fn asked(params: &Params) -> Result<IncidentAsk, ApiError> {
    let all = match params.get("state").unwrap_or("open") {
        "open" => false,
        "all" => true,
        other => {
            return Err(ApiError::bad(format!("`state` is `{}`", shown(other))).hint("use `open` or `all`"));
        }
    };
    let text = |name| params.get(name).map(str::to_owned);
    let ns = |name: &str, of_a_milli: i64| {
        let ms = params.number::<i64>(name)?;
        Ok::<_, ApiError>(ms.map(|ms| ms.saturating_mul(NANOS_PER_MILLI).saturating_add(of_a_milli)))
    };
    Ok(IncidentAsk {
        all,
        host: text("host"),
        uuid: text("uuid"),
        run: params.get("run_id").map(super::run_id).transpose()?,
        from_ns: ns("from", 0)?,
        to_ns: ns("to", NANOS_PER_MILLI - 1)?,
    })
}
