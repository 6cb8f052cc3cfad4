//! Alerts: where one stands, what is kept of it over a restart, and when its state is to be told.

use std::collections::BTreeMap;

use model::Labels;
use serde::{Deserialize, Serialize};

/// How long a resolved alert stays in the list, so that its end can be told.
const RESOLVED_KEPT_MS: i64 = 15 * 60 * 1000;
/// How many intervals a firing alert holds when nothing more is heard of it.
const HOLDS_FOR: i64 = 4;

/// Where an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// Its condition is gone.
    Inactive,
    /// Its condition holds, but not for long enough.
    Pending,
    /// It is to be told.
    Firing,
}

impl AlertState {
    /// As Prometheus' API and the `alertstate` label say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// An alert. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Labels, `alertname` among them.
    pub labels: Labels,
    /// Texts for people.
    pub annotations: BTreeMap<String, String>,
    /// Where it is.
    pub state: AlertState,
    /// The value at the last evaluation.
    pub value: f64,
    /// Since when its condition holds.
    pub active_at_ms: i64,
    /// Since when it fires.
    pub fired_at_ms: Option<i64>,
    /// Since when it is over.
    pub resolved_at_ms: Option<i64>,
    /// Since when it fires only because of `keep_firing_for`.
    pub keep_firing_since_ms: Option<i64>,
    /// When it was told last. Forgotten by a restart, so that it is told again then.
    pub told_at_ms: Option<i64>,
}

/// An alert as it is kept over a restart; see [`Alert`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlertRecord {
    /// Names and values of the labels.
    pub labels: BTreeMap<String, String>,
    /// See [`Alert::annotations`].
    pub annotations: BTreeMap<String, String>,
    /// See [`Alert::state`].
    pub state: AlertState,
    /// The bits of the value, which may be no number.
    pub value_bits: u64,
    /// See [`Alert::active_at_ms`].
    pub active_at_ms: i64,
    /// See [`Alert::fired_at_ms`].
    pub fired_at_ms: Option<i64>,
    /// See [`Alert::resolved_at_ms`].
    pub resolved_at_ms: Option<i64>,
    /// See [`Alert::keep_firing_since_ms`].
    pub keep_firing_since_ms: Option<i64>,
}

/// What is to be told of an alert, to whoever wakes people up.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// Labels, `alertname` among them.
    pub labels: Labels,
    /// Texts for people.
    pub annotations: BTreeMap<String, String>,
    /// Since when it fires, milliseconds since the Unix epoch.
    pub starts_at_ms: i64,
    /// When it ended; of one that fires, until when it holds if nothing more is heard.
    pub ends_at_ms: i64,
    /// Whether it is over.
    pub is_resolved: bool,
    /// Whether that it fires, or is over, was not told before; everything is news after a restart.
    pub is_news: bool,
}

pub(super) fn to_map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Alert {
    /// Where it is, and since when.
    pub(super) fn stand(&self) -> (AlertState, [Option<i64>; 4]) {
        let since =
            [Some(self.active_at_ms), self.fired_at_ms, self.resolved_at_ms, self.keep_firing_since_ms];
        (self.state, since)
    }

    /// Where it is at `time_ms`, given whether its condition holds; false when it is to be forgotten.
    pub(super) fn step(&mut self, holds: bool, time_ms: i64, (for_ms, keep_firing_ms): (i64, i64)) -> bool {
        if holds {
            self.keep_firing_since_ms = None;
        } else {
            let keeps = self.keeps_firing(time_ms, keep_firing_ms);
            let over = self.resolved_at_ms.is_some_and(|at| time_ms - at > RESOLVED_KEPT_MS);
            if self.state == AlertState::Pending || over {
                return false;
            }
            if self.state != AlertState::Inactive && !keeps {
                self.state = AlertState::Inactive;
                self.resolved_at_ms = Some(time_ms);
            }
        }
        if self.state == AlertState::Pending && time_ms - self.active_at_ms >= for_ms {
            self.state = AlertState::Firing;
            self.fired_at_ms = Some(time_ms);
        }
        true
    }

    /// Whether it goes on firing although its condition is gone.
    fn keeps_firing(&mut self, time_ms: i64, keep_firing_ms: i64) -> bool {
        if self.state != AlertState::Firing || keep_firing_ms == 0 {
            return false;
        }
        let since = *self.keep_firing_since_ms.get_or_insert(time_ms);
        time_ms - since < keep_firing_ms
    }

    /// What is to be told of it at `time_ms`, if anything is: one that fires again and again after
    /// `resend_ms`, one that is over likewise for as long as it is kept.
    pub(super) fn tell(&mut self, time_ms: i64, interval_ms: i64, resend_ms: i64) -> Option<Notice> {
        let starts_at_ms = self.fired_at_ms.filter(|_| self.state != AlertState::Pending)?;
        let is_news =
            self.told_at_ms.is_none_or(|told| self.resolved_at_ms.is_some_and(|resolved| resolved > told));
        if !is_news && self.told_at_ms.is_some_and(|told| time_ms - told <= resend_ms) {
            return None;
        }
        self.told_at_ms = Some(time_ms);
        let holds_until = time_ms.saturating_add(interval_ms.max(resend_ms).saturating_mul(HOLDS_FOR));
        Some(Notice {
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            starts_at_ms,
            ends_at_ms: self.resolved_at_ms.unwrap_or(holds_until),
            is_resolved: self.resolved_at_ms.is_some(),
            is_news,
        })
    }
}

impl AlertRecord {
    pub(super) fn of(alert: &Alert) -> Self {
        Self {
            labels: to_map(&alert.labels),
            annotations: alert.annotations.clone(),
            state: alert.state,
            value_bits: alert.value.to_bits(),
            active_at_ms: alert.active_at_ms,
            fired_at_ms: alert.fired_at_ms,
            resolved_at_ms: alert.resolved_at_ms,
            keep_firing_since_ms: alert.keep_firing_since_ms,
        }
    }

    pub(super) fn into_alert(self) -> Alert {
        Alert {
            labels: Labels::from_pairs(self.labels),
            annotations: self.annotations,
            state: self.state,
            value: f64::from_bits(self.value_bits),
            active_at_ms: self.active_at_ms,
            fired_at_ms: self.fired_at_ms,
            resolved_at_ms: self.resolved_at_ms,
            keep_firing_since_ms: self.keep_firing_since_ms,
            told_at_ms: None,
        }
    }
}
