//! How alerts stand, for those who show them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use model::Labels;
use promql::rules::{AlertState, RuleKind};

use super::Ruled;

/// What is known of each group.
pub(crate) type Stood = Arc<Mutex<Vec<GroupStood>>>;

/// An alert that is pending or fires. Times are milliseconds since the epoch.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// The rule's name.
    pub(crate) rule: String,
    /// The file that has it.
    pub(crate) file: String,
    /// Labels, `alertname` among them.
    pub(crate) labels: Labels,
    /// Texts for people.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Whether it fires.
    pub(crate) fires: bool,
    /// Since when its condition holds.
    pub(crate) active_ms: i64,
    /// Since when it fires.
    pub(crate) fired_ms: Option<i64>,
    /// The value at the last evaluation.
    pub(crate) value: f64,
}

/// A group.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupStood {
    /// Its alerts.
    pub(crate) alerts: Vec<Standing>,
    /// How many rules it has.
    pub(crate) rules: usize,
    /// When it was evaluated last.
    pub(crate) last_ms: Option<i64>,
    /// Rules that fail, and why.
    pub(crate) errors: Vec<(String, String)>,
}

impl GroupStood {
    /// Whether the same alerts stand the same, whatever their values.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let pairs = self.alerts.iter().zip(&other.alerts);
        self.alerts.len() == other.alerts.len()
            && self.errors == other.errors
            && pairs
                .into_iter()
                .all(|(a, b)| (a.fires, a.active_ms, &a.labels) == (b.fires, b.active_ms, &b.labels))
    }
}

/// How the alerts of a group stand.
pub(super) fn of(ruled: &Ruled) -> GroupStood {
    let mut stood = GroupStood { rules: ruled.group.len(), last_ms: ruled.last_ms, ..GroupStood::default() };
    for (index, (text, fared)) in ruled.group.rules().zip(&ruled.fared).enumerate() {
        if let Some(error) = &fared.error {
            stood.errors.push((text.name.clone(), error.clone()));
        }
        if !matches!(text.kind, RuleKind::Alerting { .. }) {
            continue;
        }
        let alerts = ruled.group.alerts(index).filter(|alert| alert.state != AlertState::Inactive);
        stood.alerts.extend(alerts.map(|alert| Standing {
            rule: text.name.clone(),
            file: ruled.file.clone(),
            labels: alert.labels.clone(),
            annotations: alert.annotations.clone(),
            fires: alert.state == AlertState::Firing,
            active_ms: alert.active_at_ms,
            fired_ms: alert.fired_at_ms,
            value: alert.value,
        }));
    }
    stood
}
