//! How the sampler's thread is woken: for its next tick, for the driver's answer, for the end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use collect::gpu::{GpuAbsence, GpuSampler};

use crate::shared::lock;

/// What became of the driver when it was asked to start.
pub(super) type DriverAnswer = Result<GpuSampler, GpuAbsence>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Ended,
}

struct State {
    phase: Phase,
    driver: Option<DriverAnswer>,
}

/// Shared by the sampler's thread, whoever stops it, and the thread that starts the driver.
pub(super) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

impl Signal {
    pub(super) fn new() -> Self {
        let state = State { phase: Phase::Running, driver: None };
        Self { state: state.into(), changed: Condvar::new() }
    }

    fn wait(&self, until: Instant, mut go_on: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let left = until.saturating_duration_since(Instant::now());
        let state = lock(&self.state);
        self.changed.wait_timeout_while(state, left, |s| go_on(s)).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for the driver's answer, `most` at most; `least` at most when the sampler is to stop.
    pub(super) fn wait_for_driver(&self, least: Duration, most: Duration) {
        let start = Instant::now();
        drop(self.wait(start + most, |s| s.phase == Phase::Running && s.driver.is_none()));
        drop(self.wait(start + least, |s| s.driver.is_none()));
    }

    /// Waits until then; false when the sampler is to stop.
    pub(super) fn wait_until(&self, then: Instant) -> bool {
        self.wait(then, |s| s.phase == Phase::Running).phase == Phase::Running
    }

    pub(super) fn put_driver(&self, answer: DriverAnswer) {
        lock(&self.state).driver = Some(answer);
        self.changed.notify_all();
    }

    pub(super) fn take_driver(&self) -> Option<DriverAnswer> {
        lock(&self.state).driver.take()
    }

    /// The thread is at its end.
    pub(super) fn ended(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Ended;
        let driver = state.driver.take();
        drop(state);
        self.changed.notify_all();
        drop(driver);
    }

    /// Asks the thread to end and waits for that, `most` at most.
    pub(super) fn stop(&self, most: Duration) {
        {
            let mut state = lock(&self.state);
            if state.phase == Phase::Running {
                state.phase = Phase::Stopping;
            }
        }
        self.changed.notify_all();
        drop(self.wait(Instant::now() + most, |s| s.phase != Phase::Ended));
    }
}
