//! What NVIDIA's driver tells by itself, as events: Xids, failing memory, another recovery action.
//!
//! The kernel's log tells the same Xids and says more of them. So one is an event from here only when the
//! log is not read, or has not told it within seconds. Whoever folds events into incidents takes both for the
//! same fault all the same, by card, number and time: an Xid that comes late on one way is not lost.

use std::{collections::BTreeMap, path::PathBuf};

use collect::{
    gpu::{GpuEvent, GpuEvents, GpuNews},
    kernel_log::Bdf,
};
use model::{Event, Severity};
use semconv::xid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{SharedHeard, Snapshot, Source, Tick, kept, log::severity};

/// The file in the state folder.
const FILE: &str = "driver-events.json";
/// How long the kernel's log is waited for, and how far its time may be from the driver's, nanoseconds.
const LOG_NS: u64 = 5_000_000_000;
/// An Xid whose number the driver does not tell.
const UNKNOWN_XID: u32 = 999;
/// Most cards whose recovery action is remembered.
const CARDS_MAX: usize = 512;

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    /// The last recovery action that was told, by UUID.
    recovery: BTreeMap<String, u32>,
}

/// Tells what the driver tells.
#[derive(Debug)]
pub struct DriverEvents {
    events: GpuEvents,
    heard: SharedHeard,
    state: Option<PathBuf>,
    kept: Kept,
    stored: Kept,
    /// Xids that the log may tell yet, with their times.
    waiting: Vec<(GpuEvent, i64)>,
    number: u64,
}

impl DriverEvents {
    /// Takes what is laid down in `events`; what the log told is in `heard`, so this part is looked at behind
    /// the log.
    pub fn new(events: GpuEvents, heard: SharedHeard, state: Option<PathBuf>) -> Self {
        let kept: Kept = state.as_deref().map(|folder| kept::load(folder, FILE)).unwrap_or_default();
        Self { events, heard, state, stored: kept.clone(), kept, waiting: Vec::new(), number: 0 }
    }

    fn told(&mut self, event: &GpuEvent, at_ns: i64, host: &str) -> Option<Event> {
        let gpu = event.gpu;
        let (kind, severity, text, body) = match event.news {
            GpuNews::Xid { xid: code, gpu_instance, compute_instance } => {
                let row = xid::xid(code);
                let text = format!("the driver told Xid {code} of GPU {gpu}: {}", row.name);
                let mut body = json!({ "xid": code, "count": 1 });
                body["gi"] = json!(gpu_instance);
                body["ci"] = json!(compute_instance);
                ("xid", severity(row.action), text, body)
            }
            GpuNews::Memory(what) => {
                let severity = if what == "dram_retired" { Severity::Warning } else { Severity::Critical };
                (
                    "ecc",
                    severity,
                    format!("the driver told of GPU {gpu}'s memory: {}", words(what)),
                    json!({ "what": what }),
                )
            }
            GpuNews::Unavailable => {
                let text = format!("the driver told that GPU {gpu} cannot be used any more");
                ("gpu_fault", Severity::Critical, text, json!({ "fault": "unavailable", "vendor": "nvidia" }))
            }
            GpuNews::Recovery(to) => {
                let (severity, text, body) = self.recovery(event, to)?;
                ("recovery", severity, text, body)
            }
        };
        self.number += 1;
        let gi = match event.news {
            GpuNews::Xid { gpu_instance, .. } => gpu_instance.map(|gi| ("gi", gi.to_string())),
            _ => None,
        };
        let labels = [
            Some(("host", host.to_owned())),
            Some(("source", "driver".to_owned())),
            Some(("gpu", gpu.to_string())),
            Some(("uuid", event.uuid.clone())),
            Some(("pci_bus_id", event.pci_bus_id.clone())).filter(|(_, place)| !place.is_empty()),
            gi,
        ];
        Some(Event {
            time_ns: at_ns,
            kind: kind.to_owned(),
            severity,
            key: format!("nvml:{}:{at_ns}:{}", event.uuid, self.number),
            labels: labels.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect(),
            text,
            body: plain(body).to_string(),
        })
    }

    /// Another recovery action than the one that was told last.
    fn recovery(&mut self, event: &GpuEvent, to: u32) -> Option<(Severity, String, Value)> {
        let known = &mut self.kept.recovery;
        if known.len() >= CARDS_MAX && !known.contains_key(&event.uuid) {
            known.clear();
        }
        let from = known.insert(event.uuid.clone(), to);
        if from == Some(to) || (from.is_none() && to == 0) {
            return None;
        }
        let row = xid::RECOVERY.iter().find(|row| row.value == to);
        let words = row.map_or_else(|| format!("recovery action {to}"), |row| row.name.to_owned());
        let text = match to {
            0 => format!("the driver asks for nothing any more to make GPU {} whole", event.gpu),
            _ => format!("the driver says what GPU {} needs to be whole: {words}", event.gpu),
        };
        let body = json!({ "from": from, "to": to, "words": words });
        Some((severity(xid::recovery_action(to)), text, body))
    }

    /// Xids that the log told too are no events of their own; the others, where their time has come.
    fn settle(&mut self, now_ns: i64) -> Vec<(GpuEvent, i64)> {
        let mut heard = self.heard.lock();
        let mut alone = Vec::new();
        self.waiting.retain(|(event, at_ns)| {
            let GpuNews::Xid { xid: code, .. } = event.news else { return false };
            let place = Bdf::read(&event.pci_bus_id);
            let number = (code != UNKNOWN_XID).then_some(code);
            if heard.is_read && place.is_some_and(|gpu| heard.take(gpu, number, *at_ns, LOG_NS)) {
                return false;
            }
            if heard.is_read && now_ns.abs_diff(*at_ns) < LOG_NS {
                return true;
            }
            if let Some(gpu) = place {
                heard.count_elsewhere(gpu, code);
            }
            alone.push((event.clone(), *at_ns));
            false
        });
        alone
    }
}

impl Source for DriverEvents {
    fn name(&self) -> &'static str {
        "driver_events"
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let (events, lost) = self.events.take();
        if lost > 0 {
            tracing::warn!(lost, "the driver told more at a time than there is room for");
        }
        for event in events {
            let since = i64::try_from(event.at.elapsed().as_nanos()).unwrap_or_default();
            let at_ns = tick.time_ns.saturating_sub(since);
            if matches!(event.news, GpuNews::Xid { .. }) {
                self.waiting.push((event, at_ns));
            } else {
                out.events.extend(self.told(&event, at_ns, tick.host));
            }
        }
        for (event, at_ns) in self.settle(tick.time_ns) {
            out.events.extend(self.told(&event, at_ns, tick.host));
        }
    }

    fn kept(&mut self) {
        let Some(folder) = &self.state else { return };
        // What cannot be kept is told again after a restart.
        if self.kept != self.stored && kept::store(folder, FILE, &self.kept).is_ok() {
            self.stored = self.kept.clone();
        }
    }
}

/// Without what is not known.
fn plain(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

fn words(what: &str) -> &'static str {
    match what {
        "double_bit" => "an error that could not be corrected",
        "dram_retired" => "a part of it was taken out of use",
        "dram_retirement_failed" => "a part of it could not be taken out of use",
        "poison_nonfatal" => "it gave damaged data to a process",
        _ => "it gave damaged data",
    }
}
