//! The parameters of a question: from the address and from a form, in Prometheus' notations.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use promql::Matcher;

use super::Failure;
use crate::access::Caller;
use crate::app::App;
use crate::clock::days_since_epoch;
use crate::duration;
use crate::query::{Wishes, parse_selector};

/// Said where a list was cut.
pub(super) const CUT: &str = "results truncated due to limit";

/// Parameters of one question, those of a form first, and who asks.
#[derive(Debug)]
pub(super) struct Asked {
    parameters: Vec<(String, String)>,
    caller: Caller,
}

impl FromRequest<App> for Asked {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, app).await?;
        let request = Request::from_parts(parts, body);
        let query = request.uri().query().unwrap_or_default().to_owned();
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let is_form = kind.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded");
        let mut pairs = Vec::new();
        if is_form {
            let body = Bytes::from_request(request, app).await;
            let body = body.map_err(|error| Failure::bad(format!("error parsing form values: {error}")))?;
            pairs.extend(read_form(&body));
        }
        pairs.extend(read_form(query.as_bytes()));
        Ok(Self { parameters: pairs, caller })
    }
}

fn read_form(bytes: &[u8]) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(bytes).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

impl Asked {
    /// Who asks.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Every name and value, those of a form first.
    pub(super) fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// The first value of a name, empty when there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.parameters.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// Every value of a name.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.parameters.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    /// A time that must be given, milliseconds since the epoch.
    pub(super) fn time(&self, name: &str) -> Result<i64, Failure> {
        let text = self.get(name);
        time(text).ok_or_else(|| {
            Failure::parameter(name, format_args!("cannot parse {text:?} to a valid timestamp"))
        })
    }

    /// A time, if it is given.
    pub(super) fn time_if_given(&self, name: &str) -> Result<Option<i64>, Failure> {
        if self.get(name).is_empty() { Ok(None) } else { self.time(name).map(Some) }
    }

    /// `start` and `end`, else all of time, nanoseconds.
    pub(super) fn span_ns(&self) -> Result<(i64, i64), Failure> {
        let nanos = |ms: i64| ms.saturating_mul(model::NANOS_PER_MILLI);
        let start = self.time_if_given("start")?.map_or(i64::MIN, nanos);
        let end = self.time_if_given("end")?.map_or(i64::MAX, nanos);
        if end < start {
            return Err(Failure::parameter("end", "end timestamp must not be before start time"));
        }
        Ok((start, end))
    }

    /// A duration that must be given, and be longer than none.
    pub(super) fn duration(&self, name: &str) -> Result<Duration, Failure> {
        let text = self.get(name);
        let found = span(text).ok_or_else(|| {
            Failure::parameter(name, format_args!("cannot parse {text:?} to a valid duration"))
        })?;
        if found.is_zero() {
            return Err(Failure::parameter(
                name,
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            ));
        }
        Ok(found)
    }

    /// Most entries of the answer; 0 and nothing are no bound.
    pub(super) fn limit(&self, name: &str) -> Result<usize, Failure> {
        let text = self.get(name);
        if text.is_empty() {
            return Ok(usize::MAX);
        }
        let limit: i64 = text.parse().map_err(|_source: std::num::ParseIntError| {
            Failure::parameter(name, format_args!("strconv.Atoi: parsing {text:?}: invalid syntax"))
        })?;
        match usize::try_from(limit) {
            Ok(0) => Ok(usize::MAX),
            Ok(limit) => Ok(limit),
            Err(_negative) => Err(Failure::parameter(name, format_args!("{name} must be non-negative"))),
        }
    }

    /// `timeout`, `lookback_delta` and `rollups`.
    pub(super) fn wishes(&self) -> Result<Wishes, Failure> {
        let if_given =
            |name| if self.get(name).is_empty() { Ok(None) } else { self.duration(name).map(Some) };
        let rollups = match self.get("rollups") {
            "" | "auto" => None,
            "never" => Some(false),
            other => {
                let problem = format_args!("found {other:?}, wanted \"auto\" or \"never\"");
                return Err(Failure::parameter("rollups", problem));
            }
        };
        Ok(Wishes { time_max: if_given("timeout")?, lookback: if_given("lookback_delta")?, rollups })
    }

    /// What `match[]` selects of what the caller sees: one list of matchers for each selector. At least
    /// one when `needed`.
    pub(super) fn selectors(&self, needed: bool) -> Result<Vec<Vec<Matcher>>, Failure> {
        let given = self.parameters.iter().filter(|(name, _)| name == "match[]");
        let given: Vec<&str> = given.map(|(_, value)| value.as_str()).collect();
        if needed && given.is_empty() {
            return Err(Failure::bad("no match[] parameter provided"));
        }
        let mut selectors = Vec::new();
        for text in given {
            let found = parse_selector(text).map_err(|error| Failure::parameter("match[]", error))?;
            selectors.extend(found);
        }
        Ok(self.caller.confine(selectors))
    }
}

/// Seconds with a fraction, or RFC 3339, as milliseconds.
pub(crate) fn time(text: &str) -> Option<i64> {
    match text {
        "-292273086-05-16T16:47:06Z" => return Some(i64::MIN / 1_000_000),
        "292277025-08-18T07:12:54.999999999Z" => return Some(i64::MAX / 1_000_000),
        _ => {}
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds.abs() < 1e15).then(|| (seconds * 1e3).round() as i64);
    }
    let stamp: toml::value::Datetime = text.parse().ok()?;
    let (date, time, offset) = (stamp.date?, stamp.time?, stamp.offset?);
    let offset_minutes = match offset {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = days_since_epoch(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let minutes = (days * 24 + i64::from(time.hour)) * 60 + i64::from(time.minute) - offset_minutes;
    let millis = i64::from(time.nanosecond / 1_000_000);
    Some((minutes * 60 + i64::from(time.second)) * 1_000 + millis)
}

/// Seconds with a fraction, or Prometheus' notation, to the millisecond; less than none is none.
fn span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        let is_usable = seconds.is_finite() && seconds < 9.2e9;
        return is_usable.then(|| Duration::from_millis((seconds * 1e3).round().max(0.0) as u64));
    }
    duration::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_rfc_3339() {
        for (text, ms) in [
            ("1700000000", 1_700_000_000_000),
            ("1700000000.1234", 1_700_000_000_123),
            ("1.7e9", 1_700_000_000_000),
            ("-1", -1_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T22:13:20.5Z", 1_700_000_000_500),
            ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("1969-12-31T23:59:59Z", -1_000),
        ] {
            assert_eq!(time(text), Some(ms), "{text}");
        }
        for wrong in ["", "now", "NaN", "inf", "2023-11-14", "22:13:20Z", "2023-11-14T22:13:20", "1e300"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_are_seconds_or_prometheus_durations() {
        assert_eq!(span("15"), Some(Duration::from_secs(15)));
        assert_eq!(span("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(span("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!([span("0"), span("-1"), span("0s")], [Some(Duration::ZERO); 3]);
        assert_eq!([span("x"), span(""), span("1e99")], [None; 3]);
    }
}
