//! `truegauge sync`: sends spools that their writers left.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use client::sync::{Progress, SyncError, SyncOutcome};
use serde_json::json;

use crate::args::{Done, json_flag};
use crate::output::{Failure, note, print_json, print_line, stderr_is_terminal};
use crate::{http, table};

/// Time between two lines of progress on a terminal, and elsewhere.
const REDRAW: Duration = Duration::from_millis(200);
const REPEAT: Duration = Duration::from_secs(10);

pub(crate) fn command() -> Command {
    Command::new("sync")
        .about("Send spools that their writers left behind to a server")
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("One spool, or a folder of spools [default: this user's spools]"),
        )
        .args(http::flags())
        .arg(json_flag())
        .after_help("Examples:\n  truegauge sync\n  truegauge sync /scratch/job-17/spool --url http://metrics.example.org:9494")
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let given = matches.get_one::<PathBuf>("dir");
    let dir = given.cloned().unwrap_or_else(client::default_spool_dir);
    let url = matches.get_one::<String>("url").map_or(client::DEFAULT_URL, String::as_str);
    let token = matches.get_one::<String>("token").map(String::as_str).filter(|token| !token.is_empty());
    let mut line = Line::new();
    let trust = client::Trust::from_env(|name| std::env::var(name).ok());
    let sent = client::sync::send_trusting(&dir, (url, token, &trust), &mut |progress| line.tell(&progress));
    line.end();
    let outcome = match sent {
        // Nothing was ever spooled on this machine: that is fine, unless a folder was named.
        Err(SyncError::NoSpool { dir }) if given.is_none() && !dir.exists() => SyncOutcome::default(),
        sent => sent.map_err(failure)?,
    };
    if matches.get_flag("json") {
        print_json(&json!({
            "spools": outcome.spools,
            "batches": outcome.batches,
            "points": outcome.points,
            "bytes": outcome.bytes,
            "busy": outcome.busy,
            "newer": outcome.newer,
            "refused": outcome.refused,
            "refused_points": outcome.refused_points,
            "damage": outcome.damage.iter().map(damage).collect::<Vec<_>>(),
        }))?;
    } else {
        summary(&outcome, url)?;
    }
    let found = !outcome.refused.is_empty()
        || !outcome.refused_points.is_empty()
        || !outcome.newer.is_empty()
        || !outcome.damage.is_empty();
    Ok(ExitCode::from(u8::from(found)))
}

fn summary(outcome: &SyncOutcome, url: &str) -> std::io::Result<()> {
    let SyncOutcome { spools, batches, points, bytes, .. } = outcome;
    let bytes = table::bytes(*bytes);
    let of = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    if *spools == 0 && *batches == 0 {
        print_line("nothing to send")?;
    } else {
        print_line(&format!(
            "sent {} to {}: {}, {bytes}, {} stored",
            of(*spools, "spool", "spools"),
            client::shown_url(url),
            of(*batches, "batch", "batches"),
            of(*points, "point", "points")
        ))?;
    }
    for dir in &outcome.busy {
        note(format_args!("left alone, its writer is alive: {}", dir.display()));
    }
    for dir in &outcome.newer {
        note(format_args!("left alone, a newer truegauge wrote it, update this one: {}", dir.display()));
    }
    for (reason, count) in &outcome.refused_points {
        note(format_args!("{count} points refused by the server: {}", crate::output::printable(reason)));
    }
    for words in &outcome.refused {
        note(format_args!("refused by the server: {}", crate::output::printable(words)));
    }
    for one in &outcome.damage {
        note(format_args!("damaged and stepped over: {}", damage(one)));
    }
    Ok(())
}

fn damage(damage: &spool::Damage) -> String {
    let spool::Damage { file, offset, bytes, why } = damage;
    format!("{} at {offset}, {bytes} bytes, {why:?}", file.display()).to_lowercase()
}

fn failure(error: SyncError) -> Failure {
    let hint = match &error {
        SyncError::Away { hint: Some(hint), .. } => (*hint).to_owned(),
        SyncError::Away { .. } => "what was not acknowledged stays in the spool: run it again later".into(),
        SyncError::Url(_) => String::new(),
        SyncError::NoSpool { .. } => "`truegauge doctor` shows where this user's spools lie".into(),
        SyncError::Spool(_) => "check that the folder is yours and readable".into(),
    };
    Failure::new(error.to_string()).hint(hint)
}

/// One line that is redrawn on a terminal, and repeated now and then elsewhere.
struct Line {
    on_terminal: bool,
    last: Option<Instant>,
    started: Instant,
    drawn: bool,
}

impl Line {
    fn new() -> Self {
        Self { on_terminal: stderr_is_terminal(), last: None, started: Instant::now(), drawn: false }
    }

    fn tell(&mut self, progress: &Progress<'_>) {
        let period = if self.on_terminal { REDRAW } else { REPEAT };
        if self.last.unwrap_or(self.started).elapsed() < period {
            return;
        }
        self.last = Some(Instant::now());
        let run = progress.header.map_or_else(|| "?".to_owned(), |header| header.path.run.clone());
        let text = format!(
            "{}: {} batches, {} sent, {} left",
            crate::output::printable(&run),
            progress.batches,
            table::bytes(progress.bytes),
            table::bytes(progress.bytes_left)
        );
        if self.on_terminal {
            self.drawn = true;
            let _ = std::io::Write::write_all(
                &mut std::io::stderr().lock(),
                format!("\r\x1b[K{text}").as_bytes(),
            );
        } else {
            note(text);
        }
    }

    fn end(&self) {
        if self.drawn {
            let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), b"\r\x1b[K");
        }
    }
}
