//! `truegauge remediation`: what is done about incidents, what waits for somebody to agree, and what a policy
//! would have done.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::http::{self, Server};
use crate::output::{Failure, note, print_json, print_line, printable};
use crate::table;

/// Longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_mins(1);
/// Largest policy that is read, bytes.
const POLICY_BYTES_MAX: u64 = 4 << 20;
/// Lines of the audit that one answer has at most.
const AUDIT_LINES_MAX: usize = 2_000;
const HOUR_MS: i64 = 3_600_000;

fn verb(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    Command::new(name).about(about).args(http::flags()).arg(json_flag()).after_help(examples)
}

fn id() -> Arg {
    Arg::new("id").required(true).value_name("ID").help("As `ls` shows it, such as tg-12")
}

fn reason() -> Arg {
    Arg::new("reason").long("reason").value_name("TEXT").default_value("").help("Why, for the audit")
}

/// The verbs that look.
fn looking() -> [Command; 5] {
    let ls = verb(
        "ls",
        "Show the mode, the pools, the machines that something is wrong with, and what waits",
        "Examples:\n  truegauge remediation ls\n  truegauge remediation ls --url https://gauge.example.org --json",
    );
    let show = verb(
        "show",
        "Show one action: its guards, whom it interrupts, and exactly which commands it runs",
        "Examples:\n  truegauge remediation show tg-12\n  truegauge remediation show tg-12 --json",
    )
    .arg(id());
    let replay = verb(
        "replay",
        "Say what a policy would have done about the incidents of the last hours; nothing runs",
        "Examples:\n  truegauge remediation replay --hours 168\n  truegauge remediation replay --policy next.toml --json",
    )
    .arg(
        Arg::new("hours")
            .long("hours")
            .value_name("N")
            .default_value("24")
            .value_parser(clap::value_parser!(u16).range(1..))
            .help("How far back"),
    )
    .arg(
        Arg::new("policy")
            .long("policy")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("A policy to try [default: the one in force]"),
    );
    let audit = verb(
        "audit",
        "List what was seen, decided, rehearsed and done, the latest first",
        "Examples:\n  truegauge remediation audit\n  truegauge remediation audit --host host-3 --limit 500\n  truegauge remediation audit --json --limit 2000",
    )
    .arg(Arg::new("host").long("host").value_name("HOST").help("Of this machine [default: of all]"))
    .arg(
        Arg::new("limit")
            .long("limit")
            .value_name("N")
            .default_value("50")
            .value_parser(clap::value_parser!(u32).range(1..))
            .help("Most lines"),
    )
    .arg(Arg::new("cursor").long("cursor").value_name("CURSOR").help("Where the answer before says to go on"));
    let check = Command::new("check")
        .about("Say all that is wrong with policies")
        .arg(
            Arg::new("files")
                .required(true)
                .action(ArgAction::Append)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("TOML files"),
        )
        .arg(json_flag())
        .after_help("Examples:\n  truegauge remediation check policy.toml\n  truegauge remediation check examples/remediation/slurm.toml --json");
    [ls, show, audit, replay, check]
}

/// The verbs by which a person decides.
fn deciding() -> [Command; 4] {
    let approve = verb(
        "approve",
        "Agree to an action: write down what would run, or run it with `--real HOST`",
        "Examples:\n  truegauge remediation approve tg-12\n  truegauge remediation approve tg-12 --real host-3\n  truegauge remediation approve tg-12 --real host-3 --unconfirmed",
    )
    .arg(id())
    .arg(
        Arg::new("unconfirmed")
            .long("unconfirmed")
            .action(ArgAction::SetTrue)
            .requires("real")
            .help("Nobody but a run says that it is on that machine, and you have looked"),
    )
    .arg(
        Arg::new("real")
            .long("real")
            .value_name("HOST")
            .help("Run the commands; HOST is the machine that is taken out, so that it is the one you mean"),
    );
    let propose = verb(
        "propose",
        "Propose the policy's action about a machine: it waits until somebody agrees",
        "Examples:\n  truegauge remediation propose host-3 --reason 'fan is loud'\n  truegauge remediation propose host-3 --uuid GPU-8f2c --on drain_reset --json",
    )
    .arg(Arg::new("host").required(true).value_name("HOST").help("The machine, as its agent calls it"))
    .arg(Arg::new("uuid").long("uuid").value_name("UUID").help("A card of it [default: the whole machine]"))
    .arg(Arg::new("incident").long("incident").value_name("ID").help("The open incident that it is about"))
    .arg(
        Arg::new("verdict")
            .long("verdict")
            .value_name("ID")
            .help("The verdict on a run that it is about, by its id or class"),
    )
    .arg(
        Arg::new("on")
            .long("on")
            .value_name("VERDICT")
            .help("Whose action is wanted [default: that of what is open; else what takes the machine out]"),
    )
    .arg(reason());
    let reject = verb(
        "reject",
        "Say no to an action",
        "Examples:\n  truegauge remediation reject tg-12 --reason 'replaced today'\n  truegauge remediation reject tg-12 --json",
    )
    .arg(id())
    .arg(reason());
    let healthy = verb(
        "healthy",
        "Say that a machine is well: what is open on it ends",
        "Examples:\n  truegauge remediation healthy host-3 --reason 'card replaced'\n  truegauge remediation healthy host-3 --json",
    )
    .arg(Arg::new("host").required(true).value_name("HOST").help("The machine"))
    .arg(reason());
    [propose, approve, reject, healthy]
}

pub(crate) fn command() -> Command {
    let [ls, show, audit, replay, check] = looking();
    let [propose, approve, reject, healthy] = deciding();
    Command::new("remediation")
        .about("See what is done about incidents, agree to it or not, check and replay policies")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge remediation ls\n  truegauge remediation check policy.toml")
        .subcommands([ls, show, audit, propose, approve, reject, healthy, replay, check])
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some((verb, matches)) = matches.subcommand() else { return Err(Failure::new("no verb given")) };
    match verb {
        "ls" => ls(matches),
        "show" => show(matches),
        "audit" => audit(matches),
        "propose" => propose(matches),
        "approve" => approve(matches),
        "reject" => act(matches, "id", "reject", &json!({ "reason": text(matches, "reason") })),
        "healthy" => {
            let body = json!({ "state": "healthy", "reason": text(matches, "reason") });
            act(matches, "host", "state", &body)
        }
        "replay" => replay(matches),
        _ => check(matches),
    }
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn rows<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap_or_default().to_owned()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How long ago a time of the answer was.
fn ago(of: &Value, name: &str) -> String {
    let ms = of[name].as_i64().map_or(0, |at| now_ms().saturating_sub(at));
    table::duration(ms as f64 / 1e3)
}

fn ls(matches: &ArgMatches) -> Done {
    let answer = Server::of(matches).get("/api/tg/v1/remediation")?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&printable(&headline(&answer)))?;
    let hosts: Vec<Vec<String>> = rows(&answer, "hosts")
        .iter()
        .filter(|row| row["state"] != "healthy")
        .map(|row| {
            let state = word(row, "state");
            vec![word(row, "host"), word(row, "gpu"), state, ago(row, "since"), word(row, "reason")]
        })
        .collect();
    if !hosts.is_empty() {
        let columns = [("HOST", false), ("GPU", false), ("STATE", false), ("SINCE", true), ("WHY", false)];
        print_line(&format!("\n{}", table::layout(&columns, &hosts)))?;
    }
    let plan = |row: &Value| {
        let (id, host) = (word(row, "id"), word(row, "host"));
        vec![id, host, word(row, "verdict"), word(row, "status"), word(row, "mode"), word(row, "title")]
    };
    let plans = rows(&answer, "executing").iter().chain(rows(&answer, "queue"));
    let plans: Vec<Vec<String>> = plans.map(plan).collect();
    if !plans.is_empty() {
        let columns = [
            ("ID", false),
            ("HOST", false),
            ("VERDICT", false),
            ("STATUS", false),
            ("MODE", false),
            ("WHAT", false),
        ];
        print_line(table::layout(&columns, &plans).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn headline(answer: &Value) -> String {
    let mut text = format!("mode {}", word(answer, "mode"));
    if let Some(reason) = answer["reason"].as_str() {
        let _ = write!(text, ": {reason}");
    }
    if answer["policy"].is_object() {
        let policy = &answer["policy"];
        let _ = write!(text, ", policy {} revision {}", word(policy, "name"), policy["revision"]);
    }
    for pool in rows(answer, "pools") {
        let _ = write!(
            text,
            "\npool {}: {} nodes, {} of {} in remediation, breaker {}{}",
            word(pool, "pool"),
            pool["nodes"],
            pool["in_remediation"],
            pool["budget"],
            word(pool, "breaker"),
            if pool["quiet"] == true { ", quiet window" } else { "" }
        );
        if pool["nodes"] == 0 {
            text.push_str("; no machine that was heard of fits its `hosts`");
        }
    }
    text
}

fn show(matches: &ArgMatches) -> Done {
    let wanted = text(matches, "id");
    let answer = Server::of(matches).get("/api/tg/v1/remediation")?;
    let mut all = rows(&answer, "queue").iter().chain(rows(&answer, "executing"));
    let plan = all.find(|row| row["id"] == wanted).ok_or_else(|| {
        Failure::new(format!("nothing waits or runs as `{wanted}`"))
            .hint("`truegauge remediation ls` lists what does")
    })?;
    print_plan(matches, plan)
}

fn propose(matches: &ArgMatches) -> Done {
    let given = |name: &str| matches.get_one::<String>(name);
    let body = json!({
        "host": text(matches, "host"), "uuid": given("uuid"), "incident": given("incident"),
        "verdict": given("verdict"), "on": given("on"), "reason": text(matches, "reason"),
    });
    let plan = Server::of(matches).post("/api/tg/v1/remediation/propose", &body, ANSWER_TIME)?;
    print_plan(matches, &plan)
}

fn print_plan(matches: &ArgMatches, plan: &Value) -> Done {
    if matches.get_flag("json") {
        print_json(plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = format!(
        "{} {} on {}\n{}\n",
        word(plan, "id"),
        word(plan, "verdict"),
        word(plan, "host"),
        word(plan, "title")
    );
    for job in rows(plan, "affects") {
        let gpus = job["gpus"].as_u64().map(|gpus| format!(", {gpus} GPUs")).unwrap_or_default();
        let dead = if job["dead"] == true { ", dead" } else { "" };
        let _ = writeln!(lines, "interrupts {}{gpus}{dead}", word(job, "run"));
    }
    if plan["checkpoint"].is_object() {
        let _ = writeln!(lines, "checkpoint at step {}", plan["checkpoint"]["step"]);
    }
    let _ = writeln!(lines, "{}", lost(&plan["lost"]));
    if let Some(why) = plan["unconfirmed"].as_str() {
        let _ = writeln!(lines, "unconfirmed: {why}");
    }
    lines.push_str("\nguards\n");
    for guard in rows(plan, "guards") {
        let mark = match guard["ok"].as_bool() {
            Some(true) => "ok ",
            Some(false) => "no ",
            None => "?  ",
        };
        let _ = writeln!(lines, "  {mark} {}", word(guard, "text"));
    }
    lines.push_str("\nexactly these commands, in this order\n");
    for command in rows(plan, "commands") {
        let _ = writeln!(lines, "  {}  {}", command["n"], word(command, "text"));
    }
    let _ = write!(lines, "\nkey {}: runs at most once", word(plan, "key"));
    print_line(&printable(&lines))?;
    Ok(ExitCode::SUCCESS)
}

/// What is lost, as far as it is known.
fn lost(lost: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(lost["steps"].as_i64().map(|steps| format!("{steps} steps")));
    parts.extend(lost["seconds"].as_f64().map(table::duration));
    parts.extend(lost["usd"].as_f64().map(|usd| format!("${usd:.2}")));
    let reason = lost["reason"].as_str().map(str::to_owned);
    match (parts.is_empty(), reason) {
        (true, Some(reason)) => format!("loses what nobody knows: {reason}"),
        (false, Some(reason)) => format!("loses {}; {reason}", parts.join(", ")),
        (_, None) => format!("loses {}", parts.join(", ")),
    }
}

/// Lines of the audit: as many as are asked for, in as many answers as that takes.
fn audit(matches: &ArgMatches) -> Done {
    let server = Server::of(matches);
    let limit = matches.get_one::<u32>("limit").copied().unwrap_or(50) as usize;
    let host = matches.get_one::<String>("host").map(|host| format!("&host={}", http::escape(host)));
    let host = host.unwrap_or_default();
    let mut next = matches.get_one::<String>("cursor").cloned();
    let mut lines: Vec<Value> = Vec::new();
    while lines.len() < limit {
        let cursor = next.map(|next| format!("&cursor={}", http::escape(&next))).unwrap_or_default();
        let count = (limit - lines.len()).min(AUDIT_LINES_MAX);
        let answer = server.get(&format!("/api/tg/v1/remediation/audit?limit={count}{host}{cursor}"))?;
        lines.extend(rows(&answer, "audit").iter().cloned());
        next = answer["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    if matches.get_flag("json") {
        print_json(&json!({ "audit": lines, "next": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = |row: &Value| {
        let (from, to) = (word(row, "from"), word(row, "to"));
        let state = if from == to { to } else { format!("{from} > {to}") };
        let time = table::time(row["time"].as_i64().unwrap_or_default());
        let what = if row["dry_run"] == true { "rehearsal".to_owned() } else { word(row, "what") };
        vec![time, word(row, "host"), state, what, word(row, "actor"), word(row, "id"), word(row, "text")]
    };
    let table: Vec<Vec<String>> = lines.iter().map(line).collect();
    let columns = ["TIME (UTC)", "HOST", "STATE", "WHAT", "WHO", "ID", "TEXT"].map(|name| (name, false));
    print_line(table::layout(&columns, &table).trim_end())?;
    if let Some(next) = next {
        note(format_args!("there is more: go on with `--cursor {next}`"));
    }
    Ok(ExitCode::SUCCESS)
}

fn approve(matches: &ArgMatches) -> Done {
    let is_known = matches.get_flag("unconfirmed");
    let confirm = |host: &String| if is_known { format!("{host} unconfirmed") } else { host.clone() };
    let body = match matches.get_one::<String>("real").map(confirm) {
        Some(host) => json!({ "dry_run": false, "confirm": host }),
        None => json!({ "dry_run": true }),
    };
    act(matches, "id", "approve", &body)
}

/// Sends what somebody says, and tells that it was taken.
fn act(matches: &ArgMatches, name: &str, what: &str, body: &Value) -> Done {
    let of = text(matches, name);
    let path = format!("/api/tg/v1/remediation/{}/{what}", http::escape(of));
    Server::of(matches).tell("POST", &path, body, ANSWER_TIME)?;
    if matches.get_flag("json") {
        print_json(&json!({ "id": of, "done": what, "said": body }))?;
    } else if std::io::stdout().is_terminal() {
        note(format_args!("taken: the audit has it (`truegauge remediation ls`)"));
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(matches: &ArgMatches) -> Done {
    let hours = i64::from(matches.get_one::<u16>("hours").copied().unwrap_or(24));
    let policy = matches.get_one::<PathBuf>("policy").map(|path| read(path)).transpose()?;
    let to = now_ms();
    let body = json!({ "from": to.saturating_sub(hours * HOUR_MS), "to": to, "policy": policy });
    let answer = Server::of(matches).post("/api/tg/v1/remediation/replay", &body, ANSWER_TIME)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&printable(&word(&answer, "text")))?;
    for pool in rows(&answer, "pools") {
        let line = format!(
            "pool {}: {} nodes, at most {} out at once",
            word(pool, "pool"),
            pool["nodes"],
            pool["most_out"]
        );
        print_line(&printable(&line))?;
    }
    let plans: Vec<Vec<String>> = rows(&answer, "plans")
        .iter()
        .map(|row| {
            let waits = rows(row, "guards").iter().filter(|guard| guard["ok"] != true);
            let waits: Vec<String> = waits.map(|guard| word(guard, "name")).collect();
            vec![
                word(row, "host"),
                word(row, "verdict"),
                word(row, "mode"),
                word(row, "status"),
                waits.join(" "),
            ]
        })
        .collect();
    if !plans.is_empty() {
        let columns = [
            ("HOST", false),
            ("VERDICT", false),
            ("MODE", false),
            ("OUTCOME", false),
            ("HELD BACK BY", false),
        ];
        print_line(&format!("\n{}", table::layout(&columns, &plans).trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, Failure> {
    let cannot = |why: String| Failure::new(format!("cannot read the policy `{}`: {why}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?.len();
    if length > POLICY_BYTES_MAX {
        return Err(cannot(format!("it has {length} bytes, at most {POLICY_BYTES_MAX} are read")));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))
}

fn check(matches: &ArgMatches) -> Done {
    let mut all = Vec::new();
    let mut is_good = true;
    for path in matches.get_many::<PathBuf>("files").into_iter().flatten() {
        let file = path.display().to_string();
        let checked = server::check_policy(&read(path)?);
        is_good &= checked.is_ok();
        let (lines, row) = match checked {
            Ok((name, revision, pools, actions)) => (
                vec![format!("{file}: {name} revision {revision}, pools {pools}, actions {actions}")],
                json!({ "file": file, "name": name, "revision": revision, "pools": pools, "actions": actions, "findings": [] }),
            ),
            Err(findings) => (
                findings.iter().map(|finding| format!("{file}: {finding}")).collect(),
                json!({ "file": file, "findings": findings }),
            ),
        };
        all.push(row);
        if !matches.get_flag("json") {
            for line in lines {
                print_line(&printable(&line))?;
            }
        }
    }
    if matches.get_flag("json") {
        print_json(&Value::from(all))?;
    }
    Ok(ExitCode::from(u8::from(!is_good)))
}
