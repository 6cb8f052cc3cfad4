//! What a policy would have done about incidents of the past.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use insight::remediation::{Ask, Facts, Node, Policy, Replay};
use model::{Event, EventAsk, NANOS_PER_MILLI, NANOS_PER_SECOND};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::show::{AuditRow, PlanRow, edge_row, plan_row};
use super::{facts, show};
use crate::app::Shared;
use crate::clock::now_ns;
use crate::error::ApiError;
use crate::fleet;

/// Most events that are folded anew.
const EVENTS_MAX: usize = 200_000;
/// Lines of the audit in an answer, and plans.
const LINES_MAX: usize = 2_000;
const PLANS_MAX: usize = 500;
/// Events within one such part are looked at together, nanoseconds.
const PART_NS: i64 = NANOS_PER_SECOND;
/// After events it is looked again after so many seconds, so that what waits goes on.
const AFTERWARDS: [i64; 4] = [60, 180, 600, 1_860];

/// Which time, and by which policy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayAsk {
    /// Milliseconds since the epoch.
    from: i64,
    /// Milliseconds since the epoch.
    to: i64,
    /// The text of a policy; the one in force unless given.
    policy: Option<String>,
}

/// What would have been done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayAnswer {
    from: i64,
    to: i64,
    /// In one sentence.
    text: String,
    /// Events that were folded anew.
    events: usize,
    pools: Vec<ReplayPool>,
    /// By what became of them.
    outcomes: BTreeMap<&'static str, usize>,
    plans: Vec<PlanRow>,
    /// Oldest first.
    audit: Vec<AuditRow>,
}

/// A pool in a replay.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayPool {
    pool: String,
    nodes: usize,
    /// Most machines that were out at once.
    most_out: usize,
}

/// What a policy would have done: commands are taken to have worked, machines to be well when their
/// validation ends, and nobody to have agreed to anything.
pub(crate) fn replay(shared: &Shared, ask: &ReplayAsk) -> Result<ReplayAnswer, ApiError> {
    let (from_ns, to_ns) = (ask.from.saturating_mul(NANOS_PER_MILLI), ask.to.saturating_mul(NANOS_PER_MILLI));
    if from_ns >= to_ns {
        return Err(ApiError::bad(format!(
            "`from` is {} and `to` {}: no time lies between",
            ask.from, ask.to
        )));
    }
    let loaded = shared.remedy.loaded();
    let policy: Policy = match (&ask.policy, &loaded) {
        (Some(text), _) => super::parse(text).map_err(|findings| {
            ApiError::bad("the policy can't be used").hint("`reasons` says why").reasons(findings)
        })?,
        (None, Some(loaded)) => loaded.policy.clone(),
        (None, None) => return Err(ApiError::bad(show::off(shared))),
    };
    let events = events(shared, from_ns, to_ns)?;
    let hosts = hosts(shared, &events);
    let mut replay = Replay::new(&policy, LINES_MAX);
    let mut last: Option<(i64, Facts)> = None;
    let folded = fleet::replay(&events, PART_NS, &mut |now_ns, asks, faults| {
        if let Some((before_ns, facts)) = &last {
            afterwards(&mut replay, facts, *before_ns, now_ns);
        }
        let facts = facts_of(asks, faults, &hosts, now_ns);
        replay.look(&facts, now_ns);
        last = Some((now_ns, facts));
    });
    if let Some((before_ns, facts)) = &last {
        afterwards(&mut replay, facts, *before_ns, i64::MAX);
    }
    let (edges, plans, most) = replay.finish();
    let mut outcomes: BTreeMap<&'static str, usize> = BTreeMap::new();
    for plan in &plans {
        *outcomes.entry(plan.status.name()).or_default() += 1;
    }
    let pools = policy.pools.iter().map(|pool| ReplayPool {
        pool: pool.name.clone(),
        nodes: hosts
            .iter()
            .filter(|host| policy.pool_of(host).is_some_and(|of| of.name == pool.name))
            .count(),
        most_out: most.get(&pool.name).copied().unwrap_or(0),
    });
    let modes: BTreeMap<u64, _> = plans.iter().map(|plan| (plan.id, plan.mode)).collect();
    let mode_of = |plan: Option<u64>| plan.and_then(|id| modes.get(&id).copied());
    let words: Vec<String> = outcomes.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
    Ok(ReplayAnswer {
        from: ask.from,
        to: ask.to,
        text: format!("{} revision {}: {words}", policy.name, policy.revision),
        events: folded,
        pools: pools.collect(),
        outcomes,
        plans: plans.iter().take(PLANS_MAX).map(|plan| plan_row(plan, plan.asked_ns)).collect(),
        audit: edges.iter().map(|edge| edge_row(edge, mode_of(edge.plan))).collect(),
    })
}

/// Looks again after events, up to the next ones.
fn afterwards(replay: &mut Replay<'_>, facts: &Facts, from_ns: i64, to_ns: i64) {
    let times = AFTERWARDS.iter().map(|seconds| from_ns.saturating_add(seconds * NANOS_PER_SECOND));
    for now_ns in times.take_while(|now_ns| *now_ns < to_ns) {
        replay.look(facts, now_ns);
    }
}

fn events(shared: &Shared, from_ns: i64, to_ns: i64) -> Result<Vec<Event>, ApiError> {
    let ask = EventAsk { time_ns: from_ns..=to_ns, ..EventAsk::default() };
    let mut events = Vec::new();
    let read = shared.store.events(&ask, &mut |event| {
        events.push(event);
        if events.len() > EVENTS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.map_err(|error| ApiError::internal(format!("cannot read the events: {error}")))?;
    if events.len() > EVENTS_MAX {
        return Err(
            ApiError::bad(format!("more than {EVENTS_MAX} events lie in that time")).hint("ask for less")
        );
    }
    events.reverse();
    Ok(events)
}

/// Every machine of then and of now: budgets are shares of all of them.
fn hosts(shared: &Shared, events: &[Event]) -> BTreeSet<String> {
    let now = facts::gather(shared, false, now_ns()).nodes.into_iter().map(|node| node.host);
    let then = events.iter().filter_map(|event| event.label("host")).map(str::to_owned);
    now.chain(then).filter(|host| !host.is_empty()).collect()
}

fn facts_of(
    asks: Vec<Ask>,
    mut faults: BTreeMap<String, Vec<fleet::Fault>>,
    hosts: &BTreeSet<String>,
    now_ns: i64,
) -> Facts {
    let node = |host: &String| Node {
        host: host.clone(),
        heard_ns: now_ns,
        faults: faults.remove(host).unwrap_or_default(),
        ..Node::default()
    };
    Facts { asks, nodes: hosts.iter().map(node).collect() }
}
