//! That an alert begins to fire, and that it is over, as events: for the lanes of charts and the history.

use model::{Event, NANOS_PER_MILLI, Severity};
use promql::rules::Notice;
use serde_json::json;
use store::{Batch, Collision};

use crate::app::Shared;
use crate::intake;
use crate::notify::{Outside, fingerprint, labels_of};

/// Kind of these events.
const ALERT_EVENT: &str = "alert";
/// Events that wait for the store.
const WAITING_MAX: usize = 10_000;
/// Most labels of an event.
const LABELS_MAX: usize = 64;

/// Events that are yet to be stored.
#[derive(Debug, Default)]
pub(super) struct Words {
    waiting: Vec<Event>,
}

/// How urgent an alert is, by its label `severity`.
pub(crate) fn severity(label: &str) -> Severity {
    match label {
        "page" | "critical" | "error" => Severity::Critical,
        "ticket" | "warning" | "warn" => Severity::Warning,
        _ => Severity::Info,
    }
}

impl Words {
    /// Notes what is news. One that is said again after a restart has the same key, and is stored once.
    pub(super) fn take(&mut self, notices: &[Notice], outside: &Outside) {
        let news = notices.iter().filter(|notice| notice.is_news);
        let room = WAITING_MAX.saturating_sub(self.waiting.len());
        self.waiting.extend(news.take(room).map(|notice| event(notice, outside)));
    }

    /// Stores what waits; what the store does not take waits on.
    pub(super) fn store(&mut self, shared: &Shared) {
        if self.waiting.is_empty() {
            return;
        }
        let batch =
            Batch { collision: Collision::LastWriteWins, events: self.waiting.clone(), ..Batch::default() };
        match intake::keep(shared, batch) {
            Ok(_) => self.waiting.clear(),
            Err(error) => tracing::warn!(%error, "events of alerts are not stored yet"),
        }
    }
}

fn event(notice: &Notice, outside: &Outside) -> Event {
    let labels = labels_of(&notice.labels, outside);
    let alert = format!("{:016x}", fingerprint(&labels));
    let rule = labels.get("alertname").cloned().unwrap_or_default();
    let what = if notice.is_resolved { "ended" } else { "began" };
    let said = notice.annotations.get("summary").filter(|text| !text.is_empty()).unwrap_or(&rule);
    let text = if notice.is_resolved { format!("Over: {said}") } else { said.clone() };
    let urgency = severity(labels.get("severity").map_or("", String::as_str));
    let time_ms = if notice.is_resolved { notice.ends_at_ms } else { notice.starts_at_ms };
    let body = json!({
        "what": what, "rule": rule, "fingerprint": alert,
        "start": notice.starts_at_ms, "end": notice.is_resolved.then_some(notice.ends_at_ms),
        "annotations": notice.annotations,
    });
    Event {
        time_ns: time_ms.saturating_mul(NANOS_PER_MILLI),
        kind: ALERT_EVENT.to_owned(),
        severity: if notice.is_resolved { Severity::Info } else { urgency },
        key: format!("alert:{alert}:{}:{what}", notice.starts_at_ms),
        labels: labels.into_iter().take(LABELS_MAX).collect(),
        text,
        body: body.to_string(),
    }
}
