//! The figures of models and replicas: which series each is computed from, and how.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Desc;
use promql::QueryError;
use semconv::canonical::{
    ENGINE_CACHE_HIT_TOKENS_TOTAL, ENGINE_CACHE_QUERY_TOKENS_TOTAL, ENGINE_E2E_SECONDS, ENGINE_ITL_SECONDS,
    ENGINE_KV_USAGE_RATIO, ENGINE_OUTPUT_TOKENS_TOTAL, ENGINE_PREEMPTIONS_TOTAL, ENGINE_PROMPT_TOKENS_TOTAL,
    ENGINE_QUEUE_SECONDS, ENGINE_REQUESTS_RUNNING, ENGINE_REQUESTS_WAITING,
    ENGINE_SPEC_ACCEPTED_TOKENS_TOTAL, ENGINE_SPEC_DRAFT_TOKENS_TOTAL, ENGINE_TPOT_SECONDS,
    ENGINE_TTFT_SECONDS,
};

use super::gather::{Asker, Vector, selector};
use super::{KEY_LABELS, Key, Replica, Value, Values};

/// A number that is shown of a model and of a replica.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) key: &'static str,
    pub(crate) unit: &'static str,
    how: How,
}

#[derive(Debug, Clone, Copy)]
enum How {
    /// A quantile of a histogram.
    Quantile(&'static Desc, f64),
    /// The latest value of a gauge, put together over replicas by this operator.
    Last(&'static Desc, &'static str),
    /// The rate of a counter.
    Rate(&'static Desc),
    /// One counter's rate over another's.
    Share(&'static Desc, &'static Desc),
}

impl How {
    /// The metrics that have to be there.
    fn metrics(self) -> Vec<&'static Desc> {
        match self {
            Self::Quantile(desc, _) | Self::Last(desc, _) | Self::Rate(desc) => vec![desc],
            Self::Share(part, whole) => vec![whole, part],
        }
    }
}

const fn figure(key: &'static str, unit: &'static str, how: How) -> Figure {
    Figure { key, unit, how }
}

/// All figures.
const FIGURES: [Figure; 18] = [
    figure("ttft_p50", "s", How::Quantile(&ENGINE_TTFT_SECONDS, 0.5)),
    figure("ttft_p95", "s", How::Quantile(&ENGINE_TTFT_SECONDS, 0.95)),
    figure("itl_p50", "s", How::Quantile(&ENGINE_ITL_SECONDS, 0.5)),
    figure("itl_p99", "s", How::Quantile(&ENGINE_ITL_SECONDS, 0.99)),
    figure("tpot_p50", "s", How::Quantile(&ENGINE_TPOT_SECONDS, 0.5)),
    figure("tpot_p95", "s", How::Quantile(&ENGINE_TPOT_SECONDS, 0.95)),
    figure("e2e_p50", "s", How::Quantile(&ENGINE_E2E_SECONDS, 0.5)),
    figure("e2e_p95", "s", How::Quantile(&ENGINE_E2E_SECONDS, 0.95)),
    figure("queue_p95", "s", How::Quantile(&ENGINE_QUEUE_SECONDS, 0.95)),
    figure("running", "", How::Last(&ENGINE_REQUESTS_RUNNING, "sum")),
    figure("waiting", "", How::Last(&ENGINE_REQUESTS_WAITING, "sum")),
    figure("kv_usage", "", How::Last(&ENGINE_KV_USAGE_RATIO, "avg")),
    figure("kv_usage_max", "", How::Last(&ENGINE_KV_USAGE_RATIO, "max")),
    figure("preemptions_per_second", "1/s", How::Rate(&ENGINE_PREEMPTIONS_TOTAL)),
    figure("output_tokens_per_second", "1/s", How::Rate(&ENGINE_OUTPUT_TOKENS_TOTAL)),
    figure("prompt_tokens_per_second", "1/s", How::Rate(&ENGINE_PROMPT_TOKENS_TOTAL)),
    figure(
        "cache_hit_ratio",
        "",
        How::Share(&ENGINE_CACHE_HIT_TOKENS_TOTAL, &ENGINE_CACHE_QUERY_TOKENS_TOTAL),
    ),
    figure(
        "spec_acceptance",
        "",
        How::Share(&ENGINE_SPEC_ACCEPTED_TOKENS_TOTAL, &ENGINE_SPEC_DRAFT_TOKENS_TOTAL),
    ),
];

/// The unit of a figure.
pub(crate) fn unit(key: &str) -> &'static str {
    FIGURES.iter().find(|figure| figure.key == key).map_or("", |figure| figure.unit)
}

/// Numbers by figure, of replicas and of models.
#[derive(Debug, Default)]
pub(crate) struct Table {
    replicas: BTreeMap<(Key, &'static str), f64>,
    models: BTreeMap<(Arc<str>, &'static str), f64>,
    /// Observed share of the window by metric; that it is there at all says that the metric is.
    covered: BTreeMap<(Key, &'static str), f64>,
}

/// Asks for all figures.
pub(crate) fn read(asker: &mut Asker<'_>) -> Result<Table, QueryError> {
    let mut table = Table::default();
    let mut asked: Vec<&'static str> = Vec::new();
    for figure in &FIGURES {
        for desc in figure.how.metrics() {
            if !asked.contains(&desc.name) {
                asked.push(desc.name);
                gather(asker, &mut table, figure.how, desc)?;
            }
        }
        let (of_replica, of_model) = expressions(figure.how);
        for (labels, value) in asker.ask_kept(&of_replica)? {
            table.replicas.insert((Key::of(&labels), figure.key), value);
        }
        for (labels, value) in asker.ask_kept(&of_model)? {
            table.models.insert((labels.get("model").unwrap_or_default().into(), figure.key), value);
        }
    }
    Ok(table)
}

/// What the figures of a metric are computed from, by replica, and how much of the window was observed.
fn gather(asker: &mut Asker<'_>, table: &mut Table, how: How, desc: &'static Desc) -> Result<(), QueryError> {
    let range = asker.window().range();
    let name = desc.name;
    let (text, counted) = match how {
        How::Quantile(..) => {
            let buckets = selector("=", &format!("{name}_bucket"));
            let text = format!("sum by ({KEY_LABELS}, le) (increase({buckets}[{range}]))");
            (text, selector("=", &format!("{name}_count")))
        }
        How::Last(_, operator) => {
            let gauge = selector("=", name);
            (format!("{operator} by ({KEY_LABELS}) ({gauge})"), gauge)
        }
        How::Rate(_) | How::Share(..) => {
            let counter = selector("=", name);
            (format!("sum by ({KEY_LABELS}) (rate({counter}[{range}]))"), counter)
        }
    };
    let found: Vector = asker.ask(&text)?;
    asker.keep(name, found);
    let ends =
        format!("ts_of_last_over_time({counted}[{range}]) - ts_of_first_over_time({counted}[{range}])");
    let observed = match how {
        How::Last(..) => ends,
        // The interval in which a counter began anew was not observed.
        _ => {
            format!("({ends}) * (1 - resets({counted}[{range}]) / (count_over_time({counted}[{range}]) - 1))")
        }
    };
    let observed = format!("avg by ({KEY_LABELS}) ({observed})");
    let seconds = (asker.window().to_ms - asker.window().from_ms).max(1) as f64 / 1e3;
    for (key, observed) in asker.by_key(&observed)? {
        let share = observed / seconds;
        table.covered.insert((key, name), if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 });
    }
    Ok(())
}

/// A figure by replica and by model, of what was kept.
fn expressions(how: How) -> (String, String) {
    match how {
        How::Quantile(desc, quantile) => (
            format!("histogram_quantile({quantile}, {})", desc.name),
            format!("histogram_quantile({quantile}, sum by (model, le) ({}))", desc.name),
        ),
        How::Last(desc, operator) => (desc.name.to_owned(), format!("{operator} by (model) ({})", desc.name)),
        How::Rate(desc) => (desc.name.to_owned(), format!("sum by (model) ({})", desc.name)),
        How::Share(part, whole) => (
            format!("{} / {}", part.name, whole.name),
            format!("sum by (model) ({}) / sum by (model) ({})", part.name, whole.name),
        ),
    }
}

impl Table {
    /// The figures of a replica.
    pub(crate) fn of_replica(&self, key: &Key) -> Values {
        let value = |figure: &Figure| {
            let found = self.replicas.get(&(key.clone(), figure.key)).copied();
            let coverage = self.coverage(std::slice::from_ref(key), figure.how);
            (figure.key, settle(figure, found, coverage, std::slice::from_ref(&key.engine)))
        };
        FIGURES.iter().map(value).collect()
    }

    /// The figures of a model with these replicas.
    pub(crate) fn of_model(&self, model: &Arc<str>, replicas: &[Replica]) -> Values {
        let engines: Vec<Arc<str>> = replicas.iter().map(|replica| replica.key.engine.clone()).collect();
        let keys: Vec<Key> = replicas.iter().map(|replica| replica.key.clone()).collect();
        let value = |figure: &Figure| {
            let coverage = self.coverage(&keys, figure.how);
            let found = self.models.get(&(model.clone(), figure.key)).copied();
            (figure.key, settle(figure, found, coverage, &engines))
        };
        FIGURES.iter().map(value).collect()
    }

    /// How much of the window was observed of what a figure is computed from, or which metric nobody sent.
    fn coverage(&self, keys: &[Key], how: How) -> Result<f64, &'static str> {
        let mut least = 1.0_f64;
        for desc in how.metrics() {
            let shares = keys.iter().filter_map(|key| self.covered.get(&(key.clone(), desc.name)));
            let (sum, count) = shares.fold((0.0, 0), |(sum, count), share| (sum + share, count + 1));
            if count == 0 {
                return Err(desc.name);
            }
            least = least.min(sum / f64::from(count));
        }
        Ok(least)
    }
}

/// A number, or why there is none.
fn settle(
    figure: &Figure,
    found: Option<f64>,
    coverage: Result<f64, &'static str>,
    engines: &[Arc<str>],
) -> Value {
    let value = match (found, coverage) {
        (Some(value), _) if value.is_finite() => Ok(value),
        (Some(value), _) if value.is_infinite() => Err("it lies beyond the engine's last bucket".to_owned()),
        (Some(_), _) => Err(match figure.how {
            How::Quantile(..) => "no request in this window".to_owned(),
            _ => "nothing was counted in this window".to_owned(),
        }),
        (None, Ok(_)) => Err("fewer than two samples in this window".to_owned()),
        (None, Err(metric)) => {
            let mut engines: Vec<&str> = engines.iter().map(|engine| &**engine).collect();
            engines.dedup();
            Err(format!("{} sent no {metric} in this window", engines.join(" and ")))
        }
    };
    Value { value, coverage: coverage.ok() }
}
