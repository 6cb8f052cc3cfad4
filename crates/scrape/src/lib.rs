//! Fetches pages of metrics: which targets, how often, under which labels, within which bounds.
//!
//! Layer 1. Knows no storage, and not how a page is written either: the parser comes in as an
//! argument, what was scraped goes out through a sink. A few named threads do the work; a target can
//! cost a bounded amount of memory and of time, whatever it answers, and what went wrong is `up 0`
//! with a reason. Described for users in `docs/guides/scraping.md`.

pub mod config;
mod discovery;
mod document;
mod fetch;
mod guard;
mod ledger;
pub mod page;
pub mod relabel;
mod schedule;
mod scraper;
mod section;
mod status;
mod target;
mod units;
mod yaml;

pub use config::{Config, ConfigError};
pub use guard::refusal;
pub use page::{
    MetricMetadata, PageEntry, PageExemplar, PageFormat, PageParser, PageSample, ScrapeBatch,
    ScrapedExemplar, ScrapedSample, TakeEntry,
};
pub use scraper::{Options, Scraper, Sink, StartError};
pub use status::{DroppedTarget, Health, TargetStatus, Targets};
