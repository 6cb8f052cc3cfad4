//! Sets of events, and waiting for them.
#![expect(unsafe_code, reason = "a C library: it writes through the pointers of its caller")]

use std::{
    ffi::{c_int, c_uint},
    ptr,
    time::Duration,
};

use super::{Handle, ask, put, status};
use crate::{
    scenario::code,
    stage::{add_to_set, free_set, make_set, next_of_set, system},
};

/// Every kind of event that a device can tell.
const KINDS: u64 = 0xff9f;
/// What stands for no instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

#[repr(C)]
struct EventData {
    device: Handle,
    kind: u64,
    data: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(out: *mut Handle) -> c_int {
    put(out, system("nvmlEventSetCreate").map(|_| ptr::without_provenance_mut(make_set())))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: Handle) -> c_int {
    status(system("nvmlEventSetFree").and_then(|_| free_set(set.addr())))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSupportedEventTypes(handle: Handle, out: *mut u64) -> c_int {
    let kinds = ask("nvmlDeviceGetSupportedEventTypes", handle).map(|asked| {
        // A device that says nothing of it can tell all of them.
        asked
            .gpu()
            .values
            .get("event_kinds")
            .map_or(Ok(KINDS as i64), |answer| asked.value_of("event_kinds", answer))
    });
    put(out, kinds.and_then(|kinds| kinds).map(|kinds| kinds as u64))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(handle: Handle, kinds: u64, set: Handle) -> c_int {
    let added = ask("nvmlDeviceRegisterEvents", handle)
        .and_then(|asked| if kinds & !KINDS == 0 { Ok(asked.index) } else { Err(code("not_supported")) })
        .and_then(|index| add_to_set(set.addr(), index, kinds));
    status(added)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: Handle, out: *mut EventData, milliseconds: c_uint) -> c_int {
    let wait = Duration::from_millis(u64::from(milliseconds));
    let event = system("nvmlEventSetWait_v2").and_then(|_| next_of_set(set.addr(), wait));
    put(
        out,
        event.map(|event| {
            let [gpu_instance, compute_instance] = event.instances.unwrap_or([NO_INSTANCE; 2]);
            let device = ptr::without_provenance_mut(event.gpu + 1);
            EventData { device, kind: event.kind, data: event.data, gpu_instance, compute_instance }
        }),
    )
}
