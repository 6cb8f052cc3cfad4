//! A query's tokens with their places. Only places, nesting and refusals depend on this scanner;
//! what is valid is for `promql-parser` to say.

use super::{NESTING_MAX, OPERATORS_MAX};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or keyword.
    Word,
    /// A number or duration.
    Number,
    /// A quoted text.
    Text,
    /// An operator or bracket.
    Mark,
}

/// One token: bytes `start..end` of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Token {
    pub(super) fn text<'t>(&self, text: &'t str) -> &'t str {
        &text[self.start as usize..self.end as usize]
    }
}

const MARKS: [&str; 26] = [
    "==", "!=", "=~", "!~", ">=", "<=", ">/", "</", "=", ">", "<", "+", "-", "*", "/", "%", "^", "@", "(",
    ")", "{", "}", "[", "]", ",", ":",
];

/// Splits `text`; an error is a place and a reason.
pub(super) fn scan(text: &str) -> Result<Vec<Token>, (u32, String)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    // In a range a colon stands alone; elsewhere it may start a name.
    let mut in_range = false;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if c == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if c == '"' || c == '\'' || c == '`' {
            (
                Kind::Text,
                quoted(rest, c).ok_or_else(|| (at as u32, format!("unterminated quoted string: add {c}")))?,
            )
        } else if c.is_ascii_digit() || (c == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            (Kind::Number, number(rest))
        } else if c.is_ascii_alphabetic() || c == '_' || (c == ':' && !in_range && word(rest) > 1) {
            (Kind::Word, word(rest))
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            (Kind::Mark, mark.len())
        } else {
            return Err((at as u32, format!("unexpected character: {c:?}")));
        };
        in_range = c == '[' || (in_range && c != ']');
        tokens.push(Token { kind, start: at as u32, end: (at + length) as u32 });
        at += length;
    }
    Ok(tokens)
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len())
}

fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let hex = rest.starts_with("0x") || rest.starts_with("0X");
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let sign_of_exponent =
            matches!(byte, b'+' | b'-') && !hex && at > 0 && matches!(bytes[at - 1], b'e' | b'E');
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || sign_of_exponent {
            at += 1;
        } else {
            break;
        }
    }
    at
}

fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// An upper bound of the depth of the query's tree; refuses what nobody writes.
pub(super) fn depth(text: &str, tokens: &[Token]) -> Result<usize, (u32, String)> {
    // Operators of each open bracket: a path from the root passes all of them at most.
    let mut open = vec![0_usize];
    let (mut deep, mut deepest, mut marks) = (0_usize, 0_usize, 0_usize);
    for token in tokens.iter().filter(|token| matches!(token.kind, Kind::Mark | Kind::Word)) {
        marks += 1;
        match token.text(text) {
            "(" | "[" | "{" => {
                open.push(1);
                deep += 1;
            }
            ")" | "]" | "}" => {
                let ended = if open.len() > 1 { open.pop() } else { None };
                let subquery = usize::from(token.text(text) == "]");
                deep = deep - ended.unwrap_or(0) + subquery;
                if let Some(last) = open.last_mut() {
                    *last += subquery;
                }
            }
            "," | ":" | "@" | "=" | "=~" | "!~" => {}
            word if token.kind == Kind::Mark || is_operator(word) => {
                deep += 1;
                if let Some(last) = open.last_mut() {
                    *last += 1;
                }
            }
            _ => {}
        }
        deepest = deepest.max(deep);
        if open.len() > NESTING_MAX + 1 {
            return Err((token.start, format!("brackets are nested deeper than {NESTING_MAX}")));
        }
        if marks > OPERATORS_MAX {
            let reason = format!(
                "the query has more than {OPERATORS_MAX} names and operators: split it with recording rules"
            );
            return Err((token.start, reason));
        }
    }
    Ok(deepest)
}

fn is_operator(word: &str) -> bool {
    ["and", "or", "unless", "atan2"].iter().any(|operator| word.eq_ignore_ascii_case(operator))
}
