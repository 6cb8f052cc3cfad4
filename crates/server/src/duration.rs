//! Durations as Prometheus writes them: `90s`, `1h30m`, `500ms`.

use std::time::Duration;

/// Units from the longest to the shortest, milliseconds each. They come in this order, each once.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads one; `None` when it is not one, or longer than 292 years.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut millis, mut next) = (text, 0_u64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let amount: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = rest.split_at(letters);
        let at = (next..UNITS.len()).find(|at| UNITS[*at].0 == unit)?;
        millis = millis.checked_add(amount.checked_mul(UNITS[at].1)?)?;
        (rest, next) = (after, at + 1);
    }
    (!text.is_empty() && millis <= i64::MAX as u64 / 1_000_000).then(|| Duration::from_millis(millis))
}

/// Writes one, to the millisecond.
pub(crate) fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, millis) in UNITS.iter().skip(2) {
        if rest >= *millis {
            text.extend([&(rest / millis).to_string(), *unit]);
            rest %= millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_in_order_and_once() {
        assert_eq!(parse("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(parse("1s500ms"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse("0"), Some(Duration::ZERO));
        assert_eq!(parse("1w2d"), Some(Duration::from_hours(9 * 24)));
        for text in ["1d2h", "15s", "1m30s", "1s500ms", "5ms", "0s"] {
            assert_eq!(parse(text).map(format).as_deref(), Some(text));
        }
        for wrong in
            ["", "5", "m", "1m1m", "30m1h", "1.5h", "-1m", "1 m", "400y", "99999999999999999999s", "1µs"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
