//! `/metrics` and `/healthz` of an agent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::config::Secret;
use crate::shown::Shown;

/// Connections at once; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a request may take to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What answers.
pub(crate) struct Pages {
    pub(crate) shown: Arc<Shown>,
    pub(crate) token: Secret,
}

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, pages: Arc<Pages>) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of files: the connections that there are end some time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let _turn = turn;
            let answer = service_fn(|request| {
                let response = pages.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // Whoever asked is gone.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
        }
        match path {
            "/healthz" => match self.shown.trouble() {
                None => text(StatusCode::OK, "ok\n"),
                Some(trouble) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{trouble}\n")),
            },
            "/metrics" if !self.admits(request) => {
                let words = "a bearer token is wanted: `authorization: Bearer TOKEN` with the agent's `metrics_token`\n";
                let mut response = text(StatusCode::UNAUTHORIZED, words);
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            "/metrics" => {
                let mut response = text(StatusCode::OK, &self.shown.page());
                let kind = HeaderValue::from_static(crate::expose::CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            "/" => text(StatusCode::OK, "truegauge agent: /metrics and /healthz\n"),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics and /healthz here\n"),
        }
    }

    fn admits(&self, request: &Request<Incoming>) -> bool {
        if self.token.is_empty() {
            return true;
        }
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given
            .and_then(|value| value.split_once(' '))
            .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        given.is_some_and(|(_, token)| is_same(token.trim().as_bytes(), self.token.as_str().as_bytes()))
    }
}

/// Equality in a time that says nothing of where two texts differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn text(status: StatusCode, words: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(words.to_owned())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
