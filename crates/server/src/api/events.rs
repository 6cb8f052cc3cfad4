//! What happened to nodes, devices, engines and runs.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::{EVENT_KINDS, Event, EventAsk, NANOS_PER_MILLI, Severity};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::incidents::sees;
use super::{Cursor, Params, next, shown, unreadable};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::to_ms;
use crate::engines::ENGINE_EVENT;
use crate::error::ApiError;

/// Events in one answer, unless fewer are asked for.
const LIMIT_MAX: usize = 10_000;
const LIMIT: usize = 200;
/// Longest time that is spent looking for the events of one answer.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Events, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventsAnswer {
    events: Vec<EventRow>,
    /// Where to go on, as `cursor`; null when there are no more.
    next: Option<String>,
}

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventRow {
    /// Milliseconds since the epoch.
    time: i64,
    /// Nanoseconds since the epoch, exactly.
    time_ns: String,
    kind: String,
    /// `info`, `warning` or `critical`.
    severity: &'static str,
    /// What it is known by on its host.
    key: String,
    /// Where, to whom, and who says so: `source` is `userspace` for what a process wrote.
    #[schema(value_type = Object)]
    labels: Map<String, Value>,
    text: String,
    #[schema(value_type = Object)]
    body: Value,
}

/// Events, the latest first.
///
/// A caller that sees a part of all projects is shown those of its own runs, and of engines whose series are of
/// its projects.
#[utoipa::path(get, operation_id = "listEvents", path = "/api/tg/v1/events",
    params(
        ("from" = Option<i64>, Query, description = "milliseconds since the epoch"),
        ("to" = Option<i64>, Query, description = "milliseconds since the epoch, included"),
        ("kind" = Option<String>, Query, description = "of these kinds, with commas"),
        ("host" = Option<String>, Query, description = "of this host"),
        ("uuid" = Option<String>, Query, description = "of this card"),
        ("run_id" = Option<String>, Query, description = "of this run"),
        ("severity" = Option<String>, Query, description = "at least `info`, `warning` or `critical`"),
        ("limit" = Option<usize>, Query, description = "200 unless given, at most 10000"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses(
        (status = 200, body = EventsAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<EventsAnswer>, ApiError> {
    let (ask, limit, cursor) = asked(&Params::of(&uri)?)?;
    read(&app, move |shared| {
        if let Some(run) = ask.run {
            super::find_run(shared, &caller, run)?;
        }
        let answer = EventsAnswer { events: Vec::new(), next: None };
        let until = Instant::now() + TIME_MAX;
        let mut page =
            Page { shared, caller: &caller, limit, until, skipped: cursor, at: (i64::MAX, 0), answer };
        shared
            .store
            .events(&ask, &mut |event| page.take(event))
            .map_err(|error| unreadable("events", &error))?;
        Ok(Json(page.answer))
    })
    .await
}

fn asked(params: &Params) -> Result<(EventAsk, usize, Cursor), ApiError> {
    let cursor = params.cursor()?;
    let from = params.time_ns("from", 0)?.unwrap_or(i64::MIN);
    let to =
        cursor.map(|(time_ns, _)| time_ns).or(params.time_ns("to", NANOS_PER_MILLI - 1)?).unwrap_or(i64::MAX);
    let limit = params.limit(LIMIT, LIMIT_MAX)?;
    let ask = EventAsk {
        time_ns: from..=to,
        kinds: params.get("kind").map(kinds).transpose()?,
        host: params.get("host").map(str::to_owned),
        uuid: params.get("uuid").map(str::to_owned),
        run: params.get("run_id").map(super::run_id).transpose()?,
        severity_min: params.get("severity").map(severity).transpose()?.unwrap_or_default(),
    };
    Ok((ask, limit, cursor.unwrap_or((i64::MIN, 0))))
}

fn kinds(text: &str) -> Result<Vec<String>, ApiError> {
    let kinds: Vec<String> = text.split(',').map(str::to_owned).collect();
    match kinds.iter().find(|kind| !EVENT_KINDS.contains(&kind.as_str())) {
        Some(other) => Err(ApiError::bad(format!("`kind` is `{}`", shown(other)))
            .hint(format!("kinds are `{}`, several with commas", EVENT_KINDS.join("`, `")))),
        None => Ok(kinds),
    }
}

fn severity(text: &str) -> Result<Severity, ApiError> {
    Severity::named(text).ok_or_else(|| {
        ApiError::bad(format!("`severity` is `{}`", shown(text))).hint("use `info`, `warning` or `critical`")
    })
}

/// An answer in the making.
struct Page<'s> {
    shared: &'s Shared,
    caller: &'s Caller,
    limit: usize,
    until: Instant,
    /// Events of the first time that an answer before is done with.
    skipped: Cursor,
    /// The time that events are at, and how many of it that the caller sees are done with.
    at: Cursor,
    answer: EventsAnswer,
}

impl Page<'_> {
    fn take(&mut self, event: Event) -> ControlFlow<()> {
        if self.at.0 != event.time_ns {
            self.at = (event.time_ns, 0);
        }
        let is_done = event.time_ns == self.skipped.0 && self.at.1 < self.skipped.1;
        // What the caller does not see is not counted either: where an answer ends would tell of it.
        let is_seen = self.is_seen(&event);
        let is_full = is_seen && !is_done && self.answer.events.len() >= self.limit;
        if is_full || Instant::now() >= self.until {
            self.answer.next = Some(next(self.at));
            return ControlFlow::Break(());
        }
        if is_seen {
            self.at.1 += 1;
            if !is_done {
                self.answer.events.push(row(event));
            }
        }
        ControlFlow::Continue(())
    }

    fn is_seen(&self, event: &Event) -> bool {
        let of_run = || event.label("run_id").is_some_and(|id| sees(self.shared, self.caller, id));
        // An engine is of no run; its series say whose it is.
        let of_engine = || event.kind == ENGINE_EVENT && self.caller.sees_labels(|name| event.label(name));
        !self.caller.is_bounded() || of_run() || of_engine()
    }
}

fn row(event: Event) -> EventRow {
    EventRow {
        time: to_ms(event.time_ns),
        time_ns: event.time_ns.to_string(),
        kind: event.kind,
        severity: event.severity.name(),
        key: event.key,
        labels: event.labels.into_iter().map(|(name, value)| (name, Value::from(value))).collect(),
        text: event.text,
        body: serde_json::from_str(&event.body).unwrap_or_else(|_| Value::Object(Map::new())),
    }
}
