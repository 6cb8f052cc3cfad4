//! Raw points of whatever a selector finds, as a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
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

/// How long a reader may take nothing: one that sleeps keeps others from exporting.
const READER_WAIT: Duration = Duration::from_mins(10);

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
    let complete = Arc::new(AtomicBool::new(false));
    tokio::spawn({
        let complete = Arc::clone(&complete);
        async move {
            let is_whole = feed(app, export, send.clone()).await;
            complete.store(is_whole, Ordering::Release);
            drop((send, permit));
        }
    });
    // However it ended, what is not whole must not look so.
    let end = std::iter::once_with(move || {
        let broke_off = || Err(std::io::Error::other("the export broke off"));
        (!complete.load(Ordering::Acquire)).then(broke_off)
    });
    let pieces = ReceiverStream::new(receive).chain(tokio_stream::iter(end.flatten()));
    Ok((headers, Body::from_stream(pieces)).into_response())
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

/// Sends the pieces; `true` when all of them were.
async fn feed(app: App, export: Export, send: mpsc::Sender<Result<Bytes, std::io::Error>>) -> bool {
    let mut under_way = export;
    loop {
        // As long as it takes: who has begun to read is not told to come again.
        let Some(turn) = app.turns.reading.one().await else { return false };
        let shared = Arc::clone(&app);
        let piece = blocking(move || {
            let piece = under_way.next(&shared.store);
            drop(turn);
            Ok((piece, under_way))
        })
        .await;
        let bytes = match piece {
            Ok((Ok(Some(bytes)), export)) => {
                under_way = export;
                bytes
            }
            Ok((Ok(None), _)) => return true,
            Ok((Err(error), _)) => {
                tracing::error!(%error, "an export broke off");
                return false;
            }
            Err(_) => return false,
        };
        match tokio::time::timeout(READER_WAIT, send.send(Ok(Bytes::from(bytes)))).await {
            Ok(Ok(())) => {}
            // The reader went away.
            Ok(Err(_)) => return false,
            Err(_elapsed) => {
                tracing::warn!("an export was given up: its reader took nothing for 10 minutes");
                return false;
            }
        }
    }
}
