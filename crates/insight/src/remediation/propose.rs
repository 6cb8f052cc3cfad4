//! What a person proposes: a plan as the policy makes them, that always waits for somebody to agree.

use super::book::{Book, By, Deed, HAND, Plan, Refusal, Status};
use super::guards::Scene;
use super::look::Origin;
use super::policy::ActionRule;
use super::{Ask, Ceiling, Facts, Policy, State, Trigger};

impl Ask {
    /// Something that nothing but a person's word is known of.
    pub fn by_hand(host: &str, uuid: &str, now_ns: i64) -> Self {
        let card = if uuid.is_empty() { "node" } else { uuid };
        Self {
            incident: format!("{HAND}{host}/{card}/{now_ns}"),
            host: host.to_owned(),
            gpu: String::new(),
            uuid: uuid.to_owned(),
            boot_id: String::new(),
            trigger: Trigger::Straggler,
            sure: super::Sure::High,
            is_ready: true,
            first_ns: now_ns,
            last_ns: now_ns,
            common: None,
            title: "Proposed by hand".to_owned(),
            text: String::new(),
            evidence: Vec::new(),
            jobs: Vec::new(),
            gain_ratio: None,
            then: None,
            unconfirmed: None,
        }
    }
}

impl Policy {
    /// What takes a machine of a pool out and breaks the least: a rule that resets and boots nothing goes first.
    pub fn takes_out(&self, pool: &str) -> Option<Trigger> {
        let of_pool = self.of_pool(pool);
        let takes_out = |rule: &&&ActionRule| rule.commands.iter().any(|command| command.does.is_some());
        let worst = |rule: &&&ActionRule| rule.commands.iter().filter_map(|command| command.does).max();
        of_pool.iter().filter(takes_out).min_by_key(worst).map(|rule| rule.on)
    }

    /// Rules of a pool that run something.
    fn of_pool(&self, pool: &str) -> Vec<&ActionRule> {
        let is_for = |rule: &&ActionRule| self.rule(rule.on, pool).is_some_and(|of| of.name == rule.name);
        self.rules.iter().filter(is_for).filter(|rule| !rule.commands.is_empty()).collect()
    }

    /// Why nothing can be proposed for a verdict in a pool, with what can.
    pub fn no_rule(&self, on: &str, pool: &str) -> Refusal {
        let known = self.of_pool(pool);
        let known = known.iter().map(|rule| format!("`{}` on `{}`", rule.name, rule.on.name())).collect();
        Refusal::NoRule { on: on.to_owned(), pool: pool.to_owned(), known }
    }
}

impl Book {
    /// A person proposes what the policy does about `ask`. Gives the plan's number: of the one that waits for the
    /// same already, where there is one.
    pub fn propose(
        &mut self,
        ask: &Ask,
        by: By<'_>,
        (policy, ceiling, facts): (&Policy, Ceiling, &Facts),
        now_ns: i64,
    ) -> Result<u64, Refusal> {
        self.ceiling = ceiling;
        let pool = policy.pool_of(&ask.host).ok_or(Refusal::NoPool)?;
        let rule = policy.rule(ask.trigger, &pool.name).filter(|rule| !rule.commands.is_empty());
        let rule = rule.ok_or_else(|| policy.no_rule(ask.trigger.name(), &pool.name))?;
        let is_here = |plan: &&Plan| plan.host == ask.host && !plan.status.is_over();
        let here: Vec<&Plan> = self.plans.values().filter(is_here).collect();
        let runs = |plan: &&&Plan| matches!(plan.status, Status::Executing | Status::Validating);
        if let Some(plan) = here.iter().find(runs) {
            return Err(Refusal::Busy(plan.id));
        }
        let is_same = |plan: &&&Plan| {
            plan.status == Status::Queued && plan.uuid == ask.uuid && plan.trigger == ask.trigger
        };
        if let Some(plan) = here.iter().find(is_same) {
            let (id, plan) = (plan.id, Plan { actor: by.actor.to_owned(), ..(**plan).clone() });
            let state = self.state_of(&plan);
            self.note(&plan, (state, state), &format!("proposed as well: {}", by.reason), now_ns);
            return Ok(id);
        }
        let scene = Scene::new(policy, ceiling, facts, now_ns);
        self.can_make(ask, rule, pool, &scene).map_err(Refusal::NoCommand)?;
        let key = (ask.host.clone(), ask.uuid.clone());
        match self.units.get(&key).map_or(State::Healthy, |unit| unit.state) {
            State::NeedsHuman => return Err(Refusal::NeedsHuman),
            State::Healthy if ask.unconfirmed.is_none() => {
                self.suspect(ask, pool, &ask.title, now_ns);
                if let Some(edge) = self.last_edge() {
                    by.actor.clone_into(&mut edge.actor);
                    edge.deed = Deed::Decided;
                }
            }
            _ => {}
        }
        Ok(self.plan_for(ask, rule, (pool, Origin::Person(by)), &scene))
    }
}
