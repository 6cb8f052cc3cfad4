//! `[storage]`: where samples go and queries are answered beside this machine.

use std::path::PathBuf;
use std::time::Duration;

use super::{Config, Field, Secret, Shape, bytes, duration, field, number, one, token};

/// Where samples go beside the embedded store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageKind {
    /// Nowhere.
    #[default]
    Embedded,
    /// To a cluster that takes remote write and answers PromQL.
    Prometheus,
}

/// The far storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// Whether there is one.
    pub kind: StorageKind,
    /// Where remote write is posted.
    pub write_url: String,
    /// What `/api/v1/query` and its kin stand below.
    pub query_url: String,
    /// Further headers of every request; their values may be secret.
    pub headers: Vec<(String, Secret)>,
    /// The tenant; no header when empty.
    pub tenant: String,
    /// The header that names the tenant.
    pub tenant_header: String,
    /// Name of basic authorization.
    pub username: String,
    /// Password of basic authorization.
    pub password: Secret,
    /// File that holds it, read anew for each request.
    pub password_file: Option<PathBuf>,
    /// Bearer token.
    pub bearer_token: Secret,
    /// File that holds it, read anew for each request.
    pub bearer_token_file: Option<PathBuf>,
    /// Certificates that the cluster's is checked against.
    pub ca_file: Option<PathBuf>,
    /// Certificate shown to the cluster.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Requests under way at once, each with series of its own.
    pub shards: usize,
    /// Most bytes that wait on disk.
    pub queue_bytes_max: u64,
    /// Most samples in one request.
    pub request_samples_max: usize,
    /// Longest time of one request.
    pub request_time_max: Duration,
    /// Most labels of a series that is sent, its name's included.
    pub labels_max: usize,
    /// Longest label value that is sent.
    pub label_value_bytes_max: usize,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            kind: StorageKind::Embedded,
            write_url: String::new(),
            query_url: String::new(),
            headers: Vec::new(),
            tenant: String::new(),
            tenant_header: "X-Scope-OrgID".into(),
            username: String::new(),
            password: Secret::default(),
            password_file: None,
            bearer_token: Secret::default(),
            bearer_token_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            shards: 4,
            queue_bytes_max: 8 << 30,
            request_samples_max: 10_000,
            request_time_max: Duration::from_secs(30),
            labels_max: 30,
            label_value_bytes_max: 2_048,
        }
    }
}

/// A text, kept as it is.
macro_rules! text {
    ($name:literal, $flag:literal, $default:literal, $help:literal, $at:ident) => {
        field($name, $flag, Shape::Text, $default, $help, |c: &mut Config, v| {
            one(v)?.clone_into(&mut c.storage.$at);
            Ok(())
        })
    };
}

/// A file.
macro_rules! path {
    ($name:literal, $flag:literal, $help:literal, $at:ident) => {
        field($name, $flag, Shape::Path, "", $help, |c: &mut Config, v| {
            c.storage.$at = Some(PathBuf::from(one(v)?));
            Ok(())
        })
    };
}

/// The settings of `[storage]`.
pub(super) const FIELDS: [Field; 20] = [
    field(
        "storage_kind",
        "storage-kind",
        Shape::Text,
        "embedded",
        "`embedded`, or `prometheus`: samples also go to a cluster, which answers the queries",
        |c, v| {
            c.storage.kind = match one(v)? {
                "embedded" => StorageKind::Embedded,
                "prometheus" => StorageKind::Prometheus,
                other => return Err(format!("found `{other}`, wanted `embedded` or `prometheus`")),
            };
            Ok(())
        },
    ),
    text!(
        "storage_write_url",
        "storage-write-url",
        "",
        "Where the cluster takes remote write, such as `http://mimir:8080/api/v1/push`",
        write_url
    ),
    text!(
        "storage_query_url",
        "storage-query-url",
        "",
        "What stands in front of `/api/v1/query` at the cluster, such as `http://mimir:8080/prometheus`",
        query_url
    ),
    field(
        "storage_headers",
        "storage-headers",
        Shape::List,
        "",
        "Header of every request to the cluster, as `Name: value`",
        |c, v| {
            c.storage.headers = v.iter().map(|text| header(text)).collect::<Result<_, String>>()?;
            Ok(())
        },
    ),
    text!(
        "storage_tenant",
        "storage-tenant",
        "",
        "Tenant at the cluster; what callers send is never passed on",
        tenant
    ),
    text!(
        "storage_tenant_header",
        "storage-tenant-header",
        "X-Scope-OrgID",
        "Header that names the tenant: `THANOS-TENANT` for Thanos, `AccountID` for VictoriaMetrics",
        tenant_header
    ),
    text!("storage_username", "storage-username", "", "Name of basic authorization at the cluster", username),
    field(
        "storage_password",
        "storage-password",
        Shape::Text,
        "",
        "Password of basic authorization; better in its variable or `storage_password_file`",
        |c, v| {
            c.storage.password = Secret(one(v)?.to_owned());
            Ok(())
        },
    ),
    path!(
        "storage_password_file",
        "storage-password-file",
        "File that holds the password; read anew for each request",
        password_file
    ),
    field(
        "storage_bearer_token",
        "storage-bearer-token",
        Shape::Text,
        "",
        "Bearer token at the cluster; better in its variable or `storage_bearer_token_file`",
        |c, v| {
            c.storage.bearer_token = token(one(v)?)?;
            Ok(())
        },
    ),
    path!(
        "storage_bearer_token_file",
        "storage-bearer-token-file",
        "File that holds the bearer token; read anew for each request",
        bearer_token_file
    ),
    path!(
        "storage_ca_file",
        "storage-ca-file",
        "Certificates in PEM that the cluster's is checked against, instead of the public ones",
        ca_file
    ),
    path!("storage_cert_file", "storage-cert-file", "Certificate in PEM shown to the cluster", cert_file),
    path!("storage_key_file", "storage-key-file", "Its private key in PEM", key_file),
    field(
        "storage_shards",
        "storage-shards",
        Shape::Number,
        "4",
        "Requests to the cluster under way at once; a series always takes the same way",
        |c, v| {
            c.storage.shards = usize::try_from(number(one(v)?)?.min(64)).unwrap_or(1);
            Ok(())
        },
    ),
    field(
        "storage_queue_bytes_max",
        "storage-queue-bytes-max",
        Shape::Bytes,
        "8GiB",
        "Most bytes that wait on disk for the cluster; beyond it new samples are refused until it takes some",
        |c, v| {
            c.storage.queue_bytes_max = bytes(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "storage_request_samples_max",
        "storage-request-samples-max",
        Shape::Number,
        "10000",
        "Most samples in one request to the cluster",
        |c, v| {
            c.storage.request_samples_max = usize::try_from(number(one(v)?)?).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
    field(
        "storage_request_time_max",
        "storage-request-time-max",
        Shape::Duration,
        "30s",
        "Longest time of one write to the cluster before it is tried again",
        |c, v| {
            c.storage.request_time_max = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "storage_labels_max",
        "storage-labels-max",
        Shape::Number,
        "30",
        "Most labels of a series that is sent, the metric's name included",
        |c, v| {
            c.storage.labels_max = usize::try_from(number(one(v)?)?).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
    field(
        "storage_label_value_bytes_max",
        "storage-label-value-bytes-max",
        Shape::Bytes,
        "2KiB",
        "Longest label value that is sent",
        |c, v| {
            c.storage.label_value_bytes_max = usize::try_from(bytes(one(v)?)?).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
];

/// Reads `Name: value`; an error does not repeat the value.
pub(crate) fn header(text: &str) -> Result<(String, Secret), String> {
    let wrong = || "a header is written `Name: value`".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    let usable = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    if usable { Ok((name.to_owned(), Secret(value.to_owned()))) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_a_name_and_a_value_that_no_error_repeats() {
        assert_eq!(header("X-A: b c"), Ok(("X-A".to_owned(), Secret("b c".to_owned()))));
        for wrong in ["s3cret", ": s3cret", "X A: s3cret", "X-A: s3\u{7}cret"] {
            assert!(header(wrong).is_err_and(|error| !error.contains("s3cret")), "{wrong:?}");
        }
    }
}
