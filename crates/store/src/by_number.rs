//! Maps by a series' number. Numbers are ours and rise, so series that came together lie together, and
//! going through them in order costs no jump in memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::SeriesId;

/// A map by a series' number.
pub(crate) type ByNumber<V> = HashMap<SeriesId, V, BuildHasherDefault<NumberHasher>>;

/// Leaves a number in place; its low bits are also the top ones, by which a table tells neighbours apart.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number ^ number << 57;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }
}
