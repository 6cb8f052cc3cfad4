//! What to scrape: the `scrape_configs` of a Prometheus configuration file.
//!
//! Read as Prometheus reads it, as far as it goes. A key that is Prometheus' and not ours is an error
//! that says so; any other unknown key is an error with the nearest one that is known.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::document::document;
use crate::relabel::Rule;
use crate::yaml::{self, DOCUMENT_BYTES_MAX, Fault};

/// How often a target is scraped unless something else is said.
pub const INTERVAL_DEFAULT: Duration = Duration::from_mins(1);
/// How long a scrape may take unless something else is said; a configuration never allows more than the interval.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long a scrape of a URL may take where the interval is shorter: how often to look says nothing of how fast a
/// target answers. The scrapes that come due meanwhile are left out.
pub const TIMEOUT_OF_URL_MIN: Duration = Duration::from_secs(1);
/// Largest page, unpacked, where `body_size_limit` says nothing or 0; bytes.
pub const BODY_BYTES_DEFAULT: usize = 16 << 20;
/// Largest `body_size_limit`, bytes.
pub const BODY_BYTES_MAX: usize = 1 << 30;
/// Most samples of a page where `sample_limit` says nothing or 0.
pub const SAMPLES_DEFAULT: usize = 200_000;
/// Most jobs.
pub const JOBS_MAX: usize = 10_000;
/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{origin}:{line}:{column}: {what}")]
    Wrong {
        /// The file, or what stands for it.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// What is wrong there, and what is wanted.
        what: String,
    },
    /// A URL that can't be scraped.
    #[error("`{url}` can't be scraped: write it as `http://host:port/metrics`")]
    Url {
        /// As given.
        url: String,
    },
}

/// All that is to be scraped.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// The jobs, in the file's order; their names are unique.
    pub jobs: Vec<Job>,
}

/// One entry of `scrape_configs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `job_name`.
    pub name: String,
    /// `scrape_interval`.
    pub interval: Duration,
    /// `scrape_timeout`.
    pub timeout: Duration,
    /// `metrics_path`.
    pub metrics_path: String,
    /// `scheme`: `http` or `https`.
    pub scheme: String,
    /// `params`, sorted by name.
    pub params: Vec<(String, Vec<String>)>,
    /// How labels and times of the page are taken.
    pub honor: Honor,
    /// Bounds of a page.
    pub limits: Limits,
    /// `relabel_configs`: which targets, under which labels.
    pub relabel: Vec<Rule>,
    /// `metric_relabel_configs`: which series, under which labels.
    pub metric_relabel: Vec<Rule>,
    /// `static_configs`.
    pub groups: Vec<Group>,
    /// `file_sd_configs`.
    pub files: Vec<FileDiscovery>,
    /// How the target is asked.
    pub access: Access,
}

/// How labels and times of a page are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Honor {
    /// `honor_labels`: the page's label wins over the target's of the same name.
    pub labels: bool,
    /// `honor_timestamps`: the page's times are taken.
    pub timestamps: bool,
    /// `track_timestamps_staleness`: a series with times of its own ends too when it vanishes.
    pub track_staleness: bool,
}

/// Bounds of a page; a page beyond one fails as a whole. 0 is no bound where `Option` is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `sample_limit`, after relabelling.
    pub samples: usize,
    /// `label_limit`, the metric's name included; 0 is none.
    pub labels: usize,
    /// `label_name_length_limit`, bytes; 0 is none.
    pub label_name_bytes: usize,
    /// `label_value_length_limit`, bytes; 0 is none.
    pub label_value_bytes: usize,
    /// `body_size_limit`, bytes unpacked.
    pub body_bytes: usize,
    /// `target_limit`; 0 is none. A job with more has no target scraped.
    pub targets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            samples: SAMPLES_DEFAULT,
            labels: 0,
            label_name_bytes: 0,
            label_value_bytes: 0,
            body_bytes: BODY_BYTES_DEFAULT,
            targets: 0,
        }
    }
}

/// Targets under common labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Addresses: `host:port`.
    pub targets: Vec<String>,
    /// Their labels.
    pub labels: Vec<(String, String)>,
    /// The file that the group came from; empty for a static one.
    pub file: String,
}

/// Files that list targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiscovery {
    /// Paths, the last part may hold one `*`.
    pub patterns: Vec<PathBuf>,
    /// `refresh_interval`: at the latest this long after a change it is seen.
    pub refresh: Duration,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A secret, or the file that holds it, read anew for every scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Written in the configuration.
    Inline(Secret),
    /// In a file; blanks at its ends don't count.
    File(PathBuf),
}

/// What goes into the `authorization` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// User and password.
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: Option<Credential>,
    },
    /// A type (`Bearer`) and credentials.
    Token {
        /// The type.
        kind: String,
        /// The credentials.
        credential: Credential,
    },
}

/// `tls_config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificates to trust instead of the usual ones.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain.
    pub cert_file: Option<PathBuf>,
    /// The client's key.
    pub key_file: Option<PathBuf>,
    /// Trust anything.
    pub insecure_skip_verify: bool,
}

/// A page format that may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `PrometheusText0.0.4`.
    Text004,
    /// `PrometheusText1.0.0`.
    Text100,
    /// `OpenMetricsText0.0.1`.
    OpenMetrics001,
    /// `OpenMetricsText1.0.0`.
    OpenMetrics100,
}

impl Protocol {
    /// Every protocol and its name in a configuration, the most wanted first.
    pub const ALL: [(&'static str, Self); 4] = [
        ("OpenMetricsText1.0.0", Self::OpenMetrics100),
        ("OpenMetricsText0.0.1", Self::OpenMetrics001),
        ("PrometheusText1.0.0", Self::Text100),
        ("PrometheusText0.0.4", Self::Text004),
    ];
}

/// How a target is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `basic_auth`, `authorization` or `bearer_token(_file)`.
    pub authorization: Option<Authorization>,
    /// `tls_config`.
    pub tls: Tls,
    /// `follow_redirects`, which never lead to another host.
    pub follow_redirects: bool,
    /// `enable_compression`.
    pub compression: bool,
    /// `scrape_protocols`, the most wanted first.
    pub protocols: Vec<Protocol>,
    /// `fallback_scrape_protocol`: how a page without a known content type is read.
    pub fallback: Option<Protocol>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            authorization: None,
            tls: Tls::default(),
            follow_redirects: true,
            compression: true,
            protocols: Protocol::ALL.map(|(_, protocol)| protocol).to_vec(),
            fallback: None,
        }
    }
}

impl Config {
    /// Reads a file; paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(read)?;
        // One byte more than is taken, so that the parser says what is too large.
        file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(read)?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        Self::parse(&text, &path.display().to_string(), folder)
    }

    /// Reads a configuration's text; `origin` names it in errors, paths are relative to `folder`.
    pub fn parse(text: &str, origin: &str, folder: &Path) -> Result<Self, ConfigError> {
        let wrong = |(place, what): Fault| ConfigError::Wrong {
            origin: origin.to_owned(),
            line: place.line,
            column: place.column,
            what,
        };
        let node = yaml::read(text).map_err(wrong)?;
        document(&node, folder).map_err(wrong)
    }

    /// One job that scrapes `urls`: what `--scrape URL` asks for.
    pub fn of_urls(urls: &[String], interval: Duration) -> Result<Self, ConfigError> {
        let mut jobs: Vec<Job> = Vec::new();
        for (at, url) in urls.iter().enumerate() {
            let wrong = || ConfigError::Url { url: url.clone() };
            let uri: ureq::http::Uri = url.parse().map_err(|_unparsable| wrong())?;
            let scheme = uri.scheme_str().filter(|s| matches!(*s, "http" | "https")).ok_or_else(wrong)?;
            let authority = uri.authority().filter(|a| !a.host().is_empty()).ok_or_else(wrong)?;
            if authority.as_str().contains('@') {
                return Err(wrong());
            }
            let mut job = Job::new(if at == 0 { "scrape".into() } else { format!("scrape-{}", at + 1) });
            job.interval = interval;
            job.timeout = TIMEOUT_DEFAULT.min(interval.max(TIMEOUT_OF_URL_MIN));
            scheme.clone_into(&mut job.scheme);
            if !matches!(uri.path(), "" | "/") {
                uri.path().clone_into(&mut job.metrics_path);
            }
            for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let (name, value) = (percent_decode(name), percent_decode(value));
                match job.params.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(value),
                    None => job.params.push((name, vec![value])),
                }
            }
            job.groups.push(Group { targets: vec![authority.as_str().to_owned()], ..Group::default() });
            jobs.push(job);
        }
        Ok(Self { jobs })
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, digits) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Job {
    /// A job with Prometheus' defaults and no targets.
    pub fn new(name: String) -> Self {
        Self {
            name,
            interval: INTERVAL_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            metrics_path: "/metrics".into(),
            scheme: "http".into(),
            params: Vec::new(),
            honor: Honor { labels: false, timestamps: true, track_staleness: false },
            limits: Limits::default(),
            relabel: Vec::new(),
            metric_relabel: Vec::new(),
            groups: Vec::new(),
            files: Vec::new(),
            access: Access::default(),
        }
    }
}
