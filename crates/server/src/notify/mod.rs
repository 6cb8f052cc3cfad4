//! Tells Alertmanagers of alerts: those that fire, again and again, and those that are over.
//!
//! Each Alertmanager has a thread and a bounded list of its own, so that one that is away holds up no
//! other. What waits is one entry an alert, always the latest: an alert that ends before its start was
//! delivered is told as ended. What can't be delivered waits with growing pauses; what has become old
//! meanwhile is not told at all.

mod post;
mod waiting;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use model::Labels;
use promql::rules::Notice;

use crate::config::AlertingConfig;
use crate::metrics::{escape, head};

pub use post::NotifyError;
pub(crate) use post::Target;

use waiting::Told;
use work::Receiver;

/// How long a delivery under way may take to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// The annotation whose path is made a URL of this server.
const RUNBOOK: &str = "runbook_url";

/// How this server calls itself towards the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Where people reach it, without a slash at the end.
    pub(crate) url: String,
    /// Labels that every alert gets, unless it has them.
    pub(crate) labels: Labels,
}

/// Tells all Alertmanagers.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    receivers: Vec<Receiver>,
}

impl Notifier {
    /// Checks the settings; nothing is started.
    pub(crate) fn targets(config: &AlertingConfig) -> Result<Vec<Target>, NotifyError> {
        let mut targets = Vec::new();
        for url in &config.alertmanagers {
            let target = Target::new(url, config)?;
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// Starts a thread for each Alertmanager. What waits at `before` for one that stays is taken over.
    pub(crate) fn start(
        targets: Vec<Target>,
        queue_max: usize,
        before: Self,
    ) -> Result<Self, std::io::Error> {
        let mut old = before.receivers;
        let mut receivers = Vec::with_capacity(targets.len());
        for target in targets {
            let at = old.iter().position(|receiver| receiver.target() == &target);
            receivers.push(match at {
                Some(at) => old.swap_remove(at),
                None => Receiver::start(target)?,
            });
        }
        for receiver in &receivers {
            receiver.set_queue_max(queue_max);
        }
        for receiver in old {
            receiver.stop(Duration::ZERO);
        }
        Ok(Self { receivers })
    }

    /// Hands on what a rule has to tell; `expr` is its query.
    pub(crate) fn tell(&self, notices: Vec<Notice>, expr: &str, outside: &Outside) {
        if self.receivers.is_empty() || notices.is_empty() {
            return;
        }
        let told: Vec<Arc<Told>> =
            notices.into_iter().map(|notice| Arc::new(told(notice, expr, outside))).collect();
        for receiver in &self.receivers {
            receiver.offer(&told);
        }
    }

    /// The addresses to which alerts are sent, as people may see them.
    pub(crate) fn shown_urls(&self) -> Vec<String> {
        self.receivers.iter().map(|receiver| receiver.target().shown().to_owned()).collect()
    }

    /// Ends the threads.
    pub(crate) fn stop(self) {
        self.receivers.into_iter().for_each(|receiver| receiver.stop(STOP_TIME_MAX));
    }

    /// What it counts, in Prometheus' text format.
    pub(crate) fn write(&self, page: &mut String) {
        if self.receivers.is_empty() {
            return;
        }
        let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Receiver) -> Vec<Counted>| {
            head(page, name, kind, help);
            for receiver in &self.receivers {
                let url = escape(receiver.target().shown());
                for (reason, count) in of(receiver) {
                    let reason = reason.map(|reason| format!(",reason=\"{reason}\"")).unwrap_or_default();
                    let _ = writeln!(page, "{name}{{alertmanager=\"{url}\"{reason}}} {count}");
                }
            }
        };
        family("truegauge_notify_sent_total", "counter", "Alerts that an Alertmanager took.", &|receiver| {
            vec![(None, receiver.counts().sent)]
        });
        family("truegauge_notify_failures_total", "counter", "Requests that failed.", &|receiver| {
            vec![(None, receiver.counts().failures)]
        });
        family("truegauge_notify_dropped_total", "counter", "Alerts that were not told.", &|receiver| {
            let counts = receiver.counts();
            vec![
                (Some("queue_full"), counts.queue_full),
                (Some("expired"), counts.expired),
                (Some("refused"), counts.refused),
            ]
        });
        family("truegauge_notify_waiting", "gauge", "Alerts that wait to be told.", &|receiver| {
            vec![(None, receiver.waiting() as u64)]
        });
    }
}

/// A reason, where there are several, and a count.
type Counted = (Option<&'static str>, u64);

fn told(notice: Notice, expr: &str, outside: &Outside) -> Told {
    let own = |labels: &Labels| -> BTreeMap<String, String> {
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let mut labels = own(&outside.labels);
    labels.extend(own(&notice.labels));
    let mut annotations = notice.annotations;
    if let Some(runbook) = annotations.get_mut(RUNBOOK)
        && runbook.starts_with('/')
    {
        runbook.insert_str(0, &outside.url);
    }
    let query: String = form_urlencoded::byte_serialize(expr.trim().as_bytes()).collect();
    Told {
        labels,
        annotations,
        starts_at_ms: notice.starts_at_ms,
        ends_at_ms: notice.ends_at_ms,
        is_resolved: notice.is_resolved,
        generator_url: format!("{}/explore?q={query}", outside.url),
    }
}
