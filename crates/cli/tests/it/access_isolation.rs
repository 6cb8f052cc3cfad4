//! A law: what a confined token is answered does not depend on what others have.
//!
//! Random projects are put on one server together, and one of them alone on another. Whoever is
//! confined to that one asks both the same of every route there is, and gets the same. A route that
//! nobody thought about fails the test.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use model::RunPath;
use serde_json::{Value, json};
use wire::push::PushRequest;
use wire::remote_write::{Point, RequestWriter};

use crate::access_questions::{Question, WRITE, Words, get, promql, questions, send};
use crate::access_world::{Project, Random, faulted, pushed, telemetry, world, written};
use crate::process::{Answer, Server};

const ROOT: &str = "root-secret";
/// Worlds tried; more with `TRUEGAUGE_TEST_CASES`, which the run of a night may set.
const CASES: u64 = 1;

fn guarded() -> Server {
    Server::start(&["--token", ROOT, "--own-metrics=false", "--starter-rules=false"])
}

fn ask(server: &Server, token: &str, question: &Question) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", question.kind)];
    let headers = if question.kind == WRITE {
        [&headers[..], &[("content-encoding", "snappy")]].concat()
    } else {
        headers.to_vec()
    };
    server.ask(question.method, &question.path, &headers, &question.body)
}

fn push(server: &Server, token: &str, sent: &PushRequest) -> u16 {
    let body = wire::push::encode(sent).unwrap();
    let bearer = format!("Bearer {token}");
    server.push_bytes(&body, &[("content-encoding", "zstd"), ("authorization", &bearer)]).status
}

fn write(server: &Server, token: &str, body: Vec<u8>) -> u16 {
    ask(server, token, &Question { method: "POST", path: "/api/v1/write".into(), kind: WRITE, body }).status
}

/// Puts projects on a server; the random numbers of each are its own, so that it is the same alone.
fn fill(server: &Server, seed: u64, projects: &[(usize, &Project)]) {
    for (number, project) in projects {
        let mut random = Random(seed ^ (*number as u64 + 1).wrapping_mul(0x9e37_79b9));
        for at in 0..project.runs {
            let sent = pushed(&mut random, project, at, (number * 2 + at) as u8 + 1);
            assert_eq!(push(server, ROOT, &sent), 200);
            let fault = faulted(project, at, (number * 2 + at) as u8 + 1);
            assert_eq!(push(server, ROOT, &fault), 200);
            for (path, body) in telemetry(&project.run(at), &project.mark) {
                let answer = ask(server, ROOT, &send("POST", path, &body));
                assert_eq!((answer.status, answer.json()), (200, json!({})), "{path}");
            }
        }
        let ingest = token(server, project, &["ingest"]);
        let mark = project.mark.as_str();
        let labels = [("job", mark), ("project", "forged"), ("run", mark)];
        assert_eq!(write(server, &ingest, written("scraped", &labels, mark)), 204);
        assert_eq!(write(server, &ingest, written(&format!("s_{mark}"), &[("job", "x")], mark)), 204);
        let engine = [("job", "x"), ("model_name", mark)];
        assert_eq!(write(server, &ingest, written("vllm:num_requests_waiting", &engine, mark)), 204);
    }
}

fn token(server: &Server, project: &Project, scopes: &[&str]) -> String {
    let mut new = project.bounds();
    new["scopes"] = json!(scopes);
    new["name"] = json!("one of them");
    let made = ask(server, ROOT, &send("POST", "/api/tg/v1/tokens", &new));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    made.json()["token"].as_str().unwrap().to_owned()
}

/// What differs from one moment, process or server to the next, whatever is in it.
const PASSING: [&str; 17] = [
    "timings",
    "uptime_seconds",
    "request_id",
    "startTime",
    "lastConfigTime",
    "created_ms",
    "until_ms",
    "undo_until_ms",
    "CWD",
    "data_dir",
    "free_bytes",
    "state_since_ms",
    "elapsed_seconds",
    "state_reason",
    "heartbeat_ms",
    "otlp_grpc",
    "otlp_http",
];

fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(settle);
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// An answer as it is compared: status and body, without what passes.
fn shape(answer: &Answer) -> String {
    let body = match serde_json::from_slice::<Value>(&answer.body) {
        Ok(mut value) => {
            settle(&mut value);
            format!("{value:#}")
        }
        Err(_) => String::from_utf8_lossy(&answer.body).into_owned(),
    };
    format!("{}\n{body}", answer.status)
}

/// Figures of what was tried.
#[derive(Default)]
struct Tried {
    worlds: usize,
    tokens: usize,
    routes: BTreeMap<String, usize>,
    /// Answers to one who sees everything in which another project was: the questions do find things.
    telling: usize,
    /// Answers that depend on others.
    leaks: Vec<String>,
}

fn one_world(seed: u64, tried: &mut Tried) {
    let mut random = Random(seed);
    let projects = world(&mut random);
    let together = guarded();
    fill(&together, seed, &projects.iter().enumerate().collect::<Vec<_>>());
    assert_eq!(write(&together, ROOT, written("fleet", &[("job", "zqfleet")], "zqfleet")), 204);
    assert_eq!(write(&together, ROOT, written("scraped", &[("job", "zqfleet")], "told to all")), 204);
    tried.worlds += 1;
    let chosen = random.next(projects.len());
    for number in [chosen, (chosen + 1) % projects.len()] {
        let me = &projects[number];
        let alone = guarded();
        fill(&alone, seed, &[(number, me)]);
        assert_eq!(write(&alone, ROOT, written("scraped", &[("job", "y")], "told to all")), 204);
        let words = Words {
            marks: projects.iter().map(|one| one.mark.clone()).collect(),
            runs: projects
                .iter()
                .flat_map(|one| (0..one.runs).map(|at| one.run(at).id().to_string()))
                .collect(),
            projects: projects.iter().map(|one| one.path.clone()).collect(),
        };
        let queries = promql(&words, &mut random);
        let scopes = ["read", "ingest", "admin"];
        let (mine, only) = (token(&together, me, &scopes), token(&alone, me, &scopes));
        tried.tokens += 1;
        let mut routes = server::routes();
        routes.sort_by_key(|route| route.method == "DELETE");
        for route in routes {
            let name = format!("{} {}", route.method, route.path);
            let asked = if route.bounded {
                questions(route.method, route.path, &words, &queries).unwrap_or_else(|| {
                    panic!("{name} is new: say here what it is asked, or close it to confined tokens")
                })
            } else {
                vec![Question {
                    method: if route.method == "*" { "POST" } else { route.method },
                    ..get(route.path)
                }]
            };
            *tried.routes.entry(name.clone()).or_default() += asked.len();
            for question in asked {
                let answer = ask(&together, &mine, &question);
                if !route.bounded {
                    assert_eq!(answer.status, 403, "{name}: {}", String::from_utf8_lossy(&answer.body));
                    continue;
                }
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                let sent = format!("{} {}", question.path, String::from_utf8_lossy(&question.body));
                for other in projects
                    .iter()
                    .filter(|one| one.mark != me.mark)
                    .map(|one| one.mark.as_str())
                    .chain(["zqfleet"])
                {
                    if body.contains(other) && !sent.contains(other) {
                        tried
                            .leaks
                            .push(format!("seed {seed}: {me:?} asks {sent} and is told of {other}: {body}"));
                    }
                }
                let (found, wanted) = (shape(&answer), shape(&ask(&alone, &only, &question)));
                if found != wanted {
                    tried
                        .leaks
                        .push(format!("seed {seed}: {me:?} asks {sent}\ntogether: {found}\nalone: {wanted}"));
                }
                if question.method == "GET" && !sent.contains("zq") {
                    let all = ask(&together, ROOT, &question);
                    tried.telling += usize::from(shape(&all) != found);
                }
            }
        }
        changes_stay_inside(&together, me, &projects, &mine);
    }
}

/// Nothing that a confined token sends changes what another project is answered.
fn changes_stay_inside(server: &Server, me: &Project, projects: &[Project], mine: &str) {
    let others: Vec<&Project> = projects.iter().filter(|one| one.mark != me.mark).collect();
    let look = |of: &Project| {
        let token = token(server, of, &["read"]);
        let paths = [
            "/api/tg/v1/runs",
            "/api/v1/series?match[]=%7B__name__%3D~%22.%2B%22%7D",
            "/api/v1/metadata",
            "/api/v1/status/tsdb",
            "/api/tg/v1/logs",
        ];
        paths.map(|path| shape(&ask(server, &token, &get(path))))
    };
    let before: Vec<_> = others.iter().map(|one| look(one)).collect();
    for (at, other) in others.iter().enumerate() {
        let mut random = Random(at as u64);
        let sent = pushed(&mut random, other, 0, 200);
        assert_eq!(push(server, mine, &sent), 403);
        for (path, body) in telemetry(&other.run(0), "forged") {
            let answer = ask(server, mine, &send("POST", path, &body));
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.json()["partialSuccess"].is_object(), "{path}: nothing of it may be kept");
        }
        let RunPath { organization, workspace, project, .. } = &other.path;
        let labels = [
            ("organization", organization.as_str()),
            ("project", project),
            ("run", "x"),
            ("workspace", workspace),
        ];
        assert_eq!(write(server, mine, written("loss", &labels, "forged")), 204);
        assert_eq!(write(server, mine, written("scraped", &labels, "forged")), 204);
    }
    let after: Vec<_> = others.iter().map(|one| look(one)).collect();
    assert_eq!(before, after, "{me:?}");
}

#[test]
fn what_a_confined_token_is_answered_does_not_depend_on_others() {
    let cases =
        std::env::var("TRUEGAUGE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let mut tried = Tried::default();
    for seed in 0..cases {
        one_world(seed * 7_919 + 1, &mut tried);
    }
    let asked: usize = tried.routes.values().sum();
    println!(
        "{} worlds, {} tokens, {} routes, {asked} questions, {} of which others' data would have changed",
        tried.worlds,
        tried.tokens,
        tried.routes.len(),
        tried.telling
    );
    let leaks = &tried.leaks;
    assert!(
        leaks.is_empty(),
        "{} answers depend on others:\n{}",
        leaks.len(),
        leaks[..leaks.len().min(12)].join("\n\n")
    );
    assert!(tried.telling > 100 * cases as usize, "the questions find nothing: {}", tried.telling);
}

#[test]
fn a_stream_tells_of_what_its_reader_may_see() {
    use std::io::{BufRead, BufReader, Write as _};

    let server = guarded();
    let named = |project: &str, mark: &str| Project {
        path: RunPath { project: project.into(), ..RunPath::default() },
        mark: mark.into(),
        runs: 1,
    };
    let (mine, theirs) = (named("mine", "zq1"), named("theirs", "zq2"));
    let token = token(&server, &mine, &["read"]);
    let (my_run, their_run) = (mine.run(0).id().to_string(), theirs.run(0).id().to_string());
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(crate::process::DEADLINE)).unwrap();
    write!(
        stream,
        "GET /api/tg/v1/stream?topics=runs,run:{my_run},run:{their_run} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
        server.address()
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("event: ping")), "the stream is open");
    let mut random = Random(1);
    assert_eq!(push(&server, ROOT, &pushed(&mut random, &theirs, 0, 1)), 200);
    // Theirs is told, if ever, with the second that it happened in: before mine.
    let page = || String::from_utf8(ask(&server, ROOT, &get("/api/tg/v1/runs")).body).unwrap();
    assert!(page().contains(&their_run));
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert_eq!(push(&server, ROOT, &pushed(&mut random, &mine, 0, 2)), 200);
    let mut seen = String::new();
    for line in lines {
        seen.push_str(&line);
        seen.push('\n');
        if line.starts_with("data: ") && line.contains("run_ids") {
            break;
        }
    }
    assert!(seen.contains(&my_run) && !seen.contains(&their_run), "{seen}");
}

#[test]
fn alerts_are_seen_by_their_labels_and_rules_by_those_who_see_everything() {
    let home = tempfile::tempdir().unwrap();
    let rules = home.path().join("rules.yml");
    let alert = "- alert: Marked\n    expr: last_over_time(loss[1h]) >= 0\n    annotations: {summary: \"{{ $labels.shard }}\"}";
    std::fs::write(&rules, format!("groups:\n- name: zqrules\n  interval: 1s\n  rules:\n  {alert}\n"))
        .unwrap();
    let quiet = ["--token", ROOT, "--own-metrics=false", "--starter-rules=false"];
    let server = Server::start(&[&quiet[..], &["--rule-files", rules.to_str().unwrap()]].concat());
    let named = |project: &str, mark: &str| Project {
        path: RunPath { project: project.into(), ..RunPath::default() },
        mark: mark.into(),
        runs: 1,
    };
    let (mine, theirs) = (named("mine", "zq1"), named("theirs", "zq2"));
    let mine_reads = token(&server, &mine, &["read", "ingest", "agent", "admin"]);
    let now_ns =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
    for (writer, project) in [&mine, &theirs].into_iter().enumerate() {
        let mut sent = pushed(&mut Random(1), project, 0, writer as u8 + 1);
        let sample = model::Sample { time_ns: now_ns, value: 1.0, step: None };
        let labels = [("shard".to_owned(), project.mark.clone())];
        sent.series = vec![wire::push::Series::new("loss", &labels, "", &[sample])];
        assert_eq!(push(&server, ROOT, &sent), 200);
    }
    let alerts = |token: &str| ask(&server, token, &get("/api/v1/alerts")).json()["data"]["alerts"].clone();
    let of = |alerts: &Value| -> Vec<String> {
        let labels =
            alerts.as_array().unwrap().iter().map(|alert| alert["labels"]["project"].as_str().unwrap());
        let mut labels: Vec<String> = labels.map(str::to_owned).collect();
        labels.sort();
        labels
    };
    crate::process::eventually("both alerts fire", || (of(&alerts(ROOT)).len() == 2).then_some(()));
    let seen = alerts(&mine_reads);
    assert_eq!(of(&seen), ["mine"]);
    assert!(!seen.to_string().contains("zq2"), "{seen}");
    let shown = |token: &str| ask(&server, token, &get("/api/v1/rules")).json()["data"]["groups"].clone();
    assert_eq!((shown(ROOT).as_array().unwrap().len(), shown(&mine_reads)), (1, json!([])));
    let firing = get("/api/v1/query?query=count%20by%20(project)%20(ALERTS)");
    let found = crate::process::eventually("ALERTS is stored", || {
        let found = ask(&server, &mine_reads, &firing).json()["data"]["result"].clone();
        (found != json!([])).then_some(found)
    });
    assert_eq!((found.as_array().unwrap().len(), &found[0]["metric"]["project"]), (1, &json!("mine")));
}

#[test]
fn what_befell_an_engine_is_told_to_those_of_its_project() {
    let server = guarded();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let projects = [("acme", "one"), ("acme", "two")].map(|(organization, project)| Project {
        path: RunPath { organization: organization.into(), project: project.into(), ..RunPath::default() },
        mark: project.into(),
        runs: 0,
    });
    for project in &projects {
        let ingest = token(&server, project, &["ingest"]);
        for (at, tokens) in [(0, 1_000.0), (15, 2_000.0), (30, 10.0)] {
            let mut writer = RequestWriter::new();
            let labels = [
                ("__name__", "vllm:generation_tokens_total"),
                ("instance", "n1:8000"),
                ("job", project.mark.as_str()),
                ("model_name", "chat"),
            ];
            writer.series(labels, &[Point { time_ms: now_ms - 60_000 + at * 1_000, value: tokens }]);
            assert_eq!(write(&server, &ingest, writer.finish().unwrap()), 204);
        }
    }
    let jobs = |token: &str| -> Vec<String> {
        let answer = ask(&server, token, &get("/api/tg/v1/events?kind=engine")).json();
        let events = answer["events"].as_array().unwrap().iter();
        events.map(|event| event["labels"]["job"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(jobs(ROOT).len(), 2, "each began anew once");
    for project in &projects {
        assert_eq!(jobs(&token(&server, project, &["read"])), [project.mark.as_str()]);
    }
}
