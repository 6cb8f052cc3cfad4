//! Which keys a file may hold, in a byte and a half each: asked when later files are written, so that
//! they can list what they replace. The same tells which traces a block may hold.

use model::TraceId;

use super::block::mixed;

/// Bits of a key's part of the filter.
const LINE_BITS: usize = 512;
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 6;

/// Most lines of a block's traces.
const TRACE_LINES_MAX: usize = 32;

/// A filter of lines of 64 bytes: a key sets six bits of one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<u8>);

impl Filter {
    pub(super) fn of(keys: &[u64]) -> Self {
        Self::of_lines(keys, usize::MAX)
    }

    /// Of traces; where many are in a block, those that are not seem to be more often.
    pub(super) fn of_traces<'t>(traces: impl IntoIterator<Item = &'t TraceId>) -> Self {
        let mut keys: Vec<u64> = traces.into_iter().map(trace_key).collect();
        keys.sort_unstable();
        keys.dedup();
        Self::of_lines(&keys, TRACE_LINES_MAX)
    }

    fn of_lines(keys: &[u64], lines_max: usize) -> Self {
        let lines = (keys.len() * BITS_PER_KEY).div_ceil(LINE_BITS).min(lines_max);
        let mut filter = Self(vec![0; lines * (LINE_BITS / 8)]);
        for key in keys {
            for bit in filter.bits(*key) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Of the bytes of a file; `None` unless they are whole lines.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        bytes.len().is_multiple_of(LINE_BITS / 8).then_some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// `false` only for keys that were not put in; of those one in two hundred is `true` all the same.
    pub(super) fn may_have(&self, key: u64) -> bool {
        !self.0.is_empty() && self.bits(key).all(|bit| self.0[bit / 8] >> (bit % 8) & 1 == 1)
    }

    /// The same for a trace.
    pub(super) fn may_have_trace(&self, trace: &TraceId) -> bool {
        self.may_have(trace_key(trace))
    }

    fn bits(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let lines = (self.0.len() / (LINE_BITS / 8)) as u64;
        let line = (((key >> 32) * lines) >> 32) as usize;
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..BITS_SET).map(move |n| line * LINE_BITS + (spread >> (10 + n * 9)) as usize % LINE_BITS)
    }
}

fn trace_key(trace: &TraceId) -> u64 {
    let (halves, _) = trace.as_chunks::<8>();
    halves.iter().fold(0, |key, half| mixed(key, u64::from_le_bytes(*half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let keys = |from: u64| (from..from + 20_000).map(|n| mixed(n, 7));
        let filter = Filter::of(&keys(0).collect::<Vec<_>>());
        assert_eq!(filter.bytes().len(), 30_016);
        let filter = Filter::from_bytes(filter.bytes().to_vec()).unwrap();
        assert!(keys(0).all(|key| filter.may_have(key)));
        let wrong = keys(20_000).filter(|key| filter.may_have(*key)).count();
        assert!(wrong < 200, "{wrong} of 20,000");
        assert!(!Filter::of(&[]).may_have(1));
    }
}
