//! The push door: one protobuf request in, its answer out once it is durable.

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use prost::Message;
use store::Scope;
use tokio::sync::OwnedSemaphorePermit;
use wire::push::{CONTENT_TYPE, DECOMPRESSED_BYTES_MAX, PushError, Read};

use crate::access::Caller;
use crate::app::{App, blocking, turn};
use crate::error::ApiError;
use crate::ingest;
use crate::node;
use crate::unpack::{Packing, UnpackError, unpack};

/// Largest body as it travels, bytes.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;
/// Bytes that a body takes at a time from the bound on all bodies.
const BODY_PIECE_BYTES: usize = 256 << 10;
/// Name of this door in the counters.
const DOOR: &str = "push";

/// Takes points, facts and signs of life of a run, or series and events of a node; the answer comes when they are durable.
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
    check_declared(request.headers(), BODY_BYTES_MAX)?;
    let (body, bodies) = collect(app, request.into_body(), BODY_BYTES_MAX).await?;
    let decoding = turn(&app.turns.decoding, 1).await?;
    let shared = app.clone();
    let checked = blocking(move || {
        let _turn = decoding;
        let request = decode(packing, body).map_err(unusable)?;
        drop(bodies);
        Checked::of(&shared, &caller, request)
    })
    .await?;
    let waiting = turn(&app.turns.waiting_kib, checked.bytes().div_ceil(1024)).await?;
    let shared = app.clone();
    let response = blocking(move || {
        let _turn = waiting;
        Ok(match checked {
            Checked::Run(checked) => ingest::store(&shared, *checked, DOOR)?,
            Checked::Node(checked) => node::store(&shared, *checked, DOOR)?,
        })
    })
    .await?;
    let bytes = response.encode_to_vec();
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], bytes).into_response())
}

/// A request that may be stored.
enum Checked {
    Run(Box<ingest::Checked>),
    Node(Box<node::Checked>),
}

impl Checked {
    fn of(app: &App, caller: &Caller, request: Read) -> Result<Self, ApiError> {
        match request {
            Read::Run(request) => {
                let checked = ingest::check(app, &request).map_err(unusable)?;
                caller.check_path(checked.run())?;
                Ok(Self::Run(Box::new(checked)))
            }
            Read::Node(request) => {
                // A node is nobody's project.
                caller.check_unbounded()?;
                // What a node tells is acted on: whoever may send runs may not tell it.
                caller.check(&[Scope::Agent])?;
                Ok(Self::Node(Box::new(node::check(app, request).map_err(unusable)?)))
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Run(checked) => checked.bytes(),
            Self::Node(checked) => checked.bytes(),
        }
    }
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
    let named = text(header::CONTENT_ENCODING).unwrap_or_default();
    Packing::of(&named).ok_or_else(|| {
        wrong(format!("content encoding `{}` is not known", super::shown(&named)))
            .hint("use `zstd`, `gzip` or none")
    })
}

/// Refuses by its head what is too long.
pub(crate) fn check_declared(headers: &HeaderMap, bytes_max: usize) -> Result<(), ApiError> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(()) };
    let length: Option<usize> = length.to_str().ok().and_then(|text| text.parse().ok());
    match length {
        None => Err(ApiError::bad("`content-length` is not a number")),
        Some(length) if length > bytes_max => Err(too_long(bytes_max)),
        Some(_) => Ok(()),
    }
}

fn too_long(bytes_max: usize) -> ApiError {
    ApiError::too_large(format!("the body is over {bytes_max} bytes")).hint("send it in parts")
}

/// Receives a body. Its bytes count against the bound on all bodies as they arrive: one that is
/// announced and never comes takes no room from the others.
pub(crate) async fn collect(
    app: &App,
    mut body: Body,
    bytes_max: usize,
) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let (mut bytes, mut permits, mut counted) = (Vec::new(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::bad(format!("the body did not arrive whole: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > bytes_max {
            return Err(too_long(bytes_max));
        }
        if bytes.is_empty() {
            bytes.reserve(announced.clamp(data.len(), BODY_PIECE_BYTES.max(data.len())));
        }
        bytes.extend_from_slice(data);
        while counted < bytes.len() {
            permits.push(turn(&app.turns.bodies_kib, BODY_PIECE_BYTES >> 10).await?);
            counted += BODY_PIECE_BYTES;
        }
    }
    Ok((bytes, permits))
}

fn decode(packing: Packing, body: Vec<u8>) -> Result<Read, PushError> {
    if packing == Packing::Plain {
        return wire::push::read(body);
    }
    let plain = unpack(packing, &body, DECOMPRESSED_BYTES_MAX).map_err(|error| match error {
        UnpackError::Broken { .. } => PushError::Invalid(error.to_string()),
        UnpackError::TooLarge { limit } => PushError::TooLarge { limit },
    })?;
    drop(body);
    wire::push::read(plain)
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
