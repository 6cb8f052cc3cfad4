//! Something that happened to a node, a device, an engine or a run.

use std::ops::RangeInclusive;

use crate::RunId;

/// How much an event matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    #[default]
    Info,
    /// Somebody should look, in time.
    Warning,
    /// Something failed.
    Critical,
}

impl Severity {
    /// Every severity, mildest first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// As labels and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// Something that happened, at a time.
///
/// It is known by (host, key), where the host is its label `host`: the same line of a kernel's log that is
/// brought again adds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// When it happened, nanoseconds since the epoch.
    pub time_ns: i64,
    /// What sort of thing it is, one of [`EVENT_KINDS`].
    pub kind: String,
    /// How much it matters.
    pub severity: Severity,
    /// What it is known by on its host.
    pub key: String,
    /// Where and to whom: `host`, `gpu`, `uuid`, `pci_bus_id`, `run_id`, `source` and the like.
    pub labels: Vec<(String, String)>,
    /// What happened: a sentence, or the line as it was read.
    pub text: String,
    /// More about it: a JSON object as text; empty without.
    pub body: String,
}

impl Event {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// Every kind of event.
pub const EVENT_KINDS: [&str; 14] = [
    "alert",
    "annotation",
    "ecc",
    "engine",
    "gpu_fault",
    "incident",
    "inventory",
    "node",
    "owner",
    "recovery",
    "remediation",
    "run",
    "sxid",
    "xid",
];

/// Which events are asked for: those that fulfil every condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventAsk {
    /// Within this time, both ends included, nanoseconds.
    pub time_ns: RangeInclusive<i64>,
    /// Of one of these kinds, sorted.
    pub kinds: Option<Vec<String>>,
    /// Of this host.
    pub host: Option<String>,
    /// Of this device.
    pub uuid: Option<String>,
    /// Of this run.
    pub run: Option<RunId>,
    /// At least this severe.
    pub severity_min: Severity,
}

impl Default for EventAsk {
    fn default() -> Self {
        Self {
            time_ns: i64::MIN..=i64::MAX,
            kinds: None,
            host: None,
            uuid: None,
            run: None,
            severity_min: Severity::Info,
        }
    }
}
