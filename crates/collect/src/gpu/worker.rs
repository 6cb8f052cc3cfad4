//! The thread that asks the driver about one device, so that a device that blocks costs its own series.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

use super::{
    device::{GpuDevice, GpuMemoryAccount, identify},
    ffi::{Handle, Library},
    reading::{Asked, GpuValue, READINGS, Trouble, Values},
};
use crate::failure::Health;

/// Enough for a driver's calls, little as memory: only what is touched is there.
const STACK_BYTES: usize = 512 * 1024;
/// Answers that wait for the sampler: those of one tick and the word that it is over.
const ANSWERS_MAX: usize = READINGS.len() + 2;

/// What a device's thread tells.
pub(super) enum Answer {
    Identified(Result<GpuDevice, String>),
    Read { tick: u64, at: Instant, outcome: Outcome },
    Done { tick: u64 },
}

/// How one reading went.
pub(super) enum Outcome {
    Values { values: Vec<GpuValue>, throttle_mask: Option<u64> },
    Unsupported { reading: usize },
    Failed { reading: usize, cause: String, dropped: Option<bool> },
}

/// The sampler's end of a device's thread.
pub(super) struct Worker {
    pub(super) index: u32,
    pub(super) requests: SyncSender<u64>,
    pub(super) answers: Receiver<Answer>,
    /// The reading that is under way, an index into [`READINGS`].
    pub(super) current: Arc<AtomicUsize>,
    pub(super) since: Instant,
}

/// Starts the thread of a device; it identifies the device at once and then waits for ticks.
pub(super) fn start(library: Arc<Library>, index: u32) -> io::Result<Worker> {
    let (requests, asked) = sync_channel(1);
    let (tell, answers) = sync_channel(ANSWERS_MAX);
    let current = Arc::new(AtomicUsize::new(0));
    let progress = current.clone();
    thread::Builder::new().name(format!("tg-gpu-{index}")).stack_size(STACK_BYTES).spawn(move || {
        let (device, handle) = match identify(&library, index) {
            Ok(found) => found,
            Err(cause) => {
                // Nobody waits any more: nothing is left to be told.
                let _ = tell.send(Answer::Identified(Err(cause)));
                return;
            }
        };
        let mut asker = Asker::new(&library, handle, &device, &progress);
        let mig = device.mig;
        if tell.send(Answer::Identified(Ok(device))).is_err() || mig {
            return;
        }
        while let Ok(tick) = asked.recv() {
            if asker.answer(tick, &tell).is_none() {
                return;
            }
        }
    })?;
    Ok(Worker { index, requests, answers, current, since: Instant::now() })
}

/// What is known about one reading of this device.
enum State {
    Asked(Health),
    Unsupported,
}

struct Asker<'a> {
    asked: Asked<'a>,
    index: u32,
    states: Vec<State>,
    progress: &'a AtomicUsize,
}

impl<'a> Asker<'a> {
    fn new(library: &'a Library, handle: Handle, device: &GpuDevice, progress: &'a AtomicUsize) -> Self {
        let has_memory_v2 = device.memory == GpuMemoryAccount::Allocated;
        Self {
            asked: Asked { library, handle, has_memory_v2 },
            index: device.index,
            states: READINGS.iter().map(|_| State::Asked(Health::default())).collect(),
            progress,
        }
    }

    /// Goes through all readings that are due; `None` when nobody listens any more.
    fn answer(&mut self, tick: u64, tell: &SyncSender<Answer>) -> Option<()> {
        let mut values = Values::default();
        for (at, reading) in READINGS.iter().enumerate() {
            let State::Asked(health) = &mut self.states[at] else { continue };
            if !health.is_due() {
                continue;
            }
            self.progress.store(at, Ordering::Relaxed);
            let before = values.values.len();
            values.throttle_mask = None;
            let outcome = match (reading.read)(&self.asked, &mut values) {
                Ok(()) => {
                    health.succeeded();
                    let fresh = values.values[before..].to_vec();
                    Outcome::Values { values: fresh, throttle_mask: values.throttle_mask }
                }
                Err(Trouble::Refused(code)) if code.is_unsupported() => {
                    self.states[at] = State::Unsupported;
                    Outcome::Unsupported { reading: at }
                }
                Err(trouble) => {
                    values.values.truncate(before);
                    let found = match trouble {
                        Trouble::Refused(code) => format!("answered {code}"),
                        Trouble::Senseless(found) => found,
                    };
                    let cause = format!("cannot read `{}` of GPU {}: {found}", reading.call, self.index);
                    Outcome::Failed { reading: at, cause, dropped: health.failed() }
                }
            };
            tell.send(Answer::Read { tick, at: Instant::now(), outcome }).ok()?;
        }
        tell.send(Answer::Done { tick }).ok()
    }
}
