//! Where telemetry comes in, and whether spans get through to where they are handed on to.

use serde_json::Value;

use super::{Check, fail, ok, warn};

/// What a running server says of it.
pub(super) fn running(status: &Value) -> Vec<Check> {
    let mut checks: Vec<Check> = doors(&status["doors"]).into_iter().collect();
    checks.extend(forward(&status["forward"]));
    checks
}

fn doors(doors: &Value) -> Option<Check> {
    let doors = doors.as_object()?;
    let (mut open, mut closed) = (vec!["HTTP where the UI is".to_owned()], Vec::new());
    for (name, what, flag) in
        [("otlp_grpc", "gRPC", "--otlp-grpc-listen"), ("otlp_http", "HTTP", "--otlp-http-listen")]
    {
        match doors.get(name).and_then(Value::as_str) {
            Some(address) => open.push(format!("{what} on {address}")),
            None => closed.push((what, flag)),
        }
    }
    let taken = format!("OpenTelemetry's clients reach it: {}", open.join(", "));
    let Some((what, flag)) = closed.first() else { return Some(ok("otlp", taken)) };
    let evidence = format!("{taken}; {what} is not served, its port was not free when the server started");
    Some(warn("otlp", evidence, format!("choose another with `{flag}`, or stop what has the port")))
}

fn forward(forward: &Value) -> Option<Check> {
    let url = forward["url"].as_str()?;
    let number = |name: &str| forward[name].as_u64().unwrap_or_default();
    let lost = number("rejected") + number("refused") + number("dropped");
    let evidence = format!("{} spans handed on to {url}, {lost} not", number("sent"));
    Some(match forward["failed"].as_str() {
        Some(words) => fail(
            "otlp.forward",
            format!("{evidence}; the last try failed: {words}"),
            "spans are kept here meanwhile; what waits longer than there is room for is not handed on",
        ),
        None if lost > 0 => warn(
            "otlp.forward",
            evidence,
            "the server's log and `truegauge_otlp_forward_spans_total` say why",
        ),
        None => ok("otlp.forward", evidence),
    })
}
