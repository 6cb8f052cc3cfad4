//! Figures of several runs at once, as a list of runs shows them.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::{RunId, RunRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::now_ns;
use crate::error::ApiError;
use crate::peak;
use crate::verdicts::{Figure, Figures};

/// Most runs of one question: more than a screen has.
const RUNS_MAX: usize = 100;
/// After this long no further run is reckoned: what a run's whole series say may take a second.
const BUDGET: Duration = Duration::from_millis(500);

/// Figures of runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFiguresAnswer {
    /// In the order of the question; a run that there is not is left out.
    runs: Vec<RunFigures>,
    /// Runs that were not reached in time: ask for these again.
    later: Vec<String>,
}

/// Figures of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFigures {
    run_id: String,
    gpus: Figure,
    /// As its processes name it; null where they name none or several.
    gpu_model: Option<String>,
    tokens_per_second: Figure,
    mfu_ratio: Figure,
    ettr_ratio: Figure,
    usd: Figure,
}

impl RunFigures {
    fn of(shared: &Shared, run: &RunRecord, now_ns: i64) -> Self {
        let health = shared.verdicts.health(run.id());
        let reckoned = Figures::new(shared, run, &health, now_ns);
        let (row, money) = (reckoned.row(), reckoned.money());
        let models = peak::devices(run);
        Self {
            run_id: run.id().to_string(),
            gpus: reckoned.gpus_row(),
            gpu_model: models.first().filter(|_| models.len() == 1).cloned(),
            tokens_per_second: row.tokens_per_second,
            mfu_ratio: row.mfu_ratio,
            ettr_ratio: row.ettr_ratio,
            usd: money.usd,
        }
    }
}

/// What the list of runs shows beside what it is sorted by: GPUs, tokens per second, MFU, ETTR, cost.
#[utoipa::path(get, operation_id = "listRunFigures", path = "/api/tg/v1/runs/figures",
    params(("run_id" = Vec<String>, Query, description = "16 hex digits, at most 100 of them")),
    responses((status = 200, body = RunFiguresAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<RunFiguresAnswer>, ApiError> {
    let ids = asked(&Params::of(&uri)?)?;
    read(&app, move |shared| Ok(Json(within(shared, &caller, &ids, BUDGET)))).await
}

fn asked(params: &Params) -> Result<Vec<RunId>, ApiError> {
    let mut ids: Vec<RunId> = Vec::new();
    for (_, text) in params.iter().filter(|(name, _)| *name == "run_id") {
        let id = super::run_id(text)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
        if ids.len() > RUNS_MAX {
            return Err(ApiError::bad(format!("more than {RUNS_MAX} runs are asked for at once"))
                .hint("ask for the rows that are shown"));
        }
    }
    if ids.is_empty() {
        return Err(ApiError::bad("`run_id` is missing").hint("`GET /api/tg/v1/runs` lists all"));
    }
    Ok(ids)
}

/// The figures of those that are reached within `budget`, one at least.
fn within(shared: &Shared, caller: &Caller, ids: &[RunId], budget: Duration) -> RunFiguresAnswer {
    let begun = Instant::now();
    let now_ns = now_ns();
    let mut answer = RunFiguresAnswer { runs: Vec::new(), later: Vec::new() };
    for id in ids {
        let Some(run) = shared.store.run(*id).filter(|run| caller.sees(&run.path)) else { continue };
        if answer.runs.is_empty() || begun.elapsed() < budget {
            answer.runs.push(RunFigures::of(shared, &run, now_ns));
        } else {
            answer.later.push(id.to_string());
        }
    }
    answer
}
