//! What may stand at a place of a query that is still being typed.

use std::ops::Range;

use crate::functions::{Function, Over};
use crate::source::Matcher;
use crate::vocabulary::WordPlace;

/// A place in a query and what may stand there.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// What may stand there.
    pub wants: Wants,
    /// The bytes that a choice replaces; the cursor is inside or at an end.
    pub replaces: Range<usize>,
    /// What is typed of it already, before the cursor.
    pub typed: String,
}

/// What may stand at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Wants {
    /// Nothing that could be known: a comment, a number, a text that may say anything.
    Nothing,
    /// A metric, a function or an aggregation.
    Expression {
        /// The function whose argument it is.
        function: Option<String>,
        /// Words of the grammar that may stand there as well.
        words: Vec<WordPlace>,
    },
    /// Words of the grammar.
    Words(Vec<WordPlace>),
    /// The name of a label.
    Label {
        /// Whose labels are meant, as lists of matchers; none for those of every metric.
        of: Vec<Vec<Matcher>>,
        /// Labels that stand there already.
        taken: Vec<String>,
    },
    /// A comparison behind a label's name.
    Comparison,
    /// The value of a label.
    Value {
        /// The label.
        label: String,
        /// The other matchers of its selector.
        of: Vec<Matcher>,
        /// How it is written.
        form: ValueForm,
    },
    /// A duration.
    Duration,
}

/// How a label's value is written at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueForm {
    /// The quote that is typed already.
    pub(super) quote: Option<char>,
    /// Whether its end is there as well.
    pub(super) closed: bool,
    /// Whether it is part of a pattern.
    pub(super) pattern: bool,
}

impl ValueForm {
    /// `value` as it is put in; `None` when these quotes can't hold it.
    pub fn write(self, value: &str) -> Option<String> {
        let mut text = String::new();
        for c in value.chars() {
            if self.pattern && "\\.+*?()|[]{}^$".contains(c) {
                text.push('\\');
            }
            text.push(c);
        }
        let quote = self.quote.unwrap_or('"');
        let mut out = String::new();
        out.extend(self.quote.is_none().then_some(quote));
        for c in text.chars() {
            match c {
                '`' if quote == '`' => return None,
                _ if quote == '`' => out.push(c),
                '\n' => out.push_str("\\n"),
                '\\' => out.push_str("\\\\"),
                c if c == quote => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
        out.extend((!self.closed).then_some(quote));
        Some(out)
    }
}

/// Whether a function's argument is a window of a counter.
pub fn takes_counters(function: &str) -> bool {
    matches!(
        Function::named(function),
        Some(Function::Over(Over::Rate | Over::Increase | Over::Irate | Over::Resets))
    )
}
