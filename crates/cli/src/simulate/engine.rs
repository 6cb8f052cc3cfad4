//! An engine as a process: its `/metrics` on a port of this machine.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use simulate::Engine;

use super::Play;
use crate::output::Failure;

/// Serves the engine of this name until the process ends.
pub(super) fn run(play: &Play, name: &str, port: u16) -> Result<(), Failure> {
    let engine = Engine::new(play.scenario.clone(), name)
        .ok_or_else(|| Failure::new(format!("the scenario has no engine `{name}`")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the engine `{name}`: {error}")))?;
    let state = Arc::new((Mutex::new(engine), play.clone()));
    let app = axum::Router::new().route("/metrics", get(page)).with_state(state);
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
            .await
            .map_err(|error| Failure::new(format!("cannot listen on port {port}: {error}")))?;
        axum::serve(listener, app).await.map_err(|error| Failure::new(format!("the engine ended: {error}")))
    })
}

type Served = Arc<(Mutex<Engine>, Play)>;

async fn page(state: axum::extract::State<Served>) -> Response {
    let (engine, play) = &**state;
    let now = play.now();
    let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
    engine.advance(now);
    if !engine.is_up(now) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the engine is down\n").into_response();
    }
    let page = engine.page(play.epoch_ns as f64 / 1e9);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}
