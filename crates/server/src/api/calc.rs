//! Figures reckoned from figures.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use serde_json::Value;

use crate::calc::{Answer, CalcError, TOOLS, answer, tool};
use crate::error::ApiError;

/// Reckons with a calculator: `economics`, `roofline`, `stream`, `mfu`, `goodput`, `ettr` or `capacity`.
///
/// The body has the inputs by name, as `truegauge calc <tool> --help` lists them as flags, `_` for `-`; a file's rows
/// stand inline as columns (`{"t": [...], "tokens": [...]}`) or as a list of objects. What is not known is null, with
/// the reason under `absent`.
#[utoipa::path(post, operation_id = "calculate", path = "/api/tg/v1/calc/{tool}",
    params(("tool" = String, Path, description = "The calculator")),
    request_body = Object,
    responses((status = 200, body = Answer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn calculate(Path(name): Path<String>, body: Bytes) -> Result<Json<Answer>, ApiError> {
    let tool = tool(&name).ok_or_else(|| {
        let known = TOOLS.map(|tool| tool.name).join(", ");
        ApiError::missing(format!("there is no calculator `{}`", super::shown(&name)))
            .hint(format!("there are {known}"))
    })?;
    let body: Value = super::json_body(&body)?;
    Ok(Json(answer(tool, &body)?))
}

impl From<CalcError> for ApiError {
    fn from(error: CalcError) -> Self {
        let bad = Self::bad(error.message).hint(error.hint);
        match error.field {
            Some(field) => bad.field(field),
            None => bad,
        }
    }
}
