//! The web UI, carried inside the program.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::error::ApiError;
use crate::guard::OTLP_PATHS;
use crate::otlp::http::no_such;

/// What `make build` put into `web/dist`; nothing when it was not run.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Dist;

/// Files below it are named by their content and never change.
const HASHED: &str = "assets/";

/// Shown when the program was built without the UI.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>truegauge</title>\
<h1>UI not built</h1><p>This program was built without its web pages: run <code>make build</code>. \
The API works: <a href=\"/api/openapi.json\">/api/openapi.json</a>.</p></html>";

/// Answers every path that is not the API's: a file, or the page that finds its own way.
pub(crate) async fn page(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    if path == "api" || path.starts_with("api/") {
        return ApiError::missing(format!("there is no `{}`", uri.path()))
            .hint("`/api/openapi.json` lists every path")
            .into_response();
    }
    if uri.path().starts_with(OTLP_PATHS) {
        return no_such(uri.path()).into_response();
    }
    if method != Method::GET && method != Method::HEAD {
        let mut response =
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "pages can only be read").into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if let Some(file) = Dist::get(path) {
        return answer(path, &file, &headers);
    }
    if path.starts_with(HASHED) {
        return ApiError::missing(format!("there is no `{}`", uri.path()))
            .hint("the page is of another version: load it again")
            .into_response();
    }
    match Dist::get("index.html") {
        Some(file) => answer("index.html", &file, &headers),
        None => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response(),
    }
}

fn answer(path: &str, file: &EmbeddedFile, headers: &HeaderMap) -> Response {
    let hash = file.metadata.sha256_hash();
    let tag: String =
        hash.iter().take(12).fold(String::from("\""), |tag, byte| format!("{tag}{byte:02x}")) + "\"";
    let caching = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|list| list.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Response::new(Body::from(file.data.clone().into_owned()));
        if let Ok(kind) = HeaderValue::from_str(&content_type(file.metadata.mimetype())) {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn content_type(kind: &str) -> String {
    if kind.starts_with("text/") { format!("{kind}; charset=utf-8") } else { kind.to_owned() }
}
