//! `truegauge rules`: checks files of rules and runs their tests, in Prometheus' and promtool's formats,
//! and writes out the rules that come with the program.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use promql::rules::{self, Finding, Verdict};
use semconv::vocabulary::{self, Vocabulary};
use serde_json::{Value, json};

use crate::args::{Done, json_flag};
use crate::output::{Failure, print_json, print_line, printable};
use crate::saved_rules;

/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn command() -> Command {
    let files = || {
        Arg::new("files")
            .required(true)
            .action(ArgAction::Append)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("YAML files")
    };
    let check = Command::new("check")
        .about("Say what is wrong with files of recording and alerting rules")
        .arg(files())
        .arg(json_flag())
        .after_help(
            "Examples:\n  truegauge rules check rules/*.yml\n  truegauge rules check alerts.yml --json",
        );
    let test = Command::new("test")
        .about("Run tests of rules, written as for `promtool test rules`")
        .arg(files())
        .arg(json_flag())
        .after_help("Examples:\n  truegauge rules test rules/tests/*.yml\n  truegauge rules test alerts_test.yml --json");
    let export = Command::new("export")
        .about("Write out the rules that come with the program, for the ruler of a Prometheus, Mimir or VictoriaMetrics")
        .arg(
            Arg::new("dir")
                .required(true)
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Folder to write to; it is made when it is not there"),
        )
        .arg(Arg::new("runbooks").long("runbooks").value_name("URL").help(
            "What stands in front of `/docs/runbooks/` in the alerts' links, such as this server's address",
        ))
        .arg(Arg::new("mapping").long("mapping").action(ArgAction::SetTrue).help(
            "Write those that make canonical series (tg_*) of what engines and exporters send, for a Prometheus without this server",
        ))
        .arg(
            Arg::new("vocabulary")
                .long("vocabulary")
                .requires("mapping")
                .action(ArgAction::Append)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("A vocabulary of your own, as `[vocabulary] files` of the server's configuration names it"),
        )
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Write over files that were changed"),
        )
        .arg(json_flag())
        .after_help("Examples:\n  truegauge rules export /etc/prometheus/rules\n  truegauge rules export rules --runbooks https://gauge.example.org --force\n  truegauge rules export rules --mapping");
    Command::new("rules")
        .about("Check, test and export recording and alerting rules, and save some in a server")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "Examples:\n  truegauge rules check rules/*.yml\n  truegauge rules test rules/tests/*.yml",
        )
        .subcommands([check, test, export])
        .subcommands(saved_rules::commands())
}

/// What was found in one file.
struct Found {
    file: String,
    /// What passed: rules of a good file, tests that hold.
    good: usize,
    /// One line each.
    bad: Vec<String>,
}

pub(crate) fn run(matches: &ArgMatches) -> Done {
    let Some((verb, matches)) = matches.subcommand() else { return Err(Failure::new("no verb given")) };
    match verb {
        "export" => return export(matches),
        "ls" | "show" | "save" | "rm" => return saved_rules::run(verb, matches),
        _ => (),
    }
    let look = if verb == "check" { check } else { test };
    let files = matches.get_many::<PathBuf>("files").into_iter().flatten();
    let found: Vec<Found> = files.map(|file| look(file)).collect::<Result<_, Failure>>()?;
    let what = if verb == "check" { "rules" } else { "tests passed" };
    if matches.get_flag("json") {
        let files =
            found.iter().map(|found| json!({"file": found.file, "good": found.good, "findings": found.bad}));
        print_json(&Value::from(files.collect::<Vec<_>>()))?;
    } else {
        for found in &found {
            if found.bad.is_empty() {
                print_line(&printable(&format!("{}: {} {what}", found.file, found.good)))?;
            }
            for line in &found.bad {
                print_line(&printable(&format!("{}: {line}", found.file)))?;
            }
        }
    }
    Ok(ExitCode::from(u8::from(found.iter().any(|found| !found.bad.is_empty()))))
}

fn check(file: &Path) -> Result<Found, Failure> {
    let text = read(file)?;
    let (good, bad) = match rules::parse(&text) {
        Ok(parsed) => (parsed.groups.iter().map(|group| group.rules.len()).sum(), Vec::new()),
        Err(findings) => (0, lines(&findings)),
    };
    Ok(Found { file: file.display().to_string(), good, bad })
}

fn test(file: &Path) -> Result<Found, Failure> {
    let text = read(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let (good, bad) = match rules::test(&text, &|pattern| matching(folder, pattern)) {
        Err(findings) => (0, lines(&findings)),
        Ok(verdicts) => {
            let failures = |verdict: &Verdict| {
                let name = verdict.name.clone();
                verdict.failures.clone().into_iter().map(move |failure| format!("{name}: {failure}"))
            };
            let good = verdicts.iter().filter(|verdict| verdict.failures.is_empty()).count();
            (good, verdicts.iter().flat_map(failures).collect())
        }
    };
    Ok(Found { file: file.display().to_string(), good, bad })
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    let cannot = |why: String| Failure::new(format!("cannot read `{}`: {why}", file.display()));
    let open = std::fs::File::open(file).map_err(|error| cannot(error.to_string()))?;
    let mut text = String::new();
    let read = open.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| cannot(error.to_string()))? as u64 > FILE_BYTES_MAX {
        return Err(cannot(format!("it is over {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Writes the starters to a folder, all of them or none.
fn export(matches: &ArgMatches) -> Done {
    let Some(folder) = matches.get_one::<PathBuf>("dir") else { return Err(Failure::new("no folder given")) };
    let base = matches.get_one::<String>("runbooks").map(|url| url.trim_end_matches('/'));
    let texts = if matches.get_flag("mapping") { mapping(matches)? } else { server::starter_rules() };
    let mut files = Vec::new();
    for (name, text) in texts {
        let text = match base {
            Some(base) => text.replace("runbook_url: /", &format!("runbook_url: {base}/")),
            None => text,
        };
        files.push((folder.join(name), text));
    }
    let differs =
        |(path, text): &&(PathBuf, String)| std::fs::read(path).is_ok_and(|old| old != text.as_bytes());
    if let Some((path, _)) = files.iter().find(differs).filter(|_| !matches.get_flag("force")) {
        return Err(Failure::new(format!(
            "`{}` is there and differs from what comes with the program",
            path.display()
        ))
        .hint("`--force` writes over it; another folder keeps both"));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::new(format!("cannot make the folder `{}`: {error}", folder.display())))?;
    for (path, text) in &files {
        std::fs::write(path, text)
            .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
    }
    let shown = files.iter().map(|(path, _)| path.display().to_string());
    if matches.get_flag("json") {
        print_json(&json!({"files": shown.collect::<Vec<_>>()}))?;
    } else {
        for path in shown {
            print_line(&printable(&path))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Name and text of the files that map engines' and exporters' series.
fn mapping(matches: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let mut vocabulary = Vocabulary::embedded();
    for path in matches.get_many::<PathBuf>("vocabulary").into_iter().flatten() {
        vocabulary = vocabulary
            .with(&path.display().to_string(), &read(path)?)
            .map_err(|error| Failure::new(error.to_string()))?;
    }
    Ok(vocabulary::rules::files(&vocabulary))
}

/// Name and text of the files that a pattern of a test means: `*` stands for any part of a file's name.
fn matching(folder: &Path, pattern: &str) -> Result<Vec<(String, String)>, String> {
    let path = folder.join(pattern);
    let text = |path: &Path| {
        let text = read(path).map_err(|failure| failure.message().to_owned())?;
        Ok((path.display().to_string(), text))
    };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if !name.contains('*') {
        return Ok(vec![text(&path)?]);
    }
    let within = path.parent().unwrap_or_else(|| Path::new("."));
    let within = if within.as_os_str().is_empty() { Path::new(".") } else { within };
    let entries =
        std::fs::read_dir(within).map_err(|error| format!("cannot list `{}`: {error}", within.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(|file| fits(&name, file)))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.iter().map(|path| text(path)).collect()
}

/// Whether a file's name fits a pattern whose `*` stand for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_stand_for_anything_and_nothing_else_does() {
        for (pattern, name, want) in [
            ("*.yml", "a.yml", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "abc", true),
            ("a*b", "ab-c", false),
            ("a*a", "a", false),
            ("a.yml", "a.yml", true),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, name), want, "{pattern} {name}");
        }
    }
}
