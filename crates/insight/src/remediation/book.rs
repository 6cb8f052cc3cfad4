//! What is known of machines and of what is being done about them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command::Step;
use super::guards::{CONFIDENCE, Guard, Guarded, Scene};
use super::{Ceiling, Checkpoint, DAY_NS, Facts, Job, Mode, Policy, State, Sure, Trigger};

/// Plans that are over and are remembered.
const OVER_MAX: usize = 5_000;

/// A card, or a whole machine where the card is not known.
pub(super) type UnitKey = (String, String);

/// See [`UnitKey`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The machine.
    pub host: String,
    /// The card's id; empty for the whole machine.
    pub uuid: String,
    /// The card's index; empty where it is not known.
    pub gpu: String,
    /// The machine's pool.
    pub pool: String,
    /// Where it stands.
    pub state: State,
    /// Since when, nanoseconds.
    pub since_ns: i64,
    /// The incident.
    pub incident: String,
    /// Why it stands there.
    pub reason: String,
    /// When the card was reset or the machine booted from here, nanoseconds.
    pub resets_ns: Vec<i64>,
    /// Nothing of it was done: what would be was written down.
    pub dry_run: bool,
    /// A command that takes it out was run.
    pub was_taken_out: bool,
    /// When an action on it ended, nanoseconds.
    pub finished_ns: Option<i64>,
    /// What its last probe gave.
    pub probe: Option<f64>,
}

/// How far a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits: for a person, or until the guards let it go.
    Queued,
    /// Its commands run.
    Executing,
    /// They ran, and it is checked what came of it.
    Validating,
    /// Nothing ran; what would have is written down.
    Rehearsed,
    /// All is well.
    Done,
    /// A person said no.
    Rejected,
    /// Nobody agreed in time.
    Expired,
    /// What it was for is over.
    Withdrawn,
    /// It went wrong on the way.
    Failed,
}

impl Status {
    /// Whether nothing happens to it any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Executing | Self::Validating | Self::Rehearsed)
    }

    /// As APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Executing => "executing",
            Self::Validating => "validating",
            Self::Rehearsed => "rehearsed",
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Failed => "failed",
        }
    }
}

/// What has to hold before the machine of a plan gets work again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// So long no new fault, nanoseconds.
    pub quiet_ns: i64,
    /// After this a human looks, nanoseconds.
    pub limit_ns: i64,
    /// A program that tries the machine.
    pub probe: Option<Step>,
    /// Share of the pool's median that its number has to reach.
    pub probe_min_ratio: f64,
}

/// What is to be done about one incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number; `tg-12` to people.
    pub id: u64,
    /// Boot, card and incident: for these it is made once.
    pub key: String,
    /// The machine.
    pub host: String,
    /// The card's index; empty where it is not known.
    pub gpu: String,
    /// The card's id; empty for the whole machine.
    pub uuid: String,
    /// The boot that it was made in.
    pub boot_id: String,
    /// The machine's pool.
    pub pool: String,
    /// The incident.
    pub incident: String,
    /// The verdict.
    pub trigger: Trigger,
    /// How sure that is.
    pub sure: Sure,
    /// The common cause that the incident seems to have.
    pub common: Option<String>,
    /// What failed.
    pub title: String,
    /// What it means.
    pub text: String,
    /// What it rests on.
    pub evidence: Vec<String>,
    /// Jobs that it interrupts.
    pub jobs: Vec<Job>,
    /// Share of step time to be won.
    pub gain_ratio: Option<f64>,
    /// A machine that can take over.
    pub spare: Option<String>,
    /// Since when nothing is known against it, nanoseconds.
    #[serde(default)]
    pub spare_since_ns: Option<i64>,
    /// What is asked for next where this does not help.
    #[serde(default)]
    pub then: Option<Trigger>,
    /// The plan that this one follows, since its validation failed.
    #[serde(default)]
    pub follows: Option<u64>,
    /// Why nothing but a run's own word puts it on this machine; see [`super::Ask::unconfirmed`].
    #[serde(default)]
    pub unconfirmed: Option<String>,
    /// Its validation failed, and what comes next was not looked at yet.
    #[serde(default)]
    pub wants_next: bool,
    /// Who has to agree.
    pub mode: Mode,
    /// It was asked for while the breaker was open: never by itself.
    pub is_of_storm: bool,
    /// Everything that runs, in order, the validation among it.
    pub steps: Vec<Step>,
    /// What has to hold in the validation.
    pub proof: Option<Proof>,
    /// When it was asked for, nanoseconds.
    pub asked_ns: i64,
    /// Until when a person can agree, nanoseconds.
    pub expires_ns: i64,
    /// How far it is.
    pub status: Status,
    /// The step that comes next or runs.
    pub at: usize,
    /// It was begun, and nobody knows yet how it ended.
    pub is_begun: bool,
    /// When it was let go, or its last step ended, nanoseconds.
    #[serde(default)]
    pub moved_ns: Option<i64>,
    /// Steps that did what they should, as far as anybody knows.
    #[serde(default)]
    pub worked: Vec<usize>,
    /// Since when it is validated, nanoseconds.
    pub validating_ns: Option<i64>,
    /// The probe was run and was good.
    pub is_probed: bool,
    /// Who agreed; `policy` where nobody had to.
    pub actor: String,
    /// The person who proposed it; empty where the policy did.
    #[serde(default)]
    pub asked_by: String,
    /// How the guards stood last.
    pub guards: Guarded,
    /// How it ended, or why it waits.
    pub outcome: String,
}

impl Plan {
    pub(super) fn unit(&self) -> UnitKey {
        (self.host.clone(), self.uuid.clone())
    }

    /// Whether it resets a card or boots the machine.
    pub(super) fn breaks(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.does, Some(State::Resetting | State::Rebooting)))
    }

    /// Whether it waits for a person, and not for a guard alone.
    pub(super) fn waits_for_person(&self) -> bool {
        self.mode == Mode::Approve
            || !self.asked_by.is_empty()
            || self.follows.is_some()
            || self.is_of_storm
            || self.common.is_some()
            || self.unconfirmed.is_some()
            || self.guards.0.iter().any(|guard| guard.name == CONFIDENCE && guard.ok == Some(false))
    }

    /// Whether it stands between two steps: nothing of it runs.
    fn stands(&self) -> bool {
        self.status == Status::Executing && !self.is_begun
    }

    /// The checkpoint from which the first of its jobs would go on.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.jobs.iter().find_map(|job| job.checkpoint.as_ref())
    }

    /// After how many seconds what is won has made up for what is lost: a job that is a share faster wins that share of
    /// every second. Else why that is not known.
    pub fn pays_back_seconds(&self) -> Result<f64, &'static str> {
        let gain = self.gain_ratio.filter(|gain| *gain > 0.0).ok_or("what is won is not known")?;
        let job = self.jobs.iter().find(|job| job.is_run).ok_or("no run here has the machine")?;
        Ok(job.lost_seconds()? / gain)
    }

    /// Its jobs with what is known by now of the runs among them: how far they came, from where they would go on. Once
    /// it runs, it is about the attempts that it interrupts, and says nothing of those that come after.
    pub fn renewed(&self, known: &[Job]) -> Vec<Job> {
        let is_waiting = self.status == Status::Queued;
        let renewed = |job: &Job| {
            let now = known.iter().find(|now| now.is_run && now.id == job.id && job.is_run);
            let now = now.filter(|now| is_waiting || now.attempt == job.attempt);
            now.map_or_else(|| job.clone(), |now| Job { gpus: now.gpus.or(job.gpus), ..now.clone() })
        };
        self.jobs.iter().map(renewed).collect()
    }

    /// Runs that are interrupted.
    fn interrupted(&self) -> Result<Vec<&Job>, &'static str> {
        let runs: Vec<&Job> = self.jobs.iter().filter(|job| job.is_run && !job.is_dead).collect();
        if runs.is_empty() { Err("no run that lives has the machine") } else { Ok(runs) }
    }

    /// Steps that are repeated by all the runs that it interrupts. Else why that is not known.
    pub fn steps_lost(&self) -> Result<i64, &'static str> {
        self.interrupted()?.into_iter().map(Job::steps_lost).sum()
    }

    /// Seconds that those runs lose together: what is repeated, and being started again. Else why that is not known.
    pub fn lost_seconds(&self) -> Result<f64, &'static str> {
        self.interrupted()?.into_iter().map(Job::lost_seconds).sum()
    }

    /// What their GPUs cost in that time, dollars. Else why that is not known.
    pub fn lost_usd(&self) -> Result<f64, &'static str> {
        let of_job = |job: &Job| {
            let seconds = job.lost_seconds()?;
            let usd_per_hour = job.usd_per_hour.ok_or("no price is known of the run's GPUs")?;
            Ok(seconds / 3_600.0 * usd_per_hour)
        };
        self.interrupted()?.into_iter().map(of_job).sum()
    }

    /// What a person has to write who wants it to run: the machine, and where nobody but a run says that the run is
    /// there, that this is known.
    pub fn confirm(&self) -> String {
        match self.unconfirmed {
            Some(_) => format!("{} unconfirmed", self.host),
            None => self.host.clone(),
        }
    }

    /// As people write its number.
    pub fn name(&self) -> String {
        format!("tg-{}", self.id)
    }
}

impl Job {
    fn steps_lost(&self) -> Result<i64, &'static str> {
        let checkpoint =
            self.checkpoint.as_ref().ok_or("the run tells of no checkpoint that it has verified")?;
        checkpoint.steps_lost.ok_or("how many steps are repeated is not known")
    }

    /// What is repeated, and the time of a restart.
    fn lost_seconds(&self) -> Result<f64, &'static str> {
        let lost = self.steps_lost()?;
        let step = self.step_seconds.ok_or("how long a step takes is not known")?;
        let restart = self
            .restart_seconds
            .ok_or("the run was not started again yet: how long it takes is not known")?;
        Ok(lost as f64 * step + restart)
    }
}

/// What a line of the audit tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Deed {
    /// Something was seen: an incident began or is over. Nothing was done.
    #[default]
    Observed,
    /// The policy or a person decided something, and nothing was done yet.
    Decided,
    /// It was written down what would be done.
    Rehearsed,
    /// It was done.
    Done,
}

impl Deed {
    /// As APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Decided => "decided",
            Self::Rehearsed => "rehearsed",
            Self::Done => "done",
        }
    }
}

/// One line of the audit: a machine went from one state to another, or something about it was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// When, nanoseconds.
    pub time_ns: i64,
    /// The machine.
    pub host: String,
    /// The card's index; empty where it is not known.
    pub gpu: String,
    /// The card's id; empty for the whole machine.
    pub uuid: String,
    /// The state before.
    pub from: State,
    /// The state after; the same where only something was decided.
    pub to: State,
    /// What happened and why.
    pub text: String,
    /// `policy`, a token's name, or a hook.
    pub actor: String,
    /// It is part of a rehearsal: nothing follows from it.
    pub dry_run: bool,
    /// What it tells of.
    pub deed: Deed,
    /// The incident.
    pub incident: String,
    /// The plan's number.
    pub plan: Option<u64>,
    /// The first run that it concerns.
    pub run_id: Option<String>,
    /// Command lines that were or would be run.
    pub commands: Vec<String>,
}

/// What changed since it was asked last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Cards that changed.
    pub units: Vec<Unit>,
    /// Cards that are forgotten.
    pub units_gone: Vec<(String, String)>,
    /// Plans that changed.
    pub plans: Vec<Plan>,
    /// Plans that are forgotten.
    pub plans_gone: Vec<u64>,
    /// The audit.
    pub edges: Vec<Edge>,
    /// Incidents whose machine is well again.
    pub healed: Vec<String>,
}

impl Changes {
    /// Whether nothing did.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.plans.is_empty() && self.edges.is_empty() && self.healed.is_empty()
    }
}

/// Why something can't be done to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is none.
    Unknown,
    /// It does not wait any more.
    NotWaiting(Status),
    /// A condition is not met.
    Guard(Guard),
    /// Something runs on the machine.
    Busy(u64),
    /// The machine is well.
    Healthy,
    /// It waits for a person already.
    NeedsHuman,
    /// The policy has no pool for the machine.
    NoPool,
    /// No command can be made of what was asked for, and why.
    NoCommand(String),
    /// The policy has no action for this in the pool; those that there are, by name and verdict.
    NoRule {
        /// What was asked for; empty where anything that takes the machine out would do.
        on: String,
        /// The machine's pool.
        pool: String,
        /// Actions of that pool.
        known: Vec<String>,
    },
}

/// Who proposes something, and why.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    /// The person.
    pub actor: &'a str,
    /// In the person's words.
    pub reason: &'a str,
}

/// What incidents are called that nothing but a person's word is known of.
pub(super) const HAND: &str = "hand:";

/// What was known of a machine before something was decided about it.
#[derive(Debug, Clone)]
pub struct Kept {
    host: String,
    plans: Vec<Plan>,
    units: Vec<Unit>,
}

/// Units and plans.
#[derive(Debug, Default)]
pub struct Book {
    pub(super) units: BTreeMap<UnitKey, Unit>,
    pub(super) plans: BTreeMap<u64, Plan>,
    pub(super) by_incident: BTreeMap<String, u64>,
    /// Plans that wait; in a storm each look asks for these again and again, as for the next two.
    pub(super) waiting: BTreeSet<u64>,
    /// Plans that run, are validated or were rehearsed.
    pub(super) active: BTreeSet<u64>,
    /// Units that were taken out and need a human.
    pub(super) left_out: BTreeSet<UnitKey>,
    next: u64,
    /// How far the server goes, as it was said last.
    pub(super) ceiling: Ceiling,
    dirty_units: BTreeSet<UnitKey>,
    dirty_plans: BTreeSet<u64>,
    edges: Vec<Edge>,
    healed: Vec<String>,
}

impl Book {
    /// What was kept.
    pub fn restore(units: Vec<Unit>, plans: Vec<Plan>) -> Self {
        let mut book = Self { next: plans.iter().map(|plan| plan.id).max().unwrap_or(0), ..Self::default() };
        book.put(units, plans);
        book
    }

    fn put(&mut self, units: Vec<Unit>, plans: Vec<Plan>) {
        for plan in plans {
            let id = plan.id;
            self.by_incident.insert(plan.incident.clone(), id);
            self.plans.insert(id, plan);
            self.sort(id);
        }
        for unit in units {
            let key = (unit.host.clone(), unit.uuid.clone());
            self.units.insert(key.clone(), unit);
            self.sort_unit(&key);
        }
    }

    /// Keeps plans by how far they are.
    fn sort(&mut self, id: u64) {
        let status = self.plans.get(&id).map(|plan| plan.status);
        let is_active = matches!(status, Some(Status::Executing | Status::Validating | Status::Rehearsed));
        for (set, is_in) in
            [(&mut self.waiting, status == Some(Status::Queued)), (&mut self.active, is_active)]
        {
            if is_in {
                set.insert(id)
            } else {
                set.remove(&id)
            };
        }
    }

    fn sort_unit(&mut self, key: &UnitKey) {
        let is_out = |unit: &Unit| unit.state == State::NeedsHuman && unit.was_taken_out;
        if self.units.get(key).is_some_and(is_out) {
            self.left_out.insert(key.clone());
        } else {
            self.left_out.remove(key);
        }
    }

    /// Plans that run, are validated or were rehearsed.
    pub fn active(&self) -> impl Iterator<Item = &Plan> {
        self.active.iter().filter_map(|id| self.plans.get(id))
    }

    /// Cards of a machine, and the machine itself.
    pub(super) fn units_of<'b>(&'b self, host: &'b str) -> impl Iterator<Item = &'b Unit> {
        let from = (host.to_owned(), String::new());
        self.units.range(from..).take_while(move |((of, _), _)| of == host).map(|(_, unit)| unit)
    }

    /// Cards and machines that something was or is wrong with.
    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.units.values()
    }

    /// Plans, the oldest first.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.values()
    }

    /// A plan.
    pub fn plan(&self, id: u64) -> Option<&Plan> {
        self.plans.get(&id)
    }

    /// The worst state of each machine with a word against it.
    pub fn hosts(&self) -> BTreeMap<&str, State> {
        let mut hosts: BTreeMap<&str, State> = BTreeMap::new();
        for unit in self.units.values().filter(|unit| unit.state != State::Healthy) {
            let state = hosts.entry(&unit.host).or_default();
            *state = (*state).max(unit.state);
        }
        hosts
    }

    /// Nodes that are out, the budget, share that became bad lately, whether the breaker is open.
    pub fn pool_now(
        &self,
        pool: &str,
        policy: &Policy,
        ceiling: Ceiling,
        facts: &Facts,
        now_ns: i64,
    ) -> PoolNow {
        let scene = Scene::new(policy, ceiling, facts, now_ns);
        let Some(pool) = policy.pool(pool) else { return PoolNow::default() };
        PoolNow {
            out: self.out(&pool.name, ceiling != Ceiling::Real).len(),
            budget: scene.budget(pool),
            newly_bad_ratio: scene.newly_bad(pool),
            is_open: scene.is_open(pool),
            is_quiet: pool.quiet.iter().any(|quiet| quiet.holds(now_ns)),
        }
    }

    /// What changed since this was called last.
    pub fn take_changes(&mut self) -> Changes {
        let (units, plans) = (std::mem::take(&mut self.dirty_units), std::mem::take(&mut self.dirty_plans));
        let mut changes = Changes {
            edges: std::mem::take(&mut self.edges),
            healed: std::mem::take(&mut self.healed),
            ..Changes::default()
        };
        for key in units {
            match self.units.get(&key) {
                Some(unit) => changes.units.push(unit.clone()),
                None => changes.units_gone.push(key),
            }
        }
        for id in plans {
            match self.plans.get(&id) {
                Some(plan) => changes.plans.push(plan.clone()),
                None => changes.plans_gone.push(id),
            }
        }
        changes
    }

    /// What is known of a machine, for [`Self::take_back`].
    pub fn keep(&self, host: &str) -> Kept {
        Kept {
            host: host.to_owned(),
            plans: self.plans.values().filter(|plan| plan.host == host).cloned().collect(),
            units: self.units_of(host).cloned().collect(),
        }
    }

    /// Takes back what was decided about a machine since, since it can't be written down. What changed has to have been
    /// taken before, and is forgotten by who took it.
    pub fn take_back(&mut self, kept: Kept) {
        let Kept { host, plans, units } = kept;
        self.by_incident.retain(|_, id| self.plans.get(id).is_none_or(|plan| plan.host != host));
        self.plans.retain(|_, plan| plan.host != host);
        self.units.retain(|(of, _), _| *of != host);
        let known = &self.plans;
        self.waiting.retain(|id| known.contains_key(id));
        self.active.retain(|id| known.contains_key(id));
        self.left_out.retain(|(of, _)| *of != host);
        self.put(units, plans);
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn put_plan(&mut self, plan: Plan) {
        self.by_incident.insert(plan.incident.clone(), plan.id);
        let id = plan.id;
        self.dirty_plans.insert(id);
        self.plans.insert(id, plan);
        self.sort(id);
    }

    pub(super) fn change(&mut self, id: u64, change: impl FnOnce(&mut Plan)) {
        if let Some(plan) = self.plans.get_mut(&id) {
            change(plan);
            self.dirty_plans.insert(id);
            self.sort(id);
        }
    }

    pub(super) fn change_unit(&mut self, key: &UnitKey, change: impl FnOnce(&mut Unit)) {
        let unit = self.units.entry(key.clone()).or_insert_with(|| Unit {
            host: key.0.clone(),
            uuid: key.1.clone(),
            ..Unit::default()
        });
        change(unit);
        self.dirty_units.insert(key.clone());
        self.sort_unit(key);
    }

    /// Moves the unit of a plan, if that state can follow, and writes it down.
    pub(super) fn go(&mut self, id: u64, to: State, text: &str, now_ns: i64) {
        let Some(plan) = self.plans.get(&id).cloned() else { return };
        let from = self.units.get(&plan.unit()).map_or(State::Healthy, |unit| unit.state);
        if from != to && !from.leads_to(to) {
            return;
        }
        let dry_run = self.is_rehearsed(&plan);
        self.note(&plan, (from, to), text, now_ns);
        self.change_unit(&plan.unit(), |unit| {
            unit.pool.clone_from(&plan.pool);
            unit.gpu.clone_from(&plan.gpu);
            unit.incident.clone_from(&plan.incident);
            text.clone_into(&mut unit.reason);
            unit.dry_run = dry_run;
            if from != to {
                unit.since_ns = now_ns;
                unit.state = to;
            }
            unit.was_taken_out = to != State::Healthy && (unit.was_taken_out || to.is_active());
        });
        if from != to && to == State::Healthy {
            self.healed.push(plan.incident);
        }
    }

    /// Whether a plan runs nothing as things stand.
    pub(super) fn is_rehearsed(&self, plan: &Plan) -> bool {
        match plan.status {
            Status::Executing | Status::Validating => false,
            Status::Rehearsed => true,
            _ => plan.mode == Mode::DryRun || self.ceiling != Ceiling::Real,
        }
    }

    /// Writes down that something was decided about a plan.
    pub(super) fn note(&mut self, plan: &Plan, (from, to): (State, State), text: &str, now_ns: i64) {
        self.edges.push(Edge {
            time_ns: now_ns,
            host: plan.host.clone(),
            gpu: plan.gpu.clone(),
            uuid: plan.uuid.clone(),
            from,
            to,
            text: text.to_owned(),
            actor: plan.actor.clone(),
            dry_run: self.is_rehearsed(plan),
            deed: match plan.status {
                Status::Executing | Status::Validating => Deed::Done,
                Status::Rehearsed => Deed::Rehearsed,
                _ => Deed::Decided,
            },
            incident: plan.incident.clone(),
            plan: Some(plan.id),
            run_id: plan.jobs.iter().find(|job| job.is_run).map(|job| job.id.clone()),
            commands: Vec::new(),
        });
    }

    /// The latest line of the audit, to say more in it.
    pub(super) fn last_edge(&mut self) -> Option<&mut Edge> {
        self.edges.last_mut()
    }

    pub(super) fn push_edge(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    pub(super) fn state_of(&self, plan: &Plan) -> State {
        self.units.get(&plan.unit()).map_or(State::Healthy, |unit| unit.state)
    }

    /// A person agrees to a plan: for real, or to see what would run. `actor` is who.
    pub fn approve(
        &mut self,
        id: u64,
        actor: &str,
        dry_run: bool,
        (policy, ceiling, facts): (&Policy, Ceiling, &Facts),
        now_ns: i64,
    ) -> Result<(), Refusal> {
        self.ceiling = ceiling;
        let plan = self.waiting(id, now_ns)?.clone();
        let scene = Scene::new(policy, ceiling, facts, now_ns);
        let guards = self.guards(&plan, &scene);
        if dry_run {
            let lines: Vec<String> = plan.steps.iter().map(|step| step.text.clone()).collect();
            let text = format!("would run {}", plural(lines.len(), "command", "commands"));
            let state = self.state_of(&plan);
            let as_actor = Plan { actor: actor.to_owned(), guards, ..plan };
            self.note(&as_actor, (state, state), &text, now_ns);
            if let Some(edge) = self.last_edge() {
                (edge.dry_run, edge.deed) = (true, Deed::Rehearsed);
                edge.commands = lines;
            }
            let outcome = format!("rehearsed by {actor}");
            self.change(id, |plan| (plan.guards, plan.outcome) = (as_actor.guards, outcome));
            return Ok(());
        }
        if let Some(guard) = guards.blocking() {
            return Err(Refusal::Guard(guard.clone()));
        }
        self.change(id, |plan| {
            plan.status = Status::Executing;
            actor.clone_into(&mut plan.actor);
            plan.guards = guards;
            plan.outcome = format!("approved by {actor}");
            plan.moved_ns = Some(now_ns);
        });
        let state = self.state_of(&plan);
        // What a run alone said becomes a person's word.
        let is_first_word = state == State::Healthy || (plan.follows.is_some() && state == State::NeedsHuman);
        let to = if is_first_word { State::Suspect } else { state };
        self.go(id, to, &format!("approved by {actor}"), now_ns);
        Ok(())
    }

    /// What a person has to write for a plan to run, by what is known now. Nothing where nothing waits as that.
    pub fn confirm(&mut self, id: u64, facts: &Facts) -> Option<String> {
        let incident = self.plans.get(&id)?.incident.clone();
        if let Some(ask) = facts.asks.iter().find(|ask| ask.incident == incident) {
            self.change(id, |plan| plan.unconfirmed.clone_from(&ask.unconfirmed));
            self.renew(id, &ask.jobs);
        }
        self.plans.get(&id).map(Plan::confirm)
    }

    /// Takes over what is known by now of the runs of a plan; see [`Plan::renewed`].
    pub fn renew(&mut self, id: u64, known: &[Job]) {
        let Some(plan) = self.plans.get(&id) else { return };
        let jobs = plan.renewed(known);
        if jobs != plan.jobs {
            self.change(id, |plan| plan.jobs = jobs);
        }
    }

    /// A person says no: to a plan that waits, or to what is left of one that stands between two steps.
    pub fn reject(&mut self, id: u64, actor: &str, reason: &str, now_ns: i64) -> Result<(), Refusal> {
        let stands = self.plans.get(&id).filter(|plan| plan.stands());
        let plan = stands.map_or_else(|| self.waiting(id, now_ns), Ok)?.clone();
        self.change(id, |plan| {
            plan.status = Status::Rejected;
            plan.outcome = format!("rejected by {actor}: {reason}");
            actor.clone_into(&mut plan.actor);
        });
        // What was done to the machine already stays done until a person brings it back.
        let state = if plan.at > 0 { State::NeedsHuman } else { self.state_of(&plan) };
        self.go(id, state, &format!("rejected: {reason}"), now_ns);
        Ok(())
    }

    /// A person says that a machine is well. What waits for it is given up.
    pub fn heal(&mut self, host: &str, actor: &str, reason: &str, now_ns: i64) -> Result<(), Refusal> {
        let of_host = |plan: &&Plan| plan.host == host && !plan.status.is_over();
        let running = self.plans.values().filter(of_host);
        let running: Vec<(u64, bool)> =
            running.map(|plan| (plan.id, plan.status == Status::Executing && plan.is_begun)).collect();
        if let Some((id, _)) = running.iter().find(|(_, is_begun)| *is_begun) {
            return Err(Refusal::Busy(*id));
        }
        let units = self.units.values().filter(|unit| unit.host == host && unit.state != State::Healthy);
        let units: Vec<Unit> = units.cloned().collect();
        if units.is_empty() {
            return Err(Refusal::Healthy);
        }
        for (id, _) in running {
            self.change(id, |plan| {
                plan.status = Status::Withdrawn;
                plan.outcome = format!("{actor} says the machine is well");
                actor.clone_into(&mut plan.actor);
            });
        }
        for unit in units {
            self.edges.push(Edge {
                time_ns: now_ns,
                host: unit.host.clone(),
                gpu: unit.gpu.clone(),
                uuid: unit.uuid.clone(),
                from: unit.state,
                to: State::Healthy,
                text: reason.to_owned(),
                actor: actor.to_owned(),
                dry_run: unit.dry_run,
                deed: Deed::Decided,
                incident: unit.incident.clone(),
                plan: None,
                run_id: None,
                commands: Vec::new(),
            });
            self.healed.push(unit.incident.clone());
            self.change_unit(&(unit.host, unit.uuid), |unit| {
                unit.state = State::Healthy;
                unit.since_ns = now_ns;
                reason.clone_into(&mut unit.reason);
                unit.was_taken_out = false;
                unit.dry_run = false;
            });
        }
        Ok(())
    }

    fn waiting(&self, id: u64, now_ns: i64) -> Result<&Plan, Refusal> {
        let plan = self.plans.get(&id).ok_or(Refusal::Unknown)?;
        match plan.status {
            Status::Queued if now_ns < plan.expires_ns || !plan.waits_for_person() => Ok(plan),
            Status::Queued => Err(Refusal::NotWaiting(Status::Expired)),
            status => Err(Refusal::NotWaiting(status)),
        }
    }

    /// Forgets what is long over.
    pub(super) fn forget(&mut self, now_ns: i64) {
        let over: Vec<u64> = self.plans.values().filter(|plan| plan.status.is_over()).map(|p| p.id).collect();
        for id in over.iter().take(over.len().saturating_sub(OVER_MAX)) {
            if let Some(plan) = self.plans.remove(id) {
                self.by_incident.remove(&plan.incident);
            }
            self.dirty_plans.insert(*id);
        }
        let day = now_ns.saturating_sub(DAY_NS);
        let old = |unit: &&Unit| unit.state == State::Healthy && unit.since_ns < day && unit.probe.is_none();
        let old: Vec<UnitKey> =
            self.units.values().filter(old).map(|unit| (unit.host.clone(), unit.uuid.clone())).collect();
        for key in old {
            self.units.remove(&key);
            self.dirty_units.insert(key);
        }
    }
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolNow {
    /// Machines that are out.
    pub out: usize,
    /// How many may be.
    pub budget: usize,
    /// Share that became bad lately.
    pub newly_bad_ratio: f64,
    /// Whether nothing goes by itself since so many did.
    pub is_open: bool,
    /// Whether it is a quiet time.
    pub is_quiet: bool,
}

/// A count with its noun.
pub(super) fn plural(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
