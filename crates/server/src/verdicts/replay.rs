//! What the store holds of a run's steps, read once when its watch begins: the time of its steps that count, and the
//! latest steps, with which the detector begins.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{NANOS_PER_SECOND, RunRecord, Sample};
use store::{SeriesInfo, Store};

use super::inbox::{Mail, Point, Sign, What, rank_of, sign_of};
use super::kept::Kept;
use super::places::Seats;
use super::watch::Watch;
use crate::app::Shared;
use crate::otlp::has_telemetry;

/// Steps that are read for the detector at the start of a server: enough to go on with what was told; fewer where a
/// run has many ranks.
const STEPS: usize = 150;
const STEPS_MIN: usize = 60;
const POINTS: usize = 1 << 21;
/// Steps that are read of a run that comes to life later, such as one whose spool was sent first.
const CAUGHT_UP_STEPS: usize = 2_000;
const CAUGHT_UP_POINTS: usize = 1 << 20;
/// Most points that are.
const POINTS_MAX: usize = 8_000_000;
/// An attempt that is younger than so many steps and seconds may still warm up.
const WARM_UP_STEPS: f64 = 25.0;
const WARM_UP_SECONDS: f64 = 60.0;

/// A watch of a run, with what the store holds of its steps, and with what came now. Of a rank that sends again what
/// was not acknowledged the store may lack steps that it has of others, so that both are taken as one.
pub(super) fn watch(
    shared: &Shared,
    record: &Arc<RunRecord>,
    mut came: Mail,
    seats: &Arc<Seats>,
    now_ns: i64,
) -> Watch {
    let mut watch = Watch::new(record.id(), Arc::clone(seats), now_ns);
    watch.meet(record);
    let all = shared.store.run_series(record.id());
    let series: Vec<(What, u32, SeriesInfo)> = all.iter().filter_map(of_step).collect();
    if series.is_empty() {
        watch.take(came, now_ns);
        return watch;
    }
    let first = came.points.iter().map(|point| point.step).min();
    // What spans tell of the parts of steps is not stored as series: steps without their waits would accuse
    // nobody, or the wrong ones.
    let is_whole = !has_telemetry(record) || series.iter().any(|(what, ..)| *what == What::Wait);
    let mut points =
        if is_whole { stored(&shared.store, record, &series, first.is_some()) } else { Vec::new() };
    let is_behind = first.is_none_or(|first| points.iter().any(|point| point.step < first));
    points.append(&mut came.points);
    let started_ns = record.attempts.last().map_or(i64::MAX, |attempt| attempt.started_ns);
    let age_seconds = now_ns.saturating_sub(started_ns) as f64 / NANOS_PER_SECOND as f64;
    if age_seconds > WARM_UP_SECONDS + WARM_UP_STEPS * step_seconds(&points) {
        watch.skip_warm_up();
    }
    let mut signs: Vec<_> = all.iter().filter_map(sign).collect();
    signs.append(&mut came.signs);
    watch.take(Mail { points, signs, ..Mail::default() }, now_ns);
    watch.replayed(kept_of(&shared.store, &series), is_behind);
    watch
}

/// The latest points of a run's steps as the store has them: those of its latest attempt, and of a step that was done
/// again what was told last.
fn stored(
    store: &Store,
    record: &RunRecord,
    series: &[(What, u32, SeriesInfo)],
    is_catching_up: bool,
) -> Vec<Point> {
    let steps = if is_catching_up {
        (CAUGHT_UP_POINTS / series.len()).clamp(STEPS_MIN, CAUGHT_UP_STEPS)
    } else {
        (POINTS / series.len()).clamp(STEPS_MIN, STEPS)
    };
    let since = since(record);
    let mut points = Vec::new();
    for (what, rank, info) in series {
        let Some(since_ns) = since.as_ref().map_or(Some(i64::MIN), |since| since.get(rank).copied()) else {
            continue;
        };
        let from_ns = info.time_ns.1.saturating_sub(lately_ns(info, steps)).max(since_ns);
        let mut of_series = Vec::new();
        each(store, info, from_ns, &mut |sample| {
            if let Some(step) = sample.step.filter(|_| what.can_be(sample.value)) {
                let (what, rank) = (*what, *rank);
                let (time_ns, value) = (sample.time_ns, sample.value);
                of_series.push(Point { what, rank, step, time_ns, value, adds: false });
            }
        });
        let mut next = None;
        let is_last = |point: &Point| {
            let is_last = next.is_none_or(|next| point.step < next);
            next = if is_last { Some(point.step) } else { next };
            is_last
        };
        let mut last: Vec<Point> = of_series.into_iter().rev().filter(is_last).collect();
        last.reverse();
        points.append(&mut last);
        if points.len() > POINTS_MAX {
            break;
        }
    }
    points
}

/// Since when each rank is in the latest attempt, by its own clock; none where that is the first.
fn since(record: &RunRecord) -> Option<HashMap<u32, i64>> {
    let attempt = record.attempts.last().filter(|_| record.attempts.len() > 1)?.number;
    let mut since = HashMap::new();
    for session in record.sessions.iter().filter(|session| session.attempt == attempt).rev() {
        since.insert(session.facts.rank.unwrap_or(0), session.started_ns);
    }
    Some(since)
}

/// What a rank told last beside its steps.
fn sign(info: &SeriesInfo) -> Option<(u32, i64, Sign)> {
    let sign = Some(info.last).filter(|last| last.is_finite());
    let sign = sign.and_then(|last| sign_of(&info.labels, &info.display, last))?;
    Some((rank_of(&info.labels)?, info.time_ns.1, sign))
}

/// What part of which rank's steps a series is.
pub(super) fn of_step(info: &SeriesInfo) -> Option<(What, u32, SeriesInfo)> {
    let what = What::named(&info.display).filter(|_| info.labels.get("scale").is_none())?;
    Some((what, rank_of(&info.labels)?, info.clone()))
}

/// How long ago the latest steps of a series began, nanoseconds.
fn lately_ns(info: &SeriesInfo, steps: usize) -> i64 {
    let span_ns = info.time_ns.1.saturating_sub(info.time_ns.0) as f64;
    (span_ns / info.points.max(1) as f64 * steps as f64) as i64
}

fn step_seconds(points: &[Point]) -> f64 {
    let mut all: Vec<f64> =
        points.iter().filter(|point| point.what == What::Step).map(|point| point.value).collect();
    let half = all.len() / 2;
    if all.is_empty() { 0.0 } else { *all.select_nth_unstable_by(half, f64::total_cmp).1 }
}

/// The time of the steps that count, as the first of the ranks tells it.
pub(super) fn kept_of(store: &Store, series: &[(What, u32, SeriesInfo)]) -> Kept {
    let mut kept = Kept::default();
    let of_steps = series.iter().filter(|(what, _, _)| *what == What::Step);
    if let Some((_, _, info)) = of_steps.min_by_key(|(_, rank, _)| *rank) {
        each(store, info, i64::MIN, &mut |sample| {
            if let Some(step) = sample.step.filter(|_| What::Step.can_be(sample.value)) {
                kept.push(step, sample.value);
            }
        });
    }
    kept
}

/// Hands the samples of a series over, in order of time.
pub(super) fn each(store: &Store, info: &SeriesInfo, from_ns: i64, take: &mut dyn FnMut(&Sample)) {
    let read = store.read(info.id, from_ns, i64::MAX, &mut |chunk| {
        match chunk.samples() {
            Ok(samples) => samples.iter().filter(|sample| sample.time_ns >= from_ns).for_each(&mut *take),
            Err(error) => tracing::warn!(%error, "points of a run's steps can't be read"),
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        tracing::warn!(%error, "points of a run's steps can't be read");
    }
}
