//! The figures of a run: how long its steps are, how much of its time and hardware is made use of.

use insight::ettr::{Interruptions, ettr as ettr_of};
use insight::mfu::utilization;
use model::{NANOS_PER_SECOND, RunRecord, RunState, SessionEnd};
use serde::Serialize;
use utoipa::ToSchema;

use super::kept::Kept;
use super::slow::Slow;
use super::{Health, slow};
use crate::app::Shared;
use crate::peak;
use crate::remediation::failed_key;

/// A number, or why there is none.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Figure {
    pub(crate) value: Option<f64>,
    pub(crate) unit: &'static str,
    /// Why it is not known.
    pub(crate) reason: Option<String>,
    /// Share of what it is of that was seen; null where that has no meaning.
    pub(crate) coverage: Option<f64>,
    /// How it is reckoned.
    pub(crate) explain: Option<String>,
}

impl Figure {
    /// A number and how it is reckoned, or why there is none.
    pub(super) fn of(unit: &'static str, value: Result<f64, String>, explain: &str) -> Self {
        let explain = Some(explain.to_owned());
        match value {
            Ok(value) if value.is_finite() => Self { value: Some(value), unit, explain, ..Self::default() },
            Ok(_) => {
                Self { unit, reason: Some("it is no finite number".to_owned()), explain, ..Self::default() }
            }
            Err(reason) => Self { unit, reason: Some(reason), explain, ..Self::default() },
        }
    }

    /// The same with the share that was seen.
    pub(super) fn covered(self, ratio: f64) -> Self {
        Self { coverage: Some(ratio.clamp(0.0, 1.0)), ..self }
    }

    /// Its value, or why there is none.
    pub(super) fn get(&self) -> Result<f64, String> {
        self.value.ok_or_else(|| self.reason.clone().unwrap_or_default())
    }
}

/// The figures of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiguresRow {
    pub(crate) step_seconds_median: Figure,
    /// Slowest rank's own time less the median, over the median.
    pub(crate) step_spread_ratio: Figure,
    pub(crate) tokens_per_second: Figure,
    pub(crate) mfu_ratio: Figure,
    pub(crate) ettr_ratio: Figure,
    pub(crate) goodput_ratio: Figure,
    pub(crate) mtbi_seconds: Figure,
}

/// What figures and money are reckoned from.
pub(crate) struct Figures<'a> {
    pub(super) shared: &'a Shared,
    pub(super) run: &'a RunRecord,
    pub(super) health: &'a Health,
    pub(super) now_ns: i64,
    pub(super) slow: std::sync::Arc<Slow>,
}

/// When a run ended or fell silent, or now.
pub(super) fn end_ns(run: &RunRecord, now_ns: i64) -> i64 {
    match run.state(now_ns) {
        (RunState::Running, _) => now_ns,
        (_, since_ns) => since_ns,
    }
}

/// From a run's start to its end or now, seconds.
fn wall_seconds(run: &RunRecord, now_ns: i64) -> f64 {
    let started_ns = run.attempts.first().map_or(run.created_ns, |attempt| attempt.started_ns);
    end_ns(run, now_ns).saturating_sub(started_ns).max(0) as f64 / NANOS_PER_SECOND as f64
}

/// The share of a run's time that was spent on steps that count.
pub(super) fn ettr(run: &RunRecord, kept: &Kept, now_ns: i64) -> Option<f64> {
    if kept.steps() == 0 {
        return None;
    }
    let wall = wall_seconds(run, now_ns);
    // Clocks of hosts and this one are apart by a little, and the last step is told before it counts as time.
    ettr_of(wall, wall - kept.seconds().min(wall))
}

/// How often a run was interrupted: attempts that did not come to their end.
fn interruptions(run: &RunRecord) -> usize {
    let last = run.attempts.len() as u32;
    let is_whole = |attempt: u32| {
        let mut of = run.sessions.iter().filter(|session| session.attempt == attempt).peekable();
        of.peek().is_some()
            && of.all(|session| matches!(session.end, Some(SessionEnd::Finished | SessionEnd::Left)))
    };
    let is_failed = |attempt: u32| run.attributes.contains_key(&failed_key(attempt));
    (1..last).filter(|attempt| is_failed(*attempt) || !is_whole(*attempt)).count()
}

impl<'a> Figures<'a> {
    /// Gathers what they are reckoned from.
    pub(crate) fn new(shared: &'a Shared, run: &'a RunRecord, health: &'a Health, now_ns: i64) -> Self {
        Self { shared, run, health, now_ns, slow: slow::of_run(shared, run, now_ns) }
    }

    /// Steps that count.
    pub(super) fn kept(&self) -> &Kept {
        // A run that is looked at only now has none yet.
        self.health.kept.as_ref().filter(|kept| kept.steps() > 0).unwrap_or(&self.slow.kept)
    }

    /// Share of the steps' time that counts.
    pub(super) fn kept_share(&self) -> f64 {
        let kept = self.kept();
        let all = kept.seconds() + kept.lost().0;
        if all > 0.0 { kept.seconds() / all } else { 1.0 }
    }

    /// From the run's start to its end or now, seconds.
    pub(super) fn wall_seconds(&self) -> f64 {
        wall_seconds(self.run, self.now_ns)
    }

    fn tokens_per_second(&self) -> Result<f64, String> {
        let past = || {
            let kept = self.kept();
            let seconds = kept.seconds() + kept.lost().0;
            self.slow.tokens.filter(|tokens| *tokens > 0.0 && seconds > 0.0).map(|tokens| tokens / seconds)
        };
        self.health
            .tokens_per_second
            .or_else(past)
            .ok_or_else(|| "no step says its tokens: `tg.step(step, tokens=...)` does".to_owned())
    }

    fn mfu(&self) -> Result<f64, String> {
        let tokens = self.tokens_per_second()?;
        let model = peak::model(self.run)
            .ok_or("nobody says how many parameters the model has: `tg.set_model(parameters=...)` does")?;
        let peak = peak::of_run(self.run).map_err(|why| why.text())?;
        let gpus = peak::gpus(self.run).ok_or("nobody says how many processes the job has")?;
        let ratio = utilization(tokens * model.flops_per_token(), f64::from(gpus), peak.flops)
            .map_err(|_why: insight::mfu::NoMfu| "one of its numbers can't be used".to_owned())?;
        if ratio > 1.0 {
            let percent = ratio * 100.0;
            return Err(format!(
                "{percent:.0} % of the peak is impossible: the number format, the device, the parameters or the \
                 number of GPUs is not what the run says"
            ));
        }
        Ok(ratio)
    }

    /// The figures.
    pub(crate) fn row(&self) -> FiguresRow {
        let no_steps = || "no step was told: `tg.step`, or spans of iterations, do".to_owned();
        let step = self.health.step_seconds.or(self.slow.step_seconds).ok_or_else(no_steps);
        let spread = self
            .health
            .spread_ratio
            .ok_or_else(|| "it takes steps of two ranks at least, of a run that is under way".to_owned());
        let kept = self.kept();
        let (lost_seconds, lost_steps) = kept.lost();
        let ettr = ettr(self.run, kept, self.now_ns).ok_or_else(no_steps);
        let wall = self.wall_seconds();
        let count = interruptions(self.run);
        let mtbi = Interruptions { count: count as f64, wall_seconds: wall }.mtbi_seconds();
        let goodput = self.slow.goodput.ok_or_else(|| {
            "no span tells where the run's time went: OpenTelemetry's spans of the trainer do".to_owned()
        });
        FiguresRow {
            step_seconds_median: Figure::of(
                "seconds",
                step,
                "median of the latest 50 steps, each as long as its slowest rank",
            ),
            step_spread_ratio: Figure::of(
                "ratio",
                spread,
                "(slowest − median) ÷ median of the ranks' own time, the step without its waits; median of the latest 20 steps",
            ),
            tokens_per_second: Figure::of(
                "tokens/s",
                self.tokens_per_second(),
                "tokens of all ranks in the latest 20 steps ÷ their time",
            ),
            mfu_ratio: Figure::of(
                "ratio",
                self.mfu(),
                "FLOPs of a token × tokens per second ÷ (GPUs × dense peak)",
            ),
            ettr_ratio: Figure::of(
                "ratio",
                ettr,
                &format!(
                    "time of steps that count ÷ time since the start, {wall:.0} s; {lost_steps} steps ({lost_seconds:.0} s) were done in vain"
                ),
            ),
            goodput_ratio: Figure::of(
                "ratio",
                goodput,
                "productive time of spans ÷ the time from the first span to the last",
            ),
            mtbi_seconds: Figure::of(
                "seconds",
                mtbi.ok_or_else(|| "it was not interrupted".to_owned()),
                &format!("time since the start ÷ {count} attempts that did not come to their end"),
            ),
        }
    }
}
