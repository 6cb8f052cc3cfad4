//! TLS at the server's door: what it shows, read again when the files change, and who a client is by
//! its certificate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::access::Certified;
use crate::app::{App, stopped};
use crate::config::TlsConfig;
use crate::files::{self, SMALL_BYTES_MAX};

/// Time for a client to agree on keys.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// First byte of every TLS connection.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Told to who speaks plain HTTP to a TLS port.
pub(crate) const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"error\":{\"code\":\"bad_request\",\"message\":\"this port speaks TLS\",\"hint\":\"write the address with `https://`\",\"request_id\":\"\"}}";

/// Why TLS can't be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Some of it is missing.
    #[error("`{given}` is set and `{missing}` is not")]
    Incomplete {
        /// The setting that is there.
        given: &'static str,
        /// The setting that is needed too.
        missing: &'static str,
    },
    /// A file is not what it should be.
    #[error("cannot use `{path}`: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What a door speaks; over TLS the client is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP/1.1: the UI and the API.
    Http1,
    /// HTTP/2: gRPC.
    Http2,
}

/// TLS as it is at the moment. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls {
    config: TlsConfig,
    current: Arc<RwLock<Acceptors>>,
}

/// One for each of what a door can speak.
#[derive(Clone)]
struct Acceptors {
    http1: TlsAcceptor,
    http2: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Tls {
    /// By these settings; `None` when they ask for none.
    pub(crate) fn of(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        let incomplete = |given, missing| Err(TlsError::Incomplete { given, missing });
        match (&config.cert, &config.key, &config.client_ca) {
            (Some(_), None, _) => return incomplete("tls_cert", "tls_key"),
            (None, Some(_), _) => return incomplete("tls_key", "tls_cert"),
            (None, None, Some(_)) => return incomplete("tls_client_ca", "tls_cert"),
            (_, _, None) if !config.clients.is_empty() => return incomplete("tls_clients", "tls_client_ca"),
            (None, None, None) => return Ok(None),
            (Some(_), Some(_), _) => {}
        }
        let current = Arc::new(RwLock::new(acceptors(config)?));
        Ok(Some(Self { config: config.clone(), current }))
    }

    /// Agrees on keys with a client.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        speaks: Speaks,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let Acceptors { http1, http2 } = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        match speaks {
            Speaks::Http1 => http1.accept(stream).await,
            Speaks::Http2 => http2.accept(stream).await,
        }
    }

    /// Who the client is by its certificate, if it showed one that the settings know.
    pub(crate) fn client(&self, stream: &TlsStream<TcpStream>) -> Option<Certified> {
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let names: Vec<String> = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let known = |wanted: &str| names.iter().find(|name| fits(wanted, name));
        self.config
            .clients
            .iter()
            .find_map(|(wanted, scopes)| Some(Certified { name: known(wanted)?.clone(), scopes: *scopes }))
    }

    /// Reads the files again; what can't be used changes nothing.
    fn read_again(&self) -> Result<(), TlsError> {
        let acceptors = acceptors(&self.config)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = acceptors;
        Ok(())
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let TlsConfig { cert, key, client_ca, .. } = &self.config;
        [cert, key, client_ca].into_iter().flatten().map(|path| stamp(path)).collect()
    }
}

/// By what a file is known to be another: inode, size, time of change.
type Stamp = (u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;

    let of = std::fs::metadata(path).ok()?;
    Some((of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}

/// Whether `name` is the one that is wanted; `*.` in front stands for one label.
fn fits(wanted: &str, name: &str) -> bool {
    match wanted.strip_prefix("*.") {
        Some(rest) => name
            .split_once('.')
            .is_some_and(|(first, behind)| !first.is_empty() && first != "*" && behind == rest),
        None => name == wanted,
    }
}

/// Looks at the files until the server stops.
pub(crate) fn watch(app: &App, tls: &Tls) {
    let (app, tls) = (Arc::clone(app), tls.clone());
    let mut stopping = app.stopping.clone();
    let mut seen = tls.stamps();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => (),
                () = stopped(&mut stopping) => return,
            }
            let now = tls.stamps();
            if now == seen {
                continue;
            }
            seen = now;
            let outcome = match tls.read_again() {
                Ok(()) => {
                    tracing::info!("the certificate was read again");
                    "read"
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate's new files are not usable: the old ones stay");
                    "refused"
                }
            };
            app.metrics.tls_reloads.add(&[outcome], 1);
        }
    });
}

/// Whether who connects speaks TLS, by the first byte; `None` when none came.
pub(crate) async fn speaks_tls(stream: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) => Some(first[0] == HANDSHAKE_RECORD),
        _ => None,
    }
}

fn acceptors(config: &TlsConfig) -> Result<Acceptors, TlsError> {
    let (Some(cert), Some(key)) = (&config.cert, &config.key) else {
        return Err(TlsError::Incomplete { given: "tls_cert", missing: "tls_key" });
    };
    let provider = Arc::new(ring::default_provider());
    let failed = |path: &Path, reason: String| TlsError::File { path: path.to_owned(), reason };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(cert, error.to_string()))?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for one in certificates(path)? {
                roots.add(one).map_err(|error| failed(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let pem = read(key)?;
    let private = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|error| failed(key, format!("no private key is in it: {error}")))?;
    let mut http1 = builder
        .with_single_cert(certificates(cert)?, private)
        .map_err(|error| failed(cert, format!("it does not go with its key: {error}")))?;
    let mut http2 = http1.clone();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    http2.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = |config| TlsAcceptor::from(Arc::new(config));
    Ok(Acceptors { http1: acceptor(http1), http2: acceptor(http2) })
}

/// The certificates of a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { path: path.to_owned(), reason };
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| failed(format!("it is not PEM: {error}")))?;
    if found.is_empty() { Err(failed("no certificate is in it".into())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::bytes(path, SMALL_BYTES_MAX).map_err(|error| TlsError::File {
        path: path.to_owned(),
        reason: format!("it can't be read: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{certificates, fits};

    #[test]
    fn a_file_without_an_end_is_not_read_to_it() {
        let error = certificates(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "cannot use `/dev/zero`: it can't be read: it is over 4194304 bytes");
    }

    #[test]
    fn a_star_is_one_label() {
        assert!(fits("*.nodes.example.org", "a.nodes.example.org"));
        assert!(fits("grafana", "grafana"));
        for name in
            ["nodes.example.org", "a.b.nodes.example.org", ".nodes.example.org", "*.nodes.example.org"]
        {
            assert!(!fits("*.nodes.example.org", name), "{name}");
        }
        assert!(!fits("grafana", "grafana.example.org"));
    }
}
