//! What waits for the far storage, on disk: one spool a shard, and one generation a start.
//!
//! A batch is appended and synced before its sender is told that it is kept. Batches that arrive
//! together share the write. Spools of earlier starts are sent first, generation by generation, so
//! that a series keeps its order also where the number of shards changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use store::Store;

use super::Counts;
use super::outgoing::{Outgoing, Packed, Packer};
use crate::clock::now_ms;
use crate::config::StorageConfig;

/// Segment files of a spool.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Batches that wait to be written together.
const WAITING_MAX: usize = 256;
/// Most batches of one write.
const GROUP_MAX: usize = 256;
/// What stands in front of a body in a record.
const HEAD_BYTES: usize = 13;
/// Version of a record.
const RECORD_VERSION: u8 = 1;
/// Bytes that a spool adds to a record.
const FRAME_BYTES: u64 = 12;

/// Why a batch is not kept for the far storage.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum QueueError {
    /// As many bytes wait as may.
    #[error(
        "{bytes} bytes wait for the far storage and `storage_queue_bytes_max` is {limit}: new samples are refused until it takes some"
    )]
    Full {
        /// Bytes that wait.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// The disk refused.
    #[error("cannot keep samples for the far storage: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}

/// A record on its way.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Samples in it.
    pub(super) samples: u32,
    /// When it was kept, milliseconds since the epoch.
    pub(super) kept_ms: i64,
    /// A snappy block.
    pub(super) body: Vec<u8>,
    /// Bytes on disk.
    pub(super) bytes: u64,
    pub(super) position: spool::Position,
}

fn encode(packed: &Packed, now_ms: i64) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEAD_BYTES + packed.body.len());
    record.push(RECORD_VERSION);
    record.extend(packed.samples.to_le_bytes());
    record.extend(now_ms.to_le_bytes());
    record.extend_from_slice(&packed.body);
    record
}

/// Reads a record of a spool; `None` for one of a version that is not known.
pub(super) fn decode(record: spool::Record) -> Option<Record> {
    let head = record.bytes.first_chunk::<HEAD_BYTES>().filter(|head| head[0] == RECORD_VERSION)?;
    let samples = u32::from_le_bytes(*head[1..].first_chunk()?);
    let kept_ms = i64::from_le_bytes(*head[5..].first_chunk()?);
    let bytes = record.bytes.len() as u64 + FRAME_BYTES;
    Some(Record {
        samples,
        kept_ms,
        body: record.bytes[HEAD_BYTES..].to_vec(),
        bytes,
        position: record.position,
    })
}

/// One way to the far storage.
#[derive(Debug)]
pub(super) struct Shard {
    spool: Mutex<spool::Writer>,
    arrived: Condvar,
    /// When the oldest record that waits was kept; 0 when none waits.
    pub(super) oldest_ms: AtomicI64,
}

impl Shard {
    pub(super) fn lock(&self) -> MutexGuard<'_, spool::Writer> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something may have arrived.
    pub(super) fn wait(&self, for_: std::time::Duration) {
        let spool = self.lock();
        drop(self.arrived.wait_timeout_while(spool, for_, |spool| spool.is_drained()));
    }

    pub(super) fn wake(&self) {
        self.arrived.notify_all();
    }
}

enum Asked {
    /// What the store has taken.
    Fresh(Outgoing, Reply),
    /// What was packed before.
    Again(Packed, Reply),
}

type Reply = SyncSender<Result<(), QueueError>>;

/// Takes batches; cheap to share.
#[derive(Debug)]
pub(super) struct Queue {
    sender: Mutex<Option<SyncSender<Asked>>>,
    /// The ways.
    pub(super) shards: Vec<Arc<Shard>>,
    /// Bytes that wait, earlier generations' among them.
    pub(super) bytes: Arc<AtomicU64>,
    bytes_max: u64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Spools that earlier starts left, by generation.
pub(super) type Left = BTreeMap<u64, Vec<PathBuf>>;

/// The spools in `dir` by generation.
pub(super) fn left(dir: &Path) -> Left {
    let mut left = Left::new();
    for path in spool::list(dir) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let generation = name.split('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        left.entry(generation).or_default().push(path);
    }
    left
}

impl Queue {
    /// Makes the spools of this start in `dir`, of which `waiting_bytes` are there already.
    pub(super) fn open(
        dir: &Path,
        generation: u64,
        waiting_bytes: u64,
        config: &StorageConfig,
        store: Store,
        counts: Arc<Counts>,
    ) -> Result<Self, String> {
        let mut shards = Vec::new();
        for number in 0..config.shards {
            let path = dir.join(format!("{generation:010}-{number:03}"));
            let options = spool::Options { segment_bytes: SEGMENT_BYTES, bytes_max: u64::MAX };
            let spool = spool::Writer::create(&path, b"remote-write", options).map_err(|e| e.to_string())?;
            let (arrived, oldest_ms) = (Condvar::new(), AtomicI64::new(0));
            shards.push(Arc::new(Shard { spool: Mutex::new(spool), arrived, oldest_ms }));
        }
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let bytes = Arc::new(AtomicU64::new(waiting_bytes));
        let work = Work {
            store,
            packer: Packer::new(config),
            shards: shards.clone(),
            bytes: Arc::clone(&bytes),
            counts,
        };
        let thread = std::thread::Builder::new()
            .name("far-queue".to_owned())
            .spawn(move || work.run(&receiver))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self {
            sender: Mutex::new(Some(sender)),
            shards,
            bytes,
            bytes_max: config.queue_bytes_max,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// An error when no more may wait.
    pub(super) fn check_room(&self) -> Result<(), QueueError> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let limit = self.bytes_max;
        if bytes < limit { Ok(()) } else { Err(QueueError::Full { bytes, limit }) }
    }

    /// Keeps a batch; blocks until it is durable.
    pub(super) fn put(&self, batch: Outgoing) -> Result<(), QueueError> {
        self.ask(|reply| Asked::Fresh(batch, reply))
    }

    /// Keeps a body that was sent before; blocks until it is durable.
    pub(super) fn put_again(&self, body: Vec<u8>, samples: u64) -> Result<(), QueueError> {
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        self.ask(|reply| Asked::Again(Packed { body, samples }, reply))
    }

    fn ask(&self, asked: impl FnOnce(Reply) -> Asked) -> Result<(), QueueError> {
        let failed = |reason: &str| QueueError::Failed { reason: reason.to_owned() };
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sender = sender.ok_or_else(|| failed("the server stops"))?;
        let (reply, answer) = sync_channel(1);
        sender.send(asked(reply)).map_err(|_unsent| failed("its thread has ended"))?;
        answer.recv().map_err(|_lost| failed("its thread has ended"))?
    }

    /// Takes no more, and writes what was taken.
    pub(super) fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the far storage's queue ended by a panic");
        }
    }
}

/// The one who writes.
struct Work {
    store: Store,
    packer: Packer,
    shards: Vec<Arc<Shard>>,
    bytes: Arc<AtomicU64>,
    counts: Arc<Counts>,
}

impl Work {
    fn run(mut self, receiver: &Receiver<Asked>) {
        while let Ok(first) = receiver.recv() {
            let mut replies = Vec::new();
            let mut again = Vec::new();
            let mut next = Some(first);
            while let Some(asked) = next {
                match asked {
                    Asked::Fresh(batch, reply) => {
                        self.packer.add(&self.store, batch);
                        replies.push(reply);
                    }
                    Asked::Again(packed, reply) => {
                        again.push(packed);
                        replies.push(reply);
                    }
                }
                next = if replies.len() < GROUP_MAX { receiver.try_recv().ok() } else { None };
            }
            let (mut packed, unsent) = self.packer.finish();
            if let Some(first) = packed.first_mut() {
                first.append(&mut again);
            }
            let kept = self.write(&packed);
            if kept.is_ok() {
                for (reason, count, example) in unsent {
                    self.counts.leave_out(reason, count, example);
                }
            } else {
                // A part may be kept: what comes again has to take the same places.
                self.packer.forget();
            }
            for reply in replies {
                // Who asked may have gone; the batch is kept all the same.
                _ = reply.send(kept.clone());
            }
        }
    }

    fn write(&self, packed: &[Vec<Packed>]) -> Result<(), QueueError> {
        let failed = |reason: String| QueueError::Failed { reason };
        let now_ms = now_ms();
        for (shard, packed) in self.shards.iter().zip(packed).filter(|(_, packed)| !packed.is_empty()) {
            let mut spool = shard.lock();
            for one in packed {
                let record = encode(one, now_ms);
                spool.append(&record).map_err(|error| failed(error.to_string()))?;
                self.bytes.fetch_add(record.len() as u64 + FRAME_BYTES, Ordering::Relaxed);
                self.counts.waiting.fetch_add(u64::from(one.samples), Ordering::Relaxed);
            }
            spool.sync().map_err(|error| failed(error.to_string()))?;
            let _ = shard.oldest_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
            drop(spool);
            shard.wake();
        }
        Ok(())
    }
}
