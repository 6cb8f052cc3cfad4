//! Hands spans on to another backend, for those who run one.
//!
//! What waits is bounded and in memory: a backend that is away costs its own spans, the oldest first,
//! and delays nobody. Only what was taken is handed on, and never a text that people or models wrote,
//! also where the project keeps texts: who may read them here is not who may read them there.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;
use wire::otlp::answer::{self, Encoding, Signal};
use wire::otlp::{AHEAD_NS_MAX, hand_on};

use super::{Arrival, Seen};
use crate::StartError;
use crate::access::Caller;
use crate::app::{App, Shared};
use crate::clock::now_ms;
use crate::config::OtlpConfig;
use crate::metrics::{escape, head};

/// Bytes of one request, about: what waits longer goes together.
const REQUEST_BYTES: usize = 1 << 20;
/// Longest wait for a connection, and for an answer.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Least and longest pause between two tries, and the longest that the backend may ask for.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// How long a backend that is well is sent to after the server was told to stop.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Most of an answer that is read, bytes, and most characters of it that are shown.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
const SHOWN_MAX: usize = 200;
/// What a request weighs beside its bytes.
const WAITING_BYTES: usize = 256;

/// What becomes of spans that are to be handed on.
const OUTCOMES: [&str; 4] = ["sent", "rejected", "refused", "dropped"];
const SENT: usize = 0;
/// Of a request that the backend has taken in part.
const REJECTED: usize = 1;
/// Of a request that it will never take.
const REFUSED: usize = 2;
/// Of those that waited too long.
const DROPPED: usize = 3;

/// The way to the other backend.
pub(crate) struct Forward {
    url: String,
    headers: Vec<(String, crate::config::Secret)>,
    bytes_max: usize,
    agent: ureq::Agent,
    state: Mutex<State>,
    changed: Condvar,
    /// Spans by [`OUTCOMES`].
    spans: [AtomicU64; 4],
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Since when the server stops.
    stopping: Option<Instant>,
    /// Why the last try failed, and when.
    failed: Option<(String, i64)>,
    is_done: bool,
}

/// A request that was taken.
struct Waiting {
    body: Vec<u8>,
    caller: Caller,
    now_ns: i64,
    spans: u64,
}

/// What became of a try.
enum Said {
    Taken { rejected: u64 },
    Later(String, Option<Duration>),
    Never(String),
}

/// How handing on fares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForwardStatus {
    /// Where spans are handed on to.
    url: String,
    /// Bytes of requests that wait.
    waiting_bytes: u64,
    /// Spans that the backend has taken.
    sent: u64,
    /// Spans of requests that it has taken in part.
    rejected: u64,
    /// Spans of requests that it will never take.
    refused: u64,
    /// Spans that waited while there was no more room.
    dropped: u64,
    /// Why the last try failed; null when it did not.
    failed: Option<String>,
    failed_ms: Option<i64>,
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Forward {
    /// The way that the settings name, if they name one.
    pub(crate) fn of(config: &OtlpConfig) -> Option<Arc<Self>> {
        if config.forward_traces_url.is_empty() {
            return None;
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_TIME_MAX))
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .max_redirects(0)
            .proxy(None)
            .http_status_as_error(false)
            .build();
        Some(Arc::new(Self {
            url: config.forward_traces_url.clone(),
            headers: config.forward_headers.clone(),
            bytes_max: usize::try_from(config.forward_queue_bytes_max).unwrap_or(usize::MAX),
            agent: agent.into(),
            state: Mutex::default(),
            changed: Condvar::new(),
            spans: [const { AtomicU64::new(0) }; 4],
            thread: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, outcome: usize, spans: u64) {
        self.spans[outcome].fetch_add(spans, Ordering::Relaxed);
    }

    /// Keeps a request that was taken, in memory; the oldest make room.
    pub(super) fn offer(&self, arrival: &Arrival<'_>, spans: u64) {
        let mut state = self.lock();
        state.bytes += arrival.body.len() + WAITING_BYTES;
        state.waiting.push_back(Waiting {
            body: arrival.body.to_vec(),
            caller: arrival.caller.clone(),
            now_ns: arrival.now_ns,
            spans,
        });
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.pop() else { break };
            self.count(DROPPED, oldest.spans);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// How it fares.
    pub(crate) fn status(&self) -> ForwardStatus {
        let state = self.lock();
        let spans = |outcome: usize| self.spans[outcome].load(Ordering::Relaxed);
        ForwardStatus {
            url: self.url.clone(),
            waiting_bytes: state.bytes as u64,
            sent: spans(SENT),
            rejected: spans(REJECTED),
            refused: spans(REFUSED),
            dropped: spans(DROPPED),
            failed: state.failed.as_ref().map(|(why, _)| why.clone()),
            failed_ms: state.failed.as_ref().map(|(_, ms)| *ms),
        }
    }

    /// Adds its counters to the page of metrics.
    pub(crate) fn page(&self, page: &mut String) {
        let spans = "truegauge_otlp_forward_spans_total";
        head(page, spans, "counter", "Spans that were to be handed on, and what became of them.");
        for (outcome, count) in OUTCOMES.iter().zip(&self.spans) {
            let count = count.load(Ordering::Relaxed);
            let _infallible = writeln!(page, "{spans}{{outcome=\"{}\"}} {count}", escape(outcome));
        }
        let bytes = "truegauge_otlp_forward_waiting_bytes";
        head(page, bytes, "gauge", "Bytes of requests that wait to be handed on.");
        let _infallible = writeln!(page, "{bytes} {}", self.lock().bytes);
    }

    /// Sends for a moment what waits, then ends. A try under way may end after that.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping.get_or_insert_with(Instant::now);
        self.changed.notify_all();
        let most = DRAIN_TIME_MAX + Duration::from_millis(500);
        let waited = self.changed.wait_timeout_while(state, most, |state| !state.is_done);
        let is_done = waited.unwrap_or_else(PoisonError::into_inner).0.is_done;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if is_done && thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("handing spans on ended by a panic");
        }
    }

    /// Sends until the server stops.
    fn run(&self, app: &Weak<Shared>) {
        while let Some(taken) = self.next() {
            let Some((body, spans)) = app.upgrade().map(|app| joined(&app, &taken)) else { break };
            drop(taken);
            if spans > 0 {
                self.deliver(&body, spans);
            }
        }
        self.lock().is_done = true;
        self.changed.notify_all();
    }

    /// The next requests, as many as go together; none when it is to end.
    fn next(&self) -> Option<Vec<Waiting>> {
        let idle = |state: &mut State| state.waiting.is_empty() && state.stopping.is_none();
        let waited = self.changed.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over() {
            return None;
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < REQUEST_BYTES {
            let Some(next) = state.pop() else { break };
            bytes += next.body.len();
            taken.push(next);
        }
        (!taken.is_empty()).then_some(taken)
    }

    /// Tries until the backend has taken it, never will, or the server stops.
    fn deliver(&self, body: &[u8], spans: u64) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.send(body) {
                Said::Taken { rejected } => {
                    let rejected = rejected.min(spans);
                    self.count(SENT, spans - rejected);
                    self.count(REJECTED, rejected);
                    self.lock().failed = None;
                    return;
                }
                Said::Never(why) => {
                    tracing::warn!(url = self.url, why, spans, "spans handed on were refused");
                    self.count(REFUSED, spans);
                    self.lock().failed = Some((why, now_ms()));
                    return;
                }
                Said::Later(why, asked) => {
                    if self.lock().failed.is_none() {
                        tracing::warn!(url = self.url, why, "cannot hand spans on: trying again");
                    }
                    self.lock().failed = Some((why, now_ms()));
                    if !self.pause(asked.unwrap_or(pause)) {
                        self.count(DROPPED, spans);
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Waits; whether the server goes on.
    fn pause(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| state.stopping.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping.is_none()
    }

    fn send(&self, body: &[u8]) -> Said {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let packed = packer.write_all(body).and_then(|()| packer.finish());
        let packed = match packed {
            Ok(packed) => packed,
            Err(error) => return Said::Never(format!("it can't be packed: {error}")),
        };
        let kind = Encoding::Protobuf.content_type();
        let mut request =
            self.agent.post(&self.url).header("content-type", kind).header("content-encoding", "gzip");
        for (name, value) in &self.headers {
            request = request.header(name, value.as_str());
        }
        let mut answer = match request.send(&packed) {
            Ok(answer) => answer,
            Err(error) => return Said::Later(error.to_string(), None),
        };
        let status = answer.status().as_u16();
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let asked = header("retry-after").and_then(|text| text.parse().ok());
        let asked = asked.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().unwrap_or_default();
        if (200..300).contains(&status) {
            return Said::Taken { rejected: answer::rejected(&text) };
        }
        let text = String::from_utf8_lossy(&text);
        let words: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
        let why = format!("it answered {status}: {words}");
        match status {
            // Who is not known there, or asks at a wrong place, may be set right.
            401 | 403 | 404 | 408 | 429 | 500..=599 => Said::Later(why, asked),
            _ => Said::Never(why),
        }
    }
}

impl State {
    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.body.len() + WAITING_BYTES;
        Some(next)
    }

    /// Whether it is to end: at once when the backend is not well.
    fn is_over(&self) -> bool {
        self.stopping.is_some_and(|since| {
            self.waiting.is_empty() || self.failed.is_some() || since.elapsed() > DRAIN_TIME_MAX
        })
    }
}

/// Refuses to hand on to one of the server's own addresses.
pub(crate) fn check(config: &OtlpConfig, own: &[Option<SocketAddr>]) -> Result<(), StartError> {
    let url = &config.forward_traces_url;
    let Ok(uri) = url.parse::<Uri>() else { return Ok(()) };
    let Some(host) = uri.host() else { return Ok(()) };
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_here = |address: SocketAddr| {
        let is_this_machine = host == "localhost" || ip.is_some_and(|ip| ip.is_loopback());
        is_this_machine || ip == Some(address.ip())
    };
    if own.iter().flatten().any(|address| address.port() == port && is_here(*address)) {
        return Err(StartError::Circle { url: url.clone() });
    }
    Ok(())
}

/// Starts handing on, where the settings ask for it.
pub(crate) fn start(app: &App) -> std::io::Result<()> {
    let Some(forward) = &app.forward else { return Ok(()) };
    // The store is closed when the last of those who share it is gone; a try under way must not be one.
    let (work, shared) = (Arc::clone(forward), Arc::downgrade(app));
    let thread = std::thread::Builder::new().name("otlp-forward".into()).spawn(move || work.run(&shared))?;
    *forward.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    Ok(())
}

/// Requests as one, with what was taken of them and without texts; how many spans it has.
fn joined(shared: &Shared, taken: &[Waiting]) -> (Vec<u8>, u64) {
    let (mut body, mut spans) = (Vec::new(), 0);
    for request in taken {
        let mut seen = Seen::new(shared, &request.caller);
        let ahead_ns = request.now_ns.saturating_add(AHEAD_NS_MAX);
        let whole = body.len();
        let handed_on = hand_on(
            &request.body,
            &mut |span| {
                let times = (span.start_ns.min(span.end_ns), span.start_ns.max(span.end_ns));
                times.1 <= ahead_ns && seen.note(span.resource, times, Signal::Traces).is_ok()
            },
            &mut body,
        );
        // It was read before; were it not readable, nothing of it would go.
        match handed_on {
            Ok(count) => spans += count,
            Err(_unreadable) => body.truncate(whole),
        }
    }
    (body, spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_do_not_go_round_in_a_circle() {
        let own = [Some(([127, 0, 0, 1], 9494).into()), None, Some(([10, 0, 0, 5], 4318).into())];
        let refused = |url: &str| {
            let config = OtlpConfig { forward_traces_url: url.into(), ..OtlpConfig::default() };
            check(&config, &own).is_err()
        };
        for url in [
            "http://localhost:9494/v1/traces",
            "http://[::1]:9494",
            "http://127.0.0.1:4318",
            "http://10.0.0.5:4318",
        ] {
            assert!(refused(url), "{url}");
        }
        for url in ["", "http://tempo:4318", "http://localhost:4319", "https://10.0.0.6:4318"] {
            assert!(!refused(url), "{url}");
        }
    }
}
