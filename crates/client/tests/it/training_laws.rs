//! Laws of the sums: what arrives is what plain arithmetic makes of what was recorded.

use client::training::{InstrumentKind, InstrumentSpec, Training};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsDouble;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, metric};
use proptest::prelude::*;

use crate::receiver::{Receiver, gauge};
use crate::training::{NOW, sent, settings};

/// What is done: a value for one of the instruments, or an export.
#[derive(Debug, Clone)]
enum Act {
    Record(usize, f64),
    Export,
}

fn act() -> impl Strategy<Value = Act> {
    let value = prop_oneof![
        8 => (-2_000_i32..20_000).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(0.0),
    ];
    prop_oneof![6 => (0..4_usize, value).prop_map(|(of, value)| Act::Record(of, value)), 1 => Just(Act::Export)]
}

const BOUNDS: [f64; 4] = [-100.0, 0.0, 250.0, 5_000.0];

/// What plain arithmetic says.
#[derive(Debug, Default, PartialEq)]
struct Plain {
    last: Option<f64>,
    counter: f64,
    both: f64,
    counts: [u64; 5],
    sum: f64,
}

impl Plain {
    fn record(&mut self, of: usize, value: f64) {
        match of {
            0 => self.last = Some(value),
            1 if value.is_finite() && value > 0.0 => self.counter += value,
            2 if value.is_finite() => self.both += value,
            3 if value.is_finite() => {
                let bucket = BOUNDS.iter().filter(|bound| value > **bound).count();
                self.counts[bucket] += 1;
                self.sum += value;
            }
            _ => {}
        }
    }
}

fn float(metric: &Metric) -> f64 {
    let Some(metric::Data::Sum(sum)) = &metric.data else { return f64::NAN };
    if let Some(AsDouble(value)) = sum.data_points[0].value { value } else { f64::NAN }
}

fn histogram(metric: &Metric) -> Option<&HistogramDataPoint> {
    let Some(metric::Data::Histogram(histogram)) = &metric.data else { return None };
    histogram.data_points.first()
}

/// What arrived, with amounts added up where they came as such.
fn arrived(receiver: &Receiver, is_delta: bool) -> Plain {
    let fold =
        |values: Vec<f64>| if is_delta { values.iter().sum() } else { values.last().copied().unwrap_or(0.0) };
    let floats = |name: &str| receiver.metrics(name).iter().map(float).collect::<Vec<f64>>();
    let last = receiver.metrics("x.gauge").last().map(|metric| gauge(metric)[0].0);
    let both = floats("x.both").last().copied().unwrap_or(0.0);
    let histograms = receiver.metrics("x.histogram");
    let points: Vec<&HistogramDataPoint> = histograms.iter().filter_map(histogram).collect();
    let counts =
        std::array::from_fn(|at| fold(points.iter().map(|p| p.bucket_counts[at] as f64).collect()) as u64);
    let sum = fold(points.iter().map(|point| point.sum.unwrap_or(f64::NAN)).collect());
    Plain { last, counter: fold(floats("x.counter")), both, counts, sum }
}

fn holds(acts: &[Act], is_delta: bool) {
    let receiver = Receiver::start();
    let preference = if is_delta { "delta" } else { "cumulative" };
    let preference = ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference);
    let training = Training::setup(settings(&receiver.url(), &[preference]), None);
    let kinds = [
        ("x.gauge", InstrumentKind::Gauge),
        ("x.counter", InstrumentKind::Counter),
        ("x.both", InstrumentKind::UpDownCounter),
        ("x.histogram", InstrumentKind::Histogram),
    ];
    let instruments = kinds.map(|(name, kind)| {
        training.instrument(&InstrumentSpec { bounds: &BOUNDS, ..InstrumentSpec::new(name, kind) }).unwrap()
    });
    let mut plain = Plain::default();
    for act in acts {
        match act {
            Act::Export => sent(&training),
            Act::Record(of, value) => {
                plain.record(*of, *value);
                training.record(&[(instruments[*of], *value)], NOW);
            }
        }
    }
    sent(&training);
    let got = arrived(&receiver, is_delta);
    // Not a number is equal to nothing, so its place is compared by its bits.
    assert_eq!(got.last.map(f64::to_bits), plain.last.map(f64::to_bits));
    assert_eq!(Plain { last: None, ..got }, Plain { last: None, ..plain });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn totals_are_those_of_plain_arithmetic(acts in proptest::collection::vec(act(), 0..60), is_delta: bool) {
        holds(&acts, is_delta);
    }
}
