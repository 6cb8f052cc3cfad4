//! `truegauge runs`: lists, shows, exports, deletes and restores runs.

mod histogram;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::http::{Server, escape, flags};
use crate::output::{Failure, note, print, print_json, print_line, printable};
use crate::table::{bytes, duration, layout, time};

/// Longest wait for a small change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows of one page of the list.
const PAGE_ROWS: usize = 1_000;

pub(crate) fn command() -> Command {
    let run = || {
        Arg::new("run")
            .required(true)
            .value_name("RUN")
            .help("A run's id, or its name where only one run has it")
    };
    let verb = |name: &'static str, about: &'static str, examples: &'static str| {
        Command::new(name).about(about).args(flags()).after_help(examples)
    };
    let ls = verb("ls", "List runs", "Examples:\n  truegauge runs ls --state running\n  truegauge runs ls --filter 'project:llm loss:<0.5 -tag:debug' --sort loss --json")
        .arg(Arg::new("filter").long("filter").value_name("FILTER").help("`state:running loss:<0.5 -tag:debug word`; keys: see `GET /api/tg/v1/filter`"))
        .arg(Arg::new("state").long("state").value_name("STATE").help("running, stale, failed, finished or paused; several with commas"))
        .arg(Arg::new("sort").long("sort").value_name("KEYS").allow_hyphen_values(true).help("started, name, state, elapsed, step, points, a metric or an attribute; `-` in front turns it round [default: newest first]"))
        .arg(Arg::new("metric").long("metric").value_name("NAME").help("Whose last value is shown [default: one like loss]"))
        .arg(Arg::new("limit").long("limit").value_name("N").value_parser(clap::value_parser!(usize)).default_value("50").help("Most rows"))
        .arg(json_flag());
    let show = verb(
        "show",
        "Show everything about a run but its points",
        "Examples:\n  truegauge runs show pretrain-7b\n  truegauge runs show 79d229c9380dbce7 --json",
    )
    .arg(run())
    .arg(
        Arg::new("buckets")
            .long("buckets")
            .action(ArgAction::SetTrue)
            .help("List each bucket of a histogram instead of its count, mean and quantiles"),
    )
    .arg(json_flag());
    let export = verb("export", "Write every raw point of a run", "Examples:\n  truegauge runs export pretrain-7b -o points.csv\n  truegauge runs export 79d229c9380dbce7 --metric loss --format ndjson | head")
        .arg(run())
        .arg(Arg::new("format").long("format").value_parser(["csv", "ndjson"]).default_value("csv").help("Format"))
        .arg(Arg::new("metric").long("metric").value_name("NAME").help("Only this metric"))
        .arg(Arg::new("output").short('o').long("output").value_name("FILE").value_parser(clap::value_parser!(PathBuf)).help("File instead of stdout"));
    let delete = verb(
        "delete",
        "Delete a run with its points",
        "Examples:\n  truegauge runs delete scratch-3\n  truegauge runs delete 79d229c9380dbce7 --yes",
    )
    .arg(run())
    .arg(Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do not ask"))
    .arg(json_flag());
    let restore = verb("restore", "Bring a run back within 30 seconds of its deletion", "Examples:\n  truegauge runs restore 79d229c9380dbce7\n  truegauge runs restore 79d229c9380dbce7 --url http://127.0.0.1:8080")
        .arg(Arg::new("run").required(true).value_name("ID").help("The run's id"))
        .arg(json_flag());
    Command::new("runs")
        .about("List, show, compare, export and delete runs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge runs ls\n  truegauge runs export pretrain-7b -o points.csv")
        .subcommands([ls, show, crate::compare::command(), export, delete, restore])
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some((verb, matches)) = matches.subcommand() else { return Err(Failure::new("no verb given")) };
    let server = Server::of(matches);
    match verb {
        "ls" => ls(&server, matches),
        "show" => show(&server, matches),
        "compare" => crate::compare::run(&server, matches),
        "export" => export(&server, matches),
        "delete" => delete(&server, matches),
        _ => restore(&server, matches),
    }
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn ls(server: &Server, matches: &ArgMatches) -> Done {
    let limit = matches.get_one::<usize>("limit").copied().unwrap_or(50);
    let mut question = String::new();
    for name in ["filter", "state", "sort", "metric"] {
        if let Some(value) = text(matches, name) {
            question.extend(["&", name, "=", &escape(value)]);
        }
    }
    let (mut rows, mut cursor, mut first) = (Vec::new(), None::<String>, Value::Null);
    loop {
        let page = limit.saturating_sub(rows.len()).min(PAGE_ROWS);
        let from = cursor.map(|c| format!("&cursor={}", escape(&c))).unwrap_or_default();
        let mut answer = server.get(&format!("/api/tg/v1/runs?limit={page}{question}{from}"))?;
        rows.extend(answer["runs"].as_array_mut().map(std::mem::take).unwrap_or_default());
        cursor = answer["next"].as_str().map(str::to_owned);
        if first.is_null() {
            first = answer;
        }
        if cursor.is_none() || rows.len() >= limit {
            break;
        }
    }
    rows.truncate(limit);
    for warning in first["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        note(format_args!("warning: {}", printable(warning)));
    }
    if matches.get_flag("json") {
        first["runs"] = rows.into();
        first["next"] = cursor.into();
        print_json(&first)?;
        return Ok(ExitCode::SUCCESS);
    }
    let metric = rows.iter().find_map(|row| row["metric"]["name"].as_str()).unwrap_or("METRIC").to_owned();
    let same = rows.iter().all(|row| row["metric"]["name"].as_str().is_none_or(|name| name == metric));
    let cells: Vec<Vec<String>> = rows.iter().map(|row| list_row(row, same)).collect();
    let columns = [
        ("STATE", false),
        ("RUN", false),
        ("PROJECT", false),
        ("STARTED (UTC)", false),
        ("ELAPSED", true),
        ("STEP", true),
        ("LAST", true),
        ("ID", false),
    ];
    print(layout(&columns, &cells).as_bytes())?;
    let matching = first["matching"].as_u64().unwrap_or_default();
    let of = if same && metric != "METRIC" {
        format!(", last value of `{}`", printable(&metric))
    } else {
        String::new()
    };
    note(format_args!("{} of {matching} runs{of}", cells.len()));
    if matching == 0 {
        note(if ["filter", "state"].iter().any(|name| text(matches, name).is_some()) {
            "nothing matches: `truegauge runs ls` lists all"
        } else {
            "the server has no run yet: `truegauge.init(project_name=\"first\")` in Python starts one"
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn list_row(row: &Value, same_metric: bool) -> Vec<String> {
    let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let last = match (&row["metric"]["last"], row["metric"]["name"].as_str()) {
        (Value::Null, _) | (_, None) => "-".to_owned(),
        (value, Some(_)) if same_metric => significant(value),
        (value, Some(name)) => format!("{name} {}", significant(value)),
    };
    vec![
        word("state"),
        word("run"),
        scope(row),
        time(row["started_ms"].as_i64().unwrap_or_default()),
        duration(row["elapsed_seconds"].as_f64().unwrap_or_default()),
        number(&row["last_step"]),
        last,
        word("run_id"),
    ]
}

/// `organization/workspace/project`, without the empty ones.
pub(crate) fn scope(row: &Value) -> String {
    let parts = ["organization", "workspace", "project"].map(|name| row[name].as_str().unwrap_or_default());
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// A number with five significant digits.
pub(crate) fn significant(value: &Value) -> String {
    let Some(number) = value.as_f64() else { return value.as_str().unwrap_or("-").to_owned() };
    if number != 0.0 && !(1e-4..1e7).contains(&number.abs()) {
        return format!("{number:.4e}");
    }
    let digits = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    let decimals = usize::try_from(4 - digits).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The id behind what a user typed: an id, or a name that only one run has.
pub(crate) fn resolve(server: &Server, typed: &str) -> Result<String, Failure> {
    if model::RunId::parse(typed).is_some() {
        return Ok(typed.to_ascii_lowercase());
    }
    let filter = format!("run:\"{}\"", typed.replace('"', ""));
    let answer = server.get(&format!("/api/tg/v1/runs?limit=10&filter={}", escape(&filter)))?;
    let found: Vec<&Value> = answer["runs"].as_array().into_iter().flatten().collect();
    match found.as_slice() {
        [] => {
            Err(Failure::new(format!("there is no run named `{typed}`"))
                .hint("`truegauge runs ls` lists all"))
        }
        [one] => Ok(one["run_id"].as_str().unwrap_or_default().to_owned()),
        many => {
            let ids: Vec<String> = many
                .iter()
                .map(|row| format!("{} ({})", row["run_id"].as_str().unwrap_or_default(), scope(row)))
                .collect();
            Err(Failure::new(format!("several runs are named `{typed}`"))
                .hint(format!("give the id of one: {}", ids.join(", "))))
        }
    }
}

fn show(server: &Server, matches: &ArgMatches) -> Done {
    let id = resolve(server, text(matches, "run").unwrap_or_default())?;
    let run = server.get(&format!("/api/tg/v1/runs/{id}"))?;
    let metrics = server.get(&format!("/api/tg/v1/runs/{id}/metrics"))?;
    // A server of before does not know it.
    let health = server.get(&format!("/api/tg/v1/runs/{id}/health")).unwrap_or_default();
    if matches.get_flag("json") {
        let mut all = run;
        all["metrics"] = metrics["metrics"].clone();
        all["health"] = health;
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = |name: &str| run[name].as_str().unwrap_or_default().to_owned();
    let list = |name: &str| {
        run[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let reason = word("state_reason");
    let state = if reason.is_empty() { word("state") } else { format!("{} ({reason})", word("state")) };
    let counts = |name: &str| {
        let counts = run[name].as_object().into_iter().flatten();
        counts.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
    };
    let facts = [
        ("run", word("run")),
        ("id", id),
        ("scope", scope(&run)),
        ("state", state),
        ("started", time(run["started_ms"].as_i64().unwrap_or_default())),
        ("elapsed", duration(run["elapsed_seconds"].as_f64().unwrap_or_default())),
        ("attempts", run["attempts"].to_string()),
        ("hosts", list("hosts")),
        ("tags", list("tags")),
        ("description", word("description")),
        ("points", run["points"].to_string()),
        ("dropped", counts("dropped")),
        ("refused", counts("refused")),
    ];
    let mut page = String::new();
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        page.extend([format!("{name:<12} {}\n", printable(&value.replace('\n', " ")))]);
    }
    page.push_str(&health_text(&health));
    let attributes = run["attributes"].as_object().into_iter().flatten();
    let rows: Vec<Vec<String>> = attributes
        .map(|(key, value)| {
            vec![key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)]
        })
        .collect();
    if !rows.is_empty() {
        page.extend(["\n", &layout(&[("ATTRIBUTE", false), ("VALUE", false)], &rows)]);
    }
    let metrics = metrics["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let metrics = if matches.get_flag("buckets") { metrics.to_vec() } else { histogram::folded(metrics) };
    let rows: Vec<Vec<String>> = metrics.iter().map(metric_row).collect();
    let columns =
        [("METRIC", false), ("LABELS", false), ("POINTS", true), ("LAST STEP", true), ("LAST", true)];
    page.extend(["\n", &layout(&columns, &rows)]);
    print(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// How a run fares: what holds it up, and its figures as far as they are known.
fn health_text(health: &Value) -> String {
    let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let state = text(health, "state");
    if state.is_empty() {
        return String::new();
    }
    let mut lines = vec![("health".to_owned(), format!("{state}  {}", text(health, "reason")))];
    for verdict in health["verdicts"].as_array().into_iter().flatten() {
        let action = text(&verdict["action"], "sentence");
        let said = format!("{}: {} {action}", text(verdict, "claim"), text(verdict, "sentence"));
        lines.push((text(verdict, "level"), said));
    }
    let figures = ["figures", "money"].iter().flat_map(|part| health[part].as_object().into_iter().flatten());
    for (name, figure) in figures {
        match (&figure["value"], figure["reason"].as_str()) {
            (value @ Value::Number(_), _) => {
                lines.push((String::new(), format!("{name} {}", in_words(value, &text(figure, "unit")))));
            }
            (_, Some(reason)) => lines.push((String::new(), format!("{name} is not known: {reason}"))),
            _ => {}
        }
    }
    let line = |(name, value): &(String, String)| format!("{name:<12} {}\n", printable(value.trim()));
    lines.iter().map(line).collect()
}

/// A figure; its name says its unit already.
fn in_words(value: &Value, unit: &str) -> String {
    match value.as_f64() {
        Some(ratio) if unit == "ratio" => format!("{:.1} %", ratio * 100.0),
        _ => significant(value),
    }
}

fn metric_row(metric: &Value) -> Vec<String> {
    let labels = metric["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    vec![
        metric["display"].as_str().unwrap_or_default().to_owned(),
        labels.join(","),
        metric["points"].to_string(),
        metric["last_step"].as_i64().map_or_else(|| "-".to_owned(), |step| step.to_string()),
        amount(&metric["last"], metric["unit"].as_str().unwrap_or_default()),
    ]
}

/// A value with its unit; bytes with the prefix that people read.
fn amount(value: &Value, unit: &str) -> String {
    match value.as_f64() {
        Some(number) if unit == "B" && number >= 0.0 => bytes(number.round() as u64),
        _ => format!("{} {unit}", significant(value)).trim().to_owned(),
    }
}

fn export(server: &Server, matches: &ArgMatches) -> Done {
    let id = resolve(server, text(matches, "run").unwrap_or_default())?;
    let format = text(matches, "format").unwrap_or("csv");
    if let Some(name) = text(matches, "metric") {
        wants_metric(server, &id, name)?;
    }
    let metric = text(matches, "metric").map(|name| format!("&metric={}", escape(name))).unwrap_or_default();
    let mut points = server.open(&format!("/api/tg/v1/runs/{id}/export?format={format}{metric}"))?;
    match matches.get_one::<PathBuf>("output") {
        None => copy(&mut points, &mut io::stdout().lock())?,
        Some(path) => {
            if let Err(failure) = to_file(&mut points, path) {
                // Half an export that looks whole is worse than none.
                let _ = std::fs::remove_file(path);
                return Err(failure);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails where the run has no such metric: an export without a point looks like a run without one.
fn wants_metric(server: &Server, id: &str, name: &str) -> Result<(), Failure> {
    let answer = server.get(&format!("/api/tg/v1/runs/{id}/metrics"))?;
    let mut metrics = answer["metrics"].as_array().into_iter().flatten();
    if metrics.any(|metric| metric["display"] == name || metric["name"] == name) {
        return Ok(());
    }
    Err(Failure::new(format!("the run has no metric `{}`", printable(name)))
        .hint(format!("`truegauge runs show {id}` lists those it has")))
}

fn to_file(points: &mut impl Read, path: &Path) -> Result<(), Failure> {
    let file = File::create(path)
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
    let mut out = BufWriter::new(file);
    copy(points, &mut out)
}

fn copy(points: &mut impl Read, out: &mut impl Write) -> Result<(), Failure> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = points.read(&mut piece).map_err(|error| {
            Failure::new(format!("the export broke off: {error}"))
                .hint("the server's log says why; what was written so far is not complete")
        })?;
        if read == 0 {
            break;
        }
        out.write_all(&piece[..read])?;
    }
    Ok(out.flush()?)
}

fn delete(server: &Server, matches: &ArgMatches) -> Done {
    let id = resolve(server, text(matches, "run").unwrap_or_default())?;
    if !matches.get_flag("yes") {
        let run = server.get(&format!("/api/tg/v1/runs/{id}"))?;
        let name = printable(run["run"].as_str().unwrap_or_default());
        let question =
            format!("delete `{name}` ({}) with {} points? [y/N] ", printable(&scope(&run)), run["points"]);
        if !io::stdin().is_terminal() {
            return Err(Failure::new(format!("`{name}` is not deleted without being asked"))
                .hint("add `--yes` where nobody can answer"));
        }
        let _ = io::stderr().lock().write_all(question.as_bytes());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            note("nothing deleted");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let answer = server.ask("DELETE", &format!("/api/tg/v1/runs/{id}"), CHANGE_TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
    } else {
        print_line(&format!("deleted {id}"))?;
        note(format_args!("for 30 s `truegauge runs restore {id}` brings it back"));
    }
    Ok(ExitCode::SUCCESS)
}

fn restore(server: &Server, matches: &ArgMatches) -> Done {
    let id = text(matches, "run").unwrap_or_default();
    if model::RunId::parse(id).is_none() {
        return Err(
            Failure::new(format!("`{id}` is not a run's id")).hint("`delete` printed it: 16 hex digits")
        );
    }
    server.ask("POST", &format!("/api/tg/v1/runs/{id}/restore"), CHANGE_TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&json!({"restored": true, "run_id": id}))?;
    } else {
        print_line(&format!("restored {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_run_fares_is_told_with_what_is_not_known() {
        let health = json!({
            "state": "page",
            "verdicts": [{
                "level": "page",
                "claim": "Rank 6 is slow",
                "sentence": "train-1, GPU 2: heat.",
                "action": { "sentence": "Drain it." },
            }],
            "figures": {
                "ettr_ratio": { "value": 0.9512, "unit": "ratio", "reason": null },
                "mfu_ratio": { "value": null, "unit": "ratio", "reason": "no format is known" },
            },
            "money": { "price": { "gpu_model": "h100-sxm" }, "usd_per_hour": { "value": 20.0, "unit": "usd/hour" } },
        });
        let lines = [
            "health       page",
            "page         Rank 6 is slow: train-1, GPU 2: heat. Drain it.",
            "             ettr_ratio 95.1 %",
            "             mfu_ratio is not known: no format is known",
            "             usd_per_hour 20",
            "",
        ];
        assert_eq!(health_text(&health), lines.join("\n"));
    }

    #[test]
    fn five_digits_are_enough_and_none_is_made_up() {
        let check = |value: f64, want: &str| assert_eq!(significant(&json!(value)), want);
        check(0.0, "0");
        check(0.25, "0.25");
        check(2.861_234, "2.8612");
        check(468_123.7, "468124");
        check(1.5e-9, "1.5000e-9");
        check(-3e9, "-3.0000e9");
        assert_eq!(significant(&json!("NaN")), "NaN");
    }

    #[test]
    fn bytes_are_shown_as_people_read_them_and_other_units_as_they_are() {
        assert_eq!(amount(&json!(647_190_000.0), "B"), "617.2 MiB");
        assert_eq!(amount(&json!(-1.0), "B"), "-1 B");
        assert_eq!(amount(&json!("NaN"), "B"), "NaN B");
        assert_eq!(amount(&json!(26.54), "%"), "26.54 %");
        assert_eq!(amount(&json!(1), ""), "1");
    }
}
