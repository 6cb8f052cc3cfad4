//! Tells of alerts: Alertmanagers of each that fires, again and again, and the receivers of a file of
//! groups of them.
//!
//! An Alertmanager has a thread and a bounded list of its own (`waiting`, `work`): one entry an alert, always
//! the latest; grouping and silences are its own business. The receivers of the file (`receivers`) are told
//! by routes, in groups (`groups`, `dispatch`), in words of their own (`message`), and not of what is silenced
//! (`silences`). One that is away holds up no other. All that is told is logged (`log`).

mod book;
mod dispatch;
mod groups;
mod log;
pub(crate) mod matchers;
mod message;
mod post;
mod receivers;
mod silences;
mod waiting;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::Labels;
use promql::rules::Notice;

use crate::config::AlertingConfig;
use crate::metrics::{escape, head};

pub(crate) use book::Book;
pub(crate) use log::{Delivery, LastTold};
pub use post::NotifyError;
pub(crate) use silences::{Condition, NewSilence, Silence, SilenceError};

use dispatch::Dispatch;
use post::Target;
use receivers::Receivers;
use waiting::Told;
use work::Receiver;

/// How long a delivery under way may take to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// The annotation whose path is made a URL of this server.
const RUNBOOK: &str = "runbook_url";

/// How this server calls itself towards the outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Where people reach it, without a slash at the end.
    pub(crate) url: String,
    /// Labels that every alert gets, unless it has them.
    pub(crate) labels: Labels,
}

/// Whom alerts are told to, checked.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    alertmanagers: Vec<Target>,
    receivers: Receivers,
}

impl Plan {
    /// Everybody who is told, in words.
    pub(crate) fn shown(&self) -> Vec<String> {
        let receivers = self.receivers.receivers.iter();
        let receivers = receivers.map(|one| format!("{} ({})", one.name, one.kind.name()));
        let alertmanagers = self.alertmanagers.iter();
        receivers.chain(alertmanagers.map(|one| format!("{} (alertmanager)", one.shown()))).collect()
    }
}

/// What telling needs to know of its surroundings.
pub(crate) struct Place<'p> {
    /// Where what was told is kept.
    pub(crate) data_dir: &'p Path,
    /// Silences and deliveries.
    pub(crate) book: &'p Arc<Book>,
    /// How people reach this server, without a slash at the end.
    pub(crate) url: String,
    /// Most alerts that wait for one receiver.
    pub(crate) queue_max: usize,
}

/// Tells all that are to be told.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    alertmanagers: Vec<Receiver>,
    dispatch: Option<Dispatch>,
}

impl Notifier {
    /// Checks the settings and the file of receivers; nothing is started.
    pub(crate) fn plan(config: &AlertingConfig) -> Result<Plan, NotifyError> {
        let mut receivers = receivers::read(config)?;
        let mut alertmanagers = Vec::new();
        for url in &config.alertmanagers {
            let target = Target::new(url, config)?;
            if !alertmanagers.contains(&target) {
                alertmanagers.push(target);
            }
        }
        for target in std::mem::take(&mut receivers.alertmanagers) {
            if !alertmanagers.contains(&target) {
                alertmanagers.push(target);
            }
        }
        Ok(Plan { alertmanagers, receivers })
    }

    /// Starts a thread for each that is told. What waits at `before` for one that stays is taken over.
    pub(crate) fn start(plan: Plan, place: Place<'_>, before: Self) -> Result<Self, std::io::Error> {
        let mut old = before.alertmanagers;
        let mut alertmanagers = Vec::with_capacity(plan.alertmanagers.len());
        for target in plan.alertmanagers {
            let at = old.iter().position(|receiver| receiver.target() == &target);
            alertmanagers.push(match at {
                Some(at) => old.swap_remove(at),
                None => Receiver::start(target, Arc::clone(place.book))?,
            });
        }
        for receiver in &alertmanagers {
            receiver.set_queue_max(place.queue_max);
        }
        for receiver in old {
            receiver.stop(Duration::ZERO);
        }
        let setting = dispatch::Setting {
            data_dir: place.data_dir,
            book: place.book,
            url: place.url,
            alerts_max: place.queue_max,
        };
        let dispatch = Dispatch::start(plan.receivers, before.dispatch, setting)?;
        Ok(Self { alertmanagers, dispatch: Some(dispatch) })
    }

    /// Hands on what a rule has to tell; `expr` is its query.
    pub(crate) fn tell(&self, notices: &[Notice], expr: &str, outside: &Outside) {
        if notices.is_empty() {
            return;
        }
        let told: Vec<Arc<Told>> =
            notices.iter().map(|notice| Arc::new(told(notice, expr, outside))).collect();
        for receiver in &self.alertmanagers {
            receiver.offer(&told);
        }
        if let Some(dispatch) = &self.dispatch {
            dispatch.offer(&told);
        }
    }

    /// Silences have changed: who was not told may be told now.
    pub(crate) fn look_again(&self) {
        if let Some(dispatch) = &self.dispatch {
            dispatch.look_again();
        }
    }

    /// The addresses to which alerts are sent, as people may see them.
    pub(crate) fn shown_urls(&self) -> Vec<String> {
        self.alertmanagers.iter().map(|receiver| receiver.target().shown().to_owned()).collect()
    }

    /// Ends the threads.
    pub(crate) fn stop(self) {
        self.alertmanagers.into_iter().for_each(|receiver| receiver.stop(STOP_TIME_MAX));
        if let Some(dispatch) = self.dispatch {
            drop(dispatch.stop(STOP_TIME_MAX));
        }
    }

    /// What it counts, in Prometheus' text format.
    pub(crate) fn write(&self, page: &mut String) {
        let told = self.counted();
        if told.is_empty() {
            return;
        }
        let mut family =
            |name: &str, kind: &str, help: &str, of: &dyn Fn(&Counted) -> Vec<(&'static str, u64)>| {
                head(page, name, kind, help);
                for counted in &told {
                    for (reason, count) in of(counted) {
                        let reason =
                            if reason.is_empty() { String::new() } else { format!(",reason=\"{reason}\"") };
                        let _ = writeln!(page, "{name}{{{}{reason}}} {count}", counted.who);
                    }
                }
            };
        family("truegauge_notify_sent_total", "counter", "Alerts that were taken.", &|of| {
            vec![("", of.counts.sent)]
        });
        family("truegauge_notify_failures_total", "counter", "Requests that failed.", &|of| {
            vec![("", of.counts.failures)]
        });
        family("truegauge_notify_dropped_total", "counter", "Alerts that were not told.", &|of| {
            vec![
                ("queue_full", of.counts.queue_full),
                ("expired", of.counts.expired),
                ("refused", of.counts.refused),
            ]
        });
        family("truegauge_notify_waiting", "gauge", "Alerts that wait to be told.", &|of| {
            vec![("", of.waiting as u64)]
        });
    }

    /// What is counted of each that is told.
    fn counted(&self) -> Vec<Counted> {
        let alertmanager = |receiver: &Receiver| Counted {
            who: format!("alertmanager=\"{}\"", escape(receiver.target().shown())),
            counts: receiver.counts(),
            waiting: receiver.waiting(),
        };
        let mut counted: Vec<Counted> = self.alertmanagers.iter().map(alertmanager).collect();
        let Some(dispatch) = &self.dispatch else { return counted };
        let mut dropped = dispatch.dropped();
        for (name, kind, counts, waiting) in dispatch.counts() {
            let who = format!("receiver=\"{}\",kind=\"{kind}\"", escape(&name));
            // What does not fit is not known by receiver.
            let queue_full = std::mem::take(&mut dropped);
            let dispatch::Counts { sent, failures, refused } = counts;
            let counts = waiting::Counts { sent, failures, queue_full, expired: 0, refused };
            counted.push(Counted { who, counts, waiting });
        }
        counted
    }
}

/// What is counted of one that is told, and its labels.
struct Counted {
    who: String,
    counts: waiting::Counts,
    waiting: usize,
}

/// What an alert is known by: the hash of its labels that Alertmanager shows too.
pub(crate) fn fingerprint(labels: &BTreeMap<String, String>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (name, value) in labels {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    hash
}

/// All labels of an alert as it is told.
pub(crate) fn labels_of(labels: &Labels, outside: &Outside) -> BTreeMap<String, String> {
    let own = |labels: &Labels| -> BTreeMap<String, String> {
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let mut all = own(&outside.labels);
    all.extend(own(labels));
    all
}

fn told(notice: &Notice, expr: &str, outside: &Outside) -> Told {
    let labels = labels_of(&notice.labels, outside);
    let mut annotations = notice.annotations.clone();
    if let Some(runbook) = annotations.get_mut(RUNBOOK)
        && runbook.starts_with('/')
    {
        runbook.insert_str(0, &outside.url);
    }
    let query: String = form_urlencoded::byte_serialize(expr.trim().as_bytes()).collect();
    Told {
        fingerprint: fingerprint(&labels),
        labels,
        annotations,
        starts_at_ms: notice.starts_at_ms,
        ends_at_ms: notice.ends_at_ms,
        is_resolved: notice.is_resolved,
        generator_url: format!("{}/explore?q={query}", outside.url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_known_by_the_fingerprint_that_alertmanager_shows() {
        assert_eq!(format!("{:016x}", fingerprint(&BTreeMap::new())), "cbf29ce484222325");
        let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        // The end of a name is not the begin of a value.
        assert_ne!(fingerprint(&labels(&[("ab", "c")])), fingerprint(&labels(&[("a", "bc")])));
    }
}
