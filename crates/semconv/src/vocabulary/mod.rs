//! What engines and exporters call things, and which canonical series each is.
//!
//! The tables are the files of `vocabularies/`, one for each source of metrics; a user's own files add
//! sources and replace rows. [`Vocabulary::lookup`] finds the rows of a series by its name,
//! [`Source::map`] makes the canonical labels, [`Row::value`] the value. Recording rules for those who keep
//! their own Prometheus come from the same rows: [`rules`].
//!
//! How originals come together is the same in both. Of the rows of one [`Row::group`] those of the lowest
//! [`Row::rank`] count that there are: on the page of an engine (one `job` and `instance`), or of a card
//! (one `host`, `gpu` and `uuid`). Originals that come to the same labels tell one fact several times: the
//! largest value counts.

use std::collections::{BTreeMap, HashMap};

use model::{Desc, MetricKind, Trust};

mod drift;
mod map;
mod read;
pub mod rules;
#[cfg(test)]
mod tests;

pub use drift::{Drift, Matched, Missing, drift};
pub use map::{Value, host_of, pci_address};
pub use read::VocabularyError;

/// The files that come with the program, by name.
pub const FILES: [(&str, &str); 11] = [
    ("vllm", include_str!("../../vocabularies/vllm.toml")),
    ("sglang", include_str!("../../vocabularies/sglang.toml")),
    ("tgi", include_str!("../../vocabularies/tgi.toml")),
    ("triton", include_str!("../../vocabularies/triton.toml")),
    ("trtllm", include_str!("../../vocabularies/trtllm.toml")),
    ("dynamo", include_str!("../../vocabularies/dynamo.toml")),
    ("nim", include_str!("../../vocabularies/nim.toml")),
    ("llamacpp", include_str!("../../vocabularies/llamacpp.toml")),
    ("gen_ai", include_str!("../../vocabularies/gen_ai.toml")),
    ("dcgm", include_str!("../../vocabularies/dcgm.toml")),
    ("amd", include_str!("../../vocabularies/amd.toml")),
];

/// What a source tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// An engine: its series keep the labels of their target and all that is not dropped by name.
    Engine,
    /// Cards: their series have `host`, `gpu`, `uuid` and what a row adds, and nothing of the target.
    Gpu,
}

/// A source of metrics: an engine or an exporter, with its rows.
#[derive(Debug, Clone)]
pub struct Source {
    /// What the label `engine` says, and how settings name it.
    pub name: String,
    /// Its name among people.
    pub title: String,
    /// What it tells of.
    pub of: Of,
    /// Where the names were read.
    pub url: String,
    /// When they were read.
    pub read: String,
    /// Names by which its pages are known; one that ends in `*` is the start of names.
    pub marks: Vec<String>,
    /// How many of the marks a page must have.
    pub marks_min: usize,
    /// What each of its series must fulfil, beside what the row asks.
    pub only: Vec<Condition>,
    /// Labels that take another name: of several to one name the first that is there counts.
    pub rename: Vec<Rename>,
    /// Labels that canonical series of an engine don't have.
    pub drop: Vec<String>,
    /// Values that mean "no value".
    pub blanks: Vec<f64>,
    /// More of them, for gauges of narrow range: a count of bytes may well come by them.
    pub blanks_narrow: Vec<f64>,
    /// How a row that is off is switched on, where the row does not say.
    pub switch: String,
    /// Its rows, in the order of the file.
    pub rows: Vec<Row>,
    /// What it never tells, and why.
    pub absent: Vec<Absent>,
}

/// One metric of a source.
#[derive(Debug, Clone)]
pub struct Row {
    /// Every spelling of the one name, the present one first. A histogram's is its family's.
    pub from: Vec<String>,
    /// The number of the field, where the source has one.
    pub id: Option<u16>,
    /// The canonical metric; none for what is known and has no canonical series.
    pub to: Option<&'static Desc>,
    /// What the source declares it as.
    pub kind: MetricKind,
    /// What a value is multiplied by.
    pub scale: f64,
    /// What it is divided by after that: a hundredth is exact only as a division.
    pub per: f64,
    /// What else is done to a value.
    pub transform: Transform,
    /// Its place among the rows of its [`Row::group`], 0 first. Rows of one rank belong together.
    pub rank: u16,
    /// What a series must fulfil.
    pub only: Vec<Condition>,
    /// Labels that are set.
    pub set: Vec<(String, String)>,
    /// Labels that take another name, before those of the source.
    pub rename: Vec<Rename>,
    /// Labels that are left out, beside those of the source.
    pub drop: Vec<String>,
    /// The first version that has it.
    pub since: String,
    /// The first version that has it no more.
    pub until: String,
    /// Whether a source has it without being asked.
    pub on: bool,
    /// How it is switched on, where it is not.
    pub switch: String,
    /// How far the source's value can be relied on, where that differs from the canonical metric's.
    pub trust: Option<Trust>,
    /// Where it was read, where that differs from the source's.
    pub url: String,
    /// What to know about it.
    pub note: String,
}

/// What is done to a value before it is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    None,
    /// The value is 1 whatever it was: the labels are the fact.
    One,
    /// 1 when the bit of this value is set, else 0.
    Bit(u64),
    /// Transfers per second of a PCIe lane, in billions, become the generation.
    PcieGeneration,
}

/// What a label must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The label.
    pub label: String,
    /// The values; an empty one is a label that is not there.
    pub values: Vec<String>,
    /// Whether these are the values that it must not have.
    pub not: bool,
}

/// A label that takes another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// The source's.
    pub from: String,
    /// The canonical.
    pub to: String,
    /// What is done to the value.
    pub how: Rewrite,
}

/// What is done to a label's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// Nothing.
    As,
    /// `host:port` becomes `host`.
    Host,
    /// An address on PCI becomes `dddd:bb:dd.f` in lower case.
    Pci,
}

/// A canonical metric that a source never has.
#[derive(Debug, Clone)]
pub struct Absent {
    /// The metric.
    pub to: &'static Desc,
    /// Why, and what to look at instead.
    pub why: String,
}

/// Which series of a family a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// All there is.
    Whole,
    /// `_bucket` of a histogram.
    Bucket,
    /// `_sum` of a histogram.
    Sum,
    /// `_count` of a histogram.
    Count,
}

impl Part {
    const OF_HISTOGRAM: [Self; 3] = [Self::Bucket, Self::Sum, Self::Count];

    /// What stands behind the family's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Bucket => "_bucket",
            Self::Sum => "_sum",
            Self::Count => "_count",
        }
    }
}

/// A row that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hit {
    source: u16,
    row: u16,
    /// Which part of the family the name is.
    pub part: Part,
}

/// Sources and their rows, found by name.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    sources: Vec<Source>,
    by_name: HashMap<String, Vec<Hit>>,
}

impl Vocabulary {
    /// What comes with the program.
    pub fn embedded() -> Self {
        let mut vocabulary = Self::default();
        for (name, text) in FILES {
            // A test reads every file, so that none is left out here.
            if let Ok(read) = read::source(&format!("{name}.toml"), text, None) {
                vocabulary.put(read);
            }
        }
        vocabulary.index();
        vocabulary
    }

    /// The same with a user's file: a source that is new is added; rows of one that is known take the place
    /// of all rows that have one of their names. `file` is how errors name it.
    pub fn with(mut self, file: &str, text: &str) -> Result<Self, VocabularyError> {
        let name = read::name(file, text)?;
        let known = self.sources.iter().find(|source| source.name == name);
        self.put(read::source(file, text, known)?);
        self.index();
        Ok(self)
    }

    fn put(&mut self, source: Source) {
        match self.sources.iter_mut().find(|known| known.name == source.name) {
            Some(known) => *known = source,
            None => self.sources.push(source),
        }
    }

    fn index(&mut self) {
        self.by_name.clear();
        for (source_at, source) in (0..).zip(&self.sources) {
            for (row_at, row) in (0..).zip(&source.rows) {
                let parts: &[Part] = if row.is_histogram() { &Part::OF_HISTOGRAM } else { &[Part::Whole] };
                for name in &row.from {
                    for &part in parts {
                        let hit = Hit { source: source_at, row: row_at, part };
                        self.by_name.entry(format!("{name}{}", part.suffix())).or_default().push(hit);
                    }
                }
            }
        }
    }

    /// Every source.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The source of this name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// The rows that have the name of this series; those without a canonical metric are among them.
    pub fn lookup(&self, series: &str) -> &[Hit] {
        self.by_name.get(series).map_or(&[], Vec::as_slice)
    }

    /// What a hit is of. One of another vocabulary may be of nothing here.
    pub fn get(&self, hit: Hit) -> Option<(&Source, &Row)> {
        let source = self.sources.get(usize::from(hit.source))?;
        Some((source, source.rows.get(usize::from(hit.row))?))
    }

    /// The sources that a page with these names of series is of.
    pub fn detect<'n>(&self, names: impl IntoIterator<Item = &'n str> + Clone) -> Vec<&Source> {
        self.sources.iter().filter(|source| source.is_on(names.clone())).collect()
    }
}

impl Source {
    /// Whether a page with these names of series is its.
    pub fn is_on<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        let mut met = vec![false; self.marks.len()];
        for name in names {
            for (met, mark) in met.iter_mut().zip(&self.marks) {
                *met |= is_marked(name, mark);
            }
        }
        met.into_iter().filter(|met| *met).count() >= self.marks_min.max(1)
    }

    /// Whether a name belongs to it by how it begins.
    fn owns(&self, name: &str) -> bool {
        self.marks.iter().any(|mark| is_marked(name, mark))
    }

    /// Its rows of canonical metrics, the metrics by name and the rows by rank.
    pub fn by_canonical(&self) -> BTreeMap<&'static str, Vec<&Row>> {
        let mut found: BTreeMap<&'static str, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            if let Some(to) = row.to {
                found.entry(to.name).or_default().push(row);
            }
        }
        for rows in found.values_mut() {
            rows.sort_by_key(|row| row.rank);
        }
        found
    }
}

fn is_marked(name: &str, mark: &str) -> bool {
    match mark.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == mark,
    }
}

impl Row {
    /// Whether its names are those of a family of three.
    pub fn is_histogram(&self) -> bool {
        self.kind == MetricKind::Histogram
    }

    /// What rows are alternatives of: the canonical metric with the labels that are set.
    pub fn group(&self) -> Option<(&'static str, &[(String, String)])> {
        self.to.map(|to| (to.name, self.set.as_slice()))
    }

    /// The version range in words; empty where it is not bounded.
    pub fn versions(&self) -> String {
        match (self.since.as_str(), self.until.as_str()) {
            ("", "") => String::new(),
            (since, "") => format!("{since} and newer"),
            ("", until) => format!("before {until}"),
            (since, until) => format!("{since} to before {until}"),
        }
    }
}
