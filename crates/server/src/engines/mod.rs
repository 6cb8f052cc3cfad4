//! Engines that serve models, judged from their canonical series: PromQL over the store, as anybody could ask
//! it, put together by model and replica.

mod cards;
mod events;
mod figures;
mod gather;
mod near;
mod pages;
mod ratios;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use insight::serving::{Serving, Verdict, verdict};
use model::{Labels, NANOS_PER_MILLI};
use promql::{MatchOp, Matcher, Options, QueryError, Select, Source};
use semconv::canonical::{
    ENGINE_KV_USAGE_RATIO, ENGINE_PREEMPTIONS_TOTAL, ENGINE_REQUESTS_FINISHED_TOTAL, ENGINE_REQUESTS_RUNNING,
    ENGINE_REQUESTS_WAITING, GPU_BUSY_RATIO, GPU_DRAM_ACTIVE_RATIO, GPU_POWER_WATTS, GPU_TENSOR_ACTIVE_RATIO,
};

use crate::config::SiteConfig;

pub(crate) use cards::Cards;
pub(crate) use events::{KIND as ENGINE_EVENT, Watch};
use gather::{Asker, selector};
use near::{Near, one_of};
pub(crate) use pages::{Compared, compare};
pub(crate) use ratios::Price;
use ratios::Scope;

/// How long before the window a replica may have been seen to be listed as one that is silent.
const REMEMBERED_MS: i64 = 24 * 3_600_000;
/// Metrics of which every engine has at least one; parts of histograms that are many are left out.
const SIGNS: &str =
    "tg_engine_(requests_(running|waiting|finished_total)|output_tokens_total|(e2e|ttft)_seconds_count)";

/// The window, milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
}

impl Window {
    /// As PromQL writes it.
    pub(crate) fn range(self) -> String {
        format!("{}ms", (self.to_ms - self.from_ms).max(1))
    }
}

/// One replica of an engine: what its series have in common. Labels that are not there are empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) model: Arc<str>,
    pub(crate) job: Arc<str>,
    pub(crate) instance: Arc<str>,
    pub(crate) engine: Arc<str>,
    pub(crate) dp_rank: Arc<str>,
}

/// The labels of a [`Key`], as PromQL groups by them.
const KEY_LABELS: &str = "model, job, instance, engine, dp_rank";

impl Key {
    fn of(labels: &Labels) -> Self {
        let text = |name| Arc::from(labels.get(name).unwrap_or_default());
        Self {
            model: text("model"),
            job: text("job"),
            instance: text("instance"),
            engine: text("engine"),
            dp_rank: text("dp_rank"),
        }
    }
}

/// A number with the share of the window that was observed, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    pub(crate) value: Result<f64, String>,
    pub(crate) coverage: Option<f64>,
}

/// Values by figure.
pub(crate) type Values = BTreeMap<&'static str, Value>;

/// What is known of a replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) key: Key,
    /// Its latest sample in the window, milliseconds.
    pub(crate) seen_ms: Option<i64>,
    pub(crate) values: Values,
}

/// What is known of a model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: Arc<str>,
    pub(crate) values: Values,
    pub(crate) finished: BTreeMap<String, f64>,
    pub(crate) cards: Cards,
    pub(crate) serving: Serving,
    pub(crate) verdict: Option<Verdict>,
    /// What is promised of it, by kind.
    pub(crate) objectives: Option<BTreeMap<&'static str, Option<f64>>>,
    pub(crate) price: Option<Price>,
    pub(crate) replicas: Vec<Replica>,
}

/// Which engines are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) window: Window,
    /// Of this model only.
    pub(crate) model: Option<String>,
    /// Of models whose names come after this one.
    pub(crate) after: Option<String>,
    /// Of so many models at most.
    pub(crate) limit: usize,
}

/// Models in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Models {
    pub(crate) rows: Vec<Model>,
    /// How many there are, those on other pages among them.
    pub(crate) total: usize,
    /// Whether more come after these.
    pub(crate) is_cut: bool,
}

/// Everything about engines in a window, and how many samples were read for it.
pub(crate) fn read(
    source: &dyn Source,
    options: &Options,
    ask: &Ask,
    site: &SiteConfig,
) -> Result<(Models, u64), QueryError> {
    let window = ask.window;
    let all = keys(source, window, ask.model.as_deref())?;
    let page = Page::of(&all, ask);
    if page.keys.is_empty() {
        return Ok((Models { total: page.total, ..Models::default() }, 0));
    }
    let near = Near::new(source, page.matcher(ask), options.memory.clone());
    let mut asker = Asker::new(&near, options, window);
    let table = figures::read(&mut asker)?;
    let finished = finished(&asker)?;
    let running_max = asker.by_model(&format!(
        "sum by (model) (max_over_time({}[{}]))",
        selector("=", ENGINE_REQUESTS_RUNNING.name),
        window.range()
    ))?;
    // What others on the same hosts are tells whose the cards are.
    let (cards, hosts) = cards::read(&asker, &near, &page.keys, &all)?;
    let scope = Scope { models: page.keys.iter().map(|key| &*key.model).collect(), hosts: &hosts };
    let (ratios, more) = ratios::read(&near, options, window, &scope)?;
    let models = replicas(&asker, page.keys, &table)?;
    let judge = |(model, replicas): (Arc<str>, Vec<Replica>)| {
        let mut values = table.of_model(&model, &replicas);
        values.extend(ratios.of_model(site, &model));
        let cards = cards.get(&model).cloned().unwrap_or_default();
        let serving = Serving {
            running_max: running_max.get(&model).copied(),
            running: number(&values, "running"),
            waiting: number(&values, "waiting"),
            kv_usage_max: number(&values, "kv_usage_max"),
            preemptions_per_second: number(&values, "preemptions_per_second"),
            ..cards.serving
        };
        let verdict = verdict(&serving, &cards.reason);
        let finished = finished.get(&model).cloned().unwrap_or_default();
        let (objectives, price) = (ratios::objectives(site, &model), ratios.price(&model));
        Model { name: model, values, finished, cards, serving, verdict, objectives, price, replicas }
    };
    let rows = models.into_iter().map(judge).collect();
    Ok((Models { rows, total: page.total, is_cut: page.is_cut }, asker.samples() + more))
}

/// Replicas of the models that an answer is of.
struct Page {
    keys: BTreeSet<Key>,
    total: usize,
    is_cut: bool,
}

impl Page {
    fn of(all: &BTreeSet<Key>, ask: &Ask) -> Self {
        // Keys are in the order of their models.
        let models: BTreeSet<&Arc<str>> = all.iter().map(|key| &key.model).collect();
        let is_later = |model: &str| ask.after.as_deref().is_none_or(|after| model > after);
        let later: Vec<&Arc<str>> = models.iter().copied().filter(|model| is_later(model)).collect();
        let wanted: BTreeSet<&Arc<str>> = later.iter().copied().take(ask.limit).collect();
        Self {
            keys: all.iter().filter(|key| wanted.contains(&key.model)).cloned().collect(),
            total: models.len(),
            is_cut: later.len() > wanted.len(),
        }
    }

    /// What selects the series of these models, where there are others.
    fn matcher(&self, ask: &Ask) -> Option<Matcher> {
        if let Some(model) = &ask.model {
            return Matcher::new("model", MatchOp::Equal, model).ok();
        }
        let models: BTreeSet<&str> = self.keys.iter().map(|key| &*key.model).collect();
        (models.len() < self.total).then(|| one_of("model", &models)).flatten()
    }
}

/// The latest `up` by job and instance.
pub(crate) type Up = BTreeMap<(String, String), f64>;

/// The latest `up` of every target, and how many samples were read.
pub(crate) fn up(source: &dyn Source, options: &Options, window: Window) -> Result<(Up, u64), QueryError> {
    let asker = Asker::new(source, options, window);
    let text = |labels: &Labels, name| labels.get(name).unwrap_or_default().to_owned();
    let found = asker.ask("max by (job, instance) (up)")?;
    let up = found.iter().map(|(labels, up)| ((text(labels, "job"), text(labels, "instance")), *up));
    Ok((up.collect(), asker.samples()))
}

/// The unit of a figure.
pub(crate) fn unit(key: &str) -> &'static str {
    ratios::unit(key).unwrap_or_else(|| figures::unit(key))
}

/// The numbers that a verdict is from: name, value, unit, metric.
pub(crate) fn numbers(of: &Serving) -> [(&'static str, Option<f64>, &'static str, &'static str); 9] {
    [
        ("busy", of.busy, "", GPU_BUSY_RATIO.name),
        ("tensor", of.tensor, "", GPU_TENSOR_ACTIVE_RATIO.name),
        ("dram", of.dram, "", GPU_DRAM_ACTIVE_RATIO.name),
        ("power_ratio", of.power, "", GPU_POWER_WATTS.name),
        ("kv_usage_max", of.kv_usage_max, "", ENGINE_KV_USAGE_RATIO.name),
        ("running", of.running, "", ENGINE_REQUESTS_RUNNING.name),
        ("running_max", of.running_max, "", ENGINE_REQUESTS_RUNNING.name),
        ("waiting", of.waiting, "", ENGINE_REQUESTS_WAITING.name),
        ("preemptions_per_second", of.preemptions_per_second, "1/s", ENGINE_PREEMPTIONS_TOTAL.name),
    ]
}

fn number(values: &Values, figure: &str) -> Option<f64> {
    values.get(figure)?.value.as_ref().ok().copied()
}

/// The replicas by model, with when they were heard last.
fn replicas(
    asker: &Asker<'_>,
    keys: BTreeSet<Key>,
    table: &figures::Table,
) -> Result<BTreeMap<Arc<str>, Vec<Replica>>, QueryError> {
    let window = asker.window();
    let seen = asker.by_key(&format!(
        "max by ({KEY_LABELS}) (ts_of_last_over_time({}[{}]))",
        selector("=~", SIGNS),
        window.range()
    ))?;
    let mut models: BTreeMap<Arc<str>, Vec<Replica>> = BTreeMap::new();
    for key in keys {
        let seen_ms = seen.get(&key).map(|seconds| (seconds * 1e3) as i64);
        let values = table.of_replica(&key);
        models.entry(key.model.clone()).or_default().push(Replica { key, seen_ms, values });
    }
    Ok(models)
}

/// How many requests of a model ended in the window, by the reason.
fn finished(asker: &Asker<'_>) -> Result<BTreeMap<Arc<str>, BTreeMap<String, f64>>, QueryError> {
    let found = asker.ask(&format!(
        "sum by (model, reason) (increase({}[{}]))",
        selector("=", ENGINE_REQUESTS_FINISHED_TOTAL.name),
        asker.window().range()
    ))?;
    let mut finished: BTreeMap<Arc<str>, BTreeMap<String, f64>> = BTreeMap::new();
    for (labels, count) in found {
        let text = |name| labels.get(name).unwrap_or_default();
        finished.entry(text("model").into()).or_default().insert(text("reason").to_owned(), count);
    }
    Ok(finished)
}

/// The replicas that were there in the window or a day before.
fn keys(source: &dyn Source, window: Window, model: Option<&str>) -> Result<BTreeSet<Key>, QueryError> {
    let matcher = |name, op, value| {
        Matcher::new(name, op, value).map_err(|error| QueryError::Execution(error.to_string()))
    };
    let mut matchers =
        vec![matcher("__name__", MatchOp::Matches, SIGNS)?, matcher("engine", MatchOp::NotEqual, "")?];
    if let Some(model) = model {
        matchers.push(matcher("model", MatchOp::Equal, model)?);
    }
    let from_ms = window.from_ms.min(window.to_ms.saturating_sub(REMEMBERED_MS));
    let select = Select {
        matchers: &matchers,
        from_ns: from_ms.saturating_mul(NANOS_PER_MILLI),
        to_ns: window.to_ms.saturating_mul(NANOS_PER_MILLI),
    };
    let found = source.select(&select).map_err(|error| QueryError::Execution(error.reason))?;
    Ok(found.iter().map(|series| Key::of(&series.labels())).collect())
}
