//! `truegauge calc`: figures reckoned from figures, by the same functions as the server's.

mod asked;
mod of_model;
mod of_run;

use std::fmt::Write as _;
use std::io::Read;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value};
use server::calc::{CalcError, Input, Kind, Lack, TOOLS, Tool, answer, columns_of, flag_of};

use crate::args::{Done, json_flag};
use crate::http::flags;
use crate::output::{Failure, note, print_json, print_line, printable};

/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The fields of a question, by name.
type Body = Map<String, Value>;

pub(crate) fn command() -> Command {
    Command::new("calc")
        .about("Reckon figures from figures, files, a Prometheus server or a run")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge calc economics samples.csv --price 2.50\n  truegauge calc mfu --params 70e9 --tokens-per-second 782446 --gpus 1024 --peak 989e12 --explain")
        .subcommands(TOOLS.iter().map(of_tool))
}

fn of_tool(tool: &'static Tool) -> Command {
    let examples = tool.examples.join("\n  ");
    let mut command =
        Command::new(tool.name).about(tool.about).after_help(format!("Examples:\n  {examples}"));
    for input in tool.inputs {
        if let Some(arg) = arg(input) {
            command = command.arg(arg);
        }
    }
    let sources: Vec<Arg> = of_run::flag(tool.name).into_iter().chain(of_model::flag(tool.name)).collect();
    // Attempts are counted from a run's start.
    let window = (!sources.is_empty() && tool.name != "ettr").then(asked::window_flag);
    command.args(asked::flags()).args(sources).args(window).args(flags()).arg(json_flag()).arg(
        Arg::new("explain")
            .long("explain")
            .action(ArgAction::SetTrue)
            .help("Show the formulas, and all that is taken for granted"),
    )
}

/// The flag of an input; none of one that only a question fills.
fn arg(input: &'static Input) -> Option<Arg> {
    let arg = Arg::new(input.name).help(input.help);
    let flag: &'static str = input.name.replace('_', "-").leak();
    Some(match input.kind {
        Kind::Series => return None,
        Kind::Switch => arg.long(flag).action(ArgAction::SetTrue),
        Kind::Table(_) if input.is_file => arg.value_name(input.value),
        Kind::Number(_) | Kind::Numbers(_) => {
            arg.long(flag).value_name(input.value).allow_negative_numbers(true)
        }
        Kind::Word(_) | Kind::Text | Kind::Table(_) => arg.long(flag).value_name(input.value),
    })
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let chosen = matches.subcommand().and_then(|(name, matches)| Some((server::calc::tool(name)?, matches)));
    let Some((tool, matches)) = chosen else {
        return Err(Failure::new("no figure was asked for").hint("`truegauge calc --help` lists them"));
    };
    // What is typed goes before what is asked for, and that before what a run or a model is known by.
    let mut body = of_run::fields(tool, matches)?;
    body.extend(of_model::fields(tool, matches)?);
    body.extend(asked::fields(tool, matches)?);
    body.extend(typed(tool, matches)?);
    let answer = answer(tool, &Value::Object(body)).map_err(|error| match error.lacks.as_slice() {
        [] => failure(error),
        lacks => Failure::new(format!("`calc {}`: {}", tool.name, error.message)).hint(wanted(tool, lacks)),
    })?;
    if matches.get_flag("json") {
        print_json(&answer.json())?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(printable(&answer.text).trim_end_matches('\n'))?;
    let explains = matches.get_flag("explain");
    for remark in answer.remarks((!explains).then_some(tool.main)) {
        note(printable(&remark));
    }
    if explains {
        for line in answer.explanation() {
            print_line(&printable(&line))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What flags and files say.
fn typed(tool: &'static Tool, matches: &ArgMatches) -> Result<Body, Failure> {
    let mut body = Body::new();
    for input in tool.inputs {
        let text = || matches.get_one::<String>(input.name).map(String::as_str);
        let value = match input.kind {
            Kind::Series => None,
            Kind::Switch => matches.get_flag(input.name).then_some(Value::Bool(true)),
            Kind::Numbers(_) => {
                text().map(|list| list.split(',').map(|one| Value::from(one.trim())).collect())
            }
            Kind::Number(_) | Kind::Word(_) | Kind::Text => text().map(Value::from),
            Kind::Table(columns) => match text() {
                Some(path) => Some(columns_of(&read(path)?, columns).map_err(|error| {
                    failure(CalcError { message: format!("`{path}`: {}", error.message), ..error })
                })?),
                None => None,
            },
        };
        body.extend(value.map(|value| (input.name.to_owned(), value)));
    }
    Ok(body)
}

/// A file's text; `-` is stdin.
fn read(path: &str) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("cannot read `{path}`: {error}"))
            .hint("name a file of CSV or JSON, or `-` for stdin")
    };
    let mut text = String::new();
    if path == "-" {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        let text = format!("`{path}` is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(Failure::new(text).hint("thin it out: a sample every 15 s is enough for a rate"));
    }
    Ok(text)
}

/// What is to be given, each with what it is, and a line that has it all.
fn wanted(tool: &'static Tool, lacks: &[Lack]) -> String {
    let mut rows: Vec<(&str, String, &str)> = Vec::new();
    for lack in lacks {
        for (way, names) in lack.ways.iter().enumerate() {
            for (at, name) in names.iter().enumerate() {
                let Some(input) = tool.inputs.iter().find(|input| input.name == *name) else { continue };
                let word = match (way, at) {
                    (0, 0) => "",
                    (_, 0) => "or",
                    _ => "and",
                };
                rows.push((word, flag_of(input), input.help));
            }
        }
    }
    let width = rows.iter().map(|(_, flag, _)| flag.chars().count()).max().unwrap_or(0);
    let mut text = "give".to_owned();
    for (word, flag, help) in rows {
        let _infallible = write!(text, "\n  {word:<3} {flag:<width$}  {help}");
    }
    if lacks.iter().any(|lack| lack.can_be_asked(tool)) {
        let of_run = of_run::flag(tool.name).map_or("", |_| ", or all of a run's by `--run RUN_ID`");
        let of_model =
            of_model::flag(tool.name).map_or("", |_| ", or all of a served model's by `--model NAME`");
        let _infallible = write!(text, "\n  a server can be asked: `--query NAME=PROMQL`{of_run}{of_model}");
    }
    text.push_str("\nfor example");
    for example in tool.examples {
        let _infallible = write!(text, "\n  {example}");
    }
    text
}

fn failure(error: CalcError) -> Failure {
    let code = if error.is_impossible { 1 } else { 2 };
    Failure::new(error.message).hint(error.hint).code(code)
}
