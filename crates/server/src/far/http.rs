//! HTTP to the far storage: its address and nothing else, with our credentials and nobody else's.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::{TlsConnector, rustls};

use crate::config::StorageConfig;
use crate::files::{self, SMALL_BYTES_MAX};

/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest answer's head, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A connection that is kept.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// Where requests go.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
    query: Option<String>,
}

impl Endpoint {
    /// Reads a URL of the settings.
    pub(super) fn parse(setting: &str, text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{setting}` is not usable: {why}");
        if text.is_empty() {
            return Err(wrong("it is not set, and `storage_kind = \"prometheus\"` needs it"));
        }
        let uri: Uri = text.parse().map_err(|_unparsable| wrong("it is no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("`http://` or `https://` is wanted")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("credentials belong into `storage_username` and `storage_password_file`"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { is_tls, host, port, path, query: uri.query().map(str::to_owned) })
    }

    /// Its path, with `below` behind it.
    fn path(&self, below: &str) -> String {
        let query = self.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        format!("{}{below}{query}", if self.path.is_empty() && below.is_empty() { "/" } else { &self.path })
    }

    /// As `Host` names it.
    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

impl std::fmt::Display for Endpoint {
    /// Without the query, which may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Path below the endpoint's.
    pub(super) below: &'a str,
    pub(super) headers: &'a [(HeaderName, &'static str)],
    pub(super) body: Bytes,
}

/// Credentials, certificates and headers toward the far storage.
pub(super) struct Client {
    tls: TlsConnector,
    fixed: HeaderMap,
    access: Access,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What `Authorization` says; secrets in files are read anew, so that they can be rotated.
enum Access {
    None,
    Basic(String, Secret),
    Bearer(Secret),
}

enum Secret {
    Text(crate::config::Secret),
    File(std::path::PathBuf),
}

impl Secret {
    fn read(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.as_str().to_owned()),
            Self::File(path) => files::text(path, SMALL_BYTES_MAX)
                .map(|text| text.trim().to_owned())
                .map_err(|error| format!("cannot read `{}`: {error}", path.display())),
        }
    }
}

impl Client {
    /// Reads certificates; an error names the setting or file.
    pub(super) fn new(config: &StorageConfig) -> Result<Self, String> {
        let mut fixed = HeaderMap::new();
        let agent = concat!("truegauge/", env!("CARGO_PKG_VERSION"));
        fixed.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let mut add = |name: &str, value: &str| {
            let wrong = || format!("the header `{name}` of `[storage]` is not usable");
            let name: HeaderName = name.parse().map_err(|_source| wrong())?;
            let mut value: HeaderValue = value.parse().map_err(|_source| wrong())?;
            value.set_sensitive(true);
            fixed.insert(name, value);
            Ok::<(), String>(())
        };
        if !config.tenant.is_empty() {
            add(&config.tenant_header, &config.tenant)?;
        }
        for (name, value) in &config.headers {
            add(name, value.as_str())?;
        }
        let secret = |text: &crate::config::Secret, file: &Option<std::path::PathBuf>| {
            file.clone().map_or_else(|| Secret::Text(text.clone()), Secret::File)
        };
        let bearer = secret(&config.bearer_token, &config.bearer_token_file);
        let access = match (&bearer, config.username.as_str()) {
            (Secret::Text(text), "") if text.is_empty() => {
                if !config.password.is_empty() || config.password_file.is_some() {
                    return Err("`storage_password` is set and `storage_username` is not".to_owned());
                }
                Access::None
            }
            (Secret::Text(text), name) if text.is_empty() => {
                Access::Basic(name.to_owned(), secret(&config.password, &config.password_file))
            }
            (_, "") => Access::Bearer(bearer),
            _ => return Err("`storage_username` and `storage_bearer_token` exclude each other".to_owned()),
        };
        let client = Self { tls: TlsConnector::from(Arc::new(tls(config)?)), fixed, access };
        client.authorization()?;
        Ok(client)
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let text = match &self.access {
            Access::None => return Ok(None),
            Access::Basic(name, password) => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{}", password.read()?)))
            }
            Access::Bearer(token) => format!("Bearer {}", token.read()?),
        };
        let mut value: HeaderValue =
            text.parse().map_err(|_source| "the credentials of `[storage]` are no header".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Opens a connection. The name is resolved once and the address checked is the one connected to.
    pub(super) async fn connect(&self, to: &Endpoint) -> Result<Connection, String> {
        let opened = tokio::time::timeout(CONNECT_TIME_MAX, self.open(to)).await;
        let waited = |_elapsed| Err(format!("no connection within {} s", CONNECT_TIME_MAX.as_secs()));
        opened.unwrap_or_else(waited)
    }

    async fn open(&self, to: &Endpoint) -> Result<Connection, String> {
        let found = tokio::net::lookup_host((to.host.as_str(), to.port)).await;
        let found = found.map_err(|error| format!("cannot resolve `{}`: {error}", to.host))?;
        let mut last = format!("`{}` has no address", to.host);
        for address in found {
            if let Some(why) = scrape::refusal(address.ip()) {
                return Err(format!("the address {} is {why}, and is not asked", address.ip()));
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return self.shake(to, stream).await,
                Err(error) => last = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(last)
    }

    async fn shake(&self, to: &Endpoint, stream: TcpStream) -> Result<Connection, String> {
        let _ = stream.set_nodelay(true);
        let broken = |error: hyper::Error| format!("no HTTP connection: {error}");
        if !to.is_tls {
            let (sender, connection) = http().handshake(TokioIo::new(stream)).await.map_err(broken)?;
            drive(connection);
            return Ok(sender);
        }
        let name = ServerName::try_from(to.host.clone());
        let name = name.map_err(|_source| format!("`{}` is no name for TLS", to.host))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| format!("TLS failed: {error}"))?;
        let (sender, connection) = http().handshake(TokioIo::new(stream)).await.map_err(broken)?;
        drive(connection);
        Ok(sender)
    }

    /// Sends a request over an open connection; the answer's head.
    pub(super) async fn send(
        &self,
        connection: &mut Connection,
        to: &Endpoint,
        ask: Ask<'_>,
    ) -> Result<Response<Incoming>, String> {
        let path: PathAndQuery =
            to.path(ask.below).parse().map_err(|_source| "the path is not usable".to_owned())?;
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = Uri::from(path);
        let headers = request.headers_mut();
        headers.clone_from(&self.fixed);
        let host = to.authority().parse().map_err(|_source| "the host is not usable".to_owned())?;
        headers.insert(header::HOST, host);
        for (name, value) in ask.headers {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(authorization) = self.authorization()? {
            headers.insert(header::AUTHORIZATION, authorization);
        }
        let words = |error: hyper::Error| format!("the connection broke: {error}");
        connection.ready().await.map_err(words)?;
        connection.send_request(request).await.map_err(words)
    }
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    builder
}

/// Moves a connection's bytes until both sides are done with it.
fn drive<I>(connection: http1::Connection<I, Full<Bytes>>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the far storage ended early");
        }
    });
}

fn tls(config: &StorageConfig) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match &config.ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("`{}` holds no usable certificate: {error}", path.display()))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_root_certificates(roots);
    match (&config.cert_file, &config.key_file) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let pem = read(key)?;
            let key = PrivateKeyDer::from_pem_reader(Cursor::new(pem))
                .map_err(|error| format!("`{}` holds no private key: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|error| format!("`{}` can't be shown to the far storage: {error}", cert.display()))
        }
        _ => Err("`storage_cert_file` and `storage_key_file` go together".to_owned()),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(Cursor::new(read(path)?)).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("`{}` holds no certificate", path.display())),
        Err(error) => Err(format!("`{}` is no PEM file: {error}", path.display())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    files::bytes(path, SMALL_BYTES_MAX).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_never_hold_credentials() {
        let read = |text: &str| Endpoint::parse("u", text).map(|e| (e.to_string(), e.path("/x")));
        assert_eq!(read("http://a:9/p/"), Ok(("http://a:9/p".into(), "/p/x".into())));
        assert_eq!(read("https://a?db=public"), Ok(("https://a:443".into(), "/x?db=public".into())));
        assert_eq!(read("http://[::1]:9"), Ok(("http://[::1]:9".into(), "/x".into())));
        for wrong in ["", "a:9", "ftp://a", "http://u:s3cret@a"] {
            assert!(read(wrong).is_err_and(|error| !error.contains("s3cret")), "{wrong}");
        }
    }
}
