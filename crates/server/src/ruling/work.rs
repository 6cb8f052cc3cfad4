//! The thread that evaluates.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::{Labels, NANOS_PER_MILLI, Sample, stale_marker};
use promql::rules::{Moment, Outcome, Setting, Write};
use store::AppendError;

use super::keep::Keeper;
use super::{Fared, Ruled, Shown, Stood, show, stand, word};
use crate::app::Shared;
use crate::clock::now_ms;
use crate::intake::Intake;
use crate::notify::Outside;
use crate::source::{Kept, Round, StoreSource};

/// Name of this door in the counters.
const DOOR: &str = "rules";
/// What a stream calls alerts.
const TOPIC: &str = "alerts";
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
    pub(super) stood: Stood,
    pub(super) stopping: Arc<(Mutex<bool>, Condvar)>,
    pub(super) setting: Setting,
    pub(super) outside: Outside,
    pub(super) resend_ms: i64,
    pub(super) state: State,
    /// Places of the groups in the order of their turns.
    pub(super) order: Vec<usize>,
    pub(super) words: word::Words,
    pub(super) kept: Kept,
    pub(super) keeper: Keeper,
}

/// What became of a rule, until what it wrote is stored.
struct Fate {
    index: usize,
    took: Duration,
    error: Option<String>,
    has_written: bool,
}

impl Work {
    /// Evaluates what is due until all is over.
    pub(super) fn run(mut self) -> State {
        while !self.pause() {
            let Some(shared) = self.shared.upgrade() else { break };
            let mut changed = false;
            for place in 0..self.order.len() {
                changed |= self.turn(&shared, self.order[place]);
            }
            changed |= self.end_gone(&shared);
            if changed {
                self.kept.end();
                self.keeper.keep(&mut self.state.groups, &shared.metrics);
            }
            self.words.store(&shared);
            if shared.book.take_changed() {
                shared.live.topic_changed(TOPIC);
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
            if !self.group(shared, at, (*time_ms, moment)) {
                return number > 0;
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
            drop(shown);
            self.stand(shared, at);
        }
        !due.is_empty()
    }

    /// Shows how the alerts of a group stand now.
    fn stand(&self, shared: &Shared, at: usize) {
        let now = stand::of(&self.state.groups[at]);
        let mut stood = self.stood.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = stood.get_mut(at) else { return };
        if !place.is_like(&now) {
            shared.live.topic_changed(TOPIC);
        }
        *place = now;
    }

    /// Evaluates the rules of a group and stores what they write, all of it at once; says whether it came
    /// to the last one.
    fn group(&mut self, shared: &Shared, at: usize, (time_ms, moment): (i64, Moment)) -> bool {
        self.kept.begin(time_ms);
        // What the server says of itself counts even where the store, being full, does not take it.
        self.kept.show(shared.metrics.unstored.at(time_ms));
        let failure = Mutex::new(None);
        let mut fates = Vec::new();
        for index in 0..self.state.groups[at].group.len() {
            fates.extend(self.rule(shared, (at, index), (time_ms, moment), &failure));
            if self.is_over() {
                break;
            }
        }
        store_pending(shared, &self.kept, &failure);
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        for fate in fates {
            self.note(shared, at, time_ms, fate, failure.as_deref());
        }
        !self.is_over()
    }

    fn rule(
        &mut self,
        shared: &Shared,
        (at, index): (usize, usize),
        (time_ms, moment): (i64, Moment),
        failure: &Mutex<Option<String>>,
    ) -> Option<Fate> {
        let started = Instant::now();
        let over = self.is_over();
        let ruled = &mut self.state.groups[at];
        let flush = || store_pending(shared, &self.kept, failure);
        let source = Round::new(StoreSource::of(shared), &self.kept, &flush);
        let Outcome { writes, error, .. } =
            ruled.group.evaluate(index, &source, (time_ms, moment), &self.setting);
        if error.is_some() && (over || self.setting.options.cancel.is_cancelled()) {
            return None;
        }
        let has_written = !writes.is_empty();
        self.kept.write(writes);
        if moment == Moment::Now && error.is_none() {
            let notices = ruled.group.notices(index, time_ms, self.resend_ms);
            let expr = ruled.group.rules().nth(index).map(|rule| rule.expr.as_str()).unwrap_or_default();
            self.words.take(&notices, &self.outside);
            shared.notifier().tell(&notices, expr, &self.outside);
        }
        Some(Fate { index, took: started.elapsed(), error, has_written })
    }

    /// Notes how a rule fared; `failure` is why nothing could be stored.
    fn note(&mut self, shared: &Shared, at: usize, time_ms: i64, fate: Fate, failure: Option<&str>) {
        let ruled = &mut self.state.groups[at];
        let Fate { index, took, error, has_written } = fate;
        let error = error.or_else(|| failure.filter(|_| has_written).map(str::to_owned));
        let outcome = if error.is_some() { "failed" } else { "evaluated" };
        shared.metrics.rules.add(&[&ruled.group.name, outcome], 1);
        if let Some(fared) = ruled.fared.get_mut(index) {
            if let Some(error) = error.as_ref().filter(|error| fared.error.as_ref() != Some(*error)) {
                tracing::warn!(error, group = ruled.group.name, rule = index, "a rule failed");
            }
            *fared = Fared { at_ms: Some(time_ms), took, error };
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

/// Stores what rules wrote; why that failed first goes into `failure`.
fn store_pending(shared: &Shared, kept: &Kept, failure: &Mutex<Option<String>>) {
    let mut intake = Intake::own(DOOR);
    let pending = kept.take_pending();
    if pending.is_empty() {
        return;
    }
    for (labels, (time_ns, value)) in pending {
        intake.series(labels.iter(), vec![Sample { time_ns, value, step: None }]);
    }
    if let Err(error) = intake.store(shared) {
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error.to_string());
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
