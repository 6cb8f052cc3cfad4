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
    /// Bytes per second.
    BytesPerSecond,
    /// Floating-point operations per second.
    FlopsPerSecond,
    /// US dollars.
    Dollars,
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
            Self::BytesPerSecond => "B/s",
            Self::FlopsPerSecond => "FLOP/s",
            Self::Dollars => "USD",
        }
    }
}

/// How far a value can be relied on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Counted or measured by the device or the program itself: a fact.
    A,
    /// Honest with the caveat that stands beside it.
    B,
    /// A hint.
    C,
    /// Misleads when it stands alone: shown, never judged by.
    D,
}

impl Trust {
    /// As the API and the UI write it.
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
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
    /// How far it can be relied on; none where nobody graded it.
    pub trust: Option<Trust>,
}

impl Desc {
    /// Describes a gauge.
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind: MetricKind::Gauge, labels, help, caveat: "", trust: None }
    }

    /// Describes a counter.
    pub const fn counter(
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind: MetricKind::Counter, labels, help, caveat: "", trust: None }
    }

    /// Describes a histogram by the name of its family.
    pub const fn histogram(
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind: MetricKind::Histogram, labels, help, caveat: "", trust: None }
    }

    /// The same metric with a word on how it misleads.
    #[must_use]
    pub const fn caveat(mut self, caveat: &'static str) -> Self {
        self.caveat = caveat;
        self
    }

    /// The same metric, graded.
    #[must_use]
    pub const fn trust(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }
}
