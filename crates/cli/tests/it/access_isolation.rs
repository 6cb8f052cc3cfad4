//! A law: what a confined token is answered does not depend on what others have.
//!
//! Random projects are put on one server together, and one of them alone on another. Whoever is
//! confined to that one asks both the same of every route there is, and gets the same. A route that
//! nobody thought about fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{AttributeValue, MetricKind, RunPath, Sample};
use serde_json::{Value, json};
use wire::push::{Attribute, Count, PushRequest, Run, Series, Tag};
use wire::remote_write::{Metadata, Point, RequestWriter};

use crate::process::{Answer, Server, T0, session};

const ROOT: &str = "root-secret";
/// Worlds tried; more with `TRUEGAUGE_TEST_CASES`, which the run of a night may set.
const CASES: u64 = 1;

/// A generator of numbers that look random: the same seed, the same world.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.next(of.len())]
    }
}

/// A project and the text that stands wherever it may name something.
#[derive(Debug, Clone)]
struct Project {
    path: RunPath,
    mark: String,
    runs: usize,
}

impl Project {
    fn run(&self, at: usize) -> RunPath {
        RunPath { run: format!("run {at} {}", self.mark), ..self.path.clone() }
    }

    fn bounds(&self) -> Value {
        json!({
            "organization": self.path.organization,
            "workspace": self.path.workspace,
            "project": self.path.project,
        })
    }
}

/// Names that are like each other, or like a pattern, a quote or an escape.
const NAMES: [(&str, &str, &str); 12] = [
    ("", "", "p"),
    ("", "", "p2"),
    ("acme", "", "p"),
    ("acme", "w", "p"),
    ("acme", "w", "q"),
    ("acm", "e", "p"),
    ("a.*", "", ".*"),
    ("acme|.+", "", "p|.*"),
    ("quo\"te", "", "back\\slash"),
    ("", "acme", "p"),
    ("p", "", "acme"),
    ("} or vector(1) #", "", "\",project=~\".*"),
];

fn world(random: &mut Random) -> Vec<Project> {
    let mut names = NAMES.to_vec();
    let count = 4 + random.next(4);
    (0..count)
        .map(|at| {
            let (organization, workspace, project) = names.swap_remove(random.next(names.len()));
            let path = RunPath {
                organization: organization.into(),
                workspace: workspace.into(),
                project: project.into(),
                run: String::new(),
            };
            let mark = format!("zq{at}{:06x}", random.next(1 << 24));
            Project { path, mark, runs: 1 + random.next(2) }
        })
        .collect()
}

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

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const WRITE: &str = "application/x-protobuf";

#[derive(Debug, Clone)]
struct Question {
    method: &'static str,
    path: String,
    kind: &'static str,
    body: Vec<u8>,
}

fn get(path: impl Into<String>) -> Question {
    Question { method: "GET", path: path.into(), kind: JSON, body: Vec::new() }
}

fn send(method: &'static str, path: impl Into<String>, body: &Value) -> Question {
    Question { method, path: path.into(), kind: JSON, body: body.to_string().into_bytes() }
}

fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn samples(random: &mut Random) -> Vec<Sample> {
    let count = 1 + random.next(6);
    (0..count as i64)
        .map(|at| Sample { time_ns: T0 + at * 1_000_000_000, value: random.next(100) as f64, step: Some(at) })
        .collect()
}

/// What a run of a project sends: its mark is in every kind of name that there is.
fn pushed(random: &mut Random, project: &Project, at: usize, writer: u8) -> PushRequest {
    let mark = &project.mark;
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut series = vec![Series::new("loss", &[label("shard", mark)], "", &samples(random))];
    series.push(Series::new(
        &format!("{mark}/loss"),
        &[label(&format!("l_{mark}"), "x")],
        "",
        &samples(random),
    ));
    for shard in 0..random.next(4) {
        let name = *random.pick(&["acc", "train/lr", "gpu.power"]);
        series.push(Series::new(name, &[label("shard", &shard.to_string())], "", &samples(random)));
    }
    let mut opened = session(i64::from(writer), 1);
    opened.host = format!("host-{mark}");
    PushRequest {
        client_id: vec![writer; 16],
        sequence: 1,
        run: Some(Run::from(&project.run(at))),
        session: Some(opened),
        series,
        attributes: vec![
            Attribute::new("config/lr", &AttributeValue::Text(mark.clone()), false),
            Attribute::new(&format!("config/{mark}"), &AttributeValue::Int(1), false),
        ],
        tags: vec![Tag { action: 1, tag: format!("tag-{mark}") }, Tag { action: 1, tag: "common".into() }],
        description: Some(format!("about {mark}")),
        dropped: vec![Count { reason: mark.clone(), count: 3, example: String::new() }],
    }
}

fn push(server: &Server, token: &str, sent: &PushRequest) -> u16 {
    let body = wire::push::encode(sent).unwrap();
    let bearer = format!("Bearer {token}");
    server.push_bytes(&body, &[("content-encoding", "zstd"), ("authorization", &bearer)]).status
}

/// Samples of no run, as Prometheus sends them, with what is said of the metric.
fn written(metric: &str, labels: &[(&str, &str)], help: &str) -> Vec<u8> {
    let mut writer = RequestWriter::new();
    let labels = [&[("__name__", metric)], labels].concat();
    writer.series(labels, &[Point { time_ms: T0 / 1_000_000, value: 7.0 }]);
    writer.metadata(&Metadata { metric, kind: MetricKind::Gauge, help, unit: "" });
    writer.finish().unwrap()
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
        }
        let ingest = token(server, project, &["ingest"]);
        let mark = project.mark.as_str();
        let labels = [("job", mark), ("project", "forged"), ("run", mark)];
        assert_eq!(write(server, &ingest, written("scraped", &labels, mark)), 204);
        assert_eq!(write(server, &ingest, written(&format!("s_{mark}"), &[("job", "x")], mark)), 204);
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

/// Texts that questions are made of: one's own, those of others, and patterns that fit both.
struct Words {
    marks: Vec<String>,
    runs: Vec<String>,
    projects: Vec<RunPath>,
}

fn promql(words: &Words, random: &mut Random) -> Vec<String> {
    let mut queries = Vec::new();
    for mark in &words.marks {
        for form in [
            "M_loss",
            "sum(M_loss)",
            "absent(M_loss)",
            "absent_over_time(M_loss[1h])",
            "s_M",
            "{__name__=\"M/loss\"}",
            "loss{shard=\"M\"}",
            "count({l_M!=\"\"})",
            "group by (l_M) ({__name__=~\".+\"})",
            "loss or M_loss",
            "{__name__=~\"M.*\"}",
            "label_replace(loss, \"shard\", \"M\", \"shard\", \".*\")",
            "loss unless on () M_loss",
        ] {
            queries.push(form.replace('M', mark));
        }
    }
    for path in &words.projects {
        let (organization, project) = (format!("{:?}", path.organization), format!("{:?}", path.project));
        for form in [
            "{project=P}",
            "count(loss{organization=O,project=P})",
            "{__name__=\"loss\" or project=P}",
            "loss{organization!=O}",
        ] {
            queries.push(form.replace('O', &organization).replace('P', &project));
        }
    }
    let selectors = [
        "{__name__=~\".+\"}",
        "loss",
        "{__name__!=\"x\",project=~\".*\"}",
        "{organization=~\".*\",__name__=~\".*o.*\"}",
        "{project!=\"\"}",
        "{run_id=~\".+\"}",
        "scraped",
        "{job=~\".+\"}",
        "{__name__=\"loss\" or __name__=\"acc\"}",
        "{exported_project=~\".+\"}",
        "loss @ end()",
        "loss offset -1s",
        "{__name__=~\"scraped|acc|fleet_.*\"}",
        "fleet",
    ];
    let forms = [
        "S",
        "count(S)",
        "sum by (project, organization) (S)",
        "count by (__name__) (S)",
        "topk(3, S)",
        "count_values(\"project\", S)",
        "absent(S)",
        "scalar(sum(S))",
        "max_over_time(sum(S)[5m:1s])",
        "S or on () vector(1)",
        "S unless S{project=\"p\"}",
        "S * on (run) group_left loss",
        "sort_desc(S)",
        "label_replace(S, \"project\", \"other\", \"\", \"\")",
        "label_join(S, \"all\", \"/\", \"organization\", \"project\", \"run\")",
        "quantile(0.5, S)",
        "S and ignoring(project, run, run_id) loss",
        "count(count_over_time({__name__=~\".+\"}[1h])) + 0 * sum(S)",
        "stddev(S) > bool 0",
        "avg without (run, run_id) (S)",
        "timestamp(S)",
        "sum(S) / ignoring(x) count({__name__=~\".+\"})",
    ];
    for _ in 0..40 {
        let form = *random.pick(&forms);
        // `@` and `offset` take no braces behind them.
        let selector = *random.pick(&selectors);
        let bare = if form.contains("S{") { "loss" } else { selector };
        queries.push(form.replace('S', bare));
    }
    queries.extend(["", "(", "time()", "vector(1)", "sum(x", "nonsense(1)"].map(str::to_owned));
    queries
}

/// What a route is asked; `None` for one that nobody thought about.
fn questions(method: &str, route: &str, words: &Words, queries: &[String]) -> Option<Vec<Question>> {
    let at = T0 / 1_000_000_000 + 5;
    let of_runs = |form: &str| -> Vec<Question> {
        words.runs.iter().map(|run| get(route.replace("{run_id}", run) + form)).collect()
    };
    let each = |form: &str| -> Vec<Question> {
        words.marks.iter().map(|mark| get(format!("{route}{}", form.replace('M', mark)))).collect()
    };
    let for_queries = |form: &str| -> Vec<Question> {
        queries.iter().map(|query| get(format!("{route}?query={}{form}", escape(query)))).collect()
    };
    let selecting: Vec<String> = [
        "{__name__=~\".+\"}",
        "{project=~\".*\",__name__=~\".*\",run_id!=\"\"}",
        "loss",
        "{__name__=\"loss\" or __name__=\"scraped\"}",
        "{job!=\"\"}",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(words.marks.iter().map(|mark| format!("{mark}_loss")))
    .collect();
    let matching = |more: &str| -> Vec<Question> {
        selecting.iter().map(|one| get(format!("{route}?match[]={}{more}", escape(one)))).collect()
    };
    Some(match (method, route) {
        ("GET", "/api/tg/v1/runs") => [
            each("?filter=M"),
            each("?filter=tag:tag-M"),
            each("?filter=config/M:1"),
            each("?filter=host:host-M&sort=M/loss"),
            each("?metric=M/loss"),
            each("?filter=-config/lr:M&state=stale,running"),
            each("?filter=M/loss:%3C1000"),
            [
                "",
                "?limit=1",
                "?limit=1&cursor=1.0000000000000000",
                "?filter=confi:1",
                "?sort=-loss",
                "?filter=project:p",
                "?filter=lsos:1",
            ]
            .map(|tail| get(format!("{route}{tail}")))
            .to_vec(),
        ]
        .concat(),
        ("GET", "/api/tg/v1/runs/{run_id}") => of_runs(""),
        ("GET", "/api/tg/v1/runs/{run_id}/metrics") => of_runs(""),
        ("GET", "/api/tg/v1/runs/{run_id}/points") => {
            [of_runs("?metric=loss"), of_runs("?metric=lsos"), of_runs("")].concat()
        }
        ("GET", "/api/tg/v1/runs/{run_id}/export") => {
            [of_runs(""), of_runs("?format=ndjson&metric=loss")].concat()
        }
        ("PATCH", "/api/tg/v1/runs/{run_id}") => words
            .runs
            .iter()
            .map(|run| send("PATCH", route.replace("{run_id}", run), &json!({"add_tags": ["changed"]})))
            .collect(),
        // Last, so that it is there for the others: deleted, seen deleted, brought back.
        ("DELETE", "/api/tg/v1/runs/{run_id}") => words
            .runs
            .iter()
            .flat_map(|run| {
                let path = route.replace("{run_id}", run);
                [
                    send("DELETE", path.clone(), &Value::Null),
                    get("/api/tg/v1/runs"),
                    send("POST", format!("{path}/restore"), &json!({})),
                ]
            })
            .collect(),
        ("POST", "/api/tg/v1/runs/{run_id}/restore") => {
            words.runs.iter().map(|run| send("POST", route.replace("{run_id}", run), &json!({}))).collect()
        }
        ("POST", "/api/tg/v1/points") => {
            let wanted = |metric: &str| {
                words.runs.iter().map(|run| json!({"run_id": run, "metric": metric})).collect::<Vec<_>>()
            };
            ["loss", "acc"]
                .map(|metric| {
                    send("POST", route, &json!({"axis": "time", "format": "json", "queries": wanted(metric)}))
                })
                .to_vec()
        }
        ("GET", "/api/tg/v1/compare") => {
            let all: Vec<String> = words.runs.iter().map(|run| format!("run_id={run}")).collect();
            ["", "&metric=loss", "&group=tag", "&group=host", "&group=config/lr"]
                .map(|tail| get(format!("{route}?{}{tail}", all.join("&"))))
                .into_iter()
                .chain(words.runs.iter().map(|run| get(format!("{route}?run_id={run}"))))
                .collect()
        }
        ("GET", "/api/tg/v1/export") => {
            let of_run = words.runs.iter().map(|run| get(format!("{route}?run_id={run}")));
            matching("").into_iter().chain(of_run).chain(matching("&format=ndjson")).collect()
        }
        ("GET", "/api/tg/v1/complete") => [
            each("?query=M"),
            each("?query=loss%7Bshard%3D%22M"),
            each("?query=sum%20by%20(l_M"),
            ["", "lo", "loss{", "{project=\"", "{__name__=\"", "sum by (", "{job=\"", "fleet"]
                .map(|text| get(format!("{route}?query={}", escape(text))))
                .to_vec(),
        ]
        .concat(),
        ("GET", "/api/tg/v1/explain") => for_queries(""),
        ("GET", "/api/tg/v1/metrics") => {
            [vec![get(route)], each("?match=M"), each("?query=M"), each("?filter=M")].concat()
        }
        (
            "GET",
            "/api/tg/v1/filter" | "/api/tg/v1/status" | "/api/tg/v1/session" | "/api/openapi.json"
            | "/healthz" | "/readyz",
        ) => vec![get(route)],
        ("DELETE", "/api/tg/v1/session") => vec![send("DELETE", route, &Value::Null)],
        ("POST", "/api/tg/v1/login") => vec![send("POST", route, &json!({"code": words.marks[0]}))],
        // Its answer is a secret made for the one who asks.
        ("POST", "/api/tg/v1/login-links") => Vec::new(),
        // Told apart below: they change things, or never end.
        ("POST", "/api/tg/v1/push") | ("GET", "/api/tg/v1/stream") => Vec::new(),
        ("*", "/api/v1/write") => Vec::new(),
        ("*", "/api/v1/query") => for_queries(&format!("&time={at}"))
            .into_iter()
            .chain(queries.iter().map(|query| Question {
                method: "POST",
                path: route.into(),
                kind: FORM,
                body: format!("query={}&time={at}&limit=2", escape(query)).into_bytes(),
            }))
            .collect(),
        ("*", "/api/v1/query_range") => for_queries(&format!("&start={}&end={at}&step=1", at - 6)),
        ("*", "/api/v1/query_exemplars" | "/api/v1/format_query" | "/api/v1/parse_query") => for_queries(""),
        ("*", "/api/v1/series") => [matching(""), matching("&limit=1")].concat(),
        ("*", "/api/v1/labels") => [vec![get(route), get(format!("{route}?limit=2"))], matching("")].concat(),
        ("*", "/api/v1/label/{name}/values") => {
            ["__name__", "organization", "project", "run", "run_id", "shard", "job", "exported_project"]
                .into_iter()
                .map(str::to_owned)
                .chain(words.marks.iter().map(|mark| format!("l_{mark}")))
                .flat_map(|name| {
                    let path = route.replace("{name}", &name);
                    [
                        get(path.clone()),
                        get(format!("{path}?match[]={}", escape("{__name__=~\".+\"}"))),
                        get(format!("{path}?limit=1")),
                    ]
                })
                .collect()
        }
        ("*", "/api/v1/metadata") => [
            vec![get(route)],
            each("?metric=s_M"),
            vec![get(format!("{route}?metric=scraped")), get(format!("{route}?metric=fleet"))],
        ]
        .concat(),
        (
            "*",
            "/api/v1/rules"
            | "/api/v1/alerts"
            | "/api/v1/alertmanagers"
            | "/api/v1/targets"
            | "/api/v1/targets/metadata"
            | "/api/v1/status/buildinfo"
            | "/api/v1/status/runtimeinfo"
            | "/api/v1/status/config"
            | "/api/v1/status/flags"
            | "/-/healthy"
            | "/-/ready",
        ) => vec![get(route)],
        ("*", "/docs/runbooks/{page}") => vec![get("/docs/runbooks/none")],
        ("*", "/api/v1/status/tsdb") => vec![get(route), get(format!("{route}?limit=1000"))],
        _ => return None,
    })
}

/// What differs from one moment, process or server to the next, whatever is in it.
const PASSING: [&str; 14] = [
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
        ];
        paths.map(|path| shape(&ask(server, &token, &get(path))))
    };
    let before: Vec<_> = others.iter().map(|one| look(one)).collect();
    for (at, other) in others.iter().enumerate() {
        let mut random = Random(at as u64);
        let sent = pushed(&mut random, other, 0, 200);
        assert_eq!(push(server, mine, &sent), 403);
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
