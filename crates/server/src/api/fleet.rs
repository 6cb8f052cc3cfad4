//! Nodes and their cards.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;

use super::{Params, shown};
use crate::app::{App, read};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::fleet::{self, GpuAsk, GpusAnswer, NodesAnswer};

/// Time that is looked at unless another is given, milliseconds.
const TIME_MS: i64 = 6 * 3_600_000;
/// Longest time, milliseconds.
const TIME_MS_MAX: i64 = 35 * 86_400_000;
/// Parts of the time, unless others are asked for.
const BINS: i64 = 36;
const BINS_MAX: i64 = 400;

/// Every node: whether it is heard of, its cards as PCI and the driver count them, and which are gone.
#[utoipa::path(get, operation_id = "listNodes", path = "/api/tg/v1/fleet/nodes",
    responses((status = 200, body = NodesAnswer), (status = 503, body = crate::error::ErrorBody)))]
pub(crate) async fn nodes(State(app): State<App>) -> Result<Json<NodesAnswer>, ApiError> {
    read(&app, |shared| fleet::nodes(shared).map(Json)).await
}

/// Cards with one signal over time, their peers, owners and Xids; with `uuid` all that is known of one.
#[utoipa::path(get, operation_id = "listGpus", path = "/api/tg/v1/fleet/gpus",
    params(
        ("signal" = Option<String>, Query, description = "`power_ratio` unless given; the answer's `signals` lists all"),
        ("from" = Option<i64>, Query, description = "milliseconds since the epoch; six hours ago unless given"),
        ("to" = Option<i64>, Query, description = "milliseconds since the epoch; now unless given"),
        ("bins" = Option<i64>, Query, description = "into how many parts the time is cut; 36 unless given, at most 400"),
        ("agg" = Option<String>, Query, description = "`median`, as unless given, or `worst` of a part"),
        ("run_id" = Option<String>, Query, description = "cards that this run has"),
        ("host" = Option<String>, Query, description = "cards of this host"),
        ("uuid" = Option<String>, Query, description = "one card"),
    ),
    responses(
        (status = 200, body = GpusAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn gpus(State(app): State<App>, uri: Uri) -> Result<Json<GpusAnswer>, ApiError> {
    let ask = asked(&Params::of(&uri)?)?;
    read(&app, move |shared| fleet::gpus(shared, &ask).map(Json)).await
}

fn asked(params: &Params) -> Result<GpuAsk, ApiError> {
    let to_ms = params.number::<i64>("to")?.unwrap_or_else(now_ms);
    let from_ms = params.number::<i64>("from")?.unwrap_or(to_ms.saturating_sub(TIME_MS));
    let time_ms = to_ms.saturating_sub(from_ms);
    if !(1_000..=TIME_MS_MAX).contains(&time_ms) {
        let message = format!("`from` is {from_ms} and `to` {to_ms}: 1 s to 35 days lie between them");
        return Err(ApiError::bad(message));
    }
    let bins = params.number::<i64>("bins")?.unwrap_or(BINS);
    if !(1..=BINS_MAX).contains(&bins) {
        return Err(ApiError::bad(format!("`bins` is {bins}, 1 to {BINS_MAX} are possible")));
    }
    let worst = match params.get("agg").unwrap_or("median") {
        "median" => false,
        "worst" => true,
        other => {
            let message = format!("`agg` is `{}`", shown(other));
            return Err(ApiError::bad(message).hint("use `median` or `worst`"));
        }
    };
    let text = |name| params.get(name).map(str::to_owned);
    Ok(GpuAsk {
        signal: text("signal"),
        from_ms,
        to_ms,
        bins,
        worst,
        run: params.get("run_id").map(super::run_id).transpose()?,
        host: text("host"),
        uuid: text("uuid"),
    })
}
