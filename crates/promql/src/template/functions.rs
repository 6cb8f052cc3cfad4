//! The functions of templates.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Scene, Value};
use crate::notation::parse_duration_ms;
use crate::number::{civil, general_digits, seconds};

/// Every function's name.
pub(super) const NAMES: [&str; 47] = [
    "and",
    "args",
    "eq",
    "externalURL",
    "first",
    "ge",
    "graphLink",
    "gt",
    "html",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "index",
    "js",
    "label",
    "le",
    "len",
    "lt",
    "match",
    "ne",
    "not",
    "now",
    "or",
    "parseDuration",
    "pathPrefix",
    "print",
    "printf",
    "println",
    "query",
    "reReplaceAll",
    "safeHtml",
    "slice",
    "sortByLabel",
    "stripDomain",
    "stripPort",
    "strvalue",
    "tableLink",
    "title",
    "toDuration",
    "toLower",
    "toTime",
    "toUpper",
    "urlQueryEscape",
    "urlquery",
    "value",
];

/// Calls `name`.
pub(super) fn call(name: &str, arguments: Vec<Value>, scene: &Scene<'_>) -> Result<Value, String> {
    let text = |value: String| Ok(Value::Text(value));
    match (name, &arguments[..]) {
        ("query", [query]) => query_result(&query.print(), scene),
        ("first", [Value::List(items)]) => {
            items.first().cloned().ok_or_else(|| "first() called on vector with no elements".to_owned())
        }
        ("value", [sample]) => entry(sample, "Value"),
        ("label", [name, sample]) => label(&name.print(), sample),
        ("strvalue", [sample]) => label("__value__", sample),
        ("sortByLabel", [name, Value::List(items)]) => {
            let mut items = items.clone();
            let key =
                |item: &Value| label(&name.print(), item).map(|value| value.print()).unwrap_or_default();
            items.sort_by_key(key);
            Ok(Value::List(items))
        }
        ("args", values) => {
            let entries = values.iter().enumerate().map(|(at, value)| (format!("arg{at}"), value.clone()));
            Ok(Value::Map(entries.collect(), false))
        }
        ("now", []) => Ok(Value::Number(seconds(scene.time_ms.saturating_mul(1_000_000)))),
        ("externalURL", []) => text(scene.external_url.to_owned()),
        ("pathPrefix", []) => text(path_of(scene.external_url).to_owned()),
        ("graphLink" | "tableLink", [query]) => text(link(&query.print(), name == "tableLink")),
        ("and", values @ [.., last]) => {
            Ok(values.iter().find(|value| !value.is_true()).unwrap_or(last).clone())
        }
        ("or", values @ [.., last]) => {
            Ok(values.iter().find(|value| value.is_true()).unwrap_or(last).clone())
        }
        ("not", [value]) => Ok(Value::Bool(!value.is_true())),
        ("len", [value]) => Ok(Value::Integer(match value {
            Value::Text(text) => text.len() as i64,
            Value::Map(entries, _) => entries.len() as i64,
            Value::List(items) => items.len() as i64,
            other => return Err(format!("`{}` has no length", other.print())),
        })),
        ("index", [value, keys @ ..]) => index(value, keys),
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            let same = |other: &Value| compare(first, other).map(Ordering::is_eq);
            others.iter().map(same).try_fold(false, |any, same| Ok(any || same?)).map(Value::Bool)
        }
        ("ne", [a, b]) => compare(a, b).map(|order| Value::Bool(order.is_ne())),
        ("lt", [a, b]) => compare(a, b).map(|order| Value::Bool(order.is_lt())),
        ("le", [a, b]) => compare(a, b).map(|order| Value::Bool(order.is_le())),
        ("gt", [a, b]) => compare(a, b).map(|order| Value::Bool(order.is_gt())),
        ("ge", [a, b]) => compare(a, b).map(|order| Value::Bool(order.is_ge())),
        ("print", values) => text(values.iter().map(Value::print).collect()),
        ("println", values) => text(values.iter().map(Value::print).collect::<Vec<_>>().join(" ") + "\n"),
        ("printf", [format, values @ ..]) => printf(&format.print(), values).map(Value::Text),
        ("match", [pattern, subject]) => {
            Ok(Value::Bool(pattern_of(&pattern.print())?.is_match(&subject.print())))
        }
        ("reReplaceAll", [pattern, with, subject]) => {
            let replaced =
                pattern_of(&pattern.print())?.replace_all(&subject.print(), with.print()).into_owned();
            text(replaced)
        }
        (_, [value]) => one(name, value),
        (_, values) => Err(format!("`{name}` does not take {} such arguments", values.len())),
    }
}

/// Functions of one value.
fn one(name: &str, value: &Value) -> Result<Value, String> {
    let printed = value.print();
    Ok(Value::Text(match name {
        "humanize" => humanize(value.number()?),
        "humanize1024" => humanize_1024(value.number()?),
        "humanizeDuration" => humanize_duration(value.number()?),
        "humanizePercentage" => format!("{}%", general_digits(value.number()? * 100.0, 4)),
        "humanizeTimestamp" | "toTime" => timestamp(value.number()?),
        "toDuration" => format!("{}s", general_digits(value.number()?, 17)),
        "parseDuration" => {
            let millis = parse_duration_ms(&printed).ok_or_else(|| format!("`{printed}` is no duration"))?;
            return Ok(Value::Number(millis as f64 / 1000.0));
        }
        "safeHtml" => printed,
        "title" => title(&printed),
        "toLower" => printed.to_lowercase(),
        "toUpper" => printed.to_uppercase(),
        "stripPort" => split_port(&printed).map_or(printed.clone(), |(host, _)| host.to_owned()),
        "stripDomain" => strip_domain(&printed),
        "html" => html(&printed),
        "urlQueryEscape" | "urlquery" => url_escape(&printed),
        _ => return Err(format!("`{name}` does not take one such argument")),
    }))
}

fn query_result(query: &str, scene: &Scene<'_>) -> Result<Value, String> {
    let sample = |(labels, value): (model::Labels, f64)| {
        let entries =
            [("Labels".to_owned(), Value::of_labels(&labels)), ("Value".to_owned(), Value::Number(value))];
        Value::Map(BTreeMap::from(entries), false)
    };
    Ok(Value::List((scene.ask)(query)?.into_iter().map(sample).collect()))
}

fn entry(value: &Value, name: &str) -> Result<Value, String> {
    match value {
        Value::Map(entries, _) => {
            entries.get(name).cloned().ok_or_else(|| format!("`{}` is no sample", value.print()))
        }
        other => Err(format!("`{}` is no sample", other.print())),
    }
}

fn label(name: &str, sample: &Value) -> Result<Value, String> {
    match entry(sample, "Labels")? {
        Value::Map(mut labels, _) => Ok(labels.remove(name).unwrap_or(Value::Text(String::new()))),
        other => Err(format!("`{}` has no labels", other.print())),
    }
}

fn index(value: &Value, keys: &[Value]) -> Result<Value, String> {
    let mut value = value.clone();
    for key in keys {
        value = match (value, key) {
            (Value::List(items), key) => {
                let at = key.number()?;
                let found = (at >= 0.0).then(|| items.get(at as usize).cloned()).flatten();
                found.ok_or_else(|| format!("there is no element {at} of {}", items.len()))?
            }
            (Value::Map(mut entries, texts), key) => match entries.remove(&key.print()) {
                Some(found) => found,
                None if texts => Value::Text(String::new()),
                None => Value::Nothing,
            },
            (other, _) => return Err(format!("`{}` can't be indexed", other.print())),
        };
    }
    Ok(value)
}

fn compare(a: &Value, b: &Value) -> Result<Ordering, String> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Integer(a), Value::Integer(b)) => Ok(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => Ok(a.partial_cmp(b).unwrap_or(Ordering::Greater)),
        _ => Err(format!("incompatible types for comparison: `{}` and `{}`", a.print(), b.print())),
    }
}

fn pattern_of(text: &str) -> Result<regex::Regex, String> {
    regex::RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| format!("`{text}` is no regular expression: {error}"))
}

/// Divides or multiplies by `base` until the number is handy.
fn scaled(mut value: f64, base: f64, prefixes: [&'static str; 8], up: bool) -> String {
    let mut prefix = "";
    for next in prefixes {
        if up && value.abs() < base || !up && value.abs() >= 1.0 {
            break;
        }
        prefix = next;
        value = if up { value / base } else { value * base };
    }
    general_digits(value, 4) + prefix
}

const LARGE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];
const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];

fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        general_digits(value, 4)
    } else if value.abs() >= 1.0 {
        scaled(value, 1000.0, LARGE, true)
    } else {
        scaled(value, 1000.0, SMALL, false)
    }
}

fn humanize_1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        general_digits(value, 4)
    } else {
        scaled(value, 1024.0, BINARY, true)
    }
}

fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return general_digits(value, 4);
    }
    if value == 0.0 {
        return "0s".to_owned();
    }
    if value.abs() < 1.0 {
        return scaled(value, 1000.0, SMALL, false) + "s";
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let whole = value.abs() as i64;
    let (second, minute) = (whole % 60, whole / 60 % 60);
    let (hour, day) = (whole / 3600 % 24, whole / 86_400);
    if day != 0 {
        format!("{sign}{day}d {hour}h {minute}m {second}s")
    } else if hour != 0 {
        format!("{sign}{hour}h {minute}m {second}s")
    } else if minute != 0 {
        format!("{sign}{minute}m {second}s")
    } else {
        format!("{sign}{}s", general_digits(value.abs(), 4))
    }
}

/// `2026-11-30 02:30:00.5 +0000 UTC`, as Go prints a time.
fn timestamp(value: f64) -> String {
    if !value.is_finite() || value.abs() > 1e15 {
        return general_digits(value, 4);
    }
    let nanos = (value * 1e9).round() as i128;
    let seconds = nanos.div_euclid(1_000_000_000) as i64;
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let mut out = format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    let fraction = nanos.rem_euclid(1_000_000_000);
    if fraction != 0 {
        out.push('.');
        out.push_str(format!("{fraction:09}").trim_end_matches('0'));
    }
    out + " +0000 UTC"
}

fn title(text: &str) -> String {
    let mut inside = false;
    text.chars()
        .flat_map(|c| {
            let first = c.is_alphanumeric() && !inside;
            inside = c.is_alphanumeric() || (inside && c == '\'');
            if first { c.to_uppercase().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

/// Host and port of `host:port` and `[v6]:port`.
fn split_port(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('[') {
        let (host, port) = inside.split_once(']')?;
        return port.strip_prefix(':').map(|port| (host, port));
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.contains(':')).then_some((host, port))
}

fn strip_domain(text: &str) -> String {
    let (host, port) = split_port(text).unwrap_or((text, ""));
    if host.parse::<std::net::IpAddr>().is_ok() {
        return text.to_owned();
    }
    let short = host.split('.').next().unwrap_or(host);
    if port.is_empty() { short.to_owned() } else { format!("{short}:{port}") }
}

fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

fn url_escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else if byte == b' ' {
            out.push('+');
        } else {
            let done = write!(out, "%{byte:02X}");
            debug_assert!(done.is_ok());
        }
    }
    out
}

fn link(query: &str, table: bool) -> String {
    format!("/graph?g0.expr={}&g0.tab={}", url_escape(query), u8::from(table))
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}

/// The verbs of Go's `printf` that templates use.
fn printf(format: &str, values: &[Value]) -> Result<String, String> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let spec = &rest[at + 1..];
        let end = spec.find(|c: char| c.is_ascii_alphabetic() || c == '%').ok_or("`%` ends the format")?;
        let (flags, verb) = (&spec[..end], &spec[end..=end]);
        rest = &spec[end + 1..];
        if verb == "%" {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            out.push_str("%!");
            out.push_str(verb);
            out.push_str("(MISSING)");
            continue;
        };
        out.push_str(&verb_text(flags, verb, value)?);
    }
    out.push_str(rest);
    Ok(out)
}

fn verb_text(flags: &str, verb: &str, value: &Value) -> Result<String, String> {
    let (before, precision) = match flags.split_once('.') {
        Some((before, precision)) => (before, precision.parse::<usize>().ok().or(Some(0))),
        None => (flags, None),
    };
    let width: usize = before.trim_start_matches(['-', '+', '0', ' ', '#']).parse().unwrap_or(0);
    if width > 1000 || precision.is_some_and(|precision| precision > 1000) {
        return Err("a width or precision beyond 1000".to_owned());
    }
    let body = match (verb, value) {
        ("v", value) => match (value, precision) {
            (Value::Number(number), Some(precision)) => general_digits(*number, precision),
            _ => value.print(),
        },
        ("s", value) => match precision {
            Some(precision) => value.print().chars().take(precision).collect(),
            None => value.print(),
        },
        ("q", value) => format!("{:?}", value.print()),
        ("d", Value::Integer(number)) => number.to_string(),
        ("t", Value::Bool(value)) => value.to_string(),
        ("f" | "F", Value::Number(number)) if number.is_finite() => {
            format!("{number:.*}", precision.unwrap_or(6))
        }
        ("g", Value::Number(number)) => match precision {
            Some(precision) => general_digits(*number, precision),
            None => crate::number::general(*number),
        },
        ("e", Value::Number(number)) if number.is_finite() => {
            let text = format!("{number:.*e}", precision.unwrap_or(6));
            let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
            format!("{mantissa}e{sign}{power:0>2}")
        }
        ("f" | "F" | "e", Value::Number(_)) => value.print(),
        _ => format!("%!{verb}({})", value.print()),
    };
    let fill = width.saturating_sub(body.chars().count());
    Ok(if before.starts_with('-') {
        body + &" ".repeat(fill)
    } else if before.starts_with('0') {
        match body.strip_prefix('-') {
            Some(digits) => format!("-{}{digits}", "0".repeat(fill)),
            None => "0".repeat(fill) + &body,
        }
    } else {
        " ".repeat(fill) + &body
    })
}
