//! What the command line says, and the exit codes it ends with.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::process::{Server, T0, id, request, run, series, truegauge};

/// A page of the repository's reference.
fn reference(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn reference_pages_are_what_the_program_prints() {
    let home = tempfile::tempdir().unwrap();
    for page in ["cli", "config", "vocabulary"] {
        let (code, out, _) = run(home.path(), &["reference", page]);
        assert_eq!(code, 0);
        let file = format!("{page}.md");
        assert!(
            out == reference(&file),
            "docs/reference/{file} is out of date: write it anew with `truegauge reference {page}`"
        );
    }
}

#[test]
fn every_verbs_help_has_two_examples() {
    let home = tempfile::tempdir().unwrap();
    let page = reference("cli.md");
    let verbs: Vec<&str> = page
        .lines()
        .filter_map(|l| l.strip_prefix("## `truegauge"))
        .map(|l| l.trim_end_matches('`'))
        .collect();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in verbs {
        let args: Vec<&str> = verb.split_whitespace().chain(["--help"]).collect();
        let (code, out, _) = run(home.path(), &args);
        assert_eq!(code, 0, "{verb}");
        let examples = out.split("Examples:").nth(1).unwrap_or_else(|| panic!("{verb} has no examples"));
        assert!(examples.lines().filter(|l| l.trim_start().starts_with("truegauge ")).count() >= 2, "{verb}");
    }
}

#[test]
fn exit_codes_tell_success_findings_and_misuse_apart() {
    let home = tempfile::tempdir().unwrap();
    let check = |args: &[&str], want: i32| {
        let (code, out, err) = run(home.path(), args);
        assert_eq!(code, want, "{args:?}\n{out}\n{err}");
        err
    };
    let away = "http://127.0.0.1:1";
    check(&["--version"], 0);
    check(&["--help"], 0);
    check(&[], 2);
    check(&["upp"], 2);
    check(&["up", "--listen", "nowhere"], 2);
    check(&["completions", "bash"], 0);
    check(&["runs", "ls", "--url", away], 2);
    check(&["doctor", "--url", away], 1);
    assert!(
        check(&["runs", "show", "x", "--url", away], 2).starts_with("error: cannot reach http://127.0.0.1:1")
    );
    assert!(check(&["sync", "/no/such/spool", "--url", away], 2).contains("hint: "));
    check(&["sync", "--url", away], 0);
    fs::write(home.path().join("c.toml"), "lisen = '127.0.0.1:0'").unwrap();
    let err = check(&["up", "--config", home.path().join("c.toml").to_str().unwrap()], 2);
    assert!(err.contains("is not a setting: did you mean `listen`?"), "{err}");
}

#[test]
fn runs_are_listed_shown_deleted_and_restored() {
    let server = Server::start(&[]);
    assert_eq!(server.push(&request("\u{1b}[31mbar", 1, 1, vec![])).0, 400);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[0.5, 0.25])])).0, 200);
    let (code, out, err) = server.cli(&["runs", "ls"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("STATE") && out.contains(&id("bar")) && out.contains("0.25"), "{out}");
    let (_, out, _) = server.cli(&["runs", "ls", "--json", "--filter", "nosuch:1"]);
    let listed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listed["runs"][0]["run_id"], id("bar"));
    let (code, out, _) = server.cli(&["runs", "show", "bar"]);
    assert!(code == 0 && out.contains("loss") && out.contains("\nhealth "), "{out}");
    let (code, _, err) = server.cli(&["runs", "delete", "bar"]);
    assert!(code == 2 && err.contains("--yes"), "{err}");
    assert_eq!(server.cli(&["runs", "delete", "bar", "--yes"]).0, 0);
    assert_eq!(server.cli(&["runs", "show", "bar"]).0, 2);
    assert_eq!(server.cli(&["runs", "restore", &id("bar")]).0, 0);
    assert_eq!(server.cli(&["runs", "show", "bar", "--json"]).0, 0);
}

#[test]
fn doctor_finds_nothing_on_a_healthy_machine() {
    let server = Server::start(&[]);
    let data = server.home.join("data");
    let (code, out, err) = server.cli(&["doctor", "--json", "--data-dir", data.to_str().unwrap()]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &found["ok"]), (0, &true.into()), "{out}{err}");
    let ids: Vec<&str> =
        found["checks"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    for id in ["cgroup.memory", "cgroup.cpu", "spool", "data", "files", "server", "version"] {
        assert!(ids.contains(&id), "{id} is missing: {ids:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_end() {
    let home = tempfile::tempdir().unwrap();
    let mut child = truegauge(home.path())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn settings_come_from_flag_variable_and_file_in_that_order() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("c.toml"), "token = 'from-file'\nreserve_bytes = '1MiB'\n").unwrap();
    let config = home.path().join("c.toml");
    let mut command = truegauge(home.path());
    command.arg("up").env("TRUEGAUGE_TOKEN", "from-variable");
    let server = Server::spawn(command, home.path(), &["--config", config.to_str().unwrap()]);
    let ask = |token: &str| {
        let bearer = format!("Bearer {token}");
        server.ask("GET", "/api/tg/v1/status", &[("authorization", bearer.as_str())], b"")
    };
    assert_eq!(ask("from-file").status, 401);
    assert_eq!(ask("from-variable").json()["store"]["reserve_bytes"], 1 << 20);
}

#[test]
fn no_password_of_the_url_is_printed() {
    let home = tempfile::tempdir().unwrap();
    for url in ["http://user:hunter2@127.0.0.1:1", "http://user:hunter2@ :x"] {
        for args in [&["runs", "ls"][..], &["doctor"], &["sync", "."]] {
            let args: Vec<&str> = args.iter().copied().chain(["--url", url]).collect();
            let (_, out, err) = run(home.path(), &args);
            assert!(!format!("{out}{err}").contains("hunter2"), "{args:?}\n{out}{err}");
        }
    }
    let server = Server::start(&[]);
    let url = server.url.replace("http://", "http://user:hunter2@");
    for args in [&["runs", "ls"][..], &["doctor"], &["sync", "."]] {
        let args: Vec<&str> = args.iter().copied().chain(["--url", &url]).collect();
        let (_, out, err) = run(home.path(), &args);
        assert!(!format!("{out}{err}").contains("hunter2"), "{args:?}\n{out}{err}");
    }
}

#[test]
fn rules_are_checked_and_tested_as_promtool_does() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    let rules = "groups:\n- name: g\n  rules:\n  - {record: 'a:b', expr: sum(b)}\n  - {alert: Down, expr: up == 0, for: 1m}\n";
    write("good.yml", rules);
    write("bad.yml", "groups:\n- name: g\n  rules:\n  - {record: a-b, expr: sum(}\n");
    let series = "rule_files: ['go*.yml']\nevaluation_interval: 7s\ntests:\n- interval: 7s\n  input_series: [{series: 'b{x=\"1\"}', values: '1+1x20'}]\n  promql_expr_test: [{expr: 'a:b', eval_time: 70s, exp_samples: [{labels: 'a:b', value: ";
    write("passes.yml", &format!("{series}11}}]}}]\n"));
    write("fails.yml", &format!("{series}12}}]}}]\n"));
    let check = |args: &[&str], want: i32, words: &str| {
        let path = home.path().display().to_string();
        let args: Vec<String> = args.iter().map(|arg| arg.replace("HOME", &path)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (code, out, err) = run(home.path(), &args);
        assert_eq!(code, want, "{args:?}\n{out}\n{err}");
        assert!(format!("{out}{err}").contains(words), "{args:?}\n{out}\n{err}");
    };
    check(&["rules", "check", "HOME/good.yml"], 0, "good.yml: 2 rules");
    check(&["rules", "check", "HOME/good.yml", "HOME/bad.yml"], 1, "bad.yml: ");
    check(&["rules", "check", "HOME/none.yml"], 2, "cannot read");
    check(&["rules", "test", "HOME/passes.yml"], 0, "passes.yml: 1 tests passed");
    check(&["rules", "test", "HOME/fails.yml"], 1, "fails.yml: test 1: ");
    check(&["rules", "test", "HOME/fails.yml", "--json"], 1, "\"findings\"");
}

#[test]
fn a_histogram_of_a_run_is_one_row_and_its_buckets_are_shown_where_they_are_asked_for() {
    let server = Server::start(&[]);
    let mut sent = vec![series("loss", &[0.5]), series("step_count", &[40.0]), series("step_sum", &[50.0])];
    for (le, count) in [("1", 20.0), ("2", 40.0), ("+Inf", 40.0)] {
        let sample = model::Sample { time_ns: T0, value: count, step: Some(0) };
        let labels = [("le".to_owned(), le.to_owned())];
        sent.push(wire::push::Series::new("step_bucket", &labels, "", &[sample]));
    }
    assert_eq!(server.push(&request("h", 1, 1, sent)).0, 200);
    let (code, out, _) = server.cli(&["runs", "show", "h"]);
    assert_eq!(code, 0);
    let row = out.lines().find(|line| line.starts_with("step")).unwrap();
    assert!(row.contains("40 in all, mean 1.25, p50 1, p95 1.9, p99 1.98"), "{out}");
    assert!(!out.contains("step_bucket") && out.contains("loss"), "{out}");
    let (_, out, _) = server.cli(&["runs", "show", "h", "--buckets"]);
    assert_eq!(out.lines().filter(|line| line.starts_with("step_bucket")).count(), 3, "{out}");
}
