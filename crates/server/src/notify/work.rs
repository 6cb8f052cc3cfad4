//! The thread that tells one Alertmanager.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::post::{Target, Verdict};
use super::waiting::{Counts, Told, Waiting};
use crate::clock::now_ms;

/// Most alerts in one request.
const BATCH_MAX: usize = 64;
/// First and longest pause after a failure; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// One Alertmanager, and what waits for it.
#[derive(Debug)]
pub(super) struct Receiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    is_stopping: bool,
}

impl Receiver {
    /// Starts its thread.
    pub(super) fn start(target: Target) -> Result<Self, std::io::Error> {
        let shared = Arc::new(Shared { target, state: Mutex::default(), changed: Condvar::new() });
        let work = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tg-notify".to_owned()).spawn(move || work.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn target(&self) -> &Target {
        &self.shared.target
    }

    pub(super) fn set_queue_max(&self, max: usize) {
        self.shared.state().waiting.max = max;
    }

    /// Adds what is to be told.
    pub(super) fn offer(&self, told: &[Arc<Told>]) {
        let mut state = self.shared.state();
        for told in told {
            state.waiting.push(Arc::clone(told));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    pub(super) fn counts(&self) -> Counts {
        self.shared.state().waiting.counts
    }

    pub(super) fn waiting(&self) -> usize {
        self.shared.state().waiting.len()
    }

    /// Ends the thread; a request that is still under way after `grace` is left to itself.
    pub(super) fn stop(mut self, grace: Duration) {
        let mut state = self.shared.state();
        state.is_stopping = true;
        drop(state);
        self.shared.changed.notify_all();
        let until = Instant::now() + grace;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the thread that tells an Alertmanager ended by a panic");
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut failures = 0;
        while let Some(batch) = self.next() {
            let verdict = self.target.post(&batch);
            let url = self.target.shown();
            let pause = match verdict {
                Verdict::Taken => {
                    if failures > 0 {
                        tracing::info!(alertmanager = url, "alerts are delivered again");
                    }
                    failures = 0;
                    self.state().waiting.counts.sent += batch.len() as u64;
                    continue;
                }
                Verdict::Refused(why) => {
                    tracing::warn!(alertmanager = url, alerts = batch.len(), why, "alerts are refused");
                    let counts = &mut self.state().waiting.counts;
                    counts.failures += 1;
                    counts.refused += batch.len() as u64;
                    continue;
                }
                Verdict::Later(why, wish) => {
                    if failures == 0 {
                        tracing::warn!(
                            alertmanager = url,
                            why,
                            "alerts can't be delivered, and are tried again"
                        );
                    }
                    failures += 1;
                    wish.unwrap_or_else(|| pause_after(failures))
                }
            };
            let mut state = self.state();
            state.waiting.counts.failures += 1;
            state.waiting.put_back(batch);
            let waited = self.changed.wait_timeout_while(state, pause, |state| !state.is_stopping);
            drop(waited);
        }
    }

    /// Waits for something to tell; nothing when all is over.
    fn next(&self) -> Option<Vec<Arc<Told>>> {
        let mut state = self.state();
        loop {
            if state.is_stopping {
                return None;
            }
            let batch = state.waiting.take(BATCH_MAX, now_ms());
            if !batch.is_empty() {
                return Some(batch);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The pause after so many failures in a row, with up to a quarter more so that servers that failed
/// together don't come back together.
fn pause_after(failures: u32) -> Duration {
    let pause = PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let mut byte = [0];
    let quarters = if getrandom::fill(&mut byte).is_ok() { f64::from(byte[0]) / 1_024.0 } else { 0.0 };
    pause.mul_f64(1.0 + quarters)
}
