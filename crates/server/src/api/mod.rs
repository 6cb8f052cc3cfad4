//! The HTTP API: one table of routes, one file a noun.

mod access;
mod alerts;
mod backtest;
mod backup;
mod calc;
mod calc_tools;
mod compare;
mod complete;
mod deliveries;
mod engines;
mod engines_vocabulary;
mod events;
mod explain;
mod export;
mod export_selected;
mod fleet;
mod health;
mod incidents;
mod logs;
mod metrics;
pub(crate) mod missing;
mod points;
pub(crate) mod prometheus;
pub(crate) mod push;
mod remediation;
mod root;
mod run;
mod run_figures;
mod runs;
mod saved_rules;
mod silences;
mod status;
mod storage;
mod stored;
mod stream;
mod timeline;
mod training;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Query};
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use model::{NANOS_PER_MILLI, RunId, RunRecord};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;

use crate::access::{Caller, needs as access_needs};
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::guard;
use crate::otlp;
pub(crate) use timeline::goodput_ratio;

/// Largest JSON body, bytes.
pub(crate) const JSON_BYTES_MAX: usize = 1 << 20;

/// A row of the route table.
pub(crate) struct Row {
    /// Method, in capitals; the description's test compares it.
    pub(crate) method: &'static str,
    /// Path, with `{names}`.
    pub(crate) path: &'static str,
    answer: MethodRouter<App>,
}

/// Every path and method of the API and the root; the UI has the rest.
pub(crate) fn table() -> Vec<Row> {
    let row = |method, path, answer| Row { method, path, answer };
    let otlp = otlp::http::table().into_iter().map(|(path, answer)| row("POST", path, answer));
    let ours = vec![
        row("GET", "/api/tg/v1/runs", get(runs::list)),
        row("GET", "/api/tg/v1/filter", get(runs::filter_keys)),
        row("GET", "/api/tg/v1/runs/{run_id}", get(run::show)),
        row("PATCH", "/api/tg/v1/runs/{run_id}", patch(run::change)),
        row("GET", "/api/tg/v1/runs/figures", get(run_figures::list)),
        row("DELETE", "/api/tg/v1/runs/{run_id}", delete(run::remove)),
        row("POST", "/api/tg/v1/runs/{run_id}/restore", post(run::restore)),
        row("GET", "/api/tg/v1/runs/{run_id}/metrics", get(metrics::list)),
        row("GET", "/api/tg/v1/runs/{run_id}/missing", get(missing::list)),
        row("GET", "/api/tg/v1/runs/{run_id}/points", get(points::one)),
        row("GET", "/api/tg/v1/runs/{run_id}/health", get(health::show)),
        row("GET", "/api/tg/v1/runs/{run_id}/timeline", get(timeline::show)),
        row("GET", "/api/tg/v1/runs/{run_id}/training", get(training::show)),
        row("GET", "/api/tg/v1/runs/{run_id}/export", get(export::export)),
        row("GET", "/api/tg/v1/export", get(export_selected::export)),
        row("GET", "/api/tg/v1/compare", get(compare::compare)),
        row("GET", "/api/tg/v1/logs", get(logs::logs)),
        row("GET", "/api/tg/v1/events", get(events::list)),
        row("GET", "/api/tg/v1/fleet/nodes", get(fleet::nodes)),
        row("GET", "/api/tg/v1/fleet/gpus", get(fleet::gpus)),
        row("GET", "/api/tg/v1/incidents", get(incidents::list)),
        row("POST", "/api/tg/v1/incidents/close", post(incidents::close)),
        row("GET", "/api/tg/v1/alerts/summary", get(alerts::summary)),
        row("GET", "/api/tg/v1/alerts/history", get(alerts::history)),
        row("GET", "/api/tg/v1/silences", get(silences::list)),
        row("POST", "/api/tg/v1/silences", post(silences::add)),
        row("DELETE", "/api/tg/v1/silences/{id}", delete(silences::end)),
        row("GET", "/api/tg/v1/deliveries", get(deliveries::list)),
        row("POST", "/api/tg/v1/rules/backtest", post(backtest::backtest)),
        row("POST", "/api/tg/v1/rules/check", post(backtest::check)),
        row("GET", "/api/tg/v1/rules/{name}", get(backtest::show)),
        row("GET", "/api/tg/v1/rules/files", get(saved_rules::list)),
        row("GET", "/api/tg/v1/rules/files/{name}", get(saved_rules::show)),
        row("PUT", "/api/tg/v1/rules/files/{name}", put(saved_rules::save)),
        row("DELETE", "/api/tg/v1/rules/files/{name}", delete(saved_rules::remove)),
        row("GET", "/api/tg/v1/remediation", get(remediation::show)),
        row("GET", "/api/tg/v1/remediation/audit", get(remediation::audit)),
        row("POST", "/api/tg/v1/remediation/propose", post(remediation::propose)),
        row("POST", "/api/tg/v1/remediation/replay", post(remediation::replay)),
        row("POST", "/api/tg/v1/remediation/{id}/approve", post(remediation::approve)),
        row("POST", "/api/tg/v1/remediation/{id}/reject", post(remediation::reject)),
        row("POST", "/api/tg/v1/remediation/{id}/state", post(remediation::state)),
        row("POST", "/api/tg/v1/backup", post(backup::make)),
        row("POST", "/api/tg/v1/points", post(points::many)),
        row("GET", "/api/tg/v1/stream", get(stream::stream)),
        row("GET", "/api/tg/v1/session", get(access::session)),
        row("DELETE", "/api/tg/v1/session", delete(access::logout)),
        row("POST", "/api/tg/v1/login", post(access::login)),
        row("POST", "/api/tg/v1/login-links", post(access::link)),
        row("GET", "/api/tg/v1/tokens", get(access::list)),
        row("POST", "/api/tg/v1/tokens", post(access::create)),
        row("DELETE", "/api/tg/v1/tokens/{id}", delete(access::revoke)),
        row("POST", "/api/tg/v1/push", post(push::push)),
        row("GET", "/api/tg/v1/calc", get(calc_tools::list)),
        row("POST", "/api/tg/v1/calc/{tool}", post(calc::calculate)),
        row("GET", "/api/tg/v1/complete", get(complete::complete)),
        row("GET", "/api/tg/v1/explain", get(explain::explain)),
        row("GET", "/api/tg/v1/engines", get(engines::engines)),
        row("GET", "/api/tg/v1/engines/vocabulary", get(engines_vocabulary::vocabulary)),
        row("GET", "/api/tg/v1/metrics", get(stored::metrics)),
        row("GET", "/api/tg/v1/status", get(status::status)),
        row("GET", "/api/tg/v1/storage", get(storage::show)),
        row("POST", "/api/tg/v1/storage/check", post(storage::check)),
        row("POST", "/api/tg/v1/storage/refused/retry", post(storage::retry)),
        row("DELETE", "/api/tg/v1/storage/refused", delete(storage::forget)),
        row("GET", "/api/openapi.json", get(root::openapi)),
        row("GET", "/healthz", get(root::healthz)),
        row("GET", "/readyz", get(root::readyz)),
        row("GET", "/metrics", get(root::metrics)),
    ];
    ours.into_iter().chain(otlp).collect()
}

/// Every path with who may ask it.
pub(crate) fn routes() -> Vec<crate::Route> {
    let ours = table().into_iter().map(|row| (row.method, row.path));
    let theirs = prometheus::table().into_iter().map(|(path, _)| ("*", path));
    ours.chain(theirs)
        .map(|(method, path)| {
            let needs = access_needs(method, path);
            let scopes = needs.scopes.iter().map(|scope| scope.as_str()).collect();
            crate::Route { method, path, scopes, bounded: needs.bounded }
        })
        .collect()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "truegauge",
        description = "Runs, their metrics and points. Times are milliseconds since the epoch unless a name says otherwise; NaN and infinities are the strings `NaN`, `+Inf` and `-Inf`. Where a token is set, send `Authorization: Bearer <token>`. Below `/api/v1` stands Prometheus' own API, which its documentation describes."
    ),
    paths(
        runs::list,
        runs::filter_keys,
        run::show,
        run::change,
        run::remove,
        run::restore,
        metrics::list,
        missing::list,
        points::one,
        points::many,
        health::show,
        timeline::show,
        training::show,
        export::export,
        export_selected::export,
        alerts::summary,
        alerts::history,
        silences::list,
        silences::add,
        silences::end,
        deliveries::list,
        backtest::backtest,
        backtest::check,
        backtest::show,
        saved_rules::list,
        saved_rules::show,
        saved_rules::save,
        saved_rules::remove,
        backup::make,
        compare::compare,
        run_figures::list,
        logs::logs,
        events::list,
        fleet::nodes,
        fleet::gpus,
        incidents::list,
        incidents::close,
        remediation::show,
        remediation::audit,
        remediation::propose,
        remediation::replay,
        remediation::approve,
        remediation::reject,
        remediation::state,
        stream::stream,
        access::session,
        access::logout,
        access::login,
        access::link,
        access::list,
        access::create,
        access::revoke,
        push::push,
        calc_tools::list,
        calc::calculate,
        complete::complete,
        explain::explain,
        engines::engines,
        engines_vocabulary::vocabulary,
        stored::metrics,
        status::status,
        storage::show,
        storage::check,
        storage::retry,
        storage::forget,
        root::openapi,
        root::healthz,
        root::readyz,
        root::metrics,
        crate::otlp::http::metrics,
        crate::otlp::http::traces,
        crate::otlp::http::logs
    ),
    components(schemas(crate::error::ErrorBody))
)]
struct Description;

/// The OpenAPI description, as JSON.
pub(crate) fn openapi_json() -> String {
    Description::openapi().to_pretty_json().unwrap_or_default()
}

/// The whole router, guarded.
pub(crate) fn router(app: &App) -> Router {
    let router = table().into_iter().fold(Router::new(), |router, row| router.route(row.path, row.answer));
    let router =
        prometheus::table().into_iter().fold(router, |router, (path, answer)| router.route(path, answer));
    let panicked = Arc::clone(app);
    router
        .fallback(crate::ui::page)
        .layer(CatchPanicLayer::custom(move |panic: Box<dyn std::any::Any + Send>| {
            guard::after_panic(&panicked, &*panic)
        }))
        .layer(CompressionLayer::new().compress_when(compressible))
        .layer(DefaultBodyLimit::max(JSON_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard::guard))
        .with_state(Arc::clone(app))
}

/// Text is compressed; binary columns and endless streams are not.
fn compressible(_: StatusCode, _: Version, headers: &HeaderMap, _: &axum::http::Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let text = ["application/json", "text/html", "text/css", "text/javascript", "application/javascript"];
    text.iter().any(|known| kind.starts_with(known)) || kind == "image/svg+xml"
}

/// The parameters of a query string.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads them; broken escapes are an error.
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| ApiError::bad(format!("the query string can't be read: {error}")))
    }

    /// The last value of a name; an empty one is none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Every name and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A number, or none when it is not given.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_source: T::Err| {
                    ApiError::bad(format!("`{name}` is `{}`, a number is wanted", shown(text)))
                })
            })
            .transpose()
    }

    /// Whether something is asked for by `true`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(ApiError::bad(format!("`{name}` is `{}`, `true` or `false` is wanted", shown(other))))
            }
        }
    }

    /// How many rows are asked for at most: `limit`.
    pub(crate) fn limit(&self, default: usize, max: usize) -> Result<usize, ApiError> {
        let limit = self.number("limit")?.unwrap_or(default);
        if (1..=max).contains(&limit) {
            return Ok(limit);
        }
        Err(ApiError::bad(format!("`limit` is {limit}, 1 to {max} are possible")))
    }

    /// Where to go on: `cursor`.
    pub(crate) fn cursor(&self) -> Result<Option<Cursor>, ApiError> {
        let parts = |text: &str| {
            let (time_ns, count) = text.split_once('.')?;
            Some((time_ns.parse().ok()?, count.parse().ok()?))
        };
        let wrong = || {
            ApiError::bad("`cursor` is not one of an answer's `next`")
                .hint("leave it out to begin at the first")
        };
        self.get("cursor").map(|text| parts(text).ok_or_else(wrong)).transpose()
    }

    /// A time, given in milliseconds, as nanoseconds; `of_a_milli` of them are within it.
    pub(crate) fn time_ns(&self, name: &str, of_a_milli: i64) -> Result<Option<i64>, ApiError> {
        let ms = self.number::<i64>(name)?;
        Ok(ms.map(|ms| ms.saturating_mul(NANOS_PER_MILLI).saturating_add(of_a_milli)))
    }
}

/// Where an answer in order of time ended: a time in nanoseconds, and how many rows of it are done with.
pub(crate) type Cursor = (i64, usize);

/// A cursor as an answer gives it.
pub(crate) fn next((time_ns, count): Cursor) -> String {
    format!("{time_ns}.{count}")
}

/// An answer for what the store could not read; `what` names it.
pub(crate) fn unreadable(what: &str, error: &impl std::fmt::Display) -> ApiError {
    tracing::error!(%error, what, "cannot be read");
    ApiError::internal(error.to_string()).hint("`truegauge doctor` and the server's log say what is damaged")
}

/// Reads a JSON body; what is wrong is said with its place.
pub(crate) fn json_body<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if body.len() > JSON_BYTES_MAX {
        return Err(ApiError::too_large(format!("the body is over {JSON_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::bad(format!("the body is not usable: {error}")))
}

/// At most 80 characters of what a caller sent, printable.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(80).collect()
}

/// Reads a run's id.
pub(crate) fn run_id(text: &str) -> Result<RunId, ApiError> {
    RunId::parse(text).ok_or_else(|| {
        ApiError::missing(format!("`{}` is not a run's id", shown(text)))
            .hint("an id has 16 hex digits; `GET /api/tg/v1/runs` lists them")
    })
}

/// Finds a run. One that the caller may not see is not there for it.
pub(crate) fn find_run(shared: &Shared, caller: &Caller, id: RunId) -> Result<Arc<RunRecord>, ApiError> {
    if let Some(far) = &shared.far {
        far.read_back(shared, caller, id);
    }
    shared.store.run(id).filter(|run| caller.sees(&run.path)).ok_or_else(|| {
        ApiError::missing(format!("there is no run `{id}`")).hint("`GET /api/tg/v1/runs` lists all")
    })
}

/// A number as JSON: NaN and infinities become words.
pub(crate) fn json_number(value: f64) -> serde_json::Value {
    serde_json::Number::from_f64(value).map_or_else(
        || {
            let word = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            serde_json::Value::from(word)
        },
        serde_json::Value::Number,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_lists_every_route_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(&openapi_json()).unwrap();
        let mut described: Vec<String> = description["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |m| format!("{} {path}", m.to_uppercase()))
            })
            .collect();
        let mut routed: Vec<String> =
            table().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
        let operations = description["paths"].as_object().unwrap().values();
        let operations = operations.flat_map(|methods| methods.as_object().unwrap().values());
        let ids: Vec<&str> = operations.map(|o| o["operationId"].as_str().unwrap()).collect();
        let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
        described.sort();
        routed.sort();
        assert_eq!(described, routed);
    }
}
