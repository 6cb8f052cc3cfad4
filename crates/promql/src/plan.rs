//! The query as the evaluator walks it.

use crate::error::Span;
use crate::functions::Function;
use crate::source::Matcher;

/// What a node evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    Text,
    Vector,
    Range,
}

/// A part of the query with its place in the text.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    pub(crate) of: Type,
    /// Whether it has the same value at every step.
    pub(crate) constant: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Number(f64),
    Text(String),
    Selector(Selector),
    Range { selector: Selector, range_ns: i64 },
    Subquery(Subquery),
    Call { function: Function, arguments: Vec<Node> },
    Aggregate(Aggregate),
    Negate(Box<Node>),
    Binary(Binary),
}

/// The time that a selector or subquery is pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    Start,
    End,
    At(i64),
}

#[derive(Debug)]
pub(crate) struct Selector {
    /// Alternatives; one unless `or` was used inside the braces.
    pub(crate) any_of: Vec<Vec<Matcher>>,
    pub(crate) offset_ns: i64,
    pub(crate) pin: Option<Pin>,
}

#[derive(Debug)]
pub(crate) struct Subquery {
    pub(crate) inner: Box<Node>,
    pub(crate) range_ns: i64,
    pub(crate) step_ns: Option<i64>,
    pub(crate) offset_ns: i64,
    pub(crate) pin: Option<Pin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregator {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Quantile,
    Topk,
    Bottomk,
    Limitk,
    LimitRatio,
    CountValues,
}

#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(crate) operator: Aggregator,
    pub(crate) inner: Box<Node>,
    pub(crate) parameter: Option<Box<Node>>,
    /// Sorted.
    pub(crate) labels: Vec<String>,
    pub(crate) without: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) fn compares(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::NotEqual | Self::Greater | Self::Less | Self::GreaterEqual | Self::LessEqual
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cardinality {
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

#[derive(Debug)]
pub(crate) struct Matching {
    pub(crate) cardinality: Cardinality,
    /// `on` rather than `ignoring`.
    pub(crate) on: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) include: Vec<String>,
    pub(crate) fill_left: Option<f64>,
    pub(crate) fill_right: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Box<Node>,
    pub(crate) right: Box<Node>,
    pub(crate) matching: Matching,
    pub(crate) returns_bool: bool,
}
