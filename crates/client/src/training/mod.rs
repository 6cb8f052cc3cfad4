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

mod collect;
mod console;
mod context;

mod groups;
mod grpc;
mod http;
mod identity;
mod instrument;
mod lane;
mod live;
mod meter;
mod reader;
mod resource;
mod sender;
mod settings;
mod span;
mod strategy;
mod targets;

use std::sync::Arc;
use std::time::Duration;

use model::{AttributeValue, LogRecord};

use self::live::Core;
use crate::Run;
use crate::shared::lock;

pub use context::SpanContext;
pub use groups::{GroupError, is_known_group, known_groups, register_group, unregister_group};
pub use identity::RunIdSource;
pub use instrument::{
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

/// Bound of the shutdown of a set-up that is dropped without one.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);
/// How we introduce ourselves to backends.
const USER_AGENT: &str = concat!("truegauge/", env!("CARGO_PKG_VERSION"));

/// The telemetry of a training in this process. Cheap to clone; usable from any thread. When the last
/// clone goes without a shutdown, it is shut down within 5 s.
#[derive(Debug, Clone)]
pub struct Training {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    run: Option<Run>,
    /// None where nothing is recorded: nothing is made then, and nothing started.
    core: Option<Arc<Core>>,
}

impl Training {
    /// Sets up what the settings ask for. Never fails and waits for nothing. Without export and
    /// without a run nothing is made and nothing started.
    pub fn setup(settings: Settings, run: Option<Run>) -> Self {
        let mut settings = settings;
        for warning in std::mem::take(&mut settings.warnings) {
            crate::warning::emit(warning);
        }
        Self::new(Arc::new(settings), run)
    }

    fn new(settings: Arc<Settings>, run: Option<Run>) -> Self {
        let is_recording = settings.exports || run.is_some();
        let core = is_recording.then(|| Core::start(&settings, run.clone()));
        Self { inner: Arc::new(Inner { settings, run, core }) }
    }

    /// One for a process that was forked from this one. It exports nothing, since two processes under
    /// one instance id would spoil each other's sums; values still go to `run`. Instruments of this one
    /// are not known to it.
    #[must_use]
    pub fn forget_after_fork(&self, run: Option<Run>) -> Self {
        // One more owner that never goes: what the parent's threads held is never dropped here.
        std::mem::forget(Arc::clone(&self.inner));
        let settings =
            Settings { exports: false, span_groups: Vec::new(), ..Settings::clone(&self.inner.settings) };
        Self::new(Arc::new(settings), run)
    }

    fn core(&self) -> Option<&Arc<Core>> {
        self.inner.core.as_ref()
    }

    /// Whether this rank exports through OTLP or to the console.
    pub fn is_exporting(&self) -> bool {
        self.inner.settings.exports
    }

    /// Whether values come to anything: this rank exports, or there is a run.
    pub fn is_recording(&self) -> bool {
        self.inner.core.is_some()
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The run that values go to, if there is one.
    pub fn run(&self) -> Option<&Run> {
        self.inner.run.as_ref()
    }

    /// The run's id, `nemo.run.id`: the same on all ranks where anything ties them together.
    pub fn run_id(&self) -> &str {
        &self.inner.settings.run_id
    }

    /// `service.instance.id`: the run's id and the rank.
    pub fn instance_id(&self) -> &str {
        &self.inner.settings.instance_id
    }

    /// The instrument of a description; the same description gives the same instrument. Where nothing
    /// is recorded it is one that does nothing.
    pub fn instrument(&self, spec: &InstrumentSpec<'_>) -> Result<Instrument, InstrumentError> {
        match self.core() {
            Some(core) => lock(&core.meter).instrument(spec, Core::now_ns()),
            None => Ok(Instrument::default()),
        }
    }

    /// The same instrument with attributes on its points. Cheap to keep, made once a set; beyond
    /// [`STREAMS_MAX`] sets of an instrument all others share `otel.metric.overflow`.
    pub fn with_attributes(
        &self,
        instrument: Instrument,
        attributes: Attributes<'_>,
    ) -> Result<Instrument, InstrumentError> {
        match self.core() {
            Some(core) => lock(&core.meter).with_attributes(instrument, attributes, Core::now_ns()),
            None => Ok(instrument),
        }
    }

    /// Takes one value of each of several instruments, with one time and step. Never fails, never
    /// waits. A counter takes what is above zero; NaN and infinities are values of gauges.
    pub fn record(&self, values: &[(Instrument, f64)], moment: Moment) {
        if let Some(core) = self.core() {
            let now_ns = Core::now_ns();
            let is_refused = lock(&core.meter).record(values, &moment, now_ns);
            if is_refused {
                core.say_refused();
            }
        }
    }

    /// The groups whose spans are wanted, sorted; none on a rank that exports no spans.
    pub fn groups(&self) -> &[String] {
        &self.inner.settings.span_groups
    }

    /// Whether spans of a group are wanted.
    pub fn is_group_enabled(&self, group: &str) -> bool {
        self.groups().binary_search_by(|known| known.as_str().cmp(group)).is_ok()
    }

    /// Whether spans are exported at all, as [`Training::start`] asks.
    pub fn is_tracing(&self) -> bool {
        self.inner.settings.records_spans()
    }

    /// Starts a span now, in `scope`. Without export it is one that does nothing.
    pub fn start(
        &self,
        scope: &str,
        name: &str,
        parent: Option<SpanContext>,
        attributes: Attributes<'_>,
    ) -> Span {
        match self.core() {
            Some(core) if self.is_tracing() => span::start(core, (scope, name), parent, attributes),
            _ => Span::default(),
        }
    }

    /// Takes a log record; times, severity, scope, body, attributes and trace are read of it.
    pub fn log(&self, record: LogRecord) {
        if let Some(core) = self.core().filter(|_| self.is_exporting() && self.inner.settings.logs) {
            core.take_record(record);
        }
    }

    /// Sends what there is now, and says whether all of it arrived in time. A backend that does not
    /// answer is tried once. `poll` is asked every 50 ms whether to give up waiting.
    pub fn force_flush(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> bool {
        self.core().is_none_or(|core| core.flush(timeout, poll))
    }

    /// Ends everything within `timeout`: open spans end as cut short, what waits is sent once more,
    /// what does not arrive is counted. Later calls are no-ops, and so are later values. The run, if
    /// there is one, goes on.
    pub fn shutdown(&self, timeout: Duration, poll: &mut dyn FnMut() -> bool) -> Shutdown {
        self.core().map(|core| core.shutdown(timeout, poll)).unwrap_or_default()
    }

    /// What became of everything so far.
    pub fn totals(&self) -> Totals {
        self.core().map(|core| core.totals()).unwrap_or_default()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(core) = self.core.take() else { return };
        if core.is_of_this_process() {
            core.shutdown(DROP_TIMEOUT, &mut || false);
        } else {
            // Behind a fork nothing inherited may be locked or dropped.
            std::mem::forget(core);
            std::mem::forget(self.run.take());
        }
    }
}
