//! What a rule would have done in the past, by the same alerts that rules have now.

use std::collections::BTreeMap;

use model::Labels;

use super::alert::AlertState;
use super::file::{RuleKind, RuleText};
use super::group::{Rule, Setting};
use crate::error::QueryError;
use crate::memory::MemorySource;

/// A time in which an alert was pending, fired, or both; milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// Labels of the alert.
    pub labels: Labels,
    /// Since when its condition held.
    pub active_ms: i64,
    /// Since when it fired; none where it only was pending.
    pub fired_ms: Option<i64>,
    /// When it was over; none where it goes on at the end.
    pub ended_ms: Option<i64>,
}

/// One evaluation: its time and what the rule's query answers then.
pub type Moments = Vec<(i64, Vec<(Labels, f64)>)>;

/// Replays an alerting rule over `moments`, which lie `interval_ms` apart; those that are left out are a
/// stop, which does not count towards `for`. Texts are not expanded. A recording rule has no episodes.
pub fn replay(text: &RuleText, moments: Moments, interval_ms: i64) -> Result<Vec<Episode>, QueryError> {
    let mut text = text.clone();
    if let RuleKind::Alerting { annotations, .. } = &mut text.kind {
        annotations.clear();
    }
    let mut rule = Rule::new(&text)?;
    let (source, setting) = (MemorySource::new(), Setting::default());
    let mut open: BTreeMap<Labels, Episode> = BTreeMap::new();
    let mut episodes = Vec::new();
    let mut last_ms = None;
    for (time_ms, vector) in moments {
        let is_late = last_ms.is_some_and(|last| time_ms - last > interval_ms);
        rule.resume(time_ms, interval_ms, is_late);
        last_ms = Some(time_ms);
        let vector = vector.into_iter().map(|(labels, value)| (labels.into(), value)).collect();
        rule.alert(vector, &source, (time_ms, time_ms), 0, &setting).map_err(QueryError::Execution)?;
        let now: BTreeMap<&Labels, _> = rule
            .alerts()
            .filter(|alert| alert.state != AlertState::Inactive)
            .map(|a| (&a.labels, a))
            .collect();
        let over: Vec<Labels> = open.keys().filter(|labels| !now.contains_key(labels)).cloned().collect();
        for labels in over {
            if let Some(episode) = open.remove(&labels) {
                episodes.push(Episode { ended_ms: Some(time_ms), ..episode });
            }
        }
        for (labels, alert) in now {
            let (active_ms, fired_ms) = (alert.active_at_ms, alert.fired_at_ms);
            let fresh = || Episode { labels: labels.clone(), active_ms, fired_ms, ended_ms: None };
            open.entry(labels.clone()).or_insert_with(fresh).fired_ms = fired_ms;
        }
    }
    episodes.extend(open.into_values());
    episodes.sort_by(|a, b| (a.active_ms, &a.labels).cmp(&(b.active_ms, &b.labels)));
    Ok(episodes)
}
