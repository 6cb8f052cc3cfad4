//! What a person proposes to do about a machine.

use insight::remediation::{Ask, By, Facts, Policy, Refusal, Trigger};
use serde::Deserialize;
use utoipa::ToSchema;

use super::show::{PlanRow, plan_row};
use super::{NotDone, facts, recommended};
use crate::app::App;
use crate::clock::now_ns;
use crate::fleet;

/// How long ago an agent may have told where a card is, nanoseconds.
const SEATED_NS: i64 = 86_400 * model::NANOS_PER_SECOND;

/// What is proposed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Proposal {
    /// The machine.
    pub(crate) host: String,
    /// A card of it; the whole machine unless given.
    pub(crate) uuid: Option<String>,
    /// The open incident that it is about.
    pub(crate) incident: Option<String>,
    /// The verdict on a run that it is about: its id, or its class.
    pub(crate) verdict: Option<String>,
    /// For which verdict the policy's action is wanted, such as `drain_reset`. Unless given, the one of what is open
    /// on the machine; where nothing is, the action that takes it out and breaks the least.
    pub(crate) on: Option<String>,
    /// Why, for the audit.
    pub(crate) reason: String,
}

/// Why a proposal can't be a plan.
pub(crate) enum NoPlan {
    /// See there.
    NotDone(NotDone),
    /// The machine was not heard within a day.
    UnknownHost,
    /// No open incident of that name, or no verdict that holds, is about the machine.
    UnknownCause(String),
    /// That is no verdict that a policy can have an action for.
    UnknownTrigger(String),
}

impl From<Refusal> for NoPlan {
    fn from(refusal: Refusal) -> Self {
        Self::NotDone(NotDone::Refused(refusal))
    }
}

/// Puts what a person proposes into the queue. Blocks.
pub(crate) fn propose(app: &App, proposal: &Proposal, actor: &str) -> Result<PlanRow, NoPlan> {
    let loaded = app.remedy.loaded().ok_or(NoPlan::NotDone(NotDone::Off))?;
    let now_ns = now_ns();
    let known = facts::gather(app, false, now_ns);
    let ask = ask(app, proposal, (&loaded.policy, &known), now_ns)?;
    let known = facts::gather_with(app, ask, now_ns);
    let Some(ask) = known.asks.last() else { return Err(NoPlan::UnknownHost) };
    let by = By { actor, reason: &proposal.reason };
    let row = {
        let mut desk = app.remedy.desk();
        let known = (&loaded.policy, loaded.mode, &known);
        let id = desk.decide(app, &ask.host, |book| book.propose(ask, by, known, now_ns))?;
        let id = id.ok_or(NoPlan::NotDone(NotDone::NotStored))?;
        desk.book.plan(id).map(|plan| plan_row(plan, now_ns))
    };
    app.remedy.woken.notify_one();
    row.ok_or_else(|| Refusal::Unknown.into())
}

fn ask(
    app: &App,
    proposal: &Proposal,
    (policy, known): (&Policy, &Facts),
    now_ns: i64,
) -> Result<Ask, NoPlan> {
    let (host, uuid) = (proposal.host.as_str(), proposal.uuid.as_deref().unwrap_or_default());
    let pool = policy.pool_of(host).ok_or(Refusal::NoPool)?;
    let has_rule = |on: Trigger| policy.rule(on, &pool.name).is_some_and(|rule| !rule.commands.is_empty());
    let on = proposal.on.as_deref().map(trigger).transpose()?;
    let here = || known.asks.iter().filter(|ask| ask.host == host);
    let found = match (&proposal.incident, &proposal.verdict) {
        (Some(incident), _) => {
            let found = here().find(|ask| ask.incident == *incident).cloned();
            Some(found.ok_or_else(|| NoPlan::UnknownCause(format!("open incident `{incident}`")))?)
        }
        (None, Some(verdict)) => {
            let found = recommended::named(app, host, verdict);
            Some(found.ok_or_else(|| NoPlan::UnknownCause(format!("verdict `{verdict}`")))?)
        }
        (None, None) => {
            let is_of_card = |ask: &&Ask| uuid.is_empty() || ask.uuid == uuid;
            let fits = here().filter(is_of_card).filter(|ask| has_rule(on.unwrap_or(ask.trigger)));
            fits.max_by_key(|ask| ask.trigger).cloned()
        }
    };
    let mut ask = match found {
        Some(ask) => ask,
        None if known.node(host).is_none() => return Err(NoPlan::UnknownHost),
        None => by_hand(app, proposal, (policy, &pool.name, on), now_ns)?,
    };
    ask.trigger = on.unwrap_or(ask.trigger);
    if !has_rule(ask.trigger) {
        return Err(policy.no_rule(ask.trigger.name(), &pool.name).into());
    }
    Ok(ask)
}

fn trigger(name: &str) -> Result<Trigger, NoPlan> {
    Trigger::named(name).ok_or_else(|| NoPlan::UnknownTrigger(name.to_owned()))
}

/// Nothing is known against the machine but what somebody says.
fn by_hand(
    app: &App,
    proposal: &Proposal,
    (policy, pool, on): (&Policy, &str, Option<Trigger>),
    now_ns: i64,
) -> Result<Ask, NoPlan> {
    let uuid = proposal.uuid.as_deref().unwrap_or_default();
    let mut seats = fleet::seats(&app.store, now_ns.saturating_sub(SEATED_NS));
    let gpu = match seats.remove(uuid) {
        Some((host, gpu)) if host == proposal.host => gpu,
        _ if uuid.is_empty() => String::new(),
        _ => return Err(NoPlan::UnknownCause(format!("GPU `{uuid}`"))),
    };
    let trigger = on.or_else(|| policy.takes_out(pool)).ok_or_else(|| policy.no_rule("", pool))?;
    let text = proposal.reason.clone();
    Ok(Ask { gpu, trigger, text, ..Ask::by_hand(&proposal.host, uuid, now_ns) })
}
