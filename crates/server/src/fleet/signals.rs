//! The signals that cards are coloured by: what is asked of their series, and how.

use model::{Desc, Trust};
use semconv::canonical::{
    GPU_BUSY_RATIO, GPU_DRAM_ACTIVE_RATIO, GPU_ECC_ERRORS_TOTAL, GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS,
    GPU_SM_CLOCK_HERTZ, GPU_TEMPERATURE_MARGIN_CELSIUS, GPU_TENSOR_ACTIVE_RATIO, GPU_THROTTLED_RATIO,
    GPU_THROTTLED_SECONDS_TOTAL,
};

/// How the values of a part of time become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agg {
    Median,
    Worst,
}

/// A card that was busy for less than this share of the time is not compared with its peers.
const IDLE_BELOW: f64 = 0.05;

/// Which end of a signal is the bad one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worst {
    Low,
    High,
}

/// How a signal is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A gauge as it is.
    Gauge,
    /// Seconds held back, as a share of time; a cap of power alone is normal under load.
    Throttled,
    /// Errors added.
    Errors,
}

/// A signal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signal {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) desc: Desc,
    /// What it is divided by.
    pub(super) over: Option<Desc>,
    /// Whether the value is that of the card over the median of its peers.
    pub(super) is_of_peers: bool,
    /// Whether cards that work together should have about the same.
    pub(super) peers: bool,
    form: Form,
    worst: Worst,
}

const fn gauge(key: &'static str, title: &'static str, desc: Desc, worst: Worst) -> Signal {
    let (over, form) = (None, Form::Gauge);
    Signal { key, title, unit: "ratio", desc, over, is_of_peers: false, peers: true, form, worst }
}

/// Every signal; the first one is shown unless another is asked for.
pub(super) const SIGNALS: [Signal; 8] = [
    Signal {
        over: Some(GPU_POWER_LIMIT_WATTS),
        ..gauge("power_ratio", "Power against its limit", GPU_POWER_WATTS, Worst::Low)
    },
    gauge("tensor", "Tensor cores active", GPU_TENSOR_ACTIVE_RATIO, Worst::Low),
    gauge("dram", "Memory active", GPU_DRAM_ACTIVE_RATIO, Worst::Low),
    Signal {
        is_of_peers: true,
        ..gauge("clock_vs_peers", "Clock against its peers", GPU_SM_CLOCK_HERTZ, Worst::Low)
    },
    Signal {
        form: Form::Throttled,
        peers: false,
        ..gauge("throttled", "Time held back", GPU_THROTTLED_SECONDS_TOTAL, Worst::High)
    },
    Signal {
        unit: "celsius",
        peers: false,
        ..gauge("temperature_margin", "Degrees to slowing down", GPU_TEMPERATURE_MARGIN_CELSIUS, Worst::Low)
    },
    Signal {
        unit: "errors",
        form: Form::Errors,
        peers: false,
        ..gauge("ecc", "Uncorrected memory errors", GPU_ECC_ERRORS_TOTAL, Worst::High)
    },
    Signal { peers: false, ..gauge("busy", "Busy", GPU_BUSY_RATIO, Worst::Low) },
];

impl Signal {
    /// The signal with this key.
    pub(super) fn named(key: &str) -> Option<&'static Self> {
        SIGNALS.iter().find(|signal| signal.key == key)
    }

    /// How far its metric is to be trusted.
    pub(super) fn trust(&self) -> Trust {
        self.desc.trust.unwrap_or(Trust::C)
    }

    /// The query that gives its values over windows of so many milliseconds; `conditions` are written into
    /// every selector.
    pub(super) fn query(&self, agg: Agg, window_ms: i64, conditions: &str) -> String {
        let metric = self.desc.name;
        let with = |more: &str| match (conditions.is_empty(), more.is_empty()) {
            (true, true) => String::new(),
            (false, false) => format!("{{{conditions},{more}}}"),
            _ => format!("{{{conditions}{more}}}"),
        };
        match self.form {
            Form::Gauge => {
                let range = format!("{}[{window_ms}ms]", with(""));
                let value = match (agg, self.worst) {
                    (Agg::Median, _) => format!("quantile_over_time(0.5, {metric}{range})"),
                    (Agg::Worst, Worst::Low) => format!("min_over_time({metric}{range})"),
                    (Agg::Worst, Worst::High) => format!("max_over_time({metric}{range})"),
                };
                if !self.is_of_peers {
                    return value;
                }
                // An idle card's clock is low by design and says nothing beside one that works.
                let busy = GPU_BUSY_RATIO.name;
                format!(
                    "{value} unless on (host, uuid) (quantile_over_time(0.5, {busy}{range}) < {IDLE_BELOW})"
                )
            }
            Form::Throttled => {
                let condition = with("reason!=\"sw_power\"");
                let by = "sum by (host, gpu, uuid)";
                let share = GPU_THROTTLED_RATIO.name;
                format!(
                    "clamp_max({by} (rate({metric}{condition}[{window_ms}ms])) \
                     or {by} (avg_over_time({share}{condition}[{window_ms}ms])), 1)"
                )
            }
            Form::Errors => {
                let condition = with("kind=\"uncorrected\"");
                format!("max by (host, gpu, uuid) (increase({metric}{condition}[{window_ms}ms]))")
            }
        }
    }

    /// The query of what it is divided by.
    pub(super) fn query_over(&self, window_ms: i64, conditions: &str) -> Option<String> {
        let over = self.over?.name;
        Some(format!("last_over_time({over}{{{conditions}}}[{window_ms}ms])"))
    }

    /// The least window that its metric can be read in, milliseconds: two samples of a slow exporter.
    pub(super) fn window_min_ms(&self) -> i64 {
        if self.form == Form::Gauge { 30_000 } else { 120_000 }
    }

    /// Whether values are those of all the time that is asked for, rather than of now.
    pub(super) fn is_of_all_time(&self) -> bool {
        self.form == Form::Errors
    }
}
