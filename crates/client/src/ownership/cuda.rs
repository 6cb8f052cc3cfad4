//! CUDA's own rules: how it numbers devices, and what `CUDA_VISIBLE_DEVICES` leaves of them.

use std::collections::BTreeMap;

use super::{Card, Place};

/// More devices than any machine has: a driver that counts more tells nonsense.
const PLACES_MAX: u32 = 1024;

/// The devices as CUDA numbers them, and how that order was found. A device that is missing between
/// two others keeps its number.
pub(super) fn numbered<'a>(cards: &'a [Card], order: Option<&str>) -> (Vec<Place<'a>>, String) {
    let by_index: BTreeMap<u32, &Card> = cards.iter().map(|card| (card.index, card)).collect();
    let mut sorted: Vec<&Card> = by_index.values().copied().collect();
    let by_bus = sorted.iter().all(|card| !card.pci_bus_id.is_empty());
    let then = if by_bus { "by PCI bus id" } else { "by the driver's index, since bus ids are unknown" };
    if by_bus {
        sorted.sort_by_key(|card| bus(&card.pci_bus_id));
    }
    let said = if order.is_some_and(|order| order.trim() == "PCI_BUS_ID") {
        if by_bus { "PCI_BUS_ID".to_owned() } else { format!("PCI_BUS_ID ({then})") }
    } else if are_equal(&sorted) {
        format!("FASTEST_FIRST (the cards are equal: {then})")
    } else if sorted.iter().all(|card| card.compute_capability.is_some()) {
        sorted.sort_by_key(|card| std::cmp::Reverse(card.compute_capability));
        format!("FASTEST_FIRST (the cards differ: a guess, by compute capability, then {then})")
    } else {
        format!("FASTEST_FIRST (the cards differ and don't say how: a guess, {then})")
    };
    let mut next = sorted.into_iter();
    let count = by_index.last_key_value().map_or(0, |(last, _)| last.saturating_add(1)).min(PLACES_MAX);
    let place = |index| {
        let card = if by_index.contains_key(&index) { next.next() } else { None };
        Place { index: card.map_or(index, |card| card.index), card }
    };
    ((0..count).map(place).collect(), said)
}

fn are_equal(cards: &[&Card]) -> bool {
    let kind = |card: &Card| (card.model.clone(), card.compute_capability);
    cards.windows(2).all(|pair| kind(pair[0]) == kind(pair[1]))
}

/// Numbers of a bus id, so that a domain of more digits sorts behind.
fn bus(id: &str) -> Vec<u64> {
    id.split([':', '.']).map(|part| u64::from_str_radix(part, 16).unwrap_or(u64::MAX)).collect()
}

/// What a value of `CUDA_VISIBLE_DEVICES` leaves: entry by entry up to the first that names no device.
/// The first entry settles whether they are numbers or UUIDs; a device named twice hides them all.
pub(super) fn listed<'a>(value: &str, numbered: &[Place<'a>]) -> Vec<Place<'a>> {
    let by_uuid = value.trim_start().starts_with("GPU-");
    let mut found: Vec<Place<'a>> = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let place = if by_uuid {
            by_prefix(entry, numbered)
        } else {
            leading_number(entry).and_then(|n| numbered.get(n).copied())
        };
        let Some(place) = place else { break };
        if found.iter().any(|earlier| earlier.index == place.index) {
            return Vec::new();
        }
        found.push(place);
    }
    found
}

/// The device whose UUID begins so; none where several do, unless one is exactly that.
pub(super) fn by_prefix<'a>(entry: &str, numbered: &[Place<'a>]) -> Option<Place<'a>> {
    if !entry.starts_with("GPU-") {
        return None;
    }
    let uuid = |place: &Place<'a>| place.card.map_or("", |card| &card.uuid);
    if let Some(exact) = numbered.iter().find(|place| uuid(place) == entry) {
        return Some(*exact);
    }
    let mut matching = numbered.iter().filter(|place| uuid(place).starts_with(entry));
    let first = matching.next()?;
    matching.next().is_none().then_some(*first)
}

/// The whole number that a text begins with, as C's `strtoul` reads it: `1gpu` and `+1` are 1, `1_0` is
/// 1. A negative number names nothing; one that is too large neither.
fn leading_number(entry: &str) -> Option<usize> {
    let (digits, is_negative) = match entry.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (entry.strip_prefix('+').unwrap_or(entry), false),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: usize = digits[..end].parse().ok()?;
    (!is_negative || number == 0).then_some(number)
}
