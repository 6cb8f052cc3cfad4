//! Where the time of a run's steps, and of the run, went.

use std::collections::BTreeMap;

use insight::breakdown::{Columns, Iteration, PHASES, Row, UNATTRIBUTED, merge, of_rank};
use insight::goodput::{KINDS, goodput};
use model::SpanAsk;
use semconv::spans::{Phase, switch_for};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Lane, NO_EXPORT, Of, STEPS_SWITCH, Slices, names_of};
use crate::api::Params;
use crate::clock::to_ms;
use crate::error::ApiError;
use crate::otlp::ITERATION_SPANS;

/// Buckets unless asked otherwise, and at most.
const BUCKETS: usize = 500;
const BUCKETS_MAX: usize = 2_000;
/// Ranks that a mean is of; more are told by a part of them.
const RANKS_READ_MAX: usize = 16;
/// Iterations of all ranks that are read; of more, some of every bucket are.
const ITERATIONS_READ_MAX: usize = 20_000;
/// Spans that are read for one range of iterations.
const SPANS_READ_MAX: usize = 400_000;
/// Ranks whose spans goodput is reckoned from.
const GOODPUT_RANKS_MAX: usize = 4;
/// Iterations of a rank up to which goodput is reckoned from each; beyond, from longer spans alone.
const GOODPUT_ITERATIONS_MAX: i64 = 50_000;

/// Where the time of steps went.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BreakdownAnswer {
    run_id: String,
    part: &'static str,
    phases: [&'static str; PHASES.len()],
    /// Ranks that can be asked for.
    ranks: Vec<u32>,
    /// The rank that was asked for; null is the mean over ranks.
    rank: Option<u32>,
    /// The ranks that were read.
    ranks_read: Vec<u32>,
    /// An iteration, or the first of a bucket.
    x: Vec<i64>,
    /// Iterations in each.
    count: Vec<u64>,
    /// Mean wall of an iteration.
    wall_seconds: Vec<f64>,
    /// What of it went to each phase.
    seconds: BTreeMap<&'static str, Vec<f64>>,
    /// Iterations of all buckets.
    iterations: u64,
    /// The largest difference of the phases' sum from the wall, as a ratio of the wall.
    sum_error_ratio: f64,
    /// Whether only some iterations of each bucket were read.
    sampled: bool,
    /// The run's time as a whole; null where no span tells it.
    goodput: Option<GoodputAnswer>,
    /// Phases that no span fills, and what would.
    switches: Vec<SwitchRow>,
    /// Why there is nothing.
    text: Option<String>,
    /// The trainer's switch that would fill it.
    switch: Option<&'static str>,
}

/// How much of a run's time its model learnt in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GoodputAnswer {
    /// Start of the first span.
    from: i64,
    /// End of the last span.
    to: i64,
    wall_seconds: f64,
    productive_seconds: f64,
    ratio: f64,
    /// Seconds by what they went to.
    phases: BTreeMap<&'static str, f64>,
    /// How many spans it is told from.
    spans: usize,
    text: Option<String>,
}

/// A phase that no span fills.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SwitchRow {
    phase: &'static str,
    /// Null where no switch does.
    switch: Option<String>,
    text: String,
}

/// What is asked for.
struct Asked {
    from: i64,
    to: i64,
    rank: Option<u32>,
    buckets: usize,
}

impl Asked {
    fn of(params: &Params) -> Result<Self, ApiError> {
        let buckets = params.number("buckets")?.unwrap_or(BUCKETS);
        if !(1..=BUCKETS_MAX).contains(&buckets) {
            return Err(ApiError::bad(format!("`buckets` is {buckets}, 1 to {BUCKETS_MAX} are possible")));
        }
        let step = |name| params.number::<f64>(name);
        let from = step("from")?.map_or(i64::MIN, |from| from.ceil() as i64);
        let to = step("to")?.map_or(i64::MAX, |to| to.floor() as i64);
        if from > to {
            return Err(ApiError::bad("`from` lies behind `to`").hint("both are steps"));
        }
        Ok(Self { from, to, rank: params.number("rank")?, buckets })
    }
}

/// Answers `part=breakdown`.
pub(super) fn answer(of: &Of<'_>, params: &Params) -> Result<BreakdownAnswer, ApiError> {
    let asked = Asked::of(params)?;
    let ranks = of.ranks();
    let steps = of.steps()?;
    let windows = windows(&asked, steps);
    let per_rank: u64 = windows.iter().map(|window| count(*window)).sum();
    let ranks_max = (ITERATIONS_READ_MAX as u64 / per_rank.max(1)).clamp(1, RANKS_READ_MAX as u64) as usize;
    let chosen = match asked.rank {
        Some(rank) => vec![rank],
        None => spread(&ranks, ranks_max),
    };
    let read = (!chosen.is_empty()).then_some(&chosen[..]);
    let mut rows: BTreeMap<Lane, Vec<Row>> = BTreeMap::new();
    let mut complete = true;
    for window in &windows {
        complete &= window_rows(of, read, *window, &mut rows)?;
    }
    let rows: Vec<Vec<Row>> = rows.into_values().collect();
    let columns = merge(&rows, asked.buckets);
    let goodput = goodput_of(of, &ranks, steps)?;
    let is_empty = columns.x.is_empty();
    let whole = steps.map_or(0, |(first, last)| count((first.max(asked.from), last.min(asked.to))));
    Ok(BreakdownAnswer {
        run_id: of.id.to_string(),
        part: "breakdown",
        phases: PHASES,
        rank: asked.rank,
        switches: if is_empty { Vec::new() } else { switches(&columns) },
        text: is_empty.then(|| why_empty(of, &asked, steps)),
        switch: is_empty.then_some(STEPS_SWITCH),
        seconds: PHASES.into_iter().zip(columns.seconds).collect(),
        x: columns.x,
        count: columns.count,
        wall_seconds: columns.wall_seconds,
        iterations: columns.iterations,
        sum_error_ratio: columns.sum_error_ratio,
        sampled: per_rank < whole || !complete,
        ranks,
        ranks_read: chosen,
        goodput,
    })
}

/// How many iterations a range has. Spans may tell any number.
fn count((from, to): (i64, i64)) -> u64 {
    if from > to { 0 } else { to.abs_diff(from).saturating_add(1) }
}

/// The iterations to read, as ranges: all of them, or as many of each bucket as there is time for.
fn windows(asked: &Asked, steps: Option<(i64, i64)>) -> Vec<(i64, i64)> {
    let Some((first, last)) = steps else { return Vec::new() };
    let (from, to) = (asked.from.max(first), asked.to.min(last));
    if from > to {
        return Vec::new();
    }
    let count = count((from, to));
    let read = ITERATIONS_READ_MAX as u64;
    if count <= read {
        return vec![(from, to)];
    }
    let width = (count / asked.buckets as u64).max(1);
    let part = (read / asked.buckets as u64).clamp(1, width) as i64;
    (0..count.div_ceil(width))
        .map(|bucket| from.saturating_add_unsigned(bucket * width))
        .map(|start| (start, start.saturating_add(part - 1).min(to)))
        .collect()
}

/// At most `count` of `ranks`, evenly spread, the first and the last among them.
fn spread(ranks: &[u32], count: usize) -> Vec<u32> {
    if ranks.len() <= count {
        return ranks.to_vec();
    }
    let last = (count - 1).max(1);
    (0..count).map(|at| ranks[at * (ranks.len() - 1) / last]).collect()
}

/// Adds the iterations of one range; whether that is all of them.
fn window_rows(
    of: &Of<'_>,
    ranks: Option<&[u32]>,
    (from, to): (i64, i64),
    rows: &mut BTreeMap<Lane, Vec<Row>>,
) -> Result<bool, ApiError> {
    // The iteration before tells where the first wall begins.
    let (lanes, _) = of.iterations(ranks, from.saturating_sub(1)..=to)?;
    let all = || lanes.values().flatten();
    let (Some(start_ns), Some(end_ns)) = (all().map(|i| i.start_ns).min(), all().map(|i| i.end_ns).max())
    else {
        return Ok(true);
    };
    let ask = SpanAsk {
        ranks: ranks.map(<[u32]>::to_vec),
        time_ns: start_ns..=end_ns,
        names: Some(coarse_names()),
        ..of.ask()
    };
    let mut slices: BTreeMap<Lane, Slices> = BTreeMap::new();
    let mut seen_ns = i64::MAX;
    let complete = of.each(&ask, SPANS_READ_MAX, &mut |span| {
        let share = share(&span.name);
        seen_ns = span.start_ns;
        slices.entry(Lane::of(&span)).or_default().push(&span, share);
    })?;
    // Spans come in order of start: what ended before the last that was seen is told whole.
    let known_ns = if complete { i64::MAX } else { seen_ns };
    let starts = of.starts();
    for (lane, iterations) in lanes {
        let slices = slices.remove(&lane).unwrap_or_default().finish();
        let told = of_rank(&iterations, &starts, &slices).into_iter().zip(&iterations);
        let told = told.filter(|(row, iteration)| row.number >= from && iteration.end_ns <= known_ns);
        rows.entry(lane).or_default().extend(told.map(|(row, _)| row));
    }
    Ok(complete)
}

/// Names of spans that tell the phases of an iteration. Those of layers and microbatches are left out: there
/// are hundreds in an iteration, and the span around them has the same phase.
fn coarse_names() -> Vec<String> {
    let fine = |name: &String| {
        ["megatron.layer.", "megatron.microbatch."].iter().any(|start| name.starts_with(start))
    };
    let mut names = names_of(|phase| phase != Phase::Startup);
    names.retain(|name| !fine(name));
    names
}

/// The share of a step that a span's time goes to.
fn share(name: &str) -> Option<u8> {
    let (_, phase) = semconv::spans::span(name)?;
    let at = PHASES.iter().position(|known| *known == phase.name());
    Some(at.map_or(UNATTRIBUTED, |at| at as u8))
}

/// Phases that took no time at all.
fn switches(columns: &Columns) -> Vec<SwitchRow> {
    let phases = [
        Phase::ForwardBackward,
        Phase::Optimizer,
        Phase::Communication,
        Phase::DataLoading,
        Phase::Checkpoint,
        Phase::Evaluation,
        Phase::Housekeeping,
    ];
    let empty =
        phases.into_iter().zip(&columns.seconds).filter(|(_, seconds)| seconds.iter().all(|s| *s == 0.0));
    empty
        .map(|(phase, _)| {
            let switch = switch_for(phase);
            let text = match &switch {
                Some(switch) => format!("No span tells of it: `{switch}` lets the trainer send them."),
                None => {
                    "The trainer sends no span of it: its time is part of what is unattributed.".to_owned()
                }
            };
            SwitchRow { phase: phase.name(), switch, text }
        })
        .collect()
}

fn why_empty(of: &Of<'_>, asked: &Asked, steps: Option<(i64, i64)>) -> String {
    match (steps, asked.rank) {
        (Some((first, last)), _) if asked.from > last || asked.to < first => {
            format!("The run has iterations {first} to {last}; none of those asked for.")
        }
        (_, Some(rank)) if !of.ranks().contains(&rank) => {
            format!("Rank {rank} sends no telemetry: which ranks export is the trainer's `EXPORT_STRATEGY`.")
        }
        _ if !crate::otlp::has_telemetry(of.run) => NO_EXPORT.to_owned(),
        _ => "No span tells an iteration: the trainer sends them when it is told to.".to_owned(),
    }
}

/// The kind that a span's time goes to, as goodput reckons it.
fn kind(name: &str) -> Option<u8> {
    let (_, phase) = semconv::spans::span(name)?;
    let word = if phase.is_productive() { "productive" } else { phase.name() };
    KINDS.iter().position(|known| *known == word).map(|at| at as u8)
}

/// The productive share of the run's time.
pub(super) fn goodput_ratio(of: &Of<'_>) -> Result<Option<f64>, ApiError> {
    let goodput = goodput_of(of, &of.ranks(), of.steps()?)?;
    Ok(goodput.map(|goodput| goodput.ratio))
}

fn goodput_of(
    of: &Of<'_>,
    ranks: &[u32],
    steps: Option<(i64, i64)>,
) -> Result<Option<GoodputAnswer>, ApiError> {
    let chosen = spread(ranks, GOODPUT_RANKS_MAX);
    let few = steps.is_none_or(|(first, last)| last.saturating_sub(first) < GOODPUT_ITERATIONS_MAX);
    let mut names = names_of(|phase| {
        !matches!(
            phase,
            Phase::ForwardBackward | Phase::Optimizer | Phase::Communication | Phase::Housekeeping
        )
    });
    names.retain(|name| few || !ITERATION_SPANS.contains(&name.as_str()));
    let ask = SpanAsk { ranks: (!chosen.is_empty()).then(|| chosen.clone()), names: Some(names), ..of.ask() };
    let (mut lanes, mut spans): (BTreeMap<Lane, Slices>, usize) = (BTreeMap::new(), 0);
    let complete = of.each(&ask, SPANS_READ_MAX, &mut |span| {
        spans += 1;
        let kind = kind(&span.name);
        lanes.entry(Lane::of(&span)).or_default().push(&span, kind);
    })?;
    let slices: Vec<Vec<insight::goodput::Slice>> = lanes.into_values().map(Slices::finish).collect();
    let Some(told) = goodput(&slices, &of.starts()) else { return Ok(None) };
    let read = if ranks.len() > chosen.len() {
        format!("Told by the spans of {} of {} ranks.", chosen.len(), ranks.len())
    } else {
        String::new()
    };
    let cut = if complete { "" } else { " There are more spans than an answer is told from." };
    let text = format!("{read}{cut}").trim().to_owned();
    Ok(Some(GoodputAnswer {
        from: to_ms(told.from_ns),
        to: to_ms(told.to_ns),
        wall_seconds: told.wall_seconds(),
        productive_seconds: told.seconds[0],
        ratio: told.ratio(),
        phases: KINDS.into_iter().zip(told.seconds).collect(),
        spans,
        text: (!text.is_empty()).then_some(text),
    }))
}

/// The wall of a lane's iteration; where it was done more than once, of the one nearest to a time.
pub(super) fn wall_of(
    iterations: &[Iteration],
    starts: &[i64],
    number: i64,
    near_ns: i64,
) -> Option<(i64, i64)> {
    let walls = iterations.iter().zip(insight::breakdown::walls(iterations, starts));
    let of_number = walls.filter(|(iteration, _)| iteration.number == number);
    of_number.min_by_key(|(iteration, _)| iteration.start_ns.abs_diff(near_ns)).map(|(_, wall)| wall)
}
