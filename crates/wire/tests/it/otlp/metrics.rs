//! Points as they are read, and what is refused.

use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, HistogramDataPoint, Summary,
    SummaryDataPoint, exemplar, exponential_histogram_data_point::Buckets, metric::Data,
    summary_data_point::ValueAtQuantile,
};
use proptest::prelude::*;
use prost::Message;
use wire::otlp::answer::{Encoding, Signal, response};
use wire::otlp::{Instrument, OtlpError, Point, PointValue, Refusal, Temporality};

use super::{
    CUMULATIVE, DELTA, NOW, at, gauge, histogram, map, metric, number, pair, read_each, request, sum, text,
};

#[test]
fn every_kind_of_point_is_read() {
    let hist = HistogramDataPoint {
        start_time_unix_nano: at(0),
        time_unix_nano: at(10),
        count: 6,
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![100.0, 500.0],
        max: Some(900.0),
        ..HistogramDataPoint::default()
    };
    let expo = ExponentialHistogramDataPoint {
        time_unix_nano: at(10),
        count: 6,
        sum: Some(10.0),
        scale: 20,
        zero_count: 1,
        positive: Some(Buckets { offset: 1 << 20, bucket_counts: vec![1, 0, 4] }),
        ..ExponentialHistogramDataPoint::default()
    };
    let expo = ExponentialHistogram { data_points: vec![expo], aggregation_temporality: DELTA };
    let summary = SummaryDataPoint {
        time_unix_nano: at(10),
        count: 10,
        sum: 5.0,
        quantile_values: vec![
            ValueAtQuantile { quantile: 0.5, value: 0.4 },
            ValueAtQuantile { quantile: 0.99, value: 1.5 },
        ],
        ..SummaryDataPoint::default()
    };
    let mut queue = sum("queue.depth", CUMULATIVE, vec![number(0, at(10), 7.0)]);
    if let Some(Data::Sum(sum)) = &mut queue.data {
        sum.is_monotonic = false;
    }
    let sent = request(vec![
        queue,
        histogram("step.no_sum", CUMULATIVE, vec![hist]),
        metric("rpc.latency", "s", Data::Summary(Summary { data_points: vec![summary] })),
        metric("step", "ms", Data::ExponentialHistogram(expo)),
    ]);
    let got = map(&sent, |p| {
        (p.metric.canonical.to_string(), p.metric.instrument, p.metric.temporality, p.value.clone())
    });
    assert_eq!(got.len(), 4);
    assert_eq!(
        got[0],
        ("queue_depth".into(), Instrument::UpDownCounter, Temporality::Cumulative, PointValue::Number(7.0))
    );
    let PointValue::Histogram(explicit) = &got[1].3 else { panic!("{:?}", got[1]) };
    assert_eq!((explicit.sum, explicit.max, explicit.ladder), (None, Some(900.0), false));
    assert_eq!(explicit.buckets, [(100.0, 1), (500.0, 3)]);
    let quantiles = vec![(0.5, 0.4), (0.99, 1.5)];
    assert_eq!(got[2].3, PointValue::Summary { count: 10, sum: 5.0, quantiles });
    let PointValue::Histogram(exponential) = &got[3].3 else { panic!("{:?}", got[3]) };
    assert_eq!((got[3].2, exponential.ladder), (Temporality::Delta, true));
    let counts: Vec<u64> = exponential.buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 1, 6], "zero, 2 and the rung above it");
}

#[test]
fn numbers_that_are_none_are_values() {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    let points = values.into_iter().zip(1..).map(|(value, s)| number(0, at(s), value)).collect();
    let got = map(&request(vec![gauge("loss", points)]), |p| match p.value {
        PointValue::Number(number) => number.to_bits(),
        _ => 0,
    });
    assert_eq!(got, values.map(f64::to_bits));
}

#[test]
fn a_bad_point_costs_no_other_and_is_counted_exactly() {
    let bad_buckets = HistogramDataPoint {
        time_unix_nano: at(10),
        count: 2,
        bucket_counts: vec![1, 1],
        explicit_bounds: vec![1.0, 2.0],
        ..HistogramDataPoint::default()
    };
    let two = || vec![number(0, at(10), 1.0), number(0, at(11), 2.0)];
    let sent = request(vec![
        gauge("megatron.training.loss", vec![number(0, at(10), 2.5)]),
        sum("bad.temporality", 0, vec![number(at(0), at(10), 1.0)]),
        histogram("bad.buckets", CUMULATIVE, vec![bad_buckets]),
        gauge("", two()),
    ]);
    let mut taken = Vec::new();
    let outcome =
        read_each(&sent.encode_to_vec(), |p| taken.push((p.metric.canonical.to_string(), p.time_ns)));
    assert_eq!(taken, [("megatron_training_loss".to_owned(), at(10) as i64)]);
    assert_eq!((outcome.accepted, outcome.rejected), (1, 4));
    assert_eq!(outcome.reasons(), [("temporality", 1), ("buckets", 1), ("metric_name", 2)]);
    let message = outcome.message();
    assert!(message.contains("bad.temporality") && message.contains("bad.buckets"), "{message}");
    let json = String::from_utf8(response(Signal::Metrics, &outcome, Encoding::Json)).unwrap();
    assert!(
        json.contains(r#""rejectedDataPoints":"4""#) && json.starts_with(r#"{"partialSuccess""#),
        "{json}"
    );
}

#[test]
fn points_are_refused_one_by_one_with_a_reason() {
    let reasons = |points| {
        let body = request(vec![gauge("g", points)]).encode_to_vec();
        read_each(&body, |_| {}).reasons().to_vec()
    };
    assert_eq!(reasons(vec![number(0, 0, 1.0)]), [("time", 1)]);
    assert_eq!(reasons(vec![number(0, NOW as u64 + 7_300_000_000_000, 1.0)]), [("time_ahead", 1)]);
    assert_eq!(reasons(vec![number(0, u64::MAX, 1.0)]), [("time_ahead", 1)]);
    assert_eq!(reasons(vec![number(0, NOW as u64 + 3_600_000_000_000, 1.0)]), [], "an hour ahead is taken");
    let mut valueless = number(0, at(1), 0.0);
    valueless.value = None;
    assert_eq!(reasons(vec![valueless.clone()]), [("no_value", 1)]);
    valueless.flags = 1;
    assert_eq!(reasons(vec![valueless]), [], "nothing is what `no recorded value` says");
    let refused_by_sink = request(vec![gauge("g", vec![number(0, at(1), 1.0)])]).encode_to_vec();
    let outcome = wire::otlp::metrics::read(&refused_by_sink, NOW, &mut |_| {
        Err(Refusal::new("series_limit", "too many series"))
    });
    assert_eq!(outcome.unwrap().reasons(), [("series_limit", 1)]);
}

#[test]
fn exemplars_tie_a_gauge_to_its_span() {
    let mut point = number(0, at(10), 7.0);
    point.exemplars = vec![Exemplar {
        time_unix_nano: at(9),
        span_id: vec![2; 8],
        trace_id: vec![1; 16],
        value: Some(exemplar::Value::AsInt(7)),
        filtered_attributes: vec![pair("k", text("v"))],
    }];
    let got = map(&request(vec![gauge("loss", vec![point])]), |p| {
        let e = &p.exemplars[0];
        (e.time_ns, e.value, e.trace, e.span, e.attributes.get("k").unwrap().text().unwrap().into_owned())
    });
    assert_eq!(got, [(at(9) as i64, 7.0, Some([1; 16]), Some([2; 8]), "v".to_owned())]);
}

#[test]
fn bodies_that_are_no_request_are_refused_whole() {
    let read = |body: &[u8]| wire::otlp::metrics::read(body, NOW, &mut |_| Ok(()));
    assert!(matches!(read(b"\x0a\xff\xff\xff\xff\x0fnot protobuf"), Err(OtlpError::Malformed(_))));
    assert_eq!(read(b"{}").map_err(|e| e.status()), Err(400));
    assert_eq!(read(b"").unwrap(), wire::otlp::Outcome::default(), "an empty request is a good one");
    let too_large = vec![0; wire::otlp::BODY_BYTES_MAX + 1];
    assert_eq!(read(&too_large).map_err(|e| e.status()), Err(413));
}

#[test]
fn attributes_that_can_not_be_read_refuse_the_body_whatever_becomes_of_their_point() {
    let body = |time: u64| {
        let mut point = number(0, time, 1.0);
        point.attributes = vec![pair("a-key", text("v"))];
        let mut body = request(vec![gauge("g", vec![point])]).encode_to_vec();
        let at = body.windows(5).position(|bytes| bytes == b"a-key").unwrap();
        body[at] = 0xff;
        body
    };
    let mut read_by_sink = None;
    wire::otlp::metrics::read(&body(at(1)), NOW, &mut |point| {
        read_by_sink = Some(point.attributes().map(|attributes| attributes.list.len()));
        Ok(())
    })
    .unwrap();
    assert!(matches!(read_by_sink, Some(Err(OtlpError::Malformed(_)))), "{read_by_sink:?}");
    for time in [0, at(1)] {
        let refuse = &mut |_: &Point<'_, '_>| Err(Refusal::new("series_limit", "too many series"));
        let read = wire::otlp::metrics::read(&body(time), NOW, refuse);
        assert!(matches!(read, Err(OtlpError::Malformed(_))), "{read:?}");
    }
}

fn sample() -> Vec<u8> {
    let point = HistogramDataPoint {
        start_time_unix_nano: at(0),
        time_unix_nano: at(10),
        count: 5,
        sum: Some(2_370.0),
        bucket_counts: vec![0, 3, 2],
        explicit_bounds: vec![250.0, 500.0],
        attributes: vec![pair("a", text("b"))],
        ..HistogramDataPoint::default()
    };
    let expo = ExponentialHistogramDataPoint {
        time_unix_nano: at(10),
        count: 5,
        scale: 2,
        positive: Some(Buckets { offset: -3, bucket_counts: vec![1, 0, 4] }),
        ..ExponentialHistogramDataPoint::default()
    };
    let expo = ExponentialHistogram { data_points: vec![expo], aggregation_temporality: DELTA };
    request(vec![
        histogram("h", CUMULATIVE, vec![point]),
        gauge("g", vec![number(0, at(1), 1.0)]),
        metric("e", "", Data::ExponentialHistogram(expo)),
    ])
    .encode_to_vec()
}

#[test]
fn a_body_cut_anywhere_never_panics() {
    let body = sample();
    for end in 0..body.len() {
        let _any = wire::otlp::metrics::read(&body[..end], NOW, &mut |_| Ok(()));
    }
}

proptest! {
    #[test]
    fn damaged_and_random_bodies_never_panic(
        place in any::<prop::sample::Index>(), byte: u8, noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut body = sample();
        let at = place.index(body.len());
        body[at] = byte;
        for body in [&body, &noise] {
            let _metrics = wire::otlp::metrics::read(body, NOW, &mut |_| Ok(()));
            let _traces = wire::otlp::traces::read(body, false, &mut |_| Ok(()));
            let _logs = wire::otlp::logs::read(body, NOW, false, &mut |_| Ok(()));
        }
    }

    /// What is read is what the derived messages hold.
    #[test]
    fn the_reader_agrees_with_derived_messages(
        points in prop::collection::vec((any::<u32>(), any::<f64>(), "[a-z]{0,5}"), 1..20),
    ) {
        let made: Vec<_> = points
            .iter()
            .enumerate()
            .map(|(n, (start, value, label))| {
                let mut point = number(u64::from(*start), at(n as u64 + 1), *value);
                point.attributes = vec![pair("label", text(label))];
                point
            })
            .collect();
        let got = map(&request(vec![gauge("g", made)]), |p| {
            let PointValue::Number(value) = p.value else { panic!("{:?}", p.value) };
            let label = p.attributes().unwrap().get("label").unwrap().text().unwrap().into_owned();
            (p.start_ns, p.time_ns, value.to_bits(), label, p.scope.name.to_owned())
        });
        let want: Vec<_> = points
            .iter()
            .enumerate()
            .map(|(n, (start, value, label))| {
                (i64::from(*start), at(n as u64 + 1) as i64, value.to_bits(), label.clone(), "nemo.lens".to_owned())
            })
            .collect();
        prop_assert_eq!(got, want);
    }
}
