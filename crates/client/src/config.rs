//! Settings of a run: fields, defaults, and the environment variables that set them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use model::{AttributeValue, RunPath};

use crate::launch::{Launch, Lookup};
use crate::ownership::GpuEnvironment;
use crate::trust::Trust;
use crate::warning::Warning;

/// Where a client looks for a server when none is named.
pub const DEFAULT_URL: &str = "http://127.0.0.1:9494";
/// Points that memory holds.
pub const QUEUE_CAPACITY: usize = 65_536;
/// Bound of `close`.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a spool.
pub const SPOOL_BYTES_MAX: u64 = 8 << 30;
/// Time between two samples of the machine.
pub const SYSTEM_METRICS_INTERVAL: Duration = Duration::from_secs(30);
/// How long the node's reporter waits for slower ranks to claim their GPUs.
pub const CAPTURE_GRACE: Duration = Duration::from_secs(45);
/// Where temporary files are when no variable says.
const TEMPORARY_FOLDER: &str = "/tmp";
/// Shortest and longest time between two samples, seconds.
const INTERVAL_SECONDS: (f64, f64) = (1.0, 86_400.0);

/// What to do when the run is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResumeStrategy {
    /// Go on with it.
    #[default]
    Allow,
    /// Refuse to start, unless it belongs to the same job.
    Never,
}

/// Settings of a run. [`Config::default`] reads nothing, [`Config::from_env`] reads the environment.
#[derive(Clone)]
pub struct Config {
    /// The run's four names. An empty `run` is derived: from the job's token, else from the time, as
    /// `run-20261130-014502` (UTC).
    pub path: RunPath,
    /// Where to send; `None` tries [`DEFAULT_URL`] at the start and once a minute.
    pub url: Option<String>,
    /// Bearer token, if the server wants one.
    pub token: Option<String>,
    /// Which servers of `https://` are believed.
    pub trust: Trust,
    /// Folder of the spools; `None` is [`default_spool_dir`].
    pub spool_dir: Option<PathBuf>,
    /// Whether to sample the machine.
    pub capture_system_metrics: bool,
    /// The variable that says not to, if one does; where none does and it is off, the caller said so.
    pub capture_switched_off_by: Option<&'static str>,
    /// Time between two samples, at least a second.
    pub system_metrics_interval: Duration,
    /// Whether the series of this process itself are sampled; a program that only wraps a command has
    /// none worth a chart.
    pub samples_process: bool,
    /// Who wraps this process, as [`crate::command::WRAPPER_VARIABLE`] says; empty for nobody.
    pub wrapper: String,
    /// How long the node's reporter waits for slower ranks before it takes the GPUs that nobody
    /// reports. Shorter than [`CAPTURE_GRACE`] in tests only.
    pub capture_grace: Duration,
    /// Folder for temporary files, where locks are if there is no `/dev/shm`. It is found out with the other
    /// settings: a thread of ours must not read variables that the program may be changing.
    pub temporary_folder: PathBuf,
    /// The machine that this process is on, where that is not the one that it runs on.
    pub machine: Option<Machine>,
    /// The GPU driver's library; `None` looks where it usually is.
    pub gpu_library: Option<PathBuf>,
    /// What the environment says of GPUs.
    pub gpu_environment: GpuEnvironment,
    /// Tags of a new run.
    pub tags: Vec<String>,
    /// Description of a new run.
    pub description: Option<String>,
    /// Facts that become attributes under `config/`, where they are not there yet.
    pub config: Vec<(String, AttributeValue)>,
    /// Name of the experiment, the attribute `experiment`.
    pub experiment: Option<String>,
    /// What to do when the run is there already.
    pub resume: ResumeStrategy,
    /// The job's token; `None` takes the launcher's.
    pub job_token: Option<String>,
    /// Makes every call a no-op.
    pub disabled: bool,
    /// Never sends, only spools.
    pub offline: bool,
    /// Whether bad input should raise; the caller's business, kept here for it.
    pub strict: bool,
    /// Points that memory holds before the caller writes to the spool.
    pub queue_capacity: usize,
    /// Bound of [`crate::Run::finish`] and of a dropped run.
    pub close_timeout: Duration,
    /// Longest wait for the server at the start; at most a second is taken.
    pub init_timeout: Duration,
    /// Most bytes of the spool.
    pub spool_bytes_max: u64,
    /// This process's place in its job.
    pub launch: Launch,
    /// What was odd about the variables; said when the run starts.
    pub warnings: Vec<Warning>,
    /// Variables that are accepted and mean nothing here, one line each, for a debug log.
    pub debug: Vec<String>,
}

/// A machine that is made up, several of them on a real one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its host name.
    pub host: String,
    /// Folder of the locks by which the processes of a run agree who samples what. Processes with different
    /// ones do not know of each other.
    pub locks: PathBuf,
}

impl Config {
    /// The name of the host that this process is on.
    pub(crate) fn host(&self) -> String {
        self.machine.as_ref().map_or_else(collect::hostname, |machine| machine.host.clone())
    }
}

impl fmt::Debug for Config {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.path)
            .field("url", &self.url.as_deref().map(crate::transport::shown_url))
            .field("has_token", &self.token.is_some())
            .field("spool_dir", &self.spool_dir)
            .field("launch", &self.launch)
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: RunPath::default(),
            url: None,
            token: None,
            trust: Trust::default(),
            spool_dir: None,
            capture_system_metrics: true,
            capture_switched_off_by: None,
            system_metrics_interval: SYSTEM_METRICS_INTERVAL,
            samples_process: true,
            wrapper: String::new(),
            capture_grace: CAPTURE_GRACE,
            temporary_folder: PathBuf::from(TEMPORARY_FOLDER),
            machine: None,
            gpu_library: None,
            gpu_environment: GpuEnvironment::default(),
            tags: Vec::new(),
            description: None,
            config: Vec::new(),
            experiment: None,
            resume: ResumeStrategy::Allow,
            job_token: None,
            disabled: false,
            offline: false,
            strict: false,
            queue_capacity: QUEUE_CAPACITY,
            close_timeout: CLOSE_TIMEOUT,
            init_timeout: Duration::from_secs(1),
            spool_bytes_max: SPOOL_BYTES_MAX,
            launch: Launch::default(),
            warnings: Vec::new(),
            debug: Vec::new(),
        }
    }
}

/// Sets a field from a variable's text; the error says what was wanted.
type Apply = fn(&mut Config, &str) -> Result<(), &'static str>;

/// One environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The `METRANA_*` variable that is read where it is unset.
    pub fallback: Option<&'static str>,
    /// The default, as a person would write it.
    pub default: &'static str,
    /// What it means, one sentence.
    pub meaning: &'static str,
    /// `None` for a variable that is accepted and has no meaning here.
    apply: Option<Apply>,
}

impl Variable {
    /// Whether it changes anything here.
    pub fn has_effect(&self) -> bool {
        self.apply.is_some()
    }
}

/// A row that has an effect.
const fn row(
    name: &'static str,
    fallback: Option<&'static str>,
    default: &'static str,
    meaning: &'static str,
    apply: Apply,
) -> Variable {
    Variable { name, fallback, default, meaning, apply: Some(apply) }
}

/// A row for a variable that is accepted and means nothing here.
const fn unused(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, fallback: None, default: "", meaning, apply: None }
}

/// Every variable a run reads, beside those of launchers. Values are trimmed; an empty one is as
/// good as unset; one that can't be read leaves the default and is warned of.
pub const VARIABLES: &[Variable] = &[
    row("TRUEGAUGE_URL", Some("METRANA_INGESTION_URL"), DEFAULT_URL, "Where the run is sent.", |c, v| {
        c.url = Some(v.to_owned());
        Ok(())
    }),
    row(
        "TRUEGAUGE_TOKEN",
        Some("METRANA_API_KEY"),
        "",
        "Bearer token that goes with every request.",
        |c, v| {
            c.token = Some(v.to_owned());
            Ok(())
        },
    ),
    row(
        "TRUEGAUGE_CA_FILE",
        None,
        "",
        "PEM file of the authorities that an `https://` server is believed by, instead of the public ones.",
        |c, v| {
            c.trust.ca_file = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    row(
        "TRUEGAUGE_CERT_FILE",
        None,
        "",
        "PEM file of the client's certificate, for servers that know clients by theirs.",
        |c, v| {
            c.trust.cert_file = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    row("TRUEGAUGE_KEY_FILE", None, "", "PEM file of that certificate's private key.", |c, v| {
        c.trust.key_file = Some(PathBuf::from(v));
        Ok(())
    }),
    row(
        "TRUEGAUGE_SPOOL_DIR",
        Some("METRANA_DISK_SPOOL_DIR"),
        "$XDG_STATE_HOME/truegauge/spool, else ~/.local/state/truegauge/spool",
        "Folder that keeps what could not be sent yet.",
        |c, v| {
            c.spool_dir = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    row("TRUEGAUGE_DISABLED", None, "false", "Turns every call into a no-op.", |c, v| {
        set(&mut c.disabled, boolean(v))
    }),
    row(
        "TRUEGAUGE_CAPTURE_SYSTEM_METRICS",
        Some("METRANA_CAPTURE_SYSTEM_METRICS"),
        "true",
        "Whether the machine is sampled.",
        |c, v| set(&mut c.capture_system_metrics, boolean(v)),
    ),
    row(
        "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS",
        Some("METRANA_SYSTEM_METRICS_INTERVAL_SECS"),
        "30",
        "Seconds between two samples of the machine, 1 to 86400.",
        |c, v| set(&mut c.system_metrics_interval, seconds(v).and_then(sampling_interval)),
    ),
    row(
        "TRUEGAUGE_RESUME_STRATEGY",
        Some("METRANA_RESUME_STRATEGY"),
        "allow",
        "`allow` goes on with a run that is there; `never` refuses unless it is the same job's.",
        |c, v| {
            c.resume = match v.to_ascii_lowercase().as_str() {
                "allow" => ResumeStrategy::Allow,
                "never" => ResumeStrategy::Never,
                _ => return Err("`allow` or `never`"),
            };
            Ok(())
        },
    ),
    row(
        "TRUEGAUGE_INIT_MODE",
        Some("METRANA_INIT_MODE"),
        "online_only",
        "`offline` sends nothing and keeps all in the spool.",
        |c, v| {
            c.offline = match v.to_ascii_lowercase().as_str() {
                "offline" => true,
                "online" | "online_only" => false,
                _ => return Err("`online_only` or `offline`"),
            };
            Ok(())
        },
    ),
    row(
        "TRUEGAUGE_ORCHESTRATION_ID",
        Some("METRANA_ORCHESTRATION_ID"),
        "the launcher's job id",
        "Token of the job: processes that share it are one attempt.",
        |c, v| {
            c.job_token = Some(v.to_owned());
            Ok(())
        },
    ),
    row(
        "TRUEGAUGE_QUEUE_CAPACITY",
        Some("METRANA_EVENT_QUEUE_MAX_SIZE"),
        "65536",
        "Points that memory holds before the caller writes to the spool.",
        |c, v| {
            set(
                &mut c.queue_capacity,
                v.parse().ok().filter(|n| (1..=1 << 24).contains(n)).ok_or("1 to 16777216"),
            )
        },
    ),
    row("TRUEGAUGE_ORGANIZATION", None, "", "Organization of the run.", |c, v| {
        v.clone_into(&mut c.path.organization);
        Ok(())
    }),
    row("TRUEGAUGE_WORKSPACE", None, "", "Workspace of the run.", |c, v| {
        v.clone_into(&mut c.path.workspace);
        Ok(())
    }),
    row("TRUEGAUGE_PROJECT", None, "", "Project of the run.", |c, v| {
        v.clone_into(&mut c.path.project);
        Ok(())
    }),
    row("TRUEGAUGE_RUN", None, "the job's id, else the time", "Name of the run.", |c, v| {
        v.clone_into(&mut c.path.run);
        Ok(())
    }),
    row("TRUEGAUGE_STRICT", None, "false", "Whether bad input to `log` raises.", |c, v| {
        set(&mut c.strict, boolean(v))
    }),
    row(
        "TRUEGAUGE_CLOSE_TIMEOUT_SECS",
        None,
        "10",
        "Longest wait of `close` for the server, seconds.",
        |c, v| {
            let wanted =
                seconds(v).and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).map_err(|_out| "seconds"));
            set(&mut c.close_timeout, wanted)
        },
    ),
    row("TRUEGAUGE_SPOOL_BYTES_MAX", None, "8589934592", "Most bytes that a run's spool takes.", |c, v| {
        set(&mut c.spool_bytes_max, v.parse().map_err(|_not_a_number| "a whole number of bytes"))
    }),
    row(
        crate::command::WRAPPER_VARIABLE,
        None,
        "",
        "Set by `truegauge run` for its command, so that the command's process is not reported twice.",
        |c, v| {
            v.clone_into(&mut c.wrapper);
            Ok(())
        },
    ),
    unused("METRANA_QUERY_API_URL", "Has no meaning here: reads go where `TRUEGAUGE_URL` points."),
    unused("METRANA_ARTIFACT_API_URL", "Has no meaning here: there are no artifacts."),
];

impl Config {
    /// Reads the environment of this process.
    pub fn from_env() -> Self {
        let read = Self::from_variables(&|name| std::env::var(name).ok());
        // A list of devices that is no text shows none to CUDA: it must not pass for one that is not there.
        Self { gpu_environment: GpuEnvironment::detect(), ..read }
    }

    /// Reads the variables that `lookup` knows.
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        let mut config = Self {
            launch: Launch::from_variables(lookup),
            gpu_environment: GpuEnvironment::from_variables(lookup),
            temporary_folder: temporary_folder(lookup),
            ..Self::default()
        };
        let value_of = |name: &str| lookup(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        for variable in VARIABLES {
            let found = [Some(variable.name), variable.fallback]
                .into_iter()
                .flatten()
                .find_map(|name: &'static str| Some((name, value_of(name)?)));
            let Some((name, value)) = found else { continue };
            let captured = config.capture_system_metrics;
            let applied = variable.apply.map(|apply| apply(&mut config, &value));
            if captured && !config.capture_system_metrics {
                config.capture_switched_off_by = Some(name);
            }
            match applied {
                None => config.debug.push(format!("`{name}` is set: {}", variable.meaning)),
                Some(Ok(())) => {}
                Some(Err(wanted)) => config.warnings.push(Warning {
                    cause: "variable",
                    message: format!(
                        "`{name}` is {value:?}, {wanted} is wanted: the default, {}, is used",
                        variable.default
                    ),
                }),
            }
        }
        config
    }
}

/// The interval between two samples for a number of seconds: at least 1, at most 86,400; an error
/// for what is no number.
pub fn sampling_interval(seconds: f64) -> Result<Duration, &'static str> {
    if !seconds.is_finite() {
        return Err("a finite number of seconds");
    }
    Ok(Duration::from_secs_f64(seconds.clamp(INTERVAL_SECONDS.0, INTERVAL_SECONDS.1)))
}

/// `TMPDIR`, from wherever the process goes later.
fn temporary_folder(lookup: Lookup<'_>) -> PathBuf {
    let set = lookup("TMPDIR").filter(|set| !set.trim().is_empty());
    set.and_then(|set| std::path::absolute(set).ok()).unwrap_or_else(|| TEMPORARY_FOLDER.into())
}

/// Folder of the spools: `TRUEGAUGE_SPOOL_DIR`, `METRANA_DISK_SPOOL_DIR`, else `truegauge/spool` in
/// `$XDG_STATE_HOME`, else in `~/.local/state`, else in the folder for temporary files.
pub fn default_spool_dir() -> PathBuf {
    spool_dir(&|name| std::env::var(name).ok())
}

fn spool_dir(lookup: Lookup<'_>) -> PathBuf {
    let path = |name: &str| lookup(name).filter(|v| !v.trim().is_empty()).map(PathBuf::from);
    path("TRUEGAUGE_SPOOL_DIR").or_else(|| path("METRANA_DISK_SPOOL_DIR")).unwrap_or_else(|| {
        path("XDG_STATE_HOME")
            .filter(|p| p.is_absolute())
            .or_else(|| path("HOME").map(|home| home.join(".local/state")))
            .unwrap_or_else(std::env::temp_dir)
            .join("truegauge/spool")
    })
}

impl Config {
    /// By what the sampling of the machine is switched off, in code; empty where it is on.
    pub(crate) fn capture_off_switch(&self) -> String {
        match self.capture_switched_off_by {
            _ if self.capture_system_metrics => String::new(),
            Some(variable) => variable.to_owned(),
            None => "capture_system_metrics=False".to_owned(),
        }
    }
}

fn set<T>(field: &mut T, value: Result<T, &'static str>) -> Result<(), &'static str> {
    *field = value?;
    Ok(())
}

fn boolean(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("`true` or `false`"),
    }
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    text.parse()
        .map_err(|_not_a_number| "a number of seconds")
        .and_then(|value: f64| if value.is_finite() { Ok(value) } else { Err("a finite number of seconds") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        Config::from_variables(&|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn our_name_goes_before_the_other() {
        let both = config(&[("METRANA_API_KEY", "theirs"), ("TRUEGAUGE_TOKEN", "ours")]);
        assert_eq!(both.token.as_deref(), Some("ours"));
        assert_eq!(config(&[("METRANA_API_KEY", "theirs")]).token.as_deref(), Some("theirs"));
        assert_eq!(
            config(&[("METRANA_API_KEY", "theirs"), ("TRUEGAUGE_TOKEN", " ")]).token.as_deref(),
            Some("theirs")
        );
    }

    #[test]
    fn folder_for_temporary_files_is_always_one_that_can_be_found_again() {
        let here = std::env::current_dir().unwrap();
        for (variables, wanted) in [
            (&[][..], PathBuf::from("/tmp")),
            (&[("TMPDIR", "")], "/tmp".into()),
            (&[("TMPDIR", "/var/tmp")], "/var/tmp".into()),
            (&[("TMPDIR", "scratch")], here.join("scratch")),
        ] {
            assert_eq!(config(variables).temporary_folder, wanted, "{variables:?}");
        }
    }

    #[test]
    fn capture_switch_takes_words_and_warns_of_others() {
        let check = |value: &str, want: bool, warns: bool| {
            let got = config(&[("METRANA_CAPTURE_SYSTEM_METRICS", value)]);
            assert_eq!(
                (got.capture_system_metrics, got.warnings.len()),
                (want, usize::from(warns)),
                "{value}"
            );
        };
        for value in ["false", "0", "off", "No"] {
            check(value, false, false);
            let got = config(&[("METRANA_CAPTURE_SYSTEM_METRICS", value)]);
            assert_eq!(got.capture_off_switch(), "METRANA_CAPTURE_SYSTEM_METRICS");
        }
        let by_hand = Config { capture_system_metrics: false, ..config(&[]) };
        assert_eq!(by_hand.capture_off_switch(), "capture_system_metrics=False");
        assert_eq!(config(&[]).capture_off_switch(), "");
        for value in ["", " ", "1", "TRUE", "yes", "on"] {
            check(value, true, false);
        }
        for value in ["y", "2", "enabled"] {
            check(value, true, true);
        }
    }

    #[test]
    fn interval_is_bounded_and_finite() {
        let check = |value: &str, want: f64, warns: bool| {
            let got = config(&[("METRANA_SYSTEM_METRICS_INTERVAL_SECS", value)]);
            assert_eq!(
                (got.system_metrics_interval.as_secs_f64(), got.warnings.len()),
                (want, usize::from(warns)),
                "{value}"
            );
        };
        check("0.2", 1.0, false);
        check("-3", 1.0, false);
        check("1e2", 100.0, false);
        check("1e300", 86_400.0, false);
        check("", 30.0, false);
        for value in ["nan", "inf", "-inf", "30s", "abc"] {
            check(value, 30.0, true);
        }
    }

    #[test]
    fn variables_without_a_meaning_are_accepted_with_a_line() {
        let got = config(&[("METRANA_QUERY_API_URL", "https://x"), ("METRANA_INIT_MODE", "offline")]);
        assert_eq!((got.debug.len(), got.warnings.len(), got.offline), (1, 0, true));
    }

    #[test]
    fn spools_have_a_home() {
        let dir = |variables: &[(&str, &str)]| {
            spool_dir(&|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(dir(&[("TRUEGAUGE_SPOOL_DIR", "/a"), ("HOME", "/h")]), PathBuf::from("/a"));
        assert_eq!(dir(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), PathBuf::from("/x/truegauge/spool"));
        assert_eq!(dir(&[("HOME", "/h")]), PathBuf::from("/h/.local/state/truegauge/spool"));
    }
}
