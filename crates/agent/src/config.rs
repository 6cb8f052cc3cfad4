//! Settings of an agent. Each is one row of [`FIELDS`]: flag, variable, key under `[agent]` in the TOML file,
//! default and help come from there. Flag before variable before file before default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Text that no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
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

/// Whose names `/metrics` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Our own.
    #[default]
    Tg,
    /// Those of dcgm-exporter, for dashboards that exist.
    Dcgm,
}

/// Settings of an agent, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where looks are sent; nowhere when empty.
    pub server: String,
    /// Bearer token that goes along.
    pub token: Secret,
    /// Authorities that an `https://` server is believed by, instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// Where `/metrics` is.
    pub listen: SocketAddr,
    /// Bearer token that `/metrics` asks for; none when empty.
    pub metrics_token: Secret,
    /// Lets a non-loopback address go without a token.
    pub insecure_no_auth: bool,
    /// Whose names `/metrics` shows.
    pub names: Names,
    /// Time between two looks.
    pub interval: Duration,
    /// Name of the node.
    pub host: String,
    /// What is kept between two starts: positions, the spool.
    pub state_dir: PathBuf,
    /// Most bytes of the spool.
    pub spool_bytes_max: u64,
    /// The kernel's log: a file, `journald`, `none`; where the kernel has it when empty.
    pub kmsg: String,
    /// Where the machine's `/proc`, `/sys` and file systems are seen.
    pub root: PathBuf,
    /// The driver's library; where it usually is without.
    pub gpu_library: Option<PathBuf>,
    /// The kubelet's socket that tells which pod has which device; under `root` where it usually is without.
    pub kubelet_socket: Option<PathBuf>,
    /// `auto`, `text` or `json`; the program that starts the agent applies it.
    pub log_format: String,
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
    /// A duration: `10s`, `500ms`, `1m`.
    Duration,
    /// Bytes, with `KiB`, `MiB` or `GiB` behind the number if wanted.
    Bytes,
}

/// One setting.
#[derive(Clone, Copy)]
pub struct Field {
    /// Key under `[agent]` in the file.
    pub name: &'static str,
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// How it is written.
    pub shape: Shape,
    /// Default, as the help shows it.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Values by setting's name, as one source gives them.
pub type Given = BTreeMap<&'static str, String>;

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the configuration `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration `{}` is not TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        reason: String,
    },
    /// A key that no setting has.
    #[error("`{key}` under `[agent]` in `{}` is not a setting{}", path.display(), .nearest.map(|n| format!(": did you mean `{n}`?")).unwrap_or_default())]
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
        "`truegauge agent --help` lists every setting with its default; docs/guides/agent.md explains them"
    }
}

/// Every setting, in the order in which the help shows them.
pub const FIELDS: &[Field] = &[
    Field {
        name: "server",
        flag: "server",
        variable: "TRUEGAUGE_URL",
        shape: Shape::Text,
        default: "",
        help: "Server that the node is reported to, such as `http://host:9494`; without it there is `/metrics` only",
        set: |c, v| {
            v.trim().clone_into(&mut c.server);
            Ok(())
        },
    },
    Field {
        name: "token",
        flag: "token",
        variable: "TRUEGAUGE_TOKEN",
        shape: Shape::Text,
        default: "",
        help: "Bearer token for that server, of scope `agent`",
        set: |c, v| {
            c.token = token(v)?;
            Ok(())
        },
    },
    Field {
        name: "token_file",
        flag: "token-file",
        variable: "TRUEGAUGE_TOKEN_FILE",
        shape: Shape::Path,
        default: "",
        help: "File that holds that token; beats `token`",
        set: |c, v| {
            c.token = token_in(v)?;
            Ok(())
        },
    },
    Field {
        name: "ca_file",
        flag: "ca-file",
        variable: "TRUEGAUGE_CA_FILE",
        shape: Shape::Path,
        default: "",
        help: "PEM file of the authorities that an `https://` server is believed by, instead of the public ones",
        set: |c, v| {
            c.ca_file = Some(PathBuf::from(v));
            Ok(())
        },
    },
    Field {
        name: "listen",
        flag: "listen",
        variable: "TRUEGAUGE_AGENT_LISTEN",
        shape: Shape::Address,
        default: "127.0.0.1:9495",
        help: "Address of `/metrics`",
        set: |c, v| {
            c.listen = v.parse().map_err(|_source| {
                format!("found `{v}`, wanted an IP address and a port such as `127.0.0.1:9495`")
            })?;
            Ok(())
        },
    },
    Field {
        name: "metrics_token",
        flag: "metrics-token",
        variable: "TRUEGAUGE_AGENT_METRICS_TOKEN",
        shape: Shape::Text,
        default: "",
        help: "Bearer token that `/metrics` asks for; wanted where the address is not loopback",
        set: |c, v| {
            c.metrics_token = token(v)?;
            Ok(())
        },
    },
    Field {
        name: "metrics_token_file",
        flag: "metrics-token-file",
        variable: "TRUEGAUGE_AGENT_METRICS_TOKEN_FILE",
        shape: Shape::Path,
        default: "",
        help: "File that holds that token; beats `metrics_token`",
        set: |c, v| {
            c.metrics_token = token_in(v)?;
            Ok(())
        },
    },
    Field {
        name: "insecure_no_auth",
        flag: "insecure-no-auth",
        variable: "TRUEGAUGE_AGENT_INSECURE_NO_AUTH",
        shape: Shape::Switch,
        default: "false",
        help: "Serve `/metrics` on a non-loopback address without a token: anyone who reaches it reads it",
        set: |c, v| {
            c.insecure_no_auth = switch(v)?;
            Ok(())
        },
    },
    Field {
        name: "names",
        flag: "names",
        variable: "TRUEGAUGE_AGENT_NAMES",
        shape: Shape::Text,
        default: "tg",
        help: "Names on `/metrics`: `tg`, or `dcgm` for those of dcgm-exporter, so that its dashboards work",
        set: |c, v| {
            c.names = match v {
                "tg" => Names::Tg,
                "dcgm" => Names::Dcgm,
                _ => return Err(format!("found `{v}`, wanted `tg` or `dcgm`")),
            };
            Ok(())
        },
    },
    Field {
        name: "interval",
        flag: "interval",
        variable: "TRUEGAUGE_AGENT_INTERVAL",
        shape: Shape::Duration,
        default: "10s",
        help: "Time between two looks at the node, 100ms to 1h",
        set: |c, v| {
            let interval = duration(v)?;
            if !(Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval) {
                return Err(format!("found `{v}`, wanted 100ms to 1h"));
            }
            c.interval = interval;
            Ok(())
        },
    },
    Field {
        name: "host",
        flag: "host",
        variable: "TRUEGAUGE_AGENT_HOST",
        shape: Shape::Text,
        default: "",
        help: "Name of the node, the label `host`; without it the machine's own",
        set: |c, v| {
            let host = v.trim();
            if host.is_empty() || host.len() > 256 || host.chars().any(char::is_control) {
                return Err("a name of 1 to 256 bytes without control characters is wanted".into());
            }
            host.clone_into(&mut c.host);
            Ok(())
        },
    },
    Field {
        name: "state_dir",
        flag: "state-dir",
        variable: "TRUEGAUGE_AGENT_STATE_DIR",
        shape: Shape::Path,
        default: "$STATE_DIRECTORY, else $XDG_STATE_HOME/truegauge/agent, else ~/.local/state/truegauge/agent",
        help: "Directory of what is kept between two starts: how far logs were read, and what waits for the server",
        set: |c, v| {
            c.state_dir = PathBuf::from(v);
            Ok(())
        },
    },
    Field {
        name: "spool_bytes_max",
        flag: "spool-bytes-max",
        variable: "TRUEGAUGE_AGENT_SPOOL_BYTES_MAX",
        shape: Shape::Bytes,
        default: "1GiB",
        help: "Most bytes that wait for the server on disk; what comes beyond is lost and counted",
        set: |c, v| {
            c.spool_bytes_max = bytes(v)?;
            Ok(())
        },
    },
    Field {
        name: "kmsg",
        flag: "kmsg",
        variable: "TRUEGAUGE_AGENT_KMSG",
        shape: Shape::Text,
        default: "/dev/kmsg",
        help: "The kernel's log: a file, `journald`, or `none`",
        set: |c, v| {
            v.clone_into(&mut c.kmsg);
            Ok(())
        },
    },
    Field {
        name: "root",
        flag: "root",
        variable: "TRUEGAUGE_AGENT_ROOT",
        shape: Shape::Path,
        default: "/",
        help: "Where the machine's root is seen, such as `/host` in a container",
        set: |c, v| {
            c.root = PathBuf::from(v);
            Ok(())
        },
    },
    Field {
        name: "gpu_library",
        flag: "gpu-library",
        variable: "TRUEGAUGE_AGENT_GPU_LIBRARY",
        shape: Shape::Path,
        default: "",
        help: "NVIDIA's driver library, where it lies in no usual place",
        set: |c, v| {
            c.gpu_library = Some(PathBuf::from(v));
            Ok(())
        },
    },
    Field {
        name: "kubelet_socket",
        flag: "kubelet-socket",
        variable: "TRUEGAUGE_AGENT_KUBELET_SOCKET",
        shape: Shape::Path,
        default: "",
        help: "The kubelet's socket that tells which pod has which card; without it the usual place under `root`",
        set: |c, v| {
            c.kubelet_socket = Some(PathBuf::from(v));
            Ok(())
        },
    },
    Field {
        name: "log_format",
        flag: "log-format",
        variable: "TRUEGAUGE_LOG_FORMAT",
        shape: Shape::Text,
        default: "auto",
        help: "`text`, `json`, or `auto`: text on a terminal and JSON otherwise",
        set: |c, v| {
            if !["auto", "text", "json"].contains(&v) {
                return Err(format!("found `{v}`, wanted `auto`, `text` or `json`"));
            }
            v.clone_into(&mut c.log_format);
            Ok(())
        },
    },
];

impl Config {
    /// The defaults, by what the environment says of places.
    pub fn new(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            server: String::new(),
            token: Secret::default(),
            ca_file: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 9495)),
            metrics_token: Secret::default(),
            insecure_no_auth: false,
            names: Names::Tg,
            interval: Duration::from_secs(10),
            host: collect::hostname(),
            state_dir: state_dir(variable),
            spool_bytes_max: 1 << 30,
            kmsg: "/dev/kmsg".to_owned(),
            root: PathBuf::from("/"),
            gpu_library: None,
            kubelet_socket: None,
            log_format: "auto".to_owned(),
        }
    }

    /// Puts the sources together.
    pub fn resolve(
        flags: &Given,
        variable: &dyn Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let in_file = file.map(read_file).transpose()?.unwrap_or_default();
        let mut config = Self::new(variable);
        for field in FIELDS {
            let from_variable = || variable(field.variable).filter(|value| !value.is_empty());
            let (origin, value) = if let Some(value) = flags.get(field.name) {
                (format!("`--{}`", field.flag), value.clone())
            } else if let Some(value) = from_variable() {
                (format!("`{}`", field.variable), value)
            } else if let Some(value) = in_file.get(field.name) {
                (format!("`{}` under `[agent]`", field.name), value.clone())
            } else {
                continue;
            };
            (field.set)(&mut config, &value).map_err(|reason| ConfigError::Value { origin, reason })?;
        }
        Ok(config)
    }
}

fn state_dir(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd names several directories with colons between them; the unit has one.
    path("STATE_DIRECTORY")
        .or_else(|| path("XDG_STATE_HOME").map(|dir| dir.join("truegauge/agent")))
        .or_else(|| path("HOME").map(|dir| dir.join(".local/state/truegauge/agent")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/truegauge-agent"))
}

fn read_file(path: &Path) -> Result<Given, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let mut table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| ConfigError::Syntax { path: path.to_owned(), reason: e.to_string() })?;
    let Some(toml::Value::Table(agent)) = table.remove("agent") else { return Ok(Given::new()) };
    let mut given = Given::new();
    for (key, value) in agent {
        let Some(field) = FIELDS.iter().find(|field| field.name == key) else {
            let nearest = model::nearest(&key, FIELDS.iter().map(|field| field.name));
            return Err(ConfigError::UnknownKey { path: path.to_owned(), key, nearest });
        };
        let value = match value {
            toml::Value::Array(_) | toml::Value::Table(_) => {
                let origin = format!("`{key}` under `[agent]` in `{}`", path.display());
                return Err(ConfigError::Value { origin, reason: "one plain value is wanted".into() });
            }
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        given.insert(field.name, value);
    }
    Ok(given)
}

fn token(text: &str) -> Result<Secret, String> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(Secret(text.to_owned()))
    } else {
        Err("a token is printable ASCII without spaces".into())
    }
}

fn token_in(path: &str) -> Result<Secret, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    if text.trim().is_empty() {
        return Err(format!("`{path}` is empty, a token is wanted"));
    }
    token(text.trim())
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("found `{text}`, wanted `true` or `false`")),
    }
}

fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..at].parse().ok()?;
    Some((number, text[at..].trim()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("found `{text}`, wanted a duration such as `10s`, `500ms` or `1m`");
    let (number, unit) = split(text.trim()).ok_or_else(wrong)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_source| wrong())
}

fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("found `{text}`, wanted bytes such as `1073741824` or `1GiB`");
    let (number, unit) = split(text.trim()).ok_or_else(wrong)?;
    let power = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number * f64::from(2u32).powi(power);
    if bytes >= 1.0 { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[(&'static str, &str)], env: &[(&str, &str)], file: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Config::resolve(&flags, &variable, Some(&path))
            .map_err(|e| e.to_string().replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn flag_beats_variable_beats_file_beats_default() {
        let file = "listen = '127.0.0.1:9'\n[agent]\nlisten = '127.0.0.1:1'\nnames = 'dcgm'";
        let env = [("TRUEGAUGE_AGENT_LISTEN", "127.0.0.1:2")];
        let port = |config: Config| config.listen.port();
        assert_eq!(resolve(&[("listen", "127.0.0.1:3")], &env, file).map(port), Ok(3));
        assert_eq!(resolve(&[], &env, file).map(port), Ok(2));
        assert_eq!(resolve(&[], &[], file).map(port), Ok(1));
        assert_eq!(resolve(&[], &[], "listen = '127.0.0.1:9'").map(port), Ok(9495));
        assert_eq!(resolve(&[], &[], file).unwrap().names, Names::Dcgm);
        let state = |env: &[(&str, &str)]| resolve(&[], env, "").unwrap().state_dir;
        assert_eq!(state(&[("STATE_DIRECTORY", "/var/lib/a"), ("HOME", "/h")]), PathBuf::from("/var/lib/a"));
        assert_eq!(state(&[("HOME", "/h")]), PathBuf::from("/h/.local/state/truegauge/agent"));
    }

    #[test]
    fn wrong_settings_say_what_was_found_and_what_is_wanted() {
        let check = |file: &str, want: &str| {
            assert_eq!(resolve(&[], &[], &format!("[agent]\n{file}")).unwrap_err(), want);
        };
        check("lisen = 'x'", "`lisen` under `[agent]` in `FILE` is not a setting: did you mean `listen`?");
        check("wavy = 'x'", "`wavy` under `[agent]` in `FILE` is not a setting");
        check(
            "interval = '1s 2'",
            "`interval` under `[agent]` is not usable: found `1s 2`, wanted a duration such as `10s`, `500ms` or `1m`",
        );
        check(
            "interval = '1ms'",
            "`interval` under `[agent]` is not usable: found `1ms`, wanted 100ms to 1h",
        );
        check("names = 'x'", "`names` under `[agent]` is not usable: found `x`, wanted `tg` or `dcgm`");
        check(
            "spool_bytes_max = '0'",
            "`spool_bytes_max` under `[agent]` is not usable: found `0`, wanted bytes such as `1073741824` or `1GiB`",
        );
        check(
            "token_file = '/dev/null'",
            "`token_file` under `[agent]` is not usable: `/dev/null` is empty, a token is wanted",
        );
        check(
            "listen = ['a']",
            "`listen` under `[agent]` in `FILE` is not usable: one plain value is wanted",
        );
        assert_eq!(resolve(&[("spool_bytes_max", "2 MiB")], &[], "").unwrap().spool_bytes_max, 2 << 20);
    }

    #[test]
    fn defaults_in_the_table_are_the_defaults() {
        let config = Config::new(&|_| None);
        for field in
            FIELDS.iter().filter(|field| !field.default.is_empty() && !field.default.starts_with('$'))
        {
            let mut set = config.clone();
            (field.set)(&mut set, field.default).unwrap();
            assert_eq!(format!("{set:?}"), format!("{config:?}"), "{}", field.name);
        }
    }
}
