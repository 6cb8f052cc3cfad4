//! How long samples of no run, their roll-ups, spans, log records and events are kept, and how many series there
//! may be.

use std::time::Duration;

use super::{Field, Shape, bytes, duration, field, number, one};

/// What is kept of series that belong to no run, and how many series there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// How long samples are kept.
    pub raw: Duration,
    /// Bytes of samples beyond which the oldest days go early.
    pub raw_bytes: u64,
    /// How long roll-ups of a minute are kept; none are made when zero.
    pub rollup_1m: Duration,
    /// How long roll-ups of 15 minutes are kept; none are made when zero.
    pub rollup_15m: Duration,
    /// How long spans are kept.
    pub spans: Duration,
    /// How long log records are kept.
    pub records: Duration,
    /// How long events are kept.
    pub events: Duration,
    /// Most series of the runs of one project.
    pub project_series: usize,
    /// Most series that belong to no run.
    pub fleet_series: usize,
}

const fn days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            raw: days(30),
            raw_bytes: u64::MAX,
            rollup_1m: days(90),
            rollup_15m: days(365),
            spans: days(14),
            records: days(14),
            events: days(90),
            project_series: model::SERIES_PER_PROJECT_MAX,
            fleet_series: model::FLEET_SERIES_MAX,
        }
    }
}

impl RetentionConfig {
    /// The settings of a store that keeps `reserve_bytes` free.
    pub(crate) fn options(&self, reserve_bytes: u64) -> store::Options {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        store::Options {
            reserve_bytes,
            fleet_retention_ns: nanos(self.raw),
            fleet_bytes_max: self.raw_bytes,
            minute_retention_ns: nanos(self.rollup_1m),
            quarter_retention_ns: nanos(self.rollup_15m),
            span_retention_ns: nanos(self.spans),
            record_retention_ns: nanos(self.records),
            event_retention_ns: nanos(self.events),
            project_series_max: self.project_series,
            fleet_series_max: self.fleet_series,
            ..store::Options::default()
        }
    }
}

/// A duration, or 0.
fn duration_or_none(text: &str) -> Result<Duration, String> {
    if ["0", "0s"].contains(&text) { Ok(Duration::ZERO) } else { duration(text) }
}

fn count(text: &str) -> Result<usize, String> {
    Ok(usize::try_from(number(text)?).unwrap_or(usize::MAX))
}

/// Those settings.
pub(super) const FIELDS: [Field; 9] = [
    field(
        "retention_raw",
        "retention-raw",
        Shape::Duration,
        "30d",
        "How long samples of series that belong to no run are kept, by whole days; points of runs stay until the run is deleted",
        |c, v| {
            c.retention.raw = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_raw_bytes",
        "retention-raw-bytes",
        Shape::Bytes,
        "",
        "Bytes of those samples beyond which the oldest days go early; no bound when not set",
        |c, v| {
            c.retention.raw_bytes = bytes(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_rollup_1m",
        "retention-rollup-1m",
        Shape::Duration,
        "90d",
        "How long their roll-ups of a minute are kept; 0 makes none",
        |c, v| {
            c.retention.rollup_1m = duration_or_none(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_rollup_15m",
        "retention-rollup-15m",
        Shape::Duration,
        "365d",
        "How long their roll-ups of 15 minutes are kept; 0 makes none",
        |c, v| {
            c.retention.rollup_15m = duration_or_none(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_spans",
        "retention-spans",
        Shape::Duration,
        "14d",
        "How long spans are kept, by whole days; those of a deleted run go with it",
        |c, v| {
            c.retention.spans = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_records",
        "retention-records",
        Shape::Duration,
        "14d",
        "How long log records are kept, by whole days; those of a deleted run go with it",
        |c, v| {
            c.retention.records = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "retention_events",
        "retention-events",
        Shape::Duration,
        "90d",
        "How long events are kept: what a kernel's log said of a GPU, incidents; beyond 500,000 the oldest go early",
        |c, v| {
            c.retention.events = duration(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "limits_project_series",
        "limits-project-series",
        Shape::Number,
        "200000",
        "Most series of all runs of one project; points of further ones are refused and counted",
        |c, v| {
            c.retention.project_series = count(one(v)?)?;
            Ok(())
        },
    ),
    field(
        "limits_fleet_series",
        "limits-fleet-series",
        Shape::Number,
        "1000000",
        "Most series that belong to no run; points of further ones are refused and counted",
        |c, v| {
            c.retention.fleet_series = count(one(v)?)?;
            Ok(())
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_told_what_is_set() {
        let config =
            RetentionConfig { raw: days(2), raw_bytes: 7, rollup_1m: Duration::ZERO, ..Default::default() };
        let options = config.options(5);
        let day_ns = 86_400 * model::NANOS_PER_SECOND;
        assert_eq!((options.reserve_bytes, options.fleet_bytes_max), (5, 7));
        assert_eq!((options.fleet_retention_ns, options.minute_retention_ns), (2 * day_ns, 0));
        assert_eq!(options.quarter_retention_ns, 365 * day_ns);
        assert_eq!((options.span_retention_ns, options.record_retention_ns), (14 * day_ns, 14 * day_ns));
        assert_eq!((duration_or_none("0"), duration_or_none("90d")), (Ok(Duration::ZERO), Ok(days(90))));
        assert!(duration_or_none("ninety days").is_err());
    }
}
