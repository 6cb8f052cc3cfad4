//! What every route is asked by one who is confined: by own names, those of others, and patterns.

use std::fmt::Write as _;

use model::RunPath;
use serde_json::{Value, json};

use crate::access_world::Random;
use crate::process::T0;

/// The trace that spans and log records of all projects are of.
pub(crate) const TRACE: &str = "0123456789abcdef0123456789abcdef";

pub(crate) const JSON: &str = "application/json";
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";
pub(crate) const WRITE: &str = "application/x-protobuf";

#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(path: impl Into<String>) -> Question {
    Question { method: "GET", path: path.into(), kind: JSON, body: Vec::new() }
}

pub(crate) fn send(method: &'static str, path: impl Into<String>, body: &Value) -> Question {
    Question { method, path: path.into(), kind: JSON, body: body.to_string().into_bytes() }
}

pub(crate) fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Texts that questions are made of: one's own, those of others, and patterns that fit both.
pub(crate) struct Words {
    pub(crate) marks: Vec<String>,
    pub(crate) runs: Vec<String>,
    pub(crate) projects: Vec<RunPath>,
}

pub(crate) fn promql(words: &Words, random: &mut Random) -> Vec<String> {
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
pub(crate) fn questions(
    method: &str,
    route: &str,
    words: &Words,
    queries: &[String],
) -> Option<Vec<Question>> {
    match method {
        "*" => of_prometheus(route, words, queries),
        _ if route.contains("{run_id}") => of_runs(method, route, words),
        _ => of_ours(method, route, words, queries),
    }
}

/// A question for each mark, which stands where `form` has `M`.
fn each(route: &str, words: &Words, form: &str) -> Vec<Question> {
    words.marks.iter().map(|mark| get(format!("{route}{}", form.replace('M', mark)))).collect()
}

fn for_queries(route: &str, queries: &[String], form: &str) -> Vec<Question> {
    queries.iter().map(|query| get(format!("{route}?query={}{form}", escape(query)))).collect()
}

/// A question for each of some selectors.
fn matching(route: &str, words: &Words, more: &str) -> Vec<Question> {
    let marked = words.marks.iter().map(|mark| format!("{mark}_loss"));
    let selectors = [
        "{__name__=~\".+\"}",
        "{project=~\".*\",__name__=~\".*\",run_id!=\"\"}",
        "loss",
        "{__name__=\"loss\" or __name__=\"scraped\"}",
        "{job!=\"\"}",
    ];
    let all = selectors.map(str::to_owned).into_iter().chain(marked);
    all.map(|one| get(format!("{route}?match[]={}{more}", escape(&one)))).collect()
}

fn of_runs(method: &str, route: &str, words: &Words) -> Option<Vec<Question>> {
    let of_runs = |form: &str| -> Vec<Question> {
        words.runs.iter().map(|run| get(route.replace("{run_id}", run) + form)).collect()
    };
    Some(match (method, route) {
        (
            "GET",
            "/api/tg/v1/runs/{run_id}"
            | "/api/tg/v1/runs/{run_id}/health"
            | "/api/tg/v1/runs/{run_id}/metrics"
            | "/api/tg/v1/runs/{run_id}/missing"
            | "/api/tg/v1/runs/{run_id}/training",
        ) => of_runs(""),
        ("GET", "/api/tg/v1/runs/{run_id}/points") => {
            [of_runs("?metric=loss"), of_runs("?metric=lsos"), of_runs("")].concat()
        }
        ("GET", "/api/tg/v1/runs/{run_id}/timeline") => {
            let spans = |mark: &String| {
                of_runs(&format!("?part=span&instance={mark}&trace={TRACE}&id=0000000000000001"))
            };
            [of_runs("?part=breakdown"), of_runs("?part=spans"), of_runs("?part=spans&step=1"), of_runs("")]
                .into_iter()
                .chain(words.marks.iter().map(spans))
                .collect::<Vec<_>>()
                .concat()
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
        _ => return None,
    })
}

fn of_logs(route: &str, words: &Words) -> Vec<Question> {
    let of_run = words.runs.iter().map(|run| get(format!("{route}?run_id={run}")));
    let rest = ["", "?limit=1", "?severity=warn", &format!("?trace={TRACE}"), "?cursor=1.1", "?rank=0"]
        .map(|tail| get(format!("{route}{tail}")));
    of_run.chain(rest).collect()
}

/// What is asked about nodes and engines.
fn of_nodes_and_engines(route: &str, words: &Words) -> Option<Vec<Question>> {
    let each = |form: &str| each(route, words, form);
    Some(match route {
        "/api/tg/v1/events" | "/api/tg/v1/incidents" => {
            let of_runs = words.runs.iter().map(|run| get(format!("{route}?state=all&run_id={run}")));
            ["", "?kind=xid", "?kind=incident", "?state=all", "?limit=1", "?severity=critical"]
                .map(|form| get(format!("{route}{form}")))
                .into_iter()
                .chain(of_runs)
                .chain(each("?state=all&host=node-M-0"))
                .collect()
        }
        "/api/tg/v1/engines" | "/api/tg/v1/engines/vocabulary" => {
            let (from, to) = (T0 / 1_000_000 - 60_000, T0 / 1_000_000 + 60_000);
            each(&format!("?from={from}&to={to}&model=M&instance=M"))
                .into_iter()
                .chain([get(format!("{route}?from={from}&to={to}"))])
                .collect()
        }
        _ => return None,
    })
}

fn of_the_list(route: &str, words: &Words) -> Vec<Question> {
    let each = |form: &str| each(route, words, form);
    [
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
    .concat()
}

fn of_ours(method: &str, route: &str, words: &Words, queries: &[String]) -> Option<Vec<Question>> {
    let each = |form: &str| each(route, words, form);
    Some(match (method, route) {
        ("GET", "/api/tg/v1/runs") => of_the_list(route, words),
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
        ("GET", "/api/tg/v1/runs/figures") => {
            let all: Vec<String> = words.runs.iter().map(|run| format!("run_id={run}")).collect();
            vec![get(format!("{route}?{}", all.join("&"))), get(format!("{route}?{}", all[0]))]
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
            matching(route, words, "")
                .into_iter()
                .chain(of_run)
                .chain(matching(route, words, "&format=ndjson"))
                .collect()
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
        ("GET", "/api/tg/v1/logs") => of_logs(route, words),
        ("GET", "/api/tg/v1/explain") => for_queries(route, queries, ""),
        ("GET", "/api/tg/v1/metrics") => {
            [vec![get(route)], each("?match=M"), each("?query=M"), each("?filter=M")].concat()
        }
        (
            "GET",
            "/api/tg/v1/alerts/summary"
            | "/api/tg/v1/alerts/history"
            | "/api/tg/v1/calc"
            | "/api/tg/v1/filter"
            | "/api/tg/v1/status"
            | "/api/tg/v1/session"
            | "/api/openapi.json"
            | "/healthz"
            | "/readyz",
        ) => vec![get(route)],
        ("DELETE", "/api/tg/v1/session") => vec![send("DELETE", route, &Value::Null)],
        ("POST", "/api/tg/v1/login") => vec![send("POST", route, &json!({"code": words.marks[0]}))],
        // Their answers are secrets of the one who asks, or they are told apart: they change things, or
        // never end.
        (
            "POST",
            "/api/tg/v1/login-links" | "/api/tg/v1/push" | "/v1/metrics" | "/v1/traces" | "/v1/logs",
        )
        | ("GET", "/api/tg/v1/stream") => Vec::new(),
        ("GET", _) => return of_nodes_and_engines(route, words),
        ("POST", _) => return of_reckoning(route, words, queries),
        _ => return None,
    })
}

/// What is asked of what only reckons.
fn of_reckoning(route: &str, words: &Words, queries: &[String]) -> Option<Vec<Question>> {
    Some(match route {
        "/api/tg/v1/rules/backtest" | "/api/tg/v1/rules/check" => {
            let (from, to) = (T0 / 1_000_000 - 1_000, T0 / 1_000_000 + 60_000);
            let of = |query: &String| json!({"expr": query, "from": from, "to": to, "step_seconds": 1});
            queries.iter().map(|query| send("POST", route, &of(query))).collect()
        }
        "/api/tg/v1/calc/{tool}" => {
            let of_run = |run: &String| json!({"tokens_per_second": 1, "peak_to_average": 3, "run": run});
            let path = route.replace("{tool}", "capacity");
            words.runs.iter().map(|run| send("POST", path.clone(), &of_run(run))).collect()
        }
        _ => return None,
    })
}

fn of_prometheus(route: &str, words: &Words, queries: &[String]) -> Option<Vec<Question>> {
    let at = T0 / 1_000_000_000 + 5;
    let each = |form: &str| each(route, words, form);
    let for_queries = |form: &str| for_queries(route, queries, form);
    let matching = |more: &str| matching(route, words, more);
    Some(match route {
        "/api/v1/write" => Vec::new(),
        "/api/v1/query" => for_queries(&format!("&time={at}"))
            .into_iter()
            .chain(for_queries(&format!("&time={at}&stats=all")).into_iter().step_by(5))
            .chain(queries.iter().map(|query| Question {
                method: "POST",
                path: route.into(),
                kind: FORM,
                body: format!("query={}&time={at}&limit=2", escape(query)).into_bytes(),
            }))
            .collect(),
        "/api/v1/query_range" => for_queries(&format!("&start={}&end={at}&step=1", at - 6)),
        "/api/v1/query_exemplars" | "/api/v1/format_query" | "/api/v1/parse_query" => for_queries(""),
        "/api/v1/series" => [matching(""), matching("&limit=1")].concat(),
        "/api/v1/labels" => [vec![get(route), get(format!("{route}?limit=2"))], matching("")].concat(),
        "/api/v1/label/{name}/values" => {
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
        "/api/v1/metadata" => [
            vec![get(route)],
            each("?metric=s_M"),
            vec![get(format!("{route}?metric=scraped")), get(format!("{route}?metric=fleet"))],
        ]
        .concat(),
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
        | "/-/ready" => vec![get(route)],
        "/docs/runbooks/{page}" => vec![get("/docs/runbooks/none")],
        "/api/v1/status/tsdb" => [
            vec![get(route), get(format!("{route}?limit=1000"))],
            each("?metric=M_loss"),
            vec![get(format!("{route}?metric=loss"))],
        ]
        .concat(),
        _ => return None,
    })
}
