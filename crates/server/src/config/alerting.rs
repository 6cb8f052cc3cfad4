//! Rules, the server's own series, and whom alerts are told to.

use std::path::PathBuf;
use std::time::Duration;

use super::storage::header;
use super::{Field, Secret, Shape, duration, field, number, one, switch};

/// Whom alerts are told to, and under which names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertingConfig {
    /// Alertmanagers, each as the URL in front of `/api/v2/alerts`.
    pub alertmanagers: Vec<String>,
    /// Further headers of every request to them; their values may be secret.
    pub headers: Vec<(String, Secret)>,
    /// Certificates that theirs are checked against.
    pub ca_file: Option<PathBuf>,
    /// Who else is told, of which alerts, in groups.
    pub receivers_file: Option<PathBuf>,
    /// How often a firing alert is told again.
    pub resend_delay: Duration,
    /// Most alerts that wait for one Alertmanager.
    pub queue_max: usize,
    /// Longest time of one request to an Alertmanager.
    pub time_max: Duration,
    /// Where people reach this server; the address that it listens on when empty.
    pub external_url: String,
    /// Labels of every alert that is told, `NAME=VALUE` each, unless it has them.
    pub external_labels: Vec<(String, String)>,
}

impl Default for AlertingConfig {
    fn default() -> Self {
        Self {
            alertmanagers: Vec::new(),
            headers: Vec::new(),
            ca_file: None,
            receivers_file: None,
            resend_delay: Duration::from_mins(1),
            queue_max: 10_000,
            time_max: Duration::from_secs(10),
            external_url: String::new(),
            external_labels: Vec::new(),
        }
    }
}

/// Those settings.
pub(super) const FIELDS: [Field; 12] = [
    field(
        "starter_rules",
        "starter-rules",
        Shape::Switch,
        "true",
        "Evaluate the rules that come with the program: `truegauge rules export` shows them",
        |c, v| {
            c.starter_rules = switch(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "own_metrics",
        "own-metrics",
        Shape::Switch,
        "true",
        "Store the server's own metrics and the states of runs as series",
        |c, v| {
            c.own_metrics = switch(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "own_metrics_interval",
        "own-metrics-interval",
        Shape::Duration,
        "15s",
        "How often they are stored",
        |c, v| {
            c.own_metrics_interval = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "alerting_alertmanagers",
        "alerting-alertmanagers",
        Shape::List,
        "",
        "Alertmanager to which firing and resolved alerts are sent, such as `http://alertmanager:9093`",
        |c, v| {
            c.alerting.alertmanagers = v.to_vec();
            Ok(())
        },
    ),
    field(
        "alerting_headers",
        "alerting-headers",
        Shape::List,
        "",
        "Header of every request to an Alertmanager, as `Name: value`: a tenant, a token",
        |c, v| {
            c.alerting.headers = v.iter().map(|text| header(text)).collect::<Result<_, String>>()?;
            Ok(())
        },
    ),
    field(
        "alerting_ca_file",
        "alerting-ca-file",
        Shape::Path,
        "",
        "Certificates in PEM that an Alertmanager's is checked against, instead of the public ones",
        |c, v| {
            c.alerting.ca_file = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field(
        "alerting_receivers_file",
        "alerting-receivers-file",
        Shape::Path,
        "",
        "File in TOML of receivers that are told of alerts: webhooks, Slack, and which alerts go to whom",
        |c, v| {
            c.alerting.receivers_file = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field(
        "alerting_resend_delay",
        "alerting-resend-delay",
        Shape::Duration,
        "1m",
        "How often a firing alert is sent again",
        |c, v| {
            c.alerting.resend_delay = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "alerting_queue_max",
        "alerting-queue-max",
        Shape::Number,
        "10000",
        "Most alerts that wait for one Alertmanager, where beyond it the oldest are dropped and counted; and most that the receivers of the file are told of at a time",
        |c, v| {
            c.alerting.queue_max = usize::try_from(number(one(v)?)?).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
    field(
        "alerting_time_max",
        "alerting-time-max",
        Shape::Duration,
        "10s",
        "Longest time of one request to an Alertmanager or receiver before it is tried again",
        |c, v| {
            c.alerting.time_max = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "external_url",
        "external-url",
        Shape::Text,
        "",
        "Where people reach this server, for links in alerts; the address it listens on unless given",
        |c, v| {
            let url = one(v)?.trim_end_matches('/');
            if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(format!("found `{url}`, wanted a URL such as `https://gauge.example.org`"));
            }
            url.clone_into(&mut c.alerting.external_url);
            Ok(())
        },
    ),
    field(
        "external_labels",
        "external-labels",
        Shape::List,
        "",
        "Label of every alert that is sent, as `NAME=VALUE`; rules' templates have it in `$externalLabels`",
        |c, v| {
            c.alerting.external_labels = v.iter().map(|text| label(text)).collect::<Result<_, String>>()?;
            Ok(())
        },
    ),
];

/// Reads `NAME=VALUE`.
fn label(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if !is_name(name.trim()) || !text.contains('=') {
        return Err(format!("found `{text}`, wanted a label such as `site=lab`"));
    }
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
