//! Prometheus' API over real processes: what Grafana and promtool see.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Server, T0, eventually, id, request, run, series};

/// [`T0`] in seconds.
pub(crate) const T0_SECONDS: i64 = T0 / 1_000_000_000;

pub(crate) fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Asks a query `seconds` behind [`T0`]; the result as `(labels, value)`.
pub(crate) fn vector(server: &Server, query: &str, seconds: i64) -> Vec<(Value, String)> {
    let path = format!("/api/v1/query?query={}&time={}", escape(query), T0_SECONDS + seconds);
    let answer = server.get(&path);
    assert_eq!(answer["status"], "success", "{answer}");
    let one = |row: &Value| (row["metric"].clone(), row["value"][1].as_str().unwrap().to_owned());
    answer["data"]["result"].as_array().unwrap().iter().map(one).collect()
}

pub(crate) fn value(server: &Server, query: &str, seconds: i64) -> String {
    match vector(server, query, seconds).as_slice() {
        [(_, value)] => value.clone(),
        other => panic!("{query}: {other:?}"),
    }
}

pub(crate) fn names(server: &Server, path: &str) -> Vec<String> {
    let answer = server.get(path);
    answer["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn promql_counts_every_point_of_a_run() {
    let server = Server::start(&[]);
    let values: Vec<f64> = (0..2_000).map(f64::from).collect();
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("train/loss", &values)])).0, 200);
    let check = |query: &str, want: &str| assert_eq!(value(&server, query, 1_999), want, "{query}");
    check("count_over_time(train_loss[1h])", "2000");
    check("sum_over_time(train_loss{run=\"bar\",project=\"p\"}[1h])", "1999000");
    check("max_over_time(train_loss[10s])", "1999");
    check("increase(train_loss[100s])", "100");
    check("train_loss offset 9s", "1990");
    check("train_loss @ 1700000005", "5");
    check("max_over_time(sum(train_loss)[5m:1m])", "1960");
    let path = format!(
        "/api/v1/query_range?query=rate(train_loss[10s])&start={T0_SECONDS}&end={}&step=100",
        T0_SECONDS + 1_999
    );
    let answer = server.get(&path);
    assert_eq!(answer["data"]["resultType"], "matrix");
    let points = answer["data"]["result"][0]["values"].as_array().unwrap();
    assert!(points.iter().skip(1).all(|p| p[1] == "1"), "{points:?}");
    assert!(answer["infos"][0].as_str().unwrap().contains("metric might not be a counter"), "{answer}");
}

#[test]
fn a_name_as_logged_answers_when_it_is_asked_for_and_is_listed_nowhere() {
    let server = Server::start(&[]);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("train/loss", &[1.0])])).0, 200);
    assert_eq!(vector(&server, "{\"train/loss\"}", 0).len(), 1);
    assert_eq!(vector(&server, "{__name__=\"train/loss\"}", 0)[0].0["__name__"], "train_loss");
    assert_eq!(vector(&server, "{__name__=~\"train/.*\"}", 0).len(), 0);
    assert_eq!(value(&server, "count({__name__=~\"train.*\"})", 0), "1");
    assert_eq!(names(&server, "/api/v1/label/__name__/values"), ["train_loss"]);
}

#[test]
fn labels_values_and_series_follow_matchers_times_and_limits() {
    let server = Server::start(&[]);
    for (at, run) in ["a", "b", "c"].into_iter().enumerate() {
        let sent = vec![series("loss", &[1.0]), series("lr", &[1.0])];
        assert_eq!(server.push(&request(run, 1 + at as u8, 1, sent)).0, 200);
    }
    assert_eq!(names(&server, "/api/v1/labels"), ["__name__", "project", "run", "run_id"]);
    assert_eq!(names(&server, "/api/v1/label/run/values"), ["a", "b", "c"]);
    assert_eq!(names(&server, "/api/v1/label/run/values?match[]=loss%7Brun!=%22b%22%7D"), ["a", "c"]);
    assert_eq!(names(&server, &format!("/api/v1/label/run/values?start={}", T0_SECONDS + 10)), [""; 0]);
    let cut = server.get("/api/v1/label/run/values?limit=2");
    assert_eq!(
        (&cut["data"], &cut["warnings"], &cut["total"]),
        (&json!(["a", "b"]), &json!(["results truncated due to limit"]), &json!(3))
    );
    let cut = server.get("/api/v1/series?match[]=loss&limit=1");
    assert_eq!((cut["data"].as_array().unwrap().len(), &cut["total"]), (1, &json!(3)));
    assert_eq!(server.get("/api/v1/series?match[]=loss&limit=3").get("total"), None);
    let all = server.get("/api/v1/series?match[]=loss&match[]=%7Brun=%22a%22%7D");
    assert_eq!(all["data"].as_array().unwrap().len(), 4, "{all}");
    assert_eq!(all["data"][0], json!({"__name__": "loss", "project": "p", "run": "a", "run_id": id("a")}));
    assert_eq!(server.get("/api/v1/query?query=vector(1)%20or%20vector(2)&limit=1").get("warnings"), None);
    let cut = server.get(&format!("/api/v1/query?query=loss&time={T0_SECONDS}&limit=2"));
    assert_eq!((cut["data"]["result"].as_array().unwrap().len(), cut["warnings"].is_array()), (2, true));
    assert_eq!(cut["total"], 3, "{cut}");
    let tsdb = server.get("/api/v1/status/tsdb?limit=1");
    assert_eq!(tsdb["data"]["headStats"]["numSeries"], 6, "{tsdb}");
    assert_eq!(tsdb["data"]["seriesCountByLabelValuePair"][0]["value"], 6, "{tsdb}");
}

#[test]
fn a_deleted_run_answers_nothing() {
    let server = Server::start(&[]);
    for (writer, run) in [(1, "a"), (2, "b")] {
        assert_eq!(server.push(&request(run, writer, 1, vec![series("loss", &[1.0])])).0, 200);
    }
    assert_eq!(server.ask("DELETE", &format!("/api/tg/v1/runs/{}", id("a")), &[], b"").status, 200);
    assert_eq!(value(&server, "count(loss)", 0), "1");
    assert_eq!(names(&server, "/api/v1/label/run/values"), ["b"]);
    assert_eq!(server.get("/api/v1/series?match[]=loss")["data"].as_array().unwrap().len(), 1);
}

#[test]
fn questions_that_can_not_be_answered_fail_in_prometheus_words() {
    let server = Server::start(&[]);
    let check = |path: &str, status: u16, kind: &str, words: &str| {
        let answer = server.ask("GET", path, &[], b"");
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["status"], &body["errorType"]),
            (status, &json!("error"), &json!(kind)),
            "{path}: {body}"
        );
        assert!(body["error"].as_str().unwrap().contains(words), "{path}: {body}");
    };
    let bad = |path: &str, words: &str| check(path, 400, "bad_data", words);
    bad("/api/v1/query?query=sum(", "invalid parameter \"query\": 1:5: parse error: unexpected end of input");
    bad(
        "/api/v1/query?query=1&time=then",
        "invalid parameter \"time\": cannot parse \"then\" to a valid timestamp",
    );
    bad(
        "/api/v1/query?query=1&timeout=soon",
        "invalid parameter \"timeout\": cannot parse \"soon\" to a valid duration",
    );
    bad("/api/v1/query?query=1&limit=-1", "invalid parameter \"limit\": limit must be non-negative");
    bad("/api/v1/query?query=histogram_sum(x)", "not supported");
    bad(
        "/api/v1/query_range?query=1&start=0&end=1",
        "invalid parameter \"step\": cannot parse \"\" to a valid duration",
    );
    bad(
        "/api/v1/query_range?query=1&start=0&end=1&step=0",
        "zero or negative query resolution step widths are not accepted",
    );
    bad("/api/v1/query_range?query=1&start=2&end=1&step=1", "end timestamp must not be before start time");
    bad(
        "/api/v1/query_range?query=1&start=0&end=11001&step=1",
        "exceeded maximum resolution of 11,000 points per timeseries",
    );
    bad(
        "/api/v1/query_range?query=up[5m]&start=0&end=1&step=1",
        "invalid expression type \"range vector\" for range query",
    );
    bad("/api/v1/series", "no match[] parameter provided");
    bad("/api/v1/labels?match[]=sum(up)", "a plain selector such as");
    check(
        "/api/v1/query?query=vector(1)%5B1y:1ms%5D",
        422,
        "execution",
        "query processing would load too many samples into memory",
    );
    assert_eq!(server.push(&request("r", 1, 1, vec![series("m", &[1.0]), series("n", &[1.0])])).0, 200);
    let double = "label_replace({__name__=~\"m|n\"}, \"__name__\", \"x\", \"\", \"\")";
    check(
        &format!("/api/v1/query?query={}&time={T0_SECONDS}", escape(double)),
        422,
        "execution",
        "vector cannot contain metrics with the same labelset",
    );
}

#[test]
fn forms_times_and_statistics_are_taken_as_prometheus_takes_them() {
    let server = Server::start(&[]);
    let post = |body: &str| {
        let answer = server.ask(
            "POST",
            "/api/v1/query",
            &[("content-type", "application/x-www-form-urlencoded")],
            body.as_bytes(),
        );
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let want = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000.500,"1.5e+21"]}]}}"#;
    assert_eq!(post("query=vector%281.5e21%29&time=2023-11-14T22%3A13%3A20.5Z"), (200, want.to_owned()));
    assert_eq!(post("query=vector(1500000000000000000000)&time=1700000000.5"), (200, want.to_owned()));
    let (_, body) = post("query=vector(NaN)+or+vector(1)&stats=all");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["data"]["result"][0]["value"][1], "NaN");
    assert!(body["data"]["stats"]["timings"]["evalTotalTime"].is_f64(), "{body}");
    for path in [
        "rules",
        "alerts",
        "targets",
        "alertmanagers",
        "metadata",
        "query_exemplars?query=up",
        "status/buildinfo",
        "status/config",
        "status/runtimeinfo",
        "status/flags",
    ] {
        assert_eq!(server.get(&format!("/api/v1/{path}"))["status"], "success", "{path}");
    }
    assert_eq!(
        server.get("/api/v1/format_query?query=sum%28rate%28x[5m]%29%29by%28a%29")["data"],
        "sum by (a) (rate(x[5m]))"
    );
    assert_eq!(server.metric("truegauge_query_requests_total{outcome=\"answered\"}"), 3.0);
}

#[test]
fn the_token_guards_this_api_too() {
    let server = Server::start(&["--token", "secret"]);
    let ask = |headers: &[(&str, &str)]| server.ask("GET", "/api/v1/query?query=1", headers, b"").status;
    assert_eq!(ask(&[]), 401);
    assert_eq!(ask(&[("authorization", "Bearer secret")]), 200);
    assert_eq!(ask(&[("authorization", "Bearer secret"), ("host", "evil.example")]), 403);
}

#[test]
fn hostile_queries_cost_bounded_memory_and_leave_the_server_well() {
    let server = Server::start(&["--query-time-max", "2s"]);
    let values: Vec<f64> = (0..5_000).map(f64::from).collect();
    assert_eq!(server.push(&request("r", 1, 1, vec![series("m", &values)])).0, 200);
    let patterns: Vec<String> =
        (0..3_000).map(|n| format!("a{n}=~\"(a{{1,100}}b{{1,100}}){{1,40}}\"")).collect();
    let hostile = [
        "(".repeat(200_000) + "1" + &")".repeat(200_000),
        "-".repeat(300_000) + "1",
        "1".to_owned() + &"+1".repeat(200_000),
        "{a=~\"(x{1000}){1000}\"}".to_owned(),
        format!("{{{}}}", patterns.join(",")),
        "vector(1)[100y:1ms]".to_owned(),
        "m[100y:1ms]".to_owned(),
        "count_values(\"x\", m) or ".repeat(2_000) + "m",
        "\"".to_owned() + &"x".repeat(900_000),
    ];
    for query in &hostile {
        let body = format!("query={}", escape(query));
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let status = server.ask("POST", "/api/v1/query", &form, body.as_bytes()).status;
        assert!(matches!(status, 200 | 400 | 413 | 422 | 503), "{status}: {}", &query[..50.min(query.len())]);
    }
    assert_eq!(value(&server, "count_over_time(m[2h])", 5_000), "5000");
    eventually("nothing is held for queries", || {
        (server.metric("truegauge_query_memory_bytes ") == 0.0).then_some(())
    });
    let peak = server.memory_peak_kib();
    assert!(peak < 400 << 10, "{peak} KiB");
}

#[test]
fn a_query_whose_client_hangs_up_is_stopped() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // Each differs from the others, or it would be worked out once.
    let slow =
        |n| escape(&format!("quantile_over_time(0.{n},quantile_over_time(0.{n},vector(1)[1h:1s])[1h:1s])"));
    let query = (10..90).map(slow).collect::<Vec<_>>().join("%2B");
    write!(stream, "GET /api/v1/query?query={query} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    eventually("the query runs", || (server.metric("truegauge_query_running ") == 1.0).then_some(()));
    drop(stream);
    eventually("the query is stopped", || {
        (server.metric("truegauge_query_requests_total{outcome=\"canceled\"}") == 1.0).then_some(())
    });
    assert_eq!(server.metric("truegauge_query_running "), 0.0);
}

#[test]
fn the_command_line_asks_and_shows() {
    let server = Server::start(&[]);
    let values: Vec<f64> = (0..100).map(f64::from).collect();
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &values)])).0, 200);
    let ask = |args: &[&str]| {
        let (code, out, err) = server.cli(&[&["query"], args].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    let end = (T0_SECONDS + 99).to_string();
    let table = ask(&["loss", "--time", &end]);
    assert!(
        table.starts_with("VALUE  SERIES\n") && table.contains("99  loss{project=\"p\",run=\"bar\""),
        "{table}"
    );
    let csv =
        ask(&["sum(loss)", "--start", &T0_SECONDS.to_string(), "--end", &end, "--step", "33s", "--csv"]);
    assert_eq!(
        csv,
        "time,value\n1700000000.000,0\n1700000033.000,33\n1700000066.000,66\n1700000099.000,99\n"
    );
    let json: Value = serde_json::from_str(&ask(&["sum(loss)", "--time", &end, "--json"])).unwrap();
    assert_eq!(json["result"][0]["value"][1], "99");
    let chart = ask(&["loss", "--start", &T0_SECONDS.to_string(), "--end", &end]);
    assert!(
        chart.contains('█') && chart.contains("2023-11-14 22:13:20 to 2023-11-14 22:14:59 UTC"),
        "{chart}"
    );
    let (code, _, err) = server.cli(&["query", "sum("]);
    assert_eq!(code, 2);
    assert!(err.contains("1:5: parse error"), "{err}");
    assert_eq!(run(&server.home, &["query", "up", "--url", "http://127.0.0.1:1"]).0, 2);
}

#[test]
fn promtool_asks_this_server_as_it_asks_prometheus() {
    let server = Server::start(&[]);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("loss", &[1.0, 2.0, 3.0])])).0, 200);
    let ask = |args: &[&str]| {
        let output = Command::new("promtool").arg("query").args(args).output();
        assert!(output.is_ok(), "`promtool` is missing: apt-get install prometheus");
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let time = format!("--time={}", T0_SECONDS + 2);
    let (start, end) = (format!("--start={T0_SECONDS}"), format!("--end={}", T0_SECONDS + 2));
    assert_eq!(ask(&["instant", &time, &server.url, "sum(loss)"]), "{} => 3 @[1700000002]\n");
    assert_eq!(
        ask(&["range", &start, &end, "--step=1s", &server.url, "sum(loss)"]),
        "{} =>\n1 @[1700000000]\n2 @[1700000001]\n3 @[1700000002]\n"
    );
    let labels = format!("loss{{project=\"p\", run=\"bar\", run_id=\"{}\"}}", id("bar"));
    let series = ask(&["series", "--match=loss", &start, &end, &server.url]);
    assert!(series.contains("__name__=\"loss\"") || series.contains(&labels), "{series}");
    assert_eq!(ask(&["labels", &start, &end, &server.url, "run"]), "bar\n");
}
