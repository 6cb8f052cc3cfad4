//! What a query that is being typed may become, and what is known of it before it is run.

use model::MetricKind;
use serde_json::Value;
use wire::remote_write::{CONTENT_TYPE, Metadata, Point, RequestWriter};

use crate::process::{Server, request, series};
use crate::prometheus::{T0_SECONDS, escape};

/// A server with a gauge that has a unit, a counter, buckets, and one of our own metrics.
fn server() -> Server {
    let server = Server::start(&[]);
    let mut writer = RequestWriter::new();
    let about = [
        ("gpu_temperature_celsius", MetricKind::Gauge, "Heat of the card.", "celsius"),
        ("gpu_tensor_seconds", MetricKind::Counter, "Time in tensor cores.", "seconds"),
        ("itl_seconds", MetricKind::Histogram, "Time between tokens.", "seconds"),
    ];
    for (metric, kind, help, unit) in about {
        writer.metadata(&Metadata { metric, kind, help, unit });
    }
    let mut add = |labels: &[(&str, &str)]| {
        let point = Point { time_ms: T0_SECONDS * 1_000, value: 1.0 };
        writer.series(labels.iter().copied(), &[point]);
    };
    for host in ["h-1", "h-2", "it's \"it\""] {
        add(&[("__name__", "gpu_temperature_celsius"), ("host", host), ("gpu", "0")]);
        add(&[("__name__", "gpu_tensor_seconds_total"), ("host", host)]);
    }
    add(&[("__name__", "itl_seconds_bucket"), ("le", "0.1"), ("engine", "vllm")]);
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    let body = writer.finish().unwrap();
    assert_eq!(server.ask("POST", "/api/v1/write", &headers, &body).status, 204);
    assert_eq!(server.push(&request("bar", 1, 1, vec![series("system/disk/utilization", &[1.0])])).0, 200);
    server
}

/// Asks at the `§` of a query.
fn complete(server: &Server, marked: &str) -> Value {
    let at = marked.chars().position(|c| c == '§').unwrap();
    let query = marked.replacen('§', "", 1);
    server.get(&format!("/api/tg/v1/complete?query={}&cursor={at}", escape(&query)))
}

fn texts(answer: &Value, kind: &str) -> Vec<String> {
    let options = answer["options"].as_array().unwrap().iter().filter(|o| o["kind"] == kind);
    options.map(|o| o["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn metrics_come_with_cost_type_unit_and_help_and_functions_beside_them() {
    let server = server();
    let answer = complete(&server, "sum(gpu_te§)");
    assert_eq!(
        (&answer["wants"], &answer["from"], &answer["to"]),
        (&"expression".into(), &4.into(), &10.into())
    );
    assert_eq!(texts(&answer, "metric"), ["gpu_temperature_celsius", "gpu_tensor_seconds_total"]);
    let first = &answer["options"][0];
    assert_eq!(
        (&first["series"], &first["type"], &first["unit"], &first["help"]),
        (&3.into(), &"gauge".into(), &"celsius".into(), &"Heat of the card.".into())
    );
    let counters_first = complete(&server, "rate(gpu_te§");
    assert_eq!(texts(&counters_first, "metric"), ["gpu_tensor_seconds_total", "gpu_temperature_celsius"]);
    assert_eq!(texts(&complete(&server, "heat§"), "metric"), [""; 0], "names are searched, not help");
    assert_eq!(texts(&complete(&server, "TENSOR§"), "metric"), ["gpu_tensor_seconds_total"]);
    assert_eq!(texts(&complete(&server, "gputemp§"), "metric"), ["gpu_temperature_celsius"]);
    let rate = complete(&server, "rat§");
    assert_eq!(texts(&rate, "function")[0], "rate");
    assert_eq!(
        (&rate["options"][0]["insert"], &rate["options"][0]["arguments"]),
        (&"rate(".into(), &"v range-vector".into())
    );
    assert_eq!(complete(&server, "rat§(x)")["options"][0]["insert"], "rate");
    assert_eq!(texts(&complete(&server, "top§"), "aggregation"), ["topk"]);
    let ours = complete(&server, "system_disk_ut§");
    assert!(ours["options"][0]["caveat"].as_str().unwrap().contains("root"), "{ours}");
    assert_eq!(ours["options"][0]["unit"], "%");
}

#[test]
fn labels_and_values_are_those_of_the_selector_and_written_as_its_quotes_want() {
    let server = server();
    let labels = complete(&server, "gpu_temperature_celsius{§}");
    assert_eq!(texts(&labels, "label"), ["gpu", "host"]);
    assert_eq!((&labels["options"][1]["series"], &labels["options"][1]["values"]), (&3.into(), &3.into()));
    assert_eq!(texts(&complete(&server, "gpu_temperature_celsius{host=\"h-1\",§}"), "label"), ["gpu"]);
    assert_eq!(
        texts(&complete(&server, "sum by (§) (rate(itl_seconds_bucket[5m]))"), "label"),
        ["engine", "le"]
    );
    let values = complete(&server, "gpu_temperature_celsius{host=\"§\"}");
    assert_eq!(texts(&values, "value"), ["h-1", "h-2", "it's \"it\""]);
    assert_eq!(values["options"][2]["insert"], "it's \\\"it\\\"");
    assert_eq!(texts(&complete(&server, "itl_seconds_bucket{engine=\"§\"}"), "value"), ["vllm"]);
    assert_eq!(texts(&complete(&server, "{engine=\"v§"), "value"), ["vllm"]);
    assert_eq!(complete(&server, "{engine=§")["options"][0]["insert"], "\"vllm\"");
}

#[test]
fn words_and_durations_stand_where_the_grammar_has_them() {
    let server = server();
    assert_eq!(texts(&complete(&server, "sum(x) b§"), "keyword"), ["by"]);
    assert_eq!(complete(&server, "sum(x) b§")["options"][0]["insert"], "by (");
    assert_eq!(texts(&complete(&server, "x of§"), "keyword"), ["offset"]);
    assert_eq!(texts(&complete(&server, "rate(x[5§"), "duration")[..3], ["5s", "5m", "5h"]);
    assert_eq!(complete(&server, "x # com§ment")["wants"], "nothing");
    let wrong = server.ask("GET", "/api/tg/v1/complete?query=abc&cursor=4", &[], b"");
    assert_eq!((wrong.status, wrong.error_code()), (400, "bad_request".to_owned()));
    let cut = server.get("/api/tg/v1/complete?query=g&limit=1");
    assert_eq!((cut["options"].as_array().unwrap().len(), &cut["more"]), (1, &true.into()));
    assert_eq!(complete(&server, "é + up§")["from"], 4, "places are characters");
}

#[test]
fn a_query_is_explained_before_it_is_run() {
    let server = server();
    let explain = |query: &str| server.get(&format!("/api/tg/v1/explain?query={}", escape(query)));
    let answer = explain("rate(gpu_temperature_celsius[5m])");
    assert_eq!(answer["advice"][0]["fix"]["query"], "deriv(gpu_temperature_celsius[5m])", "{answer}");
    assert_eq!((&answer["advice"][0]["from"], &answer["advice"][0]["to"]), (&5.into(), &32.into()));
    let metric = &answer["metrics"][0];
    assert_eq!(
        (&metric["name"], &metric["type"], &metric["series"]),
        (&"gpu_temperature_celsius".into(), &"gauge".into(), &3.into())
    );
    assert_eq!((&metric["labels"][0]["name"], &metric["labels"][0]["values"]), (&"host".into(), &3.into()));
    let counter = explain("sum(gpu_tensor_seconds_total)");
    assert_eq!(counter["advice"][0]["fix"]["query"], "sum(rate(gpu_tensor_seconds_total[5m]))");
    assert_eq!(counter["metrics"][0]["help"], "Time in tensor cores.", "a family describes its counter");
    let buckets = explain("histogram_quantile(0.9, sum(rate(itl_seconds_bucket[5m])))");
    assert!(buckets["advice"][0]["message"].as_str().unwrap().contains("`le`"), "{buckets}");
    assert_eq!(explain("rate(gpu_tensor_seconds_total[5m])")["advice"], Value::Array(Vec::new()));
    let unfinished = explain("rate(gpu_tensor_seconds_total[5m]");
    assert!(unfinished["error"].as_str().unwrap().contains("parse error"), "{unfinished}");
    assert_eq!(unfinished["metrics"][0]["name"], "gpu_tensor_seconds_total");
    assert_eq!(explain("nothing_here")["metrics"], Value::Array(Vec::new()));
    assert_eq!(explain("")["error"], Value::Null);
}

#[test]
fn stored_metrics_are_listed_and_searched_by_name_and_by_what_they_measure() {
    let server = server();
    let names = |path: &str| {
        let answer = server.get(path);
        let names = answer["metrics"].as_array().unwrap().iter();
        let names: Vec<String> = names.map(|m| m["name"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), answer["total"].as_u64().unwrap())
    };
    assert_eq!(names("/api/tg/v1/metrics?search=TENSOR"), ("gpu_tensor_seconds_total".to_owned(), 1));
    assert_eq!(names("/api/tg/v1/metrics?search=heat"), ("gpu_temperature_celsius".to_owned(), 1));
    assert_eq!(names("/api/tg/v1/metrics?limit=1"), ("gpu_temperature_celsius".to_owned(), 4));
}

#[test]
fn metadata_says_how_our_metrics_mislead() {
    let server = server();
    let about = server.get("/api/v1/metadata?metric=system_disk_utilization");
    let about = &about["data"]["system_disk_utilization"][0];
    assert!(about["caveat"].as_str().unwrap().contains("root"), "{about}");
    let told = server.get("/api/v1/metadata?metric=gpu_temperature_celsius");
    assert_eq!(told["data"]["gpu_temperature_celsius"][0].get("caveat"), None, "{told}");
}

#[test]
fn what_costs_series_is_told_of_all_of_one_metric_and_of_refused_labels() {
    let server = server();
    let tsdb = |query: &str| server.get(&format!("/api/v1/status/tsdb?limit=5{query}"))["data"].clone();
    let all = tsdb("");
    let count = |list: &Value, name: &str| {
        let row = list.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.map_or(0, |row| row["value"].as_u64().unwrap())
    };
    assert_eq!(count(&all["seriesCountByLabelName"], "host"), 6, "{all}");
    assert_eq!(count(&all["labelValueCountByLabelName"], "host"), 3, "{all}");
    let fleet = &all["seriesCountByPopulation"][0];
    assert!(fleet["value"].as_u64().unwrap() >= 7 && fleet["runs"] == false, "{all}");
    assert_eq!(fleet["limit"], 1_000_000);
    let one = tsdb("&match[]=gpu_tensor_seconds_total");
    assert_eq!(
        (&one["headStats"]["numSeries"], count(&one["seriesCountByLabelName"], "host")),
        (&3.into(), 3)
    );
    assert_eq!(count(&one["labelValueCountByLabelName"], "gpu"), 0, "{one}");
    assert_eq!(all["refusedLabels"], Value::Array(Vec::new()));
    let mut writer = RequestWriter::new();
    let labels = [("__name__", "m"), ("job", "edge"), ("request_id", "1")];
    writer.series(labels, &[Point { time_ms: T0_SECONDS * 1_000, value: 1.0 }]);
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    let refused = server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap());
    assert_eq!(refused.status, 400);
    let row = &tsdb("")["refusedLabels"][0];
    assert_eq!(
        (&row["name"], &row["job"], &row["door"], &row["value"]),
        (&"request_id".into(), &"edge".into(), &"remote_write".into(), &1.into())
    );
    assert_eq!(server.ask("GET", "/api/v1/status/tsdb?match[]=a&match[]=b", &[], b"").status, 400);
}
