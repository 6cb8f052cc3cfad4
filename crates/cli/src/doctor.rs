//! `truegauge doctor`: looks for what would keep this machine from recording or showing runs.

mod capture;
mod gpus;
mod otlp;
mod storage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use rustix::fs::{Access, access, statvfs};
use serde_json::json;
use server::config::{Config, Given};

use crate::args::{Done, json_flag};
use crate::http::{self, Server};
use crate::output::{Failure, print, print_json};
use crate::table::{bytes, layout};
use crate::up;

/// Longest wait for the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Open files that a server with many connections may need.
const FILES_WANTED: u64 = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One thing looked at.
struct Check {
    id: &'static str,
    verdict: Verdict,
    evidence: String,
    fix: String,
}

fn ok(id: &'static str, evidence: impl Into<String>) -> Check {
    Check { id, verdict: Verdict::Ok, evidence: evidence.into(), fix: String::new() }
}

fn warn(id: &'static str, evidence: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { id, verdict: Verdict::Warn, evidence: evidence.into(), fix: fix.into() }
}

fn fail(id: &'static str, evidence: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { verdict: Verdict::Fail, ..warn(id, evidence, fix) }
}

pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Look for what would keep this machine from recording or showing runs")
        .arg(
            Arg::new("data_dir")
                .long("data-dir")
                .value_name("PATH")
                .help("Directory of the store [default: as `truegauge up`]"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .env("TRUEGAUGE_CONFIG")
                .hide_env_values(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The server's TOML file: the far storage that it names is looked at too"),
        )
        .args(http::flags())
        .arg(json_flag())
        .after_help("Examples:\n  truegauge doctor\n  truegauge doctor --url http://metrics.example.org:9494 --json\n  truegauge doctor --config /etc/truegauge/config.toml\n\nExit code 1 when a check fails; a warning is no failure.")
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let mut given = Given::new();
    if let Some(dir) = matches.get_one::<String>("data_dir") {
        given.insert("data_dir", vec![dir.clone()]);
    }
    let file = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let config = Config::resolve(up::defaults(), &given, &|name| std::env::var(name).ok(), file)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let mut checks = Vec::new();
    checks.extend(cgroup());
    let capture = capture::look();
    checks.extend(capture.checks());
    checks.extend(gpus::profiling());
    checks.push(spool_dir(&config.spool_dir));
    checks.push(data_dir(&config.data_dir, config.reserve_bytes));
    checks.push(open_files());
    checks.extend(storage::settings(&config));
    checks.extend(server(matches, &config));
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    if matches.get_flag("json") {
        let rows: Vec<_> = checks
            .iter()
            .map(|c| json!({"id": c.id, "status": word(c.verdict), "evidence": c.evidence, "fix": c.fix}))
            .collect();
        print_json(&json!({"ok": !failed, "checks": rows, "capture": capture.json()}))?;
    } else {
        print(page(&checks).as_bytes())?;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    }
}

/// The checks as a list; evidence and fix are whole sentences and are not cut.
fn page(checks: &[Check]) -> String {
    let rows: Vec<Vec<String>> = checks.iter().map(|c| vec![word(c.verdict).into(), c.id.into()]).collect();
    let heads = layout(&[("", false), ("", false)], &rows);
    let width = heads.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut page = String::new();
    for (head, check) in heads.lines().skip(1).zip(checks) {
        let _ = writeln!(page, "{head:<width$}  {}", crate::output::printable(&check.evidence));
        if !check.fix.is_empty() {
            let _ = writeln!(page, "{:<width$}  fix: {}", "", check.fix);
        }
    }
    page
}

/// What CPU and memory numbers are measured against.
fn cgroup() -> Vec<Check> {
    if !collect::SUPPORTED {
        let fix = "run on Linux; everything but capture works here";
        return vec![warn("cgroup", "this system's numbers are not captured", fix)];
    }
    let facts = collect::facts(&collect::Host::real());
    let mut checks = Vec::new();
    let mode = format!("mode {}", facts.mode.as_str());
    match &facts.memory {
        Some(memory) => {
            let limit = memory
                .limit_bytes
                .map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", bytes(limit)));
            let ceiling = bytes(memory.ceiling_bytes);
            checks.push(ok(
                "cgroup.memory",
                format!("{mode}, {limit} at {}, measured against {ceiling}", memory.path),
            ));
        }
        None => checks.push(fail(
            "cgroup.memory",
            format!("{mode}, neither a cgroup nor /proc/meminfo tells of memory"),
            "mount /proc and /sys/fs/cgroup into the container",
        )),
    }
    match &facts.cpu {
        Some(cpu) => checks.push(ok(
            "cgroup.cpu",
            format!("{mode}, {} CPUs by {}, time from {}", cpu.capacity_cpus, cpu.source.as_str(), cpu.path),
        )),
        None => checks.push(fail(
            "cgroup.cpu",
            format!("{mode}, nothing tells of CPU time"),
            "mount /proc and /sys/fs/cgroup into the container",
        )),
    }
    for problem in facts.problems {
        checks.push(warn("cgroup.read", problem, "check the permissions of the file"));
    }
    checks
}

/// Whether runs can be kept while no server is to be had.
fn spool_dir(dir: &Path) -> Check {
    let fix = || format!("make `{}` yours, or set `TRUEGAUGE_SPOOL_DIR`", dir.display());
    match usable(dir) {
        Err(why) => fail("spool", why, fix()),
        Ok(state) => {
            let waiting = spool::list(dir).len();
            ok("spool", format!("{} {state}, {waiting} spools in it", dir.display()))
        }
    }
}

/// Whether a server could keep points here.
fn data_dir(dir: &Path, reserve_bytes: u64) -> Check {
    let state = match usable(dir) {
        Err(why) => return fail("data", why, "choose another with `--data-dir` or `TRUEGAUGE_DATA_DIR`"),
        Ok(state) => state,
    };
    let Some(free) = existing(dir).and_then(|at| statvfs(&at).ok()).map(|fs| fs.f_bavail * fs.f_frsize)
    else {
        return warn(
            "data",
            format!("{} {state}, its disk can't be asked for free space", dir.display()),
            "check the mount",
        );
    };
    let evidence =
        format!("{} {state}, {} free, reserve {}", dir.display(), bytes(free), bytes(reserve_bytes));
    if free < reserve_bytes {
        fail("data", evidence, "free space: below the reserve the server refuses writes")
    } else if free < reserve_bytes.saturating_mul(4) {
        warn("data", evidence, "free space soon: below the reserve the server refuses writes")
    } else {
        ok("data", evidence)
    }
}

/// The path, or its nearest parent that is there.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|at| at.exists()).map(Path::to_owned)
}

/// Whether files can be made in `dir`, or `dir` itself can be.
fn usable(dir: &Path) -> Result<&'static str, String> {
    let at = existing(dir).ok_or_else(|| format!("nothing of {} is there", dir.display()))?;
    if !at.is_dir() {
        return Err(format!("{} is not a directory", at.display()));
    }
    access(&at, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("{} can't be written to: {error}", at.display()))?;
    Ok(if at == dir { "is writable" } else { "can be made" })
}

fn open_files() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < FILES_WANTED => warn(
            "files",
            format!("{limit} open files allowed, {FILES_WANTED} are wanted"),
            format!("`ulimit -n {FILES_WANTED}` where the server starts"),
        ),
        Some(limit) => ok("files", format!("{limit} open files allowed")),
        None => ok("files", "any number of open files allowed"),
    }
}

/// What the server's files hold, for whoever may see it.
fn kept(store: &serde_json::Value) -> Option<Check> {
    let of = |class: &str| store["class_bytes"][class].as_u64().map(bytes);
    Some(ok(
        "kept",
        format!(
            "samples of runs {}, of no run {}, their roll-ups of 1 minute {}, of 15 minutes {}; {} spans {}, \
             {} log records {}",
            of("run")?,
            of("fleet")?,
            of("rollup_1m")?,
            of("rollup_15m")?,
            store["spans"].as_u64()?,
            of("spans")?,
            store["records"].as_u64()?,
            of("records")?
        ),
    ))
}

/// Whether the server answers, and is of our version.
fn server(matches: &ArgMatches, config: &Config) -> Vec<Check> {
    let server = Server::of(matches);
    let chosen = matches.value_source("url").is_some_and(|source| source != ValueSource::DefaultValue);
    let status = match server.ask("GET", "/api/tg/v1/status", SERVER_TIMEOUT) {
        Ok(status) => status,
        Err(failure) => {
            let evidence = failure.message().to_owned();
            let next = failure.next_step().unwrap_or("look into the server's log");
            let fix = format!("runs go to the spool meanwhile; {next}");
            return vec![if chosen { fail("server", evidence, fix) } else { warn("server", evidence, fix) }];
        }
    };
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = status["version"].as_str().unwrap_or("unknown");
    let answered = match status["readonly_reason"].as_str() {
        None => ok("server", format!("{} answers", server.shown())),
        Some(reason) => {
            fail("server", format!("{} refuses writes: {reason}", server.shown()), "free space on its disk")
        }
    };
    let version = if ours == theirs {
        ok("version", format!("server and command are both {ours}"))
    } else {
        warn(
            "version",
            format!("the server is {theirs}, this command is {ours}"),
            "install the same version on both sides",
        )
    };
    let damage: Vec<&str> =
        status["store"]["damage"].as_array().into_iter().flatten().filter_map(|d| d.as_str()).collect();
    let mut checks = vec![answered, version];
    if let Some(first) = damage.first() {
        let evidence = format!("{} damaged places, the first: {first}", damage.len());
        checks.push(fail(
            "store",
            evidence,
            "the rest is readable; restore the files from a backup if there is one",
        ));
    }
    checks.extend(kept(&status["store"]));
    checks.extend(otlp::running(&status));
    checks.extend(storage::running(&server, config));
    checks.extend(gpus::exporters(&server, SERVER_TIMEOUT));
    checks.extend(gpus::moved_labels(&server, SERVER_TIMEOUT));
    checks
}
