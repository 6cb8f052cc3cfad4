//! How a run fares: what holds it up, its figures, what it costs.

use axum::Json;
use axum::extract::{Path, State};
use model::RunState;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Caller;
use crate::app::{App, read};
use crate::clock::now_ns;
use crate::error::ApiError;
use crate::verdicts::{Figures, FiguresRow, Health, MoneyRow, RUNS_MAX, VerdictRow};

/// How a run fares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthAnswer {
    run_id: String,
    /// `ok`, `warn`, `page` or `unknown`.
    state: &'static str,
    /// Why nothing is known.
    reason: Option<String>,
    /// What holds, the worst first.
    verdicts: Vec<VerdictRow>,
    /// What is over, the latest first.
    history: Vec<VerdictRow>,
    figures: FiguresRow,
    money: MoneyRow,
    /// Null where nothing is looked at.
    watched: Option<WatchedRow>,
}

/// What was looked at.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchedRow {
    /// Ranks that told the latest step, of all.
    ranks: usize,
    of: usize,
    /// Steps that are compared at once.
    window_steps: u32,
    last_step: Option<i64>,
    /// The first step that was looked at.
    since: Option<i64>,
    /// Windows of steps that were compared so far.
    windows: u64,
    /// Points of its steps that were stored and not compared, since too many came at once.
    missed_points: u64,
    /// Why nothing is compared yet, or nobody can be named.
    reason: Option<String>,
}

/// Verdicts on a run, its figures, and what it costs.
#[utoipa::path(get, operation_id = "readHealth", path = "/api/tg/v1/runs/{run_id}/health",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses((status = 200, body = HealthAnswer), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<HealthAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        let now_ns = now_ns();
        let health = shared.verdicts.health(id);
        let reckoned = Figures::new(shared, &run, &health, now_ns);
        let (figures, money) = (reckoned.row(), reckoned.money());
        drop(reckoned);
        let (state, reason) = state(&health, run.state(now_ns).0);
        let watched = health.looked.map(|looked| WatchedRow {
            ranks: looked.ranks,
            of: looked.of,
            window_steps: looked.window_steps,
            last_step: looked.last_step,
            since: looked.since,
            windows: looked.windows,
            missed_points: looked.missed_points,
            reason: looked.reason,
        });
        let (verdicts, history) = (health.verdicts, health.history);
        Ok(Json(HealthAnswer {
            run_id: id.to_string(),
            state,
            reason,
            verdicts,
            history,
            figures,
            money,
            watched,
        }))
    })
    .await
}

fn state(health: &Health, run: RunState) -> (&'static str, Option<String>) {
    match health.verdicts.first().map(|row| row.level.as_str()) {
        Some("page") => return ("page", None),
        Some("warn") => return ("warn", None),
        _ => {}
    }
    match (&health.looked, run) {
        // Its processes' clocks may be behind, so that it looks as if it were silent.
        (None, RunState::Stale) | (_, RunState::Finished | RunState::Failed | RunState::Paused) => {
            ("unknown", Some(format!("It is {}: only runs under way are watched.", run.as_str())))
        }
        (None, RunState::Running) if health.is_beyond => {
            let most = RUNS_MAX;
            ("unknown", Some(format!("{most} runs are judged at once, and as many others are under way.")))
        }
        (None, RunState::Running) => (
            "unknown",
            Some("No step of it is known: `tg.step`, or spans of iterations, tell them.".to_owned()),
        ),
        (Some(looked), _) if looked.windows == 0 => {
            let reason = looked.reason.clone();
            ("unknown", Some(reason.unwrap_or_else(|| "It has not done enough steps yet.".to_owned())))
        }
        _ => ("ok", None),
    }
}
