//! What models cost and draw, and how much of what was promised they keep: by the recording rules that come with
//! the program, evaluated over the window that is asked for. How each is reckoned is written there and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use model::{Labels, NANOS_PER_MILLI};
use promql::notation::pattern_of;
use promql::rules::{RuleKind, RuleText};
use promql::{
    MatchOp, Matcher, MemorySource, Options, Query, QueryError, Select, Series, Source, SourceError,
};
use regex::Regex;
use semconv::canonical::{
    DERIVED_ENGINE_UNKNOWN_INFO, DERIVED_MODEL_GOODPUT_RATIO_LOWER, DERIVED_MODEL_GOODPUT_RATIO_UPPER,
    DERIVED_MODEL_GPUS, DERIVED_MODEL_OBJECTIVE_RATIO, DERIVED_MODEL_OCCUPANCY_RATIO,
    DERIVED_MODEL_OUTPUT_TOKENS_PER_SECOND, DERIVED_MODEL_POWER_WATTS, DERIVED_MODEL_TOKENS_PER_JOULE,
    DERIVED_MODEL_USD_PER_HOUR, DERIVED_MODEL_USD_PER_MTOK, DERIVED_MODEL_USD_PER_MTOK_BUSY,
    ENGINE_OUTPUT_TOKENS_TOTAL, ENGINE_REQUESTS_RUNNING, PRICE_USD_PER_GPU_HOUR,
};

use super::cards::{Hosts, host_key};
use super::gather::Vector;
use super::near::{Near, Part};
use super::{Value, Values, Window};
use crate::config::SiteConfig;

/// The figures: key, the rule that reckons it, and its unit.
const FIGURES: [(&str, &str, &str); 7] = [
    ("goodput_lower", DERIVED_MODEL_GOODPUT_RATIO_LOWER.name, ""),
    ("goodput_upper", DERIVED_MODEL_GOODPUT_RATIO_UPPER.name, ""),
    ("occupancy_ratio", DERIVED_MODEL_OCCUPANCY_RATIO.name, ""),
    ("power_watts", DERIVED_MODEL_POWER_WATTS.name, "W"),
    ("tokens_per_joule", DERIVED_MODEL_TOKENS_PER_JOULE.name, "1/J"),
    ("usd_per_mtok", DERIVED_MODEL_USD_PER_MTOK.name, "USD"),
    ("usd_per_mtok_busy", DERIVED_MODEL_USD_PER_MTOK_BUSY.name, "USD"),
];

/// The window of the rules, as they write it.
const WINDOW: &str = "[5m]";
const WINDOW_STEPPED: &str = "[5m:15s]";
const WINDOW_SECONDS: &str = "/ 300";
/// Least seconds between two looks at a gauge.
const STEP_SECONDS: f64 = 15.0;

/// The recording rules in the order in which one reads what another recorded.
static RULES: LazyLock<Vec<RuleText>> = LazyLock::new(|| {
    let files = crate::starters::rules();
    let of_file = |name: &str| {
        let text = files.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str());
        let file = promql::rules::parse(text.unwrap_or_default()).unwrap_or_default();
        file.groups.into_iter().flat_map(|group| group.rules)
    };
    let rules = ["gpu.yml", "engine.yml", "cost.yml"].into_iter().flat_map(of_file);
    needed(rules.filter(|rule| rule.kind == RuleKind::Recording).collect())
});

/// The rule that says which models are served in which pods and on which hosts.
const UNITS: &str = "engine:model_info";

/// Rules that say why a figure is not known, beside those of the figures.
const REASONS: [&str; 5] = [
    DERIVED_ENGINE_UNKNOWN_INFO.name,
    DERIVED_MODEL_GPUS.name,
    DERIVED_MODEL_OBJECTIVE_RATIO.name,
    DERIVED_MODEL_OUTPUT_TOKENS_PER_SECOND.name,
    DERIVED_MODEL_USD_PER_HOUR.name,
];

/// The rules that are shown, and those that they read: others read every card of a fleet for nothing.
fn needed(rules: Vec<RuleText>) -> Vec<RuleText> {
    let is_shown = |name: &str| {
        let name = name.strip_suffix(":coverage").unwrap_or(name);
        REASONS.contains(&name) || FIGURES.iter().any(|(_, rule, _)| *rule == name)
    };
    let mut kept: Vec<RuleText> = Vec::new();
    for rule in rules.into_iter().rev() {
        if is_shown(&rule.name) || kept.iter().any(|later| later.expr.contains(&rule.name)) {
            kept.push(rule);
        }
    }
    kept.reverse();
    kept
}

/// The unit of a figure of these.
pub(super) fn unit(key: &str) -> Option<&'static str> {
    FIGURES.iter().find(|(figure, ..)| *figure == key).map(|(.., unit)| *unit)
}

/// What an hour of one card of a model costs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Price {
    pub(crate) usd_per_gpu_hour: f64,
    pub(crate) gpu_model: String,
    pub(crate) revision: Option<String>,
}

/// What a rule says, by the label `model`.
type ByModel = HashMap<String, Vector>;

/// What the rules say of all models.
#[derive(Debug, Default)]
pub(super) struct Ratios {
    of_rule: HashMap<String, ByModel>,
    /// Why a rule says nothing at all.
    failed: HashMap<String, String>,
    prices: Vector,
}

/// What the models that are asked for can have to do with: others are left out, since a fleet has many.
#[derive(Debug)]
pub(super) struct Scope<'s> {
    pub(super) models: BTreeSet<&'s str>,
    pub(super) hosts: &'s Hosts,
}

impl Scope<'_> {
    /// What selects the cards that [`Self::is_near`] leaves, and some more. Cards without a host may be anywhere.
    fn cards(&self) -> Option<Matcher> {
        let hosts: Vec<String> = self.hosts.iter().map(|host| pattern_of(host)).collect();
        Matcher::new("host", MatchOp::Matches, &format!("|(?i:{})(?:\\..*)?", hosts.join("|"))).ok()
    }

    /// Leaves out the cards of other hosts.
    fn cards_near(&self, cards: &[Arc<Labels>]) -> Vec<bool> {
        let has = |host: &str| self.hosts.contains(host) || self.hosts.contains(&host_key(host));
        cards.iter().map(|labels| labels.get("host").is_none_or(has)).collect()
    }

    /// Leaves out other models but for those that share a host or a pod with one of these.
    fn units_near(&self, engines: &[Arc<Labels>]) -> Vec<bool> {
        let is_wanted = |labels: &Labels| self.models.contains(labels.get("model").unwrap_or_default());
        let wanted = engines.iter().filter(|labels| is_wanted(labels));
        let units: HashSet<(&str, &str)> = wanted.map(|labels| unit_of(labels)).collect();
        engines.iter().map(|labels| units.contains(&unit_of(labels))).collect()
    }
}

/// What the rules take for the pod or host of an engine's series, or what several of these have in common.
fn unit_of(labels: &Labels) -> (&str, &str) {
    let pod = labels.get("pod").unwrap_or_default();
    if !pod.is_empty() {
        return ("", pod);
    }
    let instance = labels.get("instance").unwrap_or_default();
    let unit = HOST.as_ref().and_then(|host| host.find(instance)).map_or("", |found| found.as_str());
    (unit, "")
}

/// The host of an `instance`, as the rules read it.
static HOST: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("^(?:[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+|[^.:]+)").ok());

/// What was reckoned, in front of what is stored.
struct Over<'s, 'n> {
    scope: &'s Scope<'s>,
    /// What selects the cards.
    cards: Option<&'s Matcher>,
    near: &'s Near<'n>,
    /// Whether it is asked which models share hosts and pods.
    is_of_units: bool,
    reckoned: &'s MemorySource,
    names: &'s HashMap<String, ByModel>,
}

impl Source for Over<'_, '_> {
    fn select<'s>(&'s self, select: &Select<'_>) -> Result<Vec<Box<dyn Series + 's>>, SourceError> {
        let mut named = select.matchers.iter().filter(|matcher| &*matcher.name == "__name__");
        let metric = named.find(|matcher| matcher.op == MatchOp::Equal).map(|matcher| &*matcher.value);
        if metric.is_some_and(|metric| self.names.contains_key(metric)) {
            return self.reckoned.select(select);
        }
        let is_of_card = |name: &str| name.starts_with("tg_gpu_") || name.starts_with("system_gpu_");
        let (near, scope) = (self.near, self.scope);
        match metric {
            Some(metric) if is_of_card(metric) => {
                near.select_part(Part::Cards, select, self.cards, &|all| scope.cards_near(all))
            }
            // Other models tell that they share a host or a pod.
            Some(metric) if metric == ENGINE_OUTPUT_TOKENS_TOTAL.name && self.is_of_units => {
                near.select_part(Part::Units, select, None, &|all| scope.units_near(all))
            }
            _ => near.select(select),
        }
    }
}

/// Evaluates the rules at the end of the window.
pub(super) fn read(
    near: &Near<'_>,
    options: &Options,
    window: Window,
    scope: &Scope<'_>,
) -> Result<(Ratios, u64), QueryError> {
    let mut ratios = Ratios::default();
    let mut reckoned = MemorySource::new();
    let time_ns = window.to_ms.saturating_mul(NANOS_PER_MILLI);
    let cards = scope.cards();
    let mut samples = 0;
    for rule in RULES.iter() {
        let (cards, names) = (cards.as_ref(), &ratios.of_rule);
        let is_of_units = rule.name == UNITS;
        let over = Over { scope, cards, near, is_of_units, reckoned: &reckoned, names };
        let found = match evaluate(&over, &within(&rule.expr, window), window, options) {
            Ok((found, read)) => {
                samples += read;
                found
            }
            // Two owners of one card, or two prices: one rule says nothing then, and the others go on.
            Err(QueryError::Execution(why)) => {
                ratios.failed.insert(rule.name.clone(), why);
                Vector::new()
            }
            Err(other) => return Err(other),
        };
        let kept = ratios.of_rule.entry(rule.name.clone()).or_default();
        for (labels, value) in found {
            let set = rule.labels.iter().map(|(name, text)| (name.as_str(), text.as_str()));
            let others = labels.iter().filter(|(name, _)| *name != "__name__");
            let labels = Labels::from_pairs(others.chain(set).chain([("__name__", rule.name.as_str())]));
            reckoned.push(labels.clone(), time_ns, value);
            let model = labels.get("model").unwrap_or_default().to_owned();
            kept.entry(model).or_default().push((Arc::new(labels), value));
        }
    }
    let (prices, read) = evaluate(near, PRICE_USD_PER_GPU_HOUR.name, window, options)?;
    ratios.prices = prices;
    Ok((ratios, samples + read))
}

fn evaluate(
    source: &dyn Source,
    text: &str,
    window: Window,
    options: &Options,
) -> Result<(Vector, u64), QueryError> {
    let answer = Query::parse(text)?.instant(source, window.to_ms, options)?;
    let samples = match answer.data {
        promql::Data::Vector { samples, .. } => samples,
        _ => Vector::new(),
    };
    Ok((samples, answer.stats.samples_read))
}

/// A rule's expression over another window than the rule's own.
fn within(expr: &str, window: Window) -> String {
    let seconds = (window.to_ms - window.from_ms).max(1) as f64 / 1e3;
    let step_ms = (seconds / 20.0).max(STEP_SECONDS) * 1e3;
    let range = window.range();
    expr.replace(WINDOW, &format!("[{range}]"))
        .replace(WINDOW_STEPPED, &format!("[{range}:{step_ms:.0}ms]"))
        .replace(WINDOW_SECONDS, &format!("/ {seconds}"))
}

impl Ratios {
    fn of(&self, rule: &str, model: &str) -> impl Iterator<Item = &(Arc<Labels>, f64)> {
        let found = self.of_rule.get(rule).and_then(|of_rule| of_rule.get(model));
        found.into_iter().flatten()
    }

    fn first(&self, rule: &str, model: &str) -> Option<f64> {
        self.of(rule, model).next().map(|(_, value)| *value)
    }

    /// The figures of a model.
    pub(super) fn of_model(&self, site: &SiteConfig, model: &str) -> Values {
        let value = |(key, rule, _): &(&'static str, &str, &str)| {
            let found = self.first(rule, model).filter(|value| value.is_finite());
            let coverage = self.first(&format!("{rule}:coverage"), model);
            let value = found.ok_or_else(|| self.reason(site, key, rule, model));
            (*key, Value { coverage: coverage.filter(|_| value.is_ok()), value })
        };
        FIGURES.iter().map(value).collect()
    }

    /// What an hour of one card of the model costs, where it has cards of one kind and they have a price.
    pub(super) fn price(&self, model: &str) -> Option<Price> {
        let mut kinds = self.of(DERIVED_MODEL_GPUS.name, model);
        let (Some((labels, _)), None) = (kinds.next(), kinds.next()) else { return None };
        let gpu_model = labels.get("gpu_model")?;
        let (labels, usd) =
            self.prices.iter().find(|(labels, _)| labels.get("gpu_model") == Some(gpu_model))?;
        Some(Price {
            usd_per_gpu_hour: *usd,
            gpu_model: gpu_model.to_owned(),
            revision: labels.get("revision").map(str::to_owned),
        })
    }

    fn reason(&self, site: &SiteConfig, key: &str, rule: &str, model: &str) -> String {
        if let Some(why) = self.failed.get(rule) {
            return format!("the rule {rule} can't be evaluated: {why}");
        }
        match key {
            "goodput_lower" | "goodput_upper" => self.no_goodput(site, model),
            "occupancy_ratio" => format!("its engine sent no {}", ENGINE_REQUESTS_RUNNING.name),
            "power_watts" => self.no_power(model),
            "tokens_per_joule" if self.first(DERIVED_MODEL_POWER_WATTS.name, model).is_none() => {
                self.no_power(model)
            }
            "tokens_per_joule" if self.first(DERIVED_MODEL_POWER_WATTS.name, model) == Some(0.0) => {
                "its cards report a power of 0".to_owned()
            }
            "usd_per_mtok_busy" if self.first(DERIVED_MODEL_OCCUPANCY_RATIO.name, model).is_none() => {
                format!("its engine sent no {}", ENGINE_REQUESTS_RUNNING.name)
            }
            "usd_per_mtok" | "usd_per_mtok_busy"
                if self.first(DERIVED_MODEL_USD_PER_HOUR.name, model).is_none() =>
            {
                self.no_cost(model)
            }
            _ => match self.first(DERIVED_MODEL_OUTPUT_TOKENS_PER_SECOND.name, model) {
                Some(_) => "no token was generated in this window".to_owned(),
                None => "fewer than two samples of its tokens in this window".to_owned(),
            },
        }
    }

    fn no_goodput(&self, site: &SiteConfig, model: &str) -> String {
        let of = site.objectives.iter().find(|of| of.model == model);
        let promised = of.map(|of| [("ttft", of.ttft), ("tpot", of.tpot)]).unwrap_or_default();
        let told: Vec<&str> = self
            .of(DERIVED_MODEL_OBJECTIVE_RATIO.name, model)
            .filter_map(|(labels, _)| labels.get("kind"))
            .collect();
        let lacking = promised.iter().find(|(kind, seconds)| seconds.is_some() && !told.contains(kind));
        match lacking {
            Some((kind, Some(seconds))) => format!(
                "no request in this window can be held against its {kind} of {seconds} s: there was none, or \
                 its engine has no bucket with that bound"
            ),
            _ => "no objective of this model is set: `[site] objectives` has ttft and tpot".to_owned(),
        }
    }

    /// Why it isn't known which cards serve a model.
    fn no_cards(&self, model: &str) -> Option<String> {
        let (labels, _) = self.of(DERIVED_ENGINE_UNKNOWN_INFO.name, model).next()?;
        let unit = labels.get("unit").unwrap_or_default();
        Some(format!(
            "which cards of {unit} serve it is not known: none has an owner there, or several models share them"
        ))
    }

    fn no_power(&self, model: &str) -> String {
        self.no_cards(model).unwrap_or_else(|| match self.first(DERIVED_MODEL_GPUS.name, model) {
            Some(_) => "one of its cards reports no power".to_owned(),
            None => "which cards serve it is not known".to_owned(),
        })
    }

    fn no_cost(&self, model: &str) -> String {
        let priced: Vec<&str> =
            self.prices.iter().filter_map(|(labels, _)| labels.get("gpu_model")).collect();
        let kinds = self.of(DERIVED_MODEL_GPUS.name, model).filter_map(|(labels, _)| labels.get("gpu_model"));
        let mut lacking = kinds.filter(|kind| !priced.contains(kind));
        match lacking.next() {
            Some(kind) => format!("no price is set for {kind}: `[site] prices` takes it"),
            None => self.no_cards(model).unwrap_or_else(|| "which cards serve it is not known".to_owned()),
        }
    }
}

/// Objectives by kind, where any are set for the model.
pub(super) fn objectives(site: &SiteConfig, model: &str) -> Option<BTreeMap<&'static str, Option<f64>>> {
    let of = site.objectives.iter().find(|of| of.model == model)?;
    let all = [("ttft", of.ttft), ("tpot", of.tpot), ("itl", of.itl), ("goodput", of.goodput)];
    Some(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_rule_and_every_window_is_one_that_is_replaced() {
        for (key, rule, _) in FIGURES {
            assert!(RULES.iter().any(|found| found.name == rule), "{key}");
        }
        assert!(RULES.iter().any(|found| found.name == UNITS), "units are read by it");
        assert!(RULES.iter().any(|found| found.name == "gpu:power_watts"), "model:power_watts reads it");
        assert!(!RULES.iter().any(|found| found.name == "gpu:throttled_ratio"), "no figure reads it");
        let window = Window { from_ms: 0, to_ms: 3_600_000 };
        for rule in RULES.iter() {
            let text = within(&rule.expr, window);
            assert!(!text.contains("5m") && !text.contains("300"), "{}: {text}", rule.name);
            assert!(Query::parse(&text).is_ok(), "{text}");
        }
    }
}
