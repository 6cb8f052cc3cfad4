//! Where each signal goes, by the variables that every OTLP client reads.

use std::time::Duration;

use super::reader::{Found, Reader, pairs};
use super::settings::{Compression, Protocol, SettingsError, Target};
use crate::transport::shown_url;
use crate::trust::Trust;

/// How a signal is called.
#[derive(Clone, Copy)]
pub(crate) struct Signal {
    /// Within the names of variables.
    variable: &'static str,
    /// At the end of an HTTP endpoint.
    path: &'static str,
}

pub(crate) const METRICS: Signal = Signal { variable: "METRICS", path: "/v1/metrics" };
pub(crate) const TRACES: Signal = Signal { variable: "TRACES", path: "/v1/traces" };
pub(crate) const LOGS: Signal = Signal { variable: "LOGS", path: "/v1/logs" };

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// A timeout from here on is meant in milliseconds: Python's clients read seconds, others milliseconds.
const MILLIS_FROM: f64 = 1_000.0;
/// Longest timeout, seconds.
const TIMEOUT_SECONDS_MAX: f64 = 3_600.0;

/// The variable of a signal, else that of all; whether it was the signal's own.
fn variable(signal: Signal, name: &str, reader: &Reader<'_>) -> Option<(Found, bool)> {
    let own = reader.variable(&format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.variable));
    own.map(|found| (found, true))
        .or_else(|| Some((reader.variable(&format!("OTEL_EXPORTER_OTLP_{name}"))?, false)))
}

/// Where a signal goes and how.
pub(crate) fn read(signal: Signal, reader: &mut Reader<'_>) -> Result<Target, SettingsError> {
    let of = |name: &str, reader: &Reader<'_>| variable(signal, name, reader).map(|(found, _)| found);
    let found = of("PROTOCOL", reader);
    let protocol = reader.read(found, Protocol::Grpc, |text| match text.to_ascii_lowercase().as_str() {
        "grpc" => Ok(Protocol::Grpc),
        // JSON is not sent: like the reference, the same over HTTP goes as protobuf.
        "http/protobuf" | "http/json" | "http" => Ok(Protocol::Http),
        _ => Err("`grpc` or `http/protobuf`"),
    })?;
    let found = of("COMPRESSION", reader);
    let compression =
        reader.read(found, Compression::None, |text| match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Compression::None),
            "gzip" => Ok(Compression::Gzip),
            _ => Err("`gzip` or `none`"),
        })?;
    let found = of("TIMEOUT", reader);
    let timeout = reader.read(found, DEFAULT_TIMEOUT, timeout)?;
    let endpoint = endpoint(signal, protocol, reader)?;
    let headers = headers(of("HEADERS", reader), reader)?;
    let file = |name: &str| of(name, reader).map(|found| found.text.into());
    let trust = Trust {
        ca_file: file("CERTIFICATE"),
        cert_file: file("CLIENT_CERTIFICATE"),
        key_file: file("CLIENT_KEY"),
    };
    Ok(Target { protocol, endpoint, headers, timeout, compression, trust })
}

fn timeout(text: &str) -> Result<Duration, &'static str> {
    const WANTED: &str = "a time above 0 in seconds, or from 1000 on in milliseconds";
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0).ok_or(WANTED)?;
    let seconds = if number < MILLIS_FROM { number } else { number / 1_000.0 };
    Duration::try_from_secs_f64(seconds.min(TIMEOUT_SECONDS_MAX)).map_err(|_too_large| WANTED)
}

fn endpoint(signal: Signal, protocol: Protocol, reader: &mut Reader<'_>) -> Result<String, SettingsError> {
    let (base, path) = match protocol {
        Protocol::Grpc => ("http://localhost:4317", ""),
        Protocol::Http => ("http://localhost:4318", signal.path),
    };
    let default = format!("{base}{path}");
    let Some((found, is_own)) = variable(signal, "ENDPOINT", reader) else { return Ok(default) };
    let text = &found.text;
    let url = if text.contains("://") { text.clone() } else { format!("http://{text}") };
    let is_usable = url.parse::<ureq::http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if !is_usable {
        reader.fault(format!(
            "{} is {:?}, which is no URL of an OTLP endpoint: `{base}` is used",
            found.name,
            shown_url(text)
        ))?;
        return Ok(default);
    }
    let path = if is_own { "" } else { path };
    let url = if path.is_empty() && is_own { url.as_str() } else { url.trim_end_matches('/') };
    Ok(format!("{url}{path}"))
}

/// Headers, those that can't travel left out; their values may be secret and are not shown.
fn headers(found: Option<Found>, reader: &mut Reader<'_>) -> Result<Vec<(String, String)>, SettingsError> {
    let Some(found) = found else { return Ok(Vec::new()) };
    let (mut headers, mut odd) = pairs(&found.text);
    let before = headers.len();
    headers.retain(|(name, value)| {
        ureq::http::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && ureq::http::HeaderValue::from_str(value).is_ok()
    });
    for (name, _) in &mut headers {
        name.make_ascii_lowercase();
    }
    odd += before - headers.len();
    if odd > 0 {
        reader.fault(format!(
            "{} has {odd} parts that are no headers as `key=value`: they are left out",
            found.name
        ))?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(signal: Signal, variables: &[(&str, &str)]) -> (Target, usize) {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let mut reader = Reader::new(&lookup, false);
        let target = read(signal, &mut reader).unwrap();
        (target, reader.warnings.len())
    }

    #[test]
    fn endpoints_get_the_path_of_their_signal() {
        let check = |signal, variables: &[(&str, &str)], want: &str| {
            let (target, warnings) = target(signal, variables);
            assert_eq!((target.endpoint.as_str(), warnings), (want, 0), "{variables:?}");
        };
        let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        check(METRICS, &[], "http://localhost:4317");
        check(METRICS, &[http], "http://localhost:4318/v1/metrics");
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1/otlp/");
        check(LOGS, &[http, base], "http://h:1/otlp/v1/logs");
        check(TRACES, &[base], "http://h:1/otlp");
        check(TRACES, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317")], "http://h:4317");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x/");
        check(TRACES, &[http, base, own], "https://t/x/");
        check(METRICS, &[http, base, own], "http://h:1/otlp/v1/metrics");
    }

    #[test]
    fn odd_values_are_warned_of_and_the_default_holds() {
        let check = |name: &str, value: &str| {
            let name = format!("OTEL_EXPORTER_OTLP_{name}");
            let (got, warnings) = target(METRICS, &[(&name, value)]);
            assert_eq!((got, warnings), (target(METRICS, &[]).0, 1), "{name}={value}");
        };
        check("ENDPOINT", "ftp://h");
        check("ENDPOINT", "http://");
        check("PROTOCOL", "carrier-pigeon");
        check("COMPRESSION", "brotli");
        check("TIMEOUT", "-1");
        check("TIMEOUT", "soon");
        check("HEADERS", "a b=c,x");
    }

    #[test]
    fn timeouts_are_seconds_when_small() {
        let timeout = |text| target(METRICS, &[("OTEL_EXPORTER_OTLP_TIMEOUT", text)]).0.timeout.as_millis();
        assert_eq!(["10", "0.5", "10000", "1000"].map(timeout), [10_000, 500, 10_000, 1_000]);
    }

    #[test]
    fn headers_of_a_signal_go_before_those_of_all() {
        let all = ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x,a=1");
        let of = |signal, variables: &[_]| target(signal, variables).0.headers;
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(of(METRICS, &[all]), [pair("authorization", "Bearer x"), pair("a", "1")]);
        let own = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "b=2");
        assert_eq!(of(METRICS, &[all, own]), [pair("b", "2")]);
    }
}
