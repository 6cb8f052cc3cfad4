//! What a rank says by OpenTelemetry beside its run, as Megatron-LM does.

use std::cell::Cell;
use std::time::Duration;

use client::Run;
use client::training::{Given, Instrument, InstrumentKind, InstrumentSpec, Moment, Settings, Span, Training};
use model::AttributeValue;
use simulate::{Job, Step};

use super::Play;
use crate::output::Failure;

/// How often it is sent, milliseconds: short, since a scenario is.
const EXPORT_MS: &str = "5000";
/// The span of a step.
const ITERATION: &str = "megatron.train.iteration";
/// How long the end waits for what is left.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The instruments of a rank.
pub(super) struct Telemetry {
    training: Training,
    step: Instrument,
    /// Ranks of the last pipeline stage have the loss.
    loss: Option<Instrument>,
    /// The step that is under way.
    step_span: Cell<Span>,
}

impl Telemetry {
    /// Sets up OTLP to the server of the play, for the run of this rank; none where the job wants none.
    pub(super) fn of(play: &Play, job: &Job, rank: usize, run: &Run) -> Result<Option<Self>, Failure> {
        if !job.group().otlp {
            return Ok(None);
        }
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("cannot send OpenTelemetry of rank {rank}: {error}"))
        };
        let (host, _) = &job.ranks()[rank];
        let given = Given {
            enabled: Some(true),
            service_name: Some(job.group().project.clone()),
            strategy: Some("all_ranks".to_owned()),
            span_groups: Some("per_step".to_owned()),
            attributes: vec![("host.name".to_owned(), AttributeValue::Text(host.clone()))],
            run: Some(run.run_id()),
            strict: true,
            ..Given::default()
        };
        let settings = Settings::resolve(&given, &|name| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => play.server.clone(),
            "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("http/protobuf".to_owned()),
            "OTEL_METRIC_EXPORT_INTERVAL" => Some(EXPORT_MS.to_owned()),
            _ => std::env::var(name).ok(),
        })
        .map_err(|error| failed(&error))?;
        let training = Training::setup(settings, None);
        let spec = InstrumentSpec::new("megatron.training.step_duration_ms", InstrumentKind::Histogram);
        let step = training.instrument(&InstrumentSpec { unit: "ms", ..spec }).map_err(|e| failed(&e))?;
        let is_last_stage = job.stage(rank) == job.stage(job.ranks().len() - 1);
        let loss =
            is_last_stage.then(|| training.instrument(&InstrumentSpec::gauge("megatron.training.loss")));
        let loss = loss.transpose().map_err(|error| failed(&error))?;
        Ok(Some(Self { training, step, loss, step_span: Cell::default() }))
    }

    /// Takes a step that begins now.
    pub(super) fn begin(&self, step: &Step) {
        let number = [("megatron.iteration", AttributeValue::Int(step.number as i64))];
        self.step_span.set(self.training.start("simulate", ITERATION, None, &number));
    }

    /// Takes a step that is done.
    pub(super) fn record(&self, step: &Step, loss: f64, time_ns: i64) {
        let mut values = vec![(self.step, step.length * 1e3)];
        self.step_span.take().end(Some(time_ns));
        values.extend(self.loss.map(|instrument| (instrument, loss)));
        let moment = Moment { step: Some(step.number as i64), time_ns: Some(time_ns), span: None };
        self.training.record(&values, moment);
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.training.shutdown(END_WITHIN, &mut || false);
    }
}
