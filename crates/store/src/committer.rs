//! Group commit: one thread takes every batch that waits and makes them durable together.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::batch::{AppendError, Batch, Packed, Receipt};
use crate::store::Inner;

/// Most bytes, in memory, of the batches of one commit, unless one batch alone is larger.
const GROUP_BYTES_MAX: usize = 32 << 20;

type Answer = Result<Receipt, AppendError>;

struct Waiting {
    batch: Packed,
    bytes: usize,
    reply: SyncSender<Answer>,
}

/// Batches that wait for the disk, bounded in number and bytes.
#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<Line>,
    arrived: Condvar,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no batch in any more; those that wait are still written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Waits for the batch's commit.
    pub(crate) fn append(&self, batch: Batch, batches_max: usize, bytes_max: usize) -> Answer {
        let batch = Packed::of(batch);
        let bytes = batch.bytes();
        let (reply, answer) = sync_channel(1);
        {
            let mut line = self.lock();
            if line.closed {
                return Err(AppendError::failed("it is closed"));
            }
            let waiting = line.waiting.len();
            if waiting >= batches_max || (waiting > 0 && line.bytes + bytes > bytes_max) {
                return Err(AppendError::Busy { waiting });
            }
            line.bytes += bytes;
            line.waiting.push_back(Waiting { batch, bytes, reply });
        }
        self.arrived.notify_one();
        answer.recv().unwrap_or_else(|_| Err(AppendError::failed("the thread that writes has ended")))
    }

    /// The batches of the next commit; none when the queue is closed and empty.
    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut line = self.lock();
        while line.waiting.is_empty() {
            if line.closed {
                return None;
            }
            line = self.arrived.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(next) = line.waiting.front() {
            if !group.is_empty() && bytes + next.bytes > GROUP_BYTES_MAX {
                break;
            }
            bytes += next.bytes;
            group.extend(line.waiting.pop_front());
        }
        line.bytes -= bytes;
        Some(group)
    }
}

/// Starts the thread that writes.
pub(crate) fn start(inner: Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("store-commit".into()).spawn(move || {
        while let Some(group) = inner.queue.next_group() {
            let (batches, replies): (Vec<Packed>, Vec<_>) =
                group.into_iter().map(|w| (w.batch, w.reply)).unzip();
            // A panic would be a mistake of ours; it must not end all writing for good.
            let answers = catch_unwind(AssertUnwindSafe(|| inner.commit_group(batches))).unwrap_or_default();
            let mut answers = answers.into_iter();
            for reply in replies {
                let answer = answers.next();
                let answer = answer.unwrap_or_else(|| Err(AppendError::failed("the commit stopped halfway")));
                // Who asked may have gone; the batch is durable all the same.
                _ = reply.send(answer);
            }
        }
    })
}
