//! Alerts told to Alertmanagers: Debian's own, and receivers that fail on purpose.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::access_tls::Authority;
use crate::process::{Server, each_connection, eventually, request, run, series};

/// What a receiver answers, and what it was told.
#[derive(Default)]
struct Told {
    /// Status lines and headers of the next answers; 200 once they are used up.
    answers: Vec<&'static str>,
    /// Bodies that were answered with 200.
    taken: Vec<Value>,
    requests: usize,
    authorization: Option<String>,
    tenant: Option<String>,
}

/// Takes alerts as an Alertmanager does.
struct Receiver {
    url: String,
    told: Arc<Mutex<Told>>,
}

impl Receiver {
    fn start(answers: &[&'static str]) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answers)
    }

    fn on(listener: TcpListener, answers: &[&'static str]) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let told = Arc::new(Mutex::new(Told { answers: answers.to_vec(), ..Told::default() }));
        let shared = Arc::clone(&told);
        each_connection(listener, move |stream| serve(stream, &shared));
        Self { url, told }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    /// Every alert that was taken, in order.
    fn alerts(&self) -> Vec<Value> {
        self.told().taken.iter().flat_map(|batch| batch.as_array().unwrap().clone()).collect()
    }
}

/// Answers one request of a connection.
fn serve(mut stream: &TcpStream, told: &Mutex<Told>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut first = String::new();
    let (mut authorization, mut tenant) = (None, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if first.is_empty() {
            first.clone_from(&line);
        }
        let (name, value) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = Some(value.to_owned()),
            "x-scope-orgid" => tenant = Some(value.to_owned()),
            "" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    assert!(first.starts_with("POST /api/v2/alerts HTTP/1.1"), "{first}");
    let mut told = told.lock().unwrap();
    told.requests += 1;
    (told.authorization, told.tenant) = (authorization, tenant);
    let answer = if told.answers.is_empty() { "200 OK" } else { told.answers.remove(0) };
    if answer.starts_with("200") {
        told.taken.push(serde_json::from_slice(&body).unwrap());
    }
    drop(told);
    write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 4\r\n\r\nno!\n").ok()
}

fn now_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A time of an alert, seconds since the epoch.
fn seconds(server: &Server, time: &Value) -> f64 {
    // The server reads RFC 3339; what it says is what it meant.
    let time = time.as_str().unwrap();
    let answer = server.get(&format!("/api/v1/query?query=time()&time={}", time.replace(':', "%3A")));
    answer["data"]["result"][1].as_str().unwrap().parse().unwrap()
}

fn rules(home: &Path, body: &str) -> String {
    let file = home.join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: g\n  interval: 200ms\n  rules:\n{body}")).unwrap();
    file.display().to_string()
}

/// Fires for every run whose last loss is below 1.
const LOW: &str = "  - {alert: Low, expr: 'last_over_time(loss[20y]) < 1', labels: {severity: page}, annotations: {summary: '{{ $labels.run }}: {{ $value }}', runbook_url: /docs/runbooks/Low.md}}\n";

struct Alertmanager(Child, String);

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Alertmanager {
    /// Debian's Alertmanager, which sends what it groups to `hook`.
    fn start(home: &Path, hook: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let file = home.join("alertmanager.yml");
        std::fs::write(&file, format!("route: {{receiver: hook, group_by: [alertname], group_wait: 100ms, group_interval: 200ms}}\nreceivers: [{{name: hook, webhook_configs: [{{url: '{hook}/api/v2/alerts', send_resolved: true}}]}}]\n")).unwrap();
        let child = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", home.join("alertmanager").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        assert!(
            child.is_ok(),
            "`prometheus-alertmanager` is missing: apt-get install prometheus-alertmanager"
        );
        Self(child.unwrap(), address)
    }

    fn alerts(&self) -> Option<Vec<Value>> {
        let mut stream = TcpStream::connect(&self.1).ok()?;
        write!(stream, "GET /api/v2/alerts HTTP/1.0\r\nhost: {}\r\n\r\n", self.1).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

#[test]
fn debians_alertmanager_takes_alerts_and_hands_their_start_and_end_on() {
    let home = tempfile::tempdir().unwrap();
    let hook = Receiver::start(&[]);
    let alertmanager = Alertmanager::start(home.path(), &hook.url);
    eventually("the Alertmanager is up", || alertmanager.alerts());
    let file = rules(home.path(), LOW);
    let url = format!("http://{}/", alertmanager.1);
    let server = Server::start(&[
        "--rule-files",
        &file,
        "--alerting-alertmanagers",
        &url,
        "--external-url",
        "https://gauge.example.org/",
        "--external-labels",
        "site=lab",
    ]);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[0.5])])).0, 200);
    let alert = eventually("the alert is there", || alertmanager.alerts()?.first().cloned());
    assert_eq!(alert["labels"]["alertname"], "Low");
    assert_eq!((&alert["labels"]["run"], &alert["labels"]["site"]), (&json!("bar"), &json!("lab")));
    assert_eq!(
        alert["annotations"],
        json!({"summary": "bar: 0.5", "runbook_url": "https://gauge.example.org/docs/runbooks/Low.md"})
    );
    assert_eq!(
        alert["generatorURL"],
        "https://gauge.example.org/explore?q=last_over_time%28loss%5B20y%5D%29+%3C+1"
    );
    assert_eq!(alert["status"]["state"], "active");
    let statuses = |hook: &Receiver| -> Vec<String> {
        hook.told().taken.iter().map(|word| word["status"].as_str().unwrap().to_owned()).collect()
    };
    eventually("it is handed on", || (statuses(&hook) == ["firing"]).then_some(()));
    assert_eq!(server.push(&request("bar", 1, 2, vec![series("loss", &[0.5, 5.0])])).0, 200);
    eventually("its end is handed on", || (statuses(&hook).last()? == "resolved").then_some(()));
    let shown = server.get("/api/v1/alertmanagers");
    assert_eq!(shown["data"]["activeAlertmanagers"], json!([{"url": format!("{url}api/v2/alerts")}]));
    let sent = format!("truegauge_notify_sent_total{{alertmanager=\"{url}api/v2/alerts\"}}");
    assert!(server.metric(&sent) >= 2.0);
}

#[test]
fn debians_alertmanager_groups_what_it_is_told_and_silences_it() {
    let home = tempfile::tempdir().unwrap();
    let hook = Receiver::start(&[]);
    let alertmanager = Alertmanager::start(home.path(), &hook.url);
    eventually("the Alertmanager is up", || alertmanager.alerts());
    let file = rules(home.path(), LOW);
    let url = format!("http://{}/", alertmanager.1);
    let server = Server::start(&["--rule-files", &file, "--alerting-alertmanagers", &url]);
    for (name, writer) in [("bar", 1), ("baz", 2)] {
        assert_eq!(server.push(&request(name, writer, 1, vec![series("loss", &[0.5])])).0, 200);
    }
    let group = eventually("both come in one message", || {
        hook.told().taken.iter().find(|word| word["alerts"].as_array().unwrap().len() == 2).cloned()
    });
    assert_eq!(group["groupLabels"], json!({"alertname": "Low"}));
    let silence = json!({
        "matchers": [{"name": "run", "value": "bar", "isRegex": false}], "createdBy": "ann", "comment": "c",
        "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z",
    })
    .to_string();
    let mut stream = TcpStream::connect(&alertmanager.1).unwrap();
    let head = format!("host: {}\r\ncontent-type: application/json", alertmanager.1);
    write!(
        stream,
        "POST /api/v2/silences HTTP/1.0\r\n{head}\r\ncontent-length: {}\r\n\r\n{silence}",
        silence.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    // The fingerprint is the same on both sides, so that one finds the other's alert.
    let silenced = eventually("it is silenced there", || {
        let alerts = alertmanager.alerts()?;
        alerts.into_iter().find(|alert| alert["status"]["state"] == "suppressed")
    });
    let summary = server.get("/api/tg/v1/alerts/summary");
    let ours =
        summary["groups"].as_array().unwrap().iter().flat_map(|group| group["alerts"].as_array().unwrap());
    let ours = ours.filter(|alert| alert["fingerprint"] == silenced["fingerprint"]);
    assert_eq!(ours.map(|alert| &alert["labels"]["run"]).collect::<Vec<_>>(), ["bar"]);
}

#[test]
fn an_alert_is_told_to_all_again_after_a_while_and_when_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let (one, other) = (Receiver::start(&[]), Receiver::start(&["503 Busy\r\nretry-after: 0", "500 No"]));
    let file = rules(home.path(), LOW);
    let with_user = other.url.replace("http://", "http://joe:s3cret@");
    let server = Server::start(&[
        "--rule-files",
        &file,
        "--alerting-alertmanagers",
        &one.url,
        "--alerting-alertmanagers",
        &with_user,
        "--alerting-resend-delay",
        "500ms",
        "--alerting-headers",
        "X-Scope-OrgID: team-a",
    ]);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[0.5])])).0, 200);
    for receiver in [&one, &other] {
        eventually("it is told and told again", || (receiver.alerts().len() >= 3).then_some(()));
        let alerts = receiver.alerts();
        let starts: Vec<&Value> = alerts.iter().map(|alert| &alert["startsAt"]).collect();
        assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
        // Four times the resend delay ahead, so that a word that is lost does not end it.
        let ahead = seconds(&server, &alerts[0]["endsAt"]) - seconds(&server, &alerts[0]["startsAt"]);
        assert!((1.9..20.0).contains(&ahead), "{alerts:?}");
    }
    assert!(other.told().requests >= 5);
    assert_eq!(other.told().authorization.as_deref(), Some("Basic am9lOnMzY3JldA=="));
    assert_eq!(one.told().tenant.as_deref(), Some("team-a"));
    assert_eq!(server.push(&request("bar", 1, 2, vec![series("loss", &[0.5, 5.0])])).0, 200);
    for receiver in [&one, &other] {
        let end = eventually("its end is told", || {
            let last = receiver.alerts().last()?["endsAt"].clone();
            (seconds(&server, &last) <= now_seconds()).then_some(last)
        });
        assert!(now_seconds() - seconds(&server, &end) < 20.0);
    }
    let log = std::fs::read_to_string(server.home.join("log")).unwrap();
    assert!(log.contains("alerts can't be delivered") && log.contains("delivered again"), "{log}");
    assert!(!log.contains("s3cret"));
    let page = String::from_utf8(server.ask("GET", "/metrics", &[], b"").body).unwrap();
    assert!(page.contains("truegauge_notify_failures_total") && !page.contains("s3cret"), "{page}");
}

#[test]
fn many_alerts_go_in_batches_and_what_is_too_much_is_counted() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(&["503 Busy\r\nretry-after: 1"]);
    let many = "  - {alert: Many, expr: 'count_values(\"n\", last_over_time(loss[20y]))'}\n";
    let file = rules(home.path(), many);
    let server = Server::start(&[
        "--rule-files",
        &file,
        "--alerting-alertmanagers",
        &receiver.url,
        "--alerting-queue-max",
        "150",
    ]);
    let all: Vec<_> = (0..200)
        .map(|n| wire::push::Series::new("loss", &[("n".to_owned(), n.to_string())], "", &[point(n)]))
        .collect();
    assert_eq!(server.push(&request("bar", 1, 1, all)).0, 200);
    eventually("all that fit are told", || (receiver.alerts().len() >= 150).then_some(()));
    let sizes: Vec<usize> =
        receiver.told().taken.iter().map(|batch| batch.as_array().unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size <= 64), "{sizes:?}");
    let numbers: BTreeMap<String, usize> =
        receiver.alerts().iter().fold(BTreeMap::new(), |mut numbers, alert| {
            *numbers.entry(alert["labels"]["n"].as_str().unwrap().to_owned()).or_default() += 1;
            numbers
        });
    assert!(numbers.len() >= 150, "{}", numbers.len());
    let url = format!("{}/api/v2/alerts", receiver.url);
    let dropped = server
        .metric(&format!("truegauge_notify_dropped_total{{alertmanager=\"{url}\",reason=\"queue_full\"}}"));
    assert!(dropped >= 1.0, "{dropped}");
    assert_eq!(server.metric(&format!("truegauge_notify_waiting{{alertmanager=\"{url}\"}}")), 0.0);
}

fn point(n: i32) -> model::Sample {
    model::Sample { time_ns: crate::process::T0, value: f64::from(n), step: Some(0) }
}

#[test]
fn what_was_not_delivered_before_a_crash_is_delivered_after_it() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // One of the two is over by the time the server is back.
    let over = now_seconds() + 4.0;
    let body = format!("{LOW}  - {{alert: Passes, expr: 'vector(time()) < {over}'}}\n");
    let file = rules(home.path(), &body);
    let url = format!("http://{address}");
    let mut server = Server::start_in(
        home.path(),
        &["--rule-files", &file, "--alerting-alertmanagers", &url, "--alerting-resend-delay", "1h"],
    );
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[0.5])])).0, 200);
    let since = |server: &Server, name: &str| {
        let alerts = server.get("/api/v1/alerts")["data"]["alerts"].as_array().unwrap().clone();
        let is_it = |alert: &&Value| alert["state"] == "firing" && alert["labels"]["alertname"] == name;
        alerts.iter().find(is_it).map(|alert| alert["activeAt"].clone())
    };
    let low = eventually("one fires", || since(&server, "Low"));
    let passes = eventually("the other fires", || since(&server, "Passes"));
    eventually("nobody is there to be told", || {
        let failures = format!("truegauge_notify_failures_total{{alertmanager=\"{url}/api/v2/alerts\"}}");
        (server.metric(&failures) > 0.0).then_some(())
    });
    server.kill();
    let receiver = Receiver::on(TcpListener::bind(address).unwrap(), &[]);
    eventually("one of them is over", || (now_seconds() > over + 0.5).then_some(()));
    server.restart();
    let told = |name: &str| receiver.alerts().into_iter().find(|alert| alert["labels"]["alertname"] == name);
    let start = |alert: &Value| seconds(&server, &alert["startsAt"]);
    let fires = eventually("what fires is told", || told("Low"));
    assert_eq!(start(&fires), seconds(&server, &low));
    let ended = eventually("what is over is told", || told("Passes"));
    assert_eq!(start(&ended), seconds(&server, &passes));
    assert!(seconds(&server, &ended["endsAt"]) <= now_seconds(), "{ended}");
}

#[test]
fn nobody_is_told_of_what_held_only_while_the_server_was_away() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(&[]);
    let (from, to) = (now_seconds() + 3.0, now_seconds() + 4.5);
    let held = format!("vector(time()) > {from} < {to}");
    let body = format!(
        "  - {{record: held, expr: '{held}'}}\n  - {{alert: Held, expr: '{held}'}}\n  - {{alert: Always, expr: 'vector(1)'}}\n"
    );
    let file = rules(home.path(), &body);
    let mut server = Server::start_in(
        home.path(),
        &[
            "--rule-files",
            &file,
            "--alerting-alertmanagers",
            &receiver.url,
            "--alerting-resend-delay",
            "200ms",
        ],
    );
    eventually("the other alert is told", || (!receiver.alerts().is_empty()).then_some(()));
    assert_eq!(server.terminate(), 0);
    assert!(now_seconds() < from, "this machine is too slow for the test's times");
    eventually("its time is over", || (now_seconds() > to + 0.5).then_some(()));
    let before = receiver.alerts().len();
    server.restart();
    eventually("the recording rule has made up for it", || {
        let answer = server.get("/api/v1/query?query=count_over_time(held%5B1h%5D)");
        (answer["data"]["result"][0]["value"][1].as_str()?.parse::<u32>().ok()? >= 5).then_some(())
    });
    eventually("rules go on", || (receiver.alerts().len() > before + 2).then_some(()));
    let names: Vec<Value> =
        receiver.alerts().iter().map(|alert| alert["labels"]["alertname"].clone()).collect();
    assert!(names.iter().all(|name| name == "Always"), "{names:?}");
    let answer =
        server.get("/api/v1/query?query=count_over_time(ALERTS%7Balertname%3D%22Held%22%7D%5B1h%5D)");
    assert_eq!(answer["data"]["result"], json!([]));
}

#[test]
fn an_alertmanager_behind_tls_is_believed_by_a_file() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "authority");
    authority.sign("server", &["127.0.0.1"]);
    let (cert, key) = (authority.path("server.pem"), authority.path("server.key"));
    // It takes no alerts; that it says so shows that the two understand each other.
    let far = Server::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let file = rules(home.path(), "  - {alert: Always, expr: 'vector(1)'}\n");
    let asking = ["--rule-files", &file, "--alerting-alertmanagers", &far.url];
    let log = |server: &Server, words: &str| {
        let log = std::fs::read_to_string(server.home.join("log")).unwrap();
        log.lines().any(|line| line.contains("can't be delivered") && line.contains(words)).then_some(())
    };
    let without = Server::start(&asking);
    eventually("it is not believed", || log(&without, "UnknownIssuer"));
    let authorities = authority.path("authority.pem");
    let with = Server::start(&[&asking[..], &["--alerting-ca-file", &authorities]].concat());
    eventually("it is, and answers", || log(&with, "it answered 404"));
    std::fs::write(&authorities, "").unwrap();
    let (code, _, err) = run(
        home.path(),
        &[&["up", "--listen", "127.0.0.1:0", "--alerting-ca-file", &authorities], &asking[2..]].concat(),
    );
    assert_eq!(code, 2);
    assert!(err.contains("authority.pem") && err.contains("no certificate is in it"), "{err}");
}

#[test]
fn an_address_that_is_none_keeps_the_server_from_starting() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, err) = run(
        home.path(),
        &["up", "--listen", "127.0.0.1:0", "--alerting-alertmanagers", "ftp://joe:s3cret@am"],
    );
    assert_eq!(code, 2);
    assert!(err.contains("`ftp://am`") && !err.contains("s3cret"), "{err}");
}
