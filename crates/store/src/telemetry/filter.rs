//! Which keys a file may hold, in a byte and a half each: asked when later files are written, so that
//! they can list what they replace.

/// Bits of a key's part of the filter.
const LINE_BITS: usize = 512;
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 6;

/// A filter of lines of 64 bytes: a key sets six bits of one of them.
#[derive(Debug)]
pub(super) struct Filter(Vec<u8>);

impl Filter {
    pub(super) fn of(keys: &[u64]) -> Self {
        let lines = (keys.len() * BITS_PER_KEY).div_ceil(LINE_BITS);
        let mut filter = Self(vec![0; lines * (LINE_BITS / 8)]);
        for key in keys {
            for bit in filter.bits(*key) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Of the bytes of a file.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// `false` only for keys that were not put in; of those one in two hundred is `true` all the same.
    pub(super) fn may_have(&self, key: u64) -> bool {
        !self.0.is_empty() && self.bits(key).all(|bit| self.0[bit / 8] >> (bit % 8) & 1 == 1)
    }

    fn bits(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let lines = (self.0.len() / (LINE_BITS / 8)) as u64;
        let line = (((key >> 32) * lines) >> 32) as usize;
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..BITS_SET).map(move |n| line * LINE_BITS + (spread >> (10 + n * 9)) as usize % LINE_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let keys = |from: u64| (from..from + 20_000).map(|n| super::super::block::mixed(n, 7));
        let filter = Filter::of(&keys(0).collect::<Vec<_>>());
        assert_eq!(filter.bytes().len(), 30_016);
        let filter = Filter::from_bytes(filter.bytes().to_vec());
        assert!(keys(0).all(|key| filter.may_have(key)));
        let wrong = keys(20_000).filter(|key| filter.may_have(*key)).count();
        assert!(wrong < 200, "{wrong} of 20,000");
        assert!(!Filter::of(&[]).may_have(1));
    }
}
