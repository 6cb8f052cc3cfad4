//! Why a number was left out of a tick.

use model::Desc;

/// How many ticks in a row may fail before a counter is left alone for a while.
const FAILURES_MAX: u32 = 5;
/// Ticks until the first retry of a counter that was left alone; doubled at each further failure.
const RETRY_TICKS_MIN: u32 = 10;
/// The longest wait between two retries, in ticks.
const RETRY_TICKS_MAX: u32 = 640;

/// A counter that is there and could not be read in this tick.
///
/// What is not there at all (no such file, no such controller) is no failure: its series is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The metric left out; the first one where a source feeds several.
    pub metric: &'static Desc,
    /// What could not be done, to what, and what was found: lower case, no full stop. Equal causes
    /// have equal texts, so that a caller can say each one once.
    pub cause: String,
    /// True on the failure after which the counter is asked with back-off only: the fifth in a row,
    /// then one retry after 10 ticks, 20, 40 and so on up to every 640. Any success ends that.
    pub dropped: bool,
}

/// Failures in a row of one counter, and when to ask it again.
#[derive(Debug)]
pub(crate) struct Health {
    failures: u32,
    wait: u32,
    left: u32,
    wait_max: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self::up_to(RETRY_TICKS_MAX)
    }
}

impl Health {
    /// Nothing failed yet; the longest wait between two retries will be this many ticks.
    pub(crate) fn up_to(wait_max: u32) -> Self {
        Self { failures: 0, wait: 0, left: 0, wait_max }
    }

    /// Whether the counter is asked in this tick; counts the ticks in which it is not.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        true
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::up_to(self.wait_max);
    }

    /// Counts a failure; `Some(dropped)` when it is worth reporting, which a failed retry is not.
    pub(crate) fn failed(&mut self) -> Option<bool> {
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES_MAX {
            return Some(false);
        }
        self.wait = if self.wait == 0 { RETRY_TICKS_MIN } else { (self.wait * 2).min(self.wait_max) };
        // The tick in which the counter is asked again is the one after the last that is let pass.
        self.left = self.wait - 1;
        (self.failures == FAILURES_MAX).then_some(true)
    }

    /// Files the outcome of one read: the value passes through, a cause becomes a [`Failure`].
    #[cfg(tg_linux)]
    pub(crate) fn note<T>(
        &mut self,
        metric: &'static Desc,
        outcome: Result<T, String>,
        failures: &mut Vec<Failure>,
    ) -> Option<T> {
        match outcome {
            Ok(value) => {
                self.succeeded();
                Some(value)
            }
            Err(cause) => {
                if let Some(dropped) = self.failed() {
                    failures.push(Failure { metric, cause, dropped });
                }
                None
            }
        }
    }
}
