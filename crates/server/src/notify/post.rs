//! One Alertmanager: where it is, and how alerts are posted to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::waiting::Told;
use crate::clock::rfc3339;
use crate::config::{AlertingConfig, Secret};

/// What stands behind an Alertmanager's own address.
const PATH: &str = "/api/v2/alerts";
/// Longest time to wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest pause that an Alertmanager may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// Most of an answer that is read, bytes.
const ANSWER_BYTES_MAX: u64 = 4 << 10;
/// Most characters of an answer that are shown.
const SHOWN_MAX: usize = 200;

/// Why an Alertmanager can't be told.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// The address is none.
    #[error("the Alertmanager `{shown}` can't be told: write it as `http://host:9093`")]
    Address {
        /// As given, without what may be secret.
        shown: String,
    },
    /// The address of a receiver is none.
    #[error("`{shown}` can't be told: an address such as `https://host/path` is wanted")]
    Url {
        /// The host, if there is one.
        shown: String,
    },
    /// The file of receivers can't be used.
    #[error("cannot use the receivers in `{path}`{}: {reason}", place(*line))]
    Receivers {
        /// The file.
        path: PathBuf,
        /// Line, from 1; 0 where it has none.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The certificates can't be used.
    #[error("cannot check Alertmanagers against `{path}`: {reason}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

/// Where JSON is posted to.
#[derive(Clone)]
pub(crate) struct Outlet {
    url: String,
    shown: String,
    authorization: Option<String>,
    headers: Vec<(String, Secret)>,
    ca_file: Option<(PathBuf, Vec<u8>)>,
    time_max: Duration,
    agent: ureq::Agent,
}

impl PartialEq for Outlet {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
            && self.authorization == other.authorization
            && self.headers == other.headers
            && self.ca_file == other.ca_file
            && self.time_max == other.time_max
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("url", &self.shown).finish_non_exhaustive()
    }
}

/// Where one Alertmanager takes alerts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target(Outlet);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What follows from it.
    pub(super) verdict: Verdict,
    /// The status, where there was an answer.
    pub(super) status: Option<u16>,
}

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The alerts are taken.
    Taken,
    /// They may be taken later: why not now, and when to come again.
    Later(String, Option<Duration>),
    /// They won't ever be taken.
    Refused(String),
}

/// An address taken apart.
struct Address<'t> {
    scheme: &'t str,
    /// User and password.
    secret: Option<&'t str>,
    host: &'t str,
    /// Path and query.
    path: &'t str,
}

impl<'t> Address<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (secret, host) = match authority.rsplit_once('@') {
            Some((secret, host)) => (Some(secret), host),
            None => (None, authority),
        };
        let uri: ureq::http::Uri = format!("{scheme}://{host}{path}").parse().ok()?;
        let has_host = uri.authority().is_some_and(|authority| !authority.host().is_empty());
        (matches!(scheme, "http" | "https") && has_host).then_some(Self { scheme, secret, host, path })
    }
}

impl Outlet {
    /// Reads an address; user and password in front of the host become basic authorization. What is
    /// shown of it is the host: the rest may be a secret.
    pub(super) fn new(text: &str, config: &AlertingConfig) -> Result<Self, NotifyError> {
        let address =
            Address::of(text).ok_or_else(|| NotifyError::Url { shown: crate::api::shown(host_of(text)) })?;
        let shown = format!("{}://{}", address.scheme, address.host);
        Self::at(&address, (format!("{shown}{}", address.path), shown), config)
    }

    fn at(
        address: &Address<'_>,
        (url, shown): (String, String),
        config: &AlertingConfig,
    ) -> Result<Self, NotifyError> {
        let ca_file = config.ca_file.as_deref().map(authorities).transpose()?;
        let tls = match &ca_file {
            Some((.., certificates)) => TlsConfig::builder().root_certs(certificates.clone()).build(),
            None => TlsConfig::default(),
        };
        let time_max = config.time_max;
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(time_max))
            .timeout_connect(Some(CONNECT_TIME_MAX.min(time_max)))
            .max_redirects(0)
            .proxy(None)
            .http_status_as_error(false)
            .tls_config(tls)
            .build();
        let authorization =
            address.secret.map(|secret| format!("Basic {}", BASE64_STANDARD.encode(decoded(secret))));
        Ok(Self {
            shown,
            url,
            authorization,
            headers: config.headers.clone(),
            ca_file: ca_file.map(|(path, pem, _)| (path, pem)),
            time_max,
            agent: agent.into(),
        })
    }

    /// Its address without what may be secret.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Posts JSON and waits for the answer, of which little is read.
    pub(super) fn post(&self, body: &str) -> Answer {
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value.as_str());
        }
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => {
                return Answer {
                    verdict: Verdict::Later(self.without_url(&error.to_string()), None),
                    status: None,
                };
            }
        };
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Answer { verdict: Verdict::Taken, status: Some(status) };
        }
        let pause = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let pause = pause.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        let text =
            answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        let words: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
        let why = format!("it answered {status}: {words}");
        let verdict = match status {
            // A receiver that is not known here, or wants other credentials, may be set right.
            400 | 413 | 422 => Verdict::Refused(why),
            _ => Verdict::Later(why, pause),
        };
        Answer { verdict, status: Some(status) }
    }

    /// An error's words may have the whole address in them.
    fn without_url(&self, words: &str) -> String {
        words.replace(&self.url, &self.shown)
    }
}

impl Target {
    /// Reads an address; user and password in front of the host become basic authorization.
    pub(super) fn new(text: &str, config: &AlertingConfig) -> Result<Self, NotifyError> {
        let wrong = || NotifyError::Address { shown: without_secret(text) };
        let address = Address::of(text).filter(|address| !address.path.contains('?')).ok_or_else(wrong)?;
        let path = address.path.trim_end_matches('/');
        let path = path.strip_suffix(PATH).unwrap_or(path);
        let url = format!("{}://{}{path}{PATH}", address.scheme, address.host);
        Outlet::at(&address, (url.clone(), url), config).map(Self)
    }

    /// Its address without user and password.
    pub(crate) fn shown(&self) -> &str {
        self.0.shown()
    }

    /// Posts alerts and waits for the answer.
    pub(super) fn post(&self, alerts: &[Arc<Told>]) -> Answer {
        let body: Vec<Value> = alerts.iter().map(|told| as_json(told)).collect();
        self.0.post(&Value::from(body).to_string())
    }
}

/// The host of what may be an address; nothing else of it is shown.
fn host_of(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// A file of certificates: its path, what is in it, and the same read.
fn authorities(path: &Path) -> Result<(PathBuf, Vec<u8>, RootCerts), NotifyError> {
    let failed = |reason: String| NotifyError::Authorities { path: path.to_owned(), reason };
    let pem = crate::files::bytes(path, crate::files::SMALL_BYTES_MAX)
        .map_err(|error| failed(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(failed(format!("it is no PEM file: {error}"))),
        }
    }
    if certificates.is_empty() {
        return Err(failed("no certificate is in it".to_owned()));
    }
    Ok((path.to_owned(), pem, RootCerts::from(certificates)))
}

fn as_json(told: &Told) -> Value {
    json!({
        "labels": told.labels,
        "annotations": told.annotations,
        "startsAt": rfc3339(told.starts_at_ms),
        "endsAt": rfc3339(told.ends_at_ms),
        "generatorURL": told.generator_url,
    })
}

fn without_secret(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
}

/// `user:password` as a URL writes it, decoded.
fn decoded(secret: &str) -> String {
    let form = format!("s={}", secret.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(form.as_bytes()).next().map(|(_, text)| text.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, String> {
        Target::new(url, &AlertingConfig::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_those_of_alertmanagers_with_or_without_a_path() {
        let shown = |url: &str| target(url).unwrap().shown().to_owned();
        for url in ["http://am:9093", "http://am:9093/", "http://am:9093/api/v2/alerts"] {
            assert_eq!(shown(url), "http://am:9093/api/v2/alerts");
        }
        assert_eq!(shown("https://mimir/alertmanager/"), "https://mimir/alertmanager/api/v2/alerts");
    }

    #[test]
    fn user_and_password_are_sent_and_never_shown() {
        let target = target("http://joe:a%40b+c@am:9093").unwrap();
        assert_eq!(target.0.authorization.as_deref(), Some("Basic am9lOmFAYitj"));
        assert!(!format!("{target:?}{}", target.shown()).contains("joe"));
        let wrong = self::target("ftp://joe:secret@am").unwrap_err();
        assert!(wrong.contains("ftp://am") && !wrong.contains("secret"), "{wrong}");
        for url in ["am:9093", "", "http://", "http://am:9093?x=1", "http://a b"] {
            assert!(self::target(url).is_err(), "{url}");
        }
    }
}
