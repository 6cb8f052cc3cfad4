//! `truegauge alerts`: what fires, what fired, whom it was told to; silences; the file of receivers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use promql::notation::parse_duration_ms;
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::http::{Server, escape, flags};
use crate::output::{Failure, print, print_json, print_line, printable};
use crate::query::now_seconds;
use crate::table::{duration, layout, time};

/// Longest wait for the server.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str, examples: &'static str| {
        Command::new(name).about(about).args(flags()).arg(json_flag()).after_help(examples)
    };
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let limit =
        || text("limit", "N", "Most rows").value_parser(clap::value_parser!(usize)).default_value("50");
    let ls = verb(
        "ls",
        "List alerts that fire or are pending",
        "Examples:\n  truegauge alerts ls\n  truegauge alerts ls --json",
    );
    let history = verb(
        "history",
        "List what fired, the latest first",
        "Examples:\n  truegauge alerts history\n  truegauge alerts history --since 7d --json",
    )
    .arg(text("since", "DURATION", "How far back").default_value("1d"))
    .arg(limit());
    let deliveries = verb(
        "deliveries",
        "List whom alerts were told to, and how that went",
        "Examples:\n  truegauge alerts deliveries\n  truegauge alerts deliveries --limit 500 --json",
    )
    .arg(limit());
    let silence = verb(
        "silence",
        "Keep alerts from being told for a while",
        "Examples:\n  truegauge alerts silence alertname=TargetDown 'instance=~\"engine-7.*\"' --for 2h --reason 'image rollout'\n  truegauge alerts silence run_id=79d229c9380dbce7 --for 30m --reason debugging --json",
    )
    .arg(Arg::new("matcher").required(true).num_args(1..).value_name("LABEL=VALUE").help("Condition on an alert's labels: `=`, `!=`, `=~` or `!~`; all must hold"))
    .arg(text("for", "DURATION", "For how long, such as `2h`").required(true))
    .arg(text("reason", "TEXT", "Why").required(true))
    .arg(text("by", "NAME", "Who says so [default: $USER]"));
    let silences = verb(
        "silences",
        "List silences",
        "Examples:\n  truegauge alerts silences\n  truegauge alerts silences --json",
    );
    let unsilence = verb(
        "unsilence",
        "End a silence now",
        "Examples:\n  truegauge alerts unsilence 5f0c1a2b3d4e5f60\n  truegauge alerts unsilence 5f0c1a2b3d4e5f60 --json",
    )
    .arg(Arg::new("id").required(true).value_name("ID").help("As `silences` shows it"));
    let check = Command::new("check")
        .about("Say what is wrong with a file of receivers")
        .arg(json_flag())
        .arg(Arg::new("file").required(true).value_name("FILE").value_parser(clap::value_parser!(PathBuf)).help("The file"))
        .after_help("Examples:\n  truegauge alerts check receivers.toml\n  truegauge alerts check receivers.toml --json");
    Command::new("alerts")
        .about("List alerts, silence them, and see whom they were told to")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge alerts ls\n  truegauge alerts silence alertname=TargetDown --for 2h --reason rollout")
        .subcommands([ls, history, deliveries, silence, silences, unsilence, check])
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some((verb, matches)) = matches.subcommand() else { return Err(Failure::new("no verb given")) };
    if verb == "check" {
        return check(matches);
    }
    let server = Server::of(matches);
    match verb {
        "ls" => ls(&server, matches),
        "history" => history(&server, matches),
        "deliveries" => deliveries(&server, matches),
        "silence" => silence(&server, matches),
        "silences" => silences(&server, matches),
        _ => unsilence(&server, matches),
    }
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn millis(text: &str) -> Result<i64, Failure> {
    parse_duration_ms(text).filter(|millis| *millis > 0).ok_or_else(|| {
        Failure::new(format!("`{}` is no duration", printable(text))).hint("write one such as `2h` or `30m`")
    })
}

/// Now, milliseconds since the epoch.
fn now_ms() -> i64 {
    (now_seconds() * 1e3) as i64
}

fn rows(answer: &Value, name: &str) -> Vec<Value> {
    answer[name].as_array().cloned().unwrap_or_default()
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "—".to_owned(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

/// The labels of an alert without those that other columns show.
fn labels(alert: &Value) -> String {
    let of = alert["labels"].as_object().into_iter().flatten();
    let shown = of.filter(|(name, _)| !["alertname", "severity"].contains(&name.as_str()));
    let texts: Vec<String> = shown.map(|(name, value)| format!("{name}={}", word(value))).collect();
    texts.join(" ")
}

fn ls(server: &Server, matches: &ArgMatches) -> Done {
    let answer = server.get("/api/tg/v1/alerts/summary")?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let groups = rows(&answer, "groups");
    let alerts = groups.iter().flat_map(|group| rows(group, "alerts"));
    let table: Vec<Vec<String>> = alerts
        .map(|alert| {
            let silenced = alert["silenced_by"].as_array().is_some_and(|ids| !ids.is_empty());
            let state = if silenced { "silenced".to_owned() } else { word(&alert["state"]) };
            vec![
                state,
                word(&alert["severity"]),
                word(&alert["rule"]),
                time(alert["since"].as_i64().unwrap_or_default()),
                word(&alert["value"]),
                labels(&alert),
            ]
        })
        .collect();
    let columns = [
        ("STATE", false),
        ("SEVERITY", false),
        ("RULE", false),
        ("SINCE (UTC)", false),
        ("VALUE", true),
        ("LABELS", false),
    ];
    if table.is_empty() {
        print_line(&format!("nothing fires; {} rules are in force", answer["rules"]))?;
    } else {
        print(layout(&columns, &table).as_bytes())?;
    }
    for error in rows(&answer, "errors") {
        print_line(&format!("rule {} fails: {}", word(&error["rule"]), word(&error["error"])))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn history(server: &Server, matches: &ArgMatches) -> Done {
    let since = millis(text(matches, "since"))?;
    let from = now_ms().saturating_sub(since);
    let limit = matches.get_one::<usize>("limit").copied().unwrap_or(50);
    let answer = server.get(&format!("/api/tg/v1/alerts/history?from={from}&limit={limit}"))?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let table: Vec<Vec<String>> = rows(&answer, "firings")
        .iter()
        .map(|firing| {
            vec![
                time(firing["start"].as_i64().unwrap_or_default()),
                firing["end"].as_i64().map_or_else(|| "fires".to_owned(), time),
                duration(firing["seconds"].as_f64().unwrap_or_default()),
                word(&firing["severity"]),
                word(&firing["rule"]),
                labels(firing),
            ]
        })
        .collect();
    let columns = [
        ("START (UTC)", false),
        ("END (UTC)", false),
        ("LASTED", true),
        ("SEVERITY", false),
        ("RULE", false),
        ("LABELS", false),
    ];
    print(layout(&columns, &table).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn deliveries(server: &Server, matches: &ArgMatches) -> Done {
    let limit = matches.get_one::<usize>("limit").copied().unwrap_or(50);
    let answer = server.get(&format!("/api/tg/v1/deliveries?limit={limit}"))?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let table: Vec<Vec<String>> = rows(&answer, "deliveries")
        .iter()
        .map(|row| {
            let names: Vec<String> = rows(row, "rules").iter().map(word).collect();
            vec![
                time(row["time"].as_i64().unwrap_or_default()),
                names.join(","),
                word(&row["state"]),
                word(&row["alerts"]),
                format!("{} {}", word(&row["kind"]), word(&row["receiver"])),
                word(&row["result"]),
                word(&row["status"]),
                word(&row["error"]),
            ]
        })
        .collect();
    let columns = [
        ("TIME (UTC)", false),
        ("RULES", false),
        ("STATE", false),
        ("ALERTS", true),
        ("TO", false),
        ("RESULT", false),
        ("STATUS", true),
        ("WHY", false),
    ];
    print(layout(&columns, &table).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn silence(server: &Server, matches: &ArgMatches) -> Done {
    let given = matches.get_many::<String>("matcher").into_iter().flatten();
    let conditions = given.map(|text| server::alert_condition(text)).collect::<Result<Vec<Value>, String>>();
    let conditions = conditions.map_err(Failure::new)?;
    let by = matches.get_one::<String>("by").cloned().or_else(|| std::env::var("USER").ok());
    let body = json!({
        "matchers": conditions,
        "ends_at": now_ms().saturating_add(millis(text(matches, "for"))?),
        "comment": text(matches, "reason"),
        "created_by": by.unwrap_or_default(),
    });
    let made = server.post("/api/tg/v1/silences", &body, TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&made)?;
    } else {
        let until = time(made["ends_at"].as_i64().unwrap_or_default());
        print_line(&format!("silence {} holds until {until} UTC", word(&made["id"])))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn silences(server: &Server, matches: &ArgMatches) -> Done {
    let answer = server.get("/api/tg/v1/silences")?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let condition = |of: &Value| {
        let op = match (of["is_regex"] == true, of["is_equal"] == true) {
            (false, true) => "=",
            (false, false) => "!=",
            (true, true) => "=~",
            (true, false) => "!~",
        };
        format!("{}{op}{}", word(&of["name"]), word(&of["value"]))
    };
    let table: Vec<Vec<String>> = rows(&answer, "silences")
        .iter()
        .map(|silence| {
            let conditions: Vec<String> = rows(silence, "matchers").iter().map(condition).collect();
            vec![
                word(&silence["id"]),
                word(&silence["state"]),
                time(silence["ends_at"].as_i64().unwrap_or_default()),
                word(&silence["created_by"]),
                conditions.join(" "),
                word(&silence["comment"]),
            ]
        })
        .collect();
    let columns = [
        ("ID", false),
        ("STATE", false),
        ("UNTIL (UTC)", false),
        ("BY", false),
        ("ALERTS", false),
        ("REASON", false),
    ];
    print(layout(&columns, &table).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn unsilence(server: &Server, matches: &ArgMatches) -> Done {
    let id = text(matches, "id");
    server.tell("DELETE", &format!("/api/tg/v1/silences/{}", escape(id)), &json!({}), TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&json!({"ended": id}))?;
    } else {
        print_line(&format!("silence {} is over", printable(id)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(matches: &ArgMatches) -> Done {
    let Some(file) = matches.get_one::<PathBuf>("file") else { return Err(Failure::new("no file given")) };
    let found = server::check_receivers(file).map_err(|error| {
        Failure::new(error.to_string()).hint("docs/guides/alerting.md shows how it is written")
    })?;
    if matches.get_flag("json") {
        print_json(&json!({"receivers": found}))?;
    } else {
        print_line(&format!("{}: {} receivers: {}", file.display(), found.len(), found.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
