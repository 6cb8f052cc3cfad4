//! Three windows of four to say something, six clean ones to take it back.

use super::Level;

/// Windows that are looked back at.
pub(super) const WINDOWS: u32 = 4;
const HELD_MIN: u32 = 3;
const CLEAN: u8 = 0b11_1111;

/// What the latest windows found, and what is said.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Hold {
    found: [Bits; 3],
    /// Step and time at which it began, and whether that was seen.
    pub(super) onset: Option<(i64, i64)>,
}

/// One bit a window, the latest lowest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bits {
    bits: u8,
    is_on: bool,
}

impl Bits {
    fn push(&mut self, found: bool) {
        self.bits = self.bits << 1 | u8::from(found);
        if self.held() >= HELD_MIN {
            self.is_on = true;
        } else if self.bits & CLEAN == 0 {
            self.is_on = false;
        }
    }

    fn held(self) -> u32 {
        (self.bits & 0b1111).count_ones()
    }
}

const LEVELS: [Level; 3] = [Level::Info, Level::Warn, Level::Page];

impl Hold {
    /// Adds a window.
    pub(super) fn push(&mut self, found: Option<Level>) {
        for (bits, level) in self.found.iter_mut().zip(LEVELS) {
            bits.push(found >= Some(level));
        }
    }

    /// What is said.
    pub(super) fn level(&self) -> Option<Level> {
        self.found.iter().zip(LEVELS).rev().find(|(bits, _)| bits.is_on).map(|(_, level)| level)
    }

    /// Whether the latest window found something.
    pub(super) fn is_found(&self) -> bool {
        self.found[0].bits & 1 == 1
    }

    /// In how many of the latest windows.
    pub(super) fn held(&self) -> u32 {
        self.found[0].held()
    }

    /// Whether it can be forgotten.
    pub(super) fn is_over(&self) -> bool {
        self.found.iter().all(|bits| !bits.is_on) && self.found[0].bits & CLEAN == 0
    }
}
