//! Files of vocabularies, read with errors that name file, row and the key that was probably meant.

use std::fmt;

use model::{Desc, MetricKind, Trust, nearest};
use toml::{Table, Value};

use super::{Absent, Condition, Of, Rename, Rewrite, Row, Source, Transform};
use crate::canonical;

/// Why a file of a vocabulary can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyError(String);

impl fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for VocabularyError {}

type Read<T> = Result<T, VocabularyError>;

const FILE_KEYS: &[&str] = &["source", "row", "absent"];
const SOURCE_KEYS: &[&str] = &[
    "name",
    "title",
    "of",
    "url",
    "read",
    "marks",
    "marks_min",
    "only",
    "not",
    "rename",
    "drop",
    "blanks",
    "blanks_narrow",
    "switch",
];
const ROW_KEYS: &[&str] = &[
    "from",
    "id",
    "to",
    "kind",
    "scale",
    "per",
    "transform",
    "bit",
    "rank",
    "only",
    "not",
    "set",
    "rename",
    "drop",
    "since",
    "until",
    "on",
    "switch",
    "trust",
    "url",
    "note",
];
const ABSENT_KEYS: &[&str] = &["to", "why"];

/// The name of the source that a file is about.
pub(super) fn name(file: &str, text: &str) -> Read<String> {
    let root = parse(file, text)?;
    let source = At { place: format!("`{file}`, [source]"), table: table(file, &root, "source")? };
    let name = source.text("name")?;
    if name.is_empty() { Err(source.error("has no `name`")) } else { Ok(name) }
}

/// Reads a file. Of a source that is `known` it need not say again what it is, and its rows take the place
/// of those that have one of their names.
pub(super) fn source(file: &str, text: &str, known: Option<&Source>) -> Read<Source> {
    let root = parse(file, text)?;
    At { place: format!("`{file}`"), table: &root }.check(FILE_KEYS)?;
    let at = At { place: format!("`{file}`, [source]"), table: table(file, &root, "source")? };
    at.check(SOURCE_KEYS)?;
    let mut source = head(&at, known)?;
    let mut rows = Vec::new();
    for (number, row) in tables(file, &root, "row")?.into_iter().enumerate() {
        let mut row = self::row(&numbered(file, "row", number, row))?;
        if !row.on && row.switch.is_empty() {
            row.switch.clone_from(&source.switch);
        }
        rows.push(row);
    }
    source
        .rows
        .retain(|old| !rows.iter().any(|new: &Row| new.from.iter().any(|name| old.from.contains(name))));
    source.rows.extend(rows);
    for (number, row) in tables(file, &root, "absent")?.into_iter().enumerate() {
        let at = numbered(file, "absent", number, row);
        at.check(ABSENT_KEYS)?;
        let Some(to) = at.canonical()? else { return Err(at.error("has no `to`")) };
        source.absent.push(Absent { to, why: at.text("why")? });
    }
    Ok(source)
}

fn parse(file: &str, text: &str) -> Read<Table> {
    text.parse::<Table>().map_err(|error| {
        let place = error.span().map_or(String::new(), |span| {
            let line = text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!(", line {line}")
        });
        VocabularyError(format!("cannot read the vocabulary `{file}`{place}: {}", error.message()))
    })
}

fn table<'t>(file: &str, root: &'t Table, key: &str) -> Read<&'t Table> {
    root.get(key)
        .and_then(Value::as_table)
        .ok_or_else(|| VocabularyError(format!("the vocabulary `{file}` has no table `[{key}]`")))
}

fn tables<'t>(file: &str, root: &'t Table, key: &str) -> Read<Vec<&'t Table>> {
    let error =
        || VocabularyError(format!("`{key}` of the vocabulary `{file}` is no list: write `[[{key}]]`"));
    let Some(value) = root.get(key) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(error)?;
    list.iter().map(|value| value.as_table().ok_or_else(error)).collect()
}

fn numbered<'t>(file: &str, key: &str, number: usize, table: &'t Table) -> At<'t> {
    let name = match table.get("from") {
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        other => other.and_then(Value::as_str),
    };
    let named = name.map_or(String::new(), |name| format!(" (`{name}`)"));
    At { place: format!("`{file}`, [[{key}]] {}{named}", number + 1), table }
}

fn head(at: &At<'_>, known: Option<&Source>) -> Read<Source> {
    let has = |key: &str| at.table.contains_key(key);
    let mut source = match known {
        Some(known) => known.clone(),
        None => Source {
            name: at.text("name")?,
            title: at.text("name")?,
            of: Of::Engine,
            url: String::new(),
            read: String::new(),
            marks: Vec::new(),
            marks_min: 1,
            only: Vec::new(),
            rename: Vec::new(),
            drop: Vec::new(),
            blanks: Vec::new(),
            blanks_narrow: Vec::new(),
            switch: String::new(),
            rows: Vec::new(),
            absent: Vec::new(),
        },
    };
    let texts = [
        ("title", &mut source.title),
        ("url", &mut source.url),
        ("read", &mut source.read),
        ("switch", &mut source.switch),
    ];
    for (key, field) in texts {
        if has(key) {
            *field = at.text(key)?;
        }
    }
    if has("of") {
        source.of = at.word("of", &[("engine", Of::Engine), ("gpu", Of::Gpu)])?.unwrap_or(Of::Engine);
    }
    for (key, field) in [("marks", &mut source.marks), ("drop", &mut source.drop)] {
        if has(key) {
            *field = at.texts(key)?;
        }
    }
    if has("marks_min") {
        source.marks_min = usize::from(at.small("marks_min")?.unwrap_or(1));
    }
    if has("rename") {
        source.rename = at.renames()?;
    }
    if has("only") || has("not") {
        source.only = at.conditions()?;
    }
    for (key, field) in [("blanks", &mut source.blanks), ("blanks_narrow", &mut source.blanks_narrow)] {
        if has(key) {
            *field = at.numbers(key)?;
        }
    }
    if source.marks.is_empty() {
        return Err(at.error("has no `marks`: names by which its pages are known, such as `vllm:*`"));
    }
    Ok(source)
}

const KINDS: &[(&str, MetricKind)] = &[
    ("gauge", MetricKind::Gauge),
    ("counter", MetricKind::Counter),
    ("histogram", MetricKind::Histogram),
    ("summary", MetricKind::Summary),
    ("info", MetricKind::Info),
];
const TRUST: &[(&str, Trust)] = &[("A", Trust::A), ("B", Trust::B), ("C", Trust::C), ("D", Trust::D)];
const TRANSFORMS: &[(&str, Transform)] =
    &[("one", Transform::One), ("pcie_generation", Transform::PcieGeneration)];

fn row(at: &At<'_>) -> Read<Row> {
    at.check(ROW_KEYS)?;
    let from = at.texts("from")?;
    if from.is_empty() {
        return Err(at.error("has no `from`: the source's name of the metric"));
    }
    let kind = at.word("kind", KINDS)?.ok_or_else(|| at.error("has no `kind`"))?;
    let to = at.canonical()?;
    let is_histogram = kind == MetricKind::Histogram;
    if to.is_some_and(|to| (to.kind == MetricKind::Histogram) != is_histogram) {
        return Err(at.error("makes a histogram of what is none, or none of what is one"));
    }
    let transform = match at.number("bit")? {
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "bounded above")]
        Some(bit) if bit >= 1.0 && bit < f64::from(u32::MAX) => Transform::Bit(bit as u64),
        Some(_) => return Err(at.error("has a `bit` that is no value of one")),
        None => at.word("transform", TRANSFORMS)?.unwrap_or(Transform::None),
    };
    Ok(Row {
        from,
        id: at.small("id")?,
        to,
        kind,
        scale: at.factor("scale")?,
        per: at.factor("per")?,
        transform,
        rank: at.small("rank")?.unwrap_or(0),
        only: at.conditions()?,
        set: at.pairs("set")?,
        rename: at.renames()?,
        drop: at.texts("drop")?,
        since: at.text("since")?,
        until: at.text("until")?,
        on: at.flag("on")?.unwrap_or(true),
        switch: at.text("switch")?,
        trust: at.word("trust", TRUST)?,
        url: at.text("url")?,
        note: at.text("note")?,
    })
}

/// A table and how errors call it.
struct At<'t> {
    place: String,
    table: &'t Table,
}

impl At<'_> {
    fn error(&self, what: &str) -> VocabularyError {
        VocabularyError(format!("cannot use the vocabulary {}: it {what}", self.place))
    }

    fn check(&self, known: &[&str]) -> Read<()> {
        let Some(key) = self.table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let near = match nearest(key, known.iter().copied()) {
            Some(near) => format!("; the nearest that it may have is `{near}`"),
            None => format!("; it may have {}", known.join(", ")),
        };
        Err(self.error(&format!("has a key `{key}`{near}")))
    }

    fn text(&self, key: &str) -> Read<String> {
        match self.table.get(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.trim().to_owned()),
            Some(_) => Err(self.error(&format!("has a `{key}` that is no text"))),
        }
    }

    /// A list of texts; one text is a list of one.
    fn texts(&self, key: &str) -> Read<Vec<String>> {
        match self.table.get(key) {
            None => Ok(Vec::new()),
            Some(value) => self.list(key, value),
        }
    }

    fn list(&self, key: &str, value: &Value) -> Read<Vec<String>> {
        let error = || self.error(&format!("has a `{key}` that is no text and no list of texts"));
        match value {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(list) => {
                list.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(error)).collect()
            }
            _ => Err(error()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the numbers of a table are small or powers of two")]
    fn number(&self, key: &str) -> Read<Option<f64>> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::Integer(number)) => Ok(Some(*number as f64)),
            Some(Value::Float(number)) => Ok(Some(*number)),
            Some(_) => Err(self.error(&format!("has a `{key}` that is no number"))),
        }
    }

    /// A number that values are multiplied with or divided by.
    fn factor(&self, key: &str) -> Read<f64> {
        let factor = self.number(key)?.unwrap_or(1.0);
        let is_one = factor > 0.0 && factor.is_finite();
        if is_one { Ok(factor) } else { Err(self.error(&format!("has a `{key}` that is not above 0"))) }
    }

    fn small(&self, key: &str) -> Read<Option<u16>> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::Integer(number)) => u16::try_from(*number)
                .map(Some)
                .map_err(|error| self.error(&format!("has a `{key}` that is no small number: {error}"))),
            Some(_) => Err(self.error(&format!("has a `{key}` that is no whole number"))),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "as in `number`")]
    fn numbers(&self, key: &str) -> Read<Vec<f64>> {
        let error = || self.error(&format!("has a `{key}` that is no list of numbers"));
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let number = |item: &Value| match item {
            Value::Integer(number) => Ok(*number as f64),
            Value::Float(number) => Ok(*number),
            _ => Err(error()),
        };
        value.as_array().ok_or_else(error)?.iter().map(number).collect()
    }

    fn flag(&self, key: &str) -> Read<Option<bool>> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.error(&format!("has a `{key}` that is neither true nor false"))),
        }
    }

    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Read<Option<T>> {
        let text = self.text(key)?;
        if text.is_empty() {
            return Ok(None);
        }
        if let Some((_, meant)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*meant));
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(self.error(&format!("has the {key} `{text}`; it may be {}", known.join(", "))))
    }

    fn canonical(&self) -> Read<Option<&'static Desc>> {
        let name = self.text("to")?;
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(desc) = canonical::all().find(|desc| desc.name == name) {
            return Ok(Some(desc));
        }
        let near = nearest(&name, canonical::all().map(|desc| desc.name));
        let near = near.map_or(String::new(), |near| format!("; the nearest is `{near}`"));
        Err(self.error(&format!("leads to `{name}`, which is no canonical metric{near}")))
    }

    fn pairs(&self, key: &str) -> Read<Vec<(String, String)>> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let error = || self.error(&format!("has a `{key}` that is no table of texts"));
        let table = value.as_table().ok_or_else(error)?;
        table
            .iter()
            .map(|(name, value)| Ok((name.clone(), value.as_str().ok_or_else(error)?.to_owned())))
            .collect()
    }

    /// `only` and `not`: tables of labels with the values that they must have, or must not.
    fn conditions(&self) -> Read<Vec<Condition>> {
        let mut found = Vec::new();
        for (key, not) in [("only", false), ("not", true)] {
            let Some(value) = self.table.get(key) else { continue };
            let table =
                value.as_table().ok_or_else(|| self.error(&format!("has an `{key}` that is no table")))?;
            for (label, value) in table {
                found.push(Condition { label: label.clone(), values: self.list(key, value)?, not });
            }
        }
        Ok(found)
    }

    /// `rename`: pairs of labels, a third word saying what is done to the value.
    fn renames(&self) -> Read<Vec<Rename>> {
        let Some(value) = self.table.get("rename") else { return Ok(Vec::new()) };
        let error = || {
            self.error("has a `rename` that is no list of pairs such as [\"model_name\", \"model\"], with `host` or `pci` as a third word where the value is to be rewritten")
        };
        let rename = |pair: &Value| -> Read<Rename> {
            let words: Vec<&str> =
                pair.as_array().ok_or_else(error)?.iter().filter_map(Value::as_str).collect();
            let (from, to, how) = match words[..] {
                [from, to] => (from, to, Rewrite::As),
                [from, to, "host"] => (from, to, Rewrite::Host),
                [from, to, "pci"] => (from, to, Rewrite::Pci),
                _ => return Err(error()),
            };
            Ok(Rename { from: from.to_owned(), to: to.to_owned(), how })
        };
        value.as_array().ok_or_else(error)?.iter().map(rename).collect()
    }
}
