//! What is known of a metric beside its series: type, help and unit.

use model::MetricKind;

use crate::codec::{Reader, put_bytes};

/// Most metrics that are described; what comes after is not kept.
pub(crate) const METRICS_MAX: usize = 100_000;
/// Longest help that is kept, in bytes; it is cut there.
const HELP_BYTES_MAX: usize = 1_024;
/// Longest unit that is kept, in bytes; it is cut there.
const UNIT_BYTES_MAX: usize = 64;
const VERSION: u8 = 1;

/// What is said about a metric; the latest word counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricMetadata {
    /// The metric's name: of a family, without `_bucket`, `_sum` and `_count`.
    pub metric: String,
    /// Its type.
    pub kind: MetricKind,
    /// What it measures, in words, at most 1 KiB.
    pub help: String,
    /// Its unit, such as `bytes`; often empty.
    pub unit: String,
}

impl MetricMetadata {
    /// The same within its bounds; `None` when the name can't be kept.
    pub(crate) fn bounded(mut self) -> Option<Self> {
        self.help.truncate(self.help.floor_char_boundary(HELP_BYTES_MAX));
        self.unit.truncate(self.unit.floor_char_boundary(UNIT_BYTES_MAX));
        (1..=model::NAME_BYTES_MAX).contains(&self.metric.len()).then_some(self)
    }

    /// Its row, whose key is the name.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = MetricKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or_default();
        let mut out = vec![VERSION, kind as u8];
        put_bytes(&mut out, self.help.as_bytes());
        put_bytes(&mut out, self.unit.as_bytes());
        out
    }

    /// See [`MetricMetadata::encode`].
    pub(crate) fn decode(metric: &str, row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        if reader.byte()? != VERSION {
            return None;
        }
        let kind = *MetricKind::ALL.get(usize::from(reader.byte()?))?;
        let found = Self { metric: metric.to_owned(), kind, help: reader.text()?, unit: reader.text()? };
        reader.is_empty().then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_texts_are_cut() {
        for kind in MetricKind::ALL {
            let long = MetricMetadata {
                metric: "up".into(),
                kind,
                help: "é".repeat(600) + "x",
                unit: "bytes".into(),
            };
            let kept = long.bounded().unwrap();
            assert_eq!(kept.help.len(), 1_024);
            assert_eq!(MetricMetadata::decode("up", &kept.encode()), Some(kept));
        }
        assert_eq!(MetricMetadata::default().bounded(), None);
        assert_eq!(MetricMetadata::decode("up", &[1, 9, 0, 0]), None);
    }
}
