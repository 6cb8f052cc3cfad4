//! Rules in force: those that come with the program, the server's own series, changes while it runs.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use wire::push::{PushRequest, Session};

use crate::process::{Server, eventually, id, request, run, series};
use crate::prometheus::escape;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The YAML files of a folder of the repository, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "yml")).collect();
    files.sort();
    files
}

/// The names of the starters' rules of a sort, `alert` or `record`. What maps names is no starter.
fn written(sort: &str) -> BTreeSet<String> {
    let is_starter = |file: &PathBuf| !file.file_name().unwrap().to_str().unwrap().starts_with("mapping-");
    let texts =
        files("rules").into_iter().filter(is_starter).map(|file| std::fs::read_to_string(file).unwrap());
    let names = |text: String| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(&format!("- {sort}: ")));
        lines.map(str::to_owned).collect()
    };
    texts.flat_map(names).collect()
}

/// Whether Debian's promtool and this program pass a file: `check` or `test`.
fn verdicts(verb: &str, file: &Path) -> (bool, bool) {
    let folder = file.parent().unwrap();
    let theirs = Command::new("promtool").args([verb, "rules"]).arg(file).current_dir(folder).output();
    assert!(theirs.is_ok(), "`promtool` is missing: apt-get install prometheus");
    let (code, out, err) = run(folder, &["rules", verb, file.to_str().unwrap()]);
    assert!(code < 2, "{out}{err}");
    (theirs.unwrap().status.success(), code == 0)
}

#[test]
fn promtool_passes_every_starter_and_its_test_as_this_program_does() {
    let (rules, tests) = (files("rules"), files("rules/tests"));
    let names = |files: &[PathBuf]| -> Vec<String> {
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert!(rules.len() > 5, "{rules:?}");
    assert_eq!(names(&rules), names(&tests), "every file of rules has a file of tests");
    for file in &rules {
        assert_eq!(verdicts("check", file), (true, true), "{}", file.display());
    }
    for file in &tests {
        assert_eq!(verdicts("test", file), (true, true), "{}", file.display());
    }
}

/// What breaks a starter: the file, a text of it, what stands there instead.
const BREAKS: [(&str, &str, &str); 26] = [
    ("run.yml", "groups:", "group:"),
    ("run.yml", "  - name: run", "  - nam: run"),
    ("run.yml", "name: run", "name: ''"),
    ("run.yml", "    rules:", "    rule:"),
    ("run.yml", "alert: RunStale", "alert: RunStale\n        record: run_stale"),
    ("run.yml", "- alert: RunStale", "- alrt: RunStale"),
    ("run.yml", "for: 1m", "for: 1 minute"),
    ("run.yml", "for: 1m", "for: -1m"),
    ("run.yml", "for: 1m", "fore: 1m"),
    ("run.yml", "and on (run_id)", "and on run_id"),
    ("run.yml", "tg_run_state{state=\"stale\"}", "tg_run_state{state=stale}"),
    ("run.yml", "tg_run_state{state=\"stale\"}", "tg_run_state{state=\"stale\""),
    ("run.yml", "{{ $labels.run }} has", "{{ $label.run }} has"),
    ("run.yml", "humanizeDuration", "humanizeDurations"),
    ("run.yml", "severity: page", "sever-ity: page"),
    ("run.yml", "severity: page", "__name__: page"),
    ("disk.yml", "[6h]", "[6 h]"),
    ("disk.yml", "predict_linear(", "predict_linaer("),
    ("disk.yml", ", 24 * 3600)", ")"),
    ("disk.yml", "max by (host) (", "max by (host ("),
    ("disk.yml", "printf \\\"%.0f\\\"", "printf \\\"%.0f"),
    ("disk.yml", "expr: max", "exp: max"),
    ("memory.yml", "summary:", "\tsummary:"),
    ("target.yml", "expr: up == 0", "expr: ''"),
    ("target.yml", "labels:", "labels: page"),
    ("ingest.yml", "[5m])", "[5m] offset)"),
];

#[test]
fn promtool_and_this_program_refuse_the_same_broken_files() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("broken.yml");
    for (name, found, put) in BREAKS {
        let text = std::fs::read_to_string(root().join("rules").join(name)).unwrap();
        assert!(text.contains(found), "{name}: {found}");
        std::fs::write(&file, text.replacen(found, put, 1)).unwrap();
        assert_eq!(verdicts("check", &file), (false, false), "{name}: `{found}` is now `{put}`");
    }
}

#[test]
fn every_starter_says_how_urgent_it_is_and_has_a_runbook_that_is_served() {
    let server = Server::start(&["--starter-rules=true"]);
    let groups = server.get("/api/v1/rules?type=alert")["data"]["groups"].clone();
    let rules: Vec<Value> = groups
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .filter(|rule| rule["type"] == "alerting")
        .collect();
    let found: BTreeSet<String> =
        rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, written("alert"));
    for rule in &rules {
        let name = rule["name"].as_str().unwrap();
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string());
        let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
        let page = String::from_utf8(server.ask("GET", runbook, &[], b"").body).unwrap();
        assert!(page.starts_with(&format!("# {name}\n")), "{runbook}: {page}");
        for part in ["**Means.**", "**Impact.**", "**Look.**", "**Do.**"] {
            assert!(page.contains(part), "{runbook} has no {part}");
        }
    }
    let pages = std::fs::read_dir(root().join("docs/runbooks")).unwrap().count();
    assert_eq!(pages, found.len(), "every page is an alert's");
    assert_eq!(server.ask("GET", "/docs/runbooks/None.md", &[], b"").status, 404);
    eventually("all are evaluated", || {
        let groups = server.get("/api/v1/rules")["data"]["groups"].clone();
        let mut rules = groups.as_array()?.iter().flat_map(|group| group["rules"].as_array().unwrap());
        rules.all(|rule| rule["health"] == "ok").then_some(())
    });
}

/// What is no symptom, however it looks: how busy a card says it is, memory in use, Xids and memory errors as they
/// come, the speed of a link at idle.
const NEVER_PAGE: [&str; 13] = [
    "tg_gpu_busy_ratio",
    "system_gpu_utilization",
    "DCGM_FI_DEV_GPU_UTIL",
    "tg_gpu_memory_used_bytes",
    "tg_gpu_memory_free_bytes",
    "system_gpu_memory_used_bytes",
    "DCGM_FI_DEV_FB_USED",
    "tg_gpu_ecc_errors_total",
    "tg_gpu_xid_events_total",
    "DCGM_FI_DEV_XID_ERRORS",
    "tg_gpu_pcie_link_generation",
    "tg_gpu_pcie_link_generation_max",
    "tg_gpu_sm_clock_hertz",
];

/// The names in an expression, those of the recording rules that it reads replaced by what these read.
fn read_by(expr: &str, recorded: &[(String, String)], names: &mut BTreeSet<String>) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for word in expr.split(|c| !is_name(c)).filter(|word| !word.is_empty()) {
        if names.insert(word.to_owned()) {
            for (_, expr) in recorded.iter().filter(|(name, _)| name == word) {
                read_by(expr, recorded, names);
            }
        }
    }
}

#[test]
fn nobody_is_woken_by_what_is_no_symptom() {
    let server = Server::start(&["--starter-rules=true"]);
    let groups = server.get("/api/v1/rules")["data"]["groups"].clone();
    let rules: Vec<Value> = groups
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect();
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    let of_type = |kind: &'static str| rules.iter().filter(move |rule| rule["type"] == kind);
    let recorded: Vec<(String, String)> =
        of_type("recording").map(|rule| (text(rule, "name"), text(rule, "query"))).collect();
    let pages: Vec<&Value> =
        of_type("alerting").filter(|rule| rule["labels"]["severity"] == "page").collect();
    assert!(pages.len() > 10, "{pages:?}");
    for rule in pages {
        let mut names = BTreeSet::new();
        read_by(&text(rule, "query"), &recorded, &mut names);
        let bad: Vec<&&str> = NEVER_PAGE.iter().filter(|name| names.contains(**name)).collect();
        assert!(bad.is_empty(), "{} pages on {bad:?}", rule["name"]);
    }
    // The list would be found: a ticket reads one of them.
    let mut names = BTreeSet::new();
    for rule in of_type("alerting").filter(|rule| rule["labels"]["severity"] == "ticket") {
        read_by(&text(rule, "query"), &recorded, &mut names);
    }
    assert!(NEVER_PAGE.iter().any(|name| names.contains(*name)), "{names:?}");
}

#[test]
fn every_ratio_has_its_coverage_and_every_rule_a_test() {
    let (recorded, alerts) = (written("record"), written("alert"));
    for name in recorded.iter().filter(|name| name.contains("_ratio") && !name.ends_with(":coverage")) {
        assert!(recorded.contains(&format!("{name}:coverage")), "{name} has no coverage");
    }
    for name in recorded.iter().filter_map(|name| name.strip_suffix(":coverage")) {
        assert!(recorded.contains(name), "{name} is covered and not there");
    }
    let described: BTreeSet<String> =
        semconv::canonical::DERIVED.iter().map(|desc| desc.name.to_owned()).collect();
    let of_their_own = recorded.iter().filter(|name| !name.ends_with(":coverage")).cloned().collect();
    assert_eq!(described, of_their_own, "what is recorded is described, and what is described recorded");
    let tests: String =
        files("rules/tests").iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words: BTreeSet<&str> = tests.split(|c| !is_name(c)).collect();
    for name in recorded.iter().chain(&alerts) {
        assert!(words.contains(&**name), "no test asks for {name}");
    }
}

#[test]
fn rules_that_map_are_written_with_a_users_own_and_no_server_runs_them() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("r");
    let own = home.path().join("own.toml");
    let export = |extra: &[&str]| {
        let folder = folder.to_str().unwrap();
        run(home.path(), &[&["rules", "export", folder, "--mapping", "--force"], extra].concat())
    };
    let (code, _, err) = export(&[]);
    assert_eq!(code, 0, "{err}");
    for (name, of_repository) in files("rules").iter().map(|path| (path.file_name().unwrap(), path)) {
        let is_mapping = name.to_str().unwrap().starts_with("mapping-");
        let written = std::fs::read_to_string(folder.join(name)).ok();
        assert_eq!(written.is_some(), is_mapping, "{name:?}");
        assert!(
            written.is_none_or(|text| text == std::fs::read_to_string(of_repository).unwrap()),
            "{name:?}"
        );
    }

    std::fs::write(&own, "[source]\nname = \"mine\"\nmarks = \"mine_*\"\n[[row]]\nfrom = \"mine_queue\"\nto = \"tg_engine_requests_waiting\"\nkind = \"gauge\"\n").unwrap();
    let (code, out, err) = export(&["--vocabulary", own.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("mapping-mine.yml"), "{out}");
    std::fs::write(&own, "[source]\nname = \"mine\"\nmark = \"mine_*\"\n").unwrap();
    let (code, _, err) = export(&["--vocabulary", own.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("own.toml") && err.contains("nearest that it may have is `marks`"), "{err}");
    assert!(server::starter_rules().iter().all(|(name, _)| !name.starts_with("mapping-")));
}

struct Prometheus(Child, String);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prometheus {
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.1).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.1).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

#[test]
fn debians_prometheus_loads_and_evaluates_the_starters() {
    let home = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let file = home.path().join("p.yml");
    let (code, _, err) = run(home.path(), &["rules", "export", home.path().join("r").to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    std::fs::write(
        &file,
        format!(
            "global: {{evaluation_interval: 200ms}}\nrule_files: ['{}/r/*.yml']\n",
            home.path().display()
        ),
    )
    .unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", home.path().join("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
    let prometheus = Prometheus(child.unwrap(), address);
    let names = eventually("all are evaluated", || {
        let answer = prometheus.get("/api/v1/rules")?;
        let groups = answer["data"]["groups"].as_array()?.clone();
        let rules: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        let names: BTreeSet<String> =
            rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect();
        (!rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")).then_some(names)
    });
    assert_eq!(names, written("alert").into_iter().chain(written("record")).collect());
}

/// Asks a query now; the values.
fn now(server: &Server, query: &str) -> Vec<String> {
    let answer = server.get(&format!("/api/v1/query?query={}", escape(query)));
    let rows = answer["data"]["result"].as_array().unwrap();
    rows.iter().map(|row| row["value"][1].as_str().unwrap().to_owned()).collect()
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A sign of life of a writer, `seconds_ago`: 1 opens, 2 heartbeat, 3 finished.
fn heard((writer, sequence): (u8, u64), seconds_ago: i64, event: u32) -> PushRequest {
    let session = Session {
        time_ms: now_ms() - seconds_ago * 1_000,
        event,
        host: "node-1".into(),
        pid: 7,
        ..Session::default()
    };
    let losses = vec![series("loss", &[1.0, 2.0])];
    PushRequest { session: Some(session), ..request("bar", writer, sequence, losses) }
}

#[test]
fn the_server_and_the_states_of_runs_are_series() {
    let mut server = Server::start(&["--own-metrics=true", "--own-metrics-interval", "200ms"]);
    assert_eq!(server.push(&heard((1, 1), 0, 1)).0, 200);
    let states = |server: &Server| -> Vec<String> {
        let answer = server.get(&format!("/api/v1/query?query={}", escape("tg_run_state == 1")));
        let rows = answer["data"]["result"].as_array().unwrap().clone();
        rows.iter().map(|row| row["metric"]["state"].as_str().unwrap().to_owned()).collect()
    };
    eventually("the run is stated", || (states(&server) == ["running"]).then_some(()));
    assert_eq!(now(&server, "count(tg_run_state{project=\"p\",run=\"bar\"})"), ["1"]);
    let silent = now(&server, "time() - tg_run_last_heartbeat_timestamp_seconds")[0].parse::<f64>().unwrap();
    assert!((0.0..20.0).contains(&silent), "{silent}");
    assert_eq!(now(&server, "tg_run_last_point_timestamp_seconds"), ["1700000001"]);
    assert_eq!(now(&server, "truegauge_ingest_samples_total{door=\"push\",job=\"truegauge\"}"), ["2"]);
    assert_eq!(now(&server, "count(truegauge_store_free_bytes < truegauge_store_filesystem_bytes)"), ["1"]);
    assert_eq!(
        server.get("/api/v1/metadata?metric=truegauge_store_free_bytes")["data"]["truegauge_store_free_bytes"]
            [0]["type"],
        "gauge"
    );
    let shown = server.get(&format!("/api/tg/v1/runs/{}", id("bar")));
    assert_eq!((&shown["points"], &shown["series"]), (&json!(2), &json!(1)), "{shown}");
    let metrics = server.get(&format!("/api/tg/v1/runs/{}/metrics", id("bar")));
    assert_eq!(metrics["metrics"].as_array().unwrap().len(), 1, "{metrics}");
    assert_eq!(server.push(&heard((1, 2), 0, 3)).0, 200);
    eventually("the old state ends", || (states(&server) == ["finished"]).then_some(()));
    // What one server stated is ended by the next.
    assert_eq!(server.push(&heard((2, 1), 0, 1)).0, 200);
    eventually("it runs again", || (states(&server) == ["running"]).then_some(()));
    server.kill();
    server.restart();
    assert_eq!(server.push(&heard((2, 2), 0, 3)).0, 200);
    eventually("the state of before ends", || (states(&server) == ["finished"]).then_some(()));
    assert_eq!(server.ask("DELETE", &format!("/api/tg/v1/runs/{}", id("bar")), &[], b"").status, 200);
    eventually("a deleted run is not stated", || states(&server).is_empty().then_some(()));
}

#[test]
fn what_is_switched_off_is_neither_stored_nor_evaluated() {
    let server = Server::start(&["--own-metrics=false", "--starter-rules=false"]);
    assert_eq!(server.push(&heard((1, 1), 0, 1)).0, 200);
    assert_eq!(server.get("/api/v1/rules")["data"]["groups"], json!([]));
    assert_eq!(server.get("/api/v1/label/__name__/values")["data"], json!(["loss"]));
}

/// A server that states runs and evaluates the starters often.
fn watchful() -> Server {
    let each = "200ms";
    let rules = ["--starter-rules=true", "--rule-interval", each];
    Server::start(&[&["--own-metrics=true", "--own-metrics-interval", each][..], &rules].concat())
}

/// The alert of this name, pending or firing.
fn alert(server: &Server, name: &str) -> Option<Value> {
    let alerts = server.get("/api/v1/alerts")["data"]["alerts"].as_array().unwrap().clone();
    alerts.into_iter().find(|alert| alert["labels"]["alertname"] == name)
}

#[test]
fn a_run_that_only_exports_wakes_nobody_when_it_falls_silent() {
    let server = watchful();
    let at_ns = (now_ms() - 600_000) * 1_000_000;
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let point = json!({"timeUnixNano": at_ns.to_string(), "asDouble": 2.5});
    let export = json!({"resourceMetrics": [{
        "resource": {"attributes": [
            text("service.name", "megatron-lm"), text("nemo.run.id", "4711"),
            text("service.instance.id", "4711-rank7"),
        ]},
        "scopeMetrics": [{"metrics": [
            {"name": "megatron.training.loss", "gauge": {"dataPoints": [point]}},
        ]}],
    }]});
    assert_eq!(server.post_json("/v1/metrics", &export).status, 200);
    let found = eventually("it is pending", || alert(&server, "RunSilent"));
    assert_eq!((&found["labels"]["run"], &found["labels"]["severity"]), (&json!("4711"), &json!("ticket")));
    assert_eq!(alert(&server, "RunStale"), None);
    assert_eq!(now(&server, "tg_run_silent_after_seconds{run=\"4711\"}"), ["180"]);
}

#[test]
fn a_run_that_fell_silent_comes_up_as_an_alert() {
    let server = watchful();
    assert_eq!(server.push(&heard((1, 1), 120, 1)).0, 200);
    let found = eventually("it is pending", || alert(&server, "RunStale"));
    assert_eq!((&found["labels"]["run"], &found["labels"]["severity"]), (&json!("bar"), &json!("page")));
    assert_eq!(found["state"], "pending");
    let words = found["annotations"]["description"].as_str().unwrap();
    assert!(words.contains("No process of run bar (p) has reported for 2m"), "{words}");
    assert_eq!(server.push(&heard((1, 2), 0, 2)).0, 200);
    eventually("it is over", || alert(&server, "RunStale").is_none().then_some(()));
}

#[test]
fn rules_are_read_anew_by_signal_and_by_request_and_a_bad_file_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("rules.yml");
    let write = |rules: &str| {
        std::fs::write(
            &file,
            format!("groups:\n- {{name: stays, interval: 200ms, rules: [{{alert: Stays, expr: 'vector(7)', for: 1h}}]}}\n- {{name: g, interval: 200ms, rules: [{rules}]}}\n"),
        )
        .unwrap();
    };
    write("{record: one, expr: 'vector(1)'}, {record: two, expr: 'vector(2)'}");
    let pattern = home.path().join("*.yml").display().to_string();
    let mut server = Server::start(&["--rule-files", &pattern]);
    let recorded = |server: &Server, names: &[&str]| {
        names.iter().map(|name| now(server, name).len()).collect::<Vec<_>>()
    };
    eventually("both record", || (recorded(&server, &["one", "two"]) == [1, 1]).then_some(()));
    let stays = |server: &Server| server.get("/api/v1/alerts")["data"]["alerts"][0]["activeAt"].clone();
    let since = eventually("the alert is pending", || Some(stays(&server)).filter(Value::is_string));

    write("{record: one, expr: 'vector(10)'}, {record: three, expr: 'vector(3)'}");
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    eventually("new rules record, and the series of the one that is gone ends", || {
        (recorded(&server, &["one == 10", "two", "three"]) == [1, 0, 1]).then_some(())
    });
    assert_eq!(stays(&server), since, "a group that is as before goes on");

    let reload = |server: &Server| server.ask("POST", "/-/reload", &[], b"");
    write("{record: one, expr: 'vector('}");
    let answer = reload(&server);
    let words = String::from_utf8(answer.body).unwrap();
    assert_eq!(answer.status, 500);
    assert!(words.starts_with("failed to reload config: ") && words.contains("rules.yml"), "{words}");
    assert_eq!(server.metric("truegauge_config_last_reload_successful "), 0.0);
    assert_eq!(server.get("/api/v1/status/runtimeinfo")["data"]["reloadConfigSuccess"], false);
    let log = std::fs::read_to_string(server.home.join("log")).unwrap();
    assert!(log.contains("nothing is changed"), "{log}");
    let count = |server: &Server| now(server, "count_over_time(three[1h])")[0].parse::<u32>().unwrap();
    let before = count(&server);
    eventually("the old rules go on", || (count(&server) > before + 2).then_some(()));

    std::fs::remove_file(&file).unwrap();
    assert_eq!(reload(&server).status, 200);
    assert_eq!(server.metric("truegauge_config_last_reload_successful "), 1.0);
    assert_eq!(server.get("/api/v1/rules")["data"]["groups"], json!([]));
    eventually("series of files that are gone end", || {
        (recorded(&server, &["one", "three", "ALERTS"]) == [0, 0, 0]).then_some(())
    });

    // Rules that vanish while the server is away leave nothing behind either.
    write("{record: four, expr: 'vector(4)'}");
    assert_eq!(reload(&server).status, 200);
    eventually("it records", || (recorded(&server, &["four"]) == [1]).then_some(()));
    assert_eq!(server.terminate(), 0);
    write("{record: five, expr: 'vector(5)'}");
    server.restart();
    eventually("one begins, one ends", || (recorded(&server, &["four", "five"]) == [0, 1]).then_some(()));
}

#[test]
fn a_chain_of_groups_in_the_worst_order_settles_in_one_evaluation() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chain.yml");
    // An hour apart, so that there is no second evaluation to wait for.
    let group = |name: &str, expr: &str| {
        format!("- {{name: {name}, interval: 1h, rules: [{{record: {name}, expr: '{expr}'}}]}}\n")
    };
    let text = format!("groups:\n{}{}{}", group("c", "b * 2"), group("b", "a + 1"), group("a", "vector(10)"));
    std::fs::write(&file, text).unwrap();
    let server = Server::start(&["--rule-files", file.to_str().unwrap()]);
    let ended = eventually("all are evaluated", || {
        let groups = server.get("/api/v1/rules")["data"]["groups"].as_array()?.clone();
        let names: Vec<&str> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["c", "b", "a"], "they are shown as the file has them");
        let is_done = groups.iter().all(|group| group["rules"][0]["health"] == "ok");
        is_done.then(|| groups[0]["lastEvaluation"].as_str().unwrap().to_owned())
    });
    let query = format!("/api/v1/query?query=c&time={ended}");
    assert_eq!(server.get(&query)["data"]["result"][0]["value"][1], "22");
}

#[test]
fn a_pipe_is_no_file_of_rules() {
    let home = tempfile::tempdir().unwrap();
    let pipe = home.path().join("rules.yml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (code, _, err) =
        run(home.path(), &["up", "--listen", "127.0.0.1:0", "--rule-files", pipe.to_str().unwrap()]);
    assert_eq!((code, err.contains("it is a pipe")), (2, true), "{err}");
}

#[test]
fn settings_and_targets_are_read_anew_too() {
    let home = tempfile::tempdir().unwrap();
    let (config, scrape) = (home.path().join("tg.toml"), home.path().join("prometheus.yml"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let jobs = |names: &[&str]| {
        let jobs: Vec<String> = names
            .iter()
            .map(|name| format!("{{job_name: {name}, scrape_interval: 200ms, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}"))
            .collect();
        std::fs::write(&scrape, format!("scrape_configs: [{}]\n", jobs.join(", "))).unwrap();
    };
    jobs(&["a"]);
    std::fs::write(&config, format!("scrape_config = '{}'\n", scrape.display())).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    eventually("it is scraped", || (now(&server, "up{job=\"a\"}") == ["0"]).then_some(()));
    jobs(&["b"]);
    std::fs::write(
        &config,
        format!(
            "scrape_config = '{}'\n[alerting]\nalertmanagers = ['http://127.0.0.1:{port}']\n",
            scrape.display()
        ),
    )
    .unwrap();
    assert_eq!(server.ask("POST", "/-/reload", &[], b"").status, 200);
    eventually("the other is scraped, and the one before ends", || {
        (now(&server, "up{job=\"b\"}") == ["0"] && now(&server, "up{job=\"a\"}").is_empty()).then_some(())
    });
    let shown = server.get("/api/v1/alertmanagers");
    assert_eq!(shown["data"]["activeAlertmanagers"].as_array().unwrap().len(), 1, "{shown}");
    for (text, want) in
        [("scrap_config = 'x'", "did you mean `scrape_config`"), ("scrape_config = '/none'", "/none")]
    {
        std::fs::write(&config, text).unwrap();
        let answer = server.ask("POST", "/-/reload", &[], b"");
        let words = String::from_utf8(answer.body).unwrap();
        assert!(answer.status == 500 && words.contains(want), "{words}");
    }
    let before = now(&server, "count_over_time(up{job=\"b\"}[1h])")[0].parse::<u32>().unwrap();
    eventually("what was in force goes on", || {
        (now(&server, "count_over_time(up{job=\"b\"}[1h])")[0].parse::<u32>().unwrap() > before + 2)
            .then_some(())
    });
}

#[test]
fn the_list_of_rules_is_filtered_and_paged_as_in_prometheus() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    std::fs::write(path("a.yml"), "groups:\n- {name: one, rules: [{record: r1, expr: '1'}, {alert: A1, expr: '1', labels: {team: x}}]}\n- {name: two, rules: [{alert: A2, expr: 'vector(0) > 1'}]}\n").unwrap();
    std::fs::write(path("b.yml"), "groups:\n- {name: one, rules: [{record: r2, expr: '1'}]}\n").unwrap();
    let server = Server::start(&["--rule-files", &path("a.yml"), "--rule-files", &path("b.yml")]);
    let names = |query: &str| -> Vec<String> {
        let answer = server.get(&format!("/api/v1/rules?{query}"));
        let groups = answer["data"]["groups"].as_array().unwrap().clone();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone());
        rules.map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(""), ["r1", "A1", "A2", "r2"]);
    assert_eq!(names("type=alert"), ["A1", "A2"]);
    assert_eq!(names("type=record"), ["r1", "r2"]);
    assert_eq!(names("rule_name[]=A1&rule_name[]=r2"), ["A1", "r2"]);
    assert_eq!(names("rule_group[]=one"), ["r1", "A1", "r2"]);
    assert_eq!(names(&format!("rule_group[]=one&file[]={}", escape(&path("b.yml")))), ["r2"]);
    assert_eq!(names("match[]={team%3D%22x%22}"), ["A1"]);
    eventually("the alert fires", || {
        let shown = server.get("/api/v1/rules?rule_name[]=A1");
        (shown["data"]["groups"][0]["rules"][0]["alerts"][0]["state"] == "firing").then_some(())
    });
    let quiet = server.get("/api/v1/rules?rule_name[]=A1&exclude_alerts=true");
    assert_eq!(quiet["data"]["groups"][0]["rules"][0]["alerts"], json!([]));
    let mut pages = Vec::new();
    let mut next = String::new();
    for _ in 0..3 {
        let answer = server.get(&format!("/api/v1/rules?group_limit=1&group_next_token={}", escape(&next)));
        pages.push(answer["data"]["groups"][0]["name"].clone());
        next = answer["data"]["groupNextToken"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!((pages, next), (vec![json!("one"), json!("two"), json!("one")], String::new()));
    for wrong in ["type=x", "exclude_alerts=x", "group_next_token=x", "group_limit=1&group_next_token=x"] {
        assert_eq!(server.ask("GET", &format!("/api/v1/rules?{wrong}"), &[], b"").status, 400, "{wrong}");
    }
    assert_eq!(server.ask("GET", "/-/healthy", &[], b"").status, 200);
    assert_eq!(server.ask("GET", "/-/ready", &[], b"").status, 200);
}
