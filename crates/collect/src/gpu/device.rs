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
    /// CUDA compute capability, major and minor, such as `(9, 0)`; `None` when the driver does not tell.
    /// CUDA numbers the devices by it first, unless `CUDA_DEVICE_ORDER` says otherwise.
    pub compute_capability: Option<(u32, u32)>,
    /// Name of its generation, such as `Hopper`; empty when unknown.
    pub architecture: &'static str,
    /// The highest clock of its streaming multiprocessors; `None` when the driver does not tell.
    pub sm_clock_max_mhz: Option<u32>,
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
    if !is_uuid(&uuid) {
        let found: String = uuid.chars().take(40).collect();
        return Err(format!("cannot identify GPU {index}: found `{found}`, which is no UUID"));
    }
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
        compute_capability: compute_capability(library, handle),
        architecture: library.architecture(handle).map_or("", architecture),
        sm_clock_max_mhz: library.clock_max_mhz(handle, 1).ok().filter(|clock| *clock != u32::MAX),
        memory,
        mig,
        instances: if mig { instances(library, handle) } else { Vec::new() },
    };
    Ok((device, handle))
}

/// Whether a text can tell devices apart: locks and the server know a device by it.
fn is_uuid(text: &str) -> bool {
    (1..=96).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn compute_capability(library: &Library, device: Handle) -> Option<(u32, u32)> {
    let (major, minor) = library.compute_capability(device).ok()?;
    let (major, minor) = (u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    (1..1000).contains(&major).then_some((major, minor))
}

/// NVML's numbers for the generations.
fn architecture(number: u32) -> &'static str {
    match number {
        2 => "Kepler",
        3 => "Maxwell",
        4 => "Pascal",
        5 => "Volta",
        6 => "Turing",
        7 => "Ampere",
        8 => "Ada",
        9 => "Hopper",
        10 => "Blackwell",
        13 => "Rubin",
        _ => "",
    }
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
