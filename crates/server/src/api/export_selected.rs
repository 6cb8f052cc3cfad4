//! Raw points of whatever a selector finds, as a file.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::Params;
use crate::access::Caller;
use crate::app::{App, blocking, read};
use crate::error::ApiError;
use crate::export::{Ask, Export, ExportError, Format, Unusable};

/// How many series the file has.
const SERIES: HeaderName = HeaderName::from_static("x-truegauge-series");
/// How many points it has at most: those of its series over all of time.
const POINTS_MAX: HeaderName = HeaderName::from_static("x-truegauge-points-max");

/// Raw points of every series that fits, by metric, labels and time.
///
/// Columns: `metric` (as logged), `time` (UTC, to the nanosecond), `step` and `attempt` (of a run's
/// points), `value`, then one for each label of any of the series; a label named as one of these has
/// `label_` in front. Stale markers are left out. An answer that breaks off is cut without its end, so
/// that a client notices. The headers `x-truegauge-series` and `x-truegauge-points-max` say how much
/// is to come.
#[utoipa::path(get, operation_id = "exportPoints", path = "/api/tg/v1/export",
    params(
        ("match[]" = Option<Vec<String>>, Query, description = "PromQL selectors; series that fit one of them"),
        ("run_id" = Option<Vec<String>>, Query, description = "series of these runs, within the selectors where there are any"),
        ("start" = Option<String>, Query, description = "first time: unix seconds or RFC 3339 (default: the first point's)"),
        ("end" = Option<String>, Query, description = "last time, itself included (default: the last point's)"),
        ("format" = Option<String>, Query, description = "`csv` (default), `ndjson` or `parquet`"),
    ),
    responses(
        (status = 200, content_type = "application/vnd.apache.parquet", body = String),
        (status = 400, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn export(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    let params = Params::of(&uri)?;
    let name = params.get("format").unwrap_or("csv");
    let Some(format) = Format::named(name) else {
        let message = format!("`format` is `{}`", super::shown(name));
        return Err(ApiError::bad(message).hint("use `csv`, `ndjson` or `parquet`"));
    };
    let mut selection = asked(&params).selection()?;
    selection.selectors = caller.confine(selection.selectors);
    let Some(permit) = app.turns.exports.try_one() else {
        return Err(ApiError::unavailable("as many exports are under way as are let", 10));
    };
    let export = read(&app, move |shared| {
        let export = Export::new(&shared.store, &selection, format).map_err(refused)?;
        if export.series() == 0 {
            return Err(ApiError::missing("no series fits, or none has a point in this time")
                .hint("`GET /api/v1/series` lists what fits a selector"));
        }
        Ok(export)
    })
    .await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(SERIES, HeaderValue::from(export.series()));
    headers.insert(POINTS_MAX, HeaderValue::from(export.points_max));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"points.{}\"", format.name())) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(feed(app, export, send, permit));
    Ok((headers, Body::from_stream(ReceiverStream::new(receive))).into_response())
}

/// What the parameters ask for.
fn asked(params: &Params) -> Ask {
    let all = |wanted: &str| {
        let given = params.iter().filter(|(name, value)| *name == wanted && !value.is_empty());
        given.map(|(_, value)| value.to_owned()).collect()
    };
    let one = |name: &str| params.get(name).map(str::to_owned);
    Ask { selectors: all("match[]"), run_ids: all("run_id"), start: one("start"), end: one("end") }
}

impl From<Unusable> for ApiError {
    fn from(error: Unusable) -> Self {
        Self::bad(error.message).hint(error.hint)
    }
}

fn refused(error: ExportError) -> ApiError {
    match error {
        ExportError::TooWide { .. } => {
            ApiError::bad(error.to_string()).hint("select fewer kinds of series at once, one metric say")
        }
        ExportError::Read(_) | ExportError::Parquet(_) => ApiError::internal(error.to_string()),
    }
}

async fn feed(
    app: App,
    export: Export,
    send: mpsc::Sender<Result<Bytes, std::io::Error>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut under_way = Some(export);
    while let Some(mut export) = under_way.take() {
        // As long as it takes: who has begun to read is not told to come again.
        let Some(turn) = app.turns.reading.one().await else { return };
        let shared = Arc::clone(&app);
        let piece = blocking(move || {
            let piece = export.next(&shared.store);
            drop(turn);
            Ok((piece, export))
        })
        .await;
        let bytes = match piece {
            Ok((Ok(None), _)) => return,
            Ok((Ok(Some(bytes)), export)) => {
                under_way = Some(export);
                Ok(Bytes::from(bytes))
            }
            Ok((Err(error), _)) => {
                tracing::error!(%error, "an export broke off");
                Err(std::io::Error::other(error.to_string()))
            }
            Err(_) => Err(std::io::Error::other("the export broke off")),
        };
        if send.send(bytes).await.is_err() {
            return;
        }
    }
}
