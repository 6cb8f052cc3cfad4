//! `truegauge query`: asks PromQL and shows the answer.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::args::{Done, json_flag};
use crate::chart;
use crate::http::{Server, escape, flags};
use crate::output::{note, print, print_json, printable};
use crate::table::time;

/// Longest wait for an answer: as long as a query may take, and its turn.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);
/// Most charts drawn.
const CHARTS_MAX: usize = 8;
/// Steps of a range whose step is not given.
const STEPS_DEFAULT: f64 = 120.0;

pub(crate) fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).allow_hyphen_values(true).help(help)
    };
    Command::new("query")
        .about("Ask PromQL: a table at one time, a small chart over a range")
        .arg(Arg::new("query").required(true).value_name("PROMQL").help("What to ask"))
        .arg(text("time", "TIME", "When: unix seconds, RFC 3339, or `-10m` before now [default: now]"))
        .arg(text("start", "TIME", "Start of a range, written as `--time`").conflicts_with("time"))
        .arg(text("end", "TIME", "End of the range [default: now]").requires("start"))
        .arg(text("step", "STEP", "Step of the range: seconds or `30s` [default: about 120 steps]").requires("start"))
        .args(flags())
        .arg(json_flag())
        .arg(Arg::new("csv").long("csv").action(ArgAction::SetTrue).conflicts_with("json").help("Print CSV: labels, then time and value"))
        .after_help("Examples:\n  truegauge query 'loss{run=\"pretrain-7b\"}'\n  truegauge query 'avg by (host) (system_cpu_utilization)' --start -1h --step 30s --csv")
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let server = Server::of(matches);
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let query = escape(text("query").unwrap_or_default());
    let now = now_seconds();
    let path = if let Some(start) = text("start") {
        let (start, end) = (moment(start, now), moment(text("end").unwrap_or("-0s"), now));
        let step = text("step").map_or_else(|| step(&start, &end), str::to_owned);
        let (start, end, step) = (escape(&start), escape(&end), escape(&step));
        format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}")
    } else {
        let time = moment(text("time").unwrap_or("-0s"), now);
        format!("/api/v1/query?query={query}&time={}", escape(&time))
    };
    let answer = server.ask("GET", &path, ANSWER_TIMEOUT)?;
    for word in ["warnings", "infos"] {
        for text in answer[word].as_array().into_iter().flatten().filter_map(Value::as_str) {
            note(format_args!("{}: {}", word.trim_end_matches('s'), printable(text)));
        }
    }
    if matches.get_flag("json") {
        print_json(&answer["data"])?;
    } else if matches.get_flag("csv") {
        print(csv(&rows(&answer["data"])).as_bytes())?;
    } else {
        print(show(&answer["data"]).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn now_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A time as the server reads it; `-10m` is so long before now.
pub(crate) fn moment(text: &str, now: f64) -> String {
    text.strip_prefix('-')
        .and_then(|back| back.find(|c: char| c.is_ascii_alphabetic()).map(|at| back.split_at(at)))
        .and_then(|(amount, unit)| {
            let seconds = match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                "w" => 604_800.0,
                _ => return None,
            };
            Some(format!("{:.3}", now - amount.parse::<f64>().ok()? * seconds))
        })
        .unwrap_or_else(|| text.to_owned())
}

/// A step that gives about [`STEPS_DEFAULT`] steps; a minute where the times say nothing here.
fn step(start: &str, end: &str) -> String {
    match (start.parse::<f64>(), end.parse::<f64>()) {
        (Ok(start), Ok(end)) if end > start => {
            format!("{:.3}", ((end - start) / STEPS_DEFAULT).max(0.001))
        }
        _ => "60".to_owned(),
    }
}

/// One line of an answer.
struct Row<'a> {
    labels: Vec<(&'a str, &'a str)>,
    time_ms: i64,
    value: &'a str,
}

fn labels(series: &Value) -> Vec<(&str, &str)> {
    let labels = series["metric"].as_object().into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect()
}

fn point(point: &Value) -> Option<(i64, &str)> {
    Some(((point[0].as_f64()? * 1e3).round() as i64, point[1].as_str()?))
}

/// Every point of an answer with its labels.
fn rows(data: &Value) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    if matches!(data["resultType"].as_str(), Some("scalar" | "string")) {
        rows.extend(point(&data["result"]).map(|(time_ms, value)| Row {
            labels: Vec::new(),
            time_ms,
            value,
        }));
    }
    if !matches!(data["resultType"].as_str(), Some("vector" | "matrix")) {
        return rows;
    }
    for series in data["result"].as_array().into_iter().flatten() {
        let points =
            series["values"].as_array().map_or(std::slice::from_ref(&series["value"]), Vec::as_slice);
        for (time_ms, value) in points.iter().filter_map(point) {
            rows.push(Row { labels: labels(series), time_ms, value });
        }
    }
    rows
}

/// Columns for every label that any row has, then time in seconds and value.
fn csv(rows: &[Row<'_>]) -> String {
    let mut names: Vec<&str> = rows.iter().flat_map(|row| row.labels.iter().map(|(name, _)| *name)).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = String::new();
    for name in &names {
        let _ = write!(out, "{},", quoted(name));
    }
    out.push_str("time,value\n");
    for row in rows {
        for name in &names {
            let value = row.labels.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value);
            let _ = write!(out, "{},", quoted(value));
        }
        let (seconds, millis) = (row.time_ms.div_euclid(1_000), row.time_ms.rem_euclid(1_000));
        let _ = writeln!(out, "{seconds}.{millis:03},{}", quoted(row.value));
    }
    out
}

/// A cell, in quotes where CSV needs them.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A series as PromQL writes it.
fn spelled(labels: &[(&str, &str)]) -> String {
    let name = labels.iter().find(|(name, _)| *name == "__name__").map_or("", |(_, value)| value);
    let rest: Vec<String> = labels
        .iter()
        .filter(|(name, _)| *name != "__name__")
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    if rest.is_empty() && !name.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", rest.join(","))
    }
}

/// For people: a table of what differs at one time, charts over a range.
fn show(data: &Value) -> String {
    let result = data["result"].as_array().map_or(&[][..], Vec::as_slice);
    if data["resultType"].as_str() != Some("matrix") {
        return table(&rows(data));
    }
    if result.is_empty() {
        return "nothing was found\n".to_owned();
    }
    let mut out = String::new();
    for series in result.iter().take(CHARTS_MAX) {
        let points: Vec<(f64, f64)> = series["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(point)
            .filter_map(|(time_ms, value)| Some((time_ms as f64, number(value)?)))
            .collect();
        let _ = writeln!(out, "{}", printable(&spelled(&labels(series))));
        out.push_str(&chart::draw(&points));
        if let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) {
            let _ = writeln!(
                out,
                "{} to {} UTC, {} points\n",
                time(*first as i64),
                time(*last as i64),
                points.len()
            );
        }
    }
    if result.len() > CHARTS_MAX {
        let _ = writeln!(
            out,
            "and {} series more: aggregate, or see all with `--csv`",
            result.len() - CHARTS_MAX
        );
    }
    out
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "-Inf" | "NaN" => None,
        text => text.parse().ok(),
    }
}

/// The labels that all rows share stand above the table, once.
fn table(rows: &[Row<'_>]) -> String {
    let Some(first) = rows.first() else { return "nothing was found\n".to_owned() };
    let is_common = |label: &&(&str, &str)| rows.iter().all(|row| row.labels.contains(label));
    let common: Vec<(&str, &str)> =
        if rows.len() > 1 { first.labels.iter().filter(is_common).copied().collect() } else { Vec::new() };
    let mut out = String::new();
    if !common.is_empty() {
        let _ = writeln!(out, "all: {}", printable(&spelled(&common)));
    }
    let width = rows.iter().map(|row| row.value.chars().count()).chain(["VALUE".len()]).max().unwrap_or(0);
    let _ = writeln!(out, "{:>width$}  SERIES", "VALUE");
    for row in rows {
        let own = row.labels.iter().filter(|label| !common.contains(label)).copied();
        let own = spelled(&own.collect::<Vec<_>>());
        let _ = writeln!(out, "{:>width$}  {}", printable(row.value), printable(&own));
    }
    let _ = writeln!(out, "at {} UTC", time(first.time_ms));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_before_now_are_reckoned_here_and_others_left_to_the_server() {
        assert_eq!(moment("-10m", 1_000.0), "400.000");
        assert_eq!(moment("-1.5h", 6_000.0), "600.000");
        for own in ["1700000000", "-5", "2023-11-14T22:13:20Z", "-3 parsecs"] {
            assert_eq!(moment(own, 1_000.0), own);
        }
        assert_eq!(step("0", "1200"), "10.000");
        assert_eq!(step("2023-11-14T22:13:20Z", "1200"), "60");
    }

    #[test]
    fn csv_has_a_column_for_every_label_and_quotes_what_needs_it() {
        let data = json!({"resultType": "vector", "result": [
            {"metric": {"__name__": "m", "a": "x,\"y\""}, "value": [1.5, "2"]},
            {"metric": {"b": "z"}, "value": [1.5, "NaN"]},
        ]});
        assert_eq!(csv(&rows(&data)), "__name__,a,b,time,value\nm,\"x,\"\"y\"\"\",,1.500,2\n,,z,1.500,NaN\n");
        let scalar = json!({"resultType": "scalar", "result": [1, "3"]});
        assert_eq!(csv(&rows(&scalar)), "time,value\n1.000,3\n");
    }

    #[test]
    fn a_table_says_once_what_all_series_share() {
        let series = |rank: &str, value: &str| json!({"metric": {"__name__": "m", "run": "r", "rank": rank}, "value": [0, value]});
        let data = json!({"resultType": "vector", "result": [series("0", "1"), series("1", "22")]});
        assert_eq!(
            show(&data),
            "all: m{run=\"r\"}\nVALUE  SERIES\n    1  {rank=\"0\"}\n   22  {rank=\"1\"}\nat 1970-01-01 00:00:00 UTC\n"
        );
        assert_eq!(show(&json!({"resultType": "vector", "result": []})), "nothing was found\n");
    }
}
