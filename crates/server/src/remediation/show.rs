//! Remediation as the API shows it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use insight::remediation::{Ask, Ceiling, Deed, Facts, Mode, Plan, State, Status, Step, spoken};
use model::{Event, EventAsk, NANOS_PER_SECOND};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Loaded, REMEDIATION_EVENT, facts};
use crate::app::Shared;
use crate::clock::{now_ns, to_ms};
use crate::error::ApiError;

/// Lines of the audit that go along with the whole.
const AUDIT_SHOWN: usize = 50;
/// How long a machine is listed that is well again, nanoseconds.
const LISTED_NS: i64 = 86_400 * NANOS_PER_SECOND;

/// Where remediation stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RemediationAnswer {
    /// `off`, `dry_run` or `real`.
    mode: &'static str,
    /// Why it is off, and how to start; null where it is not.
    reason: Option<String>,
    /// Null without one.
    policy: Option<PolicyRow>,
    pools: Vec<PoolRow>,
    hosts: Vec<HostRow>,
    /// How much waits.
    waiting: usize,
    /// What waits: for a person, or for the guards.
    queue: Vec<PlanRow>,
    /// What is under way.
    executing: Vec<PlanRow>,
    /// The latest lines.
    audit: Vec<AuditRow>,
}

/// A policy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyRow {
    name: String,
    revision: u64,
    file: String,
}

/// Machines that are alike.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolRow {
    pool: String,
    nodes: usize,
    in_remediation: usize,
    /// How many may be at once.
    budget: usize,
    /// `closed`, or `open`: nothing goes by itself.
    breaker: &'static str,
    newly_bad_ratio: f64,
    /// It is a quiet time: nothing goes by itself.
    quiet: bool,
}

/// Where a machine or a card of it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HostRow {
    host: String,
    pool: String,
    /// `healthy`, `suspect`, `cordoned`, `draining`, `resetting`, `rebooting`, `validating` or `needs_human`.
    state: &'static str,
    /// Milliseconds since the epoch.
    since: i64,
    gpu: String,
    uuid: String,
    incident: String,
    reason: String,
    resets_24h: usize,
    dry_run: bool,
}

/// Something that is to be done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanRow {
    id: String,
    /// Boot, card and incident: for these it runs at most once.
    key: String,
    host: String,
    gpu: String,
    uuid: String,
    pool: String,
    incident: String,
    verdict: &'static str,
    title: String,
    text: String,
    evidence: Vec<String>,
    affects: Vec<AffectRow>,
    /// From where the first of the runs would go on; null where no checkpoint is known to be good.
    checkpoint: Option<CheckpointRow>,
    /// What the runs lose that it interrupts.
    lost: LostRow,
    /// Share of step time to be won; null where that is not known.
    gain_ratio: Option<f64>,
    /// After so many seconds what is won has made up for the steps that are repeated and for the restart.
    pays_back_seconds: Option<f64>,
    /// Why that is not known.
    pays_back_reason: Option<String>,
    /// A machine that can take over.
    spare: Option<String>,
    /// How it is, such as `idle, healthy for 3 days`.
    spare_text: Option<String>,
    /// The plan that this one follows, since the machine was not well after it.
    follows: Option<String>,
    guards: Vec<GuardRow>,
    /// Exactly these run, in this order.
    commands: Vec<CommandRow>,
    /// Milliseconds since the epoch.
    asked: i64,
    /// After this nothing happens, milliseconds since the epoch.
    expires: i64,
    /// `dry_run`, `approve` or `auto`.
    mode: &'static str,
    /// What has to be written as `confirm` for it to run.
    confirm: String,
    /// Why nothing but a run's own word puts it on this machine; null where its agent says so too, or the machine
    /// itself told what is wrong.
    unconfirmed: Option<String>,
    /// The person who proposed it; null where the policy did.
    asked_by: Option<String>,
    /// `queued`, `executing`, `validating` and so on.
    status: &'static str,
    /// How it ended, or why it waits.
    outcome: String,
    /// The number of the command that runs or comes next.
    step: usize,
}

/// A job that is interrupted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AffectRow {
    /// Null for a job of a scheduler that is no run here.
    run_id: Option<String>,
    run: String,
    gpus: Option<u32>,
    attempt: Option<u32>,
    /// It has ended, or nothing is heard of it any more.
    dead: bool,
}

/// A checkpoint that a job has verified.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointRow {
    step: i64,
    hash: Option<String>,
    age_seconds: Option<f64>,
    /// Steps that would be repeated.
    steps_lost: Option<i64>,
}

/// What an action costs the runs that it interrupts, all of them together.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LostRow {
    /// Steps that are repeated; null where that is not known.
    steps: Option<i64>,
    /// The time of these steps and of being started again; null where that is not known.
    seconds: Option<f64>,
    /// What their GPUs cost in that time, by the site's prices; null where that is not known.
    usd: Option<f64>,
    /// Why something is not known.
    reason: Option<&'static str>,
}

impl LostRow {
    fn of(plan: &Plan) -> Self {
        let (steps, seconds, usd) = (plan.steps_lost(), plan.lost_seconds(), plan.lost_usd());
        let reason = steps.err().or(seconds.err()).or(usd.err());
        Self { steps: steps.ok(), seconds: seconds.ok(), usd: usd.ok(), reason }
    }
}

/// A condition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GuardRow {
    name: String,
    /// Null where it is not known.
    ok: Option<bool>,
    text: String,
    /// Nobody can agree around it.
    hard: bool,
}

/// A command.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommandRow {
    n: usize,
    /// `exec`, `webhook`, `kubectl`, `scontrol`, `hook`, `wait_idle` or `validate`.
    kind: String,
    text: String,
    limit_seconds: f64,
}

/// A line of the audit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRow {
    time: i64,
    host: String,
    gpu: String,
    from: String,
    to: String,
    text: String,
    /// `policy`, or whoever agreed.
    actor: String,
    /// It is part of a rehearsal.
    dry_run: bool,
    /// `observed`: an incident began or is over; `decided`: nothing was done yet; `rehearsed`: what would be done
    /// was written down; `done`: it was.
    what: String,
    /// Names of incidents.
    evidence: Vec<String>,
    /// The plan; null where there is none yet.
    id: Option<String>,
    run_id: Option<String>,
    /// Command lines that ran or would have.
    commands: Vec<String>,
}

/// The audit, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditAnswer {
    audit: Vec<AuditRow>,
    /// Where to go on, as `cursor`; null when there are no more.
    next: Option<String>,
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn command((at, step): (usize, &Step)) -> CommandRow {
    let limit_seconds = seconds(step.limit_ns);
    CommandRow { n: at + 1, kind: step.kind.clone(), text: step.text.clone(), limit_seconds }
}

/// A plan as it is shown.
pub(super) fn plan_row(plan: &Plan, now_ns: i64) -> PlanRow {
    let affect = |job: &insight::remediation::Job| AffectRow {
        run_id: job.is_run.then(|| job.id.clone()),
        run: job.name.clone(),
        gpus: job.gpus,
        attempt: job.attempt,
        dead: job.is_dead,
    };
    let checkpoint = plan.checkpoint().map(|checkpoint| CheckpointRow {
        step: checkpoint.step,
        hash: checkpoint.hash.clone(),
        age_seconds: checkpoint.time_ns.map(|at| seconds(now_ns.saturating_sub(at))),
        steps_lost: checkpoint.steps_lost,
    });
    let guards = plan.guards.0.iter().map(|guard| GuardRow {
        name: guard.name.clone(),
        ok: guard.ok,
        text: guard.text.clone(),
        hard: guard.is_hard,
    });
    let pays_back = plan.pays_back_seconds();
    PlanRow {
        id: plan.name(),
        key: plan.key.clone(),
        host: plan.host.clone(),
        gpu: plan.gpu.clone(),
        uuid: plan.uuid.clone(),
        pool: plan.pool.clone(),
        incident: plan.incident.clone(),
        verdict: plan.trigger.name(),
        title: plan.title.clone(),
        text: plan.text.clone(),
        evidence: plan.evidence.clone(),
        affects: plan.jobs.iter().map(affect).collect(),
        checkpoint,
        lost: LostRow::of(plan),
        gain_ratio: plan.gain_ratio,
        pays_back_seconds: pays_back.as_ref().ok().copied(),
        pays_back_reason: pays_back.err().map(str::to_owned),
        spare: plan.spare.clone(),
        spare_text: plan.spare.as_ref().map(|_| match plan.spare_since_ns {
            Some(since) => format!("idle, healthy for {}", spoken(now_ns.saturating_sub(since))),
            None => "idle".to_owned(),
        }),
        follows: plan.follows.map(|id| format!("tg-{id}")),
        guards: guards.collect(),
        commands: plan.steps.iter().enumerate().map(command).collect(),
        asked: to_ms(plan.asked_ns),
        expires: to_ms(plan.expires_ns),
        mode: plan.mode.name(),
        confirm: plan.confirm(),
        unconfirmed: plan.unconfirmed.clone(),
        asked_by: (!plan.asked_by.is_empty()).then(|| plan.asked_by.clone()),
        status: plan.status.name(),
        outcome: plan.outcome.clone(),
        step: plan.at + 1,
    }
}

/// Where remediation stands.
pub(crate) fn show(shared: &Shared) -> Result<RemediationAnswer, ApiError> {
    let now_ns = now_ns();
    let loaded = shared.remedy.loaded();
    let facts = loaded.as_ref().map(|_| facts::gather(shared, false, now_ns)).unwrap_or_default();
    let audit = audit(shared, None, AUDIT_SHOWN, (i64::MAX, 0))?.audit;
    let desk = shared.remedy.desk();
    let book = &desk.book;
    let asks: HashMap<&str, &Ask> = facts.asks.iter().map(|ask| (ask.incident.as_str(), ask)).collect();
    // Runs go on while a plan waits: what would be lost is said as of now.
    let row = |plan: &Plan| match asks.get(plan.incident.as_str()) {
        Some(ask) => plan_row(&Plan { jobs: plan.renewed(&ask.jobs), ..plan.clone() }, now_ns),
        None => plan_row(plan, now_ns),
    };
    let plans = |fits: &dyn Fn(Status) -> bool| {
        let mut plans: Vec<PlanRow> = book.plans().filter(|plan| fits(plan.status)).map(row).collect();
        plans.reverse();
        plans
    };
    let day = now_ns.saturating_sub(LISTED_NS);
    let hosts = book.units().filter(|unit| unit.state != State::Healthy || unit.since_ns > day);
    let hosts = hosts.map(|unit| HostRow {
        host: unit.host.clone(),
        pool: unit.pool.clone(),
        state: unit.state.name(),
        since: to_ms(unit.since_ns),
        gpu: unit.gpu.clone(),
        uuid: unit.uuid.clone(),
        incident: unit.incident.clone(),
        reason: unit.reason.clone(),
        resets_24h: unit.resets_ns.iter().filter(|at| **at > day).count(),
        dry_run: unit.dry_run,
    });
    let queue = plans(&|status| status == Status::Queued);
    let head = head(shared, loaded.as_deref(), queue.len());
    Ok(RemediationAnswer {
        pools: loaded.as_ref().map(|loaded| pools(book, loaded, &facts, now_ns)).unwrap_or_default(),
        hosts: hosts.collect(),
        queue,
        executing: plans(&|status| matches!(status, Status::Executing | Status::Validating)),
        audit,
        ..head
    })
}

/// Where remediation stands, without what waits, what runs and what was done.
pub(crate) fn brief(shared: &Shared) -> RemediationAnswer {
    let loaded = shared.remedy.loaded();
    let waiting = shared.remedy.desk().book.plans().filter(|plan| plan.status == Status::Queued).count();
    head(shared, loaded.as_deref(), waiting)
}

fn head(shared: &Shared, loaded: Option<&Loaded>, waiting: usize) -> RemediationAnswer {
    RemediationAnswer {
        mode: loaded.map_or(Ceiling::Off, |loaded| loaded.mode).name(),
        reason: loaded.is_none().then(|| off(shared)),
        policy: loaded.map(|loaded| PolicyRow {
            name: loaded.policy.name.clone(),
            revision: loaded.policy.revision,
            file: loaded.file.clone(),
        }),
        pools: Vec::new(),
        hosts: Vec::new(),
        waiting,
        queue: Vec::new(),
        executing: Vec::new(),
        audit: Vec::new(),
    }
}

/// Why nothing is decided, and how to start.
pub(crate) fn off(shared: &Shared) -> String {
    let config = &shared.config.remediation;
    if config.policy_file.is_some() {
        return "`[remediation] mode` is `off`: `dry_run` writes down what would be done".to_owned();
    }
    "there is no policy: write one, check it with `truegauge remediation check FILE`, and name it as `[remediation] policy_file`; until `mode = \"real\"` all of it is rehearsed".to_owned()
}

fn pools(book: &insight::remediation::Book, loaded: &Loaded, facts: &Facts, now_ns: i64) -> Vec<PoolRow> {
    let row = |pool: &insight::remediation::Pool| {
        let now = book.pool_now(&pool.name, &loaded.policy, loaded.mode, facts, now_ns);
        let is_in = |host: &str| loaded.policy.pool_of(host).is_some_and(|of| of.name == pool.name);
        PoolRow {
            pool: pool.name.clone(),
            nodes: facts.nodes.iter().filter(|node| is_in(&node.host)).count(),
            in_remediation: now.out,
            budget: now.budget,
            breaker: if now.is_open { "open" } else { "closed" },
            newly_bad_ratio: now.newly_bad_ratio,
            quiet: now.is_quiet,
        }
    };
    loaded.policy.pools.iter().map(row).collect()
}

/// Lines of the audit, the latest first; `cursor` is a time and how many lines of it are done with.
pub(crate) fn audit(
    shared: &Shared,
    host: Option<&str>,
    limit: usize,
    cursor: (i64, usize),
) -> Result<AuditAnswer, ApiError> {
    let ask = EventAsk {
        time_ns: i64::MIN..=cursor.0,
        kinds: Some(vec![REMEDIATION_EVENT.to_owned()]),
        host: host.map(str::to_owned),
        ..EventAsk::default()
    };
    let (mut audit, mut next, mut at, mut skipped) = (Vec::new(), None, (cursor.0, 0), cursor.1);
    let read = shared.store.events(&ask, &mut |event| {
        if event.time_ns == cursor.0 && skipped > 0 {
            skipped -= 1;
            at.1 += 1;
            return ControlFlow::Continue(());
        }
        if audit.len() == limit {
            next = Some(format!("{}:{}", at.0, at.1));
            return ControlFlow::Break(());
        }
        at = if at.0 == event.time_ns { (at.0, at.1 + 1) } else { (event.time_ns, 1) };
        audit.push(audit_row(&event));
        ControlFlow::Continue(())
    });
    read.map_err(|error| {
        tracing::error!(%error, "cannot read the audit");
        ApiError::internal(error.to_string())
            .hint("`truegauge doctor` and the server's log say what is damaged")
    })?;
    Ok(AuditAnswer { audit, next })
}

fn audit_row(event: &Event) -> AuditRow {
    let body: Map<String, Value> = serde_json::from_str(&event.body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let label = |name: &str| event.label(name).unwrap_or_default().to_owned();
    let commands = body.get("commands").and_then(Value::as_array).into_iter().flatten();
    AuditRow {
        time: to_ms(event.time_ns),
        host: label("host"),
        gpu: label("gpu"),
        from: text("from").unwrap_or_default(),
        to: text("to").unwrap_or_default(),
        text: event.text.clone(),
        actor: text("actor").unwrap_or_default(),
        dry_run: body.get("dry_run").and_then(Value::as_bool).unwrap_or(false),
        // Lines from before this was kept tell of what somebody decided.
        what: text("what").unwrap_or_else(|| Deed::Decided.name().to_owned()),
        evidence: text("incident").into_iter().collect(),
        id: text("id"),
        run_id: event.label("run_id").map(str::to_owned),
        commands: commands.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

/// A line of the audit that was not stored.
pub(super) fn edge_row(edge: &insight::remediation::Edge, mode: Option<Mode>) -> AuditRow {
    AuditRow {
        time: to_ms(edge.time_ns),
        host: edge.host.clone(),
        gpu: edge.gpu.clone(),
        from: edge.from.name().to_owned(),
        to: edge.to.name().to_owned(),
        text: edge.text.clone(),
        actor: edge.actor.clone(),
        dry_run: mode == Some(Mode::DryRun) || edge.dry_run,
        what: edge.deed.name().to_owned(),
        evidence: vec![edge.incident.clone()],
        id: edge.plan.map(|id| format!("tg-{id}")),
        run_id: edge.run_id.clone(),
        commands: edge.commands.clone(),
    }
}
