//! What is done with telemetry that comes in by OTLP.

use wire::otlp::Promotion;

use super::storage::header;
use super::{Field, Secret, Shape, bytes, field, one};

/// What is done with telemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpConfig {
    /// Projects whose texts of prompts and completions are kept: organization, workspace and project.
    pub keep_text: Vec<(String, String, String)>,
    /// Which attributes of resources become labels.
    pub promotion: Promotion,
    /// Where spans are handed on to; empty for nowhere.
    pub forward_traces_url: String,
    /// Headers of what is handed on; their values may be secret.
    pub forward_headers: Vec<(String, Secret)>,
    /// Most bytes of requests that wait to be handed on.
    pub forward_queue_bytes_max: u64,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            keep_text: Vec::new(),
            promotion: Promotion::default(),
            forward_traces_url: String::new(),
            forward_headers: Vec::new(),
            forward_queue_bytes_max: 64 << 20,
        }
    }
}

/// The rows of the table.
pub(super) const FIELDS: [Field; 6] = [
    field(
        "otlp_keep_text",
        "otlp-keep-text",
        Shape::List,
        "",
        "Project whose texts of prompts and completions are kept, redacted, for admins to read, as \
         `ORGANIZATION/WORKSPACE/PROJECT`; a part may be empty. Those of others are dropped as they come in",
        |c, v| {
            c.otlp.keep_text = v.iter().map(|text| project(text)).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
    field(
        "otlp_promote",
        "otlp-promote",
        Shape::List,
        "",
        "Attribute of a resource that becomes a label of all its series beside those that do anyway, such as \
         `k8s.namespace.name`; `*` for every one",
        |c, v| {
            let promotion = &mut c.otlp.promotion;
            promotion.all = v.iter().any(|key| key == "*");
            promotion.keys = Promotion::default().keys;
            promotion.keys.extend(v.iter().filter(|key| *key != "*").cloned());
            Ok(())
        },
    ),
    field(
        "otlp_promote_not",
        "otlp-promote-not",
        Shape::List,
        "",
        "Attribute of a resource that becomes no label, whatever else is said, such as `host.name`",
        |c, v| {
            c.otlp.promotion.ignored = v.to_vec();
            Ok(())
        },
    ),
    field(
        "otlp_forward_traces_url",
        "otlp-forward-traces-url",
        Shape::Text,
        "",
        "Where spans are handed on to over OTLP/HTTP, as to Tempo or Jaeger: `http://tempo:4318`; texts of \
         prompts and completions are never among them",
        |c, v| {
            c.otlp.forward_traces_url = traces_url(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "otlp_forward_headers",
        "otlp-forward-headers",
        Shape::List,
        "",
        "Header of every request that hands spans on, as `Name: value`",
        |c, v| {
            c.otlp.forward_headers = v.iter().map(|text| header(text)).collect::<Result<_, String>>()?;
            Ok(())
        },
    ),
    field(
        "otlp_forward_queue_bytes_max",
        "otlp-forward-queue-bytes-max",
        Shape::Bytes,
        "64MiB",
        "Most bytes of requests that wait in memory to be handed on; beyond that the oldest are dropped",
        |c, v| {
            c.otlp.forward_queue_bytes_max = bytes(one(v)?)?;
            Ok(())
        },
    ),
];

/// The address of a backend, with OTLP's path where it has none.
fn traces_url(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let wrong = |why: &str| format!("{why}: write it as `http://tempo:4318`");
    let uri: axum::http::Uri = text.parse().map_err(|_unparsable| wrong("it is no URL"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err("credentials belong into `otlp_forward_headers`".into());
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("`http://` or `https://` is wanted"));
    }
    if matches!(uri.path(), "" | "/") && uri.query().is_none() {
        return Ok(format!("{}/v1/traces", text.trim_end_matches('/')));
    }
    Ok(text.to_owned())
}

fn project(text: &str) -> Result<(String, String, String), String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [organization, workspace, project] if !project.is_empty() => {
            Ok((organization.to_owned(), workspace.to_owned(), project.to_owned()))
        }
        _ => Err(format!(
            "`{text}` is not ORGANIZATION/WORKSPACE/PROJECT, such as `acme/research/llm` or `//llm`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_is_that_of_traces() {
        let check = |text: &str, want: &str| assert_eq!(traces_url(text).as_deref(), Ok(want));
        check("http://tempo:4318", "http://tempo:4318/v1/traces");
        check("https://tempo/", "https://tempo/v1/traces");
        check("http://x/otlp/v1/traces", "http://x/otlp/v1/traces");
        check("", "");
        for wrong in ["tempo:4318", "grpc://x:4317", "http://", "/v1/traces", "http://a:s3cret@x"] {
            assert!(traces_url(wrong).is_err_and(|error| !error.contains("s3cret")), "{wrong}");
        }
    }
}
