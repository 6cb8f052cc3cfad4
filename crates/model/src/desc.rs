//! What a metric measures, written once.

use crate::MetricKind;

/// The unit of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// No unit: a count or an identifier.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Percent, 0 to 100 and above where the description says so.
    Percent,
    /// Ratio, 0 to 1.
    Ratio,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Megahertz.
    Megahertz,
    /// Hertz.
    Hertz,
}

impl Unit {
    /// As a chart writes it behind a number; empty for [`Unit::None`].
    pub fn symbol(self) -> &'static str {
        match self {
            Self::None | Self::Ratio => "",
            Self::Bytes => "B",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::Celsius => "°C",
            Self::Watts => "W",
            Self::Joules => "J",
            Self::Megahertz => "MHz",
            Self::Hertz => "Hz",
        }
    }
}

/// A metric: its one name, unit and help, and how it misleads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desc {
    /// Display name, such as `system/cpu/utilization`.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Gauge or counter.
    pub kind: MetricKind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it measures, one sentence.
    pub help: &'static str,
    /// How it misleads; empty when it does not.
    pub caveat: &'static str,
}

impl Desc {
    /// Describes a gauge.
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind: MetricKind::Gauge, labels, help, caveat: "" }
    }

    /// Describes a counter.
    pub const fn counter(
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind: MetricKind::Counter, labels, help, caveat: "" }
    }

    /// The same metric with a word on how it misleads.
    #[must_use]
    pub const fn caveat(mut self, caveat: &'static str) -> Self {
        self.caveat = caveat;
        self
    }
}
