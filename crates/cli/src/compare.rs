//! `truegauge runs compare`: what made the difference between runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::args::{Done, json_flag};
use crate::http::{Server, escape, flags};
use crate::output::{note, print, print_json, printable};
use crate::query::quoted;
use crate::runs::{resolve, scope, significant};
use crate::table::{bytes, duration, layout, time};

/// Runs that have a column each in the table of differences; beyond, values are listed with their runs.
const COLUMN_RUNS_MAX: usize = 5;

pub(crate) fn command() -> Command {
    let many = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
    };
    Command::new("compare")
        .about("Show how runs differ and what their metrics came to")
        .arg(Arg::new("run").required(true).num_args(2..=50).value_name("RUN").help("Two to 50 runs, by id or by a name that only one has"))
        .arg(many("metric", "NAME", "Only this metric; several may be given [default: those that at least two runs have]"))
        .arg(Arg::new("step").long("step").value_name("STEP").value_parser(clap::value_parser!(i64)).allow_hyphen_values(true).help("Only points up to this step, so that a shorter run is measured at the same one"))
        .arg(Arg::new("group").long("group").value_name("KEY").help("Put runs together by `tag`, `host`, `rank` or an attribute such as `config/lr`"))
        .arg(Arg::new("limit").long("limit").value_name("N").value_parser(clap::value_parser!(usize)).default_value("30").help("Most metrics"))
        .args(flags())
        .arg(json_flag())
        .arg(Arg::new("csv").long("csv").action(ArgAction::SetTrue).conflicts_with("json").help("Print the metrics as CSV, a row for each metric and run, or group"))
        .after_help("Examples:\n  truegauge runs compare pretrain-7b bs640\n  truegauge runs compare a b c d --metric train/loss --group config/lr --csv")
}

pub(crate) fn run(server: &Server, matches: &ArgMatches) -> Done {
    let mut path = format!(
        "/api/tg/v1/compare?limit={}",
        matches.get_one::<usize>("limit").copied().unwrap_or_default().max(1)
    );
    for typed in matches.get_many::<String>("run").into_iter().flatten() {
        let _ = write!(path, "&run_id={}", resolve(server, typed)?);
    }
    for name in matches.get_many::<String>("metric").into_iter().flatten() {
        let _ = write!(path, "&metric={}", escape(name));
    }
    if let Some(step) = matches.get_one::<i64>("step") {
        let _ = write!(path, "&step={step}");
    }
    if let Some(key) = matches.get_one::<String>("group") {
        let _ = write!(path, "&group={}", escape(key));
    }
    let answer = server.get(&path)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = names(&answer);
    if matches.get_flag("csv") {
        print(csv(&answer, &names).as_bytes())?;
    } else {
        print(page(&answer, &names).as_bytes())?;
    }
    match answer["left_out"].as_u64().unwrap_or_default() {
        0 => {}
        left => note(format_args!("{left} metrics more: raise `--limit`, or name some with `--metric`")),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What each run is called: its name, with the start of its id where another has the same.
fn names(answer: &Value) -> Vec<String> {
    let runs = list(&answer["runs"]);
    let name = |run: &Value| {
        let twins = runs.iter().filter(|other| other["run"] == run["run"]).count();
        let (name, id) = (word(&run["run"]), word(&run["run_id"]));
        if twins > 1 { format!("{name} {}", &id[..id.len().min(6)]) } else { name.to_owned() }
    };
    runs.iter().map(name).collect()
}

fn page(answer: &Value, names: &[String]) -> String {
    let mut page = runs(answer, names);
    page.push('\n');
    page.push_str(&differences(answer, names));
    let is_grouped = list(&answer["metrics"]).iter().any(|metric| !list(&metric["groups"]).is_empty());
    page.push('\n');
    page.push_str(&if is_grouped { groups(answer) } else { metrics(answer, names) });
    page
}

fn runs(answer: &Value, names: &[String]) -> String {
    let row = |(run, name): (&Value, &String)| {
        let step = run["last_step"].as_i64().map_or_else(|| "-".to_owned(), |step| step.to_string());
        vec![
            name.clone(),
            scope(run),
            word(&run["state"]).to_owned(),
            time(run["started_ms"].as_i64().unwrap_or_default()),
            duration(run["elapsed_seconds"].as_f64().unwrap_or_default()),
            step,
            word(&run["run_id"]).to_owned(),
        ]
    };
    let columns = [
        ("RUN", false),
        ("PROJECT", false),
        ("STATE", false),
        ("STARTED (UTC)", false),
        ("ELAPSED", true),
        ("STEP", true),
        ("ID", false),
    ];
    layout(&columns, &list(&answer["runs"]).iter().zip(names).map(row).collect::<Vec<_>>())
}

/// What a run has under a key, and `-` where it has nothing.
fn held(difference: &Value, at: usize) -> String {
    match (&difference["values"][at], difference["has"][at].as_bool()) {
        (_, Some(false) | None) => "-".to_owned(),
        (Value::String(text), _) => text.clone(),
        (other, _) => other.to_string(),
    }
}

fn differences(answer: &Value, names: &[String]) -> String {
    let differences = list(&answer["differences"]);
    if differences.is_empty() {
        return "all attributes are the same\n".to_owned();
    }
    if names.len() <= COLUMN_RUNS_MAX {
        let heads = std::iter::once("ATTRIBUTE").chain(names.iter().map(String::as_str));
        let columns: Vec<(&str, bool)> = heads.map(|head| (head, false)).collect();
        let row = |difference: &Value| {
            let held = (0..names.len()).map(|at| held(difference, at));
            std::iter::once(word(&difference["key"]).to_owned()).chain(held).collect()
        };
        return layout(&columns, &differences.iter().map(row).collect::<Vec<_>>());
    }
    let mut rows = Vec::new();
    for difference in differences {
        let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            by_value.entry(held(difference, at)).or_default().push(name);
        }
        let mut key = word(&difference["key"]).to_owned();
        for (value, runs) in by_value {
            let count = runs.len();
            rows.push(vec![std::mem::take(&mut key), value, count.to_string(), runs.join(", ")]);
        }
    }
    layout(&[("ATTRIBUTE", false), ("VALUE", false), ("N", true), ("RUNS", false)], &rows)
}

/// A value with the step of its point.
fn at(value: &Value, step: &Value, unit: &str) -> String {
    if value.is_null() {
        return "-".to_owned();
    }
    let shown = amount(value, unit);
    step.as_i64().map_or_else(|| shown.clone(), |step| format!("{shown} @ {step}"))
}

fn amount(value: &Value, unit: &str) -> String {
    match value.as_f64() {
        None if value.is_null() => "-".to_owned(),
        Some(number) if unit == "B" && number >= 0.0 => bytes(number.round() as u64),
        _ => significant(value),
    }
}

/// A metric's name with its unit, where the values do not show it.
fn title(metric: &Value) -> String {
    match word(&metric["unit"]) {
        "" | "B" => word(&metric["display"]).to_owned(),
        unit => format!("{} ({unit})", word(&metric["display"])),
    }
}

fn metrics(answer: &Value, names: &[String]) -> String {
    let mut rows = Vec::new();
    for metric in list(&answer["metrics"]) {
        let (mut name, unit) = (title(metric), word(&metric["unit"]));
        let best = word(&metric["best"]);
        for (run, reading) in names.iter().zip(list(&metric["runs"])) {
            let mark = |which: &str, text: String| if best == which { format!("{text} *") } else { text };
            rows.push(vec![
                std::mem::take(&mut name),
                run.clone(),
                at(&reading["last"], &reading["last_step"], unit),
                mark("min", at(&reading["min"], &reading["min_step"], unit)),
                mark("max", at(&reading["max"], &reading["max_step"], unit)),
                reading["points"].as_u64().map_or_else(|| "-".to_owned(), |points| points.to_string()),
            ]);
        }
    }
    if rows.is_empty() {
        return "no metric is in two of them: name one with `--metric`\n".to_owned();
    }
    let columns = [
        ("METRIC", false),
        ("RUN", false),
        ("LAST @ STEP", true),
        ("MIN @ STEP", true),
        ("MAX @ STEP", true),
        ("POINTS", true),
    ];
    let mut table = layout(&columns, &rows);
    if table.contains(" *") {
        table.push_str("* is better, as far as the metric's name tells\n");
    }
    table
}

fn groups(answer: &Value) -> String {
    let mut rows = Vec::new();
    for metric in list(&answer["metrics"]) {
        let (mut name, unit) = (title(metric), word(&metric["unit"]));
        for group in list(&metric["groups"]) {
            rows.push(vec![
                std::mem::take(&mut name),
                word(&group["name"]).to_owned(),
                group["runs"].to_string(),
                group["series"].to_string(),
                amount(&group["mean"], unit),
                amount(&group["min"], unit),
                amount(&group["max"], unit),
                amount(&group["best"], unit),
            ]);
        }
    }
    let columns = [
        ("METRIC", false),
        ("GROUP", false),
        ("RUNS", true),
        ("SERIES", true),
        ("MEAN OF LAST", true),
        ("LEAST", true),
        ("GREATEST", true),
        ("BEST EVER", true),
    ];
    layout(&columns, &rows)
}

fn csv(answer: &Value, names: &[String]) -> String {
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(&printable(text)),
        other => other.to_string(),
    };
    let metrics = list(&answer["metrics"]);
    let (key, fields): (&[&str], &[&str]) = if metrics
        .iter()
        .any(|metric| !list(&metric["groups"]).is_empty())
    {
        (&["group"], &["runs", "series", "mean", "min", "max", "best"])
    } else {
        (&["run", "run_id"], &["series", "points", "last", "last_step", "min", "min_step", "max", "max_step"])
    };
    let mut out = format!("metric,{},{}\n", key.join(","), fields.join(","));
    let mut line = |metric: &Value, key: &[&Value], of: &Value| {
        let cells = std::iter::once(&metric["display"]).chain(key.iter().copied());
        let cells: Vec<String> = cells.chain(fields.iter().map(|field| &of[*field])).map(cell).collect();
        let _ = writeln!(out, "{}", cells.join(","));
    };
    for metric in metrics {
        for group in list(&metric["groups"]) {
            line(metric, &[&group["name"]], group);
        }
        if key.len() == 1 {
            continue;
        }
        for ((run, name), reading) in list(&answer["runs"]).iter().zip(names).zip(list(&metric["runs"])) {
            if !reading.is_null() {
                line(metric, &[&Value::from(name.as_str()), &run["run_id"]], reading);
            }
        }
    }
    out
}
