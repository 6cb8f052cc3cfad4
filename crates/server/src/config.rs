//! Settings of a server. Each is one row of [`FIELDS`]: its flag, its `TRUEGAUGE_*` variable, its key
//! in the TOML file, its default and its help all come from there.
//!
//! Flag before variable before file before default; a key that is not in the table is an error.

mod alerting;
mod otlp;
mod remediation;
mod retention;
mod site;
mod storage;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::{Desc, nearest};

use crate::files::{self, SMALL_BYTES_MAX};
use crate::reload::Reread;

pub use alerting::AlertingConfig;
pub use otlp::OtlpConfig;
pub use remediation::RemediationConfig;
pub use retention::RetentionConfig;
pub use site::{EngineGpus, Objectives, Price, SiteConfig};
pub(crate) use storage::header;
pub use storage::{StorageConfig, StorageKind};
pub use tls::TlsConfig;

/// Text that no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "set" })
    }
}

/// Settings of a server, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the store.
    pub data_dir: PathBuf,
    /// Where UI, API and push listen.
    pub listen: SocketAddr,
    /// Where gRPC listens: OTLP and clients of metrana.
    pub otlp_grpc_listen: SocketAddr,
    /// Where OTLP over HTTP listens, beside `listen`.
    pub otlp_http_listen: SocketAddr,
    /// Bearer token that the API asks for; none when empty.
    pub token: Secret,
    /// Lets a non-loopback address go without a token.
    pub insecure_no_auth: bool,
    /// Names beside the machine's own under which a browser may call this server.
    pub allowed_hosts: Vec<String>,
    /// Origins beside the server's own from which a page may call the API.
    pub allowed_origins: Vec<String>,
    /// TLS.
    pub tls: TlsConfig,
    /// Free bytes on the data directory's disk below which writes are refused.
    pub reserve_bytes: u64,
    /// Samples in memory from which they are sealed.
    pub seal_points: u64,
    /// Age at which samples in memory are sealed however few they are.
    pub seal_age: Duration,
    /// Folder whose orphaned spools are taken in.
    pub spool_dir: PathBuf,
    /// Whether orphaned spools are taken in.
    pub adopt_spools: bool,
    /// Pages to scrape.
    pub scrape: Vec<String>,
    /// How often they are scraped.
    pub scrape_interval: Duration,
    /// Prometheus' configuration file whose `scrape_configs` are scraped.
    pub scrape_config: Option<PathBuf>,
    /// Vocabularies beside those that come with the program.
    pub vocabulary_files: Vec<PathBuf>,
    /// Files of rules to evaluate.
    pub rule_files: Vec<String>,
    /// How often groups are evaluated that say nothing themselves.
    pub rule_interval: Duration,
    /// Whether the rules that come with the program are evaluated.
    pub starter_rules: bool,
    /// Whom alerts are told to.
    pub alerting: AlertingConfig,
    /// What is done about incidents.
    pub remediation: RemediationConfig,
    /// How long what is kept, and how many series there may be.
    pub retention: RetentionConfig,
    /// What its cards cost, and what is promised of models.
    pub site: SiteConfig,
    /// What is done with telemetry that comes in by OTLP.
    pub otlp: OtlpConfig,
    /// Whether own metrics and states of runs are stored.
    pub own_metrics: bool,
    /// How often they are.
    pub own_metrics_interval: Duration,
    /// What PromQL queries may cost.
    pub query: QueryConfig,
    /// Where samples go beside this machine.
    pub storage: StorageConfig,
    /// `auto`, `text` or `json`; the program that starts the server applies it.
    pub log_format: String,
    /// What metrics mean, for lists and charts; not a setting, the program hands it in.
    pub catalog: Vec<Desc>,
    /// What every run should have, so that it is missed where it is not there; handed in too.
    pub promised: Vec<Desc>,
    /// How settings are read anew while the server runs; not a setting either.
    pub reread: Reread,
}

/// What PromQL queries may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryConfig {
    /// Most samples that one query reads, and most values that one part of it computes.
    pub samples_max: u64,
    /// Most series that one selector may match.
    pub series_max: u64,
    /// Longest time of one query.
    pub time_max: Duration,
    /// Queries evaluated at once.
    pub concurrency: usize,
    /// Most bytes that all queries together may hold: intermediate results, answers, and the text of
    /// answers until it is sent.
    pub memory_max_bytes: u64,
}

/// How a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`; as a flag it takes no value.
    Switch,
    /// A path.
    Path,
    /// `HOST:PORT`.
    Address,
    /// Free text.
    Text,
    /// A whole number above 0.
    Number,
    /// A duration as Prometheus writes it: `90s`, `1h30m`.
    Duration,
    /// Bytes, with `KiB`, `MiB`, `GiB` or `TiB` behind the number if wanted.
    Bytes,
    /// Several texts: a flag given again, a TOML array, commas in a variable.
    List,
}

/// One setting. In the file, `a_b = 1` and `b = 1` under `[a]` are the same.
#[derive(Clone, Copy)]
pub struct Field {
    /// Key in the file.
    pub name: &'static str,
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// How it is written.
    pub shape: Shape,
    /// Default, as the help shows it.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    set: fn(&mut Config, &[String]) -> Result<(), String>,
}

impl Field {
    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("TRUEGAUGE_{}", self.name.to_ascii_uppercase())
    }
}

/// Values by setting's name, as one source gives them.
pub type Given = BTreeMap<&'static str, Vec<String>>;

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the configuration `{path}`: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration `{path}` is not TOML: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        reason: String,
    },
    /// A key that no setting has.
    #[error("`{key}` in `{path}` is not a setting{}", .nearest.map(|n| format!(": did you mean `{n}`?")).unwrap_or_default())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The setting that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A value that its setting can't take.
    #[error("{origin} is not usable: {reason}")]
    Value {
        /// The flag, variable or key.
        origin: String,
        /// What was found and what is wanted.
        reason: String,
    },
}

impl ConfigError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        "`truegauge up --help` lists every setting with its default; docs/reference/config.md explains them"
    }
}

const fn field(
    name: &'static str,
    flag: &'static str,
    shape: Shape,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Config, &[String]) -> Result<(), String>,
) -> Field {
    Field { name, flag, shape, default, help, set }
}

/// Every setting.
pub const FIELDS: [Field; COUNT] = {
    let mut all = [SETTINGS[0]; COUNT];
    let (mut at, mut part, mut row) = (0, 0, 0);
    while at < COUNT {
        if row == PARTS[part].len() {
            (part, row) = (part + 1, 0);
        } else {
            all[at] = PARTS[part][row];
            (at, row) = (at + 1, row + 1);
        }
    }
    all
};

/// The tables of settings, in the order in which help and reference show them.
const PARTS: [&[Field]; 8] = [
    &SETTINGS,
    &tls::FIELDS,
    &alerting::FIELDS,
    &remediation::FIELDS,
    &site::FIELDS,
    &storage::FIELDS,
    &retention::FIELDS,
    &otlp::FIELDS,
];

const COUNT: usize = {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
};

/// Those of the server itself.
const SETTINGS: [Field; 26] = [
    field(
        "data_dir",
        "data-dir",
        Shape::Path,
        "$XDG_DATA_HOME/truegauge, else ~/.local/share/truegauge",
        "Directory of the store; one server at a time",
        |c, v| {
            c.data_dir = PathBuf::from(one(v)?);
            Ok(())
        },
    ),
    field("listen", "listen", Shape::Address, "127.0.0.1:9494", "Address of UI, API and push", |c, v| {
        c.listen = address(one(v)?)?;
        Ok(())
    }),
    field(
        "otlp_grpc_listen",
        "otlp-grpc-listen",
        Shape::Address,
        "127.0.0.1:4317",
        "Address of gRPC: OTLP and clients of metrana; opened when it is free",
        |c, v| {
            c.otlp_grpc_listen = address(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "otlp_http_listen",
        "otlp-http-listen",
        Shape::Address,
        "127.0.0.1:4318",
        "Address of OTLP over HTTP, which the port of `listen` takes too; opened when it is free",
        |c, v| {
            c.otlp_http_listen = address(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "token",
        "token",
        Shape::Text,
        "",
        "Bearer token that API and `/metrics` ask for; wanted where the address is not loopback",
        |c, v| {
            c.token = token(one(v)?)?;
            Ok(())
        },
    ),
    field("token_file", "token-file", Shape::Path, "", "File that holds the token; beats `token`", |c, v| {
        let path = one(v)?;
        let text = files::text(Path::new(path), SMALL_BYTES_MAX);
        let text = text.map_err(|e| format!("cannot read `{path}`: {e}"))?;
        if text.trim().is_empty() {
            return Err(format!("`{path}` is empty, and a server without a token asks nobody who they are"));
        }
        c.token = token(text.trim())?;
        Ok(())
    }),
    field(
        "insecure_no_auth",
        "insecure-no-auth",
        Shape::Switch,
        "false",
        "Serve a non-loopback address without a token: anyone who reaches it reads, writes and deletes",
        |c, v| {
            c.insecure_no_auth = switch(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "allowed_hosts",
        "allowed-hosts",
        Shape::List,
        "",
        "Host names beside localhost, the machine's own and IP addresses under which the server is called, as behind a proxy",
        |c, v| {
            c.allowed_hosts = v.iter().map(|h| h.to_ascii_lowercase()).collect();
            Ok(())
        },
    ),
    field(
        "allowed_origins",
        "allowed-origins",
        Shape::List,
        "",
        "Origins beside the server's own whose pages may call the API, such as `http://localhost:5173`",
        |c, v| {
            c.allowed_origins = v.iter().map(|o| o.trim_end_matches('/').to_ascii_lowercase()).collect();
            Ok(())
        },
    ),
    field(
        "reserve_bytes",
        "reserve-bytes",
        Shape::Bytes,
        "256MiB",
        "Free space on the data directory's disk below which writes are refused and reads go on",
        |c, v| {
            c.reserve_bytes = bytes(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "seal_points",
        "seal-points",
        Shape::Number,
        "524288",
        "Samples in memory from which they are sealed into a file, once each series has 256; fewer make a start after a crash faster and files larger",
        |c, v| {
            c.seal_points = number(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "seal_age",
        "seal-age",
        Shape::Duration,
        "2h",
        "Age at which samples in memory are sealed into a file however few they are",
        |c, v| {
            c.seal_age = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "spool_dir",
        "spool-dir",
        Shape::Path,
        "$XDG_STATE_HOME/truegauge/spool, else ~/.local/state/truegauge/spool",
        "Folder of this user's spools",
        |c, v| {
            c.spool_dir = PathBuf::from(one(v)?);
            Ok(())
        },
    ),
    field(
        "adopt_spools",
        "adopt-spools",
        Shape::Switch,
        "true",
        "Take in spools whose writer is gone and that were meant for no other server",
        |c, v| {
            c.adopt_spools = switch(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "scrape",
        "scrape",
        Shape::List,
        "",
        "Page of metrics to scrape, such as `http://engine:8000/metrics`",
        |c, v| {
            c.scrape = v.to_vec();
            Ok(())
        },
    ),
    field(
        "scrape_interval",
        "scrape-interval",
        Shape::Duration,
        "15s",
        "How often the pages of `scrape` are scraped",
        |c, v| {
            c.scrape_interval = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "scrape_config",
        "scrape-config",
        Shape::Path,
        "",
        "Prometheus configuration file whose `scrape_configs` are scraped",
        |c, v| {
            c.scrape_config = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field(
        "vocabulary_files",
        "vocabulary-files",
        Shape::List,
        "",
        "File of what an engine or an exporter calls its metrics, beside those that come with the program",
        |c, v| {
            c.vocabulary_files = v.iter().map(PathBuf::from).collect();
            Ok(())
        },
    ),
    field(
        "rule_files",
        "rule-files",
        Shape::List,
        "",
        "File of recording and alerting rules to evaluate, in Prometheus' format",
        |c, v| {
            c.rule_files = v.to_vec();
            Ok(())
        },
    ),
    field(
        "rule_interval",
        "rule-interval",
        Shape::Duration,
        "15s",
        "How often groups of rules are evaluated that have no `interval`",
        |c, v| {
            c.rule_interval = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "query_samples_max",
        "query-samples-max",
        Shape::Number,
        "50000000",
        "Most samples that one PromQL query reads, and most values that one part of it computes",
        |c, v| {
            c.query.samples_max = number(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "query_series_max",
        "query-series-max",
        Shape::Number,
        "1000000",
        "Most series that one selector of a query may match",
        |c, v| {
            c.query.series_max = number(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "query_time_max",
        "query-time-max",
        Shape::Duration,
        "2m",
        "Longest time of one query; a caller's `timeout` can shorten it",
        |c, v| {
            c.query.time_max = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "query_concurrency",
        "query-concurrency",
        Shape::Number,
        "8",
        "Queries evaluated at once; further ones wait for as long as they may take",
        |c, v| {
            c.query.concurrency = usize::try_from(number(one(v)?)?.min(1_024)).unwrap_or(1);
            Ok(())
        },
    ),
    field(
        "query_memory_max_bytes",
        "query-memory-max-bytes",
        Shape::Bytes,
        "1GiB",
        "Most bytes that all queries together may hold: intermediate results, answers, and their text until it is sent",
        |c, v| {
            c.query.memory_max_bytes = bytes(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "log_format",
        "log-format",
        Shape::Text,
        "auto",
        "`text`, `json`, or `auto`: text on a terminal and JSON otherwise",
        |c, v| {
            let format = one(v)?;
            if !["auto", "text", "json"].contains(&format) {
                return Err(format!("found `{format}`, wanted `auto`, `text` or `json`"));
            }
            format.clone_into(&mut c.log_format);
            Ok(())
        },
    ),
];

impl Default for Config {
    /// The defaults, by the environment's `HOME` and `XDG_*`.
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            data_dir: home_dir("XDG_DATA_HOME", ".local/share").join("truegauge"),
            listen: loopback(9494),
            otlp_grpc_listen: loopback(4317),
            otlp_http_listen: loopback(4318),
            token: Secret::default(),
            insecure_no_auth: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: TlsConfig::default(),
            reserve_bytes: 256 << 20,
            seal_points: 512 << 10,
            seal_age: Duration::from_hours(2),
            spool_dir: home_dir("XDG_STATE_HOME", ".local/state").join("truegauge/spool"),
            adopt_spools: true,
            scrape: Vec::new(),
            scrape_interval: Duration::from_secs(15),
            scrape_config: None,
            vocabulary_files: Vec::new(),
            rule_files: Vec::new(),
            rule_interval: Duration::from_secs(15),
            starter_rules: true,
            alerting: AlertingConfig::default(),
            remediation: RemediationConfig::default(),
            retention: RetentionConfig::default(),
            site: SiteConfig::default(),
            otlp: OtlpConfig::default(),
            own_metrics: true,
            own_metrics_interval: Duration::from_secs(15),
            query: QueryConfig {
                samples_max: 50_000_000,
                series_max: 1_000_000,
                time_max: Duration::from_mins(2),
                concurrency: 8,
                memory_max_bytes: 1 << 30,
            },
            storage: StorageConfig::default(),
            log_format: "auto".into(),
            catalog: Vec::new(),
            promised: Vec::new(),
            reread: Reread::default(),
        }
    }
}

impl Config {
    /// Puts `flags`, the environment behind `variable` and the file over `defaults`.
    pub fn resolve(
        defaults: Self,
        flags: &Given,
        variable: &dyn Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let in_file = file.map(read_file).transpose()?.unwrap_or_default();
        let mut config = defaults;
        let mut origins = Vec::new();
        for field in &FIELDS {
            let from_variable = || variable(&field.variable()).filter(|v| !v.is_empty());
            let (origin, values) = if let Some(values) = flags.get(field.name) {
                (format!("`--{}`", field.flag), values.clone())
            } else if let Some(value) = from_variable() {
                let values = if field.shape == Shape::List {
                    value.split(',').map(|v| v.trim().to_owned()).collect()
                } else {
                    vec![value]
                };
                (format!("`{}`", field.variable()), values)
            } else if let Some(values) = in_file.get(field.name) {
                (format!("`{}` in the configuration", field.name), values.clone())
            } else {
                continue;
            };
            (field.set)(&mut config, &values)
                .map_err(|reason| ConfigError::Value { origin: origin.clone(), reason })?;
            origins.push((field.name, origin));
        }
        // Who names a cluster means it; who keeps one from being asked says so.
        let origin =
            |name: &str| origins.iter().find(|(of, _)| *of == name).map(|(_, origin)| origin.clone());
        let cluster = origin("storage_write_url").or_else(|| origin("storage_query_url"));
        if let Some(origin) = cluster.filter(|_| origin("storage_kind").is_none()) {
            let reason = "nothing is sent there without `storage_kind = \"prometheus\"`; \"embedded\" leaves the cluster alone".into();
            return Err(ConfigError::Value { origin, reason });
        }
        Ok(config)
    }
}

fn read_file(path: &Path) -> Result<Given, ConfigError> {
    let text = files::text(path, SMALL_BYTES_MAX)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| ConfigError::Syntax { path: path.to_owned(), reason: e.to_string() })?;
    let mut given = Given::new();
    for (key, value) in flat(table) {
        let Some(field) = FIELDS.iter().find(|f| f.name == key) else {
            let nearest = nearest(&key, FIELDS.iter().map(|f| f.name));
            return Err(ConfigError::UnknownKey { path: path.to_owned(), key, nearest });
        };
        let values = match value {
            toml::Value::Array(items) if field.shape == Shape::List => items.iter().map(plain).collect(),
            toml::Value::Array(_) | toml::Value::Table(_) => {
                let origin = format!("`{key}` in `{}`", path.display());
                return Err(ConfigError::Value { origin, reason: "one plain value is wanted".into() });
            }
            other => vec![plain(&other)],
        };
        if given.insert(field.name, values).is_some() {
            let origin = format!("`{key}` in `{}`", path.display());
            let reason = "it is written twice, by its whole name and in its section".into();
            return Err(ConfigError::Value { origin, reason });
        }
    }
    Ok(given)
}

/// The keys of sections as keys of the file itself.
fn flat(table: toml::Table) -> Vec<(String, toml::Value)> {
    let mut keys = Vec::new();
    for (key, value) in table {
        match value {
            // An agent's settings, which may lie in the same file.
            toml::Value::Table(_) if key == "agent" => {}
            toml::Value::Table(section) => {
                keys.extend(section.into_iter().map(|(inner, value)| (format!("{key}_{inner}"), value)));
            }
            value => keys.push((key, value)),
        }
    }
    keys
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `$variable`, else `~/fallback`, else the current directory's `fallback`.
fn home_dir(variable: &str, fallback: &str) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| set("HOME").map(|home| home.join(fallback))).unwrap_or_else(|| fallback.into())
}

fn one(values: &[String]) -> Result<&str, String> {
    match values {
        [value] => Ok(value),
        _ => Err(format!("{} values given, one is wanted", values.len())),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |p| format!("127.0.0.1:{p}"));
    text.parse().map_err(|_source: std::net::AddrParseError| {
        format!("found `{text}`, wanted an IP address and a port such as `127.0.0.1:9494`")
    })
}

fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        other => Err(format!("found `{other}`, wanted `true` or `false`")),
    }
}

fn token(text: &str) -> Result<Secret, String> {
    if text.is_empty() || text.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(Secret(text.to_owned()))
    } else {
        Err("a token is printable ASCII without spaces".into())
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    match digits.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("found `{text}`, wanted a whole number above 0")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let found = crate::duration::parse(text).filter(|duration| !duration.is_zero());
    found.ok_or_else(|| format!("found `{text}`, wanted a duration such as `90s` or `2m`"))
}

/// Reads `4096`, `64MiB`, `1.5 GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("found `{text}`, wanted bytes such as `268435456` or `256MiB`");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let digits = digits.trim();
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(wrong);
    }
    let number: f64 = digits.parse().map_err(|_source: std::num::ParseFloatError| wrong())?;
    if number.is_finite() && number >= 0.0 { Ok((number * unit as f64) as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[(&'static str, &str)], env: &[(&str, &str)], file: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let flags = flags.iter().map(|(k, v)| (*k, vec![(*v).to_owned()])).collect();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Config::resolve(Config::default(), &flags, &variable, Some(&path))
            .map_err(|e| e.to_string().replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn flag_beats_variable_beats_file_beats_default() {
        let file = "listen = '127.0.0.1:1'\nreserve_bytes = 5";
        let env = [("TRUEGAUGE_LISTEN", "127.0.0.1:2")];
        let port = |config: Config| config.listen.port();
        assert_eq!(resolve(&[("listen", "127.0.0.1:3")], &env, file).map(port), Ok(3));
        assert_eq!(resolve(&[], &env, file).map(port), Ok(2));
        assert_eq!(resolve(&[], &[], file).map(port), Ok(1));
        assert_eq!(resolve(&[], &[], "").map(port), Ok(9494));
        assert_eq!(resolve(&[], &env, file).map(|c| c.reserve_bytes), Ok(5));
        // Settings of an agent stay out of it.
        assert_eq!(resolve(&[], &[], "[agent]\nlisten = '127.0.0.1:9'\nnames = 'tg'").map(port), Ok(9494));
        let section = "[query]\ntime_max = '30s'\nconcurrency = 3";
        let query = resolve(&[], &[("TRUEGAUGE_QUERY_CONCURRENCY", "4")], section).unwrap().query;
        assert_eq!((query.time_max, query.concurrency), (Duration::from_secs(30), 4));
    }

    #[test]
    fn wrong_settings_say_what_was_found_and_what_is_wanted() {
        let check = |file: &str, want: &str| assert_eq!(resolve(&[], &[], file).unwrap_err(), want);
        check("lisen = 'x'", "`lisen` in `FILE` is not a setting: did you mean `listen`?");
        check(
            "[query]\ntime_mx = '1m'",
            "`query_time_mx` in `FILE` is not a setting: did you mean `query_time_max`?",
        );
        check(
            "query_time_max = '2 minutes'",
            "`query_time_max` in the configuration is not usable: found `2 minutes`, wanted a duration such as `90s` or `2m`",
        );
        check("wavelength = 'x'", "`wavelength` in `FILE` is not a setting");
        check(
            "listen = 'example.org:80'",
            "`listen` in the configuration is not usable: found `example.org:80`, wanted an IP address and a port such as `127.0.0.1:9494`",
        );
        check(
            "reserve_bytes = '1 MB'",
            "`reserve_bytes` in the configuration is not usable: found `1 MB`, wanted bytes such as `268435456` or `256MiB`",
        );
        check(
            "retention_raw = '3d'\n[retention]\nraw = '4d'",
            "`retention_raw` in `FILE` is not usable: it is written twice, by its whole name and in its section",
        );
        check(
            "token_file = '/dev/null'",
            "`token_file` in the configuration is not usable: `/dev/null` is empty, and a server without a token asks nobody who they are",
        );
        check(
            "token_file = '/dev/zero'",
            "`token_file` in the configuration is not usable: cannot read `/dev/zero`: it is over 4194304 bytes",
        );
        check(
            "[storage]\nwrite_url = 'http://x/write'",
            "`storage_write_url` in the configuration is not usable: nothing is sent there without `storage_kind = \"prometheus\"`; \"embedded\" leaves the cluster alone",
        );
        assert!(resolve(&[], &[], "[storage]\nkind = 'embedded'\nwrite_url = 'http://x/write'").is_ok());
        check("listen = ['a']", "`listen` in `FILE` is not usable: one plain value is wanted");
        assert!(
            resolve(&[], &[], "listen =").unwrap_err().starts_with("the configuration `FILE` is not TOML")
        );
    }

    #[test]
    fn defaults_in_the_table_are_the_defaults() {
        let default = Config::default();
        for field in FIELDS.iter().filter(|f| !f.default.is_empty() && !f.default.starts_with('$')) {
            let mut changed = default.clone();
            (field.set)(&mut changed, &[field.default.to_owned()]).unwrap();
            assert_eq!(format!("{changed:?}"), format!("{default:?}"), "{}", field.name);
        }
    }

    #[test]
    fn bytes_come_with_or_without_a_unit() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(bytes("64 MiB"), Ok(64 << 20));
        assert!(bytes("-1").is_err());
    }
}
