//! What has to hold before a plan runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::book::{Book, Plan, Status};
use super::{Ceiling, DAY_NS, Facts, Mode, Policy, Pool, spoken};

/// The guard that says whether a verdict is sure enough to act alone.
pub(super) const CONFIDENCE: &str = "confidence";

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// A word for programs.
    pub name: String,
    /// Whether it holds; nothing where that is not known.
    pub ok: Option<bool>,
    /// The condition with its numbers.
    pub text: String,
    /// Nobody can agree around it.
    pub is_hard: bool,
}

/// All conditions of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded(pub Vec<Guard>);

impl Guarded {
    /// Whether everything holds.
    pub fn all_hold(&self) -> bool {
        self.0.iter().all(|guard| guard.ok == Some(true))
    }

    /// Whether everything holds but that this server may run something.
    pub(super) fn hold_for_rehearsal(&self) -> bool {
        self.0.iter().all(|guard| guard.ok == Some(true) || guard.name == MODE)
    }

    /// The first that nobody can agree around.
    pub fn blocking(&self) -> Option<&Guard> {
        self.0.iter().find(|guard| guard.is_hard && guard.ok != Some(true))
    }

    fn put(&mut self, name: &str, is_hard: bool, ok: impl Into<Option<bool>>, text: impl Into<String>) {
        self.0.push(Guard { name: name.to_owned(), ok: ok.into(), text: text.into(), is_hard });
    }
}

/// Name of the guard that a server of rehearsals has.
const MODE: &str = "mode";

/// What a look at guards needs.
#[derive(Debug, Clone)]
pub(super) struct Scene<'a> {
    pub(super) policy: &'a Policy,
    pub(super) ceiling: Ceiling,
    pub(super) facts: &'a Facts,
    pub(super) now_ns: i64,
    /// Machines of each pool that became bad lately, and all of them: every plan asks for these.
    pools: BTreeMap<&'a str, (BTreeSet<&'a str>, BTreeSet<&'a str>)>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(policy: &'a Policy, ceiling: Ceiling, facts: &'a Facts, now_ns: i64) -> Self {
        let mut pools: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
        for node in &facts.nodes {
            if let Some(pool) = policy.pool_of(&node.host) {
                pools.entry(&pool.name).or_default().1.insert(&node.host);
            }
        }
        for ask in &facts.asks {
            let Some(pool) = policy.pool_of(&ask.host) else { continue };
            let (bad, all) = pools.entry(&pool.name).or_default();
            all.insert(&ask.host);
            let since = now_ns.saturating_sub(pool.guards.breaker_window_ns);
            if ask.first_ns >= since && ask.trigger != super::Trigger::Straggler {
                bad.insert(&ask.host);
            }
        }
        Self { policy, ceiling, facts, now_ns, pools }
    }

    /// Machines of a pool.
    fn size(&self, pool: &Pool) -> usize {
        self.pools.get(pool.name.as_str()).map_or(0, |(_, all)| all.len())
    }

    /// How many of a pool may be out at once.
    pub(super) fn budget(&self, pool: &Pool) -> usize {
        let share = (self.size(pool) as f64 * pool.guards.budget_ratio).floor() as usize;
        share.max(pool.guards.budget_min)
    }

    /// Share of a pool that became bad lately.
    pub(super) fn newly_bad(&self, pool: &Pool) -> f64 {
        let bad = self.pools.get(pool.name.as_str()).map_or(0, |(bad, _)| bad.len());
        bad as f64 / self.size(pool).max(1) as f64
    }

    /// Whether so much became bad at once that nothing goes by itself.
    pub(super) fn is_open(&self, pool: &Pool) -> bool {
        // One machine of a small pool is no storm.
        let least = 1.0 / self.size(pool).max(1) as f64;
        let share = self.newly_bad(pool);
        share > pool.guards.breaker_ratio && share > least
    }
}

impl Book {
    /// Machines of a pool that are out of service through what was done here; with `rehearsed`, also those
    /// that would be.
    pub(super) fn out(&self, pool: &str, rehearsed: bool) -> BTreeSet<&str> {
        let plans = self.active().filter(|plan| plan.pool == pool);
        let plans = plans.filter(|plan| {
            let runs = matches!(plan.status, Status::Executing | Status::Validating);
            runs || (rehearsed && plan.status == Status::Rehearsed)
        });
        let units = self.left_out.iter().filter_map(|key| self.units.get(key));
        let units = units.filter(|unit| unit.pool == pool);
        plans.map(|plan| plan.host.as_str()).chain(units.map(|unit| unit.host.as_str())).collect()
    }

    /// What has to hold before a plan runs.
    pub(super) fn guards(&self, plan: &Plan, scene: &Scene<'_>) -> Guarded {
        let mut all = Guarded::default();
        let Some(pool) = scene.policy.pool(&plan.pool) else {
            all.put("pool", true, false, format!("The policy has no pool `{}` any more", plan.pool));
            return all;
        };
        self.of_pool(plan, pool, scene, &mut all);
        self.of_host(plan, pool, scene.now_ns, &mut all);
        let now = scene.now_ns;
        let quiet = pool.quiet.iter().any(|quiet| quiet.holds(now));
        all.put(
            "quiet",
            false,
            !quiet,
            if quiet { "Within a quiet window" } else { "Outside quiet windows" },
        );
        let sure = plan.sure.name();
        let least = pool.guards.sure_min;
        let text = format!("Confidence {sure}, {} is needed to act alone", least.name());
        all.put(CONFIDENCE, false, plan.sure >= least, text);
        let text = match &plan.common {
            Some(common) => format!("Others have the same fault: {common}"),
            None => "No common cause".to_owned(),
        };
        all.put("common_cause", false, plan.common.is_none(), text);
        if plan.trigger == super::Trigger::Straggler {
            let text = plan
                .unconfirmed
                .as_deref()
                .unwrap_or("The machine's agent knows of it, or a person named it");
            all.put("presence", false, plan.unconfirmed.is_none(), text);
        }
        if plan.mode == Mode::DryRun {
            all.put(MODE, true, false, "The policy rehearses this action only");
        } else if scene.ceiling != Ceiling::Real {
            all.put(MODE, true, false, "This server rehearses only: `[remediation] mode` is not `real`");
        }
        all
    }

    fn of_pool(&self, plan: &Plan, pool: &Pool, scene: &Scene<'_>, all: &mut Guarded) {
        let rehearsed = scene.ceiling != Ceiling::Real || plan.mode == Mode::DryRun;
        let mut out = self.out(&pool.name, rehearsed);
        let is_out = out.remove(plan.host.as_str());
        let budget = scene.budget(pool);
        let text = format!("Nodes in remediation {} of {budget}", out.len() + usize::from(is_out));
        all.put("budget", true, out.len() < budget, text);
        let share = scene.newly_bad(pool) * 100.0;
        if scene.is_open(pool) {
            all.put("breaker", false, false, format!("Breaker open, {share:.0} % newly bad"));
        } else if plan.is_of_storm {
            all.put("breaker", false, false, "It came while the breaker was open");
        } else {
            all.put("breaker", false, true, format!("Breaker closed, {share:.0} % newly bad"));
        }
    }

    fn of_host(&self, plan: &Plan, pool: &Pool, now_ns: i64, all: &mut Guarded) {
        let running = |other: &&Plan| {
            other.id != plan.id && matches!(other.status, Status::Executing | Status::Validating)
        };
        let other = self.active().filter(running).find(|other| other.host == plan.host);
        let text = match other {
            Some(other) => format!("tg-{} is under way on this node", other.id),
            None => "No other action on this node".to_owned(),
        };
        all.put("node", true, other.is_none(), text);
        let living = plan.jobs.iter().filter(|job| !job.is_dead);
        let living: BTreeSet<&str> = living.map(|job| job.id.as_str()).collect();
        let second = self.active().filter(running).filter(|other| other.host != plan.host);
        let mut second = second.filter(|other| other.jobs.iter().any(|job| living.contains(job.id.as_str())));
        let (ok, text) = match second.next() {
            Some(other) => (false, format!("{} works for the same job and is out", other.host)),
            None if plan.jobs.is_empty() => (true, "No job has it".to_owned()),
            None if living.is_empty() => (true, "Its job is dead".to_owned()),
            None => (true, "No second node of this job".to_owned()),
        };
        all.put("job", true, ok, text);
        let unit = self.units.get(&plan.unit());
        if plan.breaks() {
            let since = now_ns.saturating_sub(DAY_NS);
            let resets = unit.map_or(0, |unit| unit.resets_ns.iter().filter(|at| **at > since).count());
            let most = pool.guards.resets_per_day;
            all.put("resets", true, resets < most, format!("Reset {resets} of {most} in 24 h"));
        }
        let ended = self.units_of(&plan.host).filter_map(|unit| unit.finished_ns).max();
        let left = ended.map_or(0, |ended| ended.saturating_add(pool.guards.cooldown_ns) - now_ns);
        let text =
            if left > 0 { format!("Cools down for {}", spoken(left)) } else { "Cooled down".to_owned() };
        all.put("cooldown", false, left <= 0, text);
    }
}
