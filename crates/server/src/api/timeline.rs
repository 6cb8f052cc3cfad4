//! What the processes of a run did and when, told by their spans: where the time of steps goes, spans to
//! draw, and one span whole.

mod breakdown;
mod columns;
mod one;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{ControlFlow, RangeInclusive};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use insight::breakdown::{Iteration, Slice};
use model::{RunId, RunRecord, Span, SpanAsk, SpanId, TraceId};
use semconv::spans::{GROUPS, Phase};
use serde::Serialize;
use utoipa::ToSchema;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::error::ApiError;
use crate::otlp::{ITERATION_SPANS, STEP_SERIES, is_iteration};

/// Most spans that are looked at for one answer.
const VISITED_MAX: usize = 1_000_000;
/// Ranks that are looked at for the first iteration.
const RANKS_LOOKED_AT: usize = 4;
/// What is said where no process of a run exports.
const NO_EXPORT: &str = "No process of this run sends spans. They come by OpenTelemetry: \
    `MEGATRON_OTEL_ENABLED=1` and `OTEL_EXPORTER_OTLP_ENDPOINT` switch it on.";
/// The switch without which no step is told.
const STEPS_SWITCH: &str = "MEGATRON_OTEL_SPAN_GROUPS=per_step";

/// The part that was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum TimelineAnswer {
    /// `part=breakdown`
    Breakdown(Box<breakdown::BreakdownAnswer>),
    /// `part=spans`
    Spans(Box<columns::SpansAnswer>),
    /// `part=span`
    Span(Box<one::SpanAnswer>),
}

/// Where the time of a run's steps went, its spans as columns, or one span whole.
#[utoipa::path(get, operation_id = "readTimeline", path = "/api/tg/v1/runs/{run_id}/timeline",
    params(
        ("run_id" = String, Path, description = "16 hex digits"),
        ("part" = String, Query, description = "`breakdown`, `spans` or `span`"),
        ("from" = Option<f64>, Query, description = "breakdown: first step; spans: milliseconds since the epoch"),
        ("to" = Option<f64>, Query, description = "breakdown: last step; spans: milliseconds since the epoch"),
        ("rank" = Option<u32>, Query, description = "breakdown: one rank; the mean over ranks unless given"),
        ("buckets" = Option<usize>, Query, description = "breakdown: 500 unless given, at most 2000"),
        ("step" = Option<i64>, Query, description = "spans: those of one iteration; the last one unless a step or a time is given"),
        ("ranks" = Option<String>, Query, description = "spans: ranks such as `0-7,12`; all unless given"),
        ("names" = Option<String>, Query, description = "spans: names, with commas; all unless given"),
        ("limit" = Option<usize>, Query, description = "spans: at most so many, 100000 unless given, which is the most"),
        ("instance" = Option<String>, Query, description = "span: `service.instance.id` of its process"),
        ("trace" = Option<String>, Query, description = "span: 32 hex digits"),
        ("id" = Option<String>, Query, description = "span: 16 hex digits"),
        ("incarnation" = Option<u32>, Query, description = "span: which life of its process, as `part=spans` tells; the latest that has such a span unless given"),
    ),
    responses(
        (status = 200, body = TimelineAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<TimelineAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    let params = Params::of(&uri)?;
    let part = params.get("part").unwrap_or_default().to_owned();
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        let of = Of { shared, caller: &caller, run: &run, id };
        Ok(Json(match part.as_str() {
            "breakdown" => TimelineAnswer::Breakdown(Box::new(breakdown::answer(&of, &params)?)),
            "spans" => TimelineAnswer::Spans(Box::new(columns::answer(&of, &params)?)),
            "span" => TimelineAnswer::Span(Box::new(one::answer(&of, &params)?)),
            other => {
                let message = format!("`part` is `{}`", super::shown(other));
                return Err(ApiError::bad(message).hint("use `breakdown`, `spans` or `span`"));
            }
        }))
    })
    .await
}

/// The productive share of a run's time, as its spans tell it; none where none does.
pub(crate) fn goodput_ratio(shared: &Shared, run: &RunRecord) -> Option<f64> {
    if !crate::otlp::has_telemetry(run) {
        return None;
    }
    let caller = Caller::everything();
    let of = Of { shared, caller: &caller, run, id: run.id() };
    breakdown::goodput_ratio(&of).unwrap_or_default()
}

/// Whose spans are asked for, and by whom.
struct Of<'a> {
    shared: &'a Shared,
    caller: &'a Caller,
    run: &'a RunRecord,
    id: RunId,
}

/// A row of spans: a rank, or a process that tells none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Lane {
    Rank(u32),
    Instance(String),
}

impl Lane {
    fn of(span: &Span) -> Self {
        span.rank.map_or_else(|| Self::Instance(span.instance.clone()), Self::Rank)
    }
}

impl Of<'_> {
    /// A question about this run.
    fn ask(&self) -> SpanAsk {
        SpanAsk { run: Some(self.id), ..SpanAsk::default() }
    }

    /// Hands spans over until there are no more or `max` were looked at; whether all were.
    fn each(&self, ask: &SpanAsk, max: usize, take: &mut dyn FnMut(Span)) -> Result<bool, ApiError> {
        let mut visited = 0;
        let read = self.shared.store.spans(ask, &mut |span| {
            visited += 1;
            if visited > max {
                return ControlFlow::Break(());
            }
            take(span);
            ControlFlow::Continue(())
        });
        match read {
            Ok(()) => Ok(visited <= max),
            Err(error) => {
                tracing::error!(%error, "cannot read spans");
                Err(ApiError::internal(error.to_string())
                    .hint("`truegauge doctor` and the server's log say what is damaged"))
            }
        }
    }

    /// The ranks that may have sent spans, in order.
    fn ranks(&self) -> Vec<u32> {
        let exports = |session: &model::Session| session.facts.silent_after_seconds > 0;
        // Where a run's own client opened it, those that export have no session beside that.
        let any = self.run.sessions.iter().any(exports);
        let sessions = self.run.sessions.iter().filter(|session| !any || exports(session));
        sessions.filter_map(|session| session.facts.rank).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// The first and last iteration that is known.
    fn steps(&self) -> Result<Option<(i64, i64)>, ApiError> {
        let series = self.shared.store.run_series(self.id);
        let told: Vec<_> = series.iter().filter(|series| *series.display == *STEP_SERIES).collect();
        let last = told.iter().filter_map(|series| series.max_step).max();
        let mut first = i64::MAX;
        // All ranks begin with the same iteration.
        for series in told.iter().take(RANKS_LOOKED_AT) {
            let read = self.shared.store.read(series.id, i64::MIN, i64::MAX, &mut |chunk| {
                first = first.min(chunk.summary().steps.map_or(i64::MAX, |(low, _)| low));
                ControlFlow::Continue(())
            });
            read.map_err(|error| ApiError::internal(error.to_string()))?;
        }
        if let Some(last) = last {
            return Ok(Some((first.min(last), last)));
        }
        // Nobody wrote the time of steps, as where the run's own process tells what it does.
        let (lanes, _) = self.iterations(None, i64::MIN..=i64::MAX)?;
        let numbers = || lanes.values().flatten().map(|iteration| iteration.number);
        Ok(numbers().min().zip(numbers().max()))
    }

    /// Iterations by lane, in order of time; whether that is all.
    fn iterations(
        &self,
        ranks: Option<&[u32]>,
        numbers: RangeInclusive<i64>,
    ) -> Result<(BTreeMap<Lane, Vec<Iteration>>, bool), ApiError> {
        let ask = SpanAsk {
            ranks: ranks.map(<[u32]>::to_vec),
            names: Some(sorted(ITERATION_SPANS)),
            iterations: Some(numbers),
            ..self.ask()
        };
        let mut lanes: BTreeMap<Lane, Vec<Iteration>> = BTreeMap::new();
        let complete = self.each(&ask, VISITED_MAX, &mut |span| {
            if let Some(number) = span.iteration.filter(|_| is_iteration(&span)) {
                let iteration = Iteration { number, start_ns: span.start_ns, end_ns: span.end_ns };
                lanes.entry(Lane::of(&span)).or_default().push(iteration);
            }
        })?;
        Ok((lanes, complete))
    }

    /// When the run was started, in order.
    fn starts(&self) -> Vec<i64> {
        self.run.attempts.iter().map(|attempt| attempt.started_ns).collect()
    }
}

/// What a span of a process is known by.
type Own = (u32, TraceId, SpanId);

/// Spans on their way into a sweep.
#[derive(Default)]
struct Slices {
    list: Vec<Slice>,
    parents: Vec<Option<Own>>,
    places: HashMap<Own, usize>,
}

impl Slices {
    fn push(&mut self, span: &Span, share: Option<u8>) {
        let own = |id| (span.incarnation, span.trace, id);
        self.places.insert(own(span.id), self.list.len());
        self.parents.push(span.parent.map(own));
        self.list.push(Slice { start_ns: span.start_ns, end_ns: span.end_ns, parent: None, share });
    }

    fn finish(mut self) -> Vec<Slice> {
        for (slice, parent) in self.list.iter_mut().zip(&self.parents) {
            slice.parent = parent.and_then(|parent| self.places.get(&parent).copied());
        }
        self.list
    }
}

fn sorted<const N: usize>(names: [&str; N]) -> Vec<String> {
    let mut names = names.map(str::to_owned).to_vec();
    names.sort();
    names
}

/// Known names of spans, sorted, whose phase is wanted.
fn names_of(wanted: impl Fn(Phase) -> bool) -> Vec<String> {
    let spans = GROUPS.iter().flat_map(|group| group.spans);
    let mut names: Vec<String> =
        spans.filter(|(_, phase)| wanted(*phase)).map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    names
}
