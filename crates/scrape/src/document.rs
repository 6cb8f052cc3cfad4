//! The document behind a configuration, read key by key.

use std::path::Path;
use std::time::Duration;

use crate::config::{
    Access, Authorization, BODY_BYTES_DEFAULT, BODY_BYTES_MAX, Config, Credential, FileDiscovery, Group,
    INTERVAL_DEFAULT, JOBS_MAX, Job, Limits, Protocol, SAMPLES_DEFAULT, Secret, TIMEOUT_DEFAULT, Tls,
};
use crate::relabel::{Action, Rule, RuleText};
use crate::section::{Section, list, text};
use crate::units;
use crate::yaml::{Fault, Node, Value};

/// What `global` says for all jobs.
#[derive(Debug, Clone)]
struct Global {
    interval: Duration,
    timeout: Option<Duration>,
    limits: Limits,
    protocols: Vec<Protocol>,
}

/// Sections of a Prometheus configuration that others read.
const OTHER_SECTIONS: [&str; 9] = [
    "rule_files",
    "alerting",
    "remote_write",
    "remote_read",
    "storage",
    "tracing",
    "runtime",
    "otlp",
    "scrape_config_files",
];
/// Keys of `global` that have no meaning for a scrape.
const OTHER_GLOBALS: [&str; 8] = [
    "evaluation_interval",
    "rule_query_offset",
    "external_labels",
    "query_log_file",
    "scrape_failure_log_file",
    "keep_dropped_targets",
    "metric_name_validation_scheme",
    "metric_name_escaping_scheme",
];
/// Keys of a job that are Prometheus' and not ours.
const UNSUPPORTED: [&str; 40] = [
    "oauth2",
    "sigv4",
    "proxy_url",
    "no_proxy",
    "proxy_from_environment",
    "proxy_connect_header",
    "http_headers",
    "enable_http2",
    "native_histogram_bucket_limit",
    "native_histogram_min_bucket_factor",
    "scrape_native_histograms",
    "scrape_classic_histograms",
    "always_scrape_classic_histograms",
    "convert_classic_histograms_to_nhcb",
    "scrape_failure_log_file",
    "extra_scrape_metrics",
    "azure_sd_configs",
    "consul_sd_configs",
    "digitalocean_sd_configs",
    "docker_sd_configs",
    "dockerswarm_sd_configs",
    "dns_sd_configs",
    "ec2_sd_configs",
    "eureka_sd_configs",
    "gce_sd_configs",
    "hetzner_sd_configs",
    "http_sd_configs",
    "ionos_sd_configs",
    "kubernetes_sd_configs",
    "kuma_sd_configs",
    "lightsail_sd_configs",
    "linode_sd_configs",
    "marathon_sd_configs",
    "nerve_sd_configs",
    "nomad_sd_configs",
    "openstack_sd_configs",
    "ovhcloud_sd_configs",
    "puppetdb_sd_configs",
    "scaleway_sd_configs",
    "serverset_sd_configs",
];

/// Reads a whole configuration; paths in it are relative to `folder`.
pub(crate) fn document(node: &Node, folder: &Path) -> Result<Config, Fault> {
    let mut top = Section::new(node, "the configuration")?;
    let global = match top.take("global") {
        Some(node) => global(node)?,
        None => Global {
            interval: INTERVAL_DEFAULT,
            timeout: None,
            limits: Limits::default(),
            protocols: Access::default().protocols,
        },
    };
    let jobs = top.take("scrape_configs");
    for section in OTHER_SECTIONS {
        top.take(section);
    }
    top.finish()?;
    let mut config = Config::default();
    for node in jobs.map(list).transpose()?.unwrap_or_default() {
        let job = job(node, &global, folder)?;
        if config.jobs.iter().any(|known| known.name == job.name) {
            return Err((node.place, format!("two jobs are called `{}`", job.name)));
        }
        if config.jobs.len() >= JOBS_MAX {
            return Err((node.place, format!("there are more than {JOBS_MAX} jobs")));
        }
        config.jobs.push(job);
    }
    Ok(config)
}

fn global(node: &Node) -> Result<Global, Fault> {
    let mut section = Section::new(node, "`global`")?;
    let interval = section.duration("scrape_interval")?.unwrap_or(INTERVAL_DEFAULT);
    let timeout = section.duration("scrape_timeout")?;
    let limits = limits(&mut section, Limits::default())?;
    let protocols = protocols(&mut section)?.unwrap_or_else(|| Access::default().protocols);
    for key in OTHER_GLOBALS {
        section.take(key);
    }
    section.finish()?;
    Ok(Global { interval, timeout, limits, protocols })
}

fn limits(section: &mut Section<'_>, from: Limits) -> Result<Limits, Fault> {
    let place = section.place_of("body_size_limit");
    let body_bytes = match section.text("body_size_limit")? {
        None => from.body_bytes,
        Some(text) => match units::size(&text) {
            Some(0) => BODY_BYTES_DEFAULT,
            Some(bytes) if bytes <= BODY_BYTES_MAX => bytes,
            _ => return Err((place, format!("{text:?} is no size up to 1GB: write it as `10MB`"))),
        },
    };
    let mut number = |key: &str, from| section.number(key).map(|found| found.unwrap_or(from));
    Ok(Limits {
        samples: match number("sample_limit", from.samples)? {
            0 => SAMPLES_DEFAULT,
            samples => samples,
        },
        labels: number("label_limit", from.labels)?,
        label_name_bytes: number("label_name_length_limit", from.label_name_bytes)?,
        label_value_bytes: number("label_value_length_limit", from.label_value_bytes)?,
        targets: number("target_limit", from.targets)?,
        body_bytes,
    })
}

fn protocol(node: &Node) -> Result<Protocol, Fault> {
    let name = text(node)?;
    let found = Protocol::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, protocol)| *protocol).ok_or_else(|| {
        let known = Protocol::ALL.map(|(known, _)| format!("`{known}`")).join(", ");
        (node.place, format!("`{name}` is not a protocol that is read here: choose of {known}"))
    })
}

fn protocols(section: &mut Section<'_>) -> Result<Option<Vec<Protocol>>, Fault> {
    let Some(node) = section.take("scrape_protocols") else { return Ok(None) };
    // Prometheus' own format is skipped where others are given: a server that has it has text too.
    let nodes = list(node)?.iter().filter(|n| !matches!(&n.value, Value::Text(t) if t == "PrometheusProto"));
    let found = nodes.map(protocol).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        Err((node.place, "no protocol is left to ask for".into()))
    } else {
        Ok(Some(found))
    }
}

fn job(node: &Node, global: &Global, folder: &Path) -> Result<Job, Fault> {
    let mut section = Section::new(node, "a job of `scrape_configs`")?;
    let name = section.text("job_name")?.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| (node.place, "a job has no `job_name`".to_owned()))?;
    let mut job = Job::new(name);
    job.interval = section.duration("scrape_interval")?.unwrap_or(global.interval);
    let timeout_place = section.place_of("scrape_timeout");
    let timeout = section.duration("scrape_timeout")?;
    if timeout.is_some_and(|timeout| timeout > job.interval) {
        return Err((timeout_place, "`scrape_timeout` is longer than `scrape_interval`".into()));
    }
    job.timeout = timeout.or(global.timeout).unwrap_or(TIMEOUT_DEFAULT).min(job.interval);
    if let Some(path) = section.text("metrics_path")? {
        job.metrics_path = path;
    }
    let scheme_place = section.place_of("scheme");
    if let Some(scheme) = section.text("scheme")? {
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err((scheme_place, format!("`{scheme}` is not a scheme: `http` or `https` is wanted")));
        }
        job.scheme = scheme;
    }
    job.params = params(&mut section)?;
    job.honor.labels = section.flag("honor_labels")?.unwrap_or(false);
    job.honor.timestamps = section.flag("honor_timestamps")?.unwrap_or(true);
    job.honor.track_staleness = section.flag("track_timestamps_staleness")?.unwrap_or(false);
    job.limits = limits(&mut section, global.limits)?;
    job.relabel = rules(section.take("relabel_configs"))?;
    job.metric_relabel = rules(section.take("metric_relabel_configs"))?;
    if let Some(node) = section.take("static_configs") {
        job.groups = list(node)?.iter().map(|node| group(node, "")).collect::<Result<_, _>>()?;
    }
    if let Some(node) = section.take("file_sd_configs") {
        let files = list(node)?.iter().map(|node| file_discovery(node, folder));
        job.files = files.collect::<Result<_, _>>()?;
    }
    job.access = access(&mut section, global, folder)?;
    section.take("keep_dropped_targets");
    section.refuse(&UNSUPPORTED)?;
    section.finish()?;
    Ok(job)
}

fn params(section: &mut Section<'_>) -> Result<Vec<(String, Vec<String>)>, Fault> {
    let Some(node) = section.take("params") else { return Ok(Vec::new()) };
    let Value::Map(entries) = &node.value else {
        return Err((node.place, format!("`params` is {}, a mapping is wanted", node.value.kind())));
    };
    let mut params = Vec::new();
    for (name, _, node) in entries {
        params.push((name.clone(), list(node)?.iter().map(text).collect::<Result<_, _>>()?));
    }
    params.sort_unstable();
    Ok(params)
}

fn access(section: &mut Section<'_>, global: &Global, folder: &Path) -> Result<Access, Fault> {
    let mut access = Access { protocols: global.protocols.clone(), ..Access::default() };
    let mut found = Vec::new();
    if let Some(node) = section.take("basic_auth") {
        found.push((node.place, basic(node, folder)?));
    }
    if let Some(node) = section.take("authorization") {
        found.push((node.place, token(node, folder)?));
    }
    let place = section.place_of("bearer_token");
    if let Some(token) = section.text("bearer_token")? {
        found.push((place, bearer(Credential::Inline(Secret(token)))));
    }
    let place = section.place_of("bearer_token_file");
    if let Some(file) = section.text("bearer_token_file")? {
        found.push((place, bearer(Credential::File(folder.join(file)))));
    }
    if let Some((place, _)) = found.get(1) {
        return Err((*place, "one job has two ways to authorize: keep one".into()));
    }
    access.authorization = found.pop().map(|(_, authorization)| authorization);
    if let Some(node) = section.take("tls_config") {
        access.tls = tls(node, folder)?;
    }
    access.follow_redirects = section.flag("follow_redirects")?.unwrap_or(true);
    access.compression = section.flag("enable_compression")?.unwrap_or(true);
    if let Some(protocols) = protocols(section)? {
        access.protocols = protocols;
    }
    access.fallback = section.take("fallback_scrape_protocol").map(protocol).transpose()?;
    Ok(access)
}

fn bearer(credential: Credential) -> Authorization {
    Authorization::Token { kind: "Bearer".into(), credential }
}

/// A secret under `key`, or its file under `key_file`, but not both.
fn credential(section: &mut Section<'_>, key: &str, folder: &Path) -> Result<Option<Credential>, Fault> {
    let file_key = format!("{key}_file");
    let place = section.place_of(&file_key);
    let (inline, file) = (section.text(key)?, section.text(&file_key)?);
    match (inline, file) {
        (Some(_), Some(_)) => Err((place, format!("`{key}` and `{file_key}` are both set: keep one"))),
        (Some(secret), None) => Ok(Some(Credential::Inline(Secret(secret)))),
        (None, Some(file)) => Ok(Some(Credential::File(folder.join(file)))),
        (None, None) => Ok(None),
    }
}

fn basic(node: &Node, folder: &Path) -> Result<Authorization, Fault> {
    let mut section = Section::new(node, "`basic_auth`")?;
    let username = section.text("username")?.unwrap_or_default();
    let password = credential(&mut section, "password", folder)?;
    section.finish()?;
    Ok(Authorization::Basic { username, password })
}

fn token(node: &Node, folder: &Path) -> Result<Authorization, Fault> {
    let mut section = Section::new(node, "`authorization`")?;
    let place = section.place_of("type");
    let kind = section.text("type")?.unwrap_or_else(|| "Bearer".into());
    if kind.eq_ignore_ascii_case("basic") {
        return Err((place, "write user and password under `basic_auth`".into()));
    }
    let found = credential(&mut section, "credentials", folder)?;
    section.finish()?;
    let credential = found.ok_or_else(|| (node.place, "`authorization` has no `credentials`".to_owned()))?;
    Ok(Authorization::Token { kind, credential })
}

fn tls(node: &Node, folder: &Path) -> Result<Tls, Fault> {
    let mut section = Section::new(node, "`tls_config`")?;
    let mut file = |key| Ok(section.text(key)?.map(|file| folder.join(file)));
    let (ca_file, cert_file, key_file) = (file("ca_file")?, file("cert_file")?, file("key_file")?);
    let insecure_skip_verify = section.flag("insecure_skip_verify")?.unwrap_or(false);
    section.refuse(&[
        "ca",
        "cert",
        "key",
        "key_ref",
        "cert_ref",
        "ca_ref",
        "server_name",
        "min_version",
        "max_version",
    ])?;
    section.finish()?;
    if cert_file.is_some() != key_file.is_some() {
        return Err((node.place, "`cert_file` and `key_file` come together".into()));
    }
    Ok(Tls { ca_file, cert_file, key_file, insecure_skip_verify })
}

/// Targets and labels, as in `static_configs` and in files of `file_sd_configs`.
pub(crate) fn group(node: &Node, file: &str) -> Result<Group, Fault> {
    let mut section = Section::new(node, "a group of targets")?;
    let targets = match section.take("targets") {
        Some(node) => list(node)?.iter().map(text).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let mut labels = Vec::new();
    if let Some(node) = section.take("labels") {
        let Value::Map(entries) = &node.value else {
            return Err((node.place, format!("`labels` is {}, a mapping is wanted", node.value.kind())));
        };
        for (name, place, node) in entries {
            if name.is_empty() {
                return Err((*place, "a label has no name".into()));
            }
            labels.push((name.clone(), text(node)?));
        }
    }
    section.finish()?;
    Ok(Group { targets, labels, file: file.to_owned() })
}

fn file_discovery(node: &Node, folder: &Path) -> Result<FileDiscovery, Fault> {
    let mut section = Section::new(node, "`file_sd_configs`")?;
    let mut patterns = Vec::new();
    for node in section.take("files").map(list).transpose()?.unwrap_or_default() {
        let pattern = text(node)?;
        let name = pattern.rsplit('/').next().unwrap_or_default();
        let is_known = [".json", ".yml", ".yaml"].iter().any(|end| name.to_lowercase().ends_with(end));
        let stars = pattern.matches('*').count();
        if !is_known || stars > 1 || stars != name.matches('*').count() {
            let wanted = "a `.json`, `.yml` or `.yaml` file whose last part holds at most one `*` is wanted";
            return Err((node.place, format!("`{pattern}` can't be watched: {wanted}")));
        }
        patterns.push(folder.join(pattern));
    }
    if patterns.is_empty() {
        return Err((node.place, "`file_sd_configs` names no `files`".into()));
    }
    let refresh = section.duration("refresh_interval")?.unwrap_or(Duration::from_mins(5));
    section.finish()?;
    Ok(FileDiscovery { patterns, refresh })
}

fn rules(node: Option<&Node>) -> Result<Vec<Rule>, Fault> {
    node.map(list).transpose()?.unwrap_or_default().iter().map(rule).collect()
}

fn rule(node: &Node) -> Result<Rule, Fault> {
    let mut section = Section::new(node, "a relabelling rule")?;
    let mut written = RuleText::default();
    if let Some(node) = section.take("source_labels") {
        written.source_labels = list(node)?.iter().map(text).collect::<Result<_, _>>()?;
    }
    let place = section.place_of("action");
    if let Some(name) = section.text("action")? {
        let name = name.to_lowercase();
        let found = Action::ALL.iter().find(|(known, _)| *known == name);
        let (_, action) = found.ok_or_else(|| {
            let known = Action::ALL.map(|(known, _)| format!("`{known}`")).join(", ");
            (place, format!("`{name}` is not an action: choose of {known}"))
        })?;
        written.action = *action;
    }
    let mut set = |key: &str, to: &mut String| {
        section.text(key).map(|found| {
            if let Some(found) = found {
                *to = found;
            }
        })
    };
    set("separator", &mut written.separator)?;
    set("regex", &mut written.regex)?;
    set("replacement", &mut written.replacement)?;
    set("target_label", &mut written.target_label)?;
    written.modulus = section.number("modulus")?.unwrap_or(0) as u64;
    section.finish()?;
    Rule::new(written).map_err(|error| (node.place, error.to_string()))
}
