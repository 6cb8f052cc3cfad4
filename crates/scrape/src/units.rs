//! Durations and sizes as Prometheus writes them.

use std::time::Duration;

const DURATIONS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads `1h30m`, `15s`, `250ms` or `0`: units from large to small, each at most once.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total_ms, mut units) = (text, 0u64, &DURATIONS[..]);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let at = units.iter().position(|(name, _)| *name == &rest[..unit])?;
        total_ms = total_ms.checked_add(number.checked_mul(units[at].1)?)?;
        units = &units[at + 1..];
        rest = &rest[unit..];
    }
    Some(Duration::from_millis(total_ms))
}

/// Writes a duration as [`duration`] reads it.
pub(crate) fn format(duration: Duration) -> String {
    let mut rest = duration.as_millis() as u64;
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, unit_ms) in &DURATIONS[2..] {
        let count = rest / unit_ms;
        rest %= unit_ms;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(name);
        }
    }
    text
}

/// Reads `512`, `10MB`, `1GiB`: powers of 1,024 in either spelling, as Prometheus reads them.
pub(crate) fn size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = text[..digits].parse().ok()?;
    let unit: usize = match &text[digits..] {
        "" | "B" => 1,
        "KB" | "KiB" => 1 << 10,
        "MB" | "MiB" => 1 << 20,
        "GB" | "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_prometheus() {
        let check = |text: &str, want: Option<u64>| {
            assert_eq!(duration(text).map(|d| d.as_millis() as u64), want, "{text}");
        };
        check("15s", Some(15_000));
        check("1h30m", Some(5_400_000));
        check("1d2ms", Some(86_400_002));
        check("0", Some(0));
        check("1m1m", None);
        check("1s1m", None);
        check("15", None);
        check("", None);
        check("1.5s", None);
        check("-1s", None);
        check("99999999999999999999s", None);
        check("9999999999999y", None);
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["15s", "1h30m", "1d2ms", "0s", "365d"] {
            assert_eq!(format(duration(text).unwrap()), text);
        }
        assert_eq!(format(duration("90s").unwrap()), "1m30s");
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let check = |text: &str, want: Option<usize>| assert_eq!(size(text), want, "{text}");
        check("0", Some(0));
        check("10MB", Some(10 << 20));
        check("1KiB", Some(1024));
        check("1.5MB", None);
        check("MB", None);
        check("99999999999GB", None);
    }
}
