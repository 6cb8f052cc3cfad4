//! One span whole, and how long it took elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use model::{AttributeValue, NANOS_PER_SECOND, Span, SpanAsk};
use serde::Serialize;
use store::Scope;
use utoipa::ToSchema;

use super::breakdown::wall_of;
use super::columns::hex;
use super::{Of, VISITED_MAX};
use crate::api::run::attribute;
use crate::api::{Params, shown};
use crate::error::ApiError;
use crate::otlp::hide_texts;

/// Spans that are looked at for those that point to this one.
const POINTING_SPANS_MAX: usize = 200_000;
/// Most of them in an answer.
const POINTING_MAX: usize = 100;
/// Time around a span in which those that point to it are looked for, nanoseconds.
const AROUND_NS: i64 = 60 * NANOS_PER_SECOND;

/// One span.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpanAnswer {
    run_id: String,
    part: &'static str,
    span: OneSpan,
    /// The same span of the same iteration on other ranks; null where there is none.
    others: Option<Others>,
    /// Whether it has texts that only an admin may read.
    texts_hidden: bool,
}

/// A span with all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OneSpan {
    name: String,
    rank: Option<u32>,
    instance: String,
    /// Which life of the process it is of: another after each start, 0 where nothing tells.
    incarnation: u32,
    host: String,
    trace: String,
    id: String,
    /// From `origin_ns`.
    start_us: f64,
    length_us: f64,
    /// Its start, nanoseconds since the epoch by the clock of its host.
    origin_ns: String,
    /// 0 unset, 1 ok, 2 error.
    status: u8,
    status_text: String,
    kind: &'static str,
    scope: String,
    iteration: Option<i64>,
    parent: Option<String>,
    #[schema(value_type = Vec<Object>)]
    attributes: Vec<(String, serde_json::Value)>,
    events: Vec<EventRow>,
    links: Vec<LinkRow>,
    linked_from: Vec<PointingRow>,
    /// Events and links that were too many to be kept.
    parts_left_out: u64,
    /// Whether it ends before it starts, as where a clock was set back.
    reversed: bool,
    goodput: bool,
}

/// Something that happened within a span.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventRow {
    /// From `origin_ns`.
    at_us: f64,
    name: String,
    #[schema(value_type = Vec<Object>)]
    attributes: Vec<(String, serde_json::Value)>,
}

/// A span that this one points to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkRow {
    trace: String,
    id: String,
    #[schema(value_type = Vec<Object>)]
    attributes: Vec<(String, serde_json::Value)>,
}

/// A span that points to this one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PointingRow {
    trace: String,
    id: String,
    name: String,
    rank: Option<u32>,
    instance: String,
    incarnation: u32,
}

/// How long the same took on other ranks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Others {
    ranks: usize,
    median_us: f64,
    min_us: f64,
    max_us: f64,
}

/// Answers `part=span`.
pub(super) fn answer(of: &Of<'_>, params: &Params) -> Result<SpanAnswer, ApiError> {
    let trace: [u8; 16] = id(params, "trace")?;
    let id: [u8; 8] = id(params, "id")?;
    let instance = params.get("instance").unwrap_or_default();
    let incarnation: Option<u32> = params.number("incarnation")?;
    let ask = SpanAsk { trace: Some(trace), ..of.ask() };
    let mut found: Option<Span> = None;
    of.each(&ask, VISITED_MAX, &mut |span| {
        // A process that was started again may have made the same ids; its latest life comes last.
        let is_of = span.instance == instance && incarnation.is_none_or(|of| span.incarnation == of);
        if span.id == id && is_of {
            found = Some(span);
        }
    })?;
    let mut span = found.ok_or_else(|| {
        ApiError::missing("the run has no such span")
            .hint("`instance`, `trace` and `id` are those of an answer to `part=spans`")
    })?;
    let mut texts_hidden = false;
    if !of.caller.may(Scope::Admin) {
        texts_hidden = hide_texts(&mut span);
    }
    let (iteration, others) = others(of, &span)?;
    let linked_from = linked_from(of, &span)?;
    Ok(SpanAnswer {
        run_id: of.id.to_string(),
        part: "span",
        span: whole(span, iteration, linked_from),
        others,
        texts_hidden,
    })
}

fn id<const N: usize>(params: &Params, name: &str) -> Result<[u8; N], ApiError> {
    let text = params.get(name).unwrap_or_default();
    let mut id = [0; N];
    let digits = text.len() == N * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !digits {
        let message = format!("`{name}` is `{}`, {} hex digits are wanted", shown(text), N * 2);
        return Err(ApiError::bad(message));
    }
    for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte =
            pair.iter().fold(0, |byte, digit| byte << 4 | (*digit as char).to_digit(16).unwrap_or(0) as u8);
    }
    Ok(id)
}

fn whole(span: Span, iteration: Option<i64>, linked_from: Vec<PointingRow>) -> OneSpan {
    let us = |ns: i64| ns as f64 / 1_000.0;
    let kinds = ["unspecified", "internal", "server", "client", "producer", "consumer"];
    let start_ns = span.start_ns;
    OneSpan {
        trace: hex(&span.trace),
        id: hex(&span.id),
        start_us: 0.0,
        length_us: us(span.end_ns.saturating_sub(start_ns).max(0)),
        origin_ns: start_ns.to_string(),
        reversed: span.end_ns < start_ns,
        name: span.name,
        rank: span.rank,
        instance: span.instance,
        incarnation: span.incarnation,
        host: span.host,
        status: span.status,
        status_text: span.status_text,
        kind: kinds.get(usize::from(span.kind)).unwrap_or(&kinds[0]),
        scope: span.scope,
        iteration,
        parent: span.parent.map(|parent| hex(&parent)),
        attributes: listed(span.attributes),
        events: span
            .events
            .into_iter()
            .map(|event| EventRow {
                at_us: us(event.time_ns.saturating_sub(start_ns)),
                name: event.name,
                attributes: listed(event.attributes),
            })
            .collect(),
        links: span
            .links
            .into_iter()
            .map(|link| LinkRow {
                trace: hex(&link.trace),
                id: hex(&link.id),
                attributes: listed(link.attributes),
            })
            .collect(),
        linked_from,
        parts_left_out: span.parts_left_out,
        goodput: span.is_goodput,
    }
}

fn listed(attributes: Vec<(String, AttributeValue)>) -> Vec<(String, serde_json::Value)> {
    attributes.into_iter().map(|(key, value)| (key, attribute(&value))).collect()
}

/// The iteration of a span, and how long the same span of it took on other ranks.
///
/// Where a rank has several of that name in an iteration, as one for each microbatch, the one at the same
/// place in their order is meant.
fn others(of: &Of<'_>, span: &Span) -> Result<(Option<i64>, Option<Others>), ApiError> {
    let Some(rank) = span.rank else { return Ok((span.iteration, None)) };
    let Some(number) = iteration_of(of, span, rank)? else { return Ok((None, None)) };
    let (lanes, _) = of.iterations(None, number.saturating_sub(1)..=number)?;
    let starts = of.starts();
    let walls: BTreeMap<_, _> = lanes
        .into_iter()
        .filter_map(|(lane, iterations)| Some((lane, wall_of(&iterations, &starts, number, span.start_ns)?)))
        .collect();
    let (Some(from), Some(to)) = (walls.values().map(|w| w.0).min(), walls.values().map(|w| w.1).max())
    else {
        return Ok((Some(number), None));
    };
    let ask = SpanAsk { time_ns: from..=to, names: Some(vec![span.name.clone()]), ..of.ask() };
    let mut lengths: BTreeMap<super::Lane, Vec<(i64, i64)>> = BTreeMap::new();
    of.each(&ask, VISITED_MAX, &mut |other| {
        let lane = super::Lane::of(&other);
        let within = walls.get(&lane).is_some_and(|wall| (wall.0..=wall.1).contains(&other.start_ns));
        if within {
            let length_ns = other.end_ns.saturating_sub(other.start_ns).max(0);
            lengths.entry(lane).or_default().push((other.start_ns, length_ns));
        }
    })?;
    let own = lengths.remove(&super::Lane::Rank(rank)).unwrap_or_default();
    let place = own.iter().filter(|(start_ns, _)| *start_ns < span.start_ns).count();
    let mut same: Vec<i64> =
        lengths.into_values().filter_map(|spans| spans.get(place).map(|(_, length)| *length)).collect();
    same.sort_unstable();
    let us = |ns: i64| ns as f64 / 1_000.0;
    let others = same.first().zip(same.last()).map(|(min, max)| Others {
        ranks: same.len(),
        median_us: us(i64::midpoint(same[(same.len() - 1) / 2], same[same.len() / 2])),
        min_us: us(*min),
        max_us: us(*max),
    });
    Ok((Some(number), others))
}

/// The iteration that a span says, or lies in.
fn iteration_of(of: &Of<'_>, span: &Span, rank: u32) -> Result<Option<i64>, ApiError> {
    if span.iteration.is_some() {
        return Ok(span.iteration);
    }
    let ask = SpanAsk {
        names: Some(super::sorted(super::ITERATION_SPANS)),
        ranks: Some(vec![rank]),
        time_ns: span.start_ns..=span.start_ns,
        ..of.ask()
    };
    let mut number = None;
    of.each(&ask, VISITED_MAX, &mut |around| {
        if super::is_iteration(&around) && around.end_ns >= span.end_ns {
            number = around.iteration;
        }
    })?;
    Ok(number)
}

fn linked_from(of: &Of<'_>, span: &Span) -> Result<Vec<PointingRow>, ApiError> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut look = |other: Span| {
        // What a process did in another life of it points to what had the same id then.
        let is_near = other.instance != span.instance || other.incarnation == span.incarnation;
        let points = is_near && other.links.iter().any(|link| link.trace == span.trace && link.id == span.id);
        let key = (other.trace, other.id, other.instance.clone(), other.incarnation);
        if points && found.len() < POINTING_MAX && known.insert(key) {
            found.push(PointingRow {
                trace: hex(&other.trace),
                id: hex(&other.id),
                name: other.name,
                rank: other.rank,
                instance: other.instance,
                incarnation: other.incarnation,
            });
        }
    };
    let near =
        span.start_ns.saturating_sub(AROUND_NS)..=span.end_ns.max(span.start_ns).saturating_add(AROUND_NS);
    of.each(&SpanAsk { time_ns: near, ..of.ask() }, POINTING_SPANS_MAX, &mut look)?;
    // Those that follow each other point to the one before, however long ago it ended.
    let following = SpanAsk {
        time_ns: span.start_ns..=i64::MAX,
        names: Some(vec![span.name.clone()]),
        ranks: span.rank.map(|rank| vec![rank]),
        ..of.ask()
    };
    of.each(&following, POINTING_SPANS_MAX, &mut look)?;
    Ok(found)
}
