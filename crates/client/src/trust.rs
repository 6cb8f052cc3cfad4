//! Which servers of `https://` are believed, and who one is to them.

use std::path::{Path, PathBuf};

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// The variable that names a file of authorities.
const CA_FILE: &str = "TRUEGAUGE_CA_FILE";
/// The variable that names a file with a client's certificate.
const CERT_FILE: &str = "TRUEGAUGE_CERT_FILE";
/// The variable that names a file with that certificate's private key.
const KEY_FILE: &str = "TRUEGAUGE_KEY_FILE";

/// Files of certificates, all PEM. Without any, servers are believed by the public authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Authorities that are believed instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate, for servers that know clients by theirs.
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{path}`: {reason}")]
pub struct TrustError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl Trust {
    /// By the environment behind `variable`; an empty variable is as good as unset.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let file = |name: &str| {
            variable(name)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
                .map(PathBuf::from)
        };
        Self { ca_file: file(CA_FILE), cert_file: file(CERT_FILE), key_file: file(KEY_FILE) }
    }

    /// Reads the files.
    pub fn tls(&self) -> Result<TlsConfig, TrustError> {
        let mut config = TlsConfig::builder();
        if let Some(path) = &self.ca_file {
            config = config.root_certs(RootCerts::from(certificates(path)?));
        }
        match (&self.cert_file, &self.key_file) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                let private = PrivateKey::from_pem(&read(key)?);
                let private =
                    private.map_err(|error| failed(key, format!("no private key is in it: {error}")))?;
                config = config.client_cert(Some(ClientCert::new_with_certs(&certificates(cert)?, private)));
            }
            (Some(cert), None) => return Err(failed(cert, format!("`{KEY_FILE}` is not set"))),
            (None, Some(key)) => return Err(failed(key, format!("`{CERT_FILE}` is not set"))),
        }
        Ok(config.build())
    }
}

fn failed(path: &Path, reason: String) -> TrustError {
    TrustError { path: path.to_owned(), reason }
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    std::fs::read(path).map_err(|error| failed(path, error.to_string()))
}

/// The certificates of a file; at least one.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, TrustError> {
    let bytes = read(path)?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        let item = item.map_err(|error| failed(path, format!("it is not PEM: {error}")))?;
        if let PemItem::Certificate(one) = item {
            found.push(one);
        }
    }
    if found.is_empty() { Err(failed(path, "no certificate is in it".to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_from_the_environment_and_say_what_is_wrong_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        std::fs::write(&file, "no certificate").unwrap();
        let path = file.to_str().unwrap().to_owned();
        let of = |name: &'static str, value: &str| {
            Trust::from_env(|asked| (asked == name).then(|| value.to_owned())).tls().map(drop)
        };
        assert!(of(CA_FILE, " ").is_ok() && of("OTHER", "x").is_ok());
        let said = |name, value: &str| of(name, value).unwrap_err().to_string();
        assert!(said(CA_FILE, &path).ends_with("no certificate is in it"));
        assert!(said(CA_FILE, "/nowhere.pem").starts_with("cannot use `/nowhere.pem`"));
        assert!(said(CERT_FILE, &path).contains("`TRUEGAUGE_KEY_FILE` is not set"));
        assert!(said(KEY_FILE, &path).contains("`TRUEGAUGE_CERT_FILE` is not set"));
    }
}
