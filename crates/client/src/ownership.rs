//! Which GPUs this process can see, and which of them are its own.
//!
//! Pure: what the driver lists, what the environment says and what a framework answered come in, and
//! the same three always give the same answer. Nothing is imported, initialised or opened here.

use crate::launch::Lookup;

/// A device of the driver, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// The driver's index.
    pub index: u32,
    /// UUID, such as `GPU-8f3c...`.
    pub uuid: String,
    /// Model name.
    pub model: String,
    /// Place on the bus as `dddd:bb:dd.f`; empty when unknown.
    pub pci_bus_id: String,
    /// CUDA compute capability, major and minor; `None` when unknown.
    pub compute_capability: Option<(u32, u32)>,
    /// Whether it is partitioned with MIG: then it has its place in every list and is never owned.
    pub mig: bool,
}

/// What the environment says of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuEnvironment {
    /// `CUDA_VISIBLE_DEVICES`; `None` when it is unset.
    pub cuda_visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub cuda_device_order: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES`, what the container was given.
    pub nvidia_visible_devices: Option<String>,
    /// Rank on this node, and the variable that said so.
    pub local_rank: Option<(u32, &'static str)>,
}

/// What frameworks that were already running said when they were asked; ordinals are CUDA's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frameworks {
    /// The devices of an initialised JAX; empty when they are no GPUs.
    pub jax: Option<Vec<u32>>,
    /// The current device of an initialised Torch.
    pub torch: Option<u32>,
}

/// What [`resolve`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The driver's indices of the visible devices by CUDA's ordinal, partitioned ones included.
    pub visible: Vec<u32>,
    /// The driver's indices of those that are this process's own; never a partitioned one.
    pub owned: Vec<u32>,
    /// How CUDA numbers the devices.
    pub order: String,
    /// How it was found whose they are, in words.
    pub source: String,
}

impl GpuEnvironment {
    /// Reads this process's environment.
    pub fn detect() -> Self {
        Self::from_variables(&|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads the variables that `lookup` knows.
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        Self {
            cuda_visible_devices: lookup("CUDA_VISIBLE_DEVICES"),
            cuda_device_order: lookup("CUDA_DEVICE_ORDER"),
            nvidia_visible_devices: lookup("NVIDIA_VISIBLE_DEVICES"),
            local_rank: crate::launch::local_rank(lookup),
        }
    }
}

/// Settles what is visible and what is owned.
pub fn resolve(cards: &[Card], _env: &GpuEnvironment, _frameworks: &Frameworks) -> Resolved {
    let visible: Vec<u32> = cards.iter().map(|card| card.index).collect();
    Resolved { owned: visible.clone(), visible, order: String::new(), source: String::new() }
}
