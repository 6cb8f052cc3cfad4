//! What `flush` and `close` found.

use client::{CloseOutcome, FlushOutcome};
use pyo3::prelude::*;

/// Where what was logged before a `flush()` is.
///
/// Attributes:
///     where: `server`, `spool`, `incomplete` when some of it is only in memory, or `nothing` for a
///         run that is closed or disabled.
///     is_durable: Whether it outlives the process.
///     spool_dir: The spool on disk, when some of it is there.
#[pyclass(frozen, module = "truegauge")]
pub(crate) struct FlushInfo {
    #[pyo3(get, name = "where")]
    place: &'static str,
    #[pyo3(get)]
    spool_dir: Option<String>,
}

impl FlushInfo {
    /// For a run that holds nothing.
    pub(crate) fn nothing() -> Self {
        Self { place: "nothing", spool_dir: None }
    }
}

impl From<FlushOutcome> for FlushInfo {
    fn from(outcome: FlushOutcome) -> Self {
        match outcome {
            FlushOutcome::Server => Self { place: "server", spool_dir: None },
            FlushOutcome::Spool { dir } => {
                Self { place: "spool", spool_dir: Some(dir.to_string_lossy().into_owned()) }
            }
            FlushOutcome::Incomplete { .. } => Self { place: "incomplete", spool_dir: None },
        }
    }
}

#[pymethods]
impl FlushInfo {
    #[getter]
    fn is_durable(&self) -> bool {
        matches!(self.place, "server" | "spool")
    }

    fn __repr__(&self) -> String {
        format!("FlushInfo(where='{}', spool_dir={})", self.place, quoted(self.spool_dir.as_deref()))
    }
}

/// What is left after a `close()`.
///
/// Attributes:
///     undelivered_batches: Requests that are not with the server.
///     undelivered_bytes: Their bytes on disk.
///     has_undelivered_spool: Whether a spool holds them.
///     spool_dir: That spool.
///     hint: What is left, where, and the command that sends it.
#[pyclass(frozen, module = "truegauge")]
pub(crate) struct CloseInfo {
    #[pyo3(get)]
    undelivered_batches: u64,
    #[pyo3(get)]
    undelivered_bytes: u64,
    #[pyo3(get)]
    spool_dir: Option<String>,
    #[pyo3(get)]
    hint: Option<String>,
}

impl CloseInfo {
    /// For a run that was closed before or is disabled.
    pub(crate) fn nothing() -> Self {
        Self { undelivered_batches: 0, undelivered_bytes: 0, spool_dir: None, hint: None }
    }
}

impl From<CloseOutcome> for CloseInfo {
    fn from(outcome: CloseOutcome) -> Self {
        Self {
            undelivered_batches: outcome.undelivered_batches,
            undelivered_bytes: outcome.undelivered_bytes,
            spool_dir: outcome.spool_dir.map(|dir| dir.to_string_lossy().into_owned()),
            hint: outcome.hint,
        }
    }
}

#[pymethods]
impl CloseInfo {
    #[getter]
    fn has_undelivered_spool(&self) -> bool {
        self.spool_dir.is_some()
    }

    fn __repr__(&self) -> String {
        format!(
            "CloseInfo(undelivered_batches={}, undelivered_bytes={}, spool_dir={})",
            self.undelivered_batches,
            self.undelivered_bytes,
            quoted(self.spool_dir.as_deref())
        )
    }
}

fn quoted(text: Option<&str>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("'{text}'"))
}
