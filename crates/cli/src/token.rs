//! `truegauge token`: makes, lists and revokes access tokens, and logs a browser in.
//!
//! Through the server where one runs, else in its data directory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use server::{NewToken, TokenBook, TokenError};

use crate::args::{Done, json_flag};
use crate::http::{Server, escape, flags};
use crate::output::{Failure, note, print, print_json, print_line, printable};
use crate::table::{layout, time};

/// Longest wait for the server.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str, examples: &'static str| {
        Command::new(name).about(about).args(flags()).arg(json_flag()).after_help(examples)
    };
    let data_dir = || {
        Arg::new("data-dir")
            .long("data-dir")
            .value_name("PATH")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Directory of a server that does not run [default: ask the running one; if none runs, its usual directory]")
    };
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let create = verb(
        "create",
        "Make a token and print it, this once",
        "Examples:\n  truegauge token create --scope admin --name me\n  truegauge token create --scope ingest --scope read --org acme --project llm --expires 30d > token",
    )
    .arg(
        Arg::new("scope")
            .long("scope")
            .value_name("SCOPE")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .required(true)
            .help("What it may do: ingest, read, agent or admin; several with commas"),
    )
    .arg(text("name", "TEXT", "Whose it is or what for"))
    .arg(text("org", "NAME", "Confine it to an organization"))
    .arg(text("workspace", "NAME", "Confine it to a workspace, of the nameless organization unless `--org` is given"))
    .arg(text("project", "NAME", "Confine it to a project, of the nameless organization unless `--org` is given"))
    .arg(text("expires", "DURATION", "How long it is good, such as `12h` or `30d` [default: until it is revoked]"))
    .arg(data_dir());
    let list = verb(
        "list",
        "List tokens, without their secrets",
        "Examples:\n  truegauge token list\n  truegauge token list --data-dir /var/lib/truegauge --json",
    )
    .arg(data_dir());
    let revoke = verb(
        "revoke",
        "Take tokens back at once",
        "Examples:\n  truegauge token revoke tg_5f0c1a2b3d4e\n  truegauge token revoke 5f0c1a2b3d4e 0a1b2c3d4e5f --json",
    )
    .arg(Arg::new("id").required(true).num_args(1..).value_name("ID").help("As the list shows it"))
    .arg(data_dir());
    let login = verb(
        "login",
        "Print a link that logs one browser in with the rights of your token",
        "Examples:\n  truegauge token login\n  truegauge token login --url https://gauge.example.org",
    );
    Command::new("token")
        .about("Make, list and revoke access tokens; log a browser in")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Examples:\n  truegauge token create --scope read --name grafana\n  truegauge token list")
        .subcommands([create, list, revoke, login])
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some((verb, matches)) = matches.subcommand() else { return Err(Failure::new("no verb given")) };
    match verb {
        "create" => create(matches),
        "list" => list(matches),
        "revoke" => revoke(matches),
        _ => login(matches),
    }
}

/// Where the tokens are.
enum Place {
    Server(Server),
    Directory(TokenBook),
}

impl Place {
    /// The directory that is named, else the server, else, where nobody named one and none answers, the
    /// usual directory.
    fn of(matches: &ArgMatches) -> Result<Self, Failure> {
        if let Some(dir) = matches.get_one::<PathBuf>("data-dir") {
            return Self::directory(dir.clone());
        }
        let server = Server::of(matches);
        let is_named = matches.value_source("url") != Some(ValueSource::DefaultValue);
        if is_named || server.answers() {
            return Ok(Self::Server(server));
        }
        let dir = crate::up::defaults().data_dir;
        let dir = std::env::var_os("TRUEGAUGE_DATA_DIR").filter(|v| !v.is_empty()).map_or(dir, PathBuf::from);
        if !dir.join("catalogue.redb").exists() {
            return Err(Failure::new(format!(
                "no server answers at {}, and `{}` holds no store",
                server.shown(),
                dir.display()
            ))
            .hint("start a server with `truegauge up`, or name its directory with `--data-dir`"));
        }
        note(format_args!("no server runs: the token is kept in {}", dir.display()));
        Self::directory(dir)
    }

    fn directory(dir: PathBuf) -> Result<Self, Failure> {
        let book = TokenBook::open(&dir).map_err(|error| {
            Failure::new(error.to_string()).hint(
                "where a server has it open, ask that one: leave `--data-dir` out and set `TRUEGAUGE_URL`",
            )
        })?;
        Ok(Self::Directory(book))
    }
}

fn failure(error: TokenError) -> Failure {
    Failure::new(error.to_string()).hint(error.hint())
}

fn as_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn create(matches: &ArgMatches) -> Done {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let new = NewToken {
        name: text("name").unwrap_or_default(),
        scopes: matches.get_many::<String>("scope").into_iter().flatten().cloned().collect(),
        organization: text("org"),
        workspace: text("workspace"),
        project: text("project"),
        expires_seconds: text("expires").map(|text| life(&text)).transpose()?,
    };
    let made = match Place::of(matches)? {
        Place::Server(server) => server.post("/api/tg/v1/tokens", &as_json(&new), TIMEOUT)?,
        Place::Directory(book) => as_json(&book.create(&new).map_err(failure)?),
    };
    if matches.get_flag("json") {
        print_json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(made["token"].as_str().unwrap_or_default())?;
    note(format_args!(
        "{}; it is shown this once, `truegauge token revoke {}` takes it back",
        printable(&what(&made)),
        made["id"].as_str().unwrap_or_default()
    ));
    Ok(ExitCode::SUCCESS)
}

/// What a token may do, where and how long, in words.
fn what(row: &Value) -> String {
    let scopes: Vec<&str> =
        row["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let until = match row["expires_ms"].as_i64() {
        Some(expires_ms) => format!(", until {} UTC", time(expires_ms)),
        None => String::new(),
    };
    format!("{} {}{until}", scopes.join("+"), place(row))
}

/// What a token is confined to.
fn place(row: &Value) -> String {
    let names = ["organization", "workspace", "project"];
    let given = names.into_iter().filter_map(|name| Some((name, row[name].as_str()?)));
    let words: Vec<String> =
        given.filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name} {value}")).collect();
    if words.is_empty() { "everywhere".to_owned() } else { format!("in {}", words.join(", ")) }
}

fn life(text: &str) -> Result<u64, Failure> {
    let millis = promql::notation::parse_duration_ms(text).filter(|millis| *millis >= 1_000);
    millis.map(|millis| millis as u64 / 1_000).ok_or_else(|| {
        Failure::new(format!("`{}` is not a time that a token can be good for", printable(text)))
            .hint("write it as `90m`, `12h` or `30d`")
    })
}

fn list(matches: &ArgMatches) -> Done {
    let answer = match Place::of(matches)? {
        Place::Server(server) => server.get("/api/tg/v1/tokens")?,
        Place::Directory(book) => json!({"tokens": as_json(&book.list())}),
    };
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<&Value> = answer["tokens"].as_array().into_iter().flatten().collect();
    let cell = |row: &Value, name: &str| match &row[name] {
        Value::String(text) => text.clone(),
        Value::Number(ms) => time(ms.as_i64().unwrap_or_default()),
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("+"),
        _ => "-".to_owned(),
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells: Vec<String> = ["id", "state", "scopes"].map(|name| cell(row, name)).to_vec();
            cells.push(place(row));
            cells.extend(["created_ms", "expires_ms", "used_ms", "name"].map(|name| cell(row, name)));
            cells
        })
        .collect();
    let heads =
        ["ID", "STATE", "SCOPES", "WHERE", "CREATED (UTC)", "EXPIRES (UTC)", "LAST USED (UTC)", "NAME"];
    print(layout(&heads.map(|head| (head, false)), &cells).as_bytes())?;
    let count = cells.len();
    note(format_args!("{count} {}", if count == 1 { "token" } else { "tokens" }));
    Ok(ExitCode::SUCCESS)
}

fn revoke(matches: &ArgMatches) -> Done {
    let place = Place::of(matches)?;
    let mut rows = Vec::new();
    for id in matches.get_many::<String>("id").into_iter().flatten() {
        let row = match &place {
            Place::Server(server) => {
                server.ask("DELETE", &format!("/api/tg/v1/tokens/{}", escape(id)), TIMEOUT)?
            }
            Place::Directory(book) => as_json(&book.revoke(id).map_err(failure)?),
        };
        if !matches.get_flag("json") {
            print_line(&format!("revoked {}", row["id"].as_str().unwrap_or_default()))?;
        }
        rows.push(row);
    }
    if matches.get_flag("json") {
        print_json(&json!({"revoked": rows}))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn login(matches: &ArgMatches) -> Done {
    let server = Server::of(matches);
    let mut made = server.ask("POST", "/api/tg/v1/login-links", TIMEOUT)?;
    let url = format!("{}{}", server.shown(), made["path"].as_str().unwrap_or_default());
    if matches.get_flag("json") {
        made["url"] = url.into();
        print_json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&url)?;
    note(format_args!("works once, until {} UTC", time(made["until_ms"].as_i64().unwrap_or_default())));
    Ok(ExitCode::SUCCESS)
}
