//! The second argument of `info`: braces that pick labels, which may fit everything. `promql-parser`
//! takes them for a selector that asks for too much, so it is shown one condition more.

use std::borrow::Cow;

use promql_parser::label::MatchOp;
use promql_parser::parser::{Expr, VectorSelector};

use super::outline::{Part, Shape};
use crate::functions::INFO;
use crate::labels::METRIC_NAME;

/// The condition as it is put behind the opening brace.
const SHOWN: &str = "__name__!=\"\",";

/// `text` as the parser takes it; positions behind such braces differ.
pub(super) fn shown<'t>(text: &'t str, part: &Part) -> Cow<'t, str> {
    let mut places = Vec::new();
    find(text, part, &mut places);
    places.sort_unstable();
    let mut shown = Cow::Borrowed(text);
    for at in places.into_iter().rev() {
        shown.to_mut().insert_str(at, SHOWN);
    }
    shown
}

fn find(text: &str, part: &Part, places: &mut Vec<usize>) {
    let behind = &text[part.span.start as usize..];
    let calls_info = part.shape == Shape::Call
        && behind.strip_prefix(INFO).is_some_and(|rest| rest.trim_start().starts_with(['(', '#']));
    if let (true, Some(second)) = (calls_info, part.inner.get(1)) {
        let start = second.span.start as usize;
        if second.shape == Shape::Leaf && text[start..].starts_with('{') {
            places.push(start + 1);
        }
    }
    part.inner.iter().for_each(|inner| find(text, inner, places));
}

/// Takes the condition out of the tree of such a text.
pub(super) fn take_out(expr: &mut Expr) {
    match expr {
        Expr::Aggregate(aggregate) => {
            take_out(&mut aggregate.expr);
            aggregate.param.iter_mut().for_each(|parameter| take_out(parameter));
        }
        Expr::Unary(unary) => take_out(&mut unary.expr),
        Expr::Binary(binary) => {
            take_out(&mut binary.lhs);
            take_out(&mut binary.rhs);
        }
        Expr::Paren(paren) => take_out(&mut paren.expr),
        Expr::Subquery(subquery) => take_out(&mut subquery.expr),
        Expr::Call(call) => {
            if let (INFO, Some(Expr::VectorSelector(selector))) =
                (call.func.name, call.args.args.get_mut(1).map(|argument| &mut **argument))
            {
                first_out(selector);
                // Empty braces, which would be written as nothing, mean the same as none.
                let is_empty =
                    selector.matchers.matchers.is_empty() && selector.matchers.or_matchers.is_empty();
                if is_empty && selector.name.is_none() && selector.at.is_none() && selector.offset.is_none() {
                    call.args.args.truncate(1);
                }
            }
            call.args.args.iter_mut().for_each(|argument| take_out(argument));
        }
        Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Extension(_) => {}
    }
}

fn first_out(selector: &mut VectorSelector) {
    let matchers = &mut selector.matchers;
    let alternative = matchers.or_matchers.first_mut().unwrap_or(&mut matchers.matchers);
    let is_shown = alternative.first().is_some_and(|first| {
        first.name == METRIC_NAME && first.op == MatchOp::NotEqual && first.value.is_empty()
    });
    if is_shown {
        alternative.remove(0);
    }
}
