//! `truegauge rules ls`, `show`, `save` and `rm`: files of rules that a server keeps itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::http::{Server, escape, flags};
use crate::output::{Failure, print, print_json, print_line, printable};
use crate::rules::read;
use crate::table::{layout, time};

/// Longest wait for the server, which runs the tests of what is saved.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn commands() -> [Command; 4] {
    let verb = |name: &'static str, about: &'static str, examples: &'static str| {
        Command::new(name).about(about).args(flags()).arg(json_flag()).after_help(examples)
    };
    let name = || Arg::new("name").required(true).value_name("NAME").help("As `ls` shows it");
    let ls = verb(
        "ls",
        "List the files of rules that are saved in the server",
        "Examples:\n  truegauge rules ls\n  truegauge rules ls --json",
    );
    let show = verb(
        "show",
        "Print a saved file of rules",
        "Examples:\n  truegauge rules show gpu-heat > gpu-heat.yml\n  truegauge rules show gpu-heat --tests",
    )
    .arg(name())
    .arg(Arg::new("tests").long("tests").action(ArgAction::SetTrue).help("Its tests instead"));
    let save = verb(
        "save",
        "Save a file of rules in the server, where it is in force at once",
        "Examples:\n  truegauge rules save gpu-heat.yml --tests gpu-heat_test.yml\n  truegauge rules save heat.yml --replaces GpuThermalThrottling",
    )
    .arg(
        Arg::new("file")
            .required(true)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("YAML file"),
    )
    .arg(Arg::new("name").long("name").value_name("NAME").help("What to call it [default: as the file]"))
    .arg(
        Arg::new("tests")
            .long("tests")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Tests that it has to pass [default: those saved with it before]"),
    )
    .arg(
        Arg::new("replaces").long("replaces").value_name("RULE").action(ArgAction::Append).help(
            "A rule of another file that goes out of force because of it [default: those of before]",
        ),
    );
    let rm = verb(
        "rm",
        "Take a saved file of rules out of force for good",
        "Examples:\n  truegauge rules rm gpu-heat\n  truegauge rules rm gpu-heat --json",
    )
    .arg(name());
    [ls, show, save, rm]
}

pub(crate) fn run(verb: &str, matches: &ArgMatches) -> Done {
    let server = Server::of(matches);
    match verb {
        "ls" => ls(&server, matches),
        "show" => show(&server, matches),
        "save" => save(&server, matches),
        _ => rm(&server, matches),
    }
}

fn path(name: &str) -> String {
    format!("/api/tg/v1/rules/files/{}", escape(name))
}

fn names(of: &Value) -> String {
    let name = |one: &Value| one.as_str().or(one["name"].as_str()).unwrap_or_default().to_owned();
    let names: Vec<String> = of.as_array().into_iter().flatten().map(name).collect();
    printable(&names.join(" "))
}

fn ls(server: &Server, matches: &ArgMatches) -> Done {
    let answer = server.get("/api/tg/v1/rules/files")?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = |value: &Value| printable(value.as_str().unwrap_or("—"));
    let files = answer["files"].as_array().cloned().unwrap_or_default();
    let row = |file: &Value| {
        vec![
            word(&file["name"]),
            time(file["saved_at"].as_i64().unwrap_or_default()),
            word(&file["saved_by"]),
            names(&file["rules"]),
            names(&file["replaces"]),
        ]
    };
    let columns =
        [("NAME", false), ("SAVED (UTC)", false), ("BY", false), ("RULES", false), ("REPLACES", false)];
    if files.is_empty() {
        print_line("no files of rules are saved")?;
    } else {
        print(layout(&columns, &files.iter().map(row).collect::<Vec<_>>()).as_bytes())?;
    }
    for file in files.iter().filter(|file| file["error"].is_string()) {
        print_line(&format!("{} is not in force: {}", word(&file["name"]), word(&file["error"])))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(server: &Server, matches: &ArgMatches) -> Done {
    let Some(name) = matches.get_one::<String>("name") else { return Err(Failure::new("no name given")) };
    let answer = server.get(&path(name))?;
    if matches.get_flag("json") {
        print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let part = if matches.get_flag("tests") { "tests" } else { "text" };
    let Some(text) = answer[part].as_str() else {
        return Err(Failure::new(format!("`{}` was saved without tests", printable(name)))
            .hint("`truegauge rules save FILE --tests FILE` gives it some"));
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn save(server: &Server, matches: &ArgMatches) -> Done {
    let Some(file) = matches.get_one::<PathBuf>("file") else { return Err(Failure::new("no file given")) };
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = matches.get_one::<String>("name").map_or(stem, String::as_str);
    let mut body = json!({"text": read(file)?});
    if let Some(tests) = matches.get_one::<PathBuf>("tests") {
        body["tests"] = read(tests)?.into();
    }
    if let Some(replaces) = matches.get_many::<String>("replaces") {
        body["replaces"] = replaces.cloned().collect::<Vec<_>>().into();
    }
    let saved = server.put(&path(name), &body, TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&saved)?;
    } else {
        let file = printable(saved["file"].as_str().unwrap_or_default());
        print_line(&format!("{file} is in force: {}", names(&saved["rules"])))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rm(server: &Server, matches: &ArgMatches) -> Done {
    let Some(name) = matches.get_one::<String>("name") else { return Err(Failure::new("no name given")) };
    server.tell("DELETE", &path(name), &json!({}), TIMEOUT)?;
    if matches.get_flag("json") {
        print_json(&json!({"removed": name}))?;
    } else {
        print_line(&format!("{} is removed", printable(name)))?;
    }
    Ok(ExitCode::SUCCESS)
}
