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

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    value_type: c_uint,
    outcome: c_int,
    value: u64,
}

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
const TEMPERATURE_SENSOR_GPU: c_uint = 0;

type Number<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> c_int;
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

    /// Degrees Celsius.
    pub(crate) fn temperature(&self, of: Handle) -> Result<u32, Code> {
        let mut degrees = 0;
        call!(self.temperature(of.raw(), TEMPERATURE_SENSOR_GPU, &raw mut degrees));
        Ok(degrees)
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

    /// The values of these fields, each with an outcome of its own.
    pub(crate) fn fields<const N: usize>(
        &self,
        of: Handle,
        ids: [u32; N],
    ) -> Result<[Result<u64, Code>; N], Code> {
        let mut fields = ids.map(|field| FieldValue { field, ..FieldValue::default() });
        call!(self.fields(of.raw(), N as c_int, fields.as_mut_ptr()));
        Ok(fields.map(|field| {
            Code::of(field.outcome)?;
            match field.value_type {
                // Unsigned int and unsigned short; the rest of the union is not written then.
                1 => Ok(field.value & 0xffff_ffff),
                6 => Ok(field.value & 0xffff),
                2 | 3 => Ok(field.value),
                _ => Err(Code(999)),
            }
        }))
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

/// Text up to its NUL, or all of the buffer when the driver forgot one; anything but UTF-8 is replaced.
fn decode(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
