//! Numbers and times as Go prints them, since answers must match Prometheus' to the byte.

/// Nanoseconds per second.
const NANOS: i64 = 1_000_000_000;

/// `time_ns` in seconds; a time on the millisecond grid gives the same float as in Prometheus.
pub(crate) fn seconds(time_ns: i64) -> f64 {
    if time_ns % 1_000_000 == 0 {
        (time_ns / 1_000_000) as f64 / 1000.0
    } else {
        time_ns as f64 / NANOS as f64
    }
}

/// `time_ns` in milliseconds, rounded down.
pub(crate) fn millis(time_ns: i64) -> i64 {
    time_ns.div_euclid(1_000_000)
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("+Inf")
    } else if value == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// Digits and exponent of the shortest decimal: `0.d1d2d3... * 10^exponent`.
fn shortest(value: f64) -> (String, i32) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value.abs());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mut exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{fraction}");
    exponent += whole.len() as i32;
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    digits.drain(..zeros);
    exponent -= zeros as i32;
    digits.truncate(digits.trim_end_matches('0').len());
    if digits.is_empty() { ("0".to_owned(), 1) } else { (digits, exponent) }
}

fn sign(value: f64, out: &mut String) {
    if value.is_sign_negative() {
        out.push('-');
    }
}

/// Digits with the decimal point where `exponent` says.
fn plain(out: &mut String, digits: &str, exponent: i32) {
    if exponent <= 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', -exponent as usize));
        out.push_str(digits);
    } else if digits.len() as i32 <= exponent {
        out.push_str(digits);
        out.extend(std::iter::repeat_n('0', exponent as usize - digits.len()));
    } else {
        let (whole, fraction) = digits.split_at(exponent as usize);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    }
}

fn scientific(out: &mut String, digits: &str, exponent: i32) {
    let (first, rest) = digits.split_at(1);
    out.push_str(first);
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    let power = exponent - 1;
    out.push('e');
    out.push(if power < 0 { '-' } else { '+' });
    if power.abs() < 10 {
        out.push('0');
    }
    out.push_str(&power.abs().to_string());
}

/// The whole number that `value` is, if it is one and small; a negative zero keeps its sign elsewhere.
fn whole(value: f64) -> Option<i64> {
    const BELOW: f64 = (1_u64 << 53) as f64;
    let number = value as i64;
    let same = number as f64 == value && value.abs() < BELOW;
    (same && value.to_bits() != (-0.0_f64).to_bits()).then_some(number)
}

/// Appends `value` without exponent, shortest digits (`%f` with precision -1).
pub(crate) fn push_plain(out: &mut String, value: f64) {
    if let Some(text) = special(value) {
        out.push_str(text);
        return;
    }
    if let Some(whole) = whole(value) {
        out.push_str(itoa::Buffer::new().format(whole));
        return;
    }
    // Most values are short: skip the detour over digits.
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    if !text.contains(['e', 'E']) {
        out.push_str(text.strip_suffix(".0").unwrap_or(text));
        return;
    }
    let (digits, exponent) = shortest(value);
    sign(value, out);
    plain(out, &digits, exponent);
}

/// `value` without exponent.
pub(crate) fn plain_text(value: f64) -> String {
    let mut out = String::new();
    push_plain(&mut out, value);
    out
}

/// Appends a sample's value as Prometheus' JSON does: exponents below 1e-6 and from 1e21.
pub(crate) fn push_json(out: &mut String, value: f64) {
    if let Some(whole) = whole(value) {
        out.push_str(itoa::Buffer::new().format(whole));
        return;
    }
    let size = value.abs();
    if value.is_finite() && size != 0.0 && !(1e-6..1e21).contains(&size) {
        let (digits, exponent) = shortest(value);
        sign(value, out);
        scientific(out, &digits, exponent);
    } else {
        push_plain(out, value);
    }
}

/// `%g`: shortest digits, exponent below 1e-4 and from 1e6.
pub(crate) fn general(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let mut out = String::new();
    let (digits, exponent) = shortest(value);
    sign(value, &mut out);
    if value != 0.0 && !(-3..=6).contains(&exponent) {
        scientific(&mut out, &digits, exponent);
    } else {
        plain(&mut out, &digits, exponent);
    }
    out
}

/// `%.{precision}g`: that many significant digits, trailing zeros left out.
pub(crate) fn general_digits(value: f64, precision: usize) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let precision = precision.max(1);
    let text = format!("{:.*e}", precision - 1, value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.truncate(digits.trim_end_matches('0').len().max(1));
    let mut out = String::new();
    sign(value, &mut out);
    if value != 0.0 && (exponent < -4 || exponent >= precision as i32) {
        scientific(&mut out, &digits, exponent + 1);
    } else if value == 0.0 {
        out.push('0');
    } else {
        plain(&mut out, &digits, exponent + 1);
    }
    out
}

/// Year, month (1-12) and day of the proleptic Gregorian calendar, days since 1970-01-01.
pub(crate) fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = i128::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_shifted + 2) / 5 + 1) as u32;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 } as u32;
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year as i64, month, day)
}

/// Whether `year` has a 29th of February.
pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// `2026-11-30T02:30:00Z`.
pub(crate) fn rfc3339(time_ns: i64) -> String {
    let seconds = time_ns.div_euclid(NANOS);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_go_prints_them() {
        let json = |value| {
            let mut out = String::new();
            push_json(&mut out, value);
            out
        };
        for (value, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1.25e-7, "1.25e-07"),
            (1e-10, "1e-10"),
            (123_456_789.125, "123456789.125"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(json(value), text);
        }
        assert_eq!(general(1e21), "1e+21");
        assert_eq!(general(1e6), "1e+06");
        assert_eq!(general(123_456.5), "123456.5");
        assert_eq!(general(0.0001), "0.0001");
        assert_eq!(general(0.00001), "1e-05");
        assert_eq!(general(2.5), "2.5");
        assert_eq!(general_digits(1234.5, 4), "1234");
        assert_eq!(general_digits(1_234_567.0, 4), "1.235e+06");
        assert_eq!(general_digits(0.5, 2), "0.5");
        assert_eq!(plain_text(1e-7), "0.0000001");
        assert_eq!(plain_text(1.5e22), "15000000000000000000000");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400 * NANOS), "2000-02-29T00:00:00Z");
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
