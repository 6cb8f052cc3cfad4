//! The shape of a query with the place of every part, which `promql-parser` does not keep; and the
//! syntax that is known but not supported.

use super::tokens::{Kind, Token};
use crate::error::Span;
use crate::functions::UNSUPPORTED;
use crate::notation::parse_duration_ms;
use crate::vocabulary::is_aggregation;

/// What a part of the query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Leaf,
    Paren,
    Unary,
    Binary,
    Call,
    Aggregate,
    Subquery,
}

/// One part: its place and the parts inside it, as `promql-parser` nests them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) shape: Shape,
    pub(super) span: Span,
    pub(super) inner: Vec<Part>,
}

/// Why there is no outline.
#[derive(Debug)]
pub(super) enum Stop {
    /// Known syntax that this engine leaves out.
    Unsupported(Span, String),
    /// No PromQL; place and reason.
    Unexpected(u32, String),
    /// PromQL that the parser must not see; place and reason.
    Refused(u32, String),
}

/// Outlines the whole query.
pub(super) fn outline(text: &str, tokens: &[Token]) -> Result<Part, Stop> {
    let mut walk = Walk { text, tokens, at: 0 };
    if tokens.is_empty() {
        return Err(Stop::Unexpected(0, "no expression found in input".to_owned()));
    }
    let part = walk.binary(0)?;
    match walk.token() {
        None => Ok(part),
        Some(token) => Err(walk.unexpected(token, "after the end of the expression")),
    }
}

struct Walk<'t> {
    text: &'t str,
    tokens: &'t [Token],
    at: usize,
}

impl<'t> Walk<'t> {
    fn token(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn peek(&self) -> &'t str {
        self.token().map_or("", |token| token.text(self.text))
    }

    /// Whether the next token is this word (in any case) or mark.
    fn sees(&self, what: &str) -> bool {
        self.token().is_some_and(|token| token.kind != Kind::Text) && self.peek().eq_ignore_ascii_case(what)
    }

    fn take(&mut self, what: &str) -> bool {
        let found = self.sees(what);
        self.at += usize::from(found);
        found
    }

    fn here(&self) -> u32 {
        self.token().map_or(self.text.len() as u32, |token| token.start)
    }

    /// End of the token before.
    fn end(&self) -> u32 {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |token| token.end)
    }

    fn unexpected(&self, token: Token, wanted: &str) -> Stop {
        Stop::Unexpected(token.start, format!("unexpected `{}` {wanted}", token.text(self.text)))
    }

    fn expect(&mut self, what: &str, wanted: &str) -> Result<(), Stop> {
        if self.take(what) {
            return Ok(());
        }
        Err(match self.token() {
            Some(token) => self.unexpected(token, &format!("{wanted}, expected `{what}`")),
            None => {
                Stop::Unexpected(self.here(), format!("unexpected end of input {wanted}, expected `{what}`"))
            }
        })
    }

    /// Precedence of the operator that comes next.
    fn precedence(&self) -> Option<u8> {
        if self.token().is_none_or(|token| token.kind == Kind::Text) {
            return None;
        }
        match self.peek().to_ascii_lowercase().as_str() {
            "or" => Some(1),
            "and" | "unless" => Some(2),
            "==" | "!=" | ">" | "<" | ">=" | "<=" | ">/" | "</" => Some(3),
            "+" | "-" => Some(4),
            "*" | "/" | "%" | "atan2" => Some(5),
            "^" => Some(6),
            _ => None,
        }
    }

    fn binary(&mut self, least: u8) -> Result<Part, Stop> {
        let mut left = self.unary()?;
        while let Some(precedence) = self.precedence().filter(|precedence| *precedence >= least.max(1)) {
            let operator = self.peek();
            if matches!(operator, ">/" | "</") {
                let span = Span { start: self.here(), end: self.here() + 2 };
                return Err(Stop::Unsupported(
                    span,
                    format!(
                        "the operator `{operator}`: it trims native histograms only, select classic buckets by `le`"
                    ),
                ));
            }
            self.at += 1;
            self.modifiers()?;
            let right = self.binary(if precedence == 6 { 6 } else { precedence + 1 })?;
            let span = Span { start: left.span.start, end: right.span.end };
            left = Part { shape: Shape::Binary, span, inner: vec![left, right] };
        }
        Ok(left)
    }

    /// `bool`, `on (...)`, `group_left (...)`, `fill (...)`.
    fn modifiers(&mut self) -> Result<(), Stop> {
        self.take("bool");
        loop {
            let opens = self.tokens.get(self.at + 1).is_some_and(|next| next.text(self.text) == "(");
            let sees = |words: &[&str]| words.iter().any(|word| self.sees(word));
            // Without brackets these words are names, except for two.
            if opens
                && sees(&["on", "ignoring", "group_left", "group_right", "fill", "fill_left", "fill_right"])
            {
                self.at += 1;
                self.brackets("(", ")")?;
            } else if sees(&["group_left", "group_right"]) {
                self.at += 1;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips a bracketed list.
    fn brackets(&mut self, open: &str, close: &str) -> Result<(), Stop> {
        self.expect(open, "here")?;
        while !self.sees(close) {
            if self.token().is_none() {
                return self.expect(close, "inside brackets");
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn unary(&mut self) -> Result<Part, Stop> {
        let start = self.here();
        if self.take("-") || self.take("+") {
            let operand = self.binary(6)?;
            let span = Span { start, end: operand.span.end };
            return Ok(Part { shape: Shape::Unary, span, inner: vec![operand] });
        }
        let mut part = self.primary()?;
        loop {
            if self.sees("[") {
                part = self.range(part)?;
            } else if self.take("@") {
                self.instant()?;
            } else if self.take("offset") {
                self.offset()?;
            } else if (self.sees("anchored") || self.sees("smoothed")) && self.ends_there() {
                let span = Span { start: self.here(), end: self.here() + 8 };
                return Err(Stop::Unsupported(
                    span,
                    format!(
                        "the experimental modifier `{}`: leave it out, `rate` and `increase` extrapolate",
                        self.peek().to_ascii_lowercase()
                    ),
                ));
            } else {
                return Ok(part);
            }
            part.span.end = self.end();
        }
    }

    /// Whether what follows a word can't be its own expression, so that the word is a modifier.
    fn ends_there(&self) -> bool {
        !matches!(self.tokens.get(self.at + 1), Some(next) if next.text(self.text) == "{")
    }

    fn range(&mut self, part: Part) -> Result<Part, Stop> {
        self.at += 1;
        let mut subquery = false;
        while !self.sees("]") {
            let Some(token) = self.token() else {
                return Err(Stop::Unexpected(self.here(), "missing `]` after the range".to_owned()));
            };
            match (token.kind, token.text(self.text)) {
                (Kind::Number, text) => check_duration(token, text)?,
                (Kind::Mark, ":") => subquery = true,
                (Kind::Word, text) if text.starts_with(':') => return Err(duration_expression(token)),
                (Kind::Mark, "+" | "-" | "*" | "/" | "%" | "^" | "(" | ")") | (Kind::Word, _) => {
                    return Err(duration_expression(token));
                }
                _ => return Err(self.unexpected(token, "in a range, expected a duration such as `5m`")),
            }
            self.at += 1;
        }
        self.at += 1;
        if !subquery {
            return Ok(part);
        }
        let span = Span { start: part.span.start, end: self.end() };
        Ok(Part { shape: Shape::Subquery, span, inner: vec![part] })
    }

    fn instant(&mut self) -> Result<(), Stop> {
        while self.take("-") || self.take("+") {}
        let Some(token) = self.token() else {
            return Err(Stop::Unexpected(self.here(), "missing a time after `@`".to_owned()));
        };
        let words = ["start", "end", "inf", "nan"];
        let word = words.iter().any(|word| self.sees(word));
        if token.kind == Kind::Number || word {
            self.at += 1;
            if self.sees("(") { self.brackets("(", ")") } else { Ok(()) }
        } else {
            Err(self.unexpected(token, "after `@`, expected seconds since 1970, `start()` or `end()`"))
        }
    }

    fn offset(&mut self) -> Result<(), Stop> {
        while self.take("-") || self.take("+") {}
        match self.token() {
            Some(token) if token.kind == Kind::Number => {
                self.at += 1;
                check_duration(token, token.text(self.text))
            }
            Some(token) if token.kind == Kind::Word || token.text(self.text) == "(" => {
                Err(duration_expression(token))
            }
            Some(token) => Err(self.unexpected(token, "after `offset`, expected a duration such as `5m`")),
            None => Err(Stop::Unexpected(self.here(), "missing a duration after `offset`".to_owned())),
        }
    }

    fn primary(&mut self) -> Result<Part, Stop> {
        let Some(token) = self.token() else {
            return Err(Stop::Unexpected(
                self.here(),
                "unexpected end of input, expected an expression".to_owned(),
            ));
        };
        let start = token.start;
        let leaf = |walk: &Self| Part {
            shape: Shape::Leaf,
            span: Span { start, end: walk.end() },
            inner: Vec::new(),
        };
        match (token.kind, token.text(self.text)) {
            (Kind::Number | Kind::Text, _) => {
                self.at += 1;
                Ok(leaf(self))
            }
            (Kind::Mark, "{") => {
                self.brackets("{", "}")?;
                Ok(leaf(self))
            }
            (Kind::Mark, "(") => {
                self.at += 1;
                let inner = self.binary(0)?;
                self.expect(")", "in parentheses")?;
                let span = Span { start, end: self.end() };
                Ok(Part { shape: Shape::Paren, span, inner: vec![inner] })
            }
            (Kind::Word, word) => {
                self.at += 1;
                let aggregator = is_aggregation(word);
                if aggregator && (self.sees("(") || self.sees("by") || self.sees("without")) {
                    return self.aggregate(start);
                }
                if self.sees("(") {
                    if let Some((name, instead)) = UNSUPPORTED.iter().find(|(name, _)| *name == word) {
                        let span = Span { start, end: token.end };
                        return Err(Stop::Unsupported(span, format!("the function `{name}`: {instead}")));
                    }
                    let inner = self.arguments(word)?;
                    let span = Span { start, end: self.end() };
                    return Ok(Part { shape: Shape::Call, span, inner });
                }
                if self.sees("{") {
                    self.brackets("{", "}")?;
                }
                Ok(leaf(self))
            }
            _ => Err(self.unexpected(token, "where an expression should start")),
        }
    }

    fn grouping(&mut self) -> Result<bool, Stop> {
        if self.take("by") || self.take("without") {
            self.brackets("(", ")")?;
            return Ok(true);
        }
        Ok(false)
    }

    fn aggregate(&mut self, start: u32) -> Result<Part, Stop> {
        let grouped = self.grouping()?;
        let inner = self.arguments("the aggregation")?;
        if !grouped {
            self.grouping()?;
        }
        Ok(Part { shape: Shape::Aggregate, span: Span { start, end: self.end() }, inner })
    }

    fn arguments(&mut self, of: &str) -> Result<Vec<Part>, Stop> {
        let mut inner = Vec::new();
        self.expect("(", &format!("after {of}"))?;
        while !self.take(")") {
            inner.push(self.binary(0)?);
            if !self.take(",") {
                self.expect(")", &format!("in the arguments of {of}"))?;
                break;
            }
        }
        Ok(inner)
    }
}

fn duration_expression(token: Token) -> Stop {
    let span = Span { start: token.start, end: token.end };
    Stop::Unsupported(
        span,
        "experimental duration expressions: write a plain duration such as `5m`".to_owned(),
    )
}

/// The parser takes durations that no time holds, and drops parts of others.
fn check_duration(token: Token, text: &str) -> Result<(), Stop> {
    /// Nanoseconds have to fit 63 bits.
    const MILLIS_MAX: i64 = i64::MAX / 1_000_000;
    let count_fits = |digits: &str| digits.is_empty() || digits.parse::<u32>().is_ok();
    let plain = text.parse::<f64>().is_ok();
    let fits = parse_duration_ms(text).is_some_and(|millis| (0..=MILLIS_MAX).contains(&millis))
        && (plain || text.split(|c: char| !c.is_ascii_digit()).all(count_fits));
    if fits {
        return Ok(());
    }
    let reason = format!("`{text}` is no duration up to 292 years: write one such as `5m`");
    Err(Stop::Refused(token.start, reason))
}
