//! Training telemetry, as a backend receives it.

use std::time::Duration;

use client::Run;
use client::training::{
    Given, Instrument, InstrumentError, InstrumentKind, InstrumentSpec, Moment, Settings, SpanContext,
    Training,
};
use model::{AttributeValue, LogRecord};
use opentelemetry_proto::tonic::common::v1::any_value::Value::{BoolValue, IntValue};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsInt;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric};
use opentelemetry_proto::tonic::trace::v1::Span as SentSpan;
use semconv::instruments::{DEFAULT_BOUNDS, MEGATRON, STEP_BOUNDS};

use crate::receiver::{Receiver, attribute, gauge, metrics_of, sum, text};
use crate::support::{LONG, away, flush, until};

/// The settings of rank 7 of 8 that exports everything to `url`, with `more` variables.
pub(crate) fn settings(url: &str, more: &[(&str, &str)]) -> Settings {
    let base = [
        ("MEGATRON_OTEL_ENABLED", "1"),
        ("MEGATRON_OTEL_LOGS_ENABLED", "1"),
        ("MEGATRON_OTEL_RUN_ID", "run-a"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        // Long enough that what a test sees is what it asked for.
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ];
    let lookup = |name: &str| {
        let mut all = more.iter().chain(&base);
        all.find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    };
    let given = Given { rank: Some(7), world_size: Some(8), ..Given::default() };
    let settings = Settings::resolve(&given, &lookup).unwrap();
    assert!(settings.exports && settings.warnings.is_empty(), "{:?}", settings.warnings);
    settings
}

pub(crate) fn training(receiver: &Receiver) -> Training {
    Training::setup(settings(&receiver.url(), &[]), None)
}

/// The trainer's eight.
pub(crate) fn eight(training: &Training) -> [Instrument; 8] {
    MEGATRON.each_ref().map(|known| training.instrument(&InstrumentSpec::known(known)).unwrap())
}

pub(crate) fn shut(training: &Training) -> client::training::Shutdown {
    training.shutdown(LONG, &mut || false)
}

pub(crate) fn sent(training: &Training) {
    assert!(training.force_flush(LONG, &mut || false), "{:?}", training.totals());
}

pub(crate) const NOW: Moment = Moment { step: None, time_ns: None, span: None };

#[test]
fn eight_instruments_arrive_as_the_trainer_sends_them() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [step, loss, tflops, norm, skipped, rate, tokens, memory] = eight(&training);
    let values = [(step, 300.0), (loss, 2.5), (tflops, 400.0), (norm, 1.25), (skipped, 2.0), (rate, 3e-4)];
    training.record(&values, NOW);
    training.record(&[(tokens, 1e6), (memory, 61.5), (step, 700.0), (skipped, 1.0)], NOW);
    sent(&training);
    let seen = receiver.seen();
    assert_eq!(seen.metrics.len(), 1);
    let resource = &seen.metrics[0].resource_metrics[0];
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(attribute(attributes, "nemo.run.id"), text("run-a"));
    assert_eq!(attribute(attributes, "service.instance.id"), text("run-a-rank7"));
    assert_eq!(attribute(attributes, "dl.rank"), Some(IntValue(7)));
    assert_eq!(attribute(attributes, "dl.world_size"), Some(IntValue(8)));
    assert_eq!(resource.scope_metrics[0].scope.as_ref().unwrap().name, "nemo.lens");
    let metrics = metrics_of(&seen.metrics[0]);
    let got: Vec<(&str, &str)> = metrics.iter().map(|m| (m.name.as_str(), m.unit.as_str())).collect();
    let want: Vec<(&str, &str)> = MEGATRON.iter().map(|known| (known.name, known.unit)).collect();
    assert_eq!(got, want);
    let values: Vec<f64> = [1, 2, 3, 5, 6, 7].iter().map(|at: &usize| gauge(&metrics[*at])[0].0).collect();
    assert_eq!(values, [2.5, 400.0, 1.25, 3e-4, 1e6, 61.5]);
    let (total, start, time) = sum(&metrics[4]);
    assert!(total == 3 && start > 0 && start <= time);
    let Some(metric::Data::Histogram(histogram)) = &metrics[0].data else { panic!("no histogram") };
    assert_eq!(histogram.aggregation_temporality, AggregationTemporality::Cumulative as i32);
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum, point.min, point.max), (2, Some(1000.0), Some(300.0), Some(700.0)));
    assert_eq!(point.explicit_bounds, STEP_BOUNDS);
    assert_eq!(point.explicit_bounds[..DEFAULT_BOUNDS.len()], DEFAULT_BOUNDS);
    // Upper bounds belong to their bucket: (250, 500] and (500, 750].
    assert_eq!(point.bucket_counts[8..10], [1, 1]);
}

#[test]
fn nothing_recorded_is_nothing_sent() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, _, _, skipped, ..] = eight(&training);
    sent(&training);
    training.record(&[], NOW);
    training.record(&[(skipped, 0.0)], NOW);
    sent(&training);
    assert_eq!((receiver.seen().requests, training.totals().recorded), (0, 0));
    // With the first value of any instrument the counter stands at zero, so that a first skip is seen.
    training.record(&[(loss, 0.0)], NOW);
    sent(&training);
    let metrics = metrics_of(&receiver.seen().metrics[0]);
    assert_eq!(
        metrics.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(),
        [MEGATRON[1].name, MEGATRON[4].name]
    );
    assert_eq!((gauge(&metrics[0])[0].0, sum(&metrics[1]).0), (0.0, 0));
}

#[test]
fn numbers_that_are_none_are_kept_by_gauges_only() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [step, loss, _, norm, skipped, ..] = eight(&training);
    training.record(&[(loss, f64::NAN), (norm, f64::NEG_INFINITY)], NOW);
    training.record(&[(step, f64::NAN), (step, 5.0), (skipped, f64::NAN), (skipped, -1.0)], NOW);
    sent(&training);
    assert!(gauge(&receiver.metrics(MEGATRON[1].name)[0])[0].0.is_nan());
    assert_eq!(gauge(&receiver.metrics(MEGATRON[3].name)[0])[0].0, f64::NEG_INFINITY);
    assert_eq!(sum(&receiver.metrics(MEGATRON[4].name)[0]).0, 0);
    let steps = receiver.metrics(MEGATRON[0].name);
    let Some(metric::Data::Histogram(histogram)) = &steps[0].data else { panic!("no histogram") };
    assert_eq!((histogram.data_points[0].count, histogram.data_points[0].sum), (1, Some(5.0)));
}

#[test]
fn gauges_say_when_and_are_not_repeated_and_sums_go_on() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, _, _, skipped, ..] = eight(&training);
    let at = |time_ns| Moment { time_ns: Some(time_ns), ..NOW };
    training.record(&[(loss, 1.0), (skipped, 1.0)], at(5_000));
    training.record(&[(loss, 2.0)], at(6_000));
    sent(&training);
    training.record(&[(skipped, 4.0)], NOW);
    sent(&training);
    assert_eq!(receiver.metrics(MEGATRON[1].name).iter().map(gauge).collect::<Vec<_>>(), [[(2.0, 6_000)]]);
    let totals: Vec<(i64, u64, u64)> = receiver.metrics(MEGATRON[4].name).iter().map(sum).collect();
    assert_eq!([totals[0].0, totals[1].0], [1, 5]);
    assert_eq!(totals[0].1, totals[1].1, "one sequence");
    assert!(totals[0].2 < totals[1].2);
}

#[test]
fn deltas_add_up_to_what_was_recorded() {
    let receiver = Receiver::start();
    let delta = ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta");
    let training = Training::setup(settings(&receiver.url(), &[delta]), None);
    let [step, _, _, _, skipped, ..] = eight(&training);
    let up_down =
        training.instrument(&InstrumentSpec::new("x.queue", InstrumentKind::UpDownCounter)).unwrap();
    for round in 1..=3 {
        training.record(&[(step, 10.0), (skipped, f64::from(round)), (up_down, -1.0)], NOW);
        sent(&training);
    }
    let sums: Vec<(i64, u64, u64)> = receiver.metrics(MEGATRON[4].name).iter().map(sum).collect();
    assert_eq!(sums.iter().map(|sum| sum.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(sums.windows(2).all(|pair| pair[0].2 == pair[1].1), "each begins where the one before ends");
    for metric in receiver.metrics("x.queue") {
        let Some(metric::Data::Sum(sum)) = &metric.data else { panic!("no sum") };
        assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
        assert!(!sum.is_monotonic);
    }
}

#[test]
fn attributes_make_streams_and_what_never_repeats_is_refused() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let spec = InstrumentSpec { is_int: true, ..InstrumentSpec::new("x.tokens", InstrumentKind::Counter) };
    let tokens = training.instrument(&spec).unwrap();
    let of = |kind: &str| [("gen_ai.token.type", AttributeValue::Text(kind.into()))];
    let input = training.with_attributes(tokens, &of("input")).unwrap();
    assert_eq!(training.with_attributes(tokens, &of("input")).unwrap(), input);
    let output = training.with_attributes(tokens, &of("output")).unwrap();
    training.record(&[(input, 3.0), (output, 5.0)], NOW);
    sent(&training);
    let metric = receiver.metrics("x.tokens").remove(0);
    let Some(metric::Data::Sum(sum)) = metric.data else { panic!("no sum") };
    let kinds: Vec<_> =
        sum.data_points.iter().map(|point| attribute(&point.attributes, "gen_ai.token.type")).collect();
    assert_eq!(kinds, [None, text("input"), text("output")]);
    for key in ["iteration", "megatron.iteration", "request_id"] {
        let refused = training.with_attributes(tokens, &[(key, AttributeValue::Int(3))]);
        assert_eq!(refused, Err(InstrumentError::Label(key.to_owned())));
    }
}

#[test]
fn too_many_sets_of_attributes_share_one() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let spec = InstrumentSpec { is_int: true, ..InstrumentSpec::new("x.n", InstrumentKind::Counter) };
    let counter = training.instrument(&spec).unwrap();
    let of = |n: i64| training.with_attributes(counter, &[("shard", AttributeValue::Int(n))]).unwrap();
    let all: std::collections::HashSet<Instrument> = (0..2_500).map(of).collect();
    assert_eq!(all.len(), client::training::STREAMS_MAX + 1);
    (2_000..2_500).for_each(|n| training.record(&[(of(n), 1.0)], NOW));
    sent(&training);
    let Some(metric::Data::Sum(sum)) = receiver.metrics("x.n").remove(0).data else { panic!("no sum") };
    let last = sum.data_points.last().unwrap();
    assert_eq!(attribute(&last.attributes, "otel.metric.overflow"), Some(BoolValue(true)));
    assert_eq!(last.value, Some(AsInt(500)));
}

#[test]
fn instruments_are_one_a_name_and_bad_ones_are_named() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let first = eight(&training);
    for _ in 0..1_000 {
        assert_eq!(eight(&training), first);
    }
    let other = InstrumentSpec { unit: "s", ..InstrumentSpec::gauge("megatron.training.loss") };
    assert!(matches!(training.instrument(&other), Err(InstrumentError::Conflict { .. })));
    for bad in ["", "1x", "a b", "é", &"x".repeat(256)] {
        let got = training.instrument(&InstrumentSpec::gauge(bad));
        assert!(matches!(got, Err(InstrumentError::Name(_))), "{bad:?}");
    }
    for bounds in [&[1.0, 1.0][..], &[f64::NAN], &[1.0, f64::INFINITY]] {
        let spec = InstrumentSpec { bounds, ..InstrumentSpec::new("x.h", InstrumentKind::Histogram) };
        assert!(matches!(training.instrument(&spec), Err(InstrumentError::Bounds(_))), "{bounds:?}");
    }
}

#[test]
fn counter_is_exact_from_eight_threads() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [step, _, _, _, skipped, ..] = eight(&training);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..1_000 {
                    training.record(&[(skipped, 1.0), (step, f64::from(n))], NOW);
                }
            });
        }
    });
    sent(&training);
    assert_eq!(sum(&receiver.metrics(MEGATRON[4].name)[0]).0, 8_000);
    let steps = receiver.metrics(MEGATRON[0].name);
    let Some(metric::Data::Histogram(histogram)) = &steps[0].data else { panic!("no histogram") };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum), (8_000, Some(8.0 * 499_500.0)));
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), 8_000);
}

#[test]
fn exemplars_tie_values_to_sampled_spans() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [step, loss, ..] = eight(&training);
    let span = |is_sampled| Some(SpanContext { trace: [1; 16], id: [2; 8], is_sampled });
    training.record(&[(loss, 1.0), (step, 30.0)], Moment { span: span(true), time_ns: Some(77), ..NOW });
    training.record(&[(loss, 2.0)], Moment { span: span(false), ..NOW });
    sent(&training);
    training.record(&[(loss, 3.0)], NOW);
    sent(&training);
    let of = |at: usize| {
        let metric = receiver.metrics(MEGATRON[1].name).remove(at);
        let Some(metric::Data::Gauge(gauge)) = metric.data else { panic!("no gauge") };
        gauge.data_points[0].exemplars.clone()
    };
    let [exemplar] = &of(0)[..] else { panic!("one exemplar is wanted") };
    assert_eq!((exemplar.trace_id.as_slice(), exemplar.time_unix_nano), (&[1; 16][..], 77));
    assert!(of(1).is_empty(), "an exemplar goes once");
}

/// The spans that arrived, by name.
fn spans(receiver: &Receiver) -> std::collections::BTreeMap<String, SentSpan> {
    let seen = receiver.seen();
    let resources = seen.traces.iter().flat_map(|request| &request.resource_spans);
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.iter().map(|span| (span.name.clone(), span.clone()))).collect()
}

#[test]
fn spans_arrive_with_all_that_was_said_of_them() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let prompt = [("prompt", AttributeValue::Text("who are you".into())), ("n", AttributeValue::Int(3))];
    let outer = training.start("nemo.lens", "megatron.train", None, &prompt);
    let inner = training.start("nemo.lens.helpers", "megatron.train.iteration", outer.context(), &[]);
    inner.set_attribute("megatron.iteration", AttributeValue::Int(9));
    inner.set_attribute("megatron.iteration", AttributeValue::Int(10));
    inner.add_event("e", &[("k", AttributeValue::Bool(true))], Some(5));
    inner.record_exception("ValueError", "no", "Traceback");
    inner.add_link(SpanContext { trace: [7; 16], id: [8; 8], is_sampled: true }, &[]);
    inner.end(None);
    inner.set_attribute("late", AttributeValue::Int(1));
    inner.end(None);
    outer.set_status(Ok(()));
    outer.end(None);
    sent(&training);
    let spans = spans(&receiver);
    let (outer, inner) = (&spans["megatron.train"], &spans["megatron.train.iteration"]);
    assert_eq!(spans.len(), 2);
    assert_eq!(inner.parent_span_id, outer.span_id);
    assert_eq!(inner.trace_id, outer.trace_id);
    assert!(outer.parent_span_id.is_empty() && outer.start_time_unix_nano <= inner.start_time_unix_nano);
    assert!(inner.end_time_unix_nano >= inner.start_time_unix_nano);
    assert_eq!(attribute(&outer.attributes, "prompt"), text("[REDACTED]"));
    assert_eq!(attribute(&inner.attributes, "megatron.iteration"), Some(IntValue(10)));
    assert_eq!((attribute(&inner.attributes, "late"), inner.links[0].span_id.len()), (None, 8));
    let status = inner.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "ValueError: no"));
    assert_eq!(outer.status.as_ref().unwrap().code, 1);
    assert_eq!(inner.events.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["e", "exception"]);
    assert_eq!(attribute(&inner.events[1].attributes, "exception.stacktrace"), text("Traceback"));
}

#[test]
fn open_spans_end_as_cut_short() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let open = training.start("s", "open", None, &[]);
    drop(training.start("s", "dropped", None, &[]));
    let shutdown = shut(&training);
    assert!(shutdown.is_first && shutdown.lost_spans == 0, "{shutdown:?}");
    let spans = spans(&receiver);
    for name in ["open", "dropped"] {
        assert_eq!(attribute(&spans[name].attributes, "nemo.span.truncated"), Some(BoolValue(true)));
        assert_eq!(spans[name].events[0].name, "nemo.span.truncated");
    }
    open.end(None);
    assert!(!open.is_recording());
    assert!(!training.start("s", "late", None, &[]).is_recording());
    assert_eq!(training.totals().after_shutdown, 1);
}

#[test]
fn samplers_leave_spans_out_and_hand_the_decision_on() {
    let receiver = Receiver::start();
    let off = ("OTEL_TRACES_SAMPLER", "parentbased_always_off");
    let training = Training::setup(settings(&receiver.url(), &[off]), None);
    let root = training.start("s", "root", None, &[]);
    assert!(!root.is_recording() && !root.context().unwrap().is_sampled);
    let parent = SpanContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let child = training.start("s", "child", parent, &[]);
    child.end(None);
    root.end(None);
    sent(&training);
    let spans = spans(&receiver);
    assert_eq!(spans.keys().collect::<Vec<_>>(), ["child"]);
    assert_eq!(Some(spans["child"].trace_id.as_slice()), parent.map(|p| p.trace).as_ref().map(|t| &t[..]));
}

#[test]
fn log_records_arrive() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let record = LogRecord {
        time_ns: 5,
        severity: 13,
        body: "slow".into(),
        scope: "train".into(),
        ..LogRecord::default()
    };
    training.log(record);
    sent(&training);
    let seen = receiver.seen();
    let scope = &seen.logs[0].resource_logs[0].scope_logs[0];
    assert_eq!(scope.scope.as_ref().unwrap().name, "train");
    assert_eq!((scope.log_records[0].time_unix_nano, scope.log_records[0].severity_number), (5, 13));
}

#[test]
fn packed_bodies_and_headers_arrive() {
    let receiver = Receiver::start();
    let more = [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
    ];
    let training = Training::setup(settings(&receiver.url(), &more), None);
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    sent(&training);
    assert_eq!(gauge(&receiver.metrics(MEGATRON[1].name)[0])[0].0, 1.0);
    let seen = receiver.seen();
    assert_eq!(
        (seen.headers["content-encoding"].as_str(), seen.headers["authorization"].as_str()),
        ("gzip", "Bearer x")
    );
}

#[test]
fn ranks_that_do_not_export_send_and_start_nothing() {
    let receiver = Receiver::start();
    let exporting = settings(&receiver.url(), &[]);
    let before = threads();
    let quiet = Settings { exports: false, span_groups: Vec::new(), ..exporting };
    let training = Training::setup(quiet, None);
    assert!(!training.is_exporting() && !training.is_recording() && training.groups().is_empty());
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    let span = training.start("s", "n", None, &[]);
    assert!(!span.is_recording() && span.context().is_none());
    span.end(None);
    training.log(LogRecord::default());
    assert!(training.force_flush(Duration::ZERO, &mut || false));
    assert_eq!(shut(&training), client::training::Shutdown::default());
    assert_eq!(training.totals(), client::training::Totals::default());
    assert_eq!((threads(), receiver.seen().connections), (before, 0));
}

/// Names of this process's threads that are ours.
fn threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("truegauge-otlp")).count()
}

#[test]
fn every_value_goes_to_the_run_with_its_time_and_step() {
    let peer = crate::peer::Peer::start();
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(peer.config(dir.path())).unwrap();
    let training = Training::setup(Settings::default(), Some(run.clone()));
    assert!(!training.is_exporting() && training.is_recording());
    let [step, loss, _, _, skipped, ..] = eight(&training);
    for n in 0..1_000_i32 {
        let moment = Moment { step: Some(i64::from(n)), time_ns: Some(i64::from(n) * 1_000_000), ..NOW };
        training.record(&[(loss, f64::from(n)), (step, 10.0)], moment);
    }
    training.record(&[(skipped, 2.0), (loss, f64::NAN)], Moment { step: Some(1_000), ..NOW });
    training.record(&[(skipped, 1.0)], Moment { step: Some(1_001), ..NOW });
    flush(&run);
    let points = peer.points();
    let loss = &points["megatron_training_loss{}"];
    let got: Vec<(i64, Option<i64>, f64)> =
        loss[..1_000].iter().map(|p| (p.time_ns, p.step, p.value)).collect();
    let want = |n: i32| (i64::from(n) * 1_000_000, Some(i64::from(n)), f64::from(n));
    assert_eq!(got, (0..1_000).map(want).collect::<Vec<_>>());
    assert!(loss[1_000].value.is_nan());
    assert_eq!(points["megatron_training_step_duration_ms_milliseconds{}"].len(), 1_000);
    let skips: Vec<(Option<i64>, f64)> =
        points["megatron_training_skipped_iters_total{}"].iter().map(|p| (p.step, p.value)).collect();
    assert_eq!(skips, [(Some(0), 0.0), (Some(1_000), 2.0), (Some(1_001), 3.0)]);
    // The end of telemetry is not the end of the run.
    shut(&training);
    training.record(&[(skipped, 1.0)], NOW);
    assert_eq!(training.totals().after_shutdown, 1);
    assert_eq!(run.counters().logged, 2_004);
}

#[test]
fn attributes_are_labels_of_the_run() {
    let peer = crate::peer::Peer::start();
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(peer.config(dir.path())).unwrap();
    let training = Training::setup(Settings::default(), Some(run.clone()));
    let spec = InstrumentSpec {
        unit: "s",
        ..InstrumentSpec::new("gen_ai.server.request.duration", InstrumentKind::Histogram)
    };
    let duration = training.instrument(&spec).unwrap();
    let with =
        training.with_attributes(duration, &[("gen_ai.request.model", AttributeValue::Text("m".into()))]);
    training.record(&[(with.unwrap(), 0.25)], NOW);
    flush(&run);
    let key = "gen_ai_server_request_duration_seconds{gen_ai_request_model=m}";
    assert_eq!(peer.points()[key][0].value, 0.25);
}

#[test]
fn both_ways_go_together_behind_a_fork_only_the_run() {
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(away(dir.path())).unwrap();
    let training = Training::setup(settings(&receiver.url(), &[]), Some(run.clone()));
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    sent(&training);
    // As it is called in the child; here both live in one process.
    let child = training.forget_after_fork(Some(run.clone()));
    assert!(!child.is_exporting() && child.is_recording() && child.groups().is_empty());
    child.record(&[(loss, 9.0)], NOW);
    let [_, own, ..] = eight(&child);
    child.record(&[(own, 2.0)], NOW);
    assert!(child.force_flush(LONG, &mut || false));
    shut(&child);
    assert_eq!(receiver.seen().metrics.len(), 1);
    // Each has begun its counter at zero; an instrument of the parent's is not known to the child.
    assert_eq!(run.counters().logged, 4);
    until("the parent goes on", || training.force_flush(LONG, &mut || false));
}
