//! The step axis of what has only times: a point belongs to the last iteration that had ended by then.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use model::RunId;
use store::{SeriesId, SeriesInfo, Store};

use super::STEP_SERIES;
use crate::app::Shared;

/// Runs whose iterations are remembered.
const REMEMBERED_MAX: usize = 16;

/// When the iterations of a run ended, in order of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StepLine {
    ends_ns: Vec<i64>,
    steps: Vec<i64>,
}

impl StepLine {
    /// The iteration that a point at a time belongs to; none before the first one ended.
    pub(crate) fn at(&self, time_ns: i64) -> Option<i64> {
        let after = self.ends_ns.partition_point(|end_ns| *end_ns <= time_ns);
        after.checked_sub(1).map(|at| self.steps[at])
    }

    /// The least and the greatest iteration of the points between two times.
    pub(crate) fn between(&self, from_ns: i64, to_ns: i64) -> Option<(i64, i64)> {
        let first = self.ends_ns.partition_point(|end_ns| *end_ns <= from_ns).saturating_sub(1);
        let after = self.ends_ns.partition_point(|end_ns| *end_ns <= to_ns);
        let steps = self.steps.get(first..after)?.iter().copied();
        steps.clone().min().zip(steps.max())
    }
}

/// Whether the points of a series have times only, and belong to what the run's processes measured.
fn is_timed(series: &SeriesInfo) -> bool {
    series.max_step.is_none() && series.labels.get("job").is_some() && series.labels.get("scale").is_none()
}

/// Iterations of runs that were asked for lately.
#[derive(Debug, Default)]
pub(crate) struct StepLines(Mutex<HashMap<RunId, Remembered>>);

/// The iterations of a run, and the series that told them, as it was.
#[derive(Debug, Clone)]
struct Remembered {
    series: SeriesId,
    points: u64,
    line: Arc<StepLine>,
}

impl StepLines {
    /// The iterations that place a series' points; none where they have steps of their own, or the run
    /// tells no iteration.
    pub(crate) fn of(&self, shared: &Shared, run: RunId, series: &SeriesInfo) -> Option<Arc<StepLine>> {
        let has_steps = || shared.board.facts(&shared.store, run).last_step.is_some();
        (is_timed(series) && has_steps()).then(|| self.line(&shared.store, run)).flatten()
    }

    fn line(&self, store: &Store, run: RunId) -> Option<Arc<StepLine>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned();
        if let Some(known) = known
            && store.series(known.series).is_some_and(|series| series.points == known.points)
        {
            return Some(known.line);
        }
        let all = store.run_series(run);
        let told = all.iter().filter(|series| *series.display == *STEP_SERIES && series.max_step.is_some());
        let told = told.filter(|series| series.labels.get("scale").is_none());
        let series = told.max_by_key(|series| series.points)?;
        let mut line = StepLine::default();
        let read = store.read(series.id, i64::MIN, i64::MAX, &mut |chunk| {
            let Ok(samples) = chunk.samples() else { return ControlFlow::Break(()) };
            for sample in samples {
                if let Some(step) = sample.step {
                    line.ends_ns.push(sample.time_ns);
                    line.steps.push(step);
                }
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            tracing::error!(%error, "cannot read the iterations of a run");
            return None;
        }
        let line = Arc::new(line);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert(run, Remembered { series: series.id, points: series.points, line: Arc::clone(&line) });
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_belongs_to_the_last_iteration_that_had_ended() {
        // Restarted from iteration 2 after 3.
        let line = StepLine { ends_ns: vec![10, 20, 30, 50, 60], steps: vec![1, 2, 3, 3, 4] };
        assert_eq!(
            [9, 10, 19, 20, 45, 1_000].map(|at| line.at(at)),
            [None, Some(1), Some(1), Some(2), Some(3), Some(4)]
        );
        assert_eq!(line.between(0, 9), None);
        assert_eq!(line.between(0, 25), Some((1, 2)));
        assert_eq!(line.between(25, 29), Some((2, 2)));
        assert_eq!(line.between(25, 99), Some((2, 4)));
        assert_eq!(StepLine::default().at(5), None);
    }
}
