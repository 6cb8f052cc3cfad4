//! What a telemetry, its meters and its spans share, and what a fork replaces of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::training::{Instrument, InstrumentSpec, Training};
use pyo3::prelude::*;
use semconv::instruments::MEGATRON;

use crate::errors::{RefusedError, TruegaugeError};
use crate::notice;
use crate::run::RunCore;

/// Causes of warnings that are remembered at most.
const CAUSES_MAX: usize = 256;

/// The shared half.
pub(crate) struct State {
    live: Mutex<Live>,
    said: Mutex<BTreeSet<String>>,
    pub(crate) strict: bool,
}

/// What a fork replaces.
pub(crate) struct Live {
    /// Always there but while it is being replaced.
    training: Option<Training>,
    /// The trainer's eight, in the order of their table.
    pub(crate) eight: [Instrument; MEGATRON.len()],
    /// Counts up when instruments have to be made anew.
    pub(crate) generation: u64,
    /// Set in a forked child until its first call: `training` is the parent's and must not be touched.
    inherited: bool,
    pid: u32,
    run: Option<Py<RunCore>>,
}

impl State {
    pub(crate) fn new(training: Training, run: Option<Py<RunCore>>) -> Arc<Self> {
        let strict = training.settings().strict;
        let live = Live {
            eight: eight(&training),
            training: Some(training),
            generation: 0,
            inherited: false,
            pid: std::process::id(),
            run,
        };
        Arc::new(Self { live: Mutex::new(live), said: Mutex::default(), strict })
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with what is alive in this process. No Python code may run in `work`.
    #[inline]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Training, &Live) -> T) -> Option<T> {
        let mut live = self.lock();
        if live.inherited {
            live.settle();
        }
        live.training.as_ref().map(|training| work(training, &live))
    }

    /// The training itself, for what takes long; in a forked child one of the child's own.
    pub(crate) fn training(&self) -> Option<Training> {
        let mut live = self.lock();
        if live.is_inherited() {
            live.settle();
        }
        live.training.clone()
    }

    /// The run that values also go to, while it is open.
    pub(crate) fn run(&self, py: Python<'_>) -> Option<client::Run> {
        let run = self.lock().run.as_ref().map(|run| run.clone_ref(py));
        run.and_then(|run| run.get().client_if_open())
    }

    /// In a forked child: the parent's threads and locks are not to be touched any more.
    pub(crate) fn after_fork(&self) {
        self.lock().inherited = true;
    }

    /// Whether this process has used it since it was forked or since set-up.
    pub(crate) fn is_own(&self) -> bool {
        !self.lock().is_inherited()
    }

    /// Whether a cause is met for the first time.
    pub(crate) fn is_new(&self, cause: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < CAUSES_MAX && said.insert(cause.to_owned())
    }

    /// Something given can't be used: raised where strict, else warned of once a cause.
    #[cold]
    pub(crate) fn refuse(&self, py: Python<'_>, cause: &str, found: &str) -> PyResult<()> {
        if self.strict {
            return Err(RefusedError::new_err(found.to_owned()));
        }
        if self.is_new(cause) {
            notice::warn(py, found);
        }
        Ok(())
    }

    /// The same for what the program wrote wrongly rather than what it measured.
    #[cold]
    pub(crate) fn complain(&self, py: Python<'_>, cause: &str, found: &str) -> PyResult<()> {
        if self.strict {
            return Err(TruegaugeError::new_err(found.to_owned()));
        }
        if self.is_new(cause) {
            notice::warn(py, found);
        }
        Ok(())
    }
}

impl Live {
    fn is_inherited(&self) -> bool {
        self.inherited || self.pid != std::process::id()
    }

    #[cold]
    fn settle(&mut self) {
        self.inherited = false;
        self.pid = std::process::id();
        self.generation += 1;
        let Some(parents) = self.training.take() else { return };
        let run = self.run.as_ref().and_then(|run| run.get().client());
        let own = parents.forget_after_fork(run);
        // Its threads are not in this process and its locks may be held for ever.
        std::mem::forget(parents);
        self.eight = eight(&own);
        self.training = Some(own);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(self.training.take());
        }
    }
}

/// The trainer's instruments. Their table is right, so that none of them can be refused but by a
/// program that has taken their names for something else; that one is inert then.
fn eight(training: &Training) -> [Instrument; MEGATRON.len()] {
    let mut made = [Instrument::default(); MEGATRON.len()];
    if training.is_recording() {
        for (place, row) in made.iter_mut().zip(&MEGATRON) {
            *place = training.instrument(&InstrumentSpec::known(row)).unwrap_or_default();
        }
    }
    made
}
