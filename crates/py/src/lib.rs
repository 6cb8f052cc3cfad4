//! The native half of the Python package `truegauge`: Python types to the client's calls.
//!
//! Everything a user sees is named and documented in `python/truegauge/`; here is what must be fast
//! (`log`) and what must not hold the GIL (`flush`, `close`).

mod attribute;
mod config;
mod errors;
mod frameworks;
mod moment;
mod notice;
mod number;
mod outcome;
mod run;
mod series;
mod training;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::PyMapping;

use crate::run::{Call, RunCore};

/// The run that the module's own functions speak of.
static CURRENT: Mutex<Option<Py<RunCore>>> = Mutex::new(None);
static EARLY_SAID: AtomicBool = AtomicBool::new(false);

/// Logs to the current run: a point, the points of a mapping, or one point for each item of an array.
///
/// A value is a number, or one-dimensional: a list, a numpy array, a tensor, anything with
/// `tolist`, DLPack, `__array_interface__` or the sequence protocol. A tensor on a device is copied,
/// which waits for the device. NaN and infinities are kept as they are. What is not a number (None,
/// text, complex numbers, nested lists) is not kept: it is counted and warned of once per cause.
///
/// Args:
///     name: Name of the metric, at most 256 bytes without control characters; or a mapping of names to
///         values.
///     value: The value; left out with a mapping.
///     step: None goes on after the series' last step, or takes that of `step()`; a whole number is the
///         (first) point's; a sequence gives one to each item.
///     labels: Text to text or number, at most 64 bytes each; they are part of the series' identity.
///     scale: What steps count, `ML_STEP` by default.
///     timestamp: When it was: int milliseconds, float seconds, or a `datetime` (a naive one is local
///         time). Now by default.
///     evaluation: True or False becomes the label `evaluation`, `"true"` or `"false"`.
///     strict: Raise on bad input, whatever `init(strict=...)` says.
///
/// Raises:
///     RefusedError: Something was not kept, and the call or run is strict.
///
/// Example:
///     >>> tg.log({"loss": 0.5, "lr": 3e-4}, step=7, labels={"split": "train"})
#[pyfunction]
#[pyo3(signature = (name, value=None, *, step=None, labels=None, scale=None, timestamp=None, evaluation=None, strict=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python call")]
fn log<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyAny>,
    value: Option<&Bound<'py, PyAny>>,
    step: Option<&Bound<'py, PyAny>>,
    labels: Option<&Bound<'py, PyAny>>,
    scale: Option<&Bound<'py, PyAny>>,
    timestamp: Option<&Bound<'py, PyAny>>,
    evaluation: Option<&Bound<'py, PyAny>>,
    strict: Option<bool>,
) -> PyResult<()> {
    let current =
        CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|run| run.clone_ref(py));
    let Some(run) = current else {
        warn_no_run(py);
        return Ok(());
    };
    run.get().take(py, name, value, &Call { step, labels, scale, timestamp, evaluation, strict })
}

/// Makes a run the current one, or none.
#[pyfunction]
#[pyo3(signature = (run))]
fn set_current(run: Option<Py<RunCore>>) {
    EARLY_SAID.store(false, Ordering::Relaxed);
    let earlier = {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, run)
    };
    // Outside the lock: letting go of a run may run Python code.
    drop(earlier);
}

/// Says that a call found no open run; once until there is one.
#[pyfunction]
fn warn_no_run(py: Python<'_>) {
    if !EARLY_SAID.swap(true, Ordering::Relaxed) {
        notice::warn(py, "no run is open: the call has no effect (call `truegauge.init()` first)");
    }
}

/// Warns as the client does: never raises.
#[pyfunction]
fn warn(py: Python<'_>, message: &str) {
    notice::warn(py, message);
}

#[pymodule]
fn _truegauge(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Looked up now, not at the first use: that imports, which lets other threads run, and a child
    // forked meanwhile would wait for ever for the thread that was at it.
    drop(PyMapping::type_object(py));
    frameworks::prepare(py)?;
    client::set_warning_hook(|warning| notice::put(warning.message));
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("TruegaugeError", py.get_type::<errors::TruegaugeError>())?;
    module.add("RefusedError", py.get_type::<errors::RefusedError>())?;
    module.add("TruegaugeWarning", py.get_type::<errors::TruegaugeWarning>())?;
    module.add_class::<RunCore>()?;
    module.add_class::<outcome::FlushInfo>()?;
    module.add_class::<outcome::CloseInfo>()?;
    module.add_function(wrap_pyfunction!(log, module)?)?;
    module.add_function(wrap_pyfunction!(set_current, module)?)?;
    module.add_function(wrap_pyfunction!(warn, module)?)?;
    module.add_function(wrap_pyfunction!(warn_no_run, module)?)?;
    module.add_function(wrap_pyfunction!(config::settings, module)?)?;
    module.add_function(wrap_pyfunction!(config::path_of, module)?)?;
    training::add(module)
}
