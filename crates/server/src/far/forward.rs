//! Questions that the far storage answers, and its answers passed on as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::Far;
use super::http::Ask;
use crate::guard::AsItIs;

/// Longest answer that is no success, bytes.
const FAILURE_BYTES_MAX: usize = 256 << 10;
/// Questions that the far storage is asked at once.
pub(super) const QUESTIONS_MAX: usize = 64;

static FORM: [(HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/x-www-form-urlencoded"), (header::ACCEPT, "application/json")];
static PLAIN: [(HeaderName, &str); 1] = [(header::ACCEPT, "application/json")];

/// A question in Prometheus' API.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// Path below the far storage's address, such as `/api/v1/query`.
    pub(crate) path: String,
    /// Parameters.
    pub(crate) parameters: Vec<(String, String)>,
    /// Whether the parameters go into a form; else into the address.
    pub(crate) is_form: bool,
    /// Longest wait for the answer, its last byte included.
    pub(crate) time_max: Duration,
    /// Most bytes of the answer.
    pub(crate) bytes_max: u64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Forwarded {
    /// The far storage's own answer, a failure of the query among them.
    Answer(Response),
    /// It is away, or refuses us: why.
    Away(String),
    /// It took too long.
    Slow(Duration),
    /// The answer is over the bound: its bytes.
    TooLarge(u64),
}

/// An answer that is being read.
struct Open {
    status: StatusCode,
    is_json: bool,
    length: Option<u64>,
    body: Incoming,
    turn: OwnedSemaphorePermit,
}

/// An answer's bytes: the question holds its turn until they are read, and they end at a time.
struct Passed {
    body: Limited<Incoming>,
    end: Pin<Box<Sleep>>,
    _turn: OwnedSemaphorePermit,
}

impl hyper::body::Body for Passed {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err("the far storage's answer took too long".into())));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

fn form(parameters: &[(String, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish()
}

impl Far {
    /// Asks, and passes the answer on piece by piece. Dropping the future, or the answer's body, ends
    /// the question at the far storage too.
    pub(crate) async fn forward(&self, question: Question) -> Forwarded {
        let (time_max, bytes_max) = (question.time_max, question.bytes_max);
        let end = Instant::now() + time_max;
        let open = match tokio::time::timeout_at(end, self.open(question)).await {
            Err(_elapsed) => return self.counted("slow", Forwarded::Slow(time_max)),
            Ok(Err(words)) => return self.counted("away", Forwarded::Away(words)),
            Ok(Ok(open)) => open,
        };
        if !open.status.is_success() || !open.is_json {
            let failure = tokio::time::timeout_at(end, self.failure(open)).await;
            return failure.unwrap_or_else(|_elapsed| self.counted("slow", Forwarded::Slow(time_max)));
        }
        if let Some(length) = open.length.filter(|length| *length > bytes_max) {
            return self.counted("too_large", Forwarded::TooLarge(length));
        }
        let body = Limited::new(open.body, usize::try_from(bytes_max).unwrap_or(usize::MAX));
        let body = Passed { body, end: Box::pin(tokio::time::sleep_until(end)), _turn: open.turn };
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.counted("answered", Forwarded::Answer(response))
    }

    /// Asks for JSON and reads it whole.
    pub(crate) async fn ask(&self, question: Question) -> Result<serde_json::Value, String> {
        let (time_max, bytes_max) = (question.time_max, question.bytes_max);
        let work = async {
            let open = self.open(question).await?;
            let status = open.status;
            let limited = Limited::new(open.body, usize::try_from(bytes_max).unwrap_or(usize::MAX));
            let bytes = limited.collect().await.map_err(|error| format!("its answer breaks off: {error}"))?;
            let bytes = bytes.to_bytes();
            let answer: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_not_json| {
                format!("it answers {status} and no JSON: is `storage_query_url` right?")
            })?;
            match answer["error"].as_str() {
                Some(error) => Err(format!("it answers {status}: {error}")),
                None if status.is_success() => Ok(answer),
                None => Err(format!("it answers {status}")),
            }
        };
        let slow = |_elapsed| Err(format!("no answer within {} s", time_max.as_secs()));
        tokio::time::timeout(time_max, work).await.unwrap_or_else(slow)
    }

    async fn open(&self, question: Question) -> Result<Open, String> {
        let turn = Arc::clone(&self.questions).acquire_owned().await;
        let turn = turn.map_err(|_closed| "the server stops".to_owned())?;
        let form = form(&question.parameters);
        let mut connection = self.client.connect(&self.query).await?;
        let below = if question.is_form || form.is_empty() {
            question.path
        } else {
            format!("{}?{form}", question.path)
        };
        let (method, headers, body): (_, &[_], _) = if question.is_form {
            (Method::POST, &FORM, Bytes::from(form))
        } else {
            (Method::GET, &PLAIN, Bytes::new())
        };
        let ask = Ask { method, below: &below, headers, body };
        let answer = self.client.send(&mut connection, &self.query, ask).await?;
        let text = |name| answer.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        // Nobody asked for a compressed answer, and it would be passed on as what it is not.
        let is_json = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"))
            && text(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        Ok(Open { status: answer.status(), is_json, length, body: answer.into_body(), turn })
    }

    /// A failure in Prometheus' words is the caller's; any other is between us and the far storage.
    async fn failure(&self, open: Open) -> Forwarded {
        let status = open.status;
        let bytes = Limited::new(open.body, FAILURE_BYTES_MAX).collect().await;
        let bytes = bytes.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let words = said["error"].as_str().unwrap_or_default();
        let is_ours = matches!(status.as_u16(), 200..=399 | 401 | 403 | 404 | 405);
        if is_ours || words.is_empty() || said["status"] != "error" {
            let text = String::from_utf8_lossy(&bytes);
            let line: String =
                text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
            let words = if line.is_empty() { String::new() } else { format!(": {line}") };
            return self.counted("away", Forwarded::Away(format!("it answers {status}{words}")));
        }
        let message = words.to_owned();
        let mut response = (status, bytes).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.extensions_mut().insert(AsItIs { message });
        self.counted("failed", Forwarded::Answer(response))
    }

    fn counted(&self, outcome: &str, of: Forwarded) -> Forwarded {
        self.counts.queries.add(&[outcome], 1);
        of
    }
}
