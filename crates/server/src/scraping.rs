//! Scraping as the server does it: what is scraped, how a page is read, where samples go.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use scrape::{
    PageEntry, PageExemplar, PageFormat, PageSample, ScrapeBatch, ScrapedSample, Scraper, TakeEntry,
};
use store::AppendError;
use wire::page::{Entry, PageLimits};

use crate::app::{App, Shared};
use crate::config::Config;
use crate::ingest::outcome;
use crate::intake::Intake;
use crate::known::Scraped;

/// Name of this door in the counters.
const DOOR: &str = "scrape";
/// How often a scrape is offered to a busy store, and how long it waits in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How long scrapes under way may take to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// Why nothing is scraped.
#[derive(Debug, thiserror::Error)]
pub enum ScrapingError {
    /// The targets can't be read.
    #[error(transparent)]
    Config(#[from] scrape::ConfigError),
    /// They can't be put to work.
    #[error(transparent)]
    Start(#[from] scrape::StartError),
}

/// The targets of the settings: those of the file, then the URLs.
pub(crate) fn targets(config: &Config) -> Result<scrape::Config, ScrapingError> {
    let mut all = match &config.scrape_config {
        Some(path) => scrape::Config::read(path)?,
        None => scrape::Config::default(),
    };
    for mut job in scrape::Config::of_urls(&config.scrape, config.scrape_interval)?.jobs {
        while all.jobs.iter().any(|other| other.name == job.name) {
            job.name.push_str("-url");
        }
        all.jobs.push(job);
    }
    Ok(all)
}

/// Starts scraping, if there is anything to scrape.
pub(crate) fn start(app: &App, targets: scrape::Config) -> Result<(), ScrapingError> {
    if targets.jobs.is_empty() {
        return Ok(());
    }
    let shared: Weak<Shared> = Arc::downgrade(app);
    let scraped = Mutex::new(Scraped::default());
    let sink = Box::new(move |batch: ScrapeBatch| {
        if let Some(shared) = shared.upgrade() {
            store(&shared, &scraped, &batch);
        }
    });
    let jobs = targets.jobs.len();
    let scraper = Scraper::start(targets, Arc::new(read), sink, scrape::Options::new())?;
    *app.scraper() = Some(scraper);
    tracing::info!(jobs, "scraping");
    Ok(())
}

/// Scrapes other targets from now on: those that stay keep their rhythm, series of the others end.
pub(crate) fn replace(app: &App, targets: scrape::Config) -> Result<(), ScrapingError> {
    let running = app.scraper();
    if let Some(scraper) = &*running {
        return Ok(scraper.reload(targets)?);
    }
    drop(running);
    start(app, targets)
}

/// Ends scraping.
pub(crate) fn stop(app: &App) {
    let scraper = app.scraper().take();
    if let Some(scraper) = scraper {
        scraper.stop(STOP_TIME_MAX);
    }
}

/// Stores one scrape. What a busy store does not take within a second is lost, and counted.
fn store(shared: &Shared, scraped: &Mutex<Scraped>, batch: &ScrapeBatch) {
    if !batch.exemplars.is_empty() {
        shared.metrics.exemplars.add(&[DOOR], batch.exemplars.len() as u64);
    }
    shared.engine_watch.scraped(&batch.target, batch.error.as_deref());
    for tried in 1..=TRIES {
        match intake(shared, scraped, batch).store(shared) {
            Ok(_counted) => return,
            Err(AppendError::Busy { .. }) if tried < TRIES => std::thread::sleep(PAUSE),
            Err(error) => {
                let lost = batch.samples.len() as u64;
                shared.metrics.rejected.add(&[DOOR, outcome(&error)], lost);
                tracing::debug!(%error, job = batch.job, "a scrape is lost");
                return;
            }
        }
    }
}

fn intake(shared: &Shared, scraped: &Mutex<Scraped>, batch: &ScrapeBatch) -> Intake {
    let mut intake = Intake::new(DOOR);
    let mut known = scraped.lock().unwrap_or_else(PoisonError::into_inner);
    known.refresh(&shared.known);
    for ScrapedSample { labels, sample } in &batch.samples {
        if let Some(number) = known.number(labels) {
            intake.points(number, std::iter::once(*sample));
        } else if let Some(number) = intake.series_of(shared, labels.iter(), vec![*sample]) {
            known.learn(labels, number);
        }
    }
    drop(known);
    for about in &batch.metadata {
        intake.describe(&about.metric, about.kind, &about.help, &about.unit);
    }
    intake
}

/// Reads a page for the scraper.
fn read(format: PageFormat, page: &[u8], take: &mut TakeEntry<'_>) -> Result<(), String> {
    let hand_on = |entry: Entry<'_, '_>| hand_on(&entry, take);
    let read = match format {
        PageFormat::Text => wire::exposition::parse(page, PageLimits::default(), hand_on),
        PageFormat::OpenMetrics => wire::openmetrics::parse(page, PageLimits::default(), hand_on),
    };
    read.map_err(|error| error.to_string())
}

fn hand_on(entry: &Entry<'_, '_>, take: &mut TakeEntry<'_>) -> ControlFlow<()> {
    match entry {
        Entry::Sample(sample) => {
            let exemplar = sample.exemplar.as_ref().map(|exemplar| PageExemplar {
                labels: exemplar.labels.iter().map(|label| (&*label.name, &*label.value)).collect(),
                value: exemplar.value,
                time_ms: exemplar.time_ms,
            });
            let mut labels = sample.labels.iter().map(|label| (&*label.name, &*label.value));
            take(PageEntry::Sample(PageSample {
                series: sample.series,
                name: &sample.name,
                labels: &mut labels,
                value: sample.value,
                time_ms: sample.time_ms,
                exemplar,
            }))
        }
        Entry::Kind { metric, kind } => take(PageEntry::Kind { metric, kind: *kind }),
        Entry::Help { metric, text } => take(PageEntry::Help { metric, text }),
        Entry::Unit { metric, unit } => take(PageEntry::Unit { metric, unit }),
    }
}
