//! Which processes use a device.

use super::{
    code::Code,
    ffi::{Handle, Library, ProcessInfo},
};

/// A process that has memory of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its id as the driver knows it: in the process namespace of the machine, not of a container.
    pub pid: u32,
    /// Bytes of the device's memory that it has; `None` when the driver does not tell.
    pub memory_bytes: Option<u64>,
    /// Whether it computes (CUDA); else it draws.
    pub computes: bool,
    /// The GPU instance of a partitioned device that it runs in; `None` on a whole device, or when the driver
    /// does not tell.
    pub gpu_instance: Option<u32>,
}

/// Room for the first try.
const ROOM: usize = 64;
/// Room at most: a driver that wants more is not to be believed.
const ROOM_MAX: usize = 4096;

/// The processes of a device, those that compute first; one that does both is among the first.
pub(super) fn of(library: &Library, handle: Handle, index: u32) -> Result<Vec<GpuProcess>, String> {
    let mut found = Vec::new();
    list(|room| library.compute_processes(handle, room), true, &mut found).map_err(|code| {
        format!(
            "cannot list the processes of GPU {index}: `nvmlDeviceGetComputeRunningProcesses_v3` answered {code}"
        )
    })?;
    // Those that draw are of no interest where the driver does not tell them.
    let _ = list(|room| library.graphics_processes(handle, room), false, &mut found);
    Ok(found)
}

fn list(
    ask: impl Fn(&mut [ProcessInfo]) -> Result<usize, Code>,
    computes: bool,
    found: &mut Vec<GpuProcess>,
) -> Result<(), Code> {
    let mut room = vec![ProcessInfo::default(); ROOM];
    let mut count = ask(&mut room)?;
    if count > room.len() {
        room.resize(count.saturating_mul(2).min(ROOM_MAX), ProcessInfo::default());
        count = ask(&mut room)?.min(room.len());
    }
    for process in &room[..count] {
        let is_new = |known: &GpuProcess| {
            known.pid != process.pid || known.gpu_instance.is_some_and(|gi| gi != process.gpu_instance)
        };
        if found.iter().all(is_new) {
            let memory_bytes = (process.memory != u64::MAX).then_some(process.memory);
            let gpu_instance = (process.gpu_instance != u32::MAX).then_some(process.gpu_instance);
            found.push(GpuProcess { pid: process.pid, memory_bytes, computes, gpu_instance });
        }
    }
    Ok(())
}
