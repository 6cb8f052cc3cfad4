//! What follows from what is known now.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, By, Deed, Edge, HAND, Plan, Proof, Status, Unit, plural};
use super::command::{Command, Kind, Named, Step, Values};
use super::guards::{Guarded, Scene};
use super::policy::{ActionRule, Pool};
use super::validate::judge;
use super::{Ask, Ceiling, Facts, Job, Mode, Outcome, Policy, State, Trigger, spoken};

/// Who decides where no person does.
const POLICY: &str = "policy";
/// Lines of evidence that a plan keeps.
const EVIDENCE_MAX: usize = 12;
/// Hosts whose probes have to be known before one is compared with them.
const PROBES_MIN: usize = 3;
/// Plans that wait at once.
const WAITING_MAX: usize = 1_000;
/// Plans that wait by the word of runs alone.
const UNCONFIRMED_MAX: usize = 100;
/// How long ago a machine may have been heard for what it tells of its runs to be as it is, nanoseconds.
const HEARD_NS: i64 = 60_000_000_000;

impl Book {
    /// Decides what follows from what is known now: new plans, those that may run, those that are over.
    /// Gives the probes to be run.
    pub fn look(
        &mut self,
        policy: &Policy,
        ceiling: Ceiling,
        facts: &Facts,
        now_ns: i64,
    ) -> Vec<(u64, Step)> {
        self.ceiling = ceiling;
        let scene = Scene::new(policy, ceiling, facts, now_ns);
        let mut asks: Vec<&Ask> = facts.asks.iter().filter(|ask| ask.is_ready).collect();
        asks.sort_by_key(|ask| (std::cmp::Reverse(ask.trigger), ask.first_ns));
        for ask in &asks {
            self.take(ask, &scene);
        }
        self.settle(&scene);
        for id in self.with(Status::Queued) {
            self.queued(id, &scene);
        }
        let validating = self.with(Status::Validating);
        let probes = validating.into_iter().filter_map(|id| self.validating(id, &scene)).collect();
        self.escalate(&scene);
        self.forget(now_ns);
        probes
    }

    fn with(&self, status: Status) -> Vec<u64> {
        self.plans.values().filter(|plan| plan.status == status).map(|plan| plan.id).collect()
    }

    /// Takes something that asks for an action.
    fn take(&mut self, ask: &Ask, scene: &Scene<'_>) {
        let Some(pool) = scene.policy.pool_of(&ask.host) else { return };
        let rule = scene.policy.rule(ask.trigger, &pool.name);
        let known = self.by_incident.get(&ask.incident).and_then(|id| self.plans.get(id));
        if let Some(known) = known.filter(|known| !is_asked_anew(known, ask)) {
            let (id, is_other) = (known.id, known.trigger != ask.trigger && known.follows.is_none());
            if known.status == Status::Queued {
                let is_fresh = known.at == 0;
                self.hear(id, ask, pool, scene.now_ns);
                if is_other && is_fresh {
                    self.replan(id, ask, rule, pool, scene);
                } else {
                    self.meet_runs(id, ask, scene);
                }
            }
            return;
        }
        let origin = known.map_or(Origin::Policy, |known| Origin::Anew(known.id, known.status));
        let key = (ask.host.clone(), ask.uuid.clone());
        let unit = self.units.get(&key);
        let state = unit.map_or(State::Healthy, |unit| unit.state);
        if unit.is_some_and(|unit| state != State::Healthy && unit.incident == ask.incident) && rule.is_none()
        {
            return;
        }
        if state == State::NeedsHuman || (ask.unconfirmed.is_some() && self.has_enough_of_runs()) {
            return;
        }
        let Some(rule) = rule.filter(|rule| !rule.commands.is_empty()) else {
            if ask.unconfirmed.is_none() {
                self.suspect(ask, pool, &format!("no action: {}", ask.title), scene.now_ns);
            }
            return;
        };
        if state == State::Healthy && ask.unconfirmed.is_none() {
            self.suspect(ask, pool, &ask.title, scene.now_ns);
        }
        // Nobody reads more than that, and what is worst comes first. The rest gets its turn when something is decided.
        if self.waiting.len() < WAITING_MAX {
            self.plan_for(ask, rule, (pool, origin), scene);
        }
    }

    /// Takes over what else is known by now of something that a plan waits for.
    fn hear(&mut self, id: u64, ask: &Ask, pool: &Pool, now_ns: i64) {
        let Some(plan) = self.plans.get(&id) else { return };
        let is_confirmed = plan.unconfirmed.is_some() && ask.unconfirmed.is_none();
        if is_confirmed && self.state_of(plan) == State::Healthy {
            self.suspect(ask, pool, &ask.title, now_ns);
        }
        self.change_if(id, |plan| {
            let is_new = plan.common != ask.common || plan.unconfirmed != ask.unconfirmed;
            is_new.then(|| {
                plan.common.clone_from(&ask.common);
                plan.unconfirmed.clone_from(&ask.unconfirmed);
            })
        });
    }

    /// Whether so much waits by the word of runs alone that no more of it is taken: whoever may send a run may name
    /// any machine.
    fn has_enough_of_runs(&self) -> bool {
        let waiting = self.waiting.iter().filter_map(|id| self.plans.get(id));
        waiting.filter(|plan| plan.unconfirmed.is_some()).count() >= UNCONFIRMED_MAX
    }

    fn change_if(&mut self, id: u64, change: impl FnOnce(&mut Plan) -> Option<()>) {
        let Some(plan) = self.plans.get(&id) else { return };
        let mut changed = plan.clone();
        if change(&mut changed).is_some() {
            self.put_plan(changed);
        }
    }

    pub(super) fn suspect(&mut self, ask: &Ask, pool: &Pool, text: &str, now_ns: i64) {
        let key = (ask.host.clone(), ask.uuid.clone());
        let from = self.units.get(&key).map_or(State::Healthy, |unit| unit.state);
        let run_id = ask.jobs.iter().find(|job| job.is_run).map(|job| job.id.clone());
        self.push_edge(Edge {
            time_ns: now_ns,
            host: ask.host.clone(),
            gpu: ask.gpu.clone(),
            uuid: ask.uuid.clone(),
            from,
            to: from.max(State::Suspect),
            text: text.to_owned(),
            actor: POLICY.to_owned(),
            dry_run: self.ceiling != Ceiling::Real,
            deed: Deed::Observed,
            incident: ask.incident.clone(),
            plan: None,
            run_id,
            commands: Vec::new(),
        });
        let dry_run = self.ceiling != Ceiling::Real;
        self.change_unit(&key, |unit| {
            unit.gpu.clone_from(&ask.gpu);
            unit.pool.clone_from(&pool.name);
            unit.incident.clone_from(&ask.incident);
            text.clone_into(&mut unit.reason);
            if from == State::Healthy {
                unit.state = State::Suspect;
                unit.since_ns = now_ns;
                unit.dry_run = dry_run;
            }
        });
    }

    /// Makes the plan for something that asks for an action, or that a person proposes. Gives its number.
    pub(super) fn plan_for(
        &mut self,
        ask: &Ask,
        rule: &ActionRule,
        (pool, origin): (&Pool, Origin<'_>),
        scene: &Scene<'_>,
    ) -> u64 {
        let id = self.next_id();
        let mut plan = draft(id, ask, rule, pool, scene.now_ns);
        match origin {
            Origin::Policy | Origin::Anew(..) => {}
            Origin::Person(by) => by.actor.clone_into(&mut plan.asked_by),
            Origin::After(before) => plan.follows = Some(before),
        }
        // Who said no to one is asked before the next.
        if matches!(origin, Origin::Person(_) | Origin::After(_) | Origin::Anew(_, Status::Rejected)) {
            plan.mode = plan.mode.min_approve();
        }
        if !matches!(origin, Origin::Policy) {
            // It may be about what was decided on before.
            plan.key = format!("{}/{}", plan.key, plan.name());
        }
        plan.spare = self.spare(pool, scene.facts);
        plan.spare_since_ns = plan.spare.as_ref().and_then(|host| self.well_since(host, scene.facts));
        plan.is_of_storm = scene.is_open(pool);
        let made = steps(&plan, rule, scene.policy);
        match made {
            Ok((steps, proof)) => {
                (plan.steps, plan.proof) = (steps, proof);
                plan.guards = self.guards(&plan, scene);
                self.put_plan(plan.clone());
                if plan.guards.0.iter().any(|guard| guard.name == "resets" && guard.ok == Some(false)) {
                    let text = "it was reset as often as a day allows, and it did not help";
                    self.fail(id, text, scene.now_ns);
                    return id;
                }
                let state = self.state_of(&plan);
                let (actor, text) = match origin {
                    Origin::Person(by) => (by.actor, format!("proposed: {}", by.reason)),
                    Origin::After(before) => {
                        (POLICY, format!("tg-{before} did not help: `{}` is next", plan.trigger.name()))
                    }
                    Origin::Policy => (POLICY, waits_for(&plan, scene).to_owned()),
                    Origin::Anew(before, _) => {
                        let text = format!("asked for anew after tg-{before}: {}", waits_for(&plan, scene));
                        (POLICY, text)
                    }
                };
                let plan = Plan { actor: actor.to_owned(), ..plan };
                self.note(&plan, (state, state), &text, scene.now_ns);
            }
            Err(why) => {
                self.put_plan(plan);
                self.fail(id, &format!("no command can be made for it: {why}"), scene.now_ns);
            }
        }
        id
    }

    /// Whether the commands of a rule can be made for what is asked for; why they can't be.
    pub(super) fn can_make(
        &self,
        ask: &Ask,
        rule: &ActionRule,
        pool: &Pool,
        scene: &Scene<'_>,
    ) -> Result<(), String> {
        let mut plan = draft(0, ask, rule, pool, scene.now_ns);
        plan.spare = self.spare(pool, scene.facts);
        steps(&plan, rule, scene.policy).map(|_made| ())
    }

    /// What is asked for became something else while the plan waited.
    fn replan(&mut self, id: u64, ask: &Ask, rule: Option<&ActionRule>, pool: &Pool, scene: &Scene<'_>) {
        let Some(old) = self.plans.get(&id).cloned() else { return };
        let state = self.state_of(&old);
        let text = format!("`{}` became `{}`", old.trigger.name(), ask.trigger.name());
        let Some(rule) = rule.filter(|rule| !rule.commands.is_empty()) else {
            self.change(id, |plan| {
                plan.status = Status::Withdrawn;
                plan.outcome = format!("{text}, for which the policy has no rule");
            });
            self.note(&old, (state, state), &format!("{text}: no action"), scene.now_ns);
            return;
        };
        let mut plan = draft(id, ask, rule, pool, old.asked_ns);
        (plan.spare, plan.is_of_storm, plan.expires_ns) = (old.spare, old.is_of_storm, old.expires_ns);
        plan.uuid = old.uuid;
        match steps(&plan, rule, scene.policy) {
            Ok((steps, proof)) => {
                (plan.steps, plan.proof) = (steps, proof);
                self.note(&plan, (state, state), &text, scene.now_ns);
                self.put_plan(plan);
            }
            Err(why) => self.fail(id, &format!("no command can be made for it: {why}"), scene.now_ns),
        }
    }

    /// Makes the commands of a plan that waits anew where other runs have the machine than when it was made: hooks
    /// are for those that are there. While nothing is heard of the machine, those that were known stay.
    fn meet_runs(&mut self, id: u64, ask: &Ask, scene: &Scene<'_>) {
        let Some(old) = self.plans.get(&id).cloned() else { return };
        let heard = scene.facts.node(&ask.host).map(|node| node.heard_ns);
        let is_heard = heard.is_some_and(|heard_ns| scene.now_ns.saturating_sub(heard_ns) < HEARD_NS);
        let mut jobs = ask.jobs.clone();
        let has = |jobs: &[Job], id: &str| jobs.iter().any(|job| job.is_run && job.id == id);
        let gone = old.jobs.iter().filter(|job| !is_heard && job.is_run && !has(&jobs, &job.id));
        let gone: Vec<Job> = gone.cloned().collect();
        jobs.extend(gone);
        let is_same = |a: &[Job], b: &[Job]| a.iter().filter(|job| job.is_run).all(|job| has(b, &job.id));
        if (is_same(&jobs, &old.jobs) && is_same(&old.jobs, &jobs)) || old.at > 0 {
            let living = |of: &[Job]| of.iter().filter(|job| !job.is_dead).count();
            if living(&old.renewed(&jobs)) != living(&old.jobs) {
                self.renew(id, &jobs);
            }
            return;
        }
        let Some(rule) = scene.policy.rule(old.trigger, &old.pool) else { return };
        let plan = Plan { jobs, ..old };
        match steps(&plan, rule, scene.policy) {
            Ok((steps, proof)) => {
                let plan = Plan { steps, proof, ..plan };
                let state = self.state_of(&plan);
                self.note(&plan, (state, state), "other runs have the machine now", scene.now_ns);
                self.put_plan(plan);
            }
            Err(why) => self.fail(id, &format!("no command can be made for it: {why}"), scene.now_ns),
        }
    }

    /// A machine of the pool's spares that nothing is wrong with and no job has.
    fn spare(&self, pool: &Pool, facts: &Facts) -> Option<String> {
        let is_well = |host: &str| self.units_of(host).all(|unit| unit.state == State::Healthy);
        let idle =
            |host: &&String| facts.node(host).is_some_and(|node| node.jobs.is_empty()) && is_well(host);
        let taken: BTreeSet<&String> = self
            .active()
            .filter(|plan| matches!(plan.status, Status::Executing | Status::Validating))
            .filter_map(|plan| plan.spare.as_ref())
            .collect();
        pool.spares.iter().filter(|host| !taken.contains(host)).find(idle).cloned()
    }

    /// Since when nothing is known against a machine, nanoseconds.
    fn well_since(&self, host: &str, facts: &Facts) -> Option<i64> {
        let of_units = self.units_of(host).map(|unit| unit.since_ns).max();
        facts.node(host)?.since_ns.map(|since| since.max(of_units.unwrap_or(since)))
    }

    /// Ends what is over by itself.
    fn settle(&mut self, scene: &Scene<'_>) {
        let open: BTreeSet<&str> = scene.facts.asks.iter().map(|ask| ask.incident.as_str()).collect();
        let waiting: Vec<Plan> = self.plans.values().filter(|p| !p.status.is_over()).cloned().collect();
        for plan in waiting {
            let is_waiting = matches!(plan.status, Status::Queued | Status::Rehearsed);
            // Nobody but a person says when that is over.
            let is_by_hand = plan.incident.starts_with(HAND);
            let is_late = scene.now_ns >= plan.expires_ns && plan.waits_for_person();
            if is_waiting && plan.at > 0 {
                // Something was done to the machine already: that is not undone by itself.
                if is_late {
                    self.fail(plan.id, "nobody agreed in time that it goes on", scene.now_ns);
                }
            } else if is_waiting && !is_by_hand && !open.contains(plan.incident.as_str()) {
                self.change(plan.id, |plan| {
                    plan.status = Status::Withdrawn;
                    "the incident is over".clone_into(&mut plan.outcome);
                });
            } else if plan.status == Status::Queued && is_late {
                self.change(plan.id, |plan| {
                    plan.status = Status::Expired;
                    "nobody agreed in time".clone_into(&mut plan.outcome);
                });
                let state = self.state_of(&plan);
                self.note(
                    &plan,
                    (state, state),
                    "expired: nobody agreed in time, and nothing is done",
                    scene.now_ns,
                );
            }
        }
        let busy: BTreeSet<(String, String)> =
            self.plans.values().filter(|plan| !plan.status.is_over()).map(Plan::unit).collect();
        let of_asks: BTreeSet<(&str, &str)> =
            scene.facts.asks.iter().map(|ask| (ask.host.as_str(), ask.uuid.as_str())).collect();
        let over = |unit: &&Unit| {
            unit.state == State::Suspect
                && !open.contains(unit.incident.as_str())
                && !of_asks.contains(&(unit.host.as_str(), unit.uuid.as_str()))
                && !busy.contains(&(unit.host.clone(), unit.uuid.clone()))
        };
        let over: Vec<Unit> = self.units.values().filter(over).cloned().collect();
        for unit in over {
            self.clear(unit, scene.now_ns);
        }
    }

    fn clear(&mut self, unit: Unit, now_ns: i64) {
        let text = "the incident is over";
        self.push_edge(Edge {
            time_ns: now_ns,
            host: unit.host.clone(),
            gpu: unit.gpu.clone(),
            uuid: unit.uuid.clone(),
            from: unit.state,
            to: State::Healthy,
            text: text.to_owned(),
            actor: POLICY.to_owned(),
            dry_run: unit.dry_run,
            deed: Deed::Observed,
            incident: unit.incident.clone(),
            plan: None,
            run_id: None,
            commands: Vec::new(),
        });
        self.change_unit(&(unit.host, unit.uuid), |unit| {
            unit.state = State::Healthy;
            unit.since_ns = now_ns;
            unit.dry_run = false;
            text.clone_into(&mut unit.reason);
        });
    }

    /// A plan that waits: runs, is rehearsed, or goes on waiting.
    fn queued(&mut self, id: u64, scene: &Scene<'_>) {
        let Some(plan) = self.plans.get(&id).cloned() else { return };
        let is_of_storm = plan.is_of_storm
            || scene
                .policy
                .pool(&plan.pool)
                .is_some_and(|pool| plan.mode == Mode::Auto && scene.is_open(pool));
        let plan = Plan { is_of_storm, ..plan };
        let guards = self.guards(&plan, scene);
        let goes_alone = plan.mode != Mode::Approve && plan.asked_by.is_empty() && plan.follows.is_none();
        let is_real = plan.mode == Mode::Auto && scene.ceiling == Ceiling::Real;
        let status = if !goes_alone {
            Status::Queued
        } else if is_real && guards.all_hold() {
            Status::Executing
        } else if !is_real && guards.hold_for_rehearsal() {
            Status::Rehearsed
        } else {
            Status::Queued
        };
        if status == Status::Queued {
            self.change_if(id, |plan| {
                let changed = plan.guards != guards || plan.is_of_storm != is_of_storm;
                changed.then(|| (plan.guards, plan.is_of_storm) = (guards, is_of_storm))
            });
            return;
        }
        self.start(&plan, status, guards, scene.now_ns);
    }

    fn start(&mut self, plan: &Plan, status: Status, guards: Guarded, now_ns: i64) {
        let lines: Vec<String> = plan.steps.iter().map(|step| step.text.clone()).collect();
        let count = plural(lines.len(), "command", "commands");
        let is_real = status == Status::Executing;
        let text = if is_real { format!("runs {count}") } else { format!("would run {count}") };
        self.change(plan.id, |plan| {
            (plan.status, plan.guards) = (status, guards);
            text.clone_into(&mut plan.outcome);
            plan.moved_ns = Some(now_ns);
        });
        let state = self.state_of(plan);
        self.go(plan.id, state, &text, now_ns);
        if let Some(edge) = self.last_edge() {
            edge.commands = lines;
        }
    }

    /// Looks whether a machine is well; gives the probe when that is all that is missing.
    fn validating(&mut self, id: u64, scene: &Scene<'_>) -> Option<(u64, Step)> {
        let plan = self.plans.get(&id)?.clone();
        let (proof, since_ns) = (plan.proof.clone()?, plan.validating_ns?);
        let boots = plan.steps.iter().any(|step| step.does == Some(State::Rebooting));
        let before = boots.then_some(plan.boot_id.as_str());
        let node = scene.facts.node(&plan.host);
        let checks = judge(node, &plan.uuid, (since_ns, scene.now_ns), proof.quiet_ns, before);
        if let Some(bad) = checks.iter().find(|check| check.ok == Some(false)) {
            self.fail_proof(id, &format!("not well after the action: {}", bad.text), scene.now_ns);
            return None;
        }
        let missing: Vec<&str> =
            checks.iter().filter(|check| check.ok.is_none()).map(|check| check.text.as_str()).collect();
        let passed = scene.now_ns.saturating_sub(since_ns);
        if !missing.is_empty() {
            if passed > proof.limit_ns {
                let text = format!("not well {} after the action: {}", spoken(passed), missing.join("; "));
                self.fail_proof(id, &text, scene.now_ns);
            }
            return None;
        }
        if let Some(probe) = proof.probe.filter(|_| !plan.is_probed) {
            return Some((id, probe));
        }
        self.validated(&plan, scene.now_ns);
        None
    }

    /// Gives a plan up whose machine is not well after it; what comes next is looked at soon.
    fn fail_proof(&mut self, id: u64, text: &str, now_ns: i64) {
        self.fail(id, text, now_ns);
        self.change(id, |plan| plan.wants_next = true);
    }

    /// Proposes what the incident asks for next where the action before did not help. A person agrees, always.
    fn escalate(&mut self, scene: &Scene<'_>) {
        let failed: Vec<Plan> = self.plans.values().filter(|plan| plan.wants_next).cloned().collect();
        for before in failed {
            self.change(before.id, |plan| plan.wants_next = false);
            let Some(on) = before.then else { continue };
            let state = self.state_of(&before);
            let ask = scene.facts.asks.iter().find(|ask| ask.incident == before.incident);
            let Some((ask, pool)) = ask.zip(scene.policy.pool(&before.pool)) else { continue };
            let rule = scene.policy.rule(on, &pool.name).filter(|rule| !rule.commands.is_empty());
            let Some(rule) = rule else {
                let text = format!("`{}` would be next, for which the policy has no action", on.name());
                self.note(&before, (state, state), &text, scene.now_ns);
                continue;
            };
            let ask = Ask { trigger: on, then: None, ..ask.clone() };
            self.plan_for(&ask, rule, (pool, Origin::After(before.id)), scene);
        }
    }

    /// All is well: what brings the machine back comes next.
    fn validated(&mut self, plan: &Plan, now_ns: i64) {
        self.change(plan.id, |plan| {
            plan.status = Status::Executing;
            plan.at += 1;
            plan.moved_ns = Some(now_ns);
        });
        self.go(plan.id, State::Validating, "every check is good", now_ns);
    }

    /// What a probe gave: it has to reach a share of what the pool's other machines gave.
    pub fn probed(&mut self, id: u64, outcome: &Outcome, now_ns: i64) {
        let Some(plan) = self.plans.get(&id).filter(|plan| plan.status == Status::Validating).cloned() else {
            return;
        };
        let Some(proof) = plan.proof.clone() else { return };
        if !outcome.is_good {
            self.fail_proof(id, &format!("the probe failed: {}", outcome.text), now_ns);
            return;
        }
        let given = outcome.text.split_whitespace().last().and_then(|word| word.parse::<f64>().ok());
        let given = given.filter(|given| given.is_finite());
        let others = self.units.values().filter(|unit| unit.pool == plan.pool && unit.host != plan.host);
        let mut others: Vec<f64> = others.filter_map(|unit| unit.probe).collect();
        others.sort_by(f64::total_cmp);
        let median = others.get(others.len() / 2).copied().filter(|_| others.len() >= PROBES_MIN);
        self.change_unit(&plan.unit(), |unit| unit.probe = given.or(unit.probe));
        if let (Some(given), Some(median)) = (given, median)
            && given < median * proof.probe_min_ratio
        {
            let text = format!(
                "the probe gave {given}, below {:.0} % of the pool's median {median}",
                proof.probe_min_ratio * 100.0
            );
            self.fail_proof(id, &text, now_ns);
            return;
        }
        self.change(id, |plan| plan.is_probed = true);
        let text = given.map_or("the probe is good".to_owned(), |given| format!("the probe gave {given}"));
        self.go(id, State::Validating, &text, now_ns);
    }
}

/// Where a plan comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin<'a> {
    /// The policy has an action for what was asked.
    Policy,
    /// Somebody proposed it.
    Person(By<'a>),
    /// The plan of this number did not help.
    After(u64),
    /// The plan of this number is over, and the same is asked for anew or more than it did.
    Anew(u64, Status),
}

/// Whether something is asked for once more, of which a plan is over: the incident had seemed over, or became graver.
fn is_asked_anew(known: &Plan, ask: &Ask) -> bool {
    match known.status {
        Status::Withdrawn => known.actor == POLICY,
        status => status.is_over() && ask.trigger > known.trigger,
    }
}

fn waits_for(plan: &Plan, scene: &Scene<'_>) -> &'static str {
    match plan.mode {
        Mode::Approve => "waits for approval",
        _ if plan.is_of_storm || plan.common.is_some() => "waits for approval: it came with others",
        Mode::Auto if scene.ceiling == Ceiling::Real => "waits for the guards",
        _ => "is rehearsed once the guards let it",
    }
}

fn draft(id: u64, ask: &Ask, rule: &ActionRule, pool: &Pool, now_ns: i64) -> Plan {
    let boot = if ask.boot_id.is_empty() { "unknown" } else { &ask.boot_id };
    let card = if ask.uuid.is_empty() { "node" } else { &ask.uuid };
    Plan {
        id,
        key: format!("{boot}/{card}/{}", ask.incident),
        host: ask.host.clone(),
        gpu: ask.gpu.clone(),
        uuid: ask.uuid.clone(),
        boot_id: ask.boot_id.clone(),
        pool: pool.name.clone(),
        incident: ask.incident.clone(),
        trigger: ask.trigger,
        sure: ask.sure,
        common: ask.common.clone(),
        title: ask.title.clone(),
        text: ask.text.clone(),
        evidence: ask.evidence.iter().take(EVIDENCE_MAX).cloned().collect(),
        jobs: ask.jobs.clone(),
        gain_ratio: ask.gain_ratio,
        spare: None,
        spare_since_ns: None,
        then: ask.then,
        unconfirmed: ask.unconfirmed.clone(),
        follows: None,
        wants_next: false,
        // A recommendation is never more than that.
        mode: if ask.trigger == Trigger::Straggler { rule.mode.min_approve() } else { rule.mode },
        is_of_storm: false,
        steps: Vec::new(),
        proof: None,
        asked_ns: now_ns,
        expires_ns: now_ns.saturating_add(pool.guards.approval_ns),
        status: Status::Queued,
        at: 0,
        is_begun: false,
        moved_ns: None,
        worked: Vec::new(),
        validating_ns: None,
        is_probed: false,
        actor: POLICY.to_owned(),
        asked_by: String::new(),
        guards: Guarded::default(),
        outcome: String::new(),
    }
}

impl Mode {
    fn min_approve(self) -> Self {
        if self == Self::Auto { Self::Approve } else { self }
    }
}

type Made = (Vec<Step>, Option<Proof>);

/// Everything that a plan runs, with all names filled in.
fn steps(plan: &Plan, rule: &ActionRule, policy: &Policy) -> Result<Made, String> {
    let tools = policy.tools();
    let mut values = Values::default();
    values.set(Named::Host, &plan.host);
    values.set(Named::Gpu, &plan.gpu);
    values.set(Named::Uuid, &plan.uuid);
    values.set(Named::Pool, &plan.pool);
    values.set(Named::Id, plan.name());
    values.set(Named::Spare, plan.spare.as_deref().unwrap_or_default());
    // Whatever the commands name, they are about this machine.
    super::command::is_plain(&plan.host).then_some(()).ok_or_else(|| {
        let shown: String = plan.host.chars().flat_map(char::escape_default).take(80).collect();
        format!("the machine's name \"{shown}\" may not stand in a command")
    })?;
    let runs: Vec<&Job> = plan.jobs.iter().filter(|job| job.is_run).collect();
    let make = |commands: &[Command]| -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        for command in commands {
            if matches!(command.kind, Kind::Hook { .. }) {
                for run in &runs {
                    steps.push(tools.step(command, &of_run(&values, run))?);
                }
                continue;
            }
            let values = runs.first().map_or_else(|| values.clone(), |run| of_run(&values, run));
            steps.push(tools.step(command, &values)?);
        }
        Ok(steps)
    };
    let mut steps = make(&rule.commands)?;
    let mut proof = None;
    if let Some(validation) = &rule.validation {
        steps.push(Step::validate(validation.limit_ns));
        let probe = validation.probe.as_ref().map(|probe| tools.step(probe, &values)).transpose()?;
        let (quiet_ns, limit_ns) = (validation.quiet_ns, validation.limit_ns);
        proof = Some(Proof { quiet_ns, limit_ns, probe, probe_min_ratio: validation.probe_min_ratio });
    }
    steps.extend(make(&rule.after)?);
    Ok((steps, proof))
}

fn of_run(values: &Values, run: &Job) -> Values {
    let mut values = values.clone();
    values.set(Named::RunId, &run.id);
    values.set(Named::Run, &run.name);
    if let Some(checkpoint) = &run.checkpoint {
        values.set(Named::Step, checkpoint.step.to_string());
    }
    values
}

/// What a policy would have done about incidents that are over. Every command is taken to have worked and
/// every machine to be well when its validation ends.
#[derive(Debug)]
pub struct Replay<'p> {
    policy: &'p Policy,
    book: Book,
    edges: Vec<Edge>,
    edges_max: usize,
    most: BTreeMap<String, usize>,
}

impl<'p> Replay<'p> {
    /// One that keeps so many lines of the audit.
    pub fn new(policy: &'p Policy, edges_max: usize) -> Self {
        Self { policy, book: Book::default(), edges: Vec::new(), edges_max, most: BTreeMap::new() }
    }

    /// Looks at what was known at a time; times do not go back.
    pub fn look(&mut self, facts: &Facts, now_ns: i64) {
        let Self { policy, book, .. } = self;
        book.look(policy, Ceiling::Real, facts, now_ns);
        let worked = Outcome { is_good: true, text: "taken to have worked".to_owned(), took_ns: 0 };
        for id in book.with(Status::Validating) {
            let Some(plan) = book.plans.get(&id).cloned() else { continue };
            let quiet = plan.proof.as_ref().map_or(0, |proof| proof.quiet_ns);
            if plan.validating_ns.is_some_and(|since| now_ns >= since.saturating_add(quiet)) {
                book.validated(&plan, now_ns);
            }
        }
        // Each round ends one step of every plan, and no plan has so many.
        for _ in 0..64 {
            for id in book.runnable() {
                book.begin(id, now_ns);
                book.ended(id, &worked, now_ns);
            }
        }
        for pool in &policy.pools {
            let out = book.out(&pool.name, false).len();
            let known = self.most.entry(pool.name.clone()).or_default();
            *known = out.max(*known);
        }
        let edges = self.book.take_changes().edges;
        let room = self.edges_max.saturating_sub(self.edges.len());
        self.edges.extend(edges.into_iter().take(room));
    }

    /// The audit, the plans, and the most machines of each pool that were out at once.
    pub fn finish(self) -> (Vec<Edge>, Vec<Plan>, BTreeMap<String, usize>) {
        (self.edges, self.book.plans.into_values().collect(), self.most)
    }
}
