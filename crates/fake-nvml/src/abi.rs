//! NVML's C interface: the functions and structures that we use, by their documented names.
#![expect(unsafe_code, reason = "a C library: it writes through the pointers of its caller")]

mod events;
mod links;

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

use crate::{
    scenario::code,
    stage::{Asked, device, system},
};

type Handle = *mut c_void;

/// Handles of MIG instances lie above those of whole devices.
const INSTANCES: usize = 1000;

#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    numbers: [c_uint; 5],
    bus_id: [c_char; 32],
}

#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    value_type: c_uint,
    outcome: c_int,
    value: u64,
}

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The folder in which this library lies; empty when the loader does not tell.
pub(crate) fn own_folder() -> PathBuf {
    let mut info =
        DlInfo { file: ptr::null(), base: ptr::null_mut(), symbol: ptr::null(), address: ptr::null_mut() };
    let own = own_folder as *const c_void;
    // SAFETY: `info` is ours and outlives the call; the name belongs to the loader while we are loaded.
    let file = unsafe {
        if dladdr(own, &raw mut info) == 0 || info.file.is_null() {
            return PathBuf::new();
        }
        CStr::from_ptr(info.file)
    };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    file.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Writes what was answered through the caller's pointer; the code says how it went.
fn put<T>(out: *mut T, answer: Result<T, i32>) -> c_int {
    match answer {
        Ok(_) if out.is_null() => code("invalid_argument"),
        Ok(value) => {
            // SAFETY: the caller of NVML passes a pointer to a value of this type, or null.
            unsafe { out.write(value) };
            0
        }
        Err(code) => code,
    }
}

/// Writes a text with its NUL into the caller's buffer.
fn put_text(out: *mut c_char, length: c_uint, answer: Result<String, i32>) -> c_int {
    match answer {
        Ok(text) if text.len() >= length as usize || out.is_null() => code("insufficient_size"),
        Ok(text) => {
            // SAFETY: the buffer has `length` bytes and the text with its NUL is not longer.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
                out.add(text.len()).write(0);
            }
            0
        }
        Err(code) => code,
    }
}

/// As [`put_text`], with the scenario's bytes in the place of the text where it has some.
fn put_named(out: *mut c_char, length: c_uint, function: &str, asked: Result<(Asked, String), i32>) -> c_int {
    let Ok((asked, text)) = asked else { return put_text(out, length, asked.map(|(_, text)| text)) };
    match asked.gpu().texts.get(function) {
        None => put_text(out, length, Ok(text)),
        Some(_) if out.is_null() => code("invalid_argument"),
        Some(bytes) => {
            let count = bytes.len().min(length as usize);
            // SAFETY: the buffer has `length` bytes, and no more are written.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, count);
                if count < length as usize {
                    out.add(count).write(0);
                }
            }
            0
        }
    }
}

fn ask(function: &str, handle: Handle) -> Result<Asked, i32> {
    device(function, handle.addr().wrapping_sub(1))
}

fn status(answer: Result<(), i32>) -> c_int {
    answer.err().unwrap_or_default()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    status(system("nvmlInit_v2").map(|_| ()))
}

/// NVIDIA's own Python bindings start the library by this one.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
    status(system("nvmlInitWithFlags").map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_int {
    status(system("nvmlShutdown").map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> c_int {
    let version = system("nvmlSystemGetDriverVersion")
        .and_then(|scenario| scenario.driver_version.clone().ok_or_else(|| code("unknown")));
    put_text(out, length, version)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_int {
    put(out, system("nvmlDeviceGetCount_v2").map(|scenario| scenario.gpu.len() as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_int {
    let handle = device("nvmlDeviceGetHandleByIndex_v2", index as usize)
        .map(|_| ptr::without_provenance_mut(index as usize + 1));
    put(out, handle)
}

/// The device and instance that a handle of a MIG instance stands for; the device alone for others.
fn parts(handle: Handle) -> (usize, Option<usize>) {
    let number = handle.addr();
    if number < INSTANCES {
        (number.wrapping_sub(1), None)
    } else {
        (number / INSTANCES - 1, Some(number % INSTANCES))
    }
}

/// A call that is answered for a MIG instance too.
fn ask_part(function: &str, handle: Handle) -> Result<Asked, i32> {
    let (index, instance) = parts(handle);
    device(function, index).map(|asked| asked.part(instance))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(handle: Handle, out: *mut c_char, length: c_uint) -> c_int {
    let (index, instance) = parts(handle);
    let asked = device("nvmlDeviceGetUUID", index).and_then(|asked| {
        let uuid = match instance {
            None => asked.gpu().uuid.clone(),
            Some(at) => asked.gpu().instances.get(at).ok_or_else(|| code("not_found"))?.uuid.clone(),
        };
        Ok((asked, uuid))
    });
    put_named(out, length, "nvmlDeviceGetUUID", asked)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(handle: Handle, out: *mut c_uint) -> c_int {
    let (index, instance) = parts(handle);
    let id = device("nvmlDeviceGetGpuInstanceId", index).and_then(|asked| {
        let instance = instance.and_then(|at| asked.gpu().instances.get(at));
        instance.map(|instance| instance.gpu_instance).ok_or_else(|| code("not_found"))
    });
    put(out, id)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(handle: Handle, out: *mut c_uint) -> c_int {
    put(
        out,
        ask("nvmlDeviceGetMaxMigDeviceCount", handle)
            .map(|asked| if asked.gpu().mig.is_some() { 7 } else { 0 }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, at: c_uint, out: *mut Handle) -> c_int {
    let instance = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle).and_then(|asked| {
        if (at as usize) < asked.gpu().instances.len() {
            Ok(ptr::without_provenance_mut(handle.addr() * INSTANCES + at as usize))
        } else {
            Err(code("not_found"))
        }
    });
    put(out, instance)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(handle: Handle, out: *mut c_char, length: c_uint) -> c_int {
    let asked = ask("nvmlDeviceGetName", handle).map(|asked| {
        let name = asked.gpu().name.clone();
        (asked, name)
    });
    put_named(out, length, "nvmlDeviceGetName", asked)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(handle: Handle, out: *mut PciInfo) -> c_int {
    let info = ask("nvmlDeviceGetPciInfo_v3", handle).map(|asked| {
        let mut info = PciInfo { bus_id_legacy: [0; 16], numbers: [0; 5], bus_id: [0; 32] };
        for (slot, byte) in info.bus_id.iter_mut().take(31).zip(asked.gpu().bus_id.bytes()) {
            *slot = byte as c_char;
        }
        info
    });
    put(out, info)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(handle: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_int {
    let mode = ask("nvmlDeviceGetMigMode", handle)
        .and_then(|asked| asked.gpu().mig.map(c_uint::from).ok_or_else(|| code("not_supported")));
    put(pending, mode).max(put(current, mode))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    handle: Handle,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_int {
    let capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
        .and_then(|asked| asked.gpu().compute_capability.ok_or_else(|| code("unknown")));
    put(major, capability.map(|[major, _]| major)).max(put(minor, capability.map(|[_, minor]| minor)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetArchitecture(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetArchitecture", handle, "architecture"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(handle: Handle, domain: c_uint, out: *mut c_uint) -> c_int {
    let key = match domain {
        0 => "graphics_max_mhz",
        1 => "sm_max_mhz",
        _ => "memory_max_mhz",
    };
    put(out, number("nvmlDeviceGetMaxClockInfo", handle, key))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(handle: Handle, out: *mut Utilization) -> c_int {
    let rates = ask("nvmlDeviceGetUtilizationRates", handle).and_then(|asked| {
        let gpu = asked.value("utilization")? as c_uint;
        Ok(Utilization { gpu, memory: asked.value("utilization_memory").unwrap_or_default() as c_uint })
    });
    put(out, rates)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(handle: Handle, out: *mut Memory) -> c_int {
    let memory = ask_part("nvmlDeviceGetMemoryInfo", handle).and_then(|asked| {
        let total = asked.value("memory_total")? as u64;
        // The first version counts what the driver keeps for itself as used.
        let used = (asked.value("memory_used")? + asked.value("memory_reserved").unwrap_or_default()) as u64;
        Ok(Memory { total, free: total.wrapping_sub(used), used })
    });
    put(out, memory)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: *mut MemoryV2) -> c_int {
    let version = (size_of::<MemoryV2>() as c_uint) | (2 << 24);
    // SAFETY: the caller passes a pointer to its structure with the version filled in, or null.
    if out.is_null() || unsafe { (*out).version } != version {
        return code("argument_version_mismatch");
    }
    let memory = ask_part("nvmlDeviceGetMemoryInfo_v2", handle).and_then(|asked| {
        let total = asked.value("memory_total")? as u64;
        let used = asked.value("memory_used")? as u64;
        let reserved = asked.value("memory_reserved").unwrap_or_default() as u64;
        let free = total.wrapping_sub(used).wrapping_sub(reserved);
        Ok(MemoryV2 { version, total, reserved, free, used })
    });
    put(out, memory)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(handle: Handle, _sensor: c_uint, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetTemperature", handle, "temperature"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(handle: Handle, domain: c_uint, out: *mut c_uint) -> c_int {
    let key = match domain {
        0 => "graphics_mhz",
        1 => "sm_mhz",
        _ => "memory_mhz",
    };
    put(out, number("nvmlDeviceGetClockInfo", handle, key))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    handle: Handle,
    kind: c_uint,
    scope: c_uint,
    out: *mut u64,
) -> c_int {
    let kind = if kind == 0 { "corrected" } else { "uncorrected" };
    let scope = if scope == 0 { "volatile" } else { "aggregate" };
    let errors = ask("nvmlDeviceGetTotalEccErrors", handle)
        .and_then(|asked| asked.value(&format!("ecc_{kind}_{scope}")))
        .map(|errors| errors as u64);
    put(out, errors)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRemappedRows(
    handle: Handle,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> c_int {
    let read = |asked: &Asked, key: &str| asked.value(key).map(|rows| rows as c_uint);
    match ask("nvmlDeviceGetRemappedRows", handle) {
        Err(code) => code,
        Ok(asked) => put(corrected, read(&asked, "rows_corrected"))
            .max(put(uncorrected, read(&asked, "rows_uncorrected")))
            .max(put(pending, read(&asked, "rows_pending").or(Ok(0))))
            .max(put(failed, read(&asked, "rows_failed").or(Ok(0)))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPcieThroughput(handle: Handle, counter: c_uint, out: *mut c_uint) -> c_int {
    let key = if counter == 0 { "pcie_transmit_kb" } else { "pcie_receive_kb" };
    put(out, number("nvmlDeviceGetPcieThroughput", handle, key))
}

/// Fills in each field by itself: one that the scenario lacks carries its own NOT_SUPPORTED.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(handle: Handle, count: c_int, fields: *mut FieldValue) -> c_int {
    let asked = match ask("nvmlDeviceGetFieldValues", handle) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    if fields.is_null() || count <= 0 {
        return code("invalid_argument");
    }
    // SAFETY: the caller passes `count` structures.
    let fields = unsafe { std::slice::from_raw_parts_mut(fields, count as usize) };
    for field in fields {
        let of_link = format!("field_{}_{}", field.field, field.scope);
        let answer = match asked.gpu().values.get(&of_link) {
            Some(answer) => asked.value_of(&of_link, answer),
            None => asked.value(&format!("field_{}", field.field)),
        };
        // 3: an unsigned long long.
        field.value_type = 3;
        field.outcome = answer.err().unwrap_or_default();
        field.value = answer.unwrap_or_default() as u64;
    }
    0
}

fn number(function: &str, handle: Handle, key: &str) -> Result<c_uint, i32> {
    ask(function, handle).and_then(|asked| asked.value(key)).map(|value| value as c_uint)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetPowerUsage", handle, "power_mw"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEnforcedPowerLimit(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetEnforcedPowerLimit", handle, "limit_mw"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(handle: Handle, out: *mut u64) -> c_int {
    put(
        out,
        ask("nvmlDeviceGetTotalEnergyConsumption", handle)
            .and_then(|asked| asked.value("energy_mj"))
            .map(|value| value as u64),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(handle: Handle, out: *mut u64) -> c_int {
    put(
        out,
        ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
            .and_then(|asked| asked.value("throttle_mask"))
            .map(|value| value as u64),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetCurrPcieLinkGeneration", handle, "pcie_generation"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetCurrPcieLinkWidth", handle, "pcie_width"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPcieReplayCounter(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetPcieReplayCounter", handle, "pcie_replays"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetMaxPcieLinkGeneration", handle, "pcie_generation_max"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: Handle, out: *mut c_uint) -> c_int {
    put(out, number("nvmlDeviceGetMaxPcieLinkWidth", handle, "pcie_width_max"))
}

/// The structure of one number behind a version, which the margin and the newer temperature call share.
fn put_degrees<const WORDS: usize>(function: &str, handle: Handle, out: *mut [c_uint; WORDS]) -> c_int {
    let version = (size_of::<[c_uint; WORDS]>() as c_uint) | (1 << 24);
    // SAFETY: the caller passes a pointer to its structure with the version filled in, or null.
    if out.is_null() || unsafe { (*out)[0] } != version {
        return code("argument_version_mismatch");
    }
    let key = if WORDS == 2 { "margin" } else { "temperature" };
    match ask(function, handle).and_then(|asked| asked.value(key)) {
        Ok(degrees) => {
            // SAFETY: the same pointer; the number is the last word.
            unsafe { (*out)[WORDS - 1] = degrees as c_uint };
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMarginTemperature(handle: Handle, out: *mut [c_uint; 2]) -> c_int {
    put_degrees("nvmlDeviceGetMarginTemperature", handle, out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureV(handle: Handle, out: *mut [c_uint; 3]) -> c_int {
    put_degrees("nvmlDeviceGetTemperatureV", handle, out)
}
