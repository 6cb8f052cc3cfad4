//! Reads settings and files anew while the server runs: on SIGHUP and `POST /-/reload`, as Prometheus.
//!
//! What is scraped, which rules are evaluated and whom alerts are told to follows at once; everything
//! else waits for a restart. A reload is all or nothing: what can't be used leaves the old in force.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::app::{App, Shared};
use crate::clock::{now_ms, rfc3339};
use crate::config::Config;
use crate::notify::{Notifier, NotifyError, Place, Plan};
use crate::remediation::{self, PolicyError};
use crate::ruling::{self, Rulebook, RulesError, Tested};
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
    /// Whom alerts are told to can't.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// The policy of remediation can't.
    #[error(transparent)]
    Policy(#[from] PolicyError),
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
    saving: Mutex<()>,
    /// The rules that were read last.
    pub(crate) rulebook: Rulebook,
    /// How the tests of rules fared.
    pub(crate) tested: Tested,
}

impl Reloads {
    pub(crate) fn new(now_ms: i64) -> Self {
        let last = Mutex::new(Reloaded { is_good: true, good_ms: now_ms });
        Self {
            last,
            turn: Mutex::default(),
            saving: Mutex::default(),
            rulebook: Rulebook::default(),
            tested: Tested::default(),
        }
    }

    /// While this is held, nobody else changes what is in force.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this is held, nobody else changes which rules are saved. Taken before the turn, where both are.
    pub(crate) fn saving(&self) -> MutexGuard<'_, ()> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
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
    let _one_at_a_time = app.reloads.turn();
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
    let told = Notifier::plan(&config.alerting)?;
    let policy = remediation::load(&config.remediation)?;
    scraping::replace(app, targets)?;
    notify(app, told, &config)?;
    ruling::replace(app, groups, &config)?;
    app.remedy.replace(policy);
    app.site.put(&config.site);
    Ok(())
}

/// Puts other Alertmanagers and receivers in place.
fn notify(shared: &Shared, told: Plan, config: &Config) -> Result<(), ReloadError> {
    let mut notifier = shared.notifier();
    let before = std::mem::take(&mut *notifier);
    let place = Place {
        data_dir: &shared.config.data_dir,
        book: &shared.book,
        url: ruling::outside_url(&shared.url, &config.alerting),
        queue_max: config.alerting.queue_max,
    };
    *notifier = Notifier::start(told, place, before).map_err(ReloadError::Thread)?;
    Ok(())
}
