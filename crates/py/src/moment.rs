//! Steps and times as a caller gives them.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::number::{Problem, kind};

/// Where on its scale a call's points are.
#[derive(Debug, Clone)]
pub(crate) enum Steps {
    /// Go on from the series' last one, or take the step of the context.
    Next,
    /// The first point's; those after it count on.
    First(i64),
    /// One each; what was not a whole number is `None`.
    Each(Vec<Option<i64>>),
}

/// Reads `step`.
pub(crate) fn steps(given: Option<&Bound<'_, PyAny>>) -> Result<Steps, Problem> {
    let Some(given) = given.filter(|step| !step.is_none()) else { return Ok(Steps::Next) };
    if let Some(step) = whole(given) {
        return Ok(Steps::First(step));
    }
    let py = given.py();
    let listed = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    let raised = |error| Problem::raised(py, error, "step");
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyFloat>() {
        return Err(not_a_step(given));
    }
    if let Ok(len) = given.len() {
        crate::number::bounded(len, "step")?;
    }
    let list = match given.getattr_opt("tolist").map_err(raised)? {
        Some(tolist) if !listed => tolist.call0().map_err(raised)?,
        _ => given.clone(),
    };
    if let Some(step) = whole(&list) {
        return Ok(Steps::First(step));
    }
    let Ok(len) = list.len() else { return Err(not_a_step(given)) };
    let mut each = Vec::with_capacity(len.min(1 << 20));
    for item in list.try_iter().map_err(raised)?.take(len) {
        each.push(whole(&item.map_err(raised)?));
    }
    Ok(Steps::Each(each))
}

fn not_a_step(given: &Bound<'_, PyAny>) -> Problem {
    let text = given
        .repr()
        .map_or_else(|_| kind(given), |text| format!("`{}`", crate::number::short(&text.to_string())));
    Problem::refused(
        "step",
        format!("found step {text}, wanted a whole number of 64 bits or a sequence of them"),
    )
}

/// A whole number of 64 bits, also when it comes as a float or an array scalar.
pub(crate) fn whole(value: &Bound<'_, PyAny>) -> Option<i64> {
    if let Ok(int) = value.cast::<PyInt>() {
        return int.extract().ok();
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return integral(float.value());
    }
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBool>() {
        return None;
    }
    value.extract::<i64>().ok().or_else(|| {
        let scalar = value.getattr_opt("ndim").ok().flatten()?.extract::<usize>().ok()? == 0;
        scalar.then(|| value.extract::<f64>().ok().and_then(integral)).flatten()
    })
}

fn integral(value: f64) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT_MAX).then_some(value as i64)
}

/// Reads `timestamp` as nanoseconds since the epoch: an int is milliseconds, a float is seconds, a
/// `datetime` is itself (a naive one is local time, as everywhere in Python).
pub(crate) fn time_ns(given: Option<&Bound<'_, PyAny>>) -> Result<Option<i64>, Problem> {
    let Some(given) = given.filter(|time| !time.is_none()) else { return Ok(None) };
    let refuse = || {
        let found = given
            .repr()
            .map_or_else(|_| kind(given), |text| format!("`{}`", crate::number::short(&text.to_string())));
        Problem::refused(
            "timestamp",
            format!(
                "found timestamp {found}, wanted int milliseconds, float seconds or a `datetime`, 1678 to 2262"
            ),
        )
    };
    if given.is_instance_of::<PyBool>() || given.is_instance_of::<PyString>() {
        return Err(refuse());
    }
    if let Ok(float) = given.cast::<PyFloat>() {
        return seconds(float.value()).map(Some).ok_or_else(refuse);
    }
    if let Ok(millis) = given.extract::<i64>() {
        return millis.checked_mul(1_000_000).map(Some).ok_or_else(refuse);
    }
    let py = given.py();
    if let Some(method) = given.getattr_opt("timestamp").map_err(|e| Problem::raised(py, e, "timestamp"))? {
        let value = method.call0().map_err(|e| Problem::raised(py, e, "timestamp"))?;
        return value.extract().ok().and_then(seconds).map(Some).ok_or_else(refuse);
    }
    given.extract().ok().and_then(seconds).map(Some).ok_or_else(refuse)
}

/// Seconds to nanoseconds, to the microsecond: a float holds no more at today's dates.
fn seconds(value: f64) -> Option<i64> {
    let micros = (value * 1e6).round();
    (micros.abs() <= 9.2e15).then(|| micros as i64 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_floats_are_steps() {
        let check = |value: f64, want: Option<i64>| assert_eq!(integral(value), want, "{value}");
        check(3.0, Some(3));
        check(-2.0, Some(-2));
        check(0.5, None);
        check(f64::NAN, None);
        check(f64::INFINITY, None);
        check(1e300, None);
    }

    #[test]
    fn seconds_keep_their_microseconds() {
        assert_eq!(seconds(1_800_000_000.123_456), Some(1_800_000_000_123_456_000));
        assert_eq!(seconds(f64::NAN), None);
        assert_eq!(seconds(f64::INFINITY), None);
        assert_eq!(seconds(1e12), None);
    }
}
