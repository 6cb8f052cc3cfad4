//! Queries as text: formatted, with other metric names, and the selectors of `match[]`.

use promql_parser::label::{MatchOp as ParsedOp, Matcher as ParsedMatcher};
use promql_parser::parser::{Expr, VectorSelector};
use serde_json::{Value, json};

use crate::error::QueryError;
use crate::functions::INFO;
use crate::labels::METRIC_NAME;
use crate::plan::{Kind, Node};
use crate::source::{MatchOp, Matcher};
use crate::syntax;

/// A part of a condition that holds something against a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What is held against it, as a query of its own.
    pub expr: String,
    /// `>`, `>=`, `<`, `<=`, `==` or `!=`, with the number on its right.
    pub op: &'static str,
    /// The number.
    pub value: f64,
}

/// What a condition holds against numbers, in the order of the text: both sides of `and` and `or`, the first
/// of `unless`. Nothing where it compares in other ways.
pub fn bars(text: &str) -> Result<Vec<Bar>, QueryError> {
    with_expr(text, |expr| {
        let mut found = Vec::new();
        let mut todo = vec![&*expr];
        while let Some(expr) = todo.pop() {
            match expr {
                Expr::Paren(paren) => todo.push(&paren.expr),
                Expr::Binary(binary) if binary.op.is_set_operator() => {
                    if binary.op.to_string() != "unless" {
                        todo.push(&binary.rhs);
                    }
                    todo.push(&binary.lhs);
                }
                Expr::Binary(binary) if binary.op.is_comparison_operator() && !binary.return_bool() => {
                    found.extend(bar(&binary.op.to_string(), &binary.lhs, &binary.rhs));
                }
                _ => {}
            }
        }
        found
    })
}

/// The range of a query that is raw samples up to the time it is asked for, such as `x[5m]`; none of one that is moved
/// by `offset` or `@`, and of anything else.
pub fn raw_range(text: &str) -> Option<std::time::Duration> {
    let range = with_expr(text, |expr| {
        let mut expr = &*expr;
        while let Expr::Paren(paren) = expr {
            expr = &paren.expr;
        }
        match expr {
            Expr::MatrixSelector(raw) if raw.vs.offset.is_none() && raw.vs.at.is_none() => Some(raw.range),
            _ => None,
        }
    });
    range.ok().flatten()
}

fn bar(op: &str, left: &Expr, right: &Expr) -> Option<Bar> {
    // Each with what it is when the sides change places.
    const OPS: [(&str, &str); 6] =
        [(">", "<"), (">=", "<="), ("<", ">"), ("<=", ">="), ("==", "=="), ("!=", "!=")];
    let (as_is, turned) = OPS.into_iter().find(|(known, _)| *known == op)?;
    match (number_of(left), number_of(right)) {
        (None, Some(value)) => Some(Bar { expr: left.to_string(), op: as_is, value }),
        (Some(value), None) => Some(Bar { expr: right.to_string(), op: turned, value }),
        _ => None,
    }
}

fn number_of(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::NumberLiteral(literal) => Some(literal.val),
        Expr::Paren(paren) => number_of(&paren.expr),
        Expr::Unary(unary) => number_of(&unary.expr).map(|value| -value),
        _ => None,
    }
}

/// Formats a query as Prometheus' `format_query` does: one part a line where it is long.
pub fn format_query(text: &str) -> Result<String, QueryError> {
    with_expr(text, |expr| expr.prettify())
}

/// The tree of a query as JSON, in the shape of Prometheus' `parse_query`.
pub fn query_tree(text: &str) -> Result<String, QueryError> {
    let tree = with_expr(text, |expr| {
        let mut tree = serde_json::to_value(expr)?;
        complete(&mut tree);
        serde_json::to_string(&tree)
    })?;
    tree.map_err(|error| QueryError::Internal(format!("the query's tree can't be written: {error}")))
}

/// Makes the parser's tree Prometheus': the matcher that a selector's name is, how the two sides of an
/// operator are matched where the query says nothing, and what `group_left` includes.
fn complete(tree: &mut Value) {
    match tree {
        Value::Object(node) => {
            let name = node.get("name").filter(|name| name.is_string()).cloned();
            if let (Some(name), Some(Value::Array(matchers))) = (name, node.get_mut("matchers")) {
                matchers.push(json!({"name": METRIC_NAME, "type": "=", "value": name}));
            }
            let joins = node.get("matching").is_some_and(Value::is_null)
                && [node.get("lhs"), node.get("rhs")].into_iter().flatten().all(is_vector);
            if joins {
                let is_set = node["op"].as_str().is_some_and(|op| ["and", "or", "unless"].contains(&op));
                let card = if is_set { "many-to-many" } else { "one-to-one" };
                let matching = json!({"card": card, "include": [], "labels": [], "on": false});
                node.insert("matching".to_owned(), matching);
            }
            if let Some(Value::Object(matching)) = node.get_mut("matching") {
                matching.remove("fillValues");
                let grouped = matching["card"].as_object().and_then(|card| card.iter().next());
                if let Some((card, labels)) = grouped.map(|(card, labels)| (card.clone(), labels.clone())) {
                    matching.insert("card".to_owned(), card.into());
                    matching.insert("include".to_owned(), labels);
                }
            }
            node.values_mut().for_each(complete);
        }
        Value::Array(nodes) => nodes.iter_mut().for_each(complete),
        _ => (),
    }
}

/// Whether a node's value is a vector.
fn is_vector(node: &Value) -> bool {
    match node["type"].as_str().unwrap_or_default() {
        "parenExpr" | "unaryExpr" => is_vector(&node["expr"]),
        "binaryExpr" => is_vector(&node["lhs"]) || is_vector(&node["rhs"]),
        "call" => node["func"]["returnType"] == "vector",
        kind => kind == "vectorSelector" || kind == "aggregation",
    }
}

/// Replaces metric names for which `other` knows others, wherever a selector asks for exactly one name;
/// of several any will do. Patterns are left alone. Everything else means the same, but is formatted anew.
pub fn rename_metrics(
    text: &str,
    other: &(dyn Fn(&str) -> Vec<String> + Sync),
) -> Result<String, QueryError> {
    with_expr(text, |expr| {
        each_selector(expr, &mut |selector| rename_selector(selector, other));
        expr.to_string()
    })
}

/// Reads a selector such as `up{job="api"}`, as `match[]` takes it. Several lists of matchers are
/// alternatives.
pub fn parse_selector(text: &str) -> Result<Vec<Vec<Matcher>>, QueryError> {
    let (root, _) = syntax::parse(text)?;
    match *root {
        Node { kind: Kind::Selector(selector), .. } if selector.pin.is_none() && selector.offset_ns == 0 => {
            Ok(selector.any_of)
        }
        _ => Err(QueryError::Parse {
            place: "1:1".to_owned(),
            reason: "a plain selector such as `up{job=\"api\"}` is needed".to_owned(),
        }),
    }
}

/// Parses `text` twice: for its errors with their places, then as the parser's own tree.
fn with_expr<T: Send>(text: &str, work: impl FnOnce(&mut Expr) -> T + Send) -> Result<T, QueryError> {
    let (root, depth) = syntax::parse(text)?;
    syntax::with_stack(depth, move || {
        drop(root);
        let mut expr = syntax::parsers_tree(text)?;
        Ok(work(&mut expr))
    })?
}

/// Adds `conditions` to every selector of a query: what it asks beyond them is not there for it. The
/// query is formatted anew. `info` is refused: its braces say which labels are added, so that they can't
/// take a condition too.
pub fn restrict(text: &str, conditions: &[Matcher]) -> Result<String, QueryError> {
    if let Some(span) = syntax::call_of(text, INFO).filter(|_| !conditions.is_empty()) {
        return Err(QueryError::Unsupported {
            place: span.place(text),
            what: "the function `info` in a query that may see some series only: join with `* on (instance, job) group_left (...) target_info`".to_owned(),
        });
    }
    let mut added = Vec::with_capacity(conditions.len());
    for condition in conditions {
        let op = match condition.op {
            MatchOp::Equal => ParsedOp::Equal,
            MatchOp::NotEqual => ParsedOp::NotEqual,
            MatchOp::Matches | MatchOp::MatchesNot => {
                return Err(QueryError::Internal("conditions are plain texts".to_owned()));
            }
        };
        added.push(ParsedMatcher::new(op, &condition.name, &condition.value));
    }
    with_expr(text, |expr| {
        each_selector(expr, &mut |selector| {
            let matchers = &mut selector.matchers;
            if matchers.or_matchers.is_empty() {
                matchers.matchers.extend(added.iter().cloned());
            }
            matchers.or_matchers.iter_mut().for_each(|either| either.extend(added.iter().cloned()));
        });
        expr.to_string()
    })
}

fn each_selector(expr: &mut Expr, change: &mut dyn FnMut(&mut VectorSelector)) {
    match expr {
        Expr::Aggregate(aggregate) => {
            each_selector(&mut aggregate.expr, change);
            if let Some(parameter) = &mut aggregate.param {
                each_selector(parameter, change);
            }
        }
        Expr::Unary(unary) => each_selector(&mut unary.expr, change),
        Expr::Binary(binary) => {
            each_selector(&mut binary.lhs, change);
            each_selector(&mut binary.rhs, change);
        }
        Expr::Paren(paren) => each_selector(&mut paren.expr, change),
        Expr::Subquery(subquery) => each_selector(&mut subquery.expr, change),
        Expr::VectorSelector(selector) => change(selector),
        Expr::MatrixSelector(matrix) => change(&mut matrix.vs),
        Expr::Call(call) => call.args.args.iter_mut().for_each(|argument| each_selector(argument, change)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

fn rename_selector(selector: &mut VectorSelector, other: &dyn Fn(&str) -> Vec<String>) {
    let matchers = &mut selector.matchers;
    for matcher in matchers.matchers.iter_mut().chain(matchers.or_matchers.iter_mut().flatten()) {
        if matcher.name == METRIC_NAME
            && matcher.op == ParsedOp::Equal
            && let Some(new) = any_name(&other(&matcher.value))
        {
            *matcher = new;
        }
    }
    let names = selector.name.as_deref().map(other).unwrap_or_default();
    match &names[..] {
        [name] if is_plain_name(name) => selector.name = Some(name.clone()),
        names => {
            if let Some(new) = any_name(names) {
                selector.name = None;
                matchers.matchers.insert(0, new);
            }
        }
    }
}

/// The condition that a metric has one of these names; none where there are none.
fn any_name(names: &[String]) -> Option<ParsedMatcher> {
    let (first, rest) = names.split_first()?;
    if rest.is_empty() {
        return Some(ParsedMatcher::new(ParsedOp::Equal, METRIC_NAME, first));
    }
    let pattern = names.iter().map(|name| regex::escape(name)).collect::<Vec<_>>().join("|");
    let op = ParsedOp::Re(regex::Regex::new(&pattern).ok()?);
    Some(ParsedMatcher::new(op, METRIC_NAME, &pattern))
}

fn is_plain_name(name: &str) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(starts) && name.chars().all(|c| starts(c) || c.is_ascii_digit())
}
