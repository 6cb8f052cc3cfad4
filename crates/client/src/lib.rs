//! A run, as the process that trains sees it. Layer 2; knows nothing of the server but its push door.
//!
//! [`Run::start`] opens a session; [`Run::log`] puts a point into memory and comes back at once; a
//! delivery thread sends what was logged, and keeps it in a spool on disk while the server is away
//! or slow. A sampler thread adds the machine's own series. Plain threads, no runtime, and nothing
//! here raises into, blocks or outlives the program it is in beyond a stated bound.
//!
//! ```no_run
//! let run = client::Run::start(client::Config::from_env())?;
//! let loss = run.series("loss", &[("split", "train")], "").expect("a usable name");
//! run.log(loss, 0.5, None, None);
//! run.finish();
//! # Ok::<(), client::StartError>(())
//! ```

mod batch;
mod capture;
pub mod claims;
mod clock;
pub mod command;
mod config;
mod counters;
mod delivery;
mod findings;
mod header;
mod launch;
mod log;
mod outbox;
pub mod ownership;
mod probe;
mod progress;
mod run;
#[cfg_attr(not(tg_linux), path = "sampler_elsewhere.rs")]
mod sampler;
mod series;
mod shared;
pub mod sync;
pub mod training;
mod transport;
mod trust;
mod wait;
mod warning;

pub use clock::When;
pub use config::{
    CAPTURE_GRACE, CLOSE_TIMEOUT, Config, DEFAULT_URL, Machine, QUEUE_CAPACITY, ResumeStrategy,
    SPOOL_BYTES_MAX, SYSTEM_METRICS_INTERVAL, VARIABLES, Variable, default_spool_dir, sampling_interval,
};
pub use counters::Counters;
pub use findings::{ReportError, Source};
pub use header::SpoolHeader;
pub use launch::{Launch, Lookup};
pub use log::Steps;
pub use run::{Run, StartError};
pub use sampler::preview;
pub use series::SeriesHandle;
pub use transport::{UrlError, shown_url};
pub use trust::{Trust, TrustError};
pub use wait::{CloseOutcome, FlushOutcome};
pub use warning::{Warning, set_warning_hook};
