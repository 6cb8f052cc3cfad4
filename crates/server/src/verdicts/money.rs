//! What a run costs, at the site's price, and what verdicts cost of it. What is not known is absent with its reason.

use model::{NANOS_PER_SECOND, RunRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{Figure, Figures};
use super::row::VerdictRow;
use crate::clock::to_ms;
use crate::peak;

const SECONDS_PER_HOUR: f64 = 3_600.0;

/// A price as the site's settings have it.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct PriceRow {
    usd_per_gpu_hour: Option<f64>,
    gpu_model: Option<String>,
    revision: Option<String>,
}

/// What a run costs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MoneyRow {
    gpu_hours: Figure,
    pub(crate) usd: Figure,
    usd_per_hour: Figure,
    usd_lost_to_verdicts: Figure,
    /// Everything that was paid over every token that counts.
    usd_per_mtok: Figure,
    /// Only the time of steps that count.
    usd_per_mtok_busy: Figure,
    price: PriceRow,
    energy_joules: Figure,
    tokens_per_joule: Figure,
}

/// For how long processes of a run held their GPUs, seconds.
fn held_seconds(run: &RunRecord, now_ns: i64) -> f64 {
    let of_attempt = |number: u32, started_ns: i64| {
        let sessions = run.sessions.iter().filter(|session| session.attempt == number);
        let end_ns = |session: &model::Session| match session.ended_ns {
            Some(ended_ns) => ended_ns,
            None if session.is_live(now_ns) => now_ns,
            None => session.heartbeat_ns,
        };
        let ended_ns = sessions.map(end_ns).max().unwrap_or(started_ns);
        ended_ns.saturating_sub(started_ns).max(0) as f64 / NANOS_PER_SECOND as f64
    };
    run.attempts.iter().map(|attempt| of_attempt(attempt.number, attempt.started_ns)).sum()
}

impl Figures<'_> {
    /// What the run costs.
    pub(crate) fn money(&self) -> MoneyRow {
        let (price, usd_per_gpu_hour) = self.price();
        let gpus = self.gpus();
        let hours = gpus.clone().map(|gpus| gpus * held_seconds(self.run, self.now_ns) / SECONDS_PER_HOUR);
        let per_hour = match (gpus, usd_per_gpu_hour.clone()) {
            (Ok(gpus), Ok(price)) => Ok(gpus * price),
            (Err(reason), _) | (_, Err(reason)) => Err(reason),
        };
        let usd = match (&hours, usd_per_gpu_hour) {
            (Ok(hours), Ok(price)) => Ok(hours * price),
            (Err(reason), _) => Err(reason.clone()),
            (_, Err(reason)) => Err(reason),
        };
        let usd = Figure::of("usd", usd, "GPU hours × price; idle time is paid, too");
        let tokens = self.tokens();
        let per_mtok = match (usd.get(), &tokens) {
            (Ok(usd), Ok(tokens)) => Ok(usd / tokens * 1e6),
            (Err(reason), _) => Err(reason),
            (_, Err(reason)) => Err(reason.clone()),
        };
        let busy = match (&per_hour, &tokens) {
            (Ok(per_hour), Ok(tokens)) => {
                Ok(per_hour * self.kept().seconds() / SECONDS_PER_HOUR / tokens * 1e6)
            }
            (Err(reason), _) | (_, Err(reason)) => Err(reason.clone()),
        };
        let (energy, per_joule) = self.energy(&tokens);
        MoneyRow {
            gpu_hours: Figure::of("hours", hours, "GPUs of the run × the time that its processes held them"),
            usd,
            usd_lost_to_verdicts: self.lost(&per_hour),
            usd_per_hour: Figure::of("usd/hour", per_hour, "GPUs of the run × price"),
            usd_per_mtok: Figure::of("usd/mtok", per_mtok, "all that was paid ÷ tokens of steps that count"),
            usd_per_mtok_busy: Figure::of(
                "usd/mtok",
                busy,
                "price of the time of steps that count ÷ their tokens",
            ),
            price,
            energy_joules: energy,
            tokens_per_joule: per_joule,
        }
    }

    /// GPUs of the run.
    pub(crate) fn gpus_row(&self) -> Figure {
        Figure::of("", self.gpus(), "one for each rank of the latest attempt")
    }

    fn gpus(&self) -> Result<f64, String> {
        if peak::devices(self.run).is_empty() {
            return Err("no process of the run says that it has a GPU".to_owned());
        }
        peak::gpus(self.run)
            .map(f64::from)
            .ok_or_else(|| "nobody says how many processes the job has".to_owned())
    }

    fn price(&self) -> (PriceRow, Result<f64, String>) {
        let site = self.shared.site.now();
        let found = peak::usd_per_gpu_hour(self.run, &site);
        let revision = Some(&site.price_revision).filter(|revision| !revision.is_empty() && found.is_ok());
        let row = PriceRow {
            usd_per_gpu_hour: found.as_ref().ok().copied(),
            gpu_model: peak::devices(self.run).pop_first(),
            revision: revision.cloned(),
        };
        (row, found)
    }

    /// Tokens of steps that count.
    fn tokens(&self) -> Result<f64, String> {
        let tokens = self.slow.tokens.filter(|tokens| *tokens > 0.0);
        tokens
            .map(|tokens| tokens * self.kept_share())
            .ok_or_else(|| "no step says its tokens: `tg.step(step, tokens=...)` does".to_owned())
    }

    fn lost(&self, per_hour: &Result<f64, String>) -> Figure {
        let now = to_ms(self.now_ns);
        let hours = |row: &VerdictRow| {
            let until = row.cleared.unwrap_or(now);
            (until - row.began()).max(0) as f64 / 1e3 / SECONDS_PER_HOUR
        };
        let rows = self.health.verdicts.iter().chain(&self.health.history);
        // The sum of nothing is minus nothing, and would be shown as that.
        let lost = 0.0 + rows.filter_map(|row| Some(row.gain_ratio? * hours(row))).sum::<f64>();
        let usd = per_hour.clone().map(|per_hour| per_hour * lost);
        Figure::of("usd", usd, "share of step time that each verdict costs × the time that it held × price")
    }

    fn energy(&self, tokens: &Result<f64, String>) -> (Figure, Figure) {
        let explain = "energy counters of the run's boards; CPUs, fans and the building are not in it";
        let Some(energy) = self.slow.energy else {
            let reason = || "no energy counter of a GPU is known of the run".to_owned();
            let none = |unit| Figure::of(unit, Err(reason()), explain);
            return (none("joules"), none("tokens/J"));
        };
        let gpus = self.gpus().unwrap_or(energy.cards as f64);
        let wall = held_seconds(self.run, self.now_ns) * gpus.max(1.0);
        let coverage = if wall > 0.0 { energy.seconds / wall } else { 0.0 };
        // Tokens of the time in which energy was counted.
        let per_joule = match tokens {
            Ok(_) if energy.joules <= 0.0 => Err("no energy was counted yet".to_owned()),
            Ok(tokens) => Ok(tokens * coverage.clamp(0.0, 1.0) / energy.joules),
            Err(reason) => Err(reason.clone()),
        };
        let joules = Figure::of("joules", Ok(energy.joules), explain).covered(coverage);
        (
            joules,
            Figure::of("tokens/J", per_joule, "tokens of steps that count ÷ energy of the boards")
                .covered(coverage),
        )
    }
}
