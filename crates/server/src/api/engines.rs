//! Engines that serve models, and how their pages differ from what is known of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use scrape::{Health, TargetStatus};
use serde::Serialize;
use serde_json::Value as JsonValue;
use utoipa::ToSchema;

use super::{Params, json_number};
use crate::access::Caller;
use crate::app::App;
use crate::clock::now_ms;
use crate::engines::{self, Ask, Model, Replica, Up, Value, Values, Window};
use crate::error::ApiError;
use crate::query::{AskError, ask_several};

/// The window where none is asked for, and the longest, milliseconds.
const WINDOW_MS: i64 = 5 * 60_000;
const WINDOW_MS_MAX: i64 = 31 * 86_400_000;
/// Models of an answer where nobody says how many, and at most.
const MODELS: usize = 500;
const MODELS_MAX: usize = 1_000;
/// Most replicas of a model that are listed.
const REPLICAS_MAX: usize = 1_000;

/// Engines by the model that they serve.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EnginesAnswer {
    from: i64,
    to: i64,
    /// In the order of their names.
    models: Vec<ModelRow>,
    /// How many models there are, those of other pages among them.
    models_total: usize,
    /// The last model's name where more come: ask for those `after` it; null where none does.
    next: Option<String>,
    /// Targets that are engines of these models, those that are down among them.
    targets: Vec<TargetRow>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelRow {
    /// Its name, as it is served; empty where the engine does not tell.
    model: String,
    engines: BTreeSet<String>,
    targets: TargetCount,
    /// Cards that serve it; null where that is not known.
    gpus: Option<u32>,
    /// Why cards or what they did are not known; null where they are.
    gpus_reason: Option<String>,
    /// By figure, such as `ttft_p95`.
    values: BTreeMap<&'static str, ValueRow>,
    /// Requests that ended in the window, by the reason.
    #[schema(value_type = BTreeMap<String, f64>)]
    finished: BTreeMap<String, JsonValue>,
    /// What holds it back; null where nothing is known.
    verdict: Option<VerdictRow>,
    /// What the settings promise of it: `ttft`, `tpot` and `itl` in seconds, `goodput` as a share of requests; null
    /// where they promise nothing.
    #[schema(value_type = Option<BTreeMap<String, Option<f64>>>)]
    objectives: Option<BTreeMap<&'static str, Option<f64>>>,
    /// What an hour of one of its cards costs; null where that is not known.
    price: Option<EnginePriceRow>,
    /// The first ones of many.
    replicas: Vec<ReplicaRow>,
    replicas_total: usize,
}

/// What an hour of a card costs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EnginePriceRow {
    usd_per_gpu_hour: f64,
    gpu_model: String,
    /// The list of prices that it is from; null where it has no name.
    revision: Option<String>,
}

/// How many targets, and how many of them answered last.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TargetCount {
    up: usize,
    total: usize,
}

/// A number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValueRow {
    /// Null where it is not known.
    #[schema(value_type = Option<f64>)]
    value: Option<JsonValue>,
    unit: &'static str,
    /// Why it is not known; null where it is.
    reason: Option<String>,
    /// Observed share of the window; null where no sample is in it.
    coverage: Option<f64>,
}

/// What holds a model back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VerdictRow {
    /// `memory_bound`, `compute_bound`, `queueing`, `kv_full`, `idle` or `unknown`.
    kind: &'static str,
    sentence: String,
    numbers: Vec<NumberRow>,
}

/// A number that a verdict is from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NumberRow {
    name: &'static str,
    /// Null where it is not known.
    value: Option<f64>,
    unit: &'static str,
    metric: &'static str,
}

/// One process that serves a model, or one rank of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplicaRow {
    job: String,
    instance: String,
    engine: String,
    /// Null where the engine has none.
    dp_rank: Option<String>,
    up: bool,
    /// Why it is not up; null where it is.
    error: Option<String>,
    /// Its latest sample in the window, milliseconds since the epoch; null where there is none.
    since: Option<i64>,
    values: BTreeMap<&'static str, ValueRow>,
}

/// A target that is an engine.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TargetRow {
    job: String,
    instance: String,
    engine: String,
    up: bool,
    /// Why it is not up; null where it is, or where nobody here knows.
    error: Option<String>,
    /// Milliseconds since the epoch; null where it is not scraped here.
    last_scrape: Option<i64>,
}

/// Engines in a window: latencies, load, throughput, and what holds each model back. What is not known is null with
/// the reason beside it.
#[utoipa::path(get, operation_id = "engines", path = "/api/tg/v1/engines",
    params(
        ("from" = Option<i64>, Query, description = "milliseconds since the epoch; 5 minutes before `to` unless given"),
        ("to" = Option<i64>, Query, description = "milliseconds since the epoch; now unless given"),
        ("model" = Option<String>, Query, description = "of this model only"),
        ("after" = Option<String>, Query, description = "of models whose names come after this one"),
        ("limit" = Option<usize>, Query, description = "of so many models at most; 500 unless given, at most 1,000"),
    ),
    responses((status = 200, body = EnginesAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn engines(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<EnginesAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let window = window_of(&params, WINDOW_MS)?;
    let text = |name| params.get(name).map(str::to_owned);
    let (model, after) = (text("model"), text("after"));
    let ask = Ask { window, model, after, limit: params.limit(MODELS, MODELS_MAX)? };
    let scraped = scraped(&app, &caller);
    let site = app.site.now();
    let (models, up) = ask_several(&app, &caller, move |source, options| {
        let (models, mut samples) = engines::read(source, options, &ask, &site)?;
        let (up, more) = engines::up(source, options, window)?;
        samples += more;
        Ok(((models, up), samples))
    })
    .await
    .map_err(failed)?;
    let known = Known { scraped, up };
    let last = models.rows.last().filter(|_| models.is_cut);
    Ok(Json(EnginesAnswer {
        from: window.from_ms,
        to: window.to_ms,
        models_total: models.total,
        next: last.map(|model| model.name.to_string()),
        targets: known.targets(&models.rows),
        models: models.rows.into_iter().map(|model| known.model(model)).collect(),
    }))
}

/// The window that is asked for, `otherwise_ms` long where its start is not.
pub(super) fn window_of(params: &Params, otherwise_ms: i64) -> Result<Window, ApiError> {
    let to_ms = params.number("to")?.unwrap_or_else(now_ms);
    let from_ms = params.number("from")?.unwrap_or(to_ms.saturating_sub(otherwise_ms));
    if from_ms >= to_ms || to_ms.saturating_sub(from_ms) > WINDOW_MS_MAX {
        return Err(ApiError::bad(format!("`from` is {from_ms} and `to` {to_ms}"))
            .hint("`from` comes first, and both are at most 31 days apart"));
    }
    Ok(Window { from_ms, to_ms })
}

pub(super) fn failed(error: AskError) -> ApiError {
    match error {
        AskError::Query(error) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            .hint("ask for a shorter window, or for one model"),
        AskError::Queued(_) => ApiError::unavailable("other queries took all turns", 1),
        AskError::Server(error) => error,
    }
}

/// How targets stand, by job and instance.
type Scraped = HashMap<(String, String), TargetStatus>;

/// How the targets stand that are scraped here.
fn scraped(app: &App, caller: &Caller) -> Scraped {
    let scraper = app.scraper();
    let all = scraper.as_ref().filter(|_| !caller.is_bounded()).map(|one| one.targets().active);
    let name = |target: &TargetStatus| {
        let text = |label| target.labels.get(label).unwrap_or_default().to_owned();
        (text("job"), text("instance"))
    };
    let mut scraped = Scraped::new();
    for target in all.unwrap_or_default() {
        scraped.entry(name(&target)).or_insert(target);
    }
    scraped
}

/// What is known of targets.
struct Known {
    scraped: Scraped,
    /// The latest `up`, by job and instance.
    up: Up,
}

impl Known {
    fn row(&self, replica: &Replica) -> TargetRow {
        let (job, instance) = (&replica.key.job, &replica.key.instance);
        let name = (job.to_string(), instance.to_string());
        let (status, up) = (self.scraped.get(&name), self.up.get(&name));
        let is_up = match (status, up) {
            (Some(status), _) if status.health != Health::Unknown => status.health == Health::Up,
            (_, Some(up)) => *up > 0.0,
            _ => replica.seen_ms.is_some(),
        };
        let error = status.map(|status| status.last_error.clone()).filter(|error| !error.is_empty());
        let silent = || (!is_up).then(|| "it sends nothing in this window".to_owned());
        TargetRow {
            job: job.to_string(),
            instance: instance.to_string(),
            engine: replica.key.engine.to_string(),
            up: is_up,
            error: error.filter(|_| !is_up).or_else(silent),
            last_scrape: status.and_then(|status| status.last_scrape_ms),
        }
    }

    fn targets(&self, models: &[Model]) -> Vec<TargetRow> {
        let mut rows: BTreeMap<(String, String), TargetRow> = BTreeMap::new();
        for replica in models.iter().flat_map(|model| &model.replicas) {
            let row = self.row(replica);
            rows.insert((row.job.clone(), row.instance.clone()), row);
        }
        rows.into_values().collect()
    }

    fn model(&self, model: Model) -> ModelRow {
        let verdict = verdict(&model);
        let mut targets: BTreeMap<(String, String), bool> = BTreeMap::new();
        for row in model.replicas.iter().map(|replica| self.row(replica)) {
            *targets.entry((row.job, row.instance)).or_default() |= row.up;
        }
        let listed = model.replicas.iter().take(REPLICAS_MAX);
        let replicas: Vec<ReplicaRow> = listed.map(|replica| self.replica(replica)).collect();
        let targets = TargetCount { up: targets.values().filter(|up| **up).count(), total: targets.len() };
        ModelRow {
            model: model.name.to_string(),
            engines: model.replicas.iter().map(|replica| replica.key.engine.to_string()).collect(),
            targets,
            gpus: model.cards.count,
            gpus_reason: Some(model.cards.reason).filter(|reason| !reason.is_empty()),
            values: values(&model.values),
            finished: model
                .finished
                .into_iter()
                .map(|(reason, count)| (reason, json_number(count)))
                .collect(),
            verdict,
            objectives: model.objectives,
            price: model.price.map(|price| EnginePriceRow {
                usd_per_gpu_hour: price.usd_per_gpu_hour,
                gpu_model: price.gpu_model,
                revision: price.revision,
            }),
            replicas,
            replicas_total: model.replicas.len(),
        }
    }

    fn replica(&self, replica: &Replica) -> ReplicaRow {
        let TargetRow { job, instance, engine, up, error, .. } = self.row(replica);
        ReplicaRow {
            job,
            instance,
            engine,
            dp_rank: Some(replica.key.dp_rank.to_string()).filter(|rank| !rank.is_empty()),
            up,
            error,
            since: replica.seen_ms,
            values: values(&replica.values),
        }
    }
}

fn values(values: &Values) -> BTreeMap<&'static str, ValueRow> {
    let row = |key: &&'static str, value: &Value| {
        let (number, reason) = match &value.value {
            Ok(number) => (Some(json_number(*number)), None),
            Err(reason) => (None, Some(reason.clone())),
        };
        (*key, ValueRow { value: number, unit: engines::unit(key), reason, coverage: value.coverage })
    };
    values.iter().map(|(key, value)| row(key, value)).collect()
}

fn verdict(model: &Model) -> Option<VerdictRow> {
    let verdict = model.verdict.as_ref()?;
    let number = |(name, value, unit, metric)| NumberRow { name, value, unit, metric };
    let numbers = engines::numbers(&model.serving).map(number).into();
    Some(VerdictRow { kind: verdict.kind.name(), sentence: verdict.sentence.clone(), numbers })
}
