//! OTLP over HTTP.

use std::io::Write;
use std::time::Duration;

use flate2::Compression as Level;
use flate2::write::GzEncoder;
use wire::otlp::reply;

use super::lane::Verdict;
use super::settings::{Compression, Target};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// What a backend says, cut to this many characters.
const SAID_MAX: usize = 300;

/// Sends to one endpoint.
#[derive(Debug)]
pub(crate) struct Http {
    agent: ureq::Agent,
    target: Target,
}

impl Http {
    pub(crate) fn new(target: &Target) -> Result<Self, String> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(target.trust.tls().map_err(|error| error.to_string())?)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(super::USER_AGENT);
        let host = target.endpoint.parse::<ureq::http::Uri>().ok().and_then(|u| u.host().map(str::to_owned));
        let is_local = host.is_some_and(|h| h == "localhost" || h == "[::1]" || h.starts_with("127."));
        let config = if is_local { config.proxy(None) } else { config };
        Ok(Self { agent: config.build().into(), target: target.clone() })
    }

    /// Sends one request.
    pub(crate) fn send(&self, body: &[u8], timeout: Duration) -> Verdict {
        let mut request = self
            .agent
            .post(&self.target.endpoint)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf");
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        let answer = match self.target.compression {
            Compression::None => request.send(body),
            Compression::Gzip => request.header("content-encoding", "gzip").send(gzip(body).as_slice()),
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => return unreachable(&error),
        };
        let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let status = answer.status().as_u16();
        match (status, read) {
            (200..300, Ok(body)) => {
                let partial = reply::partial(&body);
                Verdict::Taken { rejected: partial.rejected, message: partial.message }
            }
            // It was taken, whatever became of the answer's end.
            (200..300, Err(_)) => Verdict::Taken { rejected: 0, message: String::new() },
            (429 | 502 | 503 | 504, read) => {
                let said = reply::status(&read.unwrap_or_default());
                let seconds = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse().ok());
                let after = seconds.map(Duration::from_secs).or(said.retry_after);
                Verdict::Later { why: shown(status, &said.message), after, is_unreachable: false }
            }
            (_, read) => Verdict::Never(shown(status, &reply::status(&read.unwrap_or_default()).message)),
        }
    }
}

fn unreachable(error: &ureq::Error) -> Verdict {
    Verdict::Later { why: error.to_string(), after: None, is_unreachable: true }
}

fn shown(status: u16, message: &str) -> String {
    let message: String = message.chars().take(SAID_MAX).collect();
    if message.is_empty() { format!("status {status}") } else { format!("status {status}: {message}") }
}

/// The bytes packed; as they are where that fails, which it can't in memory.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::with_capacity(bytes.len() / 3 + 64), Level::fast());
    match packer.write_all(bytes).and_then(|()| packer.finish()) {
        Ok(packed) => packed,
        Err(_) => bytes.to_vec(),
    }
}
