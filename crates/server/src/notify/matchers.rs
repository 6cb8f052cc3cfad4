//! Conditions on an alert's labels, as routes and silences write them: `severity="page"`, `model=~"chat.*"`.

use std::collections::BTreeMap;

use promql::{MatchOp, Matcher};

/// Labels of an alert.
pub(crate) type AlertLabels = BTreeMap<String, String>;

/// The operators, longest first, so that `=~` is not read as `=`.
const OPS: [(&str, MatchOp); 4] =
    [("=~", MatchOp::Matches), ("!~", MatchOp::MatchesNot), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];

/// Reads one; the value may stand in quotes.
pub(crate) fn parse(text: &str) -> Result<Matcher, String> {
    let wrong = || format!("`{}` is no condition: write one such as `severity=\"page\"`", shown(text));
    let at = text.find(['=', '!']).ok_or_else(wrong)?;
    let (name, rest) = text.split_at(at);
    let (op_text, op) = OPS.into_iter().find(|(op, _)| rest.starts_with(op)).ok_or_else(wrong)?;
    let value = rest[op_text.len()..].trim();
    let quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
    let value = if quoted {
        serde_json::from_str::<String>(value).map_err(|_not_one_text| wrong())?
    } else {
        value.to_owned()
    };
    new(name.trim(), op, &value)
}

/// The condition `name op value`.
pub(crate) fn new(name: &str, op: MatchOp, value: &str) -> Result<Matcher, String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(format!("`{}` is no label's name", shown(name)));
    }
    Matcher::new(name, op, value)
        .map_err(|error| format!("`{}` can't be used as a pattern: {error}", shown(value)))
}

/// Whether an alert meets all of them. A label that it has not is empty.
pub(crate) fn fit(matchers: &[Matcher], labels: &AlertLabels) -> bool {
    matchers.iter().all(|matcher| matcher.fits(labels.get(&*matcher.name).map_or("", String::as_str)))
}

fn shown(text: &str) -> String {
    crate::api::shown(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_with_and_without_quotes() {
        let labels: AlertLabels = [("severity", "page"), ("model", "chat-70b"), ("odd", "a=\"b\"")]
            .map(|(n, v)| (n.into(), v.into()))
            .into();
        for fits in [
            "severity=page",
            "severity = \"page\"",
            "severity!=ticket",
            "model=~\"chat-.*\"",
            "model!~code.*",
            "none=\"\"",
            "none!=x",
            "odd=\"a=\\\"b\\\"\"",
        ] {
            assert!(fit(&[parse(fits).unwrap()], &labels), "{fits}");
        }
        for fails in ["severity=ticket", "model=~\"chat\"", "none=~.+", "severity!~page|ticket"] {
            assert!(!fit(&[parse(fails).unwrap()], &labels), "{fails}");
        }
        for wrong in ["", "severity", "=x", "a b=c", "x=~\"(\"", "x!y", "x=\"a"] {
            // The last is a value that begins with a quote, which is one.
            assert_eq!(parse(wrong).is_err(), wrong != "x=\"a", "{wrong}");
        }
    }
}
