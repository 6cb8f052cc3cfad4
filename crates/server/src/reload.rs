//! Reads settings and files anew while the server runs: on SIGHUP and `POST /-/reload`, as Prometheus.
//!
//! What is scraped, which rules are evaluated and whom alerts are told to follows at once; everything
//! else waits for a restart. A reload is all or nothing: what can't be used leaves the old in force.

use std::sync::{Arc, Mutex, PoisonError};

use crate::app::{App, Shared};
use crate::clock::{now_ms, rfc3339};
use crate::config::Config;
use crate::notify::{Notifier, NotifyError};
use crate::ruling::{self, RulesError};
use crate::scraping::{self, ScrapingError};

/// How the settings are read anew; the program hands it in.
#[derive(Clone, Default)]
pub struct Reread(Option<Arc<ReadSettings>>);

type ReadSettings = dyn Fn() -> Result<Config, String> + Send + Sync;

impl Reread {
    /// By a function that gives the settings, or says why it can't.
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }
}

impl std::fmt::Debug for Reread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The settings can't be used.
    #[error("{0}")]
    Settings(String),
    /// The targets can't.
    #[error("cannot scrape: {0}")]
    Scraping(#[from] ScrapingError),
    /// The rules can't.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The Alertmanagers can't.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// No thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// How the last reload went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reloaded {
    /// Whether it took effect; true where there was none.
    pub(crate) is_good: bool,
    /// When settings took effect last, milliseconds since the epoch.
    pub(crate) good_ms: i64,
}

/// See [`Reloaded`]. Held while one goes on.
#[derive(Debug)]
pub(crate) struct Reloads {
    last: Mutex<Reloaded>,
    turn: Mutex<()>,
}

impl Reloads {
    pub(crate) fn new(now_ms: i64) -> Self {
        Self { last: Mutex::new(Reloaded { is_good: true, good_ms: now_ms }), turn: Mutex::default() }
    }

    /// How the last one went.
    pub(crate) fn last(&self) -> Reloaded {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When settings took effect last, as RFC 3339 writes it.
    pub(crate) fn good_rfc3339(&self) -> String {
        rfc3339(self.last().good_ms)
    }
}

/// Reads everything anew and puts it in force. Blocks. What is wrong is logged and returned.
pub(crate) fn reload(app: &App) -> Result<(), ReloadError> {
    let _one_at_a_time = app.reloads.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let result = apply(app);
    let mut last = app.reloads.last.lock().unwrap_or_else(PoisonError::into_inner);
    last.is_good = result.is_ok();
    match &result {
        Ok(()) => {
            last.good_ms = now_ms();
            tracing::info!("settings, targets and rules are read anew");
        }
        Err(error) => tracing::error!(%error, "nothing is changed: what was in force stays"),
    }
    result
}

fn apply(app: &App) -> Result<(), ReloadError> {
    let config = match &app.config.reread.0 {
        Some(read) => read().map_err(ReloadError::Settings)?,
        None => app.config.clone(),
    };
    // All that can be wrong is found before anything is changed.
    let targets = scraping::targets(&config)?;
    let groups = ruling::groups(&config)?;
    let receivers = Notifier::targets(&config.alerting)?;
    scraping::replace(app, targets)?;
    notify(app, receivers, config.alerting.queue_max)?;
    ruling::replace(app, groups, &config)?;
    Ok(())
}

/// Puts other Alertmanagers in place.
fn notify(shared: &Shared, receivers: Vec<crate::notify::Target>, max: usize) -> Result<(), ReloadError> {
    let mut notifier = shared.notifier();
    let before = std::mem::take(&mut *notifier);
    *notifier = Notifier::start(receivers, max, before).map_err(ReloadError::Thread)?;
    Ok(())
}
