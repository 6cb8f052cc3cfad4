//! One page over HTTP, within bounds of time and size.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::DefaultConnector;

use crate::config::{Access, Authorization, Credential, Protocol, Tls};
use crate::guard::GuardedResolver;
use crate::page::PageFormat;

/// Most redirects followed, all within one host.
const REDIRECTS_MAX: usize = 5;
/// Largest head of an answer, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Largest credential file, bytes.
const CREDENTIAL_BYTES_MAX: u64 = 64 << 10;
/// Largest certificate file, bytes.
const PEM_BYTES_MAX: u64 = 4 << 20;
/// Most that is shown of the page of a target that refuses, bytes.
const SNIPPET_BYTES_MAX: usize = 200;
/// Most that is read of it, bytes: there may be much space in it.
const SNIPPET_READ_MAX: u64 = 4 << 10;
/// Read at once, bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Asks the targets of one job.
#[derive(Debug)]
pub(crate) struct Fetcher {
    agent: ureq::Agent,
    access: Access,
    accept: String,
    body_bytes: usize,
}

/// Why there is no page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FetchError {
    /// In one line.
    pub(crate) why: String,
    /// It took all the time there was.
    pub(crate) is_slow: bool,
}

fn failed(why: impl Into<String>) -> FetchError {
    FetchError { why: why.into(), is_slow: false }
}

impl Fetcher {
    /// Reads certificates; an error names the file.
    pub(crate) fn new(access: &Access, body_bytes: usize, allow_link_local: bool) -> Result<Self, String> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(HEAD_BYTES_MAX)
            .proxy(None)
            .tls_config(tls_config(&access.tls)?)
            .user_agent(concat!("truegauge/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = GuardedResolver { allow_link_local, inner: DefaultResolver::default() };
        Ok(Self {
            agent: ureq::Agent::with_parts(config, DefaultConnector::default(), resolver),
            accept: accept(&access.protocols),
            access: access.clone(),
            body_bytes,
        })
    }

    /// Reads the page at `url` into `page` and says what it is.
    pub(crate) fn fetch(
        &self,
        url: &str,
        timeout: Duration,
        page: &mut Vec<u8>,
    ) -> Result<PageFormat, FetchError> {
        page.clear();
        let deadline = Instant::now() + timeout;
        let fetched = self.follow(url, timeout, deadline, page);
        let is_late = Instant::now() >= deadline;
        let slow = || FetchError { why: format!("no whole page within {timeout:?}"), is_slow: true };
        fetched.map_err(|error| if is_late { slow() } else { error })
    }

    fn follow(
        &self,
        url: &str,
        timeout: Duration,
        deadline: Instant,
        page: &mut Vec<u8>,
    ) -> Result<PageFormat, FetchError> {
        let mut uri: Uri = url.parse().map_err(|_unparsable| failed(format!("`{url}` is no URL")))?;
        for _ in 0..=REDIRECTS_MAX {
            let mut response = self.ask(&uri, timeout, deadline)?;
            let status = response.status();
            if status.is_redirection() && self.access.follow_redirects {
                uri = next_place(&uri, response.headers())?;
                continue;
            }
            if status.as_u16() != 200 {
                let said = snippet(&mut response);
                let said = if said.is_empty() { said } else { format!(": \"{said}\"") };
                return Err(failed(format!("the target answers with status {status}{said}")));
            }
            let format = self.format(response.headers())?;
            let encoding = header(response.headers(), "content-encoding").to_lowercase();
            let body = response.body_mut().as_reader();
            match encoding.as_str() {
                "" | "identity" => self.read(body, deadline, page)?,
                "gzip" => self.read(MultiGzDecoder::new(body), deadline, page)?,
                other => {
                    return Err(failed(format!("the page is packed as {other:?}, only gzip is asked for")));
                }
            }
            return Ok(format);
        }
        Err(failed(format!("the target redirects over {REDIRECTS_MAX} times")))
    }

    fn ask(
        &self,
        uri: &Uri,
        timeout: Duration,
        deadline: Instant,
    ) -> Result<ureq::http::Response<ureq::Body>, FetchError> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut request = self
            .agent
            .get(uri)
            .header("accept", &self.accept)
            .header("accept-encoding", if self.access.compression { "gzip" } else { "identity" })
            .header("x-prometheus-scrape-timeout-seconds", timeout.as_secs_f64().to_string())
            .config()
            .timeout_global(Some(left))
            .build();
        if let Some(authorization) = &self.access.authorization {
            request = request.header("authorization", authorize(authorization)?);
        }
        request.call().map_err(|error| failed(error.to_string()))
    }

    /// Bounded by size and time, whatever comes.
    fn read(&self, mut body: impl Read, deadline: Instant, page: &mut Vec<u8>) -> Result<(), FetchError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read =
                body.read(&mut chunk).map_err(|error| failed(format!("the page breaks off: {error}")))?;
            if read == 0 {
                return Ok(());
            }
            if page.len() + read > self.body_bytes {
                let limit = self.body_bytes;
                return Err(failed(format!(
                    "the page is over {limit} bytes: raise `body_size_limit` if it is wanted"
                )));
            }
            page.extend_from_slice(&chunk[..read]);
            if Instant::now() >= deadline {
                return Err(failed("out of time"));
            }
        }
    }

    fn format(&self, headers: &HeaderMap) -> Result<PageFormat, FetchError> {
        let found = header(headers, "content-type");
        let kind = found.split(';').next().unwrap_or_default().trim().to_lowercase();
        match (kind.as_str(), self.access.fallback) {
            ("application/openmetrics-text", _) => Ok(PageFormat::OpenMetrics),
            ("text/plain", _) | (_, Some(Protocol::Text004 | Protocol::Text100)) => Ok(PageFormat::Text),
            (_, Some(_)) => Ok(PageFormat::OpenMetrics),
            (_, None) => {
                let shown: String = found.chars().take(80).collect();
                Err(failed(format!(
                    "content type {shown:?} is no page of metrics: set `fallback_scrape_protocol` if it is one"
                )))
            }
        }
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// How the page of a target that refuses begins, in one line; empty where it can't be read. It is the target's:
/// whatever a terminal or a page could take for more than text is escaped.
fn snippet(response: &mut ureq::http::Response<ureq::Body>) -> String {
    let encoding = header(response.headers(), "content-encoding").to_lowercase();
    let body = response.body_mut().as_reader();
    let mut bytes = Vec::new();
    // What was read before it broke off is shown.
    _ = match encoding.as_str() {
        "" | "identity" => body.take(SNIPPET_READ_MAX).read_to_end(&mut bytes),
        "gzip" => MultiGzDecoder::new(body).take(SNIPPET_READ_MAX).read_to_end(&mut bytes),
        _ => return String::new(),
    };
    let text = String::from_utf8_lossy(&bytes);
    let line: Vec<&str> = text.split_whitespace().collect();
    let mut shown = String::new();
    for c in line.join(" ").chars() {
        let before = shown.len();
        if c == '\'' {
            shown.push(c);
        } else {
            shown.extend(c.escape_debug());
        }
        if shown.len() > SNIPPET_BYTES_MAX - '…'.len_utf8() {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    shown
}

/// Where a redirect leads, if it stays with scheme, host and port.
fn next_place(from: &Uri, headers: &HeaderMap) -> Result<Uri, FetchError> {
    let location = header(headers, "location");
    let shown: String = location.chars().take(100).collect();
    let base =
        format!("{}://{}", from.scheme_str().unwrap_or("http"), from.authority().map_or("", |a| a.as_str()));
    let absolute = if location.starts_with('/') && !location.starts_with("//") {
        format!("{base}{location}")
    } else {
        location.to_owned()
    };
    let to: Uri = absolute
        .parse()
        .map_err(|_unparsable| failed(format!("the target redirects to {shown:?}, which is no URL")))?;
    if to.scheme() != from.scheme() || to.authority() != from.authority() {
        return Err(failed(format!(
            "the target redirects to {shown:?}, another host: name that one if it is meant"
        )));
    }
    Ok(to)
}

fn accept(protocols: &[Protocol]) -> String {
    let mut accept = String::new();
    for (at, protocol) in protocols.iter().enumerate() {
        let name = match protocol {
            Protocol::OpenMetrics100 => "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
            Protocol::OpenMetrics001 => "application/openmetrics-text;version=0.0.1",
            Protocol::Text100 => "text/plain;version=1.0.0;escaping=allow-utf-8",
            Protocol::Text004 => "text/plain;version=0.0.4",
        };
        let weight = 9usize.saturating_sub(at).max(2);
        // Writing to a `String` can't fail.
        _ = write!(accept, "{name};q=0.{weight},");
    }
    accept + "*/*;q=0.1"
}

fn authorize(authorization: &Authorization) -> Result<String, FetchError> {
    match authorization {
        Authorization::Basic { username, password } => {
            let password = password.as_ref().map(secret).transpose()?.unwrap_or_default();
            Ok(format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
        }
        Authorization::Token { kind, credential } => Ok(format!("{kind} {}", secret(credential)?)),
    }
}

fn secret(credential: &Credential) -> Result<String, FetchError> {
    let path = match credential {
        Credential::Inline(secret) => return Ok(secret.0.clone()),
        Credential::File(path) => path,
    };
    let bytes = read_file(path, CREDENTIAL_BYTES_MAX).map_err(failed)?;
    let text =
        String::from_utf8(bytes).map_err(|_not_text| failed(format!("`{}` is no text", path.display())))?;
    Ok(text.trim().to_owned())
}

fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).map_err(cannot)?.take(bytes_max + 1).read_to_end(&mut bytes);
    if read.map_err(cannot)? as u64 > bytes_max {
        return Err(format!("`{}` is over {bytes_max} bytes", path.display()));
    }
    Ok(bytes)
}

fn tls_config(tls: &Tls) -> Result<TlsConfig, String> {
    let mut config = TlsConfig::builder().disable_verification(tls.insecure_skip_verify);
    if let Some(path) = &tls.ca_file {
        config = config.root_certs(RootCerts::Specific(Arc::new(certificates(path)?)));
    }
    if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
        let pem = read_file(key, PEM_BYTES_MAX)?;
        let key = PrivateKey::from_pem(&pem)
            .map_err(|error| format!("`{}` holds no private key: {error}", key.display()))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&certificates(cert)?, key)));
    }
    Ok(config.build())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let pem = read_file(path, PEM_BYTES_MAX)?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(format!("`{}` is no PEM file: {error}", path.display())),
        }
    }
    if found.is_empty() { Err(format!("`{}` holds no certificate", path.display())) } else { Ok(found) }
}
