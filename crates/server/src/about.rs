//! What is known of a metric by its name: told by whoever sent it, or ours.

use std::collections::HashMap;

use model::{Desc, MetricKind};
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

    /// What is known of `metric`. What was told counts, but for how ours mislead. A part of a
    /// family is described by the whole.
    pub(crate) fn about(&self, store: &Store, metric: &str) -> About {
        let known = self.0.get(metric).map(|desc| ours(desc));
        let told = |name: &str| store.metadata(Some(name)).pop();
        let family = || ENDS.iter().find_map(|end| told(metric.strip_suffix(end)?));
        match told(metric).or_else(family) {
            None => known.unwrap_or_default(),
            Some(told) => About {
                kind: told.kind,
                unit: told.unit.clone(),
                help: told.help.clone(),
                caveat: known.map_or("", |known| known.caveat),
            },
        }
    }
}

fn ours(desc: &Desc) -> About {
    About {
        kind: desc.kind,
        unit: desc.unit.symbol().to_owned(),
        help: desc.help.to_owned(),
        caveat: desc.caveat,
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
