//! Sends what waits to the server, the oldest first, until it is durable there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::http::Uri;
use spool::Reader;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use wire::push::{CONTENT_TYPE, PushRequest, PushResponse};

use crate::config::Config;
use crate::outbox::Outbox;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A whole request has to get through a slow line. Nobody waits for it.
const PUSH_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Between two attempts, doubled from the first up to the second.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// Why a server can't be sent to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The URL is none of a server.
    #[error("the server `{found}` is not usable: write it as `http://host:9494` or `https://host`")]
    Url {
        /// As it was given, without what may be secret.
        found: String,
    },
    /// A file of authorities can't be used.
    #[error("cannot use the authorities in `{}`: {reason}", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What became of an attempt.
enum Verdict {
    Stored(Box<PushResponse>),
    /// The same bytes may come later: why, and the server's wish.
    Later(String, Option<Duration>),
    /// These bytes won't ever be taken.
    Refused(String),
}

/// A server.
pub(crate) struct Transport {
    url: String,
    authorization: Option<String>,
    agent: ureq::Agent,
}

impl Transport {
    pub(crate) fn new(config: &Config) -> Result<Self, ServerError> {
        let given = config.server.trim().trim_end_matches('/');
        let base = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
        let unusable = || ServerError::Url { found: shown(&base) };
        let uri: Uri = base.parse().map_err(|_source| unusable())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(unusable)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(unusable());
        }
        let mut settings = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(tls(config.ca_file.as_deref())?)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(PUSH_TIMEOUT))
            .user_agent(concat!("truegauge-agent/", env!("CARGO_PKG_VERSION")));
        if host == "localhost" || host == "[::1]" || host.starts_with("127.") {
            settings = settings.proxy(None);
        }
        let authorization = (!config.token.is_empty()).then(|| format!("Bearer {}", config.token.as_str()));
        Ok(Self { url: format!("{base}/api/tg/v1/push"), authorization, agent: settings.build().into() })
    }

    fn push(&self, bytes: &[u8]) -> Verdict {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", CONTENT_TYPE)
            .header("content-encoding", "zstd");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut response = match request.send(bytes) {
            Ok(response) => response,
            Err(error) => return Verdict::Later(error.to_string(), None),
        };
        let answer = match response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec() {
            Ok(answer) => answer,
            Err(error) => return Verdict::Later(error.to_string(), None),
        };
        let header =
            |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let status = response.status().as_u16();
        let is_ours = header("content-type").starts_with(CONTENT_TYPE);
        match (status, wire::push::read_response(&answer)) {
            (200..300, Some(stored)) if is_ours => Verdict::Stored(Box::new(stored)),
            (400 | 411..=418 | 422 | 431, _) => Verdict::Refused(said(status, &answer)),
            _ => {
                let wish = header("retry-after").parse().ok().map(Duration::from_secs);
                Verdict::Later(said(status, &answer), wish)
            }
        }
    }
}

/// A URL as people may see it: without user and password, and without what follows the path.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{rest}")
}

fn tls(ca_file: Option<&Path>) -> Result<TlsConfig, ServerError> {
    let Some(path) = ca_file else { return Ok(TlsConfig::builder().build()) };
    let failed = |reason: String| ServerError::Trust { path: path.to_owned(), reason };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        if let PemItem::Certificate(one) = item.map_err(|error| failed(format!("it is not PEM: {error}")))? {
            found.push(one);
        }
    }
    if found.is_empty() {
        return Err(failed("no certificate is in it".into()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::from(found)).build())
}

/// The server's own words, in one line, and what to do where a person has to.
fn said(status: u16, answer: &[u8]) -> String {
    let message = serde_json::from_slice::<serde_json::Value>(answer)
        .ok()
        .and_then(|v| v["error"]["message"].as_str().map(str::to_owned))
        .unwrap_or_default();
    let next = match status {
        401 => "; set `TRUEGAUGE_TOKEN` to a token of scope `agent`",
        403 => "; use a token of scope `agent` that is for all projects",
        200..=399 | 404 | 405 => "; point `--server` at a truegauge server: another program answers there",
        _ => "",
    };
    let colon = if message.is_empty() { "" } else { ": " };
    format!("status {status}{colon}{message}{next}")
}

/// Delivers until the agent ends.
pub(crate) struct Delivery {
    transport: Transport,
    outbox: Arc<Outbox>,
    /// What was said of the server last, so that it is said once.
    said: Option<String>,
    refusals: BTreeSet<String>,
}

impl Delivery {
    pub(crate) fn new(transport: Transport, outbox: Arc<Outbox>) -> Self {
        Self { transport, outbox, said: None, refusals: BTreeSet::new() }
    }

    /// First what earlier agents left in `spools`, then what comes.
    pub(crate) fn run(mut self, spools: &Path) {
        for dir in spool::list(spools) {
            if !self.take_over(&dir) {
                return;
            }
        }
        while let Some(job) = self.outbox.next() {
            if !self.send(job.bytes()) {
                return;
            }
            self.outbox.done(&job);
        }
        self.outbox.tidy();
    }

    /// Delivers the spool of an agent that is gone; false when there is no time left.
    fn take_over(&mut self, dir: &Path) -> bool {
        // One that is held is the live one of this agent; one that can't be read is left to a person.
        let Ok(Some(_lock)) = spool::try_own(dir) else { return true };
        let mut reader = match Reader::open(dir) {
            Ok(reader) => reader,
            Err(error) => {
                tracing::warn!("{error}");
                return true;
            }
        };
        loop {
            match reader.next() {
                Ok(Some(record)) => {
                    if !self.send(&record.bytes) {
                        return false;
                    }
                    // A mark that is not set makes the record come again, and the server knows it.
                    let _ = reader.consume(record.position);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("{error}");
                    return true;
                }
            }
        }
        let damage = reader.take_damage();
        for stretch in &damage {
            tracing::warn!("{stretch}");
        }
        self.outbox.count(|counts| counts.spool_damage += damage.len() as u64);
        let _ = reader.remove();
        true
    }

    /// Sends until it is settled; false when there is no time left.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let mut wait = BACK_OFF.0;
        loop {
            match self.transport.push(bytes) {
                Verdict::Stored(answer) => {
                    self.heard(&answer);
                    return true;
                }
                Verdict::Refused(why) => {
                    let points = wire::push::decode(bytes).map_or(0, |request| points(&request));
                    self.outbox.count(|counts| counts.refused_batch += points);
                    self.say(format!("the server refuses a request: {why}"));
                    return true;
                }
                Verdict::Later(why, wish) => {
                    self.outbox.count(|counts| counts.failed += 1);
                    self.say(format!(
                        "the server at {} is not to be had, what is seen waits: {why}",
                        shown(&self.transport.url)
                    ));
                    let pause = wish.map_or(wait, |wish| wish.max(wait)).min(BACK_OFF.1);
                    if !self.outbox.pause(pause) {
                        return false;
                    }
                    wait = (wait * 2).min(BACK_OFF.1);
                }
            }
        }
    }

    fn heard(&mut self, answer: &PushResponse) {
        if self.said.take().is_some() {
            tracing::info!("the server takes what is sent");
        }
        let refused: u64 = answer.refused.iter().map(|count| count.count).sum();
        self.outbox.count(|counts| {
            counts.delivered += 1;
            counts.refused += refused;
        });
        for count in &answer.refused {
            if self.refusals.len() < 100 && self.refusals.insert(count.reason.clone()) {
                tracing::warn!("the server keeps not all that is sent: {} ({})", count.example, count.reason);
            }
        }
    }

    fn say(&mut self, words: String) {
        if self.said.as_ref() != Some(&words) {
            tracing::warn!("{words}");
            self.said = Some(words);
        }
    }
}

pub(crate) fn points(request: &PushRequest) -> u64 {
    request.series.iter().map(|series| series.values.len() as u64).sum()
}
