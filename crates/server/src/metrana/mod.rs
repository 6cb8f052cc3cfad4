//! The ingestion service of the `metrana` client: its runs become runs like ours.
//!
//! A client asks for a run (`handshake`), then keeps one stream (`stream`). What a message brings is
//! checked by the same rules as a push (`points`, `histogram`, `facts`) and acknowledged when it is
//! durable. `docs/format/metrana.md` has the protocol, `docs/guides/metrana.md` how to use it.

mod facts;
mod handshake;
mod histogram;
mod points;
mod session;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use model::{RunId, RunPath};
use tonic::Status;
use wire::metrana::{MESSAGE_BYTES_MAX, SERVICE};

use crate::access::Caller;
use crate::app::{App, Shared};
use crate::grpc::{self, Incoming};

/// Name of this door in the counters.
const DOOR: &str = "metrana";
/// Largest message that asks for a run, bytes.
const INITIALIZE_BYTES_MAX: usize = 1 << 20;
/// Behind our eight bytes in the ids that a client gets: it wants sixteen, and other servers' are not ours.
const ID_TAIL: [u8; 8] = *b"tg/run/1";
/// Most loggers whose jobs are remembered.
const JOBS_MAX: usize = 16_384;

/// Shared by every call.
type Service = Arc<Calls>;

/// See [`Service`].
#[derive(Debug)]
struct Calls {
    app: App,
    /// Held while a run is looked up and made, so that of many ranks one has made it.
    making: Mutex<()>,
    /// The jobs of loggers that have not said anything else yet.
    jobs: Mutex<HashMap<(RunId, u64), String>>,
}

impl Calls {
    fn jobs(&self) -> MutexGuard<'_, HashMap<(RunId, u64), String>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the job of a logger until its stream starts.
    fn note_job(&self, run: RunId, logger_id: u64, job: &str) {
        let mut jobs = self.jobs();
        if jobs.len() >= JOBS_MAX {
            jobs.clear();
        }
        jobs.insert((run, logger_id), job.to_owned());
    }
}

/// The service's calls.
pub(crate) fn routes(app: &App) -> Router {
    let calls = Calls { app: Arc::clone(app), making: Mutex::default(), jobs: Mutex::default() };
    let path = |call: &str| format!("/{SERVICE}/{call}");
    Router::new()
        .route(&path("InitializeRunLogging"), post(initialize))
        .route(&path("UpdateRunStream"), post(update))
        .route(&path("{call}"), post(|| async { grpc::answer(no_such_call()) }))
        .with_state(Arc::new(calls))
}

fn no_such_call() -> Status {
    Status::unimplemented(
        "this server takes runs by `InitializeRunLogging` and `UpdateRunStream`; what it holds is asked for over HTTP",
    )
}

async fn initialize(State(service): State<Service>, caller: Caller, request: Request) -> Response {
    let (incoming, request) = Incoming::of(&service.app, request);
    let call = tower::service_fn(move |request: tonic::Request<Bytes>| {
        incoming.taken();
        let (service, caller) = (Arc::clone(&service), caller.clone());
        async move {
            let parts = handshake::answer(service, caller, request.into_inner()).await?;
            Ok(tonic::Response::new(tokio_stream::iter(parts.into_iter().map(Ok))))
        }
    });
    let mut calls = grpc::calls(INITIALIZE_BYTES_MAX);
    let answered = calls.server_streaming(call, request);
    match tokio::time::timeout(grpc::MESSAGE_TIME_MAX, answered).await {
        Ok(answer) => answer.map(Body::new),
        Err(_late) => grpc::answer(grpc::late()),
    }
}

async fn update(State(service): State<Service>, caller: Caller, request: Request) -> Response {
    let (incoming, request) = Incoming::of(&service.app, request);
    let call = tower::service_fn(move |request: tonic::Request<tonic::Streaming<Bytes>>| {
        let messages = (request.into_inner(), incoming.clone());
        let answers = stream::open(Arc::clone(&service), caller.clone(), messages);
        async move { Ok(tonic::Response::new(answers)) }
    });
    grpc::calls(MESSAGE_BYTES_MAX).streaming(call, request).await.map(Body::new)
}

/// What a client calls a run.
fn outer_id(run: RunId) -> Vec<u8> {
    [run.0, ID_TAIL].concat()
}

/// The run that a client means.
fn run_of(shared: &Shared, outer_id: &[u8]) -> Result<Arc<model::RunRecord>, Status> {
    let id = outer_id.split_first_chunk::<8>().filter(|(_, tail)| **tail == ID_TAIL);
    let known = id.and_then(|(id, _)| {
        let id = RunId(*id);
        shared.store.run(id).or_else(|| shared.store.deleted_run(id))
    });
    known.ok_or_else(|| Status::not_found("no run of this server has this id: ask for the run again"))
}

/// The words and the code for what a store refuses.
fn refused(error: store::AppendError) -> Status {
    grpc::status(&error.into())
}

/// A hash of what identifies something, as wide as a writer's id.
fn mark(run: &RunPath, parts: [u64; 3]) -> [u8; 8] {
    use sha2::{Digest, Sha256};

    let mut hash = Sha256::new();
    hash.update(DOOR);
    hash.update(run.id().0);
    for part in parts {
        hash.update(part.to_be_bytes());
    }
    let mut short = [0; 8];
    short.copy_from_slice(&hash.finalize()[..8]);
    short
}
