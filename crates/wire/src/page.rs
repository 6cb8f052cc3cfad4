//! What a scraped page holds, whichever text format it is written in, and the bounds it keeps.
//!
//! [`crate::exposition`] and [`crate::openmetrics`] walk a page once and hand its entries out one by
//! one. Everything is borrowed from the page; only text with escapes in it is copied, so a page of a
//! million samples costs one row of memory. Histograms and summaries are ordinary series here.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

use model::MetricKind;

/// Most a page may ask for. The defaults are far above what an exporter writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Longest line, bytes.
    pub line_bytes: usize,
    /// Most labels of one series, its name not counted.
    pub labels: usize,
    /// Longest name, label name or label value, bytes as written.
    pub text_bytes: usize,
    /// Most samples.
    pub samples: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { line_bytes: 1 << 20, labels: 128, text_bytes: 64 << 10, samples: 2_000_000 }
    }
}

/// A label of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label<'a> {
    /// Its name, any UTF-8 where the page quotes it.
    pub name: Cow<'a, str>,
    /// Its value; may be empty, which is the same as no label.
    pub value: Cow<'a, str>,
}

/// One observation of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// The series as the page spells it. The same text is the same series, so it may key a cache.
    pub series: &'a str,
    /// The metric's name.
    pub name: Cow<'a, str>,
    /// Labels in the page's order; names are unique and none is `__name__`.
    pub labels: Vec<Label<'a>>,
    /// The value. A NaN is the ordinary one, never the marker of staleness.
    pub value: f64,
    /// The sample's own time where the page gives one, milliseconds since the epoch.
    pub time_ms: Option<i64>,
    /// An example of what was observed (OpenMetrics only).
    pub exemplar: Option<Exemplar<'a>>,
}

/// An example of what a sample counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar<'a> {
    /// Its labels, such as `trace_id`.
    pub labels: Vec<Label<'a>>,
    /// The observed value.
    pub value: f64,
    /// When, milliseconds since the epoch.
    pub time_ms: Option<i64>,
}

/// One thing that a page says.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry<'p, 'a> {
    /// A sample. The row is reused: copy what is to be kept.
    Sample(&'p Sample<'a>),
    /// A metric's type.
    Kind {
        /// The metric (its family's name).
        metric: Cow<'a, str>,
        /// What it is.
        kind: MetricKind,
    },
    /// A metric's help text.
    Help {
        /// The metric.
        metric: Cow<'a, str>,
        /// Any text.
        text: Cow<'a, str>,
    },
    /// A metric's unit (OpenMetrics only).
    Unit {
        /// The metric.
        metric: Cow<'a, str>,
        /// Such as `seconds`; may be empty.
        unit: &'a str,
    },
}

/// Why a page can't be read, and where. What came before was handed out and is to be dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct PageError {
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: Fault,
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not text.
    #[error("the page is not UTF-8")]
    Utf8,
    /// Something else was wanted.
    #[error("{wanted} is wanted, {found} found")]
    Syntax {
        /// What the format asks for here.
        wanted: &'static str,
        /// What stands here.
        found: Found,
    },
    /// A label twice in one series.
    #[error("the label `{0}` comes twice")]
    RepeatedLabel(String),
    /// A series without a metric name, or with two.
    #[error("{0}")]
    Name(&'static str),
    /// A bound of [`PageLimits`].
    #[error("{what} over the limit of {limit}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
    /// An OpenMetrics unit that its metric's name does not end in.
    #[error("the unit `{0}` is not the end of the metric's name")]
    Unit(String),
}

/// What stands where something else is wanted, cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing more.
    End,
    /// The end of a line.
    LineEnd,
    /// This text.
    Text(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the end of the page"),
            Self::LineEnd => f.write_str("the end of the line"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// A fault at a byte of the page.
pub(crate) type Failure = (usize, Fault);

/// A place in a page.
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a str,
    bytes: &'a [u8],
    pub(crate) at: usize,
    pub(crate) limits: PageLimits,
    /// OpenMetrics: exactly one space between tokens.
    strict: bool,
    samples: usize,
}

/// Characters of what was found that an error repeats.
const FOUND_CHARS: usize = 24;

/// What a line was.
pub(crate) enum Line {
    /// Nothing that is handed out.
    Empty,
    /// Handed out, and whether more is wanted.
    Told(ControlFlow<()>),
    /// The page's own end.
    End,
}

/// Walks `page`, letting `line` read each line, and turns byte places into lines and columns.
pub(crate) fn walk<'a>(
    page: &'a [u8],
    limits: PageLimits,
    strict: bool,
    mut line: impl FnMut(&mut Cursor<'a>) -> Result<Line, Failure>,
) -> Result<(), PageError> {
    let text = std::str::from_utf8(page).map_err(|e| locate(page, (e.valid_up_to(), Fault::Utf8)))?;
    let mut cursor = Cursor { text, bytes: page, at: 0, limits, strict, samples: 0 };
    let mut lines = || loop {
        let start = cursor.at;
        let found = line(&mut cursor)?;
        if matches!(found, Line::End) {
            return Ok(());
        }
        cursor.check_line(start)?;
        if matches!(found, Line::Told(ControlFlow::Break(()))) {
            return Ok(());
        }
        if !cursor.eat(b'\n') && (strict || cursor.peek().is_some()) {
            return cursor.wanted("the end of the line");
        }
    };
    lines().map_err(|failure| locate(page, failure))
}

fn locate(page: &[u8], (at, what): Failure) -> PageError {
    let before = &page[..at.min(page.len())];
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    PageError {
        line: before.split(|b| *b == b'\n').count(),
        column: String::from_utf8_lossy(&before[line_start..]).chars().count() + 1,
        what,
    }
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

impl<'a> Cursor<'a> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(crate) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// What separates two tokens: one space, or any blanks where the format is lenient.
    fn separator(&mut self) -> Result<(), Failure> {
        if self.strict && !self.eat(b' ') {
            return self.wanted("a space");
        }
        self.lenient_blanks();
        Ok(())
    }

    fn lenient_blanks(&mut self) {
        if !self.strict {
            self.skip_blanks();
        }
    }

    /// A syntax error at the current place.
    pub(crate) fn wanted<T>(&self, wanted: &'static str) -> Result<T, Failure> {
        let found = match self.peek() {
            None => Found::End,
            Some(b'\n') => Found::LineEnd,
            Some(_) => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                Found::Text(rest.chars().take_while(|c| *c != '\n').take(FOUND_CHARS).collect())
            }
        };
        Err((self.at, Fault::Syntax { wanted, found }))
    }

    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn bounded(&self, from: usize) -> Result<(), Failure> {
        let limit = self.limits.text_bytes;
        if self.at - from > limit {
            return Err((from, Fault::Limit { what: "bytes in a name or a label", limit }));
        }
        Ok(())
    }

    /// The line that began at `start` ended before the current place.
    pub(crate) fn check_line(&self, start: usize) -> Result<(), Failure> {
        let limit = self.limits.line_bytes;
        if self.at - start > limit {
            return Err((start, Fault::Limit { what: "bytes in a line", limit }));
        }
        Ok(())
    }

    /// An unquoted name, colons only where `colons`.
    fn name(&mut self, colons: bool, wanted: &'static str) -> Result<&'a str, Failure> {
        let start = self.at;
        let fits = |b: u8| is_name_start(b) || (colons && b == b':');
        if !self.peek().is_some_and(fits) {
            return self.wanted(wanted);
        }
        while self.peek().is_some_and(|b| fits(b) || b.is_ascii_digit()) {
            self.at += 1;
        }
        self.bounded(start)?;
        Ok(&self.text[start..self.at])
    }

    /// A quoted text with its escapes undone; the opening quote is the current byte.
    fn quoted(&mut self) -> Result<Cow<'a, str>, Failure> {
        let start = self.at + 1;
        let mut has_escapes = false;
        self.at = start;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                    if !matches!(self.peek(), None | Some(b'\n')) {
                        self.at += 1;
                    }
                }
                None | Some(b'\n') => return self.wanted("a closing quote"),
                Some(_) => self.at += 1,
            }
        }
        self.bounded(start)?;
        let raw = &self.text[start..self.at];
        self.at += 1;
        Ok(if has_escapes { Cow::Owned(unescape(raw, true)) } else { Cow::Borrowed(raw) })
    }

    /// A metric's name behind `# TYPE` and the like, quoted or not.
    pub(crate) fn metric_name(&mut self) -> Result<Cow<'a, str>, Failure> {
        if self.peek() == Some(b'"') {
            self.quoted()
        } else {
            self.name(true, "a metric name").map(Cow::Borrowed)
        }
    }

    /// The rest of the line without its end.
    pub(crate) fn rest_of_line(&mut self) -> Result<&'a str, Failure> {
        let start = self.at;
        self.at =
            self.bytes[start..].iter().position(|b| *b == b'\n').map_or(self.bytes.len(), |n| start + n);
        self.check_line(start)?;
        Ok(&self.text[start..self.at])
    }

    /// A series and its value into `sample`, as far as both formats are the same.
    pub(crate) fn sample(&mut self, sample: &mut Sample<'a>) -> Result<(), Failure> {
        self.samples += 1;
        let limit = self.limits.samples;
        if self.samples > limit {
            return Err((self.at, Fault::Limit { what: "samples of a page", limit }));
        }
        self.series(sample)?;
        sample.value = self.number("a value")?;
        Ok(())
    }

    /// `name{labels}` or `{"name",labels}` into `sample`.
    fn series(&mut self, sample: &mut Sample<'a>) -> Result<(), Failure> {
        let start = self.at;
        sample.labels.clear();
        let mut name = None;
        if self.peek() != Some(b'{') {
            name = Some(Cow::Borrowed(self.name(true, "a metric name")?));
            self.lenient_blanks();
        }
        let mut end = self.at;
        if self.eat(b'{') {
            self.labels(&mut sample.labels, Some(&mut name))?;
            end = self.at;
        }
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err((start, Fault::Name("a series without a metric name")));
        };
        sample.name = name;
        sample.series = self.text[start..end].trim_end_matches([' ', '\t']);
        Ok(())
    }

    /// Labels up to the closing brace; a lone quoted text is the metric's name where `name` is given.
    fn labels(
        &mut self,
        into: &mut Vec<Label<'a>>,
        mut name: Option<&mut Option<Cow<'a, str>>>,
    ) -> Result<(), Failure> {
        loop {
            self.lenient_blanks();
            if self.eat(b'}') {
                return Ok(());
            }
            let start = self.at;
            let is_quoted = self.peek() == Some(b'"');
            let key = if is_quoted {
                self.quoted()?
            } else {
                Cow::Borrowed(self.name(false, "a label name or `}`")?)
            };
            self.lenient_blanks();
            if is_quoted && matches!(self.peek(), Some(b',' | b'}')) {
                let Some(name) = name.as_deref_mut() else { return self.wanted("`=`") };
                if name.replace(key).is_some() {
                    return Err((start, Fault::Name("a series with two metric names")));
                }
            } else {
                self.label(start, key, into)?;
            }
            self.lenient_blanks();
            if !self.eat(b',') && self.peek() != Some(b'}') {
                return self.wanted("`,` or `}`");
            }
        }
    }

    /// `="value"` behind a label's name.
    fn label(&mut self, start: usize, name: Cow<'a, str>, into: &mut Vec<Label<'a>>) -> Result<(), Failure> {
        if !self.eat(b'=') {
            return self.wanted("`=`");
        }
        self.lenient_blanks();
        if self.peek() != Some(b'"') {
            return self.wanted("a quoted label value");
        }
        let value = self.quoted()?;
        if name.is_empty() || name == "__name__" {
            return Err((start, Fault::Name("a label name that can't be used")));
        }
        if into.iter().any(|label| label.name == name) {
            return Err((start, Fault::RepeatedLabel(name.into_owned())));
        }
        if into.len() >= self.limits.labels {
            let limit = self.limits.labels;
            return Err((start, Fault::Limit { what: "labels of a series", limit }));
        }
        into.push(Label { name, value });
        Ok(())
    }

    /// A run of characters up to a blank or the line's end.
    fn token(&mut self) -> &'a str {
        let start = self.at;
        while !matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n')) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// A number behind a separator.
    pub(crate) fn number(&mut self, wanted: &'static str) -> Result<f64, Failure> {
        self.separator()?;
        let start = self.at;
        let token = self.token();
        parse_number(token).map_or_else(
            || {
                self.at = start;
                self.wanted(wanted)
            },
            Ok,
        )
    }

    /// Whole milliseconds, where the line goes on.
    pub(crate) fn milliseconds(&mut self) -> Result<Option<i64>, Failure> {
        self.skip_blanks();
        if matches!(self.peek(), None | Some(b'\n')) {
            return Ok(None);
        }
        let start = self.at;
        if let Ok(time) = self.token().parse() {
            self.skip_blanks();
            return Ok(Some(time));
        }
        self.at = start;
        self.wanted("a timestamp in milliseconds or the end of the line")
    }

    /// Seconds behind one space, as milliseconds; none where the line ends or an exemplar begins.
    pub(crate) fn seconds(&mut self) -> Result<Option<i64>, Failure> {
        if self.peek() != Some(b' ') || self.bytes.get(self.at + 1) == Some(&b'#') {
            return Ok(None);
        }
        let start = self.at;
        let seconds = self.number("a timestamp in seconds")?;
        let ms = (seconds * 1000.0).round();
        if !ms.is_finite() || ms.abs() > 9.2e18 {
            self.at = start;
            return self.wanted("a finite timestamp in seconds");
        }
        Ok(Some(ms as i64))
    }

    /// ` # {labels} value [seconds]`, where it is there.
    pub(crate) fn exemplar(&mut self) -> Result<Option<Exemplar<'a>>, Failure> {
        if !self.text[self.at..].starts_with(" # ") {
            return Ok(None);
        }
        self.at += 3;
        if !self.eat(b'{') {
            return self.wanted("`{` of an exemplar");
        }
        let mut labels = Vec::new();
        self.labels(&mut labels, None)?;
        let value = self.number("an exemplar's value")?;
        let time_ms = self.seconds()?;
        Ok(Some(Exemplar { labels, value, time_ms }))
    }
}

/// A number as Go reads it: no signed NaN, and what is too large for 64 bits is no infinity.
fn parse_number(token: &str) -> Option<f64> {
    let value: f64 = token.parse().ok()?;
    if value.is_nan() {
        return (!token.starts_with(['+', '-'])).then_some(f64::NAN);
    }
    let is_spelled_out = value.is_finite() || !token.bytes().any(|b| b.is_ascii_digit());
    is_spelled_out.then_some(value)
}

/// Undoes `\\`, `\n` and, where `quotes`, `\"`; other escapes stay as they are.
pub(crate) fn unescape(raw: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('\\') => out.push('\\'),
            Some('"') if quotes => out.push('"'),
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    out
}

/// An empty row to read into.
pub(crate) fn empty_row<'a>() -> Sample<'a> {
    Sample {
        series: "",
        name: Cow::Borrowed(""),
        labels: Vec::new(),
        value: 0.0,
        time_ms: None,
        exemplar: None,
    }
}
