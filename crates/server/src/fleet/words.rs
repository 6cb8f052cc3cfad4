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
        // A code without a number is no word that anybody knows.
        Some(Code::Named(_)) => leading.map(title).unwrap_or_default().to_owned(),
        Some(code) => format!("{code}: {}", title(code)),
        None if incident.remap_pending => "memory waits for a reset to be replaced".to_owned(),
        None => "the driver asks for something".to_owned(),
    };
    let others =
        incident.codes.iter().filter(|(code, seen)| Some(*code) != leading && seen.part() != Part::Symptom);
    let (named, numbered): (Vec<_>, Vec<_>) = others.partition(|(code, _)| matches!(code, Code::Named(_)));
    let times =
        |name: &str, count: u64| if count == 1 { name.to_owned() } else { format!("{name} × {count}") };
    let list = |all: Vec<String>, text: &mut String, before: &str| {
        if !all.is_empty() {
            text.push_str(before);
            text.push_str(&all.join(", "));
        }
    };
    let numbered = numbered.into_iter().map(|(code, seen)| times(&code.to_string(), seen.count)).collect();
    list(numbered, &mut text, ", with ");
    list(named.into_iter().map(|(code, seen)| times(title(code), seen.count)).collect(), &mut text, "; ");
    text
}

/// Up to two by name, more by number; nothing of none.
fn names((one, many): (&str, &str), known: Option<&[&str]>, count: usize) -> Option<String> {
    match known {
        _ if count == 0 => None,
        Some([name]) => Some(format!("{one} {name}")),
        Some([first, second]) => Some(format!("{many} {first} and {second}")),
        _ => Some(plural(count as u64, one, many)),
    }
}

/// What it means for who works there, with numbers.
pub(super) fn effect(incident: &Incident, runs: &[Option<&str>], jobs: &[&str]) -> String {
    let of_switch = matches!(incident.leading(), Some(Code::Sxid(_)));
    let mut text = match incident.verdict.action {
        Action::ResetGpu if of_switch => {
            "Reset all GPUs and switches of the node, which ends every process on them."
        }
        Action::None => "Nothing has to be done.",
        Action::RestartApp => "Restart the application that was on the GPU: it failed, and the GPU works on.",
        Action::ResetGpu => "Reset the GPU, which ends every process on it.",
        Action::DrainReset => "Move the work off the node, then reset the GPU.",
        Action::RestartVm => "Restart the virtual machine, which ends all that runs in it.",
        Action::RebootNode => "Reboot the node, which ends all that runs on it.",
        Action::Inspect => "Look at it before it gets new work.",
        Action::Contact => "Take it out of use and ask its maker.",
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
    let known: Option<Vec<&str>> = runs.iter().copied().collect();
    let processes = incident.processes.len() as u64;
    let touched: Vec<String> = [
        (processes > 0).then(|| plural(processes, "process", "processes")),
        names(("run", "runs"), known.as_deref(), runs.len()),
        names(("job", "jobs"), Some(jobs), jobs.len()),
    ]
    .into_iter()
    .flatten()
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
        let _ = write!(text, " If that does not help: {}.", next_step(then));
    }
    text
}

/// What is to be done when something else did not help.
fn next_step(action: Action) -> &'static str {
    match action {
        Action::None => "nothing more",
        Action::RestartApp => "restart the application",
        Action::ResetGpu => "reset the GPU",
        Action::DrainReset => "move the work off the node and reset the GPU",
        Action::RestartVm => "restart the virtual machine",
        Action::RebootNode => "reboot the node",
        Action::Inspect => "have somebody look at it",
        Action::Contact => "take it out of use and ask its maker",
    }
}

/// Who disagrees.
pub(super) fn conflict(conflict: Conflict) -> String {
    format!("the driver says `{}`, the catalogue `{}`", conflict.driver.name(), conflict.catalogue.name())
}
