//! Conditions on labels, as PromQL's selectors have them.

use std::fmt;

/// How a [`Matcher`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

/// Says whether a label's value fits a condition.
type Fits<'m> = Box<dyn Fn(&str) -> bool + Send + Sync + 'm>;

/// One condition on a label. A label that a series lacks counts as the empty text.
pub struct Matcher<'m> {
    /// The label's name; a metric's name is `__name__`.
    pub(crate) name: &'m str,
    op: MatchOp,
    /// The text or pattern, as it was written.
    pub(crate) value: &'m str,
    /// Of a pattern that only lists texts: those texts.
    listed: Option<Vec<String>>,
    fits: Option<Fits<'m>>,
}

impl fmt::Debug for Matcher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.name, self.op, self.value)
    }
}

impl<'m> Matcher<'m> {
    /// The label `name` has this very `value`. On `__name__` a metric's logged name answers too.
    pub fn equal(name: &'m str, value: &'m str) -> Self {
        Self { name, op: MatchOp::Equal, value, listed: None, fits: None }
    }

    /// The label `name` has another value.
    pub fn not_equal(name: &'m str, value: &'m str) -> Self {
        Self { name, op: MatchOp::NotEqual, value, listed: None, fits: None }
    }

    /// A condition of any kind. `fits` decides, for patterns: it says of a value whether the whole
    /// condition holds, that is, for [`MatchOp::NotRegex`] whether the pattern does not match. The
    /// `pattern` has to match the whole value and be one of that regular language (not `(?x)`); what
    /// can be read off it (listed texts, a first part) saves asking.
    pub fn new(
        name: &'m str,
        op: MatchOp,
        pattern: &'m str,
        fits: impl Fn(&str) -> bool + Send + Sync + 'm,
    ) -> Self {
        match op {
            MatchOp::Equal => Self::equal(name, pattern),
            MatchOp::NotEqual => Self::not_equal(name, pattern),
            MatchOp::Regex | MatchOp::NotRegex => {
                Self { name, op, value: pattern, listed: listed(pattern), fits: Some(Box::new(fits)) }
            }
        }
    }

    /// Whether a label with the value `text` fits.
    pub fn fits(&self, text: &str) -> bool {
        match (self.op, &self.fits) {
            (MatchOp::Equal, _) => text == self.value,
            (MatchOp::NotEqual, _) => text != self.value,
            (_, Some(fits)) => fits(text),
            (_, None) => false,
        }
    }

    /// Whether the series that fit are one list of the index.
    pub(crate) fn is_direct(&self) -> bool {
        self.op == MatchOp::Equal && !self.value.is_empty()
    }

    /// Whether what is written is what does not fit.
    pub(crate) fn is_negative(&self) -> bool {
        matches!(self.op, MatchOp::NotEqual | MatchOp::NotRegex)
    }

    /// The only texts that the written text or pattern stands for, where it lists them.
    pub(crate) fn listed(&self) -> Option<Vec<std::borrow::Cow<'_, str>>> {
        match self.op {
            MatchOp::Equal | MatchOp::NotEqual => Some(vec![self.value.into()]),
            _ => self.listed.as_ref().map(|texts| texts.iter().map(|text| (&**text).into()).collect()),
        }
    }

    /// How every text starts that the written pattern stands for.
    pub(crate) fn prefix(&self) -> String {
        match self.op {
            MatchOp::Equal | MatchOp::NotEqual => self.value.to_owned(),
            _ => prefix(self.value),
        }
    }
}

/// The texts of `a|b|c`, also in parentheses; `None` for any other pattern.
fn listed(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.map_or(pattern, |inner| inner.strip_prefix("?:").unwrap_or(inner));
    let mut texts = vec![String::new()];
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '|' => {
                texts.push(String::new());
                continue;
            }
            '\\' => chars.next().filter(|c| is_escaped(*c))?,
            c if is_special(c) => return None,
            c => c,
        };
        texts.last_mut()?.push(plain);
    }
    Some(texts)
}

/// The plain text that a pattern starts with.
fn prefix(pattern: &str) -> String {
    if pattern.contains('|') {
        return String::new();
    }
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().filter(|c| is_escaped(*c)) {
                Some(plain) => text.push(plain),
                None => return text,
            },
            '*' | '?' | '{' | '+' => {
                // It says how often the character before comes.
                text.pop();
                return text;
            }
            c if is_special(c) => return text,
            c => text.push(c),
        }
    }
    text
}

/// Whether a backslash makes a character stand for itself; `\<` and `\>` are edges of words.
fn is_escaped(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '<' | '>')
}

fn is_special(c: char) -> bool {
    matches!(c, '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '\\' | '|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_first_parts_are_read_off_a_pattern() {
        let check = |pattern: &str, texts: Option<&[&str]>, start: &str| {
            let want = texts.map(|texts| texts.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(listed(pattern), want, "{pattern}");
            assert_eq!(prefix(pattern), start, "{pattern}");
        };
        check("a|b", Some(&["a", "b"]), "");
        check("(a|b)", Some(&["a", "b"]), "");
        check("(?:a|)", Some(&["a", ""]), "");
        check(r"10\.0\.0\.1:9100", Some(&["10.0.0.1:9100"]), "10.0.0.1:9100");
        check("node.*", None, "node");
        check("node1?", None, "node");
        check("(a|b)c|d", None, "");
        check("(a)(b)", None, "");
        check(r"a\d", None, "a");
        check("(?i)a", None, "");
        check("x{2}", None, "");
        check("^a", None, "");
        check("", Some(&[""]), "");
    }
}
