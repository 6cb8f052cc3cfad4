//! OTLP as real clients send it: bodies are made of the messages of `opentelemetry-proto`.

mod captured;
mod cumulate;
mod json;
mod labels;
mod metrics;
mod other_signals;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use wire::otlp::{Outcome, Point, Refusal};

/// 2026-01-01, seconds since the epoch.
const T0: u64 = 1_767_225_600;
const SECOND: u64 = 1_000_000_000;
const NOW: i64 = ((T0 + 3_600) * SECOND) as i64;
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// So many seconds after [`T0`].
fn at(seconds: u64) -> u64 {
    (T0 + seconds) * SECOND
}

fn text(value: &str) -> any_value::Value {
    any_value::Value::StringValue(value.into())
}

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn resource() -> Resource {
    Resource {
        attributes: vec![
            pair("service.name", text("megatron-lm")),
            pair("service.instance.id", text("run-a-rank7")),
            pair("nemo.run.id", text("run-a")),
            pair("dl.rank", any_value::Value::IntValue(7)),
            pair("process.pid", any_value::Value::IntValue(25_405)),
        ],
        ..Resource::default()
    }
}

/// A request with these metrics of one scope.
fn request(metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope { name: "nemo.lens".into(), ..InstrumentationScope::default() };
    let of_scope = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource()),
            scope_metrics: vec![of_scope],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(name: &str, unit: &str, data: metric::Data) -> Metric {
    Metric { name: name.into(), unit: unit.into(), data: Some(data), ..Metric::default() }
}

fn number(start: u64, time: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: start,
        time_unix_nano: time,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn gauge(name: &str, points: Vec<NumberDataPoint>) -> Metric {
    metric(name, "", metric::Data::Gauge(Gauge { data_points: points }))
}

fn sum(name: &str, temporality: i32, points: Vec<NumberDataPoint>) -> Metric {
    let data = Sum { data_points: points, aggregation_temporality: temporality, is_monotonic: true };
    metric(name, "", metric::Data::Sum(data))
}

fn histogram(name: &str, temporality: i32, points: Vec<HistogramDataPoint>) -> Metric {
    let data = Histogram { data_points: points, aggregation_temporality: temporality };
    metric(name, "ms", metric::Data::Histogram(data))
}

fn read_each(body: &[u8], mut each: impl FnMut(&Point<'_, '_>)) -> Outcome {
    wire::otlp::metrics::read(body, NOW, &mut |point| {
        each(point);
        Ok::<(), Refusal>(())
    })
    .unwrap()
}

/// What `each` makes of every point of a request.
fn map<T>(request: &ExportMetricsServiceRequest, mut each: impl FnMut(&Point<'_, '_>) -> T) -> Vec<T> {
    let mut out = Vec::new();
    read_each(&request.encode_to_vec(), |point| out.push(each(point)));
    out
}
