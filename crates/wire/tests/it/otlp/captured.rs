//! What nemo-lens 0.1.0 sent for five steps of rank 7 of 8, made again by hand: names, units, kinds,
//! attributes, temporality and times as they were on the wire.

use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, number_data_point};
use prost::Message;
use wire::otlp::{Cumulator, Promotion, SeriesKey, Told};

use super::{CUMULATIVE, at, gauge, histogram, number, pair, read_each, request, sum, text};

/// The bounds that OpenTelemetry's clients have when nothing else is said.
const BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0,
    10_000.0,
];

fn export(time: u64) -> Vec<u8> {
    let mut counts = vec![0; BOUNDS.len() + 1];
    (counts[8], counts[9]) = (3, 2);
    let steps = HistogramDataPoint {
        start_time_unix_nano: at(1),
        time_unix_nano: time,
        count: 5,
        sum: Some(2_370.0),
        bucket_counts: counts,
        explicit_bounds: BOUNDS.to_vec(),
        min: Some(400.0),
        max: Some(548.0),
        ..HistogramDataPoint::default()
    };
    let mut skipped = number(at(4), time, 0.0);
    skipped.value = Some(number_data_point::Value::AsInt(1));
    let t = |key: &str| format!("megatron.training.{key}");
    let last = |key: &str, value: f64| gauge(&t(key), vec![number(0, time, value)]);
    let metrics: Vec<Metric> = vec![
        histogram(&t("step_duration_ms"), CUMULATIVE, vec![steps]),
        last("loss", 7.142_857_142_857_143),
        last("throughput_tflops", 384.0),
        last("grad_norm", 1.04),
        last("learning_rate", 0.00015),
        last("tokens_per_sec", 100_040.0),
        last("memory_allocated_gb", 41.5),
        sum(&t("skipped_iters"), CUMULATIVE, vec![skipped]),
    ];
    let mut sent = request(metrics);
    let of_resource = sent.resource_metrics[0].resource.as_mut().unwrap();
    of_resource.attributes.extend([
        pair("telemetry.sdk.language", text("python")),
        pair("telemetry.sdk.name", text("opentelemetry")),
        pair("dl.world_size", IntValue(8)),
        pair("dl.tensor_parallel.size", IntValue(2)),
        pair("megatron.precision", text("bf16")),
        pair("host.name", text("node-1")),
    ]);
    sent.encode_to_vec()
}

/// Every sample that bodies make, as `series time_s value`.
fn samples(bodies: &[Vec<u8>]) -> Vec<String> {
    let mut cumulator = Cumulator::default();
    let mut lines = Vec::new();
    for body in bodies {
        let outcome = read_each(body, |point| {
            let run = point.resource().unwrap().run();
            let labels = point.resource().unwrap().labels(&Promotion::default(), run.as_ref()).unwrap();
            let family = labels.series(&point.metric.canonical, &point.attributes().unwrap(), 1).unwrap();
            let mut out = Vec::new();
            cumulator.take(SeriesKey::of(&family), &Told::of(point), &mut out).unwrap();
            lines.extend(out.iter().map(|sample| {
                let series = sample.part.series(&family);
                let le = series.get("le").map(|le| format!("{{{le}}}")).unwrap_or_default();
                let seconds = (sample.time_ns - at(0) as i64) / 1_000_000_000;
                format!("{}{le} {seconds} {}", series.metric(), sample.value)
            }));
        });
        assert_eq!((outcome.rejected, outcome.accepted), (0, 8));
    }
    lines
}

#[test]
fn one_export_is_25_series_under_their_documented_names() {
    let lines = samples(&[export(at(10))]);
    let now: Vec<&str> = lines.iter().filter(|l| l.contains(" 10 ")).map(String::as_str).collect();
    assert_eq!(now.len(), 25, "six gauges, a counter and 18 of the histogram: {now:#?}");
    for want in [
        "megatron_training_loss 10 7.142857142857143",
        "megatron_training_throughput_tflops 10 384",
        "megatron_training_tokens_per_sec 10 100040",
        "megatron_training_grad_norm 10 1.04",
        "megatron_training_learning_rate 10 0.00015",
        "megatron_training_memory_allocated_gb 10 41.5",
        "megatron_training_skipped_iters_total 10 1",
        "megatron_training_step_duration_ms_milliseconds_count 10 5",
        "megatron_training_step_duration_ms_milliseconds_sum 10 2370",
        "megatron_training_step_duration_ms_milliseconds_bucket{250} 10 0",
        "megatron_training_step_duration_ms_milliseconds_bucket{500} 10 3",
        "megatron_training_step_duration_ms_milliseconds_bucket{750} 10 5",
        "megatron_training_step_duration_ms_milliseconds_bucket{+Inf} 10 5",
    ] {
        assert!(now.contains(&want), "{want} is not in {now:#?}");
    }
    // The first skip counts, though its counter was not there before.
    assert!(lines.contains(&"megatron_training_skipped_iters_total 4 0".to_owned()), "{lines:#?}");
}

#[test]
fn the_second_export_of_one_shutdown_counts_nothing_twice() {
    let lines = samples(&[export(at(10)), export(at(11))]);
    let of = |name: &str| lines.iter().filter(|l| l.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(
        of("megatron_training_skipped_iters_total"),
        ["4 0", "10 1", "11 1"].map(|rest| format!("megatron_training_skipped_iters_total {rest}"))
    );
    let counts = of("megatron_training_step_duration_ms_milliseconds_count");
    let name = "megatron_training_step_duration_ms_milliseconds_count";
    assert_eq!(counts, ["1 0", "10 5", "11 5"].map(|rest| format!("{name} {rest}")));
}
