//! Spans: context managers that cost next to nothing while their group is off.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::training::{Moment, SpanContext};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use super::attributes;
use super::state::State;
use super::values::When;
use crate::notice;

/// Scope of spans that name none, as the reference has it.
const HELPERS: &str = "nemo.lens.helpers";

/// Which telemetry spans go to, and which groups are on.
#[derive(Default)]
struct Current {
    state: Option<Arc<State>>,
    /// A handful at most, so that looking through them is quicker than a tree.
    groups: Vec<String>,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { state: None, groups: Vec::new() });
/// Whether spans come to anything; the one thing a disabled span looks at.
static IS_TRACING: AtomicBool = AtomicBool::new(false);
/// Spans that are entered and not left. While there are none, nobody asks for the current one.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The context manager of a span that is off: one for all.
static NONE: PyOnceLock<Py<NoSpan>> = PyOnceLock::new();
/// The context variable that holds the current span, as its bound methods.
static VARIABLE: PyOnceLock<Variable> = PyOnceLock::new();

struct Variable {
    get: Py<PyAny>,
    set: Py<PyAny>,
    reset: Py<PyAny>,
}

fn current() -> MutexGuard<'static, Current> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a telemetry the one that spans go to.
pub(crate) fn set_current(state: Option<Arc<State>>) {
    let traced = state
        .as_ref()
        .and_then(|state| state.with(|training, _live| (training.is_tracing(), training.groups().to_vec())));
    let (is_tracing, groups) = traced.unwrap_or_default();
    let earlier = {
        let mut current = current();
        IS_TRACING.store(is_tracing, Ordering::Relaxed);
        std::mem::replace(&mut *current, Current { state: state.filter(|_| is_tracing), groups })
    };
    // Outside the lock: letting go of a telemetry may take its time.
    drop(earlier);
}

/// Makes the context variable, once.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    VARIABLE.get_or_try_init(py, || {
        let default = PyDict::new(py);
        default.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let variable = class.call(("truegauge_span",), Some(&default))?;
        let method = |name: &str| variable.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>(Variable { get: method("get")?, set: method("set")?, reset: method("reset")? })
    })?;
    Ok(())
}

/// The span that this thread or task is in.
#[inline]
pub(crate) fn within(py: Python<'_>) -> Option<SpanContext> {
    if OPEN.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let found = VARIABLE.get(py)?.get.bind(py).call0().ok()?;
    found.cast_exact::<Span>().ok()?.get().context()
}

/// As the client takes it.
pub(crate) fn moment(when: When, span: Option<SpanContext>) -> Moment {
    Moment { step: when.step, time_ns: when.time_ns, span }
}

/// Stands for a span that is off: `with` gives None.
#[pyclass(frozen, module = "truegauge._truegauge")]
pub(crate) struct NoSpan;

#[pymethods]
impl NoSpan {
    #[expect(clippy::unused_self, reason = "called by `with`")]
    fn __enter__(&self) {}

    #[expect(clippy::unused_self, reason = "called by `with`")]
    #[pyo3(signature = (_kind, _error, _trace))]
    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {}
}

fn none(py: Python<'_>) -> PyResult<Py<PyAny>> {
    Ok(NONE.get_or_try_init(py, || Py::new(py, NoSpan))?.clone_ref(py).into_any())
}

/// A span of the program; made by `managed_span` and `span_cm`, begun by `with`.
///
/// Its methods may be called from any thread. After its end they do nothing.
#[pyclass(frozen, module = "truegauge.training")]
pub(crate) struct Span {
    stage: Mutex<Stage>,
}

enum Stage {
    /// Not begun: where to, its name and attributes.
    Made(Arc<State>, Py<PyString>, Option<Py<PyDict>>),
    /// Begun: with what restores the span around it.
    Open(client::training::Span, Option<Py<PyAny>>),
    /// A span of another process, which only others refer to.
    Remote(SpanContext, Option<Py<PyAny>>),
    /// Over; still referred to.
    Over(Option<SpanContext>),
}

impl Span {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> Option<SpanContext> {
        match &*self.stage() {
            Stage::Made(..) => None,
            Stage::Open(span, _) => span.context(),
            Stage::Remote(context, _) => Some(*context),
            Stage::Over(context) => *context,
        }
    }

    fn with_open(&self, work: impl FnOnce(&client::training::Span)) {
        if let Stage::Open(span, _) = &*self.stage() {
            work(span);
        }
    }
}

/// Begins a span. Runs no Python code.
fn start(
    state: &State,
    name: &str,
    parent: Option<SpanContext>,
    given: Option<&Bound<'_, PyDict>>,
) -> client::training::Span {
    let pairs = attributes::pairs(given);
    let pairs = attributes::borrowed(&pairs);
    state.with(|training, _live| training.start(HELPERS, name, parent, &pairs)).unwrap_or_default()
}

fn kind_of(error: &Bound<'_, PyAny>) -> String {
    error.get_type().qualname().map_or_else(|_| "Exception".to_owned(), |name| name.to_string())
}

/// The lines that Python would print of an exception.
fn stacktrace(py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<String> {
    let lines = py.import("traceback")?.call_method1("format_exception", (error,))?;
    PyString::new(py, "").call_method1("join", (lines,))?.extract()
}

#[pymethods]
impl Span {
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let Some(variable) = VARIABLE.get(py) else { return Ok(slf.clone()) };
        let made = match &*slf.get().stage() {
            Stage::Made(state, name, given) => {
                Some((Arc::clone(state), name.clone_ref(py), given.as_ref().map(|given| given.clone_ref(py))))
            }
            Stage::Remote(..) => None,
            Stage::Open(..) | Stage::Over(_) => return Ok(slf.clone()),
        };
        if let Some((state, name, given)) = made {
            let parent = within(py);
            let name = name.bind(py).to_string_lossy();
            let span = start(&state, &name, parent, given.as_ref().map(|given| given.bind(py)));
            *slf.get().stage() = Stage::Open(span, None);
        }
        let token = variable.set.bind(py).call1((slf,))?.unbind();
        OPEN.fetch_add(1, Ordering::Relaxed);
        match &mut *slf.get().stage() {
            Stage::Open(_, place) | Stage::Remote(_, place) => *place = Some(token),
            Stage::Made(..) | Stage::Over(_) => {}
        }
        Ok(slf.clone())
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> bool {
        if error.is_instance_of::<PyException>() {
            self.note(py, error);
        }
        let over = Stage::Over(self.context());
        let token = match std::mem::replace(&mut *self.stage(), over) {
            Stage::Open(span, token) => {
                span.end(None);
                token
            }
            Stage::Remote(_, token) => token,
            Stage::Made(..) | Stage::Over(_) => None,
        };
        if let (Some(token), Some(variable)) = (token, VARIABLE.get(py)) {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            // Left in another context than it was entered in, there is nothing to restore here.
            drop(variable.reset.bind(py).call1((token,)));
        }
        notice::say(py);
        false
    }

    /// Sets an attribute.
    ///
    /// Text under one of the keys `prompt`, `input_text`, `output_text`, `text`, `password`, `token`,
    /// `secret` and `key` becomes `[REDACTED]`.
    ///
    /// Args:
    ///     key: Its key.
    ///     value: Text, bool, int or float; anything else is left out.
    fn set_attribute(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) {
        if let (Ok(key), Some(value)) = (key.cast::<PyString>(), attributes::scalar(value)) {
            self.with_open(|span| span.set_attribute(&key.to_string_lossy(), value));
        }
    }

    /// Sets several attributes.
    ///
    /// Args:
    ///     attributes: Keys and values, as of `set_attribute`.
    fn set_attributes(&self, attributes: &Bound<'_, PyAny>) {
        let pairs = attributes::of(Some(attributes));
        self.with_open(|span| pairs.into_iter().for_each(|(key, value)| span.set_attribute(&key, value)));
    }

    /// Adds something that happened.
    ///
    /// Args:
    ///     name: What.
    ///     attributes: Keys and values, as of `set_attribute`.
    ///     timestamp: When: nanoseconds since the epoch; now by default.
    #[pyo3(signature = (name, attributes=None, timestamp=None))]
    fn add_event(&self, name: &str, attributes: Option<&Bound<'_, PyAny>>, timestamp: Option<i64>) {
        let pairs = attributes::of(attributes);
        self.with_open(|span| span.add_event(name, &attributes::borrowed(&pairs), timestamp));
    }

    /// Points to a span of another process.
    ///
    /// Args:
    ///     traceparent: Its W3C `traceparent`.
    ///     attributes: Keys and values, as of `set_attribute`.
    ///
    /// Returns:
    ///     Whether `traceparent` is one.
    #[pyo3(signature = (traceparent, attributes=None))]
    fn add_link(&self, traceparent: &str, attributes: Option<&Bound<'_, PyAny>>) -> bool {
        let Some(to) = SpanContext::parse(traceparent) else { return false };
        let pairs = attributes::of(attributes);
        self.with_open(|span| span.add_link(to, &attributes::borrowed(&pairs)));
        true
    }

    /// Notes an exception, and that the span failed; leaving `with` by one does so by itself.
    ///
    /// Args:
    ///     error: The exception.
    #[pyo3(name = "record_exception")]
    fn note(&self, py: Python<'_>, error: &Bound<'_, PyAny>) {
        let kind = kind_of(error);
        let text = error.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        let trace = stacktrace(py, error).unwrap_or_default();
        self.with_open(|span| span.record_exception(&kind, &text, &trace));
    }

    /// Says how it went.
    ///
    /// Args:
    ///     error: What went wrong; None when all is well.
    #[pyo3(signature = (error=None))]
    fn set_status(&self, error: Option<&str>) {
        self.with_open(|span| span.set_status(error.map_or(Ok(()), Err)));
    }

    /// Gives it another name.
    ///
    /// Args:
    ///     name: The name.
    fn update_name(&self, name: &str) {
        self.with_open(|span| span.set_name(name));
    }

    /// Whether what is said of it is kept.
    #[getter]
    fn is_recording(&self) -> bool {
        matches!(&*self.stage(), Stage::Open(span, _) if span.is_recording())
    }

    /// How other processes refer to it: its W3C `traceparent`, or None before it has begun.
    #[getter]
    fn traceparent(&self) -> Option<String> {
        self.context().map(|context| context.traceparent())
    }
}

/// The current telemetry, when spans of a group go to it.
fn state_for(group: &Bound<'_, PyAny>) -> Option<Arc<State>> {
    let group = group.cast::<PyString>().ok()?.to_str().ok()?;
    let current = current();
    if current.groups.iter().any(|on| on == group) { current.state.clone() } else { None }
}

fn made(
    py: Python<'_>,
    state: Arc<State>,
    name: &Bound<'_, PyAny>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let name = match name.cast::<PyString>() {
        Ok(name) => name.clone(),
        Err(_) => name.str().unwrap_or_else(|_broken| PyString::new(py, "?")),
    };
    let stage = Stage::Made(state, name.unbind(), given.map(|given| given.clone().unbind()));
    Ok(Py::new(py, Span { stage: Mutex::new(stage) })?.into_any())
}

/// A span of a group, as a context manager; `with` gives the span, or None while the group is off.
///
/// An exception that leaves the block is noted on the span and goes on. The span that is open around it
/// in this thread or task is its parent.
///
/// Args:
///     group: The group that switches it, such as `step`.
///     name: What is done, such as `megatron.train.iteration`.
///     tracer: Accepted for code that was written for another library; not used.
///     **attributes: Scalars; anything else is left out.
///
/// Returns:
///     The context manager.
///
/// Example:
///     >>> with managed_span("step", "megatron.train.iteration", **{"megatron.iteration": 7}) as span:
///     ...     train()
#[pyfunction]
#[pyo3(signature = (group, name, tracer=None, **attributes))]
pub(crate) fn managed_span(
    py: Python<'_>,
    group: &Bound<'_, PyAny>,
    name: &Bound<'_, PyAny>,
    tracer: Option<&Bound<'_, PyAny>>,
    attributes: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let _ = tracer;
    if !IS_TRACING.load(Ordering::Relaxed) {
        return none(py);
    }
    match state_for(group) {
        Some(state) => made(py, state, name, attributes),
        None => none(py),
    }
}

/// A span that no group switches, as a context manager; None while no spans are exported.
///
/// Args:
///     name: What is done.
///     tracer: Accepted and not used.
///     **attributes: Scalars; anything else is left out.
///
/// Returns:
///     The context manager.
#[pyfunction]
#[pyo3(signature = (name, tracer=None, **attributes))]
pub(crate) fn span_cm(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    tracer: Option<&Bound<'_, PyAny>>,
    attributes: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let _ = tracer;
    let state = if IS_TRACING.load(Ordering::Relaxed) { current().state.clone() } else { None };
    match state {
        Some(state) => made(py, state, name, attributes),
        None => none(py),
    }
}

/// Whether spans of a group are wanted: the cheapest question there is.
///
/// Args:
///     group: Name of the group.
///
/// Returns:
///     Whether `managed_span` of it makes one.
#[pyfunction]
pub(crate) fn is_span_group_enabled(group: &Bound<'_, PyAny>) -> bool {
    let Ok(group) = group.cast::<PyString>() else { return false };
    IS_TRACING.load(Ordering::Relaxed)
        && group.to_str().is_ok_and(|group| current().groups.iter().any(|on| on == group))
}

/// The groups whose spans are wanted.
///
/// Returns:
///     Their names, sorted.
#[pyfunction]
pub(crate) fn enabled_span_groups() -> Vec<String> {
    if IS_TRACING.load(Ordering::Relaxed) { current().groups.clone() } else { Vec::new() }
}

/// The W3C `traceparent` of the span that this thread or task is in.
///
/// Returns:
///     The text to hand to another process, or None outside any span.
#[pyfunction]
pub(crate) fn current_traceparent(py: Python<'_>) -> Option<String> {
    within(py).map(|context| context.traceparent())
}

/// Makes a span of another process the parent of those within, as a context manager.
///
/// Args:
///     traceparent: Its W3C `traceparent`; what is not one is ignored.
///
/// Returns:
///     The context manager.
#[pyfunction]
pub(crate) fn remote_span(py: Python<'_>, traceparent: &str) -> PyResult<Py<PyAny>> {
    match SpanContext::parse(traceparent).filter(|_| IS_TRACING.load(Ordering::Relaxed)) {
        Some(context) => {
            Ok(Py::new(py, Span { stage: Mutex::new(Stage::Remote(context, None)) })?.into_any())
        }
        None => none(py),
    }
}
