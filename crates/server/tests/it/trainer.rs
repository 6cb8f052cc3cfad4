//! Ranks of a trainer that export as Megatron-LM's do, over HTTP in JSON.

use serde_json::{Value, json};
use server::Running;

use crate::otlp_peer::JSON;

/// A second, nanoseconds.
pub(crate) const S: i64 = 1_000_000_000;

/// Now, nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos() as i64
}

/// One process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) run: &'static str,
    pub(crate) rank: u32,
    pub(crate) host: String,
    /// Further attributes of the resource; those of the same key win.
    pub(crate) more: Vec<(&'static str, Value)>,
}

/// A span that is to be sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) name: &'static str,
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
    pub(crate) attributes: Value,
    pub(crate) links: Vec<u64>,
}

pub(crate) fn span(name: &'static str, (id, parent): (u64, u64), (from_ns, to_ns): (i64, i64)) -> Sent {
    Sent { name, id, parent, from_ns, to_ns, attributes: json!({}), links: Vec::new() }
}

/// A value as OTLP's JSON has it.
fn value(of: &Value) -> Value {
    match of {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Bool(is) => json!({ "boolValue": is }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        other => json!({ "intValue": other.to_string() }),
    }
}

fn attributes(of: &Value) -> Value {
    let pairs = of.as_object().unwrap().iter();
    pairs.map(|(key, of)| json!({ "key": key, "value": value(of) })).collect()
}

/// The id of a trace, the same on all ranks as where they seed their generators alike.
pub(crate) const TRACE: &str = "0102030405060708090a0b0c0d0e0f10";

impl Process {
    pub(crate) fn new(run: &'static str, rank: u32) -> Self {
        Self { run, rank, host: format!("host-{}", rank / 2), more: Vec::new() }
    }

    pub(crate) fn with(mut self, key: &'static str, of: Value) -> Self {
        self.more.push((key, of));
        self
    }

    fn resource(&self) -> Value {
        let mut all = json!({
            "service.name": "megatron-lm",
            "service.instance.id": format!("{}-rank{}", self.run, self.rank),
            "nemo.run.id": self.run,
            "dl.rank": self.rank,
            "dl.world_size": "4",
            "host.name": self.host,
            "process.pid": 1_000 + self.rank,
        });
        for (key, of) in &self.more {
            all[*key] = of.clone();
        }
        json!({ "attributes": attributes(&all) })
    }

    /// Sends spans; what the server answers.
    pub(crate) fn spans(&self, running: &Running, spans: &[Sent]) -> Value {
        self.spans_with(running, spans, &[])
    }

    /// The same with further headers.
    pub(crate) fn spans_with(&self, running: &Running, spans: &[Sent], headers: &[(&str, &str)]) -> Value {
        let id = |id: u64| format!("{id:016x}");
        let spans: Vec<Value> = spans
            .iter()
            .map(|span| {
                json!({
                    "traceId": TRACE, "spanId": id(span.id),
                    "parentSpanId": if span.parent == 0 { String::new() } else { id(span.parent) },
                    "name": span.name, "kind": 1,
                    "startTimeUnixNano": span.from_ns.to_string(),
                    "endTimeUnixNano": span.to_ns.to_string(),
                    "attributes": attributes(&span.attributes),
                    "links": span.links.iter().map(|to| json!({"traceId": TRACE, "spanId": id(*to)})).collect::<Value>(),
                })
            })
            .collect();
        let scoped = json!([{ "scope": { "name": "nemo.lens" }, "spans": spans }]);
        send(
            running,
            ("traces", headers),
            &json!({ "resourceSpans": [{ "resource": self.resource(), "scopeSpans": scoped }] }),
        )
    }

    /// Sends a value of each of these gauges at a time.
    pub(crate) fn gauges(&self, running: &Running, time_ns: i64, gauges: &[(&str, f64)]) -> Value {
        let spelled = |value: f64| {
            if value.is_nan() {
                json!("NaN")
            } else if value.is_infinite() {
                json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
            } else {
                json!(value)
            }
        };
        let metrics: Vec<Value> = gauges
            .iter()
            .map(|(name, value)| {
                let point = json!({ "timeUnixNano": time_ns.to_string(), "asDouble": spelled(*value) });
                json!({ "name": format!("megatron.training.{name}"), "gauge": { "dataPoints": [point] } })
            })
            .collect();
        let scoped = json!([{ "scope": { "name": "nemo.lens" }, "metrics": metrics }]);
        send(
            running,
            ("metrics", &[]),
            &json!({ "resourceMetrics": [{ "resource": self.resource(), "scopeMetrics": scoped }] }),
        )
    }

    /// The spans of an iteration of 4 s that starts at `at_ns`: 2 s forward and backward with half a
    /// second of exchange in it, and half a second of the optimizer.
    pub(crate) fn iteration(number: i64, at_ns: i64) -> Vec<Sent> {
        let id = number as u64 * 10;
        let at = |tenths: i64| at_ns + tenths * S / 10;
        let mut whole = span("megatron.train.iteration", (id, 0), (at(0), at(40)));
        whole.attributes = json!({ "megatron.iteration": number });
        vec![
            whole,
            span("megatron.train.iteration.forward_backward", (id + 1, id), (at(5), at(25))),
            span("megatron.grad_sync.finish", (id + 2, id + 1), (at(10), at(15))),
            span("megatron.train.iteration.optimizer", (id + 3, id), (at(30), at(35))),
        ]
    }
}

fn send(running: &Running, (signal, headers): (&str, &[(&str, &str)]), body: &Value) -> Value {
    let headers = [&[("content-type", JSON)], headers].concat();
    let body = body.to_string();
    let answer =
        crate::otlp_peer::send(running.addr, "POST", &format!("/v1/{signal}"), &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice(&answer.body).unwrap()
}
