//! Which GPUs this process can see, and which of them are its own.
//!
//! Pure: what the driver lists, what the environment says and what a framework answered come in, and
//! the same three always give the same answer. Nothing is imported, initialised or opened here.
//!
//! The order of belief is decided in `docs/decisions/0007-jax-before-ranks.md`.

mod cuda;
mod given;

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
    /// The devices of an initialised JAX; empty when they are no GPUs, which is no answer.
    pub jax: Option<Vec<u32>>,
    /// The current device of an initialised Torch.
    pub torch: Option<u32>,
}

/// What [`resolve`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The driver's indices of the visible devices by CUDA's ordinal, partitioned and unreadable ones
    /// included.
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

/// A place in CUDA's numbering. A device that the driver counts and cannot name keeps its place.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    index: u32,
    card: Option<&'a Card>,
}

impl Place<'_> {
    /// Whether a process can report it.
    fn is_whole(&self) -> bool {
        self.card.is_some_and(|card| !card.mig)
    }

    /// Why nobody reports it.
    fn flaw(&self) -> &'static str {
        if self.card.is_some() { "is partitioned with MIG" } else { "cannot be read" }
    }
}

/// Settles what is visible and what is owned. `cards` are those that the driver could name.
pub fn resolve(cards: &[Card], env: &GpuEnvironment, frameworks: &Frameworks) -> Resolved {
    let (numbered, order) = cuda::numbered(cards, env.cuda_device_order.as_deref());
    let (ordinals, visible, limit) = if let Some(value) = env.cuda_visible_devices.as_deref() {
        let listed = cuda::listed(value, &numbered);
        (listed.clone(), listed, Some(("CUDA_VISIBLE_DEVICES", value)))
    } else {
        let value = env.nvidia_visible_devices.as_deref().unwrap_or_default();
        match given::given(value, &numbered) {
            Some(given) => (numbered, given, Some(("NVIDIA_VISIBLE_DEVICES", value))),
            None => (numbered.clone(), numbered, None),
        }
    };
    let (owned, how) = settle(&ordinals, &visible, env.local_rank, frameworks);
    let source = match limit {
        Some((name, value)) => format!("{name}={:?} shows {}; {how}", short(value), count(visible.len())),
        None => how,
    };
    Resolved { visible: visible.iter().map(|place| place.index).collect(), owned, order, source }
}

/// Who owns what, and how that was found. A framework's ordinals are CUDA's, whatever was given.
fn settle(
    ordinals: &[Place<'_>],
    visible: &[Place<'_>],
    local_rank: Option<(u32, &'static str)>,
    frameworks: &Frameworks,
) -> (Vec<u32>, String) {
    match visible {
        [] if ordinals.is_empty() => return (Vec::new(), "no GPU is visible".to_owned()),
        [only] if ordinals.len() == 1 && only.is_whole() => {
            return (vec![only.index], format!("GPU {} is the only one that is visible", only.index));
        }
        _ => {}
    }
    if let Some(named) = frameworks.jax.as_deref().filter(|named| !named.is_empty()) {
        let mut owned: Vec<u32> = named.iter().filter_map(|ordinal| at(ordinals, *ordinal)).collect();
        owned.sort_unstable();
        owned.dedup();
        let said =
            if owned.is_empty() { "JAX runs on devices that nobody reports" } else { "JAX runs on it" };
        return (owned, said.to_owned());
    }
    if let [only] = visible {
        return if only.is_whole() {
            (vec![only.index], format!("GPU {} is the only one that was given", only.index))
        } else {
            (Vec::new(), format!("GPU {}, the only visible one, {}", only.index, only.flaw()))
        };
    }
    if let Some((rank, variable)) = local_rank {
        let said = format!("{variable}={rank}");
        return match visible.get(rank as usize) {
            Some(place) if place.is_whole() => (vec![place.index], said),
            Some(place) => (Vec::new(), format!("{said}: GPU {} {}", place.index, place.flaw())),
            None => (Vec::new(), format!("{said}, and {} visible", are(visible.len()))),
        };
    }
    if let Some(owned) = frameworks.torch.and_then(|ordinal| at(ordinals, ordinal)) {
        return (vec![owned], "it is Torch's current device".to_owned());
    }
    let every = visible.iter().filter(|place| place.is_whole()).map(|place| place.index);
    (every.collect(), "no local rank is known, so every visible GPU".to_owned())
}

fn at(ordinals: &[Place<'_>], ordinal: u32) -> Option<u32> {
    ordinals.get(ordinal as usize).filter(|place| place.is_whole()).map(|place| place.index)
}

fn count(gpus: usize) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

fn are(gpus: usize) -> String {
    format!("{} {}", count(gpus), if gpus == 1 { "is" } else { "are" })
}

/// A variable's text, for a sentence.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
