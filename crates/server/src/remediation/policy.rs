//! Reads a policy: TOML, every key known, nothing that contradicts itself.

use std::collections::BTreeMap;
use std::path::Path;

use insight::remediation::{
    ActionRule, Command, Guards, Hook, Kind, Mode, Policy, Pool, Quiet, State, Sure, Trigger, Validation,
    Word,
};
use model::nearest;
use toml::{Table, Value};

use crate::files::{self, SMALL_BYTES_MAX};

/// Longest time of a command that says nothing itself, nanoseconds.
const LIMIT_NS: i64 = 60_000_000_000;
/// Longest text of a name.
const NAME_CHARS_MAX: usize = 64;
/// Signals that a hook may send.
const SIGNALS: [&str; 6] = ["HUP", "INT", "TERM", "USR1", "USR2", "CONT"];

/// Why a policy can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file can't be read.
    #[error("cannot read the policy `{path}`: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is wrong with it, all of it.
    #[error("the policy `{path}` can't be used: {}", .findings.join("; "))]
    Wrong {
        /// The file.
        path: String,
        /// One sentence each.
        findings: Vec<String>,
    },
    /// There is a mode and no policy.
    #[error("`[remediation] mode` is `real` and there is no policy")]
    Missing,
}

impl PolicyError {
    /// Everything that is wrong, one sentence each.
    pub fn findings(&self) -> Vec<String> {
        match self {
            Self::Wrong { findings, .. } => findings.clone(),
            other => vec![other.to_string()],
        }
    }
}

/// The policy in a file.
pub(crate) fn read(path: &Path) -> Result<Policy, PolicyError> {
    let name = path.display().to_string();
    let text = files::text(path, SMALL_BYTES_MAX)
        .map_err(|source| PolicyError::Unreadable { path: name.clone(), source })?;
    parse(&text).map_err(|findings| PolicyError::Wrong { path: name, findings })
}

/// The policy in a text, or all that is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Policy, Vec<String>> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| vec![format!("it is not TOML: {error}")])?;
    let mut findings = Vec::new();
    let policy = Part { at: "the policy".to_owned(), table: &table }.policy(&mut findings);
    if findings.is_empty() {
        findings.extend(policy.contradictions().into_iter().map(|contradiction| contradiction.0));
    }
    if findings.is_empty() { Ok(policy) } else { Err(findings) }
}

type Findings = Vec<String>;

/// A table of a policy and where it stands.
struct Part<'t> {
    at: String,
    table: &'t Table,
}

impl<'t> Part<'t> {
    fn known(&self, keys: &[&str], findings: &mut Findings) {
        for key in self.table.keys().filter(|key| !keys.contains(&key.as_str())) {
            let near = nearest(key, keys.iter().copied());
            let near = near.map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
            findings.push(format!("`{key}` of {} is not known{near}", self.at));
        }
    }

    fn wrong(&self, key: &str, wanted: &str, findings: &mut Findings) {
        let found = self.table.get(key).map_or("nothing".to_owned(), |value| format!("`{value}`"));
        findings.push(format!("`{key}` of {} is {found}, wanted {wanted}", self.at));
    }

    fn text(&self, key: &str, findings: &mut Findings) -> Option<String> {
        let text = self.table.get(key)?.as_str();
        if text.is_none() {
            self.wrong(key, "a text", findings);
        }
        text.map(str::to_owned)
    }

    fn texts(&self, key: &str, findings: &mut Findings) -> Vec<String> {
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let all = value.as_array().map(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
        let all: Option<Option<Vec<String>>> = all;
        all.flatten().unwrap_or_else(|| {
            self.wrong(key, "a list of texts", findings);
            Vec::new()
        })
    }

    fn flag(&self, key: &str, findings: &mut Findings) -> Option<bool> {
        let value = self.table.get(key)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.wrong(key, "`true` or `false`", findings);
        }
        flag
    }

    fn duration(&self, key: &str, findings: &mut Findings) -> Option<i64> {
        let text = self.table.get(key)?.as_str().and_then(crate::duration::parse);
        let ns = text.and_then(|duration| i64::try_from(duration.as_nanos()).ok());
        if ns.is_none() {
            self.wrong(key, "a duration such as `90s` or `2h`", findings);
        }
        ns
    }

    /// A duration that is not 0.
    fn span(&self, key: &str, findings: &mut Findings) -> Option<i64> {
        let ns = self.duration(key, findings);
        if ns == Some(0) {
            self.wrong(key, "a duration above 0", findings);
        }
        ns
    }

    /// A share between 0 and 1.
    fn ratio(&self, key: &str, findings: &mut Findings) -> Option<f64> {
        let value = self.table.get(key)?;
        let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        let number = number.filter(|number| (0.0..=1.0).contains(number));
        if number.is_none() {
            self.wrong(key, "a number from 0 to 1", findings);
        }
        number
    }

    fn count(&self, key: &str, findings: &mut Findings) -> Option<usize> {
        let count = self.table.get(key)?.as_integer().and_then(|count| usize::try_from(count).ok());
        if count.is_none() {
            self.wrong(key, "a whole number", findings);
        }
        count
    }

    fn one_of<T: Copy>(
        &self,
        key: &str,
        all: &[T],
        name: fn(T) -> &'static str,
        findings: &mut Findings,
    ) -> Option<T> {
        let text = self.text(key, findings)?;
        let found = all.iter().copied().find(|one| name(*one) == text);
        if found.is_none() {
            let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
            let near = nearest(&text, names.iter().copied());
            let near = near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
            self.wrong(key, &format!("one of {}{near}", names.join(", ")), findings);
        }
        found
    }

    fn part(&self, key: &str, findings: &mut Findings) -> Option<Part<'t>> {
        let table = self.table.get(key)?.as_table();
        if table.is_none() {
            self.wrong(key, "a table", findings);
        }
        table.map(|table| Part { at: format!("`{key}` of {}", self.at), table })
    }

    /// A list of tables; `one` is what each is called.
    fn parts(&self, key: &str, one: &str, findings: &mut Findings) -> Vec<Part<'t>> {
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let tables: Option<Vec<&Table>> =
            value.as_array().and_then(|all| all.iter().map(Value::as_table).collect());
        let Some(tables) = tables else {
            self.wrong(key, "a list of tables", findings);
            return Vec::new();
        };
        let place = |at: usize| format!("{one} {} of {}", at + 1, self.at);
        tables.into_iter().enumerate().map(|(at, table)| Part { at: place(at), table }).collect()
    }

    fn name(&self, key: &str, findings: &mut Findings) -> String {
        let name = self.text(key, findings).unwrap_or_default();
        let is_good =
            (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        if !is_good {
            self.wrong(key, "a name of up to 64 characters", findings);
        }
        name
    }

    fn policy(&self, findings: &mut Findings) -> Policy {
        self.known(&["name", "revision", "guards", "pools", "actions", "programs", "hooks"], findings);
        let guards = self.part("guards", findings).map(|part| part.guards(Guards::default(), findings));
        let guards = guards.unwrap_or_default();
        let pools = self.parts("pools", "pool", findings);
        let rules = self.parts("actions", "action", findings);
        let revision = self.count("revision", findings).unwrap_or_else(|| {
            self.wrong("revision", "a whole number that grows with each change", findings);
            0
        });
        Policy {
            name: self.name("name", findings),
            revision: revision as u64,
            pools: pools.iter().map(|part| part.pool(&guards, findings)).collect(),
            rules: rules.iter().enumerate().map(|(at, part)| part.rule(at, findings)).collect(),
            programs: self.part("programs", findings).map(|part| part.programs(findings)).unwrap_or_default(),
            hooks: self.part("hooks", findings).map(|part| part.hooks(findings)).unwrap_or_default(),
        }
    }

    fn guards(&self, base: Guards, findings: &mut Findings) -> Guards {
        self.known(
            &[
                "budget_ratio",
                "budget_min",
                "breaker_ratio",
                "breaker_window",
                "cooldown",
                "resets_per_day",
                "confidence_min",
                "approval_expires",
            ],
            findings,
        );
        let sure = self.one_of("confidence_min", &Sure::ALL, Sure::name, findings);
        Guards {
            budget_ratio: self.ratio("budget_ratio", findings).unwrap_or(base.budget_ratio),
            budget_min: self.count("budget_min", findings).unwrap_or(base.budget_min),
            breaker_ratio: self.ratio("breaker_ratio", findings).unwrap_or(base.breaker_ratio),
            breaker_window_ns: self.span("breaker_window", findings).unwrap_or(base.breaker_window_ns),
            cooldown_ns: self.duration("cooldown", findings).unwrap_or(base.cooldown_ns),
            resets_per_day: self.count("resets_per_day", findings).unwrap_or(base.resets_per_day),
            sure_min: sure.unwrap_or(base.sure_min),
            approval_ns: self.span("approval_expires", findings).unwrap_or(base.approval_ns),
        }
    }

    fn pool(&self, guards: &Guards, findings: &mut Findings) -> Pool {
        self.known(&["name", "hosts", "spares", "guards", "quiet"], findings);
        let own = self.part("guards", findings).map(|part| part.guards(guards.clone(), findings));
        let quiet = self.parts("quiet", "quiet time", findings);
        Pool {
            name: self.name("name", findings),
            hosts: self.texts("hosts", findings),
            spares: self.texts("spares", findings),
            guards: own.unwrap_or_else(|| guards.clone()),
            quiet: quiet.iter().filter_map(|part| part.quiet(findings)).collect(),
        }
    }

    fn quiet(&self, findings: &mut Findings) -> Option<Quiet> {
        const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

        self.known(&["days", "from", "to"], findings);
        let mut days = Vec::new();
        for day in self.texts("days", findings) {
            match DAYS.iter().position(|known| *known == day) {
                Some(at) => days.push(u8::try_from(at).unwrap_or(0)),
                None => self.wrong("days", "days such as `mon` or `sat`", findings),
            }
        }
        let mut minutes = |key: &str| {
            let text = self.text(key, findings).unwrap_or_default();
            let parts = text
                .split_once(':')
                .and_then(|(h, m)| Some((h.parse::<u32>().ok()?, m.parse::<u32>().ok()?)));
            let parts = parts.filter(|(h, m)| *m < 60 && h * 60 + m <= 24 * 60);
            if parts.is_none() {
                self.wrong(key, "a time of the day in UTC, such as `22:30`", findings);
            }
            parts.map(|(h, m)| h * 60 + m)
        };
        Some(Quiet { days, from: minutes("from")?, to: minutes("to")? })
    }

    fn rule(&self, at: usize, findings: &mut Findings) -> ActionRule {
        self.known(&["name", "on", "pools", "mode", "commands", "validate", "after"], findings);
        let triggers: Vec<Trigger> = Trigger::all().collect();
        let on = self.one_of("on", &triggers, Trigger::name, findings).unwrap_or_else(|| {
            if !self.table.contains_key("on") {
                self.wrong("on", "the verdict that it is for, such as `reset_gpu`", findings);
            }
            Trigger::Straggler
        });
        let name = match self.table.contains_key("name").then(|| self.name("name", findings)) {
            Some(name) if !name.is_empty() => name,
            _ => format!("action {}, on {}", at + 1, on.name()),
        };
        let here = Part { at: format!("`{name}`"), table: self.table };
        let commands = here.parts("commands", "command", findings);
        let after = here.parts("after", "`after`", findings);
        let validation = here.part("validate", findings).map(|part| part.validation(findings));
        ActionRule {
            on,
            pools: here.texts("pools", findings),
            // Where nothing is said, a person agrees.
            mode: here.one_of("mode", &Mode::ALL, Mode::name, findings).unwrap_or(Mode::Approve),
            commands: commands.iter().filter_map(|part| part.command(findings)).collect(),
            validation,
            after: after.iter().filter_map(|part| part.command(findings)).collect(),
            name,
        }
    }

    fn validation(&self, findings: &mut Findings) -> Validation {
        self.known(&["quiet", "limit", "probe", "probe_min_ratio"], findings);
        let quiet_ns = self.duration("quiet", findings).unwrap_or(120_000_000_000);
        let limit_ns = self.span("limit", findings).unwrap_or(1_800_000_000_000);
        if limit_ns < quiet_ns {
            findings.push(format!("{} ends (`limit`) before it can be good (`quiet`)", self.at));
        }
        let probe = self.part("probe", findings).and_then(|part| part.command(findings));
        if probe.as_ref().is_some_and(|probe| !matches!(probe.kind, Kind::Exec { .. })) {
            self.wrong("probe", "a program: `{ exec = \"NAME\" }`", findings);
        }
        let ratio = self.ratio("probe_min_ratio", findings).unwrap_or(0.9);
        Validation { quiet_ns, limit_ns, probe, probe_min_ratio: ratio }
    }

    fn command(&self, findings: &mut Findings) -> Option<Command> {
        const KINDS: [&str; 6] = ["exec", "kubectl", "scontrol", "webhook", "hook", "wait_idle"];

        self.known(
            &[
                "exec",
                "kubectl",
                "scontrol",
                "webhook",
                "hook",
                "wait_idle",
                "args",
                "limit",
                "idempotent",
                "may_fail",
                "does",
            ],
            findings,
        );
        let given: Vec<&str> = KINDS.into_iter().filter(|kind| self.table.contains_key(*kind)).collect();
        let [kind] = given.as_slice() else {
            findings.push(format!("{} has to have one of {}", self.at, KINDS.join(", ")));
            return None;
        };
        let args = self.texts("args", findings);
        let does = self.does(findings);
        let (kind, brings, is_idempotent) = match *kind {
            "exec" => (Kind::Exec { program: self.text("exec", findings)?, args }, None, false),
            "kubectl" => {
                let word = self.word("kubectl", &["cordon", "drain", "uncordon"], findings)?;
                let args = self.flags(args, word, findings);
                (Kind::Kubectl { word, args }, brings(word), true)
            }
            "scontrol" => {
                let word = self.word("scontrol", &["", "drain", "resume"], findings)?;
                (Kind::Scontrol { word }, brings(word), true)
            }
            "webhook" => (Kind::Webhook { url: self.url("webhook", findings)? }, None, false),
            "wait_idle" => {
                if self.flag("wait_idle", findings) == Some(false) {
                    self.wrong("wait_idle", "true: leave it out where nothing is waited for", findings);
                }
                (Kind::WaitIdle, None, true)
            }
            _ => (Kind::Hook { name: self.text("hook", findings)? }, None, false),
        };
        Some(Command {
            kind,
            limit_ns: self.span("limit", findings).unwrap_or(LIMIT_NS),
            is_idempotent: self.flag("idempotent", findings).unwrap_or(is_idempotent),
            may_fail: self.flag("may_fail", findings).unwrap_or(false),
            does: does.or(brings),
        })
    }

    fn does(&self, findings: &mut Findings) -> Option<State> {
        let text = self.text("does", findings)?;
        let known = [
            ("cordon", State::Cordoned),
            ("drain", State::Draining),
            ("reset", State::Resetting),
            ("reboot", State::Rebooting),
        ];
        let found = known.iter().find(|(word, _)| *word == text).map(|(_, state)| *state);
        if found.is_none() {
            self.wrong("does", "one of cordon, drain, reset, reboot", findings);
        }
        found
    }

    /// What a scheduler is told, by its own words for cordon, drain and return.
    fn word(&self, key: &str, words: &[&str; 3], findings: &mut Findings) -> Option<Word> {
        let text = self.text(key, findings)?;
        let known = words.iter().zip([Word::Cordon, Word::Drain, Word::Return]);
        let found =
            known.filter(|(word, _)| !word.is_empty()).find(|(word, _)| **word == text).map(|(_, w)| w);
        if found.is_none() {
            let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            self.wrong(key, &format!("one of {}", words.join(", ")), findings);
        }
        found
    }

    fn flags(&self, args: Vec<String>, word: Word, findings: &mut Findings) -> Vec<String> {
        if args.iter().any(|arg| !arg.starts_with("--")) {
            self.wrong("args", "flags of kubectl, each with `--` in front", findings);
        }
        if word == Word::Drain && args.is_empty() {
            return vec!["--ignore-daemonsets".to_owned()];
        }
        args
    }

    fn url(&self, key: &str, findings: &mut Findings) -> Option<String> {
        let url = self.text(key, findings)?;
        let is_url = (url.starts_with("http://") || url.starts_with("https://"))
            && !url.contains(['{', '}', ' '])
            && url.parse::<axum::http::Uri>().is_ok_and(|uri| uri.host().is_some());
        if !is_url {
            self.wrong(
                key,
                "a URL such as `https://hooks.example.org/restart`, without names to fill in",
                findings,
            );
        }
        is_url.then_some(url)
    }

    fn programs(&self, findings: &mut Findings) -> BTreeMap<String, String> {
        let mut programs = BTreeMap::new();
        for key in self.table.keys() {
            let Some(path) = self.text(key, findings) else { continue };
            if !Path::new(&path).is_absolute() {
                self.wrong(key, "the absolute path of a program", findings);
            }
            programs.insert(key.clone(), path);
        }
        programs
    }

    fn hooks(&self, findings: &mut Findings) -> BTreeMap<String, Hook> {
        let mut hooks = BTreeMap::new();
        for key in self.table.keys() {
            let Some(part) = self.part(key, findings) else { continue };
            if let Some(hook) = part.hook(findings) {
                hooks.insert(key.clone(), hook);
            }
        }
        hooks
    }

    fn hook(&self, findings: &mut Findings) -> Option<Hook> {
        self.known(&["url", "file", "signal", "pid_file"], findings);
        if self.table.contains_key("url") {
            return self.url("url", findings).map(Hook::Url);
        }
        let is_absolute = |path: &String| Path::new(path).is_absolute();
        if let Some(file) = self.text("file", findings) {
            if !is_absolute(&file) {
                self.wrong("file", "an absolute path", findings);
            }
            return Some(Hook::File(file));
        }
        let name = self.one_of("signal", &SIGNALS, |name| name, findings)?;
        let Some(pid_file) = self.text("pid_file", findings).filter(is_absolute) else {
            self.wrong("pid_file", "an absolute path", findings);
            return None;
        };
        Some(Hook::Signal { name: name.to_owned(), pid_file })
    }
}

fn brings(word: Word) -> Option<State> {
    match word {
        Word::Cordon => Some(State::Cordoned),
        Word::Drain => Some(State::Draining),
        Word::Return => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../../../examples/remediation/slurm.toml");

    #[test]
    fn the_examples_are_good() {
        let slurm = parse(GOOD).unwrap();
        assert_eq!((slurm.name.as_str(), slurm.pools.len()), ("slurm-training", 1));
        let kubernetes = parse(include_str!("../../../../examples/remediation/kubernetes.toml")).unwrap();
        assert!(kubernetes.rules.iter().all(|rule| rule.mode != Mode::Auto));
    }

    #[test]
    fn every_finding_names_its_place_and_what_was_probably_meant() {
        let says = |from: &str, to: &str, want: &str| {
            assert!(GOOD.contains(from), "{from}");
            let findings = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(findings.iter().any(|finding| finding.contains(want)), "{want}: {findings:#?}");
        };
        says("revision =", "revison =", "`revison` of the policy is not known: did you mean `revision`?");
        says("budget_ratio = 0.05", "budget_ratio = 5", "wanted a number from 0 to 1");
        says("on = \"drain_reset\"", "on = \"drain_rset\"", "did you mean `drain_reset`?");
        says("mode = \"approve\"", "mode = \"yes\"", "wanted one of dry_run, approve, auto");
        says("scontrol = \"drain\"", "scontrol = \"stop\"", "wanted one of drain, resume");
        says("exec = \"reset-gpu\"", "exec = \"reset_gpu\"", "did you mean `reset-gpu`?");
        says("{host}", "{hots}", "did you mean `{host}`?");
        says("cooldown = \"30m\"", "cooldown = \"half an hour\"", "wanted a duration");
        says("http://127.0.0.1:8080/restart", "http://{host}/restart", "without names to fill in");
        says("\"/usr/local/sbin/reset-gpu\"", "\"reset-gpu\"", "the absolute path of a program");
        says("approval_expires = \"2h\"", "approval_expires = \"0s\"", "wanted a duration above 0");
        says("budget_ratio = 0.05", "budget_ratio = -1", "wanted a number from 0 to 1");
        says("hosts = [\"gpu-*\"]", "hosts = [\"gpu-[0-9]+\"]", "fits no machine");
        let twice = format!("{GOOD}\n[[actions]]\nname = \"other\"\non = \"drain_reset\"\n");
        let findings = parse(&twice).unwrap_err();
        assert!(
            findings.iter().any(|f| f.contains("`other`") && f.contains("`evict-and-reset`")),
            "{findings:?}"
        );
        assert!(parse("= 1").unwrap_err()[0].starts_with("it is not TOML"));
    }
}
