//! Which cards the driver has, for the parts that ask it nothing themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use collect::gpu::{GpuDevice, GpuProcess};

/// A card as the driver told it at the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// What it is: index, UUID, place on the bus, MIG instances.
    pub device: GpuDevice,
    /// The processes that use it; why they are not known.
    pub processes: Result<Vec<GpuProcess>, String>,
    /// Whether it answered at the last look.
    pub answers: bool,
}

/// The cards of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cards {
    /// Version of the driver, where it is known.
    pub driver: Option<String>,
    /// There is no driver, or it does not start.
    pub is_absent: bool,
    /// By driver index.
    pub all: Vec<Card>,
}

impl Cards {
    /// The card at a place on the bus. The function may be left out, as kernels do: `0000:1b:00`.
    pub fn at(&self, pci_bus_id: &str) -> Option<&Card> {
        let place = |id: &str| id.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let wanted = place(pci_bus_id);
        self.all.iter().find(|card| !wanted.is_empty() && place(&card.device.pci_bus_id) == wanted)
    }
}

/// The cards, shared by the parts of an agent: the GPU part writes them first in every look.
#[derive(Debug, Clone, Default)]
pub struct SharedCards(Arc<Mutex<Cards>>);

impl SharedCards {
    /// The cards as they are now. Not to be held while something is waited for.
    pub fn lock(&self) -> MutexGuard<'_, Cards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
