//! A policy, and what in it contradicts itself.

use std::collections::BTreeMap;

use super::command::{Command, Hook, Kind, Tools, Word, is_plain, names_in};
use super::{DAY_NS, MINUTE_NS, Mode, State, Sure, Trigger};
use crate::incidents::Action;

/// Bounds of what happens at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Guards {
    /// Share of a pool's machines that may be out at once.
    pub budget_ratio: f64,
    /// At least so many may.
    pub budget_min: usize,
    /// Share of a pool that may become bad within `breaker_window_ns` before nothing goes by itself.
    pub breaker_ratio: f64,
    /// See there.
    pub breaker_window_ns: i64,
    /// Time between two actions on one machine.
    pub cooldown_ns: i64,
    /// Resets of one card within a day; beyond them a human looks.
    pub resets_per_day: usize,
    /// How sure a verdict has to be for anything to go by itself.
    pub sure_min: Sure,
    /// How long it is waited for a person to agree.
    pub approval_ns: i64,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            budget_ratio: 0.05,
            budget_min: 1,
            breaker_ratio: 0.10,
            breaker_window_ns: 5 * MINUTE_NS,
            cooldown_ns: 30 * MINUTE_NS,
            resets_per_day: 2,
            sure_min: Sure::High,
            approval_ns: 120 * MINUTE_NS,
        }
    }
}

/// A time of the week in which nothing goes by itself, UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quiet {
    /// Days on which it begins, 0 for Monday; every day where there are none.
    pub days: Vec<u8>,
    /// Minutes of the day.
    pub from: u32,
    /// Minutes of the day; before `from`, it ends on the next day.
    pub to: u32,
}

impl Quiet {
    /// Whether a time lies within.
    pub fn holds(&self, now_ns: i64) -> bool {
        let day = now_ns.div_euclid(DAY_NS);
        let minute = u32::try_from(now_ns.rem_euclid(DAY_NS) / 60_000_000_000).unwrap_or(0);
        // 1970 began on a Thursday.
        let weekday = |day: i64| u8::try_from((day + 3).rem_euclid(7)).unwrap_or(0);
        let begins_on = |day: i64| self.days.is_empty() || self.days.contains(&weekday(day));
        if self.from < self.to {
            return begins_on(day) && (self.from..self.to).contains(&minute);
        }
        (begins_on(day) && minute >= self.from) || (begins_on(day - 1) && minute < self.to)
    }
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Their names, in which `*` stands for anything.
    pub hosts: Vec<String>,
    /// Machines that can take over.
    pub spares: Vec<String>,
    /// Bounds.
    pub guards: Guards,
    /// Times in which nothing goes by itself.
    pub quiet: Vec<Quiet>,
}

impl Pool {
    /// Whether a machine belongs to it.
    pub fn has(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| fits(pattern, host))
    }
}

/// Whether a name fits a pattern whose `*` stand for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

/// Whether there are names that fit both patterns.
fn meet(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Whether what is left of `one` from a place on meets what is left of `other`; the ends do.
    let mut next = vec![false; other.len() + 1];
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for to in (0..=other.len()).rev() {
            let (a, b) = (one.get(at), other.get(to));
            row[to] = match (a, b) {
                (None, None) => true,
                (Some('*'), _) => next[to] || (b.is_some() && row[to + 1]),
                (_, Some('*')) => row[to + 1] || (a.is_some() && next[to]),
                (Some(a), Some(b)) => a == b && next[to + 1],
                _ => false,
            };
        }
        next = row;
    }
    next[0]
}

/// Whether a pattern can fit the name of a machine that may stand in a command.
fn is_pattern(pattern: &str) -> bool {
    is_plain(&pattern.replace('*', "a"))
}

/// What has to hold before a machine gets work again.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// So long no new fault, nanoseconds.
    pub quiet_ns: i64,
    /// After this a human looks, nanoseconds.
    pub limit_ns: i64,
    /// A program that tries the machine and prints a number, more being better.
    pub probe: Option<Command>,
    /// Share of the pool's median that the number has to reach.
    pub probe_min_ratio: f64,
}

/// What is done about one verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRule {
    /// As messages name it.
    pub name: String,
    /// The verdict.
    pub on: Trigger,
    /// Pools that it is for; all where there are none.
    pub pools: Vec<String>,
    /// Who has to agree.
    pub mode: Mode,
    /// What runs, in order.
    pub commands: Vec<Command>,
    /// What has to hold afterwards.
    pub validation: Option<Validation>,
    /// What brings the machine back.
    pub after: Vec<Command>,
}

/// A policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Which writing of it.
    pub revision: u64,
    /// Pools; a machine belongs to the first that has it, and one of no pool is left alone.
    pub pools: Vec<Pool>,
    /// What is done.
    pub rules: Vec<ActionRule>,
    /// Programs that may be started, by name: absolute paths.
    pub programs: BTreeMap<String, String>,
    /// How jobs are told something, by name.
    pub hooks: BTreeMap<String, Hook>,
}

/// Something that can't be in one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction(pub String);

impl Policy {
    /// The pool of a machine.
    pub fn pool_of(&self, host: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.has(host))
    }

    /// A pool by name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// What is done about a verdict in a pool.
    pub fn rule(&self, on: Trigger, pool: &str) -> Option<&ActionRule> {
        let is_for = |rule: &&ActionRule| rule.pools.is_empty() || rule.pools.iter().any(|of| of == pool);
        self.rules.iter().filter(|rule| rule.on == on).find(is_for)
    }

    pub(super) fn tools(&self) -> Tools<'_> {
        Tools { programs: &self.programs, hooks: &self.hooks }
    }

    /// All that can't be in one policy.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        self.between_pools(&mut found);
        self.between_rules(&mut found);
        for rule in &self.rules {
            self.within(rule, &mut found);
        }
        found.into_iter().map(Contradiction).collect()
    }

    fn between_pools(&self, found: &mut Vec<String>) {
        if self.pools.is_empty() {
            found.push("it has no pool: without one no machine is ever touched".to_owned());
        }
        for (at, pool) in self.pools.iter().enumerate() {
            let name = &pool.name;
            if pool.hosts.is_empty() {
                found.push(format!("the pool `{name}` has no `hosts`"));
            }
            for other in &self.pools[at + 1..] {
                if *name == other.name {
                    found.push(format!("two pools are called `{name}`"));
                }
                let pairs = pool.hosts.iter().flat_map(|of| other.hosts.iter().map(move |to| (of, to)));
                for (of, to) in pairs.filter(|(of, to)| meet(of, to)).take(1) {
                    found.push(format!(
                        "`{of}` of the pool `{name}` and `{to}` of `{}` have machines in common",
                        other.name
                    ));
                }
            }
            let spares = pool.spares.iter().filter(|host| host.contains('*') || !is_pattern(host));
            for host in pool.hosts.iter().filter(|host| !is_pattern(host)).chain(spares) {
                found.push(format!(
                    "`{host}` of the pool `{name}` fits no machine: a name has letters, digits and `._:-`, and in `hosts` `*` stands for anything"
                ));
            }
            let guards = &pool.guards;
            if guards.budget_min == 0 && guards.budget_ratio == 0.0 {
                found.push(format!(
                    "in the pool `{name}` `budget_min` and `budget_ratio` are 0: no machine may ever be taken out"
                ));
            }
            if guards.budget_ratio > guards.breaker_ratio {
                found.push(format!(
                    "in the pool `{name}` `budget_ratio` ({}) is above `breaker_ratio` ({}): the breaker opens before the budget is used",
                    guards.budget_ratio, guards.breaker_ratio
                ));
            }
            if pool.quiet.iter().any(|quiet| quiet.from == quiet.to) {
                found.push(format!("in the pool `{name}` a quiet time begins when it ends"));
            }
        }
    }

    fn between_rules(&self, found: &mut Vec<String>) {
        for (at, rule) in self.rules.iter().enumerate() {
            for other in self.rules[at + 1..].iter().filter(|other| other.on == rule.on) {
                let shared = match (rule.pools.as_slice(), other.pools.as_slice()) {
                    ([], []) => Some("every pool".to_owned()),
                    ([], [pool, ..]) | ([pool, ..], []) => Some(format!("the pool `{pool}`")),
                    (some, others) => some
                        .iter()
                        .find(|pool| others.contains(pool))
                        .map(|pool| format!("the pool `{pool}`")),
                };
                if let Some(shared) = shared {
                    found.push(format!(
                        "`{}` and `{}` both say what is done on `{}` in {shared}",
                        rule.name,
                        other.name,
                        rule.on.name()
                    ));
                }
            }
        }
    }

    fn within(&self, rule: &ActionRule, found: &mut Vec<String>) {
        let name = &rule.name;
        for pool in rule.pools.iter().filter(|pool| self.pool(pool).is_none()) {
            let near = model::nearest(pool, self.pools.iter().map(|pool| pool.name.as_str()));
            let near = near.map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
            found.push(format!("`{name}` is for the pool `{pool}`, which there is not{near}"));
        }
        if rule.on == Trigger::Straggler && rule.mode == Mode::Auto {
            found.push(format!(
                "`{name}` has `mode = \"auto\"`: that a rank is slow is a recommendation, and a person agrees first"
            ));
        }
        let is_for_people = matches!(rule.on, Trigger::Incident(Action::Inspect | Action::Contact));
        let breaks = |command: &&Command| matches!(command.does, Some(State::Resetting | State::Rebooting));
        if is_for_people && rule.commands.iter().any(|command| breaks(&command)) {
            found.push(format!(
                "`{name}` resets or boots on `{}`, where a person is to look at the hardware",
                rule.on.name()
            ));
        }
        if rule.commands.iter().any(|command| breaks(&command)) && rule.validation.is_none() {
            found.push(format!("`{name}` resets or boots and has no `validate` to check what came of it"));
        }
        order(rule, found);
        let probe = rule.validation.iter().filter_map(|validation| validation.probe.as_ref());
        for command in rule.commands.iter().chain(&rule.after).chain(probe) {
            self.command(name, command, found);
        }
    }

    fn command(&self, rule: &str, command: &Command, found: &mut Vec<String>) {
        let mut unknown = |what: &str, name: &str, known: &mut dyn Iterator<Item = &String>| {
            let known: Vec<&str> = known.map(String::as_str).collect();
            let near = model::nearest(name, known);
            let near = near.map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
            found.push(format!("`{rule}` names the {what} `{name}`, which the policy does not have{near}"));
        };
        match &command.kind {
            Kind::Exec { program, args } => {
                if !self.programs.contains_key(program) {
                    unknown("program", program, &mut self.programs.keys());
                }
                let bad = args.iter().filter_map(|arg| names_in(arg).err());
                found.extend(bad.map(|why| format!("`{rule}`: {why}")));
            }
            Kind::Hook { name } => {
                if !self.hooks.contains_key(name) {
                    unknown("hook", name, &mut self.hooks.keys());
                }
            }
            Kind::Kubectl { .. } | Kind::Scontrol { .. } | Kind::Webhook { .. } | Kind::WaitIdle => {}
        }
    }
}

/// A hook that writes a checkpoint, by its name.
const CHECKPOINT: &str = "checkpoint";
/// A hook that starts a job again, by its name.
const RESTART: &str = "restart";

/// What comes in the wrong order.
fn order(rule: &ActionRule, found: &mut Vec<String>) {
    let name = &rule.name;
    let place = |fits: &dyn Fn(&Command) -> bool| rule.commands.iter().position(fits);
    let hook = |of: &'static str| move |command: &Command| matches!(&command.kind, Kind::Hook { name } if name.starts_with(of));
    let does = |state: State| move |command: &Command| command.does == Some(state);
    let out = place(&|command: &Command| command.does.is_some_and(|state| state >= State::Draining));
    let breaks = place(&|command| matches!(command.does, Some(State::Resetting | State::Rebooting)));
    let mut wrong = |what: &str| found.push(format!("`{name}`: {what}"));
    if let (Some(checkpoint), Some(out)) = (place(&hook(CHECKPOINT)), out)
        && checkpoint > out
    {
        wrong("the checkpoint comes after the work is gone");
    }
    if let (Some(restart), Some(out)) = (place(&hook(RESTART)), out)
        && restart < out
    {
        wrong("the job is started again before the machine is taken out");
    }
    if let (Some(drain), Some(breaks)) = (place(&does(State::Draining)), breaks)
        && drain > breaks
    {
        wrong("the machine is reset or booted before its work is moved away");
    }
    if rule.on == Trigger::Incident(Action::DrainReset) && breaks.is_some() && out == breaks {
        wrong("`drain_reset` asks for the work to be moved away first, and nothing does");
    }
    let word = |command: &Command| match &command.kind {
        Kind::Kubectl { word, .. } | Kind::Scontrol { word } => Some(*word),
        _ => None,
    };
    if rule.commands.iter().any(|command| word(command) == Some(Word::Return)) {
        wrong("`commands` brings the machine back, which `after` does once it is validated");
    }
    if rule.after.iter().any(|command| command.does.is_some()) {
        wrong("`after` takes the machine out again");
    }
}
