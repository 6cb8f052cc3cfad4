//! OTLP in JSON means the same as in protobuf.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValueList, any_value};
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, metric::Data, number_data_point};
use proptest::prelude::*;
use prost::Message;
use serde_json::json;
use wire::otlp::answer::{Encoding, Signal};
use wire::otlp::json::to_protobuf;

use super::{CUMULATIVE, at, gauge, histogram, number, pair, request, sum};

fn metrics(value: &serde_json::Value) -> ExportMetricsServiceRequest {
    let body = to_protobuf(Signal::Metrics, value.to_string().as_bytes()).unwrap();
    ExportMetricsServiceRequest::decode(&*body).unwrap()
}

fn metric_json(metric: serde_json::Value) -> serde_json::Value {
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
}

/// The value of the only point of a gauge `{"asDouble": ...}` or the like; none where it is refused.
fn only_value(point: serde_json::Value) -> Result<Option<number_data_point::Value>, String> {
    let value = metric_json(json!({"name": "g", "gauge": {"dataPoints": [point]}}));
    let body = to_protobuf(Signal::Metrics, value.to_string().as_bytes()).map_err(|e| e.to_string())?;
    let request = ExportMetricsServiceRequest::decode(&*body).unwrap();
    let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
    match &metric.data {
        Some(Data::Gauge(gauge)) => Ok(gauge.data_points[0].value),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_request_is_its_twin_in_protobuf() {
    let value = json!({"resourceMetrics": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "megatron-lm"}},
            {"key": "service.instance.id", "value": {"stringValue": "run-a-rank7"}},
            {"key": "nemo.run.id", "value": {"stringValue": "run-a"}},
            {"key": "dl.rank", "value": {"intValue": "7"}},
            {"key": "process.pid", "value": {"intValue": 25405}},
        ]},
        "scopeMetrics": [{"scope": {"name": "nemo.lens"}, "metrics": [
            {"name": "megatron.training.loss", "gauge": {"dataPoints": [
                {"timeUnixNano": at(10).to_string(), "asDouble": 2.5,
                 "attributes": [{"key": "list", "value": {"arrayValue": {"values": [{"boolValue": true}]}}},
                                {"key": "raw", "value": {"bytesValue": "AQI="}}]},
            ]}},
            {"name": "n", "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [
                {"startTimeUnixNano": at(0), "timeUnixNano": at(10), "asInt": "-3", "flags": 1},
            ]}},
            {"name": "h", "unit": "ms", "histogram": {"aggregationTemporality": 2, "dataPoints": [
                {"timeUnixNano": at(10), "count": "3", "sum": 1100, "min": null,
                 "bucketCounts": ["1", 2, 0], "explicitBounds": [250, "500.0"]},
            ]}},
        ]}],
        "unknownField": {"mustBe": ["ignored"]},
    }]});
    let list = opentelemetry_proto::tonic::common::v1::ArrayValue {
        values: vec![opentelemetry_proto::tonic::common::v1::AnyValue {
            value: Some(any_value::Value::BoolValue(true)),
        }],
    };
    let mut loss = number(0, at(10), 2.5);
    loss.attributes = vec![
        pair("list", any_value::Value::ArrayValue(list)),
        pair("raw", any_value::Value::BytesValue(vec![1, 2])),
    ];
    let mut counted = number(at(0), at(10), 0.0);
    (counted.value, counted.flags) = (Some(number_data_point::Value::AsInt(-3)), 1);
    let steps = HistogramDataPoint {
        time_unix_nano: at(10),
        count: 3,
        sum: Some(1_100.0),
        bucket_counts: vec![1, 2, 0],
        explicit_bounds: vec![250.0, 500.0],
        ..HistogramDataPoint::default()
    };
    let want = request(vec![
        gauge("megatron.training.loss", vec![loss]),
        sum("n", CUMULATIVE, vec![counted]),
        histogram("h", CUMULATIVE, vec![steps]),
    ]);
    assert_eq!(metrics(&value), want);
}

#[test]
fn exponential_histograms_summaries_and_exemplars_are_read() {
    let value = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "e", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": [
            {"timeUnixNano": "1", "count": "3", "scale": -2, "zeroCount": 1, "zeroThreshold": 0.5,
             "positive": {"offset": -4, "bucketCounts": ["1", "1"]},
             "exemplars": [{"timeUnixNano": "3", "asDouble": 2.5, "spanId": "00f067aa0ba902b7",
                            "traceId": "4BF92F3577B34DA6A3CE929D0E0E4736"}]},
        ]}},
        {"name": "s", "summary": {"dataPoints": [
            {"timeUnixNano": "1", "count": "3", "quantileValues": [{"quantile": 0.5, "value": "NaN"}]},
        ]}},
    ]}]}]});
    let body = to_protobuf(Signal::Metrics, value.to_string().as_bytes()).unwrap();
    let mut seen = Vec::new();
    super::read_each(&body, |p| {
        seen.push((p.metric.name.to_owned(), format!("{:?}", p.value), p.exemplars.len()));
    });
    assert_eq!(seen.len(), 2);
    // Scale -2: a bucket spans four doublings, so that index -4 ends at 2^-12.
    assert!(seen[0].1.contains("count: 3") && seen[0].1.contains("0.000244140625"), "{}", seen[0].1);
    assert_eq!(seen[0].2, 1);
    assert!(seen[1].1.contains("NaN"), "{}", seen[1].1);
}

#[test]
fn every_legal_form_of_a_number_is_read() {
    use number_data_point::Value::{AsDouble, AsInt};
    let check = |point: serde_json::Value, want: number_data_point::Value| {
        assert_eq!(only_value(point.clone()), Ok(Some(want)), "{point}");
    };
    check(json!({"asDouble": 2}), AsDouble(2.0));
    check(json!({"asDouble": -2.5e-3}), AsDouble(-0.0025));
    check(json!({"asDouble": "1.5"}), AsDouble(1.5));
    check(json!({"asDouble": "Infinity"}), AsDouble(f64::INFINITY));
    check(json!({"asDouble": "-Infinity"}), AsDouble(f64::NEG_INFINITY));
    check(json!({"asInt": 2}), AsInt(2));
    check(json!({"asInt": "2"}), AsInt(2));
    check(json!({"asInt": 5.0}), AsInt(5));
    check(json!({"asInt": "1e3"}), AsInt(1_000));
    check(json!({"asInt": "-9223372036854775808"}), AsInt(i64::MIN));
    assert!(matches!(only_value(json!({"asDouble": "NaN"})), Ok(Some(AsDouble(nan))) if nan.is_nan()));
    assert_eq!(only_value(json!({"asDouble": null})), Ok(None));
}

#[test]
fn every_illegal_form_is_refused_in_words() {
    let check = |point: serde_json::Value, want: &str| {
        let error = only_value(point.clone()).expect_err(&point.to_string());
        assert!(error.contains(want) && error.contains("line 1 column"), "{point}: {error}");
    };
    check(json!({"asDouble": "nan"}), "`asDouble` is a number");
    check(json!({"asDouble": "inf"}), "`asDouble` is a number");
    check(json!({"asDouble": "1e400"}), "`asDouble` is a number");
    check(json!({"asDouble": ""}), "`asDouble` is a number");
    check(json!({"asDouble": true}), "`asDouble` is a number");
    check(json!({"asDouble": [1]}), "found a list");
    check(json!({"asInt": 1.5}), "whole number");
    check(json!({"asInt": "9223372036854775808"}), "whole number");
    check(json!({"asInt": "0x10"}), "whole number");
    check(json!({"timeUnixNano": -1}), "whole number of 64 bits from 0");
    check(json!({"timeUnixNano": "soon"}), "whole number of 64 bits from 0");
    check(json!({"flags": 4_294_967_296_u64}), "32 bits");
    check(json!({"exemplars": [{"traceId": "abc"}]}), "id in hex");
    check(json!({"exemplars": [{"traceId": "zz"}]}), "id in hex");
    check(json!({"exemplars": {"traceId": "00"}}), "`exemplars` is a list");
    check(json!({"attributes": [null]}), "null");
    check(json!({"attributes": [{"key": 3}]}), "`key` is text");
    check(json!({"attributes": [{"key": "k", "value": {"bytesValue": "*"}}]}), "base64");
    let temporality =
        json!({"name": "s", "sum": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA"}});
    let error = to_protobuf(Signal::Metrics, metric_json(temporality).to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("the number of a choice"), "{error}");
    for body in ["", "[]", "{", "{}x", "null", "\"\""] {
        let error = to_protobuf(Signal::Metrics, body.as_bytes()).unwrap_err();
        assert_eq!(error.status(), 400, "{body:?}");
    }
    assert_eq!(to_protobuf(Signal::Metrics, b"{}"), Ok(Vec::new()));
}

#[test]
fn spans_have_ids_in_hex_of_any_case() {
    let value = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
        "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708",
        "parentSpanId": "A1B2C3D4E5F60708", "name": "megatron.train", "kind": 1, "flags": 257,
        "startTimeUnixNano": at(0).to_string(), "endTimeUnixNano": at(60).to_string(),
        "status": {"code": 2, "message": "no"}, "events": [{"timeUnixNano": "5", "name": "exception"}],
        "links": [{"traceId": "0102030405060708090A0B0C0D0E0F10", "spanId": "0202020202020202"}],
    }]}]}]});
    let body = to_protobuf(Signal::Traces, value.to_string().as_bytes()).unwrap();
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let span = &request.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(span.trace_id, (1..=16).collect::<Vec<u8>>());
    assert_eq!(span.parent_span_id, [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 8]);
    assert_eq!((span.kind, span.flags, span.start_time_unix_nano), (1, 257, at(0)));
    assert_eq!(span.links[0].trace_id, span.trace_id);
    assert_eq!(span.status.as_ref().unwrap().code, 2);
}

#[test]
fn every_field_of_a_log_record_is_read() {
    let value = json!({"resourceLogs": [{"resource": {"droppedAttributesCount": 1}, "scopeLogs": [{
        "scope": {"name": "n", "version": "1", "attributes": [{"key": "a"}], "droppedAttributesCount": 2},
        "logRecords": [{
            "timeUnixNano": "1", "observedTimeUnixNano": 2, "severityNumber": 9, "severityText": "INFO",
            "body": {"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": "-Infinity"}}]}},
            "attributes": [{"key": "b", "value": {"boolValue": false}}], "droppedAttributesCount": 3, "flags": 1,
            "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708", "eventName": "e",
        }],
    }]}]});
    let body = to_protobuf(Signal::Logs, value.to_string().as_bytes()).unwrap();
    let request = ExportLogsServiceRequest::decode(&*body).unwrap();
    let of_resource = &request.resource_logs[0];
    assert_eq!(of_resource.resource.as_ref().unwrap().dropped_attributes_count, 1);
    let scope = of_resource.scope_logs[0].scope.as_ref().unwrap();
    assert_eq!((&*scope.name, &*scope.version, &*scope.attributes[0].key), ("n", "1", "a"));
    assert_eq!(scope.dropped_attributes_count, 2);
    let record = &of_resource.scope_logs[0].log_records[0];
    assert_eq!((record.time_unix_nano, record.observed_time_unix_nano), (1, 2));
    assert_eq!((record.severity_number, &*record.severity_text, record.flags), (9, "INFO", 1));
    assert_eq!((record.dropped_attributes_count, &*record.event_name), (3, "e"));
    assert_eq!((record.trace_id.len(), record.span_id.len()), (16, 8));
    assert_eq!(record.attributes, [pair("b", any_value::Value::BoolValue(false))]);
    let said = record.body.as_ref().and_then(|body| body.value.clone());
    let inner = vec![pair("k", any_value::Value::DoubleValue(f64::NEG_INFINITY))];
    assert_eq!(said, Some(any_value::Value::KvlistValue(KeyValueList { values: inner })));
}

#[test]
fn deep_nesting_overflows_nothing() {
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(to_protobuf(Signal::Metrics, deep.as_bytes()), Ok(Vec::new()), "unknown, and passed over");
    let value = format!("{}1{}", r#"{"arrayValue":{"values":["#.repeat(10_000), "]}}".repeat(10_000));
    let body =
        format!(r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"k","value":{value}}}]}}}}]}}"#);
    assert_eq!(to_protobuf(Signal::Metrics, body.as_bytes()).unwrap_err().status(), 400);
}

#[test]
fn content_types_name_the_encoding() {
    assert_eq!(Encoding::of("application/json; charset=utf-8"), Some(Encoding::Json));
    assert_eq!(Encoding::of("Application/X-Protobuf"), Some(Encoding::Protobuf));
    assert_eq!(Encoding::of("text/plain"), None);
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in r#"[\[\]{}:,"a-z0-9.\-]{0,80}"#) {
        for signal in [Signal::Metrics, Signal::Traces, Signal::Logs] {
            let _any = to_protobuf(signal, text.as_bytes());
        }
    }

    #[test]
    fn a_damaged_request_never_panics(place in any::<prop::sample::Index>(), byte in 32_u8..127) {
        let point = json!({"timeUnixNano": "5", "asDouble": "NaN", "exemplars": [{"traceId": "00ff"}],
            "attributes": [{"key": "k", "value": {"arrayValue": {"values": [{"intValue": "3"}]}}}]});
        let mut body = metric_json(json!({"name": "g", "gauge": {"dataPoints": [point]}})).to_string().into_bytes();
        let at = place.index(body.len());
        body[at] = byte;
        if let Ok(made) = to_protobuf(Signal::Metrics, &body) {
            prop_assert!(ExportMetricsServiceRequest::decode(&*made).is_ok());
        }
    }

    #[test]
    fn numbers_come_through(value: f64, count: u64) {
        prop_assume!(value.is_finite());
        let made = metrics(&metric_json(json!({"name": "h", "histogram": {"dataPoints": [
            {"count": count.to_string(), "sum": value},
        ]}})));
        let want = HistogramDataPoint { count, sum: Some(value), ..HistogramDataPoint::default() };
        let metric = &made.resource_metrics[0].scope_metrics[0].metrics[0];
        let Some(Data::Histogram(histogram)) = &metric.data else {
            panic!("{metric:?}")
        };
        prop_assert_eq!(&histogram.data_points[0], &want);
    }
}
