//! Series written as text: `up{job="api"} 0+10x5 _ stale`, as in promtool's unit tests.

use model::{Labels, stale_marker};

/// One entry of a written series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Entry {
    /// A sample.
    Value(f64),
    /// No sample.
    Missing,
    /// A native histogram, which is not supported.
    Histogram,
}

/// Text that is no series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a series: {reason}")]
pub struct NotationError {
    /// What could not be read.
    pub text: String,
    /// Why, with what was wanted.
    pub reason: String,
}

/// Most entries of one written series.
const ENTRIES_MAX: usize = 10_000_000;

fn fail(text: &str, reason: impl Into<String>) -> NotationError {
    let mut text: String = text.chars().take(120).collect();
    text.truncate(text.trim_end().len());
    NotationError { text, reason: reason.into() }
}

/// Splits `metric{...} values` into labels and the rest.
pub fn parse_labels(text: &str) -> Result<(Labels, &str), NotationError> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_:.".contains(c))).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut labels = Labels::builder();
    labels.metric(name);
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = label_name(rest).ok_or_else(|| fail(text, "a label name is missing"))?;
            let after = after.trim_start();
            if let Some(after) = after.strip_prefix('=') {
                let (value, after) = quoted(after.trim_start())
                    .ok_or_else(|| fail(text, "a quoted label value is missing"))?;
                labels.set(label, value);
                rest = after.trim_start();
            } else {
                labels.metric(label);
                rest = after;
            }
            match rest.strip_prefix(',') {
                Some(after) => rest = after.trim_start(),
                None if rest.starts_with('}') => {}
                None => return Err(fail(text, "`,` or `}` is missing between labels")),
            }
        }
        rest = &rest[1..];
    } else if name.is_empty() {
        return Err(fail(text, "a metric name or `{` is missing"));
    }
    Ok((labels.build(), rest))
}

fn label_name(text: &str) -> Option<(String, &str)> {
    if text.starts_with(['"', '\'', '`']) {
        return quoted(text);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

/// Reads a quoted text with Go's escapes.
pub(crate) fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| "\"'`".contains(*c))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((out, &text[at + 1..]));
        }
        if c != '\\' || quote == '`' {
            out.push(c);
            continue;
        }
        let (_, escaped) = chars.next()?;
        let mut code = |digits: usize, radix: u32| {
            let text: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
            u32::from_str_radix(&text, radix).ok().and_then(char::from_u32)
        };
        out.push(match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'x' => code(2, 16)?,
            'u' => code(4, 16)?,
            'U' => code(8, 16)?,
            other => other,
        });
    }
    None
}

/// Reads values: `1 2 _`, `0+10x5`, `5x3`, `stale`.
pub fn parse_values(text: &str) -> Result<Vec<Entry>, NotationError> {
    let mut entries = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = if rest.starts_with("{{") {
            let mut end = rest.find("}}").ok_or_else(|| fail(rest, "`}}` is missing"))? + 2;
            while let Some(more) = rest[end..].strip_prefix(['+', '-']).filter(|more| more.starts_with("{{"))
            {
                let close = more.find("}}").ok_or_else(|| fail(rest, "`}}` is missing"))?;
                end += 1 + close + 2;
            }
            end + rest[end..].find(char::is_whitespace).unwrap_or(rest.len() - end)
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        push_entry(&rest[..end], &mut entries)?;
        if entries.len() > ENTRIES_MAX {
            return Err(fail(rest, format!("more than {ENTRIES_MAX} values")));
        }
        rest = rest[end..].trim_start();
    }
    Ok(entries)
}

fn push_entry(text: &str, entries: &mut Vec<Entry>) -> Result<(), NotationError> {
    let (body, times) = match text.rsplit_once('x') {
        Some((body, times)) if !body.is_empty() => {
            let Ok(times) = times.parse::<usize>() else {
                return Err(fail(text, "after `x` a count is missing"));
            };
            if times > ENTRIES_MAX {
                return Err(fail(text, format!("more than {ENTRIES_MAX} values")));
            }
            (body, Some(times))
        }
        _ => (text, None),
    };
    if body.starts_with("{{") {
        entries.extend(std::iter::repeat_n(Entry::Histogram, times.map_or(1, |times| times + 1)));
        return Ok(());
    }
    if body == "_" {
        entries.extend(std::iter::repeat_n(Entry::Missing, times.unwrap_or(1)));
        return Ok(());
    }
    let (mut value, step) =
        split_step(body).ok_or_else(|| fail(text, "a number, `_` or `stale` is missing"))?;
    let count = times.map_or(1, |times| times + 1);
    for _ in 0..count {
        entries.push(Entry::Value(value));
        if let Some(step) = step {
            value += step;
        }
    }
    if times.is_none() && step.is_some() {
        return Err(fail(text, "`x` and a count are missing after the step"));
    }
    Ok(())
}

/// `a+b` and `a-b` as start and step; `a` alone.
fn split_step(body: &str) -> Option<(f64, Option<f64>)> {
    if let Some(value) = number(body) {
        return Some((value, None));
    }
    let bytes = body.as_bytes();
    (1..body.len()).find_map(|at| {
        if !matches!(bytes[at], b'+' | b'-') {
            return None;
        }
        let value = number(&body[..at])?;
        let step = number(&body[at + 1..])?;
        Some((value, Some(if bytes[at] == b'-' { -step } else { step })))
    })
}

fn number(text: &str) -> Option<f64> {
    if text == "stale" {
        return Some(stale_marker());
    }
    text.parse().ok()
}

/// A pattern, as `=~` has it, that fits this text only. In PromQL it stands in quotes.
pub fn pattern_of(text: &str) -> String {
    regex::escape(text)
}

/// Reads a duration such as `1h30m`, `90s`, `0`, `-5m`, or plain seconds; in milliseconds.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text),
    };
    if let Ok(seconds) = body.parse::<f64>() {
        let millis = (seconds * 1000.0).round();
        return (millis.abs() < 9e18).then_some(if negative { -(millis as i64) } else { millis as i64 });
    }
    let mut rest = body;
    let mut total = 0_i64;
    let mut least = usize::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let count: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let units = [
            ("ms", 1),
            ("s", 1000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
            ("y", 31_536_000_000),
        ];
        let place = units.iter().position(|(unit, _)| *unit == &rest[..end])?;
        if place >= least {
            return None;
        }
        least = place;
        total = total.checked_add(count.checked_mul(units[place].1)?)?;
        rest = &rest[end..];
    }
    (!body.is_empty()).then_some(if negative { -total } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_promtool_reads_them() {
        let values = |text| {
            parse_values(text)
                .unwrap()
                .into_iter()
                .map(|entry| match entry {
                    Entry::Value(value) => format!("{value}"),
                    Entry::Missing => "_".into(),
                    Entry::Histogram => "h".into(),
                })
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(values("1 2.5 _ -3"), "1 2.5 _ -3");
        assert_eq!(values("0+10x2"), "0 10 20");
        assert_eq!(values("5-2x2 7x1"), "5 3 1 7 7");
        assert_eq!(values("-1e3+1x1 _x2"), "-1000 -999 _ _");
        assert_eq!(values("{{schema:0 sum:1}}x1 {{}}+{{count:1 sum:2}}x2"), "h h h h h");
        assert_eq!(values("0x2"), "0 0 0");
        assert!(parse_values("1+").is_err());
        assert!(parse_values("1x99999999999").is_err());
    }

    #[test]
    fn labels_are_read_with_and_without_a_name() {
        let (labels, rest) = parse_labels(r#" up{job="a\"b", x = 'y',} 1 2"#).unwrap();
        assert_eq!(labels.to_string(), r#"up{job="a\"b",x="y"}"#);
        assert_eq!(rest, " 1 2");
        assert_eq!(parse_labels("{} 5").unwrap().0, Labels::default());
        assert_eq!(parse_labels(r#"{"a.b", c="d"}"#).unwrap().0.metric(), "a.b");
        assert!(parse_labels("{a}x").is_ok());
        assert!(parse_labels(r#"{a="b" c="d"}"#).is_err());
    }

    #[test]
    fn durations_need_falling_units() {
        assert_eq!(parse_duration_ms("1h30m"), Some(5_400_000));
        assert_eq!(parse_duration_ms("90"), Some(90_000));
        assert_eq!(parse_duration_ms("-5m"), Some(-300_000));
        assert_eq!(parse_duration_ms("1m1h"), None);
        assert_eq!(parse_duration_ms(""), None);
    }
}
