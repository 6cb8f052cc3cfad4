//! Evaluates rules on schedule: what they record is stored, what they alert on is shown and told.
//!
//! One thread evaluates all groups, one after another: one that reads what another writes comes after it,
//! so that a round is enough. A group's state is kept beside the store, so
//! that a restart loses no pending alert and recording rules make up for what they missed. Other rules
//! may take the place of the ones in force; groups that stay the same go on as if nothing had been.

mod files;
mod keep;
pub(crate) mod saved_rules;
mod show;
mod stand;
mod tested;
mod word;
mod work;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use model::Labels;
use promql::rules::{Group, RuleText, Setting};
use promql::{Cancel, Limits, Options};
use serde_json::Value;

use crate::app::{App, Shared};
use crate::config::{AlertingConfig, Config};
use crate::notify::Outside;
use crate::query::limits;
use crate::source::Kept;

pub use files::RulesError;
pub(crate) use files::{Groups, groups};
use keep::Keeper;
pub(crate) use stand::{GroupStood, Standing, Stood};
pub(crate) use tested::Tested;
pub(crate) use word::severity;
use work::{State, Work};

/// A group and how its rules fared.
struct Ruled {
    file: String,
    group: Group,
    limit: usize,
    fared: Vec<Fared>,
    last_ms: Option<i64>,
    took: Duration,
}

/// How one rule fared last.
#[derive(Clone, Default)]
struct Fared {
    at_ms: Option<i64>,
    took: Duration,
    error: Option<String>,
}

/// A rule in force, as it is written.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The file that has it.
    pub(crate) file: String,
    /// Its group.
    pub(crate) group: String,
    /// How often it is evaluated.
    pub(crate) interval_ms: i64,
    /// Itself.
    pub(crate) text: RuleText,
}

impl Known {
    fn of(ruled: &Ruled) -> impl Iterator<Item = Self> {
        ruled.group.rules().map(|text| Self {
            file: ruled.file.clone(),
            group: ruled.group.name.clone(),
            interval_ms: ruled.group.interval_ms,
            text: text.clone(),
        })
    }
}

/// The first rule in force of a name.
pub(crate) fn find(shared: &Shared, name: &str) -> Option<Known> {
    shared.ruler().as_ref()?.written.iter().find(|known| known.text.name == name).cloned()
}

/// Groups as Prometheus' API shows them.
pub(crate) type Shown = Arc<Mutex<Vec<Value>>>;

/// Evaluates until it is stopped.
pub(crate) struct Ruler {
    /// The groups.
    pub(crate) shown: Shown,
    /// The alerts that are pending or fire, and how rules fare.
    pub(crate) stood: Stood,
    /// How this server calls itself.
    pub(crate) outside: Outside,
    /// The rules as they are written.
    written: Vec<Known>,
    cancel: Cancel,
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<State>>,
}

impl std::fmt::Debug for Ruler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruler").finish_non_exhaustive()
    }
}

/// Where people reach this server, by its settings; `url` is an address that it listens on.
pub(crate) fn outside_url(url: &str, alerting: &AlertingConfig) -> String {
    if alerting.external_url.is_empty() { url } else { &alerting.external_url }.to_owned()
}

/// How this server calls itself in alerts, by its settings.
fn outside(app: &App, alerting: &AlertingConfig) -> Outside {
    let url = outside_url(&app.url, alerting);
    let labels = alerting.external_labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Outside { url, labels: Labels::from_pairs(labels) }
}

/// What is in force beside what people save: files as they were read, and the settings.
#[derive(Debug, Default)]
pub(crate) struct Rulebook(Mutex<(Groups, AlertingConfig)>);

impl Rulebook {
    fn read(&self) -> MutexGuard<'_, (Groups, AlertingConfig)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files.
    fn look<T>(&self, at: impl FnOnce(&Groups) -> T) -> T {
        at(&self.read().0)
    }
}

/// Starts evaluating with what was kept, if there are rules.
pub(crate) fn start(app: &App, groups: Groups) -> Result<(), RulesError> {
    let mut state = State { groups: groups.with(&saved_rules::all(&app.store))?, gone: Vec::new() };
    *app.reloads.rulebook.read() = (groups, app.config.alerting.clone());
    Keeper::new(&app.config.data_dir).restore(&mut state);
    run(app, state, &app.config.alerting)
}

/// Puts other rules in place of the ones in force. Groups that are written as before keep all they
/// know, changed ones what their unchanged rules know; series that nothing writes any more are ended.
pub(crate) fn replace(app: &App, groups: Groups, config: &Config) -> Result<(), RulesError> {
    let ready = groups.with(&saved_rules::all(&app.store))?;
    *app.reloads.rulebook.read() = (groups, config.alerting.clone());
    swap(app, ready, &config.alerting)
}

/// As [`replace`], with the files and settings in force and these saved files.
fn again(app: &App, saved: &[saved_rules::SavedFile]) -> Result<(), RulesError> {
    let (groups, alerting) = app.reloads.rulebook.read().clone();
    swap(app, groups.with(saved)?, &alerting)
}

fn swap(app: &App, groups: Vec<Ruled>, alerting: &AlertingConfig) -> Result<(), RulesError> {
    let mut old = end(app).unwrap_or_default();
    let mut state = State { groups, gone: std::mem::take(&mut old.gone) };
    for ruled in &mut state.groups {
        let same = |other: &Ruled| keep::key(other) == keep::key(ruled);
        let Some(at) = old.groups.iter().position(same) else { continue };
        let before = old.groups.swap_remove(at);
        if before.group.is_like(&ruled.group) {
            *ruled = before;
        } else {
            ruled.group.restore(before.group.state());
        }
    }
    state.gone.extend(old.groups.iter().flat_map(|gone| gone.group.state().series().collect::<Vec<_>>()));
    run(app, state, alerting).inspect_err(|_| *app.ruler() = None)
}

fn run(app: &App, state: State, alerting: &AlertingConfig) -> Result<(), RulesError> {
    if state.groups.is_empty() && state.gone.is_empty() {
        *app.ruler() = None;
        return Ok(());
    }
    let shown: Shown = Arc::new(Mutex::new(state.groups.iter().map(show::show).collect()));
    let stood: Stood = Arc::new(Mutex::new(state.groups.iter().map(stand::of).collect()));
    let written = state.groups.iter().flat_map(Known::of).collect();
    let order = promql::rules::order(&state.groups.iter().map(|ruled| &ruled.group).collect::<Vec<_>>());
    let outside = outside(app, alerting);
    let cancel = Cancel::new();
    let (limits, memory) = (limits(&app.config), app.turns.query_memory.clone());
    let kept = Kept::new(memory.clone());
    // What rules read is kept, so that a thread costs more to start than it saves.
    let limits = Limits { threads: 1, ..limits };
    let options = Options { limits, memory, cancel: cancel.clone(), ..Options::default() };
    let setting =
        Setting { options, external_labels: outside.labels.clone(), external_url: outside.url.clone() };
    let stopping: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let work = Work {
        shared: Arc::downgrade(app),
        shown: Arc::clone(&shown),
        stood: Arc::clone(&stood),
        stopping: Arc::clone(&stopping),
        setting,
        outside: outside.clone(),
        resend_ms: i64::try_from(alerting.resend_delay.as_millis()).unwrap_or(i64::MAX),
        state,
        order,
        words: word::Words::default(),
        kept,
        keeper: Keeper::new(&app.config.data_dir),
    };
    let thread = std::thread::Builder::new()
        .name("truegauge-rules".to_owned())
        .spawn(move || work.run())
        .map_err(RulesError::Thread)?;
    *app.ruler() = Some(Ruler { shown, stood, outside, written, cancel, stopping, thread: Some(thread) });
    Ok(())
}

/// Ends evaluating.
pub(crate) fn stop(app: &App) {
    drop(end(app));
    *app.ruler() = None;
}

/// Ends evaluating; what is under way is given up and done anew by whoever goes on with the state. What was
/// concluded is shown until somebody does.
fn end(app: &App) -> Option<State> {
    let thread = {
        let mut ruler = app.ruler();
        let ruler = ruler.as_mut()?;
        ruler.cancel.cancel();
        *ruler.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ruler.stopping.1.notify_all();
        ruler.thread.take()?
    };
    match thread.join() {
        Ok(state) => Some(state),
        Err(_panic) => {
            tracing::error!("the rules' thread ended by a panic");
            None
        }
    }
}
