//! Commands: as a policy writes them, with `{names}` to be filled in, and as they are run.
//!
//! A name of a machine or a run comes from elsewhere. It is put into a command only when it is plain, which
//! no option and no trick of a shell is; there is no shell either.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::State;

/// Longest value that is put into a command, bytes.
const VALUE_BYTES_MAX: usize = 253;

/// A name that a template may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Named {
    /// The machine.
    Host,
    /// The card's index.
    Gpu,
    /// The card's id.
    Uuid,
    /// The pool.
    Pool,
    /// The run's id.
    RunId,
    /// The run's name.
    Run,
    /// What the action is known by, such as `tg-12`.
    Id,
    /// A machine that can take over.
    Spare,
    /// The step of the last verified checkpoint.
    Step,
}

impl Named {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Host,
        Self::Gpu,
        Self::Uuid,
        Self::Pool,
        Self::RunId,
        Self::Run,
        Self::Id,
        Self::Spare,
        Self::Step,
    ];

    /// As templates write it, without braces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gpu => "gpu",
            Self::Uuid => "uuid",
            Self::Pool => "pool",
            Self::RunId => "run_id",
            Self::Run => "run",
            Self::Id => "id",
            Self::Spare => "spare",
            Self::Step => "step",
        }
    }
}

/// What a scheduler is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// No new work.
    Cordon,
    /// Work is moved away.
    Drain,
    /// Work again.
    Return,
}

/// How a job is told something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// JSON is posted to this address.
    Url(String),
    /// JSON is written to this file; its path may hold names.
    File(String),
    /// A process on this machine gets a signal.
    Signal {
        /// Its name, without `SIG`.
        name: String,
        /// The file that holds the process' number; its path may hold names.
        pid_file: String,
    },
}

/// What a command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A program of the policy's list.
    Exec {
        /// Its name in the list.
        program: String,
        /// Its arguments, which may hold names.
        args: Vec<String>,
    },
    /// `kubectl`, with further flags.
    Kubectl {
        /// What it is told.
        word: Word,
        /// Flags.
        args: Vec<String>,
    },
    /// `scontrol update`.
    Scontrol {
        /// What it is told.
        word: Word,
    },
    /// JSON is posted to this address.
    Webhook {
        /// The address.
        url: String,
    },
    /// A hook of the policy's list, once for each run that has the card.
    Hook {
        /// Its name in the list.
        name: String,
    },
    /// Nothing runs: it is waited until the machine's engines have no request under way.
    WaitIdle,
}

/// A command of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What it is.
    pub kind: Kind,
    /// Longest time, nanoseconds.
    pub limit_ns: i64,
    /// Running it twice is the same as running it once.
    pub is_idempotent: bool,
    /// What comes after it runs even when it fails.
    pub may_fail: bool,
    /// The state that it brings about.
    pub does: Option<State>,
}

/// A command with all names filled in: exactly this is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `exec`, `kubectl`, `scontrol`, `webhook`, `hook`, `wait_idle` or `validate`.
    pub kind: String,
    /// As people read it.
    pub text: String,
    /// Program and arguments; empty where none is started.
    pub argv: Vec<String>,
    /// What is told instead of a program being started.
    pub hook: Option<Hook>,
    /// The run that a hook is for.
    pub run_id: Option<String>,
    /// Longest time, nanoseconds.
    pub limit_ns: i64,
    /// Running it twice is the same as running it once.
    pub is_idempotent: bool,
    /// What comes after it runs even when it fails.
    pub may_fail: bool,
    /// The state that it brings about.
    pub does: Option<State>,
}

impl Step {
    /// The pause in which it is checked whether all is well.
    pub fn validate(limit_ns: i64) -> Self {
        Self {
            kind: "validate".to_owned(),
            text: "validate".to_owned(),
            argv: Vec::new(),
            hook: None,
            run_id: None,
            limit_ns,
            is_idempotent: true,
            may_fail: false,
            does: Some(State::Validating),
        }
    }

    /// Whether requests under way are waited for.
    pub fn is_wait(&self) -> bool {
        self.kind == "wait_idle"
    }

    /// Whether it is that pause.
    pub fn is_validation(&self) -> bool {
        self.kind == "validate"
    }
}

/// Whether a value from elsewhere may stand in a command: letters, digits and `._:-`, and a letter or digit
/// in front, so that it is no option and no path.
pub fn is_plain(value: &str) -> bool {
    value.len() <= VALUE_BYTES_MAX
        && value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'))
}

/// The names of a template, in order; a brace that is no name is a finding.
pub(super) fn names_in(template: &str) -> Result<Vec<Named>, String> {
    let mut names = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let inner = rest[at..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((name, after)) = inner else {
            return Err(format!("`{template}` has a brace that is no name"));
        };
        let Some(named) = Named::ALL.into_iter().find(|known| known.name() == name) else {
            let near = model::nearest(name, Named::ALL.map(Named::name));
            let near = near.map(|near| format!(": did you mean `{{{near}}}`?")).unwrap_or_default();
            return Err(format!("`{{{name}}}` is no name that can be filled in{near}"));
        };
        names.push(named);
        rest = after;
    }
    Ok(names)
}

/// What names stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct Values(pub(super) BTreeMap<Named, String>);

impl Values {
    pub(super) fn set(&mut self, name: Named, value: impl Into<String>) {
        self.0.insert(name, value.into());
    }

    /// A template with its names filled in; why that can't be.
    fn fill(&self, template: &str) -> Result<String, String> {
        let mut filled = template.to_owned();
        for name in names_in(template)? {
            let value = self.0.get(&name).map_or("", String::as_str);
            if value.is_empty() {
                return Err(format!("`{{{}}}` is not known here", name.name()));
            }
            if !is_plain(value) {
                let shown: String = value.chars().flat_map(char::escape_default).take(80).collect();
                return Err(format!(
                    "`{{{}}}` is \"{shown}\", which may not stand in a command: letters, digits and `._:-` only, and no `-` in front",
                    name.name()
                ));
            }
            filled = filled.replacen(&format!("{{{}}}", name.name()), value, 1);
        }
        Ok(filled)
    }
}

/// Programs and hooks that commands name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tools<'p> {
    pub(super) programs: &'p BTreeMap<String, String>,
    pub(super) hooks: &'p BTreeMap<String, Hook>,
}

impl Tools<'_> {
    /// The path of a program, or its bare name where the policy leaves it to `PATH`.
    fn program(&self, name: &str) -> String {
        self.programs.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// A command with its names filled in.
    pub(super) fn step(&self, command: &Command, values: &Values) -> Result<Step, String> {
        let host = || values.fill("{host}");
        let mut hook = None;
        let mut run_id = None;
        let (kind, argv, text) = match &command.kind {
            Kind::Exec { program, args } => {
                let args = args.iter().map(|arg| values.fill(arg)).collect::<Result<Vec<_>, _>>()?;
                let text = format!("exec {program} {}", args.join(" "));
                let argv = std::iter::once(self.program(program)).chain(args).collect();
                ("exec", argv, text)
            }
            Kind::Kubectl { word, args } => {
                let verb = match word {
                    Word::Cordon => "cordon",
                    Word::Drain => "drain",
                    Word::Return => "uncordon",
                };
                let mut argv = vec![verb.to_owned(), host()?];
                argv.extend(args.iter().cloned());
                let text = format!("kubectl {}", argv.join(" "));
                argv.insert(0, self.program("kubectl"));
                ("kubectl", argv, text)
            }
            Kind::Scontrol { word } => {
                let mut argv = vec!["update".to_owned(), format!("nodename={}", host()?)];
                if *word == Word::Return {
                    argv.push("state=resume".to_owned());
                } else {
                    argv.push("state=drain".to_owned());
                    argv.push(values.fill("reason={id}")?);
                }
                let text = format!("scontrol {}", argv.join(" "));
                argv.insert(0, self.program("scontrol"));
                ("scontrol", argv, text)
            }
            Kind::Webhook { url } => {
                hook = Some(Hook::Url(url.clone()));
                ("webhook", Vec::new(), format!("webhook {url}"))
            }
            Kind::Hook { name } => {
                let run = values.fill("{run_id}")?;
                let text = match values.fill("run={run}") {
                    Ok(text) => format!("hook {name} {text}"),
                    Err(_not_plain) => format!("hook {name} run={run}"),
                };
                hook = Some(self.hook(name, values)?);
                run_id = Some(run);
                ("hook", Vec::new(), text)
            }
            Kind::WaitIdle => ("wait_idle", Vec::new(), format!("wait until {} is idle", host()?)),
        };
        let Command { limit_ns, is_idempotent, may_fail, does, .. } = *command;
        let text = text.trim_end().to_owned();
        Ok(Step { kind: kind.to_owned(), text, argv, hook, run_id, limit_ns, is_idempotent, may_fail, does })
    }

    fn hook(&self, name: &str, values: &Values) -> Result<Hook, String> {
        match self.hooks.get(name) {
            Some(Hook::Url(url)) => Ok(Hook::Url(url.clone())),
            Some(Hook::File(path)) => Ok(Hook::File(values.fill(path)?)),
            Some(Hook::Signal { name, pid_file }) => {
                Ok(Hook::Signal { name: name.clone(), pid_file: values.fill(pid_file)? })
            }
            None => Err(format!("the policy has no hook `{name}`")),
        }
    }
}
