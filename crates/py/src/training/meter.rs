//! Meters and instruments with the methods that OpenTelemetry's have, so that code written for those
//! records here as well.

use std::sync::{Arc, Mutex, PoisonError};

use client::training::{InstrumentKind, InstrumentSpec, SCOPE};
use model::MetricKind;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use semconv::instruments::{INFERENCE, MEGATRON};

use super::state::State;
use super::values::{self, Call, When};
use super::{attributes, span};
use crate::notice;
use crate::number;

/// Makes instruments. Without anything to record to, those do nothing.
#[pyclass(frozen, weakref, module = "truegauge.training")]
pub(crate) struct Meter {
    state: Option<Arc<State>>,
    scope: String,
}

impl Meter {
    pub(crate) fn new(state: Option<Arc<State>>, scope: Option<&str>) -> Self {
        Self { state, scope: scope.unwrap_or(SCOPE).to_owned() }
    }

    fn make(&self, kind: InstrumentKind, name: &str, words: (&str, &str), bounds: Vec<f64>) -> Instrument {
        let (unit, description) = words;
        let spec = Spec {
            scope: self.scope.clone(),
            name: name.to_owned(),
            kind,
            unit: unit.to_owned(),
            description: description.to_owned(),
            bounds,
        };
        Instrument { state: self.state.clone(), spec, made: Mutex::default() }
    }
}

#[pymethods]
impl Meter {
    /// Makes a gauge, which keeps the last value.
    ///
    /// Args:
    ///     name: Its name, dotted: a letter, then letters, digits, `_`, `.`, `-` and `/`.
    ///     unit: Unit on the wire.
    ///     description: What it measures.
    ///
    /// Returns:
    ///     The instrument.
    #[pyo3(signature = (name, unit="", description=""))]
    fn create_gauge(
        &self,
        py: Python<'_>,
        name: &str,
        unit: &str,
        description: &str,
    ) -> PyResult<Instrument> {
        self.make(InstrumentKind::Gauge, name, (unit, description), Vec::new()).checked(py)
    }

    /// Makes a counter, which adds up what is above zero.
    ///
    /// Args:
    ///     name: Its name, as of a gauge.
    ///     unit: Unit on the wire.
    ///     description: What it counts.
    ///
    /// Returns:
    ///     The instrument.
    #[pyo3(signature = (name, unit="", description=""))]
    fn create_counter(
        &self,
        py: Python<'_>,
        name: &str,
        unit: &str,
        description: &str,
    ) -> PyResult<Instrument> {
        self.make(InstrumentKind::Counter, name, (unit, description), Vec::new()).checked(py)
    }

    /// Makes a counter that may go down too.
    ///
    /// Args:
    ///     name: Its name, as of a gauge.
    ///     unit: Unit on the wire.
    ///     description: What it counts.
    ///
    /// Returns:
    ///     The instrument.
    #[pyo3(signature = (name, unit="", description=""))]
    fn create_up_down_counter(
        &self,
        py: Python<'_>,
        name: &str,
        unit: &str,
        description: &str,
    ) -> PyResult<Instrument> {
        self.make(InstrumentKind::UpDownCounter, name, (unit, description), Vec::new()).checked(py)
    }

    /// Makes a histogram, which counts values by size.
    ///
    /// Args:
    ///     name: Its name, as of a gauge.
    ///     unit: Unit on the wire.
    ///     description: What it measures.
    ///     explicit_bucket_boundaries_advisory: Upper bounds of the buckets.
    ///
    /// Returns:
    ///     The instrument.
    #[pyo3(signature = (name, unit="", description="", *, explicit_bucket_boundaries_advisory=None))]
    fn create_histogram(
        &self,
        py: Python<'_>,
        name: &str,
        unit: &str,
        description: &str,
        explicit_bucket_boundaries_advisory: Option<Vec<f64>>,
    ) -> PyResult<Instrument> {
        let bounds = explicit_bucket_boundaries_advisory.unwrap_or_default();
        self.make(InstrumentKind::Histogram, name, (unit, description), bounds).checked(py)
    }

    /// Whether what its instruments take comes to anything.
    #[getter]
    fn is_recording(&self) -> bool {
        self.state.is_some()
    }
}

/// Takes values. `set`, `add` and `record` are OpenTelemetry's names for the same thing: a gauge keeps
/// the last value, counters add, a histogram counts.
#[pyclass(frozen, weakref, module = "truegauge.training")]
pub(crate) struct Instrument {
    state: Option<Arc<State>>,
    spec: Spec,
    /// For which generation of the shared state, and what it is; None where it was refused.
    made: Mutex<Option<(u64, Option<client::training::Instrument>)>>,
}

struct Spec {
    scope: String,
    name: String,
    kind: InstrumentKind,
    unit: String,
    description: String,
    bounds: Vec<f64>,
}

impl Instrument {
    /// Makes it now, so that what is wrong is said where it was written.
    fn checked(self, py: Python<'_>) -> PyResult<Self> {
        if let Some(state) = &self.state
            && let Err(found) = self.instrument(state)
        {
            state.complain(py, &found, &format!("an instrument is not made: {found}"))?;
        }
        Ok(self)
    }

    fn instrument(&self, state: &State) -> Result<Option<client::training::Instrument>, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = state.with(|_training, live| live.generation).unwrap_or_default();
        if let Some((of, instrument)) = *made
            && of == generation
        {
            return Ok(instrument);
        }
        let spec = InstrumentSpec {
            scope: &self.spec.scope,
            name: &self.spec.name,
            kind: self.spec.kind,
            unit: &self.spec.unit,
            description: &self.spec.description,
            bounds: &self.spec.bounds,
            is_int: false,
        };
        let found = state.with(|training, _live| training.instrument(&spec));
        let result = found.transpose().map_err(|error| error.to_string());
        *made = Some((generation, result.clone().ok().flatten()));
        result
    }

    fn take(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        when: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    ) -> PyResult<()> {
        let Some(state) = &self.state else { return Ok(()) };
        let number = match number::native(value) {
            Some(number) => Some(number),
            None => values::one(state, &self.spec.name, value)?,
        };
        let Some(number) = number else { return Ok(()) };
        let Ok(Some(instrument)) = self.instrument(state) else { return Ok(()) };
        let when = When::read(state, when.0, when.1)?;
        let pairs = attributes::of(attributes);
        let within = span::within(py);
        let refused = state.with(|training, _live| {
            let instrument = if pairs.is_empty() {
                instrument
            } else {
                training
                    .with_attributes(instrument, &attributes::borrowed(&pairs))
                    .map_err(|error| error.to_string())?
            };
            training.record(&[(instrument, number)], span::moment(when, within));
            Ok::<(), String>(())
        });
        if let Some(Err(found)) = refused {
            state.complain(py, &found, &format!("a value is not recorded: {found}"))?;
        }
        notice::say(py);
        Ok(())
    }
}

#[pymethods]
impl Instrument {
    /// Takes a value.
    ///
    /// Args:
    ///     amount: A number; None is skipped.
    ///     attributes: Scalars that make it a series of its own.
    ///     step: The training step, for the run's charts.
    ///     timestamp: When it was, as of `Telemetry.record`.
    #[pyo3(signature = (amount, attributes=None, *, step=None, timestamp=None))]
    fn set(
        &self,
        py: Python<'_>,
        amount: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.take(py, amount, attributes, (step, timestamp))
    }

    /// Takes a value; see `set`.
    #[pyo3(signature = (amount, attributes=None, *, step=None, timestamp=None))]
    fn add(
        &self,
        py: Python<'_>,
        amount: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.take(py, amount, attributes, (step, timestamp))
    }

    /// Takes a value; see `set`.
    #[pyo3(signature = (amount, attributes=None, *, step=None, timestamp=None))]
    fn record(
        &self,
        py: Python<'_>,
        amount: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.take(py, amount, attributes, (step, timestamp))
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }
}

/// How the record of a meter that is not ours is found.
static FOREIGN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Records the eight training values through a meter, as Megatron-LM's function of the same name does.
///
/// A meter of `Telemetry` is the fast one. With one of OpenTelemetry's the instruments are made on the
/// first call and kept as long as the meter lives. None does nothing.
///
/// Args:
///     meter: The meter, or None.
///     step_duration_ms: As of `Telemetry.record`, and so are all others.
///     loss: Loss.
///     throughput_tflops: Floating-point operations a second and GPU, in units of 10^12.
///     grad_norm: Global norm of the gradients.
///     skipped_iters: Steps that the optimizer skipped since the last call.
///     learning_rate: Learning rate.
///     tokens_per_sec: Tokens of all ranks a second.
///     memory_allocated_gb: Peak of this rank's GPU memory, GiB.
///     step: The training step; a meter of OpenTelemetry's has no place for it.
///     timestamp: When it was; likewise.
///     **others: None is known.
///
/// Example:
///     >>> record_training_metrics(telemetry.meter, loss=0.5, grad_norm=1.2)
#[pyfunction]
#[pyo3(signature = (meter, *, step_duration_ms=None, loss=None, throughput_tflops=None, grad_norm=None, skipped_iters=None, learning_rate=None, tokens_per_sec=None, memory_allocated_gb=None, step=None, timestamp=None, **others))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python call")]
pub(crate) fn record_training_metrics<'py>(
    py: Python<'py>,
    meter: &Bound<'py, PyAny>,
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
    if let Ok(meter) = meter.cast_exact::<Meter>() {
        let Some(state) = &meter.get().state else { return Ok(()) };
        return values::record(py, state, &Call { values, step, timestamp, others });
    }
    if meter.is_none() {
        return Ok(());
    }
    let given = PyDict::new(py);
    for (at, value) in values.iter().enumerate() {
        if let Some(value) = value {
            given.set_item(values::key(at), value)?;
        }
    }
    let unknown = others.map(PyDictMethods::keys);
    FOREIGN.import(py, "truegauge.training._foreign", "record_training")?.call1((meter, given, unknown))?;
    Ok(())
}

/// Rows of [`training_instruments`].
type Rows = Vec<(&'static str, &'static str, &'static str, &'static str, &'static str)>;

/// The known instruments: group, name, kind, unit and description.
#[pyfunction]
pub(crate) fn training_instruments() -> Rows {
    let rows = MEGATRON.iter().map(|row| ("training", row));
    rows.chain(INFERENCE.iter().map(|row| ("inference", row)))
        .map(|(group, row)| {
            let kind = match row.kind {
                MetricKind::Counter => "counter",
                MetricKind::Histogram => "histogram",
                _ => "gauge",
            };
            (group, row.name, kind, row.unit, row.help)
        })
        .collect()
}
