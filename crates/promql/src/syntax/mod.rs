//! From text to plan: positions and refusals first, then `promql-parser`, then our own tree.

mod edits;
mod label_selector;
mod lower;
mod outline;
mod place;
mod tokens;
mod unfinished;

pub(crate) use edits::{call_of, grouping_at, modifiers_at};
pub use place::{Place, ValueForm, Wants, takes_counters};
pub use unfinished::{place_at, selectors_in};

use std::borrow::Cow;

use outline::Part;
use promql_parser::parser::Expr;

use crate::error::{QueryError, Span};
use crate::plan::Node;

/// Longest query text.
const QUERY_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of brackets.
const NESTING_MAX: usize = 400;
/// Most names, operators and brackets of one query.
const OPERATORS_MAX: usize = 10_000;
/// Most patterns of one query: compiled, each may take megabytes.
const PATTERNS_MAX: usize = 100;
/// Trees up to this deep are walked on the caller's stack.
const SHALLOW: usize = 60;
/// Stack of a thread that walks deeper ones.
const DEEP_STACK_BYTES: usize = 256 << 20;

/// Runs `work` where there is stack enough for a tree of depth `depth`.
pub(crate) fn with_stack<T: Send>(depth: usize, work: impl FnOnce() -> T + Send) -> Result<T, QueryError> {
    if depth <= SHALLOW {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("promql-deep".to_owned())
            .stack_size(DEEP_STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| QueryError::Internal(format!("no thread for a deep query: {error}")))?;
        thread.join().ok().ok_or_else(|| QueryError::Internal("a deep query ended its thread".to_owned()))
    })
}

/// Parses `text` and says how deep the tree is at most.
pub(crate) fn parse(text: &str) -> Result<(Box<Node>, usize), QueryError> {
    let fail = |at: u32, reason: String| QueryError::Parse {
        place: Span { start: at, end: at }.place(text),
        reason,
    };
    if text.len() > QUERY_BYTES_MAX {
        return Err(fail(
            0,
            format!("the query has {} bytes, at most {QUERY_BYTES_MAX} are read", text.len()),
        ));
    }
    let tokens = tokens::scan(text).map_err(|(at, reason)| fail(at, reason))?;
    let depth = tokens::depth(text, &tokens).map_err(|(at, reason)| fail(at, reason))?;
    with_stack(depth, || {
        let outline = match outline::outline(text, &tokens) {
            Err(outline::Stop::Unsupported(span, what)) => {
                return Err(QueryError::Unsupported { place: span.place(text), what });
            }
            Err(outline::Stop::Refused(at, reason)) => return Err(fail(at, reason)),
            Err(outline::Stop::Unexpected(at, reason)) => Err((at, reason)),
            Ok(outline) => Ok(outline),
        };
        match (parse_expr(text, outline.as_ref().ok()), outline) {
            (Ok(Ok(expr)), outline) => lower::lower(text, &expr, outline.as_ref().ok()),
            (_, Err((at, reason))) => Err(fail(at, reason)),
            (Ok(Err(reason)), Ok(_)) => Err(fail(place_of(text, &reason), reason)),
            (Err(error), Ok(_)) => Err(error),
        }
    })?
    .map(|node| (node, depth))
}

/// The parser's own tree, or its words on what is wrong. It panics over some numbers; the outline
/// keeps those away, and what it misses ends here.
fn parse_expr(text: &str, outline: Option<&Part>) -> Result<Result<Expr, String>, QueryError> {
    let shown = outline.map_or(Cow::Borrowed(text), |outline| label_selector::shown(text, outline));
    let parsed = std::panic::catch_unwind(|| promql_parser::parser::parse(&shown))
        .ok()
        .ok_or_else(|| QueryError::Internal("the parser gave up on this query".to_owned()))?;
    Ok(parsed.map(|mut expr| {
        if matches!(shown, Cow::Owned(_)) {
            label_selector::take_out(&mut expr);
        }
        expr
    }))
}

/// The parser's own tree of a text that [`parse`] has taken.
pub(crate) fn parsers_tree(text: &str) -> Result<Expr, QueryError> {
    let tokens = tokens::scan(text).map_err(|(_, reason)| QueryError::Internal(reason))?;
    let outline = outline::outline(text, &tokens).ok();
    parse_expr(text, outline.as_ref())?.map_err(QueryError::Internal)
}

/// Where in the text the thing is that an error without a position quotes.
fn place_of(text: &str, reason: &str) -> u32 {
    let quoted = |mark: char| reason.split(mark).nth(1).filter(|name| !name.is_empty());
    let at = quoted('\'').or_else(|| quoted('"')).or_else(|| quoted('`')).and_then(|name| text.find(name));
    at.unwrap_or(0) as u32
}
