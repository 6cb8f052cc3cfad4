//! What the values of a metric are.

/// The type of a metric, as Prometheus and OpenMetrics name them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// Nobody said.
    #[default]
    Unknown,
    /// Only grows, and starts again at a reset.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations by size, in cumulative buckets.
    Histogram,
    /// A histogram whose counts go up and down.
    GaugeHistogram,
    /// Quantiles of observations, made by the target.
    Summary,
    /// Facts, as labels of a value that is always 1.
    Info,
    /// One of several states.
    StateSet,
}

impl MetricKind {
    /// Every kind; the order is that of the numbers on disk and only grows at its end.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
    ];

    /// As OpenMetrics and Prometheus' metadata API write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }

    /// Reads [`MetricKind::name`].
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in MetricKind::ALL {
            assert_eq!(MetricKind::named(kind.name()), Some(kind));
        }
        assert_eq!(MetricKind::named("Counter"), None);
    }
}
