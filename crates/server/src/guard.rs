//! Who may ask, from where, for how long; what every answer carries.
//!
//! Outermost layer of the router. A browser page of a foreign origin, or one that reached us under a
//! foreign name (DNS rebinding), is refused before anything is looked at.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::{Caller, Certified, Closed, looks_like, needs, refusal};
use crate::app::App;
use crate::error::{ApiError, Carried, ErrorBody, ErrorDetail, code_of};
use crate::linger;
use crate::otlp;
use wire::otlp::answer::Encoding;

/// Longest time from a request's head to its answer's head, its body included.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(1);

/// Longest time of a backup, which may copy to a slow disk.
const BACKUP_TIME_MAX: Duration = Duration::from_hours(6);

/// Beside the time that a query waits and the time that it takes: reading, writing and sending.
const QUERY_SLACK: Duration = Duration::from_secs(10);

/// Begin of the paths of OTLP.
pub(crate) const OTLP_PATHS: &str = "/v1/";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The content policy: nothing foreign, nothing inline but styles set by scripts.
const CONTENT_POLICY: &str = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; \
     object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Checks the request, bounds its time and finishes its answer.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_otlp = request.uri().path().starts_with(OTLP_PATHS);
    let failing = is_otlp.then(|| otlp::http::told_in(request.headers()));
    guarded(app, request, next, failing).await
}

/// The same, where nothing but OTLP is served.
pub(crate) async fn guard_otlp(State(app): State<App>, request: Request, next: Next) -> Response {
    let failing = Some(otlp::http::told_in(request.headers()));
    guarded(app, request, next, failing).await
}

/// `failing` is how OTLP is told of a failure; all others are told in our JSON.
async fn guarded(app: App, request: Request, next: Next, failing: Option<Encoding>) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|p| p.as_str().to_owned());
    let foreign = origin(request.headers()).filter(|o| app.config.allowed_origins.contains(o));
    let (parts, body) = request.into_parts();
    let left = (!body.is_end_stream()).then(|| linger::Shared::new(body));
    let mut request = Request::from_parts(parts, left.clone().map_or_else(Body::empty, Body::new));
    let admitted = admit(&app, &request, route.as_deref());
    let response = match admitted {
        Err((reason, error)) => {
            app.metrics.refused.add(&[reason], 1);
            error.into_response()
        }
        Ok(_) if foreign.is_some() && method == Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let bound = answer_time(&app, request.uri().path());
            tokio::time::timeout(bound, next.run(request)).await.unwrap_or_else(
                |_elapsed: tokio::time::error::Elapsed| {
                    let message = format!("not finished within {} s", bound.as_secs());
                    ApiError::new(StatusCode::REQUEST_TIMEOUT, message).into_response()
                },
            )
        }
    };
    if let Some(left) = left.filter(|_| response.status().is_client_error()) {
        left.discard().await;
    }
    let code = response.status().as_u16().to_string();
    let route = route.as_deref().unwrap_or("other");
    let method =
        if matches!(method, Method::GET | Method::HEAD | Method::POST | Method::PATCH | Method::DELETE) {
            method.as_str().to_owned()
        } else {
            "other".to_owned()
        };
    app.metrics.answers.add(&[route, &method, &code], 1);
    app.metrics
        .answering_us
        .fetch_add(u64::try_from(started.elapsed().as_micros()).unwrap_or(0), Ordering::Relaxed);
    let response = finish(response, failing);
    match foreign {
        Some(origin) => allow_origin(response, &origin),
        None => response,
    }
}

/// A failure whose body is not ours to write, as in the APIs of others; the message is for the log.
#[derive(Debug, Clone)]
pub(crate) struct AsItIs {
    /// What went wrong.
    pub(crate) message: String,
}

/// How long an answer may take: a query has a bound of its own, and waits as long for its turn.
fn answer_time(app: &App, path: &str) -> Duration {
    if path == "/api/tg/v1/backup" {
        BACKUP_TIME_MAX
    } else if path.starts_with("/api/v1/query") {
        ANSWER_TIME_MAX.max(app.config.query.time_max.saturating_mul(2).saturating_add(QUERY_SLACK))
    } else {
        ANSWER_TIME_MAX
    }
}

/// The reason for the counter, and the answer.
type Refusal = (&'static str, ApiError);

/// Who asks, unless what is asked is refused before anything is looked at.
fn admit(app: &App, request: &Request, route: Option<&str>) -> Result<Caller, Refusal> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    check_place(app, uri, headers)?;
    check_address(uri)?;
    let needs = route.map(|route| needs(method.as_str(), route));
    let path = uri.path();
    let open = match needs {
        Some(needs) => needs.scopes.is_empty(),
        None => !path.starts_with("/api/"),
    };
    let certified = request.extensions().get::<Certified>();
    let port = app.config.listen.port();
    let found = app.access.caller(method, headers, port, certified).map_err(|((by, outcome), error)| {
        app.metrics.access.add(&[by, outcome], 1);
        ("token", error)
    });
    let caller = match found {
        Ok(Some((caller, (by, outcome)))) => {
            if by != "none" {
                app.metrics.access.add(&[by, outcome], 1);
            }
            caller
        }
        // What is open to all is so for one with a wrong token too.
        Ok(None) | Err(_) if open || method == Method::OPTIONS => return Ok(Caller::nobody()),
        Ok(None) => {
            let closed = Closed::Missing;
            app.metrics.access.add(&["none", closed.as_str()], 1);
            return Err(("token", refusal(closed)));
        }
        Err(error) => return Err(error),
    };
    if let Some(needs) = needs.filter(|needs| !needs.scopes.is_empty() && method != Method::OPTIONS) {
        caller.check(needs.scopes).map_err(|error| ("scope", error))?;
        if !needs.bounded {
            caller.check_unbounded().map_err(|error| ("scope", error))?;
        }
    }
    Ok(caller)
}

/// Refuses a token in an address, where logs and histories keep it.
fn check_address(uri: &Uri) -> Result<(), Refusal> {
    let query = uri.query().unwrap_or_default();
    let has_token = form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| matches!(&*name, "token" | "access_token" | "api_token") || looks_like(&value));
    if !has_token && !uri.path().split('/').any(looks_like) {
        return Ok(());
    }
    let error = ApiError::bad("a token was sent in the address, where logs keep it").hint(
        "revoke it with `truegauge token revoke`, and send the next in `Authorization: Bearer <token>`",
    );
    Err(("token_in_address", error))
}

/// Refuses who reached us under a foreign name, or from a foreign page.
fn check_place(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let host = uri.authority().map_or(host, axum::http::uri::Authority::as_str).to_ascii_lowercase();
    if !host_allowed(app, &host) {
        let message = format!("this server is not called `{}`", shown(&host));
        let error = ApiError::new(StatusCode::FORBIDDEN, message)
            .hint("add the name to `allowed_hosts` if it is yours (docs/guides/server.md)");
        return Err(("host", error));
    }
    if let Some(origin) = origin(headers) {
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        if !own && !app.config.allowed_origins.contains(&origin) {
            let message = format!("pages of `{}` may not call this server", shown(&origin));
            let error = ApiError::new(StatusCode::FORBIDDEN, message)
                .hint("add the origin to `allowed_origins` if it is yours (docs/guides/server.md)");
            return Err(("origin", error));
        }
    }
    Ok(())
}

/// Where the calling page comes from, when it says.
fn origin(headers: &HeaderMap) -> Option<String> {
    headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default().to_ascii_lowercase())
}

/// Tells a browser that a page of an allowed foreign origin may read the answer.
fn allow_origin(mut response: Response, origin: &str) -> Response {
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers
        .insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH, DELETE"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("authorization, content-type, last-event-id"),
    );
    response
}

/// At most 80 characters of something foreign, without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// Whether the server may be called by this `Host`: an IP address can't be rebound to us by a name
/// server, so only names need to be known.
fn host_allowed(app: &App, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok()
        || app.config.allowed_hosts.iter().any(|allowed| allowed == name || allowed == host)
        || (!app.config.listen.ip().is_loopback() && own_name(name))
}

fn own_name(name: &str) -> bool {
    let uname = rustix::system::uname();
    uname.nodename().to_str().is_ok_and(|own| {
        let own = own.to_ascii_lowercase();
        name == own || own.split('.').next() == Some(name)
    })
}

/// Gives every answer its id and safety headers, and every failure its body.
fn finish(mut response: Response, failing: Option<Encoding>) -> Response {
    let id = request_id();
    if response.status().is_client_error() || response.status().is_server_error() {
        response = failure(response, &id, failing);
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

/// Rewrites a failure's body as [`ErrorBody`] with the request's id; a failure that brings no detail
/// of ours, as the router's own, gets one by its status. OTLP is told its own way.
fn failure(mut response: Response, id: &str, failing: Option<Encoding>) -> Response {
    let status = response.status();
    if let Some(AsItIs { message }) = response.extensions_mut().remove::<AsItIs>() {
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(request_id = id, message, "a request failed");
        }
        return response;
    }
    let detail = response.extensions_mut().remove::<Carried>().map_or_else(
        || ErrorDetail {
            code: code_of(status).to_owned(),
            message: status.canonical_reason().unwrap_or("the request failed").to_ascii_lowercase(),
            hint: if status == StatusCode::METHOD_NOT_ALLOWED {
                "`/api/openapi.json` lists every path and its methods".to_owned()
            } else {
                String::new()
            },
            ..ErrorDetail::default()
        },
        |Carried(detail)| detail,
    );
    if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        tracing::error!(request_id = id, message = detail.message, "a request failed");
    }
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(encoding) = failing {
        return otlp::http::failure(response, &detail.words(), encoding);
    }
    let body = ErrorBody { error: ErrorDetail { request_id: id.to_owned(), ..detail } };
    let bytes = serde_json::to_vec(&body).unwrap_or_default();
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(Bytes::from(bytes)))
}

/// Eight random bytes in hex; all zero if the system has none to give.
fn request_id() -> String {
    format!("{:016x}", u64::from_be_bytes(random()))
}

/// Random bytes; all zero if the system has none to give.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0u8; BYTES];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = [0; BYTES];
    }
    bytes
}

/// What a panic in a handler answers with.
pub(crate) fn after_panic(app: &App, panic: &(dyn std::any::Any + Send)) -> Response {
    app.metrics.panics.fetch_add(1, Ordering::Relaxed);
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = text, "a request's handler panicked");
    ApiError::internal("the request hit a fault of ours").hint("the server's log has more").into_response()
}
