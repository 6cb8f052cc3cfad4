//! From an address in a configuration to a URL that is asked and labels that its series carry.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use model::Labels;

use crate::config::{Group, Job};
use crate::relabel::{self, LabelSet};
use crate::section::duration;
use crate::units;

/// A target, ready to be asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// The job's name.
    pub(crate) job: String,
    pub(crate) url: String,
    /// What its series carry.
    pub(crate) labels: Labels,
    /// What was known before relabelling.
    pub(crate) discovered: Labels,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// What became of an address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    Target(Target),
    /// Relabelling dropped it.
    Dropped(Labels),
}

impl Target {
    /// Tells targets apart: the same job, URL and labels are the same target.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.job, &self.url, &self.labels, self.interval).hash(&mut hasher);
        hasher.finish()
    }
}

/// Settles one address of `group`.
pub(crate) fn settle(job: &Job, group: &Group, address: &str) -> Result<Found, String> {
    let mut labels: LabelSet = group.labels.iter().cloned().collect();
    labels.set("__address__", address);
    if !group.file.is_empty() {
        labels.set("__meta_filepath", group.file.as_str());
    }
    labels.set_if_absent("job", &job.name);
    labels.set_if_absent("__scrape_interval__", &units::format(job.interval));
    labels.set_if_absent("__scrape_timeout__", &units::format(job.timeout));
    labels.set_if_absent("__metrics_path__", &job.metrics_path);
    labels.set_if_absent("__scheme__", &job.scheme);
    for (name, values) in &job.params {
        if let Some(first) = values.first() {
            labels.set(format!("__param_{name}"), first.as_str());
        }
    }
    let discovered = labels.to_labels();
    if !relabel::apply(&job.relabel, &mut labels) {
        return Ok(Found::Dropped(discovered));
    }
    let interval = span(&labels, "__scrape_interval__")?;
    let timeout = span(&labels, "__scrape_timeout__")?;
    // A job that has more time than its interval, as that of a URL may, was made so.
    if timeout > interval && job.timeout <= job.interval {
        return Err(format!("target `{address}`: its timeout is longer than its interval"));
    }
    let url = url(job, &labels)?;
    let own_address = labels.get("__address__").to_owned();
    labels.set_if_absent("instance", &own_address);
    labels.retain(|name| !name.starts_with("__"));
    Ok(Found::Target(Target {
        job: job.name.clone(),
        url,
        labels: labels.to_labels(),
        discovered,
        interval,
        timeout,
    }))
}

fn span(labels: &LabelSet, name: &str) -> Result<Duration, String> {
    let text = labels.get(name);
    duration(text).ok_or_else(|| {
        format!("target `{}`: label `{name}` is {text:?}, no duration above zero", labels.get("__address__"))
    })
}

fn url(job: &Job, labels: &LabelSet) -> Result<String, String> {
    let (address, scheme) = (labels.get("__address__"), labels.get("__scheme__"));
    if address.is_empty() {
        return Err("a target has no address after relabelling".into());
    }
    if !matches!(scheme, "http" | "https") {
        return Err(format!("target `{address}`: `{scheme}` is not a scheme: `http` or `https` is wanted"));
    }
    let path = labels.get("__metrics_path__");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut url = format!("{scheme}://{address}{slash}{}", encode(path, b"/-._~:@!$&'()*+,;=%"));
    let mut separator = '?';
    let mut push = |name: &str, value: &str| {
        url.push(separator);
        separator = '&';
        url.push_str(&encode(name, b"-._~"));
        url.push('=');
        url.push_str(&encode(value, b"-._~"));
    };
    let mut params: Vec<(&str, Vec<&str>)> =
        job.params.iter().map(|(n, v)| (n.as_str(), v.iter().map(String::as_str).collect())).collect();
    for (name, value) in labels.iter() {
        let Some(name) = name.strip_prefix("__param_") else { continue };
        match params.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) if !values.is_empty() => values[0] = value,
            Some((_, values)) => values.push(value),
            None => params.push((name, vec![value])),
        }
    }
    params.sort_unstable();
    for (name, values) in &params {
        for value in values {
            push(name, value);
        }
    }
    let fits = url.parse::<ureq::http::Uri>().is_ok_and(|uri| {
        uri.authority()
            .is_some_and(|a| a.as_str() == address && !a.host().is_empty() && !address.contains('@'))
    });
    if fits { Ok(url) } else { Err(format!("target `{address}` is no `host:port`")) }
}

fn encode(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    out
}
