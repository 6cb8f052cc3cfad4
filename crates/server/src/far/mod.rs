//! The far storage: a cluster that takes every accepted sample and answers the queries.
//!
//! [`Far::take`] is called where the store has committed: a batch is queued durably (`queue`) before
//! its sender is told that it is kept. Shards send it on (`sender`), what is refused is set aside
//! (`refused`). Queries are forwarded whole (`forward`), runs of other servers read back (`readback`).

mod deliveries;
mod forward;
mod http;
mod outgoing;
mod page;
mod probe;
mod queue;
mod readback;
mod refused;
mod sender;
mod slots;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use store::{AppendError, Receipt, Store};
use tokio::runtime::Handle;

use crate::clock::now_ms;
use crate::config::{Config, StorageConfig, StorageKind};
use crate::metrics::Family;

pub(crate) use deliveries::Claim;
pub(crate) use forward::{Forwarded, Question};
pub(crate) use outgoing::Outgoing;
pub(crate) use page::FarStatus;
pub use probe::{Finding, check_storage};
pub(crate) use readback::is_copy;

use deliveries::Deliveries;
use http::{Client, Endpoint};
use queue::{Left, Queue, QueueError};
use refused::Refused;
use sender::{Sender, Spool};

/// Folder in the data directory.
const DIR: &str = "far";
/// Reasons for leaving samples out that are told with an example.
const REASONS_MAX: usize = 32;

/// Why there can be no far storage.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the far storage: {0}")]
pub struct FarError(String);

/// What is counted.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Samples of this start that wait.
    waiting: AtomicU64,
    /// Samples that the far end has taken.
    sent: AtomicU64,
    /// When it took some last, milliseconds since the epoch.
    sent_ms: AtomicI64,
    /// Samples that it refused.
    refused: AtomicU64,
    /// Stretches of the queue that can't be read.
    damaged: AtomicU64,
    /// Requests by outcome.
    requests: Family,
    /// Queries by outcome.
    queries: Family,
    /// Samples that are not sent: reason, count, example.
    left_out: Mutex<BTreeMap<&'static str, (u64, String)>>,
}

impl Counts {
    fn new() -> Self {
        Self {
            waiting: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            sent_ms: AtomicI64::new(0),
            refused: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            requests: Family::new(
                "truegauge_far_requests_total",
                &["outcome"],
                "Writes to the far storage: taken, to be tried again later, or refused.",
            ),
            queries: Family::new(
                "truegauge_far_queries_total",
                &["outcome"],
                "Questions to the far storage: answered, failed there, or answered here because it is away.",
            ),
            left_out: Mutex::default(),
        }
    }

    fn leave_out(&self, reason: &'static str, count: u64, example: String) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.len() < REASONS_MAX || left_out.contains_key(reason) {
            left_out.entry(reason).or_insert((0, example)).0 += count;
        }
    }
}

/// Since when and why nothing gets through.
#[derive(Debug, Clone)]
struct Failing {
    since_ms: i64,
    words: String,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Far {
    config: StorageConfig,
    client: Client,
    write: Endpoint,
    query: Endpoint,
    queue: Queue,
    refused: Refused,
    counts: Arc<Counts>,
    deliveries: Deliveries,
    failing: Mutex<Option<Failing>>,
    read: readback::Read,
    runtime: Handle,
    /// Turns of questions.
    questions: Arc<tokio::sync::Semaphore>,
    stopping: (Mutex<bool>, Condvar),
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Far {
    /// Opens the queue and starts sending, if there is a far storage.
    pub(crate) fn start(
        config: &Config,
        store: &Store,
        runtime: &Handle,
    ) -> Result<Option<Arc<Self>>, FarError> {
        if config.storage.kind == StorageKind::Embedded {
            return Ok(None);
        }
        let dir = config.data_dir.join(DIR);
        let storage = config.storage.clone();
        let write = Endpoint::parse("storage_write_url", &storage.write_url).map_err(FarError)?;
        let query = Endpoint::parse("storage_query_url", &storage.query_url).map_err(FarError)?;
        let client = Client::new(&storage).map_err(FarError)?;
        let refused = Refused::open(dir.join("refused"))
            .map_err(|error| FarError(format!("`{}` is not usable: {error}", dir.display())))?;
        let counts = Arc::new(Counts::new());
        let queue_dir = dir.join("queue");
        let left = queue::left(&queue_dir);
        let waiting = waiting_bytes(&left);
        let generation = left.keys().last().map_or(1, |last| last + 1);
        let queue =
            Queue::open(&queue_dir, generation, waiting, &storage, store.clone(), Arc::clone(&counts))
                .map_err(FarError)?;
        let far = Arc::new(Self {
            client,
            write,
            query,
            queue,
            refused,
            counts,
            deliveries: Deliveries::default(),
            failing: Mutex::default(),
            read: Mutex::default(),
            runtime: runtime.clone(),
            questions: Arc::new(tokio::sync::Semaphore::new(forward::QUESTIONS_MAX)),
            stopping: (Mutex::new(false), Condvar::new()),
            threads: Mutex::default(),
            config: storage,
        });
        let own = Arc::clone(&far);
        let thread = named("far-senders").spawn(move || send_all(&own, left)).map_err(no_thread)?;
        far.lock_threads().push(thread);
        tracing::info!(write = %far.write, query = %far.query, waiting_bytes = waiting, "samples go to a far storage");
        Ok(Some(far))
    }

    fn lock_threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the store may take something now that is to go on from here.
    pub(crate) fn check_room(&self) -> Result<(), AppendError> {
        self.queue.check_room().map_err(append_error)
    }

    /// Waits for a delivery that is under way already, and says whether this one was taken before.
    pub(crate) fn claim(&self, delivery: (model::WriterId, u64)) -> Claim<'_> {
        self.deliveries.claim(delivery)
    }

    /// Queues what the store has taken; returns when it is durable. `receipt` is the store's.
    pub(crate) fn take(
        &self,
        store: &Store,
        mut batch: Outgoing,
        receipt: &Receipt,
    ) -> Result<(), AppendError> {
        if !receipt.refused.is_empty() || receipt.duplicate {
            // The store says how many it refused, and knows no number for a series it has not taken.
            batch.series.retain(|series| store.series_number(&series.identity).is_some());
        }
        if batch.series.is_empty() && batch.metadata.is_empty() {
            return Ok(());
        }
        self.queue.put(batch).map_err(append_error)
    }

    /// Queues again what was refused; how many samples.
    pub(crate) fn retry_refused(&self) -> Result<u64, String> {
        let mut samples = 0;
        for entry in self.refused.list().0 {
            let body = self.refused.body(entry.id).map_err(|error| error.to_string())?;
            self.queue.put_again(body, entry.samples).map_err(|error| error.to_string())?;
            self.refused.forget(entry.id).map_err(|error| error.to_string())?;
            samples += entry.samples;
        }
        Ok(samples)
    }

    /// Forgets what was refused; how many samples.
    pub(crate) fn forget_refused(&self) -> Result<u64, String> {
        let mut samples = 0;
        for entry in self.refused.list().0 {
            self.refused.forget(entry.id).map_err(|error| error.to_string())?;
            samples += entry.samples;
        }
        Ok(samples)
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; says whether the server stops.
    fn pause(&self, pause: Duration) -> bool {
        let (stop, told) = &self.stopping;
        let stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
        let (stop, _) =
            told.wait_timeout_while(stop, pause, |stop| !*stop).unwrap_or_else(PoisonError::into_inner);
        *stop
    }

    fn note_failure(&self, words: &str) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.as_ref().is_none_or(|failing| failing.words != words) {
            tracing::warn!(words, write = %self.write, "the far storage takes nothing: samples wait on disk");
        }
        let since_ms = failing.as_ref().map_or_else(now_ms, |failing| failing.since_ms);
        *failing = Some(Failing { since_ms, words: words.to_owned() });
    }

    fn note_success(&self) {
        let was = self.failing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(was) = was {
            let seconds = (now_ms() - was.since_ms) / 1_000;
            tracing::info!(seconds, write = %self.write, "the far storage takes samples again");
        }
    }

    /// Sends what can be sent in a moment and ends; the rest waits on disk for the next start.
    pub(crate) fn stop(&self) {
        self.queue.close();
        *self.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.1.notify_all();
        for shard in &self.queue.shards {
            shard.wake();
        }
        let threads: Vec<JoinHandle<()>> = std::mem::take(&mut *self.lock_threads());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the far storage ended by a panic");
            }
        }
    }
}

fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

fn no_thread(error: std::io::Error) -> FarError {
    FarError(format!("cannot start a thread: {error}"))
}

fn append_error(error: QueueError) -> AppendError {
    AppendError::Failed { reason: error.to_string() }
}

fn waiting_bytes(left: &Left) -> u64 {
    let bytes =
        |path: &PathBuf| spool::Reader::open(path).and_then(|reader| reader.bytes_left()).unwrap_or(0);
    left.values().flatten().map(bytes).sum()
}

/// Sends what earlier starts left, generation by generation, then this one's.
fn send_all(far: &Arc<Far>, left: Left) {
    for paths in left.into_values() {
        let is_done = std::thread::scope(|scope| {
            let threads: Vec<_> = paths
                .iter()
                .map(|path| {
                    std::thread::Builder::new()
                        .name("far-left".to_owned())
                        .spawn_scoped(scope, || send_left(far, path))
                })
                .collect();
            threads.into_iter().all(|thread| thread.is_ok_and(|thread| thread.join().is_ok_and(|done| done)))
        });
        if !is_done {
            return;
        }
    }
    let mut threads = Vec::new();
    for (number, shard) in far.queue.shards.iter().enumerate() {
        let sender = Sender::new(Arc::clone(far), Spool::Live(Arc::clone(shard)));
        match named(&format!("far-{number}")).spawn(move || sender.run()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::error!(%error, "a shard of the far storage has no thread: it waits for the next start");
            }
        }
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a shard of the far storage ended by a panic: it goes on at the next start");
        }
    }
}

/// Sends a spool of an earlier start and removes it; says whether it is done with.
fn send_left(far: &Arc<Far>, path: &Path) -> bool {
    let opened = spool::try_own(path).and_then(|lock| Ok((lock, spool::Reader::open(path)?)));
    let Ok((Some(lock), reader)) = opened else {
        tracing::error!(path = %path.display(), ?opened, "what waited for the far storage can't be opened");
        return true;
    };
    if !Sender::new(Arc::clone(far), Spool::Left(Box::new(reader))).run() {
        return false;
    }
    let removed = spool::Reader::open(path).and_then(spool::Reader::remove);
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "a spool that was sent can't be removed");
    }
    drop(lock);
    true
}
