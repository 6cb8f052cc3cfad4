//! A run as Python holds it: the hot path of `log`, and thin calls for the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::{SeriesHandle, When};
use model::{SessionEnd, TagChange};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyMapping, PyString};

use crate::attribute::{ATTRIBUTES_MAX, Flat};
use crate::errors::{RefusedError, TruegaugeError};
use crate::frameworks::Question;
use crate::moment::{self, Steps};
use crate::notice;
use crate::number::{self, Many, Numbers, Problem, Refusal};
use crate::outcome::{CloseInfo, FlushInfo};
use crate::series::{Cache, Place};

/// The native half of `truegauge.Run`.
#[pyclass(subclass, frozen, module = "truegauge._truegauge")]
pub(crate) struct RunCore {
    live: Mutex<Live>,
    strict: bool,
    disabled: bool,
    rank: Option<u32>,
    close_timeout: Duration,
    open: AtomicBool,
    late_said: AtomicBool,
    frameworks: Question,
}

/// What a fork replaces.
struct Live {
    /// Always there but while it is being replaced.
    client: Option<client::Run>,
    cache: Cache,
    /// Set in a forked child until its first call: `client` is the parent's and must not be touched.
    inherited: bool,
    /// The process that `client` belongs to. Asked where time allows: a signal handler may run before
    /// a child is told that it is one, and a fork of C code tells nobody.
    pid: u32,
    /// The run's page as it was last known.
    url: Option<String>,
}

/// Points of a dict that are handed on together.
const DICT_BATCH: usize = 16;

/// Keyword arguments of `log`, as they came.
pub(crate) struct Call<'a, 'py> {
    pub(crate) step: Option<&'a Bound<'py, PyAny>>,
    pub(crate) labels: Option<&'a Bound<'py, PyAny>>,
    pub(crate) scale: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp: Option<&'a Bound<'py, PyAny>>,
    pub(crate) evaluation: Option<&'a Bound<'py, PyAny>>,
    pub(crate) strict: Option<bool>,
}

/// Whether a call's points can be taken without reading its keywords.
#[derive(Clone, Copy)]
enum Quick {
    /// They can, with this step.
    Step(Option<i64>),
    /// They can't.
    No,
}

/// The same, read.
struct Context<'py> {
    steps: Steps,
    when: When,
    place: Place<'py>,
}

impl Call<'_, '_> {
    /// Whether the call needs no more than a name, a value and perhaps a plain step.
    #[inline]
    fn quick_step(&self) -> Quick {
        if self.labels.is_some()
            || self.scale.is_some()
            || self.timestamp.is_some()
            || self.evaluation.is_some()
        {
            return Quick::No;
        }
        match self.step.map(|step| step.cast_exact::<PyInt>().map(|step| step.extract())) {
            None => Quick::Step(None),
            Some(Ok(Ok(step))) => Quick::Step(Some(step)),
            Some(_) => Quick::No,
        }
    }
}

impl<'py> Context<'py> {
    /// `stamp` is when the call began.
    fn read(call: &Call<'_, 'py>, stamp: When) -> Result<Self, Problem> {
        Ok(Self {
            steps: moment::steps(call.step)?,
            when: moment::time_ns(call.timestamp)?.map_or(stamp, When::At),
            place: Place::read(call.labels, call.scale, call.evaluation)?,
        })
    }
}

type Point<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

impl RunCore {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's run; in a forked child, from the first call on, one of the child's own.
    pub(crate) fn client(&self) -> Option<client::Run> {
        let mut live = self.live();
        live.settle();
        live.client.clone()
    }

    /// The same, while values that are logged to it are kept.
    pub(crate) fn client_if_open(&self) -> Option<client::Run> {
        if self.disabled || !self.open.load(Ordering::Relaxed) { None } else { self.client() }
    }

    fn is_silent(&self, py: Python<'_>) -> bool {
        if self.disabled {
            return true;
        }
        if self.open.load(Ordering::Relaxed) {
            return false;
        }
        if !self.late_said.swap(true, Ordering::Relaxed) {
            notice::warn(py, "the run is closed: what is logged to it now is not kept (call `init()` again)");
        }
        true
    }

    /// `log`, for a run that may be the module's current one.
    #[inline]
    pub(crate) fn take<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
        call: &Call<'_, 'py>,
    ) -> PyResult<()> {
        if self.is_silent(py) {
            return Ok(());
        }
        if self.frameworks.may_be_due() {
            self.ask_frameworks(py)?;
        }
        let quick = call.quick_step();
        if let (Quick::Step(step), Some(value)) = (quick, value)
            && self.take_quickly(name, value, step, When::Now)
        {
            notice::say(py);
            return Ok(());
        }
        // The points of a call share a time, however long it takes to read them.
        let stamp = When::stamp();
        let mapping = if name.is_instance_of::<PyString>() { None } else { name.cast::<PyMapping>().ok() };
        let points = match mapping {
            Some(mapping) => self.mapping(py, mapping, value, quick, stamp)?,
            None => vec![(name.clone(), value.cloned())],
        };
        if !points.is_empty() {
            self.take_all(py, &points, call, stamp)?;
        }
        notice::say(py);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn ask_frameworks(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(found) = self.frameworks.ask(py)?
            && let Some(client) = self.client()
        {
            client.set_frameworks(found);
        }
        Ok(())
    }

    /// Takes a point whose name is known and whose value is a plain number. Runs no Python code
    /// while it holds the lock.
    #[inline]
    fn take_quickly(
        &self,
        name: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        step: Option<i64>,
        when: When,
    ) -> bool {
        let Ok(name) = name.cast_exact::<PyString>() else { return false };
        let Some(Ok(number)) = number::plain(value) else { return false };
        let live = self.live();
        if live.inherited {
            return false;
        }
        let (Some(client), Some(handle)) = (&live.client, live.cache.bare(name)) else { return false };
        client.log(handle, number, step, when);
        true
    }

    /// Takes the points of a dict whose names are known and whose values are plain numbers, with one
    /// time, and returns the rest. Runs no Python code while it holds the lock.
    fn take_dict_quickly<'py>(
        &self,
        dict: &Bound<'py, PyDict>,
        step: Option<i64>,
        stamp: When,
    ) -> Vec<Point<'py>> {
        let mut rest = Vec::new();
        let mut batch = [(SeriesHandle::default(), 0.0); DICT_BATCH];
        let mut filled = 0;
        let live = self.live();
        let Some(client) = live.client.as_ref().filter(|_| !live.inherited) else {
            return dict.iter().map(|(key, value)| (key, Some(value))).collect();
        };
        for (key, value) in dict {
            let known = key.cast_exact::<PyString>().ok().and_then(|name| live.cache.bare(name));
            let (Some(handle), Some(number)) = (known, number::native(&value)) else {
                rest.push((key, value));
                continue;
            };
            batch[filled] = (handle, number);
            filled += 1;
            if filled == DICT_BATCH {
                client.log_all(&batch, step, stamp);
                filled = 0;
            }
        }
        client.log_all(&batch[..filled], step, stamp);
        drop(live);
        rest.retain(|(key, value)| !self.take_quickly(key, value, step, stamp));
        rest.into_iter().map(|(key, value)| (key, Some(value))).collect()
    }

    /// Takes what it can of a mapping quickly and returns the rest.
    fn mapping<'py>(
        &self,
        py: Python<'py>,
        mapping: &Bound<'py, PyMapping>,
        value: Option<&Bound<'py, PyAny>>,
        quick: Quick,
        stamp: When,
    ) -> PyResult<Vec<Point<'py>>> {
        if value.is_some() {
            let found =
                "a second positional argument beside a mapping is not read: write `step=` for the step";
            self.refuse(py, "arguments", 1, found, None)?;
        }
        if let Ok(dict) = mapping.cast_exact::<PyDict>() {
            return Ok(match quick {
                Quick::Step(step) => self.take_dict_quickly(dict, step, stamp),
                Quick::No => dict.iter().map(|(key, value)| (key, Some(value))).collect(),
            });
        }
        let read =
            || mapping.items()?.iter().map(|item| item.extract()).collect::<PyResult<Vec<Point<'py>>>>();
        match read().map_err(|error| Problem::raised(py, error, "value_type")) {
            Ok(points) => Ok(points),
            Err(Problem::Interrupted(error)) => Err(error),
            Err(Problem::Refused(refusal)) => {
                self.refuse(py, refusal.reason, 1, &refusal.found, None)?;
                Ok(Vec::new())
            }
        }
    }

    #[cold]
    fn take_all<'py>(
        &self,
        py: Python<'py>,
        points: &[Point<'py>],
        call: &Call<'_, 'py>,
        stamp: When,
    ) -> PyResult<()> {
        let mut context = match Context::read(call, stamp) {
            Ok(context) => context,
            Err(Problem::Interrupted(error)) => return Err(error),
            Err(Problem::Refused(refusal)) => {
                let count = points.len() as u64;
                return self.refuse(py, refusal.reason, count, &refusal.found, call.strict);
            }
        };
        for (name, value) in points {
            let refusal = match self.take_one(name, value.as_ref(), &mut context) {
                Ok(None) => continue,
                Ok(Some(refusal)) | Err(Problem::Refused(refusal)) => refusal,
                Err(Problem::Interrupted(error)) => return Err(error),
            };
            let found = match name.str() {
                Ok(name) => format!("`{}`: {}", number::short(&name.to_string_lossy()), refusal.found),
                Err(_) => refusal.found,
            };
            self.refuse(py, refusal.reason, refusal.count, &found, call.strict)?;
        }
        Ok(())
    }

    /// Takes one name's points; returns what part of them was refused.
    fn take_one<'py>(
        &self,
        name: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
        context: &mut Context<'py>,
    ) -> Result<Option<Refusal>, Problem> {
        let Ok(name) = name.cast::<PyString>() else {
            let found = number::kind(name);
            return Err(Problem::refused(
                "metric_name",
                format!("found {found} as a metric name, wanted text"),
            ));
        };
        let Some(value) = value else {
            return Err(Problem::refused("value_type", "found no value or `None`, wanted a number"));
        };
        let numbers = number::read(value)?;
        let Some((client, handle)) = self.handle(name, &mut context.place)? else { return Ok(None) };
        match (numbers, &context.steps) {
            (Numbers::One(number), Steps::Next) => client.log(handle, number, None, context.when),
            (Numbers::One(number), Steps::First(step)) => {
                client.log(handle, number, Some(*step), context.when);
            }
            (Numbers::One(number), Steps::Each(steps)) => match steps[..] {
                [Some(step)] => client.log(handle, number, Some(step), context.when),
                _ => {
                    return Err(Problem::refused(
                        "step",
                        format!("found {} steps for one value", steps.len()),
                    ));
                }
            },
            (Numbers::Many(many), steps) => {
                let next = || {
                    let labels = context.place.texts().unwrap_or_default();
                    let last =
                        client.last_step(&name.to_string_lossy(), &borrowed(&labels), &context.place.scale());
                    last.map_or(0, |last| last.saturating_add(1))
                };
                return take_many(&client, handle, many, steps, (context.when, &next));
            }
        }
        Ok(None)
    }

    /// The client and its handle for a name; `None` when the run has no client (any more).
    fn handle<'py>(
        &self,
        name: &Bound<'py, PyString>,
        place: &mut Place<'py>,
    ) -> Result<Option<(client::Run, SeriesHandle)>, Problem> {
        {
            let mut live = self.live();
            live.settle();
            let Some(client) = live.client.clone() else { return Ok(None) };
            if let Some(handle) = live.cache.find(name, place) {
                return Ok(Some((client, handle)));
            }
        }
        // Labels are put into words without the lock: that may run their own code.
        let labels = place.texts()?;
        let text = name.to_str().map_err(|_surrogate| {
            Problem::refused("metric_name", "found a metric name that is not valid Unicode")
        })?;
        let mut live = self.live();
        live.settle();
        let Some(client) = live.client.clone() else { return Ok(None) };
        let handle = client
            .series(text, &borrowed(&labels), &place.scale())
            .map_err(|error| Problem::refused(error.reason(), error.to_string()))?;
        live.cache.keep(name, place, handle);
        Ok(Some((client, handle)))
    }

    /// Counts a refusal, has it said once per cause, and raises when the call or run is strict.
    fn refuse(
        &self,
        py: Python<'_>,
        reason: &'static str,
        count: u64,
        found: &str,
        strict: Option<bool>,
    ) -> PyResult<()> {
        if let Some(client) = self.client() {
            client.refuse(reason, count, found);
        }
        if strict.unwrap_or(self.strict) {
            return Err(RefusedError::new_err(found.to_owned()));
        }
        notice::say(py);
        Ok(())
    }
}

impl Live {
    fn is_inherited(&self) -> bool {
        self.inherited || self.pid != std::process::id()
    }

    /// In a forked child: leaves the parent's client alone and begins one of its own.
    fn settle(&mut self) {
        if !self.is_inherited() {
            return;
        }
        self.inherited = false;
        self.pid = std::process::id();
        self.cache = Cache::default();
        if let Some(parents) = self.client.take() {
            self.client = Some(parents.forget_after_fork());
            // Its threads are not in this process and its locks may be held for ever: dropping it
            // would wait for them.
            std::mem::forget(parents);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(self.client.take());
        }
    }
}

fn borrowed(labels: &[(String, String)]) -> Vec<(&str, &str)> {
    labels.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Takes the items of an array. `asked` is their time and how to learn the series' next step.
fn take_many(
    client: &client::Run,
    handle: SeriesHandle,
    many: Many,
    steps: &Steps,
    asked: (When, &dyn Fn() -> i64),
) -> Result<Option<Refusal>, Problem> {
    let (when, next) = asked;
    let Many { values, places, len, refused } = many;
    let counted = |first: i64, places: &[usize]| {
        places.iter().map(|place| first.saturating_add(*place as i64)).collect::<Vec<_>>()
    };
    match (steps, places) {
        (Steps::Next, None) => client.log_many(handle, &values, client::Steps::None, when),
        (Steps::First(first), None) => {
            client.log_many(handle, &values, client::Steps::First(*first), when);
        }
        (Steps::Next, Some(places)) => {
            client.log_many(handle, &values, client::Steps::Each(&counted(next(), &places)), when);
        }
        (Steps::First(first), Some(places)) => {
            client.log_many(handle, &values, client::Steps::Each(&counted(*first, &places)), when);
        }
        (Steps::Each(steps), places) => {
            if steps.len() != len {
                let found = format!("found {} steps for {len} values", steps.len());
                return Err(Problem::Refused(Refusal { reason: "step", count: len as u64, found }));
            }
            let places = places.unwrap_or_else(|| (0..len).collect());
            let (kept_steps, kept_values): (Vec<i64>, Vec<f64>) = places
                .iter()
                .zip(&values)
                .filter_map(|(place, value)| steps[*place].map(|step| (step, *value)))
                .unzip();
            client.log_many(handle, &kept_values, client::Steps::Each(&kept_steps), when);
            let stepless = values.len() - kept_values.len();
            if stepless > 0 {
                let found = format!("{stepless} of {len} steps are not whole numbers of 64 bits");
                let count = stepless as u64 + refused.map_or(0, |refusal| refusal.count);
                return Err(Problem::Refused(Refusal { reason: "step", count, found }));
            }
        }
    }
    Ok(refused)
}

/// Seconds as Python gives them; what is not a duration means `otherwise`.
fn seconds(given: Option<f64>, otherwise: Duration) -> Duration {
    given.and_then(|seconds| Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).ok()).unwrap_or(otherwise)
}

/// Waits without the GIL and lets Ctrl-C in.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough over lifetimes"
)]
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send,
) -> (T, Option<PyErr>) {
    let mut interrupt = None;
    let outcome = py.detach(|| {
        work(&mut || {
            Python::try_attach(|py| py.check_signals()).is_some_and(|signals| match signals {
                Ok(()) => false,
                Err(error) => {
                    interrupt = Some(error);
                    true
                }
            })
        })
    });
    (outcome, interrupt)
}

#[pymethods]
impl RunCore {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let config = crate::config::read(settings)?;
        let (strict, disabled) = (config.strict, config.disabled);
        notice::debug(py, &config.debug);
        let (rank, close_timeout) = (config.launch.rank, config.close_timeout);
        let captures = config.capture_system_metrics && !disabled;
        let (client, disabled) = match py.detach(|| client::Run::start(config)) {
            Ok(client) => (client, disabled),
            Err(error) => {
                let text = error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}: {hint}"));
                if strict {
                    return Err(TruegaugeError::new_err(text));
                }
                notice::warn(py, &format!("the run is not kept: {text}"));
                let nothing = client::Config { disabled: true, ..client::Config::default() };
                let inert = client::Run::start(nothing);
                (inert.map_err(|error| TruegaugeError::new_err(error.to_string()))?, true)
            }
        };
        notice::say(py);
        Ok(Self {
            live: Mutex::new(Live {
                url: client.url(),
                client: Some(client),
                cache: Cache::default(),
                inherited: false,
                pid: std::process::id(),
            }),
            strict,
            disabled,
            rank,
            close_timeout,
            open: AtomicBool::new(true),
            late_said: AtomicBool::new(false),
            frameworks: Question::new(captures),
        })
    }

    /// Logs to this run; arguments as of `truegauge.log`.
    #[pyo3(signature = (name, value=None, *, step=None, labels=None, scale=None, timestamp=None, evaluation=None, strict=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python call")]
    fn log<'py>(
        &self,
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
        self.take(py, name, value, &Call { step, labels, scale, timestamp, evaluation, strict })
    }

    /// Sets attributes from a value.
    #[pyo3(signature = (prefix, value, strict=None))]
    fn set_attributes(
        &self,
        py: Python<'_>,
        prefix: &str,
        value: &Bound<'_, PyAny>,
        strict: Option<bool>,
    ) -> PyResult<()> {
        if self.is_silent(py) {
            return Ok(());
        }
        let mut flat = Flat::default();
        flat.add(prefix, value)?;
        if let Some(client) = self.client() {
            for (key, value) in flat.pairs {
                client.set_attribute(&key, value);
            }
        }
        if flat.dropped > 0 {
            let found = format!("{} attributes are beyond the {} of one call", flat.dropped, ATTRIBUTES_MAX);
            self.refuse(py, "attributes", flat.dropped, &found, strict)?;
        }
        notice::say(py);
        Ok(())
    }

    /// Forgets all tags when `clear`, then adds, then removes.
    fn change_tags(&self, py: Python<'_>, clear: bool, add: Vec<String>, remove: Vec<String>) {
        if self.is_silent(py) {
            return;
        }
        let mut changes = Vec::with_capacity(1 + add.len() + remove.len());
        changes.extend(clear.then_some(TagChange::Clear));
        changes.extend(add.into_iter().map(TagChange::Add));
        changes.extend(remove.into_iter().map(TagChange::Remove));
        if let Some(client) = self.client() {
            client.change_tags(&changes);
        }
        notice::say(py);
    }

    /// Sets the run's description.
    fn describe(&self, py: Python<'_>, text: &str) {
        if self.is_silent(py) {
            return;
        }
        if let Some(client) = self.client() {
            client.set_description(text);
        }
        notice::say(py);
    }

    /// The last step this process logged on a series.
    ///
    /// Args:
    ///     name: Name of the metric.
    ///     labels: The series' labels.
    ///     scale: The series' scale.
    ///
    /// Returns:
    ///     The step, or None when nothing was logged.
    #[pyo3(signature = (name, *, labels=None, scale=None))]
    fn get_last_step<'py>(
        &self,
        name: &Bound<'py, PyAny>,
        labels: Option<&Bound<'py, PyAny>>,
        scale: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<i64>> {
        // A name that is no text can't have been logged.
        let Ok(name) = name.extract::<String>() else { return Ok(None) };
        let read = || -> Result<Option<i64>, Problem> {
            let place = Place::read(labels, scale, None)?;
            let labels = place.texts()?;
            Ok(self.client().and_then(|client| client.last_step(&name, &borrowed(&labels), &place.scale())))
        };
        match read() {
            Ok(step) => Ok(step),
            Err(Problem::Refused(_)) => Ok(None),
            Err(Problem::Interrupted(error)) => Err(error),
        }
    }

    /// Notes that this process entered an operation of a group of ranks, or that it completed it.
    fn note_collective(&self, number: i64, group: &str, is_completed: bool) {
        if let Some(client) = self.client_if_open() {
            client.collective(group, number, is_completed);
        }
    }

    /// Tells what a file of PyTorch's flight recorder says; the number of groups, and what was wrong with it.
    fn read_flight_recorder(
        &self,
        py: Python<'_>,
        path: std::path::PathBuf,
        rank: Option<u32>,
    ) -> (usize, Option<String>) {
        let Some(client) = self.client_if_open() else { return (0, None) };
        match py.detach(|| client.report_flight_recorder(&path, rank)) {
            Ok(groups) => (groups, None),
            Err(error) => (0, Some(error.to_string())),
        }
    }

    /// Opens the context whose step a `log` without one takes.
    fn begin_step(&self, step: i64) {
        if let Some(client) = self.client().filter(|_| !self.disabled) {
            client.begin_step(step);
        }
    }

    /// Closes it.
    fn end_step(&self) {
        if let Some(client) = self.client().filter(|_| !self.disabled) {
            client.end_step();
        }
    }

    /// Waits until what was logged before is durable, with the server or in the spool on disk.
    ///
    /// Args:
    ///     timeout_secs: Bound of the wait in seconds, 900 by default.
    ///
    /// Returns:
    ///     Where it is.
    ///
    /// Example:
    ///     >>> run.flush().where
    ///     'server'
    #[pyo3(signature = (timeout_secs=None))]
    fn flush(&self, py: Python<'_>, timeout_secs: Option<f64>) -> PyResult<FlushInfo> {
        let Some(client) = self.client().filter(|_| !self.disabled && self.open.load(Ordering::Relaxed))
        else {
            return Ok(FlushInfo::nothing());
        };
        let timeout = seconds(timeout_secs, Duration::from_mins(15));
        let (outcome, interrupt) = wait(py, |poll| client.flush(timeout, poll));
        notice::say(py);
        interrupt.map_or_else(|| Ok(FlushInfo::from(outcome)), Err)
    }

    /// Ends the session: `end` is `finished`, `failed` or `left`.
    fn end(&self, py: Python<'_>, end: &str, reason: &str, timeout_secs: f64) -> PyResult<CloseInfo> {
        if self.disabled || !self.open.swap(false, Ordering::Relaxed) {
            return Ok(CloseInfo::nothing());
        }
        let end = match end {
            "failed" => SessionEnd::Failed,
            "left" => SessionEnd::Left,
            _ => SessionEnd::Finished,
        };
        let Some(client) = self.client() else { return Ok(CloseInfo::nothing()) };
        let timeout = seconds(Some(timeout_secs), Duration::from_secs(10));
        let (outcome, interrupt) = wait(py, |poll| client.close(end, reason, timeout, poll));
        notice::say(py);
        interrupt.map_or_else(|| Ok(CloseInfo::from(outcome)), Err)
    }

    /// Points by what became of them: `logged`, `delivered`, `spooled`, `queued`, and `dropped.<reason>`.
    fn counters(&self) -> std::collections::BTreeMap<String, u64> {
        let counters = self.client().map(|client| client.counters()).unwrap_or_default();
        let dropped =
            counters.dropped.into_iter().map(|(reason, count)| (format!("dropped.{reason}"), count));
        let known = [
            ("logged", counters.logged),
            ("delivered", counters.delivered),
            ("spooled", counters.spooled),
            ("queued", counters.queued),
            ("spool_bytes", counters.spool_bytes),
        ];
        known.map(|(name, count)| (name.to_owned(), count)).into_iter().chain(dropped).collect()
    }

    /// In a forked child: the parent's threads and locks are not to be touched any more. The child's
    /// own session begins with its first call.
    fn after_fork(&self) {
        notice::forget();
        self.live().inherited = true;
    }

    /// Whether this process has used the run since it was forked or since the run began.
    #[getter]
    fn is_own(&self) -> bool {
        !self.live().is_inherited()
    }

    /// Whether `close()` or `shutdown()` has not been called yet.
    #[getter]
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether the run does nothing, because it was disabled or could not start.
    #[getter]
    fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// Whether a refusal raises.
    #[getter]
    fn is_strict(&self) -> bool {
        self.strict
    }

    /// This process's rank in its job.
    #[getter]
    fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Bound of `close()`, in seconds.
    #[getter]
    fn close_timeout_secs(&self) -> f64 {
        self.close_timeout.as_secs_f64()
    }

    /// Organization, workspace, project and run.
    #[getter]
    fn path(&self) -> (String, String, String, String) {
        // The names are the same in parent and child, so an inherited client may be asked.
        let live = self.live();
        live.client.as_ref().map_or_else(Default::default, |client| {
            let path = client.path();
            (path.organization.clone(), path.workspace.clone(), path.project.clone(), path.run.clone())
        })
    }

    /// 16 hex digits, the same on every rank.
    #[getter]
    fn run_id(&self) -> String {
        self.live().client.as_ref().map_or_else(String::new, |client| client.run_id().to_string())
    }

    /// The run's page, when a server is known.
    #[getter]
    fn url(&self) -> Option<String> {
        let mut live = self.live();
        if !live.is_inherited() {
            live.url = live.client.as_ref().and_then(client::Run::url);
        }
        live.url.clone()
    }
}
