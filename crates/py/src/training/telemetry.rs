//! The handle that set-up returns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::training::{Given, Settings, Training};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::meter::Meter;
use super::state::State;
use super::values::{self, Call};
use super::{attributes, span};
use crate::errors::TruegaugeError;
use crate::notice;
use crate::run::{RunCore, wait};

/// The native half of `truegauge.training.Telemetry`.
#[pyclass(subclass, frozen, module = "truegauge._truegauge")]
pub(crate) struct TelemetryCore {
    state: Arc<State>,
    settings: Settings,
    is_recording: bool,
}

/// What a shutdown could not deliver.
///
/// Attributes:
///     lost_points: Data points that did not arrive, those of earlier losses included.
///     lost_spans: Spans likewise.
///     lost_records: Log records likewise.
///     took_ms: How long it took.
#[pyclass(frozen, get_all, module = "truegauge.training")]
pub(crate) struct ShutdownInfo {
    lost_points: u64,
    lost_spans: u64,
    lost_records: u64,
    took_ms: f64,
}

#[pymethods]
impl ShutdownInfo {
    fn __repr__(&self) -> String {
        format!(
            "ShutdownInfo(lost_points={}, lost_spans={}, lost_records={}, took_ms={:.1})",
            self.lost_points, self.lost_spans, self.lost_records, self.took_ms
        )
    }
}

/// Makes a telemetry the one that spans go to, or none.
#[pyfunction]
pub(crate) fn set_telemetry(telemetry: Option<&Bound<'_, TelemetryCore>>) {
    span::set_current(telemetry.map(|telemetry| Arc::clone(&telemetry.get().state)));
}

/// What the caller of set-up says; absent and None leave it to the environment.
fn given(settings: &Bound<'_, PyDict>) -> PyResult<Given> {
    fn get<T>(settings: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'a, Error: Into<PyErr>>,
    {
        let Some(value) = settings.get_item(name)?.filter(|value| !value.is_none()) else { return Ok(None) };
        value.extract().map(Some).map_err(Into::into)
    }
    let attributes = settings.get_item("attributes")?;
    Ok(Given {
        enabled: get(settings, "enabled")?,
        rank: get(settings, "rank")?,
        world_size: get(settings, "world_size")?,
        local_rank: get(settings, "local_rank")?,
        service_name: get(settings, "service_name")?,
        strategy: get(settings, "strategy")?,
        export_rank: get(settings, "export_rank")?,
        sample_rate: get(settings, "sample_rate")?,
        span_groups: get(settings, "span_groups")?,
        exporter: get(settings, "exporter")?,
        run_id: get(settings, "run_id")?,
        user_id: get(settings, "user_id")?,
        attributes: attributes::pairs(attributes.and_then(|found| found.cast_into().ok()).as_ref()),
        run: None,
        strict: get(settings, "strict")?.unwrap_or(false),
    })
}

fn millis(given: f64) -> Duration {
    Duration::try_from_secs_f64((given / 1000.0).clamp(0.0, 1e6)).unwrap_or_default()
}

impl TelemetryCore {
    fn training(&self) -> Option<Training> {
        self.state.training()
    }

    /// Has the run's session delivered before what is exported, within a part of `bound`, and returns
    /// what is left of that: a server that meets the export first would make a run of its own of it.
    fn introduce(&self, py: Python<'_>, training: &Training, bound: Duration) -> PyResult<Duration> {
        let Some(run) = self.state.run(py).filter(|_| training.is_exporting()) else { return Ok(bound) };
        let began = Instant::now();
        let (_, interrupt) = wait(py, |poll| run.flush(bound / 4, poll));
        interrupt.map_or_else(|| Ok(bound.saturating_sub(began.elapsed())), Err)
    }
}

#[pymethods]
impl TelemetryCore {
    #[new]
    #[pyo3(signature = (settings, run=None))]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>, run: Option<Py<RunCore>>) -> PyResult<Self> {
        let mut given = given(settings)?;
        let client = run.as_ref().and_then(|run| run.get().client_if_open());
        given.run = client.as_ref().map(client::Run::run_id);
        let settings = Settings::resolve(&given, &|name| std::env::var(name).ok())
            .map_err(|error| TruegaugeError::new_err(error.to_string()))?;
        let training = py.detach(|| Training::setup(settings.clone(), client));
        notice::say(py);
        let is_recording = training.is_recording();
        if is_recording {
            span::prepare(py)?;
        }
        Ok(Self { state: State::new(training, run), settings, is_recording })
    }

    /// Records values of a training step, or of an interval of steps.
    ///
    /// None is skipped; zero is a value, but for the counter `skipped_iters`, which takes what is above
    /// zero. A value is a number or anything that becomes one: a tensor is read here, which waits for its
    /// device. NaN and infinities are kept. What is no number, and a keyword that is not known, is left
    /// out with one warning a cause; with `strict=True` at set-up it raises.
    ///
    /// Args:
    ///     step_duration_ms: Time of a step, milliseconds.
    ///     loss: Loss.
    ///     throughput_tflops: Floating-point operations a second and GPU, in units of 10^12.
    ///     grad_norm: Global norm of the gradients.
    ///     skipped_iters: Steps that the optimizer skipped since the last call.
    ///     learning_rate: Learning rate.
    ///     tokens_per_sec: Tokens of all ranks a second.
    ///     memory_allocated_gb: Peak of this rank's GPU memory, GiB.
    ///     step: The training step, for the run's charts.
    ///     timestamp: When it was: int milliseconds, float seconds, or a `datetime`. Now by default.
    ///     **others: None is known; see above.
    ///
    /// Raises:
    ///     RefusedError: A value can't be used, with `strict=True`.
    ///     TypeError: A keyword is not known, with `strict=True`.
    ///
    /// Example:
    ///     >>> telemetry.record(loss=0.5, grad_norm=1.2, step=7)
    #[pyo3(signature = (*, step_duration_ms=None, loss=None, throughput_tflops=None, grad_norm=None, skipped_iters=None, learning_rate=None, tokens_per_sec=None, memory_allocated_gb=None, step=None, timestamp=None, **others))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python call")]
    fn record<'py>(
        &self,
        py: Python<'py>,
        step_duration_ms: Option<&Bound<'py, PyAny>>,
        loss: Option<&Bound<'py, PyAny>>,
        throughput_tflops: Option<&Bound<'py, PyAny>>,
        grad_norm: Option<&Bound<'py, PyAny>>,
        skipped_iters: Option<&Bound<'py, PyAny>>,
        learning_rate: Option<&Bound<'py, PyAny>>,
        tokens_per_sec: Option<&Bound<'py, PyAny>>,
        memory_allocated_gb: Option<&Bound<'py, PyAny>>,
        step: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        others: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        if !self.is_recording {
            return Ok(());
        }
        let values = [
            step_duration_ms,
            loss,
            throughput_tflops,
            grad_norm,
            skipped_iters,
            learning_rate,
            tokens_per_sec,
            memory_allocated_gb,
        ];
        values::record(py, &self.state, &Call { values, step, timestamp, others })
    }

    /// A meter for instruments of the program's own.
    ///
    /// Args:
    ///     scope: Name of the instrumentation; by default the trainer's, `nemo.lens`.
    ///
    /// Returns:
    ///     The meter.
    #[pyo3(signature = (scope=None))]
    fn get_meter(&self, scope: Option<&str>) -> Meter {
        Meter::new(self.is_recording.then(|| Arc::clone(&self.state)), scope)
    }

    /// Sends what there is now. On the native way that is the run's own `flush()`.
    ///
    /// Args:
    ///     timeout_ms: Bound of the wait in milliseconds.
    ///
    /// Returns:
    ///     Whether all of it arrived.
    #[pyo3(signature = (timeout_ms=5000.0))]
    fn force_flush(&self, py: Python<'_>, timeout_ms: f64) -> PyResult<bool> {
        let Some(training) = self.training() else { return Ok(true) };
        let bound = self.introduce(py, &training, millis(timeout_ms))?;
        let (arrived, interrupt) = wait(py, |poll| training.force_flush(bound, poll));
        notice::say(py);
        interrupt.map_or(Ok(arrived), Err)
    }

    /// Ends it within the bound; a second call does nothing.
    fn end(&self, py: Python<'_>, timeout_ms: f64) -> PyResult<ShutdownInfo> {
        let Some(training) = self.training() else {
            return Ok(ShutdownInfo { lost_points: 0, lost_spans: 0, lost_records: 0, took_ms: 0.0 });
        };
        let began = Instant::now();
        let bound = self.introduce(py, &training, millis(timeout_ms))?;
        let (outcome, interrupt) = wait(py, |poll| training.shutdown(bound, poll));
        notice::say(py);
        let info = ShutdownInfo {
            lost_points: outcome.lost_points,
            lost_spans: outcome.lost_spans,
            lost_records: outcome.lost_records,
            took_ms: began.elapsed().as_secs_f64() * 1000.0,
        };
        interrupt.map_or(Ok(info), Err)
    }

    /// What was recorded, sent and lost since set-up: `recorded`, `sent_points`, `sent_spans`,
    /// `sent_records`, `lost_points`, `lost_spans`, `lost_records`, `after_shutdown`.
    ///
    /// Returns:
    ///     Counts by name.
    fn totals(&self) -> BTreeMap<&'static str, u64> {
        let totals = self.training().map(|training| training.totals()).unwrap_or_default();
        BTreeMap::from([
            ("recorded", totals.recorded),
            ("sent_points", totals.sent_points),
            ("sent_spans", totals.sent_spans),
            ("sent_records", totals.sent_records),
            ("lost_points", totals.lost_points),
            ("lost_spans", totals.lost_spans),
            ("lost_records", totals.lost_records),
            ("after_shutdown", totals.after_shutdown),
        ])
    }

    /// In a forked child: the parent's threads and locks are not to be touched any more.
    fn after_fork(&self) {
        self.state.after_fork();
    }

    /// Whether this process has used it since it was forked or since set-up.
    #[getter]
    fn is_own(&self) -> bool {
        self.state.is_own()
    }

    /// Whether values come to anything: this rank exports, or a run is open.
    #[getter]
    fn is_exporting(&self) -> bool {
        self.is_recording
    }

    /// Whether this rank exports by OTLP or to the console.
    #[getter]
    fn exports_otlp(&self) -> bool {
        self.settings.exports
    }

    /// Whether the export is switched on, for whichever ranks.
    #[getter]
    fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Whether log records are exported from this rank.
    #[getter]
    fn exports_logs(&self) -> bool {
        self.settings.exports && self.settings.logs
    }

    /// The run's id, `nemo.run.id`.
    #[getter]
    fn run_id(&self) -> &str {
        &self.settings.run_id
    }

    /// `service.instance.id`: the run's id and the rank.
    #[getter]
    fn instance_id(&self) -> &str {
        &self.settings.instance_id
    }

    /// Rank in the world.
    #[getter]
    fn rank(&self) -> u32 {
        self.settings.rank
    }

    /// Ranks in the world.
    #[getter]
    fn world_size(&self) -> u32 {
        self.settings.world_size
    }

    /// The groups whose spans are wanted, sorted; none on a rank that exports no spans.
    #[getter]
    fn span_groups(&self) -> &[String] {
        &self.settings.span_groups
    }

    /// The scope of the trainer's instruments.
    #[getter]
    fn is_strict(&self) -> bool {
        self.settings.strict
    }

    /// Takes a log record of Python's `logging`.
    #[pyo3(signature = (time_ns, severity, severity_text, scope, body, attributes=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python call")]
    fn log_record(
        &self,
        py: Python<'_>,
        time_ns: i64,
        severity: u8,
        severity_text: String,
        scope: String,
        body: String,
        attributes: Option<&Bound<'_, PyDict>>,
    ) {
        let within = span::within(py);
        let record = model::LogRecord {
            time_ns,
            severity,
            severity_text,
            scope,
            body,
            attributes: attributes::pairs(attributes),
            trace: within.map(|span| span.trace),
            span: within.map(|span| span.id),
            ..model::LogRecord::default()
        };
        self.state.with(|training, _live| training.log(record));
    }
}
