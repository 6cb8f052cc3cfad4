//! TLS: what the server shows, and whom it knows by their certificates.

use std::path::PathBuf;

use store::{Scope, Scopes};

use super::{Field, Shape, field, one};

/// TLS; off unless a certificate is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate and those up to its authority, PEM.
    pub cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities whose clients are believed who they are, PEM.
    pub client_ca: Option<PathBuf>,
    /// What clients may do, by a name in their certificate; `*.` in front stands for one label.
    pub clients: Vec<(String, Scopes)>,
}

/// Those settings.
pub(super) const FIELDS: [Field; 4] = [
    field(
        "tls_cert",
        "tls-cert",
        Shape::Path,
        "",
        "PEM file of the server's certificate and those up to its authority: serves https only",
        |c, v| {
            c.tls.cert = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field("tls_key", "tls-key", Shape::Path, "", "PEM file of the certificate's private key", |c, v| {
        c.tls.key = Some(PathBuf::from(one(v)?));
        Ok(())
    }),
    field(
        "tls_client_ca",
        "tls-client-ca",
        Shape::Path,
        "",
        "PEM file of the authorities that sign clients' certificates",
        |c, v| {
            c.tls.client_ca = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field(
        "tls_clients",
        "tls-client",
        Shape::List,
        "",
        "What a client may do by its certificate, such as `*.nodes.example.org=agent` or `grafana=read`",
        |c, v| {
            c.tls.clients = v.iter().map(|text| client(text)).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
];

/// Reads `NAME=SCOPE+SCOPE`.
fn client(text: &str) -> Result<(String, Scopes), String> {
    let wrong = || {
        let known = Scope::ALL.map(Scope::as_str).join(", ");
        format!(
            "found `{text}`, wanted a name and what it may do, such as `grafana=read` ({known}; several with `+`)"
        )
    };
    let (name, scopes) = text.split_once('=').ok_or_else(wrong)?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"*.-_".contains(&b));
    if !is_name || name.strip_prefix("*.").unwrap_or(name).contains('*') {
        return Err(wrong());
    }
    let scopes = scopes.split('+').map(|word| Scope::parse(word).ok_or_else(wrong));
    Ok((name.to_ascii_lowercase(), scopes.collect::<Result<Scopes, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_a_name_and_scopes() {
        let (name, scopes) = client("*.Nodes.example.org=agent+read").unwrap();
        assert_eq!(name, "*.nodes.example.org");
        assert_eq!(scopes.iter().map(Scope::as_str).collect::<Vec<_>>(), ["read", "agent"]);
        for wrong in ["grafana", "=read", "grafana=", "grafana=root", "a*b=read", "*.*.x=read", "a b=read"] {
            assert!(client(wrong).unwrap_err().contains("grafana=read"), "{wrong}");
        }
    }
}
