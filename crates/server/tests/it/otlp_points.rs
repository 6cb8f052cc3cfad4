//! Data points as a client sends them, and what the server answers about them.

use std::net::SocketAddr;
use std::path::Path;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use serde_json::Value;
use server::Running;

use crate::metrana::config;
use crate::otlp_peer::{Answer, PROTOBUF, T0_NS, pair, post, resource};

/// Aggregation temporalities.
pub(crate) const DELTA: i32 = 1;
pub(crate) const CUMULATIVE: i32 = 2;
/// The flag of a point that has no value any more.
pub(crate) const NO_RECORDED_VALUE: u32 = 1;

/// Seconds behind [`T0_NS`] as OTLP has times.
pub(crate) fn at(seconds: f64) -> u64 {
    T0_NS + (seconds * 1e9) as u64
}

pub(crate) fn number(start_ns: u64, time_ns: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: start_ns,
        time_unix_nano: time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

pub(crate) fn metric(name: &str, unit: &str, data: metric::Data) -> Metric {
    Metric { name: name.into(), unit: unit.into(), data: Some(data), ..Metric::default() }
}

pub(crate) fn gauge(name: &str, unit: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, unit, metric::Data::Gauge(Gauge { data_points }))
}

pub(crate) fn counter(name: &str, temporality: i32, data_points: Vec<NumberDataPoint>) -> Metric {
    let sum = Sum { data_points, aggregation_temporality: temporality, is_monotonic: true };
    metric(name, "", metric::Data::Sum(sum))
}

/// A histogram with one point.
pub(crate) fn histogram(name: &str, temporality: i32, point: HistogramDataPoint) -> Metric {
    let histogram = Histogram { data_points: vec![point], aggregation_temporality: temporality };
    metric(name, "ms", metric::Data::Histogram(histogram))
}

pub(crate) fn observed(
    start_ns: u64,
    time_ns: u64,
    bounds: &[f64],
    counts: &[u64],
    sum: f64,
) -> HistogramDataPoint {
    HistogramDataPoint {
        start_time_unix_nano: start_ns,
        time_unix_nano: time_ns,
        count: counts.iter().sum(),
        sum: Some(sum),
        explicit_bounds: bounds.to_vec(),
        bucket_counts: counts.to_vec(),
        ..HistogramDataPoint::default()
    }
}

/// The process of a run with a rank, as the trainer's library describes it.
pub(crate) fn rank(run: &str, rank: u32) -> Resource {
    let attributes: Vec<KeyValue> = vec![
        pair("service.name", "megatron-lm"),
        pair("service.instance.id", &format!("{run}-rank{rank}")),
        pair("nemo.run.id", run),
        pair("dl.rank", &rank.to_string()),
        pair("dl.world_size", "8"),
    ];
    Resource { attributes, ..Resource::default() }
}

/// A request of one process.
pub(crate) fn request(resource: Resource, metrics: Vec<Metric>) -> Vec<u8> {
    let scope = InstrumentationScope { name: "nemo.lens".into(), ..InstrumentationScope::default() };
    let of_scope = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
    let of_resource = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![of_scope],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![of_resource] }.encode_to_vec()
}

/// A server whose directory outlives it.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    running: Option<Running>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let mut place = Self { folder: tempfile::tempdir().unwrap(), running: None };
        place.restart(|_| ());
        place
    }

    /// Stops the server and starts it again with other settings.
    pub(crate) fn restart(&mut self, change: impl FnOnce(&mut server::Config)) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
        let mut config = config(Path::new(self.folder.path()));
        change(&mut config);
        self.running = Some(server::start(config).unwrap());
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn door(&self) -> SocketAddr {
        self.running().otlp_http_addr.unwrap()
    }

    /// Sends a body; the answer.
    pub(crate) fn send(&self, body: &[u8]) -> Answer {
        post(self.door(), "/v1/metrics", PROTOBUF, body)
    }

    /// Sends metrics of rank 0 of the run `r`, all of which are taken.
    pub(crate) fn take(&self, metrics: Vec<Metric>) {
        self.take_of(resource("megatron-lm", "r"), metrics);
    }

    pub(crate) fn take_of(&self, resource: Resource, metrics: Vec<Metric>) {
        let answer = self.send(&request(resource, metrics));
        assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).as_ref()), (200, ""));
    }

    /// Sends metrics and says how many points were refused, and the words.
    pub(crate) fn refused(&self, metrics: Vec<Metric>) -> (i64, String) {
        self.refused_of(resource("megatron-lm", "r"), metrics)
    }

    pub(crate) fn refused_of(&self, resource: Resource, metrics: Vec<Metric>) -> (i64, String) {
        use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
        let answer = self.send(&request(resource, metrics));
        assert_eq!(answer.status, 200, "{answer:?}");
        let partial = ExportMetricsServiceResponse::decode(&*answer.body).unwrap().partial_success;
        partial.map_or((0, String::new()), |p| (p.rejected_data_points, p.error_message))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.running().url);
        let mut answer = ureq::get(&url).config().http_status_as_error(false).build().call().unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }

    /// A query at `seconds` behind [`T0_NS`]: labels and value of each row.
    pub(crate) fn query(&self, query: &str, seconds: f64) -> Vec<(Value, f64)> {
        let time = T0_NS as f64 / 1e9 + seconds;
        let answer = self.get(&format!("/api/v1/query?query={}&time={time}", escape(query)));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let row = |row: &Value| (row["metric"].clone(), parsed(&row["value"][1]));
        answer["data"]["result"].as_array().unwrap().iter().map(row).collect()
    }

    /// The one value of a query.
    pub(crate) fn value(&self, query: &str, seconds: f64) -> f64 {
        match &self.query(query, seconds)[..] {
            [(_, value)] => *value,
            other => panic!("{query}: {other:?}"),
        }
    }

    /// Every stored sample of the one series that a selector finds up to an hour behind [`T0_NS`]:
    /// seconds behind it and value.
    pub(crate) fn samples(&self, selector: &str) -> Vec<(f64, f64)> {
        let time = T0_NS / 1_000_000_000 + 3_600;
        let query = escape(&format!("{selector}[2h]"));
        let answer = self.get(&format!("/api/v1/query?query={query}&time={time}"));
        let result = answer["data"]["result"].as_array().unwrap();
        assert!(result.len() <= 1, "{selector}: {answer}");
        let sample = |pair: &Value| {
            (((pair[0].as_f64().unwrap() * 1e3).round() - T0_NS as f64 / 1e6) / 1e3, parsed(&pair[1]))
        };
        result.iter().flat_map(|row| row["values"].as_array().unwrap()).map(sample).collect()
    }

    /// The list in an answer of the API that is Prometheus'.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let answer = self.get(path);
        let texts = answer["data"].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
        texts.iter().map(|text| text.as_str().map_or_else(|| text.to_string(), str::to_owned)).collect()
    }
}

fn parsed(value: &Value) -> f64 {
    value.as_str().unwrap().replace("Inf", "inf").parse().unwrap()
}

pub(crate) fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
