//! From an original series to a canonical one.

use model::{Labels, LabelsBuilder, MetricKind, Unit};

use super::{Condition, Of, Part, Rename, Rewrite, Row, Source, Transform};

/// What an original value comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number in the canonical unit.
    Number(f64),
    /// The source says that it has none.
    Blank,
}

impl Source {
    /// The labels of the canonical series that `original` is by `row`; none when the row is not for it.
    pub fn map(&self, row: &Row, part: Part, original: &Labels) -> Option<Labels> {
        let to = row.to?;
        let holds = |condition: &Condition| condition.holds(original);
        if !(self.only.iter().all(holds) && row.only.iter().all(holds)) {
            return None;
        }
        let mut labels = match self.of {
            Of::Engine => self.without_dropped(row, original),
            Of::Gpu => Labels::builder(),
        };
        let renames = || row.rename.iter().chain(&self.rename);
        // The first of those that go to one name counts: it is written last.
        for rename in renames().rev() {
            if let Some(value) = original.get(&rename.from).map(|value| rename.how.apply(value))
                && self.has(row, rename)
            {
                labels.set(rename.to.as_str(), value);
            }
        }
        for (name, value) in &row.set {
            labels.set(name.as_str(), value.as_str());
        }
        if self.of == Of::Engine {
            labels.set("engine", self.name.as_str());
        }
        labels.metric(format!("{}{}", to.name, part.suffix()));
        Some(labels.build())
    }

    /// Whether the canonical series of a row has the label that a rename leads to: an engine's has it
    /// always, a card's where the metric's description or the row itself names it.
    pub(super) fn has(&self, row: &Row, rename: &Rename) -> bool {
        self.of == Of::Engine
            || row.to.is_some_and(|to| to.labels.contains(&rename.to.as_str()))
            || row.rename.contains(rename)
    }

    fn without_dropped(&self, row: &Row, original: &Labels) -> LabelsBuilder {
        let mut kept = Labels::builder();
        let renamed = |name: &str| row.rename.iter().chain(&self.rename).any(|rename| rename.from == name);
        let dropped = |name: &str| self.drop.iter().chain(&row.drop).any(|dropped| dropped == name);
        for (name, value) in original.iter() {
            if name != "__name__" && !dropped(name) && !renamed(name) {
                kept.set(name, value);
            }
        }
        kept
    }
}

impl Row {
    /// The canonical value of an original one. `source` is the row's.
    pub fn value(&self, source: &Source, original: f64) -> Value {
        if self.is_blank(source, original) {
            return Value::Blank;
        }
        let value = match self.transform {
            Transform::None => original,
            Transform::One => 1.0,
            #[expect(clippy::cast_precision_loss, reason = "a bit is exact in a float")]
            Transform::Bit(bit) => (original / bit as f64).floor() % 2.0,
            Transform::PcieGeneration => original.log2().floor(),
        };
        Value::Number(value * self.scale / self.per)
    }

    fn is_blank(&self, source: &Source, value: f64) -> bool {
        source.blanks.contains(&value) || (self.is_narrow() && source.blanks_narrow.contains(&value))
    }

    /// Whether values stay so small that the source's short blanks can't be one.
    pub(super) fn is_narrow(&self) -> bool {
        self.to.is_some_and(|to| {
            to.kind == MetricKind::Gauge && !matches!(to.unit, Unit::Bytes | Unit::BytesPerSecond)
        })
    }
}

impl Condition {
    /// Whether labels fulfil it.
    pub fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.label).unwrap_or_default();
        self.values.iter().any(|wanted| wanted == value) != self.not
    }
}

impl Rewrite {
    fn apply(self, value: &str) -> String {
        match self {
            Self::As => value.to_owned(),
            Self::Host => host_of(value).to_owned(),
            Self::Pci => pci_address(value),
        }
    }
}

/// The host of an `instance`: what stands before its port.
pub fn host_of(instance: &str) -> &str {
    match instance.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.is_empty() && is_digits(port) => host,
        _ => instance,
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An address on PCI as the kernel writes it, `dddd:bb:dd.f` in lower case; `00000000:1B:00.0` is
/// `0000:1b:00.0`. What is none stays, in lower case.
pub fn pci_address(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("0000") {
        Some(rest) if rest.len() == 12 && rest.as_bytes()[4] == b':' => rest.to_owned(),
        _ => lower,
    }
}
