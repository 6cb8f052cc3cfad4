//! The threads that tell the receivers of the file: one for each, so that none waits for another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::book::Book;
use super::groups::{Groups, Key, Parcel, Step, names};
use super::log::{Delivery, Outcome};
use super::message;
use super::post::{Answer, Verdict};
use super::receivers::Receivers;
use super::waiting::Told;
use super::work::pause_after;
use crate::clock::now_ms;
use crate::files;

/// Longest pause before a delivery is tried again, milliseconds.
pub(super) const PAUSE_MS_MAX: i64 = 300_000;
/// How often a thread looks at the clock at least: it may be set.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// What receivers were told, in the data directory.
const FILE: &str = "notified.json";
const FILE_BYTES_MAX: u64 = 256 << 20;

/// What is counted of a receiver.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) failures: u64,
    pub(super) refused: u64,
}

#[derive(Debug, Default)]
struct State {
    groups: Groups,
    counts: BTreeMap<String, Counts>,
    is_stopping: bool,
    /// Another one has taken over.
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    receivers: Receivers,
    state: Mutex<State>,
    changed: Condvar,
    /// Only one at a time replaces the file.
    keeping: Mutex<()>,
    book: Arc<Book>,
    path: PathBuf,
    url: String,
    alerts_max: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Dispatch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a dispatch is started with.
pub(super) struct Setting<'s> {
    pub(super) data_dir: &'s Path,
    pub(super) book: &'s Arc<Book>,
    /// How people reach this server.
    pub(super) url: String,
    pub(super) alerts_max: usize,
}

impl Dispatch {
    /// Starts a thread for each receiver, with what the one before knows, or what was kept.
    pub(super) fn start(
        receivers: Receivers,
        before: Option<Self>,
        setting: Setting<'_>,
    ) -> Result<Self, std::io::Error> {
        let path = setting.data_dir.join(FILE);
        let groups = match before {
            // What is under way is not told twice, and its answer is heard.
            Some(before) if before.is_like(&receivers, &setting) => return Ok(before),
            Some(before) => {
                let mut groups = before.stop(super::STOP_TIME_MAX);
                groups.hand_over(&receivers, now_ms(), setting.alerts_max);
                groups
            }
            None => restored(&path, &receivers),
        };
        groups.note_known(&setting.book.deliveries);
        let names: Vec<String> = receivers.receivers.iter().map(|receiver| receiver.name.clone()).collect();
        let shared = Arc::new(Shared {
            receivers,
            state: Mutex::new(State { groups, ..State::default() }),
            changed: Condvar::new(),
            keeping: Mutex::default(),
            book: Arc::clone(setting.book),
            path,
            url: setting.url,
            alerts_max: setting.alerts_max,
        });
        let mut threads = Vec::new();
        for name in names {
            let work = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("tg-receiver".to_owned());
            threads.push(thread.spawn(move || work.run(&name))?);
        }
        Ok(Self { shared, threads })
    }

    /// Whether it tells the same receivers in the same words.
    fn is_like(&self, receivers: &Receivers, setting: &Setting<'_>) -> bool {
        let Shared { receivers: own, url, alerts_max, .. } = &*self.shared;
        own.are_like(receivers) && *url == setting.url && *alerts_max == setting.alerts_max
    }

    /// Takes in what a rule tells.
    pub(super) fn offer(&self, told: &[Arc<Told>]) {
        let now_ms = now_ms();
        let mut state = self.shared.state();
        let before = state.groups.dropped;
        for told in told {
            let routes = self.shared.receivers.routes_of(&told.labels);
            state.groups.take(told, &routes, now_ms, self.shared.alerts_max);
        }
        let dropped = state.groups.dropped - before;
        drop(state);
        self.shared.changed.notify_all();
        if dropped > 0 {
            tracing::warn!(alerts = dropped, "too many alerts wait: some are told to nobody");
        }
    }

    /// Silences have changed.
    pub(super) fn look_again(&self) {
        self.shared.state().groups.look_again(now_ms());
        self.shared.changed.notify_all();
    }

    /// What is counted by receiver, with its kind and how many alerts wait to be told.
    pub(super) fn counts(&self) -> Vec<(String, &'static str, Counts, usize)> {
        let state = self.shared.state();
        let of = |receiver: &super::receivers::Receiver| {
            let counts = state.counts.get(&receiver.name).copied().unwrap_or_default();
            (receiver.name.clone(), receiver.kind.name(), counts, state.groups.untold(&receiver.name))
        };
        self.shared.receivers.receivers.iter().map(of).collect()
    }

    /// Alerts that did not fit.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.state().groups.dropped
    }

    /// Ends the threads; a delivery that is still under way after `grace` is left to itself. Gives what
    /// is known.
    pub(super) fn stop(mut self, grace: Duration) -> Groups {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
        let until = Instant::now() + grace;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("the thread that tells a receiver ended by a panic");
            }
        }
        let mut state = self.shared.state();
        state.is_over = true;
        std::mem::take(&mut state.groups)
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
    }
}

fn restored(path: &Path, receivers: &Receivers) -> Groups {
    let read = match files::bytes(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Groups::default(),
        read => read.map_err(|error| error.to_string()),
    };
    read.and_then(|bytes| Groups::restore(&bytes, receivers, now_ms())).unwrap_or_else(|error| {
        tracing::warn!(error, path = %path.display(), "what receivers were told is not known: they are told anew");
        Groups::default()
    })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, name: &str) {
        let Some(receiver) = self.receivers.receiver(name) else { return };
        let mut failures = 0;
        while let Some(parcel) = self.wait(name, receiver.send_resolved) {
            let started = Instant::now();
            let body = message::body(receiver, &parcel, &self.url, now_ms());
            let answer = receiver.outlet.post(&body);
            let took = started.elapsed();
            failures = if answer.verdict == Verdict::Taken { 0 } else { failures + 1 };
            let settled = self.settle(&parcel, &answer, (receiver.kind.name(), took));
            let Err(wish) = settled else { continue };
            let pause = wish.unwrap_or_else(|| pause_after(failures));
            // Other groups of this receiver come first when it is back.
            let own = pause_after(parcel.tries + 1).max(pause).as_millis();
            let own = i64::try_from(own).unwrap_or(PAUSE_MS_MAX).min(PAUSE_MS_MAX);
            let mut state = self.state();
            state.groups.failed(&parcel.key, now_ms(), own);
            drop(self.changed.wait_timeout_while(state, pause, |state| !state.is_stopping));
        }
    }

    /// Waits for something to tell; nothing when all is over.
    fn wait(&self, name: &str, with_ends: bool) -> Option<Parcel> {
        let mut state = self.state();
        loop {
            if state.is_stopping {
                return None;
            }
            let now_ms = now_ms();
            let causes = self.causes(&state.groups, now_ms);
            let mute = |told: &Told| self.mute(told, &causes, now_ms);
            match state.groups.next(name, now_ms, &mute, with_ends) {
                Step::Send(parcel) => return Some(parcel),
                Step::Muted(key, muted) => {
                    drop(state);
                    self.log_muted(&key, &muted);
                    state = self.state();
                }
                Step::Wait(until_ms) => {
                    let wait = Duration::from_millis((until_ms.saturating_sub(now_ms)).max(1).unsigned_abs());
                    let waited = self.changed.wait_timeout(state, wait.min(PERIOD_MAX));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// For each inhibition, what firing alerts are the cause of.
    fn causes(&self, groups: &Groups, now_ms: i64) -> Vec<BTreeSet<Vec<String>>> {
        let of = |inhibition: &super::receivers::Inhibition| {
            let sources = groups.firing(now_ms).filter(|told| inhibition.is_source(&told.labels));
            let causes = sources.filter_map(|told| inhibition.cause_of(&told.labels));
            causes.map(|cause| cause.into_iter().map(str::to_owned).collect()).collect()
        };
        self.receivers.inhibitions.iter().map(of).collect()
    }

    /// Why nobody is told of an alert, if it is so.
    fn mute(&self, told: &Told, causes: &[BTreeSet<Vec<String>>], now_ms: i64) -> Option<String> {
        if let Some(silence) = self.book.silences.of(&told.labels, now_ms).first() {
            return Some(format!("silenced: {}", silence.comment));
        }
        let is_superfluous = self.receivers.inhibitions.iter().zip(causes).any(|(inhibition, causes)| {
            inhibition.is_target(&told.labels)
                && !inhibition.is_source(&told.labels)
                && inhibition.cause_of(&told.labels).is_some_and(|cause| {
                    causes.contains(&cause.into_iter().map(str::to_owned).collect::<Vec<_>>())
                })
        });
        is_superfluous.then(|| "a graver alert of the same cause fires".to_owned())
    }

    fn log_muted(&self, key: &Key, muted: &[(Arc<Told>, String)]) {
        let kind = self.receivers.receiver(&key.0).map_or("", |receiver| receiver.kind.name());
        let reason = muted.first().map(|(_, reason)| reason.clone());
        let row = Delivery {
            id: 0,
            time: now_ms(),
            group: message::group_key(&key.0, &key.1),
            receiver: key.0.clone(),
            kind: kind.to_owned(),
            state: "firing".to_owned(),
            alerts: muted.len(),
            rules: names(muted.iter().map(|(told, _)| told)),
            result: Outcome::Silenced,
            status: None,
            took_ms: None,
            tries: 0,
            error: reason,
        };
        self.book.log(row, muted.iter().map(|(told, _)| told.fingerprint));
    }

    /// Remembers what came of a delivery. One that is to be tried again is an error, with the pause that
    /// the receiver wishes, if it does.
    fn settle(
        &self,
        parcel: &Parcel,
        answer: &Answer,
        (kind, took): (&str, Duration),
    ) -> Result<(), Option<Duration>> {
        let mut state = self.state();
        let counts = state.counts.entry(parcel.key.0.clone()).or_default();
        let alerts = parcel.firing.len() + parcel.resolved.len();
        let (result, error, pause) = match &answer.verdict {
            Verdict::Taken => {
                counts.sent += alerts as u64;
                (Outcome::Delivered, None, Ok(()))
            }
            Verdict::Refused(why) => {
                (counts.failures, counts.refused) = (counts.failures + 1, counts.refused + alerts as u64);
                tracing::warn!(receiver = parcel.key.0, alerts, why, "alerts are refused");
                (Outcome::Failed, Some(why.clone()), Ok(()))
            }
            Verdict::Later(why, wish) => {
                counts.failures += 1;
                if parcel.tries == 0 {
                    tracing::warn!(
                        receiver = parcel.key.0,
                        why,
                        "alerts can't be delivered, and are tried again"
                    );
                }
                (Outcome::Waiting, Some(why.clone()), Err(*wish))
            }
        };
        match result {
            Outcome::Delivered => state.groups.sent(parcel, now_ms()),
            Outcome::Failed => state.groups.refused(&parcel.key, now_ms()),
            _ => (),
        }
        drop(state);
        if pause.is_ok() {
            self.keep();
        }
        // Of a receiver that is away the first failure is a row, not each.
        if pause.is_ok() || parcel.tries == 0 {
            let row = Delivery {
                id: 0,
                time: now_ms(),
                group: message::group_key(&parcel.key.0, &parcel.key.1),
                receiver: parcel.key.0.clone(),
                kind: kind.to_owned(),
                state: if parcel.firing.is_empty() { "resolved" } else { "firing" }.to_owned(),
                alerts,
                rules: names(parcel.firing.iter().chain(&parcel.resolved)),
                result,
                status: answer.status,
                took_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                tries: parcel.tries + 1,
                error,
            };
            self.book.log(row, parcel.firing.iter().chain(&parcel.resolved).map(|told| told.fingerprint));
        }
        pause
    }

    fn keep(&self) {
        let _one_at_a_time = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = {
            let state = self.state();
            if state.is_over {
                return;
            }
            state.groups.kept()
        };
        let kept = serde_json::to_vec(&kept)
            .map_err(std::io::Error::from)
            .and_then(|bytes| files::replace(&self.path, &bytes));
        if let Err(error) = kept {
            tracing::warn!(%error, path = %self.path.display(), "what receivers were told is not kept: after a restart they are told again");
        }
    }
}
