//! Requests of real clients, where they are at hand, sent over HTTP and over gRPC: what is stored is what
//! those clients recorded.

use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use serde_json::json;

use crate::metrana::block;
use crate::otlp_peer::{JSON, call, post};
use crate::otlp_points::{Place, escape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Http,
    Grpc,
}

/// A server that was sent captures by one of its doors.
struct Replay {
    place: Place,
    door: Door,
    captures: PathBuf,
}

/// Does it over both doors, unless the captures are not here.
fn over_both(test: impl Fn(&Replay)) {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/real-clients/captures");
    if !captures.is_dir() {
        return;
    }
    for door in [Door::Http, Door::Grpc] {
        test(&Replay { place: Place::new(), door, captures: captures.clone() });
    }
}

impl Replay {
    fn body(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.captures.join(name)).unwrap()
    }

    /// Sends a capture; how many points were refused, and the words.
    fn send(&self, name: &str) -> (i64, String) {
        self.send_file(&format!("{name}-metrics.pb"))
    }

    fn send_file(&self, name: &str) -> (i64, String) {
        let body = self.body(name);
        let answer = match self.door {
            Door::Http => {
                let answer = self.place.send(&body);
                assert_eq!(
                    (answer.status, answer.header("content-type")),
                    (200, Some("application/x-protobuf"))
                );
                answer.body
            }
            Door::Grpc => {
                let address = self.place.running().grpc_addr.unwrap();
                let (sender, receiver) = std::sync::mpsc::channel();
                block(async move {
                    let ended = call(address, "metrics.v1.MetricsService", &[], (&body, None)).await;
                    assert_eq!(ended.code, 0, "{ended:?}");
                    sender.send(ended.message.unwrap()).unwrap();
                });
                receiver.recv().unwrap()
            }
        };
        let partial = ExportMetricsServiceResponse::decode(&*answer).unwrap().partial_success;
        partial.map_or((0, String::new()), |p| (p.rejected_data_points, p.error_message))
    }

    /// Sends captures of which all is taken.
    fn take(&self, names: &[&str]) {
        for name in names {
            assert_eq!(self.send(name), (0, String::new()), "{name}");
        }
    }

    /// The one value of a query at a time, seconds since the epoch.
    fn value(&self, query: &str, time: f64) -> f64 {
        let answer = self.place.get(&format!("/api/v1/query?query={}&time={time}", escape(query)));
        let rows = answer["data"]["result"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{:?} {query}: {answer}", self.door);
        rows[0]["value"][1].as_str().unwrap().replace("Inf", "inf").parse().unwrap()
    }

    fn count(&self, query: &str, time: f64) -> usize {
        let answer = self.place.get(&format!("/api/v1/query?query={}&time={time}", escape(query)));
        answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}")).len()
    }
}

const T0: f64 = 1_767_225_600.0;
const STEP: &str = "megatron_training_step_duration_ms_milliseconds";
const SKIPPED: &str = "megatron_training_skipped_iters_total";

#[test]
fn the_five_steps_of_the_trainers_library_are_found_under_every_name() {
    over_both(|replay| {
        // Two exports of one shutdown: nothing counts twice.
        for part in [1, 2] {
            assert_eq!(replay.send_file(&format!("lens010-http-metrics-{part}.pb")), (0, String::new()));
        }
        let now = 1_795_994_764.0;
        assert_eq!(replay.value("megatron_training_loss", now), 50.0 / 7.0);
        let labels = replay.place.get(&format!("/api/v1/query?query=megatron_training_loss&time={now}"));
        let labels = &labels["data"]["result"][0]["metric"];
        for (label, value) in [
            ("job", "megatron-lm"),
            ("instance", "run-a-rank7"),
            ("service_name", "megatron-lm"),
            ("nemo_run_id", "run-a"),
            ("dl_rank", "7"),
        ] {
            assert_eq!(labels[label], value, "{label}");
        }
        assert_eq!(replay.count("{__name__=~\"megatron_training_loss.*\"}", now), 1);
        assert_eq!(replay.count("{nemo_run_id=\"run-a\",__name__=~\"megatron_training_.*\"}", now), 25);
        for (query, want) in [
            (format!("{STEP}_count"), 5.0),
            (format!("{STEP}_sum"), 2_370.0),
            (format!("{STEP}_bucket{{le=\"250\"}}"), 0.0),
            (format!("{STEP}_bucket{{le=\"500\"}}"), 3.0),
            (format!("{STEP}_bucket{{le=\"750.0\"}}"), 5.0),
            (format!("{STEP}_bucket{{le=\"+Inf\"}}"), 5.0),
            (SKIPPED.to_owned(), 1.0),
            ("{\"megatron.training.loss\"}".to_owned(), 50.0 / 7.0),
            ("megatron_training_skipped_iters".to_owned(), 1.0),
            ("megatron_training_step_duration_ms_count".to_owned(), 5.0),
        ] {
            assert_eq!(replay.value(&query, now), want, "{query}");
        }
        // The first skip counts, though no point said that there was none; `increase` adds to what it sees.
        assert!(replay.value(&format!("increase({SKIPPED}[5m])"), now) >= 1.0);
        for regex in ["megatron_training_skipped_iters", "megatron_training_step_duration_ms_count"] {
            assert_eq!(replay.count(&format!("{{__name__=~\"{regex}\"}}"), now), 0, "{regex}");
        }
        let exemplars = replay
            .place
            .get(&format!("/api/v1/query_exemplars?query=megatron_training_loss&start=1795994700&end={now}"));
        assert_eq!(exemplars["data"][0]["exemplars"].as_array().map(Vec::len), Some(1), "{exemplars}");
        let (refused, _) = replay.send("sdk-docunits");
        assert_eq!(refused, 0);
        let instances =
            replay.place.list("/api/v1/label/instance/values?match[]=megatron_training_throughput_tflops");
        assert_eq!(instances, ["run-a-rank0", "run-a-rank7"], "with the documented unit and without");
    });
}

#[test]
fn a_partly_bad_request_is_counted_exactly() {
    over_both(|replay| {
        let (refused, message) = replay.send("synth-partial");
        assert_eq!(refused, 4, "{message}");
        assert!(message.contains("bad.temporality") && message.contains("bad.buckets"), "{message}");
        assert_eq!(replay.value("megatron_training_loss", T0 + 10.0), 2.5);
        let json = replay.body("synth-json-metrics.json");
        let answer = post(replay.place.door(), "/v1/metrics", JSON, &json);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
        replay.take(&["synth-json-twin", "synth-empty"]);
        assert_eq!(replay.value(&format!("{STEP}_count"), T0 + 10.0), 3.0);
        assert_eq!(replay.place.send(&replay.body("synth-garbage-metrics.pb")).status, 400);
    });
}

#[test]
fn a_restart_is_seen_by_its_start_alone() {
    over_both(|replay| {
        replay.take(&["synth-restart-1", "synth-restart-2", "synth-restart-3"]);
        let stored = replay.place.samples(SKIPPED);
        assert_eq!(stored, [(0.0, 0.0), (60.0, 3.0), (100.0, 0.0), (130.0, 3.0), (160.0, 5.0)]);
        assert_eq!(replay.value(&format!("increase({SKIPPED}[161s])"), T0 + 160.0), 8.0);
        assert_eq!(replay.value(&format!("resets({SKIPPED}[161s])"), T0 + 160.0), 1.0);
    });
    over_both(|replay| {
        replay.take(&["sdk-restart-1", "sdk-restart-2"]);
        let at = 1_795_994_860.0;
        // Both lives lie within seconds, so that what is extrapolated at the edges is nothing.
        for (metric, want) in [(SKIPPED.to_owned(), 2.0), (format!("{STEP}_count"), 14.0)] {
            let total = replay
                .place
                .get(&format!("/api/v1/query?query={}&time={at}", escape(&format!("{metric}[1m]"))));
            let values: Vec<f64> = total["data"]["result"][0]["values"]
                .as_array()
                .unwrap()
                .iter()
                .map(|pair| pair[1].as_str().unwrap().parse().unwrap())
                .collect();
            let increase: f64 = values
                .windows(2)
                .map(|pair| if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] })
                .sum();
            assert_eq!((values[0], increase), (0.0, want), "{metric}: {values:?}");
        }
    });
}

#[test]
fn what_ended_is_gone_until_it_comes_again() {
    over_both(|replay| {
        replay.take(&["synth-stale-1", "synth-stale-2"]);
        let loss = "megatron_training_loss";
        assert_eq!(replay.value(loss, T0 + 15.0), 2.5);
        assert_eq!((replay.count(loss, T0 + 20.0), replay.count(loss, T0 + 25.0)), (0, 0));
        let range = format!("/api/v1/query_range?query={loss}&start={T0}&end={}&step=1", T0 + 60.0);
        let values = replay.place.get(&range)["data"]["result"][0]["values"].clone();
        let seconds: Vec<f64> =
            values.as_array().unwrap().iter().map(|pair| pair[0].as_f64().unwrap() - T0).collect();
        assert_eq!(seconds, (10..20).map(f64::from).collect::<Vec<_>>());
        assert!(!values.to_string().contains("99"), "{values}");
    });
}

#[test]
fn amounts_and_totals_of_the_sdk_are_the_same_in_the_end() {
    over_both(|replay| {
        replay.take(&[
            "sdk-cumulative-1",
            "sdk-cumulative-2",
            "sdk-cumulative-3",
            "sdk-cumulative-4",
            "sdk-cumulative-5",
        ]);
        let at = 1_795_994_840.0;
        assert_eq!(replay.value(&format!("{STEP}_sum"), at), 2_370.0);
        assert_eq!(replay.value(&format!("{STEP}_count"), at), 5.0);
        assert_eq!(replay.value(SKIPPED, at), 1.0);
        assert_eq!(
            replay.value("count_over_time(megatron_training_loss[1m])", at),
            5.0,
            "every loss that was exported"
        );
    });
    over_both(|replay| {
        replay.take(&[
            "sdk-delta-1",
            "sdk-delta-2",
            "sdk-delta-3",
            "sdk-delta-3",
            "sdk-delta-4",
            "sdk-delta-5",
        ]);
        let at = 1_795_994_837.0;
        assert_eq!(replay.value(&format!("{STEP}_sum"), at), 2_370.0);
        assert_eq!(replay.value(&format!("{STEP}_bucket{{le=\"500\"}}"), at), 3.0);
        assert_eq!(replay.value(SKIPPED, at), 1.0);
    });
    over_both(|replay| {
        replay.take(&["synth-delta-1", "synth-delta-2", "synth-delta-3", "synth-delta-4"]);
        assert_eq!(replay.value(SKIPPED, T0 + 61.0), 10.0);
        assert_eq!(replay.value(&format!("resets({SKIPPED}[2m])"), T0 + 61.0), 0.0);
    });
}

#[test]
fn exponential_histograms_have_buckets_that_quantiles_can_be_taken_of() {
    over_both(|replay| {
        replay.take(&["sdk-expo"]);
        let at = 1_795_994_844.0;
        assert_eq!(replay.value(&format!("{STEP}_count"), at), 5.0);
        let median = replay.value(&format!("histogram_quantile(0.5, {STEP}_bucket)"), at);
        assert!((median - 474.0).abs() < 0.09 * 474.0, "{median}");
        replay.take(&["sdk-grpc-delta-expo-1", "sdk-grpc-delta-expo-5"]);
    });
}

#[test]
fn every_kind_of_point_attribute_and_order_is_kept_as_it_was_meant() {
    over_both(|replay| {
        replay.take(&["synth-kinds"]);
        assert_eq!(replay.value("queue_depth", T0 + 11.0), 7.0);
        assert_eq!(replay.value("step_no_sum_milliseconds_count", T0 + 11.0), 6.0);
        assert_eq!(replay.count("step_no_sum_milliseconds_sum", T0 + 11.0), 0);
        assert_eq!(replay.value("rpc_latency_seconds{quantile=\"0.99\"}", T0 + 11.0), 1.5);
        assert_eq!(replay.value(&format!("{STEP}_count"), T0 + 11.0), 6.0);
        let types = replay.place.get("/api/v1/metadata");
        assert_eq!(types["data"]["rpc_latency_seconds"][0]["type"], "summary");
    });
    over_both(|replay| {
        replay.take(&["synth-attrs"]);
        let found =
            replay.place.get(&format!("/api/v1/query?query=megatron_training_loss&time={}", T0 + 11.0));
        let labels = &found["data"]["result"][0]["metric"];
        let want =
            json!({"a_b": "x;y", "i": "3", "t": "true", "d": "0.5", "key_7up": "z", "arr": "[1,\"p\"]"});
        for (label, value) in want.as_object().unwrap() {
            assert_eq!(labels[label], *value, "{label}: {labels}");
        }
        assert_eq!(labels["__name__"], "megatron_training_loss");
    });
    over_both(|replay| {
        replay.take(&["synth-order-1", "synth-order-2", "synth-order-3", "synth-order-4"]);
        assert_eq!(replay.place.samples("megatron_training_loss"), [(10.0, 1.0), (20.0, 5.0)]);
    });
}

#[test]
fn runs_of_schedulers_new_names_and_diverged_ones_are_told_apart() {
    over_both(|replay| {
        replay.take(&[
            "lens010-slurm-k8s",
            "sdk-newnames",
            "sdk143-naninf",
            "lens010-families",
            "lens010-nan-dropped",
            "sdk-gzip",
            "sdk-exemplars",
        ]);
        let rank = |selector: &str, label: &str| {
            replay.place.list(&format!("/api/v1/label/{label}/values?match[]={}", escape(selector)))
        };
        assert_eq!(rank("megatron_training_loss{nemo_run_id=\"4711\"}", "slurm_job_id"), ["4711"]);
        assert_eq!(rank("megatron_training_loss{nv_dl_rank=\"0\"}", "dl_rank"), ["0"]);
        let at = 1_795_996_290.0;
        assert!(replay.value("megatron_training_loss{nemo_run_id=\"run-n\"}", at).is_nan());
        assert_eq!(replay.value("megatron_training_grad_norm{nemo_run_id=\"run-n\"}", at), f64::INFINITY);
        assert_eq!(
            replay.value("megatron_training_learning_rate{nemo_run_id=\"run-n\"}", at),
            f64::NEG_INFINITY
        );
        let at = 1_795_994_804.0;
        assert_eq!(replay.value("gen_ai_server_request_duration_seconds_sum", at), 0.42);
        assert_eq!(replay.value("sum(gen_ai_client_token_usage_sum)", at), 384.0);
        assert_eq!(replay.value("gym_verify_success_rate", at), 0.87);
        let runs = replay.place.get("/api/tg/v1/runs");
        let mut names: Vec<&str> =
            runs["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["4711", "run-a", "run-c", "run-d", "run-n"], "{runs}");
    });
}
