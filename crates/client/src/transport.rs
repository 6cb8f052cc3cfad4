//! HTTP to the server: one push, one question.

use std::fmt;
use std::time::Duration;

use prost::Message;
use wire::push::{CONTENT_TYPE, PushResponse};

use crate::trust::{Trust, TrustError};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time of one push: a whole request has to get through a slow line. Nobody waits for it.
const PUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer to a push.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of the list of a run's series.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Sends to one server.
pub(crate) struct Transport {
    base: String,
    shown: String,
    authorization: Option<String>,
    agent: ureq::Agent,
    is_loopback: bool,
}

impl fmt::Debug for Transport {
    /// Without the token, and what else is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("base", &self.shown).finish_non_exhaustive()
    }
}

/// What became of a push.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is durable.
    Stored(PushResponse),
    /// The same bytes may come later.
    Later(Away),
    /// These bytes won't ever be taken.
    Refused(String),
}

/// Why a server is not to be had.
#[derive(Debug, Clone)]
pub(crate) struct Away {
    pub(crate) why: String,
    /// It takes no time to find out again: nobody timed out.
    pub(crate) is_quick: bool,
    /// The server's wish.
    pub(crate) retry_after: Option<Duration>,
    /// It is there and does not want this client, so that a person has to act.
    pub(crate) fix: Option<&'static str>,
}

/// A base URL or a token that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The URL is none of a server.
    #[error("the server URL {found:?} is not usable: write it as `http://host:9494` or `https://host`")]
    Url {
        /// As it was given, without what may be secret.
        found: String,
    },
    /// A file of certificates can't be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The token can't travel.
    #[error("the token holds characters that no header can carry: visible ASCII is wanted")]
    Token,
}

/// A server's URL as people may see it: without user and password, and without what follows the path.
///
/// What can't be told apart from a password goes with it: everything in front of the last `@`.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let authority = rest.split('/').next().unwrap_or_default();
    let is_plain = !authority.contains('@')
        && authority
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()));
    let rest = if is_plain { rest } else { rest.rsplit_once('@').map_or(rest, |(_, host)| host) };
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
}

impl Transport {
    pub(crate) fn new(url: &str, token: Option<&str>, trust: &Trust) -> Result<Self, UrlError> {
        let trimmed = url.trim();
        let with_scheme =
            if trimmed.contains("://") { trimmed.to_owned() } else { format!("http://{trimmed}") };
        let with_scheme = with_scheme.trim_end_matches('/').to_owned();
        let unusable = || UrlError::Url { found: shown_url(url) };
        let uri: ureq::http::Uri = with_scheme.parse().map_err(|_unparsable| unusable())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(unusable)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(unusable());
        }
        let authorization = token.map(|token| format!("Bearer {token}"));
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')) {
            return Err(UrlError::Token);
        }
        let is_loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(trust.tls()?)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(PUSH_TIMEOUT))
            .user_agent(concat!("truegauge/", env!("CARGO_PKG_VERSION")));
        if is_loopback {
            config = config.proxy(None);
        }
        let shown = shown_url(&with_scheme);
        Ok(Self { base: with_scheme, shown, authorization, agent: config.build().into(), is_loopback })
    }

    /// The base URL as people see it: without a slash at its end, and without user and password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// Sends one request's bytes.
    pub(crate) fn push(&self, bytes: &[u8]) -> Verdict {
        let mut request = self
            .agent
            .post(format!("{}/api/tg/v1/push", self.base))
            .header("content-type", CONTENT_TYPE)
            .header("content-encoding", "zstd");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let failed = |e: &ureq::Error| Verdict::Later(Away::broken(e));
        let mut response = match request.send(bytes) {
            Ok(response) => response,
            Err(error) => return failed(&error),
        };
        let answer = match response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec() {
            Ok(answer) => answer,
            Err(error) => return failed(&error),
        };
        let header =
            |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let status = response.status().as_u16();
        let is_ours = header("content-type").starts_with(CONTENT_TYPE);
        match (status, PushResponse::decode(answer.as_slice())) {
            (200..300, Ok(stored)) if is_ours => Verdict::Stored(stored),
            (400 | 411..=418 | 422 | 431, _) => Verdict::Refused(said(status, &answer)),
            _ => Verdict::Later(Away {
                why: said(status, &answer),
                is_quick: true,
                retry_after: header("retry-after").parse().ok().map(Duration::from_secs),
                fix: fix_for(status),
            }),
        }
    }

    /// Asks for a JSON document under `/api/tg/v1/`; the status and what came with it.
    pub(crate) fn ask(&self, path: &str, timeout: Duration) -> Result<(u16, serde_json::Value), Away> {
        let mut request = self
            .agent
            .get(format!("{}/api/tg/v1/{path}", self.base))
            .header("accept", "application/json")
            .config()
            .timeout_global(Some(timeout))
            .build();
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut response = request.call().map_err(|e| Away::broken(&e))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(LIST_BYTES_MAX)
            .read_to_vec()
            .map_err(|e| Away::broken(&e))?;
        let status = response.status().as_u16();
        match serde_json::from_slice(&body) {
            Ok(value) if matches!(status, 200 | 404) => Ok((status, value)),
            _ => Err(Away {
                why: said(status, &body),
                is_quick: true,
                retry_after: None,
                fix: fix_for(status),
            }),
        }
    }
}

impl Away {
    /// Something answers that is no truegauge server.
    pub(crate) fn foreign(status: u16) -> Self {
        Self { why: said(status, &[]), is_quick: true, retry_after: None, fix: fix_for(status) }
    }

    fn broken(error: &ureq::Error) -> Self {
        Self {
            why: error.to_string(),
            is_quick: !matches!(error, ureq::Error::Timeout(_)),
            retry_after: None,
            fix: None,
        }
    }
}

/// What a person has to do before the server takes anything.
fn fix_for(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("set `TRUEGAUGE_TOKEN` to the server's token"),
        403 => Some("use a token and a host name that the server accepts"),
        200..=399 | 404 | 405 => {
            Some("point `TRUEGAUGE_URL` at a truegauge server: another program answers there")
        }
        _ => None,
    }
}

/// The server's own words, in one line.
fn said(status: u16, answer: &[u8]) -> String {
    let message = serde_json::from_slice::<serde_json::Value>(answer)
        .ok()
        .and_then(|v| v["error"]["message"].as_str().map(str::to_owned))
        .unwrap_or_default();
    if message.is_empty() { format!("status {status}") } else { format!("status {status}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_with_and_without_a_scheme() {
        let base = |url: &str| {
            Transport::new(url, None, &Trust::default()).map(|t| (t.shown().to_owned(), t.is_loopback()))
        };
        assert_eq!(base("127.0.0.1:9494").unwrap(), ("http://127.0.0.1:9494".into(), true));
        assert_eq!(base(" https://tg.example/ ").unwrap(), ("https://tg.example".into(), false));
        assert_eq!(base("http://[::1]:1").unwrap(), ("http://[::1]:1".into(), true));
        for bad in ["", "grpc://host:4317", "http://", "http://a b", "http://h/?q=1"] {
            assert!(base(bad).is_err(), "{bad:?}");
        }
        for bad in ["a\nb", "\u{e9}", "\u{7f}"] {
            assert!(
                matches!(Transport::new("h", Some(bad), &Trust::default()), Err(UrlError::Token)),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn no_password_is_shown() {
        let check = |url: &str, want: &str| assert_eq!(shown_url(url), want);
        for plain in
            ["http://h:1/tg", "h", "http://[::1]:1", "http://[::1]", "http://h/@tg", "http://h:1/@tg"]
        {
            check(plain, plain);
        }
        check("https://user:secret@h:1", "https://h:1");
        check("user:secret@h", "h");
        check("http://user:se/cr@et@h?token=secret#secret", "http://h");
        check("http://h/?token=sec@ret", "http://h/");
        let transport = Transport::new("http://user:secret@h", Some("secret"), &Trust::default()).unwrap();
        assert!(!format!("{transport:?}").contains("secret"));
        assert!(
            !format!("{:?}", Transport::new("ftp://user:secret@h", None, &Trust::default()))
                .contains("secret")
        );
    }
}
