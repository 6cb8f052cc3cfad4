//! A column of numbers as bytes: packed by `pco`, or plain where that does not help.
//!
//! The bytes are described in `docs/format/segment.md` ("Column"). Most values of the world are whole
//! numbers, decimals or 32-bit floats in the clothes of a double; as what they are they pack better and
//! several times faster. What is not exactly that, NaN's payload and the sign of zero included, stays a
//! double.

use pco::data_types::Number;
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use crate::codec::{Reader, put_bytes, put_u64};

const CODEC_PLAIN: u8 = 0;
const CODEC_PCO: u8 = 1;
/// Whole numbers that were divided by a power of ten.
const CODEC_DECIMAL: u8 = 2;
/// 32-bit floats.
const CODEC_SINGLE: u8 = 3;
/// Most decimals that are looked for.
const DECIMALS_MAX: usize = 6;
const POWERS: [f64; DECIMALS_MAX + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Shorter columns stay plain.
const PACKED_MIN: usize = 4;

/// How long packing may take for how little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For what rests in memory for a while.
    Quick,
    /// For what is merged soon.
    Usual,
    /// For what stays: a few percent less for up to twice the time.
    Thorough,
}

impl Effort {
    fn config(self) -> ChunkConfig {
        let level = if self == Self::Thorough { 6 } else { 4 };
        let config = ChunkConfig::default().with_compression_level(level);
        match self {
            Self::Quick => {
                config.with_mode_spec(ModeSpec::Classic).with_delta_spec(DeltaSpec::TryConsecutive(1))
            }
            Self::Usual | Self::Thorough => config,
        }
    }
}

/// A number of a column: what `pco` takes, with the plain eight bytes to fall back to.
pub(crate) trait Word: Number {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
    /// Appends numbers in a narrower shape, if they have one.
    fn put_narrow(out: &mut Vec<u8>, numbers: &[Self], effort: Effort) -> Option<()>;
    /// Appends `count` numbers that [`Word::put_narrow`] wrote with `codec`.
    fn take_narrow(codec: u8, reader: &mut Reader<'_>, count: usize, into: &mut Vec<Self>) -> Option<()>;
}

impl Word for i64 {
    fn to_word(self) -> u64 {
        self as u64
    }
    fn from_word(word: u64) -> Self {
        word as Self
    }
    fn put_narrow(_: &mut Vec<u8>, _: &[Self], _: Effort) -> Option<()> {
        None
    }
    fn take_narrow(_: u8, _: &mut Reader<'_>, _: usize, _: &mut Vec<Self>) -> Option<()> {
        None
    }
}

impl Word for f64 {
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }

    fn put_narrow(out: &mut Vec<u8>, numbers: &[Self], effort: Effort) -> Option<()> {
        if let Some(whole) = scaled(numbers, 0) {
            return put_decimal(out, &whole, 0, effort);
        }
        // Nobody promises what becomes of a NaN's payload on the way.
        if numbers.iter().all(|n| !n.is_nan() && Self::from(*n as f32).to_bits() == n.to_bits()) {
            let singles: Vec<f32> = numbers.iter().map(|n| *n as f32).collect();
            let packed = pco::standalone::simple_compress(&singles, &effort.config()).ok()?;
            out.push(CODEC_SINGLE);
            put_bytes(out, &packed);
            return Some(());
        }
        let (whole, decimals) = (1..=DECIMALS_MAX).find_map(|d| Some((scaled(numbers, d)?, d)))?;
        put_decimal(out, &whole, decimals, effort)
    }

    fn take_narrow(codec: u8, reader: &mut Reader<'_>, count: usize, into: &mut Vec<Self>) -> Option<()> {
        match codec {
            CODEC_DECIMAL => {
                let power = *POWERS.get(usize::from(reader.byte()?))?;
                let whole: Vec<i64> = unpack(reader.bytes()?, count)?;
                if power == 1.0 {
                    into.extend(whole.iter().map(|n| *n as Self));
                } else {
                    into.extend(whole.iter().map(|n| *n as Self / power));
                }
                Some(())
            }
            CODEC_SINGLE => {
                let singles: Vec<f32> = unpack(reader.bytes()?, count)?;
                into.extend(singles.iter().map(|n| Self::from(*n)));
                Some(())
            }
            _ => None,
        }
    }
}

/// The numbers times ten to the power of `decimals`, when they are whole then and come back exactly.
fn scaled(numbers: &[f64], decimals: usize) -> Option<Vec<i64>> {
    let power = *POWERS.get(decimals)?;
    let mut whole = Vec::with_capacity(numbers.len());
    for number in numbers {
        let half = if decimals == 0 { 0.0 } else { 0.5_f64.copysign(*number) };
        let nearest = (number * power + half) as i64;
        if (nearest as f64 / power).to_bits() != number.to_bits() {
            return None;
        }
        whole.push(nearest);
    }
    Some(whole)
}

fn put_decimal(out: &mut Vec<u8>, whole: &[i64], decimals: usize, effort: Effort) -> Option<()> {
    let packed = pco::standalone::simple_compress(whole, &effort.config()).ok()?;
    out.extend([CODEC_DECIMAL, decimals as u8]);
    put_bytes(out, &packed);
    Some(())
}

/// Appends a column.
pub(crate) fn put_column<T: Word + Default>(out: &mut Vec<u8>, numbers: &[T], effort: Effort) {
    let start = out.len();
    if numbers.len() >= PACKED_MIN {
        if T::put_narrow(out, numbers, effort).is_some() {
            return;
        }
        let packed = pco::standalone::simple_compress(numbers, &effort.config()).ok();
        if let Some(packed) = packed.filter(|packed| packed.len() < numbers.len() * 8) {
            out.push(CODEC_PCO);
            put_bytes(out, &packed);
            return;
        }
    }
    out.truncate(start);
    out.push(CODEC_PLAIN);
    put_u64(out, numbers.len() as u64 * 8);
    out.extend(numbers.iter().flat_map(|n| n.to_word().to_le_bytes()));
}

/// Appends a column of `count` numbers to `into`; what is there after `None` is of no use.
pub(crate) fn append_column<T: Word + Default>(
    reader: &mut Reader<'_>,
    count: usize,
    into: &mut Vec<T>,
) -> Option<()> {
    match reader.byte()? {
        CODEC_PLAIN => {
            let (words, rest) = reader.bytes()?.as_chunks::<8>();
            into.extend(words.iter().map(|w| T::from_word(u64::from_le_bytes(*w))));
            (rest.is_empty() && words.len() == count).then_some(())
        }
        CODEC_PCO => {
            let start = into.len();
            into.resize(start + count, T::default());
            unpack_into(reader.bytes()?, &mut into[start..])
        }
        codec => T::take_narrow(codec, reader, count, into),
    }
}

fn unpack<T: Number + Default>(bytes: &[u8], count: usize) -> Option<Vec<T>> {
    let mut numbers = vec![T::default(); count];
    unpack_into(bytes, &mut numbers)?;
    Some(numbers)
}

fn unpack_into<T: Number>(bytes: &[u8], into: &mut [T]) -> Option<()> {
    let count = into.len();
    let progress = pco::standalone::simple_decompress_into(bytes, into).ok()?;
    (progress.finished && progress.n_processed == count).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn codec(numbers: &[f64]) -> u8 {
        let mut out = Vec::new();
        put_column(&mut out, numbers, Effort::Quick);
        out[0]
    }

    #[test]
    fn numbers_are_kept_as_what_they_are() {
        let line = |f: fn(f64) -> f64| (0..100).map(|n| f(f64::from(n))).collect::<Vec<_>>();
        assert_eq!(codec(&line(|n| n * 1e13 - 7.0)), CODEC_DECIMAL);
        assert_eq!(codec(&line(|n| f64::from(n as f32 / 7.0))), CODEC_SINGLE);
        assert_eq!(codec(&line(|n| (n * 1.23).round() / 1e3)), CODEC_DECIMAL);
        assert_eq!(codec(&line(|n| n / 7.0)), CODEC_PCO);
        assert_eq!(codec(&line(|n| if n == 50.0 { -0.0 } else { n })), CODEC_SINGLE);
        let marker = line(|n| if n == 50.0 { f64::from_bits(0x7ff0_0000_0000_0002) } else { n });
        assert_eq!(codec(&marker), CODEC_PCO);
        assert_eq!(codec(&[1.0, 2.0, 3.0]), CODEC_PLAIN);
    }

    proptest! {
        #[test]
        fn decimals_come_back_to_the_bit(
            whole in prop::collection::vec(prop_oneof![any::<i64>(), -2_000_000..2_000_000_i64], 1..60),
            decimals in 0..9_i32,
            effort in prop_oneof![Just(Effort::Quick), Just(Effort::Usual), Just(Effort::Thorough)],
        ) {
            let numbers: Vec<f64> = whole.iter().map(|n| *n as f64 / 10_f64.powi(decimals)).collect();
            let mut out = Vec::new();
            put_column(&mut out, &numbers, effort);
            let mut back: Vec<f64> = Vec::new();
            let mut reader = Reader::new(&out);
            append_column(&mut reader, numbers.len(), &mut back).unwrap();
            prop_assert!(reader.is_empty());
            let bits = |numbers: &[f64]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&back), bits(&numbers));
        }
    }
}
