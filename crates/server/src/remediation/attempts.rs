//! What an action does to the attempts of runs that it interrupts.

use insight::remediation::{Hook, Plan, State, Status, Step};
use model::{AttributeValue, Event, RunChange, Severity};
use serde_json::json;
use store::Batch;

use crate::app::Shared;
use crate::clock::now_ns;
use crate::{fleet, intake};

/// Kind of the events of a run, and whose these are.
const KIND: &str = "run";
const SOURCE: &str = "remediation";

/// The attribute of a run that says why an attempt failed.
pub(crate) fn failed_key(attempt: u32) -> String {
    format!("attempt/{attempt}/failed")
}

/// Whether a step ends what runs on its machine: work is evicted, a card or the machine is reset, or the job is
/// started again. A scheduler's drain lets it run on.
fn ends_work(step: &Step) -> bool {
    match step.does {
        Some(State::Resetting | State::Rebooting) => true,
        Some(State::Draining) => step.kind == "kubectl",
        _ => is_restart(step),
    }
}

/// Writes down what could not be, or was not before a crash: of the plans under way, whose commands ended work.
pub(super) fn catch_up(app: &Shared) {
    let under_way: Vec<Plan> = {
        let desk = app.remedy.desk();
        let is_due = |plan: &&Plan| matches!(plan.status, Status::Executing | Status::Validating);
        desk.book.active().filter(is_due).cloned().collect()
    };
    for plan in under_way {
        plan.worked.iter().filter_map(|at| plan.steps.get(*at)).for_each(|step| fail(app, &plan, step));
    }
}

fn is_restart(step: &Step) -> bool {
    let is_told = matches!(step.hook, Some(Hook::Url(_) | Hook::File(_) | Hook::Signal { .. }));
    is_told && step.text.starts_with("hook restart")
}

/// Writes down that attempts of runs failed, after a step that ends their work. Once for each attempt.
pub(super) fn fail(shared: &Shared, plan: &Plan, step: &Step) {
    if !ends_work(step) {
        return;
    }
    let is_meant = |id: &str| step.run_id.as_deref().is_none_or(|run| run == id);
    for job in plan.jobs.iter().filter(|job| job.is_run && is_meant(&job.id)) {
        let Some((run, attempt)) = fleet::run_of(shared, &job.id).zip(job.attempt) else { continue };
        let key = failed_key(attempt);
        if run.attributes.contains_key(&key) {
            continue;
        }
        let why = format!("{} took {} out: {}", plan.name(), plan.host, plan.title);
        let checkpoint = job.checkpoint.as_ref();
        let body = json!({
            "what": "attempt_failed", "attempt": attempt, "id": plan.name(), "incident": plan.incident,
            "checkpoint_step": checkpoint.map(|checkpoint| checkpoint.step),
            "steps_lost": checkpoint.and_then(|checkpoint| checkpoint.steps_lost),
        });
        let labels =
            [("run_id", job.id.as_str()), ("host", &plan.host), ("gpu", &plan.gpu), ("source", SOURCE)];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let event = Event {
            time_ns: now_ns(),
            kind: KIND.to_owned(),
            severity: Severity::Warning,
            key: format!("attempt:{}:{attempt}", job.id),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            text: format!("Attempt {attempt} failed: {why}"),
            body: body.to_string(),
        };
        let change = RunChange {
            path: run.path.clone(),
            attributes_if_absent: vec![(key, AttributeValue::Text(why))],
            ..RunChange::default()
        };
        let batch = Batch { change: Some(change), events: vec![event], ..Batch::default() };
        match intake::keep(shared, batch) {
            Ok(_) => shared.live.changed(run.id()),
            Err(error) => tracing::warn!(%error, run = job.id, "that an attempt failed is not written down"),
        }
    }
}
