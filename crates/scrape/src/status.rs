//! How the targets stand, for those who ask.

use std::time::Duration;

use model::Labels;

/// How a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not asked yet.
    Unknown,
    /// Its last page was taken.
    Up,
    /// Its last page was not.
    Down,
}

impl Health {
    /// As Prometheus' API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A target and its last scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetStatus {
    /// The job's name.
    pub job: String,
    /// What is asked.
    pub url: String,
    /// What its series carry.
    pub labels: Labels,
    /// What was known before relabelling.
    pub discovered: Labels,
    /// How often it is asked.
    pub interval: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// How it stands.
    pub health: Health,
    /// Why it is down; empty when it is not.
    pub last_error: String,
    /// When it was asked last, milliseconds since the epoch.
    pub last_scrape_ms: Option<i64>,
    /// How long that took, seconds.
    pub last_duration_seconds: f64,
    /// Samples of the last page, before relabelling.
    pub samples: usize,
}

/// A target that relabelling dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedTarget {
    /// The job's name.
    pub job: String,
    /// What was known before relabelling.
    pub discovered: Labels,
}

/// All targets, for `/api/v1/targets`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Targets {
    /// Those that are scraped, by job and URL.
    pub active: Vec<TargetStatus>,
    /// Those that relabelling dropped, at most 1,000.
    pub dropped: Vec<DroppedTarget>,
    /// How many were dropped.
    pub dropped_count: usize,
    /// What in the configuration or its files could not be used, in words.
    pub problems: Vec<String>,
}
