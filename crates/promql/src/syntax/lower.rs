//! The parser's tree made ours: places, matchers and times resolved, parentheses gone.

use std::time::{Duration, SystemTime};

use promql_parser::label::{MatchOp as ParsedOp, Matcher as ParsedMatcher};
use promql_parser::parser::token as t;
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, AtModifier, BinaryExpr, Call, Expr, LabelModifier, Offset, SubqueryExpr,
    VectorMatchCardinality, VectorSelector,
};

use super::outline::{Part, Shape};
use crate::error::{QueryError, Span};
use crate::functions::{Function, UNSUPPORTED};
use crate::labels::METRIC_NAME;
use crate::plan::{
    Aggregate, Aggregator, Binary, Cardinality, Kind, Matching, Node, Operator, Pin, Selector, Subquery, Type,
};
use crate::source::{MatchOp, Matcher};

/// Makes the tree of `text` ours.
pub(super) fn lower(text: &str, expr: &Expr, outline: Option<&Part>) -> Result<Box<Node>, QueryError> {
    let whole = Span { start: 0, end: text.len() as u32 };
    Lower { text }.node(expr, outline, whole).map(Box::new)
}

struct Lower<'t> {
    text: &'t str,
}

impl Lower<'_> {
    fn node(&self, expr: &Expr, part: Option<&Part>, around: Span) -> Result<Node, QueryError> {
        let part = skip_plus(expr, part);
        let span = part.map_or(around, |part| part.span);
        let inner = |wanted: Shape, at: usize| {
            part.filter(|part| part.shape == wanted).and_then(|part| part.inner.get(at))
        };
        let (kind, of, constant) = match expr {
            Expr::Paren(paren) => return self.node(&paren.expr, inner(Shape::Paren, 0), span),
            Expr::NumberLiteral(number) => (Kind::Number(number.val), Type::Scalar, true),
            Expr::StringLiteral(string) => (Kind::Text(string.val.clone()), Type::Text, true),
            Expr::VectorSelector(selector) => {
                let selector = self.selector(selector, span)?;
                let constant = selector.pin.is_some();
                (Kind::Selector(selector), Type::Vector, constant)
            }
            Expr::MatrixSelector(matrix) => {
                let selector = self.selector(&matrix.vs, span)?;
                let constant = selector.pin.is_some();
                (Kind::Range { selector, range_ns: nanos(matrix.range) }, Type::Range, constant)
            }
            Expr::Subquery(subquery) => {
                let subquery = self.subquery(subquery, inner(Shape::Subquery, 0), span)?;
                let constant = subquery.pin.is_some();
                (Kind::Subquery(subquery), Type::Range, constant)
            }
            Expr::Unary(unary) => {
                let operand = self.node(&unary.expr, inner(Shape::Unary, 0), span)?;
                let (of, constant) = (operand.of, operand.constant);
                (Kind::Negate(Box::new(operand)), of, constant)
            }
            Expr::Call(call) => self.call(call, part, span)?,
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, part, span)?,
            Expr::Binary(binary) => self.binary(binary, part, span)?,
            Expr::Extension(_) => {
                return Err(QueryError::Internal("the parser made an extension".to_owned()));
            }
        };
        Ok(Node { kind, span, of, constant })
    }

    fn unsupported(&self, span: Span, what: impl Into<String>) -> QueryError {
        QueryError::Unsupported { place: span.place(self.text), what: what.into() }
    }

    fn fail(&self, span: Span, reason: impl Into<String>) -> QueryError {
        QueryError::Parse { place: span.place(self.text), reason: reason.into() }
    }

    fn matcher(&self, parsed: &ParsedMatcher, span: Span) -> Result<Matcher, QueryError> {
        let op = match parsed.op {
            ParsedOp::Equal => MatchOp::Equal,
            ParsedOp::NotEqual => MatchOp::NotEqual,
            ParsedOp::Re(_) => MatchOp::Matches,
            ParsedOp::NotRe(_) => MatchOp::MatchesNot,
        };
        Matcher::new(&parsed.name, op, &parsed.value).map_err(|error| self.fail(span, error.to_string()))
    }

    fn selector(&self, parsed: &VectorSelector, span: Span) -> Result<Selector, QueryError> {
        let mut any_of = Vec::new();
        let alternatives = if parsed.matchers.or_matchers.is_empty() {
            std::slice::from_ref(&parsed.matchers.matchers)
        } else {
            &parsed.matchers.or_matchers[..]
        };
        for alternative in alternatives {
            let mut matchers = Vec::new();
            if let Some(name) = &parsed.name {
                matchers.push(
                    Matcher::new("__name__", MatchOp::Equal, name)
                        .map_err(|error| self.fail(span, error.to_string()))?,
                );
            }
            for matcher in alternative {
                matchers.push(self.matcher(matcher, span)?);
            }
            any_of.push(matchers);
        }
        Ok(Selector { any_of, offset_ns: offset(parsed.offset.as_ref()), pin: pin(parsed.at.as_ref()) })
    }

    fn subquery(
        &self,
        parsed: &SubqueryExpr,
        part: Option<&Part>,
        span: Span,
    ) -> Result<Subquery, QueryError> {
        let inner = self.node(&parsed.expr, part, span)?;
        if inner.of != Type::Vector && inner.of != Type::Scalar {
            return Err(self.fail(span, "subquery is only allowed on instant vector or scalar"));
        }
        if parsed.range.is_zero() || parsed.step.is_some_and(|step| step.is_zero()) {
            return Err(self.fail(span, "duration must be greater than 0"));
        }
        Ok(Subquery {
            inner: Box::new(inner),
            range_ns: nanos(parsed.range),
            step_ns: parsed.step.map(nanos),
            offset_ns: offset(parsed.offset.as_ref()),
            pin: pin(parsed.at.as_ref()),
        })
    }

    fn call(&self, call: &Call, part: Option<&Part>, span: Span) -> Result<(Kind, Type, bool), QueryError> {
        let name = call.func.name;
        let mut arguments = Vec::with_capacity(call.args.args.len());
        if let Some((_, instead)) = UNSUPPORTED.iter().find(|(refused, _)| *refused == name) {
            return Err(self.unsupported(span, format!("the function `{name}`: {instead}")));
        }
        let function =
            Function::named(name).ok_or_else(|| self.unsupported(span, format!("the function `{name}`")))?;
        for (at, argument) in call.args.args.iter().enumerate() {
            let part = part.filter(|part| part.shape == Shape::Call).and_then(|part| part.inner.get(at));
            arguments.push(self.node(argument, part, span)?);
        }
        self.check_arguments(call, &arguments, span)?;
        if function == Function::Info {
            self.info_selector(call, &mut arguments, span)?;
        }
        let of = match call.func.return_type {
            ValueType::Scalar => Type::Scalar,
            ValueType::String => Type::Text,
            ValueType::Matrix => Type::Range,
            ValueType::Vector => Type::Vector,
        };
        let pinned = arguments.iter().all(|argument| argument.constant);
        let selector = matches!(arguments.first(), Some(Node { kind: Kind::Selector(_), .. }));
        let constant =
            pinned && (!function.depends_on_time() || (function == Function::Timestamp && selector));
        Ok((Kind::Call { function, arguments }, of, constant))
    }

    /// `promql-parser` checks counts and types; this holds what it lets pass.
    fn check_arguments(&self, call: &Call, arguments: &[Node], span: Span) -> Result<(), QueryError> {
        let wanted = &call.func.arg_types;
        for (at, argument) in arguments.iter().enumerate() {
            let Some(want) = wanted.get(at).or(wanted.last()) else { break };
            let fits = match want {
                ValueType::Scalar => argument.of == Type::Scalar,
                ValueType::String => argument.of == Type::Text,
                ValueType::Matrix => argument.of == Type::Range,
                ValueType::Vector => argument.of == Type::Vector,
            };
            if !fits {
                let reason = format!("argument {} of `{}` must be a {want}", at + 1, call.func.name);
                return Err(self.fail(argument.span, reason));
            }
        }
        let least = if call.func.variadic == 0 {
            wanted.len()
        } else {
            wanted.len().saturating_sub(1).min(minimum(call.func.name))
        };
        if arguments.len() < least {
            let reason = format!(
                "expected at least {least} argument(s) in call to \"{}\", got {}",
                call.func.name,
                arguments.len()
            );
            return Err(self.fail(span, reason));
        }
        Ok(())
    }

    /// Makes the second argument of `info` the selector of the info series: with their names where the
    /// query gives none, at the time of the first argument.
    fn info_selector(&self, call: &Call, arguments: &mut Vec<Node>, span: Span) -> Result<(), QueryError> {
        let (mut matchers, span) = match (call.args.args.get(1).map(|expr| &**expr), arguments.get_mut(1)) {
            (None, _) => (Vec::new(), span),
            (Some(Expr::VectorSelector(parsed)), Some(Node { kind: Kind::Selector(selector), span, .. })) => {
                let reason = if parsed.name.is_some() {
                    "expected label selectors only, got vector selector instead"
                } else if parsed.at.is_some() || parsed.offset.is_some() {
                    "expected label selectors only: `offset` and `@` of the first argument count here too"
                } else if !parsed.matchers.or_matchers.is_empty() {
                    "expected label selectors only, without `or`"
                } else {
                    ""
                };
                if !reason.is_empty() {
                    return Err(self.fail(*span, reason));
                }
                (selector.any_of.pop().unwrap_or_default(), *span)
            }
            (Some(_), _) => return Err(self.fail(span, "expected label selectors only")),
        };
        let named = matchers.iter().filter(|matcher| &*matcher.name == METRIC_NAME);
        let name = match named.map(|matcher| matcher.op).collect::<Vec<_>>()[..] {
            [] => Some((MatchOp::Equal, "target_info")),
            ref ops if ops.iter().all(|op| matches!(op, MatchOp::NotEqual | MatchOp::MatchesNot)) => {
                Some((MatchOp::Matches, ".+_info"))
            }
            _ => None,
        };
        if let Some((op, value)) = name {
            let matcher = Matcher::new(METRIC_NAME, op, value);
            matchers.push(matcher.map_err(|error| self.fail(span, error.to_string()))?);
        }
        let (offset_ns, pin) = arguments.first().and_then(reference).unwrap_or_default();
        let selector = Selector { any_of: vec![matchers], offset_ns, pin };
        arguments.truncate(1);
        arguments.push(Node {
            kind: Kind::Selector(selector),
            span,
            of: Type::Vector,
            constant: pin.is_some(),
        });
        Ok(())
    }

    fn aggregate(
        &self,
        parsed: &AggregateExpr,
        part: Option<&Part>,
        span: Span,
    ) -> Result<(Kind, Type, bool), QueryError> {
        let part = part.filter(|part| part.shape == Shape::Aggregate);
        let last = part.and_then(|part| part.inner.last());
        let inner = self.node(&parsed.expr, last, span)?;
        if inner.of != Type::Vector {
            return Err(self.fail(inner.span, "an aggregation needs an instant vector"));
        }
        let parameter = match &parsed.param {
            Some(parameter) => {
                let first = part.and_then(|part| part.inner.first());
                Some(Box::new(self.node(parameter, first, span)?))
            }
            None => None,
        };
        let operator = aggregator(parsed.op.id())
            .ok_or_else(|| self.unsupported(span, format!("the aggregation `{}`", parsed.op)))?;
        let wanted = if operator == Aggregator::CountValues { Type::Text } else { Type::Scalar };
        if parameter.as_ref().is_some_and(|parameter| parameter.of != wanted) {
            return Err(self.fail(span, "the aggregation's parameter has the wrong type"));
        }
        let (mut labels, without) = match &parsed.modifier {
            Some(LabelModifier::Include(labels)) => (labels.labels.clone(), false),
            Some(LabelModifier::Exclude(labels)) => (labels.labels.clone(), true),
            None => (Vec::new(), false),
        };
        labels.sort_unstable();
        labels.dedup();
        let constant = inner.constant && parameter.as_ref().is_none_or(|parameter| parameter.constant);
        let aggregate = Aggregate { operator, inner: Box::new(inner), parameter, labels, without };
        Ok((Kind::Aggregate(aggregate), Type::Vector, constant))
    }

    fn binary(
        &self,
        parsed: &BinaryExpr,
        part: Option<&Part>,
        span: Span,
    ) -> Result<(Kind, Type, bool), QueryError> {
        let part = part.filter(|part| part.shape == Shape::Binary);
        let left = self.node(&parsed.lhs, part.and_then(|part| part.inner.first()), span)?;
        let right = self.node(&parsed.rhs, part.and_then(|part| part.inner.get(1)), span)?;
        let operator = operator(parsed.op.id())
            .ok_or_else(|| self.unsupported(span, format!("the operator `{}`", parsed.op)))?;
        for side in [&left, &right] {
            if !matches!(side.of, Type::Scalar | Type::Vector) {
                let reason = "binary expression must contain only scalar and instant vector types";
                return Err(self.fail(side.span, reason));
            }
        }
        let of =
            if left.of == Type::Scalar && right.of == Type::Scalar { Type::Scalar } else { Type::Vector };
        let constant = left.constant && right.constant;
        let binary = Binary {
            operator,
            left: Box::new(left),
            right: Box::new(right),
            matching: matching(parsed, operator),
            returns_bool: parsed.return_bool(),
        };
        Ok((Kind::Binary(binary), of, constant))
    }
}

/// A plus in front of an expression is not in the parser's tree, nor a minus in front of a number.
fn skip_plus<'p>(expr: &Expr, mut part: Option<&'p Part>) -> Option<&'p Part> {
    if matches!(expr, Expr::Unary(_) | Expr::NumberLiteral(_)) {
        return part;
    }
    while let Some(outer) = part.filter(|part| part.shape == Shape::Unary) {
        part = outer.inner.first();
    }
    part
}

/// The offset and time of the first selector in `node`, those of subqueries around it included: what a
/// time pins is not moved by what is further out.
fn reference(node: &Node) -> Option<(i64, Option<Pin>)> {
    match &node.kind {
        Kind::Number(_) | Kind::Text(_) => None,
        Kind::Selector(selector) | Kind::Range { selector, .. } => Some((selector.offset_ns, selector.pin)),
        Kind::Subquery(subquery) => reference(&subquery.inner).map(|(offset_ns, pin)| match pin {
            Some(pin) => (offset_ns, Some(pin)),
            None => (offset_ns.saturating_add(subquery.offset_ns), subquery.pin),
        }),
        Kind::Call { arguments, .. } => arguments.iter().find_map(reference),
        Kind::Aggregate(aggregate) => {
            reference(&aggregate.inner).or_else(|| aggregate.parameter.as_deref().and_then(reference))
        }
        Kind::Negate(inner) => reference(inner),
        Kind::Binary(binary) => reference(&binary.left).or_else(|| reference(&binary.right)),
    }
}

/// Fewest arguments of a function that takes a varying number.
fn minimum(name: &str) -> usize {
    match name {
        "label_join" | "histogram_quantiles" => 3,
        "info" | "round" | "sort_by_label" | "sort_by_label_desc" => 1,
        _ => 0,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn offset(parsed: Option<&Offset>) -> i64 {
    match parsed {
        Some(Offset::Pos(duration)) => nanos(*duration),
        Some(Offset::Neg(duration)) => -nanos(*duration),
        None => 0,
    }
}

fn pin(parsed: Option<&AtModifier>) -> Option<Pin> {
    Some(match parsed? {
        AtModifier::Start => Pin::Start,
        AtModifier::End => Pin::End,
        AtModifier::At(time) => Pin::At(match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => nanos(after),
            Err(before) => -nanos(before.duration()),
        }),
    })
}

fn aggregator(id: t::TokenId) -> Option<Aggregator> {
    Some(match id {
        t::T_SUM => Aggregator::Sum,
        t::T_AVG => Aggregator::Avg,
        t::T_COUNT => Aggregator::Count,
        t::T_MIN => Aggregator::Min,
        t::T_MAX => Aggregator::Max,
        t::T_GROUP => Aggregator::Group,
        t::T_STDDEV => Aggregator::Stddev,
        t::T_STDVAR => Aggregator::Stdvar,
        t::T_QUANTILE => Aggregator::Quantile,
        t::T_TOPK => Aggregator::Topk,
        t::T_BOTTOMK => Aggregator::Bottomk,
        t::T_LIMITK => Aggregator::Limitk,
        t::T_LIMIT_RATIO => Aggregator::LimitRatio,
        t::T_COUNT_VALUES => Aggregator::CountValues,
        _ => return None,
    })
}

fn operator(id: t::TokenId) -> Option<Operator> {
    Some(match id {
        t::T_ADD => Operator::Add,
        t::T_SUB => Operator::Subtract,
        t::T_MUL => Operator::Multiply,
        t::T_DIV => Operator::Divide,
        t::T_MOD => Operator::Modulo,
        t::T_POW => Operator::Power,
        t::T_ATAN2 => Operator::Atan2,
        t::T_EQLC => Operator::Equal,
        t::T_NEQ => Operator::NotEqual,
        t::T_GTR => Operator::Greater,
        t::T_LSS => Operator::Less,
        t::T_GTE => Operator::GreaterEqual,
        t::T_LTE => Operator::LessEqual,
        t::T_LAND => Operator::And,
        t::T_LOR => Operator::Or,
        t::T_LUNLESS => Operator::Unless,
        _ => return None,
    })
}

fn matching(parsed: &BinaryExpr, operator: Operator) -> Matching {
    let modifier = parsed.modifier.as_ref();
    let (on, labels) = match modifier.and_then(|modifier| modifier.matching.as_ref()) {
        Some(LabelModifier::Include(labels)) => (true, labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => (false, labels.labels.clone()),
        None => (false, Vec::new()),
    };
    let (cardinality, include) = match modifier.map(|modifier| &modifier.card) {
        Some(VectorMatchCardinality::ManyToOne(labels)) => (Cardinality::ManyToOne, labels.labels.clone()),
        Some(VectorMatchCardinality::OneToMany(labels)) => (Cardinality::OneToMany, labels.labels.clone()),
        _ if matches!(operator, Operator::And | Operator::Or | Operator::Unless) => {
            (Cardinality::ManyToMany, Vec::new())
        }
        _ => (Cardinality::OneToOne, Vec::new()),
    };
    let fill = modifier.map(|modifier| &modifier.fill_values);
    Matching {
        cardinality,
        on,
        labels,
        include,
        fill_left: fill.and_then(|fill| fill.lhs),
        fill_right: fill.and_then(|fill| fill.rhs),
    }
}
