//! What a valid query probably gets wrong, told before it is run: by what its metrics are.

use crate::error::Span;
use crate::functions::{Function, Over};
use crate::plan::{Aggregate, Aggregator, Binary, Kind, Node, Operator, Selector};
use crate::source::MatchOp;
use crate::syntax::modifiers_at;

/// A likely mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Where it is.
    pub span: Span,
    /// What is wrong with it.
    pub message: String,
    /// What to write instead.
    pub fix: Option<Fix>,
}

/// A query without the mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// What the change is, a few words.
    pub says: String,
    /// The whole query.
    pub query: String,
}

/// Window that a fix puts in where none is written.
const WINDOW: &str = "5m";

/// What is known of a metric: that its values only grow, that they do not, or nothing.
pub(crate) type Grows<'g> = dyn Fn(&str) -> Option<bool> + Sync + 'g;

/// Looks for mistakes in the query `text` whose tree is `root`.
pub(crate) fn advise(text: &str, root: &Node, grows: &Grows<'_>) -> Vec<Advice> {
    let mut look = Look { text, grows, found: Vec::new() };
    look.node(root, true);
    look.found
}

struct Look<'q> {
    text: &'q str,
    grows: &'q Grows<'q>,
    found: Vec<Advice>,
}

impl Look<'_> {
    /// `raw`: the values of a selector that stands here are shown as they are, or summed up.
    fn node(&mut self, node: &Node, raw: bool) {
        match &node.kind {
            Kind::Number(_) | Kind::Text(_) | Kind::Range { .. } => {}
            Kind::Selector(selector) => {
                if raw {
                    self.raw_counter(node, selector);
                }
            }
            Kind::Subquery(subquery) => self.node(&subquery.inner, false),
            Kind::Call { function, arguments } => self.call(node, *function, arguments, raw),
            Kind::Aggregate(aggregate) => {
                let counts = [Aggregator::Count, Aggregator::Group, Aggregator::CountValues];
                self.node(&aggregate.inner, raw && !counts.contains(&aggregate.operator));
            }
            Kind::Negate(inner) => self.node(inner, raw),
            Kind::Binary(binary) => self.binary(binary, raw),
        }
    }

    fn binary(&mut self, binary: &Binary, raw: bool) {
        let (left, right) = (&binary.left, &binary.right);
        let is_number = |node: &Node| matches!(node.kind, Kind::Number(_));
        let is_past = |node: &Node| matches!(&node.kind, Kind::Selector(selector) if selector.offset_ns != 0);
        let (of_left, of_right) = match binary.operator {
            // Whether something ever happened, and what happened since then, are sound questions.
            operator if operator.compares() && (is_number(left) || is_number(right)) => (false, false),
            Operator::Subtract if is_past(left) || is_past(right) => (false, false),
            Operator::And | Operator::Unless => (raw, false),
            _ => (raw, raw),
        };
        self.node(left, of_left);
        self.node(right, of_right);
    }

    fn call(&mut self, node: &Node, function: Function, arguments: &[Node], raw: bool) {
        let window = |argument: &Node| matches!(argument.kind, Kind::Range { .. });
        if let (Function::Over(over), Some(Node { kind: Kind::Range { selector, .. }, span, .. })) =
            (function, arguments.iter().find(|argument| window(argument)))
        {
            self.window(node, over, selector, *span);
            return;
        }
        match (function, arguments) {
            (Function::Over(over), [Node { kind: Kind::Subquery(subquery), .. }])
                if takes_counters(over)
                    && matches!(&subquery.inner.kind, Kind::Aggregate(sum) if self.adds_counters(sum)) =>
            {
                let message = format!(
                    "a restart of one counter looks like a fall of the sum: take `{}` of each, then the sum",
                    name(over).0
                );
                self.found.push(Advice { span: node.span, message, fix: None });
            }
            (Function::HistogramQuantile, [_, buckets]) => {
                self.bounds_are_kept(buckets);
                self.node(buckets, raw);
            }
            (
                Function::Sort
                | Function::SortDesc
                | Function::LabelReplace
                | Function::LabelJoin
                | Function::Info,
                _,
            ) => {
                for argument in arguments {
                    self.node(argument, raw);
                }
            }
            _ => {
                for argument in arguments {
                    self.node(argument, false);
                }
            }
        }
    }

    fn adds_counters(&self, aggregate: &Aggregate) -> bool {
        let Kind::Selector(selector) = &aggregate.inner.kind else { return false };
        self.known(selector).is_some_and(|(_, grows)| grows)
    }

    /// The metric that a selector names, where it is known whether it only grows.
    fn known<'s>(&self, selector: &'s Selector) -> Option<(&'s str, bool)> {
        let [matchers] = &selector.any_of[..] else { return None };
        let is_name = |m: &&crate::source::Matcher| &*m.name == "__name__" && m.op == MatchOp::Equal;
        let name = &*matchers.iter().find(is_name)?.value;
        Some((name, (self.grows)(name)?))
    }

    fn raw_counter(&mut self, node: &Node, selector: &Selector) {
        let Some((metric, true)) = self.known(selector) else { return };
        let (start, end) = (node.span.start as usize, node.span.end as usize);
        let behind = modifiers_at(self.text, node.span);
        let selected = self.text[start..behind].trim_end();
        let modifiers = &self.text[behind..end];
        let space = if modifiers.is_empty() { "" } else { " " };
        let wrapped = format!("rate({selected}[{WINDOW}]{space}{modifiers})");
        self.found.push(Advice {
            span: node.span,
            message: format!(
                "`{metric}` only grows: its value says for how long it was counted, not how much happens now"
            ),
            fix: Some(Fix { says: format!("rate over {WINDOW}"), query: self.replaced(node.span, &wrapped) }),
        });
    }

    fn window(&mut self, node: &Node, over: Over, selector: &Selector, span: Span) {
        let Some((metric, grows)) = self.known(selector) else { return };
        let (this, other) = name(over);
        let message = if takes_counters(over) && !grows {
            format!("`{metric}` goes up and down: `{this}` takes every fall for a restart")
        } else if takes_gauges(over) && grows {
            format!("`{metric}` is a counter: `{this}` takes a restart for a fall")
        } else {
            return;
        };
        let start = node.span.start;
        let word = Span { start, end: start + this.len() as u32 };
        let is_there = self.text.get(start as usize..word.end as usize) == Some(this);
        let fix = (is_there && !other.is_empty())
            .then(|| Fix { says: format!("use {other}"), query: self.replaced(word, other) });
        self.found.push(Advice { span, message, fix });
    }

    /// Quantiles need the label `le` of the buckets.
    fn bounds_are_kept(&mut self, buckets: &Node) {
        let Kind::Aggregate(sum) = &buckets.kind else { return };
        let is_kept = sum.without != sum.labels.iter().any(|label| label == "le");
        if is_kept {
            return;
        }
        let fix = if sum.without { None } else { crate::syntax::grouping_at(self.text, buckets.span) };
        let fix = fix.map(|(at, has_labels)| {
            let more = if sum.labels.is_empty() { "le" } else { "le, " };
            let added = if has_labels { more.to_owned() } else { " by (le) ".to_owned() };
            Fix { says: "keep le".to_owned(), query: self.replaced(Span { start: at, end: at }, &added) }
        });
        let message = "the buckets lose `le`, their bounds: no quantile can be told".to_owned();
        self.found.push(Advice { span: buckets.span, message, fix });
    }

    fn replaced(&self, span: Span, by: &str) -> String {
        let (start, end) = (span.start as usize, span.end as usize);
        format!("{}{by}{}", &self.text[..start], &self.text[end..])
    }
}

fn takes_counters(over: Over) -> bool {
    matches!(over, Over::Rate | Over::Irate | Over::Increase)
}

fn takes_gauges(over: Over) -> bool {
    matches!(over, Over::Delta | Over::Idelta | Over::Deriv | Over::PredictLinear)
}

/// Its name, and the function that does the same for the other kind of metric.
fn name(over: Over) -> (&'static str, &'static str) {
    match over {
        Over::Rate => ("rate", "deriv"),
        Over::Irate => ("irate", "deriv"),
        Over::Increase => ("increase", "delta"),
        Over::Delta => ("delta", "increase"),
        Over::Idelta => ("idelta", "increase"),
        Over::Deriv => ("deriv", "rate"),
        Over::PredictLinear => ("predict_linear", ""),
        _ => ("", ""),
    }
}
