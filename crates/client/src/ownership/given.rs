//! What a container was given, where its driver shows more: a privileged one sees the whole node.

use super::{Place, cuda::by_prefix};

/// The devices that `NVIDIA_VISIBLE_DEVICES` names, in CUDA's order; `None` where it leaves the driver's
/// list as it is.
///
/// `void` does, since that is what a container reads that got its devices by CDI; so do an empty value
/// and `all`. A list does unless it names some of the driver's devices and not all: numbers are the
/// node's, and a container that shows no more devices than were listed has numbered them anew.
pub(super) fn given<'a>(value: &str, numbered: &[Place<'a>]) -> Option<Vec<Place<'a>>> {
    let value = value.trim();
    if matches!(value, "" | "all" | "void") {
        return None;
    }
    if value == "none" {
        return Some(Vec::new());
    }
    let entries: Vec<&str> = value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    let named: Vec<u32> = entries.iter().filter_map(|entry| named(entry, numbered)).collect();
    if named.is_empty() || named.len() < entries.len() || entries.len() >= numbered.len() {
        return None;
    }
    Some(numbered.iter().filter(|place| named.contains(&place.index)).copied().collect())
}

/// The driver's index of what an entry names. Numbers are the driver's, whatever CUDA's order.
fn named(entry: &str, numbered: &[Place<'_>]) -> Option<u32> {
    match entry.parse::<u32>() {
        Ok(index) => numbered.iter().find(|place| place.index == index).map(|place| place.index),
        Err(_) => by_prefix(entry, numbered).map(|place| place.index),
    }
}
