//! The driver library: loaded at run time, asked through a table of its functions.
//!
//! The one place of this crate with `unsafe`; why, and why these functions by hand, is in
//! `docs/decisions/0006-gpu-driver-library.md`. Signatures follow NVML's public documentation.
#![expect(unsafe_code, reason = "calls into the driver's C library")]

use std::{
    ffi::{OsStr, c_char, c_int, c_uint, c_void},
    ptr,
};

use super::code::Code;

/// A device or a MIG instance, as the driver names it: a pointer of its own, never followed by us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle(usize);

impl Handle {
    fn raw(self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// `nvmlUtilization_t`: percent of time.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlMemory_t`: bytes; what the driver reserves counts as used.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlMemory_v2_t`: bytes; what the driver reserves stands apart.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MemoryV2 {
    version: c_uint,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    numbers: [c_uint; 5],
    bus_id: [c_char; 32],
}

/// `nvmlFieldValue_t`: a number asked by its id, with room for the answer.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    value_type: c_uint,
    outcome: c_int,
    value: u64,
}

impl FieldValue {
    /// The scope is what the field's description says, such as a link; 0 where it says nothing.
    pub(crate) fn new(field: u32, scope: u32) -> Self {
        Self { field, scope, ..Self::default() }
    }

    pub(crate) fn is(&self, field: u32, scope: u32) -> bool {
        self.field == field && self.scope == scope
    }

    /// The driver's answer to the last [`Library::fields`] as a count; what is none reads as all ones.
    pub(crate) fn count(&self) -> Result<u64, Code> {
        Code::of(self.outcome)?;
        Ok(match self.value_type {
            // Unsigned int, signed int and unsigned short: the rest of the union is not written then.
            1 => self.value & 0xffff_ffff,
            5 => u64::try_from(self.value as u32 as i32).unwrap_or(u64::MAX),
            6 => self.value & 0xffff,
            2 | 3 => self.value,
            4 => u64::try_from(self.value as i64).unwrap_or(u64::MAX),
            _ => u64::MAX,
        })
    }
}

/// `nvmlMarginTemperature_v1_t`.
#[repr(C)]
#[derive(Default)]
struct MarginTemperature {
    version: c_uint,
    degrees: c_int,
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
#[derive(Default)]
struct TemperatureV1 {
    version: c_uint,
    sensor: c_uint,
    degrees: c_int,
}

/// `nvmlProcessInfo_v2_t`, which the functions named `_v3` fill in.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: c_uint,
    /// Bytes; all ones when the driver does not know.
    pub(crate) memory: u64,
    /// All ones on a device that is not partitioned.
    pub(crate) gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: *mut c_void,
    kind: u64,
    data: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
#[derive(Default)]
struct GpmSupport {
    version: c_uint,
    is_supported: c_uint,
}

/// `nvmlGpmMetric_t`: one profiling number, in percent or MiB a second.
#[repr(C)]
#[derive(Clone, Copy)]
struct GpmMetric {
    id: c_uint,
    outcome: c_int,
    value: f64,
    texts: [*const c_char; 3],
}

/// How many profiling numbers the structure has room for. The driver was built with 98 at first, 333 in
/// 2026, and its structure kept its version: with more room than any driver knows none writes past it.
const GPM_METRICS_MAX: usize = 400;

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct GpmMetricsGet {
    version: c_uint,
    count: c_uint,
    older: *mut c_void,
    newer: *mut c_void,
    metrics: [GpmMetric; GPM_METRICS_MAX],
}

// The layouts of the public header on 64-bit machines.
const _: () = {
    assert!(size_of::<FieldValue>() == 40 && size_of::<MemoryV2>() == 40 && size_of::<PciInfo>() == 68);
    assert!(size_of::<MarginTemperature>() == 8 && size_of::<TemperatureV1>() == 12);
    assert!(size_of::<ProcessInfo>() == 24 && size_of::<GpmSupport>() == 8 && size_of::<GpmMetric>() == 40);
    assert!(size_of::<EventData>() == 32);
    assert!(std::mem::offset_of!(GpmMetricsGet, metrics) == 24);
};

/// Rows of memory that the device took out of use.
#[derive(Default)]
pub(crate) struct RemappedRows {
    pub(crate) corrected: c_uint,
    pub(crate) uncorrected: c_uint,
    pub(crate) pending: c_uint,
    pub(crate) failed: c_uint,
}

/// Longest text that NVML documents (a UUID, a name), with room to spare.
const TEXT_BYTES: usize = 128;
const MEMORY_V2: c_uint = (size_of::<MemoryV2>() as c_uint) | (2 << 24);
const MARGIN_V1: c_uint = (size_of::<MarginTemperature>() as c_uint) | (1 << 24);
const TEMPERATURE_V1: c_uint = (size_of::<TemperatureV1>() as c_uint) | (1 << 24);
const TEMPERATURE_SENSOR_GPU: c_uint = 0;
/// What the structures of profiling have instead of a version made of their size.
const GPM_VERSION: c_uint = 1;

type Number<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;
type Text = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;

macro_rules! functions {
    ($($field:ident: $name:literal $type:ty;)*) => {
        /// The functions we use; `None` where this driver has none of that name.
        struct Functions { $($field: Option<$type>,)* }

        impl Functions {
            fn find(library: &libloading::Library) -> Self {
                // SAFETY: each name is NVML's, and its type is the documented one.
                unsafe { Self { $($field: library.get::<$type>($name).ok().map(|found| *found),)* } }
            }
        }
    };
}

functions! {
    init: "nvmlInit_v2" unsafe extern "C" fn() -> c_int;
    shutdown: "nvmlShutdown" unsafe extern "C" fn() -> c_int;
    driver_version: "nvmlSystemGetDriverVersion" unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
    count: "nvmlDeviceGetCount_v2" unsafe extern "C" fn(*mut c_uint) -> c_int;
    handle: "nvmlDeviceGetHandleByIndex_v2" unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
    uuid: "nvmlDeviceGetUUID" Text;
    name: "nvmlDeviceGetName" Text;
    pci_info: "nvmlDeviceGetPciInfo_v3" Number<PciInfo>;
    mig_mode: "nvmlDeviceGetMigMode" unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint) -> c_int;
    mig_count: "nvmlDeviceGetMaxMigDeviceCount" Number<c_uint>;
    mig_handle: "nvmlDeviceGetMigDeviceHandleByIndex"
        unsafe extern "C" fn(*mut c_void, c_uint, *mut *mut c_void) -> c_int;
    gpu_instance: "nvmlDeviceGetGpuInstanceId" Number<c_uint>;
    compute_capability: "nvmlDeviceGetCudaComputeCapability"
        unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> c_int;
    architecture: "nvmlDeviceGetArchitecture" Number<c_uint>;
    clock_max: "nvmlDeviceGetMaxClockInfo" unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
    utilization: "nvmlDeviceGetUtilizationRates" Number<Utilization>;
    memory: "nvmlDeviceGetMemoryInfo" Number<Memory>;
    memory_v2: "nvmlDeviceGetMemoryInfo_v2" Number<MemoryV2>;
    temperature: "nvmlDeviceGetTemperature" unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
    temperature_v: "nvmlDeviceGetTemperatureV" Number<TemperatureV1>;
    margin: "nvmlDeviceGetMarginTemperature" Number<MarginTemperature>;
    power: "nvmlDeviceGetPowerUsage" Number<c_uint>;
    power_limit: "nvmlDeviceGetEnforcedPowerLimit" Number<c_uint>;
    energy: "nvmlDeviceGetTotalEnergyConsumption" Number<u64>;
    clock: "nvmlDeviceGetClockInfo" unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
    events: "nvmlDeviceGetCurrentClocksEventReasons" Number<u64>;
    events_before_535: "nvmlDeviceGetCurrentClocksThrottleReasons" Number<u64>;
    fields: "nvmlDeviceGetFieldValues" unsafe extern "C" fn(*mut c_void, c_int, *mut FieldValue) -> c_int;
    ecc: "nvmlDeviceGetTotalEccErrors"
        unsafe extern "C" fn(*mut c_void, c_uint, c_uint, *mut u64) -> c_int;
    rows: "nvmlDeviceGetRemappedRows"
        unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;
    pcie_generation: "nvmlDeviceGetCurrPcieLinkGeneration" Number<c_uint>;
    pcie_width: "nvmlDeviceGetCurrPcieLinkWidth" Number<c_uint>;
    pcie_throughput: "nvmlDeviceGetPcieThroughput"
        unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
    pcie_replays: "nvmlDeviceGetPcieReplayCounter" Number<c_uint>;
    pcie_generation_max: "nvmlDeviceGetMaxPcieLinkGeneration" Number<c_uint>;
    pcie_width_max: "nvmlDeviceGetMaxPcieLinkWidth" Number<c_uint>;
    nvlink_state: "nvmlDeviceGetNvLinkState" unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
    nvlink_errors: "nvmlDeviceGetNvLinkErrorCounter"
        unsafe extern "C" fn(*mut c_void, c_uint, c_uint, *mut u64) -> c_int;
    compute_processes: "nvmlDeviceGetComputeRunningProcesses_v3" Processes;
    graphics_processes: "nvmlDeviceGetGraphicsRunningProcesses_v3" Processes;
    event_kinds: "nvmlDeviceGetSupportedEventTypes" Number<u64>;
    event_set: "nvmlEventSetCreate" unsafe extern "C" fn(*mut *mut c_void) -> c_int;
    event_set_free: "nvmlEventSetFree" unsafe extern "C" fn(*mut c_void) -> c_int;
    event_register: "nvmlDeviceRegisterEvents" unsafe extern "C" fn(*mut c_void, u64, *mut c_void) -> c_int;
    event_wait: "nvmlEventSetWait_v2" unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_int;
    gpm_support: "nvmlGpmQueryDeviceSupport" Number<GpmSupport>;
    gpm_alloc: "nvmlGpmSampleAlloc" unsafe extern "C" fn(*mut *mut c_void) -> c_int;
    gpm_free: "nvmlGpmSampleFree" unsafe extern "C" fn(*mut c_void) -> c_int;
    gpm_sample: "nvmlGpmSampleGet" unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    gpm_metrics: "nvmlGpmMetricsGet" unsafe extern "C" fn(*mut GpmMetricsGet) -> c_int;
}

/// Calls a function that may be missing. Every pointer handed over is to a value of the caller's own.
macro_rules! call {
    ($library:ident.$field:ident($($argument:expr),*)) => {{
        let function = $library.functions.$field.ok_or(Code::FUNCTION_NOT_FOUND)?;
        // SAFETY: the signature is the documented one; pointers are to locals that outlive the call.
        Code::of(unsafe { function($($argument),*) })?;
    }};
}

/// The loaded library; NVML is thread-safe, so one is shared by all threads.
pub(crate) struct Library {
    functions: Functions,
    /// The process that initialised it: a forked child must not shut it down.
    initialised_by: Option<u32>,
    /// Keeps the code mapped as long as `functions` point into it.
    _mapped: libloading::Library,
}

impl Library {
    /// Loads the library of this name or path; the loader's words when it cannot.
    pub(crate) fn load(name: &OsStr) -> Result<Self, String> {
        // SAFETY: loading runs the library's initialisers; it is the driver's, or the one that was named.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| in_words(&error))?;
        Ok(Self { functions: Functions::find(&library), initialised_by: None, _mapped: library })
    }

    /// Which of the functions that nothing works without this library lacks.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let needed = [
            ("nvmlInit_v2", self.functions.init.is_some()),
            ("nvmlDeviceGetCount_v2", self.functions.count.is_some()),
            ("nvmlDeviceGetHandleByIndex_v2", self.functions.handle.is_some()),
            ("nvmlDeviceGetUUID", self.functions.uuid.is_some()),
        ];
        needed.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect()
    }

    pub(crate) fn init(&mut self) -> Result<(), Code> {
        call!(self.init());
        self.initialised_by = Some(std::process::id());
        Ok(())
    }

    pub(crate) fn driver_version(&self) -> Result<String, Code> {
        let mut text = [0; TEXT_BYTES];
        call!(self.driver_version(text.as_mut_ptr(), TEXT_BYTES as c_uint));
        Ok(decode(&text))
    }

    pub(crate) fn count(&self) -> Result<u32, Code> {
        let mut count = 0;
        call!(self.count(&raw mut count));
        Ok(count)
    }

    pub(crate) fn handle(&self, index: u32) -> Result<Handle, Code> {
        let mut handle = ptr::null_mut();
        call!(self.handle(index, &raw mut handle));
        Ok(Handle(handle.expose_provenance()))
    }

    pub(crate) fn uuid(&self, of: Handle) -> Result<String, Code> {
        let mut text = [0; TEXT_BYTES];
        call!(self.uuid(of.raw(), text.as_mut_ptr(), TEXT_BYTES as c_uint));
        Ok(decode(&text))
    }

    pub(crate) fn name(&self, of: Handle) -> Result<String, Code> {
        let mut text = [0; TEXT_BYTES];
        call!(self.name(of.raw(), text.as_mut_ptr(), TEXT_BYTES as c_uint));
        Ok(decode(&text))
    }

    /// As the driver writes it, such as `00000000:1B:00.0`.
    pub(crate) fn pci_bus_id(&self, of: Handle) -> Result<String, Code> {
        let mut info = PciInfo::default();
        call!(self.pci_info(of.raw(), &raw mut info));
        Ok(decode(&info.bus_id))
    }

    /// Whether the device is partitioned now.
    pub(crate) fn is_mig(&self, of: Handle) -> Result<bool, Code> {
        let (mut current, mut pending) = (0, 0);
        call!(self.mig_mode(of.raw(), &raw mut current, &raw mut pending));
        Ok(current == 1)
    }

    /// How many instances the device can have at most.
    pub(crate) fn mig_slots(&self, of: Handle) -> Result<u32, Code> {
        let mut count = 0;
        call!(self.mig_count(of.raw(), &raw mut count));
        Ok(count)
    }

    pub(crate) fn mig_handle(&self, of: Handle, slot: u32) -> Result<Handle, Code> {
        let mut handle = ptr::null_mut();
        call!(self.mig_handle(of.raw(), slot, &raw mut handle));
        Ok(Handle(handle.expose_provenance()))
    }

    pub(crate) fn gpu_instance(&self, of: Handle) -> Result<u32, Code> {
        let mut id = 0;
        call!(self.gpu_instance(of.raw(), &raw mut id));
        Ok(id)
    }

    /// Major and minor number of the CUDA compute capability.
    pub(crate) fn compute_capability(&self, of: Handle) -> Result<(i32, i32), Code> {
        let (mut major, mut minor) = (0, 0);
        call!(self.compute_capability(of.raw(), &raw mut major, &raw mut minor));
        Ok((major, minor))
    }

    /// The driver's number for the device's generation.
    pub(crate) fn architecture(&self, of: Handle) -> Result<u32, Code> {
        let mut number = 0;
        call!(self.architecture(of.raw(), &raw mut number));
        Ok(number)
    }

    /// The highest clock of a domain; the domains are those of [`clock_mhz`](Self::clock_mhz).
    pub(crate) fn clock_max_mhz(&self, of: Handle, domain: u32) -> Result<u32, Code> {
        let mut clock = 0;
        call!(self.clock_max(of.raw(), domain, &raw mut clock));
        Ok(clock)
    }

    pub(crate) fn utilization(&self, of: Handle) -> Result<Utilization, Code> {
        let mut rates = Utilization::default();
        call!(self.utilization(of.raw(), &raw mut rates));
        Ok(rates)
    }

    pub(crate) fn memory(&self, of: Handle) -> Result<Memory, Code> {
        let mut memory = Memory::default();
        call!(self.memory(of.raw(), &raw mut memory));
        Ok(memory)
    }

    pub(crate) fn memory_v2(&self, of: Handle) -> Result<MemoryV2, Code> {
        let mut memory = MemoryV2 { version: MEMORY_V2, ..MemoryV2::default() };
        call!(self.memory_v2(of.raw(), &raw mut memory));
        Ok(memory)
    }

    /// Degrees Celsius; by the structure that NVML 13 put in the place of the plain call, where there is
    /// no other.
    pub(crate) fn temperature(&self, of: Handle) -> Result<i64, Code> {
        if self.functions.temperature.is_none() {
            let mut reading = TemperatureV1 { version: TEMPERATURE_V1, ..TemperatureV1::default() };
            call!(self.temperature_v(of.raw(), &raw mut reading));
            return Ok(i64::from(reading.degrees));
        }
        let mut degrees = 0;
        call!(self.temperature(of.raw(), TEMPERATURE_SENSOR_GPU, &raw mut degrees));
        Ok(i64::from(degrees))
    }

    /// Degrees Celsius to the threshold at which the device slows down; below zero above it.
    pub(crate) fn margin(&self, of: Handle) -> Result<i32, Code> {
        let mut margin = MarginTemperature { version: MARGIN_V1, ..MarginTemperature::default() };
        call!(self.margin(of.raw(), &raw mut margin));
        Ok(margin.degrees)
    }

    pub(crate) fn power_mw(&self, of: Handle) -> Result<u32, Code> {
        let mut power = 0;
        call!(self.power(of.raw(), &raw mut power));
        Ok(power)
    }

    pub(crate) fn power_limit_mw(&self, of: Handle) -> Result<u32, Code> {
        let mut limit = 0;
        call!(self.power_limit(of.raw(), &raw mut limit));
        Ok(limit)
    }

    pub(crate) fn energy_mj(&self, of: Handle) -> Result<u64, Code> {
        let mut energy = 0;
        call!(self.energy(of.raw(), &raw mut energy));
        Ok(energy)
    }

    /// Domain 0: graphics, 1: SM, 2: memory.
    pub(crate) fn clock_mhz(&self, of: Handle, domain: u32) -> Result<u32, Code> {
        let mut clock = 0;
        call!(self.clock(of.raw(), domain, &raw mut clock));
        Ok(clock)
    }

    /// The mask of reasons for which clocks are held back at this moment.
    pub(crate) fn throttle_mask(&self, of: Handle) -> Result<u64, Code> {
        let mut mask = 0;
        if self.functions.events.is_some() {
            call!(self.events(of.raw(), &raw mut mask));
        } else {
            call!(self.events_before_535(of.raw(), &raw mut mask));
        }
        Ok(mask)
    }

    /// Asks for all of these fields in one call; each has an outcome of its own.
    pub(crate) fn fields(&self, of: Handle, fields: &mut [FieldValue]) -> Result<(), Code> {
        call!(self.fields(of.raw(), fields.len() as c_int, fields.as_mut_ptr()));
        Ok(())
    }

    /// Kind 0: corrected, 1: uncorrected. Scope 0: since the driver was loaded, 1: for life.
    pub(crate) fn ecc_errors(&self, of: Handle, kind: u32, scope: u32) -> Result<u64, Code> {
        let mut errors = 0;
        call!(self.ecc(of.raw(), kind, scope, &raw mut errors));
        Ok(errors)
    }

    pub(crate) fn remapped_rows(&self, of: Handle) -> Result<RemappedRows, Code> {
        let mut rows = RemappedRows::default();
        call!(self.rows(
            of.raw(),
            &raw mut rows.corrected,
            &raw mut rows.uncorrected,
            &raw mut rows.pending,
            &raw mut rows.failed
        ));
        Ok(rows)
    }

    pub(crate) fn pcie_generation(&self, of: Handle) -> Result<u32, Code> {
        let mut generation = 0;
        call!(self.pcie_generation(of.raw(), &raw mut generation));
        Ok(generation)
    }

    pub(crate) fn pcie_width(&self, of: Handle) -> Result<u32, Code> {
        let mut lanes = 0;
        call!(self.pcie_width(of.raw(), &raw mut lanes));
        Ok(lanes)
    }

    /// Kilobytes a second. Counter 0: sent by the device, 1: received by it.
    pub(crate) fn pcie_throughput_kb(&self, of: Handle, counter: u32) -> Result<u32, Code> {
        let mut throughput = 0;
        call!(self.pcie_throughput(of.raw(), counter, &raw mut throughput));
        Ok(throughput)
    }

    pub(crate) fn pcie_replays(&self, of: Handle) -> Result<u32, Code> {
        let mut replays = 0;
        call!(self.pcie_replays(of.raw(), &raw mut replays));
        Ok(replays)
    }

    pub(crate) fn pcie_generation_max(&self, of: Handle) -> Result<u32, Code> {
        let mut generation = 0;
        call!(self.pcie_generation_max(of.raw(), &raw mut generation));
        Ok(generation)
    }

    pub(crate) fn pcie_width_max(&self, of: Handle) -> Result<u32, Code> {
        let mut lanes = 0;
        call!(self.pcie_width_max(of.raw(), &raw mut lanes));
        Ok(lanes)
    }

    pub(crate) fn is_nvlink_active(&self, of: Handle, link: u32) -> Result<bool, Code> {
        let mut state = 0;
        call!(self.nvlink_state(of.raw(), link, &raw mut state));
        Ok(state == 1)
    }

    /// Counter 0: replays, 1: recoveries, 2: CRC errors of flits, 3: of data, 4: ECC errors of data.
    pub(crate) fn nvlink_errors(&self, of: Handle, link: u32, counter: u32) -> Result<u64, Code> {
        let mut errors = 0;
        call!(self.nvlink_errors(of.raw(), link, counter, &raw mut errors));
        Ok(errors)
    }

    /// Fills in the processes that compute on a device; how many there are, which may be more than fit.
    pub(crate) fn compute_processes(&self, of: Handle, into: &mut [ProcessInfo]) -> Result<usize, Code> {
        self.processes(self.functions.compute_processes, of, into)
    }

    /// The same of processes that draw.
    pub(crate) fn graphics_processes(&self, of: Handle, into: &mut [ProcessInfo]) -> Result<usize, Code> {
        self.processes(self.functions.graphics_processes, of, into)
    }

    #[expect(clippy::unused_self, reason = "the library must be there while its function is called")]
    fn processes(
        &self,
        function: Option<Processes>,
        of: Handle,
        into: &mut [ProcessInfo],
    ) -> Result<usize, Code> {
        let function = function.ok_or(Code::FUNCTION_NOT_FOUND)?;
        let mut count = into.len() as c_uint;
        // SAFETY: the signature is the documented one, and `count` says how many structures there are.
        let answer = Code::of(unsafe { function(of.raw(), &raw mut count, into.as_mut_ptr()) });
        match answer {
            Ok(()) => Ok((count as usize).min(into.len())),
            Err(Code::INSUFFICIENT_SIZE) => Ok(count as usize),
            Err(code) => Err(code),
        }
    }
}

/// What the driver told of a device.
pub(crate) struct Told {
    device: usize,
    /// One bit.
    pub(crate) kind: u64,
    /// What belongs to it, such as the Xid.
    pub(crate) data: u64,
    /// GPU and compute instance; all ones for none.
    pub(crate) instances: (u32, u32),
}

impl Told {
    pub(crate) fn is_of(&self, device: Handle) -> bool {
        self.device == device.0
    }
}

/// A set of events that the driver tells.
pub(crate) struct EventSet<'a> {
    library: &'a Library,
    set: *mut c_void,
}

impl<'a> EventSet<'a> {
    pub(crate) fn new(library: &'a Library) -> Result<Self, Code> {
        let mut set = ptr::null_mut();
        call!(library.event_set(&raw mut set));
        Ok(Self { library, set })
    }

    /// Adds those of these kinds that a device can tell.
    pub(crate) fn add(&self, device: Handle, kinds: u64) -> Result<(), Code> {
        let library = self.library;
        let mut known = 0;
        call!(library.event_kinds(device.raw(), &raw mut known));
        if kinds & known == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        call!(library.event_register(device.raw(), kinds & known, self.set));
        Ok(())
    }

    /// Waits for the next one, at most so many milliseconds; then it is a timeout.
    pub(crate) fn wait(&self, milliseconds: u32) -> Result<Told, Code> {
        let library = self.library;
        let mut data =
            EventData { device: ptr::null_mut(), kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
        call!(library.event_wait(self.set, &raw mut data, milliseconds));
        let instances = (data.gpu_instance, data.compute_instance);
        Ok(Told { device: data.device.addr(), kind: data.kind, data: data.data, instances })
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        if let Some(free) = self.library.functions.event_set_free {
            // SAFETY: it was made by this library, which is still loaded, and is freed once.
            unsafe { free(self.set) };
        }
    }
}

/// Profiling of one device: two samples of its counters and the question what lies between them.
pub(crate) struct Profile<'a> {
    library: &'a Library,
    /// Older first.
    samples: [*mut c_void; 2],
    question: Box<GpmMetricsGet>,
}

impl<'a> Profile<'a> {
    /// What is needed to profile a device by these numbers; NOT_SUPPORTED where it cannot be profiled.
    pub(crate) fn new(library: &'a Library, of: Handle, ids: &[u32]) -> Result<Self, Code> {
        let mut support = GpmSupport { version: GPM_VERSION, is_supported: 0 };
        call!(library.gpm_support(of.raw(), &raw mut support));
        if support.is_supported == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let blank = GpmMetric { id: 0, outcome: 0, value: 0.0, texts: [ptr::null(); 3] };
        let mut question = Box::new(GpmMetricsGet {
            version: GPM_VERSION,
            count: ids.len().min(GPM_METRICS_MAX) as c_uint,
            older: ptr::null_mut(),
            newer: ptr::null_mut(),
            metrics: [blank; GPM_METRICS_MAX],
        });
        for (metric, id) in question.metrics.iter_mut().zip(ids) {
            metric.id = *id;
        }
        // Dropping it frees what was allocated, also when only the first sample was.
        let mut profile = Self { library, samples: [ptr::null_mut(); 2], question };
        for sample in &mut profile.samples {
            call!(library.gpm_alloc(sample));
        }
        Ok(profile)
    }

    /// Takes a sample in the place of the older one.
    pub(crate) fn sample(&mut self, of: Handle) -> Result<(), Code> {
        let library = self.library;
        call!(library.gpm_sample(of.raw(), self.samples[0]));
        self.samples.swap(0, 1);
        Ok(())
    }

    /// The numbers between the last two samples, in the order of their ids.
    pub(crate) fn between(&mut self) -> Result<impl Iterator<Item = Result<f64, Code>> + '_, Code> {
        [self.question.older, self.question.newer] = self.samples;
        let library = self.library;
        call!(library.gpm_metrics(&raw mut *self.question));
        let metrics = self.question.metrics.iter().take(self.question.count as usize);
        Ok(metrics.map(|metric| Code::of(metric.outcome).map(|()| metric.value)))
    }
}

impl Drop for Profile<'_> {
    fn drop(&mut self) {
        let Some(free) = self.library.functions.gpm_free else { return };
        for sample in self.samples.iter().filter(|sample| !sample.is_null()) {
            // SAFETY: it was allocated by this library, which is still loaded, and is freed once.
            unsafe { free(*sample) };
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if self.initialised_by == Some(std::process::id())
            && let Some(shutdown) = self.functions.shutdown
        {
            // SAFETY: it was initialised by this process, and the last thread that calls it is done.
            unsafe { shutdown() };
        }
    }
}

/// The loader's own words, which stand below those of `libloading`.
fn in_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Text up to its NUL, or all of the buffer when the driver forgot one; what is no printable text is
/// replaced.
fn decode(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
