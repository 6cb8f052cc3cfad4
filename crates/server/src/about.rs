//! What is known of a metric by its name: told by whoever sent it, or ours.

use std::collections::HashMap;

use model::{Desc, MetricKind};
use semconv::instruments::{Instrument, instrument};
use store::Store;

/// What is known of a metric; empty where nobody said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: MetricKind,
    pub(crate) unit: String,
    /// What it measures.
    pub(crate) help: String,
    /// How it misleads.
    pub(crate) caveat: &'static str,
    /// How far it can be relied on; empty where nobody graded it.
    pub(crate) trust: &'static str,
}

/// Series that a histogram or summary is made of, by the ends of their names.
const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];
/// What the name of a series may have behind that of its family.
const ENDS: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];

/// Our own metrics by their PromQL names.
pub(crate) struct Catalog<'c>(HashMap<String, &'c Desc>);

impl<'c> Catalog<'c> {
    pub(crate) fn new(descs: &'c [Desc]) -> Self {
        Self(descs.iter().map(|desc| (model::prometheus_name(desc.name), desc)).collect())
    }

    /// What is known of `metric`. What was told counts; what is left open is told by our own tables and
    /// those of trainers' instruments, and how it misleads by these alone. A part of a family is
    /// described by the whole.
    pub(crate) fn about(&self, store: &Store, metric: &str) -> About {
        let ours = || self.0.get(metric).copied().or_else(|| semconv::canonical::find(metric)).map(ours);
        let known = ours().or_else(|| of_family(metric, instrument).map(theirs)).unwrap_or_default();
        let told = |name: &str| store.metadata(Some(name)).pop();
        match of_family(metric, told) {
            None => known,
            Some(told) => About {
                kind: if told.kind == MetricKind::Unknown { known.kind } else { told.kind },
                unit: some_or(&told.unit, known.unit),
                help: some_or(&told.help, known.help),
                caveat: known.caveat,
                trust: known.trust,
            },
        }
    }
}

/// What `look` finds under the metric's name, else under that of the family that it is a part of.
fn of_family<T>(metric: &str, look: impl Fn(&str) -> Option<T>) -> Option<T> {
    look(metric).or_else(|| ENDS.iter().find_map(|end| look(metric.strip_suffix(end)?)))
}

fn some_or(told: &str, known: String) -> String {
    if told.is_empty() { known } else { told.to_owned() }
}

fn theirs(instrument: &Instrument) -> About {
    About {
        kind: instrument.kind,
        unit: instrument.unit_meant.to_owned(),
        help: instrument.help.to_owned(),
        caveat: instrument.caveat,
        trust: "",
    }
}

fn ours(desc: &Desc) -> About {
    About {
        kind: desc.kind,
        unit: desc.unit.symbol().to_owned(),
        help: desc.help.to_owned(),
        caveat: desc.caveat,
        trust: desc.trust.map_or("", model::Trust::letter),
    }
}

/// Whether a series' values only grow: by what its metric is, else by its name.
pub(crate) fn only_grows(metric: &str, kind: MetricKind) -> bool {
    let is_part = || PARTS.iter().any(|part| metric.ends_with(part));
    match kind {
        MetricKind::Counter => true,
        MetricKind::Histogram => is_part(),
        MetricKind::Summary => metric.ends_with("_count") || metric.ends_with("_sum"),
        MetricKind::Unknown => metric.ends_with("_total") || is_part(),
        MetricKind::Gauge | MetricKind::GaugeHistogram | MetricKind::Info | MetricKind::StateSet => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Batch, MetricMetadata, Options};

    /// A store where a trainer told of one of its metrics what it sends on the wire.
    fn store_that_was_told(
        metric: &str,
        kind: MetricKind,
        unit: &str,
        help: &str,
    ) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let told = MetricMetadata { metric: metric.into(), kind, unit: unit.into(), help: help.into() };
        store.append(Batch { metadata: vec![told], ..Batch::default() }).unwrap();
        (dir, store)
    }

    #[test]
    fn what_a_trainer_leaves_open_is_told_by_its_table() {
        let name = "megatron_training_throughput_tflops";
        let (_dir, store) = store_that_was_told(name, MetricKind::Gauge, "", "as sent");
        let about = Catalog::new(&[]).about(&store, name);
        assert_eq!((about.unit.as_str(), about.help.as_str()), ("TFLOP/s", "as sent"));
        assert!(about.caveat.contains("formula"), "{}", about.caveat);
    }

    #[test]
    fn parts_of_a_histogram_are_described_by_the_whole_also_where_nothing_was_told() {
        let (_dir, store) = store_that_was_told("other", MetricKind::Gauge, "", "");
        let about = Catalog::new(&[]).about(&store, "megatron_training_step_duration_ms_milliseconds_bucket");
        assert_eq!((about.kind, about.unit.as_str()), (MetricKind::Histogram, "ms"));
        assert_eq!(Catalog::new(&[]).about(&store, "nobody_knows_total"), About::default());
    }

    #[test]
    fn canonical_series_are_described_with_their_trust() {
        let (_dir, store) = store_that_was_told("other", MetricKind::Gauge, "", "");
        let about = Catalog::new(&[]).about(&store, "tg_engine_ttft_seconds_bucket");
        assert_eq!((about.kind, about.unit.as_str(), about.trust), (MetricKind::Histogram, "s", "B"));
        let about = Catalog::new(&[]).about(&store, "tg_gpu_busy_ratio");
        assert_eq!(about.trust, "D");
        assert!(about.caveat.contains("One small kernel"), "{}", about.caveat);
    }

    #[test]
    fn a_unit_that_was_told_stays() {
        let name = "megatron_training_memory_allocated_gb";
        let (_dir, store) = store_that_was_told(name, MetricKind::Gauge, "GB", "");
        assert_eq!(Catalog::new(&[]).about(&store, name).unit, "GB");
    }
}
