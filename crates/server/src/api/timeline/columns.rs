//! Spans to draw, as columns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use insight::clocks::{End, Shift, shifts};
use model::{NANOS_PER_MILLI, Span, SpanAsk, TraceId};
use serde::Serialize;
use store::Scope;
use utoipa::ToSchema;

use super::breakdown::wall_of;
use super::{Lane, NO_EXPORT, Of, Own, STEPS_SWITCH, VISITED_MAX};
use crate::api::{Params, shown};
use crate::error::ApiError;
use crate::otlp::keeps_text;

/// Most spans of an answer.
const SPANS_MAX: usize = 100_000;
/// Rows that one lane is drawn in; what would need more shares the last.
const ROWS_MAX: usize = 64;
/// Iterations on each side of the one asked for that tell how far clocks are apart.
const CLOCK_ITERATIONS: i64 = 10;
/// Ends of iterations that are looked at for that.
const CLOCK_SPANS_MAX: usize = 50_000;

/// Spans as columns.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SpansAnswer {
    run_id: String,
    part: &'static str,
    /// What `start_us` counts from, nanoseconds since the epoch.
    origin_ns: String,
    /// The iteration that was asked for, or chosen.
    step: Option<i64>,
    names: Vec<String>,
    /// What the time of each name goes to; null where that is not known.
    phases: Vec<Option<&'static str>>,
    /// The trainer's group of each name; null where that is not known.
    groups: Vec<Option<&'static str>>,
    /// 32 hex digits each.
    traces: Vec<String>,
    /// Processes, by rank.
    lanes: Vec<LaneRow>,
    spans: SpanColumns,
    /// Spans that were found.
    total: usize,
    /// Those of them that are not in the answer: the shortest.
    left_out: usize,
    steps: Option<Steps>,
    /// Whether texts are kept of this run that only an admin may read.
    texts_hidden: bool,
    /// The trainer's switch that would fill it.
    switch: Option<&'static str>,
    /// Why there is nothing.
    text: Option<String>,
}

/// First and last iteration of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Steps {
    first: i64,
    last: i64,
}

/// A process with spans.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct LaneRow {
    rank: Option<u32>,
    instance: String,
    /// Lives of the process that its spans are of: more than one where it was started again.
    incarnations: Vec<u32>,
    host: String,
    spans: usize,
    /// Rows that it is drawn in.
    depth: u32,
    /// How far its times were moved, since the clock of its host is off; null where that can't be told.
    clock_shift_ms: Option<f64>,
}

/// Columns of equal length, in order of start.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SpanColumns {
    lane: Vec<u32>,
    name: Vec<u32>,
    trace: Vec<u32>,
    /// 16 hex digits each.
    id: Vec<String>,
    start_us: Vec<f64>,
    length_us: Vec<f64>,
    /// Row within its lane.
    depth: Vec<u32>,
    /// 0 unset, 1 ok, 2 error.
    status: Vec<u8>,
    iteration: Vec<Option<i64>>,
    /// Place among the incarnations of its lane; left out where no lane has two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incarnation: Vec<u32>,
}

/// What is asked for.
struct Asked {
    step: Option<i64>,
    range_ns: Option<(i64, i64)>,
    ranks: Option<Vec<u32>>,
    names: Option<Vec<String>>,
    limit: usize,
}

impl Asked {
    fn of(params: &Params) -> Result<Self, ApiError> {
        let time = |name| -> Result<Option<i64>, ApiError> {
            let ms: Option<f64> = params.number(name)?;
            Ok(ms.map(|ms| (ms * NANOS_PER_MILLI as f64) as i64))
        };
        let range_ns = match (time("from")?, time("to")?) {
            (None, None) => None,
            (from, to) => Some((from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX))),
        };
        if range_ns.is_some_and(|(from, to)| from > to) {
            return Err(
                ApiError::bad("`from` lies behind `to`").hint("both are milliseconds since the epoch")
            );
        }
        let limit = params.number("limit")?.unwrap_or(SPANS_MAX);
        if !(1..=SPANS_MAX).contains(&limit) {
            return Err(ApiError::bad(format!("`limit` is {limit}, 1 to {SPANS_MAX} are possible")));
        }
        let names = params.get("names").map(|names| {
            let names: BTreeSet<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
            names.into_iter().map(str::to_owned).collect()
        });
        let ranks = params.get("ranks").map(ranks).transpose()?;
        Ok(Self { step: params.number("step")?, range_ns, ranks, names, limit })
    }
}

/// Reads `0-7,12`.
fn ranks(text: &str) -> Result<Vec<u32>, ApiError> {
    /// Most ranks that can be named.
    const RANKS_MAX: usize = 65_536;

    let wrong = || {
        ApiError::bad(format!("`ranks` is `{}`", shown(text))).hint("write ranks and ranges such as `0-7,12`")
    };
    let mut ranks = BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let (from, to) = number(from).zip(number(to)).ok_or_else(wrong)?;
        if to < from || (to - from) as usize >= RANKS_MAX {
            return Err(wrong());
        }
        ranks.extend(from..=to);
        if ranks.len() > RANKS_MAX {
            return Err(ApiError::too_large(format!("`ranks` names more than {RANKS_MAX}")));
        }
    }
    Ok(ranks.into_iter().collect())
}

/// Answers `part=spans`.
pub(super) fn answer(of: &Of<'_>, params: &Params) -> Result<SpansAnswer, ApiError> {
    let asked = Asked::of(params)?;
    let steps = of.steps()?;
    let step = match (asked.step, asked.range_ns) {
        (Some(step), _) => Some(step),
        (None, None) => steps.map(|(_, last)| last),
        (None, Some(_)) => None,
    };
    let windows = Windows::of(of, &asked, step)?;
    let shifts = clock_shifts(of, step, steps)?;
    let ask = windows.reach().map(|(from, to)| SpanAsk {
        time_ns: from..=to,
        ranks: asked.ranks.clone(),
        names: asked.names.clone(),
        ..of.ask()
    });
    let (drawn, total) = match ask {
        Some(ask) => longest(of, &ask, &windows, asked.limit, shifts)?,
        None => (Drawn::default(), 0),
    };
    let mut answer = drawn.finish();
    answer.run_id = of.id.to_string();
    answer.step = step;
    answer.total = total;
    answer.left_out = total.saturating_sub(asked.limit);
    answer.steps = steps.map(|(first, last)| Steps { first, last });
    answer.texts_hidden = keeps_text(of.shared, &of.run.path) && !of.caller.may(Scope::Admin);
    if total == 0 || steps.is_none() {
        answer.switch = Some(STEPS_SWITCH);
        answer.text = Some(why_empty(of, step, steps));
    }
    Ok(answer)
}

/// Spans to draw and how many there are; where they are more than `limit`, the longest, since whoever looks
/// at so much time sees those.
fn longest(
    of: &Of<'_>,
    ask: &SpanAsk,
    windows: &Windows,
    limit: usize,
    shifts: HashMap<String, Shift>,
) -> Result<(Drawn, usize), ApiError> {
    let length_ns = |span: &Span| span.end_ns.saturating_sub(span.start_ns).max(0);
    let each = |take: &mut dyn FnMut(Span)| {
        of.each(ask, VISITED_MAX, &mut |span| {
            if windows.holds(&span) {
                take(span);
            }
        })
    };
    let mut lengths_ns = Vec::new();
    let mut drawn = Drawn { shifts, ..Drawn::default() };
    each(&mut |span| {
        lengths_ns.push(length_ns(&span));
        if lengths_ns.len() <= limit {
            drawn.take(span);
        }
    })?;
    let total = lengths_ns.len();
    if total <= limit {
        return Ok((drawn, total));
    }
    let (longer, &mut least_ns, _) = lengths_ns.select_nth_unstable_by_key(limit - 1, |ns| Reverse(*ns));
    let mut spare = limit - longer.iter().filter(|ns| **ns > least_ns).count();
    drawn = Drawn { shifts: std::mem::take(&mut drawn.shifts), ..Drawn::default() };
    each(&mut |span| {
        let ns = length_ns(&span);
        if ns == least_ns && spare > 0 {
            spare -= 1;
            drawn.take(span);
        } else if ns > least_ns {
            drawn.take(span);
        }
    })?;
    Ok((drawn, total))
}

fn why_empty(of: &Of<'_>, step: Option<i64>, steps: Option<(i64, i64)>) -> String {
    match (step, steps) {
        (Some(step), Some((first, last))) if !(first..=last).contains(&step) => {
            format!("The run has iterations {first} to {last}, not {step}.")
        }
        (_, Some(_)) => "No span is known of this time, or of these ranks and names.".to_owned(),
        _ if !crate::otlp::has_telemetry(of.run) => NO_EXPORT.to_owned(),
        _ => "No span tells an iteration: the trainer sends them when it is told to.".to_owned(),
    }
}

/// Which time of which lane is drawn.
#[derive(Debug, Default)]
struct Windows {
    /// Of lanes whose own is known.
    own: HashMap<Lane, (i64, i64)>,
    /// Of all others.
    all: Option<(i64, i64)>,
}

impl Windows {
    fn of(of: &Of<'_>, asked: &Asked, step: Option<i64>) -> Result<Self, ApiError> {
        // A run that tells no iteration is drawn whole.
        let Some(step) = step else {
            return Ok(Self { all: asked.range_ns.or(Some((i64::MIN, i64::MAX))), ..Self::default() });
        };
        let (lanes, _) = of.iterations(asked.ranks.as_deref(), step.saturating_sub(1)..=step)?;
        let starts = of.starts();
        let mut own = HashMap::new();
        let mut all: Option<(i64, i64)> = None;
        for (lane, iterations) in lanes {
            let Some((from, to)) = wall_of(&iterations, &starts, step, i64::MAX) else { continue };
            all = Some(all.map_or((from, to), |(low, high)| (low.min(from), high.max(to))));
            own.insert(lane, (from, to));
        }
        Ok(Self { own, all })
    }

    /// The time in which all of them lie.
    fn reach(&self) -> Option<(i64, i64)> {
        self.all
    }

    fn holds(&self, span: &Span) -> bool {
        let Some((from, to)) = self.own.get(&Lane::of(span)).copied().or(self.all) else { return false };
        let end_ns = span.end_ns.max(span.start_ns);
        span.start_ns <= to
            && end_ns >= from
            && (end_ns == span.start_ns || (span.start_ns < to && end_ns > from))
    }
}

/// How far the clocks of hosts are apart around an iteration.
fn clock_shifts(
    of: &Of<'_>,
    step: Option<i64>,
    steps: Option<(i64, i64)>,
) -> Result<HashMap<String, Shift>, ApiError> {
    let Some(middle) = step.or(steps.map(|(_, last)| last)) else { return Ok(HashMap::new()) };
    let mut ends: Vec<(String, i64, i64)> = Vec::new();
    let ask = SpanAsk {
        names: Some(super::sorted(super::ITERATION_SPANS)),
        iterations: Some(middle.saturating_sub(CLOCK_ITERATIONS)..=middle.saturating_add(CLOCK_ITERATIONS)),
        ..of.ask()
    };
    of.each(&ask, CLOCK_SPANS_MAX, &mut |span| {
        if let Some(number) = span.iteration.filter(|_| super::is_iteration(&span)) {
            ends.push((span.host, number, span.end_ns));
        }
    })?;
    let ends: Vec<End<'_>> =
        ends.iter().map(|(host, number, end_ns)| End { host, number: *number, end_ns: *end_ns }).collect();
    Ok(shifts(&ends).into_iter().map(|(host, shift)| (host.to_owned(), shift)).collect())
}

/// A lane while its spans come.
#[derive(Default)]
struct Filling {
    row: LaneRow,
    shift_ns: i64,
    /// Until when each row is taken.
    rows: Vec<i64>,
    /// Row of each span that may be a parent.
    places: HashMap<Own, u32>,
    /// Places of the incarnations.
    lives: HashMap<u32, u32>,
}

#[derive(Default)]
struct Drawn {
    shifts: HashMap<String, Shift>,
    answer: SpansAnswer,
    lanes: Vec<Filling>,
    lane_places: HashMap<(Option<u32>, String), u32>,
    name_places: HashMap<String, u32>,
    trace_places: HashMap<TraceId, u32>,
    starts_ns: Vec<i64>,
    lengths_ns: Vec<i64>,
    /// Spans of one start, which wait for others of it.
    alike: Vec<Span>,
}

impl Drawn {
    /// Takes the next span in order of start. Of those that start at once the longest is drawn first, so
    /// that a parent is there before its children.
    fn take(&mut self, span: Span) {
        if self.alike.first().is_some_and(|first| first.start_ns != span.start_ns) {
            self.push_alike();
        }
        self.alike.push(span);
    }

    fn push_alike(&mut self) {
        let mut alike = std::mem::take(&mut self.alike);
        alike.sort_by_key(|span| Reverse(span.end_ns));
        for span in alike.drain(..) {
            self.push(&span);
        }
        self.alike = alike;
    }

    fn push(&mut self, span: &Span) {
        let lane = self.lane(span);
        let name = self.name(&span.name);
        let trace = self.trace(span.trace);
        let filling = &mut self.lanes[lane as usize];
        let start_ns = span.start_ns.saturating_add(filling.shift_ns);
        let end_ns = span.end_ns.saturating_add(filling.shift_ns).max(start_ns);
        let depth = filling.place(span, (start_ns, end_ns));
        let life = filling.life(span.incarnation);
        filling.row.spans += 1;
        let columns = &mut self.answer.spans;
        columns.lane.push(lane);
        columns.name.push(name);
        columns.trace.push(trace);
        columns.id.push(hex(&span.id));
        columns.depth.push(depth);
        columns.status.push(span.status);
        columns.iteration.push(span.iteration);
        columns.incarnation.push(life);
        self.starts_ns.push(start_ns);
        self.lengths_ns.push(end_ns - start_ns);
    }

    fn lane(&mut self, span: &Span) -> u32 {
        let key = (span.rank, span.instance.clone());
        if let Some(lane) = self.lane_places.get(&key) {
            return *lane;
        }
        let lane = self.lanes.len() as u32;
        self.lane_places.insert(key, lane);
        let shift = self.shifts.get(&span.host);
        let shift_ns = shift.map_or(0, |shift| shift.ahead_ns.saturating_neg());
        self.lanes.push(Filling {
            row: LaneRow {
                rank: span.rank,
                instance: span.instance.clone(),
                host: span.host.clone(),
                clock_shift_ms: shift.map(|_| shift_ns as f64 / NANOS_PER_MILLI as f64),
                ..LaneRow::default()
            },
            shift_ns,
            ..Filling::default()
        });
        lane
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(place) = self.name_places.get(name) {
            return *place;
        }
        let place = self.answer.names.len() as u32;
        let known = semconv::spans::span(name);
        self.answer.names.push(name.to_owned());
        self.answer.phases.push(known.map(|(_, phase)| phase.name()));
        self.answer.groups.push(known.map(|(group, _)| group.name));
        self.name_places.insert(name.to_owned(), place);
        place
    }

    fn trace(&mut self, trace: TraceId) -> u32 {
        *self.trace_places.entry(trace).or_insert_with(|| {
            self.answer.traces.push(hex(&trace));
            self.answer.traces.len() as u32 - 1
        })
    }

    /// The answer, its lanes by rank.
    fn finish(mut self) -> SpansAnswer {
        self.push_alike();
        let origin_ns = self.starts_ns.iter().copied().min().unwrap_or(0);
        let us = |ns: i64| ns as f64 / 1_000.0;
        let columns = &mut self.answer.spans;
        columns.start_us = self.starts_ns.iter().map(|start_ns| us(start_ns - origin_ns)).collect();
        columns.length_us = self.lengths_ns.iter().map(|length_ns| us(*length_ns)).collect();
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        let key = |at: &usize| {
            let row = &self.lanes[*at].row;
            (row.rank.is_none(), row.rank, row.instance.clone())
        };
        order.sort_by_cached_key(key);
        let mut places = vec![0; order.len()];
        for (place, lane) in order.iter().enumerate() {
            places[*lane] = place as u32;
        }
        for lane in &mut columns.lane {
            *lane = places[*lane as usize];
        }
        let mut rows: BTreeMap<u32, LaneRow> = BTreeMap::new();
        for (filling, place) in self.lanes.into_iter().zip(places) {
            let depth = filling.rows.len() as u32;
            rows.insert(place, LaneRow { depth, ..filling.row });
        }
        self.answer.lanes = rows.into_values().collect();
        if self.answer.lanes.iter().all(|lane| lane.incarnations.len() < 2) {
            self.answer.spans.incarnation = Vec::new();
        }
        self.answer.origin_ns = origin_ns.to_string();
        self.answer.part = "spans";
        self.answer
    }
}

impl Filling {
    /// The row of a span: below its parent's, and where nothing else is at its time.
    fn place(&mut self, span: &Span, (start_ns, end_ns): (i64, i64)) -> u32 {
        let own = |id| (span.incarnation, span.trace, id);
        let parent = span.parent.and_then(|parent| self.places.get(&own(parent)));
        let least = parent.map_or(0, |row| *row as usize + 1).min(ROWS_MAX - 1);
        let free = (least..self.rows.len()).find(|row| self.rows[*row] <= start_ns);
        let row = free.unwrap_or(self.rows.len().max(least)).min(ROWS_MAX - 1);
        if self.rows.len() <= row {
            self.rows.resize(row + 1, i64::MIN);
        }
        self.rows[row] = self.rows[row].max(end_ns);
        self.places.insert(own(span.id), row as u32);
        row as u32
    }

    /// The place of an incarnation.
    fn life(&mut self, incarnation: u32) -> u32 {
        let known = &mut self.row.incarnations;
        *self.lives.entry(incarnation).or_insert_with(|| {
            known.push(incarnation);
            known.len() as u32 - 1
        })
    }
}

/// An id in hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)].into());
        out.push(DIGITS[usize::from(byte & 15)].into());
    }
    out
}
