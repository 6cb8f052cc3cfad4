//! `truegauge export`: raw points of any series as a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use server::Format;
use server::offline::Directory;

use crate::args::{Done, json_flag};
use crate::export_file::{Sink, Written};
use crate::http::{Server, escape, flags};
use crate::output::{Failure, note, print_json};
use crate::query::{moment, now_seconds};
use crate::runs::resolve;
use crate::table::{bytes, thousands};

pub(crate) fn command() -> Command {
    let many = |name: &'static str| Arg::new(name).action(ArgAction::Append);
    let time = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("TIME").allow_hyphen_values(true).help(help)
    };
    let formats = Format::ALL.map(|(name, _)| name);
    Command::new("export")
        .about("Write raw points to Parquet, CSV or NDJSON")
        .arg(many("selector").value_name("SELECTOR").help("Series that fit one of these PromQL selectors; `{__name__=~\".+\"}` is all"))
        .arg(many("run").long("run").value_name("RUN").help("Series of this run, by id or name; several may be given"))
        .arg(time("start", "First time: unix seconds, RFC 3339, or `-10m` before now [default: the first point's]"))
        .arg(time("end", "Last time, itself included [default: the last point's]"))
        .arg(Arg::new("format").long("format").value_parser(formats).help("Format [default: as the file's name ends, else csv]"))
        .arg(Arg::new("output").short('o').long("output").value_name("FILE").value_parser(clap::value_parser!(PathBuf)).help("File instead of stdout; it appears when it is complete"))
        .arg(data_dir())
        .args(flags())
        .arg(json_flag().requires("output").help("Print what was written as JSON"))
        .after_help("Examples:\n  truegauge export --run pretrain-7b -o points.parquet\n  truegauge export 'system_gpu_utilization{host=\"n1\"}' --start -1d --format csv | head")
}

/// `--data-dir`, of commands that work without a server.
pub(crate) fn data_dir() -> Arg {
    Arg::new("data_dir")
        .long("data-dir")
        .value_name("DIR")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Read this directory, which no server has open, instead of asking a server")
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let output = matches.get_one::<PathBuf>("output");
    let format = format(matches, output.map(PathBuf::as_path))?;
    let texts = |name: &str| -> Vec<String> {
        matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
    };
    let now = now_seconds();
    let time = |name: &str| matches.get_one::<String>(name).map(|text| moment(text, now));
    let mut ask = server::Ask {
        selectors: texts("selector"),
        run_ids: Vec::new(),
        start: time("start"),
        end: time("end"),
    };
    let sink = Sink::new(output.map(PathBuf::as_path), format)?;
    let written = if let Some(dir) = matches.get_one::<PathBuf>("data_dir") {
        let dir = open(dir)?;
        for name in texts("run") {
            ask.run_ids.push(run_in(&dir, &name)?);
        }
        from_directory(&dir, &ask, format, sink)?
    } else {
        let server = Server::of(matches);
        for name in texts("run") {
            ask.run_ids.push(resolve(&server, &name)?);
        }
        from_server(&server, &ask, format, sink)?
    };
    report(matches, format, output.map(PathBuf::as_path), &written)?;
    Ok(ExitCode::SUCCESS)
}

/// The format that is asked for, or that the file's name ends with.
fn format(matches: &ArgMatches, output: Option<&Path>) -> Result<Format, Failure> {
    if let Some(name) = matches.get_one::<String>("format") {
        return Format::named(name).ok_or_else(|| Failure::new(format!("there is no format `{name}`")));
    }
    let Some(output) = output else { return Ok(Format::Csv) };
    let ending = output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    Format::named(ending).ok_or_else(|| {
        Failure::new(format!("`{}` does not say which format is wanted", output.display()))
            .hint("end the name with `.parquet`, `.csv` or `.ndjson`, or add `--format`")
    })
}

/// Takes a directory that no server has.
pub(crate) fn open(dir: &Path) -> Result<Directory, Failure> {
    Directory::open(dir).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))
}

/// The id behind what was typed: an id, or a name that only one run has.
fn run_in(dir: &Directory, typed: &str) -> Result<String, Failure> {
    if model::RunId::parse(typed).is_some() {
        return Ok(typed.to_ascii_lowercase());
    }
    match dir.runs_named(typed).as_slice() {
        [] => Err(Failure::new(format!("there is no run named `{typed}`"))),
        [one] => Ok(one.clone()),
        many => Err(Failure::new(format!("several runs are named `{typed}`"))
            .hint(format!("give the id of one: {}", many.join(", ")))),
    }
}

fn from_directory(
    dir: &Directory,
    ask: &server::Ask,
    format: Format,
    mut sink: Sink,
) -> Result<Written, Failure> {
    let failed = |error: server::offline::OfflineError| Failure::new(error.to_string()).hint(error.hint());
    let mut pieces = dir.export(ask, format).map_err(failed)?;
    if pieces.series() == 0 {
        return Err(Failure::new("no series fits, or none has a point in this time"));
    }
    sink.expect(pieces.series(), pieces.points_max());
    while let Some(bytes) = pieces.next_bytes().map_err(failed)? {
        sink.write(&bytes)?;
    }
    sink.finish()
}

fn from_server(
    server: &Server,
    ask: &server::Ask,
    format: Format,
    mut sink: Sink,
) -> Result<Written, Failure> {
    let mut path = format!("/api/tg/v1/export?format={}", format.name());
    let mut add = |name: &str, value: &str| path.extend(["&", name, "=", &escape(value)]);
    ask.selectors.iter().for_each(|selector| add("match[]", selector));
    ask.run_ids.iter().for_each(|id| add("run_id", id));
    ask.start.iter().for_each(|time| add("start", time));
    ask.end.iter().for_each(|time| add("end", time));
    let (headers, mut points) = server.stream(&path)?;
    let number = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok())
    };
    sink.expect(
        number("x-truegauge-series").unwrap_or_default(),
        number("x-truegauge-points-max").unwrap_or_default(),
    );
    sink.copy(&mut points)?;
    sink.finish()
}

fn report(
    matches: &ArgMatches,
    format: Format,
    output: Option<&Path>,
    written: &Written,
) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    if matches.get_flag("json") {
        return Ok(print_json(&json!({
            "output": output.display().to_string(),
            "format": format.name(),
            "series": written.series,
            "points": written.points,
            "bytes": written.bytes,
            "seconds": written.seconds,
        }))?);
    }
    note(format_args!(
        "{}: {} points of {} series, {} in {:.1} s",
        output.display(),
        thousands(written.points),
        thousands(written.series),
        bytes(written.bytes),
        written.seconds
    ));
    Ok(())
}
