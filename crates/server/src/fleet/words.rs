//! What people read of an incident.

use std::fmt::Write as _;

use insight::incidents::{Action, Code, Conflict, Incident, Part};
use model::Severity;

use super::rules::title;

/// How much an incident with this action matters.
pub(super) fn severity(action: Action) -> Severity {
    match action {
        Action::None => Severity::Info,
        Action::RestartApp | Action::Inspect => Severity::Warning,
        _ => Severity::Critical,
    }
}

fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// What failed, with what came along.
pub(super) fn headline(incident: &Incident) -> String {
    let leading = incident.leading().or_else(|| incident.codes.keys().next());
    let mut text = match leading {
        Some(code) => format!("{code}: {}", title(code)),
        None if incident.remap_pending => "memory waits for a reset to be replaced".to_owned(),
        None => "the driver asks for something".to_owned(),
    };
    let others: Vec<String> = incident
        .codes
        .iter()
        .filter(|(code, seen)| Some(*code) != leading && seen.part() != Part::Symptom)
        .map(
            |(code, seen)| {
                if seen.count == 1 { code.to_string() } else { format!("{code} × {}", seen.count) }
            },
        )
        .collect();
    if !others.is_empty() {
        text.push_str(", with ");
        text.push_str(&others.join(", "));
    }
    text
}

/// What it means for who works there, with numbers.
pub(super) fn effect(incident: &Incident, runs: usize) -> String {
    let of_switch = matches!(incident.leading(), Some(Code::Sxid(_)));
    let mut text = match incident.verdict.action {
        Action::ResetGpu if of_switch => {
            "All GPUs and switches of the node are to be reset, which ends every process on them."
        }
        Action::None => "Nothing is to be done.",
        Action::RestartApp => {
            "The application on the GPU failed and is to be started again; the GPU works on."
        }
        Action::ResetGpu => "The GPU is to be reset, which ends every process on it.",
        Action::DrainReset => "Work is to be moved off the node, then the GPU reset.",
        Action::RestartVm => "The virtual machine is to be started again, which ends all on it.",
        Action::RebootNode => "The node is to be booted, which ends all on it.",
        Action::Inspect => "Somebody has to look at it before it takes new work.",
        Action::Contact => "It is to be taken out of use, and its maker asked.",
    }
    .to_owned();
    let count = |part| {
        let seen = incident.codes.values().filter(|seen| seen.part() == part);
        seen.map(|seen| seen.count).sum::<u64>()
    };
    let (faults, symptoms) = (count(Part::Cause) + count(Part::Detail), count(Part::Symptom));
    let seconds = incident.last_ns.saturating_sub(incident.first_ns) as f64 / 1e9;
    let _ = write!(text, " {}", plural(faults, "fault", "faults"));
    if symptoms > 0 {
        let _ = write!(text, " and {}", plural(symptoms, "symptom", "symptoms"));
    }
    if seconds >= 1.0 {
        let _ = write!(text, " within {seconds:.0} s");
    }
    let touched = [
        (incident.processes.len(), "process", "processes"),
        (runs, "run", "runs"),
        (incident.jobs.len(), "job", "jobs"),
    ];
    let touched: Vec<String> = touched
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| plural(count as u64, one, many))
        .collect();
    if !touched.is_empty() {
        let _ = write!(text, "; {} had the GPU", touched.join(", "));
    }
    text.push('.');
    if incident.remap_pending {
        text.push_str(" Rows of its memory wait for a reset to be replaced.");
    }
    if incident.came_back > 0 {
        let times = plural(incident.came_back as u64, "time", "times");
        let _ = write!(text, " It came back: the same fault was there {times} in the day before.");
    }
    if let Some(then) = incident.verdict.then {
        let _ = write!(text, " If that does not help: `{}`.", then.name());
    }
    text
}

/// Who disagrees.
pub(super) fn conflict(conflict: Conflict) -> String {
    format!("the driver says `{}`, the catalogue `{}`", conflict.driver.name(), conflict.catalogue.name())
}
