//! Looks whether a far storage will do: writes a few samples of its own and reads them back.

use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use utoipa::ToSchema;
use wire::remote_write::{Point, RequestWriter};

use super::http::{Ask, Client, Endpoint};
use super::sender::HEADERS;
use super::{Far, FarError};
use crate::clock::now_ms;
use crate::config::{Config, StorageKind};

/// The series that is written.
const METRIC: &str = "truegauge_probe";
/// How late samples are written, in words and milliseconds.
const AGES: [(&str, i64); 4] =
    [("10 minutes", 600_000), ("1 hour", 3_600_000), ("1 day", 86_400_000), ("30 days", 30 * 86_400_000)];
/// How long a sample may take until a query finds it: VictoriaMetrics hides the newest for a while.
const SEEN_TIME_MAX: Duration = Duration::from_secs(5);
const SEEN_PERIOD: Duration = Duration::from_millis(200);
/// Longest wait for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Difference of clocks that is told of.
const SKEW_MS_MAX: i64 = 5_000;

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Finding {
    /// What was looked at.
    pub id: &'static str,
    /// `ok`, `warn` or `fail`.
    pub status: &'static str,
    /// What was found.
    pub evidence: String,
    /// What to do; empty when all is well.
    pub fix: String,
}

fn finding(id: &'static str, status: &'static str, evidence: String, fix: &str) -> Finding {
    Finding { id, status, evidence, fix: fix.to_owned() }
}

/// Looks at the far storage that the settings name; nothing where they name none. Blocks.
pub fn check_storage(config: &Config) -> Result<Vec<Finding>, FarError> {
    if config.storage.kind == StorageKind::Embedded {
        return Ok(Vec::new());
    }
    let write = Endpoint::parse("storage_write_url", &config.storage.write_url).map_err(FarError)?;
    let query = Endpoint::parse("storage_query_url", &config.storage.query_url).map_err(FarError)?;
    let client = Client::new(&config.storage).map_err(FarError)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| FarError(error.to_string()))?;
    Ok(runtime.block_on(Probe { client: &client, write: &write, query: &query }.run()))
}

impl Far {
    /// Looks at the far storage.
    pub(crate) async fn probe(&self) -> Vec<Finding> {
        Probe { client: &self.client, write: &self.write, query: &self.query }.run().await
    }
}

/// What a request came back with.
struct Said {
    status: StatusCode,
    /// The far storage's clock, when it says.
    date: Option<String>,
    text: String,
}

impl Said {
    fn words(&self) -> String {
        let line: String = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            return self.status.to_string();
        }
        format!("{}: {}", self.status, line.chars().take(200).collect::<String>())
    }
}

struct Probe<'p> {
    client: &'p Client,
    write: &'p Endpoint,
    query: &'p Endpoint,
}

impl Probe<'_> {
    async fn run(&self) -> Vec<Finding> {
        let now_ms = now_ms();
        let said = match self.put(now_ms, now_ms).await {
            Ok(said) => said,
            Err(words) => {
                let fix = "check `storage_write_url`, and that the cluster is up";
                return vec![finding("storage.write", "fail", format!("{}: {words}", self.write), fix)];
            }
        };
        let mut findings = vec![self.written(&said)];
        findings.extend(said.date.as_deref().and_then(|date| skew(date, now_ms)));
        let seen = self.seen(now_ms, now_ms).await;
        let is_seen = matches!(seen, Ok(true));
        findings.push(self.read(seen));
        if said.status.is_success() && is_seen {
            findings.push(self.window(now_ms).await);
        }
        findings
    }

    fn written(&self, said: &Said) -> Finding {
        let evidence = format!("{} answers {}", self.write, said.words());
        match said.status.as_u16() {
            200..=299 => finding("storage.write", "ok", format!("{} takes samples", self.write), ""),
            401 | 403 => finding(
                "storage.write",
                "fail",
                evidence,
                "check the credentials and the tenant under `[storage]`; samples wait on disk meanwhile",
            ),
            404 | 405 => finding(
                "storage.write",
                "fail",
                evidence,
                "check the path of `storage_write_url`; Prometheus needs `--web.enable-remote-write-receiver`",
            ),
            _ => finding("storage.write", "fail", evidence, "the cluster's own log says more"),
        }
    }

    fn read(&self, seen: Result<bool, String>) -> Finding {
        match seen {
            Ok(true) => {
                finding("storage.query", "ok", format!("{} answers with what was written", self.query), "")
            }
            Ok(false) => finding(
                "storage.query",
                "warn",
                format!(
                    "{} answers, without what was written {} s before",
                    self.query,
                    SEEN_TIME_MAX.as_secs()
                ),
                "check that both URLs lead to one tenant; some clusters show new samples late",
            ),
            Err(words) => finding(
                "storage.query",
                "fail",
                format!("{}: {words}", self.query),
                "check `storage_query_url`, which stands in front of `/api/v1/query`, and the credentials",
            ),
        }
    }

    /// How late samples may come.
    async fn window(&self, now_ms: i64) -> Finding {
        let (mut taken, mut refused) = ("", String::new());
        for (words, age_ms) in AGES {
            let at_ms = now_ms - age_ms;
            match self.put(at_ms, now_ms).await {
                Ok(said) if said.status.is_success() => match self.seen(at_ms, now_ms).await {
                    Ok(true) => taken = words,
                    _ => refused = format!("one {words} late was taken and is not found"),
                },
                Ok(said) => refused = format!("one {words} late is refused: {}", said.words()),
                Err(error) => refused = error,
            }
            if !refused.is_empty() {
                break;
            }
        }
        let id = "storage.window";
        match (taken, refused.is_empty()) {
            (_, true) => finding(id, "ok", format!("samples {taken} late are taken"), ""),
            ("", false) => finding(
                id,
                "warn",
                format!("samples that come late are not taken: {refused}"),
                "set the cluster's out-of-order window (docs/guides/far-storage.md): what was spooled comes late",
            ),
            (taken, false) => finding(
                id,
                "ok",
                format!("samples {taken} late are taken; {refused}"),
                "older spools stay on this server and in the list of refused samples; widen the cluster's out-of-order window if they should not",
            ),
        }
    }

    /// Writes the value `value` at a time.
    async fn put(&self, at_ms: i64, value: i64) -> Result<Said, String> {
        let mut writer = RequestWriter::new();
        let point = Point { time_ms: at_ms, value: value as f64 };
        writer.series([("__name__", METRIC), ("job", "truegauge")], &[point]);
        let body = writer.finish().map_err(|error| error.to_string())?;
        let ask = Ask { method: Method::POST, below: "", headers: &HEADERS, body: body.into() };
        self.ask(self.write, ask).await
    }

    /// Whether a query finds the value `value` at a time.
    async fn seen(&self, at_ms: i64, value: i64) -> Result<bool, String> {
        let until = Instant::now() + SEEN_TIME_MAX;
        let time = (at_ms + 1_000) as f64 / 1e3;
        let query = format!("{METRIC}{{job=\"truegauge\"}}[2s]");
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let below = format!("/api/v1/query?query={query}&time={time}&latency_offset=1ms&nocache=1");
        loop {
            let ask = Ask { method: Method::GET, below: &below, headers: &[], body: Bytes::new() };
            let said = self.ask(self.query, ask).await?;
            let answer: serde_json::Value = serde_json::from_str(&said.text).unwrap_or_default();
            if !said.status.is_success() || answer["status"] != "success" {
                return Err(format!("it answers {}", said.words()));
            }
            let rows = answer["data"]["result"].as_array().into_iter().flatten();
            let mut found = rows.flat_map(|row| row["values"].as_array().into_iter().flatten());
            let is_it = |pair: &serde_json::Value| {
                pair[1].as_str().and_then(|text| text.parse::<f64>().ok()) == Some(value as f64)
            };
            if found.any(is_it) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            tokio::time::sleep(SEEN_PERIOD).await;
        }
    }

    async fn ask(&self, to: &Endpoint, ask: Ask<'_>) -> Result<Said, String> {
        let work = async {
            let mut connection = self.client.connect(to).await?;
            let answer = self.client.send(&mut connection, to, ask).await?;
            let status = answer.status();
            let date = answer.headers().get(header::DATE).and_then(|v| v.to_str().ok()).map(str::to_owned);
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| format!("the answer breaks off: {error}"))?.to_bytes();
            Ok(Said { status, date, text: String::from_utf8_lossy(&bytes).into_owned() })
        };
        let slow = |_elapsed| Err(format!("no answer within {} s", ANSWER_TIME_MAX.as_secs()));
        tokio::time::timeout(ANSWER_TIME_MAX, work).await.unwrap_or_else(slow)
    }
}

/// Told when the clocks differ: samples from the future are refused by most.
fn skew(date: &str, now_ms: i64) -> Option<Finding> {
    let theirs_ms = http_date(date)?;
    // A date has whole seconds.
    let ahead_ms = now_ms - theirs_ms;
    let id = "storage.clock";
    if (-SKEW_MS_MAX..=SKEW_MS_MAX).contains(&ahead_ms) {
        return Some(finding(id, "ok", "the cluster's clock agrees with this machine's".to_owned(), ""));
    }
    let seconds = ahead_ms.abs() / 1_000;
    let side = if ahead_ms > 0 { "behind" } else { "ahead of" };
    Some(finding(
        id,
        "warn",
        format!("the cluster's clock is {seconds} s {side} this machine's"),
        "set both by NTP: samples from the future are refused, and late ones may be",
    ))
}

/// Reads `Mon, 30 Nov 2026 05:00:00 GMT`, as milliseconds since the epoch.
fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = parts.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? as i64 + 1;
    let clock: Vec<i64> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hours, minutes, seconds] = clock.as_slice() else { return None };
    let days = crate::clock::days_since_epoch(year.parse().ok()?, month, day.parse().ok()?);
    Some((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(http_date("Tue, 14 Nov 2023 22:13:20 GMT"), Some(1_700_000_000_000));
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn clocks_that_differ_are_told_of() {
        let status = |ahead_ms: i64| {
            skew("Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000_000 + ahead_ms).unwrap().status
        };
        assert_eq!([status(900), status(-4_000), status(60_000)], ["ok", "ok", "warn"]);
    }
}
