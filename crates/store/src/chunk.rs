//! Points of one series as compressed columns, and the facts known without decoding them.
//!
//! The bytes are described in `docs/format/segment.md` ("Chunk"). The same bytes rest in memory
//! while a series is young and in a segment file afterwards.

use model::Sample;

use crate::codec::{Reader, put_f64, put_i64, put_u64};
use crate::column::{Effort, append_column, put_column};
use crate::read::ReadError;

/// Most points of one chunk; a decoder refuses more, so that damage can't ask for memory.
pub(crate) const CHUNK_POINTS_MAX: usize = 65_536;

/// Points with one float each. Other numbers are free, for native histograms among others.
const TYPE_FLOAT: u8 = 1;
/// Roll-ups, see `rollup_chunk`.
pub(crate) const TYPE_ROLLUP: u8 = 2;
/// The same, with times that it shares with other chunks of its file.
const TYPE_SHARED: u8 = 3;
const STEPS_NONE: u8 = 0;
const STEPS_ALL: u8 = 1;
const STEPS_SOME: u8 = 2;

/// A piece of a series, in order of time.
pub trait Chunk {
    /// What is known without decoding.
    fn summary(&self) -> &Summary;
    /// The points, in order of time. Damage was left out before; an error is a chunk that is sound
    /// and written by something newer.
    fn samples(&self) -> Result<Vec<Sample>, ReadError>;
}

/// Facts about a chunk, known without decoding it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Points.
    pub count: u32,
    /// Points whose value is NaN or infinite; `min`, `max` and `sum` leave them out.
    pub non_finite: u32,
    /// First and last time, nanoseconds.
    pub time_ns: (i64, i64),
    /// Value of the first and of the last point.
    pub first: f64,
    /// See `first`.
    pub last: f64,
    /// Least finite value, +inf when there is none.
    pub min: f64,
    /// Greatest finite value, -inf when there is none.
    pub max: f64,
    /// Sum of the finite values.
    pub sum: f64,
    /// Least and greatest step; absent when the points have none.
    pub steps: Option<(i64, i64)>,
    /// Step of the last point, absent when it has none.
    pub last_step: Option<i64>,
}

impl Summary {
    /// Of `samples`, which are in order of time and at least one.
    pub(crate) fn of(samples: &[Sample]) -> Self {
        let mut summary = Self {
            count: samples.len() as u32,
            non_finite: 0,
            time_ns: (0, 0),
            first: f64::NAN,
            last: f64::NAN,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: 0.0,
            steps: None,
            last_step: None,
        };
        if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
            summary.time_ns = (first.time_ns, last.time_ns);
            (summary.first, summary.last) = (first.value, last.value);
            summary.last_step = last.step;
        }
        for sample in samples {
            if sample.value.is_finite() {
                summary.min = summary.min.min(sample.value);
                summary.max = summary.max.max(sample.value);
                summary.sum += sample.value;
            } else {
                summary.non_finite += 1;
            }
            if let Some(step) = sample.step {
                let (least, greatest) = summary.steps.unwrap_or((step, step));
                summary.steps = Some((least.min(step), greatest.max(step)));
            }
        }
        summary
    }

    /// Takes in a summary of other points of the same series, whichever of the two is earlier.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.non_finite = self.non_finite.saturating_add(other.non_finite);
        if other.time_ns.0 < self.time_ns.0 {
            (self.time_ns.0, self.first) = (other.time_ns.0, other.first);
        }
        if other.time_ns.1 >= self.time_ns.1 {
            (self.time_ns.1, self.last, self.last_step) = (other.time_ns.1, other.last, other.last_step);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.steps = match (self.steps, other.steps) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    pub(crate) fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        self.time_ns.0 <= to_ns && from_ns <= self.time_ns.1
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, u64::from(self.count));
        put_u64(out, u64::from(self.non_finite));
        put_i64(out, self.time_ns.0);
        put_u64(out, self.time_ns.1.wrapping_sub(self.time_ns.0) as u64);
        for value in [self.first, self.last, self.min, self.max, self.sum] {
            put_f64(out, value);
        }
        let Some((least, greatest)) = self.steps else {
            out.push(STEPS_NONE);
            return;
        };
        out.push(if self.last_step.is_some() { STEPS_ALL } else { STEPS_SOME });
        put_i64(out, least);
        put_u64(out, greatest.wrapping_sub(least) as u64);
        if let Some(step) = self.last_step {
            put_u64(out, step.wrapping_sub(least) as u64);
        }
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (count, non_finite) = (reader.u32()?, reader.u32()?);
        let start = reader.i64()?;
        let end = start.wrapping_add(reader.u64()? as i64);
        let [first, last, min, max, sum] =
            [reader.f64()?, reader.f64()?, reader.f64()?, reader.f64()?, reader.f64()?];
        let steps = reader.byte()?;
        let (mut range, mut last_step) = (None, None);
        if steps != STEPS_NONE {
            let least = reader.i64()?;
            range = Some((least, least.wrapping_add(reader.u64()? as i64)));
            if steps == STEPS_ALL {
                last_step = Some(least.wrapping_add(reader.u64()? as i64));
            }
        }
        let time_ns = (start, end);
        Some(Self { count, non_finite, time_ns, first, last, min, max, sum, steps: range, last_step })
    }
}

/// Puts points, of which later ones count, in order of time, one at each.
pub(crate) fn settle(samples: &mut Vec<Sample>) {
    samples.sort_by_key(|s| s.time_ns);
    samples.dedup_by(|later, kept| {
        let same = later.time_ns == kept.time_ns;
        if same {
            *kept = *later;
        }
        same
    });
}

/// The columns of `samples`: 1 to [`CHUNK_POINTS_MAX`] points in order of time.
pub(crate) fn encode(samples: &[Sample], effort: Effort) -> Vec<u8> {
    let exponent = time_exponent(samples.iter().map(|s| s.time_ns));
    let unit = 10_i64.pow(u32::from(exponent));
    let times: Vec<i64> = samples.iter().map(|s| s.time_ns / unit).collect();
    let mut out = Vec::with_capacity(samples.len() * 2 + 64);
    out.extend([TYPE_FLOAT, exponent, steps_kind(samples)]);
    put_u64(&mut out, samples.len() as u64);
    put_column(&mut out, &times, effort);
    put_values(&mut out, samples, effort);
    out
}

/// The same without the times, which are at `times_at` of the file.
pub(crate) fn encode_shared(samples: &[Sample], times_at: u64, effort: Effort) -> Vec<u8> {
    let mut out = Vec::with_capacity(samples.len() * 2 + 64);
    out.extend([TYPE_SHARED, steps_kind(samples)]);
    put_u64(&mut out, samples.len() as u64);
    put_u64(&mut out, times_at);
    put_values(&mut out, samples, effort);
    out
}

/// Times that chunks share; nanoseconds in order.
pub(crate) fn encode_times(times_ns: &[i64], effort: Effort) -> Vec<u8> {
    let exponent = time_exponent(times_ns.iter().copied());
    let unit = 10_i64.pow(u32::from(exponent));
    let times: Vec<i64> = times_ns.iter().map(|time_ns| time_ns / unit).collect();
    let mut out = vec![exponent];
    put_u64(&mut out, times.len() as u64);
    put_column(&mut out, &times, effort);
    out
}

/// See [`encode_times`]; `None` when the bytes are not that.
pub(crate) fn decode_times(bytes: &[u8]) -> Option<Vec<i64>> {
    let mut reader = Reader::new(bytes);
    let exponent = reader.byte()?;
    let count = take_count(&mut reader)?;
    let mut times_ns = Vec::new();
    append_times(&mut reader, exponent, count, &mut times_ns)?;
    reader.is_empty().then_some(times_ns)
}

/// Where in the file the times of a chunk are, unless it has them itself.
pub(crate) fn times_at(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    let [TYPE_SHARED, _] = reader.array()? else { return None };
    reader.u64()?;
    reader.u64()
}

/// The same chunk in a file that has its times at `times_at`; `None` when it has them itself.
pub(crate) fn with_times_at(bytes: &[u8], times_at: u64) -> Option<Vec<u8>> {
    let mut reader = Reader::new(bytes);
    let [TYPE_SHARED, kind] = reader.array()? else { return None };
    let count = reader.u64()?;
    reader.u64()?;
    let mut out = Vec::with_capacity(bytes.len() + 10);
    out.extend([TYPE_SHARED, kind]);
    put_u64(&mut out, count);
    put_u64(&mut out, times_at);
    out.extend_from_slice(reader.rest());
    Some(out)
}

fn steps_kind(samples: &[Sample]) -> u8 {
    match samples.iter().filter(|s| s.step.is_some()).count() {
        0 => STEPS_NONE,
        n if n == samples.len() => STEPS_ALL,
        _ => STEPS_SOME,
    }
}

fn put_values(out: &mut Vec<u8>, samples: &[Sample], effort: Effort) {
    debug_assert!(!samples.is_empty() && samples.len() <= CHUNK_POINTS_MAX, "{} points", samples.len());
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    put_column(out, &values, effort);
    let kind = steps_kind(samples);
    if kind == STEPS_SOME {
        let mut present = vec![0_u8; samples.len().div_ceil(8)];
        for (at, _) in samples.iter().enumerate().filter(|(_, s)| s.step.is_some()) {
            present[at / 8] |= 1 << (at % 8);
        }
        out.extend(present);
    }
    if kind != STEPS_NONE {
        let steps: Vec<i64> = samples.iter().filter_map(|s| s.step).collect();
        put_column(out, &steps, effort);
    }
}

fn take_count(reader: &mut Reader<'_>) -> Option<usize> {
    let count = reader.u64()?.try_into().ok()?;
    (1..=CHUNK_POINTS_MAX).contains(&count).then_some(count)
}

/// Appends times in order; what is there after `None` is of no use.
fn append_times(reader: &mut Reader<'_>, exponent: u8, count: usize, times_ns: &mut Vec<i64>) -> Option<()> {
    let unit = 10_i64.checked_pow(u32::from(exponent)).filter(|_| exponent <= 9)?;
    let start = times_ns.len();
    append_column(reader, count, times_ns)?;
    let times = &mut times_ns[start..];
    for time in &mut *times {
        *time = time.wrapping_mul(unit);
    }
    times.is_sorted().then_some(())
}

/// Appends the times of a chunk; returns the kind of its steps and how many points it has.
fn take_head(
    reader: &mut Reader<'_>,
    shared: Option<&[i64]>,
    times_ns: &mut Vec<i64>,
) -> Option<(u8, usize)> {
    match reader.array()? {
        [TYPE_FLOAT, exponent] => {
            let kind = reader.byte()?;
            let count = take_count(reader)?;
            append_times(reader, exponent, count, times_ns)?;
            Some((kind, count))
        }
        [TYPE_SHARED, kind] => {
            let count = take_count(reader)?;
            reader.u64()?;
            times_ns.extend_from_slice(shared.filter(|times| times.len() == count)?);
            Some((kind, count))
        }
        _ => None,
    }
    .filter(|(kind, _)| *kind <= STEPS_SOME)
}

/// The points of encoded bytes, in order of time; `None` when they are not that. `shared` are the
/// times at [`times_at`], where a chunk has that.
pub(crate) fn decode(bytes: &[u8], shared: Option<&[i64]>) -> Option<Vec<Sample>> {
    let mut reader = Reader::new(bytes);
    let mut times = Vec::new();
    let (kind, count) = take_head(&mut reader, shared, &mut times)?;
    let mut values: Vec<f64> = Vec::new();
    append_column(&mut reader, count, &mut values)?;
    let present = if kind == STEPS_SOME { reader.take(count.div_ceil(8))? } else { &[] };
    let has_step = |at: usize| match kind {
        STEPS_NONE => false,
        STEPS_ALL => true,
        _ => present[at / 8] & (1 << (at % 8)) != 0,
    };
    let with_step = (0..count).filter(|at| has_step(*at)).count();
    let mut steps: Vec<i64> = Vec::new();
    if with_step > 0 {
        append_column(&mut reader, with_step, &mut steps)?;
    }
    let mut steps = steps.into_iter();
    let samples = times.into_iter().zip(values).enumerate().map(|(at, (time_ns, value))| {
        let step = if has_step(at) { steps.next() } else { None };
        Sample { time_ns, value, step }
    });
    let samples = samples.collect();
    reader.is_empty().then_some(samples)
}

/// Appends times and values of encoded bytes; `None` when they are not that, and then nothing is
/// appended. Steps are not looked at. For `shared` see [`decode`].
pub(crate) fn decode_columns(
    bytes: &[u8],
    shared: Option<&[i64]>,
    times_ns: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Option<()> {
    let mut reader = Reader::new(bytes);
    let (times_at, values_at) = (times_ns.len(), values.len());
    let whole = take_head(&mut reader, shared, times_ns)
        .and_then(|(_, count)| append_column(&mut reader, count, values));
    if whole.is_none() {
        times_ns.truncate(times_at);
        values.truncate(values_at);
    }
    whole
}

/// The largest of 0, 3, 6 and 9 whose power of ten divides every time.
pub(crate) fn time_exponent(times_ns: impl Iterator<Item = i64>) -> u8 {
    let mut exponent = 9_u8;
    for time_ns in times_ns {
        while exponent > 0 && time_ns % 10_i64.pow(u32::from(exponent)) != 0 {
            exponent -= 3;
        }
        if exponent == 0 {
            break;
        }
    }
    exponent
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
        let value = prop_oneof![
            any::<f64>(),
            any::<u64>().prop_map(f64::from_bits),
            Just(-0.0),
            Just(f64::INFINITY),
            Just(f64::from_bits(0x7ff8_dead_beef_0001)),
            (0..100).prop_map(|n| f64::from(n) / 8.0),
        ];
        let gap = prop_oneof![1..5_i64, Just(1_000_000), Just(10_000_000_000), 1..i64::MAX / 1_000];
        let step = prop_oneof![Just(None), any::<i64>().prop_map(Some), (0..50_i64).prop_map(Some)];
        let points = prop::collection::vec((gap, value, step), 1..300);
        (points, any::<bool>(), -1_000_000_000_i64..1_000_000_000).prop_map(|(points, always_step, start)| {
            let mut time_ns = start * 1_000_000;
            let sample = |(gap, value, step): (i64, f64, Option<i64>)| {
                time_ns += gap;
                Sample { time_ns, value, step: if always_step { step.or(Some(7)) } else { step } }
            };
            points.into_iter().map(sample).collect()
        })
    }

    fn any_effort() -> impl Strategy<Value = Effort> {
        prop_oneof![Just(Effort::Quick), Just(Effort::Usual), Just(Effort::Thorough)]
    }

    fn bits(samples: &[Sample]) -> Vec<(i64, u64, Option<i64>)> {
        samples.iter().map(|s| (s.time_ns, s.value.to_bits(), s.step)).collect()
    }

    proptest! {
        #[test]
        fn decoding_gives_what_was_encoded_to_the_bit(samples in any_samples(), effort in any_effort()) {
            let bytes = encode(&samples, effort);
            let back = decode(&bytes, None).unwrap();
            prop_assert_eq!(bits(&back), bits(&samples));
            let (mut times, mut values) = (vec![-1], vec![-1.0]);
            decode_columns(&bytes, None, &mut times, &mut values).unwrap();
            prop_assert_eq!(&times[1..], samples.iter().map(|s| s.time_ns).collect::<Vec<_>>());
            let value_bits = |v: &f64| v.to_bits();
            prop_assert_eq!(
                values[1..].iter().map(value_bits).collect::<Vec<_>>(),
                samples.iter().map(|s| s.value.to_bits()).collect::<Vec<_>>()
            );
        }

        #[test]
        fn shared_times_are_found_by_their_place(samples in any_samples(), at in any::<u64>(), effort in any_effort()) {
            let times: Vec<i64> = samples.iter().map(|s| s.time_ns).collect();
            let packed = encode_times(&times, effort);
            prop_assert_eq!(decode_times(&packed), Some(times.clone()));
            let bytes = with_times_at(&encode_shared(&samples, 5, effort), at).unwrap();
            prop_assert_eq!(times_at(&bytes), Some(at));
            prop_assert_eq!(bits(&decode(&bytes, Some(&times)).unwrap()), bits(&samples));
            prop_assert!(decode(&bytes, None).is_none() && decode(&bytes, Some(&times[1..])).is_none());
            let (mut again, mut values) = (Vec::new(), Vec::new());
            decode_columns(&bytes, Some(&times), &mut again, &mut values).unwrap();
            prop_assert_eq!(again, times);
            prop_assert!(times_at(&encode(&samples, effort)).is_none());
        }

        #[test]
        fn damaged_bytes_never_panic_and_never_grow(samples in any_samples(), at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>()) {
            let bytes = encode(&samples, Effort::Quick);
            let mut wrong = bytes.clone();
            wrong[at.index(bytes.len())] ^= flip;
            prop_assert!(decode(&wrong, None).is_none_or(|back| back.len() <= CHUNK_POINTS_MAX));
            prop_assert!(decode(&bytes[..cut.index(bytes.len())], None).is_none());
            let (mut times, mut values) = (vec![-1], vec![-1.0]);
            let read = decode_columns(&wrong, None, &mut times, &mut values).is_some();
            prop_assert!(times.len() == values.len() && times.len() <= CHUNK_POINTS_MAX + 1);
            prop_assert!(read == (times.len() > 1));
        }

        #[test]
        fn damage_of_shared_times_never_panics_and_never_grows(samples in any_samples(), at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>()) {
            let times: Vec<i64> = samples.iter().map(|s| s.time_ns).collect();
            let packed = encode_times(&times, Effort::Quick);
            let mut wrong = packed.clone();
            wrong[at.index(packed.len())] ^= flip;
            prop_assert!(decode_times(&wrong).is_none_or(|back| back.len() <= CHUNK_POINTS_MAX && back.is_sorted()));
            prop_assert!(decode_times(&packed[..cut.index(packed.len())]).is_none());
            let bytes = encode_shared(&samples, 70_000, Effort::Quick);
            let mut wrong = bytes.clone();
            wrong[at.index(bytes.len())] ^= flip;
            prop_assert!(decode(&wrong, Some(&times)).is_none_or(|back| back.len() == times.len()));
            let cut = &bytes[..cut.index(bytes.len())];
            prop_assert!(decode(cut, Some(&times)).is_none());
            prop_assert!(with_times_at(cut, 1).is_none_or(|moved| decode(&moved, Some(&times)).is_none()));
        }

        #[test]
        fn summaries_come_back_and_add_up(samples in any_samples(), at in any::<prop::sample::Index>()) {
            let whole = Summary::of(&samples);
            let mut bytes = Vec::new();
            whole.put(&mut bytes);
            let back = Summary::take(&mut Reader::new(&bytes)).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{whole:?}"));
            let (before, after) = samples.split_at(at.index(samples.len()));
            if !before.is_empty() {
                let mut sum = Summary::of(after);
                sum.merge(&Summary::of(before));
                prop_assert_eq!((sum.count, sum.non_finite, sum.time_ns), (whole.count, whole.non_finite, whole.time_ns));
                prop_assert_eq!((sum.min, sum.max, sum.steps, sum.last_step), (whole.min, whole.max, whole.steps, whole.last_step));
                prop_assert_eq!((sum.first.to_bits(), sum.last.to_bits()), (whole.first.to_bits(), whole.last.to_bits()));
            }
        }
    }

    #[test]
    fn times_on_a_grid_are_stored_in_its_unit() {
        let line = |gap: i64| -> Vec<Sample> {
            (0..100).map(|n| Sample { time_ns: n * gap, value: 1.0, step: None }).collect()
        };
        let exponent = |gap: i64| encode(&line(gap), Effort::Usual)[1];
        assert_eq!(
            [exponent(1), exponent(5_000), exponent(3_000_000), exponent(60_000_000_000)],
            [0, 3, 6, 9]
        );
    }
}
