//! The server's own metrics and the states of runs, stored as series beside everybody else's, so that
//! PromQL and rules see them. Like a scrape of itself, without the HTTP.

mod runs;
mod site;

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{Labels, NANOS_PER_MILLI, Sample};
use promql::rules::Write;
use store::AppendError;
use wire::page::{Entry, PageLimits};

use crate::app::{App, Shared, stopped};
use crate::clock::now_ms;
use crate::ingest::outcome;
use crate::intake::Intake;
use crate::metrics::head;

pub(crate) use runs::{is_logged, is_statement};
pub(crate) use site::Facts;

/// Name of this door in the counters.
const DOOR: &str = "own";
/// The label `job` of these series.
const JOB: &str = "truegauge";
/// Most series of the server's own; the page is far below it, and what is beyond is counted.
const SERIES_MAX: usize = 10_000;

/// The page `/metrics`: what the server counts, and what it knows of its surroundings.
pub(crate) fn page(shared: &Shared) -> String {
    let queries = (shared.turns.querying.taken(), shared.turns.query_memory.taken());
    let mut page = shared.metrics.page(&shared.store.status(), queries);
    let mut put = |name: &str, value: f64, help: &str| {
        head(&mut page, name, "gauge", help);
        let _ = writeln!(page, "{name} {value}");
    };
    put(
        "truegauge_store_reserve_bytes",
        shared.config.reserve_bytes as f64,
        "Free space below which writes are refused.",
    );
    if let Ok(disk) = rustix::fs::statvfs(&shared.config.data_dir) {
        put(
            "truegauge_store_filesystem_bytes",
            disk.f_blocks as f64 * disk.f_frsize as f64,
            "Size of the file system that holds the data directory.",
        );
    }
    let reloaded = shared.reloads.last();
    put(
        "truegauge_config_last_reload_successful",
        f64::from(u8::from(reloaded.is_good)),
        "0 when settings were read anew last and could not be used.",
    );
    put(
        "truegauge_config_last_reload_success_timestamp_seconds",
        reloaded.good_ms as f64 / 1e3,
        "When settings took effect last.",
    );
    shared.notifier().write(&mut page);
    shared.verdicts.write(&mut page);
    shared.canon.page(&mut page);
    if let Some(far) = &shared.far {
        far.page(&mut page);
    }
    if let Some(forward) = &shared.forward {
        forward.page(&mut page);
    }
    page
}

/// Starts the rounds, unless they are switched off; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    if !app.config.own_metrics {
        return;
    }
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let instance = instance(&app);
        let mut known = Known::default();
        let mut rounds =
            tokio::time::interval(app.config.own_metrics_interval.max(Duration::from_millis(10)));
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        // The first tick is now, when there is nothing to tell yet.
        rounds.tick().await;
        loop {
            tokio::select! {
                _ = rounds.tick() => (),
                () = stopped(&mut stopping) => return,
            }
            let (app, instance) = (Arc::clone(&app), instance.clone());
            let round = tokio::task::spawn_blocking(move || {
                round(&app, &instance, &mut known);
                known
            });
            known = match round.await {
                Ok(known) => known,
                Err(error) => {
                    tracing::error!(%error, "own metrics can't be stored any more");
                    return;
                }
            };
        }
    });
}

/// A label's name beside those of the server itself, as a scrape has it.
fn exported(label: &str) -> &str {
    match label {
        "job" => "exported_job",
        "instance" => "exported_instance",
        other => other,
    }
}

/// What was stated last.
#[derive(Default)]
struct Known {
    runs: runs::Known,
    site: site::Known,
}

/// What was said last and the store did not take: rules see it all the same, as the one that tells of a
/// full disk must.
#[derive(Debug, Default)]
pub(crate) struct Unstored(Mutex<Vec<(Labels, f64)>>);

impl Unstored {
    fn put(&self, said: Vec<(Labels, f64)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// As samples of `time_ms`.
    pub(crate) fn at(&self, time_ms: i64) -> Vec<Write> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let write =
            |(labels, value): &(Labels, f64)| Write { labels: labels.clone(), time_ms, value: *value };
        said.iter().map(write).collect()
    }
}

/// Stores everything once. What a busy or full store refuses is counted and comes anew next time.
fn round(shared: &Shared, instance: &str, known: &mut Known) {
    let time_ms = now_ms();
    let sample = |value| vec![Sample { time_ns: time_ms.saturating_mul(NANOS_PER_MILLI), value, step: None }];
    let mut intake = Intake::own(DOOR);
    let mut said = Vec::new();
    let mut put = |intake: &mut Intake, labels: &Labels, value: f64| {
        intake.series(labels.iter(), sample(value));
        said.push((labels.clone(), value));
    };
    let page = page(shared);
    let mut series = 0;
    let read = wire::exposition::parse(page.as_bytes(), PageLimits::default(), |entry| {
        match entry {
            Entry::Sample(found) if series < SERIES_MAX => {
                series += 1;
                let own = [("__name__", &*found.name), ("job", JOB), ("instance", instance)];
                let labels = found.labels.iter().map(|label| (exported(&label.name), &*label.value));
                put(&mut intake, &Labels::from_pairs(labels.chain(own)), found.value);
            }
            Entry::Sample(_) => intake.refuse("own_series_limit", 1, String::new),
            Entry::Kind { metric, kind } => {
                intake.describe(&metric, kind, &help_of(&page, &metric), "");
            }
            Entry::Help { .. } | Entry::Unit { .. } => (),
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        tracing::error!(%error, "the server can't read its own metrics");
    }
    let of_runs = known.runs.round(shared, time_ms);
    let of_site = known.site.round(shared, time_ms, &of_runs);
    for (labels, value) in of_runs.iter().chain(&of_site) {
        put(&mut intake, labels, *value);
    }
    match intake.store(shared) {
        Ok(_counted) => shared.metrics.unstored.put(Vec::new()),
        Err(error) => {
            shared.metrics.rejected.add(&[DOOR, outcome(&error)], said.len() as u64);
            shared.metrics.unstored.put(said);
            if !matches!(error, AppendError::Busy { .. } | AppendError::Full { .. }) {
                tracing::warn!(%error, "own metrics are not stored");
            }
        }
    }
}

/// The help of a metric, which stands in front of its type.
fn help_of(page: &str, metric: &str) -> String {
    let start = format!("# HELP {metric} ");
    page.lines().find_map(|line| line.strip_prefix(&*start)).unwrap_or_default().to_owned()
}

/// How this server is told from others: where it listens, under the machine's name where the address
/// says nothing to others.
fn instance(shared: &Shared) -> String {
    let listen = shared.config.listen;
    if listen.ip().is_loopback() || listen.ip().is_unspecified() {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        return format!("{host}:{}", listen.port());
    }
    listen.to_string()
}
