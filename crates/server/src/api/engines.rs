//! Engines that serve models, and how their pages differ from what is known of them.

use std::collections::{BTreeMap, BTreeSet};

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
use crate::engines::{self, Model, Replica, Up, Value, Values, Window};
use crate::error::ApiError;
use crate::query::{AskError, ask_several};

/// The window where none is asked for, and the longest, milliseconds.
const WINDOW_MS: i64 = 5 * 60_000;
const WINDOW_MS_MAX: i64 = 31 * 86_400_000;

/// Engines by the model that they serve.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EnginesAnswer {
    from: i64,
    to: i64,
    models: Vec<ModelRow>,
    /// Targets that are engines, those that are down among them.
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
    replicas: Vec<ReplicaRow>,
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
    ),
    responses((status = 200, body = EnginesAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn engines(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<EnginesAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let window = window_of(&params, WINDOW_MS)?;
    let model = params.get("model").map(str::to_owned);
    let scraped = scraped(&app, &caller);
    let (models, up) = ask_several(&app, &caller, move |source, options| {
        let (models, mut samples) = engines::read(source, options, window, model.as_deref())?;
        let (up, more) = engines::up(source, options, window)?;
        samples += more;
        Ok(((models, up), samples))
    })
    .await
    .map_err(failed)?;
    let known = Known { scraped, up };
    Ok(Json(EnginesAnswer {
        from: window.from_ms,
        to: window.to_ms,
        targets: known.targets(&models),
        models: models.into_iter().map(|model| known.model(model)).collect(),
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

/// How the targets stand that are scraped here.
fn scraped(app: &App, caller: &Caller) -> Vec<TargetStatus> {
    let scraper = app.scraper();
    scraper.as_ref().filter(|_| !caller.is_bounded()).map(|one| one.targets().active).unwrap_or_default()
}

/// What is known of targets.
struct Known {
    scraped: Vec<TargetStatus>,
    /// The latest `up`, by job and instance.
    up: Up,
}

impl Known {
    fn status(&self, job: &str, instance: &str) -> Option<&TargetStatus> {
        let is_it = |one: &&TargetStatus| {
            one.labels.get("job") == Some(job) && one.labels.get("instance") == Some(instance)
        };
        self.scraped.iter().find(is_it)
    }

    fn row(&self, replica: &Replica) -> TargetRow {
        let (job, instance) = (&replica.key.job, &replica.key.instance);
        let status = self.status(job, instance);
        let up = self.up.get(&(job.to_string(), instance.to_string()));
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
        let replicas: Vec<ReplicaRow> = model.replicas.iter().map(|replica| self.replica(replica)).collect();
        let mut targets: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        for replica in &replicas {
            *targets.entry((&replica.job, &replica.instance)).or_default() |= replica.up;
        }
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
            replicas,
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
