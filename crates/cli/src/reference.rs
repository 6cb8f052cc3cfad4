//! The reference pages, written from the code that they describe.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use semconv::canonical;
use semconv::vocabulary::{Row, Source, Vocabulary};
use server::config::{FIELDS, Shape};

use crate::args::Done;
use crate::output::print;

/// Width of the pages' help texts, characters.
const WIDTH: usize = 100;

pub(crate) fn command() -> Command {
    Command::new("reference")
        .about("Print a page of the reference: `cli` (every verb), `config` (every setting), `vocabulary` (every canonical series and its sources) or `openapi`")
        .hide(true)
        .arg(Arg::new("page").required(true).value_parser(["cli", "config", "vocabulary", "openapi"]))
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let page = match matches.get_one::<String>("page").map(String::as_str) {
        Some("config") => config(),
        Some("vocabulary") => vocabulary(),
        Some("openapi") => server::openapi(),
        _ => cli(),
    };
    print(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Every verb's help.
fn cli() -> String {
    let mut page = "# Command line\n\nWritten by `truegauge reference cli`; a test compares it with the program.\n\n\
                    Data goes to stdout, everything else to stderr. Exit code 0 is fine, 1 means findings, 2 a usage or tool error.\n"
        .to_owned();
    // The version changes with every commit; the page should not.
    let mut command = crate::args::command().version(env!("CARGO_PKG_VERSION")).term_width(WIDTH);
    command.build();
    write_command(&mut page, &mut command, "truegauge");
    page
}

fn write_command(page: &mut String, command: &mut Command, path: &str) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## `{path}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    let visible = |c: &&mut Command| !c.is_hide_set() && c.get_name() != "help";
    for sub in command.get_subcommands_mut().filter(visible) {
        let path = format!("{path} {}", sub.get_name());
        write_command(page, sub, &path);
    }
}

/// Every setting of the server.
fn config() -> String {
    let mut page = "# Settings of the server\n\nWritten by `truegauge reference config`; a test compares it with the program.\n\n\
        Each setting is a flag of `truegauge up`, a variable, and a key of the TOML file given with `--config FILE` (or `TRUEGAUGE_CONFIG`): \
        flag before variable before file before default. A key that is not in the table is an error that names the nearest one. \
        A section is a prefix: `time_max` under `[query]` is `query_time_max`. \
        Settings of the client are in [settings.md](settings.md).\n\n\
        | key | flag | variable | value | default | meaning |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for field in &FIELDS {
        let value = match field.shape {
            Shape::Switch => "`true`, `false`",
            Shape::Path => "path",
            Shape::Address => "`IP:PORT`; port 0 takes a free one",
            Shape::Text => "text",
            Shape::Bytes => "bytes, or with `KiB`, `MiB`, `GiB`, `TiB`",
            Shape::Number => "number",
            Shape::Duration => "duration such as `90s` or `1h30m`",
            Shape::List => "array; flag repeated; commas in the variable",
        };
        let default = match field.default {
            "" => "none".to_owned(),
            default if default.starts_with('$') => default.to_owned(),
            default => format!("`{default}`"),
        };
        let _ = writeln!(
            page,
            "| `{}` | `--{}` | `{}` | {value} | {default} | {} |",
            field.name,
            field.flag,
            field.variable(),
            field.help
        );
    }
    page.push_str("\nAn example:\n\n```toml\nlisten = \"0.0.0.0:9494\"\ntoken_file = \"/etc/truegauge/token\"\ndata_dir = \"/var/lib/truegauge\"\nreserve_bytes = \"1GiB\"\nallowed_hosts = [\"metrics.example.org\"]\n```\n");
    page
}

/// Every canonical series, and what each source calls it.
fn vocabulary() -> String {
    let mut page = "# Canonical series and their sources\n\nWritten by `truegauge reference vocabulary`; a test compares it with the program. \
        How they come about: [the vocabulary](../concepts/engine-vocabulary.md).\n\n\
        Trust: A is a fact, B holds with the caveat, C is a hint, D misleads when it stands alone.\n\n\
        | series | unit | kind | labels | trust | says | caveat |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for desc in canonical::all() {
        write_series(&mut page, desc);
    }
    page.push_str(
        "\n## Reckoned by rules\n\nBy the recording rules that come with the program; a name with `:coverage` \
         behind it is the share of the window that samples tell of.\n\n\
         | series | unit | kind | labels | trust | says | caveat |\n|---|---|---|---|---|---|---|\n",
    );
    for desc in canonical::DERIVED {
        write_series(&mut page, desc);
    }
    for source in Vocabulary::embedded().sources() {
        write_source(&mut page, source);
    }
    page
}

fn write_series(page: &mut String, desc: &model::Desc) {
    let _ = writeln!(
        page,
        "| `{}` | {} | {} | {} | {} | {} | {} |",
        desc.name,
        desc.unit.symbol(),
        desc.kind.name(),
        desc.labels.join(", "),
        desc.trust.map_or("", model::Trust::letter),
        cell(desc.help),
        cell(desc.caveat)
    );
}

fn write_source(page: &mut String, source: &Source) {
    let Source { title, name, url, read, .. } = source;
    let _ = write!(
        page,
        "\n## {title}\n\n`{name}`, read from <{url}> in {read}.\n\n| its name | canonical | versions | note |\n|---|---|---|---|\n"
    );
    for row in &source.rows {
        let names: Vec<String> = row.from.iter().map(|name| format!("`{name}`")).collect();
        let note = [row.note.as_str(), row.switch.as_str()].map(cell).join(" ");
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            names.join(", "),
            canonical_of(row),
            row.versions(),
            note.trim()
        );
    }
    for absent in &source.absent {
        let _ = writeln!(page, "| none | `{}` | | {} |", absent.to.name, cell(&absent.why));
    }
}

/// A row's canonical series with the labels that it sets.
fn canonical_of(row: &Row) -> String {
    let Some(to) = row.to else { return String::new() };
    let set: Vec<String> = row.set.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    if set.is_empty() { format!("`{}`", to.name) } else { format!("`{}{{{}}}`", to.name, set.join(",")) }
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
