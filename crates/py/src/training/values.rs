//! The keyword arguments of a record: a number for each of the trainer's eight instruments.

use client::training::Instrument;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};
use semconv::instruments::MEGATRON;

use super::span;
use super::state::State;
use crate::moment;
use crate::notice;
use crate::number::{self, Numbers, Problem};

/// What names of the eight have in front.
const PREFIX: &str = "megatron.training.";

/// Arguments as they came.
pub(crate) struct Call<'a, 'py> {
    /// In the order of [`MEGATRON`].
    pub(crate) values: [Option<&'a Bound<'py, PyAny>>; MEGATRON.len()],
    pub(crate) step: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp: Option<&'a Bound<'py, PyAny>>,
    pub(crate) others: Option<&'a Bound<'py, PyDict>>,
}

/// The keyword of an instrument.
pub(crate) fn key(at: usize) -> &'static str {
    MEGATRON[at].name.strip_prefix(PREFIX).unwrap_or(MEGATRON[at].name)
}

/// When values were measured, and at which step.
#[derive(Default, Clone, Copy)]
pub(crate) struct When {
    pub(crate) step: Option<i64>,
    pub(crate) time_ns: Option<i64>,
}

impl When {
    /// Reads `step` and `timestamp`; one that can't be used is refused and left out.
    #[inline]
    pub(crate) fn read(
        state: &State,
        step: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if timestamp.is_none() {
            let Some(step) = step else { return Ok(Self::default()) };
            if let Some(Ok(step)) = step.cast_exact::<PyInt>().ok().map(|step| step.extract()) {
                return Ok(Self { step: Some(step), time_ns: None });
            }
        }
        Self::read_slowly(state, step, timestamp)
    }

    #[cold]
    fn read_slowly(
        state: &State,
        step: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut when = Self::default();
        if let Some(given) = step.filter(|step| !step.is_none()) {
            when.step = moment::whole(given);
            if when.step.is_none() {
                let found =
                    format!("found step {}, wanted a whole number of 64 bits: it is left out", shown(given));
                state.refuse(given.py(), "step", &found)?;
            }
        }
        match (moment::time_ns(timestamp), timestamp) {
            (Ok(time_ns), _) => when.time_ns = time_ns,
            (Err(Problem::Interrupted(error)), _) => return Err(error),
            (Err(Problem::Refused(refusal)), Some(given)) => {
                state.refuse(given.py(), "timestamp", &format!("{}: now is taken", refusal.found))?;
            }
            (Err(Problem::Refused(_)), None) => {}
        }
        Ok(when)
    }
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    value
        .repr()
        .map_or_else(|_| number::kind(value), |text| format!("`{}`", number::short(&text.to_string())))
}

/// Records what a call gives. What is no number is refused, and the rest of the call kept.
#[inline]
pub(crate) fn record(py: Python<'_>, state: &State, call: &Call<'_, '_>) -> PyResult<()> {
    if let Some(others) = call.others
        && !others.is_empty()
    {
        refuse_others(state, others)?;
    }
    let when = When::read(state, call.step, call.timestamp)?;
    let mut given = [(0_usize, 0.0_f64); MEGATRON.len()];
    let mut filled = 0;
    for (at, value) in call.values.iter().enumerate() {
        let Some(value) = value else { continue };
        let number = match number::native(value) {
            Some(number) => Some(number),
            None => one(state, key(at), value)?,
        };
        if let Some(number) = number {
            given[filled] = (at, number);
            filled += 1;
        }
    }
    if filled > 0 {
        let within = span::within(py);
        state.with(|training, live| {
            let mut values = [(Instrument::default(), 0.0); MEGATRON.len()];
            for (place, (at, number)) in values.iter_mut().zip(&given[..filled]) {
                *place = (live.eight[*at], *number);
            }
            training.record(&values[..filled], span::moment(when, within));
        });
    }
    notice::say(py);
    Ok(())
}

/// One number of a value that is not a plain one; None for `None` and for what was refused.
#[cold]
pub(crate) fn one(state: &State, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_none() {
        return Ok(None);
    }
    // A loss that still has its graph: to read it as it is makes Torch warn.
    let detached = value.getattr_opt("detach").ok().flatten().and_then(|detach| detach.call0().ok());
    let value = detached.as_ref().unwrap_or(value);
    let found = match number::read(value) {
        Ok(Numbers::One(number)) => return Ok(Some(number)),
        Ok(Numbers::Many(many)) => match many.values[..] {
            // A tensor of one item is a number to everybody who writes it.
            [number] => return Ok(Some(number)),
            _ => format!("found {} of {} items, wanted one number", number::kind(value), many.len),
        },
        Err(Problem::Interrupted(error)) => return Err(error),
        Err(Problem::Refused(refusal)) => refusal.found,
    };
    state.refuse(value.py(), name, &format!("`{name}` is not recorded: {found}"))?;
    Ok(None)
}

#[cold]
fn refuse_others(state: &State, others: &Bound<'_, PyDict>) -> PyResult<()> {
    for name in others.keys() {
        let keys: Vec<&str> = (0..MEGATRON.len()).map(key).collect();
        let text = format!(
            "there is no instrument `{name}`: it is left out; wanted are {}, step and timestamp (others go through a \
             metric group, see `register_metric_group`)",
            keys.join(", ")
        );
        if state.strict {
            return Err(PyTypeError::new_err(text));
        }
        state.refuse(name.py(), &format!("keyword {name}"), &text)?;
    }
    Ok(())
}
