//! Remote write: versions 1.0 and 2.0.

use std::cell::RefCell;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{NANOS_PER_MILLI, Sample};
use store::SeriesId;
use wire::remote_write::{self, Item, Outcome, RemoteWriteError, Series, Version, Written};

use crate::access::Caller;
use crate::api::push::{BODY_BYTES_MAX, check_declared, collect};
use crate::api::shown;
use crate::app::{App, Shared, blocking, turn};
use crate::error::ApiError;
use crate::intake::{Intake, Taken};

/// Name of this door in the counters.
const DOOR: &str = "remote_write";

/// Takes samples in; the answer comes when they are durable. A part that can't be kept is a 400 that
/// says so, the rest is kept; a request that can't be read changes nothing.
pub(super) async fn write(State(app): State<App>, caller: Caller, request: Request) -> Response {
    match take(&app, caller, request).await {
        Ok(outcome) => answer(&outcome),
        Err(error) => {
            let counted = match error.status() {
                StatusCode::SERVICE_UNAVAILABLE => None,
                StatusCode::PAYLOAD_TOO_LARGE => Some("too_large"),
                StatusCode::UNSUPPORTED_MEDIA_TYPE => Some("unsupported"),
                _ => Some("unusable"),
            };
            if let Some(outcome) = counted {
                app.metrics.requests.add(&[DOOR, outcome], 1);
            }
            with_counts(error.into_response(), Written::default())
        }
    }
}

fn answer(outcome: &Outcome) -> Response {
    let response = if outcome.refused.is_empty() {
        StatusCode::NO_CONTENT.into_response()
    } else {
        ApiError::bad(outcome.message())
            .hint("the rest is kept; sending it again changes nothing")
            .into_response()
    };
    with_counts(response, outcome.written)
}

/// Adds the headers that 2.0 asks of every answer.
fn with_counts(mut response: Response, written: Written) -> Response {
    for (name, count) in written.headers() {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(count));
    }
    response
}

async fn take(app: &App, caller: Caller, request: Request) -> Result<Outcome, ApiError> {
    let version = version(request.headers())?;
    check_declared(request.headers(), BODY_BYTES_MAX)?;
    let (body, bodies) = collect(app, request.into_body(), BODY_BYTES_MAX).await?;
    let decoding = turn(&app.turns.decoding, 1).await?;
    let shared = app.clone();
    let intake = blocking(move || {
        let _turn = decoding;
        let plain = remote_write::decompress(&body).map_err(|error| unusable(&error))?;
        drop((body, bodies));
        read(&shared, version, &plain, &caller).map_err(|error| unusable(&error))
    })
    .await?;
    let waiting = turn(&app.turns.waiting_kib, intake.bytes().div_ceil(1_024)).await?;
    let shared = app.clone();
    let taken = blocking(move || {
        let _turn = waiting;
        Ok(intake.store(&shared)?)
    })
    .await?;
    let Taken { written, refused } = taken;
    let refused = refused.into_iter().map(|(reason, count, example)| (reason.to_owned(), count, example));
    Ok(Outcome { written: Written { samples: written, ..Written::default() }, refused: refused.collect() })
}

fn version(headers: &HeaderMap) -> Result<Version, ApiError> {
    let text = |name| headers.get(name).map(|v: &HeaderValue| v.to_str().unwrap_or("?").trim());
    let kind = text(header::CONTENT_TYPE).unwrap_or(remote_write::CONTENT_TYPE);
    let version = remote_write::version(kind).map_err(|error| unusable(&error))?;
    match text(header::CONTENT_ENCODING) {
        None | Some("" | "snappy") => Ok(version),
        Some(other) => {
            let message = format!("content encoding `{}` is not remote write's", shown(other));
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).hint("send a block of `snappy`"))
        }
    }
}

fn unusable(error: &RemoteWriteError) -> ApiError {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    ApiError::new(status, error.to_string()).hint("nothing of the request was kept")
}

/// Reads a whole request. Exemplars are accepted and not kept.
fn read(
    shared: &Shared,
    version: Version,
    plain: &[u8],
    caller: &Caller,
) -> Result<Intake, RemoteWriteError> {
    let mut intake = Intake::within(DOOR, caller.bounds());
    let prefix = prefix(caller);
    let mut key: Vec<u8> = Vec::new();
    let mut fresh: Vec<(Vec<u8>, SeriesId)> = Vec::new();
    let aged = RefCell::new(Vec::new());
    let mut known = shared.known.lookup();
    let number = |labels: &[u8]| {
        let found = if prefix.is_empty() {
            known.number(labels)
        } else {
            key.clear();
            key.extend_from_slice(&prefix);
            key.extend_from_slice(labels);
            known.number(&key)
        };
        let (number, is_old) = found?;
        if is_old {
            aged.borrow_mut().push(([&prefix, labels].concat(), number));
        }
        Some(number)
    };
    remote_write::read_known(version, plain, number, |item| match item {
        Item::Series(series) => {
            let number = add(shared, &mut intake, series);
            if let Some(number) = number.filter(|_| !series.label_bytes.is_empty()) {
                fresh.push(([&prefix, series.label_bytes].concat(), number));
            }
        }
        Item::Metadata(about) => intake.describe(about.metric, about.kind, about.help, about.unit),
    })?;
    drop(known);
    fresh.append(&mut aged.into_inner());
    shared.known.learn(&fresh);
    Ok(intake)
}

/// What the labels of a sender are remembered under: the same labels of another are another series
/// when what that one may write to differs.
fn prefix(caller: &Caller) -> Vec<u8> {
    let mut prefix = Vec::new();
    for (label, name) in caller.bounds().iter() {
        prefix.extend_from_slice(label.as_bytes());
        prefix.extend_from_slice(&(name.len() as u64).to_le_bytes());
        prefix.extend_from_slice(name.as_bytes());
    }
    prefix
}

/// Adds a series; returns its number where it was not known and could be.
fn add(shared: &Shared, intake: &mut Intake, series: &Series<'_>) -> Option<SeriesId> {
    if series.histograms > 0 {
        intake.refuse("native_histogram", series.histograms, || {
            let name =
                series.labels.iter().find(|(name, _)| *name == "__name__").map_or("", |(_, value)| value);
            format!("`{name}` is a native histogram: send classic buckets")
        });
    }
    if !series.exemplars.is_empty() {
        shared.metrics.exemplars.add(&[DOOR], series.exemplars.len() as u64);
    }
    if let Some(about) = &series.metadata {
        intake.describe(about.metric, about.kind, about.help, about.unit);
    }
    let sample = |point: &remote_write::Point| Sample {
        time_ns: point.time_ms.saturating_mul(NANOS_PER_MILLI),
        value: point.value,
        step: None,
    };
    let samples = series.samples.iter().map(sample);
    if let Some(number) = series.known {
        intake.points(number, samples);
        return None;
    }
    intake.series_of(shared, series.labels.iter().copied(), samples.collect())
}
