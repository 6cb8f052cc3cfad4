//! Names and labels: one canonical name, every other spelling on equality only, and the queries that
//! dashboards of training ask.

use opentelemetry_proto::tonic::metrics::v1::{Metric, exemplar};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::json;

use crate::otlp_peer::{pair, resource};
use crate::otlp_points::{CUMULATIVE, Place, at, counter, escape, gauge, histogram, number, observed, rank};

/// Bounds that the SDK's histograms have.
const BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0,
    10_000.0,
];

/// The eight instruments after five steps of 400, 437, 474, 511 and 548 ms.
fn eight(seconds: f64) -> Vec<Metric> {
    let t = |key: &str| format!("megatron.training.{key}");
    let one = |key: &str, value: f64| gauge(&t(key), "", vec![number(0, at(seconds), value)]);
    let mut counts = [0_u64; 16];
    (counts[8], counts[9]) = (3, 2);
    vec![
        histogram(
            &t("step_duration_ms"),
            CUMULATIVE,
            observed(at(0.0), at(seconds), &BOUNDS, &counts, 2_370.0),
        ),
        one("loss", 50.0 / 7.0),
        one("throughput_tflops", 384.0),
        one("grad_norm", 1.04),
        one("learning_rate", 0.000_15),
        one("tokens_per_sec", 100_040.0),
        one("memory_allocated_gb", 41.5),
        counter(&t("skipped_iters"), CUMULATIVE, vec![number(at(0.0), at(seconds), 1.0)]),
    ]
}

const STEP: &str = "megatron_training_step_duration_ms_milliseconds";

#[test]
fn the_eight_instruments_have_their_documented_names_and_the_labels_of_their_process() {
    let place = Place::new();
    place.take_of(rank("run-a", 7), eight(10.0));
    let found = place.query("megatron_training_loss", 12.0);
    let [(labels, value)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(value.to_bits(), (50.0_f64 / 7.0).to_bits());
    let run_id = labels["run_id"].clone();
    assert_eq!(
        *labels,
        json!({"__name__": "megatron_training_loss", "job": "megatron-lm", "instance": "run-a-rank7",
            "service_name": "megatron-lm", "service_instance_id": "run-a-rank7", "nemo_run_id": "run-a",
            "dl_rank": "7", "project": "megatron-lm", "run": "run-a", "run_id": run_id})
    );
    assert_eq!(place.value("count({__name__=~\"megatron_training_loss.*\"})", 12.0), 1.0);
    assert_eq!(
        place.value("count({nemo_run_id=\"run-a\",__name__=~\"megatron_training_.*\"})", 12.0),
        25.0,
        "6 gauges, a counter, 18 of the histogram"
    );
    for (query, want) in [
        (format!("{STEP}_count"), 5.0),
        (format!("{STEP}_sum"), 2_370.0),
        (format!("{STEP}_bucket{{le=\"250\"}}"), 0.0),
        (format!("{STEP}_bucket{{le=\"500\"}}"), 3.0),
        (format!("{STEP}_bucket{{le=\"750\"}}"), 5.0),
        (format!("{STEP}_bucket{{le=\"+Inf\"}}"), 5.0),
        ("megatron_training_skipped_iters_total".to_owned(), 1.0),
        ("target_info{job=\"megatron-lm\",instance=\"run-a-rank7\",dl_world_size=\"8\"}".to_owned(), 1.0),
    ] {
        assert_eq!(place.value(&query, 12.0), want, "{query}");
    }
}

#[test]
fn other_spellings_answer_to_equality_and_appear_nowhere() {
    let place = Place::new();
    place.take_of(rank("run-a", 7), eight(10.0));
    for (spelling, canonical) in [
        ("{\"megatron.training.loss\"}", "megatron_training_loss"),
        ("{__name__=\"megatron.training.loss\"}", "megatron_training_loss"),
        ("megatron_training_skipped_iters", "megatron_training_skipped_iters_total"),
        ("{\"megatron.training.skipped_iters\"}", "megatron_training_skipped_iters_total"),
        ("megatron_training_step_duration_ms_count", &format!("{STEP}_count")),
        ("{\"megatron.training.step_duration_ms_sum\"}", &format!("{STEP}_sum")),
    ] {
        let found = place.query(spelling, 12.0);
        assert_eq!((found.len(), &found[0].0["__name__"]), (1, &json!(canonical)), "{spelling}");
        assert_eq!(
            place.list(&format!("/api/v1/series?match[]={}", escape(spelling))).len(),
            1,
            "{spelling}"
        );
        let ranks = format!("/api/v1/label/dl_rank/values?match[]={}", escape(spelling));
        assert_eq!(place.list(&ranks), ["7"], "{spelling}");
        let labels = place.list(&format!("/api/v1/labels?match[]={}", escape(spelling)));
        assert!(labels.contains(&"nemo_run_id".to_owned()), "{spelling}: {labels:?}");
    }
    for pattern in [
        "megatron_training_skipped_iters",
        "megatron_training_step_duration_ms_count",
        "megatron\\\\.training.*",
    ] {
        assert_eq!(place.query(&format!("{{__name__=~\"{pattern}\"}}"), 12.0), [], "{pattern}");
    }
    let names = place.list("/api/v1/label/__name__/values");
    assert_eq!(names.len(), 11, "{names:?}");
    assert!(names.iter().all(|name| !name.contains('.')), "{names:?}");
    // A spelling that is being typed leads to the labels of what it means.
    let typed = escape("megatron_training_skipped_iters{");
    let choices = place.get(&format!("/api/tg/v1/complete?query={typed}"))["options"].to_string();
    assert!(choices.contains("\"nemo_run_id\""), "{choices}");
    let explained =
        place.get(&format!("/api/tg/v1/explain?query={}", escape("megatron_training_skipped_iters")));
    assert_eq!(explained["metrics"][0]["name"], "megatron_training_skipped_iters_total", "{explained}");
    let metadata = place.get("/api/v1/metadata?metric=megatron_training_skipped_iters_total");
    let known = &metadata["data"]["megatron_training_skipped_iters_total"][0]["type"];
    assert_eq!(known, "counter", "{metadata}");
    let metadata = place.get(&format!("/api/v1/metadata?metric={STEP}"));
    assert_eq!(metadata["data"][STEP][0]["unit"], "ms", "{metadata}");
}

#[test]
fn spellings_are_known_again_after_a_restart() {
    let mut place = Place::new();
    place.take_of(rank("run-a", 7), eight(10.0));
    place.restart(|_| ());
    assert_eq!(place.value("megatron_training_skipped_iters", 12.0), 1.0);
}

#[test]
fn one_metric_under_two_units_is_two_metrics_that_are_found_together() {
    let place = Place::new();
    let with_unit = |unit: &str, value: f64| {
        vec![gauge("megatron.training.throughput_tflops", unit, vec![number(0, at(10.0), value)])]
    };
    place.take_of(rank("a", 0), with_unit("", 384.0));
    let (rejected, advice) = place.refused_of(rank("b", 0), with_unit("TFLOP/s", 400.0));
    assert_eq!(rejected, 0);
    assert!(advice.contains("megatron_training_throughput_tflops_TFLOP_per_second"), "{advice}");
    place.take_of(rank("b", 0), with_unit("TFLOP/s", 400.0));
    let both = |query: &str| place.query(query, 12.0).len();
    assert_eq!(both("megatron_training_throughput_tflops"), 2);
    assert_eq!(both("{\"megatron.training.throughput_tflops\"}"), 2);
    assert_eq!(both("megatron_training_throughput_tflops_TFLOP_per_second"), 1);
    assert_eq!(both("{__name__=~\"megatron_training_throughput_tflops\"}"), 1);
    let known = place.get("/api/v1/metadata");
    assert_eq!(known["data"]["megatron_training_throughput_tflops_TFLOP_per_second"][0]["unit"], "TFLOP/s");
}

#[test]
fn a_metric_that_is_called_so_goes_before_one_that_is_only_spelled_so() {
    let place = Place::new();
    place.take(vec![counter("disk.io", CUMULATIVE, vec![number(at(0.0), at(10.0), 3.0)])]);
    assert_eq!(place.value("disk_io", 12.0), 3.0, "nothing else is called so");
    place.take(vec![gauge("disk_io", "", vec![number(0, at(10.0), 7.0)])]);
    assert_eq!(place.value("disk_io", 12.0), 7.0);
    assert_eq!(place.value("{\"disk.io\"}", 12.0), 3.0);
    let listed = place.list(&format!("/api/v1/label/__name__/values?match[]={}", escape("disk_io")));
    assert_eq!(listed, ["disk_io"]);
}

#[test]
fn bounds_match_in_any_spelling() {
    let place = Place::new();
    place.take_of(rank("run-a", 7), eight(10.0));
    let bucket = |condition: &str| place.query(&format!("{STEP}_bucket{{{condition}}}"), 12.0).len();
    for (condition, want) in [
        ("le=\"500\"", 1),
        ("le=\"500.0\"", 1),
        ("le=\"5e2\"", 1),
        ("le=\"0.0\"", 1),
        ("le=~\"500.0|750.0\"", 2),
        ("le=~\"500|750\"", 2),
        ("le!=\"500.0\"", 15),
        ("le!~\"500.0|750\"", 14),
        ("le=\"+Inf\"", 1),
        ("le=\"501\"", 0),
        ("le=\"\"", 0),
    ] {
        assert_eq!(bucket(condition), want, "{condition}");
    }
    assert_eq!(place.query(&format!("{STEP}_count{{le=\"\"}}"), 12.0).len(), 1, "a series without the label");
}

#[test]
fn what_dashboards_of_training_ask_is_answered() {
    let place = Place::new();
    for run in ["run-a", "run-b"] {
        for (at_rank, seconds) in [(6, 10.0), (7, 10.0), (6, 70.0), (7, 70.0)] {
            place.take_of(rank(run, at_rank), eight(seconds));
        }
    }
    let exact =
        ["loss", "throughput_tflops", "tokens_per_sec", "grad_norm", "learning_rate", "memory_allocated_gb"];
    let mut queries: Vec<(String, usize)> =
        exact.iter().map(|key| (format!("megatron_training_{key}"), 4)).collect();
    for (query, rows) in [
        ("{__name__=~\"megatron_training_loss.*\"}", 4),
        ("{nemo_run_id=\"run-a\", __name__=~\"megatron_training_.*\"}", 50),
        ("{nemo_run_id=~\"run-a|run-b\", __name__=\"megatron_training_loss\"}", 4),
        ("megatron_training_loss{service_name=~\"megatron.*\",nemo_run_id=~\"run-a\"}", 2),
        (
            "avg by (service_name) ({__name__=~\"megatron_training_tokens_per_sec.*\",service_name=~\".*\"})",
            1,
        ),
        ("rate(megatron_training_skipped_iters_total[5m])", 4),
        ("increase({__name__=~\"megatron_training_skipped_iters.*\"}[5m])", 4),
        ("increase(megatron_training_skipped_iters[5m])", 4),
        (
            "histogram_quantile(0.5, sum by (le, service_name) (rate(megatron_training_step_duration_ms_milliseconds_bucket[5m])))",
            1,
        ),
        (
            "histogram_quantile(0.95, sum by (le, service_name) (rate({__name__=~\"megatron_training_step_duration_ms.*_bucket\",service_name=~\"megatron-lm\"}[5m])))",
            1,
        ),
        (
            "rate(megatron_training_step_duration_ms_milliseconds_sum[5m]) / rate(megatron_training_step_duration_ms_milliseconds_count[5m])",
            4,
        ),
        ("megatron_training_loss * on (job, instance) group_left (dl_world_size) target_info", 4),
    ] {
        queries.push((query.to_owned(), rows));
    }
    for (query, rows) in queries {
        assert_eq!(place.query(&query, 71.0).len(), rows, "{query}");
    }
    let values = |label: &str, selector: &str| {
        place.list(&format!("/api/v1/label/{label}/values?match[]={}", escape(selector)))
    };
    assert_eq!(values("service_name", "megatron_training_loss"), ["megatron-lm"]);
    assert_eq!(values("nemo_run_id", "megatron_training_loss"), ["run-a", "run-b"]);
    assert_eq!(values("nemo_run_id", "{__name__=~\"megatron_training_loss.*\"}"), ["run-a", "run-b"]);
}

#[test]
fn a_run_shows_its_metrics_by_the_names_that_its_trainer_gave_them() {
    let place = Place::new();
    place.take_of(rank("run-a", 7), eight(10.0));
    let runs = place.get("/api/tg/v1/runs");
    let run = &runs["runs"][0];
    assert_eq!((&run["run"], &run["project"]), (&json!("run-a"), &json!("megatron-lm")), "{runs}");
    let path = format!("/api/tg/v1/runs/{}", run["run_id"].as_str().unwrap());
    let listed = place.get(&format!("{path}/metrics"));
    let metrics = listed["metrics"].as_array().unwrap();
    let loss = metrics.iter().find(|metric| metric["name"] == "megatron_training_loss").unwrap();
    assert_eq!((&loss["display"], &loss["points"]), (&json!("megatron.training.loss"), &json!(1)));
    assert!(metrics.iter().all(|metric| metric["name"] != "target_info"), "{listed}");
    for name in ["megatron.training.loss", "megatron_training_loss"] {
        let points = place.get(&format!("{path}/points?metric={name}&axis=time"));
        assert_eq!(points["series"][0]["last"][0], 50.0 / 7.0, "{name}: {points}");
    }
}

#[test]
fn what_a_histogram_counts_has_no_unit_its_sum_has_that_of_what_is_measured() {
    let place = Place::new();
    let steps = observed(at(0.0), at(10.0), &[250.0], &[1, 1], 900.0);
    place.take(vec![histogram("megatron.training.step_duration_ms", CUMULATIVE, steps)]);
    let runs = place.get("/api/tg/v1/runs");
    let path = format!("/api/tg/v1/runs/{}", runs["runs"][0]["run_id"].as_str().unwrap());
    let listed = place.get(&format!("{path}/metrics"));
    let units = |end: &str| -> Vec<&str> {
        let metrics = listed["metrics"].as_array().unwrap().iter();
        let named = metrics.filter(|metric| {
            metric["name"] == format!("megatron_training_step_duration_ms_milliseconds_{end}").as_str()
        });
        named.map(|metric| metric["unit"].as_str().unwrap()).collect()
    };
    assert_eq!((units("bucket"), units("count"), units("sum")), (vec!["", ""], vec![""], vec!["ms"]));
}

#[test]
fn exemplars_tie_values_to_their_spans_gauges_too() {
    use opentelemetry_proto::tonic::metrics::v1::Exemplar;
    let place = Place::new();
    let recorded = |value: f64, note: &str| Exemplar {
        time_unix_nano: at(9.5),
        span_id: vec![2; 8],
        trace_id: vec![1; 16],
        value: Some(exemplar::Value::AsDouble(value)),
        filtered_attributes: vec![pair("note", note)],
    };
    let mut loss = number(0, at(10.0), 2.5);
    loss.exemplars.push(recorded(2.5, "kept"));
    let mut steps = observed(at(0.0), at(10.0), &[250.0, 500.0], &[0, 1, 1], 900.0);
    steps.exemplars = vec![recorded(400.0, &"x".repeat(200)), recorded(500.5, "above")];
    let metrics = vec![
        gauge("megatron.training.loss", "", vec![loss]),
        histogram("megatron.training.step_duration_ms", CUMULATIVE, steps),
    ];
    place.take_of(rank("run-a", 7), metrics);
    let ask = |query: &str| {
        let (start, end) = (1_767_225_600, 1_767_225_700);
        let answer =
            place.get(&format!("/api/v1/query_exemplars?query={}&start={start}&end={end}", escape(query)));
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].as_array().unwrap().clone()
    };
    for query in ["sum(megatron_training_loss)", "{\"megatron.training.loss\"}"] {
        let found = ask(query);
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        assert_eq!(found[0]["seriesLabels"]["__name__"], "megatron_training_loss");
        assert_eq!(
            found[0]["exemplars"],
            json!([{"labels": {"note": "kept", "span_id": "02".repeat(8), "trace_id": "01".repeat(16)},
                "value": "2.5", "timestamp": 1_767_225_609.5}])
        );
    }
    let found = ask(&format!("histogram_quantile(0.9, rate({STEP}_bucket[5m]))"));
    let bounds: Vec<_> = found.iter().map(|one| one["seriesLabels"]["le"].as_str().unwrap()).collect();
    assert_eq!(bounds.len(), 2, "{found:?}");
    let of = |le: &str| found.iter().find(|one| one["seriesLabels"]["le"] == le).unwrap();
    let labels = &of("500")["exemplars"][0]["labels"];
    assert_eq!(labels.get("note"), None, "more than 128 characters: {labels}");
    assert_eq!(of("+Inf")["exemplars"][0]["labels"]["note"], "above");
    assert_eq!(ask(&format!("{STEP}_count")), [""; 0]);
    assert_eq!(ask("1 + 1"), [""; 0]);
    let bad = place.get("/api/v1/query_exemplars?query=sum(");
    assert_eq!(bad["errorType"], "bad_data", "{bad}");
}

#[test]
fn target_info_spans_the_samples_and_is_told_once_a_minute() {
    let place = Place::new();
    for second in 0..40 {
        let metrics = vec![gauge("loss", "", vec![number(0, at(f64::from(second) * 10.0), 1.0)])];
        place.take_of(rank("run-a", 7), metrics);
    }
    let told: Vec<f64> = place.samples("target_info").iter().map(|(seconds, _)| *seconds).collect();
    assert_eq!(told, [0.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0]);
    assert_eq!(place.value("target_info", 395.0), 1.0);
    // A process that names neither service nor instance could not be joined to.
    place.take_of(Resource::default(), vec![gauge("loss", "", vec![number(0, at(10.0), 1.0)])]);
    assert_eq!(place.query("target_info", 395.0).len(), 1);
    place.take_of(resource("other", "r"), vec![gauge("loss", "", vec![number(0, at(390.0), 1.0)])]);
    assert_eq!(place.query("target_info", 395.0).len(), 2);
}

#[test]
fn a_restart_under_another_process_id_ends_the_target_info_of_before() {
    let place = Place::new();
    let of_process = |pid: &str| {
        let mut resource = rank("run-a", 7);
        resource.attributes.push(pair("process.pid", pid));
        resource
    };
    place.take_of(of_process("12"), vec![gauge("loss", "", vec![number(0, at(10.0), 1.0)])]);
    place.take_of(of_process("34"), vec![gauge("loss", "", vec![number(0, at(20.0), 2.0)])]);
    let told = |seconds: f64| {
        let rows = place.query("target_info", seconds);
        rows.iter().map(|(labels, _)| labels["process_pid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((told(15.0), told(20.0)), (vec!["12".to_owned()], vec!["34".to_owned()]));
    let joined = "loss * on (job, instance) group_left (process_pid) target_info";
    assert_eq!(place.query(joined, 25.0)[0].0["process_pid"], "34");
}

#[test]
fn which_attributes_become_labels_is_the_users_choice() {
    use server::config::Given;
    let mut place = Place::new();
    let labels_with = |place: &mut Place, settings: &[(&str, &str)]| {
        let variable =
            |name: &str| settings.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        place.restart(|config| {
            *config = server::Config::resolve(config.clone(), &Given::new(), &variable, None).unwrap();
        });
        let mut resource = rank("run-a", 7);
        resource.attributes.extend([pair("team", "red"), pair("process.pid", "12"), pair("host.name", "h1")]);
        place.take_of(resource, vec![gauge("loss", "", vec![number(0, at(10.0), 1.0)])]);
        let mut found: Vec<String> = ["team", "process_pid", "host_name", "dl_world_size", "dl_rank"]
            .into_iter()
            .filter(|label| !place.list(&format!("/api/v1/label/{label}/values?match[]=loss")).is_empty())
            .map(str::to_owned)
            .collect();
        // Each setting makes other series: the next one is asked of an empty server.
        *place = Place::new();
        found.sort();
        found
    };
    assert_eq!(labels_with(&mut place, &[]), ["dl_rank", "host_name"]);
    assert_eq!(
        labels_with(&mut place, &[("TRUEGAUGE_OTLP_PROMOTE", "team")]),
        ["dl_rank", "host_name", "team"]
    );
    let all = [("TRUEGAUGE_OTLP_PROMOTE", "*"), ("TRUEGAUGE_OTLP_PROMOTE_NOT", "host.name")];
    assert_eq!(labels_with(&mut place, &all), ["dl_rank", "dl_world_size", "team"], "a process id never");
}
