//! What a calculator can't do without, and what to say where it is not there.

use super::input::{Given, Input, Kind};
use super::{CalcError, Tool};

/// Ways to fill one need, each of them inputs that belong together.
pub(crate) type Need = &'static [&'static [&'static str]];

/// A need that nothing was given for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// Ways to fill it, the closest first, each the inputs that it still lacks.
    pub ways: Vec<Vec<&'static str>>,
}

/// That nothing is missing without which there is no figure at all; else everything that is, at once.
pub(super) fn check(tool: &'static Tool, given: &Given) -> Result<(), CalcError> {
    let lacks: Vec<Lack> = tool.needs.iter().filter_map(|need| lack(need, given)).collect();
    let Some(field) = lacks.first().and_then(|lack| lack.ways.first()?.first()) else { return Ok(()) };
    let names: Vec<String> = lacks.iter().map(in_words).collect();
    let is_one = matches!(lacks.as_slice(), [Lack { ways }] if ways[0].len() == 1);
    let text = format!("{} {} missing", listed(&names, "and"), if is_one { "is" } else { "are" });
    let mut error = CalcError::new(text).of(field).hint(hint(tool, &lacks));
    error.lacks = lacks;
    Err(error)
}

fn lack(need: Need, given: &Given) -> Option<Lack> {
    let mut ways: Vec<(bool, Vec<&'static str>)> = Vec::with_capacity(need.len());
    for way in need {
        let missing: Vec<&'static str> = way.iter().copied().filter(|name| !given.has(name)).collect();
        if missing.is_empty() {
            return None;
        }
        ways.push((missing.len() == way.len(), missing));
    }
    // A way that was begun is the one that was meant.
    ways.sort_by_key(|(is_untouched, _)| *is_untouched);
    Some(Lack { ways: ways.into_iter().map(|(_, missing)| missing).collect() })
}

/// `a`, or `b` and `c`; of many ways the first, since the hint has all.
fn in_words(lack: &Lack) -> String {
    let way =
        |names: &Vec<&str>| listed(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>(), "and");
    let ways: Vec<String> = lack.ways.iter().map(way).collect();
    match ways.as_slice() {
        [first] => first.clone(),
        [first, rest @ ..] if rest.len() < 3 => format!("{first} (or {})", rest.join(", or ")),
        [first, ..] => format!("{first} (or what can stand for it)"),
        [] => String::new(),
    }
}

fn listed(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

/// What each of them is, and a line that has them all.
fn hint(tool: &'static Tool, lacks: &[Lack]) -> String {
    let names = lacks.iter().flat_map(|lack| lack.ways.iter().flatten());
    let inputs = names.filter_map(|name| tool.inputs.iter().find(|input| input.name == *name));
    let meanings: Vec<String> = inputs.map(|input| format!("{}: {}", input.name, input.help)).collect();
    let example = tool.examples.first().copied().unwrap_or_default();
    format!("{}; for example `{example}`", meanings.join("; "))
}

impl Lack {
    /// Whether a question to a server could fill it.
    pub fn can_be_asked(&self, tool: &Tool) -> bool {
        let name_of = |input: &&Input| self.ways.iter().flatten().any(|name| input.name == *name);
        tool.inputs.iter().filter(name_of).any(|input| !input.is_file && !matches!(input.kind, Kind::Switch))
    }
}

/// How an input is typed on a command line.
pub fn flag_of(input: &Input) -> String {
    let flag = input.name.replace('_', "-");
    match input.kind {
        Kind::Series => format!("--query '{}=PROMQL'", input.name),
        Kind::Switch => format!("--{flag}"),
        Kind::Table(_) if input.is_file => input.value.to_owned(),
        _ => format!("--{flag} {}", input.value),
    }
}
