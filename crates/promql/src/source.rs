//! Where samples come from: the trait a store implements, and the matchers that select from it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, RolledUp, RollupAsk, RollupBucket};
use regex::Regex;

/// How a [`Matcher`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends.
    Matches,
    /// `!~`, anchored at both ends.
    MatchesNot,
}

/// One condition on a label. A label that a series lacks counts as the empty text.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The label's name; a metric's name is `__name__`.
    pub name: Box<str>,
    /// How it is compared.
    pub op: MatchOp,
    /// The text or pattern, as it was written.
    pub value: Box<str>,
    pattern: Option<Regex>,
}

/// A pattern that can't be compiled, or would need too much memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a usable regular expression: {reason}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

/// Most bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 10 << 20;

/// Compiles `pattern` so that it must fit the whole text; `.` fits newlines too, as in Prometheus.
pub(crate) fn whole_pattern(pattern: &str) -> Result<Regex, PatternError> {
    let compile = |text: &str| {
        regex::RegexBuilder::new(&format!("^(?s:{text})$")).size_limit(PATTERN_BYTES_MAX).build()
    };
    let escaped = |error| compile(&escape_lone_braces(pattern)).ok().ok_or(error);
    compile(pattern).or_else(escaped).map_err(|error| {
        let reason = match &error {
            regex::Error::Syntax(text) => {
                text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            other => other.to_string(),
        };
        PatternError { pattern: pattern.to_owned(), reason }
    })
}

/// Escapes braces that open no repetition, which Go's dialect reads as themselves.
fn escape_lone_braces(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                out.push(c);
                if let Some(next) = rest.chars().next() {
                    out.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
            '{' => {
                let repetition = rest.find('}').is_some_and(|end| {
                    let inner = &rest[..end];
                    inner.starts_with(|c: char| c.is_ascii_digit())
                        && inner.chars().all(|c| c.is_ascii_digit() || c == ',')
                        && inner.matches(',').count() <= 1
                });
                out.push_str(if repetition { "{" } else { "\\{" });
            }
            _ => out.push(c),
        }
    }
    out
}

impl Matcher {
    /// A condition on the label `name`.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, PatternError> {
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Matches | MatchOp::MatchesNot => Some(whole_pattern(value)?),
        };
        Ok(Self { name: name.into(), op, value: value.into(), pattern })
    }

    /// Whether a label with the value `text` fits.
    pub fn fits(&self, text: &str) -> bool {
        match (self.op, &self.pattern) {
            (MatchOp::Equal, _) => *self.value == *text,
            (MatchOp::NotEqual, _) => *self.value != *text,
            (MatchOp::Matches, Some(pattern)) => pattern.is_match(text),
            (MatchOp::MatchesNot, Some(pattern)) => !pattern.is_match(text),
            (MatchOp::Matches | MatchOp::MatchesNot, None) => false,
        }
    }

    /// Whether the series `labels` fits.
    pub fn fits_series(&self, labels: &Labels) -> bool {
        self.fits(labels.get(&self.name).unwrap_or_default())
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl fmt::Display for Matcher {
    /// As a selector writes it: `job="api"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Matches => "=~",
            MatchOp::MatchesNot => "!~",
        };
        write!(f, "{}{op}{:?}", self.name, self.value)
    }
}

/// What one selector of a query asks for.
#[derive(Debug, Clone)]
pub struct Select<'a> {
    /// All must fit.
    pub matchers: &'a [Matcher],
    /// Earliest time of interest, nanoseconds, included.
    pub from_ns: i64,
    /// Latest time of interest, nanoseconds, included.
    pub to_ns: i64,
}

/// Facts about a chunk, known without decoding it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Samples.
    pub count: u32,
    /// Samples whose value is NaN or infinite, stale markers among them; the figures below leave
    /// them out.
    pub non_finite: u32,
    /// First and last time, nanoseconds.
    pub time_ns: (i64, i64),
    /// Value of the first sample.
    pub first: f64,
    /// Value of the last sample.
    pub last: f64,
    /// Least finite value, +inf when there is none.
    pub min: f64,
    /// Greatest finite value, -inf when there is none.
    pub max: f64,
}

impl Summary {
    /// Of columns of equal length in order of time; `None` when they are empty.
    pub fn of(times_ns: &[i64], values: &[f64]) -> Option<Self> {
        let finite = values.iter().copied().filter(|value| value.is_finite());
        Some(Self {
            count: u32::try_from(values.len()).unwrap_or(u32::MAX),
            non_finite: values.iter().filter(|value| !value.is_finite()).count() as u32,
            time_ns: (*times_ns.first()?, *times_ns.last()?),
            first: *values.first()?,
            last: *values.last()?,
            min: finite.clone().fold(f64::INFINITY, f64::min),
            max: finite.fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Samples as columns of equal length, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// Nanoseconds since the Unix epoch, strictly rising.
    pub times_ns: Vec<i64>,
    /// Values; [`model::is_stale_marker`] ends a series.
    pub values: Vec<f64>,
}

/// A piece of a series, in order of time; decoded only when asked.
pub trait Chunk {
    /// What is known without decoding.
    fn summary(&self) -> Summary;
    /// Appends all its samples to `into`.
    fn decode(&self, into: &mut Columns) -> Result<(), SourceError>;
}

/// One series that fits a selector. Read by one thread at a time, each by another perhaps.
pub trait Series: Send + Sync {
    /// Its labels, the metric's name among them.
    fn labels(&self) -> Arc<Labels>;
    /// Hands out the chunks that overlap `from_ns..=to_ns`, in order of time and without overlap. A
    /// chunk at an edge may reach beyond the range; samples out there are ignored.
    fn chunks(
        &self,
        from_ns: i64,
        to_ns: i64,
        visit: &mut dyn FnMut(&dyn Chunk) -> ControlFlow<()>,
    ) -> Result<(), SourceError>;
    /// Appends the roll-ups that hold anything of what is asked for, in order of time and without
    /// overlap: always where single samples are no more, and elsewhere only where all buckets end at
    /// multiples of a width that divides `align_ns` and hold everything that there is. A bucket does
    /// not hold its start and holds its end. [`Series::chunks`] is then asked from
    /// [`RolledUp::raw_from_ns`] on.
    fn rollups(&self, ask: &RollupAsk, into: &mut Vec<RollupBucket>) -> Result<RolledUp, SourceError> {
        let _ = into;
        Ok(RolledUp { raw_from_ns: ask.from_ns, gone_width_ns: None })
    }
}

/// Why a source could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SourceError {
    /// What went wrong, in words for the user.
    pub reason: String,
}

/// Where series are looked up. The server implements it over its store, tests over memory.
pub trait Source: Sync {
    /// The series that fit `select`, in any order, each labels once. A series without samples in
    /// the range may be among them.
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError>;
}
