//! What runs tell of their steps, taken aside as it is stored: every point of a step's time is looked at once, where
//! it comes in, and never read back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Labels, RunId, SeriesIdentity, SessionEvent, Span};
use semconv::spans::Phase;
use store::SeriesBatch;

use crate::clock::now_ns;
use crate::otlp::is_iteration;

/// Most points and signs that wait of one run, and of all. A spool of days that is adopted has more: its latest matter.
const OF_RUN_MAX: usize = 1 << 20;
const OF_ALL_MAX: usize = 1 << 22;
/// Longest time that a step, and most tokens that a rank of it, can have; more is no measurement.
const SECONDS_MAX: f64 = 1e8;
const TOKENS_MAX: f64 = 1e15;

/// What a point is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A whole step.
    Step,
    /// Its parts.
    Wait,
    Data,
    Checkpoint,
    Eval,
    /// Tokens of this rank in it.
    Tokens,
}

impl What {
    /// What a series is of, by its name as it was logged.
    pub(super) fn named(display: &str) -> Option<Self> {
        let rest = display.strip_prefix("train_")?;
        Some(match rest {
            "step_seconds" => Self::Step,
            "step_wait_seconds" => Self::Wait,
            "step_data_seconds" => Self::Data,
            "step_checkpoint_seconds" => Self::Checkpoint,
            "step_eval_seconds" => Self::Eval,
            "step_tokens" => Self::Tokens,
            _ => return None,
        })
    }

    /// Whether a number can be a measurement of it: one that can't would spoil every sum that it is in.
    pub(super) fn can_be(self, value: f64) -> bool {
        let max = if self == Self::Tokens { TOKENS_MAX } else { SECONDS_MAX };
        (0.0..=max).contains(&value)
    }
}

/// The last collective that a rank entered, and the last that it got through.
const ENTERED: &str = "train_collective_sequence";
const COMPLETED: &str = "train_collective_completed";
/// What a rank is in: 0 nothing but its step, 1 a checkpoint, 2 an evaluation.
const PHASE: &str = "train_step_phase";

/// One point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) what: What,
    pub(super) rank: u32,
    pub(super) step: i64,
    pub(super) time_ns: i64,
    pub(super) value: f64,
    /// Whether it adds to what a step has of it already, as spans of one phase do.
    pub(super) adds: bool,
}

/// What else a rank tells of itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sign {
    /// By how much this server's clock is ahead of its own, nanoseconds, and how long that took to get here.
    Clock { ahead_ns: i64 },
    /// The number of the last collective that it entered, or completed.
    Collective { group: String, number: i64, is_completed: bool },
    /// What it is in.
    Phase(u8),
}

/// Points and signs of a run on their way.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) points: Vec<Point>,
    /// Rank, time by its own clock, what.
    pub(super) signs: Vec<(u32, i64, Sign)>,
    /// Points that came and are not among these, since there were too many.
    pub(super) missed: u64,
}

/// What was told of runs.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<(RunId, Mail)>);

impl Told {
    /// What a process of one run tells, with its sign of life if it gave one.
    pub(crate) fn of_run(run: RunId, series: &[SeriesBatch], session: Option<&SessionEvent>) -> Self {
        let mut mail = Mail::default();
        for one in series {
            take(one, &mut mail);
        }
        if let Some(session) = session {
            let ahead_ns = now_ns().saturating_sub(session.time_ns);
            let rank = session.facts.rank.unwrap_or(0);
            mail.signs.push((rank, session.time_ns, Sign::Clock { ahead_ns }));
        }
        Self(if mail.is_empty() { Vec::new() } else { vec![(run, mail)] })
    }

    /// What spans tell of the parts of iterations; the iterations themselves are series already.
    pub(crate) fn of_spans(series: &[SeriesBatch], spans: &[Span]) -> Self {
        let mut all: HashMap<RunId, Mail> = HashMap::new();
        for one in series {
            if let Some(run) = run_of(&one.identity.labels) {
                take(one, all.entry(run).or_default());
            }
        }
        // A part says no number: it is of the iteration of its process that it lies in.
        let mut iterations: HashMap<(RunId, u32), Vec<&Span>> = HashMap::new();
        for span in spans.iter().filter(|span| is_iteration(span)) {
            if let (Some(run), Some(rank)) = (span.run, span.rank) {
                iterations.entry((run, rank)).or_default().push(span);
            }
        }
        for of_rank in iterations.values_mut() {
            of_rank.sort_by_key(|span| span.start_ns);
        }
        let around = |span: &Span| {
            let of_rank = iterations.get(&(span.run?, span.rank?))?;
            let after = of_rank.partition_point(|iteration| iteration.start_ns <= span.start_ns);
            let iteration = of_rank.get(after.checked_sub(1)?)?;
            iteration.iteration.filter(|_| span.end_ns <= iteration.end_ns)
        };
        for span in spans {
            if let Some((run, point)) = part_of(span, span.iteration.or_else(|| around(span))) {
                all.entry(run).or_default().points.push(point);
            }
        }
        Self(all.into_iter().filter(|(_, mail)| !mail.is_empty()).collect())
    }
}

fn run_of(labels: &Labels) -> Option<RunId> {
    RunId::parse(labels.get("run_id")?)
}

/// The rank that a series is of: the only one where none is named.
pub(super) fn rank_of(labels: &Labels) -> Option<u32> {
    labels.get("rank").map_or(Some(0), |rank| rank.parse().ok())
}

fn take(series: &SeriesBatch, into: &mut Mail) {
    let SeriesIdentity { labels, display } = &series.identity;
    if !display.starts_with("train_") {
        return;
    }
    let Some(rank) = rank_of(labels).filter(|_| labels.get("scale").is_none()) else { return };
    if let Some(what) = What::named(display) {
        into.points.extend(series.samples.iter().filter_map(|sample| {
            let (step, value, time_ns) = (sample.step?, sample.value, sample.time_ns);
            what.can_be(value).then_some(Point { what, rank, step, time_ns, value, adds: false })
        }));
        return;
    }
    let finite = series.samples.iter().filter(|sample| sample.value.is_finite());
    if let Some(last) = finite.max_by_key(|sample| sample.time_ns)
        && let Some(sign) = sign_of(labels, display, last.value)
    {
        into.signs.push((rank, last.time_ns, sign));
    }
}

/// What the latest value of a series says beside the steps.
pub(super) fn sign_of(labels: &Labels, display: &str, value: f64) -> Option<Sign> {
    match display {
        PHASE => Some(Sign::Phase(value as u8)),
        ENTERED | COMPLETED => Some(Sign::Collective {
            group: labels.get("group").unwrap_or_default().to_owned(),
            number: value as i64,
            is_completed: display == COMPLETED,
        }),
        _ => None,
    }
}

/// The part of an iteration that a span is.
fn part_of(span: &Span, iteration: Option<i64>) -> Option<(RunId, Point)> {
    let (run, step, rank) = (span.run?, iteration?, span.rank?);
    if is_iteration(span) {
        return None;
    }
    let (_, phase) = semconv::spans::span(&span.name)?;
    let what = match phase {
        Phase::Communication => What::Wait,
        Phase::DataLoading => What::Data,
        Phase::Checkpoint => What::Checkpoint,
        Phase::Evaluation => What::Eval,
        _ => return None,
    };
    let value = span.end_ns.saturating_sub(span.start_ns) as f64 / 1e9;
    what.can_be(value).then_some((run, Point { what, rank, step, time_ns: span.end_ns, value, adds: true }))
}

impl Mail {
    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.signs.is_empty()
    }
}

/// What waits to be looked at.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    runs: HashMap<RunId, Mail>,
    /// Points and signs of all runs.
    all: usize,
    missed: Missed,
}

/// Points that were never looked at.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Missed {
    /// Of a run that told too many at once.
    pub(super) of_run: u64,
    /// Of runs that together told too many at once.
    pub(super) of_all: u64,
}

impl Waiting {
    fn add(&mut self, run: RunId, mut mail: Mail) {
        let room = OF_ALL_MAX.saturating_sub(self.all);
        let of_run = self.runs.entry(run).or_default();
        let before = of_run.points.len() + of_run.signs.len();
        let beyond = mail.points.len().saturating_sub(room);
        self.missed.of_all += beyond as u64;
        mail.points.drain(..beyond);
        mail.signs.truncate(room - mail.points.len());
        of_run.points.append(&mut mail.points);
        of_run.signs.append(&mut mail.signs);
        let old = of_run.points.len().saturating_sub(OF_RUN_MAX);
        self.missed.of_run += old as u64;
        of_run.points.drain(..old);
        of_run.signs.drain(..of_run.signs.len().saturating_sub(OF_RUN_MAX));
        of_run.missed += (beyond + old) as u64;
        self.all = self.all - before + of_run.points.len() + of_run.signs.len();
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is stored now.
    pub(super) fn put(&self, told: Told) {
        if told.0.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        for (run, mail) in told.0 {
            waiting.add(run, mail);
        }
    }

    /// Everything that waits, by run.
    pub(super) fn empty(&self) -> HashMap<RunId, Mail> {
        let mut waiting = self.lock();
        waiting.all = 0;
        std::mem::take(&mut waiting.runs)
    }

    /// What was never looked at since the start.
    pub(super) fn missed(&self) -> Missed {
        self.lock().missed
    }
}

#[cfg(test)]
mod tests {
    use model::{RunPath, Sample, series_identity};

    use super::*;

    #[test]
    fn of_a_run_that_tells_too_much_at_once_the_latest_waits_and_the_rest_is_counted() {
        let run = RunPath { run: "r".into(), ..RunPath::default() }.id();
        let mail = |from: i64, count: usize| {
            let point =
                |step| Point { what: What::Step, rank: 0, step, time_ns: step, value: 1.0, adds: false };
            let points = (from..).take(count).map(point).collect();
            Told(vec![(run, Mail { points, ..Mail::default() })])
        };
        let inbox = Inbox::default();
        inbox.put(mail(0, OF_RUN_MAX));
        inbox.put(mail(OF_RUN_MAX as i64, 10));
        let came = inbox.empty().remove(&run).unwrap();
        assert_eq!((came.points.len(), came.points[0].step, came.missed), (OF_RUN_MAX, 10, 10));
        assert_eq!((inbox.missed().of_run, inbox.missed().of_all), (10, 0));
        inbox.put(mail(0, 5));
        assert_eq!(inbox.empty()[&run].missed, 0);
    }

    #[test]
    fn what_can_be_no_measurement_is_left_out() {
        let path = RunPath { run: "r".into(), ..RunPath::default() };
        let series = |name: &str, values: &[f64]| SeriesBatch {
            identity: series_identity(&path, name, "", &[("rank".to_owned(), "3".to_owned())]),
            samples: (0..)
                .zip(values)
                .map(|(n, &value)| Sample { time_ns: n, value, step: Some(n) })
                .collect(),
        };
        let times = [0.0, 1.5, -1e-9, f64::NAN, f64::INFINITY, 1e300, f64::from(f32::MAX), 2.5];
        let told = Told::of_run(
            path.id(),
            &[series("train_step_seconds", &times), series("train_step_tokens", &[4_096.0, -1.0, 1e300])],
            None,
        );
        let points = &told.0[0].1.points;
        let all: Vec<(What, f64)> = points.iter().map(|point| (point.what, point.value)).collect();
        assert_eq!(all, [(What::Step, 0.0), (What::Step, 1.5), (What::Step, 2.5), (What::Tokens, 4_096.0)]);
    }
}
