//! What of the owners is told as events, each thing once.

use std::collections::BTreeMap;

use model::{Event, Severity};
use serde_json::json;

use super::Found;
use super::judge::Mismatch;
use crate::tick::Tick;

/// Most disagreements that are kept in mind; what is beyond is told when others have ended.
const OPEN_MAX: usize = 256;
/// Most events that wait to be kept.
const PENDING_MAX: usize = 1_024;

/// Turns what was found into events.
#[derive(Debug)]
pub(super) struct Telling {
    /// Start of this boot's id.
    boot: String,
    round: u64,
    open: BTreeMap<String, Mismatch>,
    trouble: Option<String>,
    left_out: Vec<(u32, String)>,
    pending: Vec<Event>,
}

impl Telling {
    pub(super) fn new(boot_id: &str) -> Self {
        Self {
            boot: boot_id.chars().take(8).collect(),
            round: 0,
            open: BTreeMap::new(),
            trouble: None,
            left_out: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Events that are not known to be kept.
    pub(super) fn pending(&self) -> &[Event] {
        &self.pending
    }

    /// What was pending is kept.
    pub(super) fn kept(&mut self) {
        self.pending.clear();
    }

    /// Takes note of a look, once.
    pub(super) fn take(&mut self, tick: &Tick<'_>, found: &Found) {
        if found.round == self.round || self.pending.len() > PENDING_MAX {
            return;
        }
        self.round = found.round;
        let mismatches = &found.judgement.mismatches;
        for mismatch in mismatches {
            if self.open.len() < OPEN_MAX && !self.open.contains_key(&mismatch.key) {
                self.pending.push(self.of(tick, mismatch, true));
                self.open.insert(mismatch.key.clone(), mismatch.clone());
            }
        }
        let is_over = |key: &String| mismatches.iter().all(|mismatch| mismatch.key != *key);
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(|(key, _)| is_over(key));
        self.open = open;
        let over: BTreeMap<String, Mismatch> = over;
        for mismatch in over.values() {
            self.pending.push(self.of(tick, mismatch, false));
        }
        self.tell_trouble(tick, found.trouble.as_deref());
        self.tell_left_out(tick, &found.left_out);
    }

    fn of(&self, tick: &Tick<'_>, mismatch: &Mismatch, begins: bool) -> Event {
        let Mismatch { gpu, place, bus, key, text, process, uses, given } = mismatch;
        let labels = [
            ("host", tick.host.to_owned()),
            ("gpu", if place.uuid.is_empty() { String::new() } else { gpu.to_string() }),
            ("uuid", place.uuid.clone()),
            ("gi", place.gi.map(|gi| gi.to_string()).unwrap_or_default()),
            ("pci_bus_id", bus.clone()),
            ("run_id", uses.run_id.clone()),
            ("job_id", uses.job_id.clone()),
            ("source", "ownership".to_owned()),
        ];
        let body = json!({
            "what": match (begins, process) {
                (false, _) => "agreed",
                (true, Some(_)) => "other_process",
                (true, None) => "unknown_card",
            },
            "pid": process.as_ref().map(|(pid, _)| pid),
            "name": process.as_ref().map(|(_, name)| name),
            "namespace": uses.namespace, "pod": uses.pod, "container": uses.container,
            "given_to": given,
        });
        let word = if begins { "owner" } else { "owner_agreed" };
        Event {
            time_ns: tick.time_ns,
            kind: "owner".into(),
            severity: if begins { Severity::Warning } else { Severity::Info },
            key: format!("{word}:{}:{key}", self.boot),
            labels: filled(labels),
            text: if begins { text.clone() } else { format!("over: {text}") },
            body: body.to_string(),
        }
    }

    fn tell_trouble(&mut self, tick: &Tick<'_>, trouble: Option<&str>) {
        let (was, is) = (self.trouble.is_some(), trouble.is_some());
        self.trouble = trouble.map(str::to_owned);
        if was == is {
            return;
        }
        let (severity, text) = match trouble {
            Some(why) => {
                (Severity::Warning, format!("the kubelet doesn't tell in full who has which card: {why}"))
            }
            None => (Severity::Info, "the kubelet tells again who has which card".to_owned()),
        };
        self.pending.push(Event {
            time_ns: tick.time_ns,
            kind: "node".into(),
            severity,
            key: format!("kubelet:{}", tick.time_ns),
            labels: filled([("host", tick.host.to_owned()), ("source", "ownership".to_owned())]),
            text,
            body: json!({"what": "kubelet", "why": trouble}).to_string(),
        });
    }

    fn tell_left_out(&mut self, tick: &Tick<'_>, left_out: &[(u32, String)]) {
        for (gpu, uuid) in left_out.iter().filter(|card| !self.left_out.contains(card)) {
            let labels = [
                ("host", tick.host.to_owned()),
                ("gpu", gpu.to_string()),
                ("uuid", uuid.clone()),
                ("source", "ownership".to_owned()),
            ];
            self.pending.push(Event {
                time_ns: tick.time_ns,
                kind: "inventory".into(),
                severity: Severity::Warning,
                key: format!("not_offered:{}:{uuid}:{}", self.boot, tick.time_ns),
                labels: filled(labels),
                text: format!(
                    "the kubelet gives out other cards and not GPU {gpu}: its device plugin has left it out, \
                     as it does with a card that it found unhealthy"
                ),
                body: json!({"what": "not_offered"}).to_string(),
            });
        }
        self.left_out = left_out.to_vec();
    }
}

fn filled<const N: usize>(labels: [(&str, String); N]) -> Vec<(String, String)> {
    labels
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
