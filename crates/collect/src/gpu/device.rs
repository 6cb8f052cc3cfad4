//! Which devices there are.

use super::{
    code::Code,
    ffi::{Handle, Library},
};

/// A device of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuDevice {
    /// The driver's index: the label `gpu`. It can change when a device drops out; the UUID does not.
    pub index: u32,
    /// Its UUID, such as `GPU-8f3c...`.
    pub uuid: String,
    /// Its model.
    pub name: String,
    /// Its place on the bus as `dddd:bb:dd.f`, as the kernel's log writes it; empty when unknown.
    pub pci_bus_id: String,
    /// Its memory account.
    pub memory: GpuMemoryAccount,
    /// Whether it is partitioned: then it is never sampled, since its numbers are not one tenant's.
    pub mig: bool,
    /// Its MIG instances; empty when it is not partitioned.
    pub instances: Vec<MigInstance>,
}

/// A part of a partitioned device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigInstance {
    /// Its UUID, such as `MIG-41b3...`.
    pub uuid: String,
    /// Its GPU instance id, as Xid lines name it; `None` when the driver does not tell.
    pub gpu_instance: Option<u32>,
}

/// What `system/gpu/memory_used_bytes` counts on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuMemoryAccount {
    /// Allocations only, as `nvidia-smi` shows.
    Allocated,
    /// The driver's own reserve too: this driver has the old structure only.
    AllocatedAndReserved,
}

impl GpuMemoryAccount {
    /// As an attribute of a run says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::AllocatedAndReserved => "allocated and reserved",
        }
    }
}

/// Asks for everything that names a device; the cause in words when it cannot be named.
pub(super) fn identify(library: &Library, index: u32) -> Result<(GpuDevice, Handle), String> {
    let failed = |call: &str, code: Code| format!("cannot identify GPU {index}: `{call}` answered {code}");
    let handle = library.handle(index).map_err(|code| failed("nvmlDeviceGetHandleByIndex_v2", code))?;
    let uuid = library.uuid(handle).map_err(|code| failed("nvmlDeviceGetUUID", code))?;
    let name = library.name(handle).map_err(|code| failed("nvmlDeviceGetName", code))?;
    // Whatever keeps a device from telling its mode, only a clear yes makes it a partitioned one.
    let mig = library.is_mig(handle).unwrap_or(false);
    let memory = match library.memory_v2(handle) {
        Err(code) if code.is_unsupported() => GpuMemoryAccount::AllocatedAndReserved,
        _ => GpuMemoryAccount::Allocated,
    };
    let device = GpuDevice {
        index,
        uuid,
        name,
        pci_bus_id: library.pci_bus_id(handle).map(|id| canonical_bus_id(&id)).unwrap_or_default(),
        memory,
        mig,
        instances: if mig { instances(library, handle) } else { Vec::new() },
    };
    Ok((device, handle))
}

fn instances(library: &Library, device: Handle) -> Vec<MigInstance> {
    let slots = library.mig_slots(device).unwrap_or_default();
    // Slots may be empty in between.
    (0..slots)
        .filter_map(|slot| {
            let instance = library.mig_handle(device, slot).ok()?;
            let uuid = library.uuid(instance).ok()?;
            Some(MigInstance { uuid, gpu_instance: library.gpu_instance(instance).ok() })
        })
        .collect()
}

/// `00000000:1B:00.0` as `0000:1b:00.0`; a domain that needs more digits keeps them.
fn canonical_bus_id(driver: &str) -> String {
    let lower = driver.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) => format!("{:0>4}:{rest}", domain.trim_start_matches('0')),
        None => lower,
    }
}
