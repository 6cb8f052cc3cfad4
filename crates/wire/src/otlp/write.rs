//! Writes requests: what a client sends. The counterpart of the readers beside it.

use model::{AttributeValue, LogRecord, Span, SpanEvent, SpanId, SpanLink, TraceId};

use super::put::{
    put_bytes, put_double, put_fixed, put_fixed_always, put_packed, put_text, put_varint, put_varint_always,
};

/// Attributes as a client has them.
pub type Pairs = [(String, AttributeValue)];

/// The value of a point, with what its metric says of all its points.
#[derive(Debug, Clone, PartialEq)]
pub enum SentValue<'a> {
    /// The last value.
    Gauge(f64),
    /// A sum.
    Sum {
        /// What it comes to.
        value: f64,
        /// Whether it goes as a whole number.
        is_int: bool,
        /// Whether it only grows.
        is_monotonic: bool,
        /// Whether it counts from the point before instead of the start.
        is_delta: bool,
    },
    /// Counts by size.
    Histogram {
        /// Sum of all values.
        sum: f64,
        /// The least and the largest of them; none without any.
        range: Option<(f64, f64)>,
        /// Upper bounds of the buckets but the last.
        bounds: &'a [f64],
        /// Values in each bucket, one more than bounds.
        counts: &'a [u64],
        /// Whether it counts from the point before instead of the start.
        is_delta: bool,
    },
}

/// A measurement that is kept beside a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SentExemplar {
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What was measured.
    pub value: f64,
    /// The span that it was measured in.
    pub span: Option<(TraceId, SpanId)>,
}

/// A point.
#[derive(Debug, Clone, PartialEq)]
pub struct SentPoint<'a> {
    /// What tells it from others of its metric.
    pub attributes: &'a Pairs,
    /// Since when it counts; 0 for gauges.
    pub start_ns: i64,
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// Its value.
    pub value: SentValue<'a>,
    /// Measurements kept beside it.
    pub exemplars: &'a [SentExemplar],
}

/// A metric; its points are of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct SentMetric<'a> {
    /// Name of the instrumentation.
    pub scope: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// What it measures.
    pub description: &'a str,
    /// Its points.
    pub points: Vec<SentPoint<'a>>,
}

/// `ExportMetricsServiceRequest`.
pub fn metrics(resource: &Pairs, metrics: &[SentMetric<'_>]) -> Vec<u8> {
    by_scope(resource, metrics, |metric| metric.scope, metric_message)
}

/// `ExportTraceServiceRequest`. What a span's receiver finds out, as its run and rank, is not written.
pub fn spans(resource: &Pairs, spans: &[Span]) -> Vec<u8> {
    by_scope(resource, spans, |span| &span.scope, span_message)
}

/// `ExportLogsServiceRequest`.
pub fn records(resource: &Pairs, records: &[LogRecord]) -> Vec<u8> {
    by_scope(resource, records, |record| &record.scope, record_message)
}

/// All signals nest alike: in field 1 the resource, in field 2 of it scopes, in field 2 of those the
/// elements. Elements of a scope stay in their order.
fn by_scope<T>(
    resource: &Pairs,
    elements: &[T],
    scope: fn(&T) -> &str,
    message: fn(&T) -> Vec<u8>,
) -> Vec<u8> {
    let mut scopes: Vec<&str> = Vec::new();
    for element in elements {
        if !scopes.contains(&scope(element)) {
            scopes.push(scope(element));
        }
    }
    let (mut head, mut of_resource) = (Vec::new(), Vec::new());
    put_attributes(&mut head, 1, resource);
    put_bytes(&mut of_resource, 1, &head);
    for name in scopes {
        let (mut head, mut of_scope) = (Vec::new(), Vec::new());
        put_text(&mut head, 1, name);
        put_bytes(&mut of_scope, 1, &head);
        for element in elements.iter().filter(|element| scope(element) == name) {
            put_bytes(&mut of_scope, 2, &message(element));
        }
        put_bytes(&mut of_resource, 2, &of_scope);
    }
    let mut out = Vec::with_capacity(of_resource.len() + 8);
    put_bytes(&mut out, 1, &of_resource);
    out
}

fn put_attributes(out: &mut Vec<u8>, number: u32, attributes: &Pairs) {
    for (key, value) in attributes {
        let (mut pair, mut any) = (Vec::with_capacity(key.len() + 16), Vec::new());
        put_text(&mut pair, 1, key);
        match value {
            AttributeValue::Null => {}
            AttributeValue::Text(text) => put_bytes(&mut any, 1, text.as_bytes()),
            AttributeValue::Bool(bool) => put_varint_always(&mut any, 2, u64::from(*bool)),
            AttributeValue::Int(int) => put_varint_always(&mut any, 3, int.cast_unsigned()),
            AttributeValue::Float(float) => put_double(&mut any, 4, *float),
        }
        put_bytes(&mut pair, 2, &any);
        put_bytes(out, number, &pair);
    }
}

/// What a metric's data are: the number of their field, temporality and whether they only grow.
fn family(value: &SentValue<'_>) -> (u32, u64, bool) {
    const DELTA: u64 = 1;
    const CUMULATIVE: u64 = 2;
    let temporality = |is_delta: bool| if is_delta { DELTA } else { CUMULATIVE };
    match value {
        SentValue::Gauge(_) => (5, 0, false),
        SentValue::Sum { is_delta, is_monotonic, .. } => (7, temporality(*is_delta), *is_monotonic),
        SentValue::Histogram { is_delta, .. } => (9, temporality(*is_delta), false),
    }
}

fn metric_message(metric: &SentMetric<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    put_text(&mut out, 1, metric.name);
    put_text(&mut out, 2, metric.description);
    put_text(&mut out, 3, metric.unit);
    let Some(first) = metric.points.first() else { return out };
    let (number, temporality, is_monotonic) = family(&first.value);
    let mut data = Vec::with_capacity(128);
    for point in &metric.points {
        put_bytes(&mut data, 1, &point_message(point));
    }
    put_varint(&mut data, 2, temporality);
    put_varint(&mut data, 3, u64::from(is_monotonic));
    put_bytes(&mut out, number, &data);
    out
}

fn point_message(point: &SentPoint<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_fixed(&mut out, 2, point.start_ns.cast_unsigned());
    put_fixed(&mut out, 3, point.time_ns.cast_unsigned());
    match &point.value {
        SentValue::Gauge(value) => {
            put_double(&mut out, 4, *value);
            put_exemplars(&mut out, 5, point.exemplars, false);
            put_attributes(&mut out, 7, point.attributes);
        }
        SentValue::Sum { value, is_int, .. } => {
            put_number(&mut out, 4, 6, (*value, *is_int));
            put_exemplars(&mut out, 5, point.exemplars, *is_int);
            put_attributes(&mut out, 7, point.attributes);
        }
        SentValue::Histogram { sum, range, bounds, counts, .. } => {
            put_fixed_always(&mut out, 4, counts.iter().sum());
            put_double(&mut out, 5, *sum);
            put_packed(&mut out, 6, counts.iter().copied());
            put_packed(&mut out, 7, bounds.iter().map(|bound| bound.to_bits()));
            put_exemplars(&mut out, 8, point.exemplars, false);
            put_attributes(&mut out, 9, point.attributes);
            if let Some((least, largest)) = range {
                put_double(&mut out, 11, *least);
                put_double(&mut out, 12, *largest);
            }
        }
    }
    out
}

/// A number: in the field of floats, or in that of whole numbers.
fn put_number(out: &mut Vec<u8>, float: u32, int: u32, (value, is_int): (f64, bool)) {
    if is_int {
        put_fixed_always(out, int, (value as i64).cast_unsigned());
    } else {
        put_double(out, float, value);
    }
}

fn put_exemplars(out: &mut Vec<u8>, number: u32, exemplars: &[SentExemplar], is_int: bool) {
    for exemplar in exemplars {
        let mut message = Vec::with_capacity(48);
        put_fixed(&mut message, 2, exemplar.time_ns.cast_unsigned());
        put_number(&mut message, 3, 6, (exemplar.value, is_int));
        if let Some((trace, id)) = exemplar.span {
            put_bytes(&mut message, 4, &id);
            put_bytes(&mut message, 5, &trace);
        }
        put_bytes(out, number, &message);
    }
}

fn span_message(span: &Span) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    put_bytes(&mut out, 1, &span.trace);
    put_bytes(&mut out, 2, &span.id);
    if let Some(parent) = &span.parent {
        put_bytes(&mut out, 4, parent);
    }
    put_text(&mut out, 5, &span.name);
    put_varint(&mut out, 6, u64::from(span.kind));
    put_fixed(&mut out, 7, span.start_ns.cast_unsigned());
    put_fixed(&mut out, 8, span.end_ns.cast_unsigned());
    put_attributes(&mut out, 9, &span.attributes);
    for SpanEvent { time_ns, name, attributes } in &span.events {
        let mut event = Vec::new();
        put_fixed(&mut event, 1, time_ns.cast_unsigned());
        put_text(&mut event, 2, name);
        put_attributes(&mut event, 3, attributes);
        put_bytes(&mut out, 11, &event);
    }
    put_varint(&mut out, 12, span.parts_left_out);
    for SpanLink { trace, id, attributes } in &span.links {
        let mut link = Vec::new();
        put_bytes(&mut link, 1, trace);
        put_bytes(&mut link, 2, id);
        put_attributes(&mut link, 4, attributes);
        put_bytes(&mut out, 13, &link);
    }
    if span.status != 0 {
        let mut status = Vec::new();
        put_text(&mut status, 2, &span.status_text);
        put_varint(&mut status, 3, u64::from(span.status));
        put_bytes(&mut out, 15, &status);
    }
    out
}

fn record_message(record: &LogRecord) -> Vec<u8> {
    let (mut out, mut body) = (Vec::with_capacity(128), Vec::new());
    put_fixed(&mut out, 1, record.time_ns.cast_unsigned());
    put_varint(&mut out, 2, u64::from(record.severity));
    put_text(&mut out, 3, &record.severity_text);
    put_bytes(&mut body, 1, record.body.as_bytes());
    put_bytes(&mut out, 5, &body);
    put_attributes(&mut out, 6, &record.attributes);
    if let Some(trace) = &record.trace {
        put_bytes(&mut out, 9, trace);
    }
    if let Some(span) = &record.span {
        put_bytes(&mut out, 10, span);
    }
    put_fixed(&mut out, 11, record.time_ns.cast_unsigned());
    put_text(&mut out, 12, &record.event);
    out
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
    use opentelemetry_proto::tonic::metrics::v1::{exemplar, metric, number_data_point};
    use prost::Message;

    use super::*;

    fn attributes() -> Vec<(String, AttributeValue)> {
        vec![
            ("t".into(), AttributeValue::Text(String::new())),
            ("b".into(), AttributeValue::Bool(false)),
            ("i".into(), AttributeValue::Int(-3)),
            ("f".into(), AttributeValue::Float(0.0)),
            ("n".into(), AttributeValue::Null),
        ]
    }

    fn values(of: &[KeyValue]) -> Vec<(&str, Option<any_value::Value>)> {
        of.iter().map(|kv| (kv.key.as_str(), kv.value.as_ref().and_then(|any| any.value.clone()))).collect()
    }

    fn want() -> Vec<(&'static str, Option<any_value::Value>)> {
        use any_value::Value::{BoolValue, DoubleValue, IntValue, StringValue};
        vec![
            ("t", Some(StringValue(String::new()))),
            ("b", Some(BoolValue(false))),
            ("i", Some(IntValue(-3))),
            ("f", Some(DoubleValue(0.0))),
            ("n", None),
        ]
    }

    fn point<'a>(
        value: SentValue<'a>,
        attributes: &'a Pairs,
        exemplars: &'a [SentExemplar],
    ) -> SentPoint<'a> {
        SentPoint { attributes, start_ns: 5, time_ns: 9, value, exemplars }
    }

    fn metric_of<'a>(scope: &'a str, name: &'a str, point: SentPoint<'a>) -> SentMetric<'a> {
        SentMetric { scope, name, unit: "ms", description: "What.", points: vec![point] }
    }

    #[test]
    fn metrics_are_what_their_project_reads() {
        let attributes = attributes();
        let exemplars = [SentExemplar { time_ns: 7, value: 2.0, span: Some(([1; 16], [2; 8])) }];
        let sum = SentValue::Sum { value: 2.0, is_int: true, is_monotonic: true, is_delta: false };
        let histogram = SentValue::Histogram {
            sum: 12.0,
            range: Some((2.0, 10.0)),
            bounds: &[5.0],
            counts: &[1, 1],
            is_delta: true,
        };
        let sent = [
            metric_of("a", "g", point(SentValue::Gauge(f64::NAN), &attributes, &[])),
            metric_of("b", "s", point(sum, &[], &exemplars)),
            metric_of("a", "h", point(histogram, &[], &exemplars)),
        ];
        let bytes = metrics(&attributes, &sent);
        let got = ExportMetricsServiceRequest::decode(bytes.as_slice()).unwrap();
        let resource = &got.resource_metrics[0];
        assert_eq!(values(&resource.resource.as_ref().unwrap().attributes), want());
        let scopes: Vec<(&str, Vec<&str>)> = resource
            .scope_metrics
            .iter()
            .map(|s| {
                let names = s.metrics.iter().map(|m| m.name.as_str()).collect();
                (s.scope.as_ref().unwrap().name.as_str(), names)
            })
            .collect();
        assert_eq!(scopes, [("a", vec!["g", "h"]), ("b", vec!["s"])]);
        let gauge = &resource.scope_metrics[0].metrics[0];
        assert_eq!((gauge.unit.as_str(), gauge.description.as_str()), ("ms", "What."));
        let Some(metric::Data::Gauge(gauge)) = &gauge.data else { panic!("no gauge") };
        let Some(number_data_point::Value::AsDouble(value)) = gauge.data_points[0].value else {
            panic!("no float")
        };
        assert!(value.is_nan());
        assert_eq!(values(&gauge.data_points[0].attributes), want());
        let Some(metric::Data::Histogram(histogram)) = &resource.scope_metrics[0].metrics[1].data else {
            panic!("no histogram")
        };
        let got = &histogram.data_points[0];
        assert_eq!((histogram.aggregation_temporality, got.count, got.sum), (1, 2, Some(12.0)));
        assert_eq!((got.bucket_counts.as_slice(), got.explicit_bounds.as_slice()), (&[1, 1][..], &[5.0][..]));
        assert_eq!((got.min, got.max), (Some(2.0), Some(10.0)));
        assert_eq!(got.exemplars[0].value, Some(exemplar::Value::AsDouble(2.0)));
        let Some(metric::Data::Sum(sum)) = &resource.scope_metrics[1].metrics[0].data else {
            panic!("no sum")
        };
        let got = &sum.data_points[0];
        assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (2, true));
        assert_eq!((got.start_time_unix_nano, got.time_unix_nano), (5, 9));
        assert_eq!(got.value, Some(number_data_point::Value::AsInt(2)));
        let exemplar = &got.exemplars[0];
        assert_eq!(exemplar.value, Some(exemplar::Value::AsInt(2)));
        assert_eq!((exemplar.trace_id.len(), exemplar.span_id.as_slice()), (16, &[2; 8][..]));
    }

    #[test]
    fn spans_are_what_their_project_reads() {
        let span = Span {
            trace: [1; 16],
            id: [2; 8],
            parent: Some([3; 8]),
            name: "step".into(),
            scope: "s".into(),
            kind: 1,
            start_ns: 10,
            end_ns: 20,
            status: 2,
            status_text: "why".into(),
            attributes: attributes(),
            events: vec![SpanEvent { time_ns: 15, name: "e".into(), attributes: attributes() }],
            links: vec![SpanLink { trace: [4; 16], id: [5; 8], attributes: attributes() }],
            parts_left_out: 6,
            ..Span::default()
        };
        let bytes = spans(&[], std::slice::from_ref(&span));
        let got = ExportTraceServiceRequest::decode(bytes.as_slice()).unwrap();
        let got = &got.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((got.name.as_str(), got.kind, got.dropped_events_count), ("step", 1, 6));
        assert_eq!((got.start_time_unix_nano, got.end_time_unix_nano), (10, 20));
        assert_eq!((got.trace_id.as_slice(), got.parent_span_id.as_slice()), (&[1; 16][..], &[3; 8][..]));
        let status = got.status.as_ref().unwrap();
        assert_eq!((status.code, status.message.as_str()), (2, "why"));
        assert_eq!((got.events[0].time_unix_nano, got.events[0].name.as_str()), (15, "e"));
        assert_eq!(got.links[0].span_id, [5; 8]);
        for attributes in [&got.attributes, &got.events[0].attributes, &got.links[0].attributes] {
            assert_eq!(values(attributes), want());
        }
    }

    #[test]
    fn records_are_what_their_project_reads() {
        let record = LogRecord {
            time_ns: 9,
            severity: 17,
            severity_text: "ERROR".into(),
            event: "e".into(),
            body: "said".into(),
            attributes: attributes(),
            trace: Some([1; 16]),
            span: Some([2; 8]),
            ..LogRecord::default()
        };
        let got = ExportLogsServiceRequest::decode(records(&[], &[record]).as_slice()).unwrap();
        let got = &got.resource_logs[0].scope_logs[0].log_records[0];
        assert_eq!((got.time_unix_nano, got.observed_time_unix_nano, got.severity_number), (9, 9, 17));
        assert_eq!((got.severity_text.as_str(), got.event_name.as_str()), ("ERROR", "e"));
        let body = got.body.as_ref().and_then(|any| any.value.clone());
        assert_eq!(body, Some(any_value::Value::StringValue("said".into())));
        assert_eq!((got.trace_id.as_slice(), got.span_id.as_slice()), (&[1; 16][..], &[2; 8][..]));
        assert_eq!(values(&got.attributes), want());
    }
}
