//! The slices of a partitioned device: memory and profiling are each slice's own, the rest is the board's.

use std::time::Instant;

use super::{
    code::Code,
    descs::{GPU_MEMORY_FREE, GPU_MEMORY_RESERVED, GPU_MEMORY_TOTAL, GPU_MEMORY_USED},
    ffi::{Handle, Library, Profile},
    profile::{APART_MIN, IDS, METRICS, PERCENT_MAX, is_pcie},
    reading::{Device, Trouble, Values},
};

/// Ticks between two looks at which slices there are: they change only while nothing runs on the board.
const FIND_EVERY: u32 = 30;

/// What is known of the slices of one device.
#[derive(Default)]
pub(super) struct Slices<'a> {
    all: Vec<Slice<'a>>,
    /// Ticks until they are looked for again.
    left: u32,
}

struct Slice<'a> {
    instance: u32,
    handle: Handle,
    /// Profiling; `None` where there is none.
    profile: Option<(Profile<'a>, Option<Instant>)>,
}

/// Reads every slice; a device that has none, and one that is not partitioned, never has any.
pub(super) fn slices(device: &mut Device<'_>) -> Result<(), Trouble> {
    if !device.is_partitioned {
        return Err(Trouble::Refused(Code::NOT_SUPPORTED));
    }
    let (library, handle) = (device.library, device.handle);
    if device.slices.left == 0 {
        device.slices.left = FIND_EVERY;
        find(library, handle, &mut device.slices.all);
    }
    device.slices.left -= 1;
    let mut trouble = None;
    for slice in &mut device.slices.all {
        let memory = memory(library, slice, &mut device.values);
        let profile = profile(slice, &mut device.values);
        trouble = trouble.or(memory.err()).or(profile.err());
    }
    trouble.map_or(Ok(()), |code| {
        // It may be another slice by now.
        device.slices.left = 0;
        Err(Trouble::from(code).beside_values())
    })
}

/// Finds the slices; the numbers of one that stays go on.
fn find<'a>(library: &'a Library, board: Handle, known: &mut Vec<Slice<'a>>) {
    let slots = library.mig_slots(board).unwrap_or_default();
    let mut old = std::mem::take(known);
    for slot in 0..slots {
        // Slots may be empty in between.
        let Ok(handle) = library.mig_handle(board, slot) else { continue };
        let Ok(instance) = library.gpu_instance(handle) else { continue };
        if known.iter().any(|slice| slice.instance == instance) {
            // Compute instances of one GPU instance share its memory and its counters.
            continue;
        }
        let profile = match old.iter().position(|slice| slice.instance == instance) {
            Some(at) => old.swap_remove(at).profile,
            None => Profile::new(library, board, &IDS).ok().map(|profile| (profile, None)),
        };
        known.push(Slice { instance, handle, profile });
    }
}

fn memory(library: &Library, slice: &Slice<'_>, values: &mut Values) -> Result<(), Code> {
    let memory = match library.memory_v2(slice.handle) {
        Err(code) if code.is_unsupported() => return Ok(()),
        answer => answer?,
    };
    if memory.used > memory.total || memory.free > memory.total {
        return Ok(());
    }
    for (metric, bytes) in [
        (&GPU_MEMORY_USED, memory.used),
        (&GPU_MEMORY_FREE, memory.free),
        (&GPU_MEMORY_RESERVED, memory.reserved),
        (&GPU_MEMORY_TOTAL, memory.total),
    ] {
        values.put_of(slice.instance, metric, bytes as f64);
    }
    Ok(())
}

fn profile(slice: &mut Slice<'_>, values: &mut Values) -> Result<(), Code> {
    let Some((profile, sampled)) = &mut slice.profile else { return Ok(()) };
    let now = Instant::now();
    let before = *sampled;
    if before.is_some_and(|before| now - before < APART_MIN) {
        return Ok(());
    }
    *sampled = None;
    match profile.sample(slice.handle) {
        Err(code) if code.is_unsupported() => {
            slice.profile = None;
            return Ok(());
        }
        answer => answer?,
    }
    *sampled = Some(now);
    if before.is_none() {
        return Ok(());
    }
    for (number, metric) in profile.between()?.zip(METRICS) {
        // The link to the machine is the board's.
        if let Ok(percent) = number
            && !is_pcie(metric)
            && (0.0..=PERCENT_MAX).contains(&percent)
        {
            values.put_of(slice.instance, metric, (percent / 100.0).min(1.0));
        }
    }
    Ok(())
}
