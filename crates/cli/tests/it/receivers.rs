//! Alerts told to the receivers of a file: in groups, once, over crashes, and not while they are silenced.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::process::{Server, each_connection, eventually, request, run, series};

/// What a receiver does with its next requests; afterwards it takes all.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Answers with this status line.
    Answers(&'static str),
    /// Takes the request and never answers.
    Hangs,
    /// Answers with an endless body.
    Floods,
    /// Takes it, once it is let go.
    Holds,
}

#[derive(Default)]
struct Told {
    does: Vec<Does>,
    taken: Vec<Value>,
    requests: usize,
    token: Option<String>,
    is_let_go: bool,
}

/// Takes what is posted.
struct Hook {
    url: String,
    told: Arc<Mutex<Told>>,
}

impl Hook {
    fn start(does: &[Does]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let told = Arc::new(Mutex::new(Told { does: does.to_vec(), ..Told::default() }));
        let shared = Arc::clone(&told);
        each_connection(listener, move |stream| serve(stream, &shared));
        Self { url, told }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    fn taken(&self) -> Vec<Value> {
        self.told().taken.clone()
    }

    /// Status and names of alerts of each message.
    fn words(&self) -> Vec<(String, Vec<String>)> {
        let name = |alert: &Value| {
            format!(
                "{}:{}",
                alert["labels"]["alertname"].as_str().unwrap(),
                alert["status"].as_str().unwrap()
            )
        };
        let words = |message: &Value| {
            let alerts = message["alerts"].as_array().unwrap().iter().map(name).collect();
            (message["status"].as_str().unwrap().to_owned(), alerts)
        };
        self.taken().iter().map(words).collect()
    }
}

fn serve(mut stream: &TcpStream, told: &Mutex<Told>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut token) = (0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (name, value) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => token = Some(value.to_owned()),
            "" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let does = {
        let mut told = told.lock().unwrap();
        told.requests += 1;
        told.token = token;
        let does = if told.does.is_empty() { Does::Answers("200 OK") } else { told.does.remove(0) };
        if matches!(does, Does::Answers("200 OK") | Does::Holds) {
            told.taken.push(serde_json::from_slice(&body).unwrap());
        }
        does
    };
    match does {
        Does::Answers(status) => write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 3\r\n\r\nno\n").ok(),
        Does::Holds => {
            eventually("it is let go", || told.lock().unwrap().is_let_go.then_some(()));
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nno\n").ok()
        }
        Does::Hangs => {
            // Until the one who asks goes away.
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).ok()?;
            None
        }
        Does::Floods => {
            write!(stream, "HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n").ok()?;
            loop {
                write!(stream, "1000\r\n{}\r\n", "x".repeat(0x1000)).ok()?;
            }
        }
    }
}

fn now_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn now_ms() -> i64 {
    (now_seconds() * 1e3) as i64
}

fn rules(home: &Path, body: &str) -> String {
    let file = home.join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: g\n  interval: 200ms\n  rules:\n{body}")).unwrap();
    file.display().to_string()
}

/// A file of receivers: groups wait for a moment, and are looked at often.
fn receivers(home: &Path, body: &str) -> String {
    let file = home.join("receivers.toml");
    let route = "[route]\ngroup_by = [\"severity\"]\ngroup_wait = \"300ms\"\ngroup_interval = \"300ms\"\nrepeat_interval = \"1h\"\n";
    std::fs::write(&file, format!("{route}\n{body}")).unwrap();
    file.display().to_string()
}

fn receiver(name: &str, kind: &str, url: &str) -> String {
    format!("[[receivers]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"{url}\"\n")
}

const LOW: &str = "  - {alert: Low, expr: 'last_over_time(loss[20y]) < 1', labels: {severity: page}, annotations: {summary: '{{ $labels.run }} is at {{ $value }}'}}\n";

fn start(home: &Path, rules: &str, receivers: &str) -> Server {
    let args = ["--rule-files", rules, "--alerting-receivers-file", receivers, "--alerting-time-max", "1s"];
    Server::start_in(home, &args)
}

fn loss(server: &Server, sequence: u64, values: &[f64]) {
    assert_eq!(server.push(&request("bar", 1, sequence, vec![series("loss", values)])).0, 200);
}

#[test]
fn a_webhook_and_slack_are_told_of_start_and_end_in_words_of_their_own() {
    let home = tempfile::tempdir().unwrap();
    let (hook, slack) = (Hook::start(&[]), Hook::start(&[]));
    std::fs::write(home.path().join("token"), "s3cret\n").unwrap();
    let body = format!(
        "{}bearer_token_file = \"token\"\ntext = \"{{{{ range .Alerts }}}}{{{{ .Annotations.summary }}}}{{{{ end }}}}!\"\n\n{}channel = \"#ops\"\n\n[[routes]]\nmatch = ['severity=\"page\"']\nreceiver = \"hook\"\ncontinue = true\n\n[[routes]]\nmatch = ['severity=~\"p.*\"']\nreceiver = \"slack\"\n",
        receiver("hook", "webhook", &hook.url),
        receiver("slack", "slack", &slack.url)
    );
    let server = start(home.path(), &rules(home.path(), LOW), &receivers(home.path(), &body));
    loss(&server, 1, &[0.5]);
    let first = eventually("the webhook is told", || hook.taken().first().cloned());
    assert_eq!((&first["version"], &first["text"]), (&json!("4"), &json!("bar is at 0.5!")));
    assert_eq!(first["groupLabels"], json!({"severity": "page"}));
    assert_eq!(hook.told().token.as_deref(), Some("Bearer s3cret"));
    let message = eventually("Slack is told", || slack.taken().first().cloned());
    assert_eq!(message["channel"], "#ops");
    assert_eq!(message["attachments"][0]["text"], "bar is at 0.5");
    loss(&server, 2, &[0.5, 5.0]);
    eventually("both are told of the end", || {
        let over = hook.words().last()?.0 == "resolved";
        (over && slack.taken().last()?["attachments"][0]["color"] == "good").then_some(())
    });
    assert_eq!(hook.words().len(), 2);
    // What was told is written down once its answer is there.
    let rows = eventually("four deliveries are written down", || {
        let rows = server.get("/api/tg/v1/deliveries");
        (rows["deliveries"].as_array().unwrap().len() == 4).then_some(rows)
    });
    let results: Vec<&Value> =
        rows["deliveries"].as_array().unwrap().iter().map(|row| &row["result"]).collect();
    assert_eq!(results, ["delivered"; 4]);
    assert_eq!(rows["deliveries"][3]["status"], 200);
    let summary = server.get("/api/tg/v1/alerts/summary");
    assert_eq!(
        (&summary["firing"], &summary["deliveries"]),
        (&json!(0), &json!({"today": 4, "delivered": 4}))
    );
    let history = server.get("/api/tg/v1/alerts/history");
    let firing = &history["firings"][0];
    assert_eq!(
        (&firing["rule"], &firing["severity"], &firing["labels"]["run"]),
        (&json!("Low"), &json!("page"), &json!("bar"))
    );
    assert!(firing["end"].as_i64() >= firing["start"].as_i64(), "{firing}");
    let events = server.get("/api/tg/v1/events?kind=alert");
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "{events}");
    let page = String::from_utf8(server.ask("GET", "/metrics", &[], b"").body).unwrap();
    assert!(page.contains("truegauge_notify_sent_total{receiver=\"hook\",kind=\"webhook\"} 2"), "{page}");
}

#[test]
fn a_storm_is_one_message_and_a_receiver_that_fails_holds_up_no_other() {
    let home = tempfile::tempdir().unwrap();
    let bad = [
        Does::Hangs,
        Does::Floods,
        Does::Answers("302 Found\r\nlocation: http://127.0.0.1:1/"),
        Does::Answers("500 No"),
    ];
    let (bad, good) = (Hook::start(&bad), Hook::start(&[]));
    let body = format!(
        "{}\n{}\n[[routes]]\nmatch = ['severity=page']\nreceiver = \"bad\"\ncontinue = true\n\n[[routes]]\nmatch = ['severity=page']\nreceiver = \"good\"\n",
        receiver("bad", "webhook", &bad.url),
        receiver("good", "webhook", &good.url)
    );
    let many = "  - {alert: Many, expr: 'count_values(\"n\", last_over_time(loss[20y]))', labels: {severity: page}}\n";
    let server = start(home.path(), &rules(home.path(), many), &receivers(home.path(), &body));
    let all: Vec<_> = (0..500)
        .map(|n| {
            wire::push::Series::new(
                "loss",
                &[("n".to_owned(), n.to_string())],
                "",
                &[model::Sample { time_ns: crate::process::T0, value: f64::from(n), step: Some(0) }],
            )
        })
        .collect();
    assert_eq!(server.push(&request("bar", 1, 1, all)).0, 200);
    let total = |message: &Value| {
        message["alerts"].as_array().unwrap().len() + message["truncatedAlerts"].as_u64().unwrap() as usize
    };
    let message = eventually("the good one is told", || good.taken().first().cloned());
    assert_eq!((total(&message), good.told().requests), (500, 1));
    let message = eventually("the bad one is told at last", || bad.taken().first().cloned());
    assert_eq!((total(&message), bad.told().requests), (500, 5));
    let summary = server.get("/api/tg/v1/alerts/summary");
    let groups = summary["groups"].as_array().unwrap();
    assert_eq!((groups.len(), &groups[0]["count"]), (1, &json!(500)));
    // The bar of every page asks for counts only.
    let brief = server.get("/api/tg/v1/alerts/summary?brief=true");
    assert_eq!((&brief["firing"], &brief["groups"]), (&json!(500), &json!([])));
    assert_eq!(server.ask("GET", "/api/tg/v1/alerts/summary?brief=1", &[], b"").status, 400);
    let waiting = server.get("/api/tg/v1/deliveries")["deliveries"].as_array().unwrap().clone();
    let waiting = waiting.iter().find(|row| row["result"] == "waiting").unwrap();
    assert_eq!((&waiting["receiver"], &waiting["alerts"]), (&json!("bad"), &json!(500)));
    assert!(!waiting["error"].as_str().unwrap().is_empty(), "{waiting}");
}

#[test]
fn a_crash_tells_nothing_twice_and_loses_no_start_and_no_end() {
    let home = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[]);
    let over = now_seconds() + 4.0;
    let body = format!(
        "{LOW}  - {{alert: Passes, expr: 'vector(time()) < {over}', labels: {{severity: page}}}}\n  - {{alert: Slow, expr: 'vector(1)', for: 3s, labels: {{severity: page}}}}\n  - {{alert: Held, expr: 'vector(time()) < {over}', keep_firing_for: 1h, labels: {{severity: page}}}}\n"
    );
    let file = receivers(home.path(), &receiver("hook", "webhook", &hook.url));
    let mut server = start(home.path(), &rules(home.path(), &body), &file);
    loss(&server, 1, &[0.5]);
    let knows =
        |hook: &Hook, word: &str| hook.words().iter().any(|(_, alerts)| alerts.contains(&word.to_owned()));
    eventually("three are told", || {
        ["Low:firing", "Passes:firing", "Held:firing"].iter().all(|word| knows(&hook, word)).then_some(())
    });
    let active = |server: &Server, name: &str| {
        let alerts = server.get("/api/v1/alerts")["data"]["alerts"].as_array().unwrap().clone();
        alerts.into_iter().find(|alert| alert["labels"]["alertname"] == name)
    };
    let pending = eventually("one is pending", || active(&server, "Slow"));
    // What was told is on disk by now: the receiver's answer came before this one.
    eventually("it is logged", || {
        (!server.get("/api/tg/v1/deliveries")["deliveries"].as_array()?.is_empty()).then_some(())
    });
    server.kill();
    let before = hook.words().len();
    eventually("two are over meanwhile", || (now_seconds() > over + 0.5).then_some(()));
    server.restart();
    eventually("the pending one fires", || knows(&hook, "Slow:firing").then_some(()));
    assert_eq!(active(&server, "Slow").unwrap()["activeAt"], pending["activeAt"]);
    eventually("the end of the other is told", || knows(&hook, "Passes:resolved").then_some(()));
    assert_eq!(active(&server, "Held").unwrap()["state"], "firing");
    assert!(!knows(&hook, "Held:resolved") && !knows(&hook, "Low:resolved"));
    // Each message after the crash has news: a start or an end that was not told before.
    for (_, alerts) in &hook.words()[before..] {
        let has_news = alerts.iter().any(|word| word == "Slow:firing" || word == "Passes:resolved");
        assert!(has_news, "{alerts:?}");
    }
    loss(&server, 2, &[0.5, 5.0]);
    eventually("the last end is told", || knows(&hook, "Low:resolved").then_some(()));
    let ends = hook
        .words()
        .iter()
        .flat_map(|(_, alerts)| alerts.clone())
        .filter(|word| word.ends_with("resolved"))
        .count();
    assert_eq!(ends, 2);
}

#[test]
fn an_end_and_a_reload_while_the_start_is_under_way_are_told_once() {
    let home = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[Does::Holds]);
    let file = receivers(home.path(), &receiver("hook", "webhook", &hook.url));
    let rules = rules(home.path(), LOW);
    let args = ["--rule-files", &rules, "--alerting-receivers-file", &file, "--alerting-time-max", "60s"];
    let server = Server::start_in(home.path(), &args);
    loss(&server, 1, &[0.5]);
    eventually("its start is under way", || (hook.told().requests == 1).then_some(()));
    assert_eq!(server.ask("POST", "/-/reload", &[], b"").status, 200);
    loss(&server, 2, &[0.5, 5.0]);
    eventually("it is over", || {
        server.get("/api/v1/alerts")["data"]["alerts"].as_array()?.is_empty().then_some(())
    });
    hook.told().is_let_go = true;
    eventually("its end is told", || (hook.words().len() > 1).then_some(()));
    let words: Vec<String> = hook.words().into_iter().flat_map(|(_, alerts)| alerts).collect();
    assert_eq!(words, ["Low:firing", "Low:resolved"]);
}

#[test]
fn what_is_refused_is_told_again_and_logged_as_refused() {
    let home = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[Does::Answers("400 Bad Request"), Does::Answers("422 No")]);
    let file = receivers(home.path(), &receiver("hook", "webhook", &hook.url));
    let server = start(home.path(), &rules(home.path(), LOW), &file);
    loss(&server, 1, &[0.5]);
    eventually("it is taken at last", || hook.taken().first().cloned());
    assert_eq!(hook.told().requests, 3);
    let rows = eventually("it is logged", || {
        let rows = server.get("/api/tg/v1/deliveries")["deliveries"].as_array()?.clone();
        (rows.len() == 3).then_some(rows)
    });
    let results: Vec<&Value> = rows.iter().map(|row| &row["result"]).collect();
    assert_eq!(results, ["delivered", "failed", "failed"]);
}

#[test]
fn a_silence_outlives_a_crash_and_what_it_kept_back_is_told_when_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[]);
    let file = receivers(home.path(), &receiver("hook", "webhook", &hook.url));
    let mut server = start(home.path(), &rules(home.path(), LOW), &file);
    let (code, out, err) = server.cli(&[
        "alerts",
        "silence",
        "alertname=Low",
        "run=~\"ba.\"",
        "--for",
        "1h",
        "--reason",
        "image rollout",
        "--by",
        "ann",
        "--json",
    ]);
    assert_eq!(code, 0, "{err}");
    let made: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&made["state"], &made["comment"]), (&json!("active"), &json!("image rollout")));
    server.kill();
    server.restart();
    loss(&server, 1, &[0.5]);
    let row = eventually("that it is silenced is logged", || {
        server.get("/api/tg/v1/deliveries")["deliveries"].as_array()?.first().cloned()
    });
    assert_eq!(
        (&row["result"], &row["rules"], &row["error"]),
        (&json!("silenced"), &json!(["Low"]), &json!("silenced: image rollout"))
    );
    let summary = server.get("/api/tg/v1/alerts/summary");
    assert_eq!((&summary["firing"], &summary["silenced"]), (&json!(0), &json!(1)));
    assert_eq!(summary["groups"][0]["alerts"][0]["silenced_by"], json!([made["id"]]));
    assert_eq!(hook.told().requests, 0);
    let (_, table, _) = server.cli(&["alerts", "ls"]);
    assert!(table.contains("silenced") && table.contains("run=bar"), "{table}");
    let (code, _, err) = server.cli(&["alerts", "unsilence", made["id"].as_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    eventually("it is told now", || (hook.words().first()?.0 == "firing").then_some(()));
    let (code, _, err) = server.cli(&["alerts", "unsilence", made["id"].as_str().unwrap()]);
    assert!(code != 0 && err.contains("in force"), "{err}");
    let wrong = json!({"matchers": [{"name": "run", "value": "x"}], "ends_at": now_ms() - 1, "comment": "c"});
    let answer = server.post_json("/api/tg/v1/silences", &wrong);
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("`ends_at`"));
}

#[test]
fn a_page_keeps_the_ticket_of_the_same_cause_back() {
    let home = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[]);
    let body = format!(
        "{}\n[[inhibit]]\nsource = ['severity=page']\ntarget = ['severity=ticket']\nequal = [\"run_id\"]\n",
        receiver("hook", "webhook", &hook.url)
    );
    let both = format!(
        "{LOW}  - {{alert: Lower, expr: 'last_over_time(loss[20y]) < 2', labels: {{severity: ticket}}}}\n  - {{alert: Other, expr: 'vector(1)', labels: {{severity: ticket}}}}\n"
    );
    let server = start(home.path(), &rules(home.path(), &both), &receivers(home.path(), &body));
    loss(&server, 1, &[0.5]);
    let knows = |word: &str| hook.words().iter().any(|(_, alerts)| alerts.contains(&word.to_owned()));
    eventually("page and unrelated ticket are told", || {
        (knows("Low:firing") && knows("Other:firing")).then_some(())
    });
    eventually("why the other is not is logged", || {
        let rows = server.get("/api/tg/v1/deliveries")["deliveries"].as_array()?.clone();
        rows.iter().find(|row| row["result"] == "silenced" && row["rules"] == json!(["Lower"])).cloned()
    });
    assert!(!knows("Lower:firing"));
    loss(&server, 2, &[0.5, 1.5]);
    eventually("the ticket is told once the page is over", || knows("Lower:firing").then_some(()));
}

#[test]
fn a_file_that_is_wrong_keeps_the_server_from_starting_and_a_reload_from_changing_anything() {
    let home = tempfile::tempdir().unwrap();
    let (one, other) = (Hook::start(&[]), Hook::start(&[]));
    let good = receivers(home.path(), &receiver("hook", "webhook", &one.url));
    let (code, out, err) = run(home.path(), &["alerts", "check", &good]);
    assert!(code == 0 && out.contains("hook (webhook)"), "{out} {err}");
    let mut server = start(home.path(), &rules(home.path(), LOW), &good);
    let broken = receivers(home.path(), &receiver("hook", "webhok", &one.url));
    let answer = server.ask("POST", "/-/reload", &[], b"");
    let said = String::from_utf8(answer.body).unwrap();
    assert!(answer.status == 500 && said.contains("line 9") && said.contains("webhok"), "{said}");
    let (code, _, err) = run(home.path(), &["alerts", "check", &broken]);
    assert!(code != 0 && err.contains("receivers.toml`, line 9"), "{err}");
    loss(&server, 1, &[0.5]);
    eventually("the old one is told", || one.taken().first().cloned());
    receivers(home.path(), &receiver("other", "webhook", &other.url));
    assert_eq!(server.ask("POST", "/-/reload", &[], b"").status, 200);
    // It fires still, and nothing else has to happen.
    eventually("the new one is told", || other.taken().first().cloned());
    assert_eq!(server.terminate(), 0);
    receivers(home.path(), &receiver("hook", "webhok", &one.url));
    let (code, _, err) = run(
        home.path(),
        &["up", "--listen", "127.0.0.1:0", "--data-dir", "other", "--alerting-receivers-file", &broken],
    );
    assert!(code == 2 && err.contains("line 9"), "{code} {err}");
}

#[test]
fn a_back_test_fires_when_the_rule_would_have() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start_in(home.path(), &["--rule-files", &rules(home.path(), LOW)]);
    // Ten minutes of a point each second: low from 120 s to 240 s, and from 400 s to 410 s.
    let low = |at: i64| (120..240).contains(&at) || (400..410).contains(&at);
    let values: Vec<f64> = (0..600).map(|at| if low(at) { 0.5 } else { 5.0 }).collect();
    loss(&server, 1, &values);
    let t0 = crate::process::T0 / 1_000_000;
    let ask =
        json!({"expr": "loss < 1", "for_seconds": 30, "from": t0, "to": t0 + 600_000, "step_seconds": 1});
    let answer = server.post_json("/api/tg/v1/rules/backtest", &ask).json();
    let firings = answer["firings"].as_array().unwrap();
    assert_eq!(firings.len(), 1, "{answer}");
    assert_eq!((&firings[0]["from"], &firings[0]["to"]), (&json!(t0 + 150_000), &json!(t0 + 240_000)));
    assert_eq!(answer["pending"].as_array().unwrap().len(), 2);
    assert_eq!((&answer["total_seconds"], &answer["threshold"][0]["value"]), (&json!(90.0), &json!(1.0)));
    assert_eq!(answer["series"][0]["labels"]["run"], "bar");
    let named = json!({"rule": "Low", "from": t0, "to": t0 + 600_000});
    let answer = server.post_json("/api/tg/v1/rules/backtest", &named).json();
    assert_eq!(answer["threshold"][0]["text"], "< 1", "{answer}");
    for (wrong, word) in [
        (json!({"expr": "loss <", "from": t0, "to": t0 + 1_000}), "can't be read"),
        (json!({"expr": "tg_gpu_busy_ratio < 0.1", "from": t0, "to": t0 + 1_000}), "trust D"),
        (json!({"expr": "loss", "from": t0, "to": t0}), "`from`"),
        (json!({"from": t0, "to": t0 + 1_000}), "one of"),
    ] {
        let answer = server.post_json("/api/tg/v1/rules/backtest", &wrong);
        let said = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 400 && said.contains(word), "{said}");
    }
    let check =
        server.post_json("/api/tg/v1/rules/check", &json!({"expr": "tg_gpu_busy_ratio < 0.1"})).json();
    assert_eq!((&check["ok"], &check["findings"][0]["metric"]), (&json!(false), &json!("tg_gpu_busy_ratio")));
    let rule = server.get("/api/tg/v1/rules/Low");
    assert_eq!((&rule["query"], &rule["tests"]), (&json!("last_over_time(loss[20y]) < 1"), &Value::Null));
    assert!(rule["tests_reason"].as_str().unwrap().contains("no tests"), "{rule}");
}

#[test]
fn a_rule_that_comes_with_the_program_is_shown_with_how_its_tests_fare() {
    let server = Server::start(&["--starter-rules"]);
    let rule = server.get("/api/tg/v1/rules/TargetDown");
    assert_eq!((&rule["file"], &rule["type"]), (&json!("starter/target.yml"), &json!("alerting")));
    assert_eq!(rule["runbook"], "/docs/runbooks/TargetDown.md");
    let tests = rule["tests"].as_array().unwrap();
    assert!(!tests.is_empty() && tests.iter().all(|test| test["passed"] == true), "{rule}");
    assert_eq!(server.ask("GET", "/api/tg/v1/rules/Nobody", &[], b"").status, 404);
}
