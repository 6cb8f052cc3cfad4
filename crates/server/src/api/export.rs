//! Every raw point of a run, as a file.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use model::{RunRecord, Sample};
use store::{ReadError, SeriesInfo};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, blocking, read};
use crate::error::ApiError;
use crate::export::{cell, number};
use crate::own::is_logged;
use crate::points::{Pick, shown_labels};

/// Points read at once; between two pieces no thread waits for a slow reader.
const PIECE_POINTS: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Ndjson,
}

/// Every raw point of a run, complete, by series and time.
///
/// CSV columns: `metric,labels,scale,attempt,step,time_ns,value`. An answer that breaks off is cut
/// without its end, so that a client notices.
#[utoipa::path(get, operation_id = "exportRun", path = "/api/tg/v1/runs/{run_id}/export",
    params(
        ("run_id" = String, Path, description = "16 hex digits"),
        ("format" = Option<String>, Query, description = "`csv` (default) or `ndjson`"),
        ("metric" = Option<String>, Query, description = "only this metric"),
    ),
    responses(
        (status = 200, content_type = "text/csv", body = String),
        (status = 400, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn export(
    State(app): State<App>,
    Path(id): Path<String>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = super::run_id(&id)?;
    let params = Params::of(&uri)?;
    let format = match params.get("format").unwrap_or("csv") {
        "csv" => Format::Csv,
        "ndjson" => Format::Ndjson,
        other => {
            let message = format!("`format` is `{}`", super::shown(other));
            return Err(ApiError::bad(message).hint("use `csv` or `ndjson`"));
        }
    };
    let metric = params.get("metric").map(str::to_owned);
    let (run, series) = read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        let all = shared.store.run_series(id);
        let series = match metric {
            None => all.into_iter().filter(|one| is_logged(one.labels.metric())).collect(),
            Some(metric) => Pick { metric, ..Pick::default() }.of(&all),
        };
        Ok((run, series))
    })
    .await?;
    let (send, receive) = mpsc::channel(2);
    tokio::spawn(async move { feed(app, format, run, series, send).await });
    let kind = match format {
        Format::Csv => "text/csv; charset=utf-8",
        Format::Ndjson => "application/x-ndjson",
    };
    let mut response = Body::from_stream(ReceiverStream::new(receive)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let ending = if format == Format::Csv { "csv" } else { "ndjson" };
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.{ending}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

type Piece = Result<Bytes, std::io::Error>;

async fn feed(
    app: App,
    format: Format,
    run: Arc<RunRecord>,
    series: Vec<SeriesInfo>,
    send: mpsc::Sender<Piece>,
) {
    if format == Format::Csv {
        let head = Bytes::from_static(b"metric,labels,scale,attempt,step,time_ns,value\n");
        if send.send(Ok(head)).await.is_err() {
            return;
        }
    }
    for one in series {
        let one = Arc::new(one);
        let mut from_ns = Some(i64::MIN);
        while let Some(start_ns) = from_ns {
            let (shared, run, one) = (Arc::clone(&app), Arc::clone(&run), Arc::clone(&one));
            let piece = blocking(move || Ok(piece(&shared, format, &run, &one, start_ns))).await;
            let (text, next_ns) = match piece {
                Ok(Ok(piece)) => piece,
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot read points");
                    let _ = send.send(Err(std::io::Error::other(error.to_string()))).await;
                    return;
                }
                Err(_) => {
                    let _ = send.send(Err(std::io::Error::other("the export broke off"))).await;
                    return;
                }
            };
            from_ns = next_ns;
            if !text.is_empty() && send.send(Ok(Bytes::from(text))).await.is_err() {
                return;
            }
        }
    }
}

/// The next points of a series from `from_ns` on, and where to go on.
fn piece(
    shared: &Shared,
    format: Format,
    run: &RunRecord,
    series: &SeriesInfo,
    from_ns: i64,
) -> Result<(String, Option<i64>), ReadError> {
    let head = Head::of(format, series);
    let (mut text, mut points, mut next_ns) = (String::new(), 0, None);
    let mut failed = None;
    shared.store.read(series.id, from_ns, i64::MAX, &mut |chunk| {
        if points >= PIECE_POINTS {
            next_ns = Some(chunk.summary().time_ns.0.max(from_ns));
            return ControlFlow::Break(());
        }
        match chunk.samples() {
            Ok(samples) => {
                for sample in samples.iter().filter(|sample| sample.time_ns >= from_ns) {
                    points += 1;
                    head.line(&mut text, sample, run.attempt_at(sample.time_ns));
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok((text, next_ns)), Err)
}

/// What every line of a series has in common, ready to be written.
struct Head {
    format: Format,
    start: String,
}

impl Head {
    fn of(format: Format, series: &SeriesInfo) -> Self {
        let labels = shown_labels(&series.labels);
        let scale = series.labels.get("scale").unwrap_or(model::DEFAULT_SCALE);
        let start = match format {
            Format::Csv => {
                let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
                format!("{},{},{}", cell(&series.display), cell(&pairs.join(",")), cell(scale))
            }
            Format::Ndjson => {
                let json = |value| serde_json::to_string(value).unwrap_or_default();
                let labels = serde_json::to_string(&labels).unwrap_or_default();
                format!(
                    "{{\"metric\":{},\"labels\":{labels},\"scale\":{}",
                    json(&*series.display),
                    json(scale)
                )
            }
        };
        Self { format, start }
    }

    fn line(&self, text: &mut String, sample: &Sample, attempt: u32) {
        let Sample { time_ns, value, step } = sample;
        let start = &self.start;
        let step = step.map(|step| step.to_string());
        let _ = match self.format {
            Format::Csv => {
                let step = step.unwrap_or_default();
                writeln!(text, "{start},{attempt},{step},{time_ns},{}", number(*value))
            }
            Format::Ndjson => {
                let step = step.as_deref().unwrap_or("null");
                let value = super::json_number(*value);
                writeln!(
                    text,
                    "{start},\"attempt\":{attempt},\"step\":{step},\"time_ns\":{time_ns},\"value\":{value}}}"
                )
            }
        };
    }
}
