//! What was logged and not taken yet: the state behind the hot path.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use model::{AttributeValue, Event, SessionEvent, TagChange};

use crate::clock::When;

/// How long no step may be open before that is told: between most steps it is much less.
const LULL: Duration = Duration::from_secs(5);

/// Steps of an array of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps<'a> {
    /// The series' last + 1 and on; within a step context, from the context's on.
    None,
    /// This one and on.
    First(i64),
    /// One for each value.
    Each(&'a [i64]),
}

/// One observation on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) series: u32,
    pub(crate) time_ns: i64,
    pub(crate) step: i64,
    pub(crate) value: f64,
}

/// A series' clock and step counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesState {
    pub(crate) last_step: Option<i64>,
    /// Time of the latest point.
    written: i64,
    /// Time of the latest point that was stamped here.
    stamped: i64,
    /// The latest explicit time and what it was spread to.
    given: (i64, i64),
}

/// A clock that was set back by more than this starts over instead of being followed by a
/// nanosecond a point.
const SET_BACK_NS: i64 = model::NANOS_PER_SECOND;

impl SeriesState {
    pub(crate) fn new(last_step: Option<i64>) -> Self {
        Self { last_step, written: i64::MIN, stamped: i64::MIN, given: (i64::MIN, i64::MIN) }
    }

    /// The step of the next point.
    pub(crate) fn step(&mut self, wanted: Option<i64>) -> i64 {
        let step = wanted.unwrap_or_else(|| self.last_step.map_or(0, |last| last.wrapping_add(1)));
        self.last_step = Some(step);
        step
    }

    /// The time of the next point. Stamped ones never go back within [`SET_BACK_NS`]; given ones are
    /// kept as they are; equal ones in a row are spread by a nanosecond.
    pub(crate) fn time(&mut self, now_on_grid: i64, given: Option<i64>) -> i64 {
        let mut time_ns = match given {
            Some(given) if given == self.given.0 => self.given.1.saturating_add(1),
            Some(given) => given,
            None if self.stamped >= now_on_grid && self.stamped - now_on_grid < SET_BACK_NS => {
                self.stamped + 1
            }
            None => now_on_grid,
        };
        if time_ns == self.written {
            time_ns = time_ns.saturating_add(1);
        }
        match given {
            Some(given) => self.given = (given, time_ns),
            None => self.stamped = time_ns,
        }
        self.written = time_ns;
        time_ns
    }
}

/// What is to be said of the run beside its points.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) sessions: Vec<SessionEvent>,
    /// Key, value, and whether an existing fact stays.
    pub(crate) attributes: Vec<(String, AttributeValue, bool)>,
    pub(crate) tags: Vec<TagChange>,
    pub(crate) description: Option<String>,
    pub(crate) events: Vec<Event>,
    /// Count and example by reason.
    pub(crate) dropped: BTreeMap<String, (u64, String)>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.attributes.is_empty()
            && self.tags.is_empty()
            && self.description.is_none()
            && self.events.is_empty()
            && self.dropped.is_empty()
    }
}

/// Behind one lock that the hot path takes.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) points: Vec<Point>,
    pub(crate) series: Vec<SeriesState>,
    pub(crate) step_context: Option<i64>,
    /// The last step that was ended, and when.
    pub(crate) step_ended: Option<(i64, Instant)>,
    /// The series that says that no step is open, where that was told last.
    pub(crate) between: Option<u32>,
    pub(crate) pending: Pending,
    pub(crate) logged: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    /// The delivery thread was woken for these points already.
    pub(crate) is_woken: bool,
    pub(crate) is_closed: bool,
    /// Keys of the events that were told.
    pub(crate) told_events: BTreeSet<String>,
}

impl Log {
    /// A step is open from here on.
    pub(crate) fn begin_step(&mut self, step: i64) {
        if let Some(series) = self.between.take() {
            self.push(series, 0.0, Some(step), When::Now.read());
        }
        self.step_context = Some(step);
    }

    /// No step is open any more.
    pub(crate) fn end_step(&mut self) {
        if let Some(step) = self.step_context.take() {
            self.step_ended = Some((step, Instant::now()));
        }
    }

    /// The step after which none was open for a while, if that is still to be told.
    pub(crate) fn untold_lull(&self) -> Option<i64> {
        let (step, ended) = self.step_ended?;
        let is_new = self.step_context.is_none() && self.between.is_none() && !self.is_closed;
        (is_new && ended.elapsed() >= LULL).then_some(step)
    }

    /// Adds a point of a series that is there.
    pub(crate) fn push(&mut self, series: u32, value: f64, step: Option<i64>, time: (i64, Option<i64>)) {
        let context = self.step_context;
        let Some(state) = self.series.get_mut(series as usize) else { return };
        let step = state.step(step.or(context));
        let time_ns = state.time(time.0, time.1);
        self.points.push(Point { series, time_ns, step, value });
        self.logged += 1;
    }

    /// Counts points that come to nothing, to be told to the server too.
    pub(crate) fn drop_points(&mut self, reason: &str, count: u64, example: &str) {
        let sum = self.dropped.entry(reason.to_owned()).or_default();
        *sum = sum.saturating_add(count);
        let told = self.pending.dropped.entry(reason.to_owned()).or_default();
        told.0 = told.0.saturating_add(count);
        if told.1.is_empty() {
            example.chars().take(200).collect::<String>().clone_into(&mut told.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::NANOS_PER_MILLI;

    use super::*;

    const T: i64 = 1_800_000_000_000 * NANOS_PER_MILLI;

    #[test]
    fn a_time_without_a_step_is_told_once_and_ends_with_the_next() {
        let mut log = Log { series: vec![SeriesState::new(None)], ..Log::default() };
        log.step_ended = Instant::now().checked_sub(LULL).map(|ended| (7, ended));
        assert_eq!(log.untold_lull(), Some(7));
        log.between = Some(0);
        assert_eq!(log.untold_lull(), None, "it was told");
        log.begin_step(8);
        log.begin_step(8);
        let told: Vec<(f64, i64)> = log.points.iter().map(|point| (point.value, point.step)).collect();
        assert_eq!(told, [(0.0, 8)]);
        assert_eq!(log.untold_lull(), None, "a step is open");
        log.end_step();
        assert_eq!(log.untold_lull(), None, "not for long");
        assert_eq!(Log::default().untold_lull(), None, "there was no step yet");
    }

    #[test]
    fn steps_go_on_from_the_last_whatever_it_was() {
        let mut state = SeriesState::new(None);
        assert_eq!([None, None, Some(10), None, Some(3), None].map(|s| state.step(s)), [0, 1, 10, 11, 3, 4]);
        assert_eq!(SeriesState::new(Some(41)).step(None), 42);
    }

    #[test]
    fn tight_loop_stays_inside_its_second() {
        let mut state = SeriesState::new(None);
        let times: Vec<i64> =
            (0..100_000).map(|n| state.time(T + n / 5000 * NANOS_PER_MILLI, None)).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
        assert!(times[99_999] - T < model::NANOS_PER_SECOND);
    }

    #[test]
    fn given_times_are_kept_and_only_equal_ones_spread() {
        let mut state = SeriesState::new(None);
        let given = [T, T, T - 50, T, T + 9].map(|t| state.time(0, Some(t)));
        assert_eq!(given, [T, T + 1, T - 50, T, T + 9]);
        assert_eq!(state.time(T + 9, None), T + 10, "an equal stamp makes way");
        assert_eq!(state.time(T - 5, None), T + 11, "a stamp does not go back");
        assert_eq!(state.time(T, Some(T + 11)), T + 12);
    }

    #[test]
    fn given_future_does_not_drag_the_clock_along() {
        let mut state = SeriesState::new(None);
        state.time(T, Some(T + 3600 * model::NANOS_PER_SECOND));
        assert_eq!(state.time(T, None), T);
    }

    #[test]
    fn clock_set_back_far_is_followed() {
        let mut state = SeriesState::new(None);
        state.time(T, None);
        let back = T - 3600 * model::NANOS_PER_SECOND;
        assert_eq!([state.time(back, None), state.time(back, None)], [back, back + 1]);
    }
}
