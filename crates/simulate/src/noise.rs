//! Numbers that look random and are the same in every process.

/// A number in [-1, 1) for these words.
pub(crate) fn noise(seed: u64, words: &[u64]) -> f64 {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    for word in words {
        state = mix(state ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd));
    }
    (mix(state) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// The finalizer of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A text as a word.
pub(crate) fn word(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
