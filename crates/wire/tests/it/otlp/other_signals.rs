//! Spans and log records.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};
use prost::Message;
use wire::otlp::answer::{Encoding, Signal, response, status};
use wire::otlp::{OtlpError, PARTS_MAX, each_resource, traces};

use super::{NOW, at, pair, resource, text};

fn span(name: &str, id: u8, attributes: Vec<KeyValue>) -> Span {
    Span {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        name: name.into(),
        start_time_unix_nano: at(0),
        end_time_unix_nano: at(2),
        attributes,
        ..Span::default()
    }
}

fn body(spans: Vec<Span>) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let of_resource = ResourceSpans { resource: Some(resource()), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![of_resource] }.encode_to_vec()
}

#[test]
fn a_span_is_read_with_its_parts() {
    let mut sent = span("megatron.checkpoint.save", 2, vec![pair("megatron.iteration", text("5"))]);
    sent.parent_span_id = vec![3; 8];
    sent.status = Some(Status { code: 2, message: "disk full".into() });
    sent.events = vec![span::Event { time_unix_nano: at(1), name: "exception".into(), ..Default::default() }];
    sent.links = vec![span::Link { trace_id: vec![9; 16], span_id: vec![8; 8], ..Default::default() }];
    sent.attributes.push(pair("is_goodput_span", any_value::Value::BoolValue(true)));
    let mut seen = 0;
    let outcome = traces::read(&body(vec![sent]), false, &mut |span| {
        assert_eq!((span.name, span.parent, span.status), ("megatron.checkpoint.save", Some([3; 8]), 2));
        assert_eq!((span.start_ns, span.end_ns), (at(0) as i64, at(2) as i64));
        assert_eq!((span.status_text, span.iteration()), ("disk full", Some(5)));
        assert_eq!((span.events[0].name, span.links[0].ids), ("exception", ([9; 16], [8; 8])));
        assert!(span.is_goodput() && !span.is_reversed());
        let key = span.key();
        assert_eq!((&*key.run, &*key.instance, key.ids), ("run-a", "run-a-rank7", ([1; 16], [2; 8])));
        seen += 1;
        Ok(())
    });
    assert_eq!((outcome.unwrap().accepted, seen), (1, 1));
}

#[test]
fn spans_without_usable_ids_are_refused_one_by_one() {
    let mut short = span("short", 2, vec![]);
    short.span_id = vec![1; 4];
    let mut zeros = span("zeros", 2, vec![]);
    zeros.trace_id = vec![0; 16];
    let mut reversed = span("reversed", 3, vec![]);
    reversed.end_time_unix_nano = at(0) - 1;
    let mut kept = Vec::new();
    let outcome = traces::read(&body(vec![short, zeros, reversed]), false, &mut |span| {
        kept.push((span.name.to_owned(), span.is_reversed()));
        Ok(())
    })
    .unwrap();
    assert_eq!(kept, [("reversed".to_owned(), true)], "a clock that was set back costs no span");
    assert_eq!(outcome.reasons(), [("span_id", 1), ("trace_id", 1)]);
    let answer = ExportTraceServiceResponse::decode(&*response(Signal::Traces, &outcome, Encoding::Protobuf));
    let want = ExportTracePartialSuccess { rejected_spans: 2, error_message: outcome.message() };
    assert_eq!(answer.unwrap().partial_success, Some(want));
}

const SECRET: &str = "the secret sauce";

/// Texts where clients put them: attributes, maps, events and links.
fn texts() -> Vec<KeyValue> {
    let message = opentelemetry_proto::tonic::common::v1::KeyValueList {
        // A quote within a value must not hide the key that follows it.
        values: vec![pair("role", text("us\"er")), pair("content", text(SECRET))],
    };
    let map = AnyValue { value: Some(any_value::Value::KvlistValue(message)) };
    let list = opentelemetry_proto::tonic::common::v1::ArrayValue { values: vec![map] };
    vec![
        pair("prompt", text(SECRET)),
        pair("gen_ai.prompt.0.content", text(SECRET)),
        pair("gen_ai.output.messages", any_value::Value::ArrayValue(list.clone())),
        pair("turns", any_value::Value::ArrayValue(list)),
    ]
}

fn with_texts() -> Span {
    let mut sent = span("gen_ai.chat", 2, texts());
    sent.attributes.push(pair("gen_ai.usage.input_tokens", any_value::Value::IntValue(12)));
    sent.events = vec![span::Event { attributes: texts(), ..Default::default() }];
    sent.links = vec![span::Link {
        trace_id: vec![9; 16],
        span_id: vec![8; 8],
        attributes: texts(),
        ..Default::default()
    }];
    sent
}

/// A span as a store might write it.
fn spelled(span: &traces::Span<'_, '_>) -> String {
    let events = span.events.iter().map(|e| &e.attributes);
    let links = span.links.iter().map(|l| &l.attributes);
    let all = events.chain(links).chain([&span.attributes]).flat_map(|a| &a.list);
    let all: Vec<String> = all.map(|(key, value)| format!("{key}={};", value.text().unwrap())).collect();
    all.concat()
}

#[test]
fn texts_of_prompts_stay_only_where_they_are_asked_for() {
    for keep in [false, true] {
        traces::read(&body(vec![with_texts()]), keep, &mut |span| {
            let spelled = spelled(span);
            assert_eq!(spelled.contains(SECRET), keep, "{spelled}");
            assert!(spelled.contains("gen_ai.usage.input_tokens=12;"), "{spelled}");
            assert_eq!(span.texts_dropped, if keep { 0 } else { 12 });
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn parts_beyond_the_bounds_are_counted() {
    let mut sent = span("wide", 2, (0..200).map(|n| pair(&format!("k{n}"), text("v"))).collect());
    sent.events = vec![span::Event::default(); 300];
    sent.dropped_events_count = 5;
    traces::read(&body(vec![sent]), false, &mut |span| {
        assert_eq!((span.attributes.list.len(), span.attributes.left_out), (128, 72));
        assert_eq!((span.events.len(), span.parts_left_out), (traces::PARTS_MAX, 172 + 5));
        Ok(())
    })
    .unwrap();
}

#[test]
fn log_records_have_a_time_and_a_bounded_text() {
    let said = |value: any_value::Value| Some(AnyValue { value: Some(value) });
    let long = "é".repeat(40_000);
    let records = vec![
        LogRecord {
            time_unix_nano: at(1),
            severity_number: 9,
            severity_text: "INFO".into(),
            body: said(text("iteration 1 done")),
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            ..Default::default()
        },
        LogRecord { observed_time_unix_nano: at(2), body: said(text(&long)), ..Default::default() },
        LogRecord { body: said(any_value::Value::IntValue(3)), severity_number: 99, ..Default::default() },
        LogRecord {
            time_unix_nano: at(4),
            event_name: "gen_ai.user.message".into(),
            body: said(text(SECRET)),
            ..Default::default()
        },
    ];
    let scope_logs = vec![ScopeLogs { log_records: records, ..Default::default() }];
    let sent = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource: Some(resource()), scope_logs, ..Default::default() }],
    };
    let mut got = Vec::new();
    let outcome = wire::otlp::logs::read(&sent.encode_to_vec(), NOW, false, &mut |record| {
        got.push((record.time_ns, record.severity, record.body.len(), record.trace, record.span));
        Ok(())
    });
    assert_eq!(outcome.unwrap().accepted, 4);
    assert_eq!(got[0], (at(1) as i64, 9, 16, Some([1; 16]), Some([2; 8])));
    assert_eq!(got[1], (at(2) as i64, 0, wire::otlp::logs::RECORD_BYTES_MAX, None, None));
    assert_eq!(got[2], (NOW, 0, 1, None, None));
    assert_eq!(got[3].2, 0, "the text of a chat");
}

#[test]
fn a_status_says_why_and_when_to_come_again() {
    let json = String::from_utf8(status(14, "busy", Some(3), Encoding::Json)).unwrap();
    assert!(json.contains(r#""retryDelay":"3s""#) && json.contains(r#""code":14"#), "{json}");
    let bytes = status(14, "busy", Some(3), Encoding::Protobuf);
    let known = b"\x08\x0e\x12\x04busy\x1a";
    assert!(bytes.starts_with(known) && bytes.ends_with(b"\x12\x04\x0a\x02\x08\x03"), "{bytes:?}");
    assert_eq!(status(3, "no", None, Encoding::Protobuf), b"\x08\x03\x12\x02no");
}

#[test]
fn spans_are_handed_on_as_they_came_but_without_texts() {
    let list = any_value::Value::ArrayValue(ArrayValue {
        values: vec![AnyValue { value: Some(text("[{\"content\": \"hidden\"}]")) }],
    });
    let texts = || vec![pair("gen_ai.prompt", text("hidden")), pair("gen_ai.input.messages", list.clone())];
    let with = |attributes: Vec<KeyValue>, more: Vec<KeyValue>| [attributes, more].concat();
    let make = |texts: &dyn Fn() -> Vec<KeyValue>| {
        let mut sent = span("step", 2, with(vec![pair("megatron.iteration", text("5"))], texts()));
        sent.trace_state = "a=b".into();
        sent.flags = 0x101;
        sent.status = Some(Status { code: 2, message: "disk full".into() });
        let attributes = with(vec![pair("exception.type", text("OSError"))], texts());
        sent.events = vec![span::Event {
            time_unix_nano: at(1),
            name: "exception".into(),
            attributes,
            ..Default::default()
        }];
        let attributes = with(vec![pair("k", text("v"))], texts());
        let (trace_id, span_id) = (vec![9; 16], vec![8; 8]);
        sent.links = vec![span::Link { trace_id, span_id, attributes, flags: 1, ..Default::default() }];
        let mut resource = resource();
        resource.attributes.extend(texts());
        let mut of_scope =
            ScopeSpans { spans: vec![sent], schema_url: "https://s".into(), ..Default::default() };
        let attributes = with(vec![pair("k", text("v"))], texts());
        of_scope.scope = Some(InstrumentationScope { name: "lens".into(), attributes, ..Default::default() });
        let of_resource =
            ResourceSpans { resource: Some(resource), scope_spans: vec![of_scope], ..Default::default() };
        ExportTraceServiceRequest { resource_spans: vec![of_resource] }
    };
    let (sent, wanted) = (make(&texts), make(&Vec::new));
    let mut out = Vec::new();
    let handed_on = wire::otlp::hand_on(&sent.encode_to_vec(), &mut |_| true, &mut out).unwrap();
    assert_eq!(handed_on, 1);
    assert_eq!(ExportTraceServiceRequest::decode(&*out).unwrap(), wanted);

    // What a later version, or an earlier one, says in fields of its own may be anything.
    let mut unknown = wanted.encode_to_vec();
    unknown.extend_from_slice(&[0xc2, 0x3e, 6]);
    unknown.extend_from_slice(b"hidden");
    let mut out = Vec::new();
    wire::otlp::hand_on(&unknown, &mut |_| true, &mut out).unwrap();
    assert_eq!(ExportTraceServiceRequest::decode(&*out).unwrap(), wanted);
    assert!(!out.windows(6).any(|bytes| bytes == b"hidden"));
}

#[test]
fn only_spans_that_are_taken_are_handed_on_and_requests_add_up() {
    let mut short = span("short", 2, vec![]);
    short.span_id = vec![1; 4];
    let first = body(vec![span("a", 1, vec![]), short, span("b", 2, vec![])]);
    let mut out = Vec::new();
    let mut admits = |span: &traces::Span<'_, '_>| span.name != "b";
    assert_eq!(wire::otlp::hand_on(&first, &mut admits, &mut out), Ok(1));
    assert_eq!(wire::otlp::hand_on(&body(vec![span("c", 3, vec![])]), &mut admits, &mut out), Ok(1));
    let together = ExportTraceServiceRequest::decode(&*out).unwrap();
    let names: Vec<&str> = together
        .resource_spans
        .iter()
        .flat_map(|r| &r.scope_spans)
        .flat_map(|s| &s.spans)
        .map(|s| s.name.as_str())
        .collect();
    assert_eq!(names, ["a", "c"]);
    assert!(wire::otlp::hand_on(&first[..first.len() - 1], &mut admits, &mut Vec::new()).is_err());
}

#[test]
fn a_request_has_a_bounded_number_of_parts() {
    let parts = |count: usize| [0x0a, 0].repeat(count);
    let check = |count: usize, is_taken: bool| {
        let body = parts(count);
        let all = [
            traces::read(&body, false, &mut |_| Ok(())),
            wire::otlp::logs::read(&body, NOW, false, &mut |_| Ok(())),
            wire::otlp::metrics::read(&body, NOW, &mut |_| Ok(())),
        ];
        for read in all {
            assert_eq!(
                read.as_ref().map_err(OtlpError::status).err(),
                (!is_taken).then_some(413),
                "{read:?}"
            );
        }
        assert_eq!(each_resource(&body, &mut |_| {}).is_ok(), is_taken);
    };
    check(PARTS_MAX, true);
    check(PARTS_MAX + 1, false);
}
