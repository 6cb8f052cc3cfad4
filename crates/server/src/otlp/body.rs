//! A body on its way in: received, unpacked, turned into protobuf, each within a bound of the server.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use wire::otlp::answer::{Encoding, Signal};
use wire::otlp::{BODY_BYTES_MAX, OtlpError, Outcome, json};

use super::{Arrival, TakeError, take};
use crate::access::Caller;
use crate::api::push::{check_declared, collect};
use crate::api::shown;
use crate::app::{App, Shared, blocking, stopped, turn};
use crate::error::ApiError;
use crate::unpack::{Packed, Packing, UnpackError, unpack};

/// What a request holds in memory while it is read and waits for the store, as a multiple of its bytes:
/// itself, what became of it, and what the store makes of that.
const HELD_PER_BYTE: usize = 4;
/// A sender that is told to wait longer gives its data up.
const RETRY_SECONDS_MAX: u32 = 5;

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Name of the door in the counters.
    pub(crate) door: &'static str,
    /// What it is about.
    pub(crate) signal: Signal,
    /// In which form it is.
    pub(crate) encoding: Encoding,
    /// Its bytes.
    pub(crate) body: Packed,
    /// Who sent it.
    pub(crate) caller: Caller,
}

/// How a request says that it is written and packed.
pub(super) fn form(headers: &HeaderMap) -> Result<(Encoding, Packing), ApiError> {
    let wrong = |message: String| ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or("?").trim().to_owned();
    let kind = headers.get(header::CONTENT_TYPE).map(text).unwrap_or_default();
    let encoding = Encoding::of(&kind).ok_or_else(|| {
        wrong(format!("content type `{}` is not one of OTLP's", shown(&kind)))
            .hint("send `application/x-protobuf` or `application/json`")
    })?;
    let named: Vec<String> = headers.get_all(header::CONTENT_ENCODING).iter().map(text).collect();
    let named = named.join(", ").to_ascii_lowercase();
    let packing = Packing::of(&named).ok_or_else(|| {
        wrong(format!("content encoding `{}` is not known", shown(&named)))
            .hint("use one of `gzip`, `deflate` and `zstd`, once, or none")
    })?;
    Ok((encoding, packing))
}

/// Receives the body of a request over HTTP.
pub(super) async fn receive(app: &App, packing: Packing, request: Request) -> Result<Packed, ApiError> {
    check_declared(request.headers(), BODY_BYTES_MAX)?;
    let mut stopping = app.stopping.clone();
    let (bytes, room) = tokio::select! {
        received = collect(app, request.into_body(), BODY_BYTES_MAX) => received?,
        () = stopped(&mut stopping) => return Err(ApiError::unavailable("the server is stopping", 1)),
    };
    Ok(Packed { packing, bytes: Bytes::from(bytes), room })
}

/// Takes a request in; the outcome comes when all that could be kept is durable.
pub(super) async fn accept(app: &App, sent: Sent) -> Result<Outcome, ApiError> {
    let Sent { door, signal, encoding, body, caller } = sent;
    let busy = |error: &ApiError| refused(app, door, error);
    let decoding = turn(&app.turns.decoding, 1).await.inspect_err(busy)?;
    let as_it_is = body.packing == Packing::Plain && encoding == Encoding::Protobuf;
    let plain = if as_it_is {
        body.bytes
    } else {
        let shared = app.clone();
        blocking(move || plain(body, signal, encoding).inspect_err(|error| refused(&shared, door, error)))
            .await?
    };
    let waiting = turn(&app.turns.waiting_kib, plain.len() * HELD_PER_BYTE / 1_024 + 1).await;
    let waiting = waiting.inspect_err(busy)?;
    let shared = app.clone();
    blocking(move || {
        let arrival = Arrival::new(door, &plain, &caller).in_turn(decoding);
        let taken = take(&shared, signal, &arrival);
        drop(waiting);
        taken.map_err(said)
    })
    .await
}

/// The bytes of a body in protobuf.
fn plain(body: Packed, signal: Signal, encoding: Encoding) -> Result<Bytes, ApiError> {
    let Packed { packing, bytes, room } = body;
    let bytes = match packing {
        Packing::Plain => bytes,
        packing => unpack(packing, &bytes, BODY_BYTES_MAX).map(Bytes::from).map_err(|error| match error {
            UnpackError::Broken { .. } => ApiError::bad(error.to_string()).hint(NOTHING_KEPT),
            UnpackError::TooLarge { .. } => ApiError::too_large(error.to_string()).hint("send it in parts"),
        })?,
    };
    drop(room);
    match encoding {
        Encoding::Protobuf => Ok(bytes),
        Encoding::Json => {
            json::to_protobuf(signal, &bytes).map(Bytes::from).map_err(|error| said(TakeError::from(error)))
        }
    }
}

const NOTHING_KEPT: &str = "nothing of the request was kept";

/// Why nothing of a request was kept, as the API says it.
fn said(error: TakeError) -> ApiError {
    match error {
        TakeError::Unusable(OtlpError::TooMuch { .. }) => ApiError::too_large(error.to_string()),
        TakeError::Unusable(_) => ApiError::bad(error.to_string()).hint(NOTHING_KEPT),
        TakeError::Append(error) => ApiError::from(error).sooner_than(RETRY_SECONDS_MAX),
    }
}

/// Counts a request that did not come as far as being taken.
pub(super) fn refused(shared: &Shared, door: &'static str, error: &ApiError) {
    let outcome = match error.status() {
        StatusCode::SERVICE_UNAVAILABLE => "busy",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported",
        _ => "unusable",
    };
    shared.metrics.requests.add(&[door, outcome], 1);
}
