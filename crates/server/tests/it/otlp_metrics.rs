//! Data points: what is kept of them, what is refused and how exactly it is counted, and that nothing that
//! was recorded is lost or doubled.

use model::is_stale_marker;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message;
use serde_json::json;

use crate::metrana::block;
use crate::otlp_peer::{JSON, T0_NS, call, pair, post, resource};
use crate::otlp_points::{
    CUMULATIVE, DELTA, NO_RECORDED_VALUE, Place, at, counter, gauge, histogram, number, observed, rank,
    request,
};

const LOSS: &str = "megatron.training.loss";
const SKIPPED: &str = "megatron.training.skipped_iters";
const METRICS: &str = "metrics.v1.MetricsService";

fn loss(seconds: f64, value: f64) -> Vec<Metric> {
    vec![gauge(LOSS, "", vec![number(0, at(seconds), value)])]
}

fn skipped(temporality: i32, start: f64, seconds: f64, value: f64) -> Vec<Metric> {
    vec![counter(SKIPPED, temporality, vec![number(at(start), at(seconds), value)])]
}

/// What was counted, by what is stored: the increase without extrapolation.
fn counted(place: &Place) -> f64 {
    let mut sum = 0.0;
    for pair in place.samples("megatron_training_skipped_iters_total").windows(2) {
        sum += if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
    }
    sum
}

/// One good point and four that are not.
fn partly_bad() -> Vec<Metric> {
    vec![
        gauge(LOSS, "", vec![number(0, at(10.0), 2.5)]),
        counter("bad.temporality", 0, vec![number(at(0.0), at(10.0), 1.0)]),
        histogram("bad.buckets", CUMULATIVE, observed(at(0.0), at(10.0), &[1.0, 2.0], &[1, 1], 2.0)),
        gauge("", "", vec![number(0, at(10.0), 1.0), number(0, at(10.0), 2.0)]),
    ]
}

#[test]
fn a_bad_point_costs_no_other_and_the_answer_counts_it_at_every_door() {
    let place = Place::new();
    let (rejected, message) = place.refused(partly_bad());
    assert_eq!(rejected, 4, "{message}");
    assert!(message.contains("bad.temporality") && message.contains("bad.buckets"), "{message}");
    assert_eq!(place.value("megatron_training_loss", 10.0), 2.5);
    let body = json!({"resourceMetrics": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "megatron-lm"}},
        {"key": "nemo.run.id", "value": {"stringValue": "json"}},
    ]}, "scopeMetrics": [{"metrics": [
        {"name": LOSS, "gauge": {"dataPoints": [{"timeUnixNano": at(10.0).to_string(), "asDouble": "NaN"}]}},
        {"name": "bad.temporality", "sum": {"dataPoints": [{"timeUnixNano": at(10.0).to_string(), "asInt": "1"}]}},
    ]}]}]});
    let answer = post(place.door(), "/v1/metrics", JSON, body.to_string().as_bytes());
    let said: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(said["partialSuccess"]["rejectedDataPoints"], "1", "{said}");
    assert!(said["partialSuccess"]["errorMessage"].as_str().unwrap().contains("bad.temporality"), "{said}");
    assert!(place.value("megatron_training_loss{run=\"json\"}", 10.0).is_nan());
    let grpc = place.running().grpc_addr.unwrap();
    block(async move {
        let body = request(rank("grpc", 0), partly_bad());
        let ended = call(grpc, METRICS, &[], (&body, None)).await;
        let partial = ExportMetricsServiceResponse::decode(&*ended.message.unwrap()).unwrap();
        assert_eq!((ended.code, partial.partial_success.unwrap().rejected_data_points), (0, 4));
    });
    assert_eq!(place.value("megatron_training_loss{run=\"grpc\"}", 10.0), 2.5);
    let page =
        ureq::get(format!("{}/metrics", place.running().url)).call().unwrap().body_mut().read_to_string();
    let page = page.unwrap();
    for line in [
        "truegauge_ingest_rejected_total{door=\"otlp_http\",reason=\"temporality\"} 2",
        "truegauge_ingest_rejected_total{door=\"otlp_grpc\",reason=\"metric_name\"} 2",
        "truegauge_ingest_samples_total{door=\"otlp_http\"}",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[test]
fn a_restart_that_values_do_not_show_is_seen_by_its_start() {
    let place = Place::new();
    for (start, seconds, value) in [(0.0, 60.0, 3.0), (100.0, 130.0, 3.0), (100.0, 160.0, 5.0)] {
        place.take(skipped(CUMULATIVE, start, seconds, value));
    }
    let stored = place.samples("megatron_training_skipped_iters_total");
    assert_eq!(stored, [(0.0, 0.0), (60.0, 3.0), (100.0, 0.0), (130.0, 3.0), (160.0, 5.0)]);
    let name = "megatron_training_skipped_iters_total";
    assert_eq!(place.value(&format!("increase({name}[161s])"), 160.0), 8.0);
    assert_eq!(place.value(&format!("resets({name}[161s])"), 160.0), 1.0);
    // A histogram of a process that was restarted: 10 observations, then 4.
    for (start, seconds, counts) in [(0.0, 60.0, [7, 3]), (100.0, 130.0, [1, 3])] {
        let point = observed(at(start), at(seconds), &[500.0], &counts, 100.0);
        place.take(vec![histogram("megatron.training.step_duration_ms", CUMULATIVE, point)]);
    }
    let count = "megatron_training_step_duration_ms_milliseconds_count";
    assert_eq!(place.value(&format!("increase({count}[131s])"), 130.0), 14.0);
    let below = "megatron_training_step_duration_ms_milliseconds_bucket{le=\"500\"}";
    assert_eq!(place.value(&format!("increase({below}[131s])"), 130.0), 8.0);
}

#[test]
fn no_recorded_value_ends_a_series_until_the_next_point() {
    let place = Place::new();
    place.take(loss(10.0, 2.5));
    let gone = NumberDataPoint { flags: NO_RECORDED_VALUE, ..number(0, at(20.0), 99.0) };
    place.take(vec![gauge(LOSS, "", vec![gone])]);
    assert_eq!(place.value("megatron_training_loss", 15.0), 2.5);
    assert_eq!(place.query("megatron_training_loss", 20.0), []);
    assert_eq!(place.query("megatron_training_loss", 25.0), []);
    place.take(loss(40.0, 1.5));
    assert_eq!(place.query("megatron_training_loss", 39.0), []);
    assert_eq!(place.value("megatron_training_loss", 45.0), 1.5);
    assert_eq!(place.samples("megatron_training_loss"), [(10.0, 2.5), (40.0, 1.5)], "99 is no value");
    // Charts draw the end of a series as nothing, not as NaN.
    let runs = place.get("/api/tg/v1/runs");
    let id = runs["runs"][0]["run_id"].as_str().unwrap();
    for buckets in [1, 100] {
        let points = place.get(&format!(
            "/api/tg/v1/runs/{id}/points?metric=megatron_training_loss&axis=time&buckets={buckets}"
        ));
        let counts = points["series"][0]["count"].as_array().unwrap();
        assert_eq!(counts.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 2, "{points}");
        assert!(!points.to_string().contains("NaN"), "{points}");
    }
    // Of a histogram every series ends.
    let step = "megatron.training.step_duration_ms";
    place.take(vec![histogram(step, CUMULATIVE, observed(at(0.0), at(10.0), &[500.0], &[1, 1], 900.0))]);
    assert_eq!(place.value("count({__name__=~\"megatron_training_step.*\"})", 15.0), 4.0);
    let mut ended = observed(at(0.0), at(20.0), &[], &[], 0.0);
    ended.flags = NO_RECORDED_VALUE;
    place.take(vec![histogram(step, CUMULATIVE, ended)]);
    assert_eq!(place.query("{__name__=~\"megatron_training_step.*\"}", 25.0), []);
}

#[test]
fn numbers_that_are_none_are_kept_as_they_are() {
    let place = Place::new();
    place.take(loss(10.0, f64::NAN));
    place.take(loss(20.0, f64::INFINITY));
    place.take(loss(30.0, f64::NEG_INFINITY));
    let stored = place.samples("megatron_training_loss");
    assert_eq!(stored.len(), 3, "{stored:?}");
    assert!(stored[0].1.is_nan() && !is_stale_marker(stored[0].1));
    assert_eq!((stored[1].1, stored[2].1), (f64::INFINITY, f64::NEG_INFINITY));
}

#[test]
fn points_within_a_millisecond_stay_apart() {
    let place = Place::new();
    let points = (0..5).map(|n| number(0, at(10.0) + n * 7, n as f64)).collect();
    place.take(vec![gauge(LOSS, "", points)]);
    assert_eq!(place.value("count_over_time(megatron_training_loss[10s])", 11.0), 5.0);
    assert_eq!(place.value("sum_over_time(megatron_training_loss[10s])", 11.0), 10.0);
}

#[test]
fn sending_again_changes_nothing_and_another_value_wins_unless_it_is_in_the_same_request() {
    let place = Place::new();
    place.take(loss(20.0, 2.0));
    place.take(loss(10.0, 1.0));
    place.take(loss(20.0, 2.0));
    assert_eq!(place.samples("megatron_training_loss"), [(10.0, 1.0), (20.0, 2.0)]);
    place.take(loss(20.0, 5.0));
    assert_eq!(place.samples("megatron_training_loss"), [(10.0, 1.0), (20.0, 5.0)]);
    let twice = |a: f64, b: f64| {
        place.refused(vec![gauge(LOSS, "", vec![number(0, at(30.0), a), number(0, at(30.0), b)])])
    };
    assert_eq!(twice(7.0, 7.0).0, 0);
    let (rejected, message) = twice(7.0, 8.0);
    assert_eq!(rejected, 1);
    assert!(message.contains("the first is kept"), "{message}");
    // The same series by attributes in another order.
    let point = |keys: [&str; 2], value: f64| NumberDataPoint {
        attributes: keys.map(|key| pair(key, key)).into(),
        ..number(0, at(40.0), value)
    };
    let (rejected, _) =
        place.refused(vec![gauge(LOSS, "", vec![point(["a", "b"], 1.0), point(["b", "a"], 2.0)])]);
    assert_eq!(rejected, 1);
    assert_eq!(place.value("megatron_training_loss{a=\"a\"}", 41.0), 1.0);
}

#[test]
fn amounts_become_a_total_over_gaps_overlaps_and_repetitions() {
    let place = Place::new();
    for (start, seconds, amount) in
        [(0.0, 10.0, 2.0), (10.0, 20.0, 3.0), (40.0, 50.0, 4.0), (45.0, 60.0, 1.0)]
    {
        place.take(skipped(DELTA, start, seconds, amount));
        place.take(skipped(DELTA, start, seconds, amount));
    }
    assert_eq!(counted(&place), 10.0);
    assert_eq!(place.value("megatron_training_skipped_iters_total", 61.0), 10.0);
    assert_eq!(place.value("resets(megatron_training_skipped_iters_total[2m])", 61.0), 0.0);
    let page =
        ureq::get(format!("{}/metrics", place.running().url)).call().unwrap().body_mut().read_to_string();
    let page = page.unwrap();
    for note in ["repeated\"} 4", "overlap\"} 1"] {
        let line = format!("truegauge_ingest_odd_points_total{{door=\"otlp_http\",note=\"{note}");
        assert!(page.contains(&line), "{line} in {page}");
    }
}

#[test]
fn amounts_go_on_after_a_restart_of_the_server() {
    let mut place = Place::new();
    place.take(skipped(DELTA, 0.0, 10.0, 5.0));
    place.restart(|_| ());
    place.take(skipped(DELTA, 0.0, 10.0, 5.0));
    place.take(skipped(DELTA, 10.0, 20.0, 2.0));
    place.restart(|_| ());
    place.take(skipped(DELTA, 20.0, 30.0, 1.0));
    let stored = place.samples("megatron_training_skipped_iters_total");
    assert_eq!(stored, [(0.0, 0.0), (10.0, 5.0), (20.0, 7.0), (30.0, 8.0)]);
}

#[test]
fn what_the_store_refuses_is_neither_acknowledged_nor_counted() {
    let mut place = Place::new();
    place.take(skipped(DELTA, 0.0, 10.0, 5.0));
    let more = request(resource("megatron-lm", "r"), skipped(DELTA, 10.0, 20.0, 2.0));
    place.restart(|config| config.reserve_bytes = u64::MAX);
    for _ in 0..3 {
        assert_eq!(place.send(&more).status, 503, "sent again it is as new as at first");
    }
    assert_eq!(counted(&place), 5.0);
    place.restart(|_| ());
    assert_eq!(place.send(&more).status, 200);
    assert_eq!(place.send(&more).status, 200);
    assert_eq!(counted(&place), 7.0);
}

#[test]
fn a_body_that_ends_in_garbage_leaves_totals_as_they_were() {
    let place = Place::new();
    place.take(skipped(DELTA, 0.0, 10.0, 5.0));
    let more = request(resource("megatron-lm", "r"), skipped(DELTA, 10.0, 20.0, 2.0));
    // A resource whose one attribute says that it is longer than all that follows.
    let garbage = [&more[..], &[0x0a, 4, 0x12, 2, 0x12, 0x7f]].concat();
    assert_eq!(place.send(&garbage).status, 400);
    assert_eq!(counted(&place), 5.0);
    assert_eq!(place.send(&more).status, 200);
    assert_eq!(counted(&place), 7.0);
}

#[test]
fn labels_that_never_repeat_are_refused_with_the_next_step() {
    let place = Place::new();
    for key in ["iteration", "megatron.iteration", "nv.dl.iteration", "dl.iteration"] {
        let point =
            |value: &str| NumberDataPoint { attributes: vec![pair(key, value)], ..number(0, at(10.0), 1.0) };
        let metrics = vec![
            gauge(LOSS, "", vec![point("1"), point("2")]),
            gauge("fine", "", vec![number(0, at(10.0), 1.0)]),
        ];
        let (rejected, message) = place.refused(metrics);
        assert_eq!(rejected, 2, "{key}: {message}");
        assert!(message.contains(LOSS) && message.contains("put it on the span"), "{key}: {message}");
    }
    assert_eq!(place.query("megatron_training_loss", 11.0), []);
    assert_eq!(place.value("fine", 11.0), 1.0);
}

#[test]
fn what_is_too_much_for_a_series_costs_its_point() {
    let place = Place::new();
    let with = |attributes| NumberDataPoint { attributes, ..number(0, at(10.0), 1.0) };
    let many = with((0..10_000).map(|n| pair(&format!("k{n}"), "v")).collect());
    let some = with((0..30).map(|n| pair(&format!("k{n}"), "v")).collect());
    let long = with(vec![pair("note", &"x".repeat(1 << 20))]);
    let metrics = vec![
        gauge("many", "", vec![many]),
        gauge("some", "", vec![some]),
        gauge("long", "", vec![long]),
        gauge("fine", "", vec![number(0, at(10.0), 1.0)]),
    ];
    let (rejected, message) = place.refused(metrics);
    assert_eq!(rejected, 3, "{message}");
    for words in ["10000 labels, at most 30", "\"long\" refused", "1048576 bytes, at most 1024"] {
        assert!(message.contains(words), "{words} in {message}");
    }
    assert_eq!(place.value("count({__name__=~\"many|some|long|fine\"})", 11.0), 1.0);
    // A resource of that size is the sender's, not the point's: what fits of it is kept.
    let mut large = resource("megatron-lm", "r2");
    large.attributes.extend((0..10_000).map(|n| pair(&format!("r{n}"), &"y".repeat(90))));
    place.take_of(large, loss(10.0, 3.0));
    assert_eq!(place.value("megatron_training_loss{run=\"r2\"}", 11.0), 3.0);
}

#[test]
fn series_beyond_the_limit_are_refused_and_counted_as_points() {
    let mut place = Place::new();
    place.restart(|config| config.retention.project_series = 6);
    let point = |n: usize| NumberDataPoint {
        attributes: vec![pair("n", &n.to_string())],
        ..number(0, at(10.0), 1.0)
    };
    let (rejected, message) = place.refused(vec![gauge(LOSS, "", (0..8).map(point).collect())]);
    assert_eq!(rejected, 2, "{message}");
    assert!(message.contains(LOSS) && message.contains("one more than 6 series"), "{message}");
    assert_eq!(place.value("count(megatron_training_loss)", 11.0), 6.0);
}

#[test]
fn clocks_may_be_an_hour_off_either_way_and_no_more_than_two_ahead() {
    let place = Place::new();
    let now_ns =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let hour = 3_600 * 1_000_000_000;
    let send = |name: &str, time_ns: u64| {
        place.refused_of(rank(name, 0), vec![gauge(LOSS, "", vec![number(0, time_ns, 1.0)])])
    };
    assert_eq!(send("ahead", now_ns + hour).0, 0);
    assert_eq!(send("behind", now_ns - hour).0, 0);
    let (rejected, message) = send("lost", now_ns + 3 * hour);
    assert_eq!(rejected, 1);
    assert!(message.contains("set the sender's clock"), "{message}");
    let series = place.list("/api/v1/series?match[]=megatron_training_loss");
    assert_eq!(series.len(), 2, "{series:?}");
}

#[test]
fn two_processes_under_one_instance_id_are_told_apart_by_their_starts() {
    let place = Place::new();
    place.take(skipped(CUMULATIVE, 50.0, 60.0, 5.0));
    let (rejected, message) = place.refused(skipped(CUMULATIVE, 20.0, 61.0, 2.0));
    assert_eq!(rejected, 1);
    assert!(message.contains("service.instance.id"), "{message}");
    place.take(skipped(CUMULATIVE, 50.0, 70.0, 6.0));
    assert_eq!(counted(&place), 6.0);
}

#[test]
fn telemetry_that_names_no_run_is_kept_as_anybodys() {
    let place = Place::new();
    let of_service = |instance: &str| opentelemetry_proto::tonic::resource::v1::Resource {
        attributes: vec![
            pair("service.namespace", "shop"),
            pair("service.name", "cart"),
            pair("service.instance.id", instance),
        ],
        ..Default::default()
    };
    for instance in ["a", "b"] {
        let metrics = vec![counter("requests", CUMULATIVE, vec![number(at(0.0), at(10.0), 4.0)])];
        place.take_of(of_service(instance), metrics);
    }
    let found = place.query("requests_total", 11.0);
    assert_eq!(found.len(), 2);
    assert_eq!((&found[0].0["job"], found[0].0.get("run_id")), (&json!("shop/cart"), None));
    assert_eq!(place.get("/api/tg/v1/runs")["runs"], json!([]));
}

#[test]
fn an_empty_request_is_fine_and_garbage_is_not() {
    let place = Place::new();
    let answer = place.send(b"");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    let answer = post(place.door(), "/v1/metrics", JSON, b"{}");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
    assert_eq!(place.send(&[0xff; 100]).status, 400);
    let nothing = T0_NS.to_le_bytes();
    assert_eq!(place.send(&nothing).status, 400);
}
