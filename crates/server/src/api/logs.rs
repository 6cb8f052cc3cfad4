//! What processes logged by OTLP.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::{AttributeValue, LogRecord, NANOS_PER_MILLI, RecordAsk, RunId, RunRecord};
use serde::Serialize;
use store::Scope;
use utoipa::ToSchema;

use super::run::attribute;
use super::{Cursor, Params, next, shown, unreadable};
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::to_ms;
use crate::error::ApiError;
use crate::otlp::{IS_TEXT, text};

/// Records in one answer, unless fewer are asked for.
const LIMIT_MAX: usize = 10_000;
const LIMIT: usize = 1_000;
/// Records of one nanosecond that later ones are compared with.
const SAME_TIME_MAX: usize = 256;
/// Longest time that is spent looking for records of one answer.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Names of severities, each with the least number that it has.
const SEVERITIES: [(&str, u8); 6] =
    [("trace", 1), ("debug", 5), ("info", 9), ("warn", 13), ("error", 17), ("fatal", 21)];

/// Log records, in order of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogsAnswer {
    records: Vec<LogRow>,
    /// Where to go on, as `cursor`; null when there are no more.
    next: Option<String>,
    /// Whether texts that people or models wrote were left out, which admins only may read.
    texts_hidden: bool,
}

/// A line that a process logged.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogRow {
    /// Milliseconds since the epoch.
    time: i64,
    /// Nanoseconds since the epoch, exactly.
    time_ns: String,
    /// 1 to 4 trace, to 8 debug, to 12 info, to 16 warn, to 20 error, to 24 fatal; 0 not said.
    severity: u8,
    /// In the sender's words.
    severity_text: String,
    body: String,
    /// Name of its kind of event; may be empty.
    event: String,
    /// The logger.
    scope: String,
    run_id: Option<String>,
    rank: Option<u32>,
    instance: String,
    host: String,
    /// 32 hex digits.
    trace: Option<String>,
    /// 16 hex digits.
    span: Option<String>,
    #[schema(value_type = Object)]
    attributes: serde_json::Map<String, serde_json::Value>,
}

/// Lines that processes logged, oldest first. Those that came twice are shown once.
#[utoipa::path(get, operation_id = "logs", path = "/api/tg/v1/logs",
    params(
        ("run_id" = Option<String>, Query, description = "of this run; of all that the caller sees unless given"),
        ("from" = Option<i64>, Query, description = "milliseconds since the epoch"),
        ("to" = Option<i64>, Query, description = "milliseconds since the epoch, included"),
        ("rank" = Option<u32>, Query, description = "of this rank"),
        ("severity" = Option<String>, Query, description = "at least this: a number, or `trace`, `debug`, `info`, `warn`, `error`, `fatal`"),
        ("trace" = Option<String>, Query, description = "written in this trace, 32 hex digits"),
        ("limit" = Option<usize>, Query, description = "1000 unless given, at most 10000"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses(
        (status = 200, body = LogsAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn logs(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<LogsAnswer>, ApiError> {
    let (asked, limit, cursor) = asked(&Params::of(&uri)?)?;
    read(&app, move |shared| {
        if let Some(run) = asked.run {
            super::find_run(shared, &caller, run)?;
        }
        let mut page = Page::new(shared, &caller, limit, cursor);
        shared
            .store
            .records(&asked, &mut |record| page.take(record))
            .map_err(|error| unreadable("log records", &error))?;
        Ok(Json(page.answer))
    })
    .await
}

fn asked(params: &Params) -> Result<(RecordAsk, usize, Cursor), ApiError> {
    let cursor = params.cursor()?;
    let from = cursor.map(|(time_ns, _)| time_ns).or(params.time_ns("from", 0)?).unwrap_or(i64::MIN);
    let to = params.time_ns("to", NANOS_PER_MILLI - 1)?.unwrap_or(i64::MAX);
    let limit = params.limit(LIMIT, LIMIT_MAX)?;
    let asked = RecordAsk {
        run: params.get("run_id").map(super::run_id).transpose()?,
        time_ns: from..=to,
        ranks: params.number("rank")?.map(|rank| vec![rank]),
        severity_min: params.get("severity").map(severity).transpose()?.unwrap_or(0),
        trace: params.get("trace").map(trace).transpose()?,
    };
    Ok((asked, limit, cursor.unwrap_or((i64::MIN, 0))))
}

fn severity(text: &str) -> Result<u8, ApiError> {
    let named = SEVERITIES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, least)| *least);
    named.or_else(|| text.parse().ok().filter(|number| *number <= 24)).ok_or_else(|| {
        ApiError::bad(format!("`severity` is `{}`", shown(text)))
            .hint("use a number up to 24, or `trace`, `debug`, `info`, `warn`, `error` or `fatal`")
    })
}

fn trace(text: &str) -> Result<[u8; 16], ApiError> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    number
        .map(u128::to_be_bytes)
        .ok_or_else(|| ApiError::bad(format!("`trace` is `{}`, 32 hex digits are wanted", shown(text))))
}

/// An answer in the making.
struct Page<'s> {
    shared: &'s Shared,
    caller: &'s Caller,
    limit: usize,
    until: Instant,
    /// Up to where an answer before has shown all.
    shown: Cursor,
    /// The time that records are at, and how many of it the caller was shown.
    at: Cursor,
    /// Those of that time: what is sent again is at the same time.
    same_time: Vec<LogRecord>,
    runs: HashMap<RunId, Option<Arc<RunRecord>>>,
    answer: LogsAnswer,
}

impl<'s> Page<'s> {
    fn new(shared: &'s Shared, caller: &'s Caller, limit: usize, shown: Cursor) -> Self {
        Self {
            shared,
            caller,
            limit,
            until: Instant::now() + TIME_MAX,
            shown,
            at: (i64::MIN, 0),
            same_time: Vec::new(),
            runs: HashMap::new(),
            answer: LogsAnswer { records: Vec::new(), next: None, texts_hidden: false },
        }
    }

    /// Counts what the caller sees only: its pages depend on nobody else.
    fn take(&mut self, record: LogRecord) -> ControlFlow<()> {
        if record.time_ns != self.at.0 {
            if Instant::now() > self.until {
                return self.end(self.at);
            }
            self.at = (record.time_ns, 0);
            self.same_time.clear();
        }
        if !self.sees(record.run) || self.same_time.contains(&record) {
            return ControlFlow::Continue(());
        }
        let (time_ns, before) = self.at;
        let was_shown = time_ns == self.shown.0 && before < self.shown.1;
        if !was_shown && self.answer.records.len() >= self.limit {
            return self.end(self.at);
        }
        self.at.1 += 1;
        if self.same_time.len() < SAME_TIME_MAX {
            self.same_time.push(record.clone());
        }
        if !was_shown {
            self.show(record);
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, at: Cursor) -> ControlFlow<()> {
        self.answer.next = Some(next(at));
        ControlFlow::Break(())
    }

    /// Whether the caller sees what belongs to a run, or to none.
    fn sees(&mut self, run: Option<RunId>) -> bool {
        if !self.caller.is_bounded() {
            return true;
        }
        let Some(id) = run else { return false };
        let run = self.runs.entry(id).or_insert_with(|| self.shared.store.run(id));
        run.as_ref().is_some_and(|run| self.caller.sees(&run.path))
    }

    fn show(&mut self, mut record: LogRecord) {
        let is_text = record
            .attributes
            .iter()
            .any(|(key, value)| key == IS_TEXT && *value == AttributeValue::Bool(true));
        record.attributes.retain(|(key, _)| key != IS_TEXT);
        if !self.caller.may(Scope::Admin) {
            self.answer.texts_hidden |= text::hide(&mut record.attributes) || is_text;
            if is_text {
                record.body.clear();
            }
        }
        self.answer.records.push(row(record));
    }
}

fn row(record: LogRecord) -> LogRow {
    LogRow {
        time: to_ms(record.time_ns),
        time_ns: record.time_ns.to_string(),
        severity: record.severity,
        severity_text: record.severity_text,
        body: record.body,
        event: record.event,
        scope: record.scope,
        run_id: record.run.map(|run| run.to_string()),
        rank: record.rank,
        instance: record.instance,
        host: record.host,
        trace: record.trace.map(|trace| format!("{:032x}", u128::from_be_bytes(trace))),
        span: record.span.map(|span| format!("{:016x}", u64::from_be_bytes(span))),
        attributes: record.attributes.iter().map(|(key, value)| (key.clone(), attribute(value))).collect(),
    }
}
