//! The thread that asks the driver about one device, so that a device that blocks costs its own series.
//!
//! Sampler and thread meet at a board under a lock. The thread is woken by one `unpark` for each job and
//! wakes the sampler only while that waits for just this device, so a tick costs one wake-up a device.

use std::{
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use model::Desc;

use super::{
    asker::Asker,
    descs::GPU_UTILIZATION,
    device::{GpuDevice, identify},
    ffi::Library,
    processes::{self, GpuProcess},
    reading::GpuValue,
    sampler::GpuFailure,
};
use crate::failure::Health;

/// Enough for a driver's calls, little as memory: only what is touched is there.
const STACK_BYTES: usize = 512 * 1024;
/// Between two attempts to find a device that is lost, in ticks: finding it costs a call.
const LOOK_TICKS_MAX: u32 = 40;
/// Nobody waits for a device.
pub(super) const NOBODY: u32 = u32::MAX;

/// What a thread is asked for.
#[derive(Clone, Copy)]
pub(super) enum Job {
    Tick,
    Processes,
}

/// What a thread has told since it was last listened to.
#[derive(Default)]
pub(super) struct Told {
    /// The device was looked at anew: what it is, or why it cannot be named.
    pub(super) identified: Option<Result<GpuDevice, String>>,
    pub(super) values: Vec<GpuValue>,
    pub(super) throttle_mask: Option<u64>,
    pub(super) unsupported: Vec<&'static Desc>,
    pub(super) failures: Vec<GpuFailure>,
    pub(super) processes: Option<Result<Vec<GpuProcess>, String>>,
    /// The device did not answer at all, since it or its driver is gone.
    pub(super) is_lost: bool,
}

/// The call that is under way.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) metric: &'static Desc,
    pub(super) since: Instant,
}

struct Board {
    job: Option<Job>,
    /// Whether a job is not done yet.
    is_busy: bool,
    call: Call,
    told: Told,
    asker: Option<Thread>,
}

/// What sampler and thread share.
pub(super) struct Shared {
    board: Mutex<Board>,
    is_closed: AtomicBool,
    /// The index of the device that the sampler waits for, shared by all devices.
    awaited: Arc<AtomicU32>,
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which call comes next: the deadline counts from here.
    pub(super) fn begin(&self, name: &'static str, metric: &'static Desc) {
        self.board().call = Call { name, metric, since: Instant::now() };
    }

    pub(super) fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.board().told);
    }

    fn finish(&self, index: u32) {
        let mut board = self.board();
        board.is_busy = false;
        let asker = board.asker.take();
        drop(board);
        if self.awaited.load(Ordering::SeqCst) == index
            && let Some(asker) = asker
        {
            asker.unpark();
        }
    }
}

/// The sampler's end of a device's thread.
pub(super) struct Worker {
    pub(super) index: u32,
    shared: Arc<Shared>,
    thread: Thread,
}

/// How a wait for a thread ended.
pub(super) enum Waited {
    Done,
    /// This call has taken longer than a call may.
    TooLong(Call),
}

/// Starts the thread of a device; it identifies the device at once and then waits for jobs.
pub(super) fn start(
    library: Arc<Library>,
    index: u32,
    driver: Option<(u32, u32)>,
    awaited: Arc<AtomicU32>,
) -> io::Result<Worker> {
    let call =
        Call { name: "nvmlDeviceGetHandleByIndex_v2", metric: &GPU_UTILIZATION, since: Instant::now() };
    let board =
        Board { job: None, is_busy: true, call, told: Told::default(), asker: Some(thread::current()) };
    let shared = Arc::new(Shared { board: Mutex::new(board), is_closed: AtomicBool::new(false), awaited });
    let ours = shared.clone();
    let thread = thread::Builder::new()
        .name(format!("tg-gpu-{index}"))
        .stack_size(STACK_BYTES)
        .spawn(move || serve(&library, index, driver, &ours))?;
    Ok(Worker { index, shared, thread: thread.thread().clone() })
}

impl Worker {
    /// Gives the thread a job; false when it is still at the last one.
    pub(super) fn ask(&self, job: Job) -> bool {
        let mut board = self.shared.board();
        if board.is_busy {
            return false;
        }
        board.is_busy = true;
        board.job = Some(job);
        // The time that the thread takes to wake up is the first call's.
        board.call.since = Instant::now();
        board.asker = Some(thread::current());
        drop(board);
        self.thread.unpark();
        true
    }

    /// Waits until the job is done, at most until one call has taken `deadline`.
    pub(super) fn wait(&self, deadline: Duration) -> Waited {
        self.shared.awaited.store(self.index, Ordering::SeqCst);
        let waited = loop {
            let board = self.shared.board();
            if !board.is_busy {
                break Waited::Done;
            }
            let call = board.call;
            drop(board);
            let left = deadline.saturating_sub(call.since.elapsed());
            if left.is_zero() {
                break Waited::TooLong(call);
            }
            thread::park_timeout(left);
        };
        self.shared.awaited.store(NOBODY, Ordering::SeqCst);
        waited
    }

    /// Waits until the device is identified, until this moment at most; whether it is.
    pub(super) fn wait_until(&self, end: Instant) -> bool {
        self.shared.awaited.store(self.index, Ordering::SeqCst);
        let is_done = loop {
            let is_busy = self.shared.board().is_busy;
            let left = end.saturating_duration_since(Instant::now());
            if !is_busy || left.is_zero() {
                break !is_busy;
            }
            thread::park_timeout(left);
        };
        self.shared.awaited.store(NOBODY, Ordering::SeqCst);
        is_done
    }

    /// Takes what was told; `into` is left there for the next words, so that nothing is allocated.
    pub(super) fn listen(&self, into: &mut Told) {
        mem::swap(&mut self.shared.board().told, into);
    }
}

impl Drop for Worker {
    /// Ends the thread when its call returns. Takes no lock: in a forked child one may never be free.
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// What a thread knows of its device.
enum Known<'a> {
    /// It could not be named; when to try again.
    Nothing(Health),
    Device(Box<Asker<'a>>),
    /// It was there and is gone; when to look again.
    Lost(Box<Asker<'a>>, Health),
}

fn serve(library: &Library, index: u32, driver: Option<(u32, u32)>, shared: &Shared) {
    let mut known = name(library, index, driver, shared, Health::up_to(LOOK_TICKS_MAX));
    shared.finish(index);
    while !shared.is_closed.load(Ordering::Acquire) {
        let Some(job) = shared.board().job.take() else {
            thread::park();
            continue;
        };
        known = match job {
            Job::Tick => known.tick(library, index, driver, shared),
            Job::Processes => {
                shared.begin("nvmlDeviceGetComputeRunningProcesses_v3", &GPU_UTILIZATION);
                let found = match &known {
                    Known::Device(asker) => processes::of(library, asker.handle(), index),
                    _ => Err(format!("cannot list the processes of GPU {index}: it does not answer")),
                };
                shared.tell(|told| told.processes = Some(found));
                known
            }
        };
        shared.finish(index);
    }
}

impl<'a> Known<'a> {
    /// Asks the device, or looks for it when that is due.
    fn tick(self, library: &'a Library, index: u32, driver: Option<(u32, u32)>, shared: &Shared) -> Self {
        match self {
            Self::Device(asker) => tick(asker, shared, Health::up_to(LOOK_TICKS_MAX)),
            Self::Nothing(mut health) => {
                if health.is_due() {
                    return name(library, index, driver, shared, health);
                }
                Self::Nothing(health)
            }
            Self::Lost(asker, mut health) => {
                if health.is_due() {
                    return find(asker, driver, shared, health);
                }
                shared.tell(|told| told.is_lost = true);
                Self::Lost(asker, health)
            }
        }
    }
}

/// Finds out which device this is.
fn name<'a>(
    library: &'a Library,
    index: u32,
    driver: Option<(u32, u32)>,
    shared: &Shared,
    mut health: Health,
) -> Known<'a> {
    shared.begin("nvmlDeviceGetHandleByIndex_v2", &GPU_UTILIZATION);
    match identify(library, index) {
        Ok((device, handle)) => {
            let asker = Box::new(Asker::new(library, handle, device.clone(), driver));
            shared.tell(|told| told.identified = Some(Ok(device)));
            Known::Device(asker)
        }
        Err(cause) => {
            health.failed();
            shared.tell(|told| told.identified = Some(Err(cause)));
            Known::Nothing(health)
        }
    }
}

/// Takes a tick; a device that answered nothing since it is gone is looked for from then on.
fn tick<'a>(mut asker: Box<Asker<'a>>, shared: &Shared, mut health: Health) -> Known<'a> {
    let Some(cause) = asker.tick(shared) else { return Known::Device(asker) };
    let index = asker.index();
    let failure =
        health.failed().map(|dropped| lost(index, format!("cannot read GPU {index}: {cause}"), dropped));
    shared.tell(|told| {
        told.is_lost = true;
        // What is known by heart says nothing of a device that is not there.
        told.values.clear();
        told.failures.clear();
        told.failures.extend(failure);
    });
    Known::Lost(asker, health)
}

/// Looks for a device that was lost, by its place; what is there now is known by its UUID.
fn find<'a>(
    asker: Box<Asker<'a>>,
    driver: Option<(u32, u32)>,
    shared: &Shared,
    mut health: Health,
) -> Known<'a> {
    let index = asker.index();
    shared.begin("nvmlDeviceGetHandleByIndex_v2", &GPU_UTILIZATION);
    match identify(asker.library(), index) {
        Ok((device, handle)) => {
            let again = Box::new(Asker::new(asker.library(), handle, device.clone(), driver));
            if device != *asker.device() {
                shared.tell(|told| told.identified = Some(Ok(device)));
            }
            tick(again, shared, health)
        }
        Err(cause) => {
            let failure = health.failed().map(|dropped| lost(index, cause, dropped));
            shared.tell(|told| {
                told.is_lost = true;
                told.failures.extend(failure);
            });
            Known::Lost(asker, health)
        }
    }
}

fn lost(gpu: u32, cause: String, dropped: bool) -> GpuFailure {
    GpuFailure { gpu, metric: &GPU_UTILIZATION, reason: "gpu_lost", cause, dropped }
}
