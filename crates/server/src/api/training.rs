//! What is known of a run's training beside its points: instruments that are there or not and why, its
//! utilization of the hardware, values that are no numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use axum::Json;
use axum::extract::{Path, State};
use model::{RunId, RunRecord, is_stale_marker};
use semconv::instruments::{Instrument, MEGATRON};
use semconv::peaks::AS_OF;
use serde::Serialize;
use serde_json::Value;
use store::SeriesInfo;
use utoipa::ToSchema;

use super::json_number;
use crate::access::Caller;
use crate::app::{App, Shared, read};
use crate::clock::to_ms;
use crate::error::ApiError;
use crate::otlp::STEP_SERIES;
use crate::peak::{self, Peak};

/// What may stand behind an instrument's name: the units that clients send with it, and what kinds add.
const SUFFIXES: [&str; 8] =
    ["", "_milliseconds", "_total", "_TFLOP_per_second", "_per_second", "_tokens_per_second", "_GB", "_GiB"];
/// Series of an instrument that are searched for values that are no numbers.
const SEARCHED_MAX: usize = 1_024;
/// Share of observations in the last bucket from which it is said.
const LAST_BUCKET_MIN: f64 = 0.05;

/// What is known of a run's training.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrainingAnswer {
    run_id: String,
    /// `nemo.run.id` of what was sent.
    ids: Vec<String>,
    export: Export,
    instruments: Vec<InstrumentRow>,
    mfu: Mfu,
    skipped: Skipped,
    /// By instrument, those that had any.
    non_finite: BTreeMap<String, NotFinite>,
    step_time: StepTime,
    switches: Vec<SwitchRow>,
}

/// Who exports, and how often.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Export {
    ranks: Vec<u32>,
    world_size: Option<u32>,
    /// Null where it is not known.
    interval_seconds: Option<f64>,
    text: String,
}

/// One instrument of the trainer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstrumentRow {
    /// The end of its name, such as `loss`.
    key: &'static str,
    display: &'static str,
    /// Its name in PromQL; null where it was never sent.
    metric: Option<String>,
    present: bool,
    series: usize,
    /// The unit on the wire.
    unit: &'static str,
    /// The unit that its values have.
    unit_meant: &'static str,
    caveat: &'static str,
    filled_by: &'static str,
    /// Why it is not there.
    text: Option<String>,
}

/// Model FLOPs utilization.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Mfu {
    present: bool,
    /// What TFLOP/s of one GPU are multiplied with.
    factor: Option<f64>,
    /// The last value; null where there is none.
    #[schema(value_type = Option<f64>)]
    ratio: Option<Value>,
    /// Dense FLOP/s of one GPU.
    peak_flops: Option<f64>,
    gpu: Option<&'static str>,
    /// The device, in its driver's words.
    gpu_name: Option<String>,
    dtype: Option<&'static str>,
    source: Option<SourceRow>,
    /// When the peak was read from its source.
    as_of: &'static str,
    /// Why it can't be told: `no_device`, `unknown_device`, `no_dtype` or `no_throughput`.
    reason: Option<&'static str>,
    text: String,
    /// Over 1: the peak or the model's formula is wrong.
    is_error: bool,
}

/// Where a figure is from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceRow {
    title: &'static str,
    url: &'static str,
}

/// Optimizer steps that were skipped.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Skipped {
    /// Null where no instrument of the trainer is there.
    total: Option<f64>,
}

/// How often an instrument was no finite number.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct NotFinite {
    nan: u64,
    positive_infinite: u64,
    negative_infinite: u64,
    last_time: Option<i64>,
    last_step: Option<i64>,
}

/// What the histogram of step times can tell.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StepTime {
    /// The greatest finite bound.
    bounds_top_ms: Option<f64>,
    /// Share of the observations beyond it.
    in_last_bucket_ratio: Option<f64>,
    text: Option<String>,
}

/// A switch of the trainer, and what it would fill.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SwitchRow {
    key: &'static str,
    text: String,
}

/// What is known of a run's training beside its points.
#[utoipa::path(get, operation_id = "readTraining", path = "/api/tg/v1/runs/{run_id}/training",
    params(("run_id" = String, Path, description = "16 hex digits")),
    responses((status = 200, body = TrainingAnswer), (status = 404, body = crate::error::ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<TrainingAnswer>, ApiError> {
    let id = super::run_id(&id)?;
    read(&app, move |shared| {
        let run = super::find_run(shared, &caller, id)?;
        answer(shared, &run, id).map(Json)
    })
    .await
}

fn answer(shared: &Shared, run: &RunRecord, id: RunId) -> Result<TrainingAnswer, ApiError> {
    let series = shared.store.run_series(id);
    let found: Vec<Found<'_>> = MEGATRON.iter().map(|instrument| Found::of(instrument, &series)).collect();
    let any = found.iter().any(|found| !found.series.is_empty());
    let mut non_finite = BTreeMap::new();
    for of in &found {
        let counted = not_finite(shared, &of.series)?;
        if counted.nan + counted.positive_infinite + counted.negative_infinite > 0 {
            non_finite.insert(of.key().to_owned(), counted);
        }
    }
    let by_key = |key: &str| found.iter().find(|found| found.key() == key).map_or(&[][..], |f| &f.series);
    let export = export(shared, run, any);
    // Series that came by OTLP have the label `instance`; those of the run's own client do not.
    let exported = found.iter().flat_map(|found| &found.series).any(|s| s.labels.get("instance").is_some());
    let has_steps = series.iter().any(|series| *series.display == *STEP_SERIES);
    Ok(TrainingAnswer {
        run_id: id.to_string(),
        ids: ids(run, &series),
        mfu: mfu(run, by_key("throughput_tflops")),
        skipped: Skipped { total: skipped(shared, by_key("skipped_iters"))?.or(any.then_some(0.0)) },
        step_time: step_time(by_key("step_duration_ms")),
        switches: switches(&found, &export, has_steps),
        instruments: found.iter().map(|found| found.row(any, exported)).collect(),
        non_finite,
        export,
    })
}

/// An instrument and the series that it has in a run.
struct Found<'s> {
    instrument: &'static Instrument,
    metric: Option<String>,
    series: Vec<&'s SeriesInfo>,
}

impl<'s> Found<'s> {
    /// Its series are those of its canonical name, or of that with the suffix of a unit that was sent.
    fn of(instrument: &'static Instrument, all: &'s [SeriesInfo]) -> Self {
        let base = model::prometheus_name(instrument.name);
        let family = |metric: &str| {
            let ends = ["_bucket", "_sum", "_count"];
            let whole = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric).to_owned();
            let is_own = whole == instrument.canonical
                || whole.strip_prefix(&*base).is_some_and(|rest| SUFFIXES.contains(&rest));
            is_own.then_some(whole)
        };
        let mut metric: Option<String> = None;
        let mut series = Vec::new();
        for one in all {
            let Some(of) = family(one.labels.metric()) else { continue };
            if metric.as_deref() != Some(instrument.canonical) {
                metric = Some(of);
            }
            series.push(one);
        }
        Self { instrument, metric, series }
    }

    fn key(&self) -> &'static str {
        self.instrument.name.rsplit('.').next().unwrap_or(self.instrument.name)
    }

    fn row(&self, any: bool, exported: bool) -> InstrumentRow {
        let Self { instrument, metric, series } = self;
        let present = !series.is_empty();
        InstrumentRow {
            key: self.key(),
            display: instrument.name,
            metric: metric.clone(),
            present,
            series: series.len(),
            unit: instrument.unit,
            unit_meant: instrument.unit_meant,
            caveat: instrument.caveat,
            filled_by: instrument.filled_by,
            text: (!present).then(|| self.why_absent(any, exported)),
        }
    }

    /// Why it is not there, by whether any other is and whether those were exported.
    fn why_absent(&self, any: bool, exported: bool) -> String {
        match self.instrument.filled_by {
            _ if !any => "No instrument of the trainer has arrived: `MEGATRON_OTEL_ENABLED=1` and \
                          `OTEL_EXPORTER_OTLP_ENDPOINT` send them, or `truegauge.training` from Python."
                .to_owned(),
            _ if !exported => format!("The script does not record it: `record({}=...)` does.", self.key()),
            "" => "The trainer sends it with the others, and it has not arrived.".to_owned(),
            filled_by => format!("The trainer does not send it; it needs {filled_by}."),
        }
    }
}

/// Values of `nemo.run.id`; the run's name where no series carries it.
fn ids(run: &RunRecord, series: &[SeriesInfo]) -> Vec<String> {
    let labelled: BTreeSet<&str> =
        series.iter().filter_map(|series| series.labels.get("nemo_run_id")).collect();
    if labelled.is_empty() && crate::otlp::has_telemetry(run) {
        return vec![run.path.run.clone()];
    }
    labelled.into_iter().map(str::to_owned).collect()
}

fn export(shared: &Shared, run: &RunRecord, any: bool) -> Export {
    let attempt = run.attempts.last().map_or(0, |attempt| attempt.number);
    let exports =
        |session: &&model::Session| session.attempt == attempt && session.facts.silent_after_seconds > 0;
    let sessions = || run.sessions.iter().filter(exports);
    let ranks: BTreeSet<u32> = sessions().filter_map(|session| session.facts.rank).collect();
    let world_size = sessions().filter_map(|session| session.facts.world_size).max();
    let mut intervals: Vec<f64> =
        sessions().filter_map(|session| shared.sources.interval_seconds(session)).collect();
    intervals.sort_by(f64::total_cmp);
    let interval_seconds = intervals.get(intervals.len() / 2).copied();
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let text = match (&ranks[..], world_size) {
        _ if sessions().next().is_none() && any => "The run's own client sends its instruments.".to_owned(),
        _ if sessions().next().is_none() => "No process of this run exports telemetry.".to_owned(),
        ([], _) => "The processes that export tell no rank.".to_owned(),
        ([rank], Some(size)) if size > 1 => format!("Rank {rank} of {size} exports."),
        ([rank], _) => format!("Rank {rank} exports."),
        (ranks, Some(size)) if ranks.len() as u32 == size => format!("All {size} ranks export."),
        (ranks, Some(size)) => format!("{} of {size} ranks export.", ranks.len()),
        (ranks, None) => format!("{} ranks export.", ranks.len()),
    };
    Export { ranks, world_size, interval_seconds, text }
}

fn mfu(run: &RunRecord, throughput: &[&SeriesInfo]) -> Mfu {
    let known = peak::of_run(run);
    let last = throughput.iter().max_by_key(|series| series.time_ns.1).map(|series| series.last);
    let mut mfu = Mfu { as_of: AS_OF, ..Mfu::default() };
    match known {
        Err(why) => {
            mfu.reason = Some(why.reason());
            mfu.text = why.text();
        }
        Ok(Peak { gpu, name, dtype, flops }) => {
            mfu.factor = Some(1e12 / flops);
            mfu.peak_flops = Some(flops);
            mfu.gpu = Some(gpu.id);
            mfu.dtype = Some(dtype.name());
            mfu.source = Some(SourceRow { title: gpu.source.title, url: gpu.source.url });
            mfu.text = format!("Of {} TFLOP/s, the dense {} peak of {name}.", flops / 1e12, dtype.name());
            mfu.gpu_name = Some(name);
        }
    }
    match (last, mfu.factor) {
        (None, Some(_)) => {
            mfu.reason = Some("no_throughput");
            mfu.text = String::from("The trainer sends no throughput: `--log-throughput` lets it.");
        }
        (Some(last), Some(factor)) => {
            let ratio = last * factor;
            mfu.present = true;
            mfu.is_error = ratio > 1.0;
            mfu.ratio = Some(json_number(ratio));
            if mfu.is_error {
                mfu.text = format!(
                    "{last:.1} TFLOP/s of one GPU is more than its peak: the number format or the device is \
                     not the one that the run says, or the trainer's model formula is wrong. {}",
                    mfu.text
                );
            }
        }
        _ => {}
    }
    mfu
}

/// What the counter of skipped steps grew by; none without a series. All ranks count the same skips.
fn skipped(shared: &Shared, series: &[&SeriesInfo]) -> Result<Option<f64>, ApiError> {
    let mut most: Option<f64> = None;
    for one in series.iter().take(SEARCHED_MAX) {
        let (mut sum, mut before) = (0.0, None);
        samples(shared, one, false, &mut |sample| {
            if sample.value.is_finite() {
                let last: f64 = before.unwrap_or(sample.value);
                sum += if sample.value >= last { sample.value - last } else { sample.value };
                before = Some(sample.value);
            }
        })?;
        most = Some(most.map_or(sum, |most| most.max(sum)));
    }
    Ok(most)
}

fn not_finite(shared: &Shared, series: &[&SeriesInfo]) -> Result<NotFinite, ApiError> {
    let mut counted = NotFinite::default();
    for one in series.iter().take(SEARCHED_MAX) {
        samples(shared, one, true, &mut |sample| {
            if sample.value.is_finite() || is_stale_marker(sample.value) {
                return;
            }
            if sample.value.is_nan() {
                counted.nan += 1;
            } else if sample.value > 0.0 {
                counted.positive_infinite += 1;
            } else {
                counted.negative_infinite += 1;
            }
            let time = Some(to_ms(sample.time_ns));
            if time >= counted.last_time {
                (counted.last_time, counted.last_step) = (time, sample.step);
            }
        })?;
    }
    Ok(counted)
}

/// Hands the samples of a series over; only of chunks with values that are no numbers, if so wanted.
fn samples(
    shared: &Shared,
    series: &SeriesInfo,
    only_odd: bool,
    take: &mut dyn FnMut(&model::Sample),
) -> Result<(), ApiError> {
    let mut failed = None;
    let read = shared.store.read(series.id, i64::MIN, i64::MAX, &mut |chunk| {
        if only_odd && chunk.summary().non_finite == 0 {
            return ControlFlow::Continue(());
        }
        match chunk.samples() {
            Ok(samples) => samples.iter().for_each(&mut *take),
            Err(error) => {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    match failed.or(read.err()) {
        None => Ok(()),
        Some(error) => Err(ApiError::internal(error.to_string())
            .hint("`truegauge doctor` and the server's log say what is damaged")),
    }
}

/// What the latest buckets say.
fn step_time(series: &[&SeriesInfo]) -> StepTime {
    let buckets = series.iter().filter_map(|series| {
        let bound: f64 = series.labels.get("le")?.parse().ok()?;
        Some((bound, series.last))
    });
    let buckets: Vec<(f64, f64)> = buckets.filter(|(_, last)| last.is_finite()).collect();
    let top = buckets
        .iter()
        .map(|(bound, _)| *bound)
        .filter(|bound| bound.is_finite())
        .fold(f64::NEG_INFINITY, f64::max);
    if !top.is_finite() {
        return StepTime::default();
    }
    let sum = |wanted: f64| -> f64 {
        buckets.iter().filter(|(bound, _)| *bound == wanted).map(|(_, last)| last).sum()
    };
    let all = sum(f64::INFINITY);
    let ratio = (all > 0.0).then(|| ((all - sum(top)) / all).clamp(0.0, 1.0));
    let text = ratio.filter(|ratio| *ratio >= LAST_BUCKET_MIN).map(|ratio| {
        let share = if ratio >= 1.0 { "All".to_owned() } else { format!("{:.0} % of the", ratio * 100.0) };
        format!(
            "{share} observations lie above the last bound of the histogram, {} s: quantiles among them read \
             as {} s whatever they are.",
            top / 1e3,
            top / 1e3
        )
    });
    StepTime { bounds_top_ms: Some(top), in_last_bucket_ratio: ratio, text }
}

fn switches(found: &[Found<'_>], export: &Export, has_steps: bool) -> Vec<SwitchRow> {
    let mut switches = Vec::new();
    let absent = |key: &str| found.iter().any(|found| found.key() == key && found.series.is_empty());
    let any = found.iter().any(|found| !found.series.is_empty());
    if !any {
        let text = "Lets the trainer export at all; `OTEL_EXPORTER_OTLP_ENDPOINT` says where to.".to_owned();
        switches.push(SwitchRow { key: "MEGATRON_OTEL_ENABLED=1", text });
    }
    if any && absent("throughput_tflops") {
        let text = "Fills TFLOP/s of a GPU, and MFU with it.".to_owned();
        switches.push(SwitchRow { key: "--log-throughput", text });
    }
    if export.ranks.len() == 1 && export.world_size.is_some_and(|size| size > 1) {
        let text = format!("{} The others would show the spread.", export.text);
        switches.push(SwitchRow { key: "MEGATRON_OTEL_EXPORT_STRATEGY=all_ranks", text });
    }
    if !has_steps {
        let text = "Fills the breakdown of steps and the timeline, and gives charts a step axis.".to_owned();
        switches.push(SwitchRow { key: "MEGATRON_OTEL_SPAN_GROUPS=per_step", text });
    }
    switches
}
