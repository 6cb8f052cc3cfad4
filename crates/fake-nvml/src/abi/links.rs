//! Links, processes and profiling.

use std::{
    ffi::{c_char, c_int, c_uint},
    ptr,
};

use super::{Handle, ask, ask_part, put};
use crate::{
    Answer,
    scenario::code,
    stage::{Asked, device, seconds, system},
};

fn link(function: &str, handle: Handle, link: c_uint) -> Result<Asked, i32> {
    let asked = ask(function, handle)?;
    match asked.gpu().links {
        0 => Err(code("not_supported")),
        links if link >= links => Err(code("invalid_argument")),
        _ => Ok(asked),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(handle: Handle, number: c_uint, out: *mut c_uint) -> c_int {
    let state = link("nvmlDeviceGetNvLinkState", handle, number)
        .and_then(|asked| or(&asked, &format!("nvlink_state_{number}"), 1));
    put(out, state.map(|state| state as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    handle: Handle,
    number: c_uint,
    counter: c_uint,
    out: *mut u64,
) -> c_int {
    let errors = link("nvmlDeviceGetNvLinkErrorCounter", handle, number)
        .and_then(|asked| or(&asked, &format!("nvlink_errors_{number}_{counter}"), 0));
    put(out, errors.map(|errors| errors as u64))
}

/// The value of this name, or this number where the scenario has none.
fn or(asked: &Asked, key: &str, number: i64) -> Result<i64, i32> {
    asked.gpu().values.get(key).map_or(Ok(number), |answer| asked.value_of(key, answer))
}

#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    memory: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

fn processes(
    function: &str,
    draws: bool,
    handle: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_int {
    let asked = match ask(function, handle) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    if count.is_null() {
        return code("invalid_argument");
    }
    let found: Vec<_> = asked.gpu().processes.iter().filter(|process| process.draws == draws).collect();
    // SAFETY: the caller passes a count, and as many structures as it says.
    unsafe {
        let room = count.replace(found.len() as c_uint) as usize;
        if room < found.len() || (infos.is_null() && !found.is_empty()) {
            return code("insufficient_size");
        }
        for (at, process) in found.iter().enumerate() {
            infos.add(at).write(ProcessInfo {
                pid: process.pid,
                memory: process.memory.unwrap_or(u64::MAX),
                gpu_instance: process.gpu_instance.unwrap_or(c_uint::MAX),
                compute_instance: c_uint::MAX,
            });
        }
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_int {
    processes("nvmlDeviceGetComputeRunningProcesses_v3", false, handle, count, infos)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    handle: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_int {
    processes("nvmlDeviceGetGraphicsRunningProcesses_v3", true, handle, count, infos)
}

/// What was counted at one moment.
struct Sample {
    index: usize,
    /// Seconds after the start of the library; running numbers are those of this very moment.
    at: f64,
    /// Number of the metric, whether it runs, and its value or error.
    numbers: Vec<(c_uint, bool, Result<i64, i32>)>,
}

#[repr(C)]
struct Metric {
    id: c_uint,
    outcome: c_int,
    value: f64,
    texts: [*const c_char; 3],
}

#[repr(C)]
struct MetricsGet {
    version: c_uint,
    count: c_uint,
    older: *mut Sample,
    newer: *mut Sample,
    metrics: [Metric; 0],
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(handle: Handle, out: *mut [c_uint; 2]) -> c_int {
    // SAFETY: the caller passes a pointer to its structure with the version filled in, or null.
    if out.is_null() || unsafe { (*out)[0] } != 1 {
        return code("argument_version_mismatch");
    }
    let support = ask("nvmlGpmQueryDeviceSupport", handle)
        .map(|asked| [1, c_uint::from(asked.gpu().values.keys().any(|key| key.starts_with("gpm_")))]);
    put(out, support)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(out: *mut *mut Sample) -> c_int {
    let sample = system("nvmlGpmSampleAlloc").map(|_| {
        let empty = Sample { index: 0, at: 0.0, numbers: Vec::new() };
        Box::into_raw(Box::new(empty))
    });
    put(out, sample)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: *mut Sample) -> c_int {
    // It is freed whatever the driver is in: only its line in the log is wanted.
    let _ = system("nvmlGpmSampleFree");
    if !sample.is_null() {
        // SAFETY: it came out of `nvmlGpmSampleAlloc` and is freed once.
        drop(unsafe { Box::from_raw(sample) });
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(handle: Handle, sample: *mut Sample) -> c_int {
    let asked = match ask_part("nvmlGpmSampleGet", handle) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    if sample.is_null() {
        return code("invalid_argument");
    }
    let at = seconds();
    let values = asked.values().range("gpm_".to_owned().."gpm`".to_owned());
    let numbers = values.filter_map(|(key, answer)| {
        let id = key.strip_prefix("gpm_")?.parse().ok()?;
        let runs = matches!(answer, Answer::Running { .. });
        Some((id, runs, if runs { answer.at(0, at) } else { asked.value_of(key, answer) }))
    });
    let numbers = numbers.collect();
    // SAFETY: the caller passes a sample that this library allocated.
    unsafe { *sample = Sample { index: asked.index, at, numbers } };
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(question: *mut MetricsGet) -> c_int {
    if question.is_null() {
        return code("invalid_argument");
    }
    // SAFETY: the caller passes its structure with two samples of ours and as many metrics as it says.
    unsafe {
        let (older, newer) = ((*question).older, (*question).newer);
        if older.is_null() || newer.is_null() || (*question).version != 1 {
            return code("invalid_argument");
        }
        if let Err(code) = device("nvmlGpmMetricsGet", (*newer).index) {
            return code;
        }
        let metrics = ptr::addr_of_mut!((*question).metrics).cast::<Metric>();
        for at in 0..(*question).count as usize {
            let metric = &mut *metrics.add(at);
            let value = between(&*older, &*newer, metric.id);
            metric.outcome = value.err().unwrap_or_default();
            metric.value = value.unwrap_or_default();
        }
    }
    0
}

fn between(older: &Sample, newer: &Sample, id: c_uint) -> Result<f64, i32> {
    let of = |sample: &Sample| sample.numbers.iter().find(|number| number.0 == id).copied();
    let (Some((_, runs, new)), Some((.., old))) = (of(newer), of(older)) else {
        return Err(code("not_supported"));
    };
    let (new, old) = (new?, old?);
    if runs {
        Ok((new - old) as f64 / 1000.0 / (newer.at - older.at))
    } else if new == -1 {
        Ok(f64::NAN)
    } else {
        Ok(new as f64 / 1000.0)
    }
}
