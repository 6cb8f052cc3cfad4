//! `truegauge backup`: a copy of a data directory that is in use.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::export::{data_dir, open};
use crate::http::{Server, flags};
use crate::output::{Failure, note, print_json, printable};
use crate::table::bytes;

/// As long as a server lets a backup take.
const ANSWER_TIMEOUT: Duration = Duration::from_hours(6);

pub(crate) fn command() -> Command {
    Command::new("backup")
        .about("Copy the data directory of a server, while it goes on")
        .arg(
            Arg::new("to_dir")
                .required(true)
                .value_name("TO_DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Folder to make, on the server's machine; it must not exist"),
        )
        .arg(data_dir())
        .args(flags())
        .arg(json_flag())
        .after_help("Examples:\n  truegauge backup /backup/monday\n  truegauge backup /backup/monday --data-dir /data/truegauge")
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some(to_dir) = matches.get_one::<PathBuf>("to_dir") else {
        return Err(Failure::new("no folder given"));
    };
    let to_dir = std::path::absolute(to_dir)
        .map_err(|error| Failure::new(format!("cannot use `{}`: {error}", to_dir.display())))?;
    let made = if let Some(dir) = matches.get_one::<PathBuf>("data_dir") {
        offline(dir, &to_dir)?
    } else {
        let body = json!({"dir": to_dir.display().to_string()});
        Server::of(matches).post("/api/tg/v1/backup", &body, ANSWER_TIMEOUT)?
    };
    if matches.get_flag("json") {
        print_json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    let number = |name: &str| made[name].as_u64().unwrap_or_default();
    let (segments, linked) = (number("segments"), number("linked"));
    let shared = match linked {
        0 => String::new(),
        _ if linked == segments => ", segments shared with the original".to_owned(),
        _ => format!(", {linked} of {segments} segments shared with the original"),
    };
    let dir = made["dir"].as_str().unwrap_or_default();
    note(format_args!(
        "{}: {} in {:.1} s{shared}",
        printable(dir),
        bytes(number("bytes")),
        made["seconds"].as_f64().unwrap_or_default()
    ));
    note(format_args!("`truegauge up --data-dir {}` starts a server on it", printable(dir)));
    Ok(ExitCode::SUCCESS)
}

fn offline(dir: &Path, to_dir: &Path) -> Result<Value, Failure> {
    let started = Instant::now();
    let dir = open(dir)?;
    let made = dir.backup(to_dir).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    Ok(json!({
        "dir": to_dir.display().to_string(),
        "segments": made.segments,
        "linked": made.linked,
        "bytes": made.bytes,
        "seconds": started.elapsed().as_secs_f64(),
    }))
}
