//! The push door: one protobuf request in, its answer out once it is durable.

use std::io::Read;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;
use wire::push::{CONTENT_TYPE, DECOMPRESSED_BYTES_MAX, PushError, PushRequest};

use crate::access::Caller;
use crate::app::{App, blocking, turn};
use crate::error::ApiError;
use crate::ingest;

/// Largest body as it travels, bytes.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;
/// Bytes that a body takes at a time from the bound on all bodies.
const BODY_PIECE_BYTES: usize = 256 << 10;
/// Bytes that are unpacked without measuring first.
const FIRST_BYTES: u64 = 4 << 20;
/// Largest zstd window, as a power of two: 32 MiB.
const WINDOW_LOG_MAX: u32 = 25;
/// Name of this door in the counters.
const DOOR: &str = "push";

#[derive(Debug, Clone, Copy)]
enum Packing {
    Zstd,
    Gzip,
    Plain,
}

/// Takes points, facts and signs of life of a run; the answer comes when they are durable.
///
/// Body and answer are protobuf (`docs/format/push.md`); the body may be packed with zstd or gzip.
#[utoipa::path(post, operation_id = "push", path = "/api/tg/v1/push",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf"),
    responses(
        (status = 200, content_type = "application/x-protobuf", body = Vec<u8>),
        (status = 400, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody, description = "the token is for other projects"),
        (status = 413, body = crate::error::ErrorBody),
        (status = 415, body = crate::error::ErrorBody),
        (status = 503, body = crate::error::ErrorBody, description = "disk full or busy; `Retry-After` says when to come again"),
    ))]
pub(crate) async fn push(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let taken = take(&app, caller, request).await;
    if let Err(error) = &taken {
        let outcome = match error.status() {
            StatusCode::SERVICE_UNAVAILABLE => None,
            StatusCode::PAYLOAD_TOO_LARGE => Some("too_large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Some("unsupported"),
            StatusCode::FORBIDDEN => Some("forbidden"),
            _ => Some("unusable"),
        };
        if let Some(outcome) = outcome {
            app.metrics.requests.add(&[DOOR, outcome], 1);
        }
    }
    taken
}

async fn take(app: &App, caller: Caller, request: Request) -> Result<Response, ApiError> {
    let packing = packing(request.headers())?;
    check_declared(request.headers())?;
    let (body, bodies) = collect(app, request.into_body()).await?;
    let decoding = turn(&app.turns.decoding, 1).await?;
    let shared = app.clone();
    let checked = blocking(move || {
        let _turn = decoding;
        let request = decode(packing, &body).map_err(unusable)?;
        drop((body, bodies));
        let checked = ingest::check(&shared, &request).map_err(unusable)?;
        caller.check_path(checked.run())?;
        Ok(checked)
    })
    .await?;
    let waiting = turn(&app.turns.waiting_kib, checked.bytes().div_ceil(1024)).await?;
    let shared = app.clone();
    let response = blocking(move || {
        let _turn = waiting;
        Ok(ingest::store(&shared, checked, DOOR)?)
    })
    .await?;
    let bytes = response.encode_to_vec();
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], bytes).into_response())
}

fn packing(headers: &HeaderMap) -> Result<Packing, ApiError> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    let wrong = |message: String| ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    let kind = text(header::CONTENT_TYPE).unwrap_or_else(|| CONTENT_TYPE.to_owned());
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if ![CONTENT_TYPE, "application/protobuf", "application/octet-stream"].contains(&kind) {
        let message = format!("content type `{}` is not taken here", super::shown(kind));
        return Err(wrong(message).hint(format!("send `{CONTENT_TYPE}`")));
    }
    match text(header::CONTENT_ENCODING).as_deref() {
        None | Some("" | "identity") => Ok(Packing::Plain),
        Some("zstd") => Ok(Packing::Zstd),
        Some("gzip" | "x-gzip") => Ok(Packing::Gzip),
        Some(other) => Err(wrong(format!("content encoding `{}` is not known", super::shown(other)))
            .hint("use `zstd`, `gzip` or none")),
    }
}

/// Refuses by its head what is too long.
pub(super) fn check_declared(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(()) };
    let length: Option<usize> = length.to_str().ok().and_then(|text| text.parse().ok());
    match length {
        None => Err(ApiError::bad("`content-length` is not a number")),
        Some(length) if length > BODY_BYTES_MAX => Err(too_long()),
        Some(_) => Ok(()),
    }
}

fn too_long() -> ApiError {
    ApiError::too_large(format!("the body is over {BODY_BYTES_MAX} bytes")).hint("send it in parts")
}

/// Receives a body. Its bytes count against the bound on all bodies as they arrive: one that is
/// announced and never comes takes no room from the others.
pub(super) async fn collect(
    app: &App,
    mut body: Body,
) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), ApiError> {
    let (mut bytes, mut permits, mut counted) = (Vec::new(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::bad(format!("the body did not arrive whole: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        bytes.extend_from_slice(data);
        while counted < bytes.len() {
            permits.push(turn(&app.turns.bodies_kib, BODY_PIECE_BYTES >> 10).await?);
            counted += BODY_PIECE_BYTES;
        }
    }
    Ok((bytes, permits))
}

fn decode(packing: Packing, body: &[u8]) -> Result<PushRequest, PushError> {
    let gzip = || flate2::read::MultiGzDecoder::new(body);
    match packing {
        Packing::Plain => wire::push::decode_plain(body),
        Packing::Gzip => wire::push::decode_plain(&unpack(gzip, "gzip")?),
        Packing::Zstd => {
            let zstd = || {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok::<_, std::io::Error>(decoder)
            };
            wire::push::decode_plain(&unpack(|| Opened(zstd()), "zstd")?)
        }
    }
}

/// A decoder that may have failed to open; reading says so.
struct Opened<R>(std::io::Result<R>);

impl<R: Read> Read for Opened<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Ok(reader) => reader.read(into),
            Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
        }
    }
}

/// Unpacks a body. One that grows beyond [`FIRST_BYTES`] is measured to its end before more is kept,
/// so that a decompression bomb costs time within bounds, and no memory.
fn unpack<R: Read>(open: impl Fn() -> R, packing: &str) -> Result<Vec<u8>, PushError> {
    let broken =
        |error: std::io::Error| PushError::Invalid(format!("the body is not whole {packing} data: {error}"));
    let mut plain = Vec::new();
    open().take(FIRST_BYTES).read_to_end(&mut plain).map_err(broken)?;
    if (plain.len() as u64) < FIRST_BYTES {
        return Ok(plain);
    }
    drop(plain);
    let limit = DECOMPRESSED_BYTES_MAX as u64;
    let bytes = std::io::copy(&mut open().take(limit + 1), &mut std::io::sink()).map_err(broken)?;
    if bytes > limit {
        return Err(PushError::TooLarge { limit: DECOMPRESSED_BYTES_MAX });
    }
    let mut plain = Vec::with_capacity(bytes as usize);
    open().take(limit).read_to_end(&mut plain).map_err(broken)?;
    Ok(plain)
}

fn unusable(error: PushError) -> ApiError {
    let message = match &error {
        // The decoder's own words say where in our messages it stumbled; the first line is enough.
        PushError::Malformed(_) => super::shown(&error.to_string()),
        _ => error.to_string(),
    };
    match error {
        PushError::TooLarge { .. } | PushError::TooMany => {
            ApiError::too_large(message).hint("send it in parts")
        }
        _ => ApiError::bad(message).hint("docs/format/push.md describes the body"),
    }
}
