//! The console exporter: one JSON object a line.

use model::{AttributeValue, LogRecord, Span, SpanEvent, SpanLink};
use serde_json::{Map, Value, json};
use wire::otlp::write::{Pairs, SentMetric, SentPoint, SentValue};

use super::context::hex;

/// A line for each point.
pub(crate) fn metrics(resource: &Pairs, metrics: &[SentMetric<'_>]) -> Vec<u8> {
    let points = metrics.iter().flat_map(|metric| metric.points.iter().map(move |point| (metric, point)));
    lines(points.map(|(metric, point)| point_line(resource, metric, point)))
}

/// A line for each span.
pub(crate) fn spans(resource: &Pairs, spans: &[Span]) -> Vec<u8> {
    lines(spans.iter().map(|span| span_line(resource, span)))
}

/// A line for each record.
pub(crate) fn records(resource: &Pairs, records: &[LogRecord]) -> Vec<u8> {
    lines(records.iter().map(|record| {
        json!({
            "signal": "log",
            "time_ns": record.time_ns,
            "severity": record.severity,
            "severity_text": record.severity_text,
            "scope": record.scope,
            "body": record.body,
            "attributes": object(&record.attributes),
            "trace_id": record.trace.map(|trace| hex(&trace)),
            "span_id": record.span.map(|span| hex(&span)),
            "resource": object(resource),
        })
    }))
}

fn lines(values: impl Iterator<Item = Value>) -> Vec<u8> {
    let mut out = String::new();
    for value in values {
        out += &value.to_string();
        out.push('\n');
    }
    out.into_bytes()
}

fn point_line(resource: &Pairs, metric: &SentMetric<'_>, point: &SentPoint<'_>) -> Value {
    let mut line = json!({
        "signal": "metric",
        "name": metric.name,
        "unit": metric.unit,
        "scope": metric.scope,
        "time_ns": point.time_ns,
        "attributes": object(point.attributes),
        "resource": object(resource),
    });
    match &point.value {
        SentValue::Gauge(value) => {
            line["kind"] = json!("gauge");
            line["value"] = number(*value);
        }
        SentValue::Sum { value, is_monotonic, is_int, .. } => {
            line["kind"] = json!(if *is_monotonic { "counter" } else { "up_down_counter" });
            line["start_ns"] = json!(point.start_ns);
            line["value"] = if *is_int { json!(*value as i64) } else { number(*value) };
        }
        SentValue::Histogram { sum, range, bounds, counts, .. } => {
            line["kind"] = json!("histogram");
            line["start_ns"] = json!(point.start_ns);
            line["count"] = json!(counts.iter().sum::<u64>());
            line["sum"] = number(*sum);
            line["min"] = range.map_or(Value::Null, |(least, _)| number(least));
            line["max"] = range.map_or(Value::Null, |(_, largest)| number(largest));
            line["bounds"] = json!(bounds);
            line["counts"] = json!(counts);
        }
    }
    line
}

fn span_line(resource: &Pairs, span: &Span) -> Value {
    let event = |event: &SpanEvent| json!({"name": event.name, "time_ns": event.time_ns, "attributes": object(&event.attributes)});
    let link = |link: &SpanLink| json!({"trace_id": hex(&link.trace), "span_id": hex(&link.id), "attributes": object(&link.attributes)});
    let status = ["unset", "ok", "error"].get(usize::from(span.status));
    json!({
        "signal": "span",
        "name": span.name,
        "scope": span.scope,
        "trace_id": hex(&span.trace),
        "span_id": hex(&span.id),
        "parent_id": span.parent.map(|parent| hex(&parent)),
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": status,
        "status_text": span.status_text,
        "attributes": object(&span.attributes),
        "events": span.events.iter().map(event).collect::<Vec<_>>(),
        "links": span.links.iter().map(link).collect::<Vec<_>>(),
        "resource": object(resource),
    })
}

fn object(pairs: &Pairs) -> Value {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Null => Value::Null,
        AttributeValue::Bool(bool) => json!(bool),
        AttributeValue::Int(int) => json!(int),
        AttributeValue::Float(float) => number(*float),
        AttributeValue::Text(text) => json!(text),
    };
    Value::Object(pairs.iter().map(|(key, v)| (key.clone(), value(v))).collect::<Map<_, _>>())
}

/// A number; JSON has no others than finite ones, so those are text, as OTLP's own JSON has them.
fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("NaN")
    } else {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_json_one_an_event() {
        let resource = [("dl.rank".to_owned(), AttributeValue::Int(3))];
        let point = |value| SentPoint { attributes: &[], start_ns: 1, time_ns: 2, value, exemplars: &[] };
        let metric = SentMetric {
            scope: "s",
            name: "loss",
            unit: "",
            description: "",
            points: vec![point(SentValue::Gauge(f64::NAN)), point(SentValue::Gauge(0.5))],
        };
        let text = String::from_utf8(metrics(&resource, &[metric])).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["value"], &lines[1]["value"]), (&json!("NaN"), &json!(0.5)));
        assert_eq!(lines[0]["resource"]["dl.rank"], 3);
        let span = Span { name: "step\nx".into(), status: 2, ..Span::default() };
        let text = String::from_utf8(spans(&[], &[span])).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["status"], "error");
    }
}
