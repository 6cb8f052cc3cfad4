//! Reads what may stand at a place of a query: by the tokens before it and the brackets around it,
//! since a query that is being typed has no tree yet.

use super::place::{Place, ValueForm, Wants};
use super::tokens::{Kind, Token, scan_unfinished};
use crate::functions::INFO;
use crate::notation::quoted;
use crate::source::{MatchOp, Matcher};
use crate::vocabulary::{WordPlace, is_aggregation};

/// Longest text that is looked at.
const QUERY_BYTES_MAX: usize = 64 << 10;
/// Most metrics of the query whose labels are offered.
const METRICS_MAX: usize = 10;

/// Reads what may stand at `cursor`, a byte of `text`.
pub fn place_at(text: &str, cursor: usize) -> Place {
    let cursor = text.floor_char_boundary(cursor);
    let nothing = Place { wants: Wants::Nothing, replaces: cursor..cursor, typed: String::new() };
    if text.len() > QUERY_BYTES_MAX {
        return nothing;
    }
    let (tokens, in_comment) = scan_unfinished(text, cursor as u32);
    if in_comment {
        return nothing;
    }
    let here = tokens.iter().position(|t| (t.start as usize) < cursor && cursor <= t.end as usize);
    let done = here.unwrap_or_else(|| tokens.partition_point(|t| (t.end as usize) <= cursor));
    let mut query = Query { text, tokens: &tokens, done, cursor };
    let Some(token) = here.map(|at| tokens[at]) else { return query.fresh() };
    match token.kind {
        Kind::Text => query.inside_text(token).unwrap_or(nothing),
        Kind::Mark => {
            query.done += 1;
            query.fresh()
        }
        Kind::Number if query.duration_stands_here() => Place {
            wants: Wants::Duration,
            replaces: token.start as usize..token.end as usize,
            typed: text[token.start as usize..cursor].to_owned(),
        },
        Kind::Number => nothing,
        Kind::Word => Place {
            replaces: token.start as usize..token.end as usize,
            typed: text[token.start as usize..cursor].to_owned(),
            ..query.word()
        },
    }
}

/// Selectors of a query, finished or not, as lists of matchers.
pub fn selectors_in(text: &str) -> Vec<Vec<Matcher>> {
    if text.len() > QUERY_BYTES_MAX {
        return Vec::new();
    }
    let cursor = text.len();
    let (tokens, _) = scan_unfinished(text, cursor as u32);
    Query { text, tokens: &tokens, done: tokens.len(), cursor }.metrics()
}

/// What opened the brackets around a place.
enum Around {
    /// None are open.
    Nothing,
    /// `{`, at this token.
    Matchers(usize),
    /// `[`
    Range,
    /// `(` behind `by`, `on` and the like, at this token.
    Labels(usize),
    /// `(` of a call of this function, or of anything else.
    Arguments(Option<String>),
}

struct Query<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// Tokens before the place, the one that is being typed not counted.
    done: usize,
    cursor: usize,
}

impl<'t> Query<'t> {
    fn word_at(&self, at: usize) -> &'t str {
        self.tokens.get(at).map_or("", |token| token.text(self.text))
    }

    fn kind_at(&self, at: usize) -> Option<Kind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn is_mark(&self, at: usize, marks: &[&str]) -> bool {
        self.kind_at(at) == Some(Kind::Mark) && marks.contains(&self.word_at(at))
    }

    fn is_word(&self, at: usize, words: &[&str]) -> bool {
        let found = self.word_at(at);
        self.kind_at(at) == Some(Kind::Word) && words.iter().any(|word| found.eq_ignore_ascii_case(word))
    }

    /// The last token before the place.
    fn last(&self) -> Option<usize> {
        self.done.checked_sub(1)
    }

    /// The bracket that is open before token `end`.
    fn opener(&self, end: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in (0..end).rev() {
            if self.is_mark(at, &[")", "]", "}"]) {
                depth += 1;
            } else if self.is_mark(at, &["(", "[", "{"]) {
                if depth == 0 {
                    return Some(at);
                }
                depth -= 1;
            }
        }
        None
    }

    fn around(&self, end: usize) -> Around {
        let Some(open) = self.opener(end) else { return Around::Nothing };
        let before = open.checked_sub(1);
        match self.word_at(open) {
            "{" => Around::Matchers(open),
            "[" => Around::Range,
            _ if before.is_some_and(|at| self.takes_labels(at)) => Around::Labels(open),
            _ => {
                let name = before.filter(|at| self.kind_at(*at) == Some(Kind::Word));
                Around::Arguments(name.map(|at| self.word_at(at).to_owned()))
            }
        }
    }

    fn takes_labels(&self, at: usize) -> bool {
        self.is_word(at, &["by", "without", "on", "ignoring", "group_left", "group_right"])
    }

    /// The place has nothing typed yet.
    fn fresh(&self) -> Place {
        Place { replaces: self.cursor..self.cursor, typed: String::new(), ..self.word() }
    }

    fn duration_stands_here(&self) -> bool {
        let signed = self.last().filter(|at| self.is_mark(*at, &["-", "+"])).and_then(|at| at.checked_sub(1));
        let offset = signed.or(self.last()).is_some_and(|at| self.is_word(at, &["offset"]));
        offset || matches!(self.around(self.done), Around::Range)
    }

    /// What a word, or nothing yet, may become here.
    fn word(&self) -> Place {
        let wants = match self.around(self.done) {
            Around::Range => match self.last() {
                Some(last) if self.is_mark(last, &["[", ":"]) => Wants::Duration,
                _ => Wants::Nothing,
            },
            Around::Matchers(open) => self.in_braces(open),
            Around::Labels(open) => Wants::Label {
                of: self.metrics(),
                taken: (open + 1..self.done)
                    .filter(|at| self.kind_at(*at) == Some(Kind::Word))
                    .map(|at| self.word_at(at).to_owned())
                    .collect(),
            },
            Around::Arguments(function) => self.in_expression(function),
            Around::Nothing => self.in_expression(None),
        };
        Place { wants, replaces: self.cursor..self.cursor, typed: String::new() }
    }

    fn in_braces(&self, open: usize) -> Wants {
        let Some(last) = self.last() else { return Wants::Nothing };
        if self.is_mark(last, &["{", ","]) || self.is_word(last, &["or"]) {
            let (matchers, taken) = self.matchers(open, None);
            let of = if matchers.is_empty() { Vec::new() } else { vec![matchers] };
            return Wants::Label { of, taken };
        }
        match self.kind_at(last) {
            Some(Kind::Word) => Wants::Comparison,
            Some(Kind::Mark) if self.is_mark(last, &COMPARISONS) => {
                let Some(label) = last.checked_sub(1).filter(|at| *at > open) else { return Wants::Nothing };
                let form = ValueForm { quote: None, closed: false, pattern: self.is_pattern(last) };
                let of = self.matchers(open, Some(label)).0;
                Wants::Value { label: self.label(label), of, form }
            }
            _ => Wants::Nothing,
        }
    }

    fn is_pattern(&self, at: usize) -> bool {
        self.is_mark(at, &["=~", "!~"])
    }

    fn label(&self, at: usize) -> String {
        let word = self.word_at(at);
        quoted(word).map_or_else(|| word.to_owned(), |(text, _)| text)
    }

    /// The whole matchers of the braces that token `open` opens, but for that of the token `but`, with
    /// the metric's name; and their labels.
    fn matchers(&self, open: usize, but: Option<usize>) -> (Vec<Matcher>, Vec<String>) {
        let (mut matchers, mut labels) = (Vec::new(), Vec::new());
        let mut add = |label: &str, op: MatchOp, value: &str| {
            // A pattern that is not whole yet takes nothing away.
            matchers.extend(Matcher::new(label, op, value).ok());
        };
        if let Some(name) = open.checked_sub(1).filter(|at| self.kind_at(*at) == Some(Kind::Word)) {
            add("__name__", MatchOp::Equal, self.word_at(name));
        } else if self.picks_labels(open) && !self.names_metric(open) {
            add("__name__", MatchOp::Equal, "target_info");
        }
        let mut at = open + 1;
        while at < self.tokens.len() && !self.is_mark(at, &["}"]) {
            let op = match self.word_at(at + 1) {
                "=" => MatchOp::Equal,
                "!=" => MatchOp::NotEqual,
                "=~" => MatchOp::Matches,
                "!~" => MatchOp::MatchesNot,
                _ => {
                    at += 1;
                    continue;
                }
            };
            if but != Some(at)
                && let Some((value, _)) = quoted(self.word_at(at + 2))
            {
                let label = self.label(at);
                add(&label, op, &value);
                labels.push(label);
            }
            at += 3;
        }
        (matchers, labels)
    }

    /// Whether the braces that token `open` opens are the second argument of `info`.
    fn picks_labels(&self, open: usize) -> bool {
        let is_second = open.checked_sub(1).is_some_and(|at| self.is_mark(at, &[","]));
        is_second && matches!(self.around(open), Around::Arguments(Some(function)) if function == INFO)
    }

    /// Whether a condition on the metric's name is among those of the braces at token `open`.
    fn names_metric(&self, open: usize) -> bool {
        let end = (open + 1..self.tokens.len()).find(|at| self.is_mark(*at, &["}"]));
        let mut inside = open + 1..end.unwrap_or(self.tokens.len());
        inside.any(|at| self.label(at) == "__name__" && self.is_mark(at + 1, &COMPARISONS))
    }

    /// The cursor is in a text: the value of a label, or anything.
    fn inside_text(&self, token: Token) -> Option<Place> {
        let Around::Matchers(open) = self.around(self.done) else { return None };
        let comparison = self.last().filter(|at| self.is_mark(*at, &COMPARISONS))?;
        let label = comparison.checked_sub(1).filter(|at| *at > open)?;
        let text = token.text(self.text);
        let quote = text.chars().next()?;
        let (start, mut end) = (token.start as usize + 1, token.end as usize);
        let ends = quoted(text).is_some_and(|(_, rest)| rest.is_empty());
        // A quote further on that belongs to another text: this one has no end yet.
        let rest = &self.text[self.cursor..end];
        let closed = ends && self.cursor < end && !rest.contains(['{', '}', '=', ',', '\n']);
        if ends && self.cursor == end {
            return None;
        }
        end = if closed { end - 1 } else { self.cursor };
        let pattern = self.is_pattern(comparison);
        let typed = &self.text[start.min(self.cursor)..self.cursor];
        let from = if pattern { typed.rfind('|').map_or(start, |at| start + at + 1) } else { start };
        let typed = &self.text[from..self.cursor];
        let plain = if quote == '`' {
            typed.to_owned()
        } else {
            quoted(&format!("{quote}{typed}{quote}")).map_or_else(|| typed.to_owned(), |(text, _)| text)
        };
        let typed = if pattern { plain.replace('\\', "") } else { plain };
        let form = ValueForm { quote: Some(quote), closed, pattern };
        let of = self.matchers(open, Some(label)).0;
        Some(Place { wants: Wants::Value { label: self.label(label), of, form }, replaces: from..end, typed })
    }

    fn in_expression(&self, function: Option<String>) -> Wants {
        let expression = |words: Vec<WordPlace>| Wants::Expression { function: function.clone(), words };
        let Some(last) = self.last() else { return expression(Vec::new()) };
        if self.is_word(last, &["offset"]) {
            return Wants::Duration;
        }
        match self.kind_at(last) {
            Some(Kind::Mark) => match self.word_at(last) {
                "@" => Wants::Words(vec![WordPlace::Moment]),
                "-" | "+" if last.checked_sub(1).is_some_and(|at| self.is_word(at, &["offset"])) => {
                    Wants::Duration
                }
                ")" => self.behind_brackets(last, expression),
                "}" | "]" => Wants::Words(vec![WordPlace::AfterVector]),
                "(" | "," => expression(Vec::new()),
                _ if last == 0 => expression(Vec::new()),
                _ => expression(vec![WordPlace::AfterOperator]),
            },
            Some(Kind::Word) if self.is_word(last, &["and", "or", "unless", "atan2"]) => {
                expression(vec![WordPlace::AfterOperator])
            }
            Some(Kind::Word) if self.is_word(last, &["bool"]) => expression(Vec::new()),
            Some(Kind::Word) if self.is_word(last, &["group_left", "group_right"]) => expression(Vec::new()),
            Some(Kind::Word) if is_aggregation(self.word_at(last)) => Wants::Words(vec![WordPlace::Grouping]),
            Some(Kind::Number) if last > 0 && self.is_word(last - 1, &["offset"]) => {
                Wants::Words(vec![WordPlace::AfterVector])
            }
            _ => Wants::Words(vec![WordPlace::AfterVector]),
        }
    }

    fn behind_brackets(&self, last: usize, expression: impl Fn(Vec<WordPlace>) -> Wants) -> Wants {
        let before = self.opener(last).and_then(|open| open.checked_sub(1));
        let Some(before) = before else { return Wants::Words(vec![WordPlace::AfterVector]) };
        if self.is_word(before, &["on", "ignoring"]) {
            return expression(vec![WordPlace::AfterMatching]);
        }
        if self.is_word(before, &["group_left", "group_right"]) {
            return expression(Vec::new());
        }
        if self.is_word(before, &["by", "without"]) {
            // `sum by (x)` waits for its argument, `sum(y) by (x)` has it.
            let of = before.checked_sub(1).filter(|at| is_aggregation(self.word_at(*at)));
            return if of.is_some() { Wants::Nothing } else { Wants::Words(vec![WordPlace::AfterVector]) };
        }
        if is_aggregation(self.word_at(before)) {
            return Wants::Words(vec![WordPlace::Grouping, WordPlace::AfterVector]);
        }
        Wants::Words(vec![WordPlace::AfterVector])
    }

    /// Selectors of the whole query, each as its matchers.
    fn metrics(&self) -> Vec<Vec<Matcher>> {
        let mut found: Vec<Vec<Matcher>> = Vec::new();
        // Brackets that are open, and whether names inside are those of labels.
        let mut open: Vec<bool> = Vec::new();
        for at in 0..self.tokens.len() {
            let in_expression = open.last() != Some(&true);
            let mut matchers = Vec::new();
            if self.is_mark(at, &["{"]) {
                matchers = self.matchers(at, None).0;
            } else if in_expression && self.is_metric(at) {
                matchers.extend(Matcher::new("__name__", MatchOp::Equal, self.word_at(at)).ok());
            }
            if !matchers.is_empty() && !found.contains(&matchers) {
                found.push(matchers);
            }
            if found.len() == METRICS_MAX {
                break;
            }
            match self.word_at(at) {
                "{" => open.push(true),
                "(" => open.push(at.checked_sub(1).is_some_and(|before| self.takes_labels(before))),
                ")" | "}" => _ = open.pop(),
                _ => {}
            }
        }
        found
    }

    /// Whether a word outside of brackets for labels is a metric that stands alone.
    fn is_metric(&self, at: usize) -> bool {
        let grammar = ["and", "or", "unless", "atan2", "bool", "offset", "group_left", "group_right"];
        let aggregates = is_aggregation(self.word_at(at)) && self.takes_labels(at + 1);
        let is_name = self.kind_at(at) == Some(Kind::Word) && !self.is_word(at, &grammar);
        is_name && !aggregates && !self.is_mark(at + 1, &["(", "{"])
    }
}

const COMPARISONS: [&str; 4] = ["=", "!=", "=~", "!~"];
