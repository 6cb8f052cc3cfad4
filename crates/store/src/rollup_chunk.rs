//! Roll-ups of one series as compressed columns.
//!
//! The bytes are described in `docs/format/segment.md` ("Roll-up chunk").

use model::{RollupBucket, RollupParts};

use crate::chunk::{self, CHUNK_POINTS_MAX, Summary, TYPE_ROLLUP};
use crate::codec::{Reader, put_bytes, put_u64};
use crate::column::{Effort, append_column, put_column};

/// One number for the whole column.
const CODEC_CONSTANT: u8 = 16;
/// The numbers of an earlier column of values.
const CODEC_SAME: u8 = 17;

/// The columns of times and counts, in order; see [`encode`].
const INTEGERS: usize = 7;
/// The columns of values.
const VALUES: usize = 6;

/// The columns of `buckets`, which are in order of time and 1 to [`CHUNK_POINTS_MAX`].
pub(crate) fn encode(buckets: &[RollupBucket], width_ns: i64) -> Vec<u8> {
    debug_assert!(!buckets.is_empty() && buckets.len() <= CHUNK_POINTS_MAX, "{} buckets", buckets.len());
    let exponent = chunk::time_exponent(buckets.iter().flat_map(|b| {
        let (first_ns, last_ns) = b.time_ns();
        [first_ns, last_ns, b.last.0, width_ns]
    }));
    let unit = 10_i64.pow(u32::from(exponent));
    let mut out = vec![TYPE_ROLLUP, exponent];
    put_u64(&mut out, width_ns as u64);
    put_u64(&mut out, buckets.len() as u64);
    let start = |b: &RollupBucket| b.end_ns - width_ns;
    put_integers(&mut out, buckets, |b| b.end_ns / width_ns);
    put_integers(&mut out, buckets, |b| b.count as i64);
    put_integers(&mut out, buckets, |b| (b.first.0 - start(b)) / unit);
    put_integers(&mut out, buckets, |b| (b.last.0 - start(b)) / unit);
    put_integers(&mut out, buckets, |b| b.resets as i64);
    put_integers(&mut out, buckets, |b| b.changes as i64);
    put_integers(&mut out, buckets, |b| b.ended_ns.map_or(0, |ended_ns| (ended_ns - start(b)) / unit));
    let columns: [fn(&RollupBucket) -> f64; VALUES] =
        [|b| b.first.1, |b| b.last.1, |b| b.min, |b| b.max, |b| b.sum, |b| b.falls];
    let mut earlier: Vec<Vec<u64>> = Vec::with_capacity(VALUES);
    for of in columns {
        let values: Vec<f64> = buckets.iter().map(of).collect();
        let known: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        let mut column = Vec::new();
        if let [first, rest @ ..] = &known[..]
            && rest.iter().all(|value| value == first)
        {
            column.push(CODEC_CONSTANT);
            column.extend(first.to_le_bytes());
        } else if let Some(same) = earlier.iter().position(|values| *values == known) {
            column.extend([CODEC_SAME, same as u8]);
        } else {
            put_column(&mut column, &values, Effort::Thorough);
        }
        put_bytes(&mut out, &column);
        earlier.push(known);
    }
    out
}

fn put_integers(out: &mut Vec<u8>, buckets: &[RollupBucket], of: impl Fn(&RollupBucket) -> i64) {
    let numbers: Vec<i64> = buckets.iter().map(of).collect();
    let mut column = Vec::new();
    match &numbers[..] {
        [first, rest @ ..] if rest.iter().all(|n| n == first) => {
            column.push(CODEC_CONSTANT);
            column.extend(first.to_le_bytes());
        }
        _ => put_column(&mut column, &numbers, Effort::Thorough),
    }
    put_bytes(out, &column);
}

/// The columns of a chunk, decoded as they are asked for.
struct Stored<'a> {
    count: usize,
    integers: [&'a [u8]; INTEGERS],
    values: [&'a [u8]; VALUES],
}

impl<'a> Stored<'a> {
    fn take(reader: &mut Reader<'a>, count: usize) -> Option<Self> {
        let (mut integers, mut values) = ([&[][..]; INTEGERS], [&[][..]; VALUES]);
        for column in integers.iter_mut().chain(&mut values) {
            *column = reader.bytes()?;
        }
        reader.is_empty().then_some(Self { count, integers, values })
    }

    fn integers(&self, at: usize) -> Option<Vec<i64>> {
        let mut reader = Reader::new(self.integers[at]);
        if reader.rest().first() == Some(&CODEC_CONSTANT) {
            reader.byte()?;
            let number = i64::from_le_bytes(reader.array()?);
            return reader.is_empty().then(|| vec![number; self.count]);
        }
        let mut numbers = Vec::new();
        append_column(&mut reader, self.count, &mut numbers)?;
        reader.is_empty().then_some(numbers)
    }

    fn values(&self, at: usize) -> Option<Vec<f64>> {
        let mut reader = Reader::new(self.values[at]);
        match *reader.rest().first()? {
            CODEC_CONSTANT => {
                reader.byte()?;
                let value = f64::from_bits(u64::from_le_bytes(reader.array()?));
                reader.is_empty().then(|| vec![value; self.count])
            }
            CODEC_SAME => {
                let [_, same] = reader.array()?;
                let same = usize::from(same);
                if same < at && reader.is_empty() { self.values(same) } else { None }
            }
            _ => {
                let mut values = Vec::new();
                append_column(&mut reader, self.count, &mut values)?;
                reader.is_empty().then_some(values)
            }
        }
    }
}

/// The width and the buckets of [`encode`]d bytes, in order of time, with what of them is `wanted` and
/// 0 in place of the rest; `None` when they are not that.
pub(crate) fn decode(bytes: &[u8], wanted: RollupParts) -> Option<(i64, Vec<RollupBucket>)> {
    let mut reader = Reader::new(bytes);
    let [TYPE_ROLLUP, exponent @ 0..=9] = reader.array()? else { return None };
    let width_ns = i64::try_from(reader.u64()?).ok().filter(|width_ns| *width_ns > 0)?;
    let count: usize = reader.u64()?.try_into().ok()?;
    if count == 0 || count > CHUNK_POINTS_MAX {
        return None;
    }
    let unit = 10_i64.pow(u32::from(exponent));
    let stored = Stored::take(&mut reader, count)?;
    let (numbers, counts, lasts) = (stored.integers(0)?, stored.integers(1)?, stored.integers(3)?);
    let ends = stored.integers(6)?;
    let mut buckets = Vec::with_capacity(count);
    for at in 0..count {
        let end_ns = numbers[at].checked_mul(width_ns)?;
        let start_ns = end_ns.checked_sub(width_ns)?;
        let time = |offset: i64| start_ns.checked_add(offset.checked_mul(unit)?);
        let last_ns = time(lasts[at])?;
        let ended_ns = if ends[at] == 0 { None } else { Some(time(ends[at])?) };
        if last_ns <= start_ns || last_ns.max(ended_ns.unwrap_or(last_ns)) > end_ns {
            return None;
        }
        buckets.push(RollupBucket::bare(end_ns, counts[at].try_into().ok()?, last_ns, ended_ns));
    }
    let mut each = |parts: RollupParts, column: usize, set: fn(&mut RollupBucket, f64)| {
        if wanted.has(parts) {
            let values = stored.values(column)?;
            buckets.iter_mut().zip(values).for_each(|(bucket, value)| set(bucket, value));
        }
        Some(())
    };
    each(RollupParts::FIRST, 0, |bucket, value| bucket.first.1 = value)?;
    each(RollupParts::LAST, 1, |bucket, value| bucket.last.1 = value)?;
    each(RollupParts::EXTREMES, 2, |bucket, value| bucket.min = value)?;
    each(RollupParts::EXTREMES, 3, |bucket, value| bucket.max = value)?;
    each(RollupParts::SUM, 4, |bucket, value| bucket.sum = value)?;
    each(RollupParts::FALLS, 5, |bucket, value| bucket.falls = value)?;
    if wanted.has(RollupParts::FIRST) {
        for (bucket, offset) in buckets.iter_mut().zip(stored.integers(2)?) {
            let first_ns = (bucket.end_ns - width_ns).checked_add(offset.checked_mul(unit)?)?;
            if first_ns <= bucket.end_ns - width_ns || first_ns > bucket.last.0 {
                return None;
            }
            bucket.first.0 = first_ns;
        }
    }
    if wanted.has(RollupParts::STEPS) {
        let steps = stored.integers(4)?.into_iter().zip(stored.integers(5)?);
        for (bucket, (resets, changes)) in buckets.iter_mut().zip(steps) {
            (bucket.resets, bucket.changes) = (resets.try_into().ok()?, changes.try_into().ok()?);
        }
    }
    buckets.is_sorted_by(|a, b| a.end_ns < b.end_ns).then_some((width_ns, buckets))
}

/// What is known of `buckets`, which are at least one, without decoding them: their number instead of
/// that of the samples, and no non-finite values, since a bucket may hold some among others.
pub(crate) fn summary(buckets: &[RollupBucket]) -> Summary {
    let mut summary = Summary::of(&[]);
    summary.count = buckets.len() as u32;
    if let (Some(first), Some(last)) = (buckets.first(), buckets.last()) {
        summary.time_ns = (first.time_ns().0, last.time_ns().1);
        (summary.first, summary.last) = (first.first.1, last.last.1);
    }
    for bucket in buckets {
        summary.min = summary.min.min(bucket.min);
        summary.max = summary.max.max(bucket.max);
        summary.sum += bucket.sum;
    }
    summary
}

#[cfg(test)]
mod tests {
    use model::stale_marker;
    use proptest::prelude::*;

    use super::*;
    use crate::rollup::roll;

    const MINUTE: i64 = 60_000_000_000;

    fn any_buckets() -> impl Strategy<Value = Vec<RollupBucket>> {
        let value = prop_oneof![
            (0..9).prop_map(f64::from),
            any::<f64>(),
            any::<u64>().prop_map(f64::from_bits),
            Just(stale_marker()),
        ];
        let gap = prop_oneof![Just(10_000_000_000), 1..100_000_i64, 1..MINUTE * 40];
        (prop::collection::vec((gap, value), 1..300), any::<bool>()).prop_map(|(steps, grow)| {
            let (mut time_ns, mut sum) = (-MINUTE * 7, 0.0);
            let place = |(gap, value): (i64, f64)| {
                time_ns += gap;
                sum += if value.is_finite() { value.abs() } else { 0.0 };
                (time_ns, if grow { sum } else { value })
            };
            let (times, values): (Vec<i64>, Vec<f64>) = steps.into_iter().map(place).unzip();
            roll(&times, &values, MINUTE)
        })
    }

    /// Text, with the bits of what is not a number.
    fn text(buckets: &[RollupBucket]) -> Vec<String> {
        let bits = |b: &RollupBucket| [b.first.1, b.last.1, b.min, b.max, b.sum, b.falls].map(f64::to_bits);
        buckets.iter().map(|b| format!("{b:?} {:?}", bits(b))).collect()
    }

    proptest! {
        #[test]
        fn decoding_gives_what_was_encoded_to_the_bit(buckets in any_buckets()) {
            let (width, back) = decode(&encode(&buckets, MINUTE), RollupParts::ALL).unwrap();
            prop_assert_eq!(width, MINUTE);
            prop_assert_eq!(text(&back), text(&buckets));
        }

        #[test]
        fn parts_of_it_are_the_same_in_all_of_it(buckets in any_buckets()) {
            let bytes = encode(&buckets, MINUTE);
            let parts = RollupParts::FIRST | RollupParts::SUM;
            let known = |b: &RollupBucket| (b.end_ns, b.count, b.first.0, b.first.1.to_bits(), b.last.0, b.sum.to_bits(), b.ended_ns);
            let back = decode(&bytes, parts).unwrap().1;
            prop_assert_eq!(back.iter().map(known).collect::<Vec<_>>(), buckets.iter().map(known).collect::<Vec<_>>());
            prop_assert!(back.iter().all(|b| b.resets == 0 && b.max.to_bits() == 0));
        }

        #[test]
        fn damaged_bytes_never_panic_and_never_grow(buckets in any_buckets(), at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>()) {
            let mut bytes = encode(&buckets, MINUTE);
            let _ = decode(&bytes[..cut.index(bytes.len())], RollupParts::ALL);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Some((_, buckets)) = decode(&bytes, RollupParts::ALL) {
                prop_assert!(buckets.len() <= CHUNK_POINTS_MAX);
            }
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut typed = vec![TYPE_ROLLUP, 3];
            typed.extend(bytes);
            let _ = decode(&typed, RollupParts::ALL);
        }
    }

    #[test]
    fn a_counter_that_never_falls_costs_no_extremes() {
        let times: Vec<i64> = (0..8_640).map(|n| n * 10_000_000_000 + 3_000_000).collect();
        let values: Vec<f64> = (0..8_640).map(|n| f64::from(n * 17 + n % 13)).collect();
        let monotone = encode(&roll(&times, &values, MINUTE), MINUTE).len();
        let jumping: Vec<f64> = values.iter().map(|v| (v * 7_919.0) % 1_000.0).collect();
        let other = encode(&roll(&times, &jumping, MINUTE), MINUTE).len();
        assert!(monotone * 2 < other, "{monotone} bytes against {other}");
    }
}
