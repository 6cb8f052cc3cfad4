//! The thread that tells one Alertmanager.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::book::Book;
use super::groups::{common, names};
use super::log::{Delivery, Outcome};
use super::message::group_key;
use super::post::{Answer, Target, Verdict};
use super::waiting::{Counts, Told, Waiting};
use crate::clock::now_ms;

/// Most alerts in one request.
const BATCH_MAX: usize = 64;
/// Alerts of which it is remembered that they were told.
const KNOWN_MAX: usize = 50_000;
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
    book: Arc<Book>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    is_stopping: bool,
}

impl Receiver {
    /// Starts its thread.
    pub(super) fn start(target: Target, book: Arc<Book>) -> Result<Self, std::io::Error> {
        let shared = Arc::new(Shared { target, state: Mutex::default(), changed: Condvar::new(), book });
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
        let mut known = Known::default();
        while let Some(batch) = self.next() {
            let started = Instant::now();
            let answer = self.target.post(&batch);
            self.log(&batch, &answer, (failures, started.elapsed()), &mut known);
            let url = self.target.shown();
            let pause = match answer.verdict {
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

    /// Logs what is news to the Alertmanager: it is told of all that fires again and again. Of one that is
    /// away the first failure is a row, not each.
    fn log(
        &self,
        batch: &[Arc<Told>],
        answer: &Answer,
        (failures, took): (u32, Duration),
        known: &mut Known,
    ) {
        let is_new = |told: &&Arc<Told>| known.get(&told.fingerprint) != Some(&standing(told));
        let news: Vec<Arc<Told>> = batch.iter().filter(is_new).map(Arc::clone).collect();
        let (result, error) = match &answer.verdict {
            Verdict::Taken => (Outcome::Delivered, None),
            Verdict::Refused(why) => (Outcome::Failed, Some(why.clone())),
            Verdict::Later(why, _) => (Outcome::Waiting, Some(why.clone())),
        };
        if news.is_empty() || (result == Outcome::Waiting && failures > 0) {
            return;
        }
        if result != Outcome::Waiting {
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.extend(news.iter().map(|told| (told.fingerprint, standing(told))));
        }
        let row = Delivery {
            id: 0,
            time: now_ms(),
            group: group_key("", &common(news.iter().map(|told| &told.labels))),
            receiver: self.target.shown().to_owned(),
            kind: "alertmanager".to_owned(),
            state: if news.iter().all(|told| told.is_resolved) { "resolved" } else { "firing" }.to_owned(),
            alerts: news.len(),
            rules: names(&news),
            result,
            status: answer.status,
            took_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            tries: failures + 1,
            error,
        };
        self.book.log(row, news.iter().map(|told| told.fingerprint));
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

/// How each alert was told last, by fingerprint.
type Known = HashMap<u64, (i64, bool)>;

fn standing(told: &Told) -> (i64, bool) {
    (told.starts_at_ms, told.is_resolved)
}

/// The pause after so many failures in a row, with up to a quarter more so that servers that failed
/// together don't come back together.
pub(super) fn pause_after(failures: u32) -> Duration {
    let pause = PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let mut byte = [0];
    let quarters = if getrandom::fill(&mut byte).is_ok() { f64::from(byte[0]) / 1_024.0 } else { 0.0 };
    pause.mul_f64(1.0 + quarters)
}
