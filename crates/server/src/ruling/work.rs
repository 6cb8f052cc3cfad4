//! The thread that evaluates.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::{Labels, NANOS_PER_MILLI, Sample, stale_marker};
use promql::rules::{Moment, Outcome, Setting, Write};
use store::AppendError;

use super::{Fared, Ruled, Shown, keep, show};
use crate::app::Shared;
use crate::clock::now_ms;
use crate::intake::Intake;
use crate::notify::Outside;
use crate::source::StoreSource;

/// Name of this door in the counters.
const DOOR: &str = "rules";
/// Most evaluations that a group makes up for after a stop.
const MISSED_MAX: usize = 6_000;
/// How often it is looked whether a group is due, at least: the clock may be set.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// And at most.
const PERIOD_MIN: Duration = Duration::from_millis(5);
/// How long a group may make up for missed evaluations before the others have their turn.
const TURN_MAX: Duration = Duration::from_secs(1);

/// All groups, in force.
#[derive(Default)]
pub(super) struct State {
    pub(super) groups: Vec<Ruled>,
    /// Series of groups that are no more, which have yet to get a marker.
    pub(super) gone: Vec<Labels>,
}

pub(super) struct Work {
    pub(super) shared: Weak<Shared>,
    pub(super) shown: Shown,
    pub(super) stopping: Arc<(Mutex<bool>, Condvar)>,
    pub(super) setting: Setting,
    pub(super) outside: Outside,
    pub(super) resend_ms: i64,
    pub(super) state: State,
}

impl Work {
    /// Evaluates what is due until all is over.
    pub(super) fn run(mut self) -> State {
        while !self.pause() {
            let Some(shared) = self.shared.upgrade() else { break };
            let mut changed = false;
            for at in 0..self.state.groups.len() {
                changed |= self.turn(&shared, at);
            }
            changed |= self.end_gone(&shared);
            if changed {
                keep::keep(&shared.config.data_dir, &self.state.groups);
            }
        }
        self.state
    }

    /// Waits until a group is due; says whether all is over.
    fn pause(&self) -> bool {
        let now_ms = now_ms();
        let next = self.state.groups.iter().map(|ruled| ruled.group.next_ms()).min();
        let wait =
            next.map_or(PERIOD_MAX, |next| Duration::from_millis((next - now_ms).max(0).unsigned_abs()));
        let (over, told) = &*self.stopping;
        let over = over.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = wait.clamp(PERIOD_MIN, PERIOD_MAX);
        let (over, _) =
            told.wait_timeout_while(over, wait, |over| !*over).unwrap_or_else(PoisonError::into_inner);
        *over
    }

    fn is_over(&self) -> bool {
        self.setting.options.cancel.is_cancelled()
    }

    /// Evaluates a group for every time at which it is due; says whether it was.
    fn turn(&mut self, shared: &Shared, at: usize) -> bool {
        let Some(ruled) = self.state.groups.get(at) else { return false };
        let due = ruled.group.due(now_ms(), MISSED_MAX);
        let begun = Instant::now();
        for (number, time_ms) in due.iter().enumerate() {
            let moment = if number + 1 == due.len() { Moment::Now } else { Moment::Missed };
            if moment == Moment::Missed && begun.elapsed() > TURN_MAX {
                break;
            }
            let started = Instant::now();
            for index in 0..self.state.groups[at].group.len() {
                self.rule(shared, (at, index), (*time_ms, moment));
                if self.is_over() {
                    return number > 0;
                }
            }
            self.end_leftovers(shared, at, *time_ms);
            let ruled = &mut self.state.groups[at];
            ruled.group.done(*time_ms);
            (ruled.last_ms, ruled.took) = (Some(*time_ms), started.elapsed());
        }
        if !due.is_empty() {
            let value = show::show(&self.state.groups[at]);
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = shown.get_mut(at) {
                *place = value;
            }
        }
        !due.is_empty()
    }

    fn rule(&mut self, shared: &Shared, (at, index): (usize, usize), (time_ms, moment): (i64, Moment)) {
        let started = Instant::now();
        let over = self.is_over();
        let ruled = &mut self.state.groups[at];
        let source = StoreSource::of(shared);
        let Outcome { writes, error, .. } =
            ruled.group.evaluate(index, &source, (time_ms, moment), &self.setting);
        if error.is_some() && (over || self.setting.options.cancel.is_cancelled()) {
            return;
        }
        let stored = store(shared, &writes);
        if moment == Moment::Now && error.is_none() {
            let notices = ruled.group.notices(index, time_ms, self.resend_ms);
            let expr = ruled.group.rules().nth(index).map(|rule| rule.expr.as_str()).unwrap_or_default();
            shared.notifier().tell(notices, expr, &self.outside);
        }
        let error = error.or_else(|| stored.err().map(|error| error.to_string()));
        let outcome = if error.is_some() { "failed" } else { "evaluated" };
        shared.metrics.rules.add(&[&ruled.group.name, outcome], 1);
        if let Some(fared) = ruled.fared.get_mut(index) {
            if let Some(error) = error.as_ref().filter(|error| fared.error.as_ref() != Some(*error)) {
                tracing::warn!(error, group = ruled.group.name, rule = index, "a rule failed");
            }
            *fared = Fared { at_ms: Some(time_ms), took: started.elapsed(), error };
        }
    }

    /// Ends the series of rules that a group no longer has, unless another group writes them now.
    fn end_leftovers(&mut self, shared: &Shared, at: usize, time_ms: i64) {
        let mut ended = self.state.groups[at].group.leftovers(time_ms);
        ended.retain(|write| !self.writes(&write.labels));
        if let Err(error) = store(shared, &ended) {
            tracing::warn!(%error, series = ended.len(), "series of rules that are gone are not ended");
        }
    }

    /// Ends the series of groups that are no more.
    fn end_gone(&mut self, shared: &Shared) -> bool {
        let gone = std::mem::take(&mut self.state.gone);
        let time_ms = now_ms();
        let ended = gone.iter().filter(|labels| !self.writes(labels));
        let ended: Vec<Write> =
            ended.map(|labels| Write { labels: labels.clone(), time_ms, value: stale_marker() }).collect();
        match store(shared, &ended) {
            Ok(()) => !gone.is_empty(),
            Err(_busy_or_full) => {
                self.state.gone = gone;
                false
            }
        }
    }

    fn writes(&self, labels: &Labels) -> bool {
        self.state.groups.iter().any(|ruled| ruled.group.writes(labels))
    }
}

fn store(shared: &Shared, writes: &[Write]) -> Result<(), AppendError> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut intake = Intake::own(DOOR);
    for write in writes {
        let time_ns = write.time_ms.saturating_mul(NANOS_PER_MILLI);
        intake.series(write.labels.iter(), vec![Sample { time_ns, value: write.value, step: None }]);
    }
    intake.store(shared).map(drop)
}
