//! What the driver tells by itself: Xids, memory that fails, another recovery action.
//!
//! One thread of a session waits for it, and the sampler adds what a tick shows. Both lay it down in a
//! [`GpuEvents`], which outlives sessions.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::{
    code::Code,
    device::{GpuDevice, identify},
    ffi::{EventSet, FieldValue, Handle, Library, Told},
};

/// Most events that wait to be taken.
const EVENTS_MAX: usize = 4096;
/// How long one wait is: so long a closed session may keep the driver.
const WAIT_MS: u32 = 500;
/// Between two waits while they fail.
const TROUBLE: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 256 * 1024;
/// The recovery action, as a field.
const RECOVERY_ACTION: u32 = 230;
const NO_INSTANCE: u32 = u32::MAX;

const DOUBLE_BIT: u64 = 0x2;
const XID: u64 = 0x8;
const DRAM_RETIRED: u64 = 0x400;
const DRAM_RETIREMENT_FAILED: u64 = 0x800;
const POISON_NONFATAL: u64 = 0x1000;
const POISON_FATAL: u64 = 0x2000;
const UNAVAILABLE: u64 = 0x4000;
const RECOVERY: u64 = 0x8000;
const WANTED: u64 = DOUBLE_BIT
    | XID
    | DRAM_RETIRED
    | DRAM_RETIREMENT_FAILED
    | POISON_NONFATAL
    | POISON_FATAL
    | UNAVAILABLE
    | RECOVERY;

/// What the driver told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuNews {
    /// An Xid; 999 is one whose number the driver does not tell.
    Xid {
        /// The number.
        xid: u32,
        /// GPU instance of MIG.
        gpu_instance: Option<u32>,
        /// Compute instance of MIG.
        compute_instance: Option<u32>,
    },
    /// Memory failed: `double_bit`, `dram_retired`, `dram_retirement_failed`, `poison_nonfatal` or
    /// `poison_fatal`.
    Memory(&'static str),
    /// The device cannot be used any more.
    Unavailable,
    /// What the driver says is needed to make the device whole, as NVML numbers it; told when it is first
    /// known and when it changes.
    Recovery(u32),
}

/// Something that the driver told of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEvent {
    /// When it was heard.
    pub at: Instant,
    /// The driver's index of the device.
    pub gpu: u32,
    /// Its UUID.
    pub uuid: String,
    /// Its place on the bus; empty when unknown.
    pub pci_bus_id: String,
    /// What was told.
    pub news: GpuNews,
}

/// Where events are laid down until somebody takes them; clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct GpuEvents(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    events: VecDeque<GpuEvent>,
    lost: u64,
    /// By UUID.
    recovery: BTreeMap<String, u32>,
}

impl GpuEvents {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was told since the last call, and how many there was no room for.
    pub fn take(&self) -> (Vec<GpuEvent>, u64) {
        let mut heard = self.lock();
        let lost = std::mem::take(&mut heard.lost);
        (heard.events.drain(..).collect(), lost)
    }

    fn add(&self, device: &GpuDevice, news: GpuNews) {
        let mut heard = self.lock();
        if let GpuNews::Recovery(action) = news
            && heard.recovery.insert(device.uuid.clone(), action) == Some(action)
        {
            return;
        }
        if heard.events.len() >= EVENTS_MAX {
            heard.lost += 1;
            return;
        }
        heard.events.push_back(GpuEvent {
            at: Instant::now(),
            gpu: device.index,
            uuid: device.uuid.clone(),
            pci_bus_id: device.pci_bus_id.clone(),
            news,
        });
    }

    /// A tick has shown the recovery action of a device.
    pub(super) fn saw_recovery(&self, device: &GpuDevice, action: u32) {
        self.add(device, GpuNews::Recovery(action));
    }
}

/// The thread that waits for events; it ends with its session.
pub(super) struct Watcher {
    is_closed: Arc<AtomicBool>,
    thread: Thread,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Watcher {
    /// Waits for events of so many devices.
    pub(super) fn start(library: Arc<Library>, count: u32, events: GpuEvents) -> io::Result<Self> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let ours = is_closed.clone();
        let thread = thread::Builder::new()
            .name("tg-gpu-events".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || watch(&library, count, &events, &ours))?;
        Ok(Self { is_closed, thread: thread.thread().clone() })
    }
}

fn watch(library: &Library, count: u32, events: &GpuEvents, is_closed: &AtomicBool) {
    // A driver without sets of events leaves the kernel's log and the ticks.
    let Ok(set) = EventSet::new(library) else { return };
    let devices: Vec<(GpuDevice, Handle)> =
        (0..count).filter_map(|index| identify(library, index).ok()).collect();
    let watched = devices.iter().filter(|(_, handle)| set.add(*handle, WANTED).is_ok()).count();
    if watched == 0 {
        return;
    }
    while !is_closed.load(Ordering::Acquire) {
        match set.wait(WAIT_MS) {
            Ok(told) => {
                let device = devices.iter().find(|(_, handle)| told.is_of(*handle));
                if let Some((device, handle)) = device {
                    tell(library, (device, *handle), &told, events);
                }
            }
            Err(Code::TIMEOUT) => {}
            // A device that fell off the bus makes every wait fail at once, also for the others.
            Err(_) => thread::park_timeout(TROUBLE),
        }
    }
}

fn tell(library: &Library, (device, handle): (&GpuDevice, Handle), told: &Told, events: &GpuEvents) {
    let instance = |id: u32| (id != NO_INSTANCE).then_some(id);
    let news = match told.kind {
        XID => GpuNews::Xid {
            xid: u32::try_from(told.data).unwrap_or(u32::MAX),
            gpu_instance: instance(told.instances.0),
            compute_instance: instance(told.instances.1),
        },
        DOUBLE_BIT => GpuNews::Memory("double_bit"),
        DRAM_RETIRED => GpuNews::Memory("dram_retired"),
        DRAM_RETIREMENT_FAILED => GpuNews::Memory("dram_retirement_failed"),
        POISON_NONFATAL => GpuNews::Memory("poison_nonfatal"),
        POISON_FATAL => GpuNews::Memory("poison_fatal"),
        UNAVAILABLE => GpuNews::Unavailable,
        RECOVERY => match recovery(library, handle) {
            Some(action) => GpuNews::Recovery(action),
            None => return,
        },
        _ => return,
    };
    events.add(device, news);
}

fn recovery(library: &Library, handle: Handle) -> Option<u32> {
    let mut field = [FieldValue::new(RECOVERY_ACTION, 0)];
    library.fields(handle, &mut field).ok()?;
    u32::try_from(field[0].count().ok()?).ok().filter(|action| *action != u32::MAX)
}
