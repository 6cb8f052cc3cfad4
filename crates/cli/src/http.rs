//! Asks a server over HTTP.

use std::fmt::Write as _;
use std::io::Read;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use serde_json::Value;

use crate::output::Failure;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time of one question.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Most bytes of an answer that is held in memory.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A server that is asked.
pub(crate) struct Server {
    url: String,
    /// The address as people see it.
    shown: String,
    token: Option<String>,
    agent: ureq::Agent,
    /// What is wrong with the files of certificates.
    mistrust: Option<String>,
}

/// `--url` and `--token`.
pub(crate) fn flags() -> [Arg; 2] {
    [
        Arg::new("url")
            .long("url")
            .value_name("URL")
            .env("TRUEGAUGE_URL")
            .hide_env_values(true)
            .default_value(client::DEFAULT_URL)
            .help("The server"),
        Arg::new("token")
            .long("token")
            .value_name("TOKEN")
            .env("TRUEGAUGE_TOKEN")
            .hide_env_values(true)
            .help("The server's token"),
    ]
}

impl Server {
    /// The server that the flags name.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let url = matches.get_one::<String>("url").map_or(client::DEFAULT_URL, String::as_str).trim();
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let url = url.trim_end_matches('/').to_owned();
        let token = matches.get_one::<String>("token").filter(|token| !token.is_empty()).cloned();
        let (tls, mistrust) = match client::Trust::from_env(|name| std::env::var(name).ok()).tls() {
            Ok(tls) => (tls, None),
            Err(error) => (ureq::tls::TlsConfig::default(), Some(error.to_string())),
        };
        let mut config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(concat!("truegauge/", env!("CARGO_PKG_VERSION")));
        if ["//127.", "//localhost", "//[::1]"].iter().any(|loopback| url.contains(loopback)) {
            config = config.proxy(None);
        }
        let shown = client::shown_url(&url);
        Self { url, shown, token, agent: config.build().into(), mistrust }
    }

    /// Its address, without what may be secret.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether anything answers there, soon.
    pub(crate) fn answers(&self) -> bool {
        let request = self.agent.get(format!("{}/healthz", self.url)).config();
        request.timeout_global(Some(CONNECT_TIMEOUT)).build().call().is_ok()
    }

    /// Asks for JSON.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask("GET", path, ANSWER_TIMEOUT)
    }

    /// Asks with any method, for no longer than `timeout`.
    pub(crate) fn ask(&self, method: &str, path: &str, timeout: Duration) -> Result<Value, Failure> {
        let response = self.send(method, path, None, Some(timeout))?;
        self.read(response)
    }

    /// Sends JSON and reads the answer, which may take as long as `timeout`.
    pub(crate) fn post(&self, path: &str, body: &Value, timeout: Duration) -> Result<Value, Failure> {
        let response = self.send("POST", path, Some(body), Some(timeout))?;
        self.read(response)
    }

    /// Sends JSON in the place of what is there, and reads the answer.
    pub(crate) fn put(&self, path: &str, body: &Value, timeout: Duration) -> Result<Value, Failure> {
        let response = self.send("PUT", path, Some(body), Some(timeout))?;
        self.read(response)
    }

    /// Sends JSON whose answer says no more than that it was taken.
    pub(crate) fn tell(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<(), Failure> {
        self.send(method, path, Some(body), Some(timeout)).map(drop)
    }

    fn read(&self, mut response: ureq::http::Response<ureq::Body>) -> Result<Value, Failure> {
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| self.broken(&error))?;
        serde_json::from_slice(&body).map_err(|error| {
            Failure::new(format!("the answer of {} is not JSON: {error}", self.shown))
                .hint("is that a truegauge server?")
        })
    }

    /// Opens an answer to be read piece by piece, for as long as it takes.
    pub(crate) fn open(&self, path: &str) -> Result<impl Read + use<>, Failure> {
        Ok(self.send("GET", path, None, None)?.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// [`Server::open`] with the answer's headers.
    pub(crate) fn stream(&self, path: &str) -> Result<(ureq::http::HeaderMap, impl Read + use<>), Failure> {
        let (head, body) = self.send("GET", path, None, None)?.into_parts();
        Ok((head.headers, body.into_with_config().limit(u64::MAX).reader()))
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        timeout: Option<Duration>,
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        if let Some(why) = &self.mistrust {
            return Err(Failure::new(why.clone())
                .hint("`TRUEGAUGE_CA_FILE`, `TRUEGAUGE_CERT_FILE` and `TRUEGAUGE_KEY_FILE` name PEM files"));
        }
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| body.to_string().into_bytes());
        let unusable = |error: ureq::http::Error| {
            Failure::new(format!("`{}` is not usable as a server's address: {error}", self.shown))
                .hint("write it as `http://host:9494`")
        };
        let answered = if let Some(body) = body {
            let request = request.body(body).map_err(unusable)?;
            self.agent.run(self.agent.configure_request(request).timeout_global(timeout).build())
        } else {
            let request = request.body(()).map_err(unusable)?;
            self.agent.run(self.agent.configure_request(request).timeout_global(timeout).build())
        };
        let mut response = answered.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.body_mut().with_config().limit(1 << 20).read_to_vec().unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        // Prometheus' API has the sentence alone.
        let said = body["error"].as_str().map_or_else(|| text("message"), str::to_owned);
        let message = match said {
            message if message.is_empty() => format!("{} answered {status}", self.shown),
            message => format!("{message} ({status})"),
        };
        Err(Failure::new(message).hint(text("hint")))
    }

    fn broken(&self, error: &ureq::Error) -> Failure {
        Failure::new(format!("cannot reach {}: {error}", self.shown))
            .hint("start a server with `truegauge up`, or name another with `--url` or `TRUEGAUGE_URL`")
    }
}

/// Escapes text for a query string.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
