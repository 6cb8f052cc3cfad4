//! What every request shares.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use scrape::Scraper;
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Access;
use crate::board::Board;
use crate::canonical::Canon;
use crate::claims::Claims;
use crate::config::Config;
use crate::error::ApiError;
use crate::known::Known;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::reload::Reloads;
use crate::ruling::Ruler;

/// Requests decoded at once: each may hold a decompressed body of 64 MiB.
const DECODING_MAX: usize = 2;
/// Batches that wait for the store, in KiB of what they hold in memory.
const WAITING_KIB_MAX: usize = 192 << 10;
/// Compressed bodies held at once, in KiB.
const BODIES_KIB_MAX: usize = 96 << 10;
/// KiB of gRPC messages that are not whole yet, in memory at once.
const INCOMING_KIB_MAX: usize = 128 << 10;
/// KiB of what all gRPC streams have declared. Few jobs declare more than a few MiB.
const DECLARED_KIB_MAX: usize = 1 << 20;
/// Event streams open at once.
const STREAMS_MAX: usize = 256;
/// Exports under way at once.
const EXPORTS_MAX: usize = 4;
/// How long a request waits for its turn before it is told to come again.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// Shared by every request; cheap to clone.
pub(crate) type App = Arc<Shared>;

/// See [`App`].
#[derive(Debug)]
pub(crate) struct Shared {
    /// The store.
    pub(crate) store: Store,
    /// The settings it was started with.
    pub(crate) config: Config,
    /// By what somebody gets in.
    pub(crate) access: Access,
    /// Own counters.
    pub(crate) metrics: Metrics,
    /// Rows of the runs list.
    pub(crate) board: Board,
    /// Who reports which card.
    pub(crate) claims: Claims,
    /// Which run has which card.
    pub(crate) owners: crate::owners::Owners,
    /// Which agents report which node.
    pub(crate) nodes: crate::node::Nodes,
    /// What events of nodes come to.
    pub(crate) fleet: crate::fleet::Fleet,
    /// What holds runs up.
    pub(crate) verdicts: crate::verdicts::Verdicts,
    /// What is done about incidents.
    pub(crate) remedy: crate::remediation::Remedy,
    /// What changed lately.
    pub(crate) live: Live,
    /// Turns true when the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
    /// Bounded resources.
    pub(crate) turns: Turns,
    /// Series that were sent here before.
    pub(crate) known: Known,
    /// Adapters that keep their names in labels.
    pub(crate) adapters: crate::adapters::Adapters,
    /// What makes canonical series.
    pub(crate) canon: Canon,
    /// What happens to engines.
    pub(crate) engine_watch: crate::engines::Watch,
    /// Processes that sent telemetry.
    pub(crate) sources: crate::otlp::Sources,
    /// What is known of senders of data points.
    pub(crate) streams: crate::otlp::Streams,
    /// What scrapes, if anything does.
    pub(crate) scraper: Mutex<Option<Scraper>>,
    /// The far storage, if there is one.
    pub(crate) far: Option<Arc<crate::far::Far>>,
    /// Where else it listens.
    pub(crate) doors: Doors,
    /// What hands spans on, if anything does.
    pub(crate) forward: Option<Arc<crate::otlp::forward::Forward>>,
    /// What evaluates rules, if there are any.
    pub(crate) ruler: Mutex<Option<Ruler>>,
    /// An address under which this machine reaches it.
    pub(crate) url: String,
    /// What tells of alerts.
    pub(crate) notifier: Mutex<Notifier>,
    /// Silences, and whom what was told.
    pub(crate) book: Arc<crate::notify::Book>,
    /// How settings were read anew.
    pub(crate) reloads: Reloads,
    /// Facts of the site.
    pub(crate) site: crate::own::Facts,
}

/// Where a server listens beside its main port; none where that was not free.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Doors {
    /// gRPC.
    pub(crate) grpc: Option<std::net::SocketAddr>,
    /// OTLP over HTTP.
    pub(crate) otlp_http: Option<std::net::SocketAddr>,
}

impl Shared {
    /// What scrapes.
    pub(crate) fn scraper(&self) -> MutexGuard<'_, Option<Scraper>> {
        self.scraper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What evaluates rules.
    pub(crate) fn ruler(&self) -> MutexGuard<'_, Option<Ruler>> {
        self.ruler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells of alerts.
    pub(crate) fn notifier(&self) -> MutexGuard<'_, Notifier> {
        self.notifier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something about a run changed.
    pub(crate) fn changed(&self, id: model::RunId) {
        self.board.forget(id);
        self.live.changed(id);
    }
}

/// Bounds on what is worked on at once.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Reads of points and of the list.
    pub(crate) reading: Bounded,
    /// Bodies being decompressed and decoded.
    pub(crate) decoding: Bounded,
    /// KiB of batches that wait for the store.
    pub(crate) waiting_kib: Bounded,
    /// KiB of compressed bodies.
    pub(crate) bodies_kib: Bounded,
    /// KiB of gRPC messages that are not whole yet.
    pub(crate) incoming_kib: Bounded,
    /// KiB of what gRPC streams have declared.
    pub(crate) declared_kib: Bounded,
    /// Event streams.
    pub(crate) streams: Bounded,
    /// PromQL queries.
    pub(crate) querying: Bounded,
    /// What queries hold in memory, their answers included.
    pub(crate) query_memory: promql::Memory,
    /// Exports: each may hold a row group in memory.
    pub(crate) exports: Bounded,
    /// Backups: a second one would only wait.
    pub(crate) backups: Bounded,
}

impl Turns {
    pub(crate) fn new(config: &Config) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            reading: Bounded::new(cores.clamp(2, 16)),
            decoding: Bounded::new(DECODING_MAX),
            waiting_kib: Bounded::new(WAITING_KIB_MAX),
            bodies_kib: Bounded::new(BODIES_KIB_MAX),
            incoming_kib: Bounded::new(INCOMING_KIB_MAX),
            declared_kib: Bounded::new(DECLARED_KIB_MAX),
            streams: Bounded::new(STREAMS_MAX),
            querying: Bounded::new(config.query.concurrency),
            query_memory: promql::Memory::new(config.query.memory_max_bytes),
            exports: Bounded::new(EXPORTS_MAX),
            backups: Bounded::new(1),
        }
    }
}

/// A bounded resource: how much of it there is, and what of it is free.
#[derive(Debug)]
pub(crate) struct Bounded {
    whole: usize,
    free: Arc<Semaphore>,
}

impl Bounded {
    fn new(whole: usize) -> Self {
        Self { whole, free: Arc::new(Semaphore::new(whole)) }
    }

    /// Takes one, however long that takes.
    pub(crate) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.whole.saturating_sub(self.free.available_permits())
    }

    /// Adds `amount` to what `held` holds, if that much is free at once.
    pub(crate) fn grow(&self, held: &mut Option<OwnedSemaphorePermit>, amount: usize) -> bool {
        let Ok(amount) = u32::try_from(amount) else { return false };
        let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(amount) else { return false };
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        true
    }

    /// Takes one at once, if one is free.
    pub(crate) fn try_one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }
}

/// Waits for `amount` of a bounded resource, or says that the server is busy.
pub(crate) async fn turn(of: &Bounded, amount: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    // One that is larger than all there is takes all there is.
    let amount = amount.clamp(1, of.whole);
    let amount = u32::try_from(amount).unwrap_or(u32::MAX);
    match tokio::time::timeout(TURN_WAIT, Arc::clone(&of.free).acquire_many_owned(amount)).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(ApiError::unavailable("the server is busy: too much is being worked on already", 1)),
    }
}

/// Runs `work` on a blocking thread, no more at once than `reading` allows.
pub(crate) async fn read<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = turn(&app.turns.reading, 1).await?;
    let app = Arc::clone(app);
    blocking(move || {
        let result = work(&app);
        drop(permit);
        result
    })
    .await
}

/// Runs `work` on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a worker ended without an answer");
            Err(ApiError::internal("the request could not be finished"))
        }
    }
}

/// Returns when the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
