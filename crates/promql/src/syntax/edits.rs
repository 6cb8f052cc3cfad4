//! Places inside a part of a valid query where something can be put in.

use super::tokens::{Kind, Token, scan};
use crate::error::Span;

/// Tokens of a part that are in no brackets but its own.
fn outer(text: &str, span: Span) -> Vec<Token> {
    let mut depth = 0_usize;
    let mut found = Vec::new();
    let within = |token: &Token| span.start <= token.start && token.end <= span.end;
    for token in scan(text).unwrap_or_default().into_iter().filter(within) {
        let closes = token.kind == Kind::Mark && matches!(token.text(text), ")" | "}" | "]");
        depth -= usize::from(closes && depth > 0);
        if depth == 0 {
            found.push(token);
        }
        let opens = token.kind == Kind::Mark && matches!(token.text(text), "(" | "{" | "[");
        depth += usize::from(opens);
    }
    found
}

/// Where `offset` or `@` begins in the selector at `span`; its end when there is neither.
pub(crate) fn modifiers_at(text: &str, span: Span) -> usize {
    let is_modifier = |token: &&Token| match token.kind {
        // A metric may have that name.
        Kind::Word => token.start > span.start && token.text(text).eq_ignore_ascii_case("offset"),
        Kind::Mark => token.text(text) == "@",
        Kind::Number | Kind::Text => false,
    };
    outer(text, span).iter().find(is_modifier).map_or(span.end, |token| token.start) as usize
}

/// The name of the first call of `function` in a valid query.
pub(crate) fn call_of(text: &str, function: &str) -> Option<Span> {
    let tokens = scan(text).unwrap_or_default();
    let calls = |pair: &&[Token]| {
        pair[0].kind == Kind::Word && pair[0].text(text) == function && pair[1].text(text) == "("
    };
    tokens.windows(2).find(calls).map(|pair| Span { start: pair[0].start, end: pair[0].end })
}

/// Where a label can be put into `by (...)` of the aggregation at `span`, and `true`; where it has no
/// such list, where one can stand, and `false`.
pub(crate) fn grouping_at(text: &str, span: Span) -> Option<(u32, bool)> {
    let tokens = outer(text, span);
    let by = tokens.iter().position(|token| token.text(text).eq_ignore_ascii_case("by"));
    match by {
        Some(at) => Some((tokens.get(at + 1)?.end, true)),
        None => Some((tokens.first()?.end, false)),
    }
}
