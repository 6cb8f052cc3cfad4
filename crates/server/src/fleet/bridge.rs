//! From events to what the fold of incidents understands.
//!
//! What an event's body holds is described in `docs/guides/kernel-log.md`. A body that says something else
//! is no fault of a card: such an event is kept and shown, and changes nothing.

use insight::incidents::{Action, Code, Confidence, Decided, Device, Process, Provenance, Report, What};
use model::Event;
use semconv::xid::{self, Decision};
use serde_json::{Map, Value};

use super::rules::{GONE, REMAP_FAILED, UNAVAILABLE};

/// The object of an event's body.
pub(super) type Body = Map<String, Value>;

/// An event's body; an empty one where it is no object.
pub(super) fn body(event: &Event) -> Body {
    serde_json::from_str(&event.body).unwrap_or_default()
}

/// The device that an event is about.
pub(super) fn device(event: &Event) -> Device {
    let text = |name| event.label(name).filter(|value| !value.is_empty()).map(str::to_owned);
    Device { host: text("host").unwrap_or_default(), place: text("pci_bus_id"), uuid: text("uuid") }
}

/// Whether a process wrote it and no kernel or driver.
pub(super) fn is_userspace(event: &Event) -> bool {
    event.label("source") == Some("userspace")
}

/// What an event says of a card, if it says anything.
pub(super) fn report(event: &Event) -> Option<Report> {
    let body = body(event);
    let what = match event.kind.as_str() {
        "xid" => of_xid(&body)?,
        "sxid" => of_sxid(&body)?,
        "gpu_fault" => of_fault(event, &body)?,
        "inventory" => of_inventory(&body)?,
        "recovery" => What::Verdict {
            action: xid::recovery_action(number(&body, "to")?),
            provenance: Provenance::DriverLibrary,
        },
        "ecc" => of_ecc(&body)?,
        "node" => of_node(&body)?,
        "incident" if word(&body, "what") == "closed" => What::Recovered(Action::Contact),
        _ => return None,
    };
    let mut device = device(event);
    if event.kind == "node" {
        (device.place, device.uuid) = (None, None);
    }
    let pid = number(&body, "pid")
        .map(|pid| Process { pid, name: body.get("name").and_then(Value::as_str).map(str::to_owned) });
    let slice = event.label("gi").and_then(|gi| gi.parse().ok());
    Some(Report {
        at_ns: event.time_ns,
        key: Some(format!("{}\0{}", device.host, event.key)),
        device,
        is_userspace: is_userspace(event),
        what,
        count: body.get("count").and_then(Value::as_u64).unwrap_or(1).max(1),
        process: pid,
        job: event.label("job_id").or_else(|| event.label("run_id")).map(str::to_owned),
        slice: slice.or_else(|| number(&body, "gi")),
        text: event.text.clone(),
    })
}

fn number(body: &Body, name: &str) -> Option<u32> {
    body.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

fn word<'b>(body: &'b Body, name: &str) -> &'b str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn words(of: &Value, name: &str) -> Vec<u32> {
    let list = of.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_u64).filter_map(|word| u32::try_from(word).ok()).collect()
}

fn fault(code: Code) -> What {
    What::Fault { code, decided: None, is_implied: false }
}

/// The line names no number, and one that does may stand beside it.
fn implied(number: u32) -> What {
    What::Fault { code: Code::Xid(number), decided: None, is_implied: true }
}

fn of_xid(body: &Body) -> Option<What> {
    let code = number(body, "xid")?;
    let to = body.get("recovery").and_then(|recovery| recovery.get("to")).and_then(Value::as_u64);
    if let Some(to) = to {
        let to = u32::try_from(to).unwrap_or(u32::MAX);
        return Some(What::Verdict { action: xid::recovery_action(to), provenance: Provenance::DriverXid });
    }
    let decided = nvlink5(code, body).or_else(|| nvlink4(body));
    Some(What::Fault { code: Code::Xid(code), decided, is_implied: false })
}

/// What the registers of Xid 144 to 150 say.
fn nvlink5(code: u32, body: &Body) -> Option<Decided> {
    let told = body.get("nvlink5")?;
    let words = words(told, "words");
    let (word, status) = (*words.first()?, words.get(1).copied().unwrap_or_default());
    let branch = body.get("driver").and_then(Value::as_str).and_then(xid::driver_branch);
    let report = xid::Report {
        xid: code,
        unit: told.get("unit").and_then(Value::as_str),
        is_fatal: told.get("fatal").and_then(Value::as_bool),
        word,
        status,
    };
    let decision = xid::decode(&report, branch).decision;
    let confidence = if decision == Decision::Unknown { Confidence::Low } else { Confidence::High };
    Some(Decided { action: decision.action(), confidence })
}

/// What those of Xid 74 say: the strongest counts.
fn nvlink4(body: &Body) -> Option<Decided> {
    let faults = xid::link_faults(&words(body.get("nvlink4")?, "registers"));
    let strongest =
        faults.iter().map(|(.., fault)| (fault.action(), *fault)).max_by_key(|(action, _)| *action);
    let (action, fault) = strongest?;
    let confidence = if fault == xid::LinkFault::Unknown { Confidence::Low } else { Confidence::High };
    Some(Decided { action, confidence })
}

fn of_sxid(body: &Body) -> Option<What> {
    let code = number(body, "sxid")?;
    let is_fatal = body.get("fatal").and_then(Value::as_bool).unwrap_or(false);
    let row = xid::sxid(code);
    let is_known = *row != xid::SWITCH_UNKNOWN;
    let confidence = if is_known { Confidence::High } else { Confidence::Low };
    let decided = Decided { action: row.action_when(is_fatal), confidence };
    Some(What::Fault { code: Code::Sxid(code), decided: Some(decided), is_implied: false })
}

fn of_fault(event: &Event, body: &Body) -> Option<What> {
    let name = |name: &str| Some(fault(Code::Named(name.to_owned())));
    match word(body, "fault") {
        "off_the_bus" => Some(implied(79)),
        "reset_succeeded" => Some(What::Recovered(Action::DrainReset)),
        "unavailable" => name(UNAVAILABLE),
        "errors" => {
            let is_corrected = body.get("corrected").and_then(Value::as_bool).unwrap_or(true);
            let now = body.get("errors").and_then(Value::as_u64).unwrap_or_default();
            if is_corrected || now == 0 {
                let name = event.text.clone();
                return Some(What::Counter { name, before: 0.0, now: now as f64 });
            }
            name("uncorrected_errors")
        }
        "" => None,
        other => name(other),
    }
}

fn of_inventory(body: &Body) -> Option<What> {
    match word(body, "what") {
        "named" => Some(What::Card),
        "gone" | "lost" => Some(fault(Code::Named(GONE.to_owned()))),
        "appeared" | "back" => Some(What::Recovered(Action::RebootNode)),
        _ => None,
    }
}

/// What NVML told: the kernel's log has a number for most of it.
fn of_ecc(body: &Body) -> Option<What> {
    match word(body, "what") {
        "double_bit" => Some(implied(48)),
        "dram_retired" => Some(implied(63)),
        "dram_retirement_failed" => Some(implied(64)),
        "poison_nonfatal" => Some(implied(94)),
        "poison_fatal" => Some(implied(95)),
        "row_remap_pending" => Some(What::RemapPending(now(body)? > 0.0)),
        "row_remap_failed" if now(body)? > 0.0 => Some(fault(Code::Named(REMAP_FAILED.to_owned()))),
        "uncorrected_errors" => Some(What::Counter {
            name: "uncorrected errors".to_owned(),
            before: body.get("before").and_then(Value::as_f64)?,
            now: now(body)?,
        }),
        _ => None,
    }
}

fn now(body: &Body) -> Option<f64> {
    body.get("now").and_then(Value::as_f64)
}

/// A new boot makes good what a boot can; the first that is known may be no new one.
fn of_node(body: &Body) -> Option<What> {
    let is_new = word(body, "what") == "boot" && !word(body, "previous_boot_id").is_empty();
    is_new.then_some(What::Recovered(Action::RebootNode))
}
