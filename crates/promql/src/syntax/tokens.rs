//! A query's tokens with their places. Only places, nesting and refusals depend on this scanner;
//! what is valid is for `promql-parser` to say.

use super::{NESTING_MAX, OPERATORS_MAX, PATTERNS_MAX};

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
    walk(text, |token| match token.wrong {
        None => {
            if let Some(kind) = token.kind {
                tokens.push(Token { kind, start: token.start, end: token.end });
            }
            Ok(())
        }
        Some(reason) => Err((token.start, reason)),
    })?;
    Ok(tokens)
}

/// Splits what is still being typed: a text without its closing quote goes on to the end, and what
/// fits nowhere is a mark. Beside the tokens: the comment, if `cursor` is inside one.
pub(super) fn scan_unfinished(text: &str, cursor: u32) -> (Vec<Token>, bool) {
    let (mut tokens, mut in_comment) = (Vec::new(), false);
    let done: Result<(), ()> = walk(text, |token| {
        match (token.kind, token.wrong) {
            (None, None) => {
                let is_comment = text[token.start as usize..].starts_with('#');
                in_comment |= is_comment && token.start < cursor && cursor <= token.end;
            }
            (kind, _) => {
                let kind = kind.unwrap_or(Kind::Mark);
                tokens.push(Token { kind, start: token.start, end: token.end });
            }
        }
        Ok(())
    });
    debug_assert!(done.is_ok());
    (tokens, in_comment)
}

/// A piece of the text; blanks and comments have no kind.
struct Piece {
    kind: Option<Kind>,
    start: u32,
    end: u32,
    /// Why it can't be.
    wrong: Option<String>,
}

fn walk<E>(text: &str, mut take: impl FnMut(Piece) -> Result<(), E>) -> Result<(), E> {
    let mut at = 0;
    // In a range a colon stands alone; elsewhere it may start a name.
    let mut in_range = false;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut wrong = None;
        let (kind, length) = if c.is_whitespace() {
            (None, c.len_utf8())
        } else if c == '#' {
            (None, rest.find('\n').unwrap_or(rest.len()))
        } else if c == '"' || c == '\'' || c == '`' {
            let length = quoted(rest, c).unwrap_or_else(|| {
                wrong = Some(format!("unterminated quoted string: add {c}"));
                rest.len()
            });
            (Some(Kind::Text), length)
        } else if c.is_ascii_digit() || (c == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            (Some(Kind::Number), number(rest))
        } else if c.is_ascii_alphabetic() || c == '_' || (c == ':' && !in_range && word(rest) > 1) {
            (Some(Kind::Word), word(rest))
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            (Some(Kind::Mark), mark.len())
        } else {
            wrong = Some(format!("unexpected character: {c:?}"));
            (Some(Kind::Mark), c.len_utf8())
        };
        if kind.is_some() {
            in_range = c == '[' || (in_range && c != ']');
        }
        take(Piece { kind, start: at as u32, end: (at + length) as u32, wrong })?;
        at += length;
    }
    Ok(())
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
    let (mut deep, mut deepest, mut marks, mut patterns) = (0_usize, 0_usize, 0_usize, 0_usize);
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
            "=~" | "!~" => patterns += 1,
            "," | ":" | "@" | "=" => {}
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
        if patterns > PATTERNS_MAX {
            let reason = format!(
                "the query has more than {PATTERNS_MAX} patterns: list what is meant in one, such as `a|b`"
            );
            return Err((token.start, reason));
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
