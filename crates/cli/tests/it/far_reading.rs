//! Queries that a cluster answers, what is answered while it is away, and runs read back from it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::far_cluster::{ANY_TIME, Cluster, drained, now_ms, write};
use crate::process::{DEADLINE, Server, T0, eventually, id, path, request, series, session};
use crate::prometheus::{T0_SECONDS, escape, names, vector};

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}

#[test]
fn questions_go_to_the_cluster_whole_and_its_words_come_back() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    let at_ms = T0 / 1_000_000;
    assert_eq!(cluster.write(&[("__name__", "theirs"), ("job", "x")], &[(at_ms, 5.0)]), 204);
    assert_eq!(vector(&server, "theirs * 2", 0)[0].1, "10");
    let range = format!("/api/v1/query_range?query=theirs&start={T0_SECONDS}&end={}&step=1", T0_SECONDS + 2);
    assert_eq!(server.get(&range)["data"]["result"][0]["values"].as_array().unwrap().len(), 3);
    assert_eq!(names(&server, "/api/v1/label/job/values?match[]=theirs"), ["x"]);
    assert_eq!(names(&server, "/api/v1/labels"), ["__name__", "job"]);
    assert_eq!(server.get("/api/v1/series?match[]=theirs")["data"][0]["job"], "x");
    assert_eq!(server.get("/api/v1/query_exemplars?query=theirs&start=0&end=1")["data"], json!([]));
    let (code, out, err) = server.cli(&["query", "theirs", "--time", &T0_SECONDS.to_string(), "--json"]);
    assert_eq!((code, out.contains("\"5\"")), (0, true), "{err}");
    let wrong = server.ask("GET", "/api/v1/query?query=rate(theirs)", &[], b"");
    assert_eq!((wrong.status, &wrong.json()["errorType"]), (400, &json!("bad_data")));
    assert!(wrong.json()["error"].as_str().unwrap().contains("expected type range vector"), "its own words");
    assert_eq!(server.metric("truegauge_far_queries_total{outcome=\"failed\"}"), 1.0);
}

#[test]
fn while_the_cluster_is_away_this_server_answers_and_says_so() {
    let mut cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&[]);
    assert_eq!(server.push(&request("far", 1, 1, vec![series("loss", &[1.0, 2.0])])).0, 200);
    drained(&server);
    cluster.kill();
    for path in [
        format!("/api/v1/query?query=loss&time={T0_SECONDS}"),
        format!("/api/v1/query_range?query=loss&start={T0_SECONDS}&end={T0_SECONDS}&step=1"),
        "/api/v1/series?match[]=loss".to_owned(),
        "/api/v1/label/run/values".to_owned(),
    ] {
        let answer = server.get(&path);
        let warning = answer["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.contains("the far storage is away"), "{path}: {answer}");
        assert!(answer["data"].to_string().contains("far"), "{path}: {answer}");
    }
    assert_eq!(vector(&server, "sum(loss)", 1)[0].1, "2");
    cluster.again();
    eventually("the cluster answers again", || {
        let answer = server.get(&format!("/api/v1/query?query=loss&time={T0_SECONDS}"));
        (answer.get("warnings").is_none() && answer["data"]["result"][0].is_object()).then_some(())
    });
}

#[test]
fn a_token_for_one_project_reads_no_other_from_the_cluster() {
    let cluster = Cluster::start(ANY_TIME);
    let server = cluster.server(&["--token", "secret"]);
    let admin = [("authorization", "Bearer secret")];
    let at_ms = T0 / 1_000_000;
    for project in ["mine", "theirs"] {
        assert_eq!(cluster.write(&[("__name__", "m"), ("project", project)], &[(at_ms, 1.0)]), 204);
    }
    let body = json!({"name": "t", "scopes": ["read"], "project": "mine"}).to_string();
    let headers = [admin[0], ("content-type", "application/json")];
    let made = server.ask("POST", "/api/tg/v1/tokens", &headers, body.as_bytes());
    assert!(made.status < 300, "{}", String::from_utf8_lossy(&made.body));
    let bearer = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    let ask = |path: &str| {
        let answer = server.ask("GET", path, &[("authorization", &bearer)], b"");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        let text = answer.json().to_string();
        assert!(!text.contains("theirs"), "{path}: {text}");
        text
    };
    for query in ["m", "m or {project=\"theirs\"}", "count by (project) ({__name__=~\".+\"})", "sum(m)"] {
        assert!(ask(&format!("/api/v1/query?query={}&time={T0_SECONDS}", escape(query))).contains("result"));
    }
    assert!(ask("/api/v1/series?match[]=m").contains("mine"));
    assert!(ask("/api/v1/label/project/values").contains("mine"));
    ask("/api/v1/labels");
    ask("/api/v1/metadata");
    let unreadable = escape("m keep_metric_names");
    let answer =
        server.ask("GET", &format!("/api/v1/query?query={unreadable}"), &[("authorization", &bearer)], b"");
    assert_eq!(answer.status, 400, "what can't be confined is not forwarded");
}

#[test]
fn a_question_that_nobody_waits_for_ends_at_the_cluster_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, send) = (stream.unwrap(), send.clone());
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                let asked = stream.read(&mut bytes).unwrap();
                send.send(String::from_utf8_lossy(&bytes[..asked]).into_owned()).unwrap();
                // Ends once the other side hangs up.
                let _ = stream.read(&mut bytes);
                send.send("gone".to_owned()).unwrap();
            });
        }
    });
    let write_url = format!("{url}/write");
    let server = Server::start(&[
        "--storage-kind",
        "prometheus",
        "--storage-write-url",
        &write_url,
        "--storage-query-url",
        &url,
        "--storage-tenant",
        "team-a",
        "--storage-username",
        "u",
        "--storage-password",
        "s3cret",
        "--own-metrics=false",
        "--starter-rules=false",
    ]);
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /api/v1/query?query=up HTTP/1.1\r\nhost: localhost\r\nx-scope-orgid: other\r\n\r\n")
        .unwrap();
    let asked = told.recv_timeout(DEADLINE).unwrap();
    assert!(asked.starts_with("POST /api/v1/query HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("x-scope-orgid: team-a\r\n") && !asked.contains("other"), "{asked}");
    // printf 'u:s3cret' | base64
    assert!(asked.contains("authorization: Basic dTpzM2NyZXQ=\r\n"), "{asked}");
    drop(stream);
    assert_eq!(told.recv_timeout(DEADLINE).unwrap(), "gone");
    let log = std::fs::read_to_string(server.home.join("log")).unwrap();
    assert!(!log.contains("s3cret"), "{log}");
    assert!(!server.get("/api/tg/v1/storage").to_string().contains("s3cret"));
}

/// A cluster that sends `start` to every question, and then a blank now and then for as long as it is
/// listened to.
fn dripping(start: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4_096]);
                let mut piece = start.as_bytes();
                while stream.write_all(piece).is_ok() {
                    piece = if start.is_empty() { b"" } else { b" " };
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
        }
    });
    url
}

#[test]
fn a_cluster_that_never_ends_its_answer_holds_nobody_longer_than_a_query_may_take() {
    let ends = |start: &'static str, status: u16, words: &str| {
        let url = dripping(start);
        let at = ["--storage-kind=prometheus", "--own-metrics=false", "--starter-rules=false"];
        let urls = [format!("--storage-write-url={url}"), format!("--storage-query-url={url}")];
        let flags = [at[0], at[1], at[2], &urls[0], &urls[1], "--query-time-max=300ms"];
        let server = Server::start(&flags);
        for path in ["query?query=up", "query_range?query=up&start=0&end=1&step=1", "labels", "metadata"] {
            // Read to the connection's end, which would not come.
            let answer = server.ask("GET", &format!("/api/v1/{path}"), &[], b"");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let (status, words) =
                if path == "metadata" { (200, "no answer within") } else { (status, words) };
            assert_eq!((answer.status, text.contains(words)), (status, true), "{path}: {text}");
        }
    };
    ends("", 503, "timed out at the far storage");
    ends("HTTP/1.1 500 No\r\ncontent-length: 99999\r\n\r\n", 503, "timed out at the far storage");
    ends("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999\r\n\r\n", 200, "  ");
}

#[test]
fn an_answer_that_is_packed_unasked_is_not_passed_on() {
    let packed = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd";
    let url = dripping(packed);
    let urls = [format!("--storage-write-url={url}"), format!("--storage-query-url={url}")];
    let server = Server::start(&["--storage-kind=prometheus", &urls[0], &urls[1]]);
    let answer = server.get("/api/v1/query?query=vector(7)");
    assert_eq!(answer["data"]["result"][0]["value"][1], "7", "{answer}");
    assert!(answer["warnings"][0].as_str().unwrap().contains("the far storage is away"), "{answer}");
}

#[test]
fn a_server_without_a_run_reads_it_back_with_its_steps() {
    let cluster = Cluster::start(ANY_TIME);
    let first = cluster.server(&[]);
    let values: Vec<f64> = (0..5_000).map(|n| (f64::from(n) / 50.0).sin()).collect();
    let mut sent = request("far", 1, 1, vec![series("loss", &values), series("opt/lr", &[0.5, 0.25])]);
    sent.session = Some(session(0, 1));
    assert_eq!(first.push(&sent).0, 200);
    drained(&first);
    let second = cluster.server(&[]);
    let points = format!("/api/tg/v1/runs/{}/points?metric=loss&axis=step&buckets=100", id("far"));
    let (here, there) = (first.get(&points), second.get(&points));
    for column in ["x", "first", "last", "min", "max", "count"] {
        assert_eq!(numbers(&there["series"][0][column]), numbers(&here["series"][0][column]), "{column}");
    }
    let metrics = second.get(&format!("/api/tg/v1/runs/{}/metrics", id("far")));
    let listed: Vec<(&str, &Value)> = metrics["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| (metric["display"].as_str().unwrap(), &metric["points"]))
        .collect();
    assert_eq!(listed, [("loss", &json!(5_000)), ("opt/lr", &json!(2))]);
    let run = second.get(&format!("/api/tg/v1/runs/{}", id("far")));
    assert_eq!((&run["run"], &run["project"]), (&json!("far"), &json!("p")));
    assert_eq!(run["attributes"]["truegauge/read_back_from"], cluster.url);
    let many = json!({"axis": "step", "buckets": 10, "format": "json", "queries": [{"run_id": id("far"), "metric": "loss"}]});
    assert_eq!(second.post_json("/api/tg/v1/points", &many).status, 200);
    // The copy is not sent on.
    assert_eq!(second.get("/api/tg/v1/storage")["far"]["sent_samples"], 0);
    // A run that nobody has is not there.
    let none = second.ask("GET", &format!("/api/tg/v1/runs/{}", path("nobody").id()), &[], b"");
    assert_eq!((none.status, none.error_code()), (404, "not_found".to_owned()));
}

#[test]
fn doctor_looks_at_the_cluster_and_tells_how_late_samples_may_be() {
    let mut cluster = Cluster::start("2h");
    let server = cluster.server(&[]);
    let look = |server: &Server| {
        let (code, page, err) = server.cli(&["doctor", "--json"]);
        let page: Value = serde_json::from_str(&page).unwrap_or_else(|_| panic!("{page}{err}"));
        let found = |id: &str| {
            let check = page["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).cloned();
            check.unwrap_or_else(|| panic!("{id}: {page}"))
        };
        (code, found("storage.queue"), page.clone())
    };
    let (code, queue, page) = look(&server);
    assert_eq!((code, &queue["status"]), (0, &json!("ok")), "{page}");
    let check = |id: &str, status: &str, words: &str| {
        let row = page["checks"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
        assert_eq!(row["status"], status, "{row}");
        assert!(row["evidence"].as_str().unwrap().contains(words), "{row}");
    };
    check("storage.write", "ok", "takes samples");
    check("storage.query", "ok", "answers with what was written");
    check("storage.clock", "ok", "agrees");
    check("storage.window", "ok", "samples 1 hour late are taken; one 1 day late is refused: ");
    cluster.kill();
    assert_eq!(write(&server, &[("__name__", "up")], &[(now_ms(), 1.0)]), 204);
    eventually("doctor tells of the outage", || {
        let (code, queue, _) = look(&server);
        (code == 1 && queue["status"] == "fail").then_some(())
    });
}
