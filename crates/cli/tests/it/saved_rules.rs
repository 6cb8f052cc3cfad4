//! Rules that people save in the server, and what is kept of rules on a disk without space.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::durability::{as_seen, on_small_disk};
use crate::process::{Server, eventually};

const FILES: &str = "/api/tg/v1/rules/files";

fn put(server: &Server, name: &str, body: &Value) -> (u16, String) {
    let answer = server.ask("PUT", &format!("{FILES}/{name}"), &[], body.to_string().as_bytes());
    (answer.status, String::from_utf8(answer.body).unwrap())
}

/// A file of one alert that fires at once.
fn alert(name: &str, expr: &str) -> String {
    format!(
        "groups:\n- {{name: g, interval: 200ms, rules: [{{alert: {name}, expr: '{expr}', labels: {{severity: page}}}}]}}\n"
    )
}

/// The file of a rule in force.
fn file_of(server: &Server, rule: &str) -> Vec<String> {
    let groups = server.get("/api/v1/rules")["data"]["groups"].as_array().unwrap().clone();
    let has = |group: &&Value| group["rules"].as_array().unwrap().iter().any(|one| one["name"] == rule);
    groups.iter().filter(has).map(|group| group["file"].as_str().unwrap().to_owned()).collect()
}

fn fires(server: &Server, name: &str) -> Option<Value> {
    let alerts = server.get("/api/v1/alerts")["data"]["alerts"].as_array().unwrap().clone();
    alerts.into_iter().find(|alert| alert["labels"]["alertname"] == name && alert["state"] == "firing")
}

#[test]
fn a_saved_file_is_in_force_at_once_outlives_a_crash_and_goes_when_it_is_removed() {
    let mut server = Server::start(&[]);
    let tests = "rule_files: [hot.yml]\nevaluation_interval: 1m\ntests:\n- name: at once\n  interval: 1m\n  alert_rule_test:\n  - {eval_time: 1m, alertname: Hot, exp_alerts: [{exp_labels: {severity: page}}]}\n";
    let (status, answer) = put(&server, "hot", &json!({"text": alert("Hot", "vector(7)"), "tests": tests}));
    assert_eq!(status, 200, "{answer}");
    eventually("it fires", || fires(&server, "Hot"));
    assert_eq!(file_of(&server, "Hot"), ["saved/hot.yml"]);
    let shown = server.get("/api/tg/v1/rules/Hot");
    assert_eq!((&shown["file"], &shown["tests"][0]["passed"]), (&json!("saved/hot.yml"), &json!(true)));
    let since = fires(&server, "Hot").unwrap()["activeAt"].clone();

    // Tests that the file has stay, and a change that they don't pass changes nothing.
    let (status, answer) = put(&server, "hot.yml", &json!({"text": alert("Hot", "vector(7) > 8")}));
    assert!(status == 400 && answer.contains("1 of 1 tests fail"), "{answer}");
    let other = tests.replace("at once", "once more");
    let (status, _) =
        put(&server, "hot.yml", &json!({"text": alert("Hot", "vector(7) > 6"), "tests": other}));
    assert_eq!(status, 200);
    for _ in 0..2 {
        let shown = server.get("/api/tg/v1/rules/Hot")["tests"][0].clone();
        assert_eq!(
            (&shown["name"], &shown["passed"]),
            (&json!("once more"), &json!(true)),
            "not those of before"
        );
    }
    server.kill();
    server.restart();
    let again = eventually("it fires still", || fires(&server, "Hot"));
    assert_eq!(again["activeAt"], since, "it goes on");
    let files = server.get(FILES)["files"].clone();
    assert_eq!((&files[0]["name"], &files[0]["rules"][0]["name"]), (&json!("hot"), &json!("Hot")));
    assert_eq!(server.ask("POST", "/-/reload", &[], b"").status, 200);
    assert_eq!(file_of(&server, "Hot"), ["saved/hot.yml"], "a reload leaves it");

    assert_eq!(server.ask("DELETE", &format!("{FILES}/hot"), &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", &format!("{FILES}/hot"), &[], b"").status, 404);
    assert_eq!(file_of(&server, "Hot"), [""; 0]);
    let log = fs::read_to_string(server.home.join("log")).unwrap();
    assert!(log.contains("rules are saved and in force") && log.contains("saved rules are removed"), "{log}");
}

#[test]
fn rules_are_shown_while_others_take_their_place() {
    let server = Server::start(&[]);
    let (status, answer) = put(&server, "stays", &json!({"text": alert("Stays", "vector(1)")}));
    assert_eq!(status, 200, "{answer}");
    eventually("it fires", || fires(&server, "Stays"));
    let is_saving = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while is_saving.load(Ordering::Relaxed) || looks == 0 {
                assert_eq!(file_of(&server, "Stays"), ["saved/stays.yml"]);
                assert!(fires(&server, "Stays").is_some());
                looks += 1;
            }
        });
        for at in 0..20 {
            let other = alert("Other", &format!("vector({at})"));
            assert_eq!(put(&server, "other", &json!({"text": other})).0, 200);
        }
        is_saving.store(false, Ordering::Relaxed);
        looks.join().unwrap();
    });
}

#[test]
fn a_saved_file_stands_in_for_a_rule_only_where_it_says_so() {
    let server = Server::start(&["--starter-rules=true"]);
    let text = alert("TargetDown", "up < 1");
    let (status, answer) = put(&server, "down", &json!({"text": text}));
    assert!(status == 409 && answer.contains("starter/target.yml"), "{answer}");
    assert_eq!(file_of(&server, "TargetDown"), ["starter/target.yml"]);
    let (status, answer) = put(&server, "down", &json!({"text": text, "replaces": ["TargetDwn"]}));
    assert!(status == 400 && answer.contains("`TargetDwn`"), "{answer}");
    let (status, _) = put(&server, "down", &json!({"text": text, "replaces": ["TargetDown"]}));
    assert_eq!(status, 200);
    assert_eq!(file_of(&server, "TargetDown"), ["saved/down.yml"]);
    let (status, answer) = put(&server, "other", &json!({"text": text, "replaces": ["TargetDown"]}));
    assert!(status == 409 && answer.contains("saved/down.yml"), "{answer}");
    let recording = "groups: [{name: g, rules: [{record: 'gpu:power_watts', expr: vector(1)}]}]";
    let (status, answer) = put(&server, "mine", &json!({"text": recording}));
    assert!(status == 409 && answer.contains("starter/"), "{answer}");
    assert_eq!(server.ask("DELETE", &format!("{FILES}/down"), &[], b"").status, 204);
    assert_eq!(file_of(&server, "TargetDown"), ["starter/target.yml"], "what it replaced is back");
}

#[test]
fn what_is_no_file_of_rules_is_refused() {
    let server = Server::start(&[]);
    let good = alert("Hot", "vector(1)");
    let long = "a".repeat(65);
    for name in
        ["..", "..%2f..%2fetc%2fpasswd", ".hidden", "a.b", "a%2fb", "%00", "a%20b", "caf%C3%A9", &long]
    {
        let (status, answer) = put(&server, name, &json!({"text": good}));
        assert!((400..500).contains(&status), "{name}: {status} {answer}");
    }
    let huge = format!("{good}#{}", "x".repeat(300 << 10));
    let many: Vec<String> =
        (0..1_001).map(|at| format!("  - {{record: 'a:{at}', expr: vector(1)}}\n")).collect();
    let many = many.concat();
    for (text, words) in [
        (alert("Hot", "vector("), "parse error"),
        ("groups: []".to_owned(), "1 to 1000 rules"),
        (format!("groups:\n- name: g\n  rules:\n{many}"), "1 to 1000 rules"),
        (alert("Hot", "tg_gpu_busy_ratio < 0.1"), "trust D"),
        (huge, "at most 262144 bytes"),
    ] {
        let (status, answer) = put(&server, "x", &json!({"text": text}));
        assert!(status == 400 && answer.contains(words), "{words}: {status} {answer}");
    }
    assert_eq!(put(&server, "x", &json!({"txt": good})).0, 400);
    assert_eq!(put(&server, "x", &json!({"text": "x".repeat(2 << 20)})).0, 413);
    let (status, answer) = put(&server, "x", &json!({"text": good, "tests": "rule_files: [/etc/passwd]\n"}));
    assert!(status == 400 && answer.contains("`/etc/passwd` is not here"), "{answer}");
    let many = "  input_series: [{series: a, values: '0x600000'}, {series: b, values: '0x600000'}]\n";
    let tests = format!("rule_files: [x.yml]\ntests:\n- interval: 1m\n{many}");
    let (status, answer) = put(&server, "x", &json!({"text": good, "tests": tests}));
    assert!(status == 400 && answer.contains("more than 1000000 values"), "{answer}");
    assert_eq!(server.get(FILES)["files"], json!([]));
}

#[test]
fn rules_are_saved_shown_listed_and_removed_by_command() {
    let server = Server::start(&[]);
    let file = server.home.join("heat.yml");
    fs::write(&file, alert("Heat", "vector(1)")).unwrap();
    let check = |args: &[&str], is_good: bool, words: &str| {
        let found = server.cli(args);
        assert!(
            (found.0 == 0) == is_good && format!("{}{}", found.1, found.2).contains(words),
            "{args:?}: {found:?}"
        );
    };
    check(&["rules", "ls"], true, "no files of rules are saved");
    check(&["rules", "save", file.to_str().unwrap()], true, "saved/heat.yml is in force: Heat");
    let silence = ["alerts", "silence", "alertname=Heat", "--for", "1h", "--reason", "known"];
    check(&silence, true, " UTC");
    check(&["alerts", "silences"], true, "UNTIL (UTC)");
    check(&["remediation", "audit"], true, "TIME (UTC)");
    check(
        &["rules", "save", file.to_str().unwrap(), "--name", "b"],
        false,
        "`Heat` is a rule of `saved/heat.yml`",
    );
    check(&["rules", "ls"], true, "Heat");
    check(&["rules", "ls"], true, "SAVED (UTC)");
    check(&["rules", "show", "heat"], true, "alert: Heat");
    check(&["rules", "show", "heat", "--tests"], false, "without tests");
    check(&["rules", "rm", "heat"], true, "heat is removed");
    check(&["rules", "rm", "heat"], false, "no file of rules `heat` is saved");
    check(&["rules", "rm", "heat"], false, "`truegauge rules ls`");
}

fn kept(server: &Server, outcome: &str) -> f64 {
    let page = String::from_utf8(server.ask("GET", "/metrics", &[], b"").body).unwrap();
    let of = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let is_asked = series.starts_with("truegauge_rules_kept_total{") && series.contains(outcome);
        is_asked.then(|| value.parse::<f64>().unwrap())
    };
    page.lines().filter_map(of).sum()
}

#[test]
fn a_full_disk_stops_no_alert_and_is_one() {
    let rules = tempfile::tempdir().unwrap();
    let file = rules.path().join("rules.yml");
    fs::write(&file, alert("Held", "vector(1)")).unwrap();
    let each = ["--own-metrics=true", "--own-metrics-interval", "200ms", "--rule-interval", "200ms"];
    let more = ["--starter-rules=true", "--rule-files", file.to_str().unwrap()];
    let home = tempfile::tempdir().unwrap();
    let Some(server) = on_small_disk(home.path(), "8MiB", &[&each[..], &more].concat()) else {
        println!("not checked: nothing can be mounted here");
        return;
    };
    let data = as_seen(&server, home.path());
    eventually("rules are kept", || (kept(&server, "kept") > 2.0).then_some(()));
    let free = rustix::fs::statvfs(&data).unwrap();
    let ballast = fs::File::create(data.join("ballast")).unwrap();
    // All that is left: neither the store nor the state of rules can grow.
    let all = free.f_bavail * free.f_frsize;
    let fill =
        |bytes: u64| rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).is_ok();
    let mut bytes = all;
    while !fill(bytes) {
        bytes -= 4096;
    }
    eventually("it can't be kept", || {
        let left = rustix::fs::statvfs(&data).unwrap();
        let more = bytes + left.f_bavail * left.f_frsize;
        bytes = if fill(more) { more } else { bytes };
        (kept(&server, "failed") > 2.0).then_some(())
    });
    eventually("alerts go on", || fires(&server, "Held"));
    let refused = eventually("and one says that the store takes nothing", || {
        let alerts = server.get("/api/v1/alerts")["data"]["alerts"].as_array()?.clone();
        alerts.into_iter().find(|alert| alert["labels"]["alertname"] == "StoreRefusingWrites")
    });
    let silence = json!({
        "matchers": [{"name": "alertname", "value": "Held"}], "comment": "full", "ends_at": 4_000_000_000_000_i64,
    });
    let answer = server.post_json("/api/tg/v1/silences", &silence);
    assert_eq!(answer.status, 503, "what can't be kept is not promised");
    let (status, words) = put(&server, "new", &json!({"text": alert("New", "vector(1)")}));
    assert!(status == 503 && words.contains("can't be kept"), "{words}");
    assert_eq!(file_of(&server, "New"), [""; 0]);
    assert_eq!(refused["labels"]["severity"], "page");

    drop(ballast);
    fs::remove_file(data.join("ballast")).unwrap();
    let before = kept(&server, "kept");
    eventually("it is kept again", || (kept(&server, "kept") > before).then_some(()));
    let state: Value = serde_json::from_slice(&fs::read(data.join("rules.json")).unwrap()).unwrap();
    let of_held = state.as_object().unwrap().iter().find(|(key, _)| key.ends_with("rules.yml\ng"));
    assert_eq!(of_held.unwrap().1["rules"][0]["alerts"][0]["state"], "firing");
    eventually("writes are taken", || {
        (server.post_json("/api/tg/v1/silences", &silence).status == 200).then_some(())
    });
    let log = fs::read_to_string(server.home.join("log")).unwrap();
    // The server gives room back now and then, so that the disk may be full more than once: told once each time.
    let told = log.lines().filter_map(|line| match line {
        _ if line.contains("cannot keep the rules' state") => Some(false),
        _ if line.contains("the rules' state is kept again") => Some(true),
        _ => None,
    });
    let told: Vec<bool> = told.collect();
    assert!(!told.is_empty() && told.iter().enumerate().all(|(n, again)| *again == (n % 2 == 1)), "{log}");
}
