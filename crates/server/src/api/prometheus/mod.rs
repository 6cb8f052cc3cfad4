//! Prometheus' own HTTP API, as Grafana and promtool ask it.
//!
//! Described by Prometheus, not by our OpenAPI page; what differs is in `docs/guides/promql.md`.
//! Bodies, words and codes of failures are Prometheus'.

mod asked;
mod forwarded;
mod query;
mod rules;
mod series;
mod state;
mod write;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use promql::QueryError;
use promql::json::{Written, push_text};

pub(crate) use asked::time as parse_time;

use crate::app::App;
use crate::error::ApiError;
use crate::guard::AsItIs;
use crate::query::AskError;

/// Every path of this API.
pub(crate) fn table() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        ("/api/v1/query", get(query::instant).post(query::instant)),
        ("/api/v1/query_range", get(query::range).post(query::range)),
        ("/api/v1/query_exemplars", get(query::exemplars).post(query::exemplars)),
        ("/api/v1/format_query", get(query::format).post(query::format)),
        ("/api/v1/parse_query", get(query::tree).post(query::tree)),
        ("/api/v1/series", get(series::series).post(series::series)),
        ("/api/v1/labels", get(series::names).post(series::names)),
        ("/api/v1/label/{name}/values", get(series::values)),
        ("/api/v1/metadata", get(series::metadata)),
        ("/api/v1/write", post(write::write)),
        ("/api/v1/rules", get(rules::rules)),
        ("/api/v1/alerts", get(rules::alerts)),
        ("/api/v1/alertmanagers", get(rules::alertmanagers)),
        ("/-/reload", post(rules::reload_now).put(rules::reload_now)),
        ("/-/healthy", get(super::root::healthz)),
        ("/-/ready", get(super::root::readyz)),
        ("/docs/runbooks/{page}", get(crate::starters::runbook)),
        ("/api/v1/targets", get(state::targets)),
        ("/api/v1/targets/metadata", get(state::targets_metadata)),
        ("/api/v1/status/buildinfo", get(state::buildinfo)),
        ("/api/v1/status/runtimeinfo", get(state::runtimeinfo)),
        ("/api/v1/status/config", get(state::config)),
        ("/api/v1/status/flags", get(state::flags)),
        ("/api/v1/status/tsdb", get(state::tsdb)),
    ]
}

/// A failure in Prometheus' words.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
}

impl Failure {
    /// 400: what was sent is not usable.
    fn bad(message: impl Into<String>) -> Self {
        Self { kind: "bad_data", message: message.into() }
    }

    /// 400: one parameter is not usable.
    fn parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad(format!("invalid parameter \"{name}\": {reason}"))
    }

    fn status(&self) -> StatusCode {
        match self.kind {
            "bad_data" => StatusCode::BAD_REQUEST,
            "execution" => StatusCode::UNPROCESSABLE_ENTITY,
            "timeout" | "canceled" | "unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            "not_found" => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match error.kind() {
            "bad_data" => Self::parameter("query", error),
            kind => Self { kind, message: error.to_string() },
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let kind = match error.status().as_u16() {
            503 => "unavailable",
            404 => "not_found",
            400..=499 => "bad_data",
            _ => "internal",
        };
        Self { kind, message: error.message().to_owned() }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Query(error) => error.into(),
            AskError::Queued(limit) => Self {
                kind: "timeout",
                message: format!(
                    "query timed out in query queue: other queries took all turns (`query_concurrency`) for {limit:?}"
                ),
            },
            AskError::Server(error) => error.into(),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut body = String::from("{\"status\":\"error\",\"errorType\":");
        push_text(&mut body, self.kind);
        body.push_str(",\"error\":");
        push_text(&mut body, &self.message);
        body.push('}');
        let mut response = (self.status(), json(body)).into_response();
        response.extensions_mut().insert(AsItIs { message: self.message });
        response
    }
}

/// The answer to a query. Its memory is held until the last byte has been sent.
fn written(written: Written) -> Response {
    struct Held(Written);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            self.0.text.as_bytes()
        }
    }
    let mut response = json(String::new());
    *response.body_mut() = Body::from(Bytes::from_owner(Held(written)));
    response
}

/// Says of how many entries a cut answer, a whole body, has the first.
fn add_total(body: &mut String, total: usize) {
    body.pop();
    body.extend([",\"total\":", &total.to_string(), "}"]);
}

/// A JSON body.
fn json(body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer around `data`, which is JSON already.
fn success(data: &str, warnings: &[String]) -> Response {
    json(whole(data, warnings))
}

/// The body of such an answer.
fn whole(data: &str, warnings: &[String]) -> String {
    let mut body = String::with_capacity(data.len() + 64);
    body.push_str("{\"status\":\"success\",\"data\":");
    body.push_str(data);
    push_list(&mut body, "warnings", warnings);
    body.push('}');
    body
}

/// Appends a list of texts under `name`, unless it is empty.
fn push_list(body: &mut String, name: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    body.extend([",\"", name, "\":"]);
    push_texts(body, texts);
}

/// Appends a JSON array of texts.
fn push_texts<T: AsRef<str>>(out: &mut String, texts: &[T]) {
    out.push('[');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_text(out, text.as_ref());
    }
    out.push(']');
}
