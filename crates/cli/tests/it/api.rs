//! Runs: listed, filtered, changed, deleted and brought back; the server about itself.

use serde_json::{Value, json};
use wire::push::{Attribute, Tag};

use crate::process::{Server, id, request, series, session};

/// A server with three runs: `bar` running, `night run` finished, `crash` failed.
fn three() -> Server {
    let server = Server::start(&[]);
    for (at, (name, event, loss)) in
        [("bar", 1, 0.9), ("night run", 3, 0.1), ("crash", 4, 0.5)].into_iter().enumerate()
    {
        let mut sent = request(name, at as u8, 1, vec![series("train/loss", &[5.0, loss])]);
        let mut opened = session(at as i64 * 100, 1);
        // The running one must have spoken just now.
        if event == 1 {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            opened.time_ms = now.as_millis() as i64;
        }
        sent.session = Some(opened);
        sent.attributes =
            vec![Attribute::new("config/lr", &model::AttributeValue::Float(loss / 10.0), false)];
        sent.tags = vec![Tag { action: 1, tag: format!("t{at}") }];
        assert_eq!(server.push(&sent).0, 200);
        if event != 1 {
            let mut end = request(name, at as u8, 2, Vec::new());
            end.session =
                Some(wire::push::Session { reason: "boom".into(), ..session(at as i64 * 100 + 50, event) });
            assert_eq!(server.push(&end).0, 200);
        }
    }
    server
}

fn names(answer: &Value) -> Vec<&str> {
    answer["runs"].as_array().unwrap().iter().map(|row| row["run"].as_str().unwrap()).collect()
}

#[test]
fn runs_are_filtered_sorted_counted_and_paged() {
    let server = three();
    let list = |query: &str| server.get(&format!("/api/tg/v1/runs{query}"));
    let all = list("");
    assert_eq!(names(&all), ["bar", "crash", "night run"], "newest first");
    assert_eq!(all["counts"], json!({"running": 1, "stale": 0, "failed": 1, "finished": 1, "paused": 0}));
    let row = &all["runs"][1];
    assert_eq!((&row["state"], &row["state_reason"]), (&json!("failed"), &json!("boom")));
    assert_eq!(row["metric"], json!({"name": "train/loss", "last": 0.5}));
    assert_eq!(
        (&row["points"], &row["last_step"], &row["elapsed_seconds"]),
        (&json!(2), &json!(1), &json!(50.0))
    );
    assert_eq!(names(&list("?sort=train/loss")), ["night run", "crash", "bar"]);
    assert_eq!(names(&list("?sort=-config/lr")), ["bar", "crash", "night run"]);
    assert_eq!(names(&list("?filter=train_loss:%3C0.6%20-state:failed")), ["night run"]);
    assert_eq!(names(&list("?filter=%22night%20run%22")), ["night run"]);
    assert_eq!(names(&list("?filter=tag:t0,t2")), ["bar", "crash"]);
    let failed = list("?state=failed");
    assert_eq!(
        (names(&failed), &failed["matching"], &failed["total"]),
        (vec!["crash"], &json!(1), &json!(3))
    );
    assert_eq!(failed["counts"]["finished"], 1, "counts are before the state");
    let unknown = list("?filter=stat:x");
    assert_eq!(unknown["warnings"], json!(["unknown key `stat`, nearest `state`"]));
    assert_eq!(unknown["matching"], 3, "and the rest applies");
    let page = list("?limit=2");
    assert_eq!(names(&page), ["bar", "crash"]);
    let next = list(&format!("?limit=2&cursor={}", page["next"].as_str().unwrap()));
    assert_eq!((names(&next), &next["next"]), (vec!["night run"], &Value::Null));
}

#[test]
fn a_run_tells_its_attempts_sessions_and_facts() {
    let server = three();
    let run = server.get(&format!("/api/tg/v1/runs/{}", id("crash")));
    assert_eq!(run["attributes"], json!({"config/lr": 0.05}));
    assert_eq!(run["attempts_list"][0]["number"], 1);
    assert_eq!(run["sessions"][0]["host"], "node-1");
    assert_eq!(run["sessions"][0]["end"], "failed");
    let metrics = server.get(&format!("/api/tg/v1/runs/{}/metrics", id("crash")));
    let metric = &metrics["metrics"][0];
    assert_eq!((&metric["name"], &metric["display"]), (&json!("train_loss"), &json!("train/loss")));
    assert_eq!((&metric["labels"], &metric["scale"]), (&json!({}), &json!("ML_STEP")));
    assert_eq!(
        (&metric["points"], &metric["last"], &metric["last_step"]),
        (&json!(2), &json!(0.5), &json!(1))
    );
}

#[test]
fn tags_and_description_change_and_a_deletion_can_be_undone() {
    let server = three();
    let path = format!("/api/tg/v1/runs/{}", id("bar"));
    let patch = |body: &Value| {
        server.ask("PATCH", &path, &[("content-type", "application/json")], body.to_string().as_bytes())
    };
    let changed =
        patch(&json!({"add_tags": ["best"], "remove_tags": ["t0"], "description": "the one"})).json();
    assert_eq!((&changed["tags"], &changed["description"]), (&json!(["best"]), &json!("the one")));
    assert_eq!(patch(&json!({"add_tags": ["a\nb"]})).status, 400);
    assert_eq!(patch(&json!({"tags": []})).status, 400);
    let deleted = server.ask("DELETE", &path, &[], b"").json();
    assert_eq!(deleted["deleted"], true);
    assert!(deleted["undo_until_ms"].as_i64().is_some());
    assert_eq!(server.ask("GET", &path, &[], b"").error_code(), "not_found");
    assert_eq!(names(&server.get("/api/tg/v1/runs")), ["crash", "night run"]);
    let restored = server.ask("POST", &format!("{path}/restore"), &[], b"").json();
    assert_eq!((&restored["run"], &restored["points"]), (&json!("bar"), &json!(2)));
    assert_eq!(server.get("/api/tg/v1/runs")["total"], 3);
}

#[test]
fn an_export_is_complete_and_exact() {
    let server = Server::start(&[]);
    let values: Vec<f64> = (0..50_000).map(|at| f64::from(at) * 0.1).collect();
    assert_eq!(
        server.push(&request("r", 1, 1, vec![series("=loss", &values), series("acc", &[f64::NAN])])).0,
        200
    );
    let csv = server.ask("GET", &format!("/api/tg/v1/runs/{}/export", id("r")), &[], b"");
    let text = String::from_utf8(csv.body).unwrap();
    assert_eq!(text.lines().count(), 50_002);
    assert_eq!(text.lines().next(), Some("metric,labels,scale,attempt,step,time_ns,value"));
    assert!(
        text.contains("\n'=loss,,ML_STEP,1,3,1700000003000000000,0.30000000000000004\n"),
        "exact, and no formula"
    );
    assert!(text.contains(",NaN\n"));
    let file = server.home.join("out.ndjson");
    let (code, out, err) = server.cli(&[
        "runs",
        "export",
        "r",
        "--format",
        "ndjson",
        "--metric",
        "acc",
        "-o",
        file.to_str().unwrap(),
    ]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let line: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&line["metric"], &line["value"], &line["step"]), (&json!("acc"), &json!("NaN"), &json!(0)));
}

#[test]
fn the_server_describes_itself() {
    let server = three();
    let description = server.get("/api/openapi.json");
    assert!(description["openapi"].as_str().unwrap().starts_with("3."));
    let paths = description["paths"].as_object().unwrap();
    for path in ["/api/tg/v1/runs", "/api/tg/v1/points", "/api/tg/v1/push", "/api/tg/v1/stream", "/readyz"] {
        assert!(paths.contains_key(path), "{path}");
    }
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let real = path.replace("{run_id}", &id("bar")).replace("{tool}", "mfu");
            // Of what else has a name there is nothing.
            let is_there = !real.contains('{');
            if real.ends_with("/stream") || method == "delete" {
                continue;
            }
            let answer = server.ask(&method.to_uppercase(), &real, &[], b"");
            assert!(![405, 500].contains(&answer.status), "{method} {path}: {}", answer.status);
            assert!(answer.status != 404 || !is_there, "{method} {path} is not there");
        }
    }
    let status = server.get("/api/tg/v1/status");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["readonly_reason"], Value::Null);
    assert_eq!(status["store"]["runs"], 3);
    let keys = server.get("/api/tg/v1/filter");
    assert!(keys["keys"].as_array().unwrap().iter().any(|key| key["name"] == "state"));
}

#[test]
fn own_metrics_have_help_type_and_base_units() {
    let server = three();
    let page = String::from_utf8(server.ask("GET", "/metrics", &[], b"").body).unwrap();
    let mut described = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(help.ends_with('.'), "{line}");
            described.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(described.last().map(String::as_str), Some(name));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(described.last().map(String::as_str), Some(name), "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert_eq!(server.metric("truegauge_ingest_samples_total{door=\"push\"}"), 6.0);
    assert!(server.metric("process_resident_memory_bytes") > 1e6);
}

#[test]
fn every_other_path_is_the_page_that_finds_its_own_way() {
    let server = Server::start(&[]);
    for path in ["/", "/runs", "/o/acme/-/llm/runs", "/r/0000000000000000"] {
        let page = server.ask("GET", path, &[], b"");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.head.contains("content-type: text/html"), "{path}: {}", page.head);
    }
    assert_eq!(server.ask("HEAD", "/runs", &[], b"").body, b"");
    let post = server.ask("POST", "/runs", &[], b"");
    assert_eq!((post.status, post.error_code().as_str()), (405, "method_not_allowed"));
}
