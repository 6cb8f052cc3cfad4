//! A plan step by step: begun, ended, and what becomes of it after a crash.

use super::book::{Book, Plan, Status};
use super::command::Step;
use super::{MINUTE_NS, Mode, State, spoken};

/// How long a plan may stand between two steps and go on by itself, nanoseconds.
const STOOD_NS: i64 = 10 * MINUTE_NS;

/// What comes next in a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// This is run; that it was begun has to be durable before.
    Run(Step),
    /// Nothing runs: it waits until the machine is seen to be well, or it is over.
    Wait,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it did what it should.
    pub is_good: bool,
    /// What it said, or why it failed.
    pub text: String,
    /// How long it took, nanoseconds.
    pub took_ns: i64,
}

/// From where a job goes on that was started again.
fn resumed(plan: &Plan, step: &Step) -> String {
    let is_restart = step.kind == "hook" && step.text.starts_with("hook restart");
    let job = plan.jobs.iter().find(|job| is_restart && step.run_id.as_ref() == Some(&job.id));
    let Some(checkpoint) = job.and_then(|job| job.checkpoint.as_ref()) else { return String::new() };
    let lost = checkpoint.steps_lost.map(|lost| format!(", {lost} steps are repeated")).unwrap_or_default();
    format!(", from step {}{lost}", checkpoint.step)
}

impl Book {
    /// Begins the next step of a plan that runs.
    pub fn begin(&mut self, id: u64, now_ns: i64) -> Next {
        let Some(plan) = self.plans.get(&id).filter(|plan| plan.status == Status::Executing).cloned() else {
            return Next::Wait;
        };
        if plan.is_begun {
            return Next::Wait;
        }
        let stood_ns = plan.moved_ns.map_or(0, |moved_ns| now_ns.saturating_sub(moved_ns));
        if stood_ns > STOOD_NS {
            self.ask_anew(&plan, stood_ns, now_ns);
            return Next::Wait;
        }
        let Some(step) = plan.steps.get(plan.at).cloned() else {
            self.finish(&plan, now_ns);
            return Next::Wait;
        };
        if step.is_validation() {
            self.change(id, |plan| {
                plan.status = Status::Validating;
                plan.validating_ns = Some(now_ns);
            });
            self.go(id, State::Validating, "checked before it gets work again", now_ns);
            return Next::Wait;
        }
        self.change(id, |plan| plan.is_begun = true);
        if let Some(to) = step.does {
            self.enter(&plan, to, &step, now_ns);
        } else {
            let state = self.state_of(&plan);
            self.go(id, state, &format!("runs: {}", step.text), now_ns);
            self.add_command(&step);
        }
        Next::Run(step)
    }

    /// A plan that stood still, as its server did or as nothing was to be done for real: what it was let go for may not be
    /// so any more, so a person agrees before it goes on.
    fn ask_anew(&mut self, plan: &Plan, stood_ns: i64, now_ns: i64) {
        let text = format!("it stood still for {}: a person agrees before it goes on", spoken(stood_ns));
        self.change(plan.id, |plan| {
            (plan.status, plan.mode, plan.moved_ns) = (Status::Queued, Mode::Approve, None);
            plan.expires_ns = now_ns.saturating_add(plan.expires_ns.saturating_sub(plan.asked_ns));
            plan.asked_ns = now_ns;
            text.clone_into(&mut plan.outcome);
        });
        let state = self.state_of(plan);
        self.note(plan, (state, state), &text, now_ns);
    }

    /// Moves a unit to what a step brings about; one that is drained is cordoned first.
    fn enter(&mut self, plan: &Plan, to: State, step: &Step, now_ns: i64) {
        let from = self.state_of(plan);
        if to == State::Draining && from == State::Suspect {
            self.go(plan.id, State::Cordoned, "no new work", now_ns);
        }
        self.go(plan.id, to, &format!("runs: {}", step.text), now_ns);
        self.add_command(step);
        if matches!(to, State::Resetting | State::Rebooting) {
            self.change_unit(&plan.unit(), |unit| {
                unit.resets_ns.retain(|at| *at > now_ns.saturating_sub(super::DAY_NS));
                unit.resets_ns.push(now_ns);
            });
        }
    }

    fn add_command(&mut self, step: &Step) {
        if let Some(edge) = self.last_edge() {
            edge.commands = vec![step.text.clone()];
        }
    }

    /// Ends the step that was begun. A second word about the same step says nothing.
    pub fn ended(&mut self, id: u64, outcome: &Outcome, now_ns: i64) {
        let Some(plan) = self.plans.get(&id).filter(|plan| plan.is_begun).cloned() else { return };
        let Some(step) = plan.steps.get(plan.at) else { return };
        let took = spoken(outcome.took_ns);
        let said = if outcome.text.is_empty() { String::new() } else { format!(": {}", outcome.text) };
        self.change(id, |plan| (plan.is_begun, plan.moved_ns) = (false, Some(now_ns)));
        let state = self.state_of(&plan);
        if outcome.is_good {
            self.change(id, |plan| {
                plan.worked.push(plan.at);
                plan.at += 1;
            });
            let resumed = resumed(&plan, step);
            self.go(id, state, &format!("done in {took}: {}{resumed}{said}", step.text), now_ns);
            if let Some(edge) = self.last_edge().filter(|_| step.run_id.is_some()) {
                edge.run_id.clone_from(&step.run_id);
            }
        } else if step.may_fail {
            self.change(id, |plan| plan.at += 1);
            self.go(id, state, &format!("failed after {took}, which it may: {}{said}", step.text), now_ns);
        } else {
            self.fail(id, &format!("failed after {took}: {}{said}", step.text), now_ns);
        }
    }

    /// Gives a plan up: a human has to look.
    pub(super) fn fail(&mut self, id: u64, text: &str, now_ns: i64) {
        let Some(plan) = self.plans.get(&id).cloned() else { return };
        let state = self.state_of(&plan);
        if plan.unconfirmed.is_some() && state == State::Healthy {
            self.note(&plan, (state, state), text, now_ns);
        } else {
            self.go(id, State::NeedsHuman, text, now_ns);
        }
        self.change(id, |plan| {
            plan.status = Status::Failed;
            text.clone_into(&mut plan.outcome);
        });
        if self.units.contains_key(&plan.unit()) {
            self.change_unit(&plan.unit(), |unit| unit.finished_ns = Some(now_ns));
        }
    }

    fn finish(&mut self, plan: &Plan, now_ns: i64) {
        let state = self.state_of(plan);
        match state {
            State::Validating => self.go(plan.id, State::Healthy, "validated, and back to work", now_ns),
            // A job was told something and the machine stayed in service.
            State::Healthy | State::Suspect => self.go(plan.id, state, "all commands ran", now_ns),
            _ => {
                let text = "taken out as the policy says; a person brings it back";
                self.go(plan.id, State::NeedsHuman, text, now_ns);
            }
        }
        self.change(plan.id, |plan| {
            plan.status = Status::Done;
            "all commands ran".clone_into(&mut plan.outcome);
        });
        self.change_unit(&plan.unit(), |unit| unit.finished_ns = Some(now_ns));
    }

    /// Takes up what was under way when the server went down. A step of which nobody knows how it ended runs
    /// again only where twice is the same as once; else it is checked what came of it, or a human looks.
    pub fn recover(&mut self, now_ns: i64) {
        let begun: Vec<Plan> = self.plans.values().filter(|plan| plan.is_begun).cloned().collect();
        for plan in begun {
            let Some(step) = plan.steps.get(plan.at) else { continue };
            let state = self.state_of(&plan);
            let what = format!("the server was started again while this ran: {}", step.text);
            let is_next_validated = plan.steps.get(plan.at + 1).is_some_and(Step::is_validation);
            self.change(plan.id, |plan| plan.is_begun = false);
            if step.is_idempotent {
                let text = format!("{what}; it runs again, since twice is the same as once");
                self.go(plan.id, state, &text, now_ns);
            } else if is_next_validated || step.may_fail {
                let then =
                    if is_next_validated { "what came of it is checked" } else { "it may have failed" };
                self.change(plan.id, |plan| {
                    plan.worked.extend(is_next_validated.then_some(plan.at));
                    plan.at += 1;
                });
                self.go(plan.id, state, &format!("{what}; it is not run again, {then}"), now_ns);
            } else {
                let text = format!("{what}; nobody knows whether it ended, and it is not run again");
                self.fail(plan.id, &text, now_ns);
            }
        }
    }

    /// Writes down that the probe of a plan is run, where it is still wanted; that has to be durable before.
    pub fn begin_probe(&mut self, id: u64, step: &Step, now_ns: i64) -> bool {
        let is_wanted = |plan: &&Plan| plan.status == Status::Validating && !plan.is_probed;
        if !self.plans.get(&id).as_ref().is_some_and(is_wanted) {
            return false;
        }
        self.go(id, State::Validating, &format!("runs: {}", step.text), now_ns);
        self.add_command(step);
        true
    }

    /// Plans that have a step to run.
    pub fn runnable(&self) -> Vec<u64> {
        let ready = |plan: &&Plan| plan.status == Status::Executing && !plan.is_begun;
        self.plans.values().filter(ready).map(|plan| plan.id).collect()
    }
}
