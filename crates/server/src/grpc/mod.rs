//! The gRPC door: which services there are, who may call them, how messages come and go.
//!
//! Messages are handed over as bytes: a service decodes them itself, within bounds of its own.

mod codec;
mod incoming;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use store::Scope;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};
use tower_http::catch_panic::CatchPanicLayer;

use crate::access::{Caller, Certified, Closed, refusal};
use crate::app::App;
use crate::error::ApiError;
use crate::{guard, metrana, otlp};

pub(crate) use codec::Raw;
pub(crate) use incoming::{Incoming, MESSAGE_TIME_MAX, late};

/// Every service, guarded.
pub(crate) fn router(app: &App) -> Router {
    let panicked = Arc::clone(app);
    metrana::routes(app)
        .merge(otlp::grpc::routes(app))
        .fallback(|| async { answer(Status::unimplemented("this server has no such gRPC service")) })
        .layer(CatchPanicLayer::custom(move |panic: Box<dyn std::any::Any + Send>| {
            drop(guard::after_panic(&panicked, &*panic));
            answer(Status::internal("the call hit a fault of ours: the server's log has more"))
        }))
        .layer(middleware::from_fn_with_state(Arc::clone(app), admit))
}

/// A service's end of a call; takes what a client may pack, up to `bytes_max` unpacked.
pub(crate) fn calls(bytes_max: usize) -> tonic::server::Grpc<Raw> {
    tonic::server::Grpc::new(Raw)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(bytes_max)
}

/// A failure as a whole answer.
pub(crate) fn answer(status: Status) -> Response {
    status.into_http::<tonic::body::Body>().map(Body::new)
}

/// A failure of the API in gRPC's words.
pub(crate) fn status(error: &ApiError) -> Status {
    let code = match error.status() {
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, error.words())
}

/// Finds out who calls, and refuses those who may not send.
async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match caller(&app, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err((reason, error)) => {
            app.metrics.refused.add(&[reason], 1);
            answer(status(&error))
        }
    }
}

fn caller(app: &App, request: &Request) -> Result<Caller, (&'static str, ApiError)> {
    if request.headers().contains_key(header::ORIGIN) {
        let error = ApiError::new(StatusCode::FORBIDDEN, "pages of a browser may not call this port");
        return Err(("origin", error));
    }
    let certified = request.extensions().get::<Certified>();
    let port = app.config.listen.port();
    let found = app.access.caller(&Method::POST, request.headers(), port, certified);
    let (caller, (by, outcome)) = match found {
        Ok(Some(found)) => found,
        Ok(None) => {
            app.metrics.access.add(&["none", Closed::Missing.as_str()], 1);
            return Err(("token", refusal(Closed::Missing)));
        }
        Err(((by, outcome), error)) => {
            app.metrics.access.add(&[by, outcome], 1);
            return Err(("token", error));
        }
    };
    if by != "none" {
        app.metrics.access.add(&[by, outcome], 1);
    }
    caller.check(&[Scope::Ingest, Scope::Agent]).map_err(|error| ("scope", error))?;
    Ok(caller)
}
