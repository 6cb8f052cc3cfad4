//! Evaluates rules on schedule: what they record is stored, what they alert on is shown and told.
//!
//! One thread evaluates all groups, one after another. A group's state is kept beside the store, so
//! that a restart loses no pending alert and recording rules make up for what they missed. Other rules
//! may take the place of the ones in force; groups that stay the same go on as if nothing had been.

mod files;
mod keep;
mod show;
mod work;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use model::Labels;
use promql::rules::{Group, Setting};
use promql::{Cancel, Options};
use serde_json::Value;

use crate::app::App;
use crate::config::{AlertingConfig, Config};
use crate::notify::Outside;
use crate::query::limits;

pub use files::RulesError;
pub(crate) use files::{Groups, groups};
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

/// Groups as Prometheus' API shows them.
pub(crate) type Shown = Arc<Mutex<Vec<Value>>>;

/// Evaluates until it is stopped.
pub(crate) struct Ruler {
    /// The groups.
    pub(crate) shown: Shown,
    cancel: Cancel,
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<State>>,
}

impl std::fmt::Debug for Ruler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruler").finish_non_exhaustive()
    }
}

/// How this server calls itself in alerts, by its settings.
fn outside(app: &App, alerting: &AlertingConfig) -> Outside {
    let url = match alerting.external_url.as_str() {
        "" => app.url.clone(),
        url => url.to_owned(),
    };
    let labels = alerting.external_labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Outside { url, labels: Labels::from_pairs(labels) }
}

/// Starts evaluating with what was kept, if there are rules.
pub(crate) fn start(app: &App, groups: Groups) -> Result<(), RulesError> {
    let mut state = State { groups: groups.0, gone: Vec::new() };
    keep::restore(&app.config.data_dir, &mut state);
    run(app, state, &app.config.alerting)
}

/// Puts other rules in place of the ones in force. Groups that are written as before keep all they
/// know, changed ones what their unchanged rules know; series that nothing writes any more are ended.
pub(crate) fn replace(app: &App, groups: Groups, config: &Config) -> Result<(), RulesError> {
    let mut old = end(app).unwrap_or_default();
    let mut state = State { groups: groups.0, gone: std::mem::take(&mut old.gone) };
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
    run(app, state, &config.alerting)
}

fn run(app: &App, state: State, alerting: &AlertingConfig) -> Result<(), RulesError> {
    if state.groups.is_empty() && state.gone.is_empty() {
        return Ok(());
    }
    let shown: Shown = Arc::new(Mutex::new(state.groups.iter().map(show::show).collect()));
    let outside = outside(app, alerting);
    let cancel = Cancel::new();
    let (limits, memory) = (limits(&app.config), app.turns.query_memory.clone());
    let options = Options { limits, memory, cancel: cancel.clone(), ..Options::default() };
    let setting =
        Setting { options, external_labels: outside.labels.clone(), external_url: outside.url.clone() };
    let stopping: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let work = Work {
        shared: Arc::downgrade(app),
        shown: Arc::clone(&shown),
        stopping: Arc::clone(&stopping),
        setting,
        outside,
        resend_ms: i64::try_from(alerting.resend_delay.as_millis()).unwrap_or(i64::MAX),
        state,
    };
    let thread = std::thread::Builder::new()
        .name("truegauge-rules".to_owned())
        .spawn(move || work.run())
        .map_err(RulesError::Thread)?;
    *app.ruler() = Some(Ruler { shown, cancel, stopping, thread: Some(thread) });
    Ok(())
}

/// Ends evaluating.
pub(crate) fn stop(app: &App) {
    drop(end(app));
}

/// Ends evaluating; what is under way is given up and done anew by whoever goes on with the state.
fn end(app: &App) -> Option<State> {
    let mut ruler = app.ruler().take()?;
    ruler.cancel.cancel();
    *ruler.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    ruler.stopping.1.notify_all();
    match ruler.thread.take()?.join() {
        Ok(state) => Some(state),
        Err(_panic) => {
            tracing::error!("the rules' thread ended by a panic");
            None
        }
    }
}
